//! Checks of the two indexes. They may lag behind the table, so each query is repeated until its
//! result matches.

use crate::check::{Check, Needs, Outcome, TestPorts, checks, equal, put, record};
use sluice_model::Timestamp;
use sluice_runtime::PortError;
use sluice_runtime::port::{DUE_SHARDS, due_shard};
use sluice_runtime::record::{Expect, Key, Record, Write};
use std::sync::Arc;

pub(crate) fn checks() -> Vec<Check> {
    checks![Needs::Records;
        due_gives_the_oldest_first,
        due_keeps_to_its_shard,
        a_rewritten_or_deleted_record_leaves_its_place_in_due,
        find_gives_the_newest_first,
        a_rewritten_or_deleted_record_leaves_its_place_in_find,
        an_index_goes_on_over_pages,
    ]
}

/// Repetitions before the last result counts: ten seconds.
const ASKED_MAX: u32 = 100;

fn looked_at(sort: &str, at: u64) -> Record {
    Record { sweep_at: Some(Timestamp(at)), ..record("cell", sort, 1) }
}

fn listed(sort: &str, partition: &str, place: &str) -> Record {
    Record { find: Some((partition.to_owned(), place.to_owned())), ..record("cell", sort, 1) }
}

fn write(record: Record) -> Write {
    put(record, Expect::Anything)
}

fn names(keys: Vec<Key>) -> Vec<String> {
    keys.into_iter().map(|key| key.sort).collect()
}

async fn due(target: &TestPorts, until: u64, limit: usize) -> Result<Vec<String>, PortError> {
    let records = &target.ports.records;
    let shard = due_shard("cell");
    Ok(names(records.due(shard, Timestamp(until), limit).await?))
}

async fn expect_due(target: &TestPorts, until: u64, limit: usize, expected: &[&str]) -> Outcome {
    let mut found = due(target, until, limit).await?;
    for _ in 0..ASKED_MAX {
        if found == expected {
            break;
        }
        target.moment().await;
        found = due(target, until, limit).await?;
    }
    let expected: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    equal(&format!("due until {until}"), &found, &expected)
}

async fn expect_found(
    target: &TestPorts,
    partition: &str,
    before: Option<&str>,
    limit: usize,
    expected: &[&str],
) -> Outcome {
    let records = &target.ports.records;
    let mut found = names(records.find(partition, before, limit).await?);
    for _ in 0..ASKED_MAX {
        if found == expected {
            break;
        }
        target.moment().await;
        found = names(records.find(partition, before, limit).await?);
    }
    let expected: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    equal(&format!("{partition} before {before:?}"), &found, &expected)
}

async fn due_gives_the_oldest_first(target: Arc<TestPorts>) -> Outcome {
    // 900 comes before 1000: times are numbers.
    let records = [("c", 1_000), ("a", 2_000), ("d", 900), ("b", 3_000)];
    let writes = records.map(|(sort, at)| write(looked_at(sort, at)));
    target.write(writes.into()).await?;
    target.write(vec![write(record("cell", "never", 1))]).await?;
    expect_due(&target, 10_000, 10, &["d", "c", "a", "b"]).await?;
    expect_due(&target, 2_000, 10, &["d", "c", "a"]).await?;
    expect_due(&target, 1_999, 10, &["d", "c"]).await?;
    expect_due(&target, 10_000, 1, &["d"]).await?;
    expect_due(&target, 899, 10, &[]).await?;
    expect_due(&target, 10_000, 0, &[]).await
}

async fn due_keeps_to_its_shard(target: Arc<TestPorts>) -> Outcome {
    let cells: Vec<String> = (0..12).map(|n| format!("cell {n}")).collect();
    for cell in &cells {
        let mut head = record(cell, "head", 1);
        head.sweep_at = Some(Timestamp(1_000));
        target.write(vec![put(head, Expect::Absent)]).await?;
    }
    let mut all = Vec::new();
    for shard in 0..DUE_SHARDS {
        let of_shard = cells.iter().filter(|cell| due_shard(cell) == shard);
        let mut expected: Vec<String> = of_shard.cloned().collect();
        let mut found = Vec::new();
        for _ in 0..ASKED_MAX {
            let keys = target.ports.records.due(shard, Timestamp(1_000), 100).await?;
            found = keys.into_iter().map(|key| key.partition).collect();
            if found.len() >= expected.len() {
                break;
            }
            target.moment().await;
        }
        found.sort();
        expected.sort();
        equal(&format!("shard {shard}"), &found, &expected)?;
        all.extend(found);
    }
    equal("all shards together", &all.len(), &12)
}

