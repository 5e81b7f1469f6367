//! Webhook requests by forges and by unauthorized senders.

use super::{headers, propose, site};
use bytes::Bytes;
use serde_json::json;
use sluice_forge::Marker;
use sluice_records::codec::decode;
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_scenarios::forge::OWN;
use sluice_scenarios::site::WEBHOOK_SECRET;

/// Z5: a request without a well-formed signature costs no call.
#[test]
fn a_request_without_a_well_formed_signature_is_refused_without_a_call() {
    let site = site();
    let before = site.world.steps();
    let body = Bytes::from_static(b"{}");
    for claimed in ["", "sha256=", "sha256=zz", "sha1=da39a3ee5e6b4b0d3255bfef95601890afd80709"] {
        let mut headers = headers(&body, WEBHOOK_SECRET);
        headers.insert("x-hub-signature-256", claimed.parse().unwrap());
        assert_eq!(site.hand_in(&headers, &body), 401);
    }
    assert_eq!(site.world.steps(), before);
}

/// Z5: a refusal discloses neither what is wrong with the signature nor whether the connection
/// exists.
#[test]
fn every_refusal_of_a_signature_is_identical() {
    let site = site();
    let body = Bytes::from_static(b"{}");
    let ours = headers(&body, WEBHOOK_SECRET);
    let with = |signature: &str| {
        let mut headers = ours.clone();
        headers.insert("x-hub-signature-256", signature.parse().unwrap());
        headers
    };
    let mut missing = ours.clone();
    missing.remove("x-hub-signature-256");
    let refused = [
        ("of another secret", "github", headers(&body, "not the secret")),
        ("of another body", "github", headers(b"{ }", WEBHOOK_SECRET)),
        ("made up", "github", with(&format!("sha256={}", "0".repeat(64)))),
        ("missing", "github", missing),
        ("empty", "github", with("")),
        ("too short", "github", with("sha256=0")),
        ("no digits", "github", with(&format!("sha256={}", "z".repeat(64)))),
        ("of another kind", "github", with("sha1=da39a3ee5e6b4b0d3255bfef95601890afd80709")),
        ("for a connection that does not exist", "unknown", ours.clone()),
    ];
    for (defect, connection, headers) in refused {
        let answer = site.hand_in_at(&connection.into(), &headers, &body);
        assert_eq!(
            (answer.status().as_u16(), answer.headers().len()),
            (401, 0),
            "a signature {defect}"
        );
        assert!(answer.body().is_empty(), "a signature {defect}: {:?}", answer.body());
    }
    assert_eq!(site.hand_in(&ours, &body), 202, "a valid signature is accepted");
}

/// Z5: a GitHub comment has up to 65,536 characters, which may all be line breaks or non-ASCII.
#[test]
fn the_longest_possible_comment_is_accepted() {
    let mut site = site();
    propose(&site, 1, &[("a", "x")]);
    site.run();
    for filling in ["\n", "é"] {
        let text = format!("recheck{}", filling.repeat(65_529));
        let body = json!({
            "action": "created", "issue": {"number": 1, "pull_request": {}}, "comment": {"body": text},
            "repository": {"full_name": "org/one"}, "sender": {"login": "ada"},
        });
        let body = Bytes::from(body.to_string());
        let mut headers = headers(&body, WEBHOOK_SECRET);
        headers.insert("x-github-event", "issue_comment".parse().unwrap());
        headers.insert("x-github-delivery", format!("comment-{}", filling.len()).parse().unwrap());
        assert_eq!(site.hand_in(&headers, &body), 202);
    }
    site.run();
    let stored = site.world.records().into_iter().filter(|record| {
        record.key.partition.starts_with("delivery#") && record.body.contains("recheck")
    });
    assert_eq!(stored.count(), 2, "both comments are stored");
}

/// C2.2, Z5: a self-authored event is dropped, an unknown event is ignored with a reason, and a
/// redelivered event is stored once. None of them leads to a build.
#[test]
fn self_authored_unknown_and_redelivered_events_are_stored_once_and_start_nothing() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    let built = site.builds().len();
    let head = site.forge.change(&a).unwrap().facts.change.head;
    let about = |rest: serde_json::Value, sender: &str| {
        let mut all = json!({"repository": {"full_name": "org/one"}, "sender": {"login": sender}});
        all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Bytes::from(all.to_string())
    };
    let comment = |text: &str, sender: &str| {
        let issue = json!({"number": 1, "pull_request": {}});
        about(json!({"action": "created", "issue": issue, "comment": {"body": text}}), sender)
    };
    let ours = Marker::new("check/1").attach("recheck");
    let status = json!({"sha": head, "context": "demo/check", "state": "success", "branches": []});
    let cases = [
        ("own-comment", "issue_comment", comment(&ours, OWN)),
        ("own-status", "status", about(status, OWN)),
        ("unknown", "sponsorship", about(json!({"action": "created"}), "ada")),
        ("repeated", "issue_comment", comment("hello", "ada")),
        ("repeated", "issue_comment", comment("hello", "ada")),
        ("quoted", "issue_comment", comment(&Marker::new("check/1").attach("hello"), "mallory")),
    ];
    for (id, event, body) in cases {
        let mut headers = headers(&body, WEBHOOK_SECRET);
        headers.insert("x-github-event", event.parse().unwrap());
        headers.insert("x-github-delivery", id.parse().unwrap());
        assert_eq!(site.hand_in(&headers, &body), 202, "{id}");
    }
    site.run();
    let stored = |forge_id: &str| {
        let records = site.world.records();
        let of_id = records.iter().filter(|record| record.key.partition.starts_with("delivery#"));
        let all = of_id
            .map(|record| decode::<DeliveryRecord>(record).unwrap())
            .filter(|delivery| delivery.forge_id == forge_id);
        let [only] = <[DeliveryRecord; 1]>::try_from(all.collect::<Vec<_>>()).unwrap();
        only.state
    };
    assert_eq!(stored("own-comment"), DeliveryState::SelfAuthored);
    // No trigger names this status; for one that a trigger names see `self_authored_events`.
    assert_eq!(stored("own-status"), DeliveryState::SelfAuthored);
    let DeliveryState::Ignored { why } = stored("unknown") else {
        panic!("{:?}", stored("unknown"))
    };
    assert!(why.contains("sponsorship"), "{why}");
    assert!(
        matches!(stored("repeated"), DeliveryState::Handled { .. }),
        "{:?}",
        stored("repeated")
    );
    // Another user's comment with a copied marker is not self-authored.
    assert!(matches!(stored("quoted"), DeliveryState::Handled { .. }), "{:?}", stored("quoted"));
    assert_eq!(site.builds().len(), built);
}
