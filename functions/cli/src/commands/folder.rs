//! A repository's configuration as it lies in a directory, put together with a tenant's or alone,
//! without asking anybody.

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

/// Files of configuration that one repository may have.
const FILES_MAX: usize = 10_000;
/// Depth of directories below one that holds configuration.
const DEPTH_MAX: usize = 20;
/// Where configuration lies, whatever the tenant says.
const ROOTS: [&str; 4] = ["zuul.yaml", "zuul.d", ".zuul.yaml", ".zuul.d"];

/// What a repository is called that nobody gave a name.
const UNNAMED: &str = "this/repository";

/// What is looked at.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The repository's directory, or one file of configuration.
    pub path: PathBuf,
    /// A tenant's layout, as `sluice tenant snapshot` writes it.
    pub tenant: Option<PathBuf>,
    /// The project, by its short or canonical name.
    pub project: Option<String>,
    /// The branch; `None` takes the one that is checked out where the tenant knows it, else the
    /// project's default branch.
    pub branch: Option<String>,
}

/// Configuration put together.
#[derive(Debug)]
pub struct Opened {
    /// The tenant as it is merged; `None` where the repository stands alone.
    pub tenant: Option<Layout>,
    /// The layout with the directory's files.
    pub layout: Layout,
    /// The project that the directory is.
    pub project: ProjectName,
    /// The branch that the directory was taken for.
    pub branch: BranchName,
    /// What lies where configuration may lie, read as configuration or not.
    pub texts: BTreeMap<String, String>,
    /// Which of it is configuration.
    pub read: BTreeSet<String>,
    /// That configuration, parsed.
    pub own: BranchConfig,
    /// The projects that it lists jobs for, and the branches of each; its own first.
    pub listed: Vec<(ProjectName, Vec<BranchName>)>,
    /// Where the repository's other files lie; `None` where only a file was named.
    pub root: Option<PathBuf>,
}

/// Puts a directory's configuration together with that of its tenant, if one is given.
///
/// # Errors
/// When something cannot be read, or the directory is no project of the tenant.
pub fn open(wanted: &Wanted) -> anyhow::Result<Opened> {
    match &wanted.tenant {
        Some(file) => in_tenant(wanted, snapshot(file)?),
        None => alone(wanted),
    }
}

/// Reads a stored layout.
///
/// # Errors
/// When it cannot be read or is none.
pub fn snapshot(file: &Path) -> anyhow::Result<Layout> {
    let bytes =
        std::fs::read(file).with_context(|| format!("could not read {}", file.display()))?;
    Layout::from_bytes(&bytes).with_context(|| {
        format!(
            "{} is no snapshot of a tenant; `sluice tenant snapshot` writes one",
            file.display()
        )
    })
}

fn in_tenant(wanted: &Wanted, tenant: Layout) -> anyhow::Result<Opened> {
    let config = project_of(wanted, &tenant)?.clone();
    let texts = read(&wanted.path, &config.extra_config_paths)?;
    let branch = branch_of(wanted, &tenant, &config.name);
    let fragments = fragments(&config, branch.as_str(), &texts);
    let read = paths_of(&fragments);
    let own = BranchConfig { project: config.name.clone(), branch: branch.clone(), fragments };
    let layout = tenant.overlay(std::slice::from_ref(&own), Scope::ToValidate);
    let others =
        named_projects(&own.fragments).filter_map(|name| Some(layout.project(name)?.name.clone()));
    let mut projects: Vec<ProjectName> =
        std::iter::once(config.name.clone()).chain(others).collect();
    let mut told = BTreeSet::new();
    projects.retain(|name| told.insert(name.clone()));
    let branches = |name: &ProjectName| {
        let mut all = layout.branches(name);
        let is_own = *name == config.name;
        all.extend((is_own && !all.contains(&branch)).then(|| branch.clone()));
        // Its files say nothing of branches, so it has one.
        all.extend(all.is_empty().then(|| layout.default_branch(name)));
        all
    };
    let listed = projects.iter().map(|name| (name.clone(), branches(name))).collect();
    let (project, root) = (config.name, root_of(wanted));
    Ok(Opened { tenant: Some(tenant), layout, project, branch, texts, read, own, listed, root })
}

/// Returns the names that stanzas of projects bear; patterns of names are left out.
fn named_projects(fragments: &[Arc<Fragment>]) -> impl Iterator<Item = &str> {
    let stanzas = fragments.iter().flat_map(|fragment| fragment.stanzas());
    let names = stanzas.filter_map(|stanza| match stanza {
        Stanza::Project(project) => project.name.as_deref(),
        _ => None,
    });
    names.filter(|name| !name.starts_with('^'))
}

fn root_of(wanted: &Wanted) -> Option<PathBuf> {
    wanted.path.is_dir().then(|| wanted.path.clone())
}

/// Finds the branch that a directory is: as it is told, else what is checked out there. Work on a
/// change is mostly checked out under a name of its own; the tenant does not know that one, and it
/// is meant for the default branch.
fn branch_of(wanted: &Wanted, tenant: &Layout, project: &ProjectName) -> BranchName {
    let known = tenant.branches(project);
    let checked_out =
        || checked_out(&wanted.path).map(BranchName::from).filter(|branch| known.contains(branch));
    match &wanted.branch {
        Some(branch) => BranchName::from(branch.as_str()),
        None => checked_out().unwrap_or_else(|| tenant.default_branch(project)),
    }
}

