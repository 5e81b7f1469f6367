//! Compares the tables of `docs/moving-from-zuul.md` with the attribute list and with the list of
//! ignored attributes. With `SLUICE_UPDATE_DOCS=1`, writes them instead.

use crate::common::ATTRIBUTES;
use crate::effects::NOT_SEEN;
use crate::exceptions::SYSTEM;
use sluice_config::layout::{IGNORED_ATTRIBUTES, IGNORED_DRIVER_OBJECTS};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// The page with the tables.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/moving-from-zuul.md");
/// The line before the tables.
const BEGIN: &str = "<!-- tables: written by shared/config/tests/attributes/tables.rs -->";
/// The line after the tables.
const END: &str = "<!-- end of the tables -->";

/// Attributes of an object, each with the names of those below it.
type Names<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Returns the object's name in the list of ignored attributes.
fn kind(object: &str) -> &str {
    match object {
        "image" | "flavor" | "label" | "section" | "provider" => "node",
        "aws section/provider" | "static section/provider" => "node",
        other => other,
    }
}

/// Returns whether every value of an attribute is ignored. `path` has dots between the names.
fn is_ignored(object: &str, path: &str) -> bool {
    if IGNORED_DRIVER_OBJECTS.contains(&object) {
        return true;
    }
    let first = path.split('.').next().unwrap_or(path);
    let last = path.rsplit('.').next().unwrap_or(path);
    IGNORED_ATTRIBUTES.iter().any(|entry| {
        entry.object == kind(object)
            && !entry.is_partial
            && [path, first, last].contains(&entry.attribute)
    })
}

/// Returns the attributes as the text of a table's cell.
fn cell(names: &Names<'_>) -> String {
    let one = |(name, below): (&&str, &BTreeSet<&str>)| {
        let below: Vec<&str> = below.iter().copied().collect();
        if below.is_empty() {
            format!("`{name}`")
        } else {
            format!("`{name}` ({})", below.join(", "))
        }
    };
    let text = names.iter().map(one).collect::<Vec<_>>().join(", ");
    text.replace('|', "/").replace(['<', '>'], "*")
}

fn tables() -> String {
    let mut objects: BTreeMap<&str, (Names<'_>, Names<'_>)> = BTreeMap::new();
    for row in ATTRIBUTES.lines().skip(1) {
        let fields: Vec<&str> = row.split('\t').collect();
        let (area, object, path) = (fields[0], fields[1], fields[2]);
        let is_configuration =
            matches!(area, "in-repo config" | "tenant config" | "driver" | "launcher driver");
        // Limits of AWS by code, and marks of the list's schema.
        let is_name = !["(capabilities)", "<Required>", "<object>", "<job attribute>", ".L-"]
            .iter()
            .any(|mark| path.contains(mark));
        if !is_configuration || !is_name || object.starts_with(SYSTEM) {
            continue;
        }
        let (acts, ignored) = objects.entry(object).or_default();
        let names = if is_ignored(object, path) { ignored } else { acts };
        let first = path.split('.').next().unwrap_or(path);
        let last = path.rsplit('.').next().unwrap_or(path);
        let below = names.entry(first).or_default();
        if first != path {
            below.insert(last);
        }
    }
    let mut text = "| object | carried out | ignored |\n|---|---|---|\n".to_owned();
    for (object, (acts, ignored)) in &objects {
        let object = object.replace('|', "/");
        writeln!(text, "| `{object}` | {} | {} |", cell(acts), cell(ignored)).unwrap();
    }
    text += "\n| object | attribute | ignored values | instead |\n|---|---|---|---|\n";
    let mut rows = BTreeSet::new();
    for entry in IGNORED_ATTRIBUTES {
        let values = if entry.ignored_values.is_empty() { "all" } else { entry.ignored_values };
        let (object, attribute) = (entry.object, entry.attribute);
        rows.insert(format!("| {object} | `{attribute}` | {values} | {} |\n", entry.consequence));
    }
    text.extend(rows);
    text += "\n| object | attribute | why no test can see it act |\n|---|---|---|\n";
    let rows: BTreeSet<String> = NOT_SEEN
        .iter()
        .map(|(object, attribute, why)| format!("| {object} | `{attribute}` | {why} |\n"))
        .collect();
    text.extend(rows);
    text
}

/// Z2, Z3, Z4, Z6.1, L3: the page has the lists' tables.
#[test]
fn the_tables_of_the_page_are_those_of_the_lists() {
    let page = std::fs::read_to_string(Path::new(PAGE)).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    let tables = tables();
    if std::env::var("SLUICE_UPDATE_DOCS").is_ok_and(|value| value == "1") {
        let page = format!("{before}{BEGIN}\n\n{tables}\n{END}{after}");
        std::fs::write(Path::new(PAGE), page).unwrap();
        return;
    }
    assert!(
        written.trim() == tables.trim(),
        "the tables of docs/moving-from-zuul.md differ from the lists; run this test with SLUICE_UPDATE_DOCS=1 to write them:\n{tables}"
    );
}
