//! Which trees pass: a pure function of the files, known to everybody who needs it. What a played
//! executor answers follows from it, and so does what the oracle expects.

use crate::graphs::{GUEST, HERALD, IMAGE, LEFT, LINT, PRELUDE};
use crate::plays::PUBLISH;
use sluice_scenarios::repos::Tree;

/// Returns whether a job passes on these files of the change's own project.
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
        // What votes fails only where one of the two above does.
        GUEST | HERALD | IMAGE => passes("unit", tree),
        LEFT | PRELUDE => passes("quick", tree),
        // It fails now and then, whatever the others say.
        PUBLISH => !sum(tree).is_multiple_of(3),
        LINT => !sum(tree).is_multiple_of(2),
        _ => true,
    }
}

/// Returns a number that follows from a tree and is another one for most others: by it is chosen
/// what a tree's text says nothing of.
pub fn sum(tree: &Tree) -> usize {
    tree.values().flat_map(|text| text.bytes()).map(usize::from).sum()
}

/// Returns whether every job passes.
pub fn all_pass(tree: &Tree) -> bool {
    ["unit", "quick"].into_iter().all(|job| passes(job, tree))
}

/// What a project's configuration names that asks for its secret where nobody has reviewed
/// anything.
pub const GREEDY: &str = "# greedy";

/// Returns whether these files hold configuration that asks for a secret before anybody has
/// reviewed it.
pub fn is_greedy(tree: &Tree) -> bool {
    tree.get(".zuul.yaml").is_some_and(|text| text.contains(GREEDY))
}

/// Merges file by file as a person would with a pencil: what only one side changed is taken, what
/// both changed differently does not merge. Written apart from the played repositories'.
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

    /// C2: what the oracle rests on.
    #[test]
    fn a_tree_passes_unless_it_is_broken_or_holds_what_does_not_go_together() {
        assert!(all_pass(&tree(&[("a", "1 not-with:b"), ("c", "2")])));
        assert!(!all_pass(&tree(&[("a", "1 not-with:b"), ("b", "2")])));
        assert!(!all_pass(&tree(&[("a", "1 broken")])));
        assert!(
            !passes("quick", &tree(&[("a", "sloppy")]))
                && passes("unit", &tree(&[("a", "sloppy")]))
        );
    }

    /// Z4.3: what comes after the report fails on trees that are in their branches, and not on all.
    #[test]
    fn what_runs_after_the_report_fails_on_some_trees_that_pass() {
        let (fails, passes_too) = (tree(&[("a", "3")]), tree(&[("a", "1")]));
        assert!(all_pass(&fails) && all_pass(&passes_too));
        assert!(!passes(PUBLISH, &fails) && passes(PUBLISH, &passes_too));
    }

    /// S02: and so does the merging.
    #[test]
    fn what_both_sides_changed_differently_does_not_merge() {
        let (base, ours) = (tree(&[("a", "0"), ("b", "0")]), tree(&[("a", "1"), ("b", "0")]));
        assert_eq!(
            merge(&base, &ours, &tree(&[("a", "0"), ("b", "2")])),
            Some(tree(&[("a", "1"), ("b", "2")]))
        );
        assert_eq!(merge(&base, &ours, &tree(&[("a", "2"), ("b", "0")])), None);
        assert_eq!(merge(&base, &ours, &tree(&[("a", "1")])), Some(tree(&[("a", "1")])));
    }
}
