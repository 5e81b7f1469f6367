//! What a seed chooses before anything happens: how large the site is, what people do, and what
//! goes wrong how often.

use crate::graphs;
use crate::plays::few_needs::{self, NEEDS_MAX};
use crate::plays::room::{self, CHANGES_MAX};
use crate::plays::{
    self, AUDIT, CAREFUL, EXPRESS, EXPRESS_YAML, LOCKS_YAML, POST, POST_YAML, Play, RECHECK_YAML,
    REPORTERS_YAML, audit_yaml, careful_yaml, lands, nodesets, required,
};
use crate::random::Random;
use crate::reviews::{at_hub, at_review, for_tagged, is_review, of_both, sources, with_words};
use crate::truth;
use crate::windows::Window;
use sluice_model::git::MergeMode;
use sluice_scenarios::sample::{BASE, COMMON, PIPELINES, cloud};
use std::collections::BTreeSet;

/// Milliseconds that a clock is from the right time at most where branches are moved: what is left
/// of a minute for two such clocks and for one that sleeps before it pushes.
const PUSHED_SKEW_MILLIS_MAX: u64 = 15_000;

/// A site as a seed has it.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Tenants with their projects.
    pub tenants: Vec<TenantShape>,
    /// Changes that are proposed.
    pub changes: u64,
    /// Things that people do to changes after that, besides approving them.
    pub actions: u64,
    /// Milliseconds between two things that people do, at most.
    pub pause_millis_max: u64,
    /// Machines at once.
    pub instances: u32,
    /// Builds that may hold the semaphore.
    pub semaphore_max: u32,
    /// Executors.
    pub executors: usize,
    /// The branches of each project.
    pub branches: Vec<&'static str>,
    /// Functions at work at once, those that sleep included.
    pub tasks_max: usize,
    /// What it plays besides.
    pub plays: BTreeSet<Play>,
    /// From what ways to merge follow.
    pub mode_seed: u64,
    /// The window of its gates, where they have one of their own.
    pub window: Window,
    /// What goes wrong.
    pub weather: Weather,
}

/// Which text the config project holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edition {
    /// What the seed drew.
    AsDrawn,
    /// The same without the pipeline that comes and goes.
    WithoutAudit,
    /// Broken on purpose: check tests what nobody reviewed as if somebody had.
    Leaky,
}

/// A tenant.
#[derive(Debug, Clone)]
pub struct TenantShape {
    /// Its name.
    pub name: String,
    /// Its projects, and whether each is in the shared queue.
    pub projects: Vec<(String, bool)>,
}

/// How often something goes wrong, in 1000 calls or occasions.
#[derive(Debug, Clone, Default)]
pub struct Weather {
    /// What people call it.
    pub name: &'static str,
    /// A function dies before a call.
    pub dies_before: u64,
    /// A function dies after a call.
    pub dies_after: u64,
    /// A call fails.
    pub fails_before: u64,
    /// A call is carried out, and its answer lost.
    pub fails_after: u64,
    /// A call is throttled.
    pub throttled: u64,
    /// A function waits at a call while others go on.
    pub waits: u64,
    /// One that waits does so for longer than its message is hidden.
    pub sleeps: u64,
    /// A handled message is not removed.
    pub kept: u64,
    /// A webhook is lost.
    pub lost_webhooks: u64,
    /// A webhook comes twice.
    pub double_webhooks: u64,
    /// An executor dies or is cut off, in 1000 seconds.
    pub executors: u64,
    /// A machine vanishes, in 1000 seconds.
    pub machines: u64,
    /// The forge, the cloud or the store does not answer for a while, in 1000 minutes.
    pub outages: u64,
    /// The forge refuses a merge, or merges something else, in 1000 things that people do.
    pub unruly_forge: u64,
    /// How far the indexes are behind, in milliseconds.
    pub index_lag_millis: u64,
    /// How far what the forge shows is behind, in milliseconds.
    pub forge_behind_millis: u64,
    /// How far a clock is from the right time, in milliseconds.
    pub skew_millis: u64,
}

