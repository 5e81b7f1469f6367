//! Replays each queue, revision by revision, through a gate that is a list and some loops, and
//! compares what that decides.
//!
//! What a revision was decided on is read out of its transaction (`facts.rs`): what arrived and was
//! taken in, what the items' records say that merger, executors and reporters answered, how
//! landings ended, which layout was followed. From these facts alone the model (`turn.rs`) goes on
//! from the state that it came to itself; then the order of the queue, what each place is tested on
//! and in which state, where it stands, its jobs, the window, what left and how, what is to land,
//! what was ordered and what was stopped must be equal. What is not compared, and why, says the
//! README.

mod compare;
mod discards;
mod entering;
mod facts;
mod finish;
mod guests;
mod jobs;
mod line;
mod paused;
mod room;
#[cfg(test)]
mod tests;
mod turn;
mod waits;

use crate::scenarios::AUDIT;
use crate::shape::Shape;
use facts::{Facts, Known};
use line::Line;
use sluice_gate::InboxMessageKind;
use sluice_memory::RecordChange;
use sluice_model::{QueueKey, TenantName};
use std::collections::BTreeMap;
use turn::Turn;

/// Pipelines that are not replayed: whether this one is there at all a decision read of a layout,
/// which its transaction does not show.
const LEFT_OUT: [&str; 1] = [AUDIT];

/// The weight of a decision from which on it may not have had room for all that there was to
/// decide, and goes on with the next one; and the same where changes need each other, which are
/// decided on together.
const FULL_WEIGHT: usize = 60;
const FULL_WEIGHT_OF_CYCLES: usize = 40;

/// Set to see each step of the replay in the story, and not those alone that led to a difference.
const SEEN_BY: &str = "SLUICE_SIM_REPLAY";

/// Replays what is written.
pub struct Replay {
    is_on: bool,
    is_seen: bool,
    shape: Shape,
    known: Known,
    lines: BTreeMap<QueueKey, Line>,
    /// Revisions that were replayed.
    pub replayed: u64,
    /// Revisions that were believed, since the model cannot tell what had to come out.
    pub believed: u64,
}

/// That something else was decided than the model decides.
#[derive(Debug)]
pub struct Difference {
    /// What.
    pub why: String,
    /// What was replayed of the queue before, and in that revision.
    pub steps: Vec<String>,
}

impl Replay {
    /// Returns a replay of a site where nothing has happened; one that is not on sees nothing.
    pub(crate) fn new(shape: &Shape, is_on: bool) -> Self {
        let limited =
            shape.tenants.iter().filter(|tenant| shape.changes_max(&tenant.name).is_some());
        let limited = limited.map(|tenant| TenantName(tenant.name.clone())).collect();
        Self {
            is_on,
            is_seen: std::env::var_os(SEEN_BY).is_some(),
            shape: shape.clone(),
            known: Known::of(shape.semaphore_max as usize).limiting(limited),
            lines: BTreeMap::new(),
            replayed: 0,
            believed: 0,
        }
    }

    /// Replays writes in their order. Returns the steps, where an operator wants to see them.
    ///
    /// # Errors
    /// The first decision that is another one than the model's.
    pub fn see(&mut self, written: &[RecordChange]) -> Result<Vec<String>, Difference> {
        let mut steps = Vec::new();
        if !self.is_on {
            return Ok(steps);
        }
        for transaction in written.chunk_by(|a, b| a.transaction == b.transaction) {
            let unreadable =
                |why: String| Difference { why: format!("replayed: {why}"), steps: Vec::new() };
            let Some(facts) = self.known.see(transaction).map_err(unreadable)? else { continue };
            if LEFT_OUT.contains(&facts.head.key.pipeline.as_str()) {
                continue;
            }
            steps.extend(self.replay(&facts)?);
        }
        if !self.is_seen {
            steps.clear();
        }
        Ok(steps)
    }

    fn replay(&mut self, facts: &Facts) -> Result<Vec<String>, Difference> {
        let head = &facts.head;
        let rules = self.shape.window_of(head.key.pipeline.as_str());
        let new = || Line::new(head.key.clone(), head.manager, head.layout, rules);
        let before = self.lines.remove(&head.key).unwrap_or_else(new);
        // Where the own queue of a guest says that this one stands is known there from now on; that
        // it had to say so is compared.
        for door in &facts.doors {
            let new = || Line::new(door.key.clone(), door.manager, door.layout, rules);
            self.lines
                .entry(door.key.clone())
                .or_insert_with(new)
                .stands_in
                .clone_from(&door.hosted_in);
        }
        if is_believed(facts) {
            self.believed += 1;
            let mut line = before;
            line.believe(facts);
            let steps = vec![format!(
                "replay of {}, revision {}: it is believed",
                head.key, facts.revision
            )];
            line.remember(&steps);
            self.lines.insert(head.key.clone(), line);
            return Ok(steps);
        }
        let mut turn = Turn::new(before, facts, &self.known);
        turn.play();
        let differences = compare::differences(&turn, facts);
        let mut steps = vec![format!("replay of {}, revision {}", head.key, facts.revision)];
        steps.extend(turn.steps.iter().map(|step| format!("  {step}")));
        if let Some(first) = differences.first() {
            let before: Vec<String> = turn.line.steps.iter().cloned().collect();
            let steps = before.into_iter().chain(steps).collect();
            let first = format!("replayed: {}, revision {}: {first}", head.key, facts.revision);
            let all = differences.iter().skip(1).map(|difference| format!("\n  and {difference}"));
            let facts = compare::reported(facts);
            let why = format!(
                "{first}{}\nread: {}\ndecided: {}\nmodel:   {}",
                all.collect::<String>(),
                facts.read,
                facts.decided,
                compare::queue(&turn.line)
            );
            return Err(Difference { why, steps });
        }
        self.replayed += 1;
        let mut line = turn.line;
        line.remember(&steps);
        self.lines.insert(head.key.clone(), line);
        Ok(steps)
    }
}

/// Returns whether a revision is taken as it is: an operator let a frozen queue go on, which no one
/// can tell from facts; or it may have been cut by the size of its transaction.
fn is_believed(facts: &Facts) -> bool {
    let is_thaw = |kind: &InboxMessageKind| matches!(kind, InboxMessageKind::Resume { .. });
    let mut candidates = facts
        .items
        .values()
        .chain(facts.left.values().map(|set| &set.item))
        .map(|item| &item.candidate);
    let has_cycles = candidates.any(|candidate| !candidate.bundle.is_empty());
    let full = if has_cycles { FULL_WEIGHT_OF_CYCLES } else { FULL_WEIGHT };
    facts.weight > full || facts.taken.iter().any(|(_, arrival)| is_thaw(&arrival.kind))
}
