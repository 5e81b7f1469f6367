//! The stanzas for queues, secrets, semaphores and pragmas.

use super::Span;
use super::read::{Diagnostics, Fields, members};
use super::spans::{self, AttributeSpans};
use crate::Pattern;
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::job::OidcToken;

/// A `queue` stanza: the settings of a shared queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStanza {
    /// Its name.
    pub name: String,
    /// The span of the stanza.
    pub span: Span,
    /// How branches share it.
    pub queue_type: QueueType,
    /// Whether dependency cycles between changes are allowed.
    pub allow_circular_dependencies: bool,
    /// Whether changes with the same topic depend on each other.
    pub dependencies_by_topic: bool,
}

/// How the branches of its projects share a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueType {
    /// All branches share one.
    AllBranches,
    /// One queue per branch, which projects with that branch share.
    PerBranch,
    /// The project stanzas assign a queue to each branch.
    BranchAssigned,
}

/// A `secret` stanza. Ciphertexts stay as written (Z5.1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecretStanza {
    /// Its name.
    pub name: String,
    /// The span of the stanza.
    pub span: Span,
    /// The spans of its attributes.
    pub spans: AttributeSpans,
    /// Its values.
    pub data: Map<String, Json>,
    /// The OIDC token to issue instead.
    pub oidc: Option<OidcToken>,
}

/// A `semaphore` stanza.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreStanza {
    /// Its name.
    pub name: String,
    /// The span of the stanza.
    pub span: Span,
    /// How many builds may hold it.
    pub max: u32,
}

/// A `pragma` stanza: settings for its file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PragmaStanza {
    /// Whether jobs are bound to the file's branch.
    pub implied_branch_matchers: Option<bool>,
    /// The branches that replace the file's own.
    pub implied_branches: Option<Vec<Pattern>>,
}

/// Reads a `queue` stanza; `None`, with an error, if it has no name. All branches share the queue
/// unless `type`, or else the older `per-branch`, says otherwise; having both is a warning. Invalid
/// attributes are errors and unset. `dependencies-by-topic` without `allow-circular-dependencies`
/// is an error, but returned.
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
            "\"per-branch\" has no effect next to \"type\", which replaces it",
        );
    }
    let allow_circular_dependencies =
        fields.flag("allow-circular-dependencies", p).unwrap_or(false);
    let dependencies_by_topic = fields.flag("dependencies-by-topic", p).unwrap_or(false);
    if let Some(node) = topic_node.filter(|_| dependencies_by_topic && !allow_circular_dependencies)
    {
        // The changes of a topic depend on each other mutually.
        let message = "\"dependencies-by-topic\" requires \"allow-circular-dependencies: true\"";
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

/// Reads a `secret` stanza; `None`, with an error, if it has no name. Both or neither of `data` and
/// `oidc`, encrypted values that are not ciphertexts, and a `/` in the name of a token are errors,
/// but the stanza is returned.
/// Values stay encrypted. None of `fields` may have been taken yet.
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
    let name_node = fields.peek("name");
    let name = fields.required_name("name", p)?;
    if let Some(node) = name_node.filter(|_| oidc.is_some() && name.contains('/')) {
        let message = "the name of a token (\"oidc\") must not contain \"/\": its \"sub\" is \
                       secret:TENANT/PROJECT/SECRET, and could be that of another project's secret";
        p.syntax(node, "name", message);
    }
    Some(SecretStanza { span, spans, data, oidc, name })
}

/// Reports, as errors, encrypted values, at any depth, that are not valid ciphertexts: base64, or a
/// list of base64 texts. Of each list only the first wrong text is reported, and an empty list as a
/// whole. Nothing is decrypted.
fn ciphertexts(node: &Node, p: &mut Diagnostics) {
    match &node.value {
        Value::Tagged(tag, inner) if tag.starts_with("!encrypted/") => {
            let texts = members(inner);
            let is_wrong = |one: &&Node| !one.as_text().is_some_and(is_base64);
            if let Some(wrong) =
                texts.iter().find(is_wrong).or(texts.is_empty().then_some(&**inner))
            {
                let message = "an encrypted value must be base64, or a list of such texts, as \
                               `sluice secret encrypt` prints it";
                p.syntax(wrong, "data", message);
            }
        }
        Value::Tagged(_, inner) => ciphertexts(inner, p),
        Value::List(list) => list.iter().for_each(|one| ciphertexts(one, p)),
        Value::Map(map) => map.iter().for_each(|(_, value)| ciphertexts(value, p)),
        _ => {}
    }
}

/// Returns whether a text is padded base64, ignoring whitespace. False for an empty text.
fn is_base64(text: &str) -> bool {
    let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let padding = packed.iter().rev().take_while(|byte| **byte == b'=').count();
    let body = packed.get(..packed.len() - padding).unwrap_or_default();
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    !body.is_empty() && padding <= 2 && packed.len().is_multiple_of(4) && body.iter().all(is_digit)
}

/// Reads the attributes of a secret's OIDC token. Absent and, with an error, invalid ones are unset
/// or empty, as are all of a null and, with an error, of another value than a mapping.
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

/// Reads a `semaphore` stanza; `None`, with an error, if it has no name. Without `max`, or with an
/// invalid one, which is an error, one build may hold it.
pub(super) fn semaphore(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<SemaphoreStanza> {
    let max = fields.count("max", 1, p).unwrap_or(1);
    Some(SemaphoreStanza { span, max, name: fields.required_name("name", p)? })
}

/// Reads a `pragma` stanza. Absent and, with an error, invalid settings are unset.
pub(super) fn pragma(fields: &mut Fields<'_>, p: &mut Diagnostics) -> PragmaStanza {
    let implied_branch_matchers = fields.flag("implied-branch-matchers", p);
    // Regular expressions, like a job's `branches`.
    let implied_branches = fields.patterns("implied-branches", p);
    PragmaStanza { implied_branch_matchers, implied_branches }
}
