//! The table of attacks on the API: forged tokens, guessed and bent paths, other methods, tokens
//! that may only read. Each row is refused, and a refusal shows nothing of a tenant that the caller
//! may not read.

use crate::common::tokens::{
    PROVIDER, RULES, SECRET, STATUS, Signer, attempt, audited, bearer, claims, guarded, member_of,
    public_pem, read, readers, root, send, shape, token,
};
use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};
use sluice_browser_tests::story::{B, NOW, PAST, build_id, item_id};

/// The body of every write: each route takes what it needs.
fn write_body() -> Value {
    json!({
        "pipeline": "gate", "change": "12", "changes": ["12"], "job": "unit", "reason": "why",
        "count": 1, "state": "hold", "trigger_queue_paused": true,
    })
}

/// Every path of a tenant that changes something.
const WRITES: [(Method, &str); 11] = [
    (Method::POST, "project/org/app/enqueue"),
    (Method::POST, "project/org/none/enqueue"),
    (Method::POST, "project/org/app/dequeue"),
    (Method::POST, "project/org/app/autohold"),
    (Method::POST, "promote"),
    (Method::POST, "state"),
    (Method::DELETE, "autohold/0000000001"),
    (Method::PUT, "nodes/node-1"),
    (Method::DELETE, "nodeset-requests/1"),
    (Method::POST, "image/debian/build"),
    (Method::DELETE, "image-upload/1"),
];

