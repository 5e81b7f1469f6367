//! Statuses, check runs and comments.

use super::answer::{Answer, Paging, created, ok, page};
use super::guard::Caller;
use crate::engine::{CheckRunFields, Engine, NewStatus, statuses_of};
use crate::error::ApiError;
use crate::model::{CheckRun, Comment, Status};
use crate::shapes;
use axum::extract::{OriginalUri, Path, Query, State};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

type Forge = State<Arc<Engine>>;
type Commitish = Path<(String, String, String)>;
type Numbered = Path<(String, String, u64)>;

#[derive(Deserialize)]
pub(super) struct StatusWish {
    state: String,
    #[serde(default)]
    context: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    target_url: Option<String>,
}

/// Stores a status on a commit, in the context `default` unless the request names one, and answers
/// with status 201. Earlier statuses stay stored. Only a caller with write permission may do it. An
/// error for an unknown commit or state, or a description over 140 characters.
pub(super) async fn set_status(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, sha)): Commitish,
    Json(wish): Json<StatusWish>,
) -> Answer {
    let by = caller.writer()?;
    let status = NewStatus {
        sha,
        context: wish.context.unwrap_or_else(|| "default".to_owned()),
        state: wish.state,
        description: wish.description,
        target_url: wish.target_url,
    };
    created(shapes::status(
        &engine.web,
        &engine.set_status(&format!("{owner}/{name}"), status, by).await?,
    ))
}

/// Returns the full id of the commit that `revision` names, and all its statuses, newest first,
/// including those that newer ones replaced. An error with status 404 if there is no such
/// repository or commit.
async fn statuses_at(
    engine: &Engine,
    full_name: &str,
    revision: &str,
) -> Result<(String, Vec<Status>), ApiError> {
    engine.repository(full_name)?;
    let sha = engine.git(full_name).resolve(revision).await?.ok_or_else(ApiError::not_found)?;
    let mut statuses: Vec<Status> =
        engine.store.within(|access| access.list(&statuses_of(full_name, &sha)))?;
    statuses.reverse();
    Ok((sha, statuses))
}

/// Answers with a page of all statuses of a commit, newest first, including those that newer ones
/// replaced.
pub(super) async fn statuses(
    State(engine): Forge,
    Path((owner, name, sha)): Commitish,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    let (_, statuses) = statuses_at(&engine, &format!("{owner}/{name}"), &sha).await?;
    let shapes = statuses.iter().map(|status| shapes::status(&engine.web, status)).collect();
    page(&engine.web, &uri, paging, shapes, Value::Array)
}

/// Answers with the newest status of each context on a commit, all on one page, and the combined
/// state. The state is `failure` if any of them is a failure or error, otherwise `pending` if one
/// is pending or there are none, otherwise `success`.
pub(super) async fn combined_status(
    State(engine): Forge,
    Path((owner, name, sha)): Commitish,
) -> Answer {
    let (sha, statuses) = statuses_at(&engine, &format!("{owner}/{name}"), &sha).await?;
    let mut newest: BTreeMap<&str, &Status> = BTreeMap::new();
    for status in &statuses {
        newest.entry(&status.context).or_insert(status);
    }
    let is =
        |states: &[&str]| newest.values().any(|status| states.contains(&status.state.as_str()));
    let state = if is(&["failure", "error"]) {
        "failure"
    } else if newest.is_empty() || is(&["pending"]) {
        "pending"
    } else {
        "success"
    };
    let shapes: Vec<Value> =
        newest.values().map(|status| shapes::status(&engine.web, status)).collect();
    ok(json!({"sha": sha, "state": state, "total_count": shapes.len(), "statuses": shapes}))
}

#[derive(Deserialize)]
pub(super) struct CheckRunWish {
    head_sha: Option<String>,
    name: Option<String>,
    status: Option<String>,
    conclusion: Option<String>,
    external_id: Option<String>,
    details_url: Option<String>,
    output: Option<Output>,
}

#[derive(Deserialize)]
struct Output {
    title: Option<String>,
    summary: Option<String>,
}

impl CheckRunWish {
    /// Returns the fields of a check run that the request sets; its commit is not among them.
    fn fields(self) -> CheckRunFields {
        let Self { name, status, conclusion, external_id, details_url, output, .. } = self;
        let (title, summary) = output.map_or((None, None), |output| (output.title, output.summary));
        CheckRunFields { name, status, conclusion, external_id, details_url, title, summary }
    }
}

