//! One `ansible-playbook`: its files, its process, its end.

use crate::disk::DiskWatch;
use crate::job::StopSignal;
use crate::jobdir::{Jobdir, TRUSTED, write_private};
use crate::joblog::JobLog;
use crate::process::{Group, read_bounded};
use crate::receiver::{LINGER, Message, Receiver, Record};
use crate::sandbox::{Sandbox, Trust};
use crate::settings::Settings;
use crate::ssh::Agent;
use crate::verdict::PlaybookEnd;
use serde_json::{Map, Value, json};
use sluice_config::pattern::Pattern;
use sluice_model::BranchName;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// Bytes of what Ansible itself prints (not playbooks: those use the socket).
const PRINTED_BYTES_MAX: usize = 64 << 10;
/// The exit code by which Ansible tells of lost hosts, and of files it cannot read.
const LOST_OR_UNREADABLE: i32 = 4;

/// The index of the run that expands variables: far from any playbook's, so that its files have
/// names of their own.
pub const FREEZE_INDEX: usize = 9_999;

/// The phases of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before.
    Pre,
    /// The main playbooks.
    Run,
    /// After.
    Post,
}

impl Phase {
    /// Returns the word in variables and `job-output.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Run => "run",
            Self::Post => "post",
        }
    }

    /// Returns the word in banners.
    pub fn banner(self) -> &'static str {
        match self {
            Self::Pre => "PRE-RUN",
            Self::Run => "RUN",
            Self::Post => "POST-RUN",
        }
    }
}

/// A playbook in place, with its roles.
#[derive(Debug)]
pub struct Prepared {
    /// When it runs.
    pub phase: Phase,
    /// Its place in the phase, from 0.
    pub index: usize,
    /// How far it is trusted.
    pub trust: Trust,
    /// `host/project/path`.
    pub canonical: String,
    /// The branch it comes from.
    pub branch: BranchName,
    /// The file.
    pub file: PathBuf,
    /// Where roles are looked for.
    pub roles_path: Vec<PathBuf>,
    /// Whether it sees any secret.
    pub has_secrets: bool,
    /// How deep its definition stands.
    pub nesting_level: u32,
    /// Whether it runs even for a stopped build.
    pub cleanup: bool,
}

impl Prepared {
    /// Returns the name of its directory (`pre_playbook_0`).
    pub fn name(&self) -> String {
        match self.phase {
            Phase::Run => format!("playbook_{}", self.index),
            phase => format!("{}_playbook_{}", phase.as_str(), self.index),
        }
    }

    /// Returns what banners say of it: `[trusted : host/project/path@branch]`.
    pub fn banner(&self) -> String {
        format!("[{} : {}@{}]", self.trust.as_str(), self.canonical, self.branch)
    }

    /// Returns the name under which it shares its home and Ansible's state.
    ///
    /// As in Zuul, what one playbook leaves in its home the next one finds, but only if both could
    /// have written each other: untrusted ones with secrets are alone, since each belongs to a job
    /// definition of its own.
    pub fn state_owner(&self) -> String {
        match (self.trust, self.has_secrets || self.index == FREEZE_INDEX) {
            (Trust::Trusted, _) => TRUSTED.to_owned(),
            (Trust::Untrusted, false) => "untrusted".to_owned(),
            (Trust::Untrusted, true) => self.name(),
        }
    }

    /// Returns whether it sees job variables only as they were expanded before: it could give
    /// something away.
    pub fn sees_frozen(&self) -> bool {
        self.trust == Trust::Trusted || self.has_secrets
    }
}

/// What one playbook is given.
pub struct Inputs<'a> {
    /// The inventory.
    pub inventory: &'a Value,
    /// Variables that win over everything.
    pub vars: Map<String, Value>,
    /// Opened secrets by variable.
    pub secrets: Map<String, Value>,
    /// How long it may take.
    pub timeout: Duration,
    /// How much memory its entry in `job-output.json` may take.
    pub record_bytes_max: usize,
    /// Expressions of which one in its output means that the build fails.
    pub failure_output: &'a [Pattern],
    /// The signal that ends it; `None` for one that cleans up after a stop.
    pub stop: Option<&'a mut StopSignal>,
}

