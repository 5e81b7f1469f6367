//! Computes the result of a build from the ends of its playbooks, by Zuul's rules. Pure functions.

use sluice_model::build::BuildResult;

/// How one playbook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaybookEnd {
    /// Ansible ran to its end with this exit code.
    Finished {
        /// The exit code of `ansible-playbook`; 0 for success.
        code: i32,
    },
    /// Ansible ended because a host could not be reached.
    Unreachable,
    /// The playbook ran out of time and was killed.
    TimedOut,
    /// The build exceeded its disk limit and the playbook was killed.
    DiskFull,
    /// The playbook printed a secret and was killed, because the job has `secret-exposure: fail`.
    SecretExposed,
    /// Its processes on the executor exceeded a limit and the playbook was killed.
    OverLimit {
        /// The limit, as part of a sentence.
        limit: String,
    },
    /// The gate requested a stop and the playbook was killed.
    Aborted,
    /// Ansible could not run, or was killed from outside. Says nothing about the job.
    Broken {
        /// The cause.
        why: String,
    },
}

/// Whether a post-run playbook cleans up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostPlaybookKind {
    /// It is skipped after a stop, a full disk or an exposed secret.
    Normal,
    /// It runs even then (`cleanup: true`).
    Cleanup,
}

impl PlaybookEnd {
    /// Returns the name of the result in the log's banner. `RESULT_NORMAL` means that Ansible ran
    /// to its end, with or without a failure.
    pub fn banner(&self) -> &'static str {
        match self {
            Self::Finished { .. } => "RESULT_NORMAL",
            Self::Unreachable => "RESULT_UNREACHABLE",
            Self::TimedOut => "RESULT_TIMED_OUT",
            Self::DiskFull => "RESULT_DISK_FULL",
            Self::SecretExposed => "RESULT_SECRET_EXPOSURE",
            Self::OverLimit { .. } => "RESULT_OVER_LIMIT",
            Self::Aborted => "RESULT_ABORTED",
            Self::Broken { .. } => "RESULT_BROKEN",
        }
    }

    /// Returns whether Ansible ran to its end with exit code 0.
    fn succeeded(&self) -> bool {
        *self == Self::Finished { code: 0 }
    }
}

/// Whether the phase continues with its next playbook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next playbook runs.
    GoOn,
    /// No further playbook of the phase runs.
    EndPhase,
}

/// Collects the ends of a build's playbooks and computes the build's result.
#[derive(Debug, Clone, Default)]
pub struct ResultTracker {
    /// The result of the run phase; `None` means that the attempt does not count.
    result: Option<BuildResult>,
    /// Whether a pre-run playbook failed.
    pre_failed: bool,
    /// Whether post-run failures cannot change the result.
    final_result: bool,
    /// Whether a post-run playbook failed.
    has_post_failed: bool,
    /// Whether a post-run playbook lost a host.
    unreachable: bool,
    /// Whether the build was stopped.
    aborted: bool,
    /// The result of a stopped build, if it is not `ABORTED`.
    stop_result: Option<BuildResult>,
    /// Whether the build exceeded its disk limit or exposed a secret: only cleanup playbooks run
    /// then.
    is_cut_short: bool,
    /// Whether the output matched a failure pattern: the job fails even if its playbooks pass.
    output_failed: bool,
    /// The highest nesting level of the pre-run playbooks that were started.
    reached: Option<u32>,
    /// The explanation of the result: of the first failure, except that a failure in post-run
    /// comes before it where it is the result.
    why: Option<String>,
}

impl ResultTracker {
    /// Records the end of a pre-run playbook, defined at inheritance depth `level` (0 is the base
    /// job), and for a failure its explanation, of which the first line is a summary. Returns
    /// whether the phase goes on: only if the playbook passed. After a failure no main playbook may
    /// run, and the attempt does not count, except that a stop, a full disk and an exposed secret
    /// have results of their own. Afterwards only one of these, or a lost host, in post-run changes
    /// that result.
    /// Post-run playbooks of a depth above the highest recorded `level` then do not run.
    pub fn record_pre(&mut self, level: u32, end: &PlaybookEnd, explanation: &str) -> Next {
        self.reached = Some(self.reached.map_or(level, |reached| reached.max(level)));
        if end.succeeded() {
            return Next::GoOn;
        }
        self.pre_failed = true;
        self.final_result = true;
        self.aborted = *end == PlaybookEnd::Aborted;
        self.cut_short(end);
        self.explain_first(explanation);
        Next::EndPhase
    }

