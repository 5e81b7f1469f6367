//! Runs one attempt of a job: prepares the build, runs the pre-run, run and post-run playbooks, and
//! returns the result (Z7.1).

mod collect;
mod end;
mod start_error;

use self::end::{ended, write_record};
use self::start_error::StartError;
use crate::broker::Broker;
use crate::build_result::{Next, PlaybookEnd, PostPlaybookKind, ResultTracker};
use crate::content::AnsibleContent;
use crate::disk::DiskWatch;
use crate::external_host;
use crate::frozen_vars::{self, FrozenVars};
use crate::home_files;
use crate::id_token;
use crate::include;
use crate::inventory::{self, JobVars};
use crate::job::{AttemptScope, JobAttempt, Observer, RepositorySources, Runner, StopSignal};
use crate::jobdir::{self, Jobdir};
use crate::joblog::{JobLog, now};
use crate::playbook::{
    self, CommandStreams, FREEZE_INDEX, PlaybookContext, PlaybookInputs, PreparedPlaybook,
    python_bool,
};
use crate::playbook_checkouts::{self, Playbooks};
use crate::receiver::RECORD_BYTES_MAX;
use crate::restricted_vars::{VarScope, is_allowed, restrict};
use crate::returned_data::{ReturnedData, part_for_record};
use crate::sandbox::{CodeTrust, probe, write_accounts};
use crate::settings::{AnsibleSettings, SetupError};
use crate::ssh::{self, Agent, AgentKeys};
use crate::time_limits::{TimeLimit, TimeLimits};
use crate::vars::{to_map, unsafe_texts, zuul};
use crate::workspace::{self, PlacedRepository};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sluice_config::pattern::Pattern;
use sluice_model::BranchName;
use sluice_model::build::{BuildResult, Pause, PlaybookPhase, PlaybookStart, RunEnd};
use sluice_model::git::Oid;
use sluice_model::job::{ANSIBLE_VERSIONS, DEFAULT_ANSIBLE_VERSION, Playbook, SecretUse};
use sluice_records::artifact::complete_artifacts;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// Runs jobs with Ansible. Each playbook is a separate process in its own sandbox.
#[derive(Debug)]
pub struct Ansible {
    /// The settings of this machine.
    settings: AnsibleSettings,
}

impl Ansible {
    /// Checks that this machine can run Ansible in a sandbox, removes runtime directories of dead
    /// executors, and unpacks the executor's plugins and roles below `settings.content`. From then
    /// on the settings name the unpacked directory there. An error if Ansible or bubblewrap does
    /// not work, a path for playbooks cannot be used, or the content cannot be written.
    pub async fn new(mut settings: AnsibleSettings) -> Result<Self, SetupError> {
        let programs =
            ANSIBLE_VERSIONS.map(|version| settings.program(version, "ansible-playbook"));
        if let Some(path) = programs.into_iter().find(|program| !program.is_file()) {
            return Err(SetupError::NoAnsible { path });
        }
        settings.check_paths()?;
        probe().await?;
        jobdir::remove_dead_runtimes(&settings.runtime);
        let python = settings.program(DEFAULT_ANSIBLE_VERSION, "python");
        settings.content = AnsibleContent::unpack(&settings.content, &python).await?.root;
        Ok(Self { settings })
    }

    /// Returns the settings, with the unpacked content directory.
    pub fn settings(&self) -> &AnsibleSettings {
        &self.settings
    }
}

