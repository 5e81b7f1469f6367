//! Connections to forges as an operator configured them: one object, with sealed secrets.

use serde::{Deserialize, Serialize};
use sluice_config::connection::{Connections, Driver};
use sluice_model::ConnectionName;
use sluice_model::git::LandingMethod;
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use url::Url;

/// The object that stores all connections.
pub const OBJECT: &str = "system/connections.json";

/// The object that stores the tenant configuration (Zuul's main configuration).
pub const MAIN: &str = "system/main.yaml";

/// Minutes between two polls of a project at a plain git server, unless its connection sets them.
pub const POLL_MINUTES: u64 = 120;

/// One configured connection. Its secrets are sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredConnection {
    /// The driver.
    pub driver: Driver,
    /// The host used in canonical project names.
    pub canonical_hostname: String,
    /// The base URL of the forge's API (`https://api.github.com`).
    pub api_url: Option<String>,
    /// The base URL of its repositories (`https://github.com`); a project's path is appended.
    pub git_url: String,
    /// The account of the API token. Sluice recognises its own comments by it.
    pub login: Option<String>,
    /// The API token, sealed and in base64.
    pub token: Option<String>,
    /// The webhook secrets, sealed; two while they are being rotated.
    pub webhook_secrets: Vec<String>,
    /// How changes are merged into their branches.
    #[serde(default, skip_serializing_if = "LandingMethod::is_merge")]
    pub landing: LandingMethod,
    /// Minutes between two polls of a project at a plain git server; `None` for [`POLL_MINUTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_minutes: Option<u32>,
    /// The AWS credentials of a connection to EC2. Connections with other drivers have none.
    #[serde(default, skip_serializing_if = "AwsAccess::is_ambient")]
    pub aws: AwsAccess,
}

/// The AWS credentials of a connection. Without an access key they begin with those of the function
/// that uses the connection; with a role, its temporary credentials are requested with these.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AwsAccess {
    /// The access key; `None` for the function's own credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key: Option<StoredAccessKey>,
    /// The role to assume; `None` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<StoredRole>,
}

/// An AWS access key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAccessKey {
    /// The id of the access key.
    pub id: String,
    /// The secret access key, sealed under the context `secret-access-key` and in base64.
    pub sealed_secret: String,
}

/// An IAM role that a function assumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRole {
    /// The role's ARN.
    pub arn: String,
    /// The external id that the role's trust policy requires; `None` for none. It is no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
}

impl AwsAccess {
    /// Returns whether the function's own credentials are used as they are.
    pub fn is_ambient(&self) -> bool {
        self.access_key.is_none() && self.role.is_none()
    }
}

impl StoredConnection {
    /// Returns the minutes between two polls of a project, at least 1. Only projects at plain git
    /// servers are polled.
    pub fn poll_minutes(&self) -> u64 {
        self.poll_minutes.map_or(POLL_MINUTES, |minutes| u64::from(minutes).max(1))
    }

    /// Returns whether the driver reads changes from the forge: GitHub and Gerrit only.
    pub fn supports_changes(&self) -> bool {
        matches!(self.driver, Driver::GitHub | Driver::Gerrit)
    }

    /// Returns whether the connection can have projects, with or without changes: forges, plain git
    /// and unknown drivers. `false` for all others, such as clouds, mail, brokers, databases,
    /// timers and static hosts.
    fn has_projects(&self) -> bool {
        match self.driver {
            Driver::GitHub
            | Driver::Gerrit
            | Driver::GitLab
            | Driver::Pagure
            | Driver::Git
            | Driver::Other => true,
            Driver::Smtp | Driver::Mqtt | Driver::Sql | Driver::Elasticsearch => false,
            Driver::Timer | Driver::Zuul | Driver::Aws | Driver::Static => false,
        }
    }

    /// Returns whether `by` is the account of the API token; `false` if the account is not known. A
    /// GitHub App has the suffix `[bot]` as an account and none as the author of a check run; both
    /// match. Case is ignored.
    pub fn is_own_account(&self, by: &str) -> bool {
        let is = |account: &str| account.eq_ignore_ascii_case(by);
        self.login
            .as_deref()
            .is_some_and(|login| is(login) || login.strip_suffix("[bot]").is_some_and(is))
    }
}

