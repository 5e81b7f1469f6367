//! Projects and project templates: which jobs run in which pipeline (Z6.2).

use super::Span;
use super::job::{self, JobStanza};
use super::read::{Diagnostics, Fields, members};
use super::spans::{self, AttributeSpans};
use crate::Pattern;
use crate::yaml::{Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sluice_model::git::MergeMode;
use sluice_model::job::JobDependency;
use std::collections::BTreeMap;

/// A `project` stanza, or a `project-template` (which has no branches, merge mode or templates).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProjectStanza {
    /// The name of the template or project. `None` is the project of the file, `^…` a pattern of
    /// project names.
    pub name: Option<String>,
    /// The span of the stanza.
    pub span: Span,
    /// The spans of its attributes.
    pub spans: AttributeSpans,
    /// A description.
    pub description: Option<String>,
    /// The branches it applies to.
    pub branches: Option<Vec<Pattern>>,
    /// Variables for all its jobs.
    pub vars: Map<String, Json>,
    /// Its templates.
    pub templates: Vec<String>,
    /// How changes are merged into branches.
    pub merge_mode: Option<MergeMode>,
    /// The branch that is checked out by default and whose configuration comes first.
    pub default_branch: Option<String>,
    /// The shared queue.
    pub queue: Option<String>,
    /// Jobs by pipeline.
    pub pipelines: BTreeMap<String, PipelineJobs>,
}

impl ProjectStanza {
    /// Returns the pattern of project names, with its `^`; `None` if the stanza names a single
    /// project or none.
    pub fn expression(&self) -> Option<&str> {
        self.name.as_deref().filter(|name| name.starts_with('^'))
    }
}

/// The configuration of a project in one pipeline.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PipelineJobs {
    /// Whether reports contain debug messages.
    pub debug: bool,
    /// Whether the first failed job ends the others.
    pub fail_fast: Option<bool>,
    /// The shared queue in its older position.
    pub queue: Option<String>,
    /// The jobs in order.
    pub jobs: Vec<JobStanza>,
    /// The parameters of manual enqueues.
    pub parameters: Vec<Parameter>,
}

/// A parameter of a manual enqueue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// The variable that holds it.
    pub name: String,
    /// Its type.
    pub r#type: ParameterType,
    /// A description.
    pub description: Option<String>,
    /// The values to choose from.
    pub values: Vec<Json>,
    /// The default: one value, or a list for multiple selections.
    pub default: Option<Json>,
    /// Whether it is required.
    pub required: bool,
}

impl Parameter {
    /// Returns why a value does not fit the parameter's type and values, as the end of a sentence
    /// (`must be …`); `None` if it fits. `values` count only for selections. Whether a value is
    /// required is not checked.
    pub(crate) fn refusal(&self, value: &Json) -> Option<String> {
        let chosen = |value: &Json| self.values.contains(value);
        let words = || match self.values.as_slice() {
            [] => "its \"values\", of which it has none".to_owned(),
            values => values.iter().map(Json::to_string).collect::<Vec<_>>().join(", "),
        };
        let (is_fit, what) = match self.r#type {
            ParameterType::String => (value.is_string(), "a string".to_owned()),
            ParameterType::Bool => (value.is_boolean(), "true or false".to_owned()),
            ParameterType::Selection => (chosen(value), format!("one of {}", words())),
            ParameterType::MultipleSelection => {
                let all = value.as_array().is_some_and(|list| list.iter().all(chosen));
                (all, format!("a list of some of {}", words()))
            }
        };
        (!is_fit).then(|| format!("must be {what}"))
    }
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParameterType {
    /// A text.
    String,
    /// One of its values.
    Selection,
    /// Several of its values.
    MultipleSelection,
    /// A boolean.
    Bool,
}

const MERGE_MODES: [(&str, MergeMode); 6] = [
    ("merge", MergeMode::Merge),
    ("merge-resolve", MergeMode::MergeResolve),
    ("cherry-pick", MergeMode::CherryPick),
    ("squash-merge", MergeMode::SquashMerge),
    ("rebase", MergeMode::Rebase),
    ("rebase-first-parent", MergeMode::RebaseFirstParent),
];

/// Attributes of a project that templates do not have.
const OF_PROJECTS_ONLY: [&str; 4] = ["branches", "templates", "merge-mode", "default-branch"];

/// Maximum depth of nested job lists.
const TREE_DEPTH_MAX: usize = 20;

