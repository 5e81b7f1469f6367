//! One function: its name, its environment, and its answer to each event.
//!
//! Functions that use forges or clouds reload the stored connections once a minute, so that a new
//! connection or token needs no deployment.

use crate::connection_drivers;
use crate::environment::FunctionEnvironment;
use crate::event::{self, EventError, InvocationEvent};
use crate::pool_key::PoolKey;
use bytes::Bytes;
use http::{Response, StatusCode};
use sluice_api::{Api, HttpLiveLogSource};
use sluice_cloud::LoginKey;
use sluice_gate_function::Gate;
use sluice_images::Images;
use sluice_intake::Intake;
use sluice_launcher::{Launcher, SshChecks};
use sluice_merger::Merger;
use sluice_model::ConnectionName;
use sluice_model::wakeup::MessageQueue;
use sluice_records::connection::{self, ConnectionsFile};
use sluice_reporter::Reporter;
use sluice_repos::GitRepos;
use sluice_runtime::PortError;
use sluice_runtime::batch::{self, ReconcileError, Reconciler};
use sluice_runtime::port::Incoming;
use sluice_tenant::Tenants;
use sluice_timer::Timer;
use sluice_webhook::WebhookReceiver;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OnceCell};
use url::{Host, Url};

/// How long the loaded connections are used before they are loaded again.
const CONNECTIONS_CACHED: Duration = Duration::from_secs(60);

/// The functions, by their names in `SLUICE_FUNCTION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionName {
    /// Receives webhooks.
    Webhook,
    /// Serves the API and the pages.
    Api,
    /// Handles deliveries: turns events into queue messages.
    Intake,
    /// Advances the queues.
    Gate,
    /// Loads the tenants' configuration.
    Tenant,
    /// Merges changes speculatively and freezes jobs.
    Merger,
    /// Launches and deletes nodes.
    Launcher,
    /// Manages images.
    Images,
    /// Reports results and merges changes.
    Reporter,
    /// Runs the sweeps.
    Timer,
}

impl FunctionName {
    /// Every function with its name.
    pub const ALL: [(&'static str, Self); 10] = [
        ("webhook", Self::Webhook),
        ("api", Self::Api),
        ("intake", Self::Intake),
        ("gate", Self::Gate),
        ("tenant", Self::Tenant),
        ("merger", Self::Merger),
        ("launcher", Self::Launcher),
        ("images", Self::Images),
        ("reporter", Self::Reporter),
        ("timer", Self::Timer),
    ];
}

impl FunctionName {
    /// Returns the name as in `SLUICE_FUNCTION`.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(_, name)| *name == self)
            .map_or("function", |(as_str, _)| as_str)
    }
}

impl std::str::FromStr for FunctionName {
    type Err = InvocationError;

    fn from_str(text: &str) -> Result<Self, InvocationError> {
        let found = Self::ALL.into_iter().find(|(as_str, _)| *as_str == text);
        let known = || Self::ALL.map(|(as_str, _)| as_str).join(", ");
        found.map(|(_, name)| name).ok_or_else(|| {
            InvocationError::setup(format!(
                "there is no function {text:?}; set SLUICE_FUNCTION to one of {}",
                known()
            ))
        })
    }
}

/// Why an invocation failed; Lambda gets both fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvocationError {
    /// The kind of error, one word.
    pub kind: &'static str,
    /// The error message.
    pub message: String,
}

impl InvocationError {
    fn setup(message: impl Into<String>) -> Self {
        Self { kind: "Setup", message: message.into() }
    }
}

impl From<EventError> for InvocationError {
    fn from(error: EventError) -> Self {
        Self { kind: "InvocationEvent", message: error.to_string() }
    }
}

impl From<PortError> for InvocationError {
    fn from(error: PortError) -> Self {
        Self { kind: "Port", message: error.to_string() }
    }
}

impl From<ReconcileError> for InvocationError {
    fn from(error: ReconcileError) -> Self {
        Self { kind: "Reconcile", message: error.to_string() }
    }
}

/// A function that can be invoked.
pub struct FunctionHandler {
    name: FunctionName,
    environment: FunctionEnvironment,
    timer: Timer,
    /// Shared by all requests, because it caches decrypted connections for a minute.
    webhook: WebhookReceiver,
    api: OnceCell<Api>,
    cache: Mutex<Option<ReconcilerCache>>,
}

