//! Records of others that a queue waits for and nobody can read: they hold up what they are about,
//! and nothing else (Z7).

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

/// Has the first record of which this holds say nothing any more.
pub fn spoil(site: &Site, is_it: impl Fn(&Record) -> bool) {
    let record =
        site.world.records().into_iter().find(|record| is_it(record)).expect("there is one");
    let body = "{\"nothing\": \"that anybody reads\"}".to_owned();
    site.world
        .write_directly(Write::Put { record: Record { body, ..record }, expect: Expect::Anything });
}

/// Z2.4, C16: a second place of configuration counts as nothing, and whoever looks at the tenant's
/// mistakes is told so; once it is gone, so is the warning.
#[test]
fn a_second_place_of_configuration_is_not_read_and_told() {
    let mut site = site();
    let main =
        BranchKey { project: ProjectName::new("forge.test", "org/one"), branch: "main".into() };
    let warnings = |site: &Site| {
        let live = poll_once(Layouts::default().live(&site.ports(), &"demo".into()))
            .unwrap()
            .unwrap()
            .unwrap();
        let told = live.layout.errors().iter();
        told.map(|error| (error.path.clone(), error.problem.severity)).collect::<Vec<_>>()
    };
    site.forge
        .push(&main, &[(".zuul.d/more.yaml", "- job: {name: more, run: playbooks/more.yaml}\n")]);
    site.run();
    assert_eq!(warnings(&site), [(".zuul.d/more.yaml".to_owned(), Severity::Warning)]);
    let a = propose(&site, 1, &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1], "a warning keeps nobody from landing");
    site.forge.push(&main, &[(".zuul.d/more.yaml", ""), (".zuul.d/.zuul.ignore", "")]);
    site.run();
    assert_eq!(warnings(&site), []);
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

fn quarantine(site: &Site) -> Vec<String> {
    let kept =
        site.world.records().into_iter().filter(|record| record.key.partition == "quarantine");
    kept.map(|record| {
        record.key.sort.split(' ').next().unwrap().split("##").next().unwrap().to_owned()
    })
    .collect()
}

/// Returns a site with one node, which its only job needs.
fn with_a_node() -> Site {
    let project = "
- job: {name: unit, run: playbooks/unit.yaml, nodeset: {nodes: [{name: a, label: small}]}}
- project: {check: {jobs: [unit]}}
";
    sample::small(1, project, |_, _, _| BuildResult::Success)
}

/// Proposes a change, and goes on until its `unit` runs, which does not end by itself.
fn propose_and_hold(site: &mut Site) -> ChangeKey {
    site.held.insert("unit".to_owned());
    let a = propose(site, 1, &[("a", "x")]);
    site.run_until(|site| site.running() == ["unit"]);
    a
}

/// Z7.3: a build whose run nobody can read is lost, and attempted again.
#[test]
fn a_run_that_cannot_be_read_is_a_lost_build() {
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

/// Z7.3, Z1.7: its nodes are let go once its executor had time to end, and its provider serves the
/// others meanwhile.
#[test]
fn a_run_that_cannot_be_read_does_not_keep_its_nodes_for_ever() {
    let mut site = with_a_node();
    let a = propose_and_hold(&mut site);
    spoil(&site, |record| record.key.partition.starts_with("build#") && record.key.sort == "run");
    site.die();
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), ["check unit 1"; 2]);
    assert_eq!(site.ending(&[], &[&a]).buildsets, ["org/one#1 check SUCCESS"]);
}

/// Z7.3, Z1.7: so are those of a build that is to stop for a reason that nobody can read: that it
/// is to stop is all there is to know.
#[test]
fn a_wish_to_stop_that_cannot_be_read_is_heeded_all_the_same() {
    let mut site = with_a_node();
    let a = propose_and_hold(&mut site);
    site.die();
    site.run_until(|site| site.world.records().iter().any(|record| record.key.sort == "stop"));
    spoil(&site, |record| record.key.sort == "stop");
    site.held.clear();
    site.run();
    assert_eq!(site.builds(), ["check unit 1"; 2]);
    assert_eq!(site.ending(&[], &[&a]).buildsets, ["org/one#1 check SUCCESS"]);
    assert_eq!(site.world.records().iter().filter(|record| record.key.sort == "frozen").count(), 0);
}

/// Z7, R04: failures of a pipeline that nobody can read are counted anew; no queue of it waits for
/// that.
#[test]
fn failures_of_a_pipeline_that_cannot_be_read_are_counted_anew() {
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
            assert_eq!((status, board["troubles"].as_array().unwrap().len()), (200, 1), "{board}");
        }
        is_disabled
    };
    assert_eq!(
        [1, 2, 3, 4].map(fail),
        [false, false, false, true],
        "the second is the first that counts"
    );
}

/// Z7.3: an executor of whose life nobody can read is dead when it does not renew it.
#[test]
fn a_session_that_cannot_be_read_and_is_not_renewed_is_over() {
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

/// Z6.4: a tested state of which nobody can read is none; the change is told so, and the others go
/// on.
#[test]
fn a_tested_state_that_cannot_be_read_keeps_its_change_out() {
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
    site.handle(sluice_model::poke::Queue::Gate);
    site.handle(sluice_model::poke::Queue::Merges);
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
