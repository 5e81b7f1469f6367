//! What a node is where this machine cannot make machines: a sandbox over this machine's own files
//! (bubblewrap).
//!
//! It sees them read-only, and its own `/home`, `/root`, `/tmp`, `/var/tmp`, `/run`, processes and
//! logins. Packages cannot be installed in it, and it shares this machine's network.

use super::rights::is_root;
use super::server::{host_keys, sshd_config};
use super::store::Record;
use super::user_data::Setup;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

/// The first user id of a machine's own logins.
const FIRST_UID: u32 = 2_000;
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

/// Creates the files of a sandbox in its directory, which must exist: host keys, logins,
/// configuration, and the script of the user data.
pub(super) fn install(directory: &Path, record: &Record, setup: &Setup) -> io::Result<()> {
    let instance = directory.join("instance");
    for name in ["home", "root", "tmp", "var-tmp", "instance/keys"] {
        fs::create_dir_all(directory.join(name))?;
    }
    for name in ["tmp", "var-tmp"] {
        fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o1777))?;
    }
    fs::set_permissions(directory.join("root"), fs::Permissions::from_mode(0o700))?;
    host_keys(&instance)?;
    logins(directory, setup)?;
    for (login, keys) in &setup.keys {
        fs::write(instance.join("keys").join(login), keys.join("\n") + "\n")?;
    }
    fs::write(instance.join("sshd_config"), sshd_config(record))?;
    match &setup.script {
        Some(script) => fs::write(instance.join("user-data"), script),
        None => Ok(()),
    }
}

/// Returns the command that runs a program in the sandbox with this directory, an absolute one
/// below `all`, whose other sandboxes stay hidden. The program is to be added. Its environment has
/// only a `PATH` and a `HOME`; `id` becomes the host name.
pub(super) fn command(all: &Path, directory: &Path, id: &str) -> Command {
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
        command.args(["--ro-bind", &inside(&format!("instance/{name}")), &format!("/etc/{name}")]);
    }
    let hidden =
        ["/home", "/root", "/tmp", "/var/tmp", "/run"].iter().any(|path| all.starts_with(path));
    if !hidden {
        // Other machines' keys and files lie there.
        command.args(["--tmpfs", &all.to_string_lossy()]);
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
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    command.args(["--setenv", "PATH", path, "--setenv", "HOME", "/root"]);
    if is_root() {
        command.args(["--cap-drop", "ALL"]);
        for capability in CAPABILITIES {
            command.args(["--cap-add", capability]);
        }
    }
    command.arg("--");
    command
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
