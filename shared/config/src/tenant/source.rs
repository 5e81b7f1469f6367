//! The projects of a tenant, as `source` lists them: singly or in groups, with the kinds of objects
//! that each may define (Z2.2).

use super::{SYSTEM, TenantConfig, TenantProject, included_project};
use crate::connection::Connections;
use crate::error::{Diagnostic, DiagnosticKind};
use crate::fragment::{ROOTS, Trust};
use crate::objects::ObjectKind;
use crate::objects::read::{Diagnostics, Fields, members};
use crate::yaml::{Node, Value};
use sluice_model::ProjectName;
use std::collections::BTreeSet;

/// Adds the projects that `sources`, the tenant's `source` attribute, lists to `tenant`: the config
/// projects of all connections first, each list in order. Unknown connections, repeated projects
/// and members that are no project are errors and left out; a project with invalid attributes is
/// added. Unless a connection is unknown, also reports unknown names in `shadow`, and warns about
/// `configure-projects` without effect. The caller has set the included files before.
pub(super) fn sources(
    sources: &Node,
    connections: &Connections,
    tenant: &mut TenantConfig,
    p: &mut Diagnostics,
) {
    let Some(mut all) = Fields::of(sources, "source", p) else {
        return;
    };
    let (mut config, mut untrusted, mut is_whole) = (Vec::new(), Vec::new(), true);
    for (connection, node) in all.rest() {
        if connections.project(connection, "").is_none() {
            is_whole = false;
            let keys = sources.as_map().unwrap_or_default().iter().map(|(key, _)| key);
            let key =
                keys.into_iter().find(|key| key.as_text() == Some(connection)).unwrap_or(node);
            p.add(
                Diagnostic::new(
                    DiagnosticKind::UnknownName,
                    key.start,
                    key.end,
                    format!("Unknown connection named \"{connection}\""),
                )
                .about("source")
                .suggesting(connection, connections.0.keys().map(|name| name.as_str())),
            );
            continue;
        }
        let Some(mut f) = Fields::of(node, connection, p) else {
            continue;
        };
        let reader = ListReader { connection, connections };
        if let Some(list) = f.take("config-projects") {
            reader.list(list, Trust::Config, &mut config, p);
        }
        // `repos` is an older name.
        if let Some((_, list)) = f.one_of(&["untrusted-projects", "repos"], p) {
            reader.list(list, Trust::Untrusted, &mut untrusted, p);
        }
        f.finish(p);
    }
    let (mut listed, mut configuring) = (Vec::new(), Vec::new());
    for (node, project) in config.into_iter().chain(untrusted) {
        if tenant.project(&project.name).is_some() {
            let message = format!("Project {} is already in the tenant", project.name);
            p.add(
                Diagnostic::new(DiagnosticKind::Duplicate, node.start, node.end, message)
                    .about("source"),
            );
        } else {
            configuring.extend(
                (!project.configure_projects.is_empty()).then(|| (node, project.name.clone())),
            );
            tenant.projects.push(project);
        }
        listed.push(node);
    }
    // The projects of an unknown connection are unknown, so names cannot be checked.
    if is_whole {
        let projects =
            || tenant.projects.iter().chain(&tenant.included).map(|project| &project.name);
        let all_names: BTreeSet<&str> =
            projects().flat_map(|project| [project.as_str(), project.name()]).collect();
        listed.into_iter().for_each(|node| {
            report_unknown_shadowed(node, &all_names, projects().map(|project| project.name()), p)
        });
        for (node, name) in configuring {
            warn_about_useless_configure_projects(node, &name, tenant, p);
        }
    }
}

/// Returns the values of an attribute of a project in the tenant's list; a single value is a list
/// of one. `member` is the project's name, or a mapping of it to attributes. Empty if the attribute
/// is not set.
fn values_of<'n>(member: &'n Node, word: &str) -> &'n [Node] {
    let attributes = member.as_map().and_then(<[_]>::first).map(|(_, attributes)| attributes);
    attributes.and_then(|attributes| attributes.get(word)).map(members).unwrap_or_default()
}

/// Warns about `configure-projects` patterns of the project `name` that match only config projects,
/// which no untrusted project may configure. `member` is its node in the tenant's list. The caller
/// has added all projects to `tenant`. A pattern that matches no project is not reported. Nothing
/// is reported if one of the patterns is invalid.
fn warn_about_useless_configure_projects(
    member: &Node,
    name: &ProjectName,
    tenant: &TenantConfig,
    p: &mut Diagnostics,
) {
    let Some(project) = tenant.project(name) else { return };
    let nodes = values_of(member, "configure-projects");
    // Patterns with errors are missing, so the lists cannot be compared.
    if nodes.len() != project.configure_projects.len() {
        return;
    }
    for (node, pattern) in nodes.iter().zip(&project.configure_projects) {
        let is_meant = |one: &&TenantProject| {
            pattern.matches_whole(one.name.as_str()) || pattern.matches_whole(one.name.name())
        };
        let mut meant = tenant.projects.iter().filter(is_meant).peekable();
        let Some(first) = meant.peek().map(|one| one.name.clone()) else { continue };
        if meant.all(|one| one.trust.is_trusted()) {
            let message = format!(
                "this pattern of \"configure-projects\" has no effect: it matches {first}, and an \
                 untrusted project can not configure a config project"
            );
            let diagnostic =
                Diagnostic::new(DiagnosticKind::NotPermitted, node.start, node.end, message);
            p.add(diagnostic.about("configure-projects").as_warning());
        }
    }
}

