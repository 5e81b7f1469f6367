//! Creates workspaces for an executor: a repository with files, made of packs, as a job expects it.
//!
//! `HEAD` is on the branch at the merged commit. `origin` points to nothing (`file:///dev/null`),
//! and `origin/<branch>` is the state before the merge. So a job sees its change as
//! `origin/<branch>..HEAD` and cannot fetch.

pub use crate::command::CommandError;
use crate::command::git;
use crate::pack::PackName;
use sluice_model::{BranchName, git::Oid};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The contents of a workspace.
#[derive(Debug, Clone)]
pub struct Checkout<'a> {
    /// The directory with the pack files and their indexes ([`crate::Repository::pack_dir`]).
    pub pack_dir: &'a Path,
    /// The needed packs; together they contain everything reachable from the commits below.
    pub packs: &'a [PackName],
    /// The destination: a directory that is empty or does not exist.
    pub dest: &'a Path,
    /// The branch to check out. For another full ref, such as `refs/tags/1.0`, `HEAD` is detached
    /// at the commit.
    pub branch: &'a BranchName,
    /// The tested commit.
    pub result: &'a Oid,
    /// The branch tip before the merge.
    pub base: &'a Oid,
    /// The tips of the project's other branches, which become remote branches.
    pub other_branches: &'a [(BranchName, Oid)],
    /// Tags by short name, with the object they point to.
    pub tags: &'a [(String, Oid)],
    /// Whether the files of the tested commit are written.
    pub files: WorkingTree,
    /// The time limit for everything.
    pub timeout_seconds: u64,
}

/// Whether a workspace has the files of its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkingTree {
    /// The files are there.
    CheckedOut,
    /// Only the repository is there, with `HEAD` at the commit. `git reset --hard` writes the files.
    Absent,
}

/// Why a workspace could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// The destination is not empty.
    #[error("cannot make a workspace in {dest}: it is not empty", dest = .0.display())]
    NotEmpty(PathBuf),
    /// A pack is missing.
    #[error("cannot make a workspace in {dest}: {pack} is not in {pack_dir}; download it \
             first", dest = dest.display(), pack_dir = pack_dir.display())]
    NoPack {
        /// The destination.
        dest: PathBuf,
        /// The missing pack.
        pack: PackName,
        /// The directory that should have the pack.
        pack_dir: PathBuf,
    },
    /// A name or id is not valid in git.
    #[error("cannot make a workspace in {dest}: {name:?} is no {what} for \
             git", dest = dest.display())]
    BadName {
        /// The destination.
        dest: PathBuf,
        /// The invalid text.
        name: String,
        /// The expected kind of name.
        what: &'static str,
    },
    /// A file could not be written; the disk may be full.
    #[error("could not {doing} {path}: check space and rights of the workspace's \
             disk", path = path.display())]
    File {
        /// The attempted action.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A git command failed.
    #[error("could not make a workspace in {dest}", dest = dest.display())]
    Git {
        /// The destination.
        dest: PathBuf,
        /// The error of the command.
        source: CommandError,
    },
}

/// Creates a repository at `dest` with refs, tags and packs, with the files of the tested commit if
/// `files` says so, and with a remote that leads nowhere. `HEAD` is on the branch, or detached for a full ref.
/// `dest` must be empty or missing, and the packs must contain all that the commits and tags reach.
/// An invalid name or id is an error before anything is created. After another error, except for a
/// `dest` that is not empty, the caller removes what is there.
///
/// Packs are hard-linked where the file system allows it and copied otherwise. Needs git 2.28 or
/// newer on the machine.
pub fn checkout(checkout: &Checkout<'_>) -> Result<(), CheckoutError> {
    let refs = refs(checkout)?;
    let dest = checkout.dest;
    prepare(dest)?;
    let deadline = Instant::now() + Duration::from_secs(checkout.timeout_seconds);
    let run = |arguments: &[&str], input: &str| {
        git(dest, arguments, input, deadline)
            .map_err(|source| CheckoutError::Git { dest: dest.to_owned(), source })
    };
    let on_branch = !is_whole_ref(checkout.branch);
    let first = if on_branch { checkout.branch.as_str() } else { UNBORN };
    run(&["init", "-q", "--template=", &format!("--initial-branch={first}")], "")?;
    link_packs(checkout)?;
    write_config(dest)?;
    run(&["update-ref", "--no-deref", "--stdin"], &refs)?;
    if !on_branch {
        run(&["update-ref", "--no-deref", "HEAD", checkout.result.as_str()], "")?;
    }
    match checkout.files {
        WorkingTree::CheckedOut => {
            run(&["reset", "-q", "--hard", "--no-recurse-submodules", checkout.result.as_str()], "")
        }
        WorkingTree::Absent => Ok(()),
    }
}

