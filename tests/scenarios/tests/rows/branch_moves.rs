//! Landings by push: a branch moves to the exact commits that were tested, several at once.

use super::{buildsets, comments, merged, propose, site};
use sluice_forge::Forge;
use sluice_gate::{Attempt, Landing, LandingState, LandingTrouble};
use sluice_memory::{Fate, poll_once};
use sluice_model::change::ChangeKey;
use sluice_model::git::{BranchKey, LandingMethod};
use sluice_model::{ConnectionName, ProjectName};
use sluice_records::codec::{decode, with_body};
use sluice_records::landing;
use sluice_reporter::Reporter;
use sluice_runtime::Clock as _;
use sluice_runtime::batch::{ReconcileError, Reconciler as _};
use sluice_runtime::record::{Due, Expect, Record, Write};
use sluice_scenarios::Site;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// The calls of a run that lands. A reporter that crashes at one of them is called again.
const STEPS: [&str; 4] =
    ["forge.fast_forward", "forge.read_commit", "forge.branch_tip", "records.commit"];

/// Returns a site that keeps tested commits, so that branches can be moved to them.
fn site_keeping_commits() -> Site {
    let site = site();
    site.store.lock().unwrap().keeps_tested_commits = true;
    site
}

pub(crate) fn main_branch() -> BranchKey {
    BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: "main".into() }
}

/// Proposes and approves three changes whose tests have all passed when the first one's have.
fn all_passed(site: &mut Site) -> [ChangeKey; 3] {
    let changes =
        [(1, "a"), (2, "b"), (3, "c")].map(|(number, file)| propose(site, number, &[(file, "x")]));
    site.run();
    let jobs = ["unit", "other", "lint"];
    site.held.extend(jobs.map(str::to_owned));
    for change in &changes {
        site.forge.approve(change);
    }
    site.run_until(|site| site.running().len() == 9);
    for number in [3, 2, 1] {
        for job in jobs {
            site.release(job, Some(number));
        }
    }
    site.held.clear();
    changes
}

fn all_landed(site: &Site, changes: &[ChangeKey; 3]) {
    assert_eq!(merged(site), [1, 2, 3]);
    let files = site.forge.files("org/one", "main");
    assert!(["a", "b", "c"].iter().all(|file| files.contains_key(*file)), "{files:?}");
    let changes = changes.each_ref();
    let expected = ["org/one#1 SUCCESS", "org/one#2 SUCCESS", "org/one#3 SUCCESS"];
    assert_eq!(buildsets(site, &changes), expected);
    assert_eq!(site.ending(&[], &changes).left_over, Vec::<String>::new());
}

/// Z6.4: the branch contains the tested commits, and one push put all three there.
#[test]
fn consecutive_passed_changes_land_by_one_push() {
    let mut site = site_keeping_commits();
    let start = site.forge.tip(&main_branch());
    let changes = all_passed(&mut site);
    site.run();
    all_landed(&site, &changes);
    assert_eq!(site.forge.moves(), [(start, site.forge.tip(&main_branch()))]);
    let parents: Vec<usize> =
        site.forge.history(&main_branch()).iter().map(|(_, parents)| *parents).collect();
    assert_eq!(parents, [2, 2, 2, 0], "a merge for each");
}

/// Z6.4: after a crash the reporter reads the branch first, so nothing lands twice.
#[test]
fn a_run_that_crashes_at_any_call_lands_once() {
    for name in STEPS {
        for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsBefore, Fate::FailsAfter] {
            for skipped in 0..4 {
                let mut site = site_keeping_commits();
                let changes = all_passed(&mut site);
                let mut left = skipped;
                let mut is_over = false;
                site.world.decide_fates(move |step| {
                    if is_over || step.name != name {
                        return Fate::Works;
                    }
                    if left > 0 {
                        left -= 1;
                        return Fate::Works;
                    }
                    is_over = true;
                    fate
                });
                site.run();
                all_landed(&site, &changes);
                assert!(
                    (1..=3).contains(&site.forge.moves().len()),
                    "{name} {fate:?} after {skipped}"
                );
            }
        }
    }
}

/// Z6.4: after an unanswered push the branch is read before the forge is asked to merge. A merge
/// request would name only the last commit of the pushed ones.
#[test]
fn a_run_lands_if_any_of_its_unanswered_pushes_takes_effect() {
    for made in 1..=5 {
        let mut site = site_keeping_commits();
        let changes = all_passed(&mut site);
        let mut pushes = 0;
        site.world.decide_fates(move |step| {
            if step.name != "forge.fast_forward" {
                return Fate::Works;
            }
            pushes += 1;
            if pushes == made { Fate::FailsAfter } else { Fate::FailsBefore }
        });
        site.run();
        all_landed(&site, &changes);
    }
}

