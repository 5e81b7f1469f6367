//! Jobs that affect other jobs: with hard and soft dependencies, with selected child jobs, that
//! pause, are initializers, hold following changes, provide artifacts, or do not vote.

use crate::scenarios::{PUBLISH, Scenario};
use crate::truth;
use sluice_scenarios::repos::Tree;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A non-voting job, which fails on every other tree.
pub const LINT: &str = "lint";
/// A job that selects its child jobs.
pub const CHOOSER: &str = "chooser";
/// A child job of [`CHOOSER`].
pub const LEFT: &str = "left";
/// The other child job of [`CHOOSER`].
pub const RIGHT: &str = "right";
/// A job that pauses while its child jobs run.
pub const HOST: &str = "host";
/// A job that runs while [`HOST`] is paused.
pub const GUEST: &str = "guest";
/// A job that depends on [`GUEST`].
pub const LATER: &str = "later";
/// The job of [`Scenario::Initializers`], which runs before all others.
pub const PRELUDE: &str = "prelude";
/// The job of [`Scenario::HoldFollowing`], which holds the jobs of following changes.
pub const HERALD: &str = "herald";

/// The job of [`Scenario::Artifacts`] that provides an artifact.
pub const IMAGE: &str = "image";
/// The job that requires the artifact of [`IMAGE`].
pub const USES: &str = "uses";

/// Whether a dependency on a job is hard or soft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The job runs once the other one has passed or is paused.
    Hard,
    /// The job runs once the other one has ended with any result or is paused.
    Soft,
}

/// Whether an item has the initializer job [`PRELUDE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initializer {
    /// The item has it.
    Present,
    /// The item does not have it.
    Absent,
}

/// The jobs of [`Scenario::JobGraphs`], each with its dependencies. A voting job passes on every
/// tree on which `unit` and `quick` pass.
const GRAPH: [(&str, &[(&str, Need)]); 9] = [
    (LINT, &[]),
    (CHOOSER, &[(LINT, Need::Soft)]),
    (LEFT, &[(CHOOSER, Need::Hard)]),
    (RIGHT, &[(CHOOSER, Need::Hard)]),
    ("join", &[(LEFT, Need::Soft), (RIGHT, Need::Soft)]),
    ("strict", &[(LINT, Need::Hard)]),
    (HOST, &[]),
    (GUEST, &[(HOST, Need::Hard)]),
    (LATER, &[(GUEST, Need::Hard)]),
];

/// The jobs of [`GRAPH`] that run in the gate.
const OF_GATE: [&str; 4] = [LINT, "strict", HOST, GUEST];

/// The jobs that depend on [`HOST`], directly or not.
pub const BEHIND_HOST: [&str; 2] = [GUEST, LATER];

/// Returns the dependencies of a job. An item may have only some of these jobs.
pub fn dependencies(job: &str, initializer: Initializer) -> Vec<(&'static str, Need)> {
    let own =
        GRAPH.iter().find(|(name, _)| *name == job).map(|(_, before)| *before).unwrap_or_default();
    let locked: &[(&str, Need)] = if job == "locked" { &[("quick", Need::Hard)] } else { &[] };
    let has_prelude = initializer == Initializer::Present;
    let prelude = (has_prelude && job != PRELUDE).then_some((PRELUDE, Need::Hard));
    own.iter().chain(locked).copied().chain(prelude).collect()
}

/// Returns whether a job votes.
pub fn votes(job: &str) -> bool {
    job != LINT && job != PUBLISH
}

/// Returns whether a pipeline uses `fail-fast` for a project, by its name without the host.
pub fn fails_fast(scenarios: &BTreeSet<Scenario>, pipeline: &str, project: &str) -> bool {
    scenarios.contains(&Scenario::FailFast)
        && (pipeline == "check" || pipeline == "gate")
        && project.starts_with("org/t")
}

/// Returns the child jobs that [`CHOOSER`] selects on a tree. Returns `None` if it selects nothing,
/// so that all of them run.
pub fn chosen(tree: &Tree) -> Option<&'static [&'static str]> {
    match truth::sum(tree) % 5 {
        0 => None,
        1 => Some(&[]),
        2 => Some(&[LEFT]),
        3 => Some(&[RIGHT]),
        _ => Some(&[LEFT, RIGHT]),
    }
}

