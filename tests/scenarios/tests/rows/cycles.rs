//! Changes that depend on each other, where the queue allows it and where not.

use super::graph::orders;
use super::operators::ask_as;
use super::{CONFIG, MAIN, PROJECT, approve, buildsets, comments, gate_builds, judge, merged};
use sluice_gate::{Landing, LandingEnd, LandingState, Turn};
use sluice_model::ProjectName;
use sluice_model::change::ChangeKey;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::BranchKey;
use sluice_model::poke::Queue;
use sluice_records::codec::{decode, with_body};
use sluice_records::report::Buildset;
use sluice_records::turn;
use sluice_runtime::Clock;
use sluice_runtime::record::{Expect, Record, Write};
use sluice_scenarios::Site;
use sluice_scenarios::sample::{COMMON, cloud};
use std::collections::BTreeSet;

/// The queue that both sides of a site would name.
const QUEUE: &str = "- queue: {name: integrated}\n";

/// A site whose queue allows cycles, each project with jobs of its own besides `common`.
pub(super) fn allowing(main: &str) -> Site {
    configured(main, CONFIG)
}

/// The same with this central configuration.
pub(super) fn configured(main: &str, config: &str) -> Site {
    configured_with(main, config, |of_two| of_two)
}

/// The same where the second project says something else of itself than the first.
pub(super) fn configured_with(main: &str, config: &str, said: impl Fn(String) -> String) -> Site {
    let config = config
        .replace("{name: integrated}", "{name: integrated, allow-circular-dependencies: true}");
    let jobs = "
- job: {name: common, run: playbooks/common.yaml, required-projects: [org/one, org/two]}
- job: {name: of-one, run: playbooks/one.yaml}
- job: {name: of-two, run: playbooks/two.yaml}
";
    let config = format!("{config}{jobs}");
    let project = |own: &str| {
        PROJECT
            .replace("[unit, other, lint]", &format!("[common, {own}]"))
            .replace("[unit]", &format!("[common, {own}]"))
    };
    let (one, two) = (project("of-one"), said(project("of-two")));
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", &one), ("shared", "0")]),
        ("org/two", &[(".zuul.yaml", &two), ("shared", "0")]),
    ];
    let main = main.replace(", org/bare, org/noop, org/gone", "");
    Site::new(7, &main, repositories, judge)
}

/// Proposes A and B, which depend on each other.
pub(super) fn cycle(site: &Site, a: &[(&str, &str)], b: &[(&str, &str)]) -> (ChangeKey, ChangeKey) {
    let a =
        site.forge.propose("org/one", 1, "A", "Depends-On: https://forge.test/org/two/pull/2", a);
    let b =
        site.forge.propose("org/two", 2, "B", "Depends-On: https://forge.test/org/one/pull/1", b);
    (a, b)
}

/// Returns a site with such a cycle that was checked and is approved; its gate has not looked yet.
fn approved_cycle(a: &[(&str, &str)], b: &[(&str, &str)]) -> (Site, ChangeKey, ChangeKey) {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, a, b);
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.take_in();
    (site, a, b)
}

/// Returns how many reports were made on a change.
fn reports(site: &Site, change: &ChangeKey) -> usize {
    let records = site.world.records();
    let all = records.iter().filter(|record| record.key.partition.starts_with("report#"));
    let all = all.map(|record| decode::<sluice_gate::Report>(record).unwrap());
    all.filter(|report| report.change.key == *change).count()
}

pub(super) fn statuses(site: &Site, change: &ChangeKey) -> Vec<String> {
    let statuses = site.forge.change(change).unwrap().facts.statuses;
    statuses.iter().map(|status| format!("{} {}", status.context, status.state)).collect()
}

