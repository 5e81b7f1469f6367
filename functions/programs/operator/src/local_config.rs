//! Loads a repository's configuration from a directory, alone or merged into a tenant's snapshot,
//! offline.

use anyhow::{Context as _, bail};
use sluice_config::fragment::{Source, SourceFile, config_paths, parse, text_of};
use sluice_config::layout::{BranchConfig, Layout, LayoutSources, Scope};
use sluice_config::objects::{Parent, Stanza};
use sluice_config::tenant::{TenantConfig, TenantProject};
use sluice_config::{Connections, Driver, Fragment, Trust};
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum number of configuration files of a repository.
const FILES_MAX: usize = 10_000;
/// The maximum depth of directories in a configuration directory.
const DEPTH_MAX: usize = 20;
/// The default locations of configuration files.
const ROOTS: [&str; 4] = ["zuul.yaml", "zuul.d", ".zuul.yaml", ".zuul.d"];

/// The project name that is used if none is given.
const UNNAMED: &str = "this/repository";

/// Selects the directory and the tenant.
#[derive(Debug, Clone)]
pub struct LocalConfigOptions {
    /// The repository's directory, or one file of configuration.
    pub path: PathBuf,
    /// A snapshot of the tenant's layout, written by `sluice tenant snapshot`.
    pub tenant: Option<PathBuf>,
    /// The project, by short or canonical name; `None` finds it by the directory's name.
    pub project: Option<String>,
    /// The branch. `None` takes the branch checked out there if the tenant has it, else the default
    /// branch.
    pub branch: Option<String>,
}

/// The loaded configuration of a directory.
#[derive(Debug)]
pub struct LocalConfig {
    /// The tenant without the directory's files; `None` without a snapshot.
    pub tenant: Option<Layout>,
    /// The layout with the directory's files.
    pub layout: Layout,
    /// The project of the directory.
    pub project: ProjectName,
    /// The branch of the directory.
    pub branch: BranchName,
    /// The files in configuration locations by path, including ignored ones.
    pub texts: BTreeMap<String, String>,
    /// The paths of the files that are read as configuration.
    pub read: BTreeSet<String>,
    /// The parsed configuration files.
    pub own: BranchConfig,
    /// The projects for which the files list jobs, each with its branches. The directory's own
    /// project is first.
    pub listed: Vec<(ProjectName, Vec<BranchName>)>,
    /// The root of the repository; `None` if only a file was given.
    pub root: Option<PathBuf>,
}

/// Loads a directory's configuration, merged into the tenant's snapshot if one is given. Errors in
/// the configuration itself are no error here; they are in the layout. Without a snapshot, the
/// project is a config project if it defines pipelines or base jobs, else untrusted.
///
/// # Errors
/// When a file cannot be read, or the directory's project is not in the tenant.
pub fn open(options: &LocalConfigOptions) -> anyhow::Result<LocalConfig> {
    match &options.tenant {
        Some(file) => in_tenant(options, snapshot(file)?),
        None => without_tenant(options),
    }
}

/// Reads a layout from a file that `sluice tenant snapshot` wrote.
///
/// # Errors
/// When the file cannot be read or is not a snapshot.
pub fn snapshot(file: &Path) -> anyhow::Result<Layout> {
    let bytes =
        std::fs::read(file).with_context(|| format!("could not read {}", file.display()))?;
    Layout::from_bytes(&bytes).with_context(|| {
        format!(
            "could not read {} as a snapshot of a tenant; create one with `sluice tenant snapshot`",
            file.display()
        )
    })
}

