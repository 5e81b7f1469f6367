//! Compares the claims of a token with the conditions of authorization rules.

use crate::token::TokenBearer;
use serde_json::{Map, Value};
use sluice_config::tenant::AuthorizationRule;
use sluice_model::TenantName;

/// The name that stands for the user's id in a condition.
const UID: &str = "zuul_uid";

/// The text that stands for the tenant's name in a condition's value.
const TENANT: &str = "{tenant.name}";

/// Returns whether one condition of a rule matches a principal's claims. Every claim that a
/// condition names must match: a list has the value, a mapping has all the inner ones, anything
/// else equals it. An inner claim can also be named with dots. `{tenant.name}` in a value is the
/// tenant's name; outside of tenants (`None`) such a value matches nothing. A condition without
/// claims matches nothing either, so that a slip opens nothing.
pub(crate) fn matches(
    rule: &AuthorizationRule,
    principal: &TokenBearer,
    tenant: Option<&TenantName>,
) -> bool {
    rule.conditions.iter().any(|condition| {
        !condition.is_empty()
            && condition.iter().all(|(name, wanted)| match name.as_str() {
                UID => value_matches(wanted, &Value::String(principal.uid.clone()), tenant),
                name => claim_matches(&principal.claims, name, wanted, tenant),
            })
    })
}

/// Returns whether a claim has the wanted value. The claim is a member of that whole name, or the
/// inner one that the name's dotted parts lead to. A missing claim does not match.
fn claim_matches(
    claims: &Map<String, Value>,
    name: &str,
    wanted: &Value,
    tenant: Option<&TenantName>,
) -> bool {
    find(claims, name).is_some_and(|claim| value_matches(wanted, claim, tenant))
}

/// Returns a claim by its name, or by the dotted path to it; `None` if there is none. A claim whose
/// own name has dots, as an address, comes first.
pub(crate) fn find<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    if let Some(claim) = claims.get(name) {
        return Some(claim);
    }
    let (first, rest) = name.split_once('.')?;
    find(claims.get(first)?.as_object()?, rest)
}

/// Returns whether the value of a claim is what a condition wants. See [`matches`].
fn value_matches(wanted: &Value, claim: &Value, tenant: Option<&TenantName>) -> bool {
    match (wanted, claim) {
        // A value that was left empty is a slip, and opens nothing.
        (Value::Null, _) => false,
        (Value::Object(wanted), Value::Object(claims)) => {
            !wanted.is_empty()
                && wanted.iter().all(|(name, wanted)| claim_matches(claims, name, wanted, tenant))
        }
        (Value::Object(_) | Value::Array(_), _) => false,
        (wanted, Value::Array(list)) => list.iter().any(|one| is_same(wanted, one, tenant)),
        (wanted, claim) => is_same(wanted, claim, tenant),
    }
}

