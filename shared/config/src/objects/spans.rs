//! The spans of a stanza's attributes, so that diagnostics point at a wrong name and not just at
//! the stanza.

use super::Span;
use super::read::{Fields, members, untag};
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The spans of attributes (`parent`) and of members of their lists (`secrets.0`), by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttributeSpans(Vec<(String, Span)>);

impl AttributeSpans {
    /// Returns whether there are no spans.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the span of an attribute, or of a member by its full name (`secrets.0`); `None` if
    /// it is unknown.
    pub fn of(&self, attribute: &str) -> Option<Span> {
        self.0.iter().find(|(name, _)| name == attribute).map(|(_, span)| *span)
    }

    /// Returns the span of a member of an attribute's list, or else that of the attribute; `None`
    /// if neither is known. `member` is the member's index from 0, or its name in a list by name.
    pub fn of_member(&self, attribute: &str, member: &str) -> Option<Span> {
        let is_it = |name: &str| {
            name.strip_prefix(attribute).and_then(|rest| rest.strip_prefix('.')) == Some(member)
        };
        let found = self.0.iter().find(|(name, _)| is_it(name)).map(|(_, span)| *span);
        found.or_else(|| self.of(attribute))
    }

    /// Adds the span of an attribute.
    pub(super) fn add(&mut self, attribute: &str, node: &Node) {
        self.0.push((attribute.to_owned(), Span::of(node)));
    }

    /// Adds the span of a member of an attribute's list. `member` is its index from 0.
    fn add_member(&mut self, attribute: &str, member: usize, node: &Node) {
        self.0.push((format!("{attribute}.{member}"), Span::of(node)));
    }

    /// Adds an attribute and the members of its list, by index; a single value is a list of one.
    /// For members that are mappings, uses the value of the first of `keys` that is present, or
    /// else the member.
    fn add_list(&mut self, attribute: &str, node: &Node, keys: &[&str]) {
        let (inner, _) = untag(node);
        self.add(attribute, inner);
        for (number, member) in members(inner).iter().enumerate() {
            let named = keys.iter().find_map(|key| member.get(key));
            self.add_member(attribute, number, named.unwrap_or(member));
        }
    }

    /// Adds members that follow `before` others in an attribute's list. For members that are
    /// mappings, uses the value of the first of `keys` that is present, or else the member. Adds
    /// the span of the attribute, that of `node`, if it has none yet.
    fn add_more(&mut self, attribute: &str, before: usize, node: &Node, keys: &[&str]) {
        if self.of(attribute).is_none() {
            self.add(attribute, node);
        }
        for (number, member) in members(node).iter().enumerate() {
            let named = keys.iter().find_map(|key| member.get(key));
            self.add_member(attribute, before + number, named.unwrap_or(member));
        }
    }

