//! Applying one definition after the other: what overrides, what merges, what is appended, and who
//! may change what.

use super::blank::{blank, controlled};
use super::collect::Variant;
use super::weight::{self, Budget};
use crate::Pattern;
use crate::fragment::Source;
use crate::layout::Layout;
use crate::layout::alternatives::in_line;
use crate::objects::{Combine, Combined, JobStanza, NodesetRef, RoleSource};
use serde_json::{Map, Value as Json};
use sluice_model::job::{
    FrozenJob, GalaxyRole, NodeSet, Playbook, RequiredProject, Role, SecretUse,
};
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};

/// A job while definitions are applied to it.
pub(super) struct Building<'l> {
    pub(super) layout: &'l Layout,
    pub(super) budget: &'l Budget,
    pub(super) job: FrozenJob,
    pub(super) files: Vec<Pattern>,
    pub(super) irrelevant_files: Vec<Pattern>,
    pub(super) is_abstract: bool,
    pub(super) match_on_config_updates: bool,
    pub(super) allowed_projects: Option<Vec<ProjectName>>,
    pub(super) uses_secrets: bool,
    /// The job whose definitions are being applied, and what it forbids.
    current: String,
    is_final: bool,
    intermediate: bool,
    /// The protected job that this is or inherits from, and the project that alone may change it or
    /// inherit from it.
    protected: Option<(String, ProjectName)>,
    inherits_credentials: Option<bool>,
    final_attributes: BTreeSet<String>,
    pub(super) roles: Vec<Role>,
    /// Credentials that children have as well (Z4.4).
    pub(super) shared_secrets: BTreeMap<String, SecretUse>,
    /// A playbook for each definition that could stand for a missing `run` (Z4.9), the most
    /// specific first.
    pub(super) implied_run: Vec<Playbook>,
}

/// Why a definition may not be applied, and the attribute by which; an empty one for all of it.
pub(super) struct Refused {
    pub(super) attribute: &'static str,
    pub(super) message: String,
    /// Whether the checks of references tell it too, where the name stands.
    pub(super) is_told: bool,
}

impl Refused {
    /// Returns what only shows when definitions are put together.
    pub(super) fn of(attribute: &'static str, message: String) -> Self {
        Self { attribute, message, is_told: false }
    }
}

impl From<String> for Refused {
    fn from(message: String) -> Self {
        Self::of("", message)
    }
}

/// Where a definition comes from.
pub(super) struct Origin<'a> {
    pub(super) source: &'a Source,
    pub(super) depth: u32,
    pub(super) form: Form,
}

/// In which form something is said of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As a `job` stanza.
    Definition,
    /// As an entry of a project's list.
    Entry,
}

impl<'l> Building<'l> {
    pub(super) fn new(layout: &'l Layout, budget: &'l Budget, name: &str) -> Self {
        Self {
            layout,
            budget,
            job: blank(name),
            files: Vec::new(),
            irrelevant_files: Vec::new(),
            is_abstract: false,
            match_on_config_updates: true,
            allowed_projects: None,
            uses_secrets: false,
            current: String::new(),
            is_final: false,
            intermediate: false,
            protected: None,
            inherits_credentials: None,
            final_attributes: BTreeSet::new(),
            roles: Vec::new(),
            shared_secrets: BTreeMap::new(),
            implied_run: Vec::new(),
        }
    }

    /// Applies a definition of the job or of one it inherits from. Returns every reason why it may
    /// not be.
    pub(super) fn variant(&mut self, variant: &Variant<'_>) -> Vec<Refused> {
        let origin = Origin {
            source: variant.defined.source(),
            depth: variant.depth,
            form: Form::Definition,
        };
        let mut refused = Vec::new();
        if variant.job.name != self.current {
            let why_not = self.descend(variant.job, &origin);
            refused.extend(why_not.into_iter().map(|message| Refused::of("parent", message)));
        }
        // What else is wrong with it shows as well: the job does not run either way.
        refused.extend(self.apply(variant.job, &origin));
        refused
    }

    /// Applies an entry of a project's job list. Returns every reason why it may not be.
    pub(super) fn entry(&mut self, job: &JobStanza, source: &Source) -> Vec<Refused> {
        let depth = self
            .job
            .run
            .iter()
            .chain(&self.job.pre_run)
            .map(|playbook| playbook.nesting_level)
            .max()
            .unwrap_or(0);
        self.apply(job, &Origin { source, depth, form: Form::Entry })
    }

