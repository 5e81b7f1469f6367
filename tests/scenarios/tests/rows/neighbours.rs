//! Neighbours of the rows: the same situation with two projects in place of one, the event on
//! another change, the failure in the second place, or check in place of gate.

use super::bundles::{check_results, head, propose_cycle, site_with_cycles, statuses};
use super::trees::depends_on;
use super::{
    CONFIG, MAIN, PROJECT, approve, buildsets, comments, gate_builds, judge, merged, propose, site,
    site_of, unlinked,
};
use sluice_model::change::{ChangeKey, ChangeStatus};
use sluice_scenarios::Site;

/// Approves changes in this order, and handles each event before the next.
fn enqueue(site: &mut Site, changes: &[&ChangeKey]) {
    for change in changes {
        site.forge.approve(change);
        site.take_in();
    }
}

/// Returns the results of changes in the gate, as `1 SUCCESS`, in the order of their numbers.
fn results(site: &Site) -> Vec<String> {
    let sets = buildsets(site, &[]);
    sets.iter().map(|set| set.split_once('#').unwrap().1.to_owned()).collect()
}

fn assert_nothing_left(site: &Site, changes: &[&ChangeKey]) {
    assert_eq!(site.ending(&["org/one", "org/two"], changes).left_over, Vec::<String>::new());
}

/// G05 with the failure second: A is merged as tested, C is tested without B.
#[test]
fn a_failure_in_the_middle_leaves_the_change_ahead_alone() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "broken unit")]);
    let c = propose(&site, 3, &[("c", "x")]);
    approve(&mut site, &[&a, &b, &c]);
    assert_eq!(merged(&site), [1, 3]);
    let builds = gate_builds(&site, "unit");
    assert_eq!(builds.iter().filter(|build| *build == "1").count(), 1, "{builds:?}");
    assert!(builds.contains(&"1 3".to_owned()), "{builds:?}");
    assert_eq!(results(&site), ["1 SUCCESS", "2 FAILURE", "3 SUCCESS"]);
    assert_nothing_left(&site, &[&a, &b, &c]);
}

/// G05 across two projects of one queue.
#[test]
fn a_failed_change_of_another_project_is_left_out() {
    let mut site = site();
    let a = site.forge.propose("org/two", 1, "A", "", &[("a", "broken unit")]);
    let b = propose(&site, 2, &[("b", "x")]);
    let c = site.forge.propose("org/two", 3, "C", "", &[("c", "x")]);
    approve(&mut site, &[&a, &b, &c]);
    assert_eq!(merged(&site), [2, 3]);
    let builds = gate_builds(&site, "unit");
    assert!(builds.contains(&"2".to_owned()) && builds.contains(&"2 3".to_owned()), "{builds:?}");
    assert_nothing_left(&site, &[&a, &b, &c]);
}

/// G09 with the approvals in the order of the chain: each change enters as it is approved.
#[test]
fn a_chain_that_is_approved_from_below_enters_in_order() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose("org/two", 2, "B", &depends_on(&a), &[("b", "x")]);
    let c = site.forge.propose("org/one", 3, "C", &depends_on(&b), &[("c", "x")]);
    site.run();
    enqueue(&mut site, &[&a, &b, &c]);
    site.run();
    assert_eq!(merged(&site), [1, 2, 3]);
    assert_nothing_left(&site, &[&a, &b, &c]);
}

/// G12 in the middle: a change whose approval is dismissed leaves with what depends on it, and what
/// does not is tested without both.
#[test]
fn a_dismissed_approval_takes_out_what_depends_on_the_change_only() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    let c = site.forge.propose("org/two", 3, "C", &depends_on(&b), &[("c", "x")]);
    let d = propose(&site, 4, &[("d", "x")]);
    site.run();
    site.held.insert("unit".to_owned());
    enqueue(&mut site, &[&a, &b, &c, &d]);
    site.run_until(|site| gate_builds(site, "unit").contains(&"1 2 3 4".to_owned()));
    site.forge.dismiss(&b);
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 4]);
    assert!(comments(&site, &b).contains("missing merge requirement"), "{}", comments(&site, &b));
    assert_nothing_left(&site, &[&a, &b, &c, &d]);
}

/// G13 with changes behind: a closed change leaves, and what is behind is tested without it.
#[test]
fn a_closed_change_leaves_and_the_changes_behind_go_on() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    let c = propose(&site, 3, &[("c", "x")]);
    site.run();
    site.held.insert("unit".to_owned());
    enqueue(&mut site, &[&a, &b, &c]);
    site.run_until(|site| gate_builds(site, "unit").contains(&"1 2 3".to_owned()));
    site.forge.close(&b);
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 3]);
    assert!(gate_builds(&site, "unit").contains(&"1 3".to_owned()));
    assert_nothing_left(&site, &[&a, &b, &c]);
}

