//! Two gates over the same branches on a whole Sluice in memory: however it is disturbed, no two
//! landings are under way at once on a branch, everything lands as it was tested, and nobody holds
//! a branch at the end.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_forge::Forge;
use sluice_gate::arrival::{Arrival, ArrivalKind};
use sluice_gate::{Landing, LandingEnd, LandingState, Turn};
use sluice_gate_function::Gate;
use sluice_memory::{Fate, Meddled, poll_once};
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::git::Oid;
use sluice_model::poke::{Poke, Queue};
use sluice_model::{ArrivalId, ConnectionName};
use sluice_records::codec::{decode, with_body};
use sluice_records::queue::put_arrival;
use sluice_records::report::Buildset;
use sluice_reporter::Reporter;
use sluice_runtime::record::{Expect, Record, Write};
use sluice_runtime::{Clock as _, Ports, Records, batch, cell};
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

/// Looks that no branch has two landings that are ordered and not over.
fn look(site: &Site) {
    let mut open = BTreeMap::new();
    for record in records(site, "landing#") {
        let landing: Landing = decode(&record).unwrap();
        if !matches!(landing.state, LandingState::Ended { .. }) {
            let branch = sluice_gate::turn::branch_of(&landing.change);
            let other = open.insert(branch, landing.change.clone());
            assert!(other.is_none(), "{other:?} and {} land at once", landing.change);
        }
    }
}

/// Puts two changes into either gate and lets everything come to its end.
fn tell(site: &mut Site) -> Ending {
    let propose = |(number, name): (u64, &str)| {
        site.forge.propose("org/one", number, name, "", &[(name, "x")])
    };
    let changes: Vec<ChangeKey> = [(1, "a"), (2, "b"), (3, "c"), (4, "d")].map(propose).into();
    site.run_checked(look);
    for pair in changes.chunks(2) {
        site.forge.approve(&pair[0]);
        site.forge.label(&pair[1], "express", true);
    }
    site.run_checked(look);
    site.sweep();
    site.sweep();
    site.run_checked(look);
    let turns: Vec<Turn> =
        records(site, "branch#").iter().map(|record| decode(record).unwrap()).collect();
    assert!(turns.len() == 1 && turns[0].is_unused(), "{turns:?}");
    site.ending(&["org/one"], &changes.iter().collect::<Vec<_>>())
}

/// Z6.4, C2: two gates of one branch land one after the other, and all that passes lands.
#[test]
fn two_gates_over_one_branch_never_land_on_it_at_once() {
    for seed in 0..6 {
        let mut site = site(seed);
        site.twice = seed % 2 == 1;
        let ending = tell(&mut site);
        assert_eq!(ending.merged.len(), 4, "{:?}", ending.merged);
        assert_eq!(ending.left_over, Vec::<String>::new());
        let files: Vec<&String> = ending.branches["org/one"].keys().collect();
        assert!(
            ["a", "b", "c", "d"].iter().all(|name| files.iter().any(|file| file == name)),
            "{files:?}"
        );
    }
}

/// Z6.4: what has to wait for another queue's landing says so to whoever asks.
#[test]
fn what_waits_for_another_queues_landing_says_so() {
    let mut told = 0;
    for seed in 0..6 {
        let mut site = site(seed);
        tell(&mut site);
        let sets = records(&site, "buildset#");
        let sets = sets.iter().map(|record| decode::<Buildset>(record).unwrap());
        let reasons = sets.flat_map(|set| set.item.reasons);
        told += reasons
            .filter(|reason| reason.contains("its turn to land on org/one@main comes when"))
            .count();
    }
    assert!(told > 0, "in none of the stories did one queue wait for the other");
}

/// C2: the same when functions die or are told lies, at each of many calls.
#[test]
fn branches_are_let_go_whoever_dies() {
    for step in (0..1_400).step_by(37) {
        for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsAfter] {
            let mut site = site(step + 1);
            site.set_fate(step, fate);
            let ending = tell(&mut site);
            assert_eq!(ending.merged.len(), 4, "{fate:?} at call {step}: {:?}", ending.merged);
        }
    }
}

