//! Each attribute of the list takes effect: different values yield different frozen jobs, layouts
//! or run-time structures. The cases are derived from the list, so that a new attribute without
//! effect fails the test.
//!
//! [`effect`] puts an object into a small tenant and returns the result. [`values`] has sample values
//! for attributes that do not accept any value.

mod effect;
mod provider;
mod values;

use crate::list::Type;
use crate::tables::{self, Ignored};
use crate::walk::{At, objects};
use effect::Effect;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

/// Attributes without an effect, with the reason. Names of objects are omitted, since everything is
/// found by them.
pub const NOT_SEEN: &[(&str, &str, &str)] = &[
    ("job", "include-projects.type", "\"name\" is the only sort of selector"),
    ("job", "exclude-projects.type", "\"name\" is the only sort of selector"),
    ("entry", "include-projects.type", "\"name\" is the only sort of selector"),
    ("entry", "exclude-projects.type", "\"name\" is the only sort of selector"),
    ("git trigger", "event", "\"ref-updated\" is the only event"),
    (
        "entry",
        "parent",
        "Z4.2: an entry is applied to a job with all it inherits, and inherits from nothing",
    ),
    ("entry", "protected", "Z4.1: it binds children, and an entry has none"),
    (
        "entry",
        "allowed-projects",
        "Z5.3: the entry is a config project's here, which may add any job to any project's pipelines",
    ),
    ("entry", "intermediate", "Z4.1: it binds children, and an entry has none"),
];

/// Attributes with one value whose effect is a refusal.
const SEEN_BY_REFUSAL: &[(&str, &str)] = &[
    ("job", "final"),
    ("job", "abstract"),
    ("job", "protected"),
    ("job", "intermediate"),
    ("job", "post-review"),
    ("job", "allowed-projects"),
    ("job", "attribute-control"),
    ("job", "image-build-name"),
    ("entry", "final"),
    ("entry", "abstract"),
    ("entry", "post-review"),
    ("entry", "attribute-control"),
    ("section", "abstract"),
    ("aws section/provider", "abstract"),
    ("static section/provider", "abstract"),
    ("aws section/provider", "final"),
    ("static section/provider", "final"),
];

fn short(object: &str) -> &str {
    if object.starts_with("entry of") { "entry" } else { object }
}

/// Returns whether an attribute is in a list of whole paths, first parts or last parts.
fn is_in<'l>(mut list: impl Iterator<Item = (&'l str, &'l str)>, at: &At<'_>) -> bool {
    let whole = at.path.join(".");
    let ends = [whole.as_str(), at.path[0].as_str(), at.name()];
    list.any(|(object, name)| object == short(at.object) && ends.contains(&name))
}

/// Returns all values of a type with few values, each of which must have a different effect.
fn few(kind: &Type) -> Vec<Json> {
    match kind {
        Type::Bool => vec![json!(true), json!(false)],
        Type::True => vec![json!(true)],
        Type::Null => vec![Json::Null],
        Type::Literal(word) => vec![json!(word)],
        Type::OneOf(kinds) => {
            let mut found: Vec<Json> = Vec::new();
            for value in kinds.iter().flat_map(few) {
                if !found.contains(&value) {
                    found.push(value);
                }
            }
            found
        }
        _ => Vec::new(),
    }
}

/// Returns groups of values; values of a group must have different effects. `None` omits the
/// attribute.
fn groups(at: &At<'_>) -> Vec<Vec<Option<Json>>> {
    let kind = at.attribute.kind.as_ref().unwrap();
    let given = values::of(at.object, &at.path);
    if given.len() > 1 {
        return vec![given.into_iter().map(Some).collect()];
    }
    let few = few(kind);
    let mut groups = Vec::new();
    if few.len() > 1 {
        groups.push(few.iter().cloned().map(Some).collect());
    }
    let any = given.into_iter().chain(at.right()).find(|value| !few.contains(value));
    let any = any.or_else(|| few.first().filter(|_| few.len() == 1).cloned());
    // All values of a required attribute with few values were tried.
    if let Some(any) = any.filter(|_| groups.is_empty() || !at.attribute.required) {
        let first = (!at.attribute.required).then_some(None);
        groups.push(vec![first.unwrap_or_else(|| Some(any.clone())), Some(values::another(&any))]);
    }
    groups
}

