//! A pipeline that tells of changes by mail.

/// That pipeline.
pub const LETTERS: &str = "letters";

/// Returns the pipeline, and what runs in it.
pub fn letters_yaml() -> String {
    telling_by_mail(LETTERS, "quick", "", "")
}

/// Returns a pipeline that tells of changes by mail, and which job runs in it. Of its own it has settings and reporters, which are whole
/// lines.
pub(super) fn telling_by_mail(name: &str, job: &str, settings: &str, reporters: &str) -> String {
    format!(
        "
- pipeline:
    name: {name}
    manager: independent
    precedence: low
{settings}    trigger:
      github:
        - event: pull_request
          action: [opened, changed, reopened]
    success:
      mail: {{to: dev@example.org, from: ci@example.org}}
    failure:
      mail: {{to: dev@example.org, from: ci@example.org}}
{reporters}- project: {{name: ^org/t.*, {name}: {{jobs: [{job}]}}}}
"
    )
}
