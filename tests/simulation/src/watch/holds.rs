//! Held nodes: only of matching failed builds, no more than requested, and each counted when it is
//! held.

use super::Watch;
use sluice_gate::autohold::Autohold;
use sluice_model::build::{BuildResult, Order};
use sluice_model::{BuildId, JobName, ProjectName};
use sluice_pool::{NodeState, PoolNode};
use sluice_records::autohold;
use sluice_records::codec::decode;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// Autohold requests and what they hold.
#[derive(Default)]
pub(super) struct Holds {
    /// The requests.
    requests: BTreeMap<Key, Autohold>,
    /// The job and project of each build.
    builds: BTreeMap<BuildId, (JobName, ProjectName)>,
    /// Builds that passed.
    passed: BTreeSet<BuildId>,
    /// Held nodes.
    held_nodes: BTreeSet<Key>,
}

impl Holds {
    /// Records an ordered build.
    pub(super) fn record_order(&mut self, order: &Order) {
        self.builds
            .insert(order.build.clone(), (order.job.clone(), order.change.key.project.clone()));
    }

    /// Records the end of a build.
    pub(super) fn record_end(&mut self, build: &BuildId, result: BuildResult) {
        if result.passed() {
            self.passed.insert(build.clone());
        }
    }

    /// Checks the builds that an autohold request holds.
    pub(super) fn check_request(
        &mut self,
        key: &Key,
        request: Option<Autohold>,
    ) -> Result<(), String> {
        let Some(request) = request else {
            self.requests.remove(key);
            return Ok(());
        };
        let builds: BTreeSet<&BuildId> = request.held.iter().map(|held| &held.build).collect();
        if request.held.len() > request.max_count as usize || builds.len() < request.held.len() {
            return Err(format!(
                "nodes of {:?} are held, but the request allows {}",
                request.held, request.max_count
            ));
        }
        for build in builds {
            if self.passed.contains(build) {
                return Err(format!("it holds nodes of build {build}, which passed"));
            }
            let is_meant = |(job, project): &(JobName, ProjectName)| {
                *job == request.job && *project == request.project
            };
            if !self.builds.get(build).is_some_and(is_meant) {
                return Err(format!(
                    "it holds nodes of build {build}, but requests {} of {}",
                    request.job, request.project
                ));
            }
        }
        self.requests.insert(key.clone(), request);
        Ok(())
    }
}

impl Watch {
    /// Checks that a newly held node is counted by its request in the same transaction.
    pub(super) fn check_autohold_count(
        &mut self,
        key: &Key,
        record: Option<&Record>,
    ) -> Result<(), String> {
        let node = record.map(decode::<PoolNode>).transpose().map_err(|bad| bad.to_string())?;
        let Some((id, hold)) = node.and_then(|node| match node.state {
            NodeState::Hold { hold, .. } => Some((node.id, hold)),
            _ => None,
        }) else {
            self.holds.held_nodes.remove(key);
            return Ok(());
        };
        if !self.holds.held_nodes.insert(key.clone()) {
            return Ok(());
        }
        let request = hold.and_then(|hold| {
            self.holds.requests.get(&autohold::key(&hold.tenant, hold.id.as_ref()?))
        });
        let mut held = request.into_iter().flat_map(|request| &request.held);
        if held.any(|held| held.nodes.contains(&id)) {
            return Ok(());
        }
        Err("a node is held without being counted by a request".to_owned())
    }
}
