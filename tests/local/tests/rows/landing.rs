//! Changes that land by a push of the very commits that were tested, on a system whose connection
//! was told so.

use super::{Play, configure};
use serde_json::json;
use sluice_cli::local::{CONNECTION, ONE, ledger};
use sluice_local_tests::forge::Change;
use sluice_local_tests::story::nothing_is_left;
use sluice_local_tests::system::{System, Wishes};

/// A system whose branches are moved, told so by the command that people type.
async fn moving() -> Play {
    let mut system = System::start(Wishes::default()).await.unwrap();
    let told =
        system.run(&["connection", "add", CONNECTION, "--landing", "fast-forward"], "").unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    // Functions keep what they read of a connection for a while; and what was said outlives the
    // system's end.
    system.kill().unwrap();
    system.start_again(None).await.unwrap();
    let listed = system.run(&["connection", "list"], "").unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(text.contains("changes land by fast-forward"), "{text}");
    Play::on(system).await
}

/// What was tested of a change, and as what it landed: ids of commits and a tree.
struct Proof {
    base: String,
    tested: String,
    tree: String,
    landed: Option<String>,
}

/// Returns what is kept of a change that landed.
async fn proof(play: &Play, change: &Change) -> Proof {
    let sets = ledger::buildsets(&play.system.operator().await.unwrap()).await.unwrap();
    let set = ledger::landed(&sets).into_iter().find(|set| {
        let key = &set.item.candidate.change.key;
        key.project.name() == change.repository && key.number() == Some(change.number)
    });
    let item = &set.unwrap().item;
    let merged = item.merged().unwrap();
    Proof {
        base: merged.base.id.0.clone(),
        tested: merged.tested.id.0.clone(),
        tree: merged.tested.tree.0.clone(),
        landed: item.landed.as_ref().map(|commit| commit.0.clone()),
    }
}

/// Three changes that passed behind each other are put into their branch by one push, each as the
/// commit that was tested.
async fn a_run_lands_by_one_push(play: &Play) {
    let before = play.log(ONE, &["-1", "--format=%H", "main"]);
    let hold = format!("{} leads\n", play.gatekeeper.port);
    let a = play.forge.propose(ONE, "leads", &[("slow/leads", &hold)]).await.unwrap();
    let b = play.propose(ONE, "follows").await;
    let c = play.propose(ONE, "closes").await;
    play.gate(&[&a, &b, &c]).await;
    for change in [&b, &c] {
        play.until_results("gate", change, &[Some("SUCCESS")]).await;
    }
    play.release("leads");
    let mut tested = Vec::new();
    for change in [&a, &b, &c] {
        assert_eq!(play.result(change).await, "SUCCESS", "{change}");
        let proof = proof(play, change).await;
        assert_eq!(
            proof.landed.as_ref(),
            Some(&proof.tested),
            "{change} is in the branch as what was tested"
        );
        assert_eq!(play.forge.tree(ONE, &proof.tested).await.unwrap(), proof.tree, "{change}");
        tested.push(proof.tested);
    }
    for change in [&b, &c] {
        assert_eq!(play.results("gate", change).await.len(), 1, "{change} was tested once");
    }
    let history = play.log(
        ONE,
        &["--first-parent", "--reverse", "--format=%H", &format!("{}..main", before.trim())],
    );
    assert_eq!(history.lines().collect::<Vec<_>>(), tested, "nothing else was put there");
    for change in [&a, &b, &c] {
        // The forge looks after each push, and notes of what came with it where the branch was
        // then.
        let noted = play.forge.landed_as(change).await.unwrap();
        assert_eq!(noted.as_ref(), tested.last(), "{change} came with the push of all three");
    }
}

/// Somebody pushes after the branch was looked at: the forge refuses to move it, and the change is
/// tested again on what is there.
async fn a_push_that_comes_too_late_lands_nothing_untested(play: &Play) {
    let a = play.propose(ONE, "overtaken").await;
    play.forge.fault(ONE, json!({"kind": "push-before", "branch": "main"}), 1).await.unwrap();
    play.gate(&[&a]).await;
    assert_eq!(play.result(&a).await, "SUCCESS");
    let passed = || Some("SUCCESS".to_owned());
    assert_eq!(play.results("gate", &a).await, [passed(), passed()], "it was tested again");
    let proof = proof(play, &a).await;
    assert_eq!(proof.landed.as_ref(), Some(&proof.tested));
    assert_eq!(play.forge.tree(ONE, &proof.tested).await.unwrap(), proof.tree);
    let history = play.log(ONE, &["--first-parent", "-2", "--format=%H %s", "main"]);
    let (newest, pushed) = history.trim().split_once('\n').unwrap();
    assert!(newest.starts_with(&proof.tested), "{history}");
    assert_eq!(
        pushed,
        format!("{} Land unseen", proof.base),
        "what somebody pushed is what it was tested on"
    );
}

/// Z6.4: by `--landing fast-forward` what is in the branch is what was tested, by construction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_land_as_the_commits_that_were_tested() {
    let mut play = moving().await;
    let jobs = configure(&play, ONE, "wants-slow", "{jobs: [held, slow]}", "").await;
    play.gate(&[&jobs]).await;
    play.lands(jobs).await;
    a_run_lands_by_one_push(&play).await;
    a_push_that_comes_too_late_lands_nothing_untested(&play).await;
    nothing_is_left(&play.system).await.unwrap();
}
