//! Several tenants beside each other.

use super::{CONFIG, PROJECT, approve, judge, merged};
use sluice_memory::{Fate, Step, poll_once};
use sluice_model::build::Order;
use sluice_model::git::BranchKey;
use sluice_model::poke::Poke;
use sluice_records::codec::decode;
use sluice_records::report::Buildset;
use sluice_runtime::{Record, cell};
use sluice_scenarios::Site;

const MAIN: &str = "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {github: {config-projects: [org/config2], untrusted-projects: [org/two]}}}
";

/// X14, Z2.1: two tenants have pipelines, a queue and jobs of the same names; a change goes through
/// the gate of its own tenant and no other, with its own tenant's jobs.
#[test]
fn each_change_goes_through_its_own_tenants_gate() {
    let theirs = CONFIG.replace("playbooks/unit.yaml", "playbooks/their-unit.yaml");
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/config2", &[("zuul.yaml", &theirs)]),
        ("org/one", project),
        ("org/two", project),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    poll_once(cell::send(&site.ports(), &[Poke::Tenant { tenant: "other".into() }]))
        .unwrap()
        .unwrap();
    site.run();
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    approve(&mut site, &[&a, &b]);
    let records = site.world.records();
    let mut sets: Vec<String> = records
        .iter()
        .filter(|record| record.key.partition.starts_with("buildset#"))
        .map(|record| decode::<Buildset>(record).unwrap())
        .map(|set| {
            format!(
                "{} {}: {}",
                set.queue.tenant, set.queue.pipeline, set.item.candidate.change.key
            )
        })
        .collect();
    sets.sort();
    assert_eq!(
        sets,
        [
            "demo check: org/one#1",
            "demo gate: org/one#1",
            "other check: org/two#2",
            "other gate: org/two#2",
        ]
    );
    let merges: Vec<Option<u64>> =
        site.forge.merges().iter().map(|(key, _)| key.number()).collect();
    assert!(
        merges.len() == 2 && merges.contains(&Some(1)) && merges.contains(&Some(2)),
        "{merges:?}"
    );
    // Each was tested alone: a queue of the same name in another tenant holds nothing that is ahead
    // of it.
    assert_eq!(
        site.builds().iter().filter(|build| build.contains("1 2") || build.contains("2 1")).count(),
        0
    );
    let orders = records
        .iter()
        .filter(|record| record.key.partition.starts_with("build#") && record.key.sort == "order");
    for order in orders.map(|record| decode::<Order>(record).unwrap()) {
        let tenant = if order.change.key.number() == Some(1) { "demo" } else { "other" };
        assert_eq!(order.queue.tenant.as_str(), tenant);
    }
    let playbook = |number: u64| super::ordered(&site, "unit", number).1.run[0].path.clone();
    assert_eq!(
        (playbook(1).as_str(), playbook(2).as_str()),
        ("playbooks/unit.yaml", "playbooks/their-unit.yaml")
    );
    for (change, context) in [(&a, "demo/gate"), (&b, "other/gate")] {
        let statuses = site.forge.change(change).unwrap().facts.statuses;
        assert!(
            statuses.iter().any(|status| status.context == context && status.state == "success"),
            "{statuses:?}"
        );
        assert_eq!(statuses.len(), 2, "the other tenant says nothing: {statuses:?}");
    }
}

/// Z2.3, C5: what one tenant's gate merges the forge tells in our own name, and every other tenant
/// hears of it by that.
#[test]
fn a_merge_that_one_tenant_made_starts_what_another_one_does_with_merged_changes() {
    let source = |config: &str| {
        format!(
            "source: {{github: {{config-projects: [{config}], untrusted-projects: [org/one]}}}}"
        )
    };
    let main = format!(
        "- tenant: {{name: demo, {}}}\n- tenant: {{name: other, {}}}\n",
        source("org/config"),
        source("org/config2")
    );
    let ours = format!(
        "{CONFIG}\n- project: {{name: org/one, queue: integrated, check: {{jobs: [unit]}}, gate: {{jobs: [unit]}}}}\n"
    );
    let theirs = "
- pipeline:
    name: deploy
    manager: independent
    require: {github: {merged: true}}
    trigger: {github: [{event: pull_request, action: closed}]}
- job: {name: base, parent: null}
- job: {name: publish, run: playbooks/publish.yaml}
- project: {name: org/one, deploy: {jobs: [publish]}}
";
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &ours)]),
        ("org/config2", &[("zuul.yaml", theirs)]),
        ("org/one", &[("shared", "0")]),
    ];
    let mut site = Site::new(7, &main, repositories, judge);
    poll_once(cell::send(&site.ports(), &[Poke::Tenant { tenant: "other".into() }]))
        .unwrap()
        .unwrap();
    site.run();
    let a = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
    approve(&mut site, &[&a]);
    assert_eq!(merged(&site), [1]);
    let deployed = site.builds().iter().filter(|build| build.starts_with("deploy publish")).count();
    assert_eq!(deployed, 1, "{:?}", site.builds());
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}

