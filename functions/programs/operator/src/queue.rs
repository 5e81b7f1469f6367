//! `sluice queue resume`, `sluice dequeue` and `sluice promote`: commands to a queue.

use super::command_outcome::{
    explain_command, pending_reason, read_queues, unreadable_queues_note, wait_until_consumed,
};
use super::enqueue::EXIT_PENDING;
use super::operator;
use super::selectors::{PipelineSelector, ProjectSelector};
use crate::output::print_line;
use anyhow::{Context as _, bail, ensure};
use clap::Args;
use sluice_aws::OsEntropy;
use sluice_gate::{DEQUEUED_BY_OPERATOR, Entry, InboxMessage, InboxMessageKind, Slot, SlotStatus};
use sluice_model::change::{ChangeId, ChangeKey};
use sluice_model::git::Oid;
use sluice_model::wakeup::Wakeup;
use sluice_model::{InboxMessageId, ItemId, ProjectName, QueueKey, TenantName};
use sluice_records::operator_command::{self, ItemOutcome, OperatorCommand};
use sluice_records::{queue, tenant};
use sluice_runtime::quarantine::{halt_key, halt_reason};
use sluice_runtime::record::{Expect, Write};
use sluice_runtime::{Entropy as _, Ports, cell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// The maximum length of a recorded user name, in characters.
const WHO_MAX: usize = 64;

/// Resumes a halted queue, wakes it, and prints why it was halted. The reason and the user are
/// recorded only if a merge halted the queue; an empty reason is always an error, and so is a queue
/// that is not halted. A queue with unreadable records counts as halted: only its halt mark is
/// deleted, and it halts again if nothing was repaired.
///
/// # Errors
/// When the queue is not halted, the reason is empty, or the store does not answer.
pub async fn resume(data: Option<PathBuf>, key: QueueKey, reason: &str) -> anyhow::Result<()> {
    let reason = reason.trim();
    if reason.is_empty() {
        bail!(
            "could not resume the queue: say with --reason what you found; it is recorded with the change that halted the queue"
        );
    }
    let ports = operator(data).await?;
    let loaded = queue::load(&ports, &key).await;
    // A queue with unreadable records counts as halted: the mark is deleted, and the gate tries
    // again.
    let (has_mark, why) = match &loaded {
        Ok(loaded) => (loaded.is_halted, loaded.head.as_ref().and_then(|head| head.halted.clone())),
        Err(queue::LoadError::Bad(_)) => (true, None),
        Err(queue::LoadError::Port(error)) => bail!("could not read the queue: {error}"),
    };
    if !has_mark && why.is_none() {
        bail!(
            "could not resume the queue {} of {} in tenant {}: it is not halted (`sluice status` shows halted queues)",
            key.queue,
            key.pipeline,
            key.tenant
        );
    }
    let marked = if has_mark { halt_reason(&ports, &queue::partition(&key)).await? } else { None };
    let mut writes = Vec::new();
    if has_mark {
        writes.push(Write::Delete {
            key: halt_key(&queue::partition(&key)),
            expect: Expect::Anything,
        });
    }
    if why.is_some() {
        writes.push(queue::put_message(
            &key,
            &inbox_message(
                &ports,
                InboxMessageKind::Resume { by: who(), reason: reason.to_owned() },
            ),
        )?);
    }
    ports.records.commit(writes, &OsEntropy.token()).await?;
    cell::send(&ports, &[Wakeup::Queue { queue: key.clone() }]).await?;
    print_line!("Resumed the queue {} of {}.", key.queue, key.pipeline);
    for why in why.into_iter().chain(marked) {
        print_line!("It was halted because {why}");
    }
    Ok(())
}

/// Selects the change or ref of a project.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct ChangeSelector {
    /// Change: its number, or number,revision
    #[arg(long, value_name = "CHANGE")]
    pub change: Option<String>,
    /// Branch, or full ref such as refs/tags/1.0
    #[arg(long = "ref", value_name = "REF")]
    pub name: Option<String>,
}

