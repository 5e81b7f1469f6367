//! Measures how long the forge was busy, so that benchmarks can subtract it.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures::StreamExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counts the time during which at least one request is being answered, its answer's body included.
#[derive(Clone, Default)]
pub(crate) struct Busy(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    open: u32,
    since: Option<Instant>,
    before: Duration,
}

impl Busy {
    /// Returns for how long in total, from the start until now, at least one request was being
    /// answered. Requests at the same time count once.
    pub fn so_far(&self) -> Duration {
        let counted = self.lock();
        counted.before + counted.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Counts a request as being answered until the returned guard is dropped.
    fn begin(&self) -> Answering {
        let mut counted = self.lock();
        counted.open += 1;
        counted.since.get_or_insert_with(Instant::now);
        Answering(self.clone())
    }

    /// Locks the counts.
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request; it ends when this is dropped.
struct Answering(Busy);

impl Drop for Answering {
    /// Counts the request as answered; without another one the forge is no longer busy.
    fn drop(&mut self) {
        let mut counted = self.0.lock();
        counted.open = counted.open.saturating_sub(1);
        if counted.open == 0
            && let Some(since) = counted.since.take()
        {
            counted.before += since.elapsed();
        }
    }
}

/// Passes a request on and counts the time until the whole body of its response was read or dropped
/// as busy.
pub(crate) async fn count(State(busy): State<Busy>, request: Request, next: Next) -> Response {
    let answering = busy.begin();
    let (parts, body) = next.run(request).await.into_parts();
    let chunks = body.into_data_stream().map(move |chunk| {
        let _until_the_last = &answering;
        chunk
    });
    Response::from_parts(parts, Body::from_stream(chunks))
}
