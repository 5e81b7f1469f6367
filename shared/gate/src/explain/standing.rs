//! What a change that stands in a queue waits for as the queue is now; its reasons tell how it came
//! to that.

use crate::arrival::{Arrival, ArrivalKind, Candidate};
use crate::item::{Ask, Item, JobStatus};
use crate::landing::{Landing, LandingState};
use crate::plan::LayoutNumbers;
use crate::queue::{Head, Slot, Standing, own_queue};
use sluice_config::pipeline::Manager;
use sluice_model::change::ChangeKey;
use sluice_model::hold::EventsHold;
use sluice_model::{ItemId, QueueName};
use std::ops::Range;

/// Jobs that are named of those that are not over.
const JOBS_MAX: usize = 10;

/// What is around a queue that keeps changes waiting.
pub struct Around<'a> {
    /// Which layout the tenant wants and which is live.
    pub layout: LayoutNumbers,
    /// What operators hold back.
    pub events: &'a EventsHold,
    /// The change's landing, where it was ordered.
    pub landing: Option<&'a Landing>,
    /// Why the pipeline would not take the change as it was seen last, if so.
    pub refusal: Option<String>,
    /// Queues of the pipeline that cannot be read.
    pub unread: Vec<QueueName>,
}

impl Around<'_> {
    fn is_settling(&self) -> bool {
        self.layout.wanted > self.layout.live
    }

    fn settling(&self) -> String {
        let LayoutNumbers { wanted, live } = self.layout;
        format!(
            "configuration is on its way: layout {wanted} is wanted and {live} is live; until then nothing enters or lands"
        )
    }
}

/// Returns what the change at `position` of a queue waits for, a line each.
pub fn standing<'i>(
    head: &Head,
    position: usize,
    item: impl Fn(&ItemId) -> Option<&'i Item>,
    around: &Around<'_>,
) -> Vec<String> {
    let Some(slot) = head.slots.get(position) else { return Vec::new() };
    let mut lines = Vec::new();
    if let Some(why) = &head.frozen {
        lines.push(format!(
            "the queue is frozen, and nothing of it moves before `sluice queue thaw`: {why}"
        ));
    }
    let bundle = head.bundle(position);
    let ahead = bundle.start.checked_sub(1).and_then(|before| head.slots.get(before));
    let mates = together(head, bundle.clone(), slot);
    lines.push(match slot.standing {
        Standing::Landing => match around.landing.map(|landing| &landing.state) {
            None | Some(LandingState::Wanted) => "it passed and is to be put into its branch".to_owned(),
            Some(LandingState::Attempting { .. }) => {
                "its forge is being asked to merge it; while it gives no answer it is asked again".to_owned()
            }
            Some(LandingState::Ended { .. }) => "its landing is over, and its queue is to hear of that".to_owned(),
        },
        Standing::Pledged => "the cycle that it is in is being landed, and its turn comes".to_owned(),
        Standing::Landed => "it is in its branch; what is left of its cycle follows".to_owned(),
        Standing::Reporting => match item(&slot.id).and_then(|item| item.reporting.as_ref()) {
            Some(reporting) if reporting.awaits.is_some() => {
                "it succeeded, and its report is being made; then its last jobs run, for which the queue waits".to_owned()
            }
            _ => format!("it succeeded, and its last jobs run, for which the queue waits: {}", last_jobs(item(&slot.id))),
        },
        Standing::Passed => {
            let mate = head.slots[bundle].iter().find(|mate| mate.standing != Standing::Passed);
            match (ahead, mate) {
                (Some(ahead), _) => format!("it passed, and waits for {} ahead of it, which {}", name(ahead), word(ahead)),
                (None, Some(mate)) => format!("it passed, and waits for {} of its cycle, which {}", name(mate), word(mate)),
                (None, None) => "it passed, and nothing is ahead of it".to_owned(),
            }
        }
        Standing::Failing => match ahead {
            Some(ahead) => format!(
                "it does not pass as it is tested now; whether it leaves or is tested again is decided when {} ahead of it, which {}, has landed or left",
                name(ahead),
                word(ahead)
            ),
            None if around.is_settling() && item(&slot.id).is_some_and(is_misconfigured) => {
                "the configuration that is live cannot test it; where it is to land, the one that is on its way says whether it leaves".to_owned()
            }
            None => "it does not pass, and leaves when its jobs are over".to_owned(),
        },
        Standing::Waiting | Standing::Testing if !head.is_active(position) => format!(
            "it is outside of the window of its queue: the first {} of {} changes are worked on",
            head.active(),
            head.slots.len()
        ),
        Standing::Waiting | Standing::Testing => match item(&slot.id) {
            Some(item) => worked_on(item, ahead),
            None => "its record could not be read".to_owned(),
        },
    });
    lines.extend(mates);
    if let Some(trouble) = around.landing.and_then(|landing| landing.trouble.as_ref()) {
        let since = trouble.since.to_iso();
        lines.push(format!(
            "its landing could not be carried out since {since}, and is tried again: {}",
            trouble.why
        ));
    }
    lines.extend(around.refusal.as_ref().map(|why| format!("as it was seen last: {why}")));
    lines.extend(around.is_settling().then(|| around.settling()));
    lines.extend(
        around.events.result_queue_paused.then(|| "an operator has results held back".to_owned()),
    );
    lines
}

