//! Runs one `ansible-playbook` process: writes its files, watches it, and determines how it ended.

use crate::broker::Broker;
use crate::build_result::PlaybookEnd;
use crate::code_trust::CodeTrust;
use crate::disk::DiskWatch;
use crate::job::StopSignal;
use crate::jobdir::{Jobdir, TRUSTED, write_private};
use crate::joblog::JobLog;
use crate::playbook_failure::FailureWatch;
use crate::process::{Group, read_bounded};
use crate::process_watch::ProcessWatch;
use crate::receiver::{CallbackMessage, LINGER, PlaybookRecord, Receiver};
use crate::sandbox::{MessageSockets, Sandbox};
use crate::settings::AnsibleSettings;
use crate::ssh::Agent;
use crate::time_limits::TimeLimit;
use serde_json::{Map, Value, json};
use sluice_config::pattern::Pattern;
use sluice_model::BranchName;
use sluice_model::build::PlaybookPhase;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// The maximum size of Ansible's own output in bytes. Output of tasks comes over the socket.
const PRINTED_BYTES_MAX: usize = 64 << 10;
/// What Ansible prints when one of its worker processes ended without an answer, as after a kill
/// for lack of memory. Ansible then ends with exit code 1, whatever the task may ignore or rescue.
const DEAD_WORKER: &str = "A worker was found in a dead state";
/// Ansible's exit code for unreachable hosts, and for files that it cannot read.
const UNREACHABLE_OR_UNREADABLE: i32 = 4;

/// The playbook index of the run that expands variables; no playbook of a job has it.
pub const FREEZE_INDEX: usize = 9_999;

/// A playbook that is checked out and ready to run, with its roles.
#[derive(Debug)]
pub struct PreparedPlaybook {
    /// The phase in which it runs.
    pub phase: PlaybookPhase,
    /// Its index in the phase, from 0.
    pub index: usize,
    /// Whether it is trusted.
    pub trust: CodeTrust,
    /// `host/project/path`.
    pub canonical: String,
    /// The branch that it is taken from.
    pub branch: BranchName,
    /// The path of its file.
    pub file: PathBuf,
    /// The directories that are searched for roles.
    pub roles_path: Vec<PathBuf>,
    /// Whether it sees any secret.
    pub has_secrets: bool,
    /// The inheritance depth of the job definition that lists it.
    pub nesting_level: u32,
    /// Whether it runs even for a stopped build.
    pub cleanup: bool,
    /// The files below the home directory that earlier playbooks may leave for it.
    pub preserve_home_paths: Vec<String>,
}

impl PreparedPlaybook {
    /// Returns the name of its directory: `pre_playbook_0`, `playbook_0` or `post_playbook_0`, with
    /// the index in its phase.
    pub fn name(&self) -> String {
        match self.phase {
            PlaybookPhase::Run => format!("playbook_{}", self.index),
            phase => format!("{}_playbook_{}", phase.as_str(), self.index),
        }
    }

    /// Returns its description in banners: `[trusted : host/project/path@branch]`.
    pub fn banner(&self) -> String {
        format!("[{} : {}@{}]", self.trust.as_str(), self.canonical, self.branch)
    }

    /// Returns the key under which the playbook shares its home directory and Ansible's state with
    /// others, for [`Jobdir::state_of`]: one for all trusted playbooks, and another for all
    /// untrusted ones without secrets. An untrusted playbook with secrets, and the run that expands
    /// variables, have their own.
    ///
    /// Like in Zuul, a playbook finds the home directory of the playbooks before it. Here this
    /// holds only for playbooks with the same rights. Each untrusted playbook with secrets may
    /// belong to a different job definition.
    pub fn state_owner(&self) -> String {
        match (self.trust, self.has_secrets || self.index == FREEZE_INDEX) {
            (CodeTrust::Trusted, _) => TRUSTED.to_owned(),
            (CodeTrust::Untrusted, false) => "untrusted".to_owned(),
            (CodeTrust::Untrusted, true) => self.name(),
        }
    }

