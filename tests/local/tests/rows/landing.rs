//! Landing by fast-forward: the connection is configured to push the tested commits themselves.

use super::{GateTest, configure};
use serde_json::json;
use sluice_local::{CONNECTION, ONE, audit};
use sluice_local_tests::forge::PullRequest;
use sluice_local_tests::story::nothing_is_left;
use sluice_local_tests::system::{System, UpOptions};

/// Starts a system whose connection lands by fast-forward, as set by `sluice connection add`.
async fn start_fast_forward() -> GateTest {
    let mut system = System::start(UpOptions::default()).await.unwrap();
    let added =
        system.run(&["connection", "add", CONNECTION, "--landing", "fast-forward"], "").unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    // Functions cache the connections for a while. The restart also shows that the setting is
    // stored.
    system.kill().unwrap();
    system.start_again(None).await.unwrap();
    let listed = system.run(&["connection", "list"], "").unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(text.contains("merges by fast-forward"), "{text}");
    GateTest::on(system).await
}

/// The tested state of a landed change and the commit it landed as.
struct LandedState {
    base: String,
    tested: String,
    tree: String,
    landed: Option<String>,
    generation: u64,
}

/// Returns the tested and the landed state that the record of a landed change holds.
async fn landed_state(test: &GateTest, change: &PullRequest) -> LandedState {
    let sets = audit::buildsets(&test.system.operator().await.unwrap()).await.unwrap();
    let set = audit::landed(&sets).into_iter().find(|set| {
        let key = &set.item.candidate.change.key;
        key.project.name() == change.repository && key.number() == Some(change.number)
    });
    let item = &set.unwrap().item;
    let merged = item.merged().unwrap();
    LandedState {
        base: merged.base.id.0.clone(),
        tested: merged.tested.id.0.clone(),
        tree: merged.tested.tree.0.clone(),
        landed: item.landed.as_ref().map(|commit| commit.0.clone()),
        generation: item.generation,
    }
}

/// Three consecutive changes that passed land by one push, each as the tested commit.
async fn consecutive_changes_land_by_one_push(test: &GateTest) {
    let before = test.log(ONE, &["-1", "--format=%H", "main"]);
    let hold = format!("{} leads\n", test.holds.port);
    let a = test.forge.propose(ONE, "leads", &[("slow/leads", &hold)]).await.unwrap();
    let b = test.propose(ONE, "follows").await;
    let c = test.propose(ONE, "closes").await;
    test.gate(&[&a, &b, &c]).await;
    test.all_passed(&[&b, &c]).await;
    test.release("leads");
    let mut tested = Vec::new();
    for change in [&a, &b, &c] {
        assert_eq!(test.result(change).await, "SUCCESS", "{change}");
        let state = landed_state(test, change).await;
        assert_eq!(
            state.landed.as_ref(),
            Some(&state.tested),
            "{change} landed as the tested commit"
        );
        assert_eq!(test.forge.tree(ONE, &state.tested).await.unwrap(), state.tree, "{change}");
        assert_eq!(state.generation, 1, "{change} was tested once");
        tested.push(state.tested);
    }
    let history = test.log(
        ONE,
        &["--first-parent", "--reverse", "--format=%H", &format!("{}..main", before.trim())],
    );
    assert_eq!(history.lines().collect::<Vec<_>>(), tested, "the branch has no other new commits");
    for change in [&a, &b, &c] {
        // After a push the forge marks every change in it as merged at the new head of the branch.
        let merge_commit = test.forge.landed_as(change).await.unwrap();
        assert_eq!(
            merge_commit.as_ref(),
            tested.last(),
            "{change} came with the push of all three"
        );
    }
}

/// Another commit is pushed after Sluice has read the branch: the forge refuses the fast-forward,
/// and the change is tested again on the new head.
async fn a_concurrent_push_lands_nothing_untested(test: &GateTest) {
    // Its hold was released.
    let hold = format!("{} leads\n", test.holds.port);
    let a = test.forge.propose(ONE, "overtaken", &[("slow/overtaken", &hold)]).await.unwrap();
    test.forge.fault(ONE, json!({"kind": "push-before", "branch": "main"}), 1).await.unwrap();
    test.gate(&[&a]).await;
    assert_eq!(test.result(&a).await, "SUCCESS");
    let passed = || Some("SUCCESS".to_owned());
    assert_eq!(test.results("gate", &a).await, [passed(), passed()], "it was tested again");
    let state = landed_state(test, &a).await;
    assert_eq!(state.landed.as_ref(), Some(&state.tested));
    assert_eq!(test.forge.tree(ONE, &state.tested).await.unwrap(), state.tree);
    let history = test.log(ONE, &["--first-parent", "-2", "--format=%H %s", "main"]);
    let (newest, pushed) = history.trim().split_once('\n').unwrap();
    assert!(newest.starts_with(&state.tested), "{history}");
    assert_eq!(
        pushed,
        format!("{} Land unseen", state.base),
        "it was tested on the concurrently pushed commit"
    );
}

/// Z6.4: with `--landing fast-forward` the branch receives exactly the tested commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fast_forwarded_changes_land_as_the_tested_commits() {
    let mut test = start_fast_forward().await;
    let jobs = configure(&test, ONE, "wants-slow", "{jobs: [noop, slow]}", "").await;
    test.gate(&[&jobs]).await;
    test.lands(jobs).await;
    consecutive_changes_land_by_one_push(&test).await;
    a_concurrent_push_lands_nothing_untested(&test).await;
    nothing_is_left(&test.system).await.unwrap();
}
