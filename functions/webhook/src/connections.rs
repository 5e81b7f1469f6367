//! Caches the connections, with their secrets opened, for a minute.

use sluice_forge::ForgeSecret;
use sluice_model::{ConnectionName, Timestamp};
use sluice_records::connection::{self, ConnectionsFile, StoredConnection};
use sluice_records::status_triggers::{self, StatusTriggers};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long in milliseconds cached connections are used.
const CACHED_MILLIS: u64 = 60_000;

/// The least milliseconds between two reads that wrong signatures cause, so that strangers cannot
/// cause many.
const REREAD_MILLIS: u64 = 2_000;

/// A connection as the webhook needs it.
#[derive(Debug)]
pub(crate) struct KnownConnection {
    /// The stored connection.
    pub(crate) stored: StoredConnection,
    /// The secrets that sign its webhooks; two during a rotation.
    pub(crate) secrets: Vec<ForgeSecret>,
}

/// How old a cached connection may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Up to a minute.
    Minute,
    /// As fresh as possible, limited by [`REREAD_MILLIS`].
    Now,
}

/// Cache of connections and status triggers.
///
/// A removed secret is accepted for up to a minute. An added one is accepted at once, because a
/// wrong signature has the connections read again.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The connections and when they were read; `None` before the first read.
    read: Option<(Timestamp, Arc<ConnectionsFile>)>,
    /// The connections that were used. Each is opened separately, so that an unreadable secret
    /// affects its own connection only.
    opened: BTreeMap<ConnectionName, Arc<KnownConnection>>,
    /// When a wrong signature last caused a read.
    reread_at: Option<Timestamp>,
    /// The status triggers, and when they were read.
    triggers: Option<(Timestamp, Arc<StatusTriggers>)>,
}

impl ConnectionCache {
    /// Returns the connection of this name with its decrypted webhook secrets; `None` if there is
    /// none. If the cache is not as fresh as `freshness` demands, reads all connections again
    /// first. An error if the store or the key service does not answer.
    pub(crate) async fn get(
        &self,
        ports: &Ports,
        name: &ConnectionName,
        freshness: Freshness,
    ) -> Result<Option<Arc<KnownConnection>>, PortError> {
        let file = match self.cached_if_fresh(ports.clock.now(), freshness) {
            Some(file) => file,
            None => {
                let (at, file) = (ports.clock.now(), Arc::new(connection::load(ports).await?));
                let mut state = self.lock();
                state.opened.clear();
                state.read = Some((at, file.clone()));
                file
            }
        };
        if let Some(cached) = self.lock().opened.get(name) {
            return Ok(Some(cached.clone()));
        }
        let Some(connection) = file.0.get(name) else { return Ok(None) };
        let cached = Arc::new(open(ports, name, connection).await?);
        self.lock().opened.insert(name.clone(), cached.clone());
        Ok(Some(cached))
    }

    /// Returns the commit status and check run triggers of all tenants, from the cache if they were
    /// read less than a minute ago.
    pub(crate) async fn status_triggers(
        &self,
        ports: &Ports,
    ) -> Result<Arc<StatusTriggers>, PortError> {
        let now = ports.clock.now();
        let cached = self.lock().triggers.clone();
        if let Some((_, triggers)) = cached.filter(|(at, _)| now.since(*at) < CACHED_MILLIS) {
            return Ok(triggers);
        }
        let triggers = Arc::new(status_triggers::load(ports).await?);
        self.lock().triggers = Some((now, triggers.clone()));
        Ok(triggers)
    }

    /// Returns the cached connections, or `None` if they have to be read again, as before the first
    /// read. With [`Freshness::Minute`] that is so once they are a minute old. With
    /// [`Freshness::Now`] it is always so, but at most once in [`REREAD_MILLIS`]: the time of such
    /// a `None` is recorded, so the caller must then read them.
    fn cached_if_fresh(
        &self,
        now: Timestamp,
        freshness: Freshness,
    ) -> Option<Arc<ConnectionsFile>> {
        let mut state = self.lock();
        let (at, file) = state.read.clone()?;
        let was_reread_recently = state.reread_at.is_some_and(|at| now.since(at) < REREAD_MILLIS);
        match freshness {
            Freshness::Minute => (now.since(at) < CACHED_MILLIS).then_some(file),
            Freshness::Now if was_reread_recently => Some(file),
            Freshness::Now => {
                state.reread_at = Some(now);
                None
            }
        }
    }

    /// Locks the cache.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decrypts the first two webhook secrets of a connection and returns them with the connection;
/// further secrets are ignored. An error if one of the two cannot be decrypted.
async fn open(
    ports: &Ports,
    name: &ConnectionName,
    connection: &StoredConnection,
) -> Result<KnownConnection, PortError> {
    let mut secrets = Vec::new();
    for sealed in connection.webhook_secrets.iter().take(2) {
        let context = connection::seal_context(name, "webhook-secret");
        secrets.push(ForgeSecret::new(connection::open(ports, &context, sealed).await?));
    }
    Ok(KnownConnection { stored: connection.clone(), secrets })
}
