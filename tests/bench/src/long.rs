//! One queue of a thousand changes: what a look at it costs when nothing happened, and when something happened to one of them.

use crate::played::Played;
use crate::sample::Nodes;
use sluice_gate::{Arrival, ArrivalKind, Candidate};
use sluice_model::change::ChangeKey;
use sluice_model::poke::{Poke, Queue};
use sluice_model::{ArrivalId, QueueKey, Timestamp};
use sluice_records::queue;
use sluice_runtime::cell;
use std::time::{Duration, Instant};

/// Looks that are measured; the median counts.
const LOOKS: usize = 21;

/// What looks at a long queue cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Long {
    /// Items that stand in the queue.
    pub items: usize,
    /// Bytes of the head's record.
    pub head_bytes: usize,
    /// Time of a whole look at which nothing had happened: reading, deciding, writing, on ports in memory. It waits for nothing, so
    /// it is processor time.
    pub idle: Duration,
    /// Records that such a look writes.
    pub idle_written: u64,
    /// Read units that it uses.
    pub idle_read_units: f64,
    /// Time of a look at which a build of one item had ended.
    pub changed: Duration,
    /// Records that it writes, as a rule: the item, and the head. Some builds are their change's last.
    pub changed_written: u64,
    /// Read units that it uses.
    pub changed_read_units: f64,
}

/// Measures a queue of so many changes.
pub async fn measure(items: usize) -> Long {
    let mut played = Played::new(Nodes::Cold).await;
    played.house.listens = false;
    let key = QueueKey { tenant: "bench".into(), pipeline: "gate".into(), queue: "integrated".into() };
    for number in 1..=items {
        let change = played.propose(number as u64);
        let arrival = arrival(&played, &change);
        played.house.world.write_directly(queue::put_arrival(&key, &arrival).unwrap());
    }
    poke(&played, &key).await;
    move_on(&mut played).await;
    // Executors have claimed builds meanwhile, which a queue hears of when it looks.
    look(&mut played, &key).await;
    let mut idle: Vec<Duration> = Vec::new();
    let (mut idle_written, mut idle_read_units) = (0, 0.0);
    for _ in 0..LOOKS {
        let (time, written, units) = look(&mut played, &key).await;
        idle.push(time);
        (idle_written, idle_read_units) = (written.max(idle_written), units);
    }
    let head = played.house.world.records().into_iter().find(|record| record.key == queue::head_key(&key)).unwrap();
    let standing = played.house.world.records().iter().filter(|record| record.key.sort.starts_with("item#")).count();
    let (mut changed, mut changed_written, mut changed_read_units) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..LOOKS {
        // Nodes take their time.
        while played.house.running() == 0 && played.house.wait() {
            move_on(&mut played).await;
        }
        look(&mut played, &key).await;
        assert!(played.house.end_build().await, "no build is under way any more");
        let (time, written, units) = look(&mut played, &key).await;
        changed.push(time);
        changed_written.push(written);
        changed_read_units = units;
    }
    Long {
        items: standing,
        head_bytes: head.body.len(),
        idle: median(idle),
        idle_written,
        idle_read_units,
        changed: median(changed),
        changed_written: median(changed_written),
        changed_read_units,
    }
}

fn arrival(played: &Played, key: &ChangeKey) -> Arrival {
    let facts = played.forge.change(key).unwrap().facts;
    let candidate = Candidate {
        change: facts.change.clone(),
        url: facts.url.clone(),
        title: facts.title.clone(),
        message: facts.message.clone(),
        author: facts.author.clone(),
        needs: Vec::new(),
        cycle: Vec::new(),
        refused: None,
        merged: None,
        moved_from: None,
        as_of: Timestamp(0),
        moved_on: None,
    };
    Arrival {
        id: ArrivalId(format!("{:032x}", key.number().unwrap())),
        at: played.house.world.ports().clock.now(),
        event_id: "bench".to_owned(),
        layout: 0,
        by_operator: false,
        kind: ArrivalKind::Enqueue { candidates: vec![candidate] },
    }
}

async fn poke(played: &Played, key: &QueueKey) {
    cell::send(&played.house.world.ports(), &[Poke::Queue { queue: key.clone() }]).await.unwrap();
}

/// Moves everything but the ends of builds, until nothing moves; no time passes.
async fn move_on(played: &mut Played) {
    loop {
        let mut moved = false;
        for queue in Queue::ALL {
            moved |= played.house.deliver(queue).await;
        }
        if !moved {
            return;
        }
    }
}

/// Looks at the whole queue once and returns the time, the records that were written and the read units of the gate.
async fn look(played: &mut Played, key: &QueueKey) -> (Duration, u64, f64) {
    poke(played, key).await;
    played.house.world.take_calls();
    let begin = Instant::now();
    assert!(played.house.deliver(Queue::Gate).await, "the queue was not looked at");
    let time = begin.elapsed();
    let calls = played.house.world.take_calls();
    let units = calls.by_caller.get("gate").map_or(0.0, |used| used.values().map(|used| used.read_units).sum());
    // What it asked of others is done before the next look, so that each look is about one thing.
    move_on(played).await;
    (time, calls.records_written, units)
}

fn median<T: Ord + Copy>(mut all: Vec<T>) -> T {
    all.sort();
    all[all.len() / 2]
}
