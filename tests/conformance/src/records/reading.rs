//! Checks of reads: all fields, in order, immediately after a write.

use crate::check::{Check, Mismatch, Needs, Outcome, TestPorts, checks, equal, holds, put, record};
use sluice_model::wakeup::Wakeup;
use sluice_model::{TenantName, Timestamp};
use sluice_runtime::PortError;
use sluice_runtime::record::{BODY_BYTES_MAX, Due, Expect, Key, Query, Record};
use std::sync::Arc;

pub(crate) fn checks() -> Vec<Check> {
    checks![Needs::Records;
        every_field_of_a_record_comes_back,
        a_record_does_not_expire_early,
        records_come_in_the_order_they_were_asked_for,
        a_write_is_read_at_once,
        a_query_gives_one_partition_in_byte_order,
        a_query_goes_on_after_a_key,
        a_query_goes_on_over_pages,
    ]
}

async fn sorts(target: &TestPorts, query: &Query) -> Result<Vec<String>, PortError> {
    let found = target.ports.records.query(query).await?;
    Ok(found.into_iter().map(|record| record.key.sort).collect())
}

fn want(sorts: &[&str]) -> Vec<String> {
    sorts.iter().map(|sort| (*sort).to_owned()).collect()
}

async fn every_field_of_a_record_comes_back(target: Arc<TestPorts>) -> Outcome {
    let poke = |name: &str| Wakeup::Tenant { tenant: TenantName::from(name) };
    let full = Record {
        key: Key::new("queue#tenant/gate/é", "item#𝄞 \"1\""),
        revision: u64::from(u32::MAX) + 7,
        fence: 3,
        body: "{\"ü\": [1, null, \"\\n\"]}".into(),
        outbox: vec![poke("one"), poke("two")],
        due: Some(Due { at: Timestamp(1_800_000_000_123), wakeup: poke("due") }),
        sweep_at: Some(Timestamp(1_800_000_000_001)),
        find: Some(("builds#t".into(), "2026-11-21T00:00:00#1".into())),
        expires_at: Some(Timestamp(1_900_000_000_000)),
        write_id: target.ports.entropy.token(),
    };
    let bare = Record::new(Key::new("cell", "bare"), String::new());
    for record in [full, bare] {
        target.write(vec![put(record.clone(), Expect::Absent)]).await?;
        let read = target.read(&record.key).await?;
        equal("the record read", &read.as_ref(), &Some(&record))?;
        let query = Query::prefix(record.key.partition.clone(), "", 10);
        let found = target.ports.records.query(&query).await?;
        equal("the record found", &found, &vec![record])?;
    }
    Ok(())
}

async fn a_record_does_not_expire_early(target: Arc<TestPorts>) -> Outcome {
    let at = Timestamp(1_900_000_000_001);
    let mut expiring = record("cell", "head", 1);
    expiring.expires_at = Some(at);
    target.write(vec![put(expiring.clone(), Expect::Absent)]).await?;
    let found = target.read(&expiring.key).await?;
    let found = found.and_then(|found| found.expires_at);
    let in_time = found.is_some_and(|found| found >= at && found < at.plus_seconds(1));
    holds("it expires within a second after that", in_time)
}

async fn records_come_in_the_order_they_were_asked_for(target: Arc<TestPorts>) -> Outcome {
    let name = |n: usize| format!("{:03}", (n * 37) % 130);
    for n in (0..130).step_by(13) {
        let ten = (n..n + 13).map(|n| put(record("cell", &name(n), 1), Expect::Absent));
        target.write(ten.collect()).await?;
    }
    let mut keys: Vec<Key> = (0..130).map(|n| Key::new("cell", name(n))).collect();
    keys.insert(64, Key::new("cell", "missing"));
    keys.push(keys[0].clone());
    let found = target.ports.records.get(&keys).await?;
    let found: Vec<_> = found.into_iter().map(|found| found.map(|found| found.key)).collect();
    let expected: Vec<_> =
        keys.into_iter().map(|key| Some(key).filter(|key| key.sort != "missing")).collect();
    holds("records are returned in the order of their keys", found == expected)?;
    let none = target.ports.records.get(&[]).await?;
    equal("no keys", &none, &vec![])
}

