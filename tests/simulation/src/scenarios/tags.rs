//! [`super::Scenario::Tags`]: a pipeline that tags trigger.

/// The name of the pipeline.
pub const RELEASE: &str = "release";

/// The configuration of the pipeline and its jobs. It has no reporters.
pub const RELEASE_YAML: &str = "
- pipeline:
    name: release
    manager: independent
    post-review: true
    trigger:
      github:
        - event: push
          ref: ^refs/tags/.*$
- project: {name: ^org/t.*, release: {jobs: [quick, unit]}}
";
