//! `sluice queue thaw`, `sluice dequeue` and `sluice promote`: what an operator asks of a queue.

use super::operator;
use super::place::{InPipeline, OfProject};
use crate::say::say;
use anyhow::{Context as _, bail};
use clap::Args;
use sluice_aws::OsEntropy;
use sluice_gate::{Arrival, ArrivalKind, Slot};
use sluice_model::change::{ChangeKey, What};
use sluice_model::git::Oid;
use sluice_model::name::escape;
use sluice_model::poke::Poke;
use sluice_model::{ArrivalId, ProjectName, QueueKey, TenantName};
use sluice_records::codec::decode;
use sluice_records::{queue, tenant};
use sluice_runtime::quarantine::{frozen_because, frozen_key};
use sluice_runtime::record::{Expect, Query, Write};
use sluice_runtime::{Entropy as _, Ports, cell};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Characters of somebody's name that are kept.
const WHO_MAX: usize = 64;

/// Queues of a pipeline that are looked through for a change; in an independent one each change is one.
const QUEUES_MAX: usize = 2_000;

/// Lets a frozen queue go on.
///
/// # Errors
/// When it is not frozen, no reason is given, or the store does not answer.
pub async fn thaw(data: Option<PathBuf>, key: QueueKey, reason: &str) -> anyhow::Result<()> {
    let reason = reason.trim();
    if reason.is_empty() {
        bail!("say with --reason what was found: it is kept with the change that stopped the queue");
    }
    let ports = operator(data).await?;
    let loaded = queue::load(&ports, &key).await;
    // A queue whose own records cannot be read is frozen too; the mark goes, and the gate tries again.
    let (has_mark, why) = match &loaded {
        Ok(loaded) => (loaded.is_frozen, loaded.head.as_ref().and_then(|head| head.frozen.clone())),
        Err(queue::LoadError::Bad(_)) => (true, None),
        Err(queue::LoadError::Port(error)) => bail!("could not read the queue: {error}"),
    };
    if !has_mark && why.is_none() {
        bail!(
            "the queue {} of {} in {} is not frozen (`sluice status` shows those that are)",
            key.queue,
            key.pipeline,
            key.tenant
        );
    }
    let marked = if has_mark { frozen_because(&ports, &queue::partition(&key)).await? } else { None };
    let mut writes = Vec::new();
    if has_mark {
        writes.push(Write::Delete { key: frozen_key(&queue::partition(&key)), expect: Expect::Anything });
    }
    if why.is_some() {
        writes.push(queue::put_arrival(
            &key,
            &arrival(&ports, ArrivalKind::Thaw { by: who(), reason: reason.to_owned() }),
        )?);
    }
    ports.records.commit(writes, &OsEntropy.token()).await?;
    cell::send(&ports, &[Poke::Queue { queue: key.clone() }]).await?;
    say!("The queue {} of {} goes on.", key.queue, key.pipeline);
    for why in why.into_iter().chain(marked) {
        say!("It was frozen because {why}");
    }
    Ok(())
}

/// What of a project stands in a pipeline.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct Standing {
    /// The change: its number, or number,revision.
    #[arg(long, value_name = "CHANGE")]
    pub change: Option<String>,
    /// The branch, or a whole ref as in refs/tags/1.0.
    #[arg(long = "ref", value_name = "REF")]
    pub name: Option<String>,
}

