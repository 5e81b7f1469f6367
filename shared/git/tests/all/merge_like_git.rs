//! Merges give the same trees and conflicts as git, for fixed cases and random histories.

use crate::support::{Sandbox, git_merge, numbered, replace};
use sluice_git::{GitMergeOutcome, Merge, Repository};
use sluice_model::git::{MergeMode, Oid};
use std::fs;

fn merge(repository: &Repository, ours: &Oid, theirs: &Oid) -> GitMergeOutcome {
    let (mode, message) = (MergeMode::Merge, "Merge it");
    repository.merge(Merge { ours, theirs, mode, message }).unwrap()
}

/// The edits of one side of a case.
type Edit = fn(&Sandbox);

/// The common start of the cases below.
fn start(sandbox: &Sandbox) {
    sandbox
        .write("a.txt", numbered(0..40))
        .write("b.txt", numbered(100..140))
        .write("dir/c.txt", numbered(200..240));
    sandbox
        .write("dir/sub/d.txt", "d\n")
        .write("crlf.txt", "one\r\ntwo\r\nthree\r\n")
        .write("bin", [0, 1, 2, 3, 0, 255]);
    sandbox.write(".gitattributes", "*.txt text=auto\n");
    std::os::unix::fs::symlink("a.txt", sandbox.dir.join("link")).unwrap();
    let submodule = format!("160000,{},module", "1".repeat(40));
    sandbox.git(&["update-index", "--add", "--cacheinfo", &submodule]);
    fs::create_dir_all(sandbox.dir.join("module")).unwrap();
}

fn set_submodule(sandbox: &Sandbox, digit: &str) {
    sandbox.git(&["update-index", "--cacheinfo", &format!("160000,{},module", digit.repeat(40))]);
}

