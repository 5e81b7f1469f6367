//! Two gates on the same branches of an in-memory site. Under any fault, a branch has at most one
//! landing at a time, each change lands as tested, and every branch lock is released at the end.

use sluice_forge::Forge;
use sluice_gate::inbox::{InboxMessage, InboxMessageKind};
use sluice_gate::{Attempt, BranchLock, Landing, LandingEnd, LandingState, Reason};
use sluice_gate_function::Gate;
use sluice_memory::{Fate, Meddled, poll_once};
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::git::Oid;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{ConnectionName, InboxMessageId};
use sluice_records::codec::{decode, with_body};
use sluice_records::queue::put_message;
use sluice_records::report::Buildset;
use sluice_reporter::Reporter;
use sluice_runtime::batch::Reconciler as _;
use sluice_runtime::record::{Expect, Record, Write};
use sluice_runtime::{Clock as _, Ports, Records, batch, cell};
use sluice_scenarios::forge::Announcement;
use sluice_scenarios::repos::Tree;
use sluice_scenarios::sample::{self, BASE, COMMON, PIPELINES};
use sluice_scenarios::{Ending, Site};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

/// A second gate, which takes what bears a label.
const EXPRESS: &str = "
- pipeline:
    name: express
    manager: dependent
    trigger:
      github: [{event: pull_request, action: labeled, label: express}]
    success:
      github: {status: success, merge: true}
    failure:
      github: {status: failure}
";

const PROJECT: &str = "
- job: {name: unit, run: playbooks/unit.yaml}
- project:
    queue: integrated
    gate: {jobs: [unit]}
    express: {jobs: [unit]}
";

fn judge(_: &str, _: u32, _: &BTreeMap<String, Tree>) -> BuildResult {
    BuildResult::Success
}

fn site(seed: u64) -> Site {
    let config = [PIPELINES, EXPRESS, BASE, COMMON, &sample::cloud(8)].concat();
    let job_once: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("README", "hello")];
    let other: &[(&str, &str)] = &[("README", "nothing")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", &config)]), ("org/one", job_once), ("org/two", other)];
    Site::new(seed, sample::MAIN, repositories, judge)
}

fn records(site: &Site, prefix: &str) -> Vec<Record> {
    let records = site.world.records().into_iter();
    records.filter(|record| record.key.partition.starts_with(prefix)).collect()
}

/// Asserts that no branch has two open landings.
fn assert_one_landing_per_branch(site: &Site) {
    let mut open = BTreeMap::new();
    for record in records(site, "landing#") {
        let landing: Landing = decode(&record).unwrap();
        if !matches!(landing.state, LandingState::Ended { .. }) {
            let branch = sluice_gate::branch_lock::branch_of(&landing.change);
            let other = open.insert(branch, landing.change.clone());
            assert!(other.is_none(), "{other:?} and {} land at once", landing.change);
        }
    }
}

/// Enqueues two changes in each gate and runs the site to the end.
fn run_to_end(site: &mut Site) -> Ending {
    let propose = |(number, name): (u64, &str)| {
        site.forge.propose("org/one", number, name, "", &[(name, "x")])
    };
    let changes: Vec<ChangeKey> = [(1, "a"), (2, "b"), (3, "c"), (4, "d")].map(propose).into();
    site.run_checked(assert_one_landing_per_branch);
    for pair in changes.chunks(2) {
        site.forge.approve(&pair[0]);
        site.forge.label(&pair[1], "express", Announcement::Webhook);
    }
    site.run_checked(assert_one_landing_per_branch);
    site.sweep();
    site.sweep();
    site.run_checked(assert_one_landing_per_branch);
    let locks: Vec<BranchLock> =
        records(site, "branch#").iter().map(|record| decode(record).unwrap()).collect();
    assert!(locks.len() == 1 && locks[0].is_unused(), "{locks:?}");
    site.ending(&["org/one"], &changes.iter().collect::<Vec<_>>())
}

