//! Parses arbitrary bytes as YAML.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "caught.rs"]
mod caught;
#[path = "time_limit.rs"]
mod time_limit;

fuzz_target!(init: caught::leave_to_the_composer(), |bytes: &[u8]| {
    time_limit::within_limit(|| {
        let _ = sluice_config::yaml::compose(&String::from_utf8_lossy(bytes));
    });
});
