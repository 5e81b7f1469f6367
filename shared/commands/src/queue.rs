//! Commands to change queues: dequeue and promote.

use crate::selectors::ChangeNumber;
use crate::{CommandAuthor, StoreCommandError};
use sluice_config::tenant::Permission;
use sluice_gate::{Entry, InboxMessage, InboxMessageKind, Slot, SlotStatus};
use sluice_model::change::{ChangeId, ChangeKey};
use sluice_model::git::Oid;
use sluice_model::wakeup::Wakeup;
use sluice_model::{InboxMessageId, ItemId, ProjectName, QueueKey};
use sluice_records::operator_command::{self, OperatorCommand, PipelineContents};
use sluice_runtime::{Ports, cell};
use std::collections::BTreeSet;

/// Which items of a pipeline are dequeued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DequeueSelection {
    /// A change, with the given revision only if one is given.
    Change(ChangeNumber),
    /// A ref, by its full name, with each commit that is queued.
    Ref(String),
}

/// The items of one change or ref in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedChange {
    /// The queue.
    pub queue: QueueKey,
    /// The change or ref.
    pub key: ChangeKey,
    /// Its items.
    pub items: Vec<QueuedItem>,
    /// The other members of its bundle, which are dequeued with it.
    pub members: Vec<(ItemId, ChangeKey)>,
}

/// An item in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedItem {
    /// The item.
    pub id: ItemId,
    /// Its state.
    pub status: SlotStatus,
}

/// Changes of one queue that are moved to its front, in their new order.
#[derive(Debug, Clone)]
pub struct Promotion {
    /// The queue.
    pub queue: QueueKey,
    /// The slots of the changes.
    pub slots: Vec<Slot>,
}

impl DequeueSelection {
    fn is_selected(&self, slot: &Slot) -> bool {
        match (&slot.change.key.id, self) {
            (ChangeId::Number(number), Self::Change(change)) => {
                *number == change.number && has_head(slot, change)
            }
            (ChangeId::Ref(moved), Self::Ref(git_ref)) => moved.git_ref == *git_ref,
            _ => false,
        }
    }

    /// Returns the first digits of the revision to dequeue, if one is given.
    fn head(&self) -> Option<Oid> {
        match self {
            Self::Change(change) => change.head.as_deref().map(Oid::from),
            Self::Ref(_) => None,
        }
    }
}

/// Returns whether a slot's commit begins with the revision of a change, if that has one.
fn has_head(slot: &Slot, change: &ChangeNumber) -> bool {
    change.head.as_deref().is_none_or(|head| slot.change.head.as_str().starts_with(head))
}

/// Returns the queued items of a change or ref of a project, by queue. A ref may be queued several
/// times with different commits. `project` is the short or the canonical name. Empty if nothing is
/// queued.
///
/// # Errors
/// When several projects have this short name.
pub fn select_queued(
    contents: &PipelineContents,
    project: &str,
    selection: &DequeueSelection,
) -> Result<Vec<QueuedChange>, StoreCommandError> {
    let mut found: Vec<QueuedChange> = Vec::new();
    for (queue, entries) in &contents.queues {
        let members =
            entries.iter().flat_map(|entry| entry.members.iter().map(move |slot| (entry, slot)));
        let selected = members.filter(|(_, slot)| {
            let name = &slot.change.key.project;
            [name.as_str(), name.name()].contains(&project) && selection.is_selected(slot)
        });
        for (entry, slot) in selected {
            let key = &slot.change.key;
            let item = QueuedItem { id: slot.id.clone(), status: slot.status };
            let members = other_members(entry, slot);
            match found.iter_mut().find(|other| other.queue == *queue && other.key == *key) {
                Some(same) => {
                    same.items.push(item);
                    same.members.extend(members);
                }
                None => found.push(QueuedChange {
                    queue: queue.clone(),
                    key: key.clone(),
                    items: vec![item],
                    members,
                }),
            }
        }
    }
    let projects: BTreeSet<&ProjectName> = found.iter().map(|change| &change.key.project).collect();
    if projects.len() > 1 {
        let names: Vec<_> = projects.iter().map(ToString::to_string).collect();
        return Err(StoreCommandError::Invalid(format!(
            "several projects match this name ({}): give a canonical name",
            names.join(", ")
        )));
    }
    Ok(found)
}

/// Returns the item ids and changes of the other members of an item's bundle. Empty for a single
/// change. `entry` must contain `of`.
fn other_members(entry: &Entry, of: &Slot) -> Vec<(ItemId, ChangeKey)> {
    let others = entry.members.iter().filter(|slot| slot.id != of.id);
    others.map(|slot| (slot.id.clone(), slot.change.key.clone())).collect()
}

