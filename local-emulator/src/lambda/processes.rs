//! Runs functions as processes. Idle processes are reused and more are started on demand. The next
//! call replaces a dead process, and keeps waiting for one that is slow to start.

use super::child::{Credentials, Patience, Print, Worker};
use super::runtime_api::lock;
use super::{Invoke, InvokeError, Limits, Slots, check_size};
use crate::life::Life;
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Semaphore;

/// Processes of one function at once on one machine. Further calls wait here; their messages stay
/// hidden meanwhile.
const PROCESSES_MAX: u32 = 8;

/// How to start a function.
#[derive(Debug, Clone)]
pub struct ProcessSettings {
    /// The function's id on this machine.
    pub id: String,
    /// The physical name and ARN, passed to the function.
    pub name: String,
    /// See `name`.
    pub arn: String,
    /// The program, which would be `bootstrap` on AWS.
    pub binary: PathBuf,
    /// Its environment from the template.
    pub environment: BTreeMap<String, String>,
    /// Its own keys.
    pub credentials: Credentials,
    /// `AWS_REGION`.
    pub region: String,
    /// `AWS_ENDPOINT_URL`.
    pub endpoint: String,
    /// The memory size passed to the function; not enforced.
    pub memory_mb: u32,
    /// Time limit and reserved concurrency.
    pub limits: Limits,
}

/// Functions in processes, by id.
pub struct Processes {
    pools: HashMap<String, Arc<Pool>>,
    next_request: AtomicU64,
}

struct Pool {
    settings: ProcessSettings,
    patience: Patience,
    print: Print,
    slots: Slots,
    /// One permit for each process that may be busy.
    room: Semaphore,
    /// Processes without a call: those that have started, and those that a call no longer waits
    /// for.
    idle: Mutex<Vec<Worker>>,
    /// Every process that was started and may live.
    lives: Mutex<Vec<Weak<Life>>>,
    stopped: AtomicBool,
}

impl Processes {
    /// Creates the functions that `settings` describe; `print` gets the output of their processes.
    /// No process is started before the first call.
    pub fn new(settings: impl IntoIterator<Item = ProcessSettings>, print: &Print) -> Self {
        Self::patient(settings, print, Patience::of)
    }

    /// Creates the functions that `settings` describe; `print` gets the output of their processes.
    /// A process may take as long to start as `patience` returns for its function's limits. No
    /// process is started yet.
    pub(super) fn patient(
        settings: impl IntoIterator<Item = ProcessSettings>,
        print: &Print,
        patience: impl Fn(&Limits) -> Patience,
    ) -> Self {
        let pool = |settings: ProcessSettings| {
            let (print, patience) = (print.clone(), patience(&settings.limits));
            let slots = Slots::new(settings.limits.reserved_concurrency);
            let room = Semaphore::new(slots.limit.min(PROCESSES_MAX) as usize);
            let idle = Mutex::new(Vec::new());
            let (lives, stopped) = (Mutex::default(), AtomicBool::new(false));
            (
                settings.id.clone(),
                Arc::new(Pool { settings, patience, print, slots, room, idle, lives, stopped }),
            )
        };
        Self { pools: settings.into_iter().map(pool).collect(), next_request: AtomicU64::new(1) }
    }

    /// Kills all idle processes and waits for that; busy processes are killed after their current
    /// call, without waiting for that. Later calls fail.
    pub async fn stop(&self) {
        for pool in self.pools.values() {
            pool.stopped.store(true, Ordering::SeqCst);
            let idle = std::mem::take(&mut *lock(&pool.idle));
            for mut worker in idle {
                worker.kill().await;
            }
        }
    }

    /// Kills every process of a function, also during a call. The calls fail, and the next call
    /// starts another process. Nothing happens for an unknown function.
    pub fn kill(&self, function: &str) {
        let Some(pool) = self.pools.get(function) else { return };
        let lives: Vec<_> = lock(&pool.lives).iter().filter_map(Weak::upgrade).collect();
        lives.iter().for_each(|life| life.end());
        // Who tries it finds it by this line.
        tracing::warn!(function, processes = lives.len(), "killed every process of a function");
    }

