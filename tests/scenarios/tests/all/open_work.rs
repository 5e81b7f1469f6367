//! The ledger of open work: everything that begins ends, or is counted as unaccounted for.

use sluice_gate::StoredHead;
use sluice_gate::inbox::{InboxMessage, InboxMessageKind};
use sluice_memory::poll_once;
use sluice_model::InboxMessageId;
use sluice_model::build::BuildResult;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_pool::ProviderHead;
use sluice_records::codec::decode;
use sluice_records::delivery;
use sluice_records::open_work::{self, OpenKind, OpenWork};
use sluice_records::queue::put_message;
use sluice_runtime::{Clock as _, Record, cell};
use sluice_scenarios::Site;
use sluice_scenarios::sample;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

const PROJECT: &str = "
- job: {name: unit, run: playbooks/unit.yaml}
- project: {check: {jobs: [unit]}}
";

fn site() -> Site {
    sample::small(8, PROJECT, |_, _, _| BuildResult::Success)
}

/// Returns all open work.
fn open(site: &Site) -> OpenWork {
    let now = site.world.now();
    poll_once(open_work::read(&site.ports(), now.plus_millis(1), now)).unwrap().unwrap()
}

/// Z6.7, Z7.6, Z1.7
#[test]
fn all_work_is_listed_accounted_for_and_ends() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let seen = RefCell::new(BTreeSet::new());
    site.run_checked(|site| {
        let work = open(site);
        assert_eq!(work.unaccounted().collect::<Vec<_>>(), Vec::<&open_work::OpenEntry>::new());
        seen.borrow_mut().extend(work.entries.iter().map(|open| open.kind));
    });
    assert_eq!(
        seen.into_inner().into_iter().collect::<Vec<_>>(),
        OpenKind::ALL,
        "each kind was open for a while"
    );
    assert_eq!(open(&site), OpenWork::default());
}

/// Z7.6: a build whose executor died is closed when its queue retries it, and is not listed for
/// ever.
#[test]
fn a_build_whose_executor_died_is_accounted_for() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run_until(Site::is_building);
    site.die();
    site.run();
    assert_eq!(open(&site), OpenWork::default());
    assert_eq!(site.builds(), ["check unit 1"; 2]);
}

/// C5: the wakeup of an inbox message is lost and the queue has no head record with a due time.
#[test]
fn an_inbox_message_whose_wakeup_was_lost_is_counted_and_repaired() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.take_in();
    for message in site.world.take_messages(MessageQueue::Gate, 10, 30) {
        site.world.drop_message(MessageQueue::Gate, &message.receipt);
    }
    site.pass(60);
    assert!(site.builds().is_empty(), "the queue got no wakeup");
    let arrived = open(&site).entries;
    assert_eq!(arrived.iter().map(|open| open.kind).collect::<Vec<_>>(), [OpenKind::InboxMessage]);
    // Past the bound the timer counts it and wakes the queue in the same run.
    site.pass(ledger_bound());
    assert_eq!(site.builds(), ["check unit 1"]);
    assert_eq!(open(&site), OpenWork::default());
}

/// Returns kind and reason of the unaccounted work, and checks the counts.
fn counted(site: &Site) -> Vec<(OpenKind, String)> {
    let work = open(site);
    let counted: Vec<(OpenKind, String)> = work
        .unaccounted()
        .map(|open| (open.kind, open.unaccounted.clone().unwrap_or_default()))
        .collect();
    for kind in OpenKind::ALL {
        let of_kind = counted.iter().filter(|(counted, _)| *counted == kind).count();
        assert_eq!(work.counts()[&kind], of_kind, "{kind:?}: {counted:?}");
    }
    counted
}

/// C5, Z6.7: a delivery whose wakeup was lost is counted and named from its bound until it ends.
#[test]
fn a_delivery_whose_wakeup_was_lost_is_counted_and_named_until_it_ends() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.receive_webhooks();
    for message in site.world.take_messages(MessageQueue::Events, 10, 30) {
        site.world.drop_message(MessageQueue::Events, &message.receipt);
    }
    site.world.advance_millis(delivery::BOUND_SECONDS * 1_000 - 1_000);
    assert!(counted(&site).is_empty());
    site.world.advance_millis(1_000);
    let late = counted(&site);
    assert_eq!(late.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [OpenKind::Delivery]);
    assert!(
        late[0].1.starts_with("pull_request ")
            && late[0].1.ends_with("was accepted 10 minutes ago"),
        "{late:?}"
    );
    // Outside the minute of the forge sweep, which would find the change as well.
    site.pass(90);
    assert_eq!((counted(&site), open(&site)), (Vec::new(), OpenWork::default()));
    assert_eq!(site.builds(), ["check unit 1"]);
}

