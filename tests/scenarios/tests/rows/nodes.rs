//! Nodes in a cloud: beside the machines of other systems, and in several regions.

use super::unreadable_records::spoil;
use super::{CONFIG, MAIN, PROJECT, comments, graph, judge, merged, propose, unlinked};
use sluice_memory::poll_once;
use sluice_model::ProjectName;
use sluice_model::git::BranchKey;
use sluice_model::wakeup::Wakeup;
use sluice_pool::{NodeOrigin, NodeRequest, PoolNode};
use sluice_records::codec::decode;
use sluice_records::tenant;
use sluice_runtime::{Clock, cell, zone_builds};
use sluice_scenarios::Site;
use sluice_scenarios::sample::{COMMON, cloud};
use std::cell::Cell;

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

/// Z8.1: a job with a host asks no provider for nodes, although the tenant has a provider: its
/// build goes to the executors at once, beside one that does ask.
#[test]
fn a_job_with_a_host_asks_the_pool_for_nothing() {
    let hash = "4a:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b";
    let unit = "- job: {name: unit, run: playbooks/unit.yaml";
    let nodes = "nodeset: {nodes: [{name: n, label: metal}]}";
    let rack = "
- label: {name: metal}
- section: {name: rack, connection: null, nodes: [{name: one.example.com, labels: [metal], username: zuul}]}
- provider: {name: rack, section: rack, labels: [metal]}
";
    for (attributes, requested) in [
        (format!("{nodes}, host: deploy.example.com, fingerprint: '{hash}'"), 0),
        (nodes.to_owned(), 1),
    ] {
        let job = format!("{unit}, {attributes}}}");
        let config = CONFIG.replace(&format!("{unit}}}"), &job);
        assert_ne!(config, CONFIG);
        let config = format!("{config}{rack}");
        let repositories: &[(&str, &[(&str, &str)])] = &[
            ("org/config", &[("zuul.yaml", &config)]),
            ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
        ];
        let mut site = Site::new(7, MAIN, repositories, judge);
        let a = propose(&site, 1, &[("a", "x")]);
        let most = Cell::new(0);
        site.run_until(|site| {
            most.set(most.get().max(reasons(site).len()));
            !comments(site, &a).is_empty()
        });
        assert_eq!(most.get(), requested, "{attributes}");
    }
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
    assert!(unlinked(&comments(&site, &a)).contains("unit : SUCCESS"), "{}", comments(&site, &a));
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// Z7.6, L3.1: a build whose nodes' label has an `executor-zone` goes to no queue, but waits for an
/// executor of the zone, whether the provider sends it or, with a semaphore that is taken after the
/// nodes, the queue. Nothing else waits for it, and nothing is lost until there is such an executor.
#[test]
fn a_build_whose_nodes_are_in_a_zone_waits_for_an_executor_of_the_zone() {
    for semaphore in ["", ", semaphores: [{name: one, resources-first: true}]"] {
        let job = format!(
            "- job: {{name: unit, run: playbooks/unit.yaml, nodeset: {{nodes: [{{name: n, label: small}}]}}{semaphore}}}"
        );
        let jobs = CONFIG.replace("- job: {name: unit, run: playbooks/unit.yaml}", &job);
        let common = COMMON.replace("- queue: {name: integrated}\n", "");
        let cloud = cloud(8).replace("flavor: small}", "flavor: small, executor-zone: west}");
        assert!(cloud.contains("executor-zone"), "{cloud}");
        let config = format!("{jobs}{common}{cloud}- semaphore: {{name: one}}\n");
        let repositories: &[(&str, &[(&str, &str)])] = &[
            ("org/config", &[("zuul.yaml", &config)]),
            ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
        ];
        let mut site = Site::new(7, MAIN, repositories, judge);
        let a = propose(&site, 1, &[("a", "x")]);
        let waiting = |site: &Site| {
            poll_once(zone_builds::waiting(&site.ports(), &"west".into())).unwrap().unwrap()
        };
        site.run_until(|site| !waiting(site).is_empty());
        let begun = site.world.now();
        site.run_until(|site| site.world.now().since(begun) > 3_600_000);
        assert!(comments(&site, &a).is_empty() && site.running().is_empty());
        let builds = waiting(&site);
        assert_eq!(builds.len(), 1, "it is sent again, and waits once");
        let requests: Vec<NodeRequest> = site
            .world
            .records()
            .iter()
            .filter(|record| record.key.sort.starts_with("request#"))
            .map(|record| decode(record).unwrap())
            .collect();
        assert_eq!(requests[0].executor_zone, Some("west".into()));
        // As an executor of the zone does, which takes the wakeup from the table.
        let Ok(Wakeup::Build { build, precedence, tenant, request, nodes, .. }) =
            serde_json::from_str(&builds[0].body)
        else {
            panic!("{builds:?}")
        };
        let taken = Wakeup::Build { build, precedence, tenant, request, nodes, zone: None };
        poll_once(cell::send(&site.ports(), &[taken])).unwrap().unwrap();
        let keys = builds.into_iter().map(|build| build.key).collect();
        poll_once(zone_builds::remove(&site.ports(), keys)).unwrap().unwrap();
        site.run();
        let text = unlinked(&comments(&site, &a));
        assert!(text.contains("unit : SUCCESS"), "{semaphore}: {text}");
        assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
    }
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
        assert!(
            unlinked(&comments(&site, change)).contains("unit : SUCCESS"),
            "{}",
            comments(&site, change)
        );
    }
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
    assert!(site.cloud.runs("i-older-pool") && site.cloud.runs("i-foreign"));
    assert_eq!(site.cloud.running(), 0);
}