/// What all playbooks of a build share.
pub struct Shared<'a> {
    /// The operator's decisions.
    pub settings: &'a Settings,
    /// The build's directories.
    pub jobdir: &'a Jobdir,
    /// The agent with the nodes' key, if there are nodes.
    pub agent: Option<&'a Agent>,
    /// Sees when the build has more on disk than it may.
    pub disk: &'a DiskWatch,
}

/// How a playbook ended and what it left.
pub struct Outcome {
    /// How it ended.
    pub end: PlaybookEnd,
    /// Its entry in `job-output.json`.
    pub record: Record,
    /// Hosts it lost.
    pub unreachable: BTreeSet<String>,
    /// The expression that was found in its output.
    pub failure_output: Option<String>,
}

/// Runs a playbook to its end.
pub async fn run(
    shared: &Shared<'_>,
    playbook: &Prepared,
    inputs: Inputs<'_>,
    log: &mut JobLog<'_>,
) -> Outcome {
    let record = Record::new(inputs.record_bytes_max);
    let mut outcome = Outcome {
        end: PlaybookEnd::Aborted,
        record,
        unreachable: BTreeSet::new(),
        failure_output: None,
    };
    let files = Files::of(shared.jobdir, playbook);
    outcome.end = match files.write(shared, playbook, &inputs) {
        Ok(()) => watch(shared, playbook, &files, inputs, log, &mut outcome).await,
        Err(error) => {
            PlaybookEnd::Broken { why: format!("its files could not be written: {error}") }
        }
    };
    files.forget_secrets();
    let _ = std::fs::remove_file(&files.socket);
    outcome
}

async fn watch(
    shared: &Shared<'_>,
    playbook: &Prepared,
    files: &Files,
    inputs: Inputs<'_>,
    log: &mut JobLog<'_>,
    outcome: &mut Outcome,
) -> PlaybookEnd {
    let started = Receiver::open(&files.socket)
        .and_then(|receiver| Ok((receiver, spawn(shared, playbook, files)?)));
    let (mut receiver, mut ansible) = match started {
        Ok(started) => started,
        Err(error) => {
            return PlaybookEnd::Broken {
                why: format!("bubblewrap could not be started: {error}"),
            };
        }
    };
    let printed = [
        ansible.stdout().map(|pipe| tokio::spawn(read_bounded(pipe, PRINTED_BYTES_MAX))),
        ansible.stderr().map(|pipe| tokio::spawn(read_bounded(pipe, PRINTED_BYTES_MAX))),
    ];
    let deadline = tokio::time::sleep(inputs.timeout);
    tokio::pin!(deadline);
    let mut stop = inputs.stop;
    let (mut status, mut killed, mut begun, mut lost_hosts) = (None, None, false, false);
    loop {
        let running = status.is_none() && killed.is_none();
        tokio::select! {
            message = receiver.next() => match message {
                Some(Message::Started) => {
                    begun = true;
                    // Everything has been read by now.
                    files.forget_secrets();
                }
                Some(Message::Log { text }) => {
                    log.say(&text);
                    if let (None, Some(found)) = (&outcome.failure_output, found_in(inputs.failure_output, &text)) {
                        log.say(&format!("Early failure in job, matched regex \"{found}\""));
                        log.will_fail();
                        outcome.failure_output = Some(found.to_owned());
                    }
                }
                Some(Message::Unreachable { host }) => {
                    lost_hosts = true;
                    // Whoever is in the sandbox can name anything here, and later inventories hold
                    // what is taken.
                    if is_host(inputs.inventory, &host) {
                        outcome.unreachable.insert(host);
                    }
                }
                Some(Message::Failing) if playbook.phase == Phase::Run => log.will_fail(),
                Some(other) => outcome.record.take(other),
                None => break,
            },
            ended = ansible.wait(), if status.is_none() => {
                status = Some(ended);
                receiver.finish();
            }
            () = shared.disk.full(), if running => {
                killed = Some(PlaybookEnd::DiskFull);
                log.say("The build has more on disk than it may and is ended");
                ansible.kill();
            }
            () = &mut deadline, if running => {
                killed = Some(PlaybookEnd::TimedOut);
                log.say(&format!("The playbook ran out of time after {} seconds and is ended", inputs.timeout.as_secs()));
                ansible.kill();
            }
            reason = stopped(stop.as_deref_mut()), if running => {
                killed = Some(PlaybookEnd::Aborted);
                log.say(&format!("The build is stopped: {reason}"));
                ansible.kill();
            }
        }
    }
    let mut said = String::new();
    for mut reader in printed.into_iter().flatten() {
        match tokio::time::timeout(LINGER, &mut reader).await {
            Ok(text) => said.push_str(&text.unwrap_or_default()),
            // Somebody outlived the sandbox with our pipe.
            Err(_) => reader.abort(),
        }
    }
    if !said.trim().is_empty() {
        log.say(said.trim());
    }
    match (killed, status) {
        (Some(killed), _) => killed,
        (None, Some(Ok(status))) => judge(status, begun, lost_hosts, &said),
        (None, Some(Err(error))) => {
            PlaybookEnd::Broken { why: format!("its process could not be waited for: {error}") }
        }
        (None, None) => PlaybookEnd::Broken { why: "its log ended before it did".to_owned() },
    }
}