/// Reports as errors the projects named in `shadow` of a project that the tenant does not have, as
/// Zuul does. The names stay in the project. `member` is the project's node in the tenant's list.
/// `all_names` are the canonical and the short names of the tenant's projects; `short` are the
/// short ones, for suggestions. Names that are no text are ignored.
fn report_unknown_shadowed<'n>(
    member: &Node,
    all_names: &BTreeSet<&str>,
    short: impl Iterator<Item = &'n str> + Clone,
    p: &mut Diagnostics,
) {
    for node in values_of(member, "shadow") {
        let Some(name) = node.as_text().filter(|name| !all_names.contains(name)) else { continue };
        let message = format!("The project \"{name}\" was not found.");
        let diagnostic =
            Diagnostic::new(DiagnosticKind::UnknownName, node.start, node.end, message)
                .about("shadow");
        p.add(diagnostic.suggesting(name, short.clone()));
    }
}

struct ListReader<'c> {
    connection: &'c str,
    connections: &'c Connections,
}

/// What a group of projects says for all its members.
#[derive(Default)]
struct GroupDefaults {
    include: Option<Vec<ObjectKind>>,
    exclude: Vec<ObjectKind>,
    provider_config: Option<bool>,
}

impl ListReader<'_> {
    /// Reads a list of projects with this trust, and appends each with its node to `found`. The
    /// members of groups (`projects`) are appended singly. Members that are no project are errors
    /// and left out; a project with invalid attributes is appended.
    fn list<'n>(
        &self,
        node: &'n Node,
        trust: Trust,
        found: &mut Vec<(&'n Node, TenantProject)>,
        p: &mut Diagnostics,
    ) {
        for member in members(node) {
            if member.get("projects").is_none() {
                self.member("source", member, trust, &GroupDefaults::default(), found, p);
                continue;
            }
            let Some(mut f) = Fields::of(member, "projects", p) else {
                continue;
            };
            let group = GroupDefaults {
                include: f.take("include").map(|node| kinds("include", node, p)),
                exclude: f
                    .take("exclude")
                    .map(|node| kinds("exclude", node, p))
                    .unwrap_or_default(),
                provider_config: f.flag("include-provider-config", p),
            };
            for inner in f.take("projects").map(members).unwrap_or_default() {
                self.member("projects", inner, trust, &group, found, p);
            }
            f.finish(p);
        }
    }

    /// Reads one member of a list of projects, a name or a mapping of it to attributes, and appends
    /// the project to `found`. `list` is the attribute that errors name; `group` has the attributes
    /// of the group around it. The project's own `include` replaces the group's `include` and
    /// `exclude`; its own `exclude` adds to the group's. Another value, and the reserved name of
    /// the included files, are errors and append nothing; with invalid attributes the project is
    /// appended. The caller has checked that the connection is configured.
    fn member<'n>(
        &self,
        list: &str,
        node: &'n Node,
        trust: Trust,
        group: &GroupDefaults,
        found: &mut Vec<(&'n Node, TenantProject)>,
        p: &mut Diagnostics,
    ) {
        let named = match &node.value {
            Value::Text(name) => Some((name.as_str(), None)),
            Value::Map(pairs) => match pairs.as_slice() {
                [(key, value)] => key.as_text().map(|name| (name, Some(value))),
                _ => None,
            },
            _ => None,
        };
        let Some((name, attributes)) = named.filter(|(name, _)| !name.is_empty()) else {
            let what =
                "a project's name, a mapping of it to attributes, or a group with \"projects\"";
            return p.expected(node, list, what);
        };
        let Some(canonical) = self.connections.project(self.connection, name) else {
            return;
        };
        // A repository with this connection and name or this canonical name could decrypt secrets
        // of included files, or pass for their playbooks.
        let included = included_project();
        if canonical == included
            || (self.connection == SYSTEM && canonical.name() == included.name())
        {
            let message = format!(
                "Project {name} of the connection \"{}\" has the reserved name of the included \
                 files, {included}: rename its connection and use a canonical host other than \
                 \"{SYSTEM}\"",
                self.connection
            );
            p.add(
                Diagnostic::new(DiagnosticKind::NotPermitted, node.start, node.end, message)
                    .about("source"),
            );
            return;
        }
        let mut project = TenantProject::new(self.connection, canonical, trust);
        let mut defaults = project.kinds.clone();
        let mut provider_config = group.provider_config;
        let (mut include, mut exclude) = (group.include.clone(), group.exclude.clone());
        if let Some(attributes) = attributes
            && let Some(mut f) = Fields::of(attributes, name, p)
        {
            if let Some(node) = f.take("include") {
                // As in Zuul, it replaces the kinds of the group.
                include = Some(kinds("include", node, p));
                exclude.clear();
            }
            exclude.extend(
                f.take("exclude").map(|node| kinds("exclude", node, p)).unwrap_or_default(),
            );
            provider_config = f.flag("include-provider-config", p).or(provider_config);
            project_attributes(&mut f, &mut project, p);
            f.finish(p);
        }
        // By default only config projects define provider configuration. The flag adds to the
        // included kinds.
        defaults.retain(|kind| provider_config.is_none() || !kind.is_provider_config());
        project.kinds = include.unwrap_or(defaults);
        let kinds = ObjectKind::WORDS
            .iter()
            .map(|(_, kind)| *kind)
            .filter(|kind| kind.is_provider_config());
        project.kinds.extend(kinds.filter(|_| provider_config == Some(true)));
        project.kinds.retain(|kind| !exclude.contains(kind));
        project.kinds.sort_unstable();
        project.kinds.dedup();
        found.push((node, project));
    }
}

