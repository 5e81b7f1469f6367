//! What strangers and forges hand in.

use super::{headers, propose, site};
use bytes::Bytes;
use serde_json::json;
use sluice_forge::Marker;
use sluice_records::codec::decode;
use sluice_records::delivery::{Delivery, DeliveryState};
use sluice_scenarios::forge::OWN;
use sluice_scenarios::site::WEBHOOK_SECRET;

/// Z5: whoever cannot even make up a signature costs nothing.
#[test]
fn a_request_without_the_form_of_a_signature_is_refused_without_a_call() {
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

/// Z5: a stranger does not learn from a refusal what was wrong, nor whether there is such a
/// connection.
#[test]
fn every_refusal_for_a_signature_reads_the_same() {
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
        ("for a connection that does not exist", "nobody", ours.clone()),
    ];
    for (what, connection, headers) in refused {
        let answer = site.hand_in_at(&connection.into(), &headers, &body);
        assert_eq!(
            (answer.status().as_u16(), answer.headers().len()),
            (401, 0),
            "a signature {what}"
        );
        assert!(answer.body().is_empty(), "a signature {what}: {:?}", answer.body());
    }
    assert_eq!(site.hand_in(&ours, &body), 202, "but for these it is taken in");
}

/// Z5: GitHub's comments have up to 65,536 characters, each of which may be a line break or none of
/// ASCII.
#[test]
fn the_longest_comment_is_taken_in() {
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
    let kept = site.world.records().into_iter().filter(|record| {
        record.key.partition.starts_with("delivery#") && record.body.contains("recheck")
    });
    assert_eq!(kept.count(), 2, "both commands arrived");
}

/// C2.2, Z5: what we wrote ourselves comes back and is dropped, an event that nobody knows is
/// ignored with its reason, and one that comes twice is one. Each is stored, and none of them leads
/// to a build.
#[test]
fn echoes_strangers_and_repeats_are_stored_once_and_lead_to_nothing() {
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
            .map(|record| decode::<Delivery>(record).unwrap())
            .filter(|kept| kept.forge_id == forge_id);
        let [only] = <[Delivery; 1]>::try_from(all.collect::<Vec<_>>()).unwrap();
        only.state
    };
    assert_eq!(stored("own-comment"), DeliveryState::Own);
    // No trigger is for it; what one is for is not dropped (own.rs).
    assert_eq!(stored("own-status"), DeliveryState::Own);
    let DeliveryState::Ignored { why } = stored("unknown") else {
        panic!("{:?}", stored("unknown"))
    };
    assert!(why.contains("sponsorship"), "{why}");
    assert!(
        matches!(stored("repeated"), DeliveryState::Handled { .. }),
        "{:?}",
        stored("repeated")
    );
    // Whoever copies our mark into a comment of his own does not make it ours.
    assert!(matches!(stored("quoted"), DeliveryState::Handled { .. }), "{:?}", stored("quoted"));
    assert_eq!(site.builds().len(), built);
}
