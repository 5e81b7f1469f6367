//! Bundles in check, where each change has its own queue: the members are one entry in the host
//! queue, and the queues of the hosted changes name the host queue.

use super::bundles::{
    check_results, configured, configured_with, head, propose_cycle, site_with_cycles, statuses,
};
use super::operator_enqueues::hold_back;
use super::system_events::asked;
use super::{CONFIG, MAIN, comments, merged, report_lines, results, unlinked};
use sluice_gate::queue::own_queue;
use sluice_gate::{InboxMessage, InboxMessageKind, StoredHead};
use sluice_memory::poll_once;
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::Wakeup;
use sluice_model::{InboxMessageId, QueueKey};
use sluice_records::codec::decode;
use sluice_records::queue;
use sluice_runtime::{Clock, Record, cell};
use sluice_scenarios::Site;
use sluice_scenarios::forge::Announcement;
use std::collections::BTreeSet;

/// The queues of check while both changes are one bundle.
const AS_ONE: [&str; 2] =
    ["forge.test/org/one#1 holds 2", "forge.test/org/two#2 in forge.test/org/one#1"];

/// Returns the queues of check: the number of items, or the host queue of a hosted change.
fn queues(site: &Site) -> Vec<String> {
    let is_head = |key: &sluice_runtime::Key| {
        key.partition.starts_with("queue#demo/check/") && key.sort == "head"
    };
    let records = site.world.records().into_iter().filter(|record| is_head(&record.key));
    let mut queues: Vec<String> = records
        .filter_map(|record| {
            let head: StoredHead = decode(&record).unwrap();
            let (count, key) = (head.versions().unwrap().len(), &head.key);
            match &head.hosted_in {
                Some(other) => {
                    assert_eq!(count, 0, "the queue {} of a hosted change has items", key.queue);
                    Some(format!("{} in {other}", key.queue))
                }
                None => (count > 0).then(|| format!("{} holds {count}", key.queue)),
            }
        })
        .collect();
    queues.sort();
    queues
}

/// Keeps the jobs that only one of the projects has from ending.
fn hold_own_jobs(site: &mut Site) {
    site.held = ["of-one", "of-two"].map(str::to_owned).into();
}

/// Runs the site until both changes are one bundle and their own jobs are running.
fn run_to_bundle(site: &mut Site) {
    hold_own_jobs(site);
    site.run_until(|site| site.running().iter().filter(|job| job.starts_with("of-")).count() == 2);
    assert_eq!(queues(site), AS_ONE);
}

/// Returns the configuration of the other rows with a dequeue reporter in check.
fn config_with_dequeue_reports() -> String {
    let gate = "- pipeline:\n    name: gate\n";
    assert!(CONFIG.contains(gate));
    CONFIG.replacen(gate, &format!("    dequeue: {{github: {{comment: true}}}}\n{gate}"), 1)
}

fn ended(result: &str, on: &[String]) -> (String, Vec<String>) {
    (result.to_owned(), on.to_vec())
}

/// Asserts that the queues of check are empty and no work is left over.
fn assert_complete(site: &Site, changes: &[&ChangeKey]) {
    assert_eq!(queues(site), Vec::<String>::new());
    assert_eq!(site.ending(&[], changes).left_over, Vec::<String>::new());
}

/// D10, D15, Z6.5: a job that both changes share runs once, and each change gets one vote.
#[test]
fn a_shared_job_runs_once_in_check_and_each_member_is_reported_once() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    run_to_bundle(&mut site);
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), ["check common 1 2", "check of-one 1 2", "check of-two 1 2"]);
    for change in [&a, &b] {
        assert_eq!(statuses(&site, change), ["demo/check success"]);
        assert_eq!(report_lines(&site, "check", change), ["Build succeeded."]);
        assert!(
            unlinked(&comments(&site, change)).contains("common : SUCCESS"),
            "{}",
            comments(&site, change)
        );
    }
    assert_complete(&site, &[&a, &b]);
}

/// D13, Z6.5: a failing job of one member fails both, and both reports name the failed member.
#[test]
fn a_failing_job_of_one_member_in_check_fails_both() {
    for job in ["of-one", "of-two"] {
        let mut site = site_with_cycles(MAIN);
        let (a, b) = propose_cycle(&site, &[("a", &format!("broken {job}"))], &[("b", "x")]);
        site.run();
        for (change, other) in [(&a, &b), (&b, &a)] {
            assert_eq!(statuses(&site, change), ["demo/check failure"], "{job}");
            assert_eq!(
                check_results(&site, change),
                [ended("FAILURE", &[head(&site, other)])],
                "{job}"
            );
            let comments = comments(&site, change);
            let failed = if job == "of-one" { "org/one#1" } else { "org/two#2" };
            let expected = format!(
                "This change is part of a dependency cycle that failed. Failed changes: {failed}."
            );
            assert!(comments.contains(&expected), "{comments}");
        }
        assert_complete(&site, &[&a, &b]);
    }
}

