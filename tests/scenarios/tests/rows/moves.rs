//! Landings that move a branch to the very commits that were tested, several at once.

use super::{buildsets, comments, merged, propose, site};
use sluice_forge::Forge;
use sluice_gate::{Landing, LandingState, Trouble};
use sluice_memory::{Fate, poll_once};
use sluice_model::change::ChangeKey;
use sluice_model::git::{BranchKey, LandingWay};
use sluice_model::{ConnectionName, ProjectName};
use sluice_records::codec::{decode, with_body};
use sluice_records::landing;
use sluice_reporter::Reporter;
use sluice_runtime::Clock as _;
use sluice_runtime::batch::{Look as _, LookError};
use sluice_runtime::record::{Due, Expect, Record, Write};
use sluice_scenarios::Site;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// The calls by which a run lands; whoever dies at one of them comes again.
const STEPS: [&str; 4] =
    ["forge.fast_forward", "forge.read_commit", "forge.branch_tip", "records.commit"];

/// A site that keeps what was tested.
fn keeping() -> Site {
    let site = site();
    site.store.lock().unwrap().keeps = true;
    site
}

pub(crate) fn main_branch() -> BranchKey {
    BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: "main".into() }
}

/// Proposes and approves three changes, whose tests end so that all have passed when the first one
/// has.
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

/// Z6.4: what is in the branch is the commit that was tested, and one move put all three there.
#[test]
fn changes_that_passed_behind_each_other_land_by_one_move_of_their_branch() {
    let mut site = keeping();
    let start = site.forge.tip(&main_branch());
    let changes = all_passed(&mut site);
    site.run();
    all_landed(&site, &changes);
    assert_eq!(site.forge.moves(), [(start, site.forge.tip(&main_branch()))]);
    let parents: Vec<usize> =
        site.forge.history(&main_branch()).iter().map(|(_, parents)| *parents).collect();
    assert_eq!(parents, [2, 2, 2, 0], "a merge for each");
}

