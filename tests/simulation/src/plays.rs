//! What only some sites play besides: drawn from a seed by itself, so that what the others play
//! stays as it is.

pub mod branches;
pub mod disabling;
pub mod few_needs;
pub mod files;
pub mod followers;
pub mod mails;
pub mod nodesets;
pub mod offered_refs;
pub mod publications;
pub mod reloads;
pub mod required;
pub mod reverts;
pub mod room;
pub mod tags;
pub mod timers;

use crate::random::Random;
use branches::SIDES_YAML;
use disabling::shaky_yaml;
use files::FILES_YAML;
use followers::FOLLOW_YAML;
use mails::letters_yaml;
use nodesets::CHOOSY_YAML;
use offered_refs::MANUAL_YAML;
use publications::broadcast_yaml;
use std::collections::BTreeSet;
use tags::RELEASE_YAML;
use timers::NIGHTLY_YAML;

/// How many sites of 1000 play each.
const PLAYS_PER_MILLE: u64 = 300;

/// The pipeline that comes and goes.
pub const AUDIT: &str = "audit";

/// Something that not every site plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Play {
    /// People upload several revisions within a moment, and may approve one between.
    Bursts,
    /// Jobs hold a tenant's semaphore that they take with their nodes in hand, or several that they
    /// take before, one of them global.
    Locks,
    /// What enters gate leaves check.
    Supersedes,
    /// A third pipeline, which an operator takes away and brings back while changes are in it.
    Audit,
    /// Changes of the shared queue may need each other, and some do.
    Cycles,
    /// The gate has a window of its own.
    Windows,
    /// Projects have their changes merged in whatever way there is, and changes have several
    /// commits.
    Modes,
    /// A pipeline that takes one change after the other, whatever project it is of.
    Serial,
    /// A pipeline for what is in a branch, which only ever waits for the newest.
    Post,
    /// A second gate for the same branches, into which some changes go.
    TwoGates,
    /// People take approvals back of what stands in the gate, is tested or lands, and may give them
    /// again.
    SecondThoughts,
    /// The projects of one tenant are at a Gerrit: votes, patchsets, chains of commits, topics,
    /// hashtags, work in progress.
    Gerrit,
    /// Branches at GitHub are moved to the commits that were tested, where that may be, several
    /// changes by one push.
    Forward,
    /// A job runs after the report of what landed, and fails now and then.
    Reporters,
    /// Jobs depend on each other, softly or not; one does not vote, one chooses which of those
    /// behind it are run, one pauses while those behind it run ([`crate::graphs`]).
    Graphs,
    /// The first job that fails ends the others of its change.
    FailFast,
    /// A job comes before all others of its change.
    Initializers,
    /// A job of the gate holds what is behind its change until it has passed.
    Heralds,
    /// A job provides what another one requires of the changes that its own is tested on.
    Artifacts,
    /// Operators want nodes of failed builds kept for a while.
    Autoholds,
    /// Operators have what comes, or what is answered, wait for a while.
    Pauses,
    /// A pipeline that tests the open changes of a project once more when one of it landed.
    Retests,
    /// A pipeline that tests what depends on a change once that enters the gate.
    Followers,
    /// Jobs that are only for changes of some files.
    Files,
    /// Operators offer branches to a pipeline that nothing else starts.
    OfferedRefs,
    /// People put tags on branches, which start a pipeline of their own.
    Tags,
    /// Operators have events discarded for a while.
    Discards,
    /// A timer has every branch tested now and then.
    Timers,
    /// Operators add a job for all projects, and take it away, while changes are tested.
    Reloads,
    /// A pipeline that tells of changes by mail.
    Mails,
    /// A pipeline that is disabled after two failures in a row.
    Disabling,
    /// People make branches, and delete them again.
    Branches,
    /// Tenants take no change in that needs more than one other (`max-dependencies`).
    FewNeeds,
    /// A job has a nodeset to fall back on, and needs it at every site.
    Nodesets,
    /// A pipeline that publishes to a broker, and tells some of it by mail as well.
    Publications,
    /// A job of each project is given another one of its tenant.
    RequiredProjects,
    /// People take back what landed, by a push to its branch.
    Reverts,
    /// No pipeline of a tenant holds more than a few changes (`max-changes-per-pipeline`).
    FewChanges,
}

