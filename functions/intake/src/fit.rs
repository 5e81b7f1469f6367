//! Has what arrives at a queue fit into records: changes that need each other arrive together, all
//! others may come one after the other; what is said of changes is shortened before anything is
//! refused.

use sluice_gate::item::cut;
use sluice_gate::{Arrival, ArrivalKind, Candidate};
use sluice_model::ArrivalId;
use std::ops::Range;

/// Bytes of an arrival; its record holds 64 KB with everything around it.
const ARRIVAL_BYTES_MAX: usize = 56 << 10;

/// Bytes that are left of texts where they do not fit, of a title and of a description.
const TITLE_BYTES: usize = 80;
const MESSAGE_BYTES: usize = 400;

/// Why changes are refused that nothing makes fit.
const TOO_LARGE: &str = "it needs so many changes that need it in turn that a record cannot hold all of them; part them, or need fewer";

/// Returns an arrival as records can hold it, in the order in which it is to be taken in.
pub(crate) fn fit(arrival: &Arrival) -> Vec<Arrival> {
    let ArrivalKind::Enqueue { candidates } = &arrival.kind else { return vec![arrival.clone()] };
    if bytes(candidates) <= ARRIVAL_BYTES_MAX {
        return vec![arrival.clone()];
    }
    let mut parts: Vec<Vec<Candidate>> = vec![Vec::new()];
    for block in blocks(candidates) {
        let block = shortened(&candidates[block]);
        match parts.last_mut() {
            Some(part) if bytes(part) + bytes(&block) <= ARRIVAL_BYTES_MAX => part.extend(block),
            _ => parts.push(block),
        }
    }
    let part = |(at, candidates): (usize, Vec<Candidate>)| Arrival {
        id: if at == 0 {
            arrival.id.clone()
        } else {
            ArrivalId::derive(&[arrival.id.as_str(), &at.to_string()])
        },
        // Arrivals are taken in by their time.
        at: arrival.at.plus_millis(at as u64),
        kind: ArrivalKind::Enqueue { candidates },
        ..arrival.clone()
    };
    parts.into_iter().enumerate().map(part).collect()
}

/// Returns the shortest runs of candidates that no cycle crosses.
fn blocks(candidates: &[Candidate]) -> Vec<Range<usize>> {
    let last_of = |candidate: &Candidate| {
        candidates.iter().rposition(|other| candidate.cycle.contains(&other.change.key))
    };
    let (mut blocks, mut start, mut last) = (Vec::new(), 0, 0);
    for (at, candidate) in candidates.iter().enumerate() {
        last = last.max(last_of(candidate).unwrap_or(at));
        if at >= last {
            blocks.push(start..at + 1);
            start = at + 1;
        }
    }
    blocks
}

/// Returns candidates with less said of them as far as they do not fit: first of what they need,
/// then of themselves; those of which that is not enough are refused.
fn shortened(candidates: &[Candidate]) -> Vec<Candidate> {
    let mut block = candidates.to_vec();
    if bytes(&block) <= ARRIVAL_BYTES_MAX {
        return block;
    }
    for need in block.iter_mut().flat_map(|candidate| &mut candidate.needs) {
        (need.message, need.title) = (String::new(), cut(&need.title, TITLE_BYTES));
    }
    if bytes(&block) > ARRIVAL_BYTES_MAX {
        for candidate in &mut block {
            candidate.message = cut(&candidate.message, MESSAGE_BYTES);
        }
    }
    if bytes(&block) > ARRIVAL_BYTES_MAX {
        let refused = |candidate: &Candidate| Candidate {
            url: candidate.url.clone(),
            refused: Some(TOO_LARGE.to_owned()),
            ..Candidate::bare(&candidate.change)
        };
        block = block.iter().map(refused).collect();
    }
    block
}

