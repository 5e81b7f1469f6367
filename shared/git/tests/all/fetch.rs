//! Fetches over HTTP from real repositories served by `git http-backend`.

use crate::support::server::{Behaviour, Server};
use crate::support::{Sandbox, carry, git_checks, project};
use sluice_git::{Credential, FetchError, FetchLimits, FetchRequest, Fetched, Repository, Want};
use sluice_model::git::{MergeMode, Oid};
use std::path::Path;
use std::sync::atomic::Ordering;

fn want_refs(names: &[&str]) -> Vec<Want> {
    names.iter().map(|name| Want::Ref((*name).to_owned())).collect()
}

fn request<'a>(url: &'a str, wants: &'a [Want], haves: &'a [Oid]) -> FetchRequest<'a> {
    FetchRequest { url, credential: None, wants, haves, limits: FetchLimits::default() }
}

fn tips(fetched: &Fetched) -> Vec<Oid> {
    fetched.refs.iter().map(|found| found.commit().clone()).collect()
}

/// A forge with a repository `name` of a few commits, and a large enough file that deltas pay.
fn forge(root: &Path) -> (Sandbox, Oid) {
    let sandbox = Sandbox::new(&root.join("name"));
    let long: String = (0..2000).map(|line| format!("line {line}\n")).collect();
    sandbox.write("long.txt", &long).write("a/b.txt", "b\n");
    let first = sandbox.commit("one");
    sandbox.git(&["tag", "-a", "v1", "-m", "first"]);
    sandbox.switch("change", Some(&first)).write("long.txt", format!("top\n{long}"));
    let change = sandbox.commit("change");
    sandbox.git(&["update-ref", "refs/pull/7/head", change.as_str()]);
    sandbox.switch("main", None);
    (sandbox, first)
}

#[test]
fn branches_and_pull_requests_arrive_as_one_usable_pack() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, first) = forge(dir.path());
    let server = Server::start(dir.path(), Behaviour::Open);
    let url = format!("{}/name/.git", server.url);
    let mut here = Repository::open(&project(), &dir.path().join("here")).unwrap();

    let wants = [Want::Prefix("refs/heads/".to_owned()), Want::Ref("refs/pull/7/head".to_owned())];
    let fetched = here.fetch(&request(&url, &wants, &[])).unwrap();
    let names: Vec<&str> = fetched.refs.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["refs/heads/change", "refs/heads/main", "refs/pull/7/head"]);
    assert_eq!(fetched.refs[1].target, first);
    assert_eq!(fetched.packs.len(), 1);
    assert_eq!(here.packs().unwrap(), [fetched.packs[0].name.clone()]);
    assert_eq!(
        fetched.packs[0].size_bytes,
        std::fs::metadata(&fetched.packs[0].pack).unwrap().len()
    );

    // Nothing but the two files reaches the other machine.
    let mut there = Repository::open(&project(), &dir.path().join("there")).unwrap();
    let (pack, index) = carry(&here, &fetched.packs[0].name);
    assert_eq!(there.add_pack(&pack, &index).unwrap(), fetched.packs[0].name);
    let change = sandbox.rev("change");
    assert_eq!(there.commit(&change).unwrap().parents, [first]);
    assert_eq!(
        there.read_file(&change, "a/b.txt", Default::default()).unwrap().as_deref(),
        Some(&b"b\n"[..])
    );
    git_checks(&dir.path().join("there"), &[&change]);
}

#[test]
fn a_second_fetch_transfers_only_new_objects_in_a_self_contained_pack() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, _) = forge(dir.path());
    let server = Server::start(dir.path(), Behaviour::Open);
    let url = format!("{}/name/.git", server.url);
    let mut repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
    let wants = want_refs(&["refs/heads/main", "refs/pull/7/head"]);
    let first = repository.fetch(&request(&url, &wants, &[])).unwrap();

    let again = repository.fetch(&request(&url, &wants, &tips(&first))).unwrap();
    assert_eq!((again.refs, again.packs.len()), (first.refs.clone(), 0));

    // One line of a large file: the forge sends a delta against an object that we have. The pack
    // must not need that object afterwards.
    let long = std::fs::read_to_string(sandbox.dir.join("long.txt")).unwrap();
    let new = sandbox.write("long.txt", format!("{long}end\n")).commit("two");
    let second = repository.fetch(&request(&url, &wants, &tips(&first))).unwrap();
    let pack = &second.packs[0];
    assert!(pack.objects <= 4, "commit, tree, file and at most the file's base: {}", pack.objects);
    let alone = std::process::Command::new("git")
        .args(["verify-pack", "-v"])
        .arg(&pack.index)
        .output()
        .unwrap();
    assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
    git_checks(&dir.path().join("here"), &[&new]);
}