impl Play {
    /// Those that every seed may draw.
    pub const ALL: [Self; 12] = [
        Self::Bursts,
        Self::Locks,
        Self::Supersedes,
        Self::Audit,
        Self::Cycles,
        Self::SecondThoughts,
        Self::Windows,
        Self::Serial,
        Self::Post,
        Self::Modes,
        Self::TwoGates,
        Self::Gerrit,
    ];

    /// Those that seeds draw from [`NEWEST_FROM`] on, so that all before keep the sites that they
    /// had.
    pub const NEWEST: [Self; 2] = [Self::Forward, Self::Reporters];

    /// Those that seeds draw from [`LATEST_FROM`] on.
    pub const LATEST: [Self; 8] = [
        Self::Graphs,
        Self::FailFast,
        Self::Initializers,
        Self::Heralds,
        Self::Artifacts,
        Self::Autoholds,
        Self::Pauses,
        Self::Retests,
    ];

    /// Those that seeds draw from [`FURTHER_FROM`] on.
    pub const FURTHER: &[Self] = &[
        Self::Followers,
        Self::Files,
        Self::OfferedRefs,
        Self::Tags,
        Self::Discards,
        Self::Timers,
        Self::Reloads,
        Self::Mails,
        Self::Disabling,
        Self::Branches,
    ];

    /// Those that seeds draw from [`ADDED_FROM`] on.
    pub const ADDED: &[Self] =
        &[Self::FewNeeds, Self::Nodesets, Self::Publications, Self::RequiredProjects];

    /// Those that seeds draw from [`RECENT_FROM`] on.
    pub const RECENT: &[Self] = &[Self::Reverts, Self::FewChanges];
}

/// The first seed that draws the newest plays as well.
pub const NEWEST_FROM: u64 = 1_000_000;

/// The first seed that draws the latest as well.
pub const LATEST_FROM: u64 = 2_000_000;

/// The first seed that draws the further ones as well.
pub const FURTHER_FROM: u64 = 4_000_000;

/// The first seed that draws what was added to those as well.
pub const ADDED_FROM: u64 = 5_000_000;

/// The first seed that draws the most recent ones as well.
pub const RECENT_FROM: u64 = 9_000_000;

/// Returns what a seed's site plays.
pub fn draw(seed: u64) -> BTreeSet<Play> {
    let mut random = Random::new(seed, 8);
    let mut plays: BTreeSet<Play> =
        Play::ALL.into_iter().filter(|_| random.per_mille(PLAYS_PER_MILLE)).collect();
    if seed >= NEWEST_FROM {
        let mut random = Random::new(seed, 12);
        plays.extend(Play::NEWEST.into_iter().filter(|_| random.per_mille(PLAYS_PER_MILLE)));
    }
    if seed >= LATEST_FROM {
        let mut random = Random::new(seed, 13);
        plays.extend(Play::LATEST.into_iter().filter(|_| random.per_mille(PLAYS_PER_MILLE)));
    }
    if seed >= FURTHER_FROM {
        let mut random = Random::new(seed, 14);
        plays.extend(Play::FURTHER.iter().copied().filter(|_| random.per_mille(PLAYS_PER_MILLE)));
    }
    if seed >= ADDED_FROM {
        let mut random = Random::new(seed, 15);
        plays.extend(Play::ADDED.iter().copied().filter(|_| random.per_mille(PLAYS_PER_MILLE)));
    }
    if seed >= RECENT_FROM {
        let mut random = Random::new(seed, 16);
        plays.extend(Play::RECENT.iter().copied().filter(|_| random.per_mille(PLAYS_PER_MILLE)));
    }
    plays
}

