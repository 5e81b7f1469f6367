//! Placement: requests in their order ([`turns`]), each with one zone and all its nodes, or not at
//! all (Z1.3, Z1.5).

use crate::demand;
use crate::ledger::Ledger;
use crate::limits::{Image, Label, ProviderLimits, Resources};
use crate::node::{Allocation, InstanceId, Launch, Machine, Node, NodeState, Origin};
use crate::plan::NODES_PER_REQUEST_MAX;
use crate::request::{Placement, Request, RequestState};
use crate::snapshot::Paused;
use crate::turns;
use sluice_model::{LabelName, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a request waits for room, so that nothing may be launched for the pool itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Everything that could be placed is.
    Nobody,
    /// A request waits and nothing overtakes it.
    ForRoom,
}

/// Places requests until one has to wait.
pub(crate) fn requests(ledger: &mut Ledger<'_>) -> Waiting {
    if let Paused::ByOperator { reason } = &ledger.head.paused {
        let reason = format!("nothing is placed: {reason}");
        ledger.say(reason);
        return Waiting::ForRoom;
    }
    for request in turns::in_order(&ledger.requests, &ledger.facts.places) {
        if request.state != RequestState::Requested || request.not_before > ledger.now {
            continue;
        }
        if !ledger.room(request.labels.len() + 1) {
            return Waiting::ForRoom;
        }
        match choose(ledger, &request) {
            Choice::Never(why) => demand::fail(ledger, &request.row, &why),
            Choice::Later(why) => {
                ledger
                    .say(format!("request {} waits and nothing overtakes it: {why}", request.row));
                if request.reason != why {
                    ledger.request(&request.row, |request| request.reason = why);
                }
                return Waiting::ForRoom;
            }
            Choice::Now(chosen) => reserve(ledger, &request, chosen),
        }
    }
    Waiting::Nobody
}

/// What can be done for a request.
enum Choice {
    /// It never fits here.
    Never(String),
    /// It fits, but not now.
    Later(String),
    /// Take this.
    Now(Chosen),
}

/// A place for each node of a request.
struct Chosen {
    zone: Option<String>,
    places: Vec<Place>,
}

enum Place {
    /// A node of the pool.
    Pool(NodeId),
    /// A machine to launch.
    New,
    /// A host to borrow, by its number in the limits.
    Static(usize),
}

fn choose(ledger: &mut Ledger<'_>, request: &Request) -> Choice {
    if request.labels.len() > NODES_PER_REQUEST_MAX {
        return Choice::Never(format!(
            "{} nodes are more than the {NODES_PER_REQUEST_MAX} of one request",
            request.labels.len()
        ));
    }
    let (mut need, mut lent) = (Resources::default(), Vec::new());
    for label in &request.labels {
        match ledger.limits.labels.get(label) {
            Some(Label { image: Image::Missing { why }, .. }) => {
                return Choice::Never(format!("label {label} has no image: {why}"));
            }
            Some(known) => need = need.plus(known.resources),
            None if ledger.limits.statics.iter().any(|host| host.labels.contains(label)) => {
                lent.push(label)
            }
            None => {
                return Choice::Never(format!(
                    "label {label} is unknown at {}",
                    ledger.limits.provider
                ));
            }
        }
    }
    let zones = match zones_for(ledger.limits, &request.labels) {
        Ok(zones) => zones,
        Err(why) => return Choice::Never(why),
    };
    let quota = ledger.limits.quota;
    if !need.fits(quota) {
        return Choice::Never(format!(
            "{} machines are larger than the quota of {}",
            need.instances, quota.instances
        ));
    }
    let all: Vec<u32> = ledger.limits.statics.iter().map(|host| host.max_parallel).collect();
    if borrow(ledger, &lent, &all).is_none() {
        return Choice::Never(format!("{} static hosts are more than there are", lent.len()));
    }
    let free: Vec<u32> =
        all.iter().zip(lendings(ledger)).map(|(all, lent)| all.saturating_sub(lent)).collect();
    let Some(hosts) = borrow(ledger, &lent, &free) else {
        return Choice::Later("its static hosts are in use".to_owned());
    };
    let (zone, pool) = pick_zone(ledger, request, &zones);
    let new = request.labels.iter().zip(&pool).filter(|(_, pooled)| pooled.is_none());
    let missing = new
        .filter_map(|(label, _)| ledger.limits.labels.get(label))
        .fold(Resources::default(), |sum, label| sum.plus(label.resources));
    if let Some(why) = shortage(ledger, missing, &pool) {
        return Choice::Later(why);
    }
    let mut hosts = hosts.into_iter();
    let places = request.labels.iter().zip(pool).map(|(label, pooled)| match pooled {
        Some(id) => Place::Pool(id),
        None if ledger.limits.labels.contains_key(label) => Place::New,
        None => hosts.next().map_or(Place::New, Place::Static),
    });
    Choice::Now(Chosen { zone, places: places.collect() })
}

