//! Applies proposed files to a layout, at a cost proportional to the edit.
//!
//! Only names that an edited file defines, before or after the edit, are resolved again. Of all
//! other stanzas, only those are checked again that reference a name whose checked facts changed
//! ([`check::Facts`]).

use super::build::{SiteDiagnostics, claims_of, move_diagnostics, pipelines};
use super::check;
use super::inputs::File;
use super::symbol_table::{StanzaId, SymbolTable, short_hash};
use super::{
    BaseLayout, BranchConfig, DiagnosticSite, Files, Layout, Scope, providers, resolve_names,
};
use crate::error::{ConfigError, SuggestionBudget};
use crate::fragment::{Fragment, Trust};
use crate::layout::ProviderConfig;
use crate::objects::{ObjectKind, Stanza};
use crate::pipeline::Pipeline;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The difference between a layout with proposed configuration and its base.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// The proposed configuration that takes effect.
    proposed: Vec<(BranchConfig, Scope)>,
    /// Files of the base that are removed or replaced.
    pub(super) removed: BTreeSet<u32>,
    /// New files. Their numbers follow those of the base.
    pub(super) files: Vec<File>,
    /// Stanzas of the new files with errors. They define nothing.
    faulty: Vec<StanzaId>,
    /// Images that the new files define, each with the first project that defines it, even if they
    /// take effect only after the merge.
    pub(super) images: BTreeMap<String, ProjectName>,
    /// Symbols that replace those of the base.
    pub(super) symbols: SymbolTable,
    /// Stanzas whose names were resolved again. Their diagnostics are in `diagnostics`, not in the
    /// base.
    pub(super) reresolved: BTreeSet<StanzaId>,
    /// Stanzas whose references were checked again. Their diagnostics are in `diagnostics`, not in
    /// the base.
    pub(super) rechecked: BTreeSet<StanzaId>,
    /// Diagnostics of new files and of stanzas that were resolved or checked again.
    pub(super) diagnostics: SiteDiagnostics,
    /// The pipelines; `None` if they are those of the base.
    pub(super) pipelines: Option<Vec<Pipeline>>,
    /// The providers and their errors; `None` if they are those of the base.
    pub(super) providers: Option<(Vec<ProviderConfig>, Vec<ConfigError>)>,
}

/// Returns `layout` with proposed configuration: each proposal replaces all files of its branch.
/// Proposals that `layout` already has stay, each with its own scope, unless their branch is
/// proposed again. Proposals for unknown projects, for branches from which the tenant takes no
/// configuration, and for config projects unless `scope` is [`Scope::ToValidate`], are ignored.
/// Provider configuration takes effect only if a proposal has that scope, then also that of the
/// others. If no file changes, the result has no overlay.
pub(super) fn overlay(layout: &Layout, proposed: &[BranchConfig], scope: Scope) -> Layout {
    let base = &layout.base;
    let mut all: BTreeMap<(&ProjectName, &BranchName), (&BranchConfig, Scope)> = BTreeMap::new();
    let before = layout
        .overlay
        .iter()
        .flat_map(|overlay| overlay.proposed.iter().map(|(config, scope)| (config, *scope)));
    for (config, scope) in before.chain(proposed.iter().map(|config| (config, scope))) {
        let counts = match base.inputs.project(&config.project) {
            Some((_, project)) => scope == Scope::ToValidate || project.trust == Trust::Untrusted,
            None => false,
        };
        if counts {
            all.insert((&config.project, &config.branch), (config, scope));
        }
    }
    let mut overlay = Overlay {
        proposed: all.values().map(|(config, scope)| ((*config).clone(), *scope)).collect(),
        ..Overlay::default()
    };
    let keeps_providers = all.values().all(|(_, scope)| *scope == Scope::UntrustedOnly);
    replace_files(base, &all, &mut overlay);
    if overlay.files.is_empty() && overlay.removed.is_empty() {
        return Layout::of(Arc::clone(base));
    }
    overlay.images = images(base, &overlay.files);
    let changed = changed_names(base, &mut overlay, keeps_providers);
    let touched = changed.keys().cloned().collect();
    resolve_again(base, &mut overlay, changed);
    let has_faulty_objects = !keeps_providers && has_faulty_objects(base, &overlay);
    check_changes(
        Layout { overlay: Some(Arc::new(overlay)), ..Layout::of(Arc::clone(base)) },
        &touched,
        has_faulty_objects,
    )
}