/// Z6.4, C2: two gates on one branch land one after the other, and every passing change lands.
#[test]
fn two_gates_over_one_branch_never_land_on_it_at_once() {
    for seed in 0..6 {
        let mut site = site(seed);
        site.twice = seed % 2 == 1;
        let ending = run_to_end(&mut site);
        assert_eq!(ending.merged.len(), 4, "{:?}", ending.merged);
        assert_eq!(ending.left_over, Vec::<String>::new());
        let files: Vec<&String> = ending.branches["org/one"].keys().collect();
        assert!(
            ["a", "b", "c", "d"].iter().all(|name| files.iter().any(|file| file == name)),
            "{files:?}"
        );
    }
}

/// Z6.4: an item that waits for another queue's landing has that as a reason.
#[test]
fn an_item_that_waits_for_the_branch_lock_says_so() {
    let mut waits = 0;
    for seed in 0..6 {
        let mut site = site(seed);
        run_to_end(&mut site);
        let sets = records(&site, "buildset#");
        let sets = sets.iter().map(|record| decode::<Buildset>(record).unwrap());
        let reasons = sets.flat_map(|set| set.item.reasons);
        let is_wait = |one: &Reason| one.text.contains("waits for the lock on org/one@main");
        waits += reasons.filter(is_wait).count();
    }
    assert!(waits > 0, "no queue waited for the other with any seed");
}

/// C2: the same when functions die, or calls report false failures, at many calls.
#[test]
fn branch_locks_are_released_whichever_function_dies() {
    for step in (0..1_400).step_by(37) {
        for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsAfter] {
            let mut site = site(step + 1);
            site.set_fate(step, fate);
            let ending = run_to_end(&mut site);
            assert_eq!(ending.merged.len(), 4, "{fate:?} at call {step}: {:?}", ending.merged);
        }
    }
}

/// Returns a site with an ordered landing whose branch lock another queue has acquired since.
fn overtaken() -> (Site, BranchLock) {
    let mut site = site(1);
    let change = site.forge.propose("org/one", 1, "a", "", &[("a", "x")]);
    site.run();
    site.forge.approve(&change);
    site.run_until(|site| !records(site, "landing#").is_empty());
    let record = records(&site, "branch#").remove(0);
    let mut lock: BranchLock = decode(&record).unwrap();
    lock.fence += 1;
    let holder = lock.holder.as_mut().expect("the landing holds the lock");
    (holder.queue.queue, holder.item) = ("another".into(), "unknown".into());
    let taken = with_body(record, &lock).unwrap();
    let taken = Record { revision: taken.revision + 1, fence: lock.fence, ..taken };
    site.world.write_unchecked(Write::Put { record: taken, expect: Expect::Anything });
    (site, lock)
}

/// C2: a landing with an outdated fence merges nothing. Its queue has the change tested again and
/// lands it once it holds the lock.
#[test]
fn a_landing_whose_branch_lock_another_queue_acquired_merges_nothing() {
    let (mut site, lock) = overtaken();
    site.handle(MessageQueue::Reports);
    assert_eq!(site.forge.merges().len(), 0);
    let ended = records(&site, "landing#").remove(0);
    let landing: Landing = decode(&ended).unwrap();
    assert!(
        matches!(landing.state, LandingState::Ended { end: LandingEnd::BaseMoved { .. }, .. }),
        "{landing:?}"
    );
    site.run();
    assert_eq!(
        site.forge.merges().len(),
        1,
        "the lock is free again, because its holder has no landing"
    );
    let fences = records(&site, "landing#")
        .iter()
        .map(|record| decode::<Landing>(record).unwrap().fence)
        .max();
    assert_eq!(fences, Some(lock.fence + 1));
}

/// Returns records that drop the checks of the fence: the mutation of the rule of the test above.
fn unfenced(records: Arc<dyn Records>) -> Meddled {
    let is_fence = |write: &Write| matches!(write, Write::Check { key, .. } if key.partition.starts_with("branch#"));
    Meddled::writing(records, move |writes| {
        writes.into_iter().filter(|write| !is_fence(write)).collect()
    })
}

