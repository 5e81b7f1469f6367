//! Faults that can be switched on while the emulator runs: errors before and after an operation
//! takes effect, lost connections, throttling, latency and lagging indexes. All randomness comes
//! from one seed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sluice_memory::sqs::{Chooser as _, Seeded};

use super::auth::Principal;
use super::wire::Service;

/// The faults of one emulator.
#[derive(Debug)]
pub struct CallFaults {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    dice: Seeded,
    next_id: u64,
    rules: Vec<(RuleId, Rule)>,
    latency: CallLatency,
    index_lag: Duration,
}

/// The id of a rule, for switching it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

/// A fault and the calls that it affects. `None` means any.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The caller.
    pub principal: Option<Principal>,
    /// The service.
    pub service: Option<Service>,
    /// The operation, for example `TransactWriteItems`.
    pub operation: Option<String>,
    /// How often.
    pub when: When,
    /// What happens.
    pub fault: Fault,
}

/// How often a rule applies among the calls that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Every time.
    Always,
    /// The next given number of times; then the rule is removed.
    Next(u32),
    /// In the given number of 1000 calls, at random.
    PerMille(u16),
}

/// The effect of a fault on a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The call fails with this error and has no effect.
    Before(InjectedError),
    /// The call takes effect, but the response is this error.
    After(InjectedError),
    /// The call is delayed by this time.
    Wait(Duration),
}

/// The error of a fault, in the shape of the service it strikes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedError {
    /// The service's internal error, status 500.
    Internal,
    /// The service's way of saying "slower": `ProvisionedThroughputExceededException`, `SlowDown`,
    /// `RequestThrottled`.
    Throttled,
    /// DynamoDB only: another transaction holds an item.
    TransactionConflict,
    /// S3 only: a conditional write ran at the same time (409).
    ConditionalConflict,
    /// The connection ends without an answer.
    ConnectionLost,
}

/// How long calls take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallLatency {
    /// As long as this machine needs.
    #[default]
    Local,
    /// About as long as AWS takes within a region: medians of the table in this file, spread from
    /// half to threefold.
    Aws,
}

/// The faults that apply to one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Struck {
    /// How long it waits first.
    pub wait: Duration,
    /// The error instead of the effect.
    pub before: Option<InjectedError>,
    /// The error after the effect.
    pub after: Option<InjectedError>,
}

/// How long GSIs lag under [`CallLatency::Aws`].
const AWS_INDEX_LAG: Duration = Duration::from_millis(30);

