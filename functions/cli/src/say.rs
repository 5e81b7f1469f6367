//! Lines on standard output. Whoever reads them may stop reading at any time, as `head` does.

use std::io::{ErrorKind, Write as _};
use std::sync::OnceLock;

/// Writes a line of a command's answer; `println!` would panic when nobody reads any more.
macro_rules! say {
    ($($part:tt)*) => { $crate::say::line(format_args!($($part)*)) };
}

/// Writes a line beside work that goes on whether anybody reads or not.
macro_rules! tell {
    ($($part:tt)*) => { $crate::say::aside(format_args!($($part)*)) };
}

pub(crate) use {say, tell};

/// Why no further line is written; `None` when nobody reads any more, which is no failure.
static ENDED: OnceLock<Option<String>> = OnceLock::new();

/// Writes a line, unless an earlier one could not be written.
pub(crate) fn line(text: std::fmt::Arguments<'_>) {
    if ENDED.get().is_some() {
        return;
    }
    if let Err(error) = writeln!(std::io::stdout().lock(), "{text}") {
        let why = (error.kind() != ErrorKind::BrokenPipe).then(|| error.to_string());
        // Somebody else's line failed first: one reason is enough.
        let _ = ENDED.set(why);
    }
}

/// Writes a line if somebody reads.
pub(crate) fn aside(text: std::fmt::Arguments<'_>) {
    // Nobody there to be told.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Returns why an answer is not whole though somebody reads it (a full disk): then it must not look
/// whole.
pub fn failure() -> Option<&'static str> {
    ENDED.get()?.as_deref()
}
