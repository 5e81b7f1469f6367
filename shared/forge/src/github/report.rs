//! Writes statuses, check runs and comments. Each finds what an earlier attempt wrote, so that its
//! effect exists once.

use super::http::{Ahead, Api, Repeat};
use super::{GitHub, escape_path, number, read, repository, shapes};
use crate::error::ForgeError;
use crate::forge::{CheckReport, CheckState, LineComment, ReviewDecision, StatusReport};
use crate::marker::Marker;
use reqwest::Method;
use serde_json::{Value, json};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Oid;
use sluice_model::{ProjectName, Timestamp};

/// GitHub allows 2,500 comments on an issue.
const COMMENT_PAGES_MAX: usize = 30;
const REVIEW_PAGES_MAX: usize = 30;
const DESCRIPTION_MAX_CHARACTERS: usize = 140;
const SUMMARY_MAX_CHARACTERS: usize = 65_535;
/// How much older in milliseconds a status may look than the report that it was set for. GitHub's
/// times are whole seconds, and the clocks of Sluice's machines may differ slightly. Nothing is
/// tested and reported twice in so short a time.
const CLOCK_MILLIS: i128 = 2_000;
/// GitHub's limit is 65,536; the marker needs some of it.
const COMMENT_MAX_CHARACTERS: usize = 65_000;

/// The hint for a refused check run.
const CHECK_RUNS_ARE_OF_APPS: &str = "GitHub lets GitHub Apps alone make check runs, and a connection has a token: \
    report by `status` instead of `check`, or wait until a connection can be a GitHub App";

/// Sets a status on a commit, unless the newest status of its context was set for the same report
/// already. The description is cut to 140 characters. The request that sets it is never repeated.
pub(super) async fn set_status(
    github: &GitHub,
    project: &ProjectName,
    head: &Oid,
    status: &StatusReport,
) -> Result<(), ForgeError> {
    let attempted =
        format!("set status {} on {} of {}", status.context, head.short(), project.name());
    // GitHub adds a status each time and sends an event for each: a second one may trigger a
    // pipeline twice.
    if is_already_set(github, project, head, status, &attempted).await {
        return Ok(());
    }
    let path = repository(project, &format!("/statuses/{}", escape_path(head.as_str())));
    let body = json!({
        "state": status.state.as_str(),
        "context": status.context,
        "description": cut(&status.description, DESCRIPTION_MAX_CHARACTERS),
        "target_url": status.url,
    });
    github.api.send(Method::POST, &path, Some(&body), Repeat::Never, &attempted).await.map(drop)
}

/// Returns whether Sluice set the newest status of its context for this report: the status is
/// equal, was set by the token's login, and was set after the report was requested. An equal status
/// that was set earlier belongs to another report; pipelines that wait for this report would get no
/// event. `false` also where the status or the own login cannot be read.
async fn is_already_set(
    github: &GitHub,
    project: &ProjectName,
    head: &Oid,
    status: &StatusReport,
    attempted: &str,
) -> bool {
    let newest =
        read::newest_status(&github.api, project, head.as_str(), &status.context, attempted).await;
    let (Ok((Some(there), ahead)), Ok(me)) = (newest, github.api.own_login().await) else {
        return false;
    };
    there.creator.is_some_and(|user| user.login.eq_ignore_ascii_case(me))
        && there.state == status.state.as_str()
        && there.description.unwrap_or_default()
            == cut(&status.description, DESCRIPTION_MAX_CHARACTERS)
        && there.target_url == status.url
        && was_set_for(there.created_at.as_deref(), status.wanted_at, ahead)
}

/// Returns whether a status was set for a report that was requested at `wanted_at`: not earlier, by
/// the forge's time of the status, corrected by how far the forge's clock is ahead, with two
/// seconds of tolerance. Without a time an equal status counts as the same, or it would trigger
/// twice.
fn was_set_for(created_at: Option<&str>, wanted_at: Timestamp, Ahead(ahead_millis): Ahead) -> bool {
    let is_later = |at: &str| {
        i128::from(read::timestamp(Some(at)).0) + CLOCK_MILLIS
            >= i128::from(wanted_at.0) + ahead_millis
    };
    created_at.is_none_or(is_later)
}

