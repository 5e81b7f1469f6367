//! The behaviour scenarios, one test per row of the requirements, each on a complete Sluice in
//! memory: what users of the gate rely on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod branch_moves;
mod builds_without_run;
mod bundles;
mod bundles_in_check;
mod change_detection;
mod commits;
mod configuration;
mod configuration_errors;
mod deferred_events;
mod dependencies;
mod environment;
mod filters;
mod gating;
mod gerrit;
mod graph;
mod halted_cells;
mod images;
mod included_files;
mod job_variants;
mod known_weaknesses;
mod landing;
mod limits;
mod mail_and_mqtt;
mod missed_closings;
mod missed_events;
mod neighbours;
mod nodes;
mod once;
mod operator_commands;
mod operator_enqueues;
mod plain_git;
mod ref_updates;
mod reporters;
mod reports;
mod secrets;
mod self_authored_events;
mod standard_jobs;
mod stops;
mod system_events;
mod tenants;
mod timers;
mod trees;
mod unreadable_records;
mod webhooks;
mod zuul_trigger;

use bytes::Bytes;
use http::HeaderMap;
use sluice_forge::ForgeSecret;
use sluice_forge::webhook::sign;
use sluice_memory::poll_once;
use sluice_model::ProjectName;
use sluice_model::build::{BuildResult, Order, Phase, Run};
use sluice_model::change::{ChangeKey, ChangeStatus};
use sluice_model::event::EventKind;
use sluice_model::git::BranchKey;
use sluice_model::job::{FrozenJob, JobGraph};
use sluice_records::codec::decode;
use sluice_scenarios::Site;
use sluice_scenarios::repos::Tree;
use sluice_scenarios::sample::approve;
use sluice_scenarios::site::WEBHOOK_SECRET;
use standard_jobs::{report_lines, results};
use std::collections::BTreeMap;

const MAIN: &str = "
- tenant:
    name: demo
    source:
      github:
        config-projects: [org/config]
        untrusted-projects: [org/one, org/two, org/bare, org/noop, org/gone]
";

const CONFIG: &str = r"
- pipeline:
    name: check
    manager: independent
    trigger:
      github: [{event: pull_request, action: [opened, changed, reopened]}]
    success: {github: {status: success}}
    failure: {github: {status: failure}}
- pipeline:
    name: gate
    manager: dependent
    post-review: true
    require:
      github:
        open: true
        review: [{type: approved, permission: write}]
    trigger:
      github: [{event: pull_request_review, action: submitted, state: approved}]
    start: {github: {status: pending, comment: false}}
    success: {github: {status: success, merge: true}}
    failure: {github: {status: failure}}
    dequeue: {github: {comment: true}}
- job: {name: base, parent: null}
- job: {name: unit, run: playbooks/unit.yaml}
- job: {name: other, run: playbooks/other.yaml}
- job: {name: lint, run: playbooks/lint.yaml, voting: false}
- queue: {name: integrated}
";

const PROJECT: &str = "
- project:
    queue: integrated
    check: {jobs: [unit]}
    gate: {jobs: [unit, other, lint]}
";

const NOOP: &str = "
- project:
    check: {jobs: [noop]}
    gate: {jobs: [noop]}
";

/// Fails a job if some file contains `broken` and its name. Returns a retry for `unit` if some file
/// contains `retry`.
fn judge(job: &str, _: u32, files: &BTreeMap<String, Tree>) -> BuildResult {
    let says =
        |word: &str| files.values().flat_map(BTreeMap::values).any(|text| text.contains(word));
    match job {
        _ if says(&format!("broken {job}")) => BuildResult::Failure,
        "unit" if says("retry") => BuildResult::Retry,
        _ => BuildResult::Success,
    }
}

fn site() -> Site {
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/one", project),
        ("org/two", project),
        ("org/bare", &[("README", "nothing yet")]),
        ("org/noop", &[(".zuul.yaml", NOOP)]),
        ("org/outside", &[("README", "not of the tenant")]),
    ];
    Site::new(7, MAIN, repositories, judge)
}

/// Returns a site with this central configuration and two projects with this project configuration.
fn site_of(config: &str, project: &str) -> Site {
    let project: &[(&str, &str)] = &[(".zuul.yaml", project), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", config)]), ("org/one", project), ("org/two", project)];
    Site::new(7, MAIN, repositories, judge)
}

/// Returns the jobs and the queue of [`CONFIG`], for a configuration that has other pipelines.
fn jobs() -> &'static str {
    &CONFIG[CONFIG.find("- job:").expect("the jobs follow the pipelines")..]
}

