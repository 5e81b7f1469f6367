//! Measures reconciliations of a queue with a thousand changes: when nothing happened, when one
//! change had an event, and when the first one fails, so that all later ones are moved and
//! restarted.

use crate::sample::{self, Nodes};
use crate::simulated::Played;
use sluice_gate::{Candidate, InboxMessage, InboxMessageKind};
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{InboxMessageId, QueueKey, Timestamp};
use sluice_records::queue;
use sluice_runtime::cell;
use sluice_runtime::record::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The number of measured reconciliations; the median counts.
const LOOKS: usize = 21;

/// The window of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// The default window, with three jobs of one node each.
    Default,
    /// All changes in the window, with one job without nodes each.
    All,
}

/// The cost of reconciling a long queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Long {
    /// The window.
    pub window: Window,
    /// The number of items in the queue.
    pub items: usize,
    /// The bytes of the head's record.
    pub head_bytes: usize,
    /// A full reconciliation without any event; its writes are the largest of all such
    /// reconciliations.
    pub idle: Cost,
    /// A reconciliation after a build of one item ended. Some builds are the last of their change.
    pub changed: Cost,
    /// The reconciliations after the first item failed, until nothing changes without the merger.
    pub moved: Cost,
    /// The looks after those, until nothing moves before builds end or nodes boot: all that moved
    /// is merged and restarted.
    pub restarted: Cost,
}

/// The cost of reconciliations for the gate.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cost {
    /// The time to read, decide and write. Ports in memory never wait, so it is processor time.
    pub time: Duration,
    /// The number of message batches.
    pub looks: u64,
    /// The read units.
    pub read_units: f64,
    /// The writes.
    pub written: Written,
}

/// The writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Items whose records were written or removed.
    pub items: u64,
    /// The number of writes of item records.
    pub item_writes: u64,
    /// Writes of the queue's head: one for each commit.
    pub head: u64,
    /// Writes of all other records, by kind, of all functions.
    pub others: BTreeMap<String, u64>,
}

impl Written {
    /// Returns the writes of all records.
    pub fn total(&self) -> u64 {
        self.item_writes + self.head + self.others.values().sum::<u64>()
    }

    /// Returns the writes of item records per changed item.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn per_item(&self) -> f64 {
        self.item_writes as f64 / self.items.max(1) as f64
    }

    fn of(journal: Vec<sluice_memory::RecordChange>, key: &QueueKey) -> Self {
        let (cell, head) = (queue::partition(key), queue::head_key(key));
        let (mut written, mut items) = (Self::default(), BTreeSet::new());
        for record in journal.into_iter().filter_map(|write| write.after.or(write.before)) {
            if record.key == head {
                written.head += 1;
            } else if record.key.partition == cell && record.key.sort.starts_with("item#") {
                written.item_writes += 1;
                items.insert(record.key.sort);
            } else {
                *written.others.entry(kind(&record.key)).or_default() += 1;
            }
        }
        written.items = items.len() as u64;
        written
    }
}

/// Returns the kind of a record, by the prefixes of its key.
fn kind(key: &Key) -> String {
    let first = |text: &str| text.split('#').next().unwrap_or_default().to_owned();
    format!("{} {}", first(&key.partition), first(&key.sort))
}

impl Cost {
    /// Returns the cost since the last call.
    fn taken(played: &Played, key: &QueueKey) -> Self {
        let (time, looks) = played.deployment.take_times().get("gate").copied().unwrap_or_default();
        let calls = played.deployment.world.take_calls();
        let read_units = calls
            .by_caller
            .get("gate")
            .map_or(0.0, |used| used.values().map(|used| used.read_units).sum());
        Self {
            time,
            looks,
            read_units,
            written: Written::of(played.deployment.world.take_journal(), key),
        }
    }

    /// Returns what looks of one kind cost: the median of their times, and of what they wrote that
    /// at this place.
    fn of(mut all: Vec<Self>, place: usize) -> Self {
        let mut times: Vec<Duration> = all.iter().map(|cost| cost.time).collect();
        times.sort();
        let (time, read_units) = (times[times.len() / 2], all[all.len() - 1].read_units);
        all.sort_by_key(|cost| cost.written.total());
        Self { time, read_units, ..all.swap_remove(place) }
    }
}

