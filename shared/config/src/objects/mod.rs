//! Stanzas: what the language's objects say, each attribute typed and nothing resolved yet.

pub mod combine;
mod drivers;
pub mod job;
mod job_parts;
pub mod nodeset;
pub mod pipeline;
pub mod places;
pub mod project;
pub mod provider;
mod provider_words;
pub(crate) mod read;
pub mod run_time;
pub mod small;

pub use combine::{Combine, Combined};
pub use job::{
    JobStanza, NodesetRef, Parent, PlaybookRef, RequiredProjectRef, RoleRef, RoleSource, SecretRef,
};
pub use nodeset::{Alternative, NodesetBody, NodesetStanza};
pub use pipeline::PipelineStanza;
pub use places::Places;
pub use project::{Parameter, ParameterType, PipelineJobs, ProjectStanza};
pub use provider::ProviderObject;
pub use run_time::{IncludeVarsRef, RunTimeStanza, Selector};
pub use small::{PragmaStanza, QueueStanza, QueueType, SecretStanza, SemaphoreStanza};

use crate::error::{Problem, ProblemKind};
use crate::yaml::{Mark, Node};
use read::{Fields, Problems};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Where a stanza stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Place {
    /// Where it begins.
    pub start: Mark,
    /// Where it ends.
    pub end: Mark,
}

impl Place {
    /// Returns the place of a node.
    pub fn of(node: &Node) -> Self {
        Self { start: node.start, end: node.end }
    }
}

/// Kinds of objects, as `include` and `exclude` name them.
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
    /// Every kind with its word.
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

    /// Returns whether it tells what nodes are made of.
    pub fn is_provider_config(self) -> bool {
        matches!(self, Self::Image | Self::Flavor | Self::Label | Self::Section | Self::Provider)
    }
}

/// One stanza of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stanza {
    /// A pipeline.
    Pipeline(PipelineStanza),
    /// A job.
    Job(Box<JobStanza>),
    /// A project.
    Project(ProjectStanza),
    /// A template of projects.
    ProjectTemplate(ProjectStanza),
    /// A nodeset.
    Nodeset(NodesetStanza),
    /// What a shared queue allows.
    Queue(QueueStanza),
    /// A secret.
    Secret(SecretStanza),
    /// A semaphore.
    Semaphore(SemaphoreStanza),
    /// How the file is read.
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
    /// Returns the kind of object that it defines; `None` for how the file is read.
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

/// What was read of a file.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Stanzas without mistakes.
    pub(crate) sound: Vec<Stanza>,
    /// Those with mistakes, as far as they could be read: they stand nowhere, and what else is
    /// wrong with them is looked for.
    pub(crate) faulty: Vec<Stanza>,
    /// The mistakes.
    pub(crate) problems: Vec<Problem>,
}

/// Reads a file's list of stanzas.
pub(crate) fn stanzas(root: &Node) -> Found {
    let mut found = Found::default();
    if root.is_null() {
        return found;
    }
    let Some(list) = root.as_list() else {
        found.problems.push(Problem::new(
            ProblemKind::Syntax,
            root.start,
            root.end,
            format!("a configuration file must be a list of stanzas, but this is {}", root.kind()),
        ));
        return found;
    };
    for member in list {
        let mut p = Problems { start: Some(member.start), ..Problems::default() };
        let read = stanza(member, &mut p);
        // A stanza with a mistake is not half loaded.
        if p.any_error() {
            found.faulty.extend(read.map(|stanza| without_members(stanza, &p.list)));
        } else {
            found.sound.extend(read);
        }
        found.problems.extend(p.list);
    }
    found
}

/// Returns a stanza that no longer says where members stand of lists that have a mistake.
fn without_members(mut stanza: Stanza, problems: &[Problem]) -> Stanza {
    let attributes = problems.iter().filter_map(|problem| problem.attribute.as_deref());
    let told: BTreeSet<String> =
        attributes.flat_map(|path| path.split('.')).map(str::to_owned).collect();
    match &mut stanza {
        Stanza::Job(job) => job.places.forget_members(&told),
        Stanza::Nodeset(nodeset) => nodeset.places.forget_members(&told),
        Stanza::Project(project) | Stanza::ProjectTemplate(project) => {
            project.places.forget_members(&told);
            let entries = project.pipelines.values_mut().flat_map(|jobs| &mut jobs.jobs);
            entries.for_each(|job| job.places.forget_members(&told));
        }
        _ => {}
    }
    stanza
}

/// Splits a stanza into its word, its body and its place. The seeds also write name and data beside
/// a bare word.
pub(crate) fn split<'n>(member: &'n Node, p: &mut Problems) -> Option<(&'n str, Node, Place)> {
    let map = member.as_map().unwrap_or_default();
    let place = Place::of(member);
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
        return Some((word, body, place));
    }
    if value.is_null() {
        let body = Node {
            value: crate::yaml::Value::Map(map.get(1..).unwrap_or_default().to_vec()),
            start: key.start,
            end: member.end,
        };
        return Some((word, body, place));
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

/// Reads one stanza.
fn stanza(member: &Node, p: &mut Problems) -> Option<Stanza> {
    let (word, body, place) = split(member, p)?;
    let kind = ObjectKind::WORDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind);
    if kind.is_none() && word != "pragma" {
        let known = ObjectKind::WORDS.iter().map(|(name, _)| *name).chain(["pragma"]);
        let problem = Problem::new(
            ProblemKind::Syntax,
            member.start,
            member.end,
            format!("\"{word}\" is not a kind of configuration object"),
        );
        p.add(problem.suggesting(word, known));
        return None;
    }
    let name = body.get("name").and_then(Node::as_text).unwrap_or_default();
    p.stanza = format!("{word} {name}").trim_end().to_owned();
    let mut f = Fields::of(&body, "", p)?;
    let stanza = match kind {
        None => Some(Stanza::Pragma(small::pragma(&mut f, p))),
        Some(ObjectKind::Pipeline) => Some(Stanza::Pipeline(pipeline::stanza(&mut f, place, p))),
        Some(ObjectKind::Job) => {
            // Without a name it is read all the same, for its other mistakes.
            let name = f.required_name("name", p).unwrap_or_default();
            Some(Stanza::Job(Box::new(job::read(&name, place, &mut f, p))))
        }
        Some(ObjectKind::Project) => Some(Stanza::Project(project::project(&mut f, place, p))),
        Some(ObjectKind::ProjectTemplate) => {
            project::template(&mut f, place, p).map(Stanza::ProjectTemplate)
        }
        Some(ObjectKind::Nodeset) => nodeset::stanza(&mut f, place, p).map(Stanza::Nodeset),
        Some(ObjectKind::Queue) => small::queue(&mut f, place, p).map(Stanza::Queue),
        Some(ObjectKind::Secret) => small::secret(&mut f, place, p).map(Stanza::Secret),
        Some(ObjectKind::Semaphore) => small::semaphore(&mut f, place, p).map(Stanza::Semaphore),
        Some(ObjectKind::Image) => provider::image(&mut f, place, p).map(Stanza::Image),
        Some(ObjectKind::Flavor) => provider::flavor(&mut f, place, p).map(Stanza::Flavor),
        Some(ObjectKind::Label) => provider::label(&mut f, place, p).map(Stanza::Label),
        Some(ObjectKind::Section) => provider::section(&mut f, place, p).map(Stanza::Section),
        Some(ObjectKind::Provider) => provider::provider(&mut f, place, p).map(Stanza::Provider),
    };
    f.finish(p);
    stanza
}
