//! Tenants that the main configuration adds and removes, and tenants with unreadable projects.

use bytes::Bytes;
use sluice_gate::{InboxMessage, InboxMessageKind};
use sluice_memory::{Fate, poll_once};
use sluice_model::build::{BuildResult, Phase, Run};
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::{MessageQueue, Wakeup};
use sluice_model::{InboxMessageId, ProjectName, TenantName};
use sluice_records::codec::decode;
use sluice_records::tenant::{ProjectSource, Tenant};
use sluice_records::{connection, queue, tenant};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Record, Write};
use sluice_runtime::{Clock as _, cell};
use sluice_scenarios::Site;
use sluice_scenarios::repos::PlayedRepos;
use sluice_scenarios::sample::{COMMON, cloud};
use sluice_tenant::Tenants;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const CONFIG: &str = r"
- pipeline:
    name: gate
    manager: dependent
    post-review: true
    trigger:
      github: [{event: pull_request_review, action: submitted, state: approved}]
    success: {github: {status: success, merge: true}}
    failure: {github: {status: failure}}
    dequeue: {github: {comment: true}}
- job: {name: base, parent: null}
- job: {name: unit, run: playbooks/unit.yaml}
- project: {name: org/one, gate: {jobs: [unit]}}
";

fn main_of(tenants: &[&str]) -> String {
    let one = |name: &&str| {
        format!(
            "- tenant: {{name: {name}, source: {{github: {{config-projects: [org/config], untrusted-projects: [org/one, org/missing]}}}}}}\n"
        )
    };
    tenants.iter().map(one).collect()
}

fn site_with(config: &str) -> Site {
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", config)]), ("org/one", &[("file", "0")])];
    Site::new(7, &main_of(&["demo"]), repositories, |_, _, _| BuildResult::Success)
}

fn site() -> Site {
    site_with(CONFIG)
}

/// Stores this main configuration and wakes these tenants.
fn store(site: &Site, main: &(impl AsRef<[u8]> + ?Sized), woken: &[&str]) {
    let ports = site.ports();
    let text = Bytes::copy_from_slice(main.as_ref());
    poll_once(ports.objects.put(connection::MAIN, text, PutMode::Always, "application/yaml"))
        .unwrap()
        .unwrap();
    wake_tenants(site, woken);
}

/// Wakes the tenant function for these tenants.
fn wake_tenants(site: &Site, woken: &[&str]) {
    let wakeups: Vec<Wakeup> =
        woken.iter().map(|name| Wakeup::Tenant { tenant: TenantName::from(*name) }).collect();
    poll_once(cell::send(&site.ports(), &wakeups)).unwrap().unwrap();
}

/// Stores a main configuration that removes a tenant, as `sluice tenant load --remove` does.
fn load(site: &Site, tenants: &[&str], gone: &str) {
    let main = main_of(tenants);
    site.world.write_unchecked(tenant::put_removal(&TenantName::from(gone), &main).unwrap());
    let woken: Vec<&str> = tenants.iter().copied().chain([gone]).collect();
    store(site, &main, &woken);
}

fn head(site: &Site, name: &str) -> Tenant {
    let key = tenant::key(&TenantName::from(name));
    decode(
        site.world.records().iter().find(|record| record.key == key).expect("the tenant was read"),
    )
    .unwrap()
}

fn listed(site: &Site) -> Vec<String> {
    let names = poll_once(tenant::list_tenants(&site.ports())).unwrap().unwrap();
    names.iter().map(ToString::to_string).collect()
}

/// Returns the keys of the matching records.
fn keys(site: &Site, is_match: impl Fn(&Record) -> bool) -> Vec<String> {
    site.world
        .records()
        .iter()
        .filter(|record| is_match(record))
        .map(|record| record.key.to_string())
        .collect()
}

/// Proposes a change, lets it be checked, and approves it.
fn approved(site: &mut Site, number: u64) -> ChangeKey {
    let change =
        site.forge.propose("org/one", number, "a change", "", &[("file", &number.to_string())]);
    site.run();
    site.forge.approve(&change);
    change
}

fn merged(site: &Site) -> Vec<String> {
    site.forge.merges().iter().map(|(key, _)| key.to_string()).collect()
}

