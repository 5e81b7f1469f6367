//! Finds cycles between the modules of a crate, from the paths in their source.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the module cycles of every crate: the crate's directory and the modules of one strongly
/// connected component of at least two modules. `files` are paths with their text.
#[must_use]
pub fn module_cycles(files: &[(String, String)]) -> Vec<(String, Vec<String>)> {
    let mut crates: BTreeMap<&str, BTreeMap<Vec<String>, &str>> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let Some((directory, file)) = path.split_once("/src/") else { continue };
        let is_test = file.split('/').any(|part| part.trim_end_matches(".rs").ends_with("tests"));
        if !is_test {
            crates.entry(directory).or_default().insert(module_path(file), text);
        }
    }
    let mut cycles = Vec::new();
    for (directory, modules) in crates {
        let edges: BTreeMap<&Vec<String>, BTreeSet<&Vec<String>>> = modules
            .iter()
            .map(|(module, text)| (module, imported_modules(module, text, &modules)))
            .collect();
        for component in components(&edges) {
            let names = component.iter().map(|module| module.join("::")).collect();
            cycles.push((directory.to_owned(), names));
        }
    }
    cycles
}

/// Returns the module path of a file below `src`: `plan/admit.rs` is `plan::admit`. The crate's
/// root is the empty path.
fn module_path(file: &str) -> Vec<String> {
    let mut parts: Vec<String> =
        file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// Returns the modules whose items a module names by `crate::` or `super::`. The root, ancestors
/// and descendants are left out: a parent re-exports, and a child uses its parent's types.
fn imported_modules<'a>(
    module: &[String],
    text: &str,
    modules: &'a BTreeMap<Vec<String>, &str>,
) -> BTreeSet<&'a Vec<String>> {
    let code: String = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or(text)
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut imported = BTreeSet::new();
    for (prefix, base) in [("crate::", 0), ("super::", module.len().saturating_sub(1))] {
        for rest in code.split(prefix).skip(1) {
            for tail in heads(rest) {
                let path: Vec<String> = module[..base].iter().cloned().chain(tail).collect();
                let target = (1..=path.len()).rev().find_map(|n| modules.get_key_value(&path[..n]));
                if let Some((target, _)) = target {
                    let related = module.starts_with(target) || target.starts_with(module);
                    if !related {
                        imported.insert(target);
                    }
                }
            }
        }
    }
    imported
}

/// Returns the paths that begin the text after `crate::`: one, or those of a brace group.
fn heads(text: &str) -> Vec<Vec<String>> {
    let group = text.strip_prefix('{').and_then(|inside| inside.split('}').next());
    let parts: Vec<&str> = group.map_or_else(|| vec![text], |inside| inside.split(',').collect());
    parts
        .into_iter()
        .map(|part| {
            let end = part
                .trim()
                .split(|sign: char| !sign.is_alphanumeric() && sign != '_' && sign != ':')
                .next()
                .unwrap_or_default();
            end.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
        })
        .collect()
}

/// Returns the strongly connected components of at least two nodes.
fn components<'a>(
    edges: &BTreeMap<&'a Vec<String>, BTreeSet<&'a Vec<String>>>,
) -> Vec<Vec<&'a Vec<String>>> {
    let reach: BTreeMap<_, _> = edges.keys().map(|&node| (node, reachable(node, edges))).collect();
    let mut placed = BTreeSet::new();
    let mut found = Vec::new();
    for &node in edges.keys() {
        if placed.contains(node) {
            continue;
        }
        let component: Vec<_> = edges
            .keys()
            .copied()
            .filter(|other| {
                *other == node || (reach[node].contains(*other) && reach[*other].contains(node))
            })
            .collect();
        placed.extend(component.iter().copied());
        if component.len() > 1 {
            found.push(component);
        }
    }
    found
}

fn reachable<'a>(
    node: &'a Vec<String>,
    edges: &BTreeMap<&'a Vec<String>, BTreeSet<&'a Vec<String>>>,
) -> BTreeSet<&'a Vec<String>> {
    let mut reached = BTreeSet::new();
    let mut next = vec![node];
    // Terminates: each module is expanded once.
    while let Some(module) = next.pop() {
        for &target in edges.get(module).into_iter().flatten() {
            if reached.insert(target) {
                next.push(target);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> (String, String) {
        (path.to_owned(), text.to_owned())
    }

    #[test]
    fn modules_that_import_each_other_are_a_cycle() {
        let files = [
            file("a/src/lib.rs", "mod one; mod two; mod three;"),
            file("a/src/one.rs", "use crate::two::Two;"),
            file("a/src/two.rs", "use crate::{one, three::Three};"),
            file("a/src/three.rs", "// crate::one in a comment"),
        ];
        let expected = vec![("a".to_owned(), vec!["one".to_owned(), "two".to_owned()])];
        assert_eq!(module_cycles(&files), expected);
    }
}
