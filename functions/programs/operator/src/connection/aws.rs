//! The AWS credentials of a connection to EC2: their options, and how they are shown.

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use sluice_records::connection::{AwsAccess, StoredAccessKey, StoredRole};

/// The options about the AWS credentials of a connection; those that are not given are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AwsOptions {
    /// The id of an access key; its secret is in a file.
    pub access_key_id: Option<String>,
    /// The ARN of a role to assume.
    pub role_arn: Option<String>,
    /// The external id that the role's trust policy requires.
    pub external_id: Option<String>,
    /// Whether the stored credentials are removed.
    pub reset: AwsCredentialsReset,
}

/// Whether the stored AWS credentials of a connection are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AwsCredentialsReset {
    /// They are kept.
    #[default]
    Keep,
    /// They are removed: the launcher's own credentials are used again.
    ToAmbient,
}

/// Whether a secret access key is given in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SecretAccessKeyFile {
    /// There is one.
    Given,
    /// There is none.
    #[default]
    Missing,
}

impl AwsOptions {
    /// Returns whether no option about AWS credentials is given.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the credentials to store: the stored ones with the given options. An access key whose
/// secret is given has an empty one here, which the caller seals and sets. An error if an option is
/// invalid, or lacks the other one that it needs.
pub(super) fn access(
    options: &AwsOptions,
    old: Option<&AwsAccess>,
    secret: SecretAccessKeyFile,
) -> anyhow::Result<AwsAccess> {
    let AwsOptions { access_key_id, role_arn, external_id, reset } = options;
    if *reset == AwsCredentialsReset::ToAmbient {
        let others = AwsOptions { reset: AwsCredentialsReset::Keep, ..options.clone() };
        if !others.is_empty() || secret == SecretAccessKeyFile::Given {
            bail!(
                "--ambient-credentials removes the connection's own credentials: omit the access key, the role and the external id"
            );
        }
        return Ok(AwsAccess::default());
    }
    let old = old.cloned().unwrap_or_default();
    Ok(AwsAccess {
        access_key: access_key(access_key_id.as_deref(), old.access_key, secret)?,
        role: role(role_arn.as_deref(), external_id.as_deref(), old.role)?,
    })
}

/// Returns the access key to store, with an empty secret if one is given.
fn access_key(
    id: Option<&str>,
    old: Option<StoredAccessKey>,
    secret: SecretAccessKeyFile,
) -> anyhow::Result<Option<StoredAccessKey>> {
    if let Some(id) = id {
        let is_id = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
        if !(16..=128).contains(&id.len()) || !id.bytes().all(is_id) {
            bail!("{id} is not the id of an AWS access key; an example is AKIAIOSFODNN7EXAMPLE");
        }
        if id.starts_with("ASIA") {
            bail!(
                "{id} is a temporary access key, which expires: use a role (--role-arn) or the access key of a user"
            );
        }
    }
    let stored_id = old.as_ref().map(|key| key.id.as_str());
    match (id.or(stored_id), secret) {
        (None, SecretAccessKeyFile::Missing) => Ok(None),
        (None, SecretAccessKeyFile::Given) => {
            bail!("--secret-access-key-file needs the id of the access key: --access-key-id")
        }
        (Some(id), SecretAccessKeyFile::Given) => {
            Ok(Some(StoredAccessKey { id: id.to_owned(), sealed_secret: String::new() }))
        }
        (Some(id), SecretAccessKeyFile::Missing) if stored_id == Some(id) => Ok(old),
        (Some(id), SecretAccessKeyFile::Missing) => bail!(
            "the access key {id} needs its secret: --secret-access-key-file (`-` reads it from standard input)"
        ),
    }
}

/// Returns the role to store. A given role replaces the stored one with its external id.
fn role(
    arn: Option<&str>,
    external_id: Option<&str>,
    old: Option<StoredRole>,
) -> anyhow::Result<Option<StoredRole>> {
    if let Some(arn) = arn.filter(|arn| !is_role(arn)) {
        bail!(
            "{arn} is not the ARN of a role; an example is arn:aws:iam::123456789012:role/sluice-nodes"
        );
    }
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@:/-".contains(&byte);
    if let Some(id) = external_id
        && !((2..=1_224).contains(&id.len()) && id.bytes().all(is_valid))
    {
        bail!(
            "{id:?} is not an external id: use 2 to 1224 letters, digits and the characters _+=,.@:/-"
        );
    }
    let external_id = external_id.map(str::to_owned);
    match arn {
        Some(arn) => Ok(Some(StoredRole { arn: arn.to_owned(), external_id })),
        None if external_id.is_some() => {
            let old = old.context("--external-id needs the role that requires it: --role-arn")?;
            Ok(Some(StoredRole { external_id, ..old }))
        }
        None => Ok(old),
    }
}

/// Returns whether a text has the form of a role's ARN: `arn:PARTITION:iam::ACCOUNT:role/NAME`.
fn is_role(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    let [arn, partition, iam, region, account, role] = parts.as_slice() else { return false };
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    let is_named = role.strip_prefix("role/").is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*')
    });
    *arn == "arn"
        && partition.starts_with("aws")
        && *iam == "iam"
        && region.is_empty()
        && is_account
        && is_named
}

