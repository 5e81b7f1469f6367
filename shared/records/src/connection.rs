//! Connections to forges as an operator configured them: one object, its secrets sealed.

use serde::{Deserialize, Serialize};
use sluice_config::connection::{Connections, Driver};
use sluice_model::ConnectionName;
use sluice_model::git::LandingWay;
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use url::Url;

/// The object that holds them.
pub const OBJECT: &str = "system/connections.json";

/// The object with the tenants (Zuul's main configuration).
pub const MAIN: &str = "system/main.yaml";

/// One connection, its secrets still sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// What speaks there.
    pub driver: Driver,
    /// The host in canonical names.
    pub canonical_hostname: String,
    /// Where its API is (`https://api.github.com`).
    pub api_url: Option<String>,
    /// Where its repositories are (`https://github.com`); a project's path is appended.
    pub git_url: String,
    /// The login its token acts as, so that its own comments are recognised.
    pub login: Option<String>,
    /// The API token, sealed (base64).
    pub token: Option<String>,
    /// Webhook secrets, sealed; two while they are changed.
    #[serde(default)]
    pub webhook_secrets: Vec<String>,
    /// How its changes land.
    #[serde(default, skip_serializing_if = "LandingWay::is_merge")]
    pub landing: LandingWay,
}

impl Connection {
    /// Returns whether changes are read there: a plain git server tells of none. Where no driver of
    /// that kind is there yet, whoever is to ask says so.
    pub fn is_asked(&self) -> bool {
        matches!(self.driver, Driver::GitHub | Driver::Gerrit)
    }

    /// Returns whether projects may be there, whether or not it is asked about changes.
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

    /// Returns whether somebody whom the forge names is the account that the token acts as. A
    /// GitHub App is named with `[bot]` as an account, and without it where a check run is its own.
    /// Case does not count: on GitHub no two logins differ by it alone, and whoever is taken for us
    /// elsewhere starts the less by that.
    pub fn is_own(&self, by: &str) -> bool {
        let is = |own: &str| own.eq_ignore_ascii_case(by);
        self.login
            .as_deref()
            .is_some_and(|login| is(login) || login.strip_suffix("[bot]").is_some_and(is))
    }
}

/// Every connection by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConnectionsFile(pub BTreeMap<ConnectionName, Connection>);

impl ConnectionsFile {
    /// Returns what the configuration language has to know of them.
    pub fn vocabulary(&self) -> Connections {
        self.0.iter().fold(Connections::new(), |all, (name, connection)| {
            all.with(name.as_str(), connection.driver, &connection.canonical_hostname)
        })
    }

    /// Returns the connections with this canonical host, by name: there may be several, and by
    /// which of them a project is known only the tenants that have it say.
    pub fn of_host(&self, host: &str) -> Vec<(&ConnectionName, &Connection)> {
        self.0.iter().filter(|(_, connection)| connection.canonical_hostname == host).collect()
    }

    /// Returns whether an address is on a host that no connection leads to: nobody can be asked
    /// about what is there. What names no host is on none, and so is not.
    fn is_strange(&self, address: &str) -> bool {
        host_of(address).is_some_and(|host| !self.leads_to(&host))
    }

