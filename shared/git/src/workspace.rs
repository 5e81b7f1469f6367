//! Workspaces for an executor: a repository with files, made of packs, as a job finds it.
//!
//! `HEAD` is on the branch at the merged commit; `origin` leads nowhere (`file:///dev/null`), and
//! `origin/<branch>` is the state before the merge. So a job sees what its change does as
//! `origin/<branch>..HEAD`, and fetches nothing.

pub use crate::command::CommandError;
use crate::command::git;
use crate::pack::PackName;
use sluice_model::{BranchName, git::Oid};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a workspace is made of.
#[derive(Debug, Clone)]
pub struct Checkout<'a> {
    /// The directory with the pack files and their indices ([`crate::Repository::pack_dir`]).
    pub pack_dir: &'a Path,
    /// Which of its packs are needed; together they hold everything reachable from the commits
    /// below.
    pub packs: &'a [PackName],
    /// Where the repository goes: a directory that is empty or does not exist.
    pub dest: &'a Path,
    /// The branch that is checked out. A whole ref, `refs/tags/1.0`, is no branch: `HEAD` is then
    /// on the commit itself.
    pub branch: &'a BranchName,
    /// The commit under test.
    pub result: &'a Oid,
    /// The branch's tip before the merge.
    pub base: &'a Oid,
    /// Other branches of the project, as their tips are: they become remote branches.
    pub other_branches: &'a [(BranchName, Oid)],
    /// Tags by short name, with the object they point to.
    pub tags: &'a [(String, Oid)],
    /// How long all of it may take.
    pub timeout_seconds: u64,
}

/// Why a workspace could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// There is something at the destination.
    #[error("cannot make a workspace in {dest}: it is not empty", dest = .0.display())]
    NotEmpty(PathBuf),
    /// A pack is not where it should be.
    #[error("cannot make a workspace in {dest}: {pack} is not in {pack_dir}; download it first", dest = dest.display(), pack_dir = pack_dir.display())]
    NoPack {
        /// The destination.
        dest: PathBuf,
        /// The pack.
        pack: PackName,
        /// Where it was looked for.
        pack_dir: PathBuf,
    },
    /// A name or id cannot be used in git.
    #[error("cannot make a workspace in {dest}: {name:?} is no {what} for git", dest = dest.display())]
    BadName {
        /// The destination.
        dest: PathBuf,
        /// The text.
        name: String,
        /// What it should be.
        what: &'static str,
    },
    /// A file could not be written; the disk may be full.
    #[error("could not {doing} {path}: check space and rights of the workspace's disk", path = path.display())]
    File {
        /// What was attempted.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Git did not do its part.
    #[error("could not make a workspace in {dest}", dest = dest.display())]
    Git {
        /// The destination.
        dest: PathBuf,
        /// What it said.
        source: CommandError,
    },
}

/// Makes a workspace; what is left at `dest` after an error is to be removed.
///
/// Packs are hard-linked where the file system allows it and copied elsewhere. Needs git 2.28 or
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
    run(&["reset", "-q", "--hard", "--no-recurse-submodules", checkout.result.as_str()], "")
}

/// The branch that `HEAD` is on until it is put on a commit; it never exists.
const UNBORN: &str = "none";

/// Returns whether a name is that of a whole ref rather than a branch's.
fn is_whole_ref(name: &BranchName) -> bool {
    name.as_str().starts_with("refs/")
}

/// Writes the transaction that makes all refs at once, after checking each name and id in it.
fn refs(checkout: &Checkout<'_>) -> Result<String, CheckoutError> {
    let bad = |name: &str, what| CheckoutError::BadName {
        dest: checkout.dest.to_owned(),
        name: name.to_owned(),
        what,
    };
    // Git allows it in a ref but not as a branch: commands would take it for an option.
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

fn prepare(dest: &Path) -> Result<(), CheckoutError> {
    let failed = |doing| move |source| CheckoutError::File { doing, path: dest.to_owned(), source };
    fs::create_dir_all(dest).map_err(failed("create"))?;
    match fs::read_dir(dest).map_err(failed("list"))?.next() {
        None => Ok(()),
        Some(_) => Err(CheckoutError::NotEmpty(dest.to_owned())),
    }
}

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
            // A link fails between file systems; what else is wrong shows when copying.
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

/// Adds the remote that leads nowhere.
fn write_config(dest: &Path) -> Result<(), CheckoutError> {
    let path = dest.join(".git/config");
    let failed = |doing| {
        let path = path.clone();
        move |source| CheckoutError::File { doing, path, source }
    };
    let mut text = fs::read_to_string(&path).map_err(failed("read"))?;
    text.push_str("[remote \"origin\"]\n\turl = file:///dev/null\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n");
    fs::write(&path, text).map_err(failed("write"))
}
