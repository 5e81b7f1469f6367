//! Lines of one text in another one: where a line of a merged file stands in the file as its author
//! wrote it.

use gix::diff::blob::{Algorithm, Hunk, InternedInput, diff_with_slider_heuristics};

/// Where the lines of one text stand in another one. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineMap {
    /// What differs, in order.
    hunks: Vec<Hunk>,
    from_lines: u32,
    to_lines: u32,
}

/// Where a line stands in the other text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// There it is.
    Same(u32),
    /// The other text does not have it; this is the line of it that is nearest.
    Nearest(u32),
}

impl LineMap {
    /// Compares two texts, whatever bytes they are made of.
    pub fn new(from: &[u8], to: &[u8]) -> Self {
        let input = InternedInput::new(from, to);
        let diff = diff_with_slider_heuristics(Algorithm::Histogram, &input);
        let count = |lines: usize| u32::try_from(lines).unwrap_or(u32::MAX);
        let (from_lines, to_lines) = (count(input.before.len()), count(input.after.len()));
        Self { hunks: diff.hunks().collect(), from_lines, to_lines }
    }

    /// Returns where a line stands; `None` where the other text has no lines. What lies behind the
    /// end is nearest to the last line.
    pub fn find(&self, line: u32) -> Option<Place> {
        let at = line.saturating_sub(1);
        if self.to_lines == 0 {
            return None;
        }
        if at >= self.from_lines {
            return Some(Place::Nearest(self.to_lines));
        }
        // The ends of the last difference before the line, in both texts.
        let (mut ends, mut begins) = (0, 0);
        for hunk in &self.hunks {
            if at < hunk.before.start {
                break;
            }
            if at < hunk.before.end {
                // Of lines that were written anew as far down; of lines that only one text has the
                // one above.
                let below = hunk.after.start + (at - hunk.before.start) + 1;
                return Some(Place::Nearest(below.min(hunk.after.end).max(1)));
            }
            (ends, begins) = (hunk.before.end, hunk.after.end);
        }
        Some(Place::Same(at - ends + begins + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::Place::{Nearest, Same};
    use super::*;

    const OWN: &str = "one\ntwo\nthree\nfour\n";

    fn places(merged: &str, own: &str, lines: &[u32]) -> Vec<Option<Place>> {
        let map = LineMap::new(merged.as_bytes(), own.as_bytes());
        lines.iter().map(|line| map.find(*line)).collect()
    }

    /// Z7.4
    #[test]
    fn lines_below_an_insertion_move_up_and_the_inserted_ones_are_nearest_to_the_one_above() {
        let found =
            places("new\nnewer\none\ntwo\nput in\nthree\nfour\n", OWN, &[1, 2, 3, 4, 5, 6, 7]);
        let wanted = [Nearest(1), Nearest(1), Same(1), Same(2), Nearest(2), Same(3), Same(4)];
        assert_eq!(found, wanted.map(Some));
    }

    /// Z7.4
    #[test]
    fn lines_below_a_deletion_move_down() {
        assert_eq!(places("one\nfour\n", OWN, &[1, 2]), [Some(Same(1)), Some(Same(4))]);
        assert_eq!(places("three\nfour\n", OWN, &[1, 2]), [Some(Same(3)), Some(Same(4))]);
    }

    /// Z7.4
    #[test]
    fn a_line_that_was_written_anew_is_nearest_to_the_one_in_its_place() {
        assert_eq!(
            places("one\ntwo\nTHREE\nfour\n", OWN, &[2, 3, 4]),
            [Same(2), Nearest(3), Same(4)].map(Some)
        );
        // Of more lines than there were before, those behind are nearest to the last one.
        let found = places("one\nTWO\nTWO\nTWO\nthree\nfour\n", OWN, &[2, 3, 4, 5]);
        assert_eq!(found, [Nearest(2), Nearest(2), Nearest(2), Same(3)].map(Some));
    }

    /// Z7.4: linters speak of the line behind the last one.
    #[test]
    fn what_lies_behind_the_end_is_nearest_to_the_last_line() {
        assert_eq!(places(OWN, OWN, &[4, 5, 900]), [Same(4), Nearest(4), Nearest(4)].map(Some));
        assert_eq!(places("one\ntwo\n", "one\ntwo", &[1, 2]), [Same(1), Nearest(2)].map(Some));
        assert_eq!(places("", OWN, &[1]), [Some(Nearest(4))]);
        assert_eq!(places(OWN, "", &[1]), [None::<Place>]);
    }
}
