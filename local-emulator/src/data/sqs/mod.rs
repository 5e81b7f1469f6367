//! SQS: the rules of `sluice_memory::sqs` over rows in SQLite, as a JSON service and as a Rust API
//! for event sources.
//!
//! Every change is stored before the response, so acknowledged messages survive a `kill -9`, as do
//! visibility timeouts, receive counts and deduplication ids.

mod api;
mod attributes;
mod digest;
mod problem;
mod request;
mod rows;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_memory::sqs::{
    Counts, Deletion, Delivered, NewMessage, Poll, Queue, Received, Refusal, Seeded, Sent,
    SqsQueueSettings,
};
use tokio::sync::Notify;

use super::account::Account;
use super::store::{Durability, StoreError};
use super::wire::now_ms;

pub(crate) use api::billed_requests;
pub(super) use problem::injected;
use rows::Rows;

/// Content type of requests and answers.
pub const CONTENT_TYPE: &str = "application/x-amz-json-1.0";
/// What `X-Amz-Target` begins with.
pub const TARGET_PREFIX: &str = "AmazonSQS.";

/// The queues of one data directory.
pub struct Sqs {
    state: Mutex<State>,
    account: Account,
    base_url: Mutex<String>,
    groups_on_standard_refused: AtomicBool,
}

struct State {
    rows: Rows,
    queues: BTreeMap<String, Entry>,
    chooser: Seeded,
}

struct Entry {
    queue: Queue,
    changed: Arc<Notify>,
    created_ms: u64,
    purged_ms: Option<u64>,
}

/// Why a queue did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SqsError {
    /// There is no queue of that name.
    #[error("The specified queue does not exist: {name}")]
    NoQueue {
        /// The name.
        name: String,
    },
    /// There is one, with other attributes.
    #[error(
        "A queue already exists with the same name and a different value for its attributes: {name}"
    )]
    Exists {
        /// The name.
        name: String,
    },
    /// A purge ran within the last 60 seconds.
    #[error("Only one PurgeQueue operation on {name} is allowed every 60 seconds.")]
    PurgeInProgress {
        /// The name.
        name: String,
    },
    /// The rules of SQS refuse it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The change could not be written, and was not made.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How [`Sqs::wait_visible`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A receive may give something now.
    Visible,
    /// The time is over.
    TimedOut,
}

impl Sqs {
    /// Opens or creates the queues in `directory`, with their messages. The order of standard
    /// queues follows from `seed`; messages of a standard queue come twice in `twice_per_mille` of
    /// 1000 receives.
    ///
    /// # Errors
    /// [`StoreError`] when the directory or the database in it cannot be used.
    pub fn open(
        directory: &Path,
        account: Account,
        durability: Durability,
        seed: u64,
        twice_per_mille: u16,
    ) -> Result<Self, StoreError> {
        let mut rows = Rows::open(directory, durability)?;
        let queues = rows.load()?.into_iter().map(|(queue, created_ms)| {
            let entry = Entry { queue, changed: Arc::default(), created_ms, purged_ms: None };
            (entry.queue.name().to_owned(), entry)
        });
        let queues = queues.collect();
        let state = State { rows, queues, chooser: Seeded::new(seed, twice_per_mille) };
        Ok(Self {
            state: Mutex::new(state),
            account,
            base_url: Mutex::new("http://127.0.0.1".to_owned()),
            groups_on_standard_refused: AtomicBool::new(false),
        })
    }

    /// Lets standard queues refuse every message with a group from now on, which AWS does not, but
    /// other endpoints do. FIFO queues take groups as before.
    pub fn refuse_groups_on_standard_queues(&self) {
        self.groups_on_standard_refused.store(true, Ordering::Relaxed);
    }

    /// Sets the start of queue URLs, for example `http://127.0.0.1:4566`; later responses show it.
    /// Calls name queues by the last part of a URL alone.
    pub fn set_base_url(&self, url: impl Into<String>) {
        *self.base_url.lock().unwrap_or_else(PoisonError::into_inner) = url.into();
    }

