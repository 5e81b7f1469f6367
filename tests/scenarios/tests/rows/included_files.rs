//! Files that a tenant includes. They are stored next to the main configuration and apply to every
//! tenant that includes them. Their jobs use the playbooks and roles next to them, or else those of
//! the tenant's config projects.

use super::{CONFIG, approve, comments, judge, merged, ordered};
use bytes::Bytes;
use sluice_config::Layout;
use sluice_config::tenant::{included_branch, included_project};
use sluice_memory::poll_once;
use sluice_model::build::Speculation;
use sluice_model::git::{BranchState, Commit};
use sluice_model::job::Playbook;
use sluice_model::wakeup::Wakeup;
use sluice_records::connection;
use sluice_records::included_files::{self, IncludedConfig, IncludedFiles};
use sluice_records::layout::Layouts;
use sluice_runtime::cell;
use sluice_runtime::object::PutMode;
use sluice_scenarios::Site;
use std::sync::Arc;

const MAIN: &str = "
- tenant:
    name: demo
    include: [global.yaml]
    source: {github: {config-projects: [org/config, org/config2], untrusted-projects: [org/one]}}
";

const JOBS: &str = "
- job: {name: base, parent: null, pre-run: prepare, post-run: archive-logs}
- job: {name: unit, run: playbooks/unit.yaml}
- job: {name: shaped}
- job: {name: lost, run: nowhere}
- job: {name: hollow}
";

/// What a project makes of those.
const OWN: &str = "
- job: {name: child, parent: unit, run: own.yaml}
- project: {gate: {jobs: [unit, shaped, lost, child]}}
";

/// Returns the included file: its pipelines and these jobs.
fn global(jobs: &str) -> String {
    format!("{}{jobs}", CONFIG.split("- job:").next().unwrap())
}

/// Returns a site whose main configuration is stored, but not yet the included file.
fn site(main: &str, project: &str) -> Site {
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("playbooks/prepare.yaml", "- hosts: all")]),
        (
            "org/config2",
            &[
                ("archive-logs.yml", "-"),
                ("playbooks/unit.yaml", "-"),
                ("playbooks/shaped.yml", "-"),
                ("prepare.yaml", "-"),
            ],
        ),
        ("org/one", &[(".zuul.yaml", project)]),
    ];
    let site = Site::new(7, main, repositories, judge);
    site.store.lock().unwrap().lists_playbooks = true;
    site
}

/// Stores a main configuration with the included file, as `sluice tenant load` does.
fn load(site: &mut Site, main: &str, global: &str) {
    load_with(site, main, global, None);
}

/// Does the same, with a commit that holds the playbooks and roles next to the file.
fn load_with(site: &mut Site, main: &str, global: &str, commit: Option<&Commit>) {
    let files = IncludedFiles::from([("global.yaml".to_owned(), global.to_owned())]);
    let roles = commit.map(|commit| {
        let packs = vec![format!("git/system%2Fincluded/{}", commit.id)];
        BranchState::untouched(included_branch(), commit.clone(), packs)
    });
    poll_once(included_files::store(&site.ports(), main, &IncludedConfig { files, roles }))
        .unwrap()
        .unwrap();
    store(site, main);
}

/// Commits the files that are stored next to the main configuration.
fn commit_files(site: &Site, files: &[(&str, &str)]) -> Commit {
    let tree = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    site.store.lock().unwrap().commit(tree, Vec::new(), "included")
}

fn store(site: &mut Site, main: &str) {
    let ports = site.ports();
    let text = Bytes::from(main.to_owned());
    poll_once(ports.objects.put(connection::MAIN, text, PutMode::Always, "application/yaml"))
        .unwrap()
        .unwrap();
    poll_once(cell::send(&ports, &[Wakeup::Tenant { tenant: "demo".into() }])).unwrap().unwrap();
    site.run();
}

fn live(site: &Site) -> Arc<Layout> {
    poll_once(Layouts::default().load_live(&site.ports(), &"demo".into()))
        .unwrap()
        .unwrap()
        .unwrap()
        .layout
}

/// Returns the load errors in included files as file, line and message.
fn load_errors(site: &Site) -> Vec<String> {
    let layout = live(site);
    let own = layout.errors().iter().filter(|error| error.project == included_project());
    own.map(|error| {
        format!("{}:{} {}", error.path, error.diagnostic.start.line(), error.diagnostic.message)
    })
    .collect()
}

fn has_job(site: &Site, name: &str) -> bool {
    live(site).job_names().any(|known| known == name)
}

/// Lands a change of the project in a layout without errors.
fn land(site: &mut Site) {
    assert!(live(site).errors().is_empty(), "{:?}", live(site).errors());
    let change = site.forge.propose("org/one", 1, "a change", "", &[("a", "x")]);
    approve(site, &[&change]);
    assert_eq!(merged(site), [1], "{}", comments(site, &change));
}

