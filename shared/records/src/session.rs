//! One life of an executor: renewed while it lives, its builds listed.

use serde::{Deserialize, Serialize};
use sluice_model::{BuildId, SessionId, Timestamp};
use sluice_runtime::record::Key;

/// Seconds that a session lives without being renewed.
pub const LIFE_SECONDS: u64 = 15;

/// The record an executor renews.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The machine it runs on.
    pub hostname: String,
    /// Where its live logs are read, `http://host:port/`.
    pub log_address: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// After this it counts as dead: what it ran is run again.
    pub alive_until: Timestamp,
    /// What it runs.
    pub builds: Vec<BuildId>,
}

/// Returns the key of a session.
pub fn key(session: &SessionId) -> Key {
    Key::new(format!("session#{session}"), "head")
}
