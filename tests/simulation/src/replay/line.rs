//! A queue as the model has it: a plain list of places, and what is known of each.

use super::facts::Facts;
use crate::scenarios::lands;
use crate::windows::Window;
use sluice_config::pipeline::Manager;
use sluice_gate::{Item, Job, JobStatus, MergeStatus, SlotStatus};
use sluice_model::build::BuildResult;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::git::Oid;
use sluice_model::job::JobDependency;
use sluice_model::{BuildId, ItemId, QueueKey, QueueName, Timestamp};
use std::collections::VecDeque;
use std::ops::Range;

/// Steps of a queue that are kept, for the one that wants to understand a difference.
const STEPS_MAX: usize = 80;

/// A queue.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) key: QueueKey,
    pub(super) manager: Manager,
    pub(super) rules: Window,
    /// How many bundles are worked on; 0 for all.
    pub(super) window: u32,
    pub(super) layout: u64,
    pub(super) is_frozen: bool,
    /// Whether a success in its pipeline is put into its branch.
    pub(super) lands: bool,
    pub(super) places: Vec<Place>,
    /// The queue in which the change stands that this one is the own queue of, as one with others.
    pub(super) stands_in: Option<QueueName>,
    /// What landed, with how its head begins where a push brought it: its forge takes no other
    /// revision for merged.
    pub(super) landed: Vec<(ChangeKey, String)>,
    /// What was replayed last, oldest first.
    pub(super) steps: VecDeque<String>,
}

/// A change in a queue.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) id: ItemId,
    pub(super) change: ChangeRef,
    pub(super) needs: Vec<ChangeRef>,
    /// The revisions that it came to be tested on, each with as of when it was known so.
    pub(super) below: Vec<(ChangeRef, Timestamp)>,
    pub(super) cycle: Vec<ChangeKey>,
    /// Those that need it as much as it needs them where each is tested for itself.
    pub(super) mates: Vec<ChangeKey>,
    /// As of when it is known so.
    pub(super) as_of: Timestamp,
    /// Whether it needs the one before it as much as that one needs it.
    pub(super) joined: bool,
    /// Whether it is to leave, since it and others came to need each other.
    pub(super) is_let_go: bool,
    /// Counts the states it was to be tested in.
    pub(super) state: u64,
    /// What that is on top of; the branch where `None`.
    pub(super) ahead: Option<(ItemId, u64)>,
    pub(super) standing: SlotStatus,
    /// The state that all below is about.
    pub(super) known_state: u64,
    pub(super) layout: u64,
    pub(super) answer: Answer,
    /// The tree that it was tested as in this state, by whatever layout.
    pub(super) tree: Option<Oid>,
    pub(super) tasks: Vec<Task>,
    pub(super) is_in_branch: bool,
}

/// What the merger said of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// No one asked.
    Unasked,
    Asked,
    Merges(Merges),
    /// It cannot be tested: its configuration is wrong, or it does not merge.
    Cannot {
        configuration: bool,
    },
}

/// A state that merges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Merges {
    pub(super) base: Oid,
    pub(super) tested: Oid,
    /// Whether the branch could be moved to what was tested.
    pub(super) kept: bool,
    pub(super) configures: bool,
    /// Whether the first job that fails ends the others.
    pub(super) fail_fast: bool,
}

/// A job of a change.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) hash: String,
    pub(super) voting: bool,
    /// Whether it runs after the report.
    pub(super) reporter: bool,
    /// Whether what is behind its change begins nothing before it has passed.
    pub(super) holds: bool,
    pub(super) dependencies: Vec<JobDependency>,
    pub(super) stage: Stage,
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    UnderWay {
        build: Option<BuildId>,
        will_fail: bool,
    },
    /// Its executor keeps it until all behind it is over; whether it was reported to go on.
    Paused {
        build: Option<BuildId>,
        goes_on: bool,
    },
    Ended(BuildResult),
}

impl Stage {
    /// Returns the build that is under way, paused or not.
    pub(super) fn build(&self) -> Option<&BuildId> {
        match self {
            Self::UnderWay { build, .. } | Self::Paused { build, .. } => build.as_ref(),
            Self::Waiting | Self::Ended(_) => None,
        }
    }
}

impl Task {
    /// Returns a job as a record has it.
    pub(super) fn of(job: &Job) -> Self {
        let summary = &job.summary;
        let stage = match &job.status {
            JobStatus::Waiting => Stage::Waiting,
            JobStatus::Ordered { .. } => {
                Stage::UnderWay { build: job.build.clone(), will_fail: false }
            }
            JobStatus::Paused { resumed, .. } => {
                Stage::Paused { build: job.build.clone(), goes_on: *resumed }
            }
            JobStatus::Running { pre_fail, .. } => {
                Stage::UnderWay { build: job.build.clone(), will_fail: *pre_fail }
            }
            JobStatus::Ended { result, .. } => Stage::Ended(*result),
        };
        Self {
            name: summary.name.as_str().to_owned(),
            hash: summary.hash.clone(),
            voting: summary.voting,
            reporter: summary.reporter,
            holds: summary.hold_following_changes,
            dependencies: summary.dependencies.clone(),
            stage,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ended(_))
    }

