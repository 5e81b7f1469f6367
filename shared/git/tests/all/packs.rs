//! Repositories made of packs: adding, refusing, writing, reading.

use crate::support::{Sandbox, carry, git_checks, project};
use sluice_git::{
    FileKind, GitMergeOutcome, GitPackError, GitReadError, Merge, ReadLimits, Repository, TreeEntry,
};
use sluice_model::git::{MergeMode, Oid};
use std::time::Instant;

#[test]
fn objects_are_found_across_packs_and_a_pack_is_stored_once() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let first = sandbox.write("a.txt", "a\n").commit("one");
    let old = sandbox.packs().remove(0);
    let second = sandbox.write("b.txt", "b\n").commit("two");
    let new = sandbox.packs().remove(0);
    let mut repository = Repository::open(&project(), &dir.path().join("cache")).unwrap();
    assert_eq!(repository.packs().unwrap(), []);
    assert!(!repository.has(&first));
    let name = repository.add_pack(&old.0, &old.1).unwrap();
    assert!(repository.has_pack(&name) && repository.has(&first) && !repository.has(&second));
    repository.add_pack(&new.0, &new.1).unwrap();
    assert_eq!(repository.add_pack(&old.0, &old.1).unwrap(), name);
    assert_eq!(repository.packs().unwrap().len(), 2);
    assert_eq!(repository.commit(&second).unwrap().parents, std::slice::from_ref(&first));
    // A second repository in the same directory has the same objects.
    let again = Repository::open(&project(), &dir.path().join("cache")).unwrap();
    assert!(
        again.is_ancestor(&first, &second).unwrap() && !again.is_ancestor(&second, &first).unwrap()
    );
    assert_eq!(again.merge_base(&second, &first).unwrap(), Some(first));
}

#[test]
fn many_packs_can_be_added_to_an_open_repository() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let mut made = Repository::open(&project(), &dir.path().join("made")).unwrap();
    let mut repository = Repository::open(&project(), &dir.path().join("cache")).unwrap();
    let base = sandbox.write("a.txt", "a\n").commit("start");
    let mut change = sandbox.switch("change", Some(&base)).write("b.txt", "b\n").commit("change");
    let (pack, index) = sandbox.packs().remove(0);
    made.add_pack(&pack, &index).unwrap();
    repository.add_pack(&pack, &index).unwrap();
    let mut tip = base;
    // Each merge makes a pack of its own, as in a long queue.
    for round in 0..80 {
        let message = format!("round {round}");
        let GitMergeOutcome::Merged(merged) = made
            .merge(Merge { ours: &tip, theirs: &change, mode: MergeMode::Merge, message: &message })
            .unwrap()
        else {
            panic!("no conflict")
        };
        let name = made
            .pack_missing_objects(std::slice::from_ref(&merged.commit.id))
            .unwrap()
            .unwrap()
            .name;
        let (pack, index) = carry(&made, &name);
        repository.add_pack(&pack, &index).unwrap();
        (tip, change) = (change, merged.commit.id);
    }
    assert_eq!(repository.packs().unwrap().len(), 81);
    git_checks(&dir.path().join("cache"), &[&change]);
    assert!(
        Repository::open(&project(), &dir.path().join("cache"))
            .unwrap()
            .is_ancestor(&tip, &change)
            .unwrap()
    );
}

#[test]
fn a_damaged_pack_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    sandbox.write("a.txt", "a\n").commit("one");
    let (pack, index) = sandbox.packs().remove(0);
    sandbox.write("b.txt", "b\n").commit("two");
    let other = sandbox.packs().remove(0);
    let mut flipped = pack.clone();
    flipped[20] ^= 1;
    let mut repository = Repository::open(&project(), &dir.path().join("cache")).unwrap();
    for (pack, index) in [
        (&pack[..pack.len() - 1], &index[..]),
        (&flipped, &index),
        (&pack, &other.1),
        (&pack, &index[..index.len() - 8]),
        (&[], &[]),
    ] {
        assert!(matches!(repository.add_pack(pack, index), Err(GitPackError::Damaged { .. })));
    }
    assert_eq!(repository.packs().unwrap(), []);
}

