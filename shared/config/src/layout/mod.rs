//! A tenant's layout: all its configuration put together, ready to be asked (Z2.1).
//!
//! A layout is a function of its [`LayoutSources`]. [`ground`] puts files in order, [`settle`]
//! decides which stanza stands where several claim a name, `check` follows references,
//! [`providers`] resolves what nodes are made of; `build` does all of that for a whole tenant and
//! [`overlay`] for an edit. Names are looked up in the overlay first and then in what lies below.
//! What is not carried out yet is in `unserved`.

pub(crate) mod alternatives;
mod ask;
mod barriers;
mod build;
mod check;
mod ground;
mod kept;
mod moved;
mod overlay;
pub mod providers;
mod settle;
mod shapes;
mod shelf;
mod stored;
mod suppose;
mod unread;
mod unserved;

pub(crate) use check::{NOOP, foreign_image, held_twice};
pub use moved::Moved;
pub use providers::{
    ImageConfig, ImageNode, LabelConfig, ProviderConfig, SectionQuota, StaticNode,
};
pub use stored::LayoutDecodeError;

use crate::connection::Connections;
use crate::error::{ConfigError, Problem, Severity};
use crate::fragment::{Fragment, Source, Trust};
use crate::objects::{ObjectKind, ProjectStanza, Stanza};
use crate::pipeline::Pipeline;
use crate::tenant::TenantConfig;
use ground::{File, FilePlace, Ground, sameness};
use overlay::Over;
use serde::{Deserialize, Serialize};
use settle::Object;
use shelf::{Entry, Shelves, Unit};
use sluice_model::{BranchName, ProjectName, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// What a layout is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutSources {
    /// The tenant.
    pub tenant: TenantConfig,
    /// The system's connections.
    pub connections: Connections,
    /// The branches of each project that the tenant does not leave out, its default branch first; a
    /// project that is missing has those that its fragments come from.
    pub branches: BTreeMap<ProjectName, Vec<BranchName>>,
    /// Every configuration file of the tenant. Order counts within one project and branch only.
    pub fragments: Vec<Arc<Fragment>>,
}

/// A tenant's configuration with all names resolved. Objects with mistakes are left out; the
/// mistakes are kept.
#[derive(Debug, Clone)]
pub struct Layout {
    base: Arc<Base>,
    over: Option<Arc<Over>>,
    /// Made when somebody asks: of an overlay few want them, and all of them cost as much as the
    /// tenant is large.
    id: OnceLock<String>,
    errors: OnceLock<Vec<ConfigError>>,
    fragments: OnceLock<Vec<Arc<Fragment>>>,
}

/// A whole tenant as its repositories have it, with nothing laid over it.
#[derive(Debug)]
struct Base {
    id: String,
    /// By what its files were parsed ([`shapes::name`]).
    parsed_by: u64,
    ground: Ground,
    /// In the order of configuration.
    files: Vec<File>,
    shelves: Shelves,
    /// What is wrong with files, and why stanzas may not stand.
    settled: build::Problems,
    /// What is wrong with references.
    checked: build::Problems,
    pipelines: Vec<Pipeline>,
    providers: Vec<ProviderConfig>,
    provider_errors: Vec<ConfigError>,
    /// Which stanza asked for which name, by the name's short hash; sorted.
    references: Vec<(u32, Unit)>,
}

impl Base {
    fn file(&self, number: u32) -> Option<&File> {
        self.files.get(number as usize)
    }

    /// Returns the files of one project with their numbers; they stand together.
    fn files_of(&self, project: usize) -> impl Iterator<Item = (u32, &File)> + Clone {
        let first = self.files.partition_point(|file| file.place.project < project);
        let files = self
            .files
            .iter()
            .enumerate()
            .skip(first)
            .take_while(move |(_, file)| file.place.project == project);
        files.map(|(number, file)| (u32::try_from(number).unwrap_or(u32::MAX), file))
    }

