//! A node: a machine of its own on this one, with an SSH server.
//!
//! It has its own file system, users, processes and name, and its own network where this machine
//! allows that ([`network`](super::network)). Its root is no user of this machine
//! ([`rights`](super::rights)). Where this machine allows none of that, it is a
//! [`sandbox`](super::sandbox). All of that is namespaces, mounts included, which end with the
//! node's first process. That process leads a process group and its own process namespace, so
//! everything started in the node ends with it. It survives a killed emulator: a note written
//! before the process starts identifies it for the next emulator.

use super::image::{self, NodeFiles};
use super::network::{self, Network};
use super::parameters::Refusal;
use super::process::{self, NOTE, living, write_whole};
use super::rights::{NetworkNamespace, NodeError, Rights};
use super::server::{host_keys, sshd_config};
use super::store::Record;
use super::user_data::{self, Setup};
use super::{Ec2Options, Isolation, sandbox};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of addresses that are tried with one port. If it is in use on all of these, it is
/// probably in use everywhere.
const ADDRESSES_MAX: usize = 300;
/// SSH ports of nodes in this machine's network that are tried after the one that was asked for:
/// any user may listen there.
const OTHER_PORTS: std::ops::Range<u16> = 2_200..2_210;
/// The first port at which root of a node may listen in this machine's network.
const FIRST_PORT: u16 = 1_024;
/// How long a server may take until it answers.
const BOOT_LIMIT: Duration = Duration::from_secs(10);
/// How long a killed process may take until it is gone.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Puts a node together and runs its program.
const BEGIN: &str = include_str!("scripts/begin.sh");
/// What a node does at its first boot.
const FIRST_BOOT: &str = include_str!("scripts/first-boot.sh");
/// The addresses of name servers, and where a machine whose own name server listens on loopback
/// keeps those that it asks.
const RESOLVERS: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// All machines of one emulator.
#[derive(Clone)]
pub struct Host {
    directory: PathBuf,
    // Set at shut-down, so that a start that is under way cannot leave a server behind.
    closed: Arc<AtomicBool>,
    options: Arc<Ec2Options>,
    machines: Arc<Mutex<HashMap<String, Slot>>>,
    // What this machine allows, found at the first use.
    form: Arc<Mutex<Option<Form>>>,
    files: Arc<Mutex<Option<NodeFiles>>>,
    network: Arc<Mutex<Option<Network>>>,
}

/// What new nodes are.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// Machines of their own, made with these rights.
    Machines(Rights),
    /// Sandboxes over this machine's files.
    Sandboxes {
        /// The reason, as a text for people.
        why: String,
    },
}

/// What one node is made from.
enum Ground {
    /// It is a machine with this image.
    Image(PathBuf),
    /// It is a sandbox.
    HostFiles,
}

/// A machine's server while it runs. A lock per machine: start and end of one never overlap.
type Slot = Arc<Mutex<Option<Child>>>;

impl Host {
    /// Creates the machines below the options' directory, which should exist. Nothing is read or
    /// started.
    pub(super) fn new(options: &Ec2Options) -> Self {
        let directory = &options.directory;
        Self {
            directory: directory.canonicalize().unwrap_or_else(|_| directory.clone()),
            options: Arc::new(options.clone()),
            closed: Arc::default(),
            machines: Arc::default(),
            form: Arc::default(),
            files: Arc::default(),
            network: Arc::default(),
        }
    }

    /// Returns what new nodes are, which is found once.
    pub(super) fn form(&self) -> Form {
        let mut form = self.form.lock().unwrap_or_else(PoisonError::into_inner);
        form.get_or_insert_with(|| {
            let found = match &self.options.isolation {
                Isolation::Sandbox { why } => Err(why.clone()),
                Isolation::Full | Isolation::SharedNetwork => {
                    image::rights_to_boot(&self.options).map_err(|error| error.to_string())
                }
            };
            match found {
                Ok(rights) => Form::Machines(rights),
                Err(why) => {
                    tracing::info!(%why, "local nodes are sandboxes over this machine's files");
                    Form::Sandboxes { why }
                }
            }
        })
        .clone()
    }

    /// Returns the rights of this process over nodes. An error if nodes are sandboxes here.
    pub(super) fn rights(&self) -> Result<Rights, NodeError> {
        match self.form() {
            Form::Machines(rights) => Ok(rights),
            Form::Sandboxes { why } => Err(NodeError::OnlySandboxes { why }),
        }
    }

