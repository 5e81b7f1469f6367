//! The operations of SQS in JSON.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sluice_memory::sqs::{Refusal, SqsQueueSettings, limits};
use tokio::time::Instant;

use super::super::auth::Caller;
use super::super::faults::InjectedError;
use super::super::meter::Purpose;
use super::super::wire::{Problem, Usage};
use super::problem::{
    NO_QUEUE, batch_problem, denied, injected, missing, mistake, refused, unknown_operation,
};
use super::request::{ReceiveParameters, Request, message, needed, number, sequence};
use super::{Sqs, attributes, digest};

/// What SQS bills as one request, in bytes.
const BILLED_BYTES: usize = 64 * 1024;

/// Returns how many requests SQS bills for one with this many bytes: one for each started 64 KiB,
/// at least one.
pub(crate) fn billed_requests(bytes: usize) -> u64 {
    bytes.div_ceil(BILLED_BYTES).max(1) as u64
}

impl Sqs {
    /// Answers one call of a verified caller, with what it used; permissions are checked here. A
    /// receive waits for messages as long as it or the queue says. A receive that succeeds is
    /// billed by its response, and counts as a poll if it has no messages. All other calls are
    /// billed by the request.
    pub(in super::super) async fn call(
        self: &Arc<Self>,
        operation: &str,
        body: &[u8],
        caller: &Caller,
    ) -> (Result<Value, Problem>, Usage) {
        let mut usage = Usage { billed_requests: billed_requests(body.len()), ..Usage::default() };
        let request = match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => Request { members },
            _ => {
                return (
                    Err(Problem::new(
                        400,
                        "com.amazon.coral.service#SerializationException",
                        "not JSON",
                    )),
                    usage,
                );
            }
        };
        usage.fifo = request.queue_name().is_ok_and(|name| name.ends_with(".fifo"));
        if operation == "ReceiveMessage" {
            let answer = self.receive_message(&request, caller).await;
            if let Ok(answer) = &answer {
                usage.billed_requests = billed_requests(answer.to_string().len());
                let messages = answer.get("Messages").and_then(Value::as_array);
                if messages.is_none_or(Vec::is_empty) {
                    usage.purpose = Purpose::Poll;
                }
            }
            return (answer, usage);
        }
        let (sqs, operation, caller) = (Arc::clone(self), operation.to_owned(), caller.clone());
        let answer =
            tokio::task::spawn_blocking(move || sqs.answer(&operation, &request, &caller)).await;
        (answer.unwrap_or_else(|_| Err(injected(&InjectedError::Internal))), usage)
    }

    /// Answers one operation other than `ReceiveMessage`, which is unknown here, after checking the
    /// caller's permission. An error for an unknown operation, a denial, or what SQS refuses.
    fn answer(
        &self,
        operation: &str,
        request: &Request,
        caller: &Caller,
    ) -> Result<Value, Problem> {
        match operation {
            "CreateQueue" => self.create(request, caller),
            "ListQueues" => self.list(request, caller),
            "GetQueueUrl" => self.url(request, caller),
            _ => {
                let name = request.queue_name()?;
                let action = action(operation).ok_or_else(|| unknown_operation(operation))?;
                self.allowed(caller, action, name)?;
                self.on_queue(operation, request, name)
            }
        }
    }

    /// Runs an operation on a queue; an error for an unknown operation or queue. The caller has
    /// checked the permission.
    fn on_queue(&self, operation: &str, request: &Request, name: &str) -> Result<Value, Problem> {
        match operation {
            "GetQueueAttributes" => self.attributes(request, name),
            "SetQueueAttributes" => {
                let current = self.lock().entry(name)?.queue.settings().clone();
                let changed =
                    attributes::apply(current, &request.texts("Attributes")).map_err(mistake)?;
                self.set_settings(name, changed)?;
                Ok(json!({}))
            }
            "SendMessage" => {
                let sent = self.send_one(name, &request.members)?;
                Ok(Value::Object(sent))
            }
            "SendMessageBatch" => {
                let bytes: usize = request
                    .entries()?
                    .iter()
                    .map(|entry| message(entry).map_or(0, |m| m.bytes()))
                    .sum();
                if bytes > limits::MESSAGE_BYTES_MAX {
                    let text = format!(
                        "Batch requests cannot be longer than 1048576 bytes. You have sent {bytes} bytes."
                    );
                    return Err(batch_problem("BatchRequestTooLong", text));
                }
                self.batch(request, |entry| self.send_one(name, entry))
            }
            "DeleteMessage" => {
                self.delete(name, request.needed("ReceiptHandle")?)?;
                Ok(json!({}))
            }
            "DeleteMessageBatch" => self.batch(request, |entry| {
                self.delete(name, needed(entry, "ReceiptHandle")?)?;
                Ok(Map::new())
            }),
            "ChangeMessageVisibility" => {
                self.change_one(name, &request.members)?;
                Ok(json!({}))
            }
            "ChangeMessageVisibilityBatch" => {
                self.batch(request, |entry| self.change_one(name, entry))
            }
            "PurgeQueue" => {
                self.purge(name)?;
                Ok(json!({}))
            }
            "DeleteQueue" => {
                self.delete_queue(name)?;
                Ok(json!({}))
            }
            other => Err(unknown_operation(other)),
        }
    }

    /// Creates a queue and answers with its URL. Attributes that the request leaves out have SQS's
    /// defaults. An existing queue is no error if it has exactly these attributes. An error if the
    /// caller may not, for a queue with other attributes, or for invalid ones.
    fn create(&self, request: &Request, caller: &Caller) -> Result<Value, Problem> {
        let name = request.needed("QueueName")?;
        self.allowed(caller, "sqs:CreateQueue", name)?;
        let settings =
            attributes::apply(SqsQueueSettings::standard(), &request.texts("Attributes"))
                .map_err(mistake)?;
        self.create_queue(name, settings)?;
        Ok(json!({"QueueUrl": self.queue_url(name)}))
    }

    /// Answers with a page of URLs of queues whose names have the requested prefix, by name; at
    /// most `MaxResults`, and never more than 1000. `NextToken` is there only if there are more. An
    /// error if the caller may not.
    fn list(&self, request: &Request, caller: &Caller) -> Result<Value, Problem> {
        caller.check("sqs:ListQueues", "*").map_err(denied)?;
        let prefix = request.text("QueueNamePrefix").unwrap_or_default();
        let max = request.number("MaxResults")?.unwrap_or(1000).clamp(1, 1000) as usize;
        let after = request.text("NextToken").unwrap_or_default();
        let mut names: Vec<String> = self
            .queue_names()
            .into_iter()
            .filter(|n| n.starts_with(prefix) && n.as_str() > after)
            .collect();
        let more = names.len() > max;
        names.truncate(max);
        let mut answer =
            json!({"QueueUrls": names.iter().map(|name| self.queue_url(name)).collect::<Vec<_>>()});
        if more {
            answer["NextToken"] = json!(names.last());
        }
        Ok(answer)
    }

    /// Answers with the URL of a queue; an error if it does not exist or the caller may not.
    fn url(&self, request: &Request, caller: &Caller) -> Result<Value, Problem> {
        let name = request.needed("QueueName")?;
        self.allowed(caller, "sqs:GetQueueUrl", name)?;
        self.lock().entry(name)?;
        Ok(json!({"QueueUrl": self.queue_url(name)}))
    }

    /// Answers with those of the queue's attributes that the request names (`All` for every one);
    /// none if it names none. An error if the queue does not exist. The caller has checked the
    /// permission.
    fn attributes(&self, request: &Request, name: &str) -> Result<Value, Problem> {
        let counts = self.counts(name)?;
        let (mut all, created_ms) = {
            let state = &mut *self.lock();
            let entry = state.entry(name)?;
            (attributes::describe(entry.queue.settings()), entry.created_ms)
        };
        all.insert("QueueArn", self.account.queue_arn(name));
        all.insert("ApproximateNumberOfMessages", counts.visible.to_string());
        all.insert("ApproximateNumberOfMessagesNotVisible", counts.in_flight.to_string());
        all.insert("ApproximateNumberOfMessagesDelayed", counts.delayed.to_string());
        all.insert("CreatedTimestamp", (created_ms / 1000).to_string());
        all.insert("LastModifiedTimestamp", (created_ms / 1000).to_string());
        Ok(json!({"Attributes": attributes::chosen(all, &request.list("AttributeNames"))}))
    }

    /// Sends the message of a request or batch entry and returns its id and digests, on a FIFO
    /// queue with its sequence number. The caller has checked the permission.
    fn send_one(
        &self,
        name: &str,
        entry: &Map<String, Value>,
    ) -> Result<Map<String, Value>, Problem> {
        let message = message(entry)?;
        let mut answer = Map::new();
        answer.insert("MD5OfMessageBody".to_owned(), json!(digest::body(&message.body)));
        if let Some(sum) = digest::attributes(&message.attributes) {
            answer.insert("MD5OfMessageAttributes".to_owned(), json!(sum));
        }
        let sent = self.send(name, message)?;
        answer.insert("MessageId".to_owned(), json!(sent.id));
        if name.ends_with(".fifo") {
            answer.insert("SequenceNumber".to_owned(), json!(sequence(sent.sequence)));
        }
        Ok(answer)
    }

    /// Changes how long the message of a request or batch entry stays invisible, from now. Returns
    /// an empty answer; an error without the time or if the message is not in flight.
    fn change_one(
        &self,
        name: &str,
        entry: &Map<String, Value>,
    ) -> Result<Map<String, Value>, Problem> {
        let seconds =
            number(entry, "VisibilityTimeout")?.ok_or_else(|| missing("VisibilityTimeout"))?;
        self.change_visibility(name, needed(entry, "ReceiptHandle")?, seconds)?;
        Ok(Map::new())
    }

    /// Runs `act` for each entry of a batch and answers with the entries that succeeded and failed.
    /// The members that `act` returns become part of the entry's answer. A failed entry does not
    /// stop the others. A missing queue, or an invalid batch, fails the whole request.
    fn batch(
        &self,
        request: &Request,
        act: impl Fn(&Map<String, Value>) -> Result<Map<String, Value>, Problem>,
    ) -> Result<Value, Problem> {
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for entry in request.entries()? {
            let id = entry.get("Id").cloned().unwrap_or_default();
            match act(entry) {
                Ok(mut answer) => {
                    answer.insert("Id".to_owned(), id);
                    successful.push(Value::Object(answer));
                }
                Err(problem) if problem.query_code.as_deref() == Some(NO_QUEUE) => {
                    return Err(problem);
                }
                Err(problem) => {
                    let code = problem.kind.rsplit('#').next().unwrap_or_default();
                    let sender = problem.status < 500;
                    failed.push(json!({"Id": id, "SenderFault": sender, "Code": code, "Message": problem.message}));
                }
            }
        }
        Ok(json!({"Successful": successful, "Failed": failed}))
    }

    /// Receives messages after checking the caller's permission, and waits for them as long as the
    /// request says, or else the queue's setting; a wait over 20 seconds is an error. An answer
    /// without messages has no member `Messages`. Messages that were received too often are moved
    /// to the dead letter queue meanwhile.
    async fn receive_message(
        self: &Arc<Self>,
        request: &Request,
        caller: &Caller,
    ) -> Result<Value, Problem> {
        let name = request.queue_name()?.to_owned();
        self.allowed(caller, "sqs:ReceiveMessage", &name)?;
        let max = request.number("MaxNumberOfMessages")?.unwrap_or(1) as usize;
        let visibility_seconds = request.number("VisibilityTimeout")?;
        let own_wait = self.lock().entry(&name)?.queue.settings().wait_seconds;
        let wait_seconds = request.number("WaitTimeSeconds")?.unwrap_or(own_wait);
        if wait_seconds > limits::WAIT_SECONDS_MAX {
            let reason = "Must be >= 0 and <= 20, if provided.".to_owned();
            let value = wait_seconds.to_string();
            return Err(refused(&Refusal::InvalidParameter {
                parameter: "WaitTimeSeconds",
                value,
                reason,
            }));
        }
        let deadline = Instant::now() + Duration::from_secs(wait_seconds.into());
        loop {
            let (sqs, queue) = (Arc::clone(self), name.clone());
            let received =
                tokio::task::spawn_blocking(move || sqs.receive(&queue, max, visibility_seconds))
                    .await;
            let received = received.map_err(|_| injected(&InjectedError::Internal))??;
            let left = deadline.saturating_duration_since(Instant::now());
            if !received.is_empty() || left.is_zero() {
                let parameters = ReceiveParameters {
                    system: [
                        request.list("AttributeNames"),
                        request.list("MessageSystemAttributeNames"),
                    ]
                    .concat(),
                    own: request.list("MessageAttributeNames"),
                };
                let messages: Vec<Value> = received
                    .iter()
                    .map(|d| parameters.describe(d, &self.account.id, &name))
                    .collect();
                return Ok(if messages.is_empty() {
                    json!({})
                } else {
                    json!({"Messages": messages})
                });
            }
            self.wait_visible(&name, left).await?;
        }
    }

    /// Returns an error unless the caller's policies allow an action, such as `sqs:SendMessage`, on
    /// a queue, which need not exist.
    fn allowed(&self, caller: &Caller, action: &str, name: &str) -> Result<(), Problem> {
        caller.check(action, &self.account.queue_arn(name)).map_err(denied)
    }
}

/// Returns the action that permits an operation on an existing queue; batches need that of the
/// single operation. `None` for any other operation, also for `ReceiveMessage`, which is checked
/// apart.
fn action(operation: &str) -> Option<&'static str> {
    Some(match operation {
        "SendMessage" | "SendMessageBatch" => "sqs:SendMessage",
        "DeleteMessage" | "DeleteMessageBatch" => "sqs:DeleteMessage",
        "ChangeMessageVisibility" | "ChangeMessageVisibilityBatch" => "sqs:ChangeMessageVisibility",
        "GetQueueAttributes" => "sqs:GetQueueAttributes",
        "SetQueueAttributes" => "sqs:SetQueueAttributes",
        "PurgeQueue" => "sqs:PurgeQueue",
        "DeleteQueue" => "sqs:DeleteQueue",
        _ => return None,
    })
}