/// Two tenants that share the objects of org/pool, each with a config project of its own.
const SHARED_POOL: &str = "
- tenant: {name: demo, source: {github: {config-projects: [org/pool, org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {github: {config-projects: [org/pool, org/config2], untrusted-projects: [org/two]}}}
";

/// Returns a site of [`SHARED_POOL`] at rest, with these objects in its config projects, whose job
/// `unit` needs a node with the label `small`.
fn site_of_two_tenants(pool: &str, demo: &str, other: &str) -> Site {
    let jobs = CONFIG.replace(
        "- job: {name: unit, run: playbooks/unit.yaml}",
        "- job: {name: unit, run: playbooks/unit.yaml, nodeset: {nodes: [{name: n, label: small}]}}",
    );
    let (demo, other) = (format!("{jobs}{demo}"), format!("{jobs}{other}"));
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/pool", &[("zuul.yaml", pool)]),
        ("org/config", &[("zuul.yaml", &demo)]),
        ("org/config2", &[("zuul.yaml", &other)]),
        ("org/one", project),
        ("org/two", project),
    ];
    let mut site = Site::new(7, SHARED_POOL, repositories, judge);
    poll_once(cell::send(&site.ports(), &[Wakeup::Tenant { tenant: "other".into() }]))
        .unwrap()
        .unwrap();
    site.run();
    site
}

/// Runs one build of each tenant of [`SHARED_POOL`] at the same time, in a system with these
/// objects, and returns the names of their labels with the images and types of their machines.
fn machines_of_two_tenants(pool: &str, demo: &str, other: &str) -> Vec<[String; 3]> {
    let mut site = site_of_two_tenants(pool, demo, other);
    site.held.insert("unit".to_owned());
    let changes = [
        site.forge.propose("org/one", 1, "A", "", &[("a", "x")]),
        site.forge.propose("org/two", 2, "B", "", &[("b", "x")]),
    ];
    site.run_until(|site| site.running().len() == 2);
    let machine = |node: &PoolNode| match &node.origin {
        NodeOrigin::Cloud { image_id, flavor, .. } => {
            [node.label.to_string(), image_id.clone(), flavor.clone()]
        }
        NodeOrigin::Static { host, .. } => panic!("{host} is static"),
    };
    let mut machines: Vec<_> = nodes(&site).iter().map(machine).collect();
    machines.sort();
    site.held.clear();
    site.run();
    for change in &changes {
        assert!(
            unlinked(&comments(&site, change)).contains("unit : SUCCESS"),
            "{}",
            comments(&site, change)
        );
    }
    assert_eq!(site.cloud.running(), 0, "idle machines are deleted");
    machines
}

/// L3.4: tenants that share a provider and have labels of one short name get each its own label.
#[test]
fn each_tenant_of_a_shared_provider_gets_its_own_label() {
    let pool = "
- image: {name: debian, type: cloud, username: root}
- image: {name: fedora, type: cloud, username: root}
- flavor: {name: small}
- flavor: {name: large}
- section:
    name: here
    connection: ec2
    region: us-east-1
    quota: {instances: 8}
    images: [{name: debian, image-id: ami-1}, {name: fedora, image-id: ami-2}]
    flavors: [{name: small, instance-type: t3.small}, {name: large, instance-type: t3.large}]
- provider: {name: main, section: here, labels: [small]}
";
    let demo = "- label: {name: small, image: debian, flavor: small}\n";
    let other = "- label: {name: small, image: fedora, flavor: large}\n";
    let of = |project: &str, image: &str, flavor: &str| {
        [format!("forge.test/{project}/small"), image.to_owned(), flavor.to_owned()]
    };
    assert_eq!(
        machines_of_two_tenants(pool, demo, other),
        [of("org/config", "ami-1", "t3.small"), of("org/config2", "ami-2", "t3.large")]
    );
    assert_eq!(
        machines_of_two_tenants(pool, other, demo),
        [of("org/config", "ami-2", "t3.large"), of("org/config2", "ami-1", "t3.small")]
    );
}

/// L3.4: a label that tenants share is launched with the image that each tenant has by its name.
#[test]
fn a_shared_label_gets_the_image_of_each_tenant() {
    let pool = "
- flavor: {name: small}
- label: {name: small, image: base, flavor: small}
- section:
    name: here
    connection: ec2
    region: us-east-1
    quota: {instances: 8}
    flavors: [{name: small, instance-type: t3.small}]
- provider: {name: main, section: here, labels: [small]}
";
    let image = |id: &str| {
        format!("- image: {{name: base, type: cloud, username: root, image-id: {id}}}\n")
    };
    let of = |image: &str| {
        ["forge.test/org/pool/small".to_owned(), image.to_owned(), "t3.small".to_owned()]
    };
    assert_eq!(
        machines_of_two_tenants(pool, &image("ami-1"), &image("ami-2")),
        [of("ami-1"), of("ami-2")]
    );
}

/// Z1.10, L3.4: tenants that share a provider and have hosts with one label get each their own.
#[test]
fn each_tenant_of_a_shared_provider_gets_its_own_hosts() {
    let pool = "
- label: {name: small}
- provider: {name: main, section: rack}
";
    let rack = |host: &str| {
        format!(
            "- section: {{name: rack, connection: null, nodes: [{{name: {host}, labels: [small], username: zuul}}]}}\n"
        )
    };
    let mut site = site_of_two_tenants(pool, &rack("demo.example.com"), &rack("other.example.com"));
    site.held.insert("unit".to_owned());
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run_until(|site| site.running().len() == 1);
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run_until(|site| site.running().len() == 2);
    let records = site.world.records();
    let requests = records.iter().filter(|record| record.key.sort.starts_with("request#"));
    let nodes = nodes(&site);
    let host = |request: &NodeRequest| {
        let node = nodes.iter().find(|node| request.nodes().contains(&node.id)).unwrap();
        (request.queue.tenant.to_string(), node.endpoint().unwrap().0)
    };
    let mut hosts: Vec<_> = requests.map(|record| host(&decode(record).unwrap())).collect();
    hosts.sort();
    let of = |tenant: &str| (tenant.to_owned(), format!("{tenant}.example.com"));
    assert_eq!(hosts, [of("demo"), of("other")]);
    site.held.clear();
    site.run();
    for change in [&a, &b] {
        assert!(
            unlinked(&comments(&site, change)).contains("unit : SUCCESS"),
            "{}",
            comments(&site, change)
        );
    }
}

/// L3.4, L3.8: tenants that share a provider get machines in the region of each one's section.
#[test]
fn each_tenant_of_a_shared_provider_gets_machines_in_its_region() {
    let pool = "
- image: {name: debian, type: cloud, username: root}
- flavor: {name: small}
- label: {name: small, image: debian, flavor: small}
- provider: {name: main, section: here, labels: [small]}
";
    let section = |region: &str| {
        format!(
            "
- section:
    name: here
    connection: ec2
    region: {region}
    images: [{{name: debian, image-id: ami-1}}]
    flavors: [{{name: small, instance-type: t3.small}}]
"
        )
    };
    let mut site = site_of_two_tenants(pool, &section("us-east-1"), &section("eu-west-1"));
    site.held.insert("unit".to_owned());
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run_until(|site| site.running().len() == 1);
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run_until(|site| site.running().len() == 2);
    let records = site.world.records();
    let requests = records.iter().filter(|record| record.key.sort.starts_with("request#"));
    let nodes = nodes(&site);
    let region = |request: &NodeRequest| {
        let node = nodes.iter().find(|node| request.nodes().contains(&node.id)).unwrap();
        (request.queue.tenant.to_string(), node.region.clone().unwrap())
    };
    let mut regions: Vec<_> = requests.map(|record| region(&decode(record).unwrap())).collect();
    regions.sort();
    let of = |tenant: &str, region: &str| (tenant.to_owned(), region.to_owned());
    assert_eq!(regions, [of("demo", "us-east-1"), of("other", "eu-west-1")]);
    assert_eq!(site.cloud.regions(), ["eu-west-1", "us-east-1"]);
    site.held.clear();
    site.run();
    for change in [&a, &b] {
        assert!(
            unlinked(&comments(&site, change)).contains("unit : SUCCESS"),
            "{}",
            comments(&site, change)
        );
    }
    assert_eq!(site.cloud.running(), 0, "idle machines of both regions are deleted");
}

/// L3.4, Z1.6: a tenant whose section gives a shared provider another connection than it is in use
/// with gets no nodes, and the report says why. The other tenants are served as before.
#[test]
fn a_tenant_with_another_connection_of_a_shared_provider_is_refused() {
    let pool = "
- image: {name: debian, type: cloud, username: root}
- flavor: {name: small}
- label: {name: small, image: debian, flavor: small}
- provider: {name: main, section: here, labels: [small]}
";
    let demo = "
- section:
    name: here
    connection: ec2
    region: us-east-1
    images: [{name: debian, image-id: ami-1}]
    flavors: [{name: small, instance-type: t3.small}]
";
    let other = "- section: {name: here, connection: null, nodes: [{name: a.example.com, labels: [small], username: zuul}]}\n";
    let mut site = site_of_two_tenants(pool, demo, other);
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    site.run();
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run();
    let text = comments(&site, &b);
    assert!(text.contains("- [unit](") && text.contains(") : NODE_FAILURE"), "{text}");
    assert!(text.contains("has no connection in tenant other"), "{text}");
    let c = site.forge.propose("org/one", 3, "C", "", &[("c", "x")]);
    site.run();
    for change in [&a, &c] {
        assert!(
            unlinked(&comments(&site, change)).contains("unit : SUCCESS"),
            "{}",
            comments(&site, change)
        );
    }
}

/// Z1.9, L3.4: a provider that gets another connection deletes the machines of the former one, and
/// serves requests with the new one.
#[test]
fn a_provider_with_another_connection_deletes_its_former_machines_first() {
    let label = "label: {name: small, image: debian, flavor: small";
    let job = "- job: {name: unit, run: playbooks/unit.yaml";
    let needs = format!("{job}, nodeset: {{nodes: [{{name: n, label: small}}]}}");
    let jobs = CONFIG.replace(job, &needs);
    let common = COMMON.replace("- queue: {name: integrated}\n", "");
    let kept = cloud(8).replace(label, &format!("{label}, min-ready: 2"));
    let rack = "
- label: {name: small}
- section: {name: here, connection: null, nodes: [{name: a.example.com, labels: [small], username: zuul}]}
- provider: {name: main, section: here}
";
    let (before, after) = (format!("{jobs}{common}{kept}"), format!("{jobs}{common}{rack}"));
    // A site with nodes that are kept ready does not come to rest, so it begins without providers.
    let without = format!("{CONFIG}{common}");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &without)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let main =
        BranchKey { project: ProjectName::new("forge.test", "org/config"), branch: "main".into() };
    site.forge.push(&main, &[("zuul.yaml", &before)]);
    site.run_until(|site| site.cloud.running() == 2);
    site.forge.push(&main, &[("zuul.yaml", &after)]);
    site.run();
    assert_eq!((site.cloud.running(), nodes(&site).len()), (0, 0));
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    assert!(unlinked(&comments(&site, &a)).contains("unit : SUCCESS"), "{}", comments(&site, &a));
    assert_eq!(site.cloud.running(), 0);
}

/// L3.4, Z7: a tenant whose record cannot be read hinders no other tenant of its provider.
#[test]
fn an_unreadable_tenant_hinders_no_other_tenant_of_its_provider() {
    let pool =
        format!("- image: {{name: debian, type: cloud}}\n- flavor: {{name: small}}\n{}", cloud(8));
    let mut site = site_of_two_tenants(&pool, "", "");
    spoil(&site, |record| record.key == tenant::key(&"demo".into()));
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run_until(|site| unlinked(&comments(site, &b)).contains("unit : SUCCESS"));
}

/// Z1.11: a layout that goes live has its providers launch the nodes that their labels keep ready,
/// without any request. A later layout does so too, soon after the provider was planned for.
#[test]
fn a_live_layout_launches_the_nodes_that_its_labels_keep_ready() {
    let config = |min_ready: u32| {
        let label = "label: {name: small, image: debian, flavor: small";
        let kept = cloud(8).replace(label, &format!("{label}, min-ready: {min_ready}"));
        format!("{CONFIG}{}{kept}", COMMON.replace("- queue: {name: integrated}\n", ""))
    };
    let (two, three, none) = (config(2), config(3), config(0));
    // A site with nodes that are kept ready does not come to rest, so it begins without providers.
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", CONFIG)]), ("org/one", &[("shared", "0")])];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let are_ready = |site: &Site, count: usize| {
        let nodes = nodes(site);
        nodes.len() == count && nodes.iter().all(|node| node.state.as_str() == "ready")
    };
    let main =
        BranchKey { project: ProjectName::new("forge.test", "org/config"), branch: "main".into() };
    site.forge.push(&main, &[("zuul.yaml", &two)]);
    site.run_until(|site| are_ready(site, 2));
    let begun = site.world.now();
    site.forge.push(&main, &[("zuul.yaml", &three)]);
    site.run_until(|site| are_ready(site, 3));
    assert!(site.world.now().since(begun) < 30_000, "it does not wait for the next look");
    site.forge.push(&main, &[("zuul.yaml", &none)]);
    site.run();
    assert_eq!(site.cloud.running(), 0, "idle nodes that no label keeps are deleted");
}

