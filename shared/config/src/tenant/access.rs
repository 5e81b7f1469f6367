//! Who may see and do what: access of a tenant or of the whole API, rules on a token's claims, and
//! roles.
//!
//! The words only; what a token is allowed is decided where requests come in.

use crate::objects::read::{Diagnostics, Fields, members, texts};
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Who may see and do what in a tenant, or everywhere (`api-root`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// Rules of which one must hold to see anything.
    pub access_rules: Vec<String>,
    /// Rules of which one must hold to do anything.
    pub admin_rules: Vec<String>,
    /// Whether those without a token may see it although there are rules.
    pub anonymous_read_access: Option<bool>,
    /// Rules by name with the roles of everybody for whom they hold.
    pub role_mappings: BTreeMap<String, Vec<String>>,
    /// The realm that tokens come from, when not the default one.
    pub authentication_realm: Option<String>,
}

impl Access {
    /// Returns every rule that it names, with the attribute that does.
    pub(super) fn rules(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let lists = [("access-rules", &self.access_rules), ("admin-rules", &self.admin_rules)];
        let mapped = self.role_mappings.keys().map(|name| ("role-mappings", name.as_str()));
        lists
            .into_iter()
            .flat_map(|(attribute, list)| list.iter().map(move |name| (attribute, name.as_str())))
            .chain(mapped)
    }

    /// Returns every role that it names.
    pub(super) fn roles(&self) -> impl Iterator<Item = &str> {
        self.role_mappings.values().flatten().map(String::as_str)
    }
}

/// Roles that there are without anybody defining them: one with every permission, and one that may
/// see.
pub(super) const BUILT_IN_ROLES: [&str; 2] = ["admin", "read"];

/// An `authorization-rule` (older: `admin-rule`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationRule {
    /// Its name.
    pub name: String,
    /// Claims with their values: of the list one mapping must hold, of a mapping every claim.
    pub conditions: Vec<Map<String, Json>>,
}

/// An `authorization-role`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationRole {
    /// Its name.
    pub name: String,
    /// What it allows; what is missing is not allowed.
    pub permissions: BTreeMap<Permission, Grant>,
}

/// What a role may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// To see.
    Read,
    /// To move a change to the head of its queue.
    Promote,
    /// To pause a tenant.
    SetTenantState,
    /// To ask for an image to be built.
    BuildImage,
    /// To ask for an image to be uploaded.
    UploadImage,
    /// To say of an upload whether it is good.
    ValidateImageUpload,
    /// To delete what an image build made.
    DeleteImageBuildArtifact,
    /// To delete an upload.
    DeleteImageUpload,
    /// To change a node's state.
    ModifyNode,
    /// To delete a node request.
    ModifyNodesetRequest,
    /// To hold nodes of failed builds.
    Autohold,
    /// To take a change out.
    Dequeue,
    /// To put a change in.
    Enqueue,
}

impl Permission {
    /// Every permission with its word.
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

    /// Returns whether it may be bound to projects and refs.
    fn takes_conditions(self) -> bool {
        matches!(self, Self::Dequeue | Self::Enqueue)
    }
}

/// How far a permission goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grant {
    /// Everywhere, or (`false`) nowhere.
    Always(bool),
    /// Where the project and the ref fit; what is not given fits.
    Where {
        /// An expression for the project's name.
        project: Option<String>,
        /// An expression for the ref.
        r#ref: Option<String>,
    },
}

/// Takes what a tenant and the API's root both may say.
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

pub(super) fn rule(body: &Node, p: &mut Diagnostics) -> Option<AuthorizationRule> {
    let mut f = Fields::of(body, "", p)?;
    let name = f.required_name("name", p);
    let conditions = f.required("conditions", p).map(|node| {
        let mut list = Vec::new();
        for member in members(node) {
            list.extend(crate::objects::read::mapping(member, "conditions", p));
        }
        list
    });
    f.finish(p);
    Some(AuthorizationRule { name: name?, conditions: conditions? })
}

pub(super) fn role(body: &Node, p: &mut Diagnostics) -> Option<AuthorizationRole> {
    let mut f = Fields::of(body, "", p)?;
    let name_node = f.peek("name");
    let name = f.required_name("name", p);
    let permissions = f.required("permissions", p).and_then(|node| permissions(node, p));
    f.finish(p);
    let name = name?;
    if let Some(node) = name_node.filter(|_| BUILT_IN_ROLES.contains(&name.as_str())) {
        // Whoever reads `role-mappings` relies on what they allow.
        let message = format!(
            "the role \"{name}\" is there anyway and cannot be defined: give this one another name"
        );
        p.syntax(node, "name", message);
        return None;
    }
    Some(AuthorizationRole { name, permissions: permissions? })
}

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

fn conditions(node: &Node, path: &str, p: &mut Diagnostics) -> Option<Grant> {
    let mut f = Fields::of(node, path, p)?;
    let inner_path = f.path("conditions");
    let node = f.take("conditions");
    f.finish(p);
    let Some(node) = node else { return Some(Grant::Always(true)) };
    let mut f = Fields::of(node, &inner_path, p)?;
    let (project, r#ref) = (f.text("project", p), f.text("ref", p));
    let is_empty = !f.has_been_given();
    f.finish(p);
    if is_empty {
        p.syntax(
            node,
            &inner_path,
            "required key not provided: conditions need \"project\" or \"ref\"",
        );
        return None;
    }
    Some(Grant::Where { project, r#ref })
}