    /// Returns the network of the nodes, which is opened at the first call.
    pub(super) fn network(&self) -> Network {
        let mut network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        network
            .get_or_insert_with(|| {
                let opened = match (&self.options.isolation, self.form()) {
                    (Isolation::Full, Form::Machines(_)) => Network::open(&self.directory),
                    (_, Form::Sandboxes { why }) => Network::Shared { why },
                    _ => Network::Shared { why: "the system was started so".to_owned() },
                };
                if let Network::Shared { why } = &opened {
                    tracing::info!(%why, "local nodes share this machine's network");
                }
                opened
            })
            .clone()
    }

    /// Returns how nodes get their files, which is tried once.
    pub(super) fn files(&self) -> io::Result<NodeFiles> {
        let rights = self.rights().map_err(io::Error::other)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = *files {
            return Ok(files);
        }
        let found = image::files_in(&rights, &self.directory)?;
        *files = Some(found);
        Ok(found)
    }

    /// Returns an address for a node that is not in `taken`, and its SSH port, which is `first`
    /// where that can be had. An error if there is none.
    ///
    /// In this machine's network these are an address of 127/8 and a port that were free just now;
    /// nothing reserves them. The port is another one, 2200 to 2209, if it takes rights that root
    /// of a node does not have there, or a server of this machine holds it on all 300 addresses
    /// that are tried. The search starts at an address derived from the data directory.
    pub(super) fn free_address(&self, first: u16, taken: &[String]) -> io::Result<SocketAddrV4> {
        if let Network::Own(bridge) = self.network() {
            let address = bridge.free_address(taken);
            return address
                .map(|address| SocketAddrV4::new(address, first))
                .ok_or_else(|| io::Error::from(ErrorKind::AddrNotAvailable));
        }
        let digest = sluice_model::id::digest(&[&self.directory.to_string_lossy()]);
        let part = |at: usize| {
            digest.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(1)
        };
        // 127.16 to 127.239, away from the addresses that people use.
        let (second, third) = (16 + part(0) % 224, part(2));
        let addresses = || {
            (0..=255_u8)
                .flat_map(|more| {
                    (1..=254_u8)
                        .map(move |last| Ipv4Addr::new(127, second, third.wrapping_add(more), last))
                })
                .filter(|address| !taken.contains(&address.to_string()))
        };
        let mut why = io::Error::from(ErrorKind::AddrNotAvailable);
        let ports = std::iter::once(first).filter(|port| *port >= FIRST_PORT).chain(OTHER_PORTS);
        for port in ports {
            for address in addresses().take(ADDRESSES_MAX) {
                match TcpListener::bind((address, port)) {
                    Ok(_) => return Ok(SocketAddrV4::new(address, port)),
                    Err(error) => why = error,
                }
            }
        }
        Err(why)
    }

    /// Starts a machine and waits until its server accepts connections, at most ten seconds; no
    /// error if it does not by then. If the machine's files are missing, creates them first from
    /// its image, whose directory `image` returns, and boots it for the first time, which may take
    /// 300 seconds with a script in its user data. Does nothing if the machine runs already,
    /// `wanted` returns false under the machine's lock, or [`Host::end_all`] was called. An error
    /// if the files cannot be created, or the server ends while it starts.
    pub(super) fn start(
        &self,
        record: &Record,
        image: impl Fn() -> io::Result<PathBuf>,
        wanted: impl Fn() -> bool,
    ) -> io::Result<()> {
        let machine = self.machine(&record.id);
        let mut child = machine.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = self.directory.join(&record.id);
        let is_installed = directory.join("ready").exists();
        if self.closed.load(Ordering::SeqCst)
            || !wanted()
            || (is_installed && outlived(&directory, record))
        {
            return Ok(());
        }
        let is_sandbox = match is_installed {
            true => !directory.join(image::MOUNT_POINT).exists(),
            false => matches!(self.form(), Form::Sandboxes { .. }),
        };
        let ground = if is_sandbox { Ground::HostFiles } else { Ground::Image(image()?) };
        // The first boot, if an earlier emulator died while it ran: it would change the files that
        // are created again. Or what outlived the process that led it.
        end_processes(&directory, None)?;
        if !is_installed {
            self.install(&directory, record, &ground)?;
        }
        *child = Some(self.sshd(&directory, record, &ground)?);
        Ok(())
    }

    /// Ends the processes of a machine and deletes its files; no error if there are none. A process
    /// that this emulator started is waited for without a limit. An error, with the files kept, if
    /// one of an earlier emulator is still there after five seconds.
    pub(super) fn end(&self, id: &str) -> io::Result<()> {
        self.stop(id)?;
        self.remove(&self.directory.join(id))
    }

