//! Refused configuration, seen from the change that proposes it: its status, its report and the
//! text, and that nothing else happens.

use super::{CONFIG, MAIN, PROJECT, approve, comments, judge, merged, propose};
use sluice_model::change::ChangeKey;
use sluice_scenarios::Site;

/// Jobs with rules of their own.
const RULES: &str = "
- job: {name: last, final: true, run: playbooks/last.yaml}
- job: {name: frame, abstract: true, run: playbooks/frame.yaml}
- job: {name: half, intermediate: true, abstract: true, run: playbooks/half.yaml}
- job: {name: ours, allowed-projects: [org/one], run: playbooks/ours.yaml}
";

/// What the other project defines.
const THEIRS: &str = "
- job: {name: guarded, protected: true, run: playbooks/guarded.yaml}
- job: {name: theirs, run: playbooks/theirs.yaml}
";

fn site() -> Site {
    let main =
        MAIN.replace("    name: demo\n", "    name: demo\n    disallowed-labels: [^big-.*]\n");
    let config = format!("{CONFIG}{RULES}");
    let theirs = format!("{PROJECT}{THEIRS}");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
        ("org/two", &[(".zuul.yaml", &theirs), ("shared", "0")]),
        ("org/bare", &[(".zuul.yaml", PROJECT)]),
        ("org/noop", &[("README", "nothing yet")]),
    ];
    Site::new(7, &main, repositories, judge)
}

/// Returns the project's configuration with another entry instead of `unit`, in check and gate.
fn project_with_entry(entry: &str) -> String {
    PROJECT.replace("[unit", &format!("[{entry}"))
}

/// Returns the project's configuration with one additional stanza.
fn project_with_stanza(stanza: &str) -> String {
    format!("{PROJECT}{stanza}\n")
}

fn statuses(site: &Site, change: &ChangeKey) -> Vec<String> {
    let statuses = site.forge.change(change).unwrap().facts.statuses;
    statuses.iter().map(|status| format!("{} {}", status.context, status.state)).collect()
}

/// Returns the number of reports on a change, and how often they were written.
fn reports(site: &Site, change: &ChangeKey) -> (usize, u32) {
    let comments = site.forge.change(change).unwrap().comments;
    (comments.len(), comments.values().map(|(_, times)| *times).sum())
}

/// Returns the requirement, the erroneous configuration for org/one, and words of the expected
/// report.
fn configuration_errors() -> Vec<(&'static str, String, &'static str)> {
    let mine =
        |attributes: &str| project_with_stanza(&format!("- job: {{name: mine, {attributes}}}"));
    let of_node =
        |label: &str| mine(&format!("run: r, nodeset: {{nodes: [{{name: n, label: {label}}}]}}"));
    vec![
        ("J07", project_with_entry("last: {vars: {a: 1}}"), "Unable to modify final job"),
        ("J08", project_with_entry("frame"), "may not be directly run"),
        (
            "J09",
            project_with_entry("mine") + "- job: {name: mine, parent: half, run: r}\n",
            "is not abstract",
        ),
        (
            "J10",
            project_with_entry("mine") + "- job: {name: mine, parent: guarded}\n",
            "is protected in project",
        ),
        (
            "X08",
            project_with_stanza("- job: {name: other, run: r}"),
            "not permitted to shadow job other",
        ),
        ("X10", mine("parent: null, run: r"), "Base jobs may only be defined"),
        (
            "X11",
            project_with_stanza("- pipeline: {name: mine, manager: independent}"),
            "Pipelines may only be defined in config projects",
        ),
        (
            "X12",
            project_with_stanza("- project: {name: org/two, check: {jobs: [unit]}}"),
            "only a stanza for the project itself is permitted",
        ),
        (
            "X12",
            project_with_stanza("- project: {name: ^org/.*, check: {jobs: [unit]}}"),
            "only a stanza for the project itself is permitted",
        ),
        ("X13", of_node("big-one"), "Label named \"big-one\" is not part of the allowed"),
        ("C02", project_with_entry("nosuch"), "Job nosuch not defined"),
        ("C05", mine("vottng: true"), "syntax error"),
        ("C07", project_with_stanza("- job: ["), "syntax error"),
        ("C08", mine("secrets: nope"), "secret \"nope\" was not found"),
        ("C09", mine("nodeset: nope"), "nodeset \"nope\" was not found"),
        ("C10", mine("required-projects: org/nope"), "The project \"org/nope\" was not found"),
        ("C11", mine("parent: last"), "is final and can not act as a parent"),
    ]
}

/// J07, J08, J09, J10, X08, X10, X11, X12, X13, C02, C05, C07, C08, C09, C10, C11, Z4.5, Z6.6: an
/// error in proposed configuration is reported on the change, once by each pipeline, with a failure
/// status and a line comment. Nothing is built and nothing merges.
#[test]
fn a_configuration_error_is_reported_once_and_does_not_land() {
    let mut site = site();
    site.twice = true;
    let mut otherwise = Vec::new();
    for (number, (row, text, words)) in (1..).zip(configuration_errors()) {
        let change = propose(&site, number, &[(".zuul.yaml", &text)]);
        site.run();
        let report = comments(&site, &change);
        let lines: Vec<String> =
            site.forge.change(&change).unwrap().lines.into_values().flatten().collect();
        let is_line_comment = lines.iter().all(|line| line.starts_with(".zuul.yaml:"));
        let is_line_comment = is_line_comment && lines.iter().any(|line| line.contains(words));
        let checked = (statuses(&site, &change).join(", "), reports(&site, &change));
        approve(&mut site, &[&change]);
        let gated = (statuses(&site, &change).join(", "), reports(&site, &change));
        let expected = ("demo/check failure".to_owned(), (1, 1));
        let in_gate = ("demo/check failure, demo/gate failure".to_owned(), (2, 2));
        if !report.contains(words) || !is_line_comment || checked != expected || gated != in_gate {
            otherwise
                .push(format!("{row}: {checked:?}, then {gated:?}: {report}\nbeside: {lines:?}"));
        }
    }
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n\n"));
    assert_eq!((merged(&site), site.builds()), (Vec::new(), Vec::<String>::new()));
    let main = site.forge.files("org/one", "main");
    assert_eq!(main[".zuul.yaml"], PROJECT);
    // A change without configuration errors is tested in the same tenant.
    let fine = propose(&site, 90, &[("a", "x")]);
    approve(&mut site, &[&fine]);
    assert_eq!(
        (merged(&site), statuses(&site, &fine)),
        (vec![90], vec!["demo/check success".into(), "demo/gate success".into()])
    );
}

