//! Alternative nodesets: each order requests one, and another than the first only after the one
//! before failed. No build starts on the first nodeset, which is never available.

use super::{Kind, Watch, key_of, kind, read, transitions};
use crate::scenarios::nodesets::{CHOOSY, NODES};
use sluice_memory::RecordChange;
use sluice_model::build::Order;
use sluice_model::{BuildId, QueueKey};
use sluice_pool::{NodeRequest, RequestState};
use sluice_runtime::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Builds of the job with alternative nodesets.
#[derive(Default)]
pub(super) struct Nodesets {
    /// Its builds, with their queue and the index of the nodeset.
    ordered: BTreeMap<BuildId, (QueueKey, u32)>,
    /// Failed nodesets by queue. Bundle members share builds, so another item may request the next
    /// one.
    in_vain: BTreeSet<(QueueKey, u32)>,
}

impl Watch {
    /// Checks a node request, and records a failed one.
    pub(super) fn check_request(
        &mut self,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Result<(), String> {
        transitions::check_request(before, after)?;
        let Some(request): Option<NodeRequest> = read(after)? else { return Ok(()) };
        let Nodesets { ordered, in_vain } = &mut self.nodesets;
        if let (RequestState::Failed { .. }, Some(of)) =
            (&request.state, ordered.get(&request.build))
        {
            in_vain.insert(of.clone());
        }
        Ok(())
    }

    /// Checks the nodeset of an ordered build.
    pub(super) fn check_nodeset_order(
        &mut self,
        order: &Order,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        if order.job.as_str() != CHOOSY {
            return Ok(());
        }
        let (change, number) = (&order.change, order.nodeset);
        let mut asked = None;
        for write in transaction
            .iter()
            .filter(|write| key_of(write).is_some_and(|key| kind(key) == Kind::Request))
        {
            let request: Option<NodeRequest> = read(write.after.as_ref())?;
            let own = request.filter(|request| request.build == order.build);
            asked = asked.or(own.map(|request| request.labels.len()));
        }
        let due = NODES.get(number as usize).copied();
        if asked.is_none() || asked != due {
            return Err(format!(
                "{CHOOSY} of {change} requests {asked:?} nodes, but its nodeset {number} has {due:?}"
            ));
        }
        let can_be_had =
            |before: u32| !self.nodesets.in_vain.contains(&(order.queue.clone(), before));
        if number.checked_sub(1).is_some_and(can_be_had) {
            return Err(format!(
                "{CHOOSY} of {change} requests nodeset {number} although the one before did not fail"
            ));
        }
        self.nodesets.ordered.insert(order.build.clone(), (order.queue.clone(), number));
        Ok(())
    }

    /// Checks the nodeset of a build that starts.
    pub(super) fn check_nodeset(&self, build: &BuildId) -> Result<(), String> {
        match self.nodesets.ordered.get(build) {
            Some((queue, 0)) => Err(format!(
                "{CHOOSY} in {queue} starts on its first nodeset, which is unavailable"
            )),
            _ => Ok(()),
        }
    }
}
