//! What a change shows that bears no time of its own: title, description, draft, topic, labels,
//! votes, statuses.
//!
//! Kept as it was when it was told of last, so that a sweep finds what was changed without a word.
//! What a sweep made up for is no news when it is told after all.

use crate::own;
use serde::{Deserialize, Serialize};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, CommitStatus};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::{CastVote, GerritEvent, Vote};
use sluice_model::id::digest;
use sluice_records::connection::Connection;
use std::collections::{BTreeMap, BTreeSet};

/// Attributes of one change that are remembered; what there is no room for is neither compared nor
/// missed.
const NAMES_MAX: usize = 400;

/// Things that a sweep made up for and that are remembered at once.
const MADE_UP_MAX: usize = 64;

/// Milliseconds for which what a sweep made up for is remembered: what comes later in the same
/// words is another thing.
const MADE_UP_MILLIS: u64 = 3_600_000;

/// Letters of a name that are as good as all of them.
const SHORT: usize = 16;

/// The attributes of a change as they were told last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    told: BTreeMap<String, String>,
    /// What a sweep made up for, and when. Older records say it without a time, as `made_up`, which
    /// is not heeded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    made_up_at: BTreeMap<String, Timestamp>,
}

/// What an event is after what was told before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// News.
    News,
    /// Something that a sweep told already.
    Known,
    /// Words that are news, with votes that a sweep told already: the event without these.
    Words(Box<ForgeEvent>),
}

/// What a sweep asks for.
pub(crate) struct Asks {
    /// The connection that it asks by: of what its own account did that alone is told which a
    /// trigger is for.
    pub(crate) connection: Option<Connection>,
    /// Whether any pipeline heeds statuses.
    pub(crate) statuses: bool,
    /// Whether the forge tells of changes in Gerrit's words.
    pub(crate) is_gerrit: bool,
}

impl Asks {
    pub(crate) fn is_own(&self, by: &str) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_own(by))
    }

    /// Returns whether somebody's reviews are our own, or may be: the webhook leaves those out.
    pub(crate) fn may_be_own(&self, by: &str) -> bool {
        self.connection.as_ref().is_some_and(|connection| own::may_be_own(connection, by))
    }
}

/// An attribute that was changed without a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The title, the description; where they are told alike, also the draft's state and the topic.
    Edited,
    /// Work in progress, or no more.
    Draft,
    /// The topic.
    Topic,
    /// A label or hashtag was taken off.
    LabelOff(String),
    /// A vote was cast, instead of this value.
    Vote(Vote, i64),
    /// A vote on this label by this voter was taken back, which had this value.
    VoteOff(String, String, i64),
    /// A status or check run.
    Status(CommitStatus),
}

impl Attributes {
    /// Returns the attributes of a change of which nothing was told before.
    pub(crate) fn of(facts: &ChangeFacts) -> Self {
        Self {
            told: shown(facts).into_iter().take(NAMES_MAX).collect(),
            made_up_at: BTreeMap::new(),
        }
    }

    /// Returns the attributes of a change of which this is told first. Where that is a revision,
    /// what is on it has words of its own, which may be lost.
    pub(crate) fn first(event: &ForgeEvent, facts: &ChangeFacts) -> Self {
        let mut first = Self::of(facts);
        if takes_away(event) || is_opened(event) {
            first.told.retain(|name, _| !is_of_revision(name));
        }
        first
    }

    /// Forgets what a sweep made up for: it was of another revision.
    pub(crate) fn forget_made_up(&mut self) {
        self.made_up_at.clear();
    }

