//! Which branches definitions are chosen by where that is not the change's own: those that jobs
//! check out, and of a tag those that have its commit.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use sluice_config::FreezeInput;
use sluice_model::BranchName;

/// Returns from which branches the definitions of `lib`, of one project, and of `other`, of
/// another, are taken that the job `test` inherits from; what more is said of the job in its
/// definition and in its project's list is given.
fn taken_from(of_job: &str, of_entry: &str, branch: &str) -> String {
    let own = format!(
        "- job: {{name: test, parent: lib, run: r{of_job}}}\n- project: {{check: {{jobs: [test: {{voting: true{of_entry}}}]}}}}\n"
    );
    let mut tenant = tenant()
        .file("org/config", BASE)
        .at("org/project", branch, ".zuul.yaml", &own)
        .branches("org/project", &[branch])
        .branches("org/project1", &["master", "stable"])
        .branches("org/project2", &["master", "stable"]);
    for on in ["master", "stable"] {
        let job = |name: &str, parent: &str| {
            format!("- job: {{name: {name}, parent: {parent}, run: r, vars: {{{name}: {on}}}}}\n")
        };
        tenant = tenant.at("org/project1", on, ".zuul.yaml", &job("lib", "other")).at(
            "org/project2",
            on,
            ".zuul.yaml",
            &job("other", "base"),
        );
    }
    let (layout, name) = (tenant.sound(), project("org/project"));
    let graph = layout.freeze(&FreezeInput::change("check", &name, branch)).unwrap();
    let Some(job) = graph.jobs.first() else { return "nothing".to_owned() };
    let from = |name: &str| job.vars[name].as_str().unwrap().to_owned();
    format!("{} {}", from("lib"), from("other"))
}

/// J03, Z4.3: what a job checks out of a project chooses the definitions of that project; what is
/// checked out of all, those of every project that has the branch.
#[test]
fn what_is_checked_out_of_a_project_chooses_its_definitions() {
    let one = ", required-projects: [{name: org/project1, override-checkout: stable}]";
    let two = ", required-projects: [{name: org/project1, override-checkout: stable}, {name: org/project2, override-checkout: stable}]";
    let other = ", required-projects: [{name: org/project1, override-checkout: master}]";
    let gone = ", required-projects: [{name: org/project1, override-checkout: gone}]";
    let plain = ", required-projects: [org/project1]";
    let all = ", override-checkout: stable";
    let (all_but, all_but_gone) = (format!("{all}{other}"), format!("{all}{gone}"));
    // What the job and its entry say, the change's branch; the branches of `lib` and `other`.
    let rows = [
        ("", "", "master", "master master"),
        ("", "", "devel", "nothing"),
        (plain, "", "devel", "nothing"),
        (one, "", "master", "stable master"),
        ("", one, "master", "stable master"),
        (one, "", "devel", "nothing"),
        (two, "", "devel", "stable stable"),
        ("", two, "devel", "stable stable"),
        (all, "", "devel", "stable stable"),
        (all, plain, "devel", "stable stable"),
        (all_but.as_str(), "", "devel", "master stable"),
        (all, other, "devel", "master stable"),
        // A branch that a project does not have chooses nothing there.
        (", override-checkout: gone", "", "master", "master master"),
        (gone, "", "master", "master master"),
        (all_but_gone.as_str(), "", "master", "stable stable"),
    ];
    for (of_job, of_entry, branch, expected) in rows {
        assert_eq!(
            taken_from(of_job, of_entry, branch),
            expected,
            "{of_job:?} {of_entry:?} {branch}"
        );
    }
}

/// J03, Z4.3: a job is not chosen by what it checks out itself, and neither is another that
/// inherits from the same.
#[test]
fn what_a_job_checks_out_chooses_those_that_it_inherits_from() {
    let own = "
- job: {name: one, parent: lib, override-checkout: stable}
- job: {name: two, parent: lib}
- project: {check: {jobs: [one, two]}}
";
    let lib = |on: &str| format!("- job: {{name: lib, run: r, vars: {{lib: {on}}}}}\n");
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project", own)
        .branches("org/project", &["master", "stable"])
        .file("org/project1", &lib("master"))
        .at("org/project1", "stable", ".zuul.yaml", &lib("stable"))
        .branches("org/project1", &["master", "stable"])
        .sound();
    let graph =
        layout.freeze(&FreezeInput::change("check", &project("org/project"), "master")).unwrap();
    let from: Vec<&str> = graph.jobs.iter().map(|job| job.vars["lib"].as_str().unwrap()).collect();
    assert_eq!(from, ["stable", "master"]);
}

