//! What executing a build takes and gives: the contract between the gate's side and whatever runs
//! jobs (Z7.6).

use async_trait::async_trait;
use serde_json::{Map, Value};
use sluice_git::PackName;
use sluice_model::build::{Ended, Order, Pause, Speculation};
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_model::job::{FrozenJob, SecretUse};
use sluice_model::node::NodeAccess;
use sluice_model::{ConnectionName, JobName, ProjectName, Timestamp};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// Executes builds. The gate knows claim, report and result; how a job is run is an
/// implementation's own business.
#[async_trait]
pub trait Runner: Send + Sync {
    /// Runs one attempt of a job to its end and returns how it ended; it never fails otherwise.
    ///
    /// `jobdir` is an absolute path that exists no longer than this build; what lies below its
    /// `work/logs` afterwards is what there is to archive. The caller removes it. A result of
    /// `Retry` says that the attempt does not count.
    async fn execute(
        &self,
        job: &Job<'_>,
        sources: &dyn Sources,
        jobdir: &Path,
        stop: StopSignal,
        observer: &dyn Observer,
    ) -> Ended;
}

/// One attempt of one job with everything that has been decided about it.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// What the gate asks for.
    pub order: &'a Order,
    /// The frozen job.
    pub job: &'a FrozenJob,
    /// The state under test.
    pub speculation: &'a Speculation,
    /// The nodes it was given, in the nodeset's order.
    pub nodes: &'a [NodeAccess],
    /// The private key that its nodes accept: an OpenSSH file of mode 0600. `None` when it has no
    /// nodes.
    pub node_key: Option<&'a Path>,
    /// The opened secrets of its playbooks.
    pub secrets: &'a OpenedSecrets,
    /// Jobs that wait for this one (`zuul.child_jobs`).
    pub child_jobs: &'a [JobName],
    /// What the jobs it waited for left it.
    pub inherited: &'a Inherited,
}

/// What a build gets from the jobs it depends on. It holds plaintext, so that it has no `Debug`
/// (Z5.4).
#[derive(Clone, Default)]
pub struct Inherited {
    /// Their returned data, later parents winning; the lowest precedence of all variables.
    pub data: Map<String, Value>,
    /// What they returned as secret: variables of its playbooks like secrets, before those of its
    /// own definition.
    pub secret_data: Map<String, Value>,
    /// Artifacts they, and changes ahead, offer to this job (`zuul.artifacts`).
    pub artifacts: Vec<Value>,
}

/// Plaintext of secrets. It has neither `Debug` nor `Serialize`, so that it cannot slip into a log
/// or a record (Z5.4).
#[derive(Default)]
pub struct OpenedSecrets(BTreeMap<String, Value>);

impl OpenedSecrets {
    /// Keeps the plaintext mapping of `secret`, as [`SecretUse::data`] with each ciphertext
    /// replaced.
    pub fn insert(&mut self, secret: &SecretUse, plain: Value) {
        self.0.insert(Self::key(secret), plain);
    }

    /// Returns the plaintext of `secret`, or `None` if nobody opened it.
    pub fn get(&self, secret: &SecretUse) -> Option<&Value> {
        self.0.get(&Self::key(secret))
    }

    /// Returns all plaintexts, for redaction.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.0.values()
    }

    // Two branches may define a secret of one name; the ciphertext tells them apart.
    fn key(secret: &SecretUse) -> String {
        digest(&[secret.project.as_str(), &secret.secret, &secret.data.to_string()])
    }
}

/// Where repositories come from: objects merged on our side (Z7.2).
#[async_trait]
pub trait Sources: Send + Sync {
    /// Returns packs on this machine's disk that together hold everything reachable from the wanted
    /// commits. They stay until the build is over; nothing writes into them.
    async fn packs(&self, wanted: &Wanted<'_>) -> Result<Packs, SourceError>;
}

/// Packs on this machine's disk.
#[derive(Debug, Clone)]
pub struct Packs {
    /// The directory that holds `<name>.pack` and `<name>.idx`.
    pub directory: PathBuf,
    /// Which of its packs are meant.
    pub names: Vec<PackName>,
}

/// A repository and what is needed of it.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The connection of the project.
    pub connection: Option<&'a ConnectionName>,
    /// The project.
    pub project: &'a ProjectName,
    /// Object keys of the packs, as the merge recorded them. Empty for a project outside the tested
    /// state.
    pub packs: Vec<&'a str>,
    /// The commits that must be in them.
    pub commits: Vec<&'a Oid>,
}

/// Why a repository could not be had. The attempt does not count then.
#[derive(Debug, thiserror::Error)]
#[error("could not get the objects of {project}")]
pub struct SourceError {
    /// The project.
    pub project: ProjectName,
    /// What went wrong.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Hears what happens while a build runs. Calls are short and must not block: they come from the
/// build's own task.
pub trait Observer: Send + Sync {
    /// The workspace stands and the first playbook starts.
    fn started(&self, at: Timestamp);
    /// `bytes` were appended to `job-output.txt` at `offset`.
    fn log_appended(&self, offset: u64, bytes: &[u8]);
    /// A main playbook has a failed task that nothing rescues: the build will not succeed.
    fn will_fail(&self);
    /// The main playbooks passed and the job asks to wait for those behind it; what it returned so
    /// far is theirs. The build goes on when [`Stopper::resume`] says so.
    fn paused(&self, pause: Pause);
    /// The job has returned this so far for the jobs behind it alone; told before a pause, and at
    /// the end.
    fn returned_secrets(&self, secret_data: Map<String, Value>);
}

/// Asks a running build to stop, or a paused one to go on. Dropping it asks for nothing.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Wishes>);

/// What is wanted of a build.
#[derive(Debug)]
struct Wishes {
    stop: watch::Sender<Option<String>>,
    resume: watch::Sender<bool>,
}

impl Stopper {
    /// Returns a stopper and the signal it gives.
    pub fn new() -> (Self, StopSignal) {
        let (stop, stopped) = watch::channel(None);
        let (resume, resumed) = watch::channel(false);
        let wishes = Arc::new(Wishes { stop, resume });
        (Self(Arc::clone(&wishes)), StopSignal { stopped, resumed, _wishes: wishes })
    }

    /// Asks for the stop; the first reason given stands.
    pub fn stop(&self, reason: &str) {
        self.0.stop.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(reason.to_owned());
            }
            first
        });
    }

    /// Lets a build go on that is paused, or will be.
    pub fn resume(&self) {
        self.0.resume.send_replace(true);
    }
}

/// Tells a build that it is to stop, or may go on.
#[derive(Debug, Clone)]
pub struct StopSignal {
    stopped: watch::Receiver<Option<String>>,
    resumed: watch::Receiver<bool>,
    // Kept so that waiting never ends merely because the stopper is gone.
    _wishes: Arc<Wishes>,
}

impl StopSignal {
    /// Returns the reason once a stop is asked for; waits until then.
    pub async fn stopped(&mut self) -> String {
        let reason = self
            .stopped
            .wait_for(Option::is_some)
            .await
            .map(|reason| reason.clone().unwrap_or_default());
        match reason {
            Ok(reason) => reason,
            // Impossible, the sender is ours; waiting is the harmless answer.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits until the build may go on, or is to stop.
    pub async fn resumed(&mut self) {
        tokio::select! {
            _ = self.resumed.wait_for(|resumed| *resumed) => {}
            _ = self.stopped.wait_for(Option::is_some) => {}
        }
    }

    /// Returns the reason if a stop was asked for.
    pub fn reason(&self) -> Option<String> {
        self.stopped.borrow().clone()
    }
}
