//! Jobs that come before and after each other: which depend on which, softly or not, which are left
//! out by what another one returned, which one pauses while those behind it run, which begin before
//! all others, hold what is behind their change, give it what it requires, or do not vote.

use crate::plays::{PUBLISH, Play};
use crate::truth;
use sluice_scenarios::repos::Tree;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A job that does not vote, and fails on every other tree.
pub const LINT: &str = "lint";
/// A job whose result chooses which of those behind it are run.
pub const CHOOSER: &str = "chooser";
/// One of those that are chosen.
pub const LEFT: &str = "left";
/// The other one.
pub const RIGHT: &str = "right";
/// A job that pauses when it has begun what those behind it need.
pub const HOST: &str = "host";
/// A job that runs beside the paused one.
pub const GUEST: &str = "guest";
/// A job behind that one.
pub const LATER: &str = "later";
/// The job of [`Play::Initializers`], which comes before all others.
pub const PRELUDE: &str = "prelude";
/// The job of [`Play::Heralds`], which holds what is behind its change.
pub const HERALD: &str = "herald";

/// The job of [`Play::Artifacts`] that makes what those behind its change are given.
pub const IMAGE: &str = "image";
/// The job that is given that.
pub const USES: &str = "uses";

/// How much a job needs another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It is run once the other one passed, or is paused.
    Hard,
    /// It is run once the other one is over, however, or is paused.
    Soft,
}

/// Jobs of [`Play::Graphs`], each with those that it depends on. One that votes passes on whatever
/// passes `unit` and `quick`.
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

/// Those of them that run in the gate.
const OF_GATE: [&str; 4] = [LINT, "strict", HOST, GUEST];

/// The jobs behind the one that pauses, directly or not.
pub const BEHIND_HOST: [&str; 2] = [GUEST, LATER];

/// Returns what a job depends on, of which an item may have a part alone. `begins` is whether
/// [`PRELUDE`] is among its jobs.
pub fn before(job: &str, begins: bool) -> Vec<(&'static str, Need)> {
    let own =
        GRAPH.iter().find(|(name, _)| *name == job).map(|(_, before)| *before).unwrap_or_default();
    let locked: &[(&str, Need)] = if job == "locked" { &[("quick", Need::Hard)] } else { &[] };
    let prelude = (begins && job != PRELUDE).then_some((PRELUDE, Need::Hard));
    own.iter().chain(locked).copied().chain(prelude).collect()
}

/// Returns whether a job's result counts.
pub fn votes(job: &str) -> bool {
    job != LINT && job != PUBLISH
}

/// Returns whether the first job that fails in a pipeline ends the others.
pub fn fails_fast(plays: &BTreeSet<Play>, pipeline: &str) -> bool {
    plays.contains(&Play::FailFast) && (pipeline == "check" || pipeline == "gate")
}

/// Returns which of the jobs behind it [`CHOOSER`] has run on a tree; `None` for all of them, of
/// which it says nothing.
pub fn chosen(tree: &Tree) -> Option<&'static [&'static str]> {
    match truth::sum(tree) % 5 {
        0 => None,
        1 => Some(&[]),
        2 => Some(&[LEFT]),
        3 => Some(&[RIGHT]),
        _ => Some(&[LEFT, RIGHT]),
    }
}

/// Returns the jobs that these plays have run in a pipeline for every project.
pub fn names(plays: &BTreeSet<Play>, pipeline: &str) -> Vec<&'static str> {
    let mut names = Vec::new();
    let (is_check, is_gate) = (pipeline == "check", pipeline == "gate");
    if plays.contains(&Play::Graphs) {
        names.extend(
            GRAPH
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| is_check || (is_gate && OF_GATE.contains(name))),
        );
    }
    if plays.contains(&Play::Artifacts) && (is_check || is_gate) {
        names.extend([IMAGE, USES]);
    }
    names.extend((plays.contains(&Play::Initializers) && (is_check || is_gate)).then_some(PRELUDE));
    names.extend((plays.contains(&Play::Heralds) && is_gate).then_some(HERALD));
    names
}

/// Returns the configuration of these plays.
pub fn yaml(plays: &BTreeSet<Play>) -> String {
    let mut text = String::new();
    let mut job = |name: &str, more: &str| {
        let _ = writeln!(
            text,
            "- job: {{name: {name}, run: playbooks/{name}.yaml, nodeset: {{nodes: []}}{more}}}"
        );
    };
    if plays.contains(&Play::Graphs) {
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
    if plays.contains(&Play::Artifacts) {
        job(IMAGE, ", provides: [image]");
        job(USES, ", requires: [image]");
    }
    if plays.contains(&Play::Initializers) {
        job(PRELUDE, ", type: initializer");
    }
    if plays.contains(&Play::Heralds) {
        job(HERALD, ", hold-following-changes: true");
    }
    let (check, gate) = (names(plays, "check"), names(plays, "gate"));
    if !gate.is_empty() {
        let (check, gate) = (check.join(", "), gate.join(", "));
        let _ = writeln!(
            text,
            "- project: {{name: ^org/t.*, check: {{jobs: [{check}]}}, gate: {{jobs: [{gate}]}}}}"
        );
    }
    if plays.contains(&Play::FailFast) {
        text.push_str(
            "- project: {name: ^org/t.*, check: {fail-fast: true}, gate: {fail-fast: true}}\n",
        );
    }
    text
}

fn waits_for(name: &str, need: Need) -> String {
    format!("{{name: {name}, soft: {}}}", need == Need::Soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// J12: what the oracle expects is what the configuration says.
    #[test]
    fn the_graph_that_is_configured_is_the_one_that_is_expected() {
        let text = yaml(&BTreeSet::from([Play::Graphs, Play::Initializers]));
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
    fn whatever_else_an_item_has_waits_for_the_job_that_comes_before_all() {
        assert_eq!(before("join", false), [(LEFT, Need::Soft), (RIGHT, Need::Soft)]);
        assert_eq!(before("locked", true), [("quick", Need::Hard), (PRELUDE, Need::Hard)]);
        assert!(before(PRELUDE, true).is_empty() && before("unit", false).is_empty());
    }
}
