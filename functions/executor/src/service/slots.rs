//! Receives builds from the queues while there are free slots, and returns those that find no slot.

use super::admission::Readings;
use super::{AcceptedBuild, ExecutorService};
use sluice_model::wakeup::MessageQueue;
use sluice_runtime::PortError;
use sluice_runtime::port::{Incoming, Outgoing};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Seconds a received build is hidden from other executors until it is claimed.
const CLAIM_SECONDS: u32 = 60;
/// The maximum number of builds that one receive call returns.
const RECEIVE_MAX: u32 = 10;
/// Seconds that one receive call waits at an empty queue.
pub const WAIT_SECONDS: u32 = 20;
/// Deliveries after which a returned build is sent as a new message. The queue moves a message to
/// the dead letters after five deliveries.
const RETURNS_MAX: u32 = 3;

impl ExecutorService {
    /// Receives builds of one queue and starts them in the background, until `shutdown` is true or
    /// its sender is dropped. Before each receive it waits for `head_start_millis` and then for a
    /// free slot, so that a more urgent queue comes first. A failed receive is logged and tried
    /// again after a second. Started builds go on after it returns.
    pub(super) async fn poll_queue(
        self: Arc<Self>,
        queue: MessageQueue,
        head_start_millis: u64,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let source = format!("{queue:?}");
        while !*shutdown.borrow() {
            sleep(Duration::from_millis(head_start_millis)).await;
            if !self.may_receive(&source, &mut shutdown).await {
                break;
            }
            let received = tokio::select! {
                biased;
                _ = shutdown.wait_for(|stop| *stop) => break,
                received = self.ports.queues.receive(queue, self.builds_to_receive(), WAIT_SECONDS, CLAIM_SECONDS) => received,
            };
            match received {
                Ok(messages) => self.clone().start(queue, messages).await,
                Err(error) => {
                    tracing::warn!(?queue, %error, "could not receive from a build queue");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Waits until a build of `source` could be started: a slot is free, the machine has room, and
    /// the session holds, without which nothing can be claimed. Takes no slot. Returns false if
    /// `shutdown` comes first, or the session has ended.
    pub(super) async fn may_receive(
        &self,
        source: &str,
        shutdown: &mut watch::Receiver<bool>,
    ) -> bool {
        let ready = async {
            if self.slots.acquire().await.is_err() {
                return false;
            }
            self.wait_for_room(source).await;
            self.holds_session().await
        };
        tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => false,
            ready = ready => ready,
        }
    }

    /// Waits until the machine has room for another build of `source`; checks once a second. Logs
    /// why it waits. If the disk is too full, it first removes cached packs.
    async fn wait_for_room(&self, source: &str) {
        let mut is_logged = false;
        loop {
            let readings = Readings::take(&self.options.state, &self.starting);
            let Some(obstacle) = self.options.limits.obstacle(&readings) else { return };
            if !is_logged {
                tracing::warn!(source, %obstacle, "the executor takes no builds for now");
                is_logged = true;
                if self.options.limits.lacks_disk(&readings) {
                    self.sources.free_disk().await;
                    continue;
                }
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Returns how many builds to receive: as many as there are free slots and as may start, but at
    /// least 1 and at most [`RECEIVE_MAX`].
    pub(super) fn builds_to_receive(&self) -> u32 {
        let may_start = self.options.limits.starting_max.saturating_sub(self.starting.count());
        let count = self.slots.available_permits().min(may_start);
        u32::try_from(count).unwrap_or(u32::MAX).clamp(1, RECEIVE_MAX)
    }

    /// Claims received builds and runs them in the background, as many as there are free slots and
    /// as may prepare their workspace at once, and returns the other messages to their queue. Waits
    /// neither for the claims nor for the builds. Failures are only logged.
    async fn start(self: Arc<Self>, queue: MessageQueue, messages: Vec<Incoming>) {
        let (mut slots, mut accepted_messages) = (Vec::new(), Vec::new());
        for message in messages {
            // Counted before the claim, so that a burst does not exceed the limit.
            let starting = self.starting.try_enter(self.options.limits.starting_max.max(1));
            match (self.slots.clone().try_acquire_owned(), starting) {
                (Ok(slot), Some(starting)) => {
                    slots.push((slot, starting));
                    accepted_messages.push(message);
                }
                _ => self.give_back(queue, &message).await,
            }
        }
        if accepted_messages.is_empty() {
            return;
        }
        tokio::spawn(async move {
            for (accepted, (slot, starting)) in
                self.claim_received(queue, accepted_messages).await.into_iter().zip(slots)
            {
                let (slot, starting) = (Some(slot), Some(starting));
                self.clone().run_in_background(AcceptedBuild { slot, starting, ..accepted });
            }
        });
    }

    /// Runs a claimed build in the background. A failure is logged.
    pub(super) fn run_in_background(self: Arc<Self>, accepted: AcceptedBuild) {
        tokio::spawn(async move {
            if let Err(error) = self.execute(accepted).await {
                tracing::warn!(%error, "could not complete a build");
            }
        });
    }

    /// Returns a received build to its queue. A failure is only logged: the message becomes visible
    /// again by itself.
    pub(super) async fn give_back(&self, queue: MessageQueue, message: &Incoming) {
        if let Err(error) = self.return_to_queue(queue, message).await {
            tracing::debug!(%error, "could not return a build to its queue; it becomes visible again by itself");
        }
    }

    /// Returns a received build to its queue, so that any executor with a free slot receives it at
    /// once. From its third delivery on it is sent as a new message and the old one is removed.
    ///
    /// Otherwise the queue would soon move it to the dead letters. If that fails halfway, two
    /// messages remain; only one of them leads to a claim.
    async fn return_to_queue(
        &self,
        queue: MessageQueue,
        message: &Incoming,
    ) -> Result<(), PortError> {
        if message.receive_count < RETURNS_MAX {
            return self.ports.queues.postpone(queue, &message.receipt, 0).await;
        }
        let new_message =
            Outgoing { body: message.body.clone(), group: message.group.clone(), delay_seconds: 0 };
        self.ports.queues.send(queue, vec![new_message]).await?;
        self.ports.queues.acknowledge(queue, &message.receipt).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::job::{JobAttempt, Observer, Runner, StopSignal};
    use crate::service::ExecutorSettings;
    use crate::service::admission::AdmissionLimits;
    use crate::service::zone::ServedZone;
    use async_trait::async_trait;
    use sluice_memory::World;
    use sluice_model::Timestamp;
    use sluice_model::build::RunEnd;
    use sluice_model::wakeup::{Precedence, Wakeup};
    use sluice_runtime::cell;
    use std::path::{Path, PathBuf};

    struct UnusedRunner;

    #[async_trait]
    impl Runner for UnusedRunner {
        async fn execute(
            &self,
            _: &JobAttempt<'_>,
            _: &dyn crate::job::RepositorySources,
            _: &Path,
            _: StopSignal,
            _: &dyn Observer,
        ) -> RunEnd {
            unreachable!("there is no slot")
        }
    }

    /// Returns the settings of an executor with one slot.
    fn options() -> ExecutorSettings {
        ExecutorSettings {
            hostname: "here".to_owned(),
            slots: 1,
            limits: AdmissionLimits::default(),
            state: PathBuf::from("never-used"),
            node_key: None,
            log_address: None,
            zone: ServedZone::default(),
            log_root: String::new(),
            drain_seconds: 0,
            token_issuer: String::new(),
        }
    }

    fn build(name: &str) -> Wakeup {
        Wakeup::Build {
            build: name.into(),
            precedence: Precedence::Low,
            tenant: "demo".into(),
            request: None,
            nodes: Vec::new(),
            zone: None,
        }
    }

    /// Z7.6: a full executor may return builds any number of times without making them dead
    /// letters.
    #[tokio::test]
    async fn a_build_returned_many_times_for_lack_of_a_slot_never_becomes_a_dead_letter() {
        let world = World::new(1, 0, Timestamp(1_000_000));
        let executor = ExecutorService::new(world.ports(), Arc::new(UnusedRunner), options());
        let _full = executor.slots.clone().try_acquire_owned().unwrap();
        cell::send(&world.ports(), &[build("one"), build("two")]).await.unwrap();
        for _ in 0..20 {
            let received = world.take_messages(MessageQueue::BuildsLow, 10, CLAIM_SECONDS);
            assert_eq!(received.len(), 2, "{received:?}");
            executor.clone().start(MessageQueue::BuildsLow, received).await;
        }
        assert_eq!(world.take_dead(), []);
    }

    /// Z7.3: builds that arrive together count as starting before they are claimed.
    #[tokio::test]
    async fn a_burst_does_not_exceed_the_number_of_builds_that_may_start() {
        let world = World::new(1, 0, Timestamp(1_000_000));
        let starting_max = 2;
        let options = ExecutorSettings {
            slots: 10,
            limits: AdmissionLimits { starting_max, ..AdmissionLimits::default() },
            ..options()
        };
        let executor = ExecutorService::new(world.ports(), Arc::new(UnusedRunner), options);
        let wakeups = ["one", "two", "three", "four"].map(build);
        cell::send(&world.ports(), &wakeups).await.unwrap();
        let received = world.take_messages(MessageQueue::BuildsLow, 10, CLAIM_SECONDS);
        assert_eq!(received.len(), 4, "{received:?}");
        // The claims themselves run in the background, which the test does not give a turn.
        executor.clone().start(MessageQueue::BuildsLow, received).await;
        assert_eq!(executor.starting.count(), starting_max);
        assert_eq!(world.take_messages(MessageQueue::BuildsLow, 10, CLAIM_SECONDS).len(), 2);
    }
}
