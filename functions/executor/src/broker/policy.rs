//! Decides which addresses a build may connect to (Z7.5). Pure: names are resolved by the caller.
//!
//! The first rule that applies decides:
//!
//! 1. the build's own nodes, by exact address and port: allowed
//! 2. metadata services, link-local, unspecified, multicast and reserved addresses: refused
//! 3. the operator's refused networks: refused
//! 4. the operator's allowed networks, and a service that the operator names: allowed
//! 5. loopback, this machine's other addresses, and private networks: refused
//! 6. everything else: allowed
//!
//! Private networks are refused by default, because that is where a control plane has its
//! databases, functions, executors and the nodes of other builds, in ranges that an executor cannot
//! find out. An operator who has a mirror there allows its address.

use super::target::Target;
use crate::settings::NetworkSettings;
pub use ipnet::IpNet;
use ipnet::{Ipv4Net, Ipv6Net};
use sluice_model::node::NodeAccess;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A network, or one port of it, to which an operator lets untrusted playbooks connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedNetwork {
    /// The addresses.
    network: IpNet,
    /// The only port; `None` means all.
    port: Option<u16>,
}

impl AllowedNetwork {
    /// Returns whether the network has this address and port.
    fn contains(&self, address: IpAddr, port: u16) -> bool {
        self.network.contains(&address) && self.port.is_none_or(|only| only == port)
    }
}

impl FromStr for AllowedNetwork {
    type Err = String;

    /// Reads `10.1.0.0/16`, `10.1.2.3`, `10.1.2.3:3142`, or the same with IPv6 (`[fd00::1]:3142`).
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self { network: address.ip().into(), port: Some(address.port()) });
        }
        let network = read_network(text)?;
        Ok(Self { network, port: None })
    }
}

impl fmt::Display for AllowedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.network.addr(), port).fmt(f),
            None => self.network.fmt(f),
        }
    }
}

/// Reads a network: `10.0.0.0/8`, or one address. Bits behind the prefix are ignored. The error
/// says what was expected.
pub fn read_network(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    address.or_else(|_| text.parse::<IpNet>()).map(|network| network.trunc()).map_err(|_| {
        format!("\"{text}\" is no network: write it as 10.0.0.0/8, fd00::/8 or one address")
    })
}

/// Why a connection is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// A service of clouds that hands out credentials or settings of the machine.
    #[error("metadata services of clouds are refused")]
    Metadata,
    /// 169.254.0.0/16, fe80::/10.
    #[error("link-local addresses are refused")]
    LinkLocal,
    /// 0.0.0.0/8, `::`.
    #[error("unspecified addresses are refused")]
    Unspecified,
    /// 224.0.0.0/4, ff00::/8, 255.255.255.255.
    #[error("multicast and broadcast addresses are refused")]
    Multicast,
    /// Addresses outside of the Internet, or that are another form of an IPv4 address.
    #[error("reserved addresses are refused")]
    Reserved,
    /// A network that the operator refuses.
    #[error("the executor's operator refuses {0}")]
    Operator(IpNet),
    /// 127.0.0.0/8, `::1`.
    #[error("loopback addresses of the executor are refused")]
    Loopback,
    /// Another address of the executor's machine.
    #[error("addresses of the executor's machine are refused")]
    OwnMachine,
    /// Networks that are not part of the Internet.
    #[error("private networks are refused, unless the executor's operator allows them")]
    Private,
}

/// The rules for one build.
#[derive(Debug)]
pub struct NetworkPolicy {
    /// The SSH ports of the build's nodes.
    nodes: Vec<Target>,
    /// Networks that the operator refuses.
    refused: Vec<IpNet>,
    /// Networks that the operator allows.
    allowed: Vec<AllowedNetwork>,
    /// Services that the operator names.
    services: Vec<Target>,
}