/// Returns how a change ended in check each time, with the heads of what it was tested on; in no
/// order.
pub(super) fn checked(site: &Site, change: &ChangeKey) -> Vec<(String, Vec<String>)> {
    let records = site.world.records();
    let sets = records.iter().filter(|record| record.key.partition.starts_with("buildset#"));
    let sets = sets.map(|record| decode::<Buildset>(record).unwrap());
    let own = sets.filter(|set| {
        set.queue.pipeline.as_str() == "check" && set.item.candidate.change.key == *change
    });
    let heads = |set: &Buildset| {
        let needs = set.item.candidate.needs.iter();
        needs.map(|need| need.change.head.as_str().to_owned()).collect::<Vec<_>>()
    };
    own.map(|set| (set.result.clone(), heads(&set))).collect()
}

/// Returns the head that a change has now.
pub(super) fn head(site: &Site, change: &ChangeKey) -> String {
    site.forge.change(change).unwrap().facts.change.head.as_str().to_owned()
}

/// Panics unless a change was tested on what the other one is now, with this result, its vote says
/// so, and nothing is left over.
#[track_caller]
fn expect_checked_on(site: &Site, change: &ChangeKey, other: &ChangeKey, result: &str) {
    let told = checked(site, change);
    assert!(told.contains(&(result.to_owned(), vec![head(site, other)])), "{told:?}");
    let vote = format!("demo/check {}", result.to_lowercase());
    assert_eq!(statuses(site, change), [vote], "its vote is about what the other one is now");
    assert_eq!(site.ending(&[], &[change, other]).left_over, Vec::<String>::new());
}

