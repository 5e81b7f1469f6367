//! Tests of the order and the speculative states of changes in a queue.

use super::Watch;
use crate::shape::Shape;
use sluice_config::pipeline::Manager;
use sluice_gate::queue::{Predecessor, Slot};
use sluice_gate::{
    Candidate, Entry, Head, Item, Landing, LandingEnd, LandingState, MergeStatus, SlotStatus,
};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{Commit, LandingMethod, MergeMode};
use sluice_model::{ItemId, ProjectName, QueueKey, QueueName, Timestamp};

fn change(number: u64, head: &str) -> ChangeRef {
    let key =
        ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/t0p0"), number);
    ChangeRef { key, branch: "main".into(), head: head.into(), patchset: head.to_owned() }
}

fn queue(name: &str) -> QueueKey {
    QueueKey {
        tenant: "tenant0".into(),
        pipeline: "gate".into(),
        queue: QueueName(name.to_owned()),
    }
}

/// Returns how the first change landed at this revision in a queue of this name. It was tested as
/// the commit `tested`.
fn landing(head: &str, name: &str, landed: &str) -> Landing {
    let commit = |id: &str| Commit { id: id.into(), tree: "tree".into() };
    Landing {
        item: ItemId("landed".to_owned()),
        generation: 1,
        queue: queue(name),
        change: change(1, head),
        needs: Vec::new(),
        mode: MergeMode::Merge,
        method: LandingMethod::FastForward,
        followers: Vec::new(),
        base: commit("base"),
        tested: commit("tested"),
        changes_configuration: false,
        later_members: Vec::new(),
        merged_members: Vec::new(),
        requirements: None,
        fence: 1,
        merge_attempted: true,
        has_unanswered_push: false,
        trouble: None,
        unverifiable_since: None,
        ordered_at: Timestamp(1),
        state: LandingState::Ended {
            end: LandingEnd::Landed { commit: commit(landed) },
            at: Timestamp(2),
        },
    }
}

/// Returns the violated invariant of a queue with the second change ahead of a newer revision of
/// the first, after this landing. The second change needs the first at `needed`.
fn wrong(needed: &str, landing: Option<Landing>) -> Option<String> {
    let mut watch = Watch::new(&Shape::draw(1));
    if let Some(landing) = landing {
        watch.remember_push(&landing);
    }
    let slot = |change: ChangeRef| {
        let id = ItemId(change.head.to_string());
        Slot { version: 1, ..Slot::new(id, change) }
    };
    let mut head = Head::new(queue("integrated"), Manager::Dependent, 20, 1);
    head.entries = vec![slot(change(2, "needing")).into(), slot(change(1, "newer")).into()];
    let needs = [vec![Candidate::bare(&change(1, needed))], Vec::new()];
    for (slot, needs) in head.slots().zip(needs) {
        let candidate = Candidate { needs, ..Candidate::bare(&slot.change) };
        watch.items.insert(slot.id.clone(), Item::admitted(slot, candidate, "event", Timestamp(1)));
    }
    watch.check_queue(None, &head, &mut Vec::new()).err()
}

/// Z6.5, D01: a pushed revision satisfies dependencies, even though its change is open again.
#[test]
fn a_newer_revision_of_a_need_may_be_behind_only_if_a_push_landed_the_needed_one() {
    assert_eq!(wrong("older", Some(landing("older", "integrated", "tested"))), None);
    for (needed, landing) in [
        ("older", None),
        ("older", Some(landing("oldest", "integrated", "tested"))),
        ("older", Some(landing("older", "another", "tested"))),
        // The forge created a merge commit, so the change is closed.
        ("older", Some(landing("older", "integrated", "merge"))),
        ("newer", Some(landing("older", "integrated", "tested"))),
    ] {
        let error = wrong(needed, landing.clone());
        assert!(
            error.is_some_and(|why| why.contains("is ahead of its dependency")),
            "{needed} after {landing:?}"
        );
    }
}

