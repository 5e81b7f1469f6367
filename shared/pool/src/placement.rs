//! Places requests in service order ([`crate::service_order`]). Each gets one zone and all its
//! nodes, or nothing (Z1.3, Z1.5).

use crate::decisions::NODES_PER_REQUEST_MAX;
use crate::failures;
use crate::ledger::Ledger;
use crate::lending;
use crate::limits::{LabelImage, LabelSpec, ProviderLimits, Resources, StaticHost};
use crate::node::{
    Allocation, InstanceId, LaunchProgress, Machine, NodeOrigin, NodeState, PoolNode,
};
use crate::request::{NodeRequest, Placement, RequestState};
use crate::service_order;
use crate::snapshot::Paused;
use sluice_model::{LabelName, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a request waits for quota, in which case no machine is launched for min-ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// All requests that could be placed are placed.
    Empty,
    /// A request waits for quota, and later ones wait behind it.
    Blocked,
}

/// Places requests in service order until one has to wait. Requests that can never be placed fail;
/// those that are not due yet are skipped. The reason to wait is recorded in the waiting request.
/// Returns `Blocked` if a request waits, if the commit has no more room, or if an operator has
/// paused the provider; in the last case it places nothing. A pause by the cloud does not stop
/// placement.
pub(crate) fn place_requests(ledger: &mut Ledger<'_>) -> Backlog {
    if let Paused::ByOperator { reason } = &ledger.head.paused {
        let reason = format!("nothing is placed: {reason}");
        ledger.explain(reason);
        return Backlog::Blocked;
    }
    for request in service_order::in_service_order(&ledger.requests, &ledger.facts.queue_positions)
    {
        if request.state != RequestState::Requested || request.not_before > ledger.now {
            continue;
        }
        if !ledger.has_room(request.labels.len() + 1) {
            return Backlog::Blocked;
        }
        match choose_nodes(ledger, &request) {
            PlacementChoice::Never(why) => failures::fail_request(ledger, &request.row, &why),
            PlacementChoice::Aside(why) => {
                if request.reason != why {
                    ledger.update_request(&request.row, |request| request.reason = why);
                }
            }
            PlacementChoice::Later(why) => {
                ledger.explain(format!(
                    "request {} waits, and later requests behind it: {why}",
                    request.row
                ));
                if request.reason != why {
                    ledger.update_request(&request.row, |request| request.reason = why);
                }
                return Backlog::Blocked;
            }
            PlacementChoice::Now(chosen) => reserve(ledger, &request, chosen),
        }
    }
    Backlog::Empty
}

/// The outcome of choosing nodes for a request.
enum PlacementChoice<'l> {
    /// The request can never be satisfied at this provider.
    Never(String),
    /// It is unknown whether the request can be satisfied. Later requests do not wait behind it.
    Aside(String),
    /// The request can be satisfied later.
    Later(String),
    /// The request can be placed on these nodes.
    Now(ChosenNodes<'l>),
}

/// The zone and the source of each node for a request.
struct ChosenNodes<'l> {
    /// The zone of its cloud machines.
    zone: Option<String>,
    /// The source of each node, in the order of the labels.
    sources: Vec<NodeSource<'l>>,
}

