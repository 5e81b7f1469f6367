//! Detects how a repository holds Ansible roles (Z4.6).

use std::path::{Path, PathBuf};

/// Directories that make a repository without `roles/` a role, besides `tasks/`.
const PARTS_OF_A_ROLE: [&str; 6] = ["vars", "defaults", "handlers", "templates", "files", "meta"];

/// Returns the directory to put into Ansible's roles path for the checkout at `checkout`.
///
/// A bare role gives the directory around it (which must hold nothing else), a `roles/` directory
/// itself, anything else its root. `None` for a repository that nobody asked for and that has no
/// roles: a playbook's own with a `files/` directory is no role because of that.
pub fn roles_directory(checkout: &Path, offered: Offered) -> Option<PathBuf> {
    let around = || checkout.parent().map(Path::to_owned);
    let roles = checkout.join("roles");
    if checkout.join("tasks").is_dir() {
        around()
    } else if roles.is_dir() {
        Some(roles)
    } else if offered == Offered::Implicitly {
        None
    } else if PARTS_OF_A_ROLE.iter().any(|part| checkout.join(part).is_dir()) {
        around()
    } else {
        Some(checkout.to_owned())
    }
}

/// Whether a job names the repository among its roles, or it is the playbook's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// Named.
    Asked,
    /// The playbook's own.
    Implicitly,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(directories: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let around = tempfile::tempdir().unwrap();
        let checkout = around.path().join("repo");
        std::fs::create_dir(&checkout).unwrap();
        for directory in directories {
            std::fs::create_dir_all(checkout.join(directory)).unwrap();
        }
        (around, checkout)
    }

    /// Z4.6
    #[test]
    fn the_three_forms_of_a_role_repository_are_told_apart() {
        let (around, bare) = repo(&["tasks", "vars"]);
        assert_eq!(roles_directory(&bare, Offered::Asked).as_deref(), Some(around.path()));
        let (_around, many) = repo(&["roles/a/tasks", "vars"]);
        assert_eq!(roles_directory(&many, Offered::Asked), Some(many.join("roles")));
        let (_around, plain) = repo(&["a/tasks"]);
        assert_eq!(roles_directory(&plain, Offered::Asked), Some(plain.clone()));
        assert_eq!(roles_directory(&plain, Offered::Implicitly), None);
    }
}
