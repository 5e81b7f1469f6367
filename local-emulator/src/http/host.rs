//! By which names this machine answers.
//!
//! The owner of a domain name can make it resolve to 127.0.0.1 while a browser shows his page (DNS
//! rebinding). So requests are only answered under names that mean this machine ([`HostName`]), and
//! under those given at the start.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use axum::middleware::Next;
use sluice_model::host::HostName;
use std::collections::BTreeSet;

/// Characters of a name that are repeated to who asked by it.
const NAME_MAX: usize = 100;

/// The names by which a machine answers besides addresses and `localhost`.
#[derive(Debug, Clone, Default)]
pub struct HostNames {
    names: BTreeSet<String>,
    functions: BTreeSet<String>,
}

impl HostNames {
    /// Adds a host name of this machine, for example a tunnel's or a proxy's. Case, port and a
    /// final dot do not matter.
    #[must_use]
    pub fn with(mut self, name: &str) -> Self {
        self.names.insert(HostName::normalize(name));
        self
    }

    /// Adds a function, by its id, that is called under any host name, because it verifies the
    /// sender by a signature.
    #[must_use]
    pub fn with_function(mut self, id: &str) -> Self {
        self.functions.insert(id.to_owned());
        self
    }

    /// Returns whether a function is called under any host name.
    pub(super) fn any_may_call(&self, function: &str) -> bool {
        self.functions.contains(function)
    }

    /// Returns the first host name of a request (of its `Host` headers or URI) that is neither an
    /// address nor `localhost` nor an added name, cut to 100 characters; an invalid name is foreign
    /// too. `None` if all names are the machine's own, or if the request has no host name, because
    /// it then does not come from a browser.
    pub(crate) fn foreign_name(&self, headers: &HeaderMap, uri: &Uri) -> Option<String> {
        let said = headers
            .get_all(HOST)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let mut said = said.chain(uri.authority().map(ToString::to_string));
        said.find(|name| !self.has(name)).map(|name| name.chars().take(NAME_MAX).collect())
    }

    /// Returns whether a host name, with or without port, is an address, `localhost` or one of the
    /// added names. An invalid name is none.
    fn has(&self, said: &str) -> bool {
        match HostName::parse(said) {
            HostName::Machine => true,
            HostName::Named(name) => self.names.contains(&name),
            HostName::Invalid => false,
        }
    }
}

/// Passes on requests whose host names are all addresses or `localhost`, also requests without one,
/// and refuses all others with status 421, before their bodies are read.
pub(crate) async fn of_this_machine(request: Request, next: Next) -> Response<Body> {
    match HostNames::default().foreign_name(request.headers(), request.uri()) {
        None => next.run(request).await,
        Some(name) => misdirected(&name),
    }
}

/// Logs a request under the foreign host name `name` and returns its response: 421, which browsers
/// do not accept as content of that name.
pub(super) fn misdirected(name: &str) -> Response<Body> {
    tracing::info!(by = name, "refused a request by a name that is not this machine's");
    let text = format!(
        "This machine does not answer by the name {name:?}: it may belong to a foreign web page. Use an IP address, as in http://127.0.0.1:9000/, or by localhost; a tunnel or proxy of your own is named at the start: sluice up --web-root https://NAME/"
    );
    let mut response =
        Response::new(Body::from(serde_json::json!({ "message": text }).to_string()));
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(names: &HostNames, hosts: &[&str], uri: &str) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, HeaderValue::from_str(host).unwrap());
        }
        names.foreign_name(&headers, &uri.parse().unwrap()).is_none()
    }

    /// Z5.4: an IP address belongs to no domain, so no foreign page can use it.
    #[test]
    fn addresses_and_localhost_are_answered_and_no_other_name() {
        let names = HostNames::default();
        for own in [
            "127.0.0.1:9000",
            "127.0.0.1",
            "[::1]:9000",
            "[::1]",
            "localhost:9000",
            "LOCALHOST",
            "localhost.",
            "192.168.1.7:80",
        ] {
            assert!(answers(&names, &[own], "/"), "{own}");
        }
        let strangers = [
            "evil.example:9000",
            "evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "localhost.evil.example:9000",
            "evil.localhost",
            "localhost..",
            "127.1",
            "[::1].evil.example",
            "localhost:9000.evil.example",
            "",
            "a b",
        ];
        for stranger in strangers {
            assert!(!answers(&names, &[stranger], "/"), "{stranger}");
        }
        assert!(answers(&names, &[], "/"), "no browser leaves it out");
    }

    /// Z5.4: whichever of several names a reader goes by, all of them are this machine's.
    #[test]
    fn each_name_that_a_request_bears_counts() {
        let names = HostNames::default();
        assert!(!answers(&names, &["127.0.0.1", "evil.example"], "/"));
        assert!(!answers(&names, &["127.0.0.1"], "http://evil.example/api"));
        assert!(answers(&names, &["127.0.0.1"], "http://localhost:9000/api"));
    }

    /// Z5.4: who puts a tunnel before it names it.
    #[test]
    fn a_name_given_at_the_start_is_answered() {
        let names = HostNames::default().with("CI.example.org");
        assert!(
            answers(&names, &["ci.example.org"], "/")
                && answers(&names, &["ci.EXAMPLE.org.:443"], "/")
        );
        assert!(!answers(&names, &["www.ci.example.org"], "/"));
    }
}
