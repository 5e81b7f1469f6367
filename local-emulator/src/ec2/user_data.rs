//! The part of user data that machines obey: logins with their keys, and a script.

use serde_yaml::Value;
use std::collections::BTreeMap;

/// What a machine does at its first boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Setup {
    /// Public keys by login.
    pub(super) keys: BTreeMap<String, Vec<String>>,
    /// A script that root runs.
    pub(super) script: Option<Vec<u8>>,
}

/// The login of images that name none, beside root.
const DEFAULT_LOGIN: &str = "zuul";

/// Reads what a machine does at its first boot. User data that begins with `#!` is a script. User
/// data that begins with `#cloud-config` has keys for the logins `zuul` and `root` and, by `users`,
/// for further ones. Any other text has no effect. There is always the login `zuul`, perhaps
/// without keys; invalid names and YAML are ignored.
pub(super) fn read(user_data: &[u8]) -> Setup {
    let mut setup =
        Setup { keys: BTreeMap::from([(DEFAULT_LOGIN.to_owned(), Vec::new())]), script: None };
    if user_data.starts_with(b"#!") {
        setup.script = Some(user_data.to_vec());
    }
    let text = std::str::from_utf8(user_data).unwrap_or_default();
    if !text.starts_with("#cloud-config") {
        return setup;
    }
    let Ok(config) = serde_yaml::from_str::<Value>(text) else {
        return setup;
    };
    let general = keys(&config);
    for login in [DEFAULT_LOGIN, "root"] {
        setup.keys.entry(login.to_owned()).or_default().extend(general.clone());
    }
    let users = config.get("users").and_then(Value::as_sequence);
    for user in users.into_iter().flatten() {
        if let Some(name) = user.get("name").and_then(Value::as_str).filter(|name| is_login(name)) {
            setup.keys.entry(name.to_owned()).or_default().extend(keys(user));
        }
    }
    setup
}

/// Returns the texts in the list `ssh_authorized_keys` of a mapping, each on one line; empty if
/// there is none.
fn keys(value: &Value) -> Vec<String> {
    let list = value.get("ssh_authorized_keys").and_then(Value::as_sequence);
    let lines = list.into_iter().flatten().filter_map(Value::as_str);
    lines.map(|line| line.replace(['\n', '\r'], " ")).collect()
}

/// Returns whether a name can stand in a password file and in a path: 1 to 32 lower-case letters,
/// digits, `_` and `-`.
fn is_login(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 32
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::read;

    /// Z8.2
    #[test]
    fn logins_and_keys_are_read_and_strange_names_are_not() {
        let setup = read(b"#cloud-config\nssh_authorized_keys: [all]\nusers:\n- name: ci\n  ssh_authorized_keys: [one, two]\n- name: ../x\n- default\n");
        assert_eq!(setup.keys["ci"], ["one", "two"]);
        assert_eq!(
            (setup.keys["root"].len(), setup.keys["zuul"].len(), setup.keys.len()),
            (1, 1, 3)
        );
        assert!(read(b"#!/bin/sh\ntrue\n").script.is_some());
        assert!(read(b"nonsense").keys["zuul"].is_empty());
    }
}
