//! What became of what an operator asked of queues: the commands wait for it and say it, as
//! `sluice enqueue` does.

use super::enqueue::{LOOK, LOOKS_MAX};
use anyhow::Context as _;
use sluice_model::change::{ChangeKey, What};
use sluice_model::{QueueKey, TenantName};
use sluice_records::word::{self, Standings, Unread, Word};
use sluice_runtime::Ports;

/// Reads what stands in a pipeline's queues. One that cannot be read is left out, and standard
/// error says which, and why.
pub(super) async fn standings(
    ports: &Ports,
    tenant: &TenantName,
    pipeline: &str,
) -> anyhow::Result<Standings> {
    let read = word::standings(ports, tenant, pipeline).await;
    let read = read.with_context(|| format!("could not read the queues of {pipeline}"))?;
    for Unread { queue, is_left_out, bad } in &read.unread {
        let what = if *is_left_out { "is left out" } else { "is known by its name alone" };
        eprintln!(
            "sluice: the queue {queue} of {pipeline} {what}: {bad}; that record is to be mended"
        );
    }
    Ok(read)
}

/// Returns what to add where something was not found: it may stand where nobody can look.
pub(super) fn or_hidden(unread: &[Unread]) -> String {
    let hidden: Vec<&str> =
        unread.iter().filter(|one| one.is_left_out).map(|one| one.queue.as_str()).collect();
    match hidden.as_slice() {
        [] => String::new(),
        names => format!("; it may stand in what cannot be read: {}", names.join(", ")),
    }
}

/// Waits until queues have heard an operator's words, and returns those that they have not heard
/// after the last look.
pub(super) async fn unheard(ports: &Ports, words: &[Word]) -> anyhow::Result<Vec<Word>> {
    let mut left = words.to_vec();
    for look in 0..LOOKS_MAX {
        if look > 0 {
            tokio::time::sleep(LOOK).await;
        }
        left = word::unheard(ports, &left)
            .await
            .context("it was asked for, and what becomes of it cannot be read")?;
        if left.is_empty() {
            break;
        }
    }
    Ok(left)
}

/// Says why a queue has not heard a word yet, as far as that is known.
pub(super) async fn why_unheard(ports: &Ports, key: &QueueKey) -> anyhow::Result<String> {
    let QueueKey { tenant, pipeline, queue: name } = key;
    Ok(match word::frozen_because(ports, key).await? {
        Some(why) => format!(
            "the queue {name} is frozen: {why}; it hears what was asked for once somebody lets it go on: sluice queue thaw {tenant} {pipeline} {name} --reason TEXT"
        ),
        None => format!("its queue {name} has not done it yet"),
    })
}

/// Returns the command that says later what became of a change or ref.
pub(super) fn later(tenant: &TenantName, key: &ChangeKey) -> String {
    let project = &key.project;
    match &key.what {
        What::Number(number) => format!("sluice explain {project}#{number} --tenant {tenant}"),
        What::Ref(moved) => {
            format!("sluice explain {project} --ref {} --tenant {tenant}", moved.git_ref)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::ProjectName;
    use sluice_records::BadRecord;
    use sluice_runtime::record::Key;

    /// Z9.1: whoever does not learn what became of it learns how to ask.
    #[test]
    fn what_a_queue_has_not_done_yet_can_be_asked_for_later() {
        let key = ChangeKey::change("github".into(), ProjectName::new("github.com", "org/one"), 7);
        assert_eq!(
            later(&"demo".into(), &key),
            "sluice explain github.com/org/one#7 --tenant demo"
        );
    }

    /// Z7.3: what was not found may stand where nobody can look, and that is said.
    #[test]
    fn what_is_not_found_may_stand_in_a_queue_that_cannot_be_read() {
        let unread = |queue: &str, is_left_out| {
            let bad = BadRecord {
                key: Key::new("queue#demo/gate/docs", "head"),
                why: "no JSON".to_owned(),
            };
            Unread { queue: queue.to_owned(), is_left_out, bad }
        };
        assert_eq!(or_hidden(&[]), "");
        assert_eq!(or_hidden(&[unread("listed", false)]), "");
        let both = [unread("integrated", true), unread("listed", false), unread("docs", true)];
        assert_eq!(or_hidden(&both), "; it may stand in what cannot be read: integrated, docs");
    }
}
