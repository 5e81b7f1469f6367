//! Pull requests with their files, commits, reviews, labels, and their merge.

use super::answer::{Answer, Paging, created, ok, page};
use super::guard::Caller;
use crate::engine::{Edits, Engine, Method, NewPull};
use crate::error::ApiError;
use crate::faults::ForgeFault;
use crate::model::{Life, LineComment, Pull, Review};
use crate::shapes;
use axum::extract::{OriginalUri, Path, Query, State};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

type Forge = State<Arc<Engine>>;
type Here = Path<(String, String)>;
type Numbered = Path<(String, String, u64)>;

#[derive(Deserialize)]
pub(super) struct Filter {
    state: Option<String>,
    base: Option<String>,
    head: Option<String>,
    direction: Option<String>,
}

/// Answers with a page of a repository's pull requests that match the filter, without mergeability.
/// Without `state`, or with an unknown one, only open ones match; `head` may have the form
/// `owner:branch`, whose owner is ignored. The newest come first unless `direction` is `asc`.
pub(super) async fn list(
    State(engine): Forge,
    Path((owner, name)): Here,
    OriginalUri(uri): OriginalUri,
    Query(filter): Query<Filter>,
    Query(paging): Query<Paging>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let repository = engine.repository(&full_name)?;
    let mut pulls: Vec<Pull> = engine.store.within(|access| access.list(&full_name))?;
    let head =
        filter.head.as_deref().map(|head| head.split_once(':').map_or(head, |(_, branch)| branch));
    pulls.retain(|pull| match filter.state.as_deref() {
        Some("all") => true,
        Some("closed") => !pull.is_open(),
        _ => pull.is_open(),
    });
    pulls.retain(|pull| {
        filter.base.as_ref().is_none_or(|base| *base == pull.base)
            && head.is_none_or(|head| head == pull.head)
    });
    if filter.direction.as_deref() != Some("asc") {
        pulls.reverse();
    }
    let shapes = pulls.iter().map(|pull| shapes::pull(&engine.web, &repository, pull)).collect();
    page(&engine.web, &uri, paging, shapes, Value::Array)
}

/// Answers with a page of the pull requests, open or not, whose present head is exactly the commit
/// with this full id, the oldest first; empty for an unknown commit. GitHub also lists those that
/// contain it elsewhere; callers compare the heads.
pub(super) async fn of_commit(
    State(engine): Forge,
    Path((owner, name, sha)): Path<(String, String, String)>,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let repository = engine.repository(&full_name)?;
    let mut pulls: Vec<Pull> = engine.store.within(|access| access.list(&full_name))?;
    pulls.retain(|pull| pull.head_sha == sha);
    let shapes = pulls.iter().map(|pull| shapes::pull(&engine.web, &repository, pull)).collect();
    page(&engine.web, &uri, paging, shapes, Value::Array)
}

#[derive(Deserialize)]
pub(super) struct Proposal {
    title: String,
    #[serde(default)]
    body: Option<String>,
    head: String,
    base: String,
    #[serde(default)]
    draft: bool,
}

/// Opens a pull request and answers with it and status 201. Any caller with an account may do it.
/// An error (422) if head or base is no branch, the base contains the head, or a pull request is
/// open for the two branches already.
pub(super) async fn create(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name)): Here,
    Json(new): Json<Proposal>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let Proposal { title, body, head, base, draft } = new;
    let new = NewPull { title, body: body.unwrap_or_default(), head, base, draft };
    let pull = engine.open_pull(&full_name, new, caller.required_login()?).await?;
    created(shapes::pull(&engine.web, &engine.repository(&full_name)?, &pull))
}

