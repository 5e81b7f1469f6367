//! Properties over random event sequences that hold after every plan.

use super::bench::Bench;
use super::semaphores::holding;
use crate::landing::{LandingEnd, LandingState};
use crate::plan::ObservedBuild;
use crate::queue::{Entry, Predecessor, Slot, SlotStatus};
use proptest::prelude::*;
use sluice_model::ItemId;
use sluice_model::build::BuildResult::{Failure, Retry, Success};
use sluice_model::job::BuildSharing;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
enum Event {
    Approve(char),
    ApproveNeeding(char, char),
    ApproveCycle(usize, usize),
    Revise(char),
    Close(char),
    Answer,
    Pass(usize),
    Fail(usize),
    Retry(usize),
    Lose(usize),
    NoNodes(usize),
    Depend(char, char),
    Land,
    Refuse,
    Push,
    Reconfigure,
    Plan,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let change = || prop::sample::select(vec!['A', 'B', 'C', 'D', 'E', 'F']);
    let event = prop_oneof![
        6 => change().prop_map(Event::Approve),
        2 => (change(), change()).prop_map(|(a, b)| Event::ApproveNeeding(a, b)),
        4 => (0..5usize, 2..4usize).prop_map(|(first, count)| Event::ApproveCycle(first, count)),
        1 => change().prop_map(Event::Revise),
        1 => change().prop_map(Event::Close),
        8 => Just(Event::Answer),
        8 => (0..20usize).prop_map(Event::Pass),
        2 => (0..20usize).prop_map(Event::Fail),
        1 => (0..20usize).prop_map(Event::Retry),
        1 => (0..20usize).prop_map(Event::Lose),
        1 => (0..20usize).prop_map(Event::NoNodes),
        2 => (change(), change()).prop_map(|(a, b)| Event::Depend(a, b)),
        6 => Just(Event::Land),
        1 => Just(Event::Refuse),
        1 => Just(Event::Push),
        1 => Just(Event::Reconfigure),
        8 => Just(Event::Plan),
    ];
    prop::collection::vec(event, 1..60)
}

fn happen(bench: &mut Bench, event: &Event) {
    let builds = bench.under_way();
    let build = |at: usize| (!builds.is_empty()).then(|| builds[at % builds.len()].clone());
    match event {
        // A merged change causes no further events.
        Event::Approve(change) | Event::ApproveNeeding(change, _)
            if bench.tip("one").contains(*change) => {}
        Event::Approve(change) => bench.approve(&change.to_string()),
        Event::ApproveNeeding(change, need) if change != need => {
            bench.approve_needing(*change, &need.to_string())
        }
        Event::ApproveNeeding(..) => {}
        Event::ApproveCycle(first, count) => {
            let changes: String = "ABCDEF".chars().skip(*first).take(*count).collect();
            if !changes.chars().any(|change| bench.tip("one").contains(change)) {
                bench.approve_bundle(&changes, "");
            }
        }
        Event::Revise(change) => {
            bench.revise(*change);
            bench.update(*change, None);
        }
        Event::Close(change) => bench.update(*change, Some("the change was closed")),
        Event::Answer => {
            bench.answer_merges();
        }
        Event::Pass(at) => {
            if let Some((change, job, _)) = build(*at) {
                bench.end(change, &job, Success);
            }
        }
        Event::Fail(at) => {
            if let Some((change, job, _)) = build(*at) {
                bench.end(change, &job, Failure);
            }
        }
        Event::Retry(at) => {
            if let Some((change, job, _)) = build(*at) {
                bench.end(change, &job, Retry);
            }
        }
        Event::Lose(at) => {
            if let Some((change, job, _)) = build(*at) {
                bench.show(change, &job, ObservedBuild::Lost { why: "silent".to_owned() });
            }
        }
        Event::NoNodes(at) => {
            if let Some((change, job, _)) = build(*at) {
                bench.show(change, &job, ObservedBuild::NoNodes("full".to_owned()));
            }
        }
        // In addition to its current dependencies.
        Event::Depend(change, need) if change != need => {
            let key = bench.change(*change).key;
            let own = bench.items.values().find(|item| item.candidate.change.key == key);
            let needs = own.into_iter().flat_map(|item| &item.candidate.needs);
            let mut all: String =
                needs.filter_map(|need| char::from_u32(need.change.key.number()? as u32)).collect();
            if !all.contains(*need) {
                all.push(*need);
            }
            bench.update_needing(*change, &all);
        }
        Event::Depend(..) => {}
        Event::Land => {
            bench.land();
        }
        Event::Refuse
            if bench.landings.values().any(|landing| landing.state == LandingState::Ordered) =>
        {
            bench.end_landing(LandingEnd::Refused { why: "no".to_owned() });
        }
        Event::Refuse => {}
        Event::Push => {
            let moved = format!("{}x", bench.tip("one"));
            bench.tips.insert("one".to_owned(), moved);
        }
        Event::Reconfigure => {
            bench.layout.wanted += 1;
            bench.layout.live = bench.layout.wanted;
        }
        Event::Plan => {}
    }
}

/// Plans until no further plan is due at once, then checks that nothing is left to decide.
fn settle(bench: &mut Bench) {
    for _ in 0..50 {
        let (_, more) = bench.plan_once();
        if !more {
            assert_eq!(
                bench.plan_once().0,
                Vec::<String>::new(),
                "a plan without new input decides nothing"
            );
            return;
        }
    }
    panic!("the queue does not settle");
}

