//! A pipeline that publishes what becomes of changes to a broker.

use super::{ASIDE, for_open_changes};

/// That pipeline.
pub const BROADCAST: &str = "broadcast";

/// What it tells. A success is told by mail as well: one of both may be sent, and the other one not
/// yet.
const REPORTERS: &str = "    start:
      mqtt: {topic: '{tenant}/{pipeline}/{action}'}
    success:
      mqtt: {topic: '{tenant}/{pipeline}/{project}/{change}/{action}', qos: 2, include-returned-data: true}
      mail: {to: dev@example.org, from: ci@example.org}
    failure:
      mqtt: {topic: '{tenant}/{pipeline}/{project}/{change}/{action}', qos: 1}
";

/// Returns the pipeline, and what runs in it.
pub fn broadcast_yaml() -> String {
    for_open_changes(BROADCAST, "quick", ASIDE, REPORTERS)
}
