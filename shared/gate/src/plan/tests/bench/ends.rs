//! Completing work on the test bench: landings, whole runs, and the comments of reports.

use super::*;
use crate::branch_lock::BranchLock;

impl Bench {
    /// Returns how many branch locks a plan takes over from other queues. Each adds the condition
    /// that the holder's landing is unchanged.
    pub(super) fn lock_takeovers(&self, actions: &[QueueAction]) -> usize {
        let is_taken = |lock: &&BranchLock| {
            let before =
                self.branch_locks.get(&lock.branch).and_then(|seen| seen.lock.holder.as_ref());
            before.is_some_and(|holder| {
                holder.queue != self.head.key && lock.holder.as_ref() != Some(holder)
            })
        };
        let locks = actions.iter().filter_map(|action| match action {
            QueueAction::PutBranchLock(lock) => Some(&**lock),
            _ => None,
        });
        locks.filter(is_taken).count()
    }

    /// Writes a host queue to the head of a hosted change's own queue.
    pub(super) fn set_host_queue(
        &mut self,
        change: &ChangeKey,
        host: Option<sluice_model::QueueName>,
    ) {
        let residency = self.residencies.get_mut(change).expect("what is written was read");
        assert!(
            residency.revisions.is_empty() || host.is_none(),
            "{change} is queued in its own queue"
        );
        residency.hosted_in = host;
    }

    /// Marks an enqueue message as in progress.
    pub(super) fn mark_in_progress(&mut self, id: &InboxMessageId) {
        for message in self.inbox.iter_mut().filter(|message| message.id == *id) {
            message.in_progress = true;
        }
    }

    /// Carries out the next landing, as the forge would. Returns whether there was one.
    pub fn land(&mut self) -> bool {
        let Some(id) = self.next_landing() else { return false };
        let landing = self.landings.get_mut(&id).expect("it was found there");
        let project = landing.change.key.project.short_name().to_owned();
        let tip = self.tips.get(&project).cloned().unwrap_or_else(|| "0".to_owned());
        let end = if tip == landing.base.tree.as_str() {
            self.tips.insert(project, landing.tested.tree.to_string());
            self.landed.push(landing.tested.tree.to_string());
            LandingEnd::Landed { commit: landing.tested.clone() }
        } else {
            LandingEnd::BaseMoved { tip: Commit { id: "moved".into(), tree: tip.as_str().into() } }
        };
        landing.state = LandingState::Ended { end, at: self.now };
        true
    }

    /// Delivers the reports that reporter jobs wait for. Returns whether there was one.
    pub fn deliver_reports(&mut self) -> bool {
        let awaited = self
            .reports
            .iter()
            .filter(|report| report.awaited && !self.report_states.contains_key(&report.item));
        let items: Vec<ItemId> = awaited.map(|report| report.item.clone()).collect();
        let made = ReportState::Made { at: self.now };
        self.report_states.extend(items.iter().map(|item| (item.clone(), made.clone())));
        !items.is_empty()
    }

    /// Sends an update that a change was merged by someone else.
    pub fn merge_by_other(&mut self, change: char) {
        let (change, gone) =
            (self.change(change), Some("the change was merged outside this queue".to_owned()));
        self.deliver(InboxMessageKind::ChangeUpdated {
            change,
            gone,
            merged: true,
            needs: None,
            as_of: Timestamp(0),
        });
    }

    /// Ends the next landing in the given way.
    pub fn end_landing(&mut self, end: LandingEnd) {
        let id = self.next_landing().expect("one is to land");
        self.landings.get_mut(&id).expect("it was found there").state =
            LandingState::Ended { end, at: self.now };
    }

    /// Returns the next landing: the first in queue order, since all share a message group.
    fn next_landing(&self) -> Option<ItemId> {
        let is_wanted = |id: &&ItemId| {
            self.landings.get(*id).is_some_and(|landing| landing.state == LandingState::Ordered)
        };
        let in_line = self.head.slots().map(|slot| &slot.id);
        in_line.chain(self.landings.keys()).find(is_wanted).cloned()
    }

    /// Passes and merges everything that can pass, until the queue is at rest.
    pub fn finish(&mut self) -> String {
        self.finish_rounds(100)
    }

    /// Does the same with more rounds, for a queue that takes longer.
    pub fn finish_rounds(&mut self, rounds: usize) -> String {
        let mut outputs = Vec::new();
        for _ in 0..rounds {
            outputs.push(self.run());
            let builds = self.under_way();
            self.pass(&builds.iter().map(|(change, _, _)| *change).collect::<String>());
            let has_reports = self.deliver_reports();
            if !self.land() && builds.is_empty() && !has_reports {
                break;
            }
        }
        outputs.retain(|text| !text.is_empty());
        outputs.join("\n")
    }

    /// Passes and merges the first entry this often.
    pub fn land_rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let first = self.head.entries[0].first().id.clone();
            let first = self.items[&first].candidate.title.clone();
            self.pass(&first);
            self.run();
            self.land();
            self.run();
        }
    }

    /// Returns the comments of all reports.
    pub fn comments(&self) -> Vec<String> {
        let actions = self.reports.iter().flat_map(|report| &report.actions);
        actions
            .filter_map(|action| match action {
                ReportAction::Comment { body, .. } => Some(body.clone()),
                _ => None,
            })
            .collect()
    }
}
