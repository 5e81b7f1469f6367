//! Providers whose machines are in several regions.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(missing_docs, dead_code, reason = "each test program uses a part of it")]
mod common;

use common::{World, label, limits, request};
use sluice_pool::{LabelSpec, LaunchLocation, NodeState, PoolNode};

/// L3.4, L3.8: where a tenant's section names another region than that of others, its requests get
/// machines in that region. Ready machines of a former region are replaced.
#[test]
fn machines_are_launched_in_the_region_of_the_requests_tenant() {
    let mut limits = limits(8);
    let location = LaunchLocation { region: Some("there".into()), zones: vec!["c".into()] };
    let own = LabelSpec { location, ..label(1) };
    limits.tenant_labels.insert("two".into(), [("small".into(), own)].into());
    let mut world = World::new(limits);
    world.settle();
    let places = |world: &World| {
        let place = |node: &PoolNode| {
            let of = node.allocated_to.as_ref().map(|given| given.build.0.clone());
            (of, node.region.clone().unwrap(), node.az.clone().unwrap())
        };
        let mut all: Vec<_> = world.cell.nodes.iter().map(place).collect();
        all.sort();
        all
    };
    let free = (None, "there".to_owned(), "c".to_owned());
    assert_eq!(places(&world), std::slice::from_ref(&free));
    let mut second = request(2, &["small"]);
    second.queue.tenant = "two".into();
    world.cell.requests = vec![request(1, &["small"]), second];
    world.settle();
    let all = places(&world);
    assert_eq!((&all[0], all.len()), (&free, 3));
    assert_eq!((all[1].0.as_deref(), all[1].1.as_str()), (Some("build-1"), "here"));
    assert_eq!((all[2].0.as_deref(), all[2].1.as_str()), (Some("build-2"), "there"));
    // The section of the tenant moves.
    let labels = world.cell.limits.tenant_labels.get_mut(&"two".into()).unwrap();
    labels.get_mut(&"small".into()).unwrap().location = label(1).location;
    world.settle();
    assert_eq!(places(&world)[0].1, "here", "the ready machine was replaced");
    assert_eq!(places(&world).len(), 3);
}

/// L3.8, Z1.9: where one region does not answer, its machines do not count as gone, and those of
/// other regions are observed.
#[test]
fn machines_of_a_region_that_was_not_listed_are_not_lost() {
    let mut limits = limits(8);
    let location = LaunchLocation { region: Some("there".into()), zones: Vec::new() };
    limits.labels.insert("far".into(), LabelSpec { location, ..label(1) });
    limits.labels.insert("small".into(), label(1));
    let mut world = World::new(limits);
    world.settle();
    let ready = |world: &World| {
        ["far", "small"].map(|name| {
            let is_ready = |node: &&PoolNode| {
                node.label.as_str() == name && matches!(node.state, NodeState::Ready { .. })
            };
            world.cell.nodes.iter().filter(is_ready).count()
        })
    };
    assert_eq!(ready(&world), [1, 1]);
    world.machines.clear();
    world.now = world.now.plus_seconds(600);
    world.list_regions([Some("here".to_owned())].into());
    world.step();
    assert_eq!(ready(&world), [1, 0], "only the machine of the listed region is lost");
}
