//! Fetches over smart HTTP: the objects behind requested refs or ids arrive as one self-contained
//! pack.

use crate::connection::Connection;
use crate::error::{FetchError, GitReadError};
use crate::pack::NewPack;
use crate::read::oid;
use crate::repository::Repository;
use base64::Engine as _;
use gix::ObjectId;
use sluice_model::git::Oid;
use std::collections::BTreeSet;
use std::fmt;

/// A user name and password, or token, for a forge. Its debug output is redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    user: String,
    password: String,
}

impl Credential {
    /// Creates a credential from a user name and password.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }

    /// Creates a credential from an access token, in the form that GitHub and others accept.
    pub fn token(token: impl Into<String>) -> Self {
        Self::new("x-access-token", token)
    }

    /// Returns the value of the `Authorization` header: `Basic` and the credential in base64.
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

/// The limits of one fetch, for all of its requests together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// The time limit. A silent server is given up after at most 30 seconds more.
    pub timeout_seconds: u64,
    /// The most bytes that are received.
    pub size_bytes: u64,
    /// The most refs that prefixes and names may match.
    pub refs_max: usize,
}

impl Default for FetchLimits {
    /// Returns two minutes, 2 GiB and 20,000 refs.
    fn default() -> Self {
        Self { timeout_seconds: 120, size_bytes: 2 << 30, refs_max: 20_000 }
    }
}

/// One thing to request from a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// A ref by its full name: `refs/heads/main`, `refs/pull/7/head`.
    Ref(String),
    /// All refs whose full name has this prefix: `refs/heads/`.
    Prefix(String),
    /// A commit by its id.
    Commit(Oid),
}

/// A fetch: what to request, and from where.
#[derive(Debug, Clone)]
pub struct FetchRequest<'a> {
    /// The repository's address, `https://…` or `http://…`, without a credential.
    pub url: &'a str,
    /// The credential for the forge. Over `http` it is sent only to loopback addresses.
    pub credential: Option<&'a Credential>,
    /// The requested refs and commits.
    pub wants: &'a [Want],
    /// Commits that are in the cache: the refs recorded after the last fetch. Missing ones are
    /// ignored; without any, the whole history is fetched.
    pub haves: &'a [Oid],
    /// The limits.
    pub limits: FetchLimits,
}

/// A ref on a forge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemoteRef {
    /// The full name.
    pub name: String,
    /// The object that it points to.
    pub target: Oid,
    /// The tagged commit, when `target` is an annotated tag.
    pub peeled: Option<Oid>,
    /// The full name of the target of a symbolic ref, as for `HEAD`.
    pub leads_to: Option<String>,
}

impl RemoteRef {
    /// Returns the commit that the ref leads to; for an annotated tag, the tagged object.
    pub fn commit(&self) -> &Oid {
        self.peeled.as_ref().unwrap_or(&self.target)
    }
}

/// The result of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The requested refs as they are on the forge, sorted by name.
    pub refs: Vec<RemoteRef>,
    /// The new packs, empty when nothing was missing. The repository has them already.
    pub packs: Vec<NewPack>,
}

/// The most commits that are offered to a forge; the newest of each branch are enough.
const HAVES_MAX: usize = 512;
/// How far back, and for how many commits, ancestors are offered too, in case a branch was
/// rewritten.
const STEPS_BACK_MAX: usize = 128;
const LINES_BACK_MAX: usize = 16;

impl Repository {
    /// Asks a forge's repository at `url` for the refs whose full names start with one of
    /// `prefixes`, and returns them sorted by name; none without prefixes. No such ref is no error;
    /// more than `limits.refs_max` are. Fetches no objects and stores nothing.
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

    /// Asks a forge's repository at `url` for one ref by its full name; `None` when there is none.
    /// Other refs with this prefix do not count towards the limit. Fetches no objects and stores
    /// nothing.
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

    /// Fetches those of the requested objects that this repository lacks, and adds them to it as
    /// one pack, with their history except for what those of `request.haves` reach that this
    /// repository has. The history of requested objects that are there is not checked. Returns all
    /// requested refs, also those whose objects were there. A ref or commit that the forge does not
    /// have is [`FetchError::Gone`]; a prefix without refs is no error. Takes at most three
    /// requests.
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

    /// Resolves requests to refs, sorted by name, and to the ids of the objects behind them (for an
    /// annotated tag, the tag's own) together with the requested commits, which are not checked. An
    /// error if a ref requested by its name does not exist. Asks the forge only if a ref or prefix
    /// is requested.
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

    /// Chooses the commits to offer to the forge, at most 512: those of the first 512 `haves` that
    /// the repository has, then up to 128 first-parent ancestors of the first 16 at doubling
    /// distances (the ancestors 1, 2, 4 and so on). An error if a text is no object id, or one of
    /// the first 16 leads to no commit.
    fn offer(&self, haves: &[Oid]) -> Result<Vec<ObjectId>, GitReadError> {
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
