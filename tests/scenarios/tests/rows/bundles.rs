//! Dependency cycles: bundles where the queue allows them, refusals where it does not.

use super::graph::orders;
use super::operator_enqueues::ask_as;
use super::{
    CONFIG, MAIN, PROJECT, approve, buildsets, comments, gate_builds, judge, merged, unlinked,
};
use sluice_gate::{BranchLock, Landing, LandingEnd, LandingState};
use sluice_model::ProjectName;
use sluice_model::change::ChangeKey;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::BranchKey;
use sluice_model::wakeup::MessageQueue;
use sluice_records::branch_lock;
use sluice_records::codec::{decode, with_body};
use sluice_records::report::Buildset;
use sluice_runtime::Clock;
use sluice_runtime::record::{Expect, Record, Write};
use sluice_scenarios::Site;
use sluice_scenarios::forge::Announcement;
use sluice_scenarios::sample::{COMMON, cloud};
use std::collections::BTreeSet;

/// The queue that both sides of a site would name.
const QUEUE: &str = "- queue: {name: integrated}\n";

/// Returns a site whose queue allows dependency cycles. Each project has jobs of its own in
/// addition to `common`.
pub(super) fn site_with_cycles(main: &str) -> Site {
    configured(main, CONFIG)
}

/// Returns the same site with another central configuration.
pub(super) fn configured(main: &str, config: &str) -> Site {
    configured_with(main, config, |of_two| of_two)
}

/// Returns the same site, where `second` derives the second project's configuration from the first
/// one's.
pub(super) fn configured_with(main: &str, config: &str, second: impl Fn(String) -> String) -> Site {
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
    let (one, two) = (project("of-one"), second(project("of-two")));
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", &one), ("shared", "0")]),
        ("org/two", &[(".zuul.yaml", &two), ("shared", "0")]),
    ];
    let main = main.replace(", org/bare, org/noop, org/gone", "");
    Site::new(7, &main, repositories, judge)
}

/// Proposes changes A and B that depend on each other.
pub(super) fn propose_cycle(
    site: &Site,
    a: &[(&str, &str)],
    b: &[(&str, &str)],
) -> (ChangeKey, ChangeKey) {
    let a =
        site.forge.propose("org/one", 1, "A", "Depends-On: https://forge.test/org/two/pull/2", a);
    let b =
        site.forge.propose("org/two", 2, "B", "Depends-On: https://forge.test/org/one/pull/1", b);
    (a, b)
}

/// Returns a site with such a cycle, checked and approved. The gate has not reconciled yet.
pub(super) fn approved_cycle(
    a: &[(&str, &str)],
    b: &[(&str, &str)],
) -> (Site, ChangeKey, ChangeKey) {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, a, b);
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.take_in();
    (site, a, b)
}

/// Returns the number of reports on a change.
fn report_count(site: &Site, change: &ChangeKey) -> usize {
    let records = site.world.records();
    let all = records.iter().filter(|record| record.key.partition.starts_with("report#"));
    let all = all.map(|record| decode::<sluice_gate::Report>(record).unwrap());
    all.filter(|report| report.change.key == *change).count()
}

pub(super) fn statuses(site: &Site, change: &ChangeKey) -> Vec<String> {
    let statuses = site.forge.change(change).unwrap().facts.statuses;
    statuses.iter().map(|status| format!("{} {}", status.context, status.state)).collect()
}

