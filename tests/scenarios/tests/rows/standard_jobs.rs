//! Rows on the standard jobs: `merge`, and the tests `test1` and `test2` that depend on it. They
//! compare all builds with their results and all reports.

use super::graph::{self, STANDARD, enqueue, labels, needing, running};
use super::{approve, comments, gate_builds, merged, propose, unlinked};
use sluice_gate::{Report, ReportAction, ReportState};
use sluice_memory::poll_once;
use sluice_model::ProjectName;
use sluice_model::build::{Order, Phase, Run, Speculation};
use sluice_model::change::{ChangeKey, ChangeStatus};
use sluice_model::git::BranchKey;
use sluice_model::wakeup::MessageQueue;
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_records::report::Buildset;
use sluice_runtime::record::{Key, Record};
use sluice_scenarios::Site;

/// Returns the builds of a pipeline that executors were asked to run, sorted: job, numbers of the
/// tested changes and result.
///
/// As on its page, a build that was stopped before an executor claimed it is ABORTED. A running
/// build has the result `-`.
pub(super) fn results(site: &Site, pipeline: &str) -> Vec<String> {
    let records = site.world.records();
    let find = |key: &Key| records.iter().find(|record| record.key == *key);
    let is_order =
        |record: &&Record| record.key.partition.starts_with("build#") && record.key.sort == "order";
    let orders = records.iter().filter(is_order).map(|record| decode::<Order>(record).unwrap());
    let of_pipeline =
        orders.filter(|order| order.queue.pipeline.as_str() == pipeline && order.end.is_none());
    let mut results: Vec<String> = of_pipeline
        .map(|order| {
            let stored = poll_once(site.ports().objects.get(&order.speculation)).unwrap().unwrap();
            let state: Speculation =
                serde_json::from_slice(&stored.expect("the tested state is stored").bytes).unwrap();
            let numbers: Vec<String> =
                state.changes.iter().map(|change| change.change.key.local_id()).collect();
            let run = find(&build::run_key(&order.build))
                .map(|record| decode::<Run>(record).unwrap().phase);
            let result = match run {
                Some(Phase::Ended(ended)) => ended.result.as_str(),
                None if find(&build::stop_key(&order.build)).is_some() => "ABORTED",
                _ => "-",
            };
            format!("{} {} {result}", order.job, numbers.join(" "))
        })
        .collect();
    results.sort();
    results
}

/// Returns the reports of a pipeline on a change, in order: `start`, or the first line of the
/// comment.
pub(super) fn report_lines(site: &Site, pipeline: &str, change: &ChangeKey) -> Vec<String> {
    let records = site.world.records();
    let reports = records.iter().filter(|record| record.key.partition.starts_with("report#"));
    let mut made: Vec<Report> = reports
        .map(|record| decode::<Report>(record).unwrap())
        .filter(|report| report.change.key == *change && report.queue.pipeline.as_str() == pipeline)
        .filter(|report| matches!(report.state, ReportState::Made { .. }))
        .collect();
    made.sort_by_key(|report| (report.requested_at, !report.is_start()));
    let said = |report: &Report| {
        let mut comments = report.actions.iter().filter_map(|action| match action {
            ReportAction::Comment { body, .. } | ReportAction::Vote { body: Some(body), .. } => {
                body.lines().next().map(str::to_owned)
            }
            _ => None,
        });
        if report.is_start() { "start".to_owned() } else { comments.next().unwrap_or_default() }
    };
    made.iter().map(said).collect()
}

fn aborted(site: &Site) -> Vec<String> {
    results(site, "gate").into_iter().filter(|build| build.ends_with(" ABORTED")).collect()
}

/// The aborted builds of B and C when A, ahead of them, fails while their tests run.
const ABORTED: [&str; 4] =
    ["test1 1 2 3 ABORTED", "test1 1 2 ABORTED", "test2 1 2 3 ABORTED", "test2 1 2 ABORTED"];

/// Enqueues A, B and C, where A breaks these jobs, and runs the site until the tests of all three
/// run.
fn enqueue_three(breaks: &str) -> (Site, [ChangeKey; 3]) {
    let mut site = graph::site("", STANDARD);
    let changes = [(1, breaks), (2, "x"), (3, "x")]
        .map(|(number, text)| propose(&site, number, &[(&format!("file{number}"), text)]));
    site.held.extend(["test1", "test2"].map(str::to_owned));
    enqueue(&mut site, &changes.iter().collect::<Vec<_>>());
    site.run_until(|site| site.running().len() == 6);
    (site, changes)
}

