//! What is right and wrong about queues that are written down here.

use super::Watch;
use crate::shape::Shape;
use sluice_config::pipeline::Manager;
use sluice_gate::queue::Slot;
use sluice_gate::{Candidate, Head, Item, Landing, LandingEnd, LandingState, Standing};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::{Commit, LandingWay, MergeMode};
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

/// Returns how the first change landed at this revision, which was tested as the commit `tested`,
/// in a queue of this name.
fn landing(head: &str, name: &str, landed: &str) -> Landing {
    let commit = |id: &str| Commit { id: id.into(), tree: "tree".into() };
    Landing {
        item: ItemId("landed".to_owned()),
        generation: 1,
        queue: queue(name),
        change: change(1, head),
        needs: Vec::new(),
        mode: MergeMode::Merge,
        way: LandingWay::FastForward,
        behind: Vec::new(),
        base: commit("base"),
        tested: commit("tested"),
        configures: false,
        together: Vec::new(),
        asks: None,
        fence: Some(1),
        tried: true,
        pushed: false,
        asked_until: None,
        trouble: None,
        unread_since: None,
        wanted_at: Timestamp(1),
        state: LandingState::Ended {
            end: LandingEnd::Landed { commit: commit(landed) },
            at: Timestamp(2),
        },
    }
}

/// Returns what is wrong with a queue where the second change, which needs the first at this
/// revision, stands before the newer revision of that, after this landing.
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
        standing: Standing::Waiting,
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
    watch.queue(None, head, &mut Vec::new()).err()
}

/// Z6.5, D01: what a push landed is there for those that need it, though its change is open again;
/// nothing else stands before its need.
#[test]
fn a_change_stands_before_a_newer_revision_of_what_it_needs_where_a_push_landed_the_needed_one_alone()
 {
    assert_eq!(wrong("older", Some(landing("older", "integrated", "tested"))), None);
    for (needed, landing) in [
        ("older", None),
        ("older", Some(landing("oldest", "integrated", "tested"))),
        ("older", Some(landing("older", "another", "tested"))),
        // The forge made a commit of its own of it, so that its change is closed.
        ("older", Some(landing("older", "integrated", "merge"))),
        ("newer", Some(landing("older", "integrated", "tested"))),
    ] {
        let told = wrong(needed, landing.clone());
        assert!(
            told.is_some_and(|why| why.contains("stands before")),
            "{needed} after {landing:?}"
        );
    }
}
