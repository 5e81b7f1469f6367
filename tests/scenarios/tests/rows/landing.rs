//! What is put into a branch was tested on that branch, whatever becomes of the change meanwhile.

use super::moves::main_branch;
use super::{
    CONFIG, PROJECT, approve, buildsets, comments, gate_builds, merged, propose, site, site_of,
};
use bytes::Bytes;
use sluice_forge::Forge;
use sluice_gate::{Landing, LandingEnd, LandingState};
use sluice_memory::{Fate, poll_once};
use sluice_model::change::ChangeKey;
use sluice_model::{ConnectionName, Timestamp};
use sluice_records::codec::{decode, with_body};
use sluice_records::connection;
use sluice_records::landing::poke;
use sluice_reporter::Reporter;
use sluice_runtime::Clock;
use sluice_runtime::batch::{Look as _, LookError};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Due, Expect, Record, Write};
use sluice_scenarios::Site;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// A site whose gate has a queue for each branch.
fn per_branch() -> Site {
    let config = CONFIG.replace("{name: integrated}", "{name: integrated, per-branch: true}");
    site_of(&config, PROJECT)
}

fn frozen(site: &Site) -> bool {
    site.world.records().iter().any(|record| record.body.contains("until an operator has looked"))
}

/// Z6.4: GitHub's merge names the head and not the base, so whoever lands looks at the base.
#[test]
fn a_change_that_is_for_another_branch_now_does_not_land_there() {
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
    // Nobody hears of it before the landing is carried out.
    let webhook = site.forge.next_webhook();
    assert!(webhook.is_some());
    site.run();
    assert!(!site.forge.files("org/one", "release").contains_key("a"), "nothing untested landed");
    assert_eq!(merged(&site), [2]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 MERGE_FAILURE", "org/one#2 SUCCESS"]);
    assert!(
        comments(&site, &a).contains("it is to be merged into release now"),
        "{}",
        comments(&site, &a)
    );
    assert!(!frozen(&site));
}

/// G12, Z6.4: what was taken back is not merged, though nobody has heard of it yet.
#[test]
fn a_change_whose_approval_is_taken_back_before_it_is_merged_does_not_land() {
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
    assert!(site.forge.next_webhook().is_some(), "its news are lost");
    site.run();
    assert_eq!(merged(&site), [2]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 MERGE_FAILURE", "org/one#2 SUCCESS"]);
    let told = comments(&site, &a);
    assert!(
        told.contains(
            "unable to merge due to a missing merge requirement: pipeline gate requires a review"
        ),
        "{told}"
    );
    assert!(!frozen(&site));
}

/// Z6.5: where changes do not stand behind what they need, what they need has to be merged before
/// they are.
#[test]
fn outside_a_dependent_pipeline_a_change_does_not_land_before_what_it_needs() {
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
    assert!(comments(&site, &a).contains("it depends on"), "{}", comments(&site, &a));
    approve(&mut site, &[&b]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [2, 1]);
}

/// Z6.5, D08: what a person merged is merged: what needs it goes on, on what the branch is now.
#[test]
fn a_change_whose_need_is_merged_by_hand_is_tested_again_and_lands() {
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
    assert!(!frozen(&site));
}

/// Z6.4: what was merged elsewhere by somebody else says nothing about this queue's branch.
#[test]
fn a_change_that_was_merged_into_another_branch_does_not_freeze_the_queue() {
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
    assert!(!frozen(&site));
    let b = propose(&site, 2, &[("b", "x")]);
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [2]);
}

/// Z6.4, C03: another branch is another revision: what was tested before counts for nothing.
#[test]
fn a_change_that_is_for_another_branch_now_is_tested_again_there() {
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

/// Z6.4: a forge moves the branch before it shows the change as merged; that is no foreign push,
/// and nothing is tested again.
#[test]
fn a_merge_that_shows_late_is_waited_for() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.merge_unseen(20);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    assert_eq!(gate_builds(&site, "unit").len(), 1, "{:?}", site.builds());
}

/// Z6.5: what is not looked at right before a landing is not known to be merged.
#[test]
fn a_change_that_names_more_than_are_looked_at_by_then_does_not_land() {
    for (count, landed) in [(30, vec![1]), (31, vec![])] {
        let mut site = site();
        let others: Vec<u64> = (2..2 + count).collect();
        for number in &others {
            let other = propose(&site, *number, &[("b", "x")]);
            site.forge.merge_silently(&other);
        }
        while site.forge.next_webhook().is_some() {} // What came with them is another story.
        let a = propose(&site, 1, &[("a", "x")]);
        site.run();
        site.forge.approve(&a);
        site.run_until(|site| {
            site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
        });
        let named = others
            .iter()
            .map(|number| format!("Depends-On: https://forge.test/org/one/pull/{number}\n"));
        site.forge.describe(&a, &named.collect::<String>(), false);
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

/// Z6.4: whether a merge may be under way the forge's clock tells, and not that of whoever looks.
#[test]
fn a_merge_that_shows_late_is_waited_for_by_whoever_has_another_clock() {
    let mut site = site();
    site.forge.tell_time();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.merge_unseen(20);
    site.forge.approve(&a);
    site.run_until(|site| !site.forge.merges().is_empty());
    let records = site.world.records();
    let record =
        records.iter().find(|record| record.key.partition.starts_with("landing#")).unwrap();
    let begun: Landing = decode(record).unwrap();
    assert!(matches!(begun.state, LandingState::Attempting { .. }), "{begun:?}");
    let forge = site.forge.clone() as Arc<dyn Forge>;
    let forges: BTreeMap<ConnectionName, Arc<dyn Forge>> =
        BTreeMap::from([("github".into(), forge)]);
    let mut ports = site.ports();
    ports.clock = Arc::new(Ahead(ports.clock.clone()));
    let looked = poll_once(Reporter::new(ports, forges).look_again(&poke(&begun)))
        .expect("nothing dies here");
    assert!(matches!(looked, Err(LookError::Later { .. })), "{looked:?}");
    site.run();
    assert_eq!(merged(&site), [1]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    assert_eq!(gate_builds(&site, "unit").len(), 1, "{:?}", site.builds());
}

/// Z6.4: a landing that its forge says was made, and will not show, keeps its branch for nobody:
/// its queue is frozen, and says what to do.
#[test]
fn a_landing_of_which_no_commit_is_shown_freezes_its_queue_in_the_end() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.run();
    site.forge.hide_commits(true);
    approve(&mut site, &[&a, &b]);
    assert_eq!(merged(&site), [1]);
    assert!(frozen(&site));
    let heads: Vec<String> = site.world.records().into_iter().map(|record| record.body).collect();
    assert!(heads.iter().any(
        |body| body.contains("nobody can tell what landed") && body.contains("thaw the queue")
    ));
}

/// Z6.4: what somebody else merged is no alarm of ours where its forge does not show the commit:
/// the branch tells what is to be tested.
#[test]
fn a_change_that_somebody_merged_into_a_commit_that_nobody_shows_stops_no_queue() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site.forge.merge_outside(&a);
    site.forge.hide_commits(true);
    let begun = site.world.now();
    let is_over = |site: &Site| !buildsets(site, &[&a]).is_empty();
    site.run_until(|site| is_over(site) || site.world.now().since(begun) > 60_000);
    site.forge.hide_commits(false);
    assert!(is_over(&site), "it waits for nobody");
    approve(&mut site, &[&b]);
    assert!(!frozen(&site));
    assert_eq!(merged(&site), [2]);
}

/// Z6.4, Z6.5: a newer revision was merged by hand, and nobody was told. The landing sees it: the
/// change leaves, what needs it stays, and nothing is tested over and over.
#[test]
fn a_change_that_somebody_merged_and_nobody_told_of_leaves_when_it_is_to_land() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    site.forge.describe(&b, "Depends-On: https://forge.test/org/one/pull/1", false);
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
    assert!(comments(&site, &a).contains("was merged by somebody else"), "{}", comments(&site, &a));
    assert_eq!(merged(&site), [2]);
    assert_eq!(gate_builds(&site, "unit"), ["1", "1 2", "2"]);
    assert!(!frozen(&site));
}

/// Z6.4, Z6.5: what landed is not merged once more for what needs it, or what somebody took back
/// since would come again with that.
#[test]
fn what_a_change_needs_and_has_landed_stays_as_its_branch_has_it() {
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

/// Z6.4: a commit that is shown a moment late is no reason to stop.
#[test]
fn a_landing_whose_commit_is_shown_late_is_judged_by_it() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.hide_commits(true);
    site.forge.approve(&a);
    site.run_until(|site| !site.forge.merges().is_empty());
    site.run_now();
    site.forge.hide_commits(false);
    site.run();
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    assert!(!frozen(&site));
}

/// Z6.4: what is not merged a minute after it was asked for was not what moved the branch.
#[test]
fn a_branch_that_moves_while_a_merge_may_be_under_way_is_tested_again_in_the_end() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.merge_unseen(600);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
    assert_eq!(gate_builds(&site, "unit").len(), 2, "{:?}", site.builds());
}

