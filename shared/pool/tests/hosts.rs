//! Static hosts: whose they are, and which of them a request gets.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(missing_docs, dead_code, reason = "each test program uses a part of it")]
mod common;

use common::{World, host, hosts, label, limits, request};
use sluice_pool::*;
use std::sync::Arc;

/// Returns a provider without machines, with these static hosts of the tenant `one`.
fn rack(of_one: &[StaticHost]) -> ProviderLimits {
    ProviderLimits { static_hosts: hosts(of_one), ..ProviderLimits::retired("rack".into()) }
}

/// Returns a request of the tenant `two`.
fn of_two(sequence: u64, labels: &[&str]) -> NodeRequest {
    let mut request = request(sequence, labels);
    request.queue.tenant = "two".into();
    request
}

/// Returns the addresses of the hosts that are lent to a build, with the users to log in as.
fn lent_to(world: &World, sequence: u64) -> Vec<(String, String)> {
    let build = format!("build-{sequence}");
    let is_lent = |node: &&PoolNode| {
        node.allocated_to.as_ref().is_some_and(|given| given.build.as_str() == build)
    };
    let nodes = world.cell.nodes.iter().filter(is_lent);
    let mut all: Vec<_> =
        nodes.map(|node| (node.endpoint().unwrap().0, node.username.clone())).collect();
    all.sort();
    all
}

/// Plans, and answers the check of each host, until nothing more is asked for. The hosts in
/// `wrong` fail. Returns the addresses in the order of the checks.
fn check_all(world: &mut World, wrong: &[&str]) -> Vec<String> {
    let mut asked = Vec::new();
    for _ in 0..50 {
        let plan = world.step();
        if plan.is_empty() {
            return asked;
        }
        for action in std::mem::take(&mut world.actions) {
            let node = match action {
                PoolAction::Check(node) => node,
                other => panic!("{other:?}"),
            };
            let address = node.endpoint().unwrap().0;
            let fact = match wrong.contains(&address.as_str()) {
                true => CheckFact::Failed(format!("{address} shows another key")),
                false => CheckFact::Passed { host_keys: Vec::new() },
            };
            asked.push(address);
            world.cell.facts.checks.insert(node.id.clone(), fact);
        }
    }
    panic!("it asks without end: {asked:?}");
}

/// Z1.10, L3.4: a host is lent to requests of the tenants that have it, although another tenant
/// has a host with the same label. Of a host that both have, each gets its own description.
#[test]
fn a_host_is_lent_to_its_own_tenant_only() {
    let mut limits = rack(&[host("evil.test", &["metal"]), host("both.test", &["big"])]);
    let own = StaticHost { username: "two".into(), ..host("both.test", &["big"]) };
    let of_two_hosts = vec![host("two.test", &["metal"]), own];
    limits.static_hosts.insert("two".into(), Arc::new(of_two_hosts));
    let mut world = World::new(limits);
    world.cell.requests = vec![of_two(1, &["metal"]), request(2, &["metal"]), of_two(3, &["big"])];
    check_all(&mut world, &[]);
    let at = |address: &str, user: &str| vec![(address.to_owned(), user.to_owned())];
    assert_eq!(
        [1, 2, 3].map(|build| lent_to(&world, build)),
        [at("two.test", "zuul"), at("evil.test", "zuul"), at("both.test", "two")]
    );
    world.cell.limits.static_hosts.remove(&"two".into());
    world.cell.requests.push(of_two(4, &["metal"]));
    check_all(&mut world, &[]);
    assert_eq!(world.state(4), "failed: label metal is unknown at rack");
}

/// Z1.10: a machine that two tenants have as a host, or one tenant by two entries, is lent to one
/// build at a time.
#[test]
fn a_machine_that_two_tenants_have_is_one_machine() {
    let mut limits = rack(&[host("both.test", &["metal"]), host("both.test", &["big"])]);
    limits.static_hosts.insert("two".into(), Arc::new(vec![host("Both.test", &["metal"])]));
    let mut world = World::new(limits);
    world.cell.requests = vec![request(1, &["big", "metal"]), request(2, &["big"])];
    check_all(&mut world, &[]);
    assert_eq!(
        [world.state(1).as_str(), world.state(2).as_str()],
        ["failed: 2 static hosts are more than the provider has", "fulfilled 1"]
    );
    world.cell.requests.push(of_two(3, &["metal"]));
    check_all(&mut world, &[]);
    assert_eq!(world.state(3), "requested");
    assert_eq!(world.cell.requests[2].reason, "its static hosts are in use");
    world.build(2, BuildFact::Ended);
    check_all(&mut world, &[]);
    assert_eq!(world.state(3), "fulfilled 1");
}

