//! The operations of S3 over the store.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::StatusCode;
use md5::{Digest, Md5};
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};

use super::super::store::StoreError;
use super::super::wire::now_ms;
use super::access::Guard;
use super::listing::Listing;
use super::multipart::{Refused, UploadId};
use super::parts::{
    ReadConditions, about, check_md5, condition, content_range, done, kept_headers, listed,
    metadata, range, read_body, timestamp,
};
use super::store::{Condition, Object, Outcome, Store};

/// Most keys in one page and in one delete.
const KEYS_MAX: usize = 1000;

pub(super) struct Buckets {
    pub store: Arc<Store>,
    pub guard: Guard,
}

impl Buckets {
    /// Runs work that blocks on the disk in a thread of its own and waits for its result. Its
    /// errors and panics become internal errors (500).
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> S3Result<T> {
        let store = Arc::clone(&self.store);
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.map_err(|error| s3_error!(error, InternalError))?
            .map_err(|error| s3_error!(error, InternalError))
    }

    /// Returns the error for a missing object: 404 for a caller that may list the bucket, otherwise
    /// the denial (403), which hides that it is missing.
    fn no_such_key(
        &self,
        credentials: Option<&s3s::auth::Credentials>,
        bucket: &str,
        key: &str,
    ) -> S3Error {
        match self.guard.check_bucket(credentials, "s3:ListBucket", bucket) {
            Ok(()) => s3_error!(NoSuchKey, "The specified key does not exist: {}", key),
            Err(denied) => denied,
        }
    }

    /// Returns an error (404) if a bucket does not exist.
    async fn existing_bucket(&self, bucket: &str) -> S3Result<()> {
        let name = bucket.to_owned();
        if self.blocking(move |store| store.has_bucket(&name)).await? {
            Ok(())
        } else {
            Err(s3_error!(NoSuchBucket))
        }
    }
}

#[async_trait::async_trait]
impl S3 for Buckets {
    /// Creates a bucket. An error if it exists: there is only one account, so it is the caller's.
    async fn create_bucket(
        &self,
        req: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let name = req.input.bucket;
        let location = format!("/{name}");
        if self.blocking(move |store| store.create_bucket(&name)).await? {
            let output = CreateBucketOutput { location: Some(location) };
            return Ok(S3Response::new(output));
        }
        Err(s3_error!(BucketAlreadyOwnedByYou))
    }

    /// Deletes an empty bucket. An error if it does not exist (404) or has objects (409);
    /// unfinished uploads do not count.
    async fn delete_bucket(
        &self,
        req: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let name = req.input.bucket;
        self.existing_bucket(&name).await?;
        if self.blocking(move |store| store.delete_bucket(&name)).await? {
            return Ok(S3Response::with_status(
                DeleteBucketOutput::default(),
                StatusCode::NO_CONTENT,
            ));
        }
        Err(s3_error!(BucketNotEmpty))
    }

