//! What a seed draws before the run begins: the size of the site, the number of actions, and how
//! often things go wrong.

use crate::graphs;
use crate::random::Random;
use crate::reviews::{
    at_gerrit, at_github, check_and_gate_with_gerrit, for_hashtag, is_gerrit_project, sources,
    with_gerrit,
};
use crate::scenarios::change_trees::with_quiet_changes;
use crate::scenarios::max_changes::{self, CHANGES_MAX};
use crate::scenarios::max_dependencies::{self, NEEDS_MAX};
use crate::scenarios::newcomers::{self, is_newcomer};
use crate::scenarios::{
    self, AUDIT, CAREFUL, EXPRESS, EXPRESS_YAML, POST, POST_YAML, RECHECK_YAML, REPORTERS_YAML,
    SEMAPHORES_YAML, Scenario, audit_yaml, careful_yaml, lands, nodesets, required,
};
use crate::truth;
use crate::windows::Window;
use sluice_model::git::MergeMode;
use sluice_scenarios::sample::{BASE, COMMON, PIPELINES, cloud};
use std::collections::BTreeSet;

/// The largest clock error in milliseconds in [`Scenario::FastForward`]. Two such errors and a
/// sleep before the push fit into the minute that a push may take.
const PUSHED_SKEW_MILLIS_MAX: u64 = 15_000;

/// The parameters of a site.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The tenants with their projects.
    pub tenants: Vec<TenantShape>,
    /// How many changes are proposed.
    pub changes: u64,
    /// How many other actions the actors do, besides proposing and approving.
    pub actions: u64,
    /// The longest time between two actions in milliseconds.
    pub pause_millis_max: u64,
    /// The most machines at a time.
    pub instances: u32,
    /// How many builds may hold the semaphore `one`.
    pub semaphore_max: u32,
    /// How many executors run.
    pub executors: usize,
    /// The branches of each project.
    pub branches: Vec<&'static str>,
    /// The most functions that run at a time, including those that sleep.
    pub tasks_max: usize,
    /// The scenarios that the site exercises.
    pub scenarios: BTreeSet<Scenario>,
    /// The number from which the projects' merge modes are drawn.
    pub mode_seed: u64,
    /// The window of its gates in [`Scenario::Windows`].
    pub window: Window,
    /// How often things go wrong.
    pub fault_profile: FaultProfile,
}

/// A variant of the config project's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigVariant {
    /// The configuration that the seed drew.
    AsDrawn,
    /// The same without the pipeline [`AUDIT`].
    WithoutAudit,
    /// An injected defect: the pipeline `check` is marked as post-review.
    Leaky,
}

/// The parameters of a tenant.
#[derive(Debug, Clone)]
pub struct TenantShape {
    /// Its name.
    pub name: String,
    /// The names of its projects, each with whether it is in the shared queue.
    pub projects: Vec<(String, bool)>,
}

/// How often each fault happens, in 1000 calls or occasions.
#[derive(Debug, Clone, Default)]
pub struct FaultProfile {
    /// The name of the profile.
    pub name: &'static str,
    /// A function dies before a call.
    pub dies_before: u64,
    /// A function dies after a call.
    pub dies_after: u64,
    /// A call fails.
    pub fails_before: u64,
    /// A call is carried out, but its answer is lost.
    pub fails_after: u64,
    /// A call is throttled.
    pub throttled: u64,
    /// A function is suspended at a call while others continue.
    pub waits: u64,
    /// A suspended function sleeps for longer than its message is hidden.
    pub sleeps: u64,
    /// A handled message is not deleted and comes again.
    pub undeleted_messages: u64,
    /// A webhook is not delivered.
    pub dropped_webhooks: u64,
    /// A webhook is delivered twice.
    pub duplicated_webhooks: u64,
    /// An executor dies or is disconnected, in 1000 seconds.
    pub executors: u64,
    /// A machine vanishes, in 1000 seconds.
    pub machines: u64,
    /// Calls of one service fail for a while, in 1000 minutes.
    pub outages: u64,
    /// The forge refuses merges or merges something else, in 1000 actions.
    pub unruly_forge: u64,
    /// How far the indexes lag behind, in milliseconds.
    pub index_lag_millis: u64,
    /// How far the state that the forge shows lags behind, in milliseconds.
    pub forge_behind_millis: u64,
    /// The largest clock error, in milliseconds.
    pub skew_millis: u64,
}

