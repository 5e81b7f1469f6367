//! Changes as a Gerrit has them: chains, votes, topics and hashtags.

use super::standard_jobs::report_lines;
use super::{comments, judge, merged};
use sluice_model::change::ChangeKey;
use sluice_scenarios::Site;
use sluice_scenarios::forge::OWN;
use sluice_scenarios::forge::{DraftState, SubmitRequirements};

const MAIN: &str = "
- tenant:
    name: demo
    source:
      github:
        config-projects: [org/config]
      gerrit:
        untrusted-projects: [org/one, org/two]
";

const CONFIG: &str = r"
- pipeline:
    name: check
    manager: independent
    trigger:
      gerrit:
        - {event: patchset-created}
        - {event: hashtags-changed, added: run-.*}
    success: {gerrit: {Verified: 1}}
- pipeline:
    name: gate
    manager: dependent
    post-review: true
    require:
      gerrit:
        open: true
        wip: false
        approval: [{Code-Review: 2}, {Approved: 1}]
    trigger:
      gerrit: [{event: comment-added, approval: [{Approved: 1}]}]
    success: {gerrit: {Verified: 2, submit: true}}
    failure: {gerrit: {Verified: -2}}
- job: {name: base, parent: null}
- job: {name: unit, run: playbooks/unit.yaml}
- job: {name: other, run: playbooks/other.yaml}
- job: {name: lint, run: playbooks/lint.yaml}
- queue: {name: integrated, allow-circular-dependencies: true, dependencies-by-topic: true}
";

const PROJECT: &str = "
- project:
    queue: integrated
    check: {jobs: [unit]}
    gate: {jobs: [unit, other, lint]}
";

fn site() -> Site {
    site_of(PROJECT)
}

/// Returns a site whose projects have this configuration file.
fn site_of(project: &str) -> Site {
    let project: &[(&str, &str)] = &[(".zuul.yaml", project), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("review.test/org/one", project),
        ("review.test/org/two", project),
    ];
    Site::new(7, MAIN, repositories, judge)
}

fn upload(site: &Site, number: u64, parent: Option<&ChangeKey>) -> ChangeKey {
    site.forge.upload("org/one", number, parent, &[(&format!("f{number}"), "x")])
}

/// Casts both votes that the gate requires.
fn vote(site: &Site, change: &ChangeKey) {
    site.forge.vote(change, "Code-Review", 2);
    site.forge.vote(change, "Approved", 1);
}

fn approve(site: &mut Site, change: &ChangeKey) {
    vote(site, change);
    site.take_in();
    site.run();
}

/// Asserts that the only change lands although no further event arrives: the sweep finds it.
fn assert_lands_without_events(site: &mut Site, change: &ChangeKey) {
    site.forge.forget_webhooks();
    site.sweep();
    assert_eq!(merged(site), [1]);
    assert_eq!(site.ending(&[], &[change]).left_over, Vec::<String>::new());
}

fn gate_builds(site: &Site) -> Vec<String> {
    site.builds()
        .into_iter()
        .filter_map(|build| build.strip_prefix("gate ").map(str::to_owned))
        .collect()
}

/// G09: a chain of commits lands in order once all of it may land. Changes below a merged change
/// are not even read.
#[test]
fn a_chain_of_commits_waits_until_all_below_are_approved_and_lands_in_order() {
    for twice in [false, true] {
        let mut site = site();
        let m2 = upload(&site, 102, None);
        let m1 = upload(&site, 101, Some(&m2));
        let a = upload(&site, 1, Some(&m1));
        for merged in [&m2, &m1] {
            site.forge.merge_silently(merged);
            while site.forge.next_stream_event().is_some() {}
        }
        site.twice = twice;
        let b = upload(&site, 2, Some(&a));
        let c = upload(&site, 3, Some(&b));
        site.run();
        for change in [&c, &b] {
            approve(&mut site, change);
            assert_eq!((merged(&site), gate_builds(&site)), (vec![], vec![]));
        }
        approve(&mut site, &a);
        assert_eq!(merged(&site), [1, 2, 3]);
        assert_eq!(gate_builds(&site).iter().filter(|build| build.starts_with("unit ")).count(), 3);
        assert!(gate_builds(&site).contains(&"unit 1 2 3".to_owned()), "{:?}", gate_builds(&site));
        assert!(!site.forge.read_numbers().contains(&102), "already merged M2 is never queried");
        assert_eq!(site.ending(&[], &[&a, &b, &c]).left_over, Vec::<String>::new());
    }
}

