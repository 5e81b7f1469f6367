//! Where lines go: everything to a file of the data directory, what people must know also to the
//! terminal.

use crate::say::tell;
use anyhow::Context as _;
use sluice_gate_function::NEWS;
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

/// How much of it the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    /// Nothing.
    Silent,
    /// Warnings and errors, and what becomes of changes.
    Warnings,
    /// Everything that goes to the file.
    Everything,
}

/// Sends this process's lines to `sluice.log` in a data directory, and returns its path. `RUST_LOG`
/// chooses among them.
///
/// # Errors
/// When the file cannot be opened, or lines go somewhere already.
pub fn log_to(data: &Path, loudness: Loudness) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(data)
        .with_context(|| format!("could not make the data directory {}", data.display()))?;
    let path = data.join("sluice.log");
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("could not open {}", path.display()))?;
    let chosen = || {
        EnvFilter::try_from_default_env()
            .unwrap_or_else(|_| EnvFilter::new("info,dynoxide=warn,s3s=warn"))
    };
    let to_file = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(Mutex::new(file))
        .with_filter(chosen());
    let level = match loudness {
        Loudness::Silent => LevelFilter::OFF,
        Loudness::Warnings => LevelFilter::WARN,
        Loudness::Everything => LevelFilter::TRACE,
    };
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let to_terminal = tracing_subscriber::fmt::layer()
        .with_ansi(ansi)
        .with_writer(std::io::stderr)
        .with_filter(level)
        .with_filter(chosen());
    let news = (loudness == Loudness::Warnings).then_some(News);
    tracing_subscriber::registry()
        .with(to_file)
        .with(to_terminal)
        .with(news)
        .try_init()
        .context("lines go somewhere already")?;
    Ok(path)
}

/// Tells on standard output what becomes of changes, a line each.
struct News;

impl<S: Subscriber> Layer<S> for News {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == NEWS {
            let mut line = Line::default();
            event.record(&mut line);
            tell!("  {}", line.0);
        }
    }
}

/// The text of an event.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
