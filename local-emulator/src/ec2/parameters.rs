//! The parameters of a Query call, and its errors.

use super::answer;
use crate::data::credential_scope;
use bytes::Bytes;
use http::{Method, Request, Response};
use std::collections::BTreeMap;

/// A call's parameters by name, and the region that it is for.
pub(super) struct Parameters {
    by_name: BTreeMap<String, String>,
    region: String,
}

/// An error of the Query API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    status: u16,
    code: String,
    message: String,
}

impl Refusal {
    /// Returns an error with a status, code and message.
    pub(super) fn new(status: u16, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status, code: code.into(), message: message.into() }
    }

    /// Converts the error to a response with its status, in EC2's XML form.
    pub(super) fn into_response(self) -> Response<Bytes> {
        let (code, message) = (answer::escape(&self.code), answer::escape(&self.message));
        let body = format!(
            "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>local</RequestID></Response>"
        );
        answer::xml(self.status, body)
    }
}

impl Parameters {
    /// Reads the parameters from the form in the body, or from the query of a GET request, and the
    /// region from the signature. An error if the version of the API is missing or not 2016-11-15.
    /// The action is not checked.
    pub(super) fn read(request: &Request<Bytes>) -> Result<Self, Refusal> {
        let text = match *request.method() {
            Method::GET => request.uri().query().unwrap_or_default().as_bytes(),
            _ => request.body(),
        };
        let all: BTreeMap<String, String> =
            url::form_urlencoded::parse(text).into_owned().collect();
        match all.get("Version").map(String::as_str) {
            Some("2016-11-15") => {
                let region = credential_scope(request).map(|scope| scope.region);
                Ok(Self { by_name: all, region: region.unwrap_or_default() })
            }
            _ => Err(Refusal::new(
                400,
                "InvalidParameterValue",
                "the version of the API must be 2016-11-15",
            )),
        }
    }

    /// Returns the region that the call is signed for, which is the one that it is for; empty
    /// without a signature.
    pub(super) fn region(&self) -> &str {
        &self.region
    }

    /// Returns the action that the request calls; empty if it names none.
    pub(super) fn action(&self) -> &str {
        self.get("Action").unwrap_or_default()
    }

    /// Returns a parameter; `None` if it is missing or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns a required parameter; an error if it is missing or empty.
    pub(super) fn need(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name).ok_or_else(|| {
            Refusal::new(
                400,
                "MissingParameter",
                format!("The request must contain the parameter {name}"),
            )
        })
    }

    /// Returns a parameter as a number; `None` if it is missing or empty, an error if it is no
    /// `u32`.
    pub(super) fn number(&self, name: &str) -> Result<Option<u32>, Refusal> {
        let parse = |text: &str| {
            let wrong = || {
                Refusal::new(
                    400,
                    "InvalidParameterValue",
                    format!("{name} must be a number, not {text}"),
                )
            };
            text.parse().map_err(|_| wrong())
        };
        self.get(name).map(parse).transpose()
    }

    /// Returns the values of the parameters `name.1`, `name.2` and so on, up to the first that is
    /// missing.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        (1..)
            .map_while(|number| self.by_name.get(&format!("{name}.{number}")))
            .map(String::as_str)
            .collect()
    }

    /// Returns the tags in the parameters `prefix.1.Key`, `prefix.1.Value` and so on, up to the
    /// first key that is missing. A missing value is empty.
    pub(super) fn tags(&self, prefix: &str) -> BTreeMap<String, String> {
        let pair = |number: u32| {
            let key = self.by_name.get(&format!("{prefix}.{number}.Key"))?;
            let value =
                self.by_name.get(&format!("{prefix}.{number}.Value")).cloned().unwrap_or_default();
            Some((key.clone(), value))
        };
        (1..).map_while(pair).collect()
    }

    /// Returns a digest of all parameters, which must be equal in two calls with the same client
    /// token.
    pub(super) fn fingerprint(&self) -> String {
        let text: Vec<String> =
            self.by_name.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect();
        sluice_model::id::digest(&text.iter().map(String::as_str).collect::<Vec<_>>())
    }
}
