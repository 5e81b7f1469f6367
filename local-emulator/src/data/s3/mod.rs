//! S3: the protocol of `s3s` over a durable store of our own.
//!
//! `s3s` parses requests, verifies signatures (headers, chunked bodies, signed URLs) against the
//! emulator's keys and writes responses. [`access`] checks the policies, [`operations`] executes
//! requests, [`store`] stores objects. Like AWS, a caller that may not list a bucket gets 403, not
//! 404, for an object that does not exist.

mod access;
mod classify;
mod cors;
mod failure;
mod listing;
mod multipart;
mod operations;
mod parts;
mod store;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use s3s::service::{S3Service, S3ServiceBuilder};

use super::auth::{Authorizer, KeyRing};
use super::store::{Durability, StoreError};

pub(super) use classify::operation;
pub(super) use failure::{injected, internal};

use store::Store;

/// Asks for the policies in force when a call comes.
pub(super) type Policies = Arc<dyn Fn() -> Arc<dyn Authorizer> + Send + Sync>;

/// Whether a caller proved by its signature who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proven {
    /// It did.
    Yes,
    /// It did not, or `s3s` answered before it looked.
    No,
}

/// The buckets of one data directory.
pub struct S3 {
    service: S3Service,
    store: Arc<Store>,
}

impl S3 {
    /// Opens or creates the buckets in `directory`. Signatures are verified with `keys`; `policies`
    /// returns what decides about permissions at each call. `durability` says whether commits wait
    /// for the disk.
    ///
    /// # Errors
    /// [`StoreError`] when the directory or the database in it cannot be used.
    pub(super) fn open(
        directory: &Path,
        keys: Arc<KeyRing>,
        policies: Policies,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        let store = Arc::new(Store::open(directory, durability)?);
        let guard = access::Guard { keys, policies };
        let mut builder = S3ServiceBuilder::new(operations::Buckets {
            store: Arc::clone(&store),
            guard: guard.clone(),
        });
        builder.set_auth(guard.clone());
        builder.set_access(guard);
        Ok(Self { service: builder.build(), store })
    }

    /// Creates a bucket if it does not exist; no error if it does.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written.
    pub fn ensure_bucket(&self, name: &str) -> Result<(), StoreError> {
        self.store.create_bucket(name).map(|_| ())
    }

    /// Answers one call, after verifying its signature and checking policies. Also returns whether
    /// the caller's signature was verified.
    pub(super) async fn call(&self, request: Request<Bytes>) -> (Response<Bytes>, Proven) {
        let proof = access::Proof::default();
        let read = cors::CrossOriginRead::of(&request);
        let mut request = request.map(s3s::Body::from);
        request.extensions_mut().insert(proof.clone());
        let mut response = self.response(request).await;
        if let Some(read) = read
            && let Ok(Some(rules)) = self.store.cross_origin_rules(&read.bucket)
        {
            read.allow(&rules, response.headers_mut());
        }
        (response, if proof.is_given() { Proven::Yes } else { Proven::No })
    }

    /// Passes a request to the S3 implementation and reads its whole response. A failure of the
    /// implementation is an internal error (500).
    async fn response(&self, request: Request<s3s::Body>) -> Response<Bytes> {
        match self.service.call(request).await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                match body.collect().await {
                    Ok(body) => Response::from_parts(parts, body.to_bytes()),
                    Err(error) => internal(&error.to_string()),
                }
            }
            Err(error) => internal(&format!("{error:?}")),
        }
    }
}
