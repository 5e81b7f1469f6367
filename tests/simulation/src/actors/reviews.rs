//! Reviewers and authors at either forge, and what they do only at a Gerrit: votes, patchsets,
//! chains of commits, topics, work in progress.

use super::{Actors, open};
use crate::oracle::{Oracle, is_approved};
use crate::reviews::is_gerrit_project;
use crate::scenarios::EXPRESS;
use crate::site::Site;
use crate::story::Story;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_runtime::Clock as _;
use sluice_scenarios::PlayedForge;
use sluice_scenarios::forge::{Announcement, DraftState};

impl Actors {
    /// Approves a revision: by a review at GitHub, by votes at a Gerrit.
    pub(super) fn give_approval(&mut self, revision: &ChangeRef, site: &Site, oracle: &mut Oracle) {
        let change = &revision.key;
        if !is_gerrit_project(change.project.name()) {
            site.forge.approve(change);
            oracle.record_approval(revision, site.world.now());
            return;
        }
        let votes = self.intentions.votes();
        act_and_report(change, site, oracle, |forge| {
            votes.iter().for_each(|(label, value)| forge.vote(change, label, *value))
        });
    }

    /// Draws whether a Gerrit change gets only one of the votes that it needs, and casts that vote.
    /// Returns false if the change is to be approved completely instead.
    pub(super) fn give_partial_approval(
        &mut self,
        revision: &ChangeRef,
        site: &Site,
        oracle: &mut Oracle,
    ) -> bool {
        let change = &revision.key;
        let is_half = is_gerrit_project(change.project.name()) && self.intentions.is_half();
        if is_half {
            let (label, value) = self.intentions.half();
            act_and_report(change, site, oracle, |forge| forge.vote(change, label, value));
        }
        is_half
    }

    /// Withdraws the approval of a change, at a Gerrit by one of several votes.
    pub(super) fn withdraw_approval(
        &mut self,
        change: &ChangeKey,
        site: &Site,
        oracle: &mut Oracle,
    ) {
        if !is_gerrit_project(change.project.name()) {
            site.forge.dismiss(change);
            oracle.revoke_approvals(change, site.world.now());
            return;
        }
        let (label, value) = self.intentions.withdrawing_vote();
        act_and_report(change, site, oracle, |forge| forge.vote(change, label, value));
    }

    /// Closes or abandons a change.
    pub(super) fn abandon(&self, change: &ChangeKey, site: &Site, oracle: &mut Oracle) {
        if is_gerrit_project(change.project.name()) {
            site.forge.abandon(change);
            oracle.record_topic(change, None, site.world.now());
        } else {
            site.forge.close(change);
        }
        oracle.record_withdrawal(change, site.world.now());
    }

    /// Marks a change as urgent, by a label or a hashtag.
    pub(super) fn mark_urgent(&self, change: &ChangeKey, site: &Site) {
        if is_gerrit_project(change.project.name()) {
            site.forge.hashtag(change, EXPRESS);
        } else {
            site.forge.label(change, EXPRESS, Announcement::Webhook);
        }
    }

    /// Uploads a patchset of a Gerrit change, either on the current revision of its parent change
    /// or on its branch.
    pub(super) fn upload_patchset(
        &mut self,
        change: &ChangeKey,
        edits: &[(&str, &str)],
        site: &Site,
    ) {
        let parent =
            site.forge.change(change).and_then(|shown| shown.facts.parents.first().cloned());
        let parent = parent
            .filter(|parent| open(site, parent).is_some() && self.intentions.stays_in_chain());
        site.forge.rebase(change, parent.as_ref(), edits);
    }

