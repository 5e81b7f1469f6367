//! Where lines go: everything to a file of the data directory, what people must know also to the terminal.

use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// How much of it the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    /// Nothing.
    Silent,
    /// Warnings and errors.
    Warnings,
    /// Everything that goes to the file.
    Everything,
}

/// Sends this process's lines to `sluice.log` in a data directory, and returns its path. `RUST_LOG` chooses among them.
///
/// # Errors
/// When the file cannot be opened, or lines go somewhere already.
pub fn log_to(data: &Path, loudness: Loudness) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(data).with_context(|| format!("could not make the data directory {}", data.display()))?;
    let path = data.join("sluice.log");
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("could not open {}", path.display()))?;
    let chosen = || EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,dynoxide=warn,s3s=warn"));
    let to_file = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Mutex::new(file)).with_filter(chosen());
    let level = match loudness {
        Loudness::Silent => LevelFilter::OFF,
        Loudness::Warnings => LevelFilter::WARN,
        Loudness::Everything => LevelFilter::TRACE,
    };
    let to_terminal =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(level).with_filter(chosen());
    tracing_subscriber::registry().with(to_file).with(to_terminal).try_init().context("lines go somewhere already")?;
    Ok(path)
}
