//! From how each playbook ended to how the build ended: Zuul's rules, as data in and data out.

use sluice_model::build::BuildResult;

/// How one playbook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaybookEnd {
    /// Ansible ran to its end with this exit code.
    Finished {
        /// 0 when all went well.
        code: i32,
    },
    /// Ansible ended because a host could not be reached.
    Unreachable,
    /// Its time was used up and it was killed.
    TimedOut,
    /// The build had more on disk than it may and it was killed.
    DiskFull,
    /// The gate asked for a stop and it was killed.
    Aborted,
    /// Ansible itself could not run or was killed by somebody else; nothing is known about the job.
    Broken {
        /// What was seen.
        why: String,
    },
}

impl PlaybookEnd {
    /// Returns the word that the log's banner shows.
    pub fn banner(&self) -> &'static str {
        match self {
            Self::Finished { .. } => "RESULT_NORMAL",
            Self::Unreachable => "RESULT_UNREACHABLE",
            Self::TimedOut => "RESULT_TIMED_OUT",
            Self::DiskFull => "RESULT_DISK_FULL",
            Self::Aborted => "RESULT_ABORTED",
            Self::Broken { .. } => "RESULT_BROKEN",
        }
    }

    fn went_well(&self) -> bool {
        *self == Self::Finished { code: 0 }
    }
}

/// Whether the phase goes on with its next playbook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It does.
    GoOn,
    /// It does not.
    EndPhase,
}

/// What is known about a build's result so far.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// The result of the run phase; `None` means that the attempt does not count.
    result: Option<BuildResult>,
    pre_failed: bool,
    settled: bool,
    unreachable: bool,
    aborted: bool,
    disk_full: bool,
    /// Whether the output said that the job fails, however its playbooks end.
    foretold: bool,
    /// The nesting level of the last pre-run playbook that was started.
    reached: Option<u32>,
    why: Option<String>,
}

impl Verdict {
    /// Takes the end of a pre-run playbook defined at `level`.
    pub fn pre(&mut self, level: u32, path: &str, end: &PlaybookEnd) -> Next {
        self.reached = Some(self.reached.map_or(level, |reached| reached.max(level)));
        if end.went_well() {
            return Next::GoOn;
        }
        self.pre_failed = true;
        self.settled = true;
        self.aborted = *end == PlaybookEnd::Aborted;
        if *end == PlaybookEnd::DiskFull {
            self.fill_disk();
        }
        self.because("pre-run", path, end);
        Next::EndPhase
    }

    /// Takes what the output of a main playbook matched: the job fails, and those who wait were
    /// told so by then.
    pub fn fails(&mut self, expression: &str) {
        self.foretold = true;
        self.why.get_or_insert_with(|| {
            format!("The output matched \"{expression}\", by which the job says that it fails.")
        });
    }

    /// Takes the end of a main playbook.
    pub fn run(&mut self, path: &str, end: &PlaybookEnd) -> Next {
        match end {
            PlaybookEnd::Finished { code: 0 } if self.foretold => {
                self.result = Some(BuildResult::Failure)
            }
            PlaybookEnd::Finished { code: 0 } => {
                self.result = Some(BuildResult::Success);
                return Next::GoOn;
            }
            PlaybookEnd::Finished { .. } => self.result = Some(BuildResult::Failure),
            PlaybookEnd::TimedOut => {
                self.result = Some(BuildResult::TimedOut);
                self.settled = true;
            }
            PlaybookEnd::Aborted => self.aborted = true,
            PlaybookEnd::DiskFull => self.fill_disk(),
            PlaybookEnd::Unreachable | PlaybookEnd::Broken { .. } => {
                self.result = None;
                self.settled = true;
            }
        }
        self.because("run", path, end);
        Next::EndPhase
    }

    /// Takes the end of a post-run playbook. The phase always goes on, unless the build was
    /// stopped.
    pub fn post(&mut self, path: &str, end: &PlaybookEnd) -> Next {
        if end.went_well() {
            return Next::GoOn;
        }
        match end {
            PlaybookEnd::Aborted => self.aborted = true,
            PlaybookEnd::Unreachable => self.unreachable = true,
            PlaybookEnd::DiskFull => self.fill_disk(),
            _ => {}
        }
        // A retry or a time-out weighs more than what happened afterwards.
        if !self.settled {
            self.result = Some(BuildResult::PostFailure);
        }
        self.because("post-run", path, end);
        if self.aborted || self.disk_full { Next::EndPhase } else { Next::GoOn }
    }

    /// The disk stays full, so nothing else runs either. Another attempt would fill it again.
    fn fill_disk(&mut self) {
        self.disk_full = true;
        self.settled = true;
        self.result = Some(BuildResult::DiskFull);
    }

    /// Returns whether the run phase is to be entered.
    pub fn wants_run(&self) -> bool {
        !self.pre_failed && !self.aborted
    }

