//! Receives what a playbook's callback plugin sends over a unix socket, and keeps `job-output.json`
//! (Z7.4).

use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

/// Bytes of one message; the plugin cuts what it sends to much less.
const MESSAGE_BYTES_MAX: u64 = 4 << 20;
/// Connections of one playbook: Ansible makes one.
const CONNECTIONS_MAX: usize = 8;
/// How long what a playbook sent is read after its processes are gone.
pub const LINGER: Duration = Duration::from_secs(5);
/// Bytes of messages that were read and not yet taken.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Bytes in memory that one value takes beside its text.
const VALUE_BYTES: usize = 80;
/// What is kept for `job-output.json` of one build, in bytes of memory.
pub const RECORD_BYTES_MAX: usize = 128 << 20;

/// What a playbook says.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Message {
    /// Ansible has read its files and begins.
    Started,
    /// A line for the log.
    Log {
        /// The line.
        text: String,
    },
    /// A play begins.
    Play {
        /// Its id within this run.
        id: String,
        /// Its name.
        name: String,
        /// When, in ISO 8601.
        at: String,
    },
    /// A task begins.
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
    /// A host was lost.
    Unreachable {
        /// The host.
        host: String,
    },
    /// A task failed, and nothing rescues it.
    Failing,
    /// The playbook is over.
    Stats {
        /// Counts per host.
        stats: Value,
    },
}

impl Message {
    /// Returns how much memory it takes, or a little more.
    fn bytes(&self) -> usize {
        // Kept as maps with names of their own.
        const ENTRY: usize = 8 * VALUE_BYTES;
        match self {
            Self::Play { id, name, at } => ENTRY + id.len() + name.len() + 2 * at.len(),
            Self::Task { id, name, role, at } => {
                ENTRY + 2 * id.len() + name.len() + 2 * at.len() + role.as_ref().map_or(0, bytes)
            }
            Self::Result { host, result, at, .. } => {
                VALUE_BYTES + host.len() + at.len() + bytes(result)
            }
            Self::Stats { stats } => bytes(stats),
            Self::Started | Self::Log { .. } | Self::Unreachable { .. } | Self::Failing => 0,
        }
    }
}

fn bytes(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(bytes).sum(),
            Value::Object(entries) => {
                entries.iter().map(|(key, item)| VALUE_BYTES + key.len() + bytes(item)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

/// The socket of one playbook.
pub struct Receiver {
    messages: mpsc::Receiver<Sent>,
    over: Arc<Notify>,
}

/// A message with its share of the memory that may wait.
struct Sent {
    message: Message,
    _waiting: OwnedSemaphorePermit,
}

impl Receiver {
    /// Listens at `socket`.
    pub fn open(socket: &Path) -> std::io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        // Small: a playbook that says more than we write has to wait.
        let (sender, messages) = mpsc::channel(256);
        let over = Arc::new(Notify::new());
        tokio::spawn(listen(listener, sender, Arc::clone(&over)));
        Ok(Self { messages, over })
    }

    /// Returns the next message; `None` once the playbook is over and everything was read.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await.map(|sent| sent.message)
    }

    /// Tells that the playbook's processes are gone, so that the end is reached when what they sent
    /// was read.
    pub fn finish(&self) {
        self.over.notify_one();
    }
}

async fn listen(listener: UnixListener, sender: mpsc::Sender<Sent>, over: Arc<Notify>) {
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
            () = over.notified() => break,
            () = sender.closed() => return,
        }
    }
    drop(sender);
    // The other ends are gone, so each reader comes to its end. Unless somebody handed one on, to a
    // process that stands in another sandbox: the connection that playbooks share.
    let all_read = async { while readers.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LINGER, all_read).await;
}

async fn read(stream: UnixStream, sender: mpsc::Sender<Sent>, waiting: Arc<Semaphore>) {
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
            // An untrusted playbook may write here what it likes. It concerns nobody else.
            Err(_) => continue,
        };
        if sender.send(Sent { message, _waiting: permit }).await.is_err() {
            return;
        }
    }
}

/// The entry of one playbook in `job-output.json`.
#[derive(Debug)]
pub struct Record {
    plays: Vec<Play>,
    stats: Value,
    bytes_left: usize,
}

#[derive(Debug)]
struct Play {
    head: Map<String, Value>,
    started: String,
    ended: String,
    tasks: Vec<Task>,
}

#[derive(Debug)]
struct Task {
    id: String,
    head: Value,
    role: Option<Value>,
    started: String,
    ended: String,
    hosts: Map<String, Value>,
}

impl Record {
    /// Makes an empty entry that may take `bytes_max` bytes of memory.
    pub fn new(bytes_max: usize) -> Self {
        Self { plays: Vec::new(), stats: Value::Null, bytes_left: bytes_max }
    }

    /// Returns how many bytes it did not take.
    pub fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// Takes what a message says about plays, tasks and results. What there is no room for is left
    /// out.
    pub fn take(&mut self, message: Message) {
        let Some(left) = self.bytes_left.checked_sub(message.bytes()) else { return };
        self.bytes_left = left;
        match message {
            Message::Play { id, name, at } => {
                let mut head = Map::new();
                head.insert("name".to_owned(), json!(name));
                head.insert("id".to_owned(), json!(id));
                self.plays.push(Play { head, started: at.clone(), ended: at, tasks: Vec::new() });
            }
            Message::Task { id, name, role, at } => {
                if let Some(play) = self.plays.last_mut() {
                    let head = json!({ "name": name, "id": id });
                    play.tasks.push(Task {
                        id,
                        head,
                        role,
                        started: at.clone(),
                        ended: at,
                        hosts: Map::new(),
                    });
                }
            }
            Message::Result { task, host, result, at } => {
                let Some(play) = self.plays.last_mut() else { return };
                play.ended.clone_from(&at);
                if let Some(found) = play.tasks.iter_mut().rev().find(|known| known.id == task) {
                    found.ended = at;
                    found.hosts.insert(host, result);
                }
            }
            Message::Stats { stats } => self.stats = stats,
            _ => {}
        }
    }

    /// Returns the entry, with `head` (playbook, phase, index …) first.
    pub fn finish(self, head: Map<String, Value>) -> Value {
        let plays: Vec<Value> = self
            .plays
            .into_iter()
            .map(|mut play| {
                play.head.insert("duration".to_owned(), json!({ "start": play.started, "end": play.ended }));
                json!({ "play": play.head, "tasks": play.tasks.into_iter().map(Task::finish).collect::<Vec<_>>() })
            })
            .collect();
        let mut entry = head;
        entry.insert("plays".to_owned(), Value::Array(plays));
        entry.insert("stats".to_owned(), self.stats);
        Value::Object(entry)
    }
}

impl Task {
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
