//! Whose turn it is to land on a branch: a record for each branch, `branch#<project>@<branch>` / `turn`.
//!
//! It is never removed while it may be remembered, so that neither its revision nor its fence begins anew.

use crate::codec::{encode_first, expiry, with_body};
use sluice_gate::{Landing, Turn};
use sluice_model::Timestamp;
use sluice_model::git::BranchKey;
use sluice_model::name::escape;
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Record, Write};

/// Returns the key of a branch's record.
pub fn key(branch: &BranchKey) -> Key {
    let name = format!("{}@{}", escape(branch.project.as_str()), escape(branch.branch.as_str()));
    Key::new(format!("branch#{name}"), "turn")
}

/// Returns the write of a branch's record on condition that it still is as it was read, `None` for never. One that nobody holds is
/// forgotten in time.
///
/// # Errors
/// When it is too large.
pub fn put(seen: Option<&Record>, turn: &Turn, now: Timestamp) -> Result<Write, PortError> {
    let (record, expect) = match seen {
        None => (encode_first(key(&turn.branch), turn)?, Expect::Absent),
        Some(seen) => {
            let record = with_body(seen.clone(), turn)?;
            (Record { revision: seen.revision + 1, ..record }, Expect::Revision(seen.revision))
        }
    };
    let expires_at = turn.is_unused().then(|| expiry(now));
    Ok(Write::Put { record: Record { fence: turn.fence, expires_at, ..record }, expect })
}

/// Returns the condition that nobody took a landing's branch since it was ordered, to go with whatever intends the merge; `None` for a
/// landing that was ordered before branches were taken.
pub fn check(landing: &Landing) -> Option<Write> {
    let key = key(&sluice_gate::turn::branch_of(&landing.change));
    landing.fence.map(|fence| Write::Check { key, expect: Expect::FenceAtMost(fence) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_runtime::record::Write::Put;

    fn branch(name: &str) -> BranchKey {
        BranchKey { project: "forge.test/org/one".into(), branch: name.into() }
    }

    /// C2: no two branches share a record, whatever they are called.
    #[test]
    fn each_branch_has_a_record_of_its_own() {
        assert_eq!(key(&branch("stable/1")).partition, "branch#forge.test%2forg%2fone@stable%2f1");
        assert_ne!(key(&branch("stable/1")), key(&branch("stable")));
    }

    /// C2: its fence is in the record's own attribute, which conditions ask; one that is held is not forgotten.
    #[test]
    fn a_branch_that_is_taken_bears_its_fence_and_stays() {
        let mut turn = Turn::new(branch("main"));
        turn.fence = 7;
        turn.waiting = vec![sluice_model::QueueKey { tenant: "t".into(), pipeline: "p".into(), queue: "q".into() }];
        let Put { record, expect } = put(None, &turn, Timestamp(5)).unwrap() else { panic!("it is put") };
        assert_eq!((record.fence, record.revision, record.expires_at, expect), (7, 1, None, Expect::Absent));
        turn.waiting.clear();
        let Put { record, expect } = put(Some(&record), &turn, Timestamp(5)).unwrap() else { panic!("it is put") };
        assert_eq!((record.fence, record.revision, expect), (7, 2, Expect::Revision(1)));
        assert!(record.expires_at.is_some());
    }
}
