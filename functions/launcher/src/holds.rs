//! Autoholds: the nodes of a failed build are held at an operator's request instead of released,
//! and counted in the same commit.

use crate::{KEYS_MAX, Launcher};
use sluice_gate::autohold::{self, Autohold, HeldNodes};
use sluice_model::build::Order;
use sluice_model::{BuildId, NodeId, ProviderName, TenantName};
use sluice_pool::node::HoldRef;
use sluice_pool::{
    BuildFact, NodeRequest, NodeState, PoolChange, PoolNode, RequestRow, RequestState,
};
use sluice_records::codec::decode_or_log;
use sluice_records::provider::LoadedProvider;
use sluice_records::{autohold as records, build};
use sluice_runtime::PortError;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record, Write};
use std::collections::{BTreeMap, BTreeSet};

/// The most autohold requests that one run may count builds for: a transaction holds the cell's
/// records and these.
const COUNTED_MAX: usize = 4;

/// The most failed builds that one run reads.
const FAILED_MAX: usize = 20;

/// The autohold requests that concern a provider now.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// The requests that were read and may be written.
    requests: BTreeMap<Key, (Record, Autohold)>,
    /// The request that each row's build matches.
    rows: BTreeMap<RequestRow, (Key, HeldNodes)>,
    /// Where those builds ran.
    pub(crate) builds: BTreeMap<BuildId, BuildFact>,
    /// Nodes that are held for a request that does not exist any more.
    pub(crate) released: BTreeSet<NodeId>,
}

impl Launcher {
    /// Matches a provider's failed builds with the autohold requests of their tenants. Returns for
    /// each match why and until when its nodes are held, and the held nodes whose request no longer
    /// exists. Stores nothing: the matches count only with the writes of [`Holds::count_held`].
    /// Considers at most 20 failed builds and 4 autohold requests; a build beyond that, or with an
    /// unreadable order, has no match. Reads nothing if no build has failed and no node is held.
    pub(crate) async fn holds(
        &self,
        provider: &ProviderName,
        loaded: &LoadedProvider,
    ) -> Result<Holds, ReconcileError> {
        let failed: Vec<&NodeRequest> = loaded
            .requests
            .values()
            .map(|(_, request)| request)
            .filter(|r| has_failed(r))
            .take(FAILED_MAX)
            .collect();
        let held: Vec<(&NodeId, Key)> =
            loaded.nodes.values().filter_map(|(_, node)| held_for(node)).collect();
        let mut holds = Holds::default();
        if failed.is_empty() && held.is_empty() {
            return Ok(holds);
        }
        let orders = failed.iter().map(|request| build::order_key(&request.build));
        let keys: BTreeSet<Key> = orders.chain(held.iter().map(|(_, key)| key.clone())).collect();
        let keys: Vec<Key> = keys.into_iter().collect();
        let mut found: BTreeMap<Key, Record> = BTreeMap::new();
        for page in keys.chunks(KEYS_MAX) {
            let records = self.ports.records.get(page).await?;
            found.extend(records.into_iter().flatten().map(|record| (record.key.clone(), record)));
        }
        holds.released = held
            .into_iter()
            .filter(|(_, key)| !found.contains_key(key))
            .map(|(id, _)| id.clone())
            .collect();
        let tenants: BTreeSet<&TenantName> =
            failed.iter().map(|request| &request.queue.tenant).collect();
        for tenant in tenants {
            let requests = records::load_tenant(&self.ports, tenant).await?;
            holds.requests.extend(
                requests
                    .into_iter()
                    .map(|(record, request)| (record.key.clone(), (record, request))),
            );
        }
        let now = self.ports.clock.now();
        for request in failed {
            let order =
                found.get(&build::order_key(&request.build)).and_then(decode_or_log::<Order>);
            let Some(order) = order else { continue };
            let tenant = &request.queue.tenant;
            let of_tenant = holds
                .requests
                .values()
                .map(|(_, request)| request)
                .filter(|request| request.tenant == *tenant);
            let met = autohold::choose_request(
                of_tenant,
                &order.change.key.project,
                &order.job,
                &order.change.github_ref(),
            );
            let Some(met) = met else { continue };
            let key = records::key(tenant, &met.id);
            let counted: BTreeSet<&Key> =
                holds.rows.values().map(|(key, _)| key).chain([&key]).collect();
            if counted.len() > COUNTED_MAX {
                continue;
            }
            let until = met.until(now);
            let nodes = request.nodes().to_vec();
            let taken = HeldNodes {
                build: request.build.clone(),
                provider: provider.clone(),
                nodes,
                until,
            };
            let hold = Some(HoldRef { tenant: tenant.clone(), id: Some(met.id.clone()) });
            let reason = format!("autohold {}: {}", met.id, met.reason);
            holds
                .builds
                .insert(request.build.clone(), BuildFact::EndedHeld { reason, until, hold });
            // Counted at once, so that the next failed build sees the new count.
            if let Some((_, counted)) = holds.requests.get_mut(&key) {
                counted.held.push(taken.clone());
            }
            holds.rows.insert(request.row.clone(), (key, taken));
        }
        Ok(holds)
    }
}

impl Holds {
    /// Returns the writes that count held nodes in their autohold requests, for the builds whose
    /// node requests `changes` removes; they belong into the same commit. Each write fails if a
    /// concurrent writer changed the autohold request. `self` takes the new revisions as if the
    /// writes were stored, so it must be read again if the commit fails. After a success call
    /// [`Self::forget_removed`].
    pub(crate) fn count_held(&mut self, changes: &[PoolChange]) -> Result<Vec<Write>, PortError> {
        let removed = changes.iter().filter_map(|change| match change {
            PoolChange::RemoveRequest(row) => self.rows.get(row),
            _ => None,
        });
        let remaining: Vec<(Key, HeldNodes)> = removed.cloned().collect();
        let keys: BTreeSet<Key> = remaining.iter().map(|(key, _)| key.clone()).collect();
        let mut writes = Vec::new();
        for key in keys {
            let Some((record, request)) = self.requests.get_mut(&key) else { continue };
            // The next commit counts what did not fit into the plan.
            let later: Vec<&BuildId> = self
                .rows
                .values()
                .filter(|row| row.0 == key && !remaining.contains(row))
                .map(|(_, held)| &held.build)
                .collect();
            let mut now = request.clone();
            now.held.retain(|held| !later.contains(&&held.build));
            let (next, write) = records::update(record, &now)?;
            *record = next;
            writes.push(write);
        }
        Ok(writes)
    }

    /// Forgets the matches of the node requests that `changes`, which were committed, remove.
    /// Otherwise the next [`Self::count_held`] would count them again.
    pub(crate) fn forget_removed(&mut self, changes: &[PoolChange]) {
        for change in changes {
            if let PoolChange::RemoveRequest(row) = change {
                self.rows.remove(row);
            }
        }
    }
}

/// Returns whether a request's build has ended with a result for which nodes can be held: it failed
/// by itself and is not retried.
fn has_failed(request: &NodeRequest) -> bool {
    matches!(request.state, RequestState::Ended(_))
        && request.result.is_some_and(autohold::is_held_for)
}

/// Returns the node's id and the key of the autohold request for which it is held; `None` for a
/// node that no autohold request holds.
fn held_for(node: &PoolNode) -> Option<(&NodeId, Key)> {
    match &node.state {
        NodeState::Hold { hold: Some(hold), .. } => {
            Some((&node.id, records::key(&hold.tenant, hold.id.as_ref()?)))
        }
        _ => None,
    }
}
