//! What of a change's attributes was told, and what was lost.

use super::*;
use sluice_config::connection::Driver;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::LandingWay;

fn facts() -> ChangeFacts {
    let key = ChangeKey::change("forge".into(), "forge.test/org/one".into(), 1);
    let head = sluice_model::git::Oid::from("abc");
    let change = ChangeRef { key, branch: "main".into(), patchset: head.0.clone(), head };
    ChangeFacts { labels: vec!["go".to_owned()], ..ChangeFacts::bare(change, Timestamp(8)) }
}

fn asks() -> Asks {
    let connection = Connection {
        driver: Driver::GitHub,
        canonical_hostname: "forge.test".to_owned(),
        api_url: None,
        git_url: "https://forge.test".to_owned(),
        login: Some("sluice[bot]".to_owned()),
        token: None,
        webhook_secrets: Vec::new(),
        landing: LandingWay::default(),
    };
    Asks { connection: Some(connection), statuses: true, is_gerrit: false }
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

/// C5: each thing that was found has an event that tells of just that, so that it is not found
/// again.
#[test]
fn the_event_of_what_was_lost_tells_of_all_of_it() {
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
        let asks = Asks { is_gerrit, ..asks() };
        let mut attributes = Attributes::of(&before);
        let lost = attributes.lost(&now, &asks);
        assert_eq!(lost.len(), if is_gerrit { 6 } else { 4 }, "{lost:?}");
        for lost in lost {
            let (heard, differs) = attributes.hear(&event(lost.kind(1, is_gerrit)), &now, true);
            assert_eq!((heard, differs), (Said::News, true), "{lost:?}");
            // Found by two sweeps before either was heard, or told after all.
            assert_eq!(
                attributes.hear(&event(lost.kind(1, is_gerrit)), &now, true).0,
                Said::Known,
                "{lost:?}"
            );
            assert_eq!(
                attributes.hear(&event(lost.kind(1, is_gerrit)), &now, false).0,
                Said::Known,
                "{lost:?}"
            );
            assert_eq!(
                attributes.hear(&event(lost.kind(1, is_gerrit)), &now, false).0,
                Said::News,
                "{lost:?}"
            );
        }
        assert_eq!(attributes.lost(&now, &asks), []);
        assert!(attributes.are_whole(&now));
    }
}

/// C5, G11: of several votes that nobody told of each is told, also of one label; what was cast
/// together and comes late is known.
#[test]
fn each_of_several_lost_votes_is_told_once() {
    let votes = vec![
        vote("Code-Review", 2, "grace"),
        vote("Approved", 1, "grace"),
        vote("Code-Review", 2, "ada"),
    ];
    let with = ChangeFacts { votes, ..facts() };
    let asks = Asks { is_gerrit: true, ..asks() };
    for (before, now) in [(facts(), with.clone()), (with.clone(), facts())] {
        let mut attributes = Attributes::of(&before);
        let lost = attributes.lost(&now, &asks);
        let marks: BTreeSet<String> = lost.iter().map(|lost| lost.mark(&now)).collect();
        assert_eq!((lost.len(), marks.len()), (3, 3), "{marks:?}");
        for lost in &lost {
            assert_eq!(
                attributes.hear(&event(lost.kind(1, true)), &now, true),
                (Said::News, true),
                "{lost:?}"
            );
        }
        assert_eq!(attributes.lost(&now, &asks), []);
    }
    let mut attributes = Attributes::of(&facts());
    for lost in attributes.lost(&with, &asks) {
        attributes.hear(&event(lost.kind(1, true)), &with, true);
    }
    let cast = |label: &str, value| CastVote { label: label.into(), value, before: Some(0) };
    let both = GerritEvent {
        number: 1,
        r#type: "comment-added".into(),
        username: "grace".into(),
        votes: vec![cast("Approved", 1), cast("Code-Review", 2)],
        ..GerritEvent::default()
    };
    assert_eq!(attributes.hear(&event(EventKind::Gerrit(both)), &with, false).0, Said::Known);
}