#[test]
fn a_rewritten_branch_transfers_only_new_objects() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, first) = forge(dir.path());
    let server = Server::start(dir.path(), Behaviour::Open);
    let url = format!("{}/name/.git", server.url);
    let mut repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
    let wants = want_refs(&["refs/heads/change"]);
    let before = repository.fetch(&request(&url, &wants, &[])).unwrap();
    // The old commit vanishes from the forge altogether, so only its parent can be common.
    sandbox.git(&["update-ref", "-d", "refs/pull/7/head"]);
    sandbox.switch("change", Some(&first)).write("new.txt", "new\n").commit("rewritten");
    sandbox.git(&["reflog", "expire", "--expire=now", "--all"]);
    sandbox.git(&["gc", "-q", "--prune=now"]);
    let after = repository.fetch(&request(&url, &wants, &tips(&before))).unwrap();
    assert_eq!(after.packs[0].objects, 3);
}

#[test]
fn a_commit_is_fetched_by_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, _) = forge(dir.path());
    let change = sandbox.rev("change");
    let server = Server::start(dir.path(), Behaviour::Open);
    let mut repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
    let wants = [Want::Commit(change.clone())];
    let fetched =
        repository.fetch(&request(&format!("{}/name/.git", server.url), &wants, &[])).unwrap();
    assert_eq!((fetched.refs.len(), fetched.packs.len()), (0, 1));
    assert!(repository.has(&change));
}

#[test]
fn refs_are_listed_by_prefix_with_the_commit_of_a_tag() {
    let dir = tempfile::tempdir().unwrap();
    let (_, first) = forge(dir.path());
    for behaviour in [Behaviour::Open, Behaviour::Old] {
        let server = Server::start(dir.path(), behaviour);
        let repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
        let url = format!("{}/name/.git", server.url);
        let refs = repository
            .ls_refs(&url, None, &["refs/tags/", "refs/heads/m"], FetchLimits::default())
            .unwrap();
        let names: Vec<&str> = refs.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["refs/heads/main", "refs/tags/v1"]);
        assert_eq!((refs[0].commit(), refs[1].commit()), (&first, &first));
        assert_ne!(refs[1].target, first);
    }
}

/// Z4.3: a ref is found by its full name and counts once, however many refs share its prefix.
#[test]
fn a_ref_is_found_by_its_full_name_among_many_with_its_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, first) = forge(dir.path());
    for more in ["1", "2", "3"] {
        sandbox.git(&["tag", &format!("v1.{more}"), "main"]);
        sandbox.git(&["branch", &format!("main-{more}"), "main"]);
    }
    let few = FetchLimits { refs_max: 1, ..FetchLimits::default() };
    for behaviour in [Behaviour::Open, Behaviour::Old] {
        let server = Server::start(dir.path(), behaviour);
        let mut repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
        let url = format!("{}/name/.git", server.url);
        let found = repository.ls_ref(&url, None, "refs/tags/v1", few).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.commit()), ("refs/tags/v1", &first));
        assert_eq!(repository.ls_ref(&url, None, "refs/tags/v", few).unwrap(), None);
        let wants = want_refs(&["refs/heads/main"]);
        let fetched =
            repository.fetch(&FetchRequest { limits: few, ..request(&url, &wants, &[]) }).unwrap();
        assert_eq!(tips(&fetched), std::slice::from_ref(&first));
    }
}

/// Z2.2: the forge decides which branch is the default.
#[test]
fn the_head_of_a_repository_names_its_default_branch() {
    let dir = tempfile::tempdir().unwrap();
    forge(dir.path());
    for behaviour in [Behaviour::Open, Behaviour::Old] {
        let server = Server::start(dir.path(), behaviour);
        let repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
        let url = format!("{}/name/.git", server.url);
        let refs = repository
            .ls_refs(&url, None, &["HEAD", "refs/heads/"], FetchLimits::default())
            .unwrap();
        let head = refs.iter().find(|found| found.name == "HEAD").expect("HEAD is listed");
        assert_eq!(head.leads_to.as_deref(), Some("refs/heads/main"));
        let others = refs.iter().filter(|found| found.name != "HEAD");
        assert!(others.into_iter().all(|found| found.leads_to.is_none()));
    }
}

