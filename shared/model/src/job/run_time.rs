//! Job attributes that apply while a job is scheduled, runs or is reported, and do not affect
//! earlier decisions.

use super::RequiredProject;
use crate::change::ChangeKey;
use crate::git::Oid;
use crate::{BranchName, ConnectionName, ProjectName};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

/// Job attributes that apply only at run time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunTime {
    /// When the job runs: among the other jobs, before them, or after the reports.
    #[serde(skip_serializing_if = "is_default")]
    pub kind: JobKind,
    /// The link in the report after a failure; a relative one is resolved within the logs. `None`
    /// links to the logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_url: Option<String>,
    /// The link in the report after a success; a relative one is resolved within the logs. `None`
    /// links to the logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_url: Option<String>,
    /// Whether changes behind in the queue start no jobs until this job has ended.
    #[serde(skip_serializing_if = "is_default")]
    pub hold_following_changes: bool,
    /// Whether members of a bundle share one build of the job.
    #[serde(skip_serializing_if = "is_default")]
    pub deduplicate: Tristate,
    /// Regular expressions; the build fails if its output matches one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failure_output: Vec<String>,
    /// The reaction to a secret in the output.
    #[serde(skip_serializing_if = "is_default")]
    pub secret_exposure: SecretExposure,
    /// The optional repositories to put into the workspace; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_projects: Option<Vec<ProjectName>>,
    /// Optional repositories that are left out of the workspace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_projects: Vec<ProjectName>,
    /// Variable files to read, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include_vars: Vec<IncludeVars>,
    /// Whether standard output and standard error of commands stay separate; `None` leaves it to
    /// the executor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ansible_split_streams: Option<bool>,
    /// Whether repositories in the workspace are checked out, or only fetched.
    #[serde(skip_serializing_if = "WorkspaceCheckout::is_default")]
    pub workspace_checkout: WorkspaceCheckout,
    /// The directory for repositories on the nodes (attribute `workspace`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The host that it runs on instead of nodes (Z8.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<ExternalHost>,
    /// Whether `run` lists candidate files, of which the first existing one runs (Z4.9).
    #[serde(skip_serializing_if = "is_default")]
    pub implied_run: bool,
    /// The image formats that providers need from this job; empty if it builds no image (L1.1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_formats: Vec<String>,
}

/// The maximum length of a container's name.
const CONTAINER_NAME_MAX: usize = 63;

/// Returns whether a text may name an object storage container (Z4.8). The name is a part of object
/// keys, and of a policy in which `*` and `?` are wildcards: 1 to 63 of `A-Z a-z 0-9 . _ -`, first
/// a letter or digit, without `..`.
pub fn is_container_name(name: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= CONTAINER_NAME_MAX
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(is_sign)
        && !name.contains("..")
}

/// Returns whether a value is the default, for leaving it out of a record.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// When a job runs relative to the other jobs of the item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// In dependency order among the regular jobs.
    #[default]
    Regular,
    /// Before all other jobs.
    Initializer,
    /// After the item's reports.
    Reporter,
}

/// Yes, no, or automatic. Serialized as `true`, `false` and `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tristate {
    /// The context decides.
    #[default]
    Auto,
    /// Yes.
    Yes,
    /// No.
    No,
}

impl Serialize for Tristate {
    /// Writes `"auto"`, `true` or `false`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Yes => serializer.serialize_bool(true),
            Self::No => serializer.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for Tristate {
    /// Reads `true`, `false` or `"auto"`. Any other value is an error.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TristateVisitor;
        impl de::Visitor<'_> for TristateVisitor {
            type Value = Tristate;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false or \"auto\"")
            }

            fn visit_bool<E: de::Error>(self, yes: bool) -> Result<Tristate, E> {
                Ok(if yes { Tristate::Yes } else { Tristate::No })
            }

            /// Reads `auto`; any other text is an error.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Tristate, E> {
                if text == "auto" {
                    Ok(Tristate::Auto)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }
        }
        deserializer.deserialize_any(TristateVisitor)
    }
}

/// Whether repositories in the workspace are checked out; the default is yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkspaceCheckout(pub Tristate);

impl Default for WorkspaceCheckout {
    fn default() -> Self {
        Self(Tristate::Yes)
    }
}

impl WorkspaceCheckout {
    /// Returns whether repositories are checked out as by default, for leaving the field out of a
    /// record.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The reaction to a secret in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretExposure {
    /// No reaction.
    #[default]
    Ignore,
    /// The secret is redacted.
    Redact,
    /// The build fails.
    Fail,
}

