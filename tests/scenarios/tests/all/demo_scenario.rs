//! The scenario of the demo, in memory: four changes of two projects through check and gate.

use sluice_memory::Fate;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_scenarios::repos::Tree;
use sluice_scenarios::sample::{self, BASE, COMMON, PIPELINES, cloud};
use sluice_scenarios::stops::{Deliveries, StopStory, Stops};
use sluice_scenarios::{Ending, Site};
use std::collections::BTreeMap;

const JOBS: &str = "
- job:
    name: unit
    run: playbooks/unit.yaml
- job:
    name: cluster
    run: playbooks/cluster.yaml
    nodeset:
      nodes: [{name: one, label: small}, {name: two, label: small}]
";

const PROJECT: &str = "
- project:
    queue: integrated
    check:
      jobs: [unit, cluster]
    gate:
      jobs: [unit, cluster]
";

/// Fails `unit` if a file in the tested state contains `broken`.
fn judge(job: &str, _: u32, files: &BTreeMap<String, Tree>) -> BuildResult {
    let broken = files.values().flat_map(BTreeMap::values).any(|text| text.contains("broken"));
    if broken && job == "unit" { BuildResult::Failure } else { BuildResult::Success }
}

/// A site with the four changes of the scenario.
struct Scenario {
    site: Site,
    changes: [ChangeKey; 4],
}

fn site(seed: u64) -> Site {
    sample::site(seed, &[PIPELINES, BASE, JOBS, COMMON, &cloud(8)].concat(), PROJECT, judge)
}

/// Proposes A, B (which needs A, in another repository), C (which breaks a test) and D, then
/// approves them all.
fn begin(seed: u64) -> Scenario {
    let site = site(seed);
    let forge = site.forge.clone();
    let a = forge.propose("org/one", 1, "A", "", &[("a", "A")]);
    let b = forge.propose(
        "org/two",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "B")],
    );
    let c = forge.propose("org/one", 3, "C", "", &[("c", "broken")]);
    let d = forge.propose("org/two", 4, "D", "", &[("d", "D")]);
    Scenario { site, changes: [a, b, c, d] }
}

/// Runs the scenario to the end.
fn run_to_end(mut scenario: Scenario) -> Ending {
    sample::play(&mut scenario.site, &scenario.changes.each_ref())
}

/// Z6.4, Z6.5, D01, G05
#[test]
fn a_and_b_land_in_order_c_is_dequeued_and_d_lands_behind_them() {
    let ending = run_to_end(begin(1));
    assert_eq!(ending.left_over, Vec::<String>::new());
    assert_eq!(ending.merged, ["org/one#1", "org/two#2", "org/two#4"]);
    let one: Vec<&str> = ending.branches["org/one"].keys().map(String::as_str).collect();
    assert_eq!(one, [".zuul.yaml", "README", "a"]);
    let two: Vec<&str> = ending.branches["org/two"].keys().map(String::as_str).collect();
    assert_eq!(two, [".zuul.yaml", "README", "b", "d"]);
    let (state, statuses, comments) = &ending.changes["org/one#3"];
    assert_eq!((state.as_str(), comments), ("Open", &2), "check and gate comment on C");
    assert_eq!(statuses, &["demo/check failure", "demo/gate failure"]);
    for landed in ["org/one#1", "org/two#2", "org/two#4"] {
        assert_eq!(
            ending.changes[landed].1,
            ["demo/check success", "demo/gate success"],
            "{landed}"
        );
    }
    assert_eq!(
        ending.buildsets,
        [
            "org/one#1 check SUCCESS",
            "org/one#1 gate SUCCESS",
            "org/one#3 check FAILURE",
            "org/one#3 gate FAILURE",
            "org/two#2 check SUCCESS",
            "org/two#2 gate SUCCESS",
            "org/two#4 check SUCCESS",
            "org/two#4 gate SUCCESS",
        ]
    );
}

/// Z6.4: order and redelivery of messages do not change the end.
#[test]
fn the_end_is_the_same_in_every_order_and_with_each_message_twice() {
    let plain = run_to_end(begin(1));
    for seed in 2..12 {
        let mut scenario = begin(seed);
        scenario.site.twice = seed % 2 == 0;
        assert_eq!(
            without_order(run_to_end(scenario)),
            without_order(plain.clone()),
            "seed {seed}"
        );
    }
}

/// Z6.4: each message is redelivered when the site is idle, and webhooks arrive in any order, some
/// of them late.
///
/// Approvals arrive in any order as well, because the compared end does not depend on it. All four
/// are given before the first webhook arrives, and the forge is read at each: the approval of B
/// enqueues A ahead of B, so A is queued or merged when its own approval arrives. C fails at any
/// position, and the changes behind it are tested without it.
#[test]
fn the_end_is_the_same_with_each_message_twice_late_and_in_another_order() {
    let plain = without_order(run_to_end(begin(1)));
    for seed in 2..22 {
        let Scenario { mut site, changes } = begin(seed);
        (site.delays_delivery, site.twice, site.twins) = (true, true, seed % 2 == 0);
        let ending = sample::play(&mut site, &changes.each_ref());
        assert_eq!(without_order(ending), plain, "seed {seed}");
        assert!(
            site.redeliveries() > 40,
            "seed {seed}: {} messages came again",
            site.redeliveries()
        );
    }
}

/// C2: two instances of a function make each other's caches stale, without harm.
#[test]
fn the_end_is_the_same_with_two_instances_of_each_function() {
    let plain = run_to_end(begin(1));
    for seed in 2..22 {
        let mut scenario = begin(seed);
        (scenario.site.twins, scenario.site.twice) = (true, seed % 3 == 0);
        assert_eq!(
            without_order(run_to_end(scenario)),
            without_order(plain.clone()),
            "seed {seed}"
        );
    }
}

/// Sorts the merges of an ending, because the queue order follows the order in which approvals were
/// handled. Asserts that A landed before B, which depends on it.
fn without_order(mut ending: Ending) -> Ending {
    let position = |change: &str| ending.merged.iter().position(|merged| merged == change);
    assert!(position("org/one#1") < position("org/two#2"), "B needs A: {:?}", ending.merged);
    ending.merged.sort();
    ending
}

/// The scenario as a story that is stopped at its calls.
const STORY: StopStory<Ending> =
    StopStory { set_up: || begin(1).site, play: |site| without_order(sample::play_all(site)) };

/// Has every nth call of the scenario fail with one of these fates, and compares the end.
fn stop_everywhere(fates: &[Fate], every: usize) {
    let expected = without_order(run_to_end(begin(1)));
    let stops = Stops { fates, every, deliveries: Deliveries::SometimesLate };
    STORY.stop_everywhere(&stops, &expected);
}

/// C2, Z7.3: a function dies before a call has its effect.
#[test]
fn a_death_before_any_call_leads_to_the_same_end() {
    stop_everywhere(&[Fate::DiesBefore], 11);
}

/// C2, Z7.3: a function dies after a call had its effect and before it saw the answer.
#[test]
fn a_death_after_any_call_leads_to_the_same_end() {
    stop_everywhere(&[Fate::DiesAfter], 7);
}

/// C2: a call has its effect but reports a failure to its caller.
#[test]
fn a_false_failure_of_any_call_leads_to_the_same_end() {
    stop_everywhere(&[Fate::FailsAfter], 17);
}

/// C2: a call fails, or is throttled.
#[test]
fn a_failure_of_any_call_leads_to_the_same_end() {
    stop_everywhere(&[Fate::FailsBefore], 47);
    stop_everywhere(&[Fate::Throttled], 47);
}
