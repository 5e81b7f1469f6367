//! `sluice queue thaw`, `sluice dequeue` and `sluice promote`: what an operator asks of a queue.

use super::enqueue::UNDECIDED;
use super::heard::{later, or_hidden, standings, unheard, why_unheard};
use super::operator;
use super::place::{InPipeline, OfProject};
use crate::say::say;
use anyhow::{Context as _, bail};
use clap::Args;
use sluice_aws::OsEntropy;
use sluice_gate::{Arrival, ArrivalKind, Slot, Standing, TAKEN_OUT};
use sluice_model::change::{ChangeKey, What};
use sluice_model::git::Oid;
use sluice_model::poke::Poke;
use sluice_model::{ArrivalId, ItemId, ProjectName, QueueKey, TenantName};
use sluice_records::word::{self, Became, Word};
use sluice_records::{queue, tenant};
use sluice_runtime::quarantine::{frozen_because, frozen_key};
use sluice_runtime::record::{Expect, Write};
use sluice_runtime::{Entropy as _, Ports, cell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Characters of somebody's name that are kept.
const WHO_MAX: usize = 64;

/// Lets a frozen queue go on.
///
/// # Errors
/// When it is not frozen, no reason is given, or the store does not answer.
pub async fn thaw(data: Option<PathBuf>, key: QueueKey, reason: &str) -> anyhow::Result<()> {
    let reason = reason.trim();
    if reason.is_empty() {
        bail!(
            "say with --reason what was found: it is kept with the change that stopped the queue"
        );
    }
    let ports = operator(data).await?;
    let loaded = queue::load(&ports, &key).await;
    // A queue whose own records cannot be read is frozen too; the mark goes, and the gate tries
    // again.
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
    let marked =
        if has_mark { frozen_because(&ports, &queue::partition(&key)).await? } else { None };
    let mut writes = Vec::new();
    if has_mark {
        writes.push(Write::Delete {
            key: frozen_key(&queue::partition(&key)),
            expect: Expect::Anything,
        });
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
pub struct Meant {
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
    pub what: Meant,
    /// Why: the forge is told it, and it is kept with the change, with your name.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

/// What of one change is to leave one queue.
struct Leaving {
    queue: QueueKey,
    key: ChangeKey,
    /// The items, and whether each has landed and runs its last jobs.
    items: Vec<(ItemId, bool)>,
    /// What stands as one with them: changes that need it as much as it needs them, which leave
    /// with it.
    mates: Vec<(ItemId, ChangeKey)>,
}

/// Takes a change out of a pipeline and says what came of it. The exit status is 3 where a queue
/// has not done it yet.
///
/// # Errors
/// When it is not there, when it left otherwise before, or the store does not answer.
pub async fn dequeue(wanted: DequeueArguments) -> anyhow::Result<ExitCode> {
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
    let read = standings(&ports, &tenant, &pipeline).await?;
    // A ref may have moved several times: all that stands there of it is meant.
    let mut found: Vec<Leaving> = Vec::new();
    for (queue, slots) in &read.queues {
        let here = slots.iter().enumerate().filter(|(_, slot)| {
            let project = &slot.change.key.project;
            is_meant(&slot.change.key)
                && [project.as_str(), project.name()].contains(&named.as_str())
                && head.is_none_or(|head| {
                    !head.is_empty() && slot.change.head.as_str().starts_with(head)
                })
        });
        for (at, slot) in here {
            let (key, item) =
                (&slot.change.key, (slot.id.clone(), slot.standing == Standing::Reporting));
            let mates = mates(slots, at);
            match found.iter_mut().find(|other| other.queue == *queue && other.key == *key) {
                Some(same) => {
                    same.items.push(item);
                    same.mates.extend(mates);
                }
                None => found.push(Leaving {
                    queue: queue.clone(),
                    key: key.clone(),
                    items: vec![item],
                    mates,
                }),
            }
        }
    }
    let projects: BTreeSet<&ProjectName> =
        found.iter().map(|leaving| &leaving.key.project).collect();
    if found.is_empty() {
        bail!(
            "{named} {change} is not in the pipeline {pipeline} of {tenant} (`sluice status` shows what is){}",
            or_hidden(&read.unread)
        );
    }
    if projects.len() > 1 {
        let names: Vec<_> = projects.iter().map(ToString::to_string).collect();
        bail!("several projects are named so ({}): give the canonical name", names.join(", "));
    }
    let mut words = Vec::new();
    for Leaving { queue, key, .. } in &found {
        let (key, head) = (key.clone(), head.map(Oid::from));
        let kind = ArrivalKind::Dequeue { key, head, by: who(), reason: reason.trim().to_owned() };
        words.push(tell(&ports, queue, kind).await?);
    }
    taken_out(&ports, &found, &words).await
}

/// Says what became of what was to leave its queue, each by a word.
async fn taken_out(ports: &Ports, found: &[Leaving], words: &[Word]) -> anyhow::Result<ExitCode> {
    let waiting = unheard(ports, words).await?;
    let mut failed = Vec::new();
    for (Leaving { queue, key, items, mates }, word) in found.iter().zip(words) {
        let pipeline = &queue.pipeline;
        if waiting.contains(word) {
            let why = why_unheard(ports, queue).await?;
            say!(
                "{key} is to leave {pipeline}{}, and {why}. A landing that is under way ends first.",
                with(mates)
            );
            say!("What becomes of it: {}", later(&queue.tenant, key));
            continue;
        }
        let ids: Vec<ItemId> = items.iter().map(|(id, _)| id.clone()).collect();
        let became = match word::became(ports, queue, &ids).await {
            Ok(became) => became,
            Err(error) => {
                failed.push(format!(
                    "the queue has heard that {key} is to leave, and what came of it is unknown: {error}"
                ));
                continue;
            }
        };
        let mut has_left = false;
        for (became, (_, was_reporting)) in became.iter().zip(items) {
            match left(became, *was_reporting) {
                Ok(how) => {
                    has_left = true;
                    say!("{key} left {pipeline}: {how}");
                }
                Err(why) => failed.push(format!("{key} was not taken out of {pipeline}: {why}")),
            }
        }
        if has_left {
            failed.extend(left_with(ports, queue, mates).await);
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(if waiting.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNDECIDED) })
}

/// Says how those left that stood as one with what was taken out. Returns why that is unknown,
/// where it is.
async fn left_with(
    ports: &Ports,
    queue: &QueueKey,
    mates: &[(ItemId, ChangeKey)],
) -> Option<String> {
    if mates.is_empty() {
        return None;
    }
    let ids: Vec<ItemId> = mates.iter().map(|(id, _)| id.clone()).collect();
    match word::became(ports, queue, &ids).await {
        Ok(became) => {
            for ((_, key), became) in mates.iter().zip(became) {
                if let Became::Left { result, why } = became {
                    say!("{key} left {} with it: {result}: {why}", queue.pipeline);
                }
            }
            None
        }
        Err(error) => Some(format!(
            "it left{}, and what is kept of those cannot be read: {error}",
            with(mates)
        )),
    }
}

/// Returns what stands as one with what stands at a place of a queue, each with its change.
fn mates(slots: &[Slot], at: usize) -> Vec<(ItemId, ChangeKey)> {
    let start = (0..=at).rev().find(|at| !slots[*at].joined).unwrap_or_default();
    let behind = slots[at + 1..].iter().take_while(|slot| slot.joined);
    let others = slots[start..at].iter().chain(behind);
    others.map(|slot| (slot.id.clone(), slot.change.key.clone())).collect()
}

/// Returns with whom a change leaves, in words; nothing where it stands for itself.
fn with(mates: &[(ItemId, ChangeKey)]) -> String {
    let names: Vec<String> = mates.iter().map(|(_, key)| key.to_string()).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" with {}, for they need each other", names.join(", "))
    }
}

/// Returns how something left that was to be taken out, or why it did not leave by that.
fn left(became: &Became, was_reporting: bool) -> Result<String, String> {
    match became {
        // Others leave as dequeued, too: what moves to another queue, what is closed, what a newer
        // revision replaces.
        Became::Left { result, why } if why.starts_with(TAKEN_OUT) => Ok(format!("{result}: {why}")),
        // What has landed stays a success; it was its last jobs that were to end.
        Became::Left { result, why } if was_reporting => Ok(format!("{result}: {why}; its last jobs are over")),
        Became::Left { result, why } => Err(format!("it had left before with {result}: {why}")),
        Became::Stands { position, of } => {
            Err(format!("its queue has heard it, and it stands there still, at place {} of {of}", position + 1))
        }
        Became::Gone => {
            Err("it was not there any more, and of its end nothing is kept (`sluice status` shows what is where)"
                .to_owned())
        }
    }
}

/// Brings an operator's word to a queue.
async fn tell(ports: &Ports, queue: &QueueKey, kind: ArrivalKind) -> anyhow::Result<Word> {
    let (write, word) = word::put(queue, &arrival(ports, kind))?;
    ports.records.commit(vec![write], &OsEntropy.token()).await?;
    cell::send(ports, &[Poke::Queue { queue: queue.clone() }]).await?;
    Ok(word)
}

/// Reads a change as zuul-client writes it: its number, and after a comma how its revision begins.
pub(super) fn number_and_head(change: &str) -> anyhow::Result<(u64, Option<&str>)> {
    let (number, head) = match change.split_once(',') {
        Some((number, head)) => (number, Some(head)),
        None => (change, None),
    };
    let number = number.parse().with_context(|| {
        format!("{change:?} is not a change: write its number, or number,revision")
    })?;
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

/// Moves changes to the front of the queue that they stand in, and says where they stand. The exit
/// status is 3 where the queue has not done it yet.
///
/// # Errors
/// When they are not in one queue, when one of them left it before, or the store does not answer.
pub async fn promote(wanted: PromoteArguments) -> anyhow::Result<ExitCode> {
    let InPipeline { data, tenant, pipeline } = wanted.within;
    let ports = operator(data).await?;
    let tenant = only_tenant(&ports, tenant.as_deref()).await?;
    let named: Vec<_> =
        wanted.changes.iter().map(|change| number_and_head(change)).collect::<Result<_, _>>()?;
    let read = standings(&ports, &tenant, &pipeline).await?;
    let mut found: Vec<(&QueueKey, Vec<Vec<&Slot>>)> = Vec::new();
    for (queue, slots) in &read.queues {
        let meant: Vec<Vec<&Slot>> =
            named.iter().map(|(number, head)| of_number(slots, *number, *head)).collect();
        if meant.iter().all(|all| !all.is_empty()) {
            found.push((queue, meant));
        }
    }
    let changes = wanted.changes.join(" ");
    match found.as_slice() {
        [(queue, meant)] => {
            let slots = meant
                .iter()
                .map(|all| only_one(queue, all))
                .collect::<anyhow::Result<Vec<&Slot>>>()?;
            let keys = slots.iter().map(|slot| slot.change.key.clone()).collect();
            let word = tell(&ports, queue, ArrivalKind::Promote { keys, by: who() }).await?;
            moved(&ports, queue, &slots, word).await
        }
        [] => bail!(
            "no queue of {pipeline} in {tenant} holds {changes} (`sluice status` shows what is where){}",
            or_hidden(&read.unread)
        ),
        _ => bail!(
            "several queues of {pipeline} hold changes of these numbers: write number,revision"
        ),
    }
}

/// Returns what a number, or number,revision, means in a queue, of each change what stands first:
/// projects that share the queue may have a change of that number each.
fn of_number<'s>(slots: &'s [Slot], number: u64, head: Option<&str>) -> Vec<&'s Slot> {
    let mut found: Vec<&Slot> = Vec::new();
    for slot in slots {
        let is_meant = slot.change.key.number() == Some(number)
            && head.is_none_or(|head| slot.change.head.as_str().starts_with(head));
        if is_meant && found.iter().all(|other| other.change.key != slot.change.key) {
            found.push(slot);
        }
    }
    found
}

/// Returns the one change that is meant, and refuses to choose among several.
fn only_one<'s>(queue: &QueueKey, all: &[&'s Slot]) -> anyhow::Result<&'s Slot> {
    match all {
        [one] => Ok(*one),
        _ => {
            let names: Vec<String> = all.iter().map(|slot| slot.change.key.to_string()).collect();
            bail!(
                "several changes of that number stand in {}: {}; write number,revision",
                queue.queue,
                names.join(", ")
            )
        }
    }
}