    pub(super) fn is_paused(&self) -> bool {
        matches!(self.stage, Stage::Paused { .. })
    }

    /// Returns whether it was run and did not pass.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.stage, Stage::Ended(result) if result != BuildResult::Success && result != BuildResult::Skipped)
    }

    /// Returns whether its change does not pass, as far as it goes: a build may tell so before its
    /// end.
    pub(super) fn fails_change(&self) -> bool {
        let will_fail = matches!(self.stage, Stage::UnderWay { will_fail: true, .. });
        self.voting && !self.reporter && (will_fail || self.has_failed())
    }
}

impl Place {
    /// Takes up this standing, where it had none before.
    pub(super) fn begins_as(&mut self, standing: SlotStatus) {
        if self.standing == SlotStatus::Waiting {
            self.standing = standing;
        }
    }

    /// Returns a change that has just come.
    pub(super) fn new(id: ItemId, change: ChangeRef, joined: bool) -> Self {
        Self {
            id,
            change,
            needs: Vec::new(),
            below: Vec::new(),
            cycle: Vec::new(),
            mates: Vec::new(),
            as_of: Timestamp::default(),
            joined,
            is_let_go: false,
            state: 1,
            ahead: None,
            standing: SlotStatus::Waiting,
            known_state: 1,
            layout: 0,
            answer: Answer::Unasked,
            tree: None,
            tasks: Vec::new(),
            is_in_branch: false,
        }
    }

    /// Returns its name and state, as what is behind it names it.
    pub(super) fn name(&self) -> (ItemId, u64) {
        (self.id.clone(), self.state)
    }

    /// Returns whether what is known of it is about the state that it is in.
    pub(super) fn is_known(&self) -> bool {
        self.known_state == self.state
    }

    /// Returns whether it is being put into its branch, so that only the end of that shows what
    /// becomes of it.
    pub(super) fn is_landing(&self) -> bool {
        matches!(
            self.standing,
            SlotStatus::Landing | SlotStatus::AwaitingLanding | SlotStatus::Landed
        )
    }

    /// Returns whether nothing but its landing, or its last jobs, shows any more what becomes of
    /// it.
    pub(super) fn is_decided(&self) -> bool {
        self.is_landing() || self.standing == SlotStatus::Reporting
    }

    /// Returns whether another state would throw something away.
    pub(super) fn has_begun(&self) -> bool {
        self.answer != Answer::Unasked || self.layout != 0 || !self.tasks.is_empty()
    }

    pub(super) fn merges(&self) -> Option<&Merges> {
        match &self.answer {
            Answer::Merges(merges) => Some(merges),
            _ => None,
        }
    }

    /// Returns the jobs that decide about it.
    pub(super) fn deciding(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().filter(|task| !task.reporter)
    }

    pub(super) fn has_last_jobs_left(&self) -> bool {
        self.tasks.iter().any(|task| task.reporter && !task.is_over())
    }

    /// Returns the job by which it keeps what is behind it from beginning, if one does.
    pub(super) fn holds(&self) -> Option<&str> {
        let holds = |task: &&Task| task.holds && task.stage != Stage::Ended(BuildResult::Success);
        self.tasks.iter().find(holds).map(|task| task.name.as_str())
    }

    /// Returns whether nothing more is awaited that decides about it.
    pub(super) fn is_complete(&self) -> bool {
        match &self.answer {
            Answer::Cannot { .. } => true,
            Answer::Merges(_) => self.deciding().all(Task::is_over),
            Answer::Unasked | Answer::Asked => false,
        }
    }

    /// Returns whether it is known not to pass by itself.
    pub(super) fn fails_by_itself(&self) -> bool {
        self.is_known()
            && (matches!(self.answer, Answer::Cannot { .. })
                || self.tasks.iter().any(Task::fails_change))
    }

    /// Returns the builds that are under way for it.
    pub(super) fn builds(&self) -> impl Iterator<Item = &BuildId> {
        self.tasks.iter().filter_map(|task| task.stage.build())
    }

