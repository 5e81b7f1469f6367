//! `sluice-bench-configuration`: measures and prints. A missed goal is an error in an optimised
//! build. An overlay whose cost grows with the tenant is an error in any build.
#![allow(clippy::unwrap_used, reason = "a measuring harness may panic")]

use sluice_bench_configuration::report::{Measured, NOT_MEASURED};
use sluice_bench_configuration::{measure, openstack, tenant};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    if cfg!(debug_assertions) {
        println!("This build is not optimised: run it with --release, as `make bench` does.\n");
    }
    let tenants = [10, 100, 1_000, 2_000].map(|projects| {
        let made = tenant::make(projects);
        let mut renamed = tenant::own(3, "");
        renamed.text = renamed.text.replace("name: project-3-unit", "name: project-3-units");
        measure::tenant(
            &projects.to_string(),
            &made,
            [tenant::own(3, "    attempts: 2\n"), renamed],
        )
    });
    let real = openstack::data().map(|data| openstack::measure(&data));
    let measured = Measured { tenants: tenants.into(), real, peak_bytes: peak_bytes() };
    print!("{}", measured.text());
    let file = target().join("bench/configuration.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, format!("{:#}\n", measured.json())).unwrap();
    println!("\nThe numbers: {}", file.display());
    let failures = measured.failures(!cfg!(debug_assertions));
    if measured.real.is_none() {
        eprintln!("{NOT_MEASURED}");
    }
    for failure in &failures {
        eprintln!("error: {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the peak resident memory of this process, if the kernel reports it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

fn target() -> PathBuf {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from(here), PathBuf::from)
}
