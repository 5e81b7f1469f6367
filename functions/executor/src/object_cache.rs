//! Caches decoded objects in memory. Object keys contain a content hash, so a cached object is
//! never stale.

use serde::de::DeserializeOwned;
use sluice_runtime::Ports;
use sluice_runtime::batch::ReconcileError;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// A bounded cache of objects of one type, oldest evicted first.
pub(crate) struct ObjectCache<T> {
    /// The maximum number of cached objects.
    capacity: usize,
    /// Held during a read, so that concurrent callers wait instead of reading the same object.
    reading: tokio::sync::Mutex<()>,
    /// The cached objects with their keys, oldest first.
    cached: Mutex<VecDeque<(String, Arc<T>)>>,
}

impl<T: DeserializeOwned> ObjectCache<T> {
    /// Creates a cache of at most `capacity` objects.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, reading: tokio::sync::Mutex::default(), cached: Mutex::default() }
    }

    /// Returns the object stored under `key`, from the cache, or read and decoded from storage. A
    /// missing or damaged one is an error that has the message delivered again. Only one object is
    /// read at a time; other callers wait, also for a cached object.
    pub(crate) async fn open(&self, ports: &Ports, key: &str) -> Result<Arc<T>, ReconcileError> {
        let _reading = self.reading.lock().await;
        if let Some(object) = self.find(key) {
            return Ok(object);
        }
        let again = |why: String| ReconcileError::Retry(format!("could not read {key}: {why}"));
        let object = ports
            .objects
            .get(key)
            .await?
            .ok_or_else(|| again("the object does not exist".to_owned()))?;
        let opened: Arc<T> = Arc::new(
            serde_json::from_slice(&object.bytes).map_err(|error| again(error.to_string()))?,
        );
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.push_back((key.to_owned(), opened.clone()));
        if cached.len() > self.capacity {
            cached.pop_front();
        }
        Ok(opened)
    }

    /// Returns the cached object; `None` if it is not cached.
    fn find(&self, key: &str) -> Option<Arc<T>> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.iter().find(|(cached_key, _)| cached_key == key).map(|(_, opened)| opened.clone())
    }
}
