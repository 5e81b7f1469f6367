//! Reads the workspace from cargo and git, for tests that check the rules in [`plan`].
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod cycles;
pub mod plan;

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A failure to read the workspace: the command that failed, and why.
#[derive(Debug)]
pub struct ReadError {
    command: String,
    why: String,
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "could not read the workspace with `{}`: {}", self.command, self.why)
    }
}

impl std::error::Error for ReadError {}

/// When a dependency is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DependencyKind {
    /// Linked into the crate.
    Normal,
    /// Linked into its tests only.
    Dev,
    /// Run while it is built.
    Build,
}

/// A dependency that a manifest names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The package's own name, not an alias.
    pub package: String,
    /// When it is used.
    pub kind: DependencyKind,
}

/// A crate of the workspace.
#[derive(Debug, Clone)]
pub struct Crate {
    /// The package's name.
    pub name: String,
    /// The crate's directory relative to the root, such as `shared/model`.
    pub directory: String,
    /// The dependencies that its manifest names.
    pub dependencies: BTreeSet<Dependency>,
    /// All packages that are linked into it, directly or not, without those for builds and tests.
    pub linked: BTreeSet<String>,
}

impl Crate {
    /// Returns the packages that its manifest names as dependencies of this kind.
    pub fn dependencies_of(&self, kind: DependencyKind) -> impl Iterator<Item = &str> {
        self.dependencies.iter().filter(move |one| one.kind == kind).map(|one| one.package.as_str())
    }
}

/// The workspace as cargo sees it.
#[derive(Debug)]
pub struct Workspace {
    /// Its crates by package name.
    pub crates: BTreeMap<String, Crate>,
}

impl Workspace {
    /// Reads the workspace that this crate is a member of, without the network.
    ///
    /// # Errors
    /// [`ReadError`] when cargo fails or prints another format.
    pub fn read() -> Result<Self, ReadError> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let mut command = Command::new(cargo);
        command.args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--offline",
            "--filter-platform",
            &host,
        ]);
        let printed = output(command.current_dir(here))?;
        let metadata: Metadata = serde_json::from_str(&printed).map_err(|error| ReadError {
            command: "cargo metadata".into(),
            why: error.to_string(),
        })?;
        Ok(metadata.into_workspace())
    }
}

/// Returns the text files that git tracks: their paths relative to the root, and their text.
/// Files that are not UTF-8 are left out.
///
/// # Errors
/// [`ReadError`] when git fails.
pub fn files() -> Result<Vec<(String, String)>, ReadError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let printed = output(Command::new("git").args(["ls-files", "-z"]).current_dir(&root))?;
    let tracked = printed.split('\0').filter(|path| !path.is_empty());
    // A file that was just deleted is still tracked.
    Ok(tracked
        .filter_map(|path| Some((path.to_owned(), std::fs::read_to_string(root.join(path)).ok()?)))
        .collect())
}

fn output(command: &mut Command) -> Result<String, ReadError> {
    let command_line = format!("{command:?}");
    let failed = |why: String| ReadError { command: command_line.clone(), why };
    let ended = command.output().map_err(|error| failed(error.to_string()))?;
    if !ended.status.success() {
        return Err(failed(String::from_utf8_lossy(&ended.stderr).into_owned()));
    }
    String::from_utf8(ended.stdout).map_err(|error| failed(error.to_string()))
}

// The part of `cargo metadata --format-version 1` that is read here.

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    workspace_root: PathBuf,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Link>,
}

#[derive(Deserialize)]
struct Link {
    pkg: String,
    dep_kinds: Vec<LinkDependencyKind>,
}

#[derive(Deserialize)]
struct LinkDependencyKind {
    kind: Option<String>,
}

impl Metadata {
    fn into_workspace(self) -> Workspace {
        let names: BTreeMap<&str, &str> =
            self.packages.iter().map(|one| (one.id.as_str(), one.name.as_str())).collect();
        let links: BTreeMap<&str, Vec<&str>> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node.linked())).collect();
        let members =
            self.packages.iter().filter(|package| self.workspace_members.contains(&package.id));
        let crates = members
            .map(|package| {
                let directory = package.manifest_path.parent().unwrap_or(&package.manifest_path);
                let relative = directory.strip_prefix(&self.workspace_root).unwrap_or(directory);
                let member = Crate {
                    name: package.name.clone(),
                    directory: relative.to_string_lossy().into_owned(),
                    dependencies: package.dependencies.iter().map(Named::dependency).collect(),
                    linked: linked_closure(&package.id, &links)
                        .into_iter()
                        .filter_map(|id| names.get(id))
                        .map(|&name| name.to_owned())
                        .collect(),
                };
                (package.name.clone(), member)
            })
            .collect();
        Workspace { crates }
    }
}

impl Named {
    fn dependency(&self) -> Dependency {
        let kind = match self.kind.as_deref() {
            None => DependencyKind::Normal,
            Some("dev") => DependencyKind::Dev,
            Some(_) => DependencyKind::Build,
        };
        Dependency { package: self.name.clone(), kind }
    }
}

impl Node {
    fn linked(&self) -> Vec<&str> {
        let normal =
            self.deps.iter().filter(|link| link.dep_kinds.iter().any(|usage| usage.kind.is_none()));
        normal.map(|link| link.pkg.as_str()).collect()
    }
}

/// Returns the ids of all packages that a package links, directly or not, without itself.
fn linked_closure<'a>(from: &str, links: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut closure = BTreeSet::new();
    let mut next: Vec<&'a str> = links.get(from).cloned().unwrap_or_default();
    // Terminates: each package is followed once.
    while let Some(id) = next.pop() {
        if closure.insert(id) {
            next.extend(links.get(id).into_iter().flatten().copied());
        }
    }
    closure
}
