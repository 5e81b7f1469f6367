//! The interface between the executor service and what runs jobs: inputs, events, stop signal and
//! result (Z7.6).

use crate::id_token::TokenIssuer;
use async_trait::async_trait;
use serde_json::{Map, Value};
use sluice_git::PackName;
use sluice_keys::Secret;
use sluice_model::build::{BuildResult, Order, Pause, PlaybookStart, RunEnd, Speculation};
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_model::job::{FrozenJob, SecretUse};
use sluice_model::node::NodeAccess;
use sluice_model::{ConnectionName, JobName, NodeId, ProjectName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// Runs jobs. [`crate::Ansible`] is the implementation of the product; tests have others.
#[async_trait]
pub trait Runner: Send + Sync {
    /// Runs one attempt of a job and returns how it ended; a failure is a result too. `jobdir` is
    /// the absolute path of the build's directory, which no build has used; the caller archives the
    /// logs below its `work/logs` and removes it afterwards. The result `Retry` asks for another
    /// attempt. `stop` may end the attempt early, or lets a paused build go on.
    async fn execute(
        &self,
        job: &JobAttempt<'_>,
        sources: &dyn RepositorySources,
        jobdir: &Path,
        stop: StopSignal,
        observer: &dyn Observer,
    ) -> RunEnd;
}

/// The inputs of one attempt of a job.
#[derive(Clone, Copy)]
pub struct JobAttempt<'a> {
    /// The gate's order for the build.
    pub order: &'a Order,
    /// The frozen job.
    pub job: &'a FrozenJob,
    /// The state under test.
    pub speculation: &'a Speculation,
    /// The nodes of the build, in the nodeset's order.
    pub nodes: &'a [NodeAccess],
    /// The private key that the nodes accept, an OpenSSH file of mode 0600; `None` without nodes.
    pub node_key: Option<&'a Path>,
    /// The decrypted secrets of its playbooks.
    pub secrets: &'a OpenedSecrets,
    /// The jobs that depend on this one (`zuul.child_jobs`).
    pub child_jobs: &'a [JobName],
    /// Data and artifacts from parent jobs and changes ahead.
    pub inherited: &'a InheritedData,
    /// How much of the job is run.
    pub scope: AttemptScope,
    /// Until when connections to the nodes may be opened.
    pub lease: &'a Lease,
    /// Finds who may log in on the nodes after the build; `None` if no nodes are ever held.
    pub holder: Option<&'a dyn HolderLookup>,
}

/// How much of a job an attempt runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptScope {
    /// All playbooks.
    Whole,
    /// Only the post-run playbooks, to collect the logs of a build whose executor was lost, after
    /// everything was ended on the nodes that its executor had started there.
    CollectLogs,
}

/// Until when an executor may open connections to nodes: until its session runs out, as far as it
/// knows. Afterwards another executor may use the nodes. A paused executor that goes on finds it
/// over before it has renewed anything. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Lease(Arc<Mutex<Option<Instant>>>);

impl Lease {
    /// Returns a lease that is never over, unless it is renewed.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// Sets when the lease is over.
    pub fn renew(&self, until: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Ends the lease now.
    pub fn end(&self) {
        self.renew(Instant::now());
    }

    /// Returns whether the lease is over.
    pub fn is_over(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() >= until)
    }

    /// Waits until the lease is over, as it is now: a renewal meanwhile does not prolong the wait.
    /// Returns at once if it is over, and never if it is unlimited.
    pub async fn over(&self) {
        match self.until() {
            Some(until) => tokio::time::sleep_until(until.into()).await,
            None => std::future::pending().await,
        }
    }