/// C02: an unknown job is reported with its file and line. The comment starts where the stanza
/// starts.
#[test]
fn an_unknown_job_gets_a_line_comment_from_its_stanza_to_its_line() {
    let mut site = site();
    let text = "- job:\n    name: one\n    run: r.yaml\n\n- project:\n    name: org/one\n    check:\n      jobs:\n        - nosuch\n";
    let change = propose(&site, 1, &[(".zuul.yaml", text)]);
    site.run();
    assert_eq!(
        (statuses(&site, &change), site.builds()),
        (vec!["demo/check failure".to_owned()], Vec::new())
    );
    let shown = site.forge.change(&change).unwrap();
    let lines: Vec<&String> = shown.lines.values().flatten().collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with(".zuul.yaml:9: Job nosuch not defined"),
        "{lines:?}"
    );
    assert_eq!(shown.ranges.into_values().flatten().collect::<Vec<_>>(), [(5, 9)]);
}

/// X06: of three projects that run a job, the disallowed ones get that error on every change.
/// Changes of the allowed one are tested.
#[test]
fn a_job_runs_only_for_its_allowed_projects() {
    let mut site = site();
    let theirs = project_with_entry("ours") + THEIRS;
    for (project, text) in [
        ("org/one", &project_with_entry("ours")),
        ("org/two", &theirs),
        ("org/bare", &project_with_entry("ours")),
    ] {
        let branch = sluice_model::git::BranchKey {
            project: sluice_model::ProjectName::new("forge.test", project),
            branch: "main".into(),
        };
        site.forge.push(&branch, &[(".zuul.yaml", text)]);
    }
    site.run();
    let changes = [(1, "org/one"), (2, "org/two"), (3, "org/bare")].map(|(number, project)| {
        (project, site.forge.propose(project, number, "a change", "", &[("a", "x")]))
    });
    site.run();
    let [(_, allowed), refused @ ..] = &changes;
    assert_eq!(site.builds(), ["check ours 1"]);
    assert_eq!(
        (statuses(&site, allowed), reports(&site, allowed)),
        (vec!["demo/check success".to_owned()], (1, 1))
    );
    for (project, change) in refused {
        assert_eq!(statuses(&site, change), ["demo/check failure"]);
        let report = comments(&site, change);
        assert!(
            report.contains(&format!("Project {project} is not allowed to run job ours")),
            "{report}"
        );
        assert_eq!(reports(&site, change), (1, 1), "{report}");
    }
}

/// C06, Z6.6: a change to a config project is validated before the merge although nothing runs with
/// it. Valid configuration merges and applies from then on.
#[test]
fn a_change_to_a_config_project_is_validated_before_the_merge() {
    let own = "- project: {check: {jobs: [noop]}, gate: {jobs: [noop]}}\n";
    let config = format!("{CONFIG}{own}");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let more = |stanza: &str| format!("{config}{stanza}\n");
    let configuration_errors = [
        (more("- job: {name: a, vottng: true}"), "syntax error"),
        (more("- job: ["), "syntax error"),
        (more("- project: {name: org/one, check: {jobs: [nosuch]}}"), "Job nosuch not defined"),
        // The change removes what others use; the report names those.
        (
            config.replace("- job: {name: unit, run: playbooks/unit.yaml}\n", ""),
            "Job unit not defined",
        ),
    ];
    for (number, (text, words)) in (1..).zip(configuration_errors) {
        let change =
            site.forge.propose("org/config", number, "a change", "", &[("zuul.yaml", &text)]);
        site.run();
        let report = comments(&site, &change);
        assert!(report.contains(words) && reports(&site, &change) == (1, 1), "{report}");
        assert_eq!(statuses(&site, &change), ["demo/check failure"], "{report}");
        approve(&mut site, &[&change]);
        assert_eq!(statuses(&site, &change), ["demo/check failure", "demo/gate failure"]);
    }
    assert_eq!(merged(&site), Vec::<u64>::new());
    let later = "- job: {name: later, run: playbooks/later.yaml}\n- project: {name: org/one, check: {jobs: [later]}}";
    let right = site.forge.propose("org/config", 5, "a change", "", &[("zuul.yaml", &more(later))]);
    propose(&site, 6, &[("a", "x")]);
    approve(&mut site, &[&right]);
    assert_eq!(
        (merged(&site), site.builds()),
        (vec![5], vec!["check unit 6".to_owned()]),
        "not before it is merged"
    );
    propose(&site, 7, &[("a", "x")]);
    site.run();
    assert!(site.builds().contains(&"check later 7".to_owned()), "{:?}", site.builds());
}