/// The branch of `HEAD` until it is detached; it never exists.
const UNBORN: &str = "none";

/// Returns whether a name is a full ref rather than a branch name.
fn is_whole_ref(name: &BranchName) -> bool {
    name.as_str().starts_with("refs/")
}

/// Returns the input of `git update-ref` that creates all refs of a workspace: the branch, its
/// remote branch at the base, the remote branches of other branches, and the tags. A full ref as
/// branch has no remote branch. Full refs among the other branches, and the branch itself, are left
/// out. An error if a name or id is invalid. Runs nothing.
fn refs(checkout: &Checkout<'_>) -> Result<String, CheckoutError> {
    let bad = |name: &str, what| CheckoutError::BadName {
        dest: checkout.dest.to_owned(),
        name: name.to_owned(),
        what,
    };
    // Valid in a ref but not as a branch: commands would take it for an option.
    if checkout.branch.as_str().starts_with('-') {
        return Err(bad(checkout.branch.as_str(), "branch name"));
    }
    let mut wanted = match is_whole_ref(checkout.branch) {
        true => vec![(checkout.branch.to_string(), checkout.result)],
        false => vec![
            (format!("refs/heads/{}", checkout.branch), checkout.result),
            (format!("refs/remotes/origin/{}", checkout.branch), checkout.base),
        ],
    };
    let is_other = |name: &BranchName| name != checkout.branch && !is_whole_ref(name);
    let others = checkout.other_branches.iter().filter(|(branch, _)| is_other(branch));
    wanted.extend(others.map(|(branch, tip)| (format!("refs/remotes/origin/{branch}"), tip)));
    wanted.extend(checkout.tags.iter().map(|(tag, object)| (format!("refs/tags/{tag}"), object)));
    let mut transaction = String::new();
    for (name, object) in wanted {
        if gix::validate::reference::name(name.as_str().into()).is_err() || name.ends_with("/HEAD")
        {
            return Err(bad(&name, "ref name"));
        }
        if gix::ObjectId::from_hex(object.as_str().as_bytes()).is_err() {
            return Err(bad(object.as_str(), "object id"));
        }
        transaction.push_str(&format!("create {name} {object}\n"));
    }
    Ok(transaction)
}

/// Creates the directory of the workspace with its parents. An error if it exists and is not empty.
fn prepare(dest: &Path) -> Result<(), CheckoutError> {
    let failed = |doing| move |source| CheckoutError::File { doing, path: dest.to_owned(), source };
    fs::create_dir_all(dest).map_err(failed("create"))?;
    match fs::read_dir(dest).map_err(failed("list"))?.next() {
        None => Ok(()),
        Some(_) => Err(CheckoutError::NotEmpty(dest.to_owned())),
    }
}

/// Hard-links the packs and their indexes into the workspace's repository, or copies them. A
/// missing pack is an error.
fn link_packs(checkout: &Checkout<'_>) -> Result<(), CheckoutError> {
    let to_dir = checkout.dest.join(".git/objects/pack");
    fs::create_dir_all(&to_dir).map_err(|source| CheckoutError::File {
        doing: "create",
        path: to_dir.clone(),
        source,
    })?;
    for pack in checkout.packs {
        for ending in ["pack", "idx"] {
            let name = format!("{pack}.{ending}");
            let (from, to) = (checkout.pack_dir.join(&name), to_dir.join(&name));
            if !from.is_file() {
                let (dest, pack_dir) = (checkout.dest.to_owned(), checkout.pack_dir.to_owned());
                return Err(CheckoutError::NoPack { dest, pack: pack.clone(), pack_dir });
            }
            // Hard links fail across file systems; other errors show up when copying.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to).map_err(|source| CheckoutError::File {
                    doing: "write",
                    path: to.clone(),
                    source,
                })?;
            }
        }
    }
    Ok(())
}

/// Appends to the configuration of the workspace, which `git init` has created, a remote `origin`
/// that leads nowhere.
fn write_config(dest: &Path) -> Result<(), CheckoutError> {
    let path = dest.join(".git/config");
    let failed = |doing| {
        let path = path.clone();
        move |source| CheckoutError::File { doing, path, source }
    };
    let mut text = fs::read_to_string(&path).map_err(failed("read"))?;
    text.push_str(
        "[remote \"origin\"]\n\turl = file:///dev/null\n\tfetch = \
                   +refs/heads/*:refs/remotes/origin/*\n",
    );
    fs::write(&path, text).map_err(failed("write"))
}
