//! [`super::Scenario::Reconfigurations`]: a job that operators add to all projects and remove again
//! while changes are being tested.

/// The name of the job.
pub const SURPLUS: &str = "surplus";

/// The configuration of the job, which is appended to the config project's.
pub const SURPLUS_YAML: &str = "
- job: {name: surplus, run: playbooks/surplus.yaml, nodeset: {nodes: []}}
- project: {name: ^org/t.*, check: {jobs: [surplus]}, gate: {jobs: [surplus]}}
";
