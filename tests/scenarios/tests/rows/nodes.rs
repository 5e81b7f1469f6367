//! Nodes in a cloud that other systems use as well.

use super::{CONFIG, MAIN, PROJECT, comments, judge, propose};
use sluice_runtime::Clock;
use sluice_scenarios::Site;
use sluice_scenarios::sample::{COMMON, cloud};

/// L4.2, Z1.9: machines of an older pool or of other users count against the cloud's quota, so a
/// request waits. The search for leaked machines never deletes them.
#[test]
fn foreign_machines_count_against_the_quota_and_are_never_deleted() {
    let jobs = CONFIG.replace(
        "- job: {name: unit, run: playbooks/unit.yaml}",
        "- job: {name: unit, run: playbooks/unit.yaml, nodeset: {nodes: [{name: n, label: small}]}}",
    );
    let config =
        format!("{jobs}{}{}", COMMON.replace("- queue: {name: integrated}\n", ""), cloud(8));
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    site.cloud.run_foreign("i-older-pool", "nodepool_provider_name", "main");
    site.cloud.run_foreign("i-foreign", "Name", "sluice main small");
    site.cloud.allow(3);
    site.held.insert("unit".to_owned());
    let changes = [propose(&site, 1, &[("a", "x")]), propose(&site, 2, &[("b", "x")])];
    site.run_until(|site| site.running().len() == 1);
    let begun = site.world.now();
    site.run_until(|site| site.world.now().since(begun) > 1_800_000);
    assert_eq!(
        (site.running().len(), site.cloud.running()),
        (1, 1),
        "half an hour of searches for leaks and of refused launches"
    );
    assert!(site.cloud.runs("i-older-pool") && site.cloud.runs("i-foreign"));
    site.held.clear();
    site.run();
    for change in &changes {
        assert!(comments(&site, change).contains("unit : SUCCESS"), "{}", comments(&site, change));
    }
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
    assert!(site.cloud.runs("i-older-pool") && site.cloud.runs("i-foreign"));
    assert_eq!(site.cloud.running(), 0);
}
