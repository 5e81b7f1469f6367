//! Deployment tasks: stages, groups and tasks of a `tasks.yaml` (G1), with diagnostics.
//!
//! [`parse`] reads one file, and [`check`] checks names across all files of a graph. This module
//! does not run tasks.

mod check;

pub use check::check;

use crate::error::{Diagnostic, DiagnosticKind};
use crate::objects::Span;
use crate::objects::read::{Diagnostics, Fields, check_integer_range, members, text};
use crate::yaml::{self, Node, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The built-in stages, in order (G1.2).
pub const STAGES: [&str; 3] = ["pre_deployment", "deployment", "post_deployment"];

/// A task, stage or group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeploymentTask {
    /// Its name, which other tasks refer to.
    pub id: String,
    /// Its span.
    pub span: Span,
    /// What it does.
    pub kind: TaskKind,
    /// The roles of the nodes it runs on; for a group, the roles of the nodes it deploys.
    pub roles: Roles,
    /// The stage it belongs to.
    pub stage: Option<String>,
    /// Tasks that run before it.
    pub requires: Vec<Name>,
    /// Tasks that run after it.
    pub required_for: Vec<Name>,
    /// The tasks of a group, as an alternative form (G1.3).
    pub tasks: Vec<Name>,
    /// The order in which nodes are processed.
    pub strategy: Option<Strategy>,
    /// The condition under which it is part of the graph (G5).
    pub condition: Option<String>,
    /// Its timeout in seconds.
    pub timeout_seconds: Option<u64>,
    /// Its parameters as written.
    pub parameters: Map<String, Json>,
}

/// A name with its span.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Its span.
    pub span: Span,
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// Nothing: other tasks run before or after it.
    Stage,
    /// Nothing: it contains the tasks for nodes of some roles.
    Group,
    /// Applies a manifest.
    Puppet,
    /// Runs a command.
    Shell,
    /// Uploads a file to nodes.
    UploadFile,
    /// Copies a directory to nodes.
    Rsync,
}

/// Roles by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Roles {
    /// Unset: for a stage, or for a group with the role of its own name.
    #[default]
    Unsaid,
    /// Every node.
    All,
    /// The nodes with these roles.
    Named(Vec<Name>),
}

/// The order in which the nodes of a group are processed (G3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// In parallel, optionally with a maximum number at a time.
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
    /// Returns the names of the parameters that a task of this type may have, each with the kind of
    /// its value; none is required. `timeout`, which every type has, is not among them.
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

/// The requirement for a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Text,
    /// A path without blanks, since it is passed on as one argument.
    Path,
    Strategy,
}

/// Parses a file of tasks: a list, or a single task. Returns the tasks without errors, and all
/// errors and warnings at once. A text that is not YAML has one error; an empty one has no tasks.
/// Names are not checked: see [`check`].
pub fn parse(text: &str) -> (Vec<DeploymentTask>, Vec<Diagnostic>) {
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

/// Reads one task, and has the diagnostics in `p` name it; `None`, with an error, if it is not a
/// mapping or has no id or no known type. With other errors the task is returned; the caller drops
/// it if `p` has any error. Of `puppet_manifest` and `puppet_manifests`, which mean the same, the
/// former counts.
fn task(node: &Node, p: &mut Diagnostics) -> Option<DeploymentTask> {
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
    // E3: both names are in use.
    if let Some(manifest) = given.remove("puppet_manifests") {
        given.entry("puppet_manifest").or_insert(manifest);
    }
    Some(DeploymentTask {
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

/// Reads the type of a task; `None`, with an error, for an unknown one or another value than a
/// text.
fn kind_of(node: &Node, p: &mut Diagnostics) -> Option<TaskKind> {
    let wrong = text(node, "type", p)?;
    let found = KINDS.iter().find(|(word, _)| *word == wrong);
    if found.is_none() {
        let types = KINDS.map(|(word, _)| word);
        let message = format!("\"{wrong}\" is not one of {} for \"type\"", types.join(", "));
        let diagnostic = Diagnostic::new(DiagnosticKind::Syntax, node.start, node.end, message);
        p.add(diagnostic.about("type").suggesting(&wrong, types));
    }
    found.map(|(_, kind)| *kind)
}

/// Reads the roles of the nodes on which a task runs: the text `*` for all, or a name or a list of
/// names; a `*` in a list is a name. Names that are no text are errors and left out. `word` is the
/// attribute's name, for messages.
fn roles(word: &str, node: &Node, p: &mut Diagnostics) -> Roles {
    match node.as_text() {
        Some("*") => Roles::All,
        _ => Roles::Named(names(word, node, p)),
    }
}

/// Reads a list of names of tasks or roles with their positions; a single one is a list of one.
/// Members that are no text are errors and left out. `word` is the attribute's name, for messages.
fn names(word: &str, node: &Node, p: &mut Diagnostics) -> Vec<Name> {
    let name = |member| Some(Name { text: text(member, word, p)?, span: Span::of(member) });
    members(node).iter().filter_map(name).collect()
}

/// Reads how a task proceeds over several nodes; `None`, with an error, if it is not a mapping or
/// has no known type. An invalid `amount` is an error and unset. An `amount` with `one_by_one` is
/// an error and ignored.
fn strategy(node: &Node, p: &mut Diagnostics) -> Option<Strategy> {
    let mut f = Fields::of(node, "strategy", p)?;
    let kind = f.word("type", &[("parallel", true), ("one_by_one", false)], p);
    if node.get("type").is_none_or(Node::is_null) {
        p.syntax(node, "strategy.type", "required key not provided: \"type\"");
    }
    let amount = f.count("amount", 1, p);
    f.finish(p);
    if kind == Some(false) && amount.is_some() {
        p.syntax(node, "strategy.amount", "\"amount\" is only allowed with \"parallel\"");
    }
    kind.map(|parallel| if parallel { Strategy::Parallel(amount) } else { Strategy::OneByOne })
}

/// Reports an error if the value of a parameter is not a text, or is a path that contains a blank.
/// An integer is allowed for a text that is not a path. `word` is the parameter's name, `need` the
/// kind of value. Returns nothing: the value is stored as written.
fn parameter(word: &str, node: &Node, need: Need, p: &mut Diagnostics) {
    let attribute = format!("parameters.{word}");
    let text = match &node.value {
        // Numbers are read as text here, such as permissions.
        Value::Int(_) if need == Need::Text => return,
        _ => text(node, &attribute, p),
    };
    if need == Need::Path
        && let Some(text) = text
        && text.contains(char::is_whitespace)
    {
        p.syntax(node, &attribute, format!("\"{text}\" is not a valid path: it contains a blank"));
    }
}
