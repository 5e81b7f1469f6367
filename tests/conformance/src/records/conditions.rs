//! Checks of the conditions of single writes.

use crate::check::{Check, Needs, Outcome, TestPorts, checks, equal, put, record, refused};
use sluice_runtime::record::{BODY_BYTES_MAX, Expect, Key, Record, TransactionOutcome, Write};
use std::sync::Arc;

pub(crate) fn checks() -> Vec<Check> {
    checks![Needs::Records;
        absent_holds_where_there_is_no_record,
        a_revision_holds_for_itself_alone,
        a_fence_lets_its_owner_and_newer_ones_write,
        anything_always_holds,
        a_delete_obeys_its_condition,
        a_check_alone_writes_nothing,
        a_body_has_64_kib_at_most,
        a_repeat_under_the_same_write_id_changes_nothing,
    ]
}

async fn expect(target: &TestPorts, write: Write, expected: &Ended) -> Outcome {
    let key = write.key().clone();
    let what = format!("{write:?}");
    let committed = target.commit(vec![write]).await?;
    let expected = match expected {
        Ended::Written => TransactionOutcome::Written,
        Ended::Lost => TransactionOutcome::ConditionFailed(vec![key]),
    };
    equal(&what, &committed, &expected)
}

enum Ended {
    Written,
    Lost,
}
use Ended::{Lost, Written};

async fn absent_holds_where_there_is_no_record(target: Arc<TestPorts>) -> Outcome {
    let first = record("cell", "head", 1);
    expect(&target, put(first.clone(), Expect::Absent), &Written).await?;
    expect(&target, put(record("cell", "head", 2), Expect::Absent), &Lost).await?;
    let found = target.read(&first.key).await?;
    let found = found.map(|found| (found.revision, found.body));
    equal("the record", &found, &Some((1, first.body)))?;
    // The sort key counts, too.
    expect(&target, put(record("cell", "other", 1), Expect::Absent), &Written).await?;
    expect(&target, put(record("other", "head", 1), Expect::Absent), &Written).await
}

async fn a_revision_holds_for_itself_alone(target: Arc<TestPorts>) -> Outcome {
    let at = |revision| put(record("cell", "head", revision + 1), Expect::Revision(revision));
    expect(&target, at(1), &Lost).await?;
    expect(&target, put(record("cell", "head", 1), Expect::Absent), &Written).await?;
    expect(&target, at(1), &Written).await?;
    expect(&target, at(1), &Lost).await?;
    expect(&target, at(3), &Lost).await?;
    expect(&target, at(2), &Written).await?;
    // Clearing an outbox writes with the same revision.
    expect(&target, put(record("cell", "head", 3), Expect::Revision(3)), &Written).await?;
    let found = target.read(&Key::new("cell", "head")).await?;
    equal("its revision", &found.map(|found| found.revision), &Some(3))
}

async fn a_fence_lets_its_owner_and_newer_ones_write(target: Arc<TestPorts>) -> Outcome {
    let by = |fence: u64| {
        let record = Record { fence, ..record("build", "run", 1) };
        put(record, Expect::FenceAtMost(fence))
    };
    expect(&target, by(5), &Written).await?;
    expect(&target, by(4), &Lost).await?;
    expect(&target, by(5), &Written).await?;
    // Numbers, not texts: 10 is greater than 5.
    expect(&target, by(10), &Written).await?;
    expect(&target, by(9), &Lost).await?;
    expect(&target, put(record("build", "bare", 1), Expect::Absent), &Written).await?;
    let over_bare = put(record("build", "bare", 2), Expect::FenceAtMost(0));
    expect(&target, over_bare, &Written).await
}

async fn anything_always_holds(target: Arc<TestPorts>) -> Outcome {
    for revision in [1, 7, 2] {
        let write = put(record("cell", "fact", revision), Expect::Anything);
        expect(&target, write, &Written).await?;
    }
    let found = target.read(&Key::new("cell", "fact")).await?;
    equal("the last one", &found.map(|found| found.revision), &Some(2))
}

async fn a_delete_obeys_its_condition(target: Arc<TestPorts>) -> Outcome {
    let key = Key::new("cell", "head");
    let delete = |expect| Write::Delete { key: Key::new("cell", "head"), expect };
    for missing_is_fine in [Expect::Anything, Expect::Absent, Expect::FenceAtMost(0)] {
        expect(&target, delete(missing_is_fine), &Written).await?;
    }
    expect(&target, delete(Expect::Revision(1)), &Lost).await?;
    expect(&target, put(record("cell", "head", 1), Expect::Absent), &Written).await?;
    expect(&target, delete(Expect::Absent), &Lost).await?;
    expect(&target, delete(Expect::Revision(2)), &Lost).await?;
    equal("it stays", &target.read(&key).await?.is_some(), &true)?;
    expect(&target, delete(Expect::Revision(1)), &Written).await?;
    equal("it is gone", &target.read(&key).await?, &None)
}

async fn a_check_alone_writes_nothing(target: Arc<TestPorts>) -> Outcome {
    let key = || Key::new("cell", "head");
    let check = |expect| Write::Check { key: key(), expect };
    expect(&target, check(Expect::Absent), &Written).await?;
    expect(&target, check(Expect::Anything), &Written).await?;
    expect(&target, check(Expect::Revision(1)), &Lost).await?;
    equal("nothing is there", &target.read(&key()).await?, &None)?;
    target.write(vec![put(record("cell", "head", 1), Expect::Absent)]).await?;
    expect(&target, check(Expect::Absent), &Lost).await?;
    expect(&target, check(Expect::Revision(1)), &Written).await?;
    equal("nothing to write", &target.commit(vec![]).await?, &TransactionOutcome::Written)
}

async fn a_body_has_64_kib_at_most(target: Arc<TestPorts>) -> Outcome {
    let sized = |bytes: usize| Record { body: "x".repeat(bytes), ..record("cell", "large", 1) };
    let over = vec![put(sized(BODY_BYTES_MAX + 1), Expect::Absent)];
    refused("a byte more", target.commit(over).await)?;
    equal("it is not there", &target.read(&sized(0).key).await?, &None)?;
    let full = put(sized(BODY_BYTES_MAX), Expect::Absent);
    expect(&target, full, &Written).await?;
    let found = target.read(&sized(0).key).await?;
    let bytes = found.map(|found| found.body.len());
    equal("its bytes", &bytes, &Some(BODY_BYTES_MAX))
}

async fn a_repeat_under_the_same_write_id_changes_nothing(target: Arc<TestPorts>) -> Outcome {
    let named = |sort: &str, write_id: &str| Record {
        write_id: write_id.to_owned(),
        ..record("cell", sort, 1)
    };
    for (write_id, sorts) in [("one", vec!["a"]), ("two", vec!["b", "c"])] {
        let write_id = format!("{write_id}-{}", target.ports.entropy.token());
        let writes = || -> Vec<Write> {
            let records = sorts.iter().map(|sort| named(sort, &write_id));
            records.map(|record| put(record, Expect::Absent)).collect()
        };
        let first = target.ports.records.commit(writes(), &write_id).await?;
        equal("the first time", &first, &TransactionOutcome::Written)?;
        // An implementation may recognise the repeat or report a failed condition; the caller then
        // reads the write id.
        target.ports.records.commit(writes(), &write_id).await?;
        for sort in &sorts {
            let found = target.read(&Key::new("cell", *sort)).await?;
            equal("the record", &found, &Some(named(sort, &write_id)))?;
        }
    }
    Ok(())
}
