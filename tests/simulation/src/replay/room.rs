//! Offers for which a pipeline had no room.
//!
//! How many changes the other queues of the pipeline hold a decision reads before, and no record
//! shows what it read. So where a tenant says how many there may be it is a fact whether something
//! entered; that there was room for what did, and none for what is reported so, is judged where
//! each write is.

use super::turn::Turn;
use sluice_gate::{Candidate, InboxMessage};

impl Turn<'_> {
    /// Returns whether there was no room for what is offered, as far as it shows.
    pub(super) fn lacks_room(&self, arrival: &InboxMessage, candidates: &[&Candidate]) -> bool {
        let mut enters = candidates
            .iter()
            .map(|candidate| self.facts.after(&self.id_of(arrival, &candidate.change)).is_some());
        self.known.is_limited(&self.line.key.tenant) && !enters.any(|enters| enters)
    }
}
