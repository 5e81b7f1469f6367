//! Slots and the queues: builds are received while there is a slot, and given back where there is
//! none any more.

use super::{Executor, Taken};
use sluice_model::poke::Queue;
use sluice_runtime::PortError;
use sluice_runtime::port::{Incoming, Outgoing};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Seconds a received build is hidden from other executors until it is claimed.
const CLAIM_SECONDS: u32 = 60;
/// Builds that one question to a queue may bring.
const RECEIVE_MAX: u32 = 10;
/// Seconds of one question to a queue that has nothing.
pub const WAIT_SECONDS: u32 = 20;
/// Receipts after which a build that is given back is sent anew: below the five after which its
/// queue takes it for dead.
const GIVEN_BACK_MAX: u32 = 3;

impl Executor {
    /// Asks one queue for builds while there is a slot. The more urgent queue gets a head start at
    /// each free slot.
    pub(super) async fn ask(
        self: Arc<Self>,
        queue: Queue,
        head_start_millis: u64,
        mut shutdown: watch::Receiver<bool>,
    ) {
        while !*shutdown.borrow() {
            sleep(Duration::from_millis(head_start_millis)).await;
            // Known to be free now; whether it still is shows when the message is there.
            let free = tokio::select! {
                free = self.slots.acquire() => free.map(drop),
                _ = shutdown.wait_for(|stop| *stop) => break,
            };
            if free.is_err() {
                break;
            }
            let received = tokio::select! {
                received = self.ports.queues.receive(queue, self.free_slots(), WAIT_SECONDS, CLAIM_SECONDS) => received,
                _ = shutdown.wait_for(|stop| *stop) => break,
            };
            match received {
                Ok(messages) => self.clone().start(queue, messages).await,
                Err(error) => {
                    tracing::warn!(?queue, %error, "a queue could not be asked");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn free_slots(&self) -> u32 {
        u32::try_from(self.slots.available_permits()).unwrap_or(u32::MAX).clamp(1, RECEIVE_MAX)
    }

    /// Starts received builds as far as there are still slots; gives the others back at once.
    async fn start(self: Arc<Self>, queue: Queue, messages: Vec<Incoming>) {
        let (mut slots, mut kept) = (Vec::new(), Vec::new());
        for message in messages {
            match self.slots.clone().try_acquire_owned() {
                Ok(slot) => {
                    slots.push(slot);
                    kept.push(message);
                }
                Err(_) => {
                    if let Err(error) = self.give_back(queue, &message).await {
                        tracing::debug!(%error, "a build could not be given back; it shows again by itself");
                    }
                }
            }
        }
        if kept.is_empty() {
            return;
        }
        tokio::spawn(async move {
            for (taken, slot) in self.take(queue, kept).await.into_iter().zip(slots) {
                let executor = self.clone();
                let taken = Taken { slot: Some(slot), ..taken };
                tokio::spawn(async move {
                    if let Err(error) = executor.execute(taken).await {
                        tracing::warn!(%error, "a build could not be brought to its end");
                    }
                });
            }
        });
    }

    /// Gives a received build back, so that any executor with a slot receives it next.
    ///
    /// It keeps its place until it was received so often that its queue would soon take it for one
    /// that nobody can handle. Then it is sent anew and the old message removed: twice, if that
    /// fails in between, which its claim sorts out.
    async fn give_back(&self, queue: Queue, message: &Incoming) -> Result<(), PortError> {
        if message.receive_count < GIVEN_BACK_MAX {
            return self.ports.queues.postpone(queue, &message.receipt, 0).await;
        }
        let anew =
            Outgoing { body: message.body.clone(), group: message.group.clone(), delay_seconds: 0 };
        self.ports.queues.send(queue, vec![anew]).await?;
        self.ports.queues.acknowledge(queue, &message.receipt).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::job::{Job, Observer, Runner, StopSignal};
    use crate::service::Options;
    use async_trait::async_trait;
    use sluice_memory::World;
    use sluice_model::Timestamp;
    use sluice_model::build::Ended;
    use sluice_model::poke::{Poke, Precedence};
    use sluice_runtime::cell;
    use std::path::{Path, PathBuf};

    struct NeverAsked;

    #[async_trait]
    impl Runner for NeverAsked {
        async fn execute(
            &self,
            _: &Job<'_>,
            _: &dyn crate::job::Sources,
            _: &Path,
            _: StopSignal,
            _: &dyn Observer,
        ) -> Ended {
            unreachable!("there is no slot")
        }
    }

    /// Z7.6: an executor that is full gives builds back as often as it likes; none of them dies of
    /// it.
    #[tokio::test]
    async fn a_build_that_finds_no_slot_again_and_again_never_becomes_a_dead_letter() {
        let world = World::new(1, 0, Timestamp(1_000_000));
        let options = Options {
            hostname: "here".to_owned(),
            slots: 1,
            state: PathBuf::from("never-used"),
            node_key: None,
            log_address: None,
            log_root: String::new(),
        };
        let executor = Executor::new(world.ports(), Arc::new(NeverAsked), options);
        let _full = executor.slots.clone().try_acquire_owned().unwrap();
        let build = |name: &str| Poke::Build {
            build: name.into(),
            precedence: Precedence::Low,
            tenant: "demo".into(),
            request: None,
            nodes: Vec::new(),
        };
        cell::send(&world.ports(), &[build("one"), build("two")]).await.unwrap();
        for _ in 0..20 {
            let received = world.take_messages(Queue::BuildsLow, 10, CLAIM_SECONDS);
            assert_eq!(received.len(), 2, "{received:?}");
            executor.clone().start(Queue::BuildsLow, received).await;
        }
        assert_eq!(world.take_dead(), []);
    }
}