    /// Deletes a directory with files of nodes; a missing one is no error.
    pub(super) fn remove(&self, directory: &Path) -> io::Result<()> {
        match self.form() {
            Form::Machines(rights) => rights.remove(directory),
            // Sandboxes write as this user.
            Form::Sandboxes { .. } => match fs::remove_dir_all(directory) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }

    /// Copies the files of a running machine into a new directory, as an image. An error if the
    /// machine does not run, or its files cannot be copied; nothing is left then.
    pub(super) fn capture(&self, id: &str, image: &Path) -> io::Result<()> {
        let rights = self.rights().map_err(io::Error::other)?;
        let first = living(&self.directory.join(id)).and_then(process::first_inside);
        let first = first.ok_or_else(|| io::Error::other("the node does not run"))?;
        image::capture(&rights, first, image)
    }

    /// Ends the processes of all machines and waits until they have ended. This includes those that
    /// an earlier emulator started here, for each of which it waits at most five seconds. Then
    /// removes their network. Files stay, and no machine starts any more. A process that stays is
    /// only logged.
    pub(super) fn end_all(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let left = entries.filter(|entry| entry.path().join(NOTE).exists());
        let mut ids: BTreeSet<String> =
            left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        ids.extend(self.machines.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned());
        for id in ids {
            if let Err(error) = self.stop(&id) {
                tracing::warn!(instance = id, %error, "a machine does not end");
            }
        }
        let mut network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        *network = None;
        network::close(&self.directory);
    }

    /// Ends the processes of a machine and waits for that; its files stay. An error if one is still
    /// there after five seconds.
    fn stop(&self, id: &str) -> io::Result<()> {
        let machine = self.machine(id);
        let mut child = machine.lock().unwrap_or_else(PoisonError::into_inner);
        end_processes(&self.directory.join(id), child.take())
    }

    /// Returns the lock of a machine with its server, which is held while it starts or ends;
    /// creates a missing one without a server.
    fn machine(&self, id: &str) -> Arc<Mutex<Option<Child>>> {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(machines.entry(id.to_owned()).or_default())
    }

    /// Starts the SSH server of a machine, whose files must be complete, and waits until it
    /// listens, at most ten seconds. An error if it ends meanwhile; none if it does not listen in
    /// time. Its output is added to `sshd.log`.
    fn sshd(&self, directory: &Path, record: &Record, ground: &Ground) -> io::Result<Child> {
        let log =
            fs::OpenOptions::new().create(true).append(true).open(directory.join("sshd.log"))?;
        let server = ["/usr/sbin/sshd", "-D", "-e", "-f", "/run/instance/sshd_config"];
        let mut child = self.begin(directory, record, ground, &server, log)?;
        let mut ended = false;
        // Until it listens, so that a start that returned is one that answers.
        wait_until(BOOT_LIMIT, || {
            ended = child.try_wait().ok().flatten().is_some();
            ended || answers(record)
        });
        if ended {
            return Err(io::Error::other(format!(
                "the node's SSH server ended at once; see {}",
                directory.join("sshd.log").display()
            )));
        }
        Ok(child)
    }

    /// Creates the machine's files and boots it for the first time; first deletes all that is in
    /// `directory`. The last file, `ready`, marks the files as complete. No process of the machine
    /// may run.
    fn install(&self, directory: &Path, record: &Record, ground: &Ground) -> io::Result<()> {
        self.remove(directory)?;
        let setup = user_data::read(&record.user_data);
        let instance = directory.join("instance");
        fs::create_dir_all(&instance)?;
        match ground {
            Ground::HostFiles => sandbox::install(directory, record, &setup)?,
            Ground::Image(image) => {
                let rights = self.rights().map_err(io::Error::other)?;
                // For root of the node, which is no user of this machine and begins in here.
                fs::set_permissions(directory, fs::Permissions::from_mode(0o711))?;
                image::place(&rights, self.files()?, image, directory)?;
                describe(&rights, &instance, record, &setup)?;
            }
        }
        self.first_boot(directory, record, ground, &setup)?;
        write_whole(&directory.join("ready"), "")
    }

    /// Boots a machine for the first time and waits for that: it gets its logins, and root runs the
    /// user data's script, at most 300 seconds. The output is in `first-boot.log`. As with
    /// cloud-init, a script that fails or takes too long does not prevent the boot; it is named in
    /// the output. An error if the logins cannot be made.
    fn first_boot(
        &self,
        directory: &Path,
        record: &Record,
        ground: &Ground,
        setup: &Setup,
    ) -> io::Result<()> {
        const SCRIPT: [&str; 4] = ["timeout", "300", "/bin/sh", "/run/instance/user-data"];
        let path = directory.join("first-boot.log");
        let log = fs::File::create(&path)?;
        let mut program = vec!["/bin/sh", "/run/instance/first-boot", &record.id, &record.address];
        match ground {
            Ground::Image(_) => program.extend(setup.keys.keys().map(String::as_str)),
            // It has its logins.
            Ground::HostFiles if setup.script.is_none() => return Ok(()),
            Ground::HostFiles => program = SCRIPT.to_vec(),
        }
        let status = self.begin(directory, record, ground, &program, log)?.wait()?;
        match (status.success(), ground) {
            (true, _) => Ok(()),
            (false, Ground::HostFiles) => {
                tracing::warn!(instance = record.id, %status, "the user data's script failed");
                Ok(())
            }
            (false, Ground::Image(_)) => Err(io::Error::other(format!(
                "the first boot ended with {status}; see {}",
                path.display()
            ))),
        }
    }

    /// Starts a program as the first process of a machine, whose files exist, and attaches the
    /// machine to its network. The process is noted in `directory` before it starts.
    fn begin(
        &self,
        directory: &Path,
        record: &Record,
        ground: &Ground,
        program: &[&str],
        log: fs::File,
    ) -> io::Result<Child> {
        let Ground::Image(image) = ground else {
            let mut command = sandbox::command(&self.directory, directory, &record.id);
            command.args(program);
            return process::start(&command, directory, log.try_clone()?, log, |_| Ok(()));
        };
        let rights = self.rights().map_err(io::Error::other)?;
        let network = self.network();
        let address: Ipv4Addr = record.address.parse().map_err(io::Error::other)?;
        let (namespace, own, gateway) = match &network {
            Network::Shared { .. } => (NetworkNamespace::Shared, String::new(), String::new()),
            Network::Own(bridge) => {
                (NetworkNamespace::Own, format!("{address}/24"), bridge.gateway().to_string())
            }
        };
        fs::write(directory.join("resolv.conf"), resolver(&network))?;
        fs::set_permissions(directory.join("resolv.conf"), fs::Permissions::from_mode(0o644))?;
        let files = if directory.join("upper").exists() { "overlay" } else { "copy" };
        let mut command = rights.node(image, namespace);
        command.args([BEGIN, "begin.sh", &record.id, files, &own, &gateway]).args(program);
        process::start(&command, directory, log.try_clone()?, log, |process| {
            process::note_first(process, directory)?;
            match &network {
                Network::Shared { .. } => Ok(()),
                Network::Own(bridge) => bridge.attach(address, process),
            }
        })
    }
}

/// Returns the text of a node's `resolv.conf`: this machine's own. For nodes with a network of
/// their own it is the one without an address of this machine's loopback, if there is one.
fn resolver(network: &Network) -> String {
    let texts = RESOLVERS.map(|file| fs::read_to_string(file).unwrap_or_default());
    let is_loopback = |text: &String| {
        text.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("nameserver")
                && words.next().is_some_and(|address| address.starts_with("127."))
        })
    };
    let [own, behind] = texts;
    match network {
        Network::Own(_) if is_loopback(&own) && !behind.is_empty() => behind,
        _ => own,
    }
}