/// A file of variables that a job reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludeVars {
    /// The path within its repository.
    pub name: String,
    /// The repository that contains it.
    pub source: VarsSource,
    /// Whether the build fails if the file is missing.
    pub required: bool,
    /// Whether a build for a ref of that repository reads the file from that ref rather than from a
    /// branch.
    pub use_ref: bool,
    /// For a config project, the merged commit to read the file from. `None` for other projects,
    /// whose file comes from the tested state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Oid>,
}

/// The repository that contains a file of variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VarsSource {
    /// A project of the tenant.
    Project(RequiredProject),
    /// The project of the change.
    OfChange,
}

impl VarsSource {
    /// Returns the connection and the project that has the file: the named project, or that of
    /// `own`, the change under test.
    pub fn project<'a>(&'a self, own: &'a ChangeKey) -> (&'a ConnectionName, &'a ProjectName) {
        match self {
            Self::Project(found) => (&found.connection, &found.project),
            Self::OfChange => (&own.connection, &own.project),
        }
    }

    /// Returns the branch from which the file is read, stored as `override_checkout`: that of the
    /// job definition if it names no project for the file. For a definition in an included file, it
    /// is the branch of the source that has the file. `None` for another project that the job
    /// names, and for the project of the change; the caller then chooses the branch.
    pub fn branch(&self) -> Option<&BranchName> {
        match self {
            Self::Project(found) => found.override_checkout.as_ref(),
            Self::OfChange => None,
        }
    }
}

/// A host outside the node pool (Z8.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalHost {
    /// Its name or address, with a login before it and a port behind it where they differ from the
    /// defaults: `[user@]host[:port]`, as [`HostLogin::parse`] reads it.
    pub name: String,
    /// The fingerprint of its host key; a host with another key is refused.
    pub fingerprint: Fingerprint,
}

/// How to log in on a host outside the node pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLogin<'a> {
    /// The login name; `None` for the executor's default.
    pub user: Option<&'a str>,
    /// The name or address, without brackets.
    pub host: &'a str,
    /// The SSH port.
    pub port: u16,
}

impl<'a> HostLogin<'a> {
    /// Parses `[user@]host[:port]`, where an IPv6 address with a port is in brackets. The port is
    /// 22 by default. `None` for any other text: names of hosts and users have letters, digits and
    /// `.`, `_`, `-`, and do not begin with a hyphen.
    pub fn parse(text: &'a str) -> Option<Self> {
        let is_word = |word: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            !word.is_empty()
                && word.len() <= 253
                && !word.starts_with('-')
                && word.chars().all(is_part)
        };
        let (user, place) = match text.split_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, text),
        };
        if user.is_some_and(|user| !is_word(user)) {
            return None;
        }
        let (host, port) = if let Some(rest) = place.strip_prefix('[') {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        } else if place.matches(':').count() > 1 {
            (place, None)
        } else {
            place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)))
        };
        if !is_word(host) && host.parse::<core::net::Ipv6Addr>().is_err() {
            return None;
        }
        let port = port.map_or(Some(22), |port| port.parse().ok().filter(|port| *port != 0))?;
        Some(Self { user, host, port })
    }
}

/// The fingerprint of a host's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fingerprint {
    /// MD5: sixteen bytes in hexadecimal with colons between.
    Md5(String),
    /// SHA-256 in base64 without padding.
    Sha256(String),
}

impl std::fmt::Display for Fingerprint {
    /// Writes the fingerprint as `ssh-keygen -l` does: `MD5:4a:28:…` or `SHA256:…`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Md5(hash) => write!(f, "MD5:{hash}"),
            Self::Sha256(hash) => write!(f, "SHA256:{hash}"),
        }
    }
}

impl Fingerprint {
    /// Parses `SHA256:` with 43 base64 digits, with or without padding, or sixteen hexadecimal
    /// bytes with colons between (MD5), with or without `MD5:`. The result holds the hash without
    /// prefix and padding, MD5 in lower case. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(hash) = text.strip_prefix("SHA256:") {
            let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/');
            let hash = hash.trim_end_matches('=');
            return (hash.len() == 43 && hash.chars().all(is_base64))
                .then(|| Self::Sha256(hash.to_owned()));
        }
        let bytes: Vec<&str> = text.strip_prefix("MD5:").unwrap_or(text).split(':').collect();
        let is_byte = |byte: &&str| byte.len() == 2 && byte.chars().all(|c| c.is_ascii_hexdigit());
        (bytes.len() == 16 && bytes.iter().all(is_byte))
            .then(|| Self::Md5(bytes.join(":").to_ascii_lowercase()))
    }
}

