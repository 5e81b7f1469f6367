//! The common entry point of all services: determines the service and the caller, applies faults,
//! and counts calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::{Request, Response};

use super::account::Account;
use super::auth::{AllowAll, Authorizer, KeyRing, Principal};
use super::deaths::{Deaths, DeliberateKill, Moment};
use super::dynamo::{self, Dynamo};
use super::extra::Extra;
use super::faults::{CallFaults, InjectedError};
use super::kms::{self, Kms};
use super::meter::{Call, Meter};
use super::s3::{self, S3};
use super::sigv4::{self, SignatureError};
use super::sqs::{self, Sqs};
use super::store::{Durability, StoreError};
use super::sts::{AssumableRole, Sts};
use super::wire::{Problem, Service, Usage, now_ms, text_response};

/// How an emulator's data services are opened.
#[derive(Clone, Debug, Default)]
pub struct DataOptions {
    /// The account and region that ARNs name.
    pub account: Account,
    /// The durability of acknowledged writes.
    pub durability: Durability,
    /// The seed of all randomness: the order of standard queues, faults, latencies.
    pub seed: u64,
    /// How many of 1000 messages of standard queues are delivered twice.
    pub twice_per_mille: u16,
    /// The sequence of deliberate kills.
    pub deaths: Vec<DeliberateKill>,
    /// The roles that STS issues credentials for.
    pub roles: Vec<AssumableRole>,
}

/// Marks a response that must not arrive: the server closes the connection instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLost;

/// The data services of one data directory behind a common entry point.
pub struct Front {
    keys: Arc<KeyRing>,
    authorizer: Arc<RwLock<Arc<dyn Authorizer>>>,
    meter: Meter,
    faults: Arc<CallFaults>,
    deaths: Deaths,
    dynamo: Arc<Dynamo>,
    s3: S3,
    sqs: Arc<Sqs>,
    kms: Arc<Kms>,
    sts: Arc<Sts>,
    extras: RwLock<BTreeMap<String, Arc<dyn Extra>>>,
}

impl Front {
    /// Opens or creates the services' data in `directory`. All calls are allowed until
    /// [`set_authorizer`](Self::set_authorizer), and there is no access key until one is added to
    /// [`keys`](Self::keys). Nothing listens on a socket yet.
    ///
    /// # Errors
    /// [`StoreError`] when the directory cannot be used.
    pub fn open(directory: &Path, options: DataOptions) -> Result<Arc<Self>, StoreError> {
        let DataOptions { account, durability, seed, twice_per_mille, deaths, roles } = options;
        let keys = Arc::new(KeyRing::default());
        let everything: Arc<dyn Authorizer> = Arc::new(AllowAll);
        let authorizer = Arc::new(RwLock::new(everything));
        let faults = Arc::new(CallFaults::new(seed));
        let policies: s3::Policies = {
            let authorizer = Arc::clone(&authorizer);
            Arc::new(move || current(&authorizer))
        };
        let dynamo = Dynamo::open(
            &directory.join("dynamodb"),
            account.clone(),
            Arc::clone(&faults),
            durability,
        )?;
        let s3 = S3::open(&directory.join("s3"), Arc::clone(&keys), policies, durability)?;
        let sqs =
            Sqs::open(&directory.join("sqs"), account.clone(), durability, seed, twice_per_mille)?;
        let kms = Kms::open(&directory.join("kms"), account)?;
        let sts = Arc::new(Sts::new(Arc::clone(&keys), roles));
        let as_extra: Arc<dyn Extra> = sts.clone();
        Ok(Arc::new(Self {
            keys,
            authorizer,
            meter: Meter::default(),
            faults,
            deaths: Deaths::new(deaths),
            dynamo: Arc::new(dynamo),
            s3,
            sqs: Arc::new(sqs),
            kms: Arc::new(kms),
            sts,
            extras: RwLock::new(BTreeMap::from([("sts".to_owned(), as_extra)])),
        }))
    }

