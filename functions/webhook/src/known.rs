//! Connections as the webhook knows them, their secrets opened: kept in memory for a minute.

use sluice_forge::Secret;
use sluice_model::{ConnectionName, Timestamp};
use sluice_records::connection::{self, Connection, ConnectionsFile};
use sluice_records::status::{self, StatusTriggers};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Milliseconds for which connections that were read are used.
const KEPT_MILLIS: u64 = 60_000;

/// Milliseconds between two readings because of signatures that do not fit: strangers cannot have
/// more made.
const AGAIN_MILLIS: u64 = 2_000;

/// A connection as far as a webhook needs it.
#[derive(Debug)]
pub(crate) struct KnownConnection {
    /// What is stored of it.
    pub(crate) stored: Connection,
    /// What its webhooks are signed with; two while they are changed.
    pub(crate) secrets: Vec<Secret>,
}

/// How old what is known may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// A minute.
    Minute,
    /// As new as may be had; see [`AGAIN_MILLIS`].
    Now,
}

/// What is known of connections.
///
/// A secret that was taken back is accepted for up to a minute. One that was added is known at
/// once, since a signature that does not fit has the connections read again.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    read: Option<(Timestamp, Arc<ConnectionsFile>)>,
    /// Those of `read` that were asked for. Each is opened by itself: a secret that cannot be
    /// opened is its own connection's problem.
    opened: BTreeMap<ConnectionName, Arc<KnownConnection>>,
    /// When they were read last because of a signature.
    read_again_at: Option<Timestamp>,
    /// Which statuses may start anything, and when that was read.
    triggers: Option<(Timestamp, Arc<StatusTriggers>)>,
}

impl Known {
    /// Returns a connection; `None` when there is none of this name.
    pub(crate) async fn get(
        &self,
        ports: &Ports,
        name: &ConnectionName,
        freshness: Freshness,
    ) -> Result<Option<Arc<KnownConnection>>, PortError> {
        let file = match self.recent(ports.clock.now(), freshness) {
            Some(file) => file,
            None => {
                let (at, file) = (ports.clock.now(), Arc::new(connection::load(ports).await?));
                let mut state = self.lock();
                state.opened.clear();
                state.read = Some((at, file.clone()));
                file
            }
        };
        if let Some(known) = self.lock().opened.get(name) {
            return Ok(Some(known.clone()));
        }
        let Some(connection) = file.0.get(name) else { return Ok(None) };
        let known = Arc::new(open(ports, name, connection).await?);
        self.lock().opened.insert(name.clone(), known.clone());
        Ok(Some(known))
    }

    /// Returns which statuses and check runs may start anything: read once a minute, and only where
    /// one of ours comes.
    pub(crate) async fn status_triggers(
        &self,
        ports: &Ports,
    ) -> Result<Arc<StatusTriggers>, PortError> {
        let now = ports.clock.now();
        let known = self.lock().triggers.clone();
        if let Some((_, triggers)) = known.filter(|(at, _)| now.since(*at) < KEPT_MILLIS) {
            return Ok(triggers);
        }
        let triggers = Arc::new(status::load(ports).await?);
        self.lock().triggers = Some((now, triggers.clone()));
        Ok(triggers)
    }

    /// Returns what was read, unless it is to be read again.
    fn recent(&self, now: Timestamp, freshness: Freshness) -> Option<Arc<ConnectionsFile>> {
        let mut state = self.lock();
        let (at, file) = state.read.clone()?;
        let read_again_of_late = state.read_again_at.is_some_and(|at| now.since(at) < AGAIN_MILLIS);
        match freshness {
            Freshness::Minute => (now.since(at) < KEPT_MILLIS).then_some(file),
            Freshness::Now if read_again_of_late => Some(file),
            Freshness::Now => {
                state.read_again_at = Some(now);
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn open(
    ports: &Ports,
    name: &ConnectionName,
    connection: &Connection,
) -> Result<KnownConnection, PortError> {
    let mut secrets = Vec::new();
    for sealed in connection.webhook_secrets.iter().take(2) {
        let context = connection::seal_context(name, "webhook-secret");
        secrets.push(Secret::new(connection::open(ports, &context, sealed).await?));
    }
    Ok(KnownConnection { stored: connection.clone(), secrets })
}