/// Returns the results of a change in check, each with the heads of the changes that it was tested
/// on. The order is unspecified.
pub(super) fn check_results(site: &Site, change: &ChangeKey) -> Vec<(String, Vec<String>)> {
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

/// Returns the current head of a change.
pub(super) fn head(site: &Site, change: &ChangeKey) -> String {
    site.forge.change(change).unwrap().facts.change.head.as_str().to_owned()
}

/// Asserts that a change was tested on the current head of the other one with this result, that its
/// vote agrees, and that nothing is left over.
#[track_caller]
fn assert_checked_on(site: &Site, change: &ChangeKey, other: &ChangeKey, result: &str) {
    let report = check_results(site, change);
    assert!(report.contains(&(result.to_owned(), vec![head(site, other)])), "{report:?}");
    let vote = format!("demo/check {}", result.to_lowercase());
    assert_eq!(statuses(site, change), [vote], "its vote is about what the other one is now");
    assert_eq!(site.ending(&[], &[change, other]).left_over, Vec::<String>::new());
}

/// D10, Z6.5: a new revision of one member causes a new test of the other member too, although no
/// event names it.
#[test]
fn a_new_revision_of_a_member_is_checked_with_the_whole_bundle() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    let first = head(&site, &a);
    assert!(
        check_results(&site, &b).iter().all(|(_, on)| *on == [first.clone()]),
        "{:?}",
        check_results(&site, &b)
    );
    site.forge.revise(&a, "more", "broken of-two");
    site.run();
    let report = check_results(&site, &b);
    assert!(report.contains(&("FAILURE".to_owned(), vec![head(&site, &a)])), "{report:?}");
    assert_eq!(statuses(&site, &b), ["demo/check failure"], "its vote is about what A is now");
    assert_eq!(statuses(&site, &a), ["demo/check failure"], "and they are one");
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// D10, Z6.5: a member that is being tested on an outdated revision of the other one is tested
/// again.
#[test]
fn a_new_revision_of_a_member_restarts_the_tests_of_the_other() {
    let mut site = site_with_cycles(MAIN);
    site.held = ["of-two".to_owned()].into();
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run_until(|site| {
        site.is_building() && site.builds().iter().any(|build| build.starts_with("check of-two "))
    });
    let first = head(&site, &a);
    site.forge.revise(&a, "more", "x");
    let is_dequeued = move |site: &Site, b: &ChangeKey| {
        check_results(site, b).contains(&("DEQUEUED".to_owned(), vec![first.clone()]))
    };
    site.run_until(|site| is_dequeued(site, &b));
    site.held.clear();
    site.run();
    assert_checked_on(&site, &b, &a, "SUCCESS");
}

/// D10, Z6.5: changes that form a cycle only after both were tested are tested together. The next
/// event of either one causes that, and so does an operator command for one.
#[test]
fn changes_that_become_a_bundle_are_checked_together_after_the_next_event() {
    for is_operators in [false, true] {
        let mut site = site_with_cycles(MAIN);
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
        assert_eq!(check_results(&site, &b), [("SUCCESS".to_owned(), Vec::<String>::new())]);
        site.forge.describe(
            &b,
            "Depends-On: https://forge.test/org/one/pull/1",
            Announcement::Webhook,
        );
        site.run();
        assert_eq!(check_results(&site, &b).len(), 1, "no trigger asks for other descriptions");
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
            assert!(
                effects.iter().any(|effect| effect.contains("in one bundle with")),
                "{effects:?}"
            );
        } else {
            site.forge.revise(&a, "more", "x");
            site.run();
        }
        assert_checked_on(&site, &b, &a, "SUCCESS");
    }
}

/// D10, Z6.1: a trigger with `debug` adds the job selection to the report of every member.
#[test]
fn debug_explains_the_job_selection_of_every_member() {
    let opened = "github: [{event: pull_request, action: [opened, changed, reopened]}]";
    assert!(CONFIG.contains(opened));
    let explain = "{event: pull_request, action: comment, comment: '^explain$', debug: true}";
    let both = opened.replace("}]", &format!("}}, {explain}]"));
    let mut site = configured(MAIN, &CONFIG.replace(opened, &both));
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    for (comment, is_explained) in [(None, false), (Some("explain"), true)] {
        if let Some(comment) = comment {
            site.forge.comment(&a, comment);
            site.run();
        }
        for change in [&a, &b] {
            let report = comments(&site, change);
            assert_eq!(
                report.contains("How the jobs were selected"),
                is_explained,
                "{change}: {report}"
            );
        }
    }
}

/// D10, Z6.4: a member that does not meet a pipeline's requirements is not enqueued by an event of
/// another member. No member is, where the pipeline ignores dependencies.
#[test]
fn an_event_enqueues_only_members_that_meet_the_requirements() {
    for more in ["require: {github: {label: ready}}", "ignore-dependencies: true"] {
        let check = format!("manager: independent\n    {more}");
        let mut site = configured(MAIN, &CONFIG.replacen("manager: independent", &check, 1));
        let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
        site.run();
        let before = check_results(&site, &b).len();
        site.forge.label(&b, "other", Announcement::None);
        let a = site.forge.propose(
            "org/one",
            1,
            "A",
            "Depends-On: https://forge.test/org/two/pull/2",
            &[("a", "x")],
        );
        site.forge.describe(
            &b,
            "Depends-On: https://forge.test/org/one/pull/1",
            Announcement::None,
        );
        site.forge.label(&a, "ready", Announcement::None);
        site.run();
        assert_eq!(
            (check_results(&site, &a).len(), check_results(&site, &b).len()),
            (1, before),
            "{more}"
        );
    }
}

