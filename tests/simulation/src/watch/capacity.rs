//! `max-changes-per-pipeline`: an entering change found capacity at some moment since its queue was
//! read, and a refused one could have found none.
//!
//! A function reads the other queues before its decision, and several may decide at once. Therefore
//! every count since that read is accepted.

use super::{Kind, Watch, WriteEffect, key_of, kind, read};
use crate::scenarios::Scenario;
use sluice_config::pipeline::Manager;
use sluice_gate::{Head, InboxMessage, InboxMessageKind, Item, Report};
use sluice_memory::RecordChange;
use sluice_model::{ItemId, QueueKey};
use sluice_records::queue::partition;
use sluice_records::report::Buildset;
use sluice_runtime::record::Key;
use std::collections::BTreeMap;

/// The start of the report to a refused change; the number of changes follows.
const NO_ROOM_TEXT: &str = "Unable to enqueue change: ";

/// How many changes queues held, and when.
#[derive(Default)]
pub(super) struct Room {
    /// The number of transactions so far.
    count: u64,
    /// For each queue, the transactions after which its number of changes differed, with that
    /// number.
    held: BTreeMap<QueueKey, Vec<(u64, u64)>>,
    /// The transaction of the last revision of each queue's head, by partition.
    heads: BTreeMap<String, u64>,
    /// The transaction that wrote each inbox message.
    arrived: BTreeMap<Key, u64>,
}

impl Watch {
    /// Checks what a transaction enqueued or refused.
    pub(super) fn check_capacity(
        &mut self,
        transaction: &[RecordChange],
        effects: &mut Vec<WriteEffect>,
    ) -> Result<(), String> {
        if !self.shape.has(Scenario::MaxChanges) {
            return Ok(());
        }
        self.room.count += 1;
        let now = self.room.count;
        let (mut since, mut offered) = (0_u64, None::<String>);
        for write in transaction {
            let Some(key) = key_of(write).filter(|key| kind(key) == Kind::InboxMessage) else {
                continue;
            };
            if write.after.is_some() {
                self.room.arrived.entry(key.clone()).or_insert(now);
                continue;
            }
            since = since.max(self.room.arrived.remove(key).unwrap_or_default());
            let message: Option<InboxMessage> = read(write.before.as_ref())?;
            if message
                .is_some_and(|message| matches!(message.kind, InboxMessageKind::Enqueue { .. }))
            {
                offered = Some(key.partition.clone());
            }
        }
        let refused = refused(transaction)?;
        let no_room = refused.iter().map(|(report, _)| {
            WriteEffect::NoRoom(Box::new(report.change.clone()), report.queue.clone())
        });
        effects.extend(no_room);
        // The other queues are only read when a change is offered. A requeued one keeps its place.
        let queue =
            offered.and_then(|own| self.written.iter().find(|queue| partition(queue) == own));
        if let Some(queue) = queue {
            let since =
                since.max(self.room.heads.get(&partition(queue)).copied().unwrap_or_default());
            self.check_room(queue, since, transaction, &refused)?;
        }
        for write in transaction {
            let Some(record) =
                write.after.as_ref().filter(|record| kind(&record.key) == Kind::Queue)
            else {
                continue;
            };
            if write.before.as_ref().is_none_or(|before| before.revision < record.revision) {
                self.room.heads.insert(record.key.partition.clone(), now);
            }
        }
        for head in self.written.iter().filter_map(|queue| self.heads.get(queue)) {
            let count = changes_in(head, &self.items);
            let states = self.room.held.entry(head.key.clone()).or_default();
            if states.last().map_or(0, |(_, last)| *last) != count {
                states.push((now, count));
            }
        }
        Ok(())
    }

