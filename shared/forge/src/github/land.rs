//! Merges with an expected head. In doubt the change is read before the merge is retried.

use super::http::Repeat;
use super::{GitHub, number, repository, shapes};
use crate::error::ForgeError;
use crate::forge::MergeMessage;
use reqwest::Method;
use serde_json::json;
use sluice_model::change::ChangeRef;
use sluice_model::git::{MergeMode, Oid};

/// Merges a pull request whose head is `change.head` and returns the merge commit; sends the
/// request once. An earlier merge at this head is a success. If the head is another,
/// [`ForgeError::HeadMoved`], even if it was merged. If it does not merge,
/// [`ForgeError::Conflict`]; while GitHub has not determined that, [`ForgeError::Unknown`]. Any
/// other refusal, as by branch protection, is [`ForgeError::Refused`]. Without a title, GitHub
/// makes the message.
pub(super) async fn merge(
    github: &GitHub,
    change: &ChangeRef,
    mode: MergeMode,
    message: &MergeMessage,
) -> Result<Oid, ForgeError> {
    let attempted = format!("merge {change}");
    let path = repository(
        &change.key.project,
        &format!("/pulls/{}/merge", number(&change.key, &attempted)?),
    );
    let mut body = json!({"sha": change.head.as_str(), "merge_method": method(mode)});
    if !message.title.is_empty() {
        body["commit_title"] = message.title.as_str().into();
        body["commit_message"] = message.body.as_str().into();
    }
    let outcome =
        match github.api.send(Method::PUT, &path, Some(&body), Repeat::Never, &attempted).await {
            Ok(answer) => answer.read::<shapes::Merged>(&attempted),
            Err(error) => Err(error),
        };
    match outcome {
        Ok(merged) if merged.merged => Ok(Oid(merged.sha)),
        Ok(_) => {
            after_refusal(
                github,
                change,
                ForgeError::unknown(&attempted, "the answer says neither yes nor no"),
            )
            .await
        }
        Err(error @ (ForgeError::Refused { .. } | ForgeError::Unknown { .. })) => {
            after_refusal(github, change, error).await
        }
        Err(error) => Err(error),
    }
}

/// Reads the change once after a refused or unanswered merge, and returns the merge commit if it
/// was merged at `change.head`. `HeadMoved` if the head is another, even if merged. Otherwise
/// converts the refusal `error`: to `HeadMoved` for status 409, to `Conflict` if the change does
/// not merge, and to `Unknown` if a retry may succeed. Returns any other `error` itself, and also
/// if the change cannot be read.
async fn after_refusal(
    github: &GitHub,
    change: &ChangeRef,
    error: ForgeError,
) -> Result<Oid, ForgeError> {
    let attempted = format!("merge {change}");
    let path =
        repository(&change.key.project, &format!("/pulls/{}", number(&change.key, &attempted)?));
    let pull: shapes::Pull = match github.api.get(&path, &attempted).await {
        Ok(pull) => pull,
        // Nothing new is known; a refusal stays a refusal.
        Err(_) => return Err(error),
    };
    if pull.head.sha != change.head.as_str() {
        return Err(ForgeError::HeadMoved { attempted });
    }
    if pull.merged {
        return pull.merge_commit_sha.map(Oid).ok_or_else(|| {
            ForgeError::unknown(&attempted, "it is merged, but its merge commit is unknown")
        });
    }
    match error {
        ForgeError::Refused { status: 409, .. } => Err(ForgeError::HeadMoved { attempted }),
        // Another merge came between: GitHub reports that in its message only, and a retry may
        // succeed.
        ForgeError::Refused { status: 405, message, .. }
            if message.contains("Base branch was modified") =>
        {
            Err(ForgeError::unknown(&attempted, message))
        }
        // The branch moved a moment ago, for example by the landing before this one, and GitHub has
        // not computed yet whether the change still merges; until then it refuses every merge.
        ForgeError::Refused { status: 405, message, .. } if pull.mergeable.is_none() => {
            Err(ForgeError::unknown(&attempted, message))
        }
        ForgeError::Refused { status: 405, .. } if pull.mergeable == Some(false) => {
            Err(ForgeError::Conflict { attempted })
        }
        error => Err(error),
    }
}

/// Returns GitHub's name of a merge method: `merge`, `squash` or `rebase`. Cherry-pick is a rebase
/// there; variants of a method are the method itself.
fn method(mode: MergeMode) -> &'static str {
    match mode {
        MergeMode::Merge | MergeMode::MergeResolve => "merge",
        MergeMode::SquashMerge => "squash",
        MergeMode::CherryPick | MergeMode::Rebase | MergeMode::RebaseFirstParent => "rebase",
    }
}
