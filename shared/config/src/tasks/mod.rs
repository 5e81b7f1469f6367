//! Deployment tasks: what a `tasks.yaml` says of stages, groups and what runs on nodes (G1), with
//! the place of every mistake.
//!
//! [`parse`] reads one file, [`check`] follows names across all files of a graph. What is done with
//! the graph is not decided here.

mod check;

pub use check::check;

use crate::error::{Diagnostic, DiagnosticKind};
use crate::objects::Span;
use crate::objects::read::{Diagnostics, Fields, check_integer_range, members, text};
use crate::yaml::{self, Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Stages that are there without being defined, in the order in which they come (G1.2).
pub const STAGES: [&str; 3] = ["pre_deployment", "deployment", "post_deployment"];

/// One task, stage or group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its name, which others require it by.
    pub id: String,
    /// Where it stands.
    pub span: Span,
    /// What it does.
    pub kind: TaskKind,
    /// The roles of the nodes it runs on; for a group the roles whose nodes it deploys.
    pub roles: Roles,
    /// The stage it belongs to.
    pub stage: Option<String>,
    /// What comes before it.
    pub requires: Vec<Name>,
    /// What comes after it.
    pub required_for: Vec<Name>,
    /// Tasks of a group, the second way to say it (G1.3).
    pub tasks: Vec<Name>,
    /// How nodes follow each other.
    pub strategy: Option<Strategy>,
    /// When it is part of the graph at all (G5).
    pub condition: Option<String>,
    /// Seconds it may take.
    pub timeout_seconds: Option<u64>,
    /// Its parameters as they were written.
    pub parameters: Map<String, Json>,
}

/// A name with the place where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// Nothing: others come before or after it.
    Stage,
    /// Nothing: it holds what runs on the nodes of some roles.
    Group,
    /// Applies a manifest.
    Puppet,
    /// Runs a command.
    Shell,
    /// Puts a file on nodes.
    UploadFile,
    /// Copies a directory to nodes.
    Rsync,
}

/// Roles by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Roles {
    /// Nothing is said: a stage, or a group of the role of its own name.
    #[default]
    Unsaid,
    /// Every node.
    All,
    /// The nodes of these.
    Named(Vec<Name>),
}

/// How the nodes of a group follow each other (G3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// At once, or so many at a time.
    Parallel(Option<u32>),
    /// One after the other.
    OneByOne,
}

const KINDS: [(&str, TaskKind); 6] = [
    ("stage", TaskKind::Stage),
    ("group", TaskKind::Group),
    ("puppet", TaskKind::Puppet),
    ("shell", TaskKind::Shell),
    ("upload_file", TaskKind::UploadFile),
    ("rsync", TaskKind::Rsync),
];

impl TaskKind {
    /// Returns the parameters that it has, and which of them must be there.
    fn parameters(self) -> &'static [(&'static str, Need)] {
        match self {
            Self::Stage => &[],
            Self::Group => &[("strategy", Need::Strategy)],
            Self::Puppet => &[
                ("puppet_manifest", Need::Path),
                ("puppet_manifests", Need::Path),
                ("puppet_modules", Need::Path),
                ("cwd", Need::Path),
            ],
            Self::Shell => &[("cmd", Need::Text), ("cwd", Need::Path)],
            Self::UploadFile => {
                &[("path", Need::Path), ("data", Need::Text), ("permissions", Need::Text)]
            }
            Self::Rsync => &[("src", Need::Path), ("dst", Need::Path)],
        }
    }
}

/// What a parameter must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Text,
    /// A text without blanks: what is passed on is taken for one path.
    Path,
    Strategy,
}

/// Parses a file of tasks: a list, or one task alone. Mistakes are part of the result, all at once;
/// a task with one is left out.
pub fn parse(text: &str) -> (Vec<Task>, Vec<Diagnostic>) {
    let root = match yaml::compose(text) {
        Ok(root) => root,
        Err(cause) => {
            return (
                Vec::new(),
                vec![Diagnostic::new(
                    DiagnosticKind::Syntax,
                    cause.mark,
                    cause.mark,
                    cause.message,
                )],
            );
        }
    };
    let (mut tasks, mut diagnostics) = (Vec::new(), Vec::new());
    if root.is_null() {
        return (tasks, diagnostics);
    }
    for member in members(&root) {
        let mut p = Diagnostics { start: Some(member.start), ..Diagnostics::default() };
        let task = task(member, &mut p);
        if !p.any_error() {
            tasks.extend(task);
        }
        diagnostics.extend(p.list);
    }
    (tasks, diagnostics)
}

