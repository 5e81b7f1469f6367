//! What a layout stands on, whatever its files say: the tenant, its connections, its projects by
//! name; and the order of files.

use crate::connection::Connections;
use crate::error::{Hints, Problem, ProblemKind};
use crate::fragment::{Fragment, Source, Trust, config_paths};
use crate::objects::{ObjectKind, Place};
use crate::tenant::{BranchFacts, TenantConfig, TenantProject};
use crate::{ConfigError, Pattern};
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What no file alters.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(super) tenant: TenantConfig,
    pub(super) connections: Connections,
    pub(super) branches: BTreeMap<ProjectName, Vec<BranchName>>,
    /// The name of all of the above.
    pub(super) digest: String,
    /// The branches that count first because a stanza of what is merged says so (`default-branch`),
    /// where another one would.
    pub(super) said: BTreeMap<ProjectName, BranchName>,
    /// Ranks: see [`Ground::ranked`].
    by_name: HashMap<ProjectName, usize>,
    /// Places in the tenant's list of projects.
    by_short_name: HashMap<String, Vec<usize>>,
}

/// The rank of the project that included files are.
const INCLUDED: usize = 0;

/// A file in its place.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(super) fragment: Arc<Fragment>,
    pub(super) place: FilePlace,
    /// Branches its jobs, templates and other projects' stanzas are bound to where they name none;
    /// `None` for everywhere.
    pub(super) implied: Option<Arc<Vec<Pattern>>>,
    /// Whether its project has other branches than the file's.
    pub(super) branched: bool,
}

/// Where a file stands in the order in which configuration counts: projects as the tenant lists
/// them, the default branch and then the others by name, the repository's own paths and then the
/// tenant's extra ones as listed, each by name (Z4.2).
///
/// The default branch is the one that the project's stanzas say (`default-branch`), if the project
/// has it; else its forge's. Of several words the first counts, by the order that holds where
/// nothing is said. What is proposed changes the order once it is merged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FilePlace {
    pub(super) project: usize,
    branch: BranchRank,
    name: BranchName,
    folder: usize,
    path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BranchRank {
    Default,
    Other,
}

impl File {
    pub(crate) fn source(&self) -> &Source {
        &self.fragment.source
    }

    /// Returns a mistake in a stanza of this file.
    pub(super) fn problem(
        kind: ProblemKind,
        stanza: &str,
        place: Place,
        message: impl Into<String>,
    ) -> Problem {
        Problem::new(kind, place.start, place.end, message).in_stanza(stanza)
    }
}

impl Ground {
    pub(super) fn new(
        tenant: TenantConfig,
        connections: Connections,
        branches: BTreeMap<ProjectName, Vec<BranchName>>,
    ) -> Self {
        let text = serde_json::to_string(&(&tenant, &connections, &branches)).unwrap_or_default();
        Self::known(tenant, connections, branches, digest(&["ground-1", &text]))
    }

    /// Returns the ground whose name is known already.
    pub(super) fn known(
        tenant: TenantConfig,
        connections: Connections,
        branches: BTreeMap<ProjectName, Vec<BranchName>>,
        digest: String,
    ) -> Self {
        let mut by_name = HashMap::with_capacity(tenant.projects.len());
        let mut by_short_name: HashMap<String, Vec<usize>> =
            HashMap::with_capacity(tenant.projects.len());
        for (rank, project) in tenant.projects.iter().enumerate() {
            by_name.entry(project.name.clone()).or_insert(rank + 1);
            by_short_name.entry(project.name.name().to_owned()).or_default().push(rank);
        }
        if let Some(included) = &tenant.included {
            by_name.insert(included.name.clone(), INCLUDED);
        }
        Self {
            tenant,
            connections,
            branches,
            digest,
            said: BTreeMap::new(),
            by_name,
            by_short_name,
        }
    }

    /// Returns a project by its canonical name, and its rank.
    pub(super) fn project(&self, name: &ProjectName) -> Option<(usize, &TenantProject)> {
        let rank = *self.by_name.get(name)?;
        Some((rank, self.ranked(rank)?))
    }

    pub(super) fn project_of(&self, file: &File) -> Option<&TenantProject> {
        self.ranked(file.place.project)
    }

