//! Queues with SQS's own rules, a clock that the test moves, and a function whose answers the test
//! gives.

use crate::lambda::{Invoke, InvokeError};
use crate::sources::{Origin, QueueError, QueuePort, SourceOptions, Sources};
use crate::template::{MessageQueuePlan, QueueKind, ResponseFormat, SourcePlan, TemplatePlan};
use async_trait::async_trait;
use aws_lambda_events::event::sqs::SqsEvent;
use bytes::Bytes;
use serde_json::{Value, json};
use sluice_memory::sqs::{Delivered, NewMessage, Oldest, Poll, Queue, SqsQueueSettings};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

pub(super) const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:sluice-gate.fifo";
pub(super) const STANDARD_ARN: &str = "arn:aws:sqs:us-east-1:000000000000:sluice-wakes";

pub(super) struct TestQueues {
    state: Mutex<(Queue, u64)>,
    changed: Notify,
}

impl TestQueues {
    pub(super) fn new(kind: QueueKind) -> Arc<Self> {
        let queue = match kind {
            QueueKind::Fifo => Queue::new("sluice-gate.fifo", SqsQueueSettings::fifo()),
            QueueKind::Standard => Queue::new("sluice-wakes", SqsQueueSettings::standard()),
        };
        Arc::new(Self { state: Mutex::new((queue.unwrap(), 1_000_000)), changed: Notify::new() })
    }

    /// Sends messages before polling starts, so that they form one batch.
    pub(super) fn send(&self, messages: &[(&str, &str)]) {
        let (queue, now) = &mut *self.state.lock().unwrap();
        for (group, body) in messages {
            let mut message = NewMessage::body(*body);
            if queue.settings().is_fifo() {
                message = message.group(*group).dedup(*body);
            }
            queue.send(message, *now).unwrap();
        }
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    pub(super) fn pass(&self, time: Duration) {
        self.state.lock().unwrap().1 += u64::try_from(time.as_millis()).unwrap();
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    pub(super) fn left(&self) -> Vec<String> {
        self.state.lock().unwrap().0.messages().map(|message| message.body.clone()).collect()
    }
}

#[async_trait]
impl QueuePort for TestQueues {
    async fn receive(
        &self,
        _: &str,
        max: u32,
        hidden: Option<Duration>,
    ) -> Result<Vec<Delivered>, QueueError> {
        let (queue, now) = &mut *self.state.lock().unwrap();
        let visibility_seconds = hidden.map(|hidden| u32::try_from(hidden.as_secs()).unwrap());
        let poll = Poll { max: max as usize, visibility_seconds };
        Ok(queue.receive(poll, *now, &mut Oldest).unwrap().messages)
    }

    async fn delete(&self, _: &str, receipts: &[String]) -> Result<(), QueueError> {
        let (queue, now) = &mut *self.state.lock().unwrap();
        for receipt in receipts {
            queue.delete(receipt, *now).unwrap();
        }
        self.changed.notify_one();
        Ok(())
    }

    async fn hide_for(
        &self,
        _: &str,
        receipts: &[String],
        after: Duration,
    ) -> Result<(), QueueError> {
        let (queue, now) = &mut *self.state.lock().unwrap();
        let seconds = u32::try_from(after.as_secs()).unwrap();
        receipts
            .iter()
            .for_each(|receipt| queue.change_visibility(receipt, seconds, *now).unwrap());
        self.changed.notify_one();
        Ok(())
    }

    async fn wait(&self, _: &str, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.changed.notified()).await;
    }
}

pub(super) type Reply = Result<Value, InvokeError>;

/// A function that hands each call to the test.
pub(super) struct Scripted(pub(super) mpsc::UnboundedSender<(Value, oneshot::Sender<Reply>)>);

#[async_trait]
impl Invoke for Scripted {
    async fn invoke(&self, function: &str, payload: Bytes) -> Result<Bytes, InvokeError> {
        let (reply, replied) = oneshot::channel();
        self.0.send((serde_json::from_slice(&payload).unwrap(), reply)).unwrap();
        let unanswered =
            InvokeError::Died { function: function.into(), how: "the test gave no answer".into() };
        replied.await.unwrap_or(Err(unanswered)).map(|answer| Bytes::from(answer.to_string()))
    }
}

pub(super) struct Rig {
    pub(super) queues: Arc<TestQueues>,
    pub(super) calls: mpsc::UnboundedReceiver<(Value, oneshot::Sender<Reply>)>,
    pub(super) sources: Sources,
}

/// One call: its event, and how to answer it.
pub(super) struct Call {
    pub(super) event: SqsEvent,
    pub(super) reply: oneshot::Sender<Reply>,
}

impl Call {
    pub(super) fn bodies(&self) -> Vec<&str> {
        self.event.records.iter().map(|record| record.body.as_deref().unwrap()).collect()
    }

    pub(super) fn done(self) {
        self.reply.send(Ok(json!({"batchItemFailures": []}))).unwrap();
    }

    pub(super) fn failed(self, bodies: &[&str]) {
        let named = self
            .event
            .records
            .iter()
            .filter(|record| bodies.contains(&record.body.as_deref().unwrap()));
        let items: Vec<_> =
            named.map(|record| json!({"itemIdentifier": record.message_id})).collect();
        self.reply.send(Ok(json!({"batchItemFailures": items}))).unwrap();
    }
}

pub(super) fn rig(
    kind: QueueKind,
    concurrency_max: Option<u32>,
    options: &SourceOptions,
    first: &[(&str, &str)],
) -> Rig {
    let queues = TestQueues::new(kind);
    queues.send(first);
    let arn = if kind == QueueKind::Fifo { ARN } else { STANDARD_ARN };
    let queue = MessageQueuePlan {
        name: arn.rsplit(':').next().unwrap().into(),
        arn: arn.into(),
        url: String::new(),
        kind,
        visibility_timeout_seconds: 30,
        retention_seconds: 345_600,
        redrive: None,
    };
    let source = SourcePlan {
        function: "gate".into(),
        queue_arn: arn.into(),
        batch_size: 10,
        response_format: ResponseFormat::BatchItemFailures,
        concurrency_max,
    };
    let plan =
        TemplatePlan { queues: vec![queue], sources: vec![source], ..TemplatePlan::default() };
    let (sender, calls) = mpsc::unbounded_channel();
    let (port, functions): (Arc<dyn QueuePort>, Arc<dyn Invoke>) =
        (queues.clone(), Arc::new(Scripted(sender)));
    let sources = Sources::start(&plan, &origin(), &port, &functions, options);
    Rig { queues, calls, sources }
}

pub(super) fn origin() -> Origin {
    Origin { account: "000000000000".into(), region: "us-east-1".into() }
}

impl Rig {
    pub(super) async fn call(&mut self) -> Call {
        let (event, reply) = self.calls.recv().await.unwrap();
        Call { event: serde_json::from_value(event).unwrap(), reply }
    }

    /// Waits until answers have been acted upon so far that only these messages are left.
    pub(super) async fn until_left(&self, bodies: &[&str]) {
        while self.queues.left() != bodies {
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn stop(self) -> Vec<String> {
        self.sources.stop().await;
        self.queues.left()
    }
}

pub(super) fn as_on_aws() -> SourceOptions {
    SourceOptions::default()
}
