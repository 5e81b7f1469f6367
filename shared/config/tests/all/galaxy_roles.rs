//! Roles that `ansible-galaxy` installs: which playbooks see them, and which are refused (Z4.6).

use crate::common::*;
use sluice_config::FreezeInput;
use sluice_model::job::{Playbook, RoleUse};

/// Returns the roles of a playbook in their order: the name of a repository, or what is installed
/// with its directory and the project that lists it.
fn roles(playbook: &Playbook) -> Vec<String> {
    let role = |role: &RoleUse| match role {
        RoleUse::Zuul(role) => role.target_name.clone(),
        RoleUse::Galaxy(role) => {
            let directory = role.target_name.as_deref().unwrap_or_default();
            format!("{} {directory} {}", role.galaxy, role.project.name())
        }
    };
    playbook.roles.iter().map(role).collect()
}

/// Z4.6: roles of both kinds are frozen for each playbook, in one order: a child's playbooks see
/// the child's roles before its parent's, the parent's playbooks see the parent's only.
#[test]
fn playbooks_see_the_roles_of_their_own_definition_and_of_its_parents() {
    let config = format!(
        "{BASE}- job: {{name: top, pre-run: p, roles: [{{galaxy: 'a.b,1.0'}}, {{zuul: org/project1}}, {{galaxy: a.b, name: b}}]}}\n"
    );
    let own = "- job: {name: test, parent: top, run: r, roles: [{galaxy: c.d}, {galaxy: 'a.b,1.0'}]}\n- project: {check: {jobs: [test]}}\n";
    let layout = tenant().file("org/config", &config).file("org/project", own).sound();
    let graph =
        layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).unwrap();
    let job = job(&graph, "test");
    let of_config =
        ["config", "a.b,1.0  org/config", "project1", "a.b b org/config"].map(str::to_owned);
    let mut of_child =
        vec!["project".to_owned(), "c.d  org/project".into(), "a.b,1.0  org/project".into()];
    of_child.extend(of_config.clone());
    assert_eq!(roles(&job.run[0]), of_child);
    assert_eq!(roles(&job.pre_run[1]), of_config);
    assert_eq!(roles(&job.pre_run[0]), ["config"], "the base job lists none");
}

/// Z4.6: a definition and an entry that list a role again have it once.
#[test]
fn a_role_that_a_project_lists_twice_is_there_once() {
    let config = format!(
        "{BASE}- job: {{name: test, run: r, roles: [{{galaxy: a.b}}]}}\n- job: {{name: test, run: s, roles: [{{galaxy: a.b}}, {{galaxy: c.d}}]}}\n- project: {{name: org/project, check: {{jobs: [test]}}}}\n"
    );
    let layout = tenant().file("org/config", &config).sound();
    let graph =
        layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).unwrap();
    let found = roles(&job(&graph, "test").run[0]);
    assert_eq!(found, ["config", "a.b  org/config", "c.d  org/config"]);
}

/// Z4.6, Z7.5, X01: what an untrusted project lets the executor install never runs with the rights
/// of a config project, also where a config project's job inherits from an untrusted one.
#[test]
fn a_role_that_an_untrusted_project_lists_reaches_no_trusted_playbook() {
    let own = "- job: {name: middle, parent: base, run: m, roles: [{galaxy: evil.role}]}\n";
    let config = format!(
        "{BASE}- job: {{name: test, parent: middle, run: r, post-run: q, roles: [{{galaxy: good.role}}]}}\n- project: {{name: org/project, check: {{jobs: [test, middle]}}}}\n"
    );
    let layout = tenant().file("org/config", &config).file("org/project", own).sound();
    let graph =
        layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).unwrap();
    let test = job(&graph, "test");
    let playbooks = || test.pre_run.iter().chain(&test.run).chain(&test.post_run);
    assert!(playbooks().all(|playbook| playbook.trusted));
    assert!(roles(&test.run[0]).contains(&"good.role  org/config".to_owned()));
    for playbook in playbooks() {
        assert!(!roles(playbook).concat().contains("evil"), "{playbook:?}");
    }
    let middle = job(&graph, "middle");
    assert!(roles(&middle.run[0]).contains(&"evil.role  org/project".to_owned()));
}

/// Z4.6, X01: what must not be installed is an error at its place, in definitions and in entries,
/// also where a change proposes it.
#[test]
fn a_role_that_must_not_be_installed_is_a_configuration_error_at_its_place() {
    for (role, part) in [
        ("{galaxy: 'file:///etc/passwd'}", "only https:// and http:// addresses"),
        ("{galaxy: 'git+ext::sh -c id'}", "only https:// and http:// addresses"),
        ("{galaxy: 'git@forge.test:org/role.git'}", "only https:// and http:// addresses"),
        ("{galaxy: 'ssh://10.0.0.1/role'}", "only https:// and http:// addresses"),
        ("{galaxy: /opt/roles/own}", "neither namespace.role nor an address"),
        ("{galaxy: --server=x.y}", "neither namespace.role nor an address"),
        ("{galaxy: 'a.b,-x'}", "its version"),
        ("{galaxy: a.b, name: ../up}", "the directory that it is placed in"),
        ("{galaxy: 'https://me:word@forge.test/role.git'}", "a user name or a password"),
    ] {
        let text = format!("- job:\n    name: test\n    run: r\n    roles:\n      - {role}\n");
        let layout = tenant().file("org/config", BASE).file("org/project", &text).build();
        let errors = layout.errors();
        let [error] = errors else { panic!("{role}: {errors:?}") };
        let found = &error.diagnostic;
        assert!(found.message.contains(part), "{role}: {}", found.message);
        assert_eq!((found.start.line(), marked(&text, error).as_str()), (5, role), "{role}");
        let entry = format!(
            "- job: {{name: test, run: r}}\n- project: {{check: {{jobs: [test: {{roles: [{role}]}}]}}}}\n"
        );
        let layout = tenant().file("org/config", BASE).file("org/project", &entry).build();
        assert!(messages(&layout)[0].contains(part), "{role}: {:?}", messages(&layout));
    }
}