impl NetworkPolicy {
    /// Returns the rules for a build with these nodes. A node whose address is neither a name nor
    /// an address cannot be reached.
    pub fn new(settings: &NetworkSettings, nodes: &[NodeAccess]) -> Self {
        let nodes = nodes
            .iter()
            .filter_map(|node| Target::new(&node.interface_ip, node.ssh_port).ok())
            .collect();
        Self {
            nodes,
            refused: settings.refused.clone(),
            allowed: settings.allowed.clone(),
            services: settings.services.clone(),
        }
    }

    /// Returns whether the target is the SSH port of one of the build's nodes. Such a target needs
    /// no further decision, whatever its name resolves to: the pool says where its nodes are.
    pub fn is_own_node(&self, target: &Target) -> bool {
        self.nodes.contains(target)
    }

    /// Decides about an address of a target that is no node of the build. `is_own` says whether an
    /// address is one of this machine. An IPv6 address that is a form of an IPv4 address is refused
    /// if either of them is.
    pub fn decide(
        &self,
        target: &Target,
        address: IpAddr,
        is_own: impl Fn(IpAddr) -> bool,
    ) -> Result<(), AddressRefusal> {
        let one = address.to_canonical();
        let behind = match one {
            IpAddr::V6(address) => behind_nat64(address).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        for address_form in [Some(one), behind].into_iter().flatten() {
            self.decide_form(target, address_form, &is_own)?;
        }
        Ok(())
    }

    /// Decides about one form of an address.
    fn decide_form(
        &self,
        target: &Target,
        address: IpAddr,
        is_own: impl Fn(IpAddr) -> bool,
    ) -> Result<(), AddressRefusal> {
        if let Some(refusal) = refused_for_all(address) {
            return Err(refusal);
        }
        if let Some(refused) = self.refused.iter().find(|network| network.contains(&address)) {
            return Err(AddressRefusal::Operator(*refused));
        }
        let is_allowed = self.allowed.iter().any(|network| network.contains(address, target.port));
        if is_allowed || self.services.contains(target) {
            return Ok(());
        }
        if address.is_loopback() {
            Err(AddressRefusal::Loopback)
        } else if is_own(address) {
            Err(AddressRefusal::OwnMachine)
        } else if PRIVATE.iter().any(|network| network.contains(&address)) {
            Err(AddressRefusal::Private)
        } else {
            Ok(())
        }
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(first: u16, second: u16, last: u16, prefix: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, last), prefix))
}

/// Metadata services: AWS (machines, tasks, pods), Azure, Alibaba, and Google over IPv6.
const METADATA: [IpNet; 7] = [
    v4(169, 254, 169, 254, 32),
    v4(169, 254, 170, 2, 32),
    v4(169, 254, 170, 23, 32),
    v4(168, 63, 129, 16, 32),
    v4(100, 100, 100, 200, 32),
    v6(0xfd00, 0x0ec2, 0, 32),
    v6(0xfd20, 0x00ce, 0x254, 128),
];

/// Private networks (RFC 1918, RFC 4193), carriers' (RFC 6598), and benchmarks' (RFC 2544), where
/// a local system has its nodes.
const PRIVATE: [IpNet; 6] = [
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    v4(100, 64, 0, 0, 10),
    v4(198, 18, 0, 0, 15),
    v6(0xfc00, 0, 0, 7),
];

/// Protocol assignments, relays of 6to4, and what is reserved for the future.
const RESERVED_V4: [IpNet; 3] = [v4(192, 0, 0, 0, 24), v4(192, 88, 99, 0, 24), v4(240, 0, 0, 0, 4)];
/// Protocol assignments with Teredo, and 6to4: these are forms of IPv4 addresses.
const RESERVED_V6: [IpNet; 2] = [v6(0x2001, 0, 0, 23), v6(0x2002, 0, 0, 16)];
/// All of IPv6 that is routed on the Internet.
const GLOBAL_V6: IpNet = v6(0x2000, 0, 0, 3);
/// Forms of IPv4 addresses behind a translator (RFC 6052).
const NAT64: IpNet = v6(0x64, 0xff9b, 0, 96);

