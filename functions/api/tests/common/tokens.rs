//! A system with authenticators and access rules, and tokens for it.

use super::story;
use async_trait::async_trait;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::{
    Engine as _, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD,
};
use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::{Value, json};
use sluice_api::{Api, IssuerDocuments};
use sluice_auth::{Authenticator, AuthenticatorDriver, LoadUserInfo};
use sluice_browser_tests::story::{NOW, TestSystem, WEB_ROOT};
use sluice_keys::signature::sign_with_shared_secret;
use sluice_keys::{ProjectKey, Secret};
use sluice_model::TenantName;
use sluice_records::audit::{self, AuditEntry};
use sluice_records::authenticators::{self, StoredAuthenticator, seal_context};
use sluice_records::connection::{MAIN, seal};
use sluice_runtime::PortError;
use sluice_runtime::object::PutMode;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The private key of issuers, a checked-in test key.
const PRIVATE: &str = include_str!("../../../../shared/keys/tests/data/test-2048.pem");

/// The secret that the issuer `shared` signs with.
pub const SECRET: &str = "a shared secret that is long enough for HMAC";

/// The OpenID provider.
pub const PROVIDER: &str = "https://login.example.org/realms/one";

/// The rules of the two tenants: `acme` is read by its group and changed by root; `other` is read
/// by the group of its name, and changed by a role of its own.
pub const RULES: &str = r#"
- authorization-rule: {name: readers, conditions: [{groups: acme}]}
- authorization-rule: {name: admins, conditions: [{zuul_uid: root}]}
- authorization-rule: {name: same-name, conditions: [{groups: "{tenant.name}"}]}
- authorization-rule: {name: holders, conditions: [{groups: holders}]}
- role: {name: holder, permissions: {read: true, autohold: true, enqueue: {conditions: {project: org/app, ref: refs/heads/main}}}}
- tenant: {name: acme, access-rules: [readers], admin-rules: [admins]}
- tenant: {name: other, anonymous-read-access: false, role-mappings: {same-name: [read], holders: [holder]}}
"#;

/// A provider that publishes one key, and counts how often it is read.
#[derive(Default)]
pub struct Provider {
    /// The documents by address.
    pub documents: Mutex<BTreeMap<String, String>>,
    /// The addresses that were read.
    pub read: Mutex<Vec<String>>,
}

impl Provider {
    fn publish(&self, address: &str, document: &Value) {
        self.documents.lock().unwrap().insert(address.to_owned(), document.to_string());
    }
}

#[async_trait]
impl IssuerDocuments for Provider {
    async fn read(&self, address: &str) -> Result<Bytes, PortError> {
        self.read.lock().unwrap().push(address.to_owned());
        let documents = self.documents.lock().unwrap();
        let found = documents.get(address).cloned();
        found.map(Bytes::from).ok_or_else(|| PortError::unknown(format!("read {address}"), "404"))
    }
}

/// A system with authenticators.
pub struct Guarded {
    /// The records.
    pub story: TestSystem,
    /// The API, with the provider.
    pub api: Api,
    /// The OpenID provider.
    pub provider: Arc<Provider>,
}

fn authenticator(name: &str, driver: AuthenticatorDriver, issuer_id: &str) -> Authenticator {
    Authenticator {
        name: name.to_owned(),
        driver,
        realm: format!("{name}.example.org"),
        client_id: "sluice".to_owned(),
        audience: None,
        authority: None,
        issuer_id: issuer_id.to_owned(),
        uid_claim: "sub".to_owned(),
        max_validity_seconds: None,
        skew_seconds: 0,
        is_default: name == "company",
        allows_override: name == "shared",
    }
}

/// Returns the story with these rules, and with an authenticator of each driver.
pub async fn guarded(rules: &str) -> Guarded {
    let story = story().await;
    let ports = story.world.ports();
    let rules = Bytes::copy_from_slice(rules.as_bytes());
    ports.objects.put(MAIN, rules, PutMode::Always, "application/yaml").await.unwrap();
    let openid = AuthenticatorDriver::OpenIDConnect {
        keys_url: None,
        scope: "openid profile".to_owned(),
        load_user_info: LoadUserInfo::Yes,
    };
    let mut loaded = authenticators::load(&ports).await.unwrap();
    for (settings, public_key, secret) in [
        (authenticator("company", openid, PROVIDER), None, None),
        (authenticator("fixed", AuthenticatorDriver::Rs256, "fixed"), Some(public_pem()), None),
        (authenticator("shared", AuthenticatorDriver::Hs256, "shared"), None, Some(SECRET)),
    ] {
        let name = settings.name.clone();
        let secret = match secret {
            Some(plain) => Some(seal(&ports, &seal_context(&name), plain).await.unwrap()),
            None => None,
        };
        loaded.file.0.insert(name, StoredAuthenticator { settings, public_key, secret });
    }
    authenticators::store(&ports, loaded).await.unwrap();
    let provider = Arc::new(Provider::default());
    provider.publish(
        &format!("{PROVIDER}/.well-known/openid-configuration"),
        &json!({"issuer": PROVIDER, "jwks_uri": format!("{PROVIDER}/keys")}),
    );
    let modulus = pair().public_key().modulus().big_endian_without_leading_zero().to_vec();
    let modulus = URL_SAFE_NO_PAD.encode(modulus);
    provider.publish(
        &format!("{PROVIDER}/keys"),
        &json!({"keys": [{"kty": "RSA", "kid": "one", "use": "sig", "n": modulus, "e": "AQAB"}]}),
    );
    let api = Api::new(story.world.ports(), story.logs.clone(), WEB_ROOT)
        .with_issuer_documents(provider.clone());
    Guarded { story, api, provider }
}