/// Returns the first expression that occurs in what a host said, if one does.
fn found_in<'a>(expressions: &'a [Pattern], text: &str) -> Option<&'a str> {
    // What tasks and plays are called is no output.
    let mut said = text.lines().filter_map(|line| line.split_once(" | "));
    let occurs =
        |(_, said): (&str, &str)| expressions.iter().find(|expression| expression.finds(said));
    said.find_map(occurs).map(Pattern::as_str)
}

fn is_host(inventory: &Value, name: &str) -> bool {
    inventory.pointer("/all/hosts").and_then(|hosts| hosts.get(name)).is_some()
}

async fn stopped(stop: Option<&mut StopSignal>) -> String {
    match stop {
        Some(stop) => stop.stopped().await,
        None => std::future::pending().await,
    }
}

fn judge(status: ExitStatus, begun: bool, lost_hosts: bool, said: &str) -> PlaybookEnd {
    match (status.code(), status.signal()) {
        (Some(LOST_OR_UNREADABLE), _) if lost_hosts => PlaybookEnd::Unreachable,
        (Some(code), _) if code >= 128 => {
            PlaybookEnd::Broken { why: format!("Ansible was killed by signal {}", code - 128) }
        }
        (Some(1), _) if !begun && said.starts_with("bwrap:") => {
            PlaybookEnd::Broken { why: said.trim().to_owned() }
        }
        (Some(code), _) => PlaybookEnd::Finished { code },
        (None, signal) => PlaybookEnd::Broken {
            why: format!("its sandbox was killed by signal {}", signal.unwrap_or_default()),
        },
    }
}

fn spawn(shared: &Shared<'_>, playbook: &Prepared, files: &Files) -> std::io::Result<Group> {
    let jobdir = shared.jobdir;
    let text = |path: &Path| path.display().to_string();
    let mut environment = BTreeMap::from([
        ("HOME", text(&jobdir.home)),
        ("TMP", text(&jobdir.work.join("tmp"))),
        ("TMPDIR", text(&jobdir.work.join("tmp"))),
        ("ANSIBLE_CONFIG", text(&files.configuration)),
        ("ANSIBLE_HOME", text(&jobdir.dot_ansible)),
        ("SLUICE_LOG_SOCKET", text(&files.socket)),
        ("ZUUL_JOBDIR", text(&jobdir.root)),
        ("ZUUL_JOB_FAILURE_OUTPUT", "[]".to_owned()),
        ("ZUUL_ANSIBLE_SPLIT_STREAMS", "False".to_owned()),
        ("ZUUL_OUTPUT_MAX_BYTES", shared.settings.log_bytes_max.to_string()),
    ]);
    if let Some(agent) = shared.agent {
        environment.insert("SSH_AUTH_SOCK", text(&agent.socket));
        environment.insert("SSH_AGENT_PID", agent.id.to_string());
    }
    let state = jobdir.state_of(&playbook.state_owner())?;
    let sandbox =
        Sandbox { settings: shared.settings, jobdir, trust: playbook.trust, state: &state };
    let mut command = sandbox.command(&shared.settings.program("ansible-playbook"), &environment);
    command.arg("-i").arg(&files.inventory);
    if files.secrets.exists() {
        command.arg("-e").arg(format!("@{}", files.secrets.display()));
    }
    command.arg("-e").arg(format!("@{}", files.vars.display())).arg(&playbook.file);
    Group::spawn(&mut command)
}