/// G01
#[test]
fn an_approved_change_passes_its_three_jobs_and_is_reported_twice() {
    let mut site = graph::site("", STANDARD);
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(results(&site, "gate"), ["merge 1 SUCCESS", "test1 1 SUCCESS", "test2 1 SUCCESS"]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(report_lines(&site, "gate", &a), ["start", "Build succeeded."]);
    let records = site.world.records();
    let sets = records.iter().filter(|record| record.key.partition.starts_with("buildset#"));
    let mut sets = sets.map(|record| decode::<Buildset>(record).unwrap());
    let set =
        sets.find(|set| set.queue.pipeline.as_str() == "gate").expect("the gate has a buildset");
    let page = format!("https://sluice.test/t/demo/buildset/{}", set.id);
    let said = site.forge.change(&a).unwrap().comments.into_values().map(|(text, _)| text);
    let said: Vec<String> = said.filter(|text| text.contains(&page)).collect();
    assert_eq!(said.len(), 1, "{page} is named once: {}", comments(&site, &a));
    for job in ["merge", "test1", "test2"] {
        assert!(unlinked(&said[0]).contains(&format!("- {job} : SUCCESS")), "{}", said[0]);
    }
}

/// G05: the four builds behind the failure are aborted at once and run again without it. The other
/// test of the failed change continues.
#[test]
fn a_failure_at_the_head_aborts_only_the_four_builds_behind_it() {
    let (mut site, [a, b, c]) = enqueue_three("broken test1");
    site.release("test1", Some(1));
    site.run_until(|site| aborted(site).len() == 4 && site.running().len() == 5);
    assert_eq!(aborted(&site), ABORTED);
    assert!(
        results(&site, "gate").contains(&"test2 1 -".to_owned()),
        "{:?}",
        results(&site, "gate")
    );
    for job in ["test1", "test2"] {
        assert_eq!(gate_builds(&site, job), ["1", "1 2", "1 2 3", "2", "2 3"]);
    }
    site.held.clear();
    site.run();
    let all = results(&site, "gate");
    assert_eq!((aborted(&site), all.len()), (ABORTED.map(str::to_owned).to_vec(), 15), "{all:?}");
    assert!(all.contains(&"test2 1 SUCCESS".to_owned()), "{all:?}");
    assert_eq!(merged(&site), [2, 3]);
    assert_eq!(site.forge.change(&a).unwrap().facts.status, ChangeStatus::Open);
    assert_eq!(report_lines(&site, "gate", &a), ["start", "Build failed."]);
    for change in [&b, &c] {
        assert_eq!(report_lines(&site, "gate", change), ["start", "Build succeeded."]);
    }
}

/// G08: the second job fails together with the first, or after the changes behind are retested.
#[test]
fn a_second_failure_at_the_head_aborts_nothing_more() {
    for is_at_once in [true, false] {
        let (mut site, [a, b, c]) = enqueue_three("broken test1, broken test2");
        site.release("test1", Some(1));
        if !is_at_once {
            site.run_until(|site| aborted(site).len() == 4 && site.running().len() == 5);
        }
        site.release("test2", Some(1));
        site.run_until(|site| aborted(site).len() == 4 && site.running().len() == 4);
        site.held.clear();
        site.run();
        let all = results(&site, "gate");
        assert_eq!(
            (aborted(&site), all.len()),
            (ABORTED.map(str::to_owned).to_vec(), 15),
            "{all:?}"
        );
        assert!(
            ["test1 1 FAILURE", "test2 1 FAILURE"]
                .iter()
                .all(|build| all.contains(&(*build).to_owned()))
        );
        assert_eq!(merged(&site), [2, 3]);
        assert_eq!(report_lines(&site, "gate", &a), ["start", "Build failed."]);
        for change in [&b, &c] {
            assert_eq!(report_lines(&site, "gate", change), ["start", "Build succeeded."]);
        }
    }
}

/// G14: a dependency chain waits for the first job of its head, and its second change gets a new
/// patchset. There are six builds in the gate and three of the new patchset in check. Like Zuul,
/// sends the start report of each item when its jobs are frozen.
#[test]
fn a_new_patchset_is_checked_while_the_gate_continues_without_its_change() {
    let mut site = graph::site("", STANDARD);
    let a = propose(&site, 1, &[("file1", "x")]);
    let (b, c) = (needing(&site, 2, 1, "x"), needing(&site, 3, 2, "x"));
    let d = propose(&site, 4, &[("file4", "x")]);
    // The first patchsets pass check before it has these jobs.
    site.run();
    let main =
        BranchKey { project: ProjectName::new("forge.test", "org/config"), branch: "main".into() };
    let checked = format!("- project:\n    name: org/one\n    check:\n      jobs: {STANDARD}\n");
    site.forge.push(&main, &[("zuul.yaml", &graph::config(&checked))]);
    site.run();
    assert_eq!(site.builds(), Vec::<String>::new());
    site.held.insert("merge".to_owned());
    enqueue(&mut site, &[&a, &b, &c, &d]);
    site.run_until(|site| running(site) == ["merge"]);
    site.run_now();
    site.forge.revise(&b, "file2", "y");
    site.take_in();
    site.run_until(|site| running(site) == ["merge", "merge"]);
    site.held.clear();
    site.run();
    for job in ["merge", "test1", "test2"] {
        assert_eq!(gate_builds(&site, job), ["1", "1 4"]);
    }
    let of_gate = results(&site, "gate");
    assert!(
        of_gate.len() == 6 && of_gate.iter().all(|build| build.ends_with(" SUCCESS")),
        "{of_gate:?}"
    );
    assert_eq!(
        results(&site, "check"),
        ["merge 1 2 SUCCESS", "test1 1 2 SUCCESS", "test2 1 2 SUCCESS"]
    );
    assert_eq!(merged(&site), [1, 4]);
    for change in [&a, &d] {
        assert_eq!(report_lines(&site, "gate", change), ["start", "Build succeeded."]);
    }
    assert_eq!(
        report_lines(&site, "check", &b),
        ["Build succeeded.", "Build succeeded."],
        "each of its patchsets was checked"
    );
    assert_eq!(report_lines(&site, "gate", &b), ["start", "Build canceled."]);
    assert_eq!(report_lines(&site, "gate", &c), ["start", "Build failed."]);
    let why = comments(&site, &c);
    assert!(why.contains("depends on a change that failed to merge"), "{why}");
    for change in [&b, &c] {
        assert_eq!(site.forge.change(change).unwrap().facts.status, ChangeStatus::Open);
    }
    assert_eq!(site.ending(&[], &[&a, &b, &c, &d]).left_over, Vec::<String>::new());
}

/// G20: the second job waits for quota: its node request is withdrawn, and no machine is launched.
#[test]
fn a_failing_job_withdraws_the_node_request_of_another_job() {
    let on_node = "nodeset: {nodes: [{name: node, label: small}]}";
    let jobs = ["first", "second"]
        .map(|name| format!("- job: {{name: {name}, run: playbooks/{name}.yaml, {on_node}}}\n"));
    let region = "    region: us-east-1\n";
    let one_at_once =
        labels(&["small"]).replace(region, &format!("{region}    quota: {{instances: 1}}\n"));
    let more = format!("{one_at_once}{}", jobs.concat());
    let mut site = graph::site(
        &more,
        "[first, merge, second: {dependencies: [merge]}]\n      fail-fast: true",
    );
    let a = propose(&site, 1, &[("a", "broken first")]);
    site.held.extend(["first", "merge"].map(str::to_owned));
    enqueue(&mut site, &[&a]);
    site.run_until(|site| running(site) == ["first", "merge"]);
    assert_eq!((site.cloud.running(), requests(&site)), (1, 1));
    site.release("merge", None);
    site.run_until(|site| results(site, "gate").contains(&"second 1 -".to_owned()));
    site.run_now();
    assert_eq!(
        (running(&site), site.cloud.running(), requests(&site)),
        (vec!["first".to_owned()], 1, 2)
    );
    site.release("first", None);
    // The gate runs before the provider learns of the free quota, or a machine would be launched.
    site.handle(MessageQueue::Gate);
    site.run();
    assert_eq!(results(&site, "gate"), ["first 1 FAILURE", "merge 1 SUCCESS", "second 1 ABORTED"]);
    assert_eq!(
        (site.cloud.requested_types(), site.cloud.running()),
        (vec!["t3.small".to_owned()], 0)
    );
    assert_eq!((requests(&site), merged(&site)), (0, Vec::new()));
    assert_eq!(report_lines(&site, "gate", &a), ["start", "Build failed."]);
    let why = comments(&site, &a);
    assert!(unlinked(&why).contains("first : FAILURE") && why.contains(") : ABORTED"), "{why}");
    assert_eq!(site.ending(&[], &[&a]).left_over, Vec::<String>::new());
}

/// Returns how many node requests exist.
fn requests(site: &Site) -> usize {
    let records = site.world.records();
    let of_provider = records.iter().filter(|record| record.key.partition.starts_with("provider#"));
    of_provider.filter(|record| record.key.sort.starts_with("request#")).count()
}