    /// Answers without content if the bucket exists, otherwise with 404.
    async fn head_bucket(
        &self,
        req: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.existing_bucket(&req.input.bucket).await?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    /// Answers without a location, which means `us-east-1`, whatever the emulator's region. 404 if
    /// there is no such bucket.
    async fn get_bucket_location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.existing_bucket(&req.input.bucket).await?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    /// Replaces the cross-origin rules of a bucket. 404 if there is no such bucket.
    async fn put_bucket_cors(
        &self,
        req: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let (name, rules) = (req.input.bucket, req.input.cors_configuration.cors_rules);
        self.existing_bucket(&name).await?;
        self.blocking(move |store| store.set_cross_origin_rules(&name, Some(&rules))).await?;
        Ok(S3Response::new(PutBucketCorsOutput::default()))
    }

    /// Answers with the cross-origin rules of a bucket. 404 if it has none or does not exist.
    async fn get_bucket_cors(
        &self,
        req: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        let name = req.input.bucket;
        self.existing_bucket(&name).await?;
        match self.blocking(move |store| store.cross_origin_rules(&name)).await? {
            Some(rules) => Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(rules) })),
            None => {
                Err(s3_error!(NoSuchCORSConfiguration, "The CORS configuration does not exist"))
            }
        }
    }

    /// Removes the cross-origin rules of a bucket, if it has any. 404 if there is no such bucket.
    async fn delete_bucket_cors(
        &self,
        req: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        let name = req.input.bucket;
        self.existing_bucket(&name).await?;
        self.blocking(move |store| store.set_cross_origin_rules(&name, None)).await?;
        Ok(S3Response::with_status(DeleteBucketCorsOutput::default(), StatusCode::NO_CONTENT))
    }

    /// Answers with all buckets by name; the limits and prefixes of the request are ignored.
    async fn list_buckets(
        &self,
        _req: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let buckets = self.blocking(Store::buckets).await?;
        let bucket = |(name, created_ms)| Bucket {
            name: Some(name),
            creation_date: Some(timestamp(created_ms)),
            ..Bucket::default()
        };
        let buckets = Some(buckets.into_iter().map(bucket).collect());
        Ok(S3Response::new(ListBucketsOutput { buckets, ..ListBucketsOutput::default() }))
    }

    /// Stores an object with its headers and metadata. An error if a condition (`If-Match` or
    /// `If-None-Match: *`) does not hold, the bucket does not exist, or the body does not have the
    /// MD5 that the request gives. Other features, such as tags, encryption and storage classes,
    /// are ignored.
    async fn put_object(
        &self,
        req: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let about = about(&req.headers, req.input.metadata)?;
        let condition = condition(req.input.if_match, req.input.if_none_match)?;
        let bytes = read_body(req.input.body).await?;
        let sum = Md5::digest(&bytes);
        check_md5(req.input.content_md5.as_deref(), &sum)?;
        let (bucket, key) = (req.input.bucket, req.input.key);
        let (etag, size) = (hex::encode(sum), bytes.len() as u64);
        let object =
            Object { key: key.clone(), etag: etag.clone(), size, modified_ms: now_ms(), about };
        let outcome = self
            .blocking(move |store| {
                let body = store.stage(bytes)?;
                store.put(&bucket, &object, &body, &condition, None)
            })
            .await?;
        done(outcome, &key)?;
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(ETag::Strong(etag)),
            ..PutObjectOutput::default()
        }))
    }

    /// Answers with an object or a range of it. Of conditions, only `If-Match` and `If-None-Match`
    /// are considered. A missing object is 404 only for a caller that may list the bucket,
    /// otherwise 403. A missing bucket is always 404.
    async fn get_object(
        &self,
        req: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let (bucket, key) = (req.input.bucket.clone(), req.input.key.clone());
        self.existing_bucket(&bucket).await?;
        let conditions = ReadConditions::of(req.input.if_match, req.input.if_none_match);
        let asked = req.input.range;
        let found = {
            let (bucket, key) = (bucket.clone(), key.clone());
            self.blocking(move |store| {
                store.read(&bucket, &key, |object| {
                    conditions.check(object)?;
                    range(asked, object.size)
                })
            })
            .await?
        };
        let Some(found) = found else {
            return Err(self.no_such_key(req.credentials.as_ref(), &bucket, &key));
        };
        let (object, bytes) = found?;
        let partial = asked.is_some();
        let content_range = match partial {
            true => Some(content_range(asked, bytes.len() as u64, object.size)?),
            false => None,
        };
        let output = GetObjectOutput {
            content_length: i64::try_from(bytes.len()).ok(),
            body: Some(StreamingBlob::from(s3s::Body::from(bytes))),
            content_range,
            accept_ranges: Some("bytes".to_owned()),
            e_tag: Some(ETag::Strong(object.etag.clone())),
            last_modified: Some(timestamp(object.modified_ms)),
            metadata: metadata(&object.about),
            ..GetObjectOutput::default()
        };
        let mut response = S3Response::new(output);
        response.headers = kept_headers(&object.about);
        response.status = partial.then_some(StatusCode::PARTIAL_CONTENT);
        Ok(response)
    }

    /// Answers with the headers of an object; a range is ignored. Of conditions, only `If-Match`
    /// and `If-None-Match` are considered. A missing object is 404 only for a caller that may list
    /// the bucket, otherwise 403. A missing bucket is always 404.
    async fn head_object(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let (bucket, key) = (req.input.bucket.clone(), req.input.key.clone());
        self.existing_bucket(&bucket).await?;
        let found = {
            let (bucket, key) = (bucket.clone(), key.clone());
            self.blocking(move |store| store.head(&bucket, &key)).await?
        };
        let Some(object) = found else {
            return Err(self.no_such_key(req.credentials.as_ref(), &bucket, &key));
        };
        ReadConditions::of(req.input.if_match, req.input.if_none_match).check(&object)?;
        let output = HeadObjectOutput {
            content_length: i64::try_from(object.size).ok(),
            accept_ranges: Some("bytes".to_owned()),
            e_tag: Some(ETag::Strong(object.etag.clone())),
            last_modified: Some(timestamp(object.modified_ms)),
            metadata: metadata(&object.about),
            ..HeadObjectOutput::default()
        };
        let mut response = S3Response::new(output);
        response.headers = kept_headers(&object.about);
        Ok(response)
    }

    /// Deletes an object, if the condition `If-Match` holds. A missing object is a success, also
    /// with a condition. A missing bucket is 404.
    async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let condition = condition(req.input.if_match, None)?;
        let (bucket, key) = (req.input.bucket, req.input.key);
        match self.blocking(move |store| store.delete(&bucket, &key, &condition)).await? {
            // Without an object there is nothing that could differ: AWS answers 204 to both.
            Outcome::Done(()) | Outcome::NoObject => {
                Ok(S3Response::with_status(DeleteObjectOutput::default(), StatusCode::NO_CONTENT))
            }
            Outcome::Failed => Err(s3_error!(PreconditionFailed)),
            Outcome::NoBucket => Err(s3_error!(NoSuchBucket)),
        }
    }

    /// Deletes 1 to 1000 objects one by one, each if the caller may delete it and it has the entity
    /// tag that the request gives for it, if any; errors are listed by key. Missing objects count
    /// as deleted. A quiet request gets the errors only. A missing bucket is 404.
    async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let bucket = req.input.bucket;
        self.existing_bucket(&bucket).await?;
        let quiet = req.input.delete.quiet.unwrap_or_default();
        if req.input.delete.objects.is_empty() || req.input.delete.objects.len() > KEYS_MAX {
            return Err(s3_error!(MalformedXML, "1 to 1000 objects can be deleted at once"));
        }
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for named in req.input.delete.objects {
            let key = named.key;
            let refused = |code: &str, message: String| Error {
                key: Some(key.clone()),
                code: Some(code.to_owned()),
                message: Some(message),
                version_id: None,
            };
            if let Err(denied) =
                self.guard.check_object(req.credentials.as_ref(), "s3:DeleteObject", &bucket, &key)
            {
                errors
                    .push(refused("AccessDenied", denied.message().unwrap_or_default().to_owned()));
                continue;
            }
            let condition =
                named.e_tag.map_or(Condition::None, |etag| Condition::Tag(etag.into_value()));
            let outcome = {
                let (bucket, key) = (bucket.clone(), key.clone());
                self.blocking(move |store| store.delete(&bucket, &key, &condition)).await?
            };
            match outcome {
                Outcome::Failed => {
                    errors.push(refused("PreconditionFailed", "the entity tag differs".to_owned()))
                }
                _ if quiet => {}
                _ => deleted.push(DeletedObject { key: Some(key), ..DeletedObject::default() }),
            }
        }
        let output = DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        };
        Ok(S3Response::new(output))
    }

    /// Copies an object of any bucket, if the conditions on its entity tag hold (otherwise 412);
    /// the caller must be allowed to read it. Headers and metadata are the source's unless the
    /// request replaces them. The write itself has no conditions. A missing source, object or
    /// bucket, is 404 only for a caller that may list that bucket, otherwise 403.
    async fn copy_object(
        &self,
        req: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let CopySource::Bucket { bucket: from_bucket, key: from_key, .. } = &req.input.copy_source
        else {
            return Err(s3_error!(NotImplemented, "only objects of buckets are copied"));
        };
        let (from_bucket, from_key) = (from_bucket.to_string(), from_key.to_string());
        let credentials = req.credentials.as_ref();
        self.guard.check_object(credentials, "s3:GetObject", &from_bucket, &from_key)?;
        let conditions =
            ReadConditions::of(req.input.copy_source_if_match, req.input.copy_source_if_none_match);
        let found = {
            let (bucket, key) = (from_bucket.clone(), from_key.clone());
            self.blocking(move |store| {
                // A copy answers 412 where a read would answer 304.
                store.read(&bucket, &key, |object| {
                    conditions
                        .check(object)
                        .map_err(|_| s3_error!(PreconditionFailed))
                        .map(|()| 0..object.size)
                })
            })
            .await?
        };
        let Some(found) = found else {
            return Err(self.no_such_key(credentials, &from_bucket, &from_key));
        };
        let (source, bytes) = found?;
        let replace = req
            .input
            .metadata_directive
            .as_ref()
            .is_some_and(|d| d.as_str() == MetadataDirective::REPLACE);
        let about = if replace { about(&req.headers, req.input.metadata)? } else { source.about };
        let (bucket, key) = (req.input.bucket, req.input.key);
        let etag = hex::encode(Md5::digest(&bytes));
        let object = Object {
            key: key.clone(),
            etag: etag.clone(),
            size: source.size,
            modified_ms: now_ms(),
            about,
        };
        let modified_ms = object.modified_ms;
        let outcome = self
            .blocking(move |store| {
                let body = store.stage(bytes)?;
                store.put(&bucket, &object, &body, &Condition::None, None)
            })
            .await?;
        done(outcome, &key)?;
        let result = CopyObjectResult {
            e_tag: Some(ETag::Strong(etag)),
            last_modified: Some(timestamp(modified_ms)),
            ..CopyObjectResult::default()
        };
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(result),
            ..CopyObjectOutput::default()
        }))
    }

    /// Answers with a page of at most 1000 objects and common prefixes in the order of keys; 404 if
    /// there is no such bucket. A page of 0 keys is empty and the last one.
    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = req.input;
        self.existing_bucket(&input.bucket).await?;
        let max = usize::try_from(input.max_keys.unwrap_or(1000))
            .map_err(|_| s3_error!(InvalidArgument))?
            .min(KEYS_MAX);
        let after = match &input.continuation_token {
            Some(token) => BASE64
                .decode(token)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(|| {
                    s3_error!(InvalidArgument, "The continuation token provided is incorrect")
                })?,
            None => input.start_after.clone().unwrap_or_default(),
        };
        let (bucket, prefix) = (input.bucket.clone(), input.prefix.clone().unwrap_or_default());
        let delimiter = input.delimiter.clone().unwrap_or_default();
        let page = match max {
            0 => super::listing::Page::default(),
            _ => {
                self.blocking(move |store| {
                    let (bucket, prefix, delimiter, after) =
                        (&*bucket, &*prefix, &*delimiter, &*after);
                    store.list(&Listing { bucket, prefix, delimiter, after, max })
                })
                .await?
            }
        };
        let count = page.objects.len() + page.prefixes.len();
        let output = ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            max_keys: i32::try_from(max).ok(),
            key_count: i32::try_from(count).ok(),
            continuation_token: input.continuation_token,
            start_after: input.start_after,
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.map(|next| BASE64.encode(next)),
            contents: Some(page.objects.into_iter().map(listed).collect()),
            common_prefixes: Some(
                page.prefixes.into_iter().map(|p| CommonPrefix { prefix: Some(p) }).collect(),
            ),
            ..ListObjectsV2Output::default()
        };
        Ok(S3Response::new(output))
    }

    /// Begins an upload in parts and answers with its id; 404 if the bucket does not exist. The
    /// headers and metadata of this request become those of the object.
    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let about = about(&req.headers, req.input.metadata)?;
        let (bucket, key) = (req.input.bucket, req.input.key);
        let outcome = {
            let (bucket, key) = (bucket.clone(), key.clone());
            self.blocking(move |store| store.begin_upload(&bucket, &key, &about)).await?
        };
        let upload_id = Some(done(outcome, &key)?);
        let (bucket, key) = (Some(bucket), Some(key));
        let output = CreateMultipartUploadOutput {
            bucket,
            key,
            upload_id,
            ..CreateMultipartUploadOutput::default()
        };
        Ok(S3Response::new(output))
    }

    /// Stores a part with a number from 1 to 10,000 and answers with its entity tag; replaces an
    /// earlier part of that number. Checks the MD5 that the request gives. 404 if there is no such
    /// upload for the bucket and key.
    async fn upload_part(
        &self,
        req: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let input = req.input;
        if !(1..=10_000).contains(&input.part_number) {
            return Err(s3_error!(
                InvalidArgument,
                "Part number must be an integer between 1 and 10000, inclusive"
            ));
        }
        let bytes = read_body(input.body).await?;
        check_md5(input.content_md5.as_deref(), &Md5::digest(&bytes))?;
        let (id, bucket, key, number) =
            (input.upload_id, input.bucket, input.key, input.part_number);
        let etag = self
            .blocking(move |store| {
                store.put_part(&UploadId { id: &id, bucket: &bucket, key: &key }, number, bytes)
            })
            .await?
            .ok_or_else(|| s3_error!(NoSuchUpload))?;
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(ETag::Strong(etag)),
            ..UploadPartOutput::default()
        }))
    }

    /// Joins the named parts to the object, if the conditions `If-Match` or `If-None-Match: *`
    /// hold, and ends the upload. An error if there is no such upload, the condition fails, or a
    /// part is missing, differs, is out of order or, unless it is the last one, under 5 MiB; an
    /// upload that exists then stays.
    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = req.input;
        let condition = condition(input.if_match, input.if_none_match)?;
        let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let named: Vec<(i32, Option<String>)> = parts
            .into_iter()
            .map(|part| (part.part_number.unwrap_or_default(), part.e_tag.map(ETag::into_value)))
            .collect();
        let (id, bucket, key) = (input.upload_id, input.bucket, input.key);
        let outcome = {
            let (bucket, key) = (bucket.clone(), key.clone());
            self.blocking(move |store| {
                store.complete_upload(
                    &UploadId { id: &id, bucket: &bucket, key: &key },
                    &named,
                    &condition,
                )
            })
            .await?
        };
        let outcome = outcome.map_err(|refused| match refused {
            Refused::NoUpload => s3_error!(NoSuchUpload),
            Refused::InvalidPart => s3_error!(InvalidPart),
            Refused::Order => s3_error!(InvalidPartOrder),
            Refused::TooSmall => s3_error!(EntityTooSmall),
        })?;
        let e_tag = Some(ETag::Strong(done(outcome, &key)?));
        let (bucket, key) = (Some(bucket), Some(key));
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket,
            key,
            e_tag,
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    /// Deletes an upload with its parts; 404 if there is none.
    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let (id, bucket, key) = (req.input.upload_id, req.input.bucket, req.input.key);
        let aborted = self
            .blocking(move |store| {
                store.abort_upload(&UploadId { id: &id, bucket: &bucket, key: &key })
            })
            .await?;
        if aborted {
            return Ok(S3Response::with_status(
                AbortMultipartUploadOutput::default(),
                StatusCode::NO_CONTENT,
            ));
        }
        Err(s3_error!(NoSuchUpload))
    }
}
