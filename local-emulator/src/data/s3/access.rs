//! Keys and policies for `s3s`: whose signature it is, and whether that principal may do what it
//! asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{Credentials, S3Auth, SecretKey};
use s3s::{S3Result, s3_error};

use super::super::account::Account;
use super::super::auth::{Caller, KeyRing, KnownKey};
use super::super::sigv4;
use super::super::wire::now_ms;
use super::Policies;

/// Learns whether the caller of one request proved who it is: a refusal by a policy and one for a
/// bad signature are both 403.
#[derive(Clone, Debug, Default)]
pub(super) struct Proof(Arc<AtomicBool>);

impl Proof {
    /// Returns whether the signature of the call was verified.
    pub fn is_given(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Stores that the signature was verified.
    fn give(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Answers `s3s`'s questions about keys and policies.
#[derive(Clone)]
pub(super) struct Guard {
    pub keys: Arc<KeyRing>,
    pub policies: Policies,
}

impl Guard {
    /// Returns the caller with these credentials, whose signature `s3s` has verified, and the
    /// present policies. An error without credentials, for an unsigned request, or for an unknown
    /// key.
    pub fn caller(&self, credentials: Option<&Credentials>) -> S3Result<Caller> {
        let credentials =
            credentials.ok_or_else(|| s3_error!(AccessDenied, "Signature is required"))?;
        Ok(self.key(&credentials.access_key)?.into_caller((self.policies)()))
    }

    /// Returns an access key; an error if it is unknown or has expired. Whether a request has its
    /// session token is not checked.
    fn key(&self, access_key: &str) -> S3Result<KnownKey> {
        let key = self.keys.get(access_key).ok_or_else(|| {
            s3_error!(
                InvalidAccessKeyId,
                "The AWS Access Key Id you provided does not exist in our records."
            )
        })?;
        if !key.is_valid(now_ms() / 1_000) {
            return Err(s3_error!(ExpiredToken, "The provided token has expired."));
        }
        Ok(key)
    }

    /// Returns an error unless the caller's policies allow an action, such as `s3:ListBucket`, on a
    /// bucket. The bucket need not exist.
    pub fn check_bucket(
        &self,
        credentials: Option<&Credentials>,
        action: &str,
        bucket: &str,
    ) -> S3Result<()> {
        refuse(self.caller(credentials)?.check(action, &Account::bucket_arn(bucket)))
    }

    /// Returns an error unless the caller's policies allow an action, such as `s3:GetObject`, on an
    /// object. The object need not exist.
    pub fn check_object(
        &self,
        credentials: Option<&Credentials>,
        action: &str,
        bucket: &str,
        key: &str,
    ) -> S3Result<()> {
        refuse(self.caller(credentials)?.check(action, &Account::object_arn(bucket, key)))
    }
}

/// Converts a denial to S3's error.
fn refuse(result: Result<(), super::super::auth::Denied>) -> S3Result<()> {
    result.map_err(|denied| s3_error!(AccessDenied, "{}", denied))
}

#[async_trait::async_trait]
impl S3Auth for Guard {
    /// Returns the secret of a known access key that has not expired, for the verification of a
    /// signature.
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        Ok(SecretKey::from(self.key(access_key)?.secret.expose()))
    }
}

#[async_trait::async_trait]
impl S3Access for Guard {
    /// Records that the signature was verified, if the request has one, and returns an error unless
    /// the caller's policies allow the operation; they see the header `If-None-Match` as
    /// `s3:if-none-match`. Temporary credentials without their session token are an error. An
    /// unsigned request is an error. Operations that the emulator does not have are refused as not
    /// implemented. The source of a copy and the keys of a deletion of several objects are not
    /// checked here, but by the operation.
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        // Credentials are there only once `s3s` has verified the signature with their secret.
        if context.credentials().is_some()
            && let Some(proof) = context.extensions_mut().get::<Proof>()
        {
            proof.give();
        }
        let credentials = context.credentials();
        let token = sigv4::session_token(context.headers(), context.uri().query());
        if let Some(credentials) = credentials
            && !self.key(&credentials.access_key)?.takes(token.as_deref())
        {
            return Err(s3_error!(InvalidToken, "The provided token is malformed or invalid."));
        }
        let bucket = context.s3_path().get_bucket_name().unwrap_or_default();
        let key = context.s3_path().get_object_key().unwrap_or_default();
        let (action, on_object) = match context.s3_op().name() {
            "GetObject" | "HeadObject" => ("s3:GetObject", true),
            // The source of a copy is asked for by the operation, which knows it.
            "PutObject"
            | "CopyObject"
            | "CreateMultipartUpload"
            | "UploadPart"
            | "CompleteMultipartUpload" => ("s3:PutObject", true),
            "DeleteObject" => ("s3:DeleteObject", true),
            "AbortMultipartUpload" => ("s3:AbortMultipartUpload", true),
            // Asked for key by key by the operation.
            "DeleteObjects" => return self.caller(credentials).map(|_| ()),
            "ListObjectsV2" | "HeadBucket" => ("s3:ListBucket", false),
            "GetBucketLocation" => ("s3:GetBucketLocation", false),
            "GetBucketCors" => ("s3:GetBucketCORS", false),
            // AWS has no action of its own for the removal.
            "PutBucketCors" | "DeleteBucketCors" => ("s3:PutBucketCORS", false),
            "CreateBucket" => ("s3:CreateBucket", false),
            "DeleteBucket" => ("s3:DeleteBucket", false),
            "ListBuckets" => {
                return refuse(self.caller(credentials)?.check("s3:ListAllMyBuckets", "*"));
            }
            _ => {
                return Err(s3_error!(
                    NotImplemented,
                    "A header or query you provided implies functionality that is not implemented"
                ));
            }
        };
        if on_object {
            let if_none_match = context.headers().get("if-none-match");
            let if_none_match = if_none_match.and_then(|value| value.to_str().ok());
            let values = if_none_match.map(|value| ("s3:if-none-match", value));
            let arn = Account::object_arn(bucket, key);
            refuse(self.caller(credentials)?.check_with(action, &arn, values.as_slice()))
        } else {
            self.check_bucket(credentials, action, bucket)
        }
    }
}
