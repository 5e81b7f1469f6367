//! The durable memory: documents in one SQLite file. What a transaction has committed survives a
//! kill of the process.

use crate::model::Document;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The store could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ForgeStoreError {
    /// SQLite failed.
    #[error("could not use the forge's database; check that its folder is writable and not full")]
    Database(#[from] rusqlite::Error),
    /// A document is not what this version writes.
    #[error(
        "could not read a stored {kind}; the forge's folder was written by another version: remove it to start afresh"
    )]
    Document {
        /// The kind of document.
        kind: &'static str,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

pub(crate) struct Store {
    connection: Mutex<Connection>,
}

/// One transaction. Dropped without an `Ok`, it leaves nothing behind.
pub(crate) struct Access<'a> {
    transaction: Transaction<'a>,
}

impl Store {
    /// Opens the database in a file, or creates it with its tables. Its directory must exist.
    pub fn open(file: &Path) -> Result<Self, ForgeStoreError> {
        let connection = Connection::open(file)?;
        // The write-ahead log is with the operating system at each commit, so killing the process
        // loses nothing.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS documents (
                 kind TEXT NOT NULL, repository TEXT NOT NULL, id INTEGER NOT NULL, body TEXT NOT NULL,
                 PRIMARY KEY (kind, repository, id)) WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;",
        )?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    /// Runs `work` in a transaction, which is committed if it returns `Ok` and rolled back
    /// otherwise. Transactions run one after the other: `work` must not begin another one.
    pub fn within<T, E: From<ForgeStoreError>>(
        &self,
        work: impl FnOnce(&Access) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut connection = self.lock();
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(ForgeStoreError::from)?;
        let access = Access { transaction };
        let result = work(&access)?;
        access.transaction.commit().map_err(ForgeStoreError::from)?;
        Ok(result)
    }

    /// Locks the connection, waiting for a running transaction; also after a panic.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic inside a transaction rolled it back: the connection is still good.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Access<'_> {
    /// Returns a document of a repository; `None` if there is none of this number. An error if it
    /// cannot be decoded. The empty name holds what belongs to no repository.
    pub fn get<D: Document>(
        &self,
        repository: &str,
        id: u64,
    ) -> Result<Option<D>, ForgeStoreError> {
        let mut statement = self.transaction.prepare_cached(
            "SELECT body FROM documents WHERE kind = ?1 AND repository = ?2 AND id = ?3",
        )?;
        let body: Option<String> = statement
            .query_row(params![D::KIND, repository, id as i64], |row| row.get(0))
            .optional()?;
        body.map(|body| decode(&body)).transpose()
    }

    /// Returns all documents of a kind in a repository, in the order of their numbers; empty for an
    /// unknown repository. An error if one cannot be decoded. The empty name holds what belongs to
    /// no repository.
    pub fn list<D: Document>(&self, repository: &str) -> Result<Vec<D>, ForgeStoreError> {
        let mut statement = self.transaction.prepare_cached(
            "SELECT body FROM documents WHERE kind = ?1 AND repository = ?2 ORDER BY id",
        )?;
        let rows =
            statement.query_map(params![D::KIND, repository], |row| row.get::<_, String>(0))?;
        rows.map(|body| decode(&body?)).collect()
    }

    /// Stores a document under its own number, or replaces the one of the same kind, repository and
    /// number. The repository need not exist.
    pub fn put<D: Document>(&self, repository: &str, document: &D) -> Result<(), ForgeStoreError> {
        let body = serde_json::to_string(document)
            .map_err(|source| ForgeStoreError::Document { kind: D::KIND, source })?;
        self.transaction
            .prepare_cached("INSERT OR REPLACE INTO documents (kind, repository, id, body) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![D::KIND, repository, document.key() as i64, body])?;
        Ok(())
    }

    /// Deletes a document; no error if there is none.
    pub fn remove<D: Document>(&self, repository: &str, id: u64) -> Result<(), ForgeStoreError> {
        self.transaction
            .prepare_cached(
                "DELETE FROM documents WHERE kind = ?1 AND repository = ?2 AND id = ?3",
            )?
            .execute(params![D::KIND, repository, id as i64])?;
        Ok(())
    }

    /// Deletes all documents of a kind in a repository except the `kept` with the highest numbers.
    pub fn keep_newest<D: Document>(
        &self,
        repository: &str,
        kept: usize,
    ) -> Result<(), ForgeStoreError> {
        self.transaction
            .prepare_cached(
                "DELETE FROM documents WHERE kind = ?1 AND repository = ?2 AND id <=
                 (SELECT id FROM documents WHERE kind = ?1 AND repository = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)",
            )?
            .execute(params![D::KIND, repository, kept as i64])?;
        Ok(())
    }

    /// Returns the next number of a counter, from 1; an unknown counter begins. A number is not
    /// returned again once the transaction is committed.
    pub fn next(&self, counter: &str) -> Result<u64, ForgeStoreError> {
        let value: i64 = self
            .transaction
            .prepare_cached(
                "INSERT INTO counters (name, value) VALUES (?1, 1)
                 ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value",
            )?
            .query_row(params![counter], |row| row.get(0))?;
        Ok(value as u64)
    }
}

/// Decodes a stored document. An error that names its kind if it does not have the form of this
/// version.
fn decode<D: Document>(body: &str) -> Result<D, ForgeStoreError> {
    serde_json::from_str(body).map_err(|source| ForgeStoreError::Document { kind: D::KIND, source })
}
