//! Events that arrive while a tenant's new layout is not live are deferred and processed later.

use sluice_memory::{Fate, PendingCall};
use sluice_model::build::BuildResult;
use sluice_model::wakeup::MessageQueue;
use sluice_records::codec::decode;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::Clock as _;
use sluice_scenarios::Site;
use sluice_scenarios::sample::{BASE, COMMON, PIPELINES, cloud};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MAIN: &str = "- tenant: {name: demo, source: {github: {config-projects: [org/config], untrusted-projects: [org/one, org/two]}}}\n";
const JOBS: &str = "- job: {name: unit, run: playbooks/unit.yaml}\n";
const PROJECT: &str = "- project: {check: {jobs: [unit]}, gate: {jobs: [unit]}}\n";

/// Returns a site with an ordered landing of a configuration change.
fn site_with_pending_layout() -> Site {
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT)];
    let config = [PIPELINES, BASE, JOBS, COMMON, &cloud(8)].concat();
    let config: &[(&str, &str)] = &[("zuul.yaml", &config)];
    let mut site = Site::new(
        5,
        MAIN,
        &[("org/config", config), ("org/one", project), ("org/two", project)],
        |_, _, _| BuildResult::Success,
    );
    let edited = format!("{PROJECT}# edited\n");
    let change = site.forge.propose("org/one", 1, "configuration", "", &[(".zuul.yaml", &edited)]);
    site.run();
    site.forge.approve(&change);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site
}

/// Z6.1, C5: the queue of a new change has no items, so the new layout causes no wakeup for it.
#[test]
fn a_change_that_is_proposed_while_a_layout_is_pending_is_checked() {
    let mut site = site_with_pending_layout();
    let change = site.forge.propose("org/two", 2, "meanwhile", "", &[("file", "2")]);
    site.take_in();
    site.handle(MessageQueue::Gate);
    site.run();
    let ending = site.ending(&[], &[&change]);
    assert!(ending.buildsets.contains(&format!("{change} check SUCCESS")), "{ending:?}");
    assert_eq!(ending.left_over, Vec::<String>::new());
}

/// Z6.4, C5: the same for an approved change, with one and with two gate instances.
#[test]
fn a_change_that_is_approved_while_a_layout_is_pending_is_gated() {
    for twins in [false, true] {
        let mut site = site_with_pending_layout();
        site.twins = twins;
        let change = site.forge.propose("org/one", 3, "meanwhile", "", &[("file", "3")]);
        site.forge.approve(&change);
        site.take_in();
        site.handle(MessageQueue::Gate);
        site.run();
        let ending = site.ending(&[], &[&change]);
        assert!(ending.buildsets.contains(&format!("{change} gate SUCCESS")), "{ending:?}");
        assert_eq!(ending.left_over, Vec::<String>::new());
    }
}

fn tenant(site: &Site) -> Tenant {
    let record =
        site.world.records().into_iter().find(|record| record.key == tenant::key(&"demo".into()));
    decode(&record.expect("the tenant has a record")).unwrap()
}

