//! A `pipeline` stanza. It is stored as a tree until the connections are known, since the keys of
//! its triggers are connections.

use super::Span;
use super::drivers;
use super::read::{Diagnostics, Fields, members, text, texts};
use crate::connection::{Connections, Driver};
use crate::error::{Diagnostic, DiagnosticKind};
use crate::pipeline::{
    Filter, Growth, GrowthKind, Manager, Messages, Pipeline, PipelineReporter, Reporters, Trigger,
    WindowSettings,
};
use crate::yaml::Node;
use serde::{Deserialize, Serialize};
use sluice_model::wakeup::Precedence;

/// A `pipeline` stanza as written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineStanza {
    /// Its name.
    pub name: String,
    /// The span of the stanza.
    pub span: Span,
    /// All its attributes.
    pub node: Node,
}

/// Reads only the name of a `pipeline` stanza, and keeps the other attributes as written,
/// unchecked, until connections are known ([`PipelineStanza::resolve`]). They are all taken from
/// `fields`, so that none is reported as unknown. Without a name, which is an error, the name is
/// empty.
pub(super) fn stanza(fields: &mut Fields<'_>, span: Span, p: &mut Diagnostics) -> PipelineStanza {
    // A stanza without a name is still parsed, to find its other errors.
    let name = fields.required_name("name", p).unwrap_or_default();
    // The other attributes are read when the connections are known.
    fields.rest();
    PipelineStanza { name, span, node: fields.node().clone() }
}

impl PipelineStanza {
    /// Returns the pipeline with its connections resolved, and all diagnostics about its
    /// attributes; a missing name is not among them. The pipeline is `None` if it has an error. Two
    /// errors about its reporters do not count: reporters of an unknown connection, which are left
    /// out, and two lists for merge conflicts, of which `merge-conflict` counts. So a pipeline that
    /// is returned may have errors.
    pub fn resolve(&self, connections: &Connections) -> (Option<Pipeline>, Vec<Diagnostic>) {
        let none = || Diagnostics {
            list: Vec::new(),
            stanza: format!("pipeline {}", self.name).trim_end().to_owned(),
            start: Some(self.span.start),
        };
        let (mut p, mut spared) = (none(), none());
        let fields = Fields::of(&self.node, "", &mut p);
        let pipeline =
            fields.map(|fields| read(&self.name, fields, connections, &mut p, &mut spared));
        let broken = p.any_error();
        spared.list.sort_by_key(|diagnostic| diagnostic.start);
        p.list.append(&mut spared.list);
        (pipeline.filter(|_| !broken), p.list)
    }
}

const MANAGERS: [(&str, Manager); 4] = [
    ("independent", Manager::Independent),
    ("dependent", Manager::Dependent),
    ("serial", Manager::Serial),
    ("supercedent", Manager::Supercedent),
];

/// Reads the pipeline. Absent and, with an error, invalid attributes get their defaults;
/// `allow-secrets: true` also makes it post-review. Errors in `p` make the pipeline invalid.
/// `spared` collects those that do not, since a wrong reporter does not prevent tests, while
/// removing the pipeline would drop all its items: reporters of unknown connections, which are left
/// out, and a repeated list for merge conflicts.
fn read(
    name: &str,
    mut f: Fields<'_>,
    connections: &Connections,
    p: &mut Diagnostics,
    spared: &mut Diagnostics,
) -> Pipeline {
    f.take("name");
    // A pipeline without a manager treats each item independently.
    let manager = f.word("manager", &MANAGERS, p).unwrap_or(Manager::Independent);
    let mut pipeline = Pipeline::new(name, manager);
    pipeline.description = f.text("description", p);
    pipeline.precedence = f
        .word(
            "precedence",
            &[("normal", Precedence::Normal), ("low", Precedence::Low), ("high", Precedence::High)],
            p,
        )
        .unwrap_or_default();
    pipeline.allow_secrets = f.flag("allow-secrets", p);
    pipeline.post_review =
        f.flag("post-review", p).unwrap_or(false) || pipeline.allow_secrets == Some(true);
    pipeline.window = window(&mut f, manager, p);
    if let Some((name, node)) = f.one_of(&["supercedes", "supersedes"], p) {
        pipeline.supersedes = texts(node, name, p).into_iter().map(Into::into).collect();
    }
    pipeline.allow_other_connections = f.flag("allow-other-connections", p).unwrap_or(true);
    pipeline.allow_parameters = f.flag("allow-parameters", p).unwrap_or(false);
    pipeline.dequeue_on_new_patchset = f.flag("dequeue-on-new-patchset", p).unwrap_or(true);
    pipeline.ignore_dependencies = f.flag("ignore-dependencies", p).unwrap_or(false);
    pipeline.disable_after_consecutive_failures =
        f.count("disable-after-consecutive-failures", 1, p);
    messages(&mut f, &mut pipeline.messages, p);
    pipeline.require = filters(&mut f, "require", connections, p);
    pipeline.reject = filters(&mut f, "reject", connections, p);
    pipeline.triggers = triggers(&mut f, connections, p);
    pipeline.reporters = reporters(&mut f, connections, p, spared);
    f.finish(p);
    pipeline
}

