//! Files that a tenant includes: they lie beside the main configuration, count for every tenant
//! that names them, and their jobs have the playbooks and roles beside them, or else those of the
//! tenant's config projects.

use super::{CONFIG, approve, comments, judge, merged, ordered};
use bytes::Bytes;
use sluice_config::Layout;
use sluice_config::tenant::{included_branch, included_project};
use sluice_memory::poll_once;
use sluice_model::build::Speculation;
use sluice_model::git::{BranchState, Commit};
use sluice_model::job::Playbook;
use sluice_model::poke::Poke;
use sluice_records::connection;
use sluice_records::included::{self, Included, IncludedFiles};
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
    load_with(site, main, global, None);
}

/// The same, with a commit that playbooks and roles beside the file are.
fn load_with(site: &mut Site, main: &str, global: &str, commit: Option<&Commit>) {
    let files = IncludedFiles::from([("global.yaml".to_owned(), global.to_owned())]);
    let beside = commit.map(|commit| {
        let packs = vec![format!("git/system%2Fincluded/{}", commit.id)];
        BranchState::untouched(included_branch(), commit.clone(), packs)
    });
    poll_once(included::store(&site.ports(), main, &Included { files, beside })).unwrap().unwrap();
    store(site, main);
}

/// Makes what lies beside the main configuration a commit.
fn beside(site: &Site, files: &[(&str, &str)]) -> Commit {
    let tree = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    site.store.lock().unwrap().commit(tree, Vec::new(), "beside")
}

fn store(site: &mut Site, main: &str) {
    let ports = site.ports();
    let text = Bytes::from(main.to_owned());
    poll_once(ports.objects.put(connection::MAIN, text, PutMode::Always, "application/yaml"))
        .unwrap()
        .unwrap();
    poll_once(cell::send(&ports, &[Poke::Tenant { tenant: "demo".into() }])).unwrap().unwrap();
    site.run();
}

fn live(site: &Site) -> Arc<Layout> {
    poll_once(Layouts::default().live(&site.ports(), &"demo".into()))
        .unwrap()
        .unwrap()
        .unwrap()
        .layout
}

/// Returns what is told of the included files: file, line and message.
fn told(site: &Site) -> Vec<String> {
    let layout = live(site);
    let own = layout.errors().iter().filter(|error| error.project == included_project());
    own.map(|error| {
        format!("{}:{} {}", error.path, error.problem.start.line(), error.problem.message)
    })
    .collect()
}

fn has_job(site: &Site, name: &str) -> bool {
    live(site).job_names().any(|known| known == name)
}

/// Lands a change of the project, under a layout without mistakes.
fn land(site: &mut Site) {
    assert!(live(site).errors().is_empty(), "{:?}", live(site).errors());
    let change = site.forge.propose("org/one", 1, "a change", "", &[("a", "x")]);
    approve(site, &[&change]);
    assert_eq!(merged(site), [1], "{}", comments(site, &change));
}

/// Returns each playbook with the project that it is of.
fn places(list: &[Playbook]) -> Vec<String> {
    list.iter()
        .map(|playbook| format!("{} in {}", playbook.path, playbook.project.name()))
        .collect()
}

/// Returns the projects whose roles a playbook has, in their order.
fn roles(playbook: &Playbook) -> Vec<String> {
    playbook.roles.iter().map(|role| role.project.name().to_owned()).collect()
}

/// Z2.1, Z2.5, Z4.9: jobs of an included file run with playbooks of the first config project that
/// has them, trusted and as they are merged; roles beside those are offered with them, and one that
/// is nowhere is looked for in the first.
#[test]
fn jobs_of_an_included_file_run_with_playbooks_of_config_projects() {
    let mut site = site(MAIN, OWN);
    let missing = told(&site);
    assert!(
        missing.len() == 1
            && missing[0].starts_with("main.yaml:4 The tenant includes \"global.yaml\""),
        "{missing:?}"
    );
    load(&mut site, MAIN, &global(JOBS));
    land(&mut site);

    let unit = ordered(&site, "unit", 1).1;
    assert_eq!(places(&unit.pre_run), ["prepare in org/config"]);
    assert_eq!(places(&unit.run), ["playbooks/unit.yaml in org/config2"]);
    assert_eq!(places(&unit.post_run), ["archive-logs in org/config2"]);
    for playbook in unit.pre_run.iter().chain(&unit.run).chain(&unit.post_run) {
        assert!(
            playbook.trusted
                && playbook.commit.is_some()
                && playbook.connection.as_str() == "github"
        );
    }
    // Of candidates the first that is there runs.
    assert_eq!(
        places(&ordered(&site, "shaped", 1).1.run),
        ["shaped in org/config2", "base in org/config"]
    );
    assert_eq!(places(&ordered(&site, "lost", 1).1.run), ["nowhere in org/config"]);
    let child = ordered(&site, "child", 1).1;
    assert_eq!(places(&child.run), ["own.yaml in org/one"]);
    assert_eq!(
        (roles(&unit.run[0]), roles(&child.run[0])),
        (vec!["org/config2".to_owned()], vec!["org/one".to_owned(), "org/config".to_owned()])
    );
}

