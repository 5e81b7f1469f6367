//! Writes the output of commands: lines of text, or one JSON document (`--json`).

use serde_json::{Value, json};
use sluice_config::{plain, plain_json};
use std::io::{ErrorKind, Write as _};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// JSON.
    Json,
}

/// Writes a line of a command's output. Unlike `println!`, does not panic when the pipe is closed.
macro_rules! print_line {
    ($($part:tt)*) => { $crate::output::write_line(format_args!($($part)*)) };
}

pub(crate) use print_line;

/// Why no further line is written. The inner value is `None` if the reader closed the pipe, which
/// is not a failure.
static STOP_REASON: OnceLock<Option<String>> = OnceLock::new();

/// What becomes of lines of text.
enum Lines {
    /// They are written.
    Written,
    /// They are collected, for the end.
    Collected(Vec<String>),
    /// They are dropped, because the JSON document of the command is written.
    Dropped,
}

static LINES: Mutex<Lines> = Mutex::new(Lines::Written);

fn lines() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, writes a single JSON document: the command's own, or else, when [`finish`] is
/// called, an object with the command's lines as `messages`.
pub fn begin_json() {
    *lines() = Lines::Collected(Vec::new());
}

/// Ends the output: writes the lines that were collected since [`begin_json`], if the command wrote
/// no document of its own. Does nothing otherwise.
pub fn finish() {
    let collected = std::mem::replace(&mut *lines(), Lines::Written);
    if let Lines::Collected(messages) = collected {
        write_json(&json!({"messages": messages}));
    }
}

/// Writes a line and a line break to standard output, or collects it ([`begin_json`]). Invisible
/// characters are escaped, so that untrusted text cannot affect the terminal. Remembers the first
/// failure, for [`failure`]; after it, writes nothing more. A closed pipe ends the output too, but
/// is no failure.
pub(crate) fn write_line(text: std::fmt::Arguments<'_>) {
    match &mut *lines() {
        Lines::Written => {}
        Lines::Collected(messages) => {
            messages.push(text.to_string());
            return;
        }
        Lines::Dropped => return,
    }
    write_now(&plain(text.to_string()));
}

/// Writes a JSON value with indentation to standard output. Invisible characters are escaped, so
/// that untrusted text cannot affect the terminal. Lines that were collected are dropped, so that
/// the output is one document.
pub(crate) fn print_json(value: &Value) {
    let mut lines = lines();
    if matches!(*lines, Lines::Collected(_)) {
        *lines = Lines::Dropped;
    }
    drop(lines);
    write_json(value);
}

fn write_json(value: &Value) {
    write_now(&plain_json(&format!("{value:#}")));
}

fn write_now(text: &str) {
    if STOP_REASON.get().is_some() {
        return;
    }
    if let Err(error) = writeln!(std::io::stdout().lock(), "{text}") {
        let why = (error.kind() != ErrorKind::BrokenPipe).then(|| error.to_string());
        // If another thread's line failed first, its reason is enough.
        let _ = STOP_REASON.set(why);
    }
}

/// Returns why the output is incomplete, such as a full disk: the error of the first line that
/// could not be written. `None` if everything was written or the reader closed the pipe.
pub fn failure() -> Option<&'static str> {
    STOP_REASON.get()?.as_deref()
}
