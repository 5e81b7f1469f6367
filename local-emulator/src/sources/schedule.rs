//! One schedule that calls one function.

use super::{Origin, Run, event, stopped};
use crate::lambda::Invoke;
use crate::template::SchedulePlan;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

pub(super) struct Clockwork {
    pub(super) schedule: SchedulePlan,
    pub(super) period: Duration,
    pub(super) retries: u32,
    pub(super) origin: Origin,
    pub(super) functions: Arc<dyn Invoke>,
}

impl Clockwork {
    /// Calls the function at once and then once per period (at least a millisecond), until the
    /// shutdown, for which a running call is completed. Calls that are due while the one before
    /// still runs are skipped; on AWS the period exceeds the function's time limit.
    pub(super) async fn run(self, mut running: watch::Receiver<Run>) {
        let mut ticks = interval(self.period.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut running) => return,
                _ = ticks.tick() => self.fire().await,
            }
        }
    }

    /// Calls the function with an event of now, and at once again after each failure, up to the
    /// configured number of retries. Failures are only logged.
    async fn fire(&self) {
        let function = &self.schedule.function;
        let payload = event::of_schedule(&self.origin, &self.schedule, jiff::Timestamp::now());
        for attempt in 0..=self.retries {
            match self.functions.invoke(function, payload.clone()).await {
                Ok(_) => return,
                Err(error) => tracing::warn!(%function, attempt, %error, "a scheduled call failed"),
            }
        }
    }
}