/// Loads the directory as one branch of its project, merged into the tenant's snapshot. The files
/// have no effect if the tenant takes no configuration from that branch. `listed` has every known
/// branch of the project and of each project that its `project` stanzas name; names that the tenant
/// does not have are left out.
fn in_tenant(options: &LocalConfigOptions, tenant: Layout) -> anyhow::Result<LocalConfig> {
    let config = project_of(options, &tenant)?.clone();
    let texts = read(&options.path, &config.extra_config_paths)?;
    let branch = branch_of(options, &tenant, &config.name);
    let fragments = fragments(&config, branch.as_str(), &texts);
    let read = paths_of(&fragments);
    let own = BranchConfig { project: config.name.clone(), branch: branch.clone(), fragments };
    let layout = tenant.overlay(std::slice::from_ref(&own), Scope::ToValidate);
    let others =
        named_projects(&own.fragments).filter_map(|name| Some(layout.project(name)?.name.clone()));
    let mut projects: Vec<ProjectName> =
        std::iter::once(config.name.clone()).chain(others).collect();
    let mut added = BTreeSet::new();
    projects.retain(|name| added.insert(name.clone()));
    let branches = |name: &ProjectName| {
        let mut all = layout.branches(name);
        let is_own = *name == config.name;
        all.extend((is_own && !all.contains(&branch)).then(|| branch.clone()));
        // A project without known branches is checked on its default branch.
        all.extend(all.is_empty().then(|| layout.default_branch(name)));
        all
    };
    let listed = projects.iter().map(|name| (name.clone(), branches(name))).collect();
    let (project, root) = (config.name, root_of(options));
    Ok(LocalConfig {
        tenant: Some(tenant),
        layout,
        project,
        branch,
        texts,
        read,
        own,
        listed,
        root,
    })
}

/// Returns the names in `project` stanzas, as written and possibly repeated. Leaves out stanzas
/// without a name, and patterns (names that start with `^`).
fn named_projects(fragments: &[Arc<Fragment>]) -> impl Iterator<Item = &str> {
    let stanzas = fragments.iter().flat_map(|fragment| fragment.stanzas());
    let names = stanzas.filter_map(|stanza| match stanza {
        Stanza::Project(project) => project.name.as_deref(),
        _ => None,
    });
    names.filter(|name| !name.starts_with('^'))
}

/// Returns the given path if it is a directory; `None` for a single file or a path that does not
/// exist.
fn root_of(options: &LocalConfigOptions) -> Option<PathBuf> {
    options.path.is_dir().then(|| options.path.clone())
}

/// Returns the given branch, even if the tenant does not have it. Without one, returns the branch
/// checked out in the directory if the tenant has it, else the default branch: feature branches are
/// usually meant for that one.
fn branch_of(options: &LocalConfigOptions, tenant: &Layout, project: &ProjectName) -> BranchName {
    let known = tenant.branches(project);
    let checked_out =
        || checked_out(&options.path).map(BranchName::from).filter(|branch| known.contains(branch));
    match &options.branch {
        Some(branch) => BranchName::from(branch.as_str()),
        None => checked_out().unwrap_or_else(|| tenant.default_branch(project)),
    }
}

/// Returns the name of the branch checked out in the git repository that contains a path. `None`
/// outside git, on a detached head, or if something cannot be read.
fn checked_out(path: &Path) -> Option<String> {
    let folder = std::fs::canonicalize(path).ok()?;
    let git = folder.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
    // In a worktree or a submodule, `.git` is a file that names the directory.
    let git = match std::fs::read_to_string(&git) {
        Ok(text) => git.parent()?.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => git,
    };
    let head = std::fs::read_to_string(git.join("HEAD")).ok()?;
    Some(head.strip_prefix("ref: refs/heads/")?.trim().to_owned())
}

/// Returns the paths of the parsed files.
fn paths_of(fragments: &[Arc<Fragment>]) -> BTreeSet<String> {
    fragments.iter().map(|fragment| fragment.source.path.clone()).collect()
}

