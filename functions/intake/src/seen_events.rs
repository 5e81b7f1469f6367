//! The events that were seen of a change: each revision, review and label counts as new once,
//! whether a webhook or a sweep reported it.

use crate::attributes::{Attributes, MissedUpdate, Novelty, SweepScope};
use crate::closed_changes::{ENDS, LifecycleEvent, end_mark, lifecycle_event};
use crate::missed_events::REDELIVERABLE_MILLIS;
use serde::{Deserialize, Serialize};
use sluice_model::change::{
    ChangeFacts, ChangeKey, ChangeRef, ChangeReview, ChangeStatus, ReviewState,
};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::{BranchName, Timestamp};
use std::collections::BTreeSet;

/// The events that were seen of a change; stored next to its facts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenEvents {
    /// One mark for each thing that was reported and is still so.
    marks: BTreeSet<String>,
    /// How often a mark was removed: what is so again is new again.
    retractions: u64,
    /// The changes under which this one is stored as a dependent.
    pub(crate) needs: BTreeSet<ChangeKey>,
    /// The time of the change's last update, if everything that it showed then was processed.
    /// Nothing is missing while that is unchanged.
    pub(crate) complete_at: Option<Timestamp>,
    /// The time of the newest update that the forge showed.
    moved_at: Timestamp,
    /// Events since `moved_at` that show the same time.
    same_moment_events: u64,
    /// The attributes as they were last processed; `None` before the first event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attributes: Option<Attributes>,
    /// Marks that were valid at `moved_at` and were gone with the next event. An answer that shows
    /// one may be older than that event.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    gone: BTreeSet<String>,
    /// The lifecycle event that a sweep synthesized, and when, until its webhook arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    synthesized_lifecycle: Option<(LifecycleEvent, Timestamp)>,
}

/// How long in milliseconds a forge's clock may give two updates of a change the same time, or its
/// answers may be stale.
const SAME_MOVE_MILLIS: u64 = 30_000;

/// The most events of one moment that get different times; a forge's next second is always newer.
const SAME_MOMENT_MAX: u64 = 999;

/// The most marks in `gone`.
const GONE_MAX: usize = 32;

/// The circumstances of an event that may end or reopen a change.
#[derive(Clone, Copy)]
pub(crate) struct LifecycleContext {
    /// Whether a sweep synthesized the event.
    pub(crate) is_synthesized: bool,
    /// [`SeenEvents::is_ended`] before the event.
    pub(crate) was_ended: bool,
}

impl SeenEvents {
    /// Returns whether the event with this mark was processed.
    pub(crate) fn contains(&self, mark: &str) -> bool {
        self.marks.contains(mark)
    }

    /// Adds marks and returns whether the event is new: it has a new mark, or no mark at all.
    pub(crate) fn record_marks(&mut self, marks: Vec<String>) -> bool {
        let is_unmarked = marks.is_empty();
        let new = marks.into_iter().filter(|mark| self.marks.insert(mark.clone())).count();
        is_unmarked || new > 0
    }

    /// Applies an event to the change's attributes and returns whether it is new by these alone:
    /// not new are a sweep's event that changes nothing, and the webhook of an update that a sweep
    /// reported already. Any other event is new here, also a redelivered one: it counts as new only
    /// if [`Self::record_marks`] and [`Self::apply_lifecycle`] agree. With [`Novelty::CommentOnly`]
    /// the caller goes on with the event in it. [`Self::without_stale_marks`] must be called
    /// before. The first event is always new and stores the attributes that the forge shows; if it
    /// opens the change or is a new revision, without votes and statuses. `is_synthesized` is true
    /// for an event of a sweep. If a stored value appears, disappears or becomes another, that
    /// counts as a retraction, except with the first event.
    pub(crate) fn apply(
        &mut self,
        event: &ForgeEvent,
        facts: &ChangeFacts,
        is_synthesized: bool,
    ) -> Novelty {
        let Some(attributes) = &mut self.attributes else {
            self.attributes = Some(Attributes::first(event, facts));
            return Novelty::New;
        };
        let (novelty, differs) = attributes.apply(event, facts, is_synthesized);
        self.retractions += u64::from(differs);
        novelty
    }

