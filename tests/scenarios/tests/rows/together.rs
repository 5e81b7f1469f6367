//! Changes that need each other in check, where each change has a queue of its own: they stand as
//! one in the queue of one of them, and the others' queues say where.

use super::cycles::{allowing, checked, configured, configured_with, cycle, head, statuses};
use super::operators::hold_back;
use super::system_events::asked;
use super::{CONFIG, MAIN, comments, merged, results, told};
use sluice_gate::queue::own_queue;
use sluice_gate::{Arrival, ArrivalKind, StoredHead};
use sluice_memory::poll_once;
use sluice_model::change::ChangeKey;
use sluice_model::poke::Poke;
use sluice_model::{ArrivalId, QueueKey};
use sluice_records::codec::decode;
use sluice_records::queue;
use sluice_runtime::{Clock, Record, cell};
use sluice_scenarios::Site;
use std::collections::BTreeSet;

/// What the queues of check are while both stand as one.
const AS_ONE: [&str; 2] =
    ["forge.test/org/one#1 holds 2", "forge.test/org/two#2 in forge.test/org/one#1"];

/// Returns how many changes stand in each queue of check, and of one whose change stands elsewhere,
/// where that is.
fn queues(site: &Site) -> Vec<String> {
    let is_head = |key: &sluice_runtime::Key| {
        key.partition.starts_with("queue#demo/check/") && key.sort == "head"
    };
    let records = site.world.records().into_iter().filter(|record| is_head(&record.key));
    let mut queues: Vec<String> = records
        .filter_map(|record| {
            let StoredHead { key, slots, stands_in, .. } = decode(&record).unwrap();
            match stands_in {
                Some(other) => {
                    assert!(
                        slots.is_empty(),
                        "what stands elsewhere does not stand in {} as well",
                        key.queue
                    );
                    Some(format!("{} in {other}", key.queue))
                }
                None => (!slots.is_empty()).then(|| format!("{} holds {}", key.queue, slots.len())),
            }
        })
        .collect();
    queues.sort();
    queues
}

/// Has the jobs that each project has for itself not end.
fn hold(site: &mut Site) {
    site.held = ["of-one", "of-two"].map(str::to_owned).into();
}

/// Goes on until both stand as one and these jobs of theirs are under way.
fn under_way(site: &mut Site) {
    hold(site);
    site.run_until(|site| site.running().iter().filter(|job| job.starts_with("of-")).count() == 2);
    assert_eq!(queues(site), AS_ONE);
}

/// The configuration of the other rows where check tells of what is taken out.
fn telling() -> String {
    let gate = "- pipeline:\n    name: gate\n";
    assert!(CONFIG.contains(gate));
    CONFIG.replacen(gate, &format!("    dequeue: {{github: {{comment: true}}}}\n{gate}"), 1)
}

fn ended(result: &str, on: &[String]) -> (String, Vec<String>) {
    (result.to_owned(), on.to_vec())
}

/// Asserts that nothing stands in check any more, and that nothing is left over.
fn assert_over(site: &Site, changes: &[&ChangeKey]) {
    assert_eq!(queues(site), Vec::<String>::new());
    assert_eq!(site.ending(&[], changes).left_over, Vec::<String>::new());
}

/// D10, D15, Z6.5: what both run alike runs once, and both are voted for, once.
#[test]
fn what_both_run_alike_runs_once_in_check_and_each_is_told_once() {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    under_way(&mut site);
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), ["check common 1 2", "check of-one 1 2", "check of-two 1 2"]);
    for change in [&a, &b] {
        assert_eq!(statuses(&site, change), ["demo/check success"]);
        assert_eq!(told(&site, "check", change), ["Build succeeded."]);
        assert!(
            comments(&site, change).contains("common : SUCCESS"),
            "{}",
            comments(&site, change)
        );
    }
    assert_over(&site, &[&a, &b]);
}

/// D13, Z6.5: a job of one that fails has both voted against, whichever's it is, and both are told
/// whose.
#[test]
fn a_job_of_one_that_fails_in_check_has_both_voted_against() {
    for job in ["of-one", "of-two"] {
        let mut site = allowing(MAIN);
        let (a, b) = cycle(&site, &[("a", &format!("broken {job}"))], &[("b", "x")]);
        site.run();
        for (change, other) in [(&a, &b), (&b, &a)] {
            assert_eq!(statuses(&site, change), ["demo/check failure"], "{job}");
            assert_eq!(checked(&site, change), [ended("FAILURE", &[head(&site, other)])], "{job}");
            let said = comments(&site, change);
            let failed = if job == "of-one" { "org/one#1" } else { "org/two#2" };
            let expected = format!(
                "This change is part of a dependency cycle that failed. What failed: {failed}."
            );
            assert!(said.contains(&expected), "{said}");
        }
        assert_over(&site, &[&a, &b]);
    }
}

