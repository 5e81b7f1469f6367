//! Receives what a playbook's callback plugin sends over a unix socket, and keeps `job-output.json` (Z7.4).

use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

/// Bytes of one message; the plugin cuts what it sends to much less.
const MESSAGE_BYTES_MAX: u64 = 4 << 20;
/// Connections of one playbook: Ansible makes one.
const CONNECTIONS_MAX: usize = 8;
/// Results kept for `job-output.json` of one playbook.
const RESULTS_MAX: usize = 20_000;

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

/// The socket of one playbook.
pub struct Receiver {
    messages: mpsc::Receiver<Message>,
    over: Arc<Notify>,
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
        self.messages.recv().await
    }

    /// Tells that the playbook's processes are gone, so that the end is reached when what they sent was read.
    pub fn finish(&self) {
        self.over.notify_one();
    }
}

async fn listen(listener: UnixListener, sender: mpsc::Sender<Message>, over: Arc<Notify>) {
    let mut readers = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept(), if readers.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => { readers.spawn(read(stream, sender.clone())); }
                Err(_) => break,
            },
            Some(_) = readers.join_next() => {}
            () = over.notified() => break,
            () = sender.closed() => return,
        }
    }
    drop(sender);
    // The other ends are gone, so each reader comes to its end.
    while readers.join_next().await.is_some() {}
}

async fn read(stream: UnixStream, sender: mpsc::Sender<Message>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(1..) if line.last() == Some(&b'\n') => {}
            _ => return,
        }
        let message = match serde_json::from_slice(&line) {
            Ok(message) => message,
            // An untrusted playbook may write here what it likes. It concerns nobody else.
            Err(_) => continue,
        };
        if sender.send(message).await.is_err() {
            return;
        }
    }
}

/// The entry of one playbook in `job-output.json`.
#[derive(Debug, Default)]
pub struct Record {
    plays: Vec<Play>,
    stats: Value,
    results: usize,
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
    /// Takes what a message says about plays, tasks and results.
    pub fn take(&mut self, message: Message) {
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
                    play.tasks.push(Task { id, head, role, started: at.clone(), ended: at, hosts: Map::new() });
                }
            }
            Message::Result { task, host, result, at } if self.results < RESULTS_MAX => {
                let Some(play) = self.plays.last_mut() else { return };
                play.ended.clone_from(&at);
                if let Some(found) = play.tasks.iter_mut().rev().find(|known| known.id == task) {
                    found.ended = at;
                    found.hosts.insert(host, result);
                    self.results += 1;
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
