//! How users name changes, refs and commits, as with zuul-client.

use crate::StoreCommandError;
use sluice_model::git::Oid;

/// A change as zuul-client names it: `number`, or `number,revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeNumber {
    /// The number.
    pub number: u64,
    /// The first digits of the revision's commit; `None` for any revision.
    pub head: Option<String>,
}

impl ChangeNumber {
    /// Parses a change. The revision is not checked: it may be only the start of a commit id.
    ///
    /// # Errors
    /// When the number is none, or the revision after the comma is empty.
    pub fn parse(text: &str) -> Result<Self, StoreCommandError> {
        let (number, head) = match text.split_once(',') {
            Some((number, head)) => (number, Some(head)),
            None => (text, None),
        };
        let number = number.parse().ok().filter(|_| head != Some(""));
        let number = number.ok_or_else(|| {
            StoreCommandError::Invalid(format!(
                "could not use {text:?} as a change: give its number, or number,revision"
            ))
        })?;
        Ok(Self { number, head: head.map(str::to_owned) })
    }
}

/// Returns the full ref for a name. A name without `refs/` is a branch: `main` becomes
/// `refs/heads/main`.
pub fn whole_ref(name: &str) -> String {
    if name.starts_with("refs/") { name.to_owned() } else { format!("refs/heads/{name}") }
}

/// Parses a full commit id of 40 or 64 hexadecimal digits, and returns it in lower case. `None`
/// gives the null id of 40 zeros, as in git. An error for any other text, also an abbreviated id;
/// whether the commit exists is not checked.
pub(crate) fn parse_commit(text: Option<&str>) -> Result<Oid, StoreCommandError> {
    let Some(text) = text else { return Ok(Oid::zero()) };
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        let why = format!("could not use {text:?} as a commit: give its full id");
        return Err(StoreCommandError::Invalid(why));
    }
    Ok(Oid::from(text.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R06: a change is a number, or a number and the start of a revision.
    #[test]
    fn a_change_with_an_empty_revision_is_refused() {
        let number = |text: &str| ChangeNumber::parse(text).map(|read| (read.number, read.head));
        assert_eq!(number("7").unwrap(), (7, None));
        assert_eq!(number("7,abc").unwrap(), (7, Some("abc".to_owned())));
        for unusable in ["7,", "seven", ",abc", ""] {
            let error = number(unusable).unwrap_err().to_string();
            assert!(error.contains("give its number"), "{unusable}: {error}");
        }
    }

    /// R06
    #[test]
    fn a_commit_is_named_by_its_full_id() {
        assert_eq!(parse_commit(None).unwrap(), Oid::zero());
        assert_eq!(parse_commit(Some(&"AB".repeat(20))).unwrap(), Oid("ab".repeat(20)));
        for unusable in ["", "abc", &"g".repeat(40)] {
            assert!(parse_commit(Some(unusable)).is_err(), "{unusable}");
        }
    }
}
