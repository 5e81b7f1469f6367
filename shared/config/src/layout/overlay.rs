//! A layout as proposed files would have it, laid over the layout it is compared with: it costs
//! what the edit costs.
//!
//! Only names are settled again to which an edited file lays claim, before or after; and of all
//! other stanzas only those are checked again that refer to a name of which something has changed
//! that a check can see ([`check::Facts`]).

use super::build::{Problems, claims_of, pipelines, take};
use super::check;
use super::ground::File;
use super::shelf::{Shelves, Unit, short_hash};
use super::{Base, BranchConfig, Files, Layout, Scope, Spot, providers, settle};
use crate::error::{ConfigError, Hints};
use crate::fragment::{Fragment, Trust};
use crate::layout::ProviderConfig;
use crate::objects::{ObjectKind, Stanza};
use crate::pipeline::Pipeline;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is otherwise than in the base.
#[derive(Debug, Default)]
pub(super) struct Over {
    /// What was proposed, as far as it counts.
    proposed: Vec<(BranchConfig, Scope)>,
    /// Files of the base that no longer count.
    pub(super) removed: BTreeSet<u32>,
    /// Files that count besides; their numbers follow those of the base.
    pub(super) files: Vec<File>,
    /// Stanzas of these with mistakes: they stand nowhere.
    faulty: Vec<Unit>,
    /// Images that these define, each with the first project that does, whether or not any counts
    /// before it is merged.
    pub(super) images: BTreeMap<String, ProjectName>,
    /// Entries that take the place of the base's.
    pub(super) shelves: Shelves,
    /// Stanzas whose right to stand was decided again: what is wrong with that is in `problems`
    /// now.
    pub(super) resettled: BTreeSet<Unit>,
    /// Stanzas whose references were checked again: what is wrong with those is in `problems` now.
    pub(super) rechecked: BTreeSet<Unit>,
    /// What is wrong with new files, and with what was decided or checked again.
    pub(super) problems: Problems,
    pub(super) pipelines: Option<Vec<Pipeline>>,
    pub(super) providers: Option<(Vec<ProviderConfig>, Vec<ConfigError>)>,
}

/// Returns `layout` with proposed configuration; what was proposed to it before stays, unless it is
/// proposed anew.
pub(super) fn overlay(layout: &Layout, proposed: &[BranchConfig], scope: Scope) -> Layout {
    let base = &layout.base;
    let mut all: BTreeMap<(&ProjectName, &BranchName), (&BranchConfig, Scope)> = BTreeMap::new();
    let before = layout
        .over
        .iter()
        .flat_map(|over| over.proposed.iter().map(|(config, scope)| (config, *scope)));
    for (config, scope) in before.chain(proposed.iter().map(|config| (config, scope))) {
        let counts = match base.ground.project(&config.project) {
            Some((_, project)) => scope == Scope::ToValidate || project.trust == Trust::Untrusted,
            None => false,
        };
        if counts {
            all.insert((&config.project, &config.branch), (config, scope));
        }
    }
    let mut over = Over {
        proposed: all.values().map(|(config, scope)| ((*config).clone(), *scope)).collect(),
        ..Over::default()
    };
    let keeps_nodes = all.values().all(|(_, scope)| *scope == Scope::UntrustedOnly);
    replace_files(base, &all, &mut over);
    if over.files.is_empty() && over.removed.is_empty() {
        return Layout::of(Arc::clone(base));
    }
    over.images = images(base, &over.files);
    let claimed = claim(base, &mut over, keeps_nodes);
    let touched = claimed.keys().cloned().collect();
    settle_again(base, &mut over, claimed);
    let has_faulty_objects = !keeps_nodes && has_faulty_objects(base, &over);
    judge(
        Layout { over: Some(Arc::new(over)), ..Layout::of(Arc::clone(base)) },
        &touched,
        has_faulty_objects,
    )
}

/// Returns whether a file that came or went has objects that nodes are made of and that have
/// mistakes: nothing bears their names, and what they name is followed with what all others do.
fn has_faulty_objects(base: &Base, over: &Over) -> bool {
    let went = over.removed.iter().filter_map(|number| base.file(*number));
    let mut stanzas = went.chain(&over.files).flat_map(|file| file.fragment.faulty());
    stanzas.any(|stanza| stanza.kind().is_some_and(ObjectKind::is_provider_config))
}

/// Takes out the files that are no longer as they were and puts in the new ones; a file that is the
/// same stays.
fn replace_files(
    base: &Base,
    all: &BTreeMap<(&ProjectName, &BranchName), (&BranchConfig, Scope)>,
    over: &mut Over,
) {
    let mut by_project: BTreeMap<usize, Vec<&BranchConfig>> = BTreeMap::new();
    for (config, _) in all.values() {
        let Some((rank, project)) = base.ground.project(&config.project) else { continue };
        if base
            .ground
            .tenant
            .takes_proposals(project, &base.ground.facts(project, config.branch.as_str()))
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
        // Also branches that nobody proposes anything for: what they are bound to depends on how
        // many there are.
        let new: Vec<File> = branches
            .into_values()
            .flat_map(|fragments| base.ground.group(rank, fragments, seen))
            .collect();
        let same = |one: &File, other: &File| {
            let bound = |file: &File| (file.implied.clone(), file.branched);
            one.fragment.hash == other.fragment.hash
                && one.place == other.place
                && bound(one) == bound(other)
        };
        let mut stays: BTreeSet<u32> = BTreeSet::new();
        for file in new {
            match old.clone().find(|(number, known)| !stays.contains(number) && same(known, &file))
            {
                Some((number, _)) => {
                    stays.insert(number);
                }
                None => over.files.push(file),
            }
        }
        over.removed.extend(old.map(|(number, _)| number).filter(|number| !stays.contains(number)));
    }
}

