//! What arrives while a tenant's configuration settles waits, and is not forgotten.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use sluice_memory::{Fate, Step};
use sluice_model::build::BuildResult;
use sluice_model::poke::Queue;
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

/// Returns a site at which a change of configuration is ordered to land.
fn settling() -> Site {
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

/// Z6.1, C5: the queue of a new change holds nothing yet, so nobody pokes it when the layout is
/// live.
#[test]
fn a_change_that_is_proposed_while_a_layout_settles_is_checked() {
    let mut site = settling();
    let change = site.forge.propose("org/two", 2, "meanwhile", "", &[("file", "2")]);
    site.take_in();
    site.handle(Queue::Gate);
    site.run();
    let ending = site.ending(&[], &[&change]);
    assert!(ending.buildsets.contains(&format!("{change} check SUCCESS")), "{ending:?}");
    assert_eq!(ending.left_over, Vec::<String>::new());
}

/// Z6.4, C5: the same for one that is approved, whichever of two gates sees what.
#[test]
fn a_change_that_is_approved_while_a_layout_settles_is_gated() {
    for twins in [false, true] {
        let mut site = settling();
        site.twins = twins;
        let change = site.forge.propose("org/one", 3, "meanwhile", "", &[("file", "3")]);
        site.forge.approve(&change);
        site.take_in();
        site.handle(Queue::Gate);
        site.run();
        let ending = site.ending(&[], &[&change]);
        assert!(ending.buildsets.contains(&format!("{change} gate SUCCESS")), "{ending:?}");
        assert_eq!(ending.left_over, Vec::<String>::new());
    }
}

fn tenant(site: &Site) -> Tenant {
    let record =
        site.world.records().into_iter().find(|record| record.key == tenant::key(&"demo".into()));
    decode(&record.expect("the tenant is there")).unwrap()
}

/// C01, C5: a landing that nobody can carry out stops its tenant for minutes and not for good: the
/// tenant says so, goes on with what it has, and reads what the landing brings when it ends.
#[test]
fn a_tenant_goes_on_while_a_landing_of_its_configuration_cannot_be_carried_out() {
    let mut site = settling();
    let (began, before) = (site.world.now(), tenant(&site));
    assert!(before.layout.wanted > before.layout.live);
    let is_silent = Arc::new(AtomicBool::new(true));
    let silent = Arc::clone(&is_silent);
    let fails = move |step: Step| step.name == "forge.merge" && silent.load(Ordering::SeqCst);
    site.world.decide_fates(move |step| if fails(step) { Fate::FailsBefore } else { Fate::Works });
    site.run_until(|site| tenant(site).layout.live == before.layout.wanted);
    let waited_seconds = site.world.now().since(began) / 1_000;
    assert!((600..1_200).contains(&waited_seconds), "{waited_seconds}");
    let told = tenant(&site);
    assert_eq!(
        (told.landings.len(), told.layout_object.as_ref()),
        (1, before.layout_object.as_ref())
    );
    let [problem] = told.problems.as_slice() else { panic!("{:?}", told.problems) };
    assert!(
        problem.why.contains("org/one#1") && problem.why.contains("cannot be landed since"),
        "{}",
        problem.why
    );
    assert_eq!(told.errors, before.errors + 1);
    site.run_until(|site| {
        let items =
            site.world.records().into_iter().filter(|record| record.key.sort.starts_with("item#"));
        items
            .into_iter()
            .any(|record| record.body.contains("its landing cannot be carried out since"))
    });

    is_silent.store(false, Ordering::SeqCst);
    site.run();
    site.sweep();
    let after = tenant(&site);
    assert_eq!(
        (after.landings.len(), after.problems.as_slice(), after.errors),
        (0, &[][..], before.errors)
    );
    assert_eq!(after.layout.live, before.layout.wanted + 1, "what landed in the end is read");
    assert_ne!(after.layout_object, before.layout_object);
    assert_eq!(site.forge.merges().len(), 1);
    let ending = site.ending(&[], &[]);
    assert!(ending.buildsets.contains(&"org/one#1 gate SUCCESS".to_owned()), "{ending:?}");
}

/// Returns a site at which two changes of configuration that need each other are ordered to land.
fn settling_pair() -> Site {
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

/// C01, C5, Z6.5: what the second change of a bundle brings is not over while its first one cannot
/// be carried out: it is kept in mind, and read when it has landed.
#[test]
fn a_tenant_keeps_the_whole_of_a_bundle_in_mind_whose_first_landing_cannot_be_carried_out() {
    let mut site = settling_pair();
    let before = tenant(&site);
    assert_eq!(before.landings.len(), 2);
    let is_silent = Arc::new(AtomicBool::new(true));
    let silent = Arc::clone(&is_silent);
    let fails = move |step: Step| step.name == "forge.merge" && silent.load(Ordering::SeqCst);
    site.world.decide_fates(move |step| if fails(step) { Fate::FailsBefore } else { Fate::Works });
    site.run_until(|site| tenant(site).layout.live == before.layout.wanted);
    let told = tenant(&site);
    assert_eq!((told.landings.len(), told.problems.len()), (2, 2), "{told:?}");
    assert!(
        told.problems.iter().all(|problem| problem.why.contains("org/one#1")),
        "{:?}",
        told.problems
    );

    is_silent.store(false, Ordering::SeqCst);
    site.run();
    site.sweep();
    let after = tenant(&site);
    assert_eq!((after.landings.len(), after.problems.len()), (0, 0), "{after:?}");
    assert!(
        after.layout.live == after.layout.wanted && after.layout_object != before.layout_object
    );
    assert_eq!(site.forge.merges().len(), 2);
}
