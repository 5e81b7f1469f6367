//! Applies the definitions of a job one after the other: override, merge or append, and the rules
//! about who may change what.

use super::collect::Variant;
use super::defaults::{empty_job, settable_final_attributes};
use super::weight::{self, Budget};
use crate::Pattern;
use crate::fragment::Source;
use crate::layout::Layout;
use crate::layout::flatten_nodesets::flatten;
use crate::objects::{Combine, Combined, JobStanza, NodesetRef, RoleSource};
use serde_json::{Map, Value as Json};
use sluice_model::job::{
    FrozenJob, GalaxyRole, NodeSet, Playbook, RequiredProject, RoleRepository, RoleUse, SecretUse,
};
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};

/// A job while definitions are applied to it.
pub(super) struct JobBuilder<'l> {
    /// The layout.
    pub(super) layout: &'l Layout,
    /// The remaining weight of all jobs of the change.
    pub(super) budget: &'l Budget,
    /// The result so far.
    pub(super) job: FrozenJob,
    /// The job runs only if a changed file matches one of these; always if there are none.
    pub(super) files: Vec<Pattern>,
    /// The job does not run if all changed files match these.
    pub(super) irrelevant_files: Vec<Pattern>,
    /// Whether the job cannot run itself.
    pub(super) is_abstract: bool,
    /// Whether the job runs if the change modifies its definition, whatever files it touches.
    pub(super) match_on_config_updates: bool,
    /// The projects that may run the job; `None` for all.
    pub(super) allowed_projects: Option<Vec<ProjectName>>,
    /// Whether a definition or entry uses secrets.
    pub(super) uses_secrets: bool,
    /// The job whose definitions are being applied.
    current: String,
    /// Whether the current job forbids changes and children.
    is_final: bool,
    /// Whether only abstract jobs may inherit from the current job.
    intermediate: bool,
    /// The protected job that this job is or inherits from, and the only project that may change it
    /// or inherit from it.
    protected: Option<(String, ProjectName)>,
    /// Whether children inherit the current job's credentials; `None` if unset.
    inherits_credentials: Option<bool>,
    /// Attributes that later definitions may not set.
    final_attributes: BTreeSet<String>,
    /// The roles of its playbooks, the child's before its parent's.
    pub(super) roles: Vec<RoleUse>,
    /// The secrets that children inherit (Z4.4).
    pub(super) shared_secrets: BTreeMap<String, SecretUse>,
    /// The object storage containers whose credentials children inherit (Z4.4, Z4.8).
    pub(super) shared_containers: Vec<String>,
    /// The first secret that makes the job one that needs review, with its project, where a secret
    /// does.
    pub(super) review_secret: Option<(String, ProjectName)>,
    /// The implied playbook of each definition in case `run` is missing (Z4.9), the most specific
    /// first.
    pub(super) implied_run: Vec<Playbook>,
}

/// Why a definition cannot be applied.
pub(super) struct Rejection {
    /// The attribute that is wrong; empty for the whole definition.
    pub(super) attribute: &'static str,
    /// The message of the diagnostic.
    pub(super) message: String,
    /// Whether the reference checks of the layout report it too.
    pub(super) is_reported_elsewhere: bool,
}

impl Rejection {
    /// Returns a rejection that only shows when definitions are combined, so that no other check
    /// reports it.
    pub(super) fn of(attribute: &'static str, message: String) -> Self {
        Self { attribute, message, is_reported_elsewhere: false }
    }
}

impl From<String> for Rejection {
    fn from(message: String) -> Self {
        Self::of("", message)
    }
}

/// The origin of a definition.
pub(super) struct Origin<'a> {
    /// The file.
    pub(super) source: &'a Source,
    /// The nesting level of its playbooks: the number of ancestors.
    pub(super) depth: u32,
    /// Whether it is a job stanza or an entry.
    pub(super) form: Form,
}

/// The form of a definition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A `job` stanza.
    Definition,
    /// An entry of a project's job list.
    Entry,
}

