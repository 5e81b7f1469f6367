//! Receives the events of a running build and keeps them for the service, which records them.

use crate::job::Observer;
use crate::live::LiveLog;
use crate::service::admission::StartingBuild;
use serde_json::{Map, Value};
use sluice_model::Timestamp;
use sluice_model::build::{Pause, PlaybookStart};
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;

/// What a running build has announced so far.
#[derive(Clone, Default)]
pub(super) struct BuildUpdates {
    /// Whether it will fail.
    pub(super) will_fail: bool,
    /// The pause, if it has paused until its dependent jobs end.
    pub(super) pause: Option<Pause>,
    /// The playbook that began last.
    pub(super) playbook: Option<PlaybookStart>,
}

/// Receives the events of one running build.
pub(super) struct BuildReporter {
    /// The live log.
    log: LiveLog,
    /// Publishes what the build announces.
    updates: watch::Sender<BuildUpdates>,
    /// The secret data that the job returned for its dependents.
    secrets: Mutex<Map<String, Value>>,
    /// Counts the build among those that prepare their workspace, until its first playbook.
    starting: Mutex<Option<StartingBuild>>,
}

impl BuildReporter {
    /// Returns a reporter that has received nothing and publishes the length of this log. It holds
    /// `starting` until the build starts.
    pub(super) fn new(log: LiveLog, starting: StartingBuild) -> Self {
        let updates = watch::channel(BuildUpdates::default()).0;
        Self { log, updates, secrets: Mutex::default(), starting: Mutex::new(Some(starting)) }
    }

    /// Counts the build no longer among those that prepare their workspace.
    pub(super) fn end_start(&self) {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Returns what the build announces from now on.
    pub(super) fn updates(&self) -> watch::Receiver<BuildUpdates> {
        self.updates.subscribe()
    }

    /// Returns the length of the log, now and later.
    pub(super) fn log_length(&self) -> watch::Receiver<u64> {
        self.log.length()
    }

    /// Returns the secret data that the job has returned so far.
    pub(super) fn secrets(&self) -> Map<String, Value> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for BuildReporter {
    fn started(&self, _: Timestamp) {
        self.end_start();
    }

    fn playbook_begins(&self, start: PlaybookStart) {
        self.updates.send_modify(|updates| updates.playbook = Some(start));
    }

    fn log_appended(&self, offset: u64, bytes: &[u8]) {
        self.log.grew_to(offset + bytes.len() as u64);
    }

    fn will_fail(&self) {
        self.updates.send_modify(|updates| updates.will_fail = true);
    }

    fn paused(&self, pause: Pause) {
        self.updates.send_modify(|updates| updates.pause = Some(pause));
    }

    fn returned_secrets(&self, secret_data: Map<String, Value>) {
        *self.secrets.lock().unwrap_or_else(PoisonError::into_inner) = secret_data;
    }
}
