//! Collects what a project lists for one pipeline: the stanzas that apply with their templates, and
//! the entries of their job lists.

use super::FreezeInput;
use super::apply::deep_merge;
use super::collect::{Target, applies};
use crate::fragment::Source;
use crate::layout::{BranchContext, Layout};
use crate::objects::{JobStanza, Parameter, ProjectStanza};
use crate::pipeline::{Pipeline, Trigger, TriggerKind};
use serde_json::{Map, Value as Json};
use sluice_model::ProjectName;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of entries that a project may have in one pipeline, including its templates.
pub(super) const ENTRIES_MAX: usize = 2_000;

impl Layout {
    /// Returns whether the first failed job of an item in the pipeline ends its other jobs
    /// (`fail-fast`). The first value for the pipeline counts, in the stanzas and templates that
    /// apply to the item's branch, so that a config project can enforce it. `false` if none sets
    /// it.
    pub fn fail_fast(&self, input: &FreezeInput<'_>) -> bool {
        let listed = listed(self, input.project, input.pipeline, input.target());
        listed
            .stanzas
            .iter()
            .find_map(|part| part.stanza.pipelines.get(input.pipeline)?.fail_fast)
            .unwrap_or(false)
    }

    /// Returns whether reports contain debug messages: whether any stanza or template that applies
    /// to the item's branch sets `debug` for the pipeline.
    pub fn debug(&self, input: &FreezeInput<'_>) -> bool {
        let listed = listed(self, input.project, input.pipeline, input.target());
        listed
            .stanzas
            .iter()
            .filter_map(|part| part.stanza.pipelines.get(input.pipeline))
            .any(|jobs| jobs.debug)
    }

    /// Returns the parameters that a manual enqueue of a project accepts in a pipeline, sorted by
    /// name. If several stanzas or templates define one, the last counts. Stanzas and templates for
    /// other branches than `branch` are left out. With `branch` `None`, stanzas without `branches`
    /// apply, whatever branch holds them, and those with `branches` do not, unless a pattern
    /// matches the empty text. Empty if the project is unknown. Whether the pipeline allows
    /// parameters is not checked.
    pub fn parameters(
        &self,
        project: &ProjectName,
        pipeline: &str,
        branch: Option<&str>,
    ) -> Vec<&Parameter> {
        let target =
            Target { on: BranchContext::branch(branch), git_ref: branch.unwrap_or_default() };
        let listed = listed(self, project, pipeline, target);
        let all = listed.stanzas.iter().filter_map(|part| part.stanza.pipelines.get(pipeline));
        let by_name: BTreeMap<&str, &Parameter> = all
            .flat_map(|jobs| &jobs.parameters)
            .map(|parameter| (parameter.name.as_str(), parameter))
            .collect();
        by_name.into_values().collect()
    }

    /// Returns why a request for an image would run nothing: pipelines accept the event
    /// `image-build`, but the project that defines the image runs no job that builds it in any of
    /// them. `definition` is the file that defines the image; its project and branch count. `image`
    /// is the name as `image-build-name` writes it. `None` if a job would run, if no pipeline
    /// accepts the event, or if freezing fails in one of them, which the attempt itself reports.
    pub fn why_image_is_not_built(&self, definition: &Source, image: &str) -> Option<String> {
        let asks = |trigger: &Trigger| match &trigger.kind {
            TriggerKind::Zuul(zuul) => zuul.event.iter().any(|event| event == "image-build"),
            _ => false,
        };
        let taking: Vec<&Pipeline> =
            self.pipelines().iter().filter(|pipeline| pipeline.triggers.iter().any(asks)).collect();
        let image_names = [image.to_owned()];
        let has_job = |pipeline: &&Pipeline| {
            let change = FreezeInput::change(
                pipeline.name.as_str(),
                &definition.project,
                definition.branch.as_str(),
            );
            self.freeze(&FreezeInput { image_names: &image_names, ..change })
                .map_or(true, |graph| !graph.jobs.is_empty())
        };
        if taking.is_empty() || taking.iter().any(has_job) {
            return None;
        }
        let names: Vec<&str> = taking.iter().map(|pipeline| pipeline.name.as_str()).collect();
        let project = definition.project.name();
        Some(format!(
            "{project} lists no job with \"image-build-name: {image}\" in pipeline {}; add one",
            names.join(" or ")
        ))
    }
}

/// The stanzas and templates of a project for one pipeline.
struct Listed<'l> {
    stanzas: Vec<Part<'l>>,
    /// Stanzas that apply to other branches.
    left_out: Vec<LeftOut<'l>>,
    variables: Map<String, Json>,
}

/// A stanza that applies, or one of its templates.
struct Part<'l> {
    source: &'l Source,
    stanza: &'l ProjectStanza,
    /// The source of the stanza that names the template; for a stanza, its own source.
    attached: &'l Source,
}

/// A stanza that applies to other branches.
struct LeftOut<'l> {
    source: &'l Source,
    stanza: &'l ProjectStanza,
    /// Whether the branch that holds the stanza matches, and only its `branches` do not.
    is_bound_here: bool,
}

