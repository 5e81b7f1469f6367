//! Checks the documents: links and paths lead to files, ids are defined, and each stays short.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

/// Documents with a limit of lines.
const LINES_MAX: &[(&str, usize)] = &[
    ("README.md", 150),
    ("ARCHITECTURE.md", 300),
    ("CHANGELOG.md", 60),
    ("tests/simulation/README.md", 120),
];

/// Rows that the glossary may have.
const TERMS_MAX: usize = 50;

/// Columns of a line of a document, tables and addresses aside.
const COLUMNS_MAX: usize = 120;

fn files() -> Vec<(String, String)> {
    sluice_architecture_tests::files().unwrap_or_else(|error| panic!("{error}"))
}

fn documents() -> Vec<(String, String)> {
    files().into_iter().filter(|(path, _)| path.ends_with(".md")).collect()
}

fn none(found: Vec<String>) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns the path that a relative link in a document leads to, without `..` and anchor.
fn resolved(document: &str, link: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.split('#').next().unwrap_or_default().split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for (path, text) in documents() {
        for (number, line) in text.lines().enumerate() {
            for rest in line.split("](").skip(1) {
                let link = rest.split(')').next().unwrap_or_default();
                if link.is_empty() || link.starts_with('#') || link.contains("://") {
                    continue;
                }
                if !root.join(resolved(&path, link)).exists() {
                    found.push(format!("{path}:{}: {link}", number + 1));
                }
            }
        }
    }
    none(found);
}

#[test]
fn every_source_path_in_backticks_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tops = ["functions/", "shared/", "infra/", "local-emulator/", "tests/", "docs/", "demo/"];
    let mut found = Vec::new();
    for (path, text) in documents() {
        for (number, line) in text.lines().enumerate() {
            for span in line.split('`').skip(1).step_by(2) {
                let names_a_path = tops.iter().any(|top| span.starts_with(top))
                    && !span.contains([' ', '*', '<', '{', '$']);
                if names_a_path && !root.join(span).exists() {
                    found.push(format!("{path}:{}: {span}", number + 1));
                }
            }
        }
    }
    none(found);
}

#[test]
fn documents_keep_their_limits() {
    let documents = documents();
    let mut found = Vec::new();
    for (name, most) in LINES_MAX {
        let (_, text) = documents.iter().find(|(path, _)| path == name).unwrap();
        let lines = text.lines().count();
        if lines > *most {
            found.push(format!("{name} has {lines} lines, at most {most} are allowed"));
        }
    }
    for (path, text) in &documents {
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            is_code ^= line.starts_with("```");
            let is_exempt = is_code || line.starts_with('|') || line.contains("://");
            if !is_exempt && line.chars().count() > COLUMNS_MAX {
                found.push(format!("{path}:{}: over {COLUMNS_MAX} columns", number + 1));
            }
        }
    }
    let (_, glossary) = documents.iter().find(|(path, _)| path == "docs/glossary.md").unwrap();
    let terms = glossary.lines().filter(|line| line.starts_with('|')).count() - 2;
    if terms > TERMS_MAX {
        found.push(format!("docs/glossary.md has {terms} terms, at most {TERMS_MAX} are allowed"));
    }
    none(found);
}

/// Returns the requirement and scenario ids of a text, such as `Z6.4` and `G05`.
fn ids(text: &str) -> BTreeSet<String> {
    text.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '.')
        .map(|word| word.trim_matches('.'))
        .filter(|word| {
            let mut signs = word.chars();
            let letter = signs.next().is_some_and(|first| "ZLNGCESDJXRI".contains(first));
            let number = signs.as_str();
            let (main, part) = number.split_once('.').unwrap_or((number, "1"));
            let is_number = |digits: &str| {
                (1..=2).contains(&digits.len()) && digits.bytes().all(|one| one.is_ascii_digit())
            };
            letter && is_number(main) && is_number(part) && *word != "S3"
        })
        .map(str::to_owned)
        .collect()
}

/// Returns the ids that the table in docs/requirements.md defines, with its ranges expanded.
fn defined_ids(table: &str) -> BTreeSet<String> {
    let mut defined = BTreeSet::new();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    for entry in cells.flat_map(|cell| cell.split(", ")) {
        let Some((first, last)) = entry.split_once('–') else {
            defined.insert(entry.to_owned());
            continue;
        };
        let is_scenario = first.len() == 3 && !first.contains('.');
        let (stem, low) = match first.rsplit_once('.') {
            Some((stem, low)) => (format!("{stem}."), low),
            None => (first[..1].to_owned(), &first[1..]),
        };
        let high = last.rsplit_once('.').map_or(&last[1..], |(_, high)| high);
        for number in low.parse::<u32>().unwrap()..=high.parse().unwrap() {
            defined.insert(match is_scenario {
                true => format!("{stem}{number:02}"),
                false => format!("{stem}{number}"),
            });
        }
    }
    defined
}

/// Returns whether an id, or the requirement that it is a part of, is defined.
fn is_defined(id: &str, defined: &BTreeSet<String>) -> bool {
    let main = id.split('.').next().unwrap_or(id);
    let has_parts = defined.iter().any(|one| one.starts_with(&format!("{id}.")));
    defined.contains(id) || defined.contains(main) || has_parts
}

#[test]
fn every_cited_id_is_defined() {
    let files = files();
    let (_, table) = files.iter().find(|(path, _)| path == "docs/requirements.md").unwrap();
    let defined = defined_ids(table);
    let mut undefined = BTreeSet::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let comments = text.lines().filter_map(|line| line.trim().strip_prefix("///"));
        for id in comments.flat_map(ids).filter(|id| !is_defined(id, &defined)) {
            undefined.insert(format!("{id} in {path}"));
        }
    }
    none(undefined.into_iter().collect());
}

#[test]
fn ranges_and_parts_of_ids_are_understood() {
    let defined = defined_ids("| Z6.2–Z6.4 | x |\n| G11–G13, G20 | y |\n| N1–N6 | z |");
    for id in ["Z6.3", "Z6", "G12", "G20", "N4", "N1.1"] {
        assert!(is_defined(id, &defined), "{id} in {defined:?}");
    }
    for id in ["Z6.5", "G14", "N7"] {
        assert!(!is_defined(id, &defined), "{id} in {defined:?}");
    }
    assert_eq!(ids("Z6.4, G05: as EC2 does it."), ["G05", "Z6.4"].map(str::to_owned).into());
}