    /// Returns whether it is privileged (trusted or with secrets), and so sees job variables only
    /// in expanded form.
    pub fn sees_frozen(&self) -> bool {
        self.trust == CodeTrust::Trusted || self.has_secrets
    }
}

/// The inputs of one playbook run.
pub struct PlaybookInputs<'a> {
    /// The inventory.
    pub inventory: &'a Value,
    /// The extra variables, which override all others.
    pub vars: Map<String, Value>,
    /// The plaintext secrets by variable name.
    pub secrets: Map<String, Value>,
    /// The hosts about which it knows the basic facts from its first task on, whether it gathers
    /// facts or not, as after Zuul's setup. Only facts that are not cached are gathered before.
    pub known_hosts: Vec<&'a str>,
    /// The time limit.
    pub limit: TimeLimit,
    /// The memory that its entry in `job-output.json` may take, in bytes.
    pub record_bytes_max: usize,
    /// Failure patterns: the build fails if the output matches one.
    pub failure_output: &'a [Pattern],
    /// What commands do with their standard error.
    pub streams: CommandStreams,
    /// The signal that stops it; `None` for a cleanup playbook after a stop.
    pub stop: Option<&'a mut StopSignal>,
}

/// What the tasks `command` and `shell` do with the standard error of a command
/// (`ansible-split-streams`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandStreams {
    /// It is part of standard output, in the order of the lines.
    Merged,
    /// The result has it as `stderr`, apart from `stdout`.
    Split,
}

/// The environment that all playbooks of a build share.
pub struct PlaybookContext<'a> {
    /// The executor's settings.
    pub settings: &'a AnsibleSettings,
    /// The job's version of Ansible; the executor has its Python environment.
    pub ansible_version: &'a str,
    /// The build's directories.
    pub jobdir: &'a Jobdir,
    /// The agent with the build's keys, if there are any.
    pub agent: Option<&'a Agent>,
    /// The way of untrusted playbooks to the network.
    pub broker: &'a Broker,
    /// Detects that the build exceeds its disk limit.
    pub disk: &'a DiskWatch,
}

/// The outcome of a playbook run.
pub struct PlaybookOutcome {
    /// How it ended.
    pub end: PlaybookEnd,
    /// Its entry in `job-output.json`.
    pub record: PlaybookRecord,
    /// The hosts that became unreachable.
    pub unreachable: BTreeSet<String>,
    /// The failure pattern that its output matched, if any.
    pub failure_output: Option<String>,
    /// What failed in it.
    pub failure: FailureWatch,
}

impl PlaybookOutcome {
    /// Returns the outcome of a playbook that ended so and did nothing yet. Its entry in
    /// `job-output.json` may take `record_bytes_max` bytes.
    pub fn new(end: PlaybookEnd, record_bytes_max: usize) -> Self {
        Self {
            end,
            record: PlaybookRecord::new(record_bytes_max),
            unreachable: BTreeSet::new(),
            failure_output: None,
            failure: FailureWatch::default(),
        }
    }
}

/// Runs a playbook in a sandbox to its end, writing its output to `log`. Returns how it ended, its
/// entry for `job-output.json`, the hosts that became unreachable, and the failure pattern that
/// matched. It is killed at a stop, after its time limit, or when the build's disk is full; it
/// counts as broken if it cannot be started. A matched pattern and a failed main task are passed to
/// the log's observer at once. The file with its secrets is removed as soon as Ansible has read it.
pub async fn run(
    context: &PlaybookContext<'_>,
    playbook: &PreparedPlaybook,
    inputs: PlaybookInputs<'_>,
    log: &mut JobLog<'_>,
) -> PlaybookOutcome {
    let mut outcome = PlaybookOutcome {
        failure: FailureWatch::new(&inputs.limit.name, &context.jobdir.root),
        ..PlaybookOutcome::new(PlaybookEnd::Aborted, inputs.record_bytes_max)
    };
    let files = PlaybookFiles::new(context.jobdir, playbook);
    outcome.end = match files.write(context, playbook, &inputs) {
        Ok(()) => watch(context, playbook, &files, inputs, log, &mut outcome).await,
        Err(error) => PlaybookEnd::Broken { why: format!("could not write its files: {error}") },
    };
    files.remove_secrets();
    let _ = std::fs::remove_file(&files.socket);
    outcome
}