/// Z4.2: what is for a branch that has a tag's commit is for the tag, and so is what names it by
/// its ref; where nobody knows which branches have it, each may be meant.
#[test]
fn a_tag_has_what_is_said_for_the_branches_that_have_its_commit() {
    let central = "
- job: {name: everywhere, run: r}
- job: {name: of-stable, branches: stable, run: r}
- job: {name: of-tag, branches: ^refs/tags/1, run: r}
- job: {name: of-other-tag, branches: ^refs/tags/2, run: r}
- project: {name: org/project, check: {jobs: [everywhere, of-stable, of-tag, of-other-tag, pinned]}}
";
    let own = |on: &str| {
        format!(
            "- job: {{name: own-{on}, run: r}}\n- job: {{name: own, run: r, vars: {{from: {on}}}}}\n- project: {{check: {{jobs: [own, own-{on}]}}}}\n"
        )
    };
    // It names the tag and a branch, and counts only where the branch that it stands on has the
    // commit.
    let pinned = "- job: {name: pinned, branches: [^refs/tags/1, master], run: r}\n";
    let layout = tenant()
        .file("org/config", &format!("{BASE}{central}"))
        .file("org/project", &own("master"))
        .at("org/project", "stable", ".zuul.yaml", &format!("{}{pinned}", own("stable")))
        .branches("org/project", &["master", "stable", "empty"])
        .sound();
    let name = project("org/project");
    let rows: [(Option<&[&str]>, &[&str]); 6] = [
        (Some(&["master"]), &["everywhere", "of-tag", "own from master", "own-master"]),
        (
            Some(&["stable"]),
            &["everywhere", "of-stable", "of-tag", "pinned", "own from stable", "own-stable"],
        ),
        (
            Some(&["master", "stable"]),
            &[
                "everywhere",
                "of-stable",
                "of-tag",
                "pinned",
                "own from stable",
                "own-master",
                "own-stable",
            ],
        ),
        (Some(&["empty"]), &["everywhere", "of-tag"]),
        (Some(&[]), &["everywhere", "of-tag"]),
        (None, &["everywhere", "of-tag", "pinned", "own from stable", "own-master", "own-stable"]),
    ];
    for (containing, expected) in rows {
        let branches: Option<Vec<BranchName>> =
            containing.map(|names| names.iter().map(|name| BranchName::from(*name)).collect());
        let input = FreezeInput {
            branch: None,
            containing: branches.as_deref(),
            git_ref: "refs/tags/1.0",
            ..FreezeInput::change("check", &name, "")
        };
        let graph = layout.freeze(&input).unwrap();
        let told = graph.jobs.iter().map(|job| {
            match job.vars.get("from").and_then(|from| from.as_str()) {
                Some(from) => format!("{} from {from}", job.name),
                None => job.name.to_string(),
            }
        });
        assert_eq!(told.collect::<Vec<String>>(), expected, "{containing:?}");
    }
}

/// Z4.2, Z4.7: why something counts for nothing for a tag is told in words of tags.
#[test]
fn what_is_left_out_for_a_tag_is_told_by_the_branches_that_have_its_commit() {
    let central = "
- job: {name: unit, run: r}
- job: {name: unit, branches: stable, vars: {a: b}}
- project: {name: org/project, check: {jobs: [unit]}}
";
    let own = "- job: {name: own, run: r}\n- project: {check: {jobs: [own]}}\n";
    let layout = tenant()
        .file("org/config", &format!("{BASE}{central}"))
        .at("org/project", "stable", ".zuul.yaml", own)
        .branches("org/project", &["master", "stable"])
        .sound();
    let (name, containing) = (project("org/project"), [BranchName::from("master")]);
    let input = FreezeInput {
        branch: None,
        containing: Some(&containing),
        git_ref: "refs/tags/1.0",
        ..FreezeInput::change("check", &name, "")
    };
    let (_, trace) = layout.freeze_with_trace(&input);
    let told: Vec<String> = trace.iter().map(ToString::to_string).collect();
    let told = told.join("\n");
    for why in [
        "left out, its branches match neither refs/tags/1.0 nor a branch that has its commit",
        "its stanza is for stable, which does not have the commit of refs/tags/1.0",
    ] {
        assert!(told.contains(why), "{why} is missing from:\n{told}");
    }
}

/// Z4.2, Z6.2: of a tag, what a stanza for some branches says of the pipeline holds where one of
/// them has its commit.
#[test]
fn a_tags_branches_choose_what_its_project_says_of_the_pipeline() {
    let own = |said: &str| format!("- project: {{check: {{jobs: [noop]{said}}}}}\n");
    let layout = tenant()
        .file("org/config", BASE)
        .file("org/project", &own(""))
        .at("org/project", "stable", ".zuul.yaml", &own(", fail-fast: true, debug: true"))
        .branches("org/project", &["master", "stable"])
        .sound();
    let name = project("org/project");
    for (branch, expected) in [("master", false), ("stable", true)] {
        let containing = [BranchName::from(branch)];
        let input = FreezeInput {
            branch: None,
            containing: Some(&containing),
            git_ref: "refs/tags/1.0",
            ..FreezeInput::change("check", &name, "")
        };
        assert_eq!(
            (layout.fail_fast(&input), layout.debug(&input)),
            (expected, expected),
            "{branch}"
        );
    }
}
