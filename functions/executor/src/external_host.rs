//! The host of a deployment job: a machine outside the node pool that the job names with the
//! fingerprint of its host key (Z8.1).
//!
//! The executor looks up the host's address, asks it for its host keys if the rules for untrusted
//! playbooks allow the address, and accepts the key with the fingerprint. From then on the host is a node of the build like any other: `known_hosts` has
//! that key alone, so a host that shows another key later is refused too. The pool knows nothing of
//! it.

use crate::broker::dial::is_own_address;
use crate::broker::policy::{AddressRefusal, NetworkPolicy};
use crate::broker::target::{Target, TargetHost};
use crate::job::JobAttempt;
use crate::joblog::JobLog;
use crate::settings::NetworkSettings;
use crate::ssh::plain;
use sluice_keys::fingerprint_like;
use sluice_model::job::{ExternalHost, Fingerprint, HostLogin};
use sluice_model::node::NodeAccess;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// The login on hosts that name none, as Zuul's default.
const USER: &str = "zuul";
/// The time limit for looking up an address.
const LOOKUP_SECONDS: u64 = 10;
/// The time limit for each connection of `ssh-keyscan`.
const SCAN_SECONDS: u64 = 10;
/// The pause before a host that did not answer is tried again.
const PAUSE_SECONDS: u64 = 5;
/// The most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// The most host keys of one address that are looked at.
const KEYS_MAX: usize = 16;

/// Why a host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The name is not `[user@]host[:port]`; the configuration refuses it too.
    #[error("the job's host \"{name}\" is not of the form [user@]host[:port]: correct the job")]
    Name {
        /// The name.
        name: String,
    },
    /// Neither the project nor the tenant has a key pair that the build may use.
    #[error(
        "there is no SSH key to log in on the job's host {host} with: print the public key of the project (`sluice key project`; for pipelines that run after review) or of the tenant (`sluice key tenant`), which makes the key pair, and add it to the host's authorized_keys"
    )]
    NoKey {
        /// The host.
        host: String,
    },
    /// The name has no address.
    #[error("could not find the address of the job's host {host}: {why}")]
    Lookup {
        /// The host.
        host: String,
        /// What is known.
        why: String,
    },
    /// The rules of the executor's network forbid the address. Nothing was connected.
    #[error(
        "the job's host {host} has the address {address}, which this job may not connect to: {refusal}"
    )]
    Refused {
        /// The host.
        host: String,
        /// The address.
        address: IpAddr,
        /// The rule.
        refusal: AddressRefusal,
    },
    /// No SSH server answered.
    #[error("could not reach the job's host {host}: no SSH server answered at {addresses} ({why})")]
    Unreachable {
        /// The host.
        host: String,
        /// The addresses that were tried, with their ports.
        addresses: String,
        /// What `ssh-keyscan` said last.
        why: String,
    },
    /// The host showed other keys.
    #[error(
        "the job's host {host} at {address} showed another host key than the job names: expected {expected}, found {found}; nothing was run. If the host's key was changed on purpose, correct the job's fingerprint"
    )]
    OtherKey {
        /// The host.
        host: String,
        /// Its address with the port.
        address: SocketAddr,
        /// The fingerprint in the job.
        expected: Fingerprint,
        /// The fingerprints of the shown keys, each with its type.
        found: String,
    },
}

impl HostError {
    /// Returns whether another attempt may succeed without a change of the job.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Lookup { .. } | Self::Unreachable { .. })
    }
}

/// Finds the host of a deployment job and checks its host key; `None` for any other job. The log
/// says with whose keys the build will log in; without any nothing is connected. `network` has the
/// operator's refused and allowed networks. A host that does not answer, as one that boots, is tried
/// again for as long as `patience`.
pub(crate) async fn of_job(
    job: &JobAttempt<'_>,
    network: &NetworkSettings,
    patience: Duration,
    log: &mut JobLog<'_>,
) -> Result<Option<NodeAccess>, HostError> {
    let Some(host) = &job.job.run_time.host else { return Ok(None) };
    let owners: Vec<&str> = job.secrets.ssh_keys().iter().map(|key| key.owner.as_str()).collect();
    if owners.is_empty() {
        return Err(HostError::NoKey { host: host.name.clone() });
    }
    let rules =
        HostRules { policy: NetworkPolicy::new(network, &[]), is_reviewed: job.order.post_review };
    let found = find_patiently(host, &rules, patience, log).await?;
    let keys = owners.join(", ");
    log.say(&format!("Host {} has the expected host key; SSH keys: {keys}", host.name));
    Ok(Some(found))
}