/// C2: only the fence prevents the merge, so that the test above notices a missing fence: change,
/// head and branch tip are unchanged.
#[test]
fn without_the_fence_a_landing_merges_into_a_branch_that_another_queue_has_locked() {
    let (site, _) = overtaken();
    let ports = site.ports();
    let unfenced = Ports { records: Arc::new(unfenced(ports.records.clone())), ..ports };
    let forges: BTreeMap<ConnectionName, Arc<dyn Forge>> =
        BTreeMap::from([("github".into(), site.forge.clone() as Arc<dyn Forge>)]);
    let reporter = Reporter::new(unfenced, forges);
    let messages = site.world.take_messages(MessageQueue::Reports, 10, 30);
    poll_once(batch::handle(&reporter, MessageQueue::Reports, messages))
        .expect("the reconciliation ends");
    assert_eq!(site.forge.merges().len(), 1);
}

/// Returns a site with an ordered landing that cannot proceed while the forge does not answer for
/// the branch, the change, and the switch of that fault.
fn stuck() -> (Site, ChangeKey, Arc<AtomicBool>) {
    let mut site = site(1);
    let change = site.forge.propose("org/one", 1, "a", "", &[("a", "x")]);
    site.run();
    site.forge.approve(&change);
    let is_silent = Arc::new(AtomicBool::new(true));
    let silent = is_silent.clone();
    site.world.decide_fates(move |step| {
        match step.name == "forge.branch_tip" && silent.load(Ordering::Relaxed) {
            true => Fate::FailsBefore,
            false => Fate::Works,
        }
    });
    site.run_until(|site| landings(site).iter().any(|landing| landing.trouble.is_some()));
    assert_eq!(landings(&site)[0].state, LandingState::Ordered);
    (site, change, is_silent)
}

/// Sends an operator's dequeue command to the queue of the landing.
fn dequeue(site: &Site, change: &ChangeKey) {
    let (by, reason) = ("jo".to_owned(), "it hangs".to_owned());
    let kind = InboxMessageKind::Dequeue { key: change.clone(), head: None, by, reason };
    let (id, event_id) = (InboxMessageId("command".to_owned()), "operator".to_owned());
    let message = InboxMessage {
        id,
        at: site.world.now(),
        event_id,
        layout: 0,
        by_operator: true,
        in_progress: false,
        kind,
    };
    let queue = landings(site)[0].queue.clone();
    site.world.write_unchecked(put_message(&queue, &message).unwrap());
    poll_once(cell::send(&site.ports(), &[Wakeup::Queue { queue }])).unwrap().unwrap();
}

/// R06, C2: an operator dequeues a change whose landing is stuck. The landing ends, the lock is
/// released, and nothing lands once the forge answers again.
#[test]
fn a_stuck_landing_that_an_operator_dequeues_lands_nothing_afterwards() {
    let (mut site, change, is_silent) = stuck();
    dequeue(&site, &change);
    site.run();
    let landed = landings(&site);
    let [landing] = landed.as_slice() else { panic!("{landed:?}") };
    let LandingState::Ended { end: LandingEnd::Refused { why }, .. } = &landing.state else {
        panic!("{landing:?}")
    };
    assert!(why.contains("an operator dequeued it"), "{why}");
    let lock: BranchLock = decode(&records(&site, "branch#")[0]).unwrap();
    assert!(lock.is_unused(), "{lock:?}");
    is_silent.store(false, Ordering::Relaxed);
    site.pass(60);
    // The wakeup of the stuck landing was received too often and is a dead letter.
    site.world.take_dead();
    let ending = site.ending(&["org/one"], &[&change]);
    assert_eq!((ending.merged, ending.left_over), (Vec::<String>::new(), Vec::<String>::new()));
    let gate = ending.buildsets.iter().filter(|set| set.contains(" gate "));
    assert_eq!(gate.collect::<Vec<_>>(), [&format!("{change} gate DEQUEUED")]);
}

