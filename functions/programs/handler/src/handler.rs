//! One function: its name, its environment, and its answer to each event.
//!
//! Functions that use forges or clouds reload the stored connections once a minute, so that a new
//! connection or token needs no deployment.

use crate::environment::FunctionEnvironment;
use crate::event::{self, EventError, InvocationEvent};
use crate::name::{FunctionName, LambdaProgram};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use sluice_model::wakeup::MessageQueue;
use sluice_records::connection::{self, ConnectionsFile};
use sluice_runtime::batch::{self, ReconcileError, Reconciler};
use sluice_runtime::port::Incoming;
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long the loaded connections are used before they are loaded again.
const CONNECTIONS_CACHED: Duration = Duration::from_secs(60);

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
    /// Returns the error of a function that is not set up correctly. Its kind is `Setup`.
    pub fn setup(message: impl Into<String>) -> Self {
        Self { kind: "Setup", message: message.into() }
    }

    /// Returns the error of a program that is to run a function of another program. It names the
    /// program that has the function.
    pub fn in_another_program(name: FunctionName) -> Self {
        let (name, program) = (name.as_str(), name.program().as_str());
        Self::setup(format!(
            "the function {name} is not in this program: {program} has it; make that program the function's code"
        ))
    }

    /// Returns the error for a text in `SLUICE_FUNCTION` that names no function. It lists the
    /// functions of each program.
    pub(crate) fn unknown_function(text: &str) -> Self {
        let names = |program: LambdaProgram| {
            let all = FunctionName::ALL.into_iter();
            let own = all.filter(|(_, name)| name.program() == program).map(|(as_str, _)| as_str);
            format!("{} (in {})", own.collect::<Vec<_>>().join(", "), program.as_str())
        };
        Self::setup(format!(
            "there is no function {text:?}; set SLUICE_FUNCTION to one of {}, {}",
            names(LambdaProgram::Functions),
            names(LambdaProgram::CloudFunctions)
        ))
    }

    /// Returns the error of an event that the function does not have in the template. `event` is a
    /// plural noun for the text, such as `messages`.
    pub fn unhandled(event: &str) -> Self {
        Self::setup(format!(
            "this function does not handle {event}; see its events in the template"
        ))
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

/// What a function does with its events. It implements the methods of the events that it has in the
/// template.
#[async_trait]
pub trait Function: Send + Sync {
    /// Builds what handles the function's messages. `connections` are the stored ones if the
    /// function uses connections, else empty. `generation` grows with each new set of connections.
    /// By default, an error: the function has no messages.
    async fn reconciler(
        &self,
        _connections: &ConnectionsFile,
        _generation: u64,
    ) -> Result<Arc<dyn Reconciler>, InvocationError> {
        Err(InvocationError::unhandled("messages"))
    }

    /// Answers an HTTP request. `host` is the host name that the client used. By default, an error:
    /// the function has no requests.
    async fn respond(
        &self,
        _request: Request<Bytes>,
        _host: &str,
    ) -> Result<Response<Bytes>, InvocationError> {
        Err(InvocationError::unhandled("requests"))
    }

    /// Handles a tick of the schedule. By default, an error: the function has no schedule.
    async fn tick(&self) -> Result<(), InvocationError> {
        Err(InvocationError::unhandled("a schedule"))
    }
}

/// A function that can be invoked.
pub struct FunctionHandler {
    name: FunctionName,
    function: Box<dyn Function>,
    ports: Ports,
    queue_urls: BTreeMap<MessageQueue, String>,
    cache: Mutex<Option<ReconcilerCache>>,
}

/// A cached reconciler, with the connections that it was built from.
struct ReconcilerCache {
    reconciler: Arc<dyn Reconciler>,
    connections: ConnectionsFile,
    read_at: Instant,
    generation: u64,
}

impl FunctionHandler {
    /// Creates the handler that invokes `function` for events. Reads and calls nothing before the
    /// first event.
    pub fn new(
        name: FunctionName,
        environment: &FunctionEnvironment,
        function: Box<dyn Function>,
    ) -> Self {
        Self {
            name,
            function,
            ports: environment.ports.clone(),
            queue_urls: environment.queue_urls.clone(),
            cache: Mutex::new(None),
        }
    }

    /// Handles one event of Lambda and returns the response in JSON: for messages, the ids of those
    /// to deliver again; for a request, the HTTP response; for a tick, `null`. A message that fails
    /// is no error. An error for an unreadable event, for one that the function does not have in
    /// the template, and if nothing could be done.
    ///
    /// # Errors
    /// [`InvocationError`] when the event is not for this function, or nothing could be done: then
    /// it is redelivered.
    pub async fn answer(&self, payload: &[u8]) -> Result<Vec<u8>, InvocationError> {
        match InvocationEvent::read(payload)? {
            InvocationEvent::Messages { queue, messages } => {
                self.reconcile_batch(&queue, messages).await
            }
            InvocationEvent::Tick => self.function.tick().await.map(|()| b"null".to_vec()),
            InvocationEvent::Request { request, host } => {
                Ok(event::response(&self.function.respond(request, &host).await?))
            }
        }
    }

    /// Reconciles a batch of messages and returns the response in JSON: the ids of the messages to
    /// deliver again. `queue` is the name of the queue, or of its dead letter queue. An error, so
    /// that all messages come again, if the queue is unknown or the reconciler cannot be built.
    async fn reconcile_batch(
        &self,
        queue: &str,
        messages: Vec<Incoming>,
    ) -> Result<Vec<u8>, InvocationError> {
        let queue = self.queue(queue)?;
        let reconciler = self.reconciler().await?;
        let failed = batch::handle(&*reconciler, queue, messages).await;
        Ok(event::failed_messages(&failed))
    }

    /// Returns the queue with this name, which is the last part of its URL. The name of a dead
    /// letter queue, which ends in `-dead` or `-dead.fifo`, gives the queue that it belongs to. An
    /// error if the stack has no such queue.
    fn queue(&self, name: &str) -> Result<MessageQueue, InvocationError> {
        let main_name = match name.strip_suffix("-dead.fifo") {
            Some(start) => format!("{start}.fifo"),
            None => name.strip_suffix("-dead").unwrap_or(name).to_owned(),
        };
        let found =
            self.queue_urls.iter().find(|(_, url)| url.rsplit('/').next() == Some(&main_name));
        found
            .map(|(queue, _)| *queue)
            .ok_or_else(|| InvocationError::setup(format!("the queue {name} is not in this stack")))
    }

    /// Returns the reconciler for the stored connections. Keeps it for a minute, then reads the
    /// connections again and builds a new one only if they have changed. A function that uses no
    /// connections builds its reconciler once, with no connections. An error if the connections
    /// cannot be read or the reconciler cannot be built, even if an older one is kept.
    async fn reconciler(&self) -> Result<Arc<dyn Reconciler>, InvocationError> {
        let mut cache = self.cache.lock().await;
        let needs = self.name.uses_connections();
        if let Some(cached) = cache.as_ref()
            && (!needs || cached.read_at.elapsed() < CONNECTIONS_CACHED)
        {
            return Ok(cached.reconciler.clone());
        }
        let connections = match needs {
            true => connection::load(&self.ports).await?,
            false => ConnectionsFile::default(),
        };
        let read_at = Instant::now();
        if let Some(cached) = cache.as_mut()
            && cached.connections == connections
        {
            cached.read_at = read_at;
            return Ok(cached.reconciler.clone());
        }
        let generation = cache.as_ref().map_or(0, |cached| cached.generation + 1);
        let reconciler = self.function.reconciler(&connections, generation).await?;
        *cache = Some(ReconcilerCache {
            reconciler: reconciler.clone(),
            connections,
            read_at,
            generation,
        });
        Ok(reconciler)
    }
}