/// A cached reconciler, with the connections that it was built from.
struct ReconcilerCache {
    look: Arc<dyn Reconciler>,
    connections: Option<ConnectionsFile>,
    read_at: Instant,
    generation: u64,
}

impl FunctionHandler {
    /// Creates a function. Calls nothing before the first event.
    pub fn new(name: FunctionName, environment: FunctionEnvironment) -> Self {
        let timer = Timer::new(environment.ports.clone(), environment.ask_minutes);
        Self {
            name,
            timer,
            webhook: WebhookReceiver::new(environment.ports.clone()),
            environment,
            api: OnceCell::new(),
            cache: Mutex::new(None),
        }
    }

    /// Handles one event and returns the response.
    ///
    /// # Errors
    /// [`InvocationError`] when the event is not for this function, or nothing could be done: then
    /// it is redelivered.
    pub async fn answer(&self, payload: &[u8]) -> Result<Vec<u8>, InvocationError> {
        match (InvocationEvent::read(payload)?, self.name) {
            (InvocationEvent::Messages { queue, messages }, _) => {
                self.look_at(&queue, messages).await
            }
            (InvocationEvent::Tick, FunctionName::Timer) => {
                Ok(self.timer.tick().await.map(|()| b"null".to_vec())?)
            }
            (InvocationEvent::Request { request, .. }, FunctionName::Webhook) => {
                let answer = match connection_of(request.uri().path()) {
                    Some(connection) => {
                        self.webhook.receive(&connection, request.headers(), request.body()).await
                    }
                    None => not_found(),
                };
                Ok(event::response(&answer))
            }
            (InvocationEvent::Request { request, host }, FunctionName::Api) => {
                Ok(event::response(&self.api(&host).await?.answer(request).await))
            }
            (event, name) => Err(InvocationError::setup(format!(
                "the {name:?} function does not handle {}; see its events in the template",
                event.kind()
            ))),
        }
    }

    async fn look_at(
        &self,
        queue: &str,
        messages: Vec<Incoming>,
    ) -> Result<Vec<u8>, InvocationError> {
        let queue = self.queue(queue)?;
        let look = self.look().await?;
        let failed = batch::handle(&*look, queue, messages).await;
        Ok(event::failed_messages(&failed))
    }

    /// Returns the queue with a name. The name of a dead letter queue gives the queue it belongs
    /// to.
    fn queue(&self, name: &str) -> Result<MessageQueue, InvocationError> {
        let main_name = match name.strip_suffix("-dead.fifo") {
            Some(start) => format!("{start}.fifo"),
            None => name.strip_suffix("-dead").unwrap_or(name).to_owned(),
        };
        let found = self
            .environment
            .queue_urls
            .iter()
            .find(|(_, url)| url.rsplit('/').next() == Some(&main_name));
        found
            .map(|(queue, _)| *queue)
            .ok_or_else(|| InvocationError::setup(format!("the queue {name} is not in this stack")))
    }

    async fn api(&self, host: &str) -> Result<&Api, InvocationError> {
        let build = || async {
            // Without a configured address, the host of the first request is used.
            let web_root =
                self.environment.web_root.clone().unwrap_or_else(|| format!("https://{host}/"));
            let api = Api::new(
                self.environment.ports.clone(),
                Arc::new(HttpLiveLogSource::new()?),
                &web_root,
            );
            Ok(if is_loopback(&web_root) { api.restricted_to_own_pages() } else { api })
        };
        self.api.get_or_try_init(build).await
    }

    /// Returns the cached reconciler, and builds a new one when the stored connections have
    /// changed.
    async fn look(&self) -> Result<Arc<dyn Reconciler>, InvocationError> {
        let mut cache = self.cache.lock().await;
        let needs = matches!(
            self.name,
            FunctionName::Intake
                | FunctionName::Reporter
                | FunctionName::Merger
                | FunctionName::Tenant
                | FunctionName::Launcher
        );
        if let Some(cached) = cache.as_ref()
            && (!needs || cached.read_at.elapsed() < CONNECTIONS_CACHED)
        {
            return Ok(cached.look.clone());
        }
        let connections =
            if needs { Some(connection::load(&self.environment.ports).await?) } else { None };
        let read_at = Instant::now();
        if let Some(cached) = cache.as_mut()
            && cached.connections == connections
        {
            cached.read_at = read_at;
            return Ok(cached.look.clone());
        }
        let generation = cache.as_ref().map_or(0, |cached| cached.generation + 1);
        let look = self
            .build(connections.as_ref().unwrap_or(&ConnectionsFile::default()), generation)
            .await?;
        *cache = Some(ReconcilerCache { look: look.clone(), connections, read_at, generation });
        Ok(look)
    }

