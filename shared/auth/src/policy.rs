//! What a principal may read and do in a tenant, or outside of tenants (`api-root`), by the rules
//! and roles of the main configuration.

use crate::claims;
use crate::token::TokenBearer;
use sluice_config::tenant::{
    Access, AuthorizationRole, AuthorizationRule, Grant, MainConfig, Permission, TenantConfig,
};
use sluice_model::TenantName;
use std::collections::BTreeMap;

/// The built-in role that has every permission.
const ADMIN: &str = "admin";

/// The built-in role that may read.
const READ: &str = "read";

/// The access rules of a tenant, or of what belongs to no tenant, with the definitions of the rules
/// and roles that they name.
#[derive(Debug, Clone, Copy)]
pub struct AccessPolicy<'c> {
    access: &'c Access,
    tenant: Option<&'c TenantName>,
    rules: &'c BTreeMap<String, AuthorizationRule>,
    roles: &'c BTreeMap<String, AuthorizationRole>,
}

/// What a request does.
#[derive(Debug, Clone, Copy)]
pub struct RequestedAction<'r> {
    /// The permission that it needs.
    pub permission: Permission,
    /// The project that it changes; `None` if it concerns no single one.
    pub project: Option<RequestedProject<'r>>,
    /// The full ref of what it enqueues or dequeues, a change's own ref for a change; `None` if it
    /// concerns none.
    pub git_ref: Option<&'r str>,
}

/// A project that a request changes, by the names that mean it in the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestedProject<'r> {
    /// The canonical name.
    pub canonical: &'r str,
    /// The name without the host; `None` if it could mean another project of the tenant too.
    pub short: Option<&'r str>,
}

impl RequestedAction<'_> {
    /// Returns the action that only reads.
    pub fn read() -> Self {
        Self::for_all(Permission::Read)
    }

    /// Returns an action that concerns no single project and no ref.
    pub fn for_all(permission: Permission) -> Self {
        Self { permission, project: None, git_ref: None }
    }
}

/// Whether a request is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessDecision {
    /// It is allowed.
    Allowed {
        /// The rule, role or setting that allows it. It names rules, so it is for logs only.
        why: String,
    },
    /// It has no token, and needs one.
    NeedsToken,
    /// The bearer may not even know that the tenant exists.
    Hidden,
    /// The bearer may read, and not do this.
    Forbidden {
        /// What is missing. It names no rule and no claim, so the bearer may see it.
        why: String,
    },
}

/// What a principal may do, for clients that show only what is possible.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PermissionList {
    /// Whether the principal may read.
    pub may_read: bool,
    /// Whether the principal is an administrator, who may do everything.
    pub is_admin: bool,
    /// Whether the tenant grants permissions by roles.
    pub has_roles: bool,
    /// The granted permissions with their keywords, also those that only hold for some projects or
    /// refs. Reading is not among them. All of them for an administrator.
    pub actions: Vec<&'static str>,
}

impl PermissionList {
    /// Returns whether the principal may do something, at least for some projects or refs.
    pub fn may(&self, permission: Permission) -> bool {
        let words = Permission::WORDS.iter().filter(|(_, one)| *one == permission);
        words.map(|(word, _)| word).any(|word| self.actions.contains(word))
    }
}

impl AccessDecision {
    /// Returns whether the request is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }
}

impl<'c> AccessPolicy<'c> {
    /// Returns the policy of a tenant, with the rules and roles that a main configuration defines.
    pub fn of_tenant(config: &'c MainConfig, tenant: &'c TenantConfig) -> Self {
        Self {
            access: &tenant.access,
            tenant: Some(&tenant.name),
            rules: &config.authorization_rules,
            roles: &config.authorization_roles,
        }
    }

    /// Returns the policy of what belongs to no tenant.
    pub fn of_root(config: &'c MainConfig) -> Self {
        Self {
            access: &config.api_root,
            tenant: None,
            rules: &config.authorization_rules,
            roles: &config.authorization_roles,
        }
    }

    /// Returns whether reading needs a token: with `anonymous-read-access: false`, and with access
    /// rules. These close a tenant also where role mappings say who may read it: a tenant that was
    /// closed does not open because roles are added.
    pub fn is_read_protected(&self) -> bool {
        self.access.anonymous_read_access == Some(false) || !self.access.access_rules.is_empty()
    }

