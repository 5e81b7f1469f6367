//! OpenStack's configuration, if its data are next to the checkout, compared with PyYAML and a
//! stored file rather than the loader.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

use serde_json::Value;
use sluice_config::fragment::{Fragment, Source, SourceFile, config_paths, parse};
use sluice_config::{
    Connections, DiagnosticKind, Driver, FreezeInput, Layout, LayoutSources, Severity, parse_main,
};
use sluice_model::ProjectName;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Repositories with data, in the tenant's order.
const REPOSITORIES: [&str; 2] = ["project-config", "openstack-zuul-jobs"];

/// Returns the folder of the data. If it is missing, the test fails, unless `SLUICE_WAIVE` contains
/// `openstack`.
fn data() -> Option<PathBuf> {
    let given = std::env::var_os("SLUICE_TEST_DATA").map(PathBuf::from);
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = given.unwrap_or(default).join("real-config/openstack");
    if folder.is_dir() {
        return Some(folder);
    }
    let missing = "no ../shared/data/real-config/openstack next to the checkout and none in SLUICE_TEST_DATA, so \
                   OpenStack's configuration was not loaded";
    common::waived("openstack", missing);
    None
}

struct Loaded {
    files: BTreeMap<String, Arc<Fragment>>,
    layout: Layout,
}

fn load(folder: &Path) -> Loaded {
    load_with(folder, &[])
}

/// Loads the data, and stand-ins for missing repositories (project and text).
fn load_with(folder: &Path, stand_ins: &[(&str, String)]) -> Loaded {
    let connections = Connections::new()
        .with("gerrit", Driver::Gerrit, "opendev.org")
        .with("github", Driver::GitHub, "github.com")
        .with("googlesource", Driver::Git, "gerrit.googlesource.com")
        .with("opendaylight", Driver::Gerrit, "git.opendaylight.org")
        .with("gitlab", Driver::GitLab, "gitlab.com")
        .with("smtp", Driver::Smtp, "")
        .with("mqtt", Driver::Mqtt, "");
    let main = std::fs::read_to_string(folder.join("project-config/zuul/main.yaml")).unwrap();
    let (config, errors) = parse_main("zuul/main.yaml", &main, &connections);
    assert!(errors.is_empty(), "{errors:#?}");
    let tenant =
        config.tenants.into_iter().find(|tenant| tenant.name.as_str() == "openstack").unwrap();
    let mut files = BTreeMap::new();
    for repository in REPOSITORIES {
        let root = folder.join(repository);
        let name = ProjectName::new("opendev.org", &format!("openstack/{repository}"));
        let trust = tenant.project(&name).unwrap().trust;
        let entries = std::fs::read_dir(root.join("zuul.d")).unwrap();
        let paths: Vec<String> = entries
            .map(|entry| format!("zuul.d/{}", entry.unwrap().file_name().to_str().unwrap()))
            .collect();
        for path in config_paths(paths.iter().map(String::as_str), &[]) {
            let source = Source {
                connection: "gerrit".into(),
                project: name.clone(),
                branch: "master".into(),
                path: path.to_owned(),
                trust,
            };
            let text = std::fs::read_to_string(root.join(path)).unwrap();
            files.insert(
                format!("{repository}/{path}"),
                Arc::new(parse(&SourceFile { source, text })),
            );
        }
    }
    let stand_ins = stand_ins.iter().map(|(name, text)| {
        let name = ProjectName::new("opendev.org", name);
        let trust = tenant.project(&name).unwrap().trust;
        let path = "zuul.d/stand-ins.yaml".to_owned();
        let source = Source {
            connection: "gerrit".into(),
            project: name,
            branch: "master".into(),
            path,
            trust,
        };
        Arc::new(parse(&SourceFile { source, text: text.clone() }))
    });
    let fragments = files.values().cloned().chain(stand_ins).collect();
    let layout =
        Layout::build(LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments });
    Loaded { files, layout }
}