/// The attributes of a window.
const OF_WINDOW: [&str; 7] = [
    "window",
    "window-floor",
    "window-ceiling",
    "window-increase-type",
    "window-increase-factor",
    "window-decrease-type",
    "window-decrease-factor",
];

/// Takes the attributes of a pipeline's window. An invalid value is an error under every manager,
/// and so is a ceiling below the floor. In a dependent pipeline, absent and invalid attributes are
/// the manager's defaults; a null or invalid ceiling is none, and one below the floor is kept. In
/// other pipelines each attribute is a warning too, and the window is the manager's own.
fn window(f: &mut Fields<'_>, manager: Manager, p: &mut Diagnostics) -> WindowSettings {
    let fixed = WindowSettings::of(manager);
    let without_effect = match manager {
        Manager::Dependent => None,
        Manager::Independent => Some("in an independent pipeline no change waits for others"),
        Manager::Serial | Manager::Supercedent => {
            Some("this manager works on one item of a queue at a time")
        }
    };
    if let Some(why) = without_effect {
        for (name, node) in OF_WINDOW.iter().filter_map(|name| Some((*name, f.peek(name)?))) {
            p.warning(node, name, format!("\"{name}\" has no effect because {why}"));
        }
    }
    let kinds = [("linear", GrowthKind::Linear), ("exponential", GrowthKind::Exponential)];
    let growth = |f: &mut Fields<'_>,
                  p: &mut Diagnostics,
                  kind: &'static str,
                  factor: &'static str,
                  before: Growth| Growth {
        kind: f.word(kind, &kinds, p).unwrap_or(before.kind),
        factor: f.count(factor, 1, p).unwrap_or(before.factor),
    };
    let initial = f.count("window", 0, p).unwrap_or(fixed.initial);
    let floor = f.count("window-floor", 1, p).unwrap_or(fixed.floor);
    let above = f.peek("window-ceiling");
    let ceiling = match f.take("window-ceiling") {
        None => fixed.ceiling,
        Some(node) if node.is_null() => None,
        Some(node) => super::read::count(node, "window-ceiling", (1, u32::MAX), p),
    };
    if let (Some(node), Some(ceiling)) = (above, ceiling.filter(|ceiling| *ceiling < floor)) {
        let message = format!(
            "\"window-ceiling\" is {ceiling}, but must be at least \"window-floor\", which is \
             {floor}"
        );
        p.syntax(node, "window-ceiling", message);
    }
    let increase = growth(f, p, "window-increase-type", "window-increase-factor", fixed.increase);
    let decrease = growth(f, p, "window-decrease-type", "window-decrease-factor", fixed.decrease);
    match manager {
        // `independent` runs everything at once, the other two one item at a time.
        Manager::Independent | Manager::Serial | Manager::Supercedent => fixed,
        Manager::Dependent => WindowSettings { initial, floor, ceiling, increase, decrease },
    }
}

/// Takes the texts of reports into `messages`. Those that are absent or, with an error, no text
/// stay as they are, except the footer, which becomes `None`.
fn messages(f: &mut Fields<'_>, messages: &mut Messages, p: &mut Diagnostics) {
    let mut set = |names: &[&'static str], slot: &mut String| {
        let Some((name, node)) = f.one_of(names, p) else { return };
        if let Some(text) = text(node, name, p) {
            *slot = text;
        }
    };
    set(&["start-message"], &mut messages.start);
    set(&["success-message"], &mut messages.success);
    set(&["failure-message"], &mut messages.failure);
    // The second name is an older one.
    set(&["merge-conflict-message", "merge-failure-message"], &mut messages.merge_conflict);
    set(&["no-jobs-message"], &mut messages.no_jobs);
    set(&["enqueue-message"], &mut messages.enqueue);
    set(&["dequeue-message"], &mut messages.dequeue);
    messages.footer = f.text("footer-message", p);
}