/// C2.2: forged, foreign and stale tokens are refused, each with its reason.
#[tokio::test]
async fn forged_foreign_and_stale_tokens_are_refused() {
    let system = guarded(RULES).await;
    let now = NOW.seconds();
    let (rsa, hmac) = (json!({"alg": "RS256", "kid": "one"}), json!({"alg": "HS256"}));
    let none = json!({"alg": "none"});
    let of = |issuer: &str, changes: Value| claims(issuer, "alice", readers(changes));
    let pem = public_pem();
    let shared = |changes: Value| token(&hmac, &of("shared", changes), Signer::Secret(SECRET));
    let company = |changes: Value| token(&rsa, &of(PROVIDER, changes), Signer::Rsa);
    let valid = shared(json!({}));
    let (message, signature) = valid.rsplit_once('.').unwrap();
    let other = shared(json!({"sub": "root"}));
    let other_message = other.rsplit_once('.').unwrap().0;
    let cases = [
        // Algorithm confusion: the public key as an HMAC secret.
        (token(&hmac, &of("fixed", json!({})), Signer::Secret(&pem)), "TokenAlgorithmMismatch"),
        (token(&rsa, &of("fixed", json!({})), Signer::Secret(&pem)), "TokenSignatureInvalid"),
        (token(&hmac, &of(PROVIDER, json!({})), Signer::Secret(&pem)), "TokenAlgorithmMismatch"),
        (token(&rsa, &of("shared", json!({})), Signer::Rsa), "TokenAlgorithmMismatch"),
        // No signature.
        (token(&none, &of("shared", json!({})), Signer::Nothing), "TokenAlgorithmMismatch"),
        (token(&none, &of(PROVIDER, json!({})), Signer::Nothing), "TokenAlgorithmMismatch"),
        (
            token(&json!({"alg": "NONE"}), &of("fixed", json!({})), Signer::Nothing),
            "TokenAlgorithmMismatch",
        ),
        (token(&hmac, &of("shared", json!({})), Signer::Nothing), "TokenSignatureInvalid"),
        (format!("{message}."), "TokenSignatureInvalid"),
        (format!("{other_message}.{signature}"), "TokenSignatureInvalid"),
        (
            token(&hmac, &of("shared", json!({})), Signer::Secret(&"x".repeat(40))),
            "TokenSignatureInvalid",
        ),
        // Another audience or issuer.
        (shared(json!({"aud": "another-system"})), "TokenAudienceMismatch"),
        (company(json!({"aud": ["account"]})), "TokenAudienceMismatch"),
        (shared(json!({"aud": null})), "TokenClaimMissing"),
        (token(&hmac, &of("elsewhere", json!({})), Signer::Secret(SECRET)), "TokenIssuerUnknown"),
        (
            token(&rsa, &of("https://login.example.org", json!({})), Signer::Rsa),
            "TokenIssuerUnknown",
        ),
        // Another time.
        (shared(json!({"exp": now})), "TokenExpired"),
        (company(json!({"exp": now - 60})), "TokenExpired"),
        (shared(json!({"nbf": now + 60})), "TokenNotYetValid"),
        (shared(json!({"iat": now + 60})), "TokenNotYetValid"),
        (shared(json!({"exp": null})), "TokenClaimMissing"),
        // An unknown key.
        (
            token(&json!({"alg": "RS256", "kid": "two"}), &of(PROVIDER, json!({})), Signer::Rsa),
            "TokenKeyUnknown",
        ),
        // A key that the token itself brings or points to.
        (
            token(
                &json!({"alg": "RS256", "kid": "one", "jku": "https://evil.example.org/keys"}),
                &of(PROVIDER, json!({})),
                Signer::Secret(SECRET),
            ),
            "TokenSignatureInvalid",
        ),
        (
            token(
                &json!({"alg": "RS256", "jwk": {"kty": "oct", "k": "c2VjcmV0"}}),
                &of(PROVIDER, json!({})),
                Signer::Secret("secret secret secret secret secret"),
            ),
            "TokenSignatureInvalid",
        ),
        (
            token(
                &json!({"alg": "RS256", "kid": "../../../../dev/null"}),
                &of(PROVIDER, json!({})),
                Signer::Secret(&" ".repeat(32)),
            ),
            "TokenKeyUnknown",
        ),
        // A malformed administrator's claim.
        (shared(json!({"zuul": {"admin": "acme"}})), "TokenClaimMissing"),
        // No token at all.
        ("garbage".to_owned(), "TokenMalformed"),
        ("..".to_owned(), "TokenMalformed"),
        ("a".repeat(20_000), "TokenMalformed"),
    ];
    for (token, error) in cases {
        assert_eq!(attempt(&system, &token).await, (401, error.to_owned()), "{token:.60}");
    }
    assert_eq!(attempt(&system, "").await, (401, "MissingAuthError".to_owned()));
    // A token in another place than the header is none.
    for query in ["token", "access_token", "jwt"] {
        let response = read(&system.api, &format!("{STATUS}?{query}={valid}"), "").await;
        assert_eq!(response.status(), 401, "{query}");
    }
    let known = format!("{PROVIDER}/");
    let asked = system.provider.read.lock().unwrap();
    assert!(asked.iter().all(|address| address.starts_with(&known)), "{asked:?}");
}

/// C2.2: a flood of tokens with unknown keys causes at most one reading of the provider's keys in
/// 30 seconds, and forged tokens cause none.
#[tokio::test]
async fn a_flood_of_unknown_keys_reaches_the_provider_once() {
    let system = guarded(RULES).await;
    let reads = || system.provider.read.lock().unwrap().len();
    let of = |kid: &str, changes: Value| {
        let claims = claims(PROVIDER, "alice", readers(changes));
        token(&json!({"alg": "RS256", "kid": kid}), &claims, Signer::Rsa)
    };
    attempt(&system, &of("x", json!({"aud": "elsewhere"}))).await;
    attempt(&system, &of("x", json!({"exp": 1}))).await;
    assert_eq!(reads(), 0, "a token that is refused anyway");
    assert_eq!(attempt(&system, &of("one", json!({}))).await.0, 200);
    assert_eq!(reads(), 2, "the discovery document and the keys");
    for number in 0..50 {
        let unknown = of(&format!("no-{number}"), json!({}));
        assert_eq!(attempt(&system, &unknown).await.1, "TokenKeyUnknown");
    }
    assert_eq!(reads(), 2, "they were read a moment ago");
    system.story.world.advance_millis(30_000);
    for number in 0..50 {
        attempt(&system, &of(&format!("no-{number}"), json!({}))).await;
    }
    assert_eq!(reads(), 4);
    assert_eq!(attempt(&system, &of("one", json!({}))).await.0, 200, "known ones still work");
}