impl<'l> JobBuilder<'l> {
    /// Returns the builder of the job `name`, with default values and without any definition. The
    /// definitions that are applied later take their weight from `budget`.
    pub(super) fn new(layout: &'l Layout, budget: &'l Budget, name: &str) -> Self {
        Self {
            layout,
            budget,
            job: empty_job(name),
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
            shared_containers: Vec::new(),
            review_secret: None,
            implied_run: Vec::new(),
        }
    }

    /// Applies a definition of the job or of an ancestor. A definition of another job than the one
    /// before makes that job the parent. The caller passes the definitions as
    /// [`collect`](super::collect::collect) returns them, before all entries, and has checked their
    /// branches. Returns why the definition, or a part of it, is not applied. A definition that may
    /// not inherit from its parent is an error too, but applied, to find further errors.
    pub(super) fn apply_variant(&mut self, variant: &Variant<'_>) -> Vec<Rejection> {
        let origin = Origin {
            source: variant.defined.source(),
            depth: variant.depth,
            form: Form::Definition,
        };
        let mut rejections = Vec::new();
        if variant.job.name != self.current {
            let why_not = self.enter_child(variant.job, &origin);
            rejections.extend(why_not.into_iter().map(|message| Rejection::of("parent", message)));
        }
        // Report further errors as well: the job cannot run in any case.
        rejections.extend(self.apply(variant.job, &origin));
        rejections
    }

    /// Applies an entry of a project's job list, after all definitions. The caller has checked the
    /// branches of the entry; `source` is the file that holds it. Returns why the entry, or a part
    /// of it, is not applied; empty if it was applied in full.
    pub(super) fn apply_entry(&mut self, job: &JobStanza, source: &Source) -> Vec<Rejection> {
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

    /// Moves from a parent to its child, and resets what applies to the parent only, such as
    /// `final` and `abstract`. Call it once for each job, before its first definition, `child`, is
    /// applied. Returns every reason why the child may not inherit; none for the first job, which
    /// has no parent. If there are any, the job also stops being protected, so that this is
    /// reported once.
    fn enter_child(&mut self, child: &JobStanza, origin: &Origin<'_>) -> Vec<String> {
        let parent = std::mem::replace(&mut self.current, child.name.clone());
        let rejections = if parent.is_empty() {
            Vec::new()
        } else {
            self.inheritance_errors(&parent, child, origin)
        };
        self.is_final = false;
        self.is_abstract = false;
        self.intermediate = false;
        self.inherits_credentials = None;
        // A protected job's children stay protected. Report a forbidden child only once.
        if !rejections.is_empty() {
            self.protected = None;
        }
        rejections
    }

    /// Returns every reason why the current job, `parent`, may not be the parent of `child`: it is
    /// final, it is intermediate and the child is not abstract, it is protected by another project
    /// than that of `origin`, the child's file, or it withholds its credentials from children.
    /// Changes nothing.
    fn inheritance_errors(
        &self,
        parent: &str,
        child: &JobStanza,
        origin: &Origin<'_>,
    ) -> Vec<String> {
        let mut rejections = Vec::new();
        if self.is_final {
            rejections.push(format!(
                "Unable to inherit from final job {parent}: it is final and can not act as a parent"
            ));
        }
        if self.intermediate && child.is_abstract != Some(true) {
            rejections.push(format!(
                "Job {} inherits from intermediate job {parent}, but is not abstract",
                child.name
            ));
        }
        if let Some(guarded) = self.protection_error(origin.source) {
            rejections.push(format!(
                "Job {} of {} can not inherit from {parent}: {guarded}",
                child.name, origin.source.project
            ));
        }
        if self.inherits_credentials == Some(false) {
            rejections.push(format!(
                "Job {parent} does not share its credentials with children and can not act as a \
                 parent of {}",
                child.name
            ));
        }
        rejections
    }

    /// Returns why a definition in `source` may not change how the job runs: the job is, or
    /// inherits from, a protected job of another project. `None` if it may.
    fn protection_error(&self, source: &Source) -> Option<String> {
        let (job, project) =
            self.protected.as_ref().filter(|(_, project)| *project != source.project)?;
        Some(format!("{job} is a protected job of a different project, {project}"))
    }

    /// Applies a definition or entry, and returns why it, or a part of it, is not applied. If it
    /// sets a forbidden attribute, or its lists and variables exceed the budget, nothing is applied
    /// and nothing else is checked. With a wrong nodeset, the nodeset before stays; with a wrong
    /// secret, or if the playbooks exceed the budget, none of the definition's playbooks are added;
    /// the rest is applied then. An undefined nodeset is no error here: the job then has no
    /// nodeset, which the caller checks after the last definition.
    fn apply(&mut self, from: &JobStanza, origin: &Origin<'_>) -> Vec<Rejection> {
        let mut rejections = self.forbidden_attributes(from, origin);
        if !rejections.is_empty() {
            return rejections;
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
                Err(message) => rejections.push(Rejection {
                    attribute: "nodeset",
                    message,
                    is_reported_elsewhere: true,
                }),
            }
        }
        rejections.extend(self.playbooks(from, origin).err());
        self.final_attributes.extend(from.final_attributes.iter().cloned());
        rejections
    }

