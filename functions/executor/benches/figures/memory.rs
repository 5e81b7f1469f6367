//! Memory of this process, and of the playbooks that it has started.

use std::collections::{BTreeMap, BTreeSet};

/// Returns a figure of `/proc/self/status` in bytes, such as `VmRSS`, or `VmHWM`, its peak.
pub fn own(name: &str) -> u64 {
    kilobytes(&std::fs::read_to_string("/proc/self/status").unwrap(), name) << 10
}

/// Returns the memory of all processes below this one but those of nodes, in bytes. Memory that
/// several processes share counts once (`Pss`).
pub fn of_playbooks() -> u64 {
    let (mut children, mut nodes) = (BTreeMap::<u32, Vec<u32>>::new(), BTreeSet::new());
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name, in parentheses, may have any characters.
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        if name.ends_with("(sshd") {
            nodes.insert(id);
        }
        let parent = rest.split(' ').nth(1).and_then(|parent| parent.parse().ok());
        children.entry(parent.unwrap_or_default()).or_default().push(id);
    }
    let (mut waiting, mut sum) = (vec![std::process::id()], 0);
    while let Some(id) = waiting.pop() {
        for child in children.get(&id).into_iter().flatten().filter(|id| !nodes.contains(id)) {
            let rollup = std::fs::read_to_string(format!("/proc/{child}/smaps_rollup"));
            // A process that has ended meanwhile has no memory.
            sum += kilobytes(&rollup.unwrap_or_default(), "Pss") << 10;
            waiting.push(*child);
        }
    }
    sum
}

/// Returns the number of a line `name: 123 kB`; 0 without such a line.
fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
