//! Sends many approved changes through one gate queue and says how long that took, and where the time went.
//!
//! Everything runs in one thread, one batch after another: functions run side by side on AWS, so this is a lower bound of
//! the rate, and the time of the gate's own function its upper one.
//!
//! The forge of this machine starts git processes for what it answers. It counts the time during which it answers anything,
//! API and git over HTTP alike, and that time is left out: it is the forge's own.

use crate::clocked::{ClockedForge, ClockedRepos, Stopwatch};
use crate::count::Played;
use crate::house::{Ends, House, Parts, Signed, WEBHOOK_SECRET};
use crate::sample::{self, Nodes};
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sluice_forge::{Forge, GitHub, GitHubOptions, Secret};
use sluice_git::Credential;
use sluice_local_forge::{Account, Edit, Forge as LocalForge, Options, Permission, Proposal, PullState};
use sluice_model::git::LandingWay;
use sluice_repos::{GitRepos, Remote, Repos};
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The longest that one measurement may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time and how often, by name.
pub type Times = BTreeMap<&'static str, (Duration, u64)>;

/// How changes passed.
#[derive(Debug, Clone)]
pub struct Rate {
    /// How many were approved.
    pub asked: u64,
    /// How many had landed when it ended.
    pub landed: u64,
    /// From the first approval being known to the last landing.
    pub wall: Duration,
    /// Processor time of this process; a forge that runs in it is included, its git processes are not.
    pub processor: Duration,
    /// By function, what it waited for included.
    pub functions: Times,
    /// By call of the forge and of repositories.
    pub outside: Times,
    /// The forge's own time: for how long it was answering at least one request.
    pub forge: Duration,
    /// For how long git worked on at least one repository, fetching included.
    pub git: Duration,
    /// Records written.
    pub records_written: u64,
    /// Own calls.
    pub calls: u64,
}

impl Rate {
    /// Returns the changes that one processor would pass in a second if nothing else ran on it.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn per_processor_second(&self) -> f64 {
        self.landed as f64 / self.processor.as_secs_f64().max(1e-9)
    }

    /// Returns changes in a second, the forge's own time left out.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn per_second(&self) -> f64 {
        self.landed as f64 / self.wall.saturating_sub(self.forge).as_secs_f64().max(1e-9)
    }
}

/// Measures with a forge and repositories that cost next to nothing: our own work alone.
pub async fn own(changes: u64) -> Rate {
    let mut played = Played::new(Nodes::Cold).await;
    played.house.ends = Ends::AtOnce;
    let keys: Vec<_> = (1..=changes).map(|number| played.propose(number)).collect();
    played.house.rest().await;
    for key in &keys {
        played.forge.approve(key);
    }
    let (forge, outside) = (played.forge.clone(), played.outside.clone());
    let forge_time = || outside.covered("forge");
    measure(&mut played.house, &outside, changes, || forge.merges().len() as u64, forge_time).await
}

/// Measures with real repositories: a forge on this machine, its REST API, and merges by git.
pub async fn real(changes: u64) -> Rate {
    let folder = tempfile::tempdir().unwrap();
    let (hook, webhooks) = listen().await;
    let account = |login: &str, permission| Account::new(login, format!("{login}-token"), permission);
    let accounts = vec![
        account("ada", Permission::Admin),
        account("grace", Permission::Write),
        account("sluice", Permission::Admin),
    ];
    let options = Options {
        root: folder.path().join("forge"),
        port: 0,
        accounts,
        first_hook: Some((hook, WEBHOOK_SECRET.to_owned())),
    };
    let forge = Arc::new(LocalForge::start(options).await.unwrap());
    for (project, path, text) in sample::repositories(Nodes::Cold) {
        forge.create_repository(project, &[Edit::write(path, text)], "ada").await.unwrap();
    }
    let outside = Stopwatch::default();
    let mut house = house(&forge, &outside, folder.path().join("cache"), webhooks).await;
    let mut numbers = Vec::new();
    for number in 1..=changes {
        let head = format!("change-{number}");
        forge.commit("org/one", &head, &head, &[Edit::write(format!("file-{number}"), "new\n")], "ada").await.unwrap();
        let proposal = Proposal { title: head.clone(), head, ..Proposal::default() };
        numbers.push(forge.open_pull("org/one", proposal, "ada").await.unwrap());
    }
    forge.deliveries_tried("org/one").await.unwrap();
    house.rest().await;
    for number in &numbers {
        forge.approve("org/one", *number, "grace").unwrap();
    }
    forge.deliveries_tried("org/one").await.unwrap();
    let landed = || {
        forge.pulls("org/one").unwrap().iter().filter(|pull| matches!(pull.state, PullState::Merged { .. })).count()
            as u64
    };
    measure(&mut house, &outside, changes, landed, || forge.busy()).await
}

