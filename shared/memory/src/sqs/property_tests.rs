//! Properties over long seeded runs of both kinds of queue: what must hold whatever the order of
//! operations.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const STEPS: usize = 400;
const SEEDS: u64 = 60;

/// Draws numbers for a run from the chooser that is tested anyway.
struct Dice(Seeded);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0.choose(count)
    }
}

/// One run: random sends, receives, deletes, visibility changes and time steps; every message is at
/// last worked off.
struct Run {
    dice: Dice,
    queue: Queue,
    now_ms: u64,
    held: Vec<Delivered>,
    sent: BTreeSet<String>,
    deleted: BTreeSet<String>,
    dead: BTreeSet<String>,
    /// Per group the sequences first deliveries came in.
    first_deliveries: BTreeMap<String, Vec<u64>>,
}

impl Run {
    fn new(seed: u64, settings: SqsQueueSettings) -> Self {
        let name = if settings.is_fifo() { "q.fifo" } else { "q" };
        let queue = Queue::restore(name, settings, 1, vec![], vec![]).unwrap();
        let dice = Dice(Seeded::new(seed, 0));
        let (held, sent, deleted) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let (dead, first_deliveries) = (BTreeSet::new(), BTreeMap::new());
        Self { dice, queue, now_ms: 1_000_000, held, sent, deleted, dead, first_deliveries }
    }

    fn step(&mut self) {
        match self.dice.below(6) {
            0 | 1 => self.send(),
            2 | 3 => self.receive(),
            4 if !self.held.is_empty() => self.settle(),
            _ => self.now_ms += self.dice.below(20_000) as u64,
        }
        self.check_counts();
    }

    fn send(&mut self) {
        let group = format!("g{}", self.dice.below(4));
        let mut message = NewMessage::body(format!("{}", self.dice.below(1_000_000))).group(group);
        if self.queue.settings().is_fifo() {
            message = message.dedup(format!("{}", self.dice.below(200)));
        } else if self.dice.below(4) == 0 {
            message = message.delay(self.dice.below(30) as u32);
        }
        let sent = self.queue.send(message, self.now_ms).unwrap();
        assert_eq!(
            sent.duplicate,
            !self.sent.insert(sent.id),
            "a repeat names the earlier message, a new one none"
        );
    }

    fn receive(&mut self) {
        let max = 1 + self.dice.below(10);
        let poll = Poll { max, visibility_seconds: Some(self.dice.below(40) as u32) };
        let received = self.queue.receive(poll, self.now_ms, &mut self.dice.0).unwrap();
        assert!(received.messages.len() <= max);
        self.dead.extend(received.dead.into_iter().map(|m| m.id));
        for delivered in received.messages {
            let message = &delivered.message;
            assert!(self.sent.contains(&message.id), "nothing is delivered that was not sent");
            assert!(!self.deleted.contains(&message.id), "nothing comes back after its delete");
            assert!(!self.dead.contains(&message.id), "nothing comes back from the dead letters");
            if message.receives == 1 {
                let group = message.group.clone().unwrap_or_default();
                self.first_deliveries.entry(group).or_default().push(message.sequence);
            }
            self.held.push(delivered);
        }
        if self.queue.settings().is_fifo() {
            self.check_order_of_what_is_in_flight();
        }
    }

    fn settle(&mut self) {
        let delivered = self.held.remove(self.dice.below(self.held.len()));
        if self.dice.below(3) == 0 {
            let seconds = self.dice.below(60) as u32;
            // May be stale: then nothing changes, which the other checks see.
            let _ = self.queue.change_visibility(&delivered.receipt, seconds, self.now_ms);
        } else if self.queue.delete(&delivered.receipt, self.now_ms) == Ok(Deletion::Deleted) {
            assert!(self.deleted.insert(delivered.message.id), "a message is deleted once");
        }
    }

    /// In flight is only ever the front of a group.
    fn check_order_of_what_is_in_flight(&self) {
        let mut waiting = BTreeSet::new();
        for message in self.queue.messages() {
            let in_flight =
                message.last_received_ms.is_some() && message.visible_at_ms > self.now_ms;
            if message.receives == 0 {
                waiting.insert(message.group.clone());
            }
            assert!(
                !(in_flight && waiting.contains(&message.group)),
                "{message:?} overtook one of its group"
            );
        }
    }

    fn check_counts(&self) {
        let counts = self.queue.counts(self.now_ms);
        let all = counts.visible + counts.in_flight + counts.delayed;
        assert_eq!(all, self.queue.messages().count());
        assert_eq!(all, self.sent.len() - self.deleted.len() - self.dead.len(), "nothing is lost");
    }

    /// Works off the rest, waiting exactly until the queue says to look again.
    fn drain(&mut self) {
        self.held.clear();
        for _ in 0..10 * STEPS {
            let Some(at_ms) = self.queue.next_wake_ms(self.now_ms) else {
                break;
            };
            self.now_ms = at_ms;
            let poll = Poll { max: 10, visibility_seconds: Some(1) };
            let received = self.queue.receive(poll, at_ms, &mut self.dice.0).unwrap();
            assert!(
                !received.messages.is_empty() || !received.dead.is_empty(),
                "woken for nothing"
            );
            self.dead.extend(received.dead.into_iter().map(|m| m.id));
            for delivered in received.messages {
                assert_eq!(self.queue.delete(&delivered.receipt, at_ms), Ok(Deletion::Deleted));
                self.deleted.insert(delivered.message.id);
            }
        }
        assert_eq!(self.queue.messages().count(), 0, "everything ends");
        assert_eq!(&self.deleted | &self.dead, self.sent);
    }
}

#[test]
fn a_standard_queue_loses_nothing_and_repeats_nothing_after_its_delete() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed, SqsQueueSettings::standard());
        (0..STEPS).for_each(|_| run.step());
        run.drain();
    }
}

#[test]
fn a_fifo_queue_keeps_order_and_exclusion_in_every_group() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed, SqsQueueSettings::fifo());
        (0..STEPS).for_each(|_| run.step());
        for sequences in run.first_deliveries.values() {
            assert!(sequences.is_sorted(), "seed {seed}: {sequences:?}");
        }
        run.drain();
    }
}

#[test]
fn dead_letters_are_the_only_other_way_out() {
    for seed in 0..SEEDS {
        for (settings, dead) in
            [(SqsQueueSettings::standard(), "arn:d"), (SqsQueueSettings::fifo(), "arn:d.fifo")]
        {
            let mut run = Run::new(seed, settings.with_redrive(dead, 3));
            (0..STEPS).for_each(|_| run.step());
            run.drain();
        }
    }
}

#[test]
fn a_store_that_writes_each_change_holds_the_same_queue_at_every_moment() {
    for seed in 0..SEEDS / 4 {
        for settings in [SqsQueueSettings::standard(), SqsQueueSettings::fifo()] {
            let mut run = Run::new(seed, settings.clone());
            let mut stored: BTreeMap<u64, Message> = BTreeMap::new();
            for _ in 0..STEPS {
                run.step();
                let changes = run.queue.take_changes();
                stored.extend(changes.written.into_iter().map(|m| (m.sequence, m)));
                changes.removed.iter().for_each(|sequence| {
                    stored.remove(sequence);
                });
                assert!(run.queue.messages().eq(stored.values()));
            }
        }
    }
}