/// R03: the items of a removed tenant are dequeued without a report, and later approvals count only
/// in the new tenant.
#[test]
fn a_removed_tenant_dequeues_its_items_and_lands_nothing() {
    let mut site = site();
    let first = approved(&mut site, 1);
    site.run_until(Site::is_building);
    load(&site, &["mine"], "demo");
    // Before the build ends, or the change would be allowed to land.
    site.handle(MessageQueue::Tenants);
    site.handle(MessageQueue::Gate);
    site.run();
    assert_eq!(listed(&site), ["mine"]);
    assert_eq!(merged(&site), Vec::<String>::new(), "its builds were stopped");
    let ending = site.ending(&[], &[&first]);
    assert_eq!(ending.buildsets, [format!("{first} gate DEQUEUED")]);
    assert_eq!(ending.left_over, Vec::<String>::new());
    assert_eq!(ending.changes[&first.to_string()].2, 0, "a removed tenant posts no comment");

    let second = approved(&mut site, 2);
    site.run();
    assert_eq!(merged(&site), [second.to_string()]);
    let items = |record: &Record| {
        record.key.partition.starts_with("queue#demo") && record.key.sort.starts_with("item")
    };
    assert_eq!(keys(&site, items), Vec::<String>::new(), "the removed tenant enqueues nothing");
    let rest = |record: &Record| record.key.partition == "tenant#demo" && record.key.sort != "head";
    assert_eq!(keys(&site, rest), Vec::<String>::new());
}

/// R03, Z1.7, N17: the builds of a removed tenant release their nodes and semaphores, although no
/// configuration has the provider.
#[test]
fn the_builds_of_a_removed_tenant_release_nodes_and_semaphores() {
    let needs =
        "run: playbooks/unit.yaml, semaphores: [one], nodeset: {nodes: [{name: n, label: small}]}";
    let jobs = CONFIG.replace("run: playbooks/unit.yaml", needs);
    let mut site = site_with(
        &[jobs.as_str(), "- semaphore: {name: one, max: 1}\n", COMMON, &cloud(8)].concat(),
    );
    approved(&mut site, 1);
    site.run_until(Site::is_building);
    let held = |record: &Record| {
        record.key.partition == "semaphores#demo" && record.body.contains("\"build\"")
    };
    assert_eq!((site.cloud.running(), keys(&site, held).len()), (1, 1));
    // A configuration of another tenant, without the project that defines the provider.
    let without = "- tenant: {name: other, source: {github: {untrusted-projects: [org/one]}}}\n";
    site.world.write_unchecked(tenant::put_removal(&"demo".into(), without).unwrap());
    store(&site, without, &["demo", "other"]);
    site.handle(MessageQueue::Tenants);
    site.handle(MessageQueue::Gate);
    // Longer than the launcher caches the provider's settings.
    site.world.advance_millis(61_000);
    site.run();
    assert_eq!(merged(&site), Vec::<String>::new());
    assert_eq!((site.cloud.running(), keys(&site, held)), (0, Vec::new()));
    let left = |record: &Record| {
        record.key.partition.starts_with("provider#") && record.key.sort != "head"
    };
    assert_eq!(keys(&site, left), Vec::<String>::new());
}

/// R03, Z6.4: an ordered landing of a removed tenant completes, because the merge may have
/// happened.
#[test]
fn a_landing_that_was_ordered_before_its_tenant_was_removed_completes() {
    let mut site = site();
    let change = approved(&mut site, 1);
    site.run_until(|site| {
        !keys(site, |record| record.key.partition.starts_with("landing#")).is_empty()
    });
    assert_eq!(merged(&site), Vec::<String>::new());
    load(&site, &["mine"], "demo");
    site.handle(MessageQueue::Tenants);
    site.handle(MessageQueue::Gate);
    site.run();
    assert_eq!(merged(&site), [change.to_string()]);
    let ending = site.ending(&[], &[&change]);
    assert_eq!(
        (ending.buildsets, ending.left_over),
        (vec![format!("{change} gate SUCCESS")], Vec::new())
    );
}

