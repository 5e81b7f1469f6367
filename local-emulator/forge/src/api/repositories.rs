//! Repositories, branches, refs, commits, contents, accounts.

use super::answer::{Answer, Paging, created, ok, page};
use super::guard::Caller;
use crate::engine::{Engine, SetRef};
use crate::error::ApiError;
use crate::git::Edit;
use crate::shapes;
use axum::extract::{OriginalUri, Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use base64::Engine as _;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

type Forge = State<Arc<Engine>>;

/// Answers with a repository; 404 if there is none.
pub(super) async fn repository(
    State(engine): Forge,
    Path((owner, name)): Path<(String, String)>,
) -> Answer {
    ok(shapes::repository(&engine.web, &engine.repository(&format!("{owner}/{name}"))?))
}

#[derive(Deserialize)]
pub(super) struct NewRepository {
    name: String,
    /// Whether it begins with a README; otherwise it is empty until the first push.
    #[serde(default)]
    auto_init: bool,
}

/// Creates a repository owned by the caller, who must have write permission, and answers with it
/// and status 201. An error (422) if the name is invalid or used.
pub(super) async fn create_own(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Json(new): Json<NewRepository>,
) -> Answer {
    let by = caller.writer()?;
    create(&engine, by, by, &new).await
}

/// Creates a repository under any owner and answers with it and status 201. Every owner counts as
/// an organization to which all callers with write permission belong. An error (422) if the name is
/// invalid or used.
pub(super) async fn create_in(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path(owner): Path<String>,
    Json(new): Json<NewRepository>,
) -> Answer {
    create(&engine, &owner, caller.writer()?, &new).await
}

/// Creates the repository `owner/name` in the name of `by`, with a first commit of a README if the
/// request asks for one, otherwise empty. Answers with it and status 201. An error (422) if the
/// name is invalid or used.
async fn create(engine: &Engine, owner: &str, by: &str, new: &NewRepository) -> Answer {
    let readme = [Edit::write("README.md", format!("# {}\n", new.name))];
    let files = if new.auto_init { &readme[..] } else { &[] };
    let repository = engine.create_repository(&format!("{owner}/{}", new.name), files, by).await?;
    created(shapes::repository(&engine.web, &repository))
}

/// Answers with a page of a repository's branches by name, each with its commit and whether it is
/// protected; tags are left out. The branches are as the forge last saw them.
pub(super) async fn branches(
    State(engine): Forge,
    Path((owner, name)): Path<(String, String)>,
    OriginalUri(uri): OriginalUri,
    Query(paging): Query<Paging>,
) -> Answer {
    let repository = engine.repository(&format!("{owner}/{name}"))?;
    let branch = |(name, sha): (&String, &String)| {
        let name = name.strip_prefix("refs/heads/")?;
        let protected = repository.protected.iter().any(|branch| branch == name);
        Some(json!({"name": name, "commit": {"sha": sha}, "protected": protected}))
    };
    page(
        &engine.web,
        &uri,
        paging,
        repository.refs.iter().filter_map(branch).collect(),
        Value::Array,
    )
}

/// Answers with one branch, its newest commit and whether it is protected; 404 if it does not
/// exist. For a path that ends in `/protection`, answers instead whether the branch is locked, even
/// if it does not exist; 404 if it is not protected.
pub(super) async fn branch(
    State(engine): Forge,
    Path((owner, name, branch)): Path<(String, String, String)>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let repository = engine.repository(&full_name)?;
    if let Some(branch) = branch.strip_suffix("/protection") {
        if !repository.protected.iter().any(|protected| protected == branch) {
            return Err(ApiError::refused(404, "Branch not protected"));
        }
        let is_locked = repository.locked.iter().any(|locked| locked == branch);
        return ok(json!({"lock_branch": {"enabled": is_locked}}));
    }
    let commit = engine.git(&full_name).commit(&format!("refs/heads/{branch}")).await?;
    let commit = commit.ok_or_else(|| ApiError::refused(404, "Branch not found"))?;
    let protected = repository.protected.contains(&branch);
    ok(
        json!({"name": branch, "commit": shapes::repository_commit(&commit), "protected": protected}),
    )
}

/// Answers with the commit to which a ref, named without `refs/`, leads; for an annotated tag, that
/// is the tagged commit. 404 if there is no such ref.
pub(super) async fn git_ref(
    State(engine): Forge,
    Path((owner, name, git_ref)): Path<(String, String, String)>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    engine.repository(&full_name)?;
    let git_ref = format!("refs/{git_ref}");
    let sha = engine.git(&full_name).resolve(&git_ref).await?.ok_or_else(ApiError::not_found)?;
    ok(ref_shape(&git_ref, &sha))
}

/// Returns a ref in GitHub's form, always as leading to a commit.
fn ref_shape(name: &str, sha: &str) -> Value {
    json!({"ref": name, "object": {"type": "commit", "sha": sha}})
}

#[derive(Deserialize)]
pub(super) struct NewRef {
    #[serde(rename = "ref")]
    git_ref: String,
    sha: String,
}

/// Creates a branch or tag at a commit and answers with status 201. Only a caller with write
/// permission may do it. An error (422) if it exists already, the commit is unknown, or the name is
/// neither below `refs/heads/` nor `refs/tags/`.
pub(super) async fn create_ref(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name)): Path<(String, String)>,
    Json(new): Json<NewRef>,
) -> Answer {
    let by = caller.writer()?;
    if !new.git_ref.starts_with("refs/heads/") && !new.git_ref.starts_with("refs/tags/") {
        return Err(ApiError::invalid(
            "Reference name must start with 'refs/heads/' or 'refs/tags/'",
        ));
    }
    engine.set_ref(&format!("{owner}/{name}"), &new.git_ref, &new.sha, SetRef::Create, by).await?;
    created(ref_shape(&new.git_ref, &new.sha))
}

