//! Validates the options of `sluice connection add` and merges them into the stored connection.
//!
//! A secret belongs to the host it was given for. It is never sent to another host because an
//! address changed.

use super::aws::{self, SecretAccessKeyFile};
use super::{ConnectionChange, DriverArgument, LandingArgument};
use anyhow::{Context as _, bail};
use sluice_config::connection::Driver;
use sluice_model::git::LandingMethod;
use sluice_notify::Address;
use sluice_records::connection::{AwsAccess, StoredConnection, ec2_host, is_region};
use url::Url;

/// The addresses of github.com's repositories and its API.
const PUBLIC: (&str, &str) = ("https://github.com", "https://api.github.com");

/// Which secrets are given with the options; the others are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct GivenSecrets {
    pub(super) token: bool,
    pub(super) webhook_secret: bool,
    pub(super) secret_access_key: SecretAccessKeyFile,
}

/// Returns the connection to store: the stored one with the given options, or a new one, for GitHub
/// if no driver is given. It has the existing secrets; `given` only says which the caller adds.
/// Nothing is stored and no host is called. The driver of an existing connection cannot be changed.
/// Errors, too, are secrets and merge methods that the driver does not use, secrets that it lacks,
/// and kept secrets that would be sent to another host or without encryption.
///
/// # Errors
/// When an option is invalid, or a secret would be sent to a host that it was not given for.
pub(super) fn validated(
    change: &ConnectionChange,
    old: Option<&StoredConnection>,
    given: GivenSecrets,
) -> anyhow::Result<StoredConnection> {
    let name = &change.name;
    let driver =
        change.driver.map(driver_of).or(old.map(|old| old.driver)).unwrap_or(Driver::GitHub);
    if let Some(old) = old.filter(|old| old.driver != driver) {
        bail!(
            "could not change {name}: its driver is {}; remove the connection first (`sluice connection remove {name}`)",
            driver_name(old.driver)
        );
    }
    let made = match driver {
        Driver::GitHub => github(change, old)?,
        Driver::Git => git(change, old)?,
        Driver::Aws => ec2(change, old, given)?,
        Driver::Smtp | Driver::Mqtt => smtp_or_mqtt(driver, change, old)?,
        other => bail!(
            "could not add the connection: the driver {} is not supported yet",
            driver_name(other)
        ),
    };
    let has = GivenSecrets {
        token: made.token.is_some() || given.token,
        webhook_secret: !made.webhook_secrets.is_empty() || given.webhook_secret,
        ..given
    };
    match driver {
        Driver::GitHub if !(has.token && has.webhook_secret) => bail!(
            "could not add the connection: GitHub needs --token-file and --webhook-secret-file (`-` reads one of them from standard input)"
        ),
        Driver::Smtp | Driver::Mqtt if given.webhook_secret => {
            bail!("mail servers and brokers send no webhooks: omit --webhook-secret-file")
        }
        Driver::Smtp | Driver::Mqtt if has.token != made.login.is_some() => {
            bail!("give both --login and --token-file, or neither")
        }
        Driver::Smtp | Driver::Mqtt if has.token && !is_safe(&made) => {
            bail!("the password would be sent in the clear: use an address with mqtts://")
        }
        Driver::Git | Driver::Aws | Driver::Smtp | Driver::Mqtt if change.landing.is_some() => {
            bail!("only forges merge changes: omit --landing")
        }
        _ if change.poll_minutes.is_some() && made.driver != Driver::Git => {
            bail!("only plain git servers are polled: omit --poll-minutes")
        }
        Driver::Git if given.webhook_secret => {
            bail!("a plain git server sends no webhooks: omit --webhook-secret-file")
        }
        Driver::Aws if given.token || given.webhook_secret => {
            bail!(
                "EC2 has no token and no webhooks: omit --token-file and --webhook-secret-file; its credentials are --role-arn, or --access-key-id with --secret-access-key-file"
            )
        }
        Driver::GitHub | Driver::Git | Driver::Smtp | Driver::Mqtt
            if !change.aws.is_empty() || given.secret_access_key == SecretAccessKeyFile::Given =>
        {
            bail!("only connections to EC2 have AWS credentials: omit their options")
        }
        _ => {}
    }
    if let Some(old) = old
        && let Some(moved) = moved(old, &made)
        && ((old.token.is_some() && !given.token)
            || (!old.webhook_secrets.is_empty() && !given.webhook_secret))
    {
        bail!(
            "{moved}; secrets are never sent to another host, so give --token-file and --webhook-secret-file again"
        );
    }
    Ok(made)
}

