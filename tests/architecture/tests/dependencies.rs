//! Checks the dependencies between crates, as cargo resolves them, against the rules.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_architecture_tests::plan::{
    CLOUD_DRIVERS, FUNCTIONS_MAY_USE, LAMBDA, LAMBDA_CLOUD, LAMBDA_NEVER_LINKS, PROGRAMS, PURE,
    PURE_MAY_NAME, PURE_NEVER_LINKS, RESTRICTED, SHARED, TESTS, matches_pattern,
};
use sluice_architecture_tests::{Crate, DependencyKind, Workspace};
use std::sync::LazyLock;

/// Returns the workspace, which is read once because resolving it takes a second.
fn workspace() -> &'static Workspace {
    static READ: LazyLock<Workspace> =
        LazyLock::new(|| Workspace::read().unwrap_or_else(|error| panic!("{error}")));
    &READ
}

/// Panics if there are findings, with one line for each.
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns the directories of our crates that a crate depends on in this way.
fn own_dependencies<'a>(
    of: &'a Crate,
    kind: DependencyKind,
    workspace: &'a Workspace,
) -> impl Iterator<Item = &'a str> {
    of.dependencies_of(kind)
        .filter_map(|package| workspace.crates.get(package))
        .map(|to| to.directory.as_str())
}

/// Returns the directories that a crate may depend on, or `None` for a crate without limits.
fn may_use(directory: &str) -> Option<&'static [&'static str]> {
    let is_program = directory.starts_with("functions/programs/");
    if directory.starts_with(TESTS) {
        None
    } else if directory.starts_with("functions/") && !is_program {
        Some(FUNCTIONS_MAY_USE)
    } else {
        let row = SHARED.iter().chain(PROGRAMS).find(|row| row.path == directory);
        Some(
            row.unwrap_or_else(|| {
                panic!(
                    "{directory} is a new crate: give it a row in tests/architecture/src/plan.rs"
                )
            })
            .may_use,
        )
    }
}

fn is_pure(directory: &str) -> bool {
    PURE.contains(&directory)
}

#[test]
fn no_dependency_points_upward() {
    let workspace = workspace();
    let mut found = Vec::new();
    for one in workspace.crates.values() {
        let Some(allowed) = may_use(&one.directory) else { continue };
        for to in own_dependencies(one, DependencyKind::Normal, workspace)
            .filter(|to| !allowed.contains(to))
        {
            found.push(format!("{} must not depend on {to}", one.directory));
        }
    }
    none(found);
}

#[test]
fn only_tests_depend_on_tests() {
    let workspace = workspace();
    let mut found = Vec::new();
    for one in workspace.crates.values().filter(|one| !one.directory.starts_with(TESTS)) {
        for to in own_dependencies(one, DependencyKind::Normal, workspace)
            .filter(|to| to.starts_with(TESTS))
        {
            found.push(format!("{} depends on {to}", one.directory));
        }
    }
    none(found);
}

#[test]
fn a_pure_crate_uses_only_crates_that_compute() {
    let workspace = workspace();
    let mut found = Vec::new();
    for one in workspace.crates.values().filter(|one| is_pure(&one.directory)) {
        for package in one.dependencies.iter().map(|one| one.package.as_str()) {
            let below = workspace.crates.get(package).is_some_and(|to| is_pure(&to.directory));
            if !below && !PURE_MAY_NAME.contains(&package) {
                found.push(format!("{} uses {package}", one.directory));
            }
        }
    }
    none(found);
}

#[test]
fn no_runtime_socket_file_clock_or_randomness_is_linked_into_a_pure_crate() {
    let workspace = workspace();
    let mut found = Vec::new();
    for one in workspace.crates.values().filter(|one| is_pure(&one.directory)) {
        assert!(
            one.linked.contains("serde"),
            "{} is not resolved: {:?}",
            one.directory,
            one.linked
        );
        for package in &one.linked {
            if PURE_NEVER_LINKS.iter().any(|pattern| matches_pattern(pattern, package)) {
                found.push(format!("{} links {package}", one.directory));
            }
        }
    }
    none(found);
}

