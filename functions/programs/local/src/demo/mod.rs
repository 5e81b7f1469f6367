//! `sluice demo`: starts a fresh system, plays a scenario with four changes of two projects, and
//! prints the events live. With another endpoint for the data services, it creates resources of its
//! own there and removes them at the end.
//!
//! [`scenario`] acts as the users (propose, approve), [`narrator`] prints new events from the API,
//! [`verify`] compares the outcome with the expectations.

mod narrator;
mod scenario;
mod verify;

use crate::external_services;
use crate::output::print_progress;
use crate::{
    CallLatency, Endpoint, Functions, Local, LocalOptions, Verbosity, free_port, lock, log_to,
    remove_nodes,
};
use anyhow::{Context as _, bail};
use narrator::Narrator;
use sluice_aws::OsEntropy;
use sluice_executor_program::{PlaybookOptions, stop_signal};
use sluice_operator::data_or_default;
use sluice_runtime::Entropy as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// The options of `sluice demo`.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The directory of the demo's state; `None` takes a directory next to the default data
    /// directory.
    pub data: Option<PathBuf>,
    /// Whether the system keeps running afterwards.
    pub keep: bool,
    /// Whether functions run in this process or in processes of their own.
    pub functions: Functions,
    /// The URL of another AWS-compatible endpoint for the data services.
    pub endpoint: Option<String>,
    /// The response time of the data services.
    pub latency: CallLatency,
    /// The number of builds that run at once.
    pub slots: usize,
}

/// The file that marks a directory as created by a demo, so that the next demo may delete it.
const MARKER: &str = "made-by-sluice-demo";
/// The range in which free ports are searched.
const PORTS_TRIED: Range<u16> = 9_000..9_900;
/// Digits of a demo's own in the names of its resources at another endpoint.
const STACK_DIGITS: usize = 8;
/// Lines of the log that are printed when the scenario fails.
const PROBLEMS_MAX: usize = 8;

/// Starts a system in a fresh directory, plays the scenario, prints what happens, and stops the
/// system. With `keep`, stops it only at Ctrl-C. Returns exit status 0 only if every expectation is
/// met, and 1 if not, if it is interrupted, or if the scenario fails. An error only if the system
/// cannot be started.
///
/// With another endpoint, what the system has created there is removed at the end, also if it could
/// not be started. If that fails, it is printed, and the exit status is 1.
///
/// # Errors
/// When the system cannot be started. An error of the scenario is printed, with the location of the
/// logs.
pub async fn run(options: DemoOptions) -> anyhow::Result<ExitCode> {
    let data = fresh_directory(options.data.clone()).await?;
    let log = log_to(&data, Verbosity::Silent)?;
    let stop = stop_signal()?;
    let local_options = LocalOptions {
        data: data.clone(),
        port: free_port(PORTS_TRIED)?,
        functions: options.functions,
        endpoint: options.endpoint.clone().map(|url| {
            let digits: String = OsEntropy.token().chars().take(STACK_DIGITS).collect();
            Endpoint::from_environment(url, format!("sluice-demo-{digits}"))
        }),
        template: None,
        latency: options.latency,
        tick_seconds: Some(5),
        forge: true,
        slots: options.slots,
        ask_minutes: None,
        deaths: Vec::new(),
        web_root: None,
        playbooks: PlaybookOptions::default(),
    };
    let mut narrator = Narrator::new();
    narrator.title("Starting a system on this machine");
    if let Some(Endpoint { services, stack }) = &local_options.endpoint {
        external_services::addresses(services).for_each(|line| narrator.action(&line));
        narrator.action(&format!(
            "creating a table, a bucket, a key and queues there, with names that begin with {stack}"
        ));
    }
    let started = Instant::now();
    let local = match Local::start(local_options).await {
        Ok(local) => local,
        Err(error) => {
            remove_resources(&data).await;
            return Err(error);
        }
    };
    narrator.action(&format!(
        "started in {:.1} s: data services, 10 functions, forge, nodes, executor",
        started.elapsed().as_secs_f64()
    ));
    narrator.action(&format!("nodes          {}", local.isolation_of_nodes()));
    narrator.action(&format!("pages and API  {}t/demo/status", local.pages()));
    narrator.action(&format!("log            {}", log.display()));
    tokio::pin!(stop);
    let outcome = tokio::select! {
        outcome = scenario::run(&local, &mut narrator) => Some(outcome),
        () = &mut stop => None,
    };
    let exit_code = match outcome {
        None => {
            print_progress!("\nStopped before the scenario ended.");
            ExitCode::FAILURE
        }
        Some(Ok(exit_code)) => exit_code,
        Some(Err(error)) => {
            print_progress!("\nTHE SCENARIO FAILED: {error:#}");
            let lines = std::fs::read_to_string(&log).unwrap_or_default();
            let problems = last_problems(&lines);
            if !problems.is_empty() {
                print_progress!("The last warnings and errors in the log:");
                problems.iter().for_each(|line| print_progress!("  {line}"));
            }
            print_progress!(
                "The last decisions are above. The log lines of all functions are in {};",
                log.display()
            );
            print_progress!(
                "the logs of builds are below {}logs/demo/ while the system runs (`sluice demo --keep`).",
                local.pages()
            );
            ExitCode::FAILURE
        }
    };
    if options.keep {
        print_progress!(
            "\nThe system keeps running: {}t/demo/status — Ctrl-C stops it.",
            local.pages()
        );
        print_progress!("  sluice status --data {}", data.display());
        stop.await;
    }
    local.stop().await;
    let removal = remove_resources(&data).await;
    print_progress!("State and logs are in {}; the next demo deletes them.", data.display());
    Ok(if removal == Removal::Failed { ExitCode::FAILURE } else { exit_code })
}

