//! What had to become of refs: each is tested as the commit that it was at, and where that is asked
//! for only the newest that waits.

use super::{Oracle, branch_of};
use crate::plays::POST;
use sluice_model::git::Oid;
use sluice_records::report::Buildset;
use sluice_scenarios::repos::Store;

impl Oracle {
    /// Judges an item that was about a ref.
    pub(super) fn judged_post(&mut self, set: &Buildset, store: &Store) -> Result<(), String> {
        let change = &set.item.candidate.change;
        let tips = self.branches.get(&branch_of(change)).map(Vec::as_slice).unwrap_or_default();
        if !tips.iter().any(|tip| tip.id == change.head) {
            return Err("its branch was never there".to_owned());
        }
        match set.result.as_str() {
            "DEQUEUED" if self.is_entangled(&change.key) => Ok(()),
            "DEQUEUED" if set.queue.pipeline.as_str() != POST => {
                Err("nobody took it out".to_owned())
            }
            "DEQUEUED" => {
                // The newer one comes in the same decision.
                self.owed.insert(set.queue.clone());
                Ok(())
            }
            "SUCCESS" | "FAILURE" => {
                let merged = set.item.merged().ok_or("nothing was tested")?;
                let tree = store.tree(&change.head);
                if store.tree(&merged.tested.id) != tree {
                    return Err("what was tested is not that commit".to_owned());
                }
                self.judged_names(set, tree, store)?;
                match (set.result.as_str(), self.judged_jobs(&set.item, tree)?) {
                    ("SUCCESS", true) => Err("a job failed".to_owned()),
                    ("FAILURE", false) => Err("every job passed".to_owned()),
                    _ => Ok(()),
                }
            }
            "CONFIG_ERROR" if self.is_any_greedy() => Ok(()),
            _ => Err("nothing here ends so".to_owned()),
        }
    }

    /// Returns which commits that branches are at never came to be tested, and which left for newer
    /// ones that never came.
    pub fn not_posted(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        wrong.extend(
            self.owed
                .iter()
                .map(|queue| format!("one left {queue} for a newer one that did not come")),
        );
        // An older push that is told later takes the place of a newer one that waits.
        let is_known = |head: &Oid| {
            let verdicts = self.changes.values().flat_map(|known| &known.verdicts);
            verdicts.into_iter().any(|verdict| verdict.pipeline == POST && verdict.head == *head)
        };
        let moved = self.branches.iter().filter(|(_, tips)| tips.len() > 1);
        for (branch, tip) in moved.filter_map(|(branch, tips)| Some((branch, tips.last()?))) {
            if !is_known(&tip.id) {
                wrong.push(format!(
                    "{branch} is at {} in the end, which never came to be tested",
                    tip.id
                ));
            }
        }
        wrong
    }
}
