//! What was told of a change: each revision, review and label counts as news once, whether its webhook or a sweep told of it.

use sluice_model::BranchName;
use sluice_model::change::{ChangeFacts, Review, ReviewState};
use sluice_model::event::{EventKind, ForgeEvent};
use std::collections::BTreeSet;

/// Marks of what was told; kept beside the facts, and no longer than what they stand for.
pub(crate) type Told = BTreeSet<String>;

/// What separates head and branch in a revision's mark; no branch's name holds a space.
const FOR: &str = " for ";

/// Returns the mark of the revision that a change has now: its head and the branch it is to be merged into. The same commits
/// on another branch are something else to test.
pub(crate) fn revision(facts: &ChangeFacts) -> String {
    format!("revision {}{FOR}{}", facts.change.head, facts.change.branch)
}

/// Returns the branches that the change was for when it was told of, other than the one it is for now.
pub(crate) fn former_branches(told: &Told, facts: &ChangeFacts) -> Vec<BranchName> {
    let marks = told.iter().filter(|mark| mark.starts_with("revision "));
    let branches = marks.filter_map(|mark| mark.split_once(FOR)).map(|(_, branch)| BranchName::from(branch));
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

/// Drops marks of what is no longer so: a label that is put on again is news again.
pub(crate) fn still_true(told: Told, facts: &ChangeFacts) -> Told {
    let now: Told = [revision(facts)]
        .into_iter()
        .chain(facts.reviews.iter().map(review))
        .chain(facts.labels.iter().map(|name| label(name)))
        .collect();
    told.intersection(&now).cloned().collect()
}

/// Returns the mark of what an event tells, when it tells one of the things that are told once. `None` for all else, such as
/// comments, which are news each time.
pub(crate) fn mark(event: &ForgeEvent, facts: &ChangeFacts) -> Option<String> {
    let EventKind::Change { event: name, action, label: labelled, state, .. } = &event.kind else { return None };
    match (name.as_str(), action.as_str()) {
        ("pull_request", "opened" | "changed") => Some(revision(facts)),
        ("pull_request", "labeled") => {
            labelled.as_ref().filter(|name| facts.labels.contains(name)).map(|name| label(name))
        }
        ("pull_request_review", "submitted") => {
            let is_meant = |review: &&Review| review.by == event.sender && state.as_deref() == Some(word(review.state));
            facts.reviews.iter().find(is_meant).map(review)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::Timestamp;
    use sluice_model::change::{ChangeKey, ChangeRef, ChangeStatus, Permission};

    fn facts() -> ChangeFacts {
        let key = ChangeKey { connection: "github".into(), project: "forge.test/org/one".into(), number: 1 };
        let head = sluice_model::git::Oid::from("abc");
        ChangeFacts {
            change: ChangeRef { key, branch: "main".into(), patchset: head.0.clone(), head },
            status: ChangeStatus::Open,
            draft: false,
            title: String::new(),
            message: String::new(),
            author: "ada".to_owned(),
            url: String::new(),
            labels: vec!["go".to_owned()],
            reviews: vec![Review {
                by: "grace".to_owned(),
                state: ReviewState::Approved,
                permission: Permission::Write,
                submitted_at: Timestamp(7),
            }],
            statuses: Vec::new(),
            files: None,
            depends_on: Vec::new(),
            mergeable: None,
            merge_commit: None,
            seen_at: Timestamp(8),
        }
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
        assert_eq!(mark(&event("grace", "approved"), &facts), Some(review(&facts.reviews[0])));
        assert_eq!(mark(&event("ada", "approved"), &facts), None, "another's review is not known to be told");
        assert_eq!(mark(&event("grace", "comment"), &facts), None);
    }

    /// C5
    #[test]
    fn a_mark_lasts_no_longer_than_what_it_stands_for() {
        let mut facts = facts();
        let told: Told = [revision(&facts), label("go"), review(&facts.reviews[0])].into();
        assert_eq!(still_true(told.clone(), &facts), told);
        facts.labels.clear();
        facts.reviews[0].submitted_at = Timestamp(9);
        assert_eq!(still_true(told, &facts), [revision(&facts)].into());
    }
}