/// Returns the zones where all of some labels may be: the provider's, or the one that labels are
/// bound to; or why there is none.
fn zones_for(limits: &ProviderLimits, labels: &[LabelName]) -> Result<Vec<String>, String> {
    let bound =
        labels.iter().filter_map(|label| Some((limits.labels.get(label)?.zone.as_ref()?, label)));
    let bound: BTreeMap<&String, &LabelName> = bound.collect();
    let mut bound = bound.into_iter();
    match (bound.next(), bound.next()) {
        (None, _) => Ok(limits.zones.clone()),
        (Some((zone, _)), None) => Ok(vec![zone.clone()]),
        (Some((one_zone, one)), Some((other_zone, other))) => Err(format!(
            "label {one} is bound to zone {one_zone} and label {other} to {other_zone}, and all nodes of a request are in one zone"
        )),
    }
}

/// Returns the one of some zones with the most nodes of the pool that help, starting at the next in
/// turn, and those nodes by place.
fn pick_zone(
    ledger: &Ledger<'_>,
    request: &Request,
    zones: &[String],
) -> (Option<String>, Vec<Option<NodeId>>) {
    let start = ledger.head.next_zone as usize;
    let mut best = (None, Vec::new(), 0);
    for turn in 0..zones.len().max(1) {
        let zone = (!zones.is_empty()).then(|| zones[(start + turn) % zones.len()].clone());
        let pool = pooled(ledger, &request.labels, zone.as_deref());
        let count = pool.iter().flatten().count();
        if turn == 0 || count > best.2 {
            best = (zone, pool, count);
        }
    }
    (best.0, best.1)
}

/// Returns for each label a free node of the zone: ready ones first, then those that will be
/// soonest.
fn pooled(ledger: &Ledger<'_>, labels: &[LabelName], zone: Option<&str>) -> Vec<Option<NodeId>> {
    let mut free: Vec<&Node> = ledger
        .nodes
        .values()
        .filter(|node| node.is_free() && node.az.as_deref() == zone && is_current(ledger, node))
        .collect();
    free.sort_by_key(|node| (distance(node), node.created_at, node.id.clone()));
    let mut taken = BTreeSet::new();
    labels
        .iter()
        .map(|label| {
            let node =
                free.iter().find(|node| node.label == *label && !taken.contains(&node.id))?;
            taken.insert(node.id.clone());
            Some(node.id.clone())
        })
        .collect()
}

fn distance(node: &Node) -> u8 {
    match node.state {
        NodeState::Ready { .. } => 0,
        NodeState::Testing { .. } => 1,
        NodeState::Building { .. } => 2,
        _ => 3,
    }
}

/// Returns whether the node is what its label would be launched as today (N4).
pub(crate) fn is_current(ledger: &Ledger<'_>, node: &Node) -> bool {
    let bound = ledger.limits.labels.get(&node.label).and_then(|label| label.zone.as_ref());
    if !node.is_static() && bound.is_some() && bound != node.az.as_ref() {
        return false;
    }
    match (&node.origin, ledger.limits.labels.get(&node.label).map(|label| &label.image)) {
        (Origin::Cloud { image_id, .. }, Some(Image::Available { id })) => image_id == id,
        (Origin::Cloud { .. }, _) => false,
        (Origin::Static { .. }, _) => true,
    }
}

/// Returns why `missing` does not fit now; then free nodes that this request cannot use make way
/// for it.
fn shortage(
    ledger: &mut Ledger<'_>,
    missing: Resources,
    pool: &[Option<NodeId>],
) -> Option<String> {
    let quota = ledger.limits.quota;
    let taken = |ledger: &Ledger<'_>| ledger.used().plus(ledger.reserved());
    if taken(ledger).plus(missing).fits(quota) || missing == Resources::default() {
        return None;
    }
    let leaving = |ledger: &Ledger<'_>, id: &NodeId| {
        ledger.nodes.get(id).is_some_and(|node| matches!(node.state, NodeState::Deleting { .. }))
    };
    let mut others: Vec<&Node> =
        ledger.nodes.values().filter(|node| node.is_free() && !node.is_static()).collect();
    others.sort_by_key(|node| (distance(node), node.created_at, node.id.clone()));
    let candidates: Vec<NodeId> = others
        .iter()
        .map(|node| node.id.clone())
        .filter(|id| !pool.contains(&Some(id.clone())))
        .collect();
    for id in candidates {
        let stays = ledger
            .nodes
            .keys()
            .filter(|id| !leaving(ledger, id))
            .filter_map(|id| ledger.nodes.get(id));
        let after = stays.fold(missing, |sum, node| sum.plus(node.used()).plus(node.reserved()));
        if after.fits(quota) || !ledger.room(1) {
            break;
        }
        ledger.delete_node(&id, "a request that waits for quota cannot use it");
    }
    // Without the number of those taken, which the head tells: each that comes or goes would
    // rewrite every request that waits.
    Some(format!(
        "it needs {} more machines than are free of {}",
        missing.instances, quota.instances
    ))
}

