//! The forge through its front doors: git over HTTP, REST, webhooks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use serde_json::{Value, json};
use sluice_local_forge::{Aim, Edit, ForgeFault, LocalForge, PullState, Times};
use support::{HookReceiver, Http, REPOSITORY, git, options, start, start_with_receiver};

fn push_url(forge: &LocalForge, token: &str) -> String {
    forge.clone_url(REPOSITORY).replace("http://", &format!("http://x:{token}@"))
}

/// Z7.2: partial clones, any commit by its id, and protocol 2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_clones_partially_and_fetches_pull_requests() {
    let (forge, folder) = start().await;
    let head = forge
        .commit(REPOSITORY, "topic", "Write", &[Edit::write("a.txt", "a")], "ann")
        .await
        .unwrap();
    let number = forge.open_pull(REPOSITORY, support::proposal("topic"), "ann").await.unwrap();
    let url = forge.clone_url(REPOSITORY);
    let at = folder.path();
    git(at, &["clone", "-q", "--bare", "--depth=1", "--filter=blob:none", &url, "partial"])
        .await
        .unwrap();
    let partial = at.join("partial");
    let missing =
        git(&partial, &["rev-list", "--objects", "--missing=print", "HEAD"]).await.unwrap();
    assert!(missing.lines().any(|line| line.starts_with('?')), "no blob was left out: {missing}");
    assert_eq!(git(&partial, &["show", "HEAD:README"]).await.unwrap(), "hello\n");
    git(&partial, &["-c", "protocol.version=2", "fetch", "-q", "origin", &head]).await.unwrap();
    git(&partial, &["fetch", "-q", "origin", &format!("refs/pull/{number}/head:refs/heads/pull")])
        .await
        .unwrap();
    assert_eq!(git(&partial, &["rev-parse", "refs/heads/pull"]).await.unwrap().trim(), head);
}

/// C5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_needs_a_token_and_becomes_events() {
    let receiver = HookReceiver::open(&[]).await;
    let (forge, folder) = start_with_receiver(&receiver).await;
    let work = folder.path().join("work");
    git(folder.path(), &["clone", "-q", &forge.clone_url(REPOSITORY), "work"]).await.unwrap();
    git(&work, &["checkout", "-q", "-b", "topic"]).await.unwrap();
    let commit = async |text: &str| {
        std::fs::write(work.join("a.txt"), text).unwrap();
        git(&work, &["add", "a.txt"]).await.unwrap();
        git(&work, &["commit", "-q", "-m", text]).await.unwrap();
        git(&work, &["rev-parse", "HEAD"]).await.unwrap().trim().to_owned()
    };
    let first = commit("first").await;
    for url in
        [forge.clone_url(REPOSITORY), push_url(&forge, "wrong"), push_url(&forge, "guest-token")]
    {
        git(&work, &["push", "-q", &url, "topic"]).await.unwrap_err();
    }
    git(&work, &["push", "-q", &push_url(&forge, "ann-token"), "topic"]).await.unwrap();
    let number = forge.open_pull(REPOSITORY, support::proposal("topic"), "ann").await.unwrap();
    let second = commit("second").await;
    git(&work, &["push", "-q", &push_url(&forge, "ann-token"), "topic"]).await.unwrap();
    assert_eq!(forge.pull(REPOSITORY, number).unwrap().head, second);
    forge.deliveries_tried(REPOSITORY).await.unwrap();
    let received = receiver.received();
    let find = |event: &str, action: Option<&str>, after: &str| {
        received.iter().find(|h| {
            h.event == event && h.body["action"].as_str() == action && h.body["after"] == after
        })
    };
    assert!(find("push", None, &first).is_some_and(|h| h.body["created"] == true));
    assert!(find("push", None, &second).is_some_and(|h| h.body["before"] == first.as_str()));
    let synchronised = find("pull_request", Some("synchronize"), &second).unwrap();
    assert_eq!(synchronised.body["sender"]["login"], "ann");
    assert_eq!(synchronised.body["pull_request"]["head"]["sha"], second.as_str());
    let guid = &synchronised.guid;
    assert!(
        guid.len() == 36 && guid.split('-').count() == 5 && guid[14..].starts_with('4'),
        "{guid}"
    );
}

