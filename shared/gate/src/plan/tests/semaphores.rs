//! Semaphores: never more holders than allowed, all or none, given back when a build is known to be over.

use super::bench::{Bench, job};
use crate::plan::RunSeen;
use insta::assert_snapshot;
use sluice_model::build::BuildResult::{Aborted, Success};
use sluice_model::job::{JobSummary, SemaphoreUse};

pub fn holding(name: &str, semaphores: &[&str]) -> JobSummary {
    let used = |name: &&str| SemaphoreUse { name: (*name).to_owned(), resources_first: false };
    JobSummary { semaphores: semaphores.iter().map(used).collect(), ..job(name) }
}

fn bench(semaphores: &[&str]) -> Bench {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![holding("deploy", semaphores)];
    bench
}

fn waits(bench: &Bench) -> Vec<String> {
    let jobs = bench.items.values().flat_map(|item| item.jobs.iter().map(move |job| (item, job)));
    let waiting = jobs.filter_map(|(item, job)| Some((item, job.waits_for.clone()?)));
    waiting.map(|(item, name)| format!("{} waits for {name}", item.candidate.title)).collect()
}

/// N16: two changes never hold it at once; it is taken before the nodes are asked for, and the one that waits says for what.
#[test]
fn a_semaphore_of_one_is_held_by_one_build_at_a_time() {
    let mut bench = bench(&["lock"]);
    bench.approve("AB");
    assert_snapshot!(bench.run(), @r"
    run A deploy on 0A
    lock held by [A deploy]
    ");
    assert_eq!(waits(&bench), ["B waits for semaphores: lock"]);
    bench.end('A', "deploy", Success);
    assert_snapshot!(bench.run(), @r"
    land A as 0A
    lock held by []
    run B deploy on 0AB
    lock held by [B deploy]
    ");
    assert_eq!(waits(&bench), Vec::<String>::new());
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB"]);
    assert!(bench.semaphores.values().all(|semaphore| semaphore.is_unused()) && bench.head.semaphores.is_empty());
}

/// Z4.3: as many as its max hold it.
#[test]
fn a_semaphore_of_two_is_held_by_two() {
    let mut bench = bench(&["lock"]);
    bench.semaphore_max = 2;
    bench.approve("ABC");
    bench.run();
    assert_eq!(bench.under_way().len(), 2);
    bench.finish();
    assert_eq!(bench.landed.len(), 3);
}

/// Z4.3: who needs two takes both or none, so that no two wait for each other.
#[test]
fn a_job_takes_all_its_semaphores_or_none() {
    let mut bench = Bench::gate(&[]);
    bench.jobs = vec![holding("one", &["left"]), holding("both", &["left", "right"]), holding("other", &["right"])];
    bench.approve("A");
    assert_snapshot!(bench.run(), @r"
    run A one on 0A
    run A other on 0A
    left held by [A one]
    right held by [A other]
    ");
    bench.end('A', "one", Success);
    assert_snapshot!(bench.run(), @"left held by []");
    bench.end('A', "other", Success);
    assert_snapshot!(bench.run(), @r"
    right held by []
    run A both on 0A
    left held by [A both]
    right held by [A both]
    ");
}

/// N17: a new revision gets it once the older one's build, which was told to stop, is known to be over.
#[test]
fn a_build_that_still_runs_holds_on_after_it_was_told_to_stop() {
    let mut bench = bench(&["lock"]);
    bench.approve("A");
    bench.run();
    bench.show('A', "deploy", RunSeen::Running { started_at: None, pre_fail: false });
    bench.run();
    let (_, _, older) = bench.under_way().remove(0);
    bench.revise('A');
    bench.approve("A");
    assert_snapshot!(bench.run(), @r"
    stop A deploy
    A leaves: DEQUEUED
    lock held by [A deploy]
    ");
    assert_eq!(waits(&bench), ["A waits for semaphores: lock"]);
    bench.run_ended(&older, Aborted);
    assert_snapshot!(bench.run(), @r"
    lock held by []
    run A deploy on 0A
    lock held by [A deploy]
    ");
    bench.finish();
    assert!(bench.semaphores.values().all(|semaphore| semaphore.is_unused()));
}

/// N17: a build that nobody had begun gives it back at once.
#[test]
fn a_build_that_was_stopped_before_it_began_holds_nothing() {
    let mut bench = bench(&["lock"]);
    bench.approve("A");
    bench.run();
    bench.seen('A', Some("the change was closed"));
    bench.run();
    assert!(bench.semaphores.values().all(|semaphore| semaphore.is_unused()) && bench.head.semaphores.is_empty());
}

/// N16: whoever waits elsewhere is told when a place is free.
#[test]
fn queues_that_wait_for_it_are_looked_at_when_it_is_given_back() {
    let mut bench = bench(&["lock"]);
    bench.approve("A");
    bench.run();
    let other = sluice_model::QueueKey { pipeline: "post".into(), ..bench.head.key.clone() };
    for semaphore in bench.semaphores.values_mut() {
        semaphore.waiting.push(other.clone());
    }
    bench.end('A', "deploy", Success);
    bench.run();
    assert_eq!(bench.woken, [other]);
}

/// Z4.3: with `resources-first` nodes are asked for at once, and the semaphore is taken when they are ready: who has his
/// nodes first has it first.
#[test]
fn a_semaphore_with_resources_first_is_taken_after_the_nodes() {
    let mut bench = bench(&["lock", "other"]);
    bench.jobs[0].semaphores[0].resources_first = true;
    bench.approve("AB");
    assert_snapshot!(bench.run(), @r"
    run A deploy on 0A
    run B deploy on 0AB
    ");
    assert!(bench.orders.iter().all(|order| order.nodes_first));
    bench.show('B', "deploy", RunSeen::NodesReady);
    assert_snapshot!(bench.run(), @r"
    send B deploy
    lock held by [B deploy]
    other held by [B deploy]
    ");
    bench.show('A', "deploy", RunSeen::NodesReady);
    assert_snapshot!(bench.run(), @"");
    assert_eq!(waits(&bench), ["A waits for semaphores: lock"]);
    // Nobody claims what was sent: it is sent again, and holds what it held.
    bench.now = bench.now.plus_seconds(1_000);
    assert_snapshot!(bench.run(), @"send B deploy");
    bench.show('B', "deploy", RunSeen::Running { started_at: None, pre_fail: false });
    bench.run();
    bench.end('B', "deploy", Success);
    assert_snapshot!(bench.run(), @r"
    lock held by []
    other held by []
    send A deploy
    lock held by [A deploy]
    other held by [A deploy]
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0AB"]);
    assert!(bench.semaphores.values().all(|semaphore| semaphore.is_unused()));
}

/// Z4.3, Z1.8: nodes that are kept for a build which nobody sends are kept from those that the first change waits for.
#[test]
fn a_build_that_has_its_nodes_is_sent_though_the_window_closed_before_it() {
    let mut bench = bench(&["lock"]);
    bench.jobs[0].semaphores[0].resources_first = true;
    bench.approve("AB");
    bench.run();
    bench.head.window = 1;
    bench.show('B', "deploy", RunSeen::NodesReady);
    assert_snapshot!(bench.run(), @r"
    send B deploy
    lock held by [B deploy]
    ");
    bench.show('A', "deploy", RunSeen::NodesReady);
    assert_snapshot!(bench.run(), @"");
    bench.end('B', "deploy", Success);
    assert_snapshot!(bench.run(), @r"
    lock held by []
    send A deploy
    lock held by [A deploy]
    ");
}

/// Z4.3: a job without nodes has nothing to wait for first.
#[test]
fn without_nodes_a_semaphore_is_taken_before_the_build_is_ordered() {
    let mut bench = bench(&["lock"]);
    bench.jobs[0].semaphores[0].resources_first = true;
    bench.jobs[0].labels = vec![Vec::new()];
    bench.approve("AB");
    assert_snapshot!(bench.run(), @r"
    run A deploy on 0A
    lock held by [A deploy]
    ");
}
