//! SSH to the nodes: the agent that holds the keys, the known hosts, and one open connection per
//! node, shared by all playbooks of the build (Z7.1, Z8.2).
//!
//! The keys themselves are never visible in a sandbox. The shared connections run in their own
//! sandbox, because a playbook that uses one can also make it forward ports.

use crate::code_trust::CodeTrust;
use crate::job::BuildSshKey;
use crate::jobdir::{Jobdir, TRUSTED};
use crate::process::Group;
use crate::sandbox::{MessageSockets, Sandbox, base_arguments};
use crate::settings::AnsibleSettings;
use sluice_model::job::DEFAULT_ANSIBLE_VERSION;
use sluice_model::node::NodeAccess;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

/// The time to wait for the agent, and for a node's answer. After the latter Ansible's own
/// connection retries decide.
const OPEN_SECONDS: u64 = 15;

/// A shell script that starts the agent's sandbox with at most 64 MiB of memory (`ulimit` counts in
/// KiB), without core dumps.
const AGENT_LIMITS: &str = "ulimit -c 0; ulimit -v 65536; exec bwrap \"$@\"";

/// The maximum length of what ssh prints, in bytes.
const TEXT_BYTES_MAX: usize = 2_000;

/// The SSH agent could not be started. The build is retried.
#[derive(Debug, thiserror::Error)]
#[error("could not start an SSH agent with the build's keys: {message}")]
pub struct AgentError {
    /// What failed.
    message: String,
}

impl AgentError {
    /// Wraps the error of a process.
    fn of_process(error: std::io::Error) -> Self {
        Self { message: error.to_string() }
    }
}

/// The keys that an agent gets, in the order in which they are tried.
#[derive(Clone, Copy)]
pub struct AgentKeys<'a> {
    /// The file with the private key that the nodes accept; `None` without nodes.
    pub of_nodes: Option<&'a Path>,
    /// The keys of the project and the tenant.
    pub of_build: &'a [BuildSshKey],
}

/// An ssh-agent with the keys of one build. Dropping it ends it.
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
    /// Starts an SSH agent for one build and adds its keys. That of the nodes is restricted to
    /// those of `nodes` whose host keys are known; without such a node it is left out. Without any
    /// key an agent that failed to listen is not noticed. The caller has written the known hosts
    /// with [`write_configuration`]. An error if the agent cannot be started or a key cannot be
    /// added; the build is then retried.
    ///
    /// One key opens the nodes of all builds. Playbooks may use the agent and forward it to their
    /// node, but it must not sign for nodes of other builds. So that key is restricted by
    /// `ssh-add -h`, which needs OpenSSH 8.9 or newer on this machine. The keys of the project and
    /// the tenant are not restricted, as in Zuul: their owners decide which hosts accept them, and
    /// playbooks log in there. The agent ends with this process, even if that is killed.
    pub async fn start(
        jobdir: &Jobdir,
        keys: AgentKeys<'_>,
        nodes: &[NodeAccess],
    ) -> Result<Self, AgentError> {
        let directory = &jobdir.runtime.agent;
        let socket = directory.join("agent.sock");
        // Playbooks may add keys, so its memory is limited, it sees nothing but its socket, and it
        // loads no libraries of keys.
        let mut command = plain("sh");
        command.args(["-c", AGENT_LIMITS, "bwrap"]).args(base_arguments());
        command.args(["--unshare-net", "--bind"]).args([directory, directory]);
        command
            .args(["--", "ssh-agent", "-P", "/nonexistent", "-D", "-a"])
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = Group::spawn(&mut command).map_err(AgentError::of_process)?;
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
        let agent = Self { _process: process, socket, id };
        let constraints = constraints(nodes);
        if let Some(key) = keys.of_nodes.filter(|_| !constraints.is_empty()) {
            let mut add = agent.ssh_add();
            add.arg("-H").arg(jobdir.ssh.join("known_hosts")).args(constraints).arg(key);
            ended(add.output().await)?;
        }
        for key in keys.of_build {
            agent.add(key).await?;
        }
        Ok(agent)
    }

    /// Adds a private key through a pipe, so that it is in no file.
    async fn add(&self, key: &BuildSshKey) -> Result<(), AgentError> {
        let mut add = self.ssh_add();
        add.arg("-").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = add.spawn().map_err(AgentError::of_process)?;
        if let Some(mut pipe) = child.stdin.take() {
            // If ssh-add closes it early, its exit status says why.
            let _ = pipe.write_all(key.private.expose()).await;
        }
        ended(child.wait_with_output().await)
    }

    /// Returns a command that adds a key to this agent, to which the caller appends the key.
    fn ssh_add(&self) -> Command {
        let mut command = plain("ssh-add");
        command.arg("-q").env("SSH_AUTH_SOCK", &self.socket);
        command
    }
}