/// Every path of a tenant, with what belongs to acme alone.
fn paths(tenant: &str) -> Vec<String> {
    let (running, past) = (build_id(&B, "integration", 1), build_id(&PAST[0], "unit", 1));
    let item = item_id(&B);
    let rest = [
        "status".to_owned(),
        "status/change/12,4".to_owned(),
        "builds".to_owned(),
        "builds?limit=many".to_owned(),
        "builds?unknown=1".to_owned(),
        "buildsets".to_owned(),
        "build-times".to_owned(),
        "badge".to_owned(),
        "jobs".to_owned(),
        "job/unit".to_owned(),
        "projects".to_owned(),
        "project/org/app".to_owned(),
        "project/org/app/autohold".to_owned(),
        "project/org/app/freeze-pipeline".to_owned(),
        "pipelines".to_owned(),
        "pipeline/gate/project/org/app/branch/main/freeze-jobs".to_owned(),
        "labels".to_owned(),
        "nodes".to_owned(),
        "nodeset-requests".to_owned(),
        "semaphores".to_owned(),
        "autohold".to_owned(),
        "autohold/0000000001".to_owned(),
        "config-errors".to_owned(),
        "tenant-status".to_owned(),
        "system-events".to_owned(),
        "images".to_owned(),
        "key/org/app.pub".to_owned(),
        "project-ssh-key/org/app.pub".to_owned(),
        "tenant-ssh-key/ssh.pub".to_owned(),
        "console-stream".to_owned(),
        "board".to_owned(),
        "ledger".to_owned(),
        "why".to_owned(),
        "authorizations".to_owned(),
        "promote".to_owned(),
        "nothing".to_owned(),
        format!("build/{running}"),
        format!("build/{running}/log"),
        format!("build/{past}/log?offset=1"),
        format!("buildset/{item}"),
        format!("item/{item}"),
        String::new(),
    ];
    rest.into_iter().map(|rest| format!("/api/tenant/{tenant}/{rest}")).collect()
}

/// C2.2, Z2.3: a tenant that the caller may not read is answered exactly as one that does not
/// exist, byte for byte and with every method: 401 without a token, 404 with one.
#[tokio::test]
async fn a_hidden_tenant_is_answered_as_one_that_does_not_exist() {
    let system = guarded(RULES).await;
    let stranger = member_of("strangers");
    let other_admin = bearer("mallory", json!({"zuul": {"admin": ["other"]}}));
    let methods = [
        "GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND",
    ];
    for (hidden, unknown) in paths("acme").into_iter().zip(paths("none")) {
        for (token, status) in [("", 401), (stranger.as_str(), 404), (other_admin.as_str(), 404)] {
            for method in methods {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                let of = async |path: &str| {
                    send(&system.api, method.clone(), path, token, &Value::Null).await
                };
                let (one, two) = (of(&hidden).await, of(&unknown).await);
                assert_eq!(shape(&one, "acme"), shape(&two, "none"), "{method} {hidden}");
                let expected = match method.as_str() {
                    "GET" | "HEAD" | "POST" | "PUT" | "DELETE" => status,
                    "OPTIONS" => 204,
                    _ => 405,
                };
                // A query that is only sent with POST is a read with it, and refused otherwise.
                let answered = one.status().as_u16();
                let is_query = hidden.ends_with("/freeze-pipeline");
                assert!(
                    answered == expected || is_query && answered == 405,
                    "{method} {hidden}: {answered}"
                );
            }
        }
    }
    for (method, path) in WRITES {
        for token in ["", stranger.as_str(), other_admin.as_str()] {
            let of = async |tenant: &str| {
                let path = format!("/api/tenant/{tenant}/{path}");
                send(&system.api, method.clone(), &path, token, &write_body()).await
            };
            let (one, two) = (of("acme").await, of("none").await);
            assert_eq!(shape(&one, "acme"), shape(&two, "none"), "{method} {path}");
        }
    }
}

