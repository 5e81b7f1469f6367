//! Messages to other queues of the tenant: supersessions, and changes that belong there.

use super::bench::Bench;
use crate::inbox::InboxMessageKind;
use crate::landing::LandingEnd;
use crate::plan::{LayoutNumbers, RECORDS_MAX};
use insta::assert_snapshot;
use sluice_config::pipeline::{GitHubReporter, Manager, PipelineReporter, ReporterKind};
use sluice_model::change::ChangeRef;
use sluice_model::git::Commit;

fn forwarded(bench: &Bench) -> Vec<String> {
    let changes = |kind: &InboxMessageKind| match kind {
        InboxMessageKind::Enqueue { candidates } => {
            candidates.iter().map(|one| one.title.clone()).collect::<String>()
        }
        InboxMessageKind::Superseded { by, .. } => format!("superseded by {by}"),
        other => format!("{other:?}"),
    };
    bench
        .forwards
        .iter()
        .map(|(queue, message)| format!("{} {}", queue.queue, changes(&message.kind)))
        .collect()
}

fn superseded_by(pipeline: &str, change: ChangeRef) -> InboxMessageKind {
    InboxMessageKind::Superseded { change, by: pipeline.into(), more: Vec::new() }
}

/// G19, Z6.1: superseded pipelines are notified of an enqueued change, but not of a refused one.
#[test]
fn superseded_pipelines_are_notified_of_an_enqueued_change() {
    let mut bench = Bench::gate(&["unit"]);
    bench.pipeline.supersedes = vec!["check".into()];
    bench.approve("A");
    bench.approve_needing('B', "X");
    bench.approve_bundle("CD", "");
    bench.run();
    let queues: Vec<String> =
        bench.forwards.iter().map(|(queue, _)| queue.pipeline.to_string()).collect();
    assert_eq!(
        (queues, forwarded(&bench)),
        (vec!["check".to_owned(); 3], vec!["another superseded by gate".to_owned(); 3])
    );
    bench.finish();
    assert_eq!(bench.landed.last().map(String::as_str), Some("0ACD"));
}

/// G19: the superseded pipeline dequeues the same revision, with a report.
#[test]
fn a_superseded_change_leaves_with_its_builds_stopped() {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    let github = GitHubReporter { comment: Some(true), ..GitHubReporter::default() };
    bench.pipeline.reporters.dequeue =
        vec![PipelineReporter { connection: "github".into(), kind: ReporterKind::GitHub(github) }];
    bench.approve("A");
    bench.run();
    let superseded = |bench: &Bench| superseded_by("gate", bench.change('A'));
    bench.revise('A');
    let other = superseded(&bench);
    bench.deliver(other);
    assert_snapshot!(bench.run(), @"");
    let mut before = bench.change('A');
    (before.head, before.patchset) = ("A1".into(), "A1".to_owned());
    bench.deliver(superseded_by("gate", before));
    assert_snapshot!(bench.run(), @r"
    stop A unit
    A leaves: DEQUEUED
    ");
    assert!(
        bench.comments().iter().any(|text| text.contains("it entered the pipeline gate")),
        "{:?}",
        bench.comments()
    );
}

/// G19: if there are more pipelines than one plan notifies, they notify each other, each once; the
/// pipeline that was entered is left alone.
#[test]
fn a_change_leaves_any_number_of_superseded_pipelines() {
    let others: Vec<String> = (10..22).map(|number| format!("p{number}")).collect();
    let mut bench = Bench::gate(&["unit"]);
    bench.pipeline.supersedes = others.iter().map(|name| name.as_str().into()).collect();
    bench.pipeline.supersedes.extend(["gate".into(), "p10".into()]);
    bench.approve("A");
    bench.run();
    let mut ahead = std::mem::take(&mut bench.forwards);
    assert_eq!(ahead.len(), 4);
    let mut notified = Vec::new();
    while let Some((queue, message)) = ahead.pop() {
        notified.push(queue.pipeline.to_string());
        let mut other = Bench::new(Manager::Independent, &["unit"]);
        other.approve("A");
        other.run();
        other.deliver(message.kind);
        other.run();
        assert_eq!((other.left.as_slice(), other.inbox.len()), (&["A DEQUEUED".to_owned()][..], 0));
        ahead.append(&mut other.forwards);
    }
    notified.sort();
    assert_eq!(notified, others);
}

/// G19: a change that is being merged is not dequeued.
#[test]
fn a_change_that_lands_is_not_superseded() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.pass("A");
    bench.run();
    let change = bench.change('A');
    bench.deliver(superseded_by("other", change));
    bench.run();
    bench.land();
    bench.run();
    assert_eq!((bench.left.as_slice(), bench.inbox.len()), (&["A SUCCESS".to_owned()][..], 0));
}