/// All connections by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConnectionsFile(pub BTreeMap<ConnectionName, StoredConnection>);

impl ConnectionsFile {
    /// Returns the connections as the configuration parser needs them.
    pub fn vocabulary(&self) -> Connections {
        self.0.iter().fold(Connections::new(), |all, (name, connection)| {
            all.with(name.as_str(), connection.driver, &connection.canonical_hostname)
        })
    }

    /// Returns the connections of this driver, by name.
    pub fn with_driver(
        &self,
        driver: Driver,
    ) -> impl Iterator<Item = (&ConnectionName, &StoredConnection)> {
        self.0.iter().filter(move |(_, connection)| connection.driver == driver)
    }

    /// Returns the connections to plain git servers, which are polled because they send no
    /// webhooks, by name.
    pub fn polled(&self) -> impl Iterator<Item = (&ConnectionName, &StoredConnection)> {
        self.with_driver(Driver::Git)
    }

    /// Returns the connections with exactly this canonical host, by name. There may be several;
    /// only tenants say which of them has a project.
    pub fn of_host(&self, host: &str) -> Vec<(&ConnectionName, &StoredConnection)> {
        self.0.iter().filter(|(_, connection)| connection.canonical_hostname == host).collect()
    }

    /// Returns whether an address is a URL whose host belongs to no connection with projects, so
    /// that no driver can read it. Returns `false` for a text that is no URL with a host.
    fn is_on_unknown_host(&self, address: &str) -> bool {
        host_of(address).is_some_and(|host| !self.leads_to(&host))
    }

    /// Returns whether a connection with projects has this host or a parent domain of it, as
    /// canonical host or in one of its URLs. `host` is in lower case and without port. Ports of the
    /// configured values are ignored.
    fn leads_to(&self, host: &str) -> bool {
        let is_it = |configured_host: String| {
            let below = host.strip_suffix(configured_host.as_str());
            below.is_some_and(|front| front.is_empty() || front.ends_with('.'))
        };
        self.0.values().filter(|connection| connection.has_projects()).any(|connection| {
            let named = [
                Some(&connection.canonical_hostname),
                Some(&connection.git_url),
                connection.api_url.as_ref(),
            ];
            named.into_iter().flatten().filter_map(|written| host_in(written)).any(is_it)
        })
    }
}

/// Returns the host of a URL as a browser reads it: in lower case, without port, user and trailing
/// dots. Returns `None` for a text that is not a URL with a host.
fn host_of(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    url.host_str()
        .map(|host| host.trim_end_matches('.').to_ascii_lowercase())
        .filter(|host| !host.is_empty())
}

/// Returns the host of a configured value, a URL or a host with or without port and path, as
/// [`host_of`] does: in lower case, without port. `None` for a text that begins with `/`, such as a
/// file path, and for one without a valid host.
fn host_in(written: &str) -> Option<String> {
    if written.contains("://") {
        return host_of(written);
    }
    // A value that begins with a slash has no host.
    (!written.starts_with('/')).then(|| host_of(&format!("http://{written}"))).flatten()
}

/// Returns the host name of a region's EC2 API, which identifies a connection to it.
pub fn ec2_host(region: &str) -> String {
    format!("ec2.{region}.amazonaws.com")
}

/// Returns whether a text has the form of an AWS region name: at least two words of lower-case
/// letters and one digit from 1 to 9, with hyphens between (`eu-central-1`, `us-gov-west-1`).
pub fn is_region(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_word =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
    match parts.as_slice() {
        [words @ .., number] => {
            words.len() >= 2
                && words.iter().all(is_word)
                && matches!(number.as_bytes(), [b'1'..=b'9'])
        }
        [] => false,
    }
}

/// Returns the text between `ec2.` and `.amazonaws.com` in the host name of an EC2 connection,
/// which is its region; `None` for another host.
pub fn ec2_region(host: &str) -> Option<&str> {
    host.strip_prefix("ec2.")?.strip_suffix(".amazonaws.com")
}

/// The name of the secret access key among the secrets of a connection, for [`seal_context`].
pub const SECRET_ACCESS_KEY: &str = "secret-access-key";