/// Returns what the config project holds of the further plays, and of those that were added to
/// them.
pub fn further_yaml(plays: &BTreeSet<Play>) -> String {
    let (letters, shaky, broadcast) = (letters_yaml(), shaky_yaml(), broadcast_yaml());
    let all = [
        (Play::Followers, FOLLOW_YAML),
        (Play::Files, FILES_YAML),
        (Play::OfferedRefs, MANUAL_YAML),
        (Play::Tags, RELEASE_YAML),
        (Play::Timers, NIGHTLY_YAML),
        (Play::Mails, letters.as_str()),
        (Play::Disabling, shaky.as_str()),
        (Play::Branches, SIDES_YAML),
        (Play::Nodesets, CHOOSY_YAML),
        (Play::Publications, broadcast.as_str()),
    ];
    all.into_iter().filter(|(play, _)| plays.contains(play)).map(|(_, yaml)| yaml).collect()
}

/// The pipeline for urgent changes, which lands them by itself.
pub const EXPRESS: &str = "express";

/// The pipeline that takes one change after the other.
pub const CAREFUL: &str = "careful";

/// The pipeline for what is in a branch.
pub const POST: &str = "post";

/// The pipeline that is started by landings.
pub const RECHECK: &str = "recheck";

/// Pipelines that tell of an open change by a status of their name.
pub const TELLING: [&str; 5] = ["check", "gate", AUDIT, EXPRESS, CAREFUL];

/// Returns whether what passes in a pipeline is landed by it.
pub fn lands(pipeline: &str) -> bool {
    pipeline == "gate" || pipeline == EXPRESS
}

/// When a job has its semaphores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// When it is ordered: nodes are asked for afterwards.
    BeforeNodes,
    /// When an executor takes it: with its nodes in hand.
    WithNodes,
}

/// Jobs with the semaphores that they name. None waits for a semaphore with nodes in hand while
/// another one waits for nodes with that semaphore: the first lets go only after minutes, which
/// would be most of a story.
pub const LOCKS: [(&str, &[&str], Taken); 3] = [
    ("locked", &["one"], Taken::BeforeNodes),
    ("turns", &["shared", "one"], Taken::BeforeNodes),
    ("guarded", &["two"], Taken::WithNodes),
];

/// Returns how many builds may hold a semaphore, where `one` has room for so many.
pub fn most(semaphore: &str, one: usize) -> usize {
    if semaphore == "two" { 1 } else { one }
}

/// The jobs of [`Play::Locks`], and where they run.
pub const LOCKS_YAML: &str = "
- semaphore: {name: two, max: 1}
- job: {name: turns, run: playbooks/turns.yaml, semaphores: [shared, one]}
- job: {name: guarded, run: playbooks/guarded.yaml, semaphores: [{name: two, resources-first: true}]}
- project: {name: ^org/t.*, check: {jobs: [turns]}, gate: {jobs: [turns, guarded]}}
";

/// Returns the pipeline of [`Play::Audit`], and what runs in it.
pub fn audit_yaml() -> String {
    for_open_changes(AUDIT, "quick, unit", ASIDE, BY_STATUS)
}

/// Returns the pipeline of [`Play::Serial`], and what runs in it.
pub fn careful_yaml() -> String {
    for_open_changes(CAREFUL, "quick", "    manager: serial\n", BY_STATUS)
}

/// What most of the pipelines have that are for open changes and land none.
const ASIDE: &str = "    manager: independent
    precedence: low
";

/// What tells of a change by a status.
const BY_STATUS: &str = "    start:
      github: {status: pending, comment: false}
    success:
      github: {status: success}
    failure:
      github: {status: failure}
";

/// Returns a pipeline for whatever is done to an open change, and which jobs run in it. Of its own
/// it has settings and reporters, which are whole lines.
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

/// The pipeline of [`Play::Retests`], and what runs in it. It tells nobody.
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

/// The pipeline of [`Play::Post`], and what runs in it.
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

/// The job of [`Play::Reporters`], which runs after the report.
pub const PUBLISH: &str = "publish";

/// Where it runs.
pub const REPORTERS_YAML: &str = "
- job: {name: publish, type: reporter, run: playbooks/publish.yaml, nodeset: {nodes: []}}
- project: {name: ^org/t.*, gate: {jobs: [publish]}}
";

/// What runs in the pipeline of [`Play::TwoGates`].
pub const EXPRESS_YAML: &str = "
- project: {name: ^org/t.*, express: {jobs: [quick, unit]}}
";

