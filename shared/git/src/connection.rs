//! One conversation with a forge over smart HTTP: handshake, list of refs, and a pack.

use crate::error::FetchError;
use crate::fetch::{Credential, FetchLimits, RemoteRef};
use crate::http::{Bounded, Budget};
use crate::pack::{self, NewPack, text};
use crate::read::oid;
use crate::repository::{OBJECT_BYTES_MAX, Repository};
use gix::ObjectId;
use gix::protocol::fetch::{self, negotiate};
use gix::protocol::transport::client::blocking_io::http::Transport;
use gix::protocol::transport::{Protocol, Service};
use gix::protocol::{Handshake, handshake::Ref};
use sluice_model::ProjectName;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long a server may be silent before it counts as unavailable.
const SILENCE_MAX_SECONDS: u64 = 30;

impl Repository {
    /// Opens a conversation with the forge at `url`: checks the address, then sends the first
    /// request, with the credential, and reads the forge's handshake. The address must be https, or
    /// http without a credential or to this machine, and must not contain a user or password. The
    /// limits of time and size apply to the whole conversation. An error if the forge refuses the
    /// request or has no such repository.
    pub(crate) fn connect<'a>(
        &self,
        url: &'a str,
        credential: Option<&Credential>,
        limits: FetchLimits,
    ) -> Result<Connection<'a>, FetchError> {
        let address = |reason| FetchError::Address { project: self.project.clone(), reason };
        let parsed = gix::url::parse(url).map_err(|_| address("is no URL"))?;
        if parsed.user().is_some() || parsed.password().is_some() {
            return Err(address(
                "holds a user name or password: give them as the connection's credential",
            ));
        }
        let loopback = matches!(parsed.host(), Some(host) if host == "localhost" || host == "[::1]" || host == "::1" || host.starts_with("127."));
        match parsed.scheme {
            gix::url::Scheme::Https => {}
            gix::url::Scheme::Http if credential.is_none() || loopback => {}
            gix::url::Scheme::Http => {
                return Err(address("is http, and a credential is only sent over https"));
            }
            _ => return Err(address("is neither http nor https")),
        }
        let silence = Duration::from_secs(limits.timeout_seconds.clamp(1, SILENCE_MAX_SECONDS));
        let deadline = Instant::now() + Duration::from_secs(limits.timeout_seconds);
        let budget = Budget::new(deadline, limits.size_bytes);
        let client = Bounded::new(url, credential.map(Credential::header), silence, budget.clone());
        let mut transport = Transport::new_http(client, parsed, Protocol::V2, false);
        let mut connection = Connection {
            project: self.project.clone(),
            url,
            limits,
            budget,
            transport: None,
            handshake: Handshake::default(),
        };
        // A given credential was sent already, and there is no other.
        let opened = gix::protocol::handshake(
            &mut transport,
            Service::UploadPack,
            |_| Ok(None),
            Vec::new(),
            &mut gix::progress::Discard,
        );
        connection.handshake =
            opened.map_err(|source| connection.failed("read the refs", source))?;
        connection.transport = Some(transport);
        Ok(connection)
    }
}

/// One conversation with a forge about one repository.
pub(crate) struct Connection<'a> {
    project: ProjectName,
    url: &'a str,
    limits: FetchLimits,
    budget: Arc<Budget>,
    transport: Option<Transport<Bounded>>,
    handshake: Handshake,
}

/// Returns the name by which the client identifies itself.
fn agent() -> gix::protocol::command::Feature {
    ("agent", Some("git/sluice".into()))
}

