//! Scenarios: features that only some seeds exercise. They are drawn separately, so that a new
//! scenario does not change the sites of older seeds.

pub mod branches;
pub mod change_trees;
pub mod disabled_pipelines;
pub mod enqueued_refs;
pub mod file_filters;
pub mod followers;
pub mod mails;
pub mod max_changes;
pub mod max_dependencies;
pub mod newcomers;
pub mod nodesets;
pub mod publications;
pub mod reloads;
pub mod required;
pub mod reverts;
pub mod tags;
pub mod timers;

use crate::random::Random;
use branches::SIDES_YAML;
use disabled_pipelines::shaky_yaml;
use enqueued_refs::MANUAL_YAML;
use file_filters::FILES_YAML;
use followers::FOLLOW_YAML;
use mails::letters_yaml;
use nodesets::CHOOSY_YAML;
use publications::broadcast_yaml;
use std::collections::BTreeSet;
use tags::RELEASE_YAML;
use timers::NIGHTLY_YAML;

/// How many of 1000 sites exercise each scenario.
const SCENARIO_PER_MILLE: u64 = 300;

/// The pipeline that operators add and remove.
pub const AUDIT: &str = "audit";

/// A feature that some seeds exercise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Authors upload several revisions at one instant, and one of them may be approved in between.
    Bursts,
    /// Jobs hold a tenant's semaphore that they acquire after their nodes, or several semaphores
    /// that they acquire before, one of them global.
    Semaphores,
    /// The gate supersedes `check`.
    Supersedes,
    /// A third pipeline, which operators remove and add again while changes are in it.
    Audit,
    /// The shared queue allows dependency cycles, and some changes form one.
    DependencyCycles,
    /// The gate has drawn window settings.
    Windows,
    /// Projects have different merge modes, and changes have several commits.
    MergeModes,
    /// A serial pipeline, which processes one change of any project at a time.
    Serial,
    /// A supercedent post-merge pipeline.
    Post,
    /// A second gate for the same branches, for urgent changes.
    TwoGates,
    /// Reviewers withdraw approvals of changes that are in the gate or landing, and may approve
    /// them again.
    WithdrawnApprovals,
    /// The projects of one tenant are hosted by a Gerrit: votes, patchsets, chains of commits,
    /// topics, hashtags, work in progress.
    Gerrit,
    /// GitHub branches are fast-forwarded to the tested commits where the merge mode allows it,
    /// with several changes in one push.
    FastForward,
    /// A reporter job runs after the report of a merged change, and sometimes fails.
    ReporterJobs,
    /// Jobs with hard and soft dependencies, a non-voting job, a job that selects its child jobs,
    /// and a job that pauses while its child jobs run ([`crate::graphs`]).
    JobGraphs,
    /// The first failed job of a change ends its other jobs.
    FailFast,
    /// An initializer job runs before all other jobs of its change.
    Initializers,
    /// A job of the gate holds the jobs of following changes until it has passed.
    HoldFollowing,
    /// A job requires artifacts that a job of the changes ahead provides.
    Artifacts,
    /// Operators request autoholds, which keep nodes of failed builds for a while.
    Autoholds,
    /// Operators pause trigger or result events for a while.
    EventPauses,
    /// A pipeline that tests the open changes of a project again when one of its changes has
    /// landed.
    Rechecks,
    /// A pipeline that tests the dependents of a change when the change enters the gate.
    Followers,
    /// Jobs that run only for changes of some files.
    FileFilters,
    /// Operators enqueue branches in a pipeline without triggers.
    EnqueuedRefs,
    /// Authors push tags, which trigger a pipeline.
    Tags,
    /// Operators have trigger events discarded for a while.
    EventDiscards,
    /// A timer trigger tests every branch.
    Timers,
    /// Operators add a job for all projects, and remove it, while changes are being tested.
    Reconfigurations,
    /// A pipeline that reports by mail.
    Mails,
    /// A pipeline that is disabled after two consecutive failures.
    DisabledPipelines,
    /// Authors create branches and delete them again.
    Branches,
    /// Tenants refuse changes with more than one dependency (`max-dependencies`).
    MaxDependencies,
    /// A job has a fallback nodeset, which every site needs to use.
    NodesetFallbacks,
    /// A pipeline that reports by MQTT, and reports successes by mail as well.
    Publications,
    /// A job of each project requires another project of its tenant.
    RequiredProjects,
    /// Administrators revert landed changes by a push.
    Reverts,
    /// Tenants limit the changes of each pipeline (`max-changes-per-pipeline`).
    MaxChanges,
    /// Authors propose trees of changes that need each other, which one event brings into the gate.
    ChangeTrees,
    /// Operators remove projects from their tenants, and may add them again.
    Departures,
    /// A change brings its project into the pipelines, and others of the project are behind it.
    Newcomers,
}