/// R06, Z6.4: the reporter begins the merge while the gate is about to withdraw the landing. The
/// gate's commit fails and the change stays, because it may be merged.
#[test]
fn a_landing_that_begins_while_it_is_withdrawn_continues() {
    let (site, change, _) = stuck();
    dequeue(&site, &change);
    let is_waiting = Arc::new(AtomicBool::new(true));
    let waits = is_waiting.clone();
    site.world.decide_fates(move |step| {
        match step.name == "records.commit" && waits.load(Ordering::Relaxed) {
            true => Fate::Waits,
            false => Fate::Works,
        }
    });
    let gate = Gate::new(site.ports(), "https://sluice.test/");
    let messages = site.world.take_messages(MessageQueue::Gate, 10, 30);
    let mut reconciliation = pin!(batch::handle(&gate, MessageQueue::Gate, messages));
    let mut context = Context::from_waker(Waker::noop());
    assert!(reconciliation.as_mut().poll(&mut context).is_pending(), "it is about to commit");
    let record = records(&site, "landing#").remove(0);
    let landing: Landing = decode(&record).unwrap();
    let state = LandingState::Merging(Attempt { tip: landing.base.clone(), in_flight_until: None });
    let begun =
        with_body(record, &Landing { state: state.clone(), merge_attempted: true, ..landing })
            .unwrap();
    let begun = Record { revision: begun.revision + 1, ..begun };
    site.world.write_unchecked(Write::Put { record: begun, expect: Expect::Anything });
    is_waiting.store(false, Ordering::Relaxed);
    assert!(reconciliation.as_mut().poll(&mut context).is_ready());
    assert_eq!(landings(&site)[0].state, state);
    assert!(
        !records(&site, "buildset#").iter().any(|record| record.body.contains("DEQUEUED")),
        "it is still queued"
    );
}

/// Returns records that have the only landing begin just before each commit that writes a branch
/// lock. If `is_checked` is false, they drop the condition on the landing.
fn begins_before_takeover(site: &Site, is_checked: bool) -> Meddled {
    let world = site.world.clone();
    let is_of = |write: &Write, prefix: &str| write.key().partition.starts_with(prefix);
    Meddled::writing(site.ports().records, move |writes| {
        let takes_lock =
            |write: &Write| is_of(write, "branch#") && matches!(write, Write::Put { .. });
        let landing =
            world.records().into_iter().find(|record| record.key.partition.starts_with("landing#"));
        if let Some(record) = landing.filter(|_| writes.iter().any(takes_lock)) {
            let landing: Landing = decode(&record).unwrap();
            let state =
                LandingState::Merging(Attempt { tip: landing.base.clone(), in_flight_until: None });
            let begun = with_body(record, &Landing { state, ..landing }).unwrap();
            let begun = Record { revision: begun.revision + 1, ..begun };
            world.write_unchecked(Write::Put { record: begun, expect: Expect::Anything });
        }
        let is_condition =
            |write: &Write| is_of(write, "landing#") && matches!(write, Write::Check { .. });
        writes.into_iter().filter(|write| is_checked || !is_condition(write)).collect()
    })
}

/// C2: a landing that others may take over, since it has had trouble for ten minutes, begins just
/// before they do. It keeps its branch lock, and there is no second landing on the branch. Only the
/// condition on the landing prevents that: without it the lock is taken.
#[test]
fn a_landing_that_begins_just_before_a_takeover_keeps_its_branch_lock() {
    for is_checked in [true, false] {
        let (mut site, change, _) = stuck();
        let other = site.forge.propose("org/one", 2, "b", "", &[("b", "x")]);
        site.forge.label(&other, "express", Announcement::Webhook);
        let lock = |site: &Site| -> BranchLock { decode(&records(site, "branch#")[0]).unwrap() };
        site.run_until(|site| !lock(site).waiting.is_empty());
        site.world.advance_millis(601_000);
        let queue = lock(&site).waiting.remove(0);
        let table = begins_before_takeover(&site, is_checked);
        let ports = Ports { records: Arc::new(table), ..site.ports() };
        let gate = Gate::new(ports, "https://sluice.test/");
        poll_once(gate.reconcile_first(&Wakeup::Queue { queue: queue.clone() }))
            .expect("the reconciliation ends")
            .unwrap();
        let holder = lock(&site).holder.expect("the lock is held");
        assert_eq!(holder.queue != queue, is_checked, "{holder:?}");
        assert_eq!(holder.change == change, is_checked, "{holder:?}");
        assert_eq!(landings(&site).len(), if is_checked { 1 } else { 2 });
    }
}

