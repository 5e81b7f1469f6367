//! Maps line numbers between two texts: from a merged file to the file as its author wrote it.

use gix::diff::blob::{Algorithm, Hunk, InternedInput, diff_with_slider_heuristics};

/// A mapping of the lines of one text to those of another. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineMap {
    /// The differences, in order.
    hunks: Vec<Hunk>,
    from_lines: u32,
    to_lines: u32,
}

/// The position of a line in the other text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinePosition {
    /// The number of the same line.
    Same(u32),
    /// The number of the nearest line; the other text does not have this line.
    Nearest(u32),
}

impl LineMap {
    /// Compares two texts, which may contain any bytes, line by line: lines of `from` are mapped to
    /// lines of `to`.
    pub fn new(from: &[u8], to: &[u8]) -> Self {
        let input = InternedInput::new(from, to);
        let diff = diff_with_slider_heuristics(Algorithm::Histogram, &input);
        let count = |lines: usize| u32::try_from(lines).unwrap_or(u32::MAX);
        let (from_lines, to_lines) = (count(input.before.len()), count(input.after.len()));
        Self { hunks: diff.hunks().collect(), from_lines, to_lines }
    }

    /// Returns the position in the other text of a line, counted from 1: `Same` for a line that the
    /// other text has, else `Nearest`. `None` when the other text is empty. A removed line is
    /// nearest to the line that replaced it or to the one above, and a line after the end to the
    /// last line.
    pub fn find(&self, line: u32) -> Option<LinePosition> {
        let at = line.saturating_sub(1);
        if self.to_lines == 0 {
            return None;
        }
        if at >= self.from_lines {
            return Some(LinePosition::Nearest(self.to_lines));
        }
        // The ends of the last difference before the line, in both texts.
        let (mut ends, mut begins) = (0, 0);
        for hunk in &self.hunks {
            if at < hunk.before.start {
                break;
            }
            if at < hunk.before.end {
                // For a replaced line, the nearest line has the same offset; for an added line, it
                // is the one above.
                let below = hunk.after.start + (at - hunk.before.start) + 1;
                return Some(LinePosition::Nearest(below.min(hunk.after.end).max(1)));
            }
            (ends, begins) = (hunk.before.end, hunk.after.end);
        }
        Some(LinePosition::Same(at - ends + begins + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::LinePosition::{Nearest, Same};
    use super::*;

    const OWN: &str = "one\ntwo\nthree\nfour\n";

    fn places(merged: &str, own: &str, lines: &[u32]) -> Vec<Option<LinePosition>> {
        let map = LineMap::new(merged.as_bytes(), own.as_bytes());
        lines.iter().map(|line| map.find(*line)).collect()
    }

    /// Z7.4
    #[test]
    fn inserted_lines_map_to_the_line_above() {
        let found =
            places("new\nnewer\none\ntwo\nput in\nthree\nfour\n", OWN, &[1, 2, 3, 4, 5, 6, 7]);
        let wanted = [Nearest(1), Nearest(1), Same(1), Same(2), Nearest(2), Same(3), Same(4)];
        assert_eq!(found, wanted.map(Some));
    }

    /// Z7.4
    #[test]
    fn lines_below_a_deletion_are_shifted() {
        assert_eq!(places("one\nfour\n", OWN, &[1, 2]), [Some(Same(1)), Some(Same(4))]);
        assert_eq!(places("three\nfour\n", OWN, &[1, 2]), [Some(Same(3)), Some(Same(4))]);
    }

    /// Z7.4
    #[test]
    fn a_replaced_line_maps_to_the_one_it_replaced() {
        assert_eq!(
            places("one\ntwo\nTHREE\nfour\n", OWN, &[2, 3, 4]),
            [Same(2), Nearest(3), Same(4)].map(Some)
        );
        // When there are more lines than before, the later ones are nearest to the last one.
        let found = places("one\nTWO\nTWO\nTWO\nthree\nfour\n", OWN, &[2, 3, 4, 5]);
        assert_eq!(found, [Nearest(2), Nearest(2), Nearest(2), Same(3)].map(Some));
    }

    /// Z7.4: linters report problems on the line after the last one.
    #[test]
    fn a_line_after_the_end_maps_to_the_last_line() {
        assert_eq!(places(OWN, OWN, &[4, 5, 900]), [Same(4), Nearest(4), Nearest(4)].map(Some));
        assert_eq!(places("one\ntwo\n", "one\ntwo", &[1, 2]), [Same(1), Nearest(2)].map(Some));
        assert_eq!(places("", OWN, &[1]), [Some(Nearest(4))]);
        assert_eq!(places(OWN, "", &[1]), [None::<LinePosition>]);
    }
}
