//! Objects that are named by their content, opened once and kept in memory. One never changes under
//! its key, so none is stale.

use serde::de::DeserializeOwned;
use sluice_runtime::Ports;
use sluice_runtime::batch::LookError;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The newest objects of one kind.
pub(crate) struct Kept<T> {
    most: usize,
    // Held while one is read: who wants the same object meanwhile waits for it instead of reading
    // it again.
    objects: tokio::sync::Mutex<()>,
    newest: Mutex<VecDeque<(String, Arc<T>)>>,
}

impl<T: DeserializeOwned> Kept<T> {
    /// Keeps at most this many.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, objects: tokio::sync::Mutex::default(), newest: Mutex::default() }
    }

    /// Returns the object stored under `key`.
    pub(crate) async fn open(&self, ports: &Ports, key: &str) -> Result<Arc<T>, LookError> {
        let _reading = self.objects.lock().await;
        if let Some(kept) = self.kept(key) {
            return Ok(kept);
        }
        let again = |why: String| LookError::Again(format!("could not read {key}: {why}"));
        let object = ports
            .objects
            .get(key)
            .await?
            .ok_or_else(|| again("there is no such object".to_owned()))?;
        let opened: Arc<T> = Arc::new(
            serde_json::from_slice(&object.bytes).map_err(|error| again(error.to_string()))?,
        );
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.push_back((key.to_owned(), opened.clone()));
        if newest.len() > self.most {
            newest.pop_front();
        }
        Ok(opened)
    }

    fn kept(&self, key: &str) -> Option<Arc<T>> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.iter().find(|(kept, _)| kept == key).map(|(_, opened)| opened.clone())
    }
}
