//! Projects at a plain git server: no webhook comes, so a poll finds what moved.

use super::judge;
use super::ref_updates::orders;
use bytes::Bytes;
use sluice_config::connection::Driver;
use sluice_memory::{Fate, poll_once};
use sluice_model::ProjectName;
use sluice_model::git::{BranchKey, Oid};
use sluice_model::wakeup::Wakeup;
use sluice_records::connection::{self, StoredConnection};
use sluice_records::delivery::{DeliveryRecord, DeliveryState};
use sluice_runtime::cell;
use sluice_runtime::object::PutMode;
use sluice_scenarios::Site;
use sluice_scenarios::repos::Tree;
use std::collections::BTreeMap;

const MAIN: &str = "
- tenant:
    name: demo
    source:
      github: {config-projects: [org/config]}
";

const WITH_LIBRARY: &str = "
- tenant:
    name: demo
    source:
      github: {config-projects: [org/config]}
      plain: {untrusted-projects: [org/lib]}
";

const CONFIG: &str = r"
- pipeline:
    name: post
    manager: independent
    post-review: true
    trigger: {plain: [{event: ref-updated, ref: ^refs/heads/.*$}]}
- pipeline:
    name: tag
    manager: independent
    trigger: {plain: [{event: ref-updated, ref: ^refs/tags/.*$, ignore-deletes: true}]}
- job: {name: base, parent: null}
- job: {name: publish, run: playbooks/publish.yaml}
";

const PROJECT: &str = "- project: {post: {jobs: [publish]}, tag: {jobs: [publish]}}\n";

fn library() -> ProjectName {
    ProjectName::new("git.test", "org/lib")
}

fn branch(name: &str) -> BranchKey {
    BranchKey { project: library(), branch: name.into() }
}

/// Returns files with this configuration.
fn files(configuration: &str) -> Tree {
    BTreeMap::from([(".zuul.yaml".to_owned(), configuration.to_owned())])
}

/// Commits files on top of the library's `main`, moves the branch there, and returns the commit.
fn push(site: &Site, tree: Tree, message: &str) -> Oid {
    let mut store = site.store.lock().unwrap();
    let parents = store.tip(&branch("main")).map(|tip| tip.id).into_iter().collect();
    let commit = store.commit(tree, parents, message);
    store.set(&branch("main"), &commit.id);
    commit.id
}

/// Returns a site whose tenant has a project at a plain git server that is polled each minute. No
/// poll has run yet.
fn site() -> Site {
    let mut site = Site::new(7, MAIN, &[("org/config", &[("zuul.yaml", CONFIG)])], judge);
    push(&site, files(PROJECT), "first");
    let ports = site.ports();
    let mut connections = poll_once(connection::load(&ports)).unwrap().unwrap();
    let github = connections.0[&"github".into()].clone();
    let plain = StoredConnection {
        driver: Driver::Git,
        canonical_hostname: "git.test".to_owned(),
        git_url: "https://git.test".to_owned(),
        login: None,
        webhook_secrets: Vec::new(),
        poll_minutes: Some(1),
        ..github
    };
    connections.0.insert("plain".into(), plain);
    let connections = serde_json::to_string(&connections).unwrap();
    for (name, text) in
        [(connection::OBJECT, connections), (connection::MAIN, WITH_LIBRARY.to_owned())]
    {
        let put =
            ports.objects.put(name, Bytes::from(text), PutMode::Always, "application/octet-stream");
        poll_once(put).unwrap().unwrap();
    }
    let wakeup = Wakeup::Tenant { tenant: "demo".into() };
    poll_once(cell::send(&ports, &[wakeup])).unwrap().unwrap();
    site.run_now();
    site
}

/// Returns the job, the ref and the commit of each build.
fn tested(site: &Site) -> Vec<(String, String, Oid)> {
    let of =
        |change: &sluice_model::change::ChangeRef| change.key.ref_move().unwrap().git_ref.clone();
    let orders = orders(site).into_iter();
    orders.map(|(order, _)| (order.job.to_string(), of(&order.change), order.change.head)).collect()
}

fn published(git_ref: &str, commit: &Oid) -> (String, String, Oid) {
    ("publish".to_owned(), git_ref.to_owned(), commit.clone())
}

/// Z6.1, C5: a commit at a plain git server is found by the poll and triggers the pipeline once.
#[test]
fn a_commit_at_a_plain_git_server_is_found_and_tested_once() {
    let mut site = site();
    site.pass(60);
    assert_eq!(tested(&site), [], "what was there at the first poll is not new");
    let commit = push(&site, files(&format!("{PROJECT}# more\n")), "second");
    for _ in 0..3 {
        site.pass(60);
        assert_eq!(tested(&site), [published("refs/heads/main", &commit)]);
    }
}

