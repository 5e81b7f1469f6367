//! What is said of a change besides what it brings: that it is a draft, or is none any more, and
//! what others found.

use super::*;
use sluice_model::gerrit::Vote;

impl PlayedForge {
    /// Makes a change a draft or a change to be merged, and says so.
    pub fn draft(&self, key: &ChangeKey, is_draft: bool) {
        self.edit(key, |facts| facts.draft = is_draft);
        let action = if is_draft { "converted_to_draft" } else { "ready_for_review" };
        self.tell("pull_request", key, json!({"action": action, "number": key.number()}), "ada");
    }

    /// Sets a status on a change's head as somebody, which moves no change; nobody is told.
    pub fn put_status(&self, key: &ChangeKey, by: &str, context: &str, status: &str) {
        let mut state = self.state();
        state.set += 1;
        let number = Some(state.set);
        if let Some(kept) = state.changes.get_mut(key) {
            kept.facts.statuses.retain(|known| known.context != context);
            let (by, context, state) = (by.to_owned(), context.to_owned(), status.to_owned());
            kept.facts.statuses.push(CommitStatus { by, context, state, is_check: false, number });
        }
    }

    /// Says that somebody set a status on a change's head.
    pub fn tell_status(&self, key: &ChangeKey, context: &str, sender: &str) {
        let Some(head) = self.change(key).map(|kept| kept.facts.change.head) else { return };
        let body = json!({"sha": head.0, "state": "success", "context": context});
        self.tell("status", key, body, sender);
    }

    /// Has somebody approve a change; nobody is told.
    pub fn approve_silently(&self, key: &ChangeKey, by: &str) {
        let submitted_at = self.world.now();
        let (by, state, permission) = (by.to_owned(), ReviewState::Approved, Permission::Write);
        self.edit(key, |facts| {
            facts.reviews.push(Review { by, email: None, state, permission, submitted_at })
        });
    }

    /// Has statuses be shown to so many more readings of changes, as by a forge that is behind the
    /// times afterwards; to all of them again without a number.
    pub fn show_statuses(&self, readings: Option<u64>) {
        let mut state = self.state();
        state.statuses_until = readings.map(|readings| state.reads + readings);
    }

    /// Has it tell of the statuses that we set, as a GitHub does, from now on.
    pub fn tell_own_statuses(&self) {
        self.state().tells_own = true;
    }

    /// Says that we set a status, where such things are told.
    pub(super) fn tell_own_status(&self, project: &ProjectName, head: &Oid, status: &StatusReport) {
        let is_told = self.state().tells_own;
        if is_told {
            let about = ChangeKey::change("github".into(), project.clone(), 0);
            let body =
                json!({"sha": head.0, "state": status.state.as_str(), "context": status.context});
            self.tell("status", &about, body, OWN);
        }
    }

    /// Leaves our votes and their message, once for a marker, as a Gerrit does: votes on a patchset
    /// that is no more the newest are not shown with the change.
    pub(super) fn vote_once(
        &self,
        change: &ChangeRef,
        marker: &Marker,
        report: &VoteReport,
    ) -> Result<(), ForgeError> {
        let key = &change.key;
        let (now, mut state) = (self.world.now(), self.state());
        let moment = state.past.moment(now);
        let kept = state.changes.get_mut(key).ok_or_else(|| Self::not_found(key))?;
        if kept.comments.contains_key(marker.as_str()) {
            return Ok(());
        }
        let is_newest = kept.facts.change.head == change.head;
        for (label, value) in report.votes.iter().filter(|_| is_newest) {
            kept.facts.votes.retain(|vote| vote.label != *label || vote.username != OWN);
            let (label, username) = (label.clone(), OWN.to_owned());
            kept.facts.votes.push(Vote {
                label,
                value: *value,
                username,
                email: None,
                cast_at: now,
            });
        }
        kept.comments
            .insert(marker.as_str().to_owned(), (report.text.clone().unwrap_or_default(), 1));
        kept.facts.updated_at = moment;
        Ok(())
    }
}
