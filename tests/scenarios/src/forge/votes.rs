//! Draft states, statuses and votes of changes.

use super::*;
use sluice_model::gerrit::Vote;

impl PlayedForge {
    /// Makes a change a draft or ready for review, and sends a webhook.
    pub fn set_draft(&self, key: &ChangeKey, draft: DraftState) {
        let is_draft = draft == DraftState::Draft;
        self.edit(key, |facts| facts.draft = is_draft);
        let action = if is_draft { "converted_to_draft" } else { "ready_for_review" };
        self.send_webhook(
            "pull_request",
            key,
            json!({"action": action, "number": key.number()}),
            "ada",
        );
    }

    /// Sets a status on a change's head as this user. The change is not modified and no webhook is
    /// sent.
    pub fn put_status(&self, key: &ChangeKey, by: &str, context: &str, status: &str) {
        let mut state = self.state();
        state.statuses_set += 1;
        let number = Some(state.statuses_set);
        if let Some(played_change) = state.changes.get_mut(key) {
            played_change.facts.statuses.retain(|known| known.context != context);
            let (by, context, state) = (by.to_owned(), context.to_owned(), status.to_owned());
            played_change.facts.statuses.push(CommitStatus {
                by,
                context,
                state,
                is_check: false,
                number,
            });
        }
    }

    /// Sends a webhook about a status on a change's head.
    pub fn send_status_webhook(&self, key: &ChangeKey, context: &str, sender: &str) {
        let Some(head) = self.change(key).map(|played_change| played_change.facts.change.head)
        else {
            return;
        };
        let body = json!({"sha": head.0, "state": "success", "context": context});
        self.send_webhook("status", key, body, sender);
    }

    /// Approves a change as this user without a webhook.
    pub fn approve_silently(&self, key: &ChangeKey, by: &str) {
        let submitted_at = self.world.now();
        let (by, state, permission) =
            (by.to_owned(), ReviewState::Approved, RepositoryPermission::Write);
        self.edit(key, |facts| {
            facts.reviews.push(ChangeReview { by, email: None, state, permission, submitted_at })
        });
    }

    /// Shows statuses to this many further reads of changes only, like a forge with stale reads.
    /// `None` shows them to all reads again.
    pub fn show_statuses(&self, readings: Option<u64>) {
        let mut state = self.state();
        state.statuses_until = readings.map(|readings| state.reads + readings);
    }

    /// Makes statuses set by Sluice cause webhooks from now on, as at GitHub.
    pub fn send_own_status_webhooks(&self) {
        self.state().sends_own_status_webhooks = true;
    }

    /// Sends a webhook about a status set by Sluice, if such webhooks are enabled.
    pub(super) fn send_own_status_webhook(
        &self,
        project: &ProjectName,
        head: &Oid,
        status: &StatusReport,
    ) {
        let is_sent = self.state().sends_own_status_webhooks;
        if is_sent {
            let about = ChangeKey::change("github".into(), project.clone(), 0);
            let body =
                json!({"sha": head.0, "state": status.state.as_str(), "context": status.context});
            self.send_webhook("status", &about, body, OWN);
        }
    }

    /// Writes Sluice's votes and message, once per marker. Like Gerrit, does not show votes on a
    /// patchset that is not the newest.
    pub(super) fn vote_once(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        report: &VoteReport,
    ) -> Result<(), ForgeError> {
        let key = &change.key;
        let (now, mut state) = (self.world.now(), self.state());
        let moment = state.past.moment(now);
        let played_change = state.changes.get_mut(key).ok_or_else(|| Self::not_found(key))?;
        if played_change.comments.contains_key(marker.as_str()) {
            return Ok(());
        }
        let is_newest = played_change.facts.change.head == change.head;
        for (label, value) in report.votes.iter().filter(|_| is_newest) {
            played_change.facts.votes.retain(|vote| vote.label != *label || vote.username != OWN);
            let (label, username) = (label.clone(), OWN.to_owned());
            played_change.facts.votes.push(Vote {
                label,
                value: *value,
                username,
                email: None,
                cast_at: now,
            });
        }
        played_change
            .comments
            .insert(marker.as_str().to_owned(), (report.text.clone().unwrap_or_default(), 1));
        played_change.facts.updated_at = moment;
        Ok(())
    }
}
