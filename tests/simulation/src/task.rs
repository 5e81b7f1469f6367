//! Tasks: the running futures of real functions, with what each one is for.

use sluice_executor::claim::Claimed;
use sluice_model::build::BuildResult;
use sluice_model::wakeup::MessageQueue;
use sluice_model::{BuildId, SessionId, Timestamp};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::port::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A running future of a real function.
pub struct Task {
    /// Its number; tasks are numbered in the order in which they start.
    pub id: u64,
    /// What it is for.
    pub kind: Kind,
    /// The running function.
    pub future: Pin<Box<dyn Future<Output = Done>>>,
    /// When it may be polled next.
    pub resume_at: Timestamp,
    /// How often it was polled.
    pub polls: u32,
}

impl Task {
    /// Polls it once: it runs to the next call at which it waits. Returns its result when it has
    /// finished, and `None` otherwise.
    pub fn poll(&mut self) -> Option<Done> {
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }
}

/// The result of a task.
pub enum Done {
    /// Messages were handled, except those with these ids, which failed.
    Handled(Vec<String>),
    /// An executor tried to claim builds: one result for each.
    Claimed(Vec<Result<Option<Claimed>, ReconcileError>>),
    /// An executor wrote that a build ended or will fail.
    Ended(Box<Claimed>, Confirmation),
    /// An executor wrote that a build is paused.
    Paused(Box<Claimed>, Confirmation),
    /// No result that anything depends on.
    Nothing,
}

/// Whether a write of an executor was confirmed and needs no repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation {
    /// The write succeeded and the executor is done with it.
    Confirmed,
    /// The write failed, or another write has to follow.
    Unconfirmed,
}

impl Confirmation {
    /// Returns whether the result of a write is a confirmation.
    pub fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Confirmed } else { Self::Unconfirmed }
    }
}

/// What a task is for.
pub enum Kind {
    /// A function handles a batch of messages.
    Handle {
        /// The message queue.
        queue: MessageQueue,
        /// The index of the function instance.
        host: usize,
        /// The messages.
        messages: Vec<Incoming>,
    },
    /// The timer handles a dead letter.
    Revive {
        /// The index of the timer instance.
        host: usize,
        /// The message.
        message: Incoming,
    },
    /// The timer ticks.
    Tick,
    /// A webhook is received.
    Webhook {
        /// The delivery id.
        id: String,
    },
    /// An executor claims builds.
    Claim {
        /// The executor.
        session: SessionId,
        /// The message queue that the builds came from.
        queue: MessageQueue,
        /// The receipts of the messages.
        receipts: Vec<String>,
        /// The builds.
        builds: Vec<BuildId>,
    },
    /// An executor settles claims that got no answer.
    Settle {
        /// The executor.
        session: SessionId,
    },
    /// An executor writes the end of a build.
    End {
        /// The executor.
        session: SessionId,
        /// The build.
        build: BuildId,
        /// The result to report instead of the true one.
        result_override: Option<BuildResult>,
    },
    /// An executor writes that a build is paused.
    Pause {
        /// The executor.
        session: SessionId,
        /// The build.
        build: BuildId,
    },
    /// An executor writes that a build will fail.
    WillFail {
        /// The executor.
        session: SessionId,
        /// The build.
        build: BuildId,
        /// When the build will end.
        ends_at: Timestamp,
    },
}

impl Kind {
    /// Returns the session of the executor whose task it is. Returns `None` for tasks of functions.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Claim { session, .. }
            | Self::Settle { session }
            | Self::End { session, .. }
            | Self::Pause { session, .. }
            | Self::WillFail { session, .. } => Some(session),
            _ => None,
        }
    }

    /// Returns its name in the log.
    pub fn name(&self) -> String {
        match self {
            Self::Handle { queue, host, messages } => {
                let about: Vec<&str> = messages
                    .iter()
                    .map(|message| message.group.as_deref().unwrap_or("-"))
                    .collect();
                format!("{} {host} ({})", crate::site::name_of(*queue), about.join(", "))
            }
            Self::Revive { host, .. } => format!("timer {host} with a dead letter"),
            Self::Tick => "the timer's tick".to_owned(),
            Self::Webhook { id } => format!("webhook ({id})"),
            Self::Claim { session, .. } => format!("{session} (claims)"),
            Self::Settle { session } => format!("{session} (settles unanswered claims)"),
            Self::End { session, build, .. } => format!("{session} (ends {build})"),
            Self::Pause { session, build } => format!("{session} (pauses {build})"),
            Self::WillFail { session, build, .. } => {
                format!("{session} (announces that {build} will fail)")
            }
        }
    }
}
