//! Variants that are matched by a branch other than the change's: the branch that a job checks out,
//! or the branches that contain a tag.

use crate::common::*;
use sluice_config::FreezeInput;
use sluice_model::BranchName;

/// Returns the branches that supply the definitions of the parents `lib` (same project) and `other`
/// (another project) of the job `test`. `of_job` and `of_entry` are further attributes of the job
/// and its entry.
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

/// J03, Z4.3: `override-checkout` of a required project selects the definitions of that project.
/// That of the job selects those of every project with the branch.
#[test]
fn override_checkout_of_a_project_selects_its_definitions() {
    let one = ", required-projects: [{name: org/project1, override-checkout: stable}]";
    let two = ", required-projects: [{name: org/project1, override-checkout: stable}, {name: org/project2, override-checkout: stable}]";
    let other = ", required-projects: [{name: org/project1, override-checkout: master}]";
    let gone = ", required-projects: [{name: org/project1, override-checkout: gone}]";
    let plain = ", required-projects: [org/project1]";
    let all = ", override-checkout: stable";
    let (all_but, all_but_gone) = (format!("{all}{other}"), format!("{all}{gone}"));
    // Attributes of the job and its entry, the change's branch, and the branches of `lib` and
    // `other`.
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
        // A branch that the project does not have selects nothing.
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

/// J03, Z4.3: the override selects the definitions of the job's parents, not its own definition.
#[test]
fn override_checkout_selects_the_definitions_of_parents() {
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

/// Z4.2: a definition for a branch that contains the tag's commit applies to the tag. If the
/// containing branches are unknown, all apply.
#[test]
fn a_tag_uses_definitions_of_branches_that_contain_its_commit() {
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
    // It names the tag and a branch, and applies only if its own branch contains the commit.
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
        let jobs = graph.jobs.iter().map(|job| {
            match job.vars.get("from").and_then(|from| from.as_str()) {
                Some(from) => format!("{} from {from}", job.name),
                None => job.name.to_string(),
            }
        });
        assert_eq!(jobs.collect::<Vec<String>>(), expected, "{containing:?}");
    }
}

/// Z4.2, Z4.7: the trace explains in terms of tags why a definition does not apply.
#[test]
fn a_trace_names_the_branches_that_contain_a_tag() {
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
    let lines: Vec<String> = trace.iter().map(ToString::to_string).collect();
    let lines = lines.join("\n");
    for why in [
        "not applied, its branches match neither refs/tags/1.0 nor a branch that contains it",
        "its stanza applies to branch stable, which does not contain refs/tags/1.0",
    ] {
        assert!(lines.contains(why), "{why} is missing from:\n{lines}");
    }
}

/// Z4.2, Z6.2: a stanza for some branches applies to a tag if one of them contains its commit.
#[test]
fn a_tag_uses_pipeline_entries_of_branches_that_contain_it() {
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

/// Z4.2: the name of a branch is no pattern, whatever signs it has.
#[test]
fn a_branch_name_with_signs_of_patterns_matches_itself_alone() {
    for (name, alike) in [
        ("release-1.0", "release-1x0"),
        ("release-1.0", "release-1.00"),
        ("release-1.0", "my/release-1.0"),
        ("c++", "ccc"),
        ("(a|b)", "a"),
        ("a{2}", "aa"),
        ("a$", "a"),
    ] {
        let layout = tenant()
            .file("org/config", BASE)
            .at(
                "org/project",
                name,
                ".zuul.yaml",
                "- job: {name: own, run: r}\n- project: {check: {jobs: [own]}}\n",
            )
            .branches("org/project", &["master", name, alike])
            .sound();
        let of_project = project("org/project");
        let runs = |branch: &str| {
            let frozen = layout.freeze(&FreezeInput::change("check", &of_project, branch));
            frozen.is_ok_and(|graph| !graph.jobs.is_empty())
        };
        assert!(runs(name), "{name}");
        assert!(!runs(alike), "{name} {alike}");
    }
}
