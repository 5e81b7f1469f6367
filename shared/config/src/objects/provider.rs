//! Image, flavor, label, section and provider: what nodes are made of (L3.1).

use super::Place;
use super::provider_words::{FLAVOR, IMAGE, LABEL, SECTION, Shape, Word};
use super::read::{Fields, Problems, members};
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// What one of the five stanzas says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderObject {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub place: Place,
    /// Its attributes under their released names, checked for their type. `images`, `flavors`, `labels` and `nodes` are lists of mappings with a `name`.
    pub attributes: Map<String, Json>,
}

pub(super) fn image(fields: &mut Fields<'_>, place: Place, p: &mut Problems) -> Option<ProviderObject> {
    let object = object(fields, &[IMAGE], place, p)?;
    match object.attributes.get("type").and_then(Json::as_str) {
        Some("zuul" | "cloud") => Some(object),
        _ => {
            p.syntax(fields.node(), "type", "required key not provided: \"type\" must be \"zuul\" or \"cloud\"");
            None
        }
    }
}

pub(super) fn flavor(fields: &mut Fields<'_>, place: Place, p: &mut Problems) -> Option<ProviderObject> {
    object(fields, &[FLAVOR], place, p)
}

pub(super) fn label(fields: &mut Fields<'_>, place: Place, p: &mut Problems) -> Option<ProviderObject> {
    object(fields, &[LABEL], place, p)
}

pub(super) fn section(fields: &mut Fields<'_>, place: Place, p: &mut Problems) -> Option<ProviderObject> {
    object(fields, &[SECTION, LABEL, IMAGE, FLAVOR], place, p)
}

pub(super) fn provider(fields: &mut Fields<'_>, place: Place, p: &mut Problems) -> Option<ProviderObject> {
    let object = object(fields, &[SECTION, LABEL, IMAGE, FLAVOR], place, p)?;
    if !object.attributes.get("section").is_some_and(Json::is_string) {
        p.syntax(fields.node(), "section", "required key not provided: \"section\"");
        return None;
    }
    Some(object)
}

fn object(fields: &mut Fields<'_>, words: &[&[Word]], place: Place, p: &mut Problems) -> Option<ProviderObject> {
    let name = fields.required_text("name", p)?;
    Some(ProviderObject { name, place, attributes: attributes(fields, words, p) })
}

fn attributes(fields: &mut Fields<'_>, words: &[&[Word]], p: &mut Problems) -> Map<String, Json> {
    let mut found = Map::new();
    for word in words.iter().flat_map(|group| group.iter()) {
        let Some(node) = fields.take(word.name) else {
            continue;
        };
        if let Some(value) = value(node, word, p) {
            found.insert(word.canonical.to_owned(), value);
        }
    }
    found
}

fn value(node: &Node, word: &Word, p: &mut Problems) -> Option<Json> {
    let fits = match (word.shape, &node.value) {
        (Shape::Text, Value::Text(_))
        | (Shape::Count, Value::Int(0..))
        | (Shape::Flag, Value::Bool(_))
        | (Shape::Any, _) => true,
        (Shape::TextOrNull, Value::Text(_) | Value::Null) => true,
        (Shape::Texts, _) => return Some(Json::from(super::read::texts(node, word.name, p))),
        (Shape::Mapping, Value::Map(_)) => true,
        (Shape::Words(words), Value::Text(text)) if words.contains(&text.as_str()) => true,
        (Shape::Images, _) => return Some(named_list(node, word.name, &[IMAGE], p)),
        (Shape::Flavors, _) => return Some(named_list(node, word.name, &[FLAVOR], p)),
        (Shape::Labels, _) => return Some(named_list(node, word.name, &[LABEL], p)),
        (Shape::Nodes, _) => return Some(static_nodes(node, p)),
        (Shape::Defaults(words), Value::Map(_)) => {
            let mut fields = Fields::of(node, word.name, p)?;
            let map = attributes(&mut fields, &[words], p);
            fields.finish(p);
            return Some(Json::Object(map));
        }
        _ => false,
    };
    if fits {
        return Some(node.to_json());
    }
    let what = match word.shape {
        Shape::Text => "a string".to_owned(),
        Shape::TextOrNull => "a string or null".to_owned(),
        Shape::Count => "an integer of at least 0".to_owned(),
        Shape::Flag => "a boolean".to_owned(),
        Shape::Words(words) => format!("one of {}", words.join(", ")),
        _ => "a mapping".to_owned(),
    };
    p.expected(node, word.name, &what);
    None
}

/// Reads a list of names or of mappings with a name.
fn named_list(node: &Node, attribute: &str, words: &[&[Word]], p: &mut Problems) -> Json {
    let mut list = Vec::new();
    for member in members(node) {
        if let Value::Text(name) = &member.value {
            list.push(serde_json::json!({ "name": name }));
            continue;
        }
        let Some(mut fields) = Fields::of(member, attribute, p) else {
            continue;
        };
        if let Some(name) = fields.required_text("name", p) {
            let mut map = attributes(&mut fields, words, p);
            map.insert("name".to_owned(), Json::String(name));
            list.push(Json::Object(map));
        }
        fields.finish(p);
    }
    Json::Array(list)
}

fn static_nodes(node: &Node, p: &mut Problems) -> Json {
    let mut list = Vec::new();
    for member in members(node) {
        let Some(mut f) = Fields::of(member, "nodes", p) else {
            continue;
        };
        let labels = f
            .take_any(&["labels", "label"])
            .map(|node| super::read::texts(node, "nodes.labels", p))
            .unwrap_or_default();
        let name = f.required_text("name", p);
        let host_key = f.texts("host-key", p).unwrap_or_default();
        let username = f.text("username", p);
        let port = f.count("connection-port", 1, p);
        let aliases = f.texts("aliases", p).unwrap_or_default();
        f.finish(p);
        if let Some(name) = name {
            list.push(serde_json::json!({
                "name": name, "labels": labels, "host-key": host_key, "username": username, "connection-port": port, "aliases": aliases
            }));
        }
    }
    Json::Array(list)
}