impl Shape {
    /// Draws the site of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let tenants = random.between(1, 2);
        let tenants = (0..tenants).map(|number| TenantShape::draw(number, &mut random)).collect();
        let shape = Self {
            tenants,
            changes: random.between(3, 9),
            actions: random.between(0, 8),
            pause_millis_max: *random.one(&[300, 3_000, 30_000]).unwrap_or(&3_000),
            instances: *random.one(&[2, 3, 8]).unwrap_or(&8),
            semaphore_max: u32::try_from(random.between(1, 2)).unwrap_or(1),
            executors: random.below(3) + 1,
            branches: if Random::new(seed, 7).per_mille(350) {
                vec!["main", "stable"]
            } else {
                vec!["main"]
            },
            tasks_max: 8,
            scenarios: BTreeSet::new(),
            mode_seed: seed,
            window: Window::draw(seed),
            fault_profile: FaultProfile::draw(&mut random),
        };
        shape.with_scenarios(scenarios::draw(seed))
    }

    /// Returns the same site with other scenarios. [`Scenario::Gerrit`] moves the projects of the
    /// first tenant to the Gerrit.
    #[must_use]
    pub fn with_scenarios(mut self, scenarios: BTreeSet<Scenario>) -> Self {
        self.add_projects(&scenarios);
        let rename = if scenarios.contains(&Scenario::Gerrit) { at_gerrit } else { at_github };
        for (name, _) in self.tenants.iter_mut().take(1).flat_map(|tenant| &mut tenant.projects) {
            *name = rename(name);
        }
        if scenarios.contains(&Scenario::FastForward) {
            // A push may take a minute. With larger clock errors another function would see that
            // minute as over.
            self.fault_profile.skew_millis =
                self.fault_profile.skew_millis.min(PUSHED_SKEW_MILLIS_MAX);
        }
        Self { scenarios, ..self }
    }

    /// Gives each tenant two projects where a scenario needs them. In [`Scenario::ChangeTrees`] the
    /// projects of a tenant share their queue.
    fn add_projects(&mut self, scenarios: &BTreeSet<Scenario>) {
        let has_trees = scenarios.contains(&Scenario::ChangeTrees);
        if !has_trees && !scenarios.contains(&Scenario::Departures) {
            return;
        }
        for (number, tenant) in self.tenants.iter_mut().enumerate() {
            while tenant.projects.len() < 2 {
                tenant.projects.push((format!("org/t{number}p{}", tenant.projects.len()), true));
            }
            if has_trees {
                tenant.projects.iter_mut().for_each(|(_, shared)| *shared = true);
            }
        }
    }

    /// Draws a site with large clock errors and many actions, so that many inbox messages arrive
    /// before a gate consumes them.
    pub fn skewed(seed: u64) -> Self {
        let crowded = Self::crowded(seed);
        let fault_profile = FaultProfile {
            name: "skewed",
            skew_millis: 600_000,
            sleeps: 20,
            waits: 400,
            ..crowded.fault_profile
        };
        Self { actions: 30, pause_millis_max: 2_000, fault_profile, ..crowded }
    }

    /// Draws a site with many concurrent functions on few cells, many of which sleep in the middle
    /// of their work.
    pub fn crowded(seed: u64) -> Self {
        let mut random = Random::new(seed, 6);
        let projects = (0..3).map(|project| (format!("org/t0p{project}"), false)).collect();
        let fault_profile = FaultProfile {
            name: "crowded",
            waits: 500,
            sleeps: random.between(30, 120),
            fails_after: 4,
            dies_after: 2,
            undeleted_messages: 60,
            duplicated_webhooks: 100,
            ..FaultProfile::default()
        };
        Self {
            tenants: vec![TenantShape { name: "tenant0".to_owned(), projects }],
            changes: 9,
            actions: 12,
            pause_millis_max: random.between(300, 20_000),
            instances: 8,
            semaphore_max: 1,
            executors: 3,
            branches: vec!["main"],
            tasks_max: 60,
            scenarios: BTreeSet::new(),
            mode_seed: seed,
            window: Window::GATE,
            fault_profile,
        }
    }

    /// Returns whether the site exercises a scenario.
    pub fn has(&self, scenario: Scenario) -> bool {
        self.scenarios.contains(&scenario)
    }

    /// Returns the merge mode of a project. Gerrit projects cherry-pick.
    pub fn mode_of(&self, project: &str) -> MergeMode {
        if is_gerrit_project(project) {
            return MergeMode::CherryPick;
        }
        // Its own configuration, which a change adds, names the mode only later.
        if is_newcomer(project) {
            return MergeMode::default();
        }
        let number = project
            .bytes()
            .fold(self.mode_seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let modes = Some(&MODES).filter(|_| self.has(Scenario::MergeModes));
        modes
            .and_then(|modes| Random::new(number, 11).one(modes).copied())
            .map(|(_, mode)| mode)
            .unwrap_or_default()
    }

    /// Returns the window settings of a pipeline.
    pub fn window_of(&self, pipeline: &str) -> Window {
        match pipeline {
            gate if lands(gate) && self.has(Scenario::Windows) => self.window,
            gate if lands(gate) => Window::GATE,
            POST | CAREFUL => Window::ONE,
            _ => Window::NONE,
        }
    }

    /// Returns the `max-dependencies` of a tenant. Returns `None` if it has the default.
    pub fn needs_max(&self, tenant: &str) -> Option<usize> {
        (self.has(Scenario::MaxDependencies) && !self.has_gerrit_projects(tenant))
            .then_some(NEEDS_MAX)
    }

    /// Returns the `max-changes-per-pipeline` of a tenant. Returns `None` if there is no limit.
    pub fn changes_max(&self, tenant: &str) -> Option<u32> {
        (self.has(Scenario::MaxChanges) && !self.has_gerrit_projects(tenant)).then_some(CHANGES_MAX)
    }

    /// Returns the project of a tenant that a change brings into the pipelines. Returns `None`
    /// without [`Scenario::Newcomers`] and for tenants with projects at the Gerrit.
    pub fn newcomer_of(&self, tenant: &str) -> Option<String> {
        (self.has(Scenario::Newcomers) && !self.has_gerrit_projects(tenant))
            .then(|| newcomers::project_of(tenant))
    }

    /// Returns the projects of all tenants that a change brings into the pipelines.
    pub fn newcomers(&self) -> Vec<String> {
        self.tenants.iter().filter_map(|tenant| self.newcomer_of(&tenant.name)).collect()
    }

    /// Returns the name of the tenant that has a project. Returns an empty name if none has it.
    pub fn tenant_of(&self, project: &str) -> String {
        let has = |tenant: &&TenantShape| {
            tenant.projects.iter().any(|(name, _)| name == project)
                || self.newcomer_of(&tenant.name).as_deref() == Some(project)
        };
        self.tenants.iter().find(has).map(|tenant| tenant.name.clone()).unwrap_or_default()
    }

    /// Returns whether a tenant has projects at the Gerrit.
    pub fn has_gerrit_projects(&self, tenant: &str) -> bool {
        let mut projects = self
            .tenants
            .iter()
            .filter(|shape| shape.name == tenant)
            .flat_map(|shape| &shape.projects);
        projects.any(|(name, _)| is_gerrit_project(name))
    }

    /// Returns the tenant configuration.
    pub fn main_yaml(&self) -> String {
        self.main_yaml_without(&BTreeSet::new())
    }

    /// Returns the tenant configuration without these projects.
    pub fn main_yaml_without(&self, removed: &BTreeSet<String>) -> String {
        let (shared, semaphores) = match self.has(Scenario::Semaphores) {
            true => (
                format!("- global-semaphore: {{name: shared, max: {}}}\n", self.semaphore_max),
                "semaphores: [shared], ",
            ),
            false => Default::default(),
        };
        let nodes = if self.has(Scenario::NodesetFallbacks) { nodesets::LIMIT } else { "" };
        let tenant = |tenant: &TenantShape| {
            let newcomer = self.newcomer_of(&tenant.name);
            let projects: Vec<&str> = tenant
                .projects
                .iter()
                .map(|(name, _)| name.as_str())
                .filter(|name| !removed.contains(*name))
                .chain(newcomer.as_deref())
                .collect();
            let sources = sources(&projects);
            let needs =
                if self.needs_max(&tenant.name).is_some() { max_dependencies::LIMIT } else { "" };
            let changes =
                if self.changes_max(&tenant.name).is_some() { max_changes::LIMIT } else { "" };
            format!(
                "- tenant: {{name: {}, {semaphores}{needs}{changes}{nodes}source: {{{sources}}}}}\n",
                tenant.name
            )
        };
        shared + &self.tenants.iter().map(tenant).collect::<String>()
    }

    /// Returns the content of the config project's configuration file.
    pub fn config_yaml(&self, variant: ConfigVariant) -> String {
        let mut pipelines = PIPELINES.to_owned();
        if variant == ConfigVariant::Leaky {
            pipelines = pipelines.replacen(
                "manager: independent",
                "manager: independent\n    post-review: true",
                1,
            );
        }
        if self.has(Scenario::Supersedes) {
            pipelines = pipelines.replacen(
                "precedence: high",
                "precedence: high\n    supercedes: check",
                1,
            );
        }
        if self.has(Scenario::Windows) {
            pipelines = pipelines.replacen(
                "precedence: high\n",
                &format!("precedence: high\n{}", self.window.yaml()),
                1,
            );
        }
        if self.has(Scenario::ChangeTrees) {
            pipelines = with_quiet_changes(&pipelines);
        }
        if self.has(Scenario::Gerrit) {
            pipelines = check_and_gate_with_gerrit(&pipelines);
        }
        if self.has(Scenario::TwoGates) {
            pipelines = with_express(&pipelines);
        }
        let also = |scenario, yaml| if self.has(scenario) { yaml } else { "" };
        let for_forges = |pipeline, yaml: &str| {
            if self.has(Scenario::Gerrit) { with_gerrit(yaml, pipeline) } else { yaml.to_owned() }
        };
        let locks = also(Scenario::Semaphores, SEMAPHORES_YAML);
        let careful = if self.has(Scenario::Serial) {
            for_forges(CAREFUL, &careful_yaml())
        } else {
            String::new()
        };
        let post = for_forges(POST, also(Scenario::Post, POST_YAML));
        let express = also(Scenario::TwoGates, EXPRESS_YAML);
        let reporters = also(Scenario::ReporterJobs, REPORTERS_YAML);
        let has_audit = self.has(Scenario::Audit) && variant != ConfigVariant::WithoutAudit;
        let audit = if has_audit { for_forges(AUDIT, &audit_yaml()) } else { String::new() };
        let jobs = format!(
            "
- semaphore: {{name: one, max: {}}}
- job: {{name: unit, run: playbooks/unit.yaml}}
- job: {{name: quick, run: playbooks/quick.yaml, nodeset: {{nodes: []}}}}
- job:
    name: cluster
    run: playbooks/cluster.yaml
    nodeset: {{nodes: [{{name: one, label: small}}, {{name: two, label: small}}]}}
- job: {{name: locked, run: playbooks/locked.yaml, semaphores: [one], nodeset: {{nodes: []}}, dependencies: [quick]}}
- secret: {{name: key, data: {{password: !encrypted/pkcs1-oaep [c2VjcmV0]}}}}
- job: {{name: extra, run: playbooks/extra.yaml, secrets: [key], nodeset: {{nodes: []}}}}
",
            self.semaphore_max
        );
        let queue = match (self.has(Scenario::DependencyCycles), self.has(Scenario::Gerrit)) {
            (_, true) => {
                "{name: integrated, allow-circular-dependencies: true, dependencies-by-topic: true}"
            }
            (true, false) => "{name: integrated, allow-circular-dependencies: true}",
            (false, false) => "{name: integrated}",
        };
        let common = COMMON.replacen("{name: integrated}", queue, 1);
        let cloud = cloud(self.instances);
        let more = graphs::yaml(&self.scenarios)
            + also(Scenario::Rechecks, RECHECK_YAML)
            + &scenarios::further_yaml(&self.scenarios);
        [
            &pipelines, BASE, &jobs, &common, &cloud, locks, &audit, &careful, &post, express,
            reporters, &more,
        ]
        .concat()
    }

    /// Returns the projects, each with the content of its first configuration file.
    pub fn projects(&self) -> Vec<(String, String)> {
        let all = self.tenants.iter().flat_map(|tenant| &tenant.projects);
        all.map(|(name, shared)| (name.clone(), self.project_yaml(name, *shared, 0))).collect()
    }
}

