//! The stanzas of the configuration language, with typed attributes and unresolved names.

pub mod combine;
mod drivers;
pub mod job;
mod job_parts;
pub mod nodeset;
pub mod pipeline;
pub mod project;
pub mod provider;
mod provider_words;
pub(crate) mod read;
pub mod run_time;
pub mod small;
pub mod spans;

pub use combine::{Combine, Combined};
pub use job::{
    JobStanza, NodesetRef, Parent, PlaybookRef, RequiredProjectRef, RoleRef, RoleSource, SecretRef,
};
pub use nodeset::{Alternative, NodesetBody, NodesetStanza};
pub use pipeline::PipelineStanza;
pub use project::{Parameter, ParameterType, PipelineJobs, ProjectStanza};
pub use provider::ProviderObject;
pub use run_time::{IncludeVarsRef, RunTimeStanza, Selector};
pub use small::{PragmaStanza, QueueStanza, QueueType, SecretStanza, SemaphoreStanza};
pub use spans::AttributeSpans;

use crate::error::{Diagnostic, DiagnosticKind};
use crate::yaml::{Mark, Node};
use read::{Diagnostics, Fields};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The position of a node in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Span {
    /// Where it starts.
    pub start: Mark,
    /// Where it ends.
    pub end: Mark,
}

impl Span {
    /// Returns the span of a node.
    pub fn of(node: &Node) -> Self {
        Self { start: node.start, end: node.end }
    }
}

/// The kinds of objects, as named in `include` and `exclude`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// A pipeline.
    Pipeline,
    /// A job.
    Job,
    /// A semaphore.
    Semaphore,
    /// A project.
    Project,
    /// A project template.
    ProjectTemplate,
    /// A nodeset.
    Nodeset,
    /// A secret.
    Secret,
    /// A shared queue.
    Queue,
    /// An image.
    Image,
    /// A flavor.
    Flavor,
    /// A label.
    Label,
    /// A section.
    Section,
    /// A provider.
    Provider,
}

impl ObjectKind {
    /// Every kind with its keyword.
    pub const WORDS: [(&'static str, Self); 13] = [
        ("pipeline", Self::Pipeline),
        ("job", Self::Job),
        ("semaphore", Self::Semaphore),
        ("project", Self::Project),
        ("project-template", Self::ProjectTemplate),
        ("nodeset", Self::Nodeset),
        ("secret", Self::Secret),
        ("queue", Self::Queue),
        ("image", Self::Image),
        ("flavor", Self::Flavor),
        ("label", Self::Label),
        ("section", Self::Section),
        ("provider", Self::Provider),
    ];

    /// Returns whether it configures providers and their nodes.
    pub fn is_provider_config(self) -> bool {
        matches!(self, Self::Image | Self::Flavor | Self::Label | Self::Section | Self::Provider)
    }
}

/// A stanza of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stanza {
    /// A pipeline.
    Pipeline(PipelineStanza),
    /// A job.
    Job(Box<JobStanza>),
    /// A project.
    Project(ProjectStanza),
    /// A project template.
    ProjectTemplate(ProjectStanza),
    /// A nodeset.
    Nodeset(NodesetStanza),
    /// A shared queue.
    Queue(QueueStanza),
    /// A secret.
    Secret(SecretStanza),
    /// A semaphore.
    Semaphore(SemaphoreStanza),
    /// Settings for the file.
    Pragma(PragmaStanza),
    /// An image.
    Image(ProviderObject),
    /// A flavor.
    Flavor(ProviderObject),
    /// A label.
    Label(ProviderObject),
    /// A section.
    Section(ProviderObject),
    /// A provider.
    Provider(ProviderObject),
}

