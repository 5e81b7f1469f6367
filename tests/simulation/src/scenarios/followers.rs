//! [`super::Scenario::Followers`]: a pipeline that tests the dependents of a change when the change
//! enters the gate.

/// The name of the pipeline.
pub const FOLLOW: &str = "follow";

/// The configuration of the pipeline and its job. It has no reporters.
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