/// S04: three builds of A, and three of D on A and C after C was rebased onto A. No events arrive
/// for B and C.
#[test]
fn a_chain_that_was_rebased_past_one_of_its_changes_is_checked_without_it() {
    let mut site = site_of(&PROJECT.replace("[unit]", "[unit, other, lint]"));
    site.sweep(); // The next sweep is ten minutes away, so missed events stay missed.
    let a = upload(&site, 1, None);
    site.run();
    assert_eq!(site.builds(), ["check lint 1", "check other 1", "check unit 1"]);
    let b = upload(&site, 2, Some(&a));
    let c = upload(&site, 3, Some(&b));
    site.forge.rebase(&c, Some(&a), &[("f3", "y")]);
    site.forge.forget_webhooks();
    let d = upload(&site, 4, Some(&c));
    site.run();
    let of_d: Vec<String> =
        site.builds().into_iter().filter(|build| !build.ends_with(" 1")).collect();
    assert_eq!(of_d, ["check lint 1 3 4", "check other 1 3 4", "check unit 1 3 4"]);
    assert_eq!(site.builds().len(), 6);
    for change in [&a, &d] {
        assert_eq!(report_lines(&site, "check", change), ["Build succeeded."]);
    }
    assert_eq!(site.ending(&[], &[&a, &d]).left_over, Vec::<String>::new());
}

/// S04: a change that was formerly in the middle of a chain does not affect the chain after the
/// rebase.
#[test]
fn a_rebase_past_a_change_removes_it_from_the_chain() {
    let mut site = site();
    let a = upload(&site, 1, None);
    let b = upload(&site, 2, Some(&a));
    let c = upload(&site, 3, Some(&b));
    site.run();
    site.forge.rebase(&c, Some(&a), &[("f3", "y")]);
    let d = upload(&site, 4, Some(&c));
    site.run();
    approve(&mut site, &a);
    assert_eq!((gate_builds(&site).len(), merged(&site)), (3, vec![1]));
    approve(&mut site, &d);
    assert_eq!(gate_builds(&site).len(), 3, "D waits for C");
    approve(&mut site, &c);
    assert_eq!(merged(&site), [1, 3, 4]);
    let of_d =
        gate_builds(&site).into_iter().filter(|build| build.ends_with('4')).collect::<Vec<_>>();
    assert_eq!(of_d, ["lint 3 4", "other 3 4", "unit 3 4"], "without B");
    assert_eq!(site.ending(&[], &[&a, &c, &d]).left_over, Vec::<String>::new());
    drop(b);
}

/// G11, G12: both votes, no work in progress, and the forge's own submit requirements.
#[test]
fn a_change_enters_with_both_votes_and_leaves_when_it_is_work_in_progress() {
    let mut site = site();
    let a = upload(&site, 1, None);
    site.forge.vote(&a, "Approved", 1);
    site.run();
    assert_eq!(gate_builds(&site), Vec::<String>::new(), "one vote of two");
    site.held = ["unit".to_owned()].into();
    vote(&site, &a);
    site.run_until(|site| !gate_builds(site).is_empty());
    site.forge.set_work_in_progress(&a, DraftState::Draft);
    site.take_in();
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new());
    site.forge.set_work_in_progress(&a, DraftState::Ready);
    site.forge.set_submit_requirements(&a, SubmitRequirements::Unmet);
    site.forge.vote(&a, "Approved", 1);
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new(), "the forge would refuse it");
    site.forge.set_submit_requirements(&a, SubmitRequirements::Met);
    site.forge.vote(&a, "Approved", 1);
    site.run();
    assert_eq!(merged(&site), [1]);
    assert_eq!(site.ending(&[], &[&a]).left_over, Vec::<String>::new());
}