/// Returns a line for each package that is linked into a crate and matches one of the patterns.
fn linked_although_refused(directory: &str, patterns: &[&str]) -> Vec<String> {
    let one = workspace().crates.values().find(|one| one.directory == directory).unwrap();
    assert!(one.linked.contains("lambda_runtime"), "{directory} is not resolved");
    one.linked
        .iter()
        .filter(|package| patterns.iter().any(|pattern| matches_pattern(pattern, package)))
        .map(|package| format!("{directory} links {package}"))
        .collect()
}

/// C1.1: drivers of a cloud are linked only into the functions that call it.
#[test]
fn the_lambda_program_for_functions_without_a_cloud_links_no_cloud_driver() {
    none(linked_although_refused(LAMBDA, CLOUD_DRIVERS));
    let drivers = linked_although_refused(LAMBDA_CLOUD, CLOUD_DRIVERS);
    assert!(!drivers.is_empty(), "the launcher's program links no driver: is the list outdated?");
}

/// C1.1: the same holds for everything else that no function on AWS calls.
#[test]
fn no_lambda_program_links_the_emulator_the_local_forge_or_the_command_line() {
    none(
        [LAMBDA, LAMBDA_CLOUD].map(|one| linked_although_refused(one, LAMBDA_NEVER_LINKS)).concat(),
    );
}

#[test]
fn a_restricted_crate_is_used_by_its_listed_users_only() {
    let workspace = workspace();
    let mut found = Vec::new();
    for rule in RESTRICTED {
        let mut users = 0;
        for one in workspace.crates.values().filter(|one| !one.directory.starts_with(TESTS)) {
            for package in one
                .dependencies_of(DependencyKind::Normal)
                .filter(|package| matches_pattern(rule.package, package))
            {
                users += 1;
                if !rule.users.contains(&one.directory.as_str()) {
                    found.push(format!(
                        "{} uses {package}, which is for {:?} only: {}",
                        one.directory, rule.users, rule.why
                    ));
                }
            }
        }
        if users == 0 {
            found.push(format!("no crate uses {}: remove its row from plan.rs", rule.package));
        }
    }
    none(found);
}

#[test]
fn every_crate_of_the_rules_exists() {
    let workspace = workspace();
    let directories: Vec<&str> =
        workspace.crates.values().map(|one| one.directory.as_str()).collect();
    let planned = SHARED.iter().chain(PROGRAMS).map(|row| row.path).chain(PURE);
    none(
        planned
            .filter(|path| !directories.contains(path))
            .map(|path| format!("there is no {path}"))
            .collect(),
    );
}

#[test]
fn every_package_bears_the_prefix() {
    let workspace = workspace();
    none(workspace.crates.keys().filter(|name| !name.starts_with("sluice-")).cloned().collect());
}

/// Dependencies that no source names: crate, package, reason.
const UNNAMED: &[(&str, &str, &str)] = &[
    ("sluice-architecture-tests", "proc-macro2", "its feature gives syn's spans line numbers"),
    ("sluice-emulator", "dynoxide-rs", "its library is named dynoxide"),
    ("sluice-emulator", "md-5", "its library is named md5"),
    ("sluice-keys", "md-5", "its library is named md5"),
];

#[test]
fn every_dependency_is_used() {
    let files = sluice_architecture_tests::files().unwrap_or_else(|error| panic!("{error}"));
    let mut found = Vec::new();
    for one in workspace().crates.values() {
        let inside = format!("{}/", one.directory);
        let sources: Vec<&str> = files
            .iter()
            .filter(|(path, _)| path.starts_with(&inside) && path.ends_with(".rs"))
            .map(|(_, text)| text.as_str())
            .collect();
        for dependency in &one.dependencies {
            // The workspace renames one package: serde_yaml_ng is serde_yaml in sources.
            let name = dependency.package.replace('-', "_").replace("serde_yaml_ng", "serde_yaml");
            let is_listed = UNNAMED
                .iter()
                .any(|(user, package, _)| *user == one.name && *package == dependency.package);
            if !is_listed && !sources.iter().any(|text| text.contains(&name)) {
                found.push(format!("{} does not use {}", one.name, dependency.package));
            }
        }
    }
    none(found);
}
