//! The order in which node requests are served.

use sluice_model::build::BuildResult;
use sluice_model::wakeup::MessageQueue;
use sluice_pool::{NodeRequest, RequestState};
use sluice_records::codec::decode;
use sluice_scenarios::Site;
use sluice_scenarios::sample::{self, MAIN};

/// Returns a site with a quota of `instances`, where each project has its own check job.
fn site(instances: u32, settings: &str) -> Site {
    let project = |job: &str| {
        format!(
            "- job: {{name: {job}, run: playbooks/unit.yaml}}\n- project: {{{settings}check: {{jobs: [{job}]}}}}\n"
        )
    };
    let (one, two, config) = (project("of-one"), project("of-two"), sample::central(instances));
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", &one)]),
        ("org/two", &[(".zuul.yaml", &two)]),
    ];
    Site::new(3, MAIN, repositories, |_, _, _| BuildResult::Success)
}

/// Proposes three changes of one project and then one of the other, and returns which jobs get the
/// two nodes.
fn jobs_that_get_nodes(settings: &str) -> (Site, Vec<String>) {
    let mut site = site(2, settings);
    site.run();
    site.held.extend(["of-one".to_owned(), "of-two".to_owned()]);
    for number in 1..=3 {
        site.forge.propose(
            "org/one",
            number,
            "one of many",
            "",
            &[(&format!("file-{number}"), "x")],
        );
        site.take_in();
    }
    site.forge.propose("org/two", 4, "the only one", "", &[("file-4", "x")]);
    site.take_in();
    // All requests are made before the first one is served.
    for queue in [MessageQueue::Gate, MessageQueue::Merges, MessageQueue::Gate] {
        site.handle(queue);
    }
    site.run_until(|site| site.running().len() == 2);
    let mut running = site.running();
    running.sort();
    (site, running)
}

/// Z6.1, Z1.1: in an independent pipeline the only change of one project is served before the
/// second change of another, although it was proposed later. All are served in the end.
#[test]
fn a_project_with_many_changes_does_not_keep_another_waiting_for_nodes() {
    let (mut site, running) = jobs_that_get_nodes("");
    assert_eq!(running, ["of-one", "of-two"]);
    site.held.clear();
    site.run();
    assert_eq!(
        site.ending(&[], &[]).buildsets.iter().filter(|set| set.ends_with("check SUCCESS")).count(),
        4
    );
}

/// Z6.1, Z6.3: projects that share a queue count as one project, in every pipeline.
#[test]
fn projects_that_share_a_queue_are_served_as_one() {
    let (mut site, running) = jobs_that_get_nodes("queue: integrated, ");
    assert_eq!(running, ["of-one", "of-one"]);
    site.held.clear();
    site.run();
    assert_eq!(
        site.ending(&[], &[]).buildsets.iter().filter(|set| set.ends_with("check SUCCESS")).count(),
        4
    );
}

/// Z6.1, Z1.1: a change that became the head of its shared queue while it waited for nodes is
/// served before a change that became the head of another queue later.
#[test]
fn a_change_that_has_moved_up_in_its_queue_is_served_by_its_new_position() {
    let job = |name: &str, matcher: &str| {
        format!("- job: {{name: {name}, run: playbooks/unit.yaml{matcher}}}\n")
    };
    let one = job("of-one", ", irrelevant-files: ['^free$']")
        + "- project: {gate: {jobs: [noop, of-one]}}\n";
    let two = job("long", ", files: ['^slow$']") + &job("of-two", "");
    let two = two + "- project: {check: {jobs: [long]}, gate: {jobs: [of-two]}}\n";
    let config = sample::central(1);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", &one)]),
        ("org/two", &[(".zuul.yaml", &two)]),
    ];
    let mut site = Site::new(3, MAIN, repositories, |_, _, _| BuildResult::Success);
    site.run();
    site.held.extend(["long", "of-one", "of-two"].map(str::to_owned));
    // Another job occupies the only node.
    site.forge.propose("org/two", 4, "slow", "", &[("slow", "x")]);
    site.run_until(|site| site.running() == ["long"]);
    let propose = |site: &mut Site, project: &str, number: u64, file: &str| {
        let change = site.forge.propose(project, number, "a change", "", &[(file, "x")]);
        site.take_in();
        change
    };
    let first = propose(&mut site, "org/one", 1, "free");
    let behind = propose(&mut site, "org/one", 2, "file-2");
    let other = propose(&mut site, "org/two", 3, "file-3");
    for change in [&first, &behind] {
        site.forge.approve(change);
        site.take_in();
    }
    // The first change needs no node; it lands after the change behind it has requested one.
    for queue in [
        MessageQueue::Gate,
        MessageQueue::Merges,
        MessageQueue::Gate,
        MessageQueue::Merges,
        MessageQueue::Gate,
    ] {
        site.handle(queue);
    }
    let request_of = |site: &Site, job: &str| -> Option<NodeRequest> {
        let records = site.world.records();
        let requests = records.iter().filter(|record| record.key.sort.starts_with("request#"));
        let mut requests = requests.map(|record| decode::<NodeRequest>(record).unwrap());
        requests.find(|request| request.requestor.starts_with(&format!("gate {job} ")))
    };
    assert_eq!(request_of(&site, "of-one").map(|request| request.row.relative()), Some(1));
    site.run_until(|site| site.forge.merges().len() == 1);
    site.handle(MessageQueue::Gate);
    site.forge.approve(&other);
    site.take_in();
    site.run_until(|site| request_of(site, "of-two").is_some());
    assert_eq!(request_of(&site, "of-two").map(|request| request.row.relative()), Some(0));
    assert_eq!(site.running(), ["long"]);
    site.world.advance_millis(5_000);
    site.held.remove("long");
    site.run_until(|site| site.running().iter().any(|job| job.starts_with("of-")));
    assert_eq!(site.running(), ["of-one"]);
    site.held.clear();
    site.run();
    assert_eq!(site.forge.merges().len(), 3);
}