/// Says with whom a change stands that it needs as much as they need it, if there is anybody.
fn together(head: &Head, bundle: Range<usize>, slot: &Slot) -> Option<String> {
    let mates = head.slots[bundle].iter().filter(|mate| mate.id != slot.id);
    let mates: Vec<String> = mates.map(name).collect();
    // Where each change has a queue of its own, that of one of them holds them all.
    let place = if head.manager == Manager::Independent {
        format!(", in the queue {}", head.key.queue)
    } else {
        String::new()
    };
    let names = mates.join(", ");
    (!mates.is_empty()).then(|| {
        format!("it and {names} need each other: they are tested and reported as one{place}")
    })
}

/// Names the jobs of an item that run after its reports and are not over.
fn last_jobs(item: Option<&Item>) -> String {
    let jobs = item.map(|item| item.jobs.as_slice()).unwrap_or_default();
    let open = jobs.iter().filter(|job| job.summary.reporter && job.result().is_none());
    open.map(|job| job.summary.name.as_str()).take(JOBS_MAX).collect::<Vec<_>>().join(", ")
}

/// Returns whether a change cannot be tested by the configuration that it was asked about with.
fn is_misconfigured(item: &Item) -> bool {
    matches!(item.ask, Ask::Unmergeable { configuration: true, .. })
}

/// Says how far the work on a change is that is within the window.
fn worked_on(item: &Item, ahead: Option<&Slot>) -> String {
    match (&item.ask, ahead) {
        (Ask::No, Some(ahead)) => {
            format!("it waits for the state of {} ahead of it, on which it is tested", name(ahead))
        }
        (Ask::No, None) => "the state that it is tested in is to be asked for".to_owned(),
        (Ask::Asked { .. }, _) => "the state that it is tested in is being made".to_owned(),
        (Ask::Unmergeable { why, .. }, _) => format!("it cannot be tested: {why}"),
        (Ask::Merged(_), _) => {
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
                "{} of {} jobs are not over: {names}{more}",
                open.len(),
                item.reported_jobs().count()
            )
        }
    }
}

/// Returns why a change that arrived at a queue is not in it yet, where it did.
pub fn arrived(
    arrivals: &[Arrival],
    change: &ChangeKey,
    is_frozen: bool,
    around: &Around<'_>,
) -> Option<String> {
    let offers: Vec<(&Arrival, &Candidate)> =
        arrivals.iter().filter_map(|arrival| Some((arrival, offered(arrival, change)?))).collect();
    offers.last().map(|(_, last)| {
        // What an operator has enqueued does not wait for that.
        let is_paused = around.events.trigger_queue_paused && !offers.iter().any(|(arrival, _)| arrival.by_operator);
        let mates: Vec<String> = last.cycle.iter().filter(|key| *key != change).map(ToString::to_string).collect();
        let as_one = if mates.is_empty() {
            String::new()
        } else {
            format!("; it enters as one with {}, and whichever of them stands elsewhere leaves first", mates.join(", "))
        };
        let hidden = last.cycle.iter().map(own_queue).find(|own| around.unread.contains(own));
        let why = match hidden {
            _ if is_frozen => "its queue is frozen until `sluice queue thaw`".to_owned(),
            _ if is_paused => "an operator has trigger events paused".to_owned(),
            _ if around.is_settling() => around.settling(),
            Some(own) => format!(
                "one of those that need each other may stand in the queue {own}, which cannot be read; they enter when that is mended{as_one}"
            ),
            None => format!("something before it waits for a landing or for a place, or its turn comes{as_one}"),
        };
        format!("it has arrived at its queue and is not taken in yet: {why}")
    })
}

