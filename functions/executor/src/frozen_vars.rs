//! Expands job variables once, before the first playbook, for privileged playbooks (Z7.5).
//!
//! Otherwise a template in a job variable could read a secret in a trusted playbook. Only jobs that
//! have both a template in a variable and a privileged playbook need the extra Ansible run.

use crate::confined_files;
use crate::job::JobAttempt;
use crate::vars::has_templates;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The maximum size of one host's expanded variables in bytes.
const BYTES_MAX: u64 = 8 << 20;

/// The directory of the expanded variables below the facts directory.
const DIRECTORY: &str = "frozen";

/// The expanded job variables of each host, including `localhost`.
pub type FrozenVars = BTreeMap<String, Map<String, Value>>;

/// Returns the names of all variables that the job defines for all hosts, groups or single hosts.
/// Extra variables (`extra-vars`) are not included.
pub fn names<'a>(job: &JobAttempt<'a>) -> BTreeSet<&'a str> {
    let maps = std::iter::once(&job.job.vars)
        .chain(job.job.host_vars.values())
        .chain(job.job.group_vars.values());
    maps.flat_map(Map::keys).map(String::as_str).collect()
}

/// Returns whether a variable that the job defines for all hosts, groups or single hosts contains a
/// template, so that Ansible has to expand it. Extra variables do not count.
pub fn is_needed(job: &JobAttempt<'_>) -> bool {
    let mut maps = std::iter::once(&job.job.vars)
        .chain(job.job.host_vars.values())
        .chain(job.job.group_vars.values());
    maps.any(|map| map.values().any(has_templates))
}

/// Returns the job's variables of each of `hosts` and of `localhost` as written. The caller has
/// checked with [`is_needed`] that they contain no templates. Host variables override group
/// variables, which override those for all hosts. Of several groups of a host, the last by name
/// wins.
pub fn literal(job: &JobAttempt<'_>, hosts: &[&str]) -> FrozenVars {
    let groups = &crate::inventory::nodeset(job).groups;
    let of_host = |host: &str| {
        let mut values = job.job.vars.clone();
        // Like Ansible: groups in order of their names, later ones win.
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

/// Returns the directory below the facts directory `facts` in which the Ansible run that expands
/// variables writes one file for each host.
pub fn directory(facts: &Path) -> PathBuf {
    facts.join(DIRECTORY)
}

/// Reads the variables of `hosts` and `localhost` that the Ansible run has expanded, from its files
/// below the facts directory `facts`. Each host has an entry. It is empty if the file is missing,
/// because the host was unreachable, and if the file is too large or no JSON object. Variables that
/// the job does not define, or that could not be expanded, are left out.
///
/// Templates ran in a sandbox that can write this directory. So only names that the job defines are
/// taken, and links are not followed.
pub fn read(job: &JobAttempt<'_>, facts: &Path, hosts: &[&str]) -> FrozenVars {
    let names = names(job);
    let mut frozen = FrozenVars::new();
    for host in hosts.iter().copied().chain(["localhost"]) {
        let path = PathBuf::from(DIRECTORY).join(format!("{host}.json"));
        let text = confined_files::read_text(facts, &path, BYTES_MAX).unwrap_or_default();
        let mut values: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
        values.retain(|name, _| names.contains(name.as_str()));
        frozen.insert(host.to_owned(), values);
    }
    frozen
}