    /// Toggles the work-in-progress state of a Gerrit change, or changes its topic.
    pub(super) fn toggle_wip_or_topic(
        &mut self,
        change: &ChangeKey,
        tenant: usize,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let Some(facts) = site.forge.change(change).map(|shown| shown.facts) else { return };
        if self.intentions.toggles_wip() {
            let state = if facts.draft { "ready" } else { "work in progress" };
            story.log(site.world.now(), format!("ada marks {change} as {state}"));
            act_and_report(change, site, oracle, |forge| {
                forge.set_work_in_progress(change, DraftState::of(!facts.draft))
            });
            // If both events are dropped, nothing shows the state in between.
            oracle.mark_entangled(change);
            return;
        }
        if facts.topic.is_some() && self.intentions.leaves_topic() {
            return put_into_topic(change, None, site, oracle, story);
        }
        self.join_topic(change, tenant, site, oracle, story);
    }

    /// Puts a Gerrit change into the topic of another open change of its tenant.
    pub(super) fn join_topic(
        &mut self,
        change: &ChangeKey,
        tenant: usize,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let others = self.proposed.iter().filter(|(other, of)| *of == tenant && other != change);
        let others: Vec<ChangeKey> = others.map(|(other, _)| other.clone()).collect();
        let Some(other) = self.intentions.one_of(&others).cloned() else { return };
        if open(site, change).is_none() || open(site, &other).is_none() {
            return;
        }
        let present = site.forge.change(&other).and_then(|shown| shown.facts.topic);
        let topic = present
            .clone()
            .unwrap_or_else(|| format!("topic-{}", other.number().unwrap_or_default()));
        if present.is_none() {
            put_into_topic(&other, Some(&topic), site, oracle, story);
        }
        put_into_topic(change, Some(&topic), site, oracle, story);
    }
}

/// Uploads a change to the Gerrit. If `need` is an open change of the same project and branch, it
/// becomes the parent commit; otherwise `message` declares the dependency.
pub(super) fn upload(
    site: &Site,
    project: &str,
    branch: &str,
    number: u64,
    need: Option<&ChangeKey>,
    message: &str,
    edits: &[(&str, &str)],
) -> ChangeKey {
    let is_below = |need: &&ChangeKey| {
        let is_here = need.project.name() == project;
        is_here && open(site, need).is_some_and(|revision| revision.branch.as_str() == branch)
    };
    match need.filter(is_below) {
        Some(parent) => site.forge.upload_for(project, branch, number, Some(parent), "", edits),
        None => site.forge.upload_for(project, branch, number, None, message, edits),
    }
}

/// Puts a change into a topic, or removes it from its topic. Reports to the oracle that the
/// dependencies of all changes in either topic have changed.
fn put_into_topic(
    change: &ChangeKey,
    topic: Option<&str>,
    site: &Site,
    oracle: &mut Oracle,
    story: &mut Story,
) {
    let now = site.world.now();
    let before = site.forge.change(change).and_then(|shown| shown.facts.topic);
    if before.as_deref() == topic {
        return;
    }
    story.log(now, format!("ada puts {change} into {}", topic.unwrap_or("no topic")));
    site.forge.put_into_topic(change, topic);
    oracle.record_topic(change, topic, now);
    let shares = |own: &str| Some(own) == topic || Some(own) == before.as_deref();
    for other in site.forge.changes() {
        let key = &other.facts.change.key;
        if key == change || other.facts.topic.as_deref().is_some_and(shares) {
            oracle.mark_entangled(key);
            oracle.record_withdrawal(key, now);
        }
    }
}

/// Does something to a change at the forge, and reports to the oracle whether the change became
/// approved or lost its approval.
fn act_and_report(
    change: &ChangeKey,
    site: &Site,
    oracle: &mut Oracle,
    act: impl FnOnce(&PlayedForge),
) {
    let is_approved_now =
        || site.forge.change(change).is_some_and(|shown| is_approved(&shown.facts));
    let before = is_approved_now();
    let forge: &PlayedForge = &site.forge;
    act(forge);
    match (before, is_approved_now()) {
        (false, true) => {
            if let Some(revision) = open(site, change) {
                oracle.record_approval(&revision, site.world.now());
            }
        }
        (true, false) => oracle.revoke_approvals(change, site.world.now()),
        (true, true) | (false, false) => {}
    }
}
