//! A request as the routes see it: its path in decoded parts, its parameters, its range.

use crate::reply::Refusal;
use bytes::Bytes;
use http::{Method, Request, header};

/// The most parameters of a query.
const PARAMETERS_MAX: usize = 100;

/// The most records one page of a list holds.
pub(crate) const PAGE_MAX: usize = 1_000;

/// The most records that may be passed over before a page begins.
pub(crate) const SKIP_MAX: usize = 10_000;

/// The end of the one path that is read by POST, since the question does not fit into it.
const QUESTION: &str = "freeze-pipeline";

/// A request to read something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The parts of the path, decoded; repeated slashes count once.
    pub(crate) parts: Vec<String>,
    /// The parameters in order, decoded.
    pub(crate) parameters: Vec<(String, String)>,
    /// The first and last byte wanted, the last one `None` for the end.
    pub(crate) range: Option<(u64, Option<u64>)>,
    /// Whether whoever asks would rather have a page than JSON.
    pub(crate) by_browser: bool,
    /// What was sent along to a question that is asked by POST; `None` for one that is not.
    pub(crate) sent: Option<Bytes>,
}

/// Which records of a list are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    /// How many at most.
    pub(crate) limit: usize,
    /// How many to pass over first.
    pub(crate) skip: usize,
}

impl Asked {
    /// Reads a request.
    ///
    /// # Errors
    /// When it is no reading one, or has too many parameters.
    pub(crate) fn read(request: &Request<Bytes>) -> Result<Self, Refusal> {
        let parts: Vec<String> = request
            .uri()
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .map(path_part)
            .collect();
        let is_question = parts.last().is_some_and(|last| last == QUESTION);
        let sent = match *request.method() {
            Method::POST if is_question => Some(request.body().clone()),
            Method::GET if is_question => return Err(Refusal::PostOnly),
            Method::GET | Method::HEAD => None,
            _ => return Err(Refusal::Method),
        };
        let query = request.uri().query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let parameters: Vec<_> = pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (form_text(name), form_text(value)))
            .take(PARAMETERS_MAX + 1)
            .collect();
        if parameters.len() > PARAMETERS_MAX {
            return Err(Refusal::bad(format!("a query has at most {PARAMETERS_MAX} parameters")));
        }
        let range = request
            .headers()
            .get(header::RANGE)
            .and_then(|value| value.to_str().ok())
            .and_then(range);
        let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let by_browser = accepted.is_some_and(|accepted| accepted.contains("text/html"));
        Ok(Self { parts, parameters, range, by_browser, sent })
    }

    /// Refuses parameters that the route does not know, as Zuul does.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.parameters.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(Refusal::missing(format!("There is no parameter {name} here."))),
            None => Ok(()),
        }
    }

    /// Returns the first value of a parameter.
    pub(crate) fn one<'a>(&'a self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns every value of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.parameters
            .iter()
            .filter(move |(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns a parameter that is a whole number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let read = |text: &str| {
            text.parse().map_err(|_| {
                Refusal::bad(format!("{name} must be a whole number, but is \"{text}\"."))
            })
        };
        self.one(name).map(read).transpose()
    }

    /// Returns `limit` (50 unless said otherwise) and `skip`, each within its bound.
    pub(crate) fn page(&self) -> Result<Page, Refusal> {
        let limit = self.number("limit")?.map_or(50, clamped).min(PAGE_MAX);
        let skip = self.number("skip")?.map_or(0, clamped);
        if skip > SKIP_MAX {
            let advice = "ask for older ones with idx_max in place of skip";
            return Err(Refusal::bad(format!("skip may be at most {SKIP_MAX}; {advice}.")));
        }
        Ok(Page { limit, skip })
    }
}

fn clamped(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Decodes a part of a path; `%2F` stays as it is written, since a decoded slash would name
/// something else.
fn path_part(text: &str) -> String {
    decode(text, |byte| byte != b'/')
}

/// Decodes a name or value of a query.
pub(crate) fn form_text(text: &str) -> String {
    decode(&text.replace('+', " "), |_| true)
}

fn decode(text: &str, wanted: impl Fn(u8) -> bool) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|byte| wanted(*byte)) {
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

/// Reads `bytes=A-` and `bytes=A-B`; other forms are no range, which is always allowed.
fn range(text: &str) -> Option<(u64, Option<u64>)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
    Some((first.parse().ok()?, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(uri: &str) -> Result<Asked, Refusal> {
        Asked::read(&Request::get(uri).body(Bytes::new()).unwrap())
    }

    /// Z9.1: the rules of paths.
    #[test]
    fn slashes_collapse_and_an_escaped_slash_stays_escaped() {
        let read = asked("/api/tenant/one//project/org%2Fpro%20ject%2B1//").unwrap();
        assert_eq!(read.parts, ["api", "tenant", "one", "project", "org%2Fpro ject+1"]);
    }

    /// Z9.1
    #[test]
    fn a_parameter_may_be_given_more_than_once() {
        let read = asked("/x?result=A&result=B+C&skip=3").unwrap();
        assert_eq!(read.all("result").collect::<Vec<_>>(), ["A", "B C"]);
        assert_eq!(read.page().unwrap(), Page { limit: 50, skip: 3 });
        assert!(read.only(&["result"]).is_err());
    }

    /// Z9.1
    #[test]
    fn pages_are_bounded_and_numbers_are_numbers() {
        assert_eq!(asked("/x?limit=99999").unwrap().page().unwrap().limit, PAGE_MAX);
        assert!(asked("/x?limit=many").unwrap().page().is_err());
        assert!(asked("/x?skip=10001").unwrap().page().is_err());
    }

    /// Z9.1: what may be sent is a question, nothing that changes anything.
    #[test]
    fn one_question_is_sent_and_all_others_are_read() {
        let send =
            |uri: &str| Asked::read(&Request::post(uri).body(Bytes::from_static(b"{}")).unwrap());
        assert_eq!(send("/api/tenant/one/project/a/freeze-pipeline").unwrap().sent.unwrap(), "{}");
        assert_eq!(send("/api/tenant/one/project/a/enqueue"), Err(Refusal::Method));
        assert_eq!(asked("/api/tenant/one/project/a/freeze-pipeline"), Err(Refusal::PostOnly));
    }

    /// Z7.4
    #[test]
    fn ranges_are_read() {
        assert_eq!(range("bytes=5-"), Some((5, None)));
        assert_eq!(range("bytes=5-9"), Some((5, Some(9))));
        assert_eq!(range("bytes=-9"), None);
    }
}
