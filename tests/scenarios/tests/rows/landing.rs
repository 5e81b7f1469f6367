//! Landings: what merges into a branch was tested on that branch, whatever happens to the change in
//! the meantime.

use super::branch_moves::main_branch;
use super::{
    CONFIG, PROJECT, approve, buildsets, comments, gate_builds, merged, propose, site, site_of,
};
use bytes::Bytes;
use sluice_forge::Forge;
use sluice_gate::{Attempt, Landing, LandingEnd, LandingState};
use sluice_memory::{Fate, poll_once};
use sluice_model::change::ChangeKey;
use sluice_model::{ConnectionName, Timestamp};
use sluice_records::codec::{decode, with_body};
use sluice_records::connection;
use sluice_records::landing::wakeup;
use sluice_reporter::Reporter;
use sluice_runtime::Clock;
use sluice_runtime::batch::{ReconcileError, Reconciler as _};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Due, Expect, Record, Write};
use sluice_scenarios::Site;
use sluice_scenarios::forge::{Announcement, Visibility};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// Returns a site whose gate has a queue for each branch.
fn per_branch() -> Site {
    let config = CONFIG.replace("{name: integrated}", "{name: integrated, per-branch: true}");
    site_of(&config, PROJECT)
}

fn is_halted(site: &Site) -> bool {
    site.world.records().iter().any(|record| record.body.contains("until an operator resumes it"))
}

/// Z6.4: a GitHub merge request names the head but not the base, so the reporter verifies the base
/// before it merges.
#[test]
fn a_change_that_was_retargeted_does_not_land_on_the_new_branch() {
    let mut site = site();
    site.forge.branch_off("org/one", "main", "release");
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.retarget(&a, "release");
    // The webhook is dropped, so the landing starts without it.
    let webhook = site.forge.next_webhook();
    assert!(webhook.is_some());
    site.run();
    assert!(!site.forge.files("org/one", "release").contains_key("a"), "nothing untested landed");
    assert_eq!(merged(&site), [2]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 MERGE_FAILURE", "org/one#2 SUCCESS"]);
    assert!(comments(&site, &a).contains("it now targets release"), "{}", comments(&site, &a));
    assert!(!is_halted(&site));
}

/// G12, Z6.4: a change without its approval does not merge, even if the webhook of the dismissal
/// did not arrive.
#[test]
fn a_change_whose_approval_is_dismissed_before_the_merge_does_not_land() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.dismiss(&a);
    assert!(site.forge.next_webhook().is_some(), "the webhook is dropped");
    site.run();
    assert_eq!(merged(&site), [2]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 MERGE_FAILURE", "org/one#2 SUCCESS"]);
    let report = comments(&site, &a);
    assert!(
        report.contains(
            "unable to merge due to a missing merge requirement: pipeline gate requires a review"
        ),
        "{report}"
    );
    assert!(!is_halted(&site));
}

/// Z6.5: where changes are not queued behind their dependencies, those must be merged first.
#[test]
fn outside_a_dependent_pipeline_a_change_does_not_land_before_its_dependencies() {
    let config = CONFIG.replace("manager: dependent", "manager: independent");
    let mut site = site_of(&config, PROJECT);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), Vec::<u64>::new());
    let report = comments(&site, &a);
    assert!(report.contains("it depends on org/two#2, which may not run here"), "{report}");
    approve(&mut site, &[&b]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [2, 1]);
}

/// Z6.5, D08: a manually merged dependency counts as merged. The dependent change continues on the
/// new state of the branch.
#[test]
fn a_change_whose_dependency_is_merged_manually_is_tested_again_and_lands() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose(
        "org/one",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| site.is_building() && !gate_builds(site, "unit").is_empty());
    site.forge.merge_outside(&a);
    site.take_in();
    site.run();
    assert_eq!(merged(&site), [2]);
    assert_eq!(buildsets(&site, &[&b]), ["org/one#1 DEQUEUED", "org/one#2 SUCCESS"]);
    assert!(!comments(&site, &b).contains("failed to merge"), "{}", comments(&site, &b));
    assert!(!is_halted(&site));
}

