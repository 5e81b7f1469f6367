//! Reports on GitHub pull requests.

use super::occasion::ItemEnd;
use super::{Occasion, ReportAction, cut};
use sluice_config::pipeline::{CheckConclusion, CommitStatusState, GitHubReporter, ReviewVerdict};
use sluice_model::ConnectionName;

/// Appends the actions of a GitHub reporter to `actions`: those of status, check run, comment,
/// review and labels that it sets. Status and check run have the name `context` and link to `page`,
/// unless the reporter sets another address. The markers are made of `id`. Without a `comment`
/// setting, a report on an entry or a start makes a comment only if it makes no status, check run
/// or review; other reports always make one. An empty `text` makes no comment.
#[expect(
    clippy::too_many_arguments,
    reason = "there is one caller, and each argument is a part of the report"
)]
pub(super) fn github_actions(
    actions: &mut Vec<ReportAction>,
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
            CommitStatusState::Pending => "pending",
            CommitStatusState::Success => "success",
            CommitStatusState::Failure => "failure",
        };
        let (connection, context, description, url) =
            (connection.clone(), context.to_owned(), line.clone(), url.clone());
        actions.push(ReportAction::Status {
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
        actions.push(ReportAction::Check {
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
        actions.push(ReportAction::Comment {
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
        actions.push(ReportAction::Review { connection, marker, kind: verdict.to_owned(), body });
    }
    if !github.label.is_empty() || !github.unlabel.is_empty() {
        let (connection, add, remove) =
            (connection.clone(), github.label.clone(), github.unlabel.clone());
        actions.push(ReportAction::Labels { connection, add, remove });
    }
}

/// Ends the statuses and check runs that the reporters in `begun` left pending, so that none stays
/// so when an item ends and the reporters of its end set none: a pending status may forbid a merge.
/// `context`, `text` and `page` are those of the report of the end.
pub(super) fn close_pending<'a>(
    actions: &mut Vec<ReportAction>,
    begun: impl Iterator<Item = (&'a ConnectionName, &'a GitHubReporter)>,
    end: ItemEnd,
    context: &str,
    text: &str,
    page: &str,
) {
    let line = text.lines().next().unwrap_or_default();
    for (connection, github) in begun {
        let url = github.status_url.clone().unwrap_or_else(|| page.to_owned());
        let is_status = |action: &ReportAction| matches!(action, ReportAction::Status { connection: of, .. } if of == connection);
        if github.status == Some(CommitStatusState::Pending) && !actions.iter().any(is_status) {
            let state = if end == ItemEnd::Passed { "success" } else { "failure" };
            actions.push(ReportAction::Status {
                connection: connection.clone(),
                context: context.to_owned(),
                state: state.to_owned(),
                description: line.to_owned(),
                url: url.clone(),
            });
        }
        let is_check = |action: &ReportAction| matches!(action, ReportAction::Check { connection: of, .. } if of == connection);
        let is_open =
            matches!(github.check, Some(CheckConclusion::Queued | CheckConclusion::InProgress));
        if is_open && !actions.iter().any(is_check) {
            let state = match end {
                ItemEnd::Passed => "success",
                ItemEnd::Failed => "failure",
                ItemEnd::Left => "cancelled",
            };
            actions.push(ReportAction::Check {
                connection: connection.clone(),
                name: context.to_owned(),
                state: state.to_owned(),
                title: line.to_owned(),
                summary: cut(text),
                url,
            });
        }
    }
}
