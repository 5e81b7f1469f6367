//! The tokens that the API accepts, and how it refuses others. Attacks are in `attacks`.

use crate::common::tokens::{
    PROVIDER, RULES, SECRET, STATUS, Signer, attempt, bearer, body, claims, guarded, read, readers,
    token,
};
use http::Request;
use serde_json::{Value, json};
use sluice_records::authenticators;
use sluice_records::connection::MAIN;
use sluice_runtime::object::PutMode;

/// C2.2: a token of each kind of issuer is accepted.
#[tokio::test]
async fn a_valid_token_of_each_driver_is_accepted() {
    let system = guarded(RULES).await;
    let of = |issuer: &str| claims(issuer, "alice", readers(json!({})));
    let rsa = json!({"alg": "RS256"});
    for token in [
        token(&json!({"alg": "RS256", "kid": "one"}), &of(PROVIDER), Signer::Rsa),
        token(&rsa, &of(PROVIDER), Signer::Rsa),
        token(&rsa, &of("fixed"), Signer::Rsa),
        token(&json!({"alg": "HS256"}), &of("shared"), Signer::Secret(SECRET)),
    ] {
        assert_eq!(attempt(&system, &token).await, (200, String::new()));
    }
}

/// C2.2: a refusal says in which realm to log in, and why.
#[tokio::test]
async fn a_refusal_is_a_challenge() {
    let system = guarded(RULES).await;
    let response = read(&system.api, STATUS, "").await;
    assert_eq!(response.status(), 401);
    assert_eq!(response.headers()["content-type"], "application/json; charset=utf-8");
    let challenge = response.headers()["www-authenticate"].to_str().unwrap().to_owned();
    assert!(
        challenge.starts_with("Bearer realm=\"company.example.org\" error=\"MissingAuthError\""),
        "{challenge}"
    );
    assert_eq!(response.headers()["cache-control"], "private, no-store");
    let body = body(&response);
    assert_eq!(
        (&body["realm"], &body["error"]),
        (&json!("company.example.org"), &json!("MissingAuthError"))
    );
    for (header, error) in [
        ("Basic cm9vdDpyb290", "InvalidAuthFormat"),
        ("Bearer", "InvalidAuthFormat"),
        ("", "InvalidAuthFormat"),
        ("Bearer  ", "TokenMalformed"),
    ] {
        let request = Request::get(STATUS).header("authorization", header);
        let response = system.api.answer(request.body(bytes::Bytes::new()).unwrap()).await;
        let answered = serde_json::from_slice::<Value>(response.body()).unwrap();
        assert_eq!(
            (response.status().as_u16(), &answered["error"]),
            (401, &json!(error)),
            "{header}"
        );
    }
    let token = bearer("alice", readers(json!({})));
    let twice = Request::get(STATUS)
        .header("authorization", format!("bearer {token}"))
        .header("authorization", format!("Bearer {token}"));
    assert_eq!(system.api.answer(twice.body(bytes::Bytes::new()).unwrap()).await.status(), 401);
    let lower = Request::get(STATUS).header("authorization", format!("bearer {token}"));
    assert_eq!(system.api.answer(lower.body(bytes::Bytes::new()).unwrap()).await.status(), 200);
}

/// C2.2: a provider that does not answer, or answers for another issuer, lets no one in.
#[tokio::test]
async fn a_provider_without_usable_keys_lets_no_bearer_in() {
    let valid = || {
        let claims = claims(PROVIDER, "alice", readers(json!({})));
        token(&json!({"alg": "RS256", "kid": "one"}), &claims, Signer::Rsa)
    };
    let discovery = format!("{PROVIDER}/.well-known/openid-configuration");
    for document in [
        None,
        Some(json!({"issuer": "https://evil.example.org", "jwks_uri": format!("{PROVIDER}/keys")})),
        Some(json!({"issuer": PROVIDER, "jwks_uri": "http://login.example.org/keys"})),
        Some(json!({"issuer": PROVIDER})),
        Some(json!("html")),
    ] {
        let system = guarded(RULES).await;
        {
            let mut documents = system.provider.documents.lock().unwrap();
            match &document {
                None => drop(documents.remove(&discovery)),
                Some(document) => drop(documents.insert(discovery.clone(), document.to_string())),
            }
        }
        assert_eq!(attempt(&system, &valid()).await.0, 503, "{document:?}");
        let other = bearer("alice", readers(json!({})));
        assert_eq!(attempt(&system, &other).await.0, 200, "other issuers are not concerned");
    }
}

/// C2.2: a removed authenticator and changed rules take effect within seconds.
#[tokio::test]
async fn a_removed_authenticator_is_accepted_for_seconds_only() {
    let system = guarded(RULES).await;
    let valid = bearer("alice", readers(json!({})));
    assert_eq!(attempt(&system, &valid).await.0, 200);
    let ports = system.story.world.ports();
    let rules = RULES.replace("groups: acme", "groups: elsewhere");
    ports.objects.put(MAIN, rules.into(), PutMode::Always, "application/yaml").await.unwrap();
    system.story.world.advance_millis(15_000);
    assert_eq!(attempt(&system, &valid).await.0, 404, "the rule does not match any more");
    let mut loaded = authenticators::load(&ports).await.unwrap();
    loaded.file.0.remove("shared");
    authenticators::store(&ports, loaded).await.unwrap();
    system.story.world.advance_millis(15_000);
    assert_eq!(attempt(&system, &valid).await, (401, "TokenIssuerUnknown".to_owned()));
}

/// Z9.1: what clients need to log in, without a secret.
#[tokio::test]
async fn information_names_the_realms_and_no_secret() {
    let system = guarded(RULES).await;
    // Also with a token that has expired: otherwise no client could log in again.
    let response = read(&system.api, "/api/info", &bearer("alice", json!({"exp": 1}))).await;
    assert_eq!(response.status(), 200);
    let text = String::from_utf8_lossy(response.body()).into_owned();
    assert!(!text.contains(SECRET) && !text.contains("BEGIN PUBLIC KEY"), "{text}");
    let auth = &body(&response)["info"]["capabilities"]["auth"];
    assert_eq!(auth["default_realm"], "company.example.org");
    assert_eq!(
        auth["realms"]["company.example.org"],
        json!({
            "authority": PROVIDER, "client_id": "sluice", "type": "JWT", "driver": "OpenIDConnect",
            "scope": "openid profile", "load_user_info": true,
        })
    );
    assert_eq!(auth["realms"]["shared.example.org"]["driver"], "HS256");
    assert_eq!(auth["auth_log_file_requests"], true);
}
