//! The state behind the ports in memory: one lock, one virtual clock, one seed.

use crate::calls::{Calls, NO_CALLER, Used};
use crate::fate::{Fate, PendingCall, RecordChange, wait_once};
use crate::indexes::Indexes;
use crate::sqs;
use async_trait::async_trait;
use bytes::Bytes;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{Timestamp, id::digest};
use sluice_runtime::port::Incoming;
use sluice_runtime::record::{Key, Record, Write};
use sluice_runtime::{Clock, Entropy, PortError, Ports, Seal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Receives after which a message becomes a dead letter, as in the template.
const RECEIVES_MAX: u32 = 5;

/// The state behind the ports in memory. Clones share it.
#[derive(Clone)]
pub struct World {
    /// The state that all ports share.
    state: Arc<Mutex<State>>,
    /// The name under which calls are counted.
    caller: &'static str,
}

pub(crate) struct State {
    /// The time of the clock.
    pub(crate) now: Timestamp,
    /// The table.
    pub(crate) records: BTreeMap<Key, Record>,
    /// The indexes of the table.
    pub(crate) indexes: Indexes,
    /// The objects with their contents and versions.
    pub(crate) objects: BTreeMap<String, (Bytes, u64)>,
    /// The version of the newest object.
    pub(crate) object_versions: u64,
    /// The message queues.
    pub(crate) queues: BTreeMap<MessageQueue, sqs::Queue>,
    /// The messages of the dead letter queues.
    pub(crate) dead: BTreeMap<MessageQueue, Vec<sqs::Message>>,
    /// Chooses which message of a standard queue is next.
    pub(crate) chooser: sqs::Seeded,
    /// The counts of calls.
    pub(crate) calls: Calls,
    /// The usage of the current call besides the call itself.
    pub(crate) used: Used,
    /// Counts outbox writes and sends, so that [`World::unsent`] can compare their order.
    pub(crate) moment: u64,
    /// When each text was last sent.
    pub(crate) sent: BTreeMap<String, u64>,
    /// When each record with an outbox was last written.
    pub(crate) outboxes: BTreeMap<Key, u64>,
    /// Every write since the last call of [`World::writes`]; `None` until its first call.
    pub(crate) journal: Option<Vec<RecordChange>>,
    /// The number of transactions.
    pub(crate) transactions: u64,
    /// The number of random tokens given so far.
    tokens: u64,
    /// The seed of random decisions.
    seed: u64,
    /// The number of steps so far.
    steps: u64,
    /// The fates of steps by number.
    fates: BTreeMap<u64, Fate>,
    /// Decides the fates of other steps.
    decide: Option<Decide>,
    /// The step at which a caller was stopped last.
    died_at: Option<PendingCall>,
    /// The name of the last step.
    last_step: &'static str,
}

/// Decides the fate of each step.
type Decide = Box<dyn FnMut(PendingCall) -> Fate + Send>;

impl World {
    /// Returns an empty world that is deterministic for `seed`; its clock is at `now`.
    ///
    /// Standard queues deliver in an order drawn from the seed, and `twice_per_mille` of their
    /// messages twice.
    pub fn new(seed: u64, twice_per_mille: u16, now: Timestamp) -> Self {
        let queues = MessageQueue::ALL
            .into_iter()
            .filter_map(|queue| Some((queue, new_queue(queue)?)))
            .collect();
        Self {
            caller: NO_CALLER,
            state: Arc::new(Mutex::new(State {
                now,
                records: BTreeMap::new(),
                indexes: Indexes::new(seed),
                objects: BTreeMap::new(),
                object_versions: 0,
                queues,
                dead: BTreeMap::new(),
                chooser: sqs::Seeded::new(seed, twice_per_mille),
                calls: Calls::default(),
                used: Used::default(),
                moment: 0,
                sent: BTreeMap::new(),
                outboxes: BTreeMap::new(),
                journal: None,
                transactions: 0,
                tokens: 0,
                seed,
                steps: 0,
                fates: BTreeMap::new(),
                decide: None,
                died_at: None,
                last_step: "",
            })),
        }
    }

    /// Returns ports of this world.
    pub fn ports(&self) -> Ports {
        let world = Arc::new(self.clone());
        Ports {
            records: world.clone(),
            objects: world.clone(),
            queues: world.clone(),
            clock: world.clone(),
            entropy: world.clone(),
            seal: world,
        }
    }

    /// Returns ports of this world whose calls are counted for `caller`.
    pub fn ports_of(&self, caller: &'static str) -> Ports {
        Self { caller, ..self.clone() }.ports()
    }

    /// Advances the clock.
    pub fn advance_millis(&self, milliseconds: u64) {
        let mut state = self.lock();
        state.now = state.now.plus_millis(milliseconds);
    }

    /// Sets the fate of the step with this number, from 0.
    pub fn set_fate(&self, step: u64, fate: Fate) {
        self.lock().fates.insert(step, fate);
    }

    /// Has this function decide the fate of each step without a set fate.
    pub fn decide_fates(&self, decide: impl FnMut(PendingCall) -> Fate + Send + 'static) {
        self.lock().decide = Some(Box::new(decide));
    }

    /// Returns the step at which a caller was stopped since the last call of this method; `None` if
    /// none was.
    pub fn take_death(&self) -> Option<PendingCall> {
        self.lock().died_at.take()
    }

    /// Makes the indexes lag behind the table by up to this many milliseconds.
    pub fn set_index_lag(&self, millis_max: u64) {
        self.lock().indexes.set_lag(millis_max);
    }

    /// Returns every write since the last call, in order. The first call returns none and starts
    /// the recording.
    pub fn take_journal(&self) -> Vec<RecordChange> {
        self.lock().journal.replace(Vec::new()).unwrap_or_default()
    }

    /// Returns one record; `None` if there is none under `key`.
    pub fn record(&self, key: &Key) -> Option<Record> {
        self.lock().records.get(key).cloned()
    }

    /// Calls `look` for every record, in key order, until it returns false.
    pub fn look_at_records(&self, look: impl FnMut(&Record) -> bool) {
        let _ = self.lock().records.values().all(look);
    }

    /// Returns how many set fates have not been used, because their steps were not reached.
    pub fn fates_left(&self) -> usize {
        self.lock().fates.len()
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Returns the name of the last step.
    pub fn last_step(&self) -> &'static str {
        self.lock().last_step
    }

    /// Returns the counts of calls and resets them.
    pub fn take_calls(&self) -> Calls {
        std::mem::take(&mut self.lock().calls)
    }

    /// Returns every record, for invariants and comparisons.
    pub fn records(&self) -> Vec<Record> {
        self.lock().records.values().cloned().collect()
    }

    /// Returns the records whose outbox contains a wakeup that was not sent since the write.
    pub fn unsent(&self) -> Vec<Key> {
        let state = self.lock();
        let is_sent = |written: u64, wakeup: &Wakeup| {
            state.sent.get(&wakeup.slot()).is_some_and(|sent| *sent > written)
        };
        let outboxes = state
            .outboxes
            .iter()
            .filter_map(|(key, written)| Some((state.records.get(key)?, *written)));
        let unsent = outboxes.filter(|(record, written)| {
            !record.outbox.iter().all(|wakeup| is_sent(*written, wakeup))
        });
        unsent.map(|(record, _)| record.key.clone()).collect()
    }

    /// Returns the keys of all objects.
    pub fn object_keys(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// Removes and returns the messages of the dead letter queues.
    pub fn take_dead(&self) -> Vec<(MessageQueue, String)> {
        let dead = std::mem::take(&mut self.lock().dead);
        dead.into_iter()
            .flat_map(|(queue, messages)| messages.into_iter().map(move |m| (queue, m.body)))
            .collect()
    }

    /// Returns the number of messages of each queue that is not empty, including those in flight.
    pub fn queued(&self) -> BTreeMap<MessageQueue, usize> {
        let state = self.lock();
        state
            .queues
            .iter()
            .map(|(queue, held)| (*queue, held.messages().count()))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// Returns group and time of the oldest message of a queue, including those in flight; `None`
    /// if it is empty.
    pub fn oldest_message(&self, queue: MessageQueue) -> Option<(Option<String>, Timestamp)> {
        let state = self.lock();
        let oldest = state.queues.get(&queue)?.messages().min_by_key(|message| message.sent_ms)?;
        Some((oldest.group.clone(), Timestamp(oldest.sent_ms)))
    }

    /// Returns the earliest time at which a message becomes visible; `None` if there is none.
    pub fn next_message_at(&self) -> Option<Timestamp> {
        let state = self.lock();
        let now = state.now.0;
        state.queues.values().filter_map(|queue| queue.next_wake_ms(now)).min().map(Timestamp)
    }

    /// Returns the earliest time at which a record is due in the index `due`; `None` if there is
    /// none.
    pub fn next_due_at(&self) -> Option<Timestamp> {
        self.lock().indexes.next_due_at()
    }

    /// Returns whether a message of the queue can be received now.
    pub fn has_visible(&self, queue: MessageQueue) -> bool {
        let state = self.lock();
        let now = state.now.0;
        state
            .queues
            .get(&queue)
            .is_some_and(|held| held.next_wake_ms(now).is_some_and(|at| at <= now))
    }

    /// Receives messages as an event source does. This is not a step of a function, so no fault is
    /// injected.
    pub fn take_messages(
        &self,
        queue: MessageQueue,
        max: u32,
        visibility_seconds: u32,
    ) -> Vec<Incoming> {
        crate::queues::receive(&mut self.lock(), queue, max, visibility_seconds).unwrap_or_default()
    }

    /// Removes a processed message as an event source does.
    pub fn drop_message(&self, queue: MessageQueue, receipt: &str) {
        let mut state = self.lock();
        let now = state.now.0;
        if let Some(held) = state.queues.get_mut(&queue) {
            // A stale receipt removes nothing: the message was received again.
            let _ = held.delete(receipt, now);
        }
    }

    /// Writes as a client other than the functions does: without a step or a fate.
    pub fn write_directly(&self, write: Write) {
        let mut state = self.lock();
        state.transactions += 1;
        crate::records::apply(&mut state, write);
    }

    /// Runs `work` as one step called `name`. Simulated external services (a forge, a cloud) also
    /// use this.
    ///
    /// # Errors
    /// The error of `work`, or that of the step's fate.
    pub async fn step<T>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> Result<T, PortError>,
    ) -> Result<T, PortError> {
        let mut fate = self.next_fate(name);
        while fate == Fate::Waits {
            wait_once().await;
            fate = self.next_fate(name);
        }
        match fate {
            Fate::DiesBefore => return std::future::pending().await,
            Fate::FailsBefore => {
                return Err(PortError::unknown(name, "injected: the call had no effect"));
            }
            Fate::Throttled => {
                return Err(PortError {
                    attempt: name.into(),
                    why: "injected: slow down".into(),
                    throttled: true,
                });
            }
            Fate::Works | Fate::Waits | Fate::DiesAfter | Fate::FailsAfter => {}
        }
        let result = work();
        match fate {
            Fate::DiesAfter => std::future::pending().await,
            Fate::FailsAfter => Err(PortError::unknown(
                name,
                "injected: the call took effect, but the answer was lost",
            )),
            _ => result,
        }
    }

    /// Runs `work` on the state as one step called `name`, and counts the call for the caller. The
    /// error is that of `work` or of the step's fate.
    pub(crate) async fn with<T>(
        &self,
        name: &'static str,
        work: impl FnOnce(&mut State) -> Result<T, PortError>,
    ) -> Result<T, PortError> {
        self.step(name, || {
            let mut state = self.lock();
            state.used = Used { calls: 1, ..Used::default() };
            let result = work(&mut state);
            let used = std::mem::take(&mut state.used);
            state.calls.count(self.caller, name, used);
            result
        })
        .await
    }

    /// Returns the fate of the next step, which works unless a fate was set or decided. Counts the
    /// step, and records it as the last one and as the caller's death if it dies.
    fn next_fate(&self, name: &'static str) -> Fate {
        let mut state = self.lock();
        let step = state.steps;
        state.steps += 1;
        state.last_step = name;
        let fate = match (state.fates.remove(&step), state.decide.as_mut()) {
            (Some(fate), _) => fate,
            (None, Some(decide)) => decide(PendingCall { number: step, name, caller: self.caller }),
            (None, None) => Fate::Works,
        };
        if matches!(fate, Fate::DiesBefore | Fate::DiesAfter) {
            state.died_at = Some(PendingCall { number: step, name, caller: self.caller });
        }
        fate
    }

    /// Locks the state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an empty queue with the default settings and a queue for dead letters; `None` if the
/// settings are invalid.
fn new_queue(queue: MessageQueue) -> Option<sqs::Queue> {
    let (name, settings) = if queue.is_fifo() {
        (format!("{queue:?}.fifo"), sqs::SqsQueueSettings::fifo())
    } else {
        (format!("{queue:?}"), sqs::SqsQueueSettings::standard())
    };
    sqs::Queue::new(name.clone(), settings.with_redrive(format!("dead-{name}"), RECEIVES_MAX)).ok()
}

impl Clock for World {
    fn now(&self) -> Timestamp {
        self.lock().now
    }
}

impl Entropy for World {
    fn token(&self) -> String {
        let mut state = self.lock();
        state.tokens += 1;
        digest(&["token", &state.seed.to_string(), &state.tokens.to_string()])
    }
}

#[async_trait]
impl Seal for World {
    async fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>, PortError> {
        self.with("seal.seal", |_| Ok([context.as_bytes(), b"\0", plain].concat())).await
    }

    async fn open(&self, context: &str, sealed: &[u8]) -> Result<Vec<u8>, PortError> {
        self.with("seal.open", |_| {
            sealed
                .strip_prefix(context.as_bytes())
                .and_then(|rest| rest.strip_prefix(b"\0"))
                .map(<[u8]>::to_vec)
                .ok_or_else(|| {
                    PortError::unknown(
                        format!("open the sealed {context}"),
                        "it was sealed with another context",
                    )
                })
        })
        .await
    }
}
