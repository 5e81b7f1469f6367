//! What an operator holds back of a tenant's events, in the words of Zuul's `manage-events`.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// Words of operators that are kept, the newest last.
pub const WORDS_MAX: usize = 10;

/// Characters of a reason that are kept.
pub const REASON_CHARS_MAX: usize = 500;

/// What is held back, and who said so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventsHold {
    /// What would enter a queue is dropped.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trigger_queue_discarding: bool,
    /// What would enter a queue, or take something out of it, waits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trigger_queue_paused: bool,
    /// What merger and executors answer waits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub result_queue_paused: bool,
    /// What operators said of late, the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<HoldWord>,
}

/// One word of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldWord {
    /// When.
    pub at: Timestamp,
    /// Who; empty where nobody says.
    #[serde(default)]
    pub by: String,
    /// Why, for people.
    #[serde(default)]
    pub reason: String,
    /// What is held back since.
    pub what: String,
}

impl EventsHold {
    /// Returns what is held back after an operator's word: what is asked for and nothing else.
    #[must_use]
    pub fn said(
        mut self,
        discarding: bool,
        paused: bool,
        results: bool,
        by: &str,
        reason: &str,
        at: Timestamp,
    ) -> Self {
        self.trigger_queue_discarding = discarding;
        self.trigger_queue_paused = paused;
        self.result_queue_paused = results;
        let reason = reason.chars().take(REASON_CHARS_MAX).collect();
        let what = self.described();
        self.words.push(HoldWord { at, by: by.to_owned(), reason, what });
        if self.words.len() > WORDS_MAX {
            self.words.remove(0);
        }
        self
    }

    /// Returns whether anything is held back.
    pub fn holds(&self) -> bool {
        self.trigger_queue_discarding || self.trigger_queue_paused || self.result_queue_paused
    }

    /// Returns why, as it was said last; `None` while nothing is held back.
    pub fn reason(&self) -> Option<&str> {
        let reason = self.words.last().map(|word| word.reason.as_str());
        reason.filter(|reason| self.holds() && !reason.is_empty())
    }

    /// Returns what is held back, for people.
    pub fn described(&self) -> String {
        let held = [
            (self.trigger_queue_discarding, "trigger events are discarded"),
            (self.trigger_queue_paused, "trigger events wait"),
            (self.result_queue_paused, "results wait"),
        ];
        let held: Vec<&str> =
            held.into_iter().filter_map(|(holds, word)| holds.then_some(word)).collect();
        if held.is_empty() { "nothing is held back".to_owned() } else { held.join(", ") }
    }

    /// Returns whether nobody ever said anything.
    pub fn is_blank(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.1: each word replaces the one before; the newest ones are kept.
    #[test]
    fn a_word_replaces_the_one_before_and_only_so_many_are_kept() {
        let mut hold = EventsHold::default();
        for number in 0..20 {
            hold = hold.said(
                number % 2 == 0,
                false,
                number % 2 == 1,
                "jo",
                &number.to_string(),
                Timestamp(number),
            );
        }
        assert!(!hold.trigger_queue_discarding && hold.result_queue_paused);
        assert_eq!((hold.words.len(), hold.reason()), (WORDS_MAX, Some("19")));
        assert_eq!(hold.words.last().unwrap().what, "results wait");
        let hold = hold.said(false, false, false, "jo", "mended", Timestamp(30));
        assert_eq!(
            (hold.holds(), hold.reason(), hold.described().as_str()),
            (false, None, "nothing is held back")
        );
        assert_eq!(serde_json::from_str::<EventsHold>("{}").unwrap(), EventsHold::default());
    }
}