impl Scenario {
    /// The scenarios that every seed may draw.
    pub const ALL: [Self; 12] = [
        Self::Bursts,
        Self::Semaphores,
        Self::Supersedes,
        Self::Audit,
        Self::DependencyCycles,
        Self::WithdrawnApprovals,
        Self::Windows,
        Self::Serial,
        Self::Post,
        Self::MergeModes,
        Self::TwoGates,
        Self::Gerrit,
    ];

    /// The scenarios that seeds from [`NEWEST_FROM`] on may draw as well, so that older seeds keep
    /// their sites.
    pub const NEWEST: [Self; 2] = [Self::FastForward, Self::ReporterJobs];

    /// The scenarios that seeds from [`LATEST_FROM`] on may draw as well.
    pub const LATEST: [Self; 8] = [
        Self::JobGraphs,
        Self::FailFast,
        Self::Initializers,
        Self::HoldFollowing,
        Self::Artifacts,
        Self::Autoholds,
        Self::EventPauses,
        Self::Rechecks,
    ];

    /// The scenarios that seeds from [`FURTHER_FROM`] on may draw as well.
    pub const FURTHER: &[Self] = &[
        Self::Followers,
        Self::FileFilters,
        Self::EnqueuedRefs,
        Self::Tags,
        Self::EventDiscards,
        Self::Timers,
        Self::Reconfigurations,
        Self::Mails,
        Self::DisabledPipelines,
        Self::Branches,
    ];

    /// The scenarios that seeds from [`ADDED_FROM`] on may draw as well.
    pub const ADDED: &[Self] = &[
        Self::MaxDependencies,
        Self::NodesetFallbacks,
        Self::Publications,
        Self::RequiredProjects,
    ];

    /// The scenarios that seeds from [`RECENT_FROM`] on may draw as well.
    pub const RECENT: &[Self] = &[Self::Reverts, Self::MaxChanges];

    /// The scenarios that seeds from [`CURRENT_FROM`] on may draw as well.
    pub const CURRENT: &[Self] = &[Self::ChangeTrees, Self::Departures, Self::Newcomers];
}

/// The first seed that may draw [`Scenario::NEWEST`].
pub const NEWEST_FROM: u64 = 1_000_000;

/// The first seed that may draw [`Scenario::LATEST`].
pub const LATEST_FROM: u64 = 2_000_000;

/// The first seed that may draw [`Scenario::FURTHER`].
pub const FURTHER_FROM: u64 = 4_000_000;

/// The first seed that may draw [`Scenario::ADDED`].
pub const ADDED_FROM: u64 = 5_000_000;

/// The first seed that may draw [`Scenario::RECENT`].
pub const RECENT_FROM: u64 = 9_000_000;

/// The first seed that may draw [`Scenario::CURRENT`].
pub const CURRENT_FROM: u64 = 30_000_000;

/// Scenarios that only newer seeds draw, so that older seeds keep their plays.
struct LaterScenarios {
    /// The first seed that draws them.
    from_seed: u64,
    /// The random stream that draws them.
    stream: u64,
    scenarios: &'static [Scenario],
}

