//! Configuration that is refused, seen from the change that proposes it: the status, the report,
//! its words, and that nothing else happens.

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

/// The project's configuration with another entry in place of `unit`, in check and gate.
fn uses(entry: &str) -> String {
    PROJECT.replace("[unit", &format!("[{entry}"))
}

/// The project's configuration with a stanza more.
fn with(stanza: &str) -> String {
    format!("{PROJECT}{stanza}\n")
}

fn statuses(site: &Site, change: &ChangeKey) -> Vec<String> {
    let statuses = site.forge.change(change).unwrap().facts.statuses;
    statuses.iter().map(|status| format!("{} {}", status.context, status.state)).collect()
}

/// Returns how many reports a change has, and how often one was written.
fn reports(site: &Site, change: &ChangeKey) -> (usize, u32) {
    let comments = site.forge.change(change).unwrap().comments;
    (comments.len(), comments.values().map(|(_, times)| *times).sum())
}

/// What a change is told that proposes this configuration for org/one.
fn wrong() -> Vec<(&'static str, String, &'static str)> {
    let mine = |attributes: &str| with(&format!("- job: {{name: mine, {attributes}}}"));
    let of_node =
        |label: &str| mine(&format!("run: r, nodeset: {{nodes: [{{name: n, label: {label}}}]}}"));
    vec![
        ("J07", uses("last: {vars: {a: 1}}"), "Unable to modify final job"),
        ("J08", uses("frame"), "may not be directly run"),
        ("J09", uses("mine") + "- job: {name: mine, parent: half, run: r}\n", "is not abstract"),
        (
            "J10",
            uses("mine") + "- job: {name: mine, parent: guarded}\n",
            "is a protected job in a different project",
        ),
        ("X08", with("- job: {name: other, run: r}"), "not permitted to shadow job other"),
        ("X10", mine("parent: null, run: r"), "Base jobs may only be defined"),
        (
            "X11",
            with("- pipeline: {name: mine, manager: independent}"),
            "Pipelines may not be defined",
        ),
        (
            "X12",
            with("- project: {name: org/two, check: {jobs: [unit]}}"),
            "the only project definition permitted",
        ),
        (
            "X12",
            with("- project: {name: ^org/.*, check: {jobs: [unit]}}"),
            "the only project definition permitted",
        ),
        ("X13", of_node("big-one"), "Label named \"big-one\" is not part of the allowed"),
        ("C02", uses("nosuch"), "Job nosuch not defined"),
        ("C05", mine("vottng: true"), "syntax error"),
        ("C07", with("- job: ["), "syntax error"),
        ("C08", mine("secrets: nope"), "secret \"nope\" was not found"),
        ("C09", mine("nodeset: nope"), "nodeset \"nope\" was not found"),
        ("C10", mine("required-projects: org/nope"), "The project \"org/nope\" was not found"),
        ("C11", mine("parent: last"), "is final and can not act as a parent"),
    ]
}

