//! Which builds an executor takes by the zone of their nodes, and how it receives those of its zone
//! (Zuul's `zone` and `allow_unzoned`).

use super::{AcceptedBuild, ClaimedMessages, ExecutorService, QUEUES};
use sluice_model::ZoneName;
use sluice_runtime::PortError;
use sluice_runtime::port::Incoming;
use sluice_runtime::record::Key;
use sluice_runtime::zone_builds::{self, WaitingBuild};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Seconds from one look at the builds that wait for the zone to the next.
const LOOK_SECONDS: u64 = 1;

/// Which builds an executor takes, by the zone of their nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ServedZone {
    /// Builds whose nodes every executor reaches, and builds without nodes.
    #[default]
    Unzoned,
    /// Builds of one zone, and with `allow_unzoned` those of [`Self::Unzoned`] too.
    Zone {
        /// The zone.
        name: ZoneName,
        /// Whether it takes builds without a zone too.
        allow_unzoned: bool,
    },
}

impl ServedZone {
    /// Returns the zone whose builds the executor takes; `None` if it has none.
    pub fn name(&self) -> Option<&ZoneName> {
        match self {
            Self::Unzoned => None,
            Self::Zone { name, .. } => Some(name),
        }
    }

    /// Returns whether the executor takes builds without a zone.
    pub fn takes_unzoned(&self) -> bool {
        match self {
            Self::Unzoned => true,
            Self::Zone { allow_unzoned, .. } => *allow_unzoned,
        }
    }

    /// Returns whether the executor takes builds of this zone, or of none.
    pub fn serves(&self, zone: Option<&ZoneName>) -> bool {
        match zone {
            None => self.takes_unzoned(),
            Some(zone) => self.name() == Some(zone),
        }
    }
}

impl ExecutorService {
    /// Receives builds in `tasks` from wherever the executor takes them, until `shutdown` is true:
    /// from the queues of builds without a zone, and from those that wait for its zone.
    pub(super) fn poll_builds(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        shutdown: &watch::Receiver<bool>,
    ) {
        if self.options.zone.takes_unzoned() {
            for (queue, head_start_millis) in QUEUES {
                tasks.spawn(self.clone().poll_queue(queue, head_start_millis, shutdown.clone()));
            }
        }
        if let Some(zone) = self.options.zone.name().cloned() {
            tasks.spawn(self.clone().poll_zone(zone, shutdown.clone()));
        }
    }

    /// Starts builds that wait for the zone, as many as there are free slots, every
    /// [`LOOK_SECONDS`], until `shutdown` is true or its sender is dropped. A failed look is logged
    /// and tried again.
    pub(super) async fn poll_zone(
        self: Arc<Self>,
        zone: ZoneName,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let source = format!("zone {zone}");
        while !*shutdown.borrow() {
            if !self.may_receive(&source, &mut shutdown).await {
                break;
            }
            if let Err(error) = self.start_waiting(&zone, &source).await {
                tracing::warn!(source, %error, "could not look for waiting builds");
            }
            tokio::select! {
                () = sleep(Duration::from_secs(LOOK_SECONDS)) => {}
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
        }
    }

    /// Claims builds that wait for the zone, as many as there are free slots, and runs them in the
    /// background. A build that cannot be claimed for an unknown reason goes on waiting.
    async fn start_waiting(
        self: &Arc<Self>,
        zone: &ZoneName,
        source: &str,
    ) -> Result<(), PortError> {
        let mut waiting = zone_builds::waiting(&self.ports, zone).await?;
        let (mut slots, starting_max) = (Vec::new(), self.options.limits.starting_max.max(1));
        while slots.len() < waiting.len()
            && let Some(starting) = self.starting.try_enter(starting_max)
            && let Ok(slot) = self.slots.clone().try_acquire_owned()
        {
            slots.push((Some(slot), Some(starting)));
        }
        waiting.truncate(slots.len());
        if waiting.is_empty() {
            return Ok(());
        }
        let keys: Vec<Key> = waiting.iter().map(|build| build.key.clone()).collect();
        let messages = waiting.into_iter().map(as_message).collect();
        let ClaimedMessages { accepted, done, .. } = self.claim_messages(source, messages).await;
        for (build, (slot, starting)) in accepted.into_iter().zip(slots) {
            self.clone().run_in_background(AcceptedBuild { slot, starting, ..build });
        }
        let done = keys.into_iter().filter(|key| done.contains(&key.sort)).collect();
        zone_builds::remove(&self.ports, done).await
    }
}

/// Returns a waiting build as the message that would send it, whose receipt is its sort key.
fn as_message(build: WaitingBuild) -> Incoming {
    let sort = build.key.sort;
    Incoming { id: sort.clone(), body: build.body, receipt: sort, group: None, receive_count: 1 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Z7.6: an executor of a zone takes only its zone's builds, unless it may take others.
    #[test]
    fn an_executor_of_a_zone_takes_unzoned_builds_only_if_allowed() {
        let zone = |allow_unzoned| ServedZone::Zone { name: "west".into(), allow_unzoned };
        let (west, east) = (ZoneName::from("west"), ZoneName::from("east"));
        for (served, expected) in [
            (ServedZone::Unzoned, [true, false, false]),
            (zone(false), [false, true, false]),
            (zone(true), [true, true, false]),
        ] {
            let found = [None, Some(&west), Some(&east)].map(|zone| served.serves(zone));
            assert_eq!(found, expected, "{served:?}");
        }
    }
}
