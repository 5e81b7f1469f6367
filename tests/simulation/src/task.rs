//! Something under way: a future of a real function, and what it is about.

use sluice_executor::claim::Claimed;
use sluice_model::build::BuildResult;
use sluice_model::poke::Queue;
use sluice_model::{BuildId, SessionId, Timestamp};
use sluice_runtime::batch::LookError;
use sluice_runtime::port::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Something under way.
pub struct Task {
    /// Its number, in the order in which they were begun.
    pub id: u64,
    /// What it is about.
    pub kind: Kind,
    /// The function at work.
    pub future: Pin<Box<dyn Future<Output = Done>>>,
    /// From when on it may go on.
    pub resume_at: Timestamp,
    /// How often it was polled.
    pub polls: u32,
}

impl Task {
    /// Lets it go on to the next call at which it waits. `None` when it is not done.
    pub fn poll(&mut self) -> Option<Done> {
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }
}

/// What a task came to.
pub enum Done {
    /// Messages were handled, but for those with these ids.
    Handled(Vec<String>),
    /// Builds were asked for.
    Claimed(Vec<Result<Option<Claimed>, LookError>>),
    /// A build's end, or that it will fail, was told; whether it was heard.
    Ended(Box<Claimed>, bool),
    /// That a build is paused was told; whether it was heard.
    Paused(Box<Claimed>, bool),
    /// Nothing that anybody waits for.
    Nothing,
}

/// What a task is about.
pub enum Kind {
    /// A batch of messages.
    Handle {
        /// Whose.
        queue: Queue,
        /// Which instance handles it.
        host: usize,
        /// The messages.
        messages: Vec<Incoming>,
    },
    /// A message that died.
    Revive {
        /// Which timer handles it.
        host: usize,
        /// The message.
        message: Incoming,
    },
    /// A tick of the timer.
    Tick,
    /// A webhook.
    Webhook {
        /// Its delivery.
        id: String,
    },
    /// Builds that an executor claims.
    Claim {
        /// Which.
        session: SessionId,
        /// Whose messages.
        queue: Queue,
        /// Their receipts.
        receipts: Vec<String>,
        /// The builds.
        builds: Vec<BuildId>,
    },
    /// The end of builds that an executor may have claimed without having been told.
    Settle {
        /// Whose.
        session: SessionId,
    },
    /// The end of a build.
    End {
        /// Whose.
        session: SessionId,
        /// Which.
        build: BuildId,
        /// What is told of it; `None` for what the truth says.
        instead: Option<BuildResult>,
    },
    /// That a build is paused.
    Pause {
        /// Whose.
        session: SessionId,
        /// Which.
        build: BuildId,
    },
    /// That a build will fail.
    WillFail {
        /// Whose.
        session: SessionId,
        /// Which.
        build: BuildId,
        /// When it will be over.
        ends_at: Timestamp,
    },
}

impl Kind {
    /// Returns the executor whose task it is.
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

    /// Returns what it is called in a story.
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
            Self::Settle { session } => format!("{session} (looks after claims without an answer)"),
            Self::End { session, build, .. } => format!("{session} (ends {build})"),
            Self::Pause { session, build } => format!("{session} (pauses {build})"),
            Self::WillFail { session, build, .. } => {
                format!("{session} (says that {build} will fail)")
            }
        }
    }
}
