//! Objects on disk: metadata and small bodies in SQLite, larger bodies in files that are complete
//! before they are named.
//!
//! A body of up to 64 KiB is a column of its row, so that one commit writes both. A larger one is
//! written to `blobs/new`, synced, renamed into `blobs/`, and only then named by a row. Conditions
//! are decided under the lock that also writes the row, so of two writers with one condition
//! exactly one wins. Files that no row names are swept when the store is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use s3s::dto::CORSRule;
use serde::{Deserialize, Serialize};

use super::super::store::{self, Durability, StoreError};
use super::super::wire::{now_ms, random_hex};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS objects (bucket TEXT NOT NULL, key TEXT NOT NULL, etag TEXT NOT NULL, size INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL, about TEXT NOT NULL, body BLOB, blob TEXT, PRIMARY KEY (bucket, key)) STRICT;
CREATE TABLE IF NOT EXISTS cross_origin (bucket TEXT PRIMARY KEY, rules TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS uploads (id TEXT PRIMARY KEY, bucket TEXT NOT NULL, key TEXT NOT NULL, about TEXT NOT NULL,
    created_ms INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS parts (upload TEXT NOT NULL, number INTEGER NOT NULL, etag TEXT NOT NULL,
    size INTEGER NOT NULL, blob TEXT NOT NULL, PRIMARY KEY (upload, number)) STRICT;
";

/// Largest body that is a column of its row.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The buckets, objects and unfinished uploads of one directory.
pub(super) struct Store {
    pub(super) connection: Mutex<Connection>,
    pub(super) path: PathBuf,
    blobs: PathBuf,
}

/// What is kept beside a body: headers as they were given, and the user's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    pub headers: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
}

/// An object without its body.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    pub key: String,
    /// Without quotes.
    pub etag: String,
    pub size: u64,
    pub modified_ms: u64,
    pub about: About,
}

/// What must hold of the object that is there, for a write or delete to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    /// `If-None-Match: *`.
    Absent,
    /// `If-Match: *`.
    Present,
    /// `If-Match` with an entity tag, without quotes.
    Tag(String),
}

/// How a conditional write ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome<T> {
    Done(T),
    /// The condition does not hold.
    Failed,
    /// The condition needs an object and there is none.
    NoObject,
    NoBucket,
}

/// An object with the part of its body that was asked for, or why that part cannot be given.
pub(super) type Part<E> = Result<(Object, Bytes), E>;

/// A body that is on disk or in memory, not yet named by a row.
pub(super) enum Body {
    Inline(Bytes),
    Blob { id: String, size: u64 },
}

impl Body {
    /// Returns the size of a body in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Blob { size, .. } => *size,
        }
    }
}

impl Store {
    /// Opens or creates the store in a directory, and deletes files there that no object or upload
    /// needs.
    pub fn open(directory: &Path, durability: Durability) -> Result<Self, StoreError> {
        let (path, blobs) = (directory.join("s3.sqlite"), directory.join("blobs"));
        let new = blobs.join("new");
        std::fs::create_dir_all(&new).map_err(StoreError::file("create", &new))?;
        let connection = store::open(&path, SCHEMA, durability)?;
        let store = Self { connection: Mutex::new(connection), path, blobs };
        store.sweep()?;
        Ok(store)
    }

    /// Creates a bucket; returns whether it is new, false if it exists already.
    pub fn create_bucket(&self, name: &str) -> Result<bool, StoreError> {
        let made = self
            .lock()
            .execute(
                "INSERT OR IGNORE INTO buckets (name, created_ms) VALUES (?1, ?2)",
                params![name, now_ms()],
            )
            .map_err(self.failed("create a bucket"))?;
        Ok(made == 1)
    }

    /// Deletes an empty bucket; returns false if it has objects or does not exist. Unfinished
    /// uploads do not count and stay.
    pub fn delete_bucket(&self, name: &str) -> Result<bool, StoreError> {
        let connection = self.lock();
        let deleted = connection
            .execute(
                "DELETE FROM buckets WHERE name = ?1 AND NOT EXISTS (SELECT 1 FROM objects WHERE bucket = ?1)",
                [name],
            )
            .map_err(self.failed("delete a bucket"))?;
        if deleted == 1 {
            connection
                .execute("DELETE FROM cross_origin WHERE bucket = ?1", [name])
                .map_err(self.failed("delete a bucket"))?;
        }
        Ok(deleted == 1)
    }

