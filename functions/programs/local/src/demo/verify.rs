//! Compares the outcome of the demo with the expectations and prints a table. Reads everything
//! again: from the records, the forge's repositories and the cost meter.

use super::narrator::Narrator;
use super::scenario::DemoChange;
use crate::audit::{self, SentWebhook};
use crate::output::print_progress;
use crate::{CONFIG, Local, ONE, TWO, write_calls};
use anyhow::Context as _;
use sluice_emulator::data::prices::DYNAMODB_WRITE_UNIT;
use sluice_emulator::data::{Meter, MeterReport, Purpose, Row};
use sluice_gate::JobStatus;
use sluice_local_forge::{LocalForge, PullState};
use sluice_model::build::{Order, Speculation};
use sluice_model::change::ChangeKey;
use sluice_model::{BuildId, DeliveryId, Timestamp};
use sluice_records::build;
use sluice_records::codec::{decode, get};
use sluice_records::delivery::{self, DeliveryRecord};
use sluice_records::logs::{BuildLogs, LOG};
use sluice_records::report::Buildset;
use sluice_records::session::{ENDED_SESSIONS, OPEN_SESSIONS};
use sluice_runtime::Ports;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The expected outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expectation {
    /// The change merges.
    Merges,
    /// The change does not merge, and its forge shows why.
    IsRejected,
}

/// Seconds to wait for the last deliveries, builds and requests to end.
const DELIVERIES_SECONDS: u64 = 20;

/// The outcome of one change.
struct ChangeOutcome {
    check: String,
    gate: String,
    builds: usize,
    /// Seconds from the webhook to the first task of a playbook, for check and gate.
    first_task: [Option<f64>; 2],
    landed: Option<String>,
    trees: TreeComparison,
    as_expected: bool,
}

#[derive(PartialEq)]
enum TreeComparison {
    Same(String),
    Differ { tested: String, landed: String },
    NothingLanded,
}