/// R03: a new main configuration causes reads of new repositories only. An unchanged tenant keeps
/// its layout and reads nothing, a tenant with two more repositories reads two, and a new tenant
/// works at once.
#[test]
fn a_new_main_configuration_causes_reads_of_new_repositories_only() {
    let of = |name: &str, projects: &str| {
        format!(
            "- tenant: {{name: {name}, source: {{github: {{config-projects: [org/config], untrusted-projects: [{projects}]}}}}}}\n"
        )
    };
    let main = [of("same", "org/one"), of("grows", "org/one"), of("gone", "org/one")].concat();
    let own: &[(&str, &str)] =
        &[(".zuul.yaml", "- project: {gate: {jobs: [unit]}}\n"), ("file", "0")];
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", CONFIG)]),
        ("org/one", &[("file", "0")]),
        ("org/two", own),
        ("org/three", own),
    ];
    let mut site = Site::new(7, &main, repositories, |_, _, _| BuildResult::Success);
    wake_tenants(&site, &["same", "grows", "gone"]);
    site.run();
    let before = ["same", "grows"]
        .map(|name| (head(&site, name).layout_object, head(&site, name).layout.live));

    let fetched = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&fetched);
    site.world.decide_fates(move |step| {
        counts.fetch_add(usize::from(step.name == "repos.configuration"), Ordering::SeqCst);
        Fate::Works
    });
    let next =
        [of("same", "org/one"), of("grows", "org/one, org/two, org/three"), of("new", "org/two")]
            .concat();
    site.world.write_unchecked(tenant::put_removal(&"gone".into(), &next).unwrap());
    store(&site, &next, &[]);
    let mut cost = |name: &str| {
        wake_tenants(&site, &[name]);
        site.run();
        fetched.swap(0, Ordering::SeqCst)
    };
    // A commit that another tenant has read is not read again, although each tenant may allow other
    // objects of it.
    assert_eq!(["same", "gone", "grows", "new"].map(&mut cost), [0, 0, 2, 0]);
    let after = ["same", "grows"]
        .map(|name| (head(&site, name).layout_object, head(&site, name).layout.live));
    assert_eq!(after[0], before[0], "an unchanged tenant keeps its layout");
    assert!(after[1].0 != before[1].0 && after[1].1 == before[1].1 + 1, "{after:?}");
    assert_eq!(listed(&site), ["grows", "new", "same"]);

    let change = site.forge.propose("org/two", 5, "a change", "", &[("file", "5")]);
    site.run();
    site.forge.approve(&change);
    site.run();
    assert_eq!(merged(&site), [change.to_string()]);
}

/// Z2.2, R03: no file is fetched from a repository with an empty `include`, neither of its branches
/// nor of its changes, which are gated all the same. When the tenant includes objects again, the
/// current files are read.
#[test]
fn no_file_is_fetched_from_a_repository_with_an_empty_include() {
    let of = |settings: &str| {
        format!(
            "- tenant: {{name: demo, source: {{github: {{config-projects: [org/config], untrusted-projects: [org/one{settings}]}}}}}}\n"
        )
    };
    let own: &[(&str, &str)] =
        &[(".zuul.yaml", "- job: {name: own, run: playbooks/unit.yaml}\n"), ("file", "0")];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", CONFIG)]), ("org/one", own)];
    let mut site = Site::new(7, &of(""), repositories, |_, _, _| BuildResult::Success);
    site.run();
    let before = head(&site, "demo");

    let fetched = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&fetched);
    site.world.decide_fates(move |step| {
        counts.fetch_add(usize::from(step.name == "repos.configuration"), Ordering::SeqCst);
        Fate::Works
    });
    store(&site, &of(": {include: []}"), &["demo"]);
    site.run();
    let without = head(&site, "demo");
    assert_ne!(
        without.layout_object, before.layout_object,
        "the layout has no objects of the repository"
    );
    // The file is not read, so that it causes no configuration error.
    let change = site.forge.propose("org/one", 5, "a change", "", &[(".zuul.yaml", "- job: [\n")]);
    site.run();
    site.forge.approve(&change);
    site.run();
    assert_eq!(merged(&site), [change.to_string()]);
    assert_eq!((fetched.load(Ordering::SeqCst), head(&site, "demo").errors), (0, without.errors));

    store(&site, &of(""), &["demo"]);
    site.run();
    assert_eq!(
        (fetched.load(Ordering::SeqCst), head(&site, "demo").errors),
        (1, without.errors + 1)
    );
}