    /// Returns an error for each attribute that a definition or entry sets but may not. These are
    /// the attributes that affect how the job runs, if the job is final or protected by another
    /// project; `protected: false`, if it is protected; and attributes that an earlier definition
    /// of the job or of an ancestor made final. Changes nothing.
    fn forbidden_attributes(&self, from: &JobStanza, origin: &Origin<'_>) -> Vec<Rejection> {
        let name = &self.job.name;
        let guarded = self.protection_error(origin.source);
        let changed =
            if self.is_final || guarded.is_some() { from.changes_execution() } else { Vec::new() };
        let mut rejections: Vec<Rejection> = changed
            .into_iter()
            .map(|attribute| {
                let message = match &guarded {
                    Some(guarded) if !self.is_final => {
                        format!("Unable to modify job {name} attribute {attribute}: {guarded}")
                    }
                    _ => format!("Unable to modify final job {name} attribute {attribute}"),
                };
                Rejection::of(attribute, message)
            })
            .collect();
        if from.protected == Some(false)
            && let Some((job, project)) = &self.protected
        {
            let message = format!(
                "Unable to reset protected attribute of job {name}: {job} of {project} is \
                 protected, and that can not be undone"
            );
            rejections.push(Rejection::of("protected", message));
        }
        for attribute in settable_final_attributes(from)
            .into_iter()
            .filter(|name| self.final_attributes.contains(*name))
        {
            if !rejections.iter().any(|rejection| rejection.attribute == attribute) {
                let message = format!(
                    "Unable to modify job {name} attribute {attribute}: attribute-control makes it \
                     final"
                );
                rejections.push(Rejection::of(attribute, message));
            }
        }
        rejections
    }

    /// Returns the alternative sets of nodes in order of preference. Empty, without an error, if
    /// the nodeset or all its alternatives are not defined; of several alternatives, undefined ones
    /// are left out. The error is a message: there are too many alternatives, they nest too deep,
    /// the nodeset contains itself, or the budget is spent. Takes the weight of the result from the
    /// budget.
    fn nodesets(&self, nodeset: &NodesetRef) -> Result<Vec<NodeSet>, String> {
        let named = |name: &str| self.layout.nodeset(name).map(|nodeset| &nodeset.object.body);
        let (name, body) = match nodeset {
            NodesetRef::Inline(body) => (None, Some(body)),
            NodesetRef::Named(name) => (Some(name.as_str()), named(name)),
        };
        let Some(body) = body else { return Ok(Vec::new()) };
        let which = || name.map_or_else(String::new, |name| format!(" {name}"));
        let found = flatten(name, body, &mut |name| named(name))
            .map_err(|why| format!("The nodeset{} of job {} {why}", which(), self.job.name))?;
        if let Some(cycle) = found.cycles.first() {
            return Err(format!(
                "The nodeset{} of job {} contains itself: {}",
                which(),
                self.job.name,
                cycle.join(" → ")
            ));
        }
        self.budget.take(weight::of_members(
            found.sets.iter().map(|set| 1 + set.nodes.len() + set.groups.len()).sum(),
        ))?;
        Ok(found.sets.into_iter().cloned().collect())
    }

