//! Limits the total size of the merged definitions of an item's jobs.
//!
//! Each definition is copied into every job that inherits it. Without a limit, a short file with
//! many jobs below one long parent would fill memory.

use crate::objects::JobStanza;
use serde_json::{Map, Value as Json};
use std::cell::Cell;

/// Maximum weight of all applied definitions of an item's jobs, in approximate bytes. The largest
/// real projects need a hundredth of it.
const WEIGHT_MAX: usize = 64 << 20;
/// The weight of an empty definition: the record of its origin, and an implied playbook.
const DEFINITION: usize = 256;
/// The weight of a list member.
const MEMBER: usize = 64;

/// The weight that may still be used.
pub(super) struct Budget(Cell<usize>);

impl Budget {
    /// Returns the unused budget of one item: 64 MiB of weight.
    pub(super) fn whole() -> Self {
        Self(Cell::new(WEIGHT_MAX))
    }

    /// Uses up some weight, in approximate bytes. If less is left, nothing is left afterwards, and
    /// the error is the message for the job.
    pub(super) fn take(&self, weight: usize) -> Result<(), String> {
        let left = self.0.get().checked_sub(weight);
        self.0.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or_else(|| {
            format!(
                "The merged job definitions exceed {} MiB for one change; list fewer jobs or \
                     let them inherit less",
                WEIGHT_MAX >> 20
            )
        })
    }

    /// Returns whether no weight is left, as after a failed [`Self::take`].
    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}

/// Returns the weight of a definition's lists and variables, in approximate bytes, with a fixed
/// amount for the definition itself. Not counted are its nodesets, and its playbooks with the
/// secrets and roles that they see: the caller counts these when they are applied.
pub(super) fn of_definition(job: &JobStanza) -> usize {
    let run_time = &job.run_time;
    let members = [
        job.requires.as_ref().map_or(0, |list| list.value.len()),
        job.provides.as_ref().map_or(0, |list| list.value.len()),
        job.tags.as_ref().map_or(0, |list| list.value.len()),
        job.files.as_ref().map_or(0, |list| list.value.len()),
        job.irrelevant_files.as_ref().map_or(0, |list| list.value.len()),
        job.dependencies.as_ref().map_or(0, |list| list.value.len()),
        job.required_projects.as_ref().map_or(0, |list| list.value.len()),
        job.semaphores.as_ref().map_or(0, Vec::len),
        job.secrets.as_ref().map_or(0, Vec::len),
        job.roles.as_ref().map_or(0, Vec::len),
        job.allowed_projects.as_ref().map_or(0, Vec::len),
        run_time.failure_output.as_ref().map_or(0, |list| list.value.len()),
        run_time.include_projects.as_ref().map_or(0, |list| list.value.len()),
        run_time.exclude_projects.as_ref().map_or(0, |list| list.value.len()),
        run_time.include_vars.as_ref().map_or(0, |list| list.value.len()),
    ];
    let variables = [&job.vars, &job.extra_vars]
        .into_iter()
        .flatten()
        .map(|map| of_map(&map.value))
        .sum::<usize>();
    let by_name = [&job.host_vars, &job.group_vars]
        .into_iter()
        .flatten()
        .flat_map(|by_name| by_name.value.values());
    DEFINITION
        + MEMBER * members.iter().sum::<usize>()
        + variables
        + by_name.map(|map| MEMBER + of_map(map)).sum::<usize>()
}

/// Returns the weight of a list with `count` members, in approximate bytes, without what the
/// members contain.
pub(super) fn of_members(count: usize) -> usize {
    MEMBER * count
}

/// Returns the weight of a mapping, in approximate bytes: its names and, at every depth, its
/// values.
pub(crate) fn of_map(map: &Map<String, Json>) -> usize {
    map.iter().map(|(name, value)| name.len() + of_value(value)).sum()
}

/// Returns the weight of a value with all that it contains, in approximate bytes.
pub(super) fn of_value(value: &Json) -> usize {
    MEMBER
        + match value {
            Json::Object(map) => of_map(map),
            Json::Array(list) => list.iter().map(of_value).sum(),
            Json::String(text) => text.len(),
            _ => 0,
        }
}
