//! Event sources that call functions: queues and schedules.
//!
//! Queues follow the rules of AWS: a call has at most ten messages. A message is deleted only if
//! the function reports success. A failed message stays hidden until its visibility timeout, unless
//! the function sets another one. A FIFO queue delivers no message of a group while another one of
//! the group is hidden, so each group is in one call at a time.

mod answer;
mod event;
mod poll;
mod schedule;

#[cfg(test)]
mod tests;

pub use answer::{BatchResult, evaluate_response};
pub use event::Origin;

use crate::lambda::Invoke;
use crate::template::{QueueKind, TemplatePlan};
use async_trait::async_trait;
pub use sluice_memory::sqs::{Delivered, Message};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The default number of concurrent calls from one queue, without `MaximumConcurrency`.
const CONCURRENCY_DEFAULT: u32 = 64;

/// How long a batch is hidden at a time under [`AfterFailure::Within`].
pub const LEASE: Duration = Duration::from_secs(5);

/// How long [`Sources::stop`] waits for calls that still run.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// The queues, as event sources use them. Queues are named by ARN.
#[async_trait]
pub trait QueuePort: Send + Sync + 'static {
    /// Receives at most `max` messages without waiting. They are hidden for `hidden_for`, or for
    /// the queue's own visibility timeout.
    async fn receive(
        &self,
        queue_arn: &str,
        max: u32,
        hidden_for: Option<Duration>,
    ) -> Result<Vec<Delivered>, QueueError>;
    /// Deletes messages by their receipts; a message that is already deleted is no error.
    async fn delete(&self, queue_arn: &str, receipts: &[String]) -> Result<(), QueueError>;
    /// Sets after which time from now messages become visible; a message that is deleted or visible
    /// is no error.
    async fn hide_for(
        &self,
        queue_arn: &str,
        receipts: &[String],
        after: Duration,
    ) -> Result<(), QueueError>;
    /// Waits until a message may have become visible, at most `at_most`. Does not say which of the
    /// two it was; an error ends it, too.
    async fn wait(&self, queue_arn: &str, at_most: Duration);
}

/// A failed call to a queue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not {action} on {queue_arn}: {why}; it is tried again")]
pub struct QueueError {
    /// The operation that failed, as a verb.
    pub action: &'static str,
    /// The queue.
    pub queue_arn: String,
    /// The error message of the queue.
    pub why: String,
}

/// When messages become visible again after their call failed as a whole (error, timeout, dead
/// process, invalid response).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterFailure {
    /// When their visibility time-out ends, as on AWS: six times the function's time limit.
    #[default]
    VisibilityTimeout,
    /// After this time, for interactive systems and for tests that kill functions. Messages are
    /// hidden for [`LEASE`] only, which is renewed while their call runs. So they are soon visible
    /// again after a kill of the machine.
    Within(Duration),
}

/// How often schedules fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tick {
    /// At the template's period.
    #[default]
    AsPlanned,
    /// Every schedule at this period.
    Every(Duration),
}

/// Settings of all sources.
#[derive(Debug, Clone, Default)]
pub struct SourceOptions {
    /// See [`AfterFailure`].
    pub after_failure: AfterFailure,
    /// See [`Tick`].
    pub tick: Tick,
}

/// Running event sources and schedules. Dropping it stops them without waiting.
pub struct Sources {
    stop: watch::Sender<Run>,
    tasks: Vec<JoinHandle<()>>,
}

/// Whether sources keep running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    On,
    Off,
}

impl Sources {
    /// Starts every event source and schedule of `plan` as tasks of the current tokio runtime; they
    /// run until [`Self::stop`] or until the returned value is dropped. A source whose queue is not
    /// in the plan is left out.
    pub fn start(
        plan: &TemplatePlan,
        origin: &Origin,
        queues: &Arc<dyn QueuePort>,
        functions: &Arc<dyn Invoke>,
        options: &SourceOptions,
    ) -> Self {
        let (stop, running) = watch::channel(Run::On);
        let mut tasks = Vec::new();
        for source in &plan.sources {
            // Reading the template checked that every source names a queue of the plan.
            let Some(queue) = plan.queue(&source.queue_arn) else {
                continue;
            };
            let poller = poll::Poller {
                source: source.clone(),
                kind: queue.kind,
                concurrency: source.concurrency_max.unwrap_or(CONCURRENCY_DEFAULT),
                retry_limit: Duration::from_secs(queue.visibility_timeout_seconds.into()) / 2,
                origin: origin.clone(),
                queues: queues.clone(),
                functions: functions.clone(),
                after_failure: options.after_failure,
            };
            tasks.push(tokio::spawn(Arc::new(poller).run(running.clone())));
        }
        for schedule in &plan.schedules {
            let period = match options.tick {
                Tick::AsPlanned => schedule.period,
                Tick::Every(period) => period,
            };
            let retries = plan
                .function(&schedule.function)
                .map_or(0, |function| function.asynchronous_retries);
            let clockwork = schedule::Clockwork {
                schedule: schedule.clone(),
                period,
                retries,
                origin: origin.clone(),
                functions: functions.clone(),
            };
            tasks.push(tokio::spawn(clockwork.run(running.clone())));
        }
        Self { stop, tasks }
    }

    /// Stops receiving messages and firing schedules, and waits up to half a minute for running
    /// calls. Calls that still run then are no longer waited for, with a warning; messages of calls
    /// that do not finish are redelivered.
    pub async fn stop(mut self) {
        self.stop.send_replace(Run::Off);
        let tasks = std::mem::take(&mut self.tasks);
        let aborts: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
        if tokio::time::timeout(STOP_LIMIT, futures::future::join_all(tasks)).await.is_err() {
            tracing::warn!("calls still ran after {STOP_LIMIT:?}; their messages come again");
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
        }
    }
}

impl Drop for Sources {
    /// Stops all sources and schedules at once; calls that run already go on without being waited
    /// for.
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Completes when the sources are to stop or were dropped.
async fn stopped(running: &mut watch::Receiver<Run>) {
    // An error means that the sender was dropped, which also stops the sources.
    let _ = running.wait_for(|run| *run == Run::Off).await;
}

/// Returns the message group within which order matters, which is empty without a group; `None` on
/// a standard queue.
fn ordered_group(kind: QueueKind, message: &Delivered) -> Option<&str> {
    match kind {
        QueueKind::Fifo => Some(message.message.group.as_deref().unwrap_or_default()),
        QueueKind::Standard => None,
    }
}
