//! Heads come back from their records as they were, a thousand items fit, and what was torn is
//! found out.

use super::*;
use crate::arrival::Candidate;
use proptest::prelude::*;
use sluice_model::Timestamp;
use sluice_model::change::ChangeRef;

fn change(number: u64) -> ChangeRef {
    let key = ChangeKey::change("github".into(), "github.com/org/app".into(), number);
    let head = format!("{number:040x}");
    ChangeRef { key, branch: "main".into(), head: head.as_str().into(), patchset: head }
}

fn slot(number: u64, id: ItemId, generation: u64, standing: Standing, version: u64) -> Slot {
    Slot { id, change: change(number), generation, ahead: None, standing, joined: false, version }
}

fn head(manager: Manager, slots: Vec<Slot>) -> Head {
    let key = QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "integrated".into() };
    Head { slots, ..Head::new(key, manager, 20, 1) }
}

fn items(head: &Head) -> BTreeMap<ItemId, Item> {
    let item = |slot: &Slot| {
        let item = Item::admitted(slot, Candidate::bare(&slot.change), "event", Timestamp(1));
        (slot.id.clone(), Item { version: slot.version, ..item })
    };
    head.slots.iter().map(item).collect()
}

fn read_again(head: &Head) -> Result<Head, NotWhole> {
    let (text, items) = (serde_json::to_string(&head.stored()).unwrap(), items(head));
    let stored: StoredHead = serde_json::from_str(&text).unwrap();
    stored.whole(|id| items.get(id))
}

fn id(number: u64) -> ItemId {
    ItemId::derive(&[&number.to_string()])
}

/// Z6.7: a thousand changes wait in one queue, and the record that is written most is small and
/// never too large.
#[test]
fn a_head_of_a_thousand_items_fits_into_its_record() {
    let mut slots: Vec<Slot> = Vec::new();
    for number in 0..1_000 {
        let ahead =
            slots.last().map(|slot| Ahead { item: slot.id.clone(), generation: slot.generation });
        let mut next = slot(number, id(number), 1, Standing::Waiting, 1);
        if number < 20 {
            next = slot(number, id(number), 12, Standing::Testing, 77);
        }
        slots.push(Slot { ahead, ..next });
    }
    let mut queue = head(Manager::Dependent, slots);
    let bytes = serde_json::to_string(&queue.stored()).unwrap().len();
    assert!(bytes < 26_000, "{bytes}");
    assert!(queue.bytes_with(0) <= super::super::HEAD_BYTES_MAX, "{}", queue.bytes_with(0));
    assert_eq!(read_again(&queue).as_ref(), Ok(&queue));
    // As large as it may come to be: everything has been tested a hundred thousand times on
    // something far ahead.
    for at in (1..1_000).rev() {
        let before = &queue.slots[at / 2];
        queue.slots[at].ahead =
            Some(Ahead { item: before.id.clone(), generation: before.generation });
    }
    for slot in &mut queue.slots {
        (slot.generation, slot.version, slot.standing, slot.joined) =
            (123_456, 654_321, Standing::Failing, true);
    }
    for at in 1..1_000 {
        queue.slots[at].ahead =
            Some(Ahead { item: queue.slots[at / 2].id.clone(), generation: 123_456 });
    }
    let bytes = serde_json::to_string(&queue.stored()).unwrap().len();
    assert!(bytes <= queue.bytes_with(0) && bytes < 64 << 10, "{bytes}");
    assert_eq!(read_again(&queue).as_ref(), Ok(&queue));
}

/// Z6.4: of what a push landed another revision has not landed; of what a forge merged, and in
/// older records, any has.
#[test]
fn which_revision_a_push_landed_comes_back_from_the_record() {
    let other = |number| ChangeRef { head: "f".repeat(40).as_str().into(), ..change(number) };
    let mut queue = head(Manager::Dependent, Vec::new());
    let merged = change(1);
    queue.remember(&merged.key, None);
    for number in 2..40 {
        let pushed = change(number);
        queue.remember(&pushed.key, Some(&pushed.head));
        if queue.landed.len() > LANDED_MAX {
            queue.forget(1);
        }
    }
    let read = read_again(&queue).unwrap();
    assert_eq!(read, queue);
    assert!(read.has_landed(&merged) && read.has_landed(&other(1)));
    assert!(read.has_landed(&change(39)) && !read.has_landed(&other(39)));
    assert!(!read.has_landed(&change(2)), "it was forgotten");
    let bytes = serde_json::to_string(&queue.stored()).unwrap().len();
    assert!(bytes <= queue.bytes_with(0), "{bytes}");

    let older = StoredHead { landed_heads: Vec::new(), ..queue.stored() };
    let text = serde_json::to_string(&older).unwrap();
    assert!(!text.contains("landed_heads"), "{text}");
    let read = serde_json::from_str::<StoredHead>(&text).unwrap().whole(|_| None).unwrap();
    assert!(read.has_landed(&other(39)));
}