/// D10, Z6.5: a new revision of one has the other tested on it as well, of which nothing came.
#[test]
fn a_new_revision_of_one_is_checked_with_all_that_need_it_in_turn() {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    let first = head(&site, &a);
    assert!(
        checked(&site, &b).iter().all(|(_, on)| *on == [first.clone()]),
        "{:?}",
        checked(&site, &b)
    );
    site.forge.revise(&a, "more", "broken of-two");
    site.run();
    let told = checked(&site, &b);
    assert!(told.contains(&("FAILURE".to_owned(), vec![head(&site, &a)])), "{told:?}");
    assert_eq!(statuses(&site, &b), ["demo/check failure"], "its vote is about what A is now");
    assert_eq!(statuses(&site, &a), ["demo/check failure"], "and they are one");
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// D10, Z6.5: of one that is still being tested on what the other was, the tests begin anew.
#[test]
fn a_change_in_check_begins_anew_when_one_that_it_is_tied_to_has_a_new_revision() {
    let mut site = allowing(MAIN);
    site.held = ["of-two".to_owned()].into();
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run_until(|site| {
        site.is_building() && site.builds().iter().any(|build| build.starts_with("check of-two "))
    });
    let first = head(&site, &a);
    site.forge.revise(&a, "more", "x");
    let is_dequeued = move |site: &Site, b: &ChangeKey| {
        checked(site, b).contains(&("DEQUEUED".to_owned(), vec![first.clone()]))
    };
    site.run_until(|site| is_dequeued(site, &b));
    site.held.clear();
    site.run();
    expect_checked_on(&site, &b, &a, "SUCCESS");
}

/// D10, Z6.5: changes that came to need each other after both were tested are tested together by
/// the next event of either, and by an operator's word about one.
#[test]
fn changes_that_came_to_need_each_other_are_checked_together_by_the_next_event_of_one() {
    for is_operators in [false, true] {
        let mut site = allowing(MAIN);
        let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
        site.run();
        let a = site.forge.propose(
            "org/one",
            1,
            "A",
            "Depends-On: https://forge.test/org/two/pull/2",
            &[("a", "x")],
        );
        site.run();
        assert_eq!(checked(&site, &b), [("SUCCESS".to_owned(), Vec::<String>::new())]);
        site.forge.describe(&b, "Depends-On: https://forge.test/org/one/pull/1", true);
        site.run();
        assert_eq!(checked(&site, &b).len(), 1, "no trigger asks for other descriptions");
        if is_operators {
            let kind = EventKind::Enqueue {
                tenant: "demo".into(),
                pipeline: "check".into(),
                number: 1,
                head: None,
            };
            let (connection, project) = (a.connection.clone(), a.project.clone());
            let effects =
                ask_as(&mut site, ForgeEvent { connection, project, sender: "jo".into(), kind })
                    .unwrap();
            assert!(effects.iter().any(|effect| effect.contains("as one with")), "{effects:?}");
        } else {
            site.forge.revise(&a, "more", "x");
            site.run();
        }
        expect_checked_on(&site, &b, &a, "SUCCESS");
    }
}

/// D10, Z6.1: of all that a trigger with `debug` has tested together it is told how their jobs were
/// decided.
#[test]
fn how_jobs_were_decided_is_told_of_all_that_need_each_other() {
    let opened = "github: [{event: pull_request, action: [opened, changed, reopened]}]";
    assert!(CONFIG.contains(opened));
    let explain = "{event: pull_request, action: comment, comment: '^explain$', debug: true}";
    let both = opened.replace("}]", &format!("}}, {explain}]"));
    let mut site = configured(MAIN, &CONFIG.replace(opened, &both));
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    for (comment, is_told) in [(None, false), (Some("explain"), true)] {
        if let Some(comment) = comment {
            site.forge.comment(&a, comment);
            site.run();
        }
        for change in [&a, &b] {
            let told = comments(&site, change);
            assert_eq!(told.contains("How the jobs were decided"), is_told, "{change}: {told}");
        }
    }
}

/// D10, Z6.4: who does not meet what a pipeline requires does not enter it by the event of another
/// one, nor does anybody where nobody asks what changes depend on.
#[test]
fn nobody_is_taken_in_by_the_event_of_another_one_where_that_may_not_be() {
    for more in ["require: {github: {label: ready}}", "ignore-dependencies: true"] {
        let check = format!("manager: independent\n    {more}");
        let mut site = configured(MAIN, &CONFIG.replacen("manager: independent", &check, 1));
        let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
        site.run();
        let before = checked(&site, &b).len();
        site.forge.label(&b, "other", false);
        let a = site.forge.propose(
            "org/one",
            1,
            "A",
            "Depends-On: https://forge.test/org/two/pull/2",
            &[("a", "x")],
        );
        site.forge.describe(&b, "Depends-On: https://forge.test/org/one/pull/1", false);
        site.forge.label(&a, "ready", false);
        site.run();
        assert_eq!((checked(&site, &a).len(), checked(&site, &b).len()), (1, before), "{more}");
    }
}

/// D10, Z4.3: in check none of them waits for what another one provides that waits for it in turn.
#[test]
fn changes_that_need_each_other_are_checked_without_waiting_for_what_each_provides() {
    let both = "{name: base, parent: null, provides: [image], requires: [image]}";
    let mut site = configured(MAIN, &CONFIG.replace("{name: base, parent: null}", both));
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    for change in [&a, &b] {
        assert_eq!(statuses(&site, change), ["demo/check success"], "{}", comments(&site, change));
    }
    let checks: Vec<_> = orders(&site)
        .into_iter()
        .filter(|order| order.queue.pipeline.as_str() == "check")
        .collect();
    assert!(
        !checks.is_empty() && checks.iter().all(|order| order.providers.is_empty()),
        "{checks:?}"
    );
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// D10: check votes for both; in the gate they are one bundle, and each has three reports in all.
#[test]
fn two_changes_that_need_each_other_are_voted_for_and_merge_together() {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    for change in [&a, &b] {
        assert_eq!(statuses(&site, change), ["demo/check success"]);
    }
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), Vec::<u64>::new(), "A is not approved");
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1, 2]);
    for change in [&a, &b] {
        assert_eq!(statuses(&site, change), ["demo/check success", "demo/gate success"]);
        assert_eq!(reports(&site, change), 3);
    }
    assert_eq!(gate_builds(&site, "of-two"), ["1 2"]);
    assert_eq!(gate_builds(&site, "of-one"), ["1 2"]);
    assert_eq!(site.ending(&["org/one", "org/two"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// D15: what both run alike runs once, in check and in the gate: three builds and not four, and as
/// many requests for nodes.
#[test]
fn a_job_that_both_run_alike_runs_once_for_the_bundle() {
    let on_node = "{name: base, parent: null, nodeset: {nodes: [{name: node, label: small}]}}";
    let (jobs, nodes) =
        (CONFIG.replace("{name: base, parent: null}", on_node), COMMON.replace(QUEUE, ""));
    let mut site = configured(MAIN, &[jobs, nodes, cloud(8)].concat());
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    let machines_before = site.cloud.asked().len();
    assert_eq!(machines_before, 3, "{:?}", site.builds());
    approve(&mut site, &[&a, &b]);
    let ordered = orders(&site).into_iter().filter(|order| order.queue.pipeline.as_str() == "gate");
    let requests: BTreeSet<_> = ordered.filter_map(|order| order.request).collect();
    assert_eq!(
        (requests.len(), site.cloud.asked().len() - machines_before),
        (3, 3),
        "{requests:?}"
    );
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
    let builds: Vec<String> =
        site.builds().into_iter().filter(|build| build.starts_with("gate ")).collect();
    assert_eq!(builds.len(), 3, "{builds:?}");
    assert_eq!(gate_builds(&site, "common"), ["1 2"]);
    assert_eq!(merged(&site), [1, 2]);
    for change in [&a, &b] {
        assert!(
            comments(&site, change).contains("common : SUCCESS"),
            "{}",
            comments(&site, change)
        );
    }
}

/// D13: A's job fails, both are told so, and none is merged.
#[test]
fn a_job_of_one_that_fails_keeps_both_out() {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, &[("a", "broken of-one")], &[("b", "x")]);
    let c = site.forge.propose("org/two", 3, "C", "", &[("c", "x")]);
    approve(&mut site, &[&a, &b, &c]);
    assert_eq!(merged(&site), [3]);
    assert_eq!(
        buildsets(&site, &[&a]),
        ["org/one#1 FAILURE", "org/two#2 FAILURE", "org/two#3 SUCCESS"]
    );
    for change in [&a, &b] {
        let told = comments(&site, change);
        assert!(told.contains("This change is part of a dependency cycle that failed."), "{told}");
    }
}

/// G12, Z6.5: one that is no longer approved keeps both out, though nobody has heard of it before
/// the first is to be merged.
#[test]
fn an_approval_of_one_that_is_taken_back_before_the_first_is_merged_keeps_both_out() {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.dismiss(&b);
    assert!(site.forge.next_webhook().is_some(), "its news are lost");
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    for change in [&a, &b] {
        let told = comments(&site, change);
        assert!(told.contains("unable to merge due to a missing merge requirement"), "{told}");
    }
}

/// G12, Z6.5: where somebody else merges the first, as it was tested, nobody has seen that the
/// second may follow: it does not, for its approval was taken back.
#[test]
fn a_bundle_of_which_somebody_merges_the_first_is_not_landed_without_asking_for_the_second() {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.merge_by_hand(&a).expect("it merges");
    site.forge.dismiss(&b);
    while site.forge.next_webhook().is_some() {}
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new(), "nothing was merged by us");
    assert!(
        !site.forge.files("org/two", "main").contains_key("b"),
        "what nobody approves did not land"
    );
    let told = buildsets(&site, &[&a]);
    assert_eq!(told, ["org/one#1 DEQUEUED", "org/two#2 DEQUEUED"]);
}

/// Z6.5: who depends on one of them comes in behind both.
#[test]
fn a_change_behind_a_cycle_is_tested_and_merged_on_all_of_it() {
    let mut site = allowing(MAIN);
    let (a, b) = cycle(&site, &[("shared", "a")], &[("b", "x")]);
    let c = site.forge.propose(
        "org/two",
        3,
        "C",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("c", "x")],
    );
    approve(&mut site, &[&a, &c, &b]);
    assert_eq!(merged(&site), [1, 2, 3]);
    assert_eq!(gate_builds(&site, "of-two"), ["1 2", "1 2 3"]);
    assert!(
        site.builds()
            .iter()
            .any(|build| build == "check of-two 2 1 3" || build == "check of-two 1 2 3")
    );
}

