//! Services besides the data services.

use super::auth::Caller;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};

/// An additional service behind the same front, which verifies signatures, applies faults and
/// counts calls for it.
#[async_trait]
pub trait Extra: Send + Sync + 'static {
    /// Answers one call of a verified caller; the service checks permissions with
    /// [`Caller::check`].
    async fn call(&self, caller: &Caller, request: Request<Bytes>) -> Response<Bytes>;

    /// Returns the name of the operation that a request calls, for the meter and the faults; called
    /// before the signature is verified.
    fn operation(&self, request: &Request<Bytes>) -> String;
}
