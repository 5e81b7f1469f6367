//! Properties of layouts: the documented order decides, and an overlay equals a full rebuild.

use crate::common::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sluice_config::fragment::{Fragment, parse};
use sluice_config::{
    BranchConfig, ConfigError, FreezeInput, Layout, LayoutSources, Scope, Source, SourceFile,
    TenantConfig, Trust,
};
use sluice_model::ProjectName;
use std::collections::BTreeMap;
use std::sync::Arc;

const MAIN: &str = "
- tenant:
    name: one
    source:
      github:
        config-projects: [org/config]
        untrusted-projects:
          - org/a: {include: [job, project, project-template, nodeset, secret, queue, semaphore, image, label]}
          - org/b: {extra-config-paths: [extra/, more.yaml], shadow: org/a}
          - org/c
";

const PROJECTS: [&str; 4] = ["org/config", "org/a", "org/b", "org/c"];
const BRANCHES: [&str; 3] = ["master", "stable", "old"];
const PATHS: [&str; 4] = ["zuul.d/a.yaml", "zuul.d/b.yaml", "extra/a.yaml", "more.yaml"];

/// A file as project, branch, path and text.
type Short = (&'static str, &'static str, &'static str, String);

fn name(prefix: &'static str) -> impl Strategy<Value = String> {
    (0..4u8).prop_map(move |number| format!("{prefix}{number}"))
}

/// Stanzas that often share names, and are sometimes invalid.
fn stanza() -> impl Strategy<Value = String> {
    let attribute = prop_oneof![
        4 => Just(String::new()),
        1 => Just(", final: true".to_owned()),
        1 => Just(", branches: stable".to_owned()),
        1 => Just(", abstract: true".to_owned()),
        1 => Just(", timeout: 60".to_owned()),
        2 => name("n").prop_map(|set| format!(", nodeset: {set}")),
        1 => name("s").prop_map(|secret| format!(", secrets: [{secret}]")),
        1 => Just(", auth: {secrets: []}".to_owned()),
        1 => select(&PROJECTS[..]).prop_map(|project| format!(", required-projects: [{project}]")),
        1 => Just(", vottng: true".to_owned()),
    ];
    let parent = prop_oneof![
        3 => Just(String::new()),
        2 => name("j").prop_map(|job| format!(", parent: {job}")),
        1 => Just(", parent: null".to_owned()),
    ];
    let job = (name("j"), parent, attribute)
        .prop_map(|(job, parent, more)| format!("- job: {{name: {job}{parent}{more}}}"));
    let whose = prop_oneof![
        4 => Just(String::new()),
        1 => Just("name: ^.*/[ab]$, ".to_owned()),
        1 => select(&PROJECTS[..]).prop_map(|project| format!("name: {project}, ")),
    ];
    let project = (whose, name("t"), name("j"), name("j"), name("q")).prop_map(|(whose, template, one, other, queue)| {
        format!("- project: {{{whose}templates: [{template}], queue: {queue}, check: {{jobs: [{one}]}}, gate: {{jobs: [{other}]}}}}")
    });
    prop_oneof![
        6 => job,
        3 => project,
        2 => (name("t"), name("j")).prop_map(|(template, job)| format!("- project-template: {{name: {template}, check: {{jobs: [{job}]}}}}")),
        2 => (name("n"), name("l")).prop_map(|(set, label)| format!("- nodeset: {{name: {set}, nodes: [{{name: node, label: {label}}}]}}")),
        1 => name("s").prop_map(|secret| format!("- secret: {{name: {secret}, data: {{a: b}}}}")),
        1 => (name("q"), any::<bool>()).prop_map(|(queue, each)| format!("- queue: {{name: {queue}, per-branch: {each}}}")),
        1 => (name("m"), 1..3u8).prop_map(|(semaphore, max)| format!("- semaphore: {{name: {semaphore}, max: {max}}}")),
        1 => select(vec!["check", "gate", "post"]).prop_map(|pipeline| format!("- pipeline: {{name: {pipeline}, manager: independent}}")),
        1 => (name("l"), 0..3u8).prop_map(|(label, ready)| format!("- label: {{name: {label}, min-ready: {ready}}}")),
        1 => Just("- section: {name: rack, connection: null}".to_owned()),
        1 => name("l").prop_map(|label| format!("- section: {{name: rack, connection: null, labels: [{label}], bogus: 1}}")),
        1 => name("l").prop_map(|label| format!("- provider: {{name: here, section: rack, labels: [{label}]}}")),
        1 => Just("- pragma: {implied-branch-matchers: false}".to_owned()),
        1 => Just("- jub: {name: x}".to_owned()),
    ]
}

fn file() -> impl Strategy<Value = Short> {
    let text = prop::collection::vec(stanza(), 0..5).prop_map(|stanzas| stanzas.join("\n"));
    (select(&PROJECTS[..]), select(&BRANCHES[..]), select(&PATHS[..]), text)
}

/// Files with distinct paths.
fn files(most: usize) -> impl Strategy<Value = Vec<Short>> {
    prop::collection::vec(file(), 0..most).prop_map(|files| {
        let by_path: BTreeMap<_, _> = files
            .into_iter()
            .map(|(project, branch, path, text)| ((project, branch, path), text))
            .collect();
        by_path
            .into_iter()
            .map(|((project, branch, path), text)| (project, branch, path, text))
            .collect()
    })
}

fn config() -> TenantConfig {
    tenant_of(MAIN).config
}

fn fragment((name, branch, path, text): &Short) -> Arc<Fragment> {
    let trust = if *name == "org/config" { Trust::Config } else { Trust::Untrusted };
    let source = Source {
        connection: "github".into(),
        project: project(name),
        branch: (*branch).into(),
        path: (*path).to_owned(),
        trust,
    };
    Arc::new(parse(&SourceFile { source, text: text.clone() }))
}

/// Returns the layout of these files with base pipelines and a base job.
fn build(
    files: &[Short],
    branches: &BTreeMap<ProjectName, Vec<sluice_model::BranchName>>,
) -> Layout {
    let base: Short = ("org/config", "master", "zuul.d/0.yaml", BASE.to_owned());
    let fragments = std::iter::once(&base).chain(files).map(fragment).collect();
    let connections = connections();
    Layout::build(LayoutSources {
        tenant: config(),
        connections,
        branches: branches.clone(),
        fragments,
    })
}

/// Removes suggestions from diagnostics: they depend on all existing names, and an overlay does not
/// recompute them.
fn diagnostics(errors: &[ConfigError]) -> Vec<ConfigError> {
    let plain = |error: &ConfigError| {
        let mut error = error.clone();
        error.diagnostic.suggestion = None;
        error
    };
    let mut errors: Vec<ConfigError> = errors.iter().map(plain).collect();
    errors.sort();
    errors
}

/// Returns everything that can be read from a layout, as text.
fn answers(layout: &Layout) -> Vec<String> {
    let mut found = vec![format!("{:?}\n{:?}", layout.pipelines(), layout.providers())];
    for name in PROJECTS {
        let name = project(name);
        for branch in BRANCHES {
            for pipeline in ["check", "gate", "post"] {
                let frozen = layout.freeze(&FreezeInput::change(pipeline, &name, branch));
                found.push(format!(
                    "{name} {branch} {pipeline}: {:?}",
                    frozen.map_err(|errors| diagnostics(&errors))
                ));
            }
        }
        found.push(format!("{:?} {:?}", layout.merge_mode(&name), layout.default_branch(&name)));
        found.push(format!(
            "{:?} {:?}",
            layout.queue(&name, "gate"),
            layout.project_pipelines(&name)
        ));
        found.push(format!("{:?}", layout.branches(&name)));
    }
    found.push(format!(
        "{:?}",
        (0..4).map(|number| layout.semaphore(&format!("m{number}")).1).collect::<Vec<_>>()
    ));
    found
}

fn same(one: &Layout, other: &Layout) -> Result<(), TestCaseError> {
    prop_assert_eq!(one.id(), other.id());
    prop_assert_eq!(diagnostics(one.errors()), diagnostics(other.errors()));
    for (one, other) in answers(one).iter().zip(answers(other)) {
        prop_assert_eq!(one, &other);
    }
    Ok(())
}

/// Returns proposals that replace the files of some branches.
fn proposals(edits: &[Short], also: &[(&'static str, &'static str)]) -> Vec<BranchConfig> {
    let mut by_branch: BTreeMap<(&str, &str), Vec<Arc<Fragment>>> = BTreeMap::new();
    for (name, branch) in also {
        by_branch.entry((name, branch)).or_default();
    }
    for edit in edits {
        by_branch.entry((edit.0, edit.1)).or_default().push(fragment(edit));
    }
    let config = |((name, branch), fragments): ((&str, &str), _)| BranchConfig {
        project: project(name),
        branch: branch.into(),
        fragments,
    };
    by_branch.into_iter().map(config).collect()
}

/// Returns the files after the proposals are merged.
fn edited(files: &[Short], edits: &[Short], also: &[(&'static str, &'static str)]) -> Vec<Short> {
    let is_replaced = |file: &Short| {
        edits.iter().any(|edit| (edit.0, edit.1) == (file.0, file.1))
            || also.contains(&(file.0, file.1))
    };
    files.iter().filter(|file| !is_replaced(file)).chain(edits).cloned().collect()
}

fn branches() -> BTreeMap<ProjectName, Vec<sluice_model::BranchName>> {
    BTreeMap::from([(project("org/c"), BRANCHES.iter().map(|branch| (*branch).into()).collect())])
}

proptest! {
    /// Z4.2: projects in the tenant's order, branches, `zuul.d` sorted, extra paths as listed.
    /// Nothing else affects the layout.
    #[test]
    fn files_given_in_any_order_make_the_same_layout(files in files(12), order in prop::collection::vec(any::<Index>(), 12)) {
        let mut shuffled = files.clone();
        for (place, index) in order.iter().enumerate().take(files.len()) {
            shuffled.swap(place, index.index(files.len()));
        }
        let (one, other) = (build(&files, &branches()), build(&shuffled, &branches()));
        same(&one, &other)?;
        prop_assert_eq!(one.errors(), other.errors());
    }

    /// Z6.6: a change is tested with the layout that its merge would create.
    #[test]
    fn an_overlay_equals_a_full_rebuild(
        files in files(10),
        edits in files(4),
        removed in prop::collection::vec((select(&PROJECTS[..]), select(&BRANCHES[..])), 0..2),
    ) {
        // The base file is not edited: without pipelines there would be little to compare.
        let removed: Vec<_> = removed.into_iter().filter(|one| *one != ("org/config", "master")).collect();
        let edits: Vec<Short> = edits.into_iter().filter(|edit| (edit.0, edit.1) != ("org/config", "master")).collect();
        let before = build(&files, &branches());
        let overlay = before.overlay(&proposals(&edits, &removed), Scope::ToValidate);
        let rebuilt = build(&edited(&files, &edits, &removed), &branches());
        same(&overlay, &rebuilt)?;
        prop_assert_eq!(diagnostics(&overlay.errors_since(&before)), diagnostics(&rebuilt.errors_since(&before)));
    }

    /// Z6.6: successive overlays equal one overlay with all proposals.
    #[test]
    fn an_overlay_of_an_overlay_keeps_what_was_proposed_first(files in files(8), first in files(3), second in files(3)) {
        let keep = |edits: Vec<Short>| -> Vec<Short> {
            edits.into_iter().filter(|edit| edit.0 != "org/config").collect()
        };
        let (first, second) = (keep(first), keep(second));
        let before = build(&files, &branches());
        let overlay = before.overlay(&proposals(&first, &[]), Scope::ToValidate);
        let overlay = overlay.overlay(&proposals(&second, &[]), Scope::ToValidate);
        same(&overlay, &build(&edited(&edited(&files, &first, &[]), &second, &[]), &branches()))?;
    }

    /// A stored layout equals the original.
    #[test]
    fn a_stored_layout_answers_as_before(files in files(10)) {
        let layout = build(&files, &branches());
        let stored = Layout::from_bytes(&layout.to_bytes()).unwrap();
        same(&layout, &stored)?;
        prop_assert_eq!(layout.errors(), stored.errors());
    }
}

/// Z6.6: a missing job that now has an invalid definition yields one diagnostic for the change.
#[test]
fn an_invalid_definition_does_not_repeat_the_diagnostic_of_the_missing_job() {
    let list: Short =
        ("org/a", "master", "zuul.d/a.yaml", "- project: {check: {jobs: [j3]}}".to_owned());
    let wrong: Short =
        ("org/b", "master", "zuul.d/a.yaml", "- job: {name: j3, vottng: true}".to_owned());
    let before = build(std::slice::from_ref(&list), &branches());
    let overlay = before.overlay(&proposals(std::slice::from_ref(&wrong), &[]), Scope::ToValidate);
    let rebuilt = build(&[list, wrong], &branches());
    for layout in [&overlay, &rebuilt] {
        let fresh: Vec<String> =
            layout.errors_since(&before).iter().map(|error| error.short_text()).collect();
        assert!(fresh.len() == 1 && fresh[0].contains("vottng"), "{fresh:?}");
        assert!(
            layout.errors().iter().any(|error| error.short_text().contains("could not be read"))
        );
    }
}

/// A file is parsed once per content, and reused from the layout.
#[test]
fn a_file_that_a_layout_has_is_not_parsed_again() {
    let file: Short = ("org/a", "master", "zuul.d/a.yaml", "- job: {name: j0}".to_owned());
    let layout = build(std::slice::from_ref(&file), &branches());
    let source =
        |text: &str| SourceFile { source: fragment(&file).source.clone(), text: text.to_owned() };
    let stored = layout.fragments().iter().find(|one| one.source.path == file.2).unwrap();
    assert!(Arc::ptr_eq(&layout.parse(&source(&file.3)), stored));
    assert_eq!(layout.parse(&source("- job: {name: j1}")).stanzas().count(), 1);
}

/// L3.3: proposed node objects are validated, but only take effect once merged.
#[test]
fn a_proposed_label_is_checked_and_not_used() {
    let label = |ready: u8| format!("- label: {{name: small, min-ready: {ready}}}\n");
    let provider = "- section: {name: rack, connection: null}\n- provider: {name: here, section: rack, labels: [small]}\n";
    let config: Short = ("org/config", "master", "zuul.d/p.yaml", provider.to_owned());
    let layout = build(&[config, ("org/a", "master", "zuul.d/a.yaml", label(1))], &branches());
    assert!(layout.errors().is_empty(), "{:#?}", layout.errors());
    let proposal = proposals(&[("org/a", "master", "zuul.d/a.yaml", label(2))], &[]);
    let ready = |layout: &Layout| layout.providers()[0].labels[0].min_ready;
    assert_eq!(ready(&layout.overlay(&proposal, Scope::UntrustedOnly)), 1);
    assert_eq!(ready(&layout.overlay(&proposal, Scope::ToValidate)), 2);
}