/// Z1.10, Z1.6: hosts that fail their check do not keep a request from another free host, which is
/// tried at once.
#[test]
fn a_host_that_fails_its_check_hinders_no_other_host() {
    let all = ["a.test", "b.test", "c.test"].map(|address| host(address, &["metal"]));
    let mut world = World::new(rack(&all));
    world.cell.requests = vec![request(1, &["metal"])];
    let asked = check_all(&mut world, &["a.test", "b.test"]);
    assert_eq!(asked, ["a.test", "b.test", "c.test"]);
    assert_eq!((world.state(1), lent_to(&world, 1).len()), ("fulfilled 1".to_owned(), 1));
}

/// Z1.10, Z1.6: once all hosts have failed, or those that have not are in use, the request waits
/// between two checks, and asks the host that failed first.
#[test]
fn a_request_that_all_hosts_failed_waits_between_checks() {
    let all = ["a.test", "b.test"].map(|address| host(address, &["metal"]));
    let mut world = World::new(rack(&all));
    world.cell.requests = vec![request(1, &["metal"])];
    let wrong = ["a.test", "b.test"];
    assert_eq!(check_all(&mut world, &wrong), ["a.test", "b.test"]);
    let request_1 = &world.cell.requests[0];
    assert_eq!(request_1.not_before, world.now.plus_seconds(15));
    assert_eq!(request_1.reason, "its placement was given up: b.test shows another key");
    for next in ["a.test", "b.test", "a.test"] {
        world.now = world.now.plus_seconds(15);
        assert_eq!(check_all(&mut world, &wrong), [next]);
    }
    // The other host is in use: the one that failed is asked now and then.
    world.cell.requests = vec![request(2, &["metal"]), request(3, &["metal"])];
    let mut asked = check_all(&mut world, &["b.test"]);
    asked.sort();
    assert_eq!(asked, ["a.test", "b.test"]);
    assert_eq!([world.state(2), world.state(3)], ["fulfilled 1", "requested"]);
    world.now = world.now.plus_seconds(15);
    assert_eq!(check_all(&mut world, &["b.test"]), ["b.test"]);
    world.build(2, BuildFact::Ended);
    world.now = world.now.plus_seconds(15);
    assert_eq!(check_all(&mut world, &["b.test"]), ["a.test"]);
    assert_eq!(world.state(3), "fulfilled 1");
}

/// L3.4, Z1.6: requests of a tenant that is refused fail with the reason, and those of other tenants
/// are placed.
#[test]
fn requests_of_a_refused_tenant_fail_with_the_reason() {
    let mut world = World::new(limits(8));
    let why = "its section has another connection".to_owned();
    world.cell.limits.refused_tenants.insert("two".into(), why);
    world.cell.requests = vec![of_two(1, &["small"]), request(2, &["small"])];
    world.settle();
    assert_eq!(
        [world.state(1).as_str(), world.state(2).as_str()],
        ["failed: its section has another connection", "fulfilled 1"]
    );
}

/// L3.4, Z7: a label that tenants share is not launched as another tenant has it while the
/// configuration of the request's tenant cannot be read.
#[test]
fn a_shared_label_of_an_unreadable_tenant_is_not_launched() {
    let mut world = World::new(limits(8));
    world.cell.limits.unread_tenants = ["two".into()].into();
    world.cell.requests = vec![of_two(1, &["small"]), request(2, &["small"])];
    world.settle();
    assert_eq!([world.state(1), world.state(2)], ["requested", "fulfilled 1"]);
}

/// Z1.9, L3.4: while a provider waits, it places nothing and deletes the nodes that no label needs.
#[test]
fn a_provider_that_waits_deletes_its_free_nodes() {
    let mut before = limits(8);
    before.labels.insert("small".into(), label(2));
    let mut world = World::new(before);
    world.settle();
    assert_eq!(world.alive(), 2);
    world.cell.limits.labels.clear();
    world.cell.limits.waits = Some("it moves".to_owned());
    world.cell.requests = vec![request(1, &["small"])];
    world.settle();
    assert_eq!((world.state(1).as_str(), world.alive()), ("requested", 0));
    assert_eq!(world.cell.requests[0].reason, "it moves");
}
