//! `sluice queue resume`, `sluice change dequeue`, `sluice ref dequeue` and `sluice change
//! promote`: commands to a queue.

use super::command_outcome::{
    explain_command, pending_reason, read_queues, unreadable_queues_note, wait_until_consumed,
};
use super::enqueue::EXIT_PENDING;
use super::operator;
use super::selectors::{ChangeSelector, NamedChange, PipelineSelector, RefSelector};
use crate::accepted::AcceptedWrite;
use crate::api_client::{ApiWrite, Client, api_path};
use crate::output::print_line;
use anyhow::{Context as _, bail};
use clap::Args;
use reqwest::Method;
use serde_json::json;
use sluice_aws::OsEntropy;
use sluice_commands::{
    ChangeNumber, CommandAuthor, CommandSource, DequeueSelection, Promotion, QueuedChange,
    StoreCommandError, inbox_message, select_promotion, select_queued, whole_ref,
};
use sluice_gate::{DEQUEUED_BY_OPERATOR, InboxMessageKind, SlotStatus};
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::Wakeup;
use sluice_model::{ItemId, QueueKey, TenantName};
use sluice_records::operator_command::{self, ItemOutcome, OperatorCommand};
use sluice_records::{queue, tenant};
use sluice_runtime::quarantine::{halt_key, halt_reason};
use sluice_runtime::record::{Expect, Write};
use sluice_runtime::{Entropy as _, Ports, cell};
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

/// The arguments of `sluice change dequeue`.
#[derive(Debug, Clone, Args)]
pub struct DequeueArguments {
    /// The change.
    #[command(flatten)]
    pub selector: ChangeSelector,
    /// Why; recorded with the change and your name, and included in the pipeline's dequeue report
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// The arguments of `sluice ref dequeue`.
#[derive(Debug, Clone, Args)]
pub struct DequeueRefArguments {
    /// The branch or tag.
    #[command(flatten)]
    pub selector: RefSelector,
    /// Why; recorded with the ref and your name, and included in the pipeline's dequeue report
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// A change or ref to dequeue from a pipeline.
#[derive(Debug, Clone)]
pub struct DequeueOptions {
    within: PipelineSelector,
    project: String,
    selection: DequeueSelection,
    /// The change or ref, as the user names it.
    name: String,
    reason: String,
}

impl TryFrom<DequeueArguments> for DequeueOptions {
    type Error = anyhow::Error;

