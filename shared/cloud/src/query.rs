//! Signed calls of AWS's Query API, which EC2 and STS have in common.

use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use quick_xml::de::from_str;
use serde::Deserialize;
use std::time::{Duration, SystemTime};
use url::Url;

/// The maximum size of an answer in bytes.
const ANSWER_MAX: usize = 32 * 1024 * 1024;

/// A service with a Query API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueryService {
    /// Its name in signatures and host names.
    pub(crate) name: &'static str,
    /// The API version of our calls.
    pub(crate) version: &'static str,
}

/// EC2.
pub(crate) const EC2: QueryService = QueryService { name: "ec2", version: "2016-11-15" };
/// STS, which issues temporary credentials.
pub(crate) const STS: QueryService = QueryService { name: "sts", version: "2011-06-15" };

impl QueryService {
    /// Returns Amazon's address of the service in a region.
    fn address(self, region: &str) -> String {
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        format!("https://{}.{region}.{suffix}/", self.name)
    }
}

/// The parameters of a call.
pub(crate) struct QueryForm {
    action: &'static str,
    pairs: Vec<(String, String)>,
}

impl QueryForm {
    /// Returns the form of a call with only its action.
    pub(crate) fn new(action: &'static str) -> Self {
        Self { action, pairs: vec![("Action".to_owned(), action.to_owned())] }
    }

    /// Appends a parameter; one of the same name is not replaced.
    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.pairs.push((name.into(), value.into()));
    }

    /// Appends the parameters `name.1`, `name.2` and so on; none if there are no values.
    pub(crate) fn list(&mut self, name: &str, values: &[String]) {
        for (number, value) in values.iter().enumerate() {
            self.set(format!("{name}.{}", number + 1), value);
        }
    }

    /// Returns the parameters and the API version URL-encoded, as the body of a POST.
    fn body(&self, service: QueryService) -> String {
        url::form_urlencoded::Serializer::new(String::new())
            .append_pair("Version", service.version)
            .extend_pairs(&self.pairs)
            .finish()
    }
}

/// How a call failed.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// The service refused the call.
    Refused { status: u16, code: String, message: String },
    /// The call was not sent, or its outcome is unknown.
    Unanswered(String),
}

/// The error of a service in XML: EC2 has it in a list, STS has it alone.
#[derive(Deserialize)]
struct ErrorResponse {
    #[serde(rename = "Errors")]
    errors: Option<Errors>,
    #[serde(rename = "Error")]
    error: Option<OneError>,
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

/// Sends calls to one service.
#[derive(Debug, Clone)]
pub(crate) struct QueryClient {
    service: QueryService,
    /// An endpoint other than Amazon's, for all regions.
    endpoint: Option<Url>,
    credentials: SharedCredentialsProvider,
    http: reqwest::Client,
}

impl QueryClient {
    /// Creates a client without calling the service or checking the credentials. Its calls time out
    /// after 30 seconds, and are not repeated. The error says why no HTTP client can be made.
    pub(crate) fn new(
        service: QueryService,
        endpoint: Option<Url>,
        credentials: SharedCredentialsProvider,
    ) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(30))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { service, endpoint, credentials, http })
    }

    /// Sends one signed call to the service in a region, once, and returns the body of the answer,
    /// undecoded. An answer other than success is `Refused`, with the service's code and message,
    /// or with the HTTP status as the code if there is none. `Unanswered` are a call that cannot be
    /// signed or sent, one without an answer, and an answer of more than 32 MiB.
    pub(crate) async fn call(&self, region: &str, form: &QueryForm) -> Result<String, CallFailure> {
        let unanswered = |context: &str, error: &dyn std::fmt::Display| {
            CallFailure::Unanswered(format!("{context}: {error}"))
        };
        let request = self.signed(region, form).await?;
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
        let refusal = from_str::<ErrorResponse>(&body)
            .ok()
            .and_then(|refusal| refusal.errors.map(|errors| errors.error).or(refusal.error));
        let (code, message) = refusal.map_or_else(
            || (format!("HTTP {}", status.as_u16()), String::new()),
            |refusal| (refusal.code, refusal.message),
        );
        let service = self.service.name;
        tracing::debug!(service, action = form.action, code, "a call was refused");
        Err(CallFailure::Refused { status: status.as_u16(), code, message })
    }

    /// Returns the signed request of a call, to the service's endpoint in the region or to the
    /// client's own. An error, always `Unanswered`, if there are no credentials or the endpoint
    /// cannot be used. Sends nothing to the service.
    async fn signed(
        &self,
        region: &str,
        form: &QueryForm,
    ) -> Result<http::Request<String>, CallFailure> {
        let unanswered = |context: &str, error: &dyn std::fmt::Display| {
            CallFailure::Unanswered(format!("{context}: {error}"))
        };
        let url = match &self.endpoint {
            Some(url) => url.to_string(),
            None => self.service.address(region),
        };
        let credentials =
            self.credentials.provide_credentials().await.map_err(|error| {
                unanswered("there are no AWS credentials", &with_causes(&error))
            })?;
        let identity = credentials.into();
        let mut request = http::Request::post(&url)
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded; charset=utf-8")
            .body(form.body(self.service))
            .map_err(|error| unanswered("the endpoint's URL cannot be used", &error))?;
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(region)
            .name(self.service.name)
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

/// Returns an error with the errors that caused it, since that of a credentials provider names no
/// cause itself.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L3.5, L3.8: each region has an endpoint of its own.
    #[test]
    fn the_endpoint_of_a_service_is_that_of_the_region() {
        assert_eq!(EC2.address("eu-west-1"), "https://ec2.eu-west-1.amazonaws.com/");
        assert_eq!(STS.address("us-gov-west-1"), "https://sts.us-gov-west-1.amazonaws.com/");
        assert_eq!(EC2.address("cn-north-1"), "https://ec2.cn-north-1.amazonaws.com.cn/");
    }

    /// L3.5
    #[test]
    fn the_errors_of_both_services_are_read() {
        let code = |text: &str| {
            let found: ErrorResponse = from_str(text).unwrap();
            found.errors.map(|errors| errors.error).or(found.error).unwrap().code
        };
        let error = "<Error><Code>Why</Code><Message>no</Message></Error>";
        assert_eq!(code(&format!("<Response><Errors>{error}</Errors></Response>")), "Why");
        let sts = format!("<ErrorResponse>{error}<RequestId>1</RequestId></ErrorResponse>");
        assert_eq!(code(&sts), "Why");
    }
}