    /// Stores the cross-origin rules of a bucket in place of earlier ones; `None` removes them.
    pub fn set_cross_origin_rules(
        &self,
        bucket: &str,
        rules: Option<&[CORSRule]>,
    ) -> Result<(), StoreError> {
        let connection = self.lock();
        let done = match rules.map(|rules| serde_json::json!(rules).to_string()) {
            Some(text) => connection.execute(
                "INSERT OR REPLACE INTO cross_origin (bucket, rules) VALUES (?1, ?2)",
                [bucket, text.as_str()],
            ),
            None => connection.execute("DELETE FROM cross_origin WHERE bucket = ?1", [bucket]),
        };
        done.map(|_| ()).map_err(self.failed("write cross-origin rules"))
    }

    /// Returns the cross-origin rules of a bucket; `None` if it has none or does not exist.
    pub fn cross_origin_rules(&self, bucket: &str) -> Result<Option<Vec<CORSRule>>, StoreError> {
        let read = self
            .lock()
            .query_row("SELECT rules FROM cross_origin WHERE bucket = ?1", [bucket], |row| {
                row.get::<_, String>(0)
            })
            .optional()
            .map_err(self.failed("read cross-origin rules"))?;
        Ok(read.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Returns whether a bucket exists.
    pub fn has_bucket(&self, name: &str) -> Result<bool, StoreError> {
        has_bucket(&self.lock(), name).map_err(self.failed("look for a bucket"))
    }

    /// Returns the names of all buckets, in order, and when each was created in milliseconds since
    /// the epoch.
    pub fn buckets(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let connection = self.lock();
        let mut statement = connection
            .prepare("SELECT name, created_ms FROM buckets ORDER BY name")
            .map_err(self.failed("list buckets"))?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.and_then(Iterator::collect).map_err(self.failed("list buckets"))
    }

    /// Prepares a body for [`Self::put`]: up to 64 KiB it stays in memory, to be stored in the
    /// object's row; a larger one is written to a file at once.
    pub fn stage(&self, bytes: Bytes) -> Result<Body, StoreError> {
        if bytes.len() <= INLINE_BYTES_MAX {
            return Ok(Body::Inline(bytes));
        }
        self.write_blob(std::iter::once(Ok(bytes)))
    }

    /// Writes a body to a new file, whatever its size, and returns its id and size. The file gets
    /// its name only when it is complete and synced. Stops at the first error of `pieces`.
    pub fn write_blob(
        &self,
        pieces: impl Iterator<Item = Result<Bytes, StoreError>>,
    ) -> Result<Body, StoreError> {
        let id = random_hex(16);
        let (new, done) = (self.blobs.join("new").join(&id), self.blobs.join(&id));
        let failed = || StoreError::file("write", &new);
        let mut file = std::fs::File::create_new(&new).map_err(failed())?;
        let mut size = 0;
        for piece in pieces {
            let piece = piece?;
            file.write_all(&piece).map_err(failed())?;
            size += piece.len() as u64;
        }
        file.sync_all().map_err(failed())?;
        std::fs::rename(&new, &done).map_err(StoreError::file("rename", &new))?;
        let directory = || StoreError::file("sync", &self.blobs);
        std::fs::File::open(&self.blobs)
            .and_then(|directory| directory.sync_all())
            .map_err(directory())?;
        Ok(Body::Blob { id, size })
    }

    /// Stores a prepared body as the object with this key, if the condition holds for the present
    /// object, whose body is deleted. The caller has set size and entity tag in `object` to those
    /// of `body`; nothing is checked. Also deletes the records of the upload with the id
    /// `finished_upload`, but not its parts' files. If the condition does not hold or the bucket is
    /// missing, returns that outcome and deletes the prepared body.
    pub fn put(
        &self,
        bucket: &str,
        object: &Object,
        body: &Body,
        condition: &Condition,
        finished_upload: Option<&str>,
    ) -> Result<Outcome<()>, StoreError> {
        let outcome = self.change(bucket, &object.key, condition, |connection| {
            let about = serde_json::to_string(&object.about)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            let (inline, blob) = match body {
                Body::Inline(bytes) => (Some(bytes.as_ref()), None),
                Body::Blob { id, .. } => (None, Some(id.as_str())),
            };
            connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO objects (bucket, key, etag, size, modified_ms, about, body, blob)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?
                .execute(params![
                    bucket,
                    object.key,
                    object.etag,
                    object.size,
                    object.modified_ms,
                    about,
                    inline,
                    blob
                ])?;
            if let Some(upload) = finished_upload {
                connection.execute("DELETE FROM parts WHERE upload = ?1", [upload])?;
                connection.execute("DELETE FROM uploads WHERE id = ?1", [upload])?;
            }
            Ok(())
        })?;
        if !matches!(outcome, Outcome::Done(()))
            && let Body::Blob { id, .. } = body
        {
            self.forget_blob(id);
        }
        Ok(outcome)
    }

    /// Deletes an object and its body if the condition holds for it. Without a condition a missing
    /// object is a success; with `Present` or `Tag` it is `NoObject`. Without the bucket it is
    /// `NoBucket`.
    pub fn delete(
        &self,
        bucket: &str,
        key: &str,
        condition: &Condition,
    ) -> Result<Outcome<()>, StoreError> {
        self.change(bucket, key, condition, |connection| {
            connection
                .execute("DELETE FROM objects WHERE bucket = ?1 AND key = ?2", params![bucket, key])
                .map(|_| ())
        })
    }

    /// Returns an object without its body; `None` if the object or the bucket does not exist.
    pub fn head(&self, bucket: &str, key: &str) -> Result<Option<Object>, StoreError> {
        let connection = self.lock();
        find(&connection, bucket, key)
            .map(|found| found.map(|(object, ..)| object))
            .map_err(self.failed("read an object"))
    }

    /// Returns an object and the bytes of its body in the range that `range` returns for it; if
    /// `range` fails, `Some` with its error. `None` if the object does not exist; `range` is then
    /// not called. `range` runs under the store's lock and so must not use the store. A range past
    /// the end is cut off there; its start must not be after its end.
    pub fn read<E>(
        &self,
        bucket: &str,
        key: &str,
        range: impl FnOnce(&Object) -> Result<Range<u64>, E>,
    ) -> Result<Option<Part<E>>, StoreError> {
        let connection = self.lock();
        let found = find(&connection, bucket, key).map_err(self.failed("read an object"))?;
        let Some((object, inline, blob)) = found else {
            return Ok(None);
        };
        let range = match range(&object) {
            Ok(range) => range,
            Err(error) => return Ok(Some(Err(error))),
        };
        let body = match (inline, blob) {
            (_, Some(blob)) => {
                // Opened under the lock: afterwards the file may be unnamed, and is still read
                // whole.
                let path = self.blobs.join(&blob);
                let mut file =
                    std::fs::File::open(&path).map_err(StoreError::file("open", &path))?;
                drop(connection);
                let mut bytes = Vec::new();
                file.seek(SeekFrom::Start(range.start))
                    .and_then(|_| file.take(range.end - range.start).read_to_end(&mut bytes))
                    .map_err(StoreError::file("read", &path))?;
                Bytes::from(bytes)
            }
            (inline, None) => {
                let bytes = Bytes::from(inline.unwrap_or_default());
                let from = usize::try_from(range.start).unwrap_or(usize::MAX).min(bytes.len());
                let to = usize::try_from(range.end).unwrap_or(usize::MAX).min(bytes.len());
                bytes.slice(from..to)
            }
        };
        Ok(Some(Ok((object, body))))
    }

    /// Returns the bytes of a body's file in pieces of 1 MiB; the last one may be shorter. An error
    /// if the file does not exist.
    pub fn blob_pieces(
        &self,
        id: &str,
    ) -> Result<impl Iterator<Item = Result<Bytes, StoreError>> + use<>, StoreError> {
        const PIECE_BYTES: usize = 1 << 20;
        let path = self.blobs.join(id);
        let mut file = std::fs::File::open(&path).map_err(StoreError::file("open", &path))?;
        Ok(std::iter::from_fn(move || {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            match Read::by_ref(&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece) {
                Ok(0) => None,
                Ok(_) => Some(Ok(Bytes::from(piece))),
                Err(error) => Some(Err(StoreError::file("read", &path)(error))),
            }
        }))
    }

    /// Deletes a body's file and ignores a failure: the next start deletes what stays.
    pub fn forget_blob(&self, id: &str) {
        // One that stays is swept at the next start.
        let _ = std::fs::remove_file(self.blobs.join(id));
    }

    /// Locks the connection, also after a panic. No other method of the store may be called
    /// meanwhile by the same thread.
    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a function that adds the attempt and the path of the database to an error.
    pub(super) fn failed(
        &self,
        attempt: &'static str,
    ) -> impl FnOnce(rusqlite::Error) -> StoreError {
        StoreError::sqlite(attempt, &self.path)
    }

    /// Runs `act` in a transaction if the condition holds for the present object; then deletes the
    /// body's file that was replaced. Without the bucket or with a condition that does not hold,
    /// returns that outcome and changes nothing.
    fn change(
        &self,
        bucket: &str,
        key: &str,
        condition: &Condition,
        act: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<Outcome<()>, StoreError> {
        let mut connection = self.lock();
        let (outcome, replaced) = change(&mut connection, bucket, key, condition, act)
            .map_err(self.failed("write an object"))?;
        drop(connection);
        if let Some(blob) = replaced {
            self.forget_blob(&blob);
        }
        Ok(outcome)
    }

    /// Deletes the body files to which no object or part refers, which a kill between file and row
    /// left behind, and all unfinished ones. Nothing may be written meanwhile.
    fn sweep(&self) -> Result<(), StoreError> {
        let named: BTreeSet<String> = {
            let connection = self.lock();
            let mut statement = connection
                .prepare(
                    "SELECT blob FROM objects WHERE blob IS NOT NULL UNION SELECT blob FROM parts",
                )
                .map_err(self.failed("list bodies"))?;
            let rows = statement.query_map([], |row| row.get(0));
            rows.and_then(Iterator::collect).map_err(self.failed("list bodies"))?
        };
        for directory in [self.blobs.clone(), self.blobs.join("new")] {
            for entry in
                std::fs::read_dir(&directory).map_err(StoreError::file("list", &directory))?
            {
                let entry = entry.map_err(StoreError::file("list", &directory))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.path().is_file() && !named.contains(&name) {
                    std::fs::remove_file(entry.path())
                        .map_err(StoreError::file("sweep", &entry.path()))?;
                }
            }
        }
        Ok(())
    }
}

/// Runs `act` in a transaction if the condition holds for the present object. Also returns the id
/// of the body's file that the object had before, if any, for the caller to delete. Without the
/// bucket or with a condition that does not hold, returns that outcome and changes nothing.
fn change(
    connection: &mut Connection,
    bucket: &str,
    key: &str,
    condition: &Condition,
    act: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> rusqlite::Result<(Outcome<()>, Option<String>)> {
    let transaction = connection.transaction()?;
    if !has_bucket(&transaction, bucket)? {
        return Ok((Outcome::NoBucket, None));
    }
    let there: Option<(String, Option<String>)> = transaction
        .prepare_cached("SELECT etag, blob FROM objects WHERE bucket = ?1 AND key = ?2")?
        .query_row(params![bucket, key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let refused = match (condition, &there) {
        (Condition::None, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => None,
        (Condition::Tag(wanted), Some((etag, _))) => (wanted != etag).then_some(Outcome::Failed),
        (Condition::Absent, Some(_)) => Some(Outcome::Failed),
        (Condition::Present | Condition::Tag(_), None) => Some(Outcome::NoObject),
    };
    if let Some(outcome) = refused {
        return Ok((outcome, None));
    }
    act(&transaction)?;
    transaction.commit()?;
    Ok((Outcome::Done(()), there.and_then(|(_, blob)| blob)))
}

/// Returns whether a bucket exists.
fn has_bucket(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM buckets WHERE name = ?1")?.exists([name])
}

type FoundObject = (Object, Option<Vec<u8>>, Option<String>);

/// Returns an object with its body, as bytes if it is in the row or else as the id of its file;
/// `None` if it does not exist.
fn find(connection: &Connection, bucket: &str, key: &str) -> rusqlite::Result<Option<FoundObject>> {
    connection
        .prepare_cached(
            "SELECT key, etag, size, modified_ms, about, body, blob FROM objects WHERE bucket = ?1 AND key = ?2",
        )?
        .query_row(params![bucket, key], |row| Ok((object(row)?, row.get(5)?, row.get(6)?)))
        .optional()
}

/// Reads an object from a row whose first five columns are key, etag, size, modified_ms and about.
/// An error if the headers and metadata in it cannot be decoded.
pub(super) fn object(row: &Row<'_>) -> rusqlite::Result<Object> {
    let about: String = row.get(4)?;
    let about = serde_json::from_str(&about).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, error.into())
    })?;
    Ok(Object {
        key: row.get(0)?,
        etag: row.get(1)?,
        size: row.get(2)?,
        modified_ms: row.get(3)?,
        about,
    })
}
