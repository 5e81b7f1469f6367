//! What came into branches at the gate's word, by the forge's merge call or by a push of ours: the
//! oracle is told of each in its order.

use super::Sim;
use crate::oracle::Said;
use crate::plays::lands;
use sluice_gate::Landing;
use sluice_gate::queue::{Slot, Standing};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Commit;
use sluice_runtime::Clock as _;
use sluice_scenarios::forge::{Move, Shown};
use std::collections::BTreeMap;

/// Changes that one push lands at most.
const RUN_MAX: usize = 10;

impl Sim {
    pub(super) fn look_at_merges(&mut self) -> Result<(), String> {
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
                self.look_at_move(made)?;
            } else if let Some((key, commit)) = merges.get(self.merges_seen) {
                self.merges_seen += 1;
                self.look_at_merge(key, commit)?;
            } else {
                return Ok(());
            }
        }
    }

    fn look_at_merge(&mut self, key: &ChangeKey, commit: &Commit) -> Result<(), String> {
        let Some(kept) = self.site.forge.change(key) else { return Ok(()) };
        let change = kept.facts.change;
        let shown = self.site.forge.shown_before_merge(self.merges_seen - 1);
        let mut under_way = self.watch.landing.values().flat_map(BTreeMap::values);
        let landing = under_way.find(|landing| landing.change == change).cloned();
        let said = landing.map(|landing| self.said(&landing, shown));
        let is_unruly = std::mem::take(&mut self.people.is_sabotaged);
        if self.settings.mutation == Some(crate::Mutation::LyingForge) {
            self.site.forge.sabotage([("stray".to_owned(), self.merges_seen.to_string())].into());
        }
        let now = self.site.world.now();
        self.story.tell(now, format!("the forge merges {change}"));
        self.put(&change, commit, said, is_unruly)
    }

    /// A push lands landings that were ordered together, each on top of the one before, as a whole
    /// or from the first on; whether their changes are as they were then shows in the forge alone.
    fn look_at_move(&mut self, made: &Move) -> Result<(), String> {
        let now = self.site.world.now();
        let (from, to) = (made.from.short(), made.to.short());
        self.story.tell(now, format!("a push moves {} from {from} to {to}", made.branch));
        let run = self.run_of(made)?;
        let is_in_run = |key: &&ChangeKey| run.iter().any(|landing| landing.change.key == **key);
        if let Some(key) = made.merged.iter().find(|key| !is_in_run(key)) {
            return Err(format!(
                "{key} was merged by a push to {}, and no landing of it was to go there",
                made.branch
            ));
        }
        self.runs += u64::from(run.len() > 1);
        for landing in run {
            let now = self.site.world.now();
            self.story.tell(now, format!("the push lands {}", landing.change));
            let said = self.said(&landing, made.shown.clone());
            self.put(&landing.change, &landing.tested, Some(said), false)?;
        }
        Ok(())
    }

    /// Returns the landings by which a branch gets from where it was to where it is.
    fn run_of(&self, made: &Move) -> Result<Vec<Landing>, String> {
        let mut run: Vec<Landing> = Vec::new();
        let mut at = made.from.clone();
        while at != made.to {
            let under_way = self.watch.landing.get(&made.branch);
            let mut under_way = under_way.into_iter().flat_map(BTreeMap::values);
            let next = under_way.find(|landing| landing.base.id == at).cloned();
            let Some(next) = next.filter(|_| run.len() < RUN_MAX) else {
                let (branch, to, at) = (&made.branch, made.to.short(), at.short());
                return Err(format!(
                    "a push moved {branch} to {to}, and no landing leads there from {at}"
                ));
            };
            at = next.tested.id.clone();
            run.push(next);
        }
        let Some((first, rest)) = run.split_first() else { return Ok(Vec::new()) };
        let named = first.behind.iter().map(|behind| &behind.item).take(rest.len());
        if !rest.iter().map(|landing| &landing.item).eq(named) {
            return Err(format!(
                "what a push landed behind {} is not what was ordered with it",
                first.change
            ));
        }
        Ok(run)
    }

    fn said(&self, landing: &Landing, shown: Shown) -> Said {
        let candidate = self.watch.items.get(&landing.item).map(|item| &item.candidate);
        let needs = candidate
            .into_iter()
            .flat_map(|candidate| &candidate.needs)
            .map(|need| need.change.clone());
        let is_mate = |need: &ChangeRef| candidate.is_some_and(|own| own.cycle.contains(&need.key));
        let (mates, needs): (Vec<ChangeRef>, Vec<ChangeRef>) = needs.partition(is_mate);
        Said {
            base: landing.base.tree.clone(),
            tested: landing.tested.tree.clone(),
            needs: needs.into_iter().map(|need| need.key).collect(),
            mates,
            shown,
            queue: landing.queue.clone(),
            mode: landing.mode,
        }
    }

    /// Returns whether a change is the first of a queue, or of the bundle that is, but for what is
    /// in its branch already.
    fn is_first(&self, change: &ChangeRef) -> bool {
        let is_it = |slot: &Slot| slot.change == *change && slot.standing == Standing::Landing;
        self.watch.heads.values().any(|head| {
            let Some(at) = head.slots.iter().position(is_it) else { return false };
            head.slots[..head.bundle(at).start]
                .iter()
                .all(|ahead| self.oracle.is_merged(&ahead.change.key))
        })
    }

    fn put(
        &mut self,
        change: &ChangeRef,
        commit: &Commit,
        said: Option<Said>,
        is_unruly: bool,
    ) -> Result<(), String> {
        let is_first = self.is_first(change);
        let store = self.site.store.lock().unwrap();
        self.oracle.landed(change, commit, said, is_first, is_unruly, &store)?;
        drop(store);
        let now = self.site.world.now();
        self.oracle.has_come_into_its_branch(&change.key, now);
        if self.faults_are_on {
            let is_needed = self.is_needed(&change.key);
            self.people.has_landed(&change.key, is_needed, now);
        }
        Ok(())
    }

    /// Returns whether something that stands in a gate needs a change, and that needs nothing of
    /// it.
    fn is_needed(&self, change: &ChangeKey) -> bool {
        let gates = self.watch.heads.values().filter(|head| lands(head.key.pipeline.as_str()));
        let items =
            gates.flat_map(|head| &head.slots).filter_map(|slot| self.watch.items.get(&slot.id));
        let others = items.filter(|item| !item.candidate.cycle.contains(change));
        others.flat_map(|item| &item.candidate.needs).any(|need| need.change.key == *change)
    }
}
