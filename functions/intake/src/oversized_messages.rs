//! Splits enqueue messages that are too large for a record. The members of a bundle stay in one
//! message; all other changes may come one after the other. Descriptions are shortened before a
//! change is refused.

use sluice_gate::item::cut;
use sluice_gate::{Candidate, InboxMessage, InboxMessageKind};
use sluice_model::InboxMessageId;
use std::ops::Range;

/// The most bytes of an inbox message; its record holds 64 KB in total.
const INBOX_MESSAGE_BYTES_MAX: usize = 56 << 10;

/// The bytes to which titles and descriptions are shortened.
const TITLE_BYTES: usize = 80;
const DESCRIPTION_BYTES: usize = 400;

/// The reason with which a bundle is refused that does not fit even when shortened.
const TOO_LARGE: &str = "its bundle is too large for one record; split it, or remove dependencies";

/// Splits a message into parts that fit into records, in the order in which they are consumed. A
/// message that fits, or that enqueues nothing, stays whole. No bundle is split. The texts of a
/// bundle or single change that alone is too large are shortened; if that is not enough, its
/// changes are marked as refused.
pub(crate) fn split_message(message: &InboxMessage) -> Vec<InboxMessage> {
    let InboxMessageKind::Enqueue { candidates } = &message.kind else {
        return vec![message.clone()];
    };
    if bytes(candidates) <= INBOX_MESSAGE_BYTES_MAX {
        return vec![message.clone()];
    }
    let mut parts: Vec<Vec<Candidate>> = vec![Vec::new()];
    for block in blocks(candidates) {
        let block = shortened(&candidates[block]);
        match parts.last_mut() {
            Some(part) if bytes(part) + bytes(&block) <= INBOX_MESSAGE_BYTES_MAX => {
                part.extend(block)
            }
            _ => parts.push(block),
        }
    }
    let part = |(at, candidates): (usize, Vec<Candidate>)| InboxMessage {
        id: if at == 0 {
            message.id.clone()
        } else {
            InboxMessageId::derive(&[message.id.as_str(), &at.to_string()])
        },
        // Inbox messages are consumed by their time.
        at: message.at.plus_millis(at as u64),
        kind: InboxMessageKind::Enqueue { candidates },
        ..message.clone()
    };
    parts.into_iter().enumerate().map(part).collect()
}

