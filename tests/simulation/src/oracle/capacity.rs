//! Changes that a pipeline had no capacity for.

use super::Oracle;
use sluice_model::change::ChangeKey;

impl Oracle {
    /// Records that a pipeline had no capacity for a change. The watch checks whether that was
    /// right.
    pub fn record_no_room(&mut self, change: &ChangeKey, pipeline: &str) {
        self.refused_for_capacity.insert((change.clone(), pipeline.to_owned()));
    }

    /// Returns whether a pipeline ever had no capacity for a change.
    pub fn had_no_room(&self, change: &ChangeKey, pipeline: &str) -> bool {
        self.refused_for_capacity.contains(&(change.clone(), pipeline.to_owned()))
    }
}