/// C01, Z6.5, Z6.6: configuration that needs both is tested with both, and live when both have
/// landed.
#[test]
fn a_cycle_may_bring_configuration_that_needs_both() {
    let mut site = allowing(MAIN);
    let fresh = "\n- job: {name: fresh, run: playbooks/fresh.yaml}\n";
    let defines = format!("{}{fresh}", PROJECT.replace("[unit, other, lint]", "[other]"));
    let uses = PROJECT.replace("[unit, other, lint]", "[fresh]");
    let (a, b) = cycle(&site, &[(".zuul.yaml", &defines)], &[(".zuul.yaml", &uses)]);
    site.run();
    for change in [&a, &b] {
        assert_eq!(statuses(&site, change), ["demo/check success"], "{}", comments(&site, change));
    }
    approve(&mut site, &[&a, &b]);
    assert_eq!(merged(&site), [1, 2], "{} {}", comments(&site, &a), comments(&site, &b));
    let c = site.forge.propose("org/two", 3, "C", "", &[("c", "x")]);
    approve(&mut site, &[&c]);
    assert_eq!(gate_builds(&site, "fresh"), ["1 2", "3"]);
    assert_eq!(site.ending(&[], &[&c]).left_over, Vec::<String>::new());
}

/// C01, Z6.6: of a bundle whose first change did not land nobody waits for the others to.
#[test]
fn a_bundle_with_configuration_whose_branch_moved_holds_its_tenant_up_no_longer() {
    let with =
        |job: &str| format!("{PROJECT}\n- job: {{name: {job}, run: playbooks/{job}.yaml}}\n");
    let (of_a, of_b) = (with("fresh"), with("fresher"));
    let (mut site, a, b) = approved_cycle(&[(".zuul.yaml", &of_a)], &[(".zuul.yaml", &of_b)]);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    let main =
        BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: "main".into() };
    site.forge.push_silently(&main, &[("pushed", "x")]);
    let before = site.world.now();
    site.run_until(|site| merged(site) == [1, 2]);
    assert!(
        site.world.now().since(before) < 300_000,
        "{} ms passed",
        site.world.now().since(before)
    );
    site.run();
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.5: however much is said of ten changes that need each other, they arrive.
#[test]
fn ten_changes_with_long_descriptions_that_need_each_other_merge_together() {
    let mut site = allowing(MAIN);
    let said = "so much is to be said of it, and more; ".repeat(200);
    let needs: String =
        (1..=10).map(|n| format!("Depends-On: https://forge.test/org/one/pull/{n}\n")).collect();
    let body = format!("{said}\n\n{needs}");
    let all: Vec<ChangeKey> = (1..=10)
        .map(|n| site.forge.propose("org/one", n, "one of ten", &body, &[(&format!("f{n}"), "x")]))
        .collect();
    approve(&mut site, &all.iter().collect::<Vec<_>>());
    assert_eq!(merged(&site).len(), 10, "{}", comments(&site, &all[0]));
    assert_eq!(site.ending(&[], &[]).left_over, Vec::<String>::new());
}

