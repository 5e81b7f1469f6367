//! [`super::Scenario::Reverts`]: landed changes are reverted by a push, which restores the old
//! files.

use sluice_scenarios::forge::REMOVED;
use sluice_scenarios::repos::Tree;

/// The configuration file. It is never reverted, because the simulator derives the configuration
/// from landings alone.
const CONFIGURATION: &str = ".zuul.yaml";

/// Returns the edits that revert a change which turned the tree `before` into `after`: each file
/// with its old text. Leaves out files that differ from `after` in the branch's current tree `now`.
pub fn revert_edits<'a>(before: &'a Tree, after: &'a Tree, now: &Tree) -> Vec<(&'a str, &'a str)> {
    let touched = after
        .iter()
        .filter(|(path, text)| before.get(*path) != Some(*text) && path.as_str() != CONFIGURATION);
    let unmodified = touched.filter(|(path, text)| now.get(*path) == Some(*text));
    unmodified
        .map(|(path, _)| (path.as_str(), before.get(path).map_or(REMOVED, String::as_str)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    /// Z6.4: a revert undoes the edits of the change and keeps later edits.
    #[test]
    fn a_revert_restores_only_files_that_are_unmodified_since() {
        let (before, made) = (
            tree(&[("f0", "0"), ("f3", "0")]),
            tree(&[("f0", "1"), ("f1", "1"), ("f2", "1"), ("f3", "0")]),
        );
        let now = tree(&[("f0", "1"), ("f1", "1"), ("f2", "2"), ("f3", "3")]);
        assert_eq!(revert_edits(&before, &made, &now), [("f0", "0"), ("f1", REMOVED)]);
        assert!(revert_edits(&before, &made, &before).is_empty(), "a second revert is empty");
    }

    /// R01: configuration changes only by landings.
    #[test]
    fn configuration_is_not_reverted() {
        let made = tree(&[(CONFIGURATION, "new"), ("f0", "1")]);
        assert_eq!(revert_edits(&tree(&[(CONFIGURATION, "old")]), &made, &made), [("f0", REMOVED)]);
    }
}