/// What became of the resources at another endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    /// None is left.
    Done,
    /// Some may be left.
    Failed,
}

/// Removes what the system of a data directory has created at another endpoint, and prints that, or
/// why it failed. Does and prints nothing if there is nothing. No system may use the directory.
async fn remove_resources(data: &Path) -> Removal {
    match external_services::remove(data).await {
        Ok(None) => Removal::Done,
        Ok(Some(stack)) => {
            print_progress!("Removed {stack}-… from the endpoint.");
            Removal::Done
        }
        Err(error) => {
            print_progress!("COULD NOT CLEAN THE ENDPOINT: {error:#}");
            Removal::Failed
        }
    }
}

/// Returns the last distinct warnings and errors of a log, without their times, in the order of
/// their last appearance.
fn last_problems(log: &str) -> Vec<&str> {
    let mut problems: Vec<&str> = Vec::new();
    for line in log.lines().rev() {
        // The time is the first word, the level the second.
        let Some((_, rest)) = line.split_once(' ') else { continue };
        let problem = rest.trim();
        let is_problem = problem.starts_with("WARN ") || problem.starts_with("ERROR ");
        if is_problem && problems.len() < PROBLEMS_MAX && !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems.reverse();
    problems
}

/// Returns an empty directory that is marked as created by a demo: the given one, or `sluice-demo`
/// next to the default data directory. An existing directory that a demo created is deleted first;
/// the nodes of a killed demo in it are ended, and its resources at another endpoint are removed,
/// which may fail with a printed line. An error if it is not empty and no demo created
/// it, or if a demo still runs in it.
async fn fresh_directory(directory: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let data = match directory {
        Some(data) => data,
        None => data_or_default(None)?.with_file_name("sluice-demo"),
    };
    if data.join(MARKER).is_file() {
        // A demo that still runs would continue without its state and launch nodes that are never
        // found.
        let _held = lock(&data)?;
        // The nodes of a killed demo are still running. They are found by files in the directory,
        // so they are ended first.
        remove_nodes(&data).with_context(|| {
            format!("could not remove the nodes of an earlier demo in {}", data.display())
        })?;
        remove_resources(&data).await;
        std::fs::remove_dir_all(&data)
            .with_context(|| format!("could not remove {}", data.display()))?;
    }
    std::fs::create_dir_all(&data)
        .with_context(|| format!("could not create {}", data.display()))?;
    if std::fs::read_dir(&data)?.next().is_some() {
        bail!(
            "could not use {}: it is not empty and was not created by a demo; name another directory with --data",
            data.display()
        );
    }
    std::fs::write(data.join(MARKER), "")?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C4: what an endpoint refuses is shown with the service, and not only in the log.
    #[test]
    fn the_last_different_problems_of_a_log_are_found() {
        let log = "\
2026-11-28T12:00:00.000000Z  WARN sluice_aws::queues: SQS refuses message groups
2026-11-28T12:00:01.000000Z ERROR function{function=\"gate\"}: could not send: SQS answered Gone: no
2026-11-28T12:00:02.000000Z  INFO nothing of note, ERROR or not
2026-11-28T12:00:03.000000Z ERROR function{function=\"gate\"}: could not send: SQS answered Gone: no
";
        assert_eq!(
            last_problems(log),
            [
                "WARN sluice_aws::queues: SQS refuses message groups",
                "ERROR function{function=\"gate\"}: could not send: SQS answered Gone: no"
            ]
        );
        let many: String = (0..20).map(|number| format!("T ERROR number {number}\n")).collect();
        assert_eq!(last_problems(&many).len(), PROBLEMS_MAX);
        assert_eq!(last_problems(&many).last(), Some(&"ERROR number 19"));
    }
}