/// Returns the event of an opened change.
fn opened(number: u64) -> EventKind {
    EventKind::Change {
        number,
        event: "pull_request".to_owned(),
        action: "opened".to_owned(),
        comment: None,
        label: None,
        state: None,
        status: None,
    }
}

fn propose(site: &Site, number: u64, edits: &[(&str, &str)]) -> ChangeKey {
    site.forge.propose("org/one", number, "a change", "", edits)
}

fn merged(site: &Site) -> Vec<u64> {
    site.forge.merges().iter().filter_map(|(key, _)| key.number()).collect()
}

fn gate_builds(site: &Site, job: &str) -> Vec<String> {
    let prefix = format!("gate {job} ");
    site.builds()
        .into_iter()
        .filter_map(|build| build.strip_prefix(&prefix).map(str::to_owned))
        .collect()
}

fn comments(site: &Site, change: &ChangeKey) -> String {
    let shown = site.forge.change(change).unwrap();
    shown.comments.values().map(|(text, _)| text.clone()).collect::<Vec<_>>().join("\n---\n")
}

/// Returns a report with the names of its links instead of the links.
fn unlinked(report: &str) -> String {
    let mut text = String::new();
    for (nth, part) in report.split("](").enumerate() {
        match part.split_once(')').filter(|_| nth > 0) {
            Some((_, after)) => text.push_str(&after.replace("- [", "- ")),
            None => text.push_str(&part.replace("- [", "- ")),
        }
    }
    text
}

/// Returns the order of the first build of a job of a change, and the frozen job.
fn ordered(site: &Site, job: &str, change: u64) -> (Order, FrozenJob) {
    let records = site.world.records();
    let orders = records
        .iter()
        .filter(|record| record.key.partition.starts_with("build#") && record.key.sort == "order");
    let mut orders = orders.map(|record| decode::<Order>(record).unwrap());
    let is_meant =
        |order: &Order| order.job.as_str() == job && order.change.key.number() == Some(change);
    let order = orders
        .find(is_meant)
        .unwrap_or_else(|| panic!("{job} {change} was not ordered: {:?}", site.builds()));
    let graph = poll_once(site.ports().objects.get(&order.graph))
        .unwrap()
        .unwrap()
        .expect("the graph is stored");
    let graph: JobGraph = serde_json::from_slice(&graph.bytes).unwrap();
    let frozen = graph
        .jobs
        .into_iter()
        .find(|frozen| frozen.name == order.job)
        .expect("the graph contains the job");
    (order, frozen)
}

fn buildsets(site: &Site, changes: &[&ChangeKey]) -> Vec<String> {
    let sets = site.ending(&[], changes).buildsets;
    sets.into_iter()
        .filter_map(|set| {
            set.split_once(" gate ").map(|(change, result)| format!("{change} {result}"))
        })
        .collect()
}

/// G01, J14
#[test]
fn an_approved_change_is_tested_and_merged_and_its_report_names_the_buildset() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "broken lint")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    let report = comments(&site, &a);
    assert!(
        report.contains("Build succeeded.")
            && report.contains("https://sluice.test/t/demo/buildset/"),
        "{report}"
    );
    assert!(
        unlinked(&report).contains("lint : FAILURE") && report.contains("(non-voting)"),
        "{report}"
    );
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// G02
#[test]
fn three_changes_are_tested_on_top_of_each_other_and_merge_in_order() {
    let mut site = site();
    let changes: Vec<ChangeKey> = [(1, "a"), (2, "b"), (3, "c")]
        .map(|(number, file)| propose(&site, number, &[(file, "x")]))
        .into();
    approve(&mut site, &changes.iter().collect::<Vec<_>>());
    assert_eq!(gate_builds(&site, "unit"), ["1", "1 2", "1 2 3"]);
    assert_eq!(merged(&site), [1, 2, 3]);
}

/// G05, G08
#[test]
fn after_two_failures_of_the_first_change_the_others_are_retested_once_without_it() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "broken unit, broken other")]);
    let b = propose(&site, 2, &[("b", "x")]);
    let c = propose(&site, 3, &[("c", "x")]);
    approve(&mut site, &[&a, &b, &c]);
    // How far B and C got behind A does not matter; without A they are tested exactly once.
    let without: Vec<String> =
        gate_builds(&site, "unit").into_iter().filter(|changes| !changes.contains('1')).collect();
    assert_eq!(without, ["2", "2 3"]);
    assert_eq!(merged(&site), [2, 3]);
    assert_eq!(
        buildsets(&site, &[&a]),
        ["org/one#1 FAILURE", "org/one#2 SUCCESS", "org/one#3 SUCCESS"]
    );
}

