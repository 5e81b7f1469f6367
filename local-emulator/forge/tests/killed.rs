//! The forge killed in the middle of its work: what it had acknowledged is there afterwards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use serde_json::json;
use sluice_local_forge::{Edit, LocalForge, PullState};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use support::{Http, REPOSITORY, options, proposal, start};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::watch;

const FOLDER: &str = "FORGE_TO_BE_KILLED";
const PULLS: u64 = 12;

/// Not a test by itself: the process that the test below starts and kills.
#[tokio::test]
async fn a_forge_serves_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let forge = LocalForge::start(options(&PathBuf::from(folder), None)).await.unwrap();
    println!("\nlistening at {}", forge.api_url());
    std::future::pending::<()>().await;
}

async fn spawn(folder: &std::path::Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_forge_serves_until_it_is_killed", "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some(url) = line.strip_prefix("listening at ") {
            return (child, url.to_owned());
        }
    }
    panic!("the forge ended before it listened")
}

/// What the forge had said yes to.
#[derive(Default)]
struct Acknowledged {
    comments: Vec<String>,
    statuses: Vec<String>,
    merged: Vec<u64>,
}

/// C4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_forge_is_killed() {
    let (forge, folder) = start().await;
    for n in 1..=PULLS {
        let branch = format!("topic-{n}");
        forge
            .commit(REPOSITORY, &branch, "Write", &[Edit::write(format!("{n}.txt"), "x")], "ann")
            .await
            .unwrap();
        assert_eq!(forge.open_pull(REPOSITORY, proposal(&branch), "ann").await.unwrap(), n);
    }
    let head = forge.pull(REPOSITORY, 1).unwrap().head;
    forge.stop().await;
    let said = Arc::new(Mutex::new(Acknowledged::default()));
    let mut merged_before = 0;
    // Each round is killed after another number of merges, while comments and statuses go on.
    for merges in 1..=3 {
        let (mut child, url) = spawn(folder.path()).await;
        let (talking, begun) = (said.clone(), merged_before);
        let (talk_url, talk_head) = (url.clone(), head.clone());
        let (received, mut progress) = watch::channel(0);
        let talk = tokio::spawn(async move {
            let http = Http::at(&talk_url, "bob-token");
            for n in 0.. {
                let text = format!("{begun}-{n}");
                let comment = json!({"body": text});
                let sent =
                    http.try_send("POST", "/repos/org/one/issues/1/comments", Some(comment)).await;
                match sent {
                    Ok((201, _, _)) => talking.lock().unwrap().comments.push(text.clone()),
                    _ => return,
                }
                let status = json!({"state": "success", "context": text});
                match http
                    .try_send("POST", &format!("/repos/org/one/statuses/{talk_head}"), Some(status))
                    .await
                {
                    Ok((201, _, _)) => talking.lock().unwrap().statuses.push(text),
                    _ => return,
                }
                received.send_modify(|count| *count += 1);
            }
        });
        let http = Http::at(&url, "ann-token");
        for n in merged_before + 1..=merged_before + merges {
            let (status, _, body) =
                http.send("PUT", &format!("/repos/org/one/pulls/{n}/merge"), json!({})).await;
            assert_eq!(status, 200, "{body}");
            said.lock().unwrap().merged.push(n);
        }
        merged_before += merges;
        // One more merge is under way when the kill comes; it may or may not happen, but never by
        // half.
        let under_way = format!("/repos/org/one/pulls/{}/merge", merged_before + 1);
        let last =
            tokio::spawn(async move { http.try_send("PUT", &under_way, Some(json!({}))).await });
        let count = *progress.borrow_and_update();
        progress.wait_for(|now| *now >= count + merges).await.unwrap();
        child.kill().await.unwrap();
        talk.await.unwrap();
        let answered = matches!(last.await.unwrap(), Ok((200, _, _)));
        let forge = LocalForge::start(options(folder.path(), None)).await.unwrap();
        let pull = forge.pull(REPOSITORY, merged_before + 1).unwrap();
        let file =
            forge.file(REPOSITORY, "main", &format!("{}.txt", merged_before + 1)).await.unwrap();
        let is_merged = matches!(pull.state, PullState::Merged { .. });
        assert_eq!(is_merged, file.is_some(), "record and branch say the same");
        assert!(is_merged || !answered);
        merged_before += u64::from(is_merged);
        forge.stop().await;
    }
    let forge = LocalForge::start(options(folder.path(), None)).await.unwrap();
    let said = std::mem::take(&mut *said.lock().unwrap());
    let comments: Vec<String> =
        forge.comments(REPOSITORY, 1).unwrap().into_iter().map(|comment| comment.body).collect();
    let statuses: Vec<String> = forge
        .statuses(REPOSITORY, &head)
        .unwrap()
        .into_iter()
        .map(|status| status.context)
        .collect();
    assert!(said.comments.iter().all(|text| comments.contains(text)));
    assert!(said.statuses.iter().all(|text| statuses.contains(text)));
    assert!(!said.comments.is_empty());
    for n in &said.merged {
        let state = forge.pull(REPOSITORY, *n).unwrap().state;
        assert!(matches!(state, PullState::Merged { .. }), "{n} is {state:?}");
        assert!(forge.file(REPOSITORY, "main", &format!("{n}.txt")).await.unwrap().is_some());
    }
}