/// Reads a `project` stanza, in which every attribute that is not known is a pipeline. Without a
/// name, or, with an error, with a name that is no text, the stanza's name is `None`: the project
/// of the file. Invalid attributes are errors and unset. None of `fields` may have been taken yet.
pub(super) fn project(fields: &mut Fields<'_>, span: Span, p: &mut Diagnostics) -> ProjectStanza {
    let spans = spans::of_project(fields);
    let name = fields.text("name", p);
    let branches = fields.patterns("branches", p);
    let templates = fields.text_list("templates", p).unwrap_or_default();
    let merge_mode = fields.word("merge-mode", &MERGE_MODES, p);
    let default_branch = fields.text("default-branch", p);
    ProjectStanza {
        branches,
        templates,
        merge_mode,
        default_branch,
        spans,
        ..shared_attributes_and_pipelines(name, fields, span, p)
    }
}

/// Reads a `project-template` stanza, in which every attribute that is not known is a pipeline;
/// `None`, with an error, if it has no name. Attributes that only projects have are errors and left
/// out, unless their value has the form of a pipeline: then they are pipelines. None of `fields`
/// may have been taken yet.
pub(super) fn template(
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> Option<ProjectStanza> {
    let spans = spans::of_project(fields);
    let name = fields.required_name("name", p);
    // Every other key is a pipeline, and so is one of these if its value has the structure of a
    // pipeline.
    let is_pipeline = |node: &Node| node.as_map().is_some() && node.get("regex").is_none();
    for word in OF_PROJECTS_ONLY {
        if fields.peek(word).is_some_and(|node| !is_pipeline(node))
            && let Some(node) = fields.take(word)
        {
            let message = format!(
                "a template can not have \"{word}\": set it in the \"project\" that uses the \
                 template"
            );
            p.syntax(node, word, message);
        }
    }
    let template =
        ProjectStanza { spans, ..shared_attributes_and_pipelines(name, fields, span, p) };
    template.name.is_some().then_some(template)
}

/// Reads the attributes that projects and templates share, and every attribute that is left as a
/// pipeline; so call it after all others were taken. `name` is the name that the caller has taken.
/// Invalid attributes are errors and left out. `branches`, `templates`, `merge_mode`,
/// `default_branch` and `spans` are left empty.
fn shared_attributes_and_pipelines(
    name: Option<String>,
    fields: &mut Fields<'_>,
    span: Span,
    p: &mut Diagnostics,
) -> ProjectStanza {
    let description = fields.text("description", p);
    let vars = fields.variables("vars", p).unwrap_or_default();
    let queue = fields.text("queue", p);
    let mut pipelines = BTreeMap::new();
    for (pipeline, node) in fields.rest() {
        if let Some(jobs) = pipeline_jobs(pipeline, node, p) {
            pipelines.insert(pipeline.to_owned(), jobs);
        }
    }
    ProjectStanza {
        name,
        span,
        spans: AttributeSpans::default(),
        description,
        branches: None,
        vars,
        templates: Vec::new(),
        merge_mode: None,
        default_branch: None,
        queue,
        pipelines,
    }
}

/// Reads what a project does in one pipeline; `None`, with an error, if it is not a mapping.
/// `pipeline` is the pipeline's name, for messages. Invalid attributes, jobs and parameters are
/// errors and left out. Whether the pipeline and the jobs exist is not checked.
fn pipeline_jobs(pipeline: &str, node: &Node, p: &mut Diagnostics) -> Option<PipelineJobs> {
    let mut fields = Fields::of(node, pipeline, p)?;
    let mut found = PipelineJobs {
        debug: fields.flag("debug", p).unwrap_or(false),
        fail_fast: fields.flag("fail-fast", p),
        queue: fields.text("queue", p),
        jobs: Vec::new(),
        parameters: Vec::new(),
    };
    if let Some(list) = fields.take("jobs") {
        job_list(list, None, 0, &mut found.jobs, p);
    }
    if let Some(list) = fields.take("parameters") {
        found.parameters = members(list).iter().filter_map(|member| parameter(member, p)).collect();
    }
    fields.finish(p);
    Some(found)
}

/// Reads a list of jobs, and appends them to `jobs`. `after` is the job that contains this list, on
/// which they depend, or `None` for the outermost list; `depth` is the level of this list, from 0.
/// The jobs of a nested list follow the job that contains it. Members that are not jobs, values
/// that are no list, and lists nested more than [`TREE_DEPTH_MAX`] levels deep are errors and left
/// out.
fn job_list(
    node: &Node,
    after: Option<&str>,
    depth: usize,
    jobs: &mut Vec<JobStanza>,
    p: &mut Diagnostics,
) {
    if depth > TREE_DEPTH_MAX {
        p.syntax(node, "jobs", format!("jobs are nested more than {TREE_DEPTH_MAX} levels deep"));
        return;
    }
    let Some(list) = node.as_list() else {
        p.expected(node, "jobs", "a list of jobs");
        return;
    };
    for member in list {
        let entry = match &member.value {
            Value::Text(name) => Some((JobStanza::named(name, Span::of(member)), None)),
            Value::Map(pairs) => match pairs.as_slice() {
                [(key, attributes)] => entry(key, attributes, p),
                _ => {
                    p.syntax(
                        member,
                        "jobs",
                        "a job in a list is its name, or a mapping of its name to attributes",
                    );
                    None
                }
            },
            _ => {
                p.expected(member, "jobs", "a job's name or a mapping");
                None
            }
        };
        let Some((mut job, tree)) = entry else {
            continue;
        };
        if let Some(after) = after {
            // These add to the dependencies of its definition.
            let besides =
                || super::Combined { value: Vec::new(), combine: Some(super::Combine::Inherit) };
            let waits = job.dependencies.get_or_insert_with(besides);
            waits.value.push(JobDependency { name: after.into(), soft: false });
        }
        let name = job.name.clone();
        jobs.push(job);
        if let Some(tree) = tree {
            job_list(tree, Some(&name), depth + 1, jobs, p);
        }
    }
}

/// Reads an entry of a job list: `key` is the job's name. Returns the job with its attributes, and
/// the unread nested list of jobs that depend on it, if any. `None`, with an error, if the name is
/// not text or the attributes are not a mapping; null attributes are none. A `name` attribute that
/// differs is an error and ignored.
fn entry<'n>(
    key: &Node,
    attributes: &'n Node,
    p: &mut Diagnostics,
) -> Option<(JobStanza, Option<&'n Node>)> {
    let name = super::read::text(key, "jobs", p)?;
    let span = Span { start: key.start, end: attributes.end };
    if attributes.is_null() {
        return Some((JobStanza::named(&name, span), None));
    }
    let mut fields = Fields::of(attributes, "jobs", p)?;
    let tree = fields.take("jobs");
    if let Some(node) = fields.take("name")
        && node.as_text() != Some(&name)
    {
        p.syntax(node, "jobs.name", format!("the job \"{name}\" cannot be renamed here"));
    }
    let job = job::read(&name, span, &mut fields, p);
    fields.finish(p);
    Some((job, tree))
}

