//! The time limits of the phases of a build.

use crate::job::JobAttempt;
use crate::settings::AnsibleSettings;
use std::time::Duration;
use tokio::time::Instant;

/// The time limits of one build, measured from its start.
pub(crate) struct TimeLimits {
    /// When the build started.
    started: Instant,
    /// The limit of the run phase, which includes pre-run unless that has its own limit.
    total: Duration,
    /// The limit of the pre-run phase, if the job has one.
    pre: Option<Duration>,
    /// The limit of each post-run playbook.
    pub(crate) post: Duration,
    /// The limit of all cleanup playbooks after a stop together.
    cleanup: Duration,
    /// When the cleanup time ends; `None` until cleanup starts.
    cleanup_until: Option<Instant>,
}

impl TimeLimits {
    /// Starts the clock at the time of the call, with the limits of the job, or the executor's
    /// where it has none. A job without a pre-run limit has none there; pre-run then counts to the
    /// run phase.
    pub(crate) fn start(job: &JobAttempt<'_>, settings: &AnsibleSettings) -> Self {
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

    /// Returns the time that is left for all pre-run playbooks together, by their own limit or, if
    /// the job has none, by that of the run phase; zero if it is used up.
    pub(crate) fn left_for_pre(&self) -> Duration {
        self.pre.unwrap_or(self.total).saturating_sub(self.started.elapsed())
    }

    /// Returns the time limit of the next cleanup playbook after a stop; zero once the time is used
    /// up. The first call starts one common limit for all of them, so call it only when such a
    /// playbook starts: soon afterwards the nodes are released, and a static node may serve another
    /// build. It is never more than the limit of a post-run playbook.
    pub(crate) fn start_or_continue_cleanup(&mut self) -> Duration {
        let until = *self.cleanup_until.get_or_insert(Instant::now() + self.cleanup);
        until.saturating_duration_since(Instant::now()).min(self.post)
    }

    /// Returns when the run phase must end. Its time has started with the build; if pre-run has its
    /// own limit, it starts with this call, which therefore comes once, after pre-run.
    pub(crate) fn run_deadline(&self) -> Instant {
        if self.pre.is_some() { Instant::now() + self.total } else { self.started + self.total }
    }
}
