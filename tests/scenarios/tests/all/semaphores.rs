//! Semaphores: whatever fails, two builds that share one never run at once, all builds run, and
//! every semaphore is released at the end.

use sluice_gate::Semaphore;
use sluice_memory::Fate;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_records::codec::decode;
use sluice_scenarios::Site;
use sluice_scenarios::repos::Tree;
use sluice_scenarios::sample;
use std::collections::BTreeMap;

const CONFIG: &str = r"
- pipeline:
    name: check
    manager: independent
    trigger:
      github: [{event: pull_request, action: [opened, changed, reopened]}]
    success: {github: {status: success}}
    failure: {github: {status: failure}}
- semaphore: {name: site, max: 1}
- job: {name: base, parent: null}
- job: {name: unit, run: playbooks/unit.yaml}
- job: {name: deploy, run: playbooks/deploy.yaml, semaphores: [site]}
- job: {name: publish, run: [{name: playbooks/publish.yaml, semaphores: [site]}]}
";

const PROJECT: &str = "
- project:
    check: {jobs: [unit, deploy, publish]}
";

fn judge(_: &str, _: u32, _: &BTreeMap<String, Tree>) -> BuildResult {
    BuildResult::Success
}

fn site(seed: u64) -> Site {
    sample::site(seed, CONFIG, PROJECT, judge)
}

fn semaphores(site: &Site) -> Vec<Semaphore> {
    let records = site.world.records().into_iter();
    records
        .filter(|record| record.key.partition.starts_with("semaphores#"))
        .map(|r| decode(&r).unwrap())
        .collect()
}

/// Proposes three changes and runs the site to the end; asserts at each step that at most one build
/// holds the semaphore.
fn run_to_end(site: &mut Site) -> Vec<String> {
    let changes: Vec<ChangeKey> = [("org/one", 1), ("org/two", 2), ("org/one", 3)]
        .map(|(project, number)| site.forge.propose(project, number, "a change", "", &[("a", "x")]))
        .into();
    site.run_checked(|site| {
        let running: Vec<String> = site.running().into_iter().filter(|job| job != "unit").collect();
        assert!(running.len() <= 1, "{running:?} run at once");
        assert!(semaphores(site).iter().all(|semaphore| semaphore.holders.len() <= 1));
    });
    site.sweep();
    site.sweep();
    assert!(semaphores(site).iter().all(Semaphore::is_unused), "{:?}", semaphores(site));
    site.ending(&[], &changes.iter().collect::<Vec<_>>()).buildsets
}

/// N16: jobs and playbooks with the same semaphore run one after the other, within a change and
/// across three changes.
#[test]
fn builds_that_share_a_semaphore_never_run_at_once_and_all_of_them_run() {
    for seed in 0..5 {
        let mut site = site(seed);
        site.twice = seed % 2 == 1;
        assert_eq!(
            run_to_end(&mut site),
            ["org/one#1 check SUCCESS", "org/one#3 check SUCCESS", "org/two#2 check SUCCESS"]
        );
        let builds = site.builds();
        assert_eq!(builds.iter().filter(|build| build.starts_with("check deploy")).count(), 3);
    }
}

/// N16, C2: the same when functions die or calls report false failures.
#[test]
fn a_semaphore_stays_exclusive_when_functions_die_or_calls_fail() {
    for step in (0..900).step_by(29) {
        for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsAfter] {
            let mut site = site(step + 1);
            site.set_fate(step, fate);
            let buildsets = run_to_end(&mut site);
            assert_eq!(buildsets.len(), 3, "{fate:?} at call {step}: {buildsets:?}");
        }
    }
}

/// N17: a change that is closed while its build holds the semaphore releases it.
#[test]
fn a_change_that_leaves_releases_its_semaphore() {
    let mut site = site(3);
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let holds =
        |site: &Site| semaphores(site).iter().any(|semaphore| !semaphore.holders.is_empty());
    site.run_until(|site| site.is_building() && holds(site));
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.forge.close(&a);
    site.take_in();
    site.run();
    assert!(semaphores(&site).iter().all(Semaphore::is_unused));
    assert!(site.ending(&[], &[&a, &b]).buildsets.contains(&"org/two#2 check SUCCESS".to_owned()));
}
