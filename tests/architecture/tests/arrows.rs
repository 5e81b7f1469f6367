//! The arrows between rooms, as cargo sees them, against the plan.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_architecture_tests::plan::{
    COMPOSITION, FUNCTIONS_MAY_USE, ONLY, PURE, PURE_MAY_NAME, PURE_NEVER_LINKS, SHARED, TESTS,
    fits,
};
use sluice_architecture_tests::{Crate, Kind, Workspace};
use std::sync::LazyLock;

/// Returns the workspace; it is read once, since resolving it takes a second.
fn workspace() -> &'static Workspace {
    static READ: LazyLock<Workspace> =
        LazyLock::new(|| Workspace::read().unwrap_or_else(|error| panic!("{error}")));
    &READ
}

/// Panics with everything that was found, a line each.
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns the rooms that a crate names for this purpose.
fn arrows<'a>(
    of: &'a Crate,
    kind: Kind,
    workspace: &'a Workspace,
) -> impl Iterator<Item = &'a str> {
    of.named(kind).filter_map(|package| workspace.crates.get(package)).map(|to| to.room.as_str())
}

/// Returns where a room's arrows may point; `None` says anywhere.
fn may_use(room: &str) -> Option<&'static [&'static str]> {
    if room == COMPOSITION || room.starts_with(TESTS) {
        None
    } else if room.starts_with("functions/") {
        Some(FUNCTIONS_MAY_USE)
    } else {
        let row = SHARED.iter().find(|row| row.path == room);
        Some(
            row.unwrap_or_else(|| {
                panic!("{room} is a new room: give it a row in tests/architecture/src/plan.rs")
            })
            .may_use,
        )
    }
}

fn is_pure(room: &str) -> bool {
    PURE.contains(&room)
}

#[test]
fn no_arrow_turns_upward() {
    let workspace = workspace();
    let mut found = Vec::new();
    for one in workspace.crates.values() {
        let Some(allowed) = may_use(&one.room) else { continue };
        for to in arrows(one, Kind::Normal, workspace).filter(|to| !allowed.contains(to)) {
            found.push(format!("{} must not build on {to}", one.room));
        }
    }
    none(found);
}

#[test]
fn nothing_but_tests_builds_on_tests() {
    let workspace = workspace();
    let mut found = Vec::new();
    for one in workspace.crates.values().filter(|one| !one.room.starts_with(TESTS)) {
        for to in arrows(one, Kind::Normal, workspace).filter(|to| to.starts_with(TESTS)) {
            found.push(format!("{} builds on {to}", one.room));
        }
    }
    none(found);
}

#[test]
fn a_pure_room_names_only_crates_that_compute() {
    let workspace = workspace();
    let mut found = Vec::new();
    for one in workspace.crates.values().filter(|one| is_pure(&one.room)) {
        for package in one.dependencies.iter().map(|one| one.package.as_str()) {
            let below = workspace.crates.get(package).is_some_and(|to| is_pure(&to.room));
            if !below && !PURE_MAY_NAME.contains(&package) {
                found.push(format!("{} names {package}", one.room));
            }
        }
    }
    none(found);
}

#[test]
fn no_runtime_socket_file_clock_or_chance_is_linked_into_a_pure_room() {
    let workspace = workspace();
    let mut found = Vec::new();
    for one in workspace.crates.values().filter(|one| is_pure(&one.room)) {
        assert!(one.linked.contains("serde"), "{} is not resolved: {:?}", one.room, one.linked);
        for package in &one.linked {
            if PURE_NEVER_LINKS.iter().any(|pattern| fits(pattern, package)) {
                found.push(format!("{} links {package}", one.room));
            }
        }
    }
    none(found);
}

#[test]
fn what_belongs_to_some_rooms_is_named_by_no_other() {
    let workspace = workspace();
    let mut found = Vec::new();
    for rule in ONLY {
        let mut users = 0;
        for one in workspace.crates.values().filter(|one| !one.room.starts_with(TESTS)) {
            for package in one.named(Kind::Normal).filter(|package| fits(rule.package, package)) {
                users += 1;
                if !rule.rooms.contains(&one.room.as_str()) {
                    found.push(format!(
                        "{} names {package}, which is for {:?} only: {}",
                        one.room, rule.rooms, rule.why
                    ));
                }
            }
        }
        if users == 0 {
            found.push(format!("nobody names {}: its row in plan.rs means nothing", rule.package));
        }
    }
    none(found);
}

#[test]
fn every_room_of_the_plan_exists() {
    let workspace = workspace();
    let rooms: Vec<&str> = workspace.crates.values().map(|one| one.room.as_str()).collect();
    let planned = SHARED.iter().map(|row| row.path).chain(PURE).chain([COMPOSITION]);
    none(
        planned
            .filter(|path| !rooms.contains(path))
            .map(|path| format!("there is no {path}"))
            .collect(),
    );
}

#[test]
fn every_package_bears_the_prefix() {
    let workspace = workspace();
    none(workspace.crates.keys().filter(|name| !name.starts_with("sluice-")).cloned().collect());
}
