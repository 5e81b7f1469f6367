//! A tenant's layout: all its configuration combined, ready for queries (Z2.1).
//!
//! A layout is a function of its [`LayoutSources`]. [`inputs`] orders the files, [`resolve_names`]
//! decides which stanza wins where several define a name, `check` checks references, and
//! [`providers`] resolves providers. `build` does this for a whole tenant, [`overlay`] for a
//! proposed edit. Names are looked up in the overlay first and then in the layout below.
//! `ignored_attributes` warns of what Sluice does not support yet.

mod build;
mod carry_over;
mod changes;
mod check;
pub(crate) mod flatten_nodesets;
mod ignored_attributes;
mod inheritance_rules;
mod inputs;
mod label_offers;
mod missing_definitions;
mod overlay;
mod placeholders;
pub mod providers;
mod queries;
mod resolve_names;
mod schema_version;
mod stored;
mod symbol_table;

pub use changes::LayoutChanges;
pub(crate) use check::{NOOP, foreign_image_error, semaphore_used_twice};
pub use ignored_attributes::{IGNORED_ATTRIBUTES, IGNORED_DRIVER_OBJECTS, IgnoredAttribute};
pub use label_offers::{LabelOffer, LabelOffers};
pub use providers::{
    ImageConfig, ImageNode, LabelConfig, ProviderConfig, SectionQuota, StaticNode,
};
pub use stored::LayoutDecodeError;

use crate::connection::Connections;
use crate::error::{ConfigError, Diagnostic, Severity};
use crate::fragment::{Fragment, Source, Trust};
use crate::objects::{ObjectKind, ProjectStanza, Stanza};
use crate::pipeline::Pipeline;
use crate::tenant::TenantConfig;
use inputs::{File, FileOrder, LayoutInputs, identity};
use overlay::Overlay;
use resolve_names::Object;
use serde::{Deserialize, Serialize};
use sluice_model::{BranchName, ProjectName, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use symbol_table::{StanzaId, Symbol, SymbolTable};

/// The sources that a layout is built from.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutSources {
    /// The tenant.
    pub tenant: TenantConfig,
    /// The system's connections.
    pub connections: Connections,
    /// The branches of each project that the tenant does not exclude, its default branch first. A
    /// project that is missing here has the branches of its fragments.
    pub branches: BTreeMap<ProjectName, Vec<BranchName>>,
    /// Every configuration file of the tenant. Order counts within one project and branch only.
    pub fragments: Vec<Arc<Fragment>>,
}

/// A tenant's configuration with all names resolved. Invalid objects are left out, and
/// [`Layout::errors`] reports them.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The layout of the merged configuration.
    base: Arc<BaseLayout>,
    /// The proposed changes to it; `None` for merged configuration.
    overlay: Option<Arc<Overlay>>,
    /// Computed on first use: an overlay rarely needs it, and it costs time proportional to the
    /// tenant.
    id: OnceLock<String>,
    errors: OnceLock<Vec<ConfigError>>,
    fragments: OnceLock<Vec<Arc<Fragment>>>,
}

/// The layout of a tenant's merged configuration, without an overlay.
#[derive(Debug)]
struct BaseLayout {
    /// The content hash of the layout.
    id: String,
    /// The version of the parser that parsed its files ([`schema_version::parser_version`]).
    parsed_by: u64,
    /// The inputs that no file changes.
    inputs: LayoutInputs,
    /// The files in configuration order.
    files: Vec<File>,
    /// The stanzas by kind and name.
    symbols: SymbolTable,
    /// Errors in files, and the reasons why stanzas were rejected.
    resolution: build::SiteDiagnostics,
    /// Errors in references.
    checked: build::SiteDiagnostics,
    /// The pipelines in configuration order.
    pipelines: Vec<Pipeline>,
    /// The providers with all references resolved.
    providers: Vec<ProviderConfig>,
    /// Errors found while providers were resolved.
    provider_errors: Vec<ConfigError>,
    /// Which stanza references which name, as the hash of the name; sorted.
    references: Vec<(u32, StanzaId)>,
}

impl BaseLayout {
    /// Returns the file with a number; `None` if there is none.
    fn file(&self, number: u32) -> Option<&File> {
        self.files.get(number as usize)
    }

