//! Prints the measurements with the goals, and returns them as JSON.

use crate::budget::{
    COLD_NODES, GOAL_BURST_PER_SECOND, GOAL_CALLS, GOAL_CHANGE_MILLISECONDS,
    GOAL_CHANGES_PER_SECOND, GOAL_FLAT, GOAL_ITEM_WRITES, GOAL_LOOK_MILLISECONDS,
    GOAL_MILLISECONDS, POKES_OF_GATE, STEPS, WAY_TO_BUILD, WAY_TO_NODES, planned,
};
use crate::burst::Burst;
use crate::count::{Counted, IDLE_MINUTES, Idle, Stage};
use crate::latency::{Latency, SAMPLES, Spread};
use crate::long::{Cost, Long, Window, Written};
use crate::runner::Builds;
use crate::throughput::{Rate, Times};
use crate::wording::{asked_a_minute, at_least, at_most, millis, ranked, way_spent};
use serde_json::{Value, json};
use sluice_executor::service::{QUEUES, RENEW_SECONDS, WAIT_SECONDS};
use sluice_memory::sqs::limits::WAIT_SECONDS_MAX;
use sluice_model::wakeup::MessageQueue;
use std::fmt::Write as _;
use std::time::Duration;

/// Jobs of the measured change.
const JOBS: u64 = 3;

/// All measurements.
pub struct Measured {
    /// Calls with nodes that stand there already.
    pub warm: Counted,
    /// Calls with nodes launched for each build.
    pub cold: Counted,
    /// Calls by the minute, over [`IDLE_MINUTES`].
    pub idle: Idle,
    /// Event to build request.
    pub latency: Latency,
    /// Looks at a queue of a thousand changes.
    pub long: Long,
    /// The same where all of them are tested at once.
    pub wide: Long,
    /// Throughput of our own work alone.
    pub own: Rate,
    /// Throughput with real repositories and a forge on this machine.
    pub real: Rate,
    /// Many changes of a hundred projects at once.
    pub burst: Burst,
    /// Fewer of them, of ten projects.
    pub few: Burst,
    /// As many as that, of a thousand projects.
    pub many: Burst,
}

