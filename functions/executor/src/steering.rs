//! Which variables say where, as what and through which programs a playbook runs (Z7.5).
//!
//! A job's variables come from whoever wrote the job, which may be the change under test. Ansible
//! takes such names from every variable, so a job could have a trusted playbook's process on the
//! executor run a file of its own. Configuration refuses the plainest of them; here, before every
//! playbook, none is let through.

use serde_json::{Map, Value};

/// Names that the executor gives a value itself, for every playbook.
const OWN: [&str; 10] = [
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

/// What a job may say about its own node, also to trusted playbooks: it takes effect there and
/// nowhere else, as long as the connection is ours. The node is the job's own anyway.
const ON_NODE: [&str; 10] = [
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

/// Where variables of a job take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// In a playbook that gives nothing away: it runs what the change likes anyway.
    Harmless,
    /// In a playbook that is trusted or sees secrets, on one node of the job.
    OneNode,
    /// In such a playbook, on every host it talks of: the executor, and hosts that it adds itself.
    Everywhere,
}

/// Removes from `vars` what a job must not say there.
pub fn restrict(vars: &mut Map<String, Value>, reach: Reach) {
    vars.retain(|name, _| is_allowed(name, reach));
}

/// Returns whether a job may give the variable `name` a value there.
pub fn is_allowed(name: &str, reach: Reach) -> bool {
    if OWN.contains(&name) {
        return false;
    }
    // All of Ansible's own names begin so. Which of them matter changes with every plugin, so none
    // passes by default.
    let is_ansible = name.starts_with("ansible_") || name.starts_with("_ansible_");
    match reach {
        Reach::Harmless => true,
        Reach::OneNode => !is_ansible || ON_NODE.contains(&name),
        Reach::Everywhere => !is_ansible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Reach::{Everywhere, Harmless, OneNode};

    /// Z7.5
    #[test]
    fn a_job_never_says_through_what_a_playbook_with_rights_runs() {
        let steering = [
            "ansible_ssh_common_args",
            "ansible_ssh_executable",
            "ansible_sftp_executable",
            "ansible_perl_interpreter",
            "ansible_async_dir",
            "ansible_facts_modules",
        ];
        for name in steering {
            assert!(
                is_allowed(name, Harmless)
                    && !is_allowed(name, OneNode)
                    && !is_allowed(name, Everywhere),
                "{name}"
            );
        }
        for name in OWN {
            assert!(
                [Harmless, OneNode, Everywhere].iter().all(|reach| !is_allowed(name, *reach)),
                "{name}"
            );
        }
        assert!(is_allowed("ansible_become", OneNode) && !is_allowed("ansible_become", Everywhere));
        assert!([Harmless, OneNode, Everywhere].iter().all(|reach| is_allowed("greeting", *reach)));
    }
}
