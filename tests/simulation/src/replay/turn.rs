//! One revision, replayed: answers are received, what arrived is taken in, every place is put
//! behind the nearest one that may pass, what is over lands or leaves, and what is missing is asked
//! for and ordered.
//!
//! Written from what Zuul documents of its pipelines (Z6.4, Z6.5), as loops over a list; of
//! `shared/gate` it knows the records alone.

use super::facts::{Facts, Known};
use super::line::{Answer, Line, Place, Stage, Task};
use sluice_gate::{InboxMessage, InboxMessageKind, Item, Job, JobStatus, LandingEnd, SlotStatus};
use sluice_model::build::BuildResult;
use sluice_model::{BuildId, ItemId, QueueKey, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Rounds after which a queue is taken for one that never settles.
const ROUNDS_MAX: usize = 1_000;

/// A revision in the making.
pub(super) struct Turn<'a> {
    pub(super) line: Line,
    pub(super) facts: &'a Facts,
    pub(super) known: &'a Known,
    /// The own queues of what stood here as a guest before.
    pub(super) guests: BTreeSet<QueueName>,
    /// What is for other queues, and is sent there as it is.
    pub(super) sent: Vec<(QueueKey, InboxMessage)>,
    /// What left, with how it ended.
    pub(super) left: BTreeMap<ItemId, String>,
    /// Which states are to land.
    pub(super) landings: BTreeSet<(ItemId, u64)>,
    /// Jobs that are ordered.
    pub(super) orders: BTreeSet<(ItemId, String)>,
    /// Builds that are stopped.
    pub(super) stops: BTreeSet<BuildId>,
    /// Paused builds that are reported to go on.
    pub(super) resumes: BTreeSet<BuildId>,
    /// Builds that were lost, or gave up: that they are stopped is no decision.
    pub(super) lost: BTreeSet<BuildId>,
    /// Answers that were taken for others than merger and executors wrote, and jobs that are kept
    /// waiting for another reason than there is.
    pub(super) misread: Vec<String>,
    /// What was received and decided, in words.
    pub(super) steps: Vec<String>,
}

impl<'a> Turn<'a> {
    /// Returns a revision of a queue that was so before.
    pub(super) fn new(line: Line, facts: &'a Facts, known: &'a Known) -> Self {
        let (sent, left, landings, orders, stops, resumes, lost, misread, steps) =
            Default::default();
        let guests = line.guests();
        Self {
            line,
            facts,
            known,
            guests,
            sent,
            left,
            landings,
            orders,
            stops,
            resumes,
            lost,
            misread,
            steps,
        }
    }

    /// Decides.
    pub(super) fn play(&mut self) {
        self.follow_layout();
        if let Some(to) = self.line.stands_in.clone() {
            return self.send_all_on(&to);
        }
        self.throw_away();
        self.hear_answers();
        self.take_in();
        for _ in 0..ROUNDS_MAX {
            self.align();
            if !self.finish() {
                break;
            }
        }
        self.throw_away();
        self.go_on();
    }

    pub(super) fn step(&mut self, text: String) {
        self.steps.push(text);
    }

    /// Follows a new layout: the window of a queue where nothing stands begins again, and what is
    /// not decided yet is asked for again.
    fn follow_layout(&mut self) {
        let now = self.facts.head.layout;
        if now != self.line.layout {
            self.step(format!("layout {now} is followed, after {}", self.line.layout));
            self.line.layout = now;
            self.line.manager = self.facts.head.manager;
            let initial = self.line.rules.initial;
            if initial == 0 || self.line.window == 0 || self.line.places.is_empty() {
                self.line.window = initial;
            }
        }
        for place in &mut self.line.places {
            if !place.is_decided() && place.layout != now {
                place.answer = Answer::Unasked;
            }
        }
    }

