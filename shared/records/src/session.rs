//! A session: one process of an executor, which renews the record while it is alive and lists its
//! builds in it.

use crate::codec::{encode_first, expiry};
use serde::{Deserialize, Serialize};
use sluice_model::build::EXECUTOR_LOST;
use sluice_model::{BuildId, SessionId, Timestamp, ZoneName};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};
use std::fmt;

/// Seconds for which a session is alive without being renewed.
pub const LIFE_SECONDS: u64 = 15;

/// The partition of the index `find` that lists the sessions that have not ended, by their ids.
pub const OPEN_SESSIONS: &str = "sessions";

/// The partition of the index `find` that lists the sessions that have ended, by the time of their
/// end.
pub const ENDED_SESSIONS: &str = "sessions-ended";

/// The partition prefix of session records.
const PREFIX: &str = "session#";

/// The record that an executor renews.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The session's id.
    pub id: SessionId,
    /// The machine that the executor runs on.
    pub hostname: String,
    /// Where it serves the logs of its running builds; `None` if it serves none.
    #[serde(default)]
    pub live_logs: Option<LiveLogServer>,
    /// When the session started.
    pub started_at: Timestamp,
    /// After this time the session is dead, and its builds are run again.
    pub alive_until: Timestamp,
    /// The builds that it runs.
    pub builds: Vec<BuildId>,
    /// The zone whose builds it takes; `None` if it takes those that every executor may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<ZoneName>,
    /// Whether it takes builds.
    #[serde(default)]
    pub state: SessionState,
}

/// What an executor's session does. Only its own executor writes the record, until another one ends
/// the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// It takes builds.
    #[default]
    Running,
    /// It takes no more builds, and gives the running ones time to finish.
    Draining,
    /// It is over: its executor has stopped, or another executor found it dead. Nothing renews it
    /// again, and an executor that finds its own session in this state ends.
    Ended {
        /// When it ended, by the clock of the executor that wrote it.
        at: Timestamp,
    },
}

impl Session {
    /// Returns why a build of this session is attempted again, as a sentence for people.
    pub fn lost_reason(&self) -> String {
        let renewed_at = self.alive_until.0.saturating_sub(LIFE_SECONDS * 1_000);
        format!(
            "{EXECUTOR_LOST}{} has been silent since {}",
            self.hostname,
            Timestamp(renewed_at).to_iso()
        )
    }
}

impl SessionState {
    /// Returns whether the session is over.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

/// The server of an executor's live logs. Only the API, which checks who may read a build, may read
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveLogServer {
    /// The base URL, `http://host:port/`.
    pub address: String,
    /// What each request must carry.
    pub token: LiveLogToken,
}

/// A random text that requests for live logs carry: jobs and other programs may reach the port of
/// an executor, but cannot read this. It is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LiveLogToken(String);

impl LiveLogToken {
    /// Wraps a random text.
    pub fn new(random: String) -> Self {
        Self(random)
    }

    /// Returns the text, to send or to compare it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LiveLogToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveLogToken(hidden)")
    }
}

/// Observations that a session has expired. Clocks differ, and the executor's clock may be behind
/// that of the observer. So the executor is dead only when it does not renew the session within a
/// session's life after an observation, measured by that observer's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspectedExpiry {
    /// The revision of the session that was observed.
    pub revision: u64,
    /// The first observation of each observer; at most [`SIGHTINGS_MAX`], the newest last.
    pub sightings: Vec<ExpirySighting>,
}

/// The observation of one observer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpirySighting {
    /// The observing function instance.
    pub by: String,
    /// When it first saw the expiry, by its own clock.
    pub at: Timestamp,
}

/// The most observers that are remembered. An observer that was dropped starts again.
pub const SIGHTINGS_MAX: usize = 8;

/// Returns the unconditional write of observations, which replaces earlier ones. It expires some
/// weeks after the newest observation, without one never.
///
/// # Errors
/// When the record is too large.
pub fn put_suspected_expiry(
    session: &SessionId,
    doubt: &SuspectedExpiry,
) -> Result<Write, PortError> {
    let mut record = encode_first(suspected_expiry_key(session), doubt)?;
    record.expires_at = doubt.sightings.last().map(|seen| expiry(seen.at));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Returns the key of the observations that a session has expired.
pub fn suspected_expiry_key(session: &SessionId) -> Key {
    Key::new(format!("{PREFIX}{session}"), "suspected-expiry")
}

/// Returns the key of a session.
pub fn key(session: &SessionId) -> Key {
    Key::new(format!("{PREFIX}{session}"), "head")
}

/// Returns the entry in the index `find` of a session that has not ended, or whose builds have not
/// all been ended yet.
pub fn open_entry(session: &SessionId) -> (String, String) {
    (OPEN_SESSIONS.to_owned(), session.to_string())
}

/// Returns the entry in the index `find` of a session that ended at `at` and has no builds left.
pub fn ended_entry(session: &SessionId, at: Timestamp) -> (String, String) {
    (ENDED_SESSIONS.to_owned(), format!("{:015}#{session}", at.0))
}

/// Returns the session's id from the key of one of its records; the whole partition for another
/// record.
pub fn id_of(key: &Key) -> &str {
    key.partition.strip_prefix(PREFIX).unwrap_or(&key.partition)
}