/// The calls with which a reporter finds out whether a push took effect.
const VERIFYING_CALLS: [&str; 5] =
    ["forge.branch_tip", "forge.contains", "forge.read_change", "forge.read_commit", "forge.merge"];

fn is_halted(site: &Site) -> bool {
    site.world.records().iter().any(|record| record.body.contains("until an operator resumes it"))
}

/// Z6.4: an unanswered push takes effect at any time between the reporter's calls. Its changes have
/// landed and are reported so, and the queue continues.
#[test]
fn a_delayed_push_lands_its_changes() {
    let mut moves = 0;
    for call in VERIFYING_CALLS {
        for pushes_before in [0, 3, 4, 5] {
            for calls_before in 0..3 {
                let mut site = site_keeping_commits();
                site.forge.answer_no_push(pushes_before, call, calls_before);
                let changes = all_passed(&mut site);
                site.run();
                assert!(!is_halted(&site), "{call} after {calls_before}, push {pushes_before}");
                all_landed(&site, &changes);
                moves += site.forge.moves().len();
            }
        }
    }
    assert!(moves >= 10, "{moves} pushes were made late");
}

/// Z6.4: the same if the reporter crashes at the merge request. The next one finds the pushed
/// changes in the branch.
#[test]
fn a_delayed_push_is_detected_after_a_crash() {
    for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsBefore, Fate::FailsAfter] {
        for call in VERIFYING_CALLS {
            for pushes_before in 3..6 {
                let mut site = site_keeping_commits();
                site.forge.answer_no_push(pushes_before, call, 0);
                let changes = all_passed(&mut site);
                let mut is_over = false;
                site.world.decide_fates(move |step| {
                    if is_over || step.name != "forge.merge" {
                        return Fate::Works;
                    }
                    is_over = true;
                    fate
                });
                site.run();
                assert!(!is_halted(&site), "{fate:?}, {call}, push {pushes_before}");
                all_landed(&site, &changes);
            }
        }
    }
}

/// Returns a separate reporter.
fn new_reporter(site: &Site) -> Reporter {
    let forge = site.forge.clone() as Arc<dyn Forge>;
    let forges: BTreeMap<ConnectionName, Arc<dyn Forge>> =
        BTreeMap::from([("github".into(), forge)]);
    Reporter::new(site.ports(), forges)
}

/// Returns the three ordered landings with their records.
fn ordered_landings(site: &mut Site) -> [(Record, Landing); 3] {
    let changes = all_passed(site);
    let landings = |site: &Site| -> Vec<(Record, Landing)> {
        let mut records = site.world.records();
        records.retain(|record| record.key.partition.starts_with("landing#"));
        let landings: Vec<Landing> = records.iter().map(|record| decode(record).unwrap()).collect();
        records.into_iter().zip(landings).collect()
    };
    site.run_until(|site| landings(site).len() == 3);
    let found = landings(site);
    changes.map(|change| {
        found.iter().find(|(_, landing)| landing.change.key == change).unwrap().clone()
    })
}

/// Z6.4: while an unanswered push may still take effect, its changes are not reported as
/// superseded, even if they are not first in the queue.
#[test]
fn a_change_of_an_unanswered_push_is_not_reported_as_superseded() {
    let mut site = site_keeping_commits();
    let [(_, first), (record, second), _] = ordered_landings(&mut site);
    let state = LandingState::Merging(Attempt { tip: first.base, in_flight_until: None });
    let begun = Landing {
        method: LandingMethod::Merge,
        state: state.clone(),
        merge_attempted: true,
        has_unanswered_push: true,
        ..second
    };
    let due = Due { at: site.world.now().plus_seconds(60), wakeup: landing::wakeup(&begun) };
    let record = with_body(record, &begun).unwrap();
    let record = Record { revision: record.revision + 1, due: Some(due), ..record };
    let key = record.key.clone();
    site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    let reporter = new_reporter(&site);
    let outcome =
        poll_once(reporter.reconcile_first(&landing::wakeup(&begun))).expect("it comes to its end");
    assert!(matches!(outcome, Err(ReconcileError::RetryAfter { .. })), "{outcome:?}");
    let record = site.world.records().into_iter().find(|record| record.key == key).unwrap();
    assert_eq!(decode::<Landing>(&record).unwrap().state, state);
}

