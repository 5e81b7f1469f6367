//! Tests landings through the driver: the expected commit is merged, once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use sluice_forge::{ErrorClass, Forge as _, ForgeError};
use sluice_local_forge::{Aim, Edit, ForgeFault, PullState, Times};
use sluice_model::change::ChangeStatus;
use sluice_model::git::{BranchKey, MergeMode, Oid};
use support::{REPOSITORY, Scene, driver, message};

/// Z6.4, S05
#[tokio::test]
async fn each_mode_lands_the_change_in_its_own_shape() {
    for (mode, parents, subject) in [
        (MergeMode::Merge, 2, "Land it"),
        (MergeMode::SquashMerge, 1, "Land it"),
        (MergeMode::Rebase, 1, "Write a.txt"),
    ] {
        let scene = Scene::new().await;
        let change = scene.propose("a.txt", "a\n", "").await;
        let other = [Edit::write("b.txt", "b\n")];
        let base = scene.forge.commit(REPOSITORY, "main", "Move on", &other, "bob").await.unwrap();
        let landed = scene.github.merge(&change, mode, &message()).await.unwrap();
        let tip = scene.github.branch_tip(&scene.main()).await.unwrap();
        assert_eq!(tip.id, landed, "{mode:?}");
        let commit = scene.github.read_commit(&scene.project(), &landed).await.unwrap();
        assert_eq!(
            (commit.parents.len(), commit.parents[0].as_str()),
            (parents, base.as_str()),
            "{mode:?}"
        );
        assert_eq!(commit.message.lines().next(), Some(subject), "{mode:?}");
        for file in ["a.txt", "b.txt", "README"] {
            assert!(
                scene.forge.file(REPOSITORY, "main", file).await.unwrap().is_some(),
                "{mode:?} lost {file}"
            );
        }
        let facts = scene.github.read_change(&change.key).await.unwrap();
        assert_eq!(
            (facts.status, facts.merge_commit),
            (ChangeStatus::Merged, Some(landed)),
            "{mode:?}"
        );
        assert_eq!(facts.files.as_deref(), Some(&["a.txt".to_owned()][..]), "{mode:?}");
    }
}

/// Z6.4: the author pushes during the merge.
#[tokio::test]
async fn a_head_that_moved_is_not_merged() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a\n", "").await;
    let before = scene.github.branch_tip(&scene.main()).await.unwrap();
    scene
        .forge
        .commit(REPOSITORY, "a.txt", "One more", &[Edit::write("a.txt", "evil\n")], "ann")
        .await
        .unwrap();
    let error = scene.github.merge(&change, MergeMode::Merge, &message()).await.unwrap_err();
    assert!(matches!(error, ForgeError::HeadMoved { .. }), "{error:?}");
    assert_eq!(scene.github.branch_tip(&scene.main()).await.unwrap(), before);
}