    /// Returns the stanzas that asked for a name of this short hash, and perhaps a few that did
    /// not.
    fn referring(&self, hash: u32) -> impl Iterator<Item = Unit> {
        let first = self.references.partition_point(|(known, _)| *known < hash);
        self.references
            .iter()
            .skip(first)
            .take_while(move |(known, _)| *known == hash)
            .map(|(_, unit)| *unit)
    }
}

/// All files that count, by their numbers.
#[derive(Debug, Clone, Copy)]
struct Files<'l> {
    base: &'l [File],
    more: &'l [File],
}

impl<'l> Files<'l> {
    fn of(files: &'l [File]) -> Self {
        Self { base: files, more: &[] }
    }

    fn get(self, number: u32) -> Option<&'l File> {
        let number = number as usize;
        self.base.get(number).or_else(|| self.more.get(number.checked_sub(self.base.len())?))
    }

    fn object<T: Object>(self, unit: Unit) -> Option<&'l T> {
        T::of(self.get(unit.file)?.fragment.stanza(unit.stanza as usize)?)
    }

    /// Returns what the order of configuration compares.
    fn place(self, unit: Unit) -> (Option<&'l FilePlace>, Unit) {
        (self.get(unit.file).map(|file| &file.place), unit)
    }
}

/// Where a mistake stands: a file, or a stanza of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Spot {
    file: u32,
    stanza: Option<u32>,
}

impl Spot {
    fn of(unit: Unit) -> Self {
        Self { file: unit.file, stanza: Some(unit.stanza) }
    }

    fn of_file(number: usize) -> Self {
        Self { file: u32::try_from(number).unwrap_or(u32::MAX), stanza: None }
    }

    fn unit(self) -> Option<Unit> {
        self.stanza.map(|stanza| Unit { file: self.file, stanza })
    }
}

/// Where something is that definitions are chosen for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum On<'a> {
    /// On a branch.
    Branch(&'a str),
    /// On none, in the history of these: a tag. As in Zuul a definition is for it that is for one
    /// of them.
    Within(&'a [BranchName]),
    /// Nobody knows on which: whatever is bound to some branch may be meant.
    Unknown,
}

impl<'a> On<'a> {
    /// Returns the place of what is on a branch; `None` where that is not known.
    pub(crate) fn branch(branch: Option<&'a str>) -> Self {
        branch.map_or(Self::Unknown, Self::Branch)
    }

    /// Returns whether it is on a branch that is meant.
    pub(crate) fn is_any(self, is_meant: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Branch(branch) => is_meant(branch),
            Self::Within(branches) => branches.iter().any(|branch| is_meant(branch.as_str())),
            Self::Unknown => true,
        }
    }
}

/// An object with the file it comes from.
#[derive(Debug)]
pub(crate) struct Defined<'l, T> {
    file: &'l File,
    pub(crate) object: &'l T,
}

impl<T> Clone for Defined<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Defined<'_, T> {}

impl<'l, T> Defined<'l, T> {
    pub(crate) fn source(self) -> &'l Source {
        self.file.source()
    }

    /// Returns whether it is bound to where something is, or to nowhere.
    pub(crate) fn matches_implied(self, on: On<'_>) -> bool {
        let Some(patterns) = &self.file.implied else { return true };
        on.is_any(|branch| patterns.iter().any(|pattern| pattern.matches(branch)))
    }
}

impl Defined<'_, ProjectStanza> {
    /// Returns whether a stanza of a project, which names no branch, is for what is there: what an
    /// untrusted repository says of its own project is for the branch that says it, whatever
    /// pragmas and the tenant say of implied branches.
    pub(crate) fn is_implied_for(self, project: &ProjectName, on: On<'_>) -> bool {
        let source = self.source();
        if source.project == *project && source.trust == Trust::Untrusted {
            return !self.file.branched || on.is_any(|branch| source.branch.as_str() == branch);
        }
        self.matches_implied(on)
    }
}

/// What the shared queue of a project allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSettings {
    /// Its name; the project's canonical name where none is given.
    pub name: QueueName,
    /// Whether each branch has a queue of its own.
    pub per_branch: bool,
    /// Whether changes may depend on each other in a circle.
    pub allow_circular_dependencies: bool,
    /// Whether changes of one topic depend on each other.
    pub dependencies_by_topic: bool,
}

