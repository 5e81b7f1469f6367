//! Runs a job: prepares what playbooks find, then pre-run, run and post-run, and says how it ended
//! (Z7.1).

use crate::clock::Clock;
use crate::content::Content;
use crate::disk::DiskWatch;
use crate::freeze::{self, Frozen};
use crate::gateway::Gateway;
use crate::include::{self, IncludeError};
use crate::inventory::{self, JobVars, WrongName};
use crate::job::{Job, Observer, Runner, Sources, StopSignal};
use crate::jobdir::{self, Jobdir};
use crate::joblog::{JobLog, now};
use crate::lines;
use crate::playbook::{self, FREEZE_INDEX, Inputs, Phase, Prepared, Shared};
use crate::prepare::{self, Playbooks, PrepareError};
use crate::receiver::RECORD_BYTES_MAX;
use crate::returned::Returned;
use crate::sandbox::{Trust, probe, write_accounts};
use crate::settings::{Settings, SetupError};
use crate::ssh::{self, Agent};
use crate::steering::{Reach, is_allowed, restrict};
use crate::vars::{to_map, unsafe_texts, zuul};
use crate::verdict::{Next, PlaybookEnd, Verdict};
use crate::workspace::{self, Placed, WorkspaceError};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sluice_config::pattern::Pattern;
use sluice_model::build::{BuildResult, Ended, Pause};
use sluice_model::git::Oid;
use sluice_model::{BranchName, Timestamp};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Runs jobs with Ansible, each playbook a process of its own in a sandbox of its own.
#[derive(Debug)]
pub struct Ansible {
    settings: Settings,
}

impl Ansible {
    /// Checks that this machine can run and confine Ansible, and unpacks the executor's own plugins
    /// and roles.
    pub async fn new(mut settings: Settings) -> Result<Self, SetupError> {
        let program = settings.program("ansible-playbook");
        if !program.is_file() {
            return Err(SetupError::NoAnsible { path: program });
        }
        probe().await?;
        jobdir::forget_the_dead(&settings.runtime);
        settings.content =
            Content::unpack(&settings.content, &settings.program("python")).await?.root;
        Ok(Self { settings })
    }

    /// Returns the settings it runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

#[async_trait]
impl Runner for Ansible {
    async fn execute(
        &self,
        job: &Job<'_>,
        sources: &dyn Sources,
        root: &Path,
        mut stop: StopSignal,
        observer: &dyn Observer,
    ) -> Ended {
        let made =
            Jobdir::make(root, &self.settings.runtime, &job.order.build).and_then(|jobdir| {
                Ok((JobLog::create(&jobdir, self.settings.log_bytes_max, observer)?, jobdir))
            });
        let (mut log, jobdir) = match made {
            Ok(made) => made,
            Err(error) => {
                return ended(
                    disk_result(&error),
                    Some(format!("The job directory could not be made: {error}")),
                );
            }
        };
        for value in job.secrets.values().chain(job.inherited.secret_data.values()) {
            log.redactor.add(value);
        }
        log.say("Job console starting");
        let read = tokio::select! {
            read = include::with_files(job, sources, &jobdir) => Some(read),
            _ = stop.stopped() => None,
        };
        let (frozen, refused) = match read {
            Some(Ok(frozen)) => (frozen, None),
            Some(Err(error)) => {
                (Cow::Borrowed(job.job), Some(Some(Err(StartError::Include(error)))))
            }
            None => (Cow::Borrowed(job.job), Some(None)),
        };
        let job = &Job { job: &frozen, ..*job };
        let build = Build { settings: &self.settings, job, sources, jobdir: &jobdir, observer };
        let prepared = match refused {
            Some(refused) => refused,
            None => tokio::select! {
                prepared = build.prepare(&mut log) => Some(prepared),
                _ = stop.stopped() => None,
            },
        };
        let result = match prepared {
            Some(Ok(stage)) => stage.perform(&mut log, &mut stop).await,
            Some(Err(error)) => {
                let detail = chain(&error);
                log.say(&detail);
                ended(error.result(), Some(log.redactor.text(&detail)))
            }
            None => ended(BuildResult::Aborted, stop.reason()),
        };
        jobdir.forget_runtime();
        log.say(&format!("Job ended: {}", result.result));
        result
    }
}

/// Why a build did not get to its first playbook.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Names(#[from] WrongName),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Include(IncludeError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Agent(#[from] ssh::AgentError),
    #[error("the job has nodes, but no key for them was given to this executor")]
    NoKey,
    #[error(
        "secret {secret} of {project} could not be opened: encrypt it again with the project's public key"
    )]
    Secret { secret: String, project: String },
    #[error(
        "secret {secret} of {project} asks for a token (oidc), and this system issues none yet: give it data, or take it from the job"
    )]
    Token { secret: String, project: String },
    #[error("could not write what playbooks need")]
    Disk(#[from] std::io::Error),
}

