//! Compares the end with what had to come out, and prints the table. Everything is read anew: from
//! the records with an operator's rights, from the forge's repositories, from the meter.

use super::story::Change;
use super::teller::Teller;
use crate::local::ledger::{self, Sent};
use crate::local::{CONFIG, Local, ONE, TWO, write_calls};
use crate::say::tell;
use anyhow::Context as _;
use sluice_emulator::data::prices::DYNAMODB_WRITE_UNIT;
use sluice_emulator::data::{Meter, Purpose, Report, Row};
use sluice_gate::JobStatus;
use sluice_local_forge::{Forge, PullState};
use sluice_model::build::{Order, Speculation};
use sluice_model::change::ChangeKey;
use sluice_model::{BuildId, DeliveryId, Timestamp};
use sluice_records::build;
use sluice_records::codec::{decode, get};
use sluice_records::delivery::{self, Delivery};
use sluice_records::logs;
use sluice_records::report::Buildset;
use sluice_runtime::Ports;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What has to become of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expectation {
    /// It lands.
    Lands,
    /// It does not, and is told why.
    IsThrownOut,
}

/// Seconds that the last deliveries, builds and requests may still take to end.
const DELIVERIES_SECONDS: u64 = 20;

/// What came of one change.
struct Outcome {
    check: String,
    gate: String,
    builds: usize,
    /// Seconds from the webhook to the first playbook, for check and gate.
    first_task: [Option<f64>; 2],
    landed: Option<String>,
    trees: Trees,
    as_expected: bool,
}

#[derive(PartialEq)]
enum Trees {
    Same(String),
    Differ { tested: String, landed: String },
    NothingLanded,
}

