//! Loads arbitrary bytes as the files of a tenant: main configuration, trusted, untrusted and
//! proposed, separated by form feeds. A missing file equals the first one, so that a corpus file
//! can be all four.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "caught.rs"]
mod caught;
#[path = "time_limit.rs"]
mod time_limit;

#[path = "../../../shared/config/tests/fuzz/survive.rs"]
mod survive;

fuzz_target!(init: caught::leave_to_the_composer(), |bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split('\u{c}');
    let first = parts.next().unwrap_or_default();
    let mut next = || parts.next().unwrap_or(first);
    time_limit::within_limit(|| survive::load(first, next(), next(), next()));
});
