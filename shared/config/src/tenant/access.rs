//! Access control: access to a tenant or the whole API, rules about a token's claims, and roles.
//!
//! This only parses the configuration. `shared/auth` decides by it what requests may do.

use crate::objects::read::{Diagnostics, Fields, members, texts};
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Who may read and change a tenant, or everything (`api-root`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// Rules, one of which must match for read access.
    pub access_rules: Vec<String>,
    /// Rules, one of which must match for administrative access.
    pub admin_rules: Vec<String>,
    /// Whether requests without a token have read access; true if it is not set. Access rules close
    /// a tenant whatever it says.
    pub anonymous_read_access: Option<bool>,
    /// The roles granted by each rule, by the rule's name.
    pub role_mappings: BTreeMap<String, Vec<String>>,
    /// The authentication realm of tokens, if not the default one.
    pub authentication_realm: Option<String>,
}

impl Access {
    /// Returns the names of the rules in `access-rules`, `admin-rules` and `role-mappings`, each as
    /// attribute and name. A name may occur several times.
    pub(super) fn rules(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let lists = [("access-rules", &self.access_rules), ("admin-rules", &self.admin_rules)];
        let mapped = self.role_mappings.keys().map(|name| ("role-mappings", name.as_str()));
        lists
            .into_iter()
            .flat_map(|(attribute, list)| list.iter().map(move |name| (attribute, name.as_str())))
            .chain(mapped)
    }

    /// Returns the names of the roles in `role-mappings`. A name may occur several times.
    pub(super) fn roles(&self) -> impl Iterator<Item = &str> {
        self.role_mappings.values().flatten().map(String::as_str)
    }
}

/// The built-in roles: one with every permission, and one with read access.
pub(super) const BUILT_IN_ROLES: [&str; 2] = ["admin", "read"];

/// An `authorization-rule` (older: `admin-rule`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationRule {
    /// Its name.
    pub name: String,
    /// Claims with their values. One mapping of the list must match, with all its claims.
    pub conditions: Vec<Map<String, Json>>,
}

impl AuthorizationRule {
    /// Returns why the rule, or one of its conditions, can never match a token, for a warning;
    /// `None` if each condition may.
    fn why_never_matches(&self) -> Option<&'static str> {
        match self.conditions.as_slice() {
            [] => Some("never matches: it has no conditions"),
            all if all.iter().any(is_dead) => Some(
                "has a condition that never matches: it is empty, or has a value that is null, a list or an empty mapping",
            ),
            _ => None,
        }
    }
}

/// Returns whether claims with their values can never match those of a token: there are none, or
/// one has no value that a claim could have.
fn is_dead(claims: &Map<String, Json>) -> bool {
    let is_value_dead = |wanted: &Json| match wanted {
        Json::Null | Json::Array(_) => true,
        Json::Object(inner) => is_dead(inner),
        _ => false,
    };
    claims.is_empty() || claims.values().any(is_value_dead)
}

/// An `authorization-role`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationRole {
    /// Its name.
    pub name: String,
    /// The permissions it grants; missing ones are denied.
    pub permissions: BTreeMap<Permission, Grant>,
}

/// The permissions of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// To read.
    Read,
    /// To move a change to the head of its queue.
    Promote,
    /// To change a tenant's state.
    SetTenantState,
    /// To request an image build.
    BuildImage,
    /// To request an image upload.
    UploadImage,
    /// To validate an image upload.
    ValidateImageUpload,
    /// To delete the artifacts of an image build.
    DeleteImageBuildArtifact,
    /// To delete an upload.
    DeleteImageUpload,
    /// To change a node's state.
    ModifyNode,
    /// To delete a node request.
    ModifyNodesetRequest,
    /// To hold nodes of failed builds.
    Autohold,
    /// To dequeue a change.
    Dequeue,
    /// To enqueue a change.
    Enqueue,
}

impl Permission {
    /// Every permission with its keyword.
    pub const WORDS: [(&'static str, Self); 13] = [
        ("read", Self::Read),
        ("promote", Self::Promote),
        ("set-tenant-state", Self::SetTenantState),
        ("build-image", Self::BuildImage),
        ("upload-image", Self::UploadImage),
        ("validate-image-upload", Self::ValidateImageUpload),
        ("delete-image-build-artifact", Self::DeleteImageBuildArtifact),
        ("delete-image-upload", Self::DeleteImageUpload),
        ("modify-node", Self::ModifyNode),
        ("modify-nodeset-request", Self::ModifyNodesetRequest),
        ("autohold", Self::Autohold),
        ("dequeue", Self::Dequeue),
        ("enqueue", Self::Enqueue),
    ];

    /// Returns whether the permission may be limited to projects and refs: only to dequeue and to
    /// enqueue.
    fn takes_conditions(self) -> bool {
        matches!(self, Self::Dequeue | Self::Enqueue)
    }
}

/// The extent of a permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grant {
    /// Everywhere, or (`false`) nowhere.
    Always(bool),
    /// For matching projects and refs; an omitted condition always matches.
    Where {
        /// The project's name, canonical or without the host.
        project: Option<String>,
        /// The full ref, such as `refs/heads/main`.
        r#ref: Option<String>,
    },
}