/// Returns the stanzas of a project that apply to the target and list jobs for the pipeline, each
/// preceded by those of its templates that also do. A template that is named again counts at its
/// first position. Stanzas and templates for other branches that list jobs for the pipeline are in
/// `left_out`. `variables` merges those of all stanzas that apply, with or without the pipeline,
/// and of the returned templates; later values override.
fn listed<'l>(
    layout: &'l Layout,
    project: &ProjectName,
    pipeline: &str,
    target: Target<'_>,
) -> Listed<'l> {
    let mut found = Listed { stanzas: Vec::new(), left_out: Vec::new(), variables: Map::new() };
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    for defined in layout.stanzas_of(project) {
        let stanza = defined.object;
        let is_bound_here = defined.is_implied_for(project, target.on);
        if !applies(stanza.branches.as_deref(), is_bound_here, target) {
            found.leave_out(LeftOut { source: defined.source(), stanza, is_bound_here }, pipeline);
            continue;
        }
        let attached = defined.source();
        for template in stanza.templates.iter().filter(|name| taken.insert(name.as_str())) {
            for defined in layout.templates(template) {
                let (source, stanza) = (defined.source(), defined.object);
                match defined.matches_implied(target.on) {
                    // A template's variables only apply in its own pipelines; those of a project
                    // apply in all.
                    true if !stanza.pipelines.contains_key(pipeline) => {}
                    true => found.add(Part { source, stanza, attached }, pipeline),
                    false => {
                        found.leave_out(LeftOut { source, stanza, is_bound_here: false }, pipeline)
                    }
                }
            }
        }
        found.add(Part { source: attached, stanza, attached }, pipeline);
    }
    found
}

impl<'l> Listed<'l> {
    /// Adds a stanza or template that applies: its variables, which override those before, and, if
    /// it lists jobs for the pipeline, the stanza itself. The variables of a template must not be
    /// added if it does not list the pipeline; the caller checks that.
    fn add(&mut self, part: Part<'l>, pipeline: &str) {
        deep_merge(&mut self.variables, &part.stanza.vars);
        if part.stanza.pipelines.contains_key(pipeline) {
            self.stanzas.push(part);
        }
    }

    /// Notes a stanza or template that does not apply; nothing if it lists no jobs for the
    /// pipeline.
    fn leave_out(&mut self, left_out: LeftOut<'l>, pipeline: &str) {
        if left_out.stanza.pipelines.contains_key(pipeline) {
            self.left_out.push(left_out);
        }
    }
}

/// An entry of a job list.
#[derive(Clone, Copy)]
pub(super) struct Entry<'l> {
    pub(super) source: &'l Source,
    /// The project stanza or template.
    pub(super) stanza: &'l ProjectStanza,
    pub(super) job: &'l JobStanza,
    /// The source that attaches the entry to the project: for a template, the stanza that names it.
    pub(super) attached: &'l Source,
}

/// The job lists of a project in a pipeline.
pub(super) struct Entries<'l> {
    /// The job names in order.
    pub(super) order: Vec<&'l str>,
    pub(super) by_name: BTreeMap<&'l str, Vec<Entry<'l>>>,
    /// The variables of the project.
    pub(super) variables: Map<String, Json>,
    /// The first entry beyond the limit; `None` if there is none.
    pub(super) over: Option<Entry<'l>>,
    /// Stanzas with jobs for the pipeline that apply to other branches.
    left_out: Vec<LeftOut<'l>>,
}

impl<'l> Entries<'l> {
    /// Returns the entries of stanzas and templates that list jobs for the pipeline but apply only
    /// to other branches, each with the reason why it does not apply; at most 2,000. `input` must
    /// be that of [`entries`].
    pub(super) fn left_out(&self, input: &FreezeInput<'_>) -> Vec<(Entry<'l>, String)> {
        let mut found = Vec::new();
        for &LeftOut { source, stanza, is_bound_here } in &self.left_out {
            let branches = stanza.branches.as_ref().map(|_| "the branches of its stanza");
            let why =
                input.target().mismatch("its stanza", branches, &source.branch, is_bound_here);
            let jobs = stanza.pipelines.get(input.pipeline).into_iter().flat_map(|jobs| &jobs.jobs);
            found.extend(
                jobs.map(|job| (Entry { source, stanza, job, attached: source }, why.clone())),
            );
        }
        found.truncate(ENTRIES_MAX);
        found
    }
}

/// Collects the entries of a project's job lists in a pipeline, from the stanzas and templates that
/// apply to the item's branch, by job. The `branches` of the entries themselves are not checked;
/// the caller does that. At most 2,000 are collected; `over` is the first one beyond that, if any.
/// Empty for an unknown project.
pub(super) fn entries<'l>(layout: &'l Layout, input: &FreezeInput<'_>) -> Entries<'l> {
    let mut order: Vec<&str> = Vec::new();
    let mut entries: BTreeMap<&str, Vec<Entry<'_>>> = BTreeMap::new();
    let (mut count, mut over) = (0, None);
    let Listed { stanzas, left_out, variables } =
        listed(layout, input.project, input.pipeline, input.target());
    for Part { source, stanza, attached } in stanzas {
        for job in stanza.pipelines.get(input.pipeline).into_iter().flat_map(|jobs| &jobs.jobs) {
            let entry = Entry { source, stanza, job, attached };
            count += 1;
            if count > ENTRIES_MAX {
                over.get_or_insert(entry);
                continue;
            }
            let list = entries.entry(&job.name).or_default();
            if list.is_empty() {
                order.push(&job.name);
            }
            list.push(entry);
        }
    }
    Entries { order, by_name: entries, variables, over, left_out }
}
