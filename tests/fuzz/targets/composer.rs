//! Parses arbitrary bytes as YAML.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "caught.rs"]
mod caught;

fuzz_target!(init: caught::leave_to_the_composer(), |bytes: &[u8]| {
    let _ = sluice_config::yaml::compose(&String::from_utf8_lossy(bytes));
});
