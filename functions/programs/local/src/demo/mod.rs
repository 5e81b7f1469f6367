//! `sluice demo`: starts a fresh system, plays a scenario with four changes of two projects, and
//! prints the events live.
//!
//! [`scenario`] acts as the users (propose, approve), [`narrator`] prints new events from the API,
//! [`verify`] compares the outcome with the expectations.

mod narrator;
mod scenario;
mod verify;

use crate::output::print_progress;
use crate::{
    CallLatency, Functions, Local, LocalOptions, Verbosity, end_nodes, free_port, lock, log_to,
};
use anyhow::{Context as _, bail};
use narrator::Narrator;
use sluice_executor_program::stop_signal;
use sluice_operator::data_or_default;
use std::ops::Range;
use std::path::PathBuf;
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
    /// The response time of the data services.
    pub latency: CallLatency,
    /// The number of builds that run at once.
    pub slots: usize,
}

/// The file that marks a directory as created by a demo, so that the next demo may delete it.
const MARKER: &str = "made-by-sluice-demo";
/// The range in which free ports are searched.
const PORTS_TRIED: Range<u16> = 9_000..9_900;

/// Starts a system in a fresh directory, plays the scenario, prints what happens, and stops the
/// system. With `keep`, stops it only at Ctrl-C. Returns exit status 0 only if every expectation is
/// met, and 1 if not, if it is interrupted, or if the scenario fails. An error only if the system
/// cannot be started.
///
/// # Errors
/// When the system cannot be started. An error of the scenario is printed, with the location of the
/// logs.
pub async fn run(options: DemoOptions) -> anyhow::Result<ExitCode> {
    let data = fresh_directory(options.data.clone())?;
    let log = log_to(&data, Verbosity::Silent)?;
    let stop = stop_signal()?;
    let local_options = LocalOptions {
        data: data.clone(),
        port: free_port(PORTS_TRIED)?,
        functions: options.functions,
        endpoint: None,
        template: None,
        latency: options.latency,
        tick_seconds: Some(5),
        forge: true,
        slots: options.slots,
        ask_minutes: None,
        deaths: Vec::new(),
        web_root: None,
    };
    let mut narrator = Narrator::new();
    narrator.title("Starting a system on this machine");
    let started = Instant::now();
    let local = Local::start(local_options).await?;
    narrator.action(&format!(
        "started in {:.1} s: data services, 10 functions, forge, nodes, executor",
        started.elapsed().as_secs_f64()
    ));
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
    print_progress!("State and logs are in {}; the next demo deletes them.", data.display());
    Ok(exit_code)
}

/// Returns an empty directory that is marked as created by a demo: the given one, or `sluice-demo`
/// next to the default data directory. An existing directory that a demo created is deleted first,
/// and the nodes of a killed demo in it are ended. An error if it is not empty and no demo created
/// it, or if a demo still runs in it.
fn fresh_directory(directory: Option<PathBuf>) -> anyhow::Result<PathBuf> {
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
        end_nodes(&data);
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