/// The proposed configuration of one branch of a project, all its files.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchConfig {
    /// The project.
    pub project: ProjectName,
    /// The branch.
    pub branch: BranchName,
    /// Its configuration files as they would be.
    pub fragments: Vec<Arc<Fragment>>,
}

/// Which proposed configuration counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// That of untrusted projects: what a change is tested with.
    UntrustedOnly,
    /// All of it: only to find mistakes before they are merged (C06), never to run.
    ToValidate,
}

impl Layout {
    /// Puts fragments together. It never fails: what is wrong is left out and kept in
    /// [`Layout::errors`].
    pub fn build(sources: LayoutSources) -> Self {
        build::build(sources)
    }

    /// Returns the layout of a tenant for which there are neither connections nor files.
    pub fn empty(tenant: TenantConfig) -> Self {
        let (connections, branches) = (Connections::new(), BTreeMap::new());
        Self::build(LayoutSources { tenant, connections, branches, fragments: Vec::new() })
    }

    fn of(base: Arc<Base>) -> Self {
        Self {
            base,
            over: None,
            id: OnceLock::new(),
            errors: OnceLock::new(),
            fragments: OnceLock::new(),
        }
    }

    /// Returns the name of its content: equal sources have equal ids.
    pub fn id(&self) -> &str {
        match &self.over {
            None => &self.base.id,
            Some(_) => self.id.get_or_init(|| {
                build::content_id(&self.base.ground, self.files().map(|(_, file)| file))
            }),
        }
    }

    /// Returns the layout as it would be with proposed configuration (Z6.6).
    ///
    /// Its cost is that of the edit: files that are as they were are not looked at. What nodes are
    /// made of stays as it is merged unless the scope is [`Scope::ToValidate`] (L3.3).
    #[must_use]
    pub fn overlay(&self, proposed: &[BranchConfig], scope: Scope) -> Self {
        overlay::overlay(self, proposed, scope)
    }

    /// Returns the mistakes, in the order of configuration; those of providers last.
    pub fn errors(&self) -> &[ConfigError] {
        self.errors.get_or_init(|| {
            let mut errors = self.found_errors();
            if unread::concerns(&errors) {
                let all = errors.clone();
                unread::reword(&mut errors, &all);
            }
            errors
        })
    }

    /// Returns them as each was found, whatever others say of its cause.
    fn found_errors(&self) -> Vec<ConfigError> {
        let files = self.numbered();
        let mut found: Vec<(Spot, ConfigError)> = self.problems().collect();
        if self.over.is_some() {
            let place = |spot: Spot| files.get(spot.file).map(|file| &file.place);
            found.sort_by(|(one, _), (other, _)| {
                (place(*one), one.stanza).cmp(&(place(*other), other.stanza))
            });
        }
        let found = found.into_iter().map(|(_, error)| error);
        found.chain(self.provider_errors().iter().cloned()).collect()
    }

    /// Returns the mistakes that `before` did not have: those that a change brings in. Warnings are
    /// left out.
    ///
    /// A mistake that only moved within its file is not new. Of an overlay and what it was laid
    /// over, only what the edit touched is compared.
    pub fn errors_since(&self, before: &Layout) -> Vec<ConfigError> {
        let (old, new) = match &self.over {
            Some(over) if before.over.is_none() && Arc::ptr_eq(&self.base, &before.base) => {
                self.touched_errors(over)
            }
            // A name that was missing before is no other mistake for a definition that cannot be
            // read.
            _ => (before.found_errors(), self.found_errors()),
        };
        let known: BTreeSet<_> = old.iter().map(sameness).collect();
        let is_new = |error: &&ConfigError| {
            error.problem.severity == Severity::Error && !known.contains(&sameness(error))
        };
        let mut found: Vec<ConfigError> = new.iter().filter(is_new).cloned().collect();
        // Where the definition is, nothing may have changed: then its mistake is among all there
        // are.
        if unread::concerns(&found) {
            unread::reword(&mut found, self.errors());
        }
        found
    }