    /// Returns the updates that the forge shows and no event reported, as
    /// [`Attributes::missed_updates`]. If no attributes are stored yet, stores those of `facts` and
    /// returns none. Records nothing else: the same updates are returned until an event reports
    /// them.
    pub(crate) fn missed_updates(
        &mut self,
        facts: &ChangeFacts,
        scope: &SweepScope,
    ) -> Vec<MissedUpdate> {
        self.attributes.get_or_insert_with(|| Attributes::of(facts)).missed_updates(facts, scope)
    }

    /// Returns whether an event reported that the change was closed or merged, and none that it was
    /// reopened.
    pub(crate) fn is_ended(&self) -> bool {
        ENDS.iter().any(|end| self.contains(end))
    }

    /// Stores a lifecycle event of the change and returns whether it is new; any other event is
    /// always new. A synthesized event is not new if the forge shows another state, or if the
    /// change was known to be in that state. A webhook is always new, also a repeated one, with one
    /// exception: the first lifecycle webhook after a synthesized event is not new if it reports
    /// the same event, the change was known to be in that state, and it comes while forges may
    /// still redeliver ([`REDELIVERABLE_MILLIS`]). Call order: [`Self::is_ended`], whose result is
    /// `was_ended`; [`Self::without_stale_marks`]; this.
    pub(crate) fn apply_lifecycle(
        &mut self,
        event: &ForgeEvent,
        facts: &ChangeFacts,
        LifecycleContext { is_synthesized, was_ended }: LifecycleContext,
    ) -> bool {
        let Some(lifecycle) = lifecycle_event(event) else { return true };
        let end = end_mark(facts);
        let (is_so, was_so) = match lifecycle {
            LifecycleEvent::Ended => (end.is_some(), end.is_some_and(|end| self.contains(end))),
            LifecycleEvent::Reopened => (end.is_none(), !was_ended),
        };
        self.marks.extend(end.filter(|_| lifecycle == LifecycleEvent::Ended).map(str::to_owned));
        if is_synthesized {
            let is_new = is_so && !was_so;
            self.synthesized_lifecycle =
                is_new.then_some((lifecycle, facts.seen_at)).or(self.synthesized_lifecycle);
            return is_new;
        }
        let made_up = self.synthesized_lifecycle.take();
        !made_up.is_some_and(|(seen, at)| {
            seen == lifecycle && was_so && facts.seen_at.since(at) < REDELIVERABLE_MILLIS
        })
    }

    /// Returns how often a label, review or other mark was removed or replaced.
    pub(crate) fn retractions(&self) -> u64 {
        self.retractions
    }

    /// Returns the seen events without the marks of what the forge does not show any longer, and
    /// without those that the event retracts. A label that is added again is thus new again. The
    /// mark of an end stays until an event or a new revision reports that the change is open again.
    /// That marks were removed is counted, and those that the forge no longer shows are remembered
    /// as gone.
    pub(crate) fn without_stale_marks(mut self, event: &ForgeEvent, facts: &ChangeFacts) -> Self {
        let now = shown(facts);
        if facts.updated_at > self.moved_at {
            self.gone.clear();
        }
        // A reopening has an event of its own, which may be missed; a new revision implies it.
        let is_untold = end_mark(facts).is_none()
            && self.contains(&revision(facts))
            && lifecycle_event(event) != Some(LifecycleEvent::Reopened);
        let is_true = |mark: &String| match ENDS.contains(&mark.as_str()) {
            true => is_untold || now.contains(mark),
            false => now.contains(mark) && !retracts(event, mark),
        };
        let (remaining, dropped): (BTreeSet<String>, BTreeSet<String>) =
            self.marks.into_iter().partition(is_true);
        self.retractions += u64::from(!dropped.is_empty());
        if dropped.iter().any(|mark| mark.starts_with(REVISION))
            && let Some(attributes) = &mut self.attributes
        {
            attributes.forget_synthesized();
        }
        self.gone.retain(|mark| !now.contains(mark));
        let gone = dropped.into_iter().filter(|mark| !now.contains(mark));
        self.gone.extend(gone.take(GONE_MAX.saturating_sub(self.gone.len())));
        self.marks = remaining;
        self
    }

