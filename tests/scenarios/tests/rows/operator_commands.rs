//! What an operator asks of a queue, as his command reads it off the records: heard or not yet, and
//! what came of it.

use super::unreadable_records::spoil;
use super::{approve, propose, site};
use sluice_gate::queue::own_queue;
use sluice_gate::{InboxMessage, InboxMessageKind, DEQUEUED_BY_OPERATOR};
use sluice_memory::poll_once;
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::Wakeup;
use sluice_model::{InboxMessageId, ItemId, QueueKey};
use sluice_records::operator_command::{self, ItemOutcome, PipelineContents, OperatorCommand};
use sluice_records::{queue, tenant};
use sluice_runtime::{Clock as _, cell};
use sluice_scenarios::Site;
use std::collections::BTreeMap;

fn integrated() -> QueueKey {
    QueueKey { tenant: "demo".into(), pipeline: "gate".into(), queue: "integrated".into() }
}

/// Has changes approved that stay in the gate, for a job of theirs does not end.
fn held(site: &mut Site, numbers: &[u64]) -> Vec<ChangeKey> {
    let changes: Vec<ChangeKey> = numbers
        .iter()
        .map(|number| propose(site, *number, &[(&format!("f{number}"), "x")]))
        .collect();
    site.run();
    site.held.insert("unit".to_owned());
    for change in &changes {
        site.forge.approve(change);
        site.take_in();
    }
    site.run_until(|site| items(site).len() == numbers.len());
    changes
}

/// Returns what stands in the queue, in its order.
fn items(site: &Site) -> Vec<(ChangeKey, ItemId)> {
    let head = poll_once(queue::load(&site.ports(), &integrated())).unwrap().unwrap().head;
    let slots = head.map(|head| head.slots).unwrap_or_default();
    slots.into_iter().map(|slot| (slot.change.key, slot.id)).collect()
}

/// Brings an operator's word to the queue, as the command does.
fn tell(site: &Site, kind: InboxMessageKind) -> OperatorCommand {
    let (id, event_id) = (InboxMessageId("word".to_owned()), "operator".to_owned());
    let arrival = InboxMessage {
        id,
        at: site.world.now(),
        event_id,
        layout: 0,
        by_operator: true,
        in_progress: false,
        kind,
    };
    let (write, command) = operator_command::put(&integrated(), &arrival).unwrap();
    site.world.write_directly(write);
    poll_once(cell::send(&site.ports(), &[Wakeup::Queue { queue: integrated() }])).unwrap().unwrap();
    command
}

fn is_heard(site: &Site, command: &OperatorCommand) -> bool {
    poll_once(operator_command::pending_commands(&site.ports(), std::slice::from_ref(command))).unwrap().unwrap().is_empty()
}

fn became(site: &Site, items: &[ItemId]) -> Vec<ItemOutcome> {
    poll_once(operator_command::item_outcomes(&site.ports(), &integrated(), items)).unwrap().unwrap()
}

/// R06: until its queue has heard it nothing is decided, and then the records say how the change
/// left, and why.
#[test]
fn what_an_operator_takes_out_is_read_off_the_records_with_its_reason() {
    let mut site = site();
    let changes = held(&mut site, &[1, 2]);
    let ids: Vec<ItemId> = items(&site).into_iter().map(|(_, id)| id).collect();
    let (by, reason) = ("jo".to_owned(), "it hangs".to_owned());
    let command =
        tell(&site, InboxMessageKind::Dequeue { key: changes[0].clone(), head: None, by, reason });
    assert!(!is_heard(&site, &command));
    assert_eq!(became(&site, &ids), [0, 1].map(|position| ItemOutcome::InQueue { position, of: 2 }));
    site.run_until(|site| is_heard(site, &command));
    let taken =
        ItemOutcome::Left { result: "DEQUEUED".to_owned(), why: format!("{DEQUEUED_BY_OPERATOR}: it hangs") };
    assert_eq!(became(&site, &ids), [taken.clone(), ItemOutcome::InQueue { position: 0, of: 1 }]);
    site.held.clear();
    site.run();
    let nobody = ItemId::derive(&["nobody"]);
    let ended = became(&site, &[ids[0].clone(), ids[1].clone(), nobody]);
    assert_eq!((&ended[0], &ended[2]), (&taken, &ItemOutcome::Gone));
    assert!(matches!(&ended[1], ItemOutcome::Left { result, .. } if result == "SUCCESS"), "{ended:?}");
}