/// Updates the check run on `head` that has the name and the marker of the report, or creates it. A
/// refusal for missing rights says that only GitHub Apps may make check runs.
pub(super) async fn put_check_run(
    github: &GitHub,
    project: &ProjectName,
    head: &Oid,
    run: &CheckReport,
) -> Result<(), ForgeError> {
    write_check_run(github, project, head, run).await.map_err(|error| match error {
        ForgeError::Refused { attempted, status: 403, message } => ForgeError::Refused {
            attempted,
            status: 403,
            message: format!("{message}; {CHECK_RUNS_ARE_OF_APPS}"),
        },
        error => error,
    })
}

/// Updates the check run on `head` that has the name and the marker of the report, otherwise
/// creates it. The summary is cut to 65,535 characters. Only the update is retried.
async fn write_check_run(
    github: &GitHub,
    project: &ProjectName,
    head: &Oid,
    run: &CheckReport,
) -> Result<(), ForgeError> {
    let attempted =
        format!("report check run {} on {} of {}", run.name, head.short(), project.name());
    let external_id = run.marker.external_id();
    let runs =
        read::check_runs_named(&github.api, project, head.as_str(), &run.name, &attempted).await?;
    let ours = runs.iter().find(|there| there.external_id.as_deref() == Some(external_id.as_str()));
    let (status, conclusion) = match run.state {
        CheckState::Queued => ("queued", None),
        CheckState::InProgress => ("in_progress", None),
        CheckState::Completed(conclusion) => ("completed", Some(conclusion.as_str())),
    };
    let mut body = json!({
        "name": run.name,
        "external_id": external_id,
        "status": status,
        "output": {"title": run.title, "summary": cut(&run.summary, SUMMARY_MAX_CHARACTERS)},
    });
    if let Some(conclusion) = conclusion {
        body["conclusion"] = conclusion.into();
    }
    if let Some(url) = &run.url {
        body["details_url"] = url.as_str().into();
    }
    match ours {
        Some(there) => {
            let path = repository(project, &format!("/check-runs/{}", there.id));
            github
                .api
                .send(Method::PATCH, &path, Some(&body), Repeat::Safe, &attempted)
                .await
                .map(drop)
        }
        None => {
            body["head_sha"] = head.as_str().into();
            let path = repository(project, "/check-runs");
            github
                .api
                .send(Method::POST, &path, Some(&body), Repeat::Never, &attempted)
                .await
                .map(drop)
        }
    }
}

/// Creates Sluice's comment with this marker, or replaces its text; changes nothing if it has that
/// text. With an application's token, a comment with another text is not recognised, and a further
/// one is created. The text is cut to 65,000 characters. An error if the change has more comments
/// than are read (3,000).
pub(super) async fn put_comment(
    github: &GitHub,
    change: &ChangeKey,
    marker: &Marker,
    text: &str,
) -> Result<(), ForgeError> {
    let attempted = format!("comment on {change}");
    let list =
        repository(&change.project, &format!("/issues/{}/comments", number(change, &attempted)?));
    let comments = github
        .api
        .pages(&list, COMMENT_PAGES_MAX, &attempted, |page: Vec<shapes::Comment>| page)
        .await?;
    let me = github.api.own_account().await?;
    let body = marker.attach(&cut(text, COMMENT_MAX_CHARACTERS));
    let is_ours =
        |comment: &shapes::Comment| is_ours(&comment.user, &comment.body, me, marker, &body);
    let ours = comments.all(&attempted)?.into_iter().find(is_ours);
    match ours {
        Some(comment) if says(&comment.body, &body) => Ok(()),
        Some(comment) => {
            let path = repository(&change.project, &format!("/issues/comments/{}", comment.id));
            send(&github.api, Method::PATCH, &path, json!({"body": body}), Repeat::Safe, &attempted)
                .await
        }
        None => {
            send(&github.api, Method::POST, &list, json!({"body": body}), Repeat::Never, &attempted)
                .await
        }
    }
}

