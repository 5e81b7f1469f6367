//! What people and machines say about changes: comments, reviews, statuses, check runs.

use super::{Engine, find_pull, find_repository, now};
use crate::error::ApiError;
use crate::hooks::Event;
use crate::model::{CheckRun, Comment, LineComment, Repository, Review, Status};
use crate::shapes;
use crate::store::Access;
use serde_json::json;

/// What a check run is given; absent things stay.
#[derive(Debug, Clone, Default)]
pub(crate) struct CheckRunFields {
    pub name: Option<String>,
    pub status: Option<String>,
    pub conclusion: Option<String>,
    pub external_id: Option<String>,
    pub details_url: Option<String>,
    pub title: Option<String>,
    pub summary: Option<String>,
}

/// A review to submit.
#[derive(Debug, Clone)]
pub(crate) struct NewReview {
    pub number: u64,
    /// `APPROVE`, `REQUEST_CHANGES` or `COMMENT`.
    pub event: String,
    pub body: String,
    /// The commit it is about; the head when absent.
    pub commit: Option<String>,
    pub lines: Vec<LineComment>,
}

/// A status to set.
#[derive(Debug, Clone)]
pub(crate) struct NewStatus {
    pub sha: String,
    pub context: String,
    /// `error`, `failure`, `pending` or `success`.
    pub state: String,
    pub description: Option<String>,
    pub target_url: Option<String>,
}

/// Returns the key under which the statuses of a commit are stored. They are stored apart, because
/// they are always read by commit.
pub(crate) fn statuses_of(full_name: &str, sha: &str) -> String {
    format!("{full_name}@{sha}")
}

impl Engine {
    /// Stores a comment on a pull request, open or not, records an event and returns the comment.
    /// The text is not checked. An error (404) if there is no such pull request.
    pub fn comment(
        &self,
        full_name: &str,
        number: u64,
        body: &str,
        by: &str,
    ) -> Result<Comment, ApiError> {
        self.transact_and_wake(|access| {
            let repository = find_repository(access, full_name)?;
            let pull = find_pull(access, full_name, number)?;
            let comment = Comment {
                id: access.next("comment")?,
                number,
                author: by.to_owned(),
                body: body.to_owned(),
                created_at: now(),
                updated_at: now(),
            };
            access.put(full_name, &comment)?;
            let payload = json!({
                "issue": shapes::issue(&self.web, full_name, &pull),
                "comment": shapes::comment(&self.web, full_name, &comment),
            });
            self.emit(access, &repository, by, Event::new("issue_comment", "created", payload))?;
            Ok(comment)
        })
    }

    /// Replaces the text of a comment, records an event and returns the comment. The text is not
    /// checked. An error (403) if it belongs to another account, 404 if there is no such comment.
    pub fn edit_comment(
        &self,
        full_name: &str,
        id: u64,
        body: &str,
        by: &str,
    ) -> Result<Comment, ApiError> {
        self.transact_and_wake(|access| {
            let repository = find_repository(access, full_name)?;
            let mut comment: Comment =
                access.get(full_name, id)?.ok_or_else(ApiError::not_found)?;
            if comment.author != by {
                return Err(ApiError::refused(403, "You cannot edit this comment"));
            }
            let pull = find_pull(access, full_name, comment.number)?;
            comment.body = body.to_owned();
            comment.updated_at = now();
            access.put(full_name, &comment)?;
            let payload = json!({
                "issue": shapes::issue(&self.web, full_name, &pull),
                "comment": shapes::comment(&self.web, full_name, &comment),
            });
            self.emit(access, &repository, by, Event::new("issue_comment", "edited", payload))?;
            Ok(comment)
        })
    }

    /// Stores a review of a pull request, open or not, records an event and returns the review.
    /// Without a commit it is about the present head; a given commit is not checked. An error (422)
    /// for an unknown vote, or if the pull request's author does more than comment.
    pub fn review(&self, full_name: &str, new: NewReview, by: &str) -> Result<Review, ApiError> {
        let NewReview { number, event, body, commit, lines } = new;
        let state = match event.as_str() {
            "APPROVE" => "APPROVED",
            "REQUEST_CHANGES" => "CHANGES_REQUESTED",
            "COMMENT" => "COMMENTED",
            _ => {
                return Err(ApiError::invalid(
                    "Unprocessable Entity: event is not one of APPROVE, REQUEST_CHANGES, COMMENT",
                ));
            }
        };
        self.transact_and_wake(|access| {
            let repository = find_repository(access, full_name)?;
            let pull = find_pull(access, full_name, number)?;
            if pull.author == by && state != "COMMENTED" {
                return Err(ApiError::invalid(
                    "Review Can not approve or request changes on your own pull request",
                ));
            }
            let review = Review {
                id: access.next("review")?,
                number,
                author: by.to_owned(),
                email: self.account(by).and_then(|account| account.email.clone()),
                state: state.to_owned(),
                body,
                commit: commit.unwrap_or_else(|| pull.head_sha.clone()),
                submitted_at: now(),
                lines,
            };
            access.put(full_name, &review)?;
            self.emit_review(access, &repository, &review, "submitted", by)?;
            Ok(review)
        })
    }