/// In the order of their first seeds.
const LATER_SCENARIOS: [LaterScenarios; 6] = [
    LaterScenarios { from_seed: NEWEST_FROM, stream: 12, scenarios: &Scenario::NEWEST },
    LaterScenarios { from_seed: LATEST_FROM, stream: 13, scenarios: &Scenario::LATEST },
    LaterScenarios { from_seed: FURTHER_FROM, stream: 14, scenarios: Scenario::FURTHER },
    LaterScenarios { from_seed: ADDED_FROM, stream: 15, scenarios: Scenario::ADDED },
    LaterScenarios { from_seed: RECENT_FROM, stream: 16, scenarios: Scenario::RECENT },
    LaterScenarios { from_seed: CURRENT_FROM, stream: 18, scenarios: Scenario::CURRENT },
];

/// Draws the scenarios of a seed.
pub fn draw(seed: u64) -> BTreeSet<Scenario> {
    let mut random = Random::new(seed, 8);
    let mut scenarios: BTreeSet<Scenario> =
        Scenario::ALL.into_iter().filter(|_| random.per_mille(SCENARIO_PER_MILLE)).collect();
    for later in LATER_SCENARIOS.iter().filter(|later| seed >= later.from_seed) {
        let mut random = Random::new(seed, later.stream);
        scenarios.extend(
            later.scenarios.iter().copied().filter(|_| random.per_mille(SCENARIO_PER_MILLE)),
        );
    }
    scenarios
}

/// Returns the configuration of the scenarios in [`Scenario::FURTHER`] and [`Scenario::ADDED`] that
/// are in `scenarios`.
pub fn further_yaml(scenarios: &BTreeSet<Scenario>) -> String {
    let (letters, shaky, broadcast) = (letters_yaml(), shaky_yaml(), broadcast_yaml());
    let all = [
        (Scenario::Followers, FOLLOW_YAML),
        (Scenario::FileFilters, FILES_YAML),
        (Scenario::EnqueuedRefs, MANUAL_YAML),
        (Scenario::Tags, RELEASE_YAML),
        (Scenario::Timers, NIGHTLY_YAML),
        (Scenario::Mails, letters.as_str()),
        (Scenario::DisabledPipelines, shaky.as_str()),
        (Scenario::Branches, SIDES_YAML),
        (Scenario::NodesetFallbacks, CHOOSY_YAML),
        (Scenario::Publications, broadcast.as_str()),
    ];
    all.into_iter()
        .filter(|(scenario, _)| scenarios.contains(scenario))
        .map(|(_, yaml)| yaml)
        .collect()
}

/// The second gate, for urgent changes.
pub const EXPRESS: &str = "express";

/// The serial pipeline.
pub const CAREFUL: &str = "careful";

/// The post-merge pipeline.
pub const POST: &str = "post";

/// The pipeline that landings trigger.
pub const RECHECK: &str = "recheck";

/// The pipelines that report on open changes by a status with their name.
pub const STATUS_PIPELINES: [&str; 5] = ["check", "gate", AUDIT, EXPRESS, CAREFUL];

/// Returns whether a pipeline lands the changes that pass in it.
pub fn lands(pipeline: &str) -> bool {
    pipeline == "gate" || pipeline == EXPRESS
}

/// When a job acquires its semaphores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SemaphoreTiming {
    /// When its build is ordered; nodes are requested afterwards.
    BeforeNodes,
    /// When its build has its nodes, before an executor claims it.
    WithNodes,
}

/// Jobs with the semaphores that they name. The order of nodes and semaphores is the same for all
/// jobs of a semaphore. Otherwise a deadlock would be resolved only after minutes, which is most of
/// a run.
pub const SEMAPHORE_JOBS: [(&str, &[&str], SemaphoreTiming); 3] = [
    ("locked", &["one"], SemaphoreTiming::BeforeNodes),
    ("turns", &["shared", "one"], SemaphoreTiming::BeforeNodes),
    ("guarded", &["two"], SemaphoreTiming::WithNodes),
];

/// Returns how many builds may hold a semaphore. `one` is the maximum of all but `two`.
pub fn semaphore_max(semaphore: &str, one: usize) -> usize {
    if semaphore == "two" { 1 } else { one }
}

