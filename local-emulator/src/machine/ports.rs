//! The data services' queues, as event sources use them.

use crate::data::sqs::{Sqs, SqsError};
use crate::sources::{QueueError, QueuePort};
use async_trait::async_trait;
use sluice_memory::sqs::{Delivered, Refusal};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct EmulatedQueues {
    sqs: Arc<Sqs>,
}

impl EmulatedQueues {
    pub(super) fn new(sqs: Arc<Sqs>) -> Self {
        Self { sqs }
    }

    /// Runs a call that blocks on the disk.
    async fn blocking<T: Send + 'static>(
        &self,
        action: &'static str,
        queue_arn: &str,
        call: impl FnOnce(&Sqs, &str) -> Result<T, SqsError> + Send + 'static,
    ) -> Result<T, QueueError> {
        let (sqs, name) = (self.sqs.clone(), name(queue_arn).to_owned());
        let failed = |why: String| QueueError { action, queue_arn: queue_arn.to_owned(), why };
        match tokio::task::spawn_blocking(move || call(&sqs, &name)).await {
            Ok(outcome) => outcome.map_err(|error| failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

#[async_trait]
impl QueuePort for EmulatedQueues {
    async fn receive(
        &self,
        queue_arn: &str,
        max: u32,
        hidden_for: Option<Duration>,
    ) -> Result<Vec<Delivered>, QueueError> {
        let hidden = hidden_for.map(whole_seconds);
        self.blocking("receive messages", queue_arn, move |sqs, name| sqs.receive(name, max as usize, hidden)).await
    }

    async fn delete(&self, queue_arn: &str, receipts: &[String]) -> Result<(), QueueError> {
        let receipts = receipts.to_vec();
        self.blocking("delete messages", queue_arn, move |sqs, name| {
            for receipt in &receipts {
                settled(sqs.delete(name, receipt).map(|_| ()))?;
            }
            Ok(())
        })
        .await
    }

    async fn release(&self, queue_arn: &str, receipts: &[String], after: Duration) -> Result<(), QueueError> {
        let (receipts, seconds) = (receipts.to_vec(), whole_seconds(after));
        self.blocking("release messages", queue_arn, move |sqs, name| {
            for receipt in &receipts {
                settled(sqs.change_visibility(name, receipt, seconds))?;
            }
            Ok(())
        })
        .await
    }

    async fn wait(&self, queue_arn: &str, at_most: Duration) {
        // Without its queue there is nothing to wait for: then the next receive says so.
        if self.sqs.wait_visible(name(queue_arn), at_most).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// A message that is gone, visible again or with somebody else needs nothing more from us: it comes again or is done.
fn settled(outcome: Result<(), SqsError>) -> Result<(), SqsError> {
    match outcome {
        Err(SqsError::Refused(Refusal::NotInFlight { .. } | Refusal::InvalidParameter { .. })) => Ok(()),
        other => other,
    }
}

fn name(arn: &str) -> &str {
    arn.rsplit(':').next().unwrap_or(arn)
}

/// SQS counts visibility in whole seconds; a part of one counts whole, so that nothing comes too soon.
fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX)
}
