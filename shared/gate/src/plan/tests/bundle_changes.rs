//! Changes that need each other, in the rarer turns of a bundle's life: builds that only one of
//! them sees the end of, needs that change, branches that move while jobs are frozen again (Z6.5).

use super::bench::{Bench, after, job};
use crate::plan::{LayoutNumbers, ObservedBuild};
use crate::report::ReportAction;
use insta::assert_snapshot;
use sluice_model::LabelName;
use sluice_model::build::BuildResult::{Failure, Retry, Success};
use sluice_model::event::ZuulEvent;
use sluice_model::job::{JobSummary, BuildSharing};

fn gate() -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.in_project('B', "two");
    bench
}

fn order(bench: &Bench) -> String {
    let slots = bench.head.slots.iter();
    slots.filter_map(|slot| char::from_u32(slot.change.key.number()? as u32)).collect()
}

/// Gives A and B this many jobs that both run alike, with these nodesets.
fn sharing(jobs: usize, labels: &[&str]) -> Bench {
    let labels: Vec<Vec<LabelName>> =
        labels.iter().map(|label| vec![LabelName::from(*label)]).collect();
    let shared = |at| JobSummary {
        sharing: BuildSharing::InBundle,
        labels: labels.clone(),
        ..job(&format!("job-{at:02}"))
    };
    let mut bench = gate();
    bench.jobs = (0..jobs).map(shared).collect();
    bench.approve_cycle("AB", "");
    bench.run();
    bench
}

/// Has no provider give nodes to any build, and lets so much happen in one plan that B does not see
/// it; who reads a request that nobody wants any more finds none.
fn without_nodes(bench: &mut Bench) {
    for (_, _, build) in bench.under_way() {
        bench.runs.insert(build, ObservedBuild::NoNodes("the cloud is full".to_owned()));
    }
    bench.look();
    bench.runs.retain(|_, seen| !matches!(seen, ObservedBuild::NoNodes(_)));
}

/// D15, N02: B's jobs end with those of A that they share, though only A read what became of their
/// nodes.
#[test]
fn a_shared_build_without_nodes_ends_for_all_that_share_it() {
    let mut bench = sharing(88, &["small"]);
    without_nodes(&mut bench);
    assert!(!bench.under_way().is_empty(), "not all of it was seen in one plan");
    bench.run();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE"]);
    assert!(
        bench.comments().iter().filter(|text| text.contains("job-87 : NODE_FAILURE")).count() == 2
    );
}

/// D15, N14: so do they follow it to the next nodeset.
#[test]
fn a_shared_build_that_asks_for_its_next_nodeset_is_followed() {
    let mut bench = sharing(44, &["small", "large"]);
    without_nodes(&mut bench);
    bench.finish();
    assert_eq!(
        (bench.left.as_slice(), bench.orders.len()),
        (&["A SUCCESS".to_owned(), "B SUCCESS".to_owned()][..], 88)
    );
}

/// D15: who takes over a build that the other one no longer wants sees to it from there.
#[test]
fn a_shared_build_is_seen_to_by_the_one_that_is_left() {
    let mut bench = sharing(1, &["small"]);
    let mut other = bench.jobs.clone();
    other[0].hash = "another".to_owned();
    bench.own_jobs.insert('A', other);
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    assert_snapshot!(bench.run(), @"run A job-00 on 0A");
    bench.show('B', "job-00", ObservedBuild::NoNodes("the cloud is full".to_owned()));
    bench.end('A', "job-00", Success);
    bench.run();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE"]);
}

/// Returns which jobs of which changes are under way.
fn at_work(bench: &Bench) -> Vec<(char, String)> {
    bench.under_way().into_iter().map(|(change, job, _)| (change, job)).collect()
}