/// Z2.5, R03: a mistake in an included file is told in its line and takes nothing else away; a main
/// configuration that cannot be read leaves the files as they were; one that includes them no more
/// takes them away.
#[test]
fn included_files_come_and_go_with_the_main_configuration() {
    let mut site = site(MAIN, "- project: {gate: {jobs: [unit]}}\n");
    load(&mut site, MAIN, &global(JOBS));
    let sound = live(&site).id().to_owned();
    let text = global(&format!("{JOBS}- job: {{name: odd, parrent: base}}\n"));
    load(&mut site, MAIN, &text);
    let found = told(&site);
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

/// Z4.9: a job of an included file without a playbook anywhere is told to the change that would run
/// it, and so is one whose tenant has no config project that could have any.
#[test]
fn a_job_of_an_included_file_without_a_playbook_is_told() {
    let alone = MAIN.replace("config-projects: [org/config, org/config2], ", "");
    for (main, expected) in [
        (
            MAIN,
            "there is no playbook of its name or of a parent's: looked for hollow in org/config@main",
        ),
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

/// Z2.5, Z4.9: a job of an included file runs the playbook beside that, trusted and at the commit
/// that was loaded with it, with the roles that lie there; what is not there is of a config
/// project, whose roles come first then.
#[test]
fn jobs_of_an_included_file_run_with_what_lies_beside_it() {
    let mut site = site(MAIN, OWN);
    let files = [
        ("playbooks/unit.yaml", "-"),
        ("playbooks/prepare.yml", "-"),
        ("roles/a/tasks/main.yaml", "[]"),
    ];
    let commit = beside(&site, &files);
    load_with(&mut site, MAIN, &global(JOBS), Some(&commit));
    land(&mut site);

    let (order, unit) = ordered(&site, "unit", 1);
    assert_eq!(places(&unit.pre_run), ["prepare in included"]);
    assert_eq!(places(&unit.run), ["playbooks/unit.yaml in included"]);
    assert_eq!(places(&unit.post_run), ["archive-logs in org/config2"]);
    for playbook in unit.pre_run.iter().chain(&unit.run) {
        assert!(playbook.trusted, "{playbook:?}");
        assert_eq!(
            (playbook.commit.as_ref(), playbook.branch.as_str()),
            (Some(&commit.id), "main")
        );
    }
    assert_eq!(
        places(&ordered(&site, "shaped", 1).1.run),
        ["shaped in org/config2", "base in included"]
    );
    assert_eq!(places(&ordered(&site, "lost", 1).1.run), ["nowhere in included"]);
    assert_eq!(roles(&unit.run[0]), ["included"]);
    assert_eq!(roles(&unit.post_run[0]), ["org/config2", "included"]);
    let child = ordered(&site, "child", 1).1;
    assert_eq!(places(&child.run), ["own.yaml in org/one"]);
    assert_eq!(roles(&child.run[0]), ["org/one", "included"]);

    // Executors find the commit in the tested state, with the packs that hold it.
    let state = poll_once(site.ports().objects.get(&order.speculation)).unwrap().unwrap().unwrap();
    let state: Speculation = serde_json::from_slice(&state.bytes).unwrap();
    let found: Vec<&BranchState> =
        state.branches.iter().filter(|state| state.branch.project == included_project()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0].result, &found[0].base), (&commit, &commit));
    assert_eq!(found[0].packs, [format!("git/system%2Fincluded/{}", commit.id)]);
}

/// Z2.5: what is loaded anew is another layout, and counts for what is frozen from then on; what
/// was frozen keeps what it was frozen with.
#[test]
fn another_playbook_beside_the_main_configuration_counts_from_then_on() {
    let mut site = site(MAIN, "- project: {check: {jobs: [unit]}, gate: {jobs: [unit]}}\n");
    let before =
        beside(&site, &[("playbooks/unit.yaml", "- old"), ("playbooks/prepare.yaml", "-")]);
    load_with(&mut site, MAIN, &global(JOBS), Some(&before));
    let sound = live(&site).id().to_owned();
    site.forge.propose("org/one", 1, "a change", "", &[("a", "x")]);
    site.run();
    let after = beside(&site, &[("playbooks/unit.yaml", "- new"), ("playbooks/prepare.yaml", "-")]);
    assert_ne!(before.id, after.id);
    load_with(&mut site, MAIN, &global(JOBS), Some(&after));
    assert_ne!(live(&site).id(), sound);
    let second = site.forge.propose("org/one", 2, "another change", "", &[("b", "x")]);
    site.run();
    let commit_of =
        |site: &Site, change: u64| ordered(site, "unit", change).1.run[0].commit.clone();
    assert_eq!(commit_of(&site, 1), Some(before.id.clone()));
    assert_eq!(commit_of(&site, 2), Some(after.id.clone()), "{}", comments(&site, &second));

    // The same again is the same layout, and without any the config projects have them, as before.
    let now = live(&site).id().to_owned();
    load_with(&mut site, MAIN, &global(JOBS), Some(&after));
    assert_eq!(live(&site).id(), now);
    load(&mut site, MAIN, &global(JOBS));
    let third = site.forge.propose("org/one", 3, "a third change", "", &[("c", "x")]);
    site.run();
    let unit = ordered(&site, "unit", 3).1;
    assert_eq!(unit.run[0].project.name(), "org/config2", "{}", comments(&site, &third));
}

/// Z4.9: a job that would run the playbook of its name is told where that was looked for, also in a
/// tenant without config projects.
#[test]
fn a_playbook_that_does_not_lie_beside_the_main_configuration_is_told() {
    let alone = MAIN.replace("config-projects: [org/config, org/config2], ", "");
    for main in [MAIN, alone.as_str()] {
        let mut site = site(main, "- project: {check: {jobs: [hollow]}}\n");
        let commit =
            beside(&site, &[("playbooks/unit.yaml", "-"), ("roles/hollow/tasks/main.yaml", "[]")]);
        load_with(&mut site, main, &global(JOBS), Some(&commit));
        let change = site.forge.propose("org/one", 1, "a change", "", &[("a", "x")]);
        site.run();
        let expected = "looked for hollow below playbooks/ beside the main configuration and in the tenant's config";
        assert!(comments(&site, &change).contains(expected), "{}", comments(&site, &change));
        assert_eq!(site.builds(), Vec::<String>::new());
    }
}
