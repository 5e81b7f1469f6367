//! The order in which configuration counts (Z4.2): wherever two definitions say something, the
//! later one wins.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use sluice_config::{FreezeInput, Layout, Scope};
use sluice_model::git::MergeMode;

/// Returns what the last definition of the job `test` says, of those whose pragma binds them to no
/// branch.
fn last(layout: &Layout) -> String {
    let name = project("org/project");
    let graph = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap();
    job(&graph, "test").vars["from"].as_str().unwrap().to_owned()
}

/// A definition of the job that says where it stands, and holds everywhere.
fn saying(place: &str) -> String {
    format!(
        "- pragma: {{implied-branch-matchers: false}}\n- job: {{name: test, run: r, vars: {{from: {place}}}}}\n"
    )
}

const LIST: &str = "- project: {name: org/project, check: {jobs: [test]}}\n";

/// Z4.2: branches count with the default one first, as its forge calls it, and then by name;
/// whatever the default is called.
#[test]
fn the_default_branch_counts_first_and_then_the_others_by_name() {
    // The branches as the forge has them, the default one first; the branch whose word is the last.
    let rows: [(&[&str], &str); 6] = [
        (&["master", "stable"], "stable"),
        (&["master", "a", "z"], "z"),
        (&["trunk", "master", "stable"], "stable"),
        (&["zebra", "master"], "master"),
        (&["stable", "main", "master"], "master"),
        (&["z", "a"], "a"),
    ];
    for (branches, wins) in rows {
        let mut tenant =
            tenant().file("org/config", &format!("{BASE}{LIST}")).branches("org/project", branches);
        for branch in branches.iter().rev() {
            tenant = tenant.at("org/project", branch, ".zuul.yaml", &saying(branch));
        }
        assert_eq!(last(&tenant.sound()), wins, "{branches:?}");
    }
}

/// Z4.2: a branch that a project's stanza calls the default counts first. Of two words the first
/// one counts, by the order that the forge's default makes; one for a branch that is not there
/// changes nothing, and what is proposed does once it is merged.
#[test]
fn a_default_branch_that_a_stanza_names_counts_first() {
    let of_branch = |branch: &str, said: &[(&str, &str)]| {
        let own = said.iter().filter(|(by, _)| *by == branch);
        own.fold(saying(branch), |text, (_, word)| {
            format!("{text}- project: {{default-branch: {word}}}\n")
        })
    };
    let with = |central: &str, said: &[(&str, &str)]| {
        let list =
            format!("{BASE}- project: {{name: org/project{central}, check: {{jobs: [test]}}}}\n");
        let mut tenant =
            tenant().file("org/config", &list).branches("org/project", &["master", "a", "z"]);
        for branch in ["z", "a", "master"] {
            tenant = tenant.at("org/project", branch, ".zuul.yaml", &of_branch(branch, said));
        }
        tenant
    };
    let name = project("org/project");
    let seen = |layout: &Layout| (last(layout), layout.default_branch(&name).to_string());
    // What the config project says, and which branch says what; the branch whose word is the last,
    // and the default.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);
    let rows: [Row<'_>; 7] = [
        ("", &[], "z", "master"),
        ("", &[("master", "z")], "master", "z"),
        ("", &[("z", "z")], "master", "z"),
        ("", &[("z", "a")], "z", "a"),
        ("", &[("master", "a"), ("a", "z")], "z", "a"),
        (", default-branch: z", &[("master", "a")], "master", "z"),
        ("", &[("a", "gone")], "z", "gone"),
    ];
    for (central, said, wins, default) in rows {
        let layout = with(central, said).sound();
        assert_eq!(seen(&layout), (wins.to_owned(), default.to_owned()), "{central} {said:?}");
        let stored = Layout::from_bytes(&layout.to_bytes()).unwrap();
        assert_eq!(seen(&stored), seen(&layout), "{central} {said:?}");
    }
    let tenant = with("", &[]);
    let proposed =
        tenant.proposal("org/project", "master", &of_branch("master", &[("master", "z")]));
    let overlay = tenant.sound().overlay(&[proposed], Scope::UntrustedOnly);
    assert_eq!(seen(&overlay), ("z".to_owned(), "z".to_owned()));
}

