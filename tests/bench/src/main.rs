//! `sluice-bench`: measures and prints. A missed goal is printed and is not an error.
#![allow(clippy::unwrap_used, reason = "a measuring harness may panic")]

use sluice_bench::count::{count, idle};
use sluice_bench::long::Window;
use sluice_bench::report::Measured;
use sluice_bench::sample::Nodes;
use sluice_bench::{burst, latency, long, throughput};
use std::path::PathBuf;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // A build without optimisation is slow: it measures fewer changes, to end within three minutes.
    let (own, real, changes, wide) =
        if cfg!(debug_assertions) { (60, 20, 100, 100) } else { (200, 60, 500, 1_000) };
    if cfg!(debug_assertions) {
        println!(
            "This build is not optimised: counts are exact, times are longer than with `cargo run --release -p sluice-bench`.\n"
        );
    }
    let measured = Measured {
        warm: count(Nodes::Warm).await,
        cold: count(Nodes::Cold).await,
        idle: idle().await,
        latency: latency::measure().await,
        long: long::measure(1_000, Window::Default).await,
        wide: long::measure(wide, Window::All).await,
        own: throughput::own(own).await,
        real: throughput::real(real).await,
        burst: burst::measure(changes, 100).await,
        few: burst::measure(changes / 5, 10).await,
        many: burst::measure(changes / 5, 1_000).await,
    };
    print!("{}", measured.text());
    let file = target().join("bench/latest.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, format!("{:#}\n", measured.json())).unwrap();
    println!("\nThe numbers: {}", file.display());
}

fn target() -> PathBuf {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from(here), PathBuf::from)
}