#[async_trait]
impl Runner for Ansible {
    /// Runs one attempt of a job and returns how it ended. `root` is the build's directory, which
    /// must not contain a log yet; the caller archives the logs in it and removes it. A stop before
    /// the first playbook ends the attempt as `ABORTED`. A failure before it is `CONFIG_ERROR` if
    /// the job has to be changed, otherwise `RETRY` or `DISK_FULL`. The message is in the end and
    /// in the log; if the job directory cannot be created, there is no log. Known secrets are
    /// masked in both.
    async fn execute(
        &self,
        job: &JobAttempt<'_>,
        sources: &dyn RepositorySources,
        root: &Path,
        mut stop: StopSignal,
        observer: &dyn Observer,
    ) -> RunEnd {
        let made =
            Jobdir::make(root, &self.settings.runtime, &job.order.build).and_then(|jobdir| {
                let exposure = job.job.run_time.secret_exposure;
                let limit = self.settings.log_bytes_max;
                Ok((JobLog::create(&jobdir, limit, exposure, observer)?, jobdir))
            });
        let (mut log, jobdir) = match made {
            Ok(made) => made,
            Err(error) => {
                return ended(
                    disk_result(&error),
                    Some(format!("The job directory could not be created: {error}")),
                );
            }
        };
        job.secrets.values().for_each(|value| log.add_secret(value));
        // As in Zuul, a job may print what its parents returned as secret; it is only masked.
        job.inherited.secret_data.values().for_each(|value| log.redactor.add(value));
        log.say("Job console starting");
        let read = async {
            let patience = Duration::from_secs(self.settings.host_wait_seconds);
            let host = external_host::of_job(job, patience, &mut log).await?;
            let frozen = include::add_file_vars(job, sources, &jobdir).await;
            Ok::<_, StartError>((frozen.map_err(StartError::Include)?, host))
        };
        let read = tokio::select! {
            read = read => Some(read),
            _ = stop.stopped() => None,
        };
        let (frozen, host, refused) = match read {
            Some(Ok((frozen, host))) => (frozen, host, None),
            Some(Err(error)) => (Cow::Borrowed(job.job), None, Some(Some(Err(error)))),
            None => (Cow::Borrowed(job.job), None, Some(None)),
        };
        // A deployment job has its host in place of nodes, and nodes' key does not open it.
        let job = &match &host {
            Some(host) => JobAttempt {
                job: &frozen,
                nodes: std::slice::from_ref(host),
                node_key: None,
                ..*job
            },
            None => JobAttempt { job: &frozen, ..*job },
        };
        let attempt = Attempt { settings: &self.settings, job, sources, jobdir: &jobdir, observer };
        let prepared = match refused {
            Some(refused) => refused,
            None => tokio::select! {
                prepared = attempt.prepare(&mut log) => Some(prepared),
                _ = stop.stopped() => None,
            },
        };
        let result = match prepared {
            Some(Ok(stage)) => match job.scope {
                AttemptScope::Whole => stage.run_phases(&mut log, &mut stop).await,
                AttemptScope::CollectLogs => stage.collect_logs(&mut log, &mut stop).await,
            },
            Some(Err(error)) => {
                let detail = chain(&error);
                log.say(&detail);
                ended(error.result(), Some(log.redactor.text(&detail)))
            }
            None => ended(stop.result(), stop.reason()),
        };
        jobdir.remove_runtime();
        log.say(&format!("Job ended: {}", result.result));
        result
    }
}

/// The inputs of one attempt.
struct Attempt<'a> {
    /// The executor's settings.
    settings: &'a AnsibleSettings,
    /// The job, with variable files included.
    job: &'a JobAttempt<'a>,
    /// Provides the packs of repositories.
    sources: &'a dyn RepositorySources,
    /// The build's directories.
    jobdir: &'a Jobdir,
    /// Receives the events of the build.
    observer: &'a dyn Observer,
}

/// The build's way to the network, and the connections to its nodes; dropping it closes them.
struct ConnectedNodes {
    /// The agent with the build's keys; `None` without any.
    agent: Option<Agent>,
    /// The shared SSH connections.
    _shared: Vec<ssh::SharedConnection>,
    /// The only way of untrusted playbooks to the network.
    broker: Broker,
    /// The Python path by host name.
    interpreters: BTreeMap<String, String>,
    /// Log lines about nodes that could not be reached.
    troubles: Vec<String>,
}

