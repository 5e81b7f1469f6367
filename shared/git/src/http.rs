//! HTTP for fetches: one client per process, one budget of time and bytes per conversation, and a
//! credential that is only sent to the forge.

use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse,
};
use reqwest::Url;
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::header::{AUTHORIZATION, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The remaining budget of a fetch, shared by its requests.
pub(crate) struct Budget {
    /// When the fetch must end.
    deadline: Instant,
    /// The bytes that may still be received.
    bytes_left: AtomicU64,
    /// Whether the deadline ended the fetch.
    timed_out: AtomicBool,
    /// Whether the size limit ended the fetch.
    too_large: AtomicBool,
    /// The HTTP status with which the forge refused; 0 for none.
    refused: AtomicU16,
}

impl Budget {
    /// Returns a budget of time and bytes for one fetch.
    pub(crate) fn new(deadline: Instant, bytes: u64) -> Arc<Self> {
        let (timed_out, too_large, refused) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicU16::new(0));
        Arc::new(Self {
            deadline,
            bytes_left: AtomicU64::new(bytes),
            timed_out,
            too_large,
            refused,
        })
    }

    /// Returns whether the deadline ended the fetch, or has passed since.
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    /// Returns whether the size limit ended the fetch.
    pub(crate) fn too_large(&self) -> bool {
        self.too_large.load(Ordering::Relaxed)
    }

    /// Returns the HTTP status with which the forge refused a request; `None` when it did not.
    pub(crate) fn refused(&self) -> Option<u16> {
        Some(self.refused.load(Ordering::Relaxed)).filter(|status| *status != 0)
    }

    /// Returns a successful answer; stores another status for [`Self::refused`] and returns an
    /// error.
    fn accepted(&self, response: Response) -> io::Result<Response> {
        let status = response.status().as_u16();
        if response.status().is_success() {
            return Ok(response);
        }
        self.refused.store(status, Ordering::Relaxed);
        Err(io::Error::other(format!("the forge answered with HTTP status {status}")))
    }

    /// Returns an error if the time or the bytes are used up. For the time, also records that for
    /// [`Self::timed_out`].
    fn check(&self) -> io::Result<()> {
        if Instant::now() >= self.deadline {
            self.timed_out.store(true, Ordering::Relaxed);
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the fetch's time is used up"));
        }
        if self.too_large() {
            return Err(io::Error::other("the fetch's size is used up"));
        }
        Ok(())
    }

    /// Counts received bytes. If that exceeds the budget, records it, and the next [`Self::check`]
    /// fails.
    fn spend(&self, bytes: usize) {
        let bytes = bytes as u64;
        let spent = self
            .bytes_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        if spent.is_err() {
            self.too_large.store(true, Ordering::Relaxed);
        }
    }
}

/// The HTTP transport for the git library, within a budget. All fetches of the process share one
/// client, so that certificates are loaded once and connections are reused.
pub(crate) struct Bounded {
    authorization: Option<String>,
    /// Scheme, host and port that the credential is sent to.
    origin: Option<String>,
    /// How long the server may be silent.
    silence: Duration,
    /// The new address of a repository that has moved; `None` while it has not.
    moved_to: Option<String>,
    budget: Arc<Budget>,
}

impl Bounded {
    /// Creates a transport for `url` with this `Authorization` header, which is only sent to the
    /// scheme, host and port of `url`. A server that is silent for longer than `silence` is given
    /// up.
    pub(crate) fn new(
        url: &str,
        authorization: Option<String>,
        silence: Duration,
        budget: Arc<Budget>,
    ) -> Self {
        Self { authorization, origin: origin(url), silence, moved_to: None, budget }
    }

    /// Returns the `Authorization` header for a URL; `None` for another origin than the first one.
    fn credential(&self, url: &str) -> Option<&str> {
        self.authorization
            .as_deref()
            .filter(|_| self.origin.is_some() && origin(url) == self.origin)
    }