/// G14 across projects: a new revision of a dependency takes out what depends on it, in the other
/// project too.
#[test]
fn a_new_revision_in_another_project_takes_out_what_depends_on_it() {
    let mut site = site();
    let a = site.forge.propose("org/two", 1, "A", "", &[("a", "x")]);
    let b = site.forge.propose("org/one", 2, "B", &depends_on(&a), &[("b", "x")]);
    let c = propose(&site, 3, &[("c", "x")]);
    site.run();
    site.held.insert("unit".to_owned());
    enqueue(&mut site, &[&a, &b, &c]);
    site.run_until(|site| gate_builds(site, "unit").contains(&"1 2 3".to_owned()));
    site.forge.revise(&a, "a", "y");
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [3]);
    assert_nothing_left(&site, &[&a, &b, &c]);
}

/// G15 with a change behind: a change that the forge refuses to merge leaves, and the next one is
/// tested on the branch as it is.
#[test]
fn a_refused_merge_does_not_stop_the_change_behind() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run();
    site.forge.refuse_merges("protected");
    enqueue(&mut site, &[&a, &b]);
    site.run_until(|site| results(site).contains(&"1 MERGE_FAILURE".to_owned()));
    site.forge.accept_merges();
    site.run();
    assert_eq!(merged(&site), [2]);
    assert_nothing_left(&site, &[&a, &b]);
}

/// G19 with two changes: approving one leaves the other in check.
#[test]
fn entering_the_gate_takes_only_that_change_out_of_check() {
    let superseding = CONFIG.replace("    name: gate\n", "    name: gate\n    supersedes: check\n");
    let mut site = site_of(&superseding, PROJECT);
    site.held.insert("unit".to_owned());
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.run_until(|site| site.running().len() == 2);
    enqueue(&mut site, &[&a]);
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1]);
    assert_eq!(statuses(&site, &b), ["demo/check success"]);
    assert_nothing_left(&site, &[&a, &b]);
}

/// S02 with a failing change ahead: a change that conflicts only with a change that fails is merged.
#[test]
fn a_conflict_with_a_change_that_fails_is_none() {
    let mut site = site();
    let a = propose(&site, 1, &[("shared", "broken unit")]);
    let b = propose(&site, 2, &[("shared", "b")]);
    approve(&mut site, &[&a, &b]);
    assert_eq!(merged(&site), [2]);
    assert_nothing_left(&site, &[&a, &b]);
}

/// D01 in check: a change is tested on a dependency that is approved nowhere.
#[test]
fn check_tests_a_change_on_its_open_dependency_in_another_project() {
    let mut site = site();
    let a = site.forge.propose("org/two", 1, "A", "", &[("a", "broken unit")]);
    let b = site.forge.propose("org/one", 2, "B", &depends_on(&a), &[("b", "x")]);
    site.run();
    let of_b = check_results(&site, &b);
    assert_eq!(of_b, [("FAILURE".to_owned(), vec![head(&site, &a)])]);
    assert_nothing_left(&site, &[&a, &b]);
}

/// D05 with a dependency that is closed: the change is refused with that reason, once.
#[test]
fn a_closed_dependency_is_reported_once() {
    let mut site = site();
    let a = site.forge.propose("org/two", 1, "A", "", &[("a", "x")]);
    let b = site.forge.propose("org/one", 2, "B", &depends_on(&a), &[("b", "x")]);
    site.run();
    site.forge.close(&a);
    site.run();
    enqueue(&mut site, &[&b]);
    site.run();
    site.forge.approve(&b);
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    let text = comments(&site, &b);
    assert_eq!(text.matches("org/two#1").count(), 1, "{text}");
    assert_nothing_left(&site, &[&a, &b]);
}

/// D08 with the failure second: the change below is merged, and the one above gets
/// a report of why it is not.
#[test]
fn only_what_depends_on_the_failed_change_fails_with_it() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose("org/two", 2, "B", &depends_on(&a), &[("b", "broken unit")]);
    let c = site.forge.propose("org/one", 3, "C", &depends_on(&b), &[("c", "x")]);
    site.run();
    enqueue(&mut site, &[&a, &b, &c]);
    site.run();
    assert_eq!(merged(&site), [1]);
    assert!(comments(&site, &c).contains("depends on a change that failed to merge"));
    assert_nothing_left(&site, &[&a, &b, &c]);
}

/// D10 in one project: two changes of one repository that need each other.
#[test]
fn a_cycle_within_one_project_is_merged() {
    let mut site = site_with_cycles(MAIN);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/one/pull/2",
        &[("a", "x")],
    );
    let b = site.forge.propose("org/one", 2, "B", &depends_on(&a), &[("b", "x")]);
    site.run();
    enqueue(&mut site, &[&a, &b]);
    site.run();
    let mut both = merged(&site);
    both.sort_unstable();
    assert_eq!(both, [1, 2]);
    assert_nothing_left(&site, &[&a, &b]);
}

/// D10 with the event on the second member only.
#[test]
fn the_event_of_either_member_brings_in_a_bundle() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    while site.forge.next_webhook().is_some() {}
    enqueue(&mut site, &[&b]);
    site.run();
    assert_eq!(merged(&site).len(), 2);
    assert_nothing_left(&site, &[&a, &b]);
}

