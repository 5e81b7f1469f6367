//! The SSH check of a booted node: reads its host keys and tries the login (state testing of Z1.8).

use russh::client::{self, AuthResult, Handle, Handler};
use russh::keys::{
    Algorithm, EcdsaCurve, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey,
    PublicKeyOrCertificate,
};
use russh::{AlgorithmKind, ChannelMsg, Disconnect, Preferred};
use sluice_pool::CheckFact;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long one check waits for a server that refuses connections or does not answer.
const LISTEN_PATIENCE: Duration = Duration::from_millis(1_000);
/// The most characters of an unreadable host key that an error shows.
const KEY_CHARS_MAX: usize = 60;
/// The pause between two attempts to connect.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// The address of an SSH server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshEndpoint {
    /// IP address or host name.
    pub address: String,
    /// The port.
    pub port: u16,
}

/// A private key for logins. It has no `Debug`, so that it cannot be logged.
#[derive(Clone)]
pub struct LoginKey(Arc<PrivateKey>);

impl LoginKey {
    /// Parses an unencrypted private key in OpenSSH's format; any other text is an error.
    pub fn from_openssh(text: &str) -> Result<Self, SshCheckError> {
        PrivateKey::from_openssh(text)
            .map(|key| Self(Arc::new(key)))
            .map_err(|_| SshCheckError::Key)
    }
}

/// Why the check of a server failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshCheckError {
    /// The login key is not a usable private key.
    #[error(
        "could not read the login key: it is not an unencrypted private key in OpenSSH's format"
    )]
    Key,
    /// No SSH server answers yet.
    #[error("could not reach SSH at {address}:{port}: {why}; retrying until the boot timeout")]
    Unreachable {
        /// The address.
        address: String,
        /// The port.
        port: u16,
        /// What failed.
        why: String,
    },
    /// A configured host key cannot be read, so no server can be checked against it.
    #[error(
        "could not read the configured host key `{line}` of {address}:{port}: it is not a public key in OpenSSH's format, such as `ssh-ed25519 AAAA…`; correct its `host-key`"
    )]
    ConfiguredKey {
        /// The address.
        address: String,
        /// The port.
        port: u16,
        /// The key as configured.
        line: String,
    },
    /// The server shows a host key other than the expected ones.
    #[error(
        "refused {address}:{port}: it shows the host key {shown}, which is not an expected one, so it may be another machine; if it is the right one, correct its `host-key`"
    )]
    HostKey {
        /// The address.
        address: String,
        /// The port.
        port: u16,
        /// The type and fingerprint of each key that it shows.
        shown: String,
    },
    /// The server does not accept the login key yet.
    #[error(
        "{user}@{address}:{port} does not accept the login key; retrying until the boot timeout"
    )]
    Login {
        /// The login name.
        user: String,
        /// The address.
        address: String,
        /// The port.
        port: u16,
    },
}

/// Checks a booted node: logs in as `user` if it shows one of the `configured` host keys, or, if
/// there are none, one of those that it showed before the login. If it passes, returns these keys,
/// without comments. `Failed` only if there are configured keys and the login is shown another one,
/// or a configured one cannot be read; any other failure is `NotYet`. `within` is the time for
/// reading the keys that it shows, and again for the login; before both, it waits at most a second
/// for the server.
pub async fn check(
    target: &SshEndpoint,
    user: &str,
    key: &LoginKey,
    configured: &[String],
    within: Duration,
) -> CheckFact {
    let host_keys = match expected_host_keys(target, configured, within).await {
        Ok(host_keys) => host_keys,
        Err(error @ SshCheckError::ConfiguredKey { .. }) => {
            return CheckFact::Failed(error.to_string());
        }
        Err(error) => return CheckFact::NotYet(error.to_string()),
    };
    match log_in_and_run_true(target, user, key, &host_keys, within).await {
        Ok(()) => CheckFact::Passed { host_keys },
        Err(error @ SshCheckError::HostKey { .. }) if !configured.is_empty() => {
            CheckFact::Failed(error.to_string())
        }
        Err(error) => CheckFact::NotYet(error.to_string()),
    }
}

/// Waits for the server, at most [`LISTEN_PATIENCE`], and then returns the `configured` host keys
/// without comments, or, if there are none, those that it shows within the time `within`
/// ([`scan_host_keys`]). An error if it accepts no connections, if none are configured and it shows
/// no key, or if a configured one is no public key.
async fn expected_host_keys(
    target: &SshEndpoint,
    configured: &[String],
    within: Duration,
) -> Result<Vec<String>, SshCheckError> {
    let plain = configured.iter().map(|line| {
        plain_key(line).ok_or_else(|| SshCheckError::ConfiguredKey {
            address: target.address.clone(),
            port: target.port,
            line: line.chars().take(KEY_CHARS_MAX).collect(),
        })
    });
    let plain = plain.collect::<Result<Vec<_>, _>>()?;
    wait_until_listening(target).await?;
    if plain.is_empty() { scan_host_keys(target, within).await } else { Ok(plain) }
}