#[cfg(test)]
mod tests {
    use super::*;

    /// C2: a seed that failed once plays what it played then.
    #[test]
    fn a_seed_of_before_draws_none_of_the_newest_plays_and_some_seed_of_after_draws_each() {
        let is_newest = |play: &Play| Play::NEWEST.contains(play);
        assert!((1..2_000).chain([NEWEST_FROM - 1]).all(|seed| !draw(seed).iter().any(is_newest)));
        for play in Play::NEWEST {
            let drawn =
                (NEWEST_FROM..NEWEST_FROM + 200).filter(|seed| draw(*seed).contains(&play)).count();
            assert!((20..=100).contains(&drawn), "{play:?} is drawn {drawn} times");
        }
    }

    /// C2: and so with the latest.
    #[test]
    fn a_seed_of_before_draws_none_of_the_latest_plays_and_some_seed_of_after_draws_each() {
        let is_latest = |play: &Play| Play::LATEST.contains(play);
        let mut before =
            (1..2_000).chain(NEWEST_FROM..NEWEST_FROM + 2_000).chain([LATEST_FROM - 1]);
        assert!(before.all(|seed| !draw(seed).iter().any(is_latest)));
        for play in Play::LATEST.into_iter().chain(Play::NEWEST) {
            let drawn =
                (LATEST_FROM..LATEST_FROM + 200).filter(|seed| draw(*seed).contains(&play)).count();
            assert!((20..=100).contains(&drawn), "{play:?} is drawn {drawn} times");
        }
    }

    /// C2: and so with the further ones.
    #[test]
    fn a_seed_of_before_draws_none_of_the_further_plays_and_some_seed_of_after_draws_each() {
        let is_further = |play: &Play| Play::FURTHER.contains(play);
        let before = (1..2_000)
            .chain(NEWEST_FROM..NEWEST_FROM + 2_000)
            .chain(LATEST_FROM..LATEST_FROM + 2_000);
        assert!(before.chain([FURTHER_FROM - 1]).all(|seed| !draw(seed).iter().any(is_further)));
        for play in Play::FURTHER.iter().copied().chain(Play::LATEST).chain(Play::NEWEST) {
            let drawn = (FURTHER_FROM..FURTHER_FROM + 200)
                .filter(|seed| draw(*seed).contains(&play))
                .count();
            assert!((20..=100).contains(&drawn), "{play:?} is drawn {drawn} times");
        }
    }

    /// C2: and so with those that were added.
    #[test]
    fn a_seed_of_before_draws_none_of_the_added_plays_and_some_seed_of_after_draws_each() {
        let is_added = |play: &Play| Play::ADDED.contains(play);
        let before = (1..2_000)
            .chain(LATEST_FROM..LATEST_FROM + 2_000)
            .chain(FURTHER_FROM..FURTHER_FROM + 2_000);
        assert!(before.chain([ADDED_FROM - 1]).all(|seed| !draw(seed).iter().any(is_added)));
        for play in Play::ADDED.iter().copied().chain(Play::FURTHER.iter().copied()) {
            let drawn =
                (ADDED_FROM..ADDED_FROM + 200).filter(|seed| draw(*seed).contains(&play)).count();
            assert!((20..=100).contains(&drawn), "{play:?} is drawn {drawn} times");
        }
    }

    /// C2: and so with the most recent ones.
    #[test]
    fn a_seed_of_before_draws_none_of_the_recent_plays_and_some_seed_of_after_draws_each() {
        let is_recent = |play: &Play| Play::RECENT.contains(play);
        let before = (1..2_000)
            .chain(FURTHER_FROM..FURTHER_FROM + 2_000)
            .chain(ADDED_FROM..ADDED_FROM + 2_000);
        assert!(before.chain([RECENT_FROM - 1]).all(|seed| !draw(seed).iter().any(is_recent)));
        for play in Play::RECENT.iter().copied().chain(Play::ADDED.iter().copied()) {
            let drawn =
                (RECENT_FROM..RECENT_FROM + 200).filter(|seed| draw(*seed).contains(&play)).count();
            assert!((20..=100).contains(&drawn), "{play:?} is drawn {drawn} times");
        }
    }
}