/// The configuration of [`Scenario::Semaphores`].
pub const SEMAPHORES_YAML: &str = "
- semaphore: {name: two, max: 1}
- job: {name: turns, run: playbooks/turns.yaml, semaphores: [shared, one]}
- job: {name: guarded, run: playbooks/guarded.yaml, semaphores: [{name: two, resources-first: true}]}
- project: {name: ^org/t.*, check: {jobs: [turns]}, gate: {jobs: [turns, guarded]}}
";

/// Returns the configuration of [`Scenario::Audit`].
pub fn audit_yaml() -> String {
    for_open_changes(AUDIT, "quick, unit", INDEPENDENT, BY_STATUS)
}

/// Returns the configuration of [`Scenario::Serial`].
pub fn careful_yaml() -> String {
    for_open_changes(CAREFUL, "quick", "    manager: serial\n", BY_STATUS)
}

/// The settings of most pipelines that test open changes without landing them.
const INDEPENDENT: &str = "    manager: independent
    precedence: low
";

/// The reporters of pipelines that report by a status.
const BY_STATUS: &str = "    start:
      github: {status: pending, comment: false}
    success:
      github: {status: success}
    failure:
      github: {status: failure}
";

/// Returns the configuration of a pipeline that open changes trigger, and of its jobs. `settings`
/// and `reporters` are complete lines of the pipeline.
fn for_open_changes(name: &str, jobs: &str, settings: &str, reporters: &str) -> String {
    format!(
        "
- pipeline:
    name: {name}
{settings}    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
{reporters}- project: {{name: ^org/t.*, {name}: {{jobs: [{jobs}]}}}}
"
    )
}

/// The configuration of [`Scenario::Rechecks`]. The pipeline has no reporters.
pub const RECHECK_YAML: &str = "
- pipeline:
    name: recheck
    manager: independent
    precedence: low
    trigger:
      zuul:
        - event: project-change-merged
- project: {name: ^org/t.*, recheck: {jobs: [quick, unit]}}
";

/// The configuration of [`Scenario::Post`].
pub const POST_YAML: &str = "
- pipeline:
    name: post
    manager: supercedent
    post-review: true
    trigger:
      github:
        - event: push
          ref: ^refs/heads/.*$
- project: {name: ^org/t.*, post: {jobs: [quick, unit]}}
";

/// The reporter job of [`Scenario::ReporterJobs`], which runs after the report.
pub const PUBLISH: &str = "publish";

/// The configuration of [`Scenario::ReporterJobs`].
pub const REPORTERS_YAML: &str = "
- job: {name: publish, type: reporter, run: playbooks/publish.yaml, nodeset: {nodes: []}}
- project: {name: ^org/t.*, gate: {jobs: [publish]}}
";

/// The jobs of the pipeline [`EXPRESS`] of [`Scenario::TwoGates`].
pub const EXPRESS_YAML: &str = "
- project: {name: ^org/t.*, express: {jobs: [quick, unit]}}
";

#[cfg(test)]
mod tests {
    use super::*;

    /// C2: seeds draw a later scenario only from its first seed on.
    #[test]
    fn older_seeds_draw_no_later_scenario() {
        for (index, later) in LATER_SCENARIOS.iter().enumerate() {
            let earlier = &LATER_SCENARIOS[..index];
            let mut seeds = (1..2_000).chain([later.from_seed - 1]).chain(
                earlier.iter().flat_map(|earlier| earlier.from_seed..earlier.from_seed + 2_000),
            );
            let is_later = |scenario: &Scenario| later.scenarios.contains(scenario);
            assert!(seeds.all(|seed| !draw(seed).iter().any(is_later)), "{:?}", later.scenarios);
            for scenario in LATER_SCENARIOS[..=index].iter().flat_map(|sets| sets.scenarios) {
                let drawn = (later.from_seed..later.from_seed + 200)
                    .filter(|seed| draw(*seed).contains(scenario))
                    .count();
                assert!((20..=100).contains(&drawn), "{scenario:?} is drawn {drawn} times");
            }
        }
    }
}