    /// Takes in what an event tells of them, and returns whether that is news. `changed` says
    /// whether anything is another than before.
    pub(crate) fn hear(
        &mut self,
        event: &ForgeEvent,
        facts: &ChangeFacts,
        is_made_up: bool,
    ) -> (Said, bool) {
        self.made_up_at.retain(|_, at| facts.seen_at.since(*at) < MADE_UP_MILLIS);
        let now = shown(facts);
        let names: BTreeSet<String> =
            self.told.keys().chain(now.keys()).filter(|name| tells(event, name)).cloned().collect();
        let mut differs = false;
        for name in names {
            let (told, value) = (self.told.get(&name), now.get(&name));
            if told == value {
                continue;
            }
            let is_other = !is_same(&name, told, value);
            match value {
                // What was told of it may have been read before the forge showed it: only its own
                // words say that it was not.
                Some(_) if takes_away(event) && is_of_revision(&name) => continue,
                // An older answer of the forge: what was told is newer.
                Some(_) if is_behind(&name, told, value) => continue,
                // Another one has words of its own, which may be lost; or the forge does not show
                // yet what this tells.
                _ if is_of_another(event, value) => continue,
                Some(value) if self.has_room(&name) => drop(self.told.insert(name, value.clone())),
                Some(_) => continue,
                None => drop(self.told.remove(&name)),
            }
            differs |= is_other;
        }
        let words = words(event);
        if words.is_empty() {
            return (Said::News, differs);
        }
        if is_made_up {
            if differs && self.made_up_at.len() < MADE_UP_MAX {
                self.made_up_at.extend(words.into_iter().map(|words| (words, facts.seen_at)));
            }
            return (if differs { Said::News } else { Said::Known }, differs);
        }
        // Nothing is other than it was told, and all of it was told by a sweep: its own webhook
        // comes late.
        let known = words.iter().filter(|words| self.made_up_at.remove(*words).is_some()).count();
        let is_late = known == words.len() && !differs;
        let heard = match (is_late, &event.kind) {
            (false, _) => Said::News,
            (true, EventKind::Gerrit(told)) if has_words(told) => {
                let told = GerritEvent { votes: Vec::new(), ..told.clone() };
                Said::Words(Box::new(ForgeEvent { kind: EventKind::Gerrit(told), ..event.clone() }))
            }
            (true, _) => Said::Known,
        };
        (heard, differs)
    }

    /// Returns whether all was told that moves a change when it changes: a status moves none.
    pub(crate) fn are_whole(&self, facts: &ChangeFacts) -> bool {
        let moves = |name: &&String| !name.starts_with(STATUS);
        let now = shown(facts);
        let names: BTreeSet<&String> = self.told.keys().chain(now.keys()).filter(moves).collect();
        names
            .into_iter()
            .all(|name| is_same(name, self.told.get(name), now.get(name)) || !self.has_room(name))
    }

    /// Returns what was changed and not told. A label that was put on has a mark of its own.
    pub(crate) fn lost(&self, facts: &ChangeFacts, asks: &Asks) -> Vec<Lost> {
        let now = shown(facts);
        let differs =
            |name: &str| !is_same(name, self.told.get(name), now.get(name)) && self.has_room(name);
        let mut lost = Vec::new();
        let texts = differs(TITLE) || differs(MESSAGE);
        if asks.is_gerrit {
            lost.extend(texts.then_some(Lost::Edited));
            lost.extend(differs(DRAFT).then_some(Lost::Draft));
            lost.extend(differs(TOPIC).then_some(Lost::Topic));
        } else {
            lost.extend((texts || differs(DRAFT) || differs(TOPIC)).then_some(Lost::Edited));
        }
        let gone = self.told.iter().filter(|(name, _)| !now.contains_key(*name));
        for (name, value) in gone {
            if let Some(label) = name.strip_prefix(LABEL) {
                lost.push(Lost::LabelOff(label.to_owned()));
            }
            if let Some((label, by)) = name.strip_prefix(VOTE).and_then(|vote| vote.split_once(BY))
                && !asks.is_own(by)
            {
                lost.push(Lost::VoteOff(label.to_owned(), by.to_owned(), value_of(value)));
            }
        }
        for vote in facts.votes.iter().filter(|vote| differs(&vote_name(vote))) {
            let before = self.told.get(&vote_name(vote)).map_or(0, |told| value_of(told));
            // The same again: it was taken back meanwhile, which nobody told of either.
            lost.push(Lost::Vote(vote.clone(), if before == vote.value { 0 } else { before }));
        }
        // Of a check run its end is told.
        let is_told = |status: &&CommitStatus| !(status.is_check && status.state == "pending");
        let statuses = facts.statuses.iter().filter(is_told).filter(|_| asks.statuses);
        lost.extend(
            statuses
                .filter(|status| differs(&status_name(&status.by, &status.context)))
                .cloned()
                .map(Lost::Status),
        );
        lost
    }

    fn has_room(&self, name: &str) -> bool {
        self.told.contains_key(name) || self.told.len() < NAMES_MAX
    }
}

