//! What several calls check: permissions by tags, patterns, and the errors that they share.

use super::Ec2;
use super::parameters::{Parameters, Refusal};
use crate::data::Caller;
use std::collections::BTreeMap;

/// Returns the error for an invalid parameter.
pub(super) fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(400, "InvalidParameterValue", message)
}

/// Returns the ARN of a machine in the call's region, which need not exist; `*` stands for all.
pub(super) fn arn(ec2: &Ec2, parameters: &Parameters, id: &str) -> String {
    format!("arn:aws:ec2:{}:{}:instance/{id}", parameters.region(), ec2.inner.options.account.id)
}

/// Returns an error unless the caller's policies allow an action on `arn` with these tags as
/// condition keys `prefix/key`. The tags are those that a launch requests (`aws:RequestTag`), or
/// those that a machine has (`aws:ResourceTag`).
pub(super) fn check_with_tags(
    caller: &Caller,
    action: &str,
    arn: &str,
    prefix: &str,
    tags: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let keys: Vec<(String, &str)> =
        tags.iter().map(|(key, value)| (format!("{prefix}/{key}"), value.as_str())).collect();
    let values: Vec<(&str, &str)> =
        keys.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    Ok(caller.check_with(action, arn, &values)?)
}

/// Returns the error for a machine that does not exist.
pub(super) fn missing(id: &str) -> Refusal {
    Refusal::new(
        400,
        "InvalidInstanceID.NotFound",
        format!("The instance ID '{id}' does not exist"),
    )
}

/// Returns whether the whole text matches a pattern with `*` (any characters) and `?` (one
/// character).
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut seen, mut star) = (0, 0, None);
    while seen < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(c) if *c == '?' || *c == text[seen] => {
                at += 1;
                seen += 1;
            }
            _ => match star {
                Some((back, eaten)) => {
                    star = Some((back, eaten + 1));
                    at = back + 1;
                    seen = eaten + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::glob;

    /// L2.6
    #[test]
    fn patterns_match_as_in_a_shell() {
        assert!(
            glob("debian-*", "debian-12")
                && glob("*1?", "debian-12")
                && glob("", "")
                && glob("a*b*c", "aXbYbc")
        );
        assert!(!glob("debian", "debian-12") && !glob("?", "") && !glob("a*b", "abc"));
    }
}
