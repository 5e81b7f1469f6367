//! Timer triggers: each tick fires once and enqueues an item for each branch.

use super::ref_updates::{branch, orders};
use super::{MAIN, judge};
use sluice_model::git::Oid;
use sluice_scenarios::Site;

const CONFIG: &str = r"
- pipeline:
    name: nightly
    manager: independent
    post-review: true
    trigger: {timer: [{time: 'TIME'}]}
- pipeline:
    name: pinned
    manager: independent
    trigger: {timer: [{time: '0 3 * * *', dereference: true}]}
- job: {name: base, parent: null}
- job: {name: build, run: playbooks/build.yaml}
- job: {name: only-main, branches: main, run: playbooks/main.yaml}
";

const DAY_SECONDS: u64 = 86_400;

pub fn site(time: &str, pipeline: &str) -> Site {
    let config = CONFIG.replace("TIME", time);
    let project = format!("- project: {{{pipeline}: {{jobs: [build, only-main]}}}}");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", &project)]),
        ("org/bare", &[("README", "nothing yet")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    site.forge.push(&branch("stable"), &[("a", "x")]);
    site.run();
    site
}

/// Returns each build as job, ref and the commit it tested.
fn builds(site: &Site) -> Vec<(String, String, Oid)> {
    let of = |(order, state): (sluice_model::build::Order, sluice_model::build::Speculation)| {
        let own =
            state.branches.iter().find(|state| state.branch.branch == order.change.branch).unwrap();
        (order.job.to_string(), order.change.github_ref(), own.result.id.clone())
    };
    let mut builds: Vec<_> = orders(site).into_iter().map(of).collect();
    builds.sort();
    builds
}

fn left_over(site: &Site) -> Vec<String> {
    site.ending(&["org/one"], &[]).left_over
}

/// R09
#[test]
fn a_timer_tests_the_tip_of_each_branch() {
    for twice in [false, true] {
        let mut site = site("0 2 * * *", "nightly");
        site.twice = twice;
        assert_eq!(builds(&site), []);
        site.pass(DAY_SECONDS);
        let (main, stable) = (site.forge.tip(&branch("main")), site.forge.tip(&branch("stable")));
        let row = |job: &str, name: &str, at: &Oid| {
            (job.to_owned(), format!("refs/heads/{name}"), at.clone())
        };
        assert_eq!(
            builds(&site),
            [
                row("build", "main", &main),
                row("build", "stable", &stable),
                row("only-main", "main", &main)
            ]
        );
        for (order, state) in orders(&site) {
            let moved = order.change.key.ref_move().unwrap();
            assert_eq!(
                (&moved.oldrev, &moved.newrev, order.change.key.number()),
                (&None, &None, None)
            );
            assert_eq!(state.changes.len(), 1);
        }
        site.pass(60);
        site.pass(60);
        assert_eq!(builds(&site).len(), 3, "a tick fires once, however often the timer runs");
        assert_eq!(left_over(&site), Vec::<String>::new());
    }
}

/// R09: the timer did not run for four days.
#[test]
fn missed_ticks_fire_once() {
    let mut site = site("0 2 * * *", "nightly");
    site.pass(4 * DAY_SECONDS);
    assert_eq!(builds(&site).len(), 3);
    site.pass(DAY_SECONDS);
    assert_eq!(builds(&site).len(), 6);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// R09: with `dereference` the tip at the tick is tested, and without it the tip when the item
/// starts.
#[test]
fn a_timer_with_dereference_resolves_branches_when_it_fires() {
    let mut site = site("0 2 * * *", "pinned");
    site.pass(DAY_SECONDS);
    let newrev: Vec<_> = orders(&site)
        .iter()
        .filter_map(|(order, _)| order.change.key.ref_move()?.newrev.clone())
        .collect();
    assert_eq!(newrev.len(), 3);
    assert!(newrev.contains(&site.forge.tip(&branch("stable"))));
}

/// R09, C5: a branch that the forge cannot resolve does not block the tick of the other branches.
#[test]
fn a_tick_skips_a_branch_that_cannot_be_resolved() {
    let mut site = site("0 2 * * *", "pinned");
    site.forge.lead_to_no_commit("org/one", "refs/heads/stable");
    site.pass(DAY_SECONDS);
    let refs: Vec<String> =
        orders(&site).iter().map(|(order, _)| order.change.github_ref()).collect();
    assert_eq!(refs, ["refs/heads/main", "refs/heads/main"]);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// R09: jitter delays each branch separately and skips none.
#[test]
fn jitter_only_delays() {
    let mut site = site("0 2 * * * 0 3600", "nightly");
    site.pass(DAY_SECONDS);
    site.pass(3_600);
    site.pass(60);
    assert_eq!(builds(&site).len(), 3);
    assert_eq!(left_over(&site), Vec::<String>::new());
}

/// R09, R01: a timer without a pipeline in the configuration does not fire.
#[test]
fn a_timer_that_is_removed_from_the_configuration_does_not_fire() {
    let mut site = site("0 2 * * *", "nightly");
    let config = sluice_model::git::BranchKey {
        project: sluice_model::ProjectName::new("forge.test", "org/config"),
        branch: "main".into(),
    };
    let manual = CONFIG
        .replace("    trigger: {timer: [{time: 'TIME'}]}\n", "")
        .replace("    trigger: {timer: [{time: '0 3 * * *', dereference: true}]}\n", "");
    site.forge.push(&config, &[("zuul.yaml", &manual)]);
    site.run();
    site.pass(DAY_SECONDS);
    site.pass(DAY_SECONDS);
    assert_eq!(builds(&site), []);
    let is_due = |record: &sluice_runtime::Record| {
        record.key.partition.starts_with("schedule#") && record.due.is_some()
    };
    assert!(!site.world.records().iter().any(is_due), "no schedule stays due");
}