#[derive(Deserialize)]
pub(super) struct MovedRef {
    sha: String,
    #[serde(default)]
    force: bool,
}

/// Moves an existing ref, named without `refs/`, to a commit and answers with it. Only a caller
/// with write permission may do it. An error (422) if the ref or the commit does not exist, or the
/// move is not a fast-forward and the request does not set `force`.
pub(super) async fn update_ref(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, git_ref)): Path<(String, String, String)>,
    Json(moved): Json<MovedRef>,
) -> Answer {
    let by = caller.writer()?;
    let git_ref = format!("refs/{git_ref}");
    let how = if moved.force { SetRef::Force } else { SetRef::Forward };
    engine.set_ref(&format!("{owner}/{name}"), &git_ref, &moved.sha, how, by).await?;
    ok(ref_shape(&git_ref, &moved.sha))
}

/// Deletes a ref, named without `refs/`, and answers with status 204. Open pull requests from a
/// deleted branch are closed. Only a caller with write permission may do it. An error (422) if the
/// ref does not exist.
pub(super) async fn delete_ref(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, git_ref)): Path<(String, String, String)>,
) -> Answer {
    engine
        .delete_ref(&format!("{owner}/{name}"), &format!("refs/{git_ref}"), caller.writer()?)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Answers with a commit in the form of GitHub's git API (tree, author, committer, message,
/// parents). `sha` may be any revision that git resolves. 404 if there is none.
pub(super) async fn git_commit(
    State(engine): Forge,
    Path((owner, name, sha)): Path<(String, String, String)>,
) -> Answer {
    ok(shapes::git_commit(&find_commit(&engine, &format!("{owner}/{name}"), &sha).await?))
}

/// Answers with a commit in the form of GitHub's repository API, which nests git's form; without
/// files. `sha` may be any revision that git resolves. 404 if there is none.
pub(super) async fn commit(
    State(engine): Forge,
    Path((owner, name, sha)): Path<(String, String, String)>,
) -> Answer {
    ok(shapes::repository_commit(&find_commit(&engine, &format!("{owner}/{name}"), &sha).await?))
}

/// Answers how `head` stands to `base` in `base...head`: `identical`, `ahead`, `behind` or
/// `diverged`; and with the commit of `base`. Lists neither commits nor files. Each is a branch,
/// otherwise any revision; 404 if one is missing.
pub(super) async fn compare(
    State(engine): Forge,
    Path((owner, name, range)): Path<(String, String, String)>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    engine.repository(&full_name)?;
    let git = engine.git(&full_name);
    let (base, head) = range.split_once("...").ok_or_else(ApiError::not_found)?;
    let mut found = Vec::with_capacity(2);
    for revision in [base, head] {
        let branch = git.resolve(&format!("refs/heads/{revision}")).await?;
        let commit = match branch {
            Some(commit) => Some(commit),
            None => git.resolve(revision).await?,
        };
        found.push(commit.ok_or_else(ApiError::not_found)?);
    }
    let (base, head) = (&found[0], &found[1]);
    let status = if base == head {
        "identical"
    } else if git.is_ancestor(base, head).await? {
        "ahead"
    } else if git.is_ancestor(head, base).await? {
        "behind"
    } else {
        "diverged"
    };
    ok(json!({"status": status, "base_commit": {"sha": base}}))
}

/// Returns the commit that an id, ref or other revision of git names. An error with status 404 if
/// the repository or commit does not exist.
async fn find_commit(
    engine: &Engine,
    full_name: &str,
    sha: &str,
) -> Result<crate::git::Commit, ApiError> {
    engine.repository(full_name)?;
    engine.git(full_name).commit(sha).await?.ok_or_else(ApiError::not_found)
}

#[derive(Deserialize)]
pub(super) struct At {
    #[serde(rename = "ref")]
    revision: Option<String>,
}

/// Answers with a file (in Base64) or the list of a directory's entries at a revision, by default
/// on the default branch. Everything in a directory that is not a directory is shown as a file. 404
/// if there is no such path or revision.
pub(super) async fn contents(
    State(engine): Forge,
    Path((owner, name, path)): Path<(String, String, String)>,
    Query(at): Query<At>,
) -> Answer {
    let full_name = format!("{owner}/{name}");
    let repository = engine.repository(&full_name)?;
    let revision = at.revision.unwrap_or(repository.default_branch);
    let git = engine.git(&full_name);
    if let Some(bytes) = git.file(&revision, &path).await? {
        let content = base64::engine::general_purpose::STANDARD.encode(&bytes);
        let short = path.rsplit('/').next().unwrap_or(&path);
        let sha = git.blob(&revision, &path).await?;
        return ok(json!({
            "type": "file", "name": short, "path": path, "sha": sha, "size": bytes.len(), "encoding": "base64",
            "content": content,
        }));
    }
    let entries = git.folder(&revision, path.trim_end_matches('/')).await?;
    if entries.is_empty() {
        return Err(ApiError::not_found());
    }
    let shape = |(kind, sha, name): (String, String, String)| {
        let kind = if kind == "tree" { "dir" } else { "file" };
        json!({"type": kind, "name": name, "path": format!("{}/{name}", path.trim_end_matches('/')), "sha": sha})
    };
    ok(entries.into_iter().map(shape).collect())
}

/// What a file is to hold, as GitHub's "create or update file contents" takes it.
#[derive(Deserialize)]
pub(super) struct NewContent {
    message: String,
    content: String,
    sha: Option<String>,
    branch: Option<String>,
}

/// Writes one text file as a commit on a branch that must exist, by default the default branch;
/// answers with file and commit, with status 201 if the file is new. `sha` must be the id of the
/// present content: without it an existing file is refused (422), with another one the answer is
/// 409; for a new file it is ignored. Only a caller with write permission may do it. Content that
/// is not UTF-8 is refused.
pub(super) async fn write(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, path)): Path<(String, String, String)>,
    Json(new): Json<NewContent>,
) -> Answer {
    let by = caller.writer()?;
    let full_name = format!("{owner}/{name}");
    let branch = new.branch.unwrap_or(engine.repository(&full_name)?.default_branch);
    let git = engine.git(&full_name);
    let at = format!("refs/heads/{branch}");
    if git.resolve(&at).await?.is_none() {
        return Err(ApiError::refused(404, format!("Branch {branch} not found")));
    }
    let held = git.blob(&at, &path).await?;
    match (&held, &new.sha) {
        (Some(_), None) => {
            return Err(ApiError::invalid("Invalid request.\n\n\"sha\" wasn't supplied."));
        }
        (Some(held), Some(named)) if held != named => {
            return Err(ApiError::refused(409, format!("{path} does not match {named}")));
        }
        _ => {}
    }
    // People send it in lines.
    let content: String = new.content.split_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(content);
    let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| ApiError::invalid("content is not valid Base64 of a text"))?;
    let edit = crate::git::Edit::write(path.as_str(), text);
    let sha = engine.commit(&full_name, &branch, &new.message, &[edit], by).await?;
    let commit = find_commit(&engine, &full_name, &sha).await?;
    let shape = json!({
        "content": {"path": path, "sha": git.blob(&sha, &path).await?},
        "commit": shapes::git_commit(&commit),
    });
    if held.is_some() { ok(shape) } else { created(shape) }
}

