//! What a queued change currently waits for. The item's reasons say how it got there.

use crate::inbox::{Candidate, InboxMessage, InboxMessageKind};
use crate::item::{Item, JobStatus, MergeStatus};
use crate::landing::{Landing, LandingState};
use crate::plan::LayoutNumbers;
use crate::queue::{Entry, Head, Slot, SlotStatus, own_queue};
use sluice_config::pipeline::Manager;
use sluice_model::change::ChangeKey;
use sluice_model::hold::EventProcessing;
use sluice_model::{ItemId, QueueName};

/// The most unfinished jobs that are named.
const JOBS_MAX: usize = 10;

/// The state outside a queue that can keep its changes waiting.
pub struct WaitContext<'a> {
    /// The number of the tenant's live layout and of the newest requested one.
    pub layout: LayoutNumbers,
    /// The event processing that operators have paused.
    pub events: &'a EventProcessing,
    /// The change's landing, once it was ordered.
    pub landing: Option<&'a Landing>,
    /// Why the pipeline would not accept the change as it was last read; `None` where it would.
    pub refusal: Option<String>,
    /// Queues of the pipeline whose records cannot be read.
    pub unreadable_queues: Vec<QueueName>,
}

impl WaitContext<'_> {
    /// Returns whether a newer layout than the live one is requested.
    fn is_layout_pending(&self) -> bool {
        self.layout.wanted > self.layout.live
    }

    /// Describes the wait for the pending layout. The caller has checked
    /// [`Self::is_layout_pending`].
    fn layout_wait(&self) -> String {
        let LayoutNumbers { wanted, live } = self.layout;
        format!(
            "new configuration is loading: layout {wanted} is requested and {live} is live; until it is live, no change enters or merges"
        )
    }
}

/// Returns what a queued item waits for, one reason per line; empty where it is not queued. `item`
/// returns an item's record, or `None` where it cannot be read.
pub fn wait_reasons<'i>(
    head: &Head,
    id: &ItemId,
    item: impl Fn(&ItemId) -> Option<&'i Item>,
    around: &WaitContext<'_>,
) -> Vec<String> {
    let Some(position) = head.position(id) else { return Vec::new() };
    let entry = &head.entries[position];
    let Some(slot) = entry.members.iter().find(|slot| slot.id == *id) else { return Vec::new() };
    let mut lines = Vec::new();
    if let Some(why) = &head.halted {
        lines.push(format!(
            "the queue is halted until an operator runs `sluice queue resume`: {why}"
        ));
    }
    let before = position.checked_sub(1).map(|before| &head.entries[before]);
    let ahead = before.and_then(|entry| entry.members.last());
    let members = together(head, entry, slot);
    lines.push(match slot.status {
        SlotStatus::Landing => match around.landing.map(|landing| &landing.state) {
            None | Some(LandingState::Ordered) => "it passed and is about to be merged".to_owned(),
            Some(LandingState::Merging(_) | LandingState::Pushing(_)) => {
                "the forge was asked to merge it; without an answer the request is repeated".to_owned()
            }
            Some(LandingState::Ended { .. }) => "its merge has ended, and its queue has yet to process the result".to_owned(),
        },
        SlotStatus::AwaitingLanding => "its bundle is being merged, and it is one of the next".to_owned(),
        SlotStatus::Landed => "it is merged; the rest of its bundle follows".to_owned(),
        SlotStatus::Reporting => match item(&slot.id).and_then(|item| item.reporting.as_ref()) {
            Some(reporting) if reporting.awaits.is_some() => {
                "it succeeded and is being reported; then its last jobs run, and the queue waits for them".to_owned()
            }
            _ => format!("it succeeded, and the queue waits for its last jobs: {}", last_jobs(item(&slot.id))),
        },
        SlotStatus::Passed => {
            let member = entry.members.iter().find(|member| member.status != SlotStatus::Passed);
            match (ahead, member) {
                (Some(ahead), _) => format!("it passed, and waits for {} ahead of it, which {}", name(ahead), state_of(ahead)),
                (None, Some(member)) => format!("it passed, and waits for {} of its bundle, which {}", name(member), state_of(member)),
                (None, None) => "it passed, and nothing is ahead of it".to_owned(),
            }
        }
        SlotStatus::Failing => match ahead {
            Some(ahead) => format!(
                "it fails in its current state; when {} ahead of it, which {}, is merged or dequeued, it is removed or tested again",
                name(ahead),
                state_of(ahead)
            ),
            None if around.is_layout_pending() && item(&slot.id).is_some_and(is_misconfigured) => {
                "the live configuration cannot test it; if the pipeline merges it, the pending layout decides whether it is removed".to_owned()
            }
            None => "it fails, and is removed when its jobs have finished".to_owned(),
        },
        SlotStatus::Waiting | SlotStatus::Testing if !head.is_active(position) => format!(
            "it is outside the window of its queue: the first {} of {} changes are being processed",
            head.entries[..head.active_count()].iter().map(|entry| entry.members.len()).sum::<usize>(),
            head.slots().count()
        ),
        SlotStatus::Waiting | SlotStatus::Testing => match item(&slot.id) {
            Some(item) => worked_on(item, ahead),
            None => "its record could not be read".to_owned(),
        },
    });
    lines.extend(members);
    if let Some(trouble) = around.landing.and_then(|landing| landing.trouble.as_ref()) {
        let since = trouble.since.to_iso();
        lines.push(format!("merging it has failed since {since} and is retried: {}", trouble.why));
    }
    lines
        .extend(around.refusal.as_ref().map(|why| format!("when the change was last read: {why}")));
    lines.extend(around.is_layout_pending().then(|| around.layout_wait()));
    lines.extend(
        around
            .events
            .result_queue_paused
            .then(|| "an operator has paused the processing of results".to_owned()),
    );
    lines
}