/// C5, G11: a vote that was taken back and cast again without a word is found, and told once; what
/// older records hold is the same.
#[test]
fn a_vote_that_was_cast_again_is_another() {
    let at = |at| ChangeFacts {
        votes: vec![Vote { cast_at: Timestamp(at), ..vote("Approved", 1, "grace") }],
        ..facts()
    };
    let asks = Asks { is_gerrit: true, ..asks() };
    let mut attributes = Attributes::of(&at(9));
    assert_eq!(attributes.lost(&at(9), &asks), []);
    let lost = attributes.lost(&at(10), &asks);
    assert_eq!(lost, [Lost::Vote(at(10).votes[0].clone(), 0)]);
    assert_eq!(attributes.hear(&event(lost[0].kind(1, true)), &at(10), true), (Said::News, true));
    assert_eq!(attributes.lost(&at(10), &asks), []);
    let name = vote_name(&at(9).votes[0]);
    attributes.told.insert(name.clone(), "1".to_owned());
    assert!(attributes.lost(&at(11), &asks).is_empty() && attributes.are_whole(&at(11)));
    assert!(
        !attributes.hear(&event(lost[0].kind(1, true)), &at(11), true).1
            && attributes.told[&name] == "1 at 11"
    );
}

/// C5, Z6.1: a status that was set again and says the same is another, and is told once. An older
/// answer of the forge tells of none, and what older records hold is the same.
#[test]
fn a_status_that_was_set_again_is_another() {
    let at = |number| ChangeFacts {
        statuses: vec![CommitStatus { number, ..status("ci", "success", false) }],
        ..facts()
    };
    let mut attributes = Attributes::of(&at(Some(5)));
    for older in [Some(5), Some(4), None] {
        assert_eq!(attributes.lost(&at(older), &asks()), [], "{older:?}");
    }
    // What it replaced, as a forge shows that is behind: told once more, the one after it would be
    // told once more as well.
    let replaced = CommitStatus { number: Some(4), ..status("ci", "pending", false) };
    let replaced = ChangeFacts { statuses: vec![replaced], ..facts() };
    assert_eq!(attributes.lost(&replaced, &asks()), []);
    let told = event(Lost::Status(replaced.statuses[0].clone()).kind(1, false));
    assert_eq!(attributes.hear(&told, &replaced, true), (Said::Known, false));
    assert_eq!(attributes.lost(&at(Some(5)), &asks()), [], "what was told stays told");
    let failed = CommitStatus { number: Some(5), ..status("ci", "failure", true) };
    let failed = ChangeFacts { statuses: vec![failed], ..facts() };
    assert_eq!(
        attributes.lost(&failed, &asks()).len(),
        1,
        "a check run keeps its number when it ends otherwise"
    );
    let lost = attributes.lost(&at(Some(6)), &asks());
    assert_eq!(lost, [Lost::Status(at(Some(6)).statuses[0].clone())]);
    assert_ne!(
        lost[0].mark(&at(Some(6))),
        Lost::Status(at(Some(5)).statuses[0].clone()).mark(&at(Some(5)))
    );
    let found = event(lost[0].kind(1, false));
    assert_eq!(attributes.hear(&found, &at(Some(6)), true), (Said::News, true));
    assert_eq!(attributes.lost(&at(Some(6)), &asks()), []);
    assert_eq!(
        attributes.hear(&found, &at(Some(6)), false).0,
        Said::Known,
        "its webhook comes late"
    );
    assert_eq!(
        attributes.hear(&found, &at(Some(7)), false),
        (Said::News, true),
        "it was set once more"
    );
    attributes.hear(&found, &at(Some(6)), false);
    assert_eq!(attributes.lost(&at(Some(7)), &asks()), [], "an older answer takes nothing back");
    let name = status_name("ci", "a:b");
    attributes.told.insert(name.clone(), "success".to_owned());
    assert_eq!(attributes.lost(&at(Some(9)), &asks()), []);
    assert!(
        !attributes.hear(&found, &at(Some(9)), false).1 && attributes.told[&name] == "success at 9"
    );
}

