//! Turns a webhook body into an event in the vocabulary of Zuul's GitHub triggers.

use super::payload::{
    CheckRunEvent, CommentEvent, Envelope, PullRequestEvent, PushEvent, ReviewEvent, StatusEvent,
};
use crate::marker::Marker;
use serde::Deserialize;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::{ConnectionName, ProjectName};

/// The result of parsing a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// An event about a change or a ref.
    Event {
        /// The event, as a hint: the change is read again before any decision.
        event: ForgeEvent,
        /// The marker of a comment or review that Sluice wrote.
        marker: Option<Marker>,
    },
    /// An event about a commit. It concerns each open change with that head.
    OnCommit {
        /// The event.
        event: CommitEvent,
        /// The marker of a check run that Sluice wrote.
        marker: Option<Marker>,
    },
    /// A genuine event that is ignored; only its receipt is recorded.
    Ignored {
        /// The reason.
        reason: String,
    },
    /// A body that GitHub does not send under this name. It is quarantined.
    Malformed {
        /// The error; it quotes no value of the body.
        reason: String,
    },
}

/// A status or check run on a commit; [`CommitEvent::about`] returns the event of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitEvent {
    /// The connection that received it.
    pub connection: ConnectionName,
    /// The project.
    pub project: ProjectName,
    /// The login that caused it.
    pub sender: String,
    /// The commit.
    pub head: Oid,
    /// `pull_request` (a status) or `check_run`.
    pub event: &'static str,
    /// `status`, `rerequested` or `completed`.
    pub action: &'static str,
    /// `login:context:state`, for a check run `application:name:conclusion`.
    pub status: String,
}

impl CommitEvent {
    /// Returns the event on the change `number`, whose head is the commit.
    pub fn about(&self, number: u64) -> ForgeEvent {
        let kind = Change {
            status: Some(self.status.clone()),
            ..Change::new(number, self.event, self.action)
        }
        .kind();
        ForgeEvent {
            connection: self.connection.clone(),
            project: self.project.clone(),
            sender: self.sender.clone(),
            kind,
        }
    }
}

/// Parses the `body` of the event `event_name` (`X-GitHub-Event`), received by `connection` from
/// the forge `host`. It never fails: an event from which nothing follows is [`Parsed::Ignored`], an
/// unreadable body [`Parsed::Malformed`]. It checks no signature ([`super::verify`]), nor whether
/// Sluice itself caused the event: the caller compares sender and marker.
pub fn parse(connection: &ConnectionName, host: &str, event_name: &str, body: &[u8]) -> Parsed {
    match read(connection, host, event_name, body) {
        Ok(parsed) => parsed,
        Err(Nothing::Ignored(reason)) => Parsed::Ignored { reason },
        Err(Nothing::Malformed(reason)) => Parsed::Malformed { reason },
    }
}

/// Why there is no event.
enum Nothing {
    Ignored(String),
    Malformed(String),
}

/// Who and where, common to all events.
struct Origin {
    connection: ConnectionName,
    project: ProjectName,
    sender: String,
}

/// Parses an event about a pull request, a review, a comment, a push, a status or a check run. The
/// error says why the event is ignored, as every other event is, or malformed: a body without
/// repository, sender or a required field, or with a repository that is not named `owner/name`.
fn read(
    connection: &ConnectionName,
    host: &str,
    event_name: &str,
    body: &[u8],
) -> Result<Parsed, Nothing> {
    if !matches!(
        event_name,
        "pull_request" | "pull_request_review" | "issue_comment" | "push" | "status" | "check_run"
    ) {
        return Err(ignored(format!(
            "no pipeline can be triggered by the event {}",
            shown(event_name)
        )));
    }
    let envelope: Envelope = decode(event_name, body)?;
    let (Some(repository), Some(sender)) = (envelope.repository, envelope.sender) else {
        return Err(malformed(event_name, "it names no repository or no sender"));
    };
    if !is_full_name(&repository.full_name) {
        return Err(malformed(event_name, "its repository is not named owner/name"));
    }
    let project = ProjectName::new(host, &repository.full_name);
    let origin = Origin { connection: connection.clone(), project, sender: sender.login };
    match event_name {
        "pull_request" => pull_request(origin, decode(event_name, body)?),
        "pull_request_review" => review(origin, decode(event_name, body)?),
        "issue_comment" => comment(origin, decode(event_name, body)?),
        "push" => push(origin, decode(event_name, body)?),
        "status" => status(origin, decode(event_name, body)?),
        _ => check_run(origin, decode(event_name, body)?),
    }
}

