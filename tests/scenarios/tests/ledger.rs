//! The ledger: whatever begins ends, and while it does not, somebody sees to it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_gate::StoredHead;
use sluice_gate::inbox::{InboxMessage, InboxMessageKind};
use sluice_memory::poll_once;
use sluice_model::InboxMessageId;
use sluice_model::build::BuildResult;
use sluice_model::wakeup::{Wakeup, MessageQueue};
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

/// Returns everything that is open at this moment.
fn open(site: &Site) -> OpenWork {
    let now = site.world.now();
    poll_once(open_work::read(&site.ports(), now.plus_millis(1), now)).unwrap().unwrap()
}

/// Z6.7, Z7.6, Z1.7
#[test]
fn everything_that_begins_is_listed_seen_to_and_ends() {
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

/// Z7.6: what an executor left behind is over when its queue has given it up, and not listed as
/// open for ever.
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

/// C5: the last word that led to a queue is lost, and no head says that anybody looks there.
#[test]
fn what_arrived_and_was_lost_on_the_way_is_found_counted_and_mended() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.take_in();
    for message in site.world.take_messages(MessageQueue::Gate, 10, 30) {
        site.world.drop_message(MessageQueue::Gate, &message.receipt);
    }
    site.pass(60);
    assert!(site.builds().is_empty(), "nobody knows of it");
    let arrived = open(&site).entries;
    assert_eq!(arrived.iter().map(|open| open.kind).collect::<Vec<_>>(), [OpenKind::InboxMessage]);
    // Past its bound it is counted by the same look that has the queue poked.
    site.pass(ledger_bound());
    assert_eq!(site.builds(), ["check unit 1"]);
    assert_eq!(open(&site), OpenWork::default());
}

/// Returns what is counted, by its kind, and why.
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

/// C5, Z6.7: what a forge told, and nobody was led to, is counted from its bound on and named, and
/// no more once it has ended.
#[test]
fn a_delivery_whose_word_was_lost_is_counted_and_named_until_it_ends() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.hear();
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
    // Not in a minute in which forges are asked as well, which would find the change by itself.
    site.pass(90);
    assert_eq!((counted(&site), open(&site)), (Vec::new(), OpenWork::default()));
    assert_eq!(site.builds(), ["check unit 1"]);
}

/// C5, Z7.6: what a dead letter would have led to, to which nobody gives another life, is counted
/// and named until somebody looks there.
#[test]
fn what_a_dead_letter_would_have_led_to_is_counted_and_named_until_it_ends() {
    let mut site = site();
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.take_in();
    // Received five times and handled by nobody: the sixth time it is dead.
    for _ in 0..6 {
        site.world.take_messages(MessageQueue::Gate, 10, 30);
        site.world.advance_millis(31_000);
    }
    let dead = site.world.take_dead();
    assert!(!dead.is_empty() && dead.iter().all(|(queue, _)| *queue == MessageQueue::Gate), "{dead:?}");
    assert!(counted(&site).is_empty(), "it is young");
    site.world.advance_millis(ledger_bound() * 1_000);
    let lost = counted(&site);
    assert_eq!(lost, [(OpenKind::InboxMessage, "its cell has no head record".to_owned())]);
    site.pass(1);
    assert_eq!((counted(&site), open(&site)), (Vec::new(), OpenWork::default()));
    assert_eq!(site.builds(), ["check unit 1"]);
}

/// Has every message about a build that is on its way be lost.
fn lose_builds(site: &Site) {
    for message in site.world.take_messages(MessageQueue::BuildsNormal, 10, 30) {
        site.world.drop_message(MessageQueue::BuildsNormal, &message.receipt);
    }
}

/// Has every queue and every provider looked at, and nothing else.
fn look(site: &mut Site) {
    let heads = site.world.records().into_iter().filter(|record| record.key.sort == "head");
    let poke = |head: Record| match head.key.partition.split('#').next() {
        Some("queue") => Some(Wakeup::Queue { queue: decode::<StoredHead>(&head).unwrap().key }),
        Some("provider") => {
            Some(Wakeup::Pool { provider: decode::<ProviderHead>(&head).unwrap().provider })
        }
        _ => None,
    };
    let pokes: Vec<Wakeup> = heads.filter_map(poke).collect();
    poll_once(cell::send(&site.ports(), &pokes)).unwrap().unwrap();
    site.handle(MessageQueue::Pool);
    site.handle(MessageQueue::Gate);
}

/// C5, Z7.6: what is sent anew is a young message each time. A build that nobody claims however
/// often it is sent is counted all the same, with nodes and without, and no more once somebody has
/// it.
#[test]
fn a_build_that_is_sent_again_and_again_and_not_claimed_is_counted() {
    for (nodeset, kind) in [("", OpenKind::Request), (", nodeset: {nodes: []}", OpenKind::Build)] {
        let project = PROJECT.replace("unit.yaml}", &format!("unit.yaml{nodeset}}}"));
        let mut site = sample::small(8, &project, |_, _, _| BuildResult::Success);
        site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        site.run_until(|site| site.world.has_visible(MessageQueue::BuildsNormal));
        lose_builds(&site);
        let mut counted = Vec::new();
        for _ in 0..3 {
            site.world.advance_millis(901_000);
            look(&mut site);
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

/// C5, Z6.4: a queue that is frozen is counted, with its reason, until an operator lets it go on;
/// what stands in it is a person's turn, and not unaccounted for.
#[test]
fn a_frozen_queue_is_counted_until_an_operator_lets_it_go_on() {
    let project =
        PROJECT.replace("check: {jobs: [unit]}", "check: {jobs: [unit]}, gate: {jobs: [unit]}");
    let mut site = sample::small(8, &project, |_, _, _| BuildResult::Success);
    site.forge.sabotage(BTreeMap::from([("strange".to_owned(), "file".to_owned())]));
    let change = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run();
    assert_eq!(open(&site).halted, BTreeSet::new(), "nothing has landed yet");
    sample::approve(&mut site, &[&change]);
    let frozen = open(&site).halted;
    let records = site.world.records();
    let heads = records
        .iter()
        .filter(|record| record.key.sort == "head" && frozen.contains(&record.key.partition));
    let heads: Vec<StoredHead> = heads.map(|record| decode(record).unwrap()).collect();
    let [StoredHead { key: queue, halted: Some(why), .. }] = heads.as_slice() else {
        panic!("{frozen:?}")
    };
    assert_eq!(queue.pipeline.as_str(), "gate");
    assert!(why.contains("until an operator resumes it"), "{why}");
    // As the timer reads it, long after.
    site.world.advance_millis(2 * ledger_bound() * 1_000);
    let now = site.world.now();
    let late =
        poll_once(open_work::read(&site.ports(), open_work::past_bound(now), now)).unwrap().unwrap();
    assert_eq!((&late.halted, late.unaccounted().count()), (&frozen, 0));
    let kind = InboxMessageKind::Resume { by: "jo".to_owned(), reason: "seen".to_owned() };
    let (id, event_id) = (InboxMessageId("word".to_owned()), "operator".to_owned());
    let word =
        InboxMessage { id, at: now, event_id, layout: 0, by_operator: true, in_progress: false, kind };
    site.world.write_directly(put_message(queue, &word).unwrap());
    poll_once(cell::send(&site.ports(), &[Wakeup::Queue { queue: queue.clone() }])).unwrap().unwrap();
    site.pass(1);
    assert_eq!(open(&site).halted, BTreeSet::new());
}

fn ledger_bound() -> u64 {
    sluice_gate::unattended::BOUND_SECONDS
}
