//! The two indexes of the table. They may lag behind it, as in DynamoDB.

use crate::sqs::{Chooser, Seeded};
use sluice_model::Timestamp;
use sluice_runtime::port::due_shard;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The indexes `due` and `find`, with the changes that are not visible yet.
pub(crate) struct Indexes {
    due: BTreeSet<(u32, Timestamp, Key)>,
    find: BTreeMap<(String, String), Key>,
    /// Changes in the order of writes, each with the time at which it becomes visible.
    coming: VecDeque<(Timestamp, Move)>,
    lag_millis_max: u64,
    lags: Seeded,
}

/// The change of a record's index entries by a write.
struct Move {
    key: Key,
    old: IndexEntries,
    new: IndexEntries,
}

/// The index entries of a record.
type IndexEntries = (Option<Timestamp>, Option<(String, String)>);

impl Indexes {
    /// Returns empty indexes without lag; `seed` decides lags that are set later.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            due: BTreeSet::new(),
            find: BTreeMap::new(),
            coming: VecDeque::new(),
            lag_millis_max: 0,
            lags: Seeded::new(seed, 0),
        }
    }

    /// Sets the maximum delay in milliseconds after which indexes show a later write; 0 for none.
    pub(crate) fn set_lag(&mut self, millis_max: u64) {
        self.lag_millis_max = millis_max;
    }

    /// Records that a record was written, or removed (`new` is `None`), so that the indexes show it
    /// after a lag, never before an earlier write. Does nothing if its entries do not change.
    pub(crate) fn moved(
        &mut self,
        key: &Key,
        old: Option<&Record>,
        new: Option<&Record>,
        now: Timestamp,
    ) {
        let entries_of = |record: Option<&Record>| -> IndexEntries {
            record.map_or((None, None), |record| (record.sweep_at, record.find.clone()))
        };
        let moved = Move { key: key.clone(), old: entries_of(old), new: entries_of(new) };
        if moved.old == moved.new {
            return;
        }
        let lag = match self.lag_millis_max {
            0 => 0,
            most => self.lags.choose(usize::try_from(most).unwrap_or(usize::MAX)) as u64,
        };
        // A write never becomes visible before an earlier one.
        let before = self.coming.back().map_or(Timestamp(0), |(at, _)| *at);
        self.coming.push_back((now.plus_millis(lag).max(before), moved));
        self.settle(now);
    }

    /// Returns the keys of one shard that the index shows at `now` as due until `until`, the
    /// earliest first, at most `limit`.
    pub(crate) fn due(
        &mut self,
        now: Timestamp,
        shard: u32,
        until: Timestamp,
        limit: usize,
    ) -> Vec<Key> {
        self.settle(now);
        let due = self.due.iter().filter(|(s, at, _)| *s == shard && *at <= until);
        due.take(limit).map(|(_, _, key)| key.clone()).collect()
    }

    /// Returns the keys of records that the index `find` shows at `now` in one partition, by
    /// descending sort key, at most `limit`. `before` leaves out that sort key and higher ones.
    pub(crate) fn find(
        &mut self,
        now: Timestamp,
        partition: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Vec<Key> {
        self.settle(now);
        let from = (partition.to_owned(), String::new());
        let found = self.find.range(from..).take_while(|((p, _), _)| p == partition);
        let mut keys: Vec<_> = found
            .filter(|((_, s), _)| before.is_none_or(|b| s.as_str() < b))
            .map(|(_, k)| k.clone())
            .collect();
        keys.reverse();
        keys.truncate(limit);
        keys
    }

    /// Returns the earliest time at which the index shows a record as due, also for changes that
    /// are not visible yet; `None` if no record is ever due.
    pub(crate) fn next_due_at(&self) -> Option<Timestamp> {
        let coming =
            self.coming.iter().filter_map(|(shown_at, moved)| Some((*shown_at).max(moved.new.0?)));
        self.due.iter().map(|(_, at, _)| *at).chain(coming).min()
    }

    /// Applies to the indexes the changes that have become visible at `now`.
    fn settle(&mut self, now: Timestamp) {
        while self.coming.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, Move { key, old, new })) = self.coming.pop_front() else { return };
            let shard = due_shard(&key.partition);
            if let Some(at) = old.0 {
                self.due.remove(&(shard, at, key.clone()));
            }
            if let Some(at) = new.0 {
                self.due.insert((shard, at, key.clone()));
            }
            // Another record may have this entry.
            if let Some(entry) = old.1.filter(|entry| self.find.get(entry) == Some(&key)) {
                self.find.remove(&entry);
            }
            if let Some(entry) = new.1 {
                self.find.insert(entry, key);
            }
        }
    }
}