impl Connection<'_> {
    /// Lists the refs for which `is_wanted` is true, sorted by name; an error if there are more
    /// than the limit. Refs that lead to no object are left out. The forge is asked for those with
    /// `prefixes` only, or for all if there are none. It may answer with more; those that are not
    /// wanted do not count towards the limit.
    pub(crate) fn refs(
        &mut self,
        prefixes: &[&str],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<RemoteRef>, FetchError> {
        // A server with an older protocol sends all refs with its handshake.
        let found = match self.handshake.refs.clone() {
            Some(refs) => Ok(refs),
            None => {
                let mut asked = gix::protocol::ls_refs::RefPrefixes::new();
                asked.extend(prefixes.iter().map(|prefix| (*prefix).into()));
                let command = gix::protocol::LsRefsCommand::new(
                    Some(asked),
                    &self.handshake.capabilities,
                    agent(),
                );
                match self.transport.as_mut() {
                    Some(transport) => {
                        command.invoke_blocking(transport, &mut gix::progress::Discard, false)
                    }
                    None => Ok(Vec::new()),
                }
            }
        };
        let found = found.map_err(|source| self.failed("read the refs", source))?;
        let mut refs: Vec<RemoteRef> =
            found.iter().filter_map(remote_ref).filter(|found| is_wanted(&found.name)).collect();
        if refs.len() > self.limits.refs_max {
            return Err(FetchError::TooManyRefs {
                project: self.project.clone(),
                url: self.url.to_owned(),
                limit: self.limits.refs_max,
            });
        }
        refs.sort();
        Ok(refs)
    }

    /// Requests a pack with everything reachable from `wants` and not from `haves`, and stores it
    /// with its index in the pack directory of `repository`. `None` if it has no objects. The
    /// repository must have the `haves`, and does not read the new pack until it is reloaded. A
    /// `have` that the forge does not know is no error; a `want` that it does not have is
    /// [`FetchError::Gone`].
    pub(crate) fn pack(
        &mut self,
        repository: &Repository,
        wants: Vec<ObjectId>,
        haves: Vec<ObjectId>,
    ) -> Result<Option<NewPack>, FetchError> {
        let Some(transport) = self.transport.as_mut() else {
            return Ok(None);
        };
        let mut made = None;
        let directory = repository.pack_dir();
        let fetched = gix::protocol::fetch(
            &mut OneRound { wants, haves },
            |data, _, interrupt| {
                let objects = repository.git.objects.clone();
                made = pack::keep_stream(data, &directory, objects, OBJECT_BYTES_MAX, interrupt)?;
                Ok(true)
            },
            gix::progress::Discard,
            &AtomicBool::new(false),
            fetch::Context {
                handshake: &mut self.handshake,
                transport,
                user_agent: agent(),
                trace_packetlines: false,
            },
            fetch::Options {
                shallow_file: directory.join("no-shallow-commits"),
                shallow: &fetch::Shallow::NoChange,
                tags: fetch::Tags::None,
                reject_shallow_remote: true,
            },
        );
        fetched.map_err(|source| self.failed("fetch the objects", source))?;
        if let Some(made) = &made {
            tracing::debug!(project = %self.project, pack = %made.name, objects = made.objects, bytes = made.size_bytes, "fetched a pack");
        }
        Ok(made)
    }

    /// Returns the error for a ref or commit that the forge does not have.
    pub(crate) fn gone(&self, wanted: &str) -> FetchError {
        FetchError::Gone {
            project: self.project.clone(),
            url: self.url.to_owned(),
            wanted: wanted.to_owned(),
        }
    }

    /// Converts a failure into the error class that the caller acts on: too large, out of time,
    /// access denied, no such repository, or commit gone. Anything else is
    /// [`FetchError::Unavailable`]. `doing` names the attempt.
    fn failed(&self, doing: &'static str, source: gix::Error) -> FetchError {
        let (project, url) = (self.project.clone(), self.url.to_owned());
        // The library reports the server's refusals only as text.
        let says =
            |words: &str| source.iter_errors().any(|error| error.to_string().contains(words));
        if self.budget.too_large() {
            FetchError::TooLarge { project, url, limit_bytes: self.limits.size_bytes }
        } else if self.budget.timed_out() {
            FetchError::TimedOut { project, url, limit_seconds: self.limits.timeout_seconds }
        } else if matches!(self.budget.refused(), Some(401 | 403)) {
            FetchError::Denied { project, url }
        } else if matches!(self.budget.refused(), Some(404 | 410)) {
            FetchError::NoRepository { project, url }
        } else if says("not our ref") {
            FetchError::Gone { project, url, wanted: "such commit any more".to_owned() }
        } else {
            let detail = source.probable_cause().to_string();
            FetchError::Unavailable { project, url, doing, detail, source: source.into() }
        }
    }
}

/// Converts a listed ref; `None` for one that leads to no object.
fn remote_ref(found: &Ref) -> Option<RemoteRef> {
    let (name, target, peeled) = found.unpack();
    let leads_to = match found {
        Ref::Symbolic { target, .. } => Some(text(target)),
        Ref::Peeled { .. } | Ref::Direct { .. } | Ref::Unborn { .. } => None,
    };
    Some(RemoteRef { name: text(name), target: oid(target?), peeled: peeled.map(oid), leads_to })
}

/// Sends all wants and haves in one request. The forge omits what known haves reach; another round
/// trip would cost more than the few objects it could save.
struct OneRound {
    wants: Vec<ObjectId>,
    haves: Vec<ObjectId>,
}

impl fetch::Negotiate for OneRound {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<negotiate::Action> {
        Ok(negotiate::Action::MustNegotiate { remote_ref_target_known: Vec::new() })
    }

    /// Adds all wants to the request, and returns whether there are any.
    fn add_wants(&mut self, arguments: &mut fetch::Arguments, _known: &[bool]) -> bool {
        for want in &self.wants {
            arguments.want(want);
        }
        !self.wants.is_empty()
    }

    /// Adds all haves to the request. The returned flag is always true: there is no second round.
    fn one_round(
        &mut self,
        _state: &mut negotiate::one_round::State,
        arguments: &mut fetch::Arguments,
        _previous: Option<&fetch::Response>,
    ) -> gix::Result<(negotiate::Round, bool)> {
        for have in &self.haves {
            arguments.have(have);
        }
        let sent = self.haves.len();
        let round = negotiate::Round {
            haves_sent: sent,
            in_vain: 0,
            haves_to_send: sent,
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}
