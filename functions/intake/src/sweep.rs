//! The sweep: open changes that no webhook told of, or told of too early, become deliveries of
//! ours. What else a forge may have failed to tell is in [`crate::lost`], and what is listed no
//! more in [`crate::over`].

use crate::attributes::{Asks, Lost};
use crate::before::{Concerned, Known, Order};
use crate::commits::{heeds, is_awaited_of_us};
use crate::deliver::Effects;
use crate::told::{self, Told};
use crate::{Intake, again};
use sluice_config::connection::Driver;
use sluice_forge::Verdict;
use sluice_gate::filter;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeRef, ChangeStatus, OpenChange, Review, ReviewState};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::gerrit::GerritEvent;
use sluice_model::id::digest;
use sluice_records::change;
use sluice_records::codec::{decode_foreign, get};
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::open;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Key;

/// How deliveries are called that tell what a forge did not.
pub(crate) const MADE_UP: &str = "sweep";

/// Changes that one sweep reads from the forge; the next one reads others, since those are compared
/// by then.
const READS_MAX: usize = 20;

/// Of those that did not move, changes that one sweep reads for their statuses, which move none;
/// the next one reads others.
const STATUS_READS_MAX: usize = 10;

/// Gaps that one sweep mends; the next one goes on.
const GAPS_MAX: usize = 40;

/// How often one thing is made up for that stays untold, since its forge does not show it to
/// whoever is to tell it, or answers that nothing is there.
const TIMES_MAX: usize = 8;