/// Prints the table of outcomes, the checks of the scenario, the unfinished work and the costs.
/// `changes` must be the scenario's four changes, in order. Waits up to 20 seconds each for
/// webhooks and for work to end. Returns exit status 0 only if every expectation is met, else 1; an
/// error if B or D was never in the gate. Also writes the report of calls to the data directory.
/// Calls of another endpoint are not counted: without a cost meter, costs and calls are left out.
pub(super) async fn print_table(
    local: &Local,
    forge: &LocalForge,
    changes: &[DemoChange],
    narrator: &Narrator,
) -> anyhow::Result<ExitCode> {
    let report = local.meter().map(Meter::snapshot);
    let unhandled = wait_for_webhooks(local.operator(), forge).await?;
    let sets = audit::buildsets(local.operator()).await?;
    narrator.title("Outcome");
    print_progress!(
        "  change                                   check    gate     builds  event to first task  merged    tested tree = merged tree"
    );
    let mut is_as_expected = true;
    let mut builds = 0;
    for change in changes {
        let outcome = outcome(local.operator(), forge, change, &sets).await?;
        builds += outcome.builds;
        is_as_expected &= outcome.as_expected;
        print_row(change, &outcome);
    }
    let order = landing_order(&sets, changes);
    print_progress!("\n  merge order: {order}");
    is_as_expected &= order == "A, B, D";
    let on_top = was_tested_on_top(local.operator(), changes, &sets).await?;
    print_progress!(
        "  gate tested B on top of A, its dependency: {}",
        if on_top { "yes" } else { "NO" }
    );
    is_as_expected &= on_top;
    let was_retested = was_retested(local.operator(), changes, &sets).await?;
    print_progress!(
        "  gate tested D behind C, then again without C: {}",
        if was_retested { "yes" } else { "NO" }
    );
    is_as_expected &= was_retested;
    print_progress!("  unaccounted deliveries: {}", unhandled.len());
    unhandled.iter().for_each(|one| print_progress!("    {one}"));
    is_as_expected &= unhandled.is_empty();
    let open = still_open(local.operator()).await?;
    print_progress!("  unfinished items, builds and requests: {}", open.len());
    open.iter().for_each(|one| print_progress!("    {one}"));
    is_as_expected &= open.is_empty();
    let ignored = local.ignored();
    print_progress!("  ignored parts of the template: {}", ignored.len());
    is_as_expected &= ignored.is_empty();
    local.absent().for_each(|what| print_progress!("    not available on one machine: {what}"));
    if let Some(report) = report {
        print_costs(
            &report,
            changes.len(),
            builds,
            session_writes(local.operator()).await?,
            narrator.seconds() / 60.0,
        );
        let calls = write_calls(local.data(), &report)?;
        print_progress!("  calls by function and operation: {}", calls.display());
    }
    print_progress!("  {:.0} s in all\n", narrator.seconds());
    print_progress!(
        "{}",
        if is_as_expected {
            "The outcome is as expected."
        } else {
            "THE OUTCOME IS NOT AS EXPECTED: see the lines above."
        }
    );
    Ok(if is_as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the row of a change in the table. An outcome that is not the expected one is marked.
fn print_row(change: &DemoChange, outcome: &ChangeOutcome) {
    let name =
        format!("{} {}#{} {}", change.letter, change.repository, change.number, change.title);
    let seconds =
        |at: Option<f64>| at.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
    let first = format!("{} / {}", seconds(outcome.first_task[0]), seconds(outcome.first_task[1]));
    let landed = outcome.landed.as_deref().map_or("-", |commit| commit.get(..7).unwrap_or(commit));
    let trees = match &outcome.trees {
        TreeComparison::Same(tree) => format!("yes, {}", tree.get(..7).unwrap_or(tree)),
        TreeComparison::Differ { tested, landed } => {
            format!("NO: {tested} was tested, {landed} was merged")
        }
        TreeComparison::NothingLanded => "not merged".to_owned(),
    };
    let wrong = if outcome.as_expected { "" } else { "   <- NOT AS EXPECTED" };
    print_progress!(
        "  {:<40} {:<8} {:<8} {:>6}  {first:>19}  {landed:<8}  {trees}{wrong}",
        name.chars().take(40).collect::<String>(),
        outcome.check,
        outcome.gate,
        outcome.builds
    );
}

/// Returns the outcome of one change, from its newest buildsets, the forge and the logs. `sets`
/// must have the newest first. A result is `none` if there is no buildset. The outcome is as
/// expected if an Ansible task ran in check and in gate and, for a change that is to be merged,
/// both results are SUCCESS and the merged tree is the tested one; for one that is to be rejected,
/// both are FAILURE, nothing was merged, and the report names what failed. Success reports
/// are not checked. Never as expected once the delivery that enqueued the change has expired.
async fn outcome(
    ports: &Ports,
    forge: &LocalForge,
    change: &DemoChange,
    sets: &[Buildset],
) -> anyhow::Result<ChangeOutcome> {
    let buildset_of = |pipeline: &str| {
        sets.iter().find(|set| {
            is_change(&set.item.candidate.change.key, change)
                && set.queue.pipeline.as_str() == pipeline
        })
    };
    let (check, gate) = (buildset_of("check"), buildset_of("gate"));
    let result_of =
        |set: Option<&Buildset>| set.map_or_else(|| "none".to_owned(), |set| set.result.clone());
    let pull = forge.pull(change.repository, change.number)?;
    let landed = match &pull.state {
        PullState::Merged { commit, .. } => Some(commit.clone()),
        PullState::Open | PullState::Closed => None,
    };
    let trees = match &landed {
        None => TreeComparison::NothingLanded,
        Some(commit) => {
            let landed = forge.tree(change.repository, commit).await?.unwrap_or_default();
            let tested = gate
                .and_then(|set| set.item.merged())
                .map(|merged| merged.tested.tree.0.clone())
                .unwrap_or_default();
            if landed == tested && !landed.is_empty() {
                TreeComparison::Same(landed)
            } else {
                TreeComparison::Differ { tested, landed }
            }
        }
    };
    let results = [check, gate].map(|set| set.map(|set| set.result.as_str()));
    let as_expected = match change.expected {
        Expectation::Merges => {
            matches!(trees, TreeComparison::Same(_)) && results == [Some("SUCCESS"); 2]
        }
        Expectation::IsRejected => {
            landed.is_none()
                && results == [Some("FAILURE"); 2]
                && is_failure_reported(forge, change, [check, gate])?
        }
    };
    let mut builds = 0;
    let mut first_task = [None, None];
    for (slot, set) in first_task.iter_mut().zip([check, gate]) {
        let Some(set) = set else { continue };
        let ids = all_builds(set);
        builds += ids.len();
        *slot = first_task_seconds(ports, set, &ids).await?;
    }
    let as_expected = as_expected && first_task.iter().all(Option::is_some);
    Ok(ChangeOutcome {
        check: result_of(check),
        gate: result_of(gate),
        builds,
        first_task,
        landed,
        trees,
        as_expected,
    })
}

/// Returns whether the forge shows a comment with a line for each failed job in the given buildsets
/// that links to the page of its build and names the task that failed. A missing buildset is
/// skipped, so the result is true if all are missing. False if a buildset has no failed job.
fn is_failure_reported(
    forge: &LocalForge,
    change: &DemoChange,
    sets: [Option<&Buildset>; 2],
) -> anyhow::Result<bool> {
    let comments = forge.comments(change.repository, change.number)?;
    Ok(sets.into_iter().flatten().all(|set| {
        let builds = set.item.jobs.iter().filter_map(|job| match &job.status {
            JobStatus::Ended { result, .. } if !result.passed() => job.build.as_ref(),
            _ => None,
        });
        let mut builds = builds.peekable();
        builds.peek().is_some()
            && builds.all(|build| {
                let page = format!("/build/{build})");
                let mut lines = comments.iter().flat_map(|comment| comment.body.lines());
                lines.any(|line| line.contains(&page) && line.contains("Task \""))
            })
    }))
}

/// Returns whether the final gate builds of the second change in `changes` ran on top of the first
/// one, its dependency. False if the second change has no such builds, or there is no second
/// change. An error if the second change was not in the gate.
async fn was_tested_on_top(
    ports: &Ports,
    changes: &[DemoChange],
    sets: &[Buildset],
) -> anyhow::Result<bool> {
    let [needed, needing, ..] = changes else { return Ok(false) };
    let set = in_gate(needing, sets).context("the second change was not in the gate")?;
    let counted: Vec<_> = set.item.jobs.iter().filter_map(|job| job.build.clone()).collect();
    for build in &counted {
        if !ran_on_top_of(ports, build, needed).await? {
            return Ok(false);
        }
    }
    Ok(!counted.is_empty())
}

/// Returns whether the last change in `changes` had gate builds on top of the rejected change and
/// other gate builds without it, and its final builds all ran without the rejected change. False if
/// no change is expected to be rejected. An error if the last change was not in the gate.
async fn was_retested(
    ports: &Ports,
    changes: &[DemoChange],
    sets: &[Buildset],
) -> anyhow::Result<bool> {
    let Some(thrown_out) = changes.iter().find(|change| change.expected == Expectation::IsRejected)
    else {
        return Ok(false);
    };
    let behind = changes.last().context("the scenario has no changes")?;
    let set = in_gate(behind, sets).context("the last change was not in the gate")?;
    let last: Vec<_> = set.item.jobs.iter().filter_map(|job| job.build.clone()).collect();
    let (mut with, mut without) = (0, 0);
    for id in all_builds(set) {
        let is_behind = ran_on_top_of(ports, &id, thrown_out).await?;
        if last.contains(&id) && is_behind {
            return Ok(false);
        }
        *(if is_behind { &mut with } else { &mut without }) += 1;
    }
    Ok(with > 0 && without > 0)
}

/// Returns whether the state that a build tested contains a change. This is also true for the
/// change that the build is for. An error if the order of the build or the state is not stored.
async fn ran_on_top_of(
    ports: &Ports,
    build: &BuildId,
    change: &DemoChange,
) -> anyhow::Result<bool> {
    let order = get(ports, &build::order_key(build))
        .await?
        .context("could not find the order of a build")?;
    let state = ports
        .objects
        .get(&decode::<Order>(&order)?.speculation)
        .await?
        .context("could not find a tested state")?;
    let state: Speculation = serde_json::from_slice(&state.bytes)?;
    Ok(state.changes.iter().any(|ahead| is_change(&ahead.change.key, change)))
}

/// Returns the first buildset of a change in the pipeline `gate`, which is the newest one if `sets`
/// has the newest first. `None` if there is none.
fn in_gate<'a>(change: &DemoChange, sets: &'a [Buildset]) -> Option<&'a Buildset> {
    sets.iter().find(|set| {
        set.queue.pipeline.as_str() == "gate" && is_change(&set.item.candidate.change.key, change)
    })
}