/// D15, J12: what A's own jobs came to says nothing of B's, whenever B takes A's build over.
#[test]
fn a_job_that_is_skipped_for_a_job_of_its_own_change_runs_for_the_other() {
    let mut bench = gate();
    bench.jobs = vec![
        JobSummary { sharing: BuildSharing::InBundle, ..job("build") },
        JobSummary { voting: false, ..job("lint") },
        after("deploy", &["build", "lint"]),
    ];
    bench.approve_cycle("AB", "");
    bench.run();
    bench.end('A', "lint", Failure);
    bench.end('B', "lint", Success);
    bench.run();
    bench.end('A', "build", Retry);
    assert_snapshot!(bench.run(), @"run A build (attempt 2) on 0A");
    bench.end('A', "build", Success);
    bench.run();
    assert_eq!(at_work(&bench), [('B', "deploy".to_owned())]);
    bench.end('B', "deploy", Failure);
    bench.run();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE"]);
}

/// D15, Z4.3: what A's build left out is left out for B as well, which did not see its end.
#[test]
fn a_job_that_a_shared_build_left_out_is_left_out_for_all_that_share_it() {
    let jobs = |hash: &str| {
        let build = JobSummary { sharing: BuildSharing::InBundle, hash: hash.to_owned(), ..job("build") };
        vec![
            build,
            after("deploy", &["build"]),
            after("notes", &["build"]),
            after("mail", &["deploy", "build"]),
        ]
    };
    let mut bench = gate();
    bench.own_jobs.insert('A', jobs("one"));
    bench.own_jobs.insert('B', jobs("two"));
    bench.approve_cycle("AB", "");
    bench.run();
    let chosen = serde_json::json!({ "zuul": { "child_jobs": ["notes", "mail"] } });
    bench.end_returning('A', "build", Success, chosen.as_object().cloned().unwrap());
    bench.run();
    // By now B's job is A's, and nothing of `mail` needs what was left out.
    let mut others = jobs("one");
    others[3] = after("mail", &["build"]);
    others[3].hash = "mail-2".to_owned();
    bench.own_jobs.insert('B', others);
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    let expected = [('A', "notes"), ('B', "notes"), ('B', "mail")]
        .map(|(change, job)| (change, job.to_owned()));
    assert_eq!(at_work(&bench), expected);
}

/// D15, Z4.3: so is a job that only the change has behind it which takes the build over after its
/// end.
#[test]
fn a_shared_build_that_ended_leaves_out_what_the_other_change_alone_has_behind_it() {
    let build =
        |hash: &str| JobSummary { sharing: BuildSharing::InBundle, hash: hash.to_owned(), ..job("build") };
    for chosen in [serde_json::json!(["mail", 7]), serde_json::json!([]), serde_json::Value::Null] {
        let mut bench = gate();
        bench.own_jobs.insert('A', vec![build("one"), after("deploy", &["build"])]);
        bench.own_jobs.insert('B', vec![build("two")]);
        bench.approve_cycle("AB", "");
        bench.run();
        let returned = serde_json::json!({ "zuul": { "child_jobs": chosen } });
        bench.end_returning('A', "build", Success, returned.as_object().cloned().unwrap());
        bench.run();
        bench
            .own_jobs
            .insert('B', vec![build("one"), after("notes", &["build"]), after("mail", &["build"])]);
        bench.layout = LayoutNumbers { wanted: 2, live: 2 };
        bench.run();
        let expected: &[(char, &str)] = match chosen.as_array().map(Vec::len) {
            None => &[('A', "deploy"), ('B', "notes"), ('B', "mail")],
            Some(0) => &[],
            Some(_) => &[('B', "mail")],
        };
        let expected: Vec<_> =
            expected.iter().map(|(change, job)| (*change, (*job).to_owned())).collect();
        assert_eq!(at_work(&bench), expected, "{chosen}");
        bench.finish();
        assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"], "{chosen}");
    }
}

/// Returns what a build says of a file and to people.
fn saying() -> serde_json::Map<String, serde_json::Value> {
    let told = serde_json::json!({ "zuul": {
        "warnings": ["the mirror was slow"],
        "file_comments": { "a.py": [{ "line": 3, "message": "unused" }] },
    } });
    told.as_object().cloned().unwrap()
}

