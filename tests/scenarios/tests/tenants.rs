//! Tenants that come and go with the main configuration, and projects of theirs that nobody can
//! read.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use bytes::Bytes;
use sluice_gate::{InboxMessage, InboxMessageKind};
use sluice_memory::{Fate, poll_once};
use sluice_model::build::{BuildResult, Phase, Run};
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::{Wakeup, MessageQueue};
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

/// Stores this main configuration and pokes these tenants.
fn store(site: &Site, main: &(impl AsRef<[u8]> + ?Sized), poked: &[&str]) {
    let ports = site.ports();
    let text = Bytes::copy_from_slice(main.as_ref());
    poll_once(ports.objects.put(connection::MAIN, text, PutMode::Always, "application/yaml"))
        .unwrap()
        .unwrap();
    poke(site, poked);
}

fn poke(site: &Site, poked: &[&str]) {
    let pokes: Vec<Wakeup> =
        poked.iter().map(|name| Wakeup::Tenant { tenant: TenantName::from(*name) }).collect();
    poll_once(cell::send(&site.ports(), &pokes)).unwrap().unwrap();
}

/// Stores another main configuration, and removes this tenant by it, as
/// `sluice tenant load --remove` does.
fn load(site: &Site, tenants: &[&str], gone: &str) {
    let main = main_of(tenants);
    site.world.write_directly(tenant::put_removal(&TenantName::from(gone), &main).unwrap());
    let poked: Vec<&str> = tenants.iter().copied().chain([gone]).collect();
    store(site, &main, &poked);
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

fn keys(site: &Site, is_wanted: impl Fn(&Record) -> bool) -> Vec<String> {
    site.world
        .records()
        .iter()
        .filter(|record| is_wanted(record))
        .map(|record| record.key.to_string())
        .collect()
}

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

/// R03: what a removed tenant works on leaves unreported, and whatever is approved afterwards lands
/// by nobody's word but the new tenant's.
#[test]
fn a_tenant_that_the_main_configuration_leaves_out_is_emptied_and_lands_nothing_more() {
    let mut site = site();
    let first = approved(&mut site, 1);
    site.run_until(Site::is_building);
    load(&site, &["mine"], "demo");
    // Before the build ends: then it would have landed as it may.
    site.handle(MessageQueue::Tenants);
    site.handle(MessageQueue::Gate);
    site.run();
    assert_eq!(listed(&site), ["mine"]);
    assert_eq!(merged(&site), Vec::<String>::new(), "its builds were stopped");
    let ending = site.ending(&[], &[&first]);
    assert_eq!(ending.buildsets, [format!("{first} gate DEQUEUED")]);
    assert_eq!(ending.left_over, Vec::<String>::new());
    assert_eq!(ending.changes[&first.to_string()].2, 0, "no comment: nobody is there to report");

    let second = approved(&mut site, 2);
    site.run();
    assert_eq!(merged(&site), [second.to_string()]);
    let items = |record: &Record| {
        record.key.partition.starts_with("queue#demo") && record.key.sort.starts_with("item")
    };
    assert_eq!(keys(&site, items), Vec::<String>::new(), "the removed tenant takes nothing in");
    let rest = |record: &Record| record.key.partition == "tenant#demo" && record.key.sort != "head";
    assert_eq!(keys(&site, rest), Vec::<String>::new());
}

/// R03, Z1.7, N17: what a tenant's builds had goes back, nodes and semaphores, though no
/// configuration has the provider any more.
#[test]
fn what_the_builds_of_a_removed_tenant_had_is_given_back() {
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
    // Of another tenant, and without the project that the provider is of.
    let without = "- tenant: {name: other, source: {github: {untrusted-projects: [org/one]}}}\n";
    site.world.write_directly(tenant::put_removal(&"demo".into(), without).unwrap());
    store(&site, without, &["demo", "other"]);
    site.handle(MessageQueue::Tenants);
    site.handle(MessageQueue::Gate);
    // Longer than a launcher remembers what a provider may do.
    site.world.advance_millis(61_000);
    site.run();
    assert_eq!(merged(&site), Vec::<String>::new());
    assert_eq!((site.cloud.running(), keys(&site, held)), (0, Vec::new()));
    let left = |record: &Record| {
        record.key.partition.starts_with("provider#") && record.key.sort != "head"
    };
    assert_eq!(keys(&site, left), Vec::<String>::new());
}

/// R03, Z6.4: what is ordered to land ends its landing; nobody can call it back from the forge.
#[test]
fn a_landing_that_was_ordered_before_its_tenant_was_removed_ends() {
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

/// R03: a main configuration that changes costs the reading of what is new in it: a tenant that
/// stays as it is keeps its layout and reads nothing, one that grows by two repositories reads the
/// files of two, and one that is new works at once.
#[test]
fn another_main_configuration_reads_what_is_new_and_nothing_else() {
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
    poke(&site, &["same", "grows", "gone"]);
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
    site.world.write_directly(tenant::put_removal(&"gone".into(), &next).unwrap());
    store(&site, &next, &[]);
    let mut cost = |name: &str| {
        poke(&site, &[name]);
        site.run();
        fetched.swap(0, Ordering::SeqCst)
    };
    // What another tenant had read of a commit is read no more; what it may define is another thing
    // in each.
    assert_eq!(["same", "gone", "grows", "new"].map(&mut cost), [0, 0, 2, 0]);
    let after = ["same", "grows"]
        .map(|name| (head(&site, name).layout_object, head(&site, name).layout.live));
    assert_eq!(after[0], before[0], "who stays as he is keeps his layout");
    assert!(after[1].0 != before[1].0 && after[1].1 == before[1].1 + 1, "{after:?}");
    assert_eq!(listed(&site), ["grows", "new", "same"]);

    let change = site.forge.propose("org/two", 5, "a change", "", &[("file", "5")]);
    site.run();
    site.forge.approve(&change);
    site.run();
    assert_eq!(merged(&site), [change.to_string()]);
}

/// Z2.2, R03: of a repository that a tenant takes no kind of objects from no file is fetched,
/// neither of its branches nor of its changes, which are gated all the same; once the tenant takes
/// some, what is there by then is read.
#[test]
fn no_file_is_fetched_of_a_repository_that_nothing_is_read_of() {
    let of = |said: &str| {
        format!(
            "- tenant: {{name: demo, source: {{github: {{config-projects: [org/config], untrusted-projects: [org/one{said}]}}}}}}\n"
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
    assert_ne!(without.layout_object, before.layout_object, "nothing of it is there any more");
    // Nobody looks at this, so that it is no mistake.
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

/// R03: a tenant that comes back is read anew, and goes on with the numbers that its queues know.
#[test]
fn a_tenant_that_comes_back_works_again() {
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

/// R03, C2: whatever call a function dies at while a tenant goes, in the end it is gone.
#[test]
fn a_death_while_a_tenant_is_removed_leads_to_the_same_end() {
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
        // The played build ends when it is looked at, and a dead look comes again later: what
        // counts is that nothing is left.
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

/// R03: one look at a main configuration without a tenant decides nothing; it is gone when a later
/// look finds the same.
#[test]
fn one_look_that_misses_a_tenant_removes_nothing() {
    let mut site = site();
    let before = head(&site, "demo");
    let change = approved(&mut site, 1);
    site.run_until(Site::is_building);
    store(&site, &main_of(&["mine"]), &["demo"]);
    site.handle(MessageQueue::Tenants);
    let noted = head(&site, "demo");
    assert!(noted.omitted_since.is_some() && !noted.is_removed);
    assert_eq!(noted.layout, before.layout);
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
    assert!(head(&site, "demo").is_removed, "it stayed so, and the tenant looked again by itself");
    assert_eq!(listed(&site), ["mine"]);
}

/// R03, C07: a main configuration that cannot be read, or names nobody, takes nothing away: tenants
/// go on as they are.
#[test]
fn a_broken_main_configuration_keeps_everything() {
    let mut site = site();
    let before = head(&site, "demo");
    let unknown = main_of(&["demo"]).replace("github:", "no-such-connection:");
    let half = main_of(&["demo"])
        .replace("untrusted-projects: [org/one, org/missing]", "untrusted-projects: 7");
    let all = ["- tenant: {name: [", "[]", "", unknown.as_str(), half.as_str()].map(str::as_bytes);
    for (number, broken) in (1..).zip(all.into_iter().chain([&b"\xff\xfe"[..]])) {
        let told = String::from_utf8_lossy(broken);
        site.world.write_directly(tenant::put_removal(&"demo".into(), &told).unwrap());
        store(&site, broken, &["demo"]);
        site.run();
        is_as_before(&mut site, &before, number);
    }
    poll_once(site.ports().objects.delete(connection::MAIN)).unwrap().unwrap();
    poke(&site, &["demo"]);
    site.run();
    is_as_before(&mut site, &before, 9);
}

fn is_as_before(site: &mut Site, before: &Tenant, number: u64) {
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

/// R06: what an operator takes out is reported after its start was, and stands with who wanted it;
/// its build is aborted.
#[test]
fn a_change_that_an_operator_takes_out_is_told_and_lands_no_more() {
    let mut site = site_with(
        &CONFIG.replace("    success:", "    start: {github: {comment: true}}\n    success:"),
    );
    site.held.insert("unit".to_owned());
    let change = approved(&mut site, 1);
    site.run_until(Site::is_building);
    site.run_now();
    let told = |site: &Site| -> BTreeMap<String, String> {
        let comments = site.forge.change(&change).unwrap().comments;
        comments.into_iter().map(|(marker, (text, _))| (marker, text)).collect()
    };
    let begun = told(&site);
    assert_eq!(begun.values().collect::<Vec<_>>(), ["Starting gate jobs."]);
    let records = site.world.records();
    let queue_key = records
        .iter()
        .find(|record| record.key.sort.starts_with("queue#gate"))
        .expect("it is listed");
    let queue_key = decode(queue_key).unwrap();
    let kind = InboxMessageKind::Dequeue {
        key: change.clone(),
        head: None,
        by: "jo".to_owned(),
        reason: "it hangs".to_owned(),
    };
    let word = InboxMessage {
        id: InboxMessageId("word".to_owned()),
        at: site.world.now(),
        event_id: "operator".to_owned(),
        layout: 0,
        by_operator: true,
        in_progress: false,
        kind,
    };
    site.world.write_directly(queue::put_message(&queue_key, &word).unwrap());
    poll_once(cell::send(&site.ports(), &[Wakeup::Queue { queue: queue_key }])).unwrap().unwrap();
    site.handle(MessageQueue::Gate);
    site.run();
    let ending = site.ending(&[], &[&change]);
    assert_eq!((merged(&site), ending.left_over), (Vec::new(), Vec::<String>::new()));
    assert_eq!(ending.buildsets, [format!("{change} gate DEQUEUED")]);
    let mut ended = told(&site);
    ended.retain(|marker, _| !begun.contains_key(marker));
    let [canceled] = ended.values().collect::<Vec<_>>()[..] else {
        panic!("the dequeue is reported once: {ended:?}")
    };
    assert!(
        canceled.starts_with("Build canceled.\n\nan operator dequeued it: it hangs\n"),
        "{canceled}"
    );
    assert!(canceled.contains("- unit : ABORTED") && !canceled.contains("jo took"), "{canceled}");
    assert_eq!(ending.changes[&change.to_string()].2, 2, "and so is the start");
    let runs: Vec<Record> =
        site.world.records().into_iter().filter(|record| record.key.sort == "run").collect();
    let [run] = runs.as_slice() else { panic!("it has one build: {runs:?}") };
    let Phase::Ended(end) = decode::<Run>(run).unwrap().phase else {
        panic!("it is over: {}", run.body)
    };
    assert_eq!(end.result, BuildResult::Aborted);
    let kept = keys(&site, |record| {
        record.key.partition.starts_with("buildset#")
            && record.body.contains("jo dequeued it: it hangs")
    });
    assert_eq!(kept.len(), 1);
}

/// C16: a repository that cannot be read is a mistake of the configuration that is told where
/// mistakes are looked for.
#[test]
fn a_project_that_cannot_be_read_is_counted_and_named_among_the_mistakes() {
    let site = site();
    let head = head(&site, "demo");
    assert_eq!((head.errors, head.unreadable_projects.len()), (1, 1));
    assert_eq!(head.unreadable_projects[0].project.name(), "org/missing");
    assert!(!head.unreadable_projects[0].why.is_empty());
}

/// Damages a record's body in place.
fn damage(site: &Site, is_wanted: impl Fn(&Record) -> bool) {
    let found: Vec<Record> =
        site.world.records().into_iter().filter(|record| is_wanted(record)).collect();
    assert!(!found.is_empty(), "there is such a record");
    for record in found {
        let record = Record { body: "{\"of\": \"somebody else\"}".to_owned(), ..record };
        site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    }
}

/// C2: a record that nobody can read stops nothing but itself: not the other tenants' events, not a
/// tenant's reading.
#[test]
fn a_record_that_cannot_be_read_stops_nobody_else() {
    let mut site = site();
    store(&site, &main_of(&["demo", "mine"]), &["demo", "mine"]);
    site.run();
    let number = head(&site, "demo").layout.live;
    // The other tenant's head, what was read of projects, and a mark of one to read again.
    damage(&site, |record| record.key.partition == "tenant#mine" && record.key.sort == "head");
    damage(&site, |record| {
        record.key.partition == "tenant#demo" && record.key.sort.starts_with("source#")
    });
    let project = sluice_model::ProjectName::new("forge.test", "org/config");
    site.world.write_directly(tenant::put_reread(&"demo".into(), &project, "a test").unwrap());
    damage(&site, |record| {
        record.key.partition == "tenant#demo" && record.key.sort.starts_with("reread#")
    });
    poke(&site, &["demo"]);
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

/// C2, C16: a record that nobody can read and a forge that does not give the project together take
/// nothing away: what is live stands in for it, is told as a problem, and is read anew as soon as
/// the forge gives it.
#[test]
fn a_damaged_record_and_a_refusing_forge_take_no_configuration_away() {
    let config = ProjectName::new("forge.test", "org/config");
    let refuse = |site: &Site, is_gone: bool, on: bool| {
        let mut store = site.store.lock().unwrap();
        match is_gone {
            true => store.set_missing(&config, on),
            false => store.set_unreadable(&config, on.then_some("it is too large")),
        }
    };
    for is_gone in [true, false] {
        let mut site = site();
        let before = head(&site, "demo");
        refuse(&site, is_gone, true);
        damage(&site, |record| record.key == tenant::source_key(&"demo".into(), &config));
        site.world.write_directly(tenant::put_reread(&"demo".into(), &config, "a test").unwrap());
        poke(&site, &["demo"]);
        site.run();
        let after = head(&site, "demo");
        assert_eq!(
            (&after.layout_object, after.errors),
            (&before.layout_object, before.errors + 1),
            "{after:?}"
        );
        assert!(after.unreadable_projects.iter().any(|problem| problem.project == config), "{after:?}");
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

/// C2, C16: a project that was read by half when its forge refused it is tried again later, and the
/// tenant goes live without waiting for it.
#[test]
fn a_project_that_is_gone_before_all_of_it_was_read_keeps_no_tenant_busy() {
    let mut site = site();
    let one = ProjectName::new("forge.test", "org/one");
    let key = tenant::source_key(&"demo".into(), &one);
    let record = site.world.record(&key).unwrap();
    let half = ProjectSource { is_unfinished: true, ..decode(&record).unwrap() };
    let record = Record { body: serde_json::to_string(&half).unwrap(), ..record };
    site.world.write_directly(Write::Put { record, expect: Expect::Anything });
    site.store.lock().unwrap().set_missing(&one, true);
    site.world.write_directly(tenant::put_reread(&"demo".into(), &one, "a test").unwrap());
    poke(&site, &["demo"]);
    site.run();
    let after = head(&site, "demo");
    assert_eq!((after.is_reading, after.layout.wanted), (false, after.layout.live), "{after:?}");
    let source: ProjectSource = decode(&site.world.record(&key).unwrap()).unwrap();
    assert!(
        !source.is_unfinished && source.read_error.is_some() && source.retry_at.is_some(),
        "{source:?}"
    );
}

/// C2: where not even the live layout is left to stand in, the tenant's reading fails and is tried
/// again; it does not go on without the project.
#[test]
fn what_nobody_has_any_more_stops_the_reading_rather_than_be_taken_for_nothing() {
    let mut site = site();
    let config = ProjectName::new("forge.test", "org/config");
    let before = head(&site, "demo");
    site.store.lock().unwrap().set_missing(&config, true);
    damage(&site, |record| record.key == tenant::source_key(&"demo".into(), &config));
    let layout = before.layout_object.clone().unwrap();
    poll_once(site.ports().objects.delete(&layout)).unwrap().unwrap();
    let repos = PlayedRepos::new(site.world.clone(), site.store.clone());
    let cold = Tenants::new(site.ports(), Arc::new(repos), BTreeMap::new());
    let refused = poll_once(cold.reconcile_tenant(&"demo".into())).unwrap().unwrap_err().to_string();
    assert!(refused.contains("org/config is lost"), "{refused}");
    assert_eq!(head(&site, "demo"), before);
    // Its forge is all that it takes.
    site.store.lock().unwrap().set_missing(&config, false);
    poll_once(cold.reconcile_tenant(&"demo".into())).unwrap().unwrap();
    let change = approved(&mut site, 1);
    site.run();
    assert_eq!(merged(&site), [change.to_string()]);
}

/// Z6.4, C2: a state that can never be made is told to the author after a while, rather than asked
/// for again for ever; a forge that is only silent is waited for.
#[test]
fn a_merge_that_cannot_be_made_is_given_up_and_a_silent_forge_is_not() {
    let project = sluice_model::ProjectName::new("forge.test", "org/one");
    let mut site = site();
    site.store.lock().unwrap().silent.insert(project.clone());
    let waits = approved(&mut site, 1);
    let begun = site.world.now();
    site.run_until(|site| site.world.now().since(begun) > 1_800_000);
    assert_eq!(
        site.ending(&[], &[&waits]).buildsets,
        Vec::<String>::new(),
        "half an hour is no reason"
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
    assert!(site.world.now().since(begun) >= 600_000, "it is tried for a while");
    assert_eq!(site.ending(&[], &[]).buildsets[1], format!("{never} gate MERGE_CONFLICT"));
    let told = keys(&site, |record| {
        record.body.contains("the pack is listed but not there")
            && record.key.partition.starts_with("buildset#")
    });
    assert_eq!(told.len(), 1);
    site.run();
    assert_eq!(site.ending(&[], &[&never]).left_over, Vec::<String>::new());
}