/// C5: the forge sends each delivery once. A delivery that the receiver refused is sent again only
/// on request, under its old id.
#[tokio::test]
async fn a_delivery_is_sent_once_and_again_on_request() {
    // The ping is taken, the next delivery is not.
    let receiver = HookReceiver::open(&[202, 500]).await;
    let (forge, _folder) = start_with_receiver(&receiver).await;
    forge.deliveries_tried(REPOSITORY).await.unwrap();
    forge.commit(REPOSITORY, "topic", "Write", &[Edit::write("a.txt", "a")], "ann").await.unwrap();
    forge.deliveries_tried(REPOSITORY).await.unwrap();
    let deliveries = forge.deliveries(REPOSITORY).unwrap();
    let lost = deliveries.iter().find(|delivery| delivery.answered == Some(500)).unwrap();
    assert_eq!(deliveries.iter().filter(|other| other.guid == lost.guid).count(), 1);
    let http = Http::of(&forge, "ann-token");
    let path = format!("/repos/{REPOSITORY}/hooks/{}/deliveries", lost.hook);
    let (status, _, _) =
        http.send("POST", &format!("{path}/{}/attempts", lost.number), json!({})).await;
    assert_eq!(status, 202);
    forge.deliveries_tried(REPOSITORY).await.unwrap();
    let same: Vec<_> =
        receiver.received().into_iter().filter(|received| received.guid == lost.guid).collect();
    assert_eq!(same.len(), 2);
    assert_eq!(same[0].body, same[1].body);
    let (_, _, listed) = http.get(&path).await;
    assert_eq!((&listed[0]["guid"], &listed[0]["redelivery"]), (&json!(lost.guid), &json!(true)));
    assert_eq!(listed[0]["status_code"], 202);
}

/// A body of 25 MB is signed like any other.
#[tokio::test]
async fn a_huge_body_is_sent_whole() {
    let receiver = HookReceiver::open(&[]).await;
    let (forge, _folder) = start_with_receiver(&receiver).await;
    forge.deliveries_tried(REPOSITORY).await.unwrap();
    forge.fault(
        REPOSITORY,
        ForgeFault::HugeBodies { bytes: 25_000_000 },
        Aim::Everything,
        Times::Next(1),
    );
    forge.commit(REPOSITORY, "main", "Write", &[Edit::write("a.txt", "a")], "ann").await.unwrap();
    forge.deliveries_tried(REPOSITORY).await.unwrap();
    let received = receiver.received();
    let huge = received.last().unwrap();
    assert!(
        huge.size > 25_000_000 && huge.event == "push",
        "{} bytes of {}",
        huge.size,
        huge.event
    );
}

/// What a gate has to survive: the repository disappears, by API and by git.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_can_disappear() {
    let (forge, folder) = start().await;
    forge.fault(REPOSITORY, ForgeFault::RepositoryGone, Aim::Everything, Times::UntilCleared);
    let (status, _, body) =
        Http::of(&forge, "ann-token").get(&format!("/repos/{REPOSITORY}")).await;
    assert_eq!((status, &body["message"]), (404, &json!("Not Found")));
    git(folder.path(), &["clone", "-q", &forge.clone_url(REPOSITORY), "gone"]).await.unwrap_err();
    forge.clear_faults(REPOSITORY);
    git(folder.path(), &["clone", "-q", &forge.clone_url(REPOSITORY), "back"]).await.unwrap();
}

