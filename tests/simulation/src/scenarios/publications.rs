//! [`super::Scenario::Publications`]: a pipeline that reports by MQTT.

use super::{INDEPENDENT, for_open_changes};

/// The name of the pipeline.
pub const BROADCAST: &str = "broadcast";

/// Its reporters. A success is reported by mail as well, so that one report may be sent while the
/// other is not.
const REPORTERS: &str = "    start:
      mqtt: {topic: '{tenant}/{pipeline}/{action}'}
    success:
      mqtt: {topic: '{tenant}/{pipeline}/{project}/{change}/{action}', qos: 2, include-returned-data: true}
      mail: {to: dev@example.org, from: ci@example.org}
    failure:
      mqtt: {topic: '{tenant}/{pipeline}/{project}/{change}/{action}', qos: 1}
";

/// Returns the configuration of the pipeline and its job.
pub fn broadcast_yaml() -> String {
    for_open_changes(BROADCAST, "quick", INDEPENDENT, REPORTERS)
}
