//! What a connection becomes when `sluice connection add` says this and that was stored: everything
//! that may be wrong with it.
//!
//! A secret belongs to the host that it was given for. It never goes to another one because an
//! address changed.

use super::{Added, DriverWord, LandingWord};
use crate::outside::{ec2_host, is_region};
use anyhow::{Context as _, bail};
use sluice_config::connection::Driver;
use sluice_model::git::LandingWay;
use sluice_notify::Address;
use sluice_records::connection::Connection;
use url::Url;

/// Where github.com's repositories are, and its API.
const PUBLIC: (&str, &str) = ("https://github.com", "https://api.github.com");

/// Which secrets come with it; the others stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Given {
    pub(super) token: bool,
    pub(super) webhook_secret: bool,
}

/// Returns the connection as it is to be stored, with the secrets that it had.
///
/// # Errors
/// When what is asked for cannot be, or would send a secret to a host that it was not meant for.
pub(super) fn wanted(
    added: &Added,
    old: Option<&Connection>,
    given: Given,
) -> anyhow::Result<Connection> {
    let name = &added.name;
    let driver =
        added.driver.map(driver_of).or(old.map(|old| old.driver)).unwrap_or(Driver::GitHub);
    if let Some(old) = old.filter(|old| old.driver != driver) {
        bail!(
            "{name} is a connection with the driver {}: remove it first (`sluice connection remove {name}`)",
            word(old.driver)
        );
    }
    let made = match driver {
        Driver::GitHub => github(added, old)?,
        Driver::Git => git(added, old)?,
        Driver::Aws => ec2(added, old)?,
        Driver::Smtp | Driver::Mqtt => post(driver, added, old)?,
        other => bail!("connections with the driver {} cannot be used yet", word(other)),
    };
    let has = Given {
        token: made.token.is_some() || given.token,
        webhook_secret: !made.webhook_secrets.is_empty() || given.webhook_secret,
    };
    match driver {
        Driver::GitHub if !(has.token && has.webhook_secret) => bail!(
            "a connection to GitHub needs --token-file and --webhook-secret-file (`-` reads one of them from standard input)"
        ),
        Driver::Smtp | Driver::Mqtt if given.webhook_secret => {
            bail!("nothing tells us anything there: leave out --webhook-secret-file")
        }
        Driver::Smtp | Driver::Mqtt if has.token != made.login.is_some() => {
            bail!("user and password belong together: --login and --token-file, or neither")
        }
        Driver::Smtp | Driver::Mqtt if has.token && !is_safe(&made) => {
            bail!(
                "the password would be sent in the clear to whoever listens on the way: use an address with mqtts://"
            )
        }
        Driver::Git | Driver::Aws | Driver::Smtp | Driver::Mqtt if added.landing.is_some() => {
            bail!("no changes land there: leave out --landing")
        }
        Driver::Git if given.webhook_secret => {
            bail!("a plain git server sends no webhooks: leave out --webhook-secret-file")
        }
        Driver::Aws if given.token || given.webhook_secret => {
            bail!(
                "EC2 is called with the functions' own AWS credentials: leave out tokens and secrets"
            )
        }
        _ => {}
    }
    if let Some(old) = old
        && let Some(moved) = moved(old, &made)
        && ((old.token.is_some() && !given.token)
            || (!old.webhook_secrets.is_empty() && !given.webhook_secret))
    {
        bail!(
            "{moved}; a secret belongs to its host, so give --token-file and --webhook-secret-file anew"
        );
    }
    Ok(made)
}

fn driver_of(word: DriverWord) -> Driver {
    match word {
        DriverWord::Github => Driver::GitHub,
        DriverWord::Git => Driver::Git,
        DriverWord::Aws => Driver::Aws,
        DriverWord::Smtp => Driver::Smtp,
        DriverWord::Mqtt => Driver::Mqtt,
    }
}

fn way_of(word: LandingWord) -> LandingWay {
    match word {
        LandingWord::Merge => LandingWay::Merge,
        LandingWord::FastForward => LandingWay::FastForward,
    }
}