/// Returns the pipelines with a second gate like the first, for changes with its label or hashtag.
fn with_express(pipelines: &str) -> String {
    let Some((before, gate)) = pipelines.split_once("- pipeline:\n    name: gate\n") else {
        return pipelines.to_owned();
    };
    let require = "    require:\n      github:\n";
    let express = for_hashtag(
        &gate.replacen(require, &format!("{require}        label: {EXPRESS}\n"), 1),
        EXPRESS,
    );
    let tagged = format!("      gerrit:\n        hashtags: [{EXPRESS}]\n");
    let tagged = if gate.contains("      gerrit:\n") { tagged } else { String::new() };
    let reject = format!("    reject:\n      github:\n        label: {EXPRESS}\n{tagged}");
    format!(
        "{before}- pipeline:\n    name: gate\n{reject}{gate}- pipeline:\n    name: {EXPRESS}\n{express}"
    )
}

/// Merge modes by their names in the configuration.
const MODES: [(&str, MergeMode); 6] = [
    ("merge", MergeMode::Merge),
    ("merge-resolve", MergeMode::MergeResolve),
    ("cherry-pick", MergeMode::CherryPick),
    ("squash-merge", MergeMode::SquashMerge),
    ("rebase", MergeMode::Rebase),
    ("rebase-first-parent", MergeMode::RebaseFirstParent),
];

