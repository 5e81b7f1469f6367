//! Who is given nodes first, on a whole Sluice in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_model::build::BuildResult;
use sluice_model::poke::Queue;
use sluice_pool::{Request, RequestState};
use sluice_records::codec::decode;
use sluice_scenarios::Site;
use sluice_scenarios::sample::{self, MAIN};

/// Returns a site with this many nodes at once, where changes of either project are checked by a
/// job of its own.
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

/// Proposes three changes of one project, and then one of the other, and returns whose builds run
/// where there are two nodes.
fn running(settings: &str) -> (Site, Vec<String>) {
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
    // All of them ask before anybody is given nodes.
    for queue in [Queue::Gate, Queue::Merges, Queue::Gate] {
        site.handle(queue);
    }
    site.run_until(|site| site.running().len() == 2);
    let mut running = site.running();
    running.sort();
    (site, running)
}

/// Z6.1, Z1.1: in an independent pipeline the only change of a project is served before the second
/// one of another, though it came later; all of them are served in the end.
#[test]
fn a_project_with_many_changes_does_not_keep_another_waiting_for_nodes() {
    let (mut site, running) = running("");
    assert_eq!(running, ["of-one", "of-two"]);
    site.held.clear();
    site.run();
    assert_eq!(
        site.ending(&[], &[]).buildsets.iter().filter(|set| set.ends_with("check SUCCESS")).count(),
        4
    );
}

/// Z6.1, Z6.3: projects that share a queue take their turns as one, whatever pipeline their changes
/// are in.
#[test]
fn projects_that_share_a_queue_take_turns_as_one() {
    let (mut site, running) = running("queue: integrated, ");
    assert_eq!(running, ["of-one", "of-one"]);
    site.held.clear();
    site.run();
    assert_eq!(
        site.ending(&[], &[]).buildsets.iter().filter(|set| set.ends_with("check SUCCESS")).count(),
        4
    );
}

/// Z6.1, Z1.1: what has become first in its shared queue while it waited for nodes is served before
/// what became first in another one after that.
#[test]
fn a_change_that_has_moved_up_in_its_queue_is_served_by_the_place_that_it_has_by_now() {
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
    // Something else has the only node for as long as this lasts.
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
    // The first one needs no node; it does not land before the one behind it has asked for one.
    for queue in [Queue::Gate, Queue::Merges, Queue::Gate, Queue::Merges, Queue::Gate] {
        site.handle(queue);
    }
    let asked = |site: &Site, job: &str| -> Option<Request> {
        let records = site.world.records();
        let requests = records.iter().filter(|record| record.key.sort.starts_with("request#"));
        let mut requests = requests.map(|record| decode::<Request>(record).unwrap());
        requests.find(|request| request.requestor.starts_with(&format!("gate {job} ")))
    };
    assert_eq!(asked(&site, "of-one").map(|request| request.row.relative()), Some(1));
    site.run_until(|site| site.forge.merges().len() == 1);
    site.handle(Queue::Gate);
    site.forge.approve(&other);
    site.take_in();
    site.run_until(|site| asked(site, "of-two").is_some());
    assert_eq!(asked(&site, "of-two").map(|request| request.row.relative()), Some(0));
    assert_eq!(site.running(), ["long"]);
    site.world.advance_millis(5_000);
    site.held.remove("long");
    site.run_until(|site| site.running().iter().any(|job| job.starts_with("of-")));
    assert_eq!(site.running(), ["of-one"]);
    site.held.clear();
    site.run();
    assert_eq!(site.forge.merges().len(), 3);
}

/// Z4.3, Z1.8: a job that has the only node and waits for a semaphore, and one that holds the
/// semaphore and waits for the node, both come to their end: the first gives its node back, and is
/// tested after the other.
#[test]
fn a_job_that_has_the_node_gives_it_to_the_one_that_has_the_semaphore() {
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
    // Each has asked for the node before anybody is given it, the one that takes it first before
    // the other.
    for (project, number) in [("org/one", 1), ("org/two", 2)] {
        site.forge.propose(project, number, "a change", "", &[("file", "x")]);
        site.take_in();
        for queue in [Queue::Gate, Queue::Merges, Queue::Gate] {
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
    requests.map(|record| decode::<Request>(record).unwrap().state).collect()
}

/// Z1.2, N02: who asked for nodes is told at once what became of that; and sees it at his next look
/// where the word was lost.
#[test]
fn a_queue_hears_that_its_request_failed_and_sees_it_though_nobody_told_it() {
    let nodes = "nodeset: {nodes: [{name: a, label: small}, {name: b, label: small}]}";
    let project = format!(
        "- job: {{name: unit, run: playbooks/unit.yaml, {nodes}}}\n- project: {{check: {{jobs: [unit]}}}}\n"
    );
    for is_told in [true, false] {
        let mut site = sample::small(1, &project, |_, _, _| BuildResult::Success);
        let change = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        let knows = |site: &Site| {
            let comments = site.forge.change(&change).unwrap().comments;
            comments.values().any(|(text, _)| text.contains("unit : NODE_FAILURE"))
        };
        site.run_until(|site| !requests(site).is_empty());
        // Whatever else has the queue looked at is over before anybody looks at the request.
        for queue in [Queue::Reports, Queue::Gate, Queue::Reports, Queue::Gate] {
            site.handle(queue);
        }
        assert!(!site.world.has_visible(Queue::Gate) && !knows(&site));
        site.run_until(|site| matches!(requests(site)[..], [RequestState::Failed { .. }]));
        assert!(site.world.has_visible(Queue::Gate), "its queue is told");
        if !is_told {
            for message in site.world.take_messages(Queue::Gate, 10, 30) {
                site.world.drop_message(Queue::Gate, &message.receipt);
            }
        }
        site.run_now();
        assert_eq!(knows(&site), is_told, "at once, or not before its next look");
        site.run();
        assert!(knows(&site), "told: {is_told}");
        assert_eq!(site.ending(&[], &[&change]).left_over, Vec::<String>::new(), "told: {is_told}");
    }
}
