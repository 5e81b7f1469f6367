//! Each row of behaviour that is promised has a test on a whole Sluice in memory that quotes its
//! id.

use std::collections::BTreeSet;

/// The rows: the letter of their part, and their numbers.
const ROWS: [(char, &[u32]); 8] = [
    ('G', &[1, 2, 4, 5, 8, 9, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 23]),
    ('S', &[1, 2, 4, 5, 6, 7]),
    ('D', &[1, 2, 4, 5, 6, 8, 9, 10, 11, 13, 15, 16]),
    ('J', &[1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18]),
    ('X', &[1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]),
    ('C', &[1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 17]),
    ('N', &[16, 17]),
    ('R', &[1, 3, 4, 5, 6, 7, 8, 9]),
];

/// Returns the words of what is written above the tests of a file.
fn above_tests(text: &str) -> BTreeSet<String> {
    let (mut found, mut said) = (BTreeSet::new(), String::new());
    for line in text.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            said.push_str(words);
            said.push(' ');
        } else if line == "#[test]" {
            found.extend(said.split(|sign: char| !sign.is_ascii_alphanumeric()).map(str::to_owned));
        } else if !line.starts_with("#[") {
            said.clear();
        }
    }
    found
}

#[test]
fn every_row_has_a_test_on_a_whole_sluice_that_quotes_it() {
    let files = sluice_architecture_tests::files().unwrap_or_else(|error| panic!("{error}"));
    let tests = files
        .iter()
        .filter(|(path, _)| path.starts_with("tests/scenarios/tests/") && path.ends_with(".rs"));
    let quoted: BTreeSet<String> = tests.flat_map(|(_, text)| above_tests(text)).collect();
    let rows = ROWS
        .iter()
        .flat_map(|(part, numbers)| numbers.iter().map(move |number| format!("{part}{number:02}")));
    let missing: Vec<String> = rows.filter(|row| !quoted.contains(row)).collect();
    assert!(missing.is_empty(), "no test in tests/scenarios quotes {}", missing.join(", "));
}

#[test]
fn only_what_is_written_above_a_test_counts() {
    let found = above_tests(
        "/// G01, J14: it is told.\n#[test]\nfn one() {}\n/// G02\nfn no_test() {}\n#[test]\nfn other() {}\n",
    );
    assert!(found.contains("G01") && found.contains("J14") && !found.contains("G02"), "{found:?}");
}