fn pair() -> RsaKeyPair {
    let body: String = PRIVATE.lines().filter(|line| !line.starts_with("-----")).collect();
    RsaKeyPair::from_pkcs8(&STANDARD.decode(body).unwrap()).unwrap()
}

/// Returns the public key of the issuers in PEM.
pub fn public_pem() -> String {
    let key = ProjectKey::from_pem(&Secret::from(PRIVATE.to_owned())).unwrap();
    key.public().to_pem().unwrap()
}

/// Returns the claims of a token of an issuer, for a user, with changes; null removes a claim.
pub fn claims(issuer: &str, user: &str, changes: Value) -> Value {
    let now = NOW.seconds();
    let mut claims =
        json!({"iss": issuer, "aud": "sluice", "sub": user, "iat": now - 5, "exp": now + 600});
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

/// What signs a token.
pub enum Signer<'s> {
    /// The issuers' RSA key.
    Rsa,
    /// HMAC with a secret.
    Secret(&'s str),
    /// Nothing.
    Nothing,
}

/// Returns a token with a header and claims.
pub fn token(header: &Value, claims: &Value, signer: Signer<'_>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = match signer {
        Signer::Rsa => {
            let pair = pair();
            let mut signature = vec![0; pair.public_modulus_len()];
            let random = SystemRandom::new();
            pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
            signature
        }
        Signer::Secret(secret) => {
            let secret = Secret::from(secret.to_owned());
            sign_with_shared_secret(&secret, message.as_bytes()).unwrap()
        }
        Signer::Nothing => Vec::new(),
    };
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Returns a token of the issuer `shared` for a user with changes to its claims.
pub fn bearer(user: &str, changes: Value) -> String {
    let header = json!({"alg": "HS256", "typ": "JWT"});
    token(&header, &claims("shared", user, changes), Signer::Secret(SECRET))
}

/// Sends a request with a token (or none, if it is empty) and a JSON body.
pub async fn send(
    api: &Api,
    method: Method,
    path: &str,
    token: &str,
    body: &Value,
) -> Response<Bytes> {
    let mut request = Request::builder().method(method).uri(path);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    api.answer(request.body(body).unwrap()).await
}

/// Reads a path with a token.
pub async fn read(api: &Api, path: &str, token: &str) -> Response<Bytes> {
    send(api, Method::GET, path, token, &Value::Null).await
}

/// Returns the body of an answer as JSON.
pub fn body(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap_or(Value::Null)
}

/// A path of the protected tenant.
pub const STATUS: &str = "/api/tenant/acme/status";

/// Returns claims of a reader of the tenant `acme`, with changes.
pub fn readers(changes: Value) -> Value {
    let mut all = json!({"groups": ["acme"]});
    for (name, value) in changes.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

/// Returns the status of reading a protected tenant with a token, and the name of the error.
pub async fn attempt(system: &Guarded, token: &str) -> (u16, String) {
    let response = read(&system.api, STATUS, token).await;
    let error = body(&response)["error"].as_str().unwrap_or_default().to_owned();
    (response.status().as_u16(), error)
}

/// Returns a token of the issuer `shared` for a member of a group.
pub fn member_of(group: &str) -> String {
    bearer("alice", json!({"groups": [group]}))
}

/// Returns a token of the issuer `shared` for the user whom the rules make an administrator.
pub fn root() -> String {
    bearer("root", json!({"groups": ["acme"]}))
}

/// Returns the audit of a tenant, the newest first.
pub async fn audited(system: &Guarded, tenant: &str) -> Vec<AuditEntry> {
    let ports = system.story.world.ports();
    audit::newest(&ports, &TenantName::from(tenant), 100).await.unwrap()
}

/// Returns the status, the headers and the body of an answer without the tenant's name, to compare
/// two answers.
pub fn shape(response: &Response<Bytes>, tenant: &str) -> (u16, Vec<String>, String) {
    let headers = response.headers().iter();
    let mut headers: Vec<String> =
        headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    headers.sort();
    let text = String::from_utf8_lossy(response.body()).replace(tenant, "TENANT");
    (response.status().as_u16(), headers, text)
}
