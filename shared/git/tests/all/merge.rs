//! Merges: the commits of each mode with their names and times, conflicts and errors.

use crate::support::{Sandbox, git_checks, git_merge, numbered, replace};
use sluice_git::{GitMergeOutcome, GitReadError, Merge, MergedCommit, Repository};
use sluice_model::git::{MergeMode, Oid};
use std::fs;

fn merge(repository: &Repository, ours: &Oid, theirs: &Oid, mode: MergeMode) -> GitMergeOutcome {
    repository.merge(Merge { ours, theirs, mode, message: "Merge it" }).unwrap()
}

fn merged(outcome: GitMergeOutcome) -> MergedCommit {
    match outcome {
        GitMergeOutcome::Merged(merged) => merged,
        other => panic!("expected a merge: {other:?}"),
    }
}

/// Two lines of work from one start.
fn fork(dir: &std::path::Path) -> (Sandbox, Oid, Oid, Oid) {
    let sandbox = Sandbox::new(dir);
    let base = sandbox.write("a.txt", numbered(0..40)).commit("start");
    sandbox.switch("change", Some(&base));
    replace(&sandbox, "a.txt", "line 3\n", "A\n");
    sandbox.commit("one");
    sandbox.write("b.txt", "b\n");
    let theirs = sandbox.commit("two");
    sandbox.switch("main", None);
    replace(&sandbox, "a.txt", "line 30\n", "M\n");
    let ours = sandbox.commit("meanwhile");
    (sandbox, base, ours, theirs)
}

/// Z6.4
#[test]
fn the_same_merge_in_another_cache_has_the_same_id() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, _, ours, theirs) = fork(&dir.path().join("repo"));
    let modes = [
        MergeMode::Merge,
        MergeMode::SquashMerge,
        MergeMode::CherryPick,
        MergeMode::Rebase,
        MergeMode::RebaseFirstParent,
    ];
    let all = |cache: &str| {
        let mut repository = sandbox.open(&dir.path().join(cache));
        let tips: Vec<Oid> = modes
            .iter()
            .map(|mode| merged(merge(&repository, &ours, &theirs, *mode)).commit.id)
            .collect();
        let pack = repository.pack_missing_objects(&tips).unwrap().unwrap();
        (tips, pack.name, fs::read(pack.pack).unwrap(), fs::read(pack.index).unwrap())
    };
    assert_eq!(all("here"), all("there"));
}

#[test]
fn a_merge_commit_has_two_parents_our_name_and_the_newer_time() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, _, ours, theirs) = fork(&dir.path().join("repo"));
    let mut repository = sandbox.open(&dir.path().join("cache"));
    let result = merged(merge(&repository, &ours, &theirs, MergeMode::Merge));
    let facts = repository.commit(&result.commit.id).unwrap();
    assert_eq!(
        (facts.parents, facts.message.as_str(), facts.commit),
        (vec![ours.clone(), theirs.clone()], "Merge it\n", result.commit.clone())
    );
    assert_eq!(
        facts.committed_at_seconds,
        repository.commit(&ours).unwrap().committed_at_seconds,
        "ours is the newer one"
    );
    assert_eq!(git_merge(&sandbox, &ours, &theirs), Ok(result.commit.tree));
    let tip = result.commit.id;
    repository.pack_missing_objects(std::slice::from_ref(&tip)).unwrap();
    let who = [
        "--git-dir",
        dir.path().join("cache").to_str().unwrap(),
        "log",
        "-1",
        "--format=%an <%ae> %cn <%ce> %cI",
        tip.as_str(),
    ]
    .map(str::to_owned);
    let said = sandbox.git(&who.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        said,
        "Sluice <sluice@localhost> Sluice <sluice@localhost> 2023-11-14T22:13:24+00:00"
    );
}

#[test]
fn a_merge_is_never_a_fast_forward_and_a_contained_commit_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, base, ours, theirs) = fork(&dir.path().join("repo"));
    let repository = sandbox.open(&dir.path().join("cache"));
    let ahead = merged(merge(&repository, &base, &theirs, MergeMode::Merge));
    assert_ne!(ahead.commit.id, theirs);
    assert_eq!(ahead.commit.tree, repository.commit(&theirs).unwrap().commit.tree);
    for mode in [MergeMode::Merge, MergeMode::SquashMerge, MergeMode::CherryPick, MergeMode::Rebase]
    {
        assert_eq!(
            merge(&repository, &ours, &base, mode),
            GitMergeOutcome::Contained(repository.commit(&ours).unwrap().commit)
        );
    }
    // Also what only memory holds: the second change of a chain, and the first one again.
    let both = merged(merge(&repository, &ours, &theirs, MergeMode::Merge)).commit;
    assert_eq!(
        merge(&repository, &both.id, &theirs, MergeMode::Merge),
        GitMergeOutcome::Contained(both)
    );
}

