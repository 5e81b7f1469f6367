//! Checks what the gate merged into branches, by the forge's merge call or by a push. Each merge is
//! reported to the oracle, in order.

use super::Sim;
use crate::actors::reverts::GateUse;
use crate::oracle::{ExpectedLanding, LandingPosition, MergeContent};
use crate::scenarios::lands;
use sluice_gate::queue::{Slot, SlotStatus};
use sluice_gate::{Entry, Head, Landing};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Commit;
use sluice_runtime::Clock as _;
use sluice_scenarios::forge::{Move, Shown};
use std::collections::BTreeMap;

/// The most changes that one push lands.
const RUN_MAX: usize = 10;

impl Sim {
    /// Checks all merges and branch moves of the forge since the last call, in their order.
    ///
    /// # Errors
    /// The first one that the gate did not decide or that has the wrong content.
    pub(super) fn check_merges(&mut self) -> Result<(), String> {
        let forge = &self.site.forge;
        if forge.merge_count() == self.merges_seen && forge.move_count() == self.moves_seen {
            return Ok(());
        }
        let (merges, moves) = (forge.merges(), forge.moves_in_full());
        loop {
            let next =
                moves.get(self.moves_seen).filter(|made| made.merges_before <= self.merges_seen);
            if let Some(made) = next {
                self.moves_seen += 1;
                self.merges_seen += made.merged.len();
                self.check_move(made)?;
            } else if let Some((key, commit)) = merges.get(self.merges_seen) {
                self.merges_seen += 1;
                self.check_merge(key, commit)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Checks one change that the forge's merge call merged.
    fn check_merge(&mut self, key: &ChangeKey, commit: &Commit) -> Result<(), String> {
        let Some(shown) = self.site.forge.change(key) else { return Ok(()) };
        let change = shown.facts.change;
        let shown_before = self.site.forge.shown_before_merge(self.merges_seen - 1);
        let mut under_way = self.watch.landing.values().flat_map(BTreeMap::values);
        let landing = under_way.find(|landing| landing.change == change).cloned();
        let expected = landing.map(|landing| self.expected_landing(&landing, shown_before));
        let is_unruly = std::mem::take(&mut self.actors.is_sabotaged);
        if self.settings.mutation == Some(crate::Mutation::LyingForge) {
            self.site.forge.sabotage([("stray".to_owned(), self.merges_seen.to_string())].into());
        }
        let now = self.site.world.now();
        self.story.log(now, format!("the forge merges {change}"));
        self.report_landed(&change, commit, expected, is_unruly)
    }

    /// Checks one push, which lands changes whose landings were ordered together: all of them, or
    /// the first ones. Only the forge shows whether the changes are unmodified since then.
    fn check_move(&mut self, made: &Move) -> Result<(), String> {
        let now = self.site.world.now();
        let (from, to) = (made.from.short(), made.to.short());
        self.story.log(now, format!("a push moves {} from {from} to {to}", made.branch));
        let run = self.landings_of_move(made)?;
        let is_in_run = |key: &&ChangeKey| run.iter().any(|landing| landing.change.key == **key);
        if let Some(key) = made.merged.iter().find(|key| !is_in_run(key)) {
            return Err(format!(
                "{key} was merged by a push to {}, but it has no landing there",
                made.branch
            ));
        }
        self.runs += u64::from(run.len() > 1);
        for landing in run {
            let now = self.site.world.now();
            self.story.log(now, format!("the push lands {}", landing.change));
            let expected = self.expected_landing(&landing, made.shown.clone());
            self.report_landed(&landing.change, &landing.tested, Some(expected), false)?;
        }
        Ok(())
    }

    /// Returns the landings that lead from the old to the new commit of a moved branch.
    ///
    /// # Errors
    /// That there is a gap, or that the landings were not ordered together.
    fn landings_of_move(&self, made: &Move) -> Result<Vec<Landing>, String> {
        let mut run: Vec<Landing> = Vec::new();
        let mut at = made.from.clone();
        while at != made.to {
            let under_way = self.watch.landing.get(&made.branch);
            let mut under_way = under_way.into_iter().flat_map(BTreeMap::values);
            let next = under_way.find(|landing| landing.base.id == at).cloned();
            let Some(next) = next.filter(|_| run.len() < RUN_MAX) else {
                let (branch, to, at) = (&made.branch, made.to.short(), at.short());
                return Err(format!(
                    "a push moved {branch} to {to}, but no landing leads there from {at}"
                ));
            };
            at = next.tested.id.clone();
            run.push(next);
        }
        let Some((first, rest)) = run.split_first() else { return Ok(Vec::new()) };
        let named = first.followers.iter().map(|behind| &behind.item).take(rest.len());
        if !rest.iter().map(|landing| &landing.item).eq(named) {
            return Err(format!(
                "the changes that a push landed after {} are not those ordered with it",
                first.change
            ));
        }
        Ok(run)
    }

    /// Returns what a landing is expected to bring into its branch, given what the forge showed.
    fn expected_landing(&self, landing: &Landing, shown: Shown) -> ExpectedLanding {
        let candidate = self.watch.items.get(&landing.item).map(|item| &item.candidate);
        let needs = candidate
            .into_iter()
            .flat_map(|candidate| &candidate.needs)
            .map(|need| need.change.clone());
        let is_member =
            |need: &ChangeRef| candidate.is_some_and(|own| own.bundle.contains(&need.key));
        let (members, needs): (Vec<ChangeRef>, Vec<ChangeRef>) = needs.partition(is_member);
        ExpectedLanding {
            base: landing.base.tree.clone(),
            tested: landing.tested.tree.clone(),
            needs: needs.into_iter().map(|need| need.key).collect(),
            other_members: members,
            shown,
            queue: landing.queue.clone(),
            mode: landing.mode,
        }
    }

    /// Returns whether a landing change, or its bundle, is the first entry of a queue. Entries that
    /// are already merged do not count.
    fn is_first(&self, change: &ChangeRef) -> bool {
        let is_it = |slot: &Slot| slot.change == *change && slot.status == SlotStatus::Landing;
        self.watch.heads.values().any(|head| {
            let has_it = |entry: &Entry| entry.members.iter().any(is_it);
            let Some(at) = head.entries.iter().position(has_it) else { return false };
            head.entries[..at]
                .iter()
                .flat_map(|entry| &entry.members)
                .all(|ahead| self.oracle.is_merged(&ahead.change.key))
        })
    }

    /// Reports a merged change to the oracle, and draws whether it will be reverted.
    fn report_landed(
        &mut self,
        change: &ChangeRef,
        commit: &Commit,
        expected: Option<ExpectedLanding>,
        is_unruly: bool,
    ) -> Result<(), String> {
        let position = match self.is_first(change) {
            true => LandingPosition::First,
            false => LandingPosition::Behind,
        };
        let content = match is_unruly {
            true => MergeContent::Tampered,
            false => MergeContent::AsRequested,
        };
        let store = self.site.store.lock().unwrap();
        self.oracle.check_landing(change, commit, expected, position, content, &store)?;
        drop(store);
        let now = self.site.world.now();
        self.oracle.record_landing(&change.key, now);
        if self.faults_are_on {
            let gate_use = self.gate_use(&change.key);
            self.actors.consider_revert(&change.key, gate_use, now);
        }
        Ok(())
    }

    /// Returns whether an item in a gate, outside the change's bundle, depends on a change.
    fn gate_use(&self, change: &ChangeKey) -> GateUse {
        let gates = self.watch.heads.values().filter(|head| lands(head.key.pipeline.as_str()));
        let items = gates.flat_map(Head::slots).filter_map(|slot| self.watch.items.get(&slot.id));
        let others = items.filter(|item| !item.candidate.bundle.contains(change));
        let mut needs = others.flat_map(|item| &item.candidate.needs);
        match needs.any(|need| need.change.key == *change) {
            true => GateUse::Needed,
            false => GateUse::NotNeeded,
        }
    }
}