    /// Returns the mistakes of a file that are told: none of what the tenant leaves out of its
    /// project, and none at all where it reads nothing of that.
    pub(super) fn told_of(&self, file: &File) -> Vec<Problem> {
        let all = file.fragment.problems.iter();
        let Some(project) = self.project_of(file) else { return all.cloned().collect() };
        let is_told = |problem: &&Problem| {
            let word = problem.stanza.split(' ').next().unwrap_or_default();
            let kind =
                ObjectKind::WORDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind);
            !project.reads_nothing() && kind.is_none_or(|kind| !project.leaves_out(kind))
        };
        all.filter(is_told).cloned().collect()
    }

    /// Returns the project of a rank: first the files that the tenant includes, as its own file
    /// does, then those it lists.
    fn ranked(&self, rank: usize) -> Option<&TenantProject> {
        match rank.checked_sub(1) {
            None => self.tenant.included.as_ref(),
            Some(place) => self.tenant.projects.get(place),
        }
    }

    /// Finds a project by canonical or short name.
    pub(crate) fn find(&self, name: &str) -> Result<&TenantProject, NoProject> {
        if let Some((_, found)) =
            self.project(&ProjectName(name.to_owned())).filter(|(rank, _)| *rank != INCLUDED)
        {
            return Ok(found);
        }
        let short = self.by_short_name.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut short = short.iter().filter_map(|rank| self.tenant.projects.get(*rank));
        match (short.next(), short.next()) {
            (Some(found), None) => Ok(found),
            (Some(one), Some(other)) => {
                let message = format!(
                    "Project name \"{name}\" is ambiguous: it is {} and {}; use the canonical name",
                    one.name, other.name
                );
                Err(NoProject { message, wrong: None })
            }
            (None, _) => {
                let message = format!("The project \"{name}\" was not found.");
                Err(NoProject { message, wrong: Some(name.to_owned()) })
            }
        }
    }

    /// Returns the branch of a project that counts first where no stanza says which: the one that
    /// the tenant names, or the first of the project's branches.
    pub(super) fn default_branch<'g>(&'g self, project: &'g TenantProject) -> Option<&'g str> {
        let first = || self.branches.get(&project.name)?.first().map(BranchName::as_str);
        project.load_branch.as_deref().or_else(first)
    }

    /// Returns whether that is this branch.
    pub(super) fn is_default(&self, project: &TenantProject, branch: &BranchName) -> bool {
        match self.default_branch(project) {
            Some(default) => branch.as_str() == default,
            // Nobody says which it is.
            None => matches!(branch.as_str(), "master" | "main"),
        }
    }

    /// Returns the place that a file would have were no stanza to say which branch counts first:
    /// what says so cannot be looked for in the order that it makes.
    pub(super) fn unsaid_place<'f>(
        &self,
        file: &'f File,
    ) -> (usize, bool, &'f BranchName, usize, &'f str) {
        let FilePlace { project, name, folder, path, .. } = &file.place;
        let is_default =
            self.project_of(file).is_some_and(|project| self.is_default(project, name));
        (*project, !is_default, name, *folder, path)
    }

    /// Returns what is known of a branch here: a project's branches are those that its forge
    /// guards, where the others are left out.
    pub(super) fn facts<'b>(&self, project: &TenantProject, branch: &'b str) -> BranchFacts<'b> {
        let known = self.branches.get(&project.name).filter(|known| !known.is_empty());
        let is_listed = known.map(|known| known.iter().any(|one| one.as_str() == branch));
        let is_left_out = is_listed == Some(false) && !project.is_always_dynamic(branch);
        BranchFacts {
            is_default: known.and_then(|known| known.first()).map(|first| first.as_str() == branch),
            is_protected: is_left_out.then_some(false),
            is_locked: is_left_out.then_some(true),
            ..BranchFacts::named(branch)
        }
    }

    /// Puts files in order; drops what the tenant does not read.
    pub(super) fn in_order(&self, fragments: Vec<Arc<Fragment>>) -> Vec<File> {
        let mut groups: BTreeMap<(usize, BranchName), Vec<Arc<Fragment>>> = BTreeMap::new();
        for fragment in fragments {
            let Some((rank, project)) = self.project(&fragment.source.project) else { continue };
            if self
                .tenant
                .reads_branch(project, &self.facts(project, fragment.source.branch.as_str()))
            {
                groups.entry((rank, fragment.source.branch.clone())).or_default().push(fragment);
            }
        }
        let mut branches: BTreeMap<usize, usize> = BTreeMap::new();
        for (rank, _) in groups.keys() {
            *branches.entry(*rank).or_default() += 1;
        }
        let mut files: Vec<File> = groups
            .into_iter()
            .flat_map(|((rank, _), fragments)| {
                let seen = branches.get(&rank).copied().unwrap_or_default();
                self.group(rank, fragments, seen)
            })
            .collect();
        files.sort_by(|one, other| one.place.cmp(&other.place));
        files
    }

    /// Gives the files of one branch of a project their places. `seen` is the number of branches
    /// with files.
    pub(super) fn group(
        &self,
        project: usize,
        fragments: Vec<Arc<Fragment>>,
        seen: usize,
    ) -> Vec<File> {
        let Some(config) = self.ranked(project) else { return Vec::new() };
        let include = self.tenant.include.as_slice();
        let known = self.branches.get(&config.name);
        let said = self.said.get(&config.name);
        let paths: Vec<String> =
            fragments.iter().map(|fragment| fragment.source.path.clone()).collect();
        let extra = &config.extra_config_paths;
        let own: BTreeSet<&str> = if extra.is_empty() {
            BTreeSet::new()
        } else {
            config_paths(paths.iter().map(String::as_str), &[]).into_iter().collect()
        };
        let folder = |path: &str| {
            // Included files count in the order in which they are named.
            if project == INCLUDED {
                return include.iter().position(|file| file == path).unwrap_or(include.len());
            }
            let is_in = |root: &&String| {
                if root.ends_with('/') { path.starts_with(*root) } else { path == *root }
            };
            if own.contains(path) {
                0
            } else {
                extra.iter().position(|root| is_in(&root)).map_or(0, |place| place + 1)
            }
        };
        let mut files: Vec<File> = fragments
            .into_iter()
            .map(|fragment| {
                let name = fragment.source.branch.clone();
                let is_first =
                    said.map_or_else(|| self.is_default(config, &name), |said| *said == name);
                let branch = if is_first { BranchRank::Default } else { BranchRank::Other };
                // A branch that only changes bring in is one more.
                let branched = known
                    .map_or(seen, |known| known.len() + usize::from(!known.contains(&name)))
                    > 1;
                let path = fragment.source.path.clone();
                let place = FilePlace { project, branch, name, folder: folder(&path), path };
                let implied = implied(&fragment, config, branched).map(Arc::new);
                File { fragment, place, implied, branched }
            })
            .collect();
        files.sort_by(|one, other| one.place.cmp(&other.place));
        files
    }
}