/// One process uploads the object, another downloads it.
#[test]
fn a_pack_and_its_index_are_transferred_as_one_object() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let tip = sandbox.write("a.txt", "a\n").write("dir/b.txt", "b\n").commit("one");
    let mut from = sandbox.open(&dir.path().join("from"));
    let made = from.pack_objects_beyond(std::slice::from_ref(&tip), &[]).unwrap().unwrap();
    let object = made.joined(&project()).unwrap();
    let (pack, index) = carry(&from, &made.name);
    let mut to = Repository::open(&project(), &dir.path().join("to")).unwrap();
    assert_eq!(to.add_stored(&object).unwrap(), made.name);
    assert_eq!(carry(&to, &made.name), (pack, index));
    assert_eq!(to.read_file(&tip, "dir/b.txt", ReadLimits::default()).unwrap().unwrap(), b"b\n");
}

#[test]
fn a_damaged_object_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let tip = sandbox.write("a.txt", "a\n").commit("one");
    let mut from = sandbox.open(&dir.path().join("from"));
    let made = from.pack_objects_beyond(&[tip], &[]).unwrap().unwrap();
    let whole = made.joined(&project()).unwrap();
    let (pack, _) = carry(&from, &made.name);
    let flipped = |at: usize| {
        let mut object = whole.clone();
        object[at] ^= 1;
        object
    };
    let rows = [
        ("nothing", Vec::new()),
        ("a pack alone", pack.clone()),
        ("an end cut off", whole[..whole.len() - 1].to_vec()),
        ("a beginning cut off", whole[1..].to_vec()),
        ("a byte of the pack", flipped(20)),
        ("a byte of the index", flipped(pack.len() + 20)),
        ("a byte of the mark", flipped(whole.len() - 10)),
        ("a pack that is said to be shorter or longer by one", flipped(whole.len() - 1)),
        ("a pack that is said to be huge", flipped(whole.len() - 8)),
    ];
    let mut repository = Repository::open(&project(), &dir.path().join("cache")).unwrap();
    for (what, object) in rows {
        let error = repository.add_stored(&object).unwrap_err();
        assert!(matches!(error, GitPackError::Damaged { .. }), "{what}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("forge.example/org/name") && text.contains("download it again"),
            "{what}: {text}"
        );
    }
    assert_eq!(repository.packs().unwrap(), []);
    repository.add_stored(&whole).unwrap();
    assert_eq!(repository.packs().unwrap(), [made.name]);
}

#[test]
fn a_pack_of_merges_contains_only_new_objects() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let base = sandbox
        .write("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
        .write("dir/b.txt", "b\n")
        .commit("start");
    let theirs = sandbox
        .switch("change", Some(&base))
        .write("a.txt", "X\n2\n3\n4\n5\n6\n7\n8\n9\n")
        .commit("change");
    let ours = sandbox
        .switch("main", None)
        .write("a.txt", "1\n2\n3\n4\n5\n6\n7\n8\nY\n")
        .commit("meanwhile");
    let mut repository = sandbox.open(&dir.path().join("cache"));
    assert_eq!(repository.pack_missing_objects(&[ours.clone(), theirs.clone()]).unwrap(), None);
    let GitMergeOutcome::Merged(merged) = repository
        .merge(Merge { ours: &ours, theirs: &theirs, mode: MergeMode::Merge, message: "m" })
        .unwrap()
    else {
        panic!("no conflict")
    };
    let tips = [merged.commit.id.clone()];
    let made = repository.pack_missing_objects(&tips).unwrap().unwrap();
    assert_eq!(made.objects, 3, "commit, root, file");
    assert_eq!(repository.pack_missing_objects(&tips).unwrap(), None);
    let merged_file =
        repository.read_file(&merged.commit.id, "a.txt", ReadLimits::default()).unwrap().unwrap();
    assert_eq!(merged_file, b"X\n2\n3\n4\n5\n6\n7\n8\nY\n");
    git_checks(&dir.path().join("cache"), &[&merged.commit.id]);
}

/// Z6.4: an executor has the packs that a state lists, not those that other states left in the
/// merger's cache.
#[test]
fn a_pack_completes_its_base_whatever_else_the_cache_has() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let base = sandbox.write("a.txt", "a\n").commit("start");
    let theirs = sandbox.switch("change", Some(&base)).write("dir/b.txt", "b\n").commit("change");
    let ours = sandbox.switch("main", None).write("c.txt", "c\n").commit("meanwhile");
    let mut repository = sandbox.open(&dir.path().join("cache"));
    let listed = repository.packs().unwrap();
    let merge = Merge { ours: &ours, theirs: &theirs, mode: MergeMode::Merge, message: "m" };
    let GitMergeOutcome::Merged(merged) = repository.merge(merge).unwrap() else {
        panic!("no conflict")
    };
    let tips = [merged.commit.id.clone()];
    let made = repository.pack_objects_beyond(&tips, &listed).unwrap().unwrap();
    // A second state with the same content finds everything in the cache, and lists the pack
    // nevertheless.
    let mut again = Repository::open(&project(), &dir.path().join("cache")).unwrap();
    assert_eq!(
        again.pack_objects_beyond(&tips, &listed).unwrap().map(|pack| pack.name),
        Some(made.name.clone())
    );
    let complete: Vec<_> = listed.into_iter().chain([made.name]).collect();
    assert_eq!(again.pack_objects_beyond(&tips, &complete).unwrap(), None);
}

