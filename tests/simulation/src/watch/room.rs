//! How many changes a pipeline holds, where its tenant says how many it may: what enters found room
//! at some moment since its queue was read, and what is told that it found none could not.
//!
//! How many the other queues hold is read before a decision, and several queues may decide at the
//! same moment; so what they held at any time since the decision can have read them counts, in
//! favour of whoever decided.

use super::{Kind, News, Watch, key_of, kind, read};
use crate::plays::Play;
use sluice_config::pipeline::Manager;
use sluice_gate::{Arrival, ArrivalKind, Head, Item, Report};
use sluice_memory::Written;
use sluice_model::{ItemId, QueueKey};
use sluice_records::queue::partition;
use sluice_records::report::Buildset;
use sluice_runtime::record::Key;
use std::collections::BTreeMap;

/// How who finds no room is told so; then comes how many changes wanted to enter.
const TOLD: &str = "Unable to enqueue change: ";

/// How many changes queues held, and when.
#[derive(Default)]
pub(super) struct Room {
    /// Transactions that were looked at.
    count: u64,
    /// How many changes each queue held, each time that these were others, with since which
    /// transaction.
    held: BTreeMap<QueueKey, Vec<(u64, u64)>>,
    /// In which transaction each queue's head had its last revision, by the queue's partition.
    heads: BTreeMap<String, u64>,
    /// In which transaction what waits at queues arrived.
    arrived: BTreeMap<Key, u64>,
}

impl Watch {
    /// Judges what a transaction had enter, or kept out since there was no room.
    pub(super) fn has_room(
        &mut self,
        transaction: &[Written],
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        if !self.shape.has(Play::FewChanges) {
            return Ok(());
        }
        self.room.count += 1;
        let now = self.room.count;
        let (mut since, mut offered) = (0_u64, None::<String>);
        for write in transaction {
            let Some(key) = key_of(write).filter(|key| kind(key) == Kind::Arrival) else {
                continue;
            };
            if write.after.is_some() {
                self.room.arrived.entry(key.clone()).or_insert(now);
                continue;
            }
            since = since.max(self.room.arrived.remove(key).unwrap_or_default());
            let arrival: Option<Arrival> = read(write.before.as_ref())?;
            if arrival.is_some_and(|arrival| matches!(arrival.kind, ArrivalKind::Enqueue { .. })) {
                offered = Some(key.partition.clone());
            }
        }
        let refused = refused(transaction)?;
        let told = refused
            .iter()
            .map(|(report, _)| News::NoRoom(Box::new(report.change.clone()), report.queue.clone()));
        news.extend(told);
        // Nobody reads what other queues hold where nothing is offered: what comes again by news of
        // it has its place.
        let queue =
            offered.and_then(|own| self.written.iter().find(|queue| partition(queue) == own));
        if let Some(queue) = queue {
            let since =
                since.max(self.room.heads.get(&partition(queue)).copied().unwrap_or_default());
            self.judge_room(queue, since, transaction, &refused)?;
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

    /// Judges what entered a queue, and what was kept out of it, in a decision that read no other
    /// queue before a transaction.
    fn judge_room(
        &self,
        queue: &QueueKey,
        since: u64,
        transaction: &[Written],
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
                "something enters {queue}, which holds {here} changes by that beside {least_elsewhere} in other queues, and its tenant allows {most} in a pipeline"
            ));
        }
        // What left by the same decision may have been there still.
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
                "{} is kept out of {queue}, which has room for {more} changes beside {at_most} and {most_elsewhere} in other queues",
                report.change
            )),
            None => Ok(()),
        }
    }
}

/// Returns the reports by which it is told that there was no room, each with for how many changes.
fn refused(transaction: &[Written]) -> Result<Vec<(Report, u64)>, String> {
    let mut refused = Vec::new();
    let new = transaction
        .iter()
        .filter(|write| write.before.is_none())
        .filter_map(|write| write.after.as_ref());
    for record in new.filter(|record| kind(&record.key) == Kind::Report) {
        let Some((_, text)) = record.body.split_once(TOLD) else { continue };
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let (report, more): (Option<Report>, Option<u64>) =
            (read(Some(record))?, digits.parse().ok());
        refused.extend(report.zip(more));
    }
    Ok(refused)
}

/// Returns the least and the most that a queue held since a transaction.
fn bounds(states: &[(u64, u64)], since: u64) -> (u64, u64) {
    let later = states.partition_point(|(at, _)| *at <= since);
    let before = later.checked_sub(1).map_or(0, |at| states[at].1);
    let counts = states[later..].iter().map(|(_, count)| *count);
    counts.fold((before, before), |(least, most), count| (least.min(count), most.max(count)))
}

/// Returns how many changes a queue holds.
fn changes_in(head: &Head, items: &BTreeMap<ItemId, Item>) -> u64 {
    head.slots
        .iter()
        .filter_map(|slot| items.get(&slot.id))
        .map(|item| changes_of(head, item))
        .sum()
}

/// Returns for how many changes an item counts: what it is tested on does as well, unless that
/// stands in the queue itself.
fn changes_of(head: &Head, item: &Item) -> u64 {
    let candidate = &item.candidate;
    let below = candidate.needs.iter().filter(|need| !candidate.cycle.contains(&need.change.key));
    if head.manager == Manager::Dependent { 1 } else { 1 + below.count() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.1: who decides may have read a queue at any moment since.
    #[test]
    fn what_a_queue_held_since_a_transaction_counts_from_what_it_held_then() {
        let states = [(3, 2), (5, 4), (8, 1)];
        assert_eq!(bounds(&states, 2), (0, 4), "nothing at first");
        assert_eq!(bounds(&states, 3), (1, 4));
        assert_eq!(bounds(&states, 6), (1, 4));
        assert_eq!(bounds(&states, 8), (1, 1));
        assert_eq!(bounds(&[], 8), (0, 0));
    }
}