/// Returns the given project of the tenant, by canonical or short name. Without one, returns the
/// project whose name's last part is the directory's name; for a file, the name of its directory.
/// An error if none or several match.
fn project_of<'l>(
    options: &LocalConfigOptions,
    tenant: &'l Layout,
) -> anyhow::Result<&'l TenantProject> {
    let name = &tenant.tenant().name;
    if let Some(project) = &options.project {
        let found = tenant.project(project);
        return found.with_context(|| {
            format!("tenant {name} has no project {project}, or several of that name")
        });
    }
    let whole = std::fs::canonicalize(&options.path)
        .with_context(|| format!("could not find {}", options.path.display()))?;
    let folder = if whole.is_file() {
        whole.parent().map(Path::to_path_buf).unwrap_or_default()
    } else {
        whole
    };
    let folder =
        folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut alike =
        tenant.tenant().projects.iter().filter(|project| project.name.short_name() == folder);
    match (alike.next(), alike.next()) {
        (Some(found), None) => Ok(found),
        _ => bail!(
            "could not find the project of tenant {name} for the directory {} by its name: name it with --project",
            options.path.display()
        ),
    }
}

/// Loads the directory as a tenant of its own, without a snapshot. The project is named by
/// `--project`. Without it, if the directory defines no pipeline and no base job and names exactly
/// one project, it is that one; else it is `this/repository`. With a pipeline or a base job it is a
/// config project, and the projects for which it lists jobs are added to the tenant. The branch is
/// the given or checked-out one, else `master`; connections have the usual names.
fn without_tenant(options: &LocalConfigOptions) -> anyhow::Result<LocalConfig> {
    let texts = read(&options.path, &[])?;
    // The usual names of connections, so that triggers can be checked.
    let connections = Connections::new()
        .with("github", Driver::GitHub, "github.com")
        .with("gerrit", Driver::Gerrit, "")
        .with("git", Driver::Git, "")
        .with("smtp", Driver::Smtp, "")
        .with("mqtt", Driver::Mqtt, "");
    let project_name =
        |name: &str| ProjectName::new("github.com", name.trim_start_matches("github.com/"));
    let branch = options
        .branch
        .clone()
        .or_else(|| checked_out(&options.path))
        .unwrap_or_else(|| "master".to_owned());
    let of = |name: &ProjectName, trust| {
        let config = TenantProject::new("github", name.clone(), trust);
        let found = fragments(&config, &branch, &texts);
        (config, found)
    };
    let name = project_name(options.project.as_deref().unwrap_or(UNNAMED));
    let (mut config, mut found) = of(&name, Trust::Untrusted);
    // Only a config project may define these stanzas, so this must be one.
    let is_trusted = |stanza: &Stanza| match stanza {
        Stanza::Pipeline(_) => true,
        Stanza::Job(job) => job.parent == Parent::Base,
        _ => false,
    };
    // A project may be named in several ways; each counts once.
    let mut others: BTreeSet<ProjectName> = named_projects(&found).map(project_name).collect();
    if found.iter().any(|fragment| fragment.stanzas().any(is_trusted)) {
        (config, found) = of(&name, Trust::Config);
    } else if let (None, Some(only), 1) = (&options.project, others.first(), others.len()) {
        // An untrusted project may only configure itself.
        (config, found) = of(only, Trust::Untrusted);
    }
    others.remove(&config.name);
    let (project, trust) = (config.name.clone(), config.trust);
    let mut tenant = TenantConfig::new("none");
    tenant.projects.push(config);
    if trust == Trust::Config {
        // A config project may list jobs for other projects.
        let others =
            others.into_iter().map(|name| TenantProject::new("github", name, Trust::Untrusted));
        tenant.projects.extend(others);
    }
    let read = paths_of(&found);
    let branch = BranchName::from(branch);
    let listed =
        tenant.projects.iter().map(|one| (one.name.clone(), vec![branch.clone()])).collect();
    let own =
        BranchConfig { project: project.clone(), branch: branch.clone(), fragments: found.clone() };
    let sources =
        LayoutSources { tenant, connections, branches: BTreeMap::new(), fragments: found };
    let (layout, root) = (Layout::build(sources), root_of(options));
    Ok(LocalConfig { tenant: None, layout, project, branch, texts, read, own, listed, root })
}