/// Names the other members of a change's bundle; `None` where it is in no bundle.
fn together(head: &Head, entry: &Entry, slot: &Slot) -> Option<String> {
    let members = entry.members.iter().filter(|member| member.id != slot.id);
    let members: Vec<String> = members.map(name).collect();
    // In an independent pipeline the bundle is in the queue of one of its members.
    let place = if head.manager == Manager::Independent {
        format!(", in the queue {}", head.key.queue)
    } else {
        String::new()
    };
    let names = members.join(", ");
    (!members.is_empty()).then(|| {
        format!(
            "it and {names} depend on each other: they are tested and reported as one bundle{place}"
        )
    })
}

/// Names the unfinished jobs that run after the item's reports, at most [`JOBS_MAX`]; empty without
/// any, and where the item cannot be read.
fn last_jobs(item: Option<&Item>) -> String {
    let jobs = item.map(|item| item.jobs.as_slice()).unwrap_or_default();
    let open = jobs.iter().filter(|job| job.summary.reporter && job.result().is_none());
    open.map(|job| job.summary.name.as_str()).take(JOBS_MAX).collect::<Vec<_>>().join(", ")
}

/// Returns whether the item cannot be tested because its configuration is invalid.
fn is_misconfigured(item: &Item) -> bool {
    matches!(item.merge_status, MergeStatus::Unmergeable { configuration: true, .. })
}

/// Describes the progress of a change within the window that has not passed or failed. `ahead` is
/// the last item of the entry ahead, `None` for the first entry.
fn worked_on(item: &Item, ahead: Option<&Slot>) -> String {
    match (&item.merge_status, ahead) {
        (MergeStatus::NotRequested, Some(ahead)) => {
            format!("it waits for the tested state of {} ahead of it", name(ahead))
        }
        (MergeStatus::NotRequested, None) => "its tested state is about to be requested".to_owned(),
        (MergeStatus::Requested { .. }, _) => "its tested state is being merged".to_owned(),
        (MergeStatus::Unmergeable { why, .. }, _) => format!("it cannot be tested: {why}"),
        (MergeStatus::Merged(_), _) => {
            let is_under_way = |status: &JobStatus| {
                matches!(
                    status,
                    JobStatus::Waiting
                        | JobStatus::Ordered { .. }
                        | JobStatus::Running { .. }
                        | JobStatus::Paused { .. }
                )
            };
            let open = item.reported_jobs().filter(|job| is_under_way(&job.status));
            let open: Vec<&str> = open.map(|job| job.summary.name.as_str()).collect();
            let names = open.iter().take(JOBS_MAX).copied().collect::<Vec<_>>().join(", ");
            let more = if open.len() > JOBS_MAX { ", …" } else { "" };
            format!(
                "{} of {} jobs have not finished: {names}{more}",
                open.len(),
                item.reported_jobs().count()
            )
        }
    }
}

