//! Checks that each scenario has a test on a whole system in memory that quotes its id.

use std::collections::BTreeSet;

/// The scenarios: the letter of their area, and their numbers.
const SCENARIOS: [(char, &[u32]); 8] = [
    ('G', &[1, 2, 4, 5, 8, 9, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 23]),
    ('S', &[1, 2, 4, 5, 6, 7]),
    ('D', &[1, 2, 4, 5, 6, 8, 9, 10, 11, 13, 15, 16]),
    ('J', &[1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18]),
    ('X', &[1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
    ('C', &[1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 17]),
    ('N', &[15, 16, 17]),
    ('R', &[1, 3, 4, 5, 6, 7, 8, 9]),
];

/// Returns the words of the doc comments of a file's tests.
fn words_of_test_comments(text: &str) -> BTreeSet<String> {
    let (mut found, mut comment) = (BTreeSet::new(), String::new());
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            comment.push_str(words);
            comment.push(' ');
        } else if line == "#[test]" {
            found.extend(
                comment.split(|sign: char| !sign.is_ascii_alphanumeric()).map(str::to_owned),
            );
        } else if !line.starts_with("#[") {
            comment.clear();
        }
    }
    found
}

#[test]
fn every_scenario_is_quoted_by_a_test_on_a_whole_system() {
    let files = sluice_architecture_tests::files().unwrap_or_else(|error| panic!("{error}"));
    let tests = files
        .iter()
        .filter(|(path, _)| path.starts_with("tests/scenarios/tests/") && path.ends_with(".rs"));
    let quoted: BTreeSet<String> =
        tests.flat_map(|(_, text)| words_of_test_comments(text)).collect();
    let ids = SCENARIOS
        .iter()
        .flat_map(|(area, numbers)| numbers.iter().map(move |number| format!("{area}{number:02}")));
    let missing: Vec<String> = ids.filter(|id| !quoted.contains(id)).collect();
    assert!(missing.is_empty(), "no test in tests/scenarios quotes {}", missing.join(", "));
}

#[test]
fn only_doc_comments_of_tests_count() {
    let found = words_of_test_comments(
        "/// G01, J14: a report.\n#[test]\nfn one() {}\n/// G02\nfn no_test() {}\n#[test]\nfn other() {}\n",
    );
    assert!(found.contains("G01") && found.contains("J14") && !found.contains("G02"), "{found:?}");
}