impl Measured {
    /// Returns the report for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.calls(&mut text);
        self.money(&mut text);
        self.latency(&mut text);
        rate(&mut text, "4a", "our own work alone (forge and git simulated in memory)", &self.own);
        rate(&mut text, "4b", "real git merges and a forge on this machine", &self.real);
        long(&mut text, "5a", &self.long);
        long(&mut text, "5b", &self.wide);
        self.bursts(&mut text);
        text
    }

    fn bursts(&self, text: &mut String) {
        let Burst { changes, projects, .. } = self.burst;
        let (rate, calls) =
            (self.burst.per_second(), self.burst.calls as f64 / changes.max(1) as f64);
        line(
            text,
            format_args!(
                "\n6. A burst of {changes} changes over {projects} projects, one job each, in one thread"
            ),
        );
        line(
            text,
            format_args!(
                "   {rate:.0} changes a second, goal {GOAL_BURST_PER_SECOND}: {}; {calls:.1} own calls each",
                at_least(rate, GOAL_BURST_PER_SECOND)
            ),
        );
        line(
            text,
            format_args!(
                "      spent on (ms for each change): {}",
                ranked(&self.burst.functions, changes)
            ),
        );
        let (few, many) = (self.few.processor_milliseconds(), self.many.processor_milliseconds());
        for (burst, is) in [(&self.few, few), (&self.many, many)] {
            line(
                text,
                format_args!(
                    "   processor time of a change at {} projects: {is:.2} ms, goal {GOAL_CHANGE_MILLISECONDS} ms: {}; {:.1} own calls",
                    burst.projects,
                    at_most(is, GOAL_CHANGE_MILLISECONDS),
                    burst.calls as f64 / burst.changes.max(1) as f64
                ),
            );
        }
        let ratio = many / few.max(f64::EPSILON);
        line(
            text,
            format_args!(
                "   {ratio:.2} times as much at {} projects, goal at most {GOAL_FLAT}: {}",
                self.many.projects,
                if ratio <= GOAL_FLAT { "met" } else { "MISSED" }
            ),
        );
    }

    fn calls(&self, text: &mut String) {
        let (warm, cold) = (&self.warm, &self.cold);
        line(
            text,
            format_args!(
                "1. Own calls (DynamoDB, S3, SQS) of a change with {JOBS} jobs of one node each"
            ),
        );
        line(
            text,
            format_args!(
                "   {:<10} {:>6} {:>11} {:>11} {:>11} {:>11} {:>11}",
                "step", "plan", "check warm", "over plan", "check cold", "gate warm", "gate cold"
            ),
        );
        let functions: std::collections::BTreeSet<&str> =
            warm.check.calls.keys().chain(cold.gate.calls.keys()).copied().collect();
        let others = functions.into_iter().filter(|name| !STEPS.contains(name) && !name.is_empty());
        for step in STEPS.into_iter().chain(others) {
            let (plan, is) = (planned(step, JOBS), warm.check.calls_of(step));
            let over = signed(is, plan);
            line(
                text,
                format_args!(
                    "   {step:<10} {plan:>6} {is:>11} {over:>11} {:>11} {:>11} {:>11}",
                    cold.check.calls_of(step),
                    warm.gate.calls_of(step),
                    cold.gate.calls_of(step)
                ),
            );
        }
        let plan: u64 = STEPS.into_iter().map(|step| planned(step, JOBS)).sum();
        let is = warm.check.total();
        line(
            text,
            format_args!(
                "   {:<10} {plan:>6} {is:>11} {:>11} {:>11} {:>11} {:>11}",
                "all",
                signed(is, plan),
                cold.check.total(),
                warm.gate.total(),
                cold.gate.total()
            ),
        );
        for step in warm.check.over_plan(JOBS) {
            line(text, format_args!("   {step}"));
        }
        line(
            text,
            format_args!(
                "   cold nodes add {} (plan: {COLD_NODES}); the forge's events about a landing add {}, and of the push of a branch that is proposed from the same repository {}",
                cold.check.total().saturating_sub(is),
                warm.echo.total(),
                warm.push.total()
            ),
        );
        let stages = [
            ("check change, nodes warm", &warm.check),
            ("gate change, nodes warm", &warm.gate),
            ("check change, nodes cold", &cold.check),
            ("gate change, nodes cold", &cold.gate),
        ];
        for (what, stage) in stages {
            line(
                text,
                format_args!(
                    "   {what}: {} calls, goal at most {GOAL_CALLS}: {}",
                    stage.total(),
                    at_most(stage.total() as f64, GOAL_CALLS as f64)
                ),
            );
            if stage.total() > GOAL_CALLS {
                line(text, format_args!("      spent on: {}", stage.spent()));
            }
            let sources = stage.sources;
            line(
                text,
                format_args!(
                    "      besides, event sources: {} receives with messages, {} deletions; KMS: {}",
                    sources.receives,
                    sources.deletes,
                    stage.by_service("KMS")
                ),
            );
        }
        self.apart(text);
    }

    /// What goes on without any change. What waits for messages by the clock of the machine is not
    /// counted by that of the world, and is computed.
    fn apart(&self, text: &mut String) {
        let Idle { sweep, session, building } = &self.idle;
        let minute = |calls: u64| calls as f64 / IDLE_MINUTES as f64;
        line(
            text,
            format_args!(
                "   apart, per minute in which nothing happens, measured over {IDLE_MINUTES} virtual ones: the timer's calls {:.1}, those of functions that it wakes {:.1}, event sources' receives with messages {:.1};",
                minute(sweep.calls_of("timer")),
                minute(sweep.total().saturating_sub(sweep.calls_of("timer"))),
                minute(sweep.sources.receives)
            ),
        );
        line(
            text,
            format_args!(
                "      measured over as many, an executor's session, renewed every {RENEW_SECONDS} s as its loop has it: {:.1} calls, and while it builds {:.1} (over all the minutes: {})",
                minute(session.total()),
                minute(building.total()),
                building.spent_by("executor")
            ),
        );
        line(
            text,
            format_args!(
                "      computed, not measured (`make demo` counts them by the clock): an executor's idle polls {:.0}, of its {} queues that it asks for {WAIT_SECONDS} s each;",
                asked_a_minute(QUEUES.len(), WAIT_SECONDS),
                QUEUES.len()
            ),
        );
        line(
            text,
            format_args!(
                "      an event source's {:.0} for each connection that it keeps, of {WAIT_SECONDS_MAX} s each, the longest that SQS has a receive wait. Live logs: none, they are read from the executor.",
                asked_a_minute(1, WAIT_SECONDS_MAX)
            ),
        );
    }

    fn money(&self, text: &mut String) {
        line(
            text,
            format_args!(
                "\n2. Dollars of calls for each change on AWS (us-east-1, on demand; event sources and KMS included)"
            ),
        );
        for (what, stage) in [
            ("check, warm nodes", &self.warm.check),
            ("check, cold nodes", &self.cold.check),
            ("gate, warm nodes", &self.warm.gate),
            ("gate, cold nodes", &self.cold.gate),
            ("the forge's echo", &self.warm.echo),
        ] {
            line(text, format_args!("   {what:<20} {:.7}", stage.dollars()));
        }
    }

    fn latency(&self, text: &mut String) {
        line(
            text,
            format_args!(
                "\n3. Event to build request on an idle system, functions in this process on ports in memory, git merges included, the forge's own time left out"
            ),
        );
        let Spread { median, high } = self.latency.node_request;
        line(
            text,
            format_args!(
                "   nodes are asked for   median {:>7.2} ms   95th percentile {:>7.2} ms",
                millis(median),
                millis(high)
            ),
        );
        let Spread { median, high } = self.latency.build_request;
        let is = millis(median);
        line(
            text,
            format_args!(
                "   a build is asked for  median {is:>7.2} ms   95th percentile {:>7.2} ms   goal {GOAL_MILLISECONDS} ms: {}",
                millis(high),
                at_most(is, GOAL_MILLISECONDS)
            ),
        );
        let Latency { node_way, build_way, functions, outside, .. } = &self.latency;
        line(
            text,
            format_args!("      spent on (ms for each change): {}", ranked(functions, SAMPLES)),
        );
        line(
            text,
            format_args!(
                "      outside, part of that, the forge's own time included: {}",
                ranked(outside, SAMPLES)
            ),
        );
        hops(text, "nodes are asked for", node_way, &WAY_TO_NODES);
        hops(text, "a build is asked for", build_way, &WAY_TO_BUILD);
        line(
            text,
            format_args!(
                "   a gate change of {JOBS} jobs reconciled its queue {} times for {} messages (plan: {POKES_OF_GATE})",
                self.warm.gate.sources.gate_batches, self.warm.gate.sources.gate_messages
            ),
        );
        line(
            text,
            format_args!(
                "   the same through the emulator's data services: `cargo run -p sluice-bench-emulated`, which `make bench` runs too"
            ),
        );
    }

    /// Returns the measurements as JSON.
    pub fn json(&self) -> Value {
        let counted = |counted: &Counted| json!({"check": stage(&counted.check), "gate": stage(&counted.gate), "echo": stage(&counted.echo), "push": stage(&counted.push)});
        let spread = |spread: &Spread| json!({"median_milliseconds": millis(spread.median), "high_milliseconds": millis(spread.high)});
        json!({
            "optimised": !cfg!(debug_assertions),
            "calls": {"warm": counted(&self.warm), "cold": counted(&self.cold), "idle": {"minutes": IDLE_MINUTES, "all": stage(&self.idle.sweep), "session": stage(&self.idle.session), "session_building": stage(&self.idle.building)}},
            "latency": {"node_request": spread(&self.latency.node_request), "build_request": spread(&self.latency.build_request), "node_hops": self.latency.node_way.len(), "build_hops": self.latency.build_way.len(), "functions": times_json(&self.latency.functions), "outside": times_json(&self.latency.outside)},
            "long_queue": long_json(&self.long), "wide_queue": long_json(&self.wide),
            "throughput": {"own": rate_json(&self.own), "real": rate_json(&self.real)},
            "bursts": [burst_json(&self.burst), burst_json(&self.few), burst_json(&self.many)],
        })
    }
}

