//! How long the parts of a build may take.

use crate::job::Job;
use crate::settings::Settings;
use std::time::Duration;
use tokio::time::Instant;

/// The time limits of a build.
pub(crate) struct Clock {
    started: Instant,
    total: Duration,
    pre: Option<Duration>,
    /// For each post-run playbook.
    pub(crate) post: Duration,
    cleanup: Duration,
    cleanup_until: Option<Instant>,
}

impl Clock {
    pub(crate) fn start(job: &Job<'_>, settings: &Settings) -> Self {
        let seconds = Duration::from_secs;
        Self {
            started: Instant::now(),
            total: seconds(job.job.timeout_seconds.unwrap_or(settings.timeout_seconds)),
            pre: job.job.pre_timeout_seconds.map(seconds),
            post: seconds(job.job.post_timeout_seconds.unwrap_or(settings.post_timeout_seconds)),
            cleanup: seconds(settings.cleanup_timeout_seconds),
            cleanup_until: None,
        }
    }

    pub(crate) fn left_for_pre(&self) -> Duration {
        self.pre.unwrap_or(self.total).saturating_sub(self.started.elapsed())
    }

    /// What cleans up after a stop has one time for all of it: then the nodes are taken away, and a
    /// static one is somebody else's.
    pub(crate) fn left_for_cleanup(&mut self) -> Duration {
        let until = *self.cleanup_until.get_or_insert(Instant::now() + self.cleanup);
        until.saturating_duration_since(Instant::now()).min(self.post)
    }

    /// The time for run starts with the build, unless pre-run has its own.
    pub(crate) fn run_limit(&self) -> Instant {
        if self.pre.is_some() { Instant::now() + self.total } else { self.started + self.total }
    }
}