/// G18: changes of another queue move there in order under the new layout; landings end here.
#[test]
fn changes_move_to_the_queue_that_they_belong_to_by_a_new_layout() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("XA");
    bench.approve_bundle("BC", "");
    bench.approve("D");
    bench.run();
    bench.pass("X");
    bench.run();
    for change in ['X', 'A', 'B', 'C'] {
        bench.queues.insert(change, "other".to_owned());
    }
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!(forwarded(&bench), ["other A", "other BC"]);
    assert!(bench.forwards[0].1.at < bench.forwards[1].1.at && bench.forwards[0].1.layout == 2);
    assert!(bench.comments().is_empty(), "they go on elsewhere: {:?}", bench.comments());
    // Messages that arrived meanwhile follow.
    bench.queues.insert('E', "other".to_owned());
    bench.approve("E");
    bench.finish();
    assert_eq!(forwarded(&bench), ["other A", "other BC", "other E"]);
    assert_eq!(bench.landed, ["0X", "0XD"]);
}

/// G18, D11: members of a former bundle move to their own queues, where their updates arrive.
#[test]
fn members_of_a_former_bundle_move_to_their_own_queues() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_bundle("BC", "");
    bench.run();
    bench.queues = "ABC".chars().map(|change| (change, format!("own {change}"))).collect();
    bench.pipeline.manager = Manager::Independent;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!(forwarded(&bench), ["own A A", "own B B", "own C C"]);
    assert!(
        bench.forwards.is_sorted_by_key(|(_, message)| message.at) && bench.head.entries.is_empty()
    );
    for (at, member) in [(1, 'C'), (2, 'B')] {
        let InboxMessageKind::Enqueue { candidates } = &bench.forwards[at].1.kind else { panic!() };
        let needs: Vec<_> =
            candidates[0].needs.iter().map(|need| need.change.key.clone()).collect();
        assert_eq!((candidates[0].bundle.len(), &candidates[0].cycle_needs), (0, &needs));
        assert_eq!(needs, [bench.change(member).key]);
        let mut own = Bench::new(Manager::Independent, &["unit"]);
        (own.layout, own.head.layout) = (bench.layout, 2);
        own.inbox = vec![bench.forwards[at].1.clone()];
        own.run();
        assert_eq!((own.head.slots().count(), own.left.len(), own.inbox.len()), (1, 0, 0));
    }
}

/// G18: of changes enqueued together each goes to its queue by the live layout. A change whose
/// dependency is in another queue is enqueued in neither.
#[test]
fn a_message_for_several_queues_is_split() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("W");
    bench.finish();
    bench.approve("A");
    bench.run();
    bench.queues = [('B', "other"), ('C', "third"), ('E', "other")]
        .map(|(one, queue)| (one, queue.to_owned()))
        .into();
    let needs = [('B', "W"), ('C', ""), ('D', ""), ('E', "B"), ('F', "C")];
    let candidates = needs.map(|(change, needs)| bench.candidate(change, needs)).into();
    bench.deliver(InboxMessageKind::Enqueue { candidates });
    assert_snapshot!(bench.run(), @"run D unit on 0WAD");
    assert_eq!(forwarded(&bench), ["other BE", "third C"]);
    assert_eq!((bench.head.slots().count(), bench.inbox.len(), bench.left.len()), (2, 0, 1));
    assert_ne!(bench.forwards[0].1.id, bench.forwards[1].1.id);
    let InboxMessageKind::Enqueue { candidates } = &bench.forwards[0].1.kind else { panic!() };
    let needs: Vec<_> =
        candidates.iter().flat_map(|one| &one.needs).map(|need| need.title.as_str()).collect();
    assert_eq!(needs, ["B"], "the other queue cannot know what was merged here");
    // No member of a bundle is enqueued without the others.
    bench.queues.insert('G', "other".to_owned());
    bench.approve_bundle("GH", "");
    assert_snapshot!(bench.run(), @"");
    let mut other = Bench::gate(&["unit"]);
    other.head.key.queue = "other".into();
    other.queues = "BEG".chars().map(|change| (change, "other".to_owned())).collect();
    other.inbox = bench
        .forwards
        .iter()
        .filter(|(queue, _)| queue.queue == other.head.key.queue)
        .map(|(_, one)| one.clone())
        .collect();
    other.run();
    let titles: String = other
        .head
        .slots()
        .filter_map(|slot| char::from_u32(slot.change.key.number()? as u32))
        .collect();
    assert_eq!((titles.as_str(), other.inbox.len(), bench.head.slots().count()), ("BE", 0, 2));
}