/// Returns a phrase about whose credentials a connection uses, without a secret.
pub(super) fn credentials_phrase(access: &AwsAccess) -> String {
    let base = match &access.access_key {
        None => "the launcher's own (ambient) AWS credentials".to_owned(),
        Some(key) => format!("the access key {}", key.id),
    };
    match &access.role {
        None => base,
        Some(StoredRole { arn, external_id: None }) => {
            format!("the role {arn}, assumed with {base}")
        }
        Some(StoredRole { arn, external_id: Some(id) }) => {
            format!("the role {arn} with the external id {id}, assumed with {base}")
        }
    }
}

/// Returns the credentials of a connection as JSON, without a secret; what it lacks is null.
pub(super) fn credentials_json(access: &AwsAccess) -> Value {
    json!({
        "ambient": access.is_ambient(),
        "access_key_id": access.access_key.as_ref().map(|key| &key.id),
        "role_arn": access.role.as_ref().map(|role| &role.arn),
        "external_id": access.role.as_ref().and_then(|role| role.external_id.as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use SecretAccessKeyFile::{Given, Missing};

    const ROLE: &str = "arn:aws:iam::123456789012:role/nodes/sluice";
    const KEY: &str = "AKIAIOSFODNN7EXAMPLE";

    fn options(key: Option<&str>, role: Option<&str>, external_id: Option<&str>) -> AwsOptions {
        AwsOptions {
            access_key_id: key.map(str::to_owned),
            role_arn: role.map(str::to_owned),
            external_id: external_id.map(str::to_owned),
            reset: AwsCredentialsReset::Keep,
        }
    }

    fn stored() -> AwsAccess {
        let role = StoredRole { arn: ROLE.to_owned(), external_id: Some("us-1".to_owned()) };
        let key = StoredAccessKey { id: KEY.to_owned(), sealed_secret: "sealed".to_owned() };
        AwsAccess { access_key: Some(key), role: Some(role) }
    }

    /// L3.5: a connection shows whose credentials it uses, also if they are the ambient ones.
    #[test]
    fn a_connection_names_its_credentials_and_shows_no_secret() {
        let ambient = access(&AwsOptions::default(), None, Missing).unwrap();
        assert_eq!(credentials_phrase(&ambient), "the launcher's own (ambient) AWS credentials");
        let role = access(&options(None, Some(ROLE), Some("us-1")), None, Missing).unwrap();
        assert_eq!(
            credentials_phrase(&role),
            format!(
                "the role {ROLE} with the external id us-1, assumed with the launcher's own (ambient) AWS credentials"
            )
        );
        let shown = credentials_json(&stored()).to_string();
        assert!(shown.contains(KEY) && !shown.contains("sealed"), "{shown}");
    }

    /// L3.5, C5
    #[test]
    fn credentials_that_are_not_given_are_kept() {
        assert_eq!(access(&AwsOptions::default(), Some(&stored()), Missing).unwrap(), stored());
        let other = options(None, None, Some("us-2"));
        let made = access(&other, Some(&stored()), Missing).unwrap().role.unwrap();
        assert_eq!((made.arn.as_str(), made.external_id.as_deref()), (ROLE, Some("us-2")));
        let other = options(None, Some("arn:aws:iam::123456789012:role/other"), None);
        let made = access(&other, Some(&stored()), Missing).unwrap().role.unwrap();
        assert_eq!(made.external_id, None, "an external id belongs to its role");
        let reset = AwsOptions { reset: AwsCredentialsReset::ToAmbient, ..AwsOptions::default() };
        assert!(access(&reset, Some(&stored()), Missing).unwrap().is_ambient());
    }

    /// L3.5, C5
    #[test]
    fn incomplete_and_malformed_credentials_are_refused() {
        let refusal = |options: &AwsOptions, old: Option<&AwsAccess>, secret| {
            access(options, old, secret).unwrap_err().to_string()
        };
        let key = options(Some(KEY), None, None);
        assert!(refusal(&key, None, Missing).contains("--secret-access-key-file"));
        let other = options(Some("AKIAIOSFODNN7OTHERONE"), None, None);
        assert!(refusal(&other, Some(&stored()), Missing).contains("needs its secret"));
        assert!(refusal(&AwsOptions::default(), None, Given).contains("--access-key-id"));
        let temporary = options(Some("ASIAIOSFODNN7EXAMPLE"), None, None);
        assert!(refusal(&temporary, None, Given).contains("expires"));
        assert!(refusal(&options(None, None, Some("us-1")), None, Missing).contains("--role-arn"));
        assert!(refusal(&options(None, Some(ROLE), Some("a b")), None, Missing).contains("a b"));
        for wrong in [
            "sluice",
            "arn:aws:iam::1:role/a",
            "arn:aws:iam::123456789012:user/a",
            "arn:aws:iam::123456789012:role/",
            "arn:aws:iam::123456789012:role/*",
        ] {
            let message = refusal(&options(None, Some(wrong), None), None, Missing);
            assert!(message.contains("not the ARN of a role"), "{message}");
        }
        let reset = AwsOptions { reset: AwsCredentialsReset::ToAmbient, ..key };
        assert!(refusal(&reset, Some(&stored()), Given).contains("--ambient-credentials"));
    }
}
