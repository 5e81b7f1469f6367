//! Plays a story again and again, each time with a failure at another call of a port, and compares
//! how it ends.

use crate::Site;
use sluice_memory::Fate;
use std::fmt::Debug;

/// How many consecutive runs of one kind may end before their fate takes effect. After that no
/// later call is tried.
const SHORTER_MAX: u32 = 8;

/// After this many runs that end otherwise no further one is played.
const FAILED_MAX: usize = 8;

/// How many times as many calls as the undisturbed run has are tried at most.
const LONGER_MAX: u64 = 10;

/// A story: what happens at a site, and what its end is.
pub struct StopStory<E> {
    /// Returns a site with everything that happens before the story. No failure is injected into
    /// it.
    pub set_up: fn() -> Site,
    /// Plays the story to its end, and returns what must be the same at the end of every run.
    pub play: fn(&mut Site) -> E,
}

/// When webhooks and redelivered messages arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deliveries {
    /// At once and in their order.
    InOrder,
    /// In a quarter of the runs late and in another order. These runs are longer.
    SometimesLate,
}

/// Which calls fail, and how.
pub struct Stops<'a> {
    /// The fates of the calls; each run has the next one of them. If every call is tried, it is
    /// tried with each of them.
    pub fates: &'a [Fate],
    /// Every how many calls one fails. `SLUICE_STORY_EVERY` replaces it; 1 tries every call.
    pub every: usize,
    /// When messages arrive.
    pub deliveries: Deliveries,
}

/// All fates with which a call can fail.
pub const ALL_FATES: &[Fate] =
    &[Fate::DiesAfter, Fate::DiesBefore, Fate::FailsAfter, Fate::FailsBefore, Fate::Throttled];

impl Stops<'_> {
    /// Returns stops with every kind of failure, at every nth call, while messages arrive in order.
    pub fn of_all_kinds(every: usize) -> Stops<'static> {
        Stops { fates: ALL_FATES, every, deliveries: Deliveries::InOrder }
    }
}

impl<E: PartialEq + Debug> StopStory<E> {
    /// Plays the story without failures and returns its end.
    pub fn undisturbed(&self) -> E {
        (self.play)(&mut (self.set_up)())
    }

    /// Plays the story once for each of the selected calls, which gets the next fate, and asserts
    /// that it ends as `expected`.
    ///
    /// Each run has another seed and so another order of messages. Every second run redelivers each
    /// message, and half of the runs use two instances of each function. The loop ends where the
    /// longest run of each kind has no call left.
    ///
    /// # Panics
    /// If a run ends otherwise or does not end; the fate, the call and the end are printed before.
    pub fn stop_everywhere(&self, stops: &Stops<'_>, expected: &E) {
        let every = std::env::var("SLUICE_STORY_EVERY").ok().and_then(|text| text.parse().ok());
        let every = every.unwrap_or(stops.every).max(1);
        let calls = self.calls();
        let may_be_late = stops.deliveries == Deliveries::SometimesLate;
        let (mut struck, mut last, mut is_tried) = (0_u64, 0, false);
        let mut failed: Vec<Run> = Vec::new();
        let mut shorter = [0, if may_be_late { 0 } else { SHORTER_MAX }];
        for (number, call) in (0..LONGER_MAX * calls).step_by(every).enumerate() {
            let is_late = may_be_late && matches!(number % 8, 3 | 5);
            let kind = usize::from(is_late);
            if shorter[kind] >= SHORTER_MAX {
                continue;
            }
            // Another fate for the same kind of run after eight runs.
            let next = (number + number / 8) % stops.fates.len();
            let fates = if every == 1 { stops.fates } else { &stops.fates[next..=next] };
            let mut has_struck = false;
            for fate in fates {
                let run = Run { number, call, fate: *fate, is_late };
                let (end, was_struck) = self.play_with(&run);
                if end != *expected {
                    eprintln!("{run:?} ends otherwise:\n{end:?}");
                    failed.push(run);
                }
                has_struck |= was_struck;
                struck += u64::from(was_struck);
            }
            if has_struck {
                (shorter[kind], last, is_tried) = (0, call, true);
            } else {
                shorter[kind] += 1;
            }
            let is_over = shorter.iter().all(|shorter| *shorter >= SHORTER_MAX);
            if is_over || failed.len() >= FAILED_MAX {
                break;
            }
        }
        assert!(failed.is_empty(), "these runs end otherwise than {expected:?}:\n{failed:?}");
        println!(
            "{:?}: {struck} struck, every {every} of up to {last} calls; an undisturbed run takes {calls}",
            stops.fates
        );
        let every = u64::try_from(every).unwrap_or(u64::MAX);
        assert!(is_tried && last + 2 * every >= calls, "no call after {last} of {calls} was tried");
    }

    /// Returns how many calls the undisturbed story takes.
    fn calls(&self) -> u64 {
        let mut site = (self.set_up)();
        let before = site.world.steps();
        (self.play)(&mut site);
        site.world.steps() - before
    }

    /// Plays one run. Returns its end and whether its fate took effect.
    fn play_with(&self, run: &Run) -> (E, bool) {
        let mut site = (self.set_up)();
        site.reseed(run.call + 1);
        // Depends on the number and not on the call, which may always be even.
        (site.twice, site.twins) = (run.number % 2 == 1, run.number % 4 >= 2);
        site.delays_delivery = run.is_late;
        site.set_fate(run.call, run.fate);
        let _named = Named(run);
        let end = (self.play)(&mut site);
        (end, site.world.fates_left() == 0)
    }
}

/// One run of a story. Its seed is one more than the call.
#[derive(Debug)]
struct Run {
    /// The number of the run, which selects how messages arrive.
    number: usize,
    /// The call that fails, counted from the end of the set-up.
    call: u64,
    /// How it fails.
    fate: Fate,
    /// Whether messages arrive late and in another order.
    is_late: bool,
}

/// Prints which run panics, when it is dropped meanwhile.
struct Named<'a>(&'a Run);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the story failed in {:?}", self.0);
        }
    }
}