/// Z4.3, Z1.8: one job has the only node and waits for a semaphore that a job without a node holds.
/// The first job returns its node and runs after the other one.
#[test]
fn a_job_returns_its_node_to_the_holder_of_the_semaphore_that_it_waits_for() {
    let project = |job: &str, semaphores: &str| {
        format!(
            "- job: {{name: {job}, run: playbooks/unit.yaml, semaphores: {semaphores}}}\n- project: {{check: {{jobs: [{job}]}}}}\n"
        )
    };
    let (one, two) = (
        project("node-first", "[{name: lock, resources-first: true}]"),
        project("lock-first", "[lock]"),
    );
    let config = format!("{}- semaphore: {{name: lock, max: 1}}\n", sample::central(1));
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", &one)]),
        ("org/two", &[(".zuul.yaml", &two)]),
    ];
    let mut site = Site::new(3, MAIN, repositories, |_, _, _| BuildResult::Success);
    // Both requests are made before the first is served; the job that acquires the node first is
    // the first to request it.
    for (project, number) in [("org/one", 1), ("org/two", 2)] {
        site.forge.propose(project, number, "a change", "", &[("file", "x")]);
        site.take_in();
        for queue in [MessageQueue::Gate, MessageQueue::Merges, MessageQueue::Gate] {
            site.handle(queue);
        }
    }
    site.run();
    let mut sets = site.ending(&[], &[]).buildsets;
    sets.sort();
    assert_eq!(sets, ["org/one#1 check SUCCESS", "org/two#2 check SUCCESS"]);
    assert_eq!(site.builds(), ["check lock-first 2", "check node-first 1", "check node-first 1"]);
}

/// Returns the states of all requests for nodes.
fn requests(site: &Site) -> Vec<RequestState> {
    let records = site.world.records();
    let of_provider = records.iter().filter(|record| record.key.partition.starts_with("provider#"));
    let requests = of_provider.filter(|record| record.key.sort.starts_with("request#"));
    requests.map(|record| decode::<NodeRequest>(record).unwrap().state).collect()
}

/// Z1.2, N02: a queue gets a wakeup when its node request fails. If the wakeup is lost, the queue
/// sees the failure at its next reconciliation.
#[test]
fn a_queue_learns_of_its_failed_node_request_with_and_without_a_wakeup() {
    let nodes = "nodeset: {nodes: [{name: a, label: small}, {name: b, label: small}]}";
    let project = format!(
        "- job: {{name: unit, run: playbooks/unit.yaml, {nodes}}}\n- project: {{check: {{jobs: [unit]}}}}\n"
    );
    for is_woken in [true, false] {
        let mut site = sample::small(1, &project, |_, _, _| BuildResult::Success);
        let change = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        let is_reported = |site: &Site| {
            let comments = site.forge.change(&change).unwrap().comments;
            comments.values().any(|(text, _)| text.contains(") : NODE_FAILURE"))
        };
        site.run_until(|site| !requests(site).is_empty());
        // All other wakeups of the queue are handled before the request is served.
        for queue in
            [MessageQueue::Reports, MessageQueue::Gate, MessageQueue::Reports, MessageQueue::Gate]
        {
            site.handle(queue);
        }
        assert!(!site.world.has_visible(MessageQueue::Gate) && !is_reported(&site));
        site.run_until(|site| matches!(requests(site)[..], [RequestState::Failed { .. }]));
        assert!(site.world.has_visible(MessageQueue::Gate), "its queue gets a wakeup");
        if !is_woken {
            for message in site.world.take_messages(MessageQueue::Gate, 10, 30) {
                site.world.drop_message(MessageQueue::Gate, &message.receipt);
            }
        }
        site.run_now();
        assert_eq!(is_reported(&site), is_woken, "at once, or at its next reconciliation");
        site.run();
        assert!(is_reported(&site), "woken: {is_woken}");
        assert_eq!(
            site.ending(&[], &[&change]).left_over,
            Vec::<String>::new(),
            "woken: {is_woken}"
        );
    }
}