/// C2.2: no form of a path leads past the guard.
#[tokio::test]
async fn tricks_with_paths_do_not_help() {
    let system = guarded(RULES).await;
    let other = member_of("other");
    for path in [
        "//api//tenant//acme//status",
        "/api/tenant/%61cme/status",
        "/api/tenant/acm%65/status",
        "/api/tenant/other/../acme/status",
        "/api/tenant/other/%2e%2e/acme/status",
        "/api/tenant/%2e%2e/acme/status",
        "/api/tenant/./acme/status",
        "/api/tenant/other%2F..%2Facme/status",
        "/api/tenant/acme%00/status",
        "/api/tenant/ACME/status",
        "/api/tenant/acme;/status",
        "/api/tenant/acme%20/status",
        "/api/tenant/acme/./status",
        "/API/tenant/acme/status",
        "/api/tenant/acme/info/../status",
        "/api/tenant/acme/info/status",
        "/api/tenant//acme/status/",
        "/api/tenant/%252e%252e/acme/status",
        "/api/tenant/acme/status%2F",
        "/api/tenant/acme%2Fstatus",
        "/api/tenant%2Facme/status",
        "/api/info/../tenant/acme/status",
        "/t/acme/../../api/tenant/acme/status",
    ] {
        for (token, allowed) in [("", &[401_u16, 404][..]), (other.as_str(), &[404])] {
            for method in [Method::GET, Method::HEAD] {
                let response = send(&system.api, method, path, token, &Value::Null).await;
                let status = response.status().as_u16();
                assert!(allowed.contains(&status), "{path}: {status}");
                let text = String::from_utf8_lossy(response.body()).into_owned();
                assert!(!text.contains("pipelines"), "{path}: {text}");
            }
        }
    }
    // An administrator of `other` changes nothing of `acme`.
    let admin = bearer("mallory", json!({"zuul": {"admin": ["other"]}}));
    for path in [
        "//api//tenant//acme//state",
        "/api/tenant/%61cme/state",
        "/api/tenant/other/../acme/state",
        "/api/tenant/other/%2e%2e/acme/state",
        "/api/tenant/other%2F..%2Facme/state",
        "/api/tenant/ACME/state",
        "/api/tenant/acme/state/",
        "/api/tenant/acme/info/../state",
        "/api/tenant/acme/info",
        "/api/info/../tenant/acme/state",
    ] {
        let response = send(&system.api, Method::POST, path, &admin, &write_body()).await;
        assert_eq!(response.status(), 404, "{path}");
    }
    assert!(
        audited(&system, "acme").await.is_empty() && audited(&system, "other").await.is_empty()
    );
}

