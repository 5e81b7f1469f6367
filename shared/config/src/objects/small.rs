//! The small stanzas: queue, secret, semaphore and pragma.

use super::Span;
use super::read::{Diagnostics, Fields, members};
use super::spans::{self, AttributeSpans};
use crate::Pattern;
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::job::OidcToken;

/// A `queue` stanza: what the shared queue of that name allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStanza {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub span: Span,
    /// How branches share it.
    pub queue_type: QueueType,
    /// Whether changes may depend on each other in a circle.
    pub allow_circular_dependencies: bool,
    /// Whether changes of one topic depend on each other.
    pub dependencies_by_topic: bool,
}

/// How the branches of its projects share a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueType {
    /// All branches are in one.
    AllBranches,
    /// Each branch has one of its own; branches of one name share it across projects.
    PerBranch,
    /// A project's stanza says for each of its branches which queue it is in.
    BranchAssigned,
}

/// A `secret` stanza: ciphertexts stay as written (Z5.1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecretStanza {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub span: Span,
    /// Where it asks for a token.
    pub spans: AttributeSpans,
    /// Its values.
    pub data: Map<String, Json>,
    /// A token to issue in their place.
    pub oidc: Option<OidcToken>,
}

/// A `semaphore` stanza.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreStanza {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub span: Span,
    /// How many may hold it.
    pub max: u32,
}

/// A `pragma` stanza: how the rest of its file is read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PragmaStanza {
    /// Whether jobs get the file's branch as their matcher.
    pub implied_branch_matchers: Option<bool>,
    /// Branches in place of the file's own.
    pub implied_branches: Option<Vec<Pattern>>,
}

pub(super) fn queue(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<QueueStanza> {
    let kinds = [
        ("all-branches", QueueType::AllBranches),
        ("per-branch", QueueType::PerBranch),
        ("branch-assigned", QueueType::BranchAssigned),
    ];
    let (older_node, topic_node) =
        (fields.peek("per-branch"), fields.peek("dependencies-by-topic"));
    let per_branch = fields.flag("per-branch", p);
    let kind = fields.word("type", &kinds, p);
    let older =
        if per_branch == Some(true) { QueueType::PerBranch } else { QueueType::AllBranches };
    if let (Some(node), Some(_)) = (older_node, kind) {
        p.warning(
            node,
            "per-branch",
            "\"per-branch\" has no effect beside \"type\", of which it is the older form",
        );
    }
    let allow_circular_dependencies =
        fields.flag("allow-circular-dependencies", p).unwrap_or(false);
    let dependencies_by_topic = fields.flag("dependencies-by-topic", p).unwrap_or(false);
    if let Some(node) = topic_node.filter(|_| dependencies_by_topic && !allow_circular_dependencies)
    {
        // The changes of one topic all need each other.
        let message =
            "\"dependencies-by-topic\" needs \"allow-circular-dependencies: true\" beside it";
        p.syntax(node, "dependencies-by-topic", message);
    }
    Some(QueueStanza {
        span,
        queue_type: kind.unwrap_or(older),
        allow_circular_dependencies,
        dependencies_by_topic,
        name: fields.required_name("name", p)?,
    })
}

pub(super) fn secret(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<SecretStanza> {
    let spans = spans::of_secret(fields);
    if let Some(data) = fields.peek("data") {
        ciphertexts(data, p);
    }
    if !fields.has("data") && !fields.has("oidc") {
        p.syntax(
            fields.node(),
            "data",
            "required key not provided: \"data\" (or \"oidc\" for a token)",
        );
    }
    let data = fields.mapping("data", p);
    let oidc = fields.take("oidc").map(|node| {
        if data.is_some() {
            p.syntax(node, "oidc", "a secret has \"data\" or is a token (\"oidc\"), but not both");
        }
        token(node, p)
    });
    let data = data.unwrap_or_default();
    Some(SecretStanza { span, spans, data, oidc, name: fields.required_name("name", p)? })
}

/// Tells of encrypted values that no key can open, for they are no ciphertexts.
fn ciphertexts(node: &Node, p: &mut Diagnostics) {
    match &node.value {
        Value::Tagged(tag, inner) if tag.starts_with("!encrypted/") => {
            let texts = members(inner);
            let is_wrong = |one: &&Node| !one.as_text().is_some_and(is_base64);
            if let Some(wrong) =
                texts.iter().find(is_wrong).or(texts.is_empty().then_some(&**inner))
            {
                let message = "an encrypted value must be base64, or a list of such texts, as `sluice secret encrypt` prints it";
                p.syntax(wrong, "data", message);
            }
        }
        Value::Tagged(_, inner) => ciphertexts(inner, p),
        Value::List(list) => list.iter().for_each(|one| ciphertexts(one, p)),
        Value::Map(map) => map.iter().for_each(|(_, value)| ciphertexts(value, p)),
        _ => {}
    }
}

/// Returns whether a text is base64 with its padding; white space does not count.
fn is_base64(text: &str) -> bool {
    let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let padding = packed.iter().rev().take_while(|byte| **byte == b'=').count();
    let body = packed.get(..packed.len() - padding).unwrap_or_default();
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    !body.is_empty() && padding <= 2 && packed.len().is_multiple_of(4) && body.iter().all(is_digit)
}

/// Reads what a token is to be; without a word it is the system's usual one.
fn token(node: &Node, p: &mut Diagnostics) -> OidcToken {
    if node.is_null() {
        return OidcToken::default();
    }
    let Some(mut fields) = Fields::of(node, "oidc", p) else { return OidcToken::default() };
    let token = OidcToken {
        algorithm: fields.text("algorithm", p),
        ttl_seconds: fields.count("ttl", 1, p).map(u64::from),
        issuer: fields.text("iss", p),
        claims: fields.mapping("claims", p).unwrap_or_default(),
    };
    fields.finish(p);
    token
}

pub(super) fn semaphore(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<SemaphoreStanza> {
    let max = fields.count("max", 1, p).unwrap_or(1);
    Some(SemaphoreStanza { span, max, name: fields.required_name("name", p)? })
}

pub(super) fn pragma(fields: &mut Fields<'_>, p: &mut Diagnostics) -> PragmaStanza {
    let implied_branch_matchers = fields.flag("implied-branch-matchers", p);
    // Expressions as a job's own `branches` are.
    let implied_branches = fields.patterns("implied-branches", p);
    PragmaStanza { implied_branch_matchers, implied_branches }
}
