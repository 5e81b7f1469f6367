//! Executors that die: what becomes of their builds and nodes.

use sluice_executor::claim;
use sluice_memory::poll_once;
use sluice_model::Timestamp;
use sluice_model::build::{BuildResult, Phase, Run, RunEnd};
use sluice_records::build::run_key;
use sluice_records::codec::decode;
use sluice_runtime::Clock as _;
use sluice_scenarios::Site;
use sluice_scenarios::sample;
use std::cell::Cell;

const PROJECT: &str = "
- job: {name: unit, run: playbooks/unit.yaml}
- project: {check: {jobs: [unit]}}
";

/// Returns the end of a build's run; `None` while it has none.
fn end_of(site: &Site, build: &str) -> Option<RunEnd> {
    let record = site.world.record(&run_key(&build.into()))?;
    match decode::<Run>(&record).unwrap().phase {
        Phase::Ended(end) => Some(end),
        _ => None,
    }
}

/// Z7.3, Z7.6: a build that its queue has given up ends as RETRY in its record, and its executor,
/// which was only silent, cannot change that when it comes back.
#[test]
fn a_silent_executor_that_returns_reports_nothing_about_builds_that_were_given_up() {
    let mut site = sample::small(8, PROJECT, |_, _, _| BuildResult::Success);
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run_until(Site::is_building);
    let mut silent = site.fall_silent();
    site.run();
    assert_eq!(site.builds(), ["check unit 1"; 2]);
    let ports = site.ports();
    for claimed in &mut silent {
        let build = claimed.run.build.to_string();
        let given_up = end_of(&site, &build).expect("its queue has ended it");
        assert_eq!(given_up.result, BuildResult::Retry);
        let why = given_up.detail.clone().unwrap_or_default();
        assert!(why.starts_with("executor lost: played has been silent"), "{why}");
        let late = RunEnd {
            result: BuildResult::Success,
            ..RunEnd::of_lost_run(&claimed.run, String::new(), Timestamp(1))
        };
        poll_once(claim::end(&ports, claimed, late)).expect("it ends").unwrap();
        assert_eq!(end_of(&site, &build), Some(given_up));
    }
}

/// Z7.3, Z1.7: the nodes of a build are released as soon as the death of its executor is detected,
/// without a further timeout.
#[test]
fn the_nodes_of_a_lost_build_are_released_at_once() {
    let mut site = sample::small(8, PROJECT, |_, _, _| BuildResult::Success);
    site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let running = |site: &Site| {
        let records = site.world.records();
        let runs = records
            .iter()
            .filter(|record| record.key.sort == "run")
            .map(|record| record.key.partition.clone());
        runs.map(|build| build.trim_start_matches("build#").to_owned()).collect::<Vec<String>>()
    };
    // A node names the request it is for, whose row ends with the build.
    let holds = |site: &Site, build: &str| {
        let records = site.world.records();
        records
            .iter()
            .any(|record| record.key.sort.starts_with("node#") && record.body.contains(&build[..8]))
    };
    site.run_until(|site| {
        site.is_building() && running(site).iter().any(|build| holds(site, build))
    });
    let build = running(&site)
        .into_iter()
        .find(|build| holds(&site, build))
        .expect("a build with nodes runs");
    site.die();
    let lost = |site: &Site| end_of(site, &build).is_some();
    let (lost_at, held_until) = (Cell::new(None), Cell::new(None));
    site.run_checked(|site| {
        if lost_at.get().is_none() && lost(site) {
            lost_at.set(Some(site.world.now()));
        }
        if holds(site, &build) {
            held_until.set(Some(site.world.now()));
        }
    });
    let (lost_at, held_until) = (lost_at.get().expect("it is lost"), held_until.get().unwrap());
    // The provider looks at its builds once a minute.
    let seconds = held_until.since(lost_at).div_ceil(1_000);
    assert!(seconds <= 60, "its nodes were held for {seconds} s more");
    assert_eq!(site.builds(), ["check unit 1"; 2], "the lost build was run again");
}
