//! Operator commands to a queue: the CLI reads from the records whether they were consumed and with
//! which outcome.

use super::unreadable_records::spoil;
use super::{approve, propose, site};
use sluice_gate::queue::own_queue;
use sluice_gate::{DEQUEUED_BY_OPERATOR, InboxMessage, InboxMessageKind};
use sluice_memory::poll_once;
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::Wakeup;
use sluice_model::{InboxMessageId, ItemId, QueueKey};
use sluice_records::operator_command::{self, ItemOutcome, OperatorCommand, PipelineContents};
use sluice_records::{queue, tenant};
use sluice_runtime::{Clock as _, cell};
use sluice_scenarios::Site;
use std::collections::BTreeMap;

/// Returns the key of the shared gate queue.
fn integrated() -> QueueKey {
    QueueKey { tenant: "demo".into(), pipeline: "gate".into(), queue: "integrated".into() }
}

/// Approves changes that stay in the gate because their `unit` job does not end.
fn enqueue_held_changes(site: &mut Site, numbers: &[u64]) -> Vec<ChangeKey> {
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

/// Returns change and id of the items of the queue, in order.
fn items(site: &Site) -> Vec<(ChangeKey, ItemId)> {
    let head = poll_once(queue::load(&site.ports(), &integrated())).unwrap().unwrap().head;
    let slots = head.iter().flat_map(|head| head.slots());
    slots.map(|slot| (slot.change.key.clone(), slot.id.clone())).collect()
}

/// Writes a command to the inbox of the queue and wakes the queue, as the CLI does.
pub(super) fn send_command(site: &Site, kind: InboxMessageKind) -> OperatorCommand {
    let (id, event_id) = (InboxMessageId("command".to_owned()), "operator".to_owned());
    let message = InboxMessage {
        id,
        at: site.world.now(),
        event_id,
        layout: 0,
        by_operator: true,
        in_progress: false,
        kind,
    };
    let (write, command) = operator_command::put(&integrated(), &message).unwrap();
    site.world.write_unchecked(write);
    let wakeup = [Wakeup::Queue { queue: integrated() }];
    Site::repeat(|| poll_once(cell::send(&site.ports(), &wakeup)));
    command
}

/// Returns whether the queue has consumed the command.
fn is_consumed(site: &Site, command: &OperatorCommand) -> bool {
    poll_once(operator_command::pending_commands(&site.ports(), std::slice::from_ref(command)))
        .unwrap()
        .unwrap()
        .is_empty()
}

/// Returns what became of these items.
fn outcomes(site: &Site, items: &[ItemId]) -> Vec<ItemOutcome> {
    poll_once(operator_command::item_outcomes(&site.ports(), &integrated(), items))
        .unwrap()
        .unwrap()
}

/// R06: nothing is decided until the queue consumes the command. Then the records hold the result
/// and the reason.
#[test]
fn the_records_hold_the_outcome_and_reason_of_a_dequeue_command() {
    let mut site = site();
    let changes = enqueue_held_changes(&mut site, &[1, 2]);
    let ids: Vec<ItemId> = items(&site).into_iter().map(|(_, id)| id).collect();
    let (by, reason) = ("jo".to_owned(), "it hangs".to_owned());
    let command = send_command(
        &site,
        InboxMessageKind::Dequeue { key: changes[0].clone(), head: None, by, reason },
    );
    assert!(!is_consumed(&site, &command));
    assert_eq!(
        outcomes(&site, &ids),
        [0, 1].map(|position| ItemOutcome::InQueue { position, of: 2 })
    );
    site.run_until(|site| is_consumed(site, &command));
    let dequeued = ItemOutcome::Left {
        result: "DEQUEUED".to_owned(),
        why: format!("{DEQUEUED_BY_OPERATOR}: it hangs"),
    };
    assert_eq!(
        outcomes(&site, &ids),
        [dequeued.clone(), ItemOutcome::InQueue { position: 0, of: 1 }]
    );
    site.held.clear();
    site.run();
    let unknown = ItemId::derive(&["unknown"]);
    let ended = outcomes(&site, &[ids[0].clone(), ids[1].clone(), unknown]);
    assert_eq!((&ended[0], &ended[2]), (&dequeued, &ItemOutcome::Gone));
    assert!(
        matches!(&ended[1], ItemOutcome::Left { result, .. } if result == "SUCCESS"),
        "{ended:?}"
    );
}

/// Z6.4: the records hold the new position of a promoted change once its queue has consumed the
/// command.
#[test]
fn the_records_hold_the_new_position_after_a_promote_command() {
    let mut site = site();
    let changes = enqueue_held_changes(&mut site, &[1, 2, 3]);
    let ids: Vec<ItemId> = items(&site).into_iter().map(|(_, id)| id).collect();
    let keys = vec![changes[2].clone()];
    let command = send_command(&site, InboxMessageKind::Promote { keys, by: "jo".to_owned() });
    assert_eq!(outcomes(&site, &ids[2..]), [ItemOutcome::InQueue { position: 2, of: 3 }]);
    site.run_until(|site| is_consumed(site, &command));
    assert_eq!(
        outcomes(&site, &ids),
        [1, 2, 0].map(|position| ItemOutcome::InQueue { position, of: 3 })
    );
}

/// R06, Z6.4: a halted queue does not consume a dequeue command; the operator reads that the queue
/// is halted, and why.
#[test]
fn a_halted_queue_keeps_its_change_and_shows_the_reason_of_the_halt() {
    let mut site = site();
    let halt_reason = |site: &Site| {
        poll_once(operator_command::halt_reason(&site.ports(), &integrated())).unwrap().unwrap()
    };
    assert_eq!(halt_reason(&site), None);
    site.forge.sabotage(BTreeMap::from([("strange".to_owned(), "file".to_owned())]));
    let change = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&change]);
    let command = send_command(
        &site,
        InboxMessageKind::Dequeue {
            key: change,
            head: None,
            by: "jo".to_owned(),
            reason: "it hangs".to_owned(),
        },
    );
    site.run();
    assert!(!is_consumed(&site, &command));
    let why = halt_reason(&site).expect("it is halted");
    assert!(why.contains("until an operator resumes it"), "{why}");
}

/// Z7.3: an unreadable queue is named and hides no other queue from an operator. A queue with an
/// unreadable list entry is still found by its key.
#[test]
fn an_unreadable_queue_is_named_and_hides_no_other() {
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
        poll_once(operator_command::pipeline_contents(&site.ports(), &"demo".into(), "check"))
            .unwrap()
            .unwrap()
    };
    site.run_until(|site| read(site).queues.len() == 3);
    assert!(read(&site).unreadable.is_empty());
    let (hidden, listed) = (queue_of(&changes[0]), queue_of(&changes[1]));
    spoil(&site, |record| record.key == queue::head_key(&hidden));
    spoil(&site, |record| record.key == tenant::queue_key(&listed));
    let contents = read(&site);
    let entries = contents.queues.iter().flat_map(|(_, entries)| entries);
    let queued: Vec<&ChangeKey> =
        entries.flat_map(|entry| &entry.members).map(|slot| &slot.change.key).collect();
    assert_eq!(queued, [&changes[1], &changes[2]]);
    let unreadable: Vec<(&str, bool)> =
        contents.unreadable.iter().map(|one| (one.queue.as_str(), one.is_queue_omitted)).collect();
    assert_eq!(unreadable, [(hidden.queue.as_str(), true), (listed.queue.as_str(), false)]);
}
