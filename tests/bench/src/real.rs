//! A deployment with a local forge and git repositories. Only Ansible and nodes are simulated.

use crate::clocked::{ClockedForge, ClockedRepos, Stopwatch};
use crate::deployment::{Deployment, Parts, Signed, WEBHOOK_SECRET};
use crate::runner::Builds;
use crate::sample::{self, File};
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sluice_forge::{Forge, ForgeSecret, GitHub, GitHubOptions};
use sluice_git::Credential;
use sluice_local_forge::{
    AccountPermission, Edit, ForgeAccount, ForgeOptions, LocalForge, Proposal, PullState,
};
use sluice_model::git::LandingMethod;
use sluice_repos::{GitRepos, Remote, Repos};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

/// The project whose changes are measured.
const PROJECT: &str = "org/one";

/// A deployment with a local forge.
pub struct Real {
    /// The deployment.
    pub deployment: Deployment,
    /// The forge.
    pub forge: Arc<LocalForge>,
    /// Time spent in calls of the forge and in git.
    pub outside: Stopwatch,
    _folder: tempfile::TempDir,
}

impl Real {
    /// Builds it with repositories of these files.
    pub async fn new(repositories: Vec<File>, builds: Builds) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (hook, webhooks) = listen().await;
        let account = |login: &str, permission| {
            ForgeAccount::new(login, format!("{login}-token"), permission)
        };
        let accounts = vec![
            account("ada", AccountPermission::Admin),
            account("grace", AccountPermission::Write),
            account("sluice", AccountPermission::Admin),
        ];
        let options = ForgeOptions {
            root: folder.path().join("forge"),
            port: 0,
            accounts,
            first_hook: Some((hook, WEBHOOK_SECRET.to_owned())),
        };
        let forge = Arc::new(LocalForge::start(options).await.unwrap());
        let mut edits: BTreeMap<String, Vec<Edit>> = BTreeMap::new();
        for (project, path, text) in repositories {
            edits.entry(project).or_default().push(Edit::write(path, text));
        }
        for (project, edits) in edits {
            forge.create_repository(&project, &edits, "ada").await.unwrap();
        }
        let outside = Stopwatch::default();
        let deployment =
            deployment(&forge, &outside, folder.path().join("cache"), webhooks, builds).await;
        Self { deployment, forge, outside, _folder: folder }
    }

    /// Pushes a branch with a file of its own.
    pub async fn push(&self, number: u64) {
        let head = head(number);
        let edits = [Edit::write(format!("file-{number}"), "new\n")];
        self.forge.commit(PROJECT, &head, &head, &edits, "ada").await.unwrap();
    }

    /// Proposes a branch that was pushed and returns the change's number.
    pub async fn propose(&self, number: u64) -> u64 {
        let head = head(number);
        let proposal = Proposal { title: head.clone(), head, ..Proposal::default() };
        self.forge.open_pull(PROJECT, proposal, "ada").await.unwrap()
    }

    /// Approves a change.
    pub fn approve(&self, number: u64) {
        self.forge.approve(PROJECT, number, "grace").unwrap();
    }

    /// Waits until the forge has sent all of its webhooks.
    pub async fn deliver_events(&self) {
        self.forge.deliveries_tried(PROJECT).await.unwrap();
    }

    /// Returns whether the head of a change has a status.
    pub fn has_status(&self, number: u64, context: &str, state: &str) -> bool {
        let head = self.forge.pull(PROJECT, number).unwrap().head;
        let statuses = self.forge.statuses(PROJECT, &head).unwrap();
        statuses.iter().any(|status| status.context == context && status.state == state)
    }
}

fn head(number: u64) -> String {
    format!("change-{number}")
}

/// Counts the changes that have landed.
pub fn landed(forge: &LocalForge) -> u64 {
    let pulls = forge.pulls(PROJECT).unwrap();
    pulls.iter().filter(|pull| matches!(pull.state, PullState::Merged { .. })).count() as u64
}

async fn deployment(
    forge: &LocalForge,
    outside: &Stopwatch,
    cache: PathBuf,
    webhooks: mpsc::Receiver<Signed>,
    builds: Builds,
) -> Deployment {
    let github = GitHub::new(GitHubOptions {
        connection: "github".into(),
        host: "forge.test".to_owned(),
        api_url: forge.api_url(),
        web_url: forge.web_url().to_owned(),
        token: ForgeSecret::new("sluice-token"),
        own_login: Some("sluice".to_owned()),
    });
    let github: Arc<dyn Forge> =
        Arc::new(ClockedForge::new(Arc::new(github.unwrap()), outside.clone()));
    let git_url = forge.web_url().to_owned();
    let credential = Some(Credential::token("sluice-token"));
    let remote = Remote { git_url: git_url.clone(), credential, landing: LandingMethod::default() };
    let watch = outside.clone();
    let repos = Box::new(move |ports: sluice_runtime::Ports| {
        let remotes = BTreeMap::from([("github".into(), remote.clone())]);
        // A cache for each function, as each has a machine of its own.
        let name = format!("cache-{}", ports.entropy.token());
        let repos: Arc<dyn Repos> = Arc::new(GitRepos::new(ports, remotes, cache.join(name)));
        Arc::new(ClockedRepos::new(repos, watch.clone())) as Arc<dyn Repos>
    });
    let inbox = Box::new(move || webhooks.try_recv().ok());
    Deployment::new(
        Parts { world: Deployment::world(), forge: github, repos, git_url, inbox, builds },
        sample::MAIN,
    )
    .await
}

/// Listens to webhooks on a free port; returns the address and what comes in.
async fn listen() -> (String, mpsc::Receiver<Signed>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (send, receive) = mpsc::channel();
    let take = move |headers: HeaderMap, body: Bytes| {
        let send = send.clone();
        async move {
            // The receiver is gone after the measurement.
            let _ = send.send(Signed { headers, body });
            StatusCode::ACCEPTED
        }
    };
    let app = axum::Router::new()
        .route("/hook", post(take))
        .layer(axum::extract::DefaultBodyLimit::disable());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, receive)
}