/// Returns a driver as configuration and `--driver` write it.
pub(super) fn word(driver: Driver) -> String {
    serde_json::to_value(driver)
        .ok()
        .and_then(|word| word.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn github(added: &Added, old: Option<&Connection>) -> anyhow::Result<Connection> {
    let git_url = address(&added.git_url)?
        .or(old.map(|old| old.git_url.clone()))
        .unwrap_or_else(|| PUBLIC.0.to_owned());
    let api_url = address(&added.api_url)?
        .or(old.and_then(|old| old.api_url.clone()))
        .unwrap_or_else(|| PUBLIC.1.to_owned());
    let is_public =
        |url: &str| matches!(host_of(url).as_deref(), Some("github.com" | "api.github.com"));
    let moved_alone = |now: &Option<String>, before: Option<&str>| {
        now.as_deref()
            .is_some_and(|now| before.is_some_and(|before| host_of(now) != host_of(before)))
    };
    let half = match (&added.git_url, &added.api_url) {
        (Some(_), None) => moved_alone(&added.git_url, old.map(|old| old.git_url.as_str())),
        (None, Some(_)) => moved_alone(&added.api_url, old.and_then(|old| old.api_url.as_deref())),
        _ => false,
    };
    if half || is_public(&git_url) != is_public(&api_url) {
        let host = if is_public(&git_url) { host_of(&api_url) } else { host_of(&git_url) }
            .unwrap_or_default();
        bail!(
            "GitHub Enterprise needs both addresses: --git-url https://{host} and --api-url https://{host}/api/v3; now it would be {git_url} and {api_url}"
        );
    }
    Ok(Connection {
        driver: Driver::GitHub,
        canonical_hostname: canonical(added, old, &git_url)?,
        api_url: Some(api_url),
        git_url,
        ..kept(added, old)
    })
}

fn git(added: &Added, old: Option<&Connection>) -> anyhow::Result<Connection> {
    let git_url = address(&added.git_url)?
        .or(old.map(|old| old.git_url.clone()))
        .context("a plain git server needs --git-url")?;
    Ok(Connection {
        driver: Driver::Git,
        canonical_hostname: canonical(added, old, &git_url)?,
        git_url,
        ..kept(added, old)
    })
}

fn ec2(added: &Added, old: Option<&Connection>) -> anyhow::Result<Connection> {
    if let Some(region) = added.region.as_deref().filter(|region| !is_region(region)) {
        bail!("{region} is no region of AWS; one looks like eu-central-1");
    }
    let host = added
        .host
        .clone()
        .or(added.region.as_deref().map(ec2_host))
        .or(old.map(|old| old.canonical_hostname.clone()))
        .context("a connection to EC2 needs --region")?;
    let api_url = address(&added.api_url)?.or(old.and_then(|old| old.api_url.clone()));
    Ok(Connection { driver: Driver::Aws, canonical_hostname: host, api_url, ..kept(added, old) })
}

/// A mail server or a broker. It has no projects, so no canonical name begins with its host.
fn post(driver: Driver, added: &Added, old: Option<&Connection>) -> anyhow::Result<Connection> {
    let forms = "--api-url smtps://HOST?from=ADDRESS&to=ADDRESS, or mqtts://HOST";
    let url = added.api_url.clone().or(old.and_then(|old| old.api_url.clone()));
    let url = url.with_context(|| {
        format!("a connection to a mail server or a broker needs its address: {forms}")
    })?;
    let address = Address::parse(&url)?;
    if address.is_mail() != (driver == Driver::Smtp) {
        bail!("this is no address of a {} server: {forms}", word(driver));
    }
    if added.git_url.is_some() || added.host.is_some() || added.region.is_some() {
        bail!(
            "a mail server or a broker has no repositories and no region: leave out --git-url, --host and --region"
        );
    }
    Ok(Connection { driver, api_url: Some(url), ..kept(added, old) })
}

fn is_safe(connection: &Connection) -> bool {
    connection
        .api_url
        .as_deref()
        .is_some_and(|url| Address::parse(url).is_ok_and(|address| address.keeps_secrets()))
}

/// What is the same for every driver: secrets as they were, and the login.
fn kept(added: &Added, old: Option<&Connection>) -> Connection {
    Connection {
        driver: Driver::Git,
        canonical_hostname: String::new(),
        api_url: None,
        git_url: String::new(),
        login: added.login.clone().or(old.and_then(|old| old.login.clone())),
        token: old.and_then(|old| old.token.clone()),
        webhook_secrets: old.map(|old| old.webhook_secrets.clone()).unwrap_or_default(),
        landing: added.landing.map(way_of).or(old.map(|old| old.landing)).unwrap_or_default(),
    }
}

/// Returns the host of canonical names: as it is asked for, as it was while the repositories stay
/// where they are, else theirs.
fn canonical(added: &Added, old: Option<&Connection>, git_url: &str) -> anyhow::Result<String> {
    let stays = old
        .filter(|old| host_of(&old.git_url) == host_of(git_url))
        .map(|old| old.canonical_hostname.clone());
    let theirs = || Url::parse(git_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    added
        .host
        .clone()
        .or(stays)
        .or_else(theirs)
        .with_context(|| format!("{git_url} names no host; name one with --host"))
}

/// Checks an address and returns it without the slash that people write at its end.
fn address(given: &Option<String>) -> anyhow::Result<Option<String>> {
    let Some(text) = given else { return Ok(None) };
    // The text itself may hold a password, so it is not repeated.
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some());
    let url = url.context("an http or https address is needed")?;
    if !url.username().is_empty() || url.password().is_some() {
        bail!(
            "{}: an address without user and password is needed",
            url.host_str().unwrap_or_default()
        );
    }
    Ok(Some(text.trim_end_matches('/').to_owned()))
}

/// Returns who would be given the secrets: host and port of an address.
fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(format!(
        "{}{}",
        url.host_str()?,
        url.port().map(|port| format!(":{port}")).unwrap_or_default()
    ))
}

/// Returns what moved to another host, or is no longer encrypted, if something is.
fn moved(old: &Connection, new: &Connection) -> Option<String> {
    let is_plain = |url: Option<&str>| url.is_some_and(|url| url.starts_with("http://"));
    let urls = [
        (Some(old.git_url.as_str()), Some(new.git_url.as_str())),
        (old.api_url.as_deref(), new.api_url.as_deref()),
    ];
    if let Some((_, now)) =
        urls.into_iter().find(|(before, now)| is_plain(*now) && !is_plain(*before))
    {
        return Some(format!(
            "{} would be asked without encryption",
            host_of(now.unwrap_or_default()).unwrap_or_default()
        ));
    }
    let api = |connection: &Connection| connection.api_url.as_deref().and_then(host_of);
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
    use super::*;

    fn added() -> Added {
        Added { name: "hub".to_owned(), ..Added::default() }
    }

    fn enterprise() -> Connection {
        Connection {
            driver: Driver::GitHub,
            canonical_hostname: "ghe.example.com".to_owned(),
            api_url: Some("https://ghe.example.com/api/v3".to_owned()),
            git_url: "https://ghe.example.com".to_owned(),
            login: Some("bot".to_owned()),
            token: Some("sealed".to_owned()),
            webhook_secrets: vec!["sealed too".to_owned()],
            landing: LandingWay::default(),
        }
    }

    fn refusal(added: &Added, old: Option<&Connection>, given: Given) -> String {
        wanted(added, old, given).unwrap_err().to_string()
    }

    const BOTH: Given = Given { token: true, webhook_secret: true };

    /// C5: what is not said stays; an Enterprise token is not sent to github.com because the login
    /// changed.
    #[test]
    fn what_is_not_given_stays_as_it_was() {
        let old = enterprise();
        let made = wanted(
            &Added { login: Some("other".to_owned()), ..added() },
            Some(&old),
            Given::default(),
        )
        .unwrap();
        assert_eq!(made, Connection { login: Some("other".to_owned()), ..old });
    }

    /// Z6.4: how changes land is said once, and of forges alone.
    #[test]
    fn how_changes_land_stays_as_it_was_said_and_belongs_to_forges() {
        let moves = Added { landing: Some(LandingWord::FastForward), ..added() };
        let made = wanted(&moves, Some(&enterprise()), Given::default()).unwrap();
        assert_eq!(made.landing, LandingWay::FastForward);
        assert_eq!(
            wanted(&added(), Some(&made), Given::default()).unwrap().landing,
            LandingWay::FastForward
        );
        let back = Added { landing: Some(LandingWord::Merge), ..added() };
        assert_eq!(
            wanted(&back, Some(&made), Given::default()).unwrap().landing,
            LandingWay::Merge
        );
        assert_eq!(wanted(&added(), None, BOTH).unwrap().landing, LandingWay::Merge);
        let git_url = Some("https://git.example.org".to_owned());
        let git = Added { driver: Some(DriverWord::Git), git_url, ..moves };
        assert!(refusal(&git, None, Given::default()).contains("leave out --landing"));
    }

    /// C5
    #[test]
    fn a_secret_is_never_sent_to_another_host() {
        let moved = Added {
            git_url: Some("https://ghe.example.org".to_owned()),
            api_url: Some("https://ghe.example.org/api/v3".to_owned()),
            ..added()
        };
        for given in [Given::default(), Given { token: true, ..Given::default() }] {
            let told = refusal(&moved, Some(&enterprise()), given);
            assert!(told.contains("would move from ghe.example.com to ghe.example.org"), "{told}");
        }
        assert_eq!(
            wanted(&moved, Some(&enterprise()), BOTH).unwrap().canonical_hostname,
            "ghe.example.org"
        );
    }

    /// C5
    #[test]
    fn a_secret_that_was_given_for_https_is_not_sent_in_the_clear() {
        let plain = Added {
            git_url: Some("http://ghe.example.com".to_owned()),
            api_url: Some("http://ghe.example.com/api/v3".to_owned()),
            ..added()
        };
        let told = refusal(&plain, Some(&enterprise()), Given::default());
        assert!(told.contains("ghe.example.com would be asked without encryption"), "{told}");
        assert!(wanted(&plain, Some(&enterprise()), BOTH).is_ok());
    }

    /// C5: with one address of two the other would be github.com's, or the one before.
    #[test]
    fn github_enterprise_is_given_with_both_its_addresses() {
        let half = Added { git_url: Some("https://ghe.example.org/".to_owned()), ..added() };
        for old in [None, Some(&enterprise())] {
            let told = refusal(&half, old, BOTH);
            assert!(told.contains("--api-url https://ghe.example.org/api/v3"), "{told}");
        }
        let api = Added { api_url: Some("https://ghe.example.org/api/v3".to_owned()), ..added() };
        assert!(refusal(&api, None, BOTH).contains("--git-url https://ghe.example.org"));
    }

    /// C5
    #[test]
    fn what_a_driver_cannot_have_is_refused() {
        let ec2 =
            Added { driver: Some(DriverWord::Aws), region: Some("nowhere".to_owned()), ..added() };
        assert!(refusal(&ec2, None, Given::default()).contains("no region of AWS"));
        let ec2 = Added { region: Some("eu-central-1".to_owned()), ..ec2 };
        assert!(refusal(&ec2, None, BOTH).contains("leave out tokens"));
        assert_eq!(
            wanted(&ec2, None, Given::default()).unwrap().canonical_hostname,
            "ec2.eu-central-1.amazonaws.com"
        );
        assert!(refusal(&ec2, Some(&enterprise()), BOTH).contains("sluice connection remove hub"));
        let git = Added { driver: Some(DriverWord::Git), ..added() };
        assert!(refusal(&git, None, Given::default()).contains("needs --git-url"));
        let mail = Added { driver: Some(DriverWord::Smtp), ..added() };
        assert!(refusal(&mail, None, Given::default()).contains("needs its address"));
        let mail = Added { api_url: Some("smtps://me:hush@mail.example.org".to_owned()), ..mail };
        assert!(!refusal(&mail, None, Given::default()).contains("hush"));
        let mail = Added {
            api_url: Some("smtps://mail.example.org?from=ci@example.org".to_owned()),
            ..mail
        };
        assert!(
            refusal(&mail, None, Given { token: true, ..Given::default() }).contains("--login")
        );
        assert_eq!(wanted(&mail, None, Given::default()).unwrap().canonical_hostname, "");
        let broker =
            Added { driver: Some(DriverWord::Mqtt), login: Some("ci".to_owned()), ..added() };
        let broker = Added { api_url: Some("mqtt://broker.example.org".to_owned()), ..broker };
        assert!(
            refusal(&broker, None, Given { token: true, ..Given::default() })
                .contains("in the clear")
        );
        let with_password =
            Added { git_url: Some("https://me:hush@git.example.org".to_owned()), ..git };
        let told = refusal(&with_password, None, Given::default());
        assert!(told.contains("without user and password") && !told.contains("hush"), "{told}");
        assert!(
            refusal(&added(), None, Given { token: true, ..Given::default() })
                .contains("--webhook-secret-file")
        );
    }
}