/// R03: a tenant that is added again is read from scratch and continues its layout numbers.
#[test]
fn a_tenant_that_is_added_again_works() {
    let mut site = site();
    let before = head(&site, "demo").layout.live;
    load(&site, &["other"], "demo");
    site.run();
    assert!(head(&site, "demo").is_removed);
    load(&site, &["demo"], "other");
    site.run();
    let after = head(&site, "demo");
    assert!(!after.is_removed && after.layout.live > before + 1, "{:?}", after.layout);
    assert_eq!(listed(&site), ["demo"]);
    let change = approved(&mut site, 1);
    site.run();
    assert_eq!(merged(&site), [change.to_string()]);
}

/// R03, C2: a removed tenant is removed completely, whichever call a function dies at.
#[test]
fn a_death_during_the_removal_of_a_tenant_leads_to_the_same_end() {
    let removed = |step: Option<(u64, Fate)>| {
        let mut site = site();
        let change = approved(&mut site, 1);
        site.run_until(Site::is_building);
        load(&site, &["mine"], "demo");
        let first = site.world.steps();
        if let Some((step, fate)) = step {
            site.set_fate(step, fate);
        }
        site.handle(MessageQueue::Tenants);
        let taken = site.world.steps() - first;
        // Whether the build ends first depends on the timing of the retried messages, so only the
        // absence of leftovers is asserted.
        site.run();
        let ending = site.ending(&[], &[&change]);
        let rest = keys(&site, |record| {
            record.key.partition == "tenant#demo" && record.key.sort != "head"
        });
        let queued = keys(&site, |record| {
            record.key.partition.starts_with("queue#demo") && record.key.sort != "head"
        });
        assert_eq!(
            (ending.left_over, rest, queued),
            (Vec::new(), Vec::new(), Vec::new()),
            "{step:?}"
        );
        assert!(
            listed(&site) == ["mine"]
                && head(&site, "demo").is_removed
                && !head(&site, "demo").is_notifying_queues,
            "{step:?}"
        );
        taken
    };
    let steps = removed(None);
    assert!(steps > 15, "{steps} calls");
    for step in 0..steps {
        for fate in [Fate::DiesBefore, Fate::DiesAfter, Fate::FailsAfter] {
            removed(Some((step, fate)));
        }
    }
}

/// R03: a tenant that is missing in one read of the main configuration is not removed. It is
/// removed when a later read misses it as well.
#[test]
fn one_read_of_the_main_configuration_without_a_tenant_removes_nothing() {
    let mut site = site();
    let before = head(&site, "demo");
    let change = approved(&mut site, 1);
    site.run_until(Site::is_building);
    store(&site, &main_of(&["mine"]), &["demo"]);
    site.handle(MessageQueue::Tenants);
    let omitted = head(&site, "demo");
    assert!(omitted.omitted_since.is_some() && !omitted.is_removed);
    assert_eq!(omitted.layout, before.layout);
    store(&site, &main_of(&["demo"]), &["demo"]);
    site.handle(MessageQueue::Tenants);
    assert_eq!(
        (head(&site, "demo").omitted_since, head(&site, "demo").layout),
        (None, before.layout)
    );
    site.run();
    assert_eq!(merged(&site), [change.to_string()]);

    store(&site, &main_of(&["mine"]), &["demo", "mine"]);
    site.run();
    assert!(head(&site, "demo").is_removed, "the tenant read the configuration again by itself");
    assert_eq!(listed(&site), ["mine"]);
}

/// R03, C07: a main configuration that cannot be read or has no tenants changes no tenant.
#[test]
fn a_broken_main_configuration_changes_no_tenant() {
    let mut site = site();
    let before = head(&site, "demo");
    let unknown = main_of(&["demo"]).replace("github:", "no-such-connection:");
    let half = main_of(&["demo"])
        .replace("untrusted-projects: [org/one, org/missing]", "untrusted-projects: 7");
    let all = ["- tenant: {name: [", "[]", "", unknown.as_str(), half.as_str()].map(str::as_bytes);
    for (number, broken) in (1..).zip(all.into_iter().chain([&b"\xff\xfe"[..]])) {
        let text = String::from_utf8_lossy(broken);
        site.world.write_unchecked(tenant::put_removal(&"demo".into(), &text).unwrap());
        store(&site, broken, &["demo"]);
        site.run();
        assert_unchanged(&mut site, &before, number);
    }
    poll_once(site.ports().objects.delete(connection::MAIN)).unwrap().unwrap();
    wake_tenants(&site, &["demo"]);
    site.run();
    assert_unchanged(&mut site, &before, 9);
}

