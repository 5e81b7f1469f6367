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

async fn expect(ground: &TestPorts, write: Write, wanted: &Ended) -> Outcome {
    let key = write.key().clone();
    let what = format!("{write:?}");
    let committed = ground.commit(vec![write]).await?;
    let wanted = match wanted {
        Ended::Written => TransactionOutcome::Written,
        Ended::Lost => TransactionOutcome::ConditionFailed(vec![key]),
    };
    equal(&what, &committed, &wanted)
}

enum Ended {
    Written,
    Lost,
}
use Ended::{Lost, Written};

async fn absent_holds_where_there_is_no_record(ground: Arc<TestPorts>) -> Outcome {
    let first = record("cell", "head", 1);
    expect(&ground, put(first.clone(), Expect::Absent), &Written).await?;
    expect(&ground, put(record("cell", "head", 2), Expect::Absent), &Lost).await?;
    let found = ground.read(&first.key).await?;
    let found = found.map(|found| (found.revision, found.body));
    equal("the record", &found, &Some((1, first.body)))?;
    // The sort key counts, too.
    expect(&ground, put(record("cell", "other", 1), Expect::Absent), &Written).await?;
    expect(&ground, put(record("other", "head", 1), Expect::Absent), &Written).await
}

async fn a_revision_holds_for_itself_alone(ground: Arc<TestPorts>) -> Outcome {
    let at = |revision| put(record("cell", "head", revision + 1), Expect::Revision(revision));
    expect(&ground, at(1), &Lost).await?;
    expect(&ground, put(record("cell", "head", 1), Expect::Absent), &Written).await?;
    expect(&ground, at(1), &Written).await?;
    expect(&ground, at(1), &Lost).await?;
    expect(&ground, at(3), &Lost).await?;
    expect(&ground, at(2), &Written).await?;
    // Clearing an outbox writes with the same revision.
    expect(&ground, put(record("cell", "head", 3), Expect::Revision(3)), &Written).await?;
    let found = ground.read(&Key::new("cell", "head")).await?;
    equal("its revision", &found.map(|found| found.revision), &Some(3))
}

async fn a_fence_lets_its_owner_and_newer_ones_write(ground: Arc<TestPorts>) -> Outcome {
    let by = |fence: u64| {
        let record = Record { fence, ..record("build", "run", 1) };
        put(record, Expect::FenceAtMost(fence))
    };
    expect(&ground, by(5), &Written).await?;
    expect(&ground, by(4), &Lost).await?;
    expect(&ground, by(5), &Written).await?;
    // Numbers, not texts: 10 is greater than 5.
    expect(&ground, by(10), &Written).await?;
    expect(&ground, by(9), &Lost).await?;
    expect(&ground, put(record("build", "bare", 1), Expect::Absent), &Written).await?;
    let over_bare = put(record("build", "bare", 2), Expect::FenceAtMost(0));
    expect(&ground, over_bare, &Written).await
}

async fn anything_always_holds(ground: Arc<TestPorts>) -> Outcome {
    for revision in [1, 7, 2] {
        let write = put(record("cell", "fact", revision), Expect::Anything);
        expect(&ground, write, &Written).await?;
    }
    let found = ground.read(&Key::new("cell", "fact")).await?;
    equal("the last one", &found.map(|found| found.revision), &Some(2))
}

async fn a_delete_obeys_its_condition(ground: Arc<TestPorts>) -> Outcome {
    let key = Key::new("cell", "head");
    let delete = |expect| Write::Delete { key: Key::new("cell", "head"), expect };
    for missing_is_fine in [Expect::Anything, Expect::Absent, Expect::FenceAtMost(0)] {
        expect(&ground, delete(missing_is_fine), &Written).await?;
    }
    expect(&ground, delete(Expect::Revision(1)), &Lost).await?;
    expect(&ground, put(record("cell", "head", 1), Expect::Absent), &Written).await?;
    expect(&ground, delete(Expect::Absent), &Lost).await?;
    expect(&ground, delete(Expect::Revision(2)), &Lost).await?;
    equal("it stays", &ground.read(&key).await?.is_some(), &true)?;
    expect(&ground, delete(Expect::Revision(1)), &Written).await?;
    equal("it is gone", &ground.read(&key).await?, &None)
}

async fn a_check_alone_writes_nothing(ground: Arc<TestPorts>) -> Outcome {
    let key = || Key::new("cell", "head");
    let check = |expect| Write::Check { key: key(), expect };
    expect(&ground, check(Expect::Absent), &Written).await?;
    expect(&ground, check(Expect::Anything), &Written).await?;
    expect(&ground, check(Expect::Revision(1)), &Lost).await?;
    equal("nothing is there", &ground.read(&key()).await?, &None)?;
    ground.write(vec![put(record("cell", "head", 1), Expect::Absent)]).await?;
    expect(&ground, check(Expect::Absent), &Lost).await?;
    expect(&ground, check(Expect::Revision(1)), &Written).await?;
    equal("nothing to write", &ground.commit(vec![]).await?, &TransactionOutcome::Written)
}

async fn a_body_has_64_kib_at_most(ground: Arc<TestPorts>) -> Outcome {
    let sized = |bytes: usize| Record { body: "x".repeat(bytes), ..record("cell", "large", 1) };
    let over = vec![put(sized(BODY_BYTES_MAX + 1), Expect::Absent)];
    refused("a byte more", ground.commit(over).await)?;
    equal("it is not there", &ground.read(&sized(0).key).await?, &None)?;
    let full = put(sized(BODY_BYTES_MAX), Expect::Absent);
    expect(&ground, full, &Written).await?;
    let found = ground.read(&sized(0).key).await?;
    let bytes = found.map(|found| found.body.len());
    equal("its bytes", &bytes, &Some(BODY_BYTES_MAX))
}

async fn a_repeat_under_the_same_write_id_changes_nothing(ground: Arc<TestPorts>) -> Outcome {
    let named = |sort: &str, write_id: &str| Record {
        write_id: write_id.to_owned(),
        ..record("cell", sort, 1)
    };
    for (write_id, sorts) in [("one", vec!["a"]), ("two", vec!["b", "c"])] {
        let write_id = format!("{write_id}-{}", ground.ports.entropy.token());
        let writes = || -> Vec<Write> {
            let records = sorts.iter().map(|sort| named(sort, &write_id));
            records.map(|record| put(record, Expect::Absent)).collect()
        };
        let first = ground.ports.records.commit(writes(), &write_id).await?;
        equal("the first time", &first, &TransactionOutcome::Written)?;
        // An implementation may recognise the repeat or report a failed condition; the caller then
        // reads the write id.
        ground.ports.records.commit(writes(), &write_id).await?;
        for sort in &sorts {
            let found = ground.read(&Key::new("cell", *sort)).await?;
            equal("the record", &found, &Some(named(sort, &write_id)))?;
        }
    }
    Ok(())
}
