//! GitHub's JSON for what the forge remembers.

use crate::git::{Commit, FileChange};
use crate::model::{
    CheckRun, Comment, Delivery, Hook, Life, Outcome, Pull, Repository, Review, Status,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Returns an account in GitHub's form, whether it exists or not. Its number is derived from the
/// login. A login that ends in `[bot]` gives type `Bot`.
pub(crate) fn user(web: &str, login: &str) -> Value {
    let digest = Sha256::digest(login.as_bytes());
    let id = u32::from_be_bytes([0, digest[0], digest[1], digest[2]]);
    let kind = if is_application(login) { "Bot" } else { "User" };
    json!({"login": login, "id": id, "type": kind, "html_url": format!("{web}/{login}"), "site_admin": false})
}

/// Returns whether an account belongs to a GitHub App: whether its login ends in `[bot]`.
pub(crate) fn is_application(login: &str) -> bool {
    login.ends_with("[bot]")
}

/// Returns a repository in GitHub's form, without permissions. `web` is the base of its addresses.
pub(crate) fn repository(web: &str, repository: &Repository) -> Value {
    let full_name = &repository.full_name;
    let (owner, name) = full_name.split_once('/').unwrap_or(("", full_name));
    json!({
        "id": repository.id,
        "name": name,
        "full_name": full_name,
        "private": false,
        "owner": user(web, owner),
        "html_url": format!("{web}/{full_name}"),
        "url": format!("{web}/api/v3/repos/{full_name}"),
        "clone_url": format!("{web}/{full_name}.git"),
        "default_branch": repository.default_branch,
        "archived": false,
        "disabled": false,
        "created_at": repository.created_at,
        "allow_merge_commit": true,
        "allow_squash_merge": true,
        "allow_rebase_merge": true,
    })
}

/// Returns a pull request in GitHub's form, with unknown mergeability. The base's commit is the tip
/// last seen (empty if the branch is missing), or that before the merge if it is merged.
/// `merge_commit_sha` is the merge, or the newest test merge while it is open. An empty description
/// is null.
pub(crate) fn pull(web: &str, repo: &Repository, pull: &Pull) -> Value {
    let (number, full_name) = (pull.number, &repo.full_name);
    let api = format!("{web}/api/v3/repos/{full_name}");
    let owner = full_name.split('/').next().unwrap_or_default();
    let side = |branch: &str, sha: &str| {
        json!({
            "label": format!("{owner}:{branch}"), "ref": branch, "sha": sha,
            "user": user(web, owner), "repo": repository(web, repo),
        })
    };
    let tip = repo.refs.get(&format!("refs/heads/{}", pull.base)).map_or("", String::as_str);
    let (closed_at, merged_at, merged_by, merge_commit) = match &pull.life {
        Life::Open => (None, None, None, pull.tried.as_ref().and_then(|tried| tried.merge.clone())),
        Life::Closed { at } => (Some(at), None, None, None),
        Life::Merged { at, by, commit, .. } => {
            (Some(at), Some(at), Some(user(web, by)), Some(commit.clone()))
        }
    };
    let base_sha = match &pull.life {
        Life::Merged { base_before, .. } => base_before.as_str(),
        _ => tip,
    };
    let labels: Vec<Value> = pull.labels.iter().map(|name| label(name)).collect();
    json!({
        "id": pull.id,
        "number": number,
        "url": format!("{api}/pulls/{number}"),
        "html_url": format!("{web}/{full_name}/pull/{number}"),
        "issue_url": format!("{api}/issues/{number}"),
        "state": if pull.is_open() { "open" } else { "closed" },
        "locked": false,
        "title": pull.title,
        "body": if pull.body.is_empty() { Value::Null } else { pull.body.as_str().into() },
        "user": user(web, &pull.author),
        "labels": labels,
        "draft": pull.draft,
        "head": side(&pull.head, &pull.head_sha),
        "base": side(&pull.base, base_sha),
        "created_at": pull.created_at,
        "updated_at": pull.updated_at,
        "closed_at": closed_at,
        "merged_at": merged_at,
        "merged": merged_at.is_some(),
        "merged_by": merged_by,
        "merge_commit_sha": merge_commit,
        "mergeable": null,
        "mergeable_state": "unknown",
    })
}

/// Returns a label in GitHub's form; all have one color.
pub(crate) fn label(name: &str) -> Value {
    json!({"name": name, "color": "ededed", "default": false})
}

/// Returns a pull request in the short form of GitHub's issues, without description and labels.
pub(crate) fn issue(web: &str, full_name: &str, pull: &Pull) -> Value {
    let number = pull.number;
    json!({
        "number": number,
        "title": pull.title,
        "state": if pull.is_open() { "open" } else { "closed" },
        "user": user(web, &pull.author),
        "html_url": format!("{web}/{full_name}/pull/{number}"),
        "pull_request": {"url": format!("{web}/api/v3/repos/{full_name}/pulls/{number}")},
    })
}

/// Returns a comment in GitHub's form.
pub(crate) fn comment(web: &str, full_name: &str, comment: &Comment) -> Value {
    json!({
        "id": comment.id,
        "url": format!("{web}/api/v3/repos/{full_name}/issues/comments/{}", comment.id),
        "html_url": format!("{web}/{full_name}/pull/{}#issuecomment-{}", comment.number, comment.id),
        "body": comment.body,
        "user": user(web, &comment.author),
        "created_at": comment.created_at,
        "updated_at": comment.updated_at,
    })
}

/// Returns a review in GitHub's form, without its comments on lines; with the author's address if
/// that is public. The state is in capitals.
pub(crate) fn review(web: &str, full_name: &str, review: &Review) -> Value {
    let mut author = user(web, &review.author);
    if let Some(email) = &review.email {
        author["email"] = email.as_str().into();
    }
    json!({
        "id": review.id,
        "user": author,
        "body": review.body,
        "state": review.state,
        "commit_id": review.commit,
        "submitted_at": review.submitted_at,
        "html_url": format!("{web}/{full_name}/pull/{}#pullrequestreview-{}", review.number, review.id),
    })
}

/// Returns a status in GitHub's form.
pub(crate) fn status(web: &str, status: &Status) -> Value {
    json!({
        "id": status.id,
        "state": status.state,
        "context": status.context,
        "description": status.description,
        "target_url": status.target_url,
        "creator": user(web, &status.creator),
        "created_at": status.created_at,
        "updated_at": status.created_at,
    })
}

/// Returns a check run in GitHub's form, without its pull requests.
pub(crate) fn check_run(run: &CheckRun) -> Value {
    json!({
        "id": run.id,
        "name": run.name,
        "head_sha": run.sha,
        "external_id": run.external_id,
        "details_url": run.details_url,
        "status": run.status,
        "conclusion": run.conclusion,
        "started_at": run.started_at,
        "completed_at": run.completed_at,
        "output": {"title": run.title, "summary": run.summary},
        "app": {"slug": run.app, "name": run.app},
        "pull_requests": [],
    })
}

/// Returns a webhook in GitHub's form, with asterisks as its secret.
pub(crate) fn hook(web: &str, full_name: &str, hook: &Hook) -> Value {
    json!({
        "type": "Repository",
        "id": hook.id,
        "name": "web",
        "active": hook.active,
        "events": hook.events,
        "config": {"url": hook.url, "content_type": "json", "secret": "********", "insecure_ssl": "0"},
        "url": format!("{web}/api/v3/repos/{full_name}/hooks/{}", hook.id),
    })
}

/// Returns a webhook delivery in GitHub's form, without request and response bodies; the duration
/// is in seconds. A delivery that was not answered has status code 0, and `PENDING` or the reason
/// of its failure as status.
pub(crate) fn delivery(delivery: &Delivery) -> Value {
    let (status, status_code, milliseconds) = match &delivery.outcome {
        Outcome::Waiting | Outcome::Sending => ("PENDING".to_owned(), 0, 0),
        Outcome::Answered { status, milliseconds } => (
            if *status < 300 { "OK".to_owned() } else { "Invalid HTTP Response".to_owned() },
            *status,
            *milliseconds,
        ),
        Outcome::Failed { reason } => (reason.clone(), 0, 0),
    };
    json!({
        "id": delivery.id,
        "guid": delivery.guid,
        "delivered_at": delivery.delivered_at,
        "redelivery": delivery.is_redelivery,
        "duration": milliseconds as f64 / 1_000.0,
        "status": status,
        "status_code": status_code,
        "event": delivery.event,
        "action": delivery.action,
    })
}

/// Returns a commit in the form of GitHub's git API.
pub(crate) fn git_commit(commit: &Commit) -> Value {
    let parents: Vec<Value> = commit.parents.iter().map(|sha| json!({"sha": sha})).collect();
    json!({
        "sha": commit.sha,
        "tree": {"sha": commit.tree},
        "parents": parents,
        "message": commit.message,
        "author": {"name": commit.author.name, "email": commit.author.email, "date": commit.author.date},
        "committer": {"name": commit.committer.name, "email": commit.committer.email, "date": commit.committer.date},
    })
}

/// Returns a commit in the form of GitHub's repository API.
pub(crate) fn repository_commit(commit: &Commit) -> Value {
    let parents: Vec<Value> = commit.parents.iter().map(|sha| json!({"sha": sha})).collect();
    json!({"sha": commit.sha, "commit": git_commit(commit), "parents": parents})
}

/// Returns a commit in the form of push events, without lists of files; its time is the
/// committer's.
pub(crate) fn pushed_commit(commit: &Commit) -> Value {
    json!({
        "id": commit.sha,
        "tree_id": commit.tree,
        "message": commit.message,
        "timestamp": commit.committer.date,
        "author": {"name": commit.author.name, "email": commit.author.email},
    })
}

/// Returns a changed file in GitHub's form, with its previous name if it was renamed or copied;
/// without numbers of lines and patch.
pub(crate) fn file(file: &FileChange) -> Value {
    let mut shape = json!({"filename": file.path, "status": file.status});
    if let Some(previous) = &file.previous {
        shape["previous_filename"] = previous.as_str().into();
    }
    shape
}
