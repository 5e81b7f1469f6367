//! The public key of the holder of nodes, as it is added to them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sluice_model::plain_text::plain_line;

/// The types of keys that are accepted (OpenSSH's `PubkeyAcceptedAlgorithms`, without
/// certificates).
const TYPES: [&str; 7] = [
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
];

/// The maximum length of a key in base64; an RSA key of 16,384 bits has 2,800 characters.
const KEY_CHARS_MAX: usize = 4_000;

/// The maximum length of a comment, in characters; a longer one is cut.
const COMMENT_CHARS_MAX: usize = 100;

/// Returns a public key in the form in which it is added to `authorized_keys`: its type, its data
/// and its comment, one line without options (sshd(8)). The error says what is wrong with `text`,
/// which must be the content of one `.pub` file of OpenSSH.
///
/// # Errors
/// When the text is a private key, has several lines or options, or is not a public key of a known
/// type.
pub fn authorized_key(text: &str) -> Result<String, String> {
    let wrong = |why: &str| {
        Err(format!(
            "could not use the SSH key: {why}; give one public key as OpenSSH writes it, as in ~/.ssh/id_ed25519.pub"
        ))
    };
    let text = text.trim();
    if text.contains("PRIVATE KEY") {
        return wrong("it is a private key");
    }
    if text.lines().count() != 1 {
        return wrong("it is not one line");
    }
    let mut words = text.split_ascii_whitespace();
    let (kind, data) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !TYPES.contains(&kind) {
        return wrong(&format!(
            "it does not begin with the type of a key, one of {} (options are not accepted)",
            TYPES.join(", ")
        ));
    }
    // The data begin with the length of the type in four bytes, and the type (RFC 4253, 6.6).
    let mut start = u32::try_from(kind.len()).unwrap_or_default().to_be_bytes().to_vec();
    start.extend_from_slice(kind.as_bytes());
    let bytes = STANDARD.decode(data).ok().filter(|_| data.len() <= KEY_CHARS_MAX);
    if !bytes.is_some_and(|bytes| bytes.starts_with(&start) && bytes.len() > start.len() + 4) {
        return wrong(&format!("its data are not those of a key of type {kind}"));
    }
    let comment = plain_line(&words.collect::<Vec<_>>().join(" "), COMMENT_CHARS_MAX);
    Ok(format!("{kind} {data} {comment}").trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that `ssh-keygen -t ed25519` made.
    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEbF1Yb9rGdPMbvXbDhzTUWQ0s0eUmzBQbJWLjqGQ0Zc";

    /// N15: one public key is accepted, with its comment, and nothing that a server would read as
    /// an option or a second key.
    #[test]
    fn one_public_key_without_options_is_accepted() {
        assert_eq!(authorized_key(&format!("{KEY}\n")).unwrap(), KEY);
        let with_comment = format!("  {KEY}   ada  at\u{7} home \r\n");
        assert_eq!(authorized_key(&with_comment).unwrap(), format!("{KEY} ada at home"));
        for (text, why) in [
            (String::new(), "not one line"),
            (format!("{KEY}\n{KEY}"), "not one line"),
            (format!("command=\"x\" {KEY}"), "options are not accepted"),
            (format!("# {KEY}"), "does not begin with the type"),
            (KEY.replace("ssh-ed25519", "ssh-rsa"), "not those of a key of type ssh-rsa"),
            (KEY.replace("ssh-ed25519", "ssh-dss"), "does not begin with the type"),
            ("ssh-ed25519".to_owned(), "not those of a key"),
            ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5".to_owned(), "not those of a key"),
            (format!("ssh-ed25519 {}", "A".repeat(40_000)), "not those of a key"),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA".to_owned(), "a private key"),
        ] {
            let error = authorized_key(&text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