/// Returns the images that files define whose projects may, with those projects: each job that
/// builds one asks for it.
fn images(base: &Base, files: &[File]) -> BTreeMap<String, ProjectName> {
    let may_define = |file: &&File| {
        base.ground
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

/// New claimants by what they lay claim to; a name that is only given up has none.
type Claimed = BTreeMap<(ObjectKind, String), Vec<Unit>>;

/// Returns every name to which a file that came or went lays claim; notes what is wrong with new
/// files.
fn claim(base: &Base, over: &mut Over, keeps_nodes: bool) -> Claimed {
    let (mut claimed, hints) = (Claimed::new(), Hints::new());
    // What nodes are made of takes effect when it is merged, not before (L3.3).
    let counts = |kind: ObjectKind| !(keeps_nodes && kind.is_provider_config());
    for number in &over.removed {
        let Some(file) = base.file(*number) else { continue };
        claims_of(
            &base.ground,
            file,
            *number as usize,
            &mut Problems::new(),
            &hints,
            |kind, name, _| {
                if counts(kind) {
                    claimed.entry((kind, name.to_owned())).or_default();
                }
            },
        );
    }
    for (index, file) in over.files.iter().enumerate() {
        let number = base.files.len() + index;
        let faulty = claims_of(
            &base.ground,
            file,
            number,
            &mut over.problems,
            &hints,
            |kind, name, unit| {
                if counts(kind) {
                    claimed.entry((kind, name.to_owned())).or_default().push(unit);
                }
            },
        );
        over.faulty.extend(faulty);
    }
    claimed
}

/// Decides again between those that lay claim to the names.
fn settle_again(base: &Base, over: &mut Over, claimed: Claimed) {
    let files = Files { base: &base.files, more: &over.files };
    for ((kind, name), new) in claimed {
        let old = base.shelves.get(kind, &name);
        let mut claimants: Vec<Unit> = old.iter().flat_map(|entry| entry.claimants()).collect();
        claimants.retain(|unit| !over.removed.contains(&unit.file));
        claimants.extend(new);
        claimants.sort_by(|one, other| files.place(*one).cmp(&files.place(*other)));
        let settled = settle::settle(&base.ground, files, kind, &name, &claimants);
        over.shelves.put(kind, &name, take(settled, &mut over.problems));
    }
}

/// Checks what stands anew and what refers to it, and makes pipelines and providers where their
/// objects changed.
fn judge(
    mut layout: Layout,
    touched: &BTreeSet<(ObjectKind, String)>,
    has_faulty_objects: bool,
) -> Layout {
    let base = Arc::clone(&layout.base);
    let before = Layout::of(Arc::clone(&base));
    let mut claimants: BTreeSet<Unit> = BTreeSet::new();
    let mut standing: BTreeSet<Unit> = BTreeSet::new();
    let mut referring: BTreeSet<Unit> = BTreeSet::new();
    for (kind, name) in touched {
        if let Some(entry) = layout.entry(*kind, name) {
            claimants.extend(entry.claimants());
            standing.extend(&entry.accepted);
        }
        if check::facts(&before, *kind, name) != check::facts(&layout, *kind, name) {
            referring.extend(base.referring(short_hash(*kind, name)));
        }
    }
    let is_gone =
        |unit: &Unit| layout.over.as_ref().is_some_and(|over| over.removed.contains(&unit.file));
    referring.retain(|unit| !claimants.contains(unit) && !is_gone(unit));
    standing.extend(&referring);
    standing.extend(layout.over.iter().flat_map(|over| &over.faulty));
    let found = check::some(&layout, standing.iter().copied()).0;
    let has = |wanted: fn(ObjectKind) -> bool| touched.iter().any(|(kind, _)| wanted(*kind));
    let pipelines = has(|kind| kind == ObjectKind::Pipeline).then(|| pipelines(&layout));
    let are_nodes_touched = has_faulty_objects || has(ObjectKind::is_provider_config);
    let providers = are_nodes_touched.then(|| providers::resolve(&layout));
    // Nobody else has it yet.
    if let Some(over) = layout.over.as_mut().and_then(Arc::get_mut) {
        for (unit, problem) in found {
            over.problems.entry(Spot::of(unit)).or_default().push(problem);
        }
        over.rechecked = claimants.union(&referring).copied().collect();
        over.resettled = claimants;
        (over.pipelines, over.providers) = (pipelines, providers);
    }
    layout
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