/// Returns whether an added or removed file has provider objects with errors. They define no name,
/// but their references are checked with those of the other providers.
fn has_faulty_objects(base: &BaseLayout, overlay: &Overlay) -> bool {
    let went = overlay.removed.iter().filter_map(|number| base.file(*number));
    let mut stanzas = went.chain(&overlay.files).flat_map(|file| file.fragment.faulty());
    stanzas.any(|stanza| stanza.kind().is_some_and(ObjectKind::is_provider_config))
}

/// Adds to `overlay` the files that the proposals in `all` add or change, and the numbers of the
/// base files that they remove or replace. Unchanged files stay, unless their implied branches
/// change because the project has more or fewer branches; such files are removed and added again.
/// Proposals for unknown projects and for branches from which the tenant takes no configuration are
/// ignored.
fn replace_files(
    base: &BaseLayout,
    all: &BTreeMap<(&ProjectName, &BranchName), (&BranchConfig, Scope)>,
    overlay: &mut Overlay,
) {
    let mut by_project: BTreeMap<usize, Vec<&BranchConfig>> = BTreeMap::new();
    for (config, _) in all.values() {
        let Some((rank, project)) = base.inputs.project(&config.project) else { continue };
        if base
            .inputs
            .tenant
            .takes_proposals(project, &base.inputs.facts(project, config.branch.as_str()))
        {
            by_project.entry(rank).or_default().push(config);
        }
    }
    for (rank, configs) in by_project {
        let old = base.files_of(rank);
        let mut branches: BTreeMap<&BranchName, Vec<Arc<Fragment>>> = BTreeMap::new();
        for (_, file) in old.clone() {
            branches.entry(&file.source().branch).or_default().push(Arc::clone(&file.fragment));
        }
        for config in &configs {
            branches.insert(&config.branch, config.fragments.clone());
        }
        branches.retain(|_, fragments| !fragments.is_empty());
        let seen = branches.len();
        // This includes branches without proposals: their implied branches depend on the number of
        // branches.
        let new: Vec<File> = branches
            .into_values()
            .flat_map(|fragments| base.inputs.group(rank, fragments, seen))
            .collect();
        let same = |one: &File, other: &File| {
            let bound = |file: &File| (file.implied.clone(), file.branched);
            one.fragment.hash == other.fragment.hash
                && one.sort_key == other.sort_key
                && bound(one) == bound(other)
        };
        let mut stays: BTreeSet<u32> = BTreeSet::new();
        for file in new {
            match old.clone().find(|(number, known)| !stays.contains(number) && same(known, &file))
            {
                Some((number, _)) => {
                    stays.insert(number);
                }
                None => overlay.files.push(file),
            }
        }
        overlay
            .removed
            .extend(old.map(|(number, _)| number).filter(|number| !stays.contains(number)));
    }
}

/// Returns the images that the files define, each with the project of the first file that does, in
/// the order of `files`. Stanzas with errors define none. Files of projects that may not define
/// images are left out.
fn images(base: &BaseLayout, files: &[File]) -> BTreeMap<String, ProjectName> {
    let may_define = |file: &&File| {
        base.inputs
            .project_of(file)
            .is_some_and(|project| project.kinds.contains(&ObjectKind::Image))
    };
    let mut found = BTreeMap::new();
    for file in files.iter().filter(may_define) {
        for stanza in file.fragment.stanzas() {
            if let Stanza::Image(image) = stanza {
                found.entry(image.name.clone()).or_insert_with(|| file.source().project.clone());
            }
        }
    }
    found
}

/// The new definitions of each changed name; empty for a name that only lost definitions.
type ChangedNames = BTreeMap<(ObjectKind, String), Vec<StanzaId>>;