fn hops(text: &mut String, until: &str, way: &[MessageQueue], planned: &[MessageQueue]) {
    let (is, goal) = (way.len(), planned.len());
    line(
        text,
        format_args!(
            "   batches one after another until {until}: {is}, goal at most {goal}: {}",
            at_most(is as f64, goal as f64)
        ),
    );
    if is > goal {
        line(text, format_args!("      spent on: {}", way_spent(way, planned)));
    }
}

fn long(text: &mut String, number: &str, long: &Long) {
    let how = match long.window {
        Window::Default => "the window as it is by default, three jobs of one node each",
        Window::All => "all of them in the window, one job without nodes each",
    };
    line(
        text,
        format_args!(
            "\n{number}. One gate queue of {} changes, {how}; its head's record has {} bytes",
            long.items, long.head_bytes
        ),
    );
    let looks = [
        ("a full reconciliation when nothing happened", &long.idle),
        ("a full reconciliation when a build of one ended", &long.changed),
        ("when the first one failed, until all behind it in the window has moved", &long.moved),
    ];
    for (what, cost) in looks {
        let is = millis(cost.time);
        line(
            text,
            format_args!(
                "   {what}: {is:.2} ms, goal {GOAL_LOOK_MILLISECONDS} ms: {}; {:.0} read units",
                at_most(is, GOAL_LOOK_MILLISECONDS),
                cost.read_units
            ),
        );
        if is > GOAL_LOOK_MILLISECONDS {
            let Written { items, head, .. } = cost.written;
            line(
                text,
                format_args!(
                    "      spent on: {} reconciliations, {head} commits with a plan each, {items} items; {:.2} ms for each commit, {:.3} ms for each item that changed",
                    cost.looks,
                    is / head.max(1) as f64,
                    is / items.max(1) as f64
                ),
            );
        }
        written(text, cost);
    }
    let Cost { time, looks, written, .. } = &long.restarted;
    line(
        text,
        format_args!(
            "   then, until that is merged and restarted: {:.2} ms of the gate in {looks} reconciliations, {:.3} ms each; {:.2} writes for each of {} items that changed, one for each step that it takes, and {} of the head",
            millis(*time),
            millis(*time) / (*looks).max(1) as f64,
            written.per_item(),
            written.items,
            written.head
        ),
    );
}