/// Parses an event about a pull request; ignored if its action has no meaning for Sluice. A change
/// of the draft state counts as an edit. Malformed if a label event names no label.
fn pull_request(origin: Origin, payload: PullRequestEvent) -> Result<Parsed, Nothing> {
    let action = match payload.action.as_str() {
        "opened" => "opened",
        "synchronize" => "changed",
        "closed" => "closed",
        "reopened" => "reopened",
        "labeled" => "labeled",
        "unlabeled" => "unlabeled",
        // The draft state is an attribute like the title: the proposed commits stay the same.
        "edited" | "ready_for_review" | "converted_to_draft" => "edited",
        other => {
            return Err(ignored(format!(
                "nothing follows from a pull request being {}",
                shown(other)
            )));
        }
    };
    let label = payload.label.map(|label| label.name);
    if label.is_none() && action.ends_with("labeled") {
        return Err(malformed("pull_request", "it names no label"));
    }
    Ok(origin.event(Change { label, ..Change::new(payload.number, "pull_request", action) }, None))
}

/// Parses an event about a submitted or dismissed review, with Sluice's marker if its text has one.
/// Other actions are ignored; an unknown state is malformed.
fn review(origin: Origin, payload: ReviewEvent) -> Result<Parsed, Nothing> {
    let action = match payload.action.as_str() {
        "submitted" => "submitted",
        "dismissed" => "dismissed",
        other => {
            return Err(ignored(format!("nothing follows from a review being {}", shown(other))));
        }
    };
    let state = match payload.review.state.to_ascii_lowercase().as_str() {
        "commented" => "comment".to_owned(),
        state @ ("approved" | "changes_requested" | "dismissed") => state.to_owned(),
        _ => return Err(malformed("pull_request_review", "its review has an unknown state")),
    };
    let marker = payload.review.body.as_deref().and_then(Marker::find);
    let change = Change {
        state: Some(state),
        ..Change::new(payload.pull_request.number, "pull_request_review", action)
    };
    Ok(origin.event(change, marker))
}

/// Parses an event about a new comment on a pull request, with Sluice's marker if its text has one.
/// A comment on an issue, and one that was edited or deleted, is ignored.
fn comment(origin: Origin, payload: CommentEvent) -> Result<Parsed, Nothing> {
    if payload.issue.pull_request.is_none() {
        return Err(ignored("the comment is on an issue, not on a pull request".to_owned()));
    }
    if payload.action != "created" {
        return Err(ignored(format!(
            "nothing follows from a comment being {}",
            shown(&payload.action)
        )));
    }
    let marker = Marker::find(&payload.comment.body);
    let change = Change {
        comment: Some(payload.comment.body),
        ..Change::new(payload.issue.number, "pull_request", "comment")
    };
    Ok(origin.event(change, marker))
}

/// Parses the move, creation or deletion of a branch or tag. Malformed if the ref does not start
/// with `refs/` or a commit is not an object id.
fn push(origin: Origin, payload: PushEvent) -> Result<Parsed, Nothing> {
    if !payload.git_ref.starts_with("refs/") {
        return Err(malformed("push", "its ref does not start with refs/"));
    }
    let (oldrev, newrev) = (oid("push", payload.before)?, oid("push", payload.after)?);
    let kind = EventKind::Push { git_ref: payload.git_ref, oldrev, newrev };
    Ok(origin.with(kind, None))
}

/// Parses the event of a commit status, of any state; the sender counts as its author. Malformed if
/// its commit is not an object id.
fn status(origin: Origin, payload: StatusEvent) -> Result<Parsed, Nothing> {
    let status = format!("{}:{}:{}", origin.sender, payload.context, payload.state);
    let head = oid("status", payload.sha)?;
    Ok(origin.on_commit(head, "pull_request", "status", status, None))
}

