//! Which operation an S3 request is, for the meter and the faults; `s3s` decides for itself.

use http::{Method, Request};

/// Returns the name of the operation that a request calls by its method, path and query; `Other` if
/// none fits. Only path-style requests come here: `/bucket/key?query`. The signature is not
/// verified, and the bucket need not exist.
pub(in super::super) fn operation<B>(request: &Request<B>) -> &'static str {
    let path = request.uri().path().trim_start_matches('/');
    let has_key = path.split_once('/').is_some_and(|(_, key)| !key.is_empty());
    let query = request.uri().query().unwrap_or_default();
    let asks =
        |name: &str| url::form_urlencoded::parse(query.as_bytes()).any(|(given, _)| given == name);
    let copies = request.headers().contains_key("x-amz-copy-source");
    match (request.method(), path.is_empty(), has_key) {
        (&Method::GET, true, _) => "ListBuckets",
        (&Method::GET, _, true) => "GetObject",
        (&Method::HEAD, _, true) => "HeadObject",
        (&Method::HEAD, _, false) => "HeadBucket",
        (&Method::PUT, _, true) if asks("partNumber") => "UploadPart",
        (&Method::PUT, _, true) if copies => "CopyObject",
        (&Method::PUT, _, true) => "PutObject",
        (&Method::GET, _, false) if asks("cors") => "GetBucketCors",
        (&Method::PUT, _, false) if asks("cors") => "PutBucketCors",
        (&Method::DELETE, _, false) if asks("cors") => "DeleteBucketCors",
        (&Method::PUT, _, false) => "CreateBucket",
        (&Method::DELETE, _, true) if asks("uploadId") => "AbortMultipartUpload",
        (&Method::DELETE, _, true) => "DeleteObject",
        (&Method::DELETE, _, false) => "DeleteBucket",
        (&Method::POST, _, true) if asks("uploads") => "CreateMultipartUpload",
        (&Method::POST, _, true) => "CompleteMultipartUpload",
        (&Method::POST, _, false) => "DeleteObjects",
        (&Method::GET, _, false) if asks("location") => "GetBucketLocation",
        (&Method::GET, _, false) if asks("list-type") => "ListObjectsV2",
        _ => "Other",
    }
}
