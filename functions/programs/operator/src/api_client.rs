//! The client of the REST API: which system it calls, with which token, and what its errors mean.

use crate::operator_access::OperatorAccess;
use crate::output::OutputFormat;
use crate::secret_file::read_secret;
use crate::{data_or_default, operator};
use anyhow::{Context as _, bail, ensure};
use clap::Args;
use reqwest::header::{AUTHORIZATION, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_runtime::Ports;
use std::path::PathBuf;
use std::time::Duration;
use url::{Host, Url};

/// The environment variable of the token. It is no option, because arguments are visible to other
/// users of the machine.
const TOKEN_VARIABLE: &str = "SLUICE_TOKEN";

/// The longest answer that is read into memory, in bytes.
const ANSWER_MAX: usize = 256 << 20;

/// Selects the data directory of a local system, and the output format.
#[derive(Debug, Clone, Default, Args)]
pub struct LocalArguments {
    /// Data directory of a local system [default: ~/.local/share/sluice]
    #[arg(long, env = "SLUICE_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl LocalArguments {
    /// Returns the output format.
    pub fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { OutputFormat::Text }
    }
}

/// Selects the system, which is a local one by its data directory or any system by the address of
/// its API, and the output format. The token for the API comes from `SLUICE_TOKEN` or a file.
#[derive(Debug, Clone, Default, Args)]
pub struct SystemArguments {
    /// The data directory and the output format.
    #[command(flatten)]
    pub local: LocalArguments,
    /// Address of the pages and the API; the token in SLUICE_TOKEN is sent there [default: the
    /// local system's, without a token]
    #[arg(long, env = "SLUICE_WEB", value_name = "URL")]
    pub api: Option<String>,
    /// File with the token for --api, instead of SLUICE_TOKEN; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Send the token over plain http to another machine, where everyone on the way can read it
    #[arg(long)]
    pub insecure_http: bool,
}

impl SystemArguments {
    /// Returns the output format.
    pub fn format(&self) -> OutputFormat {
        self.local.format()
    }

    /// Returns ports to the data of the local system, or of the stack that the environment names.
    ///
    /// # Errors
    /// When there is no such system, or it is not running.
    pub async fn ports(&self) -> anyhow::Result<Ports> {
        operator(self.local.data.clone()).await
    }

    /// Returns a client for the address of `--api` with its token; `None` if no address is given.
    /// Nothing is called.
    ///
    /// # Errors
    /// When the address cannot be used, the token cannot be read, or it must not be sent there.
    pub fn api_client(&self) -> anyhow::Result<Option<Client>> {
        let Some(api) = self.api.as_deref() else {
            ensure!(
                self.token_file.is_none(),
                "could not use --token-file: the token is sent only to the address of --api, which is missing"
            );
            return Ok(None);
        };
        let mut client = Client::new(usable_address(api)?.as_str())?;
        client.is_named = true;
        client.token = self.token()?;
        if client.token.is_some() && !self.insecure_http {
            require_private_way(api)?;
        }
        Ok(Some(client))
    }

    /// Returns a client for the address of `--api` with its token, or else for the local system of
    /// the data directory, without a token. Nothing is called.
    ///
    /// # Errors
    /// As [`SystemArguments::api_client`], and when no system ever ran in the directory.
    pub fn client(&self) -> anyhow::Result<Client> {
        if let Some(client) = self.api_client()? {
            return Ok(client);
        }
        let data = data_or_default(self.local.data.clone())?;
        let Some(access) = OperatorAccess::read(&data)? else {
            bail!(
                "no system has ever run in {}: start one with `sluice up`, name another directory with --data, or an address of the pages with --api URL",
                data.display()
            );
        };
        Client::new(&access.web_root)
    }

    /// Returns the token of the file or the environment as a header that is not shown in debug
    /// output; `None` if there is none.
    fn token(&self) -> anyhow::Result<Option<HeaderValue>> {
        let token = match read_secret(self.token_file.as_deref())? {
            Some(token) => token,
            None => match std::env::var(TOKEN_VARIABLE) {
                Ok(token) => token,
                Err(std::env::VarError::NotPresent) => return Ok(None),
                Err(std::env::VarError::NotUnicode(_)) => {
                    bail!("could not use {TOKEN_VARIABLE}: it is no text")
                }
            },
        };
        bearer(&token)
    }
}