/// Takes a project's attributes, except those for kinds of objects, from `f` into `project`. Absent
/// and, with an error, invalid ones get their defaults. `allow-base-jobs` is only taken for a
/// config project, `configure-projects` and `allow-reporter-jobs` only for an untrusted one;
/// elsewhere they stay in `f`. Default locations and repeated paths in `extra-config-paths` are
/// errors, but kept.
fn project_attributes(f: &mut Fields<'_>, project: &mut TenantProject, p: &mut Diagnostics) {
    project.shadow = f.texts("shadow", p).unwrap_or_default();
    for member in f.peek("extra-config-paths").map(members).unwrap_or_default() {
        if member.as_text().is_some_and(|path| ROOTS.contains(&path)) {
            p.syntax(
                member,
                "extra-config-paths",
                "Default zuul configs are not allowed in extra-config-paths",
            );
        }
    }
    project.extra_config_paths = f.texts("extra-config-paths", p).unwrap_or_default();
    let paths = &project.extra_config_paths;
    let mut seen = BTreeSet::new();
    let duplicates: BTreeSet<&String> = paths.iter().filter(|path| !seen.insert(*path)).collect();
    for path in duplicates {
        p.syntax(
            f.node(),
            "extra-config-paths",
            format!("\"extra-config-paths\" names {path} twice"),
        );
    }
    project.load_branch = f.text("load-branch", p);
    project.include_branches = f.expressions("include-branches", p);
    project.exclude_branches = f.expressions("exclude-branches", p);
    project.always_dynamic_branches = f.expressions("always-dynamic-branches", p);
    project.exclude_unprotected_branches = f.flag("exclude-unprotected-branches", p);
    project.exclude_locked_branches = f.flag("exclude-locked-branches", p);
    project.allow_circular_dependencies = f.flag("allow-circular-dependencies", p);
    project.implied_branch_matchers = f.flag("implied-branch-matchers", p);
    if project.trust.is_trusted() {
        project.allow_base_jobs = f.flag("allow-base-jobs", p).unwrap_or(true);
    } else {
        project.configure_projects = f.expressions("configure-projects", p).unwrap_or_default();
        project.allow_reporter_jobs = f.flag("allow-reporter-jobs", p).unwrap_or(false);
    }
}

/// Reads a list of kinds of objects, in singular or plural; a single word is a list of one. Unknown
/// ones are errors and left out. `attribute` (`include` or `exclude`) is for messages.
fn kinds(attribute: &str, node: &Node, p: &mut Diagnostics) -> Vec<ObjectKind> {
    let mut found = Vec::new();
    for member in members(node) {
        let text = member.as_text().unwrap_or_default();
        // Singular and plural are accepted.
        let word = text.strip_suffix('s').unwrap_or(text);
        match ObjectKind::WORDS.iter().find(|(name, _)| *name == text || *name == word) {
            Some((_, kind)) => found.push(*kind),
            None => {
                let message =
                    format!("\"{text}\" in \"{attribute}\" is not a kind of configuration object");
                let kinds = ObjectKind::WORDS.iter().map(|(name, _)| *name);
                p.add(
                    Diagnostic::new(DiagnosticKind::Syntax, member.start, member.end, message)
                        .about(attribute)
                        .suggesting(text, kinds),
                );
            }
        }
    }
    found
}