/// The shapes and statuses that GitHub's clients rely on.
#[tokio::test]
async fn the_api_answers_like_github() {
    let (forge, _folder) = start().await;
    let http = Http::of(&forge, "ann-token");
    let (_, _, _) = http
        .send(
            "POST",
            "/repos/org/one/git/refs",
            json!({"ref": "refs/heads/topic", "sha": forge.tip(REPOSITORY, "main").await.unwrap()}),
        )
        .await;
    forge.commit(REPOSITORY, "topic", "Write", &[Edit::write("a.txt", "a")], "ann").await.unwrap();
    let new = json!({"title": "T", "head": "topic", "base": "main", "body": "B"});
    let (status, headers, pull) = http.send("POST", "/repos/org/one/pulls", new.clone()).await;
    assert_eq!((status, &pull["state"], &pull["merged"]), (201, &json!("open"), &json!(false)));
    assert!(headers.get("x-ratelimit-remaining").is_some());
    assert_eq!(http.send("POST", "/repos/org/one/pulls", new).await.0, 422);
    let (_, _, pull) = http.get("/repos/org/one/pulls/1").await;
    assert_eq!(
        (&pull["mergeable"], &pull["changed_files"], &pull["commits"]),
        (&json!(true), &json!(1), &json!(1))
    );
    let (_, _, commits) = http.get("/repos/org/one/pulls/1/commits").await;
    assert_eq!(commits[0]["sha"], pull["head"]["sha"]);
    let (_, _, contents) = http.get("/repos/org/one/contents/a.txt?ref=topic").await;
    assert_eq!(contents["content"], "YQ==");
    let put = |body: Value| http.send("PUT", "/repos/org/one/contents/b.txt", body);
    let new = json!({"message": "More", "branch": "topic", "content": "Yg==\n"});
    let (status, _, made) = put(new.clone()).await;
    assert_eq!((status, &made["content"]["path"]), (201, &json!("b.txt")));
    assert_eq!(put(new.clone()).await.0, 422, "what exists is replaced only by who names it");
    let mut again =
        json!({"message": "Again", "branch": "topic", "content": "Yw==", "sha": "0".repeat(40)});
    assert_eq!(put(again.clone()).await.0, 409);
    again["sha"] = made["content"]["sha"].clone();
    assert_eq!(put(again).await.0, 200);
    assert_eq!(forge.file(REPOSITORY, "topic", "b.txt").await.unwrap().as_deref(), Some("c"));
    assert_eq!(put(json!({"message": "x", "branch": "nowhere", "content": ""})).await.0, 404);
    let (_, _, pull) = http.get("/repos/org/one/pulls/1").await;
    assert_eq!(
        http.send("PUT", "/repos/org/one/pulls/1/merge", json!({"sha": "0".repeat(40)})).await.0,
        409
    );
    for n in 0..65 {
        forge.comment(REPOSITORY, 1, &format!("{n}"), "bob").unwrap();
    }
    let (_, headers, comments) =
        http.get("/repos/org/one/issues/1/comments?per_page=30&page=2").await;
    let links = headers["link"].to_str().unwrap();
    assert_eq!((comments.as_array().unwrap().len(), &comments[0]["body"]), (30, &json!("30")));
    for relation in ["prev", "next", "first", "last"] {
        assert!(links.contains(&format!("rel=\"{relation}\"")), "{links}");
    }
    assert!(links.contains("per_page=30&page=3"), "{links}");
    let anonymous = Http::of(&forge, "");
    assert_eq!(anonymous.get("/repos/org/one/pulls").await.0, 200);
    assert_eq!(
        anonymous.send("POST", "/repos/org/one/issues/1/comments", json!({"body": "x"})).await.0,
        401
    );
    assert_eq!(
        Http::of(&forge, "wrong").get("/repos/org/one").await.2["message"],
        "Bad credentials"
    );
    let (status, _, _) = http
        .send(
            "PUT",
            "/repos/org/one/pulls/1/merge",
            json!({"sha": pull["head"]["sha"], "merge_method": "squash"}),
        )
        .await;
    assert_eq!(status, 200);
    assert!(matches!(forge.pull(REPOSITORY, 1).unwrap().state, PullState::Merged { .. }));
    assert_eq!(http.send("PUT", "/repos/org/one/pulls/1/merge", json!({})).await.0, 405);
    let page = reqwest::Client::builder().no_proxy().build().unwrap();
    let page = page
        .get(format!("{}/org/one/pull/1", forge.web_url()))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(page.contains("merged as") && page.contains("Write"), "{page}");
}

/// Faults of a forge that runs as a program are switched on by HTTP with a token that may write.
#[tokio::test]
async fn faults_are_switched_on_and_off_over_http() {
    let (forge, _folder) = start().await;
    let http = Http::of(&forge, "ann-token");
    let wanted = json!({"fault": {"kind": "server-error", "status": 502}, "times": 1});
    assert_eq!(
        Http::of(&forge, "guest-token").send("POST", "/faults/org/one", wanted.clone()).await.0,
        403
    );
    assert_eq!(http.get("/repos/org/one").await.0, 200);
    assert_eq!(http.send("POST", "/faults/org/one", wanted).await.0, 204);
    assert_eq!(http.get("/repos/org/one").await.0, 502);
    assert_eq!(http.get("/repos/org/one").await.0, 200, "once was wanted");
    let gone = json!({"fault": {"kind": "repository-gone"}, "path": "/pulls"});
    assert_eq!(http.send("POST", "/faults/org/one", gone).await.0, 204);
    assert_eq!(
        (http.get("/repos/org/one").await.0, http.get("/repos/org/one/pulls").await.0),
        (200, 404)
    );
    assert_eq!(http.send("DELETE", "/faults/org/one", json!({})).await.0, 204);
    assert_eq!(http.get("/repos/org/one/pulls").await.0, 200);
    assert_eq!(
        http.send("POST", "/faults/org/one", json!({"fault": {"kind": "earthquake"}})).await.0,
        422
    );
}

