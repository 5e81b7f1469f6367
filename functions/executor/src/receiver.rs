//! Receives messages of a playbook's callback plugin over a Unix socket, and builds the playbook's
//! entry in `job-output.json` (Z7.4).

use crate::playbook_failure::TaskFailure;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

/// The maximum size of one message in bytes; the plugin limits itself to much less.
const MESSAGE_BYTES_MAX: u64 = 4 << 20;
/// The maximum number of connections of one playbook; Ansible makes one.
const CONNECTIONS_MAX: usize = 8;
/// How long remaining messages are read after a playbook's processes have ended.
pub const LINGER: Duration = Duration::from_secs(5);
/// The maximum total size of messages that are queued, in bytes.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// The estimated memory of one JSON value in addition to its text, in bytes.
const VALUE_BYTES: usize = 80;
/// The memory limit for the `job-output.json` of one build, in bytes.
pub const RECORD_BYTES_MAX: usize = 128 << 20;

/// A message of the callback plugin.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CallbackMessage {
    /// Ansible has read its files and starts.
    Started,
    /// A line for the log.
    Log {
        /// The line.
        text: String,
    },
    /// A play starts.
    Play {
        /// Its id within this run.
        id: String,
        /// Its name.
        name: String,
        /// When, in ISO 8601.
        at: String,
    },
    /// A task starts.
    Task {
        /// Its id within this run.
        id: String,
        /// Its name.
        name: String,
        /// The role it comes from.
        role: Option<Value>,
        /// When, in ISO 8601.
        at: String,
    },
    /// A task ended on a host.
    Result {
        /// The task's id.
        task: String,
        /// The host.
        host: String,
        /// Ansible's result.
        result: Value,
        /// When, in ISO 8601.
        at: String,
    },
    /// A host became unreachable.
    Unreachable {
        /// The host.
        host: String,
    },
    /// A task failed and no rescue block handles it.
    Failing,
    /// A task failed on a host, or lost it.
    Failed(TaskFailure),
    /// The playbook has ended.
    Stats {
        /// Counts per host.
        stats: Value,
    },
}

impl CallbackMessage {
    /// Returns an upper estimate of the memory in bytes that the message takes in the entry; 0 for
    /// messages that are not part of it.
    fn memory(&self) -> usize {
        // Plays and tasks become maps with several keys.
        const ENTRY: usize = 8 * VALUE_BYTES;
        match self {
            Self::Play { id, name, at } => ENTRY + id.len() + name.len() + 2 * at.len(),
            Self::Task { id, name, role, at } => {
                ENTRY
                    + 2 * id.len()
                    + name.len()
                    + 2 * at.len()
                    + role.as_ref().map_or(0, memory_of)
            }
            Self::Result { host, result, at, .. } => {
                VALUE_BYTES + host.len() + at.len() + memory_of(result)
            }
            Self::Stats { stats } => memory_of(stats),
            Self::Started
            | Self::Log { .. }
            | Self::Unreachable { .. }
            | Self::Failing
            | Self::Failed(_) => 0,
        }
    }
}

/// Returns an upper estimate of the memory in bytes that a JSON value takes.
fn memory_of(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(memory_of).sum(),
            Value::Object(entries) => {
                entries.iter().map(|(key, item)| VALUE_BYTES + key.len() + memory_of(item)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

/// The receiving end of one playbook's socket.
pub struct Receiver {
    /// The queue of received messages.
    messages: mpsc::Receiver<QueuedMessage>,
    /// Signals that the playbook's processes have ended.
    ended: Arc<Notify>,
}

/// A queued message with its share of the queue's memory.
struct QueuedMessage {
    /// The message.
    message: CallbackMessage,
    /// Frees the memory share when dropped.
    _waiting: OwnedSemaphorePermit,
}

impl Receiver {
    /// Creates the socket at the path `socket` and receives messages from it in the background. An
    /// error if the path exists.
    pub fn open(socket: &Path) -> std::io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        // A small queue, so that a playbook that sends faster than the log is written waits.
        let (sender, messages) = mpsc::channel(256);
        let ended = Arc::new(Notify::new());
        tokio::spawn(listen(listener, sender, Arc::clone(&ended)));
        Ok(Self { messages, ended })
    }

    /// Returns the next message. `None` after [`Self::finish`], once the remaining messages were
    /// read or [`LINGER`] has passed, and if the socket fails.
    pub async fn next(&mut self) -> Option<CallbackMessage> {
        self.messages.recv().await.map(|sent| sent.message)
    }

    /// Signals that the playbook's processes have ended. [`Self::next`] returns `None` after the
    /// remaining messages.
    pub fn finish(&self) {
        self.ended.notify_one();
    }
}

/// Accepts connections of the callback plugin, at most [`CONNECTIONS_MAX`] at once, and reads their
/// messages. Once the socket fails or `ended` is notified, it accepts no more, and ends when the
/// rest is read or [`LINGER`] has passed. Ends at once when the receiver is dropped.
async fn listen(listener: UnixListener, sender: mpsc::Sender<QueuedMessage>, ended: Arc<Notify>) {
    let mut readers = JoinSet::new();
    let waiting = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept(), if readers.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => { readers.spawn(read(stream, sender.clone(), Arc::clone(&waiting))); }
                Err(_) => break,
            },
            Some(_) = readers.join_next() => {}
            () = ended.notified() => break,
            () = sender.closed() => return,
        }
    }
    drop(sender);
    // The senders have ended, so each reader ends. But a playbook may have passed its socket to a
    // process in another sandbox, the shared SSH connection; the timeout covers that.
    let all_read = async { while readers.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LINGER, all_read).await;
}