    /// Returns the known access keys, to which others can be added.
    #[must_use]
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Returns the counts of all calls.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns the faults, which can be switched on and off while calls are answered.
    #[must_use]
    pub fn faults(&self) -> &CallFaults {
        &self.faults
    }

    /// Returns the remaining deliberate kills.
    #[must_use]
    pub fn deaths(&self) -> &Deaths {
        &self.deaths
    }

    /// Returns the DynamoDB tables.
    #[must_use]
    pub fn dynamo(&self) -> &Dynamo {
        &self.dynamo
    }

    /// Returns the S3 buckets.
    #[must_use]
    pub fn s3(&self) -> &S3 {
        &self.s3
    }

    /// Returns the SQS queues.
    #[must_use]
    pub fn sqs(&self) -> &Arc<Sqs> {
        &self.sqs
    }

    /// Returns the KMS keys.
    #[must_use]
    pub fn kms(&self) -> &Kms {
        &self.kms
    }

    /// Adds roles that STS issues credentials for.
    pub fn add_roles(&self, roles: impl IntoIterator<Item = AssumableRole>) {
        self.sts.add_roles(roles);
    }

    /// Sets what decides about permissions in all following calls, in place of the previous one.
    pub fn set_authorizer(&self, authorizer: Arc<dyn Authorizer>) {
        *self.authorizer.write().unwrap_or_else(PoisonError::into_inner) = authorizer;
    }

    /// Adds a service under its name in signatures, for example `ec2`, or replaces the one of that
    /// name.
    pub fn add(&self, scope: impl Into<String>, extra: Arc<dyn Extra>) {
        self.extras.write().unwrap_or_else(PoisonError::into_inner).insert(scope.into(), extra);
    }

    /// Answers one signed request of any service, with the faults and deliberate kills for the
    /// principal whose key it names. Counts the call in the meter, also if an injected error
    /// replaces it. Not counted is a call whose caller is killed before it or whose signature is
    /// refused (at S3 only if the status is then 403). An unsigned request, or one to an unknown
    /// service, is answered with an error before anything else. Errors and kills after the effect
    /// apply only to calls that succeeded. A response marked with [`ConnectionLost`] must not be
    /// sent.
    pub async fn call(&self, request: Request<Bytes>) -> Response<Bytes> {
        let Some(scope) = sigv4::scope(&request) else {
            return unsigned(&request);
        };
        let service = Service::from_scope(&scope.service);
        let Some(operation) = self.operation(&service, &request) else {
            return unknown_service(&scope.service);
        };
        // Who it claims to be; a call is counted only for who it proved to be.
        let claimed = self.keys.owner(&scope.access_key_id);
        let principal = claimed.unwrap_or_else(|| Principal::new("unknown"));
        let struck = self.faults.strike(&principal, &service, &operation);
        if !struck.wait.is_zero() {
            tokio::time::sleep(struck.wait).await;
        }
        if self.deaths.strike(Moment::Before, &principal, &operation, &request) {
            return injected(&service, &operation, &InjectedError::ConnectionLost, b"");
        }
        let bytes_in = request.body().len() as u64;
        let body = request.body().clone();
        let asked = copy_for_kill(&request);
        let (response, usage) = match &struck.before {
            Some(failure) => {
                (injected(&service, &operation, failure, &body), Some(Usage::default()))
            }
            None => self.answer(&service, &operation, request).await,
        };
        let (status, bytes_out) = (response.status().as_u16(), response.body().len() as u64);
        if let Some(usage) = usage {
            let operation = operation.as_str();
            self.meter.record(&Call {
                principal: &principal,
                service: &service,
                operation,
                status,
                bytes_in,
                bytes_out,
                usage,
            });
        }
        if response.status().is_success()
            && self.deaths.strike(Moment::After, &principal, &operation, &asked)
        {
            return injected(&service, &operation, &InjectedError::ConnectionLost, b"");
        }
        match &struck.after {
            Some(failure) if response.status().is_success() => {
                injected(&service, &operation, failure, &body)
            }
            _ => response,
        }
    }

