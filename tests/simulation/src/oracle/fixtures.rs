//! What tests of the oracle begin with.

use super::{Oracle, Verdict};
use crate::plays::Play;
use crate::shape::{Shape, Weather};
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::{ProjectName, Timestamp};
use sluice_scenarios::repos::Tree;

/// Returns a change of a site's first project.
pub(super) fn change(number: u64) -> ChangeRef {
    let key =
        ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/t0p0"), number);
    ChangeRef { key, branch: "main".into(), head: "head".into(), patchset: String::new() }
}

/// Returns that such a change left a pipeline with success.
pub(super) fn passed(pipeline: &str, at: u64) -> Verdict {
    Verdict {
        pipeline: pipeline.to_owned(),
        head: "head".into(),
        result: "SUCCESS".to_owned(),
        left_at: Timestamp(at),
    }
}

/// Returns the oracle of a site that plays this alone in calm weather, and that was told of changes
/// 1 and 2.
pub(super) fn oracle_of(play: Play) -> Oracle {
    let shape = Shape { weather: Weather::default(), ..Shape::draw(1).playing([play].into()) };
    let mut oracle = Oracle::new(&shape);
    for number in [1, 2] {
        oracle.uploaded(&change(number), Tree::new(), Vec::new(), Timestamp(number));
    }
    oracle
}
