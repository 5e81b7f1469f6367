//! Polls one queue and calls one function with its messages.

use super::answer::{BatchResult, evaluate_response};
use super::{AfterFailure, LEASE, Origin, QueueError, QueuePort, Run, event, stopped};
use crate::lambda::{Invoke, InvokeError};
use crate::template::{QueueKind, SourcePlan};
use bytes::Bytes;
use sluice_memory::sqs::Delivered;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// How long one receive call waits for messages, like AWS's long polling.
const LONG_POLL: Duration = Duration::from_secs(20);

/// Pauses after a throttled call or a failed receive, doubled each time up to the maximum.
const PAUSE_SHORTEST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(5);

pub(super) struct Poller {
    pub(super) source: SourcePlan,
    pub(super) kind: QueueKind,
    pub(super) concurrency: u32,
    /// How long a throttled call is retried before its messages are left to their timeout.
    pub(super) retry_limit: Duration,
    pub(super) origin: Origin,
    pub(super) queues: Arc<dyn QueuePort>,
    pub(super) functions: Arc<dyn Invoke>,
    pub(super) after_failure: AfterFailure,
}

impl Poller {
    /// Receives batches and calls the function with each in a task of its own, as many at once as
    /// `concurrency` allows, until the shutdown. A failed receive is logged and tried again after a
    /// pause. Returns when the last call has ended.
    pub(super) async fn run(self: Arc<Self>, mut running: watch::Receiver<Run>) {
        let slots = Arc::new(Semaphore::new(self.concurrency as usize));
        let mut pause = PAUSE_SHORTEST;
        loop {
            let slot = tokio::select! {
                biased;
                () = stopped(&mut running) => break,
                slot = slots.clone().acquire_owned() => match slot {
                    Ok(slot) => slot,
                    // The semaphore is never closed.
                    Err(_) => break,
                },
            };
            let arn = &self.source.queue_arn;
            match self.queues.receive(arn, self.source.batch_size, self.hidden_for()).await {
                Ok(batch) if batch.is_empty() => {
                    pause = PAUSE_SHORTEST;
                    drop(slot);
                    tokio::select! {
                        biased;
                        () = stopped(&mut running) => break,
                        () = self.queues.wait(arn, LONG_POLL) => {}
                    }
                }
                Ok(batch) => {
                    pause = PAUSE_SHORTEST;
                    let poller = self.clone();
                    tokio::spawn(async move {
                        poller.handle(batch).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a queue could not be read");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_LONGEST);
                }
            }
        }
        // All slots free: no call runs any more.
        let _ = slots.acquire_many(self.concurrency).await;
    }

    /// Calls the function with a batch, then deletes the messages that succeeded. Messages that the
    /// function names as failed stay hidden until their timeout. Messages behind a failed one of
    /// their group, and all messages after a failed call or an invalid response, are left to
    /// [`Poller::come_again`]. Errors are only logged.
    async fn handle(&self, batch: Vec<Delivered>) {
        let SourcePlan { function, queue_arn, response_format, .. } = &self.source;
        let all: Vec<String> = batch.iter().map(|message| message.receipt.clone()).collect();
        let payload = match event::of_batch(&self.origin, queue_arn, &batch) {
            Ok(payload) => payload,
            Err(error) => {
                tracing::error!(%function, queue = %queue_arn, %error, "a batch could not be written as an event");
                return self.come_again(&all).await;
            }
        };
        let outcome = tokio::select! {
            outcome = self.call(payload) => outcome,
            // Never ends by itself.
            () = self.keep_hidden(&all) => return,
        };
        let result = match outcome {
            Ok(answer) => evaluate_response(self.kind, *response_format, &batch, &answer),
            Err(error) => {
                tracing::warn!(%function, queue = %queue_arn, messages = batch.len(), %error, "a call failed");
                return self.come_again(&all).await;
            }
        };
        let BatchResult { delete, failed, behind, invalid } = result;
        if let Some(why) = invalid {
            tracing::error!(%function, queue = %queue_arn, %why, "an answer was invalid: its whole batch comes again");
            return self.come_again(&all).await;
        }
        if !failed.is_empty() {
            let (failed, behind) = (failed.len(), behind.len());
            tracing::info!(%function, queue = %queue_arn, failed, behind, "messages come again");
        }
        if !delete.is_empty() {
            self.log_failure(self.queues.delete(queue_arn, &delete).await);
        }
        self.come_again(&behind).await;
    }

    /// Returns for how long received messages are hidden: [`LEASE`] if they are to come again soon
    /// after a failure; otherwise `None`, for the queue's visibility timeout.
    fn hidden_for(&self) -> Option<Duration> {
        match self.after_failure {
            AfterFailure::VisibilityTimeout => None,
            AfterFailure::Within(_) => Some(LEASE),
        }
    }

    /// Extends the short visibility timeout of a batch again and again, until this future is
    /// dropped. If messages are hidden for the queue's own timeout, does nothing. Never completes
    /// in either case.
    async fn keep_hidden(&self, receipts: &[String]) {
        if self.hidden_for().is_none() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LEASE / 3).await;
            self.log_failure(self.queues.hide_for(&self.source.queue_arn, receipts, LEASE).await);
        }
    }

    /// Calls the function and returns its response. A throttled call is tried again until
    /// `retry_limit` (half of the queue's visibility timeout) has passed, and then is an error; the
    /// messages stay hidden. Other errors are returned at once.
    async fn call(&self, payload: Bytes) -> Result<Bytes, InvokeError> {
        let give_up = Instant::now() + self.retry_limit;
        let mut pause = PAUSE_SHORTEST;
        loop {
            match self.functions.invoke(&self.source.function, payload.clone()).await {
                Err(InvokeError::Throttled { .. }) if Instant::now() + pause < give_up => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_LONGEST);
                }
                outcome => return outcome,
            }
        }
    }

    /// Makes messages visible after the time that [`AfterFailure::Within`] says. Otherwise leaves
    /// them to their visibility timeout and does nothing.
    async fn come_again(&self, receipts: &[String]) {
        if let AfterFailure::Within(after) = self.after_failure
            && !receipts.is_empty()
        {
            self.log_failure(self.queues.hide_for(&self.source.queue_arn, receipts, after).await);
        }
    }

    /// Logs the error of a queue; does nothing without one.
    fn log_failure(&self, outcome: Result<(), QueueError>) {
        if let Err(error) = outcome {
            tracing::warn!(function = %self.source.function, %error, "messages will come again");
        }
    }
}
