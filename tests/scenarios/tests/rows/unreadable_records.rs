//! Unreadable records: each one affects only the change or build that it belongs to (Z7).

use super::system_events::asked;
use super::{CONFIG, PROJECT, approve, buildsets, comments, merged, propose, site, site_of};
use sluice_config::Severity;
use sluice_memory::poll_once;
use sluice_model::ProjectName;
use sluice_model::build::BuildResult;
use sluice_model::change::ChangeKey;
use sluice_model::git::BranchKey;
use sluice_records::layout::Layouts;
use sluice_records::{queue, session};
use sluice_runtime::record::{Expect, Record, Write};
use sluice_scenarios::{Site, sample};

/// Replaces the body of the first matching record by one that cannot be read.
pub fn spoil(site: &Site, is_match: impl Fn(&Record) -> bool) {
    let record =
        site.world.records().into_iter().find(|record| is_match(record)).expect("a record matches");
    let body = "{\"nothing\": \"readable\"}".to_owned();
    site.world.write_unchecked(Write::Put {
        record: Record { body, ..record },
        expect: Expect::Anything,
    });
}

/// Z2.4, C16: a second configuration source of a project is ignored with a warning among the
/// tenant's configuration errors. The warning disappears with the files.
#[test]
fn a_second_configuration_source_is_ignored_with_a_warning() {
    let mut site = site();
    let main =
        BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: "main".into() };
    let warnings = |site: &Site| {
        let live = poll_once(Layouts::default().load_live(&site.ports(), &"demo".into()))
            .unwrap()
            .unwrap()
            .unwrap();
        let errors = live.layout.errors().iter();
        errors.map(|error| (error.path.clone(), error.diagnostic.severity)).collect::<Vec<_>>()
    };
    site.forge
        .push(&main, &[(".zuul.d/more.yaml", "- job: {name: more, run: playbooks/more.yaml}\n")]);
    site.run();
    assert_eq!(warnings(&site), [(".zuul.d/more.yaml".to_owned(), Severity::Warning)]);
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1], "a warning blocks no landing");
    site.forge.push(&main, &[(".zuul.d/more.yaml", ""), (".zuul.d/.zuul.ignore", "")]);
    site.run();
    assert_eq!(warnings(&site), []);
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// Returns the keys of the quarantined records.
fn quarantine(site: &Site) -> Vec<String> {
    let quarantined =
        site.world.records().into_iter().filter(|record| record.key.partition == "quarantine");
    quarantined
        .map(|record| {
            record.key.sort.split(' ').next().unwrap().split("##").next().unwrap().to_owned()
        })
        .collect()
}

/// Returns a site whose only job needs a node.
fn site_with_node() -> Site {
    let project = "
- job: {name: unit, run: playbooks/unit.yaml, nodeset: {nodes: [{name: a, label: small}]}}
- project: {check: {jobs: [unit]}}
";
    sample::small(1, project, |_, _, _| BuildResult::Success)
}

/// Proposes a change and runs the site until its `unit` job, which does not end, is running.
fn propose_and_hold(site: &mut Site) -> ChangeKey {
    site.held.insert("unit".to_owned());
    let a = propose(site, 1, &[("a", "x")]);
    site.run_until(|site| site.running() == ["unit"]);
    a
}

/// Z7.3: a build whose run record cannot be read is lost and attempted again.
#[test]
fn a_build_with_an_unreadable_run_is_lost_and_retried() {
    let mut site = site();
    let a = propose_and_hold(&mut site);
    spoil(&site, |record| record.key.partition.starts_with("build#") && record.key.sort == "run");
    site.run_until(|site| site.builds().len() == 2);
    site.held.clear();
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert!(
        quarantine(&site).iter().all(|name| name.starts_with("record#build#")),
        "{:?}",
        quarantine(&site)
    );
    assert_eq!(quarantine(&site).len(), 1);
}

/// Z7.3, Z1.7: the nodes of a lost build are released after the executor had time to stop, and the
/// provider serves other requests meanwhile.
#[test]
fn a_build_with_an_unreadable_run_releases_its_nodes() {
    let mut site = site_with_node();
    let a = propose_and_hold(&mut site);
    spoil(&site, |record| record.key.partition.starts_with("build#") && record.key.sort == "run");
    site.die();
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), ["check unit 1"; 2]);
    assert_eq!(site.ending(&[], &[&a]).buildsets, ["org/one#1 check SUCCESS"]);
}