fn offered<'a>(arrival: &'a Arrival, change: &ChangeKey) -> Option<&'a Candidate> {
    match &arrival.kind {
        ArrivalKind::Enqueue { candidates } => {
            candidates.iter().find(|candidate| candidate.change.key == *change)
        }
        _ => None,
    }
}

fn name(slot: &Slot) -> String {
    slot.change.key.to_string()
}

fn word(slot: &Slot) -> &'static str {
    match slot.standing {
        Standing::Waiting => "is not tested yet",
        Standing::Testing => "is being tested",
        Standing::Failing => "does not pass",
        Standing::Passed => "has passed",
        Standing::Landing => "is being put into its branch",
        Standing::Pledged | Standing::Landed => "is landing with its cycle",
        Standing::Reporting => "has succeeded and runs its last jobs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::change::ChangeRef;
    use sluice_model::{ArrivalId, ProjectName, QueueKey, Timestamp};

    fn slot(number: u64, standing: Standing) -> Slot {
        let key =
            ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/one"), number);
        let change = ChangeRef {
            key,
            branch: "main".into(),
            head: "abc".into(),
            patchset: "abc".to_owned(),
        };
        let id = ItemId::from(number.to_string().as_str());
        Slot { id, change, generation: 1, ahead: None, standing, joined: false, version: 0 }
    }

    fn head(standings: &[Standing], window: u32) -> Head {
        let key = QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "q".into() };
        let slots =
            standings.iter().zip(1..).map(|(standing, number)| slot(number, *standing)).collect();
        Head { slots, ..Head::new(key, Manager::Dependent, window, 3) }
    }

    fn lines(head: &Head, position: usize) -> Vec<String> {
        let events = EventsHold::default();
        let layout = LayoutNumbers { wanted: 3, live: 3 };
        let around =
            Around { layout, events: &events, landing: None, refusal: None, unread: Vec::new() };
        standing(head, position, |_| None, &around)
    }

    fn line(head: &Head, position: usize) -> String {
        let lines = lines(head, position);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].clone()
    }

    /// Z1.6: what a change waits for is said with who is ahead of it and what that one does.
    #[test]
    fn a_change_says_whom_it_waits_for() {
        use Standing::{Failing, Landing, Passed, Reporting, Testing, Waiting};
        let queue = head(&[Testing, Passed, Failing, Waiting], 3);
        assert_eq!(
            line(&queue, 1),
            "it passed, and waits for org/one#1 ahead of it, which is being tested"
        );
        assert!(
            line(&queue, 2)
                .contains("when org/one#2 ahead of it, which has passed, has landed or left")
        );
        assert_eq!(
            line(&queue, 3),
            "it is outside of the window of its queue: the first 3 of 4 changes are worked on"
        );
        assert_eq!(line(&head(&[Landing], 0), 0), "it passed and is to be put into its branch");
        assert_eq!(line(&head(&[Passed], 0), 0), "it passed, and nothing is ahead of it");
        assert!(line(&head(&[Reporting], 0), 0).starts_with("it succeeded, and its last jobs run"));
        assert!(
            line(&head(&[Reporting, Passed], 0), 1)
                .ends_with("which has succeeded and runs its last jobs")
        );
        let mut cycle = head(&[Passed, Testing], 0);
        cycle.slots[1].joined = true;
        let expected = [
            "it passed, and waits for org/one#2 of its cycle, which is being tested",
            "it and org/one#2 need each other: they are tested and reported as one",
        ];
        assert_eq!(lines(&cycle, 0), expected);
    }

    /// Z1.6, C01: what the live configuration cannot test waits for the one that is on its way, and
    /// says so.
    #[test]
    fn a_change_that_waits_for_another_configuration_to_be_tested_says_so() {
        let queue = head(&[Standing::Failing], 0);
        let slot = &queue.slots[0];
        let mut item = Item::admitted(slot, Candidate::bare(&slot.change), "event", Timestamp(1));
        let events = EventsHold::default();
        let told = |item: &Item, wanted: u64| {
            let layout = LayoutNumbers { wanted, live: 3 };
            let around = Around {
                layout,
                events: &events,
                landing: None,
                refusal: None,
                unread: Vec::new(),
            };
            standing(&queue, 0, |_| Some(item), &around)[0].clone()
        };
        for (configuration, wanted, waits) in [(true, 4, true), (true, 3, false), (false, 4, false)]
        {
            item.ask = Ask::Unmergeable {
                why: "there is no job".to_owned(),
                configuration,
                notes: Vec::new(),
            };
            let said = told(&item, wanted);
            assert_eq!(
                said.contains("the one that is on its way says whether it leaves"),
                waits,
                "{said}"
            );
        }
    }

    /// Z1.6, Z6.5: where each change has a queue of its own, it is said in whose those stand that
    /// need each other.
    #[test]
    fn a_change_says_with_whom_it_stands_and_where() {
        let mut cycle = head(&[Standing::Passed, Standing::Testing, Standing::Testing], 0);
        cycle.manager = Manager::Independent;
        cycle.slots[1].joined = true;
        let told = |others: &str| {
            format!(
                "it and {others} need each other: they are tested and reported as one, in the queue q"
            )
        };
        assert_eq!(lines(&cycle, 0)[1..], [told("org/one#2")]);
        assert_eq!(lines(&cycle, 2).len(), 1, "it is in no cycle");
        cycle.slots[2].joined = true;
        assert_eq!(lines(&cycle, 1)[1..], [told("org/one#1, org/one#3")]);
    }

    /// Z1.6, Z6.5: what waits to enter as one with others says with whom.
    #[test]
    fn a_change_that_is_to_enter_as_one_with_others_says_so() {
        let queue = head(&[Standing::Waiting, Standing::Waiting], 0);
        let cycle: Vec<ChangeKey> =
            queue.slots.iter().map(|slot| slot.change.key.clone()).collect();
        let offer =
            |slot: &Slot| Candidate { cycle: cycle.clone(), ..Candidate::bare(&slot.change) };
        let candidates = queue.slots.iter().map(offer).collect();
        let (id, kind) = (ArrivalId::derive(&["a"]), ArrivalKind::Enqueue { candidates });
        let (event_id, by_operator, taken_up) = (String::new(), false, false);
        let arrivals =
            [Arrival { id, at: Timestamp(1), event_id, layout: 3, by_operator, taken_up, kind }];
        let events = EventsHold::default();
        let layout = LayoutNumbers { wanted: 3, live: 3 };
        let around =
            Around { layout, events: &events, landing: None, refusal: None, unread: Vec::new() };
        let told = arrived(&arrivals, &cycle[0], false, &around).unwrap();
        let expected =
            "it enters as one with org/one#2, and whichever of them stands elsewhere leaves first";
        assert!(told.ends_with(expected), "{told}");
        let unread = vec![own_queue(&cycle[1])];
        let around = Around { unread, ..around };
        let told = arrived(&arrivals, &cycle[0], false, &around).unwrap();
        assert!(told.contains("the queue forge.test/org/one#2, which cannot be read"), "{told}");
    }

    /// Z1.6: what holds up a whole queue, or all of a tenant, is said at each change.
    #[test]
    fn what_holds_up_all_of_a_queue_is_said_at_each_change() {
        let events = EventsHold {
            result_queue_paused: true,
            trigger_queue_paused: true,
            ..EventsHold::default()
        };
        let layout = LayoutNumbers { wanted: 4, live: 3 };
        let refusal = Some("pipeline gate requires a review: approved".to_owned());
        let around = Around { layout, events: &events, landing: None, refusal, unread: Vec::new() };
        let mut queue = head(&[Standing::Passed], 0);
        queue.frozen = Some("the landed tree is another one".to_owned());
        let lines = standing(&queue, 0, |_| None, &around).join("\n");
        for said in [
            "queue is frozen",
            "requires a review: approved",
            "layout 4 is wanted and 3 is live",
            "results held back",
        ] {
            assert!(lines.contains(said), "{said}: {lines}");
        }
        let candidates = vec![Candidate::bare(&queue.slots[0].change)];
        let (id, kind) = (ArrivalId::derive(&["a"]), ArrivalKind::Enqueue { candidates });
        let (event_id, by_operator, taken_up) = (String::new(), false, false);
        let arrivals =
            [Arrival { id, at: Timestamp(1), event_id, layout: 3, by_operator, taken_up, kind }];
        let key = &queue.slots[0].change.key;
        assert!(arrived(&arrivals, key, false, &around).unwrap().contains("trigger events paused"));
        assert!(arrived(&arrivals, key, true, &around).unwrap().contains("frozen"));
        assert_eq!(arrived(&[], key, true, &around), None);
    }
}