    /// Goes from a parent to its child. What holds for the parent alone is left behind also where
    /// that is refused, so that the child is not told that it is what its parent is.
    fn descend(&mut self, child: &JobStanza, origin: &Origin<'_>) -> Vec<String> {
        let parent = std::mem::replace(&mut self.current, child.name.clone());
        let refused =
            if parent.is_empty() { Vec::new() } else { self.why_no_child(&parent, child, origin) };
        self.is_final = false;
        self.is_abstract = false;
        self.intermediate = false;
        self.inherits_credentials = None;
        // What is protected stays so in all that inherits from it; whoever may not inherit is told
        // that once.
        if !refused.is_empty() {
            self.protected = None;
        }
        refused
    }

    /// Returns every reason why the job as it is may not be the parent of a definition.
    fn why_no_child(&self, parent: &str, child: &JobStanza, origin: &Origin<'_>) -> Vec<String> {
        let mut refused = Vec::new();
        if self.is_final {
            refused.push(format!(
                "Unable to inherit from final job {parent}: it is final and can not act as a parent"
            ));
        }
        if self.intermediate && child.is_abstract != Some(true) {
            refused.push(format!(
                "Job {} inherits from intermediate job {parent}, but is not abstract",
                child.name
            ));
        }
        if let Some(guarded) = self.guarded_from(origin.source) {
            refused.push(format!(
                "Job {} of {} can not inherit from {parent}: {guarded}",
                child.name, origin.source.project
            ));
        }
        if self.inherits_credentials == Some(false) {
            refused.push(format!(
                "Job {parent} keeps its credentials to itself and can not act as a parent of {}",
                child.name
            ));
        }
        refused
    }

    /// Returns why a definition of `source` may change nothing of how the job runs, where it is or
    /// comes from a protected one.
    fn guarded_from(&self, source: &Source) -> Option<String> {
        let (job, project) =
            self.protected.as_ref().filter(|(_, project)| *project != source.project)?;
        Some(format!("{job} of {project} is a protected job in a different project"))
    }

    /// Applies what may be applied as a whole, or nothing. Returns every reason why it may not be.
    fn apply(&mut self, from: &JobStanza, origin: &Origin<'_>) -> Vec<Refused> {
        let mut refused = self.forbidden(from, origin);
        if !refused.is_empty() {
            return refused;
        }
        if let Err(message) = self.budget.take(weight::of_definition(from)) {
            return vec![message.into()];
        }
        self.inheritance(from, origin);
        self.scalars(from);
        self.lists(from, origin);
        self.run_time(from, origin);
        self.variables(from);
        if let Some(nodeset) = &from.nodeset {
            match self.nodesets(nodeset) {
                Ok(nodesets) => self.job.nodesets = nodesets,
                Err(message) => {
                    refused.push(Refused { attribute: "nodeset", message, is_told: true })
                }
            }
        }
        refused.extend(self.playbooks(from, origin).err());
        self.final_attributes.extend(from.final_attributes.iter().cloned());
        refused
    }

    /// Returns what a definition or an entry sets and may not, each attribute once: the job is
    /// final, or another project's and protected, or the attribute is final by itself.
    fn forbidden(&self, from: &JobStanza, origin: &Origin<'_>) -> Vec<Refused> {
        let name = &self.job.name;
        let guarded = self.guarded_from(origin.source);
        let changed =
            if self.is_final || guarded.is_some() { from.changes_execution() } else { Vec::new() };
        let mut refused: Vec<Refused> = changed
            .into_iter()
            .map(|attribute| {
                let message = match &guarded {
                    Some(guarded) if !self.is_final => {
                        format!("Unable to modify job {name} attribute {attribute}: {guarded}")
                    }
                    _ => format!("Unable to modify final job {name} attribute {attribute}"),
                };
                Refused::of(attribute, message)
            })
            .collect();
        if from.protected == Some(false)
            && let Some((job, project)) = &self.protected
        {
            let message = format!(
                "Unable to reset protected attribute of job {name}: {job} of {project} is protected and stays so"
            );
            refused.push(Refused::of("protected", message));
        }
        for attribute in
            controlled(from).into_iter().filter(|name| self.final_attributes.contains(*name))
        {
            if !refused.iter().any(|told| told.attribute == attribute) {
                let message = format!(
                    "Unable to modify job {name} attribute {attribute}: it is final by attribute-control"
                );
                refused.push(Refused::of(attribute, message));
            }
        }
        refused
    }

