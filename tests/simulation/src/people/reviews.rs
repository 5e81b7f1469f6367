//! What people say of changes in the way of the forge that these are at, and what they do at a
//! Gerrit alone: votes, patchsets, chains of commits, topics, work in progress.

use super::{People, open};
use crate::oracle::{Oracle, is_approved};
use crate::plays::EXPRESS;
use crate::reviews::is_review;
use crate::site::Site;
use crate::story::Story;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_runtime::Clock as _;
use sluice_scenarios::PlayedForge;

impl People {
    /// Has somebody approve a change.
    pub(super) fn say_yes(&mut self, revision: &ChangeRef, site: &Site, oracle: &mut Oracle) {
        let change = &revision.key;
        if !is_review(change.project.name()) {
            site.forge.approve(change);
            oracle.approved(revision, site.world.now());
            return;
        }
        let votes = self.thoughts.votes();
        heeded(change, site, oracle, |forge| {
            votes.iter().for_each(|(label, value)| forge.vote(change, label, *value))
        });
    }

    /// Has somebody say a part of what approves a change at a Gerrit. Returns whether that was all
    /// for now.
    pub(super) fn say_half(
        &mut self,
        revision: &ChangeRef,
        site: &Site,
        oracle: &mut Oracle,
    ) -> bool {
        let change = &revision.key;
        let is_half = is_review(change.project.name()) && self.thoughts.is_half();
        if is_half {
            let (label, value) = self.thoughts.half();
            heeded(change, site, oracle, |forge| forge.vote(change, label, value));
        }
        is_half
    }

    /// Has somebody take an approval back, or a part of it.
    pub(super) fn say_no(&mut self, change: &ChangeKey, site: &Site, oracle: &mut Oracle) {
        if !is_review(change.project.name()) {
            site.forge.dismiss(change);
            oracle.taken_back(change, site.world.now());
            return;
        }
        let (label, value) = self.thoughts.no();
        heeded(change, site, oracle, |forge| forge.vote(change, label, value));
    }

    /// Gives a change up.
    pub(super) fn give_up(&self, change: &ChangeKey, site: &Site, oracle: &mut Oracle) {
        if is_review(change.project.name()) {
            site.forge.abandon(change);
            oracle.put_into_topic(change, None, site.world.now());
        } else {
            site.forge.close(change);
        }
        oracle.withdrawn(change, site.world.now());
    }

    /// Marks a change as urgent.
    pub(super) fn hurry(&self, change: &ChangeKey, site: &Site) {
        if is_review(change.project.name()) {
            site.forge.hashtag(change, EXPRESS);
        } else {
            site.forge.label(change, EXPRESS, true);
        }
    }

    /// Uploads a patchset of a change at a Gerrit: on what it was made on, as that is now, or on
    /// its branch.
    pub(super) fn upload_patchset(
        &mut self,
        change: &ChangeKey,
        edits: &[(&str, &str)],
        site: &Site,
    ) {
        let parent = site.forge.change(change).and_then(|kept| kept.facts.parents.first().cloned());
        let parent =
            parent.filter(|parent| open(site, parent).is_some() && self.thoughts.stays_in_chain());
        site.forge.rebase(change, parent.as_ref(), edits);
    }

    /// Has a change at a Gerrit be work in progress, or no more, or in another topic.
    pub(super) fn turn(
        &mut self,
        change: &ChangeKey,
        tenant: usize,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let Some(facts) = site.forge.change(change).map(|kept| kept.facts) else { return };
        if self.thoughts.is_about_work() {
            let does = if facts.draft { "is ready" } else { "is work in progress" };
            story.tell(site.world.now(), format!("ada says that {change} {does}"));
            heeded(change, site, oracle, |forge| forge.work_in_progress(change, !facts.draft));
            // Where neither the one nor the other is told, nothing shows that it was so meanwhile.
            oracle.entangled(change);
            return;
        }
        if facts.topic.is_some() && self.thoughts.leaves_topic() {
            return put_into_topic(change, None, site, oracle, story);
        }
        self.join(change, tenant, site, oracle, story);
    }

    /// Has a change at a Gerrit and another one of its tenant share a topic.
    pub(super) fn join(
        &mut self,
        change: &ChangeKey,
        tenant: usize,
        site: &Site,
        oracle: &mut Oracle,
        story: &mut Story,
    ) {
        let others = self.proposed.iter().filter(|(other, of)| *of == tenant && other != change);
        let others: Vec<ChangeKey> = others.map(|(other, _)| other.clone()).collect();
        let Some(other) = self.thoughts.one_of(&others).cloned() else { return };
        if open(site, change).is_none() || open(site, &other).is_none() {
            return;
        }
        let known = site.forge.change(&other).and_then(|kept| kept.facts.topic);
        let topic = known
            .clone()
            .unwrap_or_else(|| format!("topic-{}", other.number().unwrap_or_default()));
        if known.is_none() {
            put_into_topic(&other, Some(&topic), site, oracle, story);
        }
        put_into_topic(change, Some(&topic), site, oracle, story);
    }
}

/// Uploads a change to the Gerrit: on another one if that is open and for the same branch, or with
/// a message that names it.
pub(super) fn upload(
    site: &Site,
    project: &str,
    (branch, number): (&str, u64),
    need: Option<&ChangeKey>,
    message: &str,
    edits: &[(&str, &str)],
) -> ChangeKey {
    let is_below = |need: &&ChangeKey| {
        let is_here = need.project.name() == project;
        is_here && open(site, need).is_some_and(|revision| revision.branch.as_str() == branch)
    };
    match need.filter(is_below) {
        Some(parent) => site.forge.upload_for(project, (branch, number), Some(parent), "", edits),
        None => site.forge.upload_for(project, (branch, number), None, message, edits),
    }
}

/// Puts a change into a topic, or takes it out of its one: whoever shared that with it, or shares
/// it now, needs others from now on.
fn put_into_topic(
    change: &ChangeKey,
    topic: Option<&str>,
    site: &Site,
    oracle: &mut Oracle,
    story: &mut Story,
) {
    let now = site.world.now();
    let before = site.forge.change(change).and_then(|kept| kept.facts.topic);
    if before.as_deref() == topic {
        return;
    }
    story.tell(now, format!("ada puts {change} into {}", topic.unwrap_or("no topic")));
    site.forge.put_into_topic(change, topic);
    oracle.put_into_topic(change, topic, now);
    let shares = |own: &str| Some(own) == topic || Some(own) == before.as_deref();
    for kept in site.forge.changes() {
        let key = &kept.facts.change.key;
        if key == change || kept.facts.topic.as_deref().is_some_and(shares) {
            oracle.entangled(key);
            oracle.withdrawn(key, now);
        }
    }
}

/// Has somebody do something to a change that may be approved by it, or no more.
fn heeded(change: &ChangeKey, site: &Site, oracle: &mut Oracle, does: impl FnOnce(&PlayedForge)) {
    let is_approved_now = || site.forge.change(change).is_some_and(|kept| is_approved(&kept.facts));
    let before = is_approved_now();
    let forge: &PlayedForge = &site.forge;
    does(forge);
    match (before, is_approved_now()) {
        (false, true) => {
            if let Some(revision) = open(site, change) {
                oracle.approved(&revision, site.world.now());
            }
        }
        (true, false) => oracle.taken_back(change, site.world.now()),
        (true, true) | (false, false) => {}
    }
}