/// Z6.4: pushes and merges race many times; nothing unexpected is merged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_of_push_and_merge_never_lands_the_pushed_commit() {
    let scene = Scene::new().await;
    for round in 0..8 {
        let file = format!("race-{round}.txt");
        let change = scene.propose(&file, "expected\n", "").await;
        let edits = [Edit::write(&file, "unexpected\n")];
        let text = message();
        let merge = scene.github.merge(&change, MergeMode::Merge, &text);
        let push = scene.forge.commit(REPOSITORY, &file, "Sneak in", &edits, "ann");
        let (merged, pushed) = tokio::join!(merge, push);
        pushed.unwrap();
        let landed = scene.forge.file(REPOSITORY, "main", &file).await.unwrap();
        match merged {
            Ok(_) => assert_eq!(landed.as_deref(), Some("expected\n")),
            Err(ForgeError::HeadMoved { .. }) => assert_eq!(landed, None),
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// S02
#[tokio::test]
async fn a_conflict_and_a_refusal_are_final_and_differ() {
    let scene = Scene::new().await;
    let change = scene.propose("same.txt", "mine\n", "").await;
    scene.forge.fault(REPOSITORY, ForgeFault::RefuseMerge, Aim::Everything, Times::Next(1));
    let refused = scene.github.merge(&change, MergeMode::Merge, &message()).await.unwrap_err();
    assert!(
        matches!(&refused, ForgeError::Refused { status: 405, message, .. } if message.contains("review")),
        "{refused:?}"
    );
    scene
        .forge
        .commit(REPOSITORY, "main", "First", &[Edit::write("same.txt", "theirs\n")], "bob")
        .await
        .unwrap();
    for mode in [MergeMode::Merge, MergeMode::SquashMerge, MergeMode::Rebase] {
        let conflict = scene.github.merge(&change, mode, &message()).await.unwrap_err();
        assert!(matches!(conflict, ForgeError::Conflict { .. }), "{conflict:?}");
    }
}

/// Z6.4, Z6.5: right after another bundle member moved the branch, GitHub refuses merges until it
/// has computed whether the change merges.
#[tokio::test]
async fn a_merge_that_is_refused_while_mergeability_is_unknown_is_retried() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a\n", "").await;
    scene.forge.fault(
        REPOSITORY,
        ForgeFault::MergeabilityUnknown,
        Aim::Path("/pulls/".into()),
        Times::Next(2),
    );
    let refused = scene.github.merge(&change, MergeMode::Merge, &message()).await.unwrap_err();
    assert_eq!(refused.class(), ErrorClass::Redeliver, "{refused:?}");
    scene.github.merge(&change, MergeMode::Merge, &message()).await.unwrap();
}

/// Z6.4: the answer is lost, or the message is delivered twice.
#[tokio::test]
async fn a_merge_asked_for_twice_happens_once() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a\n", "").await;
    scene.forge.fault(
        REPOSITORY,
        ForgeFault::LoseAnswer,
        Aim::Path("/merge".into()),
        Times::Next(1),
    );
    let first = scene.github.merge(&change, MergeMode::Merge, &message()).await.unwrap();
    let second = scene.github.merge(&change, MergeMode::Merge, &message()).await.unwrap();
    assert_eq!(first, second);
    assert_eq!(scene.github.branch_tip(&scene.main()).await.unwrap().id, first);

    let next = scene.propose("b.txt", "b\n", "").await;
    scene.forge.fault(
        REPOSITORY,
        ForgeFault::ServerError { status: 500 },
        Aim::Path("/merge".into()),
        Times::Next(1),
    );
    let unknown = scene.github.merge(&next, MergeMode::Merge, &message()).await.unwrap_err();
    assert_eq!(unknown.class(), ErrorClass::Redeliver, "{unknown:?}");
    scene.github.merge(&next, MergeMode::Merge, &message()).await.unwrap();
}

/// Z6.4: forges do not guard the base, so a read afterwards detects a move.
#[tokio::test]
async fn something_else_that_lands_between_shows_in_the_tree() {
    let scene = Scene::new().await;
    let change = scene.propose("a.txt", "a\n", "").await;
    let before = scene.github.branch_tip(&scene.main()).await.unwrap();
    scene.forge.fault(REPOSITORY, ForgeFault::MergeSomethingElse, Aim::Everything, Times::Next(1));
    let landed = scene.github.merge(&change, MergeMode::Merge, &message()).await.unwrap();
    let commit = scene.github.read_commit(&scene.project(), &landed).await.unwrap();
    assert_ne!(commit.parents[0], before.id);
    let tested = scene.forge.tree(REPOSITORY, change.head.as_str()).await.unwrap().unwrap();
    assert_ne!(commit.commit.tree, Oid(tested));
}

/// A pack without objects: the forge has all commits.
const NO_OBJECTS: &[u8] =
    b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e";