/// Starts the playbook's process, whose files must be written, and handles its messages until it
/// has ended. Returns how it ended. Writes output to `log`, and adds results, lost hosts and the
/// matched failure pattern to `outcome`, but not the end. Kills the process when it is stopped,
/// runs out of time or fills its disk.
async fn watch(
    context: &PlaybookContext<'_>,
    playbook: &PreparedPlaybook,
    files: &PlaybookFiles,
    inputs: PlaybookInputs<'_>,
    log: &mut JobLog<'_>,
    outcome: &mut PlaybookOutcome,
) -> PlaybookEnd {
    let started = Receiver::open(&files.socket)
        .and_then(|receiver| Ok((receiver, spawn(context, playbook, files, &inputs)?)));
    let (mut receiver, mut ansible) = match started {
        Ok(started) => started,
        Err(error) => {
            return PlaybookEnd::Broken { why: format!("could not start bubblewrap: {error}") };
        }
    };
    let printed = [
        ansible.stdout().map(|pipe| tokio::spawn(read_bounded(pipe, PRINTED_BYTES_MAX))),
        ansible.stderr().map(|pipe| tokio::spawn(read_bounded(pipe, PRINTED_BYTES_MAX))),
    ];
    let processes = ProcessWatch::start(ansible.id(), context.settings.process_limits);
    let deadline = tokio::time::sleep(inputs.limit.left);
    tokio::pin!(deadline);
    let mut stop = inputs.stop;
    let (mut status, mut killed, mut has_started, mut lost_hosts) = (None, None, false, false);
    loop {
        let running = status.is_none() && killed.is_none();
        tokio::select! {
            message = receiver.next() => match message {
                Some(CallbackMessage::Started) => {
                    has_started = true;
                    // Ansible has read all files.
                    files.remove_secrets();
                }
                Some(CallbackMessage::Log { text }) => {
                    log.say_output(&text);
                    if log.must_fail() && killed.is_none() {
                        killed = Some(PlaybookEnd::SecretExposed);
                        log.say("The output contains a secret: the build is stopped (secret-exposure: fail)");
                        ansible.kill();
                    }
                    if let (None, Some(found)) = (&outcome.failure_output, matching_pattern(inputs.failure_output, &text)) {
                        log.say(&format!("Early failure in job, matched regex \"{found}\""));
                        log.will_fail();
                        outcome.failure_output = Some(found.to_owned());
                    }
                }
                Some(CallbackMessage::Unreachable { host }) => {
                    lost_hosts = true;
                    // A process in the sandbox can send any name, and later inventories contain
                    // these names.
                    if is_host(inputs.inventory, &host) {
                        outcome.unreachable.insert(host);
                    }
                }
                Some(CallbackMessage::Failing) if playbook.phase == PlaybookPhase::Run => log.will_fail(),
                Some(CallbackMessage::Failed(failure)) => outcome.failure.add(failure),
                Some(other) => {
                    match &other {
                        CallbackMessage::Play { name, .. } => outcome.failure.start_play(name),
                        CallbackMessage::Task { name, .. } => outcome.failure.start_task(name),
                        _ => {}
                    }
                    outcome.record.add(other);
                }
                None => break,
            },
            ended = ansible.wait(), if status.is_none() => {
                status = Some(ended);
                receiver.finish();
            }
            refusal = context.broker.refusal() => log.say(&refusal),
            () = context.disk.full(), if running => {
                killed = Some(PlaybookEnd::DiskFull);
                log.say("The build exceeded its disk limit and is killed");
                ansible.kill();
            }
            limit = processes.exceeded(), if running => {
                log.say(&format!("The playbook exceeded its limit of {limit} on the executor and is killed"));
                killed = Some(PlaybookEnd::OverLimit { limit });
                ansible.kill();
            }
            () = &mut deadline, if running => {
                killed = Some(PlaybookEnd::TimedOut);
                log.say(&format!("Ran out of time: {}; the playbook is killed", inputs.limit.name));
                ansible.kill();
            }
            reason = stopped(stop.as_deref_mut()), if running => {
                killed = Some(PlaybookEnd::Aborted);
                log.say(&format!("The build is stopped: {reason}"));
                ansible.kill();
            }
        }
    }
    for refusal in context.broker.waiting_refusals().await {
        log.say(&refusal);
    }
    let mut output = String::new();
    for mut reader in printed.into_iter().flatten() {
        match tokio::time::timeout(LINGER, &mut reader).await {
            Ok(text) => output.push_str(&text.unwrap_or_default()),
            // A process outside of the sandbox still holds the pipe.
            Err(_) => reader.abort(),
        }
    }
    if !output.trim().is_empty() {
        log.say_output(output.trim());
        outcome.failure.observe_output(output.trim());
    }
    match (killed, status) {
        (Some(killed), _) => killed,
        (None, Some(Ok(status))) => classify_exit(status, has_started, lost_hosts, &output),
        (None, Some(Err(error))) => {
            PlaybookEnd::Broken { why: format!("could not wait for its process: {error}") }
        }
        (None, None) => PlaybookEnd::Broken { why: "its log ended before its process".to_owned() },
    }
}