/// D10, Z6.5: whose new revision it is, both leave, and are tested once more with it.
#[test]
fn a_new_revision_of_one_has_both_leave_check_and_enter_it_anew() {
    for is_guest in [false, true] {
        let mut site = allowing(MAIN);
        let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
        under_way(&mut site);
        let (revised, other) = if is_guest { (&b, &a) } else { (&a, &b) };
        let before = head(&site, revised);
        site.forge.revise(revised, "more", "x");
        let first = ended("DEQUEUED", &[before]);
        site.run_until(|site| checked(site, other).contains(&first));
        site.run_until(|site| queues(site) == AS_ONE && site.builds().len() == 6);
        site.held.clear();
        site.run();
        let both = checked(&site, other);
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
        assert_over(&site, &[&a, &b]);
    }
}

/// D10, Z6.5: what stands alone when another one makes it a cycle leaves its own queue, and nothing
/// is told of that, whichever it is.
#[test]
fn a_change_that_stood_alone_in_check_leaves_quietly_and_enters_with_the_one_that_it_came_to_need()
{
    let project = |number: u64| if number == 1 { "org/one" } else { "org/two" };
    let needs =
        |number: u64| format!("Depends-On: https://forge.test/{}/pull/{number}", project(number));
    for (first, second) in [(2, 1), (1, 2)] {
        let mut site = configured(MAIN, &telling());
        hold(&mut site);
        let early = site.forge.propose(project(first), first, "early", "", &[("early", "x")]);
        site.run_until(|site| site.running().iter().any(|job| job.starts_with("of-")));
        assert_eq!(queues(&site), [format!("{} holds 1", own_queue(&early))]);
        site.forge.describe(&early, &needs(second), false);
        let late =
            site.forge.propose(project(second), second, "late", &needs(first), &[("late", "x")]);
        site.run_until(|site| queues(site) == AS_ONE);
        site.held.clear();
        site.run();
        let both = checked(&site, &early);
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both.contains(&ended("DEQUEUED", &[])), "{both:?}");
        assert!(both.contains(&ended("SUCCESS", &[head(&site, &late)])), "{both:?}");
        for change in [&early, &late] {
            assert_eq!(told(&site, "check", change), ["Build succeeded."]);
            assert_eq!(statuses(&site, change), ["demo/check success"]);
        }
        assert_over(&site, &[&early, &late]);
    }
}

/// Z6.1, Z6.5: one that leaves its own queue to stand with another is not lost where an operator
/// has events discarded before both enter.
#[test]
fn a_change_that_makes_way_is_tested_with_the_other_though_events_are_discarded_by_then() {
    let mut site = allowing(MAIN);
    hold(&mut site);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run_until(|site| site.running().iter().any(|job| job.starts_with("of-")));
    site.forge.describe(&b, "Depends-On: https://forge.test/org/one/pull/1", false);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    let is_taken_up = |record: &Record| {
        record.key.sort.starts_with("arrival#") && record.body.contains("\"taken_up\":true")
    };
    site.run_until(|site| site.world.records().iter().any(is_taken_up));
    // So long that a gate asks anew what operators hold back.
    site.world.advance_millis(11_000);
    hold_back(&site, true, false, false);
    site.run_until(|site| queues(site) == AS_ONE);
    site.held.clear();
    site.run();
    for (change, other) in [(&a, &b), (&b, &a)] {
        assert!(
            checked(&site, change).contains(&ended("SUCCESS", &[head(&site, other)])),
            "{change}"
        );
        assert_eq!(statuses(&site, change), ["demo/check success"]);
    }
    assert_over(&site, &[&a, &b]);
}

/// D10, Z6.5: where a third one makes it a cycle of three, whose queue is another one, the two
/// leave the queue that they stood in.
#[test]
fn those_that_stand_as_one_move_to_the_queue_of_a_third_that_comes_to_need_them() {
    let on = |project: &str, number: u64| {
        format!("Depends-On: https://forge.test/{project}/pull/{number}\n")
    };
    let mut site = allowing(MAIN);
    hold(&mut site);
    let b = site.forge.propose("org/two", 2, "B", &on("org/one", 3), &[("b", "x")]);
    let c = site.forge.propose("org/one", 3, "C", &on("org/two", 2), &[("c", "x")]);
    site.run_until(|site| site.running().iter().filter(|job| job.starts_with("of-")).count() == 2);
    assert_eq!(
        queues(&site),
        ["forge.test/org/one#3 holds 2", "forge.test/org/two#2 in forge.test/org/one#3"]
    );
    site.forge.describe(&b, &[on("org/one", 3), on("org/one", 1)].concat(), false);
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
        let all = checked(&site, change);
        assert!(
            all.iter().any(|(result, on)| result == "SUCCESS" && on.len() == 2),
            "{change}: {all:?}"
        );
        assert_eq!(statuses(&site, change), ["demo/check success"]);
    }
    assert_over(&site, &[&a, &b, &c]);
}

/// D10, Z6.5: once one says that it needs the other no more, and is uploaded so, each stands in its
/// own queue again.
#[test]
fn a_cycle_that_is_dissolved_has_each_tested_alone_again() {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    under_way(&mut site);
    site.forge.describe(&b, "", false);
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
    assert!(checked(&site, &b).contains(&ended("SUCCESS", &[])), "{:?}", checked(&site, &b));
    assert!(
        checked(&site, &a).contains(&ended("SUCCESS", &[head(&site, &b)])),
        "{:?}",
        checked(&site, &a)
    );
    for change in [&a, &b] {
        assert_eq!(statuses(&site, change), ["demo/check success"]);
    }
    assert_over(&site, &[&a, &b]);
}