    /// Completes a request with the library's headers (`name: value`), and with the credential if
    /// it may be sent to `url`. A credential that no header can contain is left out.
    fn prepared<S: AsRef<str>>(
        &self,
        mut request: RequestBuilder,
        url: &str,
        lines: impl IntoIterator<Item = S>,
    ) -> RequestBuilder {
        for line in lines {
            if let Some((name, value)) = line.as_ref().split_once(':') {
                request = request.header(name, value.trim());
            }
        }
        match self.credential(url) {
            // Marked as sensitive, so that it is never logged.
            Some(value) => match HeaderValue::from_str(value) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    request.header(AUTHORIZATION, value)
                }
                Err(_) => request,
            },
            None => request,
        }
    }

    /// Requests the list of refs at `url` with the headers `lines` (`name: value`), and returns an
    /// answer with status 2xx; any other final status is an error. Follows at most five redirects
    /// as git does: never from https to http, and only to an address that ends with what follows
    /// `base_url` in `url`. What precedes that in the new address is stored in `moved_to`. A
    /// request that fails, but not by a timeout or while connecting, is sent once more.
    fn request_refs<S: AsRef<str>>(
        &mut self,
        url: &str,
        base_url: &str,
        lines: &[S],
    ) -> io::Result<Response> {
        let tail = url.strip_prefix(base_url).unwrap_or_default();
        let mut url = Url::parse(url).map_err(io::Error::other)?;
        for _ in 0..=REDIRECTS_MAX {
            self.budget.check()?;
            let request = || {
                Ok::<_, io::Error>(self.prepared(
                    client(self.silence)?.get(url.clone()),
                    url.as_str(),
                    lines,
                ))
            };
            let response = match request()?.send() {
                // After a function was suspended, a pooled connection may be dead.
                Err(error) if !error.is_timeout() && !error.is_connect() => request()?.send(),
                answered => answered,
            };
            let response = response.map_err(|error| failure(&error))?;
            if !response.status().is_redirection() {
                return self.budget.accepted(response);
            }
            let to = response
                .headers()
                .get(LOCATION)
                .and_then(|to| to.to_str().ok())
                .and_then(|to| url.join(to).ok());
            let Some(to) = to else {
                return Err(io::Error::other(
                    "the forge redirects to an address that cannot be read",
                ));
            };
            let safe = to.scheme() == url.scheme() || to.scheme() == "https";
            let base = to
                .as_str()
                .strip_suffix(tail)
                .filter(|_| safe && matches!(to.scheme(), "http" | "https"));
            let Some(base) = base else {
                let host = to.host_str().unwrap_or_default();
                let words = format!(
                    "the forge redirects to {}://{host}{}, which is not followed because it is \
                     another service or not encrypted",
                    to.scheme(),
                    to.path()
                );
                return Err(io::Error::other(words));
            };
            self.moved_to = Some(base.to_owned());
            url = to;
        }
        Err(io::Error::other(format!("the forge redirects more than {REDIRECTS_MAX} times")))
    }
}

/// The most redirects that are followed.
const REDIRECTS_MAX: usize = 5;
/// How long an idle connection is kept open: less than forges do, and less than a function is
/// suspended between events.
const IDLE_SECONDS: u64 = 10;
const CONNECT_SECONDS: u64 = 20;
const BUFFER_BYTES: usize = 64 << 10;

/// Returns the process-wide client for servers that may be silent for this long; it follows no
/// redirects. It contains no secrets: credentials belong to requests.
///
/// A timeout of the client limits each wait for the server. A timeout of a request would limit the
/// whole transfer, for which there is the budget.
fn client(silence: Duration) -> io::Result<Client> {
    // There are only a few: callers use a handful of timeouts.
    static CLIENTS: Mutex<BTreeMap<Duration, Client>> = Mutex::new(BTreeMap::new());
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = clients.get(&silence) {
        return Ok(client.clone());
    }
    let new = Client::builder()
        .redirect(Policy::none())
        .timeout(silence)
        .connect_timeout(Duration::from_secs(CONNECT_SECONDS).min(silence))
        .pool_idle_timeout(Duration::from_secs(IDLE_SECONDS))
        .build()
        .map_err(|error| failure(&error))?;
    clients.insert(silence, new.clone());
    Ok(new)
}

