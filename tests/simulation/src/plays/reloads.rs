//! A job that an operator adds to all projects, and takes away again, while changes are tested.

/// That job.
pub const SURPLUS: &str = "surplus";

/// What the config project holds besides while it is there.
pub const SURPLUS_YAML: &str = "
- job: {name: surplus, run: playbooks/surplus.yaml, nodeset: {nodes: []}}
- project: {name: ^org/t.*, check: {jobs: [surplus]}, gate: {jobs: [surplus]}}
";
