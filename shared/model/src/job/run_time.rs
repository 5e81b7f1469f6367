//! Attributes of a job that act while it is scheduled, runs or is reported, and decide nothing
//! before.

use super::RequiredProject;
use crate::change::ChangeKey;
use crate::git::Oid;
use crate::{BranchName, ConnectionName, ProjectName};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

/// What acts at run time only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunTime {
    /// When the job runs: among the others, before them, or after the reports.
    #[serde(skip_serializing_if = "is_default")]
    pub kind: JobKind,
    /// Where a report's line of a failure points to, instead of the logs; a relative one lies
    /// within them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_url: Option<String>,
    /// The same for a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_url: Option<String>,
    /// Whether changes behind in the queue wait until this job has ended before they start theirs.
    #[serde(skip_serializing_if = "is_default")]
    pub hold_following_changes: bool,
    /// Whether changes of one bundle share one build of it.
    #[serde(skip_serializing_if = "is_default")]
    pub deduplicate: Choice,
    /// Expressions of which one in the output means that the build fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failure_output: Vec<String>,
    /// What is done when a secret shows in the output.
    #[serde(skip_serializing_if = "is_default")]
    pub secret_exposure: SecretExposure,
    /// Of the repositories that are not required, those to put in place; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_projects: Option<Vec<ProjectName>>,
    /// Of the repositories that are not required, those not to put in place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_projects: Vec<ProjectName>,
    /// Files of variables to read, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include_vars: Vec<IncludeVars>,
    /// Whether standard output and error of commands are kept apart; `None` leaves it to the
    /// executor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ansible_split_streams: Option<bool>,
    /// Whether repositories are checked out in the workspace, or only fetched.
    #[serde(skip_serializing_if = "Checkout::is_default")]
    pub workspace_checkout: Checkout,
    /// Where repositories are placed on the nodes, in the first design's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The host that it runs on, in the place of nodes (Z8.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Containers of object storage that it may write to (Z4.8).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// Roles that come from Ansible Galaxy (Z4.6).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub galaxy_roles: Vec<GalaxyRole>,
    /// Whether `run` holds candidates of which the first that exists is meant (Z4.9).
    #[serde(skip_serializing_if = "is_default")]
    pub implied_run: bool,
    /// The formats in which providers need the image that the job builds; empty for a job that
    /// builds none (L1.1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_formats: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// When a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Among the others, as dependencies say.
    #[default]
    Regular,
    /// Before all others of the item.
    Initializer,
    /// After the item's reports.
    Reporter,
}

/// Yes, no, or what the situation suggests. Written as `true`, `false` and `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// As the situation suggests.
    #[default]
    Auto,
    /// Yes.
    Yes,
    /// No.
    No,
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Yes => serializer.serialize_bool(true),
            Self::No => serializer.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl de::Visitor<'_> for Words {
            type Value = Choice;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false or \"auto\"")
            }

            fn visit_bool<E: de::Error>(self, yes: bool) -> Result<Choice, E> {
                Ok(if yes { Choice::Yes } else { Choice::No })
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Choice, E> {
                if word == "auto" {
                    Ok(Choice::Auto)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(word), &self))
                }
            }
        }
        deserializer.deserialize_any(Words)
    }
}

/// Whether repositories are checked out in the workspace; yes where nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checkout(pub Choice);

impl Default for Checkout {
    fn default() -> Self {
        Self(Choice::Yes)
    }
}

impl Checkout {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What is done when a secret shows in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretExposure {
    /// Nothing.
    #[default]
    Ignore,
    /// It is blotted out.
    Redact,
    /// The build fails.
    Fail,
}

/// A file of variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludeVars {
    /// The path within its repository.
    pub name: String,
    /// The repository it lies in.
    pub source: VarsSource,
    /// Whether a missing file fails the build.
    pub required: bool,
    /// Whether a build of a ref of that repository reads it as the ref has it, and not as a branch
    /// has it.
    pub use_ref: bool,
    /// The commit it is read from, of a config project alone: what is merged. Of others it is read
    /// as the tested state has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Oid>,
}

/// Where a file of variables lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VarsSource {
    /// In a project of the tenant.
    Project(RequiredProject),
    /// In the project of the change.
    OfChange,
}

impl VarsSource {
    /// Returns the connection and the project, for a build of `own`.
    pub fn project<'a>(&'a self, own: &'a ChangeKey) -> (&'a ConnectionName, &'a ProjectName) {
        match self {
            Self::Project(found) => (&found.connection, &found.project),
            Self::OfChange => (&own.connection, &own.project),
        }
    }

    /// Returns the branch of the definition that asks for the file, where the file lies beside it.
    pub fn branch(&self) -> Option<&BranchName> {
        match self {
            Self::Project(found) => found.override_checkout.as_ref(),
            Self::OfChange => None,
        }
    }
}

/// A host that is no node of the pool (Z8.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name or address.
    pub name: String,
    /// The fingerprint of its key; another key is refused.
    pub fingerprint: Fingerprint,
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

impl Fingerprint {
    /// Returns the fingerprint of a text in either form, `None` for any other.
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

/// A role from Ansible Galaxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GalaxyRole {
    /// Its name on Galaxy.
    pub galaxy: String,
    /// The directory it is placed in; its own name where `None`.
    pub target_name: Option<String>,
    /// The connection and project whose definition asked for it.
    pub asked_by: (ConnectionName, ProjectName),
}

/// A token that is issued to a job in the place of a secret's values: a secret's `oidc`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OidcToken {
    /// What it is signed by; `None` for the system's own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// How long it holds; `None` for the system's own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// The issuer it names (`iss`); `None` for the system's own address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Claims besides those that every token has.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub claims: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z8.1: the colon form and SHA-256 are both read.
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

    /// Z4.7: what nobody said takes no room in a frozen job, and what was said survives storage.
    #[test]
    fn run_time_attributes_survive_storage() {
        let none = serde_json::to_string(&RunTime::default()).unwrap_or_default();
        assert_eq!(none, "{}");
        let some = RunTime {
            deduplicate: Choice::No,
            workspace_checkout: Checkout(Choice::Auto),
            kind: JobKind::Reporter,
            ..RunTime::default()
        };
        let text = serde_json::to_string(&some).unwrap_or_default();
        assert_eq!(text, r#"{"kind":"reporter","deduplicate":false,"workspace_checkout":"auto"}"#);
        assert_eq!(serde_json::from_str::<RunTime>(&text).ok(), Some(some));
        assert_eq!(serde_json::from_str::<RunTime>("{}").ok(), Some(RunTime::default()));
    }
}