impl<'a> Attempt<'a> {
    /// Prepares everything that playbooks need: repositories, playbooks, secrets, nodes and
    /// variables. Writes the inventory and the tested commits to the logs, and its progress to
    /// `log`. The returned value holds the connections to the nodes and watches the disk usage. A
    /// node that cannot be reached is only logged; anything else that is missing is an error.
    async fn prepare(&self, log: &mut JobLog<'_>) -> Result<PreparedBuild<'a>, StartError> {
        let (job, jobdir) = (self.job, self.jobdir);
        inventory::check_names(job)?;
        let version = job.job.ansible_version();
        if !ANSIBLE_VERSIONS.contains(&version) {
            return Err(StartError::AnsibleVersion { version: version.to_owned() });
        }
        write_accounts(jobdir)?;
        self.check_secrets()?;
        log.say("Cloning repos into workspace");
        let repositories = async {
            Ok::<_, StartError>(workspace::place_repositories(job, self.sources, jobdir).await?)
        };
        let playbooks = async {
            Ok::<_, StartError>(
                playbook_checkouts::prepare_playbooks(job, self.sources, jobdir).await?,
            )
        };
        let (placed, playbooks, nodes) =
            futures::try_join!(repositories, playbooks, self.connect())?;
        log.say("Preparing playbooks");
        nodes.troubles.iter().for_each(|trouble| log.say(trouble));
        let zuul = zuul(job, &placed, jobdir, self.settings, playbooks.context.clone());
        self.write_build_info(&placed, &zuul, &nodes)?;
        let own_project = &job.order.change.key.project;
        Ok(PreparedBuild {
            attempt: Attempt {
                settings: self.settings,
                job,
                sources: self.sources,
                jobdir,
                observer: self.observer,
            },
            zuul,
            tested: placed
                .iter()
                .find(|placed| placed.project == *own_project)
                .map(|placed| placed.commit.clone()),
            playbooks,
            nodes,
            frozen: FrozenVars::new(),
            unreachable: BTreeSet::new(),
            left_files: BTreeSet::new(),
            failure_output: None,
            records: Vec::new(),
            record_bytes_left: RECORD_BYTES_MAX,
            disk: DiskWatch::start(jobdir.writable(), self.settings.disk_bytes_max),
        })
    }

    /// Checks that every secret of the job was decrypted, and that its tokens can be issued; the
    /// error names the first one of which this is not so.
    fn check_secrets(&self) -> Result<(), StartError> {
        let frozen = self.job.job;
        for playbook in frozen.pre_run.iter().chain(&frozen.run).chain(&frozen.post_run) {
            for secret in playbook.secrets.values() {
                let (name, project) = (secret.secret.clone(), secret.project.to_string());
                if let Some(token) = &secret.oidc {
                    id_token::check(token).map_err(|source| StartError::Token {
                        secret: name,
                        project,
                        source,
                    })?;
                } else if self.job.secrets.get(secret).is_none() {
                    return Err(StartError::Secret { secret: name, project });
                }
            }
        }
        Ok(())
    }

    /// Writes the SSH configuration, opens the broker, starts the SSH agent and opens a shared
    /// connection to each node. Without keys there is no agent. Unreachable nodes are no error; an
    /// executor without a key for nodes is one. To collect logs, also ends what the lost executor has
    /// started on the nodes; an error if that fails. The caller has written the sandbox's accounts
    /// ([`write_accounts`]).
    async fn connect(&self) -> Result<ConnectedNodes, StartError> {
        let nodes = self.job.nodes;
        ssh::write_configuration(self.jobdir, self.settings, nodes)?;
        let socket = self.jobdir.runtime.broker_socket();
        let mut connected = ConnectedNodes {
            agent: None,
            _shared: Vec::new(),
            broker: Broker::open(&socket, &self.settings.network, nodes, self.job.lease.clone())?,
            interpreters: BTreeMap::new(),
            troubles: Vec::new(),
        };
        let of_build = self.job.secrets.ssh_keys();
        let of_nodes = match self.job.node_key {
            _ if nodes.is_empty() || self.job.job.run_time.host.is_some() => None,
            None => return Err(StartError::NoKey),
            key => key,
        };
        if nodes.is_empty() && of_build.is_empty() {
            return Ok(connected);
        }
        let agent = Agent::start(self.jobdir, AgentKeys { of_nodes, of_build }, nodes).await?;
        if !nodes.is_empty() {
            (connected._shared, connected.interpreters, connected.troubles) =
                ssh::open_shared(self.jobdir, self.settings, &agent, nodes).await;
            if self.job.scope == AttemptScope::CollectLogs {
                ssh::end_other_sessions(self.jobdir, self.settings, &agent, nodes).await?;
            }
        }
        connected.agent = Some(agent);
        Ok(connected)
    }

    /// Writes the inventory, with variables as written and the `zuul` dictionary, to the logs and
    /// to the path in `zuul.executor.inventory_file`. Also writes the placed repositories with
    /// their commits to `workspace-repos.json` in the logs. Works once for each job directory.
    fn write_build_info(
        &self,
        placed: &[PlacedRepository],
        zuul: &Map<String, Value>,
        nodes: &ConnectedNodes,
    ) -> std::io::Result<()> {
        let jobdir = self.jobdir;
        let inventory = inventory::inventory(
            self.job,
            jobdir,
            JobVars::AsWritten,
            &nodes.interpreters,
            &BTreeSet::new(),
        );
        let text = inventory::to_readable_yaml(&inventory, zuul);
        std::fs::write(jobdir.ansible.join("inventory.yaml"), &text)?;
        std::fs::create_dir(jobdir.logs.join("zuul-info"))?;
        std::fs::write(jobdir.logs.join("zuul-info/inventory.yaml"), &text)?;
        std::fs::write(jobdir.logs.join("workspace-repos.json"), json!(placed).to_string())
    }
}

/// A build that is ready to run playbooks.
struct PreparedBuild<'a> {
    /// The inputs.
    attempt: Attempt<'a>,
    /// The `zuul` variable.
    zuul: Map<String, Value>,
    /// The checked out commit of the change's own project.
    tested: Option<Oid>,
    /// The playbooks that were not started yet.
    playbooks: Playbooks,
    /// The connections to the nodes.
    nodes: ConnectedNodes,
    /// The expanded job variables for privileged playbooks.
    frozen: FrozenVars,
    /// Hosts that were unreachable in a playbook.
    unreachable: BTreeSet<String>,
    /// Files in the home directory that no `preserve-home-paths` lists.
    left_files: BTreeSet<String>,
    /// The failure pattern that the last playbook's output matched.
    failure_output: Option<String>,
    /// The entries of `job-output.json`.
    records: Vec<Value>,
    /// The memory left for further entries, in bytes.
    record_bytes_left: usize,
    /// Checks the disk usage.
    disk: DiskWatch,
}

