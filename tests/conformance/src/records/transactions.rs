//! Checks of transactions: all writes or none.

use crate::check::{
    Check, Mismatch, Needs, Outcome, TestPorts, at_once, checks, equal, holds, put, record, refused,
};
use sluice_runtime::PortError;
use sluice_runtime::record::{
    Expect, Key, Query, TRANSACTION_RECORDS_MAX, TransactionOutcome, Write,
};
use std::sync::Arc;

pub(crate) fn checks() -> Vec<Check> {
    checks![Needs::Records;
        a_transaction_is_all_or_nothing,
        a_failed_check_fails_the_rest,
        a_transaction_deletes_and_writes,
        one_of_sixteen_writers_wins_each_round,
        transactions_over_two_cells_lose_no_update,
        one_record_twice_is_refused,
        a_transaction_has_100_records_at_most,
    ]
}

const WRITERS: usize = 16;
const ROUNDS: u64 = 6;
/// The most attempts of one writer; each failed attempt means that another writer succeeded.
const TRIES_MAX: usize = 200;

async fn a_transaction_is_all_or_nothing(target: Arc<TestPorts>) -> Outcome {
    let there = record("cell", "there", 1);
    target.write(vec![put(there.clone(), Expect::Absent)]).await?;
    let committed = target
        .commit(vec![
            put(record("cell", "a", 1), Expect::Absent),
            put(record("cell", "there", 2), Expect::Absent),
            put(record("other", "b", 1), Expect::Absent),
            put(record("other", "gone", 2), Expect::Revision(1)),
        ])
        .await?;
    let lost = vec![Key::new("cell", "there"), Key::new("other", "gone")];
    equal("what did not hold", &committed, &TransactionOutcome::ConditionFailed(lost))?;
    let keys = [("cell", "a"), ("cell", "there"), ("other", "b")];
    let keys = keys.map(|(partition, sort)| Key::new(partition, sort));
    let found = target.ports.records.get(&keys).await?;
    equal("the records", &found, &vec![None, Some(there), None])?;
    target
        .write(vec![
            put(record("cell", "a", 1), Expect::Absent),
            put(record("cell", "there", 2), Expect::Revision(1)),
            put(record("other", "b", 1), Expect::FenceAtMost(0)),
        ])
        .await?;
    let found = target.ports.records.get(&keys).await?;
    let revisions: Vec<_> = found.into_iter().flatten().map(|r| r.revision).collect();
    equal("the revisions", &revisions, &vec![1, 2, 1])
}

async fn a_failed_check_fails_the_rest(target: Arc<TestPorts>) -> Outcome {
    let lease = Key::new("build", "lease");
    let both = |expect| {
        let check = Write::Check { key: Key::new("build", "lease"), expect };
        vec![put(record("build", "result", 1), Expect::Absent), check]
    };
    let committed = target.commit(both(Expect::Revision(1))).await?;
    equal("the check", &committed, &TransactionOutcome::ConditionFailed(vec![lease.clone()]))?;
    let result = target.read(&Key::new("build", "result")).await?;
    equal("the other", &result, &None)?;
    target.write(both(Expect::Absent)).await?;
    equal("what was checked", &target.read(&lease).await?, &None)
}

async fn a_transaction_deletes_and_writes(target: Arc<TestPorts>) -> Outcome {
    target
        .write(vec![
            put(record("cell", "old", 1), Expect::Absent),
            put(record("cell", "older", 1), Expect::Absent),
        ])
        .await?;
    let delete = |sort: &str, expect| Write::Delete { key: Key::new("cell", sort), expect };
    let moved = |revision| {
        vec![
            delete("old", Expect::Revision(revision)),
            delete("older", Expect::Anything),
            delete("never", Expect::Anything),
            put(record("cell", "new", 1), Expect::Absent),
        ]
    };
    let lost = TransactionOutcome::ConditionFailed(vec![Key::new("cell", "old")]);
    equal("under another revision", &target.commit(moved(2)).await?, &lost)?;
    target.write(moved(1)).await?;
    let all = Query::prefix("cell", "", 10);
    let left = target.ports.records.query(&all).await?;
    let left: Vec<String> = left.into_iter().map(|record| record.key.sort).collect();
    equal("what is left", &left, &vec!["new".to_owned()])
}