    /// Takes what a record says of it for true.
    fn believe(&mut self, item: &Item) {
        let candidate = &item.candidate;
        self.needs = candidate.needs.iter().map(|need| need.change.clone()).collect();
        self.below = candidate.needs.iter().map(|need| (need.change.clone(), need.as_of)).collect();
        self.cycle.clone_from(&candidate.bundle);
        self.mates.clone_from(&candidate.cycle_needs);
        self.as_of = candidate.as_of;
        self.is_let_go = candidate.refused.is_some();
        self.known_state = item.generation;
        self.layout = item.layout;
        self.tree.clone_from(&item.tested_tree);
        self.is_in_branch = item.landed.is_some();
        self.tasks = item.jobs.iter().map(Task::of).collect();
        self.answer = Answer::of(&item.merge_status);
    }
}

impl Answer {
    /// Returns an answer as a record has it.
    pub(super) fn of(ask: &MergeStatus) -> Self {
        match ask {
            MergeStatus::NotRequested => Self::Unasked,
            MergeStatus::Requested { .. } => Self::Asked,
            MergeStatus::Merged(merged) => Self::Merges(Merges {
                base: merged.base.id.clone(),
                tested: merged.tested.id.clone(),
                kept: merged.can_fast_forward,
                configures: merged.touches_configuration,
                fail_fast: merged.fail_fast,
            }),
            MergeStatus::Unmergeable { configuration, .. } => {
                Self::Cannot { configuration: *configuration }
            }
        }
    }
}

impl Line {
    /// Returns a queue to which nothing has come.
    pub(super) fn new(key: QueueKey, manager: Manager, layout: u64, rules: Window) -> Self {
        Self {
            lands: lands(key.pipeline.as_str()),
            window: rules.initial,
            key,
            manager,
            rules,
            layout,
            is_frozen: false,
            places: Vec::new(),
            stands_in: None,
            landed: Vec::new(),
            steps: VecDeque::new(),
        }
    }

    /// Takes what was decided for true, where that cannot be reported from facts.
    pub(super) fn believe(&mut self, facts: &Facts) {
        let head = &facts.head;
        (self.manager, self.window, self.layout) = (head.manager, head.window, head.layout);
        self.is_frozen = head.halted.is_some();
        self.stands_in.clone_from(&head.hosted_in);
        let heads = head.landed_heads.iter().cloned().chain(std::iter::repeat(String::new()));
        self.landed = head.landed.iter().cloned().zip(heads).collect();
        let believed = head.slots.iter().map(|slot| {
            let mut place = Place::new(slot.id.clone(), slot.change.clone(), slot.joined);
            if let Some(item) = facts.items.get(&slot.id) {
                place.believe(item);
            }
            (place.state, place.standing) = (slot.generation, slot.status);
            place.ahead = slot.ahead.as_ref().map(|ahead| (ahead.item.clone(), ahead.generation));
            place
        });
        self.places = believed.collect();
    }

    /// Remembers what was replayed.
    pub(super) fn remember(&mut self, steps: &[String]) {
        self.steps.extend(steps.iter().cloned());
        let more = self.steps.len().saturating_sub(STEPS_MAX);
        drop(self.steps.drain(..more));
    }

    pub(super) fn is_dependent(&self) -> bool {
        self.manager == Manager::Dependent
    }

    pub(super) fn position(&self, id: &ItemId) -> Option<usize> {
        self.places.iter().position(|place| place.id == *id)
    }

    pub(super) fn position_of(&self, change: &ChangeRef) -> Option<usize> {
        self.places.iter().position(|place| place.change == *change)
    }

    /// Returns the positions of those that need each other, one of which stands there.
    pub(super) fn bundle(&self, position: usize) -> Range<usize> {
        let mut start = position;
        while start > 0 && self.places[start].joined {
            start -= 1;
        }
        let mut end = position + 1;
        while end < self.places.len() && self.places[end].joined {
            end += 1;
        }
        start..end
    }

    /// Returns how many places are worked on: as many bundles as the window is wide.
    pub(super) fn worked_on(&self) -> usize {
        let mut bundles = 0;
        for (at, place) in self.places.iter().enumerate() {
            if at == 0 || !place.joined {
                bundles += 1;
            }
            if self.window > 0 && bundles > self.window {
                return at;
            }
        }
        self.places.len()
    }

    pub(super) fn has_landed(&self, change: &ChangeRef) -> bool {
        let is_it = |(key, head): &(ChangeKey, String)| {
            *key == change.key && change.head.as_str().starts_with(head)
        };
        self.landed.iter().any(is_it)
    }

    /// Returns whether something that a place needs is neither before it, or in its bundle, nor
    /// landed.
    pub(super) fn is_lost(&self, position: usize) -> bool {
        let end = self.bundle(position).end;
        self.places[position].needs.iter().any(|need| {
            let is_before = self.places[..end].iter().any(|place| place.change == *need);
            !is_before && !self.has_landed(need)
        })
    }
}