/// Approves a change, and runs until all its gate jobs are running and their start is reported.
fn start_gate_builds(site: &mut Site, change: &ChangeKey) {
    site.run();
    site.held.extend(["unit", "other", "lint"].map(str::to_owned));
    site.forge.approve(change);
    site.run_until(|site| site.running().len() == 3);
    site.run_now();
}

/// The results of the stopped builds of such a change.
const STOPPED: [&str; 3] = ["lint 1 ABORTED", "other 1 ABORTED", "unit 1 ABORTED"];

/// G12: the builds are stopped, and the report names the missing requirement.
#[test]
fn a_dismissed_approval_dequeues_the_change_with_the_reason() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    start_gate_builds(&mut site, &a);
    site.forge.dismiss(&a);
    site.take_in();
    site.run();
    assert_eq!(results(&site, "gate"), STOPPED);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 DEQUEUED"]);
    let lines = report_lines(&site, "gate", &a);
    let why = "This change is unable to merge due to a missing merge requirement";
    assert!(lines.len() == 2 && lines[0] == "start" && lines[1].starts_with(why), "{lines:?}");
    assert_eq!(merged(&site), Vec::<u64>::new());
}

/// G13: the builds are stopped. Without a `dequeue` reporter there is no comment; only the status that
/// the start left pending is ended.
#[test]
fn a_closed_change_is_dequeued_and_does_not_merge() {
    let mut site =
        site_of(&CONFIG.replace("    dequeue: {github: {comment: true}}\n", ""), PROJECT);
    let a = propose(&site, 1, &[("a", "x")]);
    start_gate_builds(&mut site, &a);
    site.forge.close(&a);
    site.take_in();
    site.run();
    assert_eq!(results(&site, "gate"), STOPPED);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 DEQUEUED"]);
    assert_eq!(report_lines(&site, "gate", &a), ["start", ""]);
    assert!(bundles::statuses(&site, &a).contains(&"demo/gate failure".to_owned()));
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// G15
#[test]
fn a_merge_that_the_forge_refuses_is_reported_as_merge_failure() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.forge.refuse_merges("a review by an owner is missing");
    approve(&mut site, &[&a]);
    assert_eq!(buildsets(&site, &[&a]), ["org/one#1 MERGE_FAILURE"]);
    assert!(
        comments(&site, &a).contains("a review by an owner is missing"),
        "{}",
        comments(&site, &a)
    );
}

/// S02
#[test]
fn a_change_in_conflict_with_a_predecessor_is_reported_and_excluded_behind_it() {
    let mut site = site();
    let a = propose(&site, 1, &[("shared", "a")]);
    let b = propose(&site, 2, &[("shared", "b")]);
    let c = propose(&site, 3, &[("c", "c")]);
    approve(&mut site, &[&a, &b, &c]);
    assert_eq!(gate_builds(&site, "unit"), ["1", "1 3"]);
    assert_eq!(merged(&site), [1, 3]);
    assert!(comments(&site, &b).contains("Merge Failed."));
    assert_eq!(site.forge.change(&b).unwrap().facts.status, ChangeStatus::Open);
}

/// D01, D02, D06
#[test]
fn a_change_waits_for_its_dependency_and_is_enqueued_behind_it() {
    let mut site = site();
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        &[("a", "x")],
    );
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), Vec::<u64>::new());
    assert!(site.builds().contains(&"check unit 2 1".to_owned()), "{:?}", site.builds());
    approve(&mut site, &[&b]);
    assert_eq!(merged(&site), [2, 1]);
    assert_eq!(gate_builds(&site, "unit"), ["2", "2 1"]);
}

/// D08
#[test]
fn a_chain_behind_a_failed_change_reports_the_failed_dependency() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "broken unit")]);
    let b = site.forge.propose(
        "org/one",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        &[("b", "x")],
    );
    let c = site.forge.propose(
        "org/one",
        3,
        "C",
        "Depends-On: https://forge.test/org/one/pull/2",
        &[("c", "x")],
    );
    approve(&mut site, &[&a, &b, &c]);
    assert_eq!(merged(&site), Vec::<u64>::new());
    for behind in [&b, &c] {
        assert!(
            comments(&site, behind).contains("depends on a change that failed to merge"),
            "{}",
            comments(&site, behind)
        );
    }
}