/// Z4.2: where nobody says which branch is the default, master or main are taken for it.
#[test]
fn without_a_word_of_the_forge_master_counts_first() {
    let tenant = tenant()
        .file("org/config", &format!("{BASE}{LIST}"))
        .at("org/project", "a", ".zuul.yaml", &saying("a"))
        .at("org/project", "master", ".zuul.yaml", &saying("master"));
    assert_eq!(last(&tenant.sound()), "a");
}

/// Z2.4, Z4.2: files of `zuul.d` count by name, those of folders in between; the tenant's extra
/// paths come after, as it lists them.
#[test]
fn files_count_by_name_and_extra_paths_after_them() {
    let main = "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects:\n          - org/project:\n              extra-config-paths: [later/, a.yaml]\n";
    // Paths in any order; the one whose word is the last.
    let rows: [(&[&str], &str); 6] = [
        (&["zuul.d/b.yaml", "zuul.d/a.yaml"], "zuul.d/b.yaml"),
        (&["zuul.d/b.yaml", "zuul.d/a/z.yaml"], "zuul.d/b.yaml"),
        (&["zuul.d/b.yaml", "zuul.d/c/a.yaml"], "zuul.d/c/a.yaml"),
        (&["later/a.yaml", "zuul.d/z.yaml"], "later/a.yaml"),
        (&["a.yaml", "later/z.yaml", "zuul.d/z.yaml"], "a.yaml"),
        (&["later/b.yaml", "later/a.yaml"], "later/b.yaml"),
    ];
    for (paths, wins) in rows {
        let mut tenant = tenant_of(main).file("org/config", &format!("{BASE}{LIST}"));
        for path in paths {
            tenant = tenant.at("org/project", "master", path, &saying(path));
        }
        assert_eq!(last(&tenant.sound()), wins, "{paths:?}");
    }
}

/// Z4.2: projects count as the tenant lists them: a job is the first's, and variants of a project's
/// list come in the same order, config projects before the others.
#[test]
fn projects_count_in_the_order_of_the_tenant() {
    let with = |lists: &str, first: &str, second: &str| {
        let main = format!("- tenant:\n    name: one\n    source:\n      github: {{{lists}}}\n");
        let entry = |place: &str| {
            format!(
                "- project: {{name: org/project, check: {{jobs: [test: {{vars: {{from: {place}}}}}]}}}}\n"
            )
        };
        let layout = tenant_of(&main)
            .file("org/config", &format!("{BASE}- job: {{name: test, run: r}}\n"))
            .file(second, &entry(second))
            .file(first, &entry(first))
            .sound();
        last(&layout)
    };
    let one = "config-projects: [org/config, org/a, org/b], untrusted-projects: [org/project]";
    let other = "config-projects: [org/config, org/b, org/a], untrusted-projects: [org/project]";
    assert_eq!(with(one, "org/a", "org/b"), "org/b");
    assert_eq!(with(other, "org/a", "org/b"), "org/a");
    // The project's own word comes after every config project's, wherever it is listed.
    let before = "untrusted-projects: [org/project], config-projects: [org/config, org/a]";
    assert_eq!(with(before, "org/a", "org/project"), "org/project");
}

/// Z4.2, Z6.2: what an expression says of a project counts after all that names it, wherever each
/// stands; stanzas of one expression count together, where the first of them stands.
#[test]
fn a_stanza_with_an_expression_counts_after_those_that_name_the_project() {
    let text = "
- job: {name: test, run: r}
- job: {name: other, run: r}
- project: {name: '^org/p.*', queue: all, merge-mode: rebase, default-branch: all, check: {jobs: [other, test: {vars: {from: all}}]}}
- project: {name: '^org/.*', check: {jobs: [test: {vars: {from: wider}}]}}
- project: {name: org/project, queue: own, merge-mode: squash-merge, default-branch: own, check: {jobs: [test: {vars: {from: own}}]}}
- project: {name: '^org/p.*', check: {jobs: [test: {vars: {from: again}}]}}
";
    let tenant = tenant().file("org/config", &format!("{BASE}{text}"));
    let proposed = "- project: {check: {jobs: [test: {vars: {from: proposed}}]}}\n";
    let proposed = tenant.proposal("org/project", "master", proposed);
    let layout = tenant.sound();
    let stored = Layout::from_bytes(&layout.to_bytes()).unwrap();
    let overlay = layout.overlay(&[proposed], Scope::UntrustedOnly);
    for layout in [&layout, &stored, &overlay] {
        let said = |name: &str| {
            let name = project(name);
            let graph = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap();
            let queue = layout.queue(&name, "check").name.to_string();
            let default = layout.default_branch(&name).to_string();
            (queue, layout.merge_mode(&name), default, names(&graph).join(" "))
        };
        let own =
            ("own".to_owned(), MergeMode::SquashMerge, "own".to_owned(), "test other".to_owned());
        let all = ("all".to_owned(), MergeMode::Rebase, "all".to_owned(), "other test".to_owned());
        assert_eq!((said("org/project"), said("org/project1")), (own, all));
        assert_eq!(last(layout), "wider");
    }
}

