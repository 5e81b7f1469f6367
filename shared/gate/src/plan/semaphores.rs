//! Semaphores: taken before a build is ordered, all that it needs or none, and given back when it
//! is known to be over.
//!
//! Foreign to the queue's cell, a semaphore is reserved: its record is written with the plan, on
//! condition that nobody wrote it since it was read. A build that was told to stop may still run
//! for a while; it holds on until its run is over.
//!
//! Whoever waits stands in the line of everything that he waits for, and a place that is free is
//! kept for those before him: a job that needs several semaphores is not passed by for ever by
//! those that need one, nor a queue by one that has many jobs. All lines go by one order, and what
//! runs ends, so whoever is first of all gets what he needs. Two are not kept waiting by those who
//! have nothing, for others may wait for what they have: a job beside a paused build takes what is
//! free, and one that has its nodes already (`resources-first`) waits only for those before it that
//! have theirs. That nobody who has nothing is passed by for ever either, such a job does not ask
//! for nodes while those who stand in line without any, and asked before it, need all that is left:
//! whoever asked for his before them goes first.
//!
//! Who has his nodes may wait for one who holds the semaphore and waits for those very nodes.
//! Neither would ever end, so he who can do without what he has gives it back: his job takes its
//! semaphores before its nodes from then on, and keeps its place in line.

use super::{RunSeen, Stop, Work};
use crate::item::{Item, Job};
use crate::semaphore::{Asked, Hands, Holder, Semaphore, SemaphoreKey, WAITING_MAX, Waiter};
use sluice_model::{BuildId, Timestamp};
use std::collections::BTreeSet;

/// Queues that are told of free places at once; those behind them find out when they look by
/// themselves.
const WOKEN_MAX: usize = 20;

/// Seconds for which everybody who holds a semaphore does nothing with it before those give their
/// nodes back that wait for it with nodes in hand. Machines take minutes to start, so that who
/// waits for one is no sign of anything before.
const GIVE_BACK_SECONDS: u64 = 300;

/// What a job may do now as far as semaphores go.
pub(super) enum Permit {
    /// It holds all that it needs.
    Granted,
    /// It waits for the one that is named.
    Waits(SemaphoreKey),
}

/// A job of this queue that waits, as it was come to in this plan.
pub(super) struct InLine {
    key: SemaphoreKey,
    since: Timestamp,
    hands: Hands,
}

