//! [`super::Scenario::Branches`]: a pipeline for branches that authors create and delete.

/// The name of the pipeline.
pub const SIDES: &str = "sides";

/// The prefix of the names of such branches.
pub const SIDE: &str = "side-";

/// The configuration of the pipeline and its jobs. It has no reporters.
pub const SIDES_YAML: &str = "
- pipeline:
    name: sides
    manager: independent
    post-review: true
    trigger:
      github:
        - event: push
          ref: ^refs/heads/side-.*$
- project: {name: ^org/t.*, sides: {jobs: [quick, unit]}}
";