/// Returns every name that an added or removed file defines, with its definitions in added files.
/// Adds the diagnostics and the faulty stanzas of the added files to `overlay`, whose files and
/// removed files must be set. With `keeps_providers`, names of images, flavors, labels, sections
/// and providers are left out.
fn changed_names(base: &BaseLayout, overlay: &mut Overlay, keeps_providers: bool) -> ChangedNames {
    let (mut changed, hints) = (ChangedNames::new(), SuggestionBudget::new());
    // Provider configuration takes effect when it is merged, not before (L3.3).
    let counts = |kind: ObjectKind| !(keeps_providers && kind.is_provider_config());
    for number in &overlay.removed {
        let Some(file) = base.file(*number) else { continue };
        claims_of(
            &base.inputs,
            file,
            *number as usize,
            &mut SiteDiagnostics::new(),
            &hints,
            |kind, name, _| {
                if counts(kind) {
                    changed.entry((kind, name.to_owned())).or_default();
                }
            },
        );
    }
    for (index, file) in overlay.files.iter().enumerate() {
        let number = base.files.len() + index;
        let faulty = claims_of(
            &base.inputs,
            file,
            number,
            &mut overlay.diagnostics,
            &hints,
            |kind, name, stanza_id| {
                if counts(kind) {
                    changed.entry((kind, name.to_owned())).or_default().push(stanza_id);
                }
            },
        );
        overlay.faulty.extend(faulty);
    }
    changed
}

/// Resolves each changed name again, from the definitions in base files that the overlay does not
/// remove and from the new ones that `changed` lists. Stores the accepted and rejected stanzas and
/// the diagnostics in `overlay`, whose files and removed files must be set, also for a name without
/// definitions.
fn resolve_again(base: &BaseLayout, overlay: &mut Overlay, changed: ChangedNames) {
    let files = Files { base: &base.files, more: &overlay.files };
    for ((kind, name), new) in changed {
        let old = base.symbols.get(kind, &name);
        let mut claimants: Vec<StanzaId> = old.iter().flat_map(|entry| entry.claimants()).collect();
        claimants.retain(|stanza_id| !overlay.removed.contains(&stanza_id.file));
        claimants.extend(new);
        claimants.sort_by(|one, other| files.sort_key(*one).cmp(&files.sort_key(*other)));
        let resolution = resolve_names::resolve(&base.inputs, files, kind, &name, &claimants);
        overlay.symbols.put(kind, &name, move_diagnostics(resolution, &mut overlay.diagnostics));
    }
}

/// Checks the accepted definitions of the names in `touched`, the stanzas of the overlay with
/// errors, and the stanzas that reference a name whose checked facts changed. The caller has
/// resolved these names again in the overlay. Resolves pipelines and providers again if `touched`
/// has their objects; `has_faulty_objects` does so for providers in any case. Returns the layout
/// with the results in its overlay, which no other layout may share.
fn check_changes(
    mut layout: Layout,
    touched: &BTreeSet<(ObjectKind, String)>,
    has_faulty_objects: bool,
) -> Layout {
    let base = Arc::clone(&layout.base);
    let before = Layout::of(Arc::clone(&base));
    let mut claimants: BTreeSet<StanzaId> = BTreeSet::new();
    let mut accepted: BTreeSet<StanzaId> = BTreeSet::new();
    let mut referring: BTreeSet<StanzaId> = BTreeSet::new();
    for (kind, name) in touched {
        if let Some(entry) = layout.symbol(*kind, name) {
            claimants.extend(entry.claimants());
            accepted.extend(&entry.accepted);
        }
        if check::facts(&before, *kind, name) != check::facts(&layout, *kind, name) {
            referring.extend(base.referring(short_hash(*kind, name)));
        }
    }
    let is_gone = |stanza_id: &StanzaId| {
        layout.overlay.as_ref().is_some_and(|overlay| overlay.removed.contains(&stanza_id.file))
    };
    referring.retain(|stanza_id| !claimants.contains(stanza_id) && !is_gone(stanza_id));
    accepted.extend(&referring);
    accepted.extend(layout.overlay.iter().flat_map(|overlay| &overlay.faulty));
    let found = check::check(&layout, accepted.iter().copied()).0;
    let has = |is_kind: fn(ObjectKind) -> bool| touched.iter().any(|(kind, _)| is_kind(*kind));
    let pipelines = has(|kind| kind == ObjectKind::Pipeline).then(|| pipelines(&layout));
    let are_providers_touched = has_faulty_objects || has(ObjectKind::is_provider_config);
    let providers = are_providers_touched.then(|| providers::resolve(&layout));
    // No other reference to it exists yet.
    if let Some(overlay) = layout.overlay.as_mut().and_then(Arc::get_mut) {
        for (stanza_id, diagnostic) in found {
            overlay.diagnostics.entry(DiagnosticSite::of(stanza_id)).or_default().push(diagnostic);
        }
        overlay.rechecked = claimants.union(&referring).copied().collect();
        overlay.reresolved = claimants;
        (overlay.pipelines, overlay.providers) = (pipelines, providers);
    }
    layout
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