impl Intake {
    /// Compares a project's branches and open changes with what is known here. The inner error is
    /// final.
    pub(crate) async fn swept(
        &self,
        event: &ForgeEvent,
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<Result<(), String>, LookError> {
        let open_key = open::key(&event.project);
        let tenants = self
            .tenants_with(&event.project, Order::AtOnce, std::slice::from_ref(&open_key))
            .await?;
        if !may_be_known_by(&tenants, event) {
            effects.tell(format!(
                "no tenant has {} by the connection {}",
                event.project, event.connection
            ));
            return Ok(Ok(()));
        }
        self.find_webhooks(event, self.ports.clock.now(), effects).await?;
        self.find_pushes(event, &tenants, at, effects).await?;
        let mut open = match self.forge(&event.connection)?.open_changes(&event.project).await {
            Ok(open) => open,
            Err(error) if error.verdict() == Verdict::Final => return Ok(Err(error.to_string())),
            Err(error) => return Err(again(error)),
        };
        // Each sweep begins elsewhere: what is read again and again, for whatever reason, keeps no
        // other from being read.
        let first = first_of(open.len(), at);
        open.rotate_left(first);
        let keys: Vec<Key> = open.iter().map(|open| change::told_key(&open.change.key)).collect();
        let mut known = Vec::with_capacity(keys.len());
        for page in keys.chunks(100) {
            known.extend(self.ports.records.get(page).await?);
        }
        let told = known.into_iter().map(|record| {
            let record = record?;
            Some((decode_foreign::<Told>(&record)?, record.revision))
        });
        let listed: Vec<(OpenChange, Option<(Told, u64)>)> = open.into_iter().zip(told).collect();
        let known_open = tenants.found.get(&open_key).and_then(decode_foreign).unwrap_or_default();
        let asks = self.asks(event, &tenants).await?;
        self.find_over(event, &listed, (known_open, &asks), at, effects).await?;
        let (mut gaps, mut reads) = (0, Reads::default());
        for (open, told) in listed {
            // What has no place in one commit the next sweep finds.
            if effects.is_full() {
                break;
            }
            let taken_back = told.as_ref().map_or(0, |(told, _)| told.taken_back());
            for gap in self.gaps(&open, told, &asks, &mut reads, effects).await? {
                let is_heeded = match gap.heeded {
                    Heeded::Always => true,
                    Heeded::WithAWord => heeds(&tenants, &gap.event(event)),
                    Heeded::ByATrigger => is_awaited_of_us(&tenants, &gap.event(event)),
                };
                if !is_heeded {
                    continue;
                }
                if gaps == GAPS_MAX {
                    return Ok(Ok(()));
                }
                gaps += 1;
                self.mend(event, &open.change, gap, taken_back, at, effects).await?;
            }
        }
        Ok(Ok(()))
    }

    /// Returns what is to be looked for at a forge. Statuses only where a pipeline that is live
    /// heeds any: what a configuration that is on its way has a word for is found by the sweep
    /// after it.
    async fn asks(&self, event: &ForgeEvent, known: &Known) -> Result<Asks, LookError> {
        let mut pipelines =
            known.tenants.iter().flat_map(|concerned| concerned.live.layout.pipelines());
        let statuses =
            pipelines.any(|pipeline| filter::heeds_statuses(pipeline, &event.connection));
        let connection = self.account(&event.connection).await?;
        let is_gerrit =
            connection.as_ref().is_some_and(|connection| connection.driver == Driver::Gerrit);
        Ok(Asks { connection, is_gerrit, statuses })
    }

    /// Returns what was never told of a change: its revision, or reviews, labels and attributes of
    /// the known one.
    ///
    /// The listing alone tells of a new revision, and that a change did not move since all of it
    /// was told; only another one is read, and some for their statuses. That it was, and is whole,
    /// is noted; `told` is with the revision of its record.
    async fn gaps(
        &self,
        open: &OpenChange,
        told: Option<(Told, u64)>,
        asks: &Asks,
        reads: &mut Reads,
        effects: &mut Effects,
    ) -> Result<Vec<Gap>, LookError> {
        let change = &open.change;
        let Some((mut told, revision)) = told else {
            return Ok(vec![Gap::revision(change, "opened")]);
        };
        if !told.contains(&told::revision_of(change)) {
            return Ok(vec![Gap::revision(change, "changed")]);
        }
        if !reads.may_read(told.whole_at == Some(open.updated_at), asks) {
            return Ok(Vec::new());
        }
        let now = match self.forge(&change.key.connection)?.read_change(&change.key).await {
            Ok(facts) => facts,
            Err(error) if error.verdict() == Verdict::Final => return Ok(Vec::new()),
            Err(error) => return Err(again(error)),
        };
        if !told.contains(&told::revision(&now)) {
            return Ok(vec![Gap::revision(change, "changed")]);
        }
        // A review of ours is told of by nobody, since its webhook ends as an echo; made up for, it
        // would start what reports it again.
        let others =
            now.reviews.iter().filter(|review| !asks.may_be_own(&review.by)).cloned().collect();
        let now = ChangeFacts { reviews: others, ..now };
        let before = told.clone();
        let lost = told.lost(&now, asks);
        told.note(&now);
        if told.whole_at.is_some() && told != before {
            effects.write(change::put_told(&change.key, &told, Some(revision))?);
        }
        let reviews = now.reviews.iter().filter(|review| !told.contains(&told::review(review)));
        let labels = now.labels.iter().filter(|label| !told.contains(&told::label(label)));
        let mut gaps: Vec<Gap> = reviews.map(|review| Gap::review(change, review)).collect();
        gaps.extend(labels.map(|label| Gap::label(change, label, asks)));
        gaps.extend(lost.iter().map(|lost| Gap::attribute(&now, lost, asks)));
        let is_reopened = now.status == ChangeStatus::Open && told.is_over();
        gaps.extend(is_reopened.then(|| Gap::reopened(change, asks)));
        Ok(gaps)
    }

    /// Stores a delivery of ours for what a forge never told. One is under way at a time; that one
    /// has ended and the thing is missing still says that whoever was to tell it was not shown it,
    /// so that it is told once more. What is told and shown is missing no more.
    pub(crate) async fn mend(
        &self,
        event: &ForgeEvent,
        change: &ChangeRef,
        gap: Gap,
        taken_back: u64,
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let name = format!(
            "sweep:{}:{}:{}:{}:{taken_back}",
            change.key, change.branch, change.head, gap.mark
        );
        for time in 1..=TIMES_MAX {
            let found = Delivery {
                connection: event.connection.clone(),
                forge_id: if time == 1 { name.clone() } else { format!("{name}:{time}") },
                event_name: MADE_UP.to_owned(),
                received_at: at,
                event: Some(gap.event(event)),
                state: DeliveryState::Accepted,
            };
            // Events of one project are handled one at a time, so nobody stores it between this
            // look and the commit.
            let stored =
                get(&self.ports, &delivery::key(&delivery::id(&found.connection, &found.forge_id)))
                    .await?;
            let Some(stored) = stored else {
                effects.tell(format!(
                    "{change}: its forge never told of \u{201c}{}\u{201d}",
                    gap.mark
                ));
                effects.deliver(&found)?;
                return Ok(());
            };
            if decode_foreign::<Delivery>(&stored).is_some_and(|stored| !stored.state.is_final()) {
                return Ok(());
            }
        }
        tracing::warn!(%change, what = gap.mark, "what was made up for is not shown to whoever tells it; it is given up");
        Ok(())
    }
}

/// Returns with which of so many changes a sweep of this time begins.
pub(crate) fn first_of(count: usize, at: Timestamp) -> usize {
    let name = digest(&["sweep", &at.0.to_string()]);
    let number =
        name.get(..8).and_then(|digits| usize::from_str_radix(digits, 16).ok()).unwrap_or_default();
    number.checked_rem(count).unwrap_or_default()
}

/// Changes that one sweep has read.
#[derive(Default)]
struct Reads {
    moved: usize,
    for_statuses: usize,
}

impl Reads {
    /// Returns whether one more may be read, and counts it. One that is whole is read for its
    /// statuses alone.
    fn may_read(&mut self, is_whole: bool, asks: &Asks) -> bool {
        let (count, most) = match is_whole {
            true => (&mut self.for_statuses, if asks.statuses { STATUS_READS_MAX } else { 0 }),
            false => (&mut self.moved, READS_MAX),
        };
        *count += usize::from(*count <= most);
        *count <= most
    }
}

/// Something that a forge did not tell.
pub(crate) struct Gap {
    kind: EventKind,
    sender: String,
    mark: String,
    /// Whether it is told only where some pipeline heeds it.
    heeded: Heeded,
}

/// Which pipelines have something told that a forge did not tell.
#[derive(Clone, Copy)]
enum Heeded {
    /// All.
    Always,
    /// Those with a word for it: it is a status or a check run.
    WithAWord,
    /// Those with a trigger for it: it is a status or vote of our own.
    ByATrigger,
}

impl Gap {
    /// Returns the event that tells of it, in the place of the one by which it was found.
    fn event(&self, found_by: &ForgeEvent) -> ForgeEvent {
        ForgeEvent { kind: self.kind.clone(), sender: self.sender.clone(), ..found_by.clone() }
    }