/// Returns a site with an approved change that is ordered to land, and whose branch another queue
/// has taken since.
fn overtaken() -> (Site, Turn) {
    let mut site = site(1);
    let change = site.forge.propose("org/one", 1, "a", "", &[("a", "x")]);
    site.run();
    site.forge.approve(&change);
    site.run_until(|site| !records(site, "landing#").is_empty());
    let record = records(&site, "branch#").remove(0);
    let mut turn: Turn = decode(&record).unwrap();
    turn.fence += 1;
    let holder = turn.holder.as_mut().expect("the branch is the landing's");
    (holder.queue.queue, holder.item) = ("another".into(), "nobody-s".into());
    let taken = with_body(record, &turn).unwrap();
    let taken = Record { revision: taken.revision + 1, fence: turn.fence, ..taken };
    site.world.write_directly(Write::Put { record: taken, expect: Expect::Anything });
    (site, turn)
}

/// C2: nothing is merged on behalf of a queue that was passed by. Its landing shows a fence that is
/// the branch's no more; the queue, which is there after all, has the change tested again and lands
/// it in its turn.
#[test]
fn a_landing_whose_branch_was_taken_by_another_queue_merges_nothing() {
    let (mut site, turn) = overtaken();
    site.handle(Queue::Reports);
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
        "who holds the branch is over: its landing is nowhere"
    );
    let fences = records(&site, "landing#")
        .iter()
        .map(|record| decode::<Landing>(record).unwrap().fence)
        .max();
    assert_eq!(fences, Some(Some(turn.fence + 1)));
}

/// Returns a table that asks nobody whose turn it is on a branch: the rule that the test above
/// looks at, broken.
fn unfenced(records: Arc<dyn Records>) -> Meddled {
    let is_fence = |write: &Write| matches!(write, Write::Check { key, .. } if key.partition.starts_with("branch#"));
    Meddled::writing(records, move |writes| {
        writes.into_iter().filter(|write| !is_fence(write)).collect()
    })
}

/// C2: the fence alone keeps it from that, so that the test above would notice its want: the
/// change, its head and its branch's tip are all as they were.
#[test]
fn a_landing_whose_fence_nobody_asks_for_merges_into_a_branch_that_another_queue_has() {
    let (site, _) = overtaken();
    let ports = site.ports();
    let unfenced = Ports { records: Arc::new(unfenced(ports.records.clone())), ..ports };
    let forges: BTreeMap<ConnectionName, Arc<dyn Forge>> =
        BTreeMap::from([("github".into(), site.forge.clone() as Arc<dyn Forge>)]);
    let reporter = Reporter::new(unfenced, forges);
    let messages = site.world.take_messages(Queue::Reports, 10, 30);
    poll_once(batch::handle(&reporter, Queue::Reports, messages)).expect("it comes to its end");
    assert_eq!(site.forge.merges().len(), 1);
}

/// Returns a site with an approved change that is ordered to land, and that nobody can land while
/// the forge is silent about its branch.
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
    assert_eq!(landings(&site)[0].state, LandingState::Wanted);
    (site, change, is_silent)
}

/// Has an operator take a change out of the queue in which it is to land.
fn dequeue(site: &Site, change: &ChangeKey) {
    let (by, reason) = ("jo".to_owned(), "it hangs".to_owned());
    let kind = ArrivalKind::Dequeue { key: change.clone(), head: None, by, reason };
    let (id, event_id) = (ArrivalId("word".to_owned()), "operator".to_owned());
    let word = Arrival {
        id,
        at: site.world.now(),
        event_id,
        layout: 0,
        by_operator: true,
        taken_up: false,
        kind,
    };
    let queue = landings(site)[0].queue.clone();
    site.world.write_directly(put_arrival(&queue, &word).unwrap());
    poll_once(cell::send(&site.ports(), &[Poke::Queue { queue }])).unwrap().unwrap();
}

