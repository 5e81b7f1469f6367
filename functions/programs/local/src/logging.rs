//! Logging of a local system: everything to a file in the data directory, important lines also to
//! the terminal.

use crate::output::print_progress;
use anyhow::Context as _;
use sluice_gate_function::PROGRESS_TARGET;
use std::fmt;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

/// How much of the log is printed to the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Prints nothing.
    Silent,
    /// Prints warnings, errors, and the events of changes.
    Warnings,
    /// Prints everything that is logged to the file.
    Everything,
}

/// Sets up logging for the whole process: appends to `sluice.log` in a data directory, which is
/// created, and prints to standard error what `verbosity` allows. Both are filtered by `RUST_LOG`,
/// or without it at level info, and at level warn for two libraries of the data services. With
/// `Warnings`, also prints the events of changes to standard output. Returns the path of the file.
/// Fails the second time.
///
/// # Errors
/// When the file cannot be opened, or logging is already set up.
pub fn log_to(data: &Path, verbosity: Verbosity) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(data)
        .with_context(|| format!("could not create the data directory {}", data.display()))?;
    let path = data.join("sluice.log");
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("could not open {}", path.display()))?;
    let filter = || {
        EnvFilter::try_from_default_env()
            .unwrap_or_else(|_| EnvFilter::new("info,dynoxide=warn,s3s=warn"))
    };
    let to_file = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(Mutex::new(file))
        .with_filter(filter());
    let level = match verbosity {
        Verbosity::Silent => LevelFilter::OFF,
        Verbosity::Warnings => LevelFilter::WARN,
        Verbosity::Everything => LevelFilter::TRACE,
    };
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let to_terminal = tracing_subscriber::fmt::layer()
        .with_ansi(ansi)
        .with_writer(std::io::stderr)
        .with_filter(level)
        .with_filter(filter());
    let change_events = (verbosity == Verbosity::Warnings).then_some(ChangeEventsLayer);
    tracing_subscriber::registry()
        .with(to_file)
        .with(to_terminal)
        .with(change_events)
        .try_init()
        .context("logging is already set up")?;
    Ok(path)
}

/// Prints the events of changes to standard output, one line each.
struct ChangeEventsLayer;

impl<S: Subscriber> Layer<S> for ChangeEventsLayer {
    /// Prints the message of an event about a change. Ignores all other log events, which have
    /// another target.
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == PROGRESS_TARGET {
            let mut line = MessageText::default();
            event.record(&mut line);
            print_progress!("  {}", line.0);
        }
    }
}

/// The message of a log event.
#[derive(Default)]
struct MessageText(String);

impl Visit for MessageText {
    /// Keeps the field `message`; ignores all others.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
