//! Runs one attempt of a job: prepares the build, runs the pre-run, run and post-run playbooks, and
//! returns the result (Z7.1).

mod collect;
mod end;
mod prepare;
mod start_error;

use self::end::{ended, log_url, write_record};
use self::prepare::ConnectedNodes;
use self::start_error::StartError;
use crate::build_result::{Next, PlaybookEnd, PostPlaybookKind, ResultTracker};
use crate::code_trust::CodeTrust;
use crate::content::AnsibleContent;
use crate::disk::DiskWatch;
use crate::external_host;
use crate::frozen_vars::{self, FrozenVars};
use crate::home_files;
use crate::include;
use crate::inventory::{self, JobVars};
use crate::job::{AttemptScope, JobAttempt, Observer, RepositorySources, Runner, StopSignal};
use crate::jobdir::{self, Jobdir};
use crate::joblog::{JobLog, now};
use crate::left_links;
use crate::playbook::{
    self, CommandStreams, FREEZE_INDEX, PlaybookContext, PlaybookInputs, PlaybookOutcome,
    PreparedPlaybook, python_bool,
};
use crate::playbook_checkouts::Playbooks;
use crate::restricted_vars::{VarScope, is_allowed, restrict};
use crate::returned_data::{ReturnedData, part_for_record};
use crate::sandbox::probe;
use crate::settings::{AnsibleSettings, SetupError};
use crate::time_limits::{TimeLimit, TimeLimits};
use crate::uploads;
use crate::vars::{mark_all_unsafe, mark_unsafe, to_map};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sluice_config::pattern::Pattern;
use sluice_model::BranchName;
use sluice_model::build::{BuildResult, Pause, PlaybookPhase, PlaybookStart, RunEnd};
use sluice_model::git::Oid;
use sluice_model::job::{
    ANSIBLE_VERSIONS, DEFAULT_ANSIBLE_VERSION, FrozenJob, Playbook, SecretUse,
};
use sluice_records::artifact::complete_artifacts;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

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
        let _runtime = jobdir.remove_runtime_at_end();
        // The nodes of a lost build are free only when its logs are collected.
        let until = (job.scope == AttemptScope::CollectLogs)
            .then(|| Instant::now() + Duration::from_secs(self.settings.collect_timeout_seconds));
        job.secrets.values().for_each(|value| log.add_secret(value));
        // As in Zuul, a job may print what its parents returned as secret; it is only masked.
        job.inherited.secret_data.values().for_each(|value| log.redactor.add(value));
        let galaxy_token = self.settings.galaxy.token.iter();
        galaxy_token.for_each(|token| log.redactor.add(&token.to_masked_value()));
        log.say("Job console starting");
        let read = async {
            let patience = Duration::from_secs(self.settings.host_wait_seconds);
            let network = &self.settings.network;
            let host = external_host::of_job(job, network, patience, &mut log).await?;
            let frozen = include::add_file_vars(job, sources, &jobdir).await;
            Ok::<_, StartError>((frozen.map_err(StartError::Include)?, host))
        };
        let read = tokio::select! {
            read = read => Some(read),
            _ = stop.stopped() => None,
            error = no_time_left(until) => Some(Err(error)),
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
                error = no_time_left(until) => Some(Err(error)),
            },
        };
        let result = match prepared {
            Some(Ok(stage)) => match until {
                None => stage.run_phases(&mut log, &mut stop).await,
                Some(until) => stage.collect_logs(&mut log, &mut stop, until).await,
            },
            Some(Err(error)) => {
                let detail = chain(&error);
                log.say(&detail);
                ended(error.result(), Some(log.redactor.text(&detail)))
            }
            None => ended(stop.result(), stop.reason()),
        };
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
            self.expand_job_vars(log, stop, FREEZE_TIME).await;
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
        let log_url = log_url(&returned, &log.redactor).unwrap_or_default();
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
        if playbook.sees_frozen() {
            left_links::remove(self.attempt.jobdir, log).await;
        }
        let stop_signal = stop.as_deref().cloned();
        let inventory = self.inventory(playbook);
        let expressions = &self.attempt.job.job.run_time.failure_output;
        let is_main = playbook.phase == PlaybookPhase::Run;
        let failure_output: Vec<Pattern> = expressions
            .iter()
            .filter(|_| is_main)
            .filter_map(|text| Pattern::new(text).ok())
            .collect();
        let mut secrets = self.secrets(playbook);
        // Tokens are new; the others are known to the log from the beginning.
        let inherited = &self.attempt.job.inherited.secret_data;
        let own = secrets.iter().filter(|(name, _)| !inherited.contains_key(*name));
        own.for_each(|(_, value)| log.add_secret(value));
        let Attempt { settings, job, .. } = &self.attempt;
        let containers =
            configured(job.job, playbook).map_or(&[][..], |configured| &configured.containers);
        let site = settings.uploads.as_ref();
        let uploads =
            uploads::add(site, job.order, containers, limit.left, &mut secrets, log).await;
        let inputs = PlaybookInputs {
            inventory: &inventory,
            vars: self.vars(playbook, results),
            secrets,
            known_hosts: self.reached_hosts(),
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
        let mut outcome = match uploads {
            Ok(()) => playbook::run(&context, playbook, inputs, log).await,
            Err(why) => PlaybookOutcome::new(PlaybookEnd::Broken { why }, inputs.record_bytes_max),
        };
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
        returned.redactions().values.into_iter().for_each(|value| log.add_secret(value));
        returned.secret_values().values.into_iter().for_each(|value| log.redactor.add(value));
        trouble.iter().chain(&returned.masking_trouble()).for_each(|trouble| log.say(trouble));
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

    /// Returns the hosts that were reached and have a Python, but for those that a playbook lost.
    fn reached_hosts(&self) -> Vec<&str> {
        let is_reached = |name: &&str| {
            self.nodes.interpreters.contains_key(*name) && !self.unreachable.contains(*name)
        };
        inventory::hosts(self.attempt.job).iter().map(|host| host.name).filter(is_reached).collect()
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
        vars.extend(if playbook.sees_frozen() { mark_all_unsafe(extra) } else { extra });
        vars.extend(self.attempt.settings.site_vars.clone());
        vars.insert("zuul".to_owned(), mark_unsafe(Value::Object(self.zuul.clone())));
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
            "zuul_execution_canonical_name_and_path": mark_unsafe(json!(playbook.canonical)),
            "zuul_execution_branch": mark_unsafe(json!(playbook.branch)),
        })));
        vars
    }

    /// Returns the plaintext secrets of one playbook by variable name, with those that parents
    /// returned; the playbook's own override these. Names of Ansible's and the executor's variables
    /// are left out. The values are marked as unsafe. Empty for the run that expands variables.
    fn secrets(&self, playbook: &PreparedPlaybook) -> Map<String, Value> {
        let job = self.attempt.job;
        let Some(configured) = configured(job.job, playbook) else { return Map::new() };
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
        opened.map(|(name, value)| (name, mark_unsafe(value))).collect()
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
    /// variables are stored as written and Ansible is not run; otherwise it gets `timeout`.
    async fn expand_job_vars(
        &mut self,
        log: &mut JobLog<'_>,
        stop: &mut StopSignal,
        timeout: Duration,
    ) {
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
        let name = format!("limit of {} s for expanding variables", timeout.as_secs());
        let limit = TimeLimit { left: timeout, name };
        let inputs = PlaybookInputs {
            inventory: &inventory,
            vars,
            secrets: Map::new(),
            // Its own plays gather what it needs.
            known_hosts: Vec::new(),
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
const FREEZE_TIME: Duration = Duration::from_secs(120);

/// Waits until the time of a collection of logs is over, and returns the error for a build that has
/// not started by then. Never returns without a limit.
async fn no_time_left(until: Option<Instant>) -> StartError {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
    StartError::NoTimeLeft
}

/// Returns a playbook as the job lists it; `None` for the run that expands variables.
fn configured<'j>(job: &'j FrozenJob, playbook: &PreparedPlaybook) -> Option<&'j Playbook> {
    let listed = match playbook.phase {
        PlaybookPhase::Pre => &job.pre_run,
        PlaybookPhase::Run => &job.run,
        PlaybookPhase::Post => &job.post_run,
    };
    listed.get(playbook.index)
}

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
