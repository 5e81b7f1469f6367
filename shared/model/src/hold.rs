//! Pausing and discarding of a tenant's events by operators (Zuul's `manage-events`).

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// The number of commands in the history.
pub const COMMANDS_MAX: usize = 10;

/// The maximum length of a reason, in characters.
pub const REASON_CHARS_MAX: usize = 500;

/// The maximum length of a note, in characters.
pub const INFO_CHARS_MAX: usize = 4_096;

/// Which events of a tenant are paused or discarded, with the latest commands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventProcessing {
    /// Whether new trigger events are discarded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trigger_queue_discarding: bool,
    /// Whether trigger events are paused: neither enqueued nor dequeued.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub trigger_queue_paused: bool,
    /// Whether results from mergers and executors are paused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub result_queue_paused: bool,
    /// The note of the latest command, for display; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub info: String,
    /// The latest commands, the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<HoldCommand>,
}

/// A command by which an operator changed the event processing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldCommand {
    /// When it was given.
    pub at: Timestamp,
    /// Who gave it; empty if unknown.
    pub by: String,
    /// Why, for display.
    pub reason: String,
    /// A description of the resulting state.
    pub state: String,
}

/// An operator's command that sets the event processing of a tenant.
#[derive(Debug, Clone, Copy, Default)]
pub struct EventCommand<'a> {
    /// Whether to discard new trigger events.
    pub discard_triggers: bool,
    /// Whether to pause trigger events.
    pub pause_triggers: bool,
    /// Whether to pause results from mergers and executors.
    pub pause_results: bool,
    /// The operator's name; empty if unknown.
    pub by: &'a str,
    /// The operator's reason, for display.
    pub reason: &'a str,
    /// The operator's note, for display with the tenant's status, also while nothing is paused;
    /// empty for none.
    pub info: &'a str,
}

impl EventProcessing {
    /// Replaces the whole state by that of a new command, also what the command does not pause.
    /// Adds the command to the history, which keeps the latest [`COMMANDS_MAX`]. The reason is cut
    /// to [`REASON_CHARS_MAX`] characters, the note to [`INFO_CHARS_MAX`].
    #[must_use]
    pub fn apply(mut self, command: EventCommand<'_>, at: Timestamp) -> Self {
        self.trigger_queue_discarding = command.discard_triggers;
        self.trigger_queue_paused = command.pause_triggers;
        self.result_queue_paused = command.pause_results;
        self.info = command.info.chars().take(INFO_CHARS_MAX).collect();
        let by = command.by.to_owned();
        let reason = command.reason.chars().take(REASON_CHARS_MAX).collect();
        let state = self.describe();
        self.commands.push(HoldCommand { at, by, reason, state });
        if self.commands.len() > COMMANDS_MAX {
            self.commands.remove(0);
        }
        self
    }

    /// Returns whether any events are paused or discarded.
    pub fn is_active(&self) -> bool {
        self.trigger_queue_discarding || self.trigger_queue_paused || self.result_queue_paused
    }

    /// Returns the reason of the latest command; `None` if nothing is paused or discarded, or no
    /// reason was given.
    pub fn reason(&self) -> Option<&str> {
        let reason = self.commands.last().map(|command| command.reason.as_str());
        reason.filter(|reason| self.is_active() && !reason.is_empty())
    }

    /// Returns a description of the state, for display: what is paused or discarded, or `nothing is
    /// paused`.
    pub fn describe(&self) -> String {
        let held = [
            (self.trigger_queue_discarding, "trigger events are discarded"),
            (self.trigger_queue_paused, "trigger events are paused"),
            (self.result_queue_paused, "results are paused"),
        ];
        let held: Vec<&str> =
            held.into_iter().filter_map(|(is_held, text)| is_held.then_some(text)).collect();
        if held.is_empty() { "nothing is paused".to_owned() } else { held.join(", ") }
    }

    /// Returns whether no command was ever given, so that nothing is paused or discarded.
    pub fn is_unused(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z6.1: each command replaces the one before; the history is limited.
    #[test]
    fn a_command_replaces_the_previous_one_and_the_history_is_limited() {
        let mut hold = EventProcessing::default();
        for number in 0..20 {
            let command = EventCommand {
                discard_triggers: number % 2 == 0,
                pause_triggers: false,
                pause_results: number % 2 == 1,
                by: "jo",
                reason: &number.to_string(),
                info: "",
            };
            hold = hold.apply(command, Timestamp(number));
        }
        assert!(!hold.trigger_queue_discarding && hold.result_queue_paused);
        assert_eq!((hold.commands.len(), hold.reason()), (COMMANDS_MAX, Some("19")));
        assert_eq!(hold.commands.last().unwrap().state, "results are paused");
        let hold = hold.apply(
            EventCommand { by: "jo", reason: "repaired", ..EventCommand::default() },
            Timestamp(30),
        );
        assert_eq!(
            (hold.is_active(), hold.reason(), hold.describe().as_str()),
            (false, None, "nothing is paused")
        );
        assert_eq!(
            serde_json::from_str::<EventProcessing>("{}").unwrap(),
            EventProcessing::default()
        );
    }
}
