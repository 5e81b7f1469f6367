//! How what a queue does comes to its end on the bench: landings, whole runs, what people read of
//! them.

use super::*;
use crate::branch_lock::BranchLock;

impl Bench {
    /// Returns how many branches a plan takes from holders of other queues, each on condition that
    /// its landing is as it was read.
    pub(super) fn passed_by(&self, plan: &QueuePlan) -> usize {
        let is_taken = |turn: &&BranchLock| {
            let before = self.turns.get(&turn.branch).and_then(|seen| seen.lock.holder.as_ref());
            before.is_some_and(|holder| {
                holder.queue != self.head.key && turn.holder.as_ref() != Some(holder)
            })
        };
        plan.branch_locks.iter().filter(is_taken).count()
    }

    /// Has the own queues of guests say where those stand.
    pub(super) fn stand(&mut self, doors: BTreeMap<ChangeKey, Option<sluice_model::QueueName>>) {
        for (change, stands_in) in doors {
            let door = self.doors.get_mut(&change).expect("what is written was read");
            assert!(
                door.revisions.is_empty() || stands_in.is_none(),
                "{change} stands in its own queue"
            );
            door.hosted_in = stands_in;
        }
    }

    /// Has offers say that they are taken up.
    pub(super) fn take_up(&mut self, offers: &BTreeSet<InboxMessageId>) {
        for offer in self.arrivals.iter_mut().filter(|arrival| offers.contains(&arrival.id)) {
            offer.in_progress = true;
        }
    }

    /// Carries out the landing that is wanted, as a forge would. Returns whether there was one.
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

    /// Makes the reports that last jobs wait for. Returns whether there was one.
    pub fn make_reports(&mut self) -> bool {
        let awaited = self
            .reports
            .iter()
            .filter(|report| report.awaited && !self.told.contains_key(&report.item));
        let items: Vec<ItemId> = awaited.map(|report| report.item.clone()).collect();
        let made = ReportState::Made { at: self.now };
        self.told.extend(items.iter().map(|item| (item.clone(), made.clone())));
        !items.is_empty()
    }

    /// Tells of a change that somebody else merged.
    pub fn merged_outside(&mut self, change: char) {
        let (change, gone) =
            (self.change(change), Some("the change was merged by somebody else".to_owned()));
        self.arrive(InboxMessageKind::ChangeUpdated {
            change,
            gone,
            merged: true,
            needs: None,
            as_of: Timestamp(0),
        });
    }

    /// Ends the landing that is wanted in another way.
    pub fn end_landing(&mut self, end: LandingEnd) {
        let id = self.next_landing().expect("one is to land");
        self.landings.get_mut(&id).expect("it was found there").state =
            LandingState::Ended { end, at: self.now };
    }

    /// Returns the landing that is wanted; of several the first in the queue, for they share a
    /// message group.
    fn next_landing(&self) -> Option<ItemId> {
        let is_wanted = |id: &&ItemId| {
            self.landings.get(*id).is_some_and(|landing| landing.state == LandingState::Ordered)
        };
        let in_line = self.head.slots.iter().map(|slot| &slot.id);
        in_line.chain(self.landings.keys()).find(is_wanted).cloned()
    }

    /// Passes and lands whatever passes and lands, to the end.
    pub fn finish(&mut self) -> String {
        self.finish_rounds(100)
    }

    /// The same, for a queue that takes longer.
    pub fn finish_rounds(&mut self, rounds: usize) -> String {
        let mut told = Vec::new();
        for _ in 0..rounds {
            told.push(self.run());
            let builds = self.under_way();
            self.pass(&builds.iter().map(|(change, _, _)| *change).collect::<String>());
            let has_told = self.make_reports();
            if !self.land() && builds.is_empty() && !has_told {
                break;
            }
        }
        told.retain(|text| !text.is_empty());
        told.join("\n")
    }

    /// Passes and lands this often what is first.
    pub fn land_rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let first = self.head.slots[0].id.clone();
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
