//! Who may do what: the template's IAM policies, evaluated as AWS does. What no statement allows is
//! refused, and a statement that denies wins over all that allow.
//!
//! Only what identity policies of the template use is known: `Action`, `Resource`, and a closed
//! list of condition operators. An unknown part is an error when the template is read: not applied,
//! it would allow more than AWS.

mod authorizer;
mod condition;
mod document;
mod pattern;

#[cfg(test)]
mod tests;

pub use authorizer::OPERATOR;
pub use condition::Context;
pub use document::{Document, PolicyError};

use condition::Condition;
use pattern::Pattern;
use std::collections::BTreeMap;

/// What a policy says to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyDecision {
    /// A statement allows it and none denies it.
    Allowed,
    /// A statement denies it.
    Denied {
        /// The statement's `Sid`, where it has one.
        statement: String,
    },
    /// No statement allows it.
    NotAllowed,
}

/// The statements that bind one principal.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    statements: Vec<Statement>,
}

#[derive(Debug, Clone)]
struct Statement {
    sid: String,
    effect: Effect,
    actions: Vec<Pattern>,
    resources: Vec<Pattern>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Allow,
    Deny,
}

impl Policy {
    /// Returns the policy with the statements of all `documents`. An error for a condition operator
    /// that is not supported.
    ///
    /// # Errors
    /// [`PolicyError`] for a part this evaluator does not know.
    pub fn new(documents: impl IntoIterator<Item = Document>) -> Result<Self, PolicyError> {
        let mut statements = Vec::new();
        for document in documents {
            for raw in document.statement {
                statements.push(raw.into_statement()?);
            }
        }
        Ok(Self { statements })
    }

    /// Adds the statements of `other`.
    pub fn extend(&mut self, other: &Policy) {
        self.statements.extend(other.statements.iter().cloned());
    }

    /// Decides whether the policy allows `action` (`sqs:SendMessage`) on `resource` (an ARN, or `*`
    /// for a call without one). A statement that denies it wins over all that allow it; without a
    /// statement that allows it, it is not allowed. `context` has the values of the call's
    /// condition keys.
    #[must_use]
    pub fn decide(&self, action: &str, resource: &str, context: &Context) -> PolicyDecision {
        let speaking = |effect: Effect| {
            self.statements.iter().find(move |statement| {
                statement.effect == effect && statement.applies_to(action, resource, context)
            })
        };
        match (speaking(Effect::Deny), speaking(Effect::Allow)) {
            (Some(statement), _) => PolicyDecision::Denied { statement: statement.sid.clone() },
            (None, Some(_)) => PolicyDecision::Allowed,
            (None, None) => PolicyDecision::NotAllowed,
        }
    }
}

impl Statement {
    /// Returns whether the statement applies to a call: one of its actions and one of its resources
    /// match, and all its conditions are true. Its effect is not considered.
    fn applies_to(&self, action: &str, resource: &str, context: &Context) -> bool {
        self.actions.iter().any(|pattern| pattern.matches(action))
            && self.resources.iter().any(|pattern| pattern.matches(resource))
            && self.conditions.iter().all(|condition| condition.holds(context))
    }
}

/// The policies of all principals of a template.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    by_principal: BTreeMap<String, Policy>,
}

impl Policies {
    /// Returns the policies of a plan: of every function by its id, of `executor` if there is one,
    /// and of every role that these may assume by its name. The operator has none.
    #[must_use]
    pub fn of(plan: &crate::template::TemplatePlan) -> Self {
        let owned =
            plan.principals().map(|(principal, policy)| (principal.to_owned(), policy.clone()));
        let of_roles = plan.roles.iter().map(|role| (role.name.clone(), role.policy.clone()));
        Self { by_principal: owned.chain(of_roles).collect() }
    }

    /// Returns the decision of `principal`'s policy, as [`Policy::decide`]; an unknown principal is
    /// allowed nothing, also the operator.
    #[must_use]
    pub fn decide(
        &self,
        principal: &str,
        action: &str,
        resource: &str,
        context: &Context,
    ) -> PolicyDecision {
        match self.by_principal.get(principal) {
            Some(policy) => policy.decide(action, resource, context),
            None => PolicyDecision::NotAllowed,
        }
    }
}