/// G18: a change that was merged here while a message brought it in again is not forwarded.
#[test]
fn a_merged_change_is_not_forwarded() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("W");
    bench.finish();
    bench.queues = "WA".chars().map(|change| (change, "other".to_owned())).collect();
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    for changes in [&[('W', ""), ('A', "W")][..], &[('W', "")]] {
        let candidates =
            changes.iter().map(|(change, needs)| bench.candidate(*change, needs)).collect();
        bench.deliver(InboxMessageKind::Enqueue { candidates });
        bench.run();
    }
    assert_eq!((forwarded(&bench), bench.inbox.len()), (vec!["other A".to_owned()], 0));
    let InboxMessageKind::Enqueue { candidates } = &bench.forwards[0].1.kind else { panic!() };
    assert!(candidates[0].needs.is_empty());
}

/// G18: so it is when a shared queue is split.
#[test]
fn a_message_for_a_former_shared_queue_is_split() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.queues = "ABC".chars().map(|change| (change, format!("own {change}"))).collect();
    bench.pipeline.manager = Manager::Independent;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.approve_bundle("BC", "");
    bench.run();
    assert_eq!(forwarded(&bench), ["own A A", "own B B", "own C C"]);
    assert!(bench.head.entries.is_empty() && bench.inbox.is_empty());
    for (at, member) in [(1, 'C'), (2, 'B')] {
        let InboxMessageKind::Enqueue { candidates } = &bench.forwards[at].1.kind else { panic!() };
        assert!(candidates[0].bundle.is_empty());
        assert_eq!(candidates[0].cycle_needs, [bench.change(member).key]);
        assert_eq!(candidates[0].moved_from, None, "it was not queued before");
    }
}

/// G18, C03: an update that arrives while a layout is pending reaches the queue that its change
/// moved to.
#[test]
fn updates_follow_a_change_that_moved() {
    for is_superseded in [false, true] {
        let mut bench = Bench::gate(&["unit"]);
        bench.approve("A");
        bench.run();
        bench.layout.wanted = 2;
        match is_superseded {
            true => bench.deliver(superseded_by("other", bench.change('A'))),
            false => bench.update('A', Some("the change was closed")),
        }
        bench.run();
        bench.queues.insert('A', "other".to_owned());
        bench.layout.live = 2;
        bench.run();
        assert_eq!(
            (bench.forwards.len(), bench.inbox.len(), bench.left.as_slice()),
            (2, 0, &["A DEQUEUED".to_owned()][..])
        );
        assert!(bench.forwards[0].1.at < bench.forwards[1].1.at && bench.forwards[1].1.layout == 2);
        let mut other = Bench::gate(&["unit"]);
        other.layout = bench.layout;
        other.head.layout = 2;
        other.inbox = bench.forwards.iter().map(|(_, message)| message.clone()).collect();
        other.run();
        assert_eq!(
            (other.left.as_slice(), other.head.slots().count()),
            (&["A DEQUEUED".to_owned()][..], 0)
        );
        // A message routed by this layout is meant for this queue, even if the change moved away.
        bench.update('A', None);
        bench.inbox[0].layout = 2;
        bench.run();
        assert_eq!((bench.forwards.len(), bench.inbox.len()), (2, 0));
    }
}