/// Answers with the permission of an account, which is the same in every repository. Only a caller
/// with write permission may ask. 404 if the repository or the account does not exist.
pub(super) async fn permission(
    State(engine): Forge,
    Extension(caller): Extension<Caller>,
    Path((owner, name, login)): Path<(String, String, String)>,
) -> Answer {
    caller.writer()?;
    engine.repository(&format!("{owner}/{name}"))?;
    let account = engine.account(&login).ok_or_else(ApiError::not_found)?;
    ok(
        json!({"permission": account.permission.as_str(), "user": shapes::user(&engine.web, &login)}),
    )
}

/// Answers with the caller's account. 401 for an anonymous caller; 403 for a GitHub App (a login
/// that ends in `[bot]`).
pub(super) async fn own_user(State(engine): Forge, Extension(caller): Extension<Caller>) -> Answer {
    let login = caller.required_login()?;
    if shapes::is_application(login) {
        return Err(ApiError::refused(403, "Resource not accessible by integration"));
    }
    ok(shapes::user(&engine.web, login))
}

/// Answers with an account by its login; 404 if it is unknown.
pub(super) async fn user(State(engine): Forge, Path(login): Path<String>) -> Answer {
    let account = engine.account(&login).ok_or_else(ApiError::not_found)?;
    ok(shapes::user(&engine.web, &account.login))
}
