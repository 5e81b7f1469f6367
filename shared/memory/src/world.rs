//! The world in memory: one lock, one virtual clock, one seed.

use crate::calls::{Calls, NOBODY, Used};
use crate::fate::{Fate, Step, Written, wait_once};
use crate::indexes::Indexes;
use crate::sqs;
use async_trait::async_trait;
use bytes::Bytes;
use sluice_model::poke::{Poke, Queue};
use sluice_model::{Timestamp, id::digest};
use sluice_runtime::port::Incoming;
use sluice_runtime::record::{Key, Record, Write};
use sluice_runtime::{Clock, Entropy, PortError, Ports, Seal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Receives after which a message is a dead letter, as in the template.
const RECEIVES_MAX: u32 = 5;

/// All state behind the ports in memory. Clones share it.
#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    caller: &'static str,
}

pub(crate) struct State {
    pub(crate) now: Timestamp,
    pub(crate) records: BTreeMap<Key, Record>,
    pub(crate) indexes: Indexes,
    pub(crate) objects: BTreeMap<String, (Bytes, u64)>,
    pub(crate) object_versions: u64,
    pub(crate) queues: BTreeMap<Queue, sqs::Queue>,
    pub(crate) dead: BTreeMap<Queue, Vec<sqs::Message>>,
    pub(crate) chooser: sqs::Seeded,
    pub(crate) calls: Calls,
    /// What the call under way uses besides itself.
    pub(crate) used: Used,
    /// Counts writes of outboxes and sendings, so that [`World::unsent`] can tell which came later.
    pub(crate) moment: u64,
    /// When each text was sent last.
    pub(crate) sent: BTreeMap<String, u64>,
    /// When each record with an outbox was written last.
    pub(crate) outboxes: BTreeMap<Key, u64>,
    /// Every write since it was taken last, once somebody asked for it.
    pub(crate) journal: Option<Vec<Written>>,
    /// Transactions so far.
    pub(crate) transactions: u64,
    tokens: u64,
    seed: u64,
    steps: u64,
    fates: BTreeMap<u64, Fate>,
    decide: Option<Decide>,
    died_at: Option<Step>,
    last_step: &'static str,
}

/// Says what becomes of each step.
type Decide = Box<dyn FnMut(Step) -> Fate + Send>;

