//! Secrets: which playbooks of a build get which ones, decrypted as by an executor.

use super::{CONFIG, MAIN, comments, judge, merged, ordered, propose};
use sluice_executor::secrets::ProjectKeys;
use sluice_keys::ProjectKey;
use sluice_memory::poll_once;
use sluice_model::ProjectName;
use sluice_model::change::ChangeKey;
use sluice_model::git::BranchKey;
use sluice_model::job::Playbook;
use sluice_records::project_key::{self, KeyPairPem};
use sluice_scenarios::Site;
use std::sync::OnceLock;

/// Returns a key pair that all tests share, because its generation takes seconds.
fn pair() -> &'static ProjectKey {
    static PAIR: OnceLock<ProjectKey> = OnceLock::new();
    PAIR.get_or_init(|| ProjectKey::generate().unwrap())
}

/// Returns a secret stanza whose only value, `word`, is encrypted for the pair.
fn secret(name: &str, word: &str) -> String {
    let hidden =
        pair().public().encrypt(word.as_bytes()).unwrap().to_string().replace('\n', "\n        ");
    format!("- secret:\n    name: {name}\n    data:\n      word: {hidden}\n")
}

/// Stores the key pair for these projects.
fn store_keys(site: &Site, projects: &[&str]) {
    for project in projects {
        store_key(site, project, pair());
    }
}

/// Stores a key pair for a project.
fn store_key(site: &Site, project: &str, pair: &ProjectKey) {
    let (private, public) = (pair.to_pem().unwrap(), pair.public().to_pem().unwrap());
    let pem = KeyPairPem { private: private.expose(), public: &public };
    let name = ProjectName::new("forge.test", project);
    poll_once(project_key::store(&site.ports(), &"github".into(), &name, pem)).unwrap().unwrap();
}

/// Returns the playbooks of a build in the order they run, each with the names and decrypted values
/// of its secrets.
fn visible_secrets(site: &Site, job: &str, change: u64) -> Vec<String> {
    let (_, frozen) = ordered(site, job, change);
    let opened = poll_once(ProjectKeys::new(site.ports()).open(&frozen)).unwrap().unwrap();
    let all = frozen.pre_run.iter().chain(&frozen.run).chain(&frozen.post_run);
    let line = |playbook: &Playbook| {
        let secrets = playbook.secrets.iter().map(|(name, secret)| {
            let word = opened.get(secret).and_then(|plain| plain["word"].as_str());
            format!(" {name}={}", word.unwrap_or("closed"))
        });
        format!("{}{}", playbook.path, secrets.collect::<String>())
    };
    all.map(line).collect()
}

/// Approves a change and runs the site to the end.
fn enter(site: &mut Site, change: &ChangeKey) {
    site.run();
    site.forge.approve(change);
    site.run();
}

/// X01, X03, Z5.3, Z5.5: a secret reaches the playbooks of the job definition that lists it. A
/// child job in the config project or in an untrusted project does not get it, and the base job's
/// playbooks keep their own.
#[test]
fn a_secret_reaches_only_the_playbooks_of_the_definition_that_lists_it() {
    let jobs = "
- job: {name: base, parent: null, secrets: of-base, pre-run: base-pre.yaml, post-run: base-post.yaml}
- job: {name: top, secrets: [{name: login, secret: of-top}], pre-run: top-pre.yaml, run: top.yaml}
- job: {name: trusted-child, parent: top, pre-run: child-pre.yaml, run: child.yaml}
- project: {name: org/config, gate: {jobs: [top, trusted-child, untrusted-child]}}
";
    let pipelines = CONFIG.split("- job:").next().unwrap();
    let config =
        format!("{pipelines}{}{}{jobs}", secret("of-base", "keep"), secret("of-top", "hush"));
    let child =
        "- job: {name: untrusted-child, parent: top, run: own.yaml, post-run: own-post.yaml}\n";
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", &config)]), ("org/one", &[(".zuul.yaml", child)])];
    let mut site = Site::new(7, MAIN, repositories, judge);
    store_keys(&site, &["org/config", "org/one"]);
    let change = site.forge.propose("org/config", 1, "a change", "", &[("README", "x")]);
    enter(&mut site, &change);
    assert_eq!(site.builds(), ["gate top 1", "gate trusted-child 1", "gate untrusted-child 1"]);
    assert_eq!(merged(&site), [1]);
    let base = ["base-pre.yaml of-base=keep", "base-post.yaml of-base=keep"];
    let of = |own: &[&str]| {
        let own = own.iter().map(|line| (*line).to_owned());
        std::iter::once(base[0].to_owned())
            .chain(own)
            .chain([base[1].to_owned()])
            .collect::<Vec<_>>()
    };
    assert_eq!(
        visible_secrets(&site, "top", 1),
        of(&["top-pre.yaml login=hush", "top.yaml login=hush"])
    );
    assert_eq!(
        visible_secrets(&site, "trusted-child", 1),
        of(&["top-pre.yaml login=hush", "child-pre.yaml", "child.yaml"]),
        "the parent's playbook keeps its secret; the child's playbooks get none"
    );
    assert_eq!(
        visible_secrets(&site, "untrusted-child", 1),
        of(&["top-pre.yaml login=hush", "own.yaml", "own-post.yaml"])
    );
    // No record contains a decrypted value.
    let has_word = |text: &str| text.contains("hush") || text.contains("keep");
    assert!(!site.world.records().iter().any(|record| has_word(&record.body)));
}

