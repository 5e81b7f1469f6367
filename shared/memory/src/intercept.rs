//! A table that intercepts calls for single records, where a [`crate::Fate`] would affect a whole
//! call.

use async_trait::async_trait;
use sluice_model::Timestamp;
use sluice_runtime::record::{Key, Query, Record, TransactionOutcome, Write};
use sluice_runtime::{PortError, Records};
use std::sync::Arc;

/// A table whose reads by key can be refused, and whose writes can be replaced.
pub struct Meddled {
    inner: Arc<dyn Records>,
    reads: Reads,
    writes: Writes,
}

/// Returns an error for keys that must not be read.
type Reads = Box<dyn Fn(&[Key]) -> Result<(), PortError> + Send + Sync>;

/// Returns the writes to make instead.
type Writes = Box<dyn Fn(Vec<Write>) -> Vec<Write> + Send + Sync>;

impl Meddled {
    /// Returns a table that calls `reads` before each read by key; its error is returned instead of
    /// the records. Other calls go to `inner` unchanged.
    pub fn reading(
        inner: Arc<dyn Records>,
        reads: impl Fn(&[Key]) -> Result<(), PortError> + Send + Sync + 'static,
    ) -> Self {
        Self { inner, reads: Box::new(reads), writes: Box::new(|writes| writes) }
    }

    /// Returns a table that passes the writes of each commit through `writes` and commits what that
    /// returns. Other calls go to `inner` unchanged.
    pub fn writing(
        inner: Arc<dyn Records>,
        writes: impl Fn(Vec<Write>) -> Vec<Write> + Send + Sync + 'static,
    ) -> Self {
        Self { inner, reads: Box::new(|_| Ok(())), writes: Box::new(writes) }
    }
}

#[async_trait]
impl Records for Meddled {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, PortError> {
        (self.reads)(keys)?;
        self.inner.get(keys).await
    }

    async fn query(&self, query: &Query) -> Result<Vec<Record>, PortError> {
        self.inner.query(query).await
    }

    async fn due(&self, shard: u32, until: Timestamp, limit: usize) -> Result<Vec<Key>, PortError> {
        self.inner.due(shard, until, limit).await
    }

    /// Passes the call on to the inner table unchanged.
    async fn find(
        &self,
        partition: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Key>, PortError> {
        self.inner.find(partition, before, limit).await
    }

    /// Passes the writes through the function given to [`Self::writing`] and commits what that
    /// returns; without one, commits `writes` unchanged.
    async fn commit(
        &self,
        writes: Vec<Write>,
        write_id: &str,
    ) -> Result<TransactionOutcome, PortError> {
        self.inner.commit((self.writes)(writes), write_id).await
    }
}
