//! What a machine reaches over its network, and what the host's filter closes to it.

use crate::nodes::{boot, bridge, networks_are_own};
use crate::support::World;
use sluice_cloud::Instance;
use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A network beside this machine, of documentation addresses: this machine's own address there, and
/// that of the only neighbour, which refuses connections.
const OWN: &str = "192.0.2.253";
const NEIGHBOUR: &str = "192.0.2.254";
/// Where clouds keep the credentials of machines, at the neighbour.
const CREDENTIALS: [&str; 2] = ["169.254.201.7", "100.100.100.200"];
/// An address behind the neighbour that answers nothing.
const SILENT: &str = "203.0.113.7";
/// A port of this machine that it redirects to the neighbour, as containers are published.
const PUBLISHED: u16 = 7_777;

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// The neighbour and what this machine redirects to it, removed when dropped.
struct Neighbour {
    name: String,
}

impl Neighbour {
    /// Makes the neighbour; nodes on `bridge` are redirected to it.
    fn new(bridge: &str) -> Self {
        let name = format!("peer{}", std::process::id() % 1_000_000);
        run("ip", &["netns", "add", &name]);
        let neighbour = Self { name: name.clone() };
        run("ip", &["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &name]);
        run("ip", &["address", "add", &format!("{OWN}/30"), "dev", &name]);
        run("ip", &["link", "set", &name, "up"]);
        let inside = |arguments: &[&str]| run("ip", &[&["-n", &name], arguments].concat());
        inside(&["address", "add", &format!("{NEIGHBOUR}/30"), "dev", "eth0"]);
        inside(&["link", "set", "lo", "up"]);
        inside(&["link", "set", "eth0", "up"]);
        inside(&["route", "add", "default", "via", OWN]);
        for address in CREDENTIALS {
            inside(&["address", "add", address, "dev", "eth0"]);
        }
        for address in CREDENTIALS.iter().chain(&[SILENT]) {
            run("ip", &["route", "add", address, "via", NEIGHBOUR]);
        }
        let rules = format!(
            "table ip {name} {{\nchain published {{\ntype nat hook prerouting priority dstnat\n\
             iifname \"{bridge}\" tcp dport {PUBLISHED} dnat to {NEIGHBOUR}\n}}\n}}\n"
        );
        let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        nft.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
        assert!(nft.wait().unwrap().success());
        neighbour
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = Command::new("nft").args(["delete", "table", "ip", &self.name]).status();
        // With the interface, the routes.
        let _ = Command::new("ip").args(["link", "delete", &self.name]).status();
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

/// Returns whether a machine gets an answer, also a refusal, from a port at an address.
fn reaches(world: &World, machine: &Instance, address: &str, port: u16) -> bool {
    let script = format!(
        "python3 -c 'import socket; socket.create_connection((\"{address}\", {port}), 2)' 2>&1 || true"
    );
    let said = world.ssh(machine, &script);
    said.is_empty() || said.contains("Connection refused")
}

/// Returns whether a machine can answer in place of a host that this machine has sent something to.
fn forges(world: &World, machine: &Instance) -> bool {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    socket.connect((SILENT, 5_353)).unwrap();
    socket.send(b"question").unwrap();
    let port = socket.local_addr().unwrap().port();
    world.ssh(
        machine,
        &format!(
            "sudo ip address replace {SILENT}/32 dev eth0; python3 -c 'import socket; \
             socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
             socket.bind((\"{SILENT}\", 5353)); socket.sendto(b\"forged\", (\"{OWN}\", {port}))'; \
             sudo ip address delete {SILENT}/32 dev eth0"
        ),
    );
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket.recv(&mut [0; 16]).is_ok_and(|length| length == b"forged".len())
}

/// Returns the link-local address of this machine on a bridge, as its nodes write it; `None` where
/// this machine has no IPv6.
fn link_local(bridge: &str) -> Option<String> {
    let show = ["-6", "-o", "address", "show", "dev", bridge];
    let addresses = Command::new("ip").args(show).output().unwrap().stdout;
    let addresses = String::from_utf8(addresses).unwrap();
    let address = addresses.split_whitespace().find(|word| word.starts_with("fe80:"))?;
    Some(format!("{}%eth0", address.split('/').next().unwrap()))
}

/// Returns whether this machine drops packets that come from where it would not answer to.
fn paths_are_checked(bridge: &str) -> bool {
    let value = |of: &str| {
        let file = format!("/proc/sys/net/ipv4/conf/{of}/rp_filter");
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    };
    value("all") == "1" || value(bridge) == "1"
}

/// C4: what the host's filter closes to a machine is closed, whatever root of the machine does. All
/// of it is open without the filter, and closed again, for all machines, when the next one boots.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_reaches_its_siblings_and_not_its_host_nor_machines_of_other_systems() {
    let (world, other) = (World::new(8).await, World::new(8).await);
    if !networks_are_own(&world) {
        world.end().await;
        return other.end().await;
    }
    let [one, two] =
        [boot(&world, &world.spec("one")).await, boot(&world, &world.spec("two")).await];
    let stranger = boot(&other, &other.spec("stranger")).await;
    let stranger = stranger.private_ip.unwrap();
    let [own, others] = [&world, &other].map(|world| bridge(world.directory.path()));
    let _neighbour = Neighbour::new(&own);
    let gateway = world.ssh(&one, "ip route show default | cut -d' ' -f3").trim().to_owned();
    // Whatever else the machine knows about the stranger's network.
    world.ssh(&one, &format!("sudo ip route replace {stranger}/32 via {gateway}"));
    let services = [TcpListener::bind(("0.0.0.0", 0)), TcpListener::bind(("::", 0))];
    let [of_host, of_host_6] = services
        .each_ref()
        .map(|service| service.as_ref().map_or(0, |service| service.local_addr().unwrap().port()));
    let link_local = link_local(&own);
    if link_local.is_none() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: nodes and IPv6: {own} has no address");
    }
    let forgery_passes = !paths_are_checked(&own);
    let probe = || {
        let [link, shared] = CREDENTIALS;
        let mut found = vec![
            ("a service of its host", reaches(&world, &one, &gateway, of_host)),
            ("a machine of another system", reaches(&world, &one, &stranger, 22)),
            ("credentials at a link-local address", reaches(&world, &one, link, 9)),
            ("credentials at a shared address", reaches(&world, &one, shared, 9)),
            ("what the host redirects", reaches(&world, &one, &gateway, PUBLISHED)),
        ];
        if let Some(address) = &link_local {
            found.push(("a service, by IPv6", reaches(&world, &one, address, of_host_6)));
        }
        if forgery_passes {
            found.push(("a forged answer", forges(&world, &one)));
        }
        found
    };
    let but = |expected: bool| -> Vec<_> {
        probe().into_iter().filter(|(_, is_open)| *is_open != expected).collect()
    };
    let none = Vec::<(&str, bool)>::new();
    let sibling = two.private_ip.as_ref().unwrap();
    assert!(reaches(&world, &one, sibling, 22) && reaches(&world, &one, NEIGHBOUR, 9));
    assert_eq!(but(false), none, "not closed");

    run("nft", &["flush", "table", "inet", &own]);
    run("nft", &["flush", "table", "inet", &others]);
    assert_eq!(but(true), none, "closed by something else than the filter");

    boot(&world, &world.spec("three")).await;
    boot(&other, &other.spec("three")).await;
    assert_eq!(but(false), none, "not closed again");
    assert!(reaches(&world, &one, sibling, 22) && reaches(&world, &one, NEIGHBOUR, 9));
    other.end().await;
    world.end().await;
}

/// C4: root of a machine changes settings of its own network, and none of the kernel's.
#[tokio::test(flavor = "multi_thread")]
async fn root_of_a_machine_does_not_change_its_host() {
    let world = World::new(8).await;
    if !networks_are_own(&world) {
        return world.end().await;
    }
    let one = boot(&world, &world.spec("one")).await;
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap().trim().to_owned()
    };
    let (panic, forward) = ("kernel/panic", "net/ipv4/ip_forward");
    let before = (read(panic), read(forward));
    assert_eq!(before.1, "1", "nodes need it");
    let value = if before.0 == "7" { "8" } else { "7" };
    let set = format!(
        "sudo mount -t proc proc /srv; sudo sh -c 'echo {value} >/srv/sys/{panic}; \
         echo 0 >/srv/sys/{forward}; cat /srv/sys/{forward}' 2>/dev/null"
    );
    assert_eq!(world.ssh(&one, &set).trim(), "0", "it has a network of its own");
    assert_eq!((read(panic), read(forward)), before, "the machine changed its host");
    world.end().await;
}
