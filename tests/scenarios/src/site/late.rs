//! A site that is told late: webhooks come in another order than they were sent in, and a message
//! that was handled comes once more when nothing else is left to do now.

use super::Site;
use crate::forge::Webhook;
use sluice_runtime::port::Incoming;

/// Webhooks that are put off.
#[derive(Default)]
pub(super) struct PutOff {
    /// Those that come at any time.
    any_time: Vec<Webhook>,
    /// Those that come when all else is at rest.
    at_rest: Vec<Webhook>,
}

impl PutOff {
    /// Returns whether one may come now.
    pub(super) fn may_come(&self) -> bool {
        !self.any_time.is_empty()
    }
}

impl Site {
    /// Returns how many messages stayed in their queues though they were handled, and so came
    /// again.
    pub fn came_again(&self) -> u64 {
        self.came_again
    }

    /// Returns whether a message that was handled stays where it is, as one whose acknowledgement
    /// was lost. It shows again when its visibility time-out ends, and time passes only when
    /// nothing can be done now. Until then it holds its group back, as in the real service: whoever
    /// gave a copy out of a group's order would play what no queue does.
    pub(super) fn comes_again(&self, message: &Incoming) -> bool {
        self.late && self.twice && message.receive_count == 1
    }

    /// Puts off what the forge told since, each copy for itself.
    pub(super) fn put_off_webhooks(&mut self) {
        let copies = if self.twice { 2 } else { 1 };
        while let Some(webhook) = self.forge.next_webhook() {
            for _ in 0..copies {
                match self.draw(2) {
                    0 => self.put_off.any_time.push(webhook.clone()),
                    _ => self.put_off.at_rest.push(webhook.clone()),
                }
            }
        }
    }

    /// Has the webhook take in one of those that come at any time.
    pub(super) fn receive_any(&mut self) {
        let count = self.put_off.any_time.len();
        if count > 0 {
            let at = self.draw(count);
            let webhook = self.put_off.any_time.swap_remove(at);
            self.hand_over(&webhook);
        }
    }

    /// Has the webhook take in one of those that come when all else is at rest; the others come at
    /// any time from then on. Returns false when there is none.
    pub(super) fn receive_at_rest(&mut self) -> bool {
        let is_any = !self.put_off.at_rest.is_empty();
        self.put_off.any_time.append(&mut self.put_off.at_rest);
        self.receive_any();
        is_any
    }
}