/// Reads messages, one JSON text a line, from one connection and queues them. Ends when the
/// connection or the receiver ends or a message has more than [`MESSAGE_BYTES_MAX`] bytes; ignores
/// invalid messages. Waits while too many bytes are queued.
async fn read(stream: UnixStream, sender: mpsc::Sender<QueuedMessage>, waiting: Arc<Semaphore>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(1..) if line.last() == Some(&b'\n') => {}
            _ => return,
        }
        let bytes = u32::try_from(line.len()).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&waiting).acquire_many_owned(bytes).await else { return };
        let message = match serde_json::from_slice(&line) {
            Ok(message) => message,
            // An untrusted playbook may send anything. Invalid messages are ignored.
            Err(_) => continue,
        };
        if sender.send(QueuedMessage { message, _waiting: permit }).await.is_err() {
            return;
        }
    }
}

/// The entry of one playbook in `job-output.json`.
#[derive(Debug)]
pub struct PlaybookRecord {
    /// The plays, in order.
    plays: Vec<PlayEntry>,
    /// The final counts per host.
    stats: Value,
    /// The memory that is left, in bytes.
    bytes_left: usize,
}

#[derive(Debug)]
struct PlayEntry {
    /// What Ansible reported about the play.
    head: Map<String, Value>,
    /// When the play started.
    started: String,
    /// When its last task ended.
    ended: String,
    /// Its tasks in order.
    tasks: Vec<TaskEntry>,
}

#[derive(Debug)]
struct TaskEntry {
    /// Ansible's id of the task.
    id: String,
    /// What Ansible reported about the task.
    head: Value,
    /// The role that contains the task, if any.
    role: Option<Value>,
    /// When the task started.
    started: String,
    /// When its last result came.
    ended: String,
    /// The results by host.
    hosts: Map<String, Value>,
}

impl PlaybookRecord {
    /// Creates an empty entry with a memory limit of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { plays: Vec::new(), stats: Value::Null, bytes_left: bytes_max }
    }

    /// Returns the part of the memory limit that is unused, in bytes.
    pub fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// Adds a message about a play, task, result or final counts to the entry; ignores other
    /// messages. A task belongs to the last play; without a play it is ignored. A result belongs to
    /// the task of that id in the last play; without such a task it only moves the end of the play.
    /// Drops a message that exceeds the memory limit.
    pub fn add(&mut self, message: CallbackMessage) {
        let Some(left) = self.bytes_left.checked_sub(message.memory()) else { return };
        self.bytes_left = left;
        match message {
            CallbackMessage::Play { id, name, at } => {
                let mut head = Map::new();
                head.insert("name".to_owned(), json!(name));
                head.insert("id".to_owned(), json!(id));
                self.plays.push(PlayEntry {
                    head,
                    started: at.clone(),
                    ended: at,
                    tasks: Vec::new(),
                });
            }
            CallbackMessage::Task { id, name, role, at } => {
                if let Some(play) = self.plays.last_mut() {
                    let head = json!({ "name": name, "id": id });
                    play.tasks.push(TaskEntry {
                        id,
                        head,
                        role,
                        started: at.clone(),
                        ended: at,
                        hosts: Map::new(),
                    });
                }
            }
            CallbackMessage::Result { task, host, result, at } => {
                let Some(play) = self.plays.last_mut() else { return };
                play.ended.clone_from(&at);
                if let Some(found) = play.tasks.iter_mut().rev().find(|entry| entry.id == task) {
                    found.ended = at;
                    found.hosts.insert(host, result);
                }
            }
            CallbackMessage::Stats { stats } => self.stats = stats,
            _ => {}
        }
    }

    /// Returns the entry of a playbook as JSON: the keys of `head` (playbook, phase, index …), then
    /// `plays` with their tasks and results, and `stats`, which is null if Ansible sent none.
    pub fn finish(self, head: Map<String, Value>) -> Map<String, Value> {
        let plays: Vec<Value> = self
            .plays
            .into_iter()
            .map(|mut play| {
                play.head.insert("duration".to_owned(), json!({ "start": play.started, "end": play.ended }));
                json!({ "play": play.head, "tasks": play.tasks.into_iter().map(TaskEntry::finish).collect::<Vec<_>>() })
            })
            .collect();
        let mut entry = head;
        entry.insert("plays".to_owned(), Value::Array(plays));
        entry.insert("stats".to_owned(), self.stats);
        entry
    }
}

impl TaskEntry {
    /// Returns the task as JSON, with its results by host.
    fn finish(self) -> Value {
        let mut head = self.head;
        head["duration"] = json!({ "start": self.started, "end": self.ended });
        let mut entry = json!({ "task": head, "hosts": self.hosts });
        if let Some(role) = self.role {
            entry["role"] = role;
        }
        entry
    }
}