    /// Returns the next request id in the form of a UUID, unique in this process. It is a counter,
    /// so that logs are easy to follow.
    fn request_id(&self) -> String {
        let number = self.next_request.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}-0000-4000-8000-{number:012x}", std::process::id())
    }
}

#[async_trait]
impl Invoke for Processes {
    /// Calls the function in one of its at most eight processes; a call waits for a free one. A
    /// call beyond the reserved concurrency is `Throttled` at once. The call goes on if the caller
    /// stops waiting.
    async fn invoke(&self, id: &str, payload: Bytes) -> Result<Bytes, InvokeError> {
        let pool = self
            .pools
            .get(id)
            .ok_or_else(|| InvokeError::Unknown { function: id.to_owned() })?
            .clone();
        check_size(id, &payload)?;
        let slot = pool.slots.take(id)?;
        let request_id = self.request_id();
        // A task of its own: a caller that goes away does not stop the function.
        let call = tokio::spawn(async move {
            let _slot = slot;
            pool.run(request_id, payload).await
        });
        match call.await {
            Ok(outcome) => outcome,
            Err(error) => {
                Err(InvokeError::Died { function: id.to_owned(), how: error.to_string() })
            }
        }
    }
}

impl Pool {
    /// Runs one call in an idle or new process; waits for room if too many run. Keeps the process
    /// for later calls after a response, a failure that the function reported, or while it is still
    /// starting; kills it otherwise, and always if the machine is stopping. An error without a call
    /// if the machine is stopping already.
    async fn run(&self, request_id: String, payload: Bytes) -> Result<Bytes, InvokeError> {
        let stops = || InvokeError::NotStarted {
            function: self.settings.id.clone(),
            why: "the machine stops".into(),
        };
        let _room = self.room.acquire().await.map_err(|_| stops())?;
        if self.stopped.load(Ordering::SeqCst) {
            return Err(stops());
        }
        let mut worker = match self.idle_worker() {
            Some(worker) => worker,
            None => self.start().await?,
        };
        let outcome = worker.run(request_id, payload, self.settings.limits.timeout).await;
        let is_kept = matches!(
            outcome,
            Ok(_) | Err(InvokeError::Failed { .. } | InvokeError::Starting { .. })
        );
        let usable = is_kept && worker.lives();
        let over = if usable { self.put_back(worker) } else { Some(worker) };
        if let Some(mut worker) = over {
            worker.kill().await;
        }
        outcome
    }

    /// Adds a process to the idle ones and returns `None`. If the machine is stopping, returns it
    /// to the caller, who has to kill it.
    fn put_back(&self, worker: Worker) -> Option<Worker> {
        // Asked under the lock under which a stop takes the idle ones: what came after that would
        // be left.
        let mut idle = lock(&self.idle);
        if self.stopped.load(Ordering::SeqCst) {
            return Some(worker);
        }
        idle.push(worker);
        None
    }

    /// Starts a process and remembers it for [`Processes::kill`]; does not wait until it requests
    /// work.
    async fn start(&self) -> Result<Worker, InvokeError> {
        let worker = Worker::start(&self.settings, &self.print, self.patience).await?;
        let mut lives = lock(&self.lives);
        lives.retain(|life| life.strong_count() > 0);
        lives.push(Arc::downgrade(worker.life()));
        drop(lives);
        Ok(worker)
    }

    /// Takes a process that still runs out of the idle ones: the most recently used one or, if none
    /// has started, the one that has been starting longest. `None` if there is none. Processes that
    /// have ended are dropped with a warning.
    fn idle_worker(&self) -> Option<Worker> {
        let mut idle = lock(&self.idle);
        while !idle.is_empty() {
            let place = idle.iter().rposition(Worker::has_started).unwrap_or(0);
            let mut worker = idle.remove(place);
            if worker.lives() {
                return Some(worker);
            }
            tracing::warn!(function = %self.settings.id, "an idle process was gone; another takes its place");
        }
        None
    }
}