/// A repository that was taken away is not found, by API and by git, and is itself again when it is
/// back.
#[tokio::test]
async fn a_repository_without_its_folder_counts_as_deleted() {
    let (forge, folder) = start().await;
    let http = Http::of(&forge, "ann-token");
    let root = options(folder.path(), None).root.join("git");
    std::fs::rename(root.join("org/one.git"), root.join("away")).unwrap();
    assert_eq!(http.get("/repos/org/one").await.0, 404);
    assert_eq!(http.get("/repos/org/one/pulls").await.0, 404);
    git(folder.path(), &["clone", "-q", &forge.clone_url(REPOSITORY), "work"]).await.unwrap_err();
    assert_eq!(http.get("/user").await.0, 200);
    forge.stop().await;
    let forge = LocalForge::start(options(folder.path(), None)).await.unwrap();
    let http = Http::of(&forge, "ann-token");
    assert_eq!(http.get("/repos/org/one").await.0, 404, "also after a new start");
    std::fs::rename(root.join("away"), root.join("org/one.git")).unwrap();
    assert_eq!(http.get("/repos/org/one").await.0, 200);
}

/// What happened while the forge was not looking is seen at its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_kill_left_half_done_is_finished_at_the_next_start() {
    let receiver = HookReceiver::open(&[]).await;
    let (forge, folder) = start_with_receiver(&receiver).await;
    let head = forge
        .commit(REPOSITORY, "topic", "Write", &[Edit::write("a.txt", "a")], "ann")
        .await
        .unwrap();
    let number = forge.open_pull(REPOSITORY, support::proposal("topic"), "ann").await.unwrap();
    forge.deliveries_tried(REPOSITORY).await.unwrap();
    forge.stop().await;
    // Git moved the branch, and then the process was gone.
    let bare = folder.path().join("forge/git/org/one.git");
    git(&bare, &["update-ref", "refs/heads/main", &head]).await.unwrap();
    let forge = LocalForge::start(options(folder.path(), None)).await.unwrap();
    let state = forge.pull(REPOSITORY, number).unwrap().state;
    assert!(matches!(&state, PullState::Merged { commit, .. } if *commit == head), "{state:?}");
    forge.deliveries_tried(REPOSITORY).await.unwrap();
    let received = receiver.received();
    assert!(
        received
            .iter()
            .any(|received| received.event == "push" && received.body["after"] == head.as_str())
    );
    let closed = received.iter().find(|received| received.body["action"] == "closed").unwrap();
    assert_eq!(closed.body["pull_request"]["merged"], true);
}

/// Faults that only delay or lose an answer do not undo what was asked.
#[tokio::test]
async fn a_slow_or_lost_answer_is_still_carried_out() {
    let (forge, _folder) = start().await;
    forge.commit(REPOSITORY, "topic", "Write", &[Edit::write("a.txt", "a")], "ann").await.unwrap();
    forge.open_pull(REPOSITORY, support::proposal("topic"), "ann").await.unwrap();
    let http = Http::of(&forge, "bob-token");
    let comments = "/repos/org/one/issues/1/comments";
    forge.fault(
        REPOSITORY,
        ForgeFault::AnswerSlowly { milliseconds: 60 },
        Aim::Writes,
        Times::Next(1),
    );
    let begun = std::time::Instant::now();
    assert_eq!(http.send("POST", comments, json!({"body": "slow"})).await.0, 201);
    assert!(begun.elapsed().as_millis() >= 60);
    forge.fault(REPOSITORY, ForgeFault::LoseAnswer, Aim::Writes, Times::Next(1));
    assert_eq!(http.send("POST", comments, json!({"body": "lost"})).await.0, 502);
    forge.fault(REPOSITORY, ForgeFault::ServerError { status: 503 }, Aim::Writes, Times::Next(1));
    assert_eq!(http.send("POST", comments, json!({"body": "never"})).await.0, 503);
    let bodies: Vec<String> =
        forge.comments(REPOSITORY, 1).unwrap().into_iter().map(|comment| comment.body).collect();
    assert_eq!(bodies, ["slow", "lost"]);
}

