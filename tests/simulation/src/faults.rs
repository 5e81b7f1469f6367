//! What becomes of each call: drawn from the seed, by the site's weather.

use crate::random::Random;
use crate::shape::Weather;
use sluice_memory::{Fate, Step};
use sluice_model::Timestamp;

/// Decides what becomes of calls.
#[derive(Debug)]
pub struct Faults {
    weather: Weather,
    random: Random,
    is_on: bool,
    /// Services that do not answer, by the beginning of their calls' names, until when.
    outages: Vec<(&'static str, Timestamp)>,
    now: Timestamp,
    /// What struck since it was asked last, for the story.
    struck: Vec<String>,
    /// How often anything struck.
    pub count: u64,
}

impl Faults {
    /// Makes the faults of a seed.
    pub fn new(seed: u64, weather: Weather) -> Self {
        let random = Random::new(seed, 2);
        Self {
            weather,
            random,
            is_on: false,
            outages: Vec::new(),
            now: Timestamp(0),
            struck: Vec::new(),
            count: 0,
        }
    }

    /// Switches faults on or off. Functions wait for each other either way.
    pub fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
        if !is_on {
            self.outages.clear();
        }
    }

    /// Says what time it is.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Begins an outage; returns what does not answer, and for how many seconds.
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

    /// Takes what struck since this was asked last.
    pub fn take_struck(&mut self) -> Vec<String> {
        std::mem::take(&mut self.struck)
    }

    /// Decides.
    pub fn decide(&mut self, step: Step) -> Fate {
        if self.random.per_mille(self.weather.waits) {
            return Fate::Waits;
        }
        if !self.is_on {
            return Fate::Works;
        }
        let now = self.now;
        self.outages.retain(|(_, until)| *until > now);
        if self.outages.iter().any(|(service, _)| step.name.starts_with(service)) {
            // Whether it was carried out nobody knows.
            let fate =
                if self.random.per_mille(100) { Fate::FailsAfter } else { Fate::FailsBefore };
            return fate;
        }
        let weather = &self.weather;
        let mut left = self.random.between(0, 999);
        for (fate, per_mille) in [
            (Fate::DiesBefore, weather.dies_before),
            (Fate::DiesAfter, weather.dies_after),
            (Fate::FailsBefore, weather.fails_before),
            (Fate::FailsAfter, weather.fails_after),
            (Fate::Throttled, weather.throttled),
        ] {
            if left < per_mille {
                self.count += 1;
                self.struck.push(format!("{} {} {}", step.caller, words(fate), step.name));
                return fate;
            }
            left -= per_mille;
        }
        Fate::Works
    }
}

fn words(fate: Fate) -> &'static str {
    match fate {
        Fate::DiesBefore => "dies before",
        Fate::DiesAfter => "dies after",
        Fate::FailsBefore => "is refused",
        Fate::FailsAfter => "has no answer from a carried out",
        Fate::Throttled => "is told to slow down at",
        Fate::Waits => "waits at",
        Fate::Works => "does",
    }
}
