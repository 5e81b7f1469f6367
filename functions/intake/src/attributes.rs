//! The attributes of a change that have no time of their own: title, description, draft state,
//! topic, labels, votes, statuses.
//!
//! They are stored as they were last processed, so that a sweep finds updates that no event
//! reported. The webhook of an update that a sweep synthesized is not new when it arrives later.

use crate::self_authored;
use serde::{Deserialize, Serialize};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, CommitStatus};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::{CastVote, GerritEvent, Vote};
use sluice_model::id::digest;
use sluice_records::connection::StoredConnection;
use std::collections::{BTreeMap, BTreeSet};

/// The most attributes that are stored of one change; the others are not compared.
const NAMES_MAX: usize = 400;

/// The most synthesized updates that are remembered at a time.
const SYNTHESIZED_MAX: usize = 64;

/// How long in milliseconds a synthesized update is remembered: the same update later is another
/// one.
const SYNTHESIZED_MILLIS: u64 = 3_600_000;

/// Digits of a digest that identify a text.
const SHORT: usize = 16;

/// The attributes of a change as they were last processed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    /// The value of each attribute as it was processed, by name.
    values: BTreeMap<String, String>,
    /// The updates that a sweep synthesized, and when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    synthesized_at: BTreeMap<String, Timestamp>,
}

/// How new an event is, compared to what was processed before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Novelty {
    /// It is new.
    New,
    /// A sweep synthesized it already.
    AlreadySynthesized,
    /// Its comment is new, its votes were synthesized already: the event without the votes.
    CommentOnly(Box<ForgeEvent>),
}

/// What a sweep compares.
pub(crate) struct SweepScope {
    /// The connection of the sweep. Updates by its own account are synthesized only where a trigger
    /// matches them.
    pub(crate) connection: Option<StoredConnection>,
    /// Whether any pipeline uses statuses.
    pub(crate) statuses: bool,
    /// Whether the forge reports changes as Gerrit events.
    pub(crate) is_gerrit: bool,
}

impl SweepScope {
    /// Returns whether `by` is the account of the sweep's connection, so that Sluice made the
    /// update; false if the connection is not stored.
    pub(crate) fn is_own(&self, by: &str) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_own_account(by))
    }

    /// Returns whether `by` is, or may be, the account of the sweep's connection; false if the
    /// connection is not stored. Reviews by such an account are ignored, as in webhooks.
    pub(crate) fn may_be_self(&self, by: &str) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| self_authored::may_be_self(connection, by))
    }
}

/// An update of an attribute that no event reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MissedUpdate {
    /// The title or description; except at Gerrit, also the draft state and the topic.
    Edited,
    /// The draft state.
    Draft,
    /// The topic.
    Topic,
    /// A label or hashtag was removed.
    LabelRemoved(String),
    /// A vote was cast; with the value that it replaces.
    Vote(Vote, i64),
    /// A vote was removed: its label, its voter, and the value that it had.
    VoteRemoved(String, String, i64),
    /// A status or check run.
    Status(CommitStatus),
}

impl Attributes {
    /// Returns the attributes that the forge shows of a change, at most [`NAMES_MAX`], as if events
    /// had reported them.
    pub(crate) fn of(facts: &ChangeFacts) -> Self {
        Self {
            values: shown(facts).into_iter().take(NAMES_MAX).collect(),
            synthesized_at: BTreeMap::new(),
        }
    }

    /// Returns the attributes that the forge shows, to be stored after the first event of a change.
    /// If that event opens it or is a new revision, votes and statuses are left out: they have
    /// events of their own, which may be missed.
    pub(crate) fn first(event: &ForgeEvent, facts: &ChangeFacts) -> Self {
        let mut first = Self::of(facts);
        if is_new_revision(event) || is_opened(event) {
            first.values.retain(|name, _| !is_of_revision(name));
        }
        first
    }

    /// Forgets which updates a sweep synthesized, because the change has a new revision.
    pub(crate) fn forget_synthesized(&mut self) {
        self.synthesized_at.clear();
    }

