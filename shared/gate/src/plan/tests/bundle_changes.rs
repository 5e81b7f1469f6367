//! Rare cases in the life of a bundle: shared builds whose end only one member sees, changing
//! dependencies, and branches that move while jobs are frozen again (Z6.5).

use super::bench::{Bench, after, job};
use crate::plan::{LayoutNumbers, ObservedBuild};
use crate::report::ReportAction;
use insta::assert_snapshot;
use sluice_model::LabelName;
use sluice_model::build::BuildResult::{Failure, Retry, Success};
use sluice_model::event::ZuulEvent;
use sluice_model::job::{BuildSharing, JobSummary};

fn gate() -> Bench {
    let mut bench = Bench::gate(&["unit"]);
    bench.in_project('B', "two");
    bench
}

fn order(bench: &Bench) -> String {
    let slots = bench.head.slots();
    slots.filter_map(|slot| char::from_u32(slot.change.key.number()? as u32)).collect()
}

/// Gives A and B this many shared jobs with these nodesets.
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
    bench.approve_bundle("AB", "");
    bench.run();
    bench
}

/// Lets no build get nodes, in one plan, so that B does not see it: a request that was withdrawn
/// can no longer be read.
fn without_nodes(bench: &mut Bench) {
    for (_, _, build) in bench.under_way() {
        bench.runs.insert(build, ObservedBuild::NoNodes("the cloud is full".to_owned()));
    }
    bench.plan_once();
    bench.runs.retain(|_, seen| !matches!(seen, ObservedBuild::NoNodes(_)));
}

/// D15, N02: B's shared jobs end with A's, although only A read the node failure.
#[test]
fn a_shared_build_without_nodes_ends_for_all_that_share_it() {
    let mut bench = sharing(88, &["small"]);
    without_nodes(&mut bench);
    assert!(!bench.under_way().is_empty(), "not all of it was seen in one plan");
    bench.run();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE"]);
    assert!(
        bench
            .comments()
            .iter()
            .filter(|text| text.contains("job-87](https://sluice.test/t/"))
            .count()
            == 2
    );
}

/// D15, Z7.1: the order of a shared build names the other members that it is for; it is ordered when
/// the jobs of all are known.
#[test]
fn the_order_of_a_shared_build_names_those_that_share_it() {
    let bench = sharing(2, &["small"]);
    let shared: Vec<_> = bench.orders.iter().map(|order| order.shared_with.clone()).collect();
    assert_eq!(shared.len(), 2, "one build of each job");
    assert!(shared.iter().all(|with| *with == [bench.change('B').key]), "{shared:?}");
}

/// D15, N14: B's shared jobs follow A's to the next nodeset.
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

/// D15: a member that keeps a shared build after the other left manages it from then on.
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

/// Returns the jobs under way, with their changes.
fn jobs_under_way(bench: &Bench) -> Vec<(char, String)> {
    bench.under_way().into_iter().map(|(change, job, _)| (change, job)).collect()
}

/// D15, J12: the results of A's own jobs do not affect B, whenever B takes over A's build.
#[test]
fn a_job_that_is_skipped_for_a_job_of_its_own_change_runs_for_the_other() {
    let mut bench = gate();
    bench.jobs = vec![
        JobSummary { sharing: BuildSharing::InBundle, ..job("build") },
        JobSummary { voting: false, ..job("lint") },
        after("deploy", &["build", "lint"]),
    ];
    bench.approve_bundle("AB", "");
    bench.run();
    bench.end('A', "lint", Failure);
    bench.end('B', "lint", Success);
    bench.run();
    bench.end('A', "build", Retry);
    assert_snapshot!(bench.run(), @"run A build (attempt 2) on 0A");
    bench.end('A', "build", Success);
    bench.run();
    assert_eq!(jobs_under_way(&bench), [('B', "deploy".to_owned())]);
    bench.end('B', "deploy", Failure);
    bench.run();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE"]);
}

