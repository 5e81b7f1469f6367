//! The queues as rows in SQLite: settings, messages and remembered deduplication ids, each as JSON.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_memory::sqs::{Changes, Dedup, Message, Queue, SqsQueueSettings};

use super::super::store::{self, Durability, StoreError};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, settings TEXT NOT NULL, created_ms INTEGER NOT NULL,
    next_sequence INTEGER NOT NULL DEFAULT 1) STRICT;
CREATE TABLE IF NOT EXISTS messages (queue TEXT NOT NULL, sequence INTEGER NOT NULL, message TEXT NOT NULL,
    PRIMARY KEY (queue, sequence)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dedups (queue TEXT NOT NULL, key TEXT NOT NULL, dedup TEXT NOT NULL,
    PRIMARY KEY (queue, key)) STRICT, WITHOUT ROWID;
";

pub(super) struct Rows {
    connection: Connection,
    path: PathBuf,
}

impl Rows {
    /// Opens or creates the database of queues in `directory`, which is created if it is missing.
    pub fn open(directory: &Path, durability: Durability) -> Result<Self, StoreError> {
        let path = directory.join("sqs.sqlite");
        let connection = store::open(&path, SCHEMA, durability)?;
        Ok(Self { connection, path })
    }

    /// Returns every stored queue with its messages, by name, and when it was created in
    /// milliseconds since the epoch. An error if one cannot be decoded.
    pub fn load(&mut self) -> Result<Vec<(Queue, u64)>, StoreError> {
        let names: Vec<(String, u64)> = self
            .connection
            .prepare("SELECT name, created_ms FROM queues ORDER BY name")
            .and_then(|mut statement| {
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })
            .map_err(self.failed("list the queues"))?;
        let mut queues = Vec::with_capacity(names.len());
        for (name, created_ms) in names {
            if let Some(queue) = self.load_queue(&name)? {
                queues.push((queue, created_ms));
            }
        }
        Ok(queues)
    }

    /// Reads a queue with its messages and deduplication ids as it was stored last; `None` if there
    /// is none. An error if it cannot be decoded or violates the rules of SQS.
    pub fn load_queue(&self, name: &str) -> Result<Option<Queue>, StoreError> {
        let head: Option<(String, u64)> = self
            .connection
            .query_row(
                "SELECT settings, next_sequence FROM queues WHERE name = ?1",
                [name],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()
            .map_err(self.failed("read a queue"))?;
        let Some((settings, next_sequence)) = head else {
            return Ok(None);
        };
        let settings: SqsQueueSettings = self.decode(name, &settings)?;
        let messages: Vec<Message> =
            self.column("SELECT message FROM messages WHERE queue = ?1 ORDER BY sequence", name)?;
        let dedups: Vec<Dedup> = self.column("SELECT dedup FROM dedups WHERE queue = ?1", name)?;
        let queue = Queue::restore(name, settings, next_sequence, messages, dedups)
            .map_err(|refusal| self.corrupt(name, refusal.to_string()))?;
        Ok(Some(queue))
    }

    /// Stores the settings of a queue, and of a new one also the time when it was created, which
    /// later calls do not change.
    pub fn write_queue(
        &self,
        name: &str,
        settings: &SqsQueueSettings,
        created_ms: u64,
    ) -> Result<(), StoreError> {
        let settings = self.encode(name, settings)?;
        self.connection
            .execute(
                "INSERT INTO queues (name, settings, created_ms) VALUES (?1, ?2, ?3)
                 ON CONFLICT (name) DO UPDATE SET settings = excluded.settings",
                params![name, settings, created_ms],
            )
            .map_err(self.failed("write a queue"))?;
        Ok(())
    }

    /// Deletes a queue with its messages and deduplication ids in one commit; no error if there is
    /// none.
    pub fn delete_queue(&mut self, name: &str) -> Result<(), StoreError> {
        let path = self.path.clone();
        let failed = || StoreError::sqlite("delete a queue", &path);
        let transaction = self.connection.transaction().map_err(failed())?;
        for statement in [
            "DELETE FROM messages WHERE queue = ?1",
            "DELETE FROM dedups WHERE queue = ?1",
            "DELETE FROM queues WHERE name = ?1",
        ] {
            transaction.execute(statement, [name]).map_err(failed())?;
        }
        transaction.commit().map_err(failed())
    }

    /// Stores the changes of several queues, by name, in one commit: messages, deduplication ids
    /// and the next sequence number. The queues must have been stored before. Writes nothing if
    /// nothing changed.
    pub fn write_changes(&mut self, changes: &[(&str, Changes)]) -> Result<(), StoreError> {
        if changes.iter().all(|(_, changes)| changes.is_empty()) {
            return Ok(());
        }
        let path = self.path.clone();
        let failed = |error| StoreError::sqlite("write messages", &path)(error);
        let encoded = |error: serde_json::Error| {
            failed(rusqlite::Error::ToSqlConversionFailure(error.into()))
        };
        let transaction = self.connection.transaction().map_err(failed)?;
        for (queue, changes) in changes {
            let mut put = transaction
                .prepare_cached("INSERT OR REPLACE INTO messages (queue, sequence, message) VALUES (?1, ?2, ?3)")
                .map_err(failed)?;
            for message in &changes.written {
                let json = serde_json::to_string(message).map_err(encoded)?;
                put.execute(params![queue, message.sequence, json]).map_err(failed)?;
            }
            let mut remove = transaction
                .prepare_cached("DELETE FROM messages WHERE queue = ?1 AND sequence = ?2")
                .map_err(failed)?;
            for sequence in &changes.removed {
                remove.execute(params![queue, sequence]).map_err(failed)?;
            }
            let mut remember = transaction
                .prepare_cached(
                    "INSERT OR REPLACE INTO dedups (queue, key, dedup) VALUES (?1, ?2, ?3)",
                )
                .map_err(failed)?;
            for dedup in &changes.remembered {
                let json = serde_json::to_string(dedup).map_err(encoded)?;
                remember.execute(params![queue, dedup.key, json]).map_err(failed)?;
            }
            let mut forget = transaction
                .prepare_cached("DELETE FROM dedups WHERE queue = ?1 AND key = ?2")
                .map_err(failed)?;
            for key in &changes.forgotten {
                forget.execute(params![queue, key]).map_err(failed)?;
            }
            transaction
                .prepare_cached("UPDATE queues SET next_sequence = ?2 WHERE name = ?1")
                .and_then(|mut statement| statement.execute(params![queue, changes.next_sequence]))
                .map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    /// Reads the one column that `query` selects for the queue `name`, and decodes each value.
    fn column<T: DeserializeOwned>(&self, query: &str, name: &str) -> Result<Vec<T>, StoreError> {
        let texts: Vec<String> = self
            .connection
            .prepare(query)
            .and_then(|mut statement| statement.query_map([name], |row| row.get(0))?.collect())
            .map_err(self.failed("read messages"))?;
        texts.iter().map(|text| self.decode(name, text)).collect()
    }

    /// Decodes a value that is stored for the queue `name`. An error says that the queue is
    /// damaged.
    fn decode<T: DeserializeOwned>(&self, name: &str, text: &str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|error| self.corrupt(name, error.to_string()))
    }

    /// Encodes a value of the queue `name` for storage.
    fn encode<T: Serialize>(&self, name: &str, value: &T) -> Result<String, StoreError> {
        serde_json::to_string(value).map_err(|error| self.corrupt(name, error.to_string()))
    }

    /// Returns the error for a queue whose stored data is damaged.
    fn corrupt(&self, name: &str, why: String) -> StoreError {
        StoreError::Corrupt { what: format!("the queue {name}"), path: self.path.clone(), why }
    }

    /// Returns a function that adds the attempt and the path of the database to an error.
    fn failed(&self, attempt: &'static str) -> impl FnOnce(rusqlite::Error) -> StoreError {
        StoreError::sqlite(attempt, &self.path)
    }
}
