//! Fault injection: draws the outcome of each call from the seed, by the site's fault profile.

use crate::random::Random;
use crate::shape::FaultProfile;
use sluice_memory::{Fate, PendingCall};
use sluice_model::Timestamp;

/// Whether faults are injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultInjection {
    /// Calls fail as often as the fault profile says.
    On,
    /// No call fails.
    Off,
}

/// Draws the outcome of each call.
#[derive(Debug)]
pub struct Faults {
    fault_profile: FaultProfile,
    random: Random,
    state: FaultInjection,
    /// Services that do not answer: the prefix of their calls' names, and until when.
    outages: Vec<(&'static str, Timestamp)>,
    /// The current virtual time.
    now: Timestamp,
    /// Descriptions of the faults since the last [`Self::take_struck`], for the log.
    struck: Vec<String>,
    /// How many faults were injected so far.
    pub count: u64,
}

impl Faults {
    /// Returns the faults of a seed, switched off.
    pub fn new(seed: u64, fault_profile: FaultProfile) -> Self {
        let random = Random::new(seed, 2);
        Self {
            fault_profile,
            random,
            state: FaultInjection::Off,
            outages: Vec::new(),
            now: Timestamp(0),
            struck: Vec::new(),
            count: 0,
        }
    }

    /// Switches fault injection on or off. Off ends all outages. Calls are still suspended either
    /// way, so functions keep interleaving.
    pub fn switch(&mut self, state: FaultInjection) {
        self.state = state;
        if state == FaultInjection::Off {
            self.outages.clear();
        }
    }

    /// Sets the current virtual time.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Starts an outage of one service. Returns the prefix of its calls and its length in seconds.
    pub fn begin_outage(&mut self) -> (&'static str, u64) {
        let service = *self
            .random
            .one(&["forge.", "repos.", "cloud.", "records.", "queues.", "objects."])
            .unwrap_or(&"forge.");
        let most = if service == "records." || service == "queues." { 40 } else { 400 };
        let seconds = self.random.between(5, most);
        self.outages.push((service, self.now.plus_seconds(seconds)));
        (service, seconds)
    }

    /// Returns and forgets the descriptions of the faults since the last call.
    pub fn take_struck(&mut self) -> Vec<String> {
        std::mem::take(&mut self.struck)
    }

    /// Draws the outcome of one call, and counts and describes it if it is a fault.
    pub fn decide(&mut self, step: PendingCall) -> Fate {
        if self.random.per_mille(self.fault_profile.waits) {
            return Fate::Waits;
        }
        if self.state == FaultInjection::Off {
            return Fate::Works;
        }
        let now = self.now;
        self.outages.retain(|(_, until)| *until > now);
        if self.outages.iter().any(|(service, _)| step.name.starts_with(service)) {
            // The caller cannot know whether the call was carried out.
            let fate =
                if self.random.per_mille(100) { Fate::FailsAfter } else { Fate::FailsBefore };
            return fate;
        }
        let fault_profile = &self.fault_profile;
        let mut left = self.random.between(0, 999);
        for (fate, per_mille) in [
            (Fate::DiesBefore, fault_profile.dies_before),
            (Fate::DiesAfter, fault_profile.dies_after),
            (Fate::FailsBefore, fault_profile.fails_before),
            (Fate::FailsAfter, fault_profile.fails_after),
            (Fate::Throttled, fault_profile.throttled),
        ] {
            if left < per_mille {
                self.count += 1;
                self.struck.push(format!("{} {} {}", step.caller, describe(fate), step.name));
                return fate;
            }
            left -= per_mille;
        }
        Fate::Works
    }
}

/// Returns the verb phrase that describes an outcome in the log.
fn describe(fate: Fate) -> &'static str {
    match fate {
        Fate::DiesBefore => "dies before",
        Fate::DiesAfter => "dies after",
        Fate::FailsBefore => "gets an error from",
        Fate::FailsAfter => "gets no answer from a completed",
        Fate::Throttled => "is throttled at",
        Fate::Waits => "waits at",
        Fate::Works => "does",
    }
}