/// Stores the commands that dequeue changes, and wakes their queues. `selection` is the one by
/// which they were found. Returns a handle for each, in the same order.
///
/// # Errors
/// When the store does not answer; some of the commands may be stored then.
pub async fn dequeue(
    ports: &Ports,
    found: &[QueuedChange],
    selection: &DequeueSelection,
    reason: &str,
    author: &CommandAuthor,
) -> Result<Vec<OperatorCommand>, StoreCommandError> {
    let mut commands = Vec::new();
    for QueuedChange { queue, key, members, .. } in found {
        let kind = InboxMessageKind::Dequeue {
            key: key.clone(),
            head: selection.head(),
            by: author.name.clone(),
            reason: reason.trim().to_owned(),
        };
        let revision = selection.head().map(|head| format!(" at {head}")).unwrap_or_default();
        let others = members.iter().map(|(_, key)| format!(" and {key}")).collect::<String>();
        let description = format!("dequeue {key}{revision}{others} from {}", queue.pipeline);
        let sending = SentCommand { kind, permission: Permission::Dequeue, description };
        commands.push(send(ports, queue, sending, author).await?);
    }
    Ok(commands)
}

/// Selects the queue of a pipeline that has all the changes, and their slots in the given order.
///
/// # Errors
/// When not exactly one queue has all of them, or a number is ambiguous in it.
pub fn select_promotion(
    contents: &PipelineContents,
    changes: &[ChangeNumber],
) -> Result<Promotion, StoreCommandError> {
    let mut found: Vec<(&QueueKey, Vec<Vec<&Slot>>)> = Vec::new();
    for (queue, entries) in &contents.queues {
        let slots: Vec<Vec<&Slot>> =
            changes.iter().map(|change| slots_of_change(entries, change)).collect();
        if slots.iter().all(|all| !all.is_empty()) {
            found.push((queue, slots));
        }
    }
    match found.as_slice() {
        [(queue, slots)] => {
            let slots = slots.iter().map(|all| only_slot(queue, all).cloned());
            Ok(Promotion { queue: (*queue).clone(), slots: slots.collect::<Result<_, _>>()? })
        }
        [] => {
            Err(StoreCommandError::NotFound("no queue of the pipeline has all of them".to_owned()))
        }
        _ => Err(StoreCommandError::Invalid(
            "several queues of the pipeline have changes with these numbers: give number,revision"
                .to_owned(),
        )),
    }
}

/// Stores the command that moves changes to the front of their queue, and wakes the queue.
///
/// # Errors
/// When the store does not answer.
pub async fn promote(
    ports: &Ports,
    promotion: &Promotion,
    author: &CommandAuthor,
) -> Result<OperatorCommand, StoreCommandError> {
    let keys: Vec<ChangeKey> = promotion.slots.iter().map(|slot| slot.change.key.clone()).collect();
    let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let description = format!("promote {} in {}", names.join(", "), promotion.queue.pipeline);
    let kind = InboxMessageKind::Promote { keys, by: author.name.clone() };
    let sending = SentCommand { kind, permission: Permission::Promote, description };
    send(ports, &promotion.queue, sending, author).await
}

/// Returns the first item of each change that has the number and, if one is given, the revision.
/// Empty if there is none. There may be several: projects that share a queue may each have a change
/// of that number.
fn slots_of_change<'s>(entries: &'s [Entry], change: &ChangeNumber) -> Vec<&'s Slot> {
    let mut found: Vec<&Slot> = Vec::new();
    for slot in entries.iter().flat_map(|entry| &entry.members) {
        let is_selected = slot.change.key.number() == Some(change.number) && has_head(slot, change);
        if is_selected && found.iter().all(|other| other.change.key != slot.change.key) {
            found.push(slot);
        }
    }
    found
}

/// Returns the only item of a list, which must not be empty. If it has several, returns an error
/// that asks for `number,revision` and names the queue.
fn only_slot<'s>(queue: &QueueKey, all: &[&'s Slot]) -> Result<&'s Slot, StoreCommandError> {
    match all {
        [one] => Ok(*one),
        _ => {
            let names: Vec<String> = all.iter().map(|slot| slot.change.key.to_string()).collect();
            Err(StoreCommandError::Invalid(format!(
                "several changes in the queue {} have this number: {}; give number,revision",
                queue.queue,
                names.join(", ")
            )))
        }
    }
}