/// Returns a public key in OpenSSH's format without its comment; `None` if the text is no such key.
fn plain_key(line: &str) -> Option<String> {
    let key = PublicKey::from_openssh(line.trim()).ok()?.to_openssh().ok()?;
    // What follows the key is a comment.
    Some(key.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

/// Describes public keys by type and fingerprint, as `ssh-keygen -l` shows them.
fn described(lines: &[String]) -> String {
    let keys = lines.iter().filter_map(|line| PublicKey::from_openssh(line).ok());
    let keys = keys.map(|key| format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256)));
    keys.collect::<Vec<_>>().join(", ")
}

/// Waits until the server accepts connections. An error if it still refuses them or does not answer
/// after a second, or at once if connecting fails in another way. A machine that has just booted
/// starts its server soon, and waiting is faster than another check.
pub async fn wait_until_listening(target: &SshEndpoint) -> Result<(), SshCheckError> {
    let connect = async {
        loop {
            match TcpStream::connect((target.address.as_str(), target.port)).await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    sleep(REFUSED_PAUSE).await
                }
                Err(error) => return Err(unreachable(target, error.to_string())),
            }
        }
    };
    match timeout(LISTEN_PATIENCE, connect).await {
        Ok(answer) => answer,
        Err(_) => Err(unreachable(target, "no server accepts connections yet".to_owned())),
    }
}

/// Returns the host keys that a server shows, at most one each of Ed25519, ECDSA and RSA, in
/// known_hosts form without the host (`ssh-ed25519 AAAA…`). An error only if none can be read
/// within the time; a key that takes longer is left out. Logs in nowhere.
///
/// Each algorithm takes a connection of its own, and all must finish within the time. The keys are
/// trusted because the address came from the cloud's listing. The login with our key then proves
/// that it is the machine we launched.
pub async fn scan_host_keys(
    target: &SshEndpoint,
    within: Duration,
) -> Result<Vec<String>, SshCheckError> {
    let algorithms: [&[Algorithm]; 3] = [
        &[Algorithm::Ed25519],
        &[
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
        ],
        &[
            Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
            Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
        ],
    ];
    let scans = algorithms.map(|algorithms| {
        let target = target.clone();
        tokio::spawn(async move { scan_one(&target, algorithms.to_vec(), within).await })
    });
    let (mut keys, mut failure) =
        (Vec::new(), String::from("it has no host key of a known algorithm"));
    for scan in scans {
        match scan.await {
            Ok(Ok(key)) => keys.extend(key),
            Ok(Err(why)) => failure = why,
            Err(error) => failure = error.to_string(),
        }
    }
    if keys.is_empty() { Err(unreachable(target, failure)) } else { Ok(keys) }
}

/// Logs in with the key and runs `true`. `host_keys` are the accepted host keys, in known_hosts
/// form without the host and without a comment; with none, the login always fails. Of several host
/// keys, the server is asked for one of an accepted type. An error if the server shows another host
/// key, refuses the login, gives `true` no exit status or another than 0, cannot be reached, or
/// takes longer than `within`. Not repeated; if the server has no key of an accepted type, its keys
/// are read for the error, which may take `within` again.
pub async fn log_in_and_run_true(
    target: &SshEndpoint,
    user: &str,
    key: &LoginKey,
    host_keys: &[String],
    within: Duration,
) -> Result<(), SshCheckError> {
    let seen = Arc::new(Mutex::new(None));
    let handler = HostKeyRecorder { seen: Arc::clone(&seen), expected: Some(host_keys.to_vec()) };
    let preferred = Preferred { key: Cow::Owned(algorithms_of(host_keys)), ..Preferred::DEFAULT };
    let result = timeout(within, login(target, user, key, handler, preferred)).await;
    let shown = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    match result {
        Ok(Ok(LoginOutcome::Done)) => Ok(()),
        Ok(Ok(LoginOutcome::Refused)) => Err(SshCheckError::Login {
            user: user.to_owned(),
            address: target.address.clone(),
            port: target.port,
        }),
        Ok(Err(error)) => match (error, shown.filter(|shown| !host_keys.contains(shown))) {
            (_, Some(shown)) => Err(other_host_key(target, &[shown])),
            (russh::Error::NoCommonAlgo { kind: AlgorithmKind::Key, .. }, None) => {
                Err(other_host_key(target, &scan_host_keys(target, within).await?))
            }
            (error, None) => Err(unreachable(target, error.to_string())),
        },
        Err(_) => Err(unreachable(target, format!("no login within {} s", within.as_secs()))),
    }
}

/// Returns the error for a server that shows only these host keys, none of which is expected.
fn other_host_key(target: &SshEndpoint, shown: &[String]) -> SshCheckError {
    SshCheckError::HostKey {
        address: target.address.clone(),
        port: target.port,
        shown: described(shown),
    }
}