    /// Returns whether the forge's answer may be older than the events that were processed. It is
    /// if `facts` show an earlier time of update than the newest processed one, or the same time,
    /// but lack a stored mark or show a mark that is gone. False once [`SAME_MOVE_MILLIS`] have
    /// passed since the newest update.
    ///
    /// That is checked only while answers may be stale; afterwards the answer is believed. What
    /// this event itself retracts does not count, nor do another revision and another review of the
    /// same account.
    pub(crate) fn may_be_newer_than(&self, event: &ForgeEvent, facts: &ChangeFacts) -> bool {
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
        let mut missing = self.marks.difference(&now).filter(|mark| !retracts(event, mark));
        missing.any(|mark| !is_replaced(mark)) || self.gone.iter().any(|mark| now.contains(mark))
    }

    /// Counts an event at the time of `facts` and returns that time on the forge's clock. A forge
    /// reports times in seconds, and none for statuses, so events of the same second get increasing
    /// times. Facts older than the newest update are not counted.
    pub(crate) fn next_moment(&mut self, facts: &ChangeFacts) -> Timestamp {
        if facts.updated_at > self.moved_at {
            // A forge that reports fractions of a second may advance by less than was counted.
            let last = self.moved_at.plus_millis(self.same_moment_events.min(SAME_MOMENT_MAX));
            (self.moved_at, self.same_moment_events) =
                (facts.updated_at, (last.0 + 1).saturating_sub(facts.updated_at.0));
        } else if facts.updated_at == self.moved_at {
            self.same_moment_events += 1;
        }
        self.moment(facts)
    }

    /// Returns the time on the forge's clock at which `facts` were true, without counting an event;
    /// 0 if the forge reports no time.
    pub(crate) fn moment(&self, facts: &ChangeFacts) -> Timestamp {
        let is_newest = facts.updated_at == self.moved_at && facts.updated_at.0 > 0;
        facts.updated_at.plus_millis(if is_newest {
            self.same_moment_events.min(SAME_MOMENT_MAX)
        } else {
            0
        })
    }

    /// Stores the time up to which all updates were processed; the event's marks must be recorded
    /// before. It is `None` if an update is missing, if the last one is so recent that another may
    /// have the same time, or if the forge reports no time.
    pub(crate) fn update_complete_at(&mut self, facts: &ChangeFacts) {
        let is_settled =
            facts.updated_at.0 > 0 && facts.seen_at.since(facts.updated_at) > SAME_MOVE_MILLIS;
        let are_processed =
            self.attributes.as_ref().is_some_and(|attributes| attributes.are_complete(facts));
        let is_reopened = facts.status == ChangeStatus::Open && self.is_ended();
        let is_complete = are_processed && !is_reopened && shown(facts).is_subset(&self.marks);
        self.complete_at = (is_settled && is_complete).then_some(facts.updated_at);
    }
}

/// Returns the marks of the revision, the reviews, the labels and the end that the forge shows of a
/// change.
fn shown(facts: &ChangeFacts) -> BTreeSet<String> {
    let labels = facts.labels.iter().map(|name| label(name));
    let end = end_mark(facts).map(str::to_owned);
    [revision(facts)]
        .into_iter()
        .chain(facts.reviews.iter().map(review))
        .chain(labels)
        .chain(end)
        .collect()
}

/// Returns whether an event removes what a mark stands for: a label that the event took off, or the
/// end of a change that it reopened.
fn retracts(event: &ForgeEvent, mark: &str) -> bool {
    match &event.kind {
        EventKind::Change { event: name, action, label: Some(taken_off), .. }
            if (name.as_str(), action.as_str()) == ("pull_request", "unlabeled") =>
        {
            mark == label(taken_off)
        }
        _ => lifecycle_event(event) == Some(LifecycleEvent::Reopened) && ENDS.contains(&mark),
    }
}

/// The prefix of a revision's mark.
const REVISION: &str = "revision ";

/// Separates head and branch in a revision's mark; no branch name contains a space.
const FOR: &str = " for ";

/// Returns the mark of the change's current revision: its head and its target branch. The same
/// commits on another branch have to be tested again.
pub(crate) fn revision(facts: &ChangeFacts) -> String {
    revision_of(&facts.change)
}