/// An entry of a dependent queue: its change, which is also its item's name, its generation, and
/// the entry and generation that it is tested on.
fn entry(number: u64, generation: u64, ahead: Option<(u64, u64)>, status: SlotStatus) -> Entry {
    let id = |number: u64| ItemId(format!("item{number}"));
    let slot = Slot::new(id(number), change(number, "head"));
    let ahead = ahead.map(|(item, generation)| Predecessor { item: id(item), generation });
    Entry { ahead, members: vec![Slot { generation, status, version: 1, ..slot }].into() }
}

fn head(entries: Vec<Entry>) -> Head {
    Head { entries, ..Head::new(queue("integrated"), Manager::Dependent, 20, 1) }
}

/// Returns the violated invariant of a queue that had these entries before. The jobs of changes
/// with an odd number passed so far; those of the others have failed.
fn wrong_speculation(before: Vec<Entry>, after: Vec<Entry>) -> Option<String> {
    let mut watch = Watch::new(&Shape::draw(1));
    for slot in before.iter().chain(&after).flat_map(|entry| &entry.members) {
        let candidate = Candidate::bare(&slot.change);
        let mut item = Item::admitted(slot, candidate, "event", Timestamp(1));
        if slot.change.key.number().is_some_and(|number| number.is_multiple_of(2)) {
            item.merge_status = MergeStatus::Unmergeable {
                why: "a conflict".to_owned(),
                configuration: false,
                notes: Vec::new(),
            };
        }
        watch.items.insert(slot.id.clone(), item);
    }
    let (before, after) = (head(before), head(after));
    let order = watch.check_order(Some(&before), &after, &[]);
    order.and_then(|()| watch.check_speculation(Some(&before), &after)).err()
}

/// Z6.4: each entry is tested on the nearest one ahead that may pass, and again only if that
/// changed.
#[test]
fn each_entry_is_tested_on_the_nearest_one_ahead_that_may_pass() {
    use SlotStatus::{Failing, Landing, Testing};
    let first = || entry(1, 1, None, Testing);
    let failing = || entry(2, 1, Some((1, 1)), Failing);
    let third = |generation, ahead| entry(3, generation, ahead, Testing);
    let before = || vec![first(), failing(), third(1, Some((1, 1)))];
    for (after, wrong) in [
        (before(), None),
        (vec![failing()], Some("is tested on a state that cannot pass")),
        (vec![first(), third(1, Some((1, 1)))], None),
        (vec![first(), failing(), third(2, None)], Some("is tested without org/t0p0#1")),
        (vec![first(), failing(), third(2, Some((2, 1)))], Some("on a state that cannot pass")),
        (vec![first(), failing(), third(2, Some((1, 2)))], Some("on a state that cannot pass")),
        (vec![first(), failing(), third(2, Some((1, 1)))], Some("nothing that it was tested on")),
        (vec![entry(1, 2, None, Testing)], Some("nothing that it was tested on")),
        (vec![entry(1, 1, None, Failing)], Some("is failing, although it may pass")),
        (vec![entry(2, 2, None, Testing)], Some("although org/t0p0#2")),
        (vec![third(2, None), first()], Some("which entered first")),
        (vec![entry(5, 1, None, Testing), first()], Some("which entered first")),
        (vec![first(), entry(5, 1, Some((1, 1)), Testing)], None),
    ] {
        let found = wrong_speculation(before(), after.clone());
        assert!(
            match (&found, wrong) {
                (Some(found), Some(wrong)) => found.contains(wrong),
                (found, wrong) => found.is_none() && wrong.is_none(),
            },
            "{found:?} instead of {wrong:?} for {after:?}"
        );
    }
    // The branch moved while it was landing.
    let again = || vec![entry(1, 2, None, Testing)];
    assert_eq!(wrong_speculation(vec![entry(1, 1, None, Landing)], again()), None);
}