/// Z6.4: a reporter that is delayed after writing its intent does not push later, when other
/// reporters may assume that no push is in progress. The change lands in the end.
#[test]
fn a_push_is_not_sent_if_its_intent_took_too_long_to_write() {
    let mut site = site_keeping_commits();
    let orders = ordered_landings(&mut site);
    let changes = orders.each_ref().map(|(_, landing)| landing.change.key.clone());
    let is_held_up = Arc::new(AtomicBool::new(true));
    let waits = is_held_up.clone();
    site.world.decide_fates(move |step| {
        match step.name == "records.commit" && waits.load(Ordering::Relaxed) {
            true => Fate::Waits,
            false => Fate::Works,
        }
    });
    let (reporter, wakeup) = (new_reporter(&site), landing::wakeup(&orders[0].1));
    let mut reconciliation = pin!(reporter.reconcile_first(&wakeup));
    let mut context = Context::from_waker(Waker::noop());
    assert!(
        reconciliation.as_mut().poll(&mut context).is_pending(),
        "it is about to write its intent"
    );
    site.world.advance_millis(40_000);
    is_held_up.store(false, Ordering::Relaxed);
    let Poll::Ready(outcome) = reconciliation.as_mut().poll(&mut context) else {
        panic!("it waits for nothing")
    };
    assert!(matches!(outcome, Err(ReconcileError::RetryAfter { .. })), "{outcome:?}");
    assert!(site.forge.moves().is_empty());
    site.run();
    all_landed(&site, &changes);
}

/// R06, Z6.4: a change that is being pushed cannot be dequeued, even if its connection was reported
/// as removed before.
#[test]
fn a_push_clears_the_trouble_of_a_removed_connection() {
    let mut site = site_keeping_commits();
    let orders = ordered_landings(&mut site);
    let since = site.world.now();
    for (record, landing) in &orders {
        let trouble = Some(LandingTrouble {
            since,
            why: "there is no forge to ask".to_owned(),
            is_connection_removed: true,
        });
        let troubled = with_body(record.clone(), &Landing { trouble, ..landing.clone() }).unwrap();
        let record = Record { revision: record.revision + 1, ..troubled };
        site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    }
    site.world.decide_fates(|step| match step.name {
        "forge.fast_forward" => Fate::Waits,
        _ => Fate::Works,
    });
    let (reporter, wakeup) = (new_reporter(&site), landing::wakeup(&orders[0].1));
    let mut reconciliation = pin!(reporter.reconcile_first(&wakeup));
    let mut context = Context::from_waker(Waker::noop());
    assert!(reconciliation.as_mut().poll(&mut context).is_pending(), "it is about to push");
    let begun = orders.each_ref().map(|(record, _)| {
        let landing: Landing = decode(&site.world.record(&record.key).unwrap()).unwrap();
        (landing.attempt().is_some(), landing.trouble.unwrap().is_connection_removed)
    });
    assert_eq!(begun, [(true, false); 3]);
}

/// Z6.4: pushes are neither answered nor take effect, and the forge merges an untested state. The
/// queue halts all the same.
#[test]
fn a_real_mismatch_after_unanswered_pushes_halts_the_queue() {
    let mut site = site_keeping_commits();
    site.forge.answer_no_push(usize::MAX, "", 0);
    site.forge.sabotage([("strange".to_owned(), "file".to_owned())].into());
    all_passed(&mut site);
    site.run();
    assert_eq!((merged(&site), is_halted(&site)), (vec![1], true));
}

/// Z6.4: a refused push started nothing. A manual merge of a later change of the run is a foreign
/// merge and no reason to halt.
#[test]
fn a_manual_merge_after_a_refused_push_does_not_halt_the_queue() {
    let mut site = site_keeping_commits();
    site.forge.refuse_pushes("protected branch hook declined");
    let [a, b, c] = all_passed(&mut site);
    // The next reconciliation fails, which leaves time in between.
    let (mut is_merged, mut is_over) = (false, false);
    site.world.decide_fates(move |step| match step.name {
        "forge.merge" => {
            is_merged = true;
            Fate::Works
        }
        "forge.read_change" if is_merged && !is_over => {
            is_over = true;
            Fate::FailsBefore
        }
        _ => Fate::Works,
    });
    site.run_until(|site| !site.forge.merges().is_empty());
    let records = site.world.records();
    let mut landings = records.iter().filter(|record| record.key.partition.starts_with("landing#"));
    let of_second = landings
        .find_map(|record| decode::<Landing>(record).ok().filter(|found| found.change.key == b));
    let second = of_second.expect("the second is to land");
    let begun = (second.state, second.method, second.merge_attempted, second.has_unanswered_push);
    assert_eq!(begun, (LandingState::Ordered, LandingMethod::Merge, false, false));
    site.forge.push_silently(&main_branch(), &[("d", "pushed")]);
    site.forge.merge_outside(&b);
    site.run();
    assert!(!is_halted(&site));
    assert_eq!(merged(&site), [1, 3]);
    let files = site.forge.files("org/one", "main");
    assert!(["a", "b", "c", "d"].iter().all(|file| files.contains_key(*file)), "{files:?}");
    let sets = buildsets(&site, &[&a, &b, &c]);
    assert!(sets.contains(&"org/one#3 SUCCESS".to_owned()), "{sets:?}");
}

