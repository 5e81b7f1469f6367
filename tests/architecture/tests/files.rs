//! What every file keeps: a header that says what lives in it, a length that one can read, nothing
//! unfinished, no machine's paths.
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

/// Panics with everything that was found, a line each.
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_rust_file_says_first_what_lives_in_it() {
    none(
        rust_files()
            .filter(|(_, text)| !text.starts_with("//! "))
            .map(|(path, _)| format!("{path} has no `//!` header"))
            .collect(),
    );
}

#[test]
fn no_file_is_longer_than_one_can_read() {
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let lines = text.lines().count();
        let listed = LONG_FILES.iter().any(|(long, _)| *long == path);
        match (lines > LINES_MAX, listed) {
            (true, false) => {
                found.push(format!("{path} has {lines} lines: does it hold two rooms?"))
            }
            (false, true) => {
                found.push(format!("{path} has {lines} lines: strike it off LONG_FILES"))
            }
            _ => {}
        }
    }
    none(found);
}

#[test]
fn nothing_is_left_for_later() {
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
    // Below each of these lies somebody's own.
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

/// Returns whether `home` stands in the line as the beginning of a path, not within one.
/// `/home/zuul` is the home of every node that Zuul's users know, and a name put in by the program
/// is no machine's.
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
fn a_path_within_another_is_no_machines() {
    assert!(starts_a_path("see /place/somebody", "/place/"));
    assert!(starts_a_path("\"/place/somebody\"", "/place/"));
    assert!(!starts_a_path("{job}/place/x", "/place/"));
    assert!(!starts_a_path("job/place/x", "/place/"));
    assert!(!starts_a_path("/place/zuul/src", "/place/"));
}

#[test]
fn pure_rooms_touch_nothing() {
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
        let source = PURE.iter().any(|room| path.starts_with(&format!("{room}/src/")));
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
            continue; // One of its own, which inherits from nobody.
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
                found.push(format!("{path}: versions stand in the root's manifest only: {line}"));
            }
        }
    }
    none(found);
}
