//! Fetching over smart HTTP: what a forge has under some refs or ids arrives as one pack that is
//! whole by itself.

use crate::connection::Connection;
use crate::error::{FetchError, ReadError};
use crate::pack::NewPack;
use crate::read::oid;
use crate::repository::Repository;
use base64::Engine as _;
use gix::ObjectId;
use sluice_model::git::Oid;
use std::collections::BTreeSet;
use std::fmt;

/// A user name and password, or token, for a forge. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    user: String,
    password: String,
}

impl Credential {
    /// Makes a credential of user name and password.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }

    /// Makes a credential of an access token, in the form that GitHub and others take.
    pub fn token(token: impl Into<String>) -> Self {
        Self::new("x-access-token", token)
    }

    /// Returns the value of the `Authorization` header.
    pub(crate) fn header(&self) -> String {
        let pair = format!("{}:{}", self.user, self.password);
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(not shown)")
    }
}

/// Bounds of one fetch, all its requests together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// How long it may take; a server that falls silent is given up after at most 30 seconds more.
    pub timeout_seconds: u64,
    /// How many bytes may be received.
    pub size_bytes: u64,
    /// How many refs may be wanted, by prefix and by name.
    pub refs_max: usize,
}

impl Default for FetchLimits {
    /// Two minutes, 2 GiB, 20,000 refs.
    fn default() -> Self {
        Self { timeout_seconds: 120, size_bytes: 2 << 30, refs_max: 20_000 }
    }
}

/// Something wanted from a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// A ref by its full name: `refs/heads/main`, `refs/pull/7/head`.
    Ref(String),
    /// All refs whose full name starts so: `refs/heads/`.
    Prefix(String),
    /// A commit by its id.
    Commit(Oid),
}

/// What to fetch and from where.
#[derive(Debug, Clone)]
pub struct FetchRequest<'a> {
    /// The repository's address, `https://…` or `http://…`, without a credential.
    pub url: &'a str,
    /// What to show the forge. Over `http` it is sent to loopback addresses only.
    pub credential: Option<&'a Credential>,
    /// What is wanted.
    pub wants: &'a [Want],
    /// Commits whose packs are held: the refs as they were recorded after the last fetch. Those
    /// that are not held are passed over, and without any the whole history arrives.
    pub haves: &'a [Oid],
    /// Bounds.
    pub limits: FetchLimits,
}

/// A ref as a forge has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemoteRef {
    /// Its full name.
    pub name: String,
    /// The object it points to.
    pub target: Oid,
    /// The commit behind it, where `target` is an annotated tag.
    pub peeled: Option<Oid>,
    /// The full name of the ref that it is another name of, as `HEAD` is of the default branch.
    pub leads_to: Option<String>,
}

impl RemoteRef {
    /// Returns the commit behind the ref.
    pub fn commit(&self) -> &Oid {
        self.peeled.as_ref().unwrap_or(&self.target)
    }
}

/// What a fetch brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The wanted refs as the forge has them now, sorted by name.
    pub refs: Vec<RemoteRef>,
    /// What is new, none when everything was held. The pack is held by the repository already.
    pub packs: Vec<NewPack>,
}

/// More commits are not offered to a forge: the newest of each line tell it what it needs.
const HAVES_MAX: usize = 512;
/// Of each commit held, older ones are offered too, in case its branch was rewritten. So far back,
/// and of so many commits.
const STEPS_BACK_MAX: usize = 128;
const LINES_BACK_MAX: usize = 16;

impl Repository {
    /// Lists the refs of a forge's repository whose full names start with one of `prefixes`, sorted
    /// by name.
    pub fn ls_refs(
        &self,
        url: &str,
        credential: Option<&Credential>,
        prefixes: &[&str],
        limits: FetchLimits,
    ) -> Result<Vec<RemoteRef>, FetchError> {
        let mut connection = self.connect(url, credential, limits)?;
        connection.refs(prefixes, |name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    }

    /// Asks a forge's repository for one ref by its full name; `None` where there is none of that
    /// name. However many other names begin like it, they count for no limit.
    pub fn ls_ref(
        &self,
        url: &str,
        credential: Option<&Credential>,
        name: &str,
        limits: FetchLimits,
    ) -> Result<Option<RemoteRef>, FetchError> {
        let mut connection = self.connect(url, credential, limits)?;
        Ok(connection.refs(&[name], |found| found == name)?.pop())
    }

    /// Fetches what is wanted and not held. Asks the forge at most three times, in one go each.
    pub fn fetch(&mut self, request: &FetchRequest<'_>) -> Result<Fetched, FetchError> {
        let mut connection = self.connect(request.url, request.credential, request.limits)?;
        let (refs, wanted) = self.resolve(&mut connection, request.wants)?;
        let mut missing = Vec::new();
        for object in &wanted {
            if !self.has(object) {
                missing.push(self.id(object)?);
            }
        }
        let made = if missing.is_empty() {
            None
        } else {
            connection.pack(self, missing, self.offer(request.haves)?)?
        };
        if made.is_some() {
            self.reload()?;
        }
        for object in &wanted {
            if !self.has(object) {
                return Err(connection.gone(object.as_str()));
            }
        }
        Ok(Fetched { refs, packs: made.into_iter().collect() })
    }

    /// Turns wants into refs and the objects behind them.
    fn resolve(
        &self,
        connection: &mut Connection<'_>,
        wants: &[Want],
    ) -> Result<(Vec<RemoteRef>, BTreeSet<Oid>), FetchError> {
        let prefixes: Vec<&str> = wants
            .iter()
            .filter_map(|want| match want {
                Want::Ref(name) | Want::Prefix(name) => Some(name.as_str()),
                Want::Commit(_) => None,
            })
            .collect();
        let is_wanted = |name: &str| {
            wants.iter().any(|want| match want {
                Want::Ref(wanted) => name == wanted,
                Want::Prefix(prefix) => name.starts_with(prefix.as_str()),
                Want::Commit(_) => false,
            })
        };
        let offered =
            if prefixes.is_empty() { Vec::new() } else { connection.refs(&prefixes, is_wanted)? };
        let mut refs = BTreeSet::new();
        let mut objects = BTreeSet::new();
        for want in wants {
            match want {
                Want::Commit(id) => {
                    objects.insert(id.clone());
                }
                Want::Prefix(prefix) => refs
                    .extend(offered.iter().filter(|found| found.name.starts_with(prefix)).cloned()),
                Want::Ref(name) => match offered.iter().find(|found| found.name == *name) {
                    Some(found) => {
                        refs.insert(found.clone());
                    }
                    None => return Err(connection.gone(name)),
                },
            }
        }
        objects.extend(refs.iter().map(|found| found.target.clone()));
        Ok((refs.into_iter().collect(), objects))
    }

    /// Chooses the commits to tell the forge about: those given, then some of their first parents
    /// at doubling distances.
    fn offer(&self, haves: &[Oid]) -> Result<Vec<ObjectId>, ReadError> {
        let mut offered: Vec<ObjectId> = Vec::new();
        for have in haves.iter().take(HAVES_MAX) {
            let id = self.id(have)?;
            if self.has(have) && !offered.contains(&id) {
                offered.push(id);
            }
        }
        for tip in offered.clone().into_iter().take(LINES_BACK_MAX) {
            let mut next = tip;
            for step in 1..=STEPS_BACK_MAX {
                let Some(parent) = self.commit(&oid(&next))?.parents.first().cloned() else {
                    break;
                };
                next = self.id(&parent)?;
                if step.is_power_of_two() && offered.len() < HAVES_MAX {
                    offered.push(next);
                }
            }
        }
        Ok(offered)
    }
}
