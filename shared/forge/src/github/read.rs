//! Reading changes, branches, commits and deliveries.

use super::http::{Ahead, Api, Listed, PAGE_SIZE, Repeat, now_seconds};
use super::{GitHub, escape_path, number, repository, shapes};
use crate::depends_on::depends_on;
use crate::error::ForgeError;
use crate::forge::{Branch, CommitDetails, Protection, WebhookDelivery};
use reqwest::Method;
use sluice_model::change::{
    ChangeFacts, ChangeKey, ChangeRef, ChangeReview, ChangeStatus, CommitStatus, OpenChange,
    RepositoryPermission, ReviewState, Truncation,
};
use sluice_model::git::{BranchKey, Commit, Oid};
use sluice_model::{ProjectName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use url::Url;

/// GitHub itself lists at most 3,000 files of a pull request.
const FILE_PAGES_MAX: usize = 30;
/// GitHub stores 1,000 statuses per context and commit, newest first.
const STATUS_PAGES_MAX: usize = 10;
const CHECK_RUN_PAGES_MAX: usize = 10;
const REVIEW_PAGES_MAX: usize = 30;
const CHANGE_PAGES_MAX: usize = 50;
const COMMIT_PULL_PAGES_MAX: usize = 10;
const BRANCH_PAGES_MAX: usize = 50;
const TAGS_DEEP_MAX: usize = 5;
/// The permission of each reviewer is a request of its own.
const REVIEWERS_MAX: usize = 100;
const HOOKS_MAX: usize = 20;

/// Returns the change whose page, or a tab of whose page, has this URL on this forge; `None` for
/// any other URL. Makes no requests.
pub(super) fn change_at(github: &GitHub, url: &str) -> Option<ChangeKey> {
    let url = Url::parse(url).ok()?;
    let is_here = url.host() == github.web.host()
        && url.port_or_known_default() == github.web.port_or_known_default();
    let base: Vec<&str> = github.web.path_segments()?.filter(|part| !part.is_empty()).collect();
    let parts: Vec<&str> = url.path_segments()?.filter(|part| !part.is_empty()).collect();
    let rest = parts.strip_prefix(base.as_slice()).filter(|_| is_here)?;
    match rest {
        // The rest of the path is a tab of the page (`files`, `commits`).
        [owner, name, "pull", number, ..] => {
            Some(github.key(&format!("{owner}/{name}"), number.parse().ok()?))
        }
        _ => None,
    }
}

/// Reads everything about a pull request that decisions need. Lists that are too long are marked as
/// incomplete; files are `None` if GitHub does not list all of them. Check runs that the token may
/// not read are marked as hidden. None of these is an error.
pub(super) async fn change(github: &GitHub, key: &ChangeKey) -> Result<ChangeFacts, ForgeError> {
    let attempted = format!("read {key}");
    let number = number(key, &attempted)?;
    let path = |rest: &str| repository(&key.project, rest);
    let seen_at = Timestamp(now_seconds() * 1_000);
    let pull: shapes::Pull = github.api.get(&path(&format!("/pulls/{number}")), &attempted).await?;
    let head = escape_path(&pull.head.sha);
    let (files, (reviews, reviews_cut), (statuses, statuses_cut), runs) = tokio::try_join!(
        files(&github.api, path(&format!("/pulls/{number}/files")), pull.changed_files, &attempted),
        reviews(&github.api, key, &attempted),
        statuses(&github.api, path(&format!("/commits/{head}/statuses")), &attempted),
        check_runs(&github.api, &key.project, &pull.head.sha, &attempted),
    )?;
    let (check_runs, runs_cut, runs_hidden) = match runs {
        Some((runs, is_cut)) => (runs, is_cut, false),
        None => (Vec::new(), false, true),
    };
    let status = status_of(&pull);
    let message = pull.body.unwrap_or_default();
    Ok(ChangeFacts {
        change: change_ref(key.clone(), &pull.base, &pull.head),
        status,
        draft: pull.draft,
        title: pull.title,
        author: pull.user.map(|user| user.login).unwrap_or_default(),
        url: pull.html_url,
        labels: pull
            .labels
            .into_iter()
            .map(|label| label.name)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        reviews,
        statuses: newest_per_context(statuses, check_runs),
        truncated: Truncation {
            reviews: reviews_cut,
            statuses: statuses_cut || runs_cut,
            check_runs: runs_hidden,
        },
        files,
        depends_on: depends_on(&message),
        // GitHub has neither stacks nor topics, and its reviews are not votes.
        parents: Vec::new(),
        topic: None,
        votes: Vec::new(),
        submittable: None,
        message,
        mergeable: pull.mergeable,
        // While it is open, this is GitHub's own test merge.
        merge_commit: pull.merge_commit_sha.map(Oid).filter(|_| status == ChangeStatus::Merged),
        updated_at: timestamp(pull.updated_at.as_deref()),
        seen_at,
    })
}

/// Returns whether a pull request is open, closed or merged.
fn status_of(pull: &shapes::Pull) -> ChangeStatus {
    if pull.merged {
        ChangeStatus::Merged
    } else if pull.state == "open" {
        ChangeStatus::Open
    } else {
        ChangeStatus::Closed
    }
}

/// Returns the change at its head and with its target branch; the head is its patchset too.
fn change_ref(key: ChangeKey, base: &shapes::Side, head: &shapes::Side) -> ChangeRef {
    let (branch, head) = (base.branch.as_str().into(), Oid(head.sha.clone()));
    ChangeRef { key, branch, patchset: head.as_str().to_owned(), head }
}

/// Reads the paths that a pull request changes, sorted, with both names of a renamed file. `None`
/// if GitHub lists fewer than `changed` files, or more than are read.
async fn files(
    api: &Api,
    path: String,
    changed: usize,
    attempted: &str,
) -> Result<Option<Vec<String>>, ForgeError> {
    let listed =
        api.pages(&path, FILE_PAGES_MAX, attempted, |files: Vec<shapes::File>| files).await?;
    let Listed::All(files) = listed else { return Ok(None) };
    if files.len() < changed {
        return Ok(None);
    }
    // A renamed file touches both names.
    let names =
        files.into_iter().flat_map(|file| [Some(file.filename), file.previous_filename]).flatten();
    Ok(Some(names.collect::<BTreeSet<_>>().into_iter().collect()))
}

/// Returns each reviewer's newest review as [`latest_per_reviewer`] selects it, by login, with the
/// reviewer's present permission. The flag is true if some are missing: of too many reviewers only
/// some are read, and of too many reviews none.
async fn reviews(
    api: &Api,
    key: &ChangeKey,
    attempted: &str,
) -> Result<(Vec<ChangeReview>, bool), ForgeError> {
    let path = repository(&key.project, &format!("/pulls/{}/reviews", number(key, attempted)?));
    let listed = api
        .pages(&path, REVIEW_PAGES_MAX, attempted, |reviews: Vec<shapes::Review>| reviews)
        .await?;
    // They come oldest first: in an incomplete list any may have been superseded, so none counts.
    let Listed::All(listed) = listed else { return Ok((Vec::new(), true)) };
    let (asked, is_cut) = first_asked(latest_per_reviewer(listed));
    let mut reviews = Vec::with_capacity(asked.len());
    for (by, Latest { state, at, email, .. }) in asked {
        let permission = permission(api, &key.project, &by, attempted).await?;
        reviews.push(ChangeReview { by, email, state, permission, submitted_at: at });
    }
    Ok((reviews, is_cut))
}

/// Selects the reviewers whose permissions are read, at most `REVIEWERS_MAX`, and returns them by
/// name, and whether others were left out. Members of the repository come first, then those with an
/// approval or a request for changes, then the newest. So many other reviews displace no relevant
/// reviewer.
fn first_asked(latest: BTreeMap<String, Latest>) -> (Vec<(String, Latest)>, bool) {
    let is_cut = latest.len() > REVIEWERS_MAX;
    let mut asked: Vec<(String, Latest)> = latest.into_iter().collect();
    if is_cut {
        let has_verdict =
            |state| matches!(state, ReviewState::Approved | ReviewState::ChangesRequested);
        asked.sort_by_key(|(_, latest)| {
            (!latest.is_insider, !has_verdict(latest.state), std::cmp::Reverse(latest.at))
        });
        asked.truncate(REVIEWERS_MAX);
        asked.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    (asked, is_cut)
}

/// A reviewer's newest review.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Latest {
    state: ReviewState,
    at: Timestamp,
    /// The reviewer's address, where the forge shows it.
    email: Option<String>,
    /// Whether the reviewer belongs to the repository.
    is_insider: bool,
}

/// Returns each reviewer's newest review, by login. A comment replaces no earlier review of its
/// author, not even a comment; an approval, a request for changes and a dismissal do. Drafts and
/// reviews without an account are left out.
fn latest_per_reviewer(reviews: Vec<shapes::Review>) -> BTreeMap<String, Latest> {
    let mut latest: BTreeMap<String, Latest> = BTreeMap::new();
    for review in reviews {
        let state = match review.state.as_str() {
            "APPROVED" => ReviewState::Approved,
            "CHANGES_REQUESTED" => ReviewState::ChangesRequested,
            "DISMISSED" => ReviewState::Dismissed,
            "COMMENTED" => ReviewState::Commented,
            // PENDING is a draft that only its author can see.
            _ => continue,
        };
        let Some(user) = review.user else { continue };
        let at = timestamp(review.submitted_at.as_deref());
        let is_insider = matches!(
            review.author_association.as_deref(),
            Some("OWNER" | "MEMBER" | "COLLABORATOR")
        );
        match latest.get(&user.login) {
            Some(seen) if seen.at > at => {}
            Some(_) if state == ReviewState::Commented => {}
            _ => {
                let email = user.email.filter(|email| !email.is_empty());
                latest.insert(user.login, Latest { state, at, email, is_insider });
            }
        }
    }
    latest
}

/// Reads the permission of an account in a repository. An account that does not exist, and any
/// account in a repository that the token may not see, has [`RepositoryPermission::None`], which is
/// no error. `maintain` counts as write, `triage` as read.
pub(super) async fn permission(
    api: &Api,
    project: &ProjectName,
    login: &str,
    attempted: &str,
) -> Result<RepositoryPermission, ForgeError> {
    let path = repository(project, &format!("/collaborators/{}/permission", escape_path(login)));
    match api.get::<shapes::PermissionOf>(&path, attempted).await {
        Ok(answer) => Ok(match answer.permission.as_str() {
            "admin" => RepositoryPermission::Admin,
            "write" | "maintain" => RepositoryPermission::Write,
            "read" | "triage" => RepositoryPermission::Read,
            _ => RepositoryPermission::None,
        }),
        // A deleted account is called `ghost` and has no permissions.
        Err(ForgeError::NotFound { .. }) => Ok(RepositoryPermission::None),
        Err(error) => Err(error),
    }
}

/// Returns a commit's newest statuses, at most 1,000, newest first, and whether there are older
/// ones.
async fn statuses(
    api: &Api,
    path: String,
    attempted: &str,
) -> Result<(Vec<shapes::Status>, bool), ForgeError> {
    let listed = api
        .pages(&path, STATUS_PAGES_MAX, attempted, |statuses: Vec<shapes::Status>| statuses)
        .await?;
    Ok(listed.part())
}

/// Returns a commit's newest status of a context, and how far the forge's clock is ahead of the
/// local one. `None` if it is not among the newest 100 statuses of the commit.
pub(super) async fn newest_status(
    api: &Api,
    project: &ProjectName,
    head: &str,
    context: &str,
    attempted: &str,
) -> Result<(Option<shapes::Status>, Ahead), ForgeError> {
    let query = format!("per_page={PAGE_SIZE}&page=1");
    let path = repository(project, &format!("/commits/{}/statuses?{query}", escape_path(head)));
    let answer = api.send(Method::GET, &path, None, Repeat::Safe, attempted).await?;
    let ahead = answer.ahead();
    let statuses: Vec<shapes::Status> = answer.read(attempted)?;
    Ok((statuses.into_iter().find(|status| status.context == context), ahead))
}

/// Returns the newest check runs of a commit, at most 1,000, and whether there are more. `None`,
/// and no error, where the token may not read them: check runs belong to GitHub Apps, and the
/// change's other facts are valid without them.
async fn check_runs(
    api: &Api,
    project: &ProjectName,
    head: &str,
    attempted: &str,
) -> Result<Option<(Vec<shapes::CheckRun>, bool)>, ForgeError> {
    let path = repository(project, &format!("/commits/{}/check-runs", escape_path(head)));
    match api
        .pages(&path, CHECK_RUN_PAGES_MAX, attempted, |page: shapes::CheckRuns| page.check_runs)
        .await
    {
        Ok(listed) => Ok(Some(listed.part())),
        Err(ForgeError::NotFound { .. } | ForgeError::Refused { status: 403, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the newest check runs of a commit with this name, at most 1,000; a forge without that
/// filter returns all names. An error if the token may not read them.
pub(super) async fn check_runs_named(
    api: &Api,
    project: &ProjectName,
    head: &str,
    name: &str,
    attempted: &str,
) -> Result<Vec<shapes::CheckRun>, ForgeError> {
    let (head, name) = (escape_path(head), escape_path(name));
    let path = repository(project, &format!("/commits/{head}/check-runs?check_name={name}"));
    let listed = api
        .pages(&path, CHECK_RUN_PAGES_MAX, attempted, |page: shapes::CheckRuns| page.check_runs)
        .await?;
    // Sluice's own is recognised by its marker, or created.
    Ok(listed.part().0)
}

/// Joins statuses (newest first) and check runs into one list, sorted by context and account, with
/// only the newest of each context and account; a status wins over a check run. A check run is
/// listed as a status by its application, whose state is the run's conclusion, or `pending`. Each
/// keeps its number and no time: an edited check run may show another time and is the same.
fn newest_per_context(
    statuses: Vec<shapes::Status>,
    mut check_runs: Vec<shapes::CheckRun>,
) -> Vec<CommitStatus> {
    let mut newest: BTreeMap<(String, String), CommitStatus> = BTreeMap::new();
    let mut add = |status: CommitStatus| {
        newest.entry((status.context.clone(), status.by.clone())).or_insert(status);
    };
    for status in statuses {
        let by = status.creator.map(|user| user.login).unwrap_or_default();
        let (context, state, number) = (status.context, status.state, status.id);
        add(CommitStatus { by, context, state, is_check: false, number });
    }
    // Several suites of a commit may have a run of one name: the choice is the same at each read.
    check_runs.sort_by_key(|run| std::cmp::Reverse(run.id));
    for run in check_runs {
        let state = match (run.status.as_str(), run.conclusion) {
            ("completed", Some(conclusion)) => conclusion,
            _ => "pending".to_owned(),
        };
        let by = run.app.and_then(|app| app.slug).unwrap_or_default();
        add(CommitStatus { by, context: run.name, state, is_check: true, number: Some(run.id) });
    }
    newest.into_values().collect()
}

/// Reads the open pull requests of a repository, by number, at most 5,000. If there are more, logs
/// a warning and leaves out the newest.
pub(super) async fn open_changes(
    github: &GitHub,
    project: &ProjectName,
) -> Result<Vec<OpenChange>, ForgeError> {
    let attempted = format!("list the open changes of {}", project.name());
    let path = repository(project, "/pulls?state=open&sort=created&direction=asc");
    let listed = github
        .api
        .pages(&path, CHANGE_PAGES_MAX, &attempted, |pulls: Vec<shapes::Pull>| pulls)
        .await?;
    let key = |number| ChangeKey::change(github.connection.clone(), project.clone(), number);
    // A change that is opened during the reading can shift another onto two pages.
    let open = |pull: &shapes::Pull| OpenChange {
        change: change_ref(key(pull.number), &pull.base, &pull.head),
        updated_at: timestamp(pull.updated_at.as_deref()),
    };
    let (pulls, is_cut) = listed.part();
    if is_cut {
        // Oldest first: changes beyond the limit are reported by webhooks, not by sweeps.
        tracing::warn!(project = %project, listed = pulls.len(), "it has more open changes than are listed");
    }
    let by_number: BTreeMap<u64, OpenChange> =
        pulls.iter().map(|pull| (pull.number, open(pull))).collect();
    Ok(by_number.into_values().collect())
}

/// Reads the open pull requests whose head is exactly this commit, by number; none is no error. Of
/// more than 1,000 pull requests that contain the commit, the rest is not read.
pub(super) async fn changes_with_head(
    github: &GitHub,
    project: &ProjectName,
    head: &Oid,
) -> Result<Vec<ChangeRef>, ForgeError> {
    let attempted = format!("list the changes of {} at {}", project.name(), head.short());
    let path = repository(project, &format!("/commits/{}/pulls", escape_path(head.as_str())));
    let listed = github
        .api
        .pages(&path, COMMIT_PULL_PAGES_MAX, &attempted, |pulls: Vec<shapes::Pull>| pulls)
        .await?;
    let key = |number| ChangeKey::change(github.connection.clone(), project.clone(), number);
    // GitHub also lists merged changes, and those that contain the commit. Changes beyond the limit
    // are processed with their next event.
    let meant = listed
        .part()
        .0
        .into_iter()
        .filter(|pull| pull.state == "open" && pull.head.sha == head.as_str());
    let by_number: BTreeMap<u64, ChangeRef> = meant
        .map(|pull| (pull.number, change_ref(key(pull.number), &pull.base, &pull.head)))
        .collect();
    Ok(by_number.into_values().collect())
}

/// Reads the branches of a repository, by name, with their tips and whether they are protected. An
/// error if there are more than 5,000.
pub(super) async fn branches(
    github: &GitHub,
    project: &ProjectName,
) -> Result<Vec<Branch>, ForgeError> {
    let attempted = format!("list the branches of {}", project.name());
    let path = repository(project, "/branches");
    let listed = github
        .api
        .pages(&path, BRANCH_PAGES_MAX, &attempted, |branches: Vec<shapes::Branch>| branches)
        .await?;
    let mut branches: Vec<Branch> = listed.all(&attempted)?.into_iter().map(branch).collect();
    branches.sort_by(|one, other| one.name.cmp(&other.name));
    branches.dedup_by(|one, other| one.name == other.name);
    Ok(branches)
}

/// Converts a branch from GitHub's form.
fn branch(branch: shapes::Branch) -> Branch {
    let protection = if branch.protected { Protection::Protected } else { Protection::Open };
    Branch { name: branch.name.into(), tip: Oid(branch.commit.sha), protection }
}

/// Reads whether a branch is locked. `None` if the branch has no rules or does not exist, or if the
/// token may not read the rules: only administrators may.
pub(super) async fn is_locked(
    github: &GitHub,
    branch: &BranchKey,
) -> Result<Option<bool>, ForgeError> {
    let attempted = format!("read the rules of {branch}");
    let path = repository(
        &branch.project,
        &format!("/branches/{}/protection", escape_path(branch.branch.as_str())),
    );
    match github.api.get::<shapes::ProtectionOf>(&path, &attempted).await {
        Ok(rules) => Ok(Some(rules.lock_branch.is_some_and(|lock| lock.enabled))),
        // GitHub gives this answer for a branch without rules, and to a token without permission.
        Err(ForgeError::NotFound { .. } | ForgeError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the commit at the tip of a branch, with its tree. A missing branch is
/// [`ForgeError::NotFound`].
pub(super) async fn branch_tip(github: &GitHub, branch: &BranchKey) -> Result<Commit, ForgeError> {
    let attempted = format!("read the tip of {branch}");
    let path = repository(
        &branch.project,
        &format!("/git/ref/heads/{}", escape_path(branch.branch.as_str())),
    );
    let tip: shapes::GitRef = github.api.get(&path, &attempted).await?;
    Ok(commit(github, &branch.project, &Oid(tip.object.sha)).await?.commit)
}

/// Reads the commit of a ref, also of an annotated tag; `None` if the ref does not exist, or if the
/// token may not see the repository. A tag of something else, and a commit behind five or more
/// nested tags, is [`ForgeError::NotFound`]. `git_ref` may omit `refs/`.
pub(super) async fn ref_tip(
    github: &GitHub,
    project: &ProjectName,
    git_ref: &str,
) -> Result<Option<Commit>, ForgeError> {
    let attempted = format!("read {git_ref} of {}", project.name());
    let name = git_ref.strip_prefix("refs/").unwrap_or(git_ref);
    let path = repository(project, &format!("/git/ref/{}", escape_path(name)));
    let mut object = match github.api.get::<shapes::GitRef>(&path, &attempted).await {
        Ok(found) => found.object,
        Err(ForgeError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    // An annotated tag is an object of its own; tags of tags may be nested to any depth.
    for _ in 0..TAGS_DEEP_MAX {
        match object.kind.as_deref() {
            Some("tag") => {}
            Some("commit") | None => {
                return Ok(Some(commit(github, project, &Oid(object.sha)).await?.commit));
            }
            // A tag may point to any object, such as a file.
            Some(other) => {
                let attempted = format!(
                    "find a commit behind {git_ref} of {}, which leads to a {other}",
                    project.name()
                );
                return Err(ForgeError::NotFound { attempted });
            }
        }
        let path = repository(project, &format!("/git/tags/{}", escape_path(&object.sha)));
        object = github.api.get::<shapes::GitRef>(&path, &attempted).await?.object;
    }
    Err(ForgeError::NotFound { attempted })
}

/// Reads whether a branch contains a commit, at its tip or before; `false` also if the branch, the
/// commit or the repository does not exist or may not be seen.
pub(super) async fn contains(
    github: &GitHub,
    branch: &BranchKey,
    commit: &Oid,
) -> Result<bool, ForgeError> {
    let attempted = format!("find {} in {branch}", commit.short());
    let (commit, name) = (escape_path(commit.as_str()), escape_path(branch.branch.as_str()));
    let path = repository(&branch.project, &format!("/compare/{commit}...{name}?per_page=1"));
    match github.api.get::<shapes::Compared>(&path, &attempted).await {
        // How the branch relates to the commit.
        Ok(compared) => Ok(matches!(compared.status.as_str(), "ahead" | "identical")),
        Err(ForgeError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a commit: its tree, its parents and its message. A missing one is
/// [`ForgeError::NotFound`].
pub(super) async fn commit(
    github: &GitHub,
    project: &ProjectName,
    id: &Oid,
) -> Result<CommitDetails, ForgeError> {
    let attempted = format!("read commit {} of {}", id.short(), project.name());
    let path = repository(project, &format!("/git/commits/{}", escape_path(id.as_str())));
    let read: shapes::GitCommit = github.api.get(&path, &attempted).await?;
    Ok(CommitDetails {
        commit: Commit { id: Oid(read.sha), tree: Oid(read.tree.sha) },
        parents: read.parents.into_iter().map(|parent| Oid(parent.sha)).collect(),
        message: read.message,
    })
}

/// Reads the newest deliveries of the webhooks in a repository, also of those that lead to other
/// services; newest first, at most 100 for each of at most 20 webhooks.
pub(super) async fn deliveries(
    github: &GitHub,
    project: &ProjectName,
) -> Result<Vec<WebhookDelivery>, ForgeError> {
    let attempted = format!("list the webhook deliveries of {}", project.name());
    let hooks: Vec<shapes::Hook> = github
        .api
        .get(&repository(project, &format!("/hooks?per_page={HOOKS_MAX}")), &attempted)
        .await?;
    let mut deliveries = Vec::new();
    for hook in hooks.iter().take(HOOKS_MAX) {
        let path =
            repository(project, &format!("/hooks/{}/deliveries?per_page={PAGE_SIZE}", hook.id));
        let page: Vec<shapes::HookDelivery> = github.api.get(&path, &attempted).await?;
        deliveries.extend(page.into_iter().map(|delivery| WebhookDelivery {
            attempt: format!("{}/deliveries/{}", hook.id, delivery.id),
            id: delivery.guid,
            event: delivery.event,
            action: delivery.action,
            delivered_at: timestamp(Some(&delivery.delivered_at)),
            answered: (delivery.status_code != 0).then_some(delivery.status_code),
        }));
    }
    deliveries.sort_by_key(|delivery| std::cmp::Reverse(delivery.delivered_at));
    Ok(deliveries)
}

/// Asks GitHub to send a webhook delivery again. An unanswered request is repeated, so it may be
/// sent more than once.
pub(super) async fn redeliver(
    github: &GitHub,
    project: &ProjectName,
    delivery: &WebhookDelivery,
) -> Result<(), ForgeError> {
    let attempted =
        format!("have the webhook delivery {} of {} sent again", delivery.id, project.name());
    let path = repository(project, &format!("/hooks/{}/attempts", delivery.attempt));
    github.api.send(Method::POST, &path, None, Repeat::Safe, &attempted).await.map(drop)
}

/// Returns the time that GitHub wrote as `2026-11-21T12:23:45Z`; the epoch when it is missing or
/// invalid.
pub(super) fn timestamp(text: Option<&str>) -> Timestamp {
    let parsed = text.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    Timestamp(parsed.and_then(|at| u64::try_from(at.as_millisecond()).ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ForgeSecret, GitHubOptions};
    use serde_json::json;

    fn github(web_url: &str) -> GitHub {
        GitHub::new(GitHubOptions {
            connection: "github".into(),
            host: "github.com".into(),
            api_url: "https://api.github.com".into(),
            web_url: web_url.into(),
            token: ForgeSecret::new("t"),
            own_login: None,
        })
        .unwrap()
    }

    /// Z6.5
    #[test]
    fn only_addresses_of_this_forge_name_a_change() {
        let rows = [
            ("https://github.com", "https://github.com/org/one/pull/4", Some("org/one#4")),
            (
                "https://github.com",
                "https://github.com/org/one/pull/4/files?w=1#diff",
                Some("org/one#4"),
            ),
            (
                "https://forge.example/git/",
                "https://forge.example/git/org/one/pull/4",
                Some("org/one#4"),
            ),
            ("http://127.0.0.1:81", "http://127.0.0.1:81/org/one/pull/4", Some("org/one#4")),
            ("http://127.0.0.1:81", "http://127.0.0.1:82/org/one/pull/4", None),
            ("https://github.com", "https://elsewhere.example/org/one/pull/4", None),
            ("https://github.com", "https://github.com/org/one/issues/4", None),
            ("https://github.com", "https://github.com/org/one/pull/four", None),
            ("https://github.com", "https://github.com/org/one", None),
            ("https://github.com", "not an address", None),
        ];
        for (web, url, expected) in rows {
            assert_eq!(github(web).change_at_text(url).as_deref(), expected, "{url}");
        }
    }

    impl GitHub {
        fn change_at_text(&self, url: &str) -> Option<String> {
            change_at(self, url).map(|key| key.to_string())
        }
    }

    /// Z6.1
    #[test]
    fn a_comment_does_not_take_back_an_approval_but_a_dismissal_does() {
        let said = |who: &str, state: &str, minute: u8| json!({"user": {"login": who}, "body": "", "state": state, "submitted_at": format!("2026-11-21T10:{minute:02}:00Z")});
        let reviews = json!([
            said("ann", "APPROVED", 1), said("ann", "COMMENTED", 2),
            said("bob", "APPROVED", 1), said("bob", "CHANGES_REQUESTED", 3),
            said("cid", "DISMISSED", 4),
            said("dan", "COMMENTED", 1),
            {"user": null, "body": "", "state": "APPROVED", "submitted_at": null},
            said("eve", "PENDING", 1),
        ]);
        let latest = latest_per_reviewer(serde_json::from_value(reviews).unwrap());
        let states: Vec<(&str, ReviewState)> =
            latest.iter().map(|(who, latest)| (who.as_str(), latest.state)).collect();
        let expected = [
            ("ann", ReviewState::Approved),
            ("bob", ReviewState::ChangesRequested),
            ("cid", ReviewState::Dismissed),
            ("dan", ReviewState::Commented),
        ];
        assert_eq!(states, expected);
    }

    /// Z6.1: a reviewer has an e-mail address only where the forge shows it.
    #[test]
    fn a_reviewers_address_is_the_one_that_is_shown() {
        for (user, expected) in [
            (json!({"login": "ann", "email": "ann@example.org"}), Some("ann@example.org")),
            (json!({"login": "ann", "email": null}), None),
            (json!({"login": "ann", "email": ""}), None),
            (json!({"login": "ann"}), None),
        ] {
            let reviews = json!([{"user": user, "body": "", "state": "APPROVED"}]);
            let latest = latest_per_reviewer(serde_json::from_value(reviews).unwrap());
            let emails: Vec<Option<&str>> =
                latest.values().map(|latest| latest.email.as_deref()).collect();
            assert_eq!(emails, [expected]);
        }
    }

    /// Z6.1, C5: the newest status of each name and account counts. Its number distinguishes it
    /// from one that is set again.
    #[test]
    fn the_newest_status_of_a_context_counts_and_bears_its_number() {
        let status = |id: u64, state: &str| json!({"id": id, "context": "demo/check", "state": state, "creator": {"login": "bot"}});
        let run = |id: u64, conclusion: &str| json!({"id": id, "name": "unit", "status": "completed", "conclusion": conclusion, "app": {"slug": "ci"}});
        let statuses = json!([status(9, "success"), status(7, "pending"), status(5, "success")]);
        for runs in [
            json!([run(3, "failure"), run(4, "success")]),
            json!([run(4, "success"), run(3, "failure")]),
        ] {
            let runs = serde_json::from_value(runs).unwrap();
            let newest =
                newest_per_context(serde_json::from_value(statuses.clone()).unwrap(), runs);
            let shown: Vec<(&str, &str, Option<u64>)> = newest
                .iter()
                .map(|status| (status.context.as_str(), status.state.as_str(), status.number))
                .collect();
            assert_eq!(shown, [("demo/check", "success", Some(9)), ("unit", "success", Some(4))]);
        }
    }

    /// Z6.1, Z5: a hundred reviews of strangers displace no relevant one, and the list is marked as
    /// incomplete.
    #[test]
    fn of_very_many_reviewers_those_are_asked_after_who_belong_there_and_gave_a_verdict() {
        let latest =
            |state, at, is_insider| Latest { state, at: Timestamp(at), email: None, is_insider };
        let mut all: BTreeMap<String, Latest> = (0..150)
            .map(|n| (format!("stranger-{n:03}"), latest(ReviewState::Commented, 1_000 + n, false)))
            .collect();
        let (asked, is_cut) =
            first_asked(all.iter().take(100).map(|(by, of)| (by.clone(), of.clone())).collect());
        assert_eq!((asked.len(), is_cut), (100, false));
        all.insert("ann".to_owned(), latest(ReviewState::ChangesRequested, 1, false));
        all.insert("maintainer".to_owned(), latest(ReviewState::Commented, 1, true));
        let (asked, is_cut) = first_asked(all);
        let names: Vec<&str> = asked.iter().map(|(by, _)| by.as_str()).collect();
        assert_eq!((names.len(), is_cut), (100, true));
        assert!(names.contains(&"ann") && names.contains(&"maintainer"));
        assert!(
            names.contains(&"stranger-149")
                && !names.contains(&"stranger-000")
                && names.is_sorted()
        );
    }
}