/// C2.2, Z7.4: logs by the id of a build and live logs belong to the tenant of the build.
#[tokio::test]
async fn logs_are_read_by_those_who_read_the_tenant() {
    let system = guarded(RULES).await;
    let (running, past) = (build_id(&B, "integration", 1), build_id(&PAST[0], "unit", 1));
    for rest in ["/job-output.txt", "/report/", "/", ""] {
        let path = |tenant: &str| format!("/logs/{tenant}/{past}{rest}");
        for (token, status) in [("", 401), (member_of("other").as_str(), 404)] {
            let hidden = read(&system.api, &path("acme"), token).await;
            let unknown = read(&system.api, &path("none"), token).await;
            assert_eq!(hidden.status(), status, "{rest}");
            assert_eq!(shape(&hidden, "acme"), shape(&unknown, "none"), "{rest}");
        }
        let response = read(&system.api, &path("acme"), &member_of("acme")).await;
        assert_eq!(response.status(), 200, "{rest}");
        assert_eq!(response.headers()["cache-control"], "private, no-store");
        // Through another tenant that the caller may read.
        let other = read(&system.api, &path("other"), &member_of("other")).await;
        assert_eq!(other.status(), 404, "{rest}");
    }
    for path in [
        format!("/logs/{past}/job-output.txt"),
        format!("/logs//acme//{past}/job-output.txt"),
        format!("/logs/other/../acme/{past}/job-output.txt"),
        format!("/logs/other/%2e%2e/{past}/job-output.txt"),
        format!("/logs/%61cme/{past}/job-output.txt"),
    ] {
        for token in [String::new(), member_of("other")] {
            let status = read(&system.api, &path, &token).await.status().as_u16();
            assert!([401, 404].contains(&status), "{path}: {status}");
        }
    }
    // By other methods, and in parts.
    let path = |tenant: &str| format!("/logs/{tenant}/{past}/job-output.txt");
    for method in ["HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH"] {
        for token in [String::new(), member_of("other")] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let hidden =
                send(&system.api, method.clone(), &path("acme"), &token, &Value::Null).await;
            let unknown =
                send(&system.api, method.clone(), &path("none"), &token, &Value::Null).await;
            assert_eq!(shape(&hidden, "acme"), shape(&unknown, "none"), "{method}");
            let status = hidden.status().as_u16();
            assert!([204, 401, 404, 405].contains(&status), "{method}: {status}");
            assert_eq!(status == 204, method == Method::OPTIONS);
            assert!(hidden.body().is_empty() || status != 204, "{method}");
        }
    }
    let part = Request::get(path("acme")).header("range", "bytes=0-3");
    assert_eq!(system.api.answer(part.body(Bytes::new()).unwrap()).await.status(), 401);
    // Live logs, by the build's own tenant and through another one that the caller may read.
    for (tenant, token, status) in [
        ("acme", String::new(), 401),
        ("acme", member_of("other"), 404),
        ("other", member_of("other"), 404),
        ("acme", member_of("acme"), 200),
    ] {
        let path = format!("/api/tenant/{tenant}/build/{running}/log");
        assert_eq!(read(&system.api, &path, &token).await.status(), status, "{tenant}");
    }
}

/// C2.2, Z7.4: there is no WebSocket that would read a log without the guard: the upgrade is
/// refused before a message could carry a build's id.
#[tokio::test]
async fn the_stream_of_a_console_is_no_way_around() {
    let system = guarded(RULES).await;
    for (tenant, token, status) in [
        ("acme", String::new(), 401),
        ("none", String::new(), 401),
        ("acme", member_of("other"), 404),
        ("none", member_of("other"), 404),
        ("acme", member_of("acme"), 404),
    ] {
        let mut request = Request::get(format!("/api/tenant/{tenant}/console-stream"))
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = system.api.answer(request.body(Bytes::new()).unwrap()).await;
        assert_eq!(response.status().as_u16(), status, "{tenant}");
        assert!(!response.headers().contains_key("upgrade"), "{tenant}");
    }
}

/// C2.2: each write needs a token, and one that may write; reading is not enough, and an
/// administrator of another tenant is a stranger. None of them stores anything.
#[tokio::test]
async fn writes_need_a_token_that_may_write() {
    let system = guarded(RULES).await;
    let body = write_body();
    let before = system.story.world.records().len();
    for (method, path) in WRITES {
        let stranger = bearer("mallory", json!({"zuul": {"admin": ["other"]}}));
        let forged = format!("{}x", root());
        let reader = member_of("acme");
        for (token, status) in
            [("", 401), (forged.as_str(), 401), (reader.as_str(), 403), (stranger.as_str(), 404)]
        {
            let full = format!("/api/tenant/acme/{path}");
            let response = send(&system.api, method.clone(), &full, token, &body).await;
            assert_eq!(response.status(), status, "{path}");
            let error: Value = serde_json::from_slice(response.body()).unwrap();
            assert!(error["error"].is_string() && error["description"].is_string(), "{error}");
        }
        let unknown = format!("/api/tenant/none/{path}");
        assert_eq!(send(&system.api, method.clone(), &unknown, "", &body).await.status(), 401);
        assert_eq!(send(&system.api, method, &unknown, &reader, &body).await.status(), 404);
    }
    assert_eq!(system.story.world.records().len(), before);
    assert!(audited(&system, "acme").await.is_empty());
}