    /// A revision came: `opened` or `changed`.
    pub(crate) fn revision(change: &ChangeRef, action: &'static str) -> Self {
        let kind = kind(change, "pull_request", action, None, None);
        Self { kind, sender: String::new(), mark: action.to_owned(), heeded: Heeded::Always }
    }

    fn review(change: &ChangeRef, review: &Review) -> Self {
        let action = if review.state == ReviewState::Dismissed { "dismissed" } else { "submitted" };
        let state = Some(told::word(review.state).to_owned());
        let kind = kind(change, "pull_request_review", action, state, None);
        Self { kind, sender: review.by.clone(), mark: told::review(review), heeded: Heeded::Always }
    }

    fn label(change: &ChangeRef, label: &str, asks: &Asks) -> Self {
        let added = vec![label.to_owned()];
        let (number, r#type) =
            (change.key.number().unwrap_or_default(), "hashtags-changed".to_owned());
        let kind = match asks.is_gerrit {
            true => {
                EventKind::Gerrit(GerritEvent { number, r#type, added, ..GerritEvent::default() })
            }
            false => kind(change, "pull_request", "labeled", None, Some(label.to_owned())),
        };
        Self { kind, sender: String::new(), mark: told::label(label), heeded: Heeded::Always }
    }

    /// It was closed or merged, as this mark says.
    pub(crate) fn over(facts: &ChangeFacts, end: &'static str, asks: &Asks) -> Self {
        let word =
            if facts.status == ChangeStatus::Merged { "change-merged" } else { "change-abandoned" };
        Self::turned(&facts.change, ("closed", word), end, asks)
    }

    /// It was opened again.
    fn reopened(change: &ChangeRef, asks: &Asks) -> Self {
        Self::turned(change, ("reopened", "change-restored"), "reopened", asks)
    }

    /// It is over or open again, in GitHub's word and in Gerrit's.
    fn turned(change: &ChangeRef, (action, word): (&str, &str), mark: &str, asks: &Asks) -> Self {
        let number = change.key.number().unwrap_or_default();
        let kind = match asks.is_gerrit {
            true => EventKind::Gerrit(GerritEvent {
                number,
                r#type: word.to_owned(),
                ..GerritEvent::default()
            }),
            false => kind(change, "pull_request", action, None, None),
        };
        Self { kind, sender: String::new(), mark: mark.to_owned(), heeded: Heeded::Always }
    }

    fn attribute(facts: &ChangeFacts, lost: &Lost, asks: &Asks) -> Self {
        let number = facts.change.key.number().unwrap_or_default();
        let heeded = match lost {
            _ if asks.is_own(lost.by()) => Heeded::ByATrigger,
            Lost::Status(_) => Heeded::WithAWord,
            _ => Heeded::Always,
        };
        Self {
            kind: lost.kind(number, asks.is_gerrit),
            sender: lost.by().to_owned(),
            mark: lost.mark(facts),
            heeded,
        }
    }
}

/// Returns whether a tenant may have the project by the connection that is to be asked, or that
/// tells of it. Several may lead to its host: what is found by one that nobody has it by would be
/// for nobody.
pub(crate) fn may_be_known_by(known: &Known, event: &ForgeEvent) -> bool {
    known.tenants.is_empty()
        || !known.damaged.is_empty()
        || known.tenants.iter().any(|concerned| is_by(concerned, event))
}

/// Returns whether a tenant has the project by the connection that an event came by; one whose live
/// layout has none may be about to.
pub(crate) fn is_by(concerned: &Concerned, event: &ForgeEvent) -> bool {
    let project = concerned.live.layout.tenant().project(&event.project);
    project.is_none_or(|project| project.connection == event.connection)
}

fn kind(
    change: &ChangeRef,
    event: &str,
    action: &str,
    state: Option<String>,
    label: Option<String>,
) -> EventKind {
    let number = change.key.number().unwrap_or_default();
    let (event, action) = (event.to_owned(), action.to_owned());
    EventKind::Change { number, event, action, comment: None, label, state, status: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// C5: whichever changes a sweep gets to, later ones get to the others.
    #[test]
    fn sweeps_begin_at_different_changes() {
        let at = |number: u64| Timestamp(1_800_000_000_000 + number * 600_000);
        let firsts: BTreeSet<usize> = (0..400).map(|number| first_of(50, at(number))).collect();
        assert_eq!(firsts.len(), 50);
        assert_eq!((first_of(0, at(1)), first_of(1, at(1))), (0, 0));
    }
}