/// C01, C5: a stuck landing of a configuration change delays its tenant for minutes only. The
/// tenant reports the problem, continues with its layout, and reads the change when it has landed.
#[test]
fn a_tenant_continues_while_a_landing_of_its_configuration_is_stuck() {
    let mut site = site_with_pending_layout();
    let (began, before) = (site.world.now(), tenant(&site));
    assert!(before.layout.wanted > before.layout.live);
    let is_silent = Arc::new(AtomicBool::new(true));
    let silent = Arc::clone(&is_silent);
    let fails =
        move |step: PendingCall| step.name == "forge.merge" && silent.load(Ordering::SeqCst);
    site.world.decide_fates(move |step| if fails(step) { Fate::FailsBefore } else { Fate::Works });
    site.run_until(|site| tenant(site).layout.live == before.layout.wanted);
    let waited_seconds = site.world.now().since(began) / 1_000;
    assert!((600..1_200).contains(&waited_seconds), "{waited_seconds}");
    let delayed = tenant(&site);
    assert_eq!(
        (delayed.landings.len(), delayed.layout_object.as_ref()),
        (1, before.layout_object.as_ref())
    );
    let [problem] = delayed.unreadable_projects.as_slice() else {
        panic!("{:?}", delayed.unreadable_projects)
    };
    assert!(
        problem.why.contains("org/one#1") && problem.why.contains("has not been merged since"),
        "{}",
        problem.why
    );
    assert_eq!(delayed.errors, before.errors + 1);
    site.run_until(|site| {
        let items =
            site.world.records().into_iter().filter(|record| record.key.sort.starts_with("item#"));
        items.into_iter().any(|record| record.body.contains("it cannot be merged since"))
    });

    is_silent.store(false, Ordering::SeqCst);
    site.run();
    site.sweep();
    let after = tenant(&site);
    assert_eq!(
        (after.landings.len(), after.unreadable_projects.as_slice(), after.errors),
        (0, &[][..], before.errors)
    );
    assert_eq!(after.layout.live, before.layout.wanted + 1, "the landed change is read");
    assert_ne!(after.layout_object, before.layout_object);
    assert_eq!(site.forge.merges().len(), 1);
    let ending = site.ending(&[], &[]);
    assert!(ending.buildsets.contains(&"org/one#1 gate SUCCESS".to_owned()), "{ending:?}");
}

/// Returns a site with an ordered landing of a bundle of two configuration changes.
fn site_with_pending_bundle() -> Site {
    let projects = PROJECT.replace("- project: {", "- project: {queue: integrated, ");
    let project: &[(&str, &str)] = &[(".zuul.yaml", &projects)];
    let cycles = "- queue: {name: integrated, allow-circular-dependencies: true}\n";
    let config = [
        PIPELINES,
        BASE,
        JOBS,
        &COMMON.replace("- queue: {name: integrated}\n", cycles),
        &cloud(8),
    ]
    .concat();
    let config: &[(&str, &str)] = &[("zuul.yaml", &config)];
    let mut site = Site::new(
        5,
        MAIN,
        &[("org/config", config), ("org/one", project), ("org/two", project)],
        |_, _, _| BuildResult::Success,
    );
    let edited = format!("{projects}# edited\n");
    let edits: &[(&str, &str)] = &[(".zuul.yaml", &edited)];
    let a = site.forge.propose(
        "org/one",
        1,
        "A",
        "Depends-On: https://forge.test/org/two/pull/2",
        edits,
    );
    let b = site.forge.propose(
        "org/two",
        2,
        "B",
        "Depends-On: https://forge.test/org/one/pull/1",
        edits,
    );
    site.run();
    site.forge.approve(&a);
    site.forge.approve(&b);
    site.run_until(|site| {
        site.world.records().iter().any(|record| record.key.partition.starts_with("landing#"))
    });
    site
}

/// C01, C5, Z6.5: while the landing of the first member of a bundle is stuck, the tenant keeps both
/// landings pending, and reads both changes when they have landed.
#[test]
fn a_tenant_keeps_both_landings_of_a_bundle_pending_while_the_first_is_stuck() {
    let mut site = site_with_pending_bundle();
    let before = tenant(&site);
    assert_eq!(before.landings.len(), 2);
    let is_silent = Arc::new(AtomicBool::new(true));
    let silent = Arc::clone(&is_silent);
    let fails =
        move |step: PendingCall| step.name == "forge.merge" && silent.load(Ordering::SeqCst);
    site.world.decide_fates(move |step| if fails(step) { Fate::FailsBefore } else { Fate::Works });
    site.run_until(|site| tenant(site).layout.live == before.layout.wanted);
    let delayed = tenant(&site);
    assert_eq!((delayed.landings.len(), delayed.unreadable_projects.len()), (2, 2), "{delayed:?}");
    assert!(
        delayed.unreadable_projects.iter().all(|problem| problem.why.contains("org/one#1")),
        "{:?}",
        delayed.unreadable_projects
    );

    is_silent.store(false, Ordering::SeqCst);
    site.run();
    site.sweep();
    let after = tenant(&site);
    assert_eq!((after.landings.len(), after.unreadable_projects.len()), (0, 0), "{after:?}");
    assert!(
        after.layout.live == after.layout.wanted && after.layout_object != before.layout_object
    );
    assert_eq!(site.forge.merges().len(), 2);
}
