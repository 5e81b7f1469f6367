//! Several tenants in one installation.

use super::{CONFIG, PROJECT, approve, judge, merged};
use sluice_memory::{Fate, PendingCall, poll_once};
use sluice_model::build::Order;
use sluice_model::git::BranchKey;
use sluice_model::wakeup::Wakeup;
use sluice_records::codec::decode;
use sluice_records::report::Buildset;
use sluice_runtime::{Record, cell};
use sluice_scenarios::Site;
use sluice_scenarios::forge::{Announcement, Visibility};

const MAIN: &str = "
- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one]}}}
- tenant: {name: other, source: {github: {config-projects: [org/config2], untrusted-projects: [org/two]}}}
";

/// X14, Z2.1: two tenants have pipelines, queues and jobs of the same names. A change goes only
/// through the gate of its own tenant, with that tenant's jobs.
#[test]
fn each_change_goes_through_the_gate_of_its_own_tenant() {
    let theirs = CONFIG.replace("playbooks/unit.yaml", "playbooks/their-unit.yaml");
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/config2", &[("zuul.yaml", &theirs)]),
        ("org/one", project),
        ("org/two", project),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    poll_once(cell::send(&site.ports(), &[Wakeup::Tenant { tenant: "other".into() }]))
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
    // Each was tested alone: an item in a queue of the same name in another tenant is not ahead of
    // it.
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
        assert_eq!(statuses.len(), 2, "the other tenant sets no status: {statuses:?}");
    }
}

/// Z2.3, C5: the webhook of a merge by one tenant's gate is a self-authored event, and still
/// triggers the pipelines of other tenants.
#[test]
fn a_merge_by_one_tenant_triggers_the_pipelines_of_another_tenant() {
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
    poll_once(cell::send(&site.ports(), &[Wakeup::Tenant { tenant: "other".into() }]))
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

/// Returns a site with more tenants than fit into one transaction, each with four pipelines of this
/// trigger.
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
    let wakeups: Vec<Wakeup> =
        names.iter().map(|name| Wakeup::Tenant { tenant: name.as_str().into() }).collect();
    poll_once(cell::send(&site.ports(), &wakeups)).unwrap().unwrap();
    site.run();
    site.world.take_journal();
    site
}

/// Returns the queues of all tenants of [`site_of_many`], sorted.
fn queues_of_many() -> Vec<String> {
    let names = (0..30).map(|number| format!("t{number:02}")).chain(["demo".to_owned()]);
    let queues =
        |name: String| ["a", "b", "c", "d"].map(|pipeline| format!("queue#{name}/{pipeline}"));
    let mut queues: Vec<String> = names.flat_map(queues).collect();
    queues.sort();
    queues
}

/// Returns the queues that got an inbox message with this text since the last call, sorted.
fn notified_queues(site: &Site, text: &str) -> Vec<String> {
    let written = site.world.take_journal().into_iter().filter_map(|written| written.after);
    let messages = written
        .filter(|record| record.key.sort.starts_with("inbox#") && record.body.contains(text));
    let queue =
        |record: Record| record.key.partition.split('/').take(2).collect::<Vec<_>>().join("/");
    let mut queues: Vec<String> = messages.map(queue).collect();
    queues.sort();
    queues
}

/// D02, Z2.3: a dropped dependency is deleted from the records, also when the update of the tenants
/// takes several transactions.
#[test]
fn a_dropped_dependency_is_deleted_when_many_tenants_are_notified() {
    let mut site = site_of_many("[{event: pull_request, action: [opened, edited]}]");
    site.forge.propose("org/one", 2, "B", "", &[("b", "x")]);
    let body = "Depends-On: https://forge.test/org/one/pull/2";
    let change = site.forge.propose("org/one", 1, "A", body, &[("a", "x")]);
    site.run();
    let is_recorded = |site: &Site| {
        site.world.records().iter().any(|record| record.key.sort.starts_with("needed-by#"))
    };
    assert!(is_recorded(&site));
    notified_queues(&site, "");
    site.forge.describe(&change, "", Announcement::Webhook);
    site.run();
    assert_eq!(notified_queues(&site, ""), queues_of_many());
    assert!(!is_recorded(&site), "the dependency is deleted");
}

/// Z2.3, C2, C5: an event for more tenants than fit into one transaction reaches each of them once.
/// When intake dies in between, the next run notifies the remaining tenants.
#[test]
fn an_event_for_many_tenants_reaches_each_once() {
    let expected = queues_of_many();
    for steps in [None, Some(6), Some(8), Some(10), Some(13)] {
        let mut site = site_of_many(
            "[{event: pull_request, action: opened}, {event: push, ref: ^refs/tags/}]",
        );
        site.twice = steps.is_none();
        let change = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        site.receive_webhooks();
        if let Some(steps) = steps {
            site.set_fate(steps, Fate::DiesAfter);
        }
        site.run();
        assert_eq!(notified_queues(&site, ""), expected, "{steps:?}");
        let main = BranchKey { project: change.project.clone(), branch: "main".into() };
        site.forge.tag(&main, "1.0");
        site.receive_webhooks();
        if let Some(steps) = steps {
            site.set_fate(steps, Fate::DiesAfter);
        }
        site.run();
        assert_eq!(notified_queues(&site, ""), expected, "{steps:?}");
        // A push makes all tenants read their configuration first.
        site.forge.push(&main, &[("b", "x")]);
        site.run();
        assert_eq!(site.ending(&["org/one"], &[&change]).left_over, Vec::<String>::new());
    }
}

/// Z2.3, Z6.3, C5: the forge gives a stale answer or none after some tenants were notified. The
/// other tenants still get the new revision.
#[test]
fn tenants_that_are_notified_later_get_the_same_revision() {
    for is_gone in [false, true] {
        let mut site = site_of_many("[{event: pull_request, action: changed}]");
        let change = site.forge.propose("org/one", 1, "A", "", &[("a", "x")]);
        site.run();
        site.world.advance_millis(5_000);
        site.forge.revise(&change, "b", "y");
        notified_queues(&site, "");
        let (forge, mut reads) = (site.forge.clone(), 0);
        site.world.decide_fates(move |step: PendingCall| {
            if step.name == "forge.read_change" {
                reads += 1;
                let is_second = reads == 2;
                forge.set_behind(if is_second && !is_gone { 4_000 } else { 0 });
                forge.set_change_visibility(Visibility::of(!(is_second && is_gone)));
            }
            Fate::Works
        });
        site.run();
        let head = site.forge.change(&change).unwrap().facts.change.head;
        assert_eq!(notified_queues(&site, &head.0), queues_of_many(), "gone: {is_gone}");
        assert_eq!(site.ending(&[], &[&change]).left_over, Vec::<String>::new());
    }
}
