//! What the executor itself costs, measured and printed: `make bench`.
//!
//! Real playbooks run in real sandboxes, on nodes that are each an sshd on loopback. Records,
//! objects and queues are in memory, so no time of the cloud is in the figures. Each part is a
//! process of its own, because memory that was used once is not given back.
#![allow(clippy::unwrap_used, reason = "a measuring harness may panic")]

mod memory;
mod parts;
mod site;
#[allow(dead_code, missing_docs, reason = "the tests' helpers, of which a part is used here")]
#[path = "../../tests/ansible/support.rs"]
mod support;
#[allow(dead_code, missing_docs, reason = "the tests' helpers, of which a part is used here")]
#[path = "../../tests/lives/world.rs"]
mod world;

use std::process::Command;

/// The name of a part and its figures.
type Part = (&'static str, fn() -> std::pin::Pin<Box<dyn Future<Output = ()>>>);

/// The parts in the order in which they are measured.
const PARTS: [Part; 4] = [
    ("one", || Box::pin(parts::one_build())),
    ("memory", || Box::pin(parts::memory())),
    ("twenty", || Box::pin(parts::twenty_builds())),
    ("flood", || Box::pin(parts::flood())),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|argument| argument == "--part");
    let Some(name) = at.and_then(|at| arguments.get(at + 1)) else {
        if cfg!(debug_assertions) {
            println!("This build is not optimised: times are longer than with `make bench`.");
        }
        PARTS.iter().for_each(|(name, _)| measure_apart(name));
        return;
    };
    let (_, part) = PARTS.iter().find(|(known, _)| known == name).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(part());
}

/// Measures one part in a process of its own, on at most two processors.
fn measure_apart(name: &str) {
    let program = std::env::current_exe().unwrap();
    let processors = processors();
    let mut command = match processors.as_slice() {
        [first, second, _, ..] => {
            let mut command = Command::new("taskset");
            command.args(["-c", &format!("{first},{second}")]).arg(program);
            command
        }
        _ => Command::new(program),
    };
    let status = command.args(["--part", name]).status().unwrap();
    assert!(status.success(), "part {name} failed: {status}");
}

/// Returns the numbers of the processors that this process may use.
fn processors() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().unwrap()..=last.parse().unwrap()
    });
    ranges.flatten().collect()
}