/// Which addresses the host of a job may have.
struct HostRules {
    /// The rules for untrusted playbooks.
    policy: NetworkPolicy,
    /// Whether the build runs after review.
    is_reviewed: bool,
}

impl HostRules {
    /// Returns why no connection may be made to an address; `None` if one may. The rules are those
    /// for untrusted playbooks, but a reviewed job may name a host in a private network, where a
    /// site has the hosts that it deploys to.
    fn refusal(&self, address: SocketAddr) -> Option<AddressRefusal> {
        let target = Target { host: TargetHost::Address(address.ip()), port: address.port() };
        match self.policy.decide(&target, address.ip(), is_own_address) {
            Err(AddressRefusal::Private) if self.is_reviewed => None,
            decided => decided.err(),
        }
    }
}

/// Finds a host as [`find`] does, and tries again every [`PAUSE_SECONDS`] while it does not answer
/// and `patience` lasts. The log says so once.
async fn find_patiently(
    host: &ExternalHost,
    rules: &HostRules,
    patience: Duration,
    log: &mut JobLog<'_>,
) -> Result<NodeAccess, HostError> {
    let pause = Duration::from_secs(PAUSE_SECONDS);
    let (until, mut is_said) = (Instant::now() + patience, false);
    loop {
        match find(host, rules).await {
            Err(error) if error.may_pass() && Instant::now() + pause < until => {
                if !is_said {
                    let seconds = patience.as_secs();
                    log.say(&format!("{error}; it is tried again for {seconds} seconds"));
                }
                is_said = true;
                tokio::time::sleep(pause).await;
            }
            found => return found,
        }
    }
}

/// Looks up the host of a job, asks it for its host keys, and returns it as a node of the build
/// with the one key that has the job's fingerprint. Logs in nowhere.
async fn find(host: &ExternalHost, rules: &HostRules) -> Result<NodeAccess, HostError> {
    let wrong = || HostError::Name { name: host.name.clone() };
    let login = HostLogin::parse(&host.name).ok_or_else(wrong)?;
    let addresses = addresses(&login, rules).await?;
    let mut why = String::new();
    for address in &addresses {
        match scan(*address).await {
            Ok(keys) => {
                let key = matching(host, login.host, *address, &keys)?;
                return Ok(access(&login, *address, key));
            }
            Err(message) => why = message,
        }
    }
    let tried: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    Err(HostError::Unreachable { host: login.host.to_owned(), addresses: tried.join(", "), why })
}

/// Returns the addresses of a host, at least one. All must be allowed, so that a name cannot be
/// used to try which of the refused ones answer.
async fn addresses(login: &HostLogin<'_>, rules: &HostRules) -> Result<Vec<SocketAddr>, HostError> {
    let failed = |why: String| HostError::Lookup { host: login.host.to_owned(), why };
    let lookup = tokio::net::lookup_host((login.host, login.port));
    let found = tokio::time::timeout(Duration::from_secs(LOOKUP_SECONDS), lookup).await;
    let found = found.map_err(|_| failed(format!("no answer within {LOOKUP_SECONDS} seconds")))?;
    let found: Vec<SocketAddr> =
        found.map_err(|error| failed(error.to_string()))?.take(ADDRESSES_MAX).collect();
    for address in &found {
        if let Some(refusal) = rules.refusal(*address) {
            let (host, address) = (login.host.to_owned(), address.ip());
            return Err(HostError::Refused { host, address, refusal });
        }
    }
    if found.is_empty() { Err(failed("it has none".to_owned())) } else { Ok(found) }
}

/// Asks an address for its host keys of every type and returns them in the form of `known_hosts`
/// without the host (`ssh-ed25519 AAAA…`), at least one. The error says why none can be connected,
/// or what `ssh-keyscan` said.
async fn scan(address: SocketAddr) -> Result<Vec<String>, String> {
    // Of a closed port `ssh-keyscan` says nothing.
    let limit = Duration::from_secs(SCAN_SECONDS);
    match tokio::time::timeout(limit, TcpStream::connect(address)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            return Err("connection refused".to_owned());
        }
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer within {SCAN_SECONDS} seconds")),
    }
    let mut command = plain("ssh-keyscan");
    command.args(["-T", &SCAN_SECONDS.to_string(), "-p", &address.port().to_string()]);
    command.arg(address.ip().to_string());
    // Each type of key is a connection of its own.
    let limit = Duration::from_secs(3 * SCAN_SECONDS);
    let output = match tokio::time::timeout(limit, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("could not run ssh-keyscan: {error}")),
        Err(_) => return Err(format!("no answer within {} seconds", limit.as_secs())),
    };
    let keys: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            Some(format!("{} {}", words.next()?, words.next()?))
        })
        .take(KEYS_MAX)
        .collect();
    if !keys.is_empty() {
        return Ok(keys);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().rev().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
    Err(said.map_or_else(|| "it showed no host key".to_owned(), |line| line.trim().to_owned()))
}