/// C4: the git command that moves the branch outlives the forge that began it; the next forge waits
/// for it before it looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_a_killed_forge_was_moving_is_waited_for() {
    let (forge, folder) = start().await;
    forge.commit(REPOSITORY, "topic", "Write", &[Edit::write("1.txt", "x")], "ann").await.unwrap();
    assert_eq!(forge.open_pull(REPOSITORY, proposal("topic"), "ann").await.unwrap(), 1);
    forge.stop().await;
    let repository = folder.path().join("forge/git").join(format!("{REPOSITORY}.git"));
    let (reached, go) = (folder.path().join("reached"), folder.path().join("go"));
    for pipe in [&reached, &go] {
        assert!(Command::new("mkfifo").arg(pipe).status().await.unwrap().success());
    }
    let (mut child, url) = spawn(folder.path()).await;
    // Git stops in the middle of moving the branch until the test writes to the pipe.
    let hook = repository.join("hooks/reference-transaction");
    let (reached_pipe, go_pipe) = (reached.display(), go.display());
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = prepared ] || exit 0\necho > '{reached_pipe}'\nread line < '{go_pipe}'\nexit 0\n"
    );
    std::fs::write(&hook, script).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut asked = tokio::spawn(async move {
        Http::at(&url, "ann-token")
            .try_send("PUT", "/repos/org/one/pulls/1/merge", Some(json!({})))
            .await
    });
    let mut reaching =
        BufReader::new(pipe::OpenOptions::new().read_write(true).open_receiver(&reached).unwrap())
            .lines();
    tokio::select! {
        line = reaching.next_line() => assert!(line.unwrap().is_some()),
        answer = &mut asked => panic!("answered without moving the branch: {answer:?}"),
    }
    child.kill().await.unwrap();
    assert!(asked.await.unwrap().is_err());
    std::fs::remove_file(&hook).unwrap();
    let mut next = tokio::spawn(LocalForge::start(options(folder.path(), None)));
    // A forge that does not wait is there long before; one that does is not, however long this
    // takes.
    let early = tokio::time::timeout(std::time::Duration::from_secs(1), &mut next).await;
    let mut going = pipe::OpenOptions::new().read_write(true).open_sender(&go).unwrap();
    going.write_all(b"go\n").await.unwrap();
    assert!(early.is_err(), "the next forge looked while the branch was still being moved");
    let forge = next.await.unwrap().unwrap();
    let state = forge.pull(REPOSITORY, 1).unwrap().state;
    assert!(matches!(state, PullState::Merged { .. }), "{state:?}");
    assert!(forge.file(REPOSITORY, "main", "1.txt").await.unwrap().is_some());
    forge.stop().await;
}

/// C4: a merge is completed even if its client is killed meanwhile, and the next merge works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_is_completed_when_its_client_disconnects() {
    let (forge, _folder) = start().await;
    for n in 1..=PULLS {
        let branch = format!("topic-{n}");
        forge
            .commit(REPOSITORY, &branch, "Write", &[Edit::write(format!("{n}.txt"), "x")], "ann")
            .await
            .unwrap();
        assert_eq!(forge.open_pull(REPOSITORY, proposal(&branch), "ann").await.unwrap(), n);
    }
    for n in 1..=PULLS {
        let http = Http::of(&forge, "ann-token");
        let path = format!("/repos/org/one/pulls/{n}/merge");
        let asked = http.try_send("PUT", &path, Some(json!({})));
        // Longer each time, so that somewhere it is in the middle.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(2 * n), asked).await;
    }
    let http = Http::of(&forge, "ann-token");
    for n in 1..=PULLS {
        // The pull request is either merged or untouched.
        let (status, _, body) =
            http.send("PUT", &format!("/repos/org/one/pulls/{n}/merge"), json!({})).await;
        assert!(matches!(status, 200 | 405), "{status} {body}");
        let state = forge.pull(REPOSITORY, n).unwrap().state;
        assert!(matches!(state, PullState::Merged { .. }), "{n} is {state:?}: {body}");
        assert!(forge.file(REPOSITORY, "main", &format!("{n}.txt")).await.unwrap().is_some());
    }
    forge.stop().await;
}
