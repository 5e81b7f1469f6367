//! Heads survive storing and reading, a thousand items fit, and inconsistent reads are detected.

use super::*;
use crate::inbox::Candidate;
use proptest::prelude::*;
use sluice_model::Timestamp;
use sluice_model::change::ChangeRef;
use smallvec::smallvec;

fn change(number: u64) -> ChangeRef {
    let key = ChangeKey::change("github".into(), "github.com/org/app".into(), number);
    let head = format!("{number:040x}");
    ChangeRef { key, branch: "main".into(), head: head.as_str().into(), patchset: head }
}

fn slot(number: u64, id: ItemId, generation: u64, status: SlotStatus, version: u64) -> Slot {
    Slot { id, change: change(number), generation, status, version }
}

fn alone(slot: Slot) -> Entry {
    Entry { ahead: None, members: smallvec![slot] }
}

fn head(manager: Manager, entries: Vec<Entry>) -> Head {
    let key = QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "integrated".into() };
    Head { entries, ..Head::new(key, manager, 20, 1) }
}

fn items(head: &Head) -> BTreeMap<ItemId, Item> {
    let item = |slot: &Slot| {
        let item = Item::admitted(slot, Candidate::bare(&slot.change), "event", Timestamp(1));
        (slot.id.clone(), Item { version: slot.version, ..item })
    };
    head.slots().map(item).collect()
}

fn read_again(head: &Head) -> Result<Head, HeadError> {
    let (text, items) = (serde_json::to_string(&head.stored()).unwrap(), items(head));
    let stored: StoredHead = serde_json::from_str(&text).unwrap();
    stored.into_head(|id| items.get(id))
}

fn id(number: u64) -> ItemId {
    ItemId::derive(&[&number.to_string()])
}

/// Z6.7: with a thousand changes in a queue, the most frequently written record stays small.
#[test]
fn a_head_of_a_thousand_items_fits_into_its_record() {
    let mut entries: Vec<Entry> = Vec::new();
    for number in 0..1_000 {
        let ahead = entries.last().map(Entry::as_predecessor);
        let mut next = slot(number, id(number), 1, SlotStatus::Waiting, 1);
        if number < 20 {
            next = slot(number, id(number), 12, SlotStatus::Testing, 77);
        }
        entries.push(Entry { ahead, ..alone(next) });
    }
    let mut queue = head(Manager::Dependent, entries);
    let bytes = serde_json::to_string(&queue.stored()).unwrap().len();
    assert!(bytes < 26_000, "{bytes}");
    assert!(queue.bytes_with(0) <= super::super::HEAD_BYTES_MAX, "{}", queue.bytes_with(0));
    assert_eq!(read_again(&queue).as_ref(), Ok(&queue));
    // At its largest: every item has been tested a hundred thousand times on an item far ahead.
    for at in 1..1_000 {
        let before = queue.entries[at / 2].first().id.clone();
        queue.entries[at].ahead = Some(Predecessor { item: before, generation: 123_456 });
    }
    for slot in queue.slots_mut() {
        (slot.generation, slot.version, slot.status) = (123_456, 654_321, SlotStatus::Failing);
    }
    queue.entries[0].ahead = Some(Predecessor { item: id(1_001), generation: 123_456 });
    let bytes = serde_json::to_string(&queue.stored()).unwrap().len();
    assert!(bytes <= queue.bytes_with(0) && bytes < 64 << 10, "{bytes}");
    assert_eq!(read_again(&queue).as_ref(), Ok(&queue));
}

/// Z6.4: where a push merged a revision, another revision has not been merged; where the forge
/// merged the change, every revision has.
#[test]
fn the_revision_that_a_push_merged_is_stored() {
    let other = |number| ChangeRef { head: "f".repeat(40).as_str().into(), ..change(number) };
    let mut queue = head(Manager::Dependent, Vec::new());
    let merged = change(1);
    queue.record_landed(&merged.key, None);
    for number in 2..40 {
        let pushed = change(number);
        queue.record_landed(&pushed.key, Some(&pushed.head));
        if queue.landed.len() > LANDED_MAX {
            queue.forget_landed(1);
        }
    }
    let read = read_again(&queue).unwrap();
    assert_eq!(read, queue);
    assert!(read.has_landed(&merged) && read.has_landed(&other(1)));
    assert!(read.has_landed(&change(39)) && !read.has_landed(&other(39)));
    assert!(!read.has_landed(&change(2)), "it was removed from the list");
    let bytes = serde_json::to_string(&queue.stored()).unwrap().len();
    assert!(bytes <= queue.bytes_with(0), "{bytes}");

    let older = StoredHead { landed_heads: Vec::new(), ..queue.stored() };
    let text = serde_json::to_string(&older).unwrap();
    assert!(!text.contains("landed_heads"), "{text}");
    let read = serde_json::from_str::<StoredHead>(&text).unwrap().into_head(|_| None).unwrap();
    assert!(read.has_landed(&other(39)));
}