/// Returns why an address is refused to every build; `None` if settings decide.
fn refused_for_all(address: IpAddr) -> Option<AddressRefusal> {
    if METADATA.iter().any(|network| network.contains(&address)) {
        return Some(AddressRefusal::Metadata);
    }
    match address {
        IpAddr::V4(address) => {
            if address.is_link_local() {
                Some(AddressRefusal::LinkLocal)
            } else if address.octets()[0] == 0 {
                Some(AddressRefusal::Unspecified)
            } else if address.is_multicast() || address.is_broadcast() {
                Some(AddressRefusal::Multicast)
            } else {
                let reserved = |network: &IpNet| network.contains(&IpAddr::V4(address));
                RESERVED_V4.iter().any(reserved).then_some(AddressRefusal::Reserved)
            }
        }
        IpAddr::V6(address) => {
            let within = |network: &IpNet| network.contains(&IpAddr::V6(address));
            if address.is_unicast_link_local() {
                Some(AddressRefusal::LinkLocal)
            } else if address.is_unspecified() {
                Some(AddressRefusal::Unspecified)
            } else if address.is_multicast() {
                Some(AddressRefusal::Multicast)
            } else if address.is_loopback() || address.is_unique_local() || within(&NAT64) {
                None
            } else {
                let is_usable = within(&GLOBAL_V6) && !RESERVED_V6.iter().any(within);
                (!is_usable).then_some(AddressRefusal::Reserved)
            }
        }
    }
}

