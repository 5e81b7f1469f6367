//! A pipeline for tags.

/// The pipeline that tags start.
pub const RELEASE: &str = "release";

/// That pipeline, and what runs in it. It tells nobody.
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
