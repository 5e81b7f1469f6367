//! A gigabyte of output. It has a process of its own, so that the memory of the executor's part is
//! known.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, missing_docs, reason = "the helpers of the tests with Ansible")]
#[path = "ansible/support.rs"]
mod support;

use sluice_model::build::BuildResult::Success;
use support::{PROJECT, Story, untrusted};

/// The most memory that this process may have had: that of the executor, with the whole log of the
/// build, which the test keeps.
const MEMORY_BYTES_MAX: u64 = 192 << 20;

/// Returns the most memory that this process has had, in bytes.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Z7.4, Z7.5: a gigabyte of output is cut with a note, its end stays, and the job goes on; neither
/// the executor nor Ansible needs much memory for it.
#[tokio::test]
async fn a_gigabyte_of_output_is_cut_and_takes_little_memory() {
    let play = "- hosts: all\n  gather_facts: false\n  tasks:\n\
                \x20   - shell: yes of course | head -c 1000000000; echo; echo the last line\n      register: out\n\
                \x20   - debug: msg=\"{{ out.stdout | length < 9000000 }} {{ out.stdout.splitlines()[-1] }}\"\n";
    let mut story = Story::new(&[(PROJECT, "flood.yaml", play)]).with_nodes(&["one"], &[]);
    story.settings = |settings| {
        settings.log_bytes_max = 32 << 20;
        // Beyond it the playbook is killed.
        settings.process_limits.memory_bytes_max = 1 << 30;
    };
    story.job.timeout_seconds = Some(600);
    story.job.run = vec![untrusted("flood")];
    let outcome = story.run().await;
    let tail =
        &outcome.log[outcome.log.ceil_char_boundary(outcome.log.len().saturating_sub(3_000))..];
    assert_eq!(outcome.ended.result, Success, "{tail}");
    assert!(outcome.log.len() <= 32 << 20, "{}", outcome.log.len());
    for text in
        ["bytes of output are left out here]", "| one | the last line", "ok: True the last line"]
    {
        assert!(outcome.log.contains(text), "{text}: {tail}");
    }
    let peak = memory_peak();
    println!("a build that prints 1 GB: the executor had at most {} MiB", peak >> 20);
    assert!(peak <= MEMORY_BYTES_MAX, "{} MiB", peak >> 20);
}