/// Where a node of a placement comes from.
enum NodeSource<'l> {
    /// A node of the pool.
    Pool(NodeId),
    /// A machine to launch for this label.
    New(&'l LabelSpec),
    /// A static host.
    Static(&'l StaticHost),
}

/// Chooses a zone and nodes for a request, or returns why it can never have them (`Never`), or not
/// yet (`Later`), or that its tenant could not be read (`Aside`): the settings of other tenants do
/// not count for it. Allocates nothing. If the quota has no room, marks free pool nodes for
/// deletion, as far as the commit has room, and returns `Later`.
fn choose_nodes<'l>(ledger: &mut Ledger<'l>, request: &NodeRequest) -> PlacementChoice<'l> {
    if request.labels.len() > NODES_PER_REQUEST_MAX {
        return PlacementChoice::Never(format!(
            "{} nodes exceed the maximum of {NODES_PER_REQUEST_MAX} per request",
            request.labels.len()
        ));
    }
    let (limits, tenant) = (ledger.limits, &request.queue.tenant);
    if let Some(why) = limits.refused_tenants.get(tenant) {
        return PlacementChoice::Never(why.clone());
    }
    if let Some(why) = &limits.waits {
        return PlacementChoice::Later(why.clone());
    }
    if limits.unread_tenants.contains(tenant) {
        return PlacementChoice::Aside(format!(
            "the configuration of tenant {tenant} cannot be read"
        ));
    }
    let (mut need, mut lent) = (Resources::default(), Vec::new());
    for (label, name) in request.labels.iter().zip(request.label_names()) {
        match limits.label(tenant, label) {
            Some(LabelSpec { image: LabelImage::Missing { why }, .. }) => {
                return PlacementChoice::Never(format!("label {name} has no image: {why}"));
            }
            Some(LabelSpec { flavor: None, .. }) => {
                return PlacementChoice::Never(format!(
                    "label {name} has no flavor: add `flavor` to the label"
                ));
            }
            Some(spec) => need = need.plus(spec.resources),
            None if limits.hosts_of(tenant).iter().any(|host| host.labels.contains(label)) => {
                lent.push(label)
            }
            None => {
                return PlacementChoice::Never(format!(
                    "label {name} is unknown at {}",
                    limits.provider
                ));
            }
        }
    }
    let zones = match zones_for(limits, request) {
        Ok(zones) => zones,
        Err(why) => return PlacementChoice::Never(why),
    };
    let quota = limits.quota;
    if !need.fits(quota) {
        return PlacementChoice::Never(format!(
            "{} machines exceed the quota of {}",
            need.instances, quota.instances
        ));
    }
    if !lending::has_hosts(limits.hosts_of(tenant), &lent) {
        return PlacementChoice::Never(format!(
            "{} static hosts are more than the provider has",
            lent.len()
        ));
    }
    let Some(hosts) = lending::free_hosts(ledger, request, &lent) else {
        return PlacementChoice::Later("its static hosts are in use".to_owned());
    };
    let (zone, pool) = pick_zone(ledger, request, &zones);
    let new = request.labels.iter().zip(&pool).filter(|(_, pooled)| pooled.is_none());
    let missing = new
        .filter_map(|(label, _)| limits.label(tenant, label))
        .fold(Resources::default(), |sum, label| sum.plus(label.resources));
    if let Some(why) = make_room(ledger, missing, &pool) {
        return PlacementChoice::Later(why);
    }
    let mut hosts = hosts.into_iter();
    let sources = request.labels.iter().zip(pool).map(|(label, pooled)| {
        let pooled = pooled.map(NodeSource::Pool);
        let new = || limits.label(tenant, label).map(NodeSource::New);
        pooled.or_else(new).or_else(|| hosts.next().map(NodeSource::Static))
    });
    match sources.collect::<Option<Vec<_>>>() {
        Some(sources) => PlacementChoice::Now(ChosenNodes { zone, sources }),
        None => PlacementChoice::Later("its static hosts are in use".to_owned()),
    }
}

/// Returns the zones in which all the labels are available: the one that labels are restricted to,
/// or else all of their location, which may be none. Labels without a restriction, and those of
/// static hosts, do not matter. The error says that labels are restricted to different zones.
fn zones_for(limits: &ProviderLimits, request: &NodeRequest) -> Result<Vec<String>, String> {
    let tenant = &request.queue.tenant;
    let bound = request
        .labels
        .iter()
        .zip(request.label_names())
        .filter_map(|(label, name)| Some((limits.label(tenant, label)?.zone.as_ref()?, name)));
    let bound: BTreeMap<&String, &LabelName> = bound.collect();
    let mut bound = bound.into_iter();
    match (bound.next(), bound.next()) {
        (None, _) => {
            // All labels of a tenant are at the same location, that of its section.
            let any = request.labels.iter().find_map(|label| limits.label(tenant, label));
            Ok(any.map(|label| label.location.zones.clone()).unwrap_or_default())
        }
        (Some((zone, _)), None) => Ok(vec![zone.clone()]),
        (Some((one_zone, one)), Some((other_zone, other))) => Err(format!(
            "label {one} is bound to zone {one_zone} and label {other} to {other_zone}, and all \
             nodes of a request are in one zone"
        )),
    }
}

