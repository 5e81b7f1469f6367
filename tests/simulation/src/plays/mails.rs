//! A pipeline that tells of changes by mail.

use super::{ASIDE, for_open_changes};

/// That pipeline.
pub const LETTERS: &str = "letters";

/// Returns the pipeline, and what runs in it.
pub fn letters_yaml() -> String {
    telling_by_mail(LETTERS, "quick", "", "")
}

/// Returns a pipeline that tells of changes by mail, and which job runs in it. Of its own it has
/// settings and reporters, which are whole lines.
pub(super) fn telling_by_mail(name: &str, job: &str, settings: &str, reporters: &str) -> String {
    let mails = "    success:
      mail: {to: dev@example.org, from: ci@example.org}
    failure:
      mail: {to: dev@example.org, from: ci@example.org}
";
    for_open_changes(name, job, &format!("{ASIDE}{settings}"), &format!("{mails}{reporters}"))
}
