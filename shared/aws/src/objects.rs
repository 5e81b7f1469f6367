//! Object storage on S3: conditional puts by entity tag, listings in key order.

use crate::endpoint::DataService;
use crate::failure::{failed, status};
use crate::limits;
use crate::settings::{AwsSettings, BucketAddress};
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use sluice_runtime::object::{Object, ObjectPart, PutMode, PutOutcome};
use sluice_runtime::{Objects, PortError};

/// Keys in one page of a listing.
const PAGE_KEYS_MAX: usize = 1000;
/// What `If-None-Match` names to mean "there is none".
const ANY: &str = "*";

pub(crate) struct S3Objects {
    client: Client,
    bucket: String,
}

impl S3Objects {
    /// Creates the port onto the bucket that `settings` name; makes no requests. The bucket is part
    /// of the path if the settings say so or if `sdk_config` has an endpoint, otherwise of the host
    /// name.
    pub(crate) fn new(sdk_config: &SdkConfig, settings: &AwsSettings) -> Self {
        let in_path = match settings.bucket_address {
            BucketAddress::Path => true,
            BucketAddress::ByEndpoint => sdk_config.endpoint_url().is_some(),
        };
        let config = aws_sdk_s3::config::Builder::from(sdk_config)
            .force_path_style(in_path)
            .retry_config(limits::retries())
            .timeout_config(limits::timeouts());
        Self { client: Client::from_conf(config.build()), bucket: settings.bucket.clone() }
    }

    /// Returns the size of an object in bytes; `None` if it does not exist, or if the answer does
    /// not state the size.
    async fn length(&self, key: &str) -> Result<Option<u64>, PortError> {
        let asked = self.client.head_object().bucket(&self.bucket).key(key).send().await;
        match asked {
            Ok(found) => Ok(found.content_length.and_then(|length| u64::try_from(length).ok())),
            Err(error)
                if error.as_service_error().is_some_and(|service| service.is_not_found()) =>
            {
                Ok(None)
            }
            Err(error) => {
                Err(failed(DataService::S3, format!("get the length of the object {key}"), error))
            }
        }
    }

    /// Lists one page of the keys that begin with `prefix`, in order, after `after`: at most
    /// `limit` and at most 1,000. Also returns whether there are more.
    async fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, More), PortError> {
        let answer = self
            .client
            .list_objects_v2()
            .bucket(&self.bucket)
            .prefix(prefix)
            .set_start_after(after.map(str::to_owned))
            .max_keys(i32::try_from(limit.min(PAGE_KEYS_MAX)).unwrap_or(i32::MAX))
            .send()
            .await
            .map_err(|error| {
                failed(DataService::S3, format!("list the objects under {prefix}"), error)
            })?;
        let more = if answer.is_truncated == Some(true) { More::Yes } else { More::No };
        let keys = answer
            .contents
            .unwrap_or_default()
            .into_iter()
            .filter_map(|object| object.key)
            .collect();
        Ok((keys, more))
    }
}

/// Whether a listing has another page.
#[derive(PartialEq)]
enum More {
    Yes,
    No,
}

#[async_trait]
impl Objects for S3Objects {
    /// Returns an object with its whole content and its entity tag; `None` when there is none. An
    /// error also if its content does not arrive in the time for its size.
    async fn get(&self, key: &str) -> Result<Option<Object>, PortError> {
        let attempt = || format!("get the object {key}");
        let found = self.client.get_object().bucket(&self.bucket).key(key).send().await;
        let found = match found {
            Ok(found) => found,
            Err(error)
                if error.as_service_error().is_some_and(|service| service.is_no_such_key()) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(failed(DataService::S3, attempt(), error)),
        };
        let etag = found
            .e_tag
            .ok_or_else(|| PortError::unknown(attempt(), "the answer has no entity tag"))?;
        let length =
            found.content_length.and_then(|length| u64::try_from(length).ok()).unwrap_or_default();
        let body = tokio::time::timeout(limits::carrying(length), found.body.collect())
            .await
            .map_err(|_| PortError::unknown(attempt(), "the transfer of its content timed out"))?
            .map_err(|error| PortError::unknown(attempt(), error))?;
        Ok(Some(Object { bytes: body.into_bytes(), etag }))
    }

