//! Whose turn it is to land on a branch: a record for each branch, `branch#<project>@<branch>` /
//! `turn`.
//!
//! It is never removed while it may be remembered, so that neither its revision nor its fence
//! begins anew.

use crate::codec::{encode_first, expiry, with_body};
use sluice_gate::turn::branch_of;
use sluice_gate::{Landing, Turn};
use sluice_model::Timestamp;
use sluice_model::git::BranchKey;
use sluice_model::name::escape;
use sluice_runtime::PortError;
use sluice_runtime::record::{Expect, Key, Record, Write};
use std::collections::BTreeMap;

/// Returns the key of a branch's record.
pub fn key(branch: &BranchKey) -> Key {
    let name = format!("{}@{}", escape(branch.project.as_str()), escape(branch.branch.as_str()));
    Key::new(format!("branch#{name}"), "turn")
}

/// Returns the write of a branch's record on condition that it still is as it was read, `None` for
/// never. One that nobody holds is forgotten in time.
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

/// Returns the branches that a landing needs and those that land after it need, with the fences
/// under which they were taken; `None` where that of one is not known.
pub fn fences(landing: &Landing) -> Option<BTreeMap<BranchKey, u64>> {
    let others = landing.together.iter().map(|other| (&other.change, other.fence));
    let mut fences = BTreeMap::new();
    for (change, fence) in std::iter::once((&landing.change, landing.fence)).chain(others) {
        let fence = fence?;
        let known = fences.entry(branch_of(change)).or_insert(fence);
        *known = fence.min(*known);
    }
    Some(fences)
}

/// Returns the conditions that nobody took any of these branches since, one for each, to go with
/// whatever intends the merge.
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

    /// C2: no two branches share a record, whatever they are called.
    #[test]
    fn each_branch_has_a_record_of_its_own() {
        assert_eq!(key(&branch("stable/1")).partition, "branch#forge.test%2forg%2fone@stable%2f1");
        assert_ne!(key(&branch("stable/1")), key(&branch("stable")));
    }

    /// C2: its fence is in the record's own attribute, which conditions ask; one that is held is
    /// not forgotten.
    #[test]
    fn a_branch_that_is_taken_bears_its_fence_and_stays() {
        let mut turn = Turn::new(branch("main"));
        turn.fence = 7;
        turn.waiting = vec![sluice_model::QueueKey {
            tenant: "t".into(),
            pipeline: "p".into(),
            queue: "q".into(),
        }];
        let Put { record, expect } = put(None, &turn, Timestamp(5)).unwrap() else {
            panic!("it is put")
        };
        assert_eq!(
            (record.fence, record.revision, record.expires_at, expect),
            (7, 1, None, Expect::Absent)
        );
        turn.waiting.clear();
        let Put { record, expect } = put(Some(&record), &turn, Timestamp(5)).unwrap() else {
            panic!("it is put")
        };
        assert_eq!((record.fence, record.revision, expect), (7, 2, Expect::Revision(1)));
        assert!(record.expires_at.is_some());
    }

    fn landing(fences: [Option<u64>; 3]) -> Landing {
        use sluice_gate::landing::{LandingState, Together};
        use sluice_model::change::{ChangeKey, ChangeRef};
        use sluice_model::git::{Commit, LandingWay, MergeMode};
        let change = |number: u64, branch: &str| ChangeRef {
            key: ChangeKey::change("github".into(), "forge.test/org/one".into(), number),
            branch: branch.into(),
            head: "a".into(),
            patchset: "a".to_owned(),
        };
        let commit = Commit { id: "c".into(), tree: "t".into() };
        let after = |number: u64, branch: &str, fence| Together {
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
            way: LandingWay::Merge,
            behind: Vec::new(),
            base: commit.clone(),
            tested: commit.clone(),
            configures: false,
            together: vec![after(2, "main", fences[1]), after(3, "stable", fences[2])],
            asks: None,
            fence: fences[0],
            tried: false,
            pushed: false,
            asked_until: None,
            trouble: None,
            unread_since: None,
            wanted_at: Timestamp(1),
            state: LandingState::Wanted,
        }
    }

    /// C2, Z6.5: one condition for each branch of a bundle: a transaction names no record twice.
    #[test]
    fn the_intent_of_a_bundle_shows_the_fences_of_all_its_branches() {
        let fences = fences(&landing([Some(4), Some(4), Some(7)])).unwrap();
        let shown = checks(&fences).into_iter().map(|check| match check {
            Write::Check { key, expect: Expect::FenceAtMost(fence) } => (key, fence),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [(key(&branch("main")), 4), (key(&branch("stable")), 7)]
        );
    }

    /// C2: records of an earlier version do not say under which fence a branch was taken; whose it
    /// is then nobody can tell.
    #[test]
    fn a_landing_of_which_one_fence_is_not_known_has_none() {
        for unknown in
            [[None, Some(1), Some(1)], [Some(1), None, Some(1)], [Some(1), Some(1), None]]
        {
            assert_eq!(fences(&landing(unknown)), None);
        }
        let text = serde_json::to_string(&landing([Some(1), Some(2), None])).unwrap();
        let old: Landing =
            serde_json::from_str(&text.replace("\"fence\":2", "\"unknown\":2")).unwrap();
        assert_eq!(old.together.iter().map(|other| other.fence).collect::<Vec<_>>(), [None, None]);
    }
}