/// Returns the output of `facts.py` for an operation, with the PyYAML of the executor's environment
/// or else the system's.
fn pyyaml(what: &str, folder: &Path) -> Value {
    let prefix = std::env::var_os("SLUICE_ANSIBLE_PREFIX")
        .map_or_else(|| "/opt/sluice/ansible".into(), PathBuf::from);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openstack/facts.py");
    for python in [prefix.join("11/bin/python"), "python3".into()] {
        let found = Command::new(&python).arg("-B").arg(script).arg(what).arg(folder).output();
        if let Ok(found) = found
            && found.status.success()
        {
            return serde_json::from_slice(&found.stdout).unwrap();
        }
    }
    panic!("no Python has PyYAML; infra/executor/install.sh installs one");
}

/// Z6.7: every stanza that PyYAML counts is read; only stanzas that refer to missing data are
/// refused.
#[test]
fn every_stanza_is_read_and_only_references_to_missing_data_are_refused() {
    let Some(folder) = data() else { return };
    let (loaded, facts) = (load(&folder), pyyaml("count", &folder));
    let counted = facts["stanzas"].as_object().unwrap();
    assert_eq!(
        counted.keys().collect::<BTreeSet<_>>(),
        loaded.files.keys().collect::<BTreeSet<_>>()
    );
    for (path, fragment) in &loaded.files {
        let refused: BTreeSet<_> =
            fragment.diagnostics.iter().map(|problem| &problem.stanza).collect();
        let read = fragment.stanzas().count() + refused.len();
        assert_eq!(
            Some(read as u64),
            counted[path].as_u64(),
            "stanzas of {path}: {:#?}",
            fragment.diagnostics
        );
        assert!(
            refused.is_empty(),
            "{path} has nothing that is wrong by itself: {:#?}",
            fragment.diagnostics
        );
    }
    let is_defined = |kind: &str, name: &str| {
        facts["names"][kind]
            .as_array()
            .into_iter()
            .flatten()
            .any(|known| known.as_str() == Some(name))
    };
    let kinds = [
        ("The project template \"", "\" was not found.", "project-template"),
        ("The nodeset \"", "\" was not found.", "nodeset"),
        ("The secret \"", "\" was not found.", "secret"),
        ("The label \"", "\" was not found.", "label"),
        ("Job ", " not defined", "job"),
        ("The project \"", "\" was not found.", "project"),
    ];
    // A project exists if the tenant lists it, whichever project has its stanza.
    let absent_projects: BTreeSet<&str> =
        facts["absent-projects"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let mut refused_projects: BTreeSet<&str> = BTreeSet::new();
    let mut refusals: BTreeMap<&str, usize> = BTreeMap::new();
    for error in
        loaded.layout.errors().iter().filter(|error| error.diagnostic.severity == Severity::Error)
    {
        let message = &error.diagnostic.message;
        let found = kinds.iter().find_map(|(before, after, kind)| {
            Some((kind, message.strip_prefix(before)?.strip_suffix(after)?))
        });
        let Some((kind, name)) = found else {
            panic!("a refusal of another kind: {}", error.render(None))
        };
        assert_eq!(error.diagnostic.kind, DiagnosticKind::UnknownName);
        if *kind == "project" {
            refused_projects.insert(name);
        } else {
            assert!(!is_defined(kind, name), "{name} is there: {}", error.render(None));
        }
        *refusals.entry(kind).or_default() += 1;
    }
    println!("refused: {refusals:?}, projects: {refused_projects:?}");
    assert_eq!(
        refused_projects, absent_projects,
        "projects that are named and that the tenant does not list"
    );
    assert!(refusals["job"] > 100, "jobs of absent repositories are missed: {refusals:?}");
}

/// Z6.2: the job lists of ten projects equal those computed by a few lines of Python (`facts.py
/// lists`).
#[test]
fn job_lists_equal_those_computed_in_python() {
    let Some(folder) = data() else { return };
    let layout = load(&folder).layout;
    let stored: BTreeMap<String, BTreeMap<String, Vec<String>>> =
        serde_json::from_str(include_str!("job-lists.json")).unwrap();
    assert_eq!(stored.len(), 10);
    let found = pyyaml("lists", &folder);
    assert_eq!(
        found,
        serde_json::to_value(&stored).unwrap(),
        "the stored file is no longer what facts.py works out"
    );
    for (project, pipelines) in &stored {
        let name = ProjectName::new("opendev.org", project);
        for (pipeline, jobs) in pipelines {
            // Jobs of missing repositories are listed although they cannot be frozen.
            let (_, trace) =
                layout.freeze_with_trace(&FreezeInput::change(pipeline, &name, "master"));
            let listed: Vec<&String> = trace.iter().map(|one| &one.job).collect();
            assert_eq!(listed, jobs.iter().collect::<Vec<_>>(), "{project} in {pipeline}");
        }
    }
}

/// Returns empty jobs and nodesets for missing ones, by the project that may define them.
fn bare(absent: &Value) -> Vec<(&'static str, String)> {
    let names = |kind: &str| {
        absent[kind].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned())
    };
    let jobs = names("job")
        .filter(|name| name != "base")
        .map(|name| format!("- job: {{name: {name}, run: r}}\n"));
    let nodesets = names("nodeset").map(|name| format!("- nodeset: {{name: {name}, nodes: []}}\n"));
    vec![
        ("opendev/base-jobs", "- job: {name: base, parent: null, run: r}\n".to_owned()),
        ("openstack/project-config", jobs.chain(nodesets).collect()),
    ]
}