    /// Records that the output of a main playbook matched the failure pattern `expression`.
    /// [`Self::record_run`], called afterwards, then counts a playbook that passes as failed,
    /// because the failure was already reported. The match becomes the reason for the result unless
    /// there is one already.
    pub fn record_failure_output(&mut self, expression: &str) {
        self.output_failed = true;
        self.why.get_or_insert_with(|| {
            format!("The output matched \"{expression}\", a failure pattern of the job.")
        });
    }

    /// Records the end of a main playbook as the result so far, and for a failure its explanation,
    /// of which the first line is a summary. A playbook that passes counts as failed if a failure
    /// pattern matched. Returns whether the phase goes on: only if the playbook counts as passed.
    /// After a lost host or a broken run the attempt does not count. Neither this nor a timeout, a
    /// full disk or an exposed secret becomes `POST_FAILURE` later; but a post-run playbook that
    /// loses a host, is stopped or fills the disk still counts.
    pub fn record_run(&mut self, end: &PlaybookEnd, explanation: &str) -> Next {
        match end {
            PlaybookEnd::Finished { code: 0 } if self.output_failed => {
                self.result = Some(BuildResult::Failure)
            }
            PlaybookEnd::Finished { code: 0 } => {
                self.result = Some(BuildResult::Success);
                return Next::GoOn;
            }
            PlaybookEnd::Finished { .. } | PlaybookEnd::OverLimit { .. } => {
                self.result = Some(BuildResult::Failure);
            }
            PlaybookEnd::TimedOut => {
                self.result = Some(BuildResult::TimedOut);
                self.final_result = true;
            }
            PlaybookEnd::Aborted => self.aborted = true,
            PlaybookEnd::DiskFull | PlaybookEnd::SecretExposed => self.cut_short(end),
            PlaybookEnd::Unreachable | PlaybookEnd::Broken { .. } => {
                self.result = None;
                self.final_result = true;
            }
        }
        self.explain_first(explanation);
        Next::EndPhase
    }

    /// Records the end of a post-run playbook, and for a failure its explanation, of which the
    /// first line is a summary. After a stop the result is that of the stop, otherwise after a lost
    /// host `RETRY`, otherwise after a full disk `DISK_FULL` and after an exposed secret `FAILURE`,
    /// whatever was recorded before. Any other failure makes it `POST_FAILURE`, unless pre-run
    /// failed, the run phase timed out or does not count, or the build was cut short before.
    /// Returns whether the phase goes on: after a failure only if the build is neither stopped nor
    /// cut short. Do not call it for a cleanup playbook after a stop, which must not change the
    /// result.
    pub fn record_post(&mut self, end: &PlaybookEnd, explanation: &str) -> Next {
        if end.succeeded() {
            return Next::GoOn;
        }
        match end {
            PlaybookEnd::Aborted => self.aborted = true,
            PlaybookEnd::Unreachable => self.unreachable = true,
            _ => self.cut_short(end),
        }
        // A retry or a timeout takes precedence over a failure in post-run.
        if !self.final_result {
            self.result = Some(BuildResult::PostFailure);
        }
        match self.why.take() {
            // The result is this failure's: it comes first.
            Some(before) if !self.final_result && !self.has_post_failed => {
                self.why = Some(format!("{explanation}\nBefore: {before}"));
            }
            before => self.why = before,
        }
        self.has_post_failed = true;
        self.explain_first(explanation);
        if self.aborted || self.is_cut_short { Next::EndPhase } else { Next::GoOn }
    }

    /// Sets the final result `DISK_FULL` after a full disk, and `FAILURE` after an exposed secret;
    /// does nothing after another end. Afterwards only cleanup playbooks run, and there is no
    /// retry, because another attempt would end in the same way.
    fn cut_short(&mut self, end: &PlaybookEnd) {
        let result = match end {
            PlaybookEnd::DiskFull => BuildResult::DiskFull,
            PlaybookEnd::SecretExposed => BuildResult::Failure,
            _ => return,
        };
        self.is_cut_short = true;
        self.final_result = true;
        self.result = Some(result);
    }

    /// Returns whether main playbooks may run: no pre-run playbook failed, and the build was not
    /// stopped.
    pub fn may_enter_run(&self) -> bool {
        !self.pre_failed && !self.aborted
    }

    /// Returns whether a post-run playbook defined at inheritance depth `level` runs. After a
    /// pre-run failure only those run whose depth a started pre-run playbook had or exceeded. After
    /// a stop, a full disk or an exposed secret only cleanup playbooks run.
    pub fn runs_post_playbook(&self, level: u32, kind: PostPlaybookKind) -> bool {
        let set_up = !self.pre_failed || self.reached.is_some_and(|reached| level <= reached);
        let is_cut_short = self.aborted || self.is_cut_short;
        set_up && (!is_cut_short || kind == PostPlaybookKind::Cleanup)
    }

