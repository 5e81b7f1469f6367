//! From fragments to a layout: every claim, who of each name stands, and what those that stand
//! refer to.

use super::ground::{File, Ground};
use super::settle::{self, Settled};
use super::shelf::{Entry, Shelf, Shelves, Unit};
use super::{Base, Files, Layout, LayoutSources, Spot, check, providers, shapes};
use crate::error::{Hints, Problem};
use crate::objects::{ObjectKind, PipelineStanza, ProjectStanza, Stanza};
use crate::pipeline::Pipeline;
use crate::tenant::TenantProject;
use sluice_model::id::digest;
use sluice_model::{BranchName, ProjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Mistakes by where they stand.
pub(super) type Problems = BTreeMap<Spot, Vec<Problem>>;

pub(super) fn build(sources: LayoutSources) -> Layout {
    let LayoutSources { tenant, connections, branches, fragments } = sources;
    let mut ground = Ground::new(tenant, connections, branches);
    let mut files = ground.in_order(fragments);
    let (mut shelves, mut settled, mut faulty) = shelved(&ground, &files);
    let said = said_defaults(&ground, &files, &shelves);
    // The order is another one then, and so is who comes first. Once only: the words were looked
    // for in the order without them.
    if !said.is_empty() {
        ground.said = said;
        files = ground.in_order(files.into_iter().map(|file| file.fragment).collect());
        (shelves, settled, faulty) = shelved(&ground, &files);
    }
    let base = Base {
        id: content_id(&ground, files.iter()),
        parsed_by: shapes::name(),
        ground,
        files,
        shelves,
        settled,
        checked: Problems::new(),
        pipelines: Vec::new(),
        providers: Vec::new(),
        provider_errors: Vec::new(),
        references: Vec::new(),
    };
    let mut layout = Layout::of(Arc::new(base));
    let pipelines = pipelines(&layout);
    let (providers, provider_errors) = providers::resolve(&layout);
    let (found, mut references) = check::all(&layout, faulty);
    references.sort_unstable();
    references.dedup();
    // Nobody else has it yet.
    if let Some(base) = Arc::get_mut(&mut layout.base) {
        for (unit, problem) in found {
            base.checked.entry(Spot::of(unit)).or_default().push(problem);
        }
        (base.pipelines, base.providers, base.provider_errors) =
            (pipelines, providers, provider_errors);
        base.references = references;
    }
    layout
}

/// Returns the name of what files say on this ground.
pub(super) fn content_id<'f>(ground: &Ground, files: impl Iterator<Item = &'f File>) -> String {
    // What a program makes of files is part of the content: another one's layout is not this one's.
    let parsed_by = shapes::name().to_string();
    let mut parts = vec!["layout-3", parsed_by.as_str(), ground.digest.as_str()];
    parts.extend(files.map(|file| file.fragment.hash.as_str()));
    digest(&parts)
}

/// Returns the branches that stanzas call their projects' default, where these have them and
/// another one counted first.
fn said_defaults(
    ground: &Ground,
    files: &[File],
    shelves: &Shelves,
) -> BTreeMap<ProjectName, BranchName> {
    let mut said = BTreeMap::new();
    for (name, entry) in shelves.of(ObjectKind::Project) {
        let mut stanzas = entry
            .accepted
            .iter()
            .filter_map(|unit| Files::of(files).object::<ProjectStanza>(*unit));
        let Some(word) = stanzas.find_map(|stanza| stanza.default_branch.as_deref()) else {
            continue;
        };
        let (name, branch) = (ProjectName(name.to_owned()), BranchName::from(word));
        let has_files =
            |file: &File| file.source().project == name && file.source().branch == branch;
        let is_there = match ground.branches.get(&name) {
            Some(branches) => branches.contains(&branch),
            None => files.iter().any(has_files),
        };
        let is_another =
            |(_, project): (usize, &TenantProject)| !ground.is_default(project, &branch);
        if is_there && ground.project(&name).is_some_and(is_another) {
            said.insert(name, branch);
        }
    }
    said
}

/// Settles every name, and returns what stands under each, what is wrong, and the stanzas with
/// mistakes.
fn shelved(ground: &Ground, files: &[File]) -> (Shelves, Problems, Vec<Unit>) {
    let (mut settled, mut faulty) = (Problems::new(), Vec::new());
    let mut claims: BTreeMap<ObjectKind, Vec<(&str, Unit)>> = BTreeMap::new();
    let hints = Hints::new();
    for (number, file) in files.iter().enumerate() {
        faulty.extend(claims_of(ground, file, number, &mut settled, &hints, |kind, name, unit| {
            claims.entry(kind).or_default().push((name, unit))
        }));
    }
    let mut shelves = Shelves::default();
    for (kind, mut claims) in claims {
        // Stable: those of one name stay in the order of configuration.
        claims.sort_by_key(|(name, _)| *name);
        let mut shelf = Vec::with_capacity(claims.len());
        for claims in claims.chunk_by(|one, other| one.0 == other.0) {
            let Some((name, _)) = claims.first() else { continue };
            let claimants: Vec<Unit> = claims.iter().map(|(_, unit)| *unit).collect();
            let entry = take(
                settle::settle(ground, Files::of(files), kind, name, &claimants),
                &mut settled,
            );
            shelf.push(((*name).to_owned(), entry));
        }
        shelves.put_all(kind, shelf.into_iter().collect::<Shelf>());
    }
    (shelves, settled, faulty)
}

/// Puts away what was found wrong, and returns the rest.
pub(super) fn take(settled: Settled, problems: &mut Problems) -> Entry {
    for (unit, problem) in settled.problems {
        problems.entry(Spot::of(unit)).or_default().push(problem);
    }
    settled.entry
}

/// Gathers what a file's stanzas lay claim to, and what is wrong with the file by itself. Returns
/// the stanzas with mistakes that would lay claim to something: they stand nowhere, and what they
/// name is followed all the same.
pub(super) fn claims_of<'f>(
    ground: &'f Ground,
    file: &'f File,
    number: usize,
    problems: &mut Problems,
    hints: &Hints,
    mut claim: impl FnMut(ObjectKind, &'f str, Unit),
) -> Vec<Unit> {
    let mut faulty = Vec::new();
    let told: BTreeSet<&Problem> = file.fragment.problems.iter().collect();
    let of_file = ground.told_of(file);
    if !of_file.is_empty() {
        problems.insert(Spot::of_file(number), of_file);
    }
    for (index, stanza) in file.fragment.read().enumerate() {
        let unit = Unit::new(number, index);
        match settle::claims(ground, file, stanza, hints) {
            Ok(found) if file.fragment.is_sound(index) => {
                found.into_iter().for_each(|(kind, name)| claim(kind, name, unit));
            }
            // What the tenant does not read of a project is not looked at any further.
            Ok(found) if found.is_empty() => {}
            Ok(_) => {
                faulty.push(unit);
                if let Stanza::Pipeline(pipeline) = stanza {
                    let (_, mut found) = pipeline.resolve(&ground.connections);
                    found.retain(|problem| !told.contains(problem));
                    problems.entry(Spot::of(unit)).or_default().extend(found);
                }
            }
            Err(refused) => problems.entry(Spot::of(unit)).or_default().extend(refused),
        }
    }
    faulty
}

/// Returns the pipelines that stand, in the order of configuration.
pub(super) fn pipelines(layout: &Layout) -> Vec<Pipeline> {
    let standing = layout.standing::<PipelineStanza>(ObjectKind::Pipeline);
    standing.into_iter().filter_map(|found| found.object.resolve(layout.connections()).0).collect()
}