    /// Returns the files of one project, given by its rank ([`LayoutInputs::project`]), with their
    /// numbers, in configuration order. They are adjacent. Empty if the project has no files.
    fn files_of(&self, project: usize) -> impl Iterator<Item = (u32, &File)> + Clone {
        let first = self.files.partition_point(|file| file.sort_key.project < project);
        let files = self
            .files
            .iter()
            .enumerate()
            .skip(first)
            .take_while(move |(_, file)| file.sort_key.project == project);
        files.map(|(number, file)| (u32::try_from(number).unwrap_or(u32::MAX), file))
    }

    /// Returns the stanzas of the merged configuration that reference a name with this hash, and
    /// possibly others whose names collide.
    fn referring(&self, hash: u32) -> impl Iterator<Item = StanzaId> {
        let first = self.references.partition_point(|(referenced, _)| *referenced < hash);
        self.references
            .iter()
            .skip(first)
            .take_while(move |(referenced, _)| *referenced == hash)
            .map(|(_, stanza_id)| *stanza_id)
    }
}

/// All files in effect, by number: those of the base layout, then those of the overlay.
#[derive(Debug, Clone, Copy)]
struct Files<'l> {
    /// The files of the base layout.
    base: &'l [File],
    /// The files of the overlay.
    more: &'l [File],
}

impl<'l> Files<'l> {
    /// Returns the files of a base layout without an overlay.
    fn of(files: &'l [File]) -> Self {
        Self { base: files, more: &[] }
    }

    /// Returns the file of a number; `None` if there is none.
    fn get(self, number: u32) -> Option<&'l File> {
        let number = number as usize;
        self.base.get(number).or_else(|| self.more.get(number.checked_sub(self.base.len())?))
    }

    /// Returns the object that a stanza defines; `None` if there is no such stanza or it is of
    /// another kind than `T`.
    fn object<T: Object>(self, stanza_id: StanzaId) -> Option<&'l T> {
        T::of(self.get(stanza_id.file)?.fragment.stanza(stanza_id.stanza as usize)?)
    }

    /// Returns the key that sorts stanzas in configuration order; a stanza of an unknown file comes
    /// first.
    fn sort_key(self, stanza_id: StanzaId) -> (Option<&'l FileOrder>, StanzaId) {
        (self.get(stanza_id.file).map(|file| &file.sort_key), stanza_id)
    }
}

/// The subject of a diagnostic: a file, or one stanza of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct DiagnosticSite {
    /// The number of the file.
    file: u32,
    /// The index of the stanza; `None` for the whole file.
    stanza: Option<u32>,
}

impl DiagnosticSite {
    /// Returns the place of a stanza.
    fn of(stanza_id: StanzaId) -> Self {
        Self { file: stanza_id.file, stanza: Some(stanza_id.stanza) }
    }

    /// Returns the place of a whole file.
    fn of_file(number: usize) -> Self {
        Self { file: u32::try_from(number).unwrap_or(u32::MAX), stanza: None }
    }

    /// Returns the stanza that the diagnostic is about; `None` if it is about a whole file.
    fn stanza_id(self) -> Option<StanzaId> {
        self.stanza.map(|stanza| StanzaId { file: self.file, stanza })
    }
}

/// The branches that definitions are selected for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BranchContext<'a> {
    /// A branch.
    Branch(&'a str),
    /// A tag that these branches contain. As in Zuul, a definition applies if it applies to one of
    /// them.
    Containing(&'a [BranchName]),
    /// Unknown: a definition that is bound to any branch may apply.
    Unknown,
}

impl<'a> BranchContext<'a> {
    /// Returns the context of a branch; `Unknown` for `None`.
    pub(crate) fn branch(branch: Option<&'a str>) -> Self {
        branch.map_or(Self::Unknown, Self::Branch)
    }

    /// Returns whether `matches_branch` returns true for a branch of the context. Always true if
    /// the branches are unknown, and always false if no branch contains the tag.
    pub(crate) fn is_any(self, matches_branch: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Branch(branch) => matches_branch(branch),
            Self::Containing(branches) => {
                branches.iter().any(|branch| matches_branch(branch.as_str()))
            }
            Self::Unknown => true,
        }
    }
}

/// An object with the file that defines it.
#[derive(Debug)]
pub(crate) struct Definition<'l, T> {
    file: &'l File,
    pub(crate) object: &'l T,
}