/// Measures a queue with this number of changes.
pub async fn measure(items: usize, window: Window) -> Long {
    let mut played = match window {
        Window::Default => Played::new(Nodes::Cold).await,
        Window::All => Played::of(sample::MAIN, &sample::wide()).await,
    };
    played.deployment.listens = false;
    let key =
        QueueKey { tenant: "bench".into(), pipeline: "gate".into(), queue: "integrated".into() };
    for number in 1..=items {
        let change = played.propose(number as u64);
        // A change without approval does not land, so the later ones would be restarted.
        played.forge.approve(&change);
        let message = message(&played, &change);
        played.deployment.world.write_unchecked(queue::put_message(&key, &message).unwrap());
    }
    wake(&played, &key).await;
    move_on(&mut played).await;
    // The first call starts the recording of writes.
    played.deployment.world.take_journal();
    // Executors have claimed builds, which the queue finds when it is reconciled.
    look(&mut played, &key).await;
    let mut idle = Vec::new();
    for _ in 0..LOOKS {
        idle.push(look(&mut played, &key).await);
    }
    let head = played.deployment.world.record(&queue::head_key(&key)).unwrap();
    let items = played
        .deployment
        .world
        .records()
        .iter()
        .filter(|record| record.key.sort.starts_with("item#"))
        .count();
    let mut changed = Vec::new();
    for _ in 0..LOOKS {
        // Nodes take some time to boot.
        while played.deployment.running() == 0 && played.deployment.wait() {
            move_on(&mut played).await;
        }
        look(&mut played, &key).await;
        assert!(played.deployment.end_build().await, "no build is under way any more");
        changed.push(look(&mut played, &key).await);
    }
    let (moved, restarted) = fail_first(&mut played, &key).await;
    Long {
        window,
        items,
        head_bytes: head.body.len(),
        idle: Cost::of(idle, LOOKS - 1),
        changed: Cost::of(changed, LOOKS / 2),
        moved,
        restarted,
    }
}

/// Fails the first item, and returns the cost of moving the later items and of restarting them.
async fn fail_first(played: &mut Played, key: &QueueKey) -> (Cost, Cost) {
    let loaded = queue::load(&played.deployment.world.ports(), key).await.unwrap();
    let first = loaded.head.unwrap().entries[0].first().change.key.number().unwrap();
    while played.deployment.builds_of(first) == 0 && played.deployment.wait() {
        move_on(played).await;
    }
    look(played, key).await;
    assert!(
        played.deployment.fail_builds(first).await > 0,
        "no build of the first change is under way"
    );
    wake(played, key).await;
    Cost::taken(played, key);
    while played.deployment.deliver(MessageQueue::Gate).await {}
    let moved = Cost::taken(played, key);
    move_on(played).await;
    (moved, Cost::taken(played, key))
}

fn message(played: &Played, key: &ChangeKey) -> InboxMessage {
    let facts = played.forge.change(key).unwrap().facts;
    let candidate = Candidate {
        change: facts.change.clone(),
        url: facts.url.clone(),
        title: facts.title.clone(),
        message: facts.message.clone(),
        author: facts.author.clone(),
        topic: None,
        needs: Vec::new(),
        bundle: Vec::new(),
        cycle_needs: Vec::new(),
        unresolved_dependencies: Vec::new(),
        refused: None,
        merged: None,
        moved_from: None,
        as_of: Timestamp(0),
        newer_head: None,
        debug: false,
    };
    InboxMessage {
        id: InboxMessageId(format!("{:032x}", key.number().unwrap())),
        at: played.deployment.world.ports().clock.now(),
        event_id: "bench".to_owned(),
        layout: 0,
        by_operator: false,
        in_progress: false,
        kind: InboxMessageKind::Enqueue { candidates: vec![candidate] },
    }
}

async fn wake(played: &Played, key: &QueueKey) {
    cell::send(&played.deployment.world.ports(), &[Wakeup::Queue { queue: key.clone() }])
        .await
        .unwrap();
}

/// Moves everything but the ends of builds, until nothing moves; no time passes.
async fn move_on(played: &mut Played) {
    loop {
        let mut moved = false;
        for queue in MessageQueue::ALL {
            moved |= played.deployment.deliver(queue).await;
        }
        if !moved {
            return;
        }
    }
}

/// Reconciles the whole queue once and returns the cost.
async fn look(played: &mut Played, key: &QueueKey) -> Cost {
    wake(played, key).await;
    Cost::taken(played, key);
    assert!(played.deployment.deliver(MessageQueue::Gate).await, "the queue was not looked at");
    let cost = Cost::taken(played, key);
    // Its consequences are processed before the next reconciliation, so that each one measures one
    // event.
    move_on(played).await;
    cost
}
