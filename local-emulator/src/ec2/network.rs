//! The network of the nodes: a bridge of this emulator with a subnet of its own, to which each
//! node's network namespace is attached by a pair of virtual interfaces.
//!
//! This machine reaches the nodes. They reach each other and, translated, what this machine
//! reaches; of this machine only its answers to them and to `ping`, and not what it redirects
//! elsewhere. The addresses where clouds keep the credentials of machines are closed to them, and
//! all of IPv6.
//!
//! Nodes need this machine's forwarding. Where an emulator had to switch it on, this machine
//! forwards for nodes only.
//!
//! The number of the subnet is in the name of the bridge, so that creating the bridge reserves it.
//! The bridge's hardware address is a digest of the emulator's directory, by which an emulator
//! finds its own again, and its alias is the directory: a bridge without one is removed by the next
//! emulator that starts.

use super::process::write_whole;
use super::rights::{is_root, need_program};
use std::fs;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The subnets, of 256 addresses each, in 198.18.0.0/15: addresses for measuring networks, which
/// are used nowhere else.
const SUBNETS: u32 = 512;
/// The file with the number of the subnet, written before anything is created.
const NOTE: &str = "network";
/// Serialises what emulators do to the whole machine. Only root may open it.
const LOCK: &str = "/run/sluice-nodes.lock";
/// Exists while an emulator has switched forwarding on; whose bridge goes last switches it off.
const FORWARDED: &str = "/run/sluice-forwards";
/// The table of rules that exists while an emulator has switched forwarding on.
const FORWARDING_TABLE: &str = "sluice_forwarding";
/// What the names of bridges begin with; the number of the subnet follows.
const NAME: &str = "sluice-";
/// Where clouds keep the credentials of machines, and all subnets of nodes.
const CLOSED: &str = "169.254.0.0/16, 168.63.129.16, 100.100.100.200, 198.18.0.0/15";
/// The shortest prefix of a route that says something about a network: a VPN covers all addresses
/// by shorter ones.
const PREFIX_MIN: u8 = 8;
/// The kernel takes aliases that are shorter.
const ALIAS_END: usize = 256;
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const INTERFACES: &str = "/sys/class/net";

/// How nodes are connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Network {
    /// Each has a network of its own, on this bridge.
    Own(Bridge),
    /// They share this machine's network.
    Shared {
        /// The reason.
        why: String,
    },
}

impl Network {
    /// Opens the network of the emulator with this directory: finds or creates its bridge where
    /// this machine allows that.
    pub(super) fn open(directory: &Path) -> Self {
        match Bridge::open(directory) {
            Ok(bridge) => Self::Own(bridge),
            Err(why) => Self::Shared { why },
        }
    }

    /// Returns whether a node's address, as text, is one of this network.
    pub(super) fn contains(&self, address: &str) -> bool {
        let Ok(address) = address.parse::<Ipv4Addr>() else { return false };
        match self {
            Self::Own(bridge) => address.octets()[..3] == bridge.gateway().octets()[..3],
            Self::Shared { .. } => address.is_loopback(),
        }
    }
}

/// An emulator's bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bridge {
    number: u32,
    mtu: u32,
}

impl Bridge {
    /// Finds the bridge of the emulator with this directory, or creates it on the subnet that it
    /// had before or the next free one. Sets its filter in any case. The error says why the machine
    /// does not allow it; nothing of a bridge is left then.
    fn open(directory: &Path) -> Result<Self, String> {
        if !is_root() {
            return Err("only root may connect networks".to_owned());
        }
        for (program, package) in [("ip", "iproute2"), ("nft", "nftables")] {
            if need_program(program, package).is_err() {
                return Err(format!(
                    "the program `{program}` is missing; install the package {package}, or run infra/node-tools.sh"
                ));
            }
        }
        let failed = |error: io::Error| error.to_string();
        let _lock = lock().map_err(failed)?;
        remove_abandoned();
        let owner = owner(directory);
        let bridge = match noted(directory).filter(|bridge| bridge.owner() == Some(owner.clone())) {
            Some(bridge) => bridge,
            None => create(directory, &owner).map_err(failed)?,
        };
        bridge.set_up(directory).map_err(|error| {
            let _ = bridge.delete();
            failed(error)
        })?;
        Ok(bridge)
    }

