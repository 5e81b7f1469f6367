//! Tests of which attribute updates are missed, and which events are new.

use super::*;
use sluice_config::connection::Driver;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::LandingMethod;
use sluice_records::connection::AwsAccess;

fn facts() -> ChangeFacts {
    let key = ChangeKey::change("forge".into(), "forge.test/org/one".into(), 1);
    let head = sluice_model::git::Oid::from("abc");
    let change = ChangeRef { key, branch: "main".into(), patchset: head.0.clone(), head };
    ChangeFacts { labels: vec!["go".to_owned()], ..ChangeFacts::bare(change, Timestamp(8)) }
}

fn scope() -> SweepScope {
    let connection = StoredConnection {
        driver: Driver::GitHub,
        canonical_hostname: "forge.test".to_owned(),
        api_url: None,
        git_url: "https://forge.test".to_owned(),
        login: Some("sluice[bot]".to_owned()),
        token: None,
        webhook_secrets: Vec::new(),
        landing: LandingMethod::default(),
        poll_minutes: None,
        aws: AwsAccess::default(),
    };
    SweepScope { connection: Some(connection), statuses: true, is_gerrit: false }
}

fn event(kind: EventKind) -> ForgeEvent {
    let (connection, project) = ("forge".into(), "forge.test/org/one".into());
    ForgeEvent { connection, project, sender: "ada".to_owned(), kind }
}

fn status(by: &str, state: &str, is_check: bool) -> CommitStatus {
    CommitStatus {
        by: by.to_owned(),
        context: "a:b".to_owned(),
        state: state.to_owned(),
        is_check,
        number: None,
    }
}

fn vote(label: &str, value: i64, by: &str) -> Vote {
    Vote { label: label.into(), value, username: by.into(), email: None, cast_at: Timestamp(9) }
}

/// C5: each missed update has an event that covers exactly it, so that it is not found again.
#[test]
fn the_event_of_a_missed_update_covers_it() {
    let before = facts();
    let now = ChangeFacts {
        title: "another".to_owned(),
        draft: true,
        topic: Some("feature".to_owned()),
        labels: Vec::new(),
        votes: vec![vote("Code-Review", 2, "grace")],
        statuses: vec![status("ci", "success", false)],
        ..before.clone()
    };
    for is_gerrit in [false, true] {
        let scope = SweepScope { is_gerrit, ..scope() };
        let mut attributes = Attributes::of(&before);
        let lost = attributes.missed_updates(&now, &scope);
        assert_eq!(lost.len(), if is_gerrit { 6 } else { 4 }, "{lost:?}");
        for lost in lost {
            let (novelty, differs) = attributes.apply(&event(lost.kind(1, is_gerrit)), &now, true);
            assert_eq!((novelty, differs), (Novelty::New, true), "{lost:?}");
            // Found by two sweeps before either was processed, or reported by a webhook as well.
            assert_eq!(
                attributes.apply(&event(lost.kind(1, is_gerrit)), &now, true).0,
                Novelty::AlreadySynthesized,
                "{lost:?}"
            );
            assert_eq!(
                attributes.apply(&event(lost.kind(1, is_gerrit)), &now, false).0,
                Novelty::AlreadySynthesized,
                "{lost:?}"
            );
            assert_eq!(
                attributes.apply(&event(lost.kind(1, is_gerrit)), &now, false).0,
                Novelty::New,
                "{lost:?}"
            );
        }
        assert_eq!(attributes.missed_updates(&now, &scope), []);
        assert!(attributes.are_complete(&now));
    }
}

/// C5, G11: each of several missed votes has an event of its own, also on one label. Votes that
/// were cast together and whose webhook arrives later are not new.
#[test]
fn each_of_several_missed_votes_is_processed_once() {
    let votes = vec![
        vote("Code-Review", 2, "grace"),
        vote("Approved", 1, "grace"),
        vote("Code-Review", 2, "ada"),
    ];
    let with = ChangeFacts { votes, ..facts() };
    let scope = SweepScope { is_gerrit: true, ..scope() };
    for (before, now) in [(facts(), with.clone()), (with.clone(), facts())] {
        let mut attributes = Attributes::of(&before);
        let lost = attributes.missed_updates(&now, &scope);
        let marks: BTreeSet<String> = lost.iter().map(|lost| lost.mark(&now)).collect();
        assert_eq!((lost.len(), marks.len()), (3, 3), "{marks:?}");
        for lost in &lost {
            assert_eq!(
                attributes.apply(&event(lost.kind(1, true)), &now, true),
                (Novelty::New, true),
                "{lost:?}"
            );
        }
        assert_eq!(attributes.missed_updates(&now, &scope), []);
    }
    let mut attributes = Attributes::of(&facts());
    for lost in attributes.missed_updates(&with, &scope) {
        attributes.apply(&event(lost.kind(1, true)), &with, true);
    }
    let cast = |label: &str, value| CastVote { label: label.into(), value, before: Some(0) };
    let both = GerritEvent {
        number: 1,
        r#type: "comment-added".into(),
        username: "grace".into(),
        votes: vec![cast("Approved", 1), cast("Code-Review", 2)],
        ..GerritEvent::default()
    };
    assert_eq!(
        attributes.apply(&event(EventKind::Gerrit(both)), &with, false).0,
        Novelty::AlreadySynthesized
    );
}

