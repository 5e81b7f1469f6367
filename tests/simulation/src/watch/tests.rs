//! Tests of the order of changes in a queue.

use super::Watch;
use crate::shape::Shape;
use sluice_config::pipeline::Manager;
use sluice_gate::queue::Slot;
use sluice_gate::{Candidate, Head, Item, Landing, LandingEnd, LandingState, SlotStatus};
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
        requirements: None,
        fence: Some(1),
        merge_attempted: true,
        has_unanswered_push: false,
        in_flight_until: None,
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
    let slot = |change: ChangeRef| Slot {
        id: ItemId(change.head.to_string()),
        change,
        generation: 1,
        ahead: None,
        status: SlotStatus::Waiting,
        joined: false,
        version: 1,
    };
    let mut head = Head::new(queue("integrated"), Manager::Dependent, 20, 1);
    head.slots = vec![slot(change(2, "needing")), slot(change(1, "newer"))];
    let needs = [vec![Candidate::bare(&change(1, needed))], Vec::new()];
    for (slot, needs) in head.slots.iter().zip(needs) {
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
