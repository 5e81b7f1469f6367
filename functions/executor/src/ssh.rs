//! SSH to the nodes: the agent that holds the key, the known hosts, and one open connection per
//! node, shared by all playbooks of the build (Z7.1).
//!
//! The key itself is never visible in a sandbox. The shared connections run in their own sandbox,
//! because a playbook that uses one can also make it forward ports.

use crate::jobdir::{Jobdir, TRUSTED};
use crate::process::Group;
use crate::sandbox::{CodeTrust, Sandbox};
use crate::settings::AnsibleSettings;
use sluice_model::job::DEFAULT_ANSIBLE_VERSION;
use sluice_model::node::NodeAccess;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// The time to wait for a node's answer. Afterwards Ansible's own connection retries decide.
const OPEN_SECONDS: u64 = 15;

/// The SSH agent could not be started. The build is retried.
#[derive(Debug, thiserror::Error)]
#[error("could not start an SSH agent with the nodes' key: {message}")]
pub struct AgentError {
    /// What failed.
    message: String,
}

/// An ssh-agent with the nodes' key. Dropping it ends it.
#[derive(Debug)]
pub struct Agent {
    /// The agent's process, which ends with this value.
    _process: Group,
    /// Its socket.
    pub socket: PathBuf,
    /// The process id of its sandbox (`SSH_AGENT_PID`).
    pub id: u32,
}

