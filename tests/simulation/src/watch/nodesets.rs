//! A job with several nodesets: each order asks for the nodes of one, for another one than the
//! first only where the one before could not be had, and no build begins on the first, which never
//! can.

use super::{Kind, Watch, follows, key_of, kind, read};
use crate::plays::nodesets::{CHOOSY, NODES};
use sluice_memory::Written;
use sluice_model::build::Order;
use sluice_model::{BuildId, QueueKey};
use sluice_pool::{Request, RequestState};
use sluice_runtime::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of builds of that job.
#[derive(Default)]
pub(super) struct Nodesets {
    /// Those that were ordered, each with its queue and which of the nodesets it asks for.
    ordered: BTreeMap<BuildId, (QueueKey, u32)>,
    /// Queues that asked in vain, each with the nodeset. Changes that need each other share builds,
    /// so it need not be the item that asks for the next one.
    in_vain: BTreeSet<(QueueKey, u32)>,
}

impl Watch {
    /// Judges a request, and hears that one cannot be met.
    pub(super) fn request(
        &mut self,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Result<(), String> {
        follows::request(before, after)?;
        let Some(request): Option<Request> = read(after)? else { return Ok(()) };
        let Nodesets { ordered, in_vain } = &mut self.nodesets;
        if let (RequestState::Failed { .. }, Some(of)) =
            (&request.state, ordered.get(&request.build))
        {
            in_vain.insert(of.clone());
        }
        Ok(())
    }

    /// Judges which nodes a build asks for that is ordered.
    pub(super) fn asks_in_turn(
        &mut self,
        order: &Order,
        transaction: &[Written],
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
            let request: Option<Request> = read(write.after.as_ref())?;
            let own = request.filter(|request| request.build == order.build);
            asked = asked.or(own.map(|request| request.labels.len()));
        }
        let due = NODES.get(number as usize).copied();
        if asked.is_none() || asked != due {
            return Err(format!(
                "{CHOOSY} of {change} asks for {asked:?} nodes, and its nodeset {number} has {due:?}"
            ));
        }
        let can_be_had =
            |before: u32| !self.nodesets.in_vain.contains(&(order.queue.clone(), before));
        if number.checked_sub(1).is_some_and(can_be_had) {
            return Err(format!(
                "{CHOOSY} of {change} asks for its nodeset {number}, and the one before can be had"
            ));
        }
        self.nodesets.ordered.insert(order.build.clone(), (order.queue.clone(), number));
        Ok(())
    }

    /// Judges a build that begins.
    pub(super) fn has_its_nodes(&self, build: &BuildId) -> Result<(), String> {
        match self.nodesets.ordered.get(build) {
            Some((queue, 0)) => {
                Err(format!("{CHOOSY} in {queue} begins on its first nodeset, which cannot be had"))
            }
            _ => Ok(()),
        }
    }
}