    /// Returns whether the post-run playbook runs: after a failure in pre-run only those whose own
    /// level was set up, after a stop only those that clean up.
    pub fn wants_post(&self, level: u32, cleanup: bool) -> bool {
        let set_up = !self.pre_failed || self.reached.is_some_and(|reached| level <= reached);
        set_up && (!(self.aborted || self.disk_full) || cleanup)
    }

    /// Returns whether everything up to now went well (`zuul_success`).
    pub fn success(&self) -> bool {
        self.result == Some(BuildResult::Success)
    }

    /// Returns whether the attempt would not count if it ended now. `may_retry` is what the job
    /// returned itself.
    pub fn would_retry(&self, may_retry: MayRetry) -> bool {
        !self.aborted && self.result(may_retry) == BuildResult::Retry
    }

    /// Records a stop that no playbook felt.
    pub fn abort(&mut self, reason: &str) {
        self.aborted = true;
        self.why.get_or_insert_with(|| reason.to_owned());
    }

    /// Returns the result of the build.
    pub fn result(&self, may_retry: MayRetry) -> BuildResult {
        if self.aborted {
            return BuildResult::Aborted;
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

    /// Returns why, in a sentence, where something went wrong: the first such thing.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    fn because(&mut self, phase: &str, path: &str, end: &PlaybookEnd) {
        let what = match end {
            PlaybookEnd::Finished { code } => {
                format!("failed (ansible-playbook ended with {code})")
            }
            PlaybookEnd::Unreachable => "could not reach a host".to_owned(),
            PlaybookEnd::TimedOut => "ran out of time".to_owned(),
            PlaybookEnd::DiskFull => "filled the disk space of its build".to_owned(),
            PlaybookEnd::Aborted => "was stopped".to_owned(),
            PlaybookEnd::Broken { why } => format!("could not be run: {why}"),
        };
        self.why.get_or_insert_with(|| format!("The {phase} playbook {path} {what}."));
    }
}

/// Whether the job itself allows that it is attempted again (`zuul.retry` in its returned data).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayRetry {
    /// It does, or says nothing.
    Yes,
    /// It returned `retry: false`.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use BuildResult::*;
    use PlaybookEnd as End;

    const GOOD: End = End::Finished { code: 0 };
    const BAD: End = End::Finished { code: 2 };

    fn verdict(pre: &[End], run: &[End], post: &[End]) -> Verdict {
        let mut verdict = Verdict::default();
        for end in pre {
            verdict.pre(0, "pre", end);
        }
        for end in run {
            verdict.run("run", end);
        }
        for end in post {
            verdict.post("post", end);
        }
        verdict
    }

    /// Z7.1
    #[test]
    fn the_result_follows_zuuls_rules() {
        let broken = || End::Broken { why: String::new() };
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
            (vec![GOOD], vec![GOOD], vec![BAD, GOOD], PostFailure),
            (vec![GOOD], vec![BAD], vec![BAD], PostFailure),
            (vec![GOOD], vec![GOOD], vec![End::Unreachable], Retry),
            (vec![GOOD], vec![End::Aborted], vec![], Aborted),
            (vec![End::Aborted], vec![], vec![], Aborted),
            (vec![GOOD], vec![GOOD], vec![End::Aborted], Aborted),
            (vec![End::DiskFull], vec![], vec![], DiskFull),
            (vec![GOOD], vec![End::DiskFull], vec![], DiskFull),
            (vec![GOOD], vec![GOOD], vec![End::DiskFull, GOOD], DiskFull),
        ] {
            let text = format!("{pre:?} {run:?} {post:?}");
            assert_eq!(verdict(&pre, &run, &post).result(MayRetry::Yes), expected, "{text}");
        }
        assert_eq!(verdict(&[BAD], &[], &[]).result(MayRetry::No), Failure);
        assert_eq!(verdict(&[], &[End::Unreachable], &[]).result(MayRetry::No), Retry);
    }

    /// Z4.3, G05: what the queue was told must be so.
    #[test]
    fn output_that_says_so_fails_a_job_whose_playbook_passes() {
        let mut verdict = Verdict::default();
        verdict.fails("Traceback");
        assert_eq!(verdict.run("run", &GOOD), Next::EndPhase);
        assert!(!verdict.success());
        assert_eq!(verdict.result(MayRetry::Yes), Failure);
        assert!(verdict.why().unwrap_or_default().contains("\"Traceback\""));
    }

    /// Z7.1
    #[test]
    fn after_a_failed_pre_run_only_the_levels_it_reached_are_cleaned_up() {
        let mut verdict = Verdict::default();
        verdict.pre(0, "base", &GOOD);
        verdict.pre(1, "parent", &BAD);
        assert!(!verdict.wants_run());
        assert!(
            verdict.wants_post(0, false)
                && verdict.wants_post(1, false)
                && !verdict.wants_post(2, false)
        );
        verdict.abort("newer patchset");
        assert!(!verdict.wants_post(0, false) && verdict.wants_post(0, true));
    }
}