impl Agent {
    /// Starts an SSH agent for one build and adds the private key in the file `key`, restricted to
    /// those of `nodes` whose host keys are known. Without such a node the agent gets no key, and
    /// an agent that failed to listen is then not noticed. The caller has written the known hosts
    /// with [`write_configuration`]. An error if the agent cannot be started or the key cannot be
    /// added; the build is then retried.
    ///
    /// The same key opens the nodes of all builds. Playbooks may use the agent and forward it to
    /// their node, but it must not sign for nodes of other builds. So the key is restricted by
    /// `ssh-add -h`, which needs OpenSSH 8.9 or newer on this machine. The agent ends with this
    /// process, even if that is killed.
    pub async fn start(
        jobdir: &Jobdir,
        key: &Path,
        nodes: &[NodeAccess],
    ) -> Result<Self, AgentError> {
        let socket = jobdir.runtime.root.join("agent.sock");
        // --die-with-parent ends the agent even if this process is killed and cannot kill the
        // group.
        let runtime = &jobdir.runtime.root;
        let mut command = plain("bwrap");
        command.args([
            "--die-with-parent",
            "--unshare-user",
            "--unshare-pid",
            "--ro-bind",
            "/",
            "/",
        ]);
        command.args(["--proc", "/proc", "--dev", "/dev", "--bind"]).args([runtime, runtime]);
        command
            .args(["--", "ssh-agent", "-D", "-a"])
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = Group::spawn(&mut command)
            .map_err(|error| AgentError { message: error.to_string() })?;
        let id = process.id().unwrap_or_default();
        // It prints one line once it listens, and nothing afterwards.
        if let Some(stdout) = process.stdout() {
            let mut line = String::new();
            let _ = tokio::time::timeout(
                Duration::from_secs(OPEN_SECONDS),
                BufReader::new(stdout).read_line(&mut line),
            )
            .await;
        }
        let constraints = constraints(nodes);
        if constraints.is_empty() {
            return Ok(Self { _process: process, socket, id });
        }
        let mut add = plain("ssh-add");
        add.args(["-q", "-H"]).arg(jobdir.ssh.join("known_hosts")).args(constraints);
        add.arg(key).env("SSH_AUTH_SOCK", &socket).stdin(Stdio::null());
        let output =
            add.output().await.map_err(|error| AgentError { message: error.to_string() })?;
        if output.status.success() {
            Ok(Self { _process: process, socket, id })
        } else {
            Err(AgentError { message: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
        }
    }
}

/// Writes `known_hosts` and `config` into the build's ssh directory, for every ssh of the build but
/// those of trusted playbooks, which get files of their own that they may change: roles of
/// `zuul-jobs` add servers for logs. Connections trust only the recorded host keys, so that a node
/// without any cannot be reached. They go through the executor's gateway, except in trusted
/// playbooks, which have a network. User and key come from Ansible and the agent.
pub fn write_configuration(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    nodes: &[NodeAccess],
) -> std::io::Result<()> {
    let mut known_hosts = String::new();
    for node in nodes {
        let host = known_host(node);
        for key in &node.host_keys {
            let _ = writeln!(known_hosts, "{host} {key}");
        }
    }
    let connect = settings.content.join("bin/node_connect.py");
    let proxy = format!(
        "\x20 ProxyCommand /usr/bin/python3 -ISE \"{connect}\" \"{gateway}\" %h %p\n\
         \x20 ProxyUseFdpass yes\n",
        connect = connect.display(),
        gateway = jobdir.runtime.root.join("nodes.sock").display(),
    );
    let configuration = |proxy: &str| {
        format!(
            "# The nodes are known by the host keys that their check accepted.\n\
             Host *\n{proxy}\
             \x20 StrictHostKeyChecking yes\n\
             \x20 UserKnownHostsFile \"{known}\"\n\
             \x20 GlobalKnownHostsFile /dev/null\n\
             \x20 UpdateHostKeys no\n\
             \x20 ControlPath {control}/%C\n\
             \x20 PermitLocalCommand no\n\
             \x20 LogLevel ERROR\n\
             \x20 ServerAliveInterval 15\n\
             \x20 ServerAliveCountMax 8\n",
            known = jobdir.home.join(".ssh/known_hosts").display(),
            control = jobdir.runtime.control.display(),
        )
    };
    let of_trusted = jobdir.state_of(TRUSTED)?.home.join(".ssh");
    for (directory, proxy) in [(&jobdir.ssh, proxy.as_str()), (&of_trusted, "")] {
        std::fs::write(directory.join("known_hosts"), &known_hosts)?;
        std::fs::write(directory.join("config"), configuration(proxy))?;
    }
    Ok(())
}

/// Returns the arguments of `ssh-add` that restrict the key to the build's nodes: `-h` and the
/// host, for each node. Nodes without known host keys are left out. If the result is empty, the
/// caller must not add the key, which would then be unrestricted.
fn constraints(nodes: &[NodeAccess]) -> Vec<String> {
    let with_host_keys = nodes.iter().filter(|node| !node.host_keys.is_empty());
    with_host_keys.flat_map(|node| ["-h".to_owned(), known_host(node)]).collect()
}

/// Returns a node's name in `known_hosts`: its address, or `[address]:port` for another port than
/// 22.
fn known_host(node: &NodeAccess) -> String {
    match node.ssh_port {
        22 => node.interface_ip.clone(),
        port => format!("[{}]:{port}", node.interface_ip),
    }
}

/// A shared SSH connection to a node. Dropping it closes the connection.
#[derive(Debug)]
pub struct SharedConnection(#[expect(dead_code, reason = "held for its drop")] Group);

/// Opens a shared SSH connection to each node, concurrently. Returns the open connections, which
/// close when they are dropped, the paths of Python that were found, by host name, and a log line
/// for each node that could not be reached. Such a node is no error. A host without a known Python
/// path has no entry. The caller has called [`write_configuration`] and `write_accounts` and opened
/// the gateway to these nodes.
///
/// Looking up the Python path here once saves each playbook a round trip per host.
pub async fn open_shared(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    agent: &Agent,
    nodes: &[NodeAccess],
) -> (Vec<SharedConnection>, BTreeMap<String, String>, Vec<String>) {
    let opened =
        futures::future::join_all(nodes.iter().map(|node| open(jobdir, settings, agent, node)))
            .await;
    let (mut shared, mut interpreters, mut troubles) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (node, result) in nodes.iter().zip(opened) {
        match result {
            Ok((connection, python)) => {
                shared.push(connection);
                for name in &node.names {
                    interpreters.extend(python.clone().map(|python| (name.clone(), python)));
                }
            }
            Err(message) => {
                troubles.push(format!("{} | No connection yet: {message}", node.names.join(",")))
            }
        }
    }
    (shared, interpreters, troubles)
}

/// Opens a shared SSH connection to one node in a sandbox of its own and looks up the node's
/// Python. Returns the open connection and the path; `None` as path if the node has no Python at a
/// usual place. The error is the reason for the log: ssh's message, or that the node did not answer
/// in time. The caller has written the SSH configuration and opened the gateway.
async fn open(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    agent: &Agent,
    node: &NodeAccess,
) -> Result<(SharedConnection, Option<String>), String> {
    let state = jobdir.state_of("ssh").map_err(|error| error.to_string())?;
    let sandbox = Sandbox {
        settings,
        jobdir,
        trust: CodeTrust::Untrusted,
        ansible_version: DEFAULT_ANSIBLE_VERSION,
        state: &state,
    };
    let environment = BTreeMap::from([
        ("HOME", jobdir.home.display().to_string()),
        ("SSH_AUTH_SOCK", agent.socket.display().to_string()),
    ]);
    let mut command = sandbox.command(Path::new("/usr/bin/ssh"), &environment);
    let seconds = format!("ConnectTimeout={OPEN_SECONDS}");
    command.args([
        "-M",
        "-x",
        "-a",
        "-o",
        "ControlPersist=no",
        "-o",
        "BatchMode=yes",
        "-o",
        &seconds,
    ]);
    command.args(["-p", &node.ssh_port.to_string(), "-l", &node.username, &node.interface_ip]);
    // The remote `cat` keeps the connection open until the standard input is closed.
    command.arg("command -v python3 || command -v /usr/libexec/platform-python || echo auto; exec cat >/dev/null");
    command.stdin(Stdio::piped());
    let mut process = Group::spawn(&mut command).map_err(|error| error.to_string())?;
    let (Some(stdout), Some(stderr)) = (process.stdout(), process.stderr()) else {
        return Err("no pipes".to_owned());
    };
    let mut line = String::new();
    let mut reader = BufReader::new(stdout);
    let read =
        tokio::time::timeout(Duration::from_secs(OPEN_SECONDS), reader.read_line(&mut line)).await;
    match read {
        Ok(Ok(1..)) => {
            // Later output of ssh is discarded, so that ssh never blocks.
            tokio::spawn(crate::process::read_bounded(stderr, 0));
            let python = line.trim().to_owned();
            Ok((SharedConnection(process), Some(python).filter(|path| path.starts_with('/'))))
        }
        Ok(_) => Err(crate::process::read_bounded(stderr, 2_000).await.trim().to_owned()),
        Err(_) => Err(format!("no answer within {OPEN_SECONDS} seconds")),
    }
}

/// Returns a command with an environment of only `PATH`, which hides the executor's credentials. It
/// has an empty standard input and is killed when its process handle is dropped.
fn plain(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .kill_on_drop(true)
        .stdin(Stdio::null());
    command
}