/// A token that is issued to a job instead of a secret's values (a secret's `oidc`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OidcToken {
    /// The signature algorithm; `None` for the system's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// The lifetime in seconds; `None` for the system's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// The issuer (`iss`); `None` for the system's own address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Additional claims.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub claims: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z8.1: MD5 with colons and SHA-256 are both accepted.
    #[test]
    fn fingerprints_are_read_in_both_forms() {
        let colons = "4A:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b";
        let md5 = Fingerprint::Md5(colons.to_ascii_lowercase());
        assert_eq!(Fingerprint::parse(colons), Some(md5.clone()));
        assert_eq!(Fingerprint::parse(&format!("MD5:{colons}")), Some(md5));
        let hash = "a".repeat(43);
        assert_eq!(Fingerprint::parse(&format!("SHA256:{hash}=")), Some(Fingerprint::Sha256(hash)));
        for wrong in
            ["", "4a:28", "SHA256:short", "zz:28:cb:03:6a:d6:79:0b:cc:dc:60:ae:6a:62:cf:5b"]
        {
            assert_eq!(Fingerprint::parse(wrong), None, "{wrong}");
        }
    }

    /// Z4.8: no name leads out of its container, or fits another one.
    #[test]
    fn a_containers_name_has_no_sign_with_a_meaning_in_keys_or_policies() {
        for name in ["logs", "a", "9", "release-artifacts_2.0", &"x".repeat(63)] {
            assert!(is_container_name(name), "{name}");
        }
        for name in
            ["", ".", "..", ".logs", "-logs", "a..b", "a/b", "../b", "a*", "a?", "ä", "a b", "${a}"]
        {
            assert!(!is_container_name(name), "{name}");
        }
        assert!(!is_container_name(&"x".repeat(64)));
    }

    /// Z8.1: a host may name a login and a port, and nothing that a program would read as an
    /// option.
    #[test]
    fn a_host_is_a_name_or_address_with_login_and_port() {
        let login = |user, host, port| Some(HostLogin { user, host, port });
        for (text, expected) in [
            ("deploy.example.com", login(None, "deploy.example.com", 22)),
            ("root@deploy:2222", login(Some("root"), "deploy", 2222)),
            ("192.0.2.1:22", login(None, "192.0.2.1", 22)),
            ("2001:db8::1", login(None, "2001:db8::1", 22)),
            ("me@[2001:db8::1]:23", login(Some("me"), "2001:db8::1", 23)),
            ("", None),
            ("-oProxyCommand=x", None),
            ("a b", None),
            ("-l@host", None),
            ("host:0", None),
            ("host:70000", None),
            ("host:", None),
            ("[host", None),
            ("{{ host }}", None),
            ("a/b", None),
        ] {
            assert_eq!(HostLogin::parse(text), expected, "{text}");
        }
    }

    /// Z4.7: unset attributes take no space in a frozen job, and set ones survive storage.
    #[test]
    fn run_time_attributes_survive_storage() {
        let none = serde_json::to_string(&RunTime::default()).unwrap_or_default();
        assert_eq!(none, "{}");
        let some = RunTime {
            deduplicate: Tristate::No,
            workspace_checkout: WorkspaceCheckout(Tristate::Auto),
            kind: JobKind::Reporter,
            ..RunTime::default()
        };
        let text = serde_json::to_string(&some).unwrap_or_default();
        assert_eq!(text, r#"{"kind":"reporter","deduplicate":false,"workspace_checkout":"auto"}"#);
        assert_eq!(serde_json::from_str::<RunTime>(&text).ok(), Some(some));
        assert_eq!(serde_json::from_str::<RunTime>("{}").ok(), Some(RunTime::default()));
    }

    /// Z4.7
    #[test]
    fn a_stored_value_of_another_kind_is_refused_with_the_values_that_are_read() {
        for text in ["\"yes\"", "1"] {
            let error = serde_json::from_str::<Tristate>(text).unwrap_err().to_string();
            assert!(error.contains(r#"expected true, false or "auto""#), "{error}");
        }
    }
}