    /// Throws away what is known of states that are no more: builds stop, questions are open again.
    fn throw_away(&mut self) {
        for place in &mut self.line.places {
            if place.known_state >= place.state {
                continue;
            }
            self.stops.extend(place.builds().cloned());
            place.known_state = place.state;
            place.layout = 0;
            place.tree = None;
            place.answer = Answer::Unasked;
            place.tasks.clear();
        }
    }

    fn hear_answers(&mut self) {
        let facts = self.facts;
        for at in 0..self.line.places.len() {
            let place = &self.line.places[at];
            let Some(after) = facts.after(&place.id).filter(|_| place.is_known()) else { continue };
            if after.generation != place.state {
                self.hear_of_another_tree(at);
                continue;
            }
            self.hear_merge(at, after);
            if self.line.places[at].is_known() {
                self.hear_jobs(at, after);
                self.cut_short(at);
            }
        }
    }

    /// Hears of a state that was frozen again and merges to another tree: its branch moved, so that
    /// it is tested again, with those that need it. Its record shows of that no more.
    fn hear_of_another_tree(&mut self, at: usize) {
        let place = &self.line.places[at];
        let reported = self.known.tree(&place.id, place.state, self.line.layout);
        let is_other = reported
            .is_some_and(|reported| place.tree.as_ref().is_some_and(|tree| tree != reported));
        if is_other && place.answer == Answer::Asked {
            self.begin_again(at, "its branch moved while it was frozen again");
        }
    }

    /// Has what needs each other at a position tested again.
    fn begin_again(&mut self, at: usize, why: &str) {
        for at in self.line.bundle(at) {
            let place = &mut self.line.places[at];
            place.state += 1;
            place.standing = SlotStatus::Waiting;
            let text = format!("{} is tested again, in state {}: {why}", place.change, place.state);
            self.steps.push(text);
        }
    }

    fn hear_merge(&mut self, at: usize, after: &Item) {
        let layout = self.line.layout;
        let place = &mut self.line.places[at];
        let said = Answer::of(&after.merge_status);
        if place.answer != Answer::Asked || matches!(said, Answer::Unasked | Answer::Asked) {
            return;
        }
        place.layout = layout;
        let change = place.change.clone();
        let Some(merged) = after.merged() else {
            self.stops.extend(place.builds().cloned());
            place.tasks.clear();
            place.answer = said;
            place.begins_as(SlotStatus::Failing);
            return self.step(format!("{change} cannot be tested"));
        };
        let tree = merged.tested.tree.clone();
        if place.tree.as_ref().is_some_and(|before| *before != tree) {
            return self.begin_again(at, "its branch moved while it was frozen again");
        }
        let reported = self.known.tree(&place.id, place.state, layout);
        if reported != Some(&tree) {
            self.misread.push(format!(
                "{change} was received to merge as {tree}, and the merger wrote {reported:?}"
            ));
        }
        place.tree = Some(tree.clone());
        place.answer = said;
        let mut before = std::mem::take(&mut place.tasks);
        for job in &merged.jobs {
            let (name, hash) = (job.name.as_str(), job.hash.as_str());
            let same = before.iter().position(|task| task.name == name && task.hash == hash);
            place.tasks.push(match same {
                Some(at) => before.remove(at),
                None => Task {
                    name: name.to_owned(),
                    hash: hash.to_owned(),
                    voting: job.voting,
                    reporter: job.reporter,
                    holds: job.hold_following_changes,
                    dependencies: job.dependencies.clone(),
                    stage: Stage::Waiting,
                },
            });
        }
        for task in &before {
            self.stops.extend(task.stage.build().cloned());
            // What ran beside a paused build that is gone runs again beside the next one.
            if task.is_paused() && place.tasks.iter().any(|new| new.name == task.name) {
                self.stops.extend(place.begin_again_beside(&task.name));
            }
        }
        // An operator's word that is received right after moves nothing before what has begun.
        place.begins_as(SlotStatus::Testing);
        self.step(format!("{change} merges as tree {}", tree.short()));
    }