/// Z6.4: whoever moves a change to the front reads where it stands once its queue has done it.
#[test]
fn what_an_operator_moves_to_the_front_is_read_off_the_records_with_its_place() {
    let mut site = site();
    let changes = held(&mut site, &[1, 2, 3]);
    let ids: Vec<ItemId> = items(&site).into_iter().map(|(_, id)| id).collect();
    let keys = vec![changes[2].clone()];
    let command = tell(&site, InboxMessageKind::Promote { keys, by: "jo".to_owned() });
    assert_eq!(became(&site, &ids[2..]), [ItemOutcome::InQueue { position: 2, of: 3 }]);
    site.run_until(|site| is_heard(site, &command));
    assert_eq!(became(&site, &ids), [1, 2, 0].map(|position| ItemOutcome::InQueue { position, of: 3 }));
}

/// R06, Z6.4: what came to a stop in its branch is not taken out before somebody has looked, and
/// who asked for it learns that its queue is frozen, and why.
#[test]
fn what_froze_its_queue_stays_there_and_whoever_wants_it_out_reads_why() {
    let mut site = site();
    let frozen = |site: &Site| {
        poll_once(operator_command::halt_reason(&site.ports(), &integrated())).unwrap().unwrap()
    };
    assert_eq!(frozen(&site), None);
    site.forge.sabotage(BTreeMap::from([("strange".to_owned(), "file".to_owned())]));
    let change = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&change]);
    let command = tell(
        &site,
        InboxMessageKind::Dequeue {
            key: change,
            head: None,
            by: "jo".to_owned(),
            reason: "it hangs".to_owned(),
        },
    );
    site.run();
    assert!(!is_heard(&site, &command));
    let why = frozen(&site).expect("it is frozen");
    assert!(why.contains("until an operator resumes it"), "{why}");
}

/// Z7.3: a queue that nobody can read hides no other from an operator, and is named; of one that is
/// badly listed the key tells enough.
#[test]
fn a_queue_that_cannot_be_read_is_named_and_hides_no_other() {
    let mut site = site();
    site.held.insert("unit".to_owned());
    let changes: Vec<ChangeKey> =
        [1, 2, 3].map(|number| propose(&site, number, &[("f", "x")])).into();
    let queue_of = |change: &ChangeKey| QueueKey {
        tenant: "demo".into(),
        pipeline: "check".into(),
        queue: own_queue(change),
    };
    let read = |site: &Site| -> PipelineContents {
        poll_once(operator_command::pipeline_contents(&site.ports(), &"demo".into(), "check")).unwrap().unwrap()
    };
    site.run_until(|site| read(site).queues.len() == 3);
    assert!(read(&site).unreadable.is_empty());
    let (hidden, listed) = (queue_of(&changes[0]), queue_of(&changes[1]));
    spoil(&site, |record| record.key == queue::head_key(&hidden));
    spoil(&site, |record| record.key == tenant::queue_key(&listed));
    let found = read(&site);
    let stand: Vec<&ChangeKey> =
        found.queues.iter().flat_map(|(_, slots)| slots).map(|slot| &slot.change.key).collect();
    assert_eq!(stand, [&changes[1], &changes[2]]);
    let unread: Vec<(&str, bool)> =
        found.unreadable.iter().map(|one| (one.queue.as_str(), one.is_queue_omitted)).collect();
    assert_eq!(unread, [(hidden.queue.as_str(), true), (listed.queue.as_str(), false)]);
}