/// Answers with one pull request, its mergeability and its numbers of files and of commits (at most
/// 250). If the pull request is open and its head or base moved since its last test merge, another
/// test merge is made and stored first. Mergeability is unknown if the pull request is not open, or
/// the fault for that is switched on. 404 if there is no such pull request, or it is not merged and
/// its base branch is missing.
pub(super) async fn read(State(engine): Forge, Path((owner, name, number)): Numbered) -> Answer {
    let full_name = format!("{owner}/{name}");
    let repository = engine.repository(&full_name)?;
    let pull = engine.try_merge(&full_name, number).await?;
    let mut shape = shapes::pull(&engine.web, &repository, &pull);
    let unknown = |fault: &ForgeFault| *fault == ForgeFault::MergeabilityUnknown;
    let is_unknown =
        !engine.faults.take(&full_name, "GET", &format!("/pulls/{number}"), unknown).is_empty();
    if let (true, false, Some(tried)) = (pull.is_open(), is_unknown, &pull.tried) {
        let mergeable = tried.merge.is_some();
        shape["mergeable"] = mergeable.into();
        shape["mergeable_state"] = match (mergeable, pull.draft) {
            (false, _) => "dirty".into(),
            (true, true) => "draft".into(),
            (true, false) => "clean".into(),
        };
    }
    let base = base_of(&engine, &full_name, &pull).await?;
    let git = engine.git(&full_name);
    shape["changed_files"] = git.files_between(&base, &pull.head_sha).await?.len().into();
    shape["commits"] = git.commits_between(&base, &pull.head_sha).await?.len().into();
    ok(shape)
}

/// Returns the commit that a pull request is compared with: the present tip of its base branch, or
/// that branch's tip before the merge if it is merged. An error with status 404 if the branch is
/// missing.
async fn base_of(engine: &Engine, full_name: &str, pull: &Pull) -> Result<String, ApiError> {
    if let Life::Merged { base_before, .. } = &pull.life {
        return Ok(base_before.clone());
    }
    let tip = engine.git(full_name).resolve(&format!("refs/heads/{}", pull.base)).await?;
    tip.ok_or_else(ApiError::not_found)
}

/// Returns a pull request and the commit that it is compared with: the tip of its base branch, or
/// that tip before the merge if it is merged. An error with status 404 if the pull request or the
/// branch is missing.
async fn compared(
    engine: &Engine,
    full_name: &str,
    number: u64,
) -> Result<(Pull, String), ApiError> {
    let pull = engine.pull(full_name, number)?;
    let base = base_of(engine, full_name, &pull).await?;
    Ok((pull, base))
}

#[derive(Deserialize)]
pub(super) struct Changes {
    title: Option<String>,
    body: Option<String>,
    base: Option<String>,
    state: Option<String>,
}

/// Changes title, description, base branch or state of a pull request, as far as the request names
/// them, and answers with the result. Any caller with an account may do it. An error (422) if its
/// base, even an unchanged one, is no branch, or if a merged pull request, or one whose head branch
/// was deleted, is to be reopened.
pub(super) async fn edit(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, number)): Numbered,
    Json(changes): Json<Changes>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let Changes { title, body, base, state } = changes;
    let pull = engine
        .edit_pull(&full_name, number, Edits { title, body, base, state }, caller.required_login()?)
        .await?;
    ok(shapes::pull(&engine.web, &engine.repository(&full_name)?, &pull))
}

/// Answers with a page of the files that differ between a pull request's head and the commit where
/// it left its base branch. For a merged one, the base is the branch before the merge.
pub(super) async fn files(
    State(engine): Forge,
    Path((owner, name, number)): Numbered,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let (pull, base) = compared(&engine, &full_name, number).await?;
    let files = engine.git(&full_name).files_between(&base, &pull.head_sha).await?;
    page(&engine.web, &uri, paging, files.iter().map(shapes::file).collect(), Value::Array)
}