fn executable(sandbox: &Sandbox, path: &str) {
    sandbox.git(&["update-index", "--chmod=+x", path]);
    fs::set_permissions(
        sandbox.dir.join(path),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
}

fn relink(sandbox: &Sandbox, to: &str) {
    fs::remove_file(sandbox.dir.join("link")).unwrap();
    std::os::unix::fs::symlink(to, sandbox.dir.join("link")).unwrap();
}

fn put(sandbox: &Sandbox, path: &str, content: impl AsRef<[u8]>) {
    sandbox.write(path, content);
}

fn rm(sandbox: &Sandbox, path: &str) {
    sandbox.git(&["rm", "-qr", path]);
}

fn mv(sandbox: &Sandbox, from: &str, to: &str) {
    fs::create_dir_all(sandbox.dir.join(to).parent().unwrap()).unwrap();
    sandbox.git(&["mv", from, to]);
}

const STORIES: &[(&str, Edit, Edit)] = &[
    (
        "different files",
        |s| replace(s, "a.txt", "line 3\n", "A\n"),
        |s| replace(s, "b.txt", "line 103\n", "B\n"),
    ),
    (
        "one file, far apart",
        |s| replace(s, "a.txt", "line 3\n", "A\n"),
        |s| replace(s, "a.txt", "line 30\n", "B\n"),
    ),
    (
        "one file, adjacent lines",
        |s| replace(s, "a.txt", "line 3\n", "A\n"),
        |s| replace(s, "a.txt", "line 4\n", "B\n"),
    ),
    (
        "one line",
        |s| replace(s, "a.txt", "line 3\n", "A\n"),
        |s| replace(s, "a.txt", "line 3\n", "B\n"),
    ),
    (
        "the same change twice",
        |s| replace(s, "a.txt", "line 3\n", "A\n"),
        |s| replace(s, "a.txt", "line 3\n", "A\n"),
    ),
    (
        "rename and edit",
        |s| mv(s, "a.txt", "new/z.txt"),
        |s| replace(s, "a.txt", "line 30\n", "B\n"),
    ),
    (
        "rename with edit, and edit",
        |s| {
            mv(s, "a.txt", "z.txt");
            replace(s, "z.txt", "line 1\n", "A\n");
        },
        |s| replace(s, "a.txt", "line 30\n", "B\n"),
    ),
    ("renamed differently", |s| mv(s, "a.txt", "y.txt"), |s| mv(s, "a.txt", "z.txt")),
    ("renamed alike", |s| mv(s, "a.txt", "z.txt"), |s| mv(s, "a.txt", "z.txt")),
    ("rename and delete", |s| mv(s, "a.txt", "z.txt"), |s| rm(s, "a.txt")),
    ("edit and delete", |s| replace(s, "a.txt", "line 3\n", "A\n"), |s| rm(s, "a.txt")),
    ("delete and delete", |s| rm(s, "a.txt"), |s| rm(s, "a.txt")),
    ("mode and edit", |s| executable(s, "a.txt"), |s| replace(s, "a.txt", "line 3\n", "B\n")),
    ("mode and mode", |s| executable(s, "a.txt"), |s| executable(s, "a.txt")),
    ("submodule and file", |s| set_submodule(s, "2"), |s| replace(s, "a.txt", "line 3\n", "B\n")),
    ("submodule alike", |s| set_submodule(s, "2"), |s| set_submodule(s, "2")),
    ("submodule differently", |s| set_submodule(s, "2"), |s| set_submodule(s, "3")),
    ("link and file", |s| relink(s, "b.txt"), |s| replace(s, "a.txt", "line 3\n", "B\n")),
    ("link differently", |s| relink(s, "b.txt"), |s| relink(s, "bin")),
    (
        "line ends, far apart",
        |s| put(s, "crlf.txt", "zero\r\none\r\ntwo\r\nthree\r\n"),
        |s| put(s, "crlf.txt", "one\r\ntwo\r\nthree\r\nfour\r\n"),
    ),
    (
        "line ends against content",
        |s| put(s, "crlf.txt", "one\ntwo\nthree\n"),
        |s| put(s, "b.txt", "x\n"),
    ),
    ("binary and file", |s| put(s, "bin", [9, 0, 9]), |s| put(s, "b.txt", "x\n")),
    ("binary differently", |s| put(s, "bin", [9, 0, 9]), |s| put(s, "bin", [8, 0, 8])),
    ("added alike", |s| put(s, "new.txt", "x\n"), |s| put(s, "new.txt", "x\n")),
    ("added differently", |s| put(s, "new.txt", "x\n"), |s| put(s, "new.txt", "y\n")),
    ("added next to it", |s| put(s, "dir/x.txt", "x\n"), |s| put(s, "dir/y.txt", "y\n")),
    (
        "file becomes directory",
        |s| {
            rm(s, "b.txt");
            s.write("b.txt/in.txt", "x\n");
        },
        |s| replace(s, "a.txt", "line 3\n", "B\n"),
    ),
    (
        "file becomes directory and is edited",
        |s| {
            rm(s, "b.txt");
            s.write("b.txt/in.txt", "x\n");
        },
        |s| replace(s, "b.txt", "line 103\n", "B\n"),
    ),
    (
        "file becomes link",
        |s| {
            fs::remove_file(s.dir.join("b.txt")).unwrap();
            std::os::unix::fs::symlink("a.txt", s.dir.join("b.txt")).unwrap();
        },
        |s| replace(s, "a.txt", "line 3\n", "B\n"),
    ),
    (
        "directory renamed, file added to it",
        |s| mv(s, "dir", "moved"),
        |s| put(s, "dir/x.txt", "x\n"),
    ),
    ("directory deleted, file added to it", |s| rm(s, "dir"), |s| put(s, "dir/x.txt", "x\n")),
    (
        "directory renamed, file moved into it",
        |s| mv(s, "dir", "moved"),
        |s| mv(s, "a.txt", "dir/a.txt"),
    ),
    (
        "directory renamed, file in it edited",
        |s| mv(s, "dir", "moved"),
        |s| replace(s, "dir/c.txt", "line 203\n", "B\n"),
    ),
    (
        "directory partly renamed, file added to it",
        |s| mv(s, "dir/c.txt", "moved/c.txt"),
        |s| put(s, "dir/x.txt", "x\n"),
    ),
    (
        "inner directory renamed, file added to it",
        |s| mv(s, "dir/sub", "moved"),
        |s| put(s, "dir/sub/x.txt", "x\n"),
    ),
    (
        "directory renamed, file added below",
        |s| mv(s, "dir", "moved"),
        |s| put(s, "dir/deep/er/x.txt", "x\n"),
    ),
    ("nothing and something", |_| {}, |s| replace(s, "a.txt", "line 3\n", "B\n")),
];

fn file_name(path: &str) -> &str {
    let path = path.split('~').next().unwrap();
    path.rsplit('/').next().unwrap()
}

/// Z6.4: the tested tree is the one that the forge's git makes.
#[test]
fn each_case_merges_as_in_git() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    start(&sandbox);
    sandbox.git(&["add", "-A", ":!module"]);
    sandbox.git(&["commit", "-q", "-m", "start"]);
    let base = sandbox.rev("HEAD");
    let mut cases = Vec::new();
    for (name, ours, theirs) in STORIES {
        let mut tips = Vec::new();
        for (side, edit) in [("ours", ours), ("theirs", theirs)] {
            sandbox.git(&["reset", "-q", "--hard", base.as_str()]);
            sandbox.git(&["clean", "-qfdx", "-e", "module"]);
            edit(&sandbox);
            sandbox.git(&["add", "-A", ":!module"]);
            sandbox.git(&["commit", "-q", "--allow-empty", "-m", side]);
            let tip = sandbox.rev("HEAD");
            sandbox.git(&["update-ref", &format!("refs/tests/{tip}"), tip.as_str()]);
            tips.push(tip);
        }
        cases.push((*name, tips.remove(0), tips.remove(0)));
    }
    let repository = sandbox.open(&dir.path().join("cache"));
    let mut differences = Vec::new();
    for (name, ours, theirs) in cases {
        for (ours, theirs) in [(&ours, &theirs), (&theirs, &ours)] {
            let expected = git_merge(&sandbox, ours, theirs);
            let found = match merge(&repository, ours, theirs) {
                GitMergeOutcome::Merged(merged) => Ok(merged.commit.tree),
                GitMergeOutcome::Conflict { paths } => Err(paths),
                other => panic!("{name}: {other:?}"),
            };
            let same = match (&expected, &found) {
                (Ok(a), Ok(b)) => a == b,
                // Git also names the places it moves things to (`b.txt~commit`, `moved/x.txt`);
                // ours are names that the commits have.
                (Err(git), Err(ours)) => ours
                    .iter()
                    .any(|path| git.iter().any(|name| file_name(name) == file_name(path))),
                _ => false,
            };
            if !same {
                let list = |tree: &Oid| {
                    repository
                        .list_files(tree, &[], Default::default())
                        .map(|files| files.into_iter().map(|file| file.path).collect::<Vec<_>>())
                };
                let listed = found.as_ref().map(list);
                differences
                    .push(format!("{name}: git {expected:?}, here {found:?} with {listed:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A small generator with a state of its own, so that a failing seed fails again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A tree of small files, edited at random.
#[derive(Clone)]
struct Files(std::collections::BTreeMap<String, Vec<u32>>);

impl Files {
    fn edit(&mut self, dice: &mut Dice) {
        let paths: Vec<String> = self.0.keys().cloned().collect();
        let path = paths[dice.roll(paths.len() as u64) as usize].clone();
        match dice.roll(11) {
            // A whole directory moves.
            10 => {
                let from = format!("d{}/", dice.roll(2));
                let to = format!("e{}/", dice.roll(3));
                let moved: Vec<String> =
                    paths.into_iter().filter(|path| path.starts_with(&from)).collect();
                for path in moved {
                    if let Some(lines) = self.0.remove(&path) {
                        self.0.insert(path.replacen(&from, &to, 1), lines);
                    }
                }
            }
            9 => {
                let first = dice.roll(1_000_000) as u32;
                let path = format!("d{}/new{}.txt", dice.roll(2), dice.roll(6));
                self.0.insert(path, (first..first + 12).collect());
            }
            0 => {
                let lines = self.0.remove(&path).unwrap();
                self.0.insert(format!("moved{}.txt", dice.roll(1000)), lines);
            }
            1 if paths.len() > 3 => {
                self.0.remove(&path);
            }
            2 => {
                let first = dice.roll(1_000_000) as u32;
                self.0.insert(format!("new{}.txt", dice.roll(6)), (first..first + 12).collect());
            }
            _ => {
                let lines = self.0.get_mut(&path).unwrap();
                let at = dice.roll(lines.len() as u64) as usize;
                match dice.roll(3) {
                    0 if lines.len() > 4 => {
                        lines.remove(at);
                    }
                    1 => lines.insert(at, dice.roll(1_000_000) as u32),
                    _ => lines[at] = dice.roll(1_000_000) as u32,
                }
            }
        }
    }

    fn commit(&self, stream: &mut String, mark: u32, parents: &[u32]) {
        use std::fmt::Write;
        write!(
            stream,
            "commit refs/tests/{mark}\nmark :{mark}\ncommitter Bob <bob@example.org> {} +0000\ndata 2\nx\n",
            1_700_000_000 + mark
        )
        .unwrap();
        for (at, parent) in parents.iter().enumerate() {
            writeln!(stream, "{} :{parent}", if at == 0 { "from" } else { "merge" }).unwrap();
        }
        stream.push_str("deleteall\n");
        for (path, lines) in &self.0 {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            write!(stream, "M 100644 inline {path}\ndata {}\n{text}\n", text.len()).unwrap();
        }
        stream.push('\n');
    }
}

/// Z6.4: also where several merge bases exist (criss-cross), and with whatever edits come together.
#[test]
fn random_histories_merge_as_in_git() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let mut dice = Dice(20_261_121);
    let mut stream = String::new();
    let mut cases = Vec::new();
    let mut mark = 0;
    for case in 0..90 {
        let mut files = Files(
            (0..6)
                .map(|n| (format!("d{}/f{n}.txt", n % 2), (n * 100..n * 100 + 20).collect()))
                .collect(),
        );
        let mut next = |files: &Files, parents: &[u32]| {
            mark += 1;
            files.commit(&mut stream, mark, parents);
            mark
        };
        let root = next(&files, &[]);
        let mut tips = Vec::new();
        for _ in 0..2 {
            let mut side = files.clone();
            for _ in 0..1 + dice.roll(3) {
                side.edit(&mut dice);
            }
            let tip = next(&side, &[root]);
            tips.push((side, tip));
        }
        if case % 3 == 0 {
            // Criss-cross: each side takes the other in, in its own way.
            let (a, b) = (tips[0].1, tips[1].1);
            for (side, parents) in [(0, [a, b]), (1, [b, a])] {
                let mut both = tips[side].0.clone();
                both.edit(&mut dice);
                tips[side] = (both.clone(), next(&both, &parents));
            }
        }
        files = tips[0].0.clone();
        files.edit(&mut dice);
        cases.push((next(&files, &[tips[0].1]), tips[1].1));
    }
    sandbox.import(stream.as_bytes());
    let repository = sandbox.open(&dir.path().join("cache"));
    let (mut clean, mut conflicts, mut differences) = (0, 0, Vec::new());
    for (ours, theirs) in cases {
        let (ours, theirs) = (
            sandbox.rev(&format!("refs/tests/{ours}")),
            sandbox.rev(&format!("refs/tests/{theirs}")),
        );
        let expected = git_merge(&sandbox, &ours, &theirs);
        match (&expected, merge(&repository, &ours, &theirs)) {
            (Ok(tree), GitMergeOutcome::Merged(merged)) if *tree == merged.commit.tree => {
                clean += 1
            }
            (Err(_), GitMergeOutcome::Conflict { .. }) => conflicts += 1,
            (_, found) => {
                differences.push(format!("{ours} {theirs}: git {expected:?}, here {found:?}"))
            }
        }
    }
    println!("{clean} clean, {conflicts} conflicts");
    assert!(
        clean > 20 && conflicts > 10,
        "the histories try both: {clean} clean, {conflicts} conflicts"
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
