//! The template's policies as the judge that the data services ask.

use super::{Context, Policies, PolicyDecision};
use crate::data::auth::{Authorizer, Decision, Principal};

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
        let context = condition_values
            .iter()
            .fold(Context::none(), |context, (key, value)| context.with(key, value));
        match self.decide(principal.as_str(), action, resource_arn, &context) {
            PolicyDecision::Allowed => Decision::Allow,
            PolicyDecision::Denied { statement } => Decision::Deny {
                why: format!("the statement {statement} of an identity-based policy denies it"),
            },
            PolicyDecision::NotAllowed => Decision::Deny {
                why: format!("no identity-based policy allows the {action} action"),
            },
        }
    }
}