impl Shape {
    /// Returns a project's configuration. Each `edition` has another text and other jobs. One in
    /// four requests the project's secret in `check`, before review.
    pub(crate) fn project_yaml(&self, name: &str, shared: bool, edition: u64) -> String {
        let mode = self.mode_of(name);
        let is_explicit = self.has(Scenario::MergeModes) || is_gerrit_project(name);
        let named = MODES.iter().find(|(_, other)| *other == mode).filter(|_| is_explicit);
        let line = named.map(|(name, _)| format!("    merge-mode: {name}\n")).unwrap_or_default();
        let text = project_yaml(name, shared, edition, &line);
        match self.required_project(name) {
            Some(other) => required::with_job(&text, other),
            None => text,
        }
    }

    /// Returns the project that a job of `name` requires: the next project of its tenant. Returns
    /// `None` if the tenant has no other project, or without [`Scenario::RequiredProjects`].
    fn required_project(&self, name: &str) -> Option<&str> {
        let has_project =
            |tenant: &&TenantShape| tenant.projects.iter().any(|(own, _)| own == name);
        let projects = &self
            .tenants
            .iter()
            .find(has_project)
            .filter(|_| self.has(Scenario::RequiredProjects))?
            .projects;
        let at = projects.iter().position(|(own, _)| own == name)?;
        let (other, _) = projects.get((at + 1) % projects.len())?;
        (other != name).then_some(other.as_str())
    }
}

