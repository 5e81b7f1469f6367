//! What a project lists for one pipeline: the stanzas that apply with their templates, and the
//! entries of their lists.

use super::FreezeInput;
use super::apply::deep_merge;
use super::collect::{Target, applies};
use crate::fragment::Source;
use crate::layout::{Layout, On};
use crate::objects::{JobStanza, Parameter, ProjectStanza};
use crate::pipeline::{Pipeline, Trigger, TriggerKind};
use serde_json::{Map, Value as Json};
use sluice_model::ProjectName;
use std::collections::{BTreeMap, BTreeSet};

/// Greatest number of entries that a project has in one pipeline, those of its templates included.
pub(super) const ENTRIES_MAX: usize = 2_000;

impl Layout {
    /// Returns whether the first failure of a project's job in a pipeline ends the others. What the
    /// first stanza says that says anything cannot be taken back by a later one, so that a config
    /// project may force it.
    pub fn fail_fast(&self, input: &FreezeInput<'_>) -> bool {
        let listed = listed(self, input.project, input.pipeline, input.target());
        listed
            .stanzas
            .iter()
            .find_map(|part| part.stanza.pipelines.get(input.pipeline)?.fail_fast)
            .unwrap_or(false)
    }

    /// Returns whether what is decided about a project's changes in a pipeline is told in reports
    /// (`debug`): where any stanza that applies says so.
    pub fn debug(&self, input: &FreezeInput<'_>) -> bool {
        let listed = listed(self, input.project, input.pipeline, input.target());
        listed
            .stanzas
            .iter()
            .filter_map(|part| part.stanza.pipelines.get(input.pipeline))
            .any(|jobs| jobs.debug)
    }

    /// Returns the parameters that an enqueue by hand of a project may carry in a pipeline, by
    /// name. Of one name that of the last stanza counts.
    pub fn parameters(
        &self,
        project: &ProjectName,
        pipeline: &str,
        branch: Option<&str>,
    ) -> Vec<&Parameter> {
        let target = Target { on: On::branch(branch), git_ref: branch.unwrap_or_default() };
        let listed = listed(self, project, pipeline, target);
        let all = listed.stanzas.iter().filter_map(|part| part.stanza.pipelines.get(pipeline));
        let by_name: BTreeMap<&str, &Parameter> = all
            .flat_map(|jobs| &jobs.parameters)
            .map(|parameter| (parameter.name.as_str(), parameter))
            .collect();
        by_name.into_values().collect()
    }

    /// Returns why an event that asks for an image would have nothing run: pipelines take it, and
    /// the project that defines the image lists no job that builds it in any of them. What cannot
    /// be frozen is told where it is tried.
    pub fn why_image_is_not_built(&self, home: &Source, image: &str) -> Option<String> {
        let asks = |trigger: &Trigger| match &trigger.kind {
            TriggerKind::Zuul(zuul) => zuul.event.iter().any(|event| event == "image-build"),
            _ => false,
        };
        let taking: Vec<&Pipeline> =
            self.pipelines().iter().filter(|pipeline| pipeline.triggers.iter().any(asks)).collect();
        let image_names = [image.to_owned()];
        let has_job = |pipeline: &&Pipeline| {
            let change =
                FreezeInput::change(pipeline.name.as_str(), &home.project, home.branch.as_str());
            self.freeze(&FreezeInput { image_names: &image_names, ..change })
                .map_or(true, |graph| !graph.jobs.is_empty())
        };
        if taking.is_empty() || taking.iter().any(has_job) {
            return None;
        }
        let names: Vec<&str> = taking.iter().map(|pipeline| pipeline.name.as_str()).collect();
        let project = home.project.name();
        Some(format!(
            "{project} lists no job with \"image-build-name: {image}\" in {}: list one there",
            names.join(", nor in ")
        ))
    }
}

/// What a project's stanzas and templates say of one pipeline.
struct Listed<'l> {
    stanzas: Vec<Part<'l>>,
    /// Those that are for other branches.
    left_out: Vec<LeftOut<'l>>,
    variables: Map<String, Json>,
}

/// A stanza that applies, or a template of one.
struct Part<'l> {
    source: &'l Source,
    stanza: &'l ProjectStanza,
    /// Where the stanza is written that names the template; of a stanza where it is written itself.
    attached: &'l Source,
}

/// A stanza that is for other branches.
struct LeftOut<'l> {
    source: &'l Source,
    stanza: &'l ProjectStanza,
    /// Whether the branch that it stands on would be meant, and only those that it names are not.
    is_bound_here: bool,
}

/// Returns the stanzas that apply, each project's templates before itself. A template that is named
/// again counts where it is named first.
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
                    // Its variables are for the pipelines that it has; a project's own are for all.
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
    fn add(&mut self, part: Part<'l>, pipeline: &str) {
        deep_merge(&mut self.variables, &part.stanza.vars);
        if part.stanza.pipelines.contains_key(pipeline) {
            self.stanzas.push(part);
        }
    }

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
    /// The project's stanza, or the template's.
    pub(super) stanza: &'l ProjectStanza,
    pub(super) job: &'l JobStanza,
    /// Where it is said that the project has it: of a template's entry where the template is named.
    pub(super) attached: &'l Source,
}

/// The job lists of a project in a pipeline.
pub(super) struct Entries<'l> {
    /// Names in order.
    pub(super) order: Vec<&'l str>,
    pub(super) by_name: BTreeMap<&'l str, Vec<Entry<'l>>>,
    /// Variables of the project.
    pub(super) variables: Map<String, Json>,
    /// The first entry that is too many.
    pub(super) over: Option<Entry<'l>>,
    /// Stanzas that list jobs for the pipeline and are for other branches.
    left_out: Vec<LeftOut<'l>>,
}

impl<'l> Entries<'l> {
    /// Returns the entries of stanzas that are for other branches, each with why it counts for
    /// nothing here.
    pub(super) fn left_out(&self, input: &FreezeInput<'_>) -> Vec<(Entry<'l>, String)> {
        let mut found = Vec::new();
        for &LeftOut { source, stanza, is_bound_here } in &self.left_out {
            let branches = stanza.branches.as_ref().map(|_| "the branches of its stanza");
            let why = input.target().why_not("its stanza", branches, &source.branch, is_bound_here);
            let jobs = stanza.pipelines.get(input.pipeline).into_iter().flat_map(|jobs| &jobs.jobs);
            found.extend(
                jobs.map(|job| (Entry { source, stanza, job, attached: source }, why.clone())),
            );
        }
        found.truncate(ENTRIES_MAX);
        found
    }
}

/// Returns the job lists of a project in a pipeline.
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
