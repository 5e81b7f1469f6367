//! The ground on which a local system stands: ports that are free, nodes that a killed one left.

use anyhow::Context as _;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::Path;

/// Ports that one system takes: pages, forge, data services.
pub const PORTS: u16 = 3;

/// Returns the first port of a range, in steps of ten, that is free with those above it that a system takes too.
///
/// # Errors
/// When there is none.
pub fn free_port(range: Range<u16>) -> anyhow::Result<u16> {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let found = range.clone().step_by(10).find(|port| (*port..port.saturating_add(PORTS)).all(free));
    found.with_context(|| {
        format!("no {PORTS} free ports were found between {} and {} on 127.0.0.1", range.start, range.end)
    })
}

/// Ends nodes that a killed system left: each directory of `ec2` has the number and start time of its process.
pub fn end_nodes(data: &Path) {
    let nodes = std::fs::read_dir(data.join("ec2")).into_iter().flatten().flatten();
    for node in nodes {
        let Ok(noted) = std::fs::read_to_string(node.path().join("pid")) else { continue };
        let Some((pid, started)) = noted.trim().split_once(' ') else { continue };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The start time tells it from another process that got the same number.
        let lives = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)) == Some(started);
        if lives
            && let Err(error) = std::process::Command::new("kill").args(["-KILL", "--", &format!("-{pid}")]).status()
        {
            tracing::warn!(%error, pid, "a node of an earlier system could not be ended");
        }
    }
}
