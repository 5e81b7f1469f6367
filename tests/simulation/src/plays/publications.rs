//! A pipeline that publishes what becomes of changes to a broker.

/// That pipeline.
pub const BROADCAST: &str = "broadcast";

/// The pipeline, and what runs in it. A success is told by mail as well: one of both may be sent, and the other one not yet.
pub const BROADCAST_YAML: &str = "
- pipeline:
    name: broadcast
    manager: independent
    precedence: low
    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
    start:
      mqtt: {topic: '{tenant}/{pipeline}/{action}'}
    success:
      mqtt: {topic: '{tenant}/{pipeline}/{project}/{change}/{action}', qos: 2, include-returned-data: true}
      mail: {to: dev@example.org, from: ci@example.org}
    failure:
      mqtt: {topic: '{tenant}/{pipeline}/{project}/{change}/{action}', qos: 1}
- project: {name: ^org/t.*, broadcast: {jobs: [quick]}}
";
