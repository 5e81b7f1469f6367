//! A pipeline that tells others, and those alone, once too many changes failed in it one after the other.

/// That pipeline.
pub const SHAKY: &str = "shaky";

/// How many failures in a row are too many.
pub const FAILURES: u32 = 2;

/// Who is told then.
pub const OPERATORS: &str = "ops@example.org";

/// The pipeline, and what runs in it.
pub const SHAKY_YAML: &str = "
- pipeline:
    name: shaky
    manager: independent
    precedence: low
    disable-after-consecutive-failures: 2
    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
    success:
      mail: {to: dev@example.org, from: ci@example.org}
    failure:
      mail: {to: dev@example.org, from: ci@example.org}
    disabled:
      mail: {to: ops@example.org, from: ci@example.org}
- project: {name: ^org/t.*, shaky: {jobs: [unit]}}
";