/// Returns the text of the failure pattern that matches the output of a host; `None` if none does.
/// Output is what follows the first ` | ` in a line of `text`; other lines are ignored. The first
/// matching line counts, and of its patterns the first.
fn matching_pattern<'a>(expressions: &'a [Pattern], text: &str) -> Option<&'a str> {
    // Only lines of a host are output; names of tasks and plays are not.
    let mut output = text.lines().filter_map(|line| line.split_once(" | "));
    let occurs =
        |(_, output): (&str, &str)| expressions.iter().find(|expression| expression.finds(output));
    output.find_map(occurs).map(Pattern::as_str)
}

/// Returns whether the inventory has a host of this name.
fn is_host(inventory: &Value, name: &str) -> bool {
    inventory.pointer("/all/hosts").and_then(|hosts| hosts.get(name)).is_some()
}

/// Waits until a stop is requested and returns the reason; waits forever if this playbook cannot be
/// stopped.
async fn stopped(stop: Option<&mut StopSignal>) -> String {
    match stop {
        Some(stop) => stop.stopped().await,
        None => std::future::pending().await,
    }
}

/// Determines how a playbook that was not killed here ended. It is unreachable if its exit code
/// says so and it lost hosts (`lost_hosts`). It is broken if a signal ended it, which an exit code
/// from 128 on also means, if one of its worker processes was killed, or if bubblewrap, to judge by
/// `output`, failed before Ansible started (`has_started`). Any other exit code is a normal end,
/// also one that is not 0.
fn classify_exit(
    status: ExitStatus,
    has_started: bool,
    lost_hosts: bool,
    output: &str,
) -> PlaybookEnd {
    match (status.code(), status.signal()) {
        (Some(UNREACHABLE_OR_UNREADABLE), _) if lost_hosts => PlaybookEnd::Unreachable,
        (Some(code), _) if code >= 128 => {
            PlaybookEnd::Broken { why: format!("Ansible was killed by signal {}", code - 128) }
        }
        (Some(1), _) if output.contains(DEAD_WORKER) => PlaybookEnd::Broken {
            why: "a worker process of Ansible was killed, perhaps for lack of memory".to_owned(),
        },
        (Some(1), _) if !has_started && output.starts_with("bwrap:") => {
            PlaybookEnd::Broken { why: output.trim().to_owned() }
        }
        (Some(code), _) => PlaybookEnd::Finished { code },
        (None, signal) => PlaybookEnd::Broken {
            why: format!("its sandbox was killed by signal {}", signal.unwrap_or_default()),
        },
    }
}

