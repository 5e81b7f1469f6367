//! Cells whose own records are unreadable or contradict themselves: they halt with the reason, do
//! not block other cells, and continue once an operator has repaired the record.

use super::bundles::{check_results, head, site_with_cycles};
use super::{MAIN, approve, merged, propose, site};
use async_trait::async_trait;
use sluice_gate::queue::own_queue;
use sluice_gate_function::Gate;
use sluice_memory::{World, poll_once};
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{QueueKey, Timestamp};
use sluice_pool::ProviderHead;
use sluice_records::codec::decode;
use sluice_records::{provider, queue};
use sluice_runtime::batch::{self, BROKEN_RECEIPTS_MAX, Reception, ReconcileError, Reconciler};
use sluice_runtime::port::Incoming;
use sluice_runtime::quarantine::{halt_key, halt_reason};
use sluice_runtime::record::{Expect, Record, Write};
use sluice_runtime::{Clock, Ports, cell};
use sluice_scenarios::forge::Announcement;
use sluice_scenarios::{Site, sample};

fn put(site: &Site, record: Record) {
    site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
}

/// Replaces the body of the first record that matches, and returns the original record. The
/// revision changes, so cached copies are recognised as outdated.
fn damage(site: &Site, is_it: impl Fn(&Record) -> bool) -> Record {
    let record =
        site.world.records().into_iter().find(|record| is_it(record)).expect("there is one");
    let body = "{\"nothing\": \"that can be decoded\"}".to_owned();
    put(site, Record { body, revision: record.revision + 1, ..record.clone() });
    record
}

/// Restores a damaged record and wakes its cell, as an operator would.
fn repair(site: &Site, record: Record, partition: &str, wakeup: Wakeup) {
    put(site, Record { revision: record.revision + 2, ..record });
    site.world
        .write_unchecked(Write::Delete { key: halt_key(partition), expect: Expect::Anything });
    poll_once(cell::send(&site.ports(), &[wakeup])).unwrap().unwrap();
}

fn mark(site: &Site, partition: &str) -> Option<String> {
    poll_once(halt_reason(&site.ports(), partition)).unwrap().unwrap()
}

fn gate() -> QueueKey {
    QueueKey { tenant: "demo".into(), pipeline: "gate".into(), queue: "integrated".into() }
}

/// Returns the message of a wakeup that was received this many times.
fn received(wakeup: &Wakeup, receive_count: u32) -> Incoming {
    let body = serde_json::to_string(wakeup).unwrap();
    Incoming { id: "one".to_owned(), body, receipt: "none".to_owned(), group: None, receive_count }
}

/// Returns whether the gate acknowledges a wakeup of its queue that was received this many times.
fn is_done(site: &Site, receive_count: u32) -> bool {
    let function = Gate::new(site.ports(), "https://sluice.test/");
    let message = received(&Wakeup::Queue { queue: gate() }, receive_count);
    poll_once(batch::handle(&function, MessageQueue::Gate, vec![message])).unwrap().is_empty()
}

/// Asserts that the queue halts with this reason after the last retry and not before, and that
/// later messages are acknowledged at once.
fn assert_halts_after_retries(site: &Site, reason: &str) {
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

/// Z6.4: a queue with an unreadable head halts alone and loses nothing.
#[test]
fn a_queue_with_an_unreadable_head_halts_until_it_is_repaired() {
    let mut site = site();
    site.held.insert("other".to_owned());
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| site.running().iter().any(|job| job == "other"));
    let head = damage(&site, |record| record.key == queue::head_key(&gate()));
    assert_halts_after_retries(&site, "head");
    let b = propose(&site, 2, &[("b", "x")]);
    site.run_until(|site| is_checked(site, &b));
    assert_eq!(merged(&site), Vec::<u64>::new());
    repair(&site, head, &queue::partition(&gate()), Wakeup::Queue { queue: gate() });
    site.held.clear();
    approve(&mut site, &[&b]);
    assert_eq!((merged(&site), mark(&site, &queue::partition(&gate()))), (vec![1, 2], None));
}

