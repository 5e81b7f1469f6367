//! `sluice demo`: a fresh system, four changes of two projects, and what happens to them, told
//! live.
//!
//! [`story`] acts as the people do (propose, approve), [`teller`] prints what the API tells of it,
//! [`proof`] compares the end with what had to come out.

mod proof;
mod story;
mod teller;

use crate::commands::data_or_default;
use crate::commands::up::stop_asked;
use crate::local::{Functions, Local, Loudness, Options, end_nodes, free_port, lock, log_to};
use crate::say::tell;
use anyhow::{Context as _, bail};
use sluice_emulator::data::Latency;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use teller::Teller;

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Where the demo's state is kept; `None` takes a directory beside the usual one.
    pub data: Option<PathBuf>,
    /// Whether the system goes on afterwards.
    pub keep: bool,
    /// Whether functions run in this process.
    pub functions: Functions,
    /// How long data services take to answer.
    pub latency: Latency,
    /// Builds that run at once.
    pub slots: usize,
}

/// Marks a directory as one that a demo made, and that the next one may remove.
const MARKER: &str = "made-by-sluice-demo";
/// Where a port of the pages is looked for.
const PORTS_TRIED: Range<u16> = 9_000..9_900;

/// Tells the story. The exit status is 0 only if everything came out as it had to.
///
/// # Errors
/// When the system cannot be started, or the story stops somewhere; the text says where, and where
/// logs are.
pub async fn run(wanted: Wanted) -> anyhow::Result<ExitCode> {
    let data = fresh(wanted.data.clone())?;
    let log = log_to(&data, Loudness::Silent)?;
    let stop = stop_asked()?;
    let options = Options {
        data: data.clone(),
        port: free_port(PORTS_TRIED)?,
        functions: wanted.functions,
        endpoint: None,
        template: None,
        latency: wanted.latency,
        tick_seconds: Some(5),
        forge: true,
        slots: wanted.slots,
        ask_minutes: None,
        deaths: Vec::new(),
        web_root: None,
    };
    let mut teller = Teller::new();
    teller.title("A system of its own, on this machine");
    let begun = Instant::now();
    let local = Local::start(options).await?;
    teller.say(&format!(
        "everything answers after {:.1} s: data services, 10 functions, forge, nodes, executor",
        begun.elapsed().as_secs_f64()
    ));
    teller.say(&format!("pages and API  {}t/demo/status", local.pages()));
    teller.say(&format!("log            {}", log.display()));
    tokio::pin!(stop);
    let told = tokio::select! {
        told = story::tell(&local, &mut teller) => Some(told),
        () = &mut stop => None,
    };
    let verdict = match told {
        None => {
            tell!("\nStopped before the story was over.");
            ExitCode::FAILURE
        }
        Some(Ok(verdict)) => verdict,
        Some(Err(error)) => {
            tell!("\nTHE STORY STOPPED: {error:#}");
            tell!(
                "What was decided last stands above. Every line of every function is in {};",
                log.display()
            );
            tell!(
                "logs of builds are below {}logs/ while the system runs (`sluice demo --keep`).",
                local.pages()
            );
            ExitCode::FAILURE
        }
    };
    if wanted.keep {
        tell!("\nThe system goes on: {}t/demo/status — Ctrl-C stops it.", local.pages());
        tell!("  sluice status --data {}", data.display());
        stop.await;
    }
    local.stop().await;
    tell!("State and logs are in {}; the next demo removes them.", data.display());
    Ok(verdict)
}

/// Makes an empty directory; removes one only if a demo made it.
fn fresh(wanted: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let data = match wanted {
        Some(data) => data,
        None => data_or_default(None)?.with_file_name("sluice-demo"),
    };
    if data.join(MARKER).is_file() {
        // A demo that still runs would go on without its state, and start nodes that nobody finds.
        let _held = lock(&data)?;
        // Its nodes outlive a killed demo; they are ended by whoever takes the directory up, so
        // that must not be removed under them.
        end_nodes(&data);
        std::fs::remove_dir_all(&data)
            .with_context(|| format!("could not remove {}", data.display()))?;
    }
    std::fs::create_dir_all(&data).with_context(|| format!("could not make {}", data.display()))?;
    if std::fs::read_dir(&data)?.next().is_some() {
        bail!(
            "{} is not empty and no demo made it: name another directory with --data",
            data.display()
        );
    }
    std::fs::write(data.join(MARKER), "")?;
    Ok(data)
}
