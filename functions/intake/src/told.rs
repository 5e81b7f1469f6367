//! What was told of a change: each revision, review and label counts as news once, whether its
//! webhook or a sweep told of it.

use crate::attributes::{Asks, Attributes, Lost, Said};
use crate::lost::KEPT_MILLIS;
use crate::over::{ENDS, Says, end_of, says};
use serde::{Deserialize, Serialize};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus, Review, ReviewState};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{BranchName, Timestamp};
use std::collections::BTreeSet;

/// What was told of a change; kept beside its facts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Marks of what was told, no longer than what they stand for.
    marks: BTreeSet<String>,
    /// How often a mark was taken back: what is so again is told anew.
    #[serde(default)]
    taken_back: u64,
    /// Changes of which is remembered that this one needs them.
    #[serde(default)]
    pub(crate) needs: BTreeSet<ChangeKey>,
    /// The time of the change's last move, if everything that it showed then was told: nothing is
    /// missing while that is the same.
    #[serde(default)]
    pub(crate) whole_at: Option<Timestamp>,
    /// The time of the newest move that the forge showed.
    #[serde(default)]
    moved_at: Timestamp,
    /// News that came since then and show no other time.
    #[serde(default)]
    since: u64,
    /// What it shows that bears no time of its own, as it was told last; `None` where nobody
    /// looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attributes: Option<Attributes>,
    /// Marks of what was so at that time and was gone by its next news: an answer that shows one
    /// may be from before those.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    gone: BTreeSet<String>,
    /// What a sweep told of whether it is open, and when, until a webhook tells of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turned: Option<(Says, Timestamp)>,
}

/// Milliseconds within which a forge's clock gives two moves of a change one time, or its answers
/// are behind the times.
const SAME_MOVE_MILLIS: u64 = 30_000;

/// News of one moment that are told apart; a forge's next second is never taken for older.
const SINCE_MAX: u64 = 999;

/// Marks that are kept of what was so for a part of one second.
const GONE_MAX: usize = 32;

impl Told {
    pub(crate) fn contains(&self, mark: &str) -> bool {
        self.marks.contains(mark)
    }

    /// Adds marks and returns whether they are news: one of them is new, or there is none of what
    /// is told.
    pub(crate) fn tell(&mut self, marks: Vec<String>) -> bool {
        let is_unmarked = marks.is_empty();
        let new = marks.into_iter().filter(|mark| self.marks.insert(mark.clone())).count();
        is_unmarked || new > 0
    }

    /// Takes in what an event tells of the change's attributes, and returns what it is after what
    /// was told before. `is_made_up` is one of a sweep.
    pub(crate) fn hear(
        &mut self,
        event: &ForgeEvent,
        facts: &ChangeFacts,
        is_made_up: bool,
    ) -> Said {
        let Some(attributes) = &mut self.attributes else {
            self.attributes = Some(Attributes::first(event, facts));
            return Said::News;
        };
        let (heard, differs) = attributes.hear(event, facts, is_made_up);
        self.taken_back += u64::from(differs);
        heard
    }

    /// Returns what of the change's attributes was changed without a word. What it shows at the
    /// first look is no news.
    pub(crate) fn lost(&mut self, facts: &ChangeFacts, asks: &Asks) -> Vec<Lost> {
        self.attributes.get_or_insert_with(|| Attributes::of(facts)).lost(facts, asks)
    }

    /// Returns whether it was told that the change is over, and not that it was opened again.
    pub(crate) fn is_over(&self) -> bool {
        ENDS.iter().any(|end| self.contains(end))
    }