/// Prints the writes of reconciliations with the goal per changed item. The head is not an item and
/// is printed separately.
fn written(text: &mut String, cost: &Cost) {
    let written = &cost.written;
    let (is, goal) = match written.items {
        0 => (written.total() as f64, 0.0),
        _ => (written.per_item(), GOAL_ITEM_WRITES as f64),
    };
    let others: Vec<String> =
        written.others.iter().map(|(kind, writes)| format!("{kind} {writes}")).collect();
    line(
        text,
        format_args!(
            "      {} items changed, their records written {} times: {is:.2} for each, goal at most {goal}: {}; besides, the head {}{}",
            written.items,
            written.item_writes,
            if is <= goal { "met" } else { "MISSED" },
            written.head,
            if others.is_empty() { String::new() } else { format!(", {}", others.join(", ")) }
        ),
    );
}

fn burst_json(burst: &Burst) -> Value {
    json!({
        "projects": burst.projects,
        "changes": burst.changes,
        "changes_per_second": burst.per_second(),
        "processor_milliseconds_per_change": burst.processor_milliseconds(),
        "own_calls": burst.calls,
    })
}

fn long_json(long: &Long) -> Value {
    json!({
        "items": long.items,
        "head_bytes": long.head_bytes,
        "idle": cost_json(&long.idle),
        "one_changed": cost_json(&long.changed),
        "first_failed": cost_json(&long.moved),
        "restarted": cost_json(&long.restarted),
    })
}

