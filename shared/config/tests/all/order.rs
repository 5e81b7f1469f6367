//! The order in which configuration is applied (Z4.2): the last of several definitions wins.

use crate::common::*;
use sluice_config::{FreezeInput, Layout, Scope};
use sluice_model::git::MergeMode;

/// Returns the value of the last definition of the job `test`. A pragma keeps the definitions
/// independent of branches.
fn last(layout: &Layout) -> String {
    let name = project("org/project");
    let graph = layout.freeze(&FreezeInput::change("check", &name, "master")).unwrap();
    job(&graph, "test").vars["from"].as_str().unwrap().to_owned()
}

/// A definition of the job that names its own location and applies to all branches.
fn saying(place: &str) -> String {
    format!(
        "- pragma: {{implied-branch-matchers: false}}\n- job: {{name: test, run: r, vars: {{from: {place}}}}}\n"
    )
}

const LIST: &str = "- project: {name: org/project, check: {jobs: [test]}}\n";

/// Z4.2: the forge's default branch is applied first, the others by name, whatever the default is
/// called.
#[test]
fn the_default_branch_counts_first_and_then_the_others_by_name() {
    // The branches as listed by the forge, the default first; the branch that is applied last.
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

/// Z4.2: a default branch set in a project stanza is applied first. The first such stanza counts.
/// An unknown branch has no effect, and a proposal has one once merged.
#[test]
fn a_default_branch_set_in_a_stanza_is_applied_first() {
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
    // The config project's stanza, the branches and their stanzas, the branch applied last, and the
    // default.
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

/// Z4.2: if the forge reports no default branch, master or main is used.
#[test]
fn without_a_default_branch_of_the_forge_master_is_used() {
    let tenant = tenant()
        .file("org/config", &format!("{BASE}{LIST}"))
        .at("org/project", "a", ".zuul.yaml", &saying("a"))
        .at("org/project", "master", ".zuul.yaml", &saying("master"));
    assert_eq!(last(&tenant.sound()), "a");
}

/// Z2.4, Z4.2: files of `zuul.d` are applied by path; the tenant's extra paths follow in the listed
/// order.
#[test]
fn files_count_by_name_and_extra_paths_after_them() {
    let main = "- tenant:\n    name: one\n    source:\n      github:\n        config-projects: [org/config]\n        untrusted-projects:\n          - org/project:\n              extra-config-paths: [later/, a.yaml]\n";
    // Paths in any order, and the one applied last.
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

/// Z4.2: projects are applied in the tenant's order, config projects first.
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
    // The project's own definition follows those of all config projects.
    let before = "untrusted-projects: [org/project], config-projects: [org/config, org/a]";
    assert_eq!(with(before, "org/a", "org/project"), "org/project");
}

/// Z4.2, Z6.2: a project stanza with a pattern is applied after those with the project's name.
/// Stanzas of one pattern are applied at the place of the first.
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

/// Z4.2, Z6.2: the first of several patterns that sets the default branch counts, for lookups and
/// for the order of files.
#[test]
fn the_first_pattern_that_sets_the_default_branch_counts() {
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

/// Z6.4: a project has one merge mode: the first that is set in configuration order, in any branch.
#[test]
fn the_first_merge_mode_of_a_project_counts_in_any_branch() {
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

/// Z4.2: the default branch is the one set in the project's stanza, or else the forge's.
#[test]
fn the_default_branch_is_that_of_the_stanza_or_the_forges() {
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
