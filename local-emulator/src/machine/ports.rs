//! The data services' queues, as event sources use them.

use crate::data::sqs::{Sqs, SqsError, billed_requests};
use crate::data::{Call, Front, Principal, Purpose, Service, Usage};
use crate::sources::{QueueError, QueuePort};
use crate::template::SourcePlan;
use async_trait::async_trait;
use sluice_memory::sqs::{Delivered, Refusal, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Calls the queues without the door that everybody else goes through, so it counts its calls
/// itself: as AWS does, in the name of the function that the queue calls.
pub(super) struct EmulatedQueues {
    data: Arc<Front>,
    /// The functions by the ARN of the queue that calls them.
    functions: BTreeMap<String, Principal>,
}

/// An operation of SQS.
#[derive(Clone, Copy)]
struct Operation {
    name: &'static str,
    /// What it does, as a verb, for errors.
    action: &'static str,
}

const RECEIVE: Operation = Operation { name: "ReceiveMessage", action: "receive messages" };
const DELETE: Operation = Operation { name: "DeleteMessageBatch", action: "delete messages" };
const RELEASE: Operation =
    Operation { name: "ChangeMessageVisibilityBatch", action: "release messages" };

impl EmulatedQueues {
    /// Creates the connection between event sources and the queues of `data`. Calls count in the
    /// name of the function that `sources` names for the queue.
    pub(super) fn new(data: Arc<Front>, sources: &[SourcePlan]) -> Self {
        let functions = sources
            .iter()
            .map(|source| (source.queue_arn.clone(), Principal::new(source.function.as_str())));
        Self { data, functions: functions.collect() }
    }

    /// Runs one call that blocks on the disk and returns its result; `call` gets the queue's name.
    /// Counts it in the meter, with the purpose and the bytes that `purpose` returns for its
    /// result. A failed call counts as one of the event source, without bytes.
    async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        queue_arn: &str,
        purpose: impl FnOnce(&T) -> (Purpose, usize) + Send,
        call: impl FnOnce(&Sqs, &str) -> Result<T, SqsError> + Send + 'static,
    ) -> Result<T, QueueError> {
        let (sqs, name) = (self.data.sqs().clone(), name(queue_arn).to_owned());
        let (outcome, status) = match tokio::task::spawn_blocking(move || call(&sqs, &name)).await {
            Ok(Ok(given)) => (Ok(given), 200),
            Ok(Err(error @ SqsError::Store(_))) => (Err(error.to_string()), 500),
            Ok(Err(error)) => (Err(error.to_string()), 400),
            Err(error) => (Err(error.to_string()), 500),
        };
        let (purpose, bytes) = outcome.as_ref().map_or((Purpose::EventSource, 0), purpose);
        self.count(operation, queue_arn, status, purpose, bytes);
        let action = operation.action;
        outcome.map_err(|why| QueueError { action, queue_arn: queue_arn.to_owned(), why })
    }

    /// Counts a call in the meter in the name of the queue's function, or of `unknown` if no source
    /// names the queue. Since there is neither request nor response, only the `bytes` of received
    /// messages count.
    fn count(
        &self,
        operation: Operation,
        queue_arn: &str,
        status: u16,
        purpose: Purpose,
        bytes: usize,
    ) {
        let unknown = Principal::new("unknown");
        self.data.meter().record(&Call {
            principal: self.functions.get(queue_arn).unwrap_or(&unknown),
            service: &Service::Sqs,
            operation: operation.name,
            status,
            bytes_in: 0,
            bytes_out: bytes as u64,
            usage: Usage {
                billed_requests: billed_requests(bytes),
                fifo: queue_arn.ends_with(".fifo"),
                purpose,
                ..Usage::default()
            },
        });
    }
}

#[async_trait]
impl QueuePort for EmulatedQueues {
    /// Receives at most `max` messages (1 to 10) without waiting. They stay hidden for
    /// `hidden_for`, rounded up to seconds, or for the queue's own visibility timeout if that is
    /// `None`. A call that receives none is counted as a poll.
    async fn receive(
        &self,
        queue_arn: &str,
        max: u32,
        hidden_for: Option<Duration>,
    ) -> Result<Vec<Delivered>, QueueError> {
        let hidden = hidden_for.map(whole_seconds);
        let what = |batch: &Vec<Delivered>| received(batch);
        self.call(RECEIVE, queue_arn, what, move |sqs, name| {
            sqs.receive(name, max as usize, hidden)
        })
        .await
    }

    /// Deletes messages, ten in one counted call. Stops at the first error; messages before it are
    /// deleted. A message that is gone, visible again or received again since is no error; a
    /// receipt that this queue did not make is one.
    async fn delete(&self, queue_arn: &str, receipts: &[String]) -> Result<(), QueueError> {
        for batch in receipts.chunks(limits::BATCH_MAX) {
            let batch = batch.to_vec();
            self.call(
                DELETE,
                queue_arn,
                |_: &()| (Purpose::EventSource, 0),
                move |sqs, name| {
                    batch.iter().try_for_each(|receipt| {
                        ignore_not_in_flight(sqs.delete(name, receipt).map(|_| ()))
                    })
                },
            )
            .await?;
        }
        Ok(())
    }

    /// Sets for how long messages stay hidden from now, rounded up to seconds, ten in one counted
    /// call. Stops at the first error. A message that is gone, visible or received again since, and
    /// a time over SQS's limit, are no error; a receipt that this queue did not make is one.
    async fn hide_for(
        &self,
        queue_arn: &str,
        receipts: &[String],
        after: Duration,
    ) -> Result<(), QueueError> {
        let seconds = whole_seconds(after);
        for batch in receipts.chunks(limits::BATCH_MAX) {
            let batch = batch.to_vec();
            self.call(
                RELEASE,
                queue_arn,
                |_: &()| (Purpose::EventSourceHiding, 0),
                move |sqs, name| {
                    batch.iter().try_for_each(|receipt| {
                        ignore_not_in_flight(sqs.change_visibility(name, receipt, seconds))
                    })
                },
            )
            .await?;
        }
        Ok(())
    }

    /// Waits until a message may be visible, at most `at_most`. Without the queue it waits a
    /// second, so that the next receive reports the error.
    async fn wait(&self, queue_arn: &str, at_most: Duration) {
        // Without its queue there is nothing to wait for: then the next receive says so.
        if self.data.sqs().wait_visible(name(queue_arn), at_most).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Returns the purpose of a receive (a poll if it returned no messages) and the bytes of the
/// messages' bodies.
fn received(batch: &[Delivered]) -> (Purpose, usize) {
    match batch.is_empty() {
        true => (Purpose::Poll, 0),
        false => (Purpose::EventSource, batch.iter().map(|one| one.message.body.len()).sum()),
    }
}

/// Turns the errors that a message is gone, visible again or received elsewhere into success: it is
/// redelivered or done. An invalid time becomes success too. Other errors stay, also that of a
/// receipt that the queue did not make.
fn ignore_not_in_flight(outcome: Result<(), SqsError>) -> Result<(), SqsError> {
    match outcome {
        Err(SqsError::Refused(Refusal::NotInFlight { .. } | Refusal::InvalidParameter { .. })) => {
            Ok(())
        }
        other => other,
    }
}

/// Returns the name of a queue from its ARN.
fn name(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}

/// Rounds a time up to whole seconds, in which SQS counts visibility, so that no message comes too
/// early.
fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX)
}
