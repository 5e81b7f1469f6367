//! How a guarded commit ends for each answer that a store can give.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_memory::{Fate, Meddled, World, poll_once};
use sluice_model::Timestamp;
use sluice_model::wakeup::Wakeup;
use sluice_runtime::cell::{CommitOutcome, OutboxGuard, commit_guarded};
use sluice_runtime::record::{Expect, Key, Record, Write};
use sluice_runtime::{CellCommit, PortError, Ports};
use std::sync::Arc;

fn key() -> Key {
    Key::new("queue#t/gate/q", "head")
}

fn wakeup() -> Wakeup {
    Wakeup::Tenant { tenant: "t".into() }
}

/// How the call ended, and the body of the head that is stored afterwards.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Written,
    Stale,
    Error {
        throttled: bool,
    },
    /// The caller died.
    None,
}

/// Commits the second revision of a head whose first is stored, with these fates of the write and of
/// the read that follows it. `overtaken` replaces the head between the two revisions.
fn commit(write: Fate, read: Fate, overtaken: bool) -> (End, Option<Record>) {
    let world = World::new(1, 0, Timestamp(1_000));
    let first = Record { revision: 1, ..Record::new(key(), "first".to_owned()) };
    let put = |record: Record| {
        world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    };
    put(first.clone());
    if overtaken {
        put(Record { revision: 2, body: "other".to_owned(), ..first.clone() });
    }
    let step = world.steps();
    world.set_fate(step, write);
    world.set_fate(step + 1, read);
    let plan = CellCommit {
        head: Record { body: "second".to_owned(), ..first },
        others: Vec::new(),
        wakeups: vec![wakeup()],
        due: None,
    };
    let ports = world.ports();
    let ended = poll_once(commit_guarded(&ports, plan, OutboxGuard::Sweep));
    let end = match ended {
        Some(Ok(CommitOutcome::Written(head))) => {
            assert_eq!((head.revision, head.outbox.as_slice()), (2, &[wakeup()][..]));
            assert_eq!(head.sweep_at, Some(Timestamp(61_000)), "the sweep sends the outbox");
            End::Written
        }
        Some(Ok(CommitOutcome::Stale)) => End::Stale,
        Some(Err(PortError { throttled, .. })) => End::Error { throttled },
        None => End::None,
    };
    (end, world.record(&key()))
}

/// Z6.4, Z1.6: written, lost to another writer, unknown and written, unknown and not written,
/// throttled, and each with a read back that fails: a commit is reported as written exactly where it
/// is known to be, and otherwise the message is delivered again.
#[test]
fn a_commit_ends_as_the_store_shows() {
    use Fate::{DiesAfter, DiesBefore, FailsAfter, FailsBefore, Throttled, Works};
    let error = |throttled| End::Error { throttled };
    let table = [
        // write, read back, overtaken → end, stored
        (Works, Works, false, End::Written, "second"),
        (Works, Works, true, End::Stale, "other"),
        (FailsAfter, Works, false, End::Written, "second"),
        (FailsBefore, Works, false, error(false), "first"),
        (FailsBefore, Works, true, error(false), "other"),
        (FailsAfter, Works, true, error(false), "other"),
        (FailsAfter, FailsBefore, false, error(false), "second"),
        (FailsAfter, Throttled, false, error(true), "second"),
        (FailsBefore, FailsBefore, false, error(false), "first"),
        (Works, FailsBefore, true, error(false), "other"),
        (Throttled, Works, false, error(true), "first"),
        (DiesBefore, Works, false, End::None, "first"),
        (DiesAfter, Works, false, End::None, "second"),
    ];
    for (write, read, overtaken, end, stored) in table {
        let of = format!("{write:?} {read:?} {overtaken}");
        let (ended, record) = commit(write, read, overtaken);
        assert_eq!((ended, record.unwrap().body.as_str()), (end, stored), "{of}");
    }
}

/// Z6.4: a client library may repeat a transaction whose answer it lost; the condition refuses the
/// repetition. The head shows that the commit was written all the same.
#[test]
fn a_commit_that_the_store_received_twice_is_written() {
    let world = World::new(1, 0, Timestamp(1_000));
    let first_copy = world.clone();
    let repeated = Meddled::writing(world.ports().records, move |writes| {
        writes.iter().for_each(|write| first_copy.write_unchecked(write.clone()));
        writes
    });
    let ports = Ports { records: Arc::new(repeated), ..world.ports() };
    let plan = CellCommit {
        head: Record::new(key(), "first".to_owned()),
        others: Vec::new(),
        wakeups: Vec::new(),
        due: None,
    };
    let ended = poll_once(commit_guarded(&ports, plan, OutboxGuard::Message)).unwrap().unwrap();
    assert!(matches!(ended, CommitOutcome::Written(_)), "{ended:?}");
    assert_eq!(world.record(&key()).unwrap().revision, 1);
}
