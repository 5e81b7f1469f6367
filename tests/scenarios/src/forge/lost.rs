//! Webhooks of the played forge that nobody takes, and their being sent again.

use super::*;
use sluice_forge::Delivery;

/// Webhooks that were sent and that nobody answered.
#[derive(Default)]
pub(super) struct Lost(Vec<(ProjectName, Timestamp, Webhook)>);

impl Lost {
    /// Returns those of a project, newest first.
    pub(super) fn of(&self, project: &ProjectName) -> Vec<Delivery> {
        let own = self.0.iter().rev().filter(|(of, ..)| of == project);
        own.map(|(_, delivered_at, webhook)| Delivery {
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
    /// Has everything that is on its way reach nobody.
    pub fn lose_webhooks(&self) {
        let now = self.world.now();
        let mut state = self.state();
        let sent: Vec<Webhook> = state.outgoing.drain(..).collect();
        for webhook in sent {
            let body: Value =
                serde_json::from_slice(&webhook.body).expect("it was written as JSON");
            let name = body["repository"]["full_name"].as_str().unwrap_or_default();
            state.lost.0.push((ProjectName::new("forge.test", name), now, webhook));
        }
    }

    /// Has everything that is on its way go without an answer, and returns it: somebody may have
    /// taken it all the same.
    pub fn lose_answers(&self) -> Vec<Webhook> {
        let sent: Vec<Webhook> = self.state().outgoing.iter().cloned().collect();
        self.lose_webhooks();
        sent
    }

    /// Has everything that is on its way be lost for good: it is not sent again either.
    pub fn forget_webhooks(&self) {
        let mut state = self.state();
        state.outgoing.clear();
        state.told.clear();
    }

    /// Sends a lost webhook again.
    pub(super) fn send_again(&self, id: &str) -> Result<(), ForgeError> {
        let mut state = self.state();
        let at = state
            .lost
            .0
            .iter()
            .position(|(_, _, webhook)| webhook.id == id)
            .ok_or_else(|| Self::not_found(id))?;
        let (_, _, webhook) = state.lost.0.remove(at);
        state.outgoing.push_back(webhook);
        Ok(())
    }
}