/// Comments on lines of a pull request in one review with the text `text`, cut to 65,000
/// characters, unless Sluice's review with this marker exists. With an application's token, a
/// review counts only with the same text. If GitHub refuses the lines and some comments have
/// ranges, tries once more with only the last line of each; a second refusal is returned. An error
/// if there are more reviews than are read (3,000).
pub(super) async fn put_line_comments(
    github: &GitHub,
    change: &ChangeRef,
    marker: &Marker,
    text: &str,
    comments: &[LineComment],
) -> Result<(), ForgeError> {
    let attempted = format!("comment on lines of {change}");
    let path = repository(
        &change.key.project,
        &format!("/pulls/{}/reviews", number(&change.key, &attempted)?),
    );
    let reviews = github
        .api
        .pages(&path, REVIEW_PAGES_MAX, &attempted, |page: Vec<shapes::Review>| page)
        .await?;
    let me = github.api.own_account().await?;
    let body = marker.attach(&cut(text, COMMENT_MAX_CHARACTERS));
    if reviews
        .all(&attempted)?
        .iter()
        .any(|review| is_ours(&review.user, &review.body, me, marker, &body))
    {
        return Ok(());
    }
    let review = |comments: Vec<Value>| {
        json!({
            "commit_id": change.head.as_str(),
            "event": "COMMENT",
            "body": body,
            "comments": comments,
        })
    };
    let whole = review(comments.iter().map(several_lines).collect());
    match send(&github.api, Method::POST, &path, whole, Repeat::Never, &attempted).await {
        // All lines of a comment have to be in the diff together; the last one alone may be in it.
        Err(ForgeError::Refused { status: 422, .. })
            if comments.iter().any(|comment| comment.start_line.is_some()) =>
        {
            let short = review(comments.iter().map(one_line).collect());
            send(&github.api, Method::POST, &path, short, Repeat::Never, &attempted).await
        }
        made => made,
    }
}

/// Returns a comment on its last line in GitHub's form.
fn one_line(comment: &LineComment) -> Value {
    json!({"path": comment.path, "line": comment.line, "side": "RIGHT", "body": comment.text})
}

/// Returns a comment on its range of lines in GitHub's form; on one line if it has no range.
fn several_lines(comment: &LineComment) -> Value {
    let mut shape = one_line(comment);
    if let (Some(start), Some(map)) = (comment.start_line, shape.as_object_mut()) {
        map.insert("start_line".to_owned(), json!(start));
        map.insert("start_side".to_owned(), json!("RIGHT"));
    }
    shape
}

/// Submits a review of the change's head with this marker and text, unless Sluice's review with
/// this marker exists, whatever it says. With an application's token, a review counts only with the
/// same text. The text is cut to 65,000 characters. An error if there are more reviews than are
/// read (3,000).
pub(super) async fn put_review(
    github: &GitHub,
    change: &ChangeRef,
    marker: &Marker,
    decision: ReviewDecision,
    text: &str,
) -> Result<(), ForgeError> {
    let attempted = format!("review {change}");
    let path = repository(
        &change.key.project,
        &format!("/pulls/{}/reviews", number(&change.key, &attempted)?),
    );
    let reviews = github
        .api
        .pages(&path, REVIEW_PAGES_MAX, &attempted, |page: Vec<shapes::Review>| page)
        .await?;
    let me = github.api.own_account().await?;
    let body = marker.attach(&cut(text, COMMENT_MAX_CHARACTERS));
    if reviews
        .all(&attempted)?
        .iter()
        .any(|review| is_ours(&review.user, &review.body, me, marker, &body))
    {
        return Ok(());
    }
    let body = json!({"commit_id": change.head.as_str(), "event": decision.as_str(), "body": body});
    send(&github.api, Method::POST, &path, body, Repeat::Never, &attempted).await
}