/// Returns a project's configuration, with additional lines for the project stanza.
pub(crate) fn project_yaml(name: &str, shared: bool, edition: u64, more: &str) -> String {
    let own = name.replace('/', "-");
    let queue = if shared { "    queue: integrated\n" } else { "" };
    let extra = if edition % 2 == 1 { ", extra" } else { "" };
    let (deploy, mark) = if edition % 4 == 3 {
        (format!(", deploy-{own}"), truth::GREEDY)
    } else {
        Default::default()
    };
    format!(
        "# edition {edition} {mark}
- secret: {{name: secret-{own}, data: {{password: !encrypted/pkcs1-oaep [c2VjcmV0]}}}}
- job: {{name: deploy-{own}, run: playbooks/deploy.yaml, secrets: [secret-{own}], nodeset: {{nodes: []}}}}
- project:
{queue}{more}    check: {{jobs: [unit, quick{extra}{deploy}]}}
    gate: {{jobs: [unit, quick, cluster, locked, deploy-{own}{extra}]}}
"
    )
}

impl TenantShape {
    /// Draws a tenant with one to three projects.
    fn draw(number: u64, random: &mut Random) -> Self {
        let name = format!("tenant{number}");
        let projects = (0..random.between(1, 3))
            .map(|p| (format!("org/t{number}p{p}"), random.per_mille(650)));
        Self { name, projects: projects.collect() }
    }
}