/// Returns the smallest ranges of candidates that can be sent apart, because none splits a bundle.
fn blocks(candidates: &[Candidate]) -> Vec<Range<usize>> {
    let last_of = |candidate: &Candidate| {
        candidates.iter().rposition(|other| candidate.bundle.contains(&other.change.key))
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

/// Shortens the texts of one block of candidates to fit into a record: first those of their
/// dependencies, then their own. If that is not enough, all are marked as refused and keep only
/// their change and URL.
fn shortened(candidates: &[Candidate]) -> Vec<Candidate> {
    let mut block = candidates.to_vec();
    if bytes(&block) <= INBOX_MESSAGE_BYTES_MAX {
        return block;
    }
    for need in block.iter_mut().flat_map(|candidate| &mut candidate.needs) {
        (need.message, need.title) = (String::new(), cut(&need.title, TITLE_BYTES));
    }
    if bytes(&block) > INBOX_MESSAGE_BYTES_MAX {
        for candidate in &mut block {
            candidate.message = cut(&candidate.message, DESCRIPTION_BYTES);
        }
    }
    if bytes(&block) > INBOX_MESSAGE_BYTES_MAX {
        let refused = |candidate: &Candidate| Candidate {
            url: candidate.url.clone(),
            refused: Some(TOO_LARGE.to_owned()),
            ..Candidate::bare(&candidate.change)
        };
        block = block.iter().map(refused).collect();
    }
    block
}

/// Returns the size of the candidates as JSON; 0 if they cannot be serialized.
fn bytes(candidates: &[Candidate]) -> usize {
    // A candidate that cannot be serialized fails when the message is written.
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

    /// Returns a candidate with long texts, these dependencies and these bundle members.
    fn candidate(number: u64, needs: Range<u64>, cycle: Range<u64>) -> Candidate {
        let said = |number: u64, message: usize| Candidate {
            url: format!("https://forge.test/org/a-project/pull/{number}"),
            title: "t".repeat(300),
            message: "\"ä".repeat(message / 3),
            ..Candidate::bare(&change(number))
        };
        Candidate {
            needs: needs.filter(|need| *need != number).map(|need| said(need, 500)).collect(),
            bundle: cycle.map(|member| change(member).key).collect(),
            ..said(number, 4_000)
        }
    }

    fn message(candidates: Vec<Candidate>) -> InboxMessage {
        let (id, event_id) = (InboxMessageId::derive(&["one"]), "event".to_owned());
        let kind = InboxMessageKind::Enqueue { candidates };
        InboxMessage {
            id,
            at: Timestamp(1_000),
            event_id,
            layout: 1,
            by_operator: false,
            in_progress: false,
            kind,
        }
    }

    fn candidates(message: &InboxMessage) -> &[Candidate] {
        let InboxMessageKind::Enqueue { candidates } = &message.kind else { unreachable!() };
        candidates
    }

    fn numbers(message: &[InboxMessage]) -> Vec<u64> {
        message
            .iter()
            .flat_map(candidates)
            .filter_map(|candidate| candidate.change.key.number())
            .collect()
    }

    /// Z6.5, Z6.7: the descriptions of ten bundle members are shortened, and nothing else is lost.
    #[test]
    fn a_bundle_with_long_descriptions_fits_into_one_message() {
        let whole = message((0..10).map(|number| candidate(number, 0..10, 0..10)).collect());
        let parts = split_message(&whole);
        assert_eq!((parts.len(), numbers(&parts)), (1, (0..10).collect::<Vec<_>>()));
        assert!(serde_json::to_string(&parts[0]).unwrap().len() < 60 << 10);
        let offered = candidates(&parts[0]);
        assert!(
            offered
                .iter()
                .all(|one| one.refused.is_none() && one.needs.len() == 9 && one.bundle.len() == 10)
        );
        assert!(offered.iter().all(|one| !one.message.is_empty()));
    }

    /// Z6.5, Z6.7: a long chain comes in several messages, in order, and no bundle is split.
    #[test]
    fn a_chain_with_long_descriptions_is_split() {
        let mut all: Vec<Candidate> =
            (0..20).map(|number| candidate(number, 0..number, 0..0)).collect();
        all.insert(12, candidate(30, 0..12, 30..32));
        all.insert(14, candidate(31, 0..12, 30..32));
        let before: Vec<u64> = all.iter().filter_map(|one| one.change.key.number()).collect();
        let parts = split_message(&message(all));
        assert!(parts.len() > 1);
        assert_eq!(numbers(&parts), before);
        assert!(parts.iter().all(|part| serde_json::to_string(part).unwrap().len() < 60 << 10));
        assert!(parts.windows(2).all(|two| two[0].at < two[1].at && two[0].id != two[1].id));
        let of_cycle = |part: &&InboxMessage| {
            numbers(std::slice::from_ref(*part)).iter().any(|number| *number >= 30)
        };
        assert_eq!(parts.iter().filter(of_cycle).count(), 1, "a bundle is not split");
    }

    /// Z6.7: a bundle that does not fit is refused with the reason.
    #[test]
    fn a_bundle_that_no_record_holds_is_refused_with_its_reason() {
        let whole = message((0..10).map(|number| candidate(number, 0..40, 0..10)).collect());
        let parts = split_message(&whole);
        let offered = candidates(&parts[0]);
        assert!(
            offered.len() == 10
                && offered.iter().all(|one| one.refused.as_deref() == Some(TOO_LARGE))
        );
    }
}