    /// Returns whether the build has succeeded so far (`zuul_success`): the last main playbook
    /// passed, and no post-run playbook failed. False while no main playbook has ended. A stop that
    /// is requested afterwards does not count.
    pub fn success(&self) -> bool {
        self.result == Some(BuildResult::Success)
    }

    /// Returns whether the build's result would be `Retry` if it ended now. `may_retry` is the
    /// job's own choice, which counts only after a pre-run failure. Whether attempts are left is
    /// not checked.
    pub fn would_retry(&self, may_retry: MayRetry) -> bool {
        self.result(may_retry) == BuildResult::Retry
    }

    /// Records a stop that came while no playbook was running, and its result, `ABORTED` or
    /// `RETRY`, which becomes that of the build. `reason` is kept unless a failure was recorded
    /// before.
    pub fn record_stop(&mut self, reason: &str, result: BuildResult) {
        self.aborted = true;
        self.set_stop_result(result);
        self.why.get_or_insert_with(|| reason.to_owned());
    }

    /// Sets the result that the build has if it was stopped, `ABORTED` or `RETRY`. Without a stop
    /// it has no effect.
    pub fn set_stop_result(&mut self, result: BuildResult) {
        self.stop_result = Some(result);
    }

    /// Returns the result of the build: that of a stop after one, otherwise `RETRY` if a post-run
    /// playbook lost a host, otherwise the recorded result. If the attempt does not count or no
    /// result is recorded, that is `RETRY`, or `FAILURE` after a pre-run failure of a job that
    /// forbids another attempt. Whether attempts are left is not checked.
    pub fn result(&self, may_retry: MayRetry) -> BuildResult {
        if self.aborted {
            return self.stop_result.unwrap_or(BuildResult::Aborted);
        }
        if self.unreachable {
            return BuildResult::Retry;
        }
        match (self.result, self.pre_failed, may_retry) {
            (None, true, MayRetry::No) => BuildResult::Failure,
            (None, _, _) => BuildResult::Retry,
            (Some(result), _, _) => result,
        }
    }

    /// Returns the explanation of the result: of a failed playbook, a matched failure pattern or a
    /// stop. Its first line is a summary. `None` if there is none.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Keeps an explanation of the result, unless there is one already or this one is empty.
    fn explain_first(&mut self, explanation: &str) {
        if !explanation.is_empty() {
            self.why.get_or_insert_with(|| explanation.to_owned());
        }
    }
}