/// Parses the texts that are in configuration locations of the project, in reading order: in the
/// first of the default locations that has any, and in the extra paths. If there is none, parses
/// all texts, since a single file may be anywhere. Syntax errors are in the fragments.
fn fragments(
    config: &TenantProject,
    branch: &str,
    texts: &BTreeMap<String, String>,
) -> Vec<Arc<Fragment>> {
    // A single file may be anywhere.
    let mut paths = config_paths(texts.keys().map(String::as_str), &config.extra_config_paths);
    if paths.is_empty() {
        paths = texts.keys().map(String::as_str).collect();
    }
    let source = |path: &str| Source {
        connection: config.connection.clone(),
        project: config.name.clone(),
        branch: BranchName::from(branch),
        path: path.to_owned(),
        trust: config.trust,
    };
    let file =
        |path: &str| Some(SourceFile { source: source(path), text: texts.get(path)?.clone() });
    paths.into_iter().filter_map(file).map(|file| Arc::new(parse(&file))).collect()
}

/// Reads the configuration files of a directory, by path relative to it: all files in `zuul.yaml`,
/// `zuul.d`, `.zuul.yaml`, `.zuul.d` and the tenant's extra paths (`extra`), also those that are
/// not configuration. Symbolic links and directories at `DEPTH_MAX` and deeper are left out
/// silently. If `path` is a single file, reads only that one, by its name. An error if the path
/// does not exist, nothing was found, a file cannot be read, or there are more than `FILES_MAX`.
fn read(path: &Path, extra: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    if path.is_file() {
        let name =
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        found.insert(name, text(path)?);
        return Ok(found);
    }
    if !path.is_dir() {
        bail!("there is no directory or file {}", path.display());
    }
    for root in ROOTS.into_iter().chain(extra.iter().map(|path| path.trim_end_matches('/'))) {
        collect_files(path, &path.join(root), 0, &mut found)?;
    }
    if found.is_empty() {
        let main = path.join("main.yaml");
        let advice = match main.is_file() {
            true => format!("; if {} is the main configuration, pass its path", main.display()),
            false => String::new(),
        };
        bail!(
            "there is no configuration in {}: none of {} exists{advice}",
            path.display(),
            ROOTS.join(", ")
        );
    }
    Ok(found)
}

/// Adds a file, or all files below a directory, to `found`, by path relative to `root`. Ignores
/// paths that do not exist, symbolic links, special files, and directories at `DEPTH_MAX` and
/// deeper. `depth` is 0 for the first call. An error if something cannot be read, or for more than
/// `FILES_MAX` files.
fn collect_files(
    root: &Path,
    path: &Path,
    depth: usize,
    found: &mut BTreeMap<String, String>,
) -> anyhow::Result<()> {
    // Links are ignored: their target is not in the repository.
    let Ok(kind) = std::fs::symlink_metadata(path).map(|data| data.file_type()) else {
        return Ok(());
    };
    if kind.is_file() {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        if found.len() >= FILES_MAX {
            bail!(
                "could not read {}: it has more than {FILES_MAX} configuration files",
                root.display()
            );
        }
        found.insert(name, text(path)?);
    } else if kind.is_dir() && depth < DEPTH_MAX {
        let entries = std::fs::read_dir(path)
            .with_context(|| format!("could not list {}", path.display()))?;
        for entry in entries {
            collect_files(
                root,
                &entry.with_context(|| format!("could not list {}", path.display()))?.path(),
                depth + 1,
                found,
            )?;
        }
    }
    Ok(())
}

/// Reads a file as text. Bytes that are not UTF-8 become a character that the parser reports.
fn text(path: &Path) -> anyhow::Result<String> {
    let bytes =
        std::fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
    Ok(text_of(bytes))
}