/// C5, Z7.6: the work of a dead letter that is not sent again is counted and named until the timer
/// wakes its queue.
#[test]
fn the_work_of_a_dead_letter_is_counted_and_named_until_it_ends() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.take_in();
    // Received five times and never handled: the sixth time it is a dead letter.
    for _ in 0..6 {
        site.world.take_messages(MessageQueue::Gate, 10, 30);
        site.world.advance_millis(31_000);
    }
    let dead = site.world.take_dead();
    assert!(
        !dead.is_empty() && dead.iter().all(|(queue, _)| *queue == MessageQueue::Gate),
        "{dead:?}"
    );
    assert!(counted(&site).is_empty(), "it is within its bound");
    site.world.advance_millis(ledger_bound() * 1_000);
    let lost = counted(&site);
    assert_eq!(lost, [(OpenKind::InboxMessage, "its cell has no head record".to_owned())]);
    site.pass(1);
    assert_eq!((counted(&site), open(&site)), (Vec::new(), OpenWork::default()));
    assert_eq!(site.builds(), ["check unit 1"]);
}

/// Drops all queued wakeups of builds.
fn lose_builds(site: &Site) {
    for message in site.world.take_messages(MessageQueue::BuildsNormal, 10, 30) {
        site.world.drop_message(MessageQueue::BuildsNormal, &message.receipt);
    }
}

/// Reconciles every queue and every provider, and nothing else.
fn reconcile_all(site: &mut Site) {
    let heads = site.world.records().into_iter().filter(|record| record.key.sort == "head");
    let wakeup = |head: Record| match head.key.partition.split('#').next() {
        Some("queue") => Some(Wakeup::Queue { queue: decode::<StoredHead>(&head).unwrap().key }),
        Some("provider") => {
            Some(Wakeup::Pool { provider: decode::<ProviderHead>(&head).unwrap().provider })
        }
        _ => None,
    };
    let wakeups: Vec<Wakeup> = heads.filter_map(wakeup).collect();
    poll_once(cell::send(&site.ports(), &wakeups)).unwrap().unwrap();
    site.handle(MessageQueue::Pool);
    site.handle(MessageQueue::Gate);
}

/// C5, Z7.6: a build that no executor claims is counted although its wakeup is sent again and
/// again, with nodes and without, until an executor claims it.
#[test]
fn an_unclaimed_build_is_counted_though_its_wakeup_is_repeated() {
    for (nodeset, kind) in [("", OpenKind::Request), (", nodeset: {nodes: []}", OpenKind::Build)] {
        let project = PROJECT.replace("unit.yaml}", &format!("unit.yaml{nodeset}}}"));
        let mut site = sample::small(8, &project, |_, _, _| BuildResult::Success);
        site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        site.run_until(|site| site.world.has_visible(MessageQueue::BuildsNormal));
        lose_builds(&site);
        let mut counted = Vec::new();
        for _ in 0..3 {
            site.world.advance_millis(901_000);
            reconcile_all(&mut site);
            lose_builds(&site);
            counted.push(open(&site).unaccounted().map(|open| open.kind).collect::<Vec<_>>());
        }
        assert_eq!(counted, [vec![], vec![], vec![kind]], "{nodeset}");
        site.run();
        assert_eq!(
            (open(&site), site.builds()),
            (OpenWork::default(), vec!["check unit 1".to_owned()]),
            "{nodeset}"
        );
    }
}

/// C5, Z6.4: a halted queue is counted with its reason until an operator resumes it. Its items wait
/// for the operator and are not unaccounted for.
#[test]
fn a_halted_queue_is_counted_until_an_operator_resumes_it() {
    let project =
        PROJECT.replace("check: {jobs: [unit]}", "check: {jobs: [unit]}, gate: {jobs: [unit]}");
    let mut site = sample::small(8, &project, |_, _, _| BuildResult::Success);
    site.forge.sabotage(BTreeMap::from([("strange".to_owned(), "file".to_owned())]));
    let change = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run();
    assert_eq!(open(&site).halted, BTreeSet::new(), "nothing has landed yet");
    sample::approve(&mut site, &[&change]);
    let halted = open(&site).halted;
    let records = site.world.records();
    let heads = records
        .iter()
        .filter(|record| record.key.sort == "head" && halted.contains(&record.key.partition));
    let heads: Vec<StoredHead> = heads.map(|record| decode(record).unwrap()).collect();
    let [StoredHead { key: queue, halted: Some(why), .. }] = heads.as_slice() else {
        panic!("{halted:?}")
    };
    assert_eq!(queue.pipeline.as_str(), "gate");
    assert!(why.contains("until an operator resumes it"), "{why}");
    // As the timer reads it much later.
    site.world.advance_millis(2 * ledger_bound() * 1_000);
    let now = site.world.now();
    let late = poll_once(open_work::read(&site.ports(), open_work::past_bound(now), now))
        .unwrap()
        .unwrap();
    assert_eq!((&late.halted, late.unaccounted().count()), (&halted, 0));
    let kind = InboxMessageKind::Resume { by: "jo".to_owned(), reason: "seen".to_owned() };
    let (id, event_id) = (InboxMessageId("command".to_owned()), "operator".to_owned());
    let message = InboxMessage {
        id,
        at: now,
        event_id,
        layout: 0,
        by_operator: true,
        in_progress: false,
        kind,
    };
    site.world.write_unchecked(put_message(queue, &message).unwrap());
    poll_once(cell::send(&site.ports(), &[Wakeup::Queue { queue: queue.clone() }]))
        .unwrap()
        .unwrap();
    site.pass(1);
    assert_eq!(open(&site).halted, BTreeSet::new());
}

fn ledger_bound() -> u64 {
    sluice_gate::unattended::BOUND_SECONDS
}
