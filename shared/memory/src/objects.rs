//! Object storage in memory.

use crate::world::World;
use async_trait::async_trait;
use bytes::Bytes;
use sluice_runtime::object::{Object, ObjectPart, PutMode, PutOutcome};
use sluice_runtime::{Objects, PortError};

#[async_trait]
impl Objects for World {
    /// Returns the object, with its version as entity tag, or `None` when there is none. One step,
    /// called `objects.get`.
    async fn get(&self, key: &str) -> Result<Option<Object>, PortError> {
        self.with("objects.get", |state| {
            Ok(state
                .objects
                .get(key)
                .map(|(bytes, version)| Object { bytes: bytes.clone(), etag: version.to_string() }))
        })
        .await
    }

    /// Returns at most `most` bytes of an object from byte `first` on, none beyond its end, with
    /// the length of the whole object; `None` when there is no object. One step, called
    /// `objects.get_part`.
    async fn get_part(
        &self,
        key: &str,
        first: u64,
        most: usize,
    ) -> Result<Option<ObjectPart>, PortError> {
        self.with("objects.get_part", |state| {
            Ok(state.objects.get(key).map(|(bytes, _)| {
                let from = usize::try_from(first).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(most).min(bytes.len());
                ObjectPart { bytes: bytes.slice(from..to), length: bytes.len() as u64 }
            }))
        })
        .await
    }

    /// Stores an object under a new version, if the condition of `mode` holds; otherwise nothing is
    /// written, which is an outcome. Ignores the content type. One step, called `objects.put`.
    async fn put(
        &self,
        key: &str,
        bytes: Bytes,
        mode: PutMode,
        _content_type: &str,
    ) -> Result<PutOutcome, PortError> {
        self.with("objects.put", |state| {
            let found = state.objects.get(key).map(|(_, version)| version.to_string());
            let allowed = match &mode {
                PutMode::Always => true,
                PutMode::IfAbsent => found.is_none(),
                PutMode::IfMatch(etag) => found.as_ref() == Some(etag),
            };
            if !allowed {
                return Ok(PutOutcome::ConditionFailed);
            }
            state.object_versions += 1;
            state.objects.insert(key.to_owned(), (bytes, state.object_versions));
            Ok(PutOutcome::Yes)
        })
        .await
    }

    /// Returns at most `limit` keys that begin with `prefix`, in order, after the key `after` if
    /// that is given. One step, called `objects.list`.
    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, PortError> {
        self.with("objects.list", |state| {
            let keys = state
                .objects
                .range(prefix.to_owned()..)
                .map(|(key, _)| key)
                .take_while(|key| key.starts_with(prefix));
            Ok(keys
                .filter(|key| after.is_none_or(|after| key.as_str() > after))
                .take(limit)
                .cloned()
                .collect())
        })
        .await
    }

    /// Removes an object; succeeds when there is none. One step, called `objects.delete`.
    async fn delete(&self, key: &str) -> Result<(), PortError> {
        self.with("objects.delete", |state| {
            state.objects.remove(key);
            Ok(())
        })
        .await
    }
}
