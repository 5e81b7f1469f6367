//! One function: its name, its place, and what it answers to each event.
//!
//! Functions that speak to forges or clouds read the stored connections again once a minute, so
//! that an added connection or a changed token needs no deployment.

use crate::event::{self, Event, EventError};
use crate::outside;
use crate::place::Place;
use crate::pool_key::PoolKey;
use bytes::Bytes;
use http::{Response, StatusCode};
use sluice_api::{Api, HttpLiveLogs};
use sluice_cloud::LoginKey;
use sluice_gate_function::Gate;
use sluice_images::Images;
use sluice_intake::Intake;
use sluice_launcher::{Launcher, SshChecks};
use sluice_merger::Merger;
use sluice_model::ConnectionName;
use sluice_model::poke::Queue;
use sluice_records::connection::{self, ConnectionsFile};
use sluice_reporter::Reporter;
use sluice_repos::GitRepos;
use sluice_runtime::PortError;
use sluice_runtime::batch::{self, Look, LookError};
use sluice_runtime::port::Incoming;
use sluice_tenant::Tenants;
use sluice_timer::Timer;
use sluice_webhook::Webhook;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OnceCell};
use url::{Host, Url};

/// How long the stored connections count as read.
const CONNECTIONS_KEPT: Duration = Duration::from_secs(60);

/// The functions, as `SLUICE_FUNCTION` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// Takes what forges send.
    Webhook,
    /// Answers people and tools.
    Api,
    /// Handles deliveries.
    Intake,
    /// Moves change queues.
    Gate,
    /// Reads configuration.
    Tenant,
    /// Merges and freezes.
    Merger,
    /// Looks after nodes.
    Launcher,
    /// Looks after images.
    Images,
    /// Reports and lands.
    Reporter,
    /// Sweeps.
    Timer,
}

impl Name {
    /// Every function.
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

impl Name {
    /// Returns the word that names it.
    pub fn word(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, name)| *name == self).map_or("function", |(word, _)| word)
    }
}

impl std::str::FromStr for Name {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|(word, _)| *word == text);
        let known = || Self::ALL.map(|(word, _)| word).join(", ");
        found.map(|(_, name)| name).ok_or_else(|| {
            Failure::setup(format!(
                "there is no function {text:?}; set SLUICE_FUNCTION to one of {}",
                known()
            ))
        })
    }
}

/// Why a call has no answer; Lambda is told both.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its kind, one word.
    pub kind: &'static str,
    /// What happened.
    pub message: String,
}

impl Failure {
    fn setup(message: impl Into<String>) -> Self {
        Self { kind: "Setup", message: message.into() }
    }
}

impl From<EventError> for Failure {
    fn from(error: EventError) -> Self {
        Self { kind: "Event", message: error.to_string() }
    }
}

impl From<PortError> for Failure {
    fn from(error: PortError) -> Self {
        Self { kind: "Port", message: error.to_string() }
    }
}

impl From<LookError> for Failure {
    fn from(error: LookError) -> Self {
        Self { kind: "Look", message: error.to_string() }
    }
}

/// A function that can be called.
pub struct Function {
    name: Name,
    place: Place,
    timer: Timer,
    /// One for all requests: it remembers connections, their secrets opened, for a minute.
    webhook: Webhook,
    api: OnceCell<Api>,
    looking: Mutex<Option<Looking>>,
}

/// What looks at cells, and which connections it was made of.
struct Looking {
    look: Arc<dyn Look>,
    connections: Option<ConnectionsFile>,
    read_at: Instant,
    generation: u64,
}

impl Function {
    /// Makes a function. Nothing is called before its first event.
    pub fn new(name: Name, place: Place) -> Self {
        let timer = Timer::new(place.ports.clone(), place.ask_minutes);
        Self {
            name,
            timer,
            webhook: Webhook::new(place.ports.clone()),
            place,
            api: OnceCell::new(),
            looking: Mutex::new(None),
        }
    }

    /// Answers one event.
    ///
    /// # Errors
    /// [`Failure`] when the event is none of this function's, or nothing could be done at all: then
    /// it comes again.
    pub async fn answer(&self, payload: &[u8]) -> Result<Vec<u8>, Failure> {
        match (Event::read(payload)?, self.name) {
            (Event::Messages { queue, messages }, _) => self.look_at(&queue, messages).await,
            (Event::Tick, Name::Timer) => Ok(self.timer.tick().await.map(|()| b"null".to_vec())?),
            (Event::Request { request, .. }, Name::Webhook) => {
                let answer = match connection_of(request.uri().path()) {
                    Some(connection) => {
                        self.webhook.receive(&connection, request.headers(), request.body()).await
                    }
                    None => not_found(),
                };
                Ok(event::response(&answer))
            }
            (Event::Request { request, host }, Name::Api) => {
                Ok(event::response(&self.api(&host).await?.answer(request).await))
            }
            (event, name) => Err(Failure::setup(format!(
                "the {name:?} function is not for {}; see its events in the template",
                event.kind()
            ))),
        }
    }

    async fn look_at(&self, queue: &str, messages: Vec<Incoming>) -> Result<Vec<u8>, Failure> {
        let queue = self.queue(queue)?;
        let look = self.look().await?;
        let failed = batch::handle(&*look, queue, messages).await;
        Ok(event::failed_messages(&failed))
    }