/// G18: dependents of a change that is being merged stay until its end; dependents of a merged one
/// drop the dependency.
#[test]
fn dependents_of_a_change_being_merged_stay_with_it() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("W");
    bench.finish();
    bench.approve("X");
    bench.approve_needing('A', "X");
    bench.approve_needing('B', "W");
    bench.run();
    bench.pass("X");
    bench.run();
    bench.queues = "XAB".chars().map(|change| (change, "other".to_owned())).collect();
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.finish();
    assert_eq!(forwarded(&bench), ["other B"]);
    let InboxMessageKind::Enqueue { candidates } = &bench.forwards[0].1.kind else { panic!() };
    assert!(candidates[0].needs.is_empty());
    assert_eq!(bench.landed, ["0W", "0WX", "0WXA"]);
}

/// Returns another queue with the messages of changes that moved there.
fn moved(changes: &[(char, &str)]) -> Bench {
    let mut other = Bench::gate(&["unit"]);
    let github = GitHubReporter { comment: Some(true), ..GitHubReporter::default() };
    other.pipeline.reporters.dequeue =
        vec![PipelineReporter { connection: "github".into(), kind: ReporterKind::GitHub(github) }];
    let mut bench = Bench::gate(&["unit"]);
    bench.head.key.queue = "older".into();
    bench.queues = changes.iter().map(|(change, _)| (*change, "older".to_owned())).collect();
    for (change, needs) in changes {
        bench.approve_needing(*change, needs);
    }
    bench.run();
    let (stays, _) = changes[0];
    bench.queues =
        changes[1..].iter().map(|(change, _)| (*change, "integrated".to_owned())).collect();
    bench.queues.insert(stays, "older".to_owned());
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    other.layout = bench.layout;
    other.head.layout = 2;
    other.inbox = bench.forwards.iter().map(|(_, message)| message.clone()).collect();
    other
}

/// G18: a change that moves and is refused there is dequeued with a report and a buildset with the
/// reason.
#[test]
fn a_moved_change_that_is_refused_is_reported() {
    let mut other = moved(&[('X', ""), ('A', "X"), ('B', "")]);
    assert_snapshot!(other.run(), @r"
    A leaves: DEQUEUED
    run B unit on 0B
    ");
    let why = "it belongs to the queue integrated instead of older, and may not be enqueued there: it depends on org/one#88, which is neither merged nor ahead of it in this queue";
    assert!(other.comments().iter().any(|text| text.contains(why)), "{:?}", other.comments());
    assert!(
        other.removed_reasons.iter().any(|reason| reason.contains(why)),
        "{:?}",
        other.removed_reasons
    );
    assert_eq!((other.inbox.len(), other.left.as_slice()), (0, &["A DEQUEUED".to_owned()][..]));
    // A change that was never queued is refused as usual, with a line in the log.
    other.approve_needing('C', "X");
    other.run();
    assert_eq!((other.left.len(), other.comments().len()), (1, 1));
}

/// G18: so are changes beyond the pipeline's limit, and members of bundles.
#[test]
fn each_refusal_of_a_moved_change_is_reported_once() {
    let mut other = moved(&[('X', ""), ('A', ""), ('B', "")]);
    other.changes = Some(crate::plan::ChangesLimit { max: 1, in_other_queues: 0 });
    other.run();
    assert_eq!(other.left, ["B DEQUEUED"]);
    assert_eq!(
        other.comments().iter().filter(|text| text.contains("pipeline max of 1")).count(),
        1
    );

    let mut other = moved(&[('X', ""), ('A', "")]);
    let from = Some("older".into());
    let pair = other
        .bundle("BC", "X")
        .into_iter()
        .map(|one| crate::Candidate { moved_from: from.clone(), ..one });
    let candidates = pair.collect();
    other.deliver(InboxMessageKind::Enqueue { candidates });
    other.run();
    let mut left = other.left.clone();
    left.sort();
    assert_eq!(left, ["B DEQUEUED", "C DEQUEUED"]);
    assert_eq!(other.head.slots().count(), 1, "A is there");
}

/// G18: `discard-events` drops new events, not changes that move.
#[test]
fn a_moved_change_is_not_discarded() {
    let mut other = moved(&[('X', ""), ('A', "")]);
    other.hold =
        crate::plan::TenantHold { discard_triggers: true, ..crate::plan::TenantHold::default() };
    other.approve("B");
    assert_snapshot!(other.run(), @"run A unit on 0A");
}

/// G18, Z6.4: a halted queue moves no changes.
#[test]
fn a_halted_queue_keeps_its_changes_until_it_is_resumed() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("AB");
    bench.run();
    bench.pass("A");
    bench.run();
    let strange = Commit { id: "abc".into(), tree: "strange".into() };
    bench.end_landing(LandingEnd::Mismatch { landed: strange });
    bench.run();
    bench.queues = "AB".chars().map(|change| (change, "other".to_owned())).collect();
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!((bench.head.slots().count(), bench.forwards.len()), (2, 0));
    bench.resume();
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), forwarded(&bench)),
        (&["A MERGE_FAILURE".to_owned(), "B DEQUEUED".to_owned()][..], vec!["other B".to_owned()],)
    );
}