    /// Decides about a request of a principal, or of one without a token (`None`). Everything else
    /// than reading needs a token, and that its bearer may read.
    pub fn decide(
        &self,
        principal: Option<&TokenBearer>,
        action: &RequestedAction<'_>,
    ) -> AccessDecision {
        let is_read = action.permission == Permission::Read;
        let Some(principal) = principal else {
            return match is_read && !self.is_read_protected() {
                true => AccessDecision::Allowed { why: "everyone may read it".to_owned() },
                false => AccessDecision::NeedsToken,
            };
        };
        if let Some(why) = self.admin_reason(principal) {
            return AccessDecision::Allowed { why };
        }
        match self.read_reason(principal) {
            None => AccessDecision::Hidden,
            Some(why) if is_read => AccessDecision::Allowed { why },
            Some(_) => match self.grant_reason(principal, action) {
                Ok(why) => AccessDecision::Allowed { why },
                Err(why) => AccessDecision::Forbidden { why },
            },
        }
    }

    /// Returns what a principal may do.
    pub fn permissions(&self, principal: &TokenBearer) -> PermissionList {
        let is_admin = self.admin_reason(principal).is_some();
        let is_granted = |permission: Permission| {
            let grants = |role: &str| {
                self.roles
                    .get(role)
                    .and_then(|role| role.permissions.get(&permission))
                    .is_some_and(|grant| *grant != Grant::Always(false))
            };
            is_admin || (self.has_roles() && self.role_of(principal, grants).is_some())
        };
        PermissionList {
            may_read: self.decide(Some(principal), &RequestedAction::read()).is_allowed(),
            is_admin,
            has_roles: self.has_roles(),
            actions: Permission::WORDS
                .iter()
                .filter(|(_, permission)| *permission != Permission::Read)
                .filter(|(_, permission)| is_granted(*permission))
                .map(|(word, _)| *word)
                .collect(),
        }
    }

    /// Returns whether permissions are granted by roles; `admin-rules` and `access-rules` then
    /// grant nothing.
    fn has_roles(&self) -> bool {
        !self.access.role_mappings.is_empty()
    }

    /// Returns why a principal is an administrator here; `None` if they are not. There are no
    /// administrators outside of tenants, except by the built-in role.
    fn admin_reason(&self, principal: &TokenBearer) -> Option<String> {
        if self.tenant.is_some_and(|tenant| principal.admin_of.contains(tenant)) {
            return Some("the token's claim zuul.admin names the tenant".to_owned());
        }
        if self.has_roles() {
            let rule = self.role_of(principal, |role| role == ADMIN)?.rule;
            return Some(format!("the rule {rule} matches and has the role {ADMIN}"));
        }
        let rule = self.matching(&self.access.admin_rules, principal)?;
        Some(format!("the admin rule {rule} matches"))
    }

    /// Returns why a principal may read; `None` if they may not.
    fn read_reason(&self, principal: &TokenBearer) -> Option<String> {
        if !self.is_read_protected() {
            return Some("everyone may read it".to_owned());
        }
        if self.has_roles() {
            let found = self.role_of(principal, |role| self.role_reads(role))?;
            return Some(format!("the rule {} matches and its role may read", found.rule));
        }
        let rule = self.matching(&self.access.access_rules, principal)?;
        Some(format!("the access rule {rule} matches"))
    }

    /// Returns why a principal who is no administrator may do something, or what is missing.
    fn grant_reason(
        &self,
        principal: &TokenBearer,
        action: &RequestedAction<'_>,
    ) -> Result<String, String> {
        if !self.has_roles() {
            return Err(match self.access.admin_rules.is_empty() {
                true => "it has no admin rules and no role mappings, so nothing can be changed over the API",
                false => "no admin rule matches",
            }
            .to_owned());
        }
        let grants = |role: &str| {
            let grant =
                self.roles.get(role).and_then(|role| role.permissions.get(&action.permission));
            grant.is_some_and(|grant| grant_covers(grant, action))
        };
        let what = keyword(action.permission);
        match self.role_of(principal, grants) {
            Some(RoleOfRule { rule, role }) => {
                Ok(format!("the rule {rule} matches and its role {role} has the permission {what}"))
            }
            None => Err(format!("no matching role has the permission {what}")),
        }
    }

    /// Returns whether a role may read.
    fn role_reads(&self, role: &str) -> bool {
        let defined = self.roles.get(role);
        let granted = defined.and_then(|role| role.permissions.get(&Permission::Read));
        role == READ || granted == Some(&Grant::Always(true))
    }

