//! The figures and their goals.

use crate::memory;
use crate::site::Site;
use sluice_model::build::BuildResult;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most seconds that a trivial build may spend outside of Ansible.
const OUTSIDE_SECONDS_MAX: f64 = 0.3;
/// The most memory that the executor may need for a flood of output, in bytes.
const FLOOD_BYTES_MAX: u64 = 192 << 20;
/// The builds that are measured one after another, after some that fill caches.
const BUILDS: usize = 15;
/// Microseconds of a day.
const DAY: u64 = 86_400_000_000;

/// The time that a step took, in seconds.
type Seconds = f64;

/// Prints whether a goal is met.
fn goal(what: &str, is_met: bool) {
    println!("  goal: {what}: {}", if is_met { "met" } else { "MISSED" });
}

/// Returns the middle one of these times, and the longest.
fn median_and_max(mut times: Vec<Seconds>) -> (Seconds, Seconds) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], *times.last().unwrap())
}

/// Returns the time of day, in microseconds.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros() % u128::from(DAY)).unwrap()
}

/// Returns the time of day of the first line with this text, in microseconds.
fn time_of(log: &str, text: &str) -> u64 {
    let line = log.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{log}"));
    let part = |from: usize, to: usize| line[from..to].parse::<u64>().unwrap();
    ((part(11, 13) * 60 + part(14, 16)) * 60 + part(17, 19)) * 1_000_000 + part(20, 26)
}

/// Returns the time between two times of day.
#[expect(clippy::cast_precision_loss, reason = "a day has less than 2^52 microseconds")]
fn between(from: u64, to: u64) -> Seconds {
    ((to + DAY - from) % DAY) as f64 / 1e6
}

/// Returns bytes as MiB.
#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Measures builds with one node and one repository, one after another.
pub async fn one_build() {
    let mut site = Site::start(1, "    - raw: \"true\"\n", |_| {}).await;
    let (mut outside, mut first_task) = (Vec::new(), Vec::new());
    let (mut begin, mut prepare, mut end) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..BUILDS + 2 {
        let sent = now();
        let build = site.send(0).await;
        let ended = site.end_of(&build).await;
        let stored = now();
        let log = site.log_of(&build).await;
        assert_eq!(ended.result, BuildResult::Success, "{log}");
        if number < 2 {
            continue;
        }
        let console = time_of(&log, "| Job console starting");
        let (start, stop) = (time_of(&log, "| RUN START"), time_of(&log, "| RUN END"));
        begin.push(between(sent, console));
        prepare.push(between(console, start));
        end.push(between(stop, stored));
        outside.push(between(sent, start) + between(stop, stored));
        first_task.push(between(sent, time_of(&log, "| TASK [")));
    }
    let (median, longest) = median_and_max(outside);
    println!(
        "a build with one node and one repository, {BUILDS} times: {median:.3} s of the executor \
         outside of Ansible (median; longest {longest:.3} s)"
    );
    println!(
        "  {:.3} s from the message to the log, {:.3} s to the first playbook, {:.3} s after the last",
        median_and_max(begin).0,
        median_and_max(prepare).0,
        median_and_max(end).0
    );
    goal(&format!("at most {OUTSIDE_SECONDS_MAX} s"), median <= OUTSIDE_SECONDS_MAX);
    let (median, longest) = median_and_max(first_task);
    println!(
        "from the message to the first task of its playbook: {median:.3} s (median; longest {longest:.3} s)"
    );
    site.stop().await;
}

/// A task that says that it runs, and ends when the file `go` is there.
const WAITS: &str = "    - shell: \"touch ~/waits; while [ ! -e ~/go ]; do sleep 0.2; done\"\n";

/// Measures the memory with no build, one and ten.
pub async fn memory() {
    let mut site = Site::start(10, WAITS, |_| {}).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let none = memory::own("VmRSS");
    let mut builds = vec![site.send(0).await];
    site.until_on_node(0, "waits").await;
    let one = (memory::own("VmRSS"), memory::of_playbooks());
    for at in 1..10 {
        builds.push(site.send(at).await);
    }
    for at in 0..10 {
        site.until_on_node(at, "waits").await;
    }
    let ten = (memory::own("VmRSS"), memory::of_playbooks());
    for node in &site.nodes {
        std::fs::write(node.home().join("go"), "").unwrap();
    }
    for build in &builds {
        let result = site.end_of(build).await.result;
        assert_eq!(result, BuildResult::Success, "{}", site.log_of(build).await);
    }
    println!(
        "memory of the executor: {:.1} MiB without builds, {:.1} with one, {:.1} with ten: {:.2} for a build",
        mib(none),
        mib(one.0),
        mib(ten.0),
        mib(ten.0.saturating_sub(none)) / 10.0
    );
    println!(
        "  with the processes of Ansible and SSH, shared memory counted once: {:.0} MiB for one build, {:.0} for each of ten",
        mib(one.1),
        mib(ten.1) / 10.0
    );
    site.stop().await;
}

/// Measures twenty builds at once.
pub async fn twenty_builds() {
    const COUNT: usize = 20;
    let mut site = Site::start(COUNT, "    - shell: \"echo done\"\n", |_| {}).await;
    let (peak, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let sampling = {
        let (peak, is_over) = (peak.clone(), is_over.clone());
        tokio::task::spawn_blocking(move || {
            while !is_over.load(Ordering::Acquire) {
                peak.fetch_max(memory::own("VmRSS") + memory::of_playbooks(), Ordering::AcqRel);
                std::thread::sleep(Duration::from_secs(1));
            }
        })
    };
    let started = Instant::now();
    let mut builds = Vec::new();
    for at in 0..COUNT {
        builds.push(site.send(at).await);
    }
    let mut passed = 0;
    for build in &builds {
        match site.end_of(build).await.result {
            BuildResult::Success => passed += 1,
            other => println!("  a build ended as {other}:\n{}", site.log_of(build).await),
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Release);
    sampling.await.unwrap();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!(
        "{COUNT} builds at once on {processors} processors: {passed} passed in {seconds:.1} s; at most {:.0} MiB with all processes",
        mib(peak.load(Ordering::Acquire))
    );
    goal("all pass", passed == COUNT);
    site.stop().await;
}

/// Measures a build that prints a gigabyte.
pub async fn flood() {
    let tasks = "    - shell: yes of course | head -c 1000000000; echo; echo the last line\n";
    let mut site = Site::start(1, tasks, |settings| settings.log_bytes_max = 32 << 20).await;
    let before = memory::own("VmHWM");
    let started = Instant::now();
    let build = site.send(0).await;
    let ended = site.end_of(&build).await;
    let seconds = started.elapsed().as_secs_f64();
    let log = site.log_of(&build).await;
    let peak = memory::own("VmHWM");
    println!(
        "a build that prints 1 GB: {} in {seconds:.1} s with {:.0} MiB of log; the executor has at most {:.0} MiB, {:.0} before",
        ended.result,
        mib(log.len() as u64),
        mib(peak),
        mib(before)
    );
    let is_met = ended.result == BuildResult::Success && peak <= FLOOD_BYTES_MAX;
    goal(&format!("it passes with at most {:.0} MiB", mib(FLOOD_BYTES_MAX)), is_met);
    site.stop().await;
}