    /// Takes in what an event says of whether the change is open, and returns whether that is news,
    /// as all else is; `was_over` is what was told before it. What a sweep made up for is none
    /// where it was told meanwhile, or is so no more, nor is what comes late by its own webhook
    /// after that, as long as forges send those again: a sweep has some of many sent at a time.
    pub(crate) fn turn(
        &mut self,
        event: &ForgeEvent,
        facts: &ChangeFacts,
        (is_made_up, was_over): (bool, bool),
    ) -> bool {
        let Some(says) = says(event) else { return true };
        let end = end_of(facts);
        let (is_so, was_so) = match says {
            Says::Over => (end.is_some(), end.is_some_and(|end| self.contains(end))),
            Says::Reopened => (end.is_none(), !was_over),
        };
        self.marks.extend(end.filter(|_| says == Says::Over).map(str::to_owned));
        if is_made_up {
            let is_news = is_so && !was_so;
            self.turned = is_news.then_some((says, facts.seen_at)).or(self.turned);
            return is_news;
        }
        let made_up = self.turned.take();
        !made_up.is_some_and(|(told, at)| {
            told == says && was_so && facts.seen_at.since(at) < KEPT_MILLIS
        })
    }

    /// Returns how often something was taken back, or became another.
    pub(crate) fn taken_back(&self) -> u64 {
        self.taken_back
    }

    /// Drops marks of what is no longer so, and of what an event took back, even where it is so
    /// again: a label that is put on again is news again.
    pub(crate) fn still_true(mut self, event: &ForgeEvent, facts: &ChangeFacts) -> Self {
        let now = shown(facts);
        if facts.updated_at > self.moved_at {
            self.gone.clear();
        }
        // That it was opened again has words of its own, which may be lost; another revision says
        // more than they do.
        let is_untold = end_of(facts).is_none()
            && self.contains(&revision(facts))
            && says(event) != Some(Says::Reopened);
        let is_true = |mark: &String| match ENDS.contains(&mark.as_str()) {
            true => is_untold || now.contains(mark),
            false => now.contains(mark) && !takes_back(event, mark),
        };
        let (kept, dropped): (BTreeSet<String>, BTreeSet<String>) =
            self.marks.into_iter().partition(is_true);
        self.taken_back += u64::from(!dropped.is_empty());
        if dropped.iter().any(|mark| mark.starts_with(REVISION))
            && let Some(attributes) = &mut self.attributes
        {
            attributes.forget_made_up();
        }
        self.gone.retain(|mark| !now.contains(mark));
        let gone = dropped.into_iter().filter(|mark| !now.contains(mark));
        self.gone.extend(gone.take(GONE_MAX.saturating_sub(self.gone.len())));
        self.marks = kept;
        self
    }

    /// Returns whether an answer of the forge may be of before what was told already: of an earlier
    /// time, or of the same second and without what was so in it. Only while answers may be late;
    /// what is still so afterwards is so. What this very event takes back, another revision and
    /// another word of a reviewer are no sign of it.
    pub(crate) fn is_ahead_of(&self, event: &ForgeEvent, facts: &ChangeFacts) -> bool {
        let may_be_late =
            self.moved_at.0 > 0 && facts.seen_at.since(self.moved_at) <= SAME_MOVE_MILLIS;
        if !may_be_late || facts.updated_at != self.moved_at {
            return may_be_late && facts.updated_at < self.moved_at;
        }
        let now = shown(facts);
        let is_replaced = |mark: &String| {
            let others = facts.reviews.iter().filter(|other| !self.marks.contains(&review(other)));
            mark.starts_with(REVISION)
                || others.into_iter().any(|other| mark.contains(&format!(" by {} at ", other.by)))
        };
        let mut missing = self.marks.difference(&now).filter(|mark| !takes_back(event, mark));
        missing.any(|mark| !is_replaced(mark)) || self.gone.iter().any(|mark| now.contains(mark))
    }

    /// Returns as of which moment of the forge's clock facts are known, and counts them as news of
    /// it. A forge tells the time to the second, and of some things, such as statuses, no time at
    /// all: news that show the same one follow each other.
    pub(crate) fn next_moment(&mut self, facts: &ChangeFacts) -> Timestamp {
        if facts.updated_at > self.moved_at {
            // A forge that tells parts of a second may move on by less than was counted.
            let last = self.moved_at.plus_millis(self.since.min(SINCE_MAX));
            (self.moved_at, self.since) =
                (facts.updated_at, (last.0 + 1).saturating_sub(facts.updated_at.0));
        } else if facts.updated_at == self.moved_at {
            self.since += 1;
        }
        self.moment(facts)
    }

