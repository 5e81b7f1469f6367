//! Queues that are long, and pipelines that are full.

use super::{CONFIG, MAIN, PROJECT, approve, comments, judge, merged, propose, site};
use sluice_model::change::ChangeKey;
use sluice_model::wakeup::MessageQueue;
use sluice_scenarios::Site;

/// Z6.7: a gate reads only what is new in its queue. With two instances whose caches become
/// outdated alternately, a long queue ends like a short one.
#[test]
fn a_long_queue_lands_in_order_with_two_gate_instances() {
    for seed in 1..4 {
        let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT), ("shared", "0")];
        let repositories: &[(&str, &[(&str, &str)])] =
            &[("org/config", &[("zuul.yaml", CONFIG)]), ("org/one", project)];
        let main = MAIN.replace(", org/two, org/bare, org/noop, org/gone", "");
        let mut site = Site::new(seed, &main, repositories, judge);
        (site.twins, site.twice) = (true, seed % 2 == 0);
        let changes: Vec<ChangeKey> = (1..=45)
            .map(|number| {
                let text = if number % 9 == 0 { "broken unit" } else { "x" };
                propose(&site, number, &[(&format!("f{number}"), text)])
            })
            .collect();
        approve(&mut site, &changes.iter().collect::<Vec<_>>());
        let passing: Vec<u64> = (1..=45).filter(|number| number % 9 != 0).collect();
        assert_eq!(merged(&site), passing, "seed {seed}");
        let ending = site.ending(&["org/one"], &changes.iter().collect::<Vec<_>>());
        assert_eq!(ending.left_over, Vec::<String>::new());
    }
}

/// Z6.1: a full pipeline reports to each rejected change that it is full. Every queue of the
/// pipeline has its own limit.
#[test]
fn a_change_that_does_not_fit_into_a_full_pipeline_gets_a_report() {
    let main = MAIN.replace("name: demo", "name: demo\n    max-changes-per-pipeline: 1");
    let project: &[(&str, &str)] = &[(".zuul.yaml", PROJECT)];
    let repositories: &[(&str, &[(&str, &str)])] =
        &[("org/config", &[("zuul.yaml", CONFIG)]), ("org/one", project), ("org/two", project)];
    let main = main.replace(", org/bare, org/noop, org/gone", "");
    let mut site = Site::new(7, &main, repositories, judge);
    let a = propose(&site, 1, &[("a", "x")]);
    site.run_until(|site| site.is_building() && !site.builds().is_empty());
    let b = site.forge.propose("org/two", 2, "B", "", &[("b", "x")]);
    // B is enqueued while A is being tested.
    site.take_in();
    site.handle(MessageQueue::Gate);
    site.run();
    let text = "Unable to enqueue change: 1 additional changes would exceed pipeline max of 1 under current conditions";
    assert!(comments(&site, &b).contains(text), "{}", comments(&site, &b));
    assert!(!comments(&site, &a).contains("Unable"));
    let c = site.forge.propose("org/two", 3, "C", "", &[("c", "x")]);
    site.run();
    assert!(
        site.builds().contains(&"check unit 3".to_owned()),
        "what left made room: {:?}",
        comments(&site, &c)
    );
    assert_eq!(site.ending(&[], &[&a, &b, &c]).left_over, Vec::<String>::new());
}

/// Z6.1: without a limit, changes are neither counted nor rejected.
#[test]
fn a_pipeline_without_a_limit_accepts_every_change() {
    let mut site = site();
    let changes: Vec<ChangeKey> =
        (1..=5).map(|number| propose(&site, number, &[(&format!("f{number}"), "x")])).collect();
    site.run();
    assert!(changes.iter().all(|change| !comments(&site, change).contains("Unable")));
}
