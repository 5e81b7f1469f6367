//! Images, flavors, labels, sections and providers (L3.1).

use super::Span;
use super::provider_words::{
    FLAVOR, IMAGE, LABEL, LIMITS, NOT_BY_DEFAULT, Need, OF_A_PROVIDER, OF_A_SECTION, OF_BOTH,
    OF_ONE_ONLY, Part, Shape, Word,
};
use super::read::{Diagnostics, Fields, members};
use super::spans::{self, AttributeSpans};
use crate::error::{Diagnostic, DiagnosticKind};
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// One of the five kinds of provider objects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderObject {
    /// Its name.
    pub name: String,
    /// The span of the stanza.
    pub span: Span,
    /// The spans of its attributes.
    pub spans: AttributeSpans,
    /// The attributes under their current names, with checked types. `images`, `flavors`, `labels`
    /// and `nodes` are lists of mappings with a `name`.
    pub attributes: Map<String, Json>,
}

/// Reads an `image` stanza; `None`, with an error, if it has no name. Without `type` it is
/// returned, with an error. Invalid attributes are errors and left out, a few kept (see `value`);
/// unknown ones stay in `fields`.
pub(super) fn image(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<ProviderObject> {
    if !fields.has("type") {
        p.syntax(
            fields.node(),
            "type",
            "required key not provided: \"type\" must be \"zuul\" or \"cloud\"",
        );
    }
    object(fields, &[IMAGE], span, p)
}

/// Reads a `flavor` stanza; `None`, with an error, if it has no name. Invalid attributes are errors
/// and left out, a few kept (see `value`); unknown ones stay in `fields`.
pub(super) fn flavor(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<ProviderObject> {
    object(fields, &[FLAVOR], span, p)
}

/// Reads a `label` stanza; `None`, with an error, if it has no name. Invalid attributes are errors
/// and left out, a few kept (see `value`); unknown ones stay in `fields`.
pub(super) fn label(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<ProviderObject> {
    object(fields, &[LABEL], span, p)
}

/// Reads a `section` stanza; `None`, with an error, if it has no name. Invalid attributes are
/// errors and left out, a few kept (see `value`); unknown ones stay in `fields`.
pub(super) fn section(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<ProviderObject> {
    of_many(fields, OF_A_SECTION, span, p)
}

/// Reads a `provider` stanza; `None`, with an error, if it has no name. Without `section` it is
/// returned, with an error. Invalid attributes are errors and left out, a few kept (see `value`);
/// unknown ones stay in `fields`.
pub(super) fn provider(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<ProviderObject> {
    if !fields.has("section") {
        p.syntax(fields.node(), "section", "required key not provided: \"section\"");
    }
    of_many(fields, OF_A_PROVIDER, span, p)
}

/// Reads a section or provider with the attributes in `own_words`, those that both have, and those
/// of images, flavors and labels that can be set for all of them (L3.2). `None`, with an error, if
/// it has no name. Invalid attributes are errors and left out; unknown ones stay in `fields`.
fn of_many(
    fields: &mut Fields<'_>,
    own_words: &[Word],
    span: Span,
    p: &mut Diagnostics,
) -> Option<ProviderObject> {
    let general = |words: &[Word]| -> Vec<Word> {
        words.iter().filter(|word| !OF_ONE_ONLY.contains(&word.name)).copied().collect()
    };
    let (label, image, flavor) = (general(LABEL), general(IMAGE), general(FLAVOR));
    object(fields, &[own_words, OF_BOTH, &label, &image, &flavor], span, p)
}

/// Reads a named object with the attributes in `words`; `None`, with an error, if it has no name.
/// Invalid attributes are errors and left out, a few kept (see `value`); unknown ones stay in
/// `fields`. The caller has taken no attribute before.
fn object(
    fields: &mut Fields<'_>,
    words: &[&[Word]],
    span: Span,
    p: &mut Diagnostics,
) -> Option<ProviderObject> {
    let spans = spans::of_provider_object(fields);
    let name = fields.required_name("name", p);
    let attributes = attributes(fields, words, p);
    Some(ProviderObject { name: name?, span, spans, attributes })
}

/// Takes all attributes in `words` that are present, and returns them under their current names.
/// Invalid ones are errors and left out, a few kept (see `value`); attributes that are not in
/// `words` stay in `fields`. If several names of an attribute are present, the one that is last in
/// `words` counts, without an error.
fn attributes(
    fields: &mut Fields<'_>,
    words: &[&[Word]],
    p: &mut Diagnostics,
) -> Map<String, Json> {
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

/// Reads the value of an attribute by its shape, as JSON; `None`, with an error, if it has another
/// one. Where a list is expected, any other value is a list of one, so the result is never `None`.
/// Invalid parts of lists and mappings are errors and left out. Some are errors but stay: an
/// unknown word of a list; a member that must be a mapping and is none, which becomes an empty
/// mapping; and an integer beyond 64 bits, which becomes a text.
fn value(node: &Node, word: &Word, p: &mut Diagnostics) -> Option<Json> {
    let counted = |range: (u32, u32), p: &mut Diagnostics| {
        super::read::count(node, word.name, range, p).map(Json::from)
    };
    let fits = match (word.shape, &node.value) {
        (Shape::Count, _) => return counted((0, u32::MAX), p),
        (Shape::AtLeastOne, _) => return counted((1, u32::MAX), p),
        (Shape::Port, _) => return counted((1, u16::MAX.into()), p),
        (Shape::Text, Value::Text(_)) | (Shape::Flag, Value::Bool(_)) => true,
        (Shape::TextOrNull, Value::Text(_) | Value::Null) => true,
        (Shape::Texts, _) => return Some(Json::from(super::read::texts(node, word.name, p))),
        (Shape::Mapping, Value::Map(_)) => true,
        (Shape::Final, Value::Bool(_)) => true,
        (Shape::Final, Value::Text(text)) if text == "allow-override" => true,
        (Shape::WordList(words), _) => {
            let found = super::read::texts(node, word.name, p);
            for one in members(node) {
                let Some(wrong) = one.as_text().filter(|text| !words.contains(text)) else {
                    continue;
                };
                let message =
                    format!("\"{wrong}\" is not one of {} for \"{}\"", words.join(", "), word.name);
                let diagnostic =
                    Diagnostic::new(DiagnosticKind::Syntax, one.start, one.end, message);
                p.add(diagnostic.about(word.name).suggesting(wrong, words.iter().copied()));
            }
            return Some(Json::from(found));
        }
        (Shape::Limits, Value::Map(_)) => return Some(limits(node, word.name, p)),
        (Shape::Parts(parts), Value::Map(_)) => return Some(parts_of(node, word.name, parts, p)),
        (Shape::PartsList(parts), _) => {
            let list = members(node).iter().map(|member| parts_of(member, word.name, parts, p));
            return Some(Json::Array(list.collect()));
        }
        (Shape::WordOrNull(_), Value::Null) => true,
        (Shape::Words(words) | Shape::WordOrNull(words), Value::Text(text))
            if words.contains(&text.as_str()) =>
        {
            true
        }
        (Shape::Images, _) => return Some(named_list(node, word.name, &[IMAGE], p)),
        (Shape::Flavors, _) => return Some(named_list(node, word.name, &[FLAVOR], p)),
        (Shape::Labels, _) => return Some(named_list(node, word.name, &[LABEL], p)),
        (Shape::Nodes, _) => return Some(static_nodes(node, p)),
        (Shape::Defaults(words), Value::Map(_)) => return defaults(node, word.name, words, p),
        _ => false,
    };
    if fits {
        super::read::check_integer_range(node, word.name, p);
        return Some(node.to_json());
    }
    let what = match word.shape {
        Shape::Text => "a string".to_owned(),
        Shape::TextOrNull => "a string or null".to_owned(),
        Shape::Flag => "a boolean".to_owned(),
        Shape::Words(words) | Shape::WordOrNull(words) => format!("one of {}", words.join(", ")),
        Shape::Final => "true, false or \"allow-override\"".to_owned(),
        _ => "a mapping".to_owned(),
    };
    p.expected(node, word.name, &what);
    None
}

/// Reads the defaults of a section or provider for its images, flavors or labels. `words` are the
/// attributes of these; those that are particular to one object are errors here and left out, as
/// are unknown and invalid ones. `None`, with an error, if it is not a mapping.
fn defaults(node: &Node, attribute: &str, words: &[Word], p: &mut Diagnostics) -> Option<Json> {
    let mut fields = Fields::of(node, attribute, p)?;
    let is_of_one = |word: &&Word| NOT_BY_DEFAULT.contains(&word.name);
    let general: Vec<Word> = words.iter().filter(|word| !is_of_one(word)).copied().collect();
    let map = attributes(&mut fields, &[general.as_slice()], p);
    for word in words.iter().filter(is_of_one).filter(|word| node.get(word.name).is_some()) {
        if let Some(node) = fields.take(word.name) {
            let one = attribute.trim_end_matches("-defaults");
            let message = format!(
                "extra keys not allowed: \"{}\" can not have a default: set it in each {one}, or \
                 in its entry in \"{one}s\"",
                word.name
            );
            p.syntax(node, &fields.path(word.name), message);
        }
    }
    fields.finish(p);
    Some(Json::Object(map))
}

/// Reads a mapping with the keys in `parts` as JSON; an empty mapping, with an error, if it is no
/// mapping. Unknown keys and invalid values are errors and left out. A missing required key is an
/// error, but the rest is returned.
fn parts_of(node: &Node, attribute: &str, parts: &[Part], p: &mut Diagnostics) -> Json {
    let mut found = Map::new();
    let Some(mut fields) = Fields::of(node, attribute, p) else {
        return Json::Object(found);
    };
    for part in parts {
        let node = match part.need {
            Need::Required => fields.required(part.word.name, p),
            Need::Optional => fields.take(part.word.name),
        };
        if let Some(value) = node.and_then(|node| value(node, &part.word, p)) {
            found.insert(part.word.canonical.to_owned(), value);
        }
    }
    fields.finish(p);
    Json::Object(found)
}

/// Reads limits as JSON: counts by resource name, or by the code of an Amazon quota (`L-…`).
/// Unknown names and invalid counts are errors and left out. The caller has checked that it is a
/// mapping; any other value is empty, without an error.
fn limits(node: &Node, attribute: &str, p: &mut Diagnostics) -> Json {
    let mut found = Map::new();
    for (key, limit) in node.as_map().unwrap_or_default() {
        let Some(name) = super::read::text(key, attribute, p) else { continue };
        let path = format!("{attribute}.{name}");
        // Amazon identifies quotas by codes.
        if !LIMITS.contains(&name.as_str()) && !name.starts_with("L-") {
            let message = format!("extra keys not allowed: \"{name}\" is not an attribute here");
            let diagnostic =
                Diagnostic::new(DiagnosticKind::Syntax, key.start, key.end, message).about(&path);
            p.add(diagnostic.suggesting(&name, LIMITS));
        } else if let Value::Int(0..) = limit.value {
            found.insert(name, limit.to_json());
        } else {
            p.expected(limit, &path, &format!("an integer from 0 to {}", i64::MAX));
        }
    }
    Json::Object(found)
}

/// Reads a list of names, or of mappings with a name and the attributes in `words`, as a JSON list
/// of mappings; any other value is a list of one. Members without a name are errors and left out.
/// Invalid and unknown attributes are errors and left out.
fn named_list(node: &Node, attribute: &str, words: &[&[Word]], p: &mut Diagnostics) -> Json {
    let mut list = Vec::new();
    for member in members(node) {
        if let Value::Text(name) = &member.value {
            list.push(serde_json::json!({ "name": name }));
            continue;
        }
        let Some(mut fields) = Fields::of(member, attribute, p) else {
            continue;
        };
        // An entry without a name is still read, to find its other errors.
        let name = fields.required_name("name", p);
        let mut map = attributes(&mut fields, words, p);
        if let Some(name) = name {
            map.insert("name".to_owned(), Json::String(name));
            list.push(Json::Object(map));
        }
        fields.finish(p);
    }
    Json::Array(list)
}

/// Takes the labels of a static node: a list `labels`, or the single `label` of the older form.
/// Empty, with an error, if both are absent. Values that are no text are errors and left out. Both
/// are an error, and `labels` counts.
fn static_labels(f: &mut Fields<'_>, p: &mut Diagnostics) -> Vec<String> {
    match f.one_of(&["labels", "label"], p) {
        Some(("label", node)) => super::read::text(node, "nodes.label", p).into_iter().collect(),
        Some((_, node)) => super::read::texts(node, "nodes.labels", p),
        None => {
            p.syntax(
                f.node(),
                "nodes.label",
                "required key not provided: \"label\" (or \"labels\")",
            );
            Vec::new()
        }
    }
}

/// Reads the list of static nodes as a JSON list of mappings, each with all attributes. Members
/// that are no mapping or have no name are errors and left out. Absent and, with an error, invalid
/// attributes are null or empty.
fn static_nodes(node: &Node, p: &mut Diagnostics) -> Json {
    let mut list = Vec::new();
    for member in members(node) {
        let Some(mut f) = Fields::of(member, "nodes", p) else {
            continue;
        };
        let labels = static_labels(&mut f, p);
        let name = f.required_name("name", p);
        let host_key = f.texts("host-key", p).unwrap_or_default();
        let username = f.text("username", p);
        let port = f.port("connection-port", p);
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
