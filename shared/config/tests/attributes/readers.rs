//! Each field of the typed configuration is read by code that acts on it, or its attribute is in
//! the list of ignored attributes. What fills, checks, stores and shows the fields does not count.
//!
//! Nodes have a stricter test, at the launcher: it compares the values that plans use.

use sluice_config::layout::IGNORED_ATTRIBUTES;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The root of the workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The source files with typed configuration, and the types in them whose fields are checked.
const TYPES: &[(&str, &[&str])] = &[
    ("shared/model/src/job/run_time.rs", &["RunTime", "OidcToken"]),
    (
        "shared/model/src/job/mod.rs",
        &["FrozenJob", "JobSummary", "Playbook", "SemaphoreUse", "SecretUse"],
    ),
    ("shared/config/src/pipeline/mod.rs", &["Pipeline", "Messages", "WindowSettings"]),
    ("shared/config/src/pipeline/reporter.rs", &["Reporters", "GitHubReporter"]),
    (
        "shared/config/src/pipeline/trigger.rs",
        &["GitHubTrigger", "GitTrigger", "TimerTrigger", "ZuulTrigger"],
    ),
    ("shared/config/src/pipeline/filter.rs", &["GitHubFilter", "ReviewRequirement"]),
    ("shared/config/src/tenant/mod.rs", &["MainConfig", "TenantConfig", "TenantProject"]),
    ("shared/config/src/objects/project.rs", &["ProjectStanza", "PipelineJobs"]),
    (
        "shared/config/src/objects/small.rs",
        &["QueueStanza", "SecretStanza", "SemaphoreStanza", "PragmaStanza"],
    ),
];

/// The directories of the code that acts.
const ACTING: &[&str] = &[
    "functions",
    "shared/auth/src",
    "shared/config/src",
    "shared/gate/src",
    "shared/model/src",
    "shared/pool/src",
    "shared/records/src",
    "shared/repos/src",
];

/// Paths below them that only fill, check, store or show the fields.
const NOT_ACTING: &[&str] = &[
    "functions/api/src/configuration",
    "functions/api/src/freeze",
    "functions/api/src/variant",
    "shared/config/src/job/apply",
    "shared/config/src/job/errors",
    "shared/config/src/job/run_time",
    "shared/config/src/job/trace",
    "shared/config/src/job/weight",
    "shared/config/src/layout/ignored_attributes",
    "shared/config/src/objects",
    "shared/config/src/pack",
    "shared/config/src/pipeline",
    "shared/config/src/tenant/access",
    "shared/config/src/tenant/mod",
    "shared/config/src/tenant/source",
];

/// Fields that no acting code reads, with their object and attribute in the list.
const UNREAD: &[(&str, &str, &str, &str)] =
    &[("TenantConfig", "report_build_page", "tenant", "report-build-page")];

/// Fields that methods of their own type read, by the method.
const READ_BY_METHODS: &[(&str, &str, &str)] = &[
    ("Pipeline", "allow_other_connections", "Pipeline::takes_from"),
    ("WindowSettings", "ceiling", "WindowSettings::after_success"),
    ("WindowSettings", "decrease", "WindowSettings::after_failure"),
    ("WindowSettings", "floor", "WindowSettings::after_failure"),
    ("WindowSettings", "increase", "WindowSettings::after_success"),
];

/// Returns the source files below a directory, without tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "tests" && name != "target" {
                found.extend(sources(&path));
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found
}

/// Returns the text of a file without its tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned()
}

/// Returns the public fields of a type.
fn fields(text: &str, name: &str) -> Vec<String> {
    let start = [format!("pub struct {name} {{"), format!("pub struct {name}<")];
    let start = start.iter().find_map(|start| text.find(start));
    let body = &text[start.unwrap_or_else(|| panic!("there is no type {name}"))..];
    let body = body.split("\n}").next().unwrap_or_default();
    let names = body.lines().filter_map(|line| line.strip_prefix("    pub ")?.split_once(':'));
    names.map(|(name, _)| name.trim_start_matches("r#").to_owned()).collect()
}

/// Returns whether a text reads a field, and does not call a method of its name.
fn reads(text: &str, field: &str) -> bool {
    let access = [format!(".{field}"), format!(".r#{field}")];
    let ends_there = |rest: &str| {
        let next = rest.chars().next().unwrap_or(' ');
        !(next.is_alphanumeric() || next == '_' || next == '(')
    };
    let mut found = access.iter().flat_map(|access| {
        text.match_indices(access.as_str()).map(|(at, found)| &text[at + found.len()..])
    });
    found.any(ends_there)
}

/// Z6.6: a field that nothing acts on is a field of an attribute that is warned of, and a field
/// that something acts on is not in that list.
#[test]
fn each_field_is_read_by_code_that_acts_or_its_attribute_is_listed() {
    let root = Path::new(ROOT);
    let acting: Vec<String> = ACTING
        .iter()
        .flat_map(|directory| sources(&root.join(directory)))
        .filter(|path| {
            let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            !NOT_ACTING.iter().any(|prefix| path.starts_with(prefix))
        })
        .map(|path| code(&path))
        .collect();
    let mut unread: BTreeSet<(&str, String)> = BTreeSet::new();
    let mut count = 0;
    for (file, types) in TYPES {
        let text = code(&root.join(file));
        for name in *types {
            for field in fields(&text, name) {
                count += 1;
                let is_by_method =
                    READ_BY_METHODS.iter().any(|(of, read, _)| of == name && *read == field);
                if !is_by_method && !acting.iter().any(|text| reads(text, &field)) {
                    unread.insert((name, field));
                }
            }
        }
    }
    let expected: BTreeSet<(&str, String)> =
        UNREAD.iter().map(|(of, field, ..)| (*of, (*field).to_owned())).collect();
    assert_eq!(
        unread, expected,
        "a field on the left only needs an entry in the list of ignored attributes, one on the right only is read"
    );
    assert!(count > 150, "{count}");
    for (of, field, object, attribute) in UNREAD {
        let is_listed = |entry: &sluice_config::layout::IgnoredAttribute| {
            entry.object == *object && entry.attribute == *attribute
        };
        assert!(IGNORED_ATTRIBUTES.iter().any(is_listed), "{of}.{field}: {object} {attribute}");
    }
}
