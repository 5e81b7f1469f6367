//! Chooses the static hosts that are lent to a request (Z1.10). They are hosts of its tenant, and a
//! machine that several tenants have as a host is one machine.

use crate::decisions::NODES_PER_REQUEST_MAX;
use crate::ledger::Ledger;
use crate::limits::{StaticHost, machine_at};
use crate::request::NodeRequest;
use sluice_model::LabelName;
use std::collections::BTreeMap;

/// Returns the number of current uses of each machine that is lent, by its name.
fn uses_by_machine(ledger: &Ledger<'_>) -> BTreeMap<String, u32> {
    let mut uses = BTreeMap::new();
    for node in ledger.nodes.values().filter(|node| node.is_static()) {
        let machine = node.machine();
        if let Some(address) = machine.and_then(|machine| machine.private_ipv4.as_deref()) {
            *uses.entry(machine_at(address)).or_default() += 1;
        }
    }
    uses
}

/// Returns the static hosts of a request's tenant: those that did not fail its check, and then
/// those that did, in the order in which they failed.
fn hosts_by_failure<'l>(
    ledger: &Ledger<'l>,
    request: &NodeRequest,
) -> (Vec<&'l StaticHost>, Vec<&'l StaticHost>) {
    let failure = |host: &&StaticHost| {
        let machine = host.machine();
        request.failed_hosts.iter().position(|failed| *failed == machine)
    };
    let hosts = ledger.limits.hosts_of(&request.queue.tenant).iter();
    let (untried, mut failed): (Vec<_>, Vec<_>) = hosts.partition(|host| failure(host).is_none());
    failed.sort_by_key(failure);
    (untried, failed)
}

/// Returns a free static host of the request's tenant for each of `labels`: if possible only those
/// that did not fail its check. `None` if there are not enough. Changes nothing.
pub(crate) fn free_hosts<'l>(
    ledger: &Ledger<'l>,
    request: &NodeRequest,
    labels: &[&LabelName],
) -> Option<Vec<&'l StaticHost>> {
    let uses = uses_by_machine(ledger);
    let (mut hosts, failed) = hosts_by_failure(ledger, request);
    let untried = assign_hosts(&hosts, &uses, labels);
    hosts.extend(failed);
    untried.or_else(|| assign_hosts(&hosts, &uses, labels))
}

/// Returns whether static hosts that did not fail a request's check are free for all its labels
/// that no cloud machine has.
pub(crate) fn has_untried_hosts(ledger: &Ledger<'_>, request: &NodeRequest) -> bool {
    let is_lent = |label: &&LabelName| ledger.limits.label(&request.queue.tenant, label).is_none();
    let lent: Vec<&LabelName> = request.labels.iter().filter(is_lent).collect();
    let (untried, _) = hosts_by_failure(ledger, request);
    assign_hosts(&untried, &uses_by_machine(ledger), &lent).is_some()
}

/// Returns whether a tenant's static hosts suffice for these labels when none is in use.
pub(crate) fn has_hosts(hosts: &[StaticHost], labels: &[&LabelName]) -> bool {
    let hosts: Vec<&StaticHost> = hosts.iter().collect();
    assign_hosts(&hosts, &BTreeMap::new(), labels).is_some()
}

/// Returns for each of `labels` one of `hosts` that offers it, so that no machine has more uses
/// than it may have; `uses` are the current ones. Earlier hosts are preferred. `None` if there is
/// no such assignment. Empty for no labels.
fn assign_hosts<'l>(
    hosts: &[&'l StaticHost],
    uses: &BTreeMap<String, u32>,
    labels: &[&LabelName],
) -> Option<Vec<&'l StaticHost>> {
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    let mut machines: Vec<(u32, Vec<&StaticHost>)> = Vec::new();
    for host in hosts {
        let name = host.machine();
        let used = uses.get(&name).copied().unwrap_or(0);
        let position = *positions.entry(name).or_insert(machines.len());
        if position == machines.len() {
            machines.push((0, Vec::new()));
        }
        let (free, hosts) = &mut machines[position];
        *free = (*free).max(host.max_parallel.saturating_sub(used));
        hosts.push(*host);
    }
    let slots: Vec<&[&StaticHost]> = machines
        .iter()
        .flat_map(|(free, hosts)| {
            let count = (*free as usize).min(NODES_PER_REQUEST_MAX);
            std::iter::repeat_n(hosts.as_slice(), count)
        })
        .collect();
    let mut taken: Vec<Option<usize>> = vec![None; slots.len()];
    for label in 0..labels.len() {
        let mut tried = vec![false; slots.len()];
        if !assign_host(labels, &slots, &mut taken, &mut tried, label) {
            return None;
        }
    }
    let mut chosen = vec![None; labels.len()];
    for (hosts, label) in slots.iter().zip(taken) {
        if let Some(label) = label {
            chosen[label] = host_with(hosts, labels[label]);
        }
    }
    chosen.into_iter().collect()
}

/// Returns the first of these hosts that offers a label; `None` if there is none.
fn host_with<'l>(hosts: &[&'l StaticHost], label: &LabelName) -> Option<&'l StaticHost> {
    hosts.iter().copied().find(|host| host.labels.contains(label))
}

/// Assigns a free slot to the label at index `label`, moving earlier assignments to other slots if
/// needed. Returns whether it succeeded. `slots` has the hosts of a machine for each possible use;
/// `taken` has the index of each slot's label, and is updated. `tried` marks the slots that were
/// tried; it is all false at the first call for a label.
fn assign_host(
    labels: &[&LabelName],
    slots: &[&[&StaticHost]],
    taken: &mut [Option<usize>],
    tried: &mut [bool],
    label: usize,
) -> bool {
    for slot in 0..slots.len() {
        if tried[slot] || host_with(slots[slot], labels[label]).is_none() {
            continue;
        }
        tried[slot] = true;
        // The recursion ends because each slot is tried once.
        if taken[slot].is_none_or(|other| assign_host(labels, slots, taken, tried, other)) {
            taken[slot] = Some(label);
            return true;
        }
    }
    false
}