/// Starts `ansible-playbook` in the sandbox, as a process group that is killed when the returned
/// value is dropped. The playbook's files must be written; secrets are passed only if their file
/// exists. Creates the playbook's state directories.
fn spawn(
    context: &PlaybookContext<'_>,
    playbook: &PreparedPlaybook,
    files: &PlaybookFiles,
    inputs: &PlaybookInputs<'_>,
) -> std::io::Result<Group> {
    let jobdir = context.jobdir;
    let patterns: Vec<&str> = inputs.failure_output.iter().map(Pattern::as_str).collect();
    let splits = inputs.streams == CommandStreams::Split;
    let text = |path: &Path| path.display().to_string();
    let mut environment = BTreeMap::from([
        ("HOME", text(&jobdir.home)),
        ("TMP", text(&jobdir.work.join("tmp"))),
        ("TMPDIR", text(&jobdir.work.join("tmp"))),
        ("ANSIBLE_CONFIG", text(&files.configuration)),
        ("ANSIBLE_HOME", text(&jobdir.dot_ansible)),
        ("SLUICE_LOG_SOCKET", text(&files.socket)),
        ("ZUUL_JOBDIR", text(&jobdir.root)),
        ("ZUUL_JOB_FAILURE_OUTPUT", json!(patterns).to_string()),
        ("ZUUL_ANSIBLE_SPLIT_STREAMS", python_bool(splits).to_owned()),
        ("ZUUL_OUTPUT_MAX_BYTES", context.settings.log_bytes_max.to_string()),
    ]);
    if let Some(agent) = context.agent {
        environment.insert("SSH_AUTH_SOCK", text(&agent.socket));
        environment.insert("SSH_AGENT_PID", agent.id.to_string());
    }
    let state = jobdir.state_of(&playbook.state_owner())?;
    let (settings, ansible_version) = (context.settings, context.ansible_version);
    let sandbox = Sandbox {
        settings,
        jobdir,
        trust: playbook.trust,
        ansible_version,
        state: &state,
        control: &jobdir.control_of(playbook.trust)?,
        messages: MessageSockets::Visible,
    };
    let ansible = settings.program(ansible_version, "ansible-playbook");
    let mut command = match playbook.trust {
        CodeTrust::Trusted => sandbox.command(&ansible, &environment),
        CodeTrust::Untrusted => {
            environment.extend(proxy_environment());
            let mut command = sandbox.command(Path::new(PYTHON), &environment);
            command.arg("-ISE").arg(context.settings.content.join("bin/network_relay.py"));
            command.arg(jobdir.runtime.broker_socket()).arg(PROXY_PORT.to_string()).arg(ansible);
            command
        }
    };
    command.arg("-i").arg(&files.inventory);
    if files.secrets.exists() {
        command.arg("-e").arg(format!("@{}", files.secrets.display()));
    }
    command.arg("-e").arg(format!("@{}", files.vars.display()));
    if files.setup.exists() {
        command.arg(&files.setup);
    }
    command.arg(&playbook.file);
    Group::spawn(&mut command)
}

/// The system's Python, which every sandbox sees.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
/// The port of the broker on the loopback of a sandbox, which has its own ports.
pub(crate) const PROXY_PORT: u16 = 3128;

/// Returns the variables by which programs in a sandbox find the broker. Some read only one of the
/// two spellings. What playbooks serve on the sandbox's loopback needs no proxy.
pub(crate) fn proxy_environment() -> impl Iterator<Item = (&'static str, String)> {
    let url = format!("http://127.0.0.1:{PROXY_PORT}");
    let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
    let proxies = proxies.into_iter().map(move |name| (name, url.clone()));
    let without = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,::1".to_owned()));
    proxies.chain(without)
}

