//! The sweep: open changes that no webhook told of, or told of too early, become deliveries of ours. What else a forge may have
//! failed to tell is in [`crate::lost`].

use crate::deliver::Effects;
use crate::told::{self, Told};
use crate::{Intake, again};
use sluice_forge::Verdict;
use sluice_model::Timestamp;
use sluice_model::change::{ChangeRef, OpenChange, Review, ReviewState};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::id::digest;
use sluice_records::change;
use sluice_records::codec::{decode_foreign, get};
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Key;

/// Changes that one sweep reads from the forge; the next one reads others, since those are compared by then.
const READS_MAX: usize = 20;

/// Gaps that one sweep mends; the next one goes on.
const GAPS_MAX: usize = 40;

impl Intake {
    /// Compares a project's branches and open changes with what is known here. The inner error is final.
    pub(crate) async fn swept(
        &self,
        event: &ForgeEvent,
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<Result<(), String>, LookError> {
        self.find_webhooks(event, self.ports.clock.now(), effects).await?;
        self.find_pushes(event, at, effects).await?;
        let mut open = match self.forge(&event.connection)?.open_changes(&event.project).await {
            Ok(open) => open,
            Err(error) if error.verdict() == Verdict::Final => return Ok(Err(error.to_string())),
            Err(error) => return Err(again(error)),
        };
        // Each sweep begins elsewhere: what is read again and again, for whatever reason, keeps no other from being read.
        let first = first_of(open.len(), at);
        open.rotate_left(first);
        let keys: Vec<Key> = open.iter().map(|open| change::told_key(&open.change.key)).collect();
        let mut known = Vec::with_capacity(keys.len());
        for page in keys.chunks(100) {
            known.extend(self.ports.records.get(page).await?);
        }
        let (mut gaps, mut reads) = (0, 0);
        for (open, record) in open.iter().zip(known) {
            let told = record.as_ref().and_then(|record| Some((decode_foreign::<Told>(record)?, record.revision)));
            let taken_back = told.as_ref().map_or(0, |(told, _)| told.taken_back());
            for gap in self.gaps(open, told, &mut reads, effects).await? {
                if gaps == GAPS_MAX {
                    return Ok(Ok(()));
                }
                gaps += 1;
                self.mend(event, &open.change, gap, taken_back, at, effects).await?;
            }
        }
        Ok(Ok(()))
    }

    /// Returns what was never told of a change: its revision, or reviews and labels of the known one.
    ///
    /// The listing alone tells of a new revision, and that a change did not move since all of it was told; only another one is
    /// read. That it was, and is whole, is noted; `told` is with the revision of its record.
    async fn gaps(
        &self,
        open: &OpenChange,
        told: Option<(Told, u64)>,
        reads: &mut usize,
        effects: &mut Effects,
    ) -> Result<Vec<Gap>, LookError> {
        let change = &open.change;
        let Some((mut told, revision)) = told else { return Ok(vec![Gap::revision("opened")]) };
        if !told.contains(&told::revision_of(change)) {
            return Ok(vec![Gap::revision("changed")]);
        }
        if told.whole_at == Some(open.updated_at) || *reads == READS_MAX {
            return Ok(Vec::new());
        }
        *reads += 1;
        let now = match self.forge(&change.key.connection)?.read_change(&change.key).await {
            Ok(facts) => facts,
            Err(error) if error.verdict() == Verdict::Final => return Ok(Vec::new()),
            Err(error) => return Err(again(error)),
        };
        if !told.contains(&told::revision(&now)) {
            return Ok(vec![Gap::revision("changed")]);
        }
        told.note(&now);
        if told.whole_at.is_some() {
            effects.write(change::put_told(&change.key, &told, Some(revision))?);
            return Ok(Vec::new());
        }
        let reviews = now.reviews.iter().filter(|review| !told.contains(&told::review(review))).map(Gap::review);
        let labels =
            now.labels.iter().filter(|label| !told.contains(&told::label(label))).map(|label| Gap::label(label));
        Ok(reviews.chain(labels).collect())
    }

    /// Stores a delivery of ours for what a forge never told; once for each thing, since nothing is told twice by mending.
    pub(crate) async fn mend(
        &self,
        event: &ForgeEvent,
        change: &ChangeRef,
        gap: Gap,
        taken_back: u64,
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let Some(number) = change.key.number() else { return Ok(()) };
        let kind = EventKind::Change {
            number,
            event: gap.event.to_owned(),
            action: gap.action.to_owned(),
            comment: None,
            label: gap.label,
            state: gap.state,
            status: None,
        };
        let found = Delivery {
            connection: event.connection.clone(),
            forge_id: format!("sweep:{}:{}:{}:{}:{taken_back}", change.key, change.branch, change.head, gap.mark),
            event_name: "sweep".to_owned(),
            received_at: at,
            event: Some(ForgeEvent { kind, sender: gap.sender, ..event.clone() }),
            state: DeliveryState::Accepted,
        };
        let id = delivery::id(&found.connection, &found.forge_id);
        // Events of one project are handled one at a time, so nobody stores it between this look and the commit.
        if get(&self.ports, &delivery::key(&id)).await?.is_some() {
            return Ok(());
        }
        effects.tell(format!("{change}: its forge never told of \u{201c}{}\u{201d}", gap.mark));
        effects.deliver(&found)?;
        Ok(())
    }
}

/// Returns with which of so many changes a sweep of this time begins.
fn first_of(count: usize, at: Timestamp) -> usize {
    let name = digest(&["sweep", &at.0.to_string()]);
    let number = name.get(..8).and_then(|digits| usize::from_str_radix(digits, 16).ok()).unwrap_or_default();
    number.checked_rem(count).unwrap_or_default()
}

/// Something that a forge did not tell.
pub(crate) struct Gap {
    event: &'static str,
    action: &'static str,
    sender: String,
    state: Option<String>,
    label: Option<String>,
    mark: String,
}

impl Gap {
    /// A revision came: `opened` or `changed`.
    pub(crate) fn revision(action: &'static str) -> Self {
        Self { event: "pull_request", action, sender: String::new(), state: None, label: None, mark: action.to_owned() }
    }

    fn review(review: &Review) -> Self {
        let action = if review.state == ReviewState::Dismissed { "dismissed" } else { "submitted" };
        let state = Some(told::word(review.state).to_owned());
        Self {
            event: "pull_request_review",
            action,
            sender: review.by.clone(),
            state,
            label: None,
            mark: told::review(review),
        }
    }

    fn label(label: &str) -> Self {
        Self {
            event: "pull_request",
            action: "labeled",
            sender: String::new(),
            state: None,
            label: Some(label.to_owned()),
            mark: told::label(label),
        }
    }
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