/// G18, Z6.7: any number of changes can move.
#[test]
fn very_many_changes_move_in_plans_that_fit() {
    let mut bench = Bench::gate(&["unit", "other"]);
    let changes: String = ('\u{4e00}'..='\u{4e50}').collect();
    bench.approve(&changes);
    bench.run();
    bench.queues = changes.chars().map(|change| (change, "other".to_owned())).collect();
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!((bench.forwards.len(), bench.head.slots().count()), (81, 0));
    bench.forwards.sort_by(|(_, one), (_, other)| (one.at, &one.id).cmp(&(other.at, &other.id)));
    let sent: String = bench
        .forwards
        .iter()
        .map(|(_, message)| match &message.kind {
            InboxMessageKind::Enqueue { candidates } => candidates[0].title.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent, changes);
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
}

/// Z2.1: the changes of a project that left the tenant are dequeued without a report, under every
/// manager; their builds are stopped. What depended on them leaves with a report.
#[test]
fn changes_of_a_removed_project_leave_without_a_report() {
    for manager in [Manager::Independent, Manager::Dependent, Manager::Serial] {
        let mut bench = Bench::new(manager, &["unit"]);
        bench.in_project('B', "two");
        bench.approve("ABC");
        bench.run();
        bench.removed_projects = [bench.change('B').key.project].into();
        bench.layout = LayoutNumbers { wanted: 2, live: 2 };
        let reports = bench.comments().len();
        let decisions = bench.run();
        assert!(decisions.contains("B leaves: DEQUEUED"), "{manager:?}: {decisions}");
        assert_eq!(bench.left, ["B DEQUEUED"], "{manager:?}");
        assert_eq!(bench.comments().len(), reports, "{manager:?}: nothing is reported");
        let is_running = bench.items.values().any(|item| item.candidate.title == "B");
        assert!(!is_running, "{manager:?}");
    }
}

/// Z2.1, D05: a change that depends on a change of a project that left the tenant fails for that
/// reason, not for a conflict.
#[test]
fn a_change_that_depends_on_a_removed_project_fails_with_the_reason() {
    for manager in [Manager::Independent, Manager::Serial] {
        let mut bench = Bench::new(manager, &["unit"]);
        bench.in_project('A', "two");
        bench.approve_needing('B', "A");
        bench.run();
        bench.removed_projects = [bench.change('A').key.project].into();
        bench.layout = LayoutNumbers { wanted: 2, live: 2 };
        bench.run();
        assert_eq!(bench.left, ["B FAILURE"], "{manager:?}");
        let reports = bench.comments().join("\n");
        assert!(reports.contains("a change of a project outside of this tenant"), "{reports}");
        assert!(bench.under_way().is_empty(), "{manager:?}");
    }
}

/// Z2.1, R03: a change that is being merged is merged, although its project left the tenant.
#[test]
fn a_landing_of_a_removed_project_is_completed() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.pass("A");
    bench.run();
    bench.removed_projects = [bench.change('A').key.project].into();
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    bench.land();
    bench.run();
    assert_eq!(bench.landed, ["0A"]);
    assert_eq!(bench.left, ["A SUCCESS"]);
}