    /// Removes the spans of the members, by index, of lists with errors: a member that could not be
    /// read is missing in its list, so the indexes no longer match. `attributes` are the names in
    /// the errors, also older ones. The spans of the lists stay.
    pub(super) fn forget_members(&mut self, attributes: &BTreeSet<String>) {
        let any = |words: &[&str]| words.iter().any(|word| attributes.contains(*word));
        let has_error = |list: &str| match list {
            "required-projects" => any(&["required-projects", "repos"]),
            "secrets" => any(&["secrets", "auth"]),
            "label" | "alternatives" => any(&["nodeset", "nodes", "groups", "alternatives"]),
            "post-run" => any(&["post-run", "cleanup-run"]),
            other => attributes.contains(other),
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        self.0.retain(|(name, _)| match name.split_once('.') {
            Some((list, number)) if is_number(number) => !has_error(list),
            _ => true,
        });
    }

    /// Adds the spans of a nodeset's labels and alternatives, as `label` and `alternatives`, with a
    /// member for each node and each alternative. The nodes of inline alternatives are numbered
    /// through. `body` is the nodeset or its list of nodes; adds nothing if it has neither nodes
    /// nor alternatives.
    fn add_nodeset(&mut self, body: &Node) {
        let mut labels = 0;
        let mut add_nodes = |spans: &mut Self, nodes: &Node| {
            if spans.of("label").is_none() {
                spans.add("label", nodes);
            }
            for node in members(nodes) {
                let label = node.get("label").or_else(|| node.get("image"));
                spans.add_member("label", labels, label.unwrap_or(node));
                labels += 1;
            }
        };
        match (&body.value, body.get("nodes"), body.get("alternatives")) {
            (Value::List(_), ..) => add_nodes(self, body),
            (_, Some(nodes), _) => add_nodes(self, nodes),
            (_, None, Some(list)) => {
                self.add("alternatives", list);
                for (number, alternative) in members(list).iter().enumerate() {
                    self.add_member("alternatives", number, alternative);
                    if let Some(nodes) = alternative.get("nodes") {
                        add_nodes(self, nodes);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Lists of a job whose members name objects, with the keys for the name in a member.
const LISTS_OF_A_JOB: [(&str, &[&str]); 11] = [
    ("secrets", &["secret", "name"]),
    ("required-projects", &["name"]),
    ("allowed-projects", &[]),
    ("include-projects", &["name"]),
    ("exclude-projects", &["name"]),
    ("include-vars", &["project", "name"]),
    ("roles", &["zuul", "galaxy"]),
    ("dependencies", &["name"]),
    ("pre-run", &["name"]),
    ("run", &["name"]),
    ("post-run", &["name"]),
];

/// Returns the current name for an older name of a job's attribute; any other name as it is.
fn current_name(attribute: &str) -> &str {
    match attribute {
        "repos" => "required-projects",
        "nodes" => "nodeset",
        "semaphore" => "semaphores",
        "override-branch" => "override-checkout",
        other => other,
    }
}

/// Returns the spans of a job's attributes, under their current names, and of the members of lists
/// that name objects. None of the job's attributes may have been taken from `fields` yet, except
/// the name.
pub(super) fn of_job(fields: &Fields<'_>) -> AttributeSpans {
    let mut spans = AttributeSpans::default();
    for (attribute, _, node) in fields.entries() {
        let name = current_name(attribute);
        match LISTS_OF_A_JOB.iter().find(|(list, _)| *list == name) {
            Some((_, keys)) => spans.add_list(name, node, keys),
            None => spans.add(name, node),
        }
        if name == "nodeset" {
            spans.add_nodeset(node);
        }
    }
    // Cleanup playbooks are stored after the other post-run playbooks.
    if let Some(node) = fields.peek("cleanup-run") {
        let before = fields.peek("post-run").map_or(0, |own| members(own).len());
        spans.add_more("post-run", before, node, &["name"]);
    }
    let auth = fields.peek("auth");
    if let Some(list) = auth.and_then(|auth| auth.get("secrets")) {
        let before = fields.peek("secrets").map_or(0, |own| members(own).len());
        spans.add_more("secrets", before, list, &["secret"]);
    }
    if let Some(node) = auth.and_then(|auth| auth.get("swift")) {
        spans.add("auth.swift", node);
    }
    spans
}

/// Returns the spans of a nodeset's list of nodes, of its labels and of its alternatives. `nodes`
/// may not have been taken from `fields` yet.
pub(super) fn of_nodeset(fields: &Fields<'_>) -> AttributeSpans {
    let mut spans = AttributeSpans::default();
    if let Some(nodes) = fields.peek("nodes") {
        spans.add("nodes", nodes);
    }
    spans.add_nodeset(fields.node());
    spans
}

/// Returns the spans of a project's or template's attributes, and of the members of `templates`;
/// for a pipeline, only that of its name. None of `fields` may have been taken yet.
pub(super) fn of_project(fields: &Fields<'_>) -> AttributeSpans {
    let mut spans = AttributeSpans::default();
    if let Some(name) = fields.peek("name") {
        spans.add("name", name);
    }
    if let Some(list) = fields.peek("templates") {
        spans.add_list("templates", list, &[]);
    }
    for (name, key, node) in fields.entries() {
        match name {
            "name" | "templates" => {}
            "description" | "branches" | "vars" | "merge-mode" | "default-branch" | "queue" => {
                spans.add(name, node)
            }
            // For a pipeline, the span is that of its name.
            _ => spans.add(name, key),
        }
    }
    spans
}

/// Returns the spans of a secret's attributes, and of its token's lifetime, issuer and algorithm
/// (`oidc.ttl`, `oidc.iss`, `oidc.algorithm`). None of `fields` may have been taken yet.
pub(super) fn of_secret(fields: &Fields<'_>) -> AttributeSpans {
    let mut spans = AttributeSpans::default();
    fields.entries().for_each(|(name, _, node)| spans.add(name, node));
    for key in ["ttl", "iss", "algorithm"] {
        if let Some(node) = fields.peek("oidc").and_then(|oidc| oidc.get(key)) {
            spans.add(&format!("oidc.{key}"), node);
        }
    }
    spans
}

/// Returns the spans of a provider object's attributes, and of the named members of its lists of
/// labels, images and flavors (`labels.small`), with their `image`, `flavor` and `type`
/// (`labels.small.flavor`). None of `fields` may have been taken yet.
pub(super) fn of_provider_object(fields: &Fields<'_>) -> AttributeSpans {
    let mut spans = AttributeSpans::default();
    for (name, _, node) in fields.entries() {
        // `image` is an older name of the list; in a label it is the name of one image.
        let list = if name == "image" && node.as_text().is_none() { "images" } else { name };
        spans.add(list, node);
        if matches!(list, "labels" | "images" | "flavors") {
            for member in members(node) {
                let named = member.get("name").unwrap_or(member);
                if let Some(text) = named.as_text() {
                    spans.add(&format!("{list}.{text}"), named);
                    for part in ["image", "flavor", "type"] {
                        if let Some(node) = member.get(part) {
                            spans.add(&format!("{list}.{text}.{part}"), node);
                        }
                    }
                }
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::super::JobStanza;
    use super::*;

    /// Z6.7: most entries of job lists set nothing, and thousands are stored.
    #[test]
    fn only_spans_that_exist_are_stored() {
        let mut spans = AttributeSpans::default();
        assert!(spans.is_empty());
        let of = |spans: &AttributeSpans| {
            let stanza = JobStanza { spans: spans.clone(), ..JobStanza::default() };
            serde_json::to_value(stanza).unwrap_or_default().get("spans").is_some()
        };
        assert!(!of(&spans));
        spans.0.push(("parent".to_owned(), Span::default()));
        assert!(!spans.is_empty() && of(&spans));
    }
}
