//! Two changes that need each other, with everything dying and failing around them: they land
//! whole, whatever happens (Z6.5).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

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

/// Tells of A and B, which need each other, and of C behind them, from the webhooks to the end.
fn tell(seed: u64, prepare: impl FnOnce(&mut Site)) -> Ending {
    tell_of(PROJECT, seed, prepare)
}

/// The same of projects with this configuration.
fn tell_of(project: &str, seed: u64, prepare: impl FnOnce(&mut Site)) -> Ending {
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
    sample::tell(&mut site, &[&a, &b, &c])
}

fn whole() -> Ending {
    let ending = tell(1, |_| {});
    assert_eq!(ending.left_over, Vec::<String>::new());
    assert_eq!(ending.merged, ["org/one#1", "org/two#2", "org/one#3"]);
    ending
}

/// Z6.5, D10: in every order, each message twice, and with two instances of each function, they
/// land whole and in their order.
#[test]
fn a_cycle_lands_whole_in_every_order_of_messages() {
    let expected = whole();
    for seed in 2..32 {
        let ending = tell(seed, |site| (site.twice, site.twins) = (seed % 2 == 0, seed % 3 == 0));
        assert_eq!(ending, expected, "seed {seed}");
    }
}

/// Z6.5, C2: a partial landing is finished after any death, lie or failure, at whatever call.
#[test]
fn a_cycle_lands_whole_whatever_call_dies_or_fails() {
    let every =
        std::env::var("SLUICE_STORY_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(7);
    let expected = whole();
    let fates =
        [Fate::DiesAfter, Fate::DiesBefore, Fate::FailsAfter, Fate::FailsBefore, Fate::Throttled];
    let (mut missed, mut struck) = (0, 0);
    for (number, step) in (0_u64..100_000).step_by(every).enumerate() {
        let fate = fates[number % fates.len()];
        let world = std::cell::RefCell::new(None);
        let ending = tell(step + 1, |site| {
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
    assert!(struck * every > 200, "{struck} calls were stopped at");
}

/// Returns what is the same however often check was asked for them: an event that comes late has
/// them tested once more.
fn as_checked(ending: Ending) -> Ending {
    let without_comments = |(key, (state, statuses, _))| (key, (state, statuses, 0));
    let changes = ending.changes.into_iter().map(without_comments).collect();
    Ending { changes, buildsets: Vec::new(), ..ending }
}

fn whole_and_checked() -> Ending {
    let ending = as_checked(tell_of(CHECKED, 1, |_| {}));
    assert_eq!(ending.left_over, Vec::<String>::new());
    assert_eq!(ending.merged, ["org/one#1", "org/two#2", "org/one#3"]);
    for (change, (_, statuses, _)) in &ending.changes {
        assert_eq!(*statuses, ["demo/check success", "demo/gate success"], "{change}");
    }
    ending
}

/// Z6.5, D10, D15: check, where they stand as one in the queue of one of them, leaves nothing
/// behind and votes for each, in every order of messages, each of them twice, and with two
/// instances of each function.
#[test]
fn a_cycle_is_checked_as_one_in_every_order_of_messages() {
    let expected = whole_and_checked();
    for seed in 2..32 {
        let ending = tell_of(CHECKED, seed, |site| {
            (site.twice, site.twins) = (seed % 2 == 0, seed % 3 == 0)
        });
        assert_eq!(as_checked(ending), expected, "seed {seed}");
    }
}

/// Z6.5, C2: what stands in one queue and is written down in another is never half so, whatever
/// call dies or fails.
#[test]
fn a_cycle_is_checked_as_one_whatever_call_dies_or_fails() {
    let every =
        std::env::var("SLUICE_STORY_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(19);
    let expected = whole_and_checked();
    let fates =
        [Fate::DiesAfter, Fate::DiesBefore, Fate::FailsAfter, Fate::FailsBefore, Fate::Throttled];
    let (mut missed, mut struck) = (0, 0);
    for (number, step) in (0_u64..100_000).step_by(every).enumerate() {
        let fate = fates[number % fates.len()];
        let world = std::cell::RefCell::new(None);
        let ending = tell_of(CHECKED, step + 1, |site| {
            (site.twice, site.twins) = (number % 2 == 1, number % 4 >= 2);
            site.set_fate(step, fate);
            *world.borrow_mut() = Some(site.world.clone());
        });
        assert_eq!(as_checked(ending), expected, "{fate:?} at call {step}");
        let has_struck = world.borrow().as_ref().is_some_and(|world| world.fates_left() == 0);
        (missed, struck) = if has_struck { (0, struck + 1) } else { (missed + 1, struck) };
        if missed >= 8 {
            break;
        }
    }
    assert!(struck * every > 200, "{struck} calls were stopped at");
}
