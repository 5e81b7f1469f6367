//! Unpacks the executor's own Ansible plugins and roles from the program to a directory that
//! sandboxes can read.

use crate::settings::SetupError;
use sluice_model::id::digest;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::process::Command;

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        /// Every file below `ansible/`.
        const FILES: &[(&str, &str)] = &[$(($path, include_str!(concat!("../ansible/", $path)))),*];
    };
}

files![
    "bin/network_relay.py",
    "bin/node_connect.py",
    "bin/ssh",
    "plugins/action/output_keep.py",
    "plugins/action/script_run.py",
    "plugins/action/tree_fetch.py",
    "plugins/action/vars_freeze.py",
    "plugins/action/workspace_push.py",
    "plugins/action/zuul_console.py",
    "plugins/action/zuul_return.py",
    "plugins/callback/zuul_stream.py",
    "plugins/freeze.yaml",
    "plugins/lib/sluice_files.py",
    "plugins/lib/sluice_streams.py",
    "plugins/module_utils/sluice_lines.py",
    "plugins/modules/command.py",
    "roles/README.md",
    "roles/archive-logs/defaults/main.yaml",
    "roles/archive-logs/tasks/main.yaml",
    "roles/fetch-output/defaults/main.yaml",
    "roles/fetch-output/tasks/main.yaml",
    "roles/prepare-workspace/defaults/main.yaml",
    "roles/prepare-workspace/tasks/main.yaml",
    "roles/run-script/defaults/main.yaml",
    "roles/run-script/tasks/main.yaml",
    "roles/validate-host/tasks/main.yaml",
];

/// How often this process has begun to unpack the content, for the names of unfinished directories.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// The unpacked plugins and roles on this machine.
#[derive(Debug, Clone)]
pub struct AnsibleContent {
    /// The directory. Its name is a hash of the content, so it never changes under a running
    /// playbook.
    pub root: PathBuf,
}

impl AnsibleContent {
    /// Writes the executor's plugins and roles into a directory below `parent` whose name is a hash
    /// of their content, and compiles them to bytecode with `python`. An existing directory is used
    /// unchanged, also one that another executor writes meanwhile. A failed compilation is ignored:
    /// playbooks then only start more slowly.
    pub async fn unpack(parent: &Path, python: &Path) -> Result<Self, SetupError> {
        let failed = |source| SetupError::Content { path: parent.to_owned(), source };
        let parts: Vec<&str> = FILES.iter().flat_map(|(path, text)| [*path, *text]).collect();
        let root = parent.join(digest(&parts));
        if root.is_dir() {
            return Ok(Self { root });
        }
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let unfinished = parent.join(format!("unfinished-{}-{number}", std::process::id()));
        for (path, text) in FILES {
            let path = unfinished.join(path);
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory).map_err(failed)?;
            }
            std::fs::write(&path, text).map_err(failed)?;
            if text.starts_with("#!") {
                std::fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(failed)?;
            }
        }
        // Sandboxes see the content read-only and cannot cache bytecode. Without bytecode, a
        // playbook only starts more slowly.
        let mut compile = Command::new(python);
        compile
            .args(["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"])
            .arg(&unfinished);
        compile
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let _ = compile.status().await;
        if let Err(error) = std::fs::rename(&unfinished, &root) {
            // Another executor may have unpacked it first.
            let _ = std::fs::remove_dir_all(&unfinished);
            if !root.is_dir() {
                return Err(failed(error));
            }
        }
        Ok(Self { root })
    }
}

#[cfg(test)]
mod tests {
    use super::FILES;
    use std::path::Path;

    fn walk(directory: &Path, found: &mut Vec<String>, root: &Path) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("__pycache__") {
                walk(&path, found, root);
            } else if path.is_file() {
                found.push(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }

    /// Z7.7
    #[test]
    fn every_plugin_and_role_is_part_of_the_program() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("ansible");
        let mut found = Vec::new();
        walk(&root, &mut found, &root);
        found.sort();
        assert_eq!(found, FILES.iter().map(|(path, _)| (*path).to_owned()).collect::<Vec<_>>());
    }
}