/// Z6.5: changes of one topic are tested in one state and land together, across projects.
#[test]
fn changes_of_one_topic_go_through_the_gate_together() {
    let mut site = site();
    let a = upload(&site, 1, None);
    let b = site.forge.upload("org/two", 2, None, &[("b", "x")]);
    let alone = upload(&site, 3, None);
    site.forge.topic(&[&a, &b], "feature");
    site.forge.topic(&[&alone], "another");
    site.run();
    approve(&mut site, &b);
    assert_eq!(merged(&site), Vec::<u64>::new(), "the other one of the topic is not approved");
    approve(&mut site, &alone);
    assert_eq!(merged(&site), [3]);
    approve(&mut site, &a);
    assert_eq!(merged(&site), [3, 1, 2]);
    assert_eq!(site.ending(&[], &[&a, &b]).left_over, Vec::<String>::new());
}

/// Z6.5, C5: changes of a topic with too many changes are not tested, and do not block other
/// changes.
#[test]
fn a_change_of_a_too_large_topic_is_refused_without_blocking_others() {
    let mut site = site();
    let a = upload(&site, 1, None);
    let alone = upload(&site, 2, None);
    site.forge.topic(&[&a], "feature");
    site.forge.enlarge_topics();
    site.run();
    assert_eq!(site.builds(), ["check unit 2"]);
    approve(&mut site, &a);
    approve(&mut site, &alone);
    assert_eq!(merged(&site), [2]);
    assert_eq!(site.ending(&[], &[&a, &alone]).left_over, Vec::<String>::new());
}

/// Z6.5, G09: each change of a topic lands after its parent, even if its number is lower.
#[test]
fn a_change_of_a_topic_lands_after_its_parent() {
    let mut site = site();
    let below = upload(&site, 2, None);
    let above = upload(&site, 1, Some(&below));
    site.forge.topic(&[&above, &below], "feature");
    site.run();
    assert_eq!(site.builds(), ["check unit 2 1"], "they are one in check, too");
    approve(&mut site, &above);
    assert_eq!(merged(&site), Vec::<u64>::new());
    approve(&mut site, &below);
    assert_eq!(merged(&site), [2, 1]);
    assert_eq!(site.ending(&[], &[&above, &below]).left_over, Vec::<String>::new());
}

/// Z6.1: a hashtag triggers the pipeline whose trigger names it.
#[test]
fn a_matching_hashtag_triggers_a_pipeline() {
    let mut site = site();
    let a = upload(&site, 1, None);
    site.run();
    assert_eq!(site.builds(), ["check unit 1"]);
    for (tag, builds) in [("other", 1), ("run-long", 2)] {
        site.forge.hashtag(&a, tag);
        site.run();
        assert_eq!(site.builds().len(), builds, "{tag}");
    }
}