fn is_object_name(at: &At<'_>) -> bool {
    // The object `project` is identified by its project.
    at.path.len() == 1 && at.name() == "name" && at.object != "project"
}

/// Z2, Z3, Z4.3, Z4.7, Z6.1, L3: different values of every attribute have different effects.
#[test]
fn every_attribute_of_the_list_takes_effect() {
    let objects = objects();
    let (mut failures, mut count) = (Vec::new(), 0);
    for at in At::all(&objects) {
        if is_object_name(&at)
            || is_in(NOT_SEEN.iter().map(|(object, name, _)| (*object, *name)), &at)
        {
            continue;
        }
        let place = format!("{} {}", at.object, at.path.join("."));
        let groups = groups(&at);
        assert!(!groups.is_empty(), "{place}: there is no value to try");
        for group in groups {
            count += 1;
            let mut results: Vec<(String, Vec<Effect>)> = Vec::new();
            for value in group {
                let said = value.as_ref().map_or_else(|| "nothing".to_owned(), Json::to_string);
                // Omitting a required attribute omits its parent.
                results.push((said, effect::of(&at, &at.given(value))));
            }
            for (said, found) in &results {
                let refused = found.iter().flat_map(|one| &one.refused).collect::<Vec<_>>();
                if !refused.is_empty() && !is_in(SEEN_BY_REFUSAL.iter().copied(), &at) {
                    failures.push(format!("{place}: {said} is refused: {refused:?}"));
                }
            }
            for (number, (one, first)) in results.iter().enumerate() {
                for (other, second) in &results[number + 1..] {
                    // For each location of such an object.
                    if first.iter().zip(second).any(|(one, other)| one.comes_to_the_same_as(other))
                    {
                        failures.push(format!("{place}: {one} and {other} come to the same"));
                    }
                }
            }
        }
    }
    println!("{count} cases");
    assert!(
        failures.is_empty(),
        "{} of {count} have no effect:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(count > 1_000, "{count}");
}

/// Z6.6: exactly the attributes of the list of ignored attributes are warned of, each where it is
/// set. So neither the warnings nor the tables of the page, which are made from the list, can omit
/// an attribute that the other one has.
#[test]
fn the_warnings_are_about_exactly_the_attributes_of_the_list() {
    let objects = objects();
    let (mut failures, mut used) = (Vec::new(), BTreeSet::new());
    for at in At::all(&objects).into_iter().filter(|at| !is_object_name(at)) {
        let path = at.path.join(".");
        let listed = tables::ignored(at.object, &path);
        let of_driver = match at.object.rsplit_once(' ') {
            Some((_, "trigger")) => Some("trigger"),
            Some((_, "reporter")) => Some("reporters"),
            Some((_, "require")) => Some("require"),
            Some((_, "reject")) => Some("reject"),
            _ => None,
        };
        let is_about = |name: &String| match of_driver {
            Some(attribute) => name == attribute,
            // That no provider offers a label is not about the attribute itself.
            None => name != "nodes.label" && (*name == path || at.path.contains(name)),
        };
        let effects = groups(&at).into_iter().flatten();
        let effects = effects.flat_map(|value| effect::of(&at, &at.given(value)));
        let warned: BTreeSet<String> =
            effects.flat_map(|effect| effect.warned).filter(is_about).collect();
        match (listed, warned.is_empty()) {
            (Ignored::Wholly, true) => {
                failures.push(format!("{} {path} is listed, and not warned of", at.object));
            }
            // Some of its events are sent, and others are not: see `trigger` of a pipeline.
            (Ignored::Not, false) if at.object != "zuul trigger" => {
                failures.push(format!("{} {path} is warned of, and not listed", at.object));
            }
            _ => used.extend(warned),
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert!(used.len() > 50, "{}", used.len());
}

/// Every attribute listed as without effect exists in the list.
#[test]
fn the_reasons_are_for_attributes_that_there_are() {
    let objects = objects();
    let known: BTreeSet<(String, String)> = At::all(&objects)
        .iter()
        .map(|at| (short(at.object).to_owned(), at.path.join(".")))
        .collect();
    for (object, name, reason) in NOT_SEEN {
        assert!(
            known.contains(&((*object).to_owned(), (*name).to_owned())),
            "{object} {name}: {reason}"
        );
    }
}