/// Returns the mark of the revision and target branch of a change.
pub(crate) fn revision_of(change: &ChangeRef) -> String {
    format!("{REVISION}{}{FOR}{}", change.head, change.branch)
}

/// Returns the branches that the change targeted before, by the revisions that `seen` still has,
/// without its current branch. One may occur twice. `seen` must be as it was stored before the
/// event: [`SeenEvents::without_stale_marks`] drops former revisions.
pub(crate) fn former_branches(seen: &SeenEvents, facts: &ChangeFacts) -> Vec<BranchName> {
    let marks = seen.marks.iter().filter(|mark| mark.starts_with(REVISION));
    let branches =
        marks.filter_map(|mark| mark.split_once(FOR)).map(|(_, branch)| BranchName::from(branch));
    branches.filter(|branch| *branch != facts.change.branch).collect()
}

/// Returns the mark that identifies a review.
pub(crate) fn review(review: &ChangeReview) -> String {
    format!("review {} by {} at {}", state_name(review.state), review.by, review.submitted_at.0)
}

/// Returns the mark that identifies an added label.
pub(crate) fn label(label: &str) -> String {
    format!("label {label}")
}

/// Returns the name that webhooks use for a review's state.
pub(crate) fn state_name(state: ReviewState) -> &'static str {
    match state {
        ReviewState::Approved => "approved",
        ReviewState::ChangesRequested => "changes_requested",
        ReviewState::Commented => "comment",
        ReviewState::Dismissed => "dismissed",
    }
}