    /// Returns the mistakes of the files that an overlay touched, before and after.
    fn touched_errors(&self, over: &Over) -> (Vec<ConfigError>, Vec<ConfigError>) {
        let touched = over.resettled.iter().chain(&over.rechecked).map(|unit| unit.file);
        let touched: BTreeSet<u32> = touched.chain(over.removed.iter().copied()).collect();
        let base = &self.base;
        let of_file = |number: &u32| {
            let file = base.file(*number);
            let spots = Spot { file: *number, stanza: None }..=Spot {
                file: *number,
                stanza: Some(u32::MAX),
            };
            let problems = base
                .settled
                .range(spots.clone())
                .chain(base.checked.range(spots))
                .flat_map(|(_, found)| found);
            problems
                .filter_map(move |problem| Some(file?.source().error(problem.clone())))
                .collect::<Vec<_>>()
        };
        let mut old: Vec<ConfigError> = touched.iter().flat_map(of_file).collect();
        let files = self.numbered();
        let new = over
            .problems
            .iter()
            .flat_map(|(spot, found)| found.iter().map(move |problem| (spot, problem)));
        let mut new: Vec<ConfigError> = new
            .filter_map(|(spot, problem)| {
                Some(files.get(spot.file)?.source().error(problem.clone()))
            })
            .collect();
        if let Some((_, errors)) = &over.providers {
            old.extend(base.provider_errors.iter().cloned());
            new.extend(errors.iter().cloned());
        }
        (old, new)
    }

    /// Returns every mistake of files and stanzas.
    fn problems(&self) -> impl Iterator<Item = (Spot, ConfigError)> {
        let files = self.numbered();
        let over = self.over.as_deref();
        let counts = move |spot: Spot, again: fn(&Over) -> &BTreeSet<Unit>| {
            over.is_none_or(|over| {
                !over.removed.contains(&spot.file)
                    && spot.unit().is_none_or(|unit| !again(over).contains(&unit))
            })
        };
        // Those of one stanza side by side.
        let mut all: BTreeMap<Spot, Vec<&Problem>> = BTreeMap::new();
        let settled = self
            .base
            .settled
            .iter()
            .filter(move |(spot, _)| counts(**spot, |over| &over.resettled));
        let checked = self
            .base
            .checked
            .iter()
            .filter(move |(spot, _)| counts(**spot, |over| &over.rechecked));
        for (spot, found) in
            settled.chain(checked).chain(over.iter().flat_map(|over| &over.problems))
        {
            all.entry(*spot).or_default().extend(found);
        }
        all.into_iter().flat_map(move |(spot, found)| {
            let source = files.get(spot.file).map(File::source);
            found
                .into_iter()
                .filter_map(move |problem| Some((spot, source?.error(problem.clone()))))
        })
    }

    fn provider_errors(&self) -> &[ConfigError] {
        let over = self.over.as_deref().and_then(|over| over.providers.as_ref());
        over.map_or(&self.base.provider_errors, |(_, errors)| errors)
    }