/// Returns a site whose job `unit` has these nodes, with these objects in the config project.
fn site_with_nodes(nodes: &str, objects: &str) -> Site {
    let job =
        format!("- job: {{name: unit, run: playbooks/unit.yaml, nodeset: {{nodes: {nodes}}}}}");
    let jobs = CONFIG.replace("- job: {name: unit, run: playbooks/unit.yaml}", &job);
    let config = format!("{jobs}{objects}");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// L3.7, Z1.6: a cloud declines a label without a flavor, and the report says what to add. Another
/// provider that has the label with a flavor serves it.
#[test]
fn a_label_without_a_flavor_launches_nothing() {
    let objects = "
- image: {name: debian, type: cloud, username: root}
- flavor: {name: small}
- label: {name: small, image: debian}
- section: {name: here, connection: ec2, images: [{name: debian, image-id: ami-1}], flavors: [{name: small, instance-type: t3.small}]}
- provider: {name: main, section: here, labels: [small]}
";
    let nodes = "[{name: n, label: small}]";
    let mut site = site_with_nodes(nodes, objects);
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    let text = comments(&site, &a);
    assert!(text.contains("- [unit](") && text.contains(") : NODE_FAILURE"), "{text}");
    assert!(text.contains("label small has no flavor: add 'flavor' to the label"), "{text}");
    assert_eq!(site.cloud.requested_types(), Vec::<String>::new());
    let able = "- provider: {name: able, section: here, labels: [{name: small, flavor: small}]}\n";
    let mut site = site_with_nodes(nodes, &format!("{objects}{able}"));
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    assert!(unlinked(&comments(&site, &a)).contains("unit : SUCCESS"), "{}", comments(&site, &a));
    assert_eq!(site.cloud.requested_types(), ["t3.small"]);
}

/// Two providers with one label each.
const TWO_PROVIDERS: &str = "
- label: {name: big}
- label: {name: small}
- section: {name: one, connection: null, nodes: [{name: a.example.com, labels: [big], username: zuul}]}
- section: {name: two, connection: null, nodes: [{name: b.example.com, labels: [small], username: zuul}]}
- provider: {name: first, section: one, labels: [big]}
- provider: {name: second, section: two, labels: [small]}
";

/// L2.4, Z1.6: the report of a job whose labels lie at two providers says which label is where.
#[test]
fn a_job_whose_labels_lie_at_two_providers_says_so() {
    let mut site =
        site_with_nodes("[{name: a, label: big}, {name: b, label: small}]", TWO_PROVIDERS);
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    let text = comments(&site, &a);
    assert!(text.contains("- [unit](") && text.contains(") : NODE_FAILURE"), "{text}");
    let why = "no provider of the tenant offers all of big, small (big at first, small at second)";
    assert!(text.contains(why), "{text}");
}

/// L2.4, C12: the report on a change that proposes a nodeset whose labels lie at two providers warns
/// of it.
#[test]
fn the_report_on_a_proposed_nodeset_at_two_providers_warns_of_it() {
    let mut site = site_with_nodes("[{name: a, label: big}]", TWO_PROVIDERS);
    let nodeset =
        "- nodeset: {name: split, nodes: [{name: a, label: big}, {name: b, label: small}]}\n";
    let a = propose(&site, 1, &[(".zuul.yaml", &format!("{PROJECT}{nodeset}"))]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.run();
    let text = comments(&site, &a);
    assert!(unlinked(&text).contains("unit : SUCCESS"), "{text}");
    let why = "no provider of the tenant offers all of big, small (big at first, small at second)";
    assert!(text.contains("Warnings about the configuration:") && text.contains(why), "{text}");
    assert!(text.contains(".zuul.yaml line") && text.contains("nodeset split"), "{text}");
    assert!(!comments(&site, &b).contains("Warnings"), "{}", comments(&site, &b));
}

/// A job on a node of each of two labels, and a section for each label, in the given regions.
fn two_regions(near: &str, far: &str) -> String {
    let section = |name: &str, region: &str| {
        format!(
            "
- label: {{name: {name}, image: debian, flavor: {name}}}
- flavor: {{name: {name}}}
- section:
    name: {name}
    connection: ec2
    region: {region}
    images: [{{name: debian, image-id: ami-1}}]
    flavors: [{{name: {name}, instance-type: t3.{name}}}]
- provider: {{name: {name}, section: {name}, labels: [{name}]}}
- job: {{name: {name}, run: playbooks/{name}.yaml, nodeset: {{nodes: [{{name: n, label: {name}}}]}}}}
"
        )
    };
    let image = "- image: {name: debian, type: cloud, username: root}\n";
    format!("{image}{}{}", section("near", near), section("far", far))
}

/// L3.8: two sections of one connection are in two regions.
#[test]
fn nodes_are_launched_in_the_region_of_their_section() {
    let more = two_regions("us-east-1", "eu-west-1");
    let mut site = graph::site(&more, "[near, far]");
    site.held.extend(["near", "far"].map(str::to_owned));
    let change = propose(&site, 1, &[("a", "x")]);
    graph::enqueue(&mut site, &[&change]);
    // A site with builds on nodes does not come to rest.
    site.run_until(|site| site.running().len() == 2);
    assert_eq!(graph::running(&site), ["far", "near"]);
    assert_eq!(site.cloud.regions(), ["eu-west-1", "us-east-1"]);
    site.held.clear();
    site.run();
    assert_eq!((merged(&site), site.cloud.running()), (vec![1], 0));
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}

/// L3.8, Z1.9: the nodes of a section's former region stay known, and are terminated there.
#[test]
fn nodes_in_the_former_region_of_a_section_are_used_and_terminated_there() {
    let mut site = graph::site(&two_regions("us-east-1", "eu-west-1"), "[near, far]");
    site.held.extend(["near", "far"].map(str::to_owned));
    let first = propose(&site, 1, &[("a", "x")]);
    graph::enqueue(&mut site, &[&first]);
    site.run_until(|site| site.running().len() == 2);
    assert_eq!(site.cloud.regions(), ["eu-west-1", "us-east-1"]);
    let config = graph::config(&two_regions("us-east-1", "ap-south-1"));
    let branch =
        BranchKey { project: ProjectName::new("forge.test", "org/config"), branch: "main".into() };
    site.forge.push(&branch, &[("zuul.yaml", &config)]);
    let begun = site.world.now();
    site.run_until(|site| site.world.now().since(begun) > 1_800_000);
    assert_eq!(graph::running(&site), ["far", "near"], "its node was not taken for lost");
    assert_eq!(site.cloud.regions(), ["eu-west-1", "us-east-1"]);
    let second = propose(&site, 2, &[("b", "x")]);
    site.forge.approve(&second);
    site.run_until(|site| site.running().len() == 4);
    assert_eq!(
        site.cloud.regions(),
        ["ap-south-1", "eu-west-1", "us-east-1", "us-east-1"],
        "new nodes are launched in the new region"
    );
    site.held.clear();
    site.run();
    assert_eq!((merged(&site), site.cloud.running()), (vec![1, 2], 0));
    assert_eq!(site.ending(&["org/one"], &[]).left_over, Vec::<String>::new());
}
