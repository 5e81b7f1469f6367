//! Commits made of files outside any repository.

use crate::support::{Sandbox, project};
use sluice_git::workspace::{Checkout, WorkingTree, checkout};
use sluice_git::{NewFile, PlantError, Repository, is_spelling_of_dot_git, plant};
use sluice_model::BranchName;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Names that git puts in another order than their bytes have: a directory counts as if its name
/// ended with a slash.
fn files() -> BTreeMap<String, NewFile> {
    let file = |text: &str| NewFile::File(text.as_bytes().to_vec());
    BTreeMap::from([
        ("playbooks/unit.yaml".to_owned(), file("- hosts: all\n")),
        ("playbooks/unit/more.yaml".to_owned(), file("")),
        ("playbooks/unit-2.yaml".to_owned(), file("- hosts: all\n")),
        ("playbooks/link.yaml".to_owned(), NewFile::Link("unit.yaml".to_owned())),
        ("roles/a/files/run".to_owned(), NewFile::Executable(b"#!/bin/sh\n".to_vec())),
        ("roles/a/files/\u{fc}".to_owned(), NewFile::File(vec![0, 255])),
    ])
}

/// Z2.5: equal files are an equal commit in an equal pack, and another content, name or right is
/// another one.
#[test]
fn equal_files_make_an_equal_commit() {
    let made = plant(&files(), "Message").unwrap();
    assert_eq!(plant(&files(), "Message\n").unwrap(), made);
    let others: [(&str, Option<NewFile>); 4] = [
        ("playbooks/unit.yaml", None),
        ("playbooks/unit.yaml", Some(NewFile::File(b"- hosts: one\n".to_vec()))),
        ("playbooks/unit.yaml", Some(NewFile::Executable(b"- hosts: all\n".to_vec()))),
        ("playbooks/other.yaml", Some(NewFile::File(Vec::new()))),
    ];
    for (path, file) in others {
        let mut other = files();
        other.remove(path);
        other.extend(file.map(|file| (path.to_owned(), file)));
        assert_ne!(plant(&other, "Message").unwrap().commit.id, made.commit.id, "{path}");
    }
}

/// Z2.5: git makes the same tree of the same files, and checks out what was put in.
#[test]
fn git_checks_out_the_same_files() {
    let dir = tempfile::tempdir().unwrap();
    let made = plant(&files(), "Message").unwrap();
    let sandbox = Sandbox::new(&dir.path().join("same"));
    for (path, file) in files() {
        let at = sandbox.dir.join(&path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        match file {
            NewFile::File(bytes) => fs::write(&at, bytes).unwrap(),
            NewFile::Executable(bytes) => {
                fs::write(&at, bytes).unwrap();
                fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
            }
            NewFile::Link(to) => symlink(to, &at).unwrap(),
        }
    }
    sandbox.git(&["add", "-A"]);
    assert_eq!(sandbox.git(&["write-tree"]), made.commit.tree.as_str());

    let mut repository = Repository::open(&project(), &dir.path().join("cache")).unwrap();
    assert_eq!(repository.add_stored(&made.object).unwrap(), made.pack);
    let facts = repository.commit(&made.commit.id).unwrap();
    assert_eq!(
        (facts.commit, facts.parents.len(), facts.message.as_str()),
        (made.commit.clone(), 0, "Message\n")
    );
    crate::support::git_checks(&dir.path().join("cache"), &[&made.commit.id]);
    let (dest, branch, pack_dir) =
        (dir.path().join("work"), BranchName::from("main"), repository.pack_dir());
    let request = Checkout {
        pack_dir: &pack_dir,
        packs: std::slice::from_ref(&made.pack),
        dest: &dest,
        branch: &branch,
        result: &made.commit.id,
        base: &made.commit.id,
        other_branches: &[],
        tags: &[],
        files: WorkingTree::CheckedOut,
        timeout_seconds: 60,
    };
    checkout(&request).unwrap();
    assert_eq!(fs::read_to_string(dest.join("playbooks/link.yaml")).unwrap(), "- hosts: all\n");
    assert_eq!(fs::read(dest.join("roles/a/files/\u{fc}")).unwrap(), [0, 255]);
    let mode = |path: &str| fs::metadata(dest.join(path)).unwrap().permissions().mode() & 0o111;
    assert!(mode("roles/a/files/run") != 0 && mode("playbooks/unit.yaml") == 0);
}

#[test]
fn a_path_that_git_would_not_check_out_is_refused() {
    for path in [
        "",
        "/a",
        "a/",
        "a//b",
        "../a",
        "a/./b",
        "a/.git/config",
        "a/.GIT",
        ".git",
        "git~1/x",
        "a\0b",
    ] {
        let files = BTreeMap::from([(path.to_owned(), NewFile::File(Vec::new()))]);
        assert!(matches!(plant(&files, "x"), Err(PlantError::Path { .. })), "{path:?}");
    }
    let link = BTreeMap::from([("a/.gitmodules".to_owned(), NewFile::Link("b".to_owned()))]);
    assert!(matches!(plant(&link, "x"), Err(PlantError::Path { .. })));
    let both =
        BTreeMap::from(["a", "a/b"].map(|path| (path.to_owned(), NewFile::File(Vec::new()))));
    let error = plant(&both, "x").unwrap_err().to_string();
    assert!(
        error.starts_with("\"a/b\" can be no file of a commit because what it lies in is a file"),
        "{error}"
    );
    for name in [".git", ".Git", ".git.", ".git ", "GIT~1", ".git::$INDEX_ALLOCATION", "a\\.git"] {
        assert!(is_spelling_of_dot_git(name), "{name}");
    }
    for name in ["git", ".github", ".gitignore", ".gitattributes", "a.git", "foo-\\x2dbar"] {
        assert!(!is_spelling_of_dot_git(name), "{name}");
    }
}