#[test]
fn a_server_with_the_old_protocol_works() {
    let dir = tempfile::tempdir().unwrap();
    let (sandbox, _) = forge(dir.path());
    let server = Server::start(dir.path(), Behaviour::Old);
    let url = format!("{}/name/.git", server.url);
    let mut repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
    let wants = want_refs(&["refs/heads/main"]);
    let first = repository.fetch(&request(&url, &wants, &[])).unwrap();
    let new = sandbox.write("new.txt", "new\n").commit("two");
    let second = repository.fetch(&request(&url, &wants, &tips(&first))).unwrap();
    assert_eq!(second.packs[0].objects, 3);
    assert!(repository.has(&new));
}

#[test]
fn the_credential_is_sent_in_a_header_and_never_printed() {
    let dir = tempfile::tempdir().unwrap();
    let _forge = forge(dir.path());
    let server = Server::start(dir.path(), Behaviour::Guarded("x-access-token", "s3cret"));
    let url = format!("{}/name/.git", server.url);
    let mut repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
    let wants = want_refs(&["refs/heads/main"]);
    let good = Credential::token("s3cret");
    repository
        .fetch(&FetchRequest { credential: Some(&good), ..request(&url, &wants, &[]) })
        .unwrap();
    let seen = server.seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 3, "refs are announced, listed, and a pack is sent: {seen:?}");
    assert!(seen.iter().all(|(line, header)| header.is_some() && !line.contains("s3cret")));
    assert_eq!(format!("{good:?}"), "Credential(not shown)");

    for credential in [None, Some(&Credential::token("wr0ng"))] {
        let denied = repository
            .fetch(&FetchRequest { credential, ..request(&url, &wants, &[]) })
            .unwrap_err();
        assert!(matches!(denied, FetchError::Denied { .. }), "{denied:?}");
        assert!(!format!("{denied:?} {denied}").contains("wr0ng"));
    }
    for address in [
        format!("http://user:s3cret@{}/name", &server.url[7..]),
        "ftp://forge.example/name".to_owned(),
        "/srv/name".to_owned(),
    ] {
        let refused = repository.fetch(&request(&address, &wants, &[])).unwrap_err();
        assert!(matches!(refused, FetchError::Address { .. }), "{refused:?}");
        assert!(!format!("{refused:?} {refused}").contains("s3cret"));
    }
    let plain = FetchRequest {
        credential: Some(&good),
        ..request("http://forge.example/name", &wants, &[])
    };
    assert!(matches!(repository.fetch(&plain), Err(FetchError::Address { .. })));
}

#[test]
fn a_redirect_is_followed_and_other_hosts_get_no_credential() {
    let dir = tempfile::tempdir().unwrap();
    let (_, first) = forge(dir.path());
    let now = Server::start(dir.path(), Behaviour::Open);
    let before = Server::start(dir.path(), Behaviour::Moved(now.url.clone()));
    let mut repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
    let (wants, secret) = (want_refs(&["refs/heads/main"]), Credential::token("s3cret"));
    let url = format!("{}/name/.git", before.url);
    let fetched = repository
        .fetch(&FetchRequest { credential: Some(&secret), ..request(&url, &wants, &[]) })
        .unwrap();
    assert_eq!(tips(&fetched), [first]);
    let (asked, seen) = (before.seen.lock().unwrap().clone(), now.seen.lock().unwrap().clone());
    assert!(
        asked.len() == 1 && asked[0].1.is_some(),
        "the first was asked once, with the credential: {asked:?}"
    );
    assert!(seen.len() == 3 && seen.iter().all(|(_, header)| header.is_none()), "{seen:?}");

    // A server that redirects to itself is given up.
    let circle = Server::start(dir.path(), Behaviour::Circle);
    let lost =
        repository.fetch(&request(&format!("{}/name/.git", circle.url), &wants, &[])).unwrap_err();
    assert!(
        matches!(lost, FetchError::Unavailable { ref detail, .. } if detail.contains("redirects more than")),
        "{lost:?}"
    );
}