/// Adds the labels `add` to a pull request, then removes the labels `remove`, up to the first
/// error. A label that the pull request already has, or does not have, is no error. If nothing is
/// added, a missing pull request is no error either.
pub(super) async fn change_labels(
    github: &GitHub,
    change: &ChangeKey,
    add: &[String],
    remove: &[String],
) -> Result<(), ForgeError> {
    let attempted = format!("label {change}");
    let path =
        repository(&change.project, &format!("/issues/{}/labels", number(change, &attempted)?));
    if !add.is_empty() {
        send(&github.api, Method::POST, &path, json!({"labels": add}), Repeat::Safe, &attempted)
            .await?;
    }
    for label in remove {
        let path = format!("{path}/{}", escape_path(label));
        match github.api.send(Method::DELETE, &path, None, Repeat::Safe, &attempted).await {
            // It does not exist, as requested.
            Ok(_) | Err(ForgeError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends a request with a JSON body and ignores the content of the answer, which must have status
/// 2xx.
async fn send(
    api: &Api,
    method: Method,
    path: &str,
    body: Value,
    repeat: Repeat,
    attempted: &str,
) -> Result<(), ForgeError> {
    api.send(method, path, Some(&body), repeat, attempted).await.map(drop)
}

/// Returns whether Sluice wrote a comment or review: it ends with the marker, and its author is the
/// account `me`. Where that is not known (`None`), as for an application's token, the author must
/// be an application and the text must be `body`; nothing else is ever overwritten. `false` without
/// an author.
fn is_ours(
    user: &Option<shapes::User>,
    there: &Option<String>,
    me: Option<&str>,
    marker: &Marker,
    body: &str,
) -> bool {
    let Some(user) = user else { return false };
    let may_be_ours = match me {
        Some(me) => user.login.eq_ignore_ascii_case(me),
        None => is_application(user) && says(there, body),
    };
    may_be_ours && there.as_deref().and_then(Marker::find).as_ref() == Some(marker)
}

/// Returns whether an account is an application's: no chosen login has brackets.
fn is_application(user: &shapes::User) -> bool {
    user.kind.as_deref() == Some("Bot") && user.login.ends_with("[bot]")
}

/// Returns whether two texts are equal except for line endings and white space at their end;
/// `false` if the first is missing.
fn says(there: &Option<String>, body: &str) -> bool {
    there.as_deref().is_some_and(|there| there.trim_end().lines().eq(body.trim_end().lines()))
}

/// Returns `text`; if it is longer, its beginning and `…`, together `characters_max` characters.
fn cut(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(characters_max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.3: GitHub's times are whole seconds, and its clock may differ; a missing time is no
    /// reason to report twice.
    #[test]
    fn a_status_was_set_for_a_report_unless_it_is_older() {
        let wanted_at = Timestamp(1_795_259_025_900);
        for (created_at, ahead_millis, is_for_it) in [
            (Some("2026-11-21T11:03:46Z"), 0, true),
            (Some("2026-11-21T11:03:45Z"), 0, true),
            (Some("2026-11-21T11:03:44Z"), 0, true),
            (Some("2026-11-21T11:03:43Z"), 0, false),
            (Some("2026-11-20T11:03:45Z"), 0, false),
            // Set a minute before the report was requested, and a minute after it, by a clock that
            // is five minutes ahead.
            (Some("2026-11-21T11:07:45Z"), 300_000, false),
            (Some("2026-11-21T11:09:45Z"), 300_000, true),
            // The same by a clock that is five minutes behind.
            (Some("2026-11-21T10:57:45Z"), -300_000, false),
            (Some("2026-11-21T10:59:45Z"), -300_000, true),
            (None, 300_000, true),
        ] {
            assert_eq!(
                was_set_for(created_at, wanted_at, Ahead(ahead_millis)),
                is_for_it,
                "{created_at:?}"
            );
        }
    }
}