/// C5: a status tells of itself alone. What is shown in its place, of before or of after it, is not
/// told by that, and neither is it where it is not shown.
#[test]
fn a_status_that_is_not_shown_is_not_told() {
    let at = |state: &str, number| {
        let statuses = vec![CommitStatus { number: Some(number), ..status("ci", state, false) }];
        ChangeFacts { statuses, ..facts() }
    };
    let told = |facts: &ChangeFacts| event(Lost::Status(facts.statuses[0].clone()).kind(1, false));
    let (pending, success, failure) = (at("pending", 5), at("success", 6), at("failure", 7));
    for behind in [facts(), pending.clone()] {
        let mut attributes = Attributes::of(&behind);
        assert_eq!(attributes.hear(&told(&success), &behind, true), (Said::Known, false));
        assert_eq!(attributes.lost(&success, &asks()), [Lost::Status(success.statuses[0].clone())]);
        assert_eq!(attributes.hear(&told(&success), &success, true), (Said::News, true));
        assert_eq!(attributes.lost(&success, &asks()), []);
    }
    let mut attributes = Attributes::of(&pending);
    assert_eq!(
        attributes.hear(&told(&success), &facts(), false),
        (Said::News, false),
        "it is told, and not shown"
    );
    assert_eq!(attributes.hear(&told(&success), &failure, false), (Said::News, false));
    assert_eq!(attributes.lost(&failure, &asks()), [Lost::Status(failure.statuses[0].clone())]);
    assert_eq!(attributes.hear(&told(&failure), &failure, false), (Said::News, true));
    assert_eq!(attributes.lost(&failure, &asks()), []);
}