/// J15
#[test]
fn a_project_with_only_noop_merges_without_a_build() {
    let mut site = site();
    let a = site.forge.propose("org/noop", 1, "A", "", &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(site.builds(), Vec::<String>::new());
}

/// J16
#[test]
fn a_job_that_always_retries_ends_as_retry_limit_after_three_attempts() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "retry")]);
    approve(&mut site, &[&a]);
    assert_eq!(gate_builds(&site, "unit"), ["1", "1", "1"]);
    assert!(comments(&site, &a).contains("RETRY_LIMIT"));
    assert_every_third_run_is_the_last(&site);
}

/// Checks the results of the runs, which the API shows: of three attempts the last one has the
/// result of its job.
fn assert_every_third_run_is_the_last(site: &Site) {
    let records = site.world.records();
    let runs = records.iter().filter(|record| record.key.sort == "run");
    let ends = runs.map(|record| match decode::<Run>(record).unwrap().phase {
        Phase::Ended(end) => end.result,
        other => panic!("{other:?}"),
    });
    let ends: Vec<BuildResult> = ends.collect();
    let count = |result| ends.iter().filter(|end| **end == result).count();
    let last = count(BuildResult::RetryLimit);
    assert!(last > 0 && count(BuildResult::Retry) == 2 * last, "{ends:?}");
}

/// J16, Z7.3: an executor that dies takes its builds with it; the third loss is the last.
#[test]
fn a_job_that_is_lost_three_times_ends_as_retry_limit() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    for lost in 1..=3 {
        site.run_until(|site| site.running() == ["unit"]);
        assert_eq!(site.builds().len(), lost, "{:?}", site.builds());
        site.die();
    }
    site.run();
    assert_eq!(site.builds(), ["check unit 1", "check unit 1", "check unit 1"]);
    assert!(comments(&site, &a).contains(") : RETRY_LIMIT"), "{}", comments(&site, &a));
    assert_every_third_run_is_the_last(&site);
}

/// C01
#[test]
fn a_change_is_tested_with_its_own_configuration_which_is_live_after_the_merge() {
    let mut site = site();
    let text = format!(
        "{}\n- job: {{name: fresh, run: playbooks/fresh.yaml}}\n",
        PROJECT.replace("[unit, other, lint]", "[unit, fresh]")
    );
    let a = propose(&site, 1, &[(".zuul.yaml", &text)]);
    approve(&mut site, &[&a]);
    assert_eq!((merged(&site), gate_builds(&site, "fresh")), (vec![1], vec!["1".to_owned()]));
    let b = propose(&site, 2, &[("b", "x")]);
    approve(&mut site, &[&b]);
    assert_eq!(
        (merged(&site), gate_builds(&site, "fresh")),
        (vec![1, 2], vec!["1".to_owned(), "2".to_owned()])
    );
}

/// C02, C05
#[test]
fn a_configuration_error_is_reported_on_the_change_and_does_not_merge() {
    for (wrong, word) in [
        (PROJECT.replace("[unit]", "[nosuch]"), "nosuch"),
        (PROJECT.replace("queue:", "quque:"), "quque"),
    ] {
        let mut site = site();
        let a = propose(&site, 1, &[(".zuul.yaml", &wrong)]);
        approve(&mut site, &[&a]);
        assert_eq!(merged(&site), Vec::<u64>::new());
        assert_eq!(site.builds(), Vec::<String>::new());
        assert!(comments(&site, &a).contains(word), "{}", comments(&site, &a));
    }
}

/// C14: while the change is tested it is in a gate queue that exists only for that time.
#[test]
fn a_change_that_adds_its_project_to_the_gate_goes_through_it() {
    let mut site = site();
    let a = site.forge.propose("org/bare", 1, "A", "", &[(".zuul.yaml", PROJECT)]);
    site.run();
    site.held.insert("unit".to_owned());
    site.forge.approve(&a);
    site.run_until(|site| site.running() == ["unit"]);
    let queues = |site: &Site| {
        let records = site.world.records();
        let listed = records.iter().filter(|record| record.key.partition == "tenant#demo");
        listed.filter(|record| record.key.sort.starts_with("queue#gate/")).count()
    };
    assert_eq!(queues(&site), 1);
    site.held.clear();
    site.run();
    assert_eq!(queues(&site), 0);
    assert_eq!(merged(&site), [1], "{} {:?}", comments(&site, &a), site.builds());
    assert_eq!(gate_builds(&site, "unit"), ["1"]);
    assert_eq!(site.ending(&[], &[&a]).left_over, Vec::<String>::new());
}