/// `sluice dequeue`.
#[derive(Debug, Clone, Args)]
pub struct DequeueArguments {
    /// Where it stands.
    #[command(flatten)]
    pub place: OfProject,
    /// What of the project.
    #[command(flatten)]
    pub what: Standing,
    /// Why: the forge is told it, and it is kept with the change, with your name.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// Takes a change out of a pipeline.
///
/// # Errors
/// When it is not there, or the store does not answer.
pub async fn dequeue(wanted: DequeueArguments) -> anyhow::Result<()> {
    let DequeueArguments { place: OfProject { within, project: named }, what, reason } = wanted;
    let InPipeline { data, tenant, pipeline } = within;
    let ports = operator(data).await?;
    let tenant = only_tenant(&ports, tenant.as_deref()).await?;
    let git_ref = what.name.as_deref().map(whole_ref);
    let change = what.change.as_deref().or(git_ref.as_deref()).unwrap_or_default();
    let (number, head) = what.change.as_deref().map(number_and_head).transpose()?.unzip();
    let head = head.flatten();
    let is_meant = |key: &ChangeKey| match &key.what {
        What::Number(its) => number == Some(*its),
        What::Ref(moved) => git_ref.as_ref() == Some(&moved.git_ref),
    };
    let records = ports.records.query(&queues_of(&tenant, &pipeline)).await?;
    let mut found: Vec<(QueueKey, ChangeKey)> = Vec::new();
    for record in &records {
        let key: QueueKey = decode(record)?;
        if key.pipeline.as_str() != pipeline {
            continue;
        }
        let loaded = queue::load(&ports, &key).await?;
        let slots = loaded.head.iter().flat_map(|head| &head.slots).filter(|slot| {
            let project = &slot.change.key.project;
            is_meant(&slot.change.key)
                && [project.as_str(), project.name()].contains(&named.as_str())
                && head.is_none_or(|head| !head.is_empty() && slot.change.head.as_str().starts_with(head))
        });
        found.extend(slots.map(|slot| (key.clone(), slot.change.key.clone())));
    }
    let projects: BTreeSet<&ProjectName> = found.iter().map(|(_, key)| &key.project).collect();
    if found.is_empty() {
        bail!("{named} {change} is not in the pipeline {pipeline} of {tenant} (`sluice status` shows what is)");
    }
    if projects.len() > 1 {
        let names: Vec<_> = projects.iter().map(ToString::to_string).collect();
        bail!("several projects are named so ({}): give the canonical name", names.join(", "));
    }
    // A ref may have moved several times: all that stands there of it is meant.
    for (queue, key) in found {
        let kind = ArrivalKind::Dequeue { key, head: head.map(Oid::from), by: who(), reason: reason.trim().to_owned() };
        let arrival = arrival(&ports, kind);
        ports.records.commit(vec![queue::put_arrival(&queue, &arrival)?], &OsEntropy.token()).await?;
        cell::send(&ports, &[Poke::Queue { queue }]).await?;
    }
    say!("{named} {change} is taken out of {pipeline}; a landing that is under way ends first.");
    Ok(())
}

/// Reads a change as zuul-client writes it: its number, and after a comma how its revision begins.
pub(super) fn number_and_head(change: &str) -> anyhow::Result<(u64, Option<&str>)> {
    let (number, head) = match change.split_once(',') {
        Some((number, head)) => (number, Some(head)),
        None => (change, None),
    };
    let number =
        number.parse().with_context(|| format!("{change:?} is not a change: write its number, or number,revision"))?;
    Ok((number, head))
}

/// Returns the whole ref that a person means: a name without `refs/` is a branch.
pub(super) fn whole_ref(name: &str) -> String {
    if name.starts_with("refs/") { name.to_owned() } else { format!("refs/heads/{name}") }
}

/// `sluice promote`, in zuul-client's words.
#[derive(Debug, Clone, Args)]
pub struct PromoteArguments {
    /// Where they stand.
    #[command(flatten)]
    pub within: InPipeline,
    /// The changes, the first to stand first: each a number, or number,revision.
    #[arg(long, value_name = "CHANGE", num_args = 1.., required = true)]
    pub changes: Vec<String>,
}

/// Moves changes to the front of the queue that they stand in.
///
/// # Errors
/// When they are not in one queue, or the store does not answer.
pub async fn promote(wanted: PromoteArguments) -> anyhow::Result<()> {
    let InPipeline { data, tenant, pipeline } = wanted.within;
    let ports = operator(data).await?;
    let tenant = only_tenant(&ports, tenant.as_deref()).await?;
    let named: Vec<_> = wanted.changes.iter().map(|change| number_and_head(change)).collect::<Result<_, _>>()?;
    let records = ports.records.query(&queues_of(&tenant, &pipeline)).await?;
    let mut found: Vec<(QueueKey, Vec<ChangeKey>)> = Vec::new();
    for record in &records {
        let key: QueueKey = decode(record)?;
        if key.pipeline.as_str() != pipeline {
            continue;
        }
        let slots = queue::load(&ports, &key).await?.head.map(|head| head.slots).unwrap_or_default();
        let of = |(number, head): &(u64, Option<&str>)| {
            let is_meant = |slot: &&Slot| {
                slot.change.key.number() == Some(*number)
                    && head.is_none_or(|head| slot.change.head.as_str().starts_with(head))
            };
            slots.iter().find(is_meant).map(|slot| slot.change.key.clone())
        };
        let keys: Vec<ChangeKey> = named.iter().filter_map(of).collect();
        if keys.len() == named.len() {
            found.push((key, keys));
        }
    }
    let changes = wanted.changes.join(" ");
    match found.as_slice() {
        [(queue, keys)] => {
            let arrival = arrival(&ports, ArrivalKind::Promote { keys: keys.clone(), by: who() });
            ports.records.commit(vec![queue::put_arrival(queue, &arrival)?], &OsEntropy.token()).await?;
            cell::send(&ports, &[Poke::Queue { queue: queue.clone() }]).await?;
            say!("{changes} come first in {pipeline}; what is landing, and what they need, stays before them.");
            Ok(())
        }
        [] => bail!("no queue of {pipeline} in {tenant} holds {changes} (`sluice status` shows what is where)"),
        _ => bail!("several queues of {pipeline} hold changes of these numbers: write number,revision"),
    }
}

/// Returns the question for the queues of a pipeline that are not empty: those of others are not counted.
fn queues_of(tenant: &TenantName, pipeline: &str) -> Query {
    Query::prefix(tenant::partition(tenant), format!("{}{}/", tenant::QUEUES, escape(pipeline)), QUEUES_MAX)
}

/// Returns who is at the terminal, as far as the environment says; it stands in the record of what was asked.
pub(super) fn who() -> String {
    let mut names = ["SUDO_USER", "USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let name = names.find(|name| !name.trim().is_empty()).unwrap_or_default();
    name.chars().take(WHO_MAX).collect()
}

fn arrival(ports: &Ports, kind: ArrivalKind) -> Arrival {
    Arrival {
        id: ArrivalId(OsEntropy.token()),
        at: ports.clock.now(),
        event_id: "operator".to_owned(),
        layout: 0,
        by_operator: true,
        kind,
    }
}

pub(super) async fn only_tenant(ports: &Ports, wanted: Option<&str>) -> anyhow::Result<TenantName> {
    let known = tenant::listed(ports).await?;
    let names = || known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match (wanted, known.as_slice()) {
        (_, []) => bail!("there are no tenants; store a main configuration with `sluice tenant load FILE`"),
        (Some(name), _) => known
            .iter()
            .find(|tenant| tenant.as_str() == name)
            .cloned()
            .with_context(|| format!("there is no tenant {name}; there are: {}", names())),
        (None, [one]) => Ok(one.clone()),
        (None, _) => bail!("there are several tenants ({}); name one with --tenant", names()),
    }
}