impl<T> Clone for Definition<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Definition<'_, T> {}

impl<'l, T> Definition<'l, T> {
    /// Returns the source of the file that contains the definition.
    pub(crate) fn source(self) -> &'l Source {
        self.file.source()
    }

    /// Returns whether definitions in the file that name no branches apply to the given branches:
    /// whether one of the file's implied branches matches one of them. Also true if the file
    /// implies no branches or the given branches are unknown. The `branches` of the definition
    /// itself are ignored.
    pub(crate) fn matches_implied(self, on: BranchContext<'_>) -> bool {
        let Some(patterns) = &self.file.implied else { return true };
        on.is_any(|branch| patterns.iter().any(|pattern| pattern.matches(branch)))
    }
}

impl Definition<'_, ProjectStanza> {
    /// Returns whether a project stanza without `branches` applies to a project on the given
    /// branches. In an untrusted project, a stanza about the project itself applies only to the
    /// branch that holds it, whatever pragmas and the tenant say about implied branches, or to all
    /// if there is no other branch. Any other stanza applies as [`Self::matches_implied`] says.
    /// True if the branches are unknown. The stanza's own `branches` are ignored.
    pub(crate) fn is_implied_for(self, project: &ProjectName, on: BranchContext<'_>) -> bool {
        let source = self.source();
        if source.project == *project && source.trust == Trust::Untrusted {
            return !self.file.branched || on.is_any(|branch| source.branch.as_str() == branch);
        }
        self.matches_implied(on)
    }
}

/// The settings of a project's shared queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSettings {
    /// Its name; the canonical name of the project by default.
    pub name: QueueName,
    /// Whether each branch has a queue of its own.
    pub per_branch: bool,
    /// Whether dependency cycles between changes are allowed.
    pub allow_circular_dependencies: bool,
    /// Whether changes with the same topic depend on each other.
    pub dependencies_by_topic: bool,
}

/// The proposed configuration of one branch: all its files.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchConfig {
    /// The project.
    pub project: ProjectName,
    /// The branch.
    pub branch: BranchName,
    /// Its configuration files as proposed.
    pub fragments: Vec<Arc<Fragment>>,
}

/// Which proposed configuration takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only that of untrusted projects: a change is tested with it.
    UntrustedOnly,
    /// That of every project: only to validate it before it is merged (C06), never to run it.
    ToValidate,
}

impl Layout {
    /// Builds a layout from fragments. Never fails: invalid objects are left out, and
    /// [`Layout::errors`] reports them.
    pub fn build(sources: LayoutSources) -> Self {
        build::build(sources)
    }

    /// Returns the layout of a tenant without connections and files.
    pub fn empty(tenant: TenantConfig) -> Self {
        let (connections, branches) = (Connections::new(), BTreeMap::new());
        Self::build(LayoutSources { tenant, connections, branches, fragments: Vec::new() })
    }

    /// Returns a layout without an overlay.
    fn of(base: Arc<BaseLayout>) -> Self {
        Self {
            base,
            overlay: None,
            id: OnceLock::new(),
            errors: OnceLock::new(),
            fragments: OnceLock::new(),
        }
    }

    /// Returns the content hash: of the tenant, the connections, the branches and all files, with
    /// the overlay applied, and of the parser's version. Layouts that one version of the program
    /// builds from equal sources have equal ids.
    pub fn id(&self) -> &str {
        match &self.overlay {
            None => &self.base.id,
            Some(_) => self.id.get_or_init(|| {
                build::content_id(&self.base.inputs, self.files().map(|(_, file)| file))
            }),
        }
    }

    /// Returns the layout with proposed configuration applied (Z6.6). Each proposal replaces all
    /// files of its branch; earlier proposals stay unless their branch is proposed again. Proposals
    /// are ignored for unknown projects, for branches from which the tenant takes no configuration,
    /// and for config projects unless the scope is [`Scope::ToValidate`]. Without that scope,
    /// provider configuration stays as merged (L3.3). If nothing changes, the result is the layout
    /// without an overlay.
    ///
    /// Costs time proportional to the edit: unchanged files are not checked again.
    #[must_use]
    pub fn overlay(&self, proposed: &[BranchConfig], scope: Scope) -> Self {
        overlay::overlay(self, proposed, scope)
    }

