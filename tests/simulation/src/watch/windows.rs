//! Windows: the window of a queue follows from the results of its changes, and nothing is ordered
//! beyond it.

use super::{Kind, Watch, key_of, kind, read};
use sluice_gate::Head;
use sluice_memory::RecordChange;
use sluice_model::build::Order;
use sluice_model::change::ChangeKey;
use sluice_records::report::Buildset;
use std::collections::{BTreeMap, BTreeSet};

impl Watch {
    /// Checks a window against the one before and the results in the same transaction.
    pub(super) fn check_window_size(
        &mut self,
        before: Option<&Head>,
        head: &Head,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        let window = self.shape.window_of(head.key.pipeline.as_str());
        let mut sizes: BTreeSet<u32> = before.map(|before| before.window).into_iter().collect();
        if before.is_none_or(|before| before.layout != head.layout) {
            sizes.insert(window.initial);
        }
        // The members of a bundle count once.
        let mut results: BTreeMap<Vec<ChangeKey>, BTreeSet<String>> = BTreeMap::new();
        for write in transaction.iter().filter(|write| write.before.is_none()) {
            if key_of(write).is_none_or(|key| kind(key) != Kind::Buildset) {
                continue;
            }
            let Some(set): Option<Buildset> = read(write.after.as_ref())? else { continue };
            if set.queue == head.key {
                let own = vec![set.item.candidate.change.key.clone()];
                let bundle = Some(set.item.candidate.bundle)
                    .filter(|bundle| !bundle.is_empty())
                    .unwrap_or(own);
                results.entry(bundle).or_default().insert(set.result);
            }
        }
        let results: Vec<BTreeSet<String>> = results.into_values().collect();
        let sizes = window.after(sizes, &results);
        if !sizes.contains(&head.window) {
            let was = before.map(|before| before.window);
            return Err(format!(
                "its window was {was:?} and is {}; after {results:?} it must be one of {sizes:?}",
                head.window
            ));
        }
        let former = before.map_or(head.window, |before| before.window);
        self.former_windows.insert(head.key.clone(), former);
        Ok(())
    }

    /// Checks that an ordered build is within the window.
    pub(super) fn check_window_limit(&self, order: &Order) -> Result<(), String> {
        let Some(head) = self.heads.get(&order.queue) else { return Ok(()) };
        let Some(position) = head.position(&order.item) else { return Ok(()) };
        let former = self.former_windows.get(&order.queue).copied().unwrap_or(head.window);
        let window = if head.window == 0 || former == 0 {
            usize::MAX
        } else {
            head.window.max(former) as usize
        };
        if position < window {
            return Ok(());
        }
        Err(format!(
            "{} of {} is ordered at position {position}, beyond the window of {window}",
            order.job, order.change
        ))
    }
}