fn sample(sandbox: &Sandbox) -> Oid {
    sandbox
        .write(".zuul.yaml", "- job: {}\n")
        .write("zuul.d/a.yaml", "a\n")
        .write("zuul.d/sub/b.yaml", "b\n")
        .write("zuul.data", "no\n");
    sandbox.write("src/large.bin", vec![7; 5000]).write("run.sh", "#!/bin/sh\n");
    sandbox.git(&["add", "run.sh"]);
    sandbox.git(&["update-index", "--chmod=+x", "run.sh"]);
    std::fs::set_permissions(
        sandbox.dir.join("run.sh"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    std::os::unix::fs::symlink("zuul.d/a.yaml", sandbox.dir.join("link.yaml")).unwrap();
    sandbox.commit("files")
}

/// Z2.1
#[test]
fn configuration_is_read_without_entering_other_directories() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let tip = sample(&sandbox);
    let repository = sandbox.open(&dir.path().join("cache"));
    let asked = std::cell::RefCell::new(Vec::new());
    let wanted = |found: TreeEntry, path: &str| {
        asked.borrow_mut().push(path.to_owned());
        match found {
            TreeEntry::Directory => path.starts_with("zuul.d"),
            TreeEntry::File => {
                path == ".zuul.yaml" || path == "link.yaml" || path.starts_with("zuul.d/")
            }
        }
    };
    let files = repository.read_files(&tip, &wanted, ReadLimits::default()).unwrap();
    let texts: Vec<(&str, &[u8])> =
        files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
    assert_eq!(
        texts,
        [
            (".zuul.yaml", &b"- job: {}\n"[..]),
            ("zuul.d/a.yaml", b"a\n"),
            ("zuul.d/sub/b.yaml", b"b\n")
        ]
    );
    assert!(!asked.borrow().iter().any(|path| path.starts_with("src/")));

    let small = |limits| repository.read_files(&tip, &|_, _| true, limits).unwrap_err().to_string();
    assert!(
        small(ReadLimits { file_bytes_max: 4000, ..Default::default() })
            .contains("bytes of src/large.bin")
    );
    assert!(
        small(ReadLimits { total_bytes_max: 4000, ..Default::default() })
            .contains("bytes of all files")
    );
    assert!(small(ReadLimits { files_max: 3, ..Default::default() }).contains("files at"));
}

#[test]
fn files_are_listed_below_prefixes_with_their_types() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let tip = sample(&sandbox);
    let repository = sandbox.open(&dir.path().join("cache"));
    let list = |prefixes: &[&str]| -> Vec<String> {
        repository
            .list_files(&tip, prefixes, ReadLimits::default())
            .unwrap()
            .into_iter()
            .map(|file| file.path)
            .collect()
    };
    assert_eq!(list(&["zuul.d/"]), ["zuul.d/a.yaml", "zuul.d/sub/b.yaml"]);
    assert_eq!(list(&["zuul.d/sub", "run.sh"]), ["run.sh", "zuul.d/sub/b.yaml"]);
    assert_eq!(list(&["none"]), [""; 0]);
    assert_eq!(list(&[]).join("\n"), sandbox.git(&["ls-tree", "-r", "--name-only", "HEAD"]));
    let kinds: Vec<FileKind> = repository
        .list_files(&tip, &["link.yaml", "run.sh", "src"], ReadLimits::default())
        .unwrap()
        .iter()
        .map(|file| file.kind)
        .collect();
    assert_eq!(kinds, [FileKind::Symlink, FileKind::Executable, FileKind::File]);
    assert_eq!(repository.read_file(&tip, "link.yaml", ReadLimits::default()).unwrap(), None);
    assert_eq!(repository.read_file(&tip, "zuul.d", ReadLimits::default()).unwrap(), None);
    assert_eq!(repository.read_file(&tip, "zuul.d/none", ReadLimits::default()).unwrap(), None);
    let has = |path: &str| repository.has_file(&tip, path).unwrap();
    assert!(
        has("run.sh") && has("zuul.d/sub/b.yaml") && has("link.yaml") && has("link.yaml/below")
    );
    assert!(!has("zuul.d") && !has("zuul.d/none") && !has("none/a.yaml") && !has("run.sh/below"));
    let tree = repository.commit(&tip).unwrap().commit.tree;
    assert_eq!(
        repository.read_file(&tree, "zuul.d/a.yaml", ReadLimits::default()).unwrap().unwrap(),
        b"a\n"
    );
}