/// X01, X10, Z4.4, Z5.3: a proposed change gets no secret before review: not for a parent that a
/// config project's job passes it to, not for a child that inherits it, and not for a job that
/// bypasses the base job.
#[test]
fn a_proposed_playbook_sees_no_secret_before_review() {
    let jobs = "
- job: {name: base, parent: null}
- job: {name: top, auth: {inherit: true, secrets: [key]}, run: top.yaml}
- job: {name: publish, parent: lib, secrets: [{name: key, secret: key, pass-to-parent: true}]}
";
    let pipelines = CONFIG.split("- job:").next().unwrap();
    let config = format!("{pipelines}{}{jobs}", secret("key", "hush"));
    let lib = "- job: {name: lib, run: lib.yaml}\n";
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", &config)]), ("org/one", &[(".zuul.yaml", lib)])];
    let mut site = Site::new(7, MAIN, repositories, judge);
    store_keys(&site, &["org/config", "org/one"]);
    let rows = [
        ("publish", "", "does not allow post-review job publish"),
        (
            "child",
            "- job: {name: child, parent: top, run: own.yaml}\n",
            "does not allow post-review job child",
        ),
        ("top: {post-run: own.yaml}", "", "does not allow post-review job top"),
        ("loop", "- job: {name: loop, parent: loop, run: own.yaml}\n", "Dependency cycle detected"),
    ];
    for (number, (entry, job, error)) in (1..).zip(rows) {
        let text = format!("{lib}{job}- project: {{check: {{jobs: [{entry}]}}}}\n");
        let change = propose(&site, number, &[(".zuul.yaml", &text), ("own.yaml", "mine")]);
        site.run();
        assert!(comments(&site, &change).contains(error), "{entry}: {}", comments(&site, &change));
    }
    assert_eq!(site.builds(), Vec::<String>::new());
}

/// Z4.4, Z5.3, Z5.5: after review a secret that a job passes to its parent is decrypted for the
/// parent's playbook in another project. So is a secret that a child in another project inherits.
#[test]
fn a_secret_is_decrypted_for_a_parent_it_is_passed_to_and_a_child_that_inherits_it() {
    let jobs = "
- job: {name: base, parent: null}
- job: {name: top, auth: {inherit: true, secrets: [key]}}
- job: {name: publish, parent: lib, secrets: [{name: key, secret: key, pass-to-parent: true}]}
- project: {name: org/config, gate: {jobs: [publish, child]}}
";
    let pipelines = CONFIG.split("- job:").next().unwrap();
    let config = format!("{pipelines}{}{jobs}", secret("key", "hush"));
    let theirs =
        "- job: {name: lib, run: lib.yaml}\n- job: {name: child, parent: top, run: own.yaml}\n";
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", &config)]), ("org/one", &[(".zuul.yaml", theirs)])];
    let mut site = Site::new(7, MAIN, repositories, judge);
    store_keys(&site, &["org/config"]);
    let change = site.forge.propose("org/config", 1, "a change", "", &[("README", "x")]);
    enter(&mut site, &change);
    assert_eq!(merged(&site), [1], "{}", comments(&site, &change));
    assert_eq!(visible_secrets(&site, "publish", 1), ["lib.yaml key=hush"]);
    assert_eq!(visible_secrets(&site, "child", 1), ["own.yaml key=hush"]);
}

/// X05, Z5.3: a secret on one branch of a project is decrypted for a job on another branch. A copy
/// in another project is not decrypted.
#[test]
fn a_secret_of_one_branch_is_decrypted_for_a_job_on_another() {
    let own = secret("key", "hush");
    let job = "- job: {name: publish, run: publish.yaml, secrets: key}\n- project: {gate: {jobs: [publish]}}\n";
    let pipelines = CONFIG.split("- job:").next().unwrap();
    let config = format!("{pipelines}- job: {{name: base, parent: null}}\n");
    let copy = own.replace("name: key", "name: taken")
        + &job.replace("publish", "copied").replace("key", "taken");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", &own)]),
        ("org/two", &[(".zuul.yaml", &copy)]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    store_keys(&site, &["org/one"]);
    store_key(&site, "org/two", &ProjectKey::generate().unwrap());
    let stable =
        BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: "stable".into() };
    site.forge.push(&stable, &[(".zuul.yaml", job)]);
    site.run();
    let change = site.forge.propose_on("org/one", "stable", 1, "a change", "", &[("a", "x")]);
    enter(&mut site, &change);
    assert_eq!((site.builds(), merged(&site)), (vec!["gate publish 1".to_owned()], vec![1]));
    assert_eq!(visible_secrets(&site, "publish", 1), ["publish.yaml key=hush"]);
    let copied = site.forge.propose("org/two", 2, "a change", "", &[("a", "x")]);
    enter(&mut site, &copied);
    assert_eq!(visible_secrets(&site, "copied", 2), ["copied.yaml taken=closed"]);
}
