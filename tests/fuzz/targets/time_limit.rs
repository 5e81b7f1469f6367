//! Limits the processor time that one input may take.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The limit for one input. Ordinary input takes milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs `load`, and panics if it takes more than [`LIMIT`] of this thread's processor time. The time
/// of the clock would also count how long other processes ran.
pub fn within_limit(load: impl FnOnce()) {
    let before = used();
    load();
    let taken = used().saturating_sub(before);
    assert!(taken <= LIMIT, "the input took {taken:?} of processor time, more than {LIMIT:?}");
}

/// Returns the processor time that this thread has used so far.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}
