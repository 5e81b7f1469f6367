//! What is done to a pull request of GitHub.

use super::{Action, Occasion, cut};
use sluice_config::pipeline::{CheckConclusion, CommitStatus, GitHubReporter, ReviewVerdict};
use sluice_model::ConnectionName;

/// Adds what a reporter does to a pull request.
#[expect(
    clippy::too_many_arguments,
    reason = "one call, and each argument is a word of the report"
)]
pub(super) fn github_actions(
    actions: &mut Vec<Action>,
    github: &GitHubReporter,
    connection: &ConnectionName,
    context: &str,
    occasion: Occasion,
    text: &str,
    page: &str,
    id: &str,
) {
    let line = text.lines().next().unwrap_or_default().to_owned();
    let url = github.status_url.clone().unwrap_or_else(|| page.to_owned());
    if let Some(status) = github.status {
        let state = match status {
            CommitStatus::Pending => "pending",
            CommitStatus::Success => "success",
            CommitStatus::Failure => "failure",
        };
        let (connection, context, description, url) =
            (connection.clone(), context.to_owned(), line.clone(), url.clone());
        actions.push(Action::Status {
            connection,
            context,
            state: state.to_owned(),
            description,
            url,
        });
    }
    if let Some(check) = github.check {
        let state = match check {
            CheckConclusion::Queued => "queued",
            CheckConclusion::InProgress => "in_progress",
            CheckConclusion::Success => "success",
            CheckConclusion::Failure => "failure",
            CheckConclusion::Cancelled => "cancelled",
            CheckConclusion::Skipped => "skipped",
            CheckConclusion::Neutral => "neutral",
        };
        let (connection, name) = (connection.clone(), context.to_owned());
        actions.push(Action::Check {
            connection,
            name,
            state: state.to_owned(),
            title: line,
            summary: cut(text),
            url,
        });
    }
    let says_nothing_else =
        github.status.is_none() && github.check.is_none() && github.review.is_none();
    let has_words = !text.is_empty();
    if has_words && github.comment.unwrap_or(!occasion.is_beginning() || says_nothing_else) {
        actions.push(Action::Comment {
            connection: connection.clone(),
            marker: id.to_owned(),
            body: cut(text),
        });
    }
    if let Some(review) = github.review {
        let verdict = match review {
            ReviewVerdict::Approve => "approve",
            ReviewVerdict::RequestChanges => "request-changes",
            ReviewVerdict::Comment => "comment",
        };
        let body = cut(github.review_body.as_deref().unwrap_or(text));
        let (connection, marker) = (connection.clone(), format!("{id}/review"));
        actions.push(Action::Review { connection, marker, verdict: verdict.to_owned(), body });
    }
    if !github.label.is_empty() || !github.unlabel.is_empty() {
        let (connection, add, remove) =
            (connection.clone(), github.label.clone(), github.unlabel.clone());
        actions.push(Action::Labels { connection, add, remove });
    }
}