/// Asserts that the tenant is unchanged and still lands a change.
fn assert_unchanged(site: &mut Site, before: &Tenant, number: u64) {
    let after = head(site, "demo");
    assert!(!after.is_removed && after.omitted_since.is_none(), "{number}");
    let listed = listed(site);
    assert_eq!(
        (&after.layout_object, listed),
        (&before.layout_object, vec!["demo".to_owned()]),
        "{number}"
    );
    let change = approved(site, number);
    site.run();
    assert_eq!(merged(site).last(), Some(&change.to_string()), "{number}");
}

/// R06: a dequeue by an operator is reported after the start report. The buildset names the
/// operator, and the build is aborted.
#[test]
fn a_change_that_an_operator_dequeues_is_reported_and_does_not_land() {
    let mut site = site_with(
        &CONFIG.replace("    success:", "    start: {github: {comment: true}}\n    success:"),
    );
    site.held.insert("unit".to_owned());
    let change = approved(&mut site, 1);
    site.run_until(Site::is_building);
    site.run_now();
    let reports = |site: &Site| -> BTreeMap<String, String> {
        let comments = site.forge.change(&change).unwrap().comments;
        comments.into_iter().map(|(marker, (text, _))| (marker, text)).collect()
    };
    let begun = reports(&site);
    assert_eq!(begun.values().collect::<Vec<_>>(), ["Starting gate jobs."]);
    let records = site.world.records();
    let queue_key = records
        .iter()
        .find(|record| record.key.sort.starts_with("queue#gate"))
        .expect("the queue is listed");
    let queue_key = decode(queue_key).unwrap();
    let kind = InboxMessageKind::Dequeue {
        key: change.clone(),
        head: None,
        by: "jo".to_owned(),
        reason: "it hangs".to_owned(),
    };
    let message = InboxMessage {
        id: InboxMessageId("command".to_owned()),
        at: site.world.now(),
        event_id: "operator".to_owned(),
        layout: 0,
        by_operator: true,
        in_progress: false,
        kind,
    };
    site.world.write_unchecked(queue::put_message(&queue_key, &message).unwrap());
    poll_once(cell::send(&site.ports(), &[Wakeup::Queue { queue: queue_key }])).unwrap().unwrap();
    site.handle(MessageQueue::Gate);
    site.run();
    let ending = site.ending(&[], &[&change]);
    assert_eq!((merged(&site), ending.left_over), (Vec::new(), Vec::<String>::new()));
    assert_eq!(ending.buildsets, [format!("{change} gate DEQUEUED")]);
    let mut ended = reports(&site);
    ended.retain(|marker, _| !begun.contains_key(marker));
    let [canceled] = ended.values().collect::<Vec<_>>()[..] else {
        panic!("the dequeue is reported once: {ended:?}")
    };
    assert!(
        canceled.starts_with("Build canceled.\n\nan operator dequeued it: it hangs\n"),
        "{canceled}"
    );
    assert!(canceled.contains(") : ABORTED") && !canceled.contains("jo dequeued"), "{canceled}");
    assert_eq!(ending.changes[&change.to_string()].2, 2, "and so is the start");
    let runs: Vec<Record> =
        site.world.records().into_iter().filter(|record| record.key.sort == "run").collect();
    let [run] = runs.as_slice() else { panic!("it has one build: {runs:?}") };
    let Phase::Ended(end) = decode::<Run>(run).unwrap().phase else {
        panic!("it is over: {}", run.body)
    };
    assert_eq!(end.result, BuildResult::Aborted);
    let buildsets = keys(&site, |record| {
        record.key.partition.starts_with("buildset#")
            && record.body.contains("jo dequeued it: it hangs")
    });
    assert_eq!(buildsets.len(), 1);
}

/// C16: an unreadable repository is one of the tenant's configuration errors.
#[test]
fn an_unreadable_project_is_counted_among_the_configuration_errors() {
    let site = site();
    let head = head(&site, "demo");
    assert_eq!((head.errors, head.unreadable_projects.len()), (1, 1));
    assert_eq!(head.unreadable_projects[0].project.name(), "org/missing");
    assert!(!head.unreadable_projects[0].why.is_empty());
}

