//! What strangers and forges hand in.

use super::{headers, propose, site};
use bytes::Bytes;
use serde_json::json;
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

/// Z5: GitHub's comments have up to 65,536 characters, each of which may be a line break or none of ASCII.
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
    let kept = site
        .world
        .records()
        .into_iter()
        .filter(|record| record.key.partition.starts_with("delivery#") && record.body.contains("recheck"));
    assert_eq!(kept.count(), 2, "both commands arrived");
}
