//! Uploads in parts: kept as files until they are put together.

use bytes::Bytes;
use md5::{Digest, Md5};
use rusqlite::{OptionalExtension, params};

use super::super::store::StoreError;
use super::super::wire::{now_ms, random_hex};
use super::store::{About, Body, Condition, Object, Outcome, Store};

/// Smallest part, the last one excepted.
const PART_BYTES_MIN: u64 = 5 * 1024 * 1024;

/// Why parts are not put together.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    NoUpload,
    /// A part that was never uploaded, or whose entity tag differs.
    InvalidPart,
    /// The list is not in ascending order.
    Order,
    /// A part other than the last is under 5 MiB.
    TooSmall,
}

struct Part {
    etag: String,
    size: u64,
    blob: String,
}

impl Store {
    /// Begins an upload in parts, with the headers and metadata of the later object, and returns
    /// its id. `NoBucket` if the bucket does not exist.
    pub fn begin_upload(
        &self,
        bucket: &str,
        key: &str,
        about: &About,
    ) -> Result<Outcome<String>, StoreError> {
        if !self.has_bucket(bucket)? {
            return Ok(Outcome::NoBucket);
        }
        let id = random_hex(16);
        let json = serde_json::to_string(about).map_err(|error| {
            self.failed("begin an upload")(rusqlite::Error::ToSqlConversionFailure(error.into()))
        })?;
        self.lock()
            .execute(
                "INSERT INTO uploads (id, bucket, key, about, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![id, bucket, key, json, now_ms()],
            )
            .map_err(self.failed("begin an upload"))?;
        Ok(Outcome::Done(id))
    }

    /// Stores a part of an upload, in place of an earlier one of that number, and returns its
    /// entity tag; `None` if there is no such upload for this bucket and key. Neither number nor
    /// size are checked.
    pub fn put_part(
        &self,
        upload: &UploadId<'_>,
        number: i32,
        bytes: Bytes,
    ) -> Result<Option<String>, StoreError> {
        if self.upload_about(upload)?.is_none() {
            return Ok(None);
        }
        let etag = hex::encode(Md5::digest(&bytes));
        let Body::Blob { id, size } = self.write_blob(std::iter::once(Ok(bytes)))? else {
            return Ok(None);
        };
        let replaced = self.part(upload.id, number)?;
        self.lock()
            .execute(
                "INSERT OR REPLACE INTO parts (upload, number, etag, size, blob) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![upload.id, number, etag, size, id],
            )
            .map_err(self.failed("write a part"))?;
        if let Some(part) = replaced {
            self.forget_blob(&part.blob);
        }
        Ok(Some(etag))
    }

    /// Joins the named parts to the object, if the condition holds for the present one, deletes the
    /// upload and returns the entity tag. `named` are numbers and expected entity tags (`None` for
    /// any). Refused if the upload does not exist, `named` is empty or not in ascending order, a
    /// part is missing or differs, or a part other than the last is under 5 MiB. The upload stays
    /// if it is refused or the condition fails.
    pub fn complete_upload(
        &self,
        upload: &UploadId<'_>,
        named: &[(i32, Option<String>)],
        condition: &Condition,
    ) -> Result<Result<Outcome<String>, Refused>, StoreError> {
        let Some(about) = self.upload_about(upload)? else {
            return Ok(Err(Refused::NoUpload));
        };
        if !named.is_sorted_by(|a, b| a.0 < b.0) {
            return Ok(Err(Refused::Order));
        }
        let mut parts = Vec::with_capacity(named.len());
        for (number, etag) in named {
            match self.part(upload.id, *number)? {
                Some(part) if etag.as_ref().is_none_or(|etag| *etag == part.etag) => {
                    parts.push(part)
                }
                _ => return Ok(Err(Refused::InvalidPart)),
            }
        }
        let Some((_, before_last)) = parts.split_last() else {
            return Ok(Err(Refused::InvalidPart));
        };
        if before_last.iter().any(|part| part.size < PART_BYTES_MIN) {
            return Ok(Err(Refused::TooSmall));
        }
        let mut sums = Md5::new();
        let mut pieces = Vec::with_capacity(parts.len());
        for part in &parts {
            sums.update(hex::decode(&part.etag).unwrap_or_default());
            pieces.push(self.blob_pieces(&part.blob)?);
        }
        let etag = format!("{}-{}", hex::encode(sums.finalize()), parts.len());
        let body = self.write_blob(pieces.into_iter().flatten())?;
        let object = Object {
            key: upload.key.to_owned(),
            etag: etag.clone(),
            size: body.size(),
            modified_ms: now_ms(),
            about,
        };
        let outcome = self.put(upload.bucket, &object, &body, condition, Some(upload.id))?;
        Ok(Ok(match outcome {
            Outcome::Done(()) => {
                // Parts that were uploaded and not named are swept at the next start.
                parts.iter().for_each(|part| self.forget_blob(&part.blob));
                Outcome::Done(etag)
            }
            Outcome::Failed => Outcome::Failed,
            Outcome::NoObject => Outcome::NoObject,
            Outcome::NoBucket => Outcome::NoBucket,
        }))
    }

    /// Deletes an upload and its parts. Returns whether there was one for this bucket and key.
    pub fn abort_upload(&self, upload: &UploadId<'_>) -> Result<bool, StoreError> {
        if self.upload_about(upload)?.is_none() {
            return Ok(false);
        }
        let failed = || self.failed("abort an upload");
        let mut connection = self.lock();
        let transaction = connection.transaction().map_err(failed())?;
        let blobs: Vec<String> = transaction
            .prepare("SELECT blob FROM parts WHERE upload = ?1")
            .and_then(|mut statement| statement.query_map([upload.id], |row| row.get(0))?.collect())
            .map_err(failed())?;
        transaction.execute("DELETE FROM parts WHERE upload = ?1", [upload.id]).map_err(failed())?;
        transaction.execute("DELETE FROM uploads WHERE id = ?1", [upload.id]).map_err(failed())?;
        transaction.commit().map_err(failed())?;
        blobs.iter().for_each(|blob| self.forget_blob(blob));
        Ok(true)
    }

    /// Returns the headers and metadata of an upload; `None` if there is none with this id, bucket
    /// and key.
    fn upload_about(&self, upload: &UploadId<'_>) -> Result<Option<About>, StoreError> {
        let json: Option<String> = self
            .lock()
            .query_row(
                "SELECT about FROM uploads WHERE id = ?1 AND bucket = ?2 AND key = ?3",
                params![upload.id, upload.bucket, upload.key],
                |row| row.get(0),
            )
            .optional()
            .map_err(self.failed("read an upload"))?;
        let corrupt = |error: serde_json::Error| StoreError::Corrupt {
            what: format!("the upload {}", upload.id),
            path: self.path.clone(),
            why: error.to_string(),
        };
        json.map(|json| serde_json::from_str(&json).map_err(corrupt)).transpose()
    }

    /// Returns a part of an upload; `None` if there is none of that number.
    fn part(&self, upload: &str, number: i32) -> Result<Option<Part>, StoreError> {
        self.lock()
            .query_row(
                "SELECT etag, size, blob FROM parts WHERE upload = ?1 AND number = ?2",
                params![upload, number],
                |row| Ok(Part { etag: row.get(0)?, size: row.get(1)?, blob: row.get(2)? }),
            )
            .optional()
            .map_err(self.failed("read a part"))
    }
}

/// An upload and what it is for; all three must fit.
pub(super) struct UploadId<'a> {
    pub id: &'a str,
    pub bucket: &'a str,
    pub key: &'a str,
}