    /// Stores what the forge shows for the attributes that an event may have changed. Not stored
    /// are shown votes and statuses at a new revision, stale statuses, statuses other than the
    /// event's, and new names beyond [`NAMES_MAX`]. The flag is true if a stored value appeared,
    /// disappeared or became another. An event without `update_keys` is always new. A synthesized
    /// event with them is new only if a value changed; its updates are then noted as synthesized. A
    /// webhook with them is new unless nothing changed and a sweep synthesized all its updates
    /// within the last hour; of such a Gerrit comment with text only the votes are not new.
    pub(crate) fn apply(
        &mut self,
        event: &ForgeEvent,
        facts: &ChangeFacts,
        is_synthesized: bool,
    ) -> (Novelty, bool) {
        self.synthesized_at.retain(|_, at| facts.seen_at.since(*at) < SYNTHESIZED_MILLIS);
        let now = shown(facts);
        let names: BTreeSet<String> = self
            .values
            .keys()
            .chain(now.keys())
            .filter(|name| concerns(event, name))
            .cloned()
            .collect();
        let mut differs = false;
        for name in names {
            let (stored, value) = (self.values.get(&name), now.get(&name));
            if stored == value {
                continue;
            }
            let is_other = !is_same(&name, stored, value);
            match value {
                // A vote or status on the new revision: its own event may have been read before the
                // forge showed it, so only that event records it.
                Some(_) if is_new_revision(event) && is_of_revision(&name) => continue,
                // The forge's answer is stale.
                Some(_) if is_older_status(&name, stored, value) => continue,
                // The change shows another status than the event: that has an event of its own,
                // which may be missed; or the forge does not show this one yet.
                _ if is_other_status_shown(event, value) => continue,
                Some(value) if self.has_room(&name) => {
                    drop(self.values.insert(name, value.clone()))
                }
                Some(_) => continue,
                None => drop(self.values.remove(&name)),
            }
            differs |= is_other;
        }
        let words = update_keys(event);
        if words.is_empty() {
            return (Novelty::New, differs);
        }
        if is_synthesized {
            if differs && self.synthesized_at.len() < SYNTHESIZED_MAX {
                self.synthesized_at.extend(words.into_iter().map(|words| (words, facts.seen_at)));
            }
            return (if differs { Novelty::New } else { Novelty::AlreadySynthesized }, differs);
        }
        // Nothing changed, and a sweep synthesized all of it: its webhook arrives later.
        let synthesized_votes =
            words.iter().filter(|words| self.synthesized_at.remove(*words).is_some()).count();
        let is_late = synthesized_votes == words.len() && !differs;
        let novelty = match (is_late, &event.kind) {
            (false, _) => Novelty::New,
            (true, EventKind::Gerrit(gerrit)) if has_comment(gerrit) => {
                let gerrit = GerritEvent { votes: Vec::new(), ..gerrit.clone() };
                Novelty::CommentOnly(Box::new(ForgeEvent {
                    kind: EventKind::Gerrit(gerrit),
                    ..event.clone()
                }))
            }
            (true, _) => Novelty::AlreadySynthesized,
        };
        (novelty, differs)
    }

    /// Returns whether the stored attributes are those that the forge shows, so that every update
    /// was processed. Statuses do not count, because the forge does not count them as updates of
    /// the change. Neither do new attributes beyond [`NAMES_MAX`].
    pub(crate) fn are_complete(&self, facts: &ChangeFacts) -> bool {
        let moves = |name: &&String| !name.starts_with(STATUS);
        let now = shown(facts);
        let names: BTreeSet<&String> = self.values.keys().chain(now.keys()).filter(moves).collect();
        names
            .into_iter()
            .all(|name| is_same(name, self.values.get(name), now.get(name)) || !self.has_room(name))
    }