/// D04, D11: where the queue forbids cycles, check and gate say so, to those that were asked for,
/// and nothing merges.
#[test]
fn a_cycle_is_refused_with_its_text_where_the_queue_forbids_it() {
    let mut site = super::site();
    let (a, b) = cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    for (change, name) in [(&a, "org/"), (&b, "org/")] {
        assert_eq!(statuses(&site, change), ["demo/check failure"]);
        let told = comments(&site, change);
        let text = format!("Dependency cycle detected and project {name}");
        assert!(
            told.contains(&text) && told.contains("doesn't allow circular dependencies"),
            "{told}"
        );
    }
    let before = (reports(&site, &a), reports(&site, &b));
    approve(&mut site, &[&a]);
    assert_eq!(
        (reports(&site, &a), reports(&site, &b)),
        (before.0 + 1, before.1),
        "A is told once, B never"
    );
    approve(&mut site, &[&b]);
    assert_eq!((merged(&site), site.builds()), (Vec::new(), Vec::new()));
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// D04, D10, D11: a cycle that appears while its changes stand in the gate takes both out, neither
/// as failed; where cycles are allowed they come in again as one.
#[test]
fn changes_that_come_to_need_each_other_in_the_gate_are_dequeued_and_have_not_failed() {
    for is_allowed in [false, true] {
        let mut site = if is_allowed { allowing(MAIN) } else { super::site() };
        let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        let b = site.forge.propose(
            "org/two",
            2,
            "B",
            "Depends-On: https://forge.test/org/one/pull/1",
            &[("b", "x")],
        );
        site.run();
        site.forge.approve(&a);
        site.forge.approve(&b);
        let is_of_both = |build: &String| build.starts_with("gate ") && build.ends_with(" 1 2");
        site.run_until(|site| site.is_building() && site.builds().iter().any(is_of_both));
        site.forge.describe(&a, "Depends-On: https://forge.test/org/two/pull/2", true);
        site.take_in();
        site.run();
        assert_eq!(merged(&site), Vec::<u64>::new());
        assert_eq!(buildsets(&site, &[&a, &b]), ["org/one#1 DEQUEUED", "org/two#2 DEQUEUED"]);
        let word = if is_allowed {
            "did not enter together"
        } else {
            "doesn't allow circular dependencies"
        };
        for change in [&a, &b] {
            let told = comments(&site, change);
            assert!(told.contains(word), "{told}");
        }
        approve(&mut site, &[&a, &b]);
        assert_eq!(merged(&site), if is_allowed { vec![1, 2] } else { Vec::new() });
        assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
    }
}

/// C2, Z6.5: a bundle of which one branch was taken by another queue merges nothing, not even where
/// it holds the branch still; its queue has all of it tested again and lands it when both are its
/// own.
#[test]
fn a_bundle_whose_second_branch_was_taken_by_another_queue_merges_nothing() {
    let (mut site, a, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    let landings = |site: &Site| {
        let records = site
            .world
            .records()
            .into_iter()
            .filter(|record| record.key.partition.starts_with("landing#"));
        records.map(|record| decode::<Landing>(&record).unwrap()).collect::<Vec<_>>()
    };
    site.run_until(|site| !landings(site).is_empty());
    let of_b =
        BranchKey { project: ProjectName::new("forge.test", "org/two"), branch: "main".into() };
    let record = site.world.record(&turn::key(&of_b)).unwrap();
    let mut taken: Turn = decode(&record).unwrap();
    taken.fence += 1;
    let holder = taken.holder.as_mut().expect("the branch is the bundle's");
    (holder.queue.queue, holder.item) = ("another".into(), "nobody-s".into());
    let record = with_body(record, &taken).unwrap();
    let record = Record { revision: record.revision + 1, fence: taken.fence, ..record };
    site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    site.handle(Queue::Reports);
    assert_eq!(merged(&site), Vec::<u64>::new());
    let ended = landings(&site).remove(0);
    assert!(
        matches!(ended.state, LandingState::Ended { end: LandingEnd::BaseMoved { .. }, .. }),
        "{ended:?}"
    );
    site.run();
    assert_eq!(merged(&site), [1, 2], "who holds the branch is over: its landing is nowhere");
    let last = landings(&site).into_iter().find(|landing| landing.change.key == b).unwrap();
    assert_eq!(last.fence, Some(taken.fence + 1));
    assert_eq!(site.ending(&["org/one", "org/two"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.5: where the forge refuses the second, the first is in its branch: the queue waits for a
/// person.
#[test]
fn a_bundle_that_is_closed_half_way_freezes_its_queue() {
    let (mut site, _, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    site.run_until(|site| merged(site) == [1]);
    site.forge.close(&b);
    site.run();
    assert_eq!(merged(&site), [1]);
    let is_frozen = |record: &sluice_runtime::record::Record| {
        record.key.sort == "head"
            && record.body.contains("which needs it and is needed by it, did not")
    };
    assert!(site.world.records().iter().any(is_frozen));
}

/// Z6.5: a change of the bundle that cannot land is found out before the first one lands.
#[test]
fn nothing_of_a_bundle_lands_where_the_second_cannot() {
    let (mut site, a, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.close(&b);
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert!(
        comments(&site, &a).contains("which it needs, is not open any more"),
        "{}",
        comments(&site, &a)
    );
}

/// Z6.5, D01: so is one that by now depends on a change which is not merged.
#[test]
fn nothing_of_a_bundle_lands_where_the_second_depends_on_an_open_change() {
    let (mut site, a, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    site.forge.propose("org/two", 3, "C", "", &[("c", "x")]);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    let on = |project: &str, number: u64| {
        format!("Depends-On: https://forge.test/org/{project}/pull/{number}")
    };
    site.forge.describe(&b, &format!("{}\n{}", on("one", 1), on("two", 3)), false);
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    for change in [&a, &b] {
        let told = comments(&site, change);
        assert!(told.contains("which it needs, may not land yet: it depends on"), "{told}");
    }
}

/// Z6.5, R06: nor is one waited for whose connection was removed, of which nobody can tell any more
/// whether it may land.
#[test]
fn nothing_of_a_bundle_lands_where_the_connection_of_the_second_was_removed() {
    let (mut site, a, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    let order = |site: &Site| -> Option<Record> {
        site.world.records().into_iter().find(|record| record.key.partition.starts_with("landing#"))
    };
    site.run_until(|site| order(site).is_some());
    let record = order(&site).unwrap();
    let mut landing: Landing = decode(&record).unwrap();
    landing.together[0].change.key.connection = "removed".into();
    let record = with_body(record, &landing).unwrap();
    let record = Record { revision: record.revision + 1, ..record };
    site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert_eq!(buildsets(&site, &[&a, &b]), ["org/one#1 MERGE_FAILURE", "org/two#2 MERGE_FAILURE"]);
    let told = comments(&site, &a);
    assert!(
        told.contains("which it needs, cannot be read: the connection removed was removed"),
        "{told}"
    );
}

/// D16: a change that needs more than the tenant looks at is not tested, and nobody is told.
#[test]
fn a_change_with_more_needs_than_the_tenant_allows_is_left_alone() {
    let main = MAIN.replace("name: demo", "name: demo\n    max-dependencies: 1");
    let mut site = allowing(&main);
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let b = site.forge.propose(
        "org/one",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    let c = site.forge.propose(
        "org/one",
        3,
        "C",
        "Depends-On: https://forge.test/org/one/pull/2",
        &[("c", "x")],
    );
    site.run();
    assert_eq!(statuses(&site, &a), ["demo/check success"]);
    assert_eq!(statuses(&site, &b), ["demo/check success"]);
    assert_eq!((statuses(&site, &c), comments(&site, &c)), (Vec::new(), String::new()));
    approve(&mut site, &[&c, &b, &a]);
    assert_eq!(merged(&site), [1, 2]);
}
