//! Roles: those that come with the executor, and those of repositories (Z7.7, Z4.6).

use crate::support::*;
use serde_json::json;
use sluice_model::build::BuildResult::*;
use sluice_model::job::{RoleUse, Tristate, WorkspaceCheckout, WorkspaceScheme};

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

/// Z4.3, Z7.2: `workspace-checkout: false` saves the files on the executor, not on the nodes, and
/// `workspace` chooses the directory there.
#[tokio::test]
async fn nodes_have_the_files_of_a_workspace_that_the_executor_does_not_check_out() {
    let look = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - command: ls -A {{ zuul.executor.work_root }}/{{ zuul.project.src_dir }}\n";
    let mut story = Story::new(&[
        (CONFIG, "playbooks/base/pre.yaml", PRE),
        (PROJECT, "look.yaml", look),
        (PROJECT, "playbooks/unit.yaml", RUN),
        (PROJECT, "tests.sh", "echo tests in $PWD\n"),
    ])
    .with_nodes(&["one"], &[]);
    let workspace = story.nodes[0].home().join("a workspace").display().to_string();
    story.job.run_time.workspace = Some(workspace.clone());
    story.job.run_time.workspace_checkout = WorkspaceCheckout(Tristate::Auto);
    story.job.pre_run = vec![story.trusted("base/pre")];
    story.job.run = vec![untrusted("look"), untrusted("unit")];
    story.job.extra_vars = vars(json!({ "run_script": "sh ./tests.sh" }));
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("localhost | .git\n"), "{}", outcome.log);
    let place = format!("one | tests in {workspace}/src/{PROJECT}");
    assert!(outcome.log.contains(&place), "{place}\n{}", outcome.log);
}

/// Z4.3: two repositories of one directory are an error of the job, which another attempt would
/// not mend.
#[tokio::test]
async fn repositories_with_the_same_directory_are_a_configuration_error() {
    let mut story = Story::new(&[(PROJECT, "here.yaml", "- hosts: localhost\n")]);
    story.job.run = vec![untrusted("here")];
    story.job.workspace_scheme = WorkspaceScheme::Flat;
    story.ahead("forge.test/other/project");
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, ConfigError, "{}", outcome.log);
    let detail = outcome.ended.detail.as_deref().unwrap();
    for part in [PROJECT, "forge.test/other/project", "src/project", "workspace-scheme"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
}

/// Z4.3: one repository lies within another with the scheme `golang`, unless files are there.
#[tokio::test]
async fn a_repository_within_another_is_refused_only_if_files_are_there() {
    for (file, expected) in [("unrelated.txt", Success), ("nested/file.txt", ConfigError)] {
        let look = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - command: cat README\n      args: {chdir: '{{ zuul.executor.work_root }}/src/forge.test/org/project/nested'}\n";
        let mut story = Story::new(&[(PROJECT, "look.yaml", look), (PROJECT, file, "text\n")]);
        story.job.run = vec![untrusted("look")];
        story.ahead(&format!("{PROJECT}/nested"));
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, expected, "{file}: {}", outcome.log);
    }
}

/// Z7.5: a repository cannot lead the checkout of another one out of the workspace.
#[tokio::test]
async fn a_repository_is_not_checked_out_through_a_link_of_another_one() {
    let mut story = Story::new(&[(PROJECT, "look.yaml", "[]")]);
    story.put_link("nested", "../../../../../homes/trusted/ansible");
    story.job.run = vec![untrusted("look")];
    story.ahead(&format!("{PROJECT}/nested"));
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, ConfigError, "{}", outcome.log);
    let detail = outcome.ended.detail.as_deref().unwrap();
    assert!(detail.contains("src/forge.test/org/project/nested, a link of"), "{detail}");
}

/// Z4.3, Z7.5: files that a playbook leaves in the home directory on the executor may change what
/// later playbooks do.
#[tokio::test]
async fn files_left_in_the_home_directory_are_warned_of_unless_the_job_lists_them() {
    let leave = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - shell: mkdir -p ~/.cache && touch ~/.gitconfig ~/.cache/file\n";
    let here = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=here\n";
    let mut story = Story::new(&[(PROJECT, "leave.yaml", leave), (PROJECT, "here.yaml", here)]);
    let mut later = untrusted("here");
    later.preserve_home_paths = vec![".cache".to_owned()];
    story.job.run = vec![untrusted("leave"), later];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let warnings = outcome.ended.data["zuul"]["warnings"].as_array().unwrap();
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let warning = warning.as_str().unwrap();
    assert!(warning.contains("later playbooks read: .gitconfig."), "{warning}");
    assert!(warning.contains("preserve-home-paths"), "{warning}");
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
    playbook.roles = [own, bare, many].map(RoleUse::from).to_vec();
    story.job.run = vec![playbook];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for text in ["ok: bare", "ok: many", "ok: own"] {
        assert!(outcome.log.contains(text), "{text}\n{}", outcome.log);
    }
}

/// S01, X07, Z4.6, Z7.5: a role that an unmerged dependency changes is used by untrusted playbooks,
/// and by no trusted one.
#[tokio::test]
async fn a_role_changed_in_an_unmerged_dependency_is_used_by_untrusted_playbooks_only() {
    let play = "- hosts: localhost\n  gather_facts: false\n  roles: [greeter]\n";
    let mut story = Story::new(&[(PROJECT, "greet.yaml", play), (CONFIG, "greet.yaml", play)]);
    let says = |what: &str| format!("- debug: msg=\"{what} {{{{ zuul_execution_trusted }}}}\"\n");
    let (merged, proposed) = (says("merged"), says("proposed"));
    let role = story.role_changed_ahead(
        "forge.test/org/greeter",
        &[("tasks/main.yaml", &merged)],
        &[("tasks/main.yaml", &proposed)],
    );
    let (mut own, mut trusted) = (untrusted("greet"), story.trusted("greet"));
    own.roles = vec![role.clone().into()];
    trusted.roles = vec![role.into()];
    story.job.run = vec![own, trusted];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for said in ["ok: proposed False", "ok: merged True"] {
        assert!(outcome.log.contains(said), "{said}\n{}", outcome.log);
    }
    assert!(!outcome.log.contains("proposed True"), "{}", outcome.log);
}