/// Returns how often each static host is lent.
fn lendings(ledger: &Ledger<'_>) -> Vec<u32> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for node in ledger.nodes.values() {
        if let Origin::Static { host } = &node.origin {
            *counts.entry(host).or_default() += 1;
        }
    }
    ledger
        .limits
        .statics
        .iter()
        .map(|host| counts.get(host.name.as_str()).copied().unwrap_or(0))
        .collect()
}

/// Returns a host for each label within `free` uses of each, by augmenting paths; `None` when there
/// is no such choice.
fn borrow(ledger: &Ledger<'_>, labels: &[&LabelName], free: &[u32]) -> Option<Vec<usize>> {
    let slots: Vec<usize> = free
        .iter()
        .enumerate()
        .flat_map(|(host, free)| {
            std::iter::repeat_n(host, (*free as usize).min(NODES_PER_REQUEST_MAX))
        })
        .collect();
    let mut taken: Vec<Option<usize>> = vec![None; slots.len()];
    for wish in 0..labels.len() {
        let mut tried = vec![false; slots.len()];
        if !assign(ledger, labels, &slots, &mut taken, &mut tried, wish) {
            return None;
        }
    }
    let mut hosts = vec![0; labels.len()];
    for (slot, wish) in taken.iter().enumerate() {
        if let Some(wish) = wish {
            hosts[*wish] = slots[slot];
        }
    }
    Some(hosts)
}

fn assign(
    ledger: &Ledger<'_>,
    labels: &[&LabelName],
    slots: &[usize],
    taken: &mut [Option<usize>],
    tried: &mut [bool],
    wish: usize,
) -> bool {
    for slot in 0..slots.len() {
        if tried[slot] || !ledger.limits.statics[slots[slot]].labels.contains(labels[wish]) {
            continue;
        }
        tried[slot] = true;
        // Depth is bounded by the slots: each is tried once.
        if taken[slot].is_none_or(|other| assign(ledger, labels, slots, taken, tried, other)) {
            taken[slot] = Some(wish);
            return true;
        }
    }
    false
}

/// Reserves everything that was chosen, in one commit.
fn reserve(ledger: &mut Ledger<'_>, request: &Request, chosen: Chosen) {
    ledger.head.generation += 1;
    ledger.head.next_zone = ledger.head.next_zone.wrapping_add(1);
    let generation = ledger.head.generation;
    let allocation =
        Allocation { row: request.row.clone(), build: request.build.clone(), missing_since: None };
    let (mut pool, mut new, mut lent) = (0, 0, 0);
    let mut nodes = Vec::new();
    for (slot, place) in chosen.places.iter().enumerate() {
        let label = &request.labels[slot];
        let id = match place {
            Place::Pool(id) => {
                pool += 1;
                ledger.node(id, |node| node.allocated_to = Some(allocation.clone()));
                id.clone()
            }
            Place::New => {
                new += 1;
                launchable(
                    ledger,
                    label,
                    chosen.zone.clone(),
                    &slot.to_string(),
                    Some(allocation.clone()),
                )
            }
            Place::Static(host) => {
                lent += 1;
                lend(ledger, label, *host, generation, slot, &allocation)
            }
        };
        nodes.push(id);
    }
    let zone = if pool + new > 0 { chosen.zone } else { None };
    let mut reason = format!("{pool} nodes of the pool, {new} new, {lent} static");
    if let Some(zone) = &zone {
        reason = format!("{reason}, in zone {zone}");
    }
    if lent > 0 && pool + new > 0 {
        reason.push_str("; its nodes are split between machines and static hosts");
    }
    ledger.say(format!("request {} is placed: {reason}", request.row));
    ledger.request(&request.row, |request| {
        request.reason = format!("placed: {reason}");
        request.state = RequestState::Placed(Placement { az: zone, generation, nodes });
    });
}

/// Adds a node with a reserved place in the quota and returns its id; the head's generation must be
/// new.
pub(crate) fn launchable(
    ledger: &mut Ledger<'_>,
    name: &LabelName,
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
    let Some(label) = ledger.limits.labels.get(name) else {
        return id;
    };
    let image_id = match &label.image {
        Image::Available { id } => id.clone(),
        Image::Missing { .. } => String::new(),
    };
    ledger.add_node(Node {
        id: id.clone(),
        label: name.clone(),
        provider: ledger.limits.provider.clone(),
        region: ledger.limits.region.clone(),
        az,
        origin: Origin::Cloud {
            client_token: id.0.clone(),
            image_id,
            flavor: label.flavor.clone(),
            resources: label.resources,
        },
        allocated_to,
        state: NodeState::Requested(Launch::Reserved),
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

fn lend(
    ledger: &mut Ledger<'_>,
    name: &LabelName,
    host: usize,
    generation: u64,
    slot: usize,
    allocation: &Allocation,
) -> NodeId {
    let host = &ledger.limits.statics[host];
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
    ledger.add_node(Node {
        id: id.clone(),
        label: name.clone(),
        provider: ledger.limits.provider.clone(),
        region: ledger.limits.region.clone(),
        az: None,
        origin: Origin::Static { host: host.name.clone() },
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