impl Lost {
    /// Returns what tells one of these from others of the same change, with the value that it has
    /// by now.
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
            Self::LabelOff(label) => format!("no label {label}"),
            Self::Vote(Vote { label, value, username, cast_at, .. }, _) => {
                format!("vote {label} {value:+} by {username} at {}", cast_at.0)
            }
            Self::VoteOff(label, by, before) => format!("no vote {label} {before:+} by {by}"),
            Self::Status(status) => format!("status {}", status_named(status_text(status), status)),
        }
    }

    /// Returns who did it, where the forge shows that; of a vote that was taken back whose it was.
    pub(crate) fn by(&self) -> &str {
        match self {
            Self::Vote(vote, _) => &vote.username,
            Self::VoteOff(_, by, _) => by,
            Self::Status(status) => &status.by,
            Self::Edited | Self::Draft | Self::Topic | Self::LabelOff(_) => "",
        }
    }

    /// Returns the event that tells of it.
    pub(crate) fn kind(&self, number: u64, is_gerrit: bool) -> EventKind {
        let change = |event: &str, action: &str, label: Option<String>, status: Option<String>| {
            let (event, action) = (event.to_owned(), action.to_owned());
            EventKind::Change { number, event, action, comment: None, label, state: None, status }
        };
        let gerrit = |r#type: &str, told: GerritEvent| {
            let (r#type, username) = (r#type.to_owned(), self.by().to_owned());
            EventKind::Gerrit(GerritEvent { number, r#type, username, ..told })
        };
        let none = GerritEvent::default;
        match self {
            Self::Edited if is_gerrit => gerrit(TEXTS_EDITED, none()),
            Self::Edited => change("pull_request", "edited", None, None),
            Self::Draft => gerrit("wip-state-changed", none()),
            Self::Topic => gerrit("topic-changed", none()),
            Self::LabelOff(label) if is_gerrit => {
                gerrit("hashtags-changed", GerritEvent { removed: vec![label.clone()], ..none() })
            }
            Self::LabelOff(label) => change("pull_request", "unlabeled", Some(label.clone()), None),
            Self::Vote(vote, before) => {
                let cast = CastVote {
                    label: vote.label.clone(),
                    value: vote.value,
                    before: Some(*before),
                };
                let email = vote.email.clone();
                gerrit("comment-added", GerritEvent { votes: vec![cast], email, ..none() })
            }
            Self::VoteOff(label, _, before) => {
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
/// How the names of several begin.
const LABEL: &str = "label ";
const VOTE: &str = "vote ";
const STATUS: &str = "status ";
/// An event in Gerrit's way for what its stream has no word for: a description that is another one
/// on the same patchset.
const TEXTS_EDITED: &str = "edited";
/// What separates a vote's label from who cast it; no label's name holds a space.
const BY: &str = " by ";
/// What separates its value from when it was cast: one that was taken back and cast again is
/// another, and may be what a change that left without it waits for. So with a status, which bears
/// a number: one that is set again says the same, and is another report.
const AT: &str = " at ";

/// Returns the attributes that a change shows, by name.
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
        (status_name(&status.by, &status.context), status_named(status.state.clone(), status))
    }));
    shown
}

/// Returns whether an event tells of the attribute of this name.
fn tells(event: &ForgeEvent, name: &str) -> bool {
    match &event.kind {
        EventKind::Gerrit(told) => match told.r#type.as_str() {
            // The description is the commit's, and votes are on a patchset.
            "patchset-created" => name == TITLE || name == MESSAGE || is_of_revision(name),
            "comment-added" | "vote-deleted" => {
                told.votes.iter().any(|vote| is_named(told, vote, name))
            }
            "hashtags-changed" => {
                let mut tags = told.added.iter().chain(&told.removed);
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
            "status" | "completed" => status.as_deref().and_then(named_by) == Some(name.to_owned()),
            _ => false,
        },
        _ => false,
    }
}

/// Whether an event tells of another revision, with which votes and statuses of the one before are
/// gone.
fn takes_away(event: &ForgeEvent) -> bool {
    match &event.kind {
        EventKind::Gerrit(told) => told.r#type == "patchset-created",
        EventKind::Change { action, .. } => action == "changed",
        _ => false,
    }
}

fn is_opened(event: &ForgeEvent) -> bool {
    matches!(&event.kind, EventKind::Change { action, .. } if action == "opened")
}

/// Whether an attribute is on a revision, and not on the change.
fn is_of_revision(name: &str) -> bool {
    name.starts_with(VOTE) || name.starts_with(STATUS)
}

/// Whether an event tells of a vote in the attribute of this name. Of votes that were taken back
/// older deliveries of ours name no voter: they tell of everybody's.
fn is_named(told: &GerritEvent, vote: &CastVote, name: &str) -> bool {
    let named = name.strip_prefix(VOTE).and_then(|named| named.split_once(BY));
    let is_by = |by: &str| {
        by == told.username || (told.username.is_empty() && told.r#type == "vote-deleted")
    };
    named.is_some_and(|(label, by)| label == vote.label && is_by(by))
}

/// Returns what tells an event from others of the same change, where its being told twice can be
/// seen: of several votes each by itself, as a sweep tells of them.
fn words(event: &ForgeEvent) -> Vec<String> {
    match &event.kind {
        EventKind::Gerrit(told) => match told.r#type.as_str() {
            "comment-added" => {
                let cast = told
                    .votes
                    .iter()
                    .filter(|vote| vote.before.is_some_and(|before| before != vote.value));
                cast.map(|vote| {
                    short(&["votes", &told.username, &format!("{}{:+}", vote.label, vote.value)])
                })
                .collect()
            }
            "vote-deleted" => told
                .votes
                .iter()
                .map(|vote| short(&["vote-deleted", &told.username, &vote.label]))
                .collect(),
            "hashtags-changed" => {
                vec![short(&["hashtags", &told.added.join(" "), &told.removed.join(" ")])]
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

/// Whether a comment says more than which votes were cast, which stands in its first line.
fn has_words(told: &GerritEvent) -> bool {
    told.comment
        .iter()
        .flat_map(|comment| comment.lines().skip(1))
        .any(|line| !line.trim().is_empty())
}

fn vote_name(vote: &Vote) -> String {
    format!("{VOTE}{}{BY}{}", vote.label, vote.username)
}

/// Returns the value of a vote as it is kept.
fn value_of(kept: &str) -> i64 {
    parted(kept).0.parse().unwrap_or_default()
}

/// Returns what is kept of a vote or status: its value, and its time or number where there is one.
fn parted(kept: &str) -> (&str, Option<u64>) {
    kept.split_once(AT).map_or((kept, None), |(value, at)| (value, at.parse().ok()))
}

/// Whether an attribute is as it was told. Older records hold neither times of votes nor numbers of
/// statuses: those that have their value are the same.
fn is_same(name: &str, told: Option<&String>, now: Option<&String>) -> bool {
    let is_parted = name.starts_with(VOTE) || name.starts_with(STATUS);
    let is_old = |told: &String| is_parted && !told.contains(AT);
    let is_value = |told: &String, now: &String| parted(told).0 == parted(now).0;
    told == now
        || is_behind(name, told, now)
        || told.zip(now).is_some_and(|(told, now)| is_old(told) && is_value(told, now))
}

/// Whether an event tells of a status, and its change shows another one in its place, or none.
fn is_of_another(event: &ForgeEvent, shown: Option<&String>) -> bool {
    let EventKind::Change { action, status: Some(told), .. } = &event.kind else { return false };
    let state = told.rsplit_once(':').map(|(_, state)| state);
    matches!(action.as_str(), "status" | "completed") && state != shown.map(|shown| parted(shown).0)
}

/// Whether a status is one from before the one that was told, whatever it says: numbers of statuses
/// grow, and a forge may answer with what it showed a while ago. Of one without a number only what
/// says the same is taken for older.
fn is_behind(name: &str, told: Option<&String>, now: Option<&String>) -> bool {
    let (Some(told), Some(now), true) = (told, now, name.starts_with(STATUS)) else { return false };
    match (parted(told), parted(now)) {
        ((_, Some(last)), (_, Some(number))) => number < last,
        ((told, Some(_)), (now, None)) => told == now,
        _ => false,
    }
}

fn status_name(by: &str, context: &str) -> String {
    format!("{STATUS}{}", short(&[by, context]))
}

/// Returns a status in the words of events.
fn status_text(status: &CommitStatus) -> String {
    format!("{}:{}:{}", status.by, status.context, status.state)
}

/// Returns a word for a status with what tells it from others that say the same, where its forge
/// has a number for it.
fn status_named(word: String, status: &CommitStatus) -> String {
    status.number.map_or(word.clone(), |number| format!("{word}{AT}{number}"))
}

/// Returns the name of the status that an event tells of.
fn named_by(text: &str) -> Option<String> {
    let (by, rest) = text.split_once(':')?;
    let (context, _) = rest.rsplit_once(':')?;
    Some(status_name(by, context))
}

fn short(parts: &[&str]) -> String {
    digest(parts).chars().take(SHORT).collect()
}

#[cfg(test)]
mod tests;