#[test]
fn changed_files_name_both_paths_of_a_rename() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let base = sample(&sandbox);
    sandbox.git(&["mv", "src", "lib"]);
    let head =
        sandbox.write("zuul.d/a.yaml", "changed\n").write("new/deep/file", "x\n").commit("change");
    let repository = sandbox.open(&dir.path().join("cache"));
    let changed = repository.changed_files(&base, &head, 100).unwrap();
    assert_eq!(changed, ["lib/large.bin", "new/deep/file", "src/large.bin", "zuul.d/a.yaml"]);
    assert!(matches!(
        repository.changed_files(&base, &head, 3),
        Err(GitReadError::TooLarge { limit: 3, .. })
    ));
    assert_eq!(repository.changed_files(&head, &head, 3).unwrap(), [""; 0]);
}

#[test]
fn errors_name_the_repository_and_the_object() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let tip = sample(&sandbox);
    let repository = sandbox.open(&dir.path().join("cache"));
    assert!(matches!(repository.commit(&Oid::from("main")), Err(GitReadError::NotAnId { .. })));
    let tree = repository.commit(&tip).unwrap().commit.tree;
    assert!(matches!(
        repository.commit(&tree),
        Err(GitReadError::WrongKind { wanted: "commit", .. })
    ));
    let missing = repository.commit(&Oid("cd".repeat(20))).unwrap_err();
    assert!(
        missing.to_string().contains("forge.example/org/name")
            && missing.to_string().contains(&"cd".repeat(20)),
        "{missing}"
    );
    sandbox.git(&["tag", "-a", "v1", "-m", "one"]);
    let tag = sandbox.rev("v1");
    let tagged = sandbox.open(&dir.path().join("cache"));
    assert_eq!(tagged.commit(&tag).unwrap().commit.id, tip);
}

#[test]
fn a_repository_of_two_thousand_files_is_merged_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(&dir.path().join("repo"));
    let mut stream = String::from(
        "commit refs/heads/main\ncommitter Bob <bob@example.org> 1700000000 +0000\ndata 2\nx\n",
    );
    for file in 0..2000 {
        let text = format!("{file}\nsecond\nthird\nfourth\n");
        stream.push_str(&format!(
            "M 100644 inline d{}/e{}/f{file}.txt\ndata {}\n{text}\n",
            file % 20,
            file % 7,
            text.len()
        ));
    }
    sandbox.import(stream.as_bytes());
    sandbox.git(&["reset", "-q", "--hard", "main"]);
    let base = sandbox.rev("main");
    let theirs = sandbox
        .switch("change", Some(&base))
        .write("d3/e3/f3.txt", "3\nsecond\nthird\nX\n")
        .commit("change");
    let ours = sandbox
        .switch("main", None)
        .write("d3/e3/f3.txt", "Y\nsecond\nthird\nfourth\n")
        .commit("meanwhile");
    sandbox.open(&dir.path().join("cache"));
    let started = Instant::now();
    let repository = Repository::open(&project(), &dir.path().join("cache")).unwrap();
    let opened = started.elapsed();
    let merge = Merge { ours: &ours, theirs: &theirs, mode: MergeMode::Merge, message: "m" };
    let GitMergeOutcome::Merged(merged) = repository.merge(merge).unwrap() else {
        panic!("no conflict")
    };
    let done = started.elapsed();
    println!("opened in {opened:?}, merged in {:?}", done - opened);
    let file = repository
        .read_file(&merged.commit.tree, "d3/e3/f3.txt", ReadLimits::default())
        .unwrap()
        .unwrap();
    assert_eq!(file, b"Y\nsecond\nthird\nX\n");
    assert!(done.as_secs() < 5, "in an unoptimised build on a busy machine: {done:?}");
}
