//! Bundles of two changes while functions die and calls fail: both members land or neither (Z6.5).

use sluice_memory::Fate;
use sluice_model::build::BuildResult;
use sluice_scenarios::repos::Tree;
use sluice_scenarios::sample::{self, PIPELINES};
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
    let mut site = sample::site(seed, &[PIPELINES, JOBS].concat(), project, judge);
    prepare(&mut site);
    let forge = site.forge.clone();
    let a = forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "A")],
    );
    let b = forge.propose(
        "org/two",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "B")],
    );
    let c = forge.propose(
        "org/one",
        3,
        "C",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("c", "C")],
    );
    sample::play(&mut site, &[&a, &b, &c])
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
    let every =
        std::env::var("SLUICE_STORY_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(13);
    let expected = undisturbed();
    let fates =
        [Fate::DiesAfter, Fate::DiesBefore, Fate::FailsAfter, Fate::FailsBefore, Fate::Throttled];
    let (mut missed, mut struck) = (0, 0);
    for (number, step) in (0_u64..100_000).step_by(every).enumerate() {
        let fate = fates[number % fates.len()];
        let world = std::cell::RefCell::new(None);
        let ending = run_scenario(step + 1, |site| {
            (site.twice, site.twins) = (number % 2 == 1, number % 4 >= 2);
            site.set_fate(step, fate);
            *world.borrow_mut() = Some(site.world.clone());
        });
        assert_eq!(ending, expected, "{fate:?} at call {step}");
        let has_struck = world.borrow().as_ref().is_some_and(|world| world.fates_left() == 0);
        (missed, struck) = if has_struck { (0, struck + 1) } else { (missed + 1, struck) };
        if missed >= 8 {
            break;
        }
    }
    assert!(struck * every > 200, "only {struck} fates took effect");
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
    let every =
        std::env::var("SLUICE_STORY_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(31);
    let expected = undisturbed_with_check();
    let fates =
        [Fate::DiesAfter, Fate::DiesBefore, Fate::FailsAfter, Fate::FailsBefore, Fate::Throttled];
    let (mut missed, mut struck) = (0, 0);
    for (number, step) in (0_u64..100_000).step_by(every).enumerate() {
        let fate = fates[number % fates.len()];
        let world = std::cell::RefCell::new(None);
        let ending = run_scenario_with(CHECKED, step + 1, |site| {
            (site.twice, site.twins) = (number % 2 == 1, number % 4 >= 2);
            site.set_fate(step, fate);
            *world.borrow_mut() = Some(site.world.clone());
        });
        assert_eq!(without_repeated_checks(ending), expected, "{fate:?} at call {step}");
        let has_struck = world.borrow().as_ref().is_some_and(|world| world.fates_left() == 0);
        (missed, struck) = if has_struck { (0, struck + 1) } else { (missed + 1, struck) };
        if missed >= 8 {
            break;
        }
    }
    assert!(struck * every > 200, "only {struck} fates took effect");
}