/// Answers with a page of a pull request's commits that its base branch (before the merge, if it is
/// merged) lacks, the oldest first. Of more than 250, only the newest 250 are listed.
pub(super) async fn commits(
    State(engine): Forge,
    Path((owner, name, number)): Numbered,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let (pull, base) = compared(&engine, &full_name, number).await?;
    let commits = engine.git(&full_name).commits_between(&base, &pull.head_sha).await?;
    page(
        &engine.web,
        &uri,
        paging,
        commits.iter().map(shapes::repository_commit).collect(),
        Value::Array,
    )
}

#[derive(Deserialize)]
pub(super) struct MergeWish {
    sha: Option<String>,
    merge_method: Option<String>,
    commit_title: Option<String>,
    commit_message: Option<String>,
}

/// Merges a pull request by a merge commit, squash or rebase, and answers with the commit at which
/// the base branch then is. Only a caller with write permission may do it. Refused (405) if the
/// pull request is not open, is a draft or conflicts, its base branch is missing or moved unseen,
/// or a fault says so; (409) if its head is not the `sha` of the request, without which any head is
/// merged; (422) if the method is unknown. Without `commit_title` a message is composed, and
/// `commit_message` is ignored.
pub(super) async fn merge(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, number)): Numbered,
    Json(wish): Json<MergeWish>,
) -> Answer {
    let by = caller.writer()?;
    let method = match wish.merge_method.as_deref() {
        None | Some("merge") => Method::Merge,
        Some("squash") => Method::Squash,
        Some("rebase") => Method::Rebase,
        Some(_) => {
            return Err(ApiError::invalid(
                "Invalid request: merge_method is not one of merge, squash, rebase",
            ));
        }
    };
    let message =
        wish.commit_title.map(|title| match wish.commit_message.filter(|body| !body.is_empty()) {
            Some(body) => format!("{title}\n\n{body}"),
            None => title,
        });
    let sha = engine
        .merge(&format!("{owner}/{name}"), number, wish.sha.as_deref(), method, message, by)
        .await?;
    ok(json!({"sha": sha, "merged": true, "message": "Pull Request successfully merged"}))
}

/// Returns the reviews of a pull request, oldest first, including dismissed ones. An error with
/// status 404 if there is no such pull request.
fn reviews_of(engine: &Engine, full_name: &str, number: u64) -> Result<Vec<Review>, ApiError> {
    engine.pull(full_name, number)?;
    let mut reviews: Vec<Review> = engine.store.within(|access| access.list(full_name))?;
    reviews.retain(|review| review.number == number);
    Ok(reviews)
}

/// Answers with a page of a pull request's reviews, oldest first, including dismissed ones; without
/// their comments on lines.
pub(super) async fn reviews(
    State(engine): Forge,
    Path((owner, name, number)): Numbered,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let reviews = reviews_of(&engine, &full_name, number)?;
    let shapes =
        reviews.iter().map(|review| shapes::review(&engine.web, &full_name, review)).collect();
    page(&engine.web, &uri, paging, shapes, Value::Array)
}

/// Answers with a page of the comments on lines in all reviews of a pull request, in the order of
/// the reviews.
pub(super) async fn line_comments(
    State(engine): Forge,
    Path((owner, name, number)): Numbered,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    let reviews = reviews_of(&engine, &format!("{owner}/{name}"), number)?;
    let lines =
        reviews.iter().flat_map(|review| review.lines.iter().map(move |line| (review, line)));
    let shape = |(review, line): (&Review, &LineComment)| {
        let user = shapes::user(&engine.web, &review.author);
        json!({
            "path": line.path, "line": line.line, "start_line": line.start_line, "side": "RIGHT", "body": line.body, "user": user,
            "commit_id": review.commit, "pull_request_review_id": review.id,
        })
    };
    page(&engine.web, &uri, paging, lines.map(shape).collect(), Value::Array)
}

#[derive(Deserialize)]
pub(super) struct ReviewBody {
    event: String,
    #[serde(default)]
    body: Option<String>,
    commit_id: Option<String>,
    #[serde(default)]
    comments: Vec<LineComment>,
}