/// Converts the driver in the options to the stored one.
fn driver_of(driver: DriverArgument) -> Driver {
    match driver {
        DriverArgument::Github => Driver::GitHub,
        DriverArgument::Git => Driver::Git,
        DriverArgument::Aws => Driver::Aws,
        DriverArgument::Smtp => Driver::Smtp,
        DriverArgument::Mqtt => Driver::Mqtt,
    }
}

/// Converts the merge method in the options to the stored one.
fn landing_of(landing: LandingArgument) -> LandingMethod {
    match landing {
        LandingArgument::Merge => LandingMethod::Merge,
        LandingArgument::FastForward => LandingMethod::FastForward,
    }
}

/// Returns the name of a driver as in the configuration and in `--driver`, such as `github`.
pub(super) fn driver_name(driver: Driver) -> String {
    serde_json::to_value(driver)
        .ok()
        .and_then(|name| name.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// Returns a GitHub connection. Addresses that are not given are kept, or are those of github.com
/// for a new one. An error if only one of the two addresses is on github.com, or if only one is
/// given and moves to another host. `--region` is ignored; secrets are not checked here.
fn github(
    change: &ConnectionChange,
    old: Option<&StoredConnection>,
) -> anyhow::Result<StoredConnection> {
    let git_url = address(&change.git_url)?
        .or(old.map(|old| old.git_url.clone()))
        .unwrap_or_else(|| PUBLIC.0.to_owned());
    let api_url = address(&change.api_url)?
        .or(old.and_then(|old| old.api_url.clone()))
        .unwrap_or_else(|| PUBLIC.1.to_owned());
    let is_public =
        |url: &str| matches!(host_of(url).as_deref(), Some("github.com" | "api.github.com"));
    let moved_alone = |now: &Option<String>, before: Option<&str>| {
        now.as_deref()
            .is_some_and(|now| before.is_some_and(|before| host_of(now) != host_of(before)))
    };
    let half = match (&change.git_url, &change.api_url) {
        (Some(_), None) => moved_alone(&change.git_url, old.map(|old| old.git_url.as_str())),
        (None, Some(_)) => moved_alone(&change.api_url, old.and_then(|old| old.api_url.as_deref())),
        _ => false,
    };
    if half || is_public(&git_url) != is_public(&api_url) {
        let host = if is_public(&git_url) { host_of(&api_url) } else { host_of(&git_url) }
            .unwrap_or_default();
        bail!(
            "GitHub Enterprise needs both addresses: --git-url https://{host} and --api-url https://{host}/api/v3; they would be {git_url} and {api_url}"
        );
    }
    Ok(StoredConnection {
        driver: Driver::GitHub,
        canonical_hostname: canonical_hostname_of(change, old, &git_url)?,
        api_url: Some(api_url),
        git_url,
        ..common_fields(change, old)
    })
}

/// Returns a connection to a plain git server. `--git-url` is required unless an address is stored;
/// `--api-url` and `--region` are ignored.
fn git(
    change: &ConnectionChange,
    old: Option<&StoredConnection>,
) -> anyhow::Result<StoredConnection> {
    let git_url = address(&change.git_url)?
        .or(old.map(|old| old.git_url.clone()))
        .context("a plain git server needs --git-url")?;
    Ok(StoredConnection {
        driver: Driver::Git,
        canonical_hostname: canonical_hostname_of(change, old, &git_url)?,
        git_url,
        ..common_fields(change, old)
    })
}

/// Returns a connection to EC2. Its canonical host, which names the region, is the given one, else
/// that of the given region, else the stored one. An error without any of these, or if `--region`
/// is no AWS region; a given host is not checked. `--git-url` is ignored. AWS credentials are those
/// of [`aws::access`].
fn ec2(
    change: &ConnectionChange,
    old: Option<&StoredConnection>,
    given: GivenSecrets,
) -> anyhow::Result<StoredConnection> {
    if let Some(region) = change.region.as_deref().filter(|region| !is_region(region)) {
        bail!("{region} is not an AWS region; an example is eu-central-1");
    }
    let host = change
        .host
        .clone()
        .or(change.region.as_deref().map(ec2_host))
        .or(old.map(|old| old.canonical_hostname.clone()))
        .context("a connection to EC2 needs --region")?;
    let api_url = address(&change.api_url)?.or(old.and_then(|old| old.api_url.clone()));
    Ok(StoredConnection {
        driver: Driver::Aws,
        canonical_hostname: host,
        api_url,
        aws: aws::access(&change.aws, old.map(|old| &old.aws), given.secret_access_key)?,
        ..common_fields(change, old)
    })
}

/// Returns a connection to a mail server or MQTT broker, as `driver` says. It has no projects, so
/// it has no canonical host. An address that is not given is kept. An error without an address, for
/// an address of the other kind, and for `--git-url`, `--host` or `--region`. Login and password
/// are not checked here.
fn smtp_or_mqtt(
    driver: Driver,
    change: &ConnectionChange,
    old: Option<&StoredConnection>,
) -> anyhow::Result<StoredConnection> {
    let forms = "--api-url smtps://HOST?from=ADDRESS&to=ADDRESS, or mqtts://HOST";
    let url = change.api_url.clone().or(old.and_then(|old| old.api_url.clone()));
    let url = url.with_context(|| {
        format!("a connection to a mail server or a broker needs its address: {forms}")
    })?;
    let address = Address::parse(&url)?;
    if address.is_mail() != (driver == Driver::Smtp) {
        bail!("this is not an address of a {} server: {forms}", driver_name(driver));
    }
    if change.git_url.is_some() || change.host.is_some() || change.region.is_some() {
        bail!(
            "a mail server or a broker has no repositories and no region: omit --git-url, --host and --region"
        );
    }
    Ok(StoredConnection { driver, api_url: Some(url), ..common_fields(change, old) })
}

/// Returns whether a password may be sent to the mail server or broker: the connection is
/// encrypted, or stays on this machine. False without a valid address.
fn is_safe(connection: &StoredConnection) -> bool {
    connection
        .api_url
        .as_deref()
        .is_some_and(|url| Address::parse(url).is_ok_and(|address| address.keeps_secrets()))
}

/// Returns a connection with the fields that are the same for every driver: the existing secrets,
/// and the given or else existing login, merge method and interval of polls. The caller sets
/// driver, canonical host and addresses, which are placeholders.
fn common_fields(change: &ConnectionChange, old: Option<&StoredConnection>) -> StoredConnection {
    StoredConnection {
        driver: Driver::Git,
        canonical_hostname: String::new(),
        api_url: None,
        git_url: String::new(),
        login: change.login.clone().or(old.and_then(|old| old.login.clone())),
        token: old.and_then(|old| old.token.clone()),
        webhook_secrets: old.map(|old| old.webhook_secrets.clone()).unwrap_or_default(),
        landing: change.landing.map(landing_of).or(old.map(|old| old.landing)).unwrap_or_default(),
        poll_minutes: change.poll_minutes.or(old.and_then(|old| old.poll_minutes)),
        aws: AwsAccess::default(),
    }
}

/// Returns the host in canonical names: the given one, else the existing one if the repositories'
/// host is unchanged, else the repositories' host, without its port. An error if the address has no
/// host.
fn canonical_hostname_of(
    change: &ConnectionChange,
    old: Option<&StoredConnection>,
    git_url: &str,
) -> anyhow::Result<String> {
    let stays = old
        .filter(|old| host_of(&old.git_url) == host_of(git_url))
        .map(|old| old.canonical_hostname.clone());
    let theirs = || Url::parse(git_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    change
        .host
        .clone()
        .or(stays)
        .or_else(theirs)
        .with_context(|| format!("{git_url} has no host name; give one with --host"))
}

/// Checks an address, and returns it without final slashes; `None` if none is given. An error if it
/// is not http or https, has no host, or contains a user or password. The error quotes no more than
/// the host.
fn address(given: &Option<String>) -> anyhow::Result<Option<String>> {
    let Some(text) = given else { return Ok(None) };
    // The text may contain a password, so the error does not quote it.
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
    let url = url.context("an http or https address is needed")?;
    if !url.username().is_empty() || url.password().is_some() {
        bail!(
            "{}: the address must not contain a user or password",
            url.host_str().unwrap_or_default()
        );
    }
    Ok(Some(text.trim_end_matches('/').to_owned()))
}

/// Returns the host of an address, which receives the secrets, with its port if that is not the
/// default one. `None` if the text is not a URL with a host.
fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(format!(
        "{}{}",
        url.host_str()?,
        url.port().map(|port| format!(":{port}")).unwrap_or_default()
    ))
}

/// Returns a description of the first address that is plain `http` now and was not before, else of
/// the first whose host or port differs; an address that is new or gone differs, too. `None` if
/// there is none.
fn moved(old: &StoredConnection, new: &StoredConnection) -> Option<String> {
    let is_plain = |url: Option<&str>| url.is_some_and(|url| url.starts_with("http://"));
    let urls = [
        (Some(old.git_url.as_str()), Some(new.git_url.as_str())),
        (old.api_url.as_deref(), new.api_url.as_deref()),
    ];
    if let Some((_, now)) =
        urls.into_iter().find(|(before, now)| is_plain(*now) && !is_plain(*before))
    {
        return Some(format!(
            "{} would be called without encryption",
            host_of(now.unwrap_or_default()).unwrap_or_default()
        ));
    }
    let api = |connection: &StoredConnection| connection.api_url.as_deref().and_then(host_of);
    let pairs = [
        ("its repositories", host_of(&old.git_url), host_of(&new.git_url)),
        ("its API", api(old), api(new)),
    ];
    let (what, from, to) = pairs.into_iter().find(|(_, from, to)| from != to)?;
    Some(format!(
        "{what} would move from {} to {}",
        from.unwrap_or_default(),
        to.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::super::AwsOptions;
    use super::*;

    fn change() -> ConnectionChange {
        ConnectionChange { name: "hub".to_owned(), ..ConnectionChange::default() }
    }

    fn enterprise() -> StoredConnection {
        StoredConnection {
            driver: Driver::GitHub,
            canonical_hostname: "ghe.example.com".to_owned(),
            api_url: Some("https://ghe.example.com/api/v3".to_owned()),
            git_url: "https://ghe.example.com".to_owned(),
            login: Some("bot".to_owned()),
            token: Some("sealed".to_owned()),
            webhook_secrets: vec!["sealed too".to_owned()],
            landing: LandingMethod::default(),
            poll_minutes: None,
            aws: AwsAccess::default(),
        }
    }

    fn refusal(
        change: &ConnectionChange,
        old: Option<&StoredConnection>,
        given: GivenSecrets,
    ) -> String {
        validated(change, old, given).unwrap_err().to_string()
    }

    const BOTH: GivenSecrets = GivenSecrets {
        token: true,
        webhook_secret: true,
        secret_access_key: SecretAccessKeyFile::Missing,
    };

    /// C5: options that are not given are kept; changing the login does not redirect an Enterprise
    /// token.
    #[test]
    fn options_that_are_not_given_are_kept() {
        let old = enterprise();
        let made = validated(
            &ConnectionChange { login: Some("other".to_owned()), ..change() },
            Some(&old),
            GivenSecrets::default(),
        )
        .unwrap();
        assert_eq!(made, StoredConnection { login: Some("other".to_owned()), ..old });
    }

    /// Z6.4: the merge method is kept, and only forges have one.
    #[test]
    fn the_merge_method_is_kept_and_only_forges_have_one() {
        let moves = ConnectionChange { landing: Some(LandingArgument::FastForward), ..change() };
        let made = validated(&moves, Some(&enterprise()), GivenSecrets::default()).unwrap();
        assert_eq!(made.landing, LandingMethod::FastForward);
        assert_eq!(
            validated(&change(), Some(&made), GivenSecrets::default()).unwrap().landing,
            LandingMethod::FastForward
        );
        let back = ConnectionChange { landing: Some(LandingArgument::Merge), ..change() };
        assert_eq!(
            validated(&back, Some(&made), GivenSecrets::default()).unwrap().landing,
            LandingMethod::Merge
        );
        assert_eq!(validated(&change(), None, BOTH).unwrap().landing, LandingMethod::Merge);
        let git_url = Some("https://git.example.org".to_owned());
        let git = ConnectionChange { driver: Some(DriverArgument::Git), git_url, ..moves };
        assert!(refusal(&git, None, GivenSecrets::default()).contains("omit --landing"));
    }

    /// C5
    #[test]
    fn a_secret_is_never_sent_to_another_host() {
        let moved = ConnectionChange {
            git_url: Some("https://ghe.example.org".to_owned()),
            api_url: Some("https://ghe.example.org/api/v3".to_owned()),
            ..change()
        };
        for given in
            [GivenSecrets::default(), GivenSecrets { token: true, ..GivenSecrets::default() }]
        {
            let message = refusal(&moved, Some(&enterprise()), given);
            assert!(
                message.contains("would move from ghe.example.com to ghe.example.org"),
                "{message}"
            );
        }
        assert_eq!(
            validated(&moved, Some(&enterprise()), BOTH).unwrap().canonical_hostname,
            "ghe.example.org"
        );
    }

    /// C5
    #[test]
    fn a_secret_that_was_given_for_https_is_not_sent_in_the_clear() {
        let plain = ConnectionChange {
            git_url: Some("http://ghe.example.com".to_owned()),
            api_url: Some("http://ghe.example.com/api/v3".to_owned()),
            ..change()
        };
        let message = refusal(&plain, Some(&enterprise()), GivenSecrets::default());
        assert!(
            message.contains("ghe.example.com would be called without encryption"),
            "{message}"
        );
        assert!(validated(&plain, Some(&enterprise()), BOTH).is_ok());
    }

    /// C5: with only one of two addresses, the other one would be wrong.
    #[test]
    fn github_enterprise_is_given_with_both_its_addresses() {
        let half =
            ConnectionChange { git_url: Some("https://ghe.example.org/".to_owned()), ..change() };
        for old in [None, Some(&enterprise())] {
            let message = refusal(&half, old, BOTH);
            assert!(message.contains("--api-url https://ghe.example.org/api/v3"), "{message}");
        }
        let api = ConnectionChange {
            api_url: Some("https://ghe.example.org/api/v3".to_owned()),
            ..change()
        };
        assert!(refusal(&api, None, BOTH).contains("--git-url https://ghe.example.org"));
    }

    /// C5
    #[test]
    fn options_that_a_driver_does_not_have_are_refused() {
        let ec2 = ConnectionChange {
            driver: Some(DriverArgument::Aws),
            region: Some("nowhere".to_owned()),
            ..change()
        };
        assert!(refusal(&ec2, None, GivenSecrets::default()).contains("not an AWS region"));
        let ec2 = ConnectionChange { region: Some("eu-central-1".to_owned()), ..ec2 };
        assert!(refusal(&ec2, None, BOTH).contains("omit --token-file"));
        let with_role = AwsOptions {
            role_arn: Some("arn:aws:iam::123456789012:role/nodes".to_owned()),
            ..AwsOptions::default()
        };
        let forge = ConnectionChange { aws: with_role.clone(), ..change() };
        assert!(refusal(&forge, None, BOTH).contains("only connections to EC2"));
        let ec2_with_role = ConnectionChange { aws: with_role, ..ec2.clone() };
        let made = validated(&ec2_with_role, None, GivenSecrets::default()).unwrap();
        assert!(made.aws.role.is_some());
        assert_eq!(
            validated(&ec2, None, GivenSecrets::default()).unwrap().canonical_hostname,
            "ec2.eu-central-1.amazonaws.com"
        );
        assert!(refusal(&ec2, Some(&enterprise()), BOTH).contains("sluice connection remove hub"));
        let git = ConnectionChange { driver: Some(DriverArgument::Git), ..change() };
        assert!(refusal(&git, None, GivenSecrets::default()).contains("needs --git-url"));
        let mail = ConnectionChange { driver: Some(DriverArgument::Smtp), ..change() };
        assert!(refusal(&mail, None, GivenSecrets::default()).contains("needs its address"));
        let mail = ConnectionChange {
            api_url: Some("smtps://me:hush@mail.example.org".to_owned()),
            ..mail
        };
        assert!(!refusal(&mail, None, GivenSecrets::default()).contains("hush"));
        let mail = ConnectionChange {
            api_url: Some("smtps://mail.example.org?from=ci@example.org".to_owned()),
            ..mail
        };
        assert!(
            refusal(&mail, None, GivenSecrets { token: true, ..GivenSecrets::default() })
                .contains("--login")
        );
        assert_eq!(validated(&mail, None, GivenSecrets::default()).unwrap().canonical_hostname, "");
        let broker = ConnectionChange {
            driver: Some(DriverArgument::Mqtt),
            login: Some("ci".to_owned()),
            ..change()
        };
        let broker =
            ConnectionChange { api_url: Some("mqtt://broker.example.org".to_owned()), ..broker };
        assert!(
            refusal(&broker, None, GivenSecrets { token: true, ..GivenSecrets::default() })
                .contains("in the clear")
        );
        let with_password =
            ConnectionChange { git_url: Some("https://me:hush@git.example.org".to_owned()), ..git };
        let message = refusal(&with_password, None, GivenSecrets::default());
        assert!(
            message.contains("must not contain a user or password") && !message.contains("hush"),
            "{message}"
        );
        assert!(
            refusal(&change(), None, GivenSecrets { token: true, ..GivenSecrets::default() })
                .contains("--webhook-secret-file")
        );
    }
}