/// Returns the header for a token; `None` if it is empty. The error does not quote it.
fn bearer(token: &str) -> anyhow::Result<Option<HeaderValue>> {
    let token = token.trim();
    if token.is_empty() {
        return Ok(None);
    }
    let is_token = token.bytes().all(|byte| byte.is_ascii_graphic());
    let header = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| is_token);
    let mut header = header.context(
        "could not use the token: it has characters that no token has; give the token alone, as `sluice token create` prints it",
    )?;
    header.set_sensitive(true);
    Ok(Some(header))
}

/// Parses the address of the pages. An error if it is no http or https URL, or has a user name or a
/// password, which would be shown in messages.
fn usable_address(api: &str) -> anyhow::Result<Url> {
    let url = Url::parse(api).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.filter(Url::has_host) else {
        bail!(
            "could not use {api:?} as the address of the pages: an example is http://127.0.0.1:9000/ (--api, SLUICE_WEB)"
        );
    };
    ensure!(
        url.username().is_empty() && url.password().is_none(),
        "could not use the address of the pages: it has a user name or a password; set {TOKEN_VARIABLE} to a token instead (--api, SLUICE_WEB)"
    );
    ensure!(
        url.query().is_none() && url.fragment().is_none(),
        "could not use {api:?} as the address of the pages: it has a query or a fragment (--api, SLUICE_WEB)"
    );
    Ok(url)
}

/// Returns an error if others could read a token on its way to an address.
fn require_private_way(api: &str) -> anyhow::Result<()> {
    let url = usable_address(api)?;
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    ensure!(
        url.scheme() == "https" || is_loopback,
        "could not send the token to {url}: everyone on the way could read it. Use an https address, or add --insecure-http if the way is private"
    );
    Ok(())
}

/// A client of the API.
#[derive(Debug, Clone)]
pub struct Client {
    root: String,
    http: reqwest::Client,
    /// The header with the token.
    token: Option<HeaderValue>,
    /// Whether the user named the address.
    is_named: bool,
}

/// A request that changes something.
#[derive(Debug, Clone)]
pub struct ApiWrite {
    /// The method.
    pub method: Method,
    /// The path below `/api/`, percent-encoded.
    pub path: String,
    /// The body, if the request has one.
    pub body: Option<Value>,
    /// The permission that the request needs, as authorization rules name it.
    pub permission: &'static str,
}