/// Returns an operator's message to a queue, with a random id and the present time. Stores nothing.
pub fn inbox_message(ports: &Ports, kind: InboxMessageKind) -> InboxMessage {
    InboxMessage {
        id: InboxMessageId(ports.entropy.token()),
        at: ports.clock.now(),
        event_id: "operator".to_owned(),
        layout: 0,
        by_operator: true,
        in_progress: false,
        kind,
    }
}

/// A command to a queue and its audit.
struct SentCommand {
    kind: InboxMessageKind,
    permission: Permission,
    description: String,
}

/// Writes a command to the inbox of a queue with its audit, and wakes the queue. Does not wait.
async fn send(
    ports: &Ports,
    queue: &QueueKey,
    sending: SentCommand,
    author: &CommandAuthor,
) -> Result<OperatorCommand, StoreCommandError> {
    let SentCommand { kind, permission, description } = sending;
    let (write, command) = operator_command::put(queue, &inbox_message(ports, kind))?;
    let audit = author.audit(ports, &queue.tenant, permission, &description)?;
    ports.records.commit(vec![write, audit], &ports.entropy.token()).await?;
    cell::send(ports, &[Wakeup::Queue { queue: queue.clone() }]).await?;
    Ok(command)
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
        Slot::new(ItemId(format!("{project}-{head}")), change)
    }

    fn change(number: u64, head: Option<&str>) -> ChangeNumber {
        ChangeNumber { number, head: head.map(str::to_owned) }
    }

    fn queue(name: &str) -> QueueKey {
        QueueKey { tenant: "demo".into(), pipeline: "gate".into(), queue: name.into() }
    }

    /// Z6.4: a number that is ambiguous in a shared queue promotes nothing.
    #[test]
    fn an_ambiguous_number_promotes_nothing() {
        let entries =
            [slot("org/one", 7, "abc"), slot("org/two", 8, "bcd"), slot("org/two", 7, "cde")]
                .map(Entry::from);
        let contents = PipelineContents {
            queues: vec![(queue("integrated"), entries.to_vec()), (queue("docs"), Vec::new())],
            unreadable: Vec::new(),
        };
        let chosen = |number, head| {
            select_promotion(&contents, &[change(number, head)])
                .map(|promotion| promotion.slots[0].change.head.clone())
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
        assert!(matches!(chosen(9, None), Err(StoreCommandError::NotFound(_))));
        let revisions = [slot("org/one", 7, "old"), slot("org/one", 7, "new")].map(Entry::from);
        assert_eq!(slots_of_change(&revisions, &change(7, None)).len(), 1, "one change");
    }

    /// Z6.4, R06: a selection takes the change with the revision, of one project.
    #[test]
    fn a_selection_names_one_project_and_may_name_a_revision() {
        let entries = [
            slot("org/one", 7, "abc"),
            slot("org/one", 7, "bcd"),
            slot("org/one", 8, "cde"),
            slot("org/two", 7, "abc"),
        ]
        .map(Entry::from);
        let contents = PipelineContents {
            queues: vec![(queue("integrated"), entries.to_vec())],
            unreadable: Vec::new(),
        };
        let items = |project: &str, change| {
            let selection = DequeueSelection::Change(change);
            let found = select_queued(&contents, project, &selection).unwrap();
            found.iter().map(|found| found.items.len()).collect::<Vec<_>>()
        };
        assert_eq!(items("org/one", change(7, None)), [2]);
        assert_eq!(items("github.com/org/one", change(7, Some("ab"))), [1]);
        assert_eq!(items("org/one", change(7, Some("x"))), [0; 0]);
        assert_eq!(items("one", change(7, None)), [0; 0]);
        let ref_selection = DequeueSelection::Ref("refs/heads/main".to_owned());
        assert!(select_queued(&contents, "org/one", &ref_selection).unwrap().is_empty());
    }

    /// Z6.5, R06: dequeuing a member of a bundle names the other members, and no other change.
    #[test]
    fn the_other_members_of_a_bundle_are_known() {
        let slots = |numbers: std::ops::RangeInclusive<u64>| {
            numbers.map(|number| slot("org/one", number, &format!("head{number}"))).collect()
        };
        let alone = Entry { ahead: None, members: slots(1..=1) };
        assert!(other_members(&alone, alone.first()).is_empty());
        let bundle = Entry { ahead: None, members: slots(2..=4) };
        let others_of = |slot: &Slot| {
            let others = other_members(&bundle, slot);
            others.iter().filter_map(|(_, key)| key.number()).collect::<Vec<_>>()
        };
        let all: Vec<Vec<u64>> = bundle.members.iter().map(others_of).collect();
        assert_eq!(all, [[3, 4], [2, 4], [2, 3]]);
    }
}
