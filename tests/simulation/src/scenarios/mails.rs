//! [`super::Scenario::Mails`]: a pipeline that reports by mail.

use super::{INDEPENDENT, for_open_changes};

/// The name of the pipeline.
pub const LETTERS: &str = "letters";

/// Returns the configuration of the pipeline and its job.
pub fn letters_yaml() -> String {
    mailing_pipeline(LETTERS, "quick", "", "")
}

/// Returns the configuration of a pipeline that reports by mail, and of its job. `settings` and
/// `reporters` are complete lines of the pipeline.
pub(super) fn mailing_pipeline(name: &str, job: &str, settings: &str, reporters: &str) -> String {
    let mails = "    success:
      mail: {to: dev@example.org, from: ci@example.org}
    failure:
      mail: {to: dev@example.org, from: ci@example.org}
";
    for_open_changes(name, job, &format!("{INDEPENDENT}{settings}"), &format!("{mails}{reporters}"))
}