/// Returns the IPv4 address behind a translator; `None` for any other address.
fn behind_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., a, b, c, d] = address.octets();
    NAT64.contains(&IpAddr::V6(address)).then(|| Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(refused: &[&str], allowed: &[&str]) -> NetworkPolicy {
        let settings = NetworkSettings {
            refused: refused.iter().map(|text| read_network(text).unwrap()).collect(),
            allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
            ..NetworkSettings::default()
        };
        NetworkPolicy::new(&settings, &[])
    }

    fn decide(policy: &NetworkPolicy, address: &str) -> Result<(), AddressRefusal> {
        let own: IpAddr = "203.0.113.7".parse().unwrap();
        let target = Target::new("name.test", 443).unwrap();
        policy.decide(&target, address.parse().unwrap(), |address| address == own)
    }

    /// Z7.5, X01: nothing of the executor's machine, its networks or its cloud is reached, in
    /// whatever form the address is written.
    #[test]
    fn addresses_of_the_control_plane_are_refused_in_every_form() {
        use AddressRefusal::*;
        let rows = [
            (Metadata, "169.254.169.254 169.254.170.2 168.63.129.16 100.100.100.200 fd00:ec2::254"),
            (Metadata, "::ffff:169.254.169.254 64:ff9b::169.254.169.254 fd20:ce::254"),
            (LinkLocal, "169.254.0.1 fe80::1 febf::1 ::ffff:169.254.1.1 64:ff9b::a9fe:101"),
            (Unspecified, "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0 64:ff9b::"),
            (Multicast, "224.0.0.1 239.255.255.250 ff02::1 255.255.255.255"),
            (Reserved, "240.0.0.1 192.0.0.8 192.88.99.1 2002:7f00:1:: 2001:0:7f00::1 100::1"),
            (Reserved, "::127.0.0.1 fec0::1 64:ff9b:1::7f00:1 ::2 5f00::1 4000::1"),
            (Loopback, "127.0.0.1 127.255.0.1 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1"),
            (OwnMachine, "203.0.113.7 ::ffff:203.0.113.7 64:ff9b::203.0.113.7"),
            (Private, "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 198.18.0.2"),
            (Private, "fc00::1 fdff::1 ::ffff:10.0.0.1 64:ff9b::10.0.0.1"),
        ];
        let policy = policy(&[], &[]);
        for (refusal, addresses) in rows {
            for address in addresses.split(' ') {
                assert_eq!(decide(&policy, address), Err(refusal.clone()), "{address}");
            }
        }
        for address in "8.8.8.8 172.32.0.1 2600::1 2a00:1450::1 64:ff9b::8.8.8.8".split(' ') {
            assert_eq!(decide(&policy, address), Ok(()), "{address}");
        }
    }

    /// Z7.5
    #[test]
    fn an_operator_allows_addresses_that_are_refused_by_default_and_refuses_others() {
        let policy = policy(
            &["203.0.113.0/24", "2600::/16", "10.1.0.0/16"],
            &["10.0.0.0/8", "127.0.0.1:3142", "[fd00::5]:80", "0.0.0.0/0", "::/0"],
        );
        for address in ["203.0.113.9", "2600::1", "10.1.2.3", "64:ff9b::203.0.113.9"] {
            assert!(
                matches!(decide(&policy, address), Err(AddressRefusal::Operator(_))),
                "{address}"
            );
        }
        assert_eq!(decide(&policy, "10.2.0.1"), Ok(()));
        assert_eq!(decide(&policy, "169.254.169.254"), Err(AddressRefusal::Metadata));
        assert_eq!(decide(&policy, "fe80::1"), Err(AddressRefusal::LinkLocal));
        let narrow = NetworkPolicy { allowed: policy.allowed[1..3].to_vec(), ..policy };
        let port = |text: &str| {
            let address: SocketAddr = text.parse().unwrap();
            let target = Target::new("name.test", address.port()).unwrap();
            narrow.decide(&target, address.ip(), |_| false)
        };
        assert_eq!(port("127.0.0.1:3142"), Ok(()));
        assert_eq!(port("127.0.0.1:3143"), Err(AddressRefusal::Loopback));
        assert_eq!(port("[fd00::5]:80"), Ok(()));
        assert_eq!(port("[fd00::5]:81"), Err(AddressRefusal::Private));
    }

    /// Z4.6, Z7.5: a service that the operator names may be in the operator's own network; its
    /// name and port are exact, and what is refused to all is refused to it.
    #[test]
    fn a_service_of_the_operator_is_reached_by_its_name_and_port_alone() {
        let settings = NetworkSettings {
            refused: vec![read_network("10.9.0.0/16").unwrap()],
            services: vec![Target::new("galaxy.test", 8080).unwrap()],
            ..NetworkSettings::default()
        };
        let policy = NetworkPolicy::new(&settings, &[]);
        let decide = |name: &str, port, address: &str| {
            policy.decide(&Target::new(name, port).unwrap(), address.parse().unwrap(), |_| false)
        };
        for address in ["127.0.0.1", "10.0.0.1", "fd00::1", "64:ff9b::10.0.0.1", "8.8.8.8"] {
            assert_eq!(decide("galaxy.test", 8080, address), Ok(()), "{address}");
        }
        assert_eq!(decide("galaxy.test", 8081, "127.0.0.1"), Err(AddressRefusal::Loopback));
        assert_eq!(decide("other.test", 8080, "10.0.0.1"), Err(AddressRefusal::Private));
        assert_eq!(decide("127.0.0.1", 8080, "127.0.0.1"), Err(AddressRefusal::Loopback));
        let metadata = decide("galaxy.test", 8080, "169.254.169.254");
        assert_eq!(metadata, Err(AddressRefusal::Metadata));
        assert_eq!(decide("galaxy.test", 8080, "fe80::1"), Err(AddressRefusal::LinkLocal));
        let refused = decide("galaxy.test", 8080, "10.9.0.1");
        assert!(matches!(refused, Err(AddressRefusal::Operator(_))), "{refused:?}");
    }

    /// Z7.5
    #[test]
    fn networks_are_read_as_operators_write_them() {
        for (text, expected) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("10.1.2.3:80", "10.1.2.3:80"),
            ("[fd00::1]:80", "[fd00::1]:80"),
            ("fd00::/8", "fd00::/8"),
        ] {
            assert_eq!(text.parse::<AllowedNetwork>().unwrap().to_string(), expected);
        }
        for text in ["", "mirror.test", "10.0.0.0/33", "10.0.0/8"] {
            let error = text.parse::<AllowedNetwork>().unwrap_err();
            assert!(error.contains("is no network"), "{error}");
        }
    }
}