/// Prints the table and returns whether all of it is as it had to be.
pub(super) async fn show(
    local: &Local,
    forge: &Forge,
    changes: &[Change],
    teller: &Teller,
) -> anyhow::Result<ExitCode> {
    let report = local.meter().map(Meter::snapshot).unwrap_or_default();
    let unaccounted = unaccounted(local.operator(), forge).await?;
    let meter = write_calls(local.data(), &report)?;
    let sets = ledger::buildsets(local.operator()).await?;
    teller.title("What came of it");
    tell!(
        "  change                                   check    gate     builds  event to first task  landed    tested tree = landed tree"
    );
    let mut good = true;
    let mut builds = 0;
    for change in changes {
        let outcome = outcome(local.operator(), forge, change, &sets).await?;
        builds += outcome.builds;
        good &= outcome.as_expected;
        print_row(change, &outcome);
    }
    let order = landing_order(&sets, changes);
    tell!("\n  landed in the order {order}");
    good &= order == "A, B, D";
    let on_top = tested_on_top(local.operator(), changes, &sets).await?;
    tell!(
        "  gate tested B on top of A, which it depends on: {}",
        if on_top { "yes" } else { "NO" }
    );
    good &= on_top;
    let retested = retested(local.operator(), changes, &sets).await?;
    tell!(
        "  gate tested D behind C, and again without it: {}",
        if retested { "yes" } else { "NO" }
    );
    good &= retested;
    tell!("  unaccounted deliveries: {}", unaccounted.len());
    unaccounted.iter().for_each(|one| tell!("    {one}"));
    good &= unaccounted.is_empty();
    let open = still_open(local.operator()).await?;
    tell!("  items, builds and requests without an end: {}", open.len());
    open.iter().for_each(|one| tell!("    {one}"));
    good &= open.is_empty();
    let ignored = local.ignored();
    tell!("  parts of the template that were ignored: {}", ignored.len());
    good &= ignored.is_empty();
    local.absent().for_each(|what| tell!("    not on one machine: {what}"));
    print_costs(
        &report,
        changes.len(),
        builds,
        renewals(local.operator()).await?,
        teller.seconds() / 60.0,
    );
    tell!("  every kind of call, by function: {}", meter.display());
    tell!("  {:.0} s in all\n", teller.seconds());
    tell!(
        "{}",
        if good {
            "Everything came out as it had to."
        } else {
            "NOT EVERYTHING CAME OUT AS IT HAD TO: see the lines above."
        }
    );
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_row(change: &Change, outcome: &Outcome) {
    let name =
        format!("{} {}#{} {}", change.letter, change.repository, change.number, change.title);
    let seconds =
        |at: Option<f64>| at.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
    let first = format!("{} / {}", seconds(outcome.first_task[0]), seconds(outcome.first_task[1]));
    let landed = outcome.landed.as_deref().map_or("-", |commit| commit.get(..7).unwrap_or(commit));
    let trees = match &outcome.trees {
        Trees::Same(tree) => format!("yes, {}", tree.get(..7).unwrap_or(tree)),
        Trees::Differ { tested, landed } => format!("NO: {tested} was tested, {landed} landed"),
        Trees::NothingLanded => "nothing landed".to_owned(),
    };
    let wrong = if outcome.as_expected { "" } else { "   <- NOT AS EXPECTED" };
    tell!(
        "  {:<40} {:<8} {:<8} {:>6}  {first:>19}  {landed:<8}  {trees}{wrong}",
        name.chars().take(40).collect::<String>(),
        outcome.check,
        outcome.gate,
        outcome.builds
    );
}

async fn outcome(
    ports: &Ports,
    forge: &Forge,
    change: &Change,
    sets: &[Buildset],
) -> anyhow::Result<Outcome> {
    let of = |pipeline: &str| {
        sets.iter().find(|set| {
            is(&set.item.candidate.change.key, change) && set.queue.pipeline.as_str() == pipeline
        })
    };
    let (check, gate) = (of("check"), of("gate"));
    let word =
        |set: Option<&Buildset>| set.map_or_else(|| "none".to_owned(), |set| set.result.clone());
    let pull = forge.pull(change.repository, change.number)?;
    let landed = match &pull.state {
        PullState::Merged { commit, .. } => Some(commit.clone()),
        PullState::Open | PullState::Closed => None,
    };
    let trees = match &landed {
        None => Trees::NothingLanded,
        Some(commit) => {
            let landed = forge.tree(change.repository, commit).await?.unwrap_or_default();
            let tested = gate
                .and_then(|set| set.item.merged())
                .map(|merged| merged.tested.tree.0.clone())
                .unwrap_or_default();
            if landed == tested && !landed.is_empty() {
                Trees::Same(landed)
            } else {
                Trees::Differ { tested, landed }
            }
        }
    };
    let results = [check, gate].map(|set| set.map(|set| set.result.as_str()));
    let as_expected = match change.expected {
        Expectation::Lands => matches!(trees, Trees::Same(_)) && results == [Some("SUCCESS"); 2],
        Expectation::IsThrownOut => {
            landed.is_none()
                && results == [Some("FAILURE"); 2]
                && is_told_why(forge, change, [check, gate])?
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
    Ok(Outcome {
        check: word(check),
        gate: word(gate),
        builds,
        first_task,
        landed,
        trees,
        as_expected,
    })
}

/// Returns whether the forge shows, for each pipeline that a change failed in, a comment that names
/// a job of it that failed, and where its log is.
fn is_told_why(
    forge: &Forge,
    change: &Change,
    sets: [Option<&Buildset>; 2],
) -> anyhow::Result<bool> {
    let comments = forge.comments(change.repository, change.number)?;
    Ok(sets.into_iter().flatten().all(|set| {
        let logs = set.item.jobs.iter().filter_map(|job| match &job.status {
            JobStatus::Ended { result, log_url: Some(url), .. } if !result.passed() => Some(url),
            _ => None,
        });
        let mut logs = logs.peekable();
        logs.peek().is_some()
            && logs.all(|url| comments.iter().any(|comment| comment.body.contains(url.as_str())))
    }))
}

/// Returns whether the builds of the second change's gate that counted ran on top of the first,
/// which it depends on.
async fn tested_on_top(
    ports: &Ports,
    changes: &[Change],
    sets: &[Buildset],
) -> anyhow::Result<bool> {
    let [needed, needing, ..] = changes else { return Ok(false) };
    let set = in_gate(needing, sets).context("the second change was not in the gate")?;
    let counted: Vec<_> = set.item.jobs.iter().filter_map(|job| job.build.clone()).collect();
    for build in &counted {
        if !ran_behind(ports, build, needed).await? {
            return Ok(false);
        }
    }
    Ok(!counted.is_empty())
}

/// Returns whether builds of the last change's gate ran behind the one that was thrown out, and the
/// ones that counted did not.
async fn retested(ports: &Ports, changes: &[Change], sets: &[Buildset]) -> anyhow::Result<bool> {
    let Some(thrown_out) =
        changes.iter().find(|change| change.expected == Expectation::IsThrownOut)
    else {
        return Ok(false);
    };
    let behind = changes.last().context("the story has changes")?;
    let set = in_gate(behind, sets).context("the last change was not in the gate")?;
    let last: Vec<_> = set.item.jobs.iter().filter_map(|job| job.build.clone()).collect();
    let (mut with, mut without) = (0, 0);
    for id in all_builds(set) {
        let is_behind = ran_behind(ports, &id, thrown_out).await?;
        if last.contains(&id) && is_behind {
            return Ok(false);
        }
        *(if is_behind { &mut with } else { &mut without }) += 1;
    }
    Ok(with > 0 && without > 0)
}

/// Returns whether the state that a build tested has this change in it.
async fn ran_behind(ports: &Ports, build: &BuildId, change: &Change) -> anyhow::Result<bool> {
    let order = get(ports, &build::order_key(build)).await?.context("a build has no order")?;
    let state = ports
        .objects
        .get(&decode::<Order>(&order)?.speculation)
        .await?
        .context("a tested state is gone")?;
    let state: Speculation = serde_json::from_slice(&state.bytes)?;
    Ok(state.changes.iter().any(|ahead| is(&ahead.change.key, change)))
}

fn in_gate<'a>(change: &Change, sets: &'a [Buildset]) -> Option<&'a Buildset> {
    sets.iter().find(|set| {
        set.queue.pipeline.as_str() == "gate" && is(&set.item.candidate.change.key, change)
    })
}

fn is(key: &ChangeKey, change: &Change) -> bool {
    key.project.name() == change.repository && key.number() == Some(change.number)
}

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

/// Returns the seconds from the delivery that enqueued an item to the first task that Ansible began
/// for it, as the logs of its builds tell it.
async fn first_task_seconds(
    ports: &Ports,
    set: &Buildset,
    ids: &[BuildId],
) -> anyhow::Result<Option<f64>> {
    let event = get(ports, &delivery::key(&DeliveryId::from(set.item.event_id.as_str()))).await?;
    let Some(event) = event else { return Ok(None) };
    let received_at = decode::<Delivery>(&event)?.received_at;
    let mut first: Option<Timestamp> = None;
    for id in ids {
        // A build that was stopped before it began has none.
        let Some(log) = logs::whole(ports, id, logs::LOG).await? else { continue };
        first = [first, first_task(&String::from_utf8_lossy(&log))].into_iter().flatten().min();
    }
    Ok(first.map(|first| first.since(received_at) as f64 / 1_000.0))
}

/// Returns when a log's first task began.
fn first_task(log: &str) -> Option<Timestamp> {
    let line = log.lines().find(|line| line.contains("| TASK ["))?;
    let began_at: jiff::civil::DateTime = line.split_once(" |")?.0.parse().ok()?;
    let began_at = began_at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    Some(Timestamp(u64::try_from(began_at.as_millisecond()).ok()?))
}

/// Returns the letters of what landed, in that order.
fn landing_order(sets: &[Buildset], changes: &[Change]) -> String {
    let letter = |set: &Buildset| {
        let key = &set.item.candidate.change.key;
        changes.iter().find(|change| is(key, change)).map(|change| change.letter)
    };
    ledger::landed(sets)
        .into_iter()
        .filter_map(letter)
        .map(String::from)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the webhooks that the forge sent and that have no end here: not answered with 202, not
/// stored, or not final.
async fn unaccounted(ports: &Ports, forge: &Forge) -> anyhow::Result<Vec<String>> {
    let begun = Instant::now();
    loop {
        let (mut open, mut sent) = (Vec::new(), Vec::new());
        for repository in [CONFIG, ONE, TWO] {
            for one in forge.deliveries(repository)? {
                let action = one.action.as_deref().unwrap_or_default();
                let what = format!("{repository}: {} {action} ({})", one.event, one.guid);
                match one.answered {
                    Some(202) => sent.push(Sent { what, guid: one.guid }),
                    other => open.push(format!("{what} was answered {other:?}")),
                }
            }
        }
        open.extend(ledger::unaccounted(ports, &sent).await?);
        if open.is_empty() || begun.elapsed().as_secs() > DELIVERIES_SECONDS {
            return Ok(open);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Returns what began and has no end once there was time for it.
async fn still_open(ports: &Ports) -> anyhow::Result<Vec<String>> {
    let begun = Instant::now();
    loop {
        let open = ledger::still_open(ports).await?;
        if open.is_empty() || begun.elapsed().as_secs() > DELIVERIES_SECONDS {
            return Ok(open);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Says what the changes cost: what functions and executor called, and what event sources did with
/// messages for them. Apart: what goes on without any change (polls, sweeps, sessions), and what
/// watching costs.
fn print_costs(report: &Report, changes: usize, builds: usize, renewals: u64, minutes: f64) {
    let (work, idle) = (report.total(is_work), report.total(is_idle));
    let watching = report.total(is_watching);
    let per = |total: f64| total / changes.max(1) as f64;
    // Renewals of a session are one small write each, made by the executor beside its work.
    let renewing = renewals as f64 * DYNAMODB_WRITE_UNIT;
    let calls = |name: &str| report.total(|row| is_work(row) && row.service == name).calls;
    tell!(
        "  AWS calls per change, check and gate together: {:.0} (DynamoDB {:.0}, S3 {:.0}, SQS {:.0}, KMS {:.0}), ${:.5}; {builds} builds in all",
        per(work.calls.saturating_sub(renewals) as f64),
        per(calls("dynamodb").saturating_sub(renewals) as f64),
        per(calls("s3") as f64),
        per(calls("sqs") as f64),
        per(calls("kms") as f64),
        per(work.dollars - renewing),
    );
    tell!(
        "  apart from that, EC2 calls per change: {:.0}, which cost nothing",
        per(report.total(is_of_nodes).calls as f64)
    );
    tell!(
        "  a minute: {:.0} polls and sweeps (${:.5}), {:.0} renewals of the executor's session (${:.5}), \
         {:.0} calls for watching (${:.5})",
        idle.calls as f64 / minutes,
        idle.dollars / minutes,
        renewals as f64 / minutes,
        renewing / minutes,
        watching.calls as f64 / minutes,
        watching.dollars / minutes
    );
}

fn is_watching(row: &Row) -> bool {
    matches!(row.principal.as_str(), "api" | "operator")
}

/// Looks for messages that found none, sweeps, and what only the event sources of one machine do.
fn is_idle(row: &Row) -> bool {
    matches!(row.purpose, Purpose::Poll | Purpose::EventSourceHiding)
        || (row.principal == "timer" && row.operation == "Query")
}

fn is_work(row: &Row) -> bool {
    !is_watching(row) && !is_idle(row) && !is_of_nodes(row)
}

/// EC2's calls cost nothing; what its instances cost is no matter of calls.
fn is_of_nodes(row: &Row) -> bool {
    row.service == "ec2"
}

/// Returns how often executors renewed their sessions: each write raises a record's revision.
async fn renewals(ports: &Ports) -> anyhow::Result<u64> {
    let keys = ports.records.find("sessions", None, 20).await?;
    let records = ports.records.get(&keys).await?;
    Ok(records.iter().flatten().map(|record| record.revision).sum())
}
