//! The inputs of a layout that its files do not change: the tenant, its connections and its
//! projects by name. Also the order of files.

use crate::connection::Connections;
use crate::error::{Diagnostic, DiagnosticKind, SuggestionBudget};
use crate::fragment::{Fragment, Source, Trust, config_paths};
use crate::objects::{ObjectKind, Span};
use crate::tenant::{BranchFacts, TenantConfig, TenantProject};
use crate::{ConfigError, Pattern};
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The inputs of a layout that no file changes.
#[derive(Debug)]
pub(crate) struct LayoutInputs {
    /// The tenant's configuration.
    pub(super) tenant: TenantConfig,
    /// The system's connections.
    pub(super) connections: Connections,
    /// The branches of each project, its default branch first.
    pub(super) branches: BTreeMap<ProjectName, Vec<BranchName>>,
    /// The content hash of the fields above.
    pub(super) digest: String,
    /// The default branches that stanzas of merged configuration declare (`default-branch`), if
    /// they differ from the forge's.
    pub(super) declared_defaults: BTreeMap<ProjectName, BranchName>,
    /// The ranks of the projects (see [`Self::ranked`]) by canonical name.
    by_name: HashMap<ProjectName, usize>,
    /// Indexes into the tenant's list of projects by short name.
    by_short_name: HashMap<String, Vec<usize>>,
}

/// The rank of the project made of included files.
const INCLUDED: usize = 0;

/// A file with its position in the configuration order.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// The parsed file.
    pub(super) fragment: Arc<Fragment>,
    /// Its position in the configuration order.
    pub(super) sort_key: FileOrder,
    /// The branches that its jobs, templates and stanzas of other projects apply to if they name
    /// none; `None` for every branch.
    pub(super) implied: Option<Arc<Vec<Pattern>>>,
    /// Whether its project has other branches.
    pub(super) branched: bool,
}

/// The sort key of files (Z4.2): projects as the tenant lists them, the default branch before other
/// branches by name, the repository's own paths before the tenant's extra paths, then by path.
///
/// A project stanza can declare the default branch (`default-branch`) if the project has it;
/// otherwise the forge's applies. If several stanzas declare one, the first counts, in the order
/// without declarations. A proposed declaration changes the order once it is merged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileOrder {
    /// The rank of the project in the tenant.
    pub(super) project: usize,
    /// Whether the branch is the default branch.
    branch: BranchRank,
    /// The branch.
    name: BranchName,
    /// 0 for the repository's own paths, else the number of the extra path.
    folder: usize,
    /// The path in the repository.
    path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BranchRank {
    Default,
    Other,
}

impl File {
    /// Returns the source of the file.
    pub(crate) fn source(&self) -> &Source {
        &self.fragment.source
    }

    /// Returns a diagnostic about a stanza, located at `span`. `stanza` is its keyword and name,
    /// such as `job unit`.
    pub(super) fn diagnostic(
        kind: DiagnosticKind,
        stanza: &str,
        span: Span,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic::new(kind, span.start, span.end, message).in_stanza(stanza)
    }
}

impl LayoutInputs {
    /// Returns the inputs of a layout, with a digest computed from them. The declared default
    /// branches are empty; the caller sets them.
    pub(super) fn new(
        tenant: TenantConfig,
        connections: Connections,
        branches: BTreeMap<ProjectName, Vec<BranchName>>,
    ) -> Self {
        let text = serde_json::to_string(&(&tenant, &connections, &branches)).unwrap_or_default();
        Self::with_digest(tenant, connections, branches, digest(&["ground-1", &text]))
    }

