//! The user data for a machine's first boot: the login and its authorized keys.

/// Returns a cloud-config that creates the login with all rights (`sudo` without a password), and
/// authorizes these public keys for it. For `root` it creates no login: it only authorizes the keys
/// and lets root log in. Line breaks in names and keys become blanks.
///
/// Names and keys are written as JSON strings, which are also YAML strings. Text in them cannot
/// become configuration.
pub fn cloud_config(username: &str, authorized_keys: &[String]) -> String {
    let quote = |text: &str| {
        format!(
            "\"{}\"",
            text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
        )
    };
    let keys: String =
        authorized_keys.iter().map(|key| format!("      - {}\n", quote(key.trim()))).collect();
    if username == "root" {
        let keys: String =
            authorized_keys.iter().map(|key| format!("  - {}\n", quote(key.trim()))).collect();
        return format!("#cloud-config\ndisable_root: false\nssh_authorized_keys:\n{keys}");
    }
    format!(
        "#cloud-config\nusers:\n  - name: {}\n    shell: /bin/bash\n    sudo: \"ALL=(ALL) \
         NOPASSWD:ALL\"\n    ssh_authorized_keys:\n{keys}",
        quote(username)
    )
}

#[cfg(test)]
mod tests {
    use super::cloud_config;

    /// Z8.2
    #[test]
    fn the_login_gets_the_keys_and_text_in_them_stays_text() {
        assert_eq!(
            cloud_config("zuul", &["ssh-ed25519 AAAA one\nruncmd: [evil]".into()]),
            "#cloud-config\nusers:\n  - name: \"zuul\"\n    shell: /bin/bash\n    sudo: \"ALL=(ALL) NOPASSWD:ALL\"\n    \
             ssh_authorized_keys:\n      - \"ssh-ed25519 AAAA one runcmd: [evil]\"\n"
        );
        assert!(cloud_config("root", &["k".into()]).contains("disable_root: false"));
    }
}