impl Stanza {
    /// Returns the kind of object that it defines; `None` for a pragma.
    pub fn kind(&self) -> Option<ObjectKind> {
        Some(match self {
            Self::Pragma(_) => return None,
            Self::Pipeline(_) => ObjectKind::Pipeline,
            Self::Job(_) => ObjectKind::Job,
            Self::Project(_) => ObjectKind::Project,
            Self::ProjectTemplate(_) => ObjectKind::ProjectTemplate,
            Self::Nodeset(_) => ObjectKind::Nodeset,
            Self::Queue(_) => ObjectKind::Queue,
            Self::Secret(_) => ObjectKind::Secret,
            Self::Semaphore(_) => ObjectKind::Semaphore,
            Self::Image(_) => ObjectKind::Image,
            Self::Flavor(_) => ObjectKind::Flavor,
            Self::Label(_) => ObjectKind::Label,
            Self::Section(_) => ObjectKind::Section,
            Self::Provider(_) => ObjectKind::Provider,
        })
    }
}

/// The result of parsing a file.
#[derive(Debug, Default)]
pub(crate) struct ParsedStanzas {
    /// The stanzas without errors.
    pub(crate) sound: Vec<Stanza>,
    /// The stanzas with errors, as far as they could be parsed. They define nothing, but they are
    /// checked for further errors.
    pub(crate) faulty: Vec<Stanza>,
    /// The diagnostics.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Parses a file's list of stanzas. A stanza with an error is in `faulty`, as far as it could be
/// read; a stanza with only warnings is in `sound`. One that could not be read at all only has its
/// error. Any other document than a list is one error; an empty document is no error.
pub(crate) fn stanzas(root: &Node) -> ParsedStanzas {
    let mut found = ParsedStanzas::default();
    if root.is_null() {
        return found;
    }
    let Some(list) = root.as_list() else {
        found.diagnostics.push(Diagnostic::new(
            DiagnosticKind::Syntax,
            root.start,
            root.end,
            format!("a configuration file must be a list of stanzas, but this is {}", root.kind()),
        ));
        return found;
    };
    for member in list {
        let mut p = Diagnostics { start: Some(member.start), ..Diagnostics::default() };
        let read = stanza(member, &mut p);
        // A stanza with an error is not loaded in part.
        if p.any_error() {
            found.faulty.extend(read.map(|stanza| without_members(stanza, &p.list)));
        } else {
            found.sound.extend(read);
        }
        found.diagnostics.extend(p.list);
    }
    found
}

/// Returns the stanza without the spans of the members of those lists that a diagnostic is about,
/// because a member that could not be read is missing there. The spans of the lists, and all
/// values, stay.
fn without_members(mut stanza: Stanza, diagnostics: &[Diagnostic]) -> Stanza {
    let attributes = diagnostics.iter().filter_map(|diagnostic| diagnostic.attribute.as_deref());
    let attributes: BTreeSet<String> =
        attributes.flat_map(|path| path.split('.')).map(str::to_owned).collect();
    match &mut stanza {
        Stanza::Job(job) => job.spans.forget_members(&attributes),
        Stanza::Nodeset(nodeset) => nodeset.spans.forget_members(&attributes),
        Stanza::Project(project) | Stanza::ProjectTemplate(project) => {
            project.spans.forget_members(&attributes);
            let entries = project.pipelines.values_mut().flat_map(|jobs| &mut jobs.jobs);
            entries.for_each(|job| job.spans.forget_members(&attributes));
        }
        _ => {}
    }
    stanza
}

/// Splits a stanza into its keyword, its body and its span; `None`, with an error, if it is not a
/// mapping, is empty or has several keys. Several keys are allowed if the first, the keyword, has
/// no value: the others are then the body. A keyword alone has an empty mapping as its body; any
/// other value is returned as it is, even if it is no mapping. Whether the keyword is known is not
/// checked; it is empty if it is no text.
pub(crate) fn split<'n>(member: &'n Node, p: &mut Diagnostics) -> Option<(&'n str, Node, Span)> {
    let map = member.as_map().unwrap_or_default();
    let span = Span::of(member);
    let Some((key, value)) = map.first() else {
        p.syntax(
            member,
            "",
            format!(
                "a stanza must be a mapping with one key, its kind, but this is {}",
                member.kind()
            ),
        );
        return None;
    };
    let word = key.as_text().unwrap_or_default();
    if map.len() == 1 {
        let body = if value.is_null() {
            Node { value: crate::yaml::Value::Map(Vec::new()), ..value.clone() }
        } else {
            value.clone()
        };
        return Some((word, body, span));
    }
    if value.is_null() {
        let body = Node {
            value: crate::yaml::Value::Map(map.get(1..).unwrap_or_default().to_vec()),
            start: key.start,
            end: member.end,
        };
        return Some((word, body, span));
    }
    let keys: Vec<&str> = map.iter().filter_map(|(key, _)| key.as_text()).collect();
    p.syntax(
        member,
        "",
        format!(
            "a stanza must have one key, its kind, but this has {}: {}",
            keys.len(),
            keys.join(", ")
        ),
    );
    None
}

