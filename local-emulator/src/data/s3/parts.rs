//! What the operations share: conditions, bodies, headers and metadata, ranges.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::dto::{ETag, ETagCondition, Metadata, ObjectStorageClass, StreamingBlob, Timestamp};
use s3s::{S3Error, S3Result, s3_error};

use super::store::{About, Condition, Object, Outcome};

/// Headers that are kept with an object and given back as they came.
const KEPT_HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "cache-control",
    "content-disposition",
    "content-language",
    "expires",
];
/// Largest user metadata, names and values together.
const METADATA_BYTES_MAX: usize = 2048;

/// What a read asks of the entity tag.
pub(super) struct ReadConditions {
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
}

impl ReadConditions {
    /// Returns the conditions of a read.
    pub fn of(if_match: Option<ETagCondition>, if_none_match: Option<ETagCondition>) -> Self {
        Self { if_match, if_none_match }
    }

    /// Returns an error if an object does not meet the conditions: 412 if its entity tag is not
    /// that of `If-Match`, 304 if it is that of `If-None-Match`. `*` matches every object.
    pub fn check(&self, object: &Object) -> S3Result<()> {
        let holds = |condition: &ETagCondition| {
            condition.as_etag().is_none_or(|etag| etag.value() == object.etag)
        };
        if self.if_match.as_ref().is_some_and(|condition| !holds(condition)) {
            return Err(s3_error!(PreconditionFailed));
        }
        if self.if_none_match.as_ref().is_some_and(holds) {
            return Err(s3_error!(NotModified));
        }
        Ok(())
    }
}

/// Converts the headers of a conditional write. Without both there is no condition. An error for
/// both together, and for `If-None-Match` with anything but `*`.
pub(super) fn condition(
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
) -> S3Result<Condition> {
    match (if_match, if_none_match) {
        (None, None) => Ok(Condition::None),
        (None, Some(ETagCondition::Any)) => Ok(Condition::Absent),
        (Some(ETagCondition::Any), None) => Ok(Condition::Present),
        (Some(ETagCondition::ETag(etag)), None) => Ok(Condition::Tag(etag.into_value())),
        _ => Err(s3_error!(
            NotImplemented,
            "A write takes If-Match, or If-None-Match: *, not both and nothing else"
        )),
    }
}

/// Returns the value of a conditional write that was done; otherwise S3's error: 412 if the
/// condition failed, 404 without the object that it needs or without the bucket.
pub(super) fn done<T>(outcome: Outcome<T>, key: &str) -> S3Result<T> {
    match outcome {
        Outcome::Done(value) => Ok(value),
        Outcome::Failed => Err(s3_error!(
            PreconditionFailed,
            "At least one of the pre-conditions you specified did not hold"
        )),
        Outcome::NoObject => Err(s3_error!(NoSuchKey, "The specified key does not exist: {}", key)),
        Outcome::NoBucket => Err(s3_error!(NoSuchBucket)),
    }
}

/// Reads a whole body into memory; empty without one. An error if it breaks off or does not fit its
/// signed checksum.
pub(super) async fn read_body(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let Some(mut body) = body else {
        return Ok(Bytes::new());
    };
    let mut bytes = BytesMut::new();
    while let Some(piece) = body.next().await {
        // Also where the body does not fit its signed checksum.
        bytes.extend_from_slice(
            &piece
                .map_err(|error| S3Error::with_source(s3s::S3ErrorCode::IncompleteBody, error))?,
        );
    }
    Ok(bytes.freeze())
}

/// Returns an error if a given MD5 (`Content-MD5`, in Base64) is not `actual`, that of the body, or
/// cannot be decoded. Without one there is no error.
pub(super) fn check_md5(given: Option<&str>, actual: &[u8]) -> S3Result<()> {
    match given {
        None => Ok(()),
        Some(text) => match BASE64.decode(text) {
            Ok(bytes) if bytes == actual => Ok(()),
            Ok(_) => Err(s3_error!(
                BadDigest,
                "The Content-MD5 you specified did not match what we received."
            )),
            Err(_) => Err(s3_error!(InvalidDigest, "The Content-MD5 you specified was invalid.")),
        },
    }
}

/// Returns what is stored with an object: the content type (with S3's default), encoding, language,
/// disposition, cache control and expiry from the headers, and the user's metadata. The encoding
/// `aws-chunked` is left out. An error for more than 2048 bytes of metadata.
pub(super) fn about(headers: &HeaderMap, metadata: Option<Metadata>) -> S3Result<About> {
    let metadata: BTreeMap<String, String> = metadata.unwrap_or_default().into_iter().collect();
    if metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
        > METADATA_BYTES_MAX
    {
        return Err(s3_error!(MetadataTooLarge));
    }
    let mut kept = BTreeMap::new();
    for name in KEPT_HEADERS {
        let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) else {
            continue;
        };
        // How the body was framed on the way is not part of what it is.
        let value: Vec<&str> =
            value.split(',').map(str::trim).filter(|part| *part != "aws-chunked").collect();
        if value.iter().any(|part| !part.is_empty()) {
            kept.insert(name.to_owned(), value.join(", "));
        }
    }
    kept.entry("content-type".to_owned()).or_insert_with(|| "binary/octet-stream".to_owned());
    Ok(About { headers: kept, metadata })
}

/// Returns the stored headers of an object as the headers of a response; invalid ones are left out.
/// The user's metadata is not among them.
pub(super) fn kept_headers(about: &About) -> HeaderMap {
    let pairs = about.headers.iter();
    pairs
        .filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        })
        .collect()
}

/// Returns the user's metadata that is stored with an object; `None` if there is none.
pub(super) fn metadata(about: &About) -> Option<Metadata> {
    let metadata: HashMap<String, String> = about.metadata.clone().into_iter().collect();
    (!metadata.is_empty()).then_some(metadata)
}

/// Returns the requested range of an object in bytes, with its end excluded and cut to the object;
/// all of it without a request. An error (416) if it lies outside.
pub(super) fn range(asked: Option<s3s::dto::Range>, size: u64) -> S3Result<Range<u64>> {
    match asked {
        Some(asked) => Ok(asked.check(size)?),
        None => Ok(0..size),
    }
}

/// Returns the value of the header `Content-Range`: the first byte of the requested range, the last
/// byte that follows from `length`, and the object's size. An error if the range lies outside.
pub(super) fn content_range(
    asked: Option<s3s::dto::Range>,
    length: u64,
    size: u64,
) -> S3Result<String> {
    let range = range(asked, size)?;
    Ok(format!("bytes {}-{}/{size}", range.start, (range.start + length).saturating_sub(1)))
}

/// Returns an object in the form of listings: key, entity tag, size, time of the change and the
/// standard storage class.
pub(super) fn listed(object: Object) -> s3s::dto::Object {
    s3s::dto::Object {
        key: Some(object.key),
        e_tag: Some(ETag::Strong(object.etag)),
        size: i64::try_from(object.size).ok(),
        last_modified: Some(timestamp(object.modified_ms)),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..s3s::dto::Object::default()
    }
}

/// Converts milliseconds since the epoch to S3's time, which keeps them.
pub(super) fn timestamp(milliseconds: u64) -> Timestamp {
    // S3 has whole seconds in headers; the listing would show milliseconds.
    Timestamp::from(UNIX_EPOCH + Duration::from_millis(milliseconds))
}
