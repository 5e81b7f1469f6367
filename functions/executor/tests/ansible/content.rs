//! Roles: those that come with the executor, and those of repositories (Z7.7, Z4.6).

use crate::support::*;
use serde_json::json;
use sluice_model::build::BuildResult::*;

const PRE: &str =
    "- hosts: all\n  gather_facts: false\n  roles: [validate-host, prepare-workspace]\n";
const RUN: &str = "- hosts: all\n  gather_facts: false\n  roles:\n    - role: run-script\n      run_script: ./test.sh\n";
const POST: &str = "- hosts: all\n  gather_facts: false\n  roles: [archive-logs, fetch-output]\n";

/// Z7.7, Z4.6
#[tokio::test]
async fn a_first_job_is_a_few_lines() {
    let script = "#!/bin/sh\necho tests of $(basename $PWD)\nmkdir -p logs ~/zuul-output/logs\necho kept > logs/unit.txt\necho also > ~/zuul-output/logs/node.txt\n";
    let mut story = Story::new(&[
        (CONFIG, "playbooks/base/pre.yaml", PRE),
        (CONFIG, "playbooks/base/post.yaml", POST),
        (PROJECT, "playbooks/unit.yaml", RUN),
        (PROJECT, "test.sh", "#!/bin/sh\n"),
        (PROJECT, "test.sh", script),
    ])
    .with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("unit")];
    story.job.vars = vars(json!({ "run_script": "./test.sh" }));
    story.job.pre_run = vec![story.trusted("base/pre")];
    story.job.post_run = vec![story.trusted("base/post")];
    story.job.vars = vars(json!({}));
    // The script is not executable in the commit, so it is run by name.
    story.job.extra_vars = vars(json!({ "run_script": "sh ./test.sh" }));
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("one | tests of project"), "{}", outcome.log);
    assert_eq!(outcome.read("work/logs/logs/unit.txt"), "kept\n");
    assert_eq!(outcome.read("work/logs/node.txt"), "also\n");
    assert!(outcome.read("work/logs/zuul-info/zuul-info.one.txt").contains("Linux"));
}

/// Z4.6
#[tokio::test]
async fn roles_come_from_bare_repositories_collections_and_the_playbooks_own() {
    let play = "- hosts: localhost\n  gather_facts: false\n  roles: [greeter, many-a, own]\n";
    let mut story = Story::new(&[
        (PROJECT, "playbooks/roles.yaml", play),
        (PROJECT, "roles/own/tasks/main.yaml", "- debug: msg=own\n"),
    ]);
    let bare = story.role("forge.test/org/greeter", &[("tasks/main.yaml", "- debug: msg=bare\n")]);
    let many = story.role(
        "forge.test/org/collection",
        &[("roles/many-a/tasks/main.yaml", "- debug: msg=many\n")],
    );
    let mut own = bare.clone();
    (own.project, own.target_name, own.implicit) = (PROJECT.into(), "project".to_owned(), true);
    let mut playbook = untrusted("roles");
    playbook.roles = vec![own, bare, many];
    story.job.run = vec![playbook];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for text in ["ok: bare", "ok: many", "ok: own"] {
        assert!(outcome.log.contains(text), "{text}\n{}", outcome.log);
    }
}
