//! One signed call of the Query API, and what its failure means.

use super::Ec2Driver;
use crate::driver::CloudError;
use aws_credential_types::provider::ProvideCredentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use quick_xml::de::from_str;
use serde::Deserialize;
use std::time::SystemTime;

/// The version of the API that our calls are written in.
const VERSION: &str = "2016-11-15";
/// Bytes of an answer.
const ANSWER_MAX: usize = 32 * 1024 * 1024;

/// How the codes begin that say that what was asked for does not exist or makes no sense.
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

/// A call's parameters.
pub(super) struct Form {
    action: &'static str,
    pairs: Vec<(String, String)>,
}

impl Form {
    pub(super) fn new(action: &'static str) -> Self {
        let pairs = vec![
            ("Action".to_owned(), action.to_owned()),
            ("Version".to_owned(), VERSION.to_owned()),
        ];
        Self { action, pairs }
    }

    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.pairs.push((name.into(), value.into()));
    }

    /// Sets `name.1`, `name.2` and so on.
    pub(super) fn list(&mut self, name: &str, values: &[String]) {
        for (number, value) in values.iter().enumerate() {
            self.set(format!("{name}.{}", number + 1), value);
        }
    }

    fn body(&self) -> String {
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.pairs).finish()
    }
}

/// How a call failed.
#[derive(Debug)]
pub(super) enum Outcome {
    /// EC2 refused it.
    Refused { status: u16, code: String, message: String },
    /// It was not sent, or nothing is known of it.
    Lost(String),
}

impl Outcome {
    pub(super) fn is_missing_instance(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "InvalidInstanceID.NotFound")
    }

    /// Sorts the failure: only a closed list of codes is final, everything else is tried again.
    pub(super) fn into_error(self, attempt: String) -> CloudError {
        let (status, code, message) = match self {
            Self::Lost(why) => return CloudError::Unknown { attempt, why },
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
            // `InvalidSignature` and its like are not among them: credentials and clocks are mended
            // without a new request.
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
struct Refusal {
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
    /// Sends one call and returns the answer's body.
    pub(super) async fn call(&self, form: &Form) -> Result<String, Outcome> {
        let lost =
            |what: &str, error: &dyn std::fmt::Display| Outcome::Lost(format!("{what}: {error}"));
        let request = self.signed(form).await?;
        let request = reqwest::Request::try_from(request)
            .map_err(|error| lost("the request cannot be sent", &error))?;
        let mut response = self
            .http
            .execute(request)
            .await
            .map_err(|error| lost("no answer", &error.without_url()))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| lost("the answer broke off", &error.without_url()))?
        {
            if body.len() + chunk.len() > ANSWER_MAX {
                return Err(Outcome::Lost(format!("the answer is longer than {ANSWER_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            return Ok(body);
        }
        let refusal: Option<Refusal> = from_str(&body).ok();
        let (code, message) = refusal.map_or_else(
            || (format!("HTTP {}", status.as_u16()), String::new()),
            |refusal| (refusal.errors.error.code, refusal.errors.error.message),
        );
        tracing::debug!(action = form.action, status = status.as_u16(), code, "EC2 refused a call");
        Err(Outcome::Refused { status: status.as_u16(), code, message })
    }

    async fn signed(&self, form: &Form) -> Result<http::Request<String>, Outcome> {
        let lost =
            |what: &str, error: &dyn std::fmt::Display| Outcome::Lost(format!("{what}: {error}"));
        let url = match &self.settings.endpoint {
            Some(url) => url.to_string(),
            None => format!("https://ec2.{}.amazonaws.com/", self.settings.region),
        };
        let credentials = self
            .credentials
            .provide_credentials()
            .await
            .map_err(|error| lost("there are no AWS credentials", &error))?;
        let identity = credentials.into();
        let body = form.body();
        let mut request = http::Request::post(&url)
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded; charset=utf-8")
            .body(body)
            .map_err(|error| lost("the endpoint's URL cannot be used", &error))?;
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.settings.region)
            .name("ec2")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| lost("the request cannot be signed", &error))?
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
        .map_err(|error| lost("the request cannot be signed", &error))?;
        let (instructions, _) = sign(signable, &parameters)
            .map_err(|error| lost("the request cannot be signed", &error))?
            .into_parts();
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;
    use crate::driver::CloudError;

    fn sort(status: u16, code: &str) -> CloudError {
        Outcome::Refused { status, code: code.into(), message: String::new() }
            .into_error(String::new())
    }

    /// Z1.6
    #[test]
    fn only_a_closed_list_of_codes_is_permanent() {
        assert!(matches!(sort(400, "InvalidAMIID.NotFound"), CloudError::Permanent { .. }));
        assert!(matches!(sort(400, "InstanceLimitExceeded"), CloudError::Quota { .. }));
        assert!(matches!(sort(500, "InsufficientInstanceCapacity"), CloudError::NoCapacity { .. }));
        assert!(matches!(sort(400, "IdempotentParameterMismatch"), CloudError::TokenTaken { .. }));
        assert!(matches!(
            sort(503, "RequestLimitExceeded"),
            CloudError::Transient { retry_after_seconds: 5, .. }
        ));
        assert!(matches!(sort(401, "AuthFailure"), CloudError::Unknown { .. }));
        assert!(matches!(sort(403, "InvalidSignature"), CloudError::Unknown { .. }));
        assert!(matches!(sort(502, "HTTP 502"), CloudError::Unknown { .. }));
    }
}