/// Writes what a machine sees at `/run/instance`: its host keys, the keys of its logins, the
/// configuration of its SSH server, and what it does at its first boot. They belong to root of the
/// nodes.
fn describe(rights: &Rights, instance: &Path, record: &Record, setup: &Setup) -> io::Result<()> {
    fs::set_permissions(instance, fs::Permissions::from_mode(0o755))?;
    host_keys(instance)?;
    let keys = instance.join("keys");
    fs::create_dir(&keys)?;
    for (login, lines) in &setup.keys {
        fs::write(keys.join(login), lines.join("\n") + "\n")?;
    }
    fs::write(instance.join("sshd_config"), sshd_config(record))?;
    fs::write(instance.join("first-boot"), FIRST_BOOT)?;
    if let Some(script) = &setup.script {
        fs::write(instance.join("user-data"), script)?;
    }
    let (files, logins) = (fs::read_dir(instance)?, fs::read_dir(&keys)?);
    for entry in files.chain(logins) {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mode = match &*name {
            _ if path.is_dir() => 0o755,
            "host_ed25519" | "host_ecdsa" | "user-data" => 0o600,
            _ => 0o644,
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        rights.give(&path)?;
    }
    Ok(())
}

/// Kills the machine's processes, `started` or those that the process file names, and waits until
/// they are gone; then deletes the process file. It is an error if the first process of the
/// machine's namespace, or without `started` the process that the file names, is still there after
/// five seconds; the file stays then. Nothing to kill is no error.
fn end_processes(directory: &Path, started: Option<Child>) -> io::Result<()> {
    // A child keeps its process id until it is waited for, even if its note is gone.
    let leader = started.as_ref().map(Child::id).or_else(|| living(directory));
    let first = process::kill_machine(leader, directory);
    match started {
        Some(mut started) => drop(started.wait()),
        None => wait_until(END_LIMIT, || living(directory).is_none()),
    }
    let stays = |process: u32| {
        Err(io::Error::other(format!(
            "process {process} was killed and is still there after {END_LIMIT:?}"
        )))
    };
    if let Some(first) = first {
        wait_until(END_LIMIT, || !first.lives());
        if first.lives() {
            return stays(first.id());
        }
    }
    if let Some(leader) = living(directory) {
        return stays(leader);
    }
    process::forget(directory);
    Ok(())
}

/// Returns whether the process that is noted for the machine still runs, as one that an earlier
/// emulator started may. Waits up to ten seconds, until it has ended or answers: a process that had
/// no permission to begin before that emulator died ends by itself.
fn outlived(directory: &Path, record: &Record) -> bool {
    wait_until(BOOT_LIMIT, || living(directory).is_none() || answers(record));
    living(directory).is_some()
}

/// Returns whether the machine's address and port accept connections now.
fn answers(record: &Record) -> bool {
    TcpStream::connect((record.address.as_str(), record.port)).is_ok()
}

/// Calls `done` every 10 ms until it returns true, or until the time `within` has passed. Does not
/// say which of the two it was.
fn wait_until(within: Duration, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + within;
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns `bytes` random bytes in hexadecimal, twice as many digits, for ids that must be unique.
pub(super) fn random_hex(bytes: usize) -> Result<String, Refusal> {
    let mut buffer = vec![0; bytes];
    aws_lc_rs::rand::fill(&mut buffer)
        .map_err(|_| Refusal::new(500, "InternalError", "there is no randomness for an id"))?;
    Ok(hex::encode(buffer))
}

#[cfg(test)]
mod tests {
    use super::super::store::State;
    use super::super::{Boot, end_left};
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    const ID: &str = "i-one";

    /// Starts something that stands for a machine's server, in the machine's directory.
    fn server(directory: &Path) -> Child {
        let at = directory.join(ID);
        fs::create_dir(&at).unwrap();
        let mut program = Command::new("sleep");
        program.arg("60");
        process::start(&program, &at, Stdio::null(), Stdio::null(), |_| Ok(())).unwrap()
    }

    /// C4
    #[test]
    fn what_a_killed_emulator_left_is_ended_by_its_note() {
        let directory = tempfile::tempdir().unwrap();
        let mut left = server(directory.path());
        end_left(directory.path());
        assert_eq!(left.wait().unwrap().signal(), Some(9));
        assert!(!directory.path().join(ID).join(NOTE).exists());
    }

    /// C4
    #[test]
    fn a_machine_whose_note_is_gone_is_ended_by_the_emulator_that_started_it() {
        let directory = tempfile::tempdir().unwrap();
        let host = host(directory.path());
        let started = server(directory.path());
        let proc = format!("/proc/{}", started.id());
        *host.machine(ID).lock().unwrap() = Some(started);
        fs::remove_file(directory.path().join(ID).join(NOTE)).unwrap();
        host.end(ID).unwrap();
        assert!(!Path::new(&proc).exists(), "it runs on");
        assert!(!directory.path().join(ID).exists());
    }

    /// C4
    #[test]
    fn nothing_is_started_once_everything_was_ended() {
        let directory = tempfile::tempdir().unwrap();
        let host = host(directory.path());
        host.end_all();
        host.start(&record(), || Ok(PathBuf::new()), || true).unwrap();
        assert!(!directory.path().join(ID).exists(), "not even its files are made");
    }

    fn host(directory: &Path) -> Host {
        Host::new(&Ec2Options { isolation: Isolation::SharedNetwork, ..Ec2Options::new(directory) })
    }

    fn record() -> Record {
        Record {
            number: 1,
            id: ID.to_owned(),
            reservation: "r-one".to_owned(),
            region: "us-east-1".to_owned(),
            token: None,
            fingerprint: String::new(),
            state: State::Running,
            image: "ami-debian12".to_owned(),
            kind: "t3.medium".to_owned(),
            az: "us-east-1a".to_owned(),
            address: "127.0.0.1".to_owned(),
            port: 1,
            boot: Boot::Normal,
            user_data: Vec::new(),
            tags: BTreeMap::new(),
            launched_ms: 0,
            ended_ms: None,
        }
    }
}
