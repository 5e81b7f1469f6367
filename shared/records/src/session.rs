//! One life of an executor: renewed while it lives, its builds listed.

use crate::codec::{encode_first, expiry};
use serde::{Deserialize, Serialize};
use sluice_model::{BuildId, SessionId, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Write};

/// Seconds that a session lives without being renewed.
pub const LIFE_SECONDS: u64 = 15;

/// What the partition of a session's records begins with.
const PREFIX: &str = "session#";

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

/// That a session was seen to have run out by its executor's clock, which may be behind the one of
/// whoever saw it. Unless it is renewed within its life from then on, its executor is dead. Clocks
/// differ, so that life is measured by one clock: each who saw it stands here with the time by his
/// own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Which revision of the session was seen.
    pub revision: u64,
    /// Who saw it, and when first; at most [`SEEN_MAX`], the newest last.
    #[serde(default)]
    pub seen: Vec<Seen>,
}

/// That somebody saw something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Who: a function's instance.
    pub by: String,
    /// When, by its own clock.
    pub at: Timestamp,
}

/// How many who saw it a doubt names. Whoever is not named any more begins anew.
pub const SEEN_MAX: usize = 8;

/// Returns the record of a doubt about a session, which replaces an older one; it is forgotten with
/// the session.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn put_doubt(session: &SessionId, doubt: &Doubt) -> Result<Write, PortError> {
    let mut record = encode_first(doubt_key(session), doubt)?;
    record.expires_at = doubt.seen.last().map(|seen| expiry(seen.at));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Returns the key of the doubt about a session.
pub fn doubt_key(session: &SessionId) -> Key {
    Key::new(format!("{PREFIX}{session}"), "doubt")
}

/// Returns the key of a session.
pub fn key(session: &SessionId) -> Key {
    Key::new(format!("{PREFIX}{session}"), "head")
}

/// Returns the id of the session that a record of it is about, as its key says; the whole partition
/// where it is no session's.
pub fn id_of(key: &Key) -> &str {
    key.partition.strip_prefix(PREFIX).unwrap_or(&key.partition)
}