/// C5: a comment that names no vote tells of none: one of the same person that was lost is found
/// all the same.
#[test]
fn a_comment_tells_of_the_votes_that_it_names() {
    let now = ChangeFacts { votes: vec![vote("Approved", 1, "grace")], ..facts() };
    let mut attributes = Attributes::of(&facts());
    let r#type = "comment-added".to_owned();
    let said =
        GerritEvent { number: 1, r#type, username: "grace".into(), ..GerritEvent::default() };
    assert_eq!(attributes.hear(&event(EventKind::Gerrit(said)), &now, false), (Said::News, false));
    assert_eq!(attributes.lost(&now, &Asks { is_gerrit: true, ..asks() }).len(), 1);
}

/// C5: a webhook comes minutes late and not days: whoever does the same again tells news. Records
/// of before hold no times.
#[test]
fn what_was_made_up_for_is_remembered_for_an_hour() {
    let edited = event(Lost::Edited.kind(1, false));
    for (millis, said) in [(MADE_UP_MILLIS - 1, Said::Known), (MADE_UP_MILLIS, Said::News)] {
        let mut attributes = Attributes::of(&facts());
        let mut now = ChangeFacts { title: "another".to_owned(), ..facts() };
        assert_eq!(attributes.hear(&edited, &now, true).0, Said::News);
        now.seen_at = now.seen_at.plus_millis(millis);
        assert_eq!(attributes.hear(&edited, &now, false).0, said, "{millis}");
    }
    let old: Attributes =
        serde_json::from_str("{\"told\": {\"draft\": \"false\"}, \"made_up\": [\"edited\"]}")
            .unwrap();
    assert!(old.told.contains_key(DRAFT) && old.made_up_at.is_empty());
}

/// C5: what nobody heeds and what is under way is not missed; what we said ourselves is, and the
/// sweep asks who waits for it.
#[test]
fn statuses_are_missed_where_they_are_heeded() {
    let attributes = Attributes::of(&facts());
    let with = |status| ChangeFacts { statuses: vec![status], ..facts() };
    let lost = |status, asks: &Asks| attributes.lost(&with(status), asks).len();
    assert_eq!(lost(status("ci", "pending", false), &asks()), 1);
    assert_eq!(lost(status("ci", "pending", true), &asks()), 0);
    assert_eq!(
        (
            lost(status("sluice[bot]", "success", false), &asks()),
            lost(status("sluice", "success", true), &asks())
        ),
        (1, 1)
    );
    let unknown = Connection { login: None, ..asks().connection.unwrap() };
    let unknown = Asks { connection: Some(unknown), ..asks() };
    for (by, known, may) in
        [("sluice[bot]", true, true), ("other[bot]", false, true), ("grace", false, false)]
    {
        assert_eq!(
            (asks().may_be_own(by), unknown.may_be_own(by), unknown.is_own(by)),
            (known, may, false),
            "{by}"
        );
    }
    assert!(asks().is_own("sluice[bot]") && asks().is_own("sluice") && !asks().is_own("ci"));
    assert_eq!(lost(status("ci", "success", false), &Asks { statuses: false, ..asks() }), 0);
    assert!(
        attributes.are_whole(&with(status("ci", "success", false))),
        "a status moves no change"
    );
}

/// C5: a comment that comes with a vote which was found before is told, and the vote is not told
/// again.
#[test]
fn words_are_news_although_the_vote_they_came_with_was_found() {
    let cast = |before| CastVote { label: "Code-Review".into(), value: 2, before: Some(before) };
    let told = |comment: &str| {
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
    for (comment, is_told) in
        [("Patch Set 1: Code-Review+2", false), ("Patch Set 1: Code-Review+2\n\nrecheck", true)]
    {
        let mut attributes = Attributes::of(&facts());
        attributes.hear(&event(Lost::Vote(vote.clone(), 0).kind(1, true)), &now, true);
        match attributes.hear(&told(comment), &now, false).0 {
            Said::Words(words) => {
                let EventKind::Gerrit(words) = words.kind else { unreachable!() };
                assert!(
                    is_told && words.votes.is_empty() && words.comment.as_deref() == Some(comment)
                );
            }
            other => assert_eq!((other, is_told), (Said::Known, false)),
        }
    }
}

/// C5, G11: a vote on a new revision whose own event was read before the forge showed it is found
/// once that revision is heard of, and votes on the revision before are gone with it.
#[test]
fn a_new_revision_tells_of_no_vote_that_is_on_it() {
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
    let asks = Asks { is_gerrit: true, ..asks() };
    for is_made_up in [false, true] {
        let mut attributes = Attributes::of(&old);
        // The forge is behind: it shows the revision of before.
        attributes.hear(&event(EventKind::Gerrit(voted.clone())), &old, false);
        attributes.hear(&event(EventKind::Gerrit(patchset.clone())), &new, is_made_up);
        assert_eq!(attributes.lost(&new, &asks), [Lost::Vote(new.votes[0].clone(), 0)]);
        let lost = attributes.lost(&new, &asks)[0].kind(1, true);
        assert_eq!(attributes.hear(&event(lost), &new, true), (Said::News, true));
        assert_eq!(attributes.lost(&new, &asks), []);
    }
}

/// C5, G11: so is one whose own event was lost where the revision was told first, and read late
/// enough to show it.
#[test]
fn the_first_word_of_a_change_tells_of_no_vote_on_it() {
    let facts = ChangeFacts { votes: vec![vote("Code-Review", 2, "grace")], ..facts() };
    let patchset =
        GerritEvent { number: 1, r#type: "patchset-created".into(), ..GerritEvent::default() };
    let first = Attributes::first(&event(EventKind::Gerrit(patchset)), &facts);
    assert_eq!(
        first.lost(&facts, &Asks { is_gerrit: true, ..asks() }),
        [Lost::Vote(facts.votes[0].clone(), 0)]
    );
}