/// Takes a mapping of connections, and returns its entries in order, each as name, driver and
/// value, and the errors for unknown connections. Entries of unknown connections are left out, and
/// the caller must report these errors. Both are empty if the mapping is absent or, with an error,
/// not a mapping.
fn by_connection<'n>(
    f: &mut Fields<'n>,
    name: &'static str,
    connections: &Connections,
    p: &mut Diagnostics,
) -> (Vec<(&'n str, Driver, &'n Node)>, Vec<Diagnostic>) {
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    let Some(node) = f.take(name) else { return (found, unknown) };
    let Some(mut fields) = Fields::of(node, name, p) else { return (found, unknown) };
    let keys: Vec<&Node> = fields.keys().collect();
    for ((connection, node), key) in fields.rest().into_iter().zip(keys) {
        match connections.driver(connection) {
            Some(driver) => found.push((connection, driver, node)),
            None => {
                let message = format!("Unknown connection named \"{connection}\"");
                let diagnostic =
                    Diagnostic::new(DiagnosticKind::UnknownName, key.start, key.end, message)
                        .about(name);
                let names = connections.0.keys().map(|name| name.as_str()).chain(["timer", "zuul"]);
                unknown.push(diagnostic.suggesting(connection, names));
            }
        }
    }
    (found, unknown)
}

/// Takes the triggers of all connections, in the order as written; a connection has one or a list.
/// Triggers of unknown connections, and those that cannot be read, are errors in `p` and left out;
/// invalid attributes are errors and unset.
fn triggers(f: &mut Fields<'_>, connections: &Connections, p: &mut Diagnostics) -> Vec<Trigger> {
    let mut triggers = Vec::new();
    let (found, unknown) = by_connection(f, "trigger", connections, p);
    unknown.into_iter().for_each(|diagnostic| p.add(diagnostic));
    for (connection, driver, node) in found {
        for member in members(node) {
            if let Some((kind, debug)) = drivers::trigger(driver, member, p) {
                triggers.push(Trigger { connection: connection.into(), kind, debug });
            }
        }
    }
    triggers
}

/// Takes the requirements of all connections from the attribute `name` (`require` or `reject`), one
/// mapping for each. Those of unknown connections, and those that are no mapping, are errors in `p`
/// and left out; invalid attributes are errors and unset. Drivers other than GitHub, Gerrit and
/// GitLab keep theirs as written, unchecked.
fn filters(
    f: &mut Fields<'_>,
    name: &'static str,
    connections: &Connections,
    p: &mut Diagnostics,
) -> Vec<Filter> {
    let (found, unknown) = by_connection(f, name, connections, p);
    unknown.into_iter().for_each(|diagnostic| p.add(diagnostic));
    found
        .into_iter()
        .filter_map(|(connection, driver, node)| {
            drivers::filter(driver, node, name, p)
                .map(|kind| Filter { connection: connection.into(), kind })
        })
        .collect()
}

/// Takes the reporters of every occasion. Those that cannot be read are errors in `p` and left out,
/// invalid attributes are errors in `p` and unset, and reporters of unknown connections are errors
/// in `spared` and left out. For merge conflicts, those of `merge-conflict` count, then those of
/// the older `merge-failure`; reporters of both are an error in `spared`. If no reporters are left
/// for merge conflicts or configuration errors, those for failure are used.
fn reporters(
    f: &mut Fields<'_>,
    connections: &Connections,
    p: &mut Diagnostics,
    spared: &mut Diagnostics,
) -> Reporters {
    let by_old_name = f.peek("merge-failure");
    let mut given = |name: &'static str| -> Vec<PipelineReporter> {
        let mut list = Vec::new();
        let (found, unknown) = by_connection(f, name, connections, p);
        unknown.into_iter().for_each(|diagnostic| spared.add(diagnostic));
        for (connection, driver, node) in found {
            for member in members(node) {
                if let Some(kind) = drivers::reporter(driver, member, name, p) {
                    list.push(PipelineReporter { connection: connection.into(), kind });
                }
            }
        }
        list
    };
    let failure = given("failure");
    let old_name = given("merge-failure");
    // The reporters for failure also report these, unless other reporters are listed. An empty list
    // counts as not listed.
    let or_else = |list: Vec<PipelineReporter>, others: &[PipelineReporter]| {
        if list.is_empty() { others.to_vec() } else { list }
    };
    let (start, enqueue, success) = (given("start"), given("enqueue"), given("success"));
    let conflict = given("merge-conflict");
    let is_twice = !conflict.is_empty() && !old_name.is_empty();
    let reporters = Reporters {
        start,
        enqueue,
        success,
        merge_conflict: or_else(or_else(conflict, &old_name), &failure),
        config_error: or_else(given("config-error"), &failure),
        no_jobs: given("no-jobs"),
        dequeue: given("dequeue"),
        disabled: given("disabled"),
        failure,
    };
    if let Some(node) = by_old_name.filter(|_| is_twice) {
        let message =
            "\"merge-failure\" is another name for \"merge-conflict\"; use only one of them";
        spared.syntax(node, "merge-failure", message);
    }
    reporters
}