/// R06, C2: what nobody can put into its branch an operator takes out. The landing is over by that,
/// the branch is free, and nothing lands once the forge answers again.
#[test]
fn a_landing_that_an_operator_takes_back_lands_nothing_afterwards() {
    let (mut site, change, is_silent) = stuck();
    dequeue(&site, &change);
    site.run();
    let landed = landings(&site);
    let [landing] = landed.as_slice() else { panic!("{landed:?}") };
    let LandingState::Ended { end: LandingEnd::Refused { why }, .. } = &landing.state else {
        panic!("{landing:?}")
    };
    assert!(why.contains("an operator took it out"), "{why}");
    let turn: Turn = decode(&records(&site, "branch#")[0]).unwrap();
    assert!(turn.is_unused(), "{turn:?}");
    is_silent.store(false, Ordering::Relaxed);
    site.pass(60);
    // While nobody could land it the message that asks for that was received too often.
    site.world.take_dead();
    let ending = site.ending(&["org/one"], &[&change]);
    assert_eq!((ending.merged, ending.left_over), (Vec::<String>::new(), Vec::<String>::new()));
    let gate = ending.buildsets.iter().filter(|set| set.contains(" gate "));
    assert_eq!(gate.collect::<Vec<_>>(), [&format!("{change} gate DEQUEUED")]);
}

/// R06, Z6.4: where somebody begins a landing while a gate is about to take it back, the gate finds
/// that, and the change stays: it may be in its branch.
#[test]
fn a_landing_that_is_begun_while_it_is_taken_back_goes_on() {
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
    let messages = site.world.take_messages(Queue::Gate, 10, 30);
    let mut look = pin!(batch::handle(&gate, Queue::Gate, messages));
    let mut context = Context::from_waker(Waker::noop());
    assert!(look.as_mut().poll(&mut context).is_pending(), "it is about to write");
    let record = records(&site, "landing#").remove(0);
    let landing: Landing = decode(&record).unwrap();
    let state = LandingState::Attempting { tip: landing.base.clone() };
    let begun =
        with_body(record, &Landing { state: state.clone(), tried: true, ..landing }).unwrap();
    let begun = Record { revision: begun.revision + 1, ..begun };
    site.world.write_directly(Write::Put { record: begun, expect: Expect::Anything });
    is_waiting.store(false, Ordering::Relaxed);
    assert!(look.as_mut().poll(&mut context).is_ready());
    assert_eq!(landings(&site)[0].state, state);
    assert!(
        !records(&site, "buildset#").iter().any(|record| record.body.contains("DEQUEUED")),
        "it has not left"
    );
}

/// Two tenants that hold one repository.
const TWO: &str = "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one, org/two]}}}
- tenant: {name: other, source: {github: {config-projects: [org/config2], untrusted-projects: [org/one]}}}
";

/// A site of two tenants, each of which gates the same branch by a pipeline, a queue and jobs of
/// its own.
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
    poll_once(cell::send(&site.ports(), &[Poke::Tenant { tenant: "other".into() }]))
        .unwrap()
        .unwrap();
    site.run();
    site
}

fn landings(site: &Site) -> Vec<Landing> {
    records(site, "landing#").iter().map(|record| decode(record).unwrap()).collect()
}

/// Z6.4, C2: the gates of two tenants land in turn on one branch. What one tested on a branch that
/// the other moved meanwhile is tested again: each merge is onto the very tree that was tested on,
/// and makes the tested one.
#[test]
fn two_tenants_land_in_turn_on_one_branch_and_only_what_they_tested_there() {
    let mut moved = 0;
    for seed in 0..6 {
        let mut site = site_of_two(seed);
        site.twice = seed % 2 == 1;
        let ending = tell(&mut site);
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
            let landing = landings.iter().find(is_its).expect("a landing says so");
            assert_eq!(landing.tested.tree, commit.tree);
            if let Some(before) = tip.replace(commit.tree) {
                assert_eq!(landing.base.tree, before, "{change} was tested on what the branch was");
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
    assert!(moved > 0, "in none of the stories did one tenant move the branch under the other");
}

/// Z6.4, C2: a change that stands in the gates of two tenants is merged once. The one that comes
/// second finds it in the branch, in another state than its own, tests what the branch is, and asks
/// no person.
#[test]
fn a_change_that_another_tenants_gate_merged_stops_no_queue() {
    for seed in 0..6 {
        let mut site = site_of_two(seed);
        let first = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        let both = site.forge.propose("org/one", 2, "B", "", &[("b", "x")]);
        site.run();
        // In the one gate it stands behind another change, in the other alone.
        site.forge.approve(&first);
        site.take_in();
        site.forge.label(&both, "express", true);
        site.forge.approve(&both);
        site.take_in();
        site.run_checked(|site| {
            look(site);
            let is_frozen = |record: &Record| record.body.contains("until an operator has looked");
            assert!(!records(site, "queue#").iter().any(is_frozen), "a queue is frozen");
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
