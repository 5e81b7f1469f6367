//! Faults of the forge that can be switched on one by one, to test a gate against them.

use serde::Deserialize;
use std::sync::{Mutex, PoisonError};

/// A fault of the forge.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ForgeFault {
    /// A merge is refused (405), as by a rule of the branch.
    RefuseMerge,
    /// The mergeability of a change is not computed yet (`mergeable: null`), and a merge is refused
    /// (405).
    MergeabilityUnknown,
    /// Another commit is added to the base just before the merge, so the merge result was not
    /// tested.
    MergeSomethingElse,
    /// Another commit is pushed to a branch just before a Git push, which is then rejected because
    /// the branch has moved.
    PushBefore {
        /// The branch.
        branch: String,
    },
    /// The request is answered this much later.
    AnswerSlowly {
        /// The delay.
        milliseconds: u64,
    },
    /// The request fails with this status and has no effect.
    ServerError {
        /// 500 to 599.
        status: u16,
    },
    /// The request takes effect, but the response is 502.
    LoseAnswer,
    /// The repository does not exist (404), neither in the API nor for Git.
    RepositoryGone,
    /// The token's rate limit is exceeded (403).
    RateLimited {
        /// The value of `Retry-After`.
        retry_after_seconds: u64,
    },
    /// The token may not do this (403), whatever else it may.
    Forbidden {
        /// The error message.
        message: String,
    },
    /// Webhook bodies are this much larger.
    HugeBodies {
        /// Bytes to add; GitHub's bodies reach 25 MB.
        bytes: usize,
    },
}

/// The requests of a repository that a fault affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aim {
    /// All of them.
    Everything,
    /// All that are not GET or HEAD.
    Writes,
    /// Those whose path contains the text, for example `/merge`.
    Path(String),
}

/// How often a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The given number of times.
    Next(u32),
    /// Until faults are cleared.
    UntilCleared,
}

struct Switch {
    repository: String,
    fault: ForgeFault,
    aim: Aim,
    times: Times,
}

#[derive(Default)]
pub(crate) struct Faults {
    switches: Mutex<Vec<Switch>>,
}

impl Faults {
    /// Switches a fault on for the requests of a repository that `aim` selects, in addition to
    /// those that are on already.
    pub fn set(&self, repository: &str, fault: ForgeFault, aim: Aim, times: Times) {
        let switch = Switch { repository: repository.to_owned(), fault, aim, times };
        self.switches.lock().unwrap_or_else(PoisonError::into_inner).push(switch);
    }

    /// Switches all faults of a repository off; those of other repositories stay.
    pub fn clear(&self, repository: &str) {
        let mut switches = self.switches.lock().unwrap_or_else(PoisonError::into_inner);
        switches.retain(|switch| switch.repository != repository);
    }

    /// Returns the faults that are switched on for this repository, aim at a request of this
    /// `method` and `path` and are accepted by `wanted`, in the order in which they were switched
    /// on. Counts each as having happened once and switches it off after the last time. Empty if
    /// there are none.
    pub fn take(
        &self,
        repository: &str,
        method: &str,
        path: &str,
        wanted: impl Fn(&ForgeFault) -> bool,
    ) -> Vec<ForgeFault> {
        let mut switches = self.switches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        for switch in switches.iter_mut().filter(|switch| switch.repository == repository) {
            let is_meant = match &switch.aim {
                Aim::Everything => true,
                Aim::Writes => !matches!(method, "GET" | "HEAD"),
                Aim::Path(part) => path.contains(part),
            };
            if is_meant && wanted(&switch.fault) && switch.times != Times::Next(0) {
                taken.push(switch.fault.clone());
                if let Times::Next(left) = &mut switch.times {
                    *left -= 1;
                }
            }
        }
        switches.retain(|switch| switch.times != Times::Next(0));
        taken
    }
}