fn cost_json(cost: &Cost) -> Value {
    let written = &cost.written;
    json!({
        "milliseconds": millis(cost.time),
        "looks": cost.looks,
        "read_units": cost.read_units,
        "records_written": written.total(),
        "items_changed": written.items,
        "item_writes": written.item_writes,
        "item_writes_per_item": written.per_item(),
        "head_writes": written.head,
        "other_writes": written.others,
    })
}

fn rate(text: &mut String, number: &str, what: &str, rate: &Rate) {
    let each = |time: Duration| millis(time) / rate.landed.max(1) as f64;
    line(
        text,
        format_args!(
            "\n{number}. One gate queue, {what}: {} of {} changes landed",
            rate.landed, rate.asked
        ),
    );
    let builds = match rate.builds {
        Builds::Nothing => "have no workspace, as repositories in memory have no packs; 4b has it",
        Builds::Prepared => {
            "get their workspace from the merger's packs, and their playbooks; Ansible is left out"
        }
    };
    line(
        text,
        format_args!(
            "   builds are claimed, started and finished through the records; they {builds}; nodes are simulated"
        ),
    );
    let is = rate.per_second();
    let by_clock = rate.landed as f64 / rate.wall.as_secs_f64().max(1e-9);
    for (is, of) in [(is, "without the forge's own time"), (by_clock, "by the clock")] {
        line(
            text,
            format_args!(
                "   {is:.1} changes/s {of}, goal at least {GOAL_CHANGES_PER_SECOND}: {}",
                at_least(is, GOAL_CHANGES_PER_SECOND)
            ),
        );
    }
    line(
        text,
        format_args!(
            "   all functions in one thread; its processor alone would allow {:.1}",
            rate.per_processor_second()
        ),
    );
    line(
        text,
        format_args!(
            "   for each change: {:.1} ms in all, {:.1} ms of them the forge's own, {:.1} ms in git (what it waits for of the forge included); {:.1} ms of processor; {:.1} records written, {:.1} own calls",
            each(rate.wall),
            each(rate.forge),
            each(rate.git),
            each(rate.processor),
            rate.records_written as f64 / rate.landed.max(1) as f64,
            rate.calls as f64 / rate.landed.max(1) as f64
        ),
    );
    for (name, times) in
        [("functions", &rate.functions), ("outside, part of the above", &rate.outside)]
    {
        line(text, format_args!("   {name} (ms for each change): {}", ranked(times, rate.landed)));
    }
}

fn signed(is: u64, plan: u64) -> String {
    if is >= plan { format!("+{}", is - plan) } else { format!("-{}", plan - is) }
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{words}");
}

fn stage(stage: &Stage) -> Value {
    let functions = stage.calls.iter().map(|(function, operations)| {
        let operations = operations.iter().map(|(name, used)| {
            let units = json!({"calls": used.calls, "read_units": used.read_units, "write_units": used.write_units});
            ((*name).to_owned(), units)
        });
        ((*function).to_owned(), Value::Object(operations.collect()))
    });
    json!({
        "own_calls": stage.total(),
        "dollars": stage.dollars(),
        "records_written": stage.records_written,
        "event_sources": {"receives": stage.sources.receives, "deletes": stage.sources.deletes, "gate_batches": stage.sources.gate_batches, "gate_messages": stage.sources.gate_messages},
        "functions": Value::Object(functions.collect()),
    })
}

fn rate_json(rate: &Rate) -> Value {
    json!({
        "builds_prepared": rate.builds == Builds::Prepared,
        "asked": rate.asked,
        "landed": rate.landed,
        "changes_per_second": rate.per_second(),
        "wall_milliseconds": millis(rate.wall),
        "forge_milliseconds": millis(rate.forge),
        "git_milliseconds": millis(rate.git),
        "processor_milliseconds": millis(rate.processor),
        "records_written": rate.records_written,
        "own_calls": rate.calls,
        "functions": times_json(&rate.functions),
        "outside": times_json(&rate.outside),
    })
}

fn times_json(times: &Times) -> Value {
    let rows = times.iter().map(|(name, (time, count))| {
        ((*name).to_owned(), json!({"milliseconds": millis(*time), "count": count}))
    });
    Value::Object(rows.collect())
}