/// Whether the job allows another attempt (`zuul.retry` in its returned data).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayRetry {
    /// The job did not forbid it.
    Yes,
    /// The job returned `retry: false`.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use BuildResult::*;
    use PlaybookEnd as End;

    const GOOD: End = End::Finished { code: 0 };
    const BAD: End = End::Finished { code: 2 };

    fn tracker(pre: &[End], run: &[End], post: &[End]) -> ResultTracker {
        let mut tracker = ResultTracker::default();
        for end in pre {
            tracker.record_pre(0, end, "pre-run failed");
        }
        for end in run {
            tracker.record_run(end, "run failed");
        }
        for end in post {
            tracker.record_post(end, "post-run failed");
        }
        tracker
    }

    /// Z7.1
    #[test]
    fn the_result_follows_zuuls_rules() {
        let broken = || End::Broken { why: String::new() };
        let over = || End::OverLimit { limit: String::new() };
        for (pre, run, post, expected) in [
            (vec![GOOD], vec![GOOD], vec![GOOD], Success),
            (vec![GOOD], vec![GOOD, BAD], vec![GOOD], Failure),
            (vec![BAD], vec![], vec![GOOD], Retry),
            (vec![BAD], vec![], vec![BAD], Retry),
            (vec![End::TimedOut], vec![], vec![], Retry),
            (vec![End::Unreachable], vec![], vec![], Retry),
            (vec![GOOD], vec![End::Unreachable], vec![GOOD], Retry),
            (vec![GOOD], vec![broken()], vec![BAD], Retry),
            (vec![GOOD], vec![End::TimedOut], vec![BAD], TimedOut),
            (vec![over()], vec![], vec![], Retry),
            (vec![GOOD], vec![over()], vec![GOOD], Failure),
            (vec![GOOD], vec![GOOD], vec![over()], PostFailure),
            (vec![GOOD], vec![GOOD], vec![BAD, GOOD], PostFailure),
            (vec![GOOD], vec![BAD], vec![BAD], PostFailure),
            (vec![GOOD], vec![GOOD], vec![End::Unreachable], Retry),
            (vec![GOOD], vec![End::Aborted], vec![], Aborted),
            (vec![End::Aborted], vec![], vec![], Aborted),
            (vec![GOOD], vec![GOOD], vec![End::Aborted], Aborted),
            (vec![End::DiskFull], vec![], vec![], DiskFull),
            (vec![GOOD], vec![End::DiskFull], vec![], DiskFull),
            (vec![GOOD], vec![GOOD], vec![End::DiskFull, GOOD], DiskFull),
            (vec![End::SecretExposed], vec![], vec![], Failure),
            (vec![GOOD], vec![End::SecretExposed], vec![BAD], Failure),
            (vec![GOOD], vec![GOOD], vec![End::SecretExposed, GOOD], Failure),
        ] {
            let text = format!("{pre:?} {run:?} {post:?}");
            assert_eq!(tracker(&pre, &run, &post).result(MayRetry::Yes), expected, "{text}");
        }
        assert_eq!(tracker(&[BAD], &[], &[]).result(MayRetry::No), Failure);
        assert_eq!(tracker(&[], &[End::Unreachable], &[]).result(MayRetry::No), Retry);
    }

    /// Z7.1, Z9.1: the explanation belongs to the result; an earlier failure is still in it.
    #[test]
    fn the_explanation_is_that_of_the_failure_that_is_the_result() {
        let why = |tracker: ResultTracker| tracker.why().map(str::to_owned).unwrap_or_default();
        assert_eq!(why(tracker(&[GOOD], &[BAD], &[GOOD])), "run failed");
        assert_eq!(why(tracker(&[GOOD], &[GOOD], &[BAD, BAD])), "post-run failed");
        assert_eq!(
            why(tracker(&[GOOD], &[BAD], &[BAD, BAD])),
            "post-run failed\nBefore: run failed"
        );
        assert_eq!(why(tracker(&[BAD], &[], &[BAD])), "pre-run failed", "the result is RETRY");
        assert_eq!(why(tracker(&[GOOD], &[End::TimedOut], &[BAD])), "run failed");
    }

    /// Z4.3, G05: the failure was already reported to the queue, so it must be the result.
    #[test]
    fn output_that_matches_a_failure_pattern_fails_a_job_whose_playbook_passes() {
        let mut tracker = ResultTracker::default();
        tracker.record_failure_output("Traceback");
        assert_eq!(tracker.record_run(&GOOD, ""), Next::EndPhase);
        assert!(!tracker.success());
        assert_eq!(tracker.result(MayRetry::Yes), Failure);
        assert!(tracker.why().unwrap_or_default().contains("\"Traceback\""));
    }

    /// Z7.1
    #[test]
    fn after_a_failed_pre_run_only_the_levels_it_reached_are_cleaned_up() {
        let mut tracker = ResultTracker::default();
        tracker.record_pre(0, &GOOD, "");
        tracker.record_pre(1, &BAD, "");
        assert!(!tracker.may_enter_run());
        assert!(
            tracker.runs_post_playbook(0, PostPlaybookKind::Normal)
                && tracker.runs_post_playbook(1, PostPlaybookKind::Normal)
                && !tracker.runs_post_playbook(2, PostPlaybookKind::Normal)
        );
        tracker.record_stop("newer patchset", Aborted);
        assert!(!tracker.runs_post_playbook(0, PostPlaybookKind::Normal));
        assert!(tracker.runs_post_playbook(0, PostPlaybookKind::Cleanup));
    }

    /// Z7.3: what an executor stops for its own sake runs again, and its cleanup playbooks see
    /// that.
    #[test]
    fn a_stop_of_the_executor_itself_is_retried() {
        for (stop, is_retried) in [(Aborted, false), (Retry, true)] {
            let mut stopped = tracker(&[GOOD], &[End::Aborted], &[]);
            stopped.set_stop_result(stop);
            let mut between = tracker(&[GOOD], &[GOOD], &[]);
            between.record_stop("why", stop);
            for tracker in [stopped, between] {
                assert_eq!(tracker.result(MayRetry::Yes), stop);
                assert_eq!(tracker.would_retry(MayRetry::Yes), is_retried);
            }
        }
        let mut passed = tracker(&[GOOD], &[GOOD], &[GOOD]);
        passed.set_stop_result(Retry);
        assert_eq!(passed.result(MayRetry::Yes), Success, "the stop came too late");
    }
}