    /// Returns nodes and groups in order of preference.
    fn nodesets(&self, nodeset: &NodesetRef) -> Result<Vec<NodeSet>, String> {
        let named = |name: &str| self.layout.nodeset(name).map(|nodeset| &nodeset.object.body);
        let (name, body) = match nodeset {
            NodesetRef::Inline(body) => (None, Some(body)),
            NodesetRef::Named(name) => (Some(name.as_str()), named(name)),
        };
        let Some(body) = body else { return Ok(Vec::new()) };
        let which = || name.map_or_else(String::new, |name| format!(" {name}"));
        let found = in_line(name, body, &mut |name| named(name))
            .map_err(|why| format!("The nodeset{} of job {} {why}", which(), self.job.name))?;
        if let Some(circle) = found.circles.first() {
            return Err(format!(
                "The nodeset{} of job {} comes back to itself: {}",
                which(),
                self.job.name,
                circle.join(" → ")
            ));
        }
        self.budget.take(weight::of_members(
            found.sets.iter().map(|set| 1 + set.nodes.len() + set.groups.len()).sum(),
        ))?;
        Ok(found.sets.into_iter().cloned().collect())
    }

    fn inheritance(&mut self, from: &JobStanza, origin: &Origin<'_>) {
        let Source { project, branch, path, .. } = origin.source;
        let kind = match origin.form {
            Form::Definition => "job",
            Form::Entry => "entry",
        };
        // No line: a definition that only moved is the same job, and its builds live on.
        self.job.inheritance.push(format!(
            "{kind} {} from {}@{branch} {path}",
            from.name,
            project.name()
        ));
        self.is_final |= from.is_final == Some(true);
        self.intermediate |= from.intermediate == Some(true);
        // Only a child clears it: whoever may say `false` in a list would run what only serves as a
        // parent.
        self.is_abstract |= from.is_abstract == Some(true);
        if from.protected == Some(true) {
            self.protected.get_or_insert_with(|| (from.name.clone(), project.clone()));
        }
        self.inherits_credentials = from.auth_inherit.or(self.inherits_credentials);
        self.match_on_config_updates =
            from.match_on_config_updates.unwrap_or(self.match_on_config_updates);
    }

    fn scalars(&mut self, from: &JobStanza) {
        let job = &mut self.job;
        job.voting = from.voting.unwrap_or(job.voting);
        job.attempts = from.attempts.unwrap_or(job.attempts);
        set(&mut job.timeout_seconds, from.timeout_seconds);
        set(&mut job.pre_timeout_seconds, from.pre_timeout_seconds);
        set(&mut job.post_timeout_seconds, from.post_timeout_seconds);
        set(&mut job.success_message, from.success_message.clone());
        set(&mut job.failure_message, from.failure_message.clone());
        set(&mut job.override_checkout, from.override_checkout.clone().map(BranchName));
        set(&mut job.ansible_version, from.ansible_version.clone());
        set(&mut job.image_build_name, from.image_build_name.clone());
        job.workspace_scheme = from.workspace_scheme.unwrap_or(job.workspace_scheme);
        // Once review is needed, no child can do without.
        job.post_review |= from.post_review == Some(true);
    }

    fn lists(&mut self, from: &JobStanza, origin: &Origin<'_>) {
        union(&mut self.job.tags, &from.tags);
        union(&mut self.job.provides, &from.provides);
        union(&mut self.job.requires, &from.requires);
        replace(&mut self.files, &from.files);
        replace(&mut self.irrelevant_files, &from.irrelevant_files);
        if let Some(dependencies) = &from.dependencies {
            if !dependencies.adds(Combine::Override) {
                self.job.dependencies.clear();
            }
            let given = dependencies.value.iter().cloned();
            put_last(&mut self.job.dependencies, given, |dependency| dependency.name.clone());
        }
        self.job.semaphores.extend(from.semaphores.iter().flatten().cloned());
        // All builds take semaphores in one order, so that two of them never wait for each other.
        // Of two uses the first stays.
        self.job.semaphores.sort_by(|one, other| one.name.cmp(&other.name));
        self.job.semaphores.dedup_by(|later, first| later.name == first.name);
        if let Some(required) = &from.required_projects {
            if !required.adds(Combine::Inherit) {
                self.job.required_projects.clear();
            }
            let given = required.value.iter().filter_map(|wanted| {
                let found = self.layout.project(&wanted.name)?;
                Some(RequiredProject {
                    connection: found.connection.clone(),
                    project: found.name.clone(),
                    override_checkout: wanted.override_checkout.clone().map(BranchName),
                })
            });
            put_last(&mut self.job.required_projects, given, |required| required.project.clone());
        }
        // What says who may run it besides where its secrets are its own project's says nothing
        // (`playbooks`).
        let is_own_only =
            from.secrets.iter().flatten().next().is_some() && !origin.source.trust.is_trusted();
        // An empty list names nobody, and keeps nobody out.
        let is_list = |allowed: &&Vec<String>| !allowed.is_empty() && !is_own_only;
        if let Some(allowed) = from.allowed_projects.as_ref().filter(is_list) {
            let names = allowed
                .iter()
                .filter_map(|name| self.layout.project(name))
                .map(|project| project.name.clone());
            self.allow_only(names.collect());
        }
        self.roles(from, origin);
    }