    /// Returns the inputs with a digest that the caller computed before. The declared default
    /// branches are empty; the caller sets them.
    pub(super) fn with_digest(
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
            declared_defaults: BTreeMap::new(),
            by_name,
            by_short_name,
        }
    }

    /// Returns a project by its canonical name, with its rank: 0 for the project of included files,
    /// otherwise its position in the tenant's list, counted from 1. `None` if the tenant lacks it.
    pub(super) fn project(&self, name: &ProjectName) -> Option<(usize, &TenantProject)> {
        let rank = *self.by_name.get(name)?;
        Some((rank, self.ranked(rank)?))
    }

    /// Returns the project that contains a file; `None` if the tenant lacks it.
    pub(super) fn project_of(&self, file: &File) -> Option<&TenantProject> {
        self.ranked(file.sort_key.project)
    }

    /// Returns those diagnostics of a file that are to be reported. Left out are those about
    /// stanzas of kinds that the tenant excludes for the project, and all of them if the tenant
    /// loads nothing from the project. If the tenant lacks the project, all are returned.
    pub(super) fn reported_diagnostics(&self, file: &File) -> Vec<Diagnostic> {
        let all = file.fragment.diagnostics.iter();
        let Some(project) = self.project_of(file) else { return all.cloned().collect() };
        let is_reported = |diagnostic: &&Diagnostic| {
            let keyword = diagnostic.stanza.split(' ').next().unwrap_or_default();
            let kind =
                ObjectKind::WORDS.iter().find(|(name, _)| *name == keyword).map(|(_, kind)| *kind);
            !project.reads_nothing() && kind.is_none_or(|kind| !project.leaves_out(kind))
        };
        all.filter(is_reported).cloned().collect()
    }

    /// Returns the project of a rank: rank 0 is the project of included files, the others follow
    /// the tenant's list. `None` if there is none.
    fn ranked(&self, rank: usize) -> Option<&TenantProject> {
        match rank.checked_sub(1) {
            None => self.tenant.included.as_ref(),
            Some(index) => self.tenant.projects.get(index),
        }
    }

    /// Finds a project by its canonical name, or by its name without the host (`org/project`). An
    /// error if the tenant lists none, or several that share the short name. The project of
    /// included files is never found.
    pub(crate) fn find(&self, name: &str) -> Result<&TenantProject, ProjectNotFound> {
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
                    "Project name \"{name}\" is ambiguous: it matches {} and {}; use the canonical \
                     name",
                    one.name, other.name
                );
                Err(ProjectNotFound { message, wrong: None })
            }
            (None, _) => {
                let message = format!("The project \"{name}\" was not found.");
                Err(ProjectNotFound { message, wrong: Some(name.to_owned()) })
            }
        }
    }

    /// Returns the default branch of a project without declarations: the tenant's `load-branch`,
    /// else the first of the project's branches. `None` if it has neither.
    pub(super) fn default_branch<'g>(&'g self, project: &'g TenantProject) -> Option<&'g str> {
        let first = || self.branches.get(&project.name)?.first().map(BranchName::as_str);
        project.load_branch.as_deref().or_else(first)
    }

    /// Returns whether `branch` is the project's default branch, ignoring declarations
    /// (`default-branch`). If the default branch is unknown, `master` and `main` both count as it.
    pub(super) fn is_default(&self, project: &TenantProject, branch: &BranchName) -> bool {
        match self.default_branch(project) {
            Some(default) => branch.as_str() == default,
            // The default branch is unknown.
            None => matches!(branch.as_str(), "master" | "main"),
        }
    }

    /// Returns the sort key that a file would have if no stanza declared a default branch
    /// (`default-branch`). Declarations are looked up in this order, since they cannot depend on
    /// the order they create.
    pub(super) fn undeclared_order<'f>(
        &self,
        file: &'f File,
    ) -> (usize, bool, &'f BranchName, usize, &'f str) {
        let FileOrder { project, name, folder, path, .. } = &file.sort_key;
        let is_default =
            self.project_of(file).is_some_and(|project| self.is_default(project, name));
        (*project, !is_default, name, *folder, path)
    }

    /// Returns what the layout knows about a branch: whether it is the forge's default branch, if
    /// the project's branches are known; an empty list of them counts as unknown. A branch that is
    /// missing from the known branches counts as excluded, which means unprotected and locked,
    /// unless the tenant lists it as always dynamic. Everything else is unknown (`None`), also
    /// whether a listed branch is protected or locked.
    pub(super) fn facts<'b>(&self, project: &TenantProject, branch: &'b str) -> BranchFacts<'b> {
        let branches = self.branches.get(&project.name).filter(|branches| !branches.is_empty());
        let is_listed = branches.map(|branches| branches.iter().any(|one| one.as_str() == branch));
        let is_left_out = is_listed == Some(false) && !project.is_always_dynamic(branch);
        BranchFacts {
            is_default: branches
                .and_then(|branches| branches.first())
                .map(|first| first.as_str() == branch),
            is_protected: is_left_out.then_some(false),
            is_locked: is_left_out.then_some(true),
            ..BranchFacts::named(branch)
        }
    }

    /// Puts files in configuration order, each with its sort key and implied branches. Drops the
    /// files of unknown projects and of branches that the tenant does not load. Default branches
    /// that stanzas declare count only if `declared_defaults` is set before.
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
        files.sort_by(|one, other| one.sort_key.cmp(&other.sort_key));
        files
    }

    /// Returns the files of one branch in configuration order, each with its sort key and implied
    /// branches. Whether the tenant loads the branch is not checked. `project` is the rank of the
    /// project; the result is empty if no project has that rank. `seen` is the number of the
    /// project's branches that have files, including this one; it counts only if the project's
    /// branches are unknown. `declared_defaults` must be set before.
    pub(super) fn group(
        &self,
        project: usize,
        fragments: Vec<Arc<Fragment>>,
        seen: usize,
    ) -> Vec<File> {
        let Some(config) = self.ranked(project) else { return Vec::new() };
        let include = self.tenant.include.as_slice();
        let branches = self.branches.get(&config.name);
        let declared_defaults = self.declared_defaults.get(&config.name);
        let paths: Vec<String> =
            fragments.iter().map(|fragment| fragment.source.path.clone()).collect();
        let extra = &config.extra_config_paths;
        let of_project: BTreeSet<&str> = if extra.is_empty() {
            BTreeSet::new()
        } else {
            config_paths(paths.iter().map(String::as_str), &[]).into_iter().collect()
        };
        let folder = |path: &str| {
            // Included files apply in the order in which they are included.
            if project == INCLUDED {
                return include.iter().position(|file| file == path).unwrap_or(include.len());
            }
            let is_in = |root: &&String| {
                if root.ends_with('/') { path.starts_with(*root) } else { path == *root }
            };
            if of_project.contains(path) {
                0
            } else {
                extra.iter().position(|root| is_in(&root)).map_or(0, |index| index + 1)
            }
        };
        let mut files: Vec<File> = fragments
            .into_iter()
            .map(|fragment| {
                let name = fragment.source.branch.clone();
                let is_first = declared_defaults.map_or_else(
                    || self.is_default(config, &name),
                    |declared_defaults| *declared_defaults == name,
                );
                let branch = if is_first { BranchRank::Default } else { BranchRank::Other };
                // A branch that only a proposal adds counts as well.
                let branched = branches.map_or(seen, |branches| {
                    branches.len() + usize::from(!branches.contains(&name))
                }) > 1;
                let path = fragment.source.path.clone();
                let sort_key = FileOrder { project, branch, name, folder: folder(&path), path };
                let implied = implied(&fragment, config, branched).map(Arc::new);
                File { fragment, sort_key, implied, branched }
            })
            .collect();
        files.sort_by(|one, other| one.sort_key.cmp(&other.sort_key));
        files
    }
}