/// Returns how Python writes a boolean.
pub(crate) fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// The paths of one playbook's files.
struct PlaybookFiles {
    /// The directory of the files.
    directory: PathBuf,
    /// The path of `ansible.cfg`.
    configuration: PathBuf,
    /// The path of the inventory.
    inventory: PathBuf,
    /// The path of the executor's own playbook that gathers facts, which runs first if it exists.
    /// The callback plugin knows it by its name, and shows nothing of it.
    setup: PathBuf,
    /// The path of the extra variables.
    vars: PathBuf,
    /// The path of the secrets.
    secrets: PathBuf,
    /// The path of the socket on which Ansible reports results.
    socket: PathBuf,
}

impl PlaybookFiles {
    /// Returns the paths of the files that one playbook run needs; creates none of them.
    fn new(jobdir: &Jobdir, playbook: &PreparedPlaybook) -> Self {
        let directory = jobdir.ansible.join(playbook.name());
        Self {
            configuration: directory.join("ansible.cfg"),
            inventory: directory.join("inventory.yaml"),
            setup: directory.join("setup.yaml"),
            vars: directory.join("vars.json"),
            // In memory, and removed as soon as Ansible has read it.
            secrets: jobdir.runtime.root.join(format!("{}-secrets.json", playbook.name())),
            socket: jobdir.runtime.messages.join(format!("{}.sock", playbook.name())),
            directory,
        }
    }

    /// Writes configuration, inventory and variables of one playbook run, its secrets if it has
    /// any, and the playbook that gathers facts if it needs some. An error if the file of the
    /// secrets exists; other files are replaced.
    fn write(
        &self,
        context: &PlaybookContext<'_>,
        playbook: &PreparedPlaybook,
        inputs: &PlaybookInputs<'_>,
    ) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        std::fs::write(&self.configuration, configuration(context, playbook))?;
        std::fs::write(&self.inventory, inputs.inventory.to_string())?;
        std::fs::write(&self.vars, json!(inputs.vars).to_string())?;
        let facts = context.jobdir.state_of(&playbook.state_owner())?.facts;
        let mut unknown = inputs.known_hosts.clone();
        unknown.retain(|host| !facts.join(host).exists());
        if !unknown.is_empty() {
            std::fs::write(&self.setup, setup_playbook(&unknown).to_string())?;
        }
        if !inputs.secrets.is_empty() {
            if playbook.trust == CodeTrust::Trusted {
                context.jobdir.keep_trusted_facts()?;
            }
            write_private(&self.secrets, json!(inputs.secrets).to_string().as_bytes())?;
        }
        Ok(())
    }

    /// Removes the file with the secrets; a failure is ignored.
    fn remove_secrets(&self) {
        // The file may already be removed.
        let _ = std::fs::remove_file(&self.secrets);
    }
}

/// Returns the playbook that gathers the basic facts about these hosts, as Zuul does before the
/// first playbook. What goes wrong in it is left to the job's own plays to find.
fn setup_playbook(hosts: &[&str]) -> Value {
    json!([{
        "hosts": hosts,
        "gather_facts": false,
        "ignore_errors": true,
        "ignore_unreachable": true,
        "tasks": [{ "ansible.builtin.setup": { "gather_subset": ["!all"] } }],
    }])
}

/// Returns the content of the run's `ansible.cfg`: the executor's plugins, the playbook's role
/// directories before the executor's own, and the limits of the settings.
fn configuration(context: &PlaybookContext<'_>, playbook: &PreparedPlaybook) -> String {
    let (settings, jobdir) = (context.settings, context.jobdir);
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
         library = {plugins}/modules\n\
         module_utils = {plugins}/module_utils\n\
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