    /// Returns the URL of a queue, whether it exists or not, with the start that was set last.
    #[must_use]
    pub fn queue_url(&self, name: &str) -> String {
        format!(
            "{}/{}/{name}",
            self.base_url.lock().unwrap_or_else(PoisonError::into_inner),
            self.account.id
        )
    }

    /// Creates and stores a queue. An existing one with the same attributes stays as it is; one
    /// with other attributes is an error. A name or attributes outside AWS's limits, or a dead
    /// letter queue that does not exist, are errors too.
    ///
    /// # Errors
    /// [`SqsError::Exists`] for other attributes, [`SqsError::Refused`] for ones outside AWS's
    /// limits or a dead letter queue that does not exist.
    pub fn create_queue(&self, name: &str, settings: SqsQueueSettings) -> Result<(), SqsError> {
        settings.check(name)?;
        let state = &mut *self.lock();
        if let Some(entry) = state.queues.get(name) {
            let same = *entry.queue.settings() == settings;
            return if same { Ok(()) } else { Err(SqsError::Exists { name: name.to_owned() }) };
        }
        state.check_dead_letter_queue(&settings)?;
        let created_ms = now_ms();
        state.rows.write_queue(name, &settings, created_ms)?;
        let queue = Queue::restore(name, settings, 1, Vec::new(), Vec::new())?;
        let entry = Entry { queue, changed: Arc::default(), created_ms, purged_ms: None };
        state.queues.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Creates a queue, or replaces all attributes of an existing one. Its messages stay. An error
    /// if an existing queue is of the other type (standard or FIFO), the attributes are outside
    /// AWS's limits, or the dead letter queue does not exist.
    ///
    /// # Errors
    /// As [`Sqs::create_queue`].
    pub fn ensure_queue(&self, name: &str, settings: SqsQueueSettings) -> Result<(), SqsError> {
        match self.create_queue(name, settings.clone()) {
            Err(SqsError::Exists { .. }) => self.set_settings(name, settings),
            other => other,
        }
    }

    /// Replaces all attributes of an existing queue, stores them and wakes receivers that wait. Its
    /// messages stay. An error if the queue or the dead letter queue does not exist, the type
    /// (standard or FIFO) would change, or an attribute is outside AWS's limits.
    ///
    /// # Errors
    /// [`SqsError::Refused`] for attributes outside AWS's limits or a dead letter queue that does
    /// not exist, [`SqsError::NoQueue`] without the queue, [`SqsError::Exists`] if its type would
    /// change.
    pub fn set_settings(&self, name: &str, settings: SqsQueueSettings) -> Result<(), SqsError> {
        let state = &mut *self.lock();
        state.check_dead_letter_queue(&settings)?;
        let created_ms = state.entry(name)?.created_ms;
        let is_fifo = state.entry(name)?.queue.settings().is_fifo();
        if is_fifo != settings.is_fifo() {
            return Err(SqsError::Exists { name: name.to_owned() });
        }
        settings.check(name)?;
        state.rows.write_queue(name, &settings, created_ms)?;
        state.entry(name)?.queue.set_settings(settings)?;
        state.entry(name)?.changed.notify_waiters();
        Ok(())
    }

    /// Returns the names of all queues in order.
    #[must_use]
    pub fn queue_names(&self) -> Vec<String> {
        self.lock().queues.keys().cloned().collect()
    }

    /// Sends one message, stores it, wakes receivers that wait and returns its id and sequence
    /// number. An error if the queue does not exist or does not take it. A duplicate on a FIFO
    /// queue is not stored again and returns the ids of the first.
    ///
    /// # Errors
    /// [`SqsError::Refused`] for what the queue does not take.
    pub fn send(&self, name: &str, message: NewMessage) -> Result<Sent, SqsError> {
        if let Some(group) = &message.group
            && self.groups_on_standard_refused.load(Ordering::Relaxed)
            && !self.lock().entry(name)?.queue.settings().is_fifo()
        {
            return Err(SqsError::Refused(Refusal::InvalidParameter {
                parameter: "MessageGroupId",
                value: group.clone(),
                reason: "The request includes a parameter that is not valid for this queue type"
                    .to_owned(),
            }));
        }
        self.change(name, |queue, _| queue.send(message, now_ms()))
    }

    /// Receives at most `max` messages (1 to 10, otherwise an error) without waiting; empty if none
    /// is visible. They are invisible for `visibility_seconds`, or the queue's own time without it.
    /// Messages that were received too often are moved to the dead letter queue instead, or deleted
    /// if that is missing. An error if the queue does not exist.
    ///
    /// # Errors
    /// [`SqsError::Refused`] for a poll outside AWS's limits.
    pub fn receive(
        &self,
        name: &str,
        max: usize,
        visibility_seconds: Option<u32>,
    ) -> Result<Vec<Delivered>, SqsError> {
        let state = &mut *self.lock();
        let mut chooser = state.chooser;
        let poll = Poll { max, visibility_seconds };
        let received = state.entry(name)?.queue.receive(poll, now_ms(), &mut chooser)?;
        state.chooser = chooser;
        let arn = self.account.queue_arn(name);
        state.settle(name, received, &arn)
    }

    /// Deletes a received message by its receipt. The result says whether it was deleted; one that
    /// is gone, or on a standard queue was received again since, is no error.
    ///
    /// # Errors
    /// [`SqsError::Refused`] for a handle that is not this queue's, or on a FIFO queue has expired.
    pub fn delete(&self, name: &str, receipt: &str) -> Result<Deletion, SqsError> {
        self.change(name, |queue, _| queue.delete(receipt, now_ms()))
    }

    /// Sets how much longer, from now, a received message stays invisible; 0 makes it visible at
    /// once. Receivers that wait are woken. An error if the message is not in flight under this
    /// receipt, the time is over AWS's limit, or the queue does not exist.
    ///
    /// # Errors
    /// [`SqsError::Refused`] for a message that is not in flight under this handle.
    pub fn change_visibility(
        &self,
        name: &str,
        receipt: &str,
        seconds: u32,
    ) -> Result<(), SqsError> {
        self.change(name, |queue, _| queue.change_visibility(receipt, seconds, now_ms()))
    }

    /// Deletes all messages of a queue, also those in flight. An error if the last purge was less
    /// than 60 seconds ago, or there is no such queue. Deduplication ids are kept.
    ///
    /// # Errors
    /// [`SqsError::PurgeInProgress`] when the last one is younger.
    pub fn purge(&self, name: &str) -> Result<(), SqsError> {
        let state = &mut *self.lock();
        let entry = state.entry(name)?;
        if entry.purged_ms.is_some_and(|at_ms| now_ms() < at_ms + 60_000) {
            return Err(SqsError::PurgeInProgress { name: name.to_owned() });
        }
        entry.purged_ms = Some(now_ms());
        entry.queue.purge();
        state.commit(&[name])
    }

    /// Deletes a queue and its messages; receivers that wait for it get an error. An error if there
    /// is no such queue.
    ///
    /// # Errors
    /// [`SqsError::NoQueue`] when there is none.
    pub fn delete_queue(&self, name: &str) -> Result<(), SqsError> {
        let state = &mut *self.lock();
        state.entry(name)?;
        state.rows.delete_queue(name)?;
        if let Some(entry) = state.queues.remove(name) {
            entry.changed.notify_waiters();
        }
        Ok(())
    }

    /// Returns how many messages of a queue are visible, in flight and delayed now.
    ///
    /// # Errors
    /// [`SqsError::NoQueue`] when there is none.
    pub fn counts(&self, name: &str) -> Result<Counts, SqsError> {
        Ok(self.lock().entry(name)?.queue.counts(now_ms()))
    }

    /// Waits until a receive may return messages, at most `timeout`, and says which of the two it
    /// was. Another receiver may be faster. Receives nothing itself. An error if the queue does not
    /// exist or is deleted meanwhile.
    ///
    /// # Errors
    /// [`SqsError::NoQueue`] when there is none, or it is deleted meanwhile.
    pub async fn wait_visible(&self, name: &str, timeout: Duration) -> Result<Waited, SqsError> {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let changed = self.lock().entry(name)?.changed.clone();
            let mut notified = std::pin::pin!(changed.notified());
            // Registered before the queue is looked at, so that no change falls in between.
            notified.as_mut().enable();
            let now = now_ms();
            let wake_ms = self.lock().entry(name)?.queue.next_wake_ms(now);
            if wake_ms.is_some_and(|at_ms| at_ms <= now) {
                return Ok(Waited::Visible);
            }
            let until_wake = wake_ms
                .map(|at_ms| tokio::time::Instant::now() + Duration::from_millis(at_ms - now));
            let until = until_wake.map_or(deadline, |wake| wake.min(deadline));
            tokio::select! {
                () = &mut notified => {}
                () = tokio::time::sleep_until(until) => {
                    if tokio::time::Instant::now() >= deadline {
                        return Ok(Waited::TimedOut);
                    }
                }
            }
        }
    }