fn task(node: &Node, p: &mut Diagnostics) -> Option<Task> {
    let name = node.get("id").and_then(Node::as_text).unwrap_or_default();
    p.stanza = format!("task {name}").trim_end().to_owned();
    let mut f = Fields::of(node, "", p)?;
    let id = f.required_text("id", p);
    let kind = f.required("type", p).and_then(|node| kind_of(node, p));
    let roles = f
        .one_of(&["role", "groups"], p)
        .map(|(word, node)| roles(word, node, p))
        .unwrap_or_default();
    let stage = f.text("stage", p);
    let mut names = |word: &'static str, p: &mut Diagnostics| {
        f.take(word).map(|node| names(word, node, p)).unwrap_or_default()
    };
    let (requires, required_for, tasks) =
        (names("requires", p), names("required_for", p), names("tasks", p));
    let condition = f.text("condition", p);
    let own_strategy = f.take("strategy").and_then(|node| strategy(node, p));
    let parameters = f.take("parameters");
    f.finish(p);
    let (mut given, mut of_parameters, mut timeout_seconds) = (Map::new(), None, None);
    if let (Some(node), Some(kind)) = (parameters.filter(|node| !node.is_null()), kind)
        && let Some(mut f) = Fields::of(node, "parameters", p)
    {
        timeout_seconds = f.count("timeout", 1, p).map(u64::from);
        for (word, need) in kind.parameters() {
            let Some(value) = f.take(word) else { continue };
            match need {
                Need::Strategy => of_parameters = strategy(value, p),
                Need::Text | Need::Path => parameter(word, value, *need, p),
            }
        }
        f.finish(p);
        check_integer_range(node, "parameters", p);
        if let Json::Object(map) = node.to_json() {
            given = map;
        }
    }
    // E3: the founding document writes it both ways.
    if let Some(manifest) = given.remove("puppet_manifests") {
        given.entry("puppet_manifest").or_insert(manifest);
    }
    Some(Task {
        id: id?,
        span: Span::of(node),
        kind: kind?,
        roles,
        stage,
        requires,
        required_for,
        tasks,
        strategy: own_strategy.or(of_parameters),
        condition,
        timeout_seconds,
        parameters: given,
    })
}

fn kind_of(node: &Node, p: &mut Diagnostics) -> Option<TaskKind> {
    let wrong = text(node, "type", p)?;
    let found = KINDS.iter().find(|(word, _)| *word == wrong);
    if found.is_none() {
        let known = KINDS.map(|(word, _)| word);
        let message = format!("\"{wrong}\" is not one of {} for \"type\"", known.join(", "));
        let diagnostic = Diagnostic::new(DiagnosticKind::Syntax, node.start, node.end, message);
        p.add(diagnostic.about("type").suggesting(&wrong, known));
    }
    found.map(|(_, kind)| *kind)
}

fn roles(word: &str, node: &Node, p: &mut Diagnostics) -> Roles {
    match node.as_text() {
        Some("*") => Roles::All,
        _ => Roles::Named(names(word, node, p)),
    }
}

fn names(word: &str, node: &Node, p: &mut Diagnostics) -> Vec<Name> {
    let name = |member| Some(Name { text: text(member, word, p)?, span: Span::of(member) });
    members(node).iter().filter_map(name).collect()
}

fn strategy(node: &Node, p: &mut Diagnostics) -> Option<Strategy> {
    let mut f = Fields::of(node, "strategy", p)?;
    let kind = f.word("type", &[("parallel", true), ("one_by_one", false)], p);
    if node.get("type").is_none_or(Node::is_null) {
        p.syntax(node, "strategy.type", "required key not provided: \"type\"");
    }
    let amount = f.count("amount", 1, p);
    f.finish(p);
    if kind == Some(false) && amount.is_some() {
        p.syntax(
            node,
            "strategy.amount",
            "\"amount\" is for \"parallel\": one by one is one at a time",
        );
    }
    kind.map(|parallel| if parallel { Strategy::Parallel(amount) } else { Strategy::OneByOne })
}

fn parameter(word: &str, node: &Node, need: Need, p: &mut Diagnostics) {
    let attribute = format!("parameters.{word}");
    let text = match &node.value {
        // What is written as a number is a text here: permissions, a command that is one.
        Value::Int(_) if need == Need::Text => return,
        _ => text(node, &attribute, p),
    };
    if need == Need::Path
        && let Some(text) = text
        && text.contains(char::is_whitespace)
    {
        p.syntax(node, &attribute, format!("\"{text}\" is no path: it has a blank"));
    }
}