/// C5, G11: a missed vote that was removed and cast again is found and processed once. A stored
/// value without a time is the same vote.
#[test]
fn a_vote_that_was_cast_again_is_another() {
    let at = |at| ChangeFacts {
        votes: vec![Vote { cast_at: Timestamp(at), ..vote("Approved", 1, "grace") }],
        ..facts()
    };
    let scope = SweepScope { is_gerrit: true, ..scope() };
    let mut attributes = Attributes::of(&at(9));
    assert_eq!(attributes.missed_updates(&at(9), &scope), []);
    let lost = attributes.missed_updates(&at(10), &scope);
    assert_eq!(lost, [MissedUpdate::Vote(at(10).votes[0].clone(), 0)]);
    assert_eq!(
        attributes.apply(&event(lost[0].kind(1, true)), &at(10), true),
        (Novelty::New, true)
    );
    assert_eq!(attributes.missed_updates(&at(10), &scope), []);
    let name = vote_name(&at(9).votes[0]);
    attributes.values.insert(name.clone(), "1".to_owned());
    assert!(
        attributes.missed_updates(&at(11), &scope).is_empty() && attributes.are_complete(&at(11))
    );
    assert!(
        !attributes.apply(&event(lost[0].kind(1, true)), &at(11), true).1
            && attributes.values[&name] == "1 at 11"
    );
}

/// C5, Z6.1: a status that was set again with the same value is another one and processed once. A
/// stale answer adds none, and a stored value without a number is the same status.
#[test]
fn a_status_that_was_set_again_is_another() {
    let at = |number| ChangeFacts {
        statuses: vec![CommitStatus { number, ..status("ci", "success", false) }],
        ..facts()
    };
    let mut attributes = Attributes::of(&at(Some(5)));
    for older in [Some(5), Some(4), None] {
        assert_eq!(attributes.missed_updates(&at(older), &scope()), [], "{older:?}");
    }
    // The replaced status in a stale answer: if it were processed again, so would be the one after
    // it.
    let replaced = CommitStatus { number: Some(4), ..status("ci", "pending", false) };
    let replaced = ChangeFacts { statuses: vec![replaced], ..facts() };
    assert_eq!(attributes.missed_updates(&replaced, &scope()), []);
    let delivered = event(MissedUpdate::Status(replaced.statuses[0].clone()).kind(1, false));
    assert_eq!(attributes.apply(&delivered, &replaced, true), (Novelty::AlreadySynthesized, false));
    assert_eq!(
        attributes.missed_updates(&at(Some(5)), &scope()),
        [],
        "what was delivered stays delivered"
    );
    let failed = CommitStatus { number: Some(5), ..status("ci", "failure", true) };
    let failed = ChangeFacts { statuses: vec![failed], ..facts() };
    assert_eq!(
        attributes.missed_updates(&failed, &scope()).len(),
        1,
        "a check run keeps its number when it ends otherwise"
    );
    let lost = attributes.missed_updates(&at(Some(6)), &scope());
    assert_eq!(lost, [MissedUpdate::Status(at(Some(6)).statuses[0].clone())]);
    assert_ne!(
        lost[0].mark(&at(Some(6))),
        MissedUpdate::Status(at(Some(5)).statuses[0].clone()).mark(&at(Some(5)))
    );
    let found = event(lost[0].kind(1, false));
    assert_eq!(attributes.apply(&found, &at(Some(6)), true), (Novelty::New, true));
    assert_eq!(attributes.missed_updates(&at(Some(6)), &scope()), []);
    assert_eq!(
        attributes.apply(&found, &at(Some(6)), false).0,
        Novelty::AlreadySynthesized,
        "its webhook comes late"
    );
    assert_eq!(
        attributes.apply(&found, &at(Some(7)), false),
        (Novelty::New, true),
        "it was set once more"
    );
    attributes.apply(&found, &at(Some(6)), false);
    assert_eq!(
        attributes.missed_updates(&at(Some(7)), &scope()),
        [],
        "an older answer takes nothing back"
    );
    let name = status_name("ci", "a:b");
    attributes.values.insert(name.clone(), "success".to_owned());
    assert_eq!(attributes.missed_updates(&at(Some(9)), &scope()), []);
    assert!(
        !attributes.apply(&found, &at(Some(9)), false).1
            && attributes.values[&name] == "success at 9"
    );
}

