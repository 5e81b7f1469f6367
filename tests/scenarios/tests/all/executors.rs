//! Executors that die: what becomes of their builds and nodes.

use sluice_model::build::BuildResult;
use sluice_runtime::Clock as _;
use sluice_scenarios::Site;
use sluice_scenarios::sample;
use std::cell::Cell;

const PROJECT: &str = "
- job: {name: unit, run: playbooks/unit.yaml}
- project: {check: {jobs: [unit]}}
";

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
    let lost = |site: &Site| {
        site.world
            .records()
            .iter()
            .any(|r| r.key == sluice_records::build::stop_key(&build.as_str().into()))
    };
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
