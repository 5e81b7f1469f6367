//! Offers that a decision dropped, since an operator had events discarded.
//!
//! Which word of the operator a decision knew is in no record: it reads the tenant's head before.
//! So where events of a tenant were ever discarded it is a fact whether an offer was taken in, read
//! from what came of it; that none is while everybody must know of the word is judged where each
//! write is. An offer that says that others make way for it is dropped by no one.

use super::turn::Turn;
use sluice_gate::{Candidate, InboxMessage, InboxMessageKind};
use sluice_model::ItemId;
use sluice_model::change::ChangeRef;

/// Why something leaves that an offer takes the place of, though the offer itself may not enter.
const REPLACED: [&str; 2] = ["a new revision replaces it", FOLLOWED];

/// Why something leaves that an offer has stand with others from now on, or that news of it say
/// depends on others.
const FOLLOWED: &str = "its dependencies changed";

impl Turn<'_> {
    /// Returns whether a decision did nothing with an offer that it took in, as far as it shows.
    pub(super) fn is_discarded(&self, arrival: &InboxMessage, candidates: &[Candidate]) -> bool {
        !arrival.by_operator
            && !arrival.in_progress
            && self.known.was_discarded(&self.line.key.tenant)
            && self.comes_to_nothing(arrival, candidates)
    }

    /// Returns whether nothing entered, or left for what enters, by an offer that was taken in.
    pub(super) fn comes_to_nothing(
        &self,
        arrival: &InboxMessage,
        candidates: &[Candidate],
    ) -> bool {
        let enters = |candidate: &Candidate| {
            self.facts.after(&self.id_of(arrival, &candidate.change)).is_some()
        };
        // News by which something leaves were taken in with the offer. Had that taken it out, they
        // would have found nothing.
        let has_news = |candidate: &Candidate| {
            let key = &candidate.change.key;
            let is_of_it = |kind: &InboxMessageKind| matches!(kind, InboxMessageKind::ChangeUpdated { change, .. } if change.key == *key);
            self.facts.taken.iter().any(|(_, arrival)| is_of_it(&arrival.kind))
        };
        let replaces = |candidate: &Candidate| {
            let mut left = self.facts.left.values();
            left.any(|set| {
                set.item.candidate.change.key == candidate.change.key
                    && REPLACED.iter().any(|why| set.why.starts_with(why))
                    && !(set.why.starts_with(FOLLOWED) && has_news(candidate))
            })
        };
        let moves = |candidate: &Candidate| candidate.moved_from.is_some();
        !candidates
            .iter()
            .any(|candidate| enters(candidate) || replaces(candidate) || moves(candidate))
    }

    /// Passes an offer over. One that was taken in, and is there already, shows as of when its
    /// change is known.
    pub(super) fn pass_over(&mut self, candidates: &[Candidate]) {
        for candidate in candidates {
            self.step(format!("{} is offered in vain", candidate.change));
            let facts = self.facts;
            for place in
                self.line.places.iter_mut().filter(|place| place.change.key == candidate.change.key)
            {
                if let Some(item) = facts.after(&place.id) {
                    place.as_of = place.as_of.max(candidate.as_of.min(item.candidate.as_of));
                }
            }
        }
    }

    /// Returns what the item of a change is called that enters by an arrival: no decision.
    pub(super) fn id_of(&self, arrival: &InboxMessage, change: &ChangeRef) -> ItemId {
        let (queue, own) = (self.line.key.to_string(), change.key.to_string());
        ItemId::derive(&[queue.as_str(), own.as_str(), change.head.as_str(), arrival.id.as_str()])
    }
}