/// D10, Z6.5: a new revision of either member dequeues both and has both tested again with it.
#[test]
fn a_new_revision_of_one_member_dequeues_and_enqueues_both() {
    for is_hosted in [false, true] {
        let mut site = site_with_cycles(MAIN);
        let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
        run_to_bundle(&mut site);
        let (revised, other) = if is_hosted { (&b, &a) } else { (&a, &b) };
        let before = head(&site, revised);
        site.forge.revise(revised, "more", "x");
        let first = ended("DEQUEUED", &[before]);
        site.run_until(|site| check_results(site, other).contains(&first));
        site.run_until(|site| queues(site) == AS_ONE && site.builds().len() == 6);
        site.held.clear();
        site.run();
        let both = check_results(&site, other);
        assert!(
            both.len() == 2 && both.contains(&ended("SUCCESS", &[head(&site, revised)])),
            "{both:?}"
        );
        let all = results(&site, "check");
        for build in ["of-one 1 2 ABORTED", "of-two 1 2 ABORTED"] {
            assert!(all.iter().any(|result| result == build), "{all:?}");
        }
        for change in [&a, &b] {
            assert_eq!(statuses(&site, change), ["demo/check success"]);
        }
        assert_complete(&site, &[&a, &b]);
    }
}

/// D10, Z6.5: a queued change that becomes a bundle member leaves its own queue without a report,
/// whichever of the two it is.
#[test]
fn a_queued_change_that_becomes_a_member_moves_to_the_bundle_without_a_report() {
    let project = |number: u64| if number == 1 { "org/one" } else { "org/two" };
    let needs =
        |number: u64| format!("Depends-On: https://forge.test/{}/pull/{number}", project(number));
    for (first, second) in [(2, 1), (1, 2)] {
        let mut site = configured(MAIN, &config_with_dequeue_reports());
        hold_own_jobs(&mut site);
        let early = site.forge.propose(project(first), first, "early", "", &[("early", "x")]);
        site.run_until(|site| site.running().iter().any(|job| job.starts_with("of-")));
        assert_eq!(queues(&site), [format!("{} holds 1", own_queue(&early))]);
        site.forge.describe(&early, &needs(second), Announcement::None);
        let late =
            site.forge.propose(project(second), second, "late", &needs(first), &[("late", "x")]);
        site.run_until(|site| queues(site) == AS_ONE);
        site.held.clear();
        site.run();
        let both = check_results(&site, &early);
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both.contains(&ended("DEQUEUED", &[])), "{both:?}");
        assert!(both.contains(&ended("SUCCESS", &[head(&site, &late)])), "{both:?}");
        for change in [&early, &late] {
            assert_eq!(report_lines(&site, "check", change), ["Build succeeded."]);
            assert_eq!(statuses(&site, change), ["demo/check success"]);
        }
        assert_complete(&site, &[&early, &late]);
    }
}

/// Z6.1, Z6.5: a change that leaves its own queue for the bundle is not lost when an operator
/// discards events before the bundle is enqueued.
#[test]
fn a_change_on_its_way_to_a_bundle_is_tested_though_events_are_discarded() {
    let mut site = site_with_cycles(MAIN);
    hold_own_jobs(&mut site);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run_until(|site| site.running().iter().any(|job| job.starts_with("of-")));
    site.forge.describe(&b, "Depends-On: https://forge.test/org/one/pull/1", Announcement::None);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    let is_in_progress = |record: &Record| {
        record.key.sort.starts_with("inbox#") && record.body.contains("\"in_progress\":true")
    };
    site.run_until(|site| site.world.records().iter().any(is_in_progress));
    // Long enough that the gate reads again which events are paused or discarded.
    site.world.advance_millis(11_000);
    hold_back(&site, true, false, false);
    site.run_until(|site| queues(site) == AS_ONE);
    site.held.clear();
    site.run();
    for (change, other) in [(&a, &b), (&b, &a)] {
        assert!(
            check_results(&site, change).contains(&ended("SUCCESS", &[head(&site, other)])),
            "{change}"
        );
        assert_eq!(statuses(&site, change), ["demo/check success"]);
    }
    assert_complete(&site, &[&a, &b]);
}

