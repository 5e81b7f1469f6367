//! A pipeline that tells of changes by mail.

/// That pipeline.
pub const LETTERS: &str = "letters";

/// The pipeline, and what runs in it.
pub const LETTERS_YAML: &str = "
- pipeline:
    name: letters
    manager: independent
    precedence: low
    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
    success:
      mail: {to: dev@example.org, from: ci@example.org}
    failure:
      mail: {to: dev@example.org, from: ci@example.org}
- project: {name: ^org/t.*, letters: {jobs: [quick]}}
";
