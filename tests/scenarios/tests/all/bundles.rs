//! Bundles of two changes while functions die and calls fail: both members land or neither (Z6.5).

use sluice_model::build::BuildResult;
use sluice_scenarios::repos::Tree;
use sluice_scenarios::sample::{self, PIPELINES};
use sluice_scenarios::stops::{StopStory, Stops};
use sluice_scenarios::{Ending, Site};
use std::collections::BTreeMap;

const JOBS: &str = "
- job: {name: base, parent: null}
- job: {name: unit, run: playbooks/unit.yaml}
- job: {name: common, run: playbooks/common.yaml, deduplicate: true}
- queue: {name: integrated, allow-circular-dependencies: true}
";

const PROJECT: &str = "
- project:
    queue: integrated
    gate: {jobs: [unit, common]}
";

/// The same, tested before by a pipeline in which each change has a queue of its own.
const CHECKED: &str = "
- project:
    queue: integrated
    check: {jobs: [unit, common]}
    gate: {jobs: [unit, common]}
";

fn judge(_: &str, _: u32, _: &BTreeMap<String, Tree>) -> BuildResult {
    BuildResult::Success
}

/// Runs a scenario to the end: A and B depend on each other, and C depends on B.
fn run_scenario(seed: u64, prepare: impl FnOnce(&mut Site)) -> Ending {
    run_scenario_with(PROJECT, seed, prepare)
}

/// Runs the scenario with this project configuration.
fn run_scenario_with(project: &str, seed: u64, prepare: impl FnOnce(&mut Site)) -> Ending {
    let mut site = site(project, seed);
    prepare(&mut site);
    sample::play_all(&mut site)
}

/// Returns a site with this project configuration and the three changes.
fn site(project: &str, seed: u64) -> Site {
    let site = sample::site(seed, &[PIPELINES, JOBS].concat(), project, judge);
    let forge = &site.forge;
    let on = |project: &str, number: u64| {
        format!("Depends-On: https://forge.test/org/{project}/pull/{number}")
    };
    forge.propose("org/one", 1, "A", &on("two", 2), &[("a", "A")]);
    forge.propose("org/two", 2, "B", &on("one", 1), &[("b", "B")]);
    forge.propose("org/one", 3, "C", &on("two", 2), &[("c", "C")]);
    site
}

/// Returns the end of the undisturbed scenario.
fn undisturbed() -> Ending {
    let ending = run_scenario(1, |_| {});
    assert_eq!(ending.left_over, Vec::<String>::new());
    assert_eq!(ending.merged, ["org/one#1", "org/two#2", "org/one#3"]);
    ending
}

/// Z6.5, D10: the bundle lands as one and in order, for every order of messages, with redeliveries
/// and with two instances of each function.
#[test]
fn a_bundle_lands_as_one_in_every_order_of_messages() {
    let expected = undisturbed();
    for seed in 2..32 {
        let ending =
            run_scenario(seed, |site| (site.twice, site.twins) = (seed % 2 == 0, seed % 3 == 0));
        assert_eq!(ending, expected, "seed {seed}");
    }
}

/// Z6.5, C2: a partial landing is completed after a death, a failure or a false failure of any
/// call.
#[test]
fn a_bundle_lands_as_one_whatever_call_dies_or_fails() {
    let story = StopStory { set_up: || site(PROJECT, 1), play: sample::play_all };
    story.stop_everywhere(&Stops::of_all_kinds(13), &undisturbed());
}

/// Removes comments and buildsets, which depend on how often a late event has the changes checked
/// again.
fn without_repeated_checks(ending: Ending) -> Ending {
    let without_comments = |(key, (state, statuses, _))| (key, (state, statuses, 0));
    let changes = ending.changes.into_iter().map(without_comments).collect();
    Ending { changes, buildsets: Vec::new(), ..ending }
}

/// Returns the end of the undisturbed scenario with check, without repeated checks.
fn undisturbed_with_check() -> Ending {
    let ending = without_repeated_checks(run_scenario_with(CHECKED, 1, |_| {}));
    assert_eq!(ending.left_over, Vec::<String>::new());
    assert_eq!(ending.merged, ["org/one#1", "org/two#2", "org/one#3"]);
    for (change, (_, statuses, _)) in &ending.changes {
        assert_eq!(*statuses, ["demo/check success", "demo/gate success"], "{change}");
    }
    ending
}

/// Z6.5, D10, D15: check tests the bundle in a host queue, votes on each member and leaves no work
/// over, for every order of messages, with redeliveries and with two instances of each function.
#[test]
fn a_bundle_is_checked_as_one_in_every_order_of_messages() {
    let expected = undisturbed_with_check();
    for seed in 2..32 {
        let ending = run_scenario_with(CHECKED, seed, |site| {
            (site.twice, site.twins) = (seed % 2 == 0, seed % 3 == 0)
        });
        assert_eq!(without_repeated_checks(ending), expected, "seed {seed}");
    }
}

/// Z6.5, C2: the host queue and the residency record in the other queue stay consistent, whatever
/// call dies or fails.
#[test]
fn a_bundle_is_checked_as_one_whatever_call_dies_or_fails() {
    let story = StopStory {
        set_up: || site(CHECKED, 1),
        play: |site| without_repeated_checks(sample::play_all(site)),
    };
    story.stop_everywhere(&Stops::of_all_kinds(31), &undisturbed_with_check());
}
