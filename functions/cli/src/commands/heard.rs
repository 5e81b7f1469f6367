//! What became of what an operator asked of queues: the commands wait for it and say it, as `sluice enqueue` does.

use super::enqueue::{LOOK, LOOKS_MAX};
use anyhow::Context as _;
use sluice_gate::Slot;
use sluice_model::change::{ChangeKey, What};
use sluice_model::name::escape;
use sluice_model::{QueueKey, TenantName};
use sluice_records::codec::decode;
use sluice_records::word::{self, Word};
use sluice_records::{queue, tenant};
use sluice_runtime::Ports;
use sluice_runtime::quarantine::frozen_because;
use sluice_runtime::record::Query;

/// Queues of a pipeline that are looked through for a change; in an independent one each change is one.
const QUEUES_MAX: usize = 2_000;

/// What stands in the queues of a pipeline, as far as it can be read.
#[derive(Debug, Default)]
pub(super) struct Standings {
    /// Those that can be read, with what stands there.
    pub(super) queues: Vec<(QueueKey, Vec<Slot>)>,
    /// Those that cannot, by name.
    hidden: Vec<String>,
}

impl Standings {
    /// Reads the queues of a pipeline that are not empty; those of others are not counted. One that cannot be read is left out, and
    /// standard error says which, and why.
    pub(super) async fn read(ports: &Ports, name: &TenantName, pipeline: &str) -> anyhow::Result<Self> {
        let prefix = format!("{}{}/", tenant::QUEUES, escape(pipeline));
        let records = ports.records.query(&Query::prefix(tenant::partition(name), prefix, QUEUES_MAX)).await?;
        let mut read = Self::default();
        for record in &records {
            // The record's key says the names as well as its body.
            let listed = decode::<QueueKey>(record).map_err(|bad| {
                eprintln!("sluice: {bad}; its key says which queue it lists. That record is to be mended");
                tenant::listed_queue(name, &record.key)
            });
            let key = match listed {
                Ok(key) | Err(Some(key)) if key.pipeline.as_str() == pipeline => key,
                Ok(_) | Err(Some(_)) => continue,
                Err(None) => {
                    read.hidden.push(record.key.to_string());
                    continue;
                }
            };
            match queue::load(ports, &key).await {
                Ok(loaded) => {
                    let slots = loaded.head.map(|head| head.slots).unwrap_or_default();
                    read.queues.push((key, slots));
                }
                Err(queue::LoadError::Bad(bad)) => {
                    eprintln!("sluice: the queue {} of {pipeline} is left out: {bad}", key.queue);
                    read.hidden.push(key.queue.to_string());
                }
                Err(queue::LoadError::Port(error)) => {
                    return Err(error).with_context(|| format!("could not read the queue {} of {pipeline}", key.queue));
                }
            }
        }
        Ok(read)
    }

    /// Returns what to add where something was not found: it may stand where nobody can look.
    pub(super) fn or_hidden(&self) -> String {
        match self.hidden.as_slice() {
            [] => String::new(),
            names => format!(
                "; it may stand in what cannot be read: {}. Mend the records that are named above, and run this again",
                names.join(", ")
            ),
        }
    }
}

/// Waits until queues have heard an operator's words, and returns those that they have not heard after the last look.
pub(super) async fn unheard(ports: &Ports, words: &[Word]) -> anyhow::Result<Vec<Word>> {
    let mut left = words.to_vec();
    for look in 0..LOOKS_MAX {
        if look > 0 {
            tokio::time::sleep(LOOK).await;
        }
        left = word::unheard(ports, &left).await.context("it was asked for, and what becomes of it cannot be read")?;
        if left.is_empty() {
            break;
        }
    }
    Ok(left)
}

/// Says why a queue has not heard a word yet, as far as that is known.
pub(super) async fn why_unheard(ports: &Ports, key: &QueueKey) -> anyhow::Result<String> {
    let QueueKey { tenant, pipeline, queue: name } = key;
    Ok(match frozen_because(ports, &queue::partition(key)).await? {
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
        What::Ref(moved) => format!("sluice explain {project} --ref {} --tenant {tenant}", moved.git_ref),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::ProjectName;

    /// Z9.1: whoever does not learn what became of it learns how to ask.
    #[test]
    fn what_a_queue_has_not_done_yet_can_be_asked_for_later() {
        let key = ChangeKey::change("github".into(), ProjectName::new("github.com", "org/one"), 7);
        assert_eq!(later(&"demo".into(), &key), "sluice explain github.com/org/one#7 --tenant demo");
    }

    /// Z7.3: what was not found may stand where nobody can look, and that is said.
    #[test]
    fn what_is_not_found_may_stand_in_a_queue_that_cannot_be_read() {
        assert_eq!(Standings::default().or_hidden(), "");
        let read = Standings { queues: Vec::new(), hidden: vec!["integrated".to_owned(), "docs".to_owned()] };
        assert!(read.or_hidden().starts_with("; it may stand in what cannot be read: integrated, docs. Mend"));
    }
}