/// Returns whether a plain value of a claim equals the wanted one, with the tenant's name in place.
fn is_same(wanted: &Value, claim: &Value, tenant: Option<&TenantName>) -> bool {
    match (wanted, tenant) {
        (Value::String(text), Some(tenant)) if text.contains(TENANT) => {
            claim.as_str() == Some(text.replace(TENANT, tenant.as_str()).as_str())
        }
        (Value::String(text), None) if text.contains(TENANT) => false,
        (wanted, _) => wanted == claim,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns whether a rule with these conditions matches these claims in the tenant `acme`.
    fn check(conditions: Value, claims: Value) -> bool {
        let conditions = conditions.as_array().unwrap();
        let conditions = conditions.iter().map(|one| one.as_object().unwrap().clone()).collect();
        let rule = AuthorizationRule { name: "rule".to_owned(), conditions };
        let principal = TokenBearer {
            authenticator: "test".to_owned(),
            uid: "alice".to_owned(),
            claims: claims.as_object().unwrap().clone(),
            admin_of: Vec::new(),
        };
        matches(&rule, &principal, Some(&TenantName::from("acme")))
    }

    /// Z9.1, C2.2: one condition must match, and in it every claim.
    #[test]
    fn a_rule_matches_by_one_condition_with_all_its_claims() {
        let rule = json!([{"groups": "dev", "iss": "one"}, {"zuul_uid": "bob"}, {"is_root": true}]);
        for (claims, expected) in [
            (json!({"groups": "dev", "iss": "one"}), true),
            (json!({"groups": ["ops", "dev"], "iss": "one"}), true),
            (json!({"groups": ["ops"], "iss": "one"}), false),
            (json!({"groups": "dev", "iss": "two"}), false),
            (json!({"groups": "dev"}), false),
            (json!({"groups": "developer", "iss": "one"}), false),
            (json!({"zuul_uid": "bob"}), false),
            (json!({"is_root": true}), true),
            (json!({"is_root": "true"}), false),
            (json!({"is_root": 1}), false),
            (json!({}), false),
        ] {
            assert_eq!(check(rule.clone(), claims.clone()), expected, "{claims}");
        }
        assert!(check(json!([{"zuul_uid": "alice"}]), json!({})), "the user's id is no claim");
    }

    /// Z9.1: the two forms of an inner claim are the same.
    #[test]
    fn inner_claims_are_named_by_mappings_or_dots() {
        let nested = json!([{"resources": {"account": {"roles": "admin"}}}]);
        let dotted = json!([{"resources.account.roles": "admin"}]);
        let mixed = json!([{"resources": {"account.roles": "admin"}}]);
        for (claims, expected) in [
            (json!({"resources": {"account": {"roles": ["user", "admin"]}}}), true),
            (json!({"resources": {"account": {"roles": "admin"}}}), true),
            (json!({"resources": {"account": {"roles": ["user"]}}}), false),
            (json!({"resources": {"account": "admin"}}), false),
            (json!({"resources": "admin"}), false),
            (json!({"roles": "admin"}), false),
        ] {
            for rule in [&nested, &dotted, &mixed] {
                assert_eq!(check(rule.clone(), claims.clone()), expected, "{rule} {claims}");
            }
        }
        let address = json!([{"https://example.org/groups": "dev"}]);
        assert!(check(address, json!({"https://example.org/groups": ["dev"]})));
    }

    /// Z9.1: the tenant's name in a condition.
    #[test]
    fn a_value_may_name_the_tenant() {
        let rule = json!([{"groups": "{tenant.name}"}, {"groups": "{tenant.name}-admins"}]);
        assert!(check(rule.clone(), json!({"groups": ["acme"]})));
        assert!(check(rule.clone(), json!({"groups": "acme-admins"})));
        assert!(!check(rule.clone(), json!({"groups": ["other", "{tenant.name}"]})));
        let conditions = vec![json!({"groups": "{tenant.name}"}).as_object().unwrap().clone()];
        let rule = AuthorizationRule { name: "rule".to_owned(), conditions };
        let claims = json!({"groups": ["{tenant.name}", ""]}).as_object().unwrap().clone();
        let principal = TokenBearer {
            authenticator: String::new(),
            uid: "alice".to_owned(),
            claims,
            admin_of: Vec::new(),
        };
        assert!(!matches(&rule, &principal, None), "there is no tenant at the root");
    }

    /// C2.2: a rule without conditions opens nothing.
    #[test]
    fn an_empty_condition_matches_nothing() {
        for rule in [
            json!([]),
            json!([{}]),
            json!([{"a": {}}]),
            json!([{"a": []}]),
            json!([{"a": null}]),
            json!([{"a": {"b": null}}]),
        ] {
            for claims in [
                json!({"a": {"b": 1}}),
                json!({"a": [[]]}),
                json!({"a": null}),
                json!({"a": [null]}),
                json!({"a": {"b": null}}),
            ] {
                assert!(!check(rule.clone(), claims.clone()), "{rule} {claims}");
            }
        }
    }
}
