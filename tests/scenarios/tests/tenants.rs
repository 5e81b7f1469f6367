//! Tenants that come and go with the main configuration, and projects of theirs that nobody can read.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use bytes::Bytes;
use sluice_memory::poll_once;
use sluice_model::TenantName;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::poke::{Poke, Queue};
use sluice_records::codec::decode;
use sluice_records::connection;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::cell;
use sluice_runtime::object::PutMode;
use sluice_scenarios::Site;

const CONFIG: &str = r"
- pipeline:
    name: gate
    manager: dependent
    post-review: true
    trigger:
      github: [{event: pull_request_review, action: submitted, state: approved}]
    success: {github: {status: success, merge: true}}
    failure: {github: {status: failure}}
    dequeue: {github: {comment: true}}
- job: {name: base, parent: null}
- job: {name: unit, run: playbooks/unit.yaml}
- project: {name: org/one, gate: {jobs: [unit]}}
";

fn main_of(tenants: &[&str]) -> String {
    let one = |name: &&str| {
        format!(
            "- tenant: {{name: {name}, source: {{github: {{config-projects: [org/config], untrusted-projects: [org/one, org/missing]}}}}}}\n"
        )
    };
    tenants.iter().map(one).collect()
}

fn site() -> Site {
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", CONFIG)]), ("org/one", &[("file", "0")])];
    Site::new(7, &main_of(&["demo"]), repositories, |_, _, _| BuildResult::Success)
}

/// Stores another main configuration, as `sluice tenant load` does, and pokes these tenants.
fn load(site: &Site, tenants: &[&str], poked: &[&str]) {
    let ports = site.ports();
    let text = Bytes::from(main_of(tenants));
    poll_once(ports.objects.put(connection::MAIN, text, PutMode::Always, "application/yaml")).unwrap().unwrap();
    let pokes: Vec<Poke> = poked.iter().map(|name| Poke::Tenant { tenant: TenantName::from(*name) }).collect();
    poll_once(cell::send(&ports, &pokes)).unwrap().unwrap();
}

fn head(site: &Site, name: &str) -> Tenant {
    let key = tenant::key(&TenantName::from(name));
    decode(site.world.records().iter().find(|record| record.key == key).expect("the tenant was read")).unwrap()
}

fn listed(site: &Site) -> Vec<String> {
    let names = poll_once(tenant::listed(&site.ports())).unwrap().unwrap();
    names.iter().map(ToString::to_string).collect()
}

fn approved(site: &mut Site, number: u64) -> ChangeKey {
    let change = site.forge.propose("org/one", number, "a change", "", &[("file", &number.to_string())]);
    site.run();
    site.forge.approve(&change);
    change
}

/// R03: what a removed tenant works on leaves unreported, and whatever is approved afterwards lands by nobody's word but the new tenant's.
#[test]
fn a_tenant_that_the_main_configuration_leaves_out_is_emptied_and_lands_nothing_more() {
    let mut site = site();
    let first = approved(&mut site, 1);
    site.run_until(Site::is_building);
    load(&site, &["mine"], &["demo", "mine"]);
    // Before the build ends: then it would have landed as it may.
    site.handle(Queue::Tenants);
    site.handle(Queue::Gate);
    site.run();
    assert_eq!(listed(&site), ["mine"]);
    assert_eq!(site.forge.merges().len(), 0, "its builds were stopped");
    let ending = site.ending(&[], &[&first]);
    assert_eq!(ending.buildsets, [format!("{first} gate DEQUEUED")]);
    assert_eq!(ending.left_over, Vec::<String>::new());
    assert_eq!(ending.changes[&first.to_string()].2, 0, "no comment: nobody is there to report");

    let second = approved(&mut site, 2);
    site.run();
    let merged: Vec<String> = site.forge.merges().iter().map(|(key, _)| key.to_string()).collect();
    assert_eq!(merged, [second.to_string()]);
    let by: Vec<String> = site
        .world
        .records()
        .iter()
        .filter(|record| record.key.partition.starts_with("queue#demo") && record.key.sort.starts_with("item"))
        .map(|record| record.key.to_string())
        .collect();
    assert_eq!(by, Vec::<String>::new(), "the removed tenant takes nothing in");
    assert!(
        !site.world.records().iter().any(|record| record.key.partition == "tenant#demo" && record.key.sort != "head")
    );
}

/// R03: a tenant that comes back is read anew, and goes on with the numbers that its queues know.
#[test]
fn a_tenant_that_comes_back_works_again() {
    let mut site = site();
    let before = head(&site, "demo").layout.live;
    load(&site, &["other"], &["demo", "other"]);
    site.run();
    assert!(head(&site, "demo").is_removed);
    load(&site, &["demo"], &["demo", "other"]);
    site.run();
    let after = head(&site, "demo");
    assert!(!after.is_removed && after.layout.live > before + 1, "{:?}", after.layout);
    assert_eq!(listed(&site), ["demo"]);
    let change = approved(&mut site, 1);
    site.run();
    assert_eq!(site.forge.merges().len(), 1, "{change}");
}

/// C16: a repository that cannot be read is a mistake of the configuration that is told where mistakes are looked for.
#[test]
fn a_project_that_cannot_be_read_is_counted_and_named_among_the_mistakes() {
    let site = site();
    let head = head(&site, "demo");
    assert_eq!((head.errors, head.problems.len()), (1, 1));
    assert_eq!(head.problems[0].project.name(), "org/missing");
    assert!(!head.problems[0].why.is_empty());
}