/// C4: a user can create a repository and push to it; webhook receivers of the forge are notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_is_created_through_the_api_and_pushed_to() {
    let receiver = HookReceiver::open(&[]).await;
    let (forge, folder) = start_with_receiver(&receiver).await;
    let bob = Http::of(&forge, "bob-token");
    let (status, _, made) = bob.send("POST", "/orgs/mine/repos", json!({"name": "empty"})).await;
    assert_eq!(
        (status, made["full_name"].as_str(), made["default_branch"].as_str()),
        (201, Some("mine/empty"), Some("main"))
    );
    let work = folder.path().join("work");
    git(folder.path(), &["init", "-q", "-b", "main", "work"]).await.unwrap();
    std::fs::write(work.join("a.txt"), "a").unwrap();
    git(&work, &["add", "a.txt"]).await.unwrap();
    git(&work, &["commit", "-q", "-m", "first"]).await.unwrap();
    let url = forge.clone_url("mine/empty").replace("http://", "http://x:bob-token@");
    git(&work, &["push", "-q", &url, "main"]).await.unwrap();
    assert_eq!(forge.file("mine/empty", "main", "a.txt").await.unwrap().as_deref(), Some("a"));
    forge.deliveries_tried("mine/empty").await.unwrap();
    let pushed = |received: &support::ReceivedHook| {
        received.event == "push" && received.body["repository"]["full_name"] == "mine/empty"
    };
    assert!(receiver.received().iter().any(pushed));

    let (status, _, made) =
        bob.send("POST", "/user/repos", json!({"name": "begun", "auto_init": true})).await;
    assert_eq!((status, made["full_name"].as_str()), (201, Some("bob/begun")));
    assert_eq!(
        forge.file("bob/begun", "main", "README.md").await.unwrap().as_deref(),
        Some("# begun\n")
    );
    assert_eq!(
        bob.send("POST", "/user/repos", json!({"name": "begun"})).await.0,
        422,
        "it is there already"
    );
    assert_eq!(bob.send("POST", "/user/repos", json!({"name": "../up"})).await.0, 422);
    assert_eq!(
        Http::of(&forge, "guest-token").send("POST", "/user/repos", json!({"name": "x"})).await.0,
        403
    );
}

/// C5: a receiver that moved to another address gets deliveries there at once, and hooks of other
/// receivers are not changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_follow_a_listener_that_moved() {
    let (before, after, others) = (
        HookReceiver::open(&[]).await,
        HookReceiver::open(&[]).await,
        HookReceiver::open(&[]).await,
    );
    let (forge, _folder) = start_with_receiver(&before).await;
    let other = format!("{}?other", others.url);
    forge.add_hook(REPOSITORY, &other, support::SECRET, "ann").unwrap();
    assert_eq!(forge.move_hooks("/hook", &after.url).unwrap(), 1);
    assert_eq!(
        forge.move_hooks("/hook", &after.url).unwrap(),
        0,
        "the second time there is nothing to do"
    );
    forge.commit(REPOSITORY, "topic", "Write", &[Edit::write("a.txt", "a")], "ann").await.unwrap();
    forge.deliveries_tried(REPOSITORY).await.unwrap();
    let pushes = |receiver: &HookReceiver| {
        receiver
            .received()
            .iter()
            .filter(|received| received.body["ref"] == "refs/heads/topic")
            .count()
    };
    assert_eq!((pushes(&before), pushes(&after), pushes(&others)), (0, 1, 1));
}

/// Z5.4: a request under a foreign host name that resolves to this machine is refused, even for
/// public data (DNS rebinding).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_under_a_foreign_name_is_refused() {
    let (forge, _folder) = start().await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let asked = async |path: &str, host: &'static str| {
        let request = client.get(format!("{}{path}", forge.web_url())).header("Host", host);
        request.send().await.unwrap().status().as_u16()
    };
    for path in ["/", "/api/v3/repos/org/one", "/org/one.git/info/refs?service=git-upload-pack"] {
        for own in ["127.0.0.1:9001", "localhost", "LOCALHOST:9001", "[::1]:9001"] {
            assert_eq!(asked(path, own).await, 200, "{path} by {own}");
        }
        for stranger in
            ["evil.example:9001", "127.0.0.1.evil.example", "[::1].evil.example", "forge.local"]
        {
            assert_eq!(asked(path, stranger).await, 421, "{path} by {stranger}");
        }
    }
}
