//! What happened, in words: printed when a seed fails.

use sluice_model::Timestamp;
use std::collections::VecDeque;

/// Lines that are kept; of a longer story the beginning is dropped.
const LINES_MAX: usize = 4_000;

/// What happened, a line each.
#[derive(Debug, Clone)]
pub struct Story {
    begun_at: Timestamp,
    lines: VecDeque<String>,
    dropped: usize,
}

impl Story {
    /// Begins a story.
    pub fn new(begun_at: Timestamp) -> Self {
        Self { begun_at, lines: VecDeque::new(), dropped: 0 }
    }

    /// Adds a line.
    pub fn tell(&mut self, now: Timestamp, line: impl AsRef<str>) {
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

    /// Returns it as a text.
    pub fn text(&self) -> String {
        let begin = if self.dropped > 0 {
            format!("({} lines before)\n", self.dropped)
        } else {
            String::new()
        };
        begin + &self.lines.iter().map(|line| format!("{line}\n")).collect::<String>()
    }
}