/// Takes the attributes that tenants and `api-root` share; `admin_rules`, which only tenants have,
/// stays empty. Absent attributes are unset or empty. Invalid values, also single ones in a list,
/// are errors and left out. Names of rules and roles are not checked here.
pub(super) fn access(f: &mut Fields<'_>, p: &mut Diagnostics) -> Access {
    Access {
        access_rules: f.texts("access-rules", p).unwrap_or_default(),
        admin_rules: Vec::new(),
        anonymous_read_access: f.flag("anonymous-read-access", p),
        role_mappings: f
            .take("role-mappings")
            .map(|node| role_mappings(node, p))
            .unwrap_or_default(),
        authentication_realm: f.text("authentication-realm", p),
    }
}

/// Reads which roles each authorization rule grants: the names of roles by the name of the rule.
/// Empty, with an error, if it is not a mapping. Roles that are no text are errors and left out.
fn role_mappings(node: &Node, p: &mut Diagnostics) -> BTreeMap<String, Vec<String>> {
    let Some(mut rules) = Fields::of(node, "role-mappings", p) else {
        return BTreeMap::new();
    };
    let mut found = BTreeMap::new();
    for (rule, roles) in rules.rest() {
        found.insert(rule.to_owned(), texts(roles, &format!("role-mappings.{rule}"), p));
    }
    found
}

/// Reads an authorization rule; `None`, with an error, if it is not a mapping or has no name or no
/// `conditions`. A condition that is no mapping is an error and left out. A rule that never matches
/// is returned, with a warning.
pub(super) fn rule(body: &Node, p: &mut Diagnostics) -> Option<AuthorizationRule> {
    let mut f = Fields::of(body, "", p)?;
    let name = f.required_name("name", p);
    let node = f.required("conditions", p);
    let errors_before = p.list.len();
    let conditions = node.map(|node| {
        let mut list = Vec::new();
        for member in members(node) {
            list.extend(crate::objects::read::mapping(member, "conditions", p));
        }
        list
    });
    let rule = AuthorizationRule { name: name?, conditions: conditions? };
    let why = rule.why_never_matches().filter(|_| p.list.len() == errors_before);
    if let (Some(node), Some(why)) = (node, why) {
        let message = format!("the authorization rule {} {why}", rule.name);
        p.warning(node, "conditions", message);
    }
    f.finish(p);
    Some(rule)
}

/// Reads an authorization role; `None`, with an error, if it has no name, the name of a built-in
/// role, or no mapping of permissions. Unknown permissions and invalid values are errors and left
/// out.
pub(super) fn role(body: &Node, p: &mut Diagnostics) -> Option<AuthorizationRole> {
    let mut f = Fields::of(body, "", p)?;
    let name_node = f.peek("name");
    let name = f.required_name("name", p);
    let permissions = f.required("permissions", p).and_then(|node| permissions(node, p));
    f.finish(p);
    let name = name?;
    if let Some(node) = name_node.filter(|_| BUILT_IN_ROLES.contains(&name.as_str())) {
        // `role-mappings` relies on the permissions of the built-in roles.
        let message =
            format!("the role \"{name}\" is built in and cannot be redefined; use another name");
        p.syntax(node, "name", message);
        return None;
    }
    Some(AuthorizationRole { name, permissions: permissions? })
}

/// Reads the permissions of a role with their conditions; `None`, with an error, if the value is
/// not a mapping. Unknown permissions and invalid values are errors and left out.
fn permissions(node: &Node, p: &mut Diagnostics) -> Option<BTreeMap<Permission, Grant>> {
    let mut f = Fields::of(node, "permissions", p)?;
    let mut found = BTreeMap::new();
    for (word, permission) in Permission::WORDS {
        let Some(node) = f.take(word) else { continue };
        let path = format!("permissions.{word}");
        let grant = match &node.value {
            Value::Bool(flag) => Some(Grant::Always(*flag)),
            Value::Map(_) if permission.takes_conditions() => conditions(node, &path, p),
            _ if permission.takes_conditions() => {
                p.expected(node, &path, "a boolean, or a mapping with conditions");
                None
            }
            _ => {
                p.expected(node, &path, "a boolean");
                None
            }
        };
        found.extend(grant.map(|grant| (permission, grant)));
    }
    f.finish(p);
    Some(found)
}

/// Reads the mapping that limits a permission by its `conditions` to projects and refs. Without
/// `conditions` the permission always applies. `None`, with an error, if one of the two is not a
/// mapping, the conditions have neither `project` nor `ref`, or one of these is no text. `path` is
/// how errors name the attribute.
fn conditions(node: &Node, path: &str, p: &mut Diagnostics) -> Option<Grant> {
    let mut f = Fields::of(node, path, p)?;
    let inner_path = f.path("conditions");
    let node = f.take("conditions");
    f.finish(p);
    let Some(node) = node else { return Some(Grant::Always(true)) };
    let mut f = Fields::of(node, &inner_path, p)?;
    let errors_before = p.list.len();
    let (project, r#ref) = (f.text("project", p), f.text("ref", p));
    let is_empty = !f.has_been_given();
    let is_unreadable = p.list.len() > errors_before;
    f.finish(p);
    if is_empty {
        p.syntax(
            node,
            &inner_path,
            "required key not provided: conditions need \"project\" or \"ref\"",
        );
        return None;
    }
    // Without the condition that cannot be read, the permission would apply to more.
    (!is_unreadable).then_some(Grant::Where { project, r#ref })
}