    /// Returns as of which moment of the forge's clock facts are known; 0 for a forge that tells no
    /// time.
    pub(crate) fn moment(&self, facts: &ChangeFacts) -> Timestamp {
        let is_newest = facts.updated_at == self.moved_at && facts.updated_at.0 > 0;
        facts.updated_at.plus_millis(if is_newest { self.since.min(SINCE_MAX) } else { 0 })
    }

    /// Remembers until when everything was told, if it was.
    pub(crate) fn note(&mut self, facts: &ChangeFacts) {
        let is_settled =
            facts.updated_at.0 > 0 && facts.seen_at.since(facts.updated_at) > SAME_MOVE_MILLIS;
        let are_told =
            self.attributes.as_ref().is_some_and(|attributes| attributes.are_whole(facts));
        let is_reopened = facts.status == ChangeStatus::Open && self.is_over();
        let is_whole = are_told && !is_reopened && shown(facts).is_subset(&self.marks);
        self.whole_at = (is_settled && is_whole).then_some(facts.updated_at);
    }
}

/// Returns the marks of all that a change shows.
fn shown(facts: &ChangeFacts) -> BTreeSet<String> {
    let labels = facts.labels.iter().map(|name| label(name));
    let end = end_of(facts).map(str::to_owned);
    [revision(facts)]
        .into_iter()
        .chain(facts.reviews.iter().map(review))
        .chain(labels)
        .chain(end)
        .collect()
}

/// Returns whether an event takes a mark back.
fn takes_back(event: &ForgeEvent, mark: &str) -> bool {
    match &event.kind {
        EventKind::Change { event: name, action, label: Some(taken_off), .. }
            if (name.as_str(), action.as_str()) == ("pull_request", "unlabeled") =>
        {
            mark == label(taken_off)
        }
        _ => says(event) == Some(Says::Reopened) && ENDS.contains(&mark),
    }
}

/// How a revision's mark begins.
const REVISION: &str = "revision ";

/// What separates head and branch in a revision's mark; no branch's name holds a space.
const FOR: &str = " for ";

/// Returns the mark of the revision that a change has now: its head and the branch it is to be
/// merged into. The same commits on another branch are something else to test.
pub(crate) fn revision(facts: &ChangeFacts) -> String {
    revision_of(&facts.change)
}

/// Returns the mark of a revision.
pub(crate) fn revision_of(change: &ChangeRef) -> String {
    format!("{REVISION}{}{FOR}{}", change.head, change.branch)
}

/// Returns the branches that the change was for when it was told of, other than the one it is for
/// now.
pub(crate) fn former_branches(told: &Told, facts: &ChangeFacts) -> Vec<BranchName> {
    let marks = told.marks.iter().filter(|mark| mark.starts_with(REVISION));
    let branches =
        marks.filter_map(|mark| mark.split_once(FOR)).map(|(_, branch)| BranchName::from(branch));
    branches.filter(|branch| *branch != facts.change.branch).collect()
}

/// Returns the mark of a review.
pub(crate) fn review(review: &Review) -> String {
    format!("review {} by {} at {}", word(review.state), review.by, review.submitted_at.0)
}

/// Returns the mark of a label.
pub(crate) fn label(label: &str) -> String {
    format!("label {label}")
}

/// Returns a review's state in the word of events.
pub(crate) fn word(state: ReviewState) -> &'static str {
    match state {
        ReviewState::Approved => "approved",
        ReviewState::ChangesRequested => "changes_requested",
        ReviewState::Commented => "comment",
        ReviewState::Dismissed => "dismissed",
    }
}