/// Returns the sealing context of a connection's secret, to which the sealed text is bound. `what`
/// names the secret among those of the connection.
pub fn seal_context(connection: &ConnectionName, what: &str) -> String {
    format!("connection/{connection}/{what}")
}

/// Reads the configured connections; their secrets stay sealed. It is an error if none were ever
/// stored, or if they cannot be decoded.
///
/// # Errors
/// When none are stored, or they cannot be decoded.
pub async fn load(ports: &Ports) -> Result<ConnectionsFile, PortError> {
    load_if_stored(ports).await?.ok_or_else(|| {
        PortError::unknown(
            format!("read {OBJECT}"),
            "no connections are stored; store them with `sluice connection` first",
        )
    })
}

/// Reads the configured connections; their secrets stay sealed. Returns `None` if none were ever
/// stored.
///
/// # Errors
/// When they cannot be read or decoded.
pub async fn load_if_stored(ports: &Ports) -> Result<Option<ConnectionsFile>, PortError> {
    let Some(object) = ports.objects.get(OBJECT).await? else { return Ok(None) };
    serde_json::from_slice(&object.bytes)
        .map(Some)
        .map_err(|error| PortError::unknown(format!("read {OBJECT}"), error))
}

/// Returns those of `addresses`, the URLs of dependencies, whose host belongs to no connection with
/// projects, in their order; a text without a host is not among them. Such a dependency is ignored,
/// so a change can merge without it. Reads nothing when `addresses` is empty.
///
/// # Errors
/// As [`load`].
pub async fn addresses_on_unknown_hosts<'a>(
    ports: &Ports,
    addresses: Vec<&'a String>,
) -> Result<Vec<&'a String>, PortError> {
    if addresses.is_empty() {
        return Ok(addresses);
    }
    let connections = load(ports).await?;
    Ok(addresses.into_iter().filter(|address| connections.is_on_unknown_host(address)).collect())
}

/// Seals a secret of a connection under `context` (see [`seal_context`]) and returns it in base64,
/// as [`StoredConnection`] holds it. Stores nothing.
///
/// # Errors
/// When the key service fails.
pub async fn seal(ports: &Ports, context: &str, plain: &str) -> Result<String, PortError> {
    use base64::Engine as _;
    let sealed = ports.seal.seal(context, plain.as_bytes()).await?;
    Ok(base64::engine::general_purpose::STANDARD.encode(sealed))
}