/// Submits a review with its comments on lines and answers with it, without those comments. It is
/// about the pull request's head unless the request names a commit. Any caller with an account may
/// review, the author only with a comment. An error (422) if `event` is unknown, a comment is on a
/// file that the reviewed commit does not change, or its first line is not before its last one; 404
/// if the base branch is missing and the pull request is not merged.
pub(super) async fn review(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, number)): Numbered,
    Json(review_body): Json<ReviewBody>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let by = caller.required_login()?;
    let (pull, base) = compared(&engine, &full_name, number).await?;
    let commit = review_body.commit_id.unwrap_or(pull.head_sha);
    let files = engine.git(&full_name).files_between(&base, &commit).await?;
    if review_body.comments.iter().any(|line| !files.iter().any(|file| file.path == line.path)) {
        return Err(ApiError::invalid("Unprocessable Entity: Path could not be resolved"));
    }
    if review_body
        .comments
        .iter()
        .any(|comment| comment.start_line.is_some_and(|start| start >= comment.line))
    {
        return Err(ApiError::invalid(
            "Unprocessable Entity: start_line must precede the end line",
        ));
    }
    let review = crate::engine::NewReview {
        number,
        event: review_body.event,
        body: review_body.body.unwrap_or_default(),
        commit: Some(commit),
        lines: review_body.comments,
    };
    ok(shapes::review(&engine.web, &full_name, &engine.review(&full_name, review, by)?))
}

/// Dismisses a review of a pull request, also one by another account, and answers with it. Only a
/// caller with write permission may do it. 404 if the pull request has no such review; 422 if it
/// neither approves nor requests changes, or is dismissed already.
pub(super) async fn dismiss(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, number, id)): Path<(String, String, u64, u64)>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let review = engine.dismiss_review(&full_name, number, id, caller.writer()?)?;
    ok(shapes::review(&engine.web, &full_name, &review))
}

/// Returns labels in GitHub's form.
fn label_shapes(labels: &[String]) -> Value {
    labels.iter().map(|label| shapes::label(label)).collect()
}

/// Answers with all labels of a pull request, on one page, in the order in which they were added.
pub(super) async fn labels(State(engine): Forge, Path((owner, name, number)): Numbered) -> Answer {
    ok(label_shapes(&engine.pull(&format!("{owner}/{name}"), number)?.labels))
}

#[derive(Deserialize)]
pub(super) struct Labels {
    labels: Vec<String>,
}

/// Adds the labels that a pull request does not have yet and answers with all that it then has.
/// Only a caller with write permission may do it.
pub(super) async fn add_labels(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, number)): Numbered,
    Json(wish): Json<Labels>,
) -> Answer {
    let by = caller.writer()?;
    ok(label_shapes(
        &engine.label(&format!("{owner}/{name}"), number, &wish.labels, &[], by).await?,
    ))
}

/// Gives a pull request exactly the labels of the request and answers with them. Labels that it
/// already has keep their place and cause no event. Only a caller with write permission may do it.
pub(super) async fn set_labels(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, number)): Numbered,
    Json(wish): Json<Labels>,
) -> Answer {
    let by = caller.writer()?;
    let full_name = format!("{owner}/{name}");
    let mut off = engine.pull(&full_name, number)?.labels;
    off.retain(|label| !wish.labels.contains(label));
    ok(label_shapes(&engine.label(&full_name, number, &wish.labels, &off, by).await?))
}

/// Removes a label from a pull request and answers with the remaining ones. 404 if the pull request
/// does not have it. Only a caller with write permission may do it.
pub(super) async fn remove_label(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, number, label)): Path<(String, String, u64, String)>,
) -> Answer {
    let by = caller.writer()?;
    let full_name = format!("{owner}/{name}");
    if !engine.pull(&full_name, number)?.labels.contains(&label) {
        return Err(ApiError::refused(404, "Label does not exist"));
    }
    ok(label_shapes(&engine.label(&full_name, number, &[], &[label], by).await?))
}