fn bytes(candidates: &[Candidate]) -> usize {
    // What cannot be written at all is told by whoever writes it.
    serde_json::to_string(candidates).map_or(0, |text| text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::change::{ChangeKey, ChangeRef};
    use sluice_model::{ProjectName, Timestamp};

    fn change(number: u64) -> ChangeRef {
        let key = ChangeKey::change(
            "github".into(),
            ProjectName::new("forge.test", "org/a-project"),
            number,
        );
        let head = "0123456789abcdef0123456789abcdef01234567";
        ChangeRef { key, branch: "main".into(), head: head.into(), patchset: head.to_owned() }
    }

    /// A change of which much is said, with what it needs and with those that need each other.
    fn candidate(number: u64, needs: Range<u64>, cycle: Range<u64>) -> Candidate {
        let said = |number: u64, message: usize| Candidate {
            url: format!("https://forge.test/org/a-project/pull/{number}"),
            title: "t".repeat(300),
            message: "\"ä".repeat(message / 3),
            ..Candidate::bare(&change(number))
        };
        Candidate {
            needs: needs.filter(|need| *need != number).map(|need| said(need, 500)).collect(),
            cycle: cycle.map(|mate| change(mate).key).collect(),
            ..said(number, 4_000)
        }
    }

    fn arrival(candidates: Vec<Candidate>) -> Arrival {
        let (id, event_id) = (ArrivalId::derive(&["one"]), "event".to_owned());
        let kind = ArrivalKind::Enqueue { candidates };
        Arrival {
            id,
            at: Timestamp(1_000),
            event_id,
            layout: 1,
            by_operator: false,
            taken_up: false,
            kind,
        }
    }

    fn candidates(arrival: &Arrival) -> &[Candidate] {
        let ArrivalKind::Enqueue { candidates } = &arrival.kind else { unreachable!() };
        candidates
    }

    fn numbers(arrivals: &[Arrival]) -> Vec<u64> {
        arrivals
            .iter()
            .flat_map(candidates)
            .filter_map(|candidate| candidate.change.key.number())
            .collect()
    }

    /// Z6.5, Z6.7: what is said of ten changes that need each other is shortened, and nothing else
    /// of them is lost.
    #[test]
    fn a_cycle_with_long_descriptions_fits_into_one_arrival() {
        let whole = arrival((0..10).map(|number| candidate(number, 0..10, 0..10)).collect());
        let parts = fit(&whole);
        assert_eq!((parts.len(), numbers(&parts)), (1, (0..10).collect::<Vec<_>>()));
        assert!(serde_json::to_string(&parts[0]).unwrap().len() < 60 << 10);
        let offered = candidates(&parts[0]);
        assert!(
            offered
                .iter()
                .all(|one| one.refused.is_none() && one.needs.len() == 9 && one.cycle.len() == 10)
        );
        assert!(offered.iter().all(|one| !one.message.is_empty()));
    }

    /// Z6.5, Z6.7: a long chain comes in several arrivals, in its order, and no cycle is cut.
    #[test]
    fn a_chain_with_long_descriptions_comes_one_after_the_other() {
        let mut all: Vec<Candidate> =
            (0..20).map(|number| candidate(number, 0..number, 0..0)).collect();
        all.insert(12, candidate(30, 0..12, 30..32));
        all.insert(14, candidate(31, 0..12, 30..32));
        let before: Vec<u64> = all.iter().filter_map(|one| one.change.key.number()).collect();
        let parts = fit(&arrival(all));
        assert!(parts.len() > 1);
        assert_eq!(numbers(&parts), before);
        assert!(parts.iter().all(|part| serde_json::to_string(part).unwrap().len() < 60 << 10));
        assert!(parts.windows(2).all(|two| two[0].at < two[1].at && two[0].id != two[1].id));
        let of_cycle = |part: &&Arrival| {
            numbers(std::slice::from_ref(*part)).iter().any(|number| *number >= 30)
        };
        assert_eq!(parts.iter().filter(of_cycle).count(), 1, "a cycle arrives as a whole");
    }

    /// Z6.7: what nothing makes fit is refused, and says so.
    #[test]
    fn a_cycle_that_no_record_holds_is_refused_with_its_reason() {
        let whole = arrival((0..10).map(|number| candidate(number, 0..40, 0..10)).collect());
        let parts = fit(&whole);
        let offered = candidates(&parts[0]);
        assert!(
            offered.len() == 10
                && offered.iter().all(|one| one.refused.as_deref() == Some(TOO_LARGE))
        );
    }
}