impl StartError {
    fn result(&self) -> BuildResult {
        match self {
            Self::Names(_)
            | Self::Prepare(PrepareError::NoPlaybook { .. })
            | Self::Include(IncludeError::Missing { .. } | IncludeError::Unreadable { .. })
            | Self::Secret { .. }
            | Self::Token { .. } => BuildResult::ConfigError,
            Self::Workspace(error)
            | Self::Include(IncludeError::Workspace(error))
            | Self::Prepare(PrepareError::Workspace(error)) => match error {
                WorkspaceError::NotPrepared { .. } => BuildResult::ConfigError,
                WorkspaceError::Source(_) | WorkspaceError::Checkout { .. } => BuildResult::Retry,
            },
            Self::Prepare(PrepareError::File { source, .. }) | Self::Disk(source) => {
                disk_result(source)
            }
            Self::Agent(_) | Self::NoKey => BuildResult::Retry,
        }
    }
}

struct Build<'a> {
    settings: &'a Settings,
    job: &'a Job<'a>,
    sources: &'a dyn Sources,
    jobdir: &'a Jobdir,
    observer: &'a dyn Observer,
}

/// What the nodes' side of the preparation leaves: everything in it ends when it is dropped.
struct Nodes {
    agent: Option<Agent>,
    _shared: Vec<ssh::Shared>,
    _gateway: Option<Gateway>,
    interpreters: BTreeMap<String, String>,
    troubles: Vec<String>,
}

