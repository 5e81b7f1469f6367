//! Lines for semaphores: who is told of a free place, and that nobody is passed by for ever,
//! whether he comes with his nodes or without.

use super::bench::{Bench, after};
use super::semaphores::{holding, look_after, of_queue, waits};
use crate::plan::ObservedBuild;
use crate::semaphore::{Semaphore, SemaphoreKey, SemaphoreWaiter};
use sluice_model::build::BuildResult::Success;
use sluice_model::job::JobSummary;
use sluice_model::{QueueKey, Timestamp};

/// Returns a queue of which one change holds the semaphore `lock`, and others that wait for it, in
/// their order.
fn waiting(names: &[&str]) -> (Bench, Vec<Bench>) {
    let mut holder = of_queue("holder", &["lock"]);
    holder.approve("A");
    holder.run();
    let mut all: Vec<Bench> = Vec::new();
    for name in names {
        let mut bench = of_queue(name, &["lock"]);
        let before = all.last().unwrap_or(&holder);
        bench.now = before.now;
        bench.approve("B");
        look_after(&mut bench, before);
        assert_eq!(bench.orders.len(), 0);
        all.push(bench);
    }
    if let Some(last) = all.last() {
        holder.semaphores.clone_from(&last.semaphores);
        holder.now = last.now;
    }
    (holder, all)
}

fn keys(benches: &[Bench]) -> Vec<QueueKey> {
    benches.iter().map(|bench| bench.head.key.clone()).collect()
}

/// Returns a gate whose change takes its semaphores with its nodes in hand.
fn laden(queue: &str, semaphores: &[&str]) -> Bench {
    let mut bench = of_queue(queue, semaphores);
    bench.jobs[0].semaphores[0].resources_first = true;
    bench
}

/// Z4.3: `max` may have been raised since they asked, and each that is told takes its place.
#[test]
fn whoever_gives_a_place_back_tells_as_many_as_may_go_by_now() {
    let (mut holder, mut all) = waiting(&["first", "second", "third", "fourth"]);
    holder.semaphore_max = 3;
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, keys(&all[..3]));
    let mut before = holder;
    for mut bench in all.drain(..3) {
        bench.semaphore_max = 3;
        assert!(look_after(&mut bench, &before).contains("run B deploy"));
        before = bench;
    }
    let fourth = &mut all[0];
    fourth.semaphore_max = 3;
    assert!(!look_after(fourth, &before).contains("run B deploy"));
}

/// Z4.3: `max` may have been lowered too: nobody is told in vain.
#[test]
fn whoever_gives_a_place_back_that_is_none_any_more_tells_nobody() {
    let (mut holder, _) = waiting(&["first"]);
    let semaphore = holder.semaphores.values_mut().next().unwrap();
    let mut other = semaphore.holders[0].clone();
    (other.queue.queue, other.build) = ("elsewhere".into(), "another".into());
    semaphore.holders.push(other);
    holder.end('A', "deploy", Success);
    holder.run();
    let semaphore = holder.semaphores.values().next().unwrap();
    assert_eq!((semaphore.holders.len(), semaphore.waiting.len()), (1, 1));
    assert_eq!(holder.woken, Vec::<QueueKey>::new());
}

/// C2: a place is told to those who can come: who has vanished from the front of the line takes
/// none, and hears of none.
#[test]
fn a_place_is_not_told_to_who_has_vanished_but_to_who_is_behind_him() {
    let (mut holder, mut all) = waiting(&["first", "second", "third"]);
    holder.gone.insert(all[0].head.key.clone());
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, [all[1].head.key.clone()]);
    let mut second = all.remove(1);
    second.gone.insert(all[0].head.key.clone());
    assert!(look_after(&mut second, &holder).contains("run B deploy"));
    // Whoever comes back after all stands in line as before.
    let first = &mut all[0];
    look_after(first, &second);
    assert_eq!(waits(first), ["B waits for semaphores: lock"]);
    second.semaphores.clone_from(&first.semaphores);
    second.end('B', "deploy", Success);
    second.woken.clear();
    second.gone.clear();
    second.run();
    assert_eq!(second.woken, std::slice::from_ref(&first.head.key));
}