/// D15, Z4.3: jobs that A's build did not choose are skipped for B too, which did not see its end.
#[test]
fn a_job_that_a_shared_build_left_out_is_left_out_for_all_that_share_it() {
    let jobs = |hash: &str| {
        let build =
            JobSummary { sharing: BuildSharing::InBundle, hash: hash.to_owned(), ..job("build") };
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
    bench.approve_bundle("AB", "");
    bench.run();
    let chosen = serde_json::json!({ "zuul": { "child_jobs": ["notes", "mail"] } });
    bench.end_returning('A', "build", Success, chosen.as_object().cloned().unwrap());
    bench.run();
    // B's job shares A's build now, and `mail` depends on no skipped job.
    let mut others = jobs("one");
    others[3] = after("mail", &["build"]);
    others[3].hash = "mail-2".to_owned();
    bench.own_jobs.insert('B', others);
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    let expected = [('A', "notes"), ('B', "notes"), ('B', "mail")]
        .map(|(change, job)| (change, job.to_owned()));
    assert_eq!(jobs_under_way(&bench), expected);
}

/// D15, Z4.3: so is a dependent that only the member has which takes the build over after its end.
#[test]
fn an_ended_shared_build_skips_dependents_that_only_the_other_member_has() {
    let build = |hash: &str| JobSummary {
        sharing: BuildSharing::InBundle,
        hash: hash.to_owned(),
        ..job("build")
    };
    for chosen in [serde_json::json!(["mail", 7]), serde_json::json!([]), serde_json::Value::Null] {
        let mut bench = gate();
        bench.own_jobs.insert('A', vec![build("one"), after("deploy", &["build"])]);
        bench.own_jobs.insert('B', vec![build("two")]);
        bench.approve_bundle("AB", "");
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
        assert_eq!(jobs_under_way(&bench), expected, "{chosen}");
        bench.finish();
        assert_eq!(bench.left, ["A SUCCESS", "B SUCCESS"], "{chosen}");
    }
}

/// Returns data of a build with a file comment and a warning.
fn feedback_data() -> serde_json::Map<String, serde_json::Value> {
    let data = serde_json::json!({ "zuul": {
        "warnings": ["the mirror was slow"],
        "file_comments": { "a.py": [{ "line": 3, "message": "unused" }] },
    } });
    data.as_object().cloned().unwrap()
}

/// Returns for each change: how many file comments its own builds have, and how many the shared
/// ones.
fn lines(bench: &Bench) -> Vec<(char, usize, usize)> {
    let actions = bench
        .reports
        .iter()
        .flat_map(|report| report.actions.iter().map(move |action| (report, action)));
    let comments = actions.filter_map(|(report, action)| match action {
        ReportAction::Lines { notes, shared_build_notes: of_mates, .. } => {
            Some((char::from_u32(report.change.key.number()? as u32)?, notes.len(), of_mates.len()))
        }
        _ => None,
    });
    let mut comments: Vec<_> = comments.collect();
    comments.sort_unstable();
    comments
}

/// D15, Z7.4: each member reports what a shared build returned, whenever it took the build over.
#[test]
fn feedback_of_a_shared_build_is_reported_by_all_members() {
    let build = |hash: &str| JobSummary {
        sharing: BuildSharing::InBundle,
        hash: hash.to_owned(),
        ..job("build")
    };
    for is_over in [false, true] {
        let mut bench = gate();
        bench.own_jobs.insert('A', vec![build("one")]);
        bench.own_jobs.insert('B', vec![build(if is_over { "two" } else { "one" })]);
        bench.approve_bundle("AB", "");
        bench.run();
        bench.end_returning('A', "build", Success, feedback_data());
        bench.run();
        if is_over {
            bench.own_jobs.insert('B', vec![build("one")]);
            bench.layout = LayoutNumbers { wanted: 2, live: 2 };
            bench.run();
            assert!(jobs_under_way(&bench).is_empty(), "B's is A's, which has ended");
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

/// D15, Z7.4: the feedback of a build that a member orders after a shared one is its own.
#[test]
fn feedback_of_a_further_attempt_belongs_to_the_member_that_ordered_it() {
    let mut bench = sharing(1, &["small"]);
    let mut other = bench.jobs.clone();
    other[0].hash = "another".to_owned();
    bench.own_jobs.insert('A', other);
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    bench.end('B', "job-00", Retry);
    assert!(bench.run().contains("run B job-00 (attempt 2)"), "no other job shares it");
    bench.end_returning('B', "job-00", Success, feedback_data());
    bench.finish();
    assert_eq!((lines(&bench), bench.left.len()), (vec![('B', 1, 0)], 2));
}

/// Z6.5: a new dependency ahead of the bundle does not restart it.
#[test]
fn a_bundle_stays_if_its_new_dependency_is_ahead() {
    let mut bench = gate();
    bench.approve("N");
    bench.approve_bundle("AB", "");
    bench.run();
    bench.update_needing('A', "BN");
    assert_snapshot!(bench.run(), @"");
    // The update of B says the same, since both share their dependencies.
    bench.update_needing('B', "AN");
    assert_snapshot!(bench.run(), @"");
    bench.end('N', "unit", Failure);
    bench.finish();
    assert_eq!(bench.left, ["N FAILURE", "A FAILURE", "B FAILURE"]);
}

/// Z6.5: a dependency behind the bundle is put before it.
#[test]
fn a_bundle_moves_behind_its_new_dependency() {
    let mut bench = gate();
    bench.approve_bundle("AB", "");
    bench.approve("N");
    bench.run();
    bench.update_needing('B', "AN");
    bench.run();
    assert_eq!(order(&bench), "NAB");
    bench.finish();
    assert_eq!(bench.landed, ["0N", "0NA", "0B"]);
}

/// Z6.5, D01: a dependency that is not queued is not waited for.
#[test]
fn a_bundle_whose_new_dependency_is_not_queued_is_dequeued() {
    let mut bench = gate();
    bench.approve_bundle("AB", "");
    bench.run();
    bench.update_needing('A', "BN");
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), bench.landed.len()),
        (&["A DEQUEUED".to_owned(), "B DEQUEUED".to_owned()][..], 0)
    );
}

/// Z6.4: B has no build of its own, and A's was tested on the previous state of B's branch.
#[test]
fn a_bundle_is_tested_again_when_the_branch_of_one_without_jobs_moved() {
    let mut bench = gate();
    bench.own_jobs.insert('B', Vec::new());
    bench.approve_bundle("AB", "");
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

/// Z6.4: the same for an entry behind a change without builds of its own.
#[test]
fn an_entry_behind_a_change_without_jobs_is_retested_when_the_branch_moved() {
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

/// Z6.5: a dependency of the last member, offered between the members, is put before all of them.
#[test]
fn a_cycle_enters_where_the_last_of_its_changes_is_offered() {
    let mut bench = gate();
    let mut candidates = bench.bundle("AB", "N");
    candidates.insert(1, bench.candidate('N', ""));
    bench.deliver(crate::inbox::InboxMessageKind::Enqueue { candidates });
    bench.run();
    assert_eq!(order(&bench), "NAB");
}

/// Z6.5, Z6.4: so it is when a member is promoted.
#[test]
fn a_promoted_bundle_brings_the_dependencies_of_all_members() {
    let mut bench = gate();
    bench.approve("XN");
    bench.approve_bundle("AB", "N");
    bench.approve("C");
    bench.run();
    let b = bench.change('B').key;
    // B lists A before N.
    let id = bench.head.slots().find(|slot| slot.change.key == b).unwrap().id.clone();
    bench.items.get_mut(&id).unwrap().candidate.needs.reverse();
    bench.deliver(crate::inbox::InboxMessageKind::Promote { keys: vec![b], by: "jo".to_owned() });
    bench.run();
    assert_eq!(order(&bench), "NABXC");
}

/// G20, Z6.5: in a bundle all jobs run to their end, since other members may share the builds.
#[test]
fn a_bundle_is_not_cut_short_where_its_project_asks_to_fail_fast() {
    let mut bench = gate();
    bench.jobs.push(job("long"));
    bench.fail_fast = true;
    bench.approve_bundle("AB", "");
    bench.run();
    bench.end('A', "unit", Failure);
    assert_snapshot!(bench.run(), @"");
    assert_eq!(bench.under_way().len(), 3);
    bench.finish();
    assert_eq!(bench.left, ["A FAILURE", "B FAILURE"]);
}

/// Returns a gate in which the first of two members is merged, and its events.
fn partly_merged() -> Bench {
    let mut bench = gate();
    bench.triggering_events = vec![ZuulEvent::ProjectChangeMerged];
    bench.approve_bundle("AB", "");
    bench.run();
    bench.pass("AB");
    bench.run();
    bench.land();
    bench.run();
    bench
}

/// Z5: each merged member emits its event, but only once all are merged.
#[test]
fn members_of_a_merged_bundle_emit_their_events_when_all_are_merged() {
    let mut bench = partly_merged();
    assert_eq!(bench.emitted_events, Vec::<String>::new());
    bench.land();
    bench.run();
    assert_eq!(bench.emitted_events, ["A project-change-merged", "B project-change-merged"]);
}

/// Z5: the merged members of a bundle that could not be completed emit events.
#[test]
fn the_merged_members_of_an_unfinished_bundle_emit_their_events() {
    let mut bench = partly_merged();
    bench.end_landing(crate::landing::LandingEnd::Refused { why: "no".to_owned() });
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), bench.emitted_events.as_slice()),
        (
            &["A SUCCESS".to_owned(), "B MERGE_FAILURE".to_owned()][..],
            &["A project-change-merged".to_owned()][..],
        )
    );
}