async fn measure(
    house: &mut House,
    outside: &Stopwatch,
    asked: u64,
    landed: impl Fn() -> u64,
    forge_time: impl Fn() -> Duration,
) -> Rate {
    house.world.take_calls();
    house.take_times();
    outside.take();
    let (begin, before) = (Instant::now(), processor_time());
    let (forge_before, git_before) = (forge_time(), outside.covered("git"));
    while landed() < asked && begin.elapsed() < PATIENCE {
        if !house.step().await && !house.wait() {
            // What a real forge tells is on its way through a socket.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let (wall, processor) = (begin.elapsed(), processor_time().saturating_sub(before));
    let calls = house.world.take_calls();
    Rate {
        asked,
        landed: landed(),
        wall,
        processor,
        functions: house.take_times(),
        forge: forge_time().saturating_sub(forge_before),
        git: outside.covered("git").saturating_sub(git_before),
        outside: outside.take(),
        records_written: calls.records_written,
        calls: calls.total(),
    }
}

async fn house(
    forge: &LocalForge,
    outside: &Stopwatch,
    cache: std::path::PathBuf,
    webhooks: mpsc::Receiver<Signed>,
) -> House {
    let github = GitHub::new(GitHubOptions {
        connection: "github".into(),
        host: "forge.test".to_owned(),
        api_url: forge.api_url(),
        web_url: forge.web_url().to_owned(),
        token: Secret::new("sluice-token"),
        own_login: Some("sluice".to_owned()),
    });
    let github: Arc<dyn Forge> = Arc::new(ClockedForge::new(Arc::new(github.unwrap()), outside.clone()));
    let git_url = forge.web_url().to_owned();
    let credential = Some(Credential::token("sluice-token"));
    let (remote, watch) =
        (Remote { git_url: git_url.clone(), credential, landing: LandingWay::default() }, outside.clone());
    let repos = Box::new(move |ports: sluice_runtime::Ports| {
        let remotes = BTreeMap::from([("github".into(), remote.clone())]);
        // A cache for each function, as each has a machine of its own.
        let name = format!("cache-{}", ports.entropy.token());
        let repos: Arc<dyn Repos> = Arc::new(GitRepos::new(ports, remotes, cache.join(name)));
        Arc::new(ClockedRepos::new(repos, watch.clone())) as Arc<dyn Repos>
    });
    let inbox = Box::new(move || webhooks.try_recv().ok());
    let mut house =
        House::new(Parts { world: House::world(), forge: github, repos, git_url, inbox }, sample::MAIN).await;
    house.ends = Ends::AtOnce;
    house
}

/// Listens to webhooks on a free port; returns the address and what comes in.
async fn listen() -> (String, mpsc::Receiver<Signed>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (send, receive) = mpsc::channel();
    let take = move |headers: HeaderMap, body: Bytes| {
        let send = send.clone();
        async move {
            // Nobody listens any more when the measurement is over.
            let _ = send.send(Signed { headers, body });
            StatusCode::ACCEPTED
        }
    };
    let app = axum::Router::new().route("/hook", post(take)).layer(axum::extract::DefaultBodyLimit::disable());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, receive)
}

/// Returns the processor time that this process has used, its children left out. Linux counts it in hundredths of a second.
pub fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold spaces; user and system time are the 12th and 13th fields behind it.
    let behind = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = behind.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
