//! The ground on which a local system stands: ports that are free, nodes that a killed one left.

use anyhow::Context as _;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::Path;

/// Ports that one system takes: pages, forge, data services.
pub const PORTS: u16 = 3;

/// Returns the first port of a range, in steps of ten, that is free with those above it that a
/// system takes too.
///
/// # Errors
/// When there is none.
pub fn free_port(range: Range<u16>) -> anyhow::Result<u16> {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let found =
        range.clone().step_by(10).find(|port| (*port..port.saturating_add(PORTS)).all(free));
    found.with_context(|| {
        format!(
            "no {PORTS} free ports were found between {} and {} on 127.0.0.1",
            range.start, range.end
        )
    })
}

/// Ends nodes that a killed system left, each by what is noted of its process, and waits until they
/// are gone.
pub fn end_nodes(data: &Path) {
    sluice_emulator::ec2::end_left(&data.join("ec2"));
}