/// The inbox of a queue, for explaining why a change is not in the queue yet.
#[derive(Debug, Clone, Copy)]
pub struct InboxState<'a> {
    /// The messages that the queue has not removed.
    pub messages: &'a [InboxMessage],
    /// Whether the queue is halted until an operator resumes it.
    pub is_halted: bool,
}

/// Returns why a change that was sent to a queue is not in it yet; `None` where no enqueue request
/// for it is in the inbox.
pub fn admission_wait_reason(
    inbox: InboxState<'_>,
    change: &ChangeKey,
    around: &WaitContext<'_>,
) -> Option<String> {
    let offers: Vec<(&InboxMessage, &Candidate)> = inbox
        .messages
        .iter()
        .filter_map(|message| Some((message, offered(message, change)?)))
        .collect();
    offers.last().map(|(_, last)| {
        // Paused trigger events do not delay what an operator enqueued.
        let is_paused = around.events.trigger_queue_paused && !offers.iter().any(|(message, _)| message.by_operator);
        let members: Vec<String> = last.bundle.iter().filter(|key| *key != change).map(ToString::to_string).collect();
        let as_one = if members.is_empty() {
            String::new()
        } else {
            format!("; it enters as a bundle with {}, and members in another queue leave that queue first", members.join(", "))
        };
        let hidden = last.bundle.iter().map(own_queue).find(|own| around.unreadable_queues.contains(own));
        let why = match hidden {
            _ if inbox.is_halted => "its queue is halted until an operator runs `sluice queue resume`".to_owned(),
            _ if is_paused => "an operator has paused trigger events".to_owned(),
            _ if around.is_layout_pending() => around.layout_wait(),
            Some(own) => format!(
                "a member of its bundle may be in the queue {own}, whose records cannot be read; the bundle enters once they are repaired{as_one}"
            ),
            None => format!("an earlier request waits for a merge or for space in the queue, or the queue has yet to process it{as_one}"),
        };
        format!("its enqueue request has reached the queue and is not processed yet: {why}")
    })
}

/// Returns a change's candidate in an enqueue request; `None` where the message is another one or
/// does not enqueue the change. A change that a candidate only needs is not found.
fn offered<'a>(message: &'a InboxMessage, change: &ChangeKey) -> Option<&'a Candidate> {
    match &message.kind {
        InboxMessageKind::Enqueue { candidates } => {
            candidates.iter().find(|candidate| candidate.change.key == *change)
        }
        _ => None,
    }
}

/// Returns the name of a slot's change.
fn name(slot: &Slot) -> String {
    slot.change.key.to_string()
}

