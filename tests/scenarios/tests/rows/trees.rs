//! Trees of changes that need each other: what one event brings in, and what keeps a change out.

use super::bundles::{propose_cycle, site_with_cycles};
use super::{CONFIG, MAIN, PROJECT, approve, comments, gate_builds, merged, site, site_of};
use sluice_gate::explain::RoutingRecord;
use sluice_model::change::ChangeKey;
use sluice_records::change;
use sluice_records::codec::decode;
use sluice_scenarios::Site;

pub(super) fn depends_on(change: &ChangeKey) -> String {
    format!(
        "Depends-On: https://forge.test/{}/pull/{}",
        change.project.name(),
        change.number().unwrap()
    )
}

/// Returns a site whose gate is triggered by the comment `gate`, and requires an approval.
fn site_with_comments() -> Site {
    let approval = "{event: pull_request_review, action: submitted, state: approved}";
    let comment = "{event: pull_request, action: comment, comment: gate}";
    site_of(&CONFIG.replace(approval, comment), PROJECT)
}

/// Approves changes, which triggers nothing at [`site_with_comments`]; then comments on one of them.
fn approve_and_comment(site: &mut Site, changes: &[&ChangeKey], named: &ChangeKey) {
    site.run();
    for change in changes {
        site.forge.approve(change);
    }
    site.run();
    assert_eq!(merged(site), Vec::<u64>::new());
    site.forge.comment(named, "gate");
    site.run();
}

/// Returns what the latest event that triggered a pipeline led to.
fn outcome(site: &Site, change: &ChangeKey, pipeline: &str) -> String {
    let record = site.world.record(&change::verdicts_key(change)).unwrap();
    let routing: RoutingRecord = decode(&record).unwrap();
    let pipelines = &routing.pipelines;
    let of = pipelines.iter().find(|routing| routing.pipeline.as_str() == pipeline).unwrap();
    of.triggered.as_ref().map(|entry| entry.why.clone()).unwrap_or_default()
}

/// D01, D02, G09: one event for any change of a tree brings in all of it: what the change needs, and
/// what needs that, depth first. The order is the same whichever change the event is about.
#[test]
fn a_whole_tree_enters_in_the_same_order_whichever_change_the_event_names() {
    for named in 0..5 {
        let mut site = site_with_comments();
        let root = site.forge.propose("org/one", 1, "root", "", &[("r", "x")]);
        let left = site.forge.propose("org/two", 2, "left", &depends_on(&root), &[("l", "x")]);
        let right = site.forge.propose("org/one", 3, "right", &depends_on(&root), &[("m", "x")]);
        let leaf = site.forge.propose("org/one", 4, "leaf", &depends_on(&left), &[("n", "x")]);
        let body = format!("{}\n{}", depends_on(&left), depends_on(&right));
        let both = site.forge.propose("org/two", 5, "both", &body, &[("o", "x")]);
        let all = [root, left, right, leaf, both];
        approve_and_comment(&mut site, &all.each_ref(), &all[named]);
        assert_eq!(merged(&site), [1, 2, 4, 3, 5], "the event is about {}", all[named]);
        assert_eq!(
            gate_builds(&site, "unit"),
            ["1", "1 2", "1 2 4", "1 2 4 3", "1 2 4 3 5"],
            "the event is about {}",
            all[named]
        );
    }
}

/// D02: what a change behind needs comes in too, though the event's own change does not need it.
#[test]
fn a_second_root_comes_in_ahead_of_the_change_that_needs_both() {
    let mut site = site_with_comments();
    let one = site.forge.propose("org/one", 1, "one", "", &[("a", "x")]);
    let two = site.forge.propose("org/two", 2, "two", "", &[("b", "x")]);
    let body = format!("{}\n{}", depends_on(&one), depends_on(&two));
    let both = site.forge.propose("org/one", 3, "both", &body, &[("c", "x")]);
    approve_and_comment(&mut site, &[&one, &two, &both], &one);
    assert_eq!(merged(&site), [1, 2, 3]);
}

/// D02: a dependency in another queue never comes in ahead. That is reported once for each patch set
/// and explained; once the dependency is merged, the change enters.
#[test]
fn a_dependency_in_another_queue_is_reported_once_for_each_patch_set() {
    let mut site = site();
    let other = site.forge.propose("org/noop", 2, "other", "", &[("b", "x")]);
    let change = site.forge.propose("org/one", 1, "change", &depends_on(&other), &[("a", "x")]);
    approve(&mut site, &[&change]);
    approve(&mut site, &[&change]);
    let reports = |site: &Site| comments(site, &change).matches("does not share a queue").count();
    assert_eq!((merged(&site), reports(&site)), (vec![], 1), "{}", comments(&site, &change));
    let why = outcome(&site, &change, "gate");
    assert!(why.contains("org/noop") && why.contains("does not share a queue"), "{why}");
    site.forge.revise(&change, "a", "y");
    approve(&mut site, &[&change]);
    assert_eq!((merged(&site), reports(&site)), (vec![], 2));
    approve(&mut site, &[&other]);
    approve(&mut site, &[&change]);
    assert_eq!((merged(&site), reports(&site)), (vec![2, 1], 2));
}

/// D02: a refusal is reported once, also while other changes are in the queue.
#[test]
fn a_refusal_is_reported_once_while_other_changes_are_queued() {
    let mut site = site();
    let other = site.forge.propose("org/noop", 2, "other", "", &[("b", "x")]);
    let change = site.forge.propose("org/one", 1, "change", &depends_on(&other), &[("a", "x")]);
    let ahead = site.forge.propose("org/one", 3, "ahead", "", &[("c", "x")]);
    site.run();
    site.held = ["unit".to_owned()].into();
    for approved in [&ahead, &change, &change] {
        site.forge.approve(approved);
        site.take_in();
        site.run_now();
    }
    assert_eq!(site.running(), ["unit"], "the queue is not empty");
    site.held.clear();
    site.run();
    let reports = comments(&site, &change).matches("does not share a queue").count();
    assert_eq!((merged(&site), reports), (vec![3], 1), "{}", comments(&site, &change));
}

/// D01: a dependency that is not approved yet is waited for. Nothing is reported; it is explained.
#[test]
fn a_dependency_that_is_not_approved_is_explained_and_not_reported() {
    let mut site = site();
    let need = site.forge.propose("org/two", 2, "need", "", &[("b", "x")]);
    let change = site.forge.propose("org/one", 1, "change", &depends_on(&need), &[("a", "x")]);
    approve(&mut site, &[&change]);
    assert!(!comments(&site, &change).contains("depends on"), "{}", comments(&site, &change));
    let why = outcome(&site, &change, "gate");
    assert!(why.contains("org/two#2, which may not enter yet: "), "{why}");
    approve(&mut site, &[&need]);
    assert_eq!(merged(&site), [2, 1]);
}

/// Z6.5: a bundle member that is tested with another is explained as sent, not as having too many
/// dependencies.
#[test]
fn a_member_that_is_tested_with_another_is_explained_as_sent() {
    let mut site = site_with_cycles(MAIN);
    let (one, two) = propose_cycle(&site, &[("a", "x")], &[("b", "x")]);
    site.run();
    for member in [&one, &two] {
        assert_eq!(outcome(&site, member, "check"), "sent to its queue", "{member}");
    }
}
