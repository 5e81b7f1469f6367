//! Fixtures for the tests of the oracle.

use super::{ItemOutcome, Oracle};
use crate::scenarios::Scenario;
use crate::shape::{FaultProfile, Shape};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{ProjectName, Timestamp};
use sluice_scenarios::repos::Tree;

/// Returns a change of the first project.
pub(super) fn change(number: u64) -> ChangeRef {
    let key =
        ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/t0p0"), number);
    ChangeRef { key, branch: "main".into(), head: "head".into(), patchset: String::new() }
}

/// Returns the outcome of an item that left a pipeline with success.
pub(super) fn passed(pipeline: &str, at: u64) -> ItemOutcome {
    ItemOutcome {
        pipeline: pipeline.to_owned(),
        head: "head".into(),
        result: "SUCCESS".to_owned(),
        left_at: Timestamp(at),
    }
}

/// Returns the oracle of a site with one scenario and no faults, with changes 1 and 2.
pub(super) fn oracle_of(play: Scenario) -> Oracle {
    let shape = Shape {
        fault_profile: FaultProfile::default(),
        ..Shape::draw(1).with_scenarios([play].into())
    };
    let mut oracle = Oracle::new(&shape);
    for number in [1, 2] {
        oracle.record_upload(&change(number), Tree::new(), Vec::new(), Timestamp(number));
    }
    oracle
}
