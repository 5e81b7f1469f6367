//! What a machine has of its own: files, packages, ports, and images that are made from it; and
//! what is left of it at the end.

use crate::support::{
    World, call, driver, emulator, spec, start, target, until_checked, until_state,
};
use sluice_cloud::{CloudDriver, Instance, LaunchSpec, LoginKey, ssh};
use sluice_emulator::ec2::{Ec2Options, Isolation, end_left, prepare};
use sluice_keys::SshKeyPair;
use sluice_pool::{CheckFact, InstanceState};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The user without rights, and its ids in `/etc/subuid`, which a test makes up.
const UNPRIVILEGED: u32 = 65_534;
const UNPRIVILEGED_IDS: u32 = 1_946_157_056;

/// A port that the daemons of two machines use at once.
const PORT: u16 = 8_080;

/// Returns whether machines have networks of their own here, which takes root.
pub(crate) fn networks_are_own(world: &World) -> bool {
    let isolation = world.ec2.isolation();
    if !isolation.contains("and network") {
        // Past the capture of output, so that a run shows it.
        let _ = writeln!(std::io::stderr(), "SKIPPED: networks of local nodes: {isolation}");
        return false;
    }
    true
}

pub(crate) async fn boot(world: &World, spec: &LaunchSpec) -> Instance {
    let launched = world.driver.launch(spec).await.unwrap();
    let running = world.until(&launched.id, InstanceState::Running).await;
    let fact = world.check(&running).await;
    assert!(matches!(fact, CheckFact::Passed { .. }), "{fact:?}");
    running
}

/// Returns the answer of a web server at an address, from this machine; `None` without a server.
fn answer_of(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect((address, PORT)).ok()?;
    let mut answer = String::new();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Returns the command of a playbook on machines, logged in as `zuul`.
fn playbook(world: &World, machines: &[Instance], text: &str) -> Command {
    let at = |name: &str| world.directory.path().join(name);
    let hosts = machines.iter().map(|machine| {
        let (target, name) = (target(machine), &machine.id.0);
        format!("{name} ansible_host={} ansible_port={}\n", target.address, target.port)
    });
    std::fs::write(at("hosts"), hosts.collect::<String>()).unwrap();
    std::fs::write(at("playbook.yaml"), text).unwrap();
    std::fs::write(at("login"), world.pair.private().expose()).unwrap();
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(at("login"), mode).unwrap();
    let prefix = std::env::var_os("SLUICE_ANSIBLE_PREFIX")
        .map_or_else(|| "/opt/sluice/ansible".into(), PathBuf::from);
    let mut command = Command::new(prefix.join("11/bin/ansible-playbook"));
    command.args(["--user", "zuul", "--private-key"]).arg(at("login"));
    command.arg("--inventory").arg(at("hosts")).arg(at("playbook.yaml"));
    command.env("ANSIBLE_LOCAL_TEMP", at("ansible")).env("HOME", at("home"));
    command.env("ANSIBLE_HOST_KEY_CHECKING", "False").stdin(Stdio::null());
    command
}

/// Installs a package and starts a web server that shows its machine's name.
const PLAYBOOK: &str = r#"
- hosts: all
  gather_facts: false
  tasks:
    - name: Install a package
      become: true
      apt: {name: rolldice, update_cache: true, install_recommends: false}
    - name: Make a directory
      file: {path: served, state: directory}
    - name: Make a page
      copy: {dest: served/index.html, content: "page of {{ inventory_hostname }}"}
    - name: Start a daemon
      shell: nohup python3 -m http.server --directory served 8080 >/dev/null 2>&1 </dev/null &
    - name: See the page
      uri: {url: "http://localhost:8080", return_content: true}
      register: seen
      until: seen is success
      retries: 50
      delay: 0.2
      failed_when: seen.content != "page of " + inventory_hostname
"#;

/// C4, Z1.8: a playbook installs a package on two machines and starts a daemon on one port on both
/// at once; this machine has neither.
#[tokio::test(flavor = "multi_thread")]
async fn a_playbook_installs_a_package_and_starts_a_daemon_on_one_port_of_two_machines_at_once() {
    const PROGRAM: &str = "/usr/games/rolldice";
    let world = World::new(8).await;
    if !networks_are_own(&world) {
        return world.end().await;
    }
    let is_installed = || {
        let packages = std::fs::read_to_string("/var/lib/dpkg/status").unwrap();
        packages.contains("\nPackage: rolldice\n") || Path::new(PROGRAM).exists()
    };
    let was_installed = is_installed();
    let two = [boot(&world, &world.spec("one")).await, boot(&world, &world.spec("two")).await];
    let done = playbook(&world, &two, PLAYBOOK).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    for machine in &two {
        let answer = answer_of(machine.private_ip.as_ref().unwrap()).unwrap();
        assert!(answer.ends_with(&format!("page of {}", machine.id)), "{answer}");
        assert!(world.ssh(machine, &format!("{PROGRAM} 1d6")).trim().parse::<u8>().is_ok());
    }
    assert_eq!(is_installed(), was_installed, "it was installed on this machine");
    let of_host = answer_of("127.0.0.1").unwrap_or_default();
    assert!(!of_host.contains("page of i-"), "a daemon listens in the network of this machine");
    world.end().await;
}

/// C4: where this machine allows no machines of their own, nodes are sandboxes, and the system says
/// so and why.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_takes_the_place_of_a_machine_that_cannot_be_made_and_has_no_images() {
    let why = "mmdebstrap is missing".to_owned();
    let isolation = Isolation::Sandbox { why: why.clone() };
    let world = World::with(Ec2Options { isolation, ..Ec2Options::new("") }).await;
    let said = world.ec2.isolation();
    assert!(said.contains("READ THIS MACHINE'S FILES") && said.contains(&why), "{said}");
    let sandbox = boot(&world, &world.spec("one")).await;
    assert_eq!(world.ssh(&sandbox, "touch /usr/x || whoami; echo x >/tmp/x").trim(), "zuul");
    let create = [("Action", "CreateImage"), ("InstanceId", &sandbox.id.0), ("Name", "no")];
    let (status, answer) = call(&world.endpoint, &create).await;
    assert!(status == 400 && answer.contains(&why), "{answer}");
    world.driver.terminate(None, std::slice::from_ref(&sandbox.id)).await.unwrap();
    world.until(&sandbox.id, InstanceState::Terminated).await;
    assert!(!world.directory.path().join("ec2").join(&sandbox.id.0).exists());
    world.end().await;
}

