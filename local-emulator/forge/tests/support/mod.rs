//! A forge in a directory of its own, the git command, a plain HTTP client and a webhook receiver.
#![allow(dead_code, reason = "each test file uses its part")]

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;
use sluice_local_forge::{
    AccountPermission, Edit, ForgeAccount, ForgeOptions, LocalForge, Proposal,
};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

pub const REPOSITORY: &str = "org/one";
pub const SECRET: &str = "hush";

pub fn options(folder: &Path, first_hook: Option<(String, String)>) -> ForgeOptions {
    let accounts = vec![
        ForgeAccount::new("ann", "ann-token", AccountPermission::Admin),
        ForgeAccount::new("bob", "bob-token", AccountPermission::Write),
        ForgeAccount::new("guest", "guest-token", AccountPermission::Read),
    ];
    ForgeOptions { root: folder.join("forge"), port: 0, accounts, first_hook }
}

pub async fn start() -> (LocalForge, TempDir) {
    start_with(None).await
}

pub async fn start_with_receiver(receiver: &HookReceiver) -> (LocalForge, TempDir) {
    start_with(Some((receiver.url.clone(), SECRET.into()))).await
}

async fn start_with(first_hook: Option<(String, String)>) -> (LocalForge, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let forge = LocalForge::start(options(folder.path(), first_hook)).await.unwrap();
    forge.create_repository(REPOSITORY, &[Edit::write("README", "hello\n")], "ann").await.unwrap();
    (forge, folder)
}

pub fn proposal(head: &str) -> Proposal {
    Proposal { title: format!("Land {head}"), head: head.into(), ..Proposal::default() }
}

/// Runs git as a user would, in `folder`; an error is what it printed.
pub async fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = tokio::process::Command::new("git")
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "safe.directory=*"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("no_proxy", "127.0.0.1")
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// A client of the REST API.
pub struct Http {
    client: reqwest::Client,
    base: String,
    token: String,
}

impl Http {
    pub fn of(forge: &LocalForge, token: &str) -> Self {
        Self::at(&forge.api_url(), token)
    }

    pub fn at(base: &str, token: &str) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { client, base: base.into(), token: token.into() }
    }

    pub async fn get(&self, path: &str) -> (u16, HeaderMap, Value) {
        self.try_send("GET", path, None).await.unwrap()
    }

    pub async fn send(&self, method: &str, path: &str, json: Value) -> (u16, HeaderMap, Value) {
        self.try_send(method, path, Some(json)).await.unwrap()
    }

    /// Returns status, headers and JSON; an error when the forge was not there or left in the
    /// middle.
    pub async fn try_send(
        &self,
        method: &str,
        path: &str,
        json: Option<Value>,
    ) -> reqwest::Result<(u16, HeaderMap, Value)> {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if !self.token.is_empty() {
            request = request.header("authorization", format!("token {}", self.token));
        }
        if let Some(json) = json {
            request = request.json(&json);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await?;
        Ok((status, headers, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// One webhook, received. Its signature was right.
#[derive(Debug, Clone)]
pub struct ReceivedHook {
    pub event: String,
    pub guid: String,
    pub size: usize,
    pub body: Value,
}

/// A receiver of webhooks.
pub struct HookReceiver {
    pub url: String,
    received: Arc<Mutex<Vec<ReceivedHook>>>,
}

impl HookReceiver {
    /// Listens; answers with `statuses` in turn, then with 202.
    pub async fn open(statuses: &[u16]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let (all, statuses) = (received.clone(), statuses.to_vec());
        let receive = move |headers: HeaderMap, body: Bytes| async move {
            let header = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
            let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
            mac.update(&body);
            assert_eq!(
                header("x-hub-signature-256"),
                format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
            );
            let received = ReceivedHook {
                event: header("x-github-event"),
                guid: header("x-github-delivery"),
                size: body.len(),
                body: serde_json::from_slice(&body).unwrap(),
            };
            let mut all = all.lock().unwrap();
            all.push(received);
            StatusCode::from_u16(statuses.get(all.len() - 1).copied().unwrap_or(202)).unwrap()
        };
        let unlimited = axum::extract::DefaultBodyLimit::disable();
        let app = axum::Router::new().route("/hook", axum::routing::post(receive)).layer(unlimited);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, received }
    }

    pub fn received(&self) -> Vec<ReceivedHook> {
        self.received.lock().unwrap().clone()
    }
}
