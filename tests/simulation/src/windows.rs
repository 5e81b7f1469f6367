//! Windows: how many changes a queue works on at once, as a seed has it and as it must follow from
//! how changes left.

use crate::random::Random;
use std::collections::BTreeSet;

/// What of a window a pipeline says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its size to begin with; 0 for no limit.
    pub initial: u32,
    floor: u32,
    ceiling: Option<u32>,
    grows: Step,
    shrinks: Step,
}

/// By how much a window changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    By(u32),
    Times(u32),
}

impl Window {
    /// The window of a pipeline that limits nothing.
    pub const NONE: Self =
        Self { initial: 0, floor: 1, ceiling: None, grows: Step::By(1), shrinks: Step::Times(2) };
    /// The window of a pipeline that works on one change after the other.
    pub const ONE: Self = Self {
        initial: 1,
        floor: 1,
        ceiling: Some(1),
        grows: Step::By(1),
        shrinks: Step::Times(2),
    };
    /// The window of a dependent pipeline that says nothing of it.
    pub const GATE: Self =
        Self { initial: 20, floor: 3, ceiling: None, grows: Step::By(1), shrinks: Step::Times(2) };

    /// Draws a small one, so that it matters.
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

    /// Returns it in the words of the configuration, a line each, indented as a pipeline's
    /// attributes are.
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

    /// Returns the sizes that a window may have which was one of these, after these results in
    /// whatever order. Of a result that stands for several, as of changes that left together,
    /// either may have counted.
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
    pub(crate) fn after_one(&self, size: u32, result: &str) -> u32 {
        match (result, self.grows, self.shrinks) {
            ("SUCCESS", Step::By(by), _) => self.ceiling.unwrap_or(u32::MAX).min(size + by),
            ("SUCCESS", Step::Times(times), _) => {
                self.ceiling.unwrap_or(u32::MAX).min(size * times)
            }
            // What somebody took out, and what passed and was not merged, says nothing of how
            // changes fare.
            ("DEQUEUED" | "MERGE_FAILURE", ..) => size,
            (_, _, Step::By(by)) => self.floor.max(size.saturating_sub(by)),
            (_, _, Step::Times(times)) => self.floor.max(size / times),
        }
    }
}

fn small(random: &mut Random, first: u32, last: u32) -> u32 {
    u32::try_from(random.between(u64::from(first), u64::from(last))).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G16: what the judge of windows rests on.
    #[test]
    fn a_window_moves_between_its_bounds_in_whatever_order_changes_left() {
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
