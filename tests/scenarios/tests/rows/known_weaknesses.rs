//! Weaknesses that gating systems are known for: ways by which code that was not reviewed, or not
//! permitted, is run.

use super::{CONFIG, MAIN, PROJECT, approve, comments, judge, ordered, site_of};
use sluice_scenarios::Site;

const NEEDS_CONFIG: &str = "Depends-On: https://forge.test/org/config/pull/1";
const NEEDS_ONE: &str = "Depends-On: https://forge.test/org/one/pull/1";

/// Returns the path of the main playbook of a build of this change.
fn playbook(site: &Site, job: &str, change: u64) -> String {
    ordered(site, job, change).1.run[0].path.clone()
}

/// X07, Z4.8: a tenant that has configuration errors already uses of a config project what is
/// merged, and nothing that is proposed.
#[test]
fn a_tenant_with_configuration_errors_takes_no_proposal_to_a_config_project_into_a_layout() {
    let broken = format!("{PROJECT}- job: {{name: broken, vottng: true}}\n");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
        ("org/two", &[(".zuul.yaml", &broken)]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    site.run();
    let stolen = CONFIG.replace("playbooks/unit.yaml", "playbooks/stolen.yaml")
        + "- job: {name: sneaky, run: playbooks/sneaky.yaml}\n";
    site.forge.propose("org/config", 1, "A", "", &[("zuul.yaml", &stolen)]);
    // One change has a layout of its own, the other has not.
    let own = format!("{PROJECT}- job: {{name: mine, run: playbooks/mine.yaml}}\n");
    site.forge.propose("org/one", 2, "B", NEEDS_CONFIG, &[(".zuul.yaml", &own)]);
    site.forge.propose("org/one", 3, "C", NEEDS_CONFIG, &[("shared", "1")]);
    let sneaky = PROJECT.replace("[unit]", "[sneaky]");
    let refused = site.forge.propose("org/one", 4, "D", NEEDS_CONFIG, &[(".zuul.yaml", &sneaky)]);
    site.run();
    let mut builds = site.builds();
    builds.sort();
    assert_eq!(builds, ["check unit 1 2", "check unit 1 3"]);
    for change in [2, 3] {
        assert_eq!(playbook(&site, "unit", change), "playbooks/unit.yaml");
    }
    assert!(comments(&site, &refused).contains("sneaky"));
}

/// X06, Z5.3: a job of some projects runs for no other, whatever stanza a dependency proposes: for
/// that project, in a config project, in an allowed project, or in one that may configure others.
#[test]
fn a_dependency_that_alters_a_project_stanza_bypasses_no_allowed_projects() {
    let config = format!(
        "{CONFIG}- job: {{name: ours, allowed-projects: [org/one], run: playbooks/ours.yaml}}\n"
    );
    let adds = "- project: {name: org/two, check: {jobs: [ours]}}\n";
    let may_configure = MAIN.replace("[org/one,", "[{org/one: {configure-projects: [org/two]}},");
    for (main, proposed_in, needs) in [
        (MAIN, "org/config", NEEDS_CONFIG),
        (MAIN, "org/one", NEEDS_ONE),
        (&*may_configure, "org/one", NEEDS_ONE),
    ] {
        let repositories: &[(&str, &[(&str, &str)])] = &[
            ("org/config", &[("zuul.yaml", &config)]),
            ("org/one", &[(".zuul.yaml", PROJECT)]),
            ("org/two", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
        ];
        let mut site = Site::new(7, main, repositories, judge);
        let (path, text) = match proposed_in {
            "org/config" => ("zuul.yaml", format!("{config}{adds}")),
            _ => (".zuul.yaml", format!("{PROJECT}{adds}")),
        };
        site.forge.propose(proposed_in, 1, "A", "", &[(path, &text)]);
        site.forge.propose("org/two", 2, "B", needs, &[("shared", "1")]);
        let own = PROJECT.replace("[unit]", "[ours]");
        site.forge.propose("org/two", 3, "C", needs, &[(".zuul.yaml", &own)]);
        site.run();
        let builds = site.builds();
        let of_two = ["check ours 2", "check ours 3"];
        assert!(
            !builds.iter().any(|build| of_two.contains(&build.as_str())),
            "{proposed_in}: {builds:?}"
        );
    }
}

/// A pipeline that runs what was approved, and merges nothing.
const TRIAL: &str = "
- pipeline:
    name: trial
    manager: independent
    post-review: true
    require: {github: {open: true, review: [{type: approved, permission: write}]}}
    trigger: {github: [{event: pull_request_review, action: submitted, state: approved}]}
    success: {github: {status: success}}
    failure: {github: {status: failure}}
";

/// Z5.3, D01: what an approved change depends on runs beside it, so it has to be approved too.
#[test]
fn an_unreviewed_dependency_does_not_run_in_a_pipeline_that_requires_review() {
    let only_required = TRIAL.replace("    post-review: true\n", "");
    for pipeline in [TRIAL, &*only_required] {
        let project = "- project: {check: {jobs: [unit]}, trial: {jobs: [unit]}}\n";
        let mut site = site_of(&format!("{CONFIG}{pipeline}"), project);
        let below = site.forge.propose("org/one", 1, "A", "", &[("shared", "1")]);
        let above = site.forge.propose("org/two", 2, "B", NEEDS_ONE, &[("shared", "2")]);
        site.run();
        let trials = |site: &Site| {
            site.builds().into_iter().filter(|build| build.starts_with("trial")).count()
        };
        approve(&mut site, &[&above]);
        assert_eq!(trials(&site), 0, "{:?}", site.builds());
        let report = comments(&site, &above);
        assert!(report.contains("which may not run here"), "{report}");
        approve(&mut site, &[&below]);
        approve(&mut site, &[&above]);
        assert_eq!(trials(&site), 2, "{:?}", site.builds());
    }
}