/// Replaces the bodies of the matching records by one that cannot be read.
fn damage(site: &Site, is_match: impl Fn(&Record) -> bool) {
    let found: Vec<Record> =
        site.world.records().into_iter().filter(|record| is_match(record)).collect();
    assert!(!found.is_empty(), "there is such a record");
    for record in found {
        let record = Record { body: "{\"of\": \"another type\"}".to_owned(), ..record };
        site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    }
}

/// C2: an unreadable record blocks neither the events of other tenants nor a tenant's reading.
#[test]
fn an_unreadable_record_blocks_no_other_work() {
    let mut site = site();
    store(&site, &main_of(&["demo", "mine"]), &["demo", "mine"]);
    site.run();
    let number = head(&site, "demo").layout.live;
    // The other tenant's head, the project sources, and the marker of a project to read again.
    damage(&site, |record| record.key.partition == "tenant#mine" && record.key.sort == "head");
    damage(&site, |record| {
        record.key.partition == "tenant#demo" && record.key.sort.starts_with("source#")
    });
    let project = sluice_model::ProjectName::new("forge.test", "org/config");
    site.world.write_unchecked(tenant::put_reread(&"demo".into(), &project, "a test").unwrap());
    damage(&site, |record| {
        record.key.partition == "tenant#demo" && record.key.sort.starts_with("reread#")
    });
    wake_tenants(&site, &["demo"]);
    site.run_now();
    assert_eq!(
        keys(&site, |record| record.key.partition == "tenant#demo"
            && record.key.sort.starts_with("reread#")),
        Vec::<String>::new()
    );
    assert!(head(&site, "demo").layout.live >= number);
    let change = site.forge.propose("org/one", 1, "a change", "", &[("file", "1")]);
    site.run_now();
    site.forge.approve(&change);
    site.run_until(|site| !site.forge.merges().is_empty());
    assert_eq!(merged(&site), [change.to_string()]);
}

/// C2, C16: the source record of a project is unreadable and the forge refuses the project. The
/// live configuration stays in use, the problem is a configuration error, and the project is read
/// again once the forge delivers it.
#[test]
fn an_unreadable_source_and_a_refusing_forge_remove_no_configuration() {
    let config = ProjectName::new("forge.test", "org/config");
    let refuse = |site: &Site, is_gone: bool, on: bool| {
        let mut store = site.store.lock().unwrap();
        match is_gone {
            true if on => store.hide_project(&config),
            true => store.show_project(&config),
            false => store.set_unreadable(&config, on.then_some("it is too large")),
        }
    };
    for is_gone in [true, false] {
        let mut site = site();
        let before = head(&site, "demo");
        refuse(&site, is_gone, true);
        damage(&site, |record| record.key == tenant::source_key(&"demo".into(), &config));
        site.world.write_unchecked(tenant::put_reread(&"demo".into(), &config, "a test").unwrap());
        wake_tenants(&site, &["demo"]);
        site.run();
        let after = head(&site, "demo");
        assert_eq!(
            (&after.layout_object, after.errors),
            (&before.layout_object, before.errors + 1),
            "{after:?}"
        );
        assert!(
            after.unreadable_projects.iter().any(|problem| problem.project == config),
            "{after:?}"
        );
        let first = approved(&mut site, 1);
        site.run();
        assert_eq!(merged(&site), [first.to_string()]);
        refuse(&site, is_gone, false);
        let main = sluice_model::git::BranchKey { project: config.clone(), branch: "main".into() };
        let later = format!(
            "{CONFIG}- job: {{name: later, run: playbooks/later.yaml}}\n- project: {{name: org/one, gate: {{jobs: [later]}}}}\n"
        );
        site.forge.push(&main, &[("zuul.yaml", &later)]);
        site.run();
        site.sweep();
        let second = approved(&mut site, 2);
        site.run();
        assert_eq!(merged(&site), [first.to_string(), second.to_string()]);
        assert!(site.builds().contains(&"gate later 2".to_owned()), "{:?}", site.builds());
        assert_eq!(head(&site, "demo").unreadable_projects, before.unreadable_projects);
    }
}