impl Shape {
    /// Draws a site.
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
            plays: BTreeSet::new(),
            mode_seed: seed,
            window: Window::draw(seed),
            weather: Weather::draw(&mut random),
        };
        shape.playing(plays::draw(seed))
    }

    /// Returns the same site with other plays; one tenant's projects are at the Gerrit where that
    /// is played.
    #[must_use]
    pub fn playing(mut self, plays: BTreeSet<Play>) -> Self {
        let named = if plays.contains(&Play::Gerrit) { at_review } else { at_hub };
        for (name, _) in self.tenants.iter_mut().take(1).flat_map(|tenant| &mut tenant.projects) {
            *name = named(name);
        }
        if plays.contains(&Play::Forward) {
            // Who begins a push is given a minute to end it: by clocks that are further apart it is
            // over before.
            self.weather.skew_millis = self.weather.skew_millis.min(PUSHED_SKEW_MILLIS_MAX);
        }
        Self { plays, ..self }
    }

    /// Draws a site whose clocks are far apart and whose queues wait for layouts, so that much
    /// arrives before anything is taken in.
    pub fn skewed(seed: u64) -> Self {
        let crowded = Self::crowded(seed);
        let weather = Weather {
            name: "skewed",
            skew_millis: 600_000,
            sleeps: 20,
            waits: 400,
            ..crowded.weather
        };
        Self { actions: 30, pause_millis_max: 2_000, weather, ..crowded }
    }

    /// Draws a site where much is done to few things at once, and where many sleep in the middle of
    /// it.
    pub fn crowded(seed: u64) -> Self {
        let mut random = Random::new(seed, 6);
        let projects = (0..3).map(|project| (format!("org/t0p{project}"), false)).collect();
        let weather = Weather {
            name: "crowded",
            waits: 500,
            sleeps: random.between(30, 120),
            fails_after: 4,
            dies_after: 2,
            kept: 60,
            double_webhooks: 100,
            ..Weather::default()
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
            plays: BTreeSet::new(),
            mode_seed: seed,
            window: Window::GATE,
            weather,
        }
    }

    /// Returns whether the site plays something that not every site does.
    pub fn has(&self, play: Play) -> bool {
        self.plays.contains(&play)
    }

    /// Returns how a project has its changes merged. A Gerrit picks the one commit that a change
    /// is.
    pub fn mode_of(&self, project: &str) -> MergeMode {
        if is_review(project) {
            return MergeMode::CherryPick;
        }
        let number = project
            .bytes()
            .fold(self.mode_seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let modes = Some(&MODES).filter(|_| self.has(Play::Modes));
        modes
            .and_then(|modes| Random::new(number, 11).one(modes).copied())
            .map(|(_, mode)| mode)
            .unwrap_or_default()
    }

    /// Returns the window of a pipeline.
    pub fn window_of(&self, pipeline: &str) -> Window {
        match pipeline {
            gate if lands(gate) && self.has(Play::Windows) => self.window,
            gate if lands(gate) => Window::GATE,
            POST | CAREFUL => Window::ONE,
            _ => Window::NONE,
        }
    }

    /// Returns the most changes that one of a tenant's may need; `None` where that is as it is by
    /// default.
    pub fn needs_max(&self, tenant: &str) -> Option<usize> {
        (self.has(Play::FewNeeds) && !self.has_reviews(tenant)).then_some(NEEDS_MAX)
    }

    /// Returns the most changes that a pipeline of a tenant may hold; `None` for any number.
    pub fn changes_max(&self, tenant: &str) -> Option<u32> {
        (self.has(Play::FewChanges) && !self.has_reviews(tenant)).then_some(CHANGES_MAX)
    }

    /// Returns whether a tenant has projects at the Gerrit.
    fn has_reviews(&self, tenant: &str) -> bool {
        let mut its = self
            .tenants
            .iter()
            .filter(|shape| shape.name == tenant)
            .flat_map(|shape| &shape.projects);
        its.any(|(name, _)| is_review(name))
    }

    /// Returns the main configuration.
    pub fn main_yaml(&self) -> String {
        let (shared, semaphores) = match self.has(Play::Locks) {
            true => (
                format!("- global-semaphore: {{name: shared, max: {}}}\n", self.semaphore_max),
                "semaphores: [shared], ",
            ),
            false => Default::default(),
        };
        let nodes = if self.has(Play::Nodesets) { nodesets::LIMIT } else { "" };
        let tenant = |tenant: &TenantShape| {
            let projects: Vec<&str> =
                tenant.projects.iter().map(|(name, _)| name.as_str()).collect();
            let sources = sources(&projects);
            let needs = if self.needs_max(&tenant.name).is_some() { few_needs::LIMIT } else { "" };
            let changes = if self.changes_max(&tenant.name).is_some() { room::LIMIT } else { "" };
            format!(
                "- tenant: {{name: {}, {semaphores}{needs}{changes}{nodes}source: {{{sources}}}}}\n",
                tenant.name
            )
        };
        shared + &self.tenants.iter().map(tenant).collect::<String>()
    }

    /// Returns what the config project holds.
    pub fn config_yaml(&self, edition: Edition) -> String {
        let mut pipelines = PIPELINES.to_owned();
        if edition == Edition::Leaky {
            pipelines = pipelines.replacen(
                "manager: independent",
                "manager: independent\n    post-review: true",
                1,
            );
        }
        if self.has(Play::Supersedes) {
            pipelines = pipelines.replacen(
                "precedence: high",
                "precedence: high\n    supercedes: check",
                1,
            );
        }
        if self.has(Play::Windows) {
            pipelines = pipelines.replacen(
                "precedence: high\n",
                &format!("precedence: high\n{}", self.window.yaml()),
                1,
            );
        }
        if self.has(Play::Gerrit) {
            pipelines = of_both(&pipelines);
        }
        if self.has(Play::TwoGates) {
            pipelines = with_express(&pipelines);
        }
        let also = |play, yaml| if self.has(play) { yaml } else { "" };
        let told = |pipeline, yaml: &str| {
            if self.has(Play::Gerrit) { with_words(yaml, pipeline) } else { yaml.to_owned() }
        };
        let locks = also(Play::Locks, LOCKS_YAML);
        let careful =
            if self.has(Play::Serial) { told(CAREFUL, &careful_yaml()) } else { String::new() };
        let post = told(POST, also(Play::Post, POST_YAML));
        let express = also(Play::TwoGates, EXPRESS_YAML);
        let reporters = also(Play::Reporters, REPORTERS_YAML);
        let has_audit = self.has(Play::Audit) && edition != Edition::WithoutAudit;
        let audit = if has_audit { told(AUDIT, &audit_yaml()) } else { String::new() };
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
        let queue = match (self.has(Play::Cycles), self.has(Play::Gerrit)) {
            (_, true) => {
                "{name: integrated, allow-circular-dependencies: true, dependencies-by-topic: true}"
            }
            (true, false) => "{name: integrated, allow-circular-dependencies: true}",
            (false, false) => "{name: integrated}",
        };
        let common = COMMON.replacen("{name: integrated}", queue, 1);
        let cloud = cloud(self.instances);
        let latest = graphs::yaml(&self.plays)
            + also(Play::Retests, RECHECK_YAML)
            + &plays::further_yaml(&self.plays);
        [
            &pipelines, BASE, &jobs, &common, &cloud, locks, &audit, &careful, &post, express,
            reporters, &latest,
        ]
        .concat()
    }

    /// Returns the projects with the configuration that each begins with.
    pub fn projects(&self) -> Vec<(String, String)> {
        let all = self.tenants.iter().flat_map(|tenant| &tenant.projects);
        all.map(|(name, shared)| (name.clone(), self.project_yaml(name, *shared, 0))).collect()
    }
}