/// Returns the zone with the most free pool nodes that suit the request, and for each of its labels
/// such a node, or `None` where there is none. Of equal zones, the first from the head's next zone
/// on counts. The zone is `None` if `zones` is empty. Allocates nothing.
fn pick_zone(
    ledger: &Ledger<'_>,
    request: &NodeRequest,
    zones: &[String],
) -> (Option<String>, Vec<Option<NodeId>>) {
    let start = ledger.head.next_zone as usize;
    let mut best = (None, Vec::new(), 0);
    for offset in 0..zones.len().max(1) {
        let zone = (!zones.is_empty()).then(|| zones[(start + offset) % zones.len()].clone());
        let pool = match_pool_nodes(ledger, request, zone.as_deref());
        let count = pool.iter().flatten().count();
        if offset == 0 || count > best.2 {
            best = (zone, pool, count);
        }
    }
    (best.0, best.1)
}

/// Returns for each label of a request a free node of the zone that is as the label would launch it
/// for the request's tenant now, or `None` if there is none left. Prefers the nodes that are ready
/// soonest, then older ones. No node is returned twice. With `zone` `None`, only nodes without a
/// zone count.
fn match_pool_nodes(
    ledger: &Ledger<'_>,
    request: &NodeRequest,
    zone: Option<&str>,
) -> Vec<Option<NodeId>> {
    let mut free: Vec<&PoolNode> =
        ledger.nodes.values().filter(|node| node.is_free() && node.az.as_deref() == zone).collect();
    free.sort_by_key(|node| (readiness_rank(node), node.created_at, node.id.clone()));
    let mut taken = BTreeSet::new();
    request
        .labels
        .iter()
        .map(|label| {
            let current = ledger.limits.label(&request.queue.tenant, label)?;
            let node = free.iter().find(|node| {
                node.label == *label && !taken.contains(&node.id) && suits(current, node)
            })?;
            taken.insert(node.id.clone());
            Some(node.id.clone())
        })
        .collect()
}

/// Returns how far a node is from being ready: 0 is ready, 1 is being checked, 2 is booting, 3 has
/// no known machine yet or is in any other state.
fn readiness_rank(node: &PoolNode) -> u8 {
    match node.state {
        NodeState::Ready { .. } => 0,
        NodeState::Testing { .. } => 1,
        NodeState::Building { .. } => 2,
        _ => 3,
    }
}

/// Returns whether a node is as a label would launch it now: in this region, with this image,
/// flavor, login and Python, and, if the label is restricted to a zone, in this zone (N4). The name
/// of the label is not compared. False for a static host, and if the label has no image or no
/// flavor.
pub(crate) fn suits(label: &LabelSpec, node: &PoolNode) -> bool {
    let NodeOrigin::Cloud { image_id, flavor, .. } = &node.origin else { return false };
    let has_image = matches!(&label.image, LabelImage::Available { id } if id == image_id);
    let is_in_zone = label.zone.is_none() || label.zone == node.az;
    let access = (&node.username, node.ssh_port, &node.python_path, node.interface);
    has_image
        && label.location.region == node.region
        && is_in_zone
        && label.flavor.as_ref() == Some(flavor)
        && access == (&label.username, label.ssh_port, &label.python_path, label.interface)
}

