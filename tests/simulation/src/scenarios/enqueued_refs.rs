//! [`super::Scenario::EnqueuedRefs`]: a pipeline without triggers, in which operators enqueue
//! branches.

/// The name of the pipeline.
pub const MANUAL: &str = "manual";

/// The configuration of the pipeline and its jobs. It has no reporters.
pub const MANUAL_YAML: &str = "
- pipeline:
    name: manual
    manager: independent
    post-review: true
- project: {name: ^org/t.*, manual: {jobs: [quick, unit]}}
";
