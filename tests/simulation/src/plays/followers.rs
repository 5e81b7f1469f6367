//! A pipeline that tests what depends on a change once that enters the gate.

/// The pipeline that is started by what enters the gate.
pub const FOLLOW: &str = "follow";

/// That pipeline, and what runs in it. It tells nobody.
pub const FOLLOW_YAML: &str = "
- pipeline:
    name: follow
    manager: independent
    precedence: low
    trigger:
      zuul:
        - event: parent-change-enqueued
          pipeline: gate
- project: {name: ^org/t.*, follow: {jobs: [quick]}}
";