/// C5: the event of a status records that status only, and only if the change shows it.
#[test]
fn a_status_that_is_not_shown_is_not_recorded() {
    let at = |state: &str, number| {
        let statuses = vec![CommitStatus { number: Some(number), ..status("ci", state, false) }];
        ChangeFacts { statuses, ..facts() }
    };
    let delivered =
        |facts: &ChangeFacts| event(MissedUpdate::Status(facts.statuses[0].clone()).kind(1, false));
    let (pending, success, failure) = (at("pending", 5), at("success", 6), at("failure", 7));
    for behind in [facts(), pending.clone()] {
        let mut attributes = Attributes::of(&behind);
        assert_eq!(
            attributes.apply(&delivered(&success), &behind, true),
            (Novelty::AlreadySynthesized, false)
        );
        assert_eq!(
            attributes.missed_updates(&success, &scope()),
            [MissedUpdate::Status(success.statuses[0].clone())]
        );
        assert_eq!(attributes.apply(&delivered(&success), &success, true), (Novelty::New, true));
        assert_eq!(attributes.missed_updates(&success, &scope()), []);
    }
    let mut attributes = Attributes::of(&pending);
    assert_eq!(
        attributes.apply(&delivered(&success), &facts(), false),
        (Novelty::New, false),
        "it is delivered, and not shown"
    );
    assert_eq!(attributes.apply(&delivered(&success), &failure, false), (Novelty::New, false));
    assert_eq!(
        attributes.missed_updates(&failure, &scope()),
        [MissedUpdate::Status(failure.statuses[0].clone())]
    );
    assert_eq!(attributes.apply(&delivered(&failure), &failure, false), (Novelty::New, true));
    assert_eq!(attributes.missed_updates(&failure, &scope()), []);
}