    /// Adds the definition to the job's list of applied ones, and applies the attributes that
    /// control inheritance. `final`, `intermediate`, `abstract` and `protected` can only be
    /// switched on; `match-on-config-updates` and whether children inherit credentials are replaced
    /// if set.
    fn inheritance(&mut self, from: &JobStanza, origin: &Origin<'_>) {
        let Source { project, branch, path, .. } = origin.source;
        let kind = match origin.form {
            Form::Definition => "job",
            Form::Entry => "entry",
        };
        // No line number: a definition that only moved is the same job, and its builds are kept.
        self.job.inheritance.push(format!(
            "{kind} {} from {}@{branch} {path}",
            from.name,
            project.name()
        ));
        self.is_final |= from.is_final == Some(true);
        self.intermediate |= from.intermediate == Some(true);
        // Only a child clears it: otherwise a job list entry with `abstract: false` could run a job
        // that is only meant as a parent.
        self.is_abstract |= from.is_abstract == Some(true);
        if from.protected == Some(true) {
            self.protected.get_or_insert_with(|| (from.name.clone(), project.clone()));
        }
        self.inherits_credentials = from.auth_inherit.or(self.inherits_credentials);
        self.match_on_config_updates =
            from.match_on_config_updates.unwrap_or(self.match_on_config_updates);
    }

    /// Applies the attributes with a single value, except those that only matter at run time. A set
    /// value replaces the one before, except that `post-review` can only be switched on.
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
        // A child cannot remove the need for review.
        job.post_review |= from.post_review == Some(true);
    }

    /// Applies the attributes that are lists, and the roles. `tags`, `provides`, `requires` and
    /// `required-projects` add to the value before, and `files`, `irrelevant-files` and
    /// `dependencies` replace it, unless a tag (`!override`, `!inherit`) says otherwise.
    /// `semaphores` always adds; of two uses of one semaphore the first stays. A nonempty
    /// `allowed-projects` narrows the one before, but has no effect if the definition uses secrets
    /// in an untrusted project. Unknown projects are left out without an error, so
    /// `allowed-projects` with none but these allows no project.
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
            let given = required.value.iter().filter_map(|requested| {
                let found = self.layout.project(&requested.name)?;
                Some(RequiredProject {
                    connection: found.connection.clone(),
                    project: found.name.clone(),
                    override_checkout: requested.override_checkout.clone().map(BranchName),
                })
            });
            put_last(&mut self.job.required_projects, given, |required| required.project.clone());
        }
        // If the definition has secrets of its own untrusted project, `allowed-projects` has no
        // effect (see `playbooks`).
        let is_own_only =
            from.secrets.iter().flatten().next().is_some() && !origin.source.trust.is_trusted();
        // An empty list restricts nothing.
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

    /// Restricts the job to these projects, within earlier restrictions: a child narrows what its
    /// parents allow and never widens it. With an empty list, no project may run the job.
    pub(super) fn allow_only(&mut self, names: Vec<ProjectName>) {
        self.allowed_projects = Some(match self.allowed_projects.take() {
            None => names,
            Some(before) => {
                let names: BTreeSet<ProjectName> = names.into_iter().collect();
                before.into_iter().filter(|name| names.contains(name)).collect()
            }
        });
    }

    /// Puts the roles of a definition before those of earlier definitions. Each project stays once,
    /// with the newest settings. A `job` stanza implies its own repository, which an entry does
    /// not. Of roles from Ansible Galaxy only equal ones are merged. Unknown projects are left out
    /// without an error.
    fn roles(&mut self, from: &JobStanza, origin: &Origin<'_>) {
        let source = origin.source;
        // As in Zuul, a definition implies its own repository's roles, and an entry adds only the
        // roles it names.
        let mut roles = match origin.form {
            Form::Entry => Vec::new(),
            Form::Definition => vec![RoleUse::Zuul(RoleRepository {
                connection: source.connection.clone(),
                project: source.project.clone(),
                target_name: source.project.role_name().to_owned(),
                implicit: true,
            })],
        };
        let mut given = Vec::new();
        for role in from.roles.iter().flatten() {
            match &role.source {
                RoleSource::Zuul(name) => {
                    let Some(found) = self.layout.project(name) else {
                        continue;
                    };
                    given.push(RoleUse::Zuul(RoleRepository {
                        connection: found.connection.clone(),
                        project: found.name.clone(),
                        target_name: role
                            .name
                            .clone()
                            .unwrap_or_else(|| found.name.short_name().to_owned()),
                        implicit: false,
                    }));
                }
                RoleSource::Galaxy(name) => given.push(RoleUse::Galaxy(GalaxyRole {
                    galaxy: name.clone(),
                    target_name: role.name.clone(),
                    project: source.project.clone(),
                    trusted: source.trust.is_trusted(),
                })),
            }
        }
        put_last(&mut roles, given, RoleKey::of);
        // A child's roles come first, and its parent's stay (Z4.6).
        let named: BTreeSet<RoleKey> = roles.iter().map(RoleKey::of).collect();
        let inherited = std::mem::take(&mut self.roles);
        roles.extend(inherited.into_iter().filter(|role| !named.contains(&RoleKey::of(role))));
        self.roles = roles;
    }

    /// Merges the variables of a definition (`vars`, `extra-vars`, `host-vars`, `group-vars`) into
    /// those of earlier definitions. Nested mappings merge, other values are replaced. With the tag
    /// `!override`, an attribute drops its earlier variables.
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