/// Z6.4: a merge by a third party into another branch says nothing about this queue's branch.
#[test]
fn a_change_that_was_merged_into_another_branch_does_not_halt_the_queue() {
    let mut site = site();
    site.forge.branch_off("org/one", "main", "release");
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.retarget(&a, "release");
    site.forge.merge_silently(&a);
    site.run();
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 MERGE_FAILURE"]);
    assert!(!is_halted(&site));
    let b = propose(&site, 2, &[("b", "x")]);
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [2]);
}

/// Z6.4, C03: a different target branch counts as a new revision; earlier test results do not
/// apply.
#[test]
fn a_change_that_was_retargeted_is_tested_again_on_the_new_branch() {
    for mut site in [site(), per_branch()] {
        site.forge.branch_off("org/one", "main", "release");
        let main = sluice_model::git::BranchKey {
            project: sluice_model::ProjectName::new("forge.test", "org/one"),
            branch: "release".into(),
        };
        site.forge.push_silently(&main, &[("release-only", "broken unit")]);
        let a = propose(&site, 1, &[("a", "x")]);
        site.run();
        assert_eq!(site.builds(), ["check unit 1"]);
        site.forge.approve(&a);
        site.run_until(|site| site.is_building() && !gate_builds(site, "unit").is_empty());
        site.forge.retarget(&a, "release");
        site.take_in();
        site.run();
        assert_eq!(buildsets(&site, &[&a]), ["org/one#1 DEQUEUED"]);
        assert_eq!(merged(&site), Vec::<u64>::new());
        let checks = site.builds().into_iter().filter(|build| build == "check unit 1").count();
        assert_eq!(checks, 2, "{:?}", site.builds());
        let statuses = site.forge.change(&a).unwrap().facts.statuses;
        let check = statuses.iter().find(|status| status.context == "demo/check").unwrap();
        assert_eq!(check.state, "failure", "check says how it is on the branch it is for now");
        assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
    }
}

/// Z6.4: a forge moves the branch before it shows the change as merged. That is no foreign push,
/// and nothing is tested again.
#[test]
fn a_landing_waits_until_the_forge_shows_the_merge() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.merge_unseen(20);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    assert_eq!(gate_builds(&site, "unit").len(), 1, "{:?}", site.builds());
}

/// Z6.5: dependencies that are not read right before the landing are not known to be merged.
#[test]
fn a_change_with_too_many_dependencies_at_its_landing_does_not_land() {
    for (count, landed) in [(30, vec![1]), (31, vec![])] {
        let mut site = site();
        let others: Vec<u64> = (2..2 + count).collect();
        for number in &others {
            let other = propose(&site, *number, &[("b", "x")]);
            site.forge.merge_silently(&other);
        }
        while site.forge.next_webhook().is_some() {} // Drop the webhooks of the proposals.
        let a = propose(&site, 1, &[("a", "x")]);
        site.run();
        site.forge.approve(&a);
        site.run_until(|site| {
            site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
        });
        let named = others
            .iter()
            .map(|number| format!("Depends-On: https://forge.test/org/one/pull/{number}\n"));
        site.forge.describe(&a, &named.collect::<String>(), Announcement::None);
        site.run();
        assert_eq!(merged(&site), landed, "{count}");
    }
}

/// A clock that is minutes ahead of the others.
pub(super) struct Ahead(pub(super) Arc<dyn Clock>);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.0.now().plus_seconds(600)
    }
}