    fn numbered(&self) -> Files<'_> {
        Files {
            base: &self.base.files,
            more: self.over.as_deref().map(|over| over.files.as_slice()).unwrap_or_default(),
        }
    }

    /// Returns its files in the order of configuration, with their numbers.
    fn files(&self) -> impl Iterator<Item = (u32, &File)> {
        let over = self.over.as_deref();
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let base =
            self.base.files.iter().enumerate().map(move |(index, file)| (number(index), file));
        let base =
            base.filter(move |(number, _)| over.is_none_or(|over| !over.removed.contains(number)));
        let more = over.into_iter().flat_map(|over| &over.files).enumerate();
        let more = more.map(move |(index, file)| (number(self.base.files.len() + index), file));
        let mut all: Vec<(u32, &File)> = base.chain(more).collect();
        if over.is_some() {
            all.sort_by(|(_, one), (_, other)| one.place.cmp(&other.place));
        }
        all.into_iter()
    }

    /// Returns what lays claim to a name.
    fn entry(&self, kind: ObjectKind, name: &str) -> Option<&Entry> {
        let over = self.over.as_deref().and_then(|over| over.shelves.get(kind, name));
        over.or_else(|| self.base.shelves.get(kind, name))
    }

    /// Returns the names of a kind that something stands under.
    fn names(&self, kind: ObjectKind) -> impl Iterator<Item = &str> {
        let over = self.over.as_deref();
        let below = self.base.shelves.of(kind);
        let below = below.filter(move |(name, _)| {
            over.is_none_or(|over| over.shelves.get(kind, name).is_none())
        });
        let above = over.into_iter().flat_map(move |over| over.shelves.of(kind));
        below.chain(above).filter(|(_, entry)| !entry.accepted.is_empty()).map(|(name, _)| name)
    }

    fn stanza(&self, unit: Unit) -> Option<(&File, &Stanza)> {
        let file = self.numbered().get(unit.file)?;
        Some((file, file.fragment.stanza(unit.stanza as usize)?))
    }

    fn defined<T: Object>(&self, unit: Unit) -> Option<Defined<'_, T>> {
        let (file, stanza) = self.stanza(unit)?;
        Some(Defined { file, object: T::of(stanza)? })
    }

    /// Returns what stands under a name, in the order of configuration.
    fn under<'l, T: Object>(
        &'l self,
        kind: ObjectKind,
        name: &str,
    ) -> impl Iterator<Item = Defined<'l, T>> + use<'l, T> {
        let units =
            self.entry(kind, name).map(|entry| entry.accepted.as_slice()).unwrap_or_default();
        units.iter().filter_map(|unit| self.defined(*unit))
    }

    /// Returns the object of which there is one by that name.
    fn one<T: Object>(&self, kind: ObjectKind, name: &str) -> Option<Defined<'_, T>> {
        self.under(kind, name).next()
    }

    /// Returns everything of a kind that stands, in the order of configuration.
    fn standing<T: Object>(&self, kind: ObjectKind) -> Vec<Defined<'_, T>> {
        let mut units: Vec<Unit> = self
            .names(kind)
            .flat_map(|name| {
                self.entry(kind, name).map(|entry| entry.accepted.as_slice()).unwrap_or_default()
            })
            .copied()
            .collect();
        units.sort_by(|one, other| self.numbered().place(*one).cmp(&self.numbered().place(*other)));
        units.into_iter().filter_map(|unit| self.defined(unit)).collect()
    }

    /// Returns what could be read of the stanzas of a kind that stand nowhere for their mistakes,
    /// in the order of configuration.
    fn faulty<T: Object>(&self, kind: ObjectKind) -> Vec<Defined<'_, T>> {
        let mut found = Vec::new();
        for (_, file) in self.files() {
            // What the tenant does not read of a project is not looked at any further.
            let is_read = || {
                self.base
                    .ground
                    .project_of(file)
                    .is_some_and(|project| project.kinds.contains(&kind))
            };
            let stanzas =
                file.fragment.faulty().filter(|stanza| stanza.kind() == Some(kind) && is_read());
            found.extend(
                stanzas.filter_map(|stanza| Some(Defined { file, object: T::of(stanza)? })),
            );
        }
        found
    }

    /// Returns the same layout with nothing laid over another.
    fn flattened(&self) -> Self {
        let ground = &self.base.ground;
        Self::build(LayoutSources {
            tenant: ground.tenant.clone(),
            connections: ground.connections.clone(),
            branches: ground.branches.clone(),
            fragments: self.fragments().to_vec(),
        })
    }

    /// Returns it as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        stored::to_bytes(self)
    }

    /// Returns the layout of stored bytes. Stanzas are read when they are asked for.
    ///
    /// # Errors
    /// When the bytes are damaged or of another version; then the layout is to be built again.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LayoutDecodeError> {
        stored::from_bytes(bytes)
    }
}
