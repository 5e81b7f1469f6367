//! Expands job variables once, before the first playbook, for the playbooks that could give away
//! something (Z7.5).
//!
//! Only jobs that need it pay for it: those with a template in a variable and a playbook that is
//! trusted or has secrets.

use crate::beneath;
use crate::job::Job;
use crate::vars::has_templates;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Bytes of one host's expanded variables.
const BYTES_MAX: u64 = 8 << 20;

const DIRECTORY: &str = "frozen";

/// The values of the job's variables per host, `localhost` included.
pub type Frozen = BTreeMap<String, Map<String, Value>>;

/// Returns the names of all variables that the job defines anywhere.
pub fn names<'a>(job: &Job<'a>) -> BTreeSet<&'a str> {
    let maps = std::iter::once(&job.job.vars)
        .chain(job.job.host_vars.values())
        .chain(job.job.group_vars.values());
    maps.flat_map(Map::keys).map(String::as_str).collect()
}

/// Returns whether any of the job's variables would be expanded.
pub fn is_needed(job: &Job<'_>) -> bool {
    let mut maps = std::iter::once(&job.job.vars)
        .chain(job.job.host_vars.values())
        .chain(job.job.group_vars.values());
    maps.any(|map| map.values().any(has_templates))
}

/// Returns the values where nothing is to be expanded: host before group before all.
pub fn literal(job: &Job<'_>, hosts: &[&str]) -> Frozen {
    let groups = &crate::inventory::nodeset(job).groups;
    let of_host = |host: &str| {
        let mut values = job.job.vars.clone();
        // Ansible's order: groups by name, a later one winning.
        let mut of: Vec<_> =
            groups.iter().filter(|group| group.nodes.iter().any(|node| node == host)).collect();
        of.sort_by(|one, other| one.name.cmp(&other.name));
        for group in of {
            values.extend(job.job.group_vars.get(&group.name).cloned().unwrap_or_default());
        }
        values.extend(job.job.host_vars.get(host).cloned().unwrap_or_default());
        values
    };
    hosts
        .iter()
        .copied()
        .chain(["localhost"])
        .map(|host| (host.to_owned(), of_host(host)))
        .collect()
}

/// Returns where the run that expands them leaves its files, among the facts that it sees.
pub fn directory(facts: &Path) -> PathBuf {
    facts.join(DIRECTORY)
}

/// Reads what the run left for `hosts` and `localhost`. A host without a file (it was lost) has no
/// variables.
///
/// Templates ran confined, but could write there: only the job's own names count, and no link is
/// followed.
pub fn read(job: &Job<'_>, facts: &Path, hosts: &[&str]) -> Frozen {
    let names = names(job);
    let mut frozen = Frozen::new();
    for host in hosts.iter().copied().chain(["localhost"]) {
        let path = PathBuf::from(DIRECTORY).join(format!("{host}.json"));
        let text = beneath::read_text(facts, &path, BYTES_MAX).unwrap_or_default();
        let mut values: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
        values.retain(|name, _| names.contains(name.as_str()));
        frozen.insert(host.to_owned(), values);
    }
    frozen
}
