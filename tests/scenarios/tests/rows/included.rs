//! Files that a tenant includes: they lie beside the main configuration, count for every tenant that names them, and their jobs
//! have the playbooks of the tenant's config projects.

use super::{CONFIG, approve, comments, judge, merged, ordered};
use bytes::Bytes;
use sluice_config::Layout;
use sluice_config::tenant::included_project;
use sluice_memory::poll_once;
use sluice_model::job::Playbook;
use sluice_model::poke::Poke;
use sluice_records::connection;
use sluice_records::included::{self, IncludedFiles};
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

/// The file with its pipelines and these jobs.
fn global(jobs: &str) -> String {
    format!("{}{jobs}", CONFIG.split("- job:").next().unwrap())
}

/// A system whose main configuration is stored, and not yet the file beside it.
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

/// Stores a main configuration with the file beside it, as `sluice tenant load` does.
fn load(site: &mut Site, main: &str, global: &str) {
    let files = IncludedFiles::from([("global.yaml".to_owned(), global.to_owned())]);
    poll_once(included::store(&site.ports(), main, &files)).unwrap().unwrap();
    store(site, main);
}

fn store(site: &mut Site, main: &str) {
    let ports = site.ports();
    let text = Bytes::from(main.to_owned());
    poll_once(ports.objects.put(connection::MAIN, text, PutMode::Always, "application/yaml")).unwrap().unwrap();
    poll_once(cell::send(&ports, &[Poke::Tenant { tenant: "demo".into() }])).unwrap().unwrap();
    site.run();
}

fn live(site: &Site) -> Arc<Layout> {
    poll_once(Layouts::default().live(&site.ports(), &"demo".into())).unwrap().unwrap().unwrap().layout
}

/// Returns what is told of the included files: file, line and message.
fn told(site: &Site) -> Vec<String> {
    let layout = live(site);
    let own = layout.errors().iter().filter(|error| error.project == included_project());
    own.map(|error| format!("{}:{} {}", error.path, error.problem.start.line(), error.problem.message)).collect()
}

fn has_job(site: &Site, name: &str) -> bool {
    live(site).job_names().any(|known| known == name)
}

/// Z2.1, Z2.5, Z4.9: jobs of an included file run with playbooks of the first config project that has them, trusted and as they are
/// merged; roles beside those are offered with them, and one that is nowhere is looked for in the first.
#[test]
fn jobs_of_an_included_file_run_with_playbooks_of_config_projects() {
    let own =
        "- job: {name: child, parent: unit, run: own.yaml}\n- project: {gate: {jobs: [unit, shaped, lost, child]}}\n";
    let mut site = site(MAIN, own);
    let missing = told(&site);
    assert!(
        missing.len() == 1 && missing[0].starts_with("main.yaml:4 The tenant includes \"global.yaml\""),
        "{missing:?}"
    );
    load(&mut site, MAIN, &global(JOBS));
    assert!(live(&site).errors().is_empty(), "{:?}", live(&site).errors());
    let change = site.forge.propose("org/one", 1, "a change", "", &[("a", "x")]);
    approve(&mut site, &[&change]);
    assert_eq!(merged(&site), [1], "{}", comments(&site, &change));

    let place = |playbook: &Playbook| format!("{} in {}", playbook.path, playbook.project.name());
    let places = |list: &[Playbook]| list.iter().map(place).collect::<Vec<_>>();
    let unit = ordered(&site, "unit", 1).1;
    assert_eq!(places(&unit.pre_run), ["prepare in org/config"]);
    assert_eq!(places(&unit.run), ["playbooks/unit.yaml in org/config2"]);
    assert_eq!(places(&unit.post_run), ["archive-logs in org/config2"]);
    for playbook in unit.pre_run.iter().chain(&unit.run).chain(&unit.post_run) {
        assert!(playbook.trusted && playbook.commit.is_some() && playbook.connection.as_str() == "github");
    }
    // Of candidates the first that is there runs.
    assert_eq!(places(&ordered(&site, "shaped", 1).1.run), ["shaped in org/config2", "base in org/config"]);
    assert_eq!(places(&ordered(&site, "lost", 1).1.run), ["nowhere in org/config"]);
    let child = ordered(&site, "child", 1).1;
    assert_eq!(places(&child.run), ["own.yaml in org/one"]);
    let roles =
        |playbook: &Playbook| playbook.roles.iter().map(|role| role.project.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        (roles(&unit.run[0]), roles(&child.run[0])),
        (vec!["org/config2".to_owned()], vec!["org/one".to_owned(), "org/config".to_owned()])
    );
}

/// Z2.5, R03: a mistake in an included file is told in its line and takes nothing else away; a main configuration that cannot be read
/// leaves the files as they were; one that includes them no more takes them away.
#[test]
fn included_files_come_and_go_with_the_main_configuration() {
    let mut site = site(MAIN, "- project: {gate: {jobs: [unit]}}\n");
    load(&mut site, MAIN, &global(JOBS));
    let sound = live(&site).id().to_owned();
    let text = global(&format!("{JOBS}- job: {{name: odd, parrent: base}}\n"));
    load(&mut site, MAIN, &text);
    let found = told(&site);
    assert!(found.len() == 1 && found[0].starts_with(&format!("global.yaml:{} ", text.lines().count())), "{found:?}");
    assert!(has_job(&site, "unit") && !has_job(&site, "odd"));

    load(&mut site, MAIN, &global(JOBS));
    assert_eq!(live(&site).id(), sound);
    store(&mut site, "- tenant: {name: [");
    assert_eq!(live(&site).id(), sound, "who cannot be understood takes nothing away");
    let without = MAIN.replace("    include: [global.yaml]\n", "");
    load(&mut site, &without, &global(JOBS));
    assert!(!has_job(&site, "unit") && live(&site).id() != sound);
}

/// Z4.9: a job of an included file without a playbook anywhere is told to the change that would run it, and so is one whose tenant
/// has no config project that could have any.
#[test]
fn a_job_of_an_included_file_without_a_playbook_is_told() {
    let alone = MAIN.replace("config-projects: [org/config, org/config2], ", "");
    for (main, expected) in [
        (MAIN, "there is no playbook of its name or of a parent's: looked for hollow in org/config@main"),
        (alone.as_str(), "those are looked for in the tenant's config projects, and it has none"),
    ] {
        let mut site = site(main, "- project: {check: {jobs: [hollow]}}\n");
        load(&mut site, main, &global(JOBS));
        let change = site.forge.propose("org/one", 1, "a change", "", &[("a", "x")]);
        site.run();
        assert!(comments(&site, &change).contains(expected), "{}", comments(&site, &change));
        assert_eq!(site.builds(), Vec::<String>::new());
    }
}