/// D10, Z4.3: in check no member waits for artifacts of another member that waits for it in turn.
#[test]
fn members_are_checked_without_waiting_for_each_others_artifacts() {
    let both = "{name: base, parent: null, provides: [image], requires: [image]}";
    let mut site = configured(MAIN, &CONFIG.replace("{name: base, parent: null}", both));
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
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

/// D10: check votes on both members. In the gate they are one bundle, and each gets three reports
/// in total.
#[test]
fn two_members_get_votes_and_merge_together() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
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
        assert_eq!(report_count(&site, change), 3);
    }
    assert_eq!(gate_builds(&site, "of-two"), ["1 2"]);
    assert_eq!(gate_builds(&site, "of-one"), ["1 2"]);
    assert_eq!(site.ending(&["org/one", "org/two"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// D15: a job that both members run identically runs once, in check and in the gate. That makes
/// three builds instead of four, and as many node requests.
#[test]
fn a_job_that_both_run_alike_runs_once_for_the_bundle() {
    let on_node = "{name: base, parent: null, nodeset: {nodes: [{name: node, label: small}]}}";
    let (jobs, nodes) =
        (CONFIG.replace("{name: base, parent: null}", on_node), COMMON.replace(QUEUE, ""));
    let mut site = configured(MAIN, &[jobs, nodes, cloud(8)].concat());
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    let machines_before = site.cloud.requested_types().len();
    assert_eq!(machines_before, 3, "{:?}", site.builds());
    approve(&mut site, &[&a, &b]);
    let ordered = orders(&site).into_iter().filter(|order| order.queue.pipeline.as_str() == "gate");
    let requests: BTreeSet<_> = ordered.filter_map(|order| order.request).collect();
    assert_eq!(
        (requests.len(), site.cloud.requested_types().len() - machines_before),
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
            unlinked(&comments(&site, change)).contains("common : SUCCESS"),
            "{}",
            comments(&site, change)
        );
    }
}

/// D13: a job of A fails; both get a failure report and neither merges.
#[test]
fn a_failed_job_of_one_member_rejects_both() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "broken of-one")], &[("b", "x")]);
    let c = site.forge.propose("org/two", 3, "C", "", &[("c", "x")]);
    approve(&mut site, &[&a, &b, &c]);
    assert_eq!(merged(&site), [3]);
    assert_eq!(
        buildsets(&site, &[&a]),
        ["org/one#1 FAILURE", "org/two#2 FAILURE", "org/two#3 SUCCESS"]
    );
    for change in [&a, &b] {
        let report = comments(&site, change);
        assert!(
            report.contains("This change is part of a dependency cycle that failed."),
            "{report}"
        );
    }
}

/// G12, Z6.5: a member that is no longer approved rejects both, even if its webhook did not arrive
/// before the first merge.
#[test]
fn a_dismissed_approval_of_one_member_before_the_merge_rejects_both() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.dismiss(&b);
    assert!(site.forge.next_webhook().is_some(), "the webhook is dropped");
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    for change in [&a, &b] {
        let report = comments(&site, change);
        assert!(report.contains("unable to merge due to a missing merge requirement"), "{report}");
    }
}

/// G12, Z6.5: a third party merges the first member as it was tested. Whether the second may follow
/// was not verified: its approval was dismissed, so it does not land.
#[test]
fn the_second_member_is_checked_again_if_the_first_was_merged_elsewhere() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
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
        "an unapproved change did not land"
    );
    let report = buildsets(&site, &[&a]);
    assert_eq!(report, ["org/one#1 DEQUEUED", "org/two#2 DEQUEUED"]);
}

/// Z6.5: a change that depends on one member enters behind the bundle.
#[test]
fn a_change_that_depends_on_a_member_is_tested_behind_the_whole_bundle() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("shared", "a")], &[("b", "x")]);
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