    /// Returns when the lease is over; `None` if it is unlimited.
    fn until(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who may log in on the nodes of a build once it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderAccess {
    /// The id of the request that holds the nodes.
    pub request: String,
    /// The holder's public key, one line of `authorized_keys` without options.
    pub key: String,
    /// The nodes that get the key.
    pub nodes: BTreeSet<NodeId>,
}

/// Finds the holder of a build's nodes.
#[async_trait]
pub trait HolderLookup: Send + Sync {
    /// Returns who may log in on the nodes of a build that ends with this result; `None` if the
    /// nodes are not held, or the holder has given no key. An error if that cannot be found out.
    async fn holder(&self, result: BuildResult) -> Result<Option<HolderAccess>, String>;
}

/// Data that a build receives from earlier builds. It has no `Debug`, because it holds plaintext
/// secrets (Z5.4).
#[derive(Clone, Default)]
pub struct InheritedData {
    /// Data returned by parents, later ones winning: variables of the lowest precedence.
    pub data: Map<String, Value>,
    /// Secret data returned by parents: variables that the job's own secrets override.
    pub secret_data: Map<String, Value>,
    /// Artifacts of parents and of changes ahead (`zuul.artifacts`).
    pub artifacts: Vec<Value>,
}

/// Decrypted secrets. It has neither `Debug` nor `Serialize`, so it cannot get into a log or a
/// record (Z5.4).
#[derive(Default)]
pub struct OpenedSecrets {
    /// The plaintexts of the secrets of playbooks, by [`Self::key`].
    plaintexts: BTreeMap<String, Value>,
    /// The private SSH keys of the build.
    ssh_keys: Vec<BuildSshKey>,
    /// Issues the tokens of secrets that have no values; `None` without such secrets.
    token_issuer: Option<TokenIssuer>,
}

/// A private SSH key that a build may log in with, besides that of its nodes (Z8.2). It has no
/// `Debug`, because it holds a private key.
#[derive(Clone)]
pub struct BuildSshKey {
    /// Whose key it is, for the log: `project org/one`, `tenant acme`.
    pub owner: String,
    /// The private key in PEM, without a passphrase.
    pub private: Arc<Secret>,
}

impl OpenedSecrets {
    /// Adds the plaintext of `secret`: [`SecretUse::data`] with each ciphertext replaced.
    pub fn insert(&mut self, secret: &SecretUse, plain: Value) {
        self.plaintexts.insert(Self::key(secret), plain);
    }

    /// Returns the plaintext of `secret`; `None` if it was not decrypted.
    pub fn get(&self, secret: &SecretUse) -> Option<&Value> {
        self.plaintexts.get(&Self::key(secret))
    }

    /// Returns all plaintexts, for redaction.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.plaintexts.values()
    }

    /// Adds what issues the tokens of secrets that have no values.
    pub fn set_token_issuer(&mut self, issuer: TokenIssuer) {
        self.token_issuer = Some(issuer);
    }

    /// Returns what issues the tokens of secrets that have no values; `None` without such secrets.
    pub fn token_issuer(&self) -> Option<&TokenIssuer> {
        self.token_issuer.as_ref()
    }

    /// Adds an SSH key, which is tried after those that were added before.
    pub fn add_ssh_key(&mut self, key: BuildSshKey) {
        self.ssh_keys.push(key);
    }

    /// Returns the SSH keys in the order in which they are tried.
    pub fn ssh_keys(&self) -> &[BuildSshKey] {
        &self.ssh_keys
    }

    // Two branches may define a secret of the same name, so the key includes the ciphertext.
    /// Returns a hash by which equal secrets are recognised: of the project, name and data, which
    /// includes the ciphertext.
    fn key(secret: &SecretUse) -> String {
        digest(&[secret.project.as_str(), &secret.secret, &secret.data.to_string()])
    }
}

/// Provides the Git packs of repositories (Z7.2).
#[async_trait]
pub trait RepositorySources: Send + Sync {
    /// Returns packs on this machine's disk that contain everything reachable from the requested
    /// commits. They exist at least until the build has ended, and must not be modified. An error
    /// if a pack cannot be provided; a request without packs is none.
    async fn packs(&self, request: &PackRequest<'_>) -> Result<Packs, SourceError>;
}

/// Packs on this machine's disk.
#[derive(Debug, Clone)]
pub struct Packs {
    /// The directory that holds `<name>.pack` and `<name>.idx`.
    pub directory: PathBuf,
    /// The names of the packs in it.
    pub names: Vec<PackName>,
}

/// A request for packs of one repository.
#[derive(Debug, Clone)]
pub struct PackRequest<'a> {
    /// The connection of the project.
    pub connection: Option<&'a ConnectionName>,
    /// The project.
    pub project: &'a ProjectName,
    /// The object keys of the packs, as recorded by the merger; empty for a project outside of the
    /// tested state.
    pub packs: Vec<&'a str>,
    /// The commits that the packs must contain.
    pub commits: Vec<&'a Oid>,
}

/// The packs of a repository could not be provided. The build is retried then.
#[derive(Debug, thiserror::Error)]
#[error("could not get the objects of {project}")]
pub struct SourceError {
    /// The project.
    pub project: ProjectName,
    /// What went wrong.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Receives the events of a running build. Calls must not block, because they are made from the
/// build's own task.
pub trait Observer: Send + Sync {
    /// The workspace is ready and the first playbook starts.
    fn started(&self, at: Timestamp);
    /// A playbook begins. Not called for the playbooks that collect the logs of a lost build.
    fn playbook_begins(&self, start: PlaybookStart);
    /// `bytes` were appended to the log at `offset`.
    fn log_appended(&self, offset: u64, bytes: &[u8]);
    /// A task of a main playbook failed without rescue: the build will fail.
    fn will_fail(&self);
    /// The main playbooks passed and the job asks to pause; `pause` holds the data for its
    /// dependents. The build continues after [`Stopper::resume`].
    fn paused(&self, pause: Pause);
    /// All secret data that the job has returned for its dependents so far; empty if none. It
    /// replaces that of the earlier call. Called before each [`Self::paused`] and after the last
    /// playbook; not if the data is too large.
    fn returned_secrets(&self, secret_data: Map<String, Value>);
}

/// Requests a running build to stop, or a paused one to resume. Dropping it has no effect.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<BuildRequests>);

/// A requested stop.
#[derive(Debug, Clone)]
struct StopRequest {
    /// The reason.
    reason: String,
    /// The result of the build, if the stop ends it.
    result: BuildResult,
}

/// The senders of both requests.
#[derive(Debug)]
struct BuildRequests {
    /// The requested stop.
    stop: watch::Sender<Option<StopRequest>>,
    /// Whether the build may resume.
    resume: watch::Sender<bool>,
}

impl Stopper {
    /// Returns a stopper and the signal on which the build receives its requests.
    pub fn new() -> (Self, StopSignal) {
        let (stop, stopped) = watch::channel(None);
        let (resume, resumed) = watch::channel(false);
        let requests = Arc::new(BuildRequests { stop, resume });
        (Self(Arc::clone(&requests)), StopSignal { stopped, resumed, _requests: requests })
    }

