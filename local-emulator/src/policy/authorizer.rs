//! The template's policies as the judge that the data services ask.

use super::{Context, Policies, Policy, PolicyDecision};
use crate::data::auth::{Authorizer, Decision, Principal};
use std::sync::Arc;

/// The person who runs the machine; like an account's root user, not restricted by a policy.
pub const OPERATOR: &str = "operator";

impl Authorizer for Policies {
    /// Decides as [`Policies::decide`] for a call without values of condition keys; the
    /// [`OPERATOR`] may do everything.
    fn allow(&self, principal: &Principal, action: &str, resource_arn: &str) -> Decision {
        self.allow_with(principal, action, resource_arn, &[])
    }

    /// Decides as [`Policies::decide`], with the reason of a denial in words; the [`OPERATOR`] may
    /// do everything.
    fn allow_with(
        &self,
        principal: &Principal,
        action: &str,
        resource_arn: &str,
        condition_values: &[(&str, &str)],
    ) -> Decision {
        if principal.as_str() == OPERATOR {
            return Decision::Allow;
        }
        let context = context(condition_values);
        let decision = self.decide(principal.as_str(), action, resource_arn, &context);
        in_words(decision, "identity-based", action)
    }

    /// Reads the document as the template's policies are read.
    fn session_policy(&self, document: &str) -> Result<Arc<dyn Authorizer>, String> {
        let document = serde_json::from_str(document).map_err(|error| error.to_string())?;
        let policy = Policy::new([document]).map_err(|error| error.to_string())?;
        Ok(Arc::new(SessionPolicy(policy)))
    }
}

/// The policy of a session, whose principal does not matter.
struct SessionPolicy(Policy);

impl Authorizer for SessionPolicy {
    fn allow(&self, principal: &Principal, action: &str, resource_arn: &str) -> Decision {
        self.allow_with(principal, action, resource_arn, &[])
    }

    fn allow_with(
        &self,
        _principal: &Principal,
        action: &str,
        resource_arn: &str,
        condition_values: &[(&str, &str)],
    ) -> Decision {
        let decision = self.0.decide(action, resource_arn, &context(condition_values));
        in_words(decision, "session", action)
    }
}

/// Returns the context of a call with these values of condition keys.
fn context(condition_values: &[(&str, &str)]) -> Context {
    let values = condition_values.iter();
    values.fold(Context::none(), |context, (key, value)| context.with(key, value))
}

/// Returns a decision of a policy of this `kind`, with the reason of a denial in words.
fn in_words(decision: PolicyDecision, kind: &str, action: &str) -> Decision {
    match decision {
        PolicyDecision::Allowed => Decision::Allow,
        PolicyDecision::Denied { statement } => Decision::Deny {
            why: format!("the statement {statement} of the {kind} policy denies it"),
        },
        PolicyDecision::NotAllowed => {
            Decision::Deny { why: format!("no {kind} policy allows the {action} action") }
        }
    }
}