/// Z6.4: whoever comes after a crash looks at the branch, and nothing lands twice.
#[test]
fn a_run_that_is_stopped_at_any_of_its_calls_lands_once() {
    for name in STEPS {
        for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsBefore, Fate::FailsAfter] {
            for skipped in 0..4 {
                let mut site = keeping();
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

/// Z6.4: of a push that was made at last, and not answered, its branch is asked before its forge is
/// asked to merge: that would name the last commit of all that the push landed.
#[test]
fn a_run_whose_pushes_are_never_answered_lands_whichever_of_them_is_made() {
    for made in 1..=5 {
        let mut site = keeping();
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

/// Calls of whoever looks what became of a push.
const LOOKS: [&str; 5] =
    ["forge.branch_tip", "forge.contains", "forge.read_change", "forge.read_commit", "forge.merge"];

fn is_frozen(site: &Site) -> bool {
    site.world.records().iter().any(|record| record.body.contains("until an operator has looked"))
}

/// Z6.4: whenever a push is made that had no answer, before or between the calls of whoever looks
/// and asks the forge to merge: what it brought has landed and is told so, and the queue goes on.
#[test]
fn a_push_that_is_made_late_lands_what_it_brings_whenever_that_is() {
    let mut moves = 0;
    for call in LOOKS {
        for pushes_before in [0, 3, 4, 5] {
            for calls_before in 0..3 {
                let mut site = keeping();
                site.forge.answer_no_push(pushes_before, call, calls_before);
                let changes = all_passed(&mut site);
                site.run();
                assert!(!is_frozen(&site), "{call} after {calls_before}, push {pushes_before}");
                all_landed(&site, &changes);
                moves += site.forge.moves().len();
            }
        }
    }
    assert!(moves >= 10, "{moves} pushes were made late");
}

/// Z6.4: the same where whoever asks the forge to merge dies at that: who comes next finds by the
/// branch what the push landed.
#[test]
fn a_push_that_is_made_late_is_found_by_whoever_comes_after_a_crash() {
    for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsBefore, Fate::FailsAfter] {
        for call in LOOKS {
            for pushes_before in 3..6 {
                let mut site = keeping();
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
                assert!(!is_frozen(&site), "{fate:?}, {call}, push {pushes_before}");
                all_landed(&site, &changes);
            }
        }
    }
}

/// Returns a reporter of its own, which nobody else waits for.
fn reporter(site: &Site) -> Reporter {
    let forge = site.forge.clone() as Arc<dyn Forge>;
    let forges: BTreeMap<ConnectionName, Arc<dyn Forge>> =
        BTreeMap::from([("github".into(), forge)]);
    Reporter::new(site.ports(), forges)
}

/// Returns the orders to land with their records, once all three changes are to land.
fn ordered(site: &mut Site) -> [(Record, Landing); 3] {
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

/// Z6.4: while a push without an answer may be made still, what it may land is not told as
/// overtaken, though its turn has not come.
#[test]
fn what_a_push_without_an_answer_may_land_is_not_taken_for_overtaken() {
    let mut site = keeping();
    let [(_, first), (record, second), _] = ordered(&mut site);
    let state = LandingState::Attempting { tip: first.base };
    let begun = Landing {
        way: LandingWay::Merge,
        state: state.clone(),
        tried: true,
        pushed: true,
        ..second
    };
    let due = Due { at: site.world.now().plus_seconds(60), poke: landing::poke(&begun) };
    let record = with_body(record, &begun).unwrap();
    let record = Record { revision: record.revision + 1, due: Some(due), ..record };
    let key = record.key.clone();
    site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    let reporter = reporter(&site);
    let looked = poll_once(reporter.look(&landing::poke(&begun))).expect("it comes to its end");
    assert!(matches!(looked, Err(LookError::Later { .. })), "{looked:?}");
    let record = site.world.records().into_iter().find(|record| record.key == key).unwrap();
    assert_eq!(decode::<Landing>(&record).unwrap().state, state);
}

/// Z6.4: whoever is held up at its intent sends no push that may be made when others take it for
/// over. It is made in the end.
#[test]
fn a_push_is_not_sent_when_its_intent_took_long_to_write() {
    let mut site = keeping();
    let orders = ordered(&mut site);
    let changes = orders.each_ref().map(|(_, landing)| landing.change.key.clone());
    let is_held_up = Arc::new(AtomicBool::new(true));
    let waits = is_held_up.clone();
    site.world.decide_fates(move |step| {
        match step.name == "records.commit" && waits.load(Ordering::Relaxed) {
            true => Fate::Waits,
            false => Fate::Works,
        }
    });
    let (reporter, poke) = (reporter(&site), landing::poke(&orders[0].1));
    let mut look = pin!(reporter.look(&poke));
    let mut context = Context::from_waker(Waker::noop());
    assert!(look.as_mut().poll(&mut context).is_pending(), "it is about to write its intent");
    site.world.advance_millis(40_000);
    is_held_up.store(false, Ordering::Relaxed);
    let Poll::Ready(looked) = look.as_mut().poll(&mut context) else {
        panic!("it waits for nothing")
    };
    assert!(matches!(looked, Err(LookError::Later { .. })), "{looked:?}");
    assert!(site.forge.moves().is_empty());
    site.run();
    all_landed(&site, &changes);
}

/// R06, Z6.4: what is being pushed is nobody's to take out, whatever was said of its connection
/// before.
#[test]
fn a_push_takes_back_that_the_connection_of_what_it_lands_was_removed() {
    let mut site = keeping();
    let orders = ordered(&mut site);
    let since = site.world.now();
    for (record, landing) in &orders {
        let trouble = Some(Trouble { since, why: "nobody can be asked".to_owned(), is_gone: true });
        let told = with_body(record.clone(), &Landing { trouble, ..landing.clone() }).unwrap();
        let record = Record { revision: record.revision + 1, ..told };
        site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    }
    site.world.decide_fates(|step| match step.name {
        "forge.fast_forward" => Fate::Waits,
        _ => Fate::Works,
    });
    let (reporter, poke) = (reporter(&site), landing::poke(&orders[0].1));
    let mut look = pin!(reporter.look(&poke));
    let mut context = Context::from_waker(Waker::noop());
    assert!(look.as_mut().poll(&mut context).is_pending(), "it is about to push");
    let begun = orders.each_ref().map(|(record, _)| {
        let landing: Landing = decode(&site.world.record(&record.key).unwrap()).unwrap();
        (matches!(landing.state, LandingState::Attempting { .. }), landing.trouble.unwrap().is_gone)
    });
    assert_eq!(begun, [(true, false); 3]);
}

/// Z6.4: where pushes are never answered nor made, and the forge merges what was not tested, the
/// queue is frozen all the same.
#[test]
fn a_true_mismatch_behind_pushes_without_an_answer_freezes_the_queue() {
    let mut site = keeping();
    site.forge.answer_no_push(usize::MAX, "", 0);
    site.forge.sabotage([("strange".to_owned(), "file".to_owned())].into());
    all_passed(&mut site);
    site.run();
    assert_eq!((merged(&site), is_frozen(&site)), (vec![1], true));
}

/// Z6.4: of a run whose push was refused nothing was begun: what a person merges of it before its
/// turn is that person's, and no alarm.
#[test]
fn what_a_person_merges_behind_a_refused_push_stops_no_queue() {
    let mut site = keeping();
    site.forge.refuse_pushes("protected branch hook declined");
    let [a, b, c] = all_passed(&mut site);
    // The next one's look fails, so that there is time between.
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
    let begun = (second.state, second.way, second.tried, second.pushed);
    assert_eq!(begun, (LandingState::Wanted, LandingWay::Merge, false, false));
    site.forge.push_silently(&main_branch(), &[("d", "pushed")]);
    site.forge.merge_outside(&b);
    site.run();
    assert!(!is_frozen(&site));
    assert_eq!(merged(&site), [1, 3]);
    let files = site.forge.files("org/one", "main");
    assert!(["a", "b", "c", "d"].iter().all(|file| files.contains_key(*file)), "{files:?}");
    let sets = buildsets(&site, &[&a, &b, &c]);
    assert!(sets.contains(&"org/one#3 SUCCESS".to_owned()), "{sets:?}");
}

/// Z6.4: a landing behind the first of a run whose record nobody can read keeps that from nothing.
#[test]
fn what_is_unreadable_behind_a_landing_does_not_keep_it_from_landing() {
    let mut site = keeping();
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
    site.world.write_directly(Write::Put {
        record: Record { body: "{}".to_owned(), revision: broken.revision + 1, ..broken.clone() },
        expect: Expect::Anything,
    });
    site.run_until(|site| site.forge.moves().len() == 1);
    assert_eq!(merged(&site), [1]);
}

/// Z6.4: where the repository lets nobody push, its forge is asked to merge.
#[test]
fn a_repository_that_takes_no_pushes_is_merged_into_by_its_forge() {
    let mut site = keeping();
    site.forge.refuse_pushes("protected branch hook declined");
    let changes = all_passed(&mut site);
    site.run();
    all_landed(&site, &changes);
    assert!(site.forge.moves().is_empty());
}

/// Z6.4: nothing untested lands with what somebody else pushed meanwhile.
#[test]
fn a_run_on_a_branch_that_moved_is_tested_again_and_lands() {
    let mut site = keeping();
    let changes = all_passed(&mut site);
    site.forge.push_silently(&main_branch(), &[("d", "pushed")]);
    site.run();
    all_landed(&site, &changes);
    assert_eq!(site.forge.files("org/one", "main").get("d").map(String::as_str), Some("pushed"));
    let tested = site.forge.moves();
    assert_eq!(tested.last().map(|(_, to)| to.clone()), Some(site.forge.tip(&main_branch())));
}

/// G12, Z6.4: a change that was closed behind everybody's back does not land with what is ahead of
/// it.
#[test]
fn a_run_ends_before_a_change_that_may_not_land_any_more() {
    let mut site = keeping();
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

/// Z6.4: a change behind the first of a run of which nobody can tell anything keeps that from
/// nothing; it lands in its own turn.
#[test]
fn what_cannot_be_read_behind_a_landing_keeps_it_from_nothing() {
    let mut site = keeping();
    let changes = all_passed(&mut site);
    // Whoever reads a change right after the branch looks whether that may land with the first.
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