/// X07
#[test]
fn a_proposed_job_of_a_config_project_is_never_used_before_it_is_merged() {
    let mut site = site();
    let text = format!("{CONFIG}\n- job: {{name: sneaky, run: playbooks/sneaky.yaml}}\n");
    site.forge.propose("org/config", 1, "A", "", &[("zuul.yaml", &text)]);
    let uses = PROJECT.replace("[unit]", "[sneaky]");
    let b = site.forge.propose(
        "org/one",
        2,
        "B",
        "Depends-On: https://forge.test/org/config/pull/1",
        &[(".zuul.yaml", &uses)],
    );
    site.run();
    assert!(site.builds().iter().all(|build| !build.contains("sneaky")));
    let report = comments(&site, &b);
    assert!(
        report.contains("depends on a change to a config project") && report.contains("sneaky"),
        "{report}"
    );
    let statuses = site.forge.change(&b).unwrap().facts.statuses;
    assert!(
        statuses.iter().all(|status| status.state == "failure") && statuses.len() == 1,
        "{statuses:?}"
    );
}

/// Z6.4: if the merged tree differs from the tested one, nothing else lands.
#[test]
fn a_landing_with_an_untested_tree_halts_its_queue() {
    let mut site = site();
    site.forge.sabotage(BTreeMap::from([("strange".to_owned(), "file".to_owned())]));
    let a = propose(&site, 1, &[("a", "x")]);
    let b = propose(&site, 2, &[("b", "x")]);
    approve(&mut site, &[&a, &b]);
    assert_eq!(merged(&site), [1]);
    let is_halted = site.world.records().into_iter().any(|record| {
        record.key.partition.contains("gate")
            && record.body.contains("until an operator resumes it")
    });
    assert!(is_halted);
}

/// Z6.4
#[test]
fn a_foreign_push_causes_everything_to_be_retested() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    site.forge.approve(&a);
    site.run_until(|site| site.is_building() && !gate_builds(site, "unit").is_empty());
    let main =
        BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: "main".into() };
    site.forge.push_silently(&main, &[("pushed", "x")]);
    site.run();
    assert_eq!(gate_builds(&site, "unit"), ["1", "1"]);
    assert_eq!(merged(&site), [1]);
    let files: Vec<String> = site.forge.files("org/one", "main").into_keys().collect();
    assert_eq!(files, [".zuul.yaml", "a", "pushed", "shared"]);
}

fn headers(body: &[u8], secret: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("x-github-delivery", "by-hand".parse().unwrap());
    headers.insert("x-github-event", "pull_request".parse().unwrap());
    headers.insert("x-hub-signature-256", sign(&ForgeSecret::new(secret), body).parse().unwrap());
    headers
}

/// Z5: a webhook with a wrong signature is refused. An unreadable one is quarantined for operators.
/// Neither stops anything.
#[test]
fn unsigned_and_unreadable_webhooks_have_no_effect() {
    let mut site = site();
    let before = site.world.records().len();
    let body = Bytes::from_static(b"{\"action\": ");
    assert_eq!(site.hand_in(&headers(&body, "not the secret"), &body), 401);
    assert_eq!(site.hand_in(&HeaderMap::new(), &body), 401);
    assert_eq!(site.world.records().len(), before);
    assert_eq!(site.hand_in(&headers(&body, WEBHOOK_SECRET), &body), 202);
    site.run();
    assert!(
        site.world.records().iter().any(|record| record.key.partition.starts_with("quarantine"))
    );
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
}

/// Z5: an event whose webhook is too large to be received is found by the sweep.
#[test]
fn the_change_of_a_webhook_over_six_megabytes_is_found_by_the_sweep() {
    let mut site = site();
    propose(&site, 1, &[("a", "x")]);
    let mut webhook = site.forge.next_webhook().unwrap().body;
    webhook.resize(sluice_webhook::BODY_BYTES_MAX + 1, b' ');
    let body = Bytes::from(webhook);
    assert_eq!(site.hand_in(&headers(&body, WEBHOOK_SECRET), &body), 413);
    site.run();
    assert_eq!(site.builds(), Vec::<String>::new());
    site.sweep();
    assert_eq!(site.builds(), ["check unit 1"]);
}