/// L2.6: EC2 makes an image from an instance, and an instance from an image.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_written_into_an_image_is_seen_on_a_machine_that_boots_from_it() {
    let world = World::new(8).await;
    let first = boot(&world, &world.spec("one")).await;
    world.ssh(
        &first,
        "sudo sh -c 'mkdir -p /opt/tool && echo built >/opt/tool/mark && chown zuul /opt/tool/mark'; touch /tmp/x",
    );
    let create = [("Action", "CreateImage"), ("InstanceId", &first.id.0), ("Name", "built")];
    let (status, answer) = call(&world.endpoint, &create).await;
    assert_eq!(status, 200, "{answer}");
    let image = between(&answer, "<imageId>", "</imageId>");
    let (status, again) = call(&world.endpoint, &create).await;
    assert!(status == 400 && again.contains("InvalidAMIName.Duplicate"), "{again}");
    until_image(&world.endpoint, &image, "available").await;
    let of_first = world.check(&first).await;
    world.driver.terminate(None, std::slice::from_ref(&first.id)).await.unwrap();
    world.until(&first.id, InstanceState::Terminated).await;

    let second = LaunchSpec { image_id: image.clone(), ..world.spec("two") };
    let second = boot(&world, &second).await;
    let seen = world.ssh(&second, "cat /opt/tool/mark; stat -c %U /opt/tool/mark; ls /tmp; whoami");
    assert_eq!(seen, "built\nzuul\nzuul\n");
    assert_ne!(world.check(&second).await, of_first, "each machine has host keys of its own");

    let files = world.directory.path().join("ec2/images").join(&image);
    let gone = [("Action", "DeregisterImage"), ("ImageId", image.as_str())];
    let (status, answer) = call(&world.endpoint, &gone).await;
    assert_eq!(status, 200, "{answer}");
    assert!(files.exists(), "a machine still uses it");
    let third = LaunchSpec { image_id: image.clone(), ..world.spec("three") };
    assert!(world.driver.launch(&third).await.is_err(), "a deregistered image is launched");
    world.driver.terminate(None, std::slice::from_ref(&second.id)).await.unwrap();
    world.until(&second.id, InstanceState::Terminated).await;
    let end = Instant::now() + Duration::from_secs(60);
    while files.exists() {
        assert!(Instant::now() < end, "its files stay");
        tokio::task::yield_now().await;
    }
    let unknown = [("Action", "CreateImage"), ("InstanceId", "i-unknown"), ("Name", "no")];
    assert_eq!(call(&world.endpoint, &unknown).await.0, 400);
    world.end().await;
}

