//! [`super::Scenario::DisabledPipelines`]: a pipeline that is disabled after consecutive failures,
//! and then reports only to operators.

use super::mails::mailing_pipeline;

/// The name of the pipeline.
pub const SHAKY: &str = "shaky";

/// The number of consecutive failures that disables the pipeline.
pub const FAILURES: u32 = 2;

/// The recipient of the disabled pipeline's reports.
pub const OPERATORS: &str = "ops@example.org";

/// Returns the configuration of the pipeline and its job.
pub fn shaky_yaml() -> String {
    let settings = format!("    disable-after-consecutive-failures: {FAILURES}\n");
    let reporters =
        format!("    disabled:\n      mail: {{to: {OPERATORS}, from: ci@example.org}}\n");
    mailing_pipeline(SHAKY, "unit", &settings, &reporters)
}
