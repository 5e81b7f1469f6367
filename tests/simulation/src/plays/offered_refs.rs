//! A pipeline into which operators alone bring anything: branches as they were when they said so.

/// The pipeline that nothing starts.
pub const MANUAL: &str = "manual";

/// That pipeline, and what runs in it. It tells nobody.
pub const MANUAL_YAML: &str = "
- pipeline:
    name: manual
    manager: independent
    post-review: true
- project: {name: ^org/t.*, manual: {jobs: [quick, unit]}}
";