/// The order of members while a bundle is being merged: merged ones first, then the one being
/// merged, then the pledged ones. All other states are equal.
fn rank(slot: &Slot) -> u8 {
    match slot.status {
        SlotStatus::Landed => 0,
        SlotStatus::Landing => 1,
        SlotStatus::AwaitingLanding => 2,
        _ => 3,
    }
}

fn has_landed(bench: &Bench, id: &ItemId) -> bool {
    let end = bench.landings.get(id).map(|landing| &landing.state);
    matches!(end, Some(LandingState::Ended { end: LandingEnd::Landed { .. }, .. }))
}

fn check(
    bench: &Bench,
    generations: &mut BTreeMap<ItemId, u64>,
    bundles: &mut BTreeSet<Vec<ItemId>>,
) {
    for entry in &bench.head.entries {
        bundles.insert(entry.members.iter().map(|slot| slot.id.clone()).collect());
    }
    let landing = bench.head.slots().filter(|slot| slot.status == SlotStatus::Landing).count();
    assert!(landing <= 1, "{landing} landings at once");
    let mut nearest: Option<Predecessor> = None;
    for slot in bench.head.slots() {
        let Entry { ahead, members: bundle } =
            &bench.head.entries[bench.head.position(&slot.id).unwrap()];
        assert!(
            *ahead == nearest || slot.status.is_landing(),
            "an item is behind the nearest one that may pass"
        );
        let fails = |slot: &Slot| slot.status == SlotStatus::Failing;
        assert!(
            bundle.iter().all(fails) || !bundle.iter().any(fails),
            "one that fails fails its bundle"
        );
        assert!(bundle.iter().map(rank).is_sorted(), "a bundle lands in its order: {bundle:?}");
        let is_last = bundle.last().is_some_and(|last| last.id == slot.id);
        if slot.status != SlotStatus::Failing && is_last {
            nearest = Some(Predecessor { item: slot.id.clone(), generation: slot.generation });
        }
        let before = generations.insert(slot.id.clone(), slot.generation).unwrap_or(0);
        assert!(slot.generation >= before, "a generation falls");
        let item = &bench.items[&slot.id];
        for job in item.jobs.iter().filter(|job| job.is_under_way()) {
            let order =
                bench.orders.iter().find(|order| Some(&order.build) == job.build.as_ref()).unwrap();
            let of = bundle
                .iter()
                .find(|slot| slot.id == order.item)
                .expect("a build is of the change or of its bundle");
            assert_eq!(order.generation, of.generation, "a build of an older state is under way");
        }
    }
    for (change, job, build) in bench.under_way().iter().filter(|(_, job, _)| job == "two") {
        let is_held = bench.semaphores.values().any(|semaphore| semaphore.is_held_by(build));
        assert!(is_held, "{job} of {change} runs without its semaphore");
    }
    for (landed, all) in bundles
        .iter()
        .map(|bundle| (bundle.iter().filter(|id| has_landed(bench, id)).count(), bundle.len()))
    {
        let is_landing = bench.head.slots().any(|slot| slot.status.is_landing());
        // The forge refused a later member until its time was over.
        let is_unfinished = bench.left.iter().any(|left| left.ends_with(" MERGE_FAILURE"));
        assert!(
            landed == 0 || landed == all || is_landing || is_unfinished,
            "{landed} of {all} landed, and it is over"
        );
    }
    let most =
        bench.semaphores.values().map(|semaphore| semaphore.holders.len()).max().unwrap_or(0);
    assert!(most <= 2, "{most} hold a semaphore of two");
    assert_eq!(
        bench.items.len(),
        bench.head.slots().count(),
        "each slot has its item and no item is left over"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Z6.4, N16: an entry is behind exactly the nearest passing one, at most one landing runs,
    /// generations never decrease, a plan without new input is empty. A bundle passes, fails and is
    /// merged as one or halts the queue. Each merged tree is the branch plus the change. No
    /// semaphore has too many holders.
    #[test]
    fn the_rules_hold_in_every_story(events in events()) {
        let mut bench = Bench::gate(&["one"]);
        bench.jobs.push(holding("two", &["lock"]));
        bench.semaphore_max = 2;
        bench.jobs[0].sharing = BuildSharing::InProject;
        let (mut generations, mut bundles) = (BTreeMap::new(), BTreeSet::new());
        for event in &events {
            let tip = bench.tip("one");
            let landed = bench.landed.len();
            happen(&mut bench, event);
            if bench.landed.len() > landed {
                let now = bench.tip("one");
                prop_assert_eq!(now.len(), tip.len() + 1, "{} became {}", tip, now);
                prop_assert!(now.starts_with(&tip));
            }
            settle(&mut bench);
            check(&bench, &mut generations, &mut bundles);
        }
        bench.finish();
        if bench.head.halted.is_some() {
            // A part of a bundle was merged: an operator resumes the queue.
            bench.resume();
            bench.finish();
        }
        prop_assert!(bench.head.entries.is_empty(), "everything ends: {:?}", bench.head.entries);
        prop_assert!(bench.semaphores.values().all(|semaphore| semaphore.is_unused()), "{:?}", bench.semaphores);
    }
}
