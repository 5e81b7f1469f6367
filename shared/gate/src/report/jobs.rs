//! The part of a report about jobs: a line for each, their warnings, and their comments on lines of
//! the change.

use super::neutral_text::neutral_text;
use crate::item::{Job, JobStatus};
use crate::merge::LineNote;
use sluice_model::{BuildId, Timestamp};

/// Returns a job's line: its name with a link, its result or own message, its duration, whether it
/// is non-voting, and the first line of the explanation of a failure, which is a summary. A job
/// that has not ended is shown by its name alone as in progress. `now` is used for an end without a
/// time.
/// `build_page` returns the address of a build's page, to which a job links that has a build and no
/// address of its own. Texts that the job chose have no effect as markup ([`neutral_text`]).
pub(super) fn job_line(
    job: &Job,
    now: Timestamp,
    build_page: impl Fn(&BuildId) -> String,
) -> String {
    let name = neutral_text(job.summary.name.as_str());
    let JobStatus::Ended { result, detail, started_at, ended_at, log_url } = &job.status else {
        return format!("- {name} : in progress\n");
    };
    let own = if result.passed() { &job.summary.success_url } else { &job.summary.failure_url };
    let page = job.build.as_ref().map(build_page);
    let name = match link(own.as_deref(), log_url.as_deref(), page) {
        Some(url) => format!("[{name}]({})", link_target(&url)),
        None => name,
    };
    let message =
        match (result.passed(), &job.summary.success_message, &job.summary.failure_message) {
            (true, Some(message), _) | (false, _, Some(message)) => neutral_text(message),
            _ => result.to_string(),
        };
    let ended = if *ended_at == Timestamp(0) { now } else { *ended_at };
    let took = started_at
        .map(|started| format!(" in {}", duration(ended.since(started) / 1_000)))
        .unwrap_or_default();
    let voting = if job.summary.voting { "" } else { " (non-voting)" };
    let detail = detail
        .as_deref()
        .filter(|_| !result.passed())
        .and_then(|detail| detail.lines().next())
        .map(|summary| format!(": {}", neutral_text(summary)))
        .unwrap_or_default();
    format!("- {name} : {message}{took}{voting}{detail}\n")
}

/// Returns the line comments of jobs, each prefixed with its job's name.
pub(super) fn notes_of<'j>(jobs: impl Iterator<Item = &'j Job>) -> Vec<LineNote> {
    let of = |job: &Job| {
        let name = job.summary.name.clone();
        job.feedback
            .notes
            .clone()
            .into_iter()
            .map(move |note| LineNote { text: format!("{name}: {}", note.text), ..note })
    };
    jobs.flat_map(of).collect()
}

/// Returns the warnings of jobs as a paragraph, with the number of warnings and line comments that
/// were dropped for each job. Empty without any of these.
pub(super) fn warnings(jobs: &[Job]) -> String {
    let of = |job: &Job| {
        let name = neutral_text(job.summary.name.as_str());
        let texts = job.feedback.warnings.iter();
        let mut lines: Vec<String> =
            texts.map(|text| format!("- {name} : {}\n", neutral_text(text))).collect();
        if job.feedback.left_out > 0 {
            lines.push(format!(
                "- {name} : {} more were dropped for lack of space\n",
                job.feedback.left_out
            ));
        }
        lines
    };
    let lines: String = jobs.iter().flat_map(of).collect();
    if lines.is_empty() { lines } else { format!("\nWarnings:\n\n{lines}") }
}

/// Returns the address that a job's line links to: the job's own address, within its logs where
/// that is relative, otherwise the page of its build, otherwise its logs. `None` without any.
fn link(own: Option<&str>, log_url: Option<&str>, page: Option<String>) -> Option<String> {
    match (own, log_url) {
        (Some(own), _) if own.contains("://") => Some(own.to_owned()),
        (Some(own), Some(logs)) => {
            Some(format!("{}/{}", logs.trim_end_matches('/'), own.trim_start_matches('/')))
        }
        (_, logs) => page.or_else(|| logs.map(str::to_owned)),
    }
}

/// Returns an address as the target of a link, with the characters encoded that would end it: a job
/// may choose the address of its logs.
fn link_target(url: &str) -> String {
    let encode = |character: char| match character {
        '(' | ')' | '<' | '>' | '[' | ']' | '`' | '\\' | '"' | '\'' => {
            format!("%{:02X}", u32::from(character))
        }
        character if character.is_whitespace() || character.is_control() => String::new(),
        character => character.to_string(),
    };
    url.chars().map(encode).collect()
}