    /// Hears what became of builds, as the item's record says it was received.
    fn hear_jobs(&mut self, at: usize, after: &Item) {
        let has_left = !self.facts.items.contains_key(&after.id);
        let place = &mut self.line.places[at];
        let is_reported = place.standing == SlotStatus::Reporting;
        let change = place.change.clone();
        let known = self.known;
        // What fails fast ends what is known to fail with the rest: then the item's record does not
        // show which that was.
        let failed = |job: &Job| {
            let is_own = |result: BuildResult| result != BuildResult::Aborted && !result.passed();
            job.summary.voting
                && job
                    .result()
                    .is_some_and(|result| is_own(result) && result != BuildResult::Skipped)
        };
        let is_failure = self.facts.left.get(&after.id).is_none_or(|set| set.result == "FAILURE");
        let fails_fast =
            place.merges().is_some_and(|merges| merges.fail_fast) && place.cycle.is_empty();
        let is_cut_for_one = fails_fast && is_failure && !after.jobs.iter().any(failed);
        let wrote = |build: Option<&BuildId>| build.and_then(|build| known.result(build));
        let mut choices: Vec<(String, &[String])> = Vec::new();
        for nth in 0..place.tasks.len() {
            let task = &place.tasks[nth];
            let (name, own, was_paused) =
                (task.name.clone(), task.stage.build().cloned(), task.is_paused());
            let Some(job) = after.jobs.iter().find(|job| job.summary.name.as_str() == task.name)
            else {
                continue;
            };
            let next = match (&task.stage, &job.status) {
                (Stage::Ended(_), _) => continue,
                // The one that takes a change out, or has it fail fast, ends its jobs so.
                (
                    Stage::UnderWay { .. } | Stage::Paused { .. },
                    JobStatus::Ended { result: BuildResult::Aborted, .. },
                ) if has_left || wrote(own.as_ref()) != Some(BuildResult::Aborted) => {
                    let will_fail = own.as_ref().is_some_and(|build| known.will_fail(build));
                    if !is_cut_for_one || !will_fail || was_paused {
                        continue;
                    }
                    Stage::UnderWay { build: own.clone(), will_fail }
                }
                // It was lost, and before it was attempted again nothing of the change was to run
                // any more.
                (
                    Stage::UnderWay { .. } | Stage::Paused { .. },
                    JobStatus::Ended { result: BuildResult::Skipped, .. },
                ) => {
                    self.lost.extend(own.clone());
                    Stage::Waiting
                }
                // Likewise, and what it requires was not made: no one ran it to its end.
                (
                    Stage::UnderWay { .. } | Stage::Paused { .. },
                    JobStatus::Ended { result: BuildResult::Failure, .. },
                ) if !job.summary.requires.is_empty() && wrote(own.as_ref()).is_none() => {
                    self.lost.extend(own.clone());
                    Stage::Waiting
                }
                // What is skipped is a decision; but for what would have run after a report that
                // was refused.
                (Stage::Waiting, JobStatus::Ended { result: BuildResult::Skipped, .. })
                    if is_reported && task.reporter =>
                {
                    Stage::Ended(BuildResult::Skipped)
                }
                (Stage::Waiting, _) => continue,
                (Stage::UnderWay { .. } | Stage::Paused { .. }, status) => {
                    let is_same = job.build == own;
                    match status {
                        JobStatus::Ended { result, .. } if is_same => Stage::Ended(*result),
                        // It stays so until it is over or lost. Whether it goes on is decided.
                        JobStatus::Ordered { .. }
                        | JobStatus::Running { .. }
                        | JobStatus::Paused { .. }
                            if is_same && was_paused =>
                        {
                            continue;
                        }
                        JobStatus::Running { pre_fail, .. } if is_same => {
                            Stage::UnderWay { build: own.clone(), will_fail: *pre_fail }
                        }
                        JobStatus::Paused { .. } if is_same => {
                            Stage::Paused { build: own.clone(), goes_on: false }
                        }
                        JobStatus::Ordered { .. } if is_same => continue,
                        // Lost, given up, or without nodes: it is to be attempted again.
                        _ => {
                            self.lost.extend(own.clone());
                            Stage::Waiting
                        }
                    }
                }
            };
            if next == task.stage {
                continue;
            }
            // A build that no one can carry out, or that was lost once too often, is let go with
            // its end.
            if let (Stage::UnderWay { .. } | Stage::Paused { .. }, Stage::Ended(result)) =
                (&task.stage, &next)
            {
                let reported = wrote(own.as_ref());
                // These two say what became of a build that no executor ended.
                let is_own = matches!(result, BuildResult::RetryLimit | BuildResult::NodeFailure);
                if !is_own && reported != Some(*result) {
                    let text = format!(
                        "{name} of {change} was received to end as {result}, and its executor wrote {reported:?}"
                    );
                    self.misread.push(text);
                }
                self.lost.extend(own.clone());
            }
            let text = match &next {
                Stage::Ended(result) => format!("{name} of {change} ended: {result}"),
                Stage::UnderWay { .. } => format!("{name} of {change} will fail, or runs"),
                Stage::Paused { .. } => format!("{name} of {change} is paused"),
                Stage::Waiting => {
                    format!("{name} of {change} is lost, and is to be attempted again")
                }
            };
            self.steps.push(text);
            let chosen = match &next {
                Stage::Ended(BuildResult::Success) => {
                    own.as_ref().and_then(|build| known.chosen(build))
                }
                Stage::Paused { .. } => own.as_ref().and_then(|build| known.chosen_at_pause(build)),
                _ => None,
            };
            choices.extend(chosen.map(|chosen| (name.clone(), chosen)));
            if matches!(next, Stage::Paused { .. })
                && !own.as_ref().is_some_and(|build| known.was_paused(build))
            {
                self.misread.push(format!(
                    "{name} of {change} was received to be paused, which its executor never wrote"
                ));
            }
            let is_lost = was_paused && next == Stage::Waiting;
            place.tasks[nth].stage = next;
            if is_lost {
                self.steps.push(format!("what ran beside {name} of {change} begins again"));
                self.stops.extend(place.begin_again_beside(&name));
            }
        }
        for (name, chosen) in choices {
            self.choose(at, &name, chosen);
        }
    }

