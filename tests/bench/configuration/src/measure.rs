//! Times each step of configuration: parse, layout, overlay, freeze, store, open.

use crate::tenant::Made;
use sluice_config::fragment::{self, Fragment, parse};
use sluice_config::layout::{BranchConfig, Layout, LayoutSources, Scope};
use sluice_config::{FreezeInput, SourceFile};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The cost of one tenant's configuration.
#[derive(Debug, Default)]
pub struct Figures {
    /// The name of the measured tenant.
    pub name: String,
    /// The bytes of configuration.
    pub bytes: usize,
    /// The time to parse all files.
    pub parse: Duration,
    /// The time to build a layout from parsed files.
    pub layout: Duration,
    /// The time of an overlay with one edited and parsed file, including the errors it causes.
    pub overlay: Duration,
    /// The same for an edit that replaces a job by another.
    pub overlay_renamed: Duration,
    /// The time to freeze the jobs of one change, on a layout that has frozen none.
    pub freeze_first: Duration,
    /// The time to freeze them again.
    pub freeze: Duration,
    /// The time to encode the layout.
    pub store: Duration,
    /// The encoded bytes.
    pub stored_bytes: usize,
    /// The time to decode the layout.
    pub open: Duration,
    /// The time from encoded bytes to the frozen jobs of a first change.
    pub open_and_freeze: Duration,
    /// The time of the next layout after a change to one file, in a function with the previous
    /// layout in memory.
    pub rebuild: Duration,
    /// The same in a cold function, which decodes the previous layout.
    pub open_and_rebuild: Duration,
    /// The number of configuration errors.
    pub errors: usize,
    /// The number of frozen jobs.
    pub jobs: usize,
}

/// Returns the shortest of several runs of `work` and its last result. The shortest is least
/// disturbed by other load.
pub fn shortest<T>(runs: usize, mut work: impl FnMut() -> T) -> (Duration, T) {
    let mut best = Duration::MAX;
    let mut last = None;
    for _ in 0..runs {
        // Drops the previous result first, so that neither its memory nor its release is measured.
        drop(last.take());
        let begin = Instant::now();
        let result = work();
        best = best.min(begin.elapsed());
        last = Some(result);
    }
    (best, last.expect("there is at least one run"))
}

/// Measures a generated tenant. `edits` are two edits of its project number 3, the second one with
/// a renamed job.
pub fn tenant(name: &str, made: &Made, edits: [SourceFile; 2]) -> Figures {
    let runs = 7;
    let (parse_time, fragments) = shortest(3, || {
        made.files.iter().map(|file| Arc::new(parse(file))).collect::<Vec<Arc<Fragment>>>()
    });
    let sources = || LayoutSources {
        tenant: made.tenant.clone(),
        connections: made.connections.clone(),
        branches: BTreeMap::new(),
        fragments: fragments.clone(),
    };
    let mut ready: Vec<LayoutSources> = (0..runs).map(|_| sources()).collect();
    let (layout_time, layout) =
        shortest(runs, || Layout::build(ready.pop().expect("one for each run")));
    let project = edits[0].source.project.clone();
    let edit = edits[0].clone();
    let mut overlays = edits.map(|file| {
        let proposed = BranchConfig {
            project: file.source.project.clone(),
            branch: file.source.branch.clone(),
            fragments: vec![Arc::new(parse(&file))],
        };
        shortest(runs, || {
            let overlay = layout.overlay(std::slice::from_ref(&proposed), Scope::UntrustedOnly);
            (overlay.errors_since(&layout).len(), overlay)
        })
    });
    assert!(
        overlays.iter().all(|(_, (_, overlay))| overlay.id() != layout.id()),
        "an edit makes another layout"
    );
    let (overlay_renamed, (errors, _)) = overlays[1].clone();
    assert!(errors > 0, "the renamed job is missed by the template that lists it");
    let input = FreezeInput::change("check", &project, "master");
    let freeze_on = |layout: &Layout| layout.freeze(&input).map_or(0, |graph| graph.jobs.len());
    let attempts = layout
        .freeze(&input)
        .map_or(0, |graph| graph.jobs.iter().map(|job| job.attempts).sum::<u32>());
    let edited = overlays[0]
        .1
        .1
        .freeze(&input)
        .map_or(0, |graph| graph.jobs.iter().map(|job| job.attempts).sum());
    assert_eq!(edited + 1, attempts, "the edit is one attempt less");
    let (freeze_first, _) = shortest(1, || freeze_on(&overlays[0].1.1));
    let (freeze_time, jobs) = shortest(runs, || freeze_on(&overlays[0].1.1));
    let (store, bytes) = shortest(runs, || layout.to_bytes());
    let open_layout = || Layout::from_bytes(&bytes).expect("what was stored opens");
    let (open, opened) = shortest(runs, open_layout);
    assert_eq!(opened.id(), layout.id(), "a layout opens as it was stored");
    let (open_and_freeze, _) = shortest(runs, || freeze_on(&open_layout()));
    drop(opened);
    let contents: Vec<(&SourceFile, String)> = made
        .files
        .iter()
        .map(|file| if file.source.project == project { &edit } else { file })
        .map(|file| (file, fragment::content_hash([fragment::hash(file).as_str()])))
        .collect();
    let rebuild_from = |layout: &Layout| {
        let of = |(file, content): &(&SourceFile, String)| {
            let carried = layout.carry_over(&file.source.project, &file.source.branch, content);
            carried.unwrap_or_else(|| vec![Arc::new(parse(file))])
        };
        Layout::build(LayoutSources {
            fragments: contents.iter().flat_map(of).collect(),
            ..sources()
        })
    };
    let (rebuild, next) = shortest(runs, || rebuild_from(&layout));
    let id = next.id().to_owned();
    drop(next);
    assert!(id != layout.id(), "an edit makes another layout");
    let (open_and_rebuild, next) = shortest(runs, || rebuild_from(&open_layout()));
    assert_eq!(next.id(), id, "whichever function makes it");
    Figures {
        name: name.to_owned(),
        bytes: made.files.iter().map(|file| file.text.len()).sum(),
        parse: parse_time,
        layout: layout_time,
        overlay: std::mem::take(&mut overlays[0].0),
        overlay_renamed,
        freeze_first,
        freeze: freeze_time,
        store,
        stored_bytes: bytes.len(),
        open,
        open_and_freeze,
        rebuild,
        open_and_rebuild,
        errors: layout.errors().len(),
        jobs,
    }
}