    /// Returns the address of this machine on the bridge.
    pub(super) fn gateway(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// Returns the first address for a node that is not in `taken`; `None` if there is none.
    pub(super) fn free_address(&self, taken: &[String]) -> Option<Ipv4Addr> {
        (2..=254)
            .map(|last| self.address(last))
            .find(|address| !taken.contains(&address.to_string()))
    }

    /// Attaches the network namespace of a process to the bridge, as the node with this address,
    /// whose interface there is `eth0`. Sets the filter before.
    pub(super) fn attach(&self, address: Ipv4Addr, process: u32) -> io::Result<()> {
        // That of an earlier start vanishes some time after its last process.
        self.detach(address);
        {
            // Other software of this machine may have deleted all rules.
            let _lock = lock()?;
            self.close_off()?;
        }
        let (name, mtu) = (self.interface(address), self.mtu.to_string());
        let process = process.to_string();
        // Of the address, because this machine remembers that of an earlier node for a minute.
        let [first, second, third, fourth] = address.octets();
        let hardware = format!("02:00:{first:02x}:{second:02x}:{third:02x}:{fourth:02x}");
        ip(&[
            "link", "add", &name, "mtu", &mtu, "type", "veth", "peer", "name", "eth0", "address",
            &hardware, "mtu", &mtu, "netns", &process,
        ])?;
        ip(&["link", "set", &name, "master", &self.name(), "up"])
    }

    /// Removes the interface of the node with this address; a missing one is no error.
    pub(super) fn detach(&self, address: Ipv4Addr) {
        let name = self.interface(address);
        // It may be missing, and the kernel may remove it at the same moment.
        let _ = ip(&["link", "delete", &name]);
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        let subnet = self.number.to_be_bytes();
        Ipv4Addr::new(198, 18 + subnet[2], subnet[3], last)
    }

    fn name(&self) -> String {
        format!("{NAME}{}", self.number)
    }

    fn interface(&self, address: Ipv4Addr) -> String {
        format!("{}-{}", self.name(), address.octets()[3])
    }

    /// Returns the hardware address of the bridge; `None` if it does not exist.
    fn owner(&self) -> Option<String> {
        let file = Path::new(INTERFACES).join(self.name()).join("address");
        Some(fs::read_to_string(file).ok()?.trim().to_owned())
    }

    /// Gives the bridge its alias, its address, its filter and, if it is off, this machine's
    /// forwarding. Safe to call again. The caller holds the lock.
    fn set_up(&self, directory: &Path) -> io::Result<()> {
        let (name, gateway) = (self.name(), format!("{}/24", self.gateway()));
        let place = resolved(directory);
        if place.as_os_str().len() < ALIAS_END {
            ip(&["link", "set", &name, "alias", &place.to_string_lossy()])?;
        }
        ip(&["address", "replace", &gateway, "dev", &name])?;
        ip(&["link", "set", &name, "up"])?;
        let is_off = fs::read_to_string(FORWARDING)?.trim() == "0";
        if is_off {
            fs::write(FORWARDED, "")?;
        }
        self.close_off()?;
        match is_off {
            true => fs::write(FORWARDING, "1"),
            false => Ok(()),
        }
    }

    /// Sets the rules of this bridge and, if an emulator has switched forwarding on, those that
    /// keep this machine from forwarding for others than nodes. The caller holds the lock.
    fn close_off(&self) -> io::Result<()> {
        nft(&self.filter())?;
        match Path::new(FORWARDED).exists() {
            true => nft(&forwarding_filter()),
            false => Ok(()),
        }
    }

    /// Returns the rules of this bridge as a script that replaces earlier ones.
    fn filter(&self) -> String {
        let (name, subnet) = (self.name(), format!("{}/24", self.address(0)));
        format!(
            "add table inet {name}\n\
             delete table inet {name}\n\
             table inet {name} {{\n\
             chain forward {{\n\
             type filter hook forward priority filter; policy accept;\n\
             iifname \"{name}\" meta nfproto ipv6 drop\n\
             iifname \"{name}\" ip saddr != {subnet} drop\n\
             iifname \"{name}\" oifname \"{name}\" accept\n\
             iifname \"{name}\" ct status dnat drop\n\
             iifname \"{name}\" ip daddr {{ {CLOSED} }} drop\n\
             oifname \"{name}\" ct state != {{ established, related }} drop\n\
             }}\n\
             chain input {{\n\
             type filter hook input priority filter; policy accept;\n\
             iifname \"{name}\" meta nfproto ipv6 drop\n\
             iifname \"{name}\" ip saddr != {subnet} drop\n\
             iifname \"{name}\" ct state {{ established, related }} accept\n\
             iifname \"{name}\" icmp type echo-request accept\n\
             iifname \"{name}\" drop\n\
             }}\n\
             chain translate {{\n\
             type nat hook postrouting priority srcnat; policy accept;\n\
             ip saddr {subnet} oifname != \"{name}\" masquerade\n\
             }}\n\
             }}\n"
        )
    }

    /// Deletes the bridge with its rules. The last one also switches forwarding off, if an emulator
    /// has switched it on and nothing else seems to need it. The caller holds the lock.
    fn delete(&self) -> io::Result<()> {
        let name = self.name();
        nft(&format!("add table inet {name}\ndelete table inet {name}\n"))?;
        if Path::new(INTERFACES).join(&name).exists() {
            ip(&["link", "delete", &name])?;
        }
        if interfaces().any(|name| name.starts_with(NAME)) || !Path::new(FORWARDED).exists() {
            return Ok(());
        }
        match interfaces().find(|name| is_virtual(name)) {
            Some(other) => {
                tracing::warn!(
                    interface = other,
                    "net.ipv4.ip_forward, which this system had switched on, stays on: the interface may need it"
                );
            }
            None => fs::write(FORWARDING, "0")?,
        }
        nft(&format!("add table inet {FORWARDING_TABLE}\ndelete table inet {FORWARDING_TABLE}\n"))?;
        fs::remove_file(FORWARDED)
    }
}

/// Returns the rules that keep this machine from forwarding for others than nodes, as a script that
/// replaces earlier ones.
fn forwarding_filter() -> String {
    format!(
        "add table inet {FORWARDING_TABLE}\n\
         delete table inet {FORWARDING_TABLE}\n\
         table inet {FORWARDING_TABLE} {{\n\
         chain forward {{\n\
         type filter hook forward priority filter; policy accept;\n\
         iifname != \"{NAME}*\" oifname != \"{NAME}*\" drop\n\
         }}\n\
         }}\n"
    )
}

/// Removes the network of the emulator with this directory, found by its note: bridge, rules and,
/// with the last one, forwarding. No node may run. A bridge that is another emulator's stays. A
/// failure is logged, and the note stays for the next attempt.
pub(super) fn close(directory: &Path) {
    let Some(bridge) = noted(directory) else { return };
    let closed = lock().and_then(|_lock| {
        match bridge.owner() {
            Some(other) if other != owner(directory) => {}
            _ => bridge.delete()?,
        }
        fs::remove_file(directory.join(NOTE))
    });
    if let Err(error) = closed {
        tracing::warn!(bridge = bridge.name(), %error, "the network of the nodes is left behind; the next start removes it");
    }
}

/// Returns the bridge that is noted in the emulator's directory; `None` if there is no note. It
/// may not exist, or be another emulator's.
fn noted(directory: &Path) -> Option<Bridge> {
    let number = fs::read_to_string(directory.join(NOTE)).ok()?.trim().parse().ok()?;
    (number < SUBNETS).then(|| Bridge { number, mtu: mtu() })
}

/// Creates the emulator's bridge on the subnet that is noted, else on the first free one from a
/// number that its directory decides, and notes it. An error if no subnet is free, or the machine
/// refuses.
fn create(directory: &Path, owner: &str) -> io::Result<Bridge> {
    let digest = sluice_model::id::digest(&[owner]);
    let first = noted(directory).map(|bridge| bridge.number);
    let first = first.unwrap_or_else(|| {
        digest.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(0) % SUBNETS
    });
    for number in (0..SUBNETS).map(|step| (first + step) % SUBNETS) {
        let bridge = Bridge { number, mtu: mtu() };
        if Path::new(INTERFACES).join(bridge.name()).exists() || is_routed(&bridge)? {
            continue;
        }
        write_whole(&directory.join(NOTE), &number.to_string())?;
        ip(&["link", "add", "name", &bridge.name(), "address", owner, "type", "bridge"])
            .inspect_err(|_| drop(fs::remove_file(directory.join(NOTE))))?;
        return Ok(bridge);
    }
    Err(io::Error::other("all subnets of 198.18.0.0/15 are in use"))
}

/// Returns whether this machine has a route to the bridge's subnet, other than those to all
/// networks.
fn is_routed(bridge: &Bridge) -> io::Result<bool> {
    let subnet = format!("{}/24", bridge.address(0));
    let covering = ip_output(&["-4", "route", "show", "match", &subnet])?;
    let within = ip_output(&["-4", "route", "show", "root", &subnet])?;
    Ok(covering.lines().any(is_particular) || !within.trim().is_empty())
}

/// Returns whether a route, as a line of `ip route`, leads to some networks only: it is not the
/// default route, nor half of it.
fn is_particular(route: &str) -> bool {
    // The destination follows the type of the route, if that is not the usual one.
    let mut words = route.split_whitespace();
    let destination =
        words.find(|word| *word == "default" || word.starts_with(|first: char| first.is_numeric()));
    match destination.unwrap_or_default().split_once('/') {
        Some((_, prefix)) => prefix.parse().unwrap_or(u8::MAX) >= PREFIX_MIN,
        None => destination != Some("default"),
    }
}

/// Returns the names of this machine's interfaces.
fn interfaces() -> impl Iterator<Item = String> {
    let names = fs::read_dir(INTERFACES).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Returns whether an interface is a bridge or a tunnel, for which a machine usually forwards.
fn is_virtual(interface: &str) -> bool {
    let files = Path::new(INTERFACES).join(interface);
    files.join("bridge").exists() || files.join("tun_flags").exists()
}

/// Returns the hardware address of the bridge of the emulator with this directory, which must
/// exist: a locally administered one.
fn owner(directory: &Path) -> String {
    let digest = sluice_model::id::digest(&[&resolved(directory).to_string_lossy()]);
    let byte = |at: usize| digest.get(at * 2..at * 2 + 2).unwrap_or("00").to_owned();
    format!("02:{}", (0..5).map(byte).collect::<Vec<_>>().join(":"))
}

/// Returns the directory without symbolic links.
fn resolved(directory: &Path) -> PathBuf {
    directory.canonicalize().unwrap_or_else(|_| directory.to_owned())
}

/// Removes the bridges whose emulator's directory was deleted; a failure is logged. The caller
/// holds the lock.
fn remove_abandoned() {
    let entries = fs::read_dir(INTERFACES).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(NAME).and_then(|number| number.parse().ok());
        let alias = fs::read_to_string(entry.path().join("ifalias")).unwrap_or_default();
        let (Some(number), alias) = (number, alias.trim()) else { continue };
        if alias.is_empty() || Path::new(alias).exists() {
            continue;
        }
        match (Bridge { number, mtu: mtu() }).delete() {
            Ok(()) => {
                tracing::warn!(
                    bridge = name,
                    directory = alias,
                    "removed the network of nodes whose files were deleted"
                );
            }
            Err(error) => {
                tracing::warn!(bridge = name, %error, "the network of deleted nodes is left behind")
            }
        }
    }
}

/// Returns the largest packet that this machine's default route takes; 1500 without one.
fn mtu() -> u32 {
    let route = ip_output(&["-4", "route", "show", "default"]).unwrap_or_default();
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev");
    let file = words.nth(1).map(|device| Path::new(INTERFACES).join(device).join("mtu"));
    let text = file.and_then(|file| fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(1_500)
}

/// Waits for the lock of all emulators on this machine; dropping the file frees it.
fn lock() -> io::Result<fs::File> {
    let file = fs::File::options().create(true).append(true).mode(0o600).open(LOCK)?;
    file.lock()?;
    Ok(file)
}

/// Runs `ip`; an error with what it printed if it fails.
fn ip(arguments: &[&str]) -> io::Result<()> {
    ip_output(arguments).map(drop)
}

/// Runs `ip` and returns its output; an error with what it printed if it fails.
fn ip_output(arguments: &[&str]) -> io::Result<String> {
    let mut command = Command::new(program("ip"));
    let output = command.args(arguments).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(format!(
            "`ip {}` failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// Runs a script of `nft`; an error with what it printed if it fails.
fn nft(script: &str) -> io::Result<()> {
    let mut command = Command::new(program("nft"));
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "`nft` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// Returns a program of the system by its path, since `PATH` need not have these directories.
fn program(name: &str) -> PathBuf {
    let paths = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(|at| Path::new(at).join(name));
    paths.into_iter().find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C4
    #[test]
    fn each_subnet_has_a_bridge_and_addresses_of_its_own() {
        let (first, last) = (Bridge { number: 0, mtu: 1_500 }, Bridge { number: 511, mtu: 1_500 });
        assert_eq!(first.gateway(), Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(last.gateway(), Ipv4Addr::new(198, 19, 255, 1));
        assert_eq!(last.interface(last.address(254)), "sluice-511-254");
        assert!(last.interface(last.address(254)).len() < 16, "the kernel takes 15 characters");
        let taken = ["198.18.0.2".to_owned()];
        assert_eq!(first.free_address(&taken), Some(Ipv4Addr::new(198, 18, 0, 3)));
        let own = Network::Own(first);
        assert!(own.contains("198.18.0.9") && !own.contains("198.18.1.9"));
        assert!(!own.contains("127.16.0.1"), "an address of a shared network");
    }

    /// C4: a VPN whose routes cover all addresses leaves the subnets free.
    #[test]
    fn a_route_to_all_networks_takes_no_subnet() {
        for free in ["default via 10.0.0.1 dev eth0", "128.0.0.0/1 dev tun0", "unreachable default"]
        {
            assert!(!is_particular(free), "{free}");
        }
        for taken in ["198.18.0.0/15 dev lab", "unreachable 198.0.0.0/8", "198.18.3.4 dev lab"] {
            assert!(is_particular(taken), "{taken}");
        }
    }

    /// C4: what another emulator made is left alone.
    #[test]
    fn an_owner_is_a_digest_of_the_directory() {
        let (one, two) = (owner(Path::new("/no/one")), owner(Path::new("/no/two")));
        assert_ne!(one, two);
        assert!(one.starts_with("02:") && one.len() == 17, "{one}");
    }
}