/// Parses one stanza, and names it in `p`. `None`, with an error, if its kind is unknown or it
/// lacks what its kind requires, such as a name. A stanza with other errors is returned as far as
/// it could be read; see `p` for whether it has any. So is a job or pipeline without a name: its
/// name is empty.
fn stanza(member: &Node, p: &mut Diagnostics) -> Option<Stanza> {
    let (word, body, span) = split(member, p)?;
    let kind = ObjectKind::WORDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind);
    if kind.is_none() && word != "pragma" {
        let keywords = ObjectKind::WORDS.iter().map(|(name, _)| *name).chain(["pragma"]);
        let diagnostic = Diagnostic::new(
            DiagnosticKind::Syntax,
            member.start,
            member.end,
            format!("\"{word}\" is not a kind of configuration object"),
        );
        p.add(diagnostic.suggesting(word, keywords));
        return None;
    }
    let name = body.get("name").and_then(Node::as_text).unwrap_or_default();
    p.stanza = format!("{word} {name}").trim_end().to_owned();
    let mut f = Fields::of(&body, "", p)?;
    let stanza = match kind {
        None => Some(Stanza::Pragma(small::pragma(&mut f, p))),
        Some(ObjectKind::Pipeline) => Some(Stanza::Pipeline(pipeline::stanza(&mut f, span, p))),
        Some(ObjectKind::Job) => {
            // A stanza without a name is still parsed, to find its other errors.
            let name = f.required_name("name", p).unwrap_or_default();
            Some(Stanza::Job(Box::new(job::read(&name, span, &mut f, p))))
        }
        Some(ObjectKind::Project) => Some(Stanza::Project(project::project(&mut f, span, p))),
        Some(ObjectKind::ProjectTemplate) => {
            project::template(&mut f, span, p).map(Stanza::ProjectTemplate)
        }
        Some(ObjectKind::Nodeset) => nodeset::stanza(&mut f, span, p).map(Stanza::Nodeset),
        Some(ObjectKind::Queue) => small::queue(&mut f, span, p).map(Stanza::Queue),
        Some(ObjectKind::Secret) => small::secret(&mut f, span, p).map(Stanza::Secret),
        Some(ObjectKind::Semaphore) => small::semaphore(&mut f, span, p).map(Stanza::Semaphore),
        Some(ObjectKind::Image) => provider::image(&mut f, span, p).map(Stanza::Image),
        Some(ObjectKind::Flavor) => provider::flavor(&mut f, span, p).map(Stanza::Flavor),
        Some(ObjectKind::Label) => provider::label(&mut f, span, p).map(Stanza::Label),
        Some(ObjectKind::Section) => provider::section(&mut f, span, p).map(Stanza::Section),
        Some(ObjectKind::Provider) => provider::provider(&mut f, span, p).map(Stanza::Provider),
    };
    f.finish(p);
    stanza
}