/// Reads a parameter of a manual enqueue; `None`, with an error, if it has no valid name or type.
/// Invalid values are errors and left out. A default that does not fit the type and values is an
/// error, but kept. A single default of a multiple selection becomes a list.
fn parameter(node: &Node, p: &mut Diagnostics) -> Option<Parameter> {
    let mut fields = Fields::of(node, "parameters", p)?;
    let name = fields
        .required("name", p)
        .and_then(|node| super::read::variable_name(node, "parameters.name", p));
    let kinds = [
        ("string", ParameterType::String),
        ("selection", ParameterType::Selection),
        ("multiple-selection", ParameterType::MultipleSelection),
        ("bool", ParameterType::Bool),
    ];
    let has_type = fields.has("type");
    let kind = fields.word("type", &kinds, p);
    if !has_type {
        p.syntax(node, "parameters.type", "required key not provided: \"type\"");
    }
    let description = fields.text("description", p);
    let required = fields.flag("required", p).unwrap_or(false);
    let values = fields.take("values").map(|node| match node.as_list() {
        Some(list) => list.iter().filter_map(|one| value(one, "parameters.values", p)).collect(),
        None => {
            p.expected(node, "parameters.values", "a list");
            Vec::new()
        }
    });
    let default_node = fields.take("default");
    let default = default_node.and_then(|node| match node.as_list() {
        Some(list) => Some(Json::Array(
            list.iter().filter_map(|one| value(one, "parameters.default", p)).collect(),
        )),
        // A single choice becomes a list of one value.
        None if kind == Some(ParameterType::MultipleSelection) => {
            value(node, "parameters.default", p).map(|one| Json::Array(vec![one]))
        }
        None => value(node, "parameters.default", p),
    });
    fields.finish(p);
    let values = values.unwrap_or_default();
    let parameter =
        Parameter { name: name?, r#type: kind?, description, values, default, required };
    if let (Some(node), Some(default)) = (default_node, &parameter.default)
        && let Some(why) = parameter.refusal(default)
    {
        let message = format!(
            "the default of the parameter \"{}\" {why}, as its \"type\" says",
            parameter.name
        );
        match parameter.r#type {
            ParameterType::String => p.unquoted(node, message, "parameters.default"),
            _ => p.syntax(node, "parameters.default", message),
        }
    }
    Some(parameter)
}

/// Reads a parameter's value as JSON; `None`, with an error, if it is not a string, number or
/// boolean. An integer beyond 64 bits is an error, but returned as a text.
fn value(node: &Node, attribute: &str, p: &mut Diagnostics) -> Option<Json> {
    match node.value {
        Value::Text(_) | Value::Int(_) | Value::Long(_) | Value::Float(_) | Value::Bool(_) => {
            super::read::check_integer_range(node, attribute, p);
            Some(node.to_json())
        }
        _ => {
            p.expected(node, attribute, "a string, a number or a boolean");
            None
        }
    }
}
