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

impl State {
    /// Returns whether a record's outbox contains a wakeup that was not sent since it was written.
    fn is_unsent(&self, key: &Key) -> bool {
        let outbox = self.outboxes.get(key).zip(self.records.get(key));
        outbox.is_some_and(|(written, record)| {
            let is_sent =
                |wakeup: &Wakeup| self.sent.get(&wakeup.slot()).is_some_and(|sent| sent > written);
            !record.outbox.iter().all(is_sent)
        })
    }
}

impl World {
    /// Returns an empty world that is deterministic for `seed`; its clock is at `now` and stands
    /// still. Standard queues deliver in an order drawn from the seed, and `twice_per_mille` of
    /// 1000 messages twice.
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

    /// Returns ports of this world, which share its state. Their calls are counted for the caller
    /// of this handle.
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

    /// Returns ports of this world, which share its state and whose calls are counted for `caller`.
    pub fn ports_of(&self, caller: &'static str) -> Ports {
        Self { caller, ..self.clone() }.ports()
    }

    /// Advances the clock, which all handles share, by some milliseconds.
    pub fn advance_millis(&self, milliseconds: u64) {
        let mut state = self.lock();
        state.now = state.now.plus_millis(milliseconds);
    }

    /// Sets the fate of the step with this number, counted from 0 since the world was created.
    pub fn set_fate(&self, step: u64, fate: Fate) {
        self.lock().fates.insert(step, fate);
    }

    /// Has this function decide the fate of each step without a set fate, in place of an earlier
    /// function. It is called while the state is locked, so it must not use the world.
    pub fn decide_fates(&self, decide: impl FnMut(PendingCall) -> Fate + Send + 'static) {
        self.lock().decide = Some(Box::new(decide));
    }

    /// Returns the step at which a caller was last stopped since the last call of this method, and
    /// forgets it; `None` if none was.
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

    /// Calls `look` for every record, in key order, until it returns false. `look` must not use the
    /// world, which is locked.
    pub fn look_at_records(&self, look: impl FnMut(&Record) -> bool) {
        let _ = self.lock().records.values().all(look);
    }

    /// Returns how many set fates have not been used, because their steps were not reached. Decided
    /// fates do not count.
    pub fn fates_left(&self) -> usize {
        self.lock().fates.len()
    }

    /// Returns the number of steps since the world was created; the next step has this number.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Returns the name of the last step; empty before the first one.
    pub fn last_step(&self) -> &'static str {
        self.lock().last_step
    }

    /// Returns the counts of calls since the last call of this method, and resets them.
    pub fn take_calls(&self) -> Calls {
        std::mem::take(&mut self.lock().calls)
    }

    /// Returns every record, in key order, for invariants and comparisons.
    pub fn records(&self) -> Vec<Record> {
        self.lock().records.values().cloned().collect()
    }

    /// Returns the keys of the records whose outbox contains a wakeup that was not sent since the
    /// outbox was written.
    pub fn unsent(&self) -> Vec<Key> {
        let state = self.lock();
        state.outboxes.keys().filter(|key| state.is_unsent(key)).cloned().collect()
    }

    /// Returns whether a record's outbox contains a wakeup that was not sent since the outbox was
    /// written.
    pub fn is_unsent(&self, key: &Key) -> bool {
        self.lock().is_unsent(key)
    }

    /// Returns the keys of all objects, in order.
    pub fn object_keys(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// Removes the messages of the dead letter queues and returns their texts, each with the queue
    /// that it came from.
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

    /// Returns the group and the time of sending of the oldest message of a queue, including those
    /// in flight; `None` if the queue is empty.
    pub fn oldest_message(&self, queue: MessageQueue) -> Option<(Option<String>, Timestamp)> {
        let state = self.lock();
        let oldest = state.queues.get(&queue)?.messages().min_by_key(|message| message.sent_ms)?;
        Some((oldest.group.clone(), Timestamp(oldest.sent_ms)))
    }

    /// Returns the bodies of the messages that were received and not deleted.
    pub fn received_messages(&self, queue: MessageQueue) -> Vec<String> {
        let state = self.lock();
        let messages = state.queues.get(&queue).into_iter().flat_map(|held| held.messages());
        messages
            .filter(|message| message.receives > 0)
            .map(|message| message.body.clone())
            .collect()
    }

    /// Returns the earliest time from now on at which a message of any queue can be received;
    /// `None` if there is no message.
    pub fn next_message_at(&self) -> Option<Timestamp> {
        let state = self.lock();
        let now = state.now.0;
        state.queues.values().filter_map(|queue| queue.next_wake_ms(now)).min().map(Timestamp)
    }

    /// Returns the earliest time at which the index `due` shows a record as due, which may be past;
    /// `None` if there is none.
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

    /// Receives up to `max` messages (1 to 10) as an event source does, and hides them; messages
    /// that were received too often become dead letters. This is not a step of a function, so no
    /// fault is injected and no call is counted. A refused receive, such as one with an invalid
    /// `max`, gives none.
    pub fn take_messages(
        &self,
        queue: MessageQueue,
        max: u32,
        visibility_seconds: u32,
    ) -> Vec<Incoming> {
        crate::queues::receive(&mut self.lock(), queue, max, visibility_seconds).unwrap_or_default()
    }

    /// Removes a processed message as an event source does, without a step. A stale or invalid
    /// receipt removes nothing, which is no error.
    pub fn drop_message(&self, queue: MessageQueue, receipt: &str) {
        let mut state = self.lock();
        let now = state.now.0;
        if let Some(held) = state.queues.get_mut(&queue) {
            // A stale receipt removes nothing: the message was received again.
            let _ = held.delete(receipt, now);
        }
    }

    /// Writes as a client other than the functions does: without a step or a fate, and without
    /// checking the condition of the write or the limits of its size.
    pub fn write_unchecked(&self, write: Write) {
        let mut state = self.lock();
        state.transactions += 1;
        crate::records::apply(&mut state, write);
    }

    /// Runs `work` as one step called `name`, for which a fault may be injected: the fate may fail
    /// the step, or never return, before or after `work`. With [`Fate::Waits`], other tasks run
    /// first, and the outcome is decided again as a further step. Simulated external services (a
    /// forge, a cloud) also use this. An injected failure after `work` hides its result.
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

    /// Runs `work` on the locked state as one step called `name`, and counts the call for the
    /// caller if `work` runs. `work` must use only the passed state, because the world is locked.
    /// The error is that of `work` or of the step's fate.
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

    /// Returns the fate of the next step, which works unless a fate was set or decided, and uses up
    /// a set one. Counts the step, and records it as the last one and as the caller's death if it
    /// dies.
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

/// Returns an empty queue, FIFO if the message queue is, with a queue for dead letters after
/// [`RECEIVES_MAX`] receives; `None` if the settings are invalid.
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
    /// Returns a token that only follows from the seed and the number of tokens before.
    fn token(&self) -> String {
        let mut state = self.lock();
        state.tokens += 1;
        digest(&["token", &state.seed.to_string(), &state.tokens.to_string()])
    }
}

#[async_trait]
impl Seal for World {
    /// Returns the context and the plain bytes, not encrypted. Its step is called `seal.seal`.
    async fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>, PortError> {
        self.with("seal.seal", |_| Ok([context.as_bytes(), b"\0", plain].concat())).await
    }

    /// Returns the plain bytes of what [`Self::seal`] returned. An error for another context. Its
    /// step is called `seal.open`.
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
