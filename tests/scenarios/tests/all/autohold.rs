//! Autohold: nodes of failed builds are held up to the count and the time of the request.

use sluice_gate::autohold::{ANY, Autohold};
use sluice_memory::poll_once;
use sluice_model::ProjectName;
use sluice_model::build::BuildResult;
use sluice_model::wakeup::Wakeup;
use sluice_pool::{NodeState, PoolNode};
use sluice_records::autohold;
use sluice_records::codec::decode;
use sluice_runtime::Clock as _;
use sluice_runtime::record::{Expect, Write};
use sluice_scenarios::Site;
use sluice_scenarios::sample;

const PROJECT: &str = "
- job: {name: unit, run: playbooks/unit.yaml, attempts: 2}
- project: {check: {jobs: [unit]}}
";

fn site() -> Site {
    sample::small(2, PROJECT, |_, attempt, files| {
        let says = |word: &str| {
            files.values().flat_map(|tree| tree.values()).any(|text| text.contains(word))
        };
        match attempt {
            _ if says("broken") => BuildResult::Failure,
            1 if says("flaky") => BuildResult::Retry,
            _ if says("lost") => BuildResult::Retry,
            _ => BuildResult::Success,
        }
    })
}

/// Writes an autohold request for the job `unit` of org/one.
fn request_autohold(site: &Site, ref_filter: &str, max_count: u32, seconds: Option<u64>) {
    let existing = requests(site);
    let request = Autohold {
        id: format!("{:010}", existing.len() + 1),
        tenant: "demo".into(),
        project: ProjectName::new("forge.test", "org/one"),
        job: "unit".into(),
        ref_filter: ref_filter.to_owned(),
        reason: "to look at it".to_owned(),
        by: "ada".to_owned(),
        max_count,
        node_expiration_seconds: seconds,
        ssh_key: None,
        created_at: site.world.now(),
        held: Vec::new(),
    };
    site.world.write_unchecked(autohold::create(&request).unwrap());
}

/// Returns the autohold requests with their records.
fn requests(site: &Site) -> Vec<(sluice_runtime::Record, Autohold)> {
    poll_once(autohold::load_tenant(&site.ports(), &"demo".into())).unwrap().unwrap()
}

/// Returns the nodes that are held.
fn held(site: &Site) -> Vec<PoolNode> {
    let records =
        site.world.records().into_iter().filter(|record| record.key.sort.starts_with("node#"));
    let nodes = records.map(|record| decode::<PoolNode>(&record).unwrap());
    nodes.filter(|node| matches!(node.state, NodeState::Hold { .. })).collect()
}

/// Runs the site until all builds have ended and no request, item or inbox message is left. A held
/// node keeps the site from becoming idle.
fn settle(site: &mut Site) {
    site.run_until(|site| {
        let records = site.world.records();
        let is_open = |record: &sluice_runtime::Record| {
            ["request#", "item#", "inbox#"].iter().any(|kind| record.key.sort.starts_with(kind))
        };
        let has_events = site.world.queued().iter().any(|(queue, count)| {
            *count > 0 && *queue == sluice_model::wakeup::MessageQueue::Events
        });
        !site.is_building()
            && !has_events
            && !records.iter().any(is_open)
            && records.iter().any(|r| r.key.sort == "run")
    });
}

fn propose(site: &mut Site, number: u64, text: &str) {
    site.forge.propose("org/one", number, "a change", "", &[("a", text)]);
    site.take_in();
    settle(site);
}

/// N15: a success is not held; the first failure is; the second exceeds the count.
#[test]
fn nodes_of_the_first_failed_build_are_held_and_counted() {
    let mut site = site();
    request_autohold(&site, ANY, 1, None);
    propose(&mut site, 1, "fine");
    assert_eq!(held(&site).len(), 0);
    propose(&mut site, 2, "broken");
    propose(&mut site, 3, "broken");
    let nodes = held(&site);
    let [(_, request)] = &requests(&site)[..] else { panic!("one request") };
    assert_eq!((nodes.len(), request.current_count()), (1, 1));
    assert_eq!(request.held[0].nodes, [nodes[0].id.clone()]);
    assert_eq!(
        nodes[0].allocated_to.as_ref().map(|given| &given.build),
        Some(&request.held[0].build)
    );
    let NodeState::Hold { reason, .. } = &nodes[0].state else { panic!("it is held") };
    assert_eq!(reason, "autohold 0000000001: to look at it");
    assert_eq!(site.cloud.running(), 1, "its machine is not deleted as a leak");
}

/// N15: like Zuul, an attempt that is retried is not held, but the last attempt is.
#[test]
fn only_the_last_attempt_of_a_build_is_held() {
    let mut site = site();
    request_autohold(&site, ANY, 5, None);
    propose(&mut site, 1, "flaky");
    assert_eq!(held(&site).len(), 0);
    propose(&mut site, 2, "lost");
    assert_eq!(held(&site).len(), 1);
}

/// N15
#[test]
fn held_nodes_are_released_when_their_time_is_over() {
    let mut site = site();
    request_autohold(&site, "refs/pull/2/head", 1, Some(600));
    propose(&mut site, 1, "broken");
    assert_eq!(held(&site).len(), 0, "the request is for another change");
    propose(&mut site, 2, "broken");
    assert_eq!(held(&site).len(), 1);
    let until = site.world.now().plus_seconds(700);
    site.run();
    assert!(site.world.now() <= until, "the node is released on time");
    assert_eq!((held(&site).len(), site.cloud.running()), (0, 0));
    let now = site.world.now();
    assert!(requests(&site)[0].1.expired_at(now).is_some());
}

/// N15: the deletion of a request releases its nodes, whether the pool gets a wakeup or not.
#[test]
fn held_nodes_are_released_when_the_request_is_deleted() {
    for is_woken in [true, false] {
        let mut site = site();
        request_autohold(&site, ANY, 1, None);
        propose(&mut site, 1, "broken");
        let [(record, request)] = &requests(&site)[..] else { panic!("one request") };
        site.world
            .write_unchecked(Write::Delete { key: record.key.clone(), expect: Expect::Anything });
        if is_woken {
            let wakeup = Wakeup::Pool { provider: request.held[0].provider.clone() };
            poll_once(sluice_runtime::cell::send(&site.ports(), &[wakeup])).unwrap().unwrap();
        }
        site.run();
        assert_eq!((held(&site).len(), site.cloud.running()), (0, 0), "woken: {is_woken}");
    }
}

/// N15, Z1.5: a held node counts against the quota.
#[test]
fn a_held_node_counts_against_the_quota() {
    let mut site = site();
    request_autohold(&site, ANY, 2, Some(3_600));
    propose(&mut site, 1, "broken");
    propose(&mut site, 2, "broken");
    let begun = site.world.now();
    site.forge.propose("org/one", 3, "a change", "", &[("a", "fine")]);
    site.run();
    assert_eq!(site.builds().len(), 3);
    assert!(site.world.now().since(begun) > 3_000_000, "it waited for quota");
}
