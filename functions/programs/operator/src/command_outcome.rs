//! Waits for the outcome of an operator's command to a queue, for the commands that print it.

use super::enqueue::{POLL_INTERVAL, POLLS_MAX};
use anyhow::Context as _;
use sluice_model::change::{ChangeId, ChangeKey};
use sluice_model::{QueueKey, TenantName};
use sluice_records::operator_command::{self, OperatorCommand, PipelineContents, UnreadableRecord};
use sluice_runtime::Ports;

/// Returns the non-empty queues of a pipeline, at most 2,000, each with its entries in queue order,
/// and the records that cannot be read. Leaves out queues whose entries cannot be read. Prints each
/// unreadable record, with its queue, to standard error. A pipeline that does not exist has no
/// queues, which is no error.
pub(super) async fn read_queues(
    ports: &Ports,
    tenant: &TenantName,
    pipeline: &str,
) -> anyhow::Result<PipelineContents> {
    let read = operator_command::pipeline_contents(ports, tenant, pipeline).await;
    let read = read.with_context(|| format!("could not read the queues of {pipeline}"))?;
    for UnreadableRecord { queue, is_queue_omitted: is_left_out, error: bad } in &read.unreadable {
        let what = if *is_left_out { "is skipped" } else { "is known by name only" };
        eprintln!("sluice: the queue {queue} of {pipeline} {what}: {bad}; repair that record");
    }
    Ok(read)
}

/// Returns a suffix for a "not found" error: the queues whose entries could not be read, in which
/// the change may be. Empty if there are none; queues of which only the list record is damaged do
/// not count.
pub(super) fn unreadable_queues_note(unread: &[UnreadableRecord]) -> String {
    let hidden: Vec<&str> =
        unread.iter().filter(|one| one.is_queue_omitted).map(|one| one.queue.as_str()).collect();
    match hidden.as_slice() {
        [] => String::new(),
        names => format!("; it may be in a queue that cannot be read: {}", names.join(", ")),
    }
}

/// Waits up to a minute until the queues have consumed an operator's commands, which must be stored
/// already. Returns those that are still pending after the last poll. An empty result does not say
/// that they had an effect: a queue only logs a command that it cannot carry out, so read the
/// outcome afterwards.
pub(super) async fn wait_until_consumed(
    ports: &Ports,
    commands: &[OperatorCommand],
) -> anyhow::Result<Vec<OperatorCommand>> {
    let mut pending = commands.to_vec();
    for poll in 0..POLLS_MAX {
        if poll > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        pending = operator_command::pending_commands(ports, &pending)
            .await
            .context("the command is stored, but its outcome could not be read")?;
        if pending.is_empty() {
            break;
        }
    }
    Ok(pending)
}

/// Returns why a queue has not consumed a command yet, as text for the operator: it is halted, with
/// the reason and how to resume it, or only that it has not. The caller must know that the command
/// is pending; that is not checked.
pub(super) async fn pending_reason(ports: &Ports, key: &QueueKey) -> anyhow::Result<String> {
    let QueueKey { tenant, pipeline, queue: name } = key;
    Ok(match operator_command::halt_reason(ports, key).await? {
        Some(why) => format!(
            "the queue {name} is halted: {why}; it applies the command once it is resumed: sluice queue resume {tenant} {pipeline} {name} --reason TEXT"
        ),
        None => format!("the queue {name} has not applied it yet"),
    })
}

/// Returns the `sluice change explain` command that shows the outcome for a change or ref later.
pub(super) fn explain_command(tenant: &TenantName, key: &ChangeKey) -> String {
    let project = &key.project;
    match &key.id {
        ChangeId::Number(number) => {
            format!("sluice change explain {project}#{number} --tenant {tenant}")
        }
        ChangeId::Ref(moved) => {
            format!("sluice change explain {project} --ref {} --tenant {tenant}", moved.git_ref)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::ProjectName;
    use sluice_records::BadRecord;
    use sluice_runtime::record::Key;

    /// Z9.1: a command without an outcome yet names the command that shows it later.
    #[test]
    fn the_outcome_of_a_command_can_be_queried_later() {
        let key = ChangeKey::change("github".into(), ProjectName::new("github.com", "org/one"), 7);
        assert_eq!(
            explain_command(&"demo".into(), &key),
            "sluice change explain github.com/org/one#7 --tenant demo"
        );
    }

    /// Z7.3: a "not found" error names the unreadable queues.
    #[test]
    fn a_change_that_is_not_found_may_be_in_an_unreadable_queue() {
        let unread = |queue: &str, is_left_out| {
            let bad = BadRecord {
                key: Key::new("queue#demo/gate/docs", "head"),
                why: "no JSON".to_owned(),
            };
            UnreadableRecord { queue: queue.to_owned(), is_queue_omitted: is_left_out, error: bad }
        };
        assert_eq!(unreadable_queues_note(&[]), "");
        assert_eq!(unreadable_queues_note(&[unread("listed", false)]), "");
        let both = [unread("integrated", true), unread("listed", false), unread("docs", true)];
        assert_eq!(
            unreadable_queues_note(&both),
            "; it may be in a queue that cannot be read: integrated, docs"
        );
    }
}