/// Z4.3: what has no nodes and asked first gets the semaphore before those that come later with
/// theirs: these ask for none until then. What had asked for nodes by then goes before it.
#[test]
fn a_job_without_nodes_is_not_passed_for_ever_by_those_that_come_with_theirs() {
    let mut holder = of_queue("holder", &["lock"]);
    holder.approve("A");
    holder.run();
    let mut early = laden("early", &["lock"]);
    early.now = holder.now;
    early.approve("C");
    assert!(
        look_after(&mut early, &holder).contains("run C deploy"),
        "its nodes are asked for at once"
    );
    let mut plain = of_queue("plain", &["lock"]);
    plain.now = early.now;
    plain.approve("B");
    look_after(&mut plain, &holder);
    let mut late = laden("late", &["lock"]);
    late.now = plain.now;
    late.approve("D");
    assert_eq!(
        look_after(&mut late, &plain).matches("run").count(),
        0,
        "somebody without nodes asked before it"
    );
    assert_eq!(waits(&late), ["D waits for semaphores: lock"]);
    early.show('C', "deploy", ObservedBuild::NodesReady);
    look_after(&mut early, &late);
    assert_eq!(waits(&early), ["C waits for semaphores: lock"]);

    // The holder ends: who asked first for all that he needs has his nodes.
    holder.semaphores.clone_from(&early.semaphores);
    holder.now = early.now;
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, [early.head.key.clone()]);
    assert!(
        !look_after(&mut plain, &holder).contains("run B"),
        "the place is kept for who has his nodes"
    );
    assert!(look_after(&mut early, &plain).contains("send C deploy"));
    // It ends, and the next is who waits without.
    look_after(&mut late, &early);
    early.semaphores.clone_from(&late.semaphores);
    early.end('C', "deploy", Success);
    early.woken.clear();
    early.run();
    assert_eq!(early.woken, [plain.head.key.clone()]);
    assert_eq!(look_after(&mut late, &early).matches("run").count(), 0);
    assert!(look_after(&mut plain, &late).contains("run B deploy"));
    // Now nobody without nodes is before the last one.
    assert!(look_after(&mut late, &plain).contains("run D deploy"));
    late.show('D', "deploy", ObservedBuild::NodesReady);
    look_after(&mut late, &plain);
    assert_eq!(waits(&late), ["D waits for semaphores: lock"]);
    plain.semaphores.clone_from(&late.semaphores);
    plain.end('B', "deploy", Success);
    plain.run();
    assert!(look_after(&mut late, &plain).contains("send D deploy"));
}

/// Z4.3: nodes that are kept idle may be those that others wait for: whoever has his, having asked
/// for them before he could know of the other, takes what is free.
#[test]
fn a_build_that_has_its_nodes_is_not_kept_waiting_by_who_has_none() {
    let mut holder = of_queue("holder", &["lock"]);
    holder.approve("A");
    holder.run();
    let mut plain = of_queue("plain", &["lock"]);
    plain.now = holder.now;
    plain.approve("B");
    look_after(&mut plain, &holder);
    let mut racing = laden("racing", &["lock"]);
    racing.now = plain.now.plus_millis(5);
    racing.approve("C");
    assert!(
        look_after(&mut racing, &holder).contains("run C deploy"),
        "it read the line before the other stood in it"
    );
    racing.show('C', "deploy", ObservedBuild::NodesReady);
    holder.semaphores.clone_from(&plain.semaphores);
    holder.now = racing.now;
    holder.end('A', "deploy", Success);
    holder.run();
    assert!(look_after(&mut racing, &holder).contains("send C deploy"));
}

