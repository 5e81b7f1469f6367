//! Compares the tables of `docs/moving-from-zuul.md` with the attribute list and with the list of
//! ignored attributes. With `SLUICE_UPDATE_DOCS=1`, writes them instead.

use crate::common::ATTRIBUTES;
use crate::effects::NOT_SEEN;
use crate::exceptions::SYSTEM;
use sluice_config::layout::{IGNORED_ATTRIBUTES, IGNORED_DRIVER_OBJECTS, IgnoredAttribute};
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
        "entry of a project" | "entry of a template" => "job",
        "image" | "flavor" | "label" | "section" | "provider" => "node",
        "aws section/provider" | "static section/provider" => "node",
        other => other,
    }
}

/// How much of an attribute is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    Wholly,
    /// Some values are.
    Partly,
    Not,
}

/// Returns how much of an attribute the list of ignored attributes has. `path` has dots between
/// the names.
pub fn ignored(object: &str, path: &str) -> Ignored {
    if IGNORED_DRIVER_OBJECTS.contains(&object) {
        return Ignored::Wholly;
    }
    let is_of = |entry: &&IgnoredAttribute| {
        let of_static = object == "static section/provider" && !path.starts_with("nodes");
        let is_object = entry.object == object || entry.object == kind(object);
        (is_object || (of_static && entry.object == "static node"))
            && (entry.attribute == path || path.split('.').any(|part| part == entry.attribute))
    };
    let entries: Vec<&IgnoredAttribute> = IGNORED_ATTRIBUTES.iter().filter(is_of).collect();
    match entries.iter().any(|entry| !entry.is_partial) {
        true => Ignored::Wholly,
        false if entries.is_empty() => Ignored::Not,
        false => Ignored::Partly,
    }
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
        let (acts, without_effect) = objects.entry(object).or_default();
        let names = match ignored(object, path) {
            Ignored::Wholly => without_effect,
            Ignored::Partly | Ignored::Not => acts,
        };
        let first = path.split('.').next().unwrap_or(path);
        let last = path.rsplit('.').next().unwrap_or(path);
        let below = names.entry(first).or_default();
        if first != path {
            below.insert(last);
        }
    }
    let mut text = "| object | carried out | ignored |\n|---|---|---|\n".to_owned();
    for (object, (acts, without_effect)) in &objects {
        let object = object.replace('|', "/");
        writeln!(text, "| `{object}` | {} | {} |", cell(acts), cell(without_effect)).unwrap();
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