async fn a_rewritten_or_deleted_record_leaves_its_place_in_due(target: Arc<TestPorts>) -> Outcome {
    let writes = [("a", 1_000), ("b", 2_000), ("c", 3_000)];
    let writes = writes.map(|(sort, at)| write(looked_at(sort, at)));
    target.write(writes.into()).await?;
    expect_due(&target, 9_000, 10, &["a", "b", "c"]).await?;
    target.write(vec![write(looked_at("a", 4_000))]).await?;
    expect_due(&target, 9_000, 10, &["b", "c", "a"]).await?;
    target.write(vec![write(record("cell", "b", 2))]).await?;
    expect_due(&target, 9_000, 10, &["c", "a"]).await?;
    let delete = Write::Delete { key: Key::new("cell", "c"), expect: Expect::Anything };
    target.write(vec![delete]).await?;
    expect_due(&target, 9_000, 10, &["a"]).await
}

async fn find_gives_the_newest_first(target: Arc<TestPorts>) -> Outcome {
    let records = [("a", "03"), ("b", "01"), ("c", "02"), ("d", "10")];
    let writes = records.map(|(sort, place)| write(listed(sort, "builds#t", place)));
    target.write(writes.into()).await?;
    target.write(vec![write(listed("x", "builds#tt", "02"))]).await?;
    expect_found(&target, "builds#t", None, 10, &["d", "a", "c", "b"]).await?;
    expect_found(&target, "builds#t", Some("03"), 10, &["c", "b"]).await?;
    expect_found(&target, "builds#t", Some("02x"), 1, &["c"]).await?;
    expect_found(&target, "builds#t", Some("01"), 10, &[]).await?;
    expect_found(&target, "builds#t", Some(""), 10, &[]).await?;
    expect_found(&target, "builds#t", None, 2, &["d", "a"]).await?;
    expect_found(&target, "builds", None, 10, &[]).await
}

async fn a_rewritten_or_deleted_record_leaves_its_place_in_find(target: Arc<TestPorts>) -> Outcome {
    let writes = ["a", "b", "c"].map(|sort| write(listed(sort, "builds", sort)));
    target.write(writes.into()).await?;
    expect_found(&target, "builds", None, 10, &["c", "b", "a"]).await?;
    target.write(vec![write(listed("a", "builds", "d"))]).await?;
    expect_found(&target, "builds", None, 10, &["a", "c", "b"]).await?;
    target.write(vec![write(listed("b", "others", "b"))]).await?;
    expect_found(&target, "builds", None, 10, &["a", "c"]).await?;
    expect_found(&target, "others", None, 10, &["b"]).await?;
    let delete = Write::Delete { key: Key::new("cell", "a"), expect: Expect::Anything };
    target.write(vec![delete, write(record("cell", "c", 2))]).await?;
    expect_found(&target, "builds", None, 10, &[]).await
}

async fn an_index_goes_on_over_pages(target: Arc<TestPorts>) -> Outcome {
    let sorts: Vec<String> = (0..1_200).map(|n| format!("{n:04}")).collect();
    for hundred in sorts.chunks(100) {
        let records = hundred.iter().enumerate().map(|(n, sort)| Record {
            sweep_at: Some(Timestamp(n as u64)),
            ..listed(sort, "builds", sort)
        });
        target.write(records.map(write).collect()).await?;
    }
    let newest: Vec<&str> = sorts.iter().rev().map(String::as_str).collect();
    expect_found(&target, "builds", None, 5_000, &newest).await?;
    expect_found(&target, "builds", None, 1_100, &newest[..1_100]).await?;
    let mut all = due(&target, 100, 5_000).await?;
    for _ in 0..ASKED_MAX {
        if all.len() == sorts.len() {
            break;
        }
        target.moment().await;
        all = due(&target, 100, 5_000).await?;
    }
    equal("all that is due", &all.len(), &sorts.len())
}