/// The arguments of `sluice dequeue`.
#[derive(Debug, Clone, Args)]
pub struct DequeueArguments {
    /// The project and the pipeline.
    #[command(flatten)]
    pub project: ProjectSelector,
    /// The change or ref of the project.
    #[command(flatten)]
    pub selector: ChangeSelector,
    /// Why; recorded with the change and your name, and included in the pipeline's dequeue report
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// The items of one change that are to be dequeued from one queue.
struct DequeueTarget {
    queue: QueueKey,
    key: ChangeKey,
    /// The items. `true` if the item is merged and only runs its last jobs.
    items: Vec<(ItemId, bool)>,
    /// The other members of the change's bundle, which are dequeued with it.
    members: Vec<(ItemId, ChangeKey)>,
}

/// Dequeues every queued item of a project's change or ref from one pipeline, together with the
/// other members of its bundle. With `number,revision`, dequeues only items whose commit starts
/// with the revision. Waits up to a minute and prints the outcome of each item. Returns exit status
/// 0 if all have left, and 3 if a queue has not acted yet: the command stays stored. An item that
/// is not queued, or leaves for another reason, is an error.
///
/// # Errors
/// When the change is not queued, when it left for another reason, or the store does not answer.
pub async fn dequeue(arguments: DequeueArguments) -> anyhow::Result<ExitCode> {
    let DequeueArguments {
        project: ProjectSelector { within, project: project_name },
        selector,
        reason,
    } = arguments;
    let PipelineSelector { data, tenant, pipeline } = within;
    let ports = operator(data).await?;
    let tenant = named_or_only_tenant(&ports, tenant.as_deref()).await?;
    let git_ref = selector.name.as_deref().map(whole_ref);
    let change = selector.change.as_deref().or(git_ref.as_deref()).unwrap_or_default();
    let (number, head) = selector.change.as_deref().map(number_and_head).transpose()?.unzip();
    let head = head.flatten();
    let is_selected = |key: &ChangeKey| match &key.id {
        ChangeId::Number(its) => number == Some(*its),
        ChangeId::Ref(moved) => git_ref.as_ref() == Some(&moved.git_ref),
    };
    let read = read_queues(&ports, &tenant, &pipeline).await?;
    // A ref may be queued several times with different commits: all of them are dequeued.
    let mut found: Vec<DequeueTarget> = Vec::new();
    for (queue, entries) in &read.queues {
        let members =
            entries.iter().flat_map(|entry| entry.members.iter().map(move |slot| (entry, slot)));
        let selected = members.filter(|(_, slot)| {
            let project = &slot.change.key.project;
            is_selected(&slot.change.key)
                && [project.as_str(), project.name()].contains(&project_name.as_str())
                && head.is_none_or(|head| slot.change.head.as_str().starts_with(head))
        });
        for (entry, slot) in selected {
            let (key, item) =
                (&slot.change.key, (slot.id.clone(), slot.status == SlotStatus::Reporting));
            let members = other_members(entry, slot);
            match found.iter_mut().find(|other| other.queue == *queue && other.key == *key) {
                Some(same) => {
                    same.items.push(item);
                    same.members.extend(members);
                }
                None => found.push(DequeueTarget {
                    queue: queue.clone(),
                    key: key.clone(),
                    items: vec![item],
                    members,
                }),
            }
        }
    }
    let projects: BTreeSet<&ProjectName> = found.iter().map(|target| &target.key.project).collect();
    if found.is_empty() {
        bail!(
            "could not find {project_name} {change} in the pipeline {pipeline} of tenant {tenant} (`sluice status` shows what is queued){}",
            unreadable_queues_note(&read.unreadable)
        );
    }
    if projects.len() > 1 {
        let names: Vec<_> = projects.iter().map(ToString::to_string).collect();
        bail!("several projects match this name ({}): give a canonical name", names.join(", "));
    }
    let mut commands = Vec::new();
    for DequeueTarget { queue, key, .. } in &found {
        let (key, head) = (key.clone(), head.map(Oid::from));
        let kind =
            InboxMessageKind::Dequeue { key, head, by: who(), reason: reason.trim().to_owned() };
        commands.push(send_command(&ports, queue, kind).await?);
    }
    wait_and_print_outcomes(&ports, &found, &commands).await
}

/// Waits up to a minute for dequeue commands that were sent already, and prints the outcome of
/// each. `commands` has one command for each target, in the same order. Returns exit status 3 if a
/// command is still pending, else 0. An error, after all were printed, if an item did not leave
/// because of the command or its outcome could not be read.
async fn wait_and_print_outcomes(
    ports: &Ports,
    found: &[DequeueTarget],
    commands: &[OperatorCommand],
) -> anyhow::Result<ExitCode> {
    let waiting = wait_until_consumed(ports, commands).await?;
    let mut failed = Vec::new();
    for (DequeueTarget { queue, key, items, members }, command) in found.iter().zip(commands) {
        let pipeline = &queue.pipeline;
        if waiting.contains(command) {
            let why = pending_reason(ports, queue).await?;
            print_line!(
                "{key} will be dequeued from {pipeline}{}, but not yet: {why}. A merge in progress is finished first.",
                bundle_note(members)
            );
            print_line!("To see the outcome later: {}", explain_command(&queue.tenant, key));
            continue;
        }
        let ids: Vec<ItemId> = items.iter().map(|(id, _)| id.clone()).collect();
        let outcomes = match operator_command::item_outcomes(ports, queue, &ids).await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                failed.push(format!(
                    "the queue has applied the command to dequeue {key}, but its outcome could not be read: {error}"
                ));
                continue;
            }
        };
        let mut has_left = false;
        for (outcome, (_, was_reporting)) in outcomes.iter().zip(items) {
            match dequeue_outcome(outcome, *was_reporting) {
                Ok(how) => {
                    has_left = true;
                    print_line!("Dequeued {key} from {pipeline}: {how}");
                }
                Err(why) => failed.push(format!("could not dequeue {key} from {pipeline}: {why}")),
            }
        }
        if has_left {
            failed.extend(print_bundle_outcome(ports, queue, members).await);
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(if waiting.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PENDING) })
}

