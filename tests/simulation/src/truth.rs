//! Which trees pass: a pure function of the files. The simulated executors answer by it, and the
//! oracle expects it.

use crate::graphs::{GUEST, HERALD, IMAGE, LEFT, LINT, PRELUDE};
use crate::scenarios::PUBLISH;
use sluice_scenarios::repos::Tree;

/// Returns whether a job passes on the files of the change's own project.
pub fn passes(job: &str, tree: &Tree) -> bool {
    match job {
        "unit" => tree.values().all(|text| {
            let mut words = text.split_whitespace();
            words.all(|word| {
                let meets = |path: &str| tree.contains_key(path);
                word != "broken" && word.strip_prefix("not-with:").is_none_or(|path| !meets(path))
            })
        }),
        "quick" => tree.values().all(|text| !text.contains("sloppy")),
        // These jobs fail only where one of the two above fails.
        GUEST | HERALD | IMAGE => passes("unit", tree),
        LEFT | PRELUDE => passes("quick", tree),
        // It fails sometimes, independently of the other jobs.
        PUBLISH => !sum(tree).is_multiple_of(3),
        LINT => !sum(tree).is_multiple_of(2),
        _ => true,
    }
}

/// Returns a number that depends on all texts of a tree. It decides what the texts do not say.
pub fn sum(tree: &Tree) -> usize {
    tree.values().flat_map(|text| text.bytes()).map(usize::from).sum()
}

/// Returns whether every voting job passes.
pub fn all_pass(tree: &Tree) -> bool {
    ["unit", "quick"].into_iter().all(|job| passes(job, tree))
}

/// The text in a configuration that asks for its secret before review.
pub const GREEDY: &str = "# greedy";

/// Returns whether these files contain configuration that asks for a secret before review.
pub fn is_greedy(tree: &Tree) -> bool {
    tree.get(".zuul.yaml").is_some_and(|text| text.contains(GREEDY))
}

/// Merges two trees file by file; `None` if both sides changed a file differently. Independent of
/// the merge of the simulated repositories.
pub fn merge(base: &Tree, ours: &Tree, theirs: &Tree) -> Option<Tree> {
    let mut merged = Tree::new();
    let paths = base.keys().chain(ours.keys()).chain(theirs.keys());
    for path in paths.collect::<std::collections::BTreeSet<_>>() {
        let (was, our, their) = (base.get(path), ours.get(path), theirs.get(path));
        let text = match (our == was, their == was) {
            (true, _) => their,
            (_, true) => our,
            _ if our == their => our,
            _ => return None,
        };
        if let Some(text) = text {
            merged.insert(path.clone(), text.clone());
        }
    }
    Some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    /// C2: the oracle depends on this.
    #[test]
    fn a_tree_passes_unless_it_is_broken_or_has_incompatible_files() {
        assert!(all_pass(&tree(&[("a", "1 not-with:b"), ("c", "2")])));
        assert!(!all_pass(&tree(&[("a", "1 not-with:b"), ("b", "2")])));
        assert!(!all_pass(&tree(&[("a", "1 broken")])));
        assert!(
            !passes("quick", &tree(&[("a", "sloppy")]))
                && passes("unit", &tree(&[("a", "sloppy")]))
        );
    }

    /// Z4.3: reporter jobs fail on some merged trees, and not on all.
    #[test]
    fn reporter_jobs_fail_on_some_trees_that_pass() {
        let (fails, passes_too) = (tree(&[("a", "3")]), tree(&[("a", "1")]));
        assert!(all_pass(&fails) && all_pass(&passes_too));
        assert!(!passes(PUBLISH, &fails) && passes(PUBLISH, &passes_too));
    }

    /// S02: the oracle depends on this merge.
    #[test]
    fn files_changed_differently_on_both_sides_conflict() {
        let (base, ours) = (tree(&[("a", "0"), ("b", "0")]), tree(&[("a", "1"), ("b", "0")]));
        assert_eq!(
            merge(&base, &ours, &tree(&[("a", "0"), ("b", "2")])),
            Some(tree(&[("a", "1"), ("b", "2")]))
        );
        assert_eq!(merge(&base, &ours, &tree(&[("a", "2"), ("b", "0")])), None);
        assert_eq!(merge(&base, &ours, &tree(&[("a", "1")])), Some(tree(&[("a", "1")])));
    }
}
