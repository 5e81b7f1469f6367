//! A parsed API request: its decoded path, its parameters and its byte range.

use crate::openapi;
use crate::reply::ErrorResponse;
use bytes::Bytes;
use http::{Method, Request, header};

/// The maximum number of query parameters.
const PARAMETERS_MAX: usize = 100;

/// The maximum number of records on one page of a list.
pub(crate) const PAGE_MAX: usize = 1_000;

/// The maximum number of records to skip before a page.
pub(crate) const SKIP_MAX: usize = 10_000;

/// The last part of the only path that is read with POST: its query has a body.
const POST_QUERY: &str = "freeze-pipeline";

/// The maximum size of the body of a request that changes something, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// A request, not yet routed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiRequest {
    /// The decoded parts of the path; empty parts are dropped.
    pub(crate) parts: Vec<String>,
    /// The decoded parameters, in order.
    pub(crate) parameters: Vec<(String, String)>,
    /// The requested first and last byte; `None` as last byte means the end.
    pub(crate) range: Option<(u64, Option<u64>)>,
    /// Whether the client prefers HTML over JSON.
    pub(crate) accepts_html: bool,
    /// The body of a POST query and of a request that changes something; `None` for others.
    pub(crate) body: Option<Bytes>,
    /// Whether the client only asks for the headers (`HEAD`).
    pub(crate) is_head: bool,
    /// What a request that changes something does; `None` for one that reads.
    pub(crate) write: Option<WriteMethod>,
}

/// The methods of requests that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteMethod {
    /// Gives a command.
    Post,
    /// Changes a state.
    Put,
    /// Deletes something.
    Delete,
}

/// The requested page of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRange {
    /// The maximum number of records.
    pub(crate) limit: usize,
    /// The number of records to skip.
    pub(crate) skip: usize,
}