/// Describes the status of an item ahead, as the end of a sentence about it.
fn state_of(slot: &Slot) -> &'static str {
    match slot.status {
        SlotStatus::Waiting => "is not being tested yet",
        SlotStatus::Testing => "is being tested",
        SlotStatus::Failing => "fails",
        SlotStatus::Passed => "has passed",
        SlotStatus::Landing => "is being merged",
        SlotStatus::AwaitingLanding | SlotStatus::Landed => "is being merged with its bundle",
        SlotStatus::Reporting => "has succeeded and is running its last jobs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::change::ChangeRef;
    use sluice_model::{InboxMessageId, ProjectName, QueueKey, Timestamp};

    /// Returns the inbox of a queue that is not halted.
    fn running(messages: &[InboxMessage]) -> InboxState<'_> {
        InboxState { messages, is_halted: false }
    }

    fn slot(number: u64, status: SlotStatus) -> Slot {
        let key =
            ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/one"), number);
        let change = ChangeRef {
            key,
            branch: "main".into(),
            head: "abc".into(),
            patchset: "abc".to_owned(),
        };
        let id = ItemId::from(number.to_string().as_str());
        Slot { status, ..Slot::new(id, change) }
    }

    fn head(statuses: &[SlotStatus], window: u32) -> Head {
        let key = QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "q".into() };
        let slots = statuses.iter().zip(1..).map(|(status, number)| slot(number, *status));
        let entries = slots.map(Entry::from).collect();
        Head { entries, ..Head::new(key, Manager::Dependent, window, 3) }
    }

    /// Makes the last entry a part of the one before it.
    fn join_last(mut head: Head) -> Head {
        let last = head.entries.pop().unwrap();
        head.entries.last_mut().unwrap().members.extend(last.members);
        head
    }

    fn lines(head: &Head, position: usize) -> Vec<String> {
        let events = EventProcessing::default();
        let layout = LayoutNumbers { wanted: 3, live: 3 };
        let around = WaitContext {
            layout,
            events: &events,
            landing: None,
            refusal: None,
            unreadable_queues: Vec::new(),
        };
        let id = &head.slots().nth(position).unwrap().id;
        wait_reasons(head, id, |_| None, &around)
    }

    fn line(head: &Head, position: usize) -> String {
        let lines = lines(head, position);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].clone()
    }

    /// Z1.6: the reason names the change ahead and its state.
    #[test]
    fn a_wait_reason_names_the_change_ahead() {
        use SlotStatus::{Failing, Landing, Passed, Reporting, Testing, Waiting};
        let queue = head(&[Testing, Passed, Failing, Waiting], 3);
        assert_eq!(
            line(&queue, 1),
            "it passed, and waits for org/one#1 ahead of it, which is being tested"
        );
        assert!(
            line(&queue, 2)
                .contains("when org/one#2 ahead of it, which has passed, is merged or dequeued")
        );
        assert_eq!(
            line(&queue, 3),
            "it is outside the window of its queue: the first 3 of 4 changes are being processed"
        );
        assert_eq!(line(&head(&[Landing], 0), 0), "it passed and is about to be merged");
        assert_eq!(line(&head(&[Passed], 0), 0), "it passed, and nothing is ahead of it");
        assert!(line(&head(&[Reporting], 0), 0).starts_with("it succeeded, and the queue waits"));
        assert!(
            line(&head(&[Reporting, Passed], 0), 1)
                .ends_with("which has succeeded and is running its last jobs")
        );
        let cycle = join_last(head(&[Passed, Testing], 0));
        let expected = [
            "it passed, and waits for org/one#2 of its bundle, which is being tested",
            "it and org/one#2 depend on each other: they are tested and reported as one bundle",
        ];
        assert_eq!(lines(&cycle, 0), expected);
    }

    /// Z1.6, C01: a change that the live configuration cannot test waits for the pending layout,
    /// and the reason says so.
    #[test]
    fn a_change_that_waits_for_the_pending_layout_says_so() {
        let queue = head(&[SlotStatus::Failing], 0);
        let slot = queue.entries[0].first();
        let mut item = Item::admitted(slot, Candidate::bare(&slot.change), "event", Timestamp(1));
        let events = EventProcessing::default();
        let line_for = |item: &Item, wanted: u64| {
            let layout = LayoutNumbers { wanted, live: 3 };
            let around = WaitContext {
                layout,
                events: &events,
                landing: None,
                refusal: None,
                unreadable_queues: Vec::new(),
            };
            wait_reasons(&queue, &queue.entries[0].first().id, |_| Some(item), &around)[0].clone()
        };
        for (configuration, wanted, waits) in [(true, 4, true), (true, 3, false), (false, 4, false)]
        {
            item.merge_status = MergeStatus::Unmergeable {
                why: "there is no job".to_owned(),
                configuration,
                notes: Vec::new(),
            };
            let said = line_for(&item, wanted);
            assert_eq!(
                said.contains("the pending layout decides whether it is removed"),
                waits,
                "{said}"
            );
        }
    }

    /// Z1.6, Z6.5: in an independent pipeline the reason names the queue that the bundle is in.
    #[test]
    fn a_bundle_member_names_the_other_members_and_their_queue() {
        let mut cycle = join_last(head(&[SlotStatus::Passed, SlotStatus::Testing], 0));
        cycle.manager = Manager::Independent;
        let third = slot(3, SlotStatus::Testing);
        cycle.entries.push(Entry::from(third));
        let line_for = |others: &str| {
            format!(
                "it and {others} depend on each other: they are tested and reported as one bundle, in the queue q"
            )
        };
        assert_eq!(lines(&cycle, 0)[1..], [line_for("org/one#2")]);
        assert_eq!(lines(&cycle, 2).len(), 1, "it is in no bundle");
        let cycle = join_last(cycle);
        assert_eq!(lines(&cycle, 1)[1..], [line_for("org/one#1, org/one#3")]);
    }

    /// Z1.6, Z6.5: a bundle that waits to enter names its other members.
    #[test]
    fn a_bundle_that_waits_to_enter_names_its_members() {
        let queue = head(&[SlotStatus::Waiting, SlotStatus::Waiting], 0);
        let cycle: Vec<ChangeKey> = queue.slots().map(|slot| slot.change.key.clone()).collect();
        let offer =
            |slot: &Slot| Candidate { bundle: cycle.clone(), ..Candidate::bare(&slot.change) };
        let candidates = queue.slots().map(offer).collect();
        let (id, kind) = (InboxMessageId::derive(&["a"]), InboxMessageKind::Enqueue { candidates });
        let (event_id, by_operator, in_progress) = (String::new(), false, false);
        let inbox = [InboxMessage {
            id,
            at: Timestamp(1),
            event_id,
            layout: 3,
            by_operator,
            in_progress,
            kind,
        }];
        let events = EventProcessing::default();
        let layout = LayoutNumbers { wanted: 3, live: 3 };
        let around = WaitContext {
            layout,
            events: &events,
            landing: None,
            refusal: None,
            unreadable_queues: Vec::new(),
        };
        let reason = admission_wait_reason(running(&inbox), &cycle[0], &around).unwrap();
        let expected = "it enters as a bundle with org/one#2, and members in another queue leave that queue first";
        assert!(reason.ends_with(expected), "{reason}");
        let unread = vec![own_queue(&cycle[1])];
        let around = WaitContext { unreadable_queues: unread, ..around };
        let reason = admission_wait_reason(running(&inbox), &cycle[0], &around).unwrap();
        assert!(
            reason.contains("the queue forge.test/org/one#2, whose records cannot be read"),
            "{reason}"
        );
    }

    /// Z1.6: a reason that affects a whole queue or tenant is shown at each change.
    #[test]
    fn a_reason_for_the_whole_queue_is_shown_at_each_change() {
        let events = EventProcessing {
            result_queue_paused: true,
            trigger_queue_paused: true,
            ..EventProcessing::default()
        };
        let layout = LayoutNumbers { wanted: 4, live: 3 };
        let refusal = Some("pipeline gate requires a review: approved".to_owned());
        let around = WaitContext {
            layout,
            events: &events,
            landing: None,
            refusal,
            unreadable_queues: Vec::new(),
        };
        let mut queue = head(&[SlotStatus::Passed], 0);
        queue.halted = Some("the merged tree differs from the tested tree".to_owned());
        let lines =
            wait_reasons(&queue, &queue.entries[0].first().id, |_| None, &around).join("\n");
        for said in [
            "queue is halted",
            "requires a review: approved",
            "layout 4 is requested and 3 is live",
            "paused the processing of results",
        ] {
            assert!(lines.contains(said), "{said}: {lines}");
        }
        let candidates = vec![Candidate::bare(&queue.entries[0].first().change)];
        let (id, kind) = (InboxMessageId::derive(&["a"]), InboxMessageKind::Enqueue { candidates });
        let (event_id, by_operator, in_progress) = (String::new(), false, false);
        let inbox = [InboxMessage {
            id,
            at: Timestamp(1),
            event_id,
            layout: 3,
            by_operator,
            in_progress,
            kind,
        }];
        let key = &queue.entries[0].first().change.key;
        assert!(
            admission_wait_reason(running(&inbox), key, &around)
                .unwrap()
                .contains("paused trigger events")
        );
        let halted = InboxState { messages: &inbox, is_halted: true };
        assert!(admission_wait_reason(halted, key, &around).unwrap().contains("halted"));
        let empty = InboxState { messages: &[], is_halted: true };
        assert_eq!(admission_wait_reason(empty, key, &around), None);
    }
}