/// Z6.7: a head that does not match its items' records is read again.
#[test]
fn an_item_written_since_the_head_was_read_is_detected() {
    let queue = head(Manager::Dependent, vec![alone(slot(1, id(1), 1, SlotStatus::Testing, 3))]);
    let mut known = items(&queue);
    let torn = Err(HeadError::StaleItem { item: id(1), version: 3 });
    known.get_mut(&id(1)).unwrap().version = 4;
    assert_eq!(queue.stored().into_head(|id| known.get(id)), torn);
    assert_eq!(queue.stored().into_head(|_| None), torn);
    assert_eq!(queue.stored().versions(), Ok(vec![(id(1), 3)]));
    for wrong in ["", "short", "~a x", "~a g", "~a ^0", "~a ^1", "~a @b", "~a jj", "~a,~a -"] {
        let stored = StoredHead { entries: vec![wrong.to_owned()], ..queue.stored() };
        let item = Item { version: 1, ..items(&queue)[&id(1)].clone() };
        assert!(
            matches!(stored.into_head(|_| Some(&item)), Err(HeadError::InvalidEntry { .. })),
            "{wrong}"
        );
    }
}

/// Z6.1, Z6.5: the number of entries ahead is read from the head alone; a bundle is one entry.
#[test]
fn a_head_returns_the_number_of_entries_ahead_of_each_item() {
    let next = |number| slot(number, id(number), 1, SlotStatus::Waiting, 1);
    let bundle = Entry { ahead: None, members: smallvec![next(2), next(3), next(4)] };
    let queue = head(Manager::Dependent, vec![alone(next(1)), bundle, alone(next(5))]);
    let places =
        [(1, 0), (2, 1), (3, 1), (4, 1), (5, 2)].map(|(number, place)| (id(number), place));
    assert_eq!(queue.stored().positions(), Ok(BTreeMap::from(places)));
    let wrong = StoredHead { entries: vec!["short".to_owned()], ..queue.stored() };
    assert_eq!(wrong.positions(), Err(HeadError::InvalidEntry { entry: "short".to_owned() }));
}

fn any_standing() -> impl Strategy<Value = SlotStatus> {
    use SlotStatus::{
        AwaitingLanding, Failing, Landed, Landing, Passed, Reporting, Testing, Waiting,
    };
    prop::sample::select(vec![
        Waiting,
        Testing,
        Failing,
        Passed,
        Landing,
        AwaitingLanding,
        Landed,
        Reporting,
    ])
}

fn any_head() -> impl Strategy<Value = Head> {
    let one =
        (any::<bool>(), 0..4_u64, any_standing(), any::<bool>(), 0..3_u64, 0..5_usize, 0..4_u64);
    let manager = prop::sample::select(vec![Manager::Dependent, Manager::Independent]);
    (manager, prop::collection::vec(one, 0..12)).prop_map(|(manager, all)| {
        let (mut entries, mut ids): (Vec<Entry>, Vec<ItemId>) = Default::default();
        for (at, (is_usual, generation, status, is_joined, version, back, of)) in
            all.into_iter().enumerate()
        {
            let own = if is_usual { id(at as u64) } else { ItemId(format!("item-{at}.5")) };
            let next = slot(at as u64, own.clone(), generation, status, version);
            match entries.last_mut().filter(|_| is_joined) {
                Some(entry) => entry.members.push(next),
                None => {
                    let ahead = match back {
                        0 => None,
                        4 => Some(ItemId::from("gone")),
                        back => at.checked_sub(back).map(|at| ids[at].clone()),
                    };
                    let ahead = ahead.map(|item| Predecessor { item, generation: of });
                    entries.push(Entry { ahead, ..alone(next) });
                }
            }
            ids.push(own);
        }
        head(manager, entries)
    })
}

proptest! {
    /// Z6.4: storing and reading a head loses nothing.
    #[test]
    fn storing_and_reading_a_head_returns_the_same_head(head in any_head()) {
        prop_assert_eq!(read_again(&head), Ok(head));
    }
}