    /// Fails if the change is neither a number nor a number and a revision, or has no project.
    fn try_from(DequeueArguments { selector, reason }: DequeueArguments) -> anyhow::Result<Self> {
        let NamedChange { project, change } = selector.named()?;
        let selection = DequeueSelection::Change(ChangeNumber::parse(&change)?);
        Ok(Self { within: selector.within, project, selection, name: change, reason })
    }
}

impl From<DequeueRefArguments> for DequeueOptions {
    fn from(DequeueRefArguments { selector, reason }: DequeueRefArguments) -> Self {
        let name = whole_ref(&selector.name);
        let selection = DequeueSelection::Ref(name.clone());
        Self { within: selector.within, project: selector.project, selection, name, reason }
    }
}

/// Dequeues every queued item of a project's change or ref from one pipeline, together with the
/// other members of its bundle. With `number,revision`, dequeues only items whose commit starts
/// with the revision. Waits up to a minute and prints the outcome of each item. Returns exit status
/// 0 if all have left, and 3 if a queue has not acted yet: the command stays stored. An item that
/// is not queued, or leaves for another reason, is an error. Over the API, prints only that the
/// request is stored, also if the change is not queued.
///
/// # Errors
/// When the change is not queued, when it left for another reason, or the system does not answer.
pub async fn dequeue(options: DequeueOptions) -> anyhow::Result<ExitCode> {
    if let Some(client) = options.within.within.system.api_client()? {
        return dequeue_over_api(&client, &options).await;
    }
    let DequeueOptions { within, project: project_name, selection, name, reason } = options;
    let PipelineSelector { within, pipeline } = within;
    let ports = within.system.ports().await?;
    let tenant = named_or_only_tenant(&ports, within.tenant.as_deref()).await?;
    let read = read_queues(&ports, &tenant, &pipeline).await?;
    let found = select_queued(&read, &project_name, &selection)?;
    if found.is_empty() {
        bail!(
            "could not find {project_name} {name} in the pipeline {pipeline} of tenant {tenant} (`sluice status` shows what is queued){}",
            unreadable_queues_note(&read.unreadable)
        );
    }
    let commands = sluice_commands::dequeue(&ports, &found, &selection, &reason, &author()).await?;
    wait_and_print_outcomes(&ports, &found, &commands).await
}

/// Sends the request to dequeue to the API, and prints the command that shows the outcome.
async fn dequeue_over_api(client: &Client, options: &DequeueOptions) -> anyhow::Result<ExitCode> {
    let DequeueOptions { within: PipelineSelector { within, pipeline }, project, .. } = options;
    let tenant = client.tenant(within.tenant.as_deref()).await?;
    let path = api_path(&["tenant", &tenant, "project", project, "dequeue"])?;
    let DequeueOptions { name, reason, .. } = options;
    let (body, named, outcome) = match &options.selection {
        DequeueSelection::Change(change) => {
            let named = format!("{project}#{}", change.number);
            let outcome = format!("sluice change explain '{named}' --tenant {tenant}");
            (json!({"pipeline": pipeline, "change": name, "reason": reason}), named, outcome)
        }
        DequeueSelection::Ref(git_ref) => (
            json!({"pipeline": pipeline, "ref": git_ref, "reason": reason}),
            format!("{project} {git_ref}"),
            format!("sluice change explain {project} --ref {git_ref} --tenant {tenant}"),
        ),
    };
    let permission = "dequeue";
    client.write(ApiWrite { method: Method::POST, path, body: Some(body), permission }).await?;
    let what = format!("{named} will be dequeued from {pipeline} if it is queued there");
    AcceptedWrite { what, outcome }.print(client, within.system.format());
    Ok(ExitCode::SUCCESS)
}

/// Waits up to a minute for dequeue commands that were sent already, and prints the outcome of
/// each. `commands` has one command for each target, in the same order. Returns exit status 3 if a
/// command is still pending, else 0. An error, after all were printed, if an item did not leave
/// because of the command or its outcome could not be read.
async fn wait_and_print_outcomes(
    ports: &Ports,
    found: &[QueuedChange],
    commands: &[OperatorCommand],
) -> anyhow::Result<ExitCode> {
    let waiting = wait_until_consumed(ports, commands).await?;
    let mut failed = Vec::new();
    for (QueuedChange { queue, key, items, members }, command) in found.iter().zip(commands) {
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
        let ids: Vec<ItemId> = items.iter().map(|item| item.id.clone()).collect();
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
        for (outcome, item) in outcomes.iter().zip(items) {
            match dequeue_outcome(outcome, item.status == SlotStatus::Reporting) {
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

/// The arguments of `sluice change promote`.
#[derive(Debug, Clone, Args)]
pub struct PromoteArguments {
    /// The pipeline.
    #[command(flatten)]
    pub within: PipelineSelector,
    /// Changes, in the order in which they should be queued: each a number, or number,revision
    #[arg(value_name = "CHANGE", required = true)]
    pub changes: Vec<String>,
}

/// Moves changes of one queue to its front, in the given order, waits up to a minute and prints
/// their new positions. They stay behind changes that are already merging, and their dependencies
/// go with them. Returns exit status 0, or 3 if the queue has not acted yet: then the command stays
/// stored. An error if not exactly one queue has all the changes, if a number is ambiguous in it,
/// or if a change has left without being merged. Over the API, prints only that the request is
/// stored.
///
/// # Errors
/// When the changes are not in one queue, when one of them has left, or the system does not answer.
pub async fn promote(arguments: PromoteArguments) -> anyhow::Result<ExitCode> {
    let PipelineSelector { within, pipeline } = &arguments.within;
    if let Some(client) = within.system.api_client()? {
        let tenant = client.tenant(within.tenant.as_deref()).await?;
        let path = api_path(&["tenant", &tenant, "promote"])?;
        let body = Some(json!({"pipeline": pipeline, "changes": arguments.changes}));
        let permission = "promote";
        client.write(ApiWrite { method: Method::POST, path, body, permission }).await?;
        let changes = arguments.changes.join(" ");
        let what = format!("{changes} will be moved to the front of their queue in {pipeline}");
        let outcome = format!("sluice status --tenant {tenant} --pipeline {pipeline}");
        AcceptedWrite { what, outcome }.print(&client, within.system.format());
        return Ok(ExitCode::SUCCESS);
    }
    let ports = within.system.ports().await?;
    let tenant = named_or_only_tenant(&ports, within.tenant.as_deref()).await?;
    let selected: Vec<ChangeNumber> = arguments
        .changes
        .iter()
        .map(|change| ChangeNumber::parse(change))
        .collect::<Result<_, _>>()?;
    let read = read_queues(&ports, &tenant, pipeline).await?;
    let promotion = match select_promotion(&read, &selected) {
        Err(StoreCommandError::NotFound(_)) => bail!(
            "could not find {} in one queue of {pipeline} in tenant {tenant} (`sluice status` shows what is queued){}",
            arguments.changes.join(" "),
            unreadable_queues_note(&read.unreadable)
        ),
        selected => selected?,
    };
    let command = sluice_commands::promote(&ports, &promotion, &author()).await?;
    wait_and_print_positions(&ports, &promotion, command).await
}

/// Waits up to a minute for a promote command that was sent already, and prints the new positions
/// of the changes, from 1. Returns exit status 3 if the command is
/// still pending, else 0. An error, after all were printed, if an item had left with another result
/// than SUCCESS or has no record.
async fn wait_and_print_positions(
    ports: &Ports,
    promotion: &Promotion,
    command: OperatorCommand,
) -> anyhow::Result<ExitCode> {
    let Promotion { queue, slots } = promotion;
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

/// Returns the user at the terminal as the author of a command.
pub(super) fn author() -> CommandAuthor {
    CommandAuthor { name: who(), source: CommandSource::Terminal }
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
    use sluice_model::ProjectName;

    /// Z6.5, R06: dequeuing a member of a bundle names the other members.
    #[test]
    fn dequeue_names_the_other_members_of_the_bundle() {
        let member = |number| {
            let project = ProjectName::new("github.com", "org/one");
            (ItemId(format!("item{number}")), ChangeKey::change("github".into(), project, number))
        };
        assert_eq!(bundle_note(&[]), "");
        assert_eq!(bundle_note(&[member(2), member(4)]), " with org/one#2, org/one#4 (its bundle)");
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