    /// Returns whether a connection to where changes are leads to a host, or to one that it lies
    /// below. Ports do not count: what is taken for known without being so is refused, and what is
    /// not, though it is, would be left out.
    fn leads_to(&self, host: &str) -> bool {
        let is_it = |known: String| {
            let below = host.strip_suffix(known.as_str());
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

/// Returns the host that an address leads to, as a browser would read it: in small letters, without
/// its port, its user and a dot at its end. `None` for what is no address of one.
fn host_of(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    url.host_str()
        .map(|host| host.trim_end_matches('.').to_ascii_lowercase())
        .filter(|host| !host.is_empty())
}

/// Returns the host of what a connection is configured with: an address, or a host with or without
/// a port; nothing of a path.
fn host_in(written: &str) -> Option<String> {
    if written.contains("://") {
        return host_of(written);
    }
    // Before a slash that begins it there is no host.
    (!written.starts_with('/')).then(|| host_of(&format!("http://{written}"))).flatten()
}

/// What a sealed secret of a connection is bound to.
pub fn seal_context(connection: &ConnectionName, what: &str) -> String {
    format!("connection/{connection}/{what}")
}

/// Reads the connections.
///
/// # Errors
/// When there are none, or they cannot be read.
pub async fn load(ports: &Ports) -> Result<ConnectionsFile, PortError> {
    let object = ports.objects.get(OBJECT).await?.ok_or_else(|| {
        PortError::unknown(format!("read {OBJECT}"), "there is none; store the connections first")
    })?;
    serde_json::from_slice(&object.bytes)
        .map_err(|error| PortError::unknown(format!("read {OBJECT}"), error))
}

/// Returns those of some addresses that are on a host that no connection leads to; nothing is read
/// where there are none. What comes in without waiting for them lands without them: whoever asks
/// about either asks here.
///
/// # Errors
/// As [`load`].
pub async fn strange<'a>(
    ports: &Ports,
    addresses: Vec<&'a String>,
) -> Result<Vec<&'a String>, PortError> {
    if addresses.is_empty() {
        return Ok(addresses);
    }
    let connections = load(ports).await?;
    Ok(addresses.into_iter().filter(|address| connections.is_strange(address)).collect())
}

/// Seals a secret of a connection, in the form the object keeps.
///
/// # Errors
/// Whatever the key service could not do.
pub async fn seal(ports: &Ports, context: &str, plain: &str) -> Result<String, PortError> {
    use base64::Engine as _;
    let sealed = ports.seal.seal(context, plain.as_bytes()).await?;
    Ok(base64::engine::general_purpose::STANDARD.encode(sealed))
}

/// Opens a sealed secret of a connection.
///
/// # Errors
/// When it was sealed as something else, or the key service does not answer; the text of the secret
/// is in no error.
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

    fn acting_as(login: Option<&str>) -> Connection {
        Connection {
            driver: Driver::GitHub,
            canonical_hostname: "forge.test".to_owned(),
            api_url: None,
            git_url: "https://forge.test".to_owned(),
            login: login.map(str::to_owned),
            token: None,
            webhook_secrets: Vec::new(),
            landing: LandingWay::default(),
        }
    }

    /// Z6.1: what an application says it says as its account, and its check runs are under its own
    /// name.
    #[test]
    fn an_application_is_known_by_its_account_and_by_its_name() {
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
            assert_eq!(acting_as(login).is_own(by), is_own, "{login:?} {by}");
        }
    }

    /// Z6.5: what lies on a host that some connection leads to is never taken for unknown.
    #[test]
    fn a_host_is_known_by_each_address_of_a_connection_to_where_projects_are() {
        let hub = Connection {
            canonical_hostname: "Hub.test".to_owned(),
            api_url: Some("https://api.example.org/v3".to_owned()),
            git_url: "http://bot@git.test:8080/repos".to_owned(),
            ..acting_as(None)
        };
        let here = Connection {
            driver: Driver::Git,
            canonical_hostname: "[::1]:9600".to_owned(),
            git_url: "/srv/git".to_owned(),
            ..acting_as(None)
        };
        let far = Connection {
            canonical_hostname: "far.test".to_owned(),
            git_url: "https://bücher.test".to_owned(),
            ..acting_as(None)
        };
        let mail = Connection {
            driver: Driver::Smtp,
            canonical_hostname: "mail.test".to_owned(),
            ..acting_as(None)
        };
        let mail = Connection { git_url: String::new(), ..mail };
        let file = ConnectionsFile(
            [("hub", hub), ("here", here), ("far", far), ("mail", mail)]
                .map(|(name, one)| (name.into(), one))
                .into(),
        );
        for (address, is_strange) in [
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
            assert_eq!(file.is_strange(address), is_strange, "{address}");
        }
    }

    /// Z6.5
    #[test]
    fn the_host_of_an_address_is_found_without_its_port_and_its_user() {
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

    /// Z6.5: operators write hosts with and without all that may stand around them.
    #[test]
    fn the_host_of_a_connection_is_found_in_an_address_and_alone() {
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
}
