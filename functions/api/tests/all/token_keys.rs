//! The documents by which services verify the OIDC tokens of jobs.

use crate::common::{ask, get, json, story};
use http::Method;
use serde_json::{Value, json as value};
use sluice_api::Api;
use sluice_foreign::oidc_provider;
use sluice_keys::Secret;
use sluice_keys::token::TokenSigner;
use sluice_records::oidc_key::{self, ROTATION_SECONDS, SigningPeriod};
use sluice_runtime::Ports;

const ROOT: &str = "https://ci.example.org";

/// Signs a token as executors do, with the stored pair of the current period.
async fn signed(ports: &Ports, ttl_seconds: u64) -> Secret {
    let now = ports.clock.now();
    let period = SigningPeriod::of(now);
    let pem = oidc_key::open(ports, period).await.unwrap().expect("the pair was published");
    let signer = TokenSigner::from_pem(&Secret::new(pem)).unwrap();
    let claims = value!({
        "iss": ROOT, "aud": "deploy.example.org", "sub": "secret:acme/github.com/org/app/login",
        "iat": now.seconds(), "exp": now.seconds() + ttl_seconds, "job-name": "release",
    });
    signer.sign(claims.as_object().unwrap()).unwrap()
}

/// Verifies a token with the documents that the API serves.
async fn verify(api: &Api, token: &Secret, now: u64) -> Result<Value, String> {
    let configuration = json(api, "/.well-known/openid-configuration").await;
    let keys = configuration["jwks_uri"].as_str().unwrap().strip_prefix(ROOT).unwrap();
    let input = value!({
        "configuration": configuration, "jwks": json(api, keys).await,
        "token": token.expose_text().unwrap(), "now": now,
    });
    oidc_provider::verify(&input, "deploy.example.org")
}

/// Z5.5: a library that others wrote verifies a token of a job by the served documents alone, and
/// refuses it after its time, for another audience and with a changed claim.
#[tokio::test]
async fn a_library_of_others_verifies_a_token_by_the_served_documents() {
    let story = story().await;
    let api = Api::new(story.world.ports(), story.logs.clone(), ROOT);
    let ports = story.world.ports();
    let now = ports.clock.now().seconds();
    json(&api, "/oidc/jwks").await;
    let token = signed(&ports, 300).await;
    let claims = verify(&api, &token, now).await.unwrap();
    assert_eq!(claims["sub"], "secret:acme/github.com/org/app/login");
    assert_eq!(claims["job-name"], "release");
    assert!(verify(&api, &token, now + 301).await.unwrap_err().contains("exp"));
    let text = token.expose_text().unwrap();
    let (head, rest) = text.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let changed = format!("{head}.{}.{signature}", "e30");
    assert!(verify(&api, &Secret::from(changed), now).await.is_err());
}

/// Z5.5: a key is published before it signs, and stays published while its tokens are valid.
#[tokio::test]
async fn keys_rotate_and_tokens_of_the_last_week_stay_verifiable() {
    let story = story().await;
    let api = Api::new(story.world.ports(), story.logs.clone(), ROOT);
    let ids = |keys: &Value| -> Vec<String> {
        let keys = keys["keys"].as_array().unwrap();
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    };
    let first = json(&api, "/oidc/jwks").await;
    assert_eq!(ids(&first).len(), 2, "the next key and this one");
    assert!(!first.to_string().contains("\"d\""), "no private number");
    let ports = story.world.ports();
    let token = signed(&ports, ROTATION_SECONDS).await;
    let now = ports.clock.now().seconds();
    story.world.advance_millis(ROTATION_SECONDS * 1_000);
    let second = json(&api, "/oidc/jwks").await;
    assert_eq!(ids(&second)[1..], ids(&first)[..], "the published next key signs now");
    verify(&api, &token, now + ROTATION_SECONDS - 1).await.unwrap();
}

/// Z5.5, Z9.1: the documents are at the addresses that Zuul has, without a token and alike for
/// every tenant; a tenant's issuer is the address of its own documents.
#[tokio::test]
async fn the_documents_are_at_zuuls_addresses() {
    let story = story().await;
    let api = Api::new(story.world.ports(), story.logs.clone(), ROOT);
    let keys = json(&api, "/oidc/jwks").await;
    for path in [
        "/.well-known/jwks",
        "/oidc/.well-known/jwks",
        "/oidc/tenant/acme/jwks",
        "/oidc/tenant/none/jwks",
        "/oidc/acme/jwks",
        "/oidc/acme/.well-known/jwks",
    ] {
        assert_eq!(json(&api, path).await, keys, "{path}");
    }
    let of_tenant = json(&api, "/oidc/tenant/acme/.well-known/openid-configuration").await;
    let issuer = of_tenant["issuer"].as_str().unwrap();
    assert_eq!(issuer, format!("{ROOT}/oidc/tenant/acme"));
    assert_eq!(of_tenant["jwks_uri"], format!("{issuer}/jwks"));
    assert_eq!(of_tenant["id_token_signing_alg_values_supported"], value!(["RS256"]));
    let head = ask(&api, Method::HEAD, "/.well-known/openid-configuration").await;
    assert_eq!((head.status().as_u16(), head.body().len()), (200, 0));
    assert_eq!(get(&api, "/oidc/other").await.status(), 404);
}