/// Z6.4: the forge's clock decides whether a merge may still be in progress, not the clock of the
/// function.
#[test]
fn a_landing_waits_by_the_clock_of_the_forge() {
    let mut site = site();
    site.forge.report_time();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.merge_unseen(20);
    site.forge.approve(&a);
    site.run_until(|site| !site.forge.merges().is_empty());
    let records = site.world.records();
    let record =
        records.iter().find(|record| record.key.partition.starts_with("landing#")).unwrap();
    let begun: Landing = decode(record).unwrap();
    assert!(begun.attempt().is_some(), "{begun:?}");
    let forge = site.forge.clone() as Arc<dyn Forge>;
    let forges: BTreeMap<ConnectionName, Arc<dyn Forge>> =
        BTreeMap::from([("github".into(), forge)]);
    let mut ports = site.ports();
    ports.clock = Arc::new(Ahead(ports.clock.clone()));
    let result = poll_once(Reporter::new(ports, forges).reconcile_again(&wakeup(&begun)))
        .expect("nothing dies here");
    assert!(matches!(result, Err(ReconcileError::RetryAfter { .. })), "{result:?}");
    site.run();
    assert_eq!(merged(&site), [1]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    assert_eq!(gate_builds(&site, "unit").len(), 1, "{:?}", site.builds());
}

/// Z6.4: the forge reports a merge but never shows its commit. The landing releases the branch
/// lock; the queue halts and says what to do.
#[test]
fn a_landing_whose_commit_is_never_shown_halts_its_queue() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.run();
    site.forge.set_commit_visibility(Visibility::Hidden);
    approve(&mut site, &[&a, &b]);
    assert_eq!(merged(&site), [1]);
    assert!(is_halted(&site));
    let heads: Vec<String> = site.world.records().into_iter().map(|record| record.body).collect();
    assert!(heads.iter().any(|body| body.contains("the result cannot be read")
        && body.contains("run `sluice queue resume`")));
}

/// Z6.4: a merge by a third party whose commit the forge does not show is no reason to halt. The
/// tip of the branch determines what is tested.
#[test]
fn a_foreign_merge_with_a_hidden_commit_does_not_halt_the_queue() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.merge_outside(&a);
    site.forge.set_commit_visibility(Visibility::Hidden);
    let begun = site.world.now();
    let is_over = |site: &Site| !buildsets(site, &[&a]).is_empty();
    site.run_until(|site| is_over(site) || site.world.now().since(begun) > 60_000);
    site.forge.set_commit_visibility(Visibility::Shown);
    assert!(is_over(&site), "it does not wait");
    approve(&mut site, &[&b]);
    assert!(!is_halted(&site));
    assert_eq!(merged(&site), [2]);
}

/// Z6.4, Z6.5: a newer revision was merged manually and no webhook arrived. The landing detects it:
/// the change is dequeued, its dependent changes stay, and nothing is retested repeatedly.
#[test]
fn a_change_that_was_merged_elsewhere_without_a_webhook_is_dequeued_at_its_landing() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.forge.describe(&b, "Depends-On: https://forge.test/org/one/pull/1", Announcement::None);
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.revise_from_tip(&a, &[("c", "x")]);
    site.forge.merge_by_hand(&a).expect("it merges");
    while site.forge.next_webhook().is_some() {}
    site.run();
    assert_eq!(buildsets(&site, &[&a, &b]), ["org/one#1 DEQUEUED", "org/one#2 SUCCESS"]);
    assert!(
        comments(&site, &a).contains("was merged outside this queue"),
        "{}",
        comments(&site, &a)
    );
    assert_eq!(merged(&site), [2]);
    assert_eq!(gate_builds(&site, "unit"), ["1", "1 2", "2"]);
    assert!(!is_halted(&site));
}

/// Z6.4, Z6.5: a dependency that has landed is not merged again for a dependent change. Otherwise a
/// revert since then would be undone.
#[test]
fn a_landed_dependency_is_not_merged_again() {
    let mut site =
        site_of(CONFIG, &PROJECT.replace("    queue:", "    merge-mode: squash-merge\n    queue:"));
    let a = propose(&site, 1, &[("shared", "1")]);
    let b = site.forge.propose(
        "org/one",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    site.run();
    site.held.insert("other".to_owned());
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_now();
    site.release("other", Some(1));
    site.run_now();
    assert_eq!(merged(&site), [1]);
    site.forge.push(&main_branch(), &[("shared", "0")]);
    site.held.clear();
    site.run();
    assert_eq!(merged(&site), [1, 2]);
    let files = site.forge.files("org/one", "main");
    assert_eq!((files["shared"].as_str(), files["b"].as_str()), ("0", "x"));
    assert_eq!(gate_builds(&site, "unit"), ["1", "1 2", "2"]);
    assert_eq!(buildsets(&site, &[&a, &b]), ["org/one#1 SUCCESS", "org/one#2 SUCCESS"]);
}

/// Z6.4: a commit that is shown a moment late is no reason to halt.
#[test]
fn a_landing_waits_for_its_commit_to_be_shown() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.set_commit_visibility(Visibility::Hidden);
    site.forge.approve(&a);
    site.run_until(|site| !site.forge.merges().is_empty());
    site.run_now();
    site.forge.set_commit_visibility(Visibility::Shown);
    site.run();
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    assert!(!is_halted(&site));
}

