//! What the tests of the house's order stand on: the [`plan`] as tables, and the [`Workspace`] as
//! it is, read from cargo and git.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod plan;

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why the workspace could not be read.
#[derive(Debug)]
pub struct Unreadable {
    what: String,
    why: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "could not read the workspace with `{}`: {}", self.what, self.why)
    }
}

impl std::error::Error for Unreadable {}

/// What a dependency is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
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
    /// The package, not the name it may be given.
    pub package: String,
    /// What it is for.
    pub kind: Kind,
}

/// A crate of the workspace.
#[derive(Debug, Clone)]
pub struct Crate {
    /// The package's name.
    pub name: String,
    /// Its directory under the root, such as `shared/model`: its room.
    pub room: String,
    /// What its manifest names.
    pub dependencies: BTreeSet<Dependency>,
    /// Every package that gets linked into it, however far down. Without what builds and tests
    /// need.
    pub linked: BTreeSet<String>,
}

impl Crate {
    /// Returns the packages that its manifest names for this purpose.
    pub fn named(&self, kind: Kind) -> impl Iterator<Item = &str> {
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
    /// [`Unreadable`] when cargo fails or says something else than it does today.
    pub fn read() -> Result<Self, Unreadable> {
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
        let said = output(command.current_dir(here))?;
        let metadata: Metadata = serde_json::from_str(&said).map_err(|error| Unreadable {
            what: "cargo metadata".into(),
            why: error.to_string(),
        })?;
        Ok(metadata.into_workspace())
    }
}

/// Returns the text files that git tracks, as paths under the root with their text. Links and other
/// bytes are left out.
///
/// # Errors
/// [`Unreadable`] when git fails.
pub fn files() -> Result<Vec<(String, String)>, Unreadable> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let said = output(Command::new("git").args(["ls-files", "-z"]).current_dir(&root))?;
    let tracked = said.split('\0').filter(|path| !path.is_empty());
    // A file that was just deleted is still tracked.
    Ok(tracked
        .filter_map(|path| Some((path.to_owned(), std::fs::read_to_string(root.join(path)).ok()?)))
        .collect())
}

fn output(command: &mut Command) -> Result<String, Unreadable> {
    let what = format!("{command:?}");
    let failed = |why: String| Unreadable { what: what.clone(), why };
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
    dep_kinds: Vec<LinkKind>,
}

#[derive(Deserialize)]
struct LinkKind {
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
                let room = directory.strip_prefix(&self.workspace_root).unwrap_or(directory);
                let known = Crate {
                    name: package.name.clone(),
                    room: room.to_string_lossy().into_owned(),
                    dependencies: package.dependencies.iter().map(Named::dependency).collect(),
                    linked: reached(&package.id, &links)
                        .into_iter()
                        .filter_map(|id| names.get(id))
                        .map(|&name| name.to_owned())
                        .collect(),
                };
                (package.name.clone(), known)
            })
            .collect();
        Workspace { crates }
    }
}

impl Named {
    fn dependency(&self) -> Dependency {
        let kind = match self.kind.as_deref() {
            None => Kind::Normal,
            Some("dev") => Kind::Dev,
            Some(_) => Kind::Build,
        };
        Dependency { package: self.name.clone(), kind }
    }
}

impl Node {
    fn linked(&self) -> Vec<&str> {
        let normal =
            self.deps.iter().filter(|link| link.dep_kinds.iter().any(|how| how.kind.is_none()));
        normal.map(|link| link.pkg.as_str()).collect()
    }
}

/// Returns everything that can be reached from a package, without itself.
fn reached<'a>(from: &str, links: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&'a str> = links.get(from).cloned().unwrap_or_default();
    // Ends: each package is followed once.
    while let Some(id) = next.pop() {
        if seen.insert(id) {
            next.extend(links.get(id).into_iter().flatten().copied());
        }
    }
    seen
}