/// Returns what is told beside lines: of which change, how much its own builds say, and how much
/// those that it took over.
fn lines(bench: &Bench) -> Vec<(char, usize, usize)> {
    let actions = bench
        .reports
        .iter()
        .flat_map(|report| report.actions.iter().map(move |action| (report, action)));
    let told = actions.filter_map(|(report, action)| match action {
        ReportAction::Lines { notes, shared_build_notes: of_mates, .. } => {
            Some((char::from_u32(report.change.key.number()? as u32)?, notes.len(), of_mates.len()))
        }
        _ => None,
    });
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    told
}

/// D15, Z7.4: each change is told what a build says that runs for both, whenever it took the build
/// over.
#[test]
fn what_a_shared_build_says_is_told_to_all_that_share_it() {
    let build =
        |hash: &str| JobSummary { sharing: BuildSharing::InBundle, hash: hash.to_owned(), ..job("build") };
    for is_over in [false, true] {
        let mut bench = gate();
        bench.own_jobs.insert('A', vec![build("one")]);
        bench.own_jobs.insert('B', vec![build(if is_over { "two" } else { "one" })]);
        bench.approve_cycle("AB", "");
        bench.run();
        bench.end_returning('A', "build", Success, saying());
        bench.run();
        if is_over {
            bench.own_jobs.insert('B', vec![build("one")]);
            bench.layout = LayoutNumbers { wanted: 2, live: 2 };
            bench.run();
            assert!(at_work(&bench).is_empty(), "B's is A's, which has ended");
        }
        bench.finish();
        assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"]);
        let warned = bench
            .comments()
            .iter()
            .filter(|text| text.contains("- build : the mirror was slow"))
            .count();
        assert_eq!(
            (warned, lines(&bench)),
            (2, vec![('A', 1, 0), ('B', 0, 1)]),
            "over before: {is_over}"
        );
    }
}

/// D15, Z7.4: what a build says that a change ordered itself, after one that it shared, is its own.
#[test]
fn what_a_further_attempt_says_is_told_of_the_change_that_ordered_it() {
    let mut bench = sharing(1, &["small"]);
    let mut other = bench.jobs.clone();
    other[0].hash = "another".to_owned();
    bench.own_jobs.insert('A', other);
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    bench.end('B', "job-00", Retry);
    assert!(bench.run().contains("run B job-00 (attempt 2)"), "nobody shares it any more");
    bench.end_returning('B', "job-00", Success, saying());
    bench.finish();
    assert_eq!((lines(&bench), bench.left.len()), (vec![('B', 1, 0)], 2));
}

/// Z6.5: what one of them needs by now stands ahead of both, so that nothing has to begin again.
#[test]
fn a_bundle_stays_where_what_it_needs_by_now_stands_ahead() {
    let mut bench = gate();
    bench.approve("N");
    bench.approve_cycle("AB", "");
    bench.run();
    bench.seen_needing('A', "BN");
    assert_snapshot!(bench.run(), @"");
    // B's own news says the same of it, for the two need the same.
    bench.seen_needing('B', "AN");
    assert_snapshot!(bench.run(), @"");
    bench.end('N', "unit", Failure);
    bench.finish();
    assert_eq!(bench.left, ["N FAILURE", "A FAILURE", "B FAILURE"]);
}

/// Z6.5: what stands behind them comes first by then.
#[test]
fn a_bundle_moves_behind_what_it_needs_by_now() {
    let mut bench = gate();
    bench.approve_cycle("AB", "");
    bench.approve("N");
    bench.run();
    bench.seen_needing('B', "AN");
    bench.run();
    assert_eq!(order(&bench), "NAB");
    bench.finish();
    assert_eq!(bench.landed, ["0N", "0NA", "0B"]);
}

/// Z6.5, D01: and what is nowhere is not waited for.
#[test]
fn a_bundle_leaves_when_it_needs_what_is_not_in_the_queue() {
    let mut bench = gate();
    bench.approve_cycle("AB", "");
    bench.run();
    bench.seen_needing('A', "BN");
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), bench.landed.len()),
        (&["A DEQUEUED".to_owned(), "B DEQUEUED".to_owned()][..], 0)
    );
}

