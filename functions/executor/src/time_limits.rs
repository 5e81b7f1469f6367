//! The time limits of the phases of a build.

use crate::job::JobAttempt;
use crate::settings::AnsibleSettings;
use std::time::Duration;
use tokio::time::Instant;

/// How long a playbook may still run.
#[derive(Debug, Clone)]
pub struct TimeLimit {
    /// The time that is left.
    pub left: Duration,
    /// The limit as its user configured it, in words: `post-timeout of 4 s`.
    pub name: String,
}

/// The time limits of one build, measured from its start.
pub(crate) struct TimeLimits {
    /// When the build started.
    started: Instant,
    /// The limit of the run phase, which includes pre-run unless that has its own limit.
    total: Duration,
    /// The limit of the pre-run phase, if the job has one.
    pre: Option<Duration>,
    /// The limit of each post-run playbook.
    post: Duration,
    /// What follows a limit that is the executor's, because the job has none: for pre-run with run,
    /// and for post-run.
    origins: [&'static str; 2],
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
        let origin = |own: Option<u64>| if own.is_some() { "" } else { ", the executor's default" };
        Self {
            started: Instant::now(),
            total: seconds(job.job.timeout_seconds.unwrap_or(settings.timeout_seconds)),
            pre: job.job.pre_timeout_seconds.map(seconds),
            post: seconds(job.job.post_timeout_seconds.unwrap_or(settings.post_timeout_seconds)),
            origins: [origin(job.job.timeout_seconds), origin(job.job.post_timeout_seconds)],
            cleanup: seconds(settings.cleanup_timeout_seconds),
            cleanup_until: None,
        }
    }

    /// Returns the limit of pre-run and run together, or of run alone, with the time that is left.
    fn of_run(&self, left: Duration) -> TimeLimit {
        let phases = if self.pre.is_some() { "" } else { " for pre-run and run" };
        let [origin, _] = self.origins;
        TimeLimit { left, name: format!("timeout of {} s{phases}{origin}", self.total.as_secs()) }
    }

    /// Returns the limit of one post-run playbook.
    pub(crate) fn of_post(&self) -> TimeLimit {
        let [_, origin] = self.origins;
        let name = format!("post-timeout of {} s{origin}", self.post.as_secs());
        TimeLimit { left: self.post, name }
    }

    /// Returns the time that is left for all pre-run playbooks together, by their own limit or, if
    /// the job has none, by that of the run phase; zero if it is used up.
    pub(crate) fn left_for_pre(&self) -> TimeLimit {
        let left = self.pre.unwrap_or(self.total).saturating_sub(self.started.elapsed());
        match self.pre {
            Some(pre) => TimeLimit { left, name: format!("pre-timeout of {} s", pre.as_secs()) },
            None => self.of_run(left),
        }
    }

    /// Returns the time limit of the next cleanup playbook after a stop; zero once the time is used
    /// up. The first call starts one common limit for all of them, so call it only when such a
    /// playbook starts: soon afterwards the nodes are released, and a static node may serve another
    /// build. It is never more than the limit of a post-run playbook.
    pub(crate) fn start_or_continue_cleanup(&mut self) -> TimeLimit {
        let until = *self.cleanup_until.get_or_insert(Instant::now() + self.cleanup);
        let left = until.saturating_duration_since(Instant::now()).min(self.post);
        let seconds = self.cleanup.min(self.post).as_secs();
        TimeLimit { left, name: format!("limit of {seconds} s for cleanup after a stop") }
    }

    /// Returns when the run phase must end. Its time has started with the build; if pre-run has its
    /// own limit, it starts with this call, which therefore comes once, after pre-run.
    pub(crate) fn run_deadline(&self) -> Instant {
        if self.pre.is_some() { Instant::now() + self.total } else { self.started + self.total }
    }

    /// Returns the time that is left for main playbooks until `deadline`, the end of the run phase.
    pub(crate) fn left_for_run(&self, deadline: Instant) -> TimeLimit {
        self.of_run(deadline.saturating_duration_since(Instant::now()))
    }
}