/// Two tenants that share one repository.
const TWO: &str = "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one, org/two]}}}
- tenant: {name: other, source: {github: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
";

/// Returns a site of two tenants that gate the same branch, each with its own pipeline, queue and
/// jobs.
fn site_of_two(seed: u64) -> Site {
    let of = |pipelines: &str, gate: &str| {
        let jobs = "- queue: {name: integrated}\n- job: {name: base, parent: null}\n- job: {name: unit, run: playbooks/unit.yaml}";
        format!(
            "{pipelines}\n{jobs}\n- project: {{name: org/one, queue: integrated, {gate}: {{jobs: [unit]}}}}\n"
        )
    };
    let (config, config2) = (of(PIPELINES, "gate"), of(EXPRESS, "express"));
    let files: &[(&str, &str)] = &[("README", "hello")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/config2", &[("zuul.yaml", &config2)]),
        ("org/one", files),
        ("org/two", files),
    ];
    let mut site = Site::new(seed, TWO, repositories, judge);
    poll_once(cell::send(&site.ports(), &[Wakeup::Tenant { tenant: "other".into() }]))
        .unwrap()
        .unwrap();
    site.run();
    site
}

fn landings(site: &Site) -> Vec<Landing> {
    records(site, "landing#").iter().map(|record| decode(record).unwrap()).collect()
}

/// Z6.4, C2: the gates of two tenants take turns on one branch. A change is tested again when the
/// other tenant has moved the branch, so that each merge has the tested base and the tested tree.
#[test]
fn two_tenants_land_in_turn_on_one_branch_and_only_as_tested() {
    let mut moved = 0;
    for seed in 0..6 {
        let mut site = site_of_two(seed);
        site.twice = seed % 2 == 1;
        let ending = run_to_end(&mut site);
        assert_eq!(ending.merged.len(), 4, "{:?}", ending.merged);
        assert_eq!(ending.left_over, Vec::<String>::new());
        let landings = landings(&site);
        let mut tip: Option<Oid> = None;
        for (change, commit) in site.forge.merges() {
            let is_its = |landing: &&Landing| {
                let LandingState::Ended { end: LandingEnd::Landed { commit: landed }, .. } =
                    &landing.state
                else {
                    return false;
                };
                landing.change.key == change && *landed == commit
            };
            let landing = landings.iter().find(is_its).expect("a landing has the commit");
            assert_eq!(landing.tested.tree, commit.tree);
            if let Some(before) = tip.replace(commit.tree) {
                assert_eq!(
                    landing.base.tree, before,
                    "{change} was tested on the tip of the branch"
                );
            }
        }
        let mut tenants: Vec<String> =
            landings.iter().map(|landing| landing.queue.tenant.to_string()).collect();
        tenants.sort();
        tenants.dedup();
        assert_eq!(tenants, ["demo", "other"]);
        let is_moved = |landing: &&Landing| {
            matches!(landing.state, LandingState::Ended { end: LandingEnd::BaseMoved { .. }, .. })
        };
        moved += landings.iter().filter(is_moved).count();
    }
    assert!(moved > 0, "no tenant moved the branch under the other with any seed");
}

/// Z6.4, C2: a change in the gates of two tenants is merged once. The second gate finds it merged
/// with another tree than its own, tests the branch again and does not halt.
#[test]
fn a_change_that_another_tenants_gate_merged_halts_no_queue() {
    for seed in 0..6 {
        let mut site = site_of_two(seed);
        let first = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        let both = site.forge.propose("org/one", 2, "B", "", &[("b", "x")]);
        site.run();
        // In one gate it is behind another change, in the other it is alone.
        site.forge.approve(&first);
        site.take_in();
        site.forge.label(&both, "express", Announcement::Webhook);
        site.forge.approve(&both);
        site.take_in();
        site.run_checked(|site| {
            assert_one_landing_per_branch(site);
            let is_halted = |record: &Record| record.body.contains("until an operator resumes it");
            assert!(!records(site, "queue#").iter().any(is_halted), "a queue is halted");
        });
        site.sweep();
        site.sweep();
        let ending = site.ending(&["org/one"], &[&first, &both]);
        let mut merged = ending.merged.clone();
        merged.sort();
        assert_eq!(merged, [first.to_string(), both.to_string()]);
        assert_eq!(ending.left_over, Vec::<String>::new());
        let states: Vec<&str> = ending.changes.values().map(|(state, ..)| state.as_str()).collect();
        assert_eq!(states, ["Merged", "Merged"]);
    }
}
