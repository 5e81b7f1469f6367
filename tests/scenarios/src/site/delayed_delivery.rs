//! Delayed delivery: webhooks arrive in another order than they were sent, and a handled message is
//! redelivered once nothing else can be done.

use super::Site;
use crate::forge::Webhook;
use sluice_runtime::port::Incoming;

/// Webhooks whose delivery is delayed.
#[derive(Default)]
pub(super) struct DelayedWebhooks {
    /// Webhooks that may arrive at any time.
    any_time: Vec<Webhook>,
    /// Webhooks that arrive only when the site is at rest.
    at_rest: Vec<Webhook>,
}

impl DelayedWebhooks {
    /// Returns whether a webhook may arrive now.
    pub(super) fn may_come(&self) -> bool {
        !self.any_time.is_empty()
    }
}

impl Site {
    /// Returns the number of messages that stayed in their queues after being handled, and were
    /// therefore redelivered.
    pub fn redeliveries(&self) -> u64 {
        self.came_again
    }

    /// Returns whether a handled message stays in its queue, as if its acknowledgement was lost. It
    /// becomes visible again after its visibility time-out, and time passes only when nothing can
    /// be done. Until then it blocks its message group, as in the real service: a copy delivered
    /// out of group order would be unrealistic.
    pub(super) fn stays_for_redelivery(&self, message: &Incoming) -> bool {
        self.delays_delivery && self.twice && message.receive_count == 1
    }

    /// Delays the pending webhooks of the forge, each copy independently.
    pub(super) fn delay_webhooks(&mut self) {
        let copies = if self.twice { 2 } else { 1 };
        while let Some(webhook) = self.forge.next_webhook() {
            for _ in 0..copies {
                match self.draw(2) {
                    0 => self.delayed_webhooks.any_time.push(webhook.clone()),
                    _ => self.delayed_webhooks.at_rest.push(webhook.clone()),
                }
            }
        }
    }

    /// Delivers one of the webhooks that may arrive at any time, if there is one.
    pub(super) fn receive_any(&mut self) {
        let count = self.delayed_webhooks.any_time.len();
        if count > 0 {
            let at = self.draw(count);
            let webhook = self.delayed_webhooks.any_time.swap_remove(at);
            self.hand_over(&webhook);
        }
    }

    /// Delivers one webhook at rest, and lets the remaining delayed ones arrive at any time.
    /// Returns false if there is none.
    pub(super) fn receive_at_rest(&mut self) -> bool {
        let is_any = !self.delayed_webhooks.at_rest.is_empty();
        self.delayed_webhooks.any_time.append(&mut self.delayed_webhooks.at_rest);
        self.receive_any();
        is_any
    }
}