#[test]
fn a_squash_is_one_commit_on_the_tip() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, _, ours, theirs) = fork(&dir.path().join("repo"));
    let repository = sandbox.open(&dir.path().join("cache"));
    let result = merged(merge(&repository, &ours, &theirs, MergeMode::SquashMerge));
    assert_eq!(repository.commit(&result.commit.id).unwrap().parents, std::slice::from_ref(&ours));
    assert_eq!(git_merge(&sandbox, &ours, &theirs), Ok(result.commit.tree));
}

#[test]
fn replayed_commits_equal_those_of_git_rebase() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, base, ours, theirs) = fork(&dir.path().join("repo"));
    // The branch gets one of the change's commits meanwhile, which so becomes empty, and the change
    // a merge commit.
    sandbox.git(&["cherry-pick", &format!("{theirs}~1")]);
    let ours_with_one = sandbox.rev("HEAD");
    sandbox.switch("side", Some(&base)).write("side.txt", "side\n").commit("side");
    sandbox.switch("change", None);
    sandbox.git(&["merge", "-q", "--no-edit", "side"]);
    let with_merge = sandbox.write("c.txt", "c\n").commit("three");

    for (onto, theirs, subjects) in [
        (&ours, &theirs, "two\none"),
        (&ours_with_one, &theirs, "two"),
        (&ours, &with_merge, "three\nside\ntwo\none"),
    ] {
        let mut repository = sandbox.open(&dir.path().join("cache"));
        let result = merged(merge(&repository, onto, theirs, MergeMode::Rebase));
        assert_eq!(merged(merge(&repository, onto, theirs, MergeMode::CherryPick)), result);
        sandbox.git(&["checkout", "-q", "--detach", theirs.as_str()]);
        sandbox.git(&["rebase", "-q", onto.as_str()]);
        assert_eq!(sandbox.tree("HEAD"), result.commit.tree);
        repository.pack_missing_objects(std::slice::from_ref(&result.commit.id)).unwrap();
        let cache = dir.path().join("cache");
        let log = |format: &str| {
            let range = format!("{onto}..{}", result.commit.id);
            sandbox.git(&[
                "--git-dir",
                cache.to_str().unwrap(),
                "log",
                "--topo-order",
                &format!("--format={format}"),
                &range,
            ])
        };
        let mut found: Vec<String> = log("%s").lines().map(str::to_owned).collect();
        let mut expected: Vec<&str> = subjects.lines().collect();
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(result.made.len(), expected.len());
        assert!(log("%an %cn").lines().all(|line| line == "Ann Sluice"));
        git_checks(&cache, &[&result.commit.id]);
    }

    let repository = sandbox.open(&dir.path().join("cache"));
    let along = merged(merge(&repository, &ours, &with_merge, MergeMode::RebaseFirstParent));
    assert_eq!(along.made.len(), 4, "one, two, the merge as one commit, three");
    assert_eq!(git_merge(&sandbox, &ours, &with_merge), Ok(along.commit.tree));
}

#[test]
fn a_conflict_names_its_paths_and_makes_no_commit() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let base = sandbox
        .write("a.txt", "a\n")
        .write("dir/b.txt", "b\n")
        .write("c.txt", "c\n")
        .commit("start");
    let theirs = sandbox
        .switch("change", Some(&base))
        .write("a.txt", "x\n")
        .write("dir/b.txt", "x\n")
        .write("c.txt", "x\n")
        .commit("change");
    let ours = sandbox
        .switch("main", None)
        .write("a.txt", "y\n")
        .write("dir/b.txt", "y\n")
        .commit("meanwhile");
    let repository = sandbox.open(&dir.path().join("cache"));
    for mode in [MergeMode::Merge, MergeMode::SquashMerge, MergeMode::Rebase] {
        let expected =
            GitMergeOutcome::Conflict { paths: vec!["a.txt".to_owned(), "dir/b.txt".to_owned()] };
        assert_eq!(merge(&repository, &ours, &theirs, mode), expected);
    }
}

#[test]
fn histories_without_a_common_commit_are_not_merged() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let ours = sandbox.write("a.txt", "a\n").commit("start");
    sandbox.git(&["checkout", "-q", "--orphan", "other"]);
    let theirs = sandbox.write("b.txt", "b\n").commit("another start");
    let repository = sandbox.open(&dir.path().join("cache"));
    assert_eq!(merge(&repository, &ours, &theirs, MergeMode::Merge), GitMergeOutcome::Unrelated);
}

#[test]
fn a_missing_commit_is_named_in_the_error() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, _, ours, _) = fork(&dir.path().join("repo"));
    let repository = sandbox.open(&dir.path().join("cache"));
    let theirs = Oid("ab".repeat(20));
    let error = repository
        .merge(Merge { ours: &ours, theirs: &theirs, mode: MergeMode::Merge, message: "" })
        .unwrap_err();
    let sluice_git::MergeError::Read(GitReadError::Missing { project, object }) = error else {
        panic!("{error:?}")
    };
    assert_eq!((project, object), (crate::support::project(), theirs));
}
