//! Detects the layout of Ansible roles in a repository (Z4.6).

use std::path::{Path, PathBuf};

/// Directories that, like `tasks/`, identify a repository as a bare role if it has no `roles/`.
const PARTS_OF_A_ROLE: [&str; 6] = ["vars", "defaults", "handlers", "templates", "files", "meta"];

/// Returns the directory to put into Ansible's roles path for the checkout at `checkout`. For a
/// repository with `tasks/`, which itself is one role, this is the parent directory, which must
/// contain nothing else. Otherwise it is `roles/`, if that exists. With neither, `None` for
/// `RoleOrigin::Implicit`. For `Requested` then: the parent directory if the checkout has a
/// directory of a role such as `vars/`, else the checkout itself.
pub fn roles_directory(checkout: &Path, origin: RoleOrigin) -> Option<PathBuf> {
    let around = || checkout.parent().map(Path::to_owned);
    let roles = checkout.join("roles");
    if checkout.join("tasks").is_dir() {
        around()
    } else if roles.is_dir() {
        Some(roles)
    } else if origin == RoleOrigin::Implicit {
        None
    } else if PARTS_OF_A_ROLE.iter().any(|part| checkout.join(part).is_dir()) {
        around()
    } else {
        Some(checkout.to_owned())
    }
}

/// Why a repository is searched for roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleOrigin {
    /// The job lists it under `roles`.
    Requested,
    /// It is the playbook's own repository.
    Implicit,
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
    fn the_three_layouts_of_a_role_repository_are_distinguished() {
        let (around, bare) = repo(&["tasks", "vars"]);
        assert_eq!(roles_directory(&bare, RoleOrigin::Requested).as_deref(), Some(around.path()));
        let (_around, many) = repo(&["roles/a/tasks", "vars"]);
        assert_eq!(roles_directory(&many, RoleOrigin::Requested), Some(many.join("roles")));
        let (_around, plain) = repo(&["a/tasks"]);
        assert_eq!(roles_directory(&plain, RoleOrigin::Requested), Some(plain.clone()));
        assert_eq!(roles_directory(&plain, RoleOrigin::Implicit), None);
    }
}