    /// Requests the stop of a build that is no longer wanted: it ends as `ABORTED`. Later requests
    /// change nothing.
    pub fn stop(&self, reason: &str) {
        self.request(reason, BuildResult::Aborted);
    }

    /// Requests the stop of a build that this executor cannot go on with: it ends as `RETRY`, since
    /// the attempt does not count. Later requests change nothing.
    pub fn stop_and_retry(&self, reason: &str) {
        self.request(reason, BuildResult::Retry);
    }

    /// Requests the stop, unless one is requested.
    fn request(&self, reason: &str, result: BuildResult) {
        self.0.stop.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(StopRequest { reason: reason.to_owned(), result });
            }
            first
        });
    }

    /// Lets the build resume, even if it pauses only later.
    pub fn resume(&self) {
        self.0.resume.send_replace(true);
    }
}

/// Receives the requests to stop or resume one build.
#[derive(Debug, Clone)]
pub struct StopSignal {
    /// The requested stop, once there is one.
    stopped: watch::Receiver<Option<StopRequest>>,
    /// Whether the build may resume after a pause.
    resumed: watch::Receiver<bool>,
    // Keeps the senders alive, so that waiting does not end when the stopper is dropped.
    /// Keeps the channels open while the signal exists.
    _requests: Arc<BuildRequests>,
}

impl StopSignal {
    /// Waits until a stop is requested and returns the reason; at once if that has happened. Never
    /// returns without a stop.
    pub async fn stopped(&mut self) -> String {
        let reason =
            self.stopped.wait_for(Option::is_some).await.map(|request| {
                request.as_ref().map(|stop| stop.reason.clone()).unwrap_or_default()
            });
        match reason {
            Ok(reason) => reason,
            // Cannot happen, because this value holds the sender.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits until the build may resume, or a stop is requested; returns at once if either has
    /// happened, even before the build paused. So a second pause does not wait.
    pub async fn resumed(&mut self) {
        tokio::select! {
            _ = self.resumed.wait_for(|resumed| *resumed) => {}
            _ = self.stopped.wait_for(Option::is_some) => {}
        }
    }

    /// Returns the reason of a requested stop; `None` if there is none.
    pub fn reason(&self) -> Option<String> {
        self.stopped.borrow().as_ref().map(|stop| stop.reason.clone())
    }

    /// Returns the result of a build that a stop ends: `RETRY` if the executor stops it for its own
    /// sake, otherwise `ABORTED`.
    pub fn result(&self) -> BuildResult {
        self.stopped.borrow().as_ref().map_or(BuildResult::Aborted, |stop| stop.result)
    }
}