/// Parses an event of a check run that was completed or is to run again, with the marker if Sluice
/// made the run. Other actions are ignored. Malformed if its commit is not an object id.
fn check_run(origin: Origin, payload: CheckRunEvent) -> Result<Parsed, Nothing> {
    let action = match payload.action.as_str() {
        "rerequested" => "rerequested",
        "completed" => "completed",
        other => {
            return Err(ignored(format!(
                "nothing follows from a check run being {}",
                shown(other)
            )));
        }
    };
    let run = payload.check_run;
    let head = oid("check_run", run.head_sha)?;
    let application = run.app.and_then(|app| app.slug).unwrap_or_default();
    let status = format!("{application}:{}:{}", run.name, run.conclusion.unwrap_or_default());
    let marker = run.external_id.as_deref().and_then(Marker::from_external_id);
    Ok(origin.on_commit(head, "check_run", action, status, marker))
}

/// The fields of [`EventKind::Change`], most of them usually absent.
struct Change {
    number: u64,
    event: &'static str,
    action: &'static str,
    comment: Option<String>,
    label: Option<String>,
    state: Option<String>,
    status: Option<String>,
}

impl Change {
    /// Returns a change event without details.
    fn new(number: u64, event: &'static str, action: &'static str) -> Self {
        Self { number, event, action, comment: None, label: None, state: None, status: None }
    }

    /// Returns the event about a change with its details, in the form of the records.
    fn kind(self) -> EventKind {
        let Self { number, event, action, comment, label, state, status } = self;
        EventKind::Change {
            number,
            event: event.to_owned(),
            action: action.to_owned(),
            comment,
            label,
            state,
            status,
        }
    }
}

impl Origin {
    /// Returns the parsed event about a change.
    fn event(self, change: Change, marker: Option<Marker>) -> Parsed {
        self.with(change.kind(), marker)
    }

    /// Returns the parsed event of this kind.
    fn with(self, kind: EventKind, marker: Option<Marker>) -> Parsed {
        let Self { connection, project, sender } = self;
        Parsed::Event { event: ForgeEvent { connection, project, sender, kind }, marker }
    }

    /// Returns the parsed event about a commit.
    fn on_commit(
        self,
        head: Oid,
        event: &'static str,
        action: &'static str,
        status: String,
        marker: Option<Marker>,
    ) -> Parsed {
        let Self { connection, project, sender } = self;
        Parsed::OnCommit {
            event: CommitEvent { connection, project, sender, head, event, action, status },
            marker,
        }
    }
}

/// Decodes the body of an event. Malformed if it is no JSON or lacks a field; the error quotes no
/// value of the body.
fn decode<'a, T: Deserialize<'a>>(event_name: &str, body: &'a [u8]) -> Result<T, Nothing> {
    serde_json::from_slice(body).map_err(|error| {
        // The error's own text may quote a value; its class and place do not.
        let (kind, line, column) = (error.classify(), error.line(), error.column());
        let advice = match body.starts_with(b"payload=") {
            // GitHub's own default for a new webhook.
            true => "; it is form-encoded: set the webhook's content type to application/json",
            false => "",
        };
        malformed(event_name, &format!("{kind:?} error at line {line} column {column}{advice}"))
    })
}

/// Returns a commit id after a check of its form; malformed unless it has 40 or 64 hexadecimal
/// digits.
fn oid(event_name: &str, text: String) -> Result<Oid, Nothing> {
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id {
        Ok(Oid(text))
    } else {
        Err(malformed(event_name, "a commit in it is not a git object id"))
    }
}

/// Returns whether a text has the form `owner/name`: two parts of at most 100 letters, digits, `.`,
/// `_` or `-`, neither `.` nor `..`.
fn is_full_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty()
            && part.len() <= 100
            && part != "."
            && part != ".."
            && part.chars().all(allowed)
    };
    name.split_once('/').is_some_and(|(owner, name)| is_part(owner) && is_part(name))
}

/// Returns that an event is ignored, with the reason.
fn ignored(reason: String) -> Nothing {
    Nothing::Ignored(reason)
}

/// Returns that an event is malformed, with the reason.
fn malformed(event_name: &str, what: &str) -> Nothing {
    Nothing::Malformed(format!("could not read the {event_name} payload: {what}"))
}

/// Returns the letters, digits and underscores of an untrusted word, at most 40, for display.
fn shown(word: &str) -> String {
    word.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(40).collect()
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
