//! Workspaces as a job finds them.

use crate::support::Sandbox;
use sluice_git::workspace::{Checkout, CheckoutError, WorkingTree, checkout};
use sluice_git::{GitMergeOutcome, Merge, PackName};
use sluice_model::BranchName;
use sluice_model::git::{Commit, MergeMode, Oid};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

struct Prepared {
    pack_dir: PathBuf,
    packs: Vec<PackName>,
    base: Oid,
    theirs: Oid,
    result: Commit,
}

impl Prepared {
    /// Returns the checkout of the merged commit on a branch, without other branches and tags.
    fn checkout<'a>(&'a self, dest: &'a Path, branch: &'a BranchName) -> Checkout<'a> {
        Checkout {
            pack_dir: &self.pack_dir,
            packs: &self.packs,
            dest,
            branch,
            result: &self.result.id,
            base: &self.base,
            other_branches: &[],
            tags: &[],
            files: WorkingTree::CheckedOut,
            timeout_seconds: 60,
        }
    }
}

/// A branch, a change merged with it, and the packs of both in a cache directory.
fn prepare(dir: &Path) -> Prepared {
    let sandbox = Sandbox::new(&dir.join("repo"));
    sandbox
        .write("a.txt", "a\n")
        .write("crlf.txt", "one\r\ntwo\r\n")
        .write(".gitattributes", "*.sh filter=evil\n")
        .write("run.sh", "#!/bin/sh\n");
    fs::set_permissions(sandbox.dir.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let start = sandbox.commit("start");
    let theirs = sandbox.switch("change", Some(&start)).write("b.txt", "b\n").commit("change");
    let base = sandbox.switch("main", None).write("c.txt", "c\n").commit("meanwhile");
    let mut repository = sandbox.open(&dir.join("cache"));
    let merge =
        Merge { ours: &base, theirs: &theirs, mode: MergeMode::Merge, message: "Merge change 7" };
    let GitMergeOutcome::Merged(merged) = repository.merge(merge).unwrap() else {
        panic!("no conflict")
    };
    repository.pack_missing_objects(std::slice::from_ref(&merged.commit.id)).unwrap();
    Prepared {
        pack_dir: repository.pack_dir(),
        packs: repository.packs().unwrap(),
        base,
        theirs,
        result: merged.commit,
    }
}

/// Z7.2
#[test]
fn a_workspace_has_its_branch_at_the_merged_commit_and_origin_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let prepared = prepare(dir.path());
    let dest = dir.path().join("work/src/forge.example/org/name");
    let main = BranchName::from("main");
    let others = [
        (BranchName::from("stable/1"), prepared.theirs.clone()),
        (main.clone(), prepared.theirs.clone()),
    ];
    let tags = [("v1".to_owned(), prepared.theirs.clone())];
    let request =
        Checkout { other_branches: &others, tags: &tags, ..prepared.checkout(&dest, &main) };
    checkout(&request).unwrap();

    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .args(["-c", "safe.directory=*"])
            .args(arguments)
            .current_dir(&dest)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    assert_eq!(git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(
        git(&["rev-parse", "HEAD", "origin/main", "origin/stable/1", "v1"]),
        format!(
            "{}\n{}\n{}\n{}",
            prepared.result.id, prepared.base, prepared.theirs, prepared.theirs
        )
    );
    assert_eq!(git(&["remote", "get-url", "origin"]), "file:///dev/null");
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert_eq!(git(&["log", "--format=%s", "origin/main..HEAD"]), "Merge change 7\nchange");
    assert_eq!(fs::read(dest.join("crlf.txt")).unwrap(), b"one\r\ntwo\r\n");
    assert_eq!(fs::metadata(dest.join("run.sh")).unwrap().permissions().mode() & 0o111, 0o111);
    git(&["fsck", "--strict", "--no-dangling"]);
    let pack = format!("{}.pack", prepared.packs[0]);
    assert_eq!(
        fs::metadata(prepared.pack_dir.join(&pack)).unwrap().ino(),
        fs::metadata(dest.join(".git/objects/pack").join(&pack)).unwrap().ino()
    );
    assert!(!dest.join(".git/hooks").exists());

    assert!(matches!(checkout(&request), Err(CheckoutError::NotEmpty(_))));
}

/// Z7.2: `workspace-checkout: false` saves the files of large repositories on the executor.
#[test]
fn a_workspace_without_files_gets_them_by_a_reset() {
    let dir = tempfile::tempdir().unwrap();
    let prepared = prepare(dir.path());
    let (dest, main) = (dir.path().join("work"), BranchName::from("main"));
    let request = Checkout { files: WorkingTree::Absent, ..prepared.checkout(&dest, &main) };
    checkout(&request).unwrap();
    let names = |dir: &Path| -> Vec<_> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names(&dest), [".git"]);
    let reset = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "reset", "--hard", "--quiet"])
        .current_dir(&dest)
        .status();
    assert!(reset.unwrap().success());
    assert_eq!(fs::read(dest.join("b.txt")).unwrap(), b"b\n");
}

