//! A build: the order by the gate, the gate's requests to stop or resume it, and the run by the
//! executor. Each is a record with one writer.

use crate::codec::{KEEP_DAYS, decode, encode, encode_first, expiry, with_body};
use crate::open_work;
use serde::{Deserialize, Serialize};
use sluice_model::build::{BuildResult, Order, Phase, Run};
use sluice_model::name::escape;
use sluice_model::{BuildId, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Record, Write};

/// The gate's request to stop a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    /// Why, for people.
    pub why: String,
    /// When the gate asked for it.
    pub at: Timestamp,
    /// Whether the build's executor was already considered dead at that time. It has then stopped
    /// its builds itself, or no longer exists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executor_is_dead: bool,
    /// The result of the build, if the gate has decided it because no executor can run the build;
    /// `None` for a build that is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<BuildResult>,
}

/// The gate's request to resume a paused build, because the jobs that depend on it have ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeRequest {
    /// When the gate asked for it.
    pub at: Timestamp,
}

/// A run with its record as it was read, whose revision guards the next write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRun {
    /// The record.
    pub record: Record,
    /// The run in it.
    pub run: Run,
}

/// Returns the partition of a build.
pub fn partition(build: &BuildId) -> String {
    format!("build#{build}")
}

/// Returns the key of a build's order.
pub fn order_key(build: &BuildId) -> Key {
    Key::new(partition(build), "order")
}

/// Returns the key of the request to stop a build.
pub fn stop_key(build: &BuildId) -> Key {
    Key::new(partition(build), "stop")
}

/// Returns the key of the request to resume a build.
pub fn resume_key(build: &BuildId) -> Key {
    Key::new(partition(build), "resume")
}

/// Returns the key of a build's run.
pub fn run_key(build: &BuildId) -> Key {
    Key::new(partition(build), "run")
}

/// Returns the write of a build's order. It fails when the build has an order. The index `find`
/// lists it among the builds of its tenant, by the time of the order. It expires some weeks later.
///
/// # Errors
/// When the record is too large.
pub fn put_order(order: &Order) -> Result<Write, PortError> {
    let mut record = encode_first(order_key(&order.build), order)?;
    let listed = format!("{:015}#{}", order.ordered_at.0, order.build);
    record.find = Some((format!("builds#{}", escape(order.queue.tenant.as_str())), listed));
    record.expires_at = Some(expiry(order.ordered_at));
    Ok(Write::Put { record, expect: Expect::Absent })
}

/// Returns the unconditional write of a request to stop a build; it replaces an earlier request. It
/// expires some weeks later.
///
/// # Errors
/// When the record is too large.
pub fn put_stop(build: &BuildId, stop: &StopRequest) -> Result<Write, PortError> {
    let mut record = encode_first(stop_key(build), stop)?;
    record.expires_at = Some(expiry(stop.at));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Decodes a request to stop a build. A damaged record is logged and still stops the build: its
/// time follows from its expiry, its reason says that it is damaged, and the build's executor
/// counts as alive.
pub fn decode_stop(record: &Record) -> StopRequest {
    decode(record).unwrap_or_else(|bad| {
        tracing::error!(%bad, "the request to stop a build is damaged; the build is stopped, and \
                               the record expires by itself");
        let at = record.expires_at.map_or(0, |at| at.0.saturating_sub(KEEP_DAYS * 86_400_000));
        let why = "the build was stopped; the reason is in a damaged record".to_owned();
        StopRequest { why, at: Timestamp(at), executor_is_dead: false, result: None }
    })
}

/// Returns the unconditional write of a request to resume a paused build; it replaces an earlier
/// request. It expires some weeks later.
///
/// # Errors
/// When the record is too large.
pub fn put_resume(build: &BuildId, resume: &ResumeRequest) -> Result<Write, PortError> {
    let mut record = encode_first(resume_key(build), resume)?;
    record.expires_at = Some(expiry(resume.at));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Returns the first record of a run, not stored yet (revision 0). The index of open work lists it
/// unless the run has ended. It expires some weeks after it was claimed.
///
/// # Errors
/// When the record is too large.
pub fn new_run(run: &Run) -> Result<Record, PortError> {
    let mut record = encode(run_key(&run.build), run)?;
    record.expires_at = Some(expiry(run.claimed_at));
    set_index_entry(&mut record, run);
    Ok(record)
}

/// Returns the next version of the record of a run; when the run has ended, the index of open work
/// no longer lists it. The revision is still that of `before`: the caller raises it.
///
/// # Errors
/// When the record is too large.
pub fn next_run(before: &Record, run: &Run) -> Result<Record, PortError> {
    let mut record = with_body(before.clone(), run)?;
    set_index_entry(&mut record, run);
    Ok(record)
}

/// Lists a run in the index of open work by the time of its claim; removes it from the index if it
/// has ended.
fn set_index_entry(record: &mut Record, run: &Run) {
    let is_open = !matches!(run.phase, Phase::Ended(_));
    record.find = is_open.then(|| open_work::index_entry(&record.key, run.claimed_at));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.3: a damaged stop request must not keep a build and its nodes running.
    #[test]
    fn a_damaged_stop_request_keeps_the_time_of_the_request() {
        let stop = StopRequest {
            why: "the change left".to_owned(),
            at: Timestamp(1_795_259_025_000),
            executor_is_dead: true,
            result: None,
        };
        let Write::Put { record, .. } = put_stop(&"b".into(), &stop).unwrap() else {
            panic!("the request is written")
        };
        assert_eq!(decode_stop(&record), stop);
        let unread = decode_stop(&Record { body: "{}".to_owned(), ..record });
        assert_eq!(
            (unread.at, unread.executor_is_dead),
            (stop.at, false),
            "its executor may be alive and gets its time to stop the build"
        );
    }
}