    /// Returns the errors and warnings in configuration order; those of providers last. An error
    /// about an undefined name whose definition is itself invalid says so instead. Empty does not
    /// mean that every attribute is supported: [`Layout::ignored_attributes`] warns of those.
    pub fn errors(&self) -> &[ConfigError] {
        self.errors.get_or_init(|| {
            let mut errors = self.found_errors();
            if missing_definitions::may_need_rewording(&errors) {
                let all = errors.clone();
                missing_definitions::explain_missing(&mut errors, &all);
            }
            errors
        })
    }

    /// Returns the errors and warnings as found, without explanations for missing definitions. They
    /// are in configuration order; those of providers are last.
    fn found_errors(&self) -> Vec<ConfigError> {
        let files = self.numbered();
        let mut found: Vec<(DiagnosticSite, ConfigError)> = self.diagnostics().collect();
        if self.overlay.is_some() {
            let sort_key = |site: DiagnosticSite| files.get(site.file).map(|file| &file.sort_key);
            found.sort_by(|(one, _), (other, _)| {
                (sort_key(*one), one.stanza).cmp(&(sort_key(*other), other.stanza))
            });
        }
        let found = found.into_iter().map(|(_, error)| error);
        found.chain(self.provider_errors().iter().cloned()).collect()
    }

    /// Returns the errors that `before` did not have: those that a change introduces. Warnings are
    /// left out. Errors with the same file, stanza and message are the same, so an error that only
    /// moved within its file is not new. If this layout is an overlay over `before`, only what the
    /// edit touched is compared.
    pub fn errors_since(&self, before: &Layout) -> Vec<ConfigError> {
        let (old, new) = match &self.overlay {
            Some(overlay) if before.overlay.is_none() && Arc::ptr_eq(&self.base, &before.base) => {
                self.touched_errors(overlay)
            }
            // A name that was undefined before is the same error if its definition now does not
            // parse.
            _ => (before.found_errors(), self.found_errors()),
        };
        let old_identities: BTreeSet<_> = old.iter().map(identity).collect();
        let is_new = |error: &&ConfigError| {
            error.diagnostic.severity == Severity::Error
                && !old_identities.contains(&identity(error))
        };
        let mut found: Vec<ConfigError> = new.iter().filter(is_new).cloned().collect();
        // The definition may be in an unchanged file, so the errors of the whole layout are needed.
        if missing_definitions::may_need_rewording(&found) {
            missing_definitions::explain_missing(&mut found, self.errors());
        }
        found
    }

    /// Returns two lists of errors and warnings. The first has all those of the base layout in the
    /// files that `overlay`, which must be this layout's, removes, or of which it resolves or
    /// checks a stanza again. The second has those that the overlay found there and in its new
    /// files. Those of providers are in both lists if the overlay resolved providers again.
    fn touched_errors(&self, overlay: &Overlay) -> (Vec<ConfigError>, Vec<ConfigError>) {
        let touched =
            overlay.reresolved.iter().chain(&overlay.rechecked).map(|stanza_id| stanza_id.file);
        let touched: BTreeSet<u32> = touched.chain(overlay.removed.iter().copied()).collect();
        let base = &self.base;
        let of_file = |number: &u32| {
            let file = base.file(*number);
            let sites = DiagnosticSite { file: *number, stanza: None }..=DiagnosticSite {
                file: *number,
                stanza: Some(u32::MAX),
            };
            let diagnostics = base
                .resolution
                .range(sites.clone())
                .chain(base.checked.range(sites))
                .flat_map(|(_, found)| found);
            diagnostics
                .filter_map(move |diagnostic| Some(file?.source().error(diagnostic.clone())))
                .collect::<Vec<_>>()
        };
        let mut old: Vec<ConfigError> = touched.iter().flat_map(of_file).collect();
        let files = self.numbered();
        let new = overlay
            .diagnostics
            .iter()
            .flat_map(|(site, found)| found.iter().map(move |diagnostic| (site, diagnostic)));
        let mut new: Vec<ConfigError> = new
            .filter_map(|(site, diagnostic)| {
                Some(files.get(site.file)?.source().error(diagnostic.clone()))
            })
            .collect();
        if let Some((_, errors)) = &overlay.providers {
            old.extend(base.provider_errors.iter().cloned());
            new.extend(errors.iter().cloned());
        }
        (old, new)
    }