async fn a_write_is_read_at_once(target: Arc<TestPorts>) -> Outcome {
    for revision in 1..=20 {
        let now = record("cell", "head", revision);
        target.write(vec![put(now.clone(), Expect::Anything)]).await?;
        let read = target.read(&now.key).await?;
        equal("read", &read.as_ref(), &Some(&now))?;
        let two = [now.key.clone(), Key::new("cell", "none")];
        let read = target.ports.records.get(&two).await?;
        equal("read with another", &read, &vec![Some(now.clone()), None])?;
        let query = Query::prefix("cell", "he", 10);
        let found = target.ports.records.query(&query).await?;
        equal("found", &found, &vec![now])?;
    }
    Ok(())
}

async fn a_query_gives_one_partition_in_byte_order(target: Arc<TestPorts>) -> Outcome {
    // The last two stand the other way round in UTF-16.
    let ordered = ["A", "a", "a#1", "a#10", "a#2", "a/", "b", "é", "\u{FFFD}", "𝄞"];
    for sort in ordered.iter().rev() {
        target.write(vec![put(record("cell", sort, 1), Expect::Absent)]).await?;
        target.write(vec![put(record("cellar", sort, 1), Expect::Absent)]).await?;
    }
    let all = sorts(&target, &Query::prefix("cell", "", 100)).await?;
    equal("all", &all, &want(&ordered))?;
    let some = sorts(&target, &Query::prefix("cell", "a#", 100)).await?;
    equal("those with a#", &some, &want(&ordered[2..5]))?;
    let two = sorts(&target, &Query::prefix("cell", "a", 2)).await?;
    equal("the first two with a", &two, &want(&ordered[1..3]))?;
    let none = sorts(&target, &Query::prefix("cell", "x", 10)).await?;
    equal("those with x", &none, &vec![])?;
    let none = sorts(&target, &Query::prefix("cel", "", 10)).await?;
    equal("of another partition", &none, &vec![])?;
    let none = sorts(&target, &Query::prefix("cell", "", 0)).await?;
    equal("at most none", &none, &vec![])
}

async fn a_query_goes_on_after_a_key(target: Arc<TestPorts>) -> Outcome {
    let there = ["a#1", "b#1", "b#2", "b#4", "b#5", "c#1"];
    let writes = there.map(|sort| put(record("cell", sort, 1), Expect::Absent));
    target.write(writes.into()).await?;
    let cases: [(&str, &str, usize, &[&str]); 9] = [
        ("b#", "b#1", 2, &["b#2", "b#4"]),
        ("b#", "b#3", 9, &["b#4", "b#5"]),
        ("b#", "b#5", 9, &[]),
        ("b#", "a", 2, &["b#1", "b#2"]),
        ("b#", "c", 9, &[]),
        ("b#", "b", 1, &["b#1"]),
        ("", "b#4", 9, &["b#5", "c#1"]),
        ("", "c#1", 9, &[]),
        ("", "", 1, &["a#1"]),
    ];
    for (prefix, after, limit, expected) in cases {
        let mut query = Query::prefix("cell", prefix, limit);
        query.after = Some(after.to_owned());
        let found = sorts(&target, &query).await?;
        equal(&format!("{prefix} after {after}"), &found, &want(expected))?;
    }
    Ok(())
}

async fn a_query_goes_on_over_pages(target: Arc<TestPorts>) -> Outcome {
    // 2.5 MB; a page has one.
    let large = |n: usize| Record {
        body: n.to_string().repeat(BODY_BYTES_MAX / 4),
        ..record("cell", &format!("{n:03}"), 1)
    };
    for n in 100..140 {
        target.write(vec![put(large(n), Expect::Absent)]).await?;
    }
    let found = target.ports.records.query(&Query::prefix("cell", "", 100)).await?;
    holds("all 40 come", found == (100..140).map(large).collect::<Vec<_>>())?;
    let some = sorts(&target, &Query::prefix("cell", "1", 30)).await?;
    let last = some.last().ok_or_else(|| Mismatch("none came".into()))?;
    equal("the thirtieth", last.as_str(), "129")?;
    let keys: Vec<Key> = (100..140).map(|n| large(n).key).collect();
    let read = target.ports.records.get(&keys).await?;
    holds("all 40 are read", read == (100..140).map(|n| Some(large(n))).collect::<Vec<_>>())
}