    /// Returns the updates that the forge shows and no event reported; stores nothing. Left out are
    /// added labels, which have marks in [`SeenEvents`](crate::seen_events::SeenEvents), removed
    /// votes of the connection's own account, all statuses unless `scope.statuses`, check runs that
    /// have not ended, and new attributes beyond [`NAMES_MAX`].
    pub(crate) fn missed_updates(
        &self,
        facts: &ChangeFacts,
        scope: &SweepScope,
    ) -> Vec<MissedUpdate> {
        let now = shown(facts);
        let differs = |name: &str| {
            !is_same(name, self.values.get(name), now.get(name)) && self.has_room(name)
        };
        let mut lost = Vec::new();
        let texts = differs(TITLE) || differs(MESSAGE);
        if scope.is_gerrit {
            lost.extend(texts.then_some(MissedUpdate::Edited));
            lost.extend(differs(DRAFT).then_some(MissedUpdate::Draft));
            lost.extend(differs(TOPIC).then_some(MissedUpdate::Topic));
        } else {
            lost.extend(
                (texts || differs(DRAFT) || differs(TOPIC)).then_some(MissedUpdate::Edited),
            );
        }
        let gone = self.values.iter().filter(|(name, _)| !now.contains_key(*name));
        for (name, value) in gone {
            if let Some(label) = name.strip_prefix(LABEL) {
                lost.push(MissedUpdate::LabelRemoved(label.to_owned()));
            }
            if let Some((label, by)) = name.strip_prefix(VOTE).and_then(|vote| vote.split_once(BY))
                && !scope.is_own(by)
            {
                lost.push(MissedUpdate::VoteRemoved(
                    label.to_owned(),
                    by.to_owned(),
                    value_of(value),
                ));
            }
        }
        for vote in facts.votes.iter().filter(|vote| differs(&vote_name(vote))) {
            let before = self.values.get(&vote_name(vote)).map_or(0, |stored| value_of(stored));
            // The same value again: it was removed in between, which was missed as well.
            lost.push(MissedUpdate::Vote(
                vote.clone(),
                if before == vote.value { 0 } else { before },
            ));
        }
        // Only the end of a check run is an event.
        let is_reported = |status: &&CommitStatus| !(status.is_check && status.state == "pending");
        let statuses = facts.statuses.iter().filter(is_reported).filter(|_| scope.statuses);
        lost.extend(
            statuses
                .filter(|status| differs(&status_name(&status.by, &status.context)))
                .cloned()
                .map(MissedUpdate::Status),
        );
        lost
    }

    /// Returns whether an attribute of this name can be stored: it is stored already, or there are
    /// fewer than [`NAMES_MAX`].
    fn has_room(&self, name: &str) -> bool {
        self.values.contains_key(name) || self.values.len() < NAMES_MAX
    }
}

impl MissedUpdate {
    /// Returns the text that identifies this missed update among the updates of its change. For an
    /// edit, a draft state and a topic it includes the value that `facts` shows, for a vote its
    /// value and time, for a status its state and number.
    pub(crate) fn mark(&self, facts: &ChangeFacts) -> String {
        let now = shown(facts);
        let value = |name: &str| now.get(name).map_or("", String::as_str).to_owned();
        match self {
            Self::Edited => {
                format!(
                    "edited {}",
                    short(
                        &[TITLE, MESSAGE, DRAFT, TOPIC].map(value).each_ref().map(String::as_str)
                    )
                )
            }
            Self::Draft => format!("draft {}", value(DRAFT)),
            Self::Topic => format!("topic {}", value(TOPIC)),
            Self::LabelRemoved(label) => format!("no label {label}"),
            Self::Vote(Vote { label, value, username, cast_at, .. }, _) => {
                format!("vote {label} {value:+} by {username} at {}", cast_at.0)
            }
            Self::VoteRemoved(label, by, before) => format!("no vote {label} {before:+} by {by}"),
            Self::Status(status) => format!("status {}", with_number(status_text(status), status)),
        }
    }

    /// Returns the account that made the update; empty if the forge does not show it. For a removed
    /// vote it is the voter.
    pub(crate) fn by(&self) -> &str {
        match self {
            Self::Vote(vote, _) => &vote.username,
            Self::VoteRemoved(_, by, _) => by,
            Self::Status(status) => &status.by,
            Self::Edited | Self::Draft | Self::Topic | Self::LabelRemoved(_) => "",
        }
    }

