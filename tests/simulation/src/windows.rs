//! Windows: the drawn settings of the number of changes that a queue processes at once, and the
//! size that must follow from the results of changes.

use crate::random::Random;
use std::collections::BTreeSet;

/// The window settings of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The initial size; 0 for no limit.
    pub initial: u32,
    /// The smallest size.
    floor: u32,
    /// The largest size, if there is one.
    ceiling: Option<u32>,
    /// How a success increases it.
    grows: Step,
    /// How a failure decreases it.
    shrinks: Step,
}

/// How much a window changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Linear: by adding or subtracting a number.
    By(u32),
    /// Exponential: by multiplying or dividing by a number.
    Times(u32),
}

impl Window {
    /// The settings of a pipeline without a limit.
    pub const NONE: Self =
        Self { initial: 0, floor: 1, ceiling: None, grows: Step::By(1), shrinks: Step::Times(2) };
    /// The settings of a pipeline that processes one change at a time.
    pub const ONE: Self = Self {
        initial: 1,
        floor: 1,
        ceiling: Some(1),
        grows: Step::By(1),
        shrinks: Step::Times(2),
    };
    /// The default settings of a dependent pipeline.
    pub const GATE: Self =
        Self { initial: 20, floor: 3, ceiling: None, grows: Step::By(1), shrinks: Step::Times(2) };

    /// Draws settings with a small window, so that it has an effect.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 10);
        let initial = small(&mut random, 1, 4);
        let floor = small(&mut random, 1, initial);
        let ceiling = random.per_mille(600).then(|| initial + small(&mut random, 0, 3));
        let mut step = || match random.per_mille(500) {
            true => Step::By(small(&mut random, 1, 2)),
            false => Step::Times(small(&mut random, 2, 3)),
        };
        Self { initial, floor, ceiling, grows: step(), shrinks: step() }
    }

    /// Returns the settings as configuration lines, indented as attributes of a pipeline.
    pub fn yaml(&self) -> String {
        let step = |step| match step {
            Step::By(by) => ("linear", by),
            Step::Times(times) => ("exponential", times),
        };
        let ((grows, more), (shrinks, less)) = (step(self.grows), step(self.shrinks));
        let ceiling = self
            .ceiling
            .map(|ceiling| format!("    window-ceiling: {ceiling}\n"))
            .unwrap_or_default();
        format!(
            "    window: {}\n    window-floor: {}\n{ceiling}    window-increase-type: {grows}\n    window-increase-factor: {more}\n    window-decrease-type: {shrinks}\n    window-decrease-factor: {less}\n",
            self.initial, self.floor
        )
    }

    /// Returns the possible sizes of a window after some results in any order, given its possible
    /// sizes before. Each result is a set of alternatives, of which any one may have counted: the
    /// members of a bundle leave together.
    pub fn after(&self, sizes: BTreeSet<u32>, results: &[BTreeSet<String>]) -> BTreeSet<u32> {
        if self.initial == 0 || results.is_empty() {
            return sizes;
        }
        let mut after = BTreeSet::new();
        for at in (0..results.len()).filter(|at| !results[..*at].contains(&results[*at])) {
            let mut rest = results.to_vec();
            let one = rest.swap_remove(at);
            let next = sizes
                .iter()
                .flat_map(|size| one.iter().map(|result| self.after_one(*size, result)));
            after.extend(self.after(next.collect(), &rest));
        }
        after
    }

    /// Returns the size of a window after one result.
    fn after_one(&self, size: u32, result: &str) -> u32 {
        match (result, self.grows, self.shrinks) {
            ("SUCCESS", Step::By(by), _) => self.ceiling.unwrap_or(u32::MAX).min(size + by),
            ("SUCCESS", Step::Times(times), _) => {
                self.ceiling.unwrap_or(u32::MAX).min(size * times)
            }
            // A dequeued change, and one that passed but was not merged, does not count as a
            // success or a failure of jobs.
            ("DEQUEUED" | "MERGE_FAILURE", ..) => size,
            (_, _, Step::By(by)) => self.floor.max(size.saturating_sub(by)),
            (_, _, Step::Times(times)) => self.floor.max(size / times),
        }
    }
}

/// Draws a number between `first` and `last`, both included.
fn small(random: &mut Random, first: u32, last: u32) -> u32 {
    u32::try_from(random.between(u64::from(first), u64::from(last))).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G16: the rule by which the watch checks windows.
    #[test]
    fn a_window_stays_within_its_bounds_in_any_order_of_results() {
        let grows = Window {
            initial: 2,
            floor: 1,
            ceiling: Some(4),
            grows: Step::Times(3),
            shrinks: Step::By(1),
        };
        let one = |result: &str| BTreeSet::from([result.to_owned()]);
        let after = |results: &[BTreeSet<String>]| grows.after(BTreeSet::from([2]), results);
        assert_eq!(after(&[]), BTreeSet::from([2]));
        assert_eq!(after(&[one("SUCCESS")]), BTreeSet::from([4]));
        assert_eq!(after(&[one("MERGE_CONFLICT")]), BTreeSet::from([1]));
        for (result, size) in [
            ("FAILURE", 1),
            ("CONFIG_ERROR", 1),
            ("NO_JOBS", 1),
            ("DEQUEUED", 2),
            ("MERGE_FAILURE", 2),
        ] {
            assert_eq!(after(&[one(result)]), BTreeSet::from([size]), "{result}");
        }
        // Grown first it is 3 afterwards, as 3 times 2 is over the ceiling; shrunk first it is 3
        // times 1.
        assert_eq!(after(&[one("SUCCESS"), one("FAILURE")]), BTreeSet::from([3]));
        assert_eq!(
            after(&[one("FAILURE"), one("FAILURE"), one("SUCCESS")]),
            BTreeSet::from([2, 3])
        );
    }
}