/// D10, Z6.5: a third change extends the dependency cycle and becomes the host: the first two leave
/// their host queue.
#[test]
fn a_bundle_moves_to_the_queue_of_a_third_member() {
    let on = |project: &str, number: u64| {
        format!("Depends-On: https://forge.test/{project}/pull/{number}\n")
    };
    let mut site = site_with_cycles(MAIN);
    hold_own_jobs(&mut site);
    let b = site.forge.propose("org/two", 2, "B", &on("org/one", 3), &[("b", "x")]);
    let c = site.forge.propose("org/one", 3, "C", &on("org/two", 2), &[("c", "x")]);
    site.run_until(|site| site.running().iter().filter(|job| job.starts_with("of-")).count() == 2);
    assert_eq!(
        queues(&site),
        ["forge.test/org/one#3 holds 2", "forge.test/org/two#2 in forge.test/org/one#3"]
    );
    site.forge.describe(&b, &[on("org/one", 3), on("org/one", 1)].concat(), Announcement::None);
    let a = site.forge.propose("org/one", 1, "A", &on("org/two", 2), &[("a", "x")]);
    let as_one = [
        "forge.test/org/one#1 holds 3",
        "forge.test/org/one#3 in forge.test/org/one#1",
        "forge.test/org/two#2 in forge.test/org/one#1",
    ];
    site.run_until(|site| queues(site) == as_one);
    site.held.clear();
    site.run();
    assert!(site.builds().iter().any(|build| build == "check of-two 1 3 2"), "{:?}", site.builds());
    for change in [&a, &b, &c] {
        let all = check_results(&site, change);
        assert!(
            all.iter().any(|(result, on)| result == "SUCCESS" && on.len() == 2),
            "{change}: {all:?}"
        );
        assert_eq!(statuses(&site, change), ["demo/check success"]);
    }
    assert_complete(&site, &[&a, &b, &c]);
}

/// D10, Z6.5: after one member drops its dependency and gets a new revision, each change is in its
/// own queue again.
#[test]
fn the_members_of_a_dissolved_bundle_are_tested_alone_again() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    run_to_bundle(&mut site);
    site.forge.describe(&b, "", Announcement::None);
    site.forge.revise(&b, "more", "x");
    site.run_until(|site| queues(site) == ["forge.test/org/two#2 holds 1"]);
    site.forge.revise(&a, "more", "x");
    site.run_until(|site| {
        queues(site) == ["forge.test/org/one#1 holds 1", "forge.test/org/two#2 holds 1"]
    });
    site.held.clear();
    site.run();
    for build in ["check of-two 2", "check of-one 2 1"] {
        assert!(site.builds().iter().any(|ordered| ordered == build), "{:?}", site.builds());
    }
    assert!(
        check_results(&site, &b).contains(&ended("SUCCESS", &[])),
        "{:?}",
        check_results(&site, &b)
    );
    assert!(
        check_results(&site, &a).contains(&ended("SUCCESS", &[head(&site, &b)])),
        "{:?}",
        check_results(&site, &a)
    );
    for change in [&a, &b] {
        assert_eq!(statuses(&site, change), ["demo/check success"]);
    }
    assert_complete(&site, &[&a, &b]);
}

/// R06, Z6.5: a dequeue command to the own queue of a hosted change dequeues the whole bundle from
/// the host queue.
#[test]
fn a_dequeue_command_to_the_queue_of_a_hosted_change_dequeues_the_bundle() {
    let mut site = configured(MAIN, &config_with_dequeue_reports());
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    run_to_bundle(&mut site);
    let queue = QueueKey { tenant: "demo".into(), pipeline: "check".into(), queue: own_queue(&b) };
    let (by, reason) = ("jo".to_owned(), "it hangs".to_owned());
    let kind = InboxMessageKind::Dequeue { key: b.clone(), head: None, by, reason };
    let (id, event_id) = (InboxMessageId("command".to_owned()), "operator".to_owned());
    let message = InboxMessage {
        id,
        at: site.world.now(),
        event_id,
        layout: 0,
        by_operator: true,
        in_progress: false,
        kind,
    };
    site.world.write_unchecked(queue::put_message(&queue, &message).unwrap());
    poll_once(cell::send(&site.ports(), &[Wakeup::Queue { queue }])).unwrap().unwrap();
    site.run();
    for (change, other) in [(&a, &b), (&b, &a)] {
        assert_eq!(check_results(&site, change), [ended("DEQUEUED", &[head(&site, other)])]);
        assert!(
            comments(&site, change).contains("an operator dequeued it: it hangs"),
            "{}",
            comments(&site, change)
        );
    }
    assert!(
        comments(&site, &a).contains("org/two#2 of its dependency cycle left"),
        "{}",
        comments(&site, &a)
    );
    assert_complete(&site, &[&a, &b]);
}