    /// Builds the event that a webhook would have delivered for this update. `is_gerrit` selects
    /// the form of edits and removed labels; every other update exists at one forge only and has
    /// that one's form. The account is set in Gerrit's form only.
    pub(crate) fn kind(&self, number: u64, is_gerrit: bool) -> EventKind {
        let change = |event: &str, action: &str, label: Option<String>, status: Option<String>| {
            let (event, action) = (event.to_owned(), action.to_owned());
            EventKind::Change { number, event, action, comment: None, label, state: None, status }
        };
        let gerrit = |r#type: &str, stored: GerritEvent| {
            let (r#type, username) = (r#type.to_owned(), self.by().to_owned());
            EventKind::Gerrit(GerritEvent { number, r#type, username, ..stored })
        };
        let none = GerritEvent::default;
        match self {
            Self::Edited if is_gerrit => gerrit(TEXTS_EDITED, none()),
            Self::Edited => change("pull_request", "edited", None, None),
            Self::Draft => gerrit("wip-state-changed", none()),
            Self::Topic => gerrit("topic-changed", none()),
            Self::LabelRemoved(label) if is_gerrit => {
                gerrit("hashtags-changed", GerritEvent { removed: vec![label.clone()], ..none() })
            }
            Self::LabelRemoved(label) => {
                change("pull_request", "unlabeled", Some(label.clone()), None)
            }
            Self::Vote(vote, before) => {
                let cast = CastVote {
                    label: vote.label.clone(),
                    value: vote.value,
                    before: Some(*before),
                };
                let email = vote.email.clone();
                gerrit("comment-added", GerritEvent { votes: vec![cast], email, ..none() })
            }
            Self::VoteRemoved(label, _, before) => {
                let cast = CastVote { label: label.clone(), value: 0, before: Some(*before) };
                gerrit("vote-deleted", GerritEvent { votes: vec![cast], ..none() })
            }
            Self::Status(status) => {
                let (event, action) = if status.is_check {
                    ("check_run", "completed")
                } else {
                    ("pull_request", "status")
                };
                change(event, action, None, Some(status_text(status)))
            }
        }
    }
}

const TITLE: &str = "title";
const MESSAGE: &str = "message";
const DRAFT: &str = "draft";
const TOPIC: &str = "topic";
/// Prefixes of the names of attributes that occur several times.
const LABEL: &str = "label ";
const VOTE: &str = "vote ";
const STATUS: &str = "status ";
/// A Gerrit event that Gerrit's stream does not have: a new description on the same patchset.
const TEXTS_EDITED: &str = "edited";
/// Separates a vote's label from its voter; no label name contains a space.
const BY: &str = " by ";
/// Separates a vote's value from its time, and a status from its number. A vote that was removed
/// and cast again is another vote, and may be what a dequeued change waits for. A status that is
/// set again is another report.
const AT: &str = " at ";

/// Returns the attributes that the forge shows of a change, by name. Title and description are
/// digests, a label's value is empty, and votes and statuses carry their time or number.
fn shown(facts: &ChangeFacts) -> BTreeMap<String, String> {
    let mut shown = BTreeMap::from([
        (TITLE.to_owned(), short(&[&facts.title])),
        (MESSAGE.to_owned(), short(&[&facts.message])),
        (DRAFT.to_owned(), facts.draft.to_string()),
    ]);
    shown.extend(facts.topic.iter().map(|topic| (TOPIC.to_owned(), topic.clone())));
    shown.extend(facts.labels.iter().map(|label| (format!("{LABEL}{label}"), String::new())));
    shown.extend(
        facts
            .votes
            .iter()
            .map(|vote| (vote_name(vote), format!("{}{AT}{}", vote.value, vote.cast_at.0))),
    );
    let statuses = facts.statuses.iter();
    shown.extend(statuses.map(|status| {
        (status_name(&status.by, &status.context), with_number(status.state.clone(), status))
    }));
    shown
}

/// Returns whether an event may have changed the attribute of this name.
fn concerns(event: &ForgeEvent, name: &str) -> bool {
    match &event.kind {
        EventKind::Gerrit(gerrit) => match gerrit.r#type.as_str() {
            // The description is the commit's, and votes are on a patchset.
            "patchset-created" => name == TITLE || name == MESSAGE || is_of_revision(name),
            "comment-added" | "vote-deleted" => {
                gerrit.votes.iter().any(|vote| is_named(gerrit, vote, name))
            }
            "hashtags-changed" => {
                let mut tags = gerrit.added.iter().chain(&gerrit.removed);
                name.strip_prefix(LABEL).is_some_and(|label| tags.any(|tag| tag == label))
            }
            "topic-changed" => name == TOPIC,
            "wip-state-changed" | "private-state-changed" => name == DRAFT,
            TEXTS_EDITED => name == TITLE || name == MESSAGE,
            _ => false,
        },
        EventKind::Change { action, label, status, .. } => match action.as_str() {
            // Statuses are on a head.
            "changed" => is_of_revision(name),
            "edited" => [TITLE, MESSAGE, DRAFT, TOPIC].contains(&name),
            "labeled" | "unlabeled" => {
                label.is_some() && name.strip_prefix(LABEL) == label.as_deref()
            }
            "status" | "completed" => {
                status.as_deref().and_then(status_name_of) == Some(name.to_owned())
            }
            _ => false,
        },
        _ => false,
    }
}

/// Returns whether an event reports a new revision of a change, which removes the votes and
/// statuses of the old one. The event that opens a GitHub change does not.
fn is_new_revision(event: &ForgeEvent) -> bool {
    match &event.kind {
        EventKind::Gerrit(gerrit) => gerrit.r#type == "patchset-created",
        EventKind::Change { action, .. } => action == "changed",
        _ => false,
    }
}

/// Returns whether an event reports that the change was opened.
fn is_opened(event: &ForgeEvent) -> bool {
    matches!(&event.kind, EventKind::Change { action, .. } if action == "opened")
}

/// Returns whether an attribute is a vote or status, which belongs to one revision of the change.
fn is_of_revision(name: &str) -> bool {
    name.starts_with(VOTE) || name.starts_with(STATUS)
}

/// Returns whether a vote in an event belongs to the attribute `name`. A removal without a voter
/// matches the votes of all voters.
fn is_named(gerrit: &GerritEvent, vote: &CastVote, name: &str) -> bool {
    let named = name.strip_prefix(VOTE).and_then(|named| named.split_once(BY));
    let is_by = |by: &str| {
        by == gerrit.username || (gerrit.username.is_empty() && gerrit.r#type == "vote-deleted")
    };
    named.is_some_and(|(label, by)| label == vote.label && is_by(by))
}

/// Returns the keys by which a repeated update is recognised; empty for an event that is always
/// new. Each vote has a key of its own, because a sweep synthesizes one event for each. A vote that
/// keeps its value, or whose earlier value is unknown, has none.
fn update_keys(event: &ForgeEvent) -> Vec<String> {
    match &event.kind {
        EventKind::Gerrit(gerrit) => match gerrit.r#type.as_str() {
            "comment-added" => {
                let cast = gerrit
                    .votes
                    .iter()
                    .filter(|vote| vote.before.is_some_and(|before| before != vote.value));
                cast.map(|vote| {
                    short(&["votes", &gerrit.username, &format!("{}{:+}", vote.label, vote.value)])
                })
                .collect()
            }
            "vote-deleted" => gerrit
                .votes
                .iter()
                .map(|vote| short(&["vote-deleted", &gerrit.username, &vote.label]))
                .collect(),
            "hashtags-changed" => {
                vec![short(&["hashtags", &gerrit.added.join(" "), &gerrit.removed.join(" ")])]
            }
            word @ ("topic-changed" | "wip-state-changed" | TEXTS_EDITED) => vec![word.to_owned()],
            _ => Vec::new(),
        },
        EventKind::Change { action, label, status, .. } => match action.as_str() {
            "edited" => vec!["edited".to_owned()],
            "unlabeled" => vec![short(&["unlabeled", label.as_deref().unwrap_or_default()])],
            "status" | "completed" => {
                vec![short(&["status", status.as_deref().unwrap_or_default()])]
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Returns whether a comment has text beyond its first line, which lists the votes.
fn has_comment(gerrit: &GerritEvent) -> bool {
    gerrit
        .comment
        .iter()
        .flat_map(|comment| comment.lines().skip(1))
        .any(|line| !line.trim().is_empty())
}

/// Returns the name of the attribute that stores a vote: its label and its voter.
fn vote_name(vote: &Vote) -> String {
    format!("{VOTE}{}{BY}{}", vote.label, vote.username)
}

/// Parses the value of a stored vote; 0 if it is no number.
fn value_of(stored: &str) -> i64 {
    split_value(stored).0.parse().unwrap_or_default()
}

/// Splits a stored vote or status into its value, and its time in milliseconds or its number;
/// `None` where it has none.
fn split_value(stored: &str) -> (&str, Option<u64>) {
    stored.split_once(AT).map_or((stored, None), |(value, at)| (value, at.parse().ok()))
}

/// Returns whether the current value of an attribute equals the stored one, or is a status older
/// than it. A stored vote or status without time or number equals any with the same value.
fn is_same(name: &str, stored: Option<&String>, now: Option<&String>) -> bool {
    let has_suffix = name.starts_with(VOTE) || name.starts_with(STATUS);
    let is_old = |stored: &String| has_suffix && !stored.contains(AT);
    let is_value = |stored: &String, now: &String| split_value(stored).0 == split_value(now).0;
    stored == now
        || is_older_status(name, stored, now)
        || stored.zip(now).is_some_and(|(stored, now)| is_old(stored) && is_value(stored, now))
}

/// Returns whether an event reports a status while the forge shows a status with another state, or
/// none, in its place; false for any other event.
fn is_other_status_shown(event: &ForgeEvent, shown: Option<&String>) -> bool {
    let EventKind::Change { action, status: Some(reported), .. } = &event.kind else {
        return false;
    };
    let state = reported.rsplit_once(':').map(|(_, state)| state);
    matches!(action.as_str(), "status" | "completed")
        && state != shown.map(|shown| split_value(shown).0)
}

/// Returns whether the attribute `name` is a status and the one that the forge shows is older than
/// the stored one; false if either is missing. Numbers grow, and the forge's answer may be stale. A
/// shown status without a number is older only if the stored one has a number and the same value.
fn is_older_status(name: &str, stored: Option<&String>, now: Option<&String>) -> bool {
    let (Some(stored), Some(now), true) = (stored, now, name.starts_with(STATUS)) else {
        return false;
    };
    match (split_value(stored), split_value(now)) {
        ((_, Some(last)), (_, Some(number))) => number < last,
        ((stored, Some(_)), (now, None)) => stored == now,
        _ => false,
    }
}

/// Returns the name of the attribute that stores a status, from its author and context.
fn status_name(by: &str, context: &str) -> String {
    format!("{STATUS}{}", short(&[by, context]))
}

/// Formats a status as webhooks write it, `author:context:state`.
fn status_text(status: &CommitStatus) -> String {
    format!("{}:{}:{}", status.by, status.context, status.state)
}

/// Appends the forge's number of a status to its value, if it has one.
fn with_number(word: String, status: &CommitStatus) -> String {
    status.number.map_or(word.clone(), |number| format!("{word}{AT}{number}"))
}

/// Returns the name of the attribute for a status in the text form of an event; `None` if the text
/// has another form.
fn status_name_of(text: &str) -> Option<String> {
    let (by, rest) = text.split_once(':')?;
    let (context, _) = rest.rsplit_once(':')?;
    Some(status_name(by, context))
}

/// Returns the first [`SHORT`] characters of the digest of `parts`.
fn short(parts: &[&str]) -> String {
    digest(parts).chars().take(SHORT).collect()
}

#[cfg(test)]
mod tests;