/// Formats a duration in hours, minutes and seconds, without leading zero units.
fn duration(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s:02}s"),
        (h, m, s) => format!("{h}h {m:02}m {s:02}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::build::BuildResult;
    use sluice_model::job::JobSummary;

    fn line(result: BuildResult, log_url: Option<&str>, summary: &str) -> String {
        let mut text: serde_json::Value = serde_json::from_str(summary).unwrap();
        for (key, value) in [("name", "unit".into()), ("hash", "h".into()), ("voting", true.into())]
        {
            text[key] = value;
        }
        text["attempts"] = 1.into();
        text["labels"] = serde_json::json!([]);
        let summary: JobSummary = serde_json::from_value(text).unwrap();
        let (started_at, ended_at) = (Some(Timestamp(1_000)), Timestamp(66_000));
        let log_url = log_url.map(str::to_owned);
        let status = JobStatus::Ended { result, detail: None, started_at, ended_at, log_url };
        let build = Some("b".into());
        let page = |build: &BuildId| format!("https://ci/build/{build}");
        job_line(&Job { status, build, ..Job::new(summary) }, Timestamp(66_000), page)
    }

    /// R05, Z9.1: a job that ran no playbook has no logs; the page of its build has the reason.
    #[test]
    fn a_job_that_ran_no_playbook_links_to_the_page_of_its_build() {
        let summary: JobSummary = serde_json::from_value(serde_json::json!({
            "name": "unit", "hash": "h", "voting": true, "attempts": 1, "labels": [],
        }))
        .unwrap();
        let status = JobStatus::Ended {
            result: BuildResult::NodeFailure,
            detail: Some("no nodes".to_owned()),
            started_at: None,
            ended_at: Timestamp(1),
            log_url: None,
        };
        let page = |build: &BuildId| format!("https://ci/build/{build}");
        let mut job = Job { status, build: Some("b".into()), ..Job::new(summary) };
        assert_eq!(
            job_line(&job, Timestamp(1), page),
            "- [unit](https://ci/build/b) : NODE_FAILURE: no nodes\n"
        );
        job.build = None;
        assert_eq!(job_line(&job, Timestamp(1), page), "- unit : NODE_FAILURE: no nodes\n");
    }

    /// R05, Z9.1: a failure names what failed, in one line; whatever a job chose as the name of a
    /// task or as a warning is neither markup nor a mention nor a link.
    #[test]
    fn a_failure_names_what_failed_and_smuggles_nothing_in() {
        let summary: JobSummary = serde_json::from_value(serde_json::json!({
            "name": "unit", "hash": "h", "voting": false, "attempts": 1, "labels": [],
        }))
        .unwrap();
        let failed = |detail: &str| {
            let (result, log_url) = (BuildResult::Failure, Some("https://logs/1/".to_owned()));
            let detail = Some(format!("{detail}\nIn the run playbook run.yaml."));
            let (started_at, ended_at) = (Some(Timestamp(1_000)), Timestamp(10_000));
            let status = JobStatus::Ended { result, detail, started_at, ended_at, log_url };
            let build = Some("b".into());
            let mut job = Job { status, build, ..Job::new(summary.clone()) };
            job.feedback.warnings.push("see [this](http://evil.test)\n@org/all".to_owned());
            let page = |build: &BuildId| format!("https://ci/build/{build}");
            (job_line(&job, Timestamp(1), page), warnings(&[job]))
        };
        let (line, _) = failed("Task \"Run the script\" failed on node (exit code 1)");
        let words = "Task \"Run the script\" failed on node (exit code 1)";
        let start = "- [unit](https://ci/build/b) : FAILURE in 9s (non-voting)";
        assert_eq!(line, format!("{start}: {words}\n"));
        let (line, warnings) =
            failed("Task \"![x](http://evil.test) @org/all <b>\" failed on node");
        let words = "`Task \"![x](http: //evil.test) @ org/all <b>\" failed on node`";
        assert_eq!(line, format!("{start}: {words}\n"));
        let words = "`see [this](http: //evil.test) @ org/all`";
        assert_eq!(warnings, format!("\nWarnings:\n\n- unit : {words}\n"));
        assert_eq!(link_target("https://logs/1)<b> [x](y"), "https://logs/1%29%3Cb%3E%5Bx%5D%28y");
    }

    /// R05: a job's own message replaces its result, separately for success and failure.
    #[test]
    fn a_jobs_message_replaces_its_result() {
        let words = r#"{"success_message": "all is well", "failure_message": "see the wiki"}"#;
        for (result, words, shown) in [
            (BuildResult::Success, words, "all is well in 1m 05s"),
            (BuildResult::TimedOut, words, "see the wiki in 1m 05s"),
            (BuildResult::Failure, "{}", "FAILURE in 1m 05s"),
        ] {
            let expected = format!("- [unit](https://ci/build/b) : {shown}\n");
            assert_eq!(line(result, None, words), expected);
        }
    }

    /// R05: a job's own address is used for its case; a relative one is within the logs.
    #[test]
    fn a_jobs_address_replaces_its_log_address() {
        let own = r#"{"success_url": "docs/index.html", "failure_url": "https://wiki/broken"}"#;
        let logs = Some("https://logs/1/");
        assert!(
            line(BuildResult::Success, logs, own)
                .starts_with("- [unit](https://logs/1/docs/index.html) :")
        );
        assert!(
            line(BuildResult::Failure, logs, own).starts_with("- [unit](https://wiki/broken) :")
        );
        assert!(
            line(BuildResult::Success, None, own).starts_with("- [unit](https://ci/build/b) :")
        );
        assert!(
            line(BuildResult::Failure, None, own).starts_with("- [unit](https://wiki/broken) :")
        );
        assert!(
            line(BuildResult::Success, logs, "{}").starts_with("- [unit](https://ci/build/b) :"),
            "the page of the build links to its logs"
        );
    }
}
