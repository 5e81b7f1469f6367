//! Resolves, checks and connects: the address that was checked is the one that is connected to
//! (Z7.5).

use super::policy::{AddressRefusal, NetworkPolicy};
use super::target::{Target, TargetHost};
use async_trait::async_trait;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// How long a name may take to resolve, in seconds.
const RESOLVE_SECONDS: u64 = 10;
/// How long all addresses of a target together may take to connect, in seconds.
const CONNECT_SECONDS: u64 = 20;
/// The maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// The maximum number of names of one build that are resolved at once; others wait. Each takes a
/// thread, also after its time is up.
const RESOLVING_MAX: usize = 8;

/// Resolves names. The system does it; tests answer as a hostile name server does.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns the addresses of a name, in the order in which to try them.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver, with its `/etc/hosts`.
#[derive(Debug)]
pub struct SystemResolver {
    /// Limits the threads that wait for a name server.
    room: Arc<Semaphore>,
}

impl Default for SystemResolver {
    /// Returns the resolver of one build.
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(RESOLVING_MAX)) }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let permit = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
        let name = name.to_owned();
        let resolved = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|one| one.ip()).collect())
        });
        resolved.await.map_err(io::Error::other)?
    }
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// A rule forbids it. The address is the refused one, if the target is a name.
    #[error("{}{}", .address.map(|address| format!("({address}) ")).unwrap_or_default(), .refusal)]
    Refused {
        /// The refused address; `None` if it is the target's own.
        address: Option<IpAddr>,
        /// The rule.
        refusal: AddressRefusal,
    },
    /// The name has no address.
    #[error("the name could not be resolved: {0}")]
    Unknown(io::Error),
    /// The target does not answer.
    #[error("could not connect: {0}")]
    Unreachable(io::Error),
}

/// Connects to a target that is no node of the build, if the rules allow it. A name is resolved
/// once; of its addresses only those are tried that the rules allow. If they allow none, the error
/// is the refusal of the first.
pub async fn dial(
    policy: &NetworkPolicy,
    resolver: &dyn Resolver,
    target: &Target,
) -> Result<TcpStream, DialError> {
    let (addresses, is_name) = match &target.host {
        TargetHost::Address(address) => (vec![*address], false),
        TargetHost::Name(name) => (resolve(resolver, name).await?, true),
    };
    let mut first_refusal = None;
    let mut usable = Vec::new();
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        let address = address.to_canonical();
        match policy.decide(target, address, is_own_address) {
            Ok(()) => usable.push(SocketAddr::new(address, target.port)),
            Err(refusal) => {
                let address = is_name.then_some(address);
                first_refusal.get_or_insert(DialError::Refused { address, refusal });
            }
        }
    }
    match first_refusal {
        Some(refused) if usable.is_empty() => Err(refused),
        _ => connect(&usable).await,
    }
}

/// Connects to one of the build's own nodes, whose address the pool has decided.
pub async fn dial_node(node: &Target) -> Result<TcpStream, DialError> {
    let addresses = match &node.host {
        TargetHost::Address(address) => vec![*address],
        TargetHost::Name(name) => resolve(&SystemResolver::default(), name).await?,
    };
    let addresses: Vec<SocketAddr> =
        addresses.into_iter().map(|address| SocketAddr::new(address, node.port)).collect();
    connect(&addresses).await
}

/// Returns the addresses of a name. An error if there is none, or after [`RESOLVE_SECONDS`].
async fn resolve(resolver: &dyn Resolver, name: &str) -> Result<Vec<IpAddr>, DialError> {
    let limit = Duration::from_secs(RESOLVE_SECONDS);
    let found = match tokio::time::timeout(limit, resolver.resolve(name)).await {
        Ok(found) => found.map_err(DialError::Unknown)?,
        Err(_) => return Err(DialError::Unknown(io::ErrorKind::TimedOut.into())),
    };
    if found.is_empty() {
        return Err(DialError::Unknown(io::ErrorKind::NotFound.into()));
    }
    Ok(found)
}