    /// Takes in what arrived: operators' words first, then what forges and other pipelines tell, of
    /// each change in the order of its forge's clock.
    fn take_in(&mut self) {
        let facts = self.facts;
        let is_word = |arrival: &InboxMessage| {
            matches!(
                arrival.kind,
                InboxMessageKind::Dequeue { .. }
                    | InboxMessageKind::Promote { .. }
                    | InboxMessageKind::Resume { .. }
            )
        };
        for (_, arrival) in facts.taken.iter().filter(|(_, arrival)| is_word(arrival)) {
            self.hear_word(arrival);
        }
        // News that wait behind others of their change, and by which it leaves all the same.
        let has_left = |arrival: &InboxMessage| {
            let InboxMessageKind::ChangeUpdated { change, .. } = &arrival.kind else {
                return false;
            };
            let mut left = facts.left.values();
            left.any(|set| set.item.candidate.change.key == change.key && set.result == "DEQUEUED")
        };
        let others = facts.taken.iter().filter(|(_, arrival)| !is_word(arrival));
        let mut all: Vec<(&String, &InboxMessage, bool)> =
            others.map(|(key, arrival)| (key, arrival, true)).collect();
        let kept = facts.waiting.iter().filter(|(_, arrival)| has_left(arrival));
        all.extend(kept.map(|(key, arrival)| (key, arrival, false)));
        all.sort_by_key(|(key, ..)| *key);
        let all = all.into_iter().map(|(_, arrival, is_taken)| (arrival, is_taken)).collect();
        for (arrival, is_taken) in by_their_forges_clock(all) {
            if is_taken || self.takes_out(arrival) {
                self.hear_arrival(arrival);
            }
        }
    }