/// Prints the results of the other members of a bundle as dequeued with it, whatever the reason was
/// for which they left. Members that are still queued or without a record are skipped. Returns an
/// error text if the records could not be read, else `None`.
async fn print_bundle_outcome(
    ports: &Ports,
    queue: &QueueKey,
    members: &[(ItemId, ChangeKey)],
) -> Option<String> {
    if members.is_empty() {
        return None;
    }
    let ids: Vec<ItemId> = members.iter().map(|(id, _)| id.clone()).collect();
    match operator_command::item_outcomes(ports, queue, &ids).await {
        Ok(outcomes) => {
            for ((_, key), outcome) in members.iter().zip(outcomes) {
                if let ItemOutcome::Left { result, why } = outcome {
                    print_line!("Dequeued {key} from {} with it: {result}: {why}", queue.pipeline);
                }
            }
            None
        }
        Err(error) => Some(format!(
            "it was dequeued{}, but the records of those could not be read: {error}",
            bundle_note(members)
        )),
    }
}

/// Returns the item ids and changes of the other members of an item's bundle. Empty for a single
/// change. `entry` must contain `of`.
fn other_members(entry: &Entry, of: &Slot) -> Vec<(ItemId, ChangeKey)> {
    let others = entry.members.iter().filter(|slot| slot.id != of.id);
    others.map(|slot| (slot.id.clone(), slot.change.key.clone())).collect()
}

/// Formats the other members of a bundle as a suffix of a message: ` with A, B (its bundle)`. Empty
/// if there are none.
fn bundle_note(members: &[(ItemId, ChangeKey)]) -> String {
    let names: Vec<String> = members.iter().map(|(_, key)| key.to_string()).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" with {} (its bundle)", names.join(", "))
    }
}

/// Returns the result and reason of an item that left because of the command, or an error text: it
/// left for another reason, is still queued, or has no record. An item that was already merged
/// (`was_reporting`) counts as dequeued however it left, because the command only stopped its last
/// jobs.
fn dequeue_outcome(outcome: &ItemOutcome, was_reporting: bool) -> Result<String, String> {
    match outcome {
        // Items also leave as DEQUEUED when they move to another queue, are closed, or get a new
        // revision.
        ItemOutcome::Left { result, why } if why.starts_with(DEQUEUED_BY_OPERATOR) => Ok(format!("{result}: {why}")),
        // A merged item keeps its result SUCCESS: the command only ended its last jobs.
        ItemOutcome::Left { result, why } if was_reporting => Ok(format!("{result}: {why}; its last jobs were stopped")),
        ItemOutcome::Left { result, why } => Err(format!("it had already left with {result}: {why}")),
        ItemOutcome::InQueue { position, of } => {
            Err(format!("the queue has applied the command, but the change is still queued, at position {} of {of}", position + 1))
        }
        ItemOutcome::Gone => {
            Err("it is no longer queued, and there is no record of how it left (`sluice status` shows what is queued)"
                .to_owned())
        }
    }
}