/// Z6.4, G15: what is done to a change after it was merged, and before its forge shows that, takes
/// nothing back: it has landed as it was tested, and is told so.
#[test]
fn what_is_done_to_a_change_whose_merge_shows_late_is_no_refusal() {
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
            false => site.forge.describe(&a, "Depends-On: https://forge.test/org/one/pull/2", true),
        }
        site.run();
        assert_eq!(merged(&site), [1]);
        assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"], "revised: {is_revised}");
        assert!(!frozen(&site));
    }
}

/// Removes the connection to the forge; who knows it already goes on.
pub fn remove_connection(site: &Site) {
    let ports = site.ports();
    let mut stored = poll_once(connection::load(&ports)).unwrap().unwrap();
    stored.0.remove(&ConnectionName::from("github"));
    let text = Bytes::from(serde_json::to_string(&stored).unwrap());
    poll_once(ports.objects.put(connection::OBJECT, text, PutMode::Always, "application/json"))
        .unwrap()
        .unwrap();
}

/// Returns the record of the first landing that was ordered.
fn order(site: &Site) -> Option<Record> {
    site.world.records().into_iter().find(|record| record.key.partition.starts_with("landing#"))
}

/// Returns a site that is about to land a change: its gate has ordered that, and nobody has begun.
fn about_to_land() -> (Site, ChangeKey) {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| order(site).is_some());
    (site, a)
}

