//! One signed call of EC2's Query API, and the classification of its failure.

use super::Ec2Driver;
use crate::driver::CloudError;
use aws_credential_types::provider::ProvideCredentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use quick_xml::de::from_str;
use serde::Deserialize;
use std::time::SystemTime;

/// The API version of our calls.
const VERSION: &str = "2016-11-15";
/// The maximum size of an answer in bytes.
const ANSWER_MAX: usize = 32 * 1024 * 1024;

/// Prefixes of error codes that mean an invalid parameter or a missing object.
const FINAL: [&str; 10] = [
    "InvalidAMIID",
    "InvalidParameter",
    "InvalidSubnet",
    "InvalidGroup",
    "InvalidSecurityGroupID",
    "InvalidKeyPair",
    "InvalidInstanceType",
    "InvalidBlockDeviceMapping",
    "InvalidUserData",
    "InvalidAvailabilityZone",
];

/// The parameters of a call.
pub(super) struct QueryForm {
    action: &'static str,
    pairs: Vec<(String, String)>,
}

impl QueryForm {
    /// Returns the form of a call with only its action and the API version.
    pub(super) fn new(action: &'static str) -> Self {
        let pairs = vec![
            ("Action".to_owned(), action.to_owned()),
            ("Version".to_owned(), VERSION.to_owned()),
        ];
        Self { action, pairs }
    }

    /// Appends a parameter; one of the same name is not replaced.
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.pairs.push((name.into(), value.into()));
    }

    /// Appends the parameters `name.1`, `name.2` and so on; none if there are no values.
    pub(super) fn list(&mut self, name: &str, values: &[String]) {
        for (number, value) in values.iter().enumerate() {
            self.set(format!("{name}.{}", number + 1), value);
        }
    }

    /// Returns the parameters URL-encoded, as the body of a POST.
    fn body(&self) -> String {
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.pairs).finish()
    }
}

/// How a call failed.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// EC2 refused the call.
    Refused { status: u16, code: String, message: String },
    /// The call was not sent, or its outcome is unknown.
    Unanswered(String),
}

impl CallFailure {
    /// Returns whether EC2 refused the call because a machine does not exist.
    pub(super) fn is_missing_instance(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "InvalidInstanceID.NotFound")
    }

    /// Classifies the failure of a call. `attempt` is what was attempted, after "could not", for
    /// the message. Only a closed list of EC2's codes is permanent; other codes mean quota,
    /// capacity, a token of another launch, or a later attempt after 2 or 5 seconds. Everything
    /// else, and an unanswered call, has an unknown outcome.
    pub(super) fn into_error(self, attempt: String) -> CloudError {
        let (status, code, message) = match self {
            Self::Unanswered(why) => return CloudError::Unknown { attempt, why },
            Self::Refused { status, code, message } => (status, code, message),
        };
        let why = format!("{code}: {message}");
        match code.as_str() {
            "InstanceLimitExceeded"
            | "VcpuLimitExceeded"
            | "VolumeLimitExceeded"
            | "MaxSpotInstanceCountExceeded" => CloudError::Quota { attempt, why },
            "InsufficientInstanceCapacity"
            | "InsufficientHostCapacity"
            | "InsufficientCapacity"
            | "InsufficientFreeAddressesInSubnet" => CloudError::NoCapacity { attempt, why },
            "IdempotentParameterMismatch" | "IdempotentInstanceTerminated" => {
                CloudError::TokenTaken { attempt, why }
            }
            "UnauthorizedOperation"
            | "OptInRequired"
            | "MissingParameter"
            | "Unsupported"
            | "UnsupportedOperation" => CloudError::Permanent { attempt, why },
            // `InvalidSignature` and similar codes are excluded: credentials and clocks are
            // repaired without a new request.
            code if FINAL.iter().any(|start| code.starts_with(start)) => {
                CloudError::Permanent { attempt, why }
            }
            "RequestLimitExceeded" | "Throttling" | "ThrottlingException" => {
                CloudError::Transient { attempt, why, retry_after_seconds: 5 }
            }
            "InternalError" | "InternalFailure" | "Unavailable" | "ServiceUnavailable" => {
                CloudError::Transient { attempt, why, retry_after_seconds: 2 }
            }
            _ if status == 503 => CloudError::Transient { attempt, why, retry_after_seconds: 2 },
            _ => CloudError::Unknown { attempt, why },
        }
    }
}

#[derive(Deserialize)]
struct ErrorResponse {
    #[serde(rename = "Errors")]
    errors: Errors,
}