/// D13 with a change behind: what depends on a member of a failed bundle leaves with it, and what
/// does not is tested without it.
#[test]
fn a_failed_bundle_takes_out_what_depends_on_it() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "broken of-two")]);
    let c = site.forge.propose("org/one", 3, "C", &depends_on(&b), &[("c", "x")]);
    let d = site.forge.propose("org/one", 4, "D", "", &[("d", "x")]);
    site.run();
    enqueue(&mut site, &[&a, &b, &c, &d]);
    site.run();
    assert_eq!(merged(&site), [4]);
    assert!(comments(&site, &c).contains("depends on a change that failed to merge"));
    assert_nothing_left(&site, &[&a, &b, &c, &d]);
}

/// G14 for a bundle: a new revision of a member takes the bundle out, and the change behind it goes
/// on.
#[test]
fn a_new_revision_of_a_member_takes_the_bundle_out_of_the_gate() {
    let mut site = site_with_cycles(MAIN);
    let (a, b) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    let c = site.forge.propose("org/one", 3, "C", "", &[("c", "x")]);
    site.run();
    site.held.insert("common".to_owned());
    enqueue(&mut site, &[&a, &b, &c]);
    site.run_until(|site| gate_builds(site, "common").iter().any(|build| build == "1 2 3"));
    site.forge.revise(&b, "b", "y");
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [3]);
    assert_nothing_left(&site, &[&a, &b, &c]);
}

/// C01 in check: a change on top of one that adds a job runs that job.
#[test]
fn check_runs_the_jobs_that_a_dependency_adds() {
    let more = format!("{PROJECT}- job: {{name: fresh, run: playbooks/unit.yaml}}\n")
        .replace("check: {jobs: [unit]}", "check: {jobs: [unit, fresh]}");
    let mut site = site();
    let a = propose(&site, 1, &[(".zuul.yaml", &more)]);
    let b = site.forge.propose("org/one", 2, "B", &depends_on(&a), &[("b", "x")]);
    site.run();
    let of_b: Vec<String> =
        site.builds().into_iter().filter(|build| build == "check fresh 1 2").collect();
    assert_eq!(of_b.len(), 1, "{:?}", site.builds());
    assert_nothing_left(&site, &[&a, &b]);
}

/// C03 the other way: a revision without the new job list runs the live one.
#[test]
fn a_revision_that_takes_its_configuration_back_runs_the_live_jobs() {
    let more = PROJECT.replace("check: {jobs: [unit]}", "check: {jobs: [unit, other]}");
    let mut site = site();
    let a = propose(&site, 1, &[(".zuul.yaml", &more)]);
    site.run();
    assert!(site.builds().contains(&"check other 1".to_owned()), "{:?}", site.builds());
    let before = site.builds().len();
    site.forge.revise(&a, ".zuul.yaml", PROJECT);
    site.run();
    let after = site.builds();
    assert_eq!(after.len(), before + 1, "{after:?}");
    assert_nothing_left(&site, &[&a]);
}

/// J14 in check: a failed non-voting job does not reject a change.
#[test]
fn a_failed_non_voting_job_of_check_rejects_nothing() {
    let with_lint = PROJECT.replace("check: {jobs: [unit]}", "check: {jobs: [unit, lint]}");
    let mut site = site_of(CONFIG, &with_lint);
    let a = propose(&site, 1, &[("a", "broken lint")]);
    site.run();
    assert_eq!(statuses(&site, &a), ["demo/check success"]);
    assert!(unlinked(&comments(&site, &a)).contains("lint : FAILURE"), "{}", comments(&site, &a));
    assert_nothing_left(&site, &[&a]);
}

/// X07 after the merge: a change that depends on a merged change of a config project is tested.
#[test]
fn a_merged_change_of_a_config_project_is_no_obstacle() {
    let mut site = site();
    let central = site.forge.propose("org/config", 1, "central", "", &[("README", "x")]);
    let b = site.forge.propose("org/one", 2, "B", &depends_on(&central), &[("b", "x")]);
    site.run();
    site.forge.merge_outside(&central);
    site.run();
    assert_eq!(
        site.forge.change(&central).unwrap().facts.status,
        ChangeStatus::Merged,
        "outside of the gate"
    );
    enqueue(&mut site, &[&b]);
    site.run();
    assert_eq!(merged(&site).last(), Some(&2));
    assert_nothing_left(&site, &[&b]);
}

/// G04 with no shared queue: a project does not wait for the change of another one.
#[test]
fn projects_with_queues_of_their_own_do_not_wait_for_each_other() {
    let alone = PROJECT.replace("    queue: integrated\n", "");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/one", &[(".zuul.yaml", &alone), ("shared", "0")]),
        ("org/two", &[(".zuul.yaml", &alone), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    site.run();
    site.held.insert("other".to_owned());
    enqueue(&mut site, &[&a, &b]);
    site.run_until(|site| site.running().len() == 2);
    site.release("other", Some(2));
    site.run_until(|site| merged(site) == [2]);
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [2, 1]);
    assert_nothing_left(&site, &[&a, &b]);
}
