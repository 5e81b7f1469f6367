//! The story of the demo, in memory: four changes of two projects through check and gate.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_memory::Fate;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_scenarios::repos::Tree;
use sluice_scenarios::sample::{self, BASE, COMMON, PIPELINES, cloud};
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

/// A test breaks where some project has a file that says so.
fn judge(job: &str, _: u32, files: &BTreeMap<String, Tree>) -> BuildResult {
    let broken = files.values().flat_map(BTreeMap::values).any(|text| text.contains("broken"));
    if broken && job == "unit" { BuildResult::Failure } else { BuildResult::Success }
}

struct Story {
    site: Site,
    changes: [ChangeKey; 4],
}

fn site(seed: u64) -> Site {
    sample::site(seed, &[PIPELINES, BASE, JOBS, COMMON, &cloud(8)].concat(), PROJECT, judge)
}

/// Proposes A, B (which needs A, in another repository), C (which breaks a test) and D, then
/// approves them all.
fn begin(seed: u64) -> Story {
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
    Story { site, changes: [a, b, c, d] }
}

fn tell(mut story: Story) -> Ending {
    sample::tell(&mut story.site, &story.changes.each_ref())
}

/// Z6.4, Z6.5, D01, G05
#[test]
fn a_and_b_land_in_order_c_is_thrown_out_and_d_lands_behind_them() {
    let ending = tell(begin(1));
    assert_eq!(ending.left_over, Vec::<String>::new());
    assert_eq!(ending.merged, ["org/one#1", "org/two#2", "org/two#4"]);
    let one: Vec<&str> = ending.branches["org/one"].keys().map(String::as_str).collect();
    assert_eq!(one, [".zuul.yaml", "README", "a"]);
    let two: Vec<&str> = ending.branches["org/two"].keys().map(String::as_str).collect();
    assert_eq!(two, [".zuul.yaml", "README", "b", "d"]);
    let (state, statuses, comments) = &ending.changes["org/one#3"];
    assert_eq!((state.as_str(), comments), ("Open", &2), "C is told by check and by gate");
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

/// Z6.4: whatever order messages come in, and however often, the end is the same.
#[test]
fn the_end_is_the_same_in_every_order_and_with_each_message_twice() {
    let plain = tell(begin(1));
    for seed in 2..12 {
        let mut story = begin(seed);
        story.site.twice = seed % 2 == 0;
        assert_eq!(told_alike(tell(story)), told_alike(plain.clone()), "seed {seed}");
    }
}

/// Z6.4: each message comes again when nothing else is left to do now, webhooks come in any order,
/// some when all else is at rest.
///
/// Approvals too are told in any order, for nothing that is compared depends on it. All four are
/// given before any is told, and the forge is read at each: B brings A in before itself, and when
/// A's own comes A is there, or merged. C fails wherever it stands, and what was behind it is
/// tested without it.
#[test]
fn the_end_is_the_same_with_each_message_twice_late_and_in_another_order() {
    let plain = told_alike(tell(begin(1)));
    for seed in 2..22 {
        let Story { mut site, changes } = begin(seed);
        (site.late, site.twice, site.twins) = (true, true, seed % 2 == 0);
        let ending = sample::tell(&mut site, &changes.each_ref());
        assert_eq!(told_alike(ending), plain, "seed {seed}");
        assert!(site.came_again() > 40, "seed {seed}: {} messages came again", site.came_again());
    }
}

/// C2: what an instance of a function remembers is made old by the other one, and does no harm.
#[test]
fn the_end_is_the_same_with_two_instances_of_each_function() {
    let plain = tell(begin(1));
    for seed in 2..22 {
        let mut story = begin(seed);
        (story.site.twins, story.site.twice) = (true, seed % 3 == 0);
        assert_eq!(told_alike(tell(story)), told_alike(plain.clone()), "seed {seed}");
    }
}

/// Returns an ending in which what is free is the same: queue order follows the order in which
/// approvals were handled. That a change lands after what it needs is not free.
fn told_alike(mut ending: Ending) -> Ending {
    let place = |change: &str| ending.merged.iter().position(|merged| merged == change);
    assert!(place("org/one#1") < place("org/two#2"), "B needs A: {:?}", ending.merged);
    ending.merged.sort();
    ending
}

/// Stories of one kind in a row that were over before their fate could strike, after which no later
/// call is to be found.
const SHORTER_MAX: u32 = 8;

/// Tells the story once for each call of it, with this fate for that call; another seed each time,
/// so that messages come in other orders too, every second time each message comes twice, and in
/// half of them two instances of each function take turns. In a quarter of them what comes twice
/// comes again late, and webhooks come late and in another order; these are the longer ones.
/// Stories differ in length: it ends where the longest of each kind has no call left. `every` thins
/// the calls out for an everyday run; with `SLUICE_STORY_EVERY=1` (`make sim`) it is every call.
fn stop_everywhere(fates: &[Fate], every: usize) {
    let every = std::env::var("SLUICE_STORY_EVERY")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(every);
    let story = begin(1);
    let world = story.site.world.clone();
    let first = world.steps();
    let expected = told_alike(tell(story));
    let steps = world.steps() - first;
    assert!(steps > 500, "the story takes {steps} calls");
    let (mut struck, mut shorter, mut last) = (0, [0_u32; 2], 0);
    for (number, step) in (0..10 * steps).step_by(every).enumerate() {
        // Where each message comes twice: once with two instances of each function, once with one.
        let is_late = matches!(number % 8, 3 | 5);
        let kind = usize::from(is_late);
        if shorter[kind] >= SHORTER_MAX {
            continue;
        }
        for fate in fates {
            let mut story = begin(step + 1);
            // By the number and not by the step, which may always be even.
            (story.site.twice, story.site.twins) = (number % 2 == 1, number % 4 >= 2);
            story.site.late = is_late;
            story.site.set_fate(step, *fate);
            let world = story.site.world.clone();
            let ending = told_alike(tell(story));
            assert_eq!(ending, expected, "{fate:?} at call {step}");
            if world.fates_left() == 0 {
                (struck, shorter[kind], last) = (struck + 1, 0, step);
            } else {
                shorter[kind] += 1;
            }
        }
        if shorter.iter().all(|shorter| *shorter >= SHORTER_MAX) {
            break;
        }
    }
    println!(
        "{fates:?}: {struck} struck, every {every} of up to {last} calls; a plain story takes {steps}"
    );
    assert!(last >= steps, "the story was not stopped after call {last} of {steps}");
}

/// C2, Z7.3: a function dies before a call has its effect.
#[test]
fn a_death_before_any_call_leads_to_the_same_end() {
    stop_everywhere(&[Fate::DiesBefore], 5);
}

/// C2, Z7.3: a function dies after a call had its effect and before it saw the answer.
#[test]
fn a_death_after_any_call_leads_to_the_same_end() {
    stop_everywhere(&[Fate::DiesAfter], 3);
}

/// C2: a call has its effect and its caller is told that it failed.
#[test]
fn a_lie_about_any_call_leads_to_the_same_end() {
    stop_everywhere(&[Fate::FailsAfter], 7);
}

/// C2: a call fails, or is throttled.
#[test]
fn a_failure_of_any_call_leads_to_the_same_end() {
    stop_everywhere(&[Fate::FailsBefore, Fate::Throttled], 23);
}