impl Client {
    /// Returns a client without a token for the system whose pages are at `root`; a final slash
    /// does not matter. Nothing is called. Each request may take 20 seconds. Proxies of the
    /// environment are ignored, and redirections are not followed.
    ///
    /// # Errors
    /// When the HTTP client cannot be created.
    pub fn new(root: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(20))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .context("could not create the HTTP client")?;
        let root = root.trim_end_matches('/').to_owned();
        Ok(Self { root, http, token: None, is_named: false })
    }

    /// Returns the option that makes another command call the same system; empty for the local one.
    pub(super) fn option(&self) -> String {
        if self.is_named { format!(" --api {}", self.root) } else { String::new() }
    }

    /// Reads the API path below `/api/` and decodes its JSON. `path` may have a query and must be
    /// percent-encoded.
    ///
    /// # Errors
    /// When the system does not answer, or answers with an error; the error has the answer's
    /// description, and what to do about a token that is missing or refused.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let text = self.get_text(path).await?;
        serde_json::from_str(&text).with_context(|| {
            format!("could not read the answer of {}: it is not the expected JSON", self.url(path))
        })
    }

    /// Reads the API path below `/api/` as text, as [`Client::get`] does.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_text(&self, path: &str) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&self.get_bytes(path).await?).into_owned())
    }

    /// Reads the API path below `/api/` as bytes, as [`Client::get`] does.
    pub(super) async fn get_bytes(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.answer(Method::GET, path, None, None).await
    }

    /// Sends a request that changes something. A success says that the system has stored it.
    ///
    /// # Errors
    /// When the system does not answer, or refuses it; the error says which permission it needs.
    pub async fn write(&self, write: ApiWrite) -> anyhow::Result<()> {
        let ApiWrite { method, path, body, permission } = write;
        self.answer(method, &path, body, Some(permission)).await.map(drop)
    }

    /// Sends a request and returns the bytes of a successful answer.
    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        permission: Option<&str>,
    ) -> anyhow::Result<Vec<u8>> {
        let url = self.url(path);
        let mut request = self.http.request(method, &url);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        if let Some(body) = &body {
            request = request.json(body);
        }
        let mut answer = request.send().await.with_context(|| {
            format!("nothing answers at {}; is the system running? (`sluice up`)", self.root)
        })?;
        let status = answer.status();
        if status.is_redirection() {
            let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            bail!(
                "{url} answered {status}: it is at {}; use that address with --api",
                location.unwrap_or("an unknown address")
            );
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.with_context(|| {
            format!("could not read the answer of {url}: the connection broke off")
        })? {
            ensure!(
                bytes.len() + chunk.len() <= ANSWER_MAX,
                "could not read the answer of {url}: it is longer than {} MiB",
                ANSWER_MAX >> 20
            );
            bytes.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        bail!("{}", self.failure(&url, status, &text, permission))
    }

    /// Returns the message for an answer that is no success: its description, and what to do.
    fn failure(
        &self,
        url: &str,
        status: StatusCode,
        text: &str,
        permission: Option<&str>,
    ) -> String {
        let body: Value = serde_json::from_str(text).unwrap_or_default();
        let description = body.get("description").and_then(Value::as_str);
        // The description of a client error is sufficient; the address adds nothing.
        let message = match description {
            Some(description) if status.is_client_error() => description.to_owned(),
            description => format!("{url} answered {status}: {}", description.unwrap_or(text)),
        };
        let advice = match (status, &self.token) {
            (StatusCode::UNAUTHORIZED, None) if !self.is_named => format!(
                "To read it with a token, name the address: set {TOKEN_VARIABLE}, and add --api {}",
                self.root
            ),
            (StatusCode::UNAUTHORIZED, None) => format!(
                "Set {TOKEN_VARIABLE} to a token, or name a file that has one with --token-file. `sluice token create` makes one where the system's data is"
            ),
            (StatusCode::UNAUTHORIZED, Some(_)) => format!(
                "The system does not accept the token. Set {TOKEN_VARIABLE} to another one; `sluice token create` makes one where the system's data is"
            ),
            (StatusCode::FORBIDDEN, _) => match permission {
                Some(permission) => format!(
                    "This needs the permission {permission} in the tenant, which the token does not give"
                ),
                None => "The token does not give the permission read in the tenant".to_owned(),
            },
            (StatusCode::NOT_FOUND, Some(_)) if permission.is_some() => {
                "A tenant that the token may not read is answered in the same way".to_owned()
            }
            _ => return message,
        };
        format!("{}. {advice}.", message.trim_end_matches('.'))
    }

    /// Reads a page or file at a whole URL as text, without the token; `None` if the answer is not
    /// a success (any status but 2xx).
    ///
    /// # Errors
    /// When the system does not answer.
    pub async fn text(&self, url: &str) -> anyhow::Result<Option<String>> {
        let answer =
            self.http.get(url).send().await.with_context(|| format!("nothing answers at {url}"))?;
        if !answer.status().is_success() {
            return Ok(None);
        }
        Ok(Some(answer.text().await.with_context(|| {
            format!("could not read the answer of {url}: the connection broke off")
        })?))
    }

    /// Returns the tenant with this name, or the only one if no name is given. An error that lists
    /// the tenants if it does not exist, there are none, or no name is given and there are several.
    /// At an address that the user named, a name is not checked: the token may permit a request and
    /// not the list of tenants.
    pub(super) async fn tenant(&self, name: Option<&str>) -> anyhow::Result<String> {
        if let Some(name) = name.filter(|_| self.is_named) {
            return Ok(name.to_owned());
        }
        let names = self.tenants().await?;
        match (name, names.as_slice()) {
            (_, []) if self.is_named => bail!(
                "there are no tenants at {} that {} may read",
                self.root,
                if self.token.is_some() { "the token" } else { "a caller without a token" }
            ),
            (_, []) => bail!(
                "there are no tenants; store a main configuration with `sluice tenant load FILE`"
            ),
            (Some(name), names) if names.iter().any(|existing| existing == name) => {
                Ok(name.to_owned())
            }
            (Some(name), names) => {
                bail!("there is no tenant {name}; tenants: {}", names.join(", "))
            }
            (None, [one]) => Ok(one.clone()),
            (None, many) => {
                bail!("there are several tenants ({}); name one with --tenant", many.join(", "))
            }
        }
    }

    /// Returns the names of all tenants that the API lists, in its order.
    pub(super) async fn tenants(&self) -> anyhow::Result<Vec<String>> {
        let list: Vec<Value> = self.get("tenants").await?;
        let names = list.iter().filter_map(|tenant| tenant.get("name")?.as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns the address of the page of a build.
    pub(super) fn build_page(&self, tenant: &str, build: &str) -> String {
        format!("{}/t/{tenant}/build/{build}", self.root)
    }

    fn url(&self, path: &str) -> String {
        format!("{}/api/{path}", self.root)
    }
}

/// Joins the parts of a path below `/api/`, percent-encoded. A part may have slashes, as names of
/// projects and branches have.
///
/// # Errors
/// When a part is empty or would lead to another path, as `..` would.
pub(super) fn api_path(parts: &[&str]) -> anyhow::Result<String> {
    let mut path = String::new();
    for name in parts {
        for part in name.split('/') {
            ensure!(
                !matches!(part, "" | "." | ".."),
                "could not use {name:?} as a name: it has an empty part, `.` or `..`"
            );
            if !path.is_empty() {
                path.push('/');
            }
            for byte in part.bytes() {
                if byte.is_ascii_alphanumeric() || b"-._~,@:".contains(&byte) {
                    path.push(char::from(byte));
                } else {
                    path.push_str(&format!("%{byte:02X}"));
                }
            }
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C2.2: names lead to the path that they name and to no other.
    #[test]
    fn names_in_paths_are_encoded_and_lead_to_no_other_path() {
        let path = |name: &str| api_path(&["tenant", "demo", "project", name, "enqueue"]);
        assert_eq!(path("org/one").unwrap(), "tenant/demo/project/org/one/enqueue");
        assert_eq!(path("a b?c#d%+").unwrap(), "tenant/demo/project/a%20b%3Fc%23d%25%2B/enqueue");
        for wrong in ["", "..", "org/../x", "org//one", "/one", "one/", "./one"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }

    /// C2.2: a token goes to no address where others can read it on the way, unless the user says
    /// so.
    #[test]
    fn a_token_is_sent_over_https_or_on_this_machine() {
        for api in [
            "https://ci.example.org",
            "http://127.0.0.1:9000/",
            "http://127.3.2.1",
            "http://localhost:9000",
            "http://[::1]:9000/",
        ] {
            assert!(require_private_way(api).is_ok(), "{api}");
        }
        for api in [
            "http://ci.example.org",
            "http://10.0.0.1",
            "http://localhost.example.org",
            "http://127.0.0.1.example.org",
            "http://[2001:db8::1]",
        ] {
            let error = require_private_way(api).unwrap_err().to_string();
            assert!(error.contains("--insecure-http"), "{error}");
        }
        for api in
            ["nonsense", "ftp://ci.example.org", "https://a:b@ci.example.org", "https://x/?a"]
        {
            assert!(usable_address(api).is_err(), "{api}");
        }
    }

    /// C2.2: no message and no debug output has the token.
    #[test]
    fn a_token_is_not_shown() {
        let header = bearer(" secret-4711\n").unwrap().unwrap();
        assert!(!format!("{header:?}").contains("4711"));
        assert!(bearer(" ").unwrap().is_none());
        for wrong in ["two words 4711", "with\nline 4711", "umläut4711"] {
            let error = format!("{:#}", bearer(wrong).unwrap_err());
            assert!(!error.contains("4711"), "{error}");
        }
        let mut client = Client::new("http://127.0.0.1:9/").unwrap();
        client.token = Some(header);
        assert!(!format!("{client:?}").contains("4711"));
    }

    /// C2.2: what is refused says what to do about it.
    #[test]
    fn refusals_say_what_to_do() {
        let mut client = Client::new("http://127.0.0.1:9/").unwrap();
        let text = r#"{"error": "Forbidden", "description": "you may not."}"#;
        let failure = |client: &Client, status: u16, permission: Option<&str>| {
            client.failure("U", StatusCode::from_u16(status).unwrap(), text, permission)
        };
        assert_eq!(failure(&client, 400, None), "you may not.");
        assert!(failure(&client, 401, None).contains("--api http://127.0.0.1:9"));
        client.is_named = true;
        assert!(failure(&client, 401, None).contains("--token-file"));
        assert!(failure(&client, 403, Some("enqueue")).contains("the permission enqueue"));
        client.token = bearer("t").unwrap();
        assert!(failure(&client, 401, None).contains("does not accept the token"));
        assert!(failure(&client, 404, Some("enqueue")).contains("may not read"));
        assert_eq!(failure(&client, 404, None), "you may not.");
        assert_eq!(
            failure(&client, 500, None),
            "U answered 500 Internal Server Error: you may not."
        );
    }
}
