//! Times each step of configuration: parse, layout, overlay, freeze, store, open.

use crate::tenant::Made;
use sluice_config::fragment::{self, Fragment, parse};
use sluice_config::layout::{BranchConfig, Layout, LayoutSources, Scope};
use sluice_config::{FreezeInput, SourceFile};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one tenant costs.
#[derive(Debug, Default)]
pub struct Figures {
    /// What was measured.
    pub name: String,
    /// Bytes of configuration.
    pub bytes: usize,
    /// Every file parsed.
    pub parse: Duration,
    /// The layout of parsed files.
    pub layout: Duration,
    /// A layout with one file edited, its errors since included; the file is parsed already.
    pub overlay: Duration,
    /// The same where the edit removes a job and adds another.
    pub overlay_renamed: Duration,
    /// The jobs of one change, on a layout that froze nothing before.
    pub freeze_first: Duration,
    /// The same again.
    pub freeze: Duration,
    /// To bytes.
    pub store: Duration,
    /// Bytes stored.
    pub stored_bytes: usize,
    /// From bytes.
    pub open: Duration,
    /// From bytes to the frozen jobs of a first change.
    pub open_and_freeze: Duration,
    /// The next layout where one project's file changed, by a function that has this one in memory.
    pub rebuild: Duration,
    /// The same by a cold function, from bytes.
    pub open_and_rebuild: Duration,
    /// Mistakes found.
    pub errors: usize,
    /// Jobs of the change.
    pub jobs: usize,
}

/// Returns the shortest of some runs of `work`, and its last result: what else this machine does
/// only adds.
pub fn shortest<T>(runs: usize, mut work: impl FnMut() -> T) -> (Duration, T) {
    let mut best = Duration::MAX;
    let mut last = None;
    for _ in 0..runs {
        // What came out before makes no room dear, and takes no time to be put away.
        drop(last.take());
        let begin = Instant::now();
        let result = work();
        best = best.min(begin.elapsed());
        last = Some(result);
    }
    (best, last.expect("there is at least one run"))
}

/// Measures a made tenant; `edits` are its project number 3 edited, without and with a job renamed.
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
        .map(|file| (file, fragment::content([fragment::hash(file).as_str()])))
        .collect();
    let rebuild_from = |layout: &Layout| {
        let of = |(file, content): &(&SourceFile, String)| {
            let kept = layout.kept(&file.source.project, &file.source.branch, content);
            kept.unwrap_or_else(|| vec![Arc::new(parse(file))])
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