/// Z6.4: what is merged is what was tested. A change counts as merged when the branch contains its
/// head.
#[tokio::test]
async fn a_branch_moves_from_the_commit_where_it_was_seen_and_from_no_other() {
    let scene = Scene::new().await;
    let (main, change) = (scene.main(), scene.propose("a.txt", "a\n", "").await);
    let other = scene.propose("b.txt", "b\n", "").await;
    let start = scene.github.branch_tip(&main).await.unwrap().id;
    assert!(!scene.github.contains(&main, &change.head).await.unwrap());
    scene.github.fast_forward(&main, &start, &change.head, NO_OBJECTS).await.unwrap();
    assert_eq!(scene.github.branch_tip(&main).await.unwrap().id, change.head);
    let state = scene.forge.pull(REPOSITORY, change.key.number().unwrap()).unwrap().state;
    assert_eq!(state, PullState::Merged { commit: change.head.0.clone(), by: "sluice".into() });
    for (commit, expected) in [(&start, true), (&change.head, true), (&other.head, false)] {
        assert_eq!(scene.github.contains(&main, commit).await.unwrap(), expected);
    }
    // A caller whose answer was lost retries.
    scene.github.fast_forward(&main, &start, &change.head, NO_OBJECTS).await.unwrap();
    let moved =
        scene.github.fast_forward(&main, &start, &other.head, NO_OBJECTS).await.unwrap_err();
    assert!(matches!(moved, ForgeError::HeadMoved { .. }), "{moved:?}");
    assert_eq!(scene.github.branch_tip(&main).await.unwrap().id, change.head);
}

/// Z6.4: a user pushes after the branch was read.
#[tokio::test]
async fn a_push_that_comes_too_late_moves_nothing() {
    let scene = Scene::new().await;
    let (main, change) = (scene.main(), scene.propose("a.txt", "a\n", "").await);
    let start = scene.github.branch_tip(&main).await.unwrap().id;
    scene.forge.fault(
        REPOSITORY,
        ForgeFault::PushBefore { branch: "main".to_owned() },
        Aim::Everything,
        Times::Next(1),
    );
    let late =
        scene.github.fast_forward(&main, &start, &change.head, NO_OBJECTS).await.unwrap_err();
    assert!(matches!(late, ForgeError::HeadMoved { .. }), "{late:?}");
    assert_ne!(scene.github.branch_tip(&main).await.unwrap().id, start);
    assert!(!scene.github.contains(&main, &change.head).await.unwrap());
}

/// Z6.4
#[tokio::test]
async fn a_push_that_is_not_taken_is_refused_for_good() {
    let scene = Scene::new().await;
    let (main, change) = (scene.main(), scene.propose("a.txt", "a\n", "").await);
    let start = scene.github.branch_tip(&main).await.unwrap().id;
    let nothing: Oid = "1".repeat(40).as_str().into();
    assert!(!scene.github.contains(&main, &nothing).await.unwrap());
    let unknown = scene.github.fast_forward(&main, &start, &nothing, NO_OBJECTS).await.unwrap_err();
    assert!(matches!(unknown, ForgeError::Refused { status: 422, .. }), "{unknown:?}");
    let nowhere = BranchKey { project: scene.project(), branch: "nowhere".into() };
    let nowhere =
        scene.github.fast_forward(&nowhere, &start, &change.head, NO_OBJECTS).await.unwrap_err();
    assert!(matches!(nowhere, ForgeError::NotFound { .. }), "{nowhere:?}");
    let guest = driver(&scene.forge, "guest-token");
    let reader = guest.fast_forward(&main, &start, &change.head, NO_OBJECTS).await.unwrap_err();
    assert!(matches!(reader, ForgeError::Refused { status: 403, .. }), "{reader:?}");
    let stranger = driver(&scene.forge, "no-token");
    let stranger =
        stranger.fast_forward(&main, &start, &change.head, NO_OBJECTS).await.unwrap_err();
    assert!(matches!(stranger, ForgeError::Unauthorised { .. }), "{stranger:?}");
    assert_eq!(scene.github.branch_tip(&main).await.unwrap().id, start);
}