/// Returns the jobs of these scenarios that run in a pipeline for every project.
pub fn names(scenarios: &BTreeSet<Scenario>, pipeline: &str) -> Vec<&'static str> {
    let mut names = Vec::new();
    let (is_check, is_gate) = (pipeline == "check", pipeline == "gate");
    if scenarios.contains(&Scenario::JobGraphs) {
        names.extend(
            GRAPH
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| is_check || (is_gate && OF_GATE.contains(name))),
        );
    }
    if scenarios.contains(&Scenario::Artifacts) && (is_check || is_gate) {
        names.extend([IMAGE, USES]);
    }
    names.extend(
        (scenarios.contains(&Scenario::Initializers) && (is_check || is_gate)).then_some(PRELUDE),
    );
    names.extend((scenarios.contains(&Scenario::HoldFollowing) && is_gate).then_some(HERALD));
    names
}

/// Returns the configuration of these scenarios.
pub fn yaml(scenarios: &BTreeSet<Scenario>) -> String {
    let mut text = String::new();
    let mut job = |name: &str, more: &str| {
        let _ = writeln!(
            text,
            "- job: {{name: {name}, run: playbooks/{name}.yaml, nodeset: {{nodes: []}}{more}}}"
        );
    };
    if scenarios.contains(&Scenario::JobGraphs) {
        for (name, before) in GRAPH {
            let before: Vec<String> =
                before.iter().map(|(name, need)| waits_for(name, *need)).collect();
            let voting = if votes(name) { "" } else { ", voting: false" };
            let waits = if before.is_empty() {
                String::new()
            } else {
                format!(", dependencies: [{}]", before.join(", "))
            };
            job(name, &format!("{waits}{voting}"));
        }
    }
    if scenarios.contains(&Scenario::Artifacts) {
        job(IMAGE, ", provides: [image]");
        job(USES, ", requires: [image]");
    }
    if scenarios.contains(&Scenario::Initializers) {
        job(PRELUDE, ", type: initializer");
    }
    if scenarios.contains(&Scenario::HoldFollowing) {
        job(HERALD, ", hold-following-changes: true");
    }
    let (check, gate) = (names(scenarios, "check"), names(scenarios, "gate"));
    if !gate.is_empty() {
        let (check, gate) = (check.join(", "), gate.join(", "));
        let _ = writeln!(
            text,
            "- project: {{name: ^org/t.*, check: {{jobs: [{check}]}}, gate: {{jobs: [{gate}]}}}}"
        );
    }
    if scenarios.contains(&Scenario::FailFast) {
        text.push_str(
            "- project: {name: ^org/t.*, check: {fail-fast: true}, gate: {fail-fast: true}}\n",
        );
    }
    text
}

/// Returns an entry of a job's `dependencies`.
fn waits_for(name: &str, need: Need) -> String {
    format!("{{name: {name}, soft: {}}}", need == Need::Soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// J12: the dependencies that the oracle expects are the configured ones.
    #[test]
    fn the_configured_graph_is_the_expected_one() {
        let text = yaml(&BTreeSet::from([Scenario::JobGraphs, Scenario::Initializers]));
        let chooser = "- job: {name: chooser, run: playbooks/chooser.yaml, nodeset: {nodes: []}, dependencies: [{name: lint, soft: true}]}\n";
        assert!(text.contains(chooser), "{text}");
        assert!(
            text.contains("nodeset: {nodes: []}, voting: false}\n")
                && text.contains(", type: initializer}\n"),
            "{text}"
        );
        assert!(text.ends_with("gate: {jobs: [lint, strict, host, guest, prelude]}}\n"), "{text}");
        assert_eq!(yaml(&BTreeSet::new()), "");
    }

    /// J12
    #[test]
    fn all_other_jobs_of_an_item_depend_on_the_initializer() {
        assert_eq!(
            dependencies("join", Initializer::Absent),
            [(LEFT, Need::Soft), (RIGHT, Need::Soft)]
        );
        assert_eq!(
            dependencies("locked", Initializer::Present),
            [("quick", Need::Hard), (PRELUDE, Need::Hard)]
        );
        assert!(
            dependencies(PRELUDE, Initializer::Present).is_empty()
                && dependencies("unit", Initializer::Absent).is_empty()
        );
    }
}