/// Creates a check run on a commit and answers with it and status 201. It belongs to the caller,
/// who must have write permission. An error (422) without a commit or name, for an unknown commit,
/// or if its status is invalid or `completed` without conclusion.
pub(super) async fn create_check_run(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name)): Path<(String, String)>,
    Json(mut wish): Json<CheckRunWish>,
) -> Answer {
    let by = caller.writer()?;
    let sha = wish
        .head_sha
        .take()
        .ok_or_else(|| ApiError::invalid("Invalid request: \"head_sha\" wasn't supplied."))?;
    created(shapes::check_run(
        &engine.create_check_run(&format!("{owner}/{name}"), &sha, wish.fields(), by).await?,
    ))
}

/// Changes the fields of a check run that the request names and answers with it; the commit stays.
/// Only the account that created it may do so (otherwise 403), with write permission. A conclusion
/// also completes it.
pub(super) async fn update_check_run(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, id)): Numbered,
    Json(wish): Json<CheckRunWish>,
) -> Answer {
    let by = caller.writer()?;
    ok(shapes::check_run(&engine.update_check_run(
        &format!("{owner}/{name}"),
        id,
        wish.fields(),
        by,
    )?))
}

/// Answers with one check run by its number; 404 if there is none.
pub(super) async fn check_run(State(engine): Forge, Path((owner, name, id)): Numbered) -> Answer {
    let run: Option<CheckRun> =
        engine.store.within(|access| access.get(&format!("{owner}/{name}"), id))?;
    ok(shapes::check_run(&run.ok_or_else(ApiError::not_found)?))
}

/// Answers with a page of all check runs of a commit, oldest first, of every application; also
/// older ones of the same name. `total_count` counts them on all pages. 404 if there is no such
/// commit.
pub(super) async fn check_runs(
    State(engine): Forge,
    Path((owner, name, sha)): Commitish,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    engine.repository(&full_name)?;
    let sha = engine.git(&full_name).resolve(&sha).await?.ok_or_else(ApiError::not_found)?;
    let mut runs: Vec<CheckRun> = engine.store.within(|access| access.list(&full_name))?;
    runs.retain(|run| run.sha == sha);
    let total = runs.len();
    let shapes = runs.iter().map(shapes::check_run).collect();
    page(
        &engine.web,
        &uri,
        paging,
        shapes,
        |runs| json!({"total_count": total, "check_runs": runs}),
    )
}

/// Answers with a page of a pull request's comments, oldest first; reviews and their comments on
/// lines are not among them.
pub(super) async fn comments(
    State(engine): Forge,
    Path((owner, name, number)): Numbered,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    engine.pull(&full_name, number)?;
    let all: Vec<Comment> = engine.store.within(|access| access.list(&full_name))?;
    let on_this = all.iter().filter(|comment| comment.number == number);
    let shapes = on_this.map(|comment| shapes::comment(&engine.web, &full_name, comment)).collect();
    page(&engine.web, &uri, paging, shapes, Value::Array)
}

#[derive(Deserialize)]
pub(super) struct Text {
    body: String,
}

const COMMENT_MAX_CHARACTERS: usize = 65_536;

impl Text {
    /// Returns the text. An error (422) if it is blank or longer than 65,536 characters.
    fn checked(self) -> Result<String, ApiError> {
        if self.body.trim().is_empty() {
            return Err(ApiError::invalid("Validation Failed: Body cannot be blank"));
        }
        if self.body.chars().count() > COMMENT_MAX_CHARACTERS {
            return Err(ApiError::invalid(
                "Validation Failed: Body is too long (maximum is 65536 characters)",
            ));
        }
        Ok(self.body)
    }
}

/// Adds a comment to a pull request and answers with it and status 201. Any caller with an account
/// may do it. An error (422) if the text is blank or longer than 65,536 characters.
pub(super) async fn comment(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, number)): Numbered,
    Json(text): Json<Text>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let comment = engine.comment(&full_name, number, &text.checked()?, caller.required_login()?)?;
    created(shapes::comment(&engine.web, &full_name, &comment))
}

/// Answers with one comment on a pull request by its number; 404 if there is none.
pub(super) async fn one_comment(State(engine): Forge, Path((owner, name, id)): Numbered) -> Answer {
    let full_name = format!("{owner}/{name}");
    let comment: Option<Comment> = engine.store.within(|access| access.get(&full_name, id))?;
    ok(shapes::comment(&engine.web, &full_name, &comment.ok_or_else(ApiError::not_found)?))
}

/// Changes the text of a comment and answers with it. Only its author may do so (otherwise 403). An
/// error (422) if the text is blank or longer than 65,536 characters.
pub(super) async fn edit_comment(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, id)): Numbered,
    Json(text): Json<Text>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let comment =
        engine.edit_comment(&full_name, id, &text.checked()?, caller.required_login()?)?;
    ok(shapes::comment(&engine.web, &full_name, &comment))
}
