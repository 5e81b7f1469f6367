//! Writes lines to standard output. The reader may close the pipe at any time, as `head` does.

use std::io::{ErrorKind, Write as _};
use std::sync::OnceLock;

/// Writes a line of a command's output. Unlike `println!`, does not panic when the pipe is closed.
macro_rules! print_line {
    ($($part:tt)*) => { $crate::output::write_line(format_args!($($part)*)) };
}

pub(crate) use print_line;

/// Why no further line is written. The inner value is `None` if the reader closed the pipe, which
/// is not a failure.
static STOP_REASON: OnceLock<Option<String>> = OnceLock::new();

/// Writes a line and a line break to standard output. Remembers the first failure, for [`failure`];
/// after it, writes nothing more. A closed pipe ends the output too, but is no failure.
pub(crate) fn write_line(text: std::fmt::Arguments<'_>) {
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