    /// Returns the first role that `has` accepts among those of the principal's matching rules.
    fn role_of(
        &self,
        principal: &TokenBearer,
        has: impl Fn(&str) -> bool,
    ) -> Option<RoleOfRule<'c>> {
        self.access
            .role_mappings
            .iter()
            .filter_map(|(rule, roles)| {
                let role = roles.iter().find(|role| has(role))?;
                Some(RoleOfRule { rule, role })
            })
            .find(|found| self.rule_matches(found.rule, principal))
    }

    /// Returns the first of some rules, by name, that matches a principal.
    fn matching(&self, names: &'c [String], principal: &TokenBearer) -> Option<&'c str> {
        names.iter().map(String::as_str).find(|name| self.rule_matches(name, principal))
    }

    /// Returns whether a rule, by name, matches a principal. An undefined rule matches nothing.
    fn rule_matches(&self, name: &str, principal: &TokenBearer) -> bool {
        self.rules.get(name).is_some_and(|rule| claims::matches(rule, principal, self.tenant))
    }
}

/// A role and the rule that grants it.
struct RoleOfRule<'c> {
    rule: &'c str,
    role: &'c str,
}

/// Returns whether a grant covers an action. A condition on a project or ref does not cover an
/// action that concerns none.
fn grant_covers(grant: &Grant, action: &RequestedAction<'_>) -> bool {
    match grant {
        Grant::Always(is_granted) => *is_granted,
        Grant::Where { project, r#ref } => {
            let is_project = project.as_deref().is_none_or(|name| {
                let project = action.project;
                project.is_some_and(|one| one.canonical == name || one.short == Some(name))
            });
            is_project && r#ref.as_deref().is_none_or(|name| action.git_ref == Some(name))
        }
    }
}

