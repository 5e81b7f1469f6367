//! Writes progress lines to standard output. The reader may close the pipe at any time.

use std::io::Write as _;

/// Writes a progress line of a long-running command. Errors are ignored.
macro_rules! print_progress {
    ($($part:tt)*) => { $crate::output::write_progress(format_args!($($part)*)) };
}

pub(crate) use print_progress;

/// Writes a line and a line break to standard output. Errors, as of a closed pipe, are ignored,
/// because they must not stop the work.
pub(crate) fn write_progress(text: std::fmt::Arguments<'_>) {
    // A closed pipe must not stop the work that this line reports.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
