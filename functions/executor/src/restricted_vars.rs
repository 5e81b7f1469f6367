//! Removes job variables that would control where, as which user and through which programs a
//! privileged playbook runs (Z7.5).
//!
//! The author of the change under test may define a job's variables. Ansible reads connection
//! settings from ordinary variables, so a job could make a trusted playbook run the job's own file
//! on the executor. The configuration rejects the most obvious names; this module removes all of
//! them before every playbook.

use serde_json::{Map, Value};

/// Variables that the executor defines for every playbook; a job can never set them.
const RESERVED: [&str; 10] = [
    "zuul",
    "zuul_node",
    "nodepool",
    "unsafe_vars",
    "zuul_user_dir",
    "ansible_connection",
    "ansible_host",
    "ansible_python_interpreter",
    "ansible_shell_executable",
    "ansible_user",
];

/// Variables that Ansible sets itself and that its extra variables override. A trusted playbook
/// names directories by them. Those that begin with `ansible_` are refused with all of these.
const OF_ANSIBLE: [&str; 16] = [
    "group_names",
    "groups",
    "hostvars",
    "inventory_dir",
    "inventory_file",
    "inventory_hostname",
    "inventory_hostname_short",
    "omit",
    "parent_role_names",
    "parent_role_paths",
    "play_hosts",
    "playbook_dir",
    "role_name",
    "role_names",
    "role_path",
    "role_uuid",
];

/// Variables that a job may set for its own node even in privileged playbooks. They take effect
/// only on that node, which the job controls anyway, because the executor defines the connection.
const ALLOWED_ON_NODE: [&str; 10] = [
    "ansible_become",
    "ansible_become_exe",
    "ansible_become_flags",
    "ansible_become_method",
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_become_user",
    "ansible_remote_tmp",
    "ansible_shell_type",
    "ansible_timeout",
];

/// Where job variables take effect; decides which of them are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VarScope {
    /// In an untrusted playbook without secrets, which may run any code of the change.
    Unprivileged,
    /// In a privileged playbook (trusted or with secrets), on one node of the job.
    OneNode,
    /// In a privileged playbook, on every host, including the executor and hosts that it adds.
    Everywhere,
}

/// Returns whether the executor defines the variable for every playbook, so that no other value of
/// it has an effect.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Removes the variables from `vars` that a job may not set in this scope; see [`is_allowed`].
pub fn restrict(vars: &mut Map<String, Value>, scope: VarScope) {
    vars.retain(|name, _| is_allowed(name, scope));
}

/// Returns whether a job may set the variable `name` in this scope. The names in `RESERVED`, such
/// as `zuul` and `ansible_host`, are never allowed. In an unprivileged playbook all others are. In
/// a privileged one, names that Ansible sets, such as `inventory_hostname`, and names that begin
/// with `ansible_` or `_ansible_` are not allowed either, except on one node a few such as
/// `ansible_become`.
pub fn is_allowed(name: &str, scope: VarScope) -> bool {
    if is_reserved(name) {
        return false;
    }
    // All of Ansible's own variables have these prefixes. Which of them are dangerous depends on
    // the plugins, so all are refused by default.
    let is_ansible =
        name.starts_with("ansible_") || name.starts_with("_ansible_") || OF_ANSIBLE.contains(&name);
    match scope {
        VarScope::Unprivileged => true,
        VarScope::OneNode => !is_ansible || ALLOWED_ON_NODE.contains(&name),
        VarScope::Everywhere => !is_ansible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use VarScope::{Everywhere, OneNode, Unprivileged};

    /// Z7.5
    #[test]
    fn a_job_never_controls_the_programs_that_a_privileged_playbook_runs() {
        let connection_vars = [
            "ansible_ssh_common_args",
            "ansible_ssh_executable",
            "ansible_sftp_executable",
            "ansible_perl_interpreter",
            "ansible_async_dir",
            "ansible_facts_modules",
            "ansible_parent_role_paths",
            "inventory_hostname",
            "group_names",
            "hostvars",
        ];
        for name in connection_vars {
            assert!(
                is_allowed(name, Unprivileged)
                    && !is_allowed(name, OneNode)
                    && !is_allowed(name, Everywhere),
                "{name}"
            );
        }
        for name in RESERVED {
            assert!(
                [Unprivileged, OneNode, Everywhere].iter().all(|scope| !is_allowed(name, *scope)),
                "{name}"
            );
        }
        assert!(is_allowed("ansible_become", OneNode) && !is_allowed("ansible_become", Everywhere));
        assert!(
            [Unprivileged, OneNode, Everywhere].iter().all(|scope| is_allowed("greeting", *scope))
        );
    }
}