/// Writes that somebody asked for the merge that was ordered, and neither had an answer nor lived
/// on; returns the landing as it is then. It is looked at again at this time, if at any.
fn begun(site: &Site, due_at: Option<Timestamp>) -> Landing {
    let record = order(site).unwrap();
    let landing: Landing = decode(&record).unwrap();
    let begun = Landing {
        state: LandingState::Attempting { tip: landing.base.clone() },
        tried: true,
        ..landing
    };
    let due = due_at.map(|at| Due { at, poke: poke(&begun) });
    let record = with_body(record, &begun).unwrap();
    let record = Record { revision: record.revision + 1, due, ..record };
    site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    begun
}

/// R06, Z6.4: that a landing's connection was removed is told with what keeps it, so that an
/// operator may take out what was begun.
#[test]
fn a_landing_whose_connection_was_removed_says_so() {
    for is_removed in [false, true] {
        let (site, _) = about_to_land();
        let landing: Landing = decode(&order(&site).unwrap()).unwrap();
        if is_removed {
            remove_connection(&site);
        }
        site.world.advance_millis(61_000);
        let looked =
            poll_once(Reporter::new(site.ports(), BTreeMap::new()).look(&poke(&landing))).unwrap();
        assert!(looked.is_err(), "nobody can be asked");
        let trouble = decode::<Landing>(&order(&site).unwrap())
            .unwrap()
            .trouble
            .expect("it is told what keeps it");
        assert_eq!(trouble.is_gone, is_removed, "{trouble:?}");
    }
}

