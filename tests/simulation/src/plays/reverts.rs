//! What landed is taken back by a push: files are again what they were before.

use sluice_scenarios::forge::REMOVED;
use sluice_scenarios::repos::Tree;

/// The file that holds configuration. Nobody takes that back: what is configured follows from
/// landings here.
const CONFIGURATION: &str = ".zuul.yaml";

/// Returns what has to be pushed to a branch that is `now`, so that nothing is left there of a
/// change that made one tree of another: of each file that is as the change made it what it was
/// before. What others did to a file since stays.
pub fn taken_back<'a>(before: &'a Tree, made: &'a Tree, now: &Tree) -> Vec<(&'a str, &'a str)> {
    let touched = made
        .iter()
        .filter(|(path, text)| before.get(*path) != Some(*text) && path.as_str() != CONFIGURATION);
    let there = touched.filter(|(path, text)| now.get(*path) == Some(*text));
    there
        .map(|(path, _)| (path.as_str(), before.get(path).map_or(REMOVED, String::as_str)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    /// Z6.4: what is taken back is what the change did, and nothing that was done since.
    #[test]
    fn what_a_change_did_is_taken_back_where_it_is_still_there() {
        let (before, made) = (
            tree(&[("f0", "0"), ("f3", "0")]),
            tree(&[("f0", "1"), ("f1", "1"), ("f2", "1"), ("f3", "0")]),
        );
        let now = tree(&[("f0", "1"), ("f1", "1"), ("f2", "2"), ("f3", "3")]);
        assert_eq!(taken_back(&before, &made, &now), [("f0", "0"), ("f1", REMOVED)]);
        assert!(taken_back(&before, &made, &before).is_empty(), "it is taken back once");
    }

    /// R01: configuration comes and goes by landings alone.
    #[test]
    fn configuration_is_not_taken_back() {
        let made = tree(&[(CONFIGURATION, "new"), ("f0", "1")]);
        assert_eq!(taken_back(&tree(&[(CONFIGURATION, "old")]), &made, &made), [("f0", REMOVED)]);
    }
}