impl Work<'_> {
    /// Takes every semaphore that a job names for one of its builds, or none of them (N16).
    pub(super) fn acquire(&mut self, item: &Item, at: usize, build: &BuildId) -> Permit {
        let wanted = self.named_by(item, at);
        let since = item.jobs[at].asked_at.unwrap_or(self.now);
        let hands = hands_of(&item.jobs[at]);
        if let Some(key) = self.blocking(item, at, build) {
            for (wanted, _) in &wanted {
                self.wait_for(wanted, since, hands);
            }
            return Permit::Waits(key);
        }
        let holder = Holder {
            build: build.clone(),
            queue: self.head.key.clone(),
            item: item.id.clone(),
            job: item.jobs[at].summary.name.clone(),
            since: self.now,
            leaving: false,
        };
        for (key, _) in &wanted {
            let mut semaphore = self.semaphore(key);
            if !semaphore.is_held_by(build) {
                semaphore.holders.push(holder.clone());
                self.semaphores.insert(key.clone(), semaphore);
            }
        }
        Permit::Granted
    }

    /// Has a build that waits for a semaphore with its nodes in hand give them back, where those
    /// who hold that one wait as well: for nodes it may be, and for these. Nothing of it was sent
    /// to anybody, so the attempt begins again, without nodes and with its place in line. Returns
    /// whether it does.
    pub(super) fn gives_nodes_back(&mut self, item: &mut Item, at: usize, build: &BuildId) -> bool {
        let Some(key) = self.blocking(item, at, build).filter(|key| self.is_held_idly(key)) else {
            return false;
        };
        let job = &mut item.jobs[at];
        let why = format!(
            "it gives its nodes back: whoever holds the semaphore {} has not gone on for {GIVE_BACK_SECONDS} s, and may wait for them; \
             it asks for nodes again when it holds its semaphores",
            key.name
        );
        let (build, request) = (build.clone(), job.request.take());
        self.plan.stops.push(Stop { build, request, why: why.clone(), lost: false });
        job.begin_with_semaphores();
        let reason = format!("{}: {why}", job.summary.name);
        item.note(reason.clone());
        self.plan.reasons.push(format!("{}: {reason}", item.candidate.change));
        true
    }

    /// Returns the first of the semaphores that a job names which has no place for its build.
    fn blocking(&self, item: &Item, at: usize, build: &BuildId) -> Option<SemaphoreKey> {
        let since = item.jobs[at].asked_at.unwrap_or(self.now);
        let kept_for: &[Hands] = match hands_of(&item.jobs[at]) {
            Hands::Nodes => &[Hands::Nodes],
            Hands::Empty => &[Hands::Empty, Hands::Nodes],
        };
        let is_beside_paused = item.jobs.iter().any(Job::is_paused);
        let mut wanted = self.named_by(item, at).into_iter();
        let blocking = wanted.find(|(key, max)| {
            let semaphore = self.semaphore(key);
            let before =
                if is_beside_paused { 0 } else { self.before(&semaphore, since, kept_for) };
            !semaphore.is_held_by(build) && semaphore.holders.len() + before >= *max as usize
        });
        blocking.map(|(key, _)| key)
    }

    /// Returns whether everybody who holds a semaphore has done nothing with it for long.
    fn is_held_idly(&self, key: &SemaphoreKey) -> bool {
        let semaphore = self.semaphore(key);
        let is_idle = |holder: &Holder| {
            let since = self.snapshot.idle.get(&holder.build);
            since.is_some_and(|since| self.now.since(*since) >= GIVE_BACK_SECONDS * 1_000)
        };
        !semaphore.holders.is_empty() && semaphore.holders.iter().all(is_idle)
    }

    /// Returns whether a job that takes its semaphores with its nodes in hand may ask for nodes:
    /// not while those who have none and asked before it wait for all that is left of a semaphore,
    /// or those who come with theirs would be served before them for ever.
    pub(super) fn may_ask_for_nodes(&mut self, item: &Item, at: usize) -> Permit {
        if item.jobs.iter().any(Job::is_paused) {
            return Permit::Granted; // Whoever is before it may wait for what the paused build has.
        }
        let wanted = self.named_by(item, at);
        let since = item.jobs[at].asked_at.unwrap_or(self.now);
        let behind = wanted.iter().find(|(key, max)| {
            let semaphore = self.semaphore(key);
            let before = self.before(&semaphore, since, &[Hands::Empty]);
            before > 0 && semaphore.holders.len() + before >= *max as usize
        });
        let Some((key, _)) = behind else { return Permit::Granted };
        for (wanted, _) in &wanted {
            self.wait_for(wanted, since, Hands::Empty);
        }
        Permit::Waits(key.clone())
    }

    /// Returns the semaphores that a job names, and how many may hold each.
    fn named_by(&self, item: &Item, at: usize) -> Vec<(SemaphoreKey, u32)> {
        item.jobs[at]
            .summary
            .semaphores
            .iter()
            .map(|used| (self.snapshot.semaphore)(&used.name))
            .collect()
    }

    /// Returns how many places are kept for others than a job that asked at this time: one for each
    /// queue before it in line that can come, and one for each job of this queue that was looked at
    /// before it and asked no later, if they wait with such hands.
    fn before(&self, semaphore: &Semaphore, since: Timestamp, hands: &[Hands]) -> usize {
        let asked = |waiter: &Waiter| hands.iter().filter_map(|hands| waiter.asked(*hands)).min();
        let others =
            semaphore.waiting.iter().filter(|waiter| self.is_before(waiter, asked(waiter), since));
        let of_queue =
            self.line.iter().filter(|one| one.key == semaphore.key && one.since <= since);
        others.count() + of_queue.filter(|one| hands.contains(&one.hands)).count()
    }

    /// Returns whether another queue that can come, a job of which asked then, is before a job of
    /// this one that asked at `since`.
    fn is_before(&self, waiter: &Waiter, asked: Option<Timestamp>, since: Timestamp) -> bool {
        let own = Waiter::new(&self.head.key, self.priority(), since).place();
        let other = waiter.key();
        let is_first =
            asked.is_some_and(|asked| Waiter::new(&other, waiter.priority, asked).place() < own);
        is_first && other != self.head.key && !self.snapshot.gone.contains(&other)
    }

    fn priority(&self) -> u32 {
        self.snapshot.pipeline.map_or(200, |pipeline| pipeline.precedence.priority())
    }

    /// Gives back what builds of this queue hold that are over, and leaves the line where nothing
    /// waits any more (N17).
    pub(super) fn settle_semaphores(&mut self) {
        let known: BTreeSet<SemaphoreKey> =
            self.snapshot.semaphores.keys().chain(self.semaphores.keys()).cloned().collect();
        if known.is_empty() {
            // The builds of a long queue are not listed where nobody asks for them.
            self.head.semaphores = Vec::new();
            return;
        }
        let live = self.live_builds();
        let queue = self.head.key.clone();
        let mut used = Vec::new();
        for key in known {
            let mut semaphore = self.semaphore(&key);
            let before = semaphore.clone();
            let mut begins_to_leave = false;
            semaphore.holders.retain_mut(|holder| {
                if holder.queue != queue || live.contains(&holder.build) {
                    return true;
                }
                if self.is_over(&holder.build) {
                    return false;
                }
                begins_to_leave |= !holder.leaving;
                holder.leaving = true;
                true
            });
            let waits = self.waits.get(&key).copied();
            let is_given_back = semaphore.holders.len() < before.holders.len();
            // Its own jobs had their turn before the place was free.
            self.left_over |= is_given_back && waits.is_some();
            // What was stopped before anybody began it is over as soon as the stop is written.
            self.left_over |= begins_to_leave;
            self.stand_in_line(&mut semaphore, waits);
            let place = |semaphore: &Semaphore| {
                semaphore.waiting.iter().find(|waiter| waiter.key() == queue).map(Waiter::place)
            };
            let (was, is) = (place(&before), place(&semaphore));
            let has_stepped_back = was.is_some() && (is.is_none() || is > was);
            let held = self.snapshot.semaphores.get(&key).map_or(0, |seen| seen.holders.len());
            let has_taken = before.holders.len() > held;
            if is_given_back || (has_stepped_back && !has_taken) {
                // As many as there are places now: more may hold it than when they asked, and who
                // cannot come takes none.
                let places = self.places(&semaphore).min(WOKEN_MAX);
                let others =
                    semaphore.waiting.iter().map(Waiter::key).filter(|other| *other != queue);
                let gone = &self.snapshot.gone;
                self.plan.wake.extend(others.filter(|other| !gone.contains(other)).take(places));
            }
            let waits = waits.is_some();
            if waits || semaphore.holders.iter().any(|holder| holder.queue == queue) {
                used.push(key.clone());
            }
            // What was taken in this plan has its room; what is given back may wait for the next.
            let has_changed = self.snapshot.semaphores.get(&key) != Some(&semaphore);
            if self.semaphores.contains_key(&key) || (has_changed && self.has_room(1)) {
                self.semaphores.insert(key, semaphore);
            }
        }
        self.head.semaphores = used;
    }

    /// Returns how many more may hold a semaphore.
    fn places(&self, semaphore: &Semaphore) -> usize {
        let (key, max) = (self.snapshot.semaphore)(&semaphore.key.name);
        if key != semaphore.key {
            return 1; // The live layout means another one by this name; who still waits for this one sees for himself.
        }
        (max as usize).saturating_sub(semaphore.holders.len())
    }

    /// Has this queue stand in line since then, or not at all; and nobody who cannot come.
    fn stand_in_line(&self, semaphore: &mut Semaphore, asked: Option<Asked>) {
        let queue = &self.head.key;
        let is_sure = !self.left_over;
        match asked {
            Some(asked) => {
                let place = semaphore.waiting.iter().position(|waiter| waiter.key() == *queue);
                let waiter = Waiter::asking(queue, self.priority(), asked);
                match place {
                    Some(at) if is_sure => semaphore.waiting[at] = waiter,
                    None if semaphore.waiting.len() < WAITING_MAX => semaphore.waiting.push(waiter),
                    _ => {}
                }
            }
            // The transaction may have been full before its jobs were looked at.
            None if is_sure => semaphore.waiting.retain(|waiter| waiter.key() != *queue),
            None => {}
        }
        if asked.is_some() {
            semaphore.waiting.retain(|waiter| !self.snapshot.gone.contains(&waiter.key()));
        }
        semaphore.waiting.sort_by_cached_key(Waiter::place);
    }

    fn semaphore(&self, key: &SemaphoreKey) -> Semaphore {
        let known = self.semaphores.get(key).or_else(|| self.snapshot.semaphores.get(key));
        known.cloned().unwrap_or_else(|| Semaphore::new(key.clone()))
    }

    fn wait_for(&mut self, key: &SemaphoreKey, since: Timestamp, hands: Hands) {
        self.waits.entry(key.clone()).or_default().add(hands, since);
        self.line.push(InLine { key: key.clone(), since, hands });
        let semaphore = self.semaphore(key);
        self.semaphores.entry(key.clone()).or_insert(semaphore);
    }

    fn live_builds(&self) -> BTreeSet<BuildId> {
        let jobs = self.items.values().flat_map(|item| &item.jobs);
        jobs.filter(|job| Job::is_under_way(job)).filter_map(|job| job.build.clone()).collect()
    }

    fn is_over(&self, build: &BuildId) -> bool {
        matches!(
            self.snapshot.runs.get(build),
            Some(
                RunSeen::Ended(_)
                    | RunSeen::Lost { .. }
                    | RunSeen::NoNodes(_)
                    | RunSeen::NeverBegun
            )
        )
    }
}

/// Returns what a job has in hand when it takes its semaphores.
fn hands_of(job: &Job) -> Hands {
    if job.takes_nodes_first() { Hands::Nodes } else { Hands::Empty }
}