    /// Marks a review as dismissed, records an event and returns the review. An error (422) if it
    /// neither approves nor requests changes or is dismissed already; 404 if the pull request has
    /// no such review.
    pub fn dismiss_review(
        &self,
        full_name: &str,
        number: u64,
        id: u64,
        by: &str,
    ) -> Result<Review, ApiError> {
        self.transact_and_wake(|access| {
            let repository = find_repository(access, full_name)?;
            let review: Option<Review> = access.get(full_name, id)?;
            let mut review =
                review.filter(|review| review.number == number).ok_or_else(ApiError::not_found)?;
            if !matches!(review.state.as_str(), "APPROVED" | "CHANGES_REQUESTED") {
                return Err(ApiError::invalid("Can not dismiss a commented pull request review"));
            }
            review.state = "DISMISSED".to_owned();
            access.put(full_name, &review)?;
            self.emit_review(access, &repository, &review, "dismissed", by)?;
            Ok(review)
        })
    }

    /// Records a `pull_request_review` event with this action for the webhooks. The pull request of
    /// the review must exist. The caller stores the review, and wakes the sender of webhooks after
    /// the commit.
    fn emit_review(
        &self,
        access: &Access,
        repository: &Repository,
        review: &Review,
        action: &'static str,
        by: &str,
    ) -> Result<(), ApiError> {
        let pull = find_pull(access, &repository.full_name, review.number)?;
        let mut shape = shapes::review(&self.web, &repository.full_name, review);
        // Payloads write the state small, the API large: so does GitHub.
        shape["state"] = review.state.to_ascii_lowercase().into();
        let payload =
            json!({"review": shape, "pull_request": shapes::pull(&self.web, repository, &pull)});
        Ok(self.emit(access, repository, by, Event::new("pull_request_review", action, payload))?)
    }

    /// Stores a status of a commit next to the earlier ones, records an event and returns the
    /// status. The event names the branches whose tip the commit is. An error (422) for an unknown
    /// commit or state, or a description over 140 characters.
    pub async fn set_status(
        &self,
        full_name: &str,
        new: NewStatus,
        by: &str,
    ) -> Result<Status, ApiError> {
        let NewStatus { sha, context, state, description, target_url } = new;
        if !matches!(state.as_str(), "error" | "failure" | "pending" | "success") {
            return Err(ApiError::invalid("Validation Failed: state is not included in the list"));
        }
        if description.as_ref().is_some_and(|text| text.chars().count() > 140) {
            return Err(ApiError::invalid(
                "Validation Failed: description is too long (maximum is 140 characters)",
            ));
        }
        self.repository(full_name)?;
        let commit = self.git(full_name).commit(&sha).await?;
        let commit =
            commit.ok_or_else(|| ApiError::invalid(format!("No commit found for SHA: {sha}")))?;
        self.transact_and_wake(|access| {
            let repository = find_repository(access, full_name)?;
            let status = Status {
                id: access.next("status")?,
                sha: commit.sha.clone(),
                context,
                state,
                description,
                target_url,
                creator: by.to_owned(),
                created_at: now(),
            };
            access.put(&statuses_of(full_name, &status.sha), &status)?;
            let mut payload = shapes::status(&self.web, &status);
            payload["sha"] = status.sha.as_str().into();
            payload["name"] = full_name.into();
            payload["commit"] = shapes::repository_commit(&commit);
            payload["branches"] = repository
                .refs
                .iter()
                .filter(|(_, at)| **at == status.sha)
                .filter_map(|(name, _)| name.strip_prefix("refs/heads/"))
                .map(|name| json!({"name": name}))
                .collect();
            self.emit(access, &repository, by, Event::new("status", None, payload))?;
            Ok(status)
        })
    }

    /// Stores a new check run of a commit, records its events and returns it. It belongs to the
    /// application `by` and is queued unless `fields` say otherwise. An error (422) for an unknown
    /// commit, without a name, with an unknown state, or if it is completed without conclusion.
    pub async fn create_check_run(
        &self,
        full_name: &str,
        sha: &str,
        fields: CheckRunFields,
        by: &str,
    ) -> Result<CheckRun, ApiError> {
        let name = fields
            .name
            .clone()
            .ok_or_else(|| ApiError::invalid("Invalid request: \"name\" wasn't supplied."))?;
        let commit = self.git(full_name).resolve(sha).await?;
        let sha =
            commit.ok_or_else(|| ApiError::invalid(format!("No commit found for SHA: {sha}")))?;
        self.transact_and_wake(|access| {
            let run = CheckRun {
                id: access.next("check-run")?,
                sha,
                name,
                status: "queued".to_owned(),
                conclusion: None,
                external_id: None,
                details_url: None,
                title: None,
                summary: None,
                app: by.to_owned(),
                started_at: now(),
                completed_at: None,
            };
            self.put_check_run(access, full_name, run, fields, Some("created"), by)
        })
    }