/// Returns the shown key that has the job's fingerprint.
fn matching<'k>(
    host: &ExternalHost,
    name: &str,
    address: SocketAddr,
    keys: &'k [String],
) -> Result<&'k str, HostError> {
    let fingerprint = |key: &String| {
        let blob = key.split(' ').nth(1)?;
        fingerprint_like(&host.fingerprint, blob)
    };
    let found = keys.iter().find(|key| fingerprint(key).as_ref() == Some(&host.fingerprint));
    found.map(String::as_str).ok_or_else(|| {
        let shown = keys.iter().filter_map(|key| {
            let kind = key.split(' ').next()?;
            Some(format!("{} ({kind})", fingerprint(key)?))
        });
        HostError::OtherKey {
            host: name.to_owned(),
            address,
            expected: host.fingerprint.clone(),
            found: shown.collect::<Vec<_>>().join(", "),
        }
    })
}

/// Returns a host as a node of the build, which is called as the job names it, without login and
/// port.
fn access(login: &HostLogin<'_>, address: SocketAddr, key: &str) -> NodeAccess {
    let ip = address.ip().to_canonical();
    NodeAccess {
        id: login.host.into(),
        names: vec![login.host.to_owned()],
        label: "".into(),
        provider: "".into(),
        region: None,
        az: None,
        external_id: None,
        interface_ip: ip.to_string(),
        public_ipv4: ip.is_ipv4().then(|| ip.to_string()),
        private_ipv4: None,
        public_ipv6: ip.is_ipv6().then(|| ip.to_string()),
        ssh_port: address.port(),
        username: login.user.unwrap_or(USER).to_owned(),
        host_keys: vec![key.to_owned()],
        python_path: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rules of an executor that refuses one network and allows another.
    fn rules(is_reviewed: bool) -> HostRules {
        let settings = NetworkSettings {
            refused: vec!["203.0.113.0/24".parse().unwrap()],
            allowed: vec!["10.1.0.0/16".parse().unwrap()],
            ..NetworkSettings::default()
        };
        HostRules { policy: NetworkPolicy::new(&settings, &[]), is_reviewed }
    }

    /// Returns whether a job may name a host with this address.
    fn is_refused(rules: &HostRules, address: &str) -> bool {
        rules.refusal(SocketAddr::new(address.parse().unwrap(), 22)).is_some()
    }

    /// Z8.1, Z7.5: a job's host is no way to the executor, its machine's metadata, or what its
    /// operator refuses.
    #[test]
    fn the_executor_and_refused_networks_are_never_the_host_of_a_job() {
        for rules in [rules(true), rules(false)] {
            for refused in [
                "169.254.169.254",
                "::ffff:169.254.169.254",
                "fe80::1",
                "fd00:ec2::254",
                "0.0.0.0",
                "::",
                "127.0.0.2",
                "::1",
                "203.0.113.7",
            ] {
                assert!(is_refused(&rules, refused), "{refused}");
            }
            for allowed in ["192.0.2.1", "10.1.0.7", "2001:db8::1"] {
                assert!(!is_refused(&rules, allowed), "{allowed}");
            }
        }
    }

    /// Z8.1, Z7.5: a change that is not reviewed does not choose a machine of the site.
    #[test]
    fn private_networks_are_for_reviewed_jobs() {
        for private in ["10.0.0.5", "192.168.1.1", "fd12::1"] {
            assert!(is_refused(&rules(false), private), "{private}");
            assert!(!is_refused(&rules(true), private), "{private}");
        }
    }

    /// Z8.1: a job that names a metadata address is refused before anything is connected.
    #[tokio::test]
    async fn a_host_with_a_refused_address_is_not_connected_to() {
        let hash = Fingerprint::Sha256("a".repeat(43));
        let host = ExternalHost { name: "169.254.169.254:80".to_owned(), fingerprint: hash };
        let error = find(&host, &rules(true)).await.unwrap_err();
        assert!(matches!(error, HostError::Refused { .. }) && !error.may_pass(), "{error}");
    }
}