async fn one_of_sixteen_writers_wins_each_round(target: Arc<TestPorts>) -> Outcome {
    target.write(vec![put(record("cell", "head", 1), Expect::Absent)]).await?;
    let mut revision = 1;
    let mut rounds = 0;
    while revision <= ROUNDS {
        rounds += 1;
        holds("a round has a winner sooner or later", rounds < 10 * ROUNDS)?;
        let endings = at_once(WRITERS, |n| {
            let target = Arc::clone(&target);
            async move {
                let head = put(record("cell", "head", revision + 1), Expect::Revision(revision));
                let item = record("cell", &format!("item#{revision:02}#{n:02}"), 1);
                target.commit(vec![head, put(item, Expect::Absent)]).await
            }
        })
        .await?;
        let mut winners = Vec::new();
        for (n, ended) in endings.into_iter().enumerate() {
            match ended {
                Ok(TransactionOutcome::Written) => {
                    winners.push(format!("item#{revision:02}#{n:02}"))
                }
                Ok(TransactionOutcome::ConditionFailed(keys)) => {
                    equal("what was lost", &keys, &vec![Key::new("cell", "head")])?;
                }
                Err(error) if error.throttled => {}
                Err(error) => return Err(error.into()),
            }
        }
        let prefix = format!("item#{revision:02}#");
        let items = target.ports.records.query(&Query::prefix("cell", prefix, 100)).await?;
        let items: Vec<String> = items.into_iter().map(|record| record.key.sort).collect();
        equal("the winners' items", &items, &winners)?;
        holds("one writer wins at most", winners.len() <= 1)?;
        revision += winners.len() as u64;
    }
    let head = target.read(&Key::new("cell", "head")).await?;
    equal("the last revision", &head.map(|head| head.revision), &Some(revision))
}

/// Increments both counters, conditional on their revisions, until that succeeds.
async fn count(target: Arc<TestPorts>) -> Result<(), PortError> {
    let keys = ["left", "right"].map(|cell| Key::new(cell, "counter"));
    for _ in 0..TRIES_MAX {
        let found = target.ports.records.get(&keys).await?;
        let writes = keys.iter().zip(found).map(|(key, found)| {
            let seen = found.map_or(0, |found| found.revision);
            let expect = if seen == 0 { Expect::Absent } else { Expect::Revision(seen) };
            put(record(&key.partition, &key.sort, seen + 1), expect)
        });
        match target.commit(writes.collect()).await {
            Ok(TransactionOutcome::Written) => return Ok(()),
            Ok(TransactionOutcome::ConditionFailed(_)) => {}
            Err(error) if error.throttled => {}
            Err(error) => return Err(error),
        }
    }
    Err(PortError::unknown("count", "too many tries"))
}

async fn transactions_over_two_cells_lose_no_update(target: Arc<TestPorts>) -> Outcome {
    for ended in at_once(WRITERS, |_| count(Arc::clone(&target))).await? {
        ended?;
    }
    for cell in ["left", "right"] {
        let found = target.read(&Key::new(cell, "counter")).await?;
        let revision = found.map(|found| found.revision);
        equal("each writer counted once", &revision, &Some(WRITERS as u64))?;
    }
    Ok(())
}

async fn one_record_twice_is_refused(target: Arc<TestPorts>) -> Outcome {
    let key = Key::new("cell", "head");
    let write = || put(record("cell", "head", 1), Expect::Anything);
    refused("two writes", target.commit(vec![write(), write()]).await)?;
    let check = Write::Check { key: key.clone(), expect: Expect::Absent };
    refused("a write and a check", target.commit(vec![write(), check]).await)?;
    equal("nothing is written", &target.read(&key).await?, &None)
}

async fn a_transaction_has_100_records_at_most(target: Arc<TestPorts>) -> Outcome {
    let writes = |count: usize| -> Vec<Write> {
        let records = (0..count).map(|n| record("cell", &format!("{n:03}"), 1));
        records.map(|record| put(record, Expect::Absent)).collect()
    };
    let over = target.commit(writes(TRANSACTION_RECORDS_MAX + 1)).await;
    refused("one more", over)?;
    let all = || Query::prefix("cell", "", 1_000);
    let found = target.ports.records.query(&all()).await?;
    equal("written of those", &found.len(), &0)?;
    target.write(writes(TRANSACTION_RECORDS_MAX)).await?;
    let found = target.ports.records.query(&all()).await?;
    if found.len() == TRANSACTION_RECORDS_MAX {
        return Ok(());
    }
    Err(Mismatch(format!("{} of 100 are there", found.len())))
}