    /// Puts each place behind the nearest one ahead of it, or its bundle behind the nearest, that
    /// is not failing; where that is another one than before, or in another state, it is tested
    /// again. A bundle fails as a whole.
    fn align(&mut self) {
        let mut nearest: Option<(ItemId, u64)> = None;
        let mut start = 0;
        while start < self.line.places.len() {
            let bundle = self.line.bundle(start);
            let (first, last) = (start, bundle.end - 1);
            start = bundle.end;
            if self.line.places[first].standing == SlotStatus::Reporting {
                continue;
            }
            if self.line.places[first].is_landing() {
                nearest = Some(self.line.places[last].name());
                continue;
            }
            let wanted = nearest.clone().filter(|_| self.line.is_dependent());
            for at in bundle.clone() {
                if self.line.places[at].ahead != wanted {
                    self.test_on(at, wanted.clone());
                }
            }
            let fails = bundle.clone().any(|at| self.fails(at, first));
            for at in bundle.clone() {
                self.line.places[at].standing = self.standing(at, fails, bundle.len() > 1);
            }
            if !fails {
                nearest = Some(self.line.places[last].name());
            }
        }
    }

    fn test_on(&mut self, at: usize, wanted: Option<(ItemId, u64)>) {
        let onto = match &wanted {
            None => "its branch as it is".to_owned(),
            Some((id, state)) => {
                let found =
                    self.line.position(id).map(|at| self.line.places[at].change.to_string());
                format!("{}, in state {state}", found.unwrap_or_else(|| id.to_string()))
            }
        };
        let place = &mut self.line.places[at];
        place.ahead = wanted;
        let begins_again = place.is_known() && place.has_begun();
        place.state += u64::from(begins_again);
        let how = if begins_again { "again " } else { "" };
        let text =
            format!("{} is to be tested {how}on {onto}, in state {}", place.change, place.state);
        self.step(text);
    }

    /// Returns whether a place whose bundle begins at `start` is known not to pass as it stands.
    fn fails(&self, at: usize, start: usize) -> bool {
        let place = &self.line.places[at];
        let needs_fail = || {
            let ahead = &self.line.places[..start];
            let fails = |place: &&Place| place.standing == SlotStatus::Failing;
            ahead.iter().filter(fails).any(|ahead| {
                let mut needs = place.needs.iter();
                needs.any(|need| need.key == ahead.change.key && !self.line.has_landed(need))
            })
        };
        place.fails_by_itself()
            || (self.line.is_dependent()
                && (place.is_let_go || needs_fail() || self.line.is_lost(at)))
    }

    fn standing(&self, at: usize, fails: bool, is_in_bundle: bool) -> SlotStatus {
        let place = &self.line.places[at];
        if fails {
            SlotStatus::Failing
        } else if place.is_known()
            && place.is_complete()
            && (is_in_bundle || place.deciding().next().is_some())
        {
            SlotStatus::Passed
        } else if place.is_known() && place.merges().is_some() {
            SlotStatus::Testing
        } else {
            SlotStatus::Waiting
        }
    }

    /// Returns how the landing of a place ended, where the decision shows that this was received.
    pub(super) fn end_of(&self, at: usize) -> Option<LandingEnd> {
        let place = &self.line.places[at];
        let end = self.known.end(&place.id, place.state)?;
        let slot = self.facts.head.slots.iter().find(|slot| slot.id == place.id);
        let is_received = match slot {
            None => true,
            Some(slot) if slot.status != SlotStatus::Landing || slot.generation != place.state => {
                true
            }
            Some(_) => self.facts.head.halted.is_some() && freezes(end, self.line.bundle(at), at),
        };
        is_received.then(|| end.clone())
    }