/// Returns each playbook with its project.
fn playbook_projects(list: &[Playbook]) -> Vec<String> {
    list.iter()
        .map(|playbook| format!("{} in {}", playbook.path, playbook.project.name()))
        .collect()
}

/// Returns the projects that a playbook takes roles from, in their order.
fn roles(playbook: &Playbook) -> Vec<String> {
    playbook.role_repositories().map(|role| role.project.name().to_owned()).collect()
}

/// Z2.1, Z2.5, Z4.9: jobs of an included file run playbooks of the first config project that has
/// them, trusted and as merged. Roles next to the playbooks are available too. A playbook that is
/// nowhere is expected in the first config project.
#[test]
fn jobs_of_an_included_file_run_with_playbooks_of_config_projects() {
    let mut site = site(MAIN, OWN);
    let missing = load_errors(&site);
    assert!(
        missing.len() == 1
            && missing[0].starts_with("main.yaml:4 The tenant includes \"global.yaml\""),
        "{missing:?}"
    );
    load(&mut site, MAIN, &global(JOBS));
    land(&mut site);

    let unit = ordered(&site, "unit", 1).1;
    assert_eq!(playbook_projects(&unit.pre_run), ["prepare in org/config"]);
    assert_eq!(playbook_projects(&unit.run), ["playbooks/unit.yaml in org/config2"]);
    assert_eq!(playbook_projects(&unit.post_run), ["archive-logs in org/config2"]);
    for playbook in unit.pre_run.iter().chain(&unit.run).chain(&unit.post_run) {
        assert!(
            playbook.trusted
                && playbook.commit.is_some()
                && playbook.connection.as_str() == "github"
        );
    }
    // The first candidate that exists runs.
    assert_eq!(
        playbook_projects(&ordered(&site, "shaped", 1).1.run),
        ["shaped in org/config2", "base in org/config"]
    );
    assert_eq!(playbook_projects(&ordered(&site, "lost", 1).1.run), ["nowhere in org/config"]);
    let child = ordered(&site, "child", 1).1;
    assert_eq!(playbook_projects(&child.run), ["own.yaml in org/one"]);
    assert_eq!(
        (roles(&unit.run[0]), roles(&child.run[0])),
        (vec!["org/config2".to_owned()], vec!["org/one".to_owned(), "org/config".to_owned()])
    );
}

/// Z2.5, R03: an error in an included file is reported at its line and removes nothing else. An
/// unreadable main configuration keeps the files as they were. A main configuration that no longer
/// includes them removes them.
#[test]
fn included_files_come_and_go_with_the_main_configuration() {
    let mut site = site(MAIN, "- project: {gate: {jobs: [unit]}}\n");
    load(&mut site, MAIN, &global(JOBS));
    let sound = live(&site).id().to_owned();
    let text = global(&format!("{JOBS}- job: {{name: odd, parrent: base}}\n"));
    load(&mut site, MAIN, &text);
    let found = load_errors(&site);
    assert!(
        found.len() == 1 && found[0].starts_with(&format!("global.yaml:{} ", text.lines().count())),
        "{found:?}"
    );
    assert!(has_job(&site, "unit") && !has_job(&site, "odd"));

    load(&mut site, MAIN, &global(JOBS));
    assert_eq!(live(&site).id(), sound);
    store(&mut site, "- tenant: {name: [");
    assert_eq!(live(&site).id(), sound, "who cannot be understood takes nothing away");
    let without = MAIN.replace("    include: [global.yaml]\n", "");
    load(&mut site, &without, &global(JOBS));
    assert!(!has_job(&site, "unit") && live(&site).id() != sound);
}

/// Z4.9: a job of an included file without any playbook is reported on the change that would run
/// it. The same holds if the tenant has no config project that could contain one.
#[test]
fn a_missing_playbook_of_a_job_in_an_included_file_is_reported() {
    let alone = MAIN.replace("config-projects: [org/config, org/config2], ", "");
    for (main, expected) in [
        (
            MAIN,
            "no playbook with its name or an ancestor's was found; searched hollow in org/config@main",
        ),
        (alone.as_str(), "the tenant has no readable config project to search instead"),
    ] {
        let mut site = site(main, "- project: {check: {jobs: [hollow]}}\n");
        load(&mut site, main, &global(JOBS));
        let change = site.forge.propose("org/one", 1, "a change", "", &[("a", "x")]);
        site.run();
        assert!(comments(&site, &change).contains(expected), "{}", comments(&site, &change));
        assert_eq!(site.builds(), Vec::<String>::new());
    }
}