/// J07, J08, J09, J10, X08, X10, X11, X12, X13, C02, C05, C07, C08, C09, C10, C11, Z4.5, Z6.6: what
/// is wrong with the configuration that a change proposes is told on the change, in one report of
/// each pipeline with a failure status and beside a line of its file; nothing is built, and it does
/// not merge.
#[test]
fn a_wrong_configuration_is_told_once_on_its_change_and_lands_nowhere() {
    let mut site = site();
    site.twice = true;
    let mut otherwise = Vec::new();
    for (number, (row, text, words)) in (1..).zip(wrong()) {
        let change = propose(&site, number, &[(".zuul.yaml", &text)]);
        site.run();
        let told = comments(&site, &change);
        let lines: Vec<String> =
            site.forge.change(&change).unwrap().lines.into_values().flatten().collect();
        let is_beside = lines.iter().all(|line| line.starts_with(".zuul.yaml:"));
        let is_beside = is_beside && lines.iter().any(|line| line.contains(words));
        let checked = (statuses(&site, &change).join(", "), reports(&site, &change));
        approve(&mut site, &[&change]);
        let gated = (statuses(&site, &change).join(", "), reports(&site, &change));
        let expected = ("demo/check failure".to_owned(), (1, 1));
        let in_gate = ("demo/check failure, demo/gate failure".to_owned(), (2, 2));
        if !told.contains(words) || !is_beside || checked != expected || gated != in_gate {
            otherwise
                .push(format!("{row}: {checked:?}, then {gated:?}: {told}\nbeside: {lines:?}"));
        }
    }
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n\n"));
    assert_eq!((merged(&site), site.builds()), (Vec::new(), Vec::<String>::new()));
    let main = site.forge.files("org/one", "main");
    assert_eq!(main[".zuul.yaml"], PROJECT);
    // And whoever proposes nothing of the kind is tested, on the same day in the same tenant.
    let fine = propose(&site, 90, &[("a", "x")]);
    approve(&mut site, &[&fine]);
    assert_eq!(
        (merged(&site), statuses(&site, &fine)),
        (vec![90], vec!["demo/check success".into(), "demo/gate success".into()])
    );
}

/// C02: an unknown job is told with its file and line, and the comment reaches from where its
/// stanza begins.
#[test]
fn an_unknown_job_is_commented_on_from_its_stanza_to_its_line() {
    let mut site = site();
    let text = "- job:\n    name: one\n    run: r.yaml\n\n- project:\n    name: org/one\n    check:\n      jobs:\n        - nosuch\n";
    let change = propose(&site, 1, &[(".zuul.yaml", text)]);
    site.run();
    assert_eq!(
        (statuses(&site, &change), site.builds()),
        (vec!["demo/check failure".to_owned()], Vec::new())
    );
    let kept = site.forge.change(&change).unwrap();
    let lines: Vec<&String> = kept.lines.values().flatten().collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with(".zuul.yaml:9: Job nosuch not defined"),
        "{lines:?}"
    );
    assert_eq!(kept.ranges.into_values().flatten().collect::<Vec<_>>(), [(5, 9)]);
}

/// X06: of three projects that run a job, those that it does not allow are told so on every change;
/// the one that it allows is tested.
#[test]
fn a_job_runs_for_the_projects_that_it_allows_and_no_others() {
    let mut site = site();
    let theirs = uses("ours") + THEIRS;
    for (project, text) in
        [("org/one", &uses("ours")), ("org/two", &theirs), ("org/bare", &uses("ours"))]
    {
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
        let told = comments(&site, change);
        assert!(
            told.contains(&format!("Project {project} is not allowed to run job ours")),
            "{told}"
        );
        assert_eq!(reports(&site, change), (1, 1), "{told}");
    }
}

/// C06, Z6.6: what a change to a config project brings is checked before it is merged, although
/// nothing runs with it; what is right merges, and holds from then on.
#[test]
fn a_config_projects_change_is_checked_before_it_is_merged() {
    let own = "- project: {check: {jobs: [noop]}, gate: {jobs: [noop]}}\n";
    let config = format!("{CONFIG}{own}");
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    let more = |stanza: &str| format!("{config}{stanza}\n");
    let wrong = [
        (more("- job: {name: a, vottng: true}"), "syntax error"),
        (more("- job: ["), "syntax error"),
        (more("- project: {name: org/one, check: {jobs: [nosuch]}}"), "Job nosuch not defined"),
        // What others stand on is missing afterwards, and they are named.
        (
            config.replace("- job: {name: unit, run: playbooks/unit.yaml}\n", ""),
            "Job unit not defined",
        ),
    ];
    for (number, (text, words)) in (1..).zip(wrong) {
        let change =
            site.forge.propose("org/config", number, "a change", "", &[("zuul.yaml", &text)]);
        site.run();
        let told = comments(&site, &change);
        assert!(told.contains(words) && reports(&site, &change) == (1, 1), "{told}");
        assert_eq!(statuses(&site, &change), ["demo/check failure"], "{told}");
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