/// Returns the error of a request with the text of its innermost cause, which the client's own text
/// omits; `the forge is silent` for a timeout.
fn failure(error: &reqwest::Error) -> io::Error {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let kind = if error.is_timeout() { io::ErrorKind::TimedOut } else { io::ErrorKind::Other };
    let words =
        if error.is_timeout() { "the forge is silent".to_owned() } else { cause.to_string() };
    io::Error::new(kind, words)
}

/// Returns the normalised scheme, host and port of an address; `None` for one that is not HTTP.
fn origin(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    matches!(url.scheme(), "http" | "https").then(|| url.origin().ascii_serialization())
}

impl Http for Bounded {
    type Headers = Headers;
    type ResponseBody = Body;
    type PostBody = PostBody;

    /// Requests the list of refs at `url` and returns its answer, which must have status 2xx.
    /// Follows redirects as git does, and stores the new address for [`Self::redirected_base_url`].
    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Headers, Body>> {
        let lines: Vec<String> = headers.into_iter().map(|line| line.as_ref().to_owned()).collect();
        let response = self.request_refs(url, base_url, &lines).map_err(gix::Error::from_error)?;
        let of = Shared::new(Exchange::Answered(response), &self.budget);
        Ok(GetResponse {
            headers: Headers { of: of.clone(), lines: None },
            body: Body { of, reader: None },
        })
    }

    /// Prepares a request; an error at once if the budget is used up. The request is sent when its
    /// answer is first read, and an answer other than 2xx is then an error.
    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _kind: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Headers, Body, PostBody>> {
        self.budget.check().map_err(gix::Error::from_error)?;
        let client = client(self.silence).map_err(gix::Error::from_error)?;
        let request = self.prepared(client.post(url), url, headers);
        let of = Shared::new(Exchange::Pending(request, Vec::new()), &self.budget);
        let headers = Headers { of: of.clone(), lines: None };
        Ok(PostResponse {
            post_body: PostBody(of.clone()),
            headers,
            body: Body { of, reader: None },
        })
    }

    /// There is nothing to configure.
    fn configure(&mut self, _config: &dyn Any) -> gix::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.moved_to.clone()
    }
}

/// A request and its answer. It is sent when the answer is first read, because its body is complete
/// only then.
enum Exchange {
    /// The request and its body so far: some lines for each commit, never objects.
    Pending(RequestBuilder, Vec<u8>),
    Answered(Response),
    /// The answer's body is being read, or the request failed.
    Over,
}

impl Exchange {
    /// Returns the answer. Sends the request first if that was not done; this is an error if the
    /// budget is used up or the status is not a success. Always an error after such a failure, or
    /// after the answer's body was taken ([`Shared::body`]).
    fn answer(&mut self, budget: &Budget) -> io::Result<&Response> {
        *self = match std::mem::replace(self, Self::Over) {
            Self::Pending(request, body) => {
                budget.check()?;
                let response = request.body(body).send().map_err(|error| failure(&error))?;
                Self::Answered(budget.accepted(response)?)
            }
            other => other,
        };
        match self {
            Self::Answered(response) => Ok(response),
            Self::Pending(..) | Self::Over => Err(io::Error::other("the forge did not answer")),
        }
    }
}

/// One exchange. The request's body, the answer's headers and the answer's body are separate
/// handles to it.
#[derive(Clone)]
struct Shared {
    exchange: Arc<Mutex<Exchange>>,
    budget: Arc<Budget>,
}

impl Shared {
    /// Shares an exchange between the readers and the writer of one request.
    fn new(exchange: Exchange, budget: &Arc<Budget>) -> Self {
        Self { exchange: Arc::new(Mutex::new(exchange)), budget: budget.clone() }
    }

    /// Locks the exchange.
    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answer's headers, one `name:value` per line; sends the request first if that was
    /// not done. An error after [`Self::body`].
    fn headers(&self) -> io::Result<Vec<u8>> {
        let mut exchange = self.lock();
        let mut lines = Vec::new();
        for (name, value) in exchange.answer(&self.budget)?.headers() {
            for part in [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"] {
                lines.extend_from_slice(part);
            }
        }
        Ok(lines)
    }