    async fn build(
        &self,
        connections: &ConnectionsFile,
        generation: u64,
    ) -> Result<Arc<dyn Reconciler>, InvocationError> {
        let environment = &self.environment;
        let ports = || environment.ports.clone();
        Ok(match self.name {
            FunctionName::Intake => Arc::new(Intake::new(
                ports(),
                connection_drivers::forges(environment, connections).await?,
            )),
            FunctionName::Reporter => {
                let reporter = Reporter::new(
                    ports(),
                    connection_drivers::forges(environment, connections).await?,
                );
                Arc::new(
                    reporter.with_notifiers(
                        connection_drivers::notifiers(environment, connections).await?,
                    ),
                )
            }
            FunctionName::Gate => {
                Arc::new(Gate::new(ports(), environment.web_root.clone().unwrap_or_default()))
            }
            FunctionName::Merger => {
                Arc::new(Merger::new(ports(), self.repos(connections, generation).await?))
            }
            FunctionName::Tenant => {
                let forges = connection_drivers::forges(environment, connections).await?;
                Arc::new(Tenants::new(ports(), self.repos(connections, generation).await?, forges))
            }
            FunctionName::Launcher => self.launcher(connections).await?,
            FunctionName::Timer => Arc::new(Timer::new(ports(), environment.ask_minutes)),
            FunctionName::Images => Arc::new(Images::new(ports())),
            FunctionName::Webhook | FunctionName::Api => {
                return Err(InvocationError::setup("this function has no queue"));
            }
        })
    }

    /// Each set of connections has its own cache directory, because two must not share one.
    async fn repos(
        &self,
        connections: &ConnectionsFile,
        generation: u64,
    ) -> Result<Arc<GitRepos>, InvocationError> {
        let remotes = connection_drivers::remotes(&self.environment, connections).await?;
        let directory = self.environment.cache.join(format!("git-{generation}"));
        Ok(Arc::new(GitRepos::new(self.environment.ports.clone(), remotes, directory)))
    }

    async fn launcher(
        &self,
        connections: &ConnectionsFile,
    ) -> Result<Arc<dyn Reconciler>, InvocationError> {
        let key = PoolKey::load_required(&self.environment.ports).await?;
        let private = key.open(&self.environment.ports).await?;
        let login = LoginKey::from_openssh(&private)
            .map_err(|error| InvocationError::setup(error.to_string()))?;
        let clouds = connection_drivers::clouds(&self.environment, connections, &key);
        Ok(Arc::new(Launcher::new(
            self.environment.ports.clone(),
            clouds,
            Arc::new(SshChecks::new(login)),
        )))
    }
}

/// Returns the connection in a webhook path: `/api/connection/{connection}/payload`.
fn connection_of(path: &str) -> Option<ConnectionName> {
    let name = path.strip_prefix("/api/connection/")?.strip_suffix("/payload")?;
    (!name.is_empty() && !name.contains('/')).then(|| ConnectionName::from(name))
}

/// Returns whether an address of the pages is reachable from this machine only.
fn is_loopback(web_root: &str) -> bool {
    let Ok(root) = Url::parse(web_root) else { return false };
    match root.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn not_found() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z5.4
    #[test]
    fn only_loopback_addresses_are_local() {
        for root in [
            "http://127.0.0.1:9000/",
            "http://127.8.0.1/",
            "http://[::1]:9000/",
            "http://localhost:9000/",
        ] {
            assert!(is_loopback(root), "{root}");
        }
        for root in [
            "https://ci.example.org/",
            "http://10.0.0.7:9000/",
            "http://localhost.example.org/",
            "",
            "/",
        ] {
            assert!(!is_loopback(root), "{root}");
        }
    }
}