impl PreparedBuild<'_> {
    /// Runs the playbooks of all phases as far as earlier results allow, and returns the end of the
    /// build. Between run and post-run a build that succeeded so far pauses if its job asks for
    /// that. After a stop only cleanup playbooks run, within one short time limit, and do not
    /// change the result. Finally passes on what the job returned and writes `job-output.json`.
    async fn run_phases(mut self, log: &mut JobLog<'_>, stop: &mut StopSignal) -> RunEnd {
        let started_at = now();
        self.attempt.observer.started(started_at);
        let mut results = ResultTracker::default();
        let playbooks = std::mem::take(&mut self.playbooks.all);
        let mut limits = TimeLimits::start(self.attempt.job, self.attempt.settings);
        if playbooks.iter().any(PreparedPlaybook::sees_frozen) {
            self.expand_job_vars(log, stop).await;
        }
        for playbook in playbooks.iter().filter(|playbook| playbook.phase == PlaybookPhase::Pre) {
            if record_requested_stop(&mut results, stop) {
                break;
            }
            let (end, explanation) = self
                .run_playbook(playbook, limits.left_for_pre(), &results, Some(&mut *stop), log)
                .await;
            if results.record_pre(playbook.nesting_level, &end, &explanation) == Next::EndPhase {
                break;
            }
        }
        let run_deadline = limits.run_deadline();
        for playbook in playbooks.iter().filter(|playbook| playbook.phase == PlaybookPhase::Run) {
            if !results.may_enter_run() || record_requested_stop(&mut results, stop) {
                break;
            }
            let limit = limits.left_for_run(run_deadline);
            let (end, explanation) =
                self.run_playbook(playbook, limit, &results, Some(&mut *stop), log).await;
            if let Some(expression) = self.failure_output.take() {
                results.record_failure_output(&expression);
            }
            if results.record_run(&end, &explanation) == Next::EndPhase {
                break;
            }
        }
        if results.success() && !record_requested_stop(&mut results, stop) {
            self.pause(log, stop).await;
        }
        for playbook in playbooks.iter().filter(|playbook| playbook.phase == PlaybookPhase::Post) {
            let already_stopped = record_requested_stop(&mut results, stop);
            let kind =
                if playbook.cleanup { PostPlaybookKind::Cleanup } else { PostPlaybookKind::Normal };
            if !results.runs_post_playbook(playbook.nesting_level, kind) {
                continue;
            }
            let signal = if already_stopped { None } else { Some(&mut *stop) };
            let limit =
                if already_stopped { limits.start_or_continue_cleanup() } else { limits.of_post() };
            let (end, explanation) =
                self.run_playbook(playbook, limit, &results, signal, log).await;
            // A cleanup playbook after a stop does not change the result.
            if !already_stopped {
                results.record_post(&end, &explanation);
            }
        }
        results.set_stop_result(stop.result());
        self.finish(&results, started_at, log).await
    }

    /// Does nothing unless the job returned `zuul.pause`; the caller has checked that the build
    /// succeeded so far. Otherwise passes the job's returned data and secret data to the observer,
    /// and waits until the dependent jobs have ended or a stop is requested. The nodes are kept
    /// meanwhile.
    async fn pause(&self, log: &mut JobLog<'_>, stop: &mut StopSignal) {
        let (returned, _) = ReturnedData::read(&self.attempt.jobdir.results);
        if !returned.wants_pause() {
            return;
        }
        log.say("Pausing until the dependent jobs have ended");
        // A refusal is said at the end of the build.
        let log_url = returned.log_url().unwrap_or_default();
        log.returned_secrets(&returned);
        let (since, mut data) = (now(), log.redactor.map(returned.data));
        if let Some(log_url) = &log_url {
            complete_artifacts(&mut data, log_url);
        }
        if let Some(note) = part_for_record(&data).and_then(|part| part.note) {
            log.say(&note);
        }
        log.paused(Pause { since, data, data_object: None, log_url });
        stop.resumed().await;
        if stop.reason().is_none() {
            log.say("Resuming: the dependent jobs have ended");
        }
    }

    /// Runs one playbook within its time limit and returns how it ended, with an explanation from
    /// [`crate::playbook_failure`]; the caller adds both to the results. `results` only gives
    /// post-run playbooks `zuul_success` and `zuul_will_retry`. A stop request ends the playbook
    /// early, unless `stop` is `None`. Stores its entry for `job-output.json`, its lost hosts and
    /// the failure pattern that matched, which only main playbooks have, in `self`. From then on
    /// the log also masks what the job returned for masking.
    async fn run_playbook(
        &mut self,
        playbook: &PreparedPlaybook,
        limit: TimeLimit,
        results: &ResultTracker,
        stop: Option<&mut StopSignal>,
        log: &mut JobLog<'_>,
    ) -> (PlaybookEnd, String) {
        self.find_left_files(playbook);
        let stop_signal = stop.as_deref().cloned();
        let inventory = self.inventory(playbook);
        let expressions = &self.attempt.job.job.run_time.failure_output;
        let is_main = playbook.phase == PlaybookPhase::Run;
        let failure_output: Vec<Pattern> = expressions
            .iter()
            .filter(|_| is_main)
            .filter_map(|text| Pattern::new(text).ok())
            .collect();
        let secrets = self.secrets(playbook);
        // Tokens are new; the others are known to the log from the beginning.
        let inherited = &self.attempt.job.inherited.secret_data;
        let own = secrets.iter().filter(|(name, _)| !inherited.contains_key(*name));
        own.for_each(|(_, value)| log.add_secret(value));
        let inputs = PlaybookInputs {
            inventory: &inventory,
            vars: self.vars(playbook, results),
            secrets,
            limit,
            record_bytes_max: self.record_bytes_left,
            failure_output: &failure_output,
            streams: match self.attempt.job.job.run_time.ansible_split_streams {
                Some(true) => CommandStreams::Split,
                Some(false) | None => CommandStreams::Merged,
            },
            stop,
        };
        let (phase, banner) = (playbook.phase.banner(), playbook.banner());
        if self.attempt.job.scope == AttemptScope::Whole {
            let PreparedPlaybook { phase, index, .. } = *playbook;
            self.attempt.observer.playbook_begins(PlaybookStart { phase, index });
        }
        log.say(&format!("{phase} START: {banner}"));
        let context = self.context();
        let mut outcome = playbook::run(&context, playbook, inputs, log).await;
        self.unreachable.extend(outcome.unreachable);
        self.failure_output = outcome.failure_output;
        self.record_bytes_left = outcome.record.bytes_left();
        let head = to_map(json!({
            "playbook": playbook.canonical,
            "branch": playbook.branch,
            "phase": playbook.phase.as_str(),
            "index": playbook.index.to_string(),
            "trusted": playbook.trust == CodeTrust::Trusted,
        }));
        self.records.push(log.conceal(outcome.record.finish(head)));
        if log.end_playbook() {
            outcome.end = PlaybookEnd::SecretExposed;
        }
        // Later playbooks upload it. If it cannot be written now, the end of the build says so.
        let _ = write_record(self.attempt.jobdir, &self.records);
        log.say(&format!("{phase} END {}: {banner}", outcome.end.banner()));
        let (returned, trouble) = ReturnedData::read(&self.attempt.jobdir.results);
        returned.redactions().for_each(|value| log.add_secret(value));
        returned.secret_values().for_each(|value| log.redactor.add(value));
        if let Some(trouble) = trouble {
            log.say(&trouble);
        }
        let reason = stop_signal.and_then(|stop| stop.reason());
        // After what the playbook returned for masking is known.
        let explanation = outcome.failure.explain(
            &outcome.end,
            &playbook.phase.banner().to_lowercase(),
            &playbook.canonical,
            reason.as_deref(),
            &log.redactor,
        );
        (outcome.end, explanation)
    }

    /// Adds the files that earlier playbooks left in the home directory of `playbook`, and that its
    /// `preserve-home-paths` does not list, to those that the build warns of.
    fn find_left_files(&mut self, playbook: &PreparedPlaybook) {
        if let Ok(state) = self.attempt.jobdir.state_of(&playbook.state_owner()) {
            let found = home_files::unlisted(&state.home, &playbook.preserve_home_paths);
            self.left_files.extend(found);
        }
    }

    /// Returns what all playbooks of the build share.
    fn context(&self) -> PlaybookContext<'_> {
        let Attempt { settings, job, jobdir, .. } = self.attempt;
        let ConnectedNodes { agent, broker, .. } = &self.nodes;
        PlaybookContext {
            settings,
            ansible_version: job.job.ansible_version(),
            jobdir,
            agent: agent.as_ref(),
            broker,
            disk: &self.disk,
        }
    }

    /// Returns the inventory for one playbook: with expanded variables if it is privileged (trusted
    /// or with secrets), otherwise with variables as written. The run that expands them gets no
    /// restricted variables.
    fn inventory(&self, playbook: &PreparedPlaybook) -> Value {
        let vars = match playbook.sees_frozen() {
            true => JobVars::Frozen(&self.frozen),
            false if playbook.index == FREEZE_INDEX => JobVars::ToExpand,
            false => JobVars::AsWritten,
        };
        inventory::inventory(
            self.attempt.job,
            self.attempt.jobdir,
            vars,
            &self.nodes.interpreters,
            &self.unreachable,
        )
    }

    /// Returns the extra variables of a playbook, which override the inventory's; lowest precedence
    /// first: the job's `extra-vars`, the site's, the executor's. For a privileged playbook and the
    /// run that expands variables, the job's own ones lack Ansible's variables; a privileged one
    /// also does not expand their templates. Post-run playbooks get `zuul_success` and
    /// `zuul_will_retry` in addition, computed from `results`, the ends so far.
    fn vars(&self, playbook: &PreparedPlaybook, results: &ResultTracker) -> Map<String, Value> {
        let mut vars = Map::new();
        let mut extra = self.attempt.job.job.extra_vars.clone();
        let is_harmless = !playbook.sees_frozen() && playbook.index != FREEZE_INDEX;
        restrict(
            &mut extra,
            if is_harmless { VarScope::Unprivileged } else { VarScope::Everywhere },
        );
        let extra = Value::Object(extra);
        vars.extend(to_map(if playbook.sees_frozen() { unsafe_texts(extra) } else { extra }));
        vars.extend(self.attempt.settings.site_vars.clone());
        vars.insert("zuul".to_owned(), unsafe_texts(Value::Object(self.zuul.clone())));
        if playbook.phase == PlaybookPhase::Post {
            let order = self.attempt.job.order;
            let (returned, _) = ReturnedData::read(&self.attempt.jobdir.results);
            let will_retry =
                order.attempt < order.max_attempts && results.would_retry(returned.may_retry());
            vars.insert("zuul_success".to_owned(), json!(python_bool(results.success())));
            vars.insert("zuul_will_retry".to_owned(), json!(python_bool(will_retry)));
        }
        vars.extend(to_map(json!({
            "zuul_execution_phase": playbook.phase.as_str(),
            "zuul_execution_phase_index": playbook.index.to_string(),
            "zuul_execution_trusted": python_bool(playbook.trust == CodeTrust::Trusted),
            "zuul_execution_canonical_name_and_path": playbook.canonical,
            "zuul_execution_branch": playbook.branch,
        })));
        vars
    }

    /// Returns the plaintext secrets of one playbook by variable name, with those that parents
    /// returned; the playbook's own override these. Names of Ansible's and the executor's variables
    /// are left out. Templates in the values are marked as unsafe. Empty for the run that expands
    /// variables.
    fn secrets(&self, playbook: &PreparedPlaybook) -> Map<String, Value> {
        let job = self.attempt.job;
        let listed = match playbook.phase {
            PlaybookPhase::Pre => &job.job.pre_run,
            PlaybookPhase::Run => &job.job.run,
            PlaybookPhase::Post => &job.job.post_run,
        };
        let Some(configured) = listed.get(playbook.index) else { return Map::new() };
        // Secrets of the job definition override secret data returned by parents.
        let inherited =
            job.inherited.secret_data.iter().map(|(name, value)| (name.clone(), value.clone()));
        let own = configured.secrets.iter();
        let own = own.filter_map(|(name, secret)| {
            let value = match secret.oidc {
                Some(_) => self.token(secret, configured),
                None => job.secrets.get(secret).cloned(),
            };
            Some((name.clone(), value?))
        });
        let opened =
            inherited.chain(own).filter(|(name, _)| is_allowed(name, VarScope::Everywhere));
        opened.map(|(name, value)| (name, unsafe_texts(value))).collect()
    }

    /// Issues the OIDC token that a secret requests for one playbook; `None` if it requests none.
    fn token(&self, secret: &SecretUse, playbook: &Playbook) -> Option<Value> {
        let job = self.attempt.job;
        let issuer = job.secrets.token_issuer()?;
        // A refusal of the library leaves the variable undefined, which the playbook's error names.
        let token = issuer.issue(secret, job.order, &playbook.path, now()).ok()??;
        token.expose_text().map(|text| Value::String(text.to_owned()))
    }

    /// Stores in `self.frozen` the job variables for privileged playbooks (trusted or with
    /// secrets), which must not expand templates; so call it before the first of these. Expands
    /// them here by an untrusted run of Ansible without secrets. A host for which that fails gets
    /// no variables, and a variable that cannot be expanded is left out. Without templates the
    /// variables are stored as written and Ansible is not run.
    async fn expand_job_vars(&mut self, log: &mut JobLog<'_>, stop: &mut StopSignal) {
        let (job, jobdir) = (self.attempt.job, self.attempt.jobdir);
        let hosts: Vec<&str> = inventory::hosts(job).iter().map(|host| host.name).collect();
        if !frozen_vars::is_needed(job) {
            self.frozen = frozen_vars::literal(job, &hosts);
            return;
        }
        log.say("Running Ansible setup");
        let playbook = PreparedPlaybook {
            phase: PlaybookPhase::Pre,
            index: FREEZE_INDEX,
            // The variables may come from the change under test.
            trust: CodeTrust::Untrusted,
            canonical: "sluice/freeze".to_owned(),
            branch: BranchName::from(""),
            file: self.attempt.settings.content.join("plugins/freeze.yaml"),
            roles_path: Vec::new(),
            has_secrets: false,
            nesting_level: 0,
            cleanup: false,
            preserve_home_paths: Vec::new(),
        };
        let Ok(state) = jobdir.state_of(&playbook.state_owner()) else { return };
        if std::fs::create_dir_all(frozen_vars::directory(&state.facts)).is_err() {
            return;
        }
        let inventory = self.inventory(&playbook);
        let mut vars = self.vars(&playbook, &ResultTracker::default());
        vars.insert("sluice_freeze_names".to_owned(), json!(frozen_vars::names(job)));
        vars.insert("sluice_freeze_dest".to_owned(), json!(frozen_vars::directory(&jobdir.facts)));
        let name = format!("limit of {FREEZE_SECONDS} s for expanding variables");
        let limit = TimeLimit { left: Duration::from_secs(FREEZE_SECONDS), name };
        let inputs = PlaybookInputs {
            inventory: &inventory,
            vars,
            secrets: Map::new(),
            limit,
            // No entry in job-output.json.
            record_bytes_max: 0,
            failure_output: &[],
            streams: CommandStreams::Merged,
            stop: Some(stop),
        };
        let context = self.context();
        // A host that fails here has no variables in trusted playbooks, and fails there.
        playbook::run(&context, &playbook, inputs, log).await;
        self.frozen = frozen_vars::read(self.attempt.job, &state.facts, &hosts);
    }
}

/// The time limit for expanding variables: fact gathering and one task on all hosts.
const FREEZE_SECONDS: u64 = 120;

/// Returns whether a stop is requested, and if so records it in `results`. Call it between
/// playbooks.
fn record_requested_stop(results: &mut ResultTracker, stop: &StopSignal) -> bool {
    if let Some(reason) = stop.reason() {
        results.record_stop(&reason, stop.result());
    }
    stop.reason().is_some()
}

/// Returns `DISK_FULL` if an error says that the disk is full, otherwise `RETRY`.
fn disk_result(error: &std::io::Error) -> BuildResult {
    if error.kind() == std::io::ErrorKind::StorageFull {
        BuildResult::DiskFull
    } else {
        BuildResult::Retry
    }
}

/// Returns the message of an error with those of its causes, separated by `: `.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