    /// Checks one queue, whose function read the other queues after the transaction `since`.
    fn check_room(
        &self,
        queue: &QueueKey,
        since: u64,
        transaction: &[RecordChange],
        refused: &[(Report, u64)],
    ) -> Result<(), String> {
        let most = self.shape.changes_max(queue.tenant.as_str()).map(u64::from);
        let (Some(most), Some(head)) = (most, self.heads.get(queue)) else { return Ok(()) };
        let (mut least_elsewhere, mut most_elsewhere) = (0_u64, 0_u64);
        for (other, states) in &self.room.held {
            if other.tenant == queue.tenant && other.pipeline == queue.pipeline && other != queue {
                let (least, most) = bounds(states, since);
                (least_elsewhere, most_elsewhere) =
                    (least_elsewhere + least, most_elsewhere + most);
            }
        }
        let (own, here) = (partition(queue), changes_in(head, &self.items));
        let new = transaction
            .iter()
            .filter(|write| write.before.is_none())
            .filter_map(|write| write.after.as_ref());
        let enters = new
            .clone()
            .any(|record| kind(&record.key) == Kind::Item && record.key.partition == own);
        if enters && here + least_elsewhere > most {
            return Err(format!(
                "a change entered {queue}: it holds {here} changes and other queues {least_elsewhere}, but its tenant allows {most}"
            ));
        }
        // Items that left in the same transaction may still have counted.
        let mut at_most = here + self.left.iter().map(|item| changes_of(head, item)).sum::<u64>();
        for record in new.filter(|record| kind(&record.key) == Kind::Buildset) {
            let set: Option<Buildset> = read(Some(record))?;
            let never_stood =
                |set: &Buildset| set.queue == *queue && !self.former.contains(&set.item.id);
            at_most += set.filter(never_stood).map_or(0, |set| changes_of(head, &set.item));
        }
        let had_room = |(report, more): &&(Report, u64)| {
            report.queue == *queue && at_most + more + most_elsewhere <= most
        };
        match refused.iter().find(had_room) {
            Some((report, more)) => Err(format!(
                "{} was refused by {queue}, which has capacity for {more} changes besides {at_most} and {most_elsewhere} in other queues",
                report.change
            )),
            None => Ok(()),
        }
    }
}

/// Returns the reports of refused changes, each with the number of refused changes.
fn refused(transaction: &[RecordChange]) -> Result<Vec<(Report, u64)>, String> {
    let mut refused = Vec::new();
    let new = transaction
        .iter()
        .filter(|write| write.before.is_none())
        .filter_map(|write| write.after.as_ref());
    for record in new.filter(|record| kind(&record.key) == Kind::Report) {
        let Some((_, text)) = record.body.split_once(NO_ROOM_TEXT) else { continue };
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let (report, more): (Option<Report>, Option<u64>) =
            (read(Some(record))?, digits.parse().ok());
        refused.extend(report.zip(more));
    }
    Ok(refused)
}

/// Returns the minimum and maximum that a queue held since a transaction.
fn bounds(states: &[(u64, u64)], since: u64) -> (u64, u64) {
    let later = states.partition_point(|(at, _)| *at <= since);
    let before = later.checked_sub(1).map_or(0, |at| states[at].1);
    let counts = states[later..].iter().map(|(_, count)| *count);
    counts.fold((before, before), |(least, most), count| (least.min(count), most.max(count)))
}

/// Returns how many changes a queue holds.
fn changes_in(head: &Head, items: &BTreeMap<ItemId, Item>) -> u64 {
    head.slots().filter_map(|slot| items.get(&slot.id)).map(|item| changes_of(head, item)).sum()
}

/// Returns how many changes an item counts for. Needs that are tested with it count too, unless
/// they are queued themselves.
fn changes_of(head: &Head, item: &Item) -> u64 {
    let candidate = &item.candidate;
    let below = candidate.needs.iter().filter(|need| !candidate.bundle.contains(&need.change.key));
    if head.manager == Manager::Dependent { 1 } else { 1 + below.count() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.1: a decision may have read a queue at any moment since.
    #[test]
    fn counts_since_a_transaction_include_the_one_at_that_time() {
        let states = [(3, 2), (5, 4), (8, 1)];
        assert_eq!(bounds(&states, 2), (0, 4), "nothing at first");
        assert_eq!(bounds(&states, 3), (1, 4));
        assert_eq!(bounds(&states, 6), (1, 4));
        assert_eq!(bounds(&states, 8), (1, 1));
        assert_eq!(bounds(&[], 8), (0, 0));
    }
}