impl World {
    /// Returns an empty world whose whole behaviour follows from `seed`; its clock stands at `now`.
    ///
    /// Standard queues deliver in an order drawn from the seed, and `twice_per_mille` of their
    /// messages twice.
    pub fn new(seed: u64, twice_per_mille: u16, now: Timestamp) -> Self {
        let queues =
            Queue::ALL.into_iter().filter_map(|queue| Some((queue, new_queue(queue)?))).collect();
        Self {
            caller: NOBODY,
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

    /// Returns ports onto this world.
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

    /// Returns ports onto this world whose calls are counted as `caller`'s.
    pub fn ports_of(&self, caller: &'static str) -> Ports {
        Self { caller, ..self.clone() }.ports()
    }

    /// Moves the clock forward.
    pub fn advance_millis(&self, milliseconds: u64) {
        let mut state = self.lock();
        state.now = state.now.plus_millis(milliseconds);
    }

    /// Sets what becomes of the step with this number (the first is 0).
    pub fn set_fate(&self, step: u64, fate: Fate) {
        self.lock().fates.insert(step, fate);
    }

    /// Has this function say what becomes of each step for which no fate was set.
    pub fn decide_fates(&self, decide: impl FnMut(Step) -> Fate + Send + 'static) {
        self.lock().decide = Some(Box::new(decide));
    }

    /// Returns the step at which somebody died since this was asked last.
    pub fn take_death(&self) -> Option<Step> {
        self.lock().died_at.take()
    }

    /// Lets the indexes lag behind the table by up to so many milliseconds from now on.
    pub fn set_index_lag(&self, millis_max: u64) {
        self.lock().indexes.set_lag(millis_max);
    }

    /// Returns every write since this was asked last, in order; the first time it returns none and
    /// begins to note them.
    pub fn take_journal(&self) -> Vec<Written> {
        self.lock().journal.replace(Vec::new()).unwrap_or_default()
    }

    /// Returns one record.
    pub fn record(&self, key: &Key) -> Option<Record> {
        self.lock().records.get(key).cloned()
    }

    /// Looks at every record, in the order of keys, until `look` returns false.
    pub fn look_at_records(&self, look: impl FnMut(&Record) -> bool) {
        let _ = self.lock().records.values().all(look);
    }

    /// Returns how many fates have not struck: their steps were not taken.
    pub fn fates_left(&self) -> usize {
        self.lock().fates.len()
    }

    /// Returns how many steps were taken so far.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Returns the name of the newest step.
    pub fn last_step(&self) -> &'static str {
        self.lock().last_step
    }

    /// Returns the counts of calls and starts them anew.
    pub fn take_calls(&self) -> Calls {
        std::mem::take(&mut self.lock().calls)
    }

    /// Returns every record, for invariants and comparisons.
    pub fn records(&self) -> Vec<Record> {
        self.lock().records.values().cloned().collect()
    }

    /// Returns the records whose outbox holds a poke that was not sent since it was written.
    pub fn unsent(&self) -> Vec<Key> {
        let state = self.lock();
        let is_sent = |written: u64, poke: &Poke| {
            state.sent.get(&poke.slot()).is_some_and(|sent| *sent > written)
        };
        let outboxes = state
            .outboxes
            .iter()
            .filter_map(|(key, written)| Some((state.records.get(key)?, *written)));
        let unsent = outboxes
            .filter(|(record, written)| !record.outbox.iter().all(|poke| is_sent(*written, poke)));
        unsent.map(|(record, _)| record.key.clone()).collect()
    }

    /// Returns the keys of every object.
    pub fn object_keys(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// Takes the messages that were received too often out of the dead letter queues.
    pub fn take_dead(&self) -> Vec<(Queue, String)> {
        let dead = std::mem::take(&mut self.lock().dead);
        dead.into_iter()
            .flat_map(|(queue, messages)| messages.into_iter().map(move |m| (queue, m.body)))
            .collect()
    }

    /// Returns how many messages each queue that is not empty holds, in flight or not.
    pub fn queued(&self) -> BTreeMap<Queue, usize> {
        let state = self.lock();
        state
            .queues
            .iter()
            .map(|(queue, held)| (*queue, held.messages().count()))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// Returns the message of a queue that was sent first of those it holds, in flight or not: its
    /// group, and when.
    pub fn oldest_message(&self, queue: Queue) -> Option<(Option<String>, Timestamp)> {
        let state = self.lock();
        let oldest = state.queues.get(&queue)?.messages().min_by_key(|message| message.sent_ms)?;
        Some((oldest.group.clone(), Timestamp(oldest.sent_ms)))
    }

    /// Returns the earliest time at which a message becomes visible.
    pub fn next_message_at(&self) -> Option<Timestamp> {
        let state = self.lock();
        let now = state.now.0;
        state.queues.values().filter_map(|queue| queue.next_wake_ms(now)).min().map(Timestamp)
    }

    /// Returns the earliest time at which the index `due` names a record.
    pub fn next_due_at(&self) -> Option<Timestamp> {
        self.lock().indexes.next_due_at()
    }

    /// Tells whether a message of the queue can be received now.
    pub fn has_visible(&self, queue: Queue) -> bool {
        let state = self.lock();
        let now = state.now.0;
        state
            .queues
            .get(&queue)
            .is_some_and(|held| held.next_wake_ms(now).is_some_and(|at| at <= now))
    }

    /// Receives messages as an event source does: no step of a function, so nothing is injected
    /// here.
    pub fn take_messages(&self, queue: Queue, max: u32, visibility_seconds: u32) -> Vec<Incoming> {
        crate::queues::receive(&mut self.lock(), queue, max, visibility_seconds).unwrap_or_default()
    }

    /// Removes a handled message as an event source does.
    pub fn drop_message(&self, queue: Queue, receipt: &str) {
        let mut state = self.lock();
        let now = state.now.0;
        if let Some(held) = state.queues.get_mut(&queue) {
            // A receipt that has gone stale removes nothing: the message was received again
            // meanwhile.
            let _ = held.delete(receipt, now);
        }
    }

    /// Writes as somebody outside the functions does: no step, no fate.
    pub fn write_directly(&self, write: Write) {
        let mut state = self.lock();
        state.transactions += 1;
        crate::records::apply(&mut state, write);
    }

    /// Runs `work` as one step called `name`. Outside services that a test plays (a forge, a cloud)
    /// take their steps here too.
    ///
    /// # Errors
    /// What `work` returns, or what the step's fate says.
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
                return Err(PortError::unknown(name, "injected: nothing was done"));
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
            Fate::FailsAfter => {
                Err(PortError::unknown(name, "injected: it was done, but the answer was lost"))
            }
            _ => result,
        }
    }

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

    fn next_fate(&self, name: &'static str) -> Fate {
        let mut state = self.lock();
        let step = state.steps;
        state.steps += 1;
        state.last_step = name;
        let fate = match (state.fates.remove(&step), state.decide.as_mut()) {
            (Some(fate), _) => fate,
            (None, Some(decide)) => decide(Step { number: step, name, caller: self.caller }),
            (None, None) => Fate::Works,
        };
        if matches!(fate, Fate::DiesBefore | Fate::DiesAfter) {
            state.died_at = Some(Step { number: step, name, caller: self.caller });
        }
        fate
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_queue(queue: Queue) -> Option<sqs::Queue> {
    let (name, settings) = if queue.is_fifo() {
        (format!("{queue:?}.fifo"), sqs::Settings::fifo())
    } else {
        (format!("{queue:?}"), sqs::Settings::standard())
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
                        format!("open what was sealed as {context}"),
                        "it was sealed as something else",
                    )
                })
        })
        .await
    }
}
