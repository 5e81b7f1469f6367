//! Cells whose own records cannot be decided on: they are frozen with the reason, nothing else
//! waits for them, and they go on once somebody has mended what was wrong.

use super::cycles::{allowing, checked, head};
use super::{MAIN, approve, merged, propose, site};
use async_trait::async_trait;
use sluice_gate::queue::own_queue;
use sluice_gate_function::Gate;
use sluice_memory::{World, poll_once};
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::poke::{Poke, Queue};
use sluice_model::{QueueKey, Timestamp};
use sluice_pool::ProviderHead;
use sluice_records::codec::decode;
use sluice_records::{provider, queue};
use sluice_runtime::batch::{self, BROKEN_RECEIPTS_MAX, Heard, Look, LookError};
use sluice_runtime::port::Incoming;
use sluice_runtime::quarantine::{frozen_because, frozen_key};
use sluice_runtime::record::{Expect, Record, Write};
use sluice_runtime::{Clock, Ports, cell};
use sluice_scenarios::{Site, sample};

fn put(site: &Site, record: Record) {
    site.world.write_directly(Write::Put { record, expect: Expect::Anything });
}

/// Has the first record of which this holds say nothing any more, and returns it as it was. Who
/// keeps it in memory sees that it is another one.
fn spoil(site: &Site, is_it: impl Fn(&Record) -> bool) -> Record {
    let record =
        site.world.records().into_iter().find(|record| is_it(record)).expect("there is one");
    let body = "{\"nothing\": \"that anybody reads\"}".to_owned();
    put(site, Record { body, revision: record.revision + 1, ..record.clone() });
    record
}

/// Puts a record back that was spoilt, and lets its cell go on as an operator does.
fn mend(site: &Site, record: Record, partition: &str, poke: Poke) {
    put(site, Record { revision: record.revision + 2, ..record });
    site.world
        .write_directly(Write::Delete { key: frozen_key(partition), expect: Expect::Anything });
    poll_once(cell::send(&site.ports(), &[poke])).unwrap().unwrap();
}

fn mark(site: &Site, partition: &str) -> Option<String> {
    poll_once(frozen_because(&site.ports(), partition)).unwrap().unwrap()
}

fn gate() -> QueueKey {
    QueueKey { tenant: "demo".into(), pipeline: "gate".into(), queue: "integrated".into() }
}

fn received(poke: &Poke, receive_count: u32) -> Incoming {
    let body = serde_json::to_string(poke).unwrap();
    Incoming { id: "one".to_owned(), body, receipt: "none".to_owned(), group: None, receive_count }
}

/// Has a gate look at its queue for a message that was received so often; returns whether the
/// message is done with.
fn is_done(site: &Site, receive_count: u32) -> bool {
    let function = Gate::new(site.ports(), "https://sluice.test/");
    let message = received(&Poke::Queue { queue: gate() }, receive_count);
    poll_once(batch::handle(&function, Queue::Gate, vec![message])).unwrap().is_empty()
}

/// Sees a queue frozen with its reason after so many receipts and not before, and what comes later
/// acknowledged at once.
fn is_frozen_in_the_end(site: &Site, reason: &str) {
    let partition = queue::partition(&gate());
    for receipts in 1..BROKEN_RECEIPTS_MAX {
        assert!(!is_done(site, receipts), "received {receipts} times");
        assert_eq!(mark(site, &partition), None, "received {receipts} times");
    }
    assert!(is_done(site, BROKEN_RECEIPTS_MAX));
    let why = mark(site, &partition).expect("it is frozen");
    assert!(why.contains("cannot be read") && why.contains(reason), "{why}");
    assert!(is_done(site, 1), "it is an operator's turn");
}

fn is_checked(site: &Site, change: &ChangeKey) -> bool {
    site.forge.change(change).unwrap().facts.statuses.iter().any(|status| status.state == "success")
}

/// Z6.4: a queue whose head nobody can read stops alone, and loses nothing.
#[test]
fn a_queue_whose_head_cannot_be_read_is_frozen_until_it_is_mended() {
    let mut site = site();
    site.held.insert("other".to_owned());
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| site.running().iter().any(|job| job == "other"));
    let head = spoil(&site, |record| record.key == queue::head_key(&gate()));
    is_frozen_in_the_end(&site, "head");
    let b = propose(&site, 2, &[("b", "x")]);
    site.run_until(|site| is_checked(site, &b));
    assert_eq!(merged(&site), Vec::<u64>::new());
    mend(&site, head, &queue::partition(&gate()), Poke::Queue { queue: gate() });
    site.held.clear();
    approve(&mut site, &[&b]);
    assert_eq!((merged(&site), mark(&site, &queue::partition(&gate()))), (vec![1, 2], None));
}