    /// Returns at most `most` bytes of an object (but at least one) from byte `first` on, with the
    /// length of the whole object; no bytes beyond its end. `None` when there is no object.
    async fn get_part(
        &self,
        key: &str,
        first: u64,
        most: usize,
    ) -> Result<Option<ObjectPart>, PortError> {
        let attempt = || format!("get {most} bytes of the object {key} from {first} on");
        let last = first.saturating_add((most as u64).max(1) - 1);
        let asked = self
            .client
            .get_object()
            .bucket(&self.bucket)
            .key(key)
            .range(format!("bytes={first}-{last}"));
        let found = match asked.send().await {
            Ok(found) => found,
            Err(error)
                if error.as_service_error().is_some_and(|service| service.is_no_such_key()) =>
            {
                return Ok(None);
            }
            // The range is beyond the end, so the length needs a request of its own.
            Err(error) if status(&error) == Some(416) => {
                let length = self.length(key).await?;
                return Ok(length.map(|length| ObjectPart { bytes: Bytes::new(), length }));
            }
            Err(error) => return Err(failed(DataService::S3, attempt(), error)),
        };
        let total = found
            .content_range
            .as_deref()
            .and_then(|range| range.rsplit('/').next())
            .and_then(|n| n.parse().ok());
        let length =
            total.ok_or_else(|| PortError::unknown(attempt(), "the answer has no total length"))?;
        let body = tokio::time::timeout(limits::carrying(most as u64), found.body.collect())
            .await
            .map_err(|_| PortError::unknown(attempt(), "the transfer of its content timed out"))?
            .map_err(|error| PortError::unknown(attempt(), error))?;
        Ok(Some(ObjectPart { bytes: body.into_bytes(), length }))
    }

    /// Stores an object, in place of an earlier one. If its condition does not hold, or there is no
    /// object for [`PutMode::IfMatch`], nothing is stored and the outcome is
    /// [`PutOutcome::ConditionFailed`]. A conflict with a concurrent conditional write is an error,
    /// since it is unknown which one succeeded.
    async fn put(
        &self,
        key: &str,
        bytes: Bytes,
        mode: PutMode,
        content_type: &str,
    ) -> Result<PutOutcome, PortError> {
        let length = bytes.len() as u64;
        let put = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(key)
            .content_type(content_type)
            .body(ByteStream::from(bytes));
        let put = match &mode {
            PutMode::Always => put,
            PutMode::IfAbsent => put.if_none_match(ANY),
            PutMode::IfMatch(etag) => put.if_match(etag),
        };
        let limits =
            aws_sdk_s3::config::Builder::new().timeout_config(limits::timeouts_carrying(length));
        match put.customize().config_override(limits).send().await {
            Ok(_) => Ok(PutOutcome::Yes),
            Err(error) => match (status(&error), &mode) {
                (Some(412), PutMode::IfAbsent | PutMode::IfMatch(_)) => {
                    Ok(PutOutcome::ConditionFailed)
                }
                // There is no object to match. A missing bucket answers so too, and must not look
                // like a lost race.
                (Some(404), PutMode::IfMatch(_)) if code(&error) == Some("NoSuchKey") => {
                    Ok(PutOutcome::ConditionFailed)
                }
                // This includes 409, a concurrent conditional write: whether ours succeeded is
                // unknown.
                _ => Err(failed(DataService::S3, format!("put the object {key}"), error)),
            },
        }
    }

    /// Returns at most `limit` keys that begin with `prefix`, in order, after the key `after` if
    /// that is given. Requests as many pages as that takes.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, PortError> {
        let mut keys: Vec<String> = Vec::new();
        // Terminates: each round returns a key or is the last.
        while keys.len() < limit {
            let last = keys.last().map(String::as_str).or(after);
            let (page, more) = self.page(prefix, last, limit - keys.len()).await?;
            let nothing_new = page.is_empty();
            keys.extend(page);
            if more == More::No || nothing_new {
                break;
            }
        }
        keys.truncate(limit);
        Ok(keys)
    }

    /// Removes an object. Succeeds when there is none.
    async fn delete(&self, key: &str) -> Result<(), PortError> {
        self.client
            .delete_object()
            .bucket(&self.bucket)
            .key(key)
            .send()
            .await
            .map(drop)
            .map_err(|error| failed(DataService::S3, format!("delete the object {key}"), error))
    }
}

/// Returns the service's error code; `None` if the service did not answer with one.
fn code<E, R>(error: &aws_sdk_s3::error::SdkError<E, R>) -> Option<&str>
where
    E: aws_sdk_s3::error::ProvideErrorMetadata,
{
    error.as_service_error().and_then(|service| service.code())
}