/// Returns whether a key names a change of the scenario: its repository and number. The revision is
/// ignored.
fn is_change(key: &ChangeKey, change: &DemoChange) -> bool {
    key.project.name() == change.repository && key.number() == Some(change.number)
}

/// Returns the ids of all builds of a buildset, each once, also of stopped and retried ones.
fn all_builds(set: &Buildset) -> Vec<BuildId> {
    let mut ids = set.item.builds.clone();
    ids.extend(
        set.item
            .jobs
            .iter()
            .filter_map(|job| job.build.clone())
            .filter(|id| !set.item.builds.contains(id)),
    );
    ids
}

/// Returns the seconds from the receipt of the delivery that enqueued an item to the first Ansible
/// task in the logs of the builds `ids`. `None` if no task ran, or the delivery is no longer
/// stored. Builds without a log are skipped.
async fn first_task_seconds(
    ports: &Ports,
    set: &Buildset,
    ids: &[BuildId],
) -> anyhow::Result<Option<f64>> {
    let event = get(ports, &delivery::key(&DeliveryId::from(set.item.event_id.as_str()))).await?;
    let Some(event) = event else { return Ok(None) };
    let received_at = decode::<DeliveryRecord>(&event)?.received_at;
    let mut first: Option<Timestamp> = None;
    for id in ids {
        // A build that was stopped before it started has no log.
        let logs = BuildLogs { tenant: &set.queue.tenant, build: id };
        let Some(log) = logs.read_file(ports, LOG).await? else { continue };
        first = [first, first_task(&String::from_utf8_lossy(&log))].into_iter().flatten().min();
    }
    Ok(first.map(|first| first.since(received_at) as f64 / 1_000.0))
}