impl CallFaults {
    /// Creates the faults, all switched off. Random decisions depend on `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (latency, index_lag) = (CallLatency::Local, Duration::ZERO);
        let state =
            State { dice: Seeded::new(seed, 0), next_id: 0, rules: Vec::new(), latency, index_lag };
        Self { state: Mutex::new(state) }
    }

    /// Switches a rule on, in addition to the others, and returns its id.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.with(|state| {
            let id = RuleId(state.next_id);
            state.next_id += 1;
            state.rules.push((id, rule));
            id
        })
    }

    /// Switches a rule off; does nothing if it is off already.
    pub fn remove(&self, id: RuleId) {
        self.with(|state| state.rules.retain(|(other, _)| *other != id));
    }

    /// Switches off every rule, the latency and the lag of indexes. The random sequence goes on.
    pub fn clear(&self) {
        self.with(|state| {
            state.rules.clear();
            state.latency = CallLatency::Local;
            state.index_lag = Duration::ZERO;
        });
    }

    /// Sets the latency of calls. [`CallLatency::Aws`] also lets indexes lag by 30 ms,
    /// [`CallLatency::Local`] not at all; a lag that was set before is replaced.
    pub fn set_latency(&self, latency: CallLatency) {
        self.with(|state| {
            state.latency = latency;
            state.index_lag =
                if latency == CallLatency::Aws { AWS_INDEX_LAG } else { Duration::ZERO };
        });
    }

    /// Sets the delay after which global secondary indexes show a write; zero switches it off.
    pub fn set_index_lag(&self, lag: Duration) {
        self.with(|state| state.index_lag = lag);
    }

    /// Returns the delay after which global secondary indexes show a write; zero without a lag.
    #[must_use]
    pub fn index_lag(&self) -> Duration {
        self.with(|state| state.index_lag)
    }

    /// Decides by the rules and at random which faults and what delay apply to one call. The delay
    /// is that of the latency and all delaying rules together; of several errors at one moment the
    /// rule added last decides. Uses up one time of each rule that fits and removes those without
    /// any left. Waits for nothing itself.
    pub fn strike(&self, principal: &Principal, service: &Service, operation: &str) -> Struck {
        self.with(|state| {
            let mut struck =
                Struck { wait: state.draw_latency(service, operation), ..Struck::default() };
            let mut rules = std::mem::take(&mut state.rules);
            for (_, rule) in &mut rules {
                if rule.matches(principal, service, operation) && state.is_due(&mut rule.when) {
                    match &rule.fault {
                        Fault::Before(failure) => struck.before = Some(failure.clone()),
                        Fault::After(failure) => struck.after = Some(failure.clone()),
                        Fault::Wait(time) => struck.wait += *time,
                    }
                }
            }
            rules.retain(|(_, rule)| rule.when != When::Next(0));
            state.rules = rules;
            struck
        })
    }

    /// Locks the state, passes it to `act` and returns its result.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Rule {
    /// Returns a rule for one operation of one service, for all callers; it is not switched on yet.
    #[must_use]
    pub fn on(service: Service, operation: &str, when: When, fault: Fault) -> Self {
        Self {
            principal: None,
            service: Some(service),
            operation: Some(operation.to_owned()),
            when,
            fault,
        }
    }

    /// Returns whether a call is by the rule's caller, of its service and of its operation, as far
    /// as the rule names them. How often it applies is not considered.
    fn matches(&self, principal: &Principal, service: &Service, operation: &str) -> bool {
        self.principal.as_ref().is_none_or(|p| p == principal)
            && self.service.as_ref().is_none_or(|s| s == service)
            && self.operation.as_ref().is_none_or(|o| o == operation)
    }
}

impl State {
    /// Returns whether a rule strikes now: always, at random, or while it has times left, of which
    /// it uses up one.
    fn is_due(&mut self, when: &mut When) -> bool {
        match when {
            When::Always => true,
            When::Next(left) => {
                let due = *left > 0;
                *left = left.saturating_sub(1);
                due
            }
            When::PerMille(share) => self.dice.choose(1000) < usize::from(*share),
        }
    }

    /// Returns a random latency around AWS's median for the operation: half of the calls are below
    /// it, none is below half of it or above three times. Zero if calls take as long as this
    /// machine needs.
    fn draw_latency(&mut self, service: &Service, operation: &str) -> Duration {
        if self.latency == CallLatency::Local {
            return Duration::ZERO;
        }
        let median_us = aws_median_microseconds(service, operation);
        let per_mille = if self.dice.choose(2) == 0 {
            500 + self.dice.choose(500)
        } else {
            1000 + self.dice.choose(2000)
        };
        Duration::from_micros(median_us * per_mille as u64 / 1000)
    }
}

/// Returns the median latency of an operation that a function sees in the same region, in
/// microseconds. The numbers are orders of magnitude; an additional service is assumed to take 50
/// ms.
fn aws_median_microseconds(service: &Service, operation: &str) -> u64 {
    match (service, operation) {
        (Service::DynamoDb, "TransactWriteItems" | "TransactGetItems") => 12_000,
        (Service::DynamoDb, "GetItem") => 3_000,
        (Service::DynamoDb, _) => 5_000,
        (Service::S3, "GetObject" | "HeadObject") => 15_000,
        (Service::S3, _) => 30_000,
        (Service::Sqs, _) => 8_000,
        (Service::Kms, _) => 4_000,
        (Service::Other(_), _) => 50_000,
    }
}
