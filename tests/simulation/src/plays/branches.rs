//! A pipeline for branches that people make, and delete again.

/// That pipeline.
pub const SIDES: &str = "sides";

/// What the names of such branches begin with.
pub const SIDE: &str = "side-";

/// The pipeline, and what runs in it. It tells nobody.
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