/// Returns `None` if `missing` is nothing, or fits into the quota beside all that is used and
/// reserved; otherwise the reason to wait. In that case it marks free cloud nodes for deletion,
/// ready ones first, until `missing` will fit once they are gone, or no more can be deleted. The
/// nodes in `pool`, which the request is to get, are kept.
fn make_room(
    ledger: &mut Ledger<'_>,
    missing: Resources,
    pool: &[Option<NodeId>],
) -> Option<String> {
    let quota = ledger.limits.quota;
    let taken = |ledger: &Ledger<'_>| ledger.used().plus(ledger.reserved());
    if taken(ledger).plus(missing).fits(quota) || missing == Resources::default() {
        return None;
    }
    let is_deleting = |ledger: &Ledger<'_>, id: &NodeId| {
        ledger.nodes.get(id).is_some_and(|node| matches!(node.state, NodeState::Deleting { .. }))
    };
    let mut others: Vec<&PoolNode> =
        ledger.nodes.values().filter(|node| node.is_free() && !node.is_static()).collect();
    others.sort_by_key(|node| (readiness_rank(node), node.created_at, node.id.clone()));
    let candidates: Vec<NodeId> = others
        .iter()
        .map(|node| node.id.clone())
        .filter(|id| !pool.contains(&Some(id.clone())))
        .collect();
    for id in candidates {
        let remaining = ledger
            .nodes
            .keys()
            .filter(|id| !is_deleting(ledger, id))
            .filter_map(|id| ledger.nodes.get(id));
        let after =
            remaining.fold(missing, |sum, node| sum.plus(node.used()).plus(node.reserved()));
        if after.fits(quota) || !ledger.has_room(1) {
            break;
        }
        ledger.delete_node(&id, "a request that waits for quota cannot use it");
    }
    // The text omits the used number: it changes with every machine, and each change would rewrite
    // all waiting requests.
    Some(format!(
        "the quota of {1} machines has no room for {0} more",
        missing.instances, quota.instances
    ))
}

/// Places the request on the chosen nodes: allocates pool nodes, adds nodes to launch and nodes
/// that lend static hosts, stores the placement in the request, and advances the head's generation
/// and next zone. Launches nothing. Whether the commit has room is not checked.
fn reserve(ledger: &mut Ledger<'_>, request: &NodeRequest, chosen: ChosenNodes<'_>) {
    ledger.head.generation += 1;
    ledger.head.next_zone = ledger.head.next_zone.wrapping_add(1);
    let generation = ledger.head.generation;
    let allocation =
        Allocation { row: request.row.clone(), build: request.build.clone(), missing_since: None };
    let (mut pool, mut new, mut lent) = (0_u32, 0_u32, 0_u32);
    let mut nodes = Vec::new();
    for (slot, source) in chosen.sources.iter().enumerate() {
        let label = &request.labels[slot];
        let id = match source {
            NodeSource::Pool(id) => {
                pool += 1;
                ledger.update_node(id, |node| node.allocated_to = Some(allocation.clone()));
                id.clone()
            }
            NodeSource::New(spec) => {
                new += 1;
                add_reserved_node(
                    ledger,
                    (label, spec),
                    chosen.zone.clone(),
                    &slot.to_string(),
                    Some(allocation.clone()),
                )
            }
            NodeSource::Static(host) => {
                lent += 1;
                add_static_node(ledger, label, host, generation, slot, &allocation)
            }
        };
        nodes.push(id);
    }
    let zone = if pool + new > 0 { chosen.zone } else { None };
    let mut reason = describe_nodes(pool, new, lent);
    if let Some(zone) = &zone {
        reason = format!("{reason}, in zone {zone}");
    }
    if lent > 0 && pool + new > 0 {
        reason.push_str("; its nodes are split between machines and static hosts");
    }
    ledger.explain(format!("request {} is placed on {reason}", request.row));
    ledger.update_request(&request.row, |request| {
        request.reason = format!("placed on {reason}");
        request.state = RequestState::Placed(Placement { az: zone, generation, nodes });
    });
}