/// Z6.4: the first landing of a run is not blocked by an unreadable record of a later one.
#[test]
fn an_unreadable_later_landing_does_not_block_the_first() {
    let mut site = site_keeping_commits();
    let changes = all_passed(&mut site);
    let landings = |site: &Site| -> Vec<Record> {
        let mut found = site.world.records();
        found.retain(|record| record.key.partition.starts_with("landing#"));
        found
    };
    site.run_until(|site| landings(site).len() == 3);
    let of_second = |record: &Record| {
        decode::<Landing>(record).is_ok_and(|landing| landing.change.key == changes[1])
    };
    let broken = landings(&site).into_iter().find(of_second).expect("the second is to land");
    site.world.write_unchecked(Write::Put {
        record: Record { body: "{}".to_owned(), revision: broken.revision + 1, ..broken.clone() },
        expect: Expect::Anything,
    });
    site.run_until(|site| site.forge.moves().len() == 1);
    assert_eq!(merged(&site), [1]);
}

/// Z6.4: where the repository refuses pushes, the forge is asked to merge.
#[test]
fn a_repository_that_refuses_pushes_is_merged_by_its_forge() {
    let mut site = site_keeping_commits();
    site.forge.refuse_pushes("protected branch hook declined");
    let changes = all_passed(&mut site);
    site.run();
    all_landed(&site, &changes);
    assert!(site.forge.moves().is_empty());
}

/// Z6.4: nothing untested lands after a third party pushed to the branch.
#[test]
fn a_run_on_a_branch_that_moved_is_tested_again_and_lands() {
    let mut site = site_keeping_commits();
    let changes = all_passed(&mut site);
    site.forge.push_silently(&main_branch(), &[("d", "pushed")]);
    site.run();
    all_landed(&site, &changes);
    assert_eq!(site.forge.files("org/one", "main").get("d").map(String::as_str), Some("pushed"));
    let tested = site.forge.moves();
    assert_eq!(tested.last().map(|(_, to)| to.clone()), Some(site.forge.tip(&main_branch())));
}

/// G12, Z6.4: a change that was closed without a webhook does not land with the changes ahead of
/// it.
#[test]
fn a_run_ends_before_a_change_that_may_no_longer_land() {
    let mut site = site_keeping_commits();
    let [a, b, c] = all_passed(&mut site);
    site.forge.close(&b);
    while site.forge.next_webhook().is_some() {}
    site.run();
    assert_eq!(merged(&site), [1, 3]);
    assert!(
        !site.forge.files("org/one", "main").contains_key("b"),
        "nothing of a closed change landed"
    );
    assert!(comments(&site, &b).contains("the change was closed"), "{}", comments(&site, &b));
    let sets = buildsets(&site, &[&a, &b, &c]);
    assert_eq!(sets, ["org/one#1 SUCCESS", "org/one#2 MERGE_FAILURE", "org/one#3 SUCCESS"]);
}

/// Z6.4: the first change of a run is not blocked by a later change that cannot be read. The later
/// one lands when its turn comes.
#[test]
fn an_unreadable_later_change_does_not_block_the_first() {
    let mut site = site_keeping_commits();
    let changes = all_passed(&mut site);
    // A read of a change right after the branch checks whether it may land with the first.
    let mut last = "";
    site.world.decide_fates(move |step| {
        if !step.name.starts_with("forge.") {
            return Fate::Works;
        }
        let before = std::mem::replace(&mut last, step.name);
        match (before, step.name) {
            ("forge.branch_tip", "forge.read_change") => Fate::FailsBefore,
            _ => Fate::Works,
        }
    });
    site.run();
    all_landed(&site, &changes);
    assert_eq!(site.forge.moves().len(), 3, "each by itself");
}