/// Z6.4: a merge that is not complete a minute after its request did not move the branch.
#[test]
fn a_branch_that_moved_during_a_pending_merge_is_tested_again() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.merge_unseen(600);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    assert_eq!(gate_builds(&site, "unit").len(), 2, "{:?}", site.builds());
}

/// Z6.4, G15: edits to a change after its merge, but before the forge shows the merge, have no
/// effect. The change landed as tested and is reported so.
#[test]
fn an_edit_before_the_merge_is_shown_does_not_undo_the_landing() {
    for is_revised in [true, false] {
        let mut site = site();
        let a = propose(&site, 1, &[("a", "x")]);
        propose(&site, 2, &[("b", "x")]);
        site.run();
        site.forge.merge_unseen(40);
        site.forge.approve(&a);
        site.run_until(|site| !site.forge.merges().is_empty());
        match is_revised {
            true => site.forge.revise(&a, "a", "y"),
            false => site.forge.describe(
                &a,
                "Depends-On: https://forge.test/org/one/pull/2",
                Announcement::Webhook,
            ),
        }
        site.run();
        assert_eq!(merged(&site), [1]);
        assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"], "revised: {is_revised}");
        assert!(!is_halted(&site));
    }
}

/// Removes the connection to the forge. Functions that have it cached continue to use it.
pub fn remove_connection(site: &Site) {
    let ports = site.ports();
    let mut stored = poll_once(connection::load(&ports)).unwrap().unwrap();
    stored.0.remove(&ConnectionName::from("github"));
    let text = Bytes::from(serde_json::to_string(&stored).unwrap());
    poll_once(ports.objects.put(connection::OBJECT, text, PutMode::Always, "application/json"))
        .unwrap()
        .unwrap();
}

/// Returns the record of the first ordered landing, if any.
fn order(site: &Site) -> Option<Record> {
    site.world.records().into_iter().find(|record| record.key.partition.starts_with("landing#"))
}

/// Returns a site with a change whose landing is ordered but not started, and the change.
fn about_to_land() -> (Site, ChangeKey) {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| order(site).is_some());
    (site, a)
}

/// Writes that a reporter requested the ordered merge, received no answer and crashed. Returns that
/// landing, which is due again at `due_at`.
fn begun(site: &Site, due_at: Option<Timestamp>) -> Landing {
    let record = order(site).unwrap();
    let landing: Landing = decode(&record).unwrap();
    let begun = Landing {
        state: LandingState::Merging(Attempt { tip: landing.base.clone(), in_flight_until: None }),
        merge_attempted: true,
        ..landing
    };
    let due = due_at.map(|at| Due { at, wakeup: wakeup(&begun) });
    let record = with_body(record, &begun).unwrap();
    let record = Record { revision: record.revision + 1, due, ..record };
    site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    begun
}

/// R06, Z6.4: the landing's trouble says that its connection was removed, so that an operator can
/// dequeue the change.
#[test]
fn a_landing_reports_that_its_connection_was_removed() {
    for is_removed in [false, true] {
        let (site, _) = about_to_land();
        let landing: Landing = decode(&order(&site).unwrap()).unwrap();
        if is_removed {
            remove_connection(&site);
        }
        site.world.advance_millis(61_000);
        let result = poll_once(
            Reporter::new(site.ports(), BTreeMap::new()).reconcile_first(&wakeup(&landing)),
        )
        .unwrap();
        assert!(result.is_err(), "there is no forge to ask");
        let trouble = decode::<Landing>(&order(&site).unwrap())
            .unwrap()
            .trouble
            .expect("the landing has a trouble");
        assert_eq!(trouble.is_connection_removed, is_removed, "{trouble:?}");
    }
}