/// A site of more tenants than one transaction has room for, with four pipelines each that this
/// triggers.
fn site_of_many(trigger: &str) -> Site {
    let names: Vec<String> = (0..30).map(|number| format!("t{number:02}")).collect();
    let source = "source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}";
    let all = names.iter().map(String::as_str).chain(["demo"]);
    let main: String = all.map(|name| format!("- tenant: {{name: {name}, {source}}}\n")).collect();
    let (mut config, mut project) =
        ("- job: {name: base, parent: null}\n".to_owned(), String::new());
    for name in ["a", "b", "c", "d"] {
        config.push_str(&format!(
            "- pipeline: {{name: {name}, manager: independent, trigger: {{github: {trigger}}}}}\n"
        ));
        project.push_str(&format!("    {name}: {{jobs: [noop]}}\n"));
    }
    config.push_str(&format!("- project:\n    name: org/one\n{project}"));
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", &config)]), ("org/one", &[("shared", "0")])];
    let mut site = Site::new(7, &main, repositories, judge);
    let pokes: Vec<Poke> =
        names.iter().map(|name| Poke::Tenant { tenant: name.as_str().into() }).collect();
    poll_once(cell::send(&site.ports(), &pokes)).unwrap().unwrap();
    site.run();
    site.world.take_journal();
    site
}

/// Returns the queues of all those tenants, sorted.
fn queues_of_many() -> Vec<String> {
    let names = (0..30).map(|number| format!("t{number:02}")).chain(["demo".to_owned()]);
    let queues =
        |name: String| ["a", "b", "c", "d"].map(|pipeline| format!("queue#{name}/{pipeline}"));
    let mut queues: Vec<String> = names.flat_map(queues).collect();
    queues.sort();
    queues
}

/// Returns the queues that were told something whose text holds this since somebody asked last,
/// sorted.
fn told(site: &Site, text: &str) -> Vec<String> {
    let written = site.world.take_journal().into_iter().filter_map(|written| written.after);
    let arrivals = written
        .filter(|record| record.key.sort.starts_with("arrival#") && record.body.contains(text));
    let queue =
        |record: Record| record.key.partition.split('/').take(2).collect::<Vec<_>>().join("/");
    let mut queues: Vec<String> = arrivals.map(queue).collect();
    queues.sort();
    queues
}

/// D02, Z2.3: what a change no longer names is forgotten, however many commits it takes to tell its
/// tenants so.
#[test]
fn a_dependency_that_was_dropped_is_forgotten_where_many_tenants_are_told() {
    let mut site = site_of_many("[{event: pull_request, action: [opened, edited]}]");
    site.forge.propose("org/one", 2, "B", "", &[("b", "x")]);
    let body = "Depends-On: https://forge.test/org/one/pull/2";
    let change = site.forge.propose("org/one", 1, "A", body, &[("a", "x")]);
    site.run();
    let noted = |site: &Site| {
        site.world.records().iter().any(|record| record.key.sort.starts_with("needed-by#"))
    };
    assert!(noted(&site));
    told(&site, "");
    site.forge.describe(&change, "", true);
    site.run();
    assert_eq!(told(&site, ""), queues_of_many());
    assert!(!noted(&site), "it is forgotten");
}

/// Z2.3, C2, C5: an event that concerns more tenants than one transaction has room for is told to
/// each of them once, and ends when all were told; whoever dies in between, the next one goes on
/// with those that were not.
#[test]
fn an_event_that_concerns_many_tenants_is_told_to_each_once() {
    let expected = queues_of_many();
    for steps in [None, Some(6), Some(8), Some(10), Some(13)] {
        let mut site = site_of_many(
            "[{event: pull_request, action: opened}, {event: push, ref: ^refs/tags/}]",
        );
        site.twice = steps.is_none();
        let change = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        site.hear();
        if let Some(steps) = steps {
            site.set_fate(steps, Fate::DiesAfter);
        }
        site.run();
        assert_eq!(told(&site, ""), expected, "{steps:?}");
        let main = BranchKey { project: change.project.clone(), branch: "main".into() };
        site.forge.tag(&main, "1.0");
        site.hear();
        if let Some(steps) = steps {
            site.set_fate(steps, Fate::DiesAfter);
        }
        site.run();
        assert_eq!(told(&site, ""), expected, "{steps:?}");
        // A push has all of them read their configuration first.
        site.forge.push(&main, &[("b", "x")]);
        site.run();
        assert_eq!(site.ending(&["org/one"], &[&change]).left_over, Vec::<String>::new());
    }
}

/// Z2.3, Z6.3, C5: a forge that answers with what was, or that there is nothing, while only some
/// tenants were told, keeps no other from being told of the revision that is there.
#[test]
fn tenants_that_are_told_later_hear_of_the_same_revision() {
    for is_gone in [false, true] {
        let mut site = site_of_many("[{event: pull_request, action: changed}]");
        let change = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        site.run();
        site.world.advance_millis(5_000);
        site.forge.revise(&change, "b", "y");
        told(&site, "");
        let (forge, mut reads) = (site.forge.clone(), 0);
        site.world.decide_fates(move |step: Step| {
            if step.name == "forge.read_change" {
                reads += 1;
                let is_second = reads == 2;
                forge.set_behind(if is_second && !is_gone { 4_000 } else { 0 });
                forge.set_blind(is_second && is_gone);
            }
            Fate::Works
        });
        site.run();
        let head = site.forge.change(&change).unwrap().facts.change.head;
        assert_eq!(told(&site, &head.0), queues_of_many(), "gone: {is_gone}");
        assert_eq!(site.ending(&[], &[&change]).left_over, Vec::<String>::new());
    }
}