impl<'a> Build<'a> {
    async fn prepare(&self, log: &mut JobLog<'_>) -> Result<Stage<'a>, StartError> {
        let (job, jobdir) = (self.job, self.jobdir);
        inventory::check_names(job)?;
        write_accounts(jobdir)?;
        self.check_secrets()?;
        log.say("Cloning repos into workspace");
        let repositories =
            async { Ok::<_, StartError>(workspace::place_all(job, self.sources, jobdir).await?) };
        let playbooks =
            async { Ok::<_, StartError>(prepare::playbooks(job, self.sources, jobdir).await?) };
        let (placed, playbooks, nodes) =
            futures::try_join!(repositories, playbooks, self.connect())?;
        log.say("Preparing playbooks");
        nodes.troubles.iter().for_each(|trouble| log.say(trouble));
        let zuul = zuul(job, &placed, jobdir, self.settings, playbooks.context.clone());
        self.write_papers(&placed, &zuul, &nodes)?;
        let own = &job.order.change.key.project;
        Ok(Stage {
            build: Build {
                settings: self.settings,
                job,
                sources: self.sources,
                jobdir,
                observer: self.observer,
            },
            zuul,
            tested: placed
                .iter()
                .find(|placed| placed.project == *own)
                .map(|placed| placed.commit.clone()),
            playbooks,
            nodes,
            frozen: Frozen::new(),
            unreachable: BTreeSet::new(),
            failure_output: None,
            records: Vec::new(),
            record_bytes_left: RECORD_BYTES_MAX,
            disk: DiskWatch::start(jobdir.writable(), self.settings.disk_bytes_max),
        })
    }

    fn check_secrets(&self) -> Result<(), StartError> {
        let frozen = self.job.job;
        for playbook in frozen.pre_run.iter().chain(&frozen.run).chain(&frozen.post_run) {
            for secret in playbook.secrets.values() {
                let (name, project) = (secret.secret.clone(), secret.project.to_string());
                if secret.oidc.is_some() {
                    return Err(StartError::Token { secret: name, project });
                }
                if self.job.secrets.get(secret).is_none() {
                    return Err(StartError::Secret { secret: name, project });
                }
            }
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Nodes, StartError> {
        let nodes = self.job.nodes;
        ssh::write_configuration(self.jobdir, self.settings, nodes)?;
        let mut connected = Nodes {
            agent: None,
            _shared: Vec::new(),
            _gateway: None,
            interpreters: BTreeMap::new(),
            troubles: Vec::new(),
        };
        if nodes.is_empty() {
            return Ok(connected);
        }
        connected._gateway =
            Some(Gateway::open(&self.jobdir.runtime.root.join("nodes.sock"), nodes)?);
        let agent =
            Agent::start(self.jobdir, self.job.node_key.ok_or(StartError::NoKey)?, nodes).await?;
        (connected._shared, connected.interpreters, connected.troubles) =
            ssh::open_shared(self.jobdir, self.settings, &agent, nodes).await;
        connected.agent = Some(agent);
        Ok(connected)
    }

    /// Writes what people and tools look at: the inventory, and which commits were tested.
    fn write_papers(
        &self,
        placed: &[Placed],
        zuul: &Map<String, Value>,
        nodes: &Nodes,
    ) -> std::io::Result<()> {
        let jobdir = self.jobdir;
        let inventory = inventory::inventory(
            self.job,
            jobdir,
            JobVars::AsWritten,
            &nodes.interpreters,
            &BTreeSet::new(),
        );
        let text = inventory::for_people(&inventory, zuul);
        std::fs::write(jobdir.ansible.join("inventory.yaml"), &text)?;
        std::fs::create_dir(jobdir.logs.join("zuul-info"))?;
        std::fs::write(jobdir.logs.join("zuul-info/inventory.yaml"), &text)?;
        std::fs::write(jobdir.logs.join("workspace-repos.json"), json!(placed).to_string())
    }
}

/// A build whose workspace stands.
struct Stage<'a> {
    build: Build<'a>,
    zuul: Map<String, Value>,
    /// The commit of the change's own project that is checked out.
    tested: Option<Oid>,
    playbooks: Playbooks,
    nodes: Nodes,
    frozen: Frozen,
    unreachable: BTreeSet<String>,
    /// The expression that the last playbook's output matched, by which the job says that it fails.
    failure_output: Option<String>,
    records: Vec<Value>,
    record_bytes_left: usize,
    disk: DiskWatch,
}

impl Stage<'_> {
    async fn perform(mut self, log: &mut JobLog<'_>, stop: &mut StopSignal) -> Ended {
        let started_at = now();
        self.build.observer.started(started_at);
        let mut verdict = Verdict::default();
        let playbooks = std::mem::take(&mut self.playbooks.all);
        let mut clock = Clock::start(self.build.job, self.build.settings);
        if playbooks.iter().any(Prepared::sees_frozen) {
            self.freeze(log, stop).await;
        }
        for playbook in playbooks.iter().filter(|playbook| playbook.phase == Phase::Pre) {
            if halted(&mut verdict, stop) {
                break;
            }
            let end =
                self.play(playbook, clock.left_for_pre(), &verdict, Some(&mut *stop), log).await;
            if verdict.pre(playbook.nesting_level, &playbook.canonical, &end) == Next::EndPhase {
                break;
            }
        }
        let run_limit = clock.run_limit();
        for playbook in playbooks.iter().filter(|playbook| playbook.phase == Phase::Run) {
            if !verdict.wants_run() || halted(&mut verdict, stop) {
                break;
            }
            let left = run_limit.saturating_duration_since(Instant::now());
            let end = self.play(playbook, left, &verdict, Some(&mut *stop), log).await;
            if let Some(expression) = self.failure_output.take() {
                verdict.fails(&expression);
            }
            if verdict.run(&playbook.canonical, &end) == Next::EndPhase {
                break;
            }
        }
        if verdict.success() && !halted(&mut verdict, stop) {
            self.pause(log, stop).await;
        }
        for playbook in playbooks.iter().filter(|playbook| playbook.phase == Phase::Post) {
            let already_stopped = halted(&mut verdict, stop);
            if !verdict.wants_post(playbook.nesting_level, playbook.cleanup) {
                continue;
            }
            let feels_stop = if already_stopped { None } else { Some(&mut *stop) };
            let limit = if already_stopped { clock.left_for_cleanup() } else { clock.post };
            let end = self.play(playbook, limit, &verdict, feels_stop, log).await;
            // What cleans up after a stop changes nothing about the result.
            if !already_stopped {
                verdict.post(&playbook.canonical, &end);
            }
        }
        self.conclude(&verdict, started_at, log).await
    }

    /// Waits for the jobs behind this one, if it asks for that; its nodes stay as they are
    /// meanwhile.
    async fn pause(&self, log: &mut JobLog<'_>, stop: &mut StopSignal) {
        let (returned, _) = Returned::read(&self.build.jobdir.results);
        if !returned.wants_pause() {
            return;
        }
        log.say("Pausing until the jobs behind this one are over");
        let log_url = returned.log_url().filter(|url| url.len() <= DETAIL_BYTES_MAX);
        log.returned_secrets(&returned);
        log.paused(Pause {
            since: now(),
            data: log.redactor.map(returned.data),
            data_object: None,
            log_url,
        });
        stop.resumed().await;
        if stop.reason().is_none() {
            log.say("Going on: the jobs behind this one are over");
        }
    }

    async fn play(
        &mut self,
        playbook: &Prepared,
        timeout: Duration,
        verdict: &Verdict,
        stop: Option<&mut StopSignal>,
        log: &mut JobLog<'_>,
    ) -> PlaybookEnd {
        let inventory = self.inventory(playbook);
        let expressions = &self.build.job.job.run_time.failure_output;
        let is_main = playbook.phase == Phase::Run;
        let failure_output: Vec<Pattern> = expressions
            .iter()
            .filter(|_| is_main)
            .filter_map(|text| Pattern::new(text).ok())
            .collect();
        let inputs = Inputs {
            inventory: &inventory,
            vars: self.vars(playbook, verdict),
            secrets: self.secrets(playbook),
            timeout,
            record_bytes_max: self.record_bytes_left,
            failure_output: &failure_output,
            stop,
        };
        let (word, banner) = (playbook.phase.banner(), playbook.banner());
        log.say(&format!("{word} START: {banner}"));
        let shared = self.shared();
        let outcome = playbook::run(&shared, playbook, inputs, log).await;
        log.say(&format!("{word} END {}: {banner}", outcome.end.banner()));
        self.unreachable.extend(outcome.unreachable);
        self.failure_output = outcome.failure_output;
        self.record_bytes_left = outcome.record.bytes_left();
        let head = to_map(json!({
            "playbook": playbook.canonical,
            "branch": playbook.branch,
            "phase": playbook.phase.as_str(),
            "index": playbook.index.to_string(),
            "trusted": playbook.trust == Trust::Trusted,
        }));
        self.records.push(log.redactor.value(outcome.record.finish(head)));
        let (returned, trouble) = Returned::read(&self.build.jobdir.results);
        returned.redactions().for_each(|value| log.redactor.add(value));
        if let Some(trouble) = trouble {
            log.say(&trouble);
        }
        outcome.end
    }

    fn shared(&self) -> Shared<'_> {
        let Build { settings, jobdir, .. } = self.build;
        Shared { settings, jobdir, agent: self.nodes.agent.as_ref(), disk: &self.disk }
    }