/// R06, Z6.4: a function that has cached the removed connection may still be merging. Until that
/// merge must have ended, the landing is not reported as undecidable.
#[test]
fn a_landing_in_progress_reports_its_removed_connection_only_later() {
    let (site, _) = about_to_land();
    site.world.advance_millis(61_000);
    let begun = begun(&site, Some(site.world.now().plus_seconds(60)));
    remove_connection(&site);
    let reported = [(); 2].map(|()| {
        let result = poll_once(
            Reporter::new(site.ports(), BTreeMap::new()).reconcile_first(&wakeup(&begun)),
        )
        .unwrap();
        assert!(result.is_err(), "there is no forge to ask");
        site.world.advance_millis(61_000);
        decode::<Landing>(&order(&site).unwrap())
            .unwrap()
            .trouble
            .expect("the landing has a trouble")
            .is_connection_removed
    });
    assert_eq!(reported, [false, true]);
}

/// Z6.4, D08: a third party merges a newer revision right before the merge request, which the forge
/// then refuses. Dependent changes still have their dependency in the branch.
#[test]
fn a_foreign_merge_during_the_merge_request_keeps_dependent_changes() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = site.forge.propose(
        "org/one",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| order(site).is_some());
    let landing: Landing = decode(&order(&site).unwrap()).unwrap();
    let is_asking = Arc::new(AtomicBool::new(true));
    let asks = is_asking.clone();
    site.world.decide_fates(move |step| {
        match step.name == "forge.merge" && asks.load(Ordering::Relaxed) {
            true => Fate::Waits,
            false => Fate::Works,
        }
    });
    let forge = site.forge.clone() as Arc<dyn Forge>;
    let forges: BTreeMap<ConnectionName, Arc<dyn Forge>> =
        BTreeMap::from([("github".into(), forge)]);
    let (reporter, wakeup) = (Reporter::new(site.ports(), forges), wakeup(&landing));
    let mut reconciliation = pin!(reporter.reconcile_first(&wakeup));
    let mut context = Context::from_waker(Waker::noop());
    assert!(reconciliation.as_mut().poll(&mut context).is_pending(), "it is about to ask");
    site.forge.revise_from_tip(&a, &[("c", "x")]);
    site.forge.merge_by_hand(&a).expect("it merges");
    while site.forge.next_webhook().is_some() {}
    is_asking.store(false, Ordering::Relaxed);
    let Poll::Ready(outcome) = reconciliation.as_mut().poll(&mut context) else {
        panic!("it waits for nothing")
    };
    assert!(outcome.is_ok(), "{outcome:?}");
    site.run();
    assert_eq!(buildsets(&site, &[&a, &b]), ["org/one#1 DEQUEUED", "org/one#2 SUCCESS"]);
    assert_eq!(merged(&site), [2]);
    assert!(!is_halted(&site));
}

/// Z6.4: an earlier merge request takes effect between the read of the change and the repeated
/// request. That is no refusal, whatever the forge answers to the second request.
#[test]
fn a_merge_that_completes_during_its_repetition_is_reported_as_landed() {
    let (mut site, a) = about_to_land();
    // The first request was long ago.
    let begun = begun(&site, None);
    let is_asking = Arc::new(AtomicBool::new(true));
    let asks = is_asking.clone();
    site.world.decide_fates(move |step| {
        match step.name == "forge.merge" && asks.load(Ordering::Relaxed) {
            true => Fate::Waits,
            false => Fate::Works,
        }
    });
    let forge = site.forge.clone() as Arc<dyn Forge>;
    let forges: BTreeMap<ConnectionName, Arc<dyn Forge>> =
        BTreeMap::from([("github".into(), forge)]);
    let (reporter, wakeup) = (Reporter::new(site.ports(), forges), wakeup(&begun));
    let mut reconciliation = pin!(reporter.reconcile_first(&wakeup));
    let mut context = Context::from_waker(Waker::noop());
    assert!(reconciliation.as_mut().poll(&mut context).is_pending(), "it is about to ask");
    site.forge.merge_outside(&a);
    site.forge.refuse_merges("the base branch was modified");
    is_asking.store(false, Ordering::Relaxed);
    let Poll::Ready(outcome) = reconciliation.as_mut().poll(&mut context) else {
        panic!("it waits for nothing")
    };
    assert!(matches!(outcome, Err(ReconcileError::RetryAfter { .. })), "{outcome:?}");
    site.run();
    let landing: Landing = decode(&order(&site).unwrap()).unwrap();
    assert!(
        matches!(landing.state, LandingState::Ended { end: LandingEnd::Landed { .. }, .. }),
        "{landing:?}"
    );
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
}