/// Returns the marks of what an event tells, when it tells something that is told once. None for
/// all else, such as comments, which are news each time.
pub(crate) fn marks(event: &ForgeEvent, facts: &ChangeFacts) -> Vec<String> {
    if let EventKind::Gerrit(told) = &event.kind {
        return (told.r#type == "patchset-created").then(|| revision(facts)).into_iter().collect();
    }
    let EventKind::Change { event: name, action, label: labelled, state, .. } = &event.kind else {
        return Vec::new();
    };
    match (name.as_str(), action.as_str()) {
        ("pull_request", "opened" | "changed") => vec![revision(facts)],
        ("pull_request", "labeled") => {
            let shown = labelled.iter().filter(|name| facts.labels.contains(name));
            shown.map(|name| label(name)).collect()
        }
        ("pull_request_review", "submitted") => {
            let is_meant = |review: &&Review| {
                review.by == event.sender && state.as_deref() == Some(word(review.state))
            };
            facts.reviews.iter().find(is_meant).map(review).into_iter().collect()
        }
        // Who dismissed is told, and not whose review it was: all that are dismissed by now are.
        ("pull_request_review", "dismissed") => facts
            .reviews
            .iter()
            .filter(|review| review.state == ReviewState::Dismissed)
            .map(review)
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::change::Permission;

    fn facts() -> ChangeFacts {
        let key = ChangeKey::change("github".into(), "forge.test/org/one".into(), 1);
        let head = sluice_model::git::Oid::from("abc");
        let change = ChangeRef { key, branch: "main".into(), patchset: head.0.clone(), head };
        let labels = vec!["go".to_owned()];
        let reviews = vec![said(ReviewState::Approved, 7)];
        ChangeFacts { labels, reviews, ..ChangeFacts::bare(change, Timestamp(8)) }
    }

    fn said(state: ReviewState, at: u64) -> Review {
        Review {
            by: "grace".to_owned(),
            email: None,
            state,
            permission: Permission::Write,
            submitted_at: Timestamp(at),
        }
    }

    fn event(action: &str) -> ForgeEvent {
        ForgeEvent {
            connection: "github".into(),
            project: "forge.test/org/one".into(),
            sender: "ada".to_owned(),
            kind: EventKind::Change {
                number: 1,
                event: "pull_request".to_owned(),
                action: action.to_owned(),
                comment: None,
                label: Some("go".to_owned()),
                state: None,
                status: None,
            },
        }
    }

    /// C5: the change is read when the news is handled, and may show the label again by then.
    #[test]
    fn a_label_that_was_taken_off_is_news_again_although_it_is_on_again() {
        let facts = facts();
        let mut told = Told { marks: shown(&facts), ..Told::default() }
            .still_true(&event("unlabeled"), &facts);
        assert!(!told.contains(&label("go")));
        let marks = marks(&event("labeled"), &facts);
        assert_eq!((marks.len(), told.tell(marks.clone()), told.tell(marks)), (1, true, false));
    }

    /// C5: what is missing is looked for until it is told.
    #[test]
    fn a_change_is_whole_only_when_all_it_shows_was_told_and_its_forge_is_done_moving_it() {
        let mut facts = facts();
        (facts.updated_at, facts.seen_at) = (Timestamp(10_000), Timestamp(50_000));
        let mut told = Told {
            marks: shown(&facts),
            attributes: Some(Attributes::of(&facts)),
            ..Told::default()
        };
        told.note(&facts);
        assert_eq!(told.whole_at, Some(Timestamp(10_000)));
        facts.seen_at = Timestamp(11_000);
        told.note(&facts);
        assert_eq!(told.whole_at, None, "another move in the same second would have the same time");
        facts.seen_at = Timestamp(50_000);
        facts.labels.push("gate".to_owned());
        told.note(&facts);
        assert_eq!(told.whole_at, None);
    }

    /// Z6.3: what an older answer of a forge shows is older, whenever it is read.
    #[test]
    fn news_follow_each_other_by_the_forges_clock_and_within_one_moment_of_it_as_they_come() {
        let (mut told, mut facts) = (Told::default(), facts());
        let mut next = |at: u64, told: &mut Told| {
            facts.updated_at = Timestamp(at);
            told.next_moment(&facts).0
        };
        assert_eq!(
            (next(5_000, &mut told), next(5_000, &mut told), next(5_000, &mut told)),
            (5_000, 5_001, 5_002)
        );
        assert_eq!(
            (next(6_000, &mut told), next(5_000, &mut told), next(6_000, &mut told)),
            (6_000, 5_000, 6_001)
        );
        let mut silent = Told::default();
        assert_eq!(
            (next(0, &mut silent), next(0, &mut silent)),
            (0, 0),
            "a forge that tells no time says nothing"
        );
        let last = (0..2_000).map(|_| next(6_000, &mut told)).last();
        assert_eq!(last, Some(6_999));
    }

    /// C5: what a sweep made up for of one revision is news of the next.
    #[test]
    fn what_was_made_up_for_is_forgotten_with_its_revision() {
        for is_revised in [false, true] {
            let (before, edited) = (facts(), event("edited"));
            let attributes = Some(Attributes::of(&before));
            let mut told = Told { marks: shown(&before), attributes, ..Told::default() };
            let mut now = ChangeFacts { title: "another".to_owned(), ..before };
            assert_eq!(told.hear(&edited, &now, true), Said::News);
            if is_revised {
                now.change.head = sluice_model::git::Oid::from("def");
            }
            let said = told.still_true(&edited, &now).hear(&edited, &now, false);
            assert_eq!(said, if is_revised { Said::News } else { Said::Known });
        }
    }

    /// Z6.3, C5: a second of a forge's clock holds more than one move of a change, and its answers
    /// come late.
    #[test]
    fn an_answer_of_the_same_second_without_what_was_told_in_it_is_not_taken_for_newer() {
        let at = |mut facts: ChangeFacts| {
            (facts.updated_at, facts.seen_at) = (Timestamp(5_000), Timestamp(6_500));
            facts
        };
        let (edited, approved) = (event("edited"), at(facts()));
        let mut told = Told::default().still_true(&edited, &approved);
        told.marks = shown(&approved);
        told.next_moment(&approved);
        let is_behind = |facts: &ChangeFacts| told.is_ahead_of(&edited, facts);
        assert!(!is_behind(&approved));
        let before = ChangeFacts { reviews: Vec::new(), ..approved.clone() };
        assert!(is_behind(&before), "its approval came in the same second");
        assert!(
            !is_behind(&ChangeFacts { seen_at: Timestamp(36_000), ..before.clone() }),
            "so late it is so"
        );
        assert!(
            !is_behind(&ChangeFacts { updated_at: Timestamp(6_000), ..before }),
            "it moved since"
        );
        assert!(
            is_behind(&ChangeFacts { updated_at: Timestamp(4_000), ..approved.clone() }),
            "it is of before"
        );
        let dismissed =
            ChangeFacts { reviews: vec![said(ReviewState::Dismissed, 7)], ..approved.clone() };
        assert!(!is_behind(&dismissed), "a review that was dismissed shows as dismissed");
        let unlabelled = ChangeFacts { labels: Vec::new(), ..approved.clone() };
        assert!(is_behind(&unlabelled) && !told.is_ahead_of(&event("unlabeled"), &unlabelled));
    }

    /// Z6.3: of two revisions of one second the one that was replaced is the older, whichever is
    /// read last.
    #[test]
    fn a_revision_that_was_replaced_in_the_same_second_is_not_taken_for_newer() {
        let edited = event("edited");
        let mut first = facts();
        (first.updated_at, first.seen_at) = (Timestamp(5_000), Timestamp(6_500));
        let mut second = first.clone();
        second.change.head = sluice_model::git::Oid::from("def");
        let tell = |told: Told, facts: &ChangeFacts| {
            assert!(!told.is_ahead_of(&edited, facts));
            let mut told = told.still_true(&edited, facts);
            told.marks = shown(facts);
            told.next_moment(facts);
            told
        };
        let told = tell(tell(Told::default(), &first), &second);
        assert!(told.is_ahead_of(&edited, &first) && !told.is_ahead_of(&edited, &second));
        second.updated_at = Timestamp(6_000);
        first.updated_at = Timestamp(7_000);
        tell(tell(told, &second), &first);
    }

    /// C5: a webhook and the sweep that makes up for it tell one thing.
    #[test]
    fn a_review_bears_one_mark_whoever_tells_of_it() {
        let facts = facts();
        let kind = |state: &str| EventKind::Change {
            number: 1,
            event: "pull_request_review".to_owned(),
            action: "submitted".to_owned(),
            comment: None,
            label: None,
            state: Some(state.to_owned()),
            status: None,
        };
        let event = |sender: &str, state: &str| ForgeEvent {
            connection: "github".into(),
            project: "forge.test/org/one".into(),
            sender: sender.to_owned(),
            kind: kind(state),
        };
        let none = Vec::<String>::new();
        assert_eq!(marks(&event("grace", "approved"), &facts), [review(&facts.reviews[0])]);
        assert_eq!(
            marks(&event("ada", "approved"), &facts),
            none,
            "another's review is not known to be told"
        );
        assert_eq!(marks(&event("grace", "comment"), &facts), none);
    }

    /// C5: a dismissal is told by whoever dismissed, who need not be the reviewer; and it counts as
    /// told, or each sweep would look for it.
    #[test]
    fn a_dismissed_review_is_told_once_whoever_dismissed_it() {
        let mut facts = facts();
        facts.reviews[0].state = ReviewState::Dismissed;
        let mut told = Told { marks: [revision(&facts), label("go")].into(), ..Told::default() };
        let kind = EventKind::Change {
            number: 1,
            event: "pull_request_review".to_owned(),
            action: "dismissed".to_owned(),
            comment: None,
            label: None,
            state: Some("dismissed".to_owned()),
            status: None,
        };
        let event = ForgeEvent { kind, ..event("edited") };
        assert!(told.tell(marks(&event, &facts)) && !told.tell(marks(&event, &facts)));
        assert!(shown(&facts).is_subset(&told.marks));
        facts.reviews.clear();
        assert!(
            told.tell(marks(&event, &facts)),
            "a forge that shows nothing of it tells news each time"
        );
    }

    /// C5: each end of a change is news, and each time that it is opened again; what a sweep told
    /// of that is told once.
    #[test]
    fn what_a_sweep_told_of_the_end_of_a_change_is_told_once_and_its_next_end_is_news() {
        let (closed, reopened, edited) = (event("closed"), event("reopened"), event("edited"));
        let open = facts();
        let over = ChangeFacts { status: ChangeStatus::Closed, ..facts() };
        let later = ChangeFacts { seen_at: Timestamp(2 * 86_400_000), ..over.clone() };
        let mut told = Told { marks: shown(&open), ..Told::default() };
        let mut hear = |event: &ForgeEvent, facts: &ChangeFacts, is_made_up: bool| {
            let was_over = told.is_over();
            told = told.clone().still_true(event, facts);
            (told.turn(event, facts, (is_made_up, was_over)), told.is_over())
        };
        assert_eq!(hear(&closed, &open, true), (false, false), "it is open by now");
        assert_eq!(hear(&closed, &over, true), (true, true));
        assert_eq!(hear(&closed, &later, false), (false, true), "its webhook comes late");
        assert_eq!(hear(&closed, &over, true), (false, true), "it was told meanwhile");
        assert_eq!(
            hear(&edited, &open, false),
            (true, true),
            "that it is open again has words of its own"
        );
        assert_eq!(hear(&reopened, &open, true), (true, false));
        assert_eq!(hear(&reopened, &open, false), (false, false), "its webhook comes late");
        assert_eq!(hear(&closed, &over, false), (true, true));
        assert_eq!(hear(&reopened, &open, false), (true, false));
        let merged = ChangeFacts { status: ChangeStatus::Merged, ..facts() };
        assert_eq!(hear(&closed, &merged, false), (true, true));
    }

    /// C5
    #[test]
    fn a_mark_lasts_no_longer_than_what_it_stands_for() {
        let mut facts = facts();
        let told = Told { marks: shown(&facts), ..Told::default() };
        let event = event("edited");
        assert_eq!(told.clone().still_true(&event, &facts), told);
        facts.labels.clear();
        facts.reviews[0].submitted_at = Timestamp(9);
        let now = told.still_true(&event, &facts);
        assert_eq!((now.marks, now.taken_back), ([revision(&facts)].into(), 1));
    }
}