    /// Returns every diagnostic of files and stanzas in effect with its place, by file number and
    /// stanza. With an overlay, this is not the configuration order. Those of providers are not
    /// among them.
    fn diagnostics(&self) -> impl Iterator<Item = (DiagnosticSite, ConfigError)> {
        let files = self.numbered();
        let overlay = self.overlay.as_deref();
        let counts = move |site: DiagnosticSite, again: fn(&Overlay) -> &BTreeSet<StanzaId>| {
            overlay.is_none_or(|overlay| {
                !overlay.removed.contains(&site.file)
                    && site.stanza_id().is_none_or(|stanza_id| !again(overlay).contains(&stanza_id))
            })
        };
        // Those of one stanza side by side.
        let mut all: BTreeMap<DiagnosticSite, Vec<&Diagnostic>> = BTreeMap::new();
        let resolution = self
            .base
            .resolution
            .iter()
            .filter(move |(site, _)| counts(**site, |overlay| &overlay.reresolved));
        let checked = self
            .base
            .checked
            .iter()
            .filter(move |(site, _)| counts(**site, |overlay| &overlay.rechecked));
        for (site, found) in
            resolution.chain(checked).chain(overlay.iter().flat_map(|overlay| &overlay.diagnostics))
        {
            all.entry(*site).or_default().extend(found);
        }
        all.into_iter().flat_map(move |(site, found)| {
            let source = files.get(site.file).map(File::source);
            found
                .into_iter()
                .filter_map(move |diagnostic| Some((site, source?.error(diagnostic.clone()))))
        })
    }

    /// Returns the errors and warnings found while providers were resolved: those of the overlay if
    /// it resolved them again, otherwise those of the base layout.
    fn provider_errors(&self) -> &[ConfigError] {
        let overlay = self.overlay.as_deref().and_then(|overlay| overlay.providers.as_ref());
        overlay.map_or(&self.base.provider_errors, |(_, errors)| errors)
    }

