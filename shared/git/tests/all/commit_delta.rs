//! Commit deltas, checked by git: a repository with the branch accepts the pack of a delta as from
//! a push.

use crate::support::{Sandbox, numbered, replace};
use sluice_git::{CommitDelta, GitMergeOutcome, Merge, Repository};
use sluice_model::git::{MergeMode, Oid};
use std::fs::File;
use std::path::Path;
use std::process::Command;

fn merge(repository: &Repository, ours: &Oid, theirs: &Oid) -> Oid {
    let merge = Merge { ours, theirs, mode: MergeMode::Merge, message: "Merge it" };
    match repository.merge(merge).unwrap() {
        GitMergeOutcome::Merged(merged) => merged.commit.id,
        other => panic!("{other:?}"),
    }
}

/// Returns a repository with one branch.
fn clone_of(sandbox: &Sandbox, branch: &str, dest: &Path) -> Sandbox {
    let url = format!("file://{}", sandbox.dir.display());
    sandbox.git(&[
        "clone",
        "-q",
        "--single-branch",
        "--branch",
        branch,
        &url,
        dest.to_str().unwrap(),
    ]);
    Sandbox::new(dest)
}

/// Has git receive a pack with the strict checks of a forge.
fn take(there: &Sandbox, delta: &CommitDelta, dir: &Path) {
    let file = dir.join("push.pack");
    std::fs::write(&file, delta.pack().unwrap()).unwrap();
    let output = Command::new("git")
        .args(["index-pack", "--stdin", "--strict"])
        .current_dir(&there.dir)
        .stdin(File::open(&file).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Z6.4: the deltas of successive commits combine into one pack, which completes the last commit in
/// a repository with the branch.
#[test]
fn one_pack_of_deltas_completes_the_last_tested_commit() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("forge"));
    sandbox
        .write("deep/er/both.txt", numbered(0..40))
        .write("deep/other.txt", "o\n")
        .write("top.txt", "t\n");
    let start = sandbox.commit("start");
    sandbox.switch("one", Some(&start));
    replace(&sandbox, "deep/er/both.txt", "line 1\n", "line one\n");
    sandbox.write("deep/new/file.txt", "new\n");
    let one = sandbox.commit("one");
    sandbox.switch("two", Some(&start));
    // The same file in two places, and both sides of one file: the merge makes an object of its
    // own.
    replace(&sandbox, "deep/er/both.txt", "line 30\n", "line thirty\n");
    sandbox.write("again/file.txt", "new\n");
    sandbox.commit("two, first");
    sandbox.write("again/more.txt", "more\n");
    let two = sandbox.commit("two, second");
    let there = clone_of(&sandbox, "main", &dir.path().join("there"));

    let repository = sandbox.open(&dir.path().join("cache"));
    let first = merge(&repository, &start, &one);
    let second = merge(&repository, &first, &two);
    let deltas = [(&start, &first), (&first, &second)]
        .map(|(from, to)| repository.commit_delta(from, to).unwrap().unwrap());
    let deltas = deltas.map(|delta| CommitDelta::decode(&delta.encode()).unwrap());
    let [of_first, of_second] = deltas;
    take(&there, &of_first.with(of_second), dir.path());
    for commit in [&first, &second] {
        there.git(&["rev-list", "--objects", "--quiet", commit.as_str()]);
    }
    there.git(&["merge-base", "--is-ancestor", start.as_str(), second.as_str()]);
    there.git(&["merge-base", "--is-ancestor", two.as_str(), second.as_str()]);
    let text = there.git(&["show", &format!("{second}:deep/er/both.txt")]);
    assert!(text.contains("line one\n") && text.contains("line thirty\n"), "{text}");
}

/// Z6.4: a branch is only ever fast-forwarded.
#[test]
fn a_commit_that_is_no_descendant_has_no_delta() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("forge"));
    sandbox.write("a.txt", "a\n");
    let start = sandbox.commit("start");
    sandbox.switch("one", Some(&start)).write("b.txt", "b\n");
    let one = sandbox.commit("one");
    sandbox.switch("two", Some(&start)).write("c.txt", "c\n");
    let two = sandbox.commit("two");
    let repository = sandbox.open(&dir.path().join("cache"));
    assert_eq!(repository.commit_delta(&one, &two).unwrap(), None);
    assert_eq!(repository.commit_delta(&one, &start).unwrap(), None);
    assert!(repository.commit_delta(&start, &two).unwrap().is_some());
}
