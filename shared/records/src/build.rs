//! A build: the gate's order, its words to stop or to go on, and the executor's run, each a record
//! with one writer.

use crate::codec::{KEEP_DAYS, decode, encode, encode_first, expiry, with_body};
use crate::ledger;
use serde::{Deserialize, Serialize};
use sluice_model::build::{Order, Phase, Run};
use sluice_model::name::escape;
use sluice_model::{BuildId, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Record, Write};

/// Why the gate wants a build ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// For people.
    pub why: String,
    /// When it was wanted.
    pub at: Timestamp,
    /// Whether its executor was found dead by then: it stopped its builds itself, or is no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// That a paused build is to go on: the jobs behind it are over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// When it was wanted.
    pub at: Timestamp,
}

/// Returns the partition of a build.
pub fn partition(build: &BuildId) -> String {
    format!("build#{build}")
}

/// Returns the key of a build's order.
pub fn order_key(build: &BuildId) -> Key {
    Key::new(partition(build), "order")
}

/// Returns the key of the wish to stop a build.
pub fn stop_key(build: &BuildId) -> Key {
    Key::new(partition(build), "stop")
}

/// Returns the key of the word that a paused build goes on.
pub fn resume_key(build: &BuildId) -> Key {
    Key::new(partition(build), "resume")
}

/// Returns the key of a build's run.
pub fn run_key(build: &BuildId) -> Key {
    Key::new(partition(build), "run")
}

/// Returns the write of an order; it is listed among its tenant's builds.
///
/// # Errors
/// When it is too large.
pub fn put_order(order: &Order) -> Result<Write, PortError> {
    let mut record = encode_first(order_key(&order.build), order)?;
    let listed = format!("{:015}#{}", order.ordered_at.0, order.build);
    record.find = Some((format!("builds#{}", escape(order.queue.tenant.as_str())), listed));
    record.expires_at = Some(expiry(order.ordered_at));
    Ok(Write::Put { record, expect: Expect::Absent })
}

/// Returns the write of the wish to stop; saying it twice is harmless.
///
/// # Errors
/// When it is too large.
pub fn put_stop(build: &BuildId, stop: &Stop) -> Result<Write, PortError> {
    let mut record = encode_first(stop_key(build), stop)?;
    record.expires_at = Some(expiry(stop.at));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Reads the wish to stop a build. It is one whatever it says: of what cannot be read it is known
/// when it was said, by when it may be forgotten, and that counts as for an executor that lives.
pub fn stop_of(record: &Record) -> Stop {
    decode(record).unwrap_or_else(|bad| {
        tracing::error!(%bad, "a build is stopped all the same; nothing is to be done: the record is forgotten by itself");
        let at = record.expires_at.map_or(0, |at| at.0.saturating_sub(KEEP_DAYS * 86_400_000));
        let why = "it is no longer wanted, and why cannot be read".to_owned();
        Stop { why, at: Timestamp(at), lost: false }
    })
}

/// Returns the write of the word that a paused build goes on; saying it twice is harmless.
///
/// # Errors
/// When it is too large.
pub fn put_resume(build: &BuildId, resume: &Resume) -> Result<Write, PortError> {
    let mut record = encode_first(resume_key(build), resume)?;
    record.expires_at = Some(expiry(resume.at));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Returns the record of a run that was never stored; it is listed as open until it ends.
///
/// # Errors
/// When it is too large.
pub fn new_run(run: &Run) -> Result<Record, PortError> {
    let mut record = encode(run_key(&run.build), run)?;
    record.fence = run.fence;
    record.expires_at = Some(expiry(run.claimed_at));
    list(&mut record, run);
    Ok(record)
}

/// Returns the record of a run as it is written next.
///
/// # Errors
/// When it is too large.
pub fn next_run(before: &Record, run: &Run) -> Result<Record, PortError> {
    let mut record = with_body(before.clone(), run)?;
    list(&mut record, run);
    Ok(record)
}

fn list(record: &mut Record, run: &Run) {
    let is_open = !matches!(run.phase, Phase::Ended(_));
    record.find = is_open.then(|| ledger::listed(&record.key, run.claimed_at));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.3: nobody waits for a build, or keeps its nodes, since nobody can read why it is to end.
    #[test]
    fn a_wish_to_stop_that_cannot_be_read_is_as_old_as_it_is() {
        let stop = Stop {
            why: "the change left".to_owned(),
            at: Timestamp(1_795_259_025_000),
            lost: true,
        };
        let Write::Put { record, .. } = put_stop(&"b".into(), &stop).unwrap() else {
            panic!("a wish is written")
        };
        assert_eq!(stop_of(&record), stop);
        let unread = stop_of(&Record { body: "{}".to_owned(), ..record });
        assert_eq!(
            (unread.at, unread.lost),
            (stop.at, false),
            "its executor may live, and has its time to end it"
        );
    }
}
