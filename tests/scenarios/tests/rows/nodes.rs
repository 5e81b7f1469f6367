//! Nodes in a cloud that other systems use as well.

use super::{CONFIG, MAIN, PROJECT, comments, judge, propose};
use sluice_model::ProjectName;
use sluice_model::git::BranchKey;
use sluice_pool::{NodeRequest, PoolNode};
use sluice_records::codec::decode;
use sluice_runtime::Clock;
use sluice_scenarios::Site;
use sluice_scenarios::sample::{COMMON, cloud};

/// Returns the reasons of the node requests, in the order of their keys.
fn reasons(site: &Site) -> Vec<String> {
    let records = site.world.records();
    let requests = records.iter().filter(|record| record.key.sort.starts_with("request#"));
    requests.map(|record| decode::<NodeRequest>(record).unwrap().reason).collect()
}

/// Returns the nodes of all providers, in the order of their keys.
fn nodes(site: &Site) -> Vec<PoolNode> {
    let records = site.world.records();
    let nodes = records.iter().filter(|record| record.key.sort.starts_with("node#"));
    nodes.map(|record| decode(record).unwrap()).collect()
}

/// Z1.10, L3.1: a static host that shows another host key than the configured ones gets no build,
/// and its request says which key it shows. With the right key configured, the build runs.
#[test]
fn a_static_host_with_another_host_key_gets_no_build() {
    let config = |key: &str| {
        let job = "- job: {name: unit, run: playbooks/unit.yaml, nodeset: {nodes: [{name: n, label: metal}]}}";
        let jobs = CONFIG.replace("- job: {name: unit, run: playbooks/unit.yaml}", job);
        format!(
            "{jobs}
- label: {{name: metal}}
- section:
    name: rack
    connection: null
    nodes: [{{name: one.example.com, labels: [metal], host-key: {key}, username: zuul}}]
- provider: {{name: rack, section: rack, labels: [metal]}}
"
        )
    };
    let (wrong, right) = (config("ssh-ed25519 BBBB"), config("ssh-ed25519 AAAA"));
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &wrong)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let a = propose(&site, 1, &[("a", "x")]);
    site.run_until(|site| reasons(site).iter().any(|why| why.contains("given up")));
    let why = reasons(&site).concat();
    assert!(why.contains("it shows the host key ssh-ed25519 AAAA"), "{why}");
    let begun = site.world.now();
    site.run_until(|site| site.world.now().since(begun) > 300_000);
    assert!(comments(&site, &a).is_empty(), "it is never used: {}", comments(&site, &a));
    let main =
        BranchKey { project: ProjectName::new("forge.test", "org/config"), branch: "main".into() };
    site.forge.push(&main, &[("zuul.yaml", &right)]);
    site.run();
    assert!(comments(&site, &a).contains("unit : SUCCESS"), "{}", comments(&site, &a));
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

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
