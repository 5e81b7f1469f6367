//! Cross-origin rules of buckets: which pages of other origins may read a bucket's objects in a
//! browser. Answers to `GET` and `HEAD` have the headers that browsers look for; preflight requests
//! (`OPTIONS`), which such reads do not need, are not answered.

use http::header::{
    ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::{Method, Request};
use s3s::dto::CORSRule;

/// What of a request decides about cross-origin headers of its answer.
pub(super) struct CrossOriginRead {
    /// The bucket.
    pub bucket: String,
    method: Method,
    origin: String,
}

impl CrossOriginRead {
    /// Returns what a request reads for a page of another origin; `None` if it names no origin, or
    /// no bucket, or is no `GET` or `HEAD`.
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let method = request.method().clone();
        let origin = request.headers().get(ORIGIN)?.to_str().ok()?.to_owned();
        let bucket = request.uri().path().trim_start_matches('/').split('/').next()?.to_owned();
        let is_read = matches!(method, Method::GET | Method::HEAD) && !bucket.is_empty();
        is_read.then_some(Self { bucket, method, origin })
    }

    /// Adds to an answer's headers what the first rule that allows this read says; nothing if none
    /// does.
    pub fn allow(&self, rules: &[CORSRule], headers: &mut HeaderMap) {
        let origins = |rule: &CORSRule| {
            rule.allowed_origins.iter().find(|origin| matches(origin, &self.origin)).cloned()
        };
        let has_method =
            |rule: &&CORSRule| rule.allowed_methods.iter().any(|one| one == self.method.as_str());
        let found = rules.iter().filter(has_method).find_map(|rule| Some((rule, origins(rule)?)));
        let Some((rule, allowed)) = found else { return };
        let origin = if allowed == "*" { "*" } else { self.origin.as_str() };
        let methods = rule.allowed_methods.join(", ");
        let exposed = rule.expose_headers.as_deref().unwrap_or_default().join(", ");
        let entries = [
            (ACCESS_CONTROL_ALLOW_ORIGIN, origin),
            (ACCESS_CONTROL_ALLOW_METHODS, methods.as_str()),
            (ACCESS_CONTROL_EXPOSE_HEADERS, exposed.as_str()),
            (VARY, "Origin"),
        ];
        for (name, value) in entries {
            if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_str(value)) {
                headers.append(name, value);
            }
        }
    }
}

/// Returns whether an origin matches a rule's, in which one `*` stands for any text.
fn matches(rule: &str, origin: &str) -> bool {
    match rule.split_once('*') {
        None => rule == origin,
        Some((before, after)) => {
            origin.len() >= before.len() + after.len()
                && origin.starts_with(before)
                && origin.ends_with(after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_an_origin_matches_any_text_once() {
        for (rule, origin, expected) in [
            ("*", "https://a.test", true),
            ("https://*.test", "https://a.test", true),
            ("https://*.test", "http://a.test", false),
            ("https://a.test", "https://a.test", true),
            ("https://a.test", "https://a.test.evil", false),
            ("aa*aa", "aaa", false),
        ] {
            assert_eq!(matches(rule, origin), expected, "{rule} {origin}");
        }
    }
}