/// Returns the pipelines with a second gate like the first, for changes that are labelled for it.
fn with_express(pipelines: &str) -> String {
    let Some((before, gate)) = pipelines.split_once("- pipeline:\n    name: gate\n") else {
        return pipelines.to_owned();
    };
    let asked = "    require:\n      github:\n";
    let express = for_tagged(
        &gate.replacen(asked, &format!("{asked}        label: {EXPRESS}\n"), 1),
        EXPRESS,
    );
    let tagged = format!("      gerrit:\n        hashtags: [{EXPRESS}]\n");
    let tagged = if gate.contains("      gerrit:\n") { tagged } else { String::new() };
    let reject = format!("    reject:\n      github:\n        label: {EXPRESS}\n{tagged}");
    format!(
        "{before}- pipeline:\n    name: gate\n{reject}{gate}- pipeline:\n    name: {EXPRESS}\n{express}"
    )
}

/// Ways to merge by their words.
const MODES: [(&str, MergeMode); 6] = [
    ("merge", MergeMode::Merge),
    ("merge-resolve", MergeMode::MergeResolve),
    ("cherry-pick", MergeMode::CherryPick),
    ("squash-merge", MergeMode::SquashMerge),
    ("rebase", MergeMode::Rebase),
    ("rebase-first-parent", MergeMode::RebaseFirstParent),
];