/// Z6.5, Z7.3: the members of a bundle each have their own queue. While the queue of one member is
/// unreadable, its position is unknown. The bundle waits in a queue that is not halted, and enters
/// by itself after the repair.
#[test]
fn bundle_members_wait_for_the_unreadable_queue_of_one_member() {
    let mut site = site_with_cycles(MAIN);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run();
    let own = |key: &ChangeKey| QueueKey {
        tenant: "demo".into(),
        pipeline: "check".into(),
        queue: own_queue(key),
    };
    let theirs = damage(&site, |record| record.key == queue::head_key(&own(&b)));
    site.forge.describe(&b, "Depends-On: https://forge.test/org/one/pull/1", Announcement::None);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    let home = queue::partition(&own(&a));
    let waits = |site: &Site| {
        let is_offer =
            |record: &Record| record.key.partition == home && record.key.sort.starts_with("inbox#");
        site.world.records().iter().any(is_offer)
    };
    site.run_until(waits);
    let since = site.world.now();
    site.run_until(|site| site.world.now().since(since) > 600_000);
    assert_eq!((waits(&site), mark(&site, &home)), (true, None));
    repair(&site, theirs, &queue::partition(&own(&b)), Wakeup::Queue { queue: own(&b) });
    site.run();
    for (change, other) in [(&a, &b), (&b, &a)] {
        let all = check_results(&site, change);
        assert!(
            all.contains(&("SUCCESS".to_owned(), vec![head(&site, other)])),
            "{change}: {all:?}"
        );
    }
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.4: whether a change is in its branch must not be guessed. The queue halts; the landing record
/// gets no mark, because nothing would clear it.
#[test]
fn a_queue_with_an_unreadable_landing_halts_and_lands_after_the_repair() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    let is_landing = |record: &Record| record.key.partition.starts_with("landing#");
    site.run_until(|site| site.world.records().iter().any(is_landing));
    let landing = damage(&site, is_landing);
    assert_halts_after_retries(&site, "landing#");
    let b = propose(&site, 2, &[("b", "x")]);
    site.run_until(|site| is_checked(site, &b));
    assert_eq!((merged(&site), mark(&site, &landing.key.partition)), (Vec::new(), None));
    repair(&site, landing, &queue::partition(&gate()), Wakeup::Queue { queue: gate() });
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [1, 2]);
}

/// Finds at each look that a cell contradicts itself.
struct Puzzled {
    ports: Ports,
    partition: &'static str,
}

#[async_trait]
impl Reconciler for Puzzled {
    async fn reconcile(
        &self,
        _wakeup: &Wakeup,
        _reception: Reception,
    ) -> Result<(), ReconcileError> {
        Err(ReconcileError::Undecidable {
            partition: self.partition.to_owned(),
            reason: "it makes no sense".to_owned(),
        })
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}

/// Cells that never check a halt mark get none. The sweep retries what is due by itself; other
/// messages stay until they become dead letters.
#[test]
fn a_cell_without_a_halt_check_is_not_marked() {
    let world = World::new(1, 0, Timestamp(1_000_000));
    let report =
        Wakeup::Report { queue: gate(), report: "landing#a#1".to_owned(), group: "one".to_owned() };
    let table = [
        (MessageQueue::Tenants, Wakeup::Tenant { tenant: "demo".into() }, "tenant#demo", false),
        (MessageQueue::Gate, Wakeup::Queue { queue: gate() }, "tenant#demo", false),
        (
            MessageQueue::Pool,
            Wakeup::Pool { provider: "main".into() },
            "queue#demo/gate/integrated",
            false,
        ),
        (MessageQueue::Reports, report, "landing#a", true),
    ];
    for (queue, wakeup, partition, is_left) in table {
        let function = Puzzled { ports: world.ports(), partition };
        for receive_count in 1..=BROKEN_RECEIPTS_MAX {
            let message = received(&wakeup, receive_count);
            let failed = poll_once(batch::handle(&function, queue, vec![message])).unwrap();
            let is_last = receive_count == BROKEN_RECEIPTS_MAX;
            assert_eq!(
                failed.is_empty(),
                is_left && is_last,
                "{wakeup:?} received {receive_count} times"
            );
        }
    }
    assert_eq!(world.records(), Vec::new());
}

fn is_of_provider(record: &Record, sort: &str) -> bool {
    record.key.partition.starts_with("provider#") && record.key.sort.starts_with(sort)
}

/// Z1.2: a provider with an unreadable head supplies no nodes. After the repair it serves the
/// requests that still wait.
#[test]
fn a_provider_with_an_unreadable_head_halts_until_it_is_repaired() {
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
    let head = damage(&site, |record| is_of_provider(record, "head"));
    let name = decode::<ProviderHead>(&head).unwrap().provider;
    let partition = provider::partition(&name);
    site.run_until(|site| mark(site, &partition).is_some());
    let why = mark(&site, &partition).unwrap_or_default();
    assert!(why.contains("cannot be read") && why.contains("head"), "{why}");
    repair(&site, head, &partition, Wakeup::Pool { provider: name });
    site.run();
    assert_eq!(site.ending(&[], &[&change]).buildsets, ["org/one#1 check SUCCESS"]);
    assert_eq!(mark(&site, &partition), None);
}
