//! Real repositories made with the git command line, and a small HTTP server before
//! `git http-backend`.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its part, and a test may panic"
)]

pub mod server;

use sluice_git::{PackName, Repository};
use sluice_model::{ProjectName, git::Oid};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The project of all tests.
pub fn project() -> ProjectName {
    ProjectName::from("forge.example/org/name")
}

/// A git repository with files, driven by the command line; its clock is the number of commits
/// made.
pub struct Sandbox {
    pub dir: PathBuf,
    clock: std::cell::Cell<u32>,
}

impl Sandbox {
    pub fn new(dir: &Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        let sandbox = Self { dir: dir.to_owned(), clock: std::cell::Cell::new(0) };
        sandbox.git(&["init", "-q", "-b", "main"]);
        sandbox
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let at = format!("{} +0000", 1_700_000_000 + self.clock.get());
        let mut command = Command::new("git");
        command.args(arguments).current_dir(&self.dir);
        for (name, value) in [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_AUTHOR_NAME", "Ann"),
            ("GIT_AUTHOR_EMAIL", "ann@example.org"),
            ("GIT_COMMITTER_NAME", "Bob"),
            ("GIT_COMMITTER_EMAIL", "bob@example.org"),
            ("GIT_AUTHOR_DATE", &at),
            ("GIT_COMMITTER_DATE", &at),
            ("GIT_TERMINAL_PROMPT", "0"),
        ] {
            command.env(name, value);
        }
        command
    }

    /// Runs git, which must succeed, and returns its output.
    pub fn git(&self, arguments: &[&str]) -> String {
        let (status, out) = self.try_git(arguments);
        assert_eq!(status, 0, "git {arguments:?}: {out}");
        out
    }

    /// Runs git and returns its exit status and output.
    pub fn try_git(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.command(arguments).output().unwrap();
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            text.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        (output.status.code().unwrap(), text.trim_end().to_owned())
    }

    /// Feeds `git fast-import`.
    pub fn import(&self, stream: &[u8]) {
        let mut child = self
            .command(&["fast-import", "--quiet", "--force"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stream).unwrap();
        assert!(child.wait().unwrap().success());
    }

    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Commits everything and returns the commit.
    pub fn commit(&self, message: &str) -> Oid {
        self.clock.set(self.clock.get() + 1);
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.rev("HEAD")
    }

    /// Switches to a branch, which is created at `start` when one is given.
    pub fn switch(&self, branch: &str, start: Option<&Oid>) -> &Self {
        match start {
            Some(start) => self.git(&["checkout", "-q", "-B", branch, start.as_str()]),
            None => self.git(&["checkout", "-q", branch]),
        };
        self
    }

    pub fn rev(&self, name: &str) -> Oid {
        Oid(self.git(&["rev-parse", name]))
    }

    pub fn tree(&self, name: &str) -> Oid {
        self.rev(&format!("{name}^{{tree}}"))
    }

    /// Returns all objects as one pack with its index.
    pub fn packs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.git(&["repack", "-adq"]);
        let mut packs = Vec::new();
        for entry in fs::read_dir(self.dir.join(".git/objects/pack")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().unwrap() == "pack" {
                packs.push((
                    fs::read(&path).unwrap(),
                    fs::read(path.with_extension("idx")).unwrap(),
                ));
            }
        }
        packs
    }

    /// Opens this library's repository in `dir` with all objects of this one.
    pub fn open(&self, dir: &Path) -> Repository {
        let mut repository = Repository::open(&project(), dir).unwrap();
        for (pack, index) in self.packs() {
            repository.add_pack(&pack, &index).unwrap();
        }
        repository
    }
}

/// Copies the files of a pack out of a repository's directory, as an upload and a download would.
pub fn carry(from: &Repository, name: &PackName) -> (Vec<u8>, Vec<u8>) {
    let read = |ending| fs::read(from.pack_dir().join(format!("{name}.{ending}"))).unwrap();
    (read("pack"), read("idx"))
}

/// Has git check a directory with packs: everything reachable from `tips` is present and valid.
pub fn git_checks(dir: &Path, tips: &[&Oid]) {
    let mut arguments =
        vec!["--git-dir", ".", "fsck", "--strict", "--no-dangling", "--connectivity-only"];
    arguments.extend(tips.iter().map(|tip| tip.as_str()));
    let output = Command::new("git").args(&arguments).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The outcome of a merge by git: the tree, or the conflicting paths.
pub fn git_merge(sandbox: &Sandbox, ours: &Oid, theirs: &Oid) -> Result<Oid, Vec<String>> {
    let arguments = [
        "merge-tree",
        "--write-tree",
        "--name-only",
        "--no-messages",
        ours.as_str(),
        theirs.as_str(),
    ];
    let (status, out) = sandbox.try_git(&arguments);
    let mut lines = out.lines();
    let tree = lines.next().unwrap();
    match status {
        0 => Ok(Oid::from(tree)),
        1 => Err(lines.map(str::to_owned).collect()),
        _ => panic!("git merge-tree: {out}"),
    }
}

pub fn numbered(range: std::ops::Range<u32>) -> String {
    range.map(|line| format!("line {line}\n")).collect()
}

pub fn replace(sandbox: &Sandbox, path: &str, from: &str, to: &str) {
    let text = fs::read_to_string(sandbox.dir.join(path)).unwrap();
    assert!(text.contains(from));
    sandbox.write(path, text.replacen(from, to, 1));
}