/// Z6.7: a head that was read before or after its items is read again, not believed.
#[test]
fn an_item_that_was_written_since_the_head_was_read_is_found_out() {
    let queue = head(Manager::Dependent, vec![slot(1, id(1), 1, Standing::Testing, 3)]);
    let mut known = items(&queue);
    let torn = Err(NotWhole::Torn { item: id(1), version: 3 });
    known.get_mut(&id(1)).unwrap().version = 4;
    assert_eq!(queue.stored().whole(|id| known.get(id)), torn);
    assert_eq!(queue.stored().whole(|_| None), torn);
    assert_eq!(queue.stored().versions(), Ok(vec![(id(1), 3)]));
    for wrong in ["", "short", "~a x", "~a g", "~a ^0", "~a ^1", "~a @b", "~a jj"] {
        let stored = StoredHead { slots: vec![wrong.to_owned()], ..queue.stored() };
        let item = Item { version: 1, ..items(&queue)[&id(1)].clone() };
        assert!(matches!(stored.whole(|_| Some(&item)), Err(NotWhole::Bad { .. })), "{wrong}");
    }
}

/// Z6.1, Z6.5: how many stand before a change is read off the head alone; a bundle is one place.
#[test]
fn a_head_tells_how_many_stand_before_each_item() {
    let joined =
        |number| Slot { joined: true, ..slot(number, id(number), 1, Standing::Waiting, 1) };
    let alone = |number| slot(number, id(number), 1, Standing::Testing, 2);
    let queue = head(Manager::Dependent, vec![joined(1), alone(2), joined(3), joined(4), alone(5)]);
    let places =
        [(1, 0), (2, 1), (3, 1), (4, 1), (5, 2)].map(|(number, place)| (id(number), place));
    assert_eq!(queue.stored().places(), Ok(BTreeMap::from(places)));
    let wrong = StoredHead { slots: vec!["short".to_owned()], ..queue.stored() };
    assert_eq!(wrong.places(), Err(NotWhole::Bad { slot: "short".to_owned() }));
}

fn any_standing() -> impl Strategy<Value = Standing> {
    use Standing::{Failing, Landed, Landing, Passed, Pledged, Reporting, Testing, Waiting};
    prop::sample::select(vec![
        Waiting, Testing, Failing, Passed, Landing, Pledged, Landed, Reporting,
    ])
}

fn any_head() -> impl Strategy<Value = Head> {
    let one =
        (any::<bool>(), 0..4_u64, any_standing(), any::<bool>(), 0..3_u64, 0..5_usize, 0..4_u64);
    let manager = prop::sample::select(vec![Manager::Dependent, Manager::Independent]);
    (manager, prop::collection::vec(one, 0..12)).prop_map(|(manager, all)| {
        let mut slots: Vec<Slot> = Vec::new();
        for (at, (is_usual, generation, standing, joined, version, back, of)) in
            all.into_iter().enumerate()
        {
            let own = if is_usual { id(at as u64) } else { ItemId(format!("item-{at}.5")) };
            let ahead = match back {
                0 => None,
                4 => Some(ItemId::from("gone")),
                back => at.checked_sub(back).map(|at| slots[at].id.clone()),
            };
            let ahead = ahead.map(|item| Ahead { item, generation: of });
            slots.push(Slot {
                ahead,
                joined,
                ..slot(at as u64, own, generation, standing, version)
            });
        }
        head(manager, slots)
    })
}

proptest! {
    /// Z6.4: whatever a head says, its record says the same.
    #[test]
    fn a_head_comes_back_from_its_record_as_it_was(head in any_head()) {
        prop_assert_eq!(read_again(&head), Ok(head));
    }
}