    /// Returns all files by number, also those that the overlay removes.
    fn numbered(&self) -> Files<'_> {
        Files {
            base: &self.base.files,
            more: self
                .overlay
                .as_deref()
                .map(|overlay| overlay.files.as_slice())
                .unwrap_or_default(),
        }
    }

    /// Returns the files in effect, in configuration order, with their numbers. Files that the
    /// overlay removes are left out.
    fn files(&self) -> impl Iterator<Item = (u32, &File)> {
        let overlay = self.overlay.as_deref();
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let base =
            self.base.files.iter().enumerate().map(move |(index, file)| (number(index), file));
        let base = base.filter(move |(number, _)| {
            overlay.is_none_or(|overlay| !overlay.removed.contains(number))
        });
        let more = overlay.into_iter().flat_map(|overlay| &overlay.files).enumerate();
        let more = more.map(move |(index, file)| (number(self.base.files.len() + index), file));
        let mut all: Vec<(u32, &File)> = base.chain(more).collect();
        if overlay.is_some() {
            all.sort_by(|(_, one), (_, other)| one.sort_key.cmp(&other.sort_key));
        }
        all.into_iter()
    }

    /// Returns the stanzas that define a name, accepted and rejected ones, as the overlay resolved
    /// the name, or else the base layout. `None` if no stanza defines it. If the overlay removes
    /// all its definitions, both lists are empty, so `Some` does not mean that the name is defined.
    fn symbol(&self, kind: ObjectKind, name: &str) -> Option<&Symbol> {
        let overlay = self.overlay.as_deref().and_then(|overlay| overlay.symbols.get(kind, name));
        overlay.or_else(|| self.base.symbols.get(kind, name))
    }

    /// Returns the names of a kind that have an accepted definition: those of the base layout that
    /// the overlay did not resolve again, then those of the overlay.
    fn names(&self, kind: ObjectKind) -> impl Iterator<Item = &str> {
        let overlay = self.overlay.as_deref();
        let below = self.base.symbols.of(kind);
        let below = below.filter(move |(name, _)| {
            overlay.is_none_or(|overlay| overlay.symbols.get(kind, name).is_none())
        });
        let above = overlay.into_iter().flat_map(move |overlay| overlay.symbols.of(kind));
        below.chain(above).filter(|(_, entry)| !entry.accepted.is_empty()).map(|(name, _)| name)
    }

    /// Returns a stanza with its file; `None` if there is no such stanza.
    fn stanza(&self, stanza_id: StanzaId) -> Option<(&File, &Stanza)> {
        let file = self.numbered().get(stanza_id.file)?;
        Some((file, file.fragment.stanza(stanza_id.stanza as usize)?))
    }

    /// Returns the object that a stanza defines, with its file; `None` if there is no such stanza
    /// or it is of another kind than `T`.
    fn defined<T: Object>(&self, stanza_id: StanzaId) -> Option<Definition<'_, T>> {
        let (file, stanza) = self.stanza(stanza_id)?;
        Some(Definition { file, object: T::of(stanza)? })
    }

    /// Returns the accepted definitions of a name in configuration order; project stanzas are in
    /// the order in which they apply. `kind` must be a kind whose objects have type `T`; otherwise,
    /// and if the name is undefined, the result is empty.
    fn under<'l, T: Object>(
        &'l self,
        kind: ObjectKind,
        name: &str,
    ) -> impl Iterator<Item = Definition<'l, T>> + use<'l, T> {
        let stanza_ids =
            self.symbol(kind, name).map(|entry| entry.accepted.as_slice()).unwrap_or_default();
        stanza_ids.iter().filter_map(|stanza_id| self.defined(*stanza_id))
    }

    /// Returns the first accepted definition of a name, for kinds that have only one; `None` if the
    /// name is undefined.
    fn one<T: Object>(&self, kind: ObjectKind, name: &str) -> Option<Definition<'_, T>> {
        self.under(kind, name).next()
    }

    /// Returns every accepted object of a kind, in configuration order. `kind` must be a kind whose
    /// objects have type `T`. A project stanza appears once for each project it applies to.
    fn accepted<T: Object>(&self, kind: ObjectKind) -> Vec<Definition<'_, T>> {
        let mut stanza_ids: Vec<StanzaId> = self
            .names(kind)
            .flat_map(|name| {
                self.symbol(kind, name).map(|entry| entry.accepted.as_slice()).unwrap_or_default()
            })
            .copied()
            .collect();
        stanza_ids.sort_by(|one, other| {
            self.numbered().sort_key(*one).cmp(&self.numbered().sort_key(*other))
        });
        stanza_ids.into_iter().filter_map(|stanza_id| self.defined(stanza_id)).collect()
    }

    /// Returns the objects of a kind in stanzas with errors, as far as they could be parsed, in
    /// configuration order. Those of projects from which the tenant does not load this kind are
    /// left out.
    fn faulty<T: Object>(&self, kind: ObjectKind) -> Vec<Definition<'_, T>> {
        let mut found = Vec::new();
        for (_, file) in self.files() {
            // Kinds that the tenant does not load from the project are not checked.
            let is_read = || {
                self.base
                    .inputs
                    .project_of(file)
                    .is_some_and(|project| project.kinds.contains(&kind))
            };
            let stanzas =
                file.fragment.faulty().filter(|stanza| stanza.kind() == Some(kind) && is_read());
            found.extend(
                stanzas.filter_map(|stanza| Some(Definition { file, object: T::of(stanza)? })),
            );
        }
        found
    }

    /// Builds a new layout without an overlay from the files that are in effect with the overlay,
    /// as if these were merged. So provider configuration that an overlay keeps as merged takes
    /// effect, and files of branches that the tenant does not load are dropped.
    fn flattened(&self) -> Self {
        let inputs = &self.base.inputs;
        Self::build(LayoutSources {
            tenant: inputs.tenant.clone(),
            connections: inputs.connections.clone(),
            branches: inputs.branches.clone(),
            fragments: self.fragments().to_vec(),
        })
    }

    /// Encodes the layout for [`Self::from_bytes`], with its overlay applied as if it were merged.
    /// Empty, which cannot be decoded, if encoding fails.
    pub fn to_bytes(&self) -> Vec<u8> {
        stored::to_bytes(self)
    }

    /// Decodes a stored layout. Stanzas are decoded on first use, or at once if another version of
    /// the parser read them. An error if the bytes are damaged or have another format, if the
    /// tenant does not load one of the stored files, or if another version stored stanzas that this
    /// one cannot read.
    ///
    /// # Errors As above. Build the layout again then.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LayoutDecodeError> {
        stored::from_bytes(bytes)
    }
}
