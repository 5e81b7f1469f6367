//! Leases: who works on something that outlives a step, until when, and the fence that each later write must show.

use serde::{Deserialize, Serialize};
use sluice_model::{SessionId, Timestamp};

/// A lease as it lies in the record it guards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it.
    pub owner: SessionId,
    /// Grows at every claim; whoever holds a higher one is newer.
    pub fence: u64,
    /// After this it may be taken over. It serves liveness alone: the fence is what protects.
    pub deadline: Timestamp,
}

/// Why a lease could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{owner} holds it until {}", .until.to_iso())]
pub struct Held {
    /// Who holds it.
    pub owner: SessionId,
    /// Until when.
    pub until: Timestamp,
}

/// Returns the lease that `owner` gets, given the one found.
///
/// # Errors
/// [`Held`] when somebody else's has not run out.
pub fn claim(found: Option<&Lease>, owner: &SessionId, now: Timestamp, seconds: u64) -> Result<Lease, Held> {
    match found {
        Some(lease) if lease.owner != *owner && lease.deadline > now => {
            Err(Held { owner: lease.owner.clone(), until: lease.deadline })
        }
        found => Ok(Lease {
            owner: owner.clone(),
            fence: found.map_or(1, |lease| lease.fence + 1),
            deadline: now.plus_seconds(seconds),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z7.3
    #[test]
    fn each_claim_has_a_higher_fence_and_a_live_one_is_not_taken() {
        let (one, two) = (SessionId::from("one"), SessionId::from("two"));
        let first = claim(None, &one, Timestamp(0), 10).unwrap();
        assert_eq!(first.fence, 1);
        assert_eq!(claim(Some(&first), &two, Timestamp(9_999), 10).unwrap_err().owner, one);
        assert_eq!(claim(Some(&first), &two, Timestamp(10_000), 10).unwrap().fence, 2);
        assert_eq!(
            claim(Some(&first), &one, Timestamp(1), 10).unwrap().fence,
            2,
            "a restart of the owner is newer than itself"
        );
    }
}
