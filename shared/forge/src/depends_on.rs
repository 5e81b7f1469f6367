//! Finds the `Depends-On:` lines of a change's text.

use url::Url;

/// How many dependencies of one change are read; further lines are not looked at.
pub const DEPENDENCIES_MAX: usize = 100;

/// Returns the addresses that `text` names in lines `Depends-On: <url>`, in order, each once, at most [`DEPENDENCIES_MAX`].
///
/// The word may have any case; the line may end with white space or a carriage return. An address must be http or
/// https with a host. Which change an address means is for the connection that owns the host to say. (Z6.5, D01)
pub fn depends_on(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for address in text.lines().filter_map(address_of) {
        if found.len() == DEPENDENCIES_MAX {
            break;
        }
        if !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// Returns the host that an address leads to, in small letters and without its port; `None` for what is no address of one.
pub fn host_of(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    url.host_str().filter(|host| !host.is_empty()).map(str::to_owned)
}

fn address_of(line: &str) -> Option<String> {
    let (word, rest) = line.split_once(':')?;
    if !word.eq_ignore_ascii_case("Depends-On") {
        return None;
    }
    let address = rest.trim();
    let url = Url::parse(address).ok()?;
    let usable = matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty());
    (usable && !address.contains(char::is_whitespace)).then(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D01, Z6.5
    #[test]
    fn the_addresses_of_depends_on_lines_are_read_in_order() {
        let rows: &[(&str, &[&str])] = &[
            ("Depends-On: https://github.com/org/one/pull/4", &["https://github.com/org/one/pull/4"]),
            (
                "fix it\r\n\r\ndepends-on:https://h/a/b/pull/1\r\nDEPENDS-ON: http://h/a/c/pull/2  \r\n",
                &["https://h/a/b/pull/1", "http://h/a/c/pull/2"],
            ),
            ("Depends-On: https://h/a/b/pull/1\nDepends-On: https://h/a/b/pull/1", &["https://h/a/b/pull/1"]),
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
        let text: String = (0..300).map(|n| format!("Depends-On: https://h/a/b/pull/{n}\n")).collect();
        assert_eq!(depends_on(&text).len(), DEPENDENCIES_MAX);
    }

    /// Z6.5
    #[test]
    fn the_host_of_an_address_is_found_without_its_port_and_its_user() {
        for (address, host) in [
            ("https://GitHub.com/org/one/pull/4", Some("github.com")),
            ("http://ada@forge.test:8080/org/one", Some("forge.test")),
            ("https://[::1]:9600/org/one", Some("[::1]")),
            ("org/one#4", None),
            ("mailto:ada@forge.test", None),
        ] {
            assert_eq!(host_of(address).as_deref(), host, "{address}");
        }
    }
}