impl FaultProfile {
    /// Returns whether every webhook is delivered and stored at once.
    pub fn delivers_every_webhook(&self) -> bool {
        let deaths = self.dies_before + self.dies_after;
        let failures = self.fails_before + self.fails_after + self.throttled + self.outages;
        self.dropped_webhooks + deaths + failures == 0
    }

    /// Draws one of the eight fault profiles, with index lag and clock errors.
    fn draw(random: &mut Random) -> Self {
        let calm = Self { name: "calm", waits: 100, ..Self::default() };
        let crowd = Self {
            name: "crowd",
            waits: 400,
            undeleted_messages: 30,
            duplicated_webhooks: 100,
            ..Self::default()
        };
        let mut fault_profile = match random.below(8) {
            0 => calm,
            1 => crowd,
            2 => Self {
                name: "deaths",
                dies_before: 6,
                dies_after: 8,
                dropped_webhooks: 20,
                ..crowd
            },
            3 => Self { name: "lies", fails_before: 10, fails_after: 15, throttled: 8, ..crowd },
            4 => Self {
                name: "sleepers",
                sleeps: 12,
                dies_after: 2,
                fails_after: 2,
                undeleted_messages: 60,
                ..crowd
            },
            5 => Self {
                name: "executors",
                executors: 25,
                machines: 12,
                dies_after: 2,
                fails_after: 2,
                ..crowd
            },
            6 => Self {
                name: "forge",
                unruly_forge: 300,
                outages: 60,
                forge_behind_millis: random.between(0, 8_000),
                dropped_webhooks: 60,
                ..crowd
            },
            _ => Self {
                name: "storm",
                dies_before: 3,
                dies_after: 4,
                fails_before: 4,
                fails_after: 5,
                throttled: 4,
                sleeps: 4,
                executors: 10,
                machines: 5,
                outages: 30,
                unruly_forge: 80,
                dropped_webhooks: 30,
                forge_behind_millis: random.between(0, 4_000),
                ..crowd
            },
        };
        if random.per_mille(500) {
            fault_profile.index_lag_millis = 5_000;
        }
        if random.per_mille(400) {
            fault_profile.skew_millis = *random.one(&[1_000, 20_000, 600_000]).unwrap_or(&1_000);
        }
        fault_profile
    }
}
