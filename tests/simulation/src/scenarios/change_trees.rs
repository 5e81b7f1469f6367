//! [`super::Scenario::ChangeTrees`]: trees of changes of several projects that need each other.
//!
//! The approvals of some trees trigger nothing. A comment on any change of such a tree brings all of
//! it into the gate.

/// The label of changes whose approvals trigger nothing.
pub const QUIET: &str = "quiet";

/// The comment that triggers the gate.
pub const GATHER: &str = "gather";

/// The number of the first change of a tree.
pub const NUMBERS_FROM: u64 = 100;

/// The most changes of a tenant, related to each other, that one event is expected to bring in.
pub const RELATED_MAX: usize = 10;

/// The start of the gate's trigger by an approval.
const APPROVAL: &str = "        - event: pull_request_review
          action: submitted
";

/// Returns the pipelines with a gate that ignores the approvals of changes with the label
/// [`QUIET`], and is triggered by the comment [`GATHER`].
pub fn with_quiet_changes(pipelines: &str) -> String {
    let triggers = format!(
        "        - event: pull_request
          action: comment
          comment: {GATHER}
{APPROVAL}          reject:
            label: {QUIET}
"
    );
    pipelines.replacen(APPROVAL, &triggers, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reviews::check_and_gate_with_gerrit;
    use sluice_scenarios::sample::PIPELINES;

    /// Z6.1: the gate has both triggers, so that a tree is brought in by approvals or by a comment.
    #[test]
    fn the_gate_has_a_second_trigger() {
        let text = with_quiet_changes(PIPELINES);
        assert!(text.contains("label: quiet") && text.contains("comment: gather"), "{text}");
        assert!(check_and_gate_with_gerrit(&text).contains("comment-added"), "{text}");
    }
}
