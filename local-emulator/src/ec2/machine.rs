//! A machine: an SSH server on a loopback address of its own, in its own view of the file system
//! (bubblewrap).
//!
//! It sees this machine's files read-only and its own `/home`, `/root`, `/tmp`, `/var/tmp`, `/run`,
//! processes and logins. The server leads a process group and its own process namespace, so
//! everything started in it ends with it. It survives a killed emulator: a note written before the
//! process starts identifies it for the next emulator.

use super::parameters::Refusal;
use super::process::{self, NOTE, living, write_whole};
use super::store::Record;
use super::user_data::{self, Setup};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The first user id of a machine's own logins.
const FIRST_UID: u32 = 2_000;
/// The number of addresses that are tried with one port. If it is in use on all of these, it is
/// probably in use everywhere.
const ADDRESSES_MAX: usize = 300;
/// SSH ports that are tried after the one that was asked for: any user may listen there.
const OTHER_PORTS: std::ops::Range<u16> = 2_200..2_210;
/// How long a server may take until it answers.
const BOOT_LIMIT: Duration = Duration::from_secs(10);
/// How long a killed process may take until it is gone.
const END_LIMIT: Duration = Duration::from_secs(5);
/// What root keeps inside: enough for sshd and file owners, nothing that reaches the machine around
/// it.
const CAPABILITIES: [&str; 9] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_AUDIT_WRITE",
];

/// All machines of one emulator.
#[derive(Clone)]
pub struct Host {
    directory: PathBuf,
    // Set at shut-down, so that a start that is under way cannot leave a server behind.
    closed: Arc<AtomicBool>,
    machines: Arc<Mutex<HashMap<String, Slot>>>,
}

/// A machine's server while it runs. A lock per machine: start and end of one never overlap.
type Slot = Arc<Mutex<Option<Child>>>;

impl Host {
    /// Creates the machines below a directory, which should exist. Nothing is read or started.
    pub(super) fn new(directory: PathBuf) -> Self {
        // Bubblewrap wants absolute paths.
        let directory = directory.canonicalize().unwrap_or(directory);
        Self { directory, closed: Arc::default(), machines: Arc::default() }
    }