/// C01, Z6.5, Z6.6: configuration that needs both members is tested with both, and is live once
/// both have landed.
#[test]
fn a_bundle_may_contain_configuration_that_needs_all_members() {
    let mut site = site_with_cycles(MAIN);
    let fresh = "\n- job: {name: fresh, run: playbooks/fresh.yaml}\n";
    let defines = format!("{}{fresh}", PROJECT.replace("[unit, other, lint]", "[other]"));
    let uses = PROJECT.replace("[unit, other, lint]", "[fresh]");
    let (a, b) = propose_cycle(&site, &[(".zuul.yaml", &defines)], &[(".zuul.yaml", &uses)]);
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

/// C01, Z6.6: if the first member did not land, the tenant does not wait for the configuration of
/// the others.
#[test]
fn a_bundle_that_fails_to_land_does_not_block_its_tenant() {
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

/// Z6.5: ten members with very long descriptions still reach the gate.
#[test]
fn a_bundle_of_ten_changes_with_long_descriptions_merges() {
    let mut site = site_with_cycles(MAIN);
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

/// D04, D11: if the queue forbids cycles, check and gate say so on the changes that were enqueued,
/// and nothing merges.
#[test]
fn a_dependency_cycle_is_refused_if_the_queue_forbids_it() {
    let mut site = super::site();
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    for (change, name) in [(&a, "org/"), (&b, "org/")] {
        assert_eq!(statuses(&site, change), ["demo/check failure"]);
        let report = comments(&site, change);
        let text = format!("Dependency cycle detected and project {name}");
        assert!(
            report.contains(&text) && report.contains("doesn't allow circular dependencies"),
            "{report}"
        );
    }
    let before = (report_count(&site, &a), report_count(&site, &b));
    approve(&mut site, &[&a]);
    assert_eq!(
        (report_count(&site, &a), report_count(&site, &b)),
        (before.0 + 1, before.1),
        "A gets one report, B none"
    );
    approve(&mut site, &[&b]);
    assert_eq!((merged(&site), site.builds()), (Vec::new(), Vec::new()));
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// D04, D10, D11: a cycle that appears while its changes are in the gate dequeues both, neither as
/// failed. If cycles are allowed, they enter again as one bundle.
#[test]
fn changes_that_form_a_cycle_in_the_gate_are_dequeued_without_failure() {
    for is_allowed in [false, true] {
        let mut site = if is_allowed { site_with_cycles(MAIN) } else { super::site() };
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
        site.forge.describe(
            &a,
            "Depends-On: https://forge.test/org/two/pull/2",
            Announcement::Webhook,
        );
        site.take_in();
        site.run();
        assert_eq!(merged(&site), Vec::<u64>::new());
        assert_eq!(buildsets(&site, &[&a, &b]), ["org/one#1 DEQUEUED", "org/two#2 DEQUEUED"]);
        let word = if is_allowed {
            "were enqueued separately"
        } else {
            "doesn't allow circular dependencies"
        };
        for change in [&a, &b] {
            let report = comments(&site, change);
            assert!(report.contains(word), "{report}");
        }
        approve(&mut site, &[&a, &b]);
        assert_eq!(merged(&site), if is_allowed { vec![1, 2] } else { Vec::new() });
        assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
    }
}

/// C2, Z6.5: another queue takes the lock of one branch of a bundle. Nothing of the bundle merges,
/// not even into the branch whose lock it still holds. Its queue tests it again and lands it once
/// it holds both locks.
#[test]
fn a_bundle_without_the_lock_of_every_branch_merges_nothing() {
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
    let record = site.world.record(&branch_lock::key(&of_b)).unwrap();
    let mut taken: BranchLock = decode(&record).unwrap();
    taken.fence += 1;
    let holder = taken.holder.as_mut().expect("the branch is the bundle's");
    (holder.queue.queue, holder.item) = ("another".into(), "another-item".into());
    let record = with_body(record, &taken).unwrap();
    let record = Record { revision: record.revision + 1, fence: taken.fence, ..record };
    site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    site.handle(MessageQueue::Reports);
    assert_eq!(merged(&site), Vec::<u64>::new());
    let ended = landings(&site).remove(0);
    assert!(
        matches!(ended.state, LandingState::Ended { end: LandingEnd::BaseMoved { .. }, .. }),
        "{ended:?}"
    );
    site.run();
    assert_eq!(merged(&site), [1, 2], "who holds the branch is over: its landing is nowhere");
    let last = landings(&site).into_iter().find(|landing| landing.change.key == b).unwrap();
    assert_eq!(last.fence, taken.fence + 1);
    assert_eq!(site.ending(&["org/one", "org/two"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.5: if the second member cannot be merged after the first was, both changes get a report at
/// once. It is tried again for ten minutes; then the queue goes on without the bundle.
#[test]
fn a_partly_merged_bundle_is_reported_at_once_and_leaves_after_ten_minutes() {
    let (mut site, a, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    site.run_until(|site| merged(site) == [1]);
    let began = site.world.now();
    site.forge.close(&b);
    site.run_until(|site| comments(site, &a).contains("Only a part of this bundle was merged"));
    assert!(site.world.now().since(began) <= 60_000, "{began:?} {:?}", site.world.now());
    assert!(comments(&site, &b).contains("of the same dependency cycle was not merged"));
    site.run();
    assert_eq!(merged(&site), [1]);
    assert!(site.world.now().since(began) >= 600_000);
    assert!(comments(&site, &b).contains("The forge did not merge it"), "{}", comments(&site, &b));
    assert_eq!(comments(&site, &a).matches("Only a part").count(), 1);
    assert_eq!(site.ending(&["org/one", "org/two"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.5: a member that could not be merged at first is merged when the obstacle is gone.
#[test]
fn the_rest_of_a_bundle_is_merged_once_it_can_be() {
    let (mut site, a, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    site.run_until(|site| merged(site) == [1]);
    site.forge.close(&b);
    site.run_until(|site| comments(site, &a).contains("Only a part of this bundle was merged"));
    site.forge.reopen(&b);
    site.run();
    assert_eq!(merged(&site), [1, 2]);
    assert_eq!(site.ending(&["org/one", "org/two"], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.5: a member that cannot land is detected before the first member lands.
#[test]
fn nothing_of_a_bundle_lands_if_a_member_cannot() {
    let (mut site, a, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.close(&b);
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert!(
        comments(&site, &a).contains("a member of its bundle, is no longer open"),
        "{}",
        comments(&site, &a)
    );
}

/// Z6.5, D01: the same for a member that now depends on an unmerged change.
#[test]
fn nothing_of_a_bundle_lands_if_a_member_depends_on_an_open_change() {
    let (mut site, a, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    site.forge.propose("org/two", 3, "C", "", &[("c", "x")]);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    let on = |project: &str, number: u64| {
        format!("Depends-On: https://forge.test/org/{project}/pull/{number}")
    };
    site.forge.describe(&b, &format!("{}\n{}", on("one", 1), on("two", 3)), Announcement::None);
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    for change in [&a, &b] {
        let report = comments(&site, change);
        assert!(
            report.contains("a member of its bundle, may not be merged yet: it now depends on"),
            "{report}"
        );
    }
}

/// Z6.5, R06: the bundle does not wait for a member whose connection was removed. Whether that
/// member may land can no longer be verified.
#[test]
fn nothing_of_a_bundle_lands_if_the_connection_of_a_member_was_removed() {
    let (mut site, a, b) = approved_cycle(&[("a", "x")], &[("b", "x")]);
    let order = |site: &Site| -> Option<Record> {
        site.world.records().into_iter().find(|record| record.key.partition.starts_with("landing#"))
    };
    site.run_until(|site| order(site).is_some());
    let record = order(&site).unwrap();
    let mut landing: Landing = decode(&record).unwrap();
    landing.later_members[0].change.key.connection = "removed".into();
    let record = with_body(record, &landing).unwrap();
    let record = Record { revision: record.revision + 1, ..record };
    site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert_eq!(buildsets(&site, &[&a, &b]), ["org/one#1 MERGE_FAILURE", "org/two#2 MERGE_FAILURE"]);
    let report = comments(&site, &a);
    assert!(
        report
            .contains("a member of its bundle, cannot be read: the connection removed was removed"),
        "{report}"
    );
}

/// D16: a change with more dependencies than the tenant's limit is not tested and gets no report.
#[test]
fn a_change_with_too_many_dependencies_is_ignored() {
    let main = MAIN.replace("name: demo", "name: demo\n    max-dependencies: 1");
    let mut site = site_with_cycles(&main);
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
