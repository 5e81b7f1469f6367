//! The message queues in memory, based on the rules in [`crate::sqs`].

use crate::sqs::{NewMessage, Poll};
use crate::world::{State, World};
use async_trait::async_trait;
use sluice_model::wakeup::MessageQueue;
use sluice_runtime::port::{Incoming, Outgoing};
use sluice_runtime::{Entropy, PortError, Queues};

/// The most messages in one request.
const BATCH_MAX: usize = 10;

#[async_trait]
impl Queues for World {
    /// Sends messages in order, all in one step called `queues.send`; it counts as one call for
    /// each ten. On a FIFO queue each gets a fresh deduplication id and no delay. The first message
    /// that the queue refuses is an error and ends it; earlier ones stay sent.
    async fn send(&self, queue: MessageQueue, messages: Vec<Outgoing>) -> Result<(), PortError> {
        let ids: Vec<String> = messages.iter().map(|_| self.token()).collect();
        self.with("queues.send", |state| {
            // Ten per request, as in the real service: each further ten are another call.
            state.used.calls += (messages.len().saturating_sub(1) / BATCH_MAX) as u64;
            state.used.fifo_calls = if queue.is_fifo() { state.used.calls } else { 0 };
            let now = state.now.0;
            let held = state
                .queues
                .get_mut(&queue)
                .ok_or_else(|| PortError::unknown(format!("send to {queue:?}"), "no such queue"))?;
            for (message, id) in messages.into_iter().zip(ids) {
                state.moment += 1;
                state.sent.insert(message.body.clone(), state.moment);
                let mut new = NewMessage::body(message.body);
                if let Some(group) = message.group {
                    new = new.group(group);
                }
                if queue.is_fifo() {
                    new = new.dedup(id);
                } else if message.delay_seconds > 0 {
                    new = new.delay(message.delay_seconds);
                }
                held.send(new, now).map_err(|refusal| {
                    PortError::unknown(format!("send to {queue:?}"), refusal.code())
                })?;
            }
            Ok(())
        })
        .await
    }

    /// Receives at most `max` messages and hides them for `visibility_seconds`; never waits, so
    /// `wait_seconds` is ignored. Messages that were received too often become dead letters. An
    /// error if the queue refuses, as for a `max` that is not from 1 to 10. One step, called
    /// `queues.receive`.
    async fn receive(
        &self,
        queue: MessageQueue,
        max: u32,
        _wait_seconds: u32,
        visibility_seconds: u32,
    ) -> Result<Vec<Incoming>, PortError> {
        self.with("queues.receive", |state| {
            state.used.fifo_calls = u64::from(queue.is_fifo());
            receive(state, queue, max, visibility_seconds)
        })
        .await
    }

    /// Removes a received message for good. A message that is gone is no error; nor, on a standard
    /// queue, is one that was received again, which stays. An error if the queue refuses the
    /// receipt, as a FIFO queue does after its time-out. One step, called `queues.acknowledge`.
    async fn acknowledge(&self, queue: MessageQueue, receipt: &str) -> Result<(), PortError> {
        self.with("queues.acknowledge", |state| {
            state.used.fifo_calls = u64::from(queue.is_fifo());
            let now = state.now.0;
            if let Some(held) = state.queues.get_mut(&queue) {
                held.delete(receipt, now).map_err(|refusal| {
                    PortError::unknown(format!("acknowledge in {queue:?}"), refusal.code())
                })?;
            }
            Ok(())
        })
        .await
    }

    /// Removes received messages for good, ten in each step called `queues.acknowledge`; each
    /// receipt as in [`Self::acknowledge`]. A refused receipt does not prevent the removal of the
    /// others of its ten, but is an error after them: the later tens are not removed.
    async fn acknowledge_all(
        &self,
        queue: MessageQueue,
        receipts: &[String],
    ) -> Result<(), PortError> {
        for batch in receipts.chunks(BATCH_MAX) {
            self.with("queues.acknowledge", |state| {
                state.used.fifo_calls = u64::from(queue.is_fifo());
                let now = state.now.0;
                let Some(held) = state.queues.get_mut(&queue) else { return Ok(()) };
                // One by one, as in the real service: a refused one does not prevent the removal of
                // others.
                let refused =
                    batch.iter().filter_map(|receipt| held.delete(receipt, now).err()).last();
                refused.map_or(Ok(()), |refusal| {
                    Err(PortError::unknown(format!("acknowledge in {queue:?}"), refusal.code()))
                })
            })
            .await?;
        }
        Ok(())
    }

    /// Makes a received message visible again `seconds` from now. An error if the message is
    /// visible or gone, was received again, or would stay hidden for more than 12 hours after its
    /// last receive. One step, called `queues.postpone`.
    async fn postpone(
        &self,
        queue: MessageQueue,
        receipt: &str,
        seconds: u32,
    ) -> Result<(), PortError> {
        self.with("queues.postpone", |state| {
            state.used.fifo_calls = u64::from(queue.is_fifo());
            let now = state.now.0;
            if let Some(held) = state.queues.get_mut(&queue) {
                held.change_visibility(receipt, seconds, now).map_err(|refusal| {
                    PortError::unknown(format!("postpone in {queue:?}"), refusal.code())
                })?;
            }
            Ok(())
        })
        .await
    }
}

/// Receives at most `max` messages of a queue without waiting and hides them for
/// `visibility_seconds`. Messages that were received too often are moved to the dead letters of the
/// state. An error if there is no such queue, or if the queue refuses: `max` is not from 1 to 10,
/// the time is over 12 hours, or a standard queue has 120,000 messages in flight.
pub(crate) fn receive(
    state: &mut State,
    queue: MessageQueue,
    max: u32,
    visibility_seconds: u32,
) -> Result<Vec<Incoming>, PortError> {
    let now = state.now.0;
    let attempt = || format!("receive from {queue:?}");
    let held = state
        .queues
        .get_mut(&queue)
        .ok_or_else(|| PortError::unknown(attempt(), "no such queue"))?;
    let poll = Poll { max: max as usize, visibility_seconds: Some(visibility_seconds) };
    let received = held
        .receive(poll, now, &mut state.chooser)
        .map_err(|refusal| PortError::unknown(attempt(), refusal.code()))?;
    state.dead.entry(queue).or_default().extend(received.dead);
    let incoming = received.messages.into_iter().map(|delivered| Incoming {
        id: delivered.message.id,
        body: delivered.message.body,
        receipt: delivered.receipt,
        group: delivered.message.group,
        receive_count: delivered.message.receives,
    });
    Ok(incoming.collect())
}