/// The files of one playbook.
struct Files {
    directory: PathBuf,
    configuration: PathBuf,
    inventory: PathBuf,
    vars: PathBuf,
    secrets: PathBuf,
    socket: PathBuf,
}

impl Files {
    fn of(jobdir: &Jobdir, playbook: &Prepared) -> Self {
        let directory = jobdir.ansible.join(playbook.name());
        Self {
            configuration: directory.join("ansible.cfg"),
            inventory: directory.join("inventory.yaml"),
            vars: directory.join("vars.json"),
            // In memory, and gone as soon as they are read.
            secrets: jobdir.runtime.root.join(format!("{}-secrets.json", playbook.name())),
            socket: jobdir.runtime.root.join(format!("{}.sock", playbook.name())),
            directory,
        }
    }

    fn write(
        &self,
        shared: &Shared<'_>,
        playbook: &Prepared,
        inputs: &Inputs<'_>,
    ) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        std::fs::write(&self.configuration, configuration(shared, playbook))?;
        std::fs::write(&self.inventory, inputs.inventory.to_string())?;
        std::fs::write(&self.vars, json!(inputs.vars).to_string())?;
        if !inputs.secrets.is_empty() {
            write_private(&self.secrets, json!(inputs.secrets).to_string().as_bytes())?;
        }
        Ok(())
    }

    fn forget_secrets(&self) {
        // Missing is what is wanted.
        let _ = std::fs::remove_file(&self.secrets);
    }
}

fn configuration(shared: &Shared<'_>, playbook: &Prepared) -> String {
    let (settings, jobdir) = (shared.settings, shared.jobdir);
    let plugins = settings.content.join("plugins");
    let own_roles = settings.content.join("roles");
    let roles: Vec<String> = playbook
        .roles_path
        .iter()
        .chain([&own_roles])
        .map(|path| path.display().to_string())
        .collect();
    let state = jobdir.dot_ansible.display();
    format!(
        "[defaults]\n\
         action_plugins = {plugins}/action\n\
         callback_plugins = {plugins}/callback\n\
         stdout_callback = zuul_stream\n\
         bin_ansible_callbacks = False\n\
         roles_path = {roles}\n\
         local_tmp = {state}/local_tmp\n\
         fact_caching = jsonfile\n\
         fact_caching_connection = {facts}\n\
         gathering = smart\n\
         forks = {forks}\n\
         timeout = 30\n\
         retry_files_enabled = False\n\
         localhost_warning = False\n\
         deprecation_warnings = False\n\
         system_warnings = False\n\
         nocows = True\n\
         [inventory]\n\
         enable_plugins = ansible.builtin.yaml\n\
         unparsed_warning = False\n\
         [connection]\n\
         pipelining = True\n\
         [ssh_connection]\n\
         pipelining = True\n\
         retries = {retries}\n\
         control_path = {control}/%%C\n\
         ssh_args = -o ControlMaster=auto -o ControlPersist=60s -o PermitLocalCommand=no\n",
        plugins = plugins.display(),
        facts = jobdir.facts.display(),
        roles = roles.join(":"),
        forks = settings.forks,
        retries = settings.ssh_retries,
        control = jobdir.runtime.control.display(),
    )
}
