//! Looking at a booted node over SSH: which host keys it shows, and whether our login works (Z1.8's
//! testing).

use russh::client::{self, AuthResult, Handle, Handler};
use russh::keys::{
    Algorithm, EcdsaCurve, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate,
};
use russh::{ChannelMsg, Disconnect, Preferred};
use sluice_pool::CheckFact;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long one check waits for a server that refuses connections, or does not answer them.
const LISTEN_PATIENCE: Duration = Duration::from_millis(1_000);
/// Between two attempts to connect.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Where an SSH server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// IP address or host name.
    pub address: String,
    /// The port.
    pub port: u16,
}

/// A private key for logins. It has no `Debug`.
#[derive(Clone)]
pub struct LoginKey(Arc<PrivateKey>);

impl LoginKey {
    /// Reads an unencrypted key in OpenSSH's format.
    pub fn from_openssh(text: &str) -> Result<Self, SshError> {
        PrivateKey::from_openssh(text).map(|key| Self(Arc::new(key))).map_err(|_| SshError::Key)
    }
}

/// Why a server could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// The key is not one.
    #[error(
        "could not read the login key: it is not an unencrypted private key in OpenSSH's format"
    )]
    Key,
    /// Nobody answers as an SSH server should, yet.
    #[error(
        "could not reach SSH at {address}:{port}: {why}; it is tried again until the boot time-out"
    )]
    Unreachable {
        /// The address.
        address: String,
        /// The port.
        port: u16,
        /// What happened.
        why: String,
    },
    /// It answers with another host key than it should.
    #[error("{address}:{port} shows another host key than expected: something else answers there")]
    HostKey {
        /// The address.
        address: String,
        /// The port.
        port: u16,
    },
    /// It does not take our key, yet.
    #[error(
        "{user}@{address}:{port} does not take the login key; it is tried again until the boot time-out"
    )]
    Login {
        /// The login.
        user: String,
        /// The address.
        address: String,
        /// The port.
        port: u16,
    },
}

/// Scans the host keys and logs in: the whole check of a booted node. Configured keys must be shown
/// exactly; else those seen are taken.
pub async fn check(
    target: &Target,
    user: &str,
    key: &LoginKey,
    configured: &[String],
    within: Duration,
) -> CheckFact {
    let seen = match look(target, within).await {
        Ok(seen) => seen,
        Err(error) => return CheckFact::NotYet(error.to_string()),
    };
    let host_keys = if configured.is_empty() { seen } else { configured.to_vec() };
    match ready(target, user, key, &host_keys, within).await {
        Ok(()) => CheckFact::Passed { host_keys },
        Err(error @ SshError::HostKey { .. }) if !configured.is_empty() => {
            CheckFact::Failed(error.to_string())
        }
        Err(error) => CheckFact::NotYet(error.to_string()),
    }
}

async fn look(target: &Target, within: Duration) -> Result<Vec<String>, SshError> {
    listens(target).await?;
    scan(target, within).await
}