/// Opens a secret in the form that [`seal`] returns, and returns its plain text. An error if it was
/// sealed under another context, or is not base64 or not text.
///
/// # Errors
/// When it was sealed under another context, or the key service fails. No error contains the
/// secret.
pub async fn open(ports: &Ports, context: &str, sealed: &str) -> Result<String, PortError> {
    use base64::Engine as _;
    let attempt = || format!("open the sealed {context}");
    let bytes = base64::engine::general_purpose::STANDARD.decode(sealed).map_err(|_| {
        PortError::unknown(attempt(), "it is not base64; seal it again with `sluice connection`")
    })?;
    let plain = ports.seal.open(context, &bytes).await?;
    String::from_utf8(plain).map_err(|_| PortError::unknown(attempt(), "it is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acting_as(login: Option<&str>) -> StoredConnection {
        StoredConnection {
            driver: Driver::GitHub,
            canonical_hostname: "forge.test".to_owned(),
            api_url: None,
            git_url: "https://forge.test".to_owned(),
            login: login.map(str::to_owned),
            token: None,
            webhook_secrets: Vec::new(),
            landing: LandingMethod::default(),
            poll_minutes: None,
            aws: AwsAccess::default(),
        }
    }

    /// Z6.1: a GitHub App comments as its account, but its check runs have its own name.
    #[test]
    fn a_github_app_is_recognised_by_account_and_by_name() {
        for (login, by, is_own) in [
            (Some("sluice[bot]"), "sluice[bot]", true),
            (Some("sluice[bot]"), "sluice", true),
            (Some("sluice[bot]"), "Sluice[bot]", true),
            (Some("sluice[bot]"), "sluice2", false),
            (Some("sluice[bot]"), "", false),
            (Some("sluice"), "sluice", true),
            (Some("sluice"), "sluice[bot]", false),
            (None, "sluice", false),
            (None, "", false),
        ] {
            assert_eq!(acting_as(login).is_own_account(by), is_own, "{login:?} {by}");
        }
    }

    /// Z6.5: an address on the host of any connection is never treated as unknown.
    #[test]
    fn a_host_is_known_by_each_address_of_a_connection_with_projects() {
        let hub = StoredConnection {
            canonical_hostname: "Hub.test".to_owned(),
            api_url: Some("https://api.example.org/v3".to_owned()),
            git_url: "http://bot@git.test:8080/repos".to_owned(),
            ..acting_as(None)
        };
        let here = StoredConnection {
            driver: Driver::Git,
            canonical_hostname: "[::1]:9600".to_owned(),
            git_url: "/srv/git".to_owned(),
            ..acting_as(None)
        };
        let far = StoredConnection {
            canonical_hostname: "far.test".to_owned(),
            git_url: "https://bücher.test".to_owned(),
            ..acting_as(None)
        };
        let mail = StoredConnection {
            driver: Driver::Smtp,
            canonical_hostname: "mail.test".to_owned(),
            ..acting_as(None)
        };
        let mail = StoredConnection { git_url: String::new(), ..mail };
        let file = ConnectionsFile(
            [("hub", hub), ("here", here), ("far", far), ("mail", mail)]
                .map(|(name, one)| (name.into(), one))
                .into(),
        );
        for (address, is_on_unknown_host) in [
            ("https://hub.test/org/one/issues/4", false),
            ("https://HUB.test:8443/", false),
            ("https://www.hub.test/a", false),
            ("http://git.test/a", false),
            ("https://api.example.org/v4", false),
            ("http://[::1]:1/a", false),
            ("http://[0::1]/a", false),
            ("http://xn--bcher-kva.test/a", false),
            ("https://hub.test./a", false),
            (r"https://hub.test\@elsewhere.test/a", false),
            ("https:hub.test/a", false),
            ("https://nohub.test/a", true),
            ("https://hub.test@elsewhere.test/a", true),
            ("https://example.org/a", true),
            ("https://mail.test/a", true),
            ("https://srv/git", true),
            ("https://elsewhere.test/hub.test", true),
            ("org/one#4", false),
            ("mailto:ada@elsewhere.test", false),
            ("", false),
        ] {
            assert_eq!(file.is_on_unknown_host(address), is_on_unknown_host, "{address}");
        }
    }

    /// Z6.5
    #[test]
    fn the_host_of_a_url_excludes_port_and_user() {
        for (address, host) in [
            ("https://GitHub.com/org/one/pull/4", Some("github.com")),
            ("http://ada@forge.test:8080/org/one", Some("forge.test")),
            ("ssh://ada@Forge.test:29418/org/one", Some("forge.test")),
            ("https://[::1]:9600/org/one", Some("[::1]")),
            ("org/one#4", None),
            ("mailto:ada@forge.test", None),
        ] {
            assert_eq!(host_of(address).as_deref(), host, "{address}");
        }
    }

    /// Z6.5: operators configure hosts with and without scheme, port and path.
    #[test]
    fn the_host_of_a_connection_is_found_in_a_url_or_a_bare_host() {
        for (written, host) in [
            ("Hub.test", Some("hub.test")),
            ("localhost:9600", Some("localhost")),
            ("[::1]:9600", Some("[::1]")),
            ("hub.test/gerrit", Some("hub.test")),
            ("http://bot@git.test:8080/repos", Some("git.test")),
            ("file:///srv/git", None),
            ("/srv/git", None),
            ("", None),
        ] {
            assert_eq!(host_in(written).as_deref(), host, "{written}");
        }
    }

    #[test]
    fn the_host_of_a_connection_to_ec2_names_its_region() {
        assert_eq!(ec2_region(&ec2_host("eu-central-1")), Some("eu-central-1"));
        assert_eq!(ec2_region("ec2"), None);
        assert!(["eu-central-1", "us-gov-west-1"].into_iter().all(is_region));
        assert!(!["nowhere", "eu-central", "eu--1", "EU-central-1", ""].into_iter().any(is_region));
    }
}