    /// Changes a queue by `act`, stores the change, wakes receivers that wait and returns what
    /// `act` returned. If `act` returns an error, nothing is stored, and `act` must not have
    /// changed the queue. If storing fails, the change is undone. An error if the queue does not
    /// exist.
    fn change<T>(
        &self,
        name: &str,
        act: impl FnOnce(&mut Queue, &mut Seeded) -> Result<T, Refusal>,
    ) -> Result<T, SqsError> {
        let state = &mut *self.lock();
        let mut chooser = state.chooser;
        let done = act(&mut state.entry(name)?.queue, &mut chooser)?;
        state.chooser = chooser;
        state.commit(&[name])?;
        Ok(done)
    }

    /// Locks the queues, also after a panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns a queue by its name; an error if it does not exist.
    fn entry(&mut self, name: &str) -> Result<&mut Entry, SqsError> {
        self.queues.get_mut(name).ok_or_else(|| SqsError::NoQueue { name: name.to_owned() })
    }

    /// Returns an error if the settings name a dead letter queue that does not exist. No dead
    /// letter queue is no error.
    fn check_dead_letter_queue(&self, settings: &SqsQueueSettings) -> Result<(), SqsError> {
        let Some(redrive) = &settings.redrive else {
            return Ok(());
        };
        if self.queues.contains_key(name_of_arn(&redrive.dead_letter_arn)) {
            return Ok(());
        }
        Err(SqsError::Refused(Refusal::InvalidParameter {
            parameter: "RedrivePolicy",
            value: redrive.dead_letter_arn.clone(),
            reason: "Dead letter target does not exist.".to_owned(),
        }))
    }