pub(crate) fn between(text: &str, start: &str, end: &str) -> String {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split_once(end).unwrap().0.to_owned()
}

pub(crate) async fn until_image(endpoint: &str, id: &str, state: &str) {
    let end = Instant::now() + Duration::from_secs(120);
    let describe = [("Action", "DescribeImages"), ("ImageId.1", id)];
    loop {
        let (_, answer) = call(endpoint, &describe).await;
        if answer.contains(&format!("<imageState>{state}</imageState>")) {
            return;
        }
        assert!(Instant::now() < end, "{answer}");
        tokio::task::yield_now().await;
    }
}

/// Returns the bridge of the machines below a directory, by its note; empty without one.
pub(crate) fn bridge(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("ec2/network"))
        .map(|number| format!("sluice-{number}"))
        .unwrap_or_default()
}

/// Returns what there is of a bridge with its name: interfaces and tables of rules.
fn traces(bridge: &str) -> Vec<String> {
    let names = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut traces: Vec<String> =
        names.filter(|name| name == bridge || name.starts_with(&format!("{bridge}-"))).collect();
    let tables = Command::new("nft").args(["list", "tables"]).output().unwrap();
    let tables = String::from_utf8(tables.stdout).unwrap();
    traces.extend(
        tables.lines().filter(|line| line.ends_with(&format!(" {bridge}"))).map(str::to_owned),
    );
    traces
}

fn until_gone(bridge: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    // The kernel removes interfaces some time after the last process of their network.
    while !traces(bridge).is_empty() {
        assert!(Instant::now() < end, "left: {:?}", traces(bridge));
        std::thread::yield_now();
    }
}

/// C4: a stop removes what was made on this machine; a start on the same directory brings the
/// machines back, with their files.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_leaves_nothing_on_the_host_and_a_start_brings_the_files_back() {
    let world = World::new(8).await;
    if !networks_are_own(&world) {
        return world.end().await;
    }
    let machine = boot(&world, &world.spec("one")).await;
    world.ssh(&machine, "sudo sh -c 'echo kept >/opt/mark; sync'");
    let bridge = bridge(world.directory.path());
    assert_eq!(traces(&bridge).len(), 3, "bridge, interface, rules: {:?}", traces(&bridge));
    assert_ne!(processes_in(world.directory.path()), Vec::<String>::new());
    world.server.abort();
    world.ec2.shut_down().await;
    until_gone(&bridge);
    let directory = world.directory.path().file_name().unwrap().to_string_lossy();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&*directory), "mounts are left");
    assert_eq!(processes_in(world.directory.path()), Vec::<String>::new());

    let (ec2, endpoint, server) = start(world.directory.path(), Ec2Options::new("")).await;
    let again = until_state(&driver(&endpoint, "hush"), &machine.id, InstanceState::Running).await;
    assert_eq!(again.private_ip, machine.private_ip);
    assert!(matches!(world.check(&again).await, CheckFact::Passed { .. }));
    assert_eq!(world.ssh(&again, "cat /opt/mark").trim(), "kept");
    server.abort();
    ec2.shut_down().await;
}

/// Returns the processes that run in, or were started with, a directory whose last name is unique.
/// In other namespaces its path is another one.
fn processes_in(directory: &Path) -> Vec<String> {
    let name = directory.file_name().unwrap().to_string_lossy();
    let entries = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    entries
        .filter_map(|process| {
            let cwd = std::fs::read_link(process.join("cwd")).ok()?;
            let text = std::fs::read_to_string(process.join("cmdline")).ok()?;
            let is_in = cwd.to_string_lossy().contains(&*name) || text.contains(&*name);
            is_in.then_some(text)
        })
        .collect()
}