/// Z2.5, Z4.9: a job of an included file runs the playbook next to that file, trusted, at the
/// loaded commit and with the roles stored there. A playbook that is not there comes from a config
/// project, whose roles are then searched first.
#[test]
fn jobs_of_an_included_file_run_with_the_playbooks_next_to_it() {
    let mut site = site(MAIN, OWN);
    let files = [
        ("playbooks/unit.yaml", "-"),
        ("playbooks/prepare.yml", "-"),
        ("roles/a/tasks/main.yaml", "[]"),
    ];
    let commit = commit_files(&site, &files);
    load_with(&mut site, MAIN, &global(JOBS), Some(&commit));
    land(&mut site);

    let (order, unit) = ordered(&site, "unit", 1);
    assert_eq!(playbook_projects(&unit.pre_run), ["prepare in included"]);
    assert_eq!(playbook_projects(&unit.run), ["playbooks/unit.yaml in included"]);
    assert_eq!(playbook_projects(&unit.post_run), ["archive-logs in org/config2"]);
    for playbook in unit.pre_run.iter().chain(&unit.run) {
        assert!(playbook.trusted, "{playbook:?}");
        assert_eq!(
            (playbook.commit.as_ref(), playbook.branch.as_str()),
            (Some(&commit.id), "main")
        );
    }
    assert_eq!(
        playbook_projects(&ordered(&site, "shaped", 1).1.run),
        ["shaped in org/config2", "base in included"]
    );
    assert_eq!(playbook_projects(&ordered(&site, "lost", 1).1.run), ["nowhere in included"]);
    assert_eq!(roles(&unit.run[0]), ["included"]);
    assert_eq!(roles(&unit.post_run[0]), ["org/config2", "included"]);
    let child = ordered(&site, "child", 1).1;
    assert_eq!(playbook_projects(&child.run), ["own.yaml in org/one"]);
    assert_eq!(roles(&child.run[0]), ["org/one", "included"]);

    // Executors find the commit in the tested state, together with its packs.
    let state = poll_once(site.ports().objects.get(&order.speculation)).unwrap().unwrap().unwrap();
    let state: Speculation = serde_json::from_slice(&state.bytes).unwrap();
    let found: Vec<&BranchState> =
        state.branches.iter().filter(|state| state.branch.project == included_project()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0].result, &found[0].base), (&commit, &commit));
    assert_eq!(found[0].packs, [format!("git/system%2Fincluded/{}", commit.id)]);
}

/// Z2.5: newly loaded files make a new layout, which applies to jobs that are frozen afterwards.
/// Jobs that are already frozen keep their playbooks.
#[test]
fn a_newly_loaded_playbook_applies_to_jobs_frozen_afterwards() {
    let mut site = site(MAIN, "- project: {check: {jobs: [unit]}, gate: {jobs: [unit]}}\n");
    let before =
        commit_files(&site, &[("playbooks/unit.yaml", "- old"), ("playbooks/prepare.yaml", "-")]);
    load_with(&mut site, MAIN, &global(JOBS), Some(&before));
    let sound = live(&site).id().to_owned();
    site.forge.propose("org/one", 1, "a change", "", &[("a", "x")]);
    site.run();
    let after =
        commit_files(&site, &[("playbooks/unit.yaml", "- new"), ("playbooks/prepare.yaml", "-")]);
    assert_ne!(before.id, after.id);
    load_with(&mut site, MAIN, &global(JOBS), Some(&after));
    assert_ne!(live(&site).id(), sound);
    let second = site.forge.propose("org/one", 2, "another change", "", &[("b", "x")]);
    site.run();
    let commit_of =
        |site: &Site, change: u64| ordered(site, "unit", change).1.run[0].commit.clone();
    assert_eq!(commit_of(&site, 1), Some(before.id.clone()));
    assert_eq!(commit_of(&site, 2), Some(after.id.clone()), "{}", comments(&site, &second));

    // Loading the same files keeps the layout; without files the config projects are used again.
    let now = live(&site).id().to_owned();
    load_with(&mut site, MAIN, &global(JOBS), Some(&after));
    assert_eq!(live(&site).id(), now);
    load(&mut site, MAIN, &global(JOBS));
    let third = site.forge.propose("org/one", 3, "a third change", "", &[("c", "x")]);
    site.run();
    let unit = ordered(&site, "unit", 3).1;
    assert_eq!(unit.run[0].project.name(), "org/config2", "{}", comments(&site, &third));
}

/// Z4.9: the report for a job that would run the playbook with its name says where that was
/// searched, even in a tenant without config projects.
#[test]
fn a_playbook_missing_next_to_the_main_configuration_is_reported() {
    let alone = MAIN.replace("config-projects: [org/config, org/config2], ", "");
    for main in [MAIN, alone.as_str()] {
        let mut site = site(main, "- project: {check: {jobs: [hollow]}}\n");
        let commit = commit_files(
            &site,
            &[("playbooks/unit.yaml", "-"), ("roles/hollow/tasks/main.yaml", "[]")],
        );
        load_with(&mut site, main, &global(JOBS), Some(&commit));
        let change = site.forge.propose("org/one", 1, "a change", "", &[("a", "x")]);
        site.run();
        let expected = "searched hollow in playbooks/ next to the main configuration and in the tenant's config";
        assert!(comments(&site, &change).contains(expected), "{}", comments(&site, &change));
        assert_eq!(site.builds(), Vec::<String>::new());
    }
}