/// Z4.3: among those with nodes, too, who asked first goes first: one that needs several is not
/// passed by for ever.
#[test]
fn a_build_with_nodes_that_needs_several_semaphores_is_not_passed_by_those_that_need_one() {
    let mut right = of_queue("right", &["right"]);
    right.approve("A");
    right.run();
    let mut both = laden("both", &["left", "right"]);
    both.now = right.now;
    both.approve("B");
    look_after(&mut both, &right);
    both.show('B', "deploy", ObservedBuild::NodesReady);
    look_after(&mut both, &right);
    assert_eq!(waits(&both), ["B waits for semaphores: right"]);
    let mut left = laden("left", &["left"]);
    left.now = both.now;
    left.approve("C");
    look_after(&mut left, &both);
    left.show('C', "deploy", ObservedBuild::NodesReady);
    look_after(&mut left, &both);
    assert_eq!(
        waits(&left),
        ["C waits for semaphores: left"],
        "what is free is kept for who asked before"
    );
    right.semaphores.clone_from(&left.semaphores);
    right.end('A', "deploy", Success);
    right.run();
    assert_eq!(right.woken, [both.head.key.clone()]);
    assert!(look_after(&mut both, &right).contains("send B deploy"));
    look_after(&mut left, &both);
    both.semaphores.clone_from(&left.semaphores);
    both.end('B', "deploy", Success);
    both.woken.clear();
    both.run();
    assert_eq!(both.woken, [left.head.key.clone()]);
    assert!(look_after(&mut left, &both).contains("send C deploy"));
}

/// Returns a semaphore for which another queue has waited since long ago, as an earlier version
/// wrote it.
fn old_line(name: &str, other: &QueueKey) -> (SemaphoreKey, Semaphore) {
    let key = SemaphoreKey { tenant: Some("t".into()), name: name.to_owned() };
    let waiting = vec![SemaphoreWaiter::new(other, 200, Timestamp(1))];
    (key.clone(), Semaphore { waiting, ..Semaphore::new(key) })
}

/// Z4.3, C2: a line of an earlier version does not say who has nodes: nobody has, and he needs one
/// place. Nodes are asked for where there is another one, and where whoever stands in line cannot
/// come.
#[test]
fn a_job_asks_for_its_nodes_where_those_before_it_leave_a_place() {
    for (max, is_gone, is_asking) in [(1, false, false), (1, true, true), (2, false, true)] {
        let mut bench = laden("one", &["lock"]);
        bench.semaphore_max = max;
        let other = QueueKey { queue: "other".into(), ..bench.head.key.clone() };
        bench.semaphores.extend([old_line("lock", &other)]);
        bench.gone.extend(is_gone.then_some(other));
        bench.approve("A");
        bench.run();
        let line = (!is_asking).then(|| "A waits for semaphores: lock".to_owned());
        let (orders, waiting) = (usize::from(is_asking), line.into_iter().collect::<Vec<_>>());
        assert_eq!(
            (bench.orders.len(), waits(&bench)),
            (orders, waiting),
            "max {max}, gone: {is_gone}"
        );
    }
}

/// Z4.3, J19: what runs beside a paused build asks for its nodes at once: who is before it may wait
/// for what that build holds.
#[test]
fn a_job_beside_a_paused_build_asks_for_its_nodes_whoever_waits() {
    let mut bench = Bench::gate(&[]);
    let registry = holding("registry", &["left"]);
    let needs = after("x", &["registry"]).dependencies;
    let mut beside = JobSummary { dependencies: needs, ..holding("beside", &["right"]) };
    beside.semaphores[0].resources_first = true;
    bench.jobs = vec![registry, beside];
    bench.approve("A");
    bench.run();
    let other = QueueKey { queue: "other".into(), ..bench.head.key.clone() };
    bench.semaphores.extend([old_line("right", &other)]);
    bench.show('A', "registry", ObservedBuild::Paused { started_at: None, data: serde_json::Map::new() });
    assert!(bench.run().contains("run A beside"));
}

/// N16: a place in line keeps what an older reader knows of it, and what a newer one wants to know.
#[test]
fn a_place_in_line_says_who_has_nodes() {
    let (mut holder, all) = waiting(&["first"]);
    let waiter = holder.semaphores.values().next().unwrap().waiting[0].clone();
    assert_eq!((waiter.waiting_since.without_nodes, waiter.waiting_since.with_nodes), (Some(waiter.since), None));
    let text = serde_json::to_string(&waiter).unwrap();
    assert!(text.contains("\"since\"") && !text.contains("with_nodes\":null"), "{text}");
    assert_eq!(serde_json::from_str::<SemaphoreWaiter>(&text).unwrap(), waiter);
    holder.end('A', "deploy", Success);
    holder.run();
    assert_eq!(holder.woken, keys(&all));
}