/// Returns the branches that a file's definitions are bound to where they name none (Z4.2).
fn implied(fragment: &Fragment, project: &TenantProject, branched: bool) -> Option<Vec<Pattern>> {
    let own = || {
        let branches = fragment.pragma.implied_branches.clone();
        branches.unwrap_or_else(|| vec![Pattern::exactly(fragment.source.branch.as_str())])
    };
    // A pragma that implies no branch binds nothing.
    if fragment.pragma.implied_branches.as_ref().is_some_and(Vec::is_empty) {
        return None;
    }
    match fragment.pragma.implied_branch_matchers.or(project.implied_branch_matchers) {
        Some(true) => return Some(own()),
        Some(false) => return None,
        None => {}
    }
    if fragment.source.trust == Trust::Config {
        return None;
    }
    // What a pragma implies is meant in place of the file's own branch, where that would be
    // implied.
    branched.then(own)
}

/// A name that is no project of the tenant.
pub(crate) struct NoProject {
    message: String,
    /// The name, where another one may be meant.
    wrong: Option<String>,
}

impl NoProject {
    pub(crate) fn at(self, place: Place, ground: &Ground, hints: &Hints) -> Problem {
        let problem = Problem::new(ProblemKind::UnknownName, place.start, place.end, self.message);
        match self.wrong {
            None => problem,
            Some(wrong) => problem.hinting(
                hints,
                &wrong,
                ground.tenant.projects.iter().map(|project| project.name.name()),
            ),
        }
    }
}

/// Returns the word of a kind of objects.
pub(super) fn word(kind: ObjectKind) -> &'static str {
    ObjectKind::WORDS.iter().find(|(_, one)| *one == kind).map_or("object", |(word, _)| word)
}

/// Returns what makes two mistakes the same, wherever in the file they have moved to.
pub(super) fn sameness(error: &ConfigError) -> (&str, &str, &str, &str, &str) {
    let problem = &error.problem;
    (error.project.as_str(), error.branch.as_str(), &error.path, &problem.stanza, &problem.message)
}