/// Says where changes stand that were to come first.
async fn moved(
    ports: &Ports,
    queue: &QueueKey,
    slots: &[&Slot],
    word: Word,
) -> anyhow::Result<ExitCode> {
    let QueueKey { tenant, pipeline, queue: name } = queue;
    if !unheard(ports, &[word]).await?.is_empty() {
        let why = why_unheard(ports, queue).await?;
        say!("They are to come first in {pipeline}, and {why}.");
        say!("Where they stand: sluice status --tenant {tenant} --pipeline {pipeline}");
        return Ok(ExitCode::from(UNDECIDED));
    }
    let ids: Vec<ItemId> = slots.iter().map(|slot| slot.id.clone()).collect();
    let became = word::became(ports, queue, &ids).await;
    let became = became.with_context(|| {
        format!("the queue {name} has heard it, and where they stand cannot be read")
    })?;
    say!(
        "What was asked for comes first in {pipeline}; what is landing, and what they need, stays before them."
    );
    let mut failed = Vec::new();
    for (slot, became) in slots.iter().zip(became) {
        let key = &slot.change.key;
        match became {
            Became::Stands { position, of } => {
                say!("{key} stands at place {} of {of} in {name}", position + 1)
            }
            Became::Left { result, why } if result == "SUCCESS" => {
                say!("{key} left {pipeline}: {result}: {why}")
            }
            Became::Left { result, why } => {
                failed.push(format!("{key} has left {pipeline}: {result}: {why}"))
            }
            Became::Gone => {
                failed.push(format!("{key} does not stand in {name} any more (`sluice status`)"))
            }
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns who is at the terminal, as far as the environment says; it stands in the record of what
/// was asked.
pub(super) fn who() -> String {
    let mut names =
        ["SUDO_USER", "USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
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
        taken_up: false,
        kind,
    }
}

pub(super) async fn only_tenant(ports: &Ports, wanted: Option<&str>) -> anyhow::Result<TenantName> {
    let known = tenant::listed(ports).await?;
    let names = || known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match (wanted, known.as_slice()) {
        (_, []) => {
            bail!("there are no tenants; store a main configuration with `sluice tenant load FILE`")
        }
        (Some(name), _) => known
            .iter()
            .find(|tenant| tenant.as_str() == name)
            .cloned()
            .with_context(|| format!("there is no tenant {name}; there are: {}", names())),
        (None, [one]) => Ok(one.clone()),
        (None, _) => bail!("there are several tenants ({}); name one with --tenant", names()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::change::ChangeRef;

    fn slot(project: &str, number: u64, head: &str) -> Slot {
        let key =
            ChangeKey::change("github".into(), ProjectName::new("github.com", project), number);
        let change =
            ChangeRef { key, branch: "main".into(), head: head.into(), patchset: head.to_owned() };
        let (id, standing) = (ItemId(format!("{project}-{head}")), Standing::Waiting);
        Slot { id, change, generation: 1, ahead: None, standing, joined: false, version: 0 }
    }

    /// Z6.4: what comes first is what its operator means, and not what happens to stand before
    /// another project's of the same number.
    #[test]
    fn a_number_that_two_projects_of_a_queue_have_moves_none_until_its_revision_is_said() {
        let queue =
            QueueKey { tenant: "demo".into(), pipeline: "gate".into(), queue: "integrated".into() };
        let slots =
            [slot("org/one", 7, "abc"), slot("org/two", 8, "bcd"), slot("org/two", 7, "cde")];
        let chosen = |number, head| {
            only_one(&queue, &of_number(&slots, number, head)).map(|slot| slot.change.head.clone())
        };
        assert_eq!(chosen(8, None).unwrap(), Oid::from("bcd"));
        assert_eq!(chosen(7, Some("c")).unwrap(), Oid::from("cde"));
        let why = chosen(7, None).unwrap_err().to_string();
        assert!(
            why.contains("org/one")
                && why.contains("org/two")
                && why.ends_with("write number,revision"),
            "{why}"
        );
        assert_eq!(
            of_number(&[slot("org/one", 7, "old"), slot("org/one", 7, "new")], 7, None).len(),
            1,
            "one change"
        );
    }

    /// Z6.5, R06: who takes one out of those that need each other is told of all that leave, and of
    /// nobody else.
    #[test]
    fn those_that_need_each_other_are_named_with_the_one_that_is_taken_out() {
        let mut slots: Vec<Slot> =
            (1..=5).map(|number| slot("org/one", number, &format!("head{number}"))).collect();
        assert_eq!(with(&mates(&slots, 2)), "");
        slots[2].joined = true;
        slots[3].joined = true;
        let named = |at: usize| {
            mates(&slots, at).iter().filter_map(|(_, key)| key.number()).collect::<Vec<_>>()
        };
        let all: Vec<Vec<u64>> = (0..5).map(named).collect();
        let expected: [Vec<u64>; 5] = [vec![], vec![3, 4], vec![2, 4], vec![2, 3], vec![]];
        assert_eq!(all, expected);
        let told = with(&mates(&slots, 2));
        assert_eq!(told, " with org/one#2, org/one#4, for they need each other");
        assert_eq!(mates(&slots, 2)[1].0, slots[3].id);
    }

    fn ended(result: &str, why: &str) -> Became {
        Became::Left { result: result.to_owned(), why: why.to_owned() }
    }

    /// R06: what landed, or moved to another queue, before anybody heard that it was to leave was
    /// not taken out, and who asked for it is told.
    #[test]
    fn what_left_before_it_could_be_taken_out_is_no_success() {
        let taken = "an operator took it out: it hangs";
        assert_eq!(left(&ended("DEQUEUED", taken), false), Ok(format!("DEQUEUED: {taken}")));
        let landed = ended("SUCCESS", "landed");
        assert_eq!(left(&landed, false), Err("it had left before with SUCCESS: landed".to_owned()));
        assert_eq!(left(&landed, true), Ok("SUCCESS: landed; its last jobs are over".to_owned()));
        let moved =
            ended("DEQUEUED", "the configuration changed: it belongs to the queue other now");
        assert!(left(&moved, false).is_err());
        assert!(left(&Became::Gone, false).is_err());
        let stands = left(&Became::Stands { position: 0, of: 2 }, false).unwrap_err();
        assert!(stands.ends_with("at place 1 of 2"), "{stands}");
    }
}
