//! What arrived at a queue, however much: news of changes are read as far as they go, and of
//! entries the oldest.
//!
//! Entries are taken in one after the other, so those far behind wait in any case; but news may be
//! just what the first of them wait for, as that a change leaves and makes place.

use super::{LOAD_MAX, LoadError, partition};
use crate::codec::{BadRecord, decode};
use sluice_gate::{Arrival, ArrivalKind};
use sluice_model::QueueKey;
use sluice_model::change::ChangeKey;
use sluice_runtime::Ports;
use sluice_runtime::record::{Key, Query, Record};
use std::collections::BTreeSet;

/// How the sort keys of arrivals begin.
pub(super) const PREFIX: &str = "arrival#";

/// Entries that are looked at, the oldest.
const ENTRIES_MAX: usize = 500;

/// News that are looked at, the oldest: each is small, and is taken in unless it waits for an entry
/// or a landing.
const NEWS_MAX: usize = 20_000;

/// Pages of arrivals that one look reads; a person has to see to a queue with more.
const PAGES_MAX: usize = 200;

/// What is looked at of all that arrived.
#[derive(Default)]
pub(super) struct Window {
    kept: Vec<(Key, Arrival)>,
    entries: usize,
    /// Changes of which an entry is not looked at: what is said of them later waits with it, or it
    /// would be forgotten by then.
    left: BTreeSet<ChangeKey>,
    /// Whether anything is left out.
    pub(super) is_cut: bool,
}

impl Window {
    /// Adds the next arrival.
    pub(super) fn add(&mut self, record: Record) -> Result<(), BadRecord> {
        let arrival: Arrival = decode(&record)?;
        let is_left = |key: &ChangeKey| self.left.contains(key);
        let is_kept = match &arrival.kind {
            ArrivalKind::Enqueue { candidates } => {
                let is_next = self.entries < ENTRIES_MAX
                    && !candidates.iter().any(|c| is_left(&c.change.key));
                if is_next {
                    self.entries += 1;
                } else {
                    self.left
                        .extend(candidates.iter().map(|candidate| candidate.change.key.clone()));
                }
                is_next
            }
            ArrivalKind::Seen { change, .. }
            | ArrivalKind::Superseded { change, .. }
            | ArrivalKind::MakeWay { change, .. } => {
                !is_left(&change.key) && self.kept.len() < ENTRIES_MAX + NEWS_MAX
            }
            ArrivalKind::Dequeue { .. }
            | ArrivalKind::Promote { .. }
            | ArrivalKind::Thaw { .. } => true,
        };
        if is_kept {
            self.kept.push((record.key, arrival));
        }
        self.is_cut |= !is_kept;
        Ok(())
    }

    /// Returns what is looked at, the oldest first.
    pub(super) fn into_kept(self) -> Vec<(Key, Arrival)> {
        self.kept
    }
}

/// Reads what arrived after a sort key, or all of it, into a window.
pub(super) async fn after(
    ports: &Ports,
    queue: &QueueKey,
    mut after: Option<String>,
    mut window: Window,
) -> Result<Window, LoadError> {
    for _ in 0..PAGES_MAX {
        let query =
            Query { after: after.take(), ..Query::prefix(partition(queue), PREFIX, LOAD_MAX) };
        let records = ports.records.query(&query).await?;
        let is_last = records.len() < LOAD_MAX;
        after = records.last().map(|record| record.key.sort.clone());
        for record in records {
            window.add(record)?;
        }
        if is_last {
            return Ok(window);
        }
    }
    window.is_cut = true;
    tracing::error!(%queue, "more has arrived than one look reads; what came last is not looked at yet");
    Ok(window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::put_arrival;
    use sluice_gate::Candidate;
    use sluice_model::change::ChangeRef;
    use sluice_model::{ArrivalId, ProjectName, Timestamp};
    use sluice_runtime::record::Write;

    fn change(number: u64) -> ChangeRef {
        let key =
            ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/one"), number);
        ChangeRef { key, branch: "main".into(), head: "abc".into(), patchset: "abc".to_owned() }
    }

    fn record(at: u64, kind: ArrivalKind) -> Record {
        let queue = QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "q".into() };
        let (id, event_id) = (ArrivalId::derive(&[&at.to_string()]), String::new());
        let arrival = Arrival {
            id,
            at: Timestamp(at),
            event_id,
            layout: 1,
            by_operator: false,
            taken_up: false,
            kind,
        };
        let Write::Put { record, .. } = put_arrival(&queue, &arrival).unwrap() else {
            unreachable!()
        };
        record
    }

    fn entry(number: u64) -> ArrivalKind {
        ArrivalKind::Enqueue { candidates: vec![Candidate::bare(&change(number))] }
    }

    fn gone(number: u64) -> ArrivalKind {
        let (gone, as_of) = (Some("it was closed".to_owned()), Timestamp(0));
        ArrivalKind::Seen { change: change(number), gone, merged: false, needs: None, as_of }
    }

    /// Z6.7: however many wait to enter, news of what stands in the queue are heard; and none
    /// before what it is news of.
    #[test]
    fn news_are_looked_at_behind_any_number_of_entries_and_none_before_its_own_entry() {
        let mut window = Window::default();
        let entries = ENTRIES_MAX as u64 + 1_700;
        for number in 0..entries {
            window.add(record(number, entry(number))).unwrap();
        }
        let (in_window, beyond, elsewhere) = (gone(3), gone(entries - 1), gone(9_999));
        for (at, news) in [&in_window, &beyond, &elsewhere].into_iter().enumerate() {
            window.add(record(entries + at as u64, news.clone())).unwrap();
        }
        // Once more the change that is looked at, behind the one that is not.
        window.add(record(entries + 9, entry(entries - 1))).unwrap();
        assert!(window.is_cut);
        let kept: Vec<ArrivalKind> =
            window.into_kept().into_iter().map(|(_, arrival)| arrival.kind).collect();
        assert_eq!(kept.len(), ENTRIES_MAX + 2);
        assert_eq!(kept[ENTRIES_MAX..], [in_window, elsewhere]);
    }
}
