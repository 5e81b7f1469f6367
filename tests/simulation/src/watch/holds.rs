//! Nodes that operators want kept: of failed builds that they asked for, no more than they asked
//! for, each counted as it is kept.

use super::Watch;
use sluice_gate::autohold::Autohold;
use sluice_model::build::{BuildResult, Order};
use sluice_model::{BuildId, JobName, ProjectName};
use sluice_pool::{Node, NodeState};
use sluice_records::autohold;
use sluice_records::codec::decode;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of what operators want kept.
#[derive(Default)]
pub(super) struct Holds {
    wishes: BTreeMap<Key, Autohold>,
    /// What each build is of.
    builds: BTreeMap<BuildId, (JobName, ProjectName)>,
    /// Builds that passed.
    passed: BTreeSet<BuildId>,
    /// Nodes that are kept.
    kept: BTreeSet<Key>,
}

impl Holds {
    /// Hears that a build is ordered.
    pub(super) fn ordered(&mut self, order: &Order) {
        self.builds
            .insert(order.build.clone(), (order.job.clone(), order.change.key.project.clone()));
    }

    /// Hears that a build ended.
    pub(super) fn ended(&mut self, build: &BuildId, result: BuildResult) {
        if result.passed() {
            self.passed.insert(build.clone());
        }
    }

    /// Judges what an operator's wish has had kept by now.
    pub(super) fn written(&mut self, key: &Key, wish: Option<Autohold>) -> Result<(), String> {
        let Some(wish) = wish else {
            self.wishes.remove(key);
            return Ok(());
        };
        let builds: BTreeSet<&BuildId> = wish.held.iter().map(|held| &held.build).collect();
        if wish.held.len() > wish.max_count as usize || builds.len() < wish.held.len() {
            return Err(format!(
                "nodes of {:?} are kept, and of {} were to be",
                wish.held, wish.max_count
            ));
        }
        for build in builds {
            if self.passed.contains(build) {
                return Err(format!("it keeps nodes of build {build}, which passed"));
            }
            let is_meant = |(job, project): &(JobName, ProjectName)| {
                *job == wish.job && *project == wish.project
            };
            if !self.builds.get(build).is_some_and(is_meant) {
                return Err(format!(
                    "it keeps nodes of build {build}, and is about {} of {}",
                    wish.job, wish.project
                ));
            }
        }
        self.wishes.insert(key.clone(), wish);
        Ok(())
    }
}

impl Watch {
    /// Judges a node that is kept from now on: whoever wants it has it counted in the same
    /// decision.
    pub(super) fn is_counted(&mut self, key: &Key, record: Option<&Record>) -> Result<(), String> {
        let node = record.map(decode::<Node>).transpose().map_err(|bad| bad.to_string())?;
        let Some((id, hold)) = node.and_then(|node| match node.state {
            NodeState::Hold { hold, .. } => Some((node.id, hold)),
            _ => None,
        }) else {
            self.holds.kept.remove(key);
            return Ok(());
        };
        if !self.holds.kept.insert(key.clone()) {
            return Ok(());
        }
        let wish =
            hold.and_then(|hold| self.holds.wishes.get(&autohold::key(&hold.tenant, &hold.id)));
        let mut held = wish.into_iter().flat_map(|wish| &wish.held);
        if held.any(|held| held.nodes.contains(&id)) {
            return Ok(());
        }
        Err("it is kept, and nobody's wish counts it".to_owned())
    }
}