/// Z2.4, C5: the tenant reads the configuration that was pushed, and it counts for its own push.
#[test]
fn configuration_at_a_plain_git_server_is_read_again_after_a_push() {
    let mut site = site();
    site.pass(60);
    let configuration = "
- job: {name: lint, run: playbooks/lint.yaml}
- project: {post: {jobs: [lint]}}
";
    let commit = push(&site, files(configuration), "lint");
    site.pass(60);
    assert_eq!(tested(&site), [("lint".to_owned(), "refs/heads/main".to_owned(), commit)]);
}

/// C5: a commit between the tenant's reading and the first poll is not lost.
#[test]
fn a_commit_before_the_first_poll_is_found() {
    let mut site = site();
    let commit = push(&site, files(&format!("{PROJECT}# more\n")), "second");
    site.pass(60);
    assert_eq!(tested(&site), [published("refs/heads/main", &commit)]);
}

/// Z6.1: tags trigger, deleted refs do not unless the trigger says so, and a new branch does.
#[test]
fn tags_and_new_branches_trigger_and_deleted_refs_do_not() {
    let mut site = site();
    site.pass(60);
    let commit = site.store.lock().unwrap().tip(&branch("main")).unwrap().id;
    site.store.lock().unwrap().set_tag(&library(), "1.0", &commit);
    site.store.lock().unwrap().set(&branch("next"), &commit);
    site.pass(60);
    let all = [published("refs/heads/next", &commit), published("refs/tags/1.0", &commit)];
    let mut found = tested(&site);
    found.sort();
    assert_eq!(found, all);
    site.store.lock().unwrap().delete_tag(&library(), "1.0");
    site.store.lock().unwrap().delete(&branch("next"));
    site.pass(60);
    assert_eq!(tested(&site).len(), 2);
    site.store.lock().unwrap().set_tag(&library(), "1.0", &commit);
    site.pass(60);
    assert_eq!(tested(&site).len(), 3, "the tag was seen to be deleted");
}

/// C2, C5: many refs are found in several polls, each once, and no record lists them.
#[test]
fn many_refs_are_found_in_several_polls_and_listed_in_no_record() {
    let mut site = site();
    site.pass(60);
    let commit = site.store.lock().unwrap().tip(&branch("main")).unwrap().id;
    for number in 0..45 {
        site.store.lock().unwrap().set_tag(&library(), &format!("v{number}"), &commit);
    }
    for _ in 0..5 {
        site.pass(60);
    }
    let mut refs: Vec<String> = tested(&site).into_iter().map(|(_, git_ref, _)| git_ref).collect();
    assert_eq!(refs.len(), 45);
    refs.sort();
    refs.dedup();
    assert_eq!(refs.len(), 45, "each once");
    let records = site.world.records();
    let seen: Vec<_> = records.iter().filter(|one| one.key.sort.starts_with("seen#")).collect();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].body.len() < 300, "{}", seen[0].body);
    let lists = site.world.object_keys();
    let lists = lists.iter().filter(|key| key.starts_with("refs/")).count();
    assert!(lists <= 2, "{lists} lists are kept");
}

/// C5: while the server does not have the repository, the poll fails with the reason, and the next
/// one finds what moved.
#[test]
fn a_server_that_refuses_is_polled_again() {
    let mut site = site();
    site.pass(60);
    site.store.lock().unwrap().hide_project(&library());
    let commit = push(&site, files(&format!("{PROJECT}# more\n")), "second");
    site.pass(60);
    let records = site.world.records();
    let failed = records.iter().filter(|one| one.key.partition.starts_with("delivery#"));
    let failed = failed.filter_map(|one| serde_json::from_str::<DeliveryRecord>(&one.body).ok());
    let why: Vec<String> = failed
        .filter_map(|one| match one.state {
            DeliveryState::Failed { why, .. } => Some(why),
            _ => None,
        })
        .collect();
    assert!(why.iter().any(|why| why.contains("could not read the refs of")), "{why:?}");
    assert_eq!(tested(&site), []);
    site.store.lock().unwrap().show_project(&library());
    site.pass(60);
    assert_eq!(tested(&site), [published("refs/heads/main", &commit)]);
}

/// Returns the tip of the library's `main`.
fn tip(site: &Site) -> Oid {
    site.store.lock().unwrap().tip(&branch("main")).unwrap().id
}