#[test]
fn an_error_names_the_destination_and_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let prepared = prepare(dir.path());
    let (dest, main) = (dir.path().join("work"), BranchName::from("main"));
    let good = prepared.checkout(&dest, &main);
    for name in ["--upload-pack=x", "a..b", "a b", "x\ndelete refs/heads/main"] {
        let branch = BranchName::from(name);
        let error = checkout(&Checkout { branch: &branch, ..good.clone() });
        assert!(matches!(error, Err(CheckoutError::BadName { .. })), "{error:?}");
        assert!(!dest.exists());
    }
    let away = ["pack-0000000000000000000000000000000000000000".parse().unwrap()];
    assert!(matches!(
        checkout(&Checkout { packs: &away, ..good.clone() }),
        Err(CheckoutError::NoPack { .. })
    ));
    fs::remove_dir_all(&dest).unwrap();

    let missing = Oid("ab".repeat(20));
    let error = checkout(&Checkout { result: &missing, ..good.clone() }).unwrap_err();
    let CheckoutError::Git { source, .. } = &error else { panic!("{error:?}") };
    assert!(
        source.to_string().contains("update-ref") && source.to_string().contains(missing.as_str()),
        "{source}"
    );
    fs::remove_dir_all(&dest).unwrap();

    let error = checkout(&Checkout { timeout_seconds: 0, ..good }).unwrap_err();
    assert!(
        matches!(
            error,
            CheckoutError::Git { source: sluice_git::workspace::CommandError::TimedOut { .. }, .. }
        ),
        "{error:?}"
    );
}

/// S06, Z7.2: a tag is not a branch; its commit is tested.
#[test]
fn a_tag_is_checked_out_without_a_branch() {
    let dir = tempfile::tempdir().unwrap();
    let prepared = prepare(dir.path());
    let (dest, tag) = (dir.path().join("work"), BranchName::from("refs/tags/1.0"));
    let others =
        [(BranchName::from("main"), prepared.base.clone()), (tag.clone(), prepared.theirs.clone())];
    let request = Checkout {
        result: &prepared.theirs,
        base: &prepared.theirs,
        other_branches: &others,
        ..prepared.checkout(&dest, &tag)
    };
    checkout(&request).unwrap();
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        let output = git
            .args(["-c", "safe.directory=*"])
            .args(arguments)
            .current_dir(&dest)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    assert_eq!(
        git(&["rev-parse", "HEAD", "1.0"]),
        format!("{}\n{}", prepared.theirs, prepared.theirs)
    );
    assert_eq!(git(&["symbolic-ref", "-q", "HEAD"]), "", "HEAD is on the commit itself");
    assert_eq!(
        git(&["for-each-ref", "--format=%(refname)"]),
        "refs/remotes/origin/main\nrefs/tags/1.0"
    );
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert!(dest.join("b.txt").exists());
}
