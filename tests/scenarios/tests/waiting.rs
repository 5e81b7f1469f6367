//! What arrives while a tenant's configuration settles waits, and is not forgotten.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_model::build::BuildResult;
use sluice_model::poke::Queue;
use sluice_scenarios::Site;
use sluice_scenarios::sample::{BASE, COMMON, PIPELINES, cloud};

const MAIN: &str = "- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one, org/two]}}}\n";
const JOBS: &str = "- job: {name: unit, run: playbooks/unit.yaml}\n";
const PROJECT: &str = "- project: {check: {jobs: [unit]}, gate: {jobs: [unit]}}\n";

/// Returns a site at which a change of configuration is ordered to land.
fn settling() -> Site {
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT)];
    let config = [PIPELINES, BASE, JOBS, COMMON, &cloud(8)].concat();
    let config: &[(&str, &str)] = &[("zuul.yaml", &config)];
    let mut site =
        Site::new(5, MAIN, &[("org/config", config), ("org/one", project), ("org/two", project)], |_, _, _| {
            BuildResult::Success
        });
    let edited = format!("{PROJECT}# edited\n");
    let change = site.forge.propose("org/one", 1, "configuration", "", &[(".zuul.yaml", &edited)]);
    site.run();
    site.forge.approve(&change);
    site.run_until(|site| site.world.records().iter().any(|record| record.key.partition.starts_with("landing#")));
    site
}

/// Z6.1, C5: the queue of a new change holds nothing yet, so nobody pokes it when the layout is live.
#[test]
fn a_change_that_is_proposed_while_a_layout_settles_is_checked() {
    let mut site = settling();
    let change = site.forge.propose("org/two", 2, "meanwhile", "", &[("file", "2")]);
    site.take_in();
    site.handle(Queue::Gate);
    site.run();
    let ending = site.ending(&[], &[&change]);
    assert!(ending.buildsets.contains(&format!("{change} check SUCCESS")), "{ending:?}");
    assert_eq!(ending.left_over, Vec::<String>::new());
}

/// Z6.4, C5: the same for one that is approved, whichever of two gates sees what.
#[test]
fn a_change_that_is_approved_while_a_layout_settles_is_gated() {
    for twins in [false, true] {
        let mut site = settling();
        site.twins = twins;
        let change = site.forge.propose("org/one", 3, "meanwhile", "", &[("file", "3")]);
        site.forge.approve(&change);
        site.take_in();
        site.handle(Queue::Gate);
        site.run();
        let ending = site.ending(&[], &[&change]);
        assert!(ending.buildsets.contains(&format!("{change} gate SUCCESS")), "{ending:?}");
        assert_eq!(ending.left_over, Vec::<String>::new());
    }
}