#[derive(Deserialize)]
struct Errors {
    #[serde(rename = "Error")]
    error: OneError,
}

#[derive(Deserialize)]
struct OneError {
    #[serde(rename = "Code")]
    code: String,
    #[serde(rename = "Message", default)]
    message: String,
}

impl Ec2Driver {
    /// Sends one signed call, once, and returns the body of the answer, undecoded. An answer other
    /// than success is `Refused`, with EC2's code and message, or with the HTTP status as the code
    /// if there is none. `Unanswered` are a call that cannot be signed or sent, one without an
    /// answer, and an answer of more than 32 MiB.
    pub(super) async fn call(&self, form: &QueryForm) -> Result<String, CallFailure> {
        let unanswered = |context: &str, error: &dyn std::fmt::Display| {
            CallFailure::Unanswered(format!("{context}: {error}"))
        };
        let request = self.signed(form).await?;
        let request = reqwest::Request::try_from(request)
            .map_err(|error| unanswered("the request cannot be sent", &error))?;
        let mut response = self
            .http
            .execute(request)
            .await
            .map_err(|error| unanswered("no answer", &error.without_url()))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| unanswered("the answer broke off", &error.without_url()))?
        {
            if body.len() + chunk.len() > ANSWER_MAX {
                return Err(CallFailure::Unanswered(format!(
                    "the answer is longer than {ANSWER_MAX} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            return Ok(body);
        }
        let refusal: Option<ErrorResponse> = from_str(&body).ok();
        let (code, message) = refusal.map_or_else(
            || (format!("HTTP {}", status.as_u16()), String::new()),
            |refusal| (refusal.errors.error.code, refusal.errors.error.message),
        );
        tracing::debug!(action = form.action, status = status.as_u16(), code, "EC2 refused a call");
        Err(CallFailure::Refused { status: status.as_u16(), code, message })
    }

    /// Returns the signed request of a call, to EC2's endpoint in the region or to the one in the
    /// settings. An error, always `Unanswered`, if there are no AWS credentials or the endpoint
    /// cannot be used. Sends nothing.
    async fn signed(&self, form: &QueryForm) -> Result<http::Request<String>, CallFailure> {
        let unanswered = |context: &str, error: &dyn std::fmt::Display| {
            CallFailure::Unanswered(format!("{context}: {error}"))
        };
        let url = match &self.settings.endpoint {
            Some(url) => url.to_string(),
            None => format!("https://ec2.{}.amazonaws.com/", self.settings.region),
        };
        let credentials = self
            .credentials
            .provide_credentials()
            .await
            .map_err(|error| unanswered("there are no AWS credentials", &error))?;
        let identity = credentials.into();
        let body = form.body();
        let mut request = http::Request::post(&url)
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded; charset=utf-8")
            .body(body)
            .map_err(|error| unanswered("the endpoint's URL cannot be used", &error))?;
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.settings.region)
            .name("ec2")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| unanswered("the request cannot be signed", &error))?
            .into();
        let headers = request
            .headers()
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let signable = SignableRequest::new(
            "POST",
            &url,
            headers,
            SignableBody::Bytes(request.body().as_bytes()),
        )
        .map_err(|error| unanswered("the request cannot be signed", &error))?;
        let (instructions, _) = sign(signable, &parameters)
            .map_err(|error| unanswered("the request cannot be signed", &error))?
            .into_parts();
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::CallFailure;
    use crate::driver::CloudError;

    fn classify(status: u16, code: &str) -> CloudError {
        CallFailure::Refused { status, code: code.into(), message: String::new() }
            .into_error(String::new())
    }

    /// Z1.6
    #[test]
    fn only_a_closed_list_of_codes_is_permanent() {
        assert!(matches!(classify(400, "InvalidAMIID.NotFound"), CloudError::Permanent { .. }));
        assert!(matches!(classify(400, "InstanceLimitExceeded"), CloudError::Quota { .. }));
        assert!(matches!(
            classify(500, "InsufficientInstanceCapacity"),
            CloudError::NoCapacity { .. }
        ));
        assert!(matches!(
            classify(400, "IdempotentParameterMismatch"),
            CloudError::TokenTaken { .. }
        ));
        assert!(matches!(
            classify(503, "RequestLimitExceeded"),
            CloudError::Transient { retry_after_seconds: 5, .. }
        ));
        assert!(matches!(classify(401, "AuthFailure"), CloudError::Unknown { .. }));
        assert!(matches!(classify(403, "InvalidSignature"), CloudError::Unknown { .. }));
        assert!(matches!(classify(502, "HTTP 502"), CloudError::Unknown { .. }));
    }
}