/// Returns the time of the first Ansible task in a log, whose times are in UTC. `None` if there is
/// no task, or its line has no readable time.
fn first_task(log: &str) -> Option<Timestamp> {
    let line = log.lines().find(|line| line.contains("| TASK ["))?;
    let began_at: jiff::civil::DateTime = line.split_once(" |")?.0.parse().ok()?;
    let began_at = began_at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    Some(Timestamp(u64::try_from(began_at.as_millisecond()).ok()?))
}

/// Returns the letters of the merged changes in merge order, as in `A, B, D`. Changes that are not
/// of the scenario are left out.
fn landing_order(sets: &[Buildset], changes: &[DemoChange]) -> String {
    let letter = |set: &Buildset| {
        let key = &set.item.candidate.change.key;
        changes.iter().find(|change| is_change(key, change)).map(|change| change.letter)
    };
    audit::landed(sets)
        .into_iter()
        .filter_map(letter)
        .map(String::from)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Waits up to 20 seconds until every webhook of the three sample repositories was answered with
/// 202 and its delivery is in a final state. Returns a line for each webhook that still is not;
/// empty if all are.
async fn wait_for_webhooks(ports: &Ports, forge: &LocalForge) -> anyhow::Result<Vec<String>> {
    let started = Instant::now();
    loop {
        let (mut open, mut sent) = (Vec::new(), Vec::new());
        for repository in [CONFIG, ONE, TWO] {
            for one in forge.deliveries(repository)? {
                let action = one.action.as_deref().unwrap_or_default();
                let what = format!("{repository}: {} {action} ({})", one.event, one.guid);
                match one.answered {
                    Some(202) => sent.push(SentWebhook { what, guid: one.guid }),
                    other => open.push(format!("{what} was answered {other:?}")),
                }
            }
        }
        open.extend(audit::unhandled_webhooks(ports, &sent).await?);
        if open.is_empty() || started.elapsed().as_secs() > DELIVERIES_SECONDS {
            return Ok(open);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Returns a line for each inbox message, item, build and node request that has not ended, without
/// unreadable ones, as [`audit::still_open`] does. Waits up to 20 seconds until there are none.
async fn still_open(ports: &Ports) -> anyhow::Result<Vec<String>> {
    let started = Instant::now();
    loop {
        let open = audit::still_open(ports).await?;
        if open.is_empty() || started.elapsed().as_secs() > DELIVERIES_SECONDS {
            return Ok(open);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Prints the costs of a run. `report`, `builds` and `session_writes` (of executors) are totals;
/// `changes` and `minutes` are what they are divided by. For each change, prints the calls and
/// dollars of functions, executor and event sources, without background work and session writes;
/// then the EC2 calls. `builds` is printed undivided. For each minute, prints those of background
/// work (polls, sweeps), of session writes and of monitoring.
fn print_costs(
    report: &MeterReport,
    changes: usize,
    builds: usize,
    session_writes: u64,
    minutes: f64,
) {
    let (work, idle) = (report.total(is_work), report.total(is_idle));
    let monitoring = report.total(is_monitoring);
    let per = |total: f64| total / changes.max(1) as f64;
    // A renewal of an executor's session is one small write.
    let renewing = session_writes as f64 * DYNAMODB_WRITE_UNIT;
    let calls = |name: &str| report.total(|row| is_work(row) && row.service == name).calls;
    print_progress!(
        "  AWS calls per change, check and gate together: {:.0} (DynamoDB {:.0}, S3 {:.0}, SQS {:.0}, KMS {:.0}), ${:.5}; {builds} builds in all",
        per(work.calls.saturating_sub(session_writes) as f64),
        per(calls("dynamodb").saturating_sub(session_writes) as f64),
        per(calls("s3") as f64),
        per(calls("sqs") as f64),
        per(calls("kms") as f64),
        per(work.dollars - renewing),
    );
    print_progress!(
        "  EC2 calls per change: {:.0}, free of charge",
        per(report.total(is_ec2).calls as f64)
    );
    print_progress!(
        "  a minute: {:.0} polls and sweeps (${:.5}), {:.0} renewals of the executor's session (${:.5}), \
         {:.0} calls for monitoring (${:.5})",
        idle.calls as f64 / minutes,
        idle.dollars / minutes,
        session_writes as f64 / minutes,
        renewing / minutes,
        monitoring.calls as f64 / minutes,
        monitoring.dollars / minutes
    );
}

/// Returns whether calls are monitoring: those of the API function and of operators.
fn is_monitoring(row: &Row) -> bool {
    matches!(row.principal.as_str(), "api" | "operator")
}

/// Returns whether calls are background work: polls without messages, the timer's queries, and
/// event source calls that exist only on one machine.
fn is_idle(row: &Row) -> bool {
    matches!(row.purpose, Purpose::Poll | Purpose::EventSourceHiding)
        || (row.principal == "timer" && row.operation == "Query")
}

/// Returns whether calls count as the cost of changes: neither monitoring nor background work nor
/// EC2 calls. Renewals of sessions are among them.
fn is_work(row: &Row) -> bool {
    !is_monitoring(row) && !is_idle(row) && !is_ec2(row)
}

/// Returns whether calls are EC2 calls, which are free of charge.
fn is_ec2(row: &Row) -> bool {
    row.service == "ec2"
}

/// Returns how often executors have written their sessions since they started: the sum of the
/// revisions of the 20 newest session records of each list. The first write of each is included.
async fn session_writes(ports: &Ports) -> anyhow::Result<u64> {
    let mut keys = ports.records.find(OPEN_SESSIONS, None, 20).await?;
    keys.extend(ports.records.find(ENDED_SESSIONS, None, 20).await?);
    let records = ports.records.get(&keys).await?;
    Ok(records.iter().flatten().map(|record| record.revision).sum())
}