/// Writes an operator's command to the inbox of a queue and wakes the queue. Does not wait. Returns
/// a handle to wait for the command with `wait_until_consumed`.
async fn send_command(
    ports: &Ports,
    queue: &QueueKey,
    kind: InboxMessageKind,
) -> anyhow::Result<OperatorCommand> {
    let (write, command) = operator_command::put(queue, &inbox_message(ports, kind))?;
    ports.records.commit(vec![write], &OsEntropy.token()).await?;
    cell::send(ports, &[Wakeup::Queue { queue: queue.clone() }]).await?;
    Ok(command)
}

/// Parses a change as zuul-client writes it: `number`, or `number,revision`. Returns the number and
/// the text after the comma, `None` without a comma. An empty revision is an error. Otherwise that
/// text is not checked: it may be only the start of a commit id.
pub(super) fn number_and_head(change: &str) -> anyhow::Result<(u64, Option<&str>)> {
    let (number, head) = match change.split_once(',') {
        Some((number, head)) => (number, Some(head)),
        None => (change, None),
    };
    let unusable =
        || format!("could not use {change:?} as a change: give its number, or number,revision");
    let number = number.parse().with_context(unusable)?;
    ensure!(head != Some(""), unusable());
    Ok((number, head))
}

/// Returns the full ref for a name. A name without `refs/` is a branch: `main` becomes
/// `refs/heads/main`.
pub(super) fn whole_ref(name: &str) -> String {
    if name.starts_with("refs/") { name.to_owned() } else { format!("refs/heads/{name}") }
}

/// The arguments of `sluice promote`.
#[derive(Debug, Clone, Args)]
pub struct PromoteArguments {
    /// The pipeline.
    #[command(flatten)]
    pub within: PipelineSelector,
    /// Changes, in the order in which they should be queued: each a number, or number,revision
    #[arg(long, value_name = "CHANGE", num_args = 1.., required = true)]
    pub changes: Vec<String>,
}

/// Moves changes of one queue to its front, in the given order, waits up to a minute and prints
/// their new positions. They stay behind changes that are already merging, and their dependencies
/// go with them. Returns exit status 0, or 3 if the queue has not acted yet: then the command stays
/// stored. An error if not exactly one queue has all the changes, if a number is ambiguous in it,
/// or if a change has left without being merged.
///
/// # Errors
/// When the changes are not in one queue, when one of them has left, or the store does not answer.
pub async fn promote(arguments: PromoteArguments) -> anyhow::Result<ExitCode> {
    let PipelineSelector { data, tenant, pipeline } = arguments.within;
    let ports = operator(data).await?;
    let tenant = named_or_only_tenant(&ports, tenant.as_deref()).await?;
    let selected: Vec<_> =
        arguments.changes.iter().map(|change| number_and_head(change)).collect::<Result<_, _>>()?;
    let read = read_queues(&ports, &tenant, &pipeline).await?;
    let mut found: Vec<(&QueueKey, Vec<Vec<&Slot>>)> = Vec::new();
    for (queue, entries) in &read.queues {
        let slots: Vec<Vec<&Slot>> = selected
            .iter()
            .map(|(number, head)| slots_of_change(entries, *number, *head))
            .collect();
        if slots.iter().all(|all| !all.is_empty()) {
            found.push((queue, slots));
        }
    }
    let changes = arguments.changes.join(" ");
    match found.as_slice() {
        [(queue, slots)] => {
            let slots = slots
                .iter()
                .map(|all| only_slot(queue, all))
                .collect::<anyhow::Result<Vec<&Slot>>>()?;
            let keys = slots.iter().map(|slot| slot.change.key.clone()).collect();
            let command =
                send_command(&ports, queue, InboxMessageKind::Promote { keys, by: who() }).await?;
            wait_and_print_positions(&ports, queue, &slots, command).await
        }
        [] => bail!(
            "could not find {changes} in one queue of {pipeline} in tenant {tenant} (`sluice status` shows what is queued){}",
            unreadable_queues_note(&read.unreadable)
        ),
        _ => bail!(
            "several queues of {pipeline} have changes with these numbers: give number,revision"
        ),
    }
}

/// Returns the first item of each change that has the number and, if `head` is given, a commit that
/// starts with it. Empty if there is none. There may be several: projects that share a queue may
/// each have a change of that number.
fn slots_of_change<'s>(entries: &'s [Entry], number: u64, head: Option<&str>) -> Vec<&'s Slot> {
    let mut found: Vec<&Slot> = Vec::new();
    for slot in entries.iter().flat_map(|entry| &entry.members) {
        let is_selected = slot.change.key.number() == Some(number)
            && head.is_none_or(|head| slot.change.head.as_str().starts_with(head));
        if is_selected && found.iter().all(|other| other.change.key != slot.change.key) {
            found.push(slot);
        }
    }
    found
}