    /// Moves the dead letters of a receive from the queue `name`, whose ARN is `arn`, to their
    /// queue, and stores both queues in one commit; without dead letters stores the queue alone.
    /// Returns the messages that were received. Dead letters without an existing queue are deleted.
    fn settle(
        &mut self,
        name: &str,
        received: Received,
        arn: &str,
    ) -> Result<Vec<Delivered>, SqsError> {
        let mut changed = vec![name.to_owned()];
        if !received.dead.is_empty() {
            let redrive = self.entry(name)?.queue.settings().redrive.clone();
            let target = redrive
                .map(|redrive| name_of_arn(&redrive.dead_letter_arn).to_owned())
                .unwrap_or_default();
            // A dead letter queue that was deleted meanwhile takes its letters with it, as on AWS.
            if let Ok(dead) = self.entry(&target) {
                for message in received.dead {
                    dead.queue.accept_dead(message, arn, now_ms());
                }
                changed.push(target);
            }
        }
        let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
        self.commit(&changed)?;
        Ok(received.messages)
    }

    /// Stores the changes of these queues in one commit and wakes receivers that wait. If that
    /// fails, restores the queues from storage and returns the error.
    fn commit(&mut self, names: &[&str]) -> Result<(), SqsError> {
        let mut changes = Vec::with_capacity(names.len());
        for name in names {
            changes.push((*name, self.entry(name)?.queue.take_changes()));
        }
        if let Err(error) = self.rows.write_changes(&changes) {
            for name in names {
                if let Some(queue) = self.rows.load_queue(name)? {
                    self.entry(name)?.queue = queue;
                }
            }
            return Err(error.into());
        }
        for name in names {
            self.entry(name)?.changed.notify_waiters();
        }
        Ok(())
    }
}

/// Returns the name of a queue from its ARN.
fn name_of_arn(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or_default()
}