/// Z4.2, Z6.2: by the same order one of several expressions names the default branch, for whoever
/// asks and for the order of files.
#[test]
fn of_several_expressions_the_first_that_says_so_names_the_default_branch() {
    let text = "
- project: {name: '^org/p.*', check: {jobs: [test]}}
- project: {name: '^org/.*', default-branch: a}
- project: {name: '^org/p.*', default-branch: z}
";
    let branches = ["master", "a", "z"];
    let mut tenant =
        tenant().file("org/config", &format!("{BASE}{text}")).branches("org/project", &branches);
    for branch in branches {
        tenant = tenant.at("org/project", branch, ".zuul.yaml", &saying(branch));
    }
    let proposed = tenant.proposal(
        "org/project",
        "master",
        &format!("{}- project: {{check: {{jobs: []}}}}\n", saying("master")),
    );
    let layout = tenant.sound();
    let stored = Layout::from_bytes(&layout.to_bytes()).unwrap();
    let overlay = layout.overlay(&[proposed], Scope::UntrustedOnly);
    for layout in [&layout, &stored, &overlay] {
        let default = layout.default_branch(&project("org/project")).to_string();
        assert_eq!((default.as_str(), last(layout).as_str()), ("z", "master"));
    }
}

/// Z6.4: a project has one merge mode: the first that is said of it in the order of configuration,
/// in whichever branch.
#[test]
fn a_project_has_one_merge_mode_whichever_branch_says_it() {
    let mode = |said: &[(&str, &str)]| {
        let mut tenant = tenant()
            .file("org/config", BASE)
            .branches("org/project", &["master", "devel", "stable"]);
        for (branch, stanza) in said {
            tenant = tenant.at(
                "org/project",
                branch,
                ".zuul.yaml",
                &format!("- project: {{{stanza}}}\n"),
            );
        }
        tenant.sound().merge_mode(&project("org/project"))
    };
    let (rebase, squash) = ("merge-mode: rebase", "merge-mode: squash-merge");
    assert_eq!(mode(&[("stable", rebase)]), MergeMode::Rebase);
    assert_eq!(mode(&[("stable", rebase), ("master", squash)]), MergeMode::SquashMerge);
    assert_eq!(
        mode(&[("stable", rebase), ("devel", squash), ("master", "check: {jobs: []}")]),
        MergeMode::SquashMerge
    );
    assert_eq!(mode(&[("master", "branches: stable, merge-mode: rebase")]), MergeMode::Rebase);
    assert_eq!(mode(&[]), MergeMode::Merge);
}

/// Z4.2: the branch that stands in for a change's own is the one that the project's stanza names,
/// or the forge's default.
#[test]
fn a_projects_default_branch_is_said_or_the_forges() {
    let name = project("org/project");
    let with = |text: &str, branches: &[&str]| {
        let tenant =
            tenant().file("org/config", BASE).at("org/project", "trunk", ".zuul.yaml", text);
        let tenant =
            if branches.is_empty() { tenant } else { tenant.branches("org/project", branches) };
        tenant.sound().default_branch(&name).to_string()
    };
    assert_eq!(with("- project: {default-branch: devel}\n", &["trunk", "devel"]), "devel");
    assert_eq!(with("- project: {check: {jobs: []}}\n", &["trunk", "master"]), "trunk");
    assert_eq!(with("- project: {check: {jobs: []}}\n", &[]), "master");
}
