//! Prepares the start of a local system: finds free ports, ends the nodes that a killed system
//! left.

use anyhow::Context as _;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::Path;

/// The number of consecutive ports of a system: pages, forge, data services.
pub const PORTS: u16 = 3;

/// Returns the first port of a range, in steps of ten, that is free on 127.0.0.1 together with the
/// two ports after it. They are not reserved.
///
/// # Errors
/// When there is no such port.
pub fn free_port(range: Range<u16>) -> anyhow::Result<u16> {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let found =
        range.clone().step_by(10).find(|port| (*port..port.saturating_add(PORTS)).all(free));
    found.with_context(|| {
        format!(
            "could not find {PORTS} free consecutive ports between {} and {} on 127.0.0.1",
            range.start, range.end
        )
    })
}

/// Ends the nodes that a killed system left in a data directory, found by their recorded processes,
/// waits until they are gone, and deletes their files, which may belong to other users than this
/// one. Does nothing if there are none. Must not be called while a system runs there.
///
/// # Errors
/// When files cannot be deleted.
pub fn remove_nodes(data: &Path) -> std::io::Result<()> {
    sluice_emulator::ec2::remove_left(&data.join("ec2"))
}
