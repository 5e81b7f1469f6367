//! A world that notifies waiters of changes, so that tests do not poll.

use async_trait::async_trait;
use sluice_executor::Runner;
use sluice_executor::service::admission::AdmissionLimits;
use sluice_executor::service::zone::ServedZone;
use sluice_executor::service::{ExecutorService, ExecutorSettings};
use sluice_memory::World;
use sluice_model::Timestamp;
use sluice_model::wakeup::MessageQueue;
use sluice_runtime::port::{Incoming, Outgoing, Queues, Records};
use sluice_runtime::record::{Key, Query, Record, TransactionOutcome, Write};
use sluice_runtime::{PortError, Ports};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// A safety net: a test that waits longer has failed.
const NET: Duration = Duration::from_secs(300);

/// A world that notifies waiters of writes and messages.
#[derive(Clone)]
pub struct ObservedWorld {
    pub world: World,
    /// Grows with each write.
    written: watch::Sender<u64>,
    /// Grows with each message.
    sent: watch::Sender<u64>,
    /// Decides which transactions are refused.
    refusal: Arc<Mutex<Option<Refusal>>>,
}

/// Decides whether a transaction is refused.
type Refusal = Box<dyn FnMut(&[Write]) -> bool + Send>;

impl ObservedWorld {
    pub fn new() -> Self {
        let world = World::new(1, 0, Timestamp(1_800_000_000_000));
        let (written, sent) = (watch::channel(0).0, watch::channel(0).0);
        Self { world, written, sent, refusal: Arc::default() }
    }

    /// From now on transactions through the ports fail, unstored, if `refusal` returns true.
    pub fn refuse(&self, refusal: impl FnMut(&[Write]) -> bool + Send + 'static) {
        *self.refusal.lock().unwrap() = Some(Box::new(refusal));
    }

    /// Returns the world's ports; writes and messages through them notify waiters.
    pub fn ports(&self) -> Ports {
        Ports {
            records: Arc::new(self.clone()),
            queues: Arc::new(self.clone()),
            ..self.world.ports()
        }
    }

    /// Writes a record as another component would.
    pub fn write(&self, write: Write) {
        self.world.write_unchecked(write);
        self.written.send_modify(|count| *count += 1);
    }

    /// Returns a record as it is stored; `None` if it does not exist.
    pub async fn stored(&self, key: &Key) -> Option<Record> {
        self.world.ports().records.get(std::slice::from_ref(key)).await.unwrap().remove(0)
    }

    /// Waits until there is no record under a key. Panics after a while.
    pub async fn until_gone(&self, key: &Key) {
        let mut written = self.written.subscribe();
        let gone = async {
            while self.stored(key).await.is_some() {
                written.changed().await.expect("the world is there");
            }
        };
        tokio::time::timeout(NET, gone).await.unwrap_or_else(|_| panic!("{key} does not go"));
    }

    /// Waits until a record exists that satisfies `is_wanted` and returns it. Panics after a while.
    pub async fn until(&self, key: &Key, is_wanted: impl Fn(&Record) -> bool) -> Record {
        // Listening begins before looking, so that no write is missed in between.
        let mut written = self.written.subscribe();
        let found = async {
            loop {
                if let Some(record) = self.stored(key).await.filter(|record| is_wanted(record)) {
                    return record;
                }
                written.changed().await.expect("the world is there");
            }
        };
        tokio::time::timeout(NET, found)
            .await
            .unwrap_or_else(|_| panic!("{key} does not come to be as wanted"))
    }
}

#[async_trait]
impl Records for ObservedWorld {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError> {
        self.world.ports().records.get(keys).await
    }
    async fn query(&self, query: &Query) -> Result<Vec<Record>, PortError> {
        self.world.ports().records.query(query).await
    }
    async fn due(&self, shard: u32, until: Timestamp, limit: usize) -> Result<Vec<Key>, PortError> {
        self.world.ports().records.due(shard, until, limit).await
    }
    async fn find(
        &self,
        partition: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, PortError> {
        self.world.ports().records.find(partition, before, limit).await
    }
    async fn commit(
        &self,
        writes: Vec<Write>,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        if self.refusal.lock().unwrap().as_mut().is_some_and(|refuses| refuses(&writes)) {
            return Err(PortError::unknown("write".to_owned(), "refused by the test"));
        }
        let committed = self.world.ports().records.commit(writes, write_id).await;
        self.written.send_modify(|count| *count += 1);
        committed
    }
}

#[async_trait]
impl Queues for ObservedWorld {
    async fn send(&self, queue: MessageQueue, messages: Vec<Outgoing>) -> Result<(), PortError> {
        let sent = self.world.ports().queues.send(queue, messages).await;
        self.sent.send_modify(|count| *count += 1);
        sent
    }
    /// Waits where there is nothing, until something is sent.
    async fn receive(
        &self,
        queue: MessageQueue,
        max: u32,
        wait: u32,
        hidden: u32,
    ) -> Result<Vec<Incoming>, PortError> {
        let mut sent = self.sent.subscribe();
        loop {
            let messages = self.world.ports().queues.receive(queue, max, wait, hidden).await?;
            if !messages.is_empty() {
                return Ok(messages);
            }
            sent.changed().await.expect("the world is there");
        }
    }
    async fn acknowledge(&self, queue: MessageQueue, receipt: &str) -> Result<(), PortError> {
        self.world.ports().queues.acknowledge(queue, receipt).await
    }
    async fn acknowledge_all(
        &self,
        queue: MessageQueue,
        receipts: &[String],
    ) -> Result<(), PortError> {
        self.world.ports().queues.acknowledge_all(queue, receipts).await
    }
    async fn postpone(
        &self,
        queue: MessageQueue,
        receipt: &str,
        seconds: u32,
    ) -> Result<(), PortError> {
        self.world.ports().queues.postpone(queue, receipt, seconds).await
    }
}

/// Makes an executor with one slot, whose builds lie in `state` and get no time to finish.
pub fn executor(
    ports: Ports,
    runner: Arc<dyn Runner>,
    state: &tempfile::TempDir,
) -> Arc<ExecutorService> {
    draining_executor(ports, runner, state, 0)
}

/// Makes an executor with one slot, whose builds lie in `state` and get so many seconds to finish
/// when it shuts down.
pub fn draining_executor(
    ports: Ports,
    runner: Arc<dyn Runner>,
    state: &tempfile::TempDir,
    drain_seconds: u64,
) -> Arc<ExecutorService> {
    ExecutorService::new(ports, runner, settings(state, drain_seconds))
}

/// Makes an executor with one slot that takes these builds, and gives them no time to finish.
pub fn zoned_executor(
    ports: Ports,
    runner: Arc<dyn Runner>,
    state: &tempfile::TempDir,
    zone: ServedZone,
) -> Arc<ExecutorService> {
    ExecutorService::new(ports, runner, ExecutorSettings { zone, ..settings(state, 0) })
}

/// Returns the settings of an executor with one slot and without a zone.
fn settings(state: &tempfile::TempDir, drain_seconds: u64) -> ExecutorSettings {
    ExecutorSettings {
        hostname: "here".to_owned(),
        zone: ServedZone::Unzoned,
        slots: 1,
        limits: AdmissionLimits::default(),
        state: state.path().to_owned(),
        node_key: None,
        log_address: None,
        log_root: "https://sluice.test/logs/".to_owned(),
        drain_seconds,
        token_issuer: "https://sluice.test".to_owned(),
    }
}