/// Returns the keyword of a permission.
fn keyword(permission: Permission) -> &'static str {
    Permission::WORDS.iter().find(|(_, one)| *one == permission).map_or("", |(word, _)| *word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_config::connection::Connections;
    use sluice_config::tenant::parse_main;

    /// Returns the main configuration with rules for the groups `dev`, `ops` and `root`, some
    /// roles, and a tenant `acme` with these attributes.
    fn config(tenant: &str, root: &str) -> MainConfig {
        let rules: String = ["dev", "ops", "root"]
            .iter()
            .map(|group| {
                format!(
                    "- authorization-rule: {{name: {group}, conditions: [{{groups: {group}}}]}}\n"
                )
            })
            .collect();
        let text = format!(
            "{rules}- role: {{name: holder, permissions: {{autohold: true, enqueue: false}}}}\n\
             - role: {{name: viewer, permissions: {{read: true}}}}\n\
             - role: {{name: blind, permissions: {{read: false, promote: true}}}}\n\
             - role:\n    name: one-ref\n    permissions:\n      enqueue: {{conditions: {{project: org/app, ref: refs/heads/main}}}}\n\
             \x20     dequeue: {{conditions: {{project: github.com/org/lib}}}}\n\
             - api-root: {root}\n\
             - tenant: {{name: acme, {tenant}}}\n"
        );
        let (config, errors) = parse_main("main.yaml", &text, &Connections::new());
        assert!(errors.is_empty(), "{errors:?}\n{text}");
        config
    }

    fn principal(groups: &[&str]) -> TokenBearer {
        TokenBearer {
            authenticator: "test".to_owned(),
            uid: "alice".to_owned(),
            claims: json!({"groups": groups}).as_object().unwrap().clone(),
            admin_of: Vec::new(),
        }
    }

    fn policy(config: &MainConfig) -> AccessPolicy<'_> {
        AccessPolicy::of_tenant(config, &config.tenants[0])
    }

    fn action(permission: Permission) -> RequestedAction<'static> {
        RequestedAction::for_all(permission)
    }

    fn may_read(policy: &AccessPolicy<'_>, principal: Option<&TokenBearer>) -> bool {
        policy.decide(principal, &RequestedAction::read()).is_allowed()
    }

    /// Z9.1: who may read, by each way to say it.
    #[test]
    fn reading_is_decided_by_rules_or_roles() {
        let closed = "anonymous-read-access: false";
        // Attributes of the tenant; whether it is read without a token, by dev, by ops, by root.
        for (attributes, readers) in [
            ("admin-rules: []", [true, true, true, true]),
            ("admin-rules: [root]", [true, true, true, true]),
            ("access-rules: [dev]", [false, true, false, false]),
            ("access-rules: [dev, ops], admin-rules: [root]", [false, true, true, true]),
            (closed, [false, false, false, false]),
            ("anonymous-read-access: true, access-rules: [dev]", [false, true, false, false]),
            ("role-mappings: {dev: [holder]}", [true, true, true, true]),
            ("access-rules: [dev], role-mappings: {ops: [read]}", [false, false, true, false]),
            (
                "anonymous-read-access: false, role-mappings: {dev: [read], ops: [holder], root: [admin]}",
                [false, true, false, true],
            ),
            (
                "anonymous-read-access: false, access-rules: [ops], role-mappings: {dev: [viewer], ops: [blind]}",
                [false, true, false, false],
            ),
        ] {
            let config = config(attributes, "{}");
            let policy = policy(&config);
            let who = [None, Some("dev"), Some("ops"), Some("root")];
            let read =
                who.map(|group| may_read(&policy, group.map(|group| principal(&[group])).as_ref()));
            assert_eq!(read, readers, "{attributes}");
            assert_eq!(policy.is_read_protected(), !readers[0], "{attributes}");
        }
    }

    /// Z9.1: who may change something.
    #[test]
    fn changing_is_for_administrators_and_roles() {
        for (attributes, permission, doers) in [
            ("admin-rules: []", Permission::Promote, [false, false, false]),
            ("access-rules: [dev]", Permission::Promote, [false, false, false]),
            ("admin-rules: [root]", Permission::Promote, [false, false, true]),
            ("role-mappings: {dev: [holder]}", Permission::Autohold, [true, false, false]),
            ("role-mappings: {dev: [holder]}", Permission::Promote, [false, false, false]),
            ("role-mappings: {dev: [holder]}", Permission::Enqueue, [false, false, false]),
            ("role-mappings: {ops: [blind, read]}", Permission::Promote, [false, true, false]),
            (
                "admin-rules: [dev], role-mappings: {root: [admin]}",
                Permission::SetTenantState,
                [false, false, true],
            ),
        ] {
            let config = config(attributes, "{}");
            let allowed = ["dev", "ops", "root"]
                .map(|group| {
                    policy(&config).decide(Some(&principal(&[group])), &action(permission))
                })
                .map(|decision| decision.is_allowed());
            assert_eq!(allowed, doers, "{attributes} {permission:?}");
        }
    }

    /// Z9.1: the claim of a token that the operator trusts counts beside the rules, in its tenants
    /// only.
    #[test]
    fn a_trusted_token_is_an_administrator_of_its_tenants_only() {
        let config = config("anonymous-read-access: false, role-mappings: {dev: [read]}", "{}");
        for (tenants, is_admin) in [(vec!["acme"], true), (vec!["other"], false), (vec![], false)] {
            let admin_of = tenants.iter().map(|name| TenantName::from(*name)).collect();
            let principal = TokenBearer { admin_of, ..principal(&[]) };
            let policy = policy(&config);
            let enqueue = policy.decide(Some(&principal), &action(Permission::Enqueue));
            assert_eq!(may_read(&policy, Some(&principal)), is_admin);
            assert_eq!(enqueue.is_allowed(), is_admin);
            assert!(is_admin || enqueue == AccessDecision::Hidden, "{enqueue:?}");
        }
    }

    /// Z9.1: a permission that is limited to a project and ref covers no other.
    #[test]
    fn a_condition_limits_a_permission_to_a_project_and_a_ref() {
        let config = config("role-mappings: {dev: [one-ref]}", "{}");
        let dev = principal(&["dev"]);
        for (permission, project, git_ref, is_allowed) in [
            (Permission::Enqueue, Some("github.com/org/app"), Some("refs/heads/main"), true),
            (Permission::Enqueue, Some("github.com/org/app"), Some("refs/heads/mainx"), false),
            (Permission::Enqueue, Some("github.com/org/app"), None, false),
            (Permission::Enqueue, Some("github.com/org/app2"), Some("refs/heads/main"), false),
            (Permission::Enqueue, Some("github.com/my/org/app"), Some("refs/heads/main"), false),
            (Permission::Enqueue, None, Some("refs/heads/main"), false),
            (Permission::Dequeue, Some("github.com/org/lib"), Some("refs/heads/x"), true),
            (Permission::Dequeue, Some("gitlab.com/org/lib"), Some("refs/heads/x"), false),
        ] {
            let project = project.map(|canonical: &str| RequestedProject {
                canonical,
                short: canonical.split_once('/').map(|(_, short)| short),
            });
            let action = RequestedAction { permission, project, git_ref };
            let decision = policy(&config).decide(Some(&dev), &action);
            assert_eq!(decision.is_allowed(), is_allowed, "{action:?}");
        }
    }

    /// C2.2: a short name that could mean another project grants nothing.
    #[test]
    fn an_ambiguous_name_of_a_project_grants_nothing() {
        let config = config("role-mappings: {dev: [one-ref]}", "{}");
        for (short, is_allowed) in [(Some("org/app"), true), (None, false)] {
            let project = RequestedProject { canonical: "evil.example.org/org/app", short };
            let action = RequestedAction {
                permission: Permission::Enqueue,
                project: Some(project),
                git_ref: Some("refs/heads/main"),
            };
            let decision = policy(&config).decide(Some(&principal(&["dev"])), &action);
            assert_eq!(decision.is_allowed(), is_allowed, "{short:?}");
        }
    }

    /// C2.2: each outcome has its own answer: a token is missing, the tenant is hidden, or the
    /// bearer may only read.
    #[test]
    fn each_outcome_is_distinct() {
        let config = config("access-rules: [dev], admin-rules: [root]", "{}");
        let policy = policy(&config);
        let decide = |group: Option<&str>, permission| {
            let principal = group.map(|group| principal(&[group]));
            policy.decide(principal.as_ref(), &action(permission))
        };
        assert_eq!(decide(None, Permission::Read), AccessDecision::NeedsToken);
        assert_eq!(decide(None, Permission::Enqueue), AccessDecision::NeedsToken);
        assert_eq!(decide(Some("ops"), Permission::Read), AccessDecision::Hidden);
        assert_eq!(decide(Some("ops"), Permission::Enqueue), AccessDecision::Hidden);
        assert!(decide(Some("dev"), Permission::Read).is_allowed());
        let forbidden = decide(Some("dev"), Permission::Enqueue);
        assert!(matches!(forbidden, AccessDecision::Forbidden { .. }), "{forbidden:?}");
        assert!(decide(Some("root"), Permission::Enqueue).is_allowed());
    }

    /// Z9.1: what clients show.
    #[test]
    fn permissions_are_listed() {
        let by_roles =
            config("role-mappings: {dev: [one-ref, holder, blind], root: [admin]}", "{}");
        let listed = policy(&by_roles).permissions(&principal(&["dev"]));
        assert_eq!(listed.actions, ["promote", "autohold", "dequeue", "enqueue"]);
        assert!(listed.may_read && listed.has_roles && !listed.is_admin);
        let all = policy(&by_roles).permissions(&principal(&["root"]));
        assert!(all.is_admin && all.actions.len() == Permission::WORDS.len() - 1);
        let by_rules = config("access-rules: [dev], admin-rules: [root]", "{}");
        let none = policy(&by_rules).permissions(&principal(&["ops"]));
        assert_eq!(none, PermissionList::default());
    }

    /// Z9.1: what belongs to no tenant has rules of its own.
    #[test]
    fn the_root_has_rules_of_its_own() {
        let config = config("access-rules: [dev]", "{access-rules: [ops]}");
        let root = AccessPolicy::of_root(&config);
        assert!(may_read(&root, Some(&principal(&["ops"]))));
        assert!(!may_read(&root, Some(&principal(&["dev"]))));
        assert!(!may_read(&root, None));
        let trusted = TokenBearer { admin_of: vec!["acme".into()], ..principal(&[]) };
        assert!(!may_read(&root, Some(&trusted)), "an administrator of one tenant");
        let starred = TokenBearer { admin_of: vec!["*".into()], ..principal(&[]) };
        assert!(!may_read(&root, Some(&starred)), "no claim opens the root");
        let acme = policy(&config);
        assert!(!may_read(&acme, Some(&starred)), "a star is the name of no tenant");
    }

    /// C2.2: a decision says why.
    #[test]
    fn a_decision_names_its_reason() {
        let config = config("access-rules: [dev], admin-rules: [root]", "{}");
        let policy = policy(&config);
        let why = |group: &str, permission| match policy
            .decide(Some(&principal(&[group])), &action(permission))
        {
            AccessDecision::Allowed { why } | AccessDecision::Forbidden { why } => why,
            other => format!("{other:?}"),
        };
        assert_eq!(why("dev", Permission::Read), "the access rule dev matches");
        assert_eq!(why("dev", Permission::Promote), "no admin rule matches");
        assert_eq!(why("root", Permission::Promote), "the admin rule root matches");
    }
}
