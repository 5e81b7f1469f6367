//! Builds a layout from fragments: collects the names that stanzas define, resolves conflicts, and
//! checks references.

use super::inputs::{File, LayoutInputs};
use super::resolve_names::{self, Resolution};
use super::symbol_table::{StanzaId, Symbol, SymbolTable, Symbols};
use super::{
    BaseLayout, DiagnosticSite, Files, Layout, LayoutSources, check, providers, schema_version,
};
use crate::error::{Diagnostic, SuggestionBudget};
use crate::objects::{ObjectKind, PipelineStanza, ProjectStanza, Stanza};
use crate::pipeline::Pipeline;
use crate::tenant::TenantProject;
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Diagnostics by the file or stanza they are about.
pub(super) type SiteDiagnostics = BTreeMap<DiagnosticSite, Vec<Diagnostic>>;

/// Builds a layout from parsed files: puts them in order, resolves names, pipelines and providers,
/// and checks references. Never fails: files of unknown projects and of branches that the tenant
/// does not load are dropped without a diagnostic. The layout has the diagnostics of everything
/// that is wrong in the others.
pub(super) fn build(sources: LayoutSources) -> Layout {
    let LayoutSources { tenant, connections, branches, fragments } = sources;
    let mut inputs = LayoutInputs::new(tenant, connections, branches);
    let mut files = inputs.in_order(fragments);
    let (mut symbols, mut resolution, mut faulty) = resolve_all_names(&inputs, &files);
    let declared_defaults = declared_default_branches(&inputs, &files, &symbols);
    // The default branch changes the configuration order, and thus which definition wins. This is
    // done once only: the declarations are looked up in the order without them.
    if !declared_defaults.is_empty() {
        inputs.declared_defaults = declared_defaults;
        files = inputs.in_order(files.into_iter().map(|file| file.fragment).collect());
        (symbols, resolution, faulty) = resolve_all_names(&inputs, &files);
    }
    let base = BaseLayout {
        id: content_id(&inputs, files.iter()),
        parsed_by: schema_version::parser_version(),
        inputs,
        files,
        symbols,
        resolution,
        checked: SiteDiagnostics::new(),
        pipelines: Vec::new(),
        providers: Vec::new(),
        provider_errors: Vec::new(),
        references: Vec::new(),
    };
    let mut layout = Layout::of(Arc::new(base));
    let pipelines = pipelines(&layout);
    let (providers, provider_errors) = providers::resolve(&layout);
    let (found, mut references) = check::check_all(&layout, faulty);
    references.sort_unstable();
    references.dedup();
    // No other reference to it exists yet.
    if let Some(base) = Arc::get_mut(&mut layout.base) {
        for (stanza_id, diagnostic) in found {
            base.checked.entry(DiagnosticSite::of(stanza_id)).or_default().push(diagnostic);
        }
        (base.pipelines, base.providers, base.provider_errors) =
            (pipelines, providers, provider_errors);
        base.references = references;
    }
    layout
}

/// Returns the hash of the inputs, of the files in the given order, which the caller makes the
/// configuration order, and of the parser's version.
pub(super) fn content_id<'f>(
    inputs: &LayoutInputs,
    files: impl Iterator<Item = &'f File>,
) -> String {
    // The parser version is part of the content: another version makes another layout of the same
    // files.
    let parsed_by = schema_version::parser_version().to_string();
    let mut parts = vec!["layout-3", parsed_by.as_str(), inputs.digest.as_str()];
    parts.extend(files.map(|file| file.fragment.hash.as_str()));
    digest(&parts)
}

/// Returns the default branches that project stanzas declare. For each project only the first
/// declaration counts, even if it is then left out. Left out are branches that the project does not
/// have, and those that are the default branch without a declaration. `symbols` must be resolved in
/// the order without declarations.
fn declared_default_branches(
    inputs: &LayoutInputs,
    files: &[File],
    symbols: &SymbolTable,
) -> BTreeMap<ProjectName, BranchName> {
    let mut declared_defaults = BTreeMap::new();
    for (name, entry) in symbols.of(ObjectKind::Project) {
        let mut stanzas = entry
            .accepted
            .iter()
            .filter_map(|stanza_id| Files::of(files).object::<ProjectStanza>(*stanza_id));
        let Some(word) = stanzas.find_map(|stanza| stanza.default_branch.as_deref()) else {
            continue;
        };
        let (name, branch) = (ProjectName(name.to_owned()), BranchName::from(word));
        let has_files =
            |file: &File| file.source().project == name && file.source().branch == branch;
        let is_there = match inputs.branches.get(&name) {
            Some(branches) => branches.contains(&branch),
            None => files.iter().any(has_files),
        };
        let is_another =
            |(_, project): (usize, &TenantProject)| !inputs.is_default(project, &branch);
        if is_there && inputs.project(&name).is_some_and(is_another) {
            declared_defaults.insert(name, branch);
        }
    }
    declared_defaults
}

