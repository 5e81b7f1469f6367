//! Finds the `Depends-On:` lines of a change's text, and which of their URLs belong to no
//! configured forge.

use crate::forge::Forge;
use sluice_model::ConnectionName;
use std::collections::BTreeMap;
use std::sync::Arc;
use url::Url;

/// The most URLs that one change may name.
pub const DEPENDENCIES_MAX: usize = 100;

/// Returns the http and https URLs that `text` names in lines that begin with `Depends-On:`, in
/// order, without duplicates. The keyword may have any case. Other lines, and those whose URL is
/// unusable, are ignored. Returns at most one more than [`DEPENDENCIES_MAX`]: the dependencies of a
/// change with that many are unknown ([`names_too_many`]).
///
/// The line may end with white space or a carriage return. Which change a URL means is decided by
/// the connection that has the host.
pub fn depends_on(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for address in text.lines().filter_map(address_of) {
        if found.len() > DEPENDENCIES_MAX {
            break;
        }
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// Returns whether a change names more URLs than are read, given the result of [`depends_on`]. The
/// others may name any change, so they must not be ignored.
pub fn names_too_many(addresses: &[String]) -> bool {
    addresses.len() > DEPENDENCIES_MAX
}

/// Returns those of `addresses` that are not the page of a change on any of these forges, in their
/// order. Makes no requests: a URL of a change's form counts as a page of a change, whether that
/// exists or not.
pub fn urls_of_no_change<'a>(
    forges: &BTreeMap<ConnectionName, Arc<dyn Forge>>,
    addresses: &'a [String],
) -> Vec<&'a String> {
    addresses
        .iter()
        .filter(|url| !forges.values().any(|forge| forge.change_at(url).is_some()))
        .collect()
}

/// Returns the URL in a line `Depends-On: <url>`, as written; `None` for any other line, such as an
/// indented one, and for a text that is not one http or https URL with a host.
fn address_of(line: &str) -> Option<String> {
    let (word, rest) = line.split_once(':')?;
    if !word.eq_ignore_ascii_case("Depends-On") {
        return None;
    }
    let address = rest.trim();
    let url = Url::parse(address).ok()?;
    let usable = matches!(url.scheme(), "http" | "https")
        && url.host_str().is_some_and(|host| !host.is_empty());
    (usable && !address.contains(char::is_whitespace)).then(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ForgeSecret, GitHub, GitHubOptions};

    /// D01, Z6.5
    #[test]
    fn the_addresses_of_depends_on_lines_are_read_in_order() {
        let rows: &[(&str, &[&str])] = &[
            (
                "Depends-On: https://github.com/org/one/pull/4",
                &["https://github.com/org/one/pull/4"],
            ),
            (
                "fix it\r\n\r\ndepends-on:https://h/a/b/pull/1\r\nDEPENDS-ON: http://h/a/c/pull/2  \r\n",
                &["https://h/a/b/pull/1", "http://h/a/c/pull/2"],
            ),
            (
                "Depends-On: https://h/a/b/pull/1\nDepends-On: https://h/a/b/pull/1",
                &["https://h/a/b/pull/1"],
            ),
            ("This Depends-On: https://h/a/b/pull/1", &[]),
            ("Depends-On: I0123456789", &[]),
            ("Depends-On: ftp://h/a/b/pull/1", &[]),
            ("Depends-On: https://h/a/b/pull/1 and more", &[]),
            ("Depends-On:", &[]),
            ("", &[]),
        ];
        for (text, expected) in rows {
            assert_eq!(depends_on(text), *expected, "{text:?}");
        }
    }

    /// Z6.5
    #[test]
    fn the_list_of_dependencies_is_bounded() {
        let named = |most: usize| -> Vec<String> {
            let text: String =
                (0..most).map(|n| format!("Depends-On: https://h/a/b/pull/{n}\n")).collect();
            // A URL that is named twice counts once.
            depends_on(&format!("{text}{text}"))
        };
        for (most, read, is_too_many) in [(100, 100, false), (101, 101, true), (300, 101, true)] {
            assert_eq!(
                (named(most).len(), names_too_many(&named(most))),
                (read, is_too_many),
                "{most}"
            );
        }
    }

    /// Z6.5: one forge that knows the URL is enough.
    #[test]
    fn urls_that_belong_to_no_forge_are_recognised() {
        let forge = |connection: &str, host: &str| -> (ConnectionName, Arc<dyn Forge>) {
            let options = GitHubOptions {
                connection: connection.into(),
                host: host.to_owned(),
                api_url: format!("https://api.{host}"),
                web_url: format!("https://{host}"),
                token: ForgeSecret::new("t"),
                own_login: None,
            };
            let driver: Arc<dyn Forge> = Arc::new(GitHub::new(options).unwrap());
            (connection.into(), driver)
        };
        let forges = BTreeMap::from([forge("one", "one.test"), forge("two", "two.test")]);
        let addresses = [
            "https://one.test/org/a/pull/1",
            "https://one.test/org/a/issues/1",
            "https://two.test/org/a/pull/1",
            "https://three.test/org/a/pull/1",
        ]
        .map(str::to_owned);
        assert_eq!(urls_of_no_change(&forges, &addresses), [&addresses[1], &addresses[3]]);
        assert_eq!(
            urls_of_no_change(&BTreeMap::new(), &addresses).len(),
            4,
            "where there is no forge there is no change"
        );
    }
}