/// Returns the branch that is checked out in a repository's directory, if it is one.
fn checked_out(path: &Path) -> Option<String> {
    let folder = std::fs::canonicalize(path).ok()?;
    let git = folder.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
    // In a worktree or a submodule it is a file that names the directory.
    let git = match std::fs::read_to_string(&git) {
        Ok(text) => git.parent()?.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => git,
    };
    let head = std::fs::read_to_string(git.join("HEAD")).ok()?;
    Some(head.strip_prefix("ref: refs/heads/")?.trim().to_owned())
}

fn paths_of(fragments: &[Arc<Fragment>]) -> BTreeSet<String> {
    fragments.iter().map(|fragment| fragment.source.path.clone()).collect()
}

/// Finds the project that a directory is: as it is told, else by the directory's name.
fn project_of<'l>(wanted: &Wanted, tenant: &'l Layout) -> anyhow::Result<&'l TenantProject> {
    let name = &tenant.tenant().name;
    if let Some(project) = &wanted.project {
        let found = tenant.project(project);
        return found.with_context(|| {
            format!("the tenant {name} has no project {project}, or several of that name")
        });
    }
    let whole = std::fs::canonicalize(&wanted.path)
        .with_context(|| format!("could not find {}", wanted.path.display()))?;
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
            "which project of the tenant {name} {} is cannot be told by its name; say it with --project",
            wanted.path.display()
        ),
    }
}

fn alone(wanted: &Wanted) -> anyhow::Result<Opened> {
    let texts = read(&wanted.path, &[])?;
    // The names under which most systems know them; what their triggers say can be checked then.
    let connections = Connections::new()
        .with("github", Driver::GitHub, "github.com")
        .with("gerrit", Driver::Gerrit, "")
        .with("git", Driver::Git, "")
        .with("smtp", Driver::Smtp, "")
        .with("mqtt", Driver::Mqtt, "");
    let called =
        |name: &str| ProjectName::new("github.com", name.trim_start_matches("github.com/"));
    let branch = wanted
        .branch
        .clone()
        .or_else(|| checked_out(&wanted.path))
        .unwrap_or_else(|| "master".to_owned());
    let of = |name: &ProjectName, trust| {
        let config = TenantProject::new("github", name.clone(), trust);
        let found = fragments(&config, &branch, &texts);
        (config, found)
    };
    let name = called(wanted.project.as_deref().unwrap_or(UNNAMED));
    let (mut config, mut found) = of(&name, Trust::Untrusted);
    // Only a config project may define these, so it is one.
    let is_trusted = |stanza: &Stanza| match stanza {
        Stanza::Pipeline(_) => true,
        Stanza::Job(job) => job.parent == Parent::Base,
        _ => false,
    };
    // One that is named in several ways is one.
    let mut others: BTreeSet<ProjectName> = named_projects(&found).map(called).collect();
    if found.iter().any(|fragment| fragment.stanzas().any(is_trusted)) {
        (config, found) = of(&name, Trust::Config);
    } else if let (None, Some(only), 1) = (&wanted.project, others.first(), others.len()) {
        // The only project that an untrusted one may speak of is itself.
        (config, found) = of(only, Trust::Untrusted);
    }
    others.remove(&config.name);
    let (project, trust) = (config.name.clone(), config.trust);
    let mut tenant = TenantConfig::new("none");
    tenant.projects.push(config);
    if trust == Trust::Config {
        // It may list jobs for any, and these it does.
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
    let (layout, root) = (Layout::build(sources), root_of(wanted));
    Ok(Opened { tenant: None, layout, project, branch, texts, read, own, listed, root })
}

fn fragments(
    config: &TenantProject,
    branch: &str,
    texts: &BTreeMap<String, String>,
) -> Vec<Arc<Fragment>> {
    // A file that was named by itself lies where it lies.
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

/// Reads a directory's files of configuration; a file is read by itself.
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
        gather(path, &path.join(root), 0, &mut found)?;
    }
    if found.is_empty() {
        let main = path.join("main.yaml");
        let advice = match main.is_file() {
            true => format!("; if {} is the tenants' file, name it", main.display()),
            false => String::new(),
        };
        bail!(
            "{} has no configuration: none of {} is there{advice}",
            path.display(),
            ROOTS.join(", ")
        );
    }
    Ok(found)
}

fn gather(
    root: &Path,
    path: &Path,
    depth: usize,
    found: &mut BTreeMap<String, String>,
) -> anyhow::Result<()> {
    // What a link points to is not the repository's.
    let Ok(kind) = std::fs::symlink_metadata(path).map(|data| data.file_type()) else {
        return Ok(());
    };
    if kind.is_file() {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        if found.len() >= FILES_MAX {
            bail!("{} has more than {FILES_MAX} files of configuration", root.display());
        }
        found.insert(name, text(path)?);
    } else if kind.is_dir() && depth < DEPTH_MAX {
        let entries = std::fs::read_dir(path)
            .with_context(|| format!("could not list {}", path.display()))?;
        for entry in entries {
            gather(
                root,
                &entry.with_context(|| format!("could not list {}", path.display()))?.path(),
                depth + 1,
                found,
            )?;
        }
    }
    Ok(())
}

fn text(path: &Path) -> anyhow::Result<String> {
    let bytes =
        std::fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
    Ok(text_of(bytes))
}
