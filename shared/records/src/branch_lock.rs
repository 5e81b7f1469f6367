//! Branch locks: who may move a branch, one record for each branch, `branch#<project>@<branch>` /
//! `lock`.
//!
//! The record is kept while anything may refer to it, so that its revision and its fence never
//! restart.

use crate::codec::{encode_first, expiry, with_body};
use sluice_gate::branch_lock::branch_of;
use sluice_gate::{BranchLock, Landing};
use sluice_model::Timestamp;
use sluice_model::git::BranchKey;
use sluice_model::name::escape;
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use std::collections::BTreeMap;

/// Returns the key of a branch's lock.
pub fn key(branch: &BranchKey) -> Key {
    let name = format!("{}@{}", escape(branch.project.as_str()), escape(branch.branch.as_str()));
    Key::new(format!("branch#{name}"), "lock")
}

/// Returns the write of a branch lock, conditional on the revision of `seen` (`None`: there must be
/// no record). The record carries the lock's fence, which [`checks`] compares. It expires some
/// weeks after `now` if the lock is free and no queue waits for it, otherwise never.
///
/// # Errors
/// When the record is too large.
pub fn put(seen: Option<&Record>, lock: &BranchLock, now: Timestamp) -> Result<Write, PortError> {
    let (record, expect) = match seen {
        None => (encode_first(key(&lock.branch), lock)?, Expect::Absent),
        Some(seen) => {
            let record = with_body(seen.clone(), lock)?;
            (Record { revision: seen.revision + 1, ..record }, Expect::Revision(seen.revision))
        }
    };
    let expires_at = lock.is_unused().then(|| expiry(now));
    Ok(Write::Put { record: Record { fence: lock.fence, expires_at, ..record }, expect })
}

/// Returns the branches that a landing and the later landings of its bundle merge into, with the
/// fences under which their locks were acquired. A branch with several fences has the lowest.
pub fn fences(landing: &Landing) -> BTreeMap<BranchKey, u64> {
    let others = landing.later_members.iter().map(|other| (&other.change, other.fence));
    let mut fences = BTreeMap::new();
    for (change, fence) in std::iter::once((&landing.change, landing.fence)).chain(others) {
        let lowest = fences.entry(branch_of(change)).or_insert(fence);
        *lowest = fence.min(*lowest);
    }
    fences
}

/// Returns one condition without a write for each branch: its lock has at most this fence, so no
/// other landing has acquired the lock since. A branch without a lock record meets the condition.
/// The conditions belong in every transaction that intends a merge.
pub fn checks(fences: &BTreeMap<BranchKey, u64>) -> Vec<Write> {
    let check = |(branch, fence): (&BranchKey, &u64)| Write::Check {
        key: key(branch),
        expect: Expect::FenceAtMost(*fence),
    };
    fences.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_runtime::record::Write::Put;

    fn branch(name: &str) -> BranchKey {
        BranchKey { project: "forge.test/org/one".into(), branch: name.into() }
    }

    /// C2: no two branches share a record, whatever their names.
    #[test]
    fn each_branch_has_its_own_lock() {
        assert_eq!(key(&branch("stable/1")).partition, "branch#forge.test%2forg%2fone@stable%2f1");
        assert_ne!(key(&branch("stable/1")), key(&branch("stable")));
    }

    /// C2: the fence is an attribute of the record, which conditions can test. A held lock does not
    /// expire.
    #[test]
    fn a_held_lock_stores_its_fence_and_does_not_expire() {
        let mut lock = BranchLock::new(branch("main"));
        lock.fence = 7;
        lock.waiting = vec![sluice_model::QueueKey {
            tenant: "t".into(),
            pipeline: "p".into(),
            queue: "q".into(),
        }];
        let Put { record, expect } = put(None, &lock, Timestamp(5)).unwrap() else {
            panic!("it is put")
        };
        assert_eq!(
            (record.fence, record.revision, record.expires_at, expect),
            (7, 1, None, Expect::Absent)
        );
        lock.waiting.clear();
        let Put { record, expect } = put(Some(&record), &lock, Timestamp(5)).unwrap() else {
            panic!("it is put")
        };
        assert_eq!((record.fence, record.revision, expect), (7, 2, Expect::Revision(1)));
        assert!(record.expires_at.is_some());
    }

    fn landing(fences: [u64; 3]) -> Landing {
        use sluice_gate::landing::{LandingState, LaterMember};
        use sluice_model::change::{ChangeKey, ChangeRef};
        use sluice_model::git::{Commit, LandingMethod, MergeMode};
        let change = |number: u64, branch: &str| ChangeRef {
            key: ChangeKey::change("github".into(), "forge.test/org/one".into(), number),
            branch: branch.into(),
            head: "a".into(),
            patchset: "a".to_owned(),
        };
        let commit = Commit { id: "c".into(), tree: "t".into() };
        let after = |number: u64, branch: &str, fence| LaterMember {
            item: "i".into(),
            generation: 1,
            change: change(number, branch),
            base: commit.clone(),
            configures: false,
            fence,
        };
        Landing {
            item: "i".into(),
            generation: 1,
            queue: sluice_model::QueueKey {
                tenant: "t".into(),
                pipeline: "p".into(),
                queue: "q".into(),
            },
            change: change(1, "main"),
            needs: Vec::new(),
            mode: MergeMode::Merge,
            method: LandingMethod::Merge,
            followers: Vec::new(),
            base: commit.clone(),
            tested: commit.clone(),
            changes_configuration: false,
            later_members: vec![after(2, "main", fences[1]), after(3, "stable", fences[2])],
            merged_members: Vec::new(),
            requirements: None,
            fence: fences[0],
            merge_attempted: false,
            has_unanswered_push: false,
            trouble: None,
            unverifiable_since: None,
            ordered_at: Timestamp(1),
            state: LandingState::Ordered,
        }
    }

    /// C2, Z6.5: there is one condition for each branch of a bundle, because a transaction may name
    /// a record only once.
    #[test]
    fn the_intent_of_a_bundle_checks_the_fences_of_all_its_branches() {
        let fences = fences(&landing([4, 4, 7]));
        let checked = checks(&fences).into_iter().map(|check| match check {
            Write::Check { key, expect: Expect::FenceAtMost(fence) } => (key, fence),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            checked.collect::<Vec<_>>(),
            [(key(&branch("main")), 4), (key(&branch("stable")), 7)]
        );
    }
}
