//! Landings by merge, with an expected head. On doubt the forge is read before it is asked again.

use super::http::Repeat;
use super::{GitHub, number, repository, shapes};
use crate::error::ForgeError;
use crate::forge::MergeMessage;
use reqwest::Method;
use serde_json::json;
use sluice_model::change::ChangeRef;
use sluice_model::git::{MergeMode, Oid};

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

/// Finds out what a refusal, or the lack of an answer, means by reading the change once.
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
        // Nothing more is known than before; a refusal stays what it was only if it was one.
        Err(_) => return Err(error),
    };
    if pull.head.sha != change.head.as_str() {
        return Err(ForgeError::HeadMoved { attempted });
    }
    if pull.merged {
        return pull
            .merge_commit_sha
            .map(Oid)
            .ok_or_else(|| ForgeError::unknown(&attempted, "it is merged, nobody knows as what"));
    }
    match error {
        ForgeError::Refused { status: 409, .. } => Err(ForgeError::HeadMoved { attempted }),
        // Another merge came between: GitHub says so in words only, and the next try may succeed.
        ForgeError::Refused { status: 405, message, .. }
            if message.contains("Base branch was modified") =>
        {
            Err(ForgeError::unknown(&attempted, message))
        }
        // The branch moved a moment ago, by the landing before this one above all, and GitHub has
        // not worked out yet whether the change still merges; until then it refuses every merge.
        ForgeError::Refused { status: 405, message, .. } if pull.mergeable.is_none() => {
            Err(ForgeError::unknown(&attempted, message))
        }
        ForgeError::Refused { status: 405, .. } if pull.mergeable == Some(false) => {
            Err(ForgeError::Conflict { attempted })
        }
        error => Err(error),
    }
}

fn method(mode: MergeMode) -> &'static str {
    match mode {
        MergeMode::Merge | MergeMode::MergeResolve => "merge",
        MergeMode::SquashMerge => "squash",
        MergeMode::CherryPick | MergeMode::Rebase | MergeMode::RebaseFirstParent => "rebase",
    }
}