impl Shape {
    /// Returns a project's configuration; each `edition` is another text and brings other jobs. One
    /// in four asks for the project's secret in check, where nobody has reviewed anything yet.
    pub fn project_yaml(&self, name: &str, shared: bool, edition: u64) -> String {
        let mode = self.mode_of(name);
        let is_said = self.has(Play::Modes) || is_review(name);
        let word = MODES.iter().find(|(_, known)| *known == mode).filter(|_| is_said);
        let merged = word.map(|(word, _)| format!("    merge-mode: {word}\n")).unwrap_or_default();
        let text = project_yaml(name, shared, edition, &merged);
        match self.required_of(name) {
            Some(other) => required::with_job(&text, other),
            None => text,
        }
    }

    /// Returns the project that a job of another one is given: the next one of its tenant, if there
    /// is any.
    fn required_of(&self, name: &str) -> Option<&str> {
        let is_its = |tenant: &&TenantShape| tenant.projects.iter().any(|(own, _)| own == name);
        let projects = &self
            .tenants
            .iter()
            .find(is_its)
            .filter(|_| self.has(Play::RequiredProjects))?
            .projects;
        let at = projects.iter().position(|(own, _)| own == name)?;
        let (other, _) = projects.get((at + 1) % projects.len())?;
        (other != name).then_some(other.as_str())
    }
}

/// Returns a project's configuration with these attributes more.
pub fn project_yaml(name: &str, shared: bool, edition: u64, more: &str) -> String {
    let own = name.replace('/', "-");
    let queue = if shared { "    queue: integrated\n" } else { "" };
    let extra = if edition % 2 == 1 { ", extra" } else { "" };
    let (greed, mark) = if edition % 4 == 3 {
        (format!(", deploy-{own}"), truth::GREEDY)
    } else {
        Default::default()
    };
    format!(
        "# edition {edition} {mark}
- secret: {{name: secret-{own}, data: {{password: !encrypted/pkcs1-oaep [c2VjcmV0]}}}}
- job: {{name: deploy-{own}, run: playbooks/deploy.yaml, secrets: [secret-{own}], nodeset: {{nodes: []}}}}
- project:
{queue}{more}    check: {{jobs: [unit, quick{extra}{greed}]}}
    gate: {{jobs: [unit, quick, cluster, locked, deploy-{own}{extra}]}}
"
    )
}

impl TenantShape {
    fn draw(number: u64, random: &mut Random) -> Self {
        let name = format!("tenant{number}");
        let projects = (0..random.between(1, 3))
            .map(|p| (format!("org/t{number}p{p}"), random.per_mille(650)));
        Self { name, projects: projects.collect() }
    }
}

impl Weather {
    /// Returns whether every webhook is taken in.
    pub fn all_are_heard(&self) -> bool {
        let deaths = self.dies_before + self.dies_after;
        let failures = self.fails_before + self.fails_after + self.throttled + self.outages;
        self.lost_webhooks + deaths + failures == 0
    }

    fn draw(random: &mut Random) -> Self {
        let calm = Self { name: "calm", waits: 100, ..Self::default() };
        let crowd =
            Self { name: "crowd", waits: 400, kept: 30, double_webhooks: 100, ..Self::default() };
        let mut weather = match random.below(8) {
            0 => calm,
            1 => crowd,
            2 => Self { name: "deaths", dies_before: 6, dies_after: 8, lost_webhooks: 20, ..crowd },
            3 => Self { name: "lies", fails_before: 10, fails_after: 15, throttled: 8, ..crowd },
            4 => Self {
                name: "sleepers",
                sleeps: 12,
                dies_after: 2,
                fails_after: 2,
                kept: 60,
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
                lost_webhooks: 60,
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
                lost_webhooks: 30,
                forge_behind_millis: random.between(0, 4_000),
                ..crowd
            },
        };
        if random.per_mille(500) {
            weather.index_lag_millis = 5_000;
        }
        if random.per_mille(400) {
            weather.skew_millis = *random.one(&[1_000, 20_000, 600_000]).unwrap_or(&1_000);
        }
        weather
    }
}