    /// Takes the answer, whose body is to be read; sends the request first if that was not done. A
    /// second call is an error, and so are the headers afterwards.
    fn body(&self) -> io::Result<Response> {
        let mut exchange = self.lock();
        exchange.answer(&self.budget)?;
        match std::mem::replace(&mut *exchange, Exchange::Over) {
            Exchange::Answered(response) => Ok(response),
            Exchange::Pending(..) | Exchange::Over => {
                Err(io::Error::other("the forge did not answer"))
            }
        }
    }
}

/// The request's body as a writer.
pub(crate) struct PostBody(Shared);

impl Write for PostBody {
    /// Appends all bytes to the body of the request. An error if the request was sent already.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock() {
            Exchange::Pending(_, body) => body.extend_from_slice(bytes),
            Exchange::Answered(_) | Exchange::Over => {
                return Err(io::Error::other("the request was sent already"));
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The headers of an answer, one per line.
pub(crate) struct Headers {
    of: Shared,
    lines: Option<Cursor<Vec<u8>>>,
}

impl Headers {
    /// Returns the headers of the answer as bytes to read, from where the last read ended. The
    /// first call sends the request if that was not done; it is an error if the answer's body was
    /// read before.
    fn lines(&mut self) -> io::Result<&mut Cursor<Vec<u8>>> {
        let lines = match self.lines.take() {
            Some(lines) => lines,
            None => Cursor::new(self.of.headers()?),
        };
        Ok(self.lines.insert(lines))
    }
}

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.lines()?.read(buffer)
    }
}

impl BufRead for Headers {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.lines()?.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        if let Some(lines) = &mut self.lines {
            lines.consume(count);
        }
    }
}

/// The body of an answer, counted against the budget.
pub(crate) struct Body {
    of: Shared,
    reader: Option<BufReader<Response>>,
}

impl Read for Body {
    /// Reads a part of the answer's body and counts it against the budget; 0 bytes at the end. The
    /// first call sends the request if that was not done. An error if the budget was used up
    /// before.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Body {
    /// Returns the bytes of the answer's body that are available; none at the end. The first call
    /// sends the request if that was not done. An error if the budget was used up before.
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.of.budget.check()?;
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => BufReader::with_capacity(BUFFER_BYTES, self.of.body()?),
        };
        self.reader.insert(reader).fill_buf()
    }

    /// Marks bytes as read, and counts them against the budget. Exceeding the budget is an error of
    /// the next read only.
    fn consume(&mut self, count: usize) {
        if let Some(reader) = &mut self.reader {
            self.of.budget.spend(count);
            reader.consume(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that sends a large pack is not silent, however long it takes.
    #[test]
    fn an_answer_may_take_longer_than_a_server_may_be_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            assert!(stream.read(&mut asked).unwrap() > 0);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\n")
                .unwrap();
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(200));
                stream.write_all(b"x").unwrap();
            }
        });
        let budget = Budget::new(Instant::now() + Duration::from_secs(60), 1 << 10);
        let mut client = Bounded::new(&url, None, Duration::from_secs(1), budget);
        let headers: [&str; 0] = [];
        let mut body = client.get(&format!("{url}/a"), &url, headers).unwrap().body;
        let mut text = String::new();
        body.read_to_string(&mut text).unwrap();
        assert_eq!(text, "xxxxxxxx");
    }

    #[test]
    fn the_credential_goes_to_the_forge_only() {
        let budget = Budget::new(Instant::now(), 1);
        let credential = Some("Basic x".to_owned());
        let client = Bounded::new(
            "https://forge.example/org/name",
            credential,
            Duration::from_secs(1),
            budget,
        );
        assert_eq!(client.credential("https://forge.example/moved/name"), Some("Basic x"));
        assert_eq!(client.credential("https://Forge.Example:443/org/name"), Some("Basic x"));
        assert_eq!(client.credential("http://forge.example/org/name"), None);
        assert_eq!(client.credential("https://forge.example.evil/org/name"), None);
        assert_eq!(client.credential("https://forge.example:8443/org/name"), None);
        assert_eq!(client.credential("https://forge.example@evil.example/org/name"), None);
        assert_eq!(client.credential("forge.example/org/name"), None);
    }
}