    /// Asks for states and orders builds, of what is within the window and as far as what is ahead
    /// allows.
    fn go_on(&mut self) {
        if self.line.is_frozen {
            return;
        }
        let is_held = self.line.places.iter().any(|place| place.standing == SlotStatus::Reporting);
        let begins_until = self.begins_until();
        // By which job what is behind a place is held: its own, or the one by which it is held
        // itself.
        let mut holding: BTreeMap<ItemId, String> = BTreeMap::new();
        for at in 0..self.line.worked_on() {
            let place = &self.line.places[at];
            if !place.is_known() {
                continue;
            }
            let held_by = place.ahead.as_ref().and_then(|(ahead, _)| holding.get(ahead)).cloned();
            match self.line.places[at].standing {
                SlotStatus::Landing | SlotStatus::AwaitingLanding | SlotStatus::Landed => {}
                SlotStatus::Reporting => self.order_jobs(at, None),
                _ if is_held && at >= begins_until => {}
                _ => {
                    self.ask(at);
                    self.order_jobs(at, held_by.as_deref());
                }
            }
            let place = &self.line.places[at];
            // What is behind a bundle is behind all of it.
            let before = at
                .checked_sub(1)
                .filter(|_| place.joined)
                .map(|before| &self.line.places[before].id);
            let of_bundle = before.and_then(|before| holding.get(before)).cloned();
            if let Some(job) = place.holds().map(str::to_owned).or(held_by).or(of_bundle) {
                holding.insert(place.id.clone(), job);
            }
        }
        // What was skipped just now is over, too.
        self.resume();
    }

    /// Asks for the state of a place once there is one of what it is tested on.
    fn ask(&mut self, at: usize) {
        if self.line.places[at].answer != Answer::Unasked {
            return;
        }
        let first = self.line.bundle(at).start;
        let has_state =
            |below: &Place, state: u64| below.known_state == state && below.merges().is_some();
        let may = match (first < at, &self.line.places[at].ahead) {
            (true, _) => {
                // The first of a bundle has all of it put together.
                let first = &self.line.places[first];
                has_state(first, first.state) && first.layout == self.line.layout
            }
            (false, None) => true,
            (false, Some((id, state))) => {
                self.line.position(id).is_some_and(|at| has_state(&self.line.places[at], *state))
            }
        };
        if may {
            let layout = self.line.layout;
            let place = &mut self.line.places[at];
            (place.answer, place.layout) = (Answer::Asked, layout);
            let text = format!("the state {} of {} is asked for", place.state, place.change);
            self.step(text);
        }
    }
}

/// Returns whether the end of a landing at a position of a bundle freezes its queue.
fn freezes(end: &LandingEnd, bundle: Range<usize>, at: usize) -> bool {
    match end {
        LandingEnd::Mismatch { .. } | LandingEnd::Unproven { .. } => true,
        LandingEnd::BaseMoved { .. }
        | LandingEnd::MergedElsewhere { .. }
        | LandingEnd::Refused { .. } => at > bundle.start,
        LandingEnd::Landed { .. } => false,
    }
}

/// Puts news of a change behind an offer of it that its forge's clock says is older.
fn by_their_forges_clock(mut all: Vec<(&InboxMessage, bool)>) -> Vec<(&InboxMessage, bool)> {
    let is_older = |offer: &InboxMessage, news: &InboxMessage| {
        let (
            InboxMessageKind::Enqueue { candidates },
            InboxMessageKind::ChangeUpdated { change, as_of, .. },
        ) = (&offer.kind, &news.kind)
        else {
            return false;
        };
        candidates
            .iter()
            .any(|one| one.change.key == change.key && one.as_of.0 > 0 && one.as_of < *as_of)
    };
    let mut at = 0;
    while at < all.len() {
        match (at + 1..all.len()).rev().find(|behind| is_older(all[*behind].0, all[at].0)) {
            Some(behind) => {
                let news = all.remove(at);
                all.insert(behind, news);
            }
            None => at += 1,
        }
    }
    all
}
