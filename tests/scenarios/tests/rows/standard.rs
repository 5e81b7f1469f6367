//! Rows on the standard jobs: one that holds back the changes behind it, and two that follow it. Every build is counted with its end,
//! and every report that was made.

use super::graph::{self, STANDARD, enqueue};
use super::{approve, comments, gate_builds, merged, propose};
use sluice_gate::{Action, Report, ReportState};
use sluice_memory::poll_once;
use sluice_model::build::{Order, Phase, Run, Speculation};
use sluice_model::change::{ChangeKey, ChangeStatus};
use sluice_records::build;
use sluice_records::codec::decode;
use sluice_records::report::Buildset;
use sluice_runtime::record::{Key, Record};
use sluice_scenarios::Site;

/// Returns each build of a pipeline as its job, the numbers of the changes that it tests and how it ended, sorted. As its page has it:
/// one that was stopped before anybody had it is ABORTED; one that is under way ends with `-`.
pub(super) fn results(site: &Site, pipeline: &str) -> Vec<String> {
    let records = site.world.records();
    let find = |key: &Key| records.iter().find(|record| record.key == *key);
    let is_order = |record: &&Record| record.key.partition.starts_with("build#") && record.key.sort == "order";
    let orders = records.iter().filter(is_order).map(|record| decode::<Order>(record).unwrap());
    let of_pipeline = orders.filter(|order| order.queue.pipeline.as_str() == pipeline);
    let mut results: Vec<String> = of_pipeline
        .map(|order| {
            let kept = poll_once(site.ports().objects.get(&order.speculation)).unwrap().unwrap();
            let state: Speculation = serde_json::from_slice(&kept.expect("the tested state is kept").bytes).unwrap();
            let numbers: Vec<String> = state.changes.iter().map(|change| change.change.key.local()).collect();
            let run = find(&build::run_key(&order.build)).map(|record| decode::<Run>(record).unwrap().phase);
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

/// Returns what a pipeline told of a change, in its order: `start`, or the first line of what was said.
pub(super) fn told(site: &Site, pipeline: &str, change: &ChangeKey) -> Vec<String> {
    let records = site.world.records();
    let reports = records.iter().filter(|record| record.key.partition.starts_with("report#"));
    let mut made: Vec<Report> = reports
        .map(|record| decode::<Report>(record).unwrap())
        .filter(|report| report.change.key == *change && report.queue.pipeline.as_str() == pipeline)
        .filter(|report| matches!(report.state, ReportState::Made { .. }))
        .collect();
    made.sort_by_key(|report| (report.wanted_at, !report.is_start()));
    let said = |report: &Report| {
        let mut comments = report.actions.iter().filter_map(|action| match action {
            Action::Comment { body, .. } | Action::Vote { body: Some(body), .. } => {
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

/// What is aborted of B and C when A, ahead of them, fails while their tests run.
const ABORTED: [&str; 4] = ["test1 1 2 3 ABORTED", "test1 1 2 ABORTED", "test2 1 2 3 ABORTED", "test2 1 2 ABORTED"];

/// Enqueues A, B and C, of which A breaks these jobs, and returns them when the tests of all of them run.
fn three_under_way(breaks: &str) -> (Site, [ChangeKey; 3]) {
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
fn an_approved_change_passes_its_three_jobs_and_is_told_of_twice() {
    let mut site = graph::site("", STANDARD);
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(results(&site, "gate"), ["merge 1 SUCCESS", "test1 1 SUCCESS", "test2 1 SUCCESS"]);
    assert_eq!(merged(&site), [1]);
    assert_eq!(told(&site, "gate", &a), ["start", "Build succeeded."]);
    let records = site.world.records();
    let sets = records.iter().filter(|record| record.key.partition.starts_with("buildset#"));
    let mut sets = sets.map(|record| decode::<Buildset>(record).unwrap());
    let set = sets.find(|set| set.queue.pipeline.as_str() == "gate").expect("it is kept");
    let page = format!("https://sluice.test/t/demo/buildset/{}", set.id);
    let said = site.forge.change(&a).unwrap().comments.into_values().map(|(text, _)| text);
    let said: Vec<String> = said.filter(|text| text.contains(&page)).collect();
    assert_eq!(said.len(), 1, "{page} is named once: {}", comments(&site, &a));
    for job in ["merge", "test1", "test2"] {
        assert!(said[0].contains(&format!("- {job} : SUCCESS")), "{}", said[0]);
    }
}

/// G05: the four builds behind the failure end at once, and are run again without it; the other job of what failed runs on.
#[test]
fn a_failure_at_the_head_aborts_the_four_builds_behind_it_and_no_other() {
    let (mut site, [a, b, c]) = three_under_way("broken test1");
    site.release("test1", Some(1));
    site.run_until(|site| aborted(site).len() == 4 && site.running().len() == 5);
    assert_eq!(aborted(&site), ABORTED);
    assert!(results(&site, "gate").contains(&"test2 1 -".to_owned()), "{:?}", results(&site, "gate"));
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
    assert_eq!(told(&site, "gate", &a), ["start", "Build failed."]);
    for change in [&b, &c] {
        assert_eq!(told(&site, "gate", change), ["start", "Build succeeded."]);
    }
}

/// G08: whether its second job fails with the first, or when those behind are tested anew already.
#[test]
fn a_second_failure_at_the_head_aborts_nothing_more() {
    for is_at_once in [true, false] {
        let (mut site, [a, b, c]) = three_under_way("broken test1, broken test2");
        site.release("test1", Some(1));
        if !is_at_once {
            site.run_until(|site| aborted(site).len() == 4 && site.running().len() == 5);
        }
        site.release("test2", Some(1));
        site.run_until(|site| aborted(site).len() == 4 && site.running().len() == 4);
        site.held.clear();
        site.run();
        let all = results(&site, "gate");
        assert_eq!((aborted(&site), all.len()), (ABORTED.map(str::to_owned).to_vec(), 15), "{all:?}");
        assert!(["test1 1 FAILURE", "test2 1 FAILURE"].iter().all(|build| all.contains(&(*build).to_owned())));
        assert_eq!(merged(&site), [2, 3]);
        assert_eq!(told(&site, "gate", &a), ["start", "Build failed."]);
        for change in [&b, &c] {
            assert_eq!(told(&site, "gate", change), ["start", "Build succeeded."]);
        }
    }
}