    /// Returns the name of the operation that a request calls, empty if it names none; `None` for
    /// an unknown service. The operation need not exist.
    fn operation(&self, service: &Service, request: &Request<Bytes>) -> Option<String> {
        let target = |prefix: &str| {
            let target = request
                .headers()
                .get("x-amz-target")
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default();
            Some(target.strip_prefix(prefix).unwrap_or_default().to_owned())
        };
        match service {
            Service::DynamoDb => target(dynamo::TARGET_PREFIX),
            Service::Sqs => target(sqs::TARGET_PREFIX),
            Service::Kms => target(kms::TARGET_PREFIX),
            Service::S3 => Some(s3::operation(request).to_owned()),
            Service::Other(name) => Some(self.extra(name)?.operation(request)),
        }
    }

    /// Returns an added service by its name in signatures; `None` if there is none.
    fn extra(&self, name: &str) -> Option<Arc<dyn Extra>> {
        self.extras.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Verifies the signature, passes a request to its service and returns the response and what
    /// the call used. No usage if the signature is refused, because no one is charged for such a
    /// call. A call to S3 whose signature was not verified has none only if the status is 403; any
    /// other response counts. `operation` is the one that [`Self::operation`] returned. Faults are
    /// not applied here.
    async fn answer(
        &self,
        service: &Service,
        operation: &str,
        request: Request<Bytes>,
    ) -> (Response<Bytes>, Option<Usage>) {
        let once = Usage { billed_requests: 1, ..Usage::default() };
        if *service == Service::S3 {
            let (response, proven) = self.s3.call(request).await;
            // Whom a policy refuses has proved who it is, and S3 bills an account for its own
            // refused calls, too.
            let counts =
                proven == s3::Proven::Yes || response.status() != http::StatusCode::FORBIDDEN;
            return (response, counts.then_some(once));
        }
        let now_seconds = i64::try_from(now_ms() / 1000).unwrap_or(i64::MAX);
        let caller = match sigv4::verify(&request, &self.keys, now_seconds) {
            Ok(key) => key.into_caller(current(&self.authorizer)),
            Err(error) => return (refused(service, error), None),
        };
        let body = request.body().clone();
        let (response, usage) = match service {
            Service::DynamoDb => {
                let (dynamo, operation) = (Arc::clone(&self.dynamo), operation.to_owned());
                let work = move || dynamo.call(&operation, &body, &caller);
                match tokio::task::spawn_blocking(work).await {
                    Ok((result, usage)) => (respond(result, dynamo::CONTENT_TYPE), usage),
                    Err(_) => (injected(service, "", &InjectedError::Internal, b""), once),
                }
            }
            Service::Sqs => {
                let (result, usage) = self.sqs.call(operation, &body, &caller).await;
                let result = result.map(|value| value.to_string());
                (respond(result, sqs::CONTENT_TYPE), usage)
            }
            Service::Kms => {
                let result = self.kms.call(operation, &body, &caller);
                (respond(result, kms::CONTENT_TYPE), once)
            }
            Service::S3 => (s3::internal("a request for S3 went astray"), once),
            Service::Other(name) => match self.extra(name) {
                Some(extra) => (extra.call(&caller, request).await, once),
                None => (unknown_service(name), once),
            },
        };
        (response, Some(usage))
    }
}

/// Returns a copy of a request's address and body, without method and headers, because the request
/// itself is passed to its service.
fn copy_for_kill(request: &Request<Bytes>) -> Request<Bytes> {
    let mut copy = Request::new(request.body().clone());
    *copy.uri_mut() = request.uri().clone();
    copy
}

/// Returns the authorizer that is set now.
fn current(authorizer: &RwLock<Arc<dyn Authorizer>>) -> Arc<dyn Authorizer> {
    Arc::clone(&authorizer.read().unwrap_or_else(PoisonError::into_inner))
}

/// Converts the result of a call to a response: the body with status 200, or the error in its own
/// form.
fn respond(result: Result<String, Problem>, content_type: &'static str) -> Response<Bytes> {
    match result {
        Ok(body) => text_response(200, content_type, body),
        Err(problem) => problem.into_response(content_type),
    }
}

/// Returns an injected failure in the service's form; `operation` and `body` are those of the call,
/// which only DynamoDB considers. For an added service every failure is a 500 error. A lost
/// connection is a response that is marked with [`ConnectionLost`] and must not be sent.
fn injected(
    service: &Service,
    operation: &str,
    failure: &InjectedError,
    body: &[u8],
) -> Response<Bytes> {
    let mut response = match service {
        Service::S3 => s3::injected(failure),
        Service::DynamoDb => {
            dynamo::injected(failure, operation, body).into_response(dynamo::CONTENT_TYPE)
        }
        Service::Sqs => sqs::injected(failure).into_response(sqs::CONTENT_TYPE),
        Service::Kms => kms::injected(failure).into_response(kms::CONTENT_TYPE),
        Service::Other(name) => {
            query_error(500, "InternalError", &format!("an injected failure of {name}"))
        }
    };
    if *failure == InjectedError::ConnectionLost {
        response.extensions_mut().insert(ConnectionLost);
    }
    response
}

/// Returns the response to a signature that does not hold, with the code and status that the
/// service has for the reason.
fn refused(service: &Service, error: SignatureError) -> Response<Bytes> {
    let text = error.to_string();
    let kind = match error {
        SignatureError::Missing => "MissingAuthenticationTokenException",
        SignatureError::Incomplete => "IncompleteSignatureException",
        SignatureError::UnknownKey => "UnrecognizedClientException",
        SignatureError::Mismatch | SignatureError::Expired => "InvalidSignatureException",
    };
    match service {
        // DynamoDB answers 400 where the others answer 403.
        Service::DynamoDb => Problem::new(400, format!("com.amazon.coral.service#{kind}"), text)
            .into_response(dynamo::CONTENT_TYPE),
        Service::Sqs => {
            let (kind, code) = match error {
                SignatureError::UnknownKey => ("InvalidClientTokenId", "InvalidClientTokenId"),
                SignatureError::Mismatch | SignatureError::Expired => {
                    ("SignatureDoesNotMatch", "SignatureDoesNotMatch")
                }
                SignatureError::Missing => {
                    ("MissingAuthenticationToken", "MissingAuthenticationToken")
                }
                SignatureError::Incomplete => ("IncompleteSignature", "IncompleteSignature"),
            };
            let mut problem = Problem::new(403, format!("com.amazonaws.sqs#{kind}"), text);
            problem.query_code = Some(code.to_owned());
            problem.into_response(sqs::CONTENT_TYPE)
        }
        Service::Kms => Problem::new(403, kind, text).into_response(kms::CONTENT_TYPE),
        Service::S3 | Service::Other(_) => {
            query_error(403, kind.trim_end_matches("Exception"), &text)
        }
    }
}

/// Answers a request without a signature: as DynamoDB does (400) if it has the header
/// `X-Amz-Target`, otherwise with an XML error (403).
fn unsigned(request: &Request<Bytes>) -> Response<Bytes> {
    match request.headers().contains_key("x-amz-target") {
        true => Problem::new(
            400,
            "com.amazon.coral.service#MissingAuthenticationTokenException",
            SignatureError::Missing.to_string(),
        )
        .into_response(dynamo::CONTENT_TYPE),
        false => query_error(403, "AccessDenied", "Access Denied"),
    }
}

/// Answers a request to a service that the emulator does not have with an XML error and status 404.
fn unknown_service(name: &str) -> Response<Bytes> {
    query_error(404, "UnknownService", &format!("the emulator has no service {name}"))
}

/// Returns an error in the XML form of AWS's query protocol. `message` must be escaped already.
fn query_error(status: u16, code: &str, message: &str) -> Response<Bytes> {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
    );
    text_response(status, "text/xml", body)
}