/// Names the nodes that a request gets, such as `1 new machine and 1 static host`.
fn describe_nodes(pool: u32, new: u32, lent: u32) -> String {
    let kinds = [(pool, "ready machine"), (new, "new machine"), (lent, "static host")];
    let counted = kinds
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}{}", if count == 1 { "" } else { "s" }));
    let counted: Vec<String> = counted.collect();
    match counted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "no nodes".to_owned(),
    }
}

/// Adds a node of a label with reserved quota, which is not launched yet, and returns its id. The
/// caller has checked quota, room and that the label has image and flavor, and has incremented the
/// head's generation; `part` distinguishes nodes of the same generation. `allocated_to` is `None`
/// for a node of the pool.
pub(crate) fn add_reserved_node(
    ledger: &mut Ledger<'_>,
    (name, label): (&LabelName, &LabelSpec),
    az: Option<String>,
    part: &str,
    allocated_to: Option<Allocation>,
) -> NodeId {
    let id = NodeId::derive(&[
        "node",
        ledger.limits.provider.as_str(),
        &ledger.head.generation.to_string(),
        part,
    ]);
    let image_id = match &label.image {
        LabelImage::Available { id } => id.clone(),
        LabelImage::Missing { .. } => String::new(),
    };
    ledger.add_node(PoolNode {
        id: id.clone(),
        label: name.clone(),
        provider: ledger.limits.provider.clone(),
        region: label.location.region.clone(),
        az,
        origin: NodeOrigin::Cloud {
            client_token: id.0.clone(),
            image_id,
            flavor: label.flavor.clone().unwrap_or_default(),
            resources: label.resources,
        },
        allocated_to,
        state: NodeState::Requested(LaunchProgress::Reserved),
        attempt: 1,
        username: label.username.clone(),
        ssh_port: label.ssh_port,
        python_path: label.python_path.clone(),
        interface: label.interface,
        boot_timeout_seconds: label.boot_timeout_seconds,
        created_at: ledger.now,
        updated_at: ledger.now,
    });
    id
}

/// Adds a node that lends a static host to a request and is checked at once, and returns its id.
/// `generation` and `slot`, the node's index in the request, make the id unique. Whether the host is free is not checked.
fn add_static_node(
    ledger: &mut Ledger<'_>,
    name: &LabelName,
    host: &StaticHost,
    generation: u64,
    slot: usize,
    allocation: &Allocation,
) -> NodeId {
    let id = NodeId::derive(&[
        "lent",
        ledger.limits.provider.as_str(),
        &generation.to_string(),
        &slot.to_string(),
    ]);
    let machine = Machine {
        instance: InstanceId(host.name.clone()),
        private_ipv4: Some(host.address.clone()),
        public_ipv4: None,
        public_ipv6: None,
        ssh_port: Some(host.ssh_port),
        launched_at: ledger.now,
    };
    ledger.add_node(PoolNode {
        id: id.clone(),
        label: name.clone(),
        provider: ledger.limits.provider.clone(),
        region: host.region.clone(),
        az: None,
        origin: NodeOrigin::Static { host: host.name.clone(), host_keys: host.host_keys.clone() },
        allocated_to: Some(allocation.clone()),
        state: NodeState::Testing { machine, next_check_at: ledger.now },
        attempt: 1,
        username: host.username.clone(),
        ssh_port: host.ssh_port,
        python_path: host.python_path.clone(),
        interface: crate::limits::Interface::Private,
        boot_timeout_seconds: 60,
        created_at: ledger.now,
        updated_at: ledger.now,
    });
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z9.1: what a request gets is said in plain words.
    #[test]
    fn the_nodes_of_a_request_are_counted_by_what_they_are() {
        for (nodes, words) in [
            ((0, 1, 0), "1 new machine"),
            ((2, 1, 0), "2 ready machines and 1 new machine"),
            ((1, 1, 3), "1 ready machine, 1 new machine and 3 static hosts"),
            ((0, 0, 0), "no nodes"),
        ] {
            let (pool, new, lent) = nodes;
            assert_eq!(describe_nodes(pool, new, lent), words);
        }
    }
}