/// Resolves every name that the files define. Returns the symbol table, the diagnostics of files
/// and of rejected stanzas, and the stanzas with errors, which define nothing but whose references
/// are to be checked. `files` are in configuration order, and a file's number is its index there.
fn resolve_all_names(
    inputs: &LayoutInputs,
    files: &[File],
) -> (SymbolTable, SiteDiagnostics, Vec<StanzaId>) {
    let (mut resolution, mut faulty) = (SiteDiagnostics::new(), Vec::new());
    let mut claims: BTreeMap<ObjectKind, Vec<(&str, StanzaId)>> = BTreeMap::new();
    let hints = SuggestionBudget::new();
    for (number, file) in files.iter().enumerate() {
        faulty.extend(claims_of(
            inputs,
            file,
            number,
            &mut resolution,
            &hints,
            |kind, name, stanza_id| claims.entry(kind).or_default().push((name, stanza_id)),
        ));
    }
    let mut symbols = SymbolTable::default();
    for (kind, mut claims) in claims {
        // The sort is stable, so the stanzas of one name stay in configuration order.
        claims.sort_by_key(|(name, _)| *name);
        let mut symbols_of_kind = Vec::with_capacity(claims.len());
        for claims in claims.chunk_by(|one, other| one.0 == other.0) {
            let Some((name, _)) = claims.first() else { continue };
            let claimants: Vec<StanzaId> = claims.iter().map(|(_, stanza_id)| *stanza_id).collect();
            let entry = move_diagnostics(
                resolve_names::resolve(inputs, Files::of(files), kind, name, &claimants),
                &mut resolution,
            );
            symbols_of_kind.push(((*name).to_owned(), entry));
        }
        symbols.put_all(kind, symbols_of_kind.into_iter().collect::<Symbols>());
    }
    (symbols, resolution, faulty)
}

/// Moves the diagnostics of a resolution to `diagnostics`, after those that are there, and returns
/// the accepted and rejected stanzas.
pub(super) fn move_diagnostics(
    resolution: Resolution,
    diagnostics: &mut SiteDiagnostics,
) -> Symbol {
    for (stanza_id, diagnostic) in resolution.diagnostics {
        diagnostics.entry(DiagnosticSite::of(stanza_id)).or_default().push(diagnostic);
    }
    resolution.entry
}

/// Calls `claim` with each kind and name that a file's stanzas without errors define. Adds the
/// file's diagnostics, the reasons why stanzas may not define a name, and further errors of faulty
/// pipelines to `diagnostics`. Returns the stanzas with errors, which define nothing but whose
/// references are checked; those that may not define their name are not among them. Kinds that the
/// tenant does not load from the project are left out. `number` is the number of the file, for
/// which the caller calls this once, and `hints` limits the suggestions for unknown projects.
pub(super) fn claims_of<'f>(
    inputs: &'f LayoutInputs,
    file: &'f File,
    number: usize,
    diagnostics: &mut SiteDiagnostics,
    hints: &SuggestionBudget,
    mut claim: impl FnMut(ObjectKind, &'f str, StanzaId),
) -> Vec<StanzaId> {
    let mut faulty = Vec::new();
    let reported: BTreeSet<&Diagnostic> = file.fragment.diagnostics.iter().collect();
    let of_file = inputs.reported_diagnostics(file);
    if !of_file.is_empty() {
        diagnostics.insert(DiagnosticSite::of_file(number), of_file);
    }
    for (index, stanza) in file.fragment.all_stanzas().enumerate() {
        let stanza_id = StanzaId::new(number, index);
        match resolve_names::claims(inputs, file, stanza, hints) {
            Ok(found) if file.fragment.is_sound(index) => {
                found.into_iter().for_each(|(kind, name)| claim(kind, name, stanza_id));
            }
            // Kinds that the tenant does not load from the project are not checked.
            Ok(found) if found.is_empty() => {}
            Ok(_) => {
                faulty.push(stanza_id);
                if let Stanza::Pipeline(pipeline) = stanza {
                    let (_, mut found) = pipeline.resolve(&inputs.connections);
                    found.retain(|diagnostic| !reported.contains(diagnostic));
                    diagnostics.entry(DiagnosticSite::of(stanza_id)).or_default().extend(found);
                }
            }
            Err(rejected) => {
                diagnostics.entry(DiagnosticSite::of(stanza_id)).or_default().extend(rejected)
            }
        }
    }
    faulty
}

/// Returns the accepted pipelines with their connections resolved, in configuration order.
pub(super) fn pipelines(layout: &Layout) -> Vec<Pipeline> {
    let accepted = layout.accepted::<PipelineStanza>(ObjectKind::Pipeline);
    accepted.into_iter().filter_map(|found| found.object.resolve(layout.connections()).0).collect()
}
