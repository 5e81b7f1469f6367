//! Checks every file: a header that says what it contains, a bounded length, nothing unfinished, no
//! path of one machine.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sluice_architecture_tests::plan::{LINES_MAX, LONG_FILES, PURE};

fn files() -> Vec<(String, String)> {
    let files = sluice_architecture_tests::files().unwrap_or_else(|error| panic!("{error}"));
    assert!(files.iter().any(|(path, _)| path == "Cargo.toml"), "git lists no Cargo.toml");
    files
}

fn rust_files() -> impl Iterator<Item = (String, String)> {
    files().into_iter().filter(|(path, _)| path.ends_with(".rs"))
}

/// Panics if there are findings, with one line for each.
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_rust_file_begins_with_a_module_comment() {
    none(
        rust_files()
            .filter(|(_, text)| !text.starts_with("//! "))
            .map(|(path, _)| format!("{path} has no `//!` header"))
            .collect(),
    );
}

#[test]
fn no_rust_file_exceeds_the_length_limit() {
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let lines = text.lines().count();
        let listed = LONG_FILES.iter().any(|(long, _)| *long == path);
        match (lines > LINES_MAX, listed) {
            (true, false) => found.push(format!("{path} has {lines} lines: split it by topic")),
            (false, true) => {
                found.push(format!("{path} has {lines} lines: remove it from LONG_FILES"))
            }
            _ => {}
        }
    }
    none(found);
}

#[test]
fn nothing_is_marked_as_unfinished() {
    // In two parts, so that this file passes.
    let words = [concat!("to", "do!("), concat!("un", "implemented!("), concat!("FIX", "ME")];
    let mut found = Vec::new();
    for (path, text) in files() {
        for (number, line) in text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none(found);
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    // Below each of these are files of one machine or user.
    let homes = ["root", "home", "Users", "work", "mnt"].map(|top| format!("/{top}/"));
    let mut found = Vec::new();
    for (path, text) in files() {
        for (number, line) in text.lines().enumerate() {
            if homes.iter().any(|home| starts_a_path(line, home)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none(found);
}

/// Returns whether `home` begins a path in the line. Paths of the `zuul` user and names that the
/// program inserts are not paths of one machine.
fn starts_a_path(line: &str, home: &str) -> bool {
    line.match_indices(home).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let begins =
            before.is_none_or(|sign| !(sign.is_alphanumeric() || "._-~}*>/".contains(sign)));
        let after = &line[at + home.len()..];
        begins && !after.starts_with("zuul") && !after.starts_with('{')
    })
}

#[test]
fn a_path_within_another_one_is_not_refused() {
    assert!(starts_a_path("see /place/user", "/place/"));
    assert!(starts_a_path("\"/place/user\"", "/place/"));
    assert!(!starts_a_path("{job}/place/x", "/place/"));
    assert!(!starts_a_path("job/place/x", "/place/"));
    assert!(!starts_a_path("/place/zuul/src", "/place/"));
}

#[test]
fn pure_crates_use_no_system_interface() {
    let words = [
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "std::time::Instant",
        "SystemTime",
        "async fn",
        ".await",
        "println!",
        "thread_local!",
    ];
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let source = PURE.iter().any(|directory| path.starts_with(&format!("{directory}/src/")));
        if !source || path.ends_with("tests.rs") || path.contains("/tests/") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            // A field `awaits` is no `.await`.
            let names = |word: &&str| {
                code.split(word).skip(1).any(|after| {
                    !after.starts_with(|next: char| next.is_alphanumeric() || next == '_')
                })
            };
            if words.iter().any(names) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none(found);
}

#[test]
fn every_crate_inherits_the_lints_and_the_versions() {
    let mut found = Vec::new();
    for (path, text) in files().into_iter().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        if text.contains("\n[workspace]\n") {
            continue; // A workspace of its own inherits nothing.
        }
        if !text.contains("[lints]\nworkspace = true") {
            found.push(format!("{path} does not inherit the workspace's lints"));
        }
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            } else if section.contains("dependencies")
                && !line.contains("{ path = ")
                && (line.contains("version") || line.contains(" = \""))
            {
                found.push(format!("{path}: only the root manifest names versions: {line}"));
            }
        }
    }
    none(found);
}
