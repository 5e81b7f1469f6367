//! Webhooks of the played forge that were not answered, and their redelivery.

use super::*;
use sluice_forge::WebhookDelivery;

/// Webhooks that were sent and not answered.
#[derive(Default)]
pub(super) struct UnansweredWebhooks(Vec<(ProjectName, Timestamp, Webhook)>);

impl UnansweredWebhooks {
    /// Returns the deliveries of a project, newest first.
    pub(super) fn of(&self, project: &ProjectName) -> Vec<WebhookDelivery> {
        let own = self.0.iter().rev().filter(|(of, ..)| of == project);
        own.map(|(_, delivered_at, webhook)| WebhookDelivery {
            id: webhook.id.clone(),
            attempt: webhook.id.clone(),
            event: webhook.event.clone(),
            action: None,
            delivered_at: *delivered_at,
            answered: None,
        })
        .collect()
    }
}

impl PlayedForge {
    /// Makes all pending webhooks fail: they are recorded as unanswered.
    pub fn lose_webhooks(&self) {
        let now = self.world.now();
        let mut state = self.state();
        let sent: Vec<Webhook> = state.outgoing.drain(..).collect();
        for webhook in sent {
            let body: Value =
                serde_json::from_slice(&webhook.body).expect("it was written as JSON");
            let name = body["repository"]["full_name"].as_str().unwrap_or_default();
            state.unanswered.0.push((ProjectName::new("forge.test", name), now, webhook));
        }
    }

    /// Records all pending webhooks as unanswered and returns them. A test may deliver them all the
    /// same.
    pub fn lose_answers(&self) -> Vec<Webhook> {
        let sent: Vec<Webhook> = self.state().outgoing.iter().cloned().collect();
        self.lose_webhooks();
        sent
    }

    /// Drops all pending webhooks and stream events for good; they are not redelivered either.
    pub fn forget_webhooks(&self) {
        let mut state = self.state();
        state.outgoing.clear();
        state.stream_events.clear();
    }

    /// Sends an unanswered webhook again.
    pub(super) fn redeliver_webhook(&self, id: &str) -> Result<(), ForgeError> {
        let mut state = self.state();
        let at = state
            .unanswered
            .0
            .iter()
            .position(|(_, _, webhook)| webhook.id == id)
            .ok_or_else(|| Self::not_found(id))?;
        let (_, _, webhook) = state.unanswered.0.remove(at);
        state.outgoing.push_back(webhook);
        Ok(())
    }
}
