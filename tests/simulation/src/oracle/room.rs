//! What a pipeline had no room for: it came to nothing there, and whoever wants it tested offers it
//! again.

use super::Oracle;
use sluice_model::change::ChangeKey;

impl Oracle {
    /// Is told that a change was offered to a pipeline that had no room for it, which is judged
    /// where that is decided.
    pub fn has_no_room(&mut self, change: &ChangeKey, pipeline: &str) {
        self.without_room.insert((change.clone(), pipeline.to_owned()));
    }

    /// Returns whether that was ever so.
    pub fn had_no_room(&self, change: &ChangeKey, pipeline: &str) -> bool {
        self.without_room.contains(&(change.clone(), pipeline.to_owned()))
    }
}