    fn inventory(&self, playbook: &Prepared) -> Value {
        let vars = match playbook.sees_frozen() {
            true => JobVars::Frozen(&self.frozen),
            false if playbook.index == FREEZE_INDEX => JobVars::ToExpand,
            false => JobVars::AsWritten,
        };
        inventory::inventory(
            self.build.job,
            self.build.jobdir,
            vars,
            &self.nodes.interpreters,
            &self.unreachable,
        )
    }

    /// Extra variables, lowest precedence first: the job's, the site's, ours.
    fn vars(&self, playbook: &Prepared, verdict: &Verdict) -> Map<String, Value> {
        let mut vars = Map::new();
        let mut extra = self.build.job.job.extra_vars.clone();
        let is_harmless = !playbook.sees_frozen() && playbook.index != FREEZE_INDEX;
        restrict(&mut extra, if is_harmless { Reach::Harmless } else { Reach::Everywhere });
        let extra = Value::Object(extra);
        vars.extend(to_map(if playbook.sees_frozen() { unsafe_texts(extra) } else { extra }));
        vars.extend(self.build.settings.site_vars.clone());
        vars.insert("zuul".to_owned(), unsafe_texts(Value::Object(self.zuul.clone())));
        let python_bool = |value| if value { "True" } else { "False" };
        if playbook.phase == Phase::Post {
            let order = self.build.job.order;
            let (returned, _) = Returned::read(&self.build.jobdir.results);
            let will_retry =
                order.attempt < order.max_attempts && verdict.would_retry(returned.may_retry());
            vars.insert("zuul_success".to_owned(), json!(python_bool(verdict.success())));
            vars.insert("zuul_will_retry".to_owned(), json!(python_bool(will_retry)));
        }
        vars.extend(to_map(json!({
            "zuul_execution_phase": playbook.phase.as_str(),
            "zuul_execution_phase_index": playbook.index.to_string(),
            "zuul_execution_trusted": python_bool(playbook.trust == Trust::Trusted),
            "zuul_execution_canonical_name_and_path": playbook.canonical,
            "zuul_execution_branch": playbook.branch,
        })));
        vars
    }