/// Z6.4: B has no build of its own, and A's ran beside what B's branch was.
#[test]
fn a_bundle_is_tested_again_when_the_branch_of_one_without_jobs_moved() {
    let mut bench = gate();
    bench.own_jobs.insert('B', Vec::new());
    bench.approve_cycle("AB", "");
    assert_snapshot!(bench.run(), @"run A unit on 0A");
    bench.tips.insert("two".to_owned(), "0x".to_owned());
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    assert_snapshot!(bench.run(), @r"
    stop A unit
    run A unit on 0A
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0xB"]);
}

/// Z6.4: so is what stands on a change that has no build of its own.
#[test]
fn what_is_tested_on_a_change_without_jobs_is_tested_again_when_the_branch_moved() {
    let mut bench = Bench::gate(&["unit"]);
    bench.own_jobs.insert('A', vec![job("slow")]);
    bench.own_jobs.insert('B', vec![job("noop")]);
    bench.in_project('A', "other");
    bench.approve("ABC");
    assert_snapshot!(bench.run(), @r"
    run A slow on 0A
    run C unit on 0BC
    ");
    bench.tips.insert("one".to_owned(), "0x".to_owned());
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    assert_snapshot!(bench.run(), @r"
    stop C unit
    run C unit on 0xBC
    ");
    bench.finish();
    assert_eq!(bench.landed, ["0A", "0xB", "0xBC"]);
}

/// Z6.5: what the last of a cycle needs besides is offered between its changes, and stands before
/// all of them.
#[test]
fn a_cycle_enters_where_the_last_of_its_changes_is_offered() {
    let mut bench = gate();
    let mut candidates = bench.cycle("AB", "N");
    candidates.insert(1, bench.candidate('N', ""));
    bench.arrive(crate::inbox::InboxMessageKind::Enqueue { candidates });
    bench.run();
    assert_eq!(order(&bench), "NAB");
}

/// Z6.5, Z6.4: so it is when one of them is promoted.
#[test]
fn a_promoted_bundle_brings_what_any_of_it_needs() {
    let mut bench = gate();
    bench.approve("XN");
    bench.approve_cycle("AB", "N");
    bench.approve("C");
    bench.run();
    let b = bench.change('B').key;
    // B's list has A before N.
    let id = bench.head.slots.iter().find(|slot| slot.change.key == b).unwrap().id.clone();
    bench.items.get_mut(&id).unwrap().candidate.needs.reverse();
    bench.arrive(crate::inbox::InboxMessageKind::Promote { keys: vec![b], by: "jo".to_owned() });
    bench.run();
    assert_eq!(order(&bench), "NABXC");
}

/// G20, Z6.5: of a bundle every job is run to its end, for a build may be that of the other one as
/// well.
#[test]
fn a_bundle_is_not_cut_short_where_its_project_asks_to_fail_fast() {
    let mut bench = gate();
    bench.jobs.push(job("long"));
    bench.fail_fast = true;
    bench.approve_cycle("AB", "");
    bench.run();
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @"");
    assert_eq!(bench.under_way().len(), 3);
    bench.finish();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE"]);
}

/// Returns a gate in which the first of two changes that need each other has landed, and what was
/// told of it.
fn half_landed() -> Bench {
    let mut bench = gate();
    bench.tells = vec![ZuulEvent::ProjectChangeMerged];
    bench.approve_cycle("AB", "");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.land();
    bench.run();
    bench
}

/// Z5: each change of a bundle that landed starts what waits for it to be merged, and none does
/// before all have.
#[test]
fn a_bundle_that_landed_is_told_to_those_that_wait_for_merged_changes() {
    let mut bench = half_landed();
    assert_eq!(bench.happened, Vec::<String>::new());
    bench.land();
    bench.run();
    assert_eq!(bench.happened, ["A project-change-merged", "B project-change-merged"]);
}

/// Z5: half a bundle that an operator lets go is in its branch all the same.
#[test]
fn half_a_bundle_is_told_as_merged_when_an_operator_has_looked() {
    let mut bench = half_landed();
    bench.end_landing(crate::landing::LandingEnd::Refused { why: "no".to_owned() });
    bench.run();
    bench.thaw();
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), bench.happened.as_slice()),
        (
            &["A SUCCESS".to_owned(), "B MERGE_FAILURE".to_owned()][..],
            &["A project-change-merged".to_owned()][..],
        )
    );
}