/// Waits a moment for somebody to listen: a machine that has just booted starts its server soon,
/// and the next look at it is a message away. Where nobody answers at all, no more time is lost
/// with it.
pub async fn listens(target: &Target) -> Result<(), SshError> {
    let asked = async {
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
    match timeout(LISTEN_PATIENCE, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(unreachable(target, "nobody listens there yet".to_owned())),
    }
}

/// Returns the host keys that a server shows, one per algorithm, in known_hosts form without the
/// host (`ssh-ed25519 AAAA…`).
///
/// Each algorithm takes a connection of its own; all must end within the time. The keys are not
/// trusted before the cloud's own word is: the address came from the cloud's listing, and the login
/// with our key proves that it is the machine we launched.
pub async fn scan(target: &Target, within: Duration) -> Result<Vec<String>, SshError> {
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
    let (mut keys, mut problem) =
        (Vec::new(), String::from("it has no host key of a known algorithm"));
    for scan in scans {
        match scan.await {
            Ok(Ok(key)) => keys.extend(key),
            Ok(Err(why)) => problem = why,
            Err(error) => problem = error.to_string(),
        }
    }
    if keys.is_empty() { Err(unreachable(target, problem)) } else { Ok(keys) }
}

/// Logs in and runs `true`.
pub async fn ready(
    target: &Target,
    user: &str,
    key: &LoginKey,
    host_keys: &[String],
    within: Duration,
) -> Result<(), SshError> {
    let seen = Arc::new(Mutex::new(None));
    let handler = Look { seen: Arc::clone(&seen), expected: Some(host_keys.to_vec()) };
    let result = timeout(within, login(target, user, key, handler)).await;
    let shown = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    match result {
        Ok(Ok(Login::Done)) => Ok(()),
        Ok(Ok(Login::Refused)) => Err(SshError::Login {
            user: user.to_owned(),
            address: target.address.clone(),
            port: target.port,
        }),
        Ok(Err(_)) if shown.is_some_and(|shown| !host_keys.contains(&shown)) => {
            Err(SshError::HostKey { address: target.address.clone(), port: target.port })
        }
        Ok(Err(error)) => Err(unreachable(target, error.to_string())),
        Err(_) => Err(unreachable(target, format!("no login within {} s", within.as_secs()))),
    }
}

enum Login {
    Done,
    Refused,
}

async fn login(
    target: &Target,
    user: &str,
    key: &LoginKey,
    handler: Look,
) -> Result<Login, russh::Error> {
    let mut session = client::connect(
        config(Preferred::DEFAULT),
        (target.address.as_str(), target.port),
        handler,
    )
    .await?;
    let hash = session.best_supported_rsa_hash().await?.flatten();
    let answer = session
        .authenticate_publickey(user, PrivateKeyWithHashAlg::new(Arc::clone(&key.0), hash))
        .await?;
    if !matches!(answer, AuthResult::Success) {
        return Ok(Login::Refused);
    }
    let status = run_true(&session).await?;
    session.disconnect(Disconnect::ByApplication, "", "en").await?;
    Ok(if status == Some(0) { Login::Done } else { Login::Refused })
}

async fn run_true(session: &Handle<Look>) -> Result<Option<u32>, russh::Error> {
    let mut channel = session.channel_open_session().await?;
    channel.exec(true, "true").await?;
    while let Some(message) = channel.wait().await {
        if let ChannelMsg::ExitStatus { exit_status } = message {
            return Ok(Some(exit_status));
        }
    }
    Ok(None)
}

/// Returns the one key of these algorithms that the server shows; none when it has none of them.
async fn scan_one(
    target: &Target,
    algorithms: Vec<Algorithm>,
    within: Duration,
) -> Result<Option<String>, String> {
    let seen = Arc::new(Mutex::new(None));
    let handler = Look { seen: Arc::clone(&seen), expected: None };
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

/// Notes the key that a server shows; accepts it when it is expected.
struct Look {
    seen: Arc<Mutex<Option<String>>>,
    expected: Option<Vec<String>>,
}

impl Handler for Look {
    type Error = russh::Error;

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
        // Without the comment, if the server could ever send one.
        let line = line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let accepted = self.expected.as_ref().is_some_and(|expected| expected.contains(&line));
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
        Ok(accepted)
    }
}

fn config(preferred: Preferred) -> Arc<client::Config> {
    Arc::new(client::Config { preferred, ..client::Config::default() })
}

fn unreachable(target: &Target, why: String) -> SshError {
    SshError::Unreachable { address: target.address.clone(), port: target.port, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Z1.8
    #[tokio::test]
    async fn a_server_that_starts_while_it_is_asked_is_found_by_the_same_check() {
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let target = Target { address: address.ip().to_string(), port: address.port() };
        let late = async {
            let refused = TcpStream::connect(address).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "nobody listens yet");
            TcpListener::bind(address).await.unwrap()
        };
        let (found, _listener) = tokio::join!(listens(&target), late);
        assert_eq!(found, Ok(()));
    }
}
