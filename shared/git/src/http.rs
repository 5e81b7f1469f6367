//! HTTP under a fetch: one budget of time and bytes for all of it, and the credential sent to nobody but the forge.

use gix::protocol::transport::client::blocking_io::http::{
    self, GetResponse, Http, PostBodyDataKind, PostResponse, reqwest, reqwest::Remote,
};
use std::any::Any;
use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a fetch may still use, shared by its requests.
pub(crate) struct Budget {
    deadline: Instant,
    bytes_left: AtomicU64,
    timed_out: AtomicBool,
    too_large: AtomicBool,
}

impl Budget {
    pub(crate) fn new(deadline: Instant, bytes: u64) -> Arc<Self> {
        let (timed_out, too_large) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { deadline, bytes_left: AtomicU64::new(bytes), timed_out, too_large })
    }

    /// Tells whether the deadline ended the fetch.
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    /// Tells whether the size of the answers ended the fetch.
    pub(crate) fn too_large(&self) -> bool {
        self.too_large.load(Ordering::Relaxed)
    }

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

    fn spend(&self, bytes: usize) {
        let bytes = bytes as u64;
        let spent = self.bytes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        if spent.is_err() {
            self.too_large.store(true, Ordering::Relaxed);
        }
    }
}

/// The library's client, held to a budget.
pub(crate) struct Bounded {
    inner: Remote,
    authorization: Option<String>,
    /// Scheme, host and port: only there the credential is sent.
    origin: String,
    budget: Arc<Budget>,
}

impl Bounded {
    /// Makes a client for `url`; `authorization` is the value of that header.
    pub(crate) fn new(url: &str, authorization: Option<String>, budget: Arc<Budget>) -> Self {
        Self { inner: Remote::default(), authorization, origin: origin(url).to_owned(), budget }
    }

    fn header(&self, base_url: &str) -> Option<String> {
        let value = self.authorization.as_ref().filter(|_| origin(base_url) == self.origin)?;
        Some(format!("Authorization: {value}"))
    }

    fn bound(&self, inner: <Remote as Http>::ResponseBody) -> Body {
        Body { inner, budget: self.budget.clone() }
    }
}

/// Returns scheme, host and port of an address.
pub(crate) fn origin(url: &str) -> &str {
    let after = url.find("://").map_or(0, |at| at + 3);
    let end = url[after..].find('/').map_or(url.len(), |at| after + at);
    &url[..end]
}

impl Http for Bounded {
    type Headers = <Remote as Http>::Headers;
    type ResponseBody = Body;
    type PostBody = <Remote as Http>::PostBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<Self::Headers, Self::ResponseBody>> {
        self.budget.check().map_err(gix::Error::from_error)?;
        let headers: Vec<String> =
            headers.into_iter().map(|line| line.as_ref().to_owned()).chain(self.header(base_url)).collect();
        let GetResponse { headers, body } = self.inner.get(url, base_url, headers)?;
        Ok(GetResponse { headers, body: self.bound(body) })
    }

    fn post(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        kind: PostBodyDataKind,
    ) -> gix::Result<PostResponse<Self::Headers, Self::ResponseBody, Self::PostBody>> {
        self.budget.check().map_err(gix::Error::from_error)?;
        let headers: Vec<String> =
            headers.into_iter().map(|line| line.as_ref().to_owned()).chain(self.header(base_url)).collect();
        let PostResponse { post_body, headers, body } = self.inner.post(url, base_url, headers, kind)?;
        Ok(PostResponse { post_body, headers, body: self.bound(body) })
    }

    fn configure(&mut self, config: &dyn Any) -> gix::Result {
        self.inner.configure(config)
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.inner.redirected_base_url()
    }
}

/// The options of every client: a moved repository is followed once, as git does, and silence is given up after `silence`.
pub(crate) fn options(silence: Duration) -> http::Options {
    let backend = reqwest::Options {
        // Of a blocking client this bounds each wait for the server, not the whole transfer.
        configure_client: Some(Box::new(move |builder| Ok(builder.timeout(silence).connect_timeout(silence)))),
        configure_request: None,
    };
    http::Options {
        follow_redirects: http::options::FollowRedirects::Initial,
        backend: Some(Arc::new(Mutex::new(backend))),
        ..Default::default()
    }
}

/// The body of an answer, counted.
pub(crate) struct Body {
    inner: <Remote as Http>::ResponseBody,
    budget: Arc<Budget>,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.budget.check()?;
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.budget.spend(count);
        self.inner.consume(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credential_goes_to_the_forge_only() {
        let budget = Budget::new(Instant::now(), 1);
        let client = Bounded::new("https://forge.example/org/name", Some("Basic x".to_owned()), budget);
        assert_eq!(client.header("https://forge.example/moved/name").as_deref(), Some("Authorization: Basic x"));
        assert_eq!(client.header("http://forge.example/org/name"), None);
        assert_eq!(client.header("https://forge.example.evil/org/name"), None);
        assert_eq!(client.header("https://forge.example:8443/org/name"), None);
    }
}