    /// Changes the fields of a check run that are given, records an event if it is thereby
    /// completed, and returns it. An error (403) if it belongs to another application, 404 if there
    /// is none, 422 with an unknown state or if it is completed without conclusion.
    pub fn update_check_run(
        &self,
        full_name: &str,
        id: u64,
        fields: CheckRunFields,
        by: &str,
    ) -> Result<CheckRun, ApiError> {
        self.transact_and_wake(|access| {
            let run: CheckRun = access.get(full_name, id)?.ok_or_else(ApiError::not_found)?;
            if run.app != by {
                return Err(ApiError::refused(
                    403,
                    "Invalid app_id: the check run belongs to another app",
                ));
            }
            self.put_check_run(access, full_name, run, fields, None, by)
        })
    }

    /// Stores a check run with the given fields replaced, and returns it. A conclusion makes it
    /// completed; a check run that is not completed loses its conclusion. Records an event for
    /// `action`, if given, and one if it is now completed and was not before; that may complete its
    /// check suite, which is recorded too. The caller wakes the sender of webhooks after the
    /// commit. An error (422) for an unknown state, or if it is completed without conclusion.
    fn put_check_run(
        &self,
        access: &Access,
        full_name: &str,
        mut run: CheckRun,
        fields: CheckRunFields,
        action: Option<&'static str>,
        by: &str,
    ) -> Result<CheckRun, ApiError> {
        let repository = find_repository(access, full_name)?;
        let was_completed = run.status == "completed";
        run.name = fields.name.unwrap_or(run.name);
        run.external_id = fields.external_id.or(run.external_id);
        run.details_url = fields.details_url.or(run.details_url);
        run.title = fields.title.or(run.title);
        run.summary = fields.summary.or(run.summary);
        run.status = match &fields.conclusion {
            Some(_) => "completed".to_owned(),
            None => fields.status.unwrap_or(run.status),
        };
        run.conclusion =
            if run.status == "completed" { fields.conclusion.or(run.conclusion) } else { None };
        if !matches!(run.status.as_str(), "queued" | "in_progress" | "completed") {
            return Err(ApiError::invalid(
                "Invalid request: status is not one of queued, in_progress, completed",
            ));
        }
        if run.status == "completed" && run.conclusion.is_none() {
            return Err(ApiError::invalid(
                "Invalid request: a completed check run needs a conclusion",
            ));
        }
        run.completed_at = run.conclusion.as_ref().map(|_| now());
        access.put(full_name, &run)?;
        let is_over = run.status == "completed";
        let runs =
            |action| Event::new("check_run", action, json!({"check_run": shapes::check_run(&run)}));
        if let Some(action) = action {
            self.emit(access, &repository, by, runs(action))?;
        }
        if is_over && !was_completed {
            self.emit(access, &repository, by, runs("completed"))?;
            self.emit_suite(access, &repository, &run, by)?;
        }
        Ok(run)
    }

    /// Records a `check_suite` event if all stored check runs of the run's application on its
    /// commit are completed; otherwise does nothing. The event's conclusion is `success` if all of
    /// theirs are success, neutral or skipped, otherwise `failure`. The caller has stored `run`,
    /// and wakes the sender of webhooks after the commit.
    fn emit_suite(
        &self,
        access: &Access,
        repository: &Repository,
        run: &CheckRun,
        by: &str,
    ) -> Result<(), ApiError> {
        let all: Vec<CheckRun> = access.list(&repository.full_name)?;
        let mut suite = all.iter().filter(|other| other.sha == run.sha && other.app == run.app);
        if suite.clone().any(|other| other.status != "completed") {
            return Ok(());
        }
        let is_good = suite.all(|run| {
            matches!(run.conclusion.as_deref(), Some("success" | "neutral" | "skipped"))
        });
        let conclusion = if is_good { "success" } else { "failure" };
        let app = json!({"slug": run.app, "name": run.app});
        let suite = json!({"head_sha": run.sha, "status": "completed", "conclusion": conclusion, "app": app, "pull_requests": []});
        Ok(self.emit(
            access,
            repository,
            by,
            Event::new("check_suite", "completed", json!({"check_suite": suite})),
        )?)
    }

    /// Runs a transaction, and wakes the sender of webhooks if it succeeded, whether it recorded
    /// events or not.
    fn transact_and_wake<T>(
        &self,
        work: impl FnOnce(&Access) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let result = self.store.within(work)?;
        self.event_recorded.notify_one();
        Ok(result)
    }
}