    /// Returns an address of 127/8 that is not in `taken`, and a port that was free on it just now;
    /// nothing reserves it. The port is `first`, or one of 2200 to 2209 if `first` is free on none
    /// of the 300 addresses that are tried. The search starts at an address derived from the data
    /// directory. An error if no port is free.
    ///
    /// The port is `first` where that can be had. It is another one when a server of this machine
    /// holds it on every address, as an sshd on `0.0.0.0:22` does, or when it takes rights that
    /// this process does not have.
    pub(super) fn free_address(&self, first: u16, taken: &[String]) -> io::Result<SocketAddrV4> {
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
        for port in std::iter::once(first).chain(OTHER_PORTS) {
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
    /// error if it does not by then. If the machine's files are missing, creates them first and
    /// runs the user data's script, which may take 300 seconds. Does nothing if the machine runs
    /// already, `wanted` returns false under the machine's lock, or [`Host::end_all`] was called.
    /// An error if the files cannot be created, or the server ends while it starts.
    pub(super) fn start(&self, record: &Record, wanted: impl Fn() -> bool) -> io::Result<()> {
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
        if !is_installed {
            // The user data script, if an earlier emulator died while it ran: it would change the
            // files that are created again.
            end_processes(&directory, None)?;
            install(&directory, record)?;
        }
        *child = Some(self.sshd(&directory, record)?);
        Ok(())
    }

    /// Ends the processes of a machine and deletes its files; no error if there are none. A process
    /// that this emulator started is waited for without a limit. An error, with the files kept, if
    /// one of an earlier emulator is still there after five seconds.
    pub(super) fn end(&self, id: &str) -> io::Result<()> {
        self.stop(id)?;
        match fs::remove_dir_all(self.directory.join(id)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the processes of all machines and waits until they have ended. This includes those that
    /// an earlier emulator started here, for each of which it waits at most five seconds. Files
    /// stay, and no machine starts any more. A process that stays is only logged.
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
    fn sshd(&self, directory: &Path, record: &Record) -> io::Result<Child> {
        let log =
            fs::OpenOptions::new().create(true).append(true).open(directory.join("sshd.log"))?;
        let mut command = self.view(directory, &record.id);
        command.args(["--", "/usr/sbin/sshd", "-D", "-e", "-f", "/run/instance/sshd_config"]);
        let mut child = process::start(&command, directory, Stdio::null(), log)?;
        let mut ended = false;
        // Until it listens, so that a start that returned is one that answers.
        wait_until(BOOT_LIMIT, || {
            ended = child.try_wait().ok().flatten().is_some();
            ended || answers(record)
        });
        if ended {
            return Err(io::Error::other(format!(
                "bwrap or sshd ended at once; see {}",
                directory.join("sshd.log").display()
            )));
        }
        Ok(child)
    }

    /// Returns a bubblewrap command to which the program is to be added. The program sees the files
    /// of the emulator's host read-only, except `/home`, `/root`, `/tmp`, `/var/tmp`, `/run` and
    /// the logins, which are those of the machine in `directory`. Other machines' files, and all
    /// processes outside, are hidden. The environment has only a `PATH`; `id` becomes the host
    /// name. The caller has created the machine's files, and makes `directory` absolute.
    fn view(&self, directory: &Path, id: &str) -> Command {
        let inside = |name: &str| directory.join(name).to_string_lossy().into_owned();
        let mut command = Command::new("bwrap");
        command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
        for (name, at) in
            [("home", "/home"), ("root", "/root"), ("tmp", "/tmp"), ("var-tmp", "/var/tmp")]
        {
            command.args(["--bind", &inside(name), at]);
        }
        command.args([
            "--tmpfs",
            "/run",
            "--dir",
            "/run/sshd",
            "--ro-bind",
            &inside("instance"),
            "/run/instance",
        ]);
        for name in ["passwd", "group", "shadow"] {
            command.args([
                "--ro-bind",
                &inside(&format!("instance/{name}")),
                &format!("/etc/{name}"),
            ]);
        }
        let hidden = ["/home", "/root", "/tmp", "/var/tmp", "/run"]
            .iter()
            .any(|path| self.directory.starts_with(path));
        if !hidden {
            // Other machines' keys and files lie there.
            command.args(["--tmpfs", &self.directory.to_string_lossy()]);
        }
        command.args([
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--hostname",
            id,
            "--chdir",
            "/",
            "--clearenv",
        ]);
        command.args([
            "--setenv",
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ]);
        if is_root() {
            command.args(["--cap-drop", "ALL"]);
            for capability in CAPABILITIES {
                command.args(["--cap-add", capability]);
            }
        }
        command
    }
}

/// Creates the machine's files (host keys, logins, configuration) and runs the user data's script,
/// if there is one; first deletes all that is in `directory`. The last file, `ready`, marks the
/// files as complete. A script that fails is no error. No process of the machine may run.
fn install(directory: &Path, record: &Record) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let setup = user_data::read(&record.user_data);
    let instance = directory.join("instance");
    for name in ["home", "root", "tmp", "var-tmp", "instance/keys"] {
        fs::create_dir_all(directory.join(name))?;
    }
    for name in ["tmp", "var-tmp"] {
        fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o1777))?;
    }
    fs::set_permissions(directory.join("root"), fs::Permissions::from_mode(0o700))?;
    host_keys(&instance)?;
    logins(directory, &setup)?;
    for (login, keys) in &setup.keys {
        fs::write(instance.join("keys").join(login), keys.join("\n") + "\n")?;
    }
    fs::write(instance.join("sshd_config"), sshd_config(record))?;
    if let Some(script) = &setup.script {
        fs::write(instance.join("user-data"), script)?;
        run_script(directory, record)?;
    }
    write_whole(&directory.join("ready"), "")
}

/// Runs the script that the caller has written to `instance/user-data`, as root of the machine, and
/// waits for it, at most 300 seconds; its output is in `user-data.log`. While the script runs, it
/// is noted as the machine's process. As with cloud-init, a script that fails, is missing or takes
/// too long is only logged and does not prevent the boot. An error if it cannot be started.
fn run_script(directory: &Path, record: &Record) -> io::Result<()> {
    let parent = directory.parent().unwrap_or(directory);
    let mut command = Host::new(parent.to_owned()).view(directory, &record.id);
    let log = fs::File::create(directory.join("user-data.log"))?;
    command.args([
        "--setenv",
        "HOME",
        "/root",
        "--die-with-parent",
        "--",
        "/usr/bin/timeout",
        "300",
        "/bin/sh",
        "/run/instance/user-data",
    ]);
    let status = process::start(&command, directory, log.try_clone()?, log)?.wait()?;
    if !status.success() {
        tracing::warn!(instance = record.id, %status, "the user data's script failed");
    }
    Ok(())
}

/// Creates the SSH host keys of a machine (Ed25519 and ECDSA) in its directory `instance`,
/// which the caller has created, in place of earlier ones. An error if `ssh-keygen` fails.
fn host_keys(instance: &Path) -> io::Result<()> {
    // Under names of this process first: what an earlier emulator, killed meanwhile, still writes
    // must not be in the way.
    let own = |kind: &str| format!("new_{}_{kind}", std::process::id());
    let make = |kind: &str| {
        let file = instance.join(own(kind));
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-N", "", "-t", kind, "-f"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
    };
    // No RSA key: it is slow to create, and no client needs it.
    let kinds = ["ed25519", "ecdsa"];
    for child in kinds.map(make) {
        if !child?.wait()?.success() {
            return Err(io::Error::other(
                "ssh-keygen made no host key; is openssh-client installed?",
            ));
        }
    }
    for kind in kinds {
        for ending in ["", ".pub"] {
            let made = instance.join(own(kind) + ending);
            fs::rename(made, instance.join(format!("host_{kind}{ending}")))?;
        }
    }
    Ok(())
}

/// Writes the password, shadow and group files of the machine in `directory`, and creates the home
/// directories of the logins in `setup`. The password and group files are those of the emulator's
/// host with these logins added or replaced. No login has a password. With root rights each login
/// has a user id of its own, and `root` stays as on the host. Without them all these logins, also
/// `root`, have the emulator's own user id.
fn logins(directory: &Path, setup: &Setup) -> io::Result<()> {
    let instance = directory.join("instance");
    // Without root rights, `root` is another name of the emulator's own user.
    let names: Vec<&String> =
        setup.keys.keys().filter(|name| *name != "root" || !is_root()).collect();
    let keep = |file: &str| -> io::Result<String> {
        let text = fs::read_to_string(file)?;
        let known =
            |line: &&str| !names.iter().any(|name| line.split(':').next() == Some(name.as_str()));
        Ok(text.lines().filter(known).fold(String::new(), |all, line| all + line + "\n"))
    };
    let (mut passwd, mut group) = (keep("/etc/passwd")?, keep("/etc/group")?);
    if !is_root() {
        // sshd gives terminals to this group, which only root can do; without the group it leaves
        // them as they are.
        group = group
            .lines()
            .filter(|line| !line.starts_with("tty:"))
            .fold(String::new(), |all, line| all + line + "\n");
    }
    let mut shadow = String::from("root:*:1::::::\n");
    for (number, name) in names.iter().enumerate() {
        // Without root's powers there is one user id for all: the emulator's own.
        let uid =
            if is_root() { FIRST_UID + number as u32 } else { rustix::process::getuid().as_raw() };
        let at = if *name == "root" { "root".to_owned() } else { format!("home/{name}") };
        let home = directory.join(&at);
        fs::create_dir_all(&home)?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        if is_root() {
            chown(&home, Some(uid), Some(uid))?;
        }
        let line = format!("{name}:x:{uid}:{uid}::/{at}:/bin/bash\n");
        // First match wins: also where the host knows the number under another name.
        passwd = line + &passwd;
        group = format!("{name}:x:{uid}:\n{group}");
        if *name != "root" {
            shadow += &format!("{name}:*:1::::::\n");
        }
    }
    for (file, text) in BTreeMap::from([("passwd", passwd), ("group", group), ("shadow", shadow)]) {
        fs::write(instance.join(file), text)?;
    }
    fs::set_permissions(instance.join("shadow"), fs::Permissions::from_mode(0o600))
}

/// Returns the configuration of the SSH server: the machine's address and port, and logins by key
/// only.
fn sshd_config(record: &Record) -> String {
    let (address, port) = (&record.address, record.port);
    format!(
        "ListenAddress {address}:{port}\nHostKey /run/instance/host_ed25519\nHostKey /run/instance/host_ecdsa\n\
         AuthorizedKeysFile /run/instance/keys/%u\nPidFile none\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nStrictModes no\nUseDNS no\nMaxStartups 100\nMaxSessions 100\nPrintMotd no\nX11Forwarding no\n\
         AcceptEnv LANG LC_*\nSubsystem sftp internal-sftp\n"
    )
}

/// Kills the machine's processes, `started` or those that the process file names, and waits until
/// they are gone; then deletes the process file. Without `started` it is an error if the process
/// that the file names is still there after five seconds. Nothing to kill is no error.
fn end_processes(directory: &Path, started: Option<Child>) -> io::Result<()> {
    // A child keeps its process id until it is waited for, even if its note is gone.
    let leader = started.as_ref().map(Child::id).or_else(|| living(directory));
    if let Some(pid) = leader.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
        // The whole group: the wrapper outside, and inside the first process of the namespace, with
        // which all others end.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    match started {
        Some(mut started) => drop(started.wait()),
        None => wait_until(END_LIMIT, || living(directory).is_none()),
    }
    if let Some(pid) = living(directory) {
        return Err(io::Error::other(format!(
            "process {pid} was killed and is still there after {END_LIMIT:?}"
        )));
    }
    let _ = fs::remove_file(directory.join(NOTE));
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

/// Returns whether the emulator has root rights.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
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
    use std::os::unix::process::ExitStatusExt as _;

    const ID: &str = "i-one";

    /// Starts something that stands for a machine's server, in the machine's directory.
    fn server(directory: &Path) -> Child {
        let at = directory.join(ID);
        fs::create_dir(&at).unwrap();
        let mut program = Command::new("sleep");
        program.arg("60");
        process::start(&program, &at, Stdio::null(), Stdio::null()).unwrap()
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
        let host = Host::new(directory.path().to_owned());
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
        let host = Host::new(directory.path().to_owned());
        host.end_all();
        host.start(&record(), || true).unwrap();
        assert!(!directory.path().join(ID).exists(), "not even its files are made");
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