/// Z6.5, Z7.3: of changes that need each other, each with a queue of its own, nobody knows where
/// one stands while its queue cannot be read: they wait for that in a queue that is not frozen, and
/// enter by themselves once it is mended.
#[test]
fn those_that_need_each_other_wait_for_the_queue_of_one_that_cannot_be_read() {
    let mut site = allowing(MAIN);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run();
    let own = |key: &ChangeKey| QueueKey {
        tenant: "demo".into(),
        pipeline: "check".into(),
        queue: own_queue(key),
    };
    let theirs = spoil(&site, |record| record.key == queue::head_key(&own(&b)));
    site.forge.describe(&b, "Depends-On: https://forge.test/org/one/pull/1", false);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    let home = queue::partition(&own(&a));
    let waits = |site: &Site| {
        let is_offer = |record: &Record| {
            record.key.partition == home && record.key.sort.starts_with("arrival#")
        };
        site.world.records().iter().any(is_offer)
    };
    site.run_until(waits);
    let since = site.world.now();
    site.run_until(|site| site.world.now().since(since) > 600_000);
    assert_eq!((waits(&site), mark(&site, &home)), (true, None));
    mend(&site, theirs, &queue::partition(&own(&b)), Poke::Queue { queue: own(&b) });
    site.run();
    for (change, other) in [(&a, &b), (&b, &a)] {
        let all = checked(&site, change);
        assert!(
            all.contains(&("SUCCESS".to_owned(), vec![head(&site, other)])),
            "{change}: {all:?}"
        );
    }
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.4: whether a change is in its branch is nothing to guess: the queue waits, and the landing
/// bears no mark that nobody would take away.
#[test]
fn a_queue_whose_landing_cannot_be_read_is_frozen_and_lands_it_once_it_is_mended() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    let is_landing = |record: &Record| record.key.partition.starts_with("landing#");
    site.run_until(|site| site.world.records().iter().any(is_landing));
    let landing = spoil(&site, is_landing);
    is_frozen_in_the_end(&site, "landing#");
    let b = propose(&site, 2, &[("b", "x")]);
    site.run_until(|site| is_checked(site, &b));
    assert_eq!((merged(&site), mark(&site, &landing.key.partition)), (Vec::new(), None));
    mend(&site, landing, &queue::partition(&gate()), Poke::Queue { queue: gate() });
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [1, 2]);
}

/// Finds at each look that a cell contradicts itself.
struct Puzzled {
    ports: Ports,
    partition: &'static str,
}

#[async_trait]
impl Look for Puzzled {
    async fn poked(&self, _poke: &Poke, _heard: Heard) -> Result<(), LookError> {
        Err(LookError::Broken {
            partition: self.partition.to_owned(),
            reason: "it makes no sense".to_owned(),
        })
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}

/// Where nobody heeds a mark none is written: what is due by itself is left to the sweep, the rest
/// stays until it is a dead letter.
#[test]
fn a_cell_whose_mark_nobody_heeds_bears_none() {
    let world = World::new(1, 0, Timestamp(1_000_000));
    let report =
        Poke::Report { queue: gate(), report: "landing#a#1".to_owned(), group: "one".to_owned() };
    let table = [
        (Queue::Tenants, Poke::Tenant { tenant: "demo".into() }, "tenant#demo", false),
        (Queue::Gate, Poke::Queue { queue: gate() }, "tenant#demo", false),
        (Queue::Pool, Poke::Pool { provider: "main".into() }, "queue#demo/gate/integrated", false),
        (Queue::Reports, report, "landing#a", true),
    ];
    for (queue, poke, partition, is_left) in table {
        let function = Puzzled { ports: world.ports(), partition };
        for receive_count in 1..=BROKEN_RECEIPTS_MAX {
            let message = received(&poke, receive_count);
            let failed = poll_once(batch::handle(&function, queue, vec![message])).unwrap();
            let is_last = receive_count == BROKEN_RECEIPTS_MAX;
            assert_eq!(
                failed.is_empty(),
                is_left && is_last,
                "{poke:?} received {receive_count} times"
            );
        }
    }
    assert_eq!(world.records(), Vec::new());
}

fn is_of_provider(record: &Record, sort: &str) -> bool {
    record.key.partition.starts_with("provider#") && record.key.sort.starts_with(sort)
}

/// Z1.2: a provider whose head nobody can read gives no nodes, and gives them to who still waits
/// once it is mended.
#[test]
fn a_provider_whose_head_cannot_be_read_is_frozen_until_it_is_mended() {
    let project = "
- job: {name: unit, run: playbooks/unit.yaml, nodeset: {nodes: [{name: a, label: small}]}}
- project: {check: {jobs: [unit]}}
";
    let mut site = sample::small(1, project, |_, _, _| BuildResult::Success);
    let change = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let has = |site: &Site, sort: &str| {
        site.world.records().iter().any(|record| is_of_provider(record, sort))
    };
    site.run_until(|site| has(site, "head") && has(site, "request#"));
    let head = spoil(&site, |record| is_of_provider(record, "head"));
    let name = decode::<ProviderHead>(&head).unwrap().provider;
    let partition = provider::partition(&name);
    site.run_until(|site| mark(site, &partition).is_some());
    let why = mark(&site, &partition).unwrap_or_default();
    assert!(why.contains("cannot be read") && why.contains("head"), "{why}");
    mend(&site, head, &partition, Poke::Pool { provider: name });
    site.run();
    assert_eq!(site.ending(&[], &[&change]).buildsets, ["org/one#1 check SUCCESS"]);
    assert_eq!(mark(&site, &partition), None);
}