/// Returns the algorithms by which a server can prove one of these host keys, in our order of
/// preference. All that we know if none of the keys can be read.
fn algorithms_of(host_keys: &[String]) -> Vec<Algorithm> {
    let of_keys: Vec<Algorithm> = host_keys
        .iter()
        .filter_map(|line| Some(PublicKey::from_openssh(line).ok()?.algorithm()))
        .collect();
    // One RSA key serves several algorithms.
    let proves = |known: &Algorithm| match known {
        Algorithm::Rsa { hash } => {
            hash.is_some() && of_keys.iter().any(|key| matches!(key, Algorithm::Rsa { .. }))
        }
        _ => of_keys.contains(known),
    };
    let known = Preferred::DEFAULT.key;
    let chosen: Vec<Algorithm> = known.iter().filter(|known| proves(known)).cloned().collect();
    if chosen.is_empty() { known.into_owned() } else { chosen }
}

/// The outcome of a login attempt.
enum LoginOutcome {
    Done,
    Refused,
}

/// Opens a connection with these algorithms, logs in with the key and runs `true`. Another exit
/// status than 0, or none, counts as a refused login. An error if the connection fails or the
/// handler does not accept the host key.
async fn login(
    target: &SshEndpoint,
    user: &str,
    key: &LoginKey,
    handler: HostKeyRecorder,
    preferred: Preferred,
) -> Result<LoginOutcome, russh::Error> {
    let address = (target.address.as_str(), target.port);
    let mut session = client::connect(config(preferred), address, handler).await?;
    let hash = session.best_supported_rsa_hash().await?.flatten();
    let answer = session
        .authenticate_publickey(user, PrivateKeyWithHashAlg::new(Arc::clone(&key.0), hash))
        .await?;
    if !matches!(answer, AuthResult::Success) {
        return Ok(LoginOutcome::Refused);
    }
    let status = run_true(&session).await?;
    session.disconnect(Disconnect::ByApplication, "", "en").await?;
    Ok(if status == Some(0) { LoginOutcome::Done } else { LoginOutcome::Refused })
}

/// Runs `true` in a session that is logged in, and returns its exit status; `None` if the server
/// sends none. An error if the server opens no channel.
async fn run_true(session: &Handle<HostKeyRecorder>) -> Result<Option<u32>, russh::Error> {
    let mut channel = session.channel_open_session().await?;
    channel.exec(true, "true").await?;
    while let Some(message) = channel.wait().await {
        if let ChannelMsg::ExitStatus { exit_status } = message {
            return Ok(Some(exit_status));
        }
    }
    Ok(None)
}

/// Returns the server's host key for one of these algorithms; `None` if it has none. The error says
/// why no key could be read, or that `within` was too short. Logs in nowhere.
async fn scan_one(
    target: &SshEndpoint,
    algorithms: Vec<Algorithm>,
    within: Duration,
) -> Result<Option<String>, String> {
    let seen = Arc::new(Mutex::new(None));
    let handler = HostKeyRecorder { seen: Arc::clone(&seen), expected: None };
    let preferred = Preferred { key: Cow::Owned(algorithms), ..Preferred::DEFAULT };
    let result = timeout(
        within,
        client::connect(config(preferred), (target.address.as_str(), target.port), handler),
    )
    .await;
    if let Some(key) = seen.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Ok(Some(key));
    }
    match result {
        Ok(Ok(_) | Err(russh::Error::NoCommonAlgo { .. })) => Ok(None),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no host key within {} s", within.as_secs())),
    }
}

/// Records the host key that a server shows, and accepts it if it is expected.
struct HostKeyRecorder {
    seen: Arc<Mutex<Option<String>>>,
    expected: Option<Vec<String>>,
}

impl Handler for HostKeyRecorder {
    type Error = russh::Error;

    /// Records the host key that the server shows, and accepts it only if it is expected. Without
    /// expected keys it accepts none, which ends the connection. A certificate is neither recorded
    /// nor accepted.
    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Ok(false);
        };
        let Ok(line) = key.to_openssh() else {
            return Ok(false);
        };
        // Removes a comment, if the server sends one.
        let line = line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let accepted = self.expected.as_ref().is_some_and(|expected| expected.contains(&line));
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        Ok(accepted)
    }
}

/// Returns the client's settings with these preferred algorithms, and defaults otherwise.
fn config(preferred: Preferred) -> Arc<client::Config> {
    Arc::new(client::Config { preferred, ..client::Config::default() })
}

/// Returns the error for a server that cannot be reached.
fn unreachable(target: &SshEndpoint, why: String) -> SshCheckError {
    SshCheckError::Unreachable { address: target.address.clone(), port: target.port, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Z1.8
    #[tokio::test]
    async fn a_check_waits_for_a_server_that_is_just_starting() {
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let target = SshEndpoint { address: address.ip().to_string(), port: address.port() };
        let late = async {
            let refused = TcpStream::connect(address).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "the server has not started");
            TcpListener::bind(address).await.unwrap()
        };
        let (result, _listener) = tokio::join!(wait_until_listening(&target), late);
        assert_eq!(result, Ok(()));
    }
}