    /// Returns the queue of that name; a dead letter queue counts as the queue whose letters it
    /// keeps.
    fn queue(&self, name: &str) -> Result<Queue, Failure> {
        let alive = match name.strip_suffix("-dead.fifo") {
            Some(start) => format!("{start}.fifo"),
            None => name.strip_suffix("-dead").unwrap_or(name).to_owned(),
        };
        let found =
            self.place.queue_urls.iter().find(|(_, url)| url.rsplit('/').next() == Some(&alive));
        found
            .map(|(queue, _)| *queue)
            .ok_or_else(|| Failure::setup(format!("the queue {name} is none of this stack's")))
    }

    async fn api(&self, host: &str) -> Result<&Api, Failure> {
        let make = || async {
            // Nobody told an address: then it is the one that was asked first.
            let web_root =
                self.place.web_root.clone().unwrap_or_else(|| format!("https://{host}/"));
            let api = Api::new(self.place.ports.clone(), Arc::new(HttpLiveLogs::new()?), &web_root);
            Ok(if is_of_this_machine(&web_root) { api.for_own_pages() } else { api })
        };
        self.api.get_or_try_init(make).await
    }

    /// Returns what looks at cells, made anew when the stored connections are others than those it
    /// was made of.
    async fn look(&self) -> Result<Arc<dyn Look>, Failure> {
        let mut looking = self.looking.lock().await;
        let needs = matches!(
            self.name,
            Name::Intake | Name::Reporter | Name::Merger | Name::Tenant | Name::Launcher
        );
        if let Some(held) = looking.as_ref()
            && (!needs || held.read_at.elapsed() < CONNECTIONS_KEPT)
        {
            return Ok(held.look.clone());
        }
        let connections =
            if needs { Some(connection::load(&self.place.ports).await?) } else { None };
        let read_at = Instant::now();
        if let Some(held) = looking.as_mut()
            && held.connections == connections
        {
            held.read_at = read_at;
            return Ok(held.look.clone());
        }
        let generation = looking.as_ref().map_or(0, |held| held.generation + 1);
        let look = self
            .make(connections.as_ref().unwrap_or(&ConnectionsFile::default()), generation)
            .await?;
        *looking = Some(Looking { look: look.clone(), connections, read_at, generation });
        Ok(look)
    }

    async fn make(
        &self,
        connections: &ConnectionsFile,
        generation: u64,
    ) -> Result<Arc<dyn Look>, Failure> {
        let place = &self.place;
        let ports = || place.ports.clone();
        Ok(match self.name {
            Name::Intake => {
                Arc::new(Intake::new(ports(), outside::forges(place, connections).await?))
            }
            Name::Reporter => {
                let reporter = Reporter::new(ports(), outside::forges(place, connections).await?);
                Arc::new(reporter.with_notifiers(outside::notifiers(place, connections).await?))
            }
            Name::Gate => Arc::new(Gate::new(ports(), place.web_root.clone().unwrap_or_default())),
            Name::Merger => {
                Arc::new(Merger::new(ports(), self.repos(connections, generation).await?))
            }
            Name::Tenant => {
                let forges = outside::forges(place, connections).await?;
                Arc::new(Tenants::new(ports(), self.repos(connections, generation).await?, forges))
            }
            Name::Launcher => self.launcher(connections).await?,
            Name::Timer => Arc::new(Timer::new(ports(), place.ask_minutes)),
            Name::Images => Arc::new(Images::new(ports())),
            Name::Webhook | Name::Api => return Err(Failure::setup("this function has no queue")),
        })
    }

    /// Each set of connections has a cache of its own: two must not work in one directory.
    async fn repos(
        &self,
        connections: &ConnectionsFile,
        generation: u64,
    ) -> Result<Arc<GitRepos>, Failure> {
        let remotes = outside::remotes(&self.place, connections).await?;
        let directory = self.place.cache.join(format!("git-{generation}"));
        Ok(Arc::new(GitRepos::new(self.place.ports.clone(), remotes, directory)))
    }

    async fn launcher(&self, connections: &ConnectionsFile) -> Result<Arc<dyn Look>, Failure> {
        let key = PoolKey::needed(&self.place.ports).await?;
        let private = key.open(&self.place.ports).await?;
        let login =
            LoginKey::from_openssh(&private).map_err(|error| Failure::setup(error.to_string()))?;
        let clouds = outside::clouds(&self.place, connections, &key);
        Ok(Arc::new(Launcher::new(
            self.place.ports.clone(),
            clouds,
            Arc::new(SshChecks::new(login)),
        )))
    }
}

/// Returns the connection that a delivery is for: `/api/connection/{connection}/payload`.
fn connection_of(path: &str) -> Option<ConnectionName> {
    let name = path.strip_prefix("/api/connection/")?.strip_suffix("/payload")?;
    (!name.is_empty() && !name.contains('/')).then(|| ConnectionName::from(name))
}

/// Returns whether pages at this address are seen from this machine alone.
fn is_of_this_machine(web_root: &str) -> bool {
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
    fn pages_on_loopback_are_of_this_machine_and_no_others_are() {
        for root in [
            "http://127.0.0.1:9000/",
            "http://127.8.0.1/",
            "http://[::1]:9000/",
            "http://localhost:9000/",
        ] {
            assert!(is_of_this_machine(root), "{root}");
        }
        for root in [
            "https://ci.example.org/",
            "http://10.0.0.7:9000/",
            "http://localhost.example.org/",
            "",
            "/",
        ] {
            assert!(!is_of_this_machine(root), "{root}");
        }
    }
}