/// Z7.3, Z1.7: a stop request with an unreadable reason stops the build as well.
#[test]
fn an_unreadable_stop_request_still_stops_the_build() {
    let mut site = site_with_node();
    let a = propose_and_hold(&mut site);
    // Its queue cannot end an unreadable run, and requests the build's stop instead.
    spoil(&site, |record| record.key.partition.starts_with("build#") && record.key.sort == "run");
    site.die();
    site.run_until(|site| site.world.records().iter().any(|record| record.key.sort == "stop"));
    spoil(&site, |record| record.key.sort == "stop");
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), ["check unit 1"; 2]);
    assert_eq!(site.ending(&[], &[&a]).buildsets, ["org/one#1 check SUCCESS"]);
    assert_eq!(site.world.records().iter().filter(|record| record.key.sort == "halted").count(), 0);
}

/// Z7, R04: an unreadable failure count of a pipeline starts again at zero; its queues do not wait.
#[test]
fn an_unreadable_failure_count_starts_again_at_zero() {
    let config = CONFIG.replacen(
        "    failure: {github: {status: failure}}\n",
        "    failure: {github: {status: failure}}\n    disabled: {github: {label: disabled, comment: false}}\n    disable-after-consecutive-failures: 2\n",
        1,
    );
    let mut site = site_of(&config, PROJECT);
    let fail = |number: u64| {
        let key = propose(&site, number, &[(&format!("f{number}"), "broken unit")]);
        site.run();
        let is_disabled = site.forge.change(&key).unwrap().facts.labels == ["disabled"];
        if number == 1 {
            spoil(&site, |record| record.key.partition.starts_with("health#"));
            let (status, board) = asked(&site, "tenant/demo/board");
            assert_eq!((status, board["problems"].as_array().unwrap().len()), (200, 1), "{board}");
        }
        is_disabled
    };
    assert_eq!(
        [1, 2, 3, 4].map(fail),
        [false, false, false, true],
        "the second failure is the first that counts"
    );
}

/// Z7.3: an executor with an unreadable session is dead unless it renews the session.
#[test]
fn an_unreadable_session_that_is_not_renewed_counts_as_dead() {
    let mut site = site();
    let a = propose_and_hold(&mut site);
    spoil(&site, |record| record.key == session::key(&"executor-1".into()));
    site.die();
    site.run_until(|site| site.builds().len() == 2);
    site.held.clear();
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    assert!(
        quarantine(&site).iter().all(|name| name.starts_with("record#session#")),
        "{:?}",
        quarantine(&site)
    );
}

/// Z6.4: a change whose merge result cannot be read fails with that reason; other changes continue.
#[test]
fn a_change_with_an_unreadable_tested_state_fails() {
    let mut site = site();
    let (a, b) = (propose(&site, 1, &[("a", "x")]), propose(&site, 2, &[("b", "x")]));
    site.run();
    for change in [&a, &b] {
        site.forge.approve(change);
        site.take_in();
    }
    let is_new = |record: &Record| {
        record.key.partition.starts_with("merge#") && record.body.contains("speculation")
    };
    let before = site.world.records().iter().filter(|record| is_new(record)).count();
    site.handle(sluice_model::wakeup::MessageQueue::Gate);
    site.handle(sluice_model::wakeup::MessageQueue::Merges);
    assert!(site.world.records().iter().filter(|record| is_new(record)).count() > before);
    let gate = queue::partition(&sluice_model::QueueKey {
        tenant: "demo".into(),
        pipeline: "gate".into(),
        queue: "integrated".into(),
    });
    let item = site.world.records().into_iter().find(|record| {
        record.key.partition == gate
            && record.key.sort.starts_with("item#")
            && record.body.contains("\"title\":\"a change\"")
            && record.body.contains("\"number\":1")
    });
    let item = item.unwrap().key.sort.strip_prefix("item#").unwrap().to_owned();
    spoil(&site, |record| record.key.partition == format!("merge#{item}"));
    site.run();
    assert_eq!(
        (buildsets(&site, &[]), merged(&site)),
        (vec!["org/one#1 MERGE_CONFLICT".to_owned(), "org/one#2 SUCCESS".to_owned()], vec![2],)
    );
    assert!(comments(&site, &a).contains("cannot be read"), "{}", comments(&site, &a));
}