/// What makes two roles of a job one: the newest stays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum RoleKey {
    /// A repository, whatever its name for playbooks.
    Repository(ProjectName),
    /// What is installed, where to, and who asks for it: trusted playbooks do not see what others
    /// ask for.
    Galaxy(String, Option<String>, ProjectName),
}

impl RoleKey {
    /// Returns the key of a role.
    fn of(role: &RoleUse) -> Self {
        match role {
            RoleUse::Zuul(role) => Self::Repository(role.project.clone()),
            RoleUse::Galaxy(GalaxyRole { galaxy, target_name, project, .. }) => {
                Self::Galaxy(galaxy.clone(), target_name.clone(), project.clone())
            }
        }
    }
}

/// Replaces the value in `slot` if a new one is given; `None` changes nothing.
pub(super) fn set<T>(slot: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *slot = value;
    }
}

/// Adds the given values to `into`, which becomes sorted and free of duplicates. With the tag
/// `!override`, the values before are dropped. `None` changes nothing, not even the order.
fn union(into: &mut Vec<String>, given: &Option<Combined<Vec<String>>>) {
    let Some(given) = given else { return };
    if !given.adds(Combine::Inherit) {
        into.clear();
    }
    into.extend(given.value.iter().cloned());
    into.sort();
    into.dedup();
}

/// Replaces the values in `into`, or appends to them with the tag `!inherit`. `None` changes
/// nothing.
fn replace<T: Clone>(into: &mut Vec<T>, given: &Option<Combined<Vec<T>>>) {
    let Some(given) = given else { return };
    if !given.adds(Combine::Override) {
        into.clear();
    }
    into.extend(given.value.iter().cloned());
}

/// Merges `from` into `into`: mappings merge recursively, other values are replaced.
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

/// Appends the members in `given` to `into`. Of members with the same key, only the last one stays,
/// in its place; this also applies to the members that `into` had before.
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
