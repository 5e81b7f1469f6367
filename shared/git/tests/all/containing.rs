//! Checks that the branches found with a commit are those that git finds.

use crate::support::Sandbox;
use sluice_git::GitReadError;
use sluice_model::git::Oid;

/// Z4.2: forks, merges, an annotated tag, and a branch that has nothing in common with the others.
#[test]
fn the_branches_with_a_commit_are_those_that_git_finds() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let first = sandbox.write("a", "1\n").commit("one");
    let second = sandbox.write("a", "2\n").commit("two");
    sandbox.switch("stable", Some(&first));
    let fix = sandbox.write("b", "1\n").commit("fix");
    sandbox.git(&["tag", "-a", "v1", "-m", "v1"]);
    sandbox.switch("side", Some(&second));
    let side = sandbox.write("c", "1\n").commit("side");
    sandbox.switch("merged", Some(&second));
    sandbox.git(&["merge", "-q", "--no-ff", "-m", "both", "stable"]);
    sandbox.switch("main", None);
    let third = sandbox.write("a", "3\n").commit("three");
    sandbox.git(&["checkout", "-q", "--orphan", "alone"]);
    let alone = sandbox.write("d", "1\n").commit("alone");
    let names = sandbox.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
    let branches: Vec<(&str, Oid)> = names.lines().map(|name| (name, sandbox.rev(name))).collect();
    assert_eq!(branches.len(), 5, "{names}");
    let tips: Vec<Oid> = branches.iter().map(|(_, tip)| tip.clone()).collect();
    let tag = sandbox.rev("v1");
    assert_ne!(tag, fix);
    let repository = sandbox.open(&dir.path().join("cache"));
    for commit in [&first, &second, &fix, &tag, &side, &third, &alone] {
        let git = [
            "for-each-ref",
            "--format=%(refname:short)",
            "--contains",
            commit.as_str(),
            "refs/heads",
        ];
        let named = sandbox.git(&git);
        let having = repository.containing(commit, &tips, 1_000).unwrap();
        let found: Vec<&str> = branches
            .iter()
            .filter(|(_, tip)| having.contains(tip))
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(found, named.lines().collect::<Vec<_>>(), "{commit}");
    }
}

/// A history over the limit is an error, and is not taken for one without the commit.
#[test]
fn more_commits_than_the_limit_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let first = sandbox.write("a", "0\n").commit("start");
    let mut tip = first.clone();
    for number in 1..6 {
        tip = sandbox.write("a", format!("{number}\n")).commit("more");
    }
    let repository = sandbox.open(&dir.path().join("cache"));
    let tips = [tip.clone()];
    assert!(repository.containing(&first, &tips, 6).unwrap().contains(&tip));
    assert!(matches!(repository.containing(&first, &tips, 5), Err(GitReadError::TooLarge { .. })));
    assert!(repository.containing(&tip, &tips, 1).unwrap().contains(&tip));
}