/// Returns the marks of an event that is processed only once; none for other events, such as
/// comments, which are new each time. An event whose effect the forge no longer shows has none
/// either. Without marks an event counts as new.
pub(crate) fn marks(event: &ForgeEvent, facts: &ChangeFacts) -> Vec<String> {
    if let EventKind::Gerrit(gerrit) = &event.kind {
        return (gerrit.r#type == "patchset-created")
            .then(|| revision(facts))
            .into_iter()
            .collect();
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
            let is_meant = |review: &&ChangeReview| {
                review.by == event.sender && state.as_deref() == Some(state_name(review.state))
            };
            facts.reviews.iter().find(is_meant).map(review).into_iter().collect()
        }
        // The event names who dismissed, not whose review: all dismissed reviews are marked.
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
    use sluice_model::change::RepositoryPermission;

    fn facts() -> ChangeFacts {
        let key = ChangeKey::change("github".into(), "forge.test/org/one".into(), 1);
        let head = sluice_model::git::Oid::from("abc");
        let change = ChangeRef { key, branch: "main".into(), patchset: head.0.clone(), head };
        let labels = vec!["go".to_owned()];
        let reviews = vec![said(ReviewState::Approved, 7)];
        ChangeFacts { labels, reviews, ..ChangeFacts::bare(change, Timestamp(8)) }
    }

    fn said(state: ReviewState, at: u64) -> ChangeReview {
        ChangeReview {
            by: "grace".to_owned(),
            email: None,
            state,
            permission: RepositoryPermission::Write,
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

    /// C5: the change is read when the event is processed, and may show the label again.
    #[test]
    fn a_removed_label_is_new_again_even_if_it_was_added_again() {
        let facts = facts();
        let mut seen = SeenEvents { marks: shown(&facts), ..SeenEvents::default() }
            .without_stale_marks(&event("unlabeled"), &facts);
        assert!(!seen.contains(&label("go")));
        let marks = marks(&event("labeled"), &facts);
        assert_eq!(
            (marks.len(), seen.record_marks(marks.clone()), seen.record_marks(marks)),
            (1, true, false)
        );
    }

    /// C5: the sweep searches until everything was processed.
    #[test]
    fn a_change_is_complete_only_when_everything_it_shows_was_processed() {
        let mut facts = facts();
        (facts.updated_at, facts.seen_at) = (Timestamp(10_000), Timestamp(50_000));
        let mut seen = SeenEvents {
            marks: shown(&facts),
            attributes: Some(Attributes::of(&facts)),
            ..SeenEvents::default()
        };
        seen.update_complete_at(&facts);
        assert_eq!(seen.complete_at, Some(Timestamp(10_000)));
        facts.seen_at = Timestamp(11_000);
        seen.update_complete_at(&facts);
        assert_eq!(
            seen.complete_at, None,
            "another move in the same second would have the same time"
        );
        facts.seen_at = Timestamp(50_000);
        facts.labels.push("gate".to_owned());
        seen.update_complete_at(&facts);
        assert_eq!(seen.complete_at, None);
    }

    /// Z6.3: an older answer of a forge has an older moment, whenever it is read.
    #[test]
    fn events_are_ordered_by_the_forges_clock_and_within_a_moment_by_arrival() {
        let (mut seen, mut facts) = (SeenEvents::default(), facts());
        let mut next = |at: u64, seen: &mut SeenEvents| {
            facts.updated_at = Timestamp(at);
            seen.next_moment(&facts).0
        };
        assert_eq!(
            (next(5_000, &mut seen), next(5_000, &mut seen), next(5_000, &mut seen)),
            (5_000, 5_001, 5_002)
        );
        assert_eq!(
            (next(6_000, &mut seen), next(5_000, &mut seen), next(6_000, &mut seen)),
            (6_000, 5_000, 6_001)
        );
        let mut silent = SeenEvents::default();
        assert_eq!(
            (next(0, &mut silent), next(0, &mut silent)),
            (0, 0),
            "a forge without times gives no order"
        );
        let last = (0..2_000).map(|_| next(6_000, &mut seen)).last();
        assert_eq!(last, Some(6_999));
    }

    /// C5: what a sweep synthesized for one revision is new for the next.
    #[test]
    fn synthesized_events_are_forgotten_with_their_revision() {
        for is_revised in [false, true] {
            let (before, edited) = (facts(), event("edited"));
            let attributes = Some(Attributes::of(&before));
            let mut seen =
                SeenEvents { marks: shown(&before), attributes, ..SeenEvents::default() };
            let mut now = ChangeFacts { title: "another".to_owned(), ..before };
            assert_eq!(seen.apply(&edited, &now, true), Novelty::New);
            if is_revised {
                now.change.head = sluice_model::git::Oid::from("def");
            }
            let said = seen.without_stale_marks(&edited, &now).apply(&edited, &now, false);
            assert_eq!(said, if is_revised { Novelty::New } else { Novelty::AlreadySynthesized });
        }
    }

    /// Z6.3, C5: one second of a forge's clock may hold several updates of a change, and its
    /// answers may be stale.
    #[test]
    fn an_answer_of_the_same_second_without_processed_marks_is_stale() {
        let at = |mut facts: ChangeFacts| {
            (facts.updated_at, facts.seen_at) = (Timestamp(5_000), Timestamp(6_500));
            facts
        };
        let (edited, approved) = (event("edited"), at(facts()));
        let mut seen = SeenEvents::default().without_stale_marks(&edited, &approved);
        seen.marks = shown(&approved);
        seen.next_moment(&approved);
        let is_behind = |facts: &ChangeFacts| seen.may_be_newer_than(&edited, facts);
        assert!(!is_behind(&approved));
        let before = ChangeFacts { reviews: Vec::new(), ..approved.clone() };
        assert!(is_behind(&before), "its approval came in the same second");
        assert!(
            !is_behind(&ChangeFacts { seen_at: Timestamp(36_000), ..before.clone() }),
            "after that time the answer is believed"
        );
        assert!(
            !is_behind(&ChangeFacts { updated_at: Timestamp(6_000), ..before }),
            "the change was updated after it"
        );
        assert!(
            is_behind(&ChangeFacts { updated_at: Timestamp(4_000), ..approved.clone() }),
            "it is older"
        );
        let dismissed =
            ChangeFacts { reviews: vec![said(ReviewState::Dismissed, 7)], ..approved.clone() };
        assert!(!is_behind(&dismissed), "a review that was dismissed shows as dismissed");
        let unlabelled = ChangeFacts { labels: Vec::new(), ..approved.clone() };
        assert!(
            is_behind(&unlabelled) && !seen.may_be_newer_than(&event("unlabeled"), &unlabelled)
        );
    }

    /// Z6.3: of two revisions in one second the replaced one is the older, whichever is read last.
    #[test]
    fn a_revision_that_was_replaced_in_the_same_second_is_stale() {
        let edited = event("edited");
        let mut first = facts();
        (first.updated_at, first.seen_at) = (Timestamp(5_000), Timestamp(6_500));
        let mut second = first.clone();
        second.change.head = sluice_model::git::Oid::from("def");
        let process = |seen: SeenEvents, facts: &ChangeFacts| {
            assert!(!seen.may_be_newer_than(&edited, facts));
            let mut seen = seen.without_stale_marks(&edited, facts);
            seen.marks = shown(facts);
            seen.next_moment(facts);
            seen
        };
        let seen = process(process(SeenEvents::default(), &first), &second);
        assert!(
            seen.may_be_newer_than(&edited, &first) && !seen.may_be_newer_than(&edited, &second)
        );
        second.updated_at = Timestamp(6_000);
        first.updated_at = Timestamp(7_000);
        process(process(seen, &second), &first);
    }

    /// C5: a webhook and the event that a sweep synthesized for it count as one.
    #[test]
    fn a_review_has_one_mark_for_its_webhook_and_its_sweep() {
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
            "a review of another user has no mark in this event"
        );
        assert_eq!(marks(&event("grace", "comment"), &facts), none);
    }

    /// C5: the user who dismisses need not be the reviewer. The dismissal counts as seen, or each
    /// sweep would search for it.
    #[test]
    fn a_dismissed_review_is_seen_once_whichever_user_dismissed_it() {
        let mut facts = facts();
        facts.reviews[0].state = ReviewState::Dismissed;
        let mut seen =
            SeenEvents { marks: [revision(&facts), label("go")].into(), ..SeenEvents::default() };
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
        assert!(
            seen.record_marks(marks(&event, &facts)) && !seen.record_marks(marks(&event, &facts))
        );
        assert!(shown(&facts).is_subset(&seen.marks));
        facts.reviews.clear();
        assert!(
            seen.record_marks(marks(&event, &facts)),
            "without the review in the facts each event is new"
        );
    }

    /// C5: each end and each reopening of a change is new; what a sweep synthesized of it counts
    /// once.
    #[test]
    fn a_synthesized_end_counts_once_and_the_next_end_is_new() {
        let (closed, reopened, edited) = (event("closed"), event("reopened"), event("edited"));
        let open = facts();
        let over = ChangeFacts { status: ChangeStatus::Closed, ..facts() };
        let later = ChangeFacts { seen_at: Timestamp(2 * 86_400_000), ..over.clone() };
        let mut seen = SeenEvents { marks: shown(&open), ..SeenEvents::default() };
        let mut apply = |event: &ForgeEvent, facts: &ChangeFacts, is_synthesized: bool| {
            let was_ended = seen.is_ended();
            seen = seen.clone().without_stale_marks(event, facts);
            let context = LifecycleContext { is_synthesized, was_ended };
            (seen.apply_lifecycle(event, facts, context), seen.is_ended())
        };
        assert_eq!(apply(&closed, &open, true), (false, false), "the change is open");
        assert_eq!(apply(&closed, &over, true), (true, true));
        assert_eq!(apply(&closed, &later, false), (false, true), "its webhook arrives later");
        assert_eq!(apply(&closed, &over, true), (false, true), "a webhook reported it meanwhile");
        assert_eq!(
            apply(&edited, &open, false),
            (true, true),
            "a reopening has an event of its own"
        );
        assert_eq!(apply(&reopened, &open, true), (true, false));
        assert_eq!(apply(&reopened, &open, false), (false, false), "its webhook arrives later");
        assert_eq!(apply(&closed, &over, false), (true, true));
        assert_eq!(apply(&reopened, &open, false), (true, false));
        let merged = ChangeFacts { status: ChangeStatus::Merged, ..facts() };
        assert_eq!(apply(&closed, &merged, false), (true, true));
    }

    /// C5
    #[test]
    fn marks_of_outdated_facts_are_removed() {
        let mut facts = facts();
        let seen = SeenEvents { marks: shown(&facts), ..SeenEvents::default() };
        let event = event("edited");
        assert_eq!(seen.clone().without_stale_marks(&event, &facts), seen);
        facts.labels.clear();
        facts.reviews[0].submitted_at = Timestamp(9);
        let now = seen.without_stale_marks(&event, &facts);
        assert_eq!((now.marks, now.retractions), ([revision(&facts)].into(), 1));
    }
}