/// Returns the only item of a list, which must not be empty. If it has several, returns an error
/// that asks for `number,revision` and names the queue.
fn only_slot<'s>(queue: &QueueKey, all: &[&'s Slot]) -> anyhow::Result<&'s Slot> {
    match all {
        [one] => Ok(*one),
        _ => {
            let names: Vec<String> = all.iter().map(|slot| slot.change.key.to_string()).collect();
            bail!(
                "several changes in the queue {} have this number: {}; give number,revision",
                queue.queue,
                names.join(", ")
            )
        }
    }
}

/// Waits up to a minute for a promote command that was sent already, and prints the new positions
/// of the changes, from 1. `slots` are the promoted items. Returns exit status 3 if the command is
/// still pending, else 0. An error, after all were printed, if an item had left with another result
/// than SUCCESS or has no record.
async fn wait_and_print_positions(
    ports: &Ports,
    queue: &QueueKey,
    slots: &[&Slot],
    command: OperatorCommand,
) -> anyhow::Result<ExitCode> {
    let QueueKey { tenant, pipeline, queue: name } = queue;
    if !wait_until_consumed(ports, &[command]).await?.is_empty() {
        let why = pending_reason(ports, queue).await?;
        print_line!("The changes will be promoted in {pipeline}, but not yet: {why}.");
        print_line!(
            "To see their positions later: sluice status --tenant {tenant} --pipeline {pipeline}"
        );
        return Ok(ExitCode::from(EXIT_PENDING));
    }
    let ids: Vec<ItemId> = slots.iter().map(|slot| slot.id.clone()).collect();
    let outcomes = operator_command::item_outcomes(ports, queue, &ids).await;
    let outcomes = outcomes.with_context(|| {
        format!("the queue {name} has applied the command, but the new positions could not be read")
    })?;
    print_line!(
        "Promoted to the front of {pipeline}, behind changes that are already merging and dependencies."
    );
    let mut failed = Vec::new();
    for (slot, outcome) in slots.iter().zip(outcomes) {
        let key = &slot.change.key;
        match outcome {
            ItemOutcome::InQueue { position, of } => {
                print_line!("{key} is at position {} of {of} in {name}", position + 1)
            }
            ItemOutcome::Left { result, why } if result == "SUCCESS" => {
                print_line!("{key} left {pipeline}: {result}: {why}")
            }
            ItemOutcome::Left { result, why } => {
                failed.push(format!("{key} had already left {pipeline}: {result}: {why}"))
            }
            ItemOutcome::Gone => failed.push(format!(
                "{key} is no longer in {name} (`sluice status` shows what is queued)"
            )),
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the user at the terminal, to record who gave a command: the first of `SUDO_USER`, `USER`
/// and `LOGNAME` that is set, cut to 64 characters. Empty if none is.
pub(super) fn who() -> String {
    let mut names =
        ["SUDO_USER", "USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let name = names.find(|name| !name.trim().is_empty()).unwrap_or_default();
    name.chars().take(WHO_MAX).collect()
}

/// Returns an operator's message to a queue, with a random id and the present time. Stores nothing.
fn inbox_message(ports: &Ports, kind: InboxMessageKind) -> InboxMessage {
    InboxMessage {
        id: InboxMessageId(OsEntropy.token()),
        at: ports.clock.now(),
        event_id: "operator".to_owned(),
        layout: 0,
        by_operator: true,
        in_progress: false,
        kind,
    }
}

/// Returns the tenant with this name, or the only tenant if no name is given. An error that lists
/// the tenants if it does not exist, there are none, or no name is given and there are several.
pub(super) async fn named_or_only_tenant(
    ports: &Ports,
    name: Option<&str>,
) -> anyhow::Result<TenantName> {
    let tenants = tenant::list_tenants(ports).await?;
    let names = || tenants.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match (name, tenants.as_slice()) {
        (_, []) => {
            bail!("there are no tenants; store a main configuration with `sluice tenant load FILE`")
        }
        (Some(name), _) => tenants
            .iter()
            .find(|tenant| tenant.as_str() == name)
            .cloned()
            .with_context(|| format!("there is no tenant {name}; tenants: {}", names())),
        (None, [one]) => Ok(one.clone()),
        (None, _) => bail!("there are several tenants ({}); name one with --tenant", names()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::change::ChangeRef;

    /// R06: a change is a number, or a number and the start of a revision.
    #[test]
    fn a_change_with_an_empty_revision_is_refused() {
        assert_eq!(number_and_head("7").unwrap(), (7, None));
        assert_eq!(number_and_head("7,abc").unwrap(), (7, Some("abc")));
        for unusable in ["7,", "seven", ",abc", ""] {
            let error = number_and_head(unusable).unwrap_err().to_string();
            assert!(error.contains("give its number"), "{unusable}: {error}");
        }
    }

    fn slot(project: &str, number: u64, head: &str) -> Slot {
        let key =
            ChangeKey::change("github".into(), ProjectName::new("github.com", project), number);
        let change =
            ChangeRef { key, branch: "main".into(), head: head.into(), patchset: head.to_owned() };
        Slot::new(ItemId(format!("{project}-{head}")), change)
    }

    /// Z6.4: a number that is ambiguous in a shared queue promotes nothing.
    #[test]
    fn an_ambiguous_number_promotes_nothing() {
        let queue =
            QueueKey { tenant: "demo".into(), pipeline: "gate".into(), queue: "integrated".into() };
        let entries =
            [slot("org/one", 7, "abc"), slot("org/two", 8, "bcd"), slot("org/two", 7, "cde")]
                .map(Entry::from);
        let chosen = |number, head| {
            only_slot(&queue, &slots_of_change(&entries, number, head))
                .map(|slot| slot.change.head.clone())
        };
        assert_eq!(chosen(8, None).unwrap(), Oid::from("bcd"));
        assert_eq!(chosen(7, Some("c")).unwrap(), Oid::from("cde"));
        let why = chosen(7, None).unwrap_err().to_string();
        assert!(
            why.contains("org/one")
                && why.contains("org/two")
                && why.ends_with("give number,revision"),
            "{why}"
        );
        let revisions = [slot("org/one", 7, "old"), slot("org/one", 7, "new")].map(Entry::from);
        assert_eq!(slots_of_change(&revisions, 7, None).len(), 1, "one change");
    }

    /// Z6.5, R06: dequeuing a member of a bundle names the other members, and no other change.
    #[test]
    fn dequeue_names_the_other_members_of_the_bundle() {
        let slots = |numbers: std::ops::RangeInclusive<u64>| {
            numbers.map(|number| slot("org/one", number, &format!("head{number}"))).collect()
        };
        let alone = Entry { ahead: None, members: slots(1..=1) };
        assert_eq!(bundle_note(&other_members(&alone, alone.first())), "");
        let bundle = Entry { ahead: None, members: slots(2..=4) };
        let others_of = |slot: &Slot| {
            let others = other_members(&bundle, slot);
            others.iter().filter_map(|(_, key)| key.number()).collect::<Vec<_>>()
        };
        let all: Vec<Vec<u64>> = bundle.members.iter().map(others_of).collect();
        assert_eq!(all, [[3, 4], [2, 4], [2, 3]]);
        let others = other_members(&bundle, &bundle.members[1]);
        assert_eq!(bundle_note(&others), " with org/one#2, org/one#4 (its bundle)");
        assert_eq!(others[1].0, bundle.members[2].id);
    }

    fn left_with_result(result: &str, why: &str) -> ItemOutcome {
        ItemOutcome::Left { result: result.to_owned(), why: why.to_owned() }
    }

    /// R06: dequeue reports an error for an item that merged or moved to another queue before the
    /// command applied.
    #[test]
    fn an_item_that_left_before_the_command_is_no_success() {
        let taken = "an operator dequeued it: it hangs";
        assert_eq!(
            dequeue_outcome(&left_with_result("DEQUEUED", taken), false),
            Ok(format!("DEQUEUED: {taken}"))
        );
        let landed = left_with_result("SUCCESS", "landed");
        assert_eq!(
            dequeue_outcome(&landed, false),
            Err("it had already left with SUCCESS: landed".to_owned())
        );
        assert_eq!(
            dequeue_outcome(&landed, true),
            Ok("SUCCESS: landed; its last jobs were stopped".to_owned())
        );
        let moved = left_with_result(
            "DEQUEUED",
            "the configuration changed: it belongs to the queue other now",
        );
        assert!(dequeue_outcome(&moved, false).is_err());
        assert!(dequeue_outcome(&ItemOutcome::Gone, false).is_err());
        let still_queued =
            dequeue_outcome(&ItemOutcome::InQueue { position: 0, of: 2 }, false).unwrap_err();
        assert!(still_queued.ends_with("at position 1 of 2"), "{still_queued}");
    }
}