    /// Lets only these projects run the job, and of them only those that nothing said before keeps
    /// out: a child narrows what its parents allow and never widens it.
    pub(super) fn allow_only(&mut self, names: Vec<ProjectName>) {
        self.allowed_projects = Some(match self.allowed_projects.take() {
            None => names,
            Some(before) => {
                let names: BTreeSet<ProjectName> = names.into_iter().collect();
                before.into_iter().filter(|name| names.contains(name)).collect()
            }
        });
    }

    fn roles(&mut self, from: &JobStanza, origin: &Origin<'_>) {
        let source = origin.source;
        // As in Zuul: a job comes with its own repository's roles, and a list that has it run adds
        // only those that it names.
        let mut own = match origin.form {
            Form::Entry => Vec::new(),
            Form::Definition => vec![Role {
                connection: source.connection.clone(),
                project: source.project.clone(),
                target_name: source.project.role_name().to_owned(),
                implicit: true,
            }],
        };
        let (mut given, mut of_galaxy) = (Vec::new(), Vec::new());
        for role in from.roles.iter().flatten() {
            match &role.source {
                RoleSource::Zuul(name) => {
                    let Some(found) = self.layout.project(name) else {
                        continue;
                    };
                    given.push(Role {
                        connection: found.connection.clone(),
                        project: found.name.clone(),
                        target_name: role
                            .name
                            .clone()
                            .unwrap_or_else(|| found.name.short_name().to_owned()),
                        implicit: false,
                    });
                }
                RoleSource::Galaxy(name) => of_galaxy.push(GalaxyRole {
                    galaxy: name.clone(),
                    target_name: role.name.clone(),
                    asked_by: (source.connection.clone(), source.project.clone()),
                }),
            }
        }
        // As below: a child's come first, and each is there once.
        of_galaxy.append(&mut self.job.run_time.galaxy_roles);
        for role in of_galaxy {
            if !self.job.run_time.galaxy_roles.contains(&role) {
                self.job.run_time.galaxy_roles.push(role);
            }
        }
        put_last(&mut own, given, |role| role.project.clone());
        // A child's roles come first and its parent's stay (Z4.6).
        let known: BTreeSet<ProjectName> = own.iter().map(|role| role.project.clone()).collect();
        let inherited = std::mem::take(&mut self.roles);
        own.extend(inherited.into_iter().filter(|role| !known.contains(&role.project)));
        self.roles = own;
    }

    fn variables(&mut self, from: &JobStanza) {
        let combine = |into: &mut Map<String, Json>,
                       given: &Option<Combined<Map<String, Json>>>| {
            if let Some(given) = given {
                if !given.adds(Combine::Inherit) {
                    into.clear();
                }
                deep_merge(into, &given.value);
            }
        };
        combine(&mut self.job.vars, &from.vars);
        combine(&mut self.job.extra_vars, &from.extra_vars);
        for (into, given) in [
            (&mut self.job.host_vars, &from.host_vars),
            (&mut self.job.group_vars, &from.group_vars),
        ] {
            let Some(given) = given else { continue };
            if !given.adds(Combine::Inherit) {
                into.clear();
            }
            for (name, variables) in &given.value {
                deep_merge(into.entry(name.clone()).or_default(), variables);
            }
        }
    }
}

pub(super) fn set<T>(slot: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *slot = value;
    }
}

fn union(into: &mut Vec<String>, given: &Option<Combined<Vec<String>>>) {
    let Some(given) = given else { return };
    if !given.adds(Combine::Inherit) {
        into.clear();
    }
    into.extend(given.value.iter().cloned());
    into.sort();
    into.dedup();
}

fn replace<T: Clone>(into: &mut Vec<T>, given: &Option<Combined<Vec<T>>>) {
    let Some(given) = given else { return };
    if !given.adds(Combine::Override) {
        into.clear();
    }
    into.extend(given.value.iter().cloned());
}

/// Puts `from` over `into`: mappings merge, all else is replaced.
pub(super) fn deep_merge(into: &mut Map<String, Json>, from: &Map<String, Json>) {
    for (name, value) in from {
        match (into.get_mut(name), value) {
            (Some(Json::Object(old)), Json::Object(new)) => deep_merge(old, new),
            _ => {
                into.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Puts new members behind the others; of those with one key the last stays.
fn put_last<T, K: Ord>(
    into: &mut Vec<T>,
    given: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) {
    into.extend(given);
    let mut seen: BTreeSet<K> = BTreeSet::new();
    into.reverse();
    into.retain(|member| seen.insert(key(member)));
    into.reverse();
}
