//! Checks the names that tasks use: tasks, stages, groups and roles. Also finds dependency cycles
//! (G2).

use super::{DeploymentTask, Name, Roles, STAGES, TaskKind};
use crate::error::{Diagnostic, DiagnosticKind, SuggestionBudget};
use crate::objects::Span;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the errors of a graph of tasks, sorted: repeated ids, undefined names of tasks and
/// stages, and one dependency cycle by `requires` and `required_for`. No such error does not mean
/// that there is no cycle: the members of groups and stages are not followed, and a cycle through a
/// built-in stage may hide others. `tasks` must be all tasks of the graph. With `roles`, which must
/// be all roles of nodes, other roles are errors too; but a task that is no group may also name a
/// group. With `None`, roles are not checked.
pub fn check(tasks: &[DeploymentTask], roles: Option<&BTreeSet<String>>) -> Vec<Diagnostic> {
    let mut by_id: BTreeMap<&str, &DeploymentTask> = BTreeMap::new();
    let mut found = Vec::new();
    let hints = SuggestionBudget::new();
    for task in tasks {
        if by_id.insert(&task.id, task).is_some() {
            found.push(diagnostic(
                task,
                DiagnosticKind::Duplicate,
                "id",
                task.span,
                format!("Task {} is already defined", task.id),
            ));
        }
    }
    let ids = || by_id.keys().copied().chain(STAGES);
    let bears = |name: &str| by_id.contains_key(name) || STAGES.contains(&name);
    for task in tasks {
        let mut unknown =
            |attribute: &str, what: &str, name: &Name, defined: &mut dyn Iterator<Item = &str>| {
                let message = format!("The {what} \"{}\" was not found.", name.text);
                found.push(
                    diagnostic(task, DiagnosticKind::UnknownName, attribute, name.span, message)
                        .suggesting_within(&hints, &name.text, defined),
                );
            };
        let lists = [
            ("requires", &task.requires),
            ("required_for", &task.required_for),
            ("tasks", &task.tasks),
        ];
        for (attribute, list) in lists {
            for name in list.iter().filter(|name| !bears(&name.text)) {
                unknown(attribute, "task", name, &mut ids());
            }
        }
        if let Some(stage) = task.stage.as_deref().filter(|stage| !bears(stage)) {
            unknown(
                "stage",
                "stage",
                &Name { text: stage.to_owned(), span: task.span },
                &mut ids(),
            );
        }
        if let (Roles::Named(list), Some(roles)) = (&task.roles, roles) {
            // A role's name may also be that of a group with its nodes.
            let is_group =
                |name: &str| by_id.get(name).is_some_and(|task| task.kind == TaskKind::Group);
            let stands = |name: &str| {
                roles.contains(name) || (task.kind != TaskKind::Group && is_group(name))
            };
            for name in list.iter().filter(|name| !stands(&name.text)) {
                unknown("role", "role", name, &mut roles.iter().map(String::as_str));
            }
        }
    }
    found.extend(dependency_cycle(tasks));
    found.sort();
    found
}

/// Returns the error for one dependency cycle by `requires` and `required_for`, naming its tasks in
/// dependency order; `None` if there is none. Stages and groups of tasks are not considered, and
/// other cycles are not reported. Also `None` if the cycle found begins at a name that is no task
/// of `tasks`, such as a built-in stage.
fn dependency_cycle(tasks: &[DeploymentTask]) -> Option<Diagnostic> {
    let mut waits: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for task in tasks {
        waits
            .entry(&task.id)
            .or_default()
            .extend(task.requires.iter().map(|name| name.text.as_str()));
        for name in &task.required_for {
            waits.entry(&name.text).or_default().insert(&task.id);
        }
    }
    // Repeatedly remove tasks without dependencies. The remaining tasks are in a cycle or depend on
    // one.
    let mut behind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, on) in &waits {
        let on: Vec<&str> = on.iter().copied().filter(|one| waits.contains_key(one)).collect();
        on.iter().for_each(|one| behind.entry(one).or_default().push(id));
        open.insert(id, on.len());
    }
    let mut free: Vec<&str> =
        open.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    while let Some(id) = free.pop() {
        waits.remove(id);
        for next in behind.remove(id).unwrap_or_default() {
            if let Some(count) = open.get_mut(next) {
                *count -= 1;
                free.extend((*count == 0).then_some(next));
            }
        }
    }
    let mut way: Vec<&str> = vec![waits.keys().next()?];
    while let Some(next) =
        waits.get(way.last()?).and_then(|on| on.iter().find(|one| waits.contains_key(**one)))
    {
        if let Some(first) = way.iter().position(|one| one == next) {
            let names: Vec<&str> = way.iter().skip(first).copied().chain([*next]).collect();
            let task = tasks.iter().find(|task| task.id == *next)?;
            let message = format!("Dependency cycle between tasks: {}", names.join(" → "));
            return Some(diagnostic(
                task,
                DiagnosticKind::Conflict,
                "requires",
                task.span,
                message,
            ));
        }
        way.push(next);
    }
    None
}

/// Returns an error about an attribute of a task, at `span`. It names the task and the line where
/// the task starts.
fn diagnostic(
    task: &DeploymentTask,
    kind: DiagnosticKind,
    attribute: &str,
    span: Span,
    message: String,
) -> Diagnostic {
    Diagnostic::new(kind, span.start, span.end, message)
        .in_stanza(&format!("task {}", task.id))
        .from_stanza_at(task.span.start)
        .about(attribute)
}
