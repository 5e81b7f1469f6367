//! Functions as handlers of this program: the same handler that a binary runs, called without a
//! process between.

use super::{Invoke, InvokeError, Limits, SYNCHRONOUS_BYTES_MAX, Slots, check_size};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

/// Answers one call. It is made with the function's own environment and credentials.
pub type Handler =
    Arc<dyn Fn(Bytes) -> BoxFuture<'static, Result<Bytes, HandlerError>> + Send + Sync>;

/// What a handler answers when it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError {
    /// The error's type.
    pub kind: String,
    /// The error's text.
    pub message: String,
}

/// Functions in this program, by id.
#[derive(Default)]
pub struct InProcess {
    functions: HashMap<String, Arc<Function>>,
}

struct Function {
    handler: Handler,
    limits: Limits,
    slots: Slots,
}

impl InProcess {
    /// Returns an empty set of functions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the function `id`, which runs in this process, or replaces the one of that id.
    #[must_use]
    pub fn with<F, Fut>(self, id: &str, limits: Limits, handler: F) -> Self
    where
        F: Fn(Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Bytes, HandlerError>> + Send + 'static,
    {
        self.with_handler(id, limits, Arc::new(move |payload| Box::pin(handler(payload))))
    }

    /// Adds the function `id` with a handler that is already boxed, or replaces the one of that id.
    #[must_use]
    pub fn with_handler(mut self, id: &str, limits: Limits, handler: Handler) -> Self {
        let slots = Slots::new(limits.reserved_concurrency);
        self.functions.insert(id.to_owned(), Arc::new(Function { handler, limits, slots }));
        self
    }
}

#[async_trait]
impl Invoke for InProcess {
    /// Calls the function's handler in a task of its own, which is ended at the function's time
    /// limit. A panic of the handler is `Died`; an answer over 6 MB is `Failed`. If the caller
    /// stops waiting, the handler goes on without a time limit.
    async fn invoke(&self, id: &str, payload: Bytes) -> Result<Bytes, InvokeError> {
        let function = self
            .functions
            .get(id)
            .ok_or_else(|| InvokeError::Unknown { function: id.to_owned() })?
            .clone();
        check_size(id, &payload)?;
        let slot = function.slots.take(id)?;
        let limit = function.limits.timeout;
        // A task of its own: a caller that goes away does not stop the function, and a panic stays
        // the function's.
        let mut call = tokio::spawn(async move {
            let _slot = slot;
            (function.handler)(payload).await
        });
        match tokio::time::timeout(limit, &mut call).await {
            Ok(Ok(Ok(answer))) if answer.len() > SYNCHRONOUS_BYTES_MAX => {
                Err(InvokeError::Failed {
                    function: id.to_owned(),
                    kind: "Function.ResponseSizeTooLarge".to_owned(),
                    message: format!(
                        "the answer has {} bytes; a function answers 6 MB at most",
                        answer.len()
                    ),
                })
            }
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(HandlerError { kind, message }))) => {
                Err(InvokeError::Failed { function: id.to_owned(), kind, message })
            }
            Ok(Err(panic)) => {
                Err(InvokeError::Died { function: id.to_owned(), how: panic.to_string() })
            }
            Err(_) => {
                call.abort();
                Err(InvokeError::TimedOut { function: id.to_owned(), limit })
            }
        }
    }
}