#[test]
fn a_second_request_reuses_the_open_connection() {
    let dir = tempfile::tempdir().unwrap();
    let _forge = forge(dir.path());
    let server = Server::start(dir.path(), Behaviour::KeepAlive);
    let url = format!("{}/name/.git", server.url);
    for name in ["one", "two", "three", "four"] {
        let mut repository = Repository::open(&project(), &dir.path().join(name)).unwrap();
        repository.fetch(&request(&url, &want_refs(&["refs/heads/main"]), &[])).unwrap();
    }
    let (asked, made) =
        (server.seen.lock().unwrap().len(), server.connections.load(Ordering::Relaxed));
    assert_eq!(asked, 12);
    assert!(made <= 6, "{made} connections for {asked} requests");
}

#[test]
fn a_failure_shows_whether_a_retry_helps() {
    let dir = tempfile::tempdir().unwrap();
    let _forge = forge(dir.path());
    let server = Server::start(dir.path(), Behaviour::Open);
    let mut repository = Repository::open(&project(), &dir.path().join("here")).unwrap();
    let url = format!("{}/name/.git", server.url);
    let main = want_refs(&["refs/heads/main"]);

    let gone =
        repository.fetch(&request(&url, &want_refs(&["refs/pull/8/head"]), &[])).unwrap_err();
    assert!(
        matches!(gone, FetchError::Gone { ref wanted, .. } if wanted == "refs/pull/8/head"),
        "{gone:?}"
    );
    let unknown = [Want::Commit(Oid("12".repeat(20)))];
    let gone = repository.fetch(&request(&url, &unknown, &[])).unwrap_err();
    assert!(matches!(gone, FetchError::Gone { .. }), "{gone:?}");
    let nowhere = format!("{}/other/.git", server.url);
    let none = repository.fetch(&request(&nowhere, &main, &[])).unwrap_err();
    assert!(matches!(none, FetchError::NoRepository { .. }), "{none:?}");

    let small = FetchLimits { size_bytes: 2000, ..FetchLimits::default() };
    let large =
        repository.fetch(&FetchRequest { limits: small, ..request(&url, &main, &[]) }).unwrap_err();
    assert!(matches!(large, FetchError::TooLarge { limit_bytes: 2000, .. }), "{large:?}");
    assert_eq!(repository.packs().unwrap(), [], "a partial pack is not stored");

    let few = FetchLimits { refs_max: 1, ..FetchLimits::default() };
    let many = repository.ls_refs(&url, None, &["refs/"], few).unwrap_err();
    assert!(matches!(many, FetchError::TooManyRefs { limit: 1, .. }), "{many:?}");

    let silent = Server::start(dir.path(), Behaviour::Silent);
    let short = FetchLimits { timeout_seconds: 1, ..FetchLimits::default() };
    let url = format!("{}/name/.git", silent.url);
    let slow =
        repository.fetch(&FetchRequest { limits: short, ..request(&url, &main, &[]) }).unwrap_err();
    assert!(matches!(slow, FetchError::TimedOut { limit_seconds: 1, .. }), "{slow:?}");

    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away =
        repository.fetch(&request(&format!("http://{closed}/name"), &main, &[])).unwrap_err();
    assert!(matches!(away, FetchError::Unavailable { .. }), "{away:?}");
}

#[test]
fn a_local_merge_is_a_base_for_fetched_deltas_and_other_merges() {
    let dir = tempfile::tempdir().unwrap();
    let (_, first) = forge(dir.path());
    let server = Server::start(dir.path(), Behaviour::Open);
    let url = format!("{}/name/.git", server.url);
    let mut here = Repository::open(&project(), &dir.path().join("here")).unwrap();
    let fetched = here
        .fetch(&request(&url, &want_refs(&["refs/heads/main", "refs/pull/7/head"]), &[]))
        .unwrap();
    let theirs = fetched.refs[1].commit().clone();
    let merge = sluice_git::Merge {
        ours: &first,
        theirs: &theirs,
        mode: MergeMode::Merge,
        message: "Merge change 7",
    };
    let sluice_git::GitMergeOutcome::Merged(merged) = here.merge(merge).unwrap() else {
        panic!("they do not conflict")
    };
    let made = here.pack_missing_objects(std::slice::from_ref(&merged.commit.id)).unwrap().unwrap();
    assert_eq!(made.objects, 1, "the tree is the change's own, so only the commit is new");

    let mut there = Repository::open(&project(), &dir.path().join("there")).unwrap();
    for name in [&fetched.packs[0].name, &made.name] {
        let (pack, index) = carry(&here, name);
        there.add_pack(&pack, &index).unwrap();
    }
    assert_eq!(there.commit(&merged.commit.id).unwrap().commit, merged.commit);
    git_checks(&dir.path().join("there"), &[&merged.commit.id]);
}