/// C5: the refs are listed once for each poll, however many moved; each push reads one ref.
#[test]
fn the_refs_are_listed_once_in_a_poll() {
    let mut site = site();
    site.pass(60);
    let commit = tip(&site);
    for number in 0..5 {
        site.store.lock().unwrap().set_tag(&library(), &format!("v{number}"), &commit);
    }
    let before = site.store.lock().unwrap().lists_read;
    site.pass(60);
    assert_eq!(tested(&site).len(), 5);
    assert_eq!(site.store.lock().unwrap().lists_read, before + 1);
}

/// C5: a server that lists its refs and is then too slow does not hold a push back.
#[test]
fn a_push_is_tested_as_the_poll_saw_it_if_the_server_is_slow() {
    let mut site = site();
    site.pass(60);
    site.store.lock().unwrap().is_silent_about_refs = true;
    let commit = push(&site, files(&format!("{PROJECT}# more\n")), "second");
    site.pass(60);
    assert_eq!(tested(&site), [published("refs/heads/main", &commit)]);
}

/// C5: tags that were made while the project was not polled, since no tenant had it, are not new.
#[test]
fn tags_of_the_days_without_polls_are_not_new() {
    let mut site = site();
    site.pass(60);
    let commit = tip(&site);
    site.store.lock().unwrap().set_tag(&library(), "1.0", &commit);
    site.pass(3 * 86_400);
    assert_eq!(tested(&site), []);
    site.store.lock().unwrap().set_tag(&library(), "2.0", &commit);
    site.pass(60);
    assert_eq!(tested(&site), [published("refs/tags/2.0", &commit)]);
}

/// C5: tags that were made while the server did not answer are found afterwards.
#[test]
fn tags_of_the_days_without_an_answer_are_found() {
    let mut site = site();
    site.pass(60);
    let commit = tip(&site);
    site.store.lock().unwrap().hide_project(&library());
    site.store.lock().unwrap().set_tag(&library(), "1.0", &commit);
    for _ in 0..4 {
        site.pass(86_400);
    }
    assert_eq!(tested(&site), []);
    site.store.lock().unwrap().show_project(&library());
    site.pass(60);
    assert_eq!(tested(&site), [published("refs/tags/1.0", &commit)]);
}

/// C5: of a repository with too many refs the branches are polled, and its record says so. The tags
/// that were not seen meanwhile are not new.
#[test]
fn branches_alone_are_polled_where_refs_are_too_many() {
    let mut site = site();
    site.pass(60);
    let commit = tip(&site);
    for number in 0..4 {
        site.store.lock().unwrap().set_tag(&library(), &format!("v{number}"), &commit);
    }
    site.store.lock().unwrap().refs_max = Some(3);
    let moved = push(&site, files(&format!("{PROJECT}# more\n")), "second");
    site.pass(60);
    assert_eq!(tested(&site), [published("refs/heads/main", &moved)]);
    let records = site.world.records();
    let seen = records.iter().find(|one| one.key.sort.starts_with("seen#")).unwrap();
    assert!(seen.body.contains("tags of git.test/org/lib are not polled"), "{}", seen.body);
    site.store.lock().unwrap().refs_max = None;
    site.pass(60);
    assert_eq!(tested(&site).len(), 1);
    site.store.lock().unwrap().set_tag(&library(), "v4", &commit);
    site.pass(60);
    assert_eq!(tested(&site)[1..], [published("refs/tags/v4", &commit)]);
}

/// C5: many new branches do not delay a push to an existing one.
#[test]
fn a_push_to_an_existing_branch_comes_before_new_branches() {
    let mut site = site();
    site.pass(60);
    let commit = push(&site, files(&format!("{PROJECT}# more\n")), "second");
    for number in 10..40 {
        site.store.lock().unwrap().set(&branch(&format!("a{number}")), &commit);
    }
    site.pass(60);
    let tested = tested(&site);
    assert!(tested.contains(&published("refs/heads/main", &commit)), "{tested:?}");
}

/// C5: wherever a function stops or a call fails, the commit is tested once.
#[test]
fn a_commit_is_tested_once_wherever_the_poll_is_cut_off() {
    let fates = [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsBefore, Fate::FailsAfter];
    for step in 0..24 {
        for fate in fates {
            let mut site = site();
            site.pass(60);
            let commit = push(&site, files(&format!("{PROJECT}# more\n")), "second");
            site.set_fate(step, fate);
            for _ in 0..4 {
                site.pass(60);
            }
            let expected = [published("refs/heads/main", &commit)];
            assert_eq!(tested(&site), expected, "step {step} {fate:?}");
        }
    }
}