/// C5: a comment without votes records none: a missed vote of the same user is still found.
#[test]
fn a_comment_records_only_the_votes_that_it_names() {
    let now = ChangeFacts { votes: vec![vote("Approved", 1, "grace")], ..facts() };
    let mut attributes = Attributes::of(&facts());
    let r#type = "comment-added".to_owned();
    let said =
        GerritEvent { number: 1, r#type, username: "grace".into(), ..GerritEvent::default() };
    assert_eq!(
        attributes.apply(&event(EventKind::Gerrit(said)), &now, false),
        (Novelty::New, false)
    );
    assert_eq!(
        attributes.missed_updates(&now, &SweepScope { is_gerrit: true, ..scope() }).len(),
        1
    );
}

/// C5: a webhook arrives minutes late, not days: the same update later is new.
#[test]
fn synthesized_updates_are_remembered_for_an_hour() {
    let edited = event(MissedUpdate::Edited.kind(1, false));
    for (millis, said) in
        [(SYNTHESIZED_MILLIS - 1, Novelty::AlreadySynthesized), (SYNTHESIZED_MILLIS, Novelty::New)]
    {
        let mut attributes = Attributes::of(&facts());
        let mut now = ChangeFacts { title: "another".to_owned(), ..facts() };
        assert_eq!(attributes.apply(&edited, &now, true).0, Novelty::New);
        now.seen_at = now.seen_at.plus_millis(millis);
        assert_eq!(attributes.apply(&edited, &now, false).0, said, "{millis}");
    }
    let old: Attributes =
        serde_json::from_str("{\"values\": {\"draft\": \"false\"}, \"synthesized\": [\"edited\"]}")
            .unwrap();
    assert!(old.values.contains_key(DRAFT) && old.synthesized_at.is_empty());
}

/// C5: statuses that no pipeline uses, and pending check runs, are not missed. Sluice's own are;
/// the sweep checks whether a trigger matches them.
#[test]
fn statuses_are_missed_where_they_are_used() {
    let attributes = Attributes::of(&facts());
    let with = |status| ChangeFacts { statuses: vec![status], ..facts() };
    let lost = |status, scope: &SweepScope| attributes.missed_updates(&with(status), scope).len();
    assert_eq!(lost(status("ci", "pending", false), &scope()), 1);
    assert_eq!(lost(status("ci", "pending", true), &scope()), 0);
    assert_eq!(
        (
            lost(status("sluice[bot]", "success", false), &scope()),
            lost(status("sluice", "success", true), &scope())
        ),
        (1, 1)
    );
    let unknown = StoredConnection { login: None, ..scope().connection.unwrap() };
    let unknown = SweepScope { connection: Some(unknown), ..scope() };
    for (by, known, may) in
        [("sluice[bot]", true, true), ("other[bot]", false, true), ("grace", false, false)]
    {
        assert_eq!(
            (scope().may_be_self(by), unknown.may_be_self(by), unknown.is_own(by)),
            (known, may, false),
            "{by}"
        );
    }
    assert!(scope().is_own("sluice[bot]") && scope().is_own("sluice") && !scope().is_own("ci"));
    assert_eq!(lost(status("ci", "success", false), &SweepScope { statuses: false, ..scope() }), 0);
    assert!(
        attributes.are_complete(&with(status("ci", "success", false))),
        "a status moves no change"
    );
}

/// C5: a comment is new even if the vote that it came with was synthesized; the vote is not.
#[test]
fn a_comment_is_new_even_if_its_vote_was_synthesized() {
    let cast = |before| CastVote { label: "Code-Review".into(), value: 2, before: Some(before) };
    let delivered = |comment: &str| {
        event(EventKind::Gerrit(GerritEvent {
            number: 1,
            r#type: "comment-added".into(),
            username: "grace".into(),
            comment: Some(comment.to_owned()),
            votes: vec![cast(0)],
            ..GerritEvent::default()
        }))
    };
    let vote = Vote {
        label: "Code-Review".into(),
        value: 2,
        username: "grace".into(),
        email: None,
        cast_at: Timestamp(9),
    };
    let now = ChangeFacts { votes: vec![vote.clone()], ..facts() };
    for (comment, has_text) in
        [("Patch Set 1: Code-Review+2", false), ("Patch Set 1: Code-Review+2\n\nrecheck", true)]
    {
        let mut attributes = Attributes::of(&facts());
        attributes.apply(&event(MissedUpdate::Vote(vote.clone(), 0).kind(1, true)), &now, true);
        match attributes.apply(&delivered(comment), &now, false).0 {
            Novelty::CommentOnly(words) => {
                let EventKind::Gerrit(words) = words.kind else { unreachable!() };
                assert!(
                    has_text && words.votes.is_empty() && words.comment.as_deref() == Some(comment)
                );
            }
            other => assert_eq!((other, has_text), (Novelty::AlreadySynthesized, false)),
        }
    }
}

/// C5, G11: a vote on a new revision whose event was read before the forge showed it is found after
/// the revision's event. Votes on the old revision are gone with it.
#[test]
fn a_new_revision_records_no_vote_on_it() {
    let old = ChangeFacts { votes: vec![vote("Verified", 1, "ci")], ..facts() };
    let new = ChangeFacts { votes: vec![vote("Code-Review", 2, "grace")], ..facts() };
    let patchset =
        GerritEvent { number: 1, r#type: "patchset-created".into(), ..GerritEvent::default() };
    let cast = CastVote { label: "Code-Review".into(), value: 2, before: Some(0) };
    let voted = GerritEvent {
        number: 1,
        r#type: "comment-added".into(),
        username: "grace".into(),
        votes: vec![cast],
        ..GerritEvent::default()
    };
    let scope = SweepScope { is_gerrit: true, ..scope() };
    for is_synthesized in [false, true] {
        let mut attributes = Attributes::of(&old);
        // The answer is stale: it shows the old revision.
        attributes.apply(&event(EventKind::Gerrit(voted.clone())), &old, false);
        attributes.apply(&event(EventKind::Gerrit(patchset.clone())), &new, is_synthesized);
        assert_eq!(
            attributes.missed_updates(&new, &scope),
            [MissedUpdate::Vote(new.votes[0].clone(), 0)]
        );
        let lost = attributes.missed_updates(&new, &scope)[0].kind(1, true);
        assert_eq!(attributes.apply(&event(lost), &new, true), (Novelty::New, true));
        assert_eq!(attributes.missed_updates(&new, &scope), []);
    }
}

/// C5, G11: so is a vote whose event was missed where the revision was processed first, with facts
/// that show the vote.
#[test]
fn the_first_event_of_a_change_records_no_vote_on_it() {
    let facts = ChangeFacts { votes: vec![vote("Code-Review", 2, "grace")], ..facts() };
    let patchset =
        GerritEvent { number: 1, r#type: "patchset-created".into(), ..GerritEvent::default() };
    let first = Attributes::first(&event(EventKind::Gerrit(patchset)), &facts);
    assert_eq!(
        first.missed_updates(&facts, &SweepScope { is_gerrit: true, ..scope() }),
        [MissedUpdate::Vote(facts.votes[0].clone(), 0)]
    );
}
