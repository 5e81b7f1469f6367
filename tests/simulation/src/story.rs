//! The log of a run, which is printed when a seed fails.

use sluice_model::Timestamp;
use std::collections::VecDeque;

/// How many lines are kept. The oldest lines of a longer log are dropped.
const LINES_MAX: usize = 4_000;

/// The log of a run: one line for each event, with its virtual time.
#[derive(Debug, Clone)]
pub struct Story {
    /// When the run began; lines show the time since then.
    begun_at: Timestamp,
    /// The most recent lines.
    lines: VecDeque<String>,
    /// How many older lines were dropped.
    dropped: usize,
}

impl Story {
    /// Returns an empty log of a run that begins at `begun_at`.
    pub fn new(begun_at: Timestamp) -> Self {
        Self { begun_at, lines: VecDeque::new(), dropped: 0 }
    }

    /// Appends a line with the time since the beginning. Drops the oldest line if there are too
    /// many.
    pub fn log(&mut self, now: Timestamp, line: impl AsRef<str>) {
        let millis = now.since(self.begun_at);
        self.lines.push_back(format!(
            "{:>7}.{:03} s  {}",
            millis / 1_000,
            millis % 1_000,
            line.as_ref()
        ));
        if self.lines.len() > LINES_MAX {
            self.lines.pop_front();
            self.dropped += 1;
        }
    }

    /// Returns all lines as one text, with a note about dropped lines at the top.
    pub fn text(&self) -> String {
        let begin = if self.dropped > 0 {
            format!("({} earlier lines were dropped)\n", self.dropped)
        } else {
            String::new()
        };
        begin + &self.lines.iter().map(|line| format!("{line}\n")).collect::<String>()
    }
}