/// G13, Z6.5: events of a hosted change reach it in the host queue.
#[test]
fn a_closed_member_dequeues_its_bundle_from_check() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    run_to_bundle(&mut site);
    site.forge.close(&b);
    site.run();
    for (change, other) in [(&a, &b), (&b, &a)] {
        assert_eq!(check_results(&site, change), [ended("DEQUEUED", &[head(&site, other)])]);
    }
    assert_complete(&site, &[&a, &b]);
}

/// G19, Z6.5: a bundle that enters a pipeline that supersedes check leaves check, in whichever
/// queue it is.
#[test]
fn a_bundle_leaves_check_when_it_enters_the_gate_that_supersedes_it() {
    let reviewed = "    post-review: true\n";
    assert!(CONFIG.contains(reviewed));
    let mut site = configured(
        MAIN,
        &CONFIG.replace(reviewed, &format!("{reviewed}    supersedes: [check]\n")),
    );
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    run_to_bundle(&mut site);
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| queues(site).is_empty());
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 2]);
    for (change, other) in [(&a, &b), (&b, &a)] {
        assert_eq!(check_results(&site, change), [ended("DEQUEUED", &[head(&site, other)])]);
    }
    assert_complete(&site, &[&a, &b]);
}

/// D10, Z6.4, Z6.5: one member takes no part in check: the other member is tested alone, on a state
/// with all members merged.
#[test]
fn a_member_is_tested_alone_when_the_other_takes_no_part_in_check() {
    let check = "    check: {jobs: [common, of-two]}\n";
    let mut site = configured_with(MAIN, CONFIG, |of_two| {
        assert!(of_two.contains(check), "{of_two}");
        of_two.replace(check, "")
    });
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run_checked(|site| {
        let queues = queues(site);
        assert!(queues.iter().all(|queue| queue == "forge.test/org/one#1 holds 1"), "{queues:?}");
    });
    let builds = site.builds();
    let jobs: BTreeSet<&str> = builds.iter().filter_map(|build| build.split(' ').nth(1)).collect();
    assert_eq!((jobs, builds.len()), (BTreeSet::from(["common", "of-one"]), 2), "{builds:?}");
    assert!(
        builds.iter().all(|build| build.ends_with(" 1 2") || build.ends_with(" 2 1")),
        "{builds:?}"
    );
    assert_eq!(
        (statuses(&site, &a), statuses(&site, &b)),
        (vec!["demo/check success".to_owned()], Vec::new())
    );
    assert_complete(&site, &[&a, &b]);
}

/// Z6.5, Z9.1: the API shows both members in one queue, no empty queue, and for each member the
/// other one and the host queue.
#[test]
fn a_bundle_is_shown_in_one_queue_and_each_member_names_the_other() {
    let mut site = site_with_cycles(MAIN);
    propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    run_to_bundle(&mut site);
    let of_check = |list: &serde_json::Value, name: &str| {
        let list = list.as_array().unwrap();
        list.iter().find(|pipeline| pipeline[name] == "check").expect("check is listed").clone()
    };
    let (status, board) = asked(&site, "tenant/demo/board");
    assert_eq!(status, 200, "{board}");
    let shown = of_check(&board["pipelines"], "name")["queues"].clone();
    let sizes: Vec<usize> = shown
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| queue["items"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [2], "{shown}");
    let items = shown[0]["items"].as_array().unwrap();
    let bundles: Vec<&serde_json::Value> = items.iter().map(|item| &item["bundle"]).collect();
    let others =
        |project: &str, number: u64| serde_json::json!([{"project": project, "number": number}]);
    assert_eq!(bundles, [&others("org/two", 2), &others("org/one", 1)]);
    for (change, project, other) in [(1, "org/one", "org/two#2"), (2, "org/two", "org/one#1")] {
        let (status, reasons) =
            asked(&site, &format!("tenant/demo/why?project={project}&change={change}"));
        assert_eq!(status, 200, "{reasons}");
        let now = of_check(&reasons[0]["pipelines"], "pipeline")["now"].clone();
        let place = "they are tested and reported as one bundle, in the queue forge.test/org/one#1";
        let said = format!("it and {other} depend on each other: {place}");
        assert!(now.as_array().unwrap().iter().any(|line| *line == said), "{now}");
    }
}