impl ApiRequest {
    /// Parses a request. The error is 405 for an unknown method, and for a POST query that is sent
    /// with GET; 400 for more than [`PARAMETERS_MAX`] parameters, 413 for a body of more than
    /// [`BODY_BYTES_MAX`] bytes. A POST query that is sent with HEAD has no body. An invalid byte
    /// range is ignored.
    pub(crate) fn read(request: &Request<Bytes>) -> Result<Self, ErrorResponse> {
        let parts: Vec<String> = request
            .uri()
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .map(decode_path_part)
            .collect();
        let is_post_query = parts.last().is_some_and(|last| last == POST_QUERY);
        let write = match *request.method() {
            Method::POST if is_post_query => None,
            Method::POST => Some(WriteMethod::Post),
            Method::PUT => Some(WriteMethod::Put),
            Method::DELETE => Some(WriteMethod::Delete),
            Method::GET if is_post_query => return Err(ErrorResponse::PostOnly),
            Method::GET | Method::HEAD => None,
            _ => {
                let allowed = openapi::methods(request.uri().path());
                return Err(ErrorResponse::Method { allowed });
            }
        };
        if request.body().len() > BODY_BYTES_MAX {
            let why = format!("The body of a request has at most {BODY_BYTES_MAX} bytes.");
            return Err(ErrorResponse::TooLarge { why });
        }
        let has_body = is_post_query && request.method() == Method::POST || write.is_some();
        let body = has_body.then(|| request.body().clone());
        let query = request.uri().query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let parameters: Vec<_> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decode_form_text(name), decode_form_text(value)))
            .take(PARAMETERS_MAX + 1)
            .collect();
        if parameters.len() > PARAMETERS_MAX {
            return Err(ErrorResponse::bad(format!(
                "a query has at most {PARAMETERS_MAX} parameters"
            )));
        }
        let range = request
            .headers()
            .get(header::RANGE)
            .and_then(|value| value.to_str().ok())
            .and_then(parse_range);
        let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let accepts_html = accepted.is_some_and(|accepted| accepted.contains("text/html"));
        let is_head = request.method() == Method::HEAD;
        Ok(Self { parts, parameters, range, accepts_html, body, is_head, write })
    }

    /// Returns whether the request would change something.
    pub(crate) fn is_write(&self) -> bool {
        self.write.is_some()
    }

    /// Returns an error with status 404 for a parameter that is not in `allowed`, as Zuul does.
    pub(crate) fn allow_parameters(&self, allowed: &[&str]) -> Result<(), ErrorResponse> {
        match self.parameters.iter().find(|(name, _)| !allowed.contains(&name.as_str())) {
            Some((name, _)) => {
                Err(ErrorResponse::missing(format!("There is no parameter {name} here.")))
            }
            None => Ok(()),
        }
    }

    /// Returns the first value of a parameter; `None` if it is not given.
    pub(crate) fn parameter<'a>(&'a self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Returns every value of a parameter.
    pub(crate) fn parameter_values<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = &'a str> + 'a {
        self.parameters
            .iter()
            .filter(move |(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a parameter as a whole number; `None` if it is not given, an
    /// error with status 400 if it is no whole number.
    pub(crate) fn number_parameter(&self, name: &str) -> Result<Option<u64>, ErrorResponse> {
        let read = |text: &str| {
            text.parse().map_err(|_| {
                ErrorResponse::bad(format!("{name} must be a whole number, but is \"{text}\"."))
            })
        };
        self.parameter(name).map(read).transpose()
    }

    /// Returns `limit` (default 50, cut to [`PAGE_MAX`]) and `skip` (default 0). An error with
    /// status 400 if `skip` is larger than [`SKIP_MAX`], or one of them is no number.
    pub(crate) fn page(&self) -> Result<PageRange, ErrorResponse> {
        let limit = self.number_parameter("limit")?.map_or(50, clamped).min(PAGE_MAX);
        let skip = self.number_parameter("skip")?.map_or(0, clamped);
        if skip > SKIP_MAX {
            let advice = "use idx_max instead to read older ones";
            return Err(ErrorResponse::bad(format!("skip may be at most {SKIP_MAX}; {advice}.")));
        }
        Ok(PageRange { limit, skip })
    }
}

/// Converts a number to `usize`; a number that is too large becomes the largest.
fn clamped(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Decodes a part of a path but keeps `%2F`, because a decoded slash would separate parts.
fn decode_path_part(text: &str) -> String {
    decode(text, |byte| byte != b'/')
}

/// Decodes the name or value of a parameter: percent-encoded bytes, and `+` for a space.
pub(crate) fn decode_form_text(text: &str) -> String {
    decode(&text.replace('+', " "), |_| true)
}

/// Decodes percent-encoded bytes for which `is_decoded` is true; others stay encoded. Invalid
/// encodings stay as they are, and what is not UTF-8 is replaced.
fn decode(text: &str, is_decoded: impl Fn(u8) -> bool) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|byte| is_decoded(*byte)) {
            Some(byte) => {
                decoded.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                decoded.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Parses `bytes=A-` and `bytes=A-B`; `None` for other forms, which HTTP allows to ignore. Whether
/// B is less than A is not checked.
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
    Some((first.parse().ok()?, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str) -> Result<ApiRequest, ErrorResponse> {
        ApiRequest::read(&Request::get(uri).body(Bytes::new()).unwrap())
    }

    /// Z9.1: the rules of paths.
    #[test]
    fn slashes_collapse_and_an_escaped_slash_stays_escaped() {
        let read = request("/api/tenant/one//project/org%2Fpro%20ject%2B1//").unwrap();
        assert_eq!(read.parts, ["api", "tenant", "one", "project", "org%2Fpro ject+1"]);
    }

    /// Z9.1
    #[test]
    fn a_parameter_may_be_given_more_than_once() {
        let read = request("/x?result=A&result=B+C&skip=3").unwrap();
        assert_eq!(read.parameter_values("result").collect::<Vec<_>>(), ["A", "B C"]);
        assert_eq!(read.page().unwrap(), PageRange { limit: 50, skip: 3 });
        assert!(read.allow_parameters(&["result"]).is_err());
    }

    /// Z9.1
    #[test]
    fn pages_are_bounded_and_numbers_are_numbers() {
        assert_eq!(request("/x?limit=99999").unwrap().page().unwrap().limit, PAGE_MAX);
        assert!(request("/x?limit=many").unwrap().page().is_err());
        assert!(request("/x?skip=10001").unwrap().page().is_err());
    }

    /// Z9.1: one POST request is a query that changes nothing.
    #[test]
    fn only_one_query_is_sent_with_post() {
        let send = |uri: &str| {
            ApiRequest::read(&Request::post(uri).body(Bytes::from_static(b"{}")).unwrap())
        };
        assert_eq!(send("/api/tenant/one/project/a/freeze-pipeline").unwrap().body.unwrap(), "{}");
        let enqueue = send("/api/tenant/one/project/a/enqueue").unwrap();
        assert_eq!((enqueue.write, enqueue.body.unwrap().len()), (Some(WriteMethod::Post), 2));
        let large = Request::post("/x").body(Bytes::from(vec![b' '; BODY_BYTES_MAX + 1])).unwrap();
        assert!(matches!(ApiRequest::read(&large), Err(ErrorResponse::TooLarge { .. })));
        assert_eq!(
            request("/api/tenant/one/project/a/freeze-pipeline"),
            Err(ErrorResponse::PostOnly)
        );
    }

    /// Z7.4
    #[test]
    fn ranges_are_read() {
        assert_eq!(parse_range("bytes=5-"), Some((5, None)));
        assert_eq!(parse_range("bytes=5-9"), Some((5, Some(9))));
        assert_eq!(parse_range("bytes=-9"), None);
    }
}