/// C2, C16: a partially read project that the forge refuses is retried later, and the tenant goes
/// live without waiting for it.
#[test]
fn a_project_that_disappears_while_it_is_read_does_not_block_its_tenant() {
    let mut site = site();
    let one = ProjectName::new("forge.test", "org/one");
    let key = tenant::source_key(&"demo".into(), &one);
    let record = site.world.record(&key).unwrap();
    let half = ProjectSource { is_unfinished: true, ..decode(&record).unwrap() };
    let record = Record { body: serde_json::to_string(&half).unwrap(), ..record };
    site.world.write_unchecked(Write::Put { record, expect: Expect::Anything });
    site.store.lock().unwrap().hide_project(&one);
    site.world.write_unchecked(tenant::put_reread(&"demo".into(), &one, "a test").unwrap());
    wake_tenants(&site, &["demo"]);
    site.run();
    let after = head(&site, "demo");
    assert_eq!((after.is_reading, after.layout.wanted), (false, after.layout.live), "{after:?}");
    let source: ProjectSource = decode(&site.world.record(&key).unwrap()).unwrap();
    assert!(
        !source.is_unfinished && source.read_error.is_some() && source.retry_at.is_some(),
        "{source:?}"
    );
}

/// C2: without the source record, the forge and the live layout, the tenant's reading fails and is
/// retried. The tenant does not go live without the project.
#[test]
fn a_lost_project_stops_the_reading_rather_than_count_as_empty() {
    let mut site = site();
    let config = ProjectName::new("forge.test", "org/config");
    let before = head(&site, "demo");
    site.store.lock().unwrap().hide_project(&config);
    damage(&site, |record| record.key == tenant::source_key(&"demo".into(), &config));
    let layout = before.layout_object.clone().unwrap();
    poll_once(site.ports().objects.delete(&layout)).unwrap().unwrap();
    let repos = PlayedRepos::new(site.world.clone(), site.store.clone());
    let cold = Tenants::new(site.ports(), Arc::new(repos), BTreeMap::new());
    let refused =
        poll_once(cold.reconcile_tenant(&"demo".into())).unwrap().unwrap_err().to_string();
    assert!(refused.contains("org/config is lost"), "{refused}");
    assert_eq!(head(&site, "demo"), before);
    // The project is available again at the forge.
    site.store.lock().unwrap().show_project(&config);
    poll_once(cold.reconcile_tenant(&"demo".into())).unwrap().unwrap();
    let change = approved(&mut site, 1);
    site.run();
    assert_eq!(merged(&site), [change.to_string()]);
}

/// Z6.4, C2: a merge that fails permanently is reported as a conflict after a while and not retried
/// for ever. The merge waits for a forge that does not answer.
#[test]
fn a_permanently_failing_merge_is_given_up_and_a_silent_forge_is_waited_for() {
    let project = sluice_model::ProjectName::new("forge.test", "org/one");
    let mut site = site();
    site.store.lock().unwrap().silent.insert(project.clone());
    let waits = approved(&mut site, 1);
    let begun = site.world.now();
    site.run_until(|site| site.world.now().since(begun) > 1_800_000);
    assert_eq!(
        site.ending(&[], &[&waits]).buildsets,
        Vec::<String>::new(),
        "a silent forge for half an hour ends no item"
    );
    site.store.lock().unwrap().silent.clear();
    site.run();
    assert_eq!(merged(&site), [waits.to_string()]);

    site.store
        .lock()
        .unwrap()
        .unmergeable
        .insert(project, "the pack is listed but not there".to_owned());
    let never = approved(&mut site, 2);
    let begun = site.world.now();
    site.run_until(|site| site.ending(&[], &[]).buildsets.len() == 2);
    assert!(site.world.now().since(begun) >= 600_000, "it is retried for a while");
    assert_eq!(site.ending(&[], &[]).buildsets[1], format!("{never} gate MERGE_CONFLICT"));
    let reported = keys(&site, |record| {
        record.body.contains("the pack is listed but not there")
            && record.key.partition.starts_with("buildset#")
    });
    assert_eq!(reported.len(), 1);
    site.run();
    assert_eq!(site.ending(&[], &[&never]).left_over, Vec::<String>::new());
}