/// Connects to the first of these addresses that answers, within [`CONNECT_SECONDS`] for all.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, DialError> {
    let limit = Duration::from_secs(CONNECT_SECONDS);
    let connected = tokio::time::timeout(limit, TcpStream::connect(addresses)).await;
    let stream = connected
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(DialError::Unreachable)?;
    stream.set_nodelay(true).map_err(DialError::Unreachable)?;
    Ok(stream)
}

/// Returns whether an address is one of this machine: then the kernel would send from the address
/// itself, or from loopback. Sends nothing.
pub(crate) fn is_own_address(address: IpAddr) -> bool {
    let any = match address {
        IpAddr::V4(_) => "0.0.0.0:0",
        IpAddr::V6(_) => "[::]:0",
    };
    let source = UdpSocket::bind(any).and_then(|socket| {
        // The port has no meaning here.
        socket.connect(SocketAddr::new(address, 9))?;
        socket.local_addr()
    });
    // Without a route there is no connection either.
    source.is_ok_and(|source| source.ip() == address || source.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::NetworkSettings;
    use std::sync::Mutex;

    /// A name server that answers every question with the next of its answers.
    struct Rebinding(Mutex<Vec<Vec<&'static str>>>);

    #[async_trait]
    impl Resolver for Rebinding {
        async fn resolve(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
            let answer = self.0.lock().unwrap().remove(0);
            Ok(answer.into_iter().map(|address| address.parse().unwrap()).collect())
        }
    }

    fn policy(allowed: &[&str]) -> NetworkPolicy {
        let allowed = allowed.iter().map(|text| text.parse().unwrap()).collect();
        NetworkPolicy::new(&NetworkSettings { allowed, ..NetworkSettings::default() }, &[])
    }

    /// Z7.5: no name is resolved a second time, so none has another address when it is connected.
    #[tokio::test]
    async fn the_address_that_was_checked_is_the_one_that_is_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let policy = policy(&["127.0.0.1"]);
        let server =
            Rebinding(Mutex::new(vec![vec!["127.0.0.1"], vec!["127.0.0.2"], vec!["127.0.0.3"]]));
        let target = Target::new("rebinding.test", port).unwrap();
        let connected = dial(&policy, &server, &target).await.unwrap();
        assert_eq!(connected.peer_addr().unwrap().ip().to_string(), "127.0.0.1");
        assert_eq!(server.0.lock().unwrap().len(), 2, "one question");
        let error = dial(&policy, &server, &target).await.unwrap_err().to_string();
        assert_eq!(error, "(127.0.0.2) loopback addresses of the executor are refused");
    }

    /// Z7.5: a name with an allowed address and a refused one reaches the allowed one only.
    #[tokio::test]
    async fn of_the_addresses_of_a_name_only_allowed_ones_are_tried() {
        let refused = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = refused.local_addr().unwrap().port();
        let policy = policy(&["127.0.0.1"]);
        let answer = vec!["127.0.0.2", "::ffff:127.0.0.2", "::1", "127.0.0.1"];
        let server = Rebinding(Mutex::new(vec![answer]));
        let target = Target::new("both.test", port).unwrap();
        let error = dial(&policy, &server, &target).await.unwrap_err();
        assert!(matches!(error, DialError::Unreachable(_)), "nothing listens there: {error}");
        let none = Rebinding(Mutex::new(vec![vec![]]));
        let error = dial(&policy, &none, &target).await.unwrap_err();
        assert!(matches!(error, DialError::Unknown(_)), "{error}");
    }

    /// Z7.5: also a public address of this machine, which no list knows.
    #[test]
    fn every_address_of_this_machine_is_recognised_and_no_other() {
        for own in ["127.0.0.1", "127.9.9.9"] {
            assert!(is_own_address(own.parse().unwrap()), "{own}");
        }
        // Whatever address this machine has towards others, if it has one.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.255:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(is_own_address(own), "{own}");
        }
        for other in ["8.8.8.8", "2600::1"] {
            assert!(!is_own_address(other.parse().unwrap()), "{other}");
        }
    }
}
