//! Tokens of a real OpenID provider: its discovery document and its keys are read over HTTP.

use crate::common::tokens::{Guarded, RULES, attempt, audited, guarded, send};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::Method;
use serde_json::{Value, json};
use sluice_api::{Api, HttpIssuerDocuments};
use sluice_auth::{Authenticator, AuthenticatorDriver, LoadUserInfo};
use sluice_browser_tests::story::WEB_ROOT;
use sluice_foreign::oidc_provider;
use sluice_model::Timestamp;
use sluice_records::authenticators::{self, StoredAuthenticator};
use sluice_runtime::{Clock, Ports};
use std::sync::{Arc, Mutex};

const STATE: &str = "/api/tenant/acme/state";

/// The time that the API sees: that of the provider's tokens, so that no other clock counts.
struct TokenClock(Mutex<Timestamp>);

impl Clock for TokenClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

impl TokenClock {
    fn advance_seconds(&self, seconds: u64) {
        let mut now = self.0.lock().unwrap();
        *now = now.plus_seconds(seconds);
    }
}

/// Sends a request to the provider, and returns the JSON of its answer.
async fn json_of(request: reqwest::RequestBuilder) -> Value {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    assert!(status.is_success(), "{status}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Returns the token that a client gets with its own credentials for a resource.
async fn issued(issuer: &str, client: &str, resource: &str) -> String {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let found = json_of(http.get(format!("{issuer}/.well-known/openid-configuration"))).await;
    let request = http
        .post(found["token_endpoint"].as_str().unwrap())
        .basic_auth(client, Some(format!("secret-of-{client}")))
        .form(&[("grant_type", "client_credentials"), ("resource", resource)]);
    json_of(request).await["access_token"].as_str().unwrap().to_owned()
}

/// Returns a part of a token.
fn part(token: &str, number: usize) -> Value {
    let part = token.split('.').nth(number).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// Returns the system with an authenticator of the provider, at the time at which a token was
/// issued.
async fn system(issuer: &str, issued_at: Timestamp) -> (Guarded, Arc<TokenClock>) {
    let system = guarded(RULES).await;
    let ports = system.story.world.ports();
    let settings = Authenticator {
        name: "real".to_owned(),
        driver: AuthenticatorDriver::OpenIDConnect {
            keys_url: None,
            scope: "openid".to_owned(),
            load_user_info: LoadUserInfo::No,
        },
        realm: "real.example.org".to_owned(),
        client_id: "pages".to_owned(),
        audience: Some("sluice".to_owned()),
        authority: None,
        issuer_id: issuer.to_owned(),
        uid_claim: "sub".to_owned(),
        max_validity_seconds: None,
        skew_seconds: 0,
        is_default: false,
        allows_override: false,
    };
    let mut loaded = authenticators::load(&ports).await.unwrap();
    let stored = StoredAuthenticator { settings, public_key: None, secret: None };
    loaded.file.0.insert("real".to_owned(), stored);
    authenticators::store(&ports, loaded).await.unwrap();
    let clock = Arc::new(TokenClock(Mutex::new(issued_at)));
    let ports = Ports { clock: clock.clone(), ..ports };
    let api = Api::new(ports, system.story.logs.clone(), WEB_ROOT)
        .with_issuer_documents(Arc::new(HttpIssuerDocuments::new().unwrap()));
    (Guarded { api, ..system }, clock)
}

/// Z9.1, C2.2: what a real provider issues is accepted by discovery, for its audience and until it
/// expires; its keys are read again for an unknown one at most every 30 seconds, and a withdrawn
/// key ends then.
#[tokio::test]
async fn tokens_of_a_real_provider_are_accepted() {
    let provider = oidc_provider::start().await;
    let issuer = provider.endpoint();
    let alice = issued(issuer, "alice", "urn:sluice").await;
    let root = issued(issuer, "root", "urn:sluice").await;
    // The later one, so that both have been issued.
    let issued_at = part(&root, 1)["iat"].as_u64().unwrap();
    let (system, clock) = system(issuer, Timestamp(issued_at * 1_000)).await;
    assert_eq!(attempt(&system, "").await.0, 401);

    // A read and a write, each by those who may.
    assert_eq!(attempt(&system, &alice).await, (200, String::new()));
    let pause = json!({"trigger_queue_paused": true, "reason": "an upgrade"});
    let denied = send(&system.api, Method::POST, STATE, &alice, &pause).await;
    assert_eq!(denied.status(), 403);
    let allowed = send(&system.api, Method::POST, STATE, &root, &pause).await;
    assert_eq!(allowed.status(), 200);
    let entries = audited(&system, "acme").await;
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].by.as_str(), entries[0].via.as_str()), ("root", "api real"));

    // Another audience, another's signature, a key that does not exist.
    let other = issued(issuer, "alice", "urn:other").await;
    assert_eq!(attempt(&system, &other).await, (401, "TokenAudienceMismatch".to_owned()));
    let (message, _) = root.rsplit_once('.').unwrap();
    let (_, signature) = alice.rsplit_once('.').unwrap();
    let mixed = format!("{message}.{signature}");
    assert_eq!(attempt(&system, &mixed).await, (401, "TokenSignatureInvalid".to_owned()));
    let mut header = part(&alice, 0);
    header["kid"] = json!("none");
    let (_, rest) = alice.split_once('.').unwrap();
    let unknown = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header.to_string()));
    assert_eq!(attempt(&system, &unknown).await, (401, "TokenKeyUnknown".to_owned()));

    // A new key in the place of the old one.
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let rotated = http.post(format!("{issuer}/test/rotate")).send().await.unwrap();
    assert_eq!(rotated.status(), 204);
    let newer = issued(issuer, "alice", "urn:sluice").await;
    assert_ne!(part(&newer, 0)["kid"], part(&alice, 0)["kid"]);
    // It may be issued in a later second than the API's clock shows.
    let later = part(&newer, 1)["iat"].as_u64().unwrap().saturating_sub(issued_at);
    clock.advance_seconds(later);
    if later < 30 {
        let early = attempt(&system, &newer).await;
        assert_eq!(early, (401, "TokenKeyUnknown".to_owned()), "read a moment ago");
        assert_eq!(attempt(&system, &alice).await.0, 200, "the cached key");
    }
    clock.advance_seconds(30);
    assert_eq!(attempt(&system, &newer).await, (200, String::new()));
    assert_eq!(attempt(&system, &alice).await, (401, "TokenKeyUnknown".to_owned()), "withdrawn");
    clock.advance_seconds(600);
    assert_eq!(attempt(&system, &newer).await, (401, "TokenExpired".to_owned()));
}