    fn secrets(&self, playbook: &Prepared) -> Map<String, Value> {
        let job = self.build.job;
        let listed = match playbook.phase {
            Phase::Pre => &job.job.pre_run,
            Phase::Run => &job.job.run,
            Phase::Post => &job.job.post_run,
        };
        let Some(configured) = listed.get(playbook.index) else { return Map::new() };
        // The definition's own secrets win over what another job says.
        let inherited =
            job.inherited.secret_data.iter().map(|(name, value)| (name.clone(), value.clone()));
        let own = configured.secrets.iter();
        let own =
            own.filter_map(|(name, secret)| Some((name.clone(), job.secrets.get(secret)?.clone())));
        let opened = inherited.chain(own).filter(|(name, _)| is_allowed(name, Reach::Everywhere));
        opened.map(|(name, value)| (name, unsafe_texts(value))).collect()
    }

    async fn freeze(&mut self, log: &mut JobLog<'_>, stop: &mut StopSignal) {
        let (job, jobdir) = (self.build.job, self.build.jobdir);
        let hosts: Vec<&str> = inventory::hosts(job).iter().map(|host| host.name).collect();
        if !freeze::is_needed(job) {
            self.frozen = freeze::literal(job, &hosts);
            return;
        }
        log.say("Running Ansible setup");
        let playbook = Prepared {
            phase: Phase::Pre,
            index: FREEZE_INDEX,
            // The variables may be the change's own.
            trust: Trust::Untrusted,
            canonical: "sluice/freeze".to_owned(),
            branch: BranchName::from(""),
            file: self.build.settings.content.join("plugins/freeze.yaml"),
            roles_path: Vec::new(),
            has_secrets: false,
            nesting_level: 0,
            cleanup: false,
        };
        let Ok(state) = jobdir.state_of(&playbook.state_owner()) else { return };
        if std::fs::create_dir_all(freeze::directory(&state.facts)).is_err() {
            return;
        }
        let inventory = self.inventory(&playbook);
        let mut vars = self.vars(&playbook, &Verdict::default());
        vars.insert("sluice_freeze_names".to_owned(), json!(freeze::names(job)));
        vars.insert("sluice_freeze_dest".to_owned(), json!(freeze::directory(&jobdir.facts)));
        let timeout = Duration::from_secs(FREEZE_SECONDS);
        let inputs = Inputs {
            inventory: &inventory,
            vars,
            secrets: Map::new(),
            timeout,
            // Nobody reads it.
            record_bytes_max: 0,
            failure_output: &[],
            stop: Some(stop),
        };
        let shared = self.shared();
        // A host that fails here has no variables in trusted playbooks, and fails there for that
        // reason.
        playbook::run(&shared, &playbook, inputs, log).await;
        self.frozen = freeze::read(self.build.job, &state.facts, &hosts);
    }