/// C4: what a killed emulator left is removed by its own note, and nothing of another one.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_emulator_left_is_removed_and_nothing_of_another() {
    let other = World::new(8).await;
    if !networks_are_own(&other) {
        return other.end().await;
    }
    let stays = boot(&other, &other.spec("stays")).await;
    let directory = tempfile::tempdir().unwrap();
    let pair = SshKeyPair::generate("test").unwrap();
    let key = LoginKey::from_openssh(pair.private().expose_text().unwrap()).unwrap();
    let mut killed = emulator(directory.path());
    let launched = driver(&killed.endpoint, "hush").launch(&spec("one", pair.public_line())).await;
    let id = launched.unwrap().id;
    let running = until_state(&driver(&killed.endpoint, "hush"), &id, InstanceState::Running).await;
    assert!(matches!(until_checked(&running, &key).await, CheckFact::Passed { .. }));
    killed.kill();
    let bridge = bridge(directory.path());
    assert!(traces(&bridge).len() == 3, "{:?}", traces(&bridge));
    end_left(&directory.path().join("ec2"));
    until_gone(&bridge);
    assert!(ssh::scan_host_keys(&target(&running), Duration::from_secs(2)).await.is_err());
    assert!(matches!(other.check(&stays).await, CheckFact::Passed { .. }));
    other.end().await;
}

/// C4: nothing is left for ever of an emulator that was killed and whose directory was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_ends_machines_and_networks_of_a_killed_emulator_whose_directory_is_gone() {
    let root = World::new(8).await;
    if !networks_are_own(&root) {
        return root.end().await;
    }
    root.end().await;
    let directory = tempfile::tempdir().unwrap();
    let pair = SshKeyPair::generate("test").unwrap();
    let key = LoginKey::from_openssh(pair.private().expose_text().unwrap()).unwrap();
    let mut killed = emulator(directory.path());
    let of_killed = driver(&killed.endpoint, "hush");
    let id = of_killed.launch(&spec("one", pair.public_line())).await.unwrap().id;
    let running = until_state(&of_killed, &id, InstanceState::Running).await;
    assert!(matches!(until_checked(&running, &key).await, CheckFact::Passed { .. }));
    killed.kill();
    let (place, bridge) = (directory.path(), bridge(directory.path()));
    assert_ne!(processes_in(place), Vec::<String>::new());
    std::fs::remove_dir_all(place).unwrap();

    let next = World::new(8).await;
    // The network is opened when it is needed first.
    next.ec2.isolation();
    let end = Instant::now() + Duration::from_secs(10);
    while !processes_in(place).is_empty() {
        assert!(Instant::now() < end, "left: {:?}", processes_in(place));
        std::thread::yield_now();
    }
    until_gone(&bridge);
    next.end().await;
}

/// Returns a command that runs a program, to be added, as a user without rights who owns `state`
/// and has ids for machines. Its image is a copy of this user's, since making one takes a minute.
pub(crate) fn unprivileged(directory: &Path, state: &Path) -> Command {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ids = directory.join("ids");
    std::fs::write(&ids, format!("{UNPRIVILEGED}:{UNPRIVILEGED_IDS}:65536\n")).unwrap();
    let cache = directory.join("cache");
    let images = cache.join("sluice/node-images");
    std::fs::create_dir_all(&images).unwrap();
    let options = Ec2Options::new("");
    prepare(&options, &|line| eprintln!("{line}")).unwrap();
    let own = std::fs::read_dir(&options.image_cache).unwrap().flatten();
    let mut own = own.map(|entry| entry.path()).filter(|path| path.join("root").is_dir());
    let own = own.find(|path| path.extension().is_none()).unwrap();
    let copy = images.join(own.file_name().unwrap());
    std::fs::create_dir_all(copy.join("root")).unwrap();
    for path in [state, &cache, &cache.join("sluice"), &images, &copy, &copy.join("root")] {
        chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    }
    let as_user = |program: &[&str]| {
        const WITH_IDS: &str =
            "mount --bind \"$0\" /etc/subuid && mount --bind \"$0\" /etc/subgid && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "/bin/sh", "-c", WITH_IDS]).arg(&ids);
        let user = UNPRIVILEGED.to_string();
        command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
        command.args(program);
        command
    };
    let mut pack = Command::new("unshare");
    pack.args(["--user", "--map-auto", "--setuid", "0", "--setgid", "0", "--", "tar", "--create"]);
    pack.args(["--numeric-owner", "--file=-", "."]).current_dir(own.join("root"));
    let mut pack = pack.stdout(Stdio::piped()).spawn().unwrap();
    let mut unpack = as_user(&["unshare", "--user", "--map-auto", "--map-root-user", "--", "tar"]);
    unpack.args(["--extract", "--numeric-owner", "--file=-", "--directory"]).arg(copy.join("root"));
    assert!(unpack.stdin(pack.stdout.take().unwrap()).status().unwrap().success());
    assert!(pack.wait().unwrap().success());
    let mut command = as_user(&["env"]);
    command.arg(format!("XDG_CACHE_HOME={}", cache.display()));
    command
}
