//! Builds that wait for an executor of a zone. The executors of all other builds share three
//! queues; a zone has no queue of its own, which would have to be made before it is named in the
//! configuration, but a partition of the table.
//!
//! A build waits there from the moment at which it is sent until an executor of the zone has
//! claimed it. Like a message, the record is a wakeup: it may be there twice, late, or for a build
//! that is over, and the claim decides.

use crate::port::{PortError, Ports};
use crate::record::{Expect, Key, Query, Record, Write};
use serde::{Deserialize, Serialize};
use sluice_model::wakeup::Wakeup;
use sluice_model::{BuildId, Timestamp, ZoneName};

/// The most waiting builds that are read at once. Those of high precedence come first.
pub const WAITING_MAX: usize = 100;

/// Seconds after which the store may forget a build that no executor has claimed: 35 days, as for
/// all records.
const LIFE_SECONDS: u64 = 35 * 24 * 3_600;

/// A build that waits for an executor of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingBuild {
    /// The key of its record, for [`remove`].
    pub key: Key,
    /// The wakeup that sends it, as JSON.
    pub body: String,
    /// When it was sent first; 0 if its record cannot be read.
    pub sent_at: Timestamp,
}

/// The content of a record.
#[derive(Debug, Serialize, Deserialize)]
struct StoredBuild {
    /// When it was sent first.
    sent_at: Timestamp,
    /// The wakeup that sends it.
    wakeup: Wakeup,
}

/// Returns the partition of a zone's builds.
pub fn partition(zone: &ZoneName) -> String {
    format!("zone-builds#{zone}")
}

/// Stores a build that waits for an executor of the zone; a build that waits there already keeps
/// its time.
///
/// # Errors
/// When the store does not answer; the build may be stored then.
pub(crate) async fn add(ports: &Ports, zone: &ZoneName, wakeup: &Wakeup) -> Result<(), PortError> {
    let Wakeup::Build { build, precedence, .. } = wakeup else { return Ok(()) };
    let now = ports.clock.now();
    let stored = StoredBuild { sent_at: now, wakeup: wakeup.clone() };
    let body = serde_json::to_string(&stored)
        .map_err(|error| PortError::unknown("write a wakeup as JSON", error))?;
    let write_id = ports.entropy.token();
    let record = Record {
        revision: 1,
        expires_at: Some(now.plus_seconds(LIFE_SECONDS)),
        write_id: write_id.clone(),
        ..Record::new(Key::new(partition(zone), sort_key(precedence.priority(), build)), body)
    };
    let write = Write::Put { record, expect: Expect::Absent };
    // A condition that fails means that it waits already.
    ports.records.commit(vec![write], &write_id).await.map(drop)
}

/// Returns builds that wait for an executor of the zone: by precedence, and then those that were
/// sent first; at most [`WAITING_MAX`].
///
/// # Errors
/// When the store does not answer.
pub async fn waiting(ports: &Ports, zone: &ZoneName) -> Result<Vec<WaitingBuild>, PortError> {
    let found = ports.records.query(&Query::prefix(partition(zone), "", WAITING_MAX)).await?;
    let mut waiting: Vec<(String, WaitingBuild)> = found.into_iter().map(read).collect();
    waiting.sort_by(|(one, earlier), (other, later)| {
        (one, earlier.sent_at).cmp(&(other, later.sent_at))
    });
    Ok(waiting.into_iter().map(|(_, build)| build).collect())
}

/// Removes builds that an executor has claimed, or that are over, from those that wait.
///
/// # Errors
/// When the store does not answer; they may be removed then.
pub async fn remove(ports: &Ports, keys: Vec<Key>) -> Result<(), PortError> {
    if keys.is_empty() {
        return Ok(());
    }
    let delete = |key: Key| Write::Delete { key, expect: Expect::Anything };
    let write_id = ports.entropy.token();
    ports.records.commit(keys.into_iter().map(delete).collect(), &write_id).await.map(drop)
}

/// Returns the sort key of a build.
fn sort_key(priority: u32, build: &BuildId) -> String {
    format!("{priority:03}#{build}")
}

/// Returns the precedence part of a record's key, and its build. A record that cannot be read keeps
/// its body, which is then no wakeup either.
fn read(record: Record) -> (String, WaitingBuild) {
    let precedence = record.key.sort.split('#').next().unwrap_or_default().to_owned();
    let stored = serde_json::from_str::<StoredBuild>(&record.body).ok();
    let sent_at = stored.as_ref().map_or(Timestamp(0), |stored| stored.sent_at);
    let body = stored.and_then(|stored| serde_json::to_string(&stored.wakeup).ok());
    let body = body.unwrap_or(record.body);
    (precedence, WaitingBuild { key: record.key, body, sent_at })
}