    async fn conclude(
        self,
        verdict: &Verdict,
        started_at: Timestamp,
        log: &mut JobLog<'_>,
    ) -> Ended {
        let Build { job, sources, jobdir, .. } = self.build;
        let (mut returned, _) = Returned::read(&jobdir.results);
        log.returned_secrets(&returned);
        if let Some(tested) = &self.tested {
            let said =
                lines::told_of_the_change(job, sources, jobdir, tested, &mut returned.data).await;
            said.iter().for_each(|line| log.say(line));
        }
        if let Err(error) = write_record(jobdir, &Value::Array(self.records)) {
            log.say(&format!("job-output.json could not be written: {error}"));
        }
        Ended {
            result: verdict.result(returned.may_retry()),
            detail: verdict.why().map(|why| short(&log.redactor.text(why))),
            started_at: Some(started_at),
            ended_at: now(),
            log_url: returned.log_url().filter(|url| url.len() <= DETAIL_BYTES_MAX),
            data: log.redactor.map(returned.data),
            data_object: None,
        }
    }
}

/// Facts of all hosts and one task.
const FREEZE_SECONDS: u64 = 120;

/// Takes note of a stop that was asked for between playbooks. Returns whether there was one by now.
fn halted(verdict: &mut Verdict, stop: &StopSignal) -> bool {
    if let Some(reason) = stop.reason() {
        verdict.abort(&reason);
    }
    stop.reason().is_some()
}

fn write_record(jobdir: &Jobdir, record: &Value) -> std::io::Result<()> {
    // Playbooks wrote beside it: no directory and no file of theirs may lead us elsewhere.
    if !std::fs::symlink_metadata(&jobdir.logs)?.is_dir() {
        return Err(std::io::Error::other("work/logs is no directory any more"));
    }
    let path = jobdir.logs.join("job-output.json");
    let _ = std::fs::remove_file(&path);
    std::io::Write::write_all(&mut std::fs::File::create_new(path)?, record.to_string().as_bytes())
}

/// Bytes of a build's detail, and of an address that it names: both stand in records.
const DETAIL_BYTES_MAX: usize = 2_000;

fn short(text: &str) -> String {
    text[..text.floor_char_boundary(DETAIL_BYTES_MAX)].to_owned()
}

fn ended(result: BuildResult, detail: Option<String>) -> Ended {
    let detail = detail.map(|detail| short(&detail));
    Ended {
        result,
        detail,
        started_at: None,
        ended_at: now(),
        data: Map::new(),
        data_object: None,
        log_url: None,
    }
}

fn disk_result(error: &std::io::Error) -> BuildResult {
    if error.kind() == std::io::ErrorKind::StorageFull {
        BuildResult::DiskFull
    } else {
        BuildResult::Retry
    }
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