/// C5, G11: the sweep finds missed votes, hashtags, topics and work in progress, and handles each
/// once. That also holds for a vote whose event arrives late.
#[test]
fn missed_events_of_a_gerrit_change_are_found_once() {
    let config = format!(
        "{CONFIG}
- pipeline:
    name: facts
    manager: independent
    trigger: {{gerrit: [{{event: wip-state-changed}}, {{event: topic-changed}}, {{event: vote-deleted}}]}}
- project: {{name: org/one, facts: {{jobs: [unit]}}}}
"
    );
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("review.test/org/one", project),
        ("review.test/org/two", project),
    ];
    type Edit = fn(&Site, &ChangeKey);
    let edits: [(&str, Edit, usize); 5] = [
        ("gate", |site, change| site.forge.vote(change, "Approved", 1), 3),
        ("check", |site, change| site.forge.hashtag(change, "run-long"), 2),
        ("facts", |site, change| site.forge.set_work_in_progress(change, DraftState::Draft), 1),
        ("facts", |site, change| site.forge.topic(&[change], "feature"), 1),
        ("facts", |site, change| site.forge.vote(change, "Code-Review", 0), 1),
    ];
    for (at, (pipeline, edit, expected)) in edits.into_iter().enumerate() {
        let mut site = Site::new(7, MAIN, repositories, judge);
        let change = upload(&site, 1, None);
        site.run();
        site.forge.vote(&change, "Code-Review", 2);
        site.run();
        edit(&site, &change);
        let event = site.forge.next_stream_event();
        for _ in 0..2 {
            site.world.advance_millis(600_000);
            site.forge.request_sweep(&change);
            site.run();
            let builds = site.builds().iter().filter(|build| build.starts_with(pipeline)).count();
            assert_eq!(builds, expected, "edit {at}: {:?}", site.builds());
        }
        if let Some(event) = event {
            site.forge.deliver_late(event);
            site.run();
            let builds = site.builds().iter().filter(|build| build.starts_with(pipeline)).count();
            assert_eq!(builds, expected, "edit {at}, delivered late");
        }
    }
}

/// C5, G09: changes whose events the stream lost are found by the sweep, as with other forges.
#[test]
fn a_change_whose_events_were_all_lost_is_checked_and_lands() {
    let mut site = site();
    site.sweep();
    let change = upload(&site, 1, None);
    site.forge.forget_webhooks();
    site.run();
    assert_eq!(site.builds(), Vec::<String>::new());
    site.sweep();
    assert_eq!(site.builds(), ["check unit 1"]);
    vote(&site, &change);
    assert_lands_without_events(&mut site, &change);
}

/// C5, G12: a change leaves because a vote is removed, and the same vote is cast again. Neither
/// event arrives.
#[test]
fn a_change_enters_again_after_an_unseen_vote_change() {
    let mut site = site();
    let change = upload(&site, 1, None);
    site.run();
    site.held = ["unit".to_owned()].into();
    vote(&site, &change);
    site.run_until(|site| !gate_builds(site).is_empty());
    site.forge.vote(&change, "Approved", 0);
    site.forge.forget_webhooks();
    site.world.advance_millis(1_000);
    site.forge.hashtag(&change, "other");
    site.take_in();
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), Vec::<u64>::new(), "it left when the change was read");
    site.forge.vote(&change, "Approved", 1);
    assert_lands_without_events(&mut site, &change);
}

/// G11, Z6.2: the result of a pipeline is one Gerrit review with the votes and the report.
#[test]
fn a_pipeline_votes_on_a_change_with_a_report() {
    for (text, check, gate, landed) in [("x", 1, 2, vec![1]), ("broken other", 1, -2, vec![])] {
        let mut site = site();
        let a = site.forge.upload("org/one", 1, None, &[("f1", text)]);
        site.run();
        let own = |site: &Site| {
            let votes = site.forge.change(&a).unwrap().facts.votes;
            let own = votes.iter().filter(|vote| vote.username == OWN);
            own.map(|vote| (vote.label.clone(), vote.value)).collect::<Vec<_>>()
        };
        assert_eq!(own(&site), [("Verified".to_owned(), check)]);
        assert!(comments(&site, &a).contains("Build succeeded."), "{}", comments(&site, &a));
        approve(&mut site, &a);
        assert_eq!((own(&site), merged(&site)), (vec![("Verified".to_owned(), gate)], landed));
        let said = if gate > 0 { "Build succeeded." } else { "Build failed." };
        assert!(comments(&site, &a).contains(said), "{}", comments(&site, &a));
        // Self-authored events have no effect.
        let builds = site.builds();
        site.forge.request_sweep(&a);
        site.run();
        assert_eq!(site.builds(), builds);
    }
}