/// Z4.2, Z6.2: the jobs that run for a change of one file equal those computed in Python (`facts.py
/// runs`), with stand-ins for missing data.
#[test]
fn jobs_of_a_file_change_equal_those_computed_in_python() {
    let Some(folder) = data() else { return };
    let layout = load_with(&folder, &bare(&pyyaml("absent", &folder))).layout;
    type ByFile = BTreeMap<String, Vec<String>>;
    let stored: BTreeMap<String, BTreeMap<String, ByFile>> =
        serde_json::from_str(include_str!("job-runs.json")).unwrap();
    assert_eq!(stored.len(), 10);
    let found = pyyaml("runs", &folder);
    assert_eq!(
        found,
        serde_json::to_value(&stored).unwrap(),
        "the stored file is no longer what facts.py works out"
    );
    let (mut running, mut left_out) = (0, 0);
    for (project, pipelines) in &stored {
        let name = ProjectName::new("opendev.org", project);
        for (pipeline, by_file) in pipelines {
            for (file, jobs) in by_file {
                let files = [file.clone()];
                let input = FreezeInput::change(pipeline, &name, "master").touching(&files);
                let (_, trace) = layout.freeze_with_trace(&input);
                let running_here: Vec<&String> =
                    trace.iter().filter(|one| one.runs).map(|one| &one.job).collect();
                let diagnostics =
                    || trace.iter().map(ToString::to_string).collect::<Vec<_>>().join("");
                assert_eq!(
                    running_here,
                    jobs.iter().collect::<Vec<_>>(),
                    "{project} in {pipeline}: {file}\n{}",
                    diagnostics()
                );
                running += jobs.len();
                left_out += trace.len() - jobs.len();
            }
        }
    }
    // Both exist so that they can be distinguished.
    assert!(running > 50 && left_out > 50, "{running} run, {left_out} do not");
}

/// A stored layout opens with the same answers and diagnostics.
#[test]
fn the_stored_layout_opens_as_it_was() {
    let Some(folder) = data() else { return };
    let layout = load(&folder).layout;
    let bytes = layout.to_bytes();
    let opened = Layout::from_bytes(&bytes).unwrap();
    assert_eq!(opened.id(), layout.id());
    assert_eq!(opened.errors(), layout.errors());
    assert_eq!(opened.pipelines(), layout.pipelines());
    let name = ProjectName::new("opendev.org", "openstack/project-config");
    let input = FreezeInput::change("check", &name, "master");
    assert_eq!(opened.freeze_with_trace(&input), layout.freeze_with_trace(&input));
    assert!(bytes.len() < 200_000, "{} bytes", bytes.len());
}