/// R06, Z6.5: an operator's word about one that stands in the queue of another takes out both,
/// though it came to its own.
#[test]
fn an_operator_takes_both_out_of_check_by_the_own_queue_of_one() {
    let mut site = configured(MAIN, &telling());
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    under_way(&mut site);
    let queue = QueueKey { tenant: "demo".into(), pipeline: "check".into(), queue: own_queue(&b) };
    let (by, reason) = ("jo".to_owned(), "it hangs".to_owned());
    let kind = ArrivalKind::Dequeue { key: b.clone(), head: None, by, reason };
    let (id, event_id) = (ArrivalId("word".to_owned()), "operator".to_owned());
    let word = Arrival {
        id,
        at: site.world.now(),
        event_id,
        layout: 0,
        by_operator: true,
        taken_up: false,
        kind,
    };
    site.world.write_directly(queue::put_arrival(&queue, &word).unwrap());
    poll_once(cell::send(&site.ports(), &[Poke::Queue { queue }])).unwrap().unwrap();
    site.run();
    for (change, other) in [(&a, &b), (&b, &a)] {
        assert_eq!(checked(&site, change), [ended("DEQUEUED", &[head(&site, other)])]);
        assert!(
            comments(&site, change).contains("an operator took it out: it hangs"),
            "{}",
            comments(&site, change)
        );
    }
    assert!(
        comments(&site, &a).contains("org/two#2 left, and they need each other"),
        "{}",
        comments(&site, &a)
    );
    assert_over(&site, &[&a, &b]);
}

/// G13, Z6.5: what its forge tells of a change reaches it in the queue of another one.
#[test]
fn a_change_that_is_closed_takes_those_that_need_it_in_turn_out_of_check() {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    under_way(&mut site);
    site.forge.close(&b);
    site.run();
    for (change, other) in [(&a, &b), (&b, &a)] {
        assert_eq!(checked(&site, change), [ended("DEQUEUED", &[head(&site, other)])]);
    }
    assert_over(&site, &[&a, &b]);
}

/// G19, Z6.5: what enters a pipeline that supersedes check leaves that, in whichever queue it
/// stands there.
#[test]
fn both_leave_check_when_they_enter_the_gate_that_supersedes_it() {
    let reviewed = "    post-review: true\n";
    assert!(CONFIG.contains(reviewed));
    let mut site = configured(
        MAIN,
        &CONFIG.replace(reviewed, &format!("{reviewed}    supersedes: [check]\n")),
    );
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    under_way(&mut site);
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| queues(site).is_empty());
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 2]);
    for (change, other) in [(&a, &b), (&b, &a)] {
        assert_eq!(checked(&site, change), [ended("DEQUEUED", &[head(&site, other)])]);
    }
    assert_over(&site, &[&a, &b]);
}

/// D10, Z6.4, Z6.5: of a cycle in which one takes no part in check the other one is tested by
/// itself, with all of it merged.
#[test]
fn a_change_whose_mate_takes_no_part_in_check_is_tested_alone_there() {
    let check = "    check: {jobs: [common, of-two]}\n";
    let mut site = configured_with(MAIN, CONFIG, |of_two| {
        assert!(of_two.contains(check), "{of_two}");
        of_two.replace(check, "")
    });
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
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
    assert_over(&site, &[&a, &b]);
}

/// Z6.5, Z9.1: people see both in one queue, none that is empty, and are told with whom each stands
/// and where.
#[test]
fn both_are_shown_in_one_queue_and_each_says_with_whom_it_stands() {
    let mut site = allowing(MAIN);
    cycle(&site, &[("a", "x")], &[("b", "x")]);
    under_way(&mut site);
    let of_check = |list: &serde_json::Value, name: &str| {
        let list = list.as_array().unwrap();
        list.iter().find(|pipeline| pipeline[name] == "check").expect("it is there").clone()
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
    let together: Vec<&serde_json::Value> = items.iter().map(|item| &item["together"]).collect();
    let mates =
        |project: &str, number: u64| serde_json::json!([{"project": project, "number": number}]);
    assert_eq!(together, [&mates("org/two", 2), &mates("org/one", 1)]);
    for (change, project, mate) in [(1, "org/one", "org/two#2"), (2, "org/two", "org/one#1")] {
        let (status, told) =
            asked(&site, &format!("tenant/demo/why?project={project}&change={change}"));
        assert_eq!(status, 200, "{told}");
        let now = of_check(&told[0]["pipelines"], "pipeline")["now"].clone();
        let place = "they are tested and reported as one, in the queue forge.test/org/one#1";
        let said = format!("it and {mate} need each other: {place}");
        assert!(now.as_array().unwrap().iter().any(|line| *line == said), "{now}");
    }
}
