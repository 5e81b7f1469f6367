//! Nodesets: nodes, groups and alternatives (Z3.1).

use super::Span;
use super::read::{Diagnostics, Fields, members};
use super::spans::{self, AttributeSpans};
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use sluice_model::job::{
    ALL_NODES, NodeGroup, NodeSet, NodeSpec, is_path_outwards, names_executor,
};
use std::collections::BTreeSet;

/// Maximum number of alternatives after flattening.
pub(crate) const ALTERNATIVES_MAX: usize = 256;

/// A `nodeset` stanza.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesetStanza {
    /// Its name.
    pub name: String,
    /// The span of the stanza.
    pub span: Span,
    /// The spans of its labels and alternatives.
    pub spans: AttributeSpans,
    /// Its nodes or alternatives.
    pub body: NodesetBody,
}

/// The nodes or alternatives of a nodeset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodesetBody {
    /// Nodes and groups.
    Nodes(NodeSet),
    /// Nodesets in order of preference.
    Alternatives(Vec<Alternative>),
}

/// One alternative.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Alternative {
    /// Another nodeset's name.
    Named(String),
    /// An inline nodeset.
    Inline(NodeSet),
}

/// Reads a `nodeset` stanza; `None`, with an error, if it has no name, neither `nodes` nor a list
/// of `alternatives`, or too many alternatives. Other errors are only reported: invalid nodes,
/// groups and alternatives are left out.
pub(super) fn stanza(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<NodesetStanza> {
    let spans = spans::of_nodeset(fields);
    let name = fields.required_name("name", p);
    let body = body_of(fields, name.as_deref().unwrap_or_default(), p);
    Some(NodesetStanza { name: name?, span, spans, body: body? })
}

/// Reads the inline nodeset of a job, which has no name. `None`, with an error, if it is not a
/// mapping, has neither `nodes` nor a list of `alternatives`, or too many alternatives. Invalid
/// nodes, groups and alternatives are errors and left out.
pub(super) fn body(node: &Node, p: &mut Diagnostics) -> Option<NodesetBody> {
    let mut fields = Fields::of(node, "nodeset", p)?;
    let body = body_of(&mut fields, "", p);
    fields.finish(p);
    body
}

/// Takes the nodes and groups, or the alternatives, of a nodeset with this name. If it has both,
/// that is an error, and the nodes count. Invalid nodes, groups and alternatives are errors and
/// left out. `None`, with an error, if it has neither, or if the alternatives are not a list or
/// more than [`ALTERNATIVES_MAX`].
fn body_of(fields: &mut Fields<'_>, name: &str, p: &mut Diagnostics) -> Option<NodesetBody> {
    if fields.has("nodes") || !fields.has("alternatives") {
        if let Some(node) = fields.take("alternatives") {
            p.syntax(
                node,
                "alternatives",
                "a nodeset has \"nodes\" or \"alternatives\", but not both",
            );
        }
        return nodes_and_groups(fields, name, p).map(NodesetBody::Nodes);
    }
    let node = fields.take("alternatives")?;
    let Some(list) = node.as_list() else {
        p.expected(node, "alternatives", "a list of nodesets");
        return None;
    };
    if list.len() > ALTERNATIVES_MAX {
        p.syntax(
            node,
            "alternatives",
            format!(
                "a nodeset has at most {ALTERNATIVES_MAX} alternatives, but this has {}",
                list.len()
            ),
        );
        return None;
    }
    Some(NodesetBody::Alternatives(
        list.iter().filter_map(|member| alternative(member, p)).collect(),
    ))
}

/// Reads an alternative: the name of a nodeset, or a mapping with inline nodes and groups. `None`,
/// with an error, for another value or a mapping without `nodes`. Whether the nodeset exists is not
/// checked.
fn alternative(node: &Node, p: &mut Diagnostics) -> Option<Alternative> {
    if let Value::Text(name) = &node.value {
        return Some(Alternative::Named(name.clone()));
    }
    let mut fields = Fields::of(node, "alternatives", p)?;
    let set = nodes_and_groups(&mut fields, "", p);
    fields.finish(p);
    set.map(Alternative::Inline)
}

/// Takes the nodes and groups of a nodeset, and gives it this name; `None`, with an error, if it
/// has no `nodes`. Invalid nodes and groups are errors and left out; a repeated name is an error,
/// but kept.
fn nodes_and_groups(fields: &mut Fields<'_>, name: &str, p: &mut Diagnostics) -> Option<NodeSet> {
    let Some(list) = fields.take("nodes") else {
        p.syntax(
            fields.node(),
            "nodes",
            "required key not provided: \"nodes\" (or \"alternatives\")",
        );
        return None;
    };
    let (mut set, names) = nodes_and_names(members(list), p);
    name.clone_into(&mut set.name);
    if let Some(list) = fields.take("groups") {
        let mut seen = BTreeSet::new();
        for member in members(list) {
            let Some(found) = group(member, &names, p) else { continue };
            if !seen.insert(found.name.clone()) {
                let message =
                    format!("Group named \"{}\" appears multiple times in nodeset", found.name);
                p.syntax(member.get("name").unwrap_or(member), "groups.name", message);
            }
            set.groups.push(found);
        }
    }
    Some(set)
}

/// Reads a list of nodes without groups as a nodeset without a name. Nodes without a name or label
/// are errors and left out.
pub(super) fn nodes_only(list: &[Node], p: &mut Diagnostics) -> NodeSet {
    nodes_and_names(list, p).0
}

/// Reads a list of nodes into a nodeset without groups. Also returns all node names, including
/// those of nodes without a label, since groups may name them. Nodes without a name or label are
/// errors and left out; a repeated or invalid name is an error, but kept.
fn nodes_and_names(list: &[Node], p: &mut Diagnostics) -> (NodeSet, BTreeSet<String>) {
    let mut set = NodeSet::default();
    let mut seen = BTreeSet::new();
    for member in list {
        let Some(mut fields) = Fields::of(member, "nodes", p) else {
            continue;
        };
        let name_nodes = fields.peek("name").map(members).unwrap_or_default();
        let names = fields.texts("name", p);
        let label = match fields.one_of(&["label", "image"], p) {
            Some((_, node)) => super::read::text(node, "nodes.label", p),
            None => {
                p.syntax(member, "nodes.label", "required key not provided: \"label\"");
                None
            }
        };
        match names.filter(|names| !names.is_empty()) {
            None => p.syntax(member, "nodes.name", "required key not provided: \"name\""),
            Some(names) => {
                for (name, node) in
                    name_nodes.iter().filter_map(|node| Some((node.as_text()?, node)))
                {
                    check_name(name, node, "Nodes", "nodes.name", p);
                    if !seen.insert(name.to_owned()) {
                        let message =
                            format!("Node named \"{name}\" appears multiple times in nodeset");
                        p.syntax(node, "nodes.name", message);
                    }
                }
                if let Some(label) = label {
                    set.nodes.push(NodeSpec { names, label: label.into() });
                }
            }
        }
        fields.finish(p);
    }
    (set, seen)
}

/// Reads a group of nodes; `None`, with an error, if it has no name or no `nodes`. `names` are all
/// node names of the nodeset: a node that is not among them is an error, except `localhost`, but
/// kept. An invalid group name is an error, but kept.
fn group(node: &Node, names: &BTreeSet<String>, p: &mut Diagnostics) -> Option<NodeGroup> {
    let mut fields = Fields::of(node, "groups", p)?;
    let name_node = fields.peek("name").unwrap_or(node);
    let name = fields.required_name("name", p);
    let list = fields.required("nodes", p);
    let nodes = list.map(|node| super::read::texts(node, "groups.nodes", p));
    fields.finish(p);
    if let Some(name) = &name {
        check_name(name, name_node, "Groups", "groups.name", p);
        if name == ALL_NODES {
            let message = "Groups named 'all' are not allowed: Ansible defines this group itself";
            p.syntax(name_node, "groups.name", message);
        }
    }
    for member in list.map(members).unwrap_or_default() {
        let Some(wrong) =
            member.as_text().filter(|text| !names.contains(*text) && *text != "localhost")
        else {
            continue;
        };
        let group = name.as_deref().unwrap_or_default();
        let message =
            format!("In group \"{group}\", node \"{wrong}\" is not a node of the nodeset");
        p.syntax(member, "groups.nodes", message);
    }
    Some(NodeGroup { name: name?, nodes: nodes? })
}

/// Reports an error for a host or group name that is empty, names the executor, leads out of a
/// directory as a path (`../x`), or has special characters. `kind` is `Nodes` or `Groups`, for the
/// message, and `attribute` where it is. Ansible expands templates in names when a playbook prints
/// them, so a trusted playbook could run code on the executor (Z7.5).
fn check_name(name: &str, node: &Node, kind: &str, attribute: &str, p: &mut Diagnostics) {
    let plain = |c: char| c.is_alphanumeric() || "-_.:@+/ ".contains(c);
    if is_path_outwards(name) || !name.chars().all(plain) {
        p.syntax(
            node,
            attribute,
            format!("\"{name}\" is not a valid name for an Ansible host or group"),
        );
    } else if names_executor(name) {
        p.syntax(node, attribute, format!("{kind} named '{name}' are not allowed."));
    }
}
