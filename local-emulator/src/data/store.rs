//! The SQLite files that the services keep, and how much their commits outlive.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

/// What an acknowledged write outlives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The death of this process at any moment (`kill -9`). After a power cut the last moments may
    /// be missing, never torn.
    #[default]
    ProcessDeath,
    /// A power cut as well: every commit waits for the disk, 3.6 ms on the machine this was
    /// measured on.
    PowerCut,
}

/// A data directory that cannot be opened, or a file in it that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite refused.
    #[error(
        "failed to {attempt} in {path}: {source}; check free space and that no other emulator uses the directory"
    )]
    Sqlite {
        /// What was attempted.
        attempt: &'static str,
        /// The database file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// The file system refused.
    #[error(
        "failed to {attempt} {path}: {source}; check free space and permissions of the data directory"
    )]
    File {
        /// What was attempted.
        attempt: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A stored record cannot be read back.
    #[error(
        "failed to read {what} in {path} because {why}; the file was written by something else or is damaged"
    )]
    Corrupt {
        /// The record.
        what: String,
        /// The database file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The DynamoDB engine refused.
    #[error("failed to {attempt} the tables in {path}: {why}")]
    Engine {
        /// What was attempted.
        attempt: &'static str,
        /// The database file.
        path: PathBuf,
        /// What it said.
        why: String,
    },
}

impl StoreError {
    /// Returns a function that turns an I/O error into one with the attempt ("create") and the
    /// file.
    pub(super) fn file(attempt: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { attempt, path, source }
    }

    /// Returns a function that turns a database error into one with the attempt and the database
    /// file.
    pub(super) fn sqlite(
        attempt: &'static str,
        path: &Path,
    ) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Sqlite { attempt, path, source }
    }
}

/// Opens or creates a SQLite database, with its directory, with a write-ahead log, and runs the
/// statements of `schema`, which must be repeatable. `durability` says whether commits wait for the
/// disk.
pub(super) fn open(
    path: &Path,
    schema: &str,
    durability: Durability,
) -> Result<Connection, StoreError> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(StoreError::file("create", directory))?;
    }
    let failed = || StoreError::sqlite("open the store", path);
    let connection = Connection::open(path).map_err(failed())?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed())?;
    let synchronous = match durability {
        Durability::ProcessDeath => "NORMAL",
        Durability::PowerCut => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous).map_err(failed())?;
    connection.execute_batch(schema).map_err(failed())?;
    Ok(connection)
}