/// R06, Z6.4: whoever still knows a connection that was removed may be having a merge made; until
/// that must be over nothing says that nobody will find out what became of it.
#[test]
fn a_landing_that_may_be_under_way_says_later_that_its_connection_was_removed() {
    let (site, _) = about_to_land();
    site.world.advance_millis(61_000);
    let begun = begun(&site, Some(site.world.now().plus_seconds(60)));
    remove_connection(&site);
    let told = [(); 2].map(|()| {
        let looked =
            poll_once(Reporter::new(site.ports(), BTreeMap::new()).look(&poke(&begun))).unwrap();
        assert!(looked.is_err(), "nobody can be asked");
        site.world.advance_millis(61_000);
        decode::<Landing>(&order(&site).unwrap())
            .unwrap()
            .trouble
            .expect("it is told what keeps it")
            .is_gone
    });
    assert_eq!(told, [false, true]);
}

/// Z6.4, D08: somebody merges a newer revision right before the forge is asked, which refuses to
/// merge the one before: what needs the change has it in its branch.
#[test]
fn a_change_that_somebody_merges_while_its_merge_is_asked_for_takes_nothing_from_what_needs_it() {
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
    let (reporter, poke) = (Reporter::new(site.ports(), forges), poke(&landing));
    let mut look = pin!(reporter.look(&poke));
    let mut context = Context::from_waker(Waker::noop());
    assert!(look.as_mut().poll(&mut context).is_pending(), "it is about to ask");
    site.forge.revise_from_tip(&a, &[("c", "x")]);
    site.forge.merge_by_hand(&a).expect("it merges");
    while site.forge.next_webhook().is_some() {}
    is_asking.store(false, Ordering::Relaxed);
    let Poll::Ready(looked) = look.as_mut().poll(&mut context) else {
        panic!("it waits for nothing")
    };
    assert!(looked.is_ok(), "{looked:?}");
    site.run();
    assert_eq!(buildsets(&site, &[&a, &b]), ["org/one#1 DEQUEUED", "org/one#2 SUCCESS"]);
    assert_eq!(merged(&site), [2]);
    assert!(!frozen(&site));
}

/// Z6.4: a merge that was asked for before, and is made between the reading of the change and the
/// next asking, is no refusal, whatever the forge says to the second.
#[test]
fn a_merge_that_is_made_while_it_is_asked_for_again_is_told_as_landed() {
    let (mut site, a) = about_to_land();
    // That somebody asked was long ago.
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
    let (reporter, poke) = (Reporter::new(site.ports(), forges), poke(&begun));
    let mut look = pin!(reporter.look(&poke));
    let mut context = Context::from_waker(Waker::noop());
    assert!(look.as_mut().poll(&mut context).is_pending(), "it is about to ask");
    site.forge.merge_outside(&a);
    site.forge.refuse_merges("the base branch was modified");
    is_asking.store(false, Ordering::Relaxed);
    let Poll::Ready(looked) = look.as_mut().poll(&mut context) else {
        panic!("it waits for nothing")
    };
    assert!(matches!(looked, Err(LookError::Later { .. })), "{looked:?}");
    site.run();
    let landing: Landing = decode(&order(&site).unwrap()).unwrap();
    assert!(
        matches!(landing.state, LandingState::Ended { end: LandingEnd::Landed { .. }, .. }),
        "{landing:?}"
    );
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 SUCCESS"]);
}