/// Returns the branches that a file's definitions apply to if they name none (Z4.2): those of the
/// file's pragma, else the branch that holds the file. `None` for every branch. This is the case if
/// the pragma has an empty list of branches, or if `implied-branch-matchers` is false in the pragma
/// or, where it sets none, in the tenant's settings for the project. If neither sets it, files of
/// config projects and of projects with one branch imply none, whatever branches their pragma
/// lists. `branched` says whether the project has several branches.
fn implied(fragment: &Fragment, project: &TenantProject, branched: bool) -> Option<Vec<Pattern>> {
    let own_branch = || {
        let branches = fragment.pragma.implied_branches.clone();
        branches.unwrap_or_else(|| vec![Pattern::exactly(fragment.source.branch.as_str())])
    };
    // A pragma without implied branches restricts nothing.
    if fragment.pragma.implied_branches.as_ref().is_some_and(Vec::is_empty) {
        return None;
    }
    match fragment.pragma.implied_branch_matchers.or(project.implied_branch_matchers) {
        Some(true) => return Some(own_branch()),
        Some(false) => return None,
        None => {}
    }
    if fragment.source.trust == Trust::Config {
        return None;
    }
    // The branches of a pragma replace the file's own branch, where that would be implied.
    branched.then(own_branch)
}

/// The error for a name that is not a project of the tenant, or is ambiguous.
pub(crate) struct ProjectNotFound {
    /// The message of the diagnostic.
    message: String,
    /// The name, if a similar one may be suggested.
    wrong: Option<String>,
}

impl ProjectNotFound {
    /// Returns the diagnostic, located at `span`. For an unknown name it suggests the most similar
    /// short name of a project, if there is one and `hints` is not used up; for an ambiguous name
    /// it suggests nothing.
    pub(crate) fn at(
        self,
        span: Span,
        inputs: &LayoutInputs,
        hints: &SuggestionBudget,
    ) -> Diagnostic {
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, span.start, span.end, self.message);
        match self.wrong {
            None => diagnostic,
            Some(wrong) => diagnostic.suggesting_within(
                hints,
                &wrong,
                inputs.tenant.projects.iter().map(|project| project.name.name()),
            ),
        }
    }
}

/// Returns the keyword of a kind of object in configuration, such as `job`.
pub(super) fn keyword(kind: ObjectKind) -> &'static str {
    ObjectKind::WORDS.iter().find(|(_, one)| *one == kind).map_or("object", |(keyword, _)| keyword)
}

/// Returns the key by which two errors are the same, wherever they are in the file: the project,
/// the branch, the path, the stanza and the message.
pub(super) fn identity(error: &ConfigError) -> (&str, &str, &str, &str, &str) {
    let diagnostic = &error.diagnostic;
    (
        error.project.as_str(),
        error.branch.as_str(),
        &error.path,
        &diagnostic.stanza,
        &diagnostic.message,
    )
}