/// Checks the end of `ssh-add`; the error is what it printed.
fn ended(output: std::io::Result<std::process::Output>) -> Result<(), AgentError> {
    let output = output.map_err(AgentError::of_process)?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(AgentError { message: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
        }
    }
}

/// Writes `known_hosts` and `config` into the build's ssh directory, for every ssh of the build but
/// those of trusted playbooks, which get files of their own that they may change: roles of
/// `zuul-jobs` add servers for logs. Connections to nodes go through the executor's broker; other
/// hosts are reached directly, by trusted playbooks alone. Connections trust only the recorded host
/// keys, so that a node without any cannot be reached. User and key come from Ansible and the agent.
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
        "\x20 ProxyCommand /usr/bin/python3 -ISE \"{connect}\" \"{broker}\" %h %p\n\
         \x20 ProxyUseFdpass yes\n",
        connect = connect.display(),
        broker = jobdir.runtime.broker_socket().display(),
    );
    let configuration = |proxied: &str| {
        format!(
            "# The nodes are known by the host keys that their check accepted.\n\
             Host {proxied}\n{proxy}\
             Host *\n\
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
    // The broker stops what an executor sends to nodes that another one may use, so
    // trusted playbooks reach nodes through it too. No host has the name of the last entry.
    let addresses = nodes.iter().map(|node| node.interface_ip.as_str());
    let of_nodes = addresses.chain(["no-node.invalid"]).collect::<Vec<_>>().join(" ");
    for (directory, proxied) in [(&jobdir.ssh, "*"), (&of_trusted, of_nodes.as_str())] {
        std::fs::write(directory.join("known_hosts"), &known_hosts)?;
        std::fs::write(directory.join("config"), configuration(proxied))?;
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

/// Opens a shared SSH connection to each node, concurrently, for the playbooks of this trust.
/// Returns the open connections, which
/// close when they are dropped, the paths of Python that were found, by host name, and a log line
/// for each node that could not be reached. Such a node is no error. A host without a known Python
/// path has no entry. The caller has called [`write_configuration`] and `write_accounts` and opened
/// the broker to these nodes.
///
/// Looking up the Python path here once saves each playbook a round trip per host.
pub async fn open_shared(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    agent: &Agent,
    nodes: &[NodeAccess],
    trust: CodeTrust,
) -> (Vec<SharedConnection>, BTreeMap<String, String>, Vec<String>) {
    let opening = nodes.iter().map(|node| open(jobdir, settings, agent, node, trust));
    let opened = futures::future::join_all(opening).await;
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
/// in time. The caller has written the SSH configuration and opened the broker.
async fn open(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    agent: &Agent,
    node: &NodeAccess,
    trust: CodeTrust,
) -> Result<(SharedConnection, Option<String>), String> {
    let options = ["-M", "-o", "ControlPersist=no"];
    let mut command = ssh_command(jobdir, settings, agent, node, &options, trust)?;
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
        Ok(_) => Err(crate::process::read_bounded(stderr, TEXT_BYTES_MAX).await.trim().to_owned()),
        Err(_) => Err(format!("no answer within {OPEN_SECONDS} seconds")),
    }
}

/// Returns the command that runs `ssh` to a node in a sandbox, with these options in addition; the
/// caller adds what runs on the node. It sees the control sockets of playbooks of this trust. The
/// sockets of playbooks' messages are hidden, since a shared connection outlives the playbooks, and
/// one that made it forward a socket must not reach those of later ones. The error is the reason for
/// the log.
fn ssh_command(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    agent: &Agent,
    node: &NodeAccess,
    options: &[&str],
    trust: CodeTrust,
) -> Result<Command, String> {
    let state = jobdir.state_of("ssh").map_err(|error| error.to_string())?;
    let control = jobdir.control_of(trust).map_err(|error| error.to_string())?;
    let sandbox = Sandbox {
        settings,
        jobdir,
        trust: CodeTrust::Untrusted,
        ansible_version: DEFAULT_ANSIBLE_VERSION,
        state: &state,
        control: &control,
        messages: MessageSockets::Hidden,
    };
    let environment = BTreeMap::from([
        ("HOME", jobdir.home.display().to_string()),
        ("SSH_AUTH_SOCK", agent.socket.display().to_string()),
    ]);
    let mut command = sandbox.command(Path::new("/usr/bin/ssh"), &environment);
    let seconds = format!("ConnectTimeout={OPEN_SECONDS}");
    command.args(options).args(["-x", "-a", "-o", "BatchMode=yes", "-o", &seconds]);
    command.args(["-p", &node.ssh_port.to_string(), "-l", &node.username, &node.interface_ip]);
    Ok(command)
}

/// Adds a line to the `authorized_keys` of the login on a node, so that the owner of the key may
/// log in there. `key` must be one line. The error is the reason for the log: ssh's message, or
/// that the node did not answer in time.
pub async fn add_authorized_key(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    agent: &Agent,
    node: &NodeAccess,
    key: &str,
) -> Result<(), String> {
    let mut command = ssh_command(jobdir, settings, agent, node, &[], CodeTrust::Untrusted)?;
    // The key is passed as input: the shell of the node does not see it. The file may lack its last
    // line break.
    command.arg(
        "umask 077; mkdir -p ~/.ssh && { echo; cat; } >> ~/.ssh/authorized_keys && echo added",
    );
    command.stdin(Stdio::piped());
    let mut process = Group::spawn(&mut command).map_err(|error| error.to_string())?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (process.stdin(), process.stdout(), process.stderr())
    else {
        return Err("no pipes".to_owned());
    };
    let line = format!("{key}\n");
    let add = async {
        let _ = stdin.write_all(line.as_bytes()).await;
        drop(stdin);
        tokio::join!(
            crate::process::read_bounded(stdout, TEXT_BYTES_MAX),
            crate::process::read_bounded(stderr, TEXT_BYTES_MAX)
        )
    };
    match tokio::time::timeout(Duration::from_secs(OPEN_SECONDS), add).await {
        Ok((output, _)) if output.trim() == "added" => Ok(()),
        Ok((_, errors)) => Err(errors.trim().to_owned()),
        Err(_) => Err(format!("no answer within {OPEN_SECONDS} seconds")),
    }
}

/// The script that ends the sessions of other connections on a node.
const END_SESSIONS: &str = include_str!("ssh/end_sessions.sh");

/// The time that ending other sessions on a node may take, in seconds.
const END_SESSIONS_SECONDS: u64 = 30;

/// Ends everything on each node that earlier SSH sessions have started, concurrently, and closes
/// these sessions; those of this build's shared connection stay. The caller has opened the shared
/// connections. The error names the first node on which that is not certain to have worked.
pub async fn end_other_sessions(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    agent: &Agent,
    nodes: &[NodeAccess],
) -> Result<(), OldSessionsError> {
    let ended = nodes.iter().map(|node| end_sessions_in_time(jobdir, settings, agent, node));
    futures::future::try_join_all(ended).await.map(drop)
}

/// Ends the sessions of other connections on one node within a time limit. The error names the
/// node.
async fn end_sessions_in_time(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    agent: &Agent,
    node: &NodeAccess,
) -> Result<(), OldSessionsError> {
    let limit = Duration::from_secs(END_SESSIONS_SECONDS);
    let ended = tokio::time::timeout(limit, end_sessions_on(jobdir, settings, agent, node));
    let message = match ended.await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(message)) => message,
        Err(_) => format!("no answer within {END_SESSIONS_SECONDS} seconds"),
    };
    Err(OldSessionsError { node: node.names.join(","), message })
}

/// Ends the sessions of other connections on one node. The error is the message of the script or of
/// ssh.
async fn end_sessions_on(
    jobdir: &Jobdir,
    settings: &AnsibleSettings,
    agent: &Agent,
    node: &NodeAccess,
) -> Result<(), String> {
    let mut command = ssh_command(jobdir, settings, agent, node, &[], CodeTrust::Untrusted)?;
    command.arg("exec sh -s").stdin(Stdio::piped());
    let mut process = Group::spawn(&mut command).map_err(|error| error.to_string())?;
    let (Some(mut stdin), Some(stderr)) = (process.stdin(), process.stderr()) else {
        return Err("no pipes".to_owned());
    };
    let message = tokio::spawn(crate::process::read_bounded(stderr, 2_000));
    // If ssh ends early, its status and message say why.
    let _ = stdin.write_all(END_SESSIONS.as_bytes()).await;
    drop(stdin);
    let status = process.wait().await.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{status}: {}", message.await.unwrap_or_default().trim()))
}

/// What the lost executor of a build had started on a node could not be ended.
#[derive(Debug, thiserror::Error)]
#[error("could not end the sessions of the lost executor on {node}: {message}")]
pub struct OldSessionsError {
    /// The names of the node.
    node: String,
    /// What went wrong.
    message: String,
}

/// Returns a command with an environment of only `PATH`, which hides the executor's credentials. It
/// has an empty standard input and is killed when its process handle is dropped.
pub(crate) fn plain(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .kill_on_drop(true)
        .stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts processes of other sessions, two of them in a process session of their own and without
    /// the environment, and two that stay; then runs the script. Prints how many processes were
    /// started meanwhile, and what is left.
    const STAGE: &str = r#"
        connection() { echo "10.0.0.1 $1 192.0.2.7 22"; }
        count=0
        while [ "$count" -lt 600 ]; do
            count=$((count + 1))
            SSH_CONNECTION=$(connection "$count") sleep 1001 &
        done
        SSH_CONNECTION="10.0.0.1 1 192.0.2.8 22" sleep 1002 &
        sleep 1003 &
        SSH_CONNECTION=$(connection 9) setsid sh -c 'env -i sleep 1004 & exec sleep 1005' &
        until cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -q 'slee[p] 1004'; do :; done
        first=$(sh -c 'echo $$')
        SSH_CONNECTION=$(connection 0) sh -c "$SCRIPT"
        echo "status $?"
        last=$(sh -c 'echo $$')
        echo "started $((last - first))"
        cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -o 'sleep 100[0-9]' | sort
    "#;

    /// Z7.3: what other sessions have started is ended, wherever it went, in a time that does not
    /// depend on how many processes a node has. The test runs in a process namespace of its own.
    #[test]
    fn other_sessions_are_ended_by_few_programs_however_many_processes_there_are() {
        let bwrap = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid"];
        let ended = std::process::Command::new("bwrap")
            .args(bwrap)
            .args(["--die-with-parent", "sh", "-c", "eval \"$STAGE\""])
            .envs([("STAGE", STAGE), ("SCRIPT", END_SESSIONS)])
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&ended.stdout);
        let errors = String::from_utf8_lossy(&ended.stderr);
        let lines: Vec<&str> = output.lines().collect();
        let [status, started, left @ ..] = lines.as_slice() else { panic!("{output}{errors}") };
        assert_eq!(*status, "status 0", "{errors}");
        assert_eq!(left, ["sleep 1002", "sleep 1003"], "{errors}");
        let started = started.strip_prefix("started ").and_then(|count| count.parse::<u32>().ok());
        assert!(started.is_some_and(|count| count < 150), "{started:?}");
    }
}
