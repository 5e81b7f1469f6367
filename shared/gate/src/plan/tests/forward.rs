//! What other queues of the tenant are told: changes that entered a superseding pipeline, and
//! changes that belong there now.

use super::bench::Bench;
use crate::inbox::InboxMessageKind;
use crate::landing::LandingEnd;
use crate::plan::{LayoutNumbers, RECORDS_MAX};
use insta::assert_snapshot;
use sluice_config::pipeline::{GitHubReporter, Manager, Reporter, ReporterKind};
use sluice_model::change::ChangeRef;
use sluice_model::git::Commit;

fn told(bench: &Bench) -> Vec<String> {
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
        .map(|(queue, arrival)| format!("{} {}", queue.queue, changes(&arrival.kind)))
        .collect()
}

fn superseded_by(pipeline: &str, change: ChangeRef) -> InboxMessageKind {
    InboxMessageKind::Superseded { change, by: pipeline.into(), more: Vec::new() }
}

/// G19, Z6.1: whoever enters is told to the pipelines that this one supersedes; who may not enter
/// is not.
#[test]
fn a_change_that_enters_is_told_to_the_pipelines_that_are_superseded() {
    let mut bench = Bench::gate(&["unit"]);
    bench.pipeline.supersedes = vec!["check".into()];
    bench.approve("A");
    bench.approve_needing('B', "X");
    bench.approve_cycle("CD", "");
    bench.run();
    let queues: Vec<String> =
        bench.forwards.iter().map(|(queue, _)| queue.pipeline.to_string()).collect();
    assert_eq!(
        (queues, told(&bench)),
        (vec!["check".to_owned(); 3], vec!["another superseded by gate".to_owned(); 3])
    );
    bench.finish();
    assert_eq!(bench.landed.last().map(String::as_str), Some("0ACD"));
}

/// G19: it leaves the superseded pipeline in the revision that entered the other one, with the
/// report of that.
#[test]
fn a_superseded_change_leaves_with_its_builds_stopped() {
    let mut bench = Bench::new(Manager::Independent, &["unit"]);
    let github = GitHubReporter { comment: Some(true), ..GitHubReporter::default() };
    bench.pipeline.reporters.dequeue =
        vec![Reporter { connection: "github".into(), kind: ReporterKind::GitHub(github) }];
    bench.approve("A");
    bench.run();
    let superseded = |bench: &Bench| superseded_by("gate", bench.change('A'));
    bench.revise('A');
    let other = superseded(&bench);
    bench.arrive(other);
    assert_snapshot!(bench.run(), @"");
    let mut before = bench.change('A');
    (before.head, before.patchset) = ("A1".into(), "A1".to_owned());
    bench.arrive(superseded_by("gate", before));
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

/// G19: more pipelines than one plan tells tell each other, each once; the one that was entered
/// keeps what it has.
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
    let mut told = Vec::new();
    while let Some((queue, arrival)) = ahead.pop() {
        told.push(queue.pipeline.to_string());
        let mut other = Bench::new(Manager::Independent, &["unit"]);
        other.approve("A");
        other.run();
        other.arrive(arrival.kind);
        other.run();
        assert_eq!(
            (other.left.as_slice(), other.arrivals.len()),
            (&["A DEQUEUED".to_owned()][..], 0)
        );
        ahead.append(&mut other.forwards);
    }
    told.sort();
    assert_eq!(told, others);
}

/// G19: what is being put into its branch is not taken out of it.
#[test]
fn a_change_that_lands_is_not_superseded() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.pass("A");
    bench.run();
    let change = bench.change('A');
    bench.arrive(superseded_by("other", change));
    bench.run();
    bench.land();
    bench.run();
    assert_eq!((bench.left.as_slice(), bench.arrivals.len()), (&["A SUCCESS".to_owned()][..], 0));
}

/// G18: what belongs to another queue by the new layout goes there, in its order, and what is
/// landing ends here.
#[test]
fn changes_move_to_the_queue_that_they_belong_to_by_a_new_layout() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("XA");
    bench.approve_cycle("BC", "");
    bench.approve("D");
    bench.run();
    bench.pass("X");
    bench.run();
    for change in ['X', 'A', 'B', 'C'] {
        bench.queues.insert(change, "other".to_owned());
    }
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!(told(&bench), ["other A", "other BC"]);
    assert!(bench.forwards[0].1.at < bench.forwards[1].1.at && bench.forwards[0].1.layout == 2);
    assert!(bench.comments().is_empty(), "they go on elsewhere: {:?}", bench.comments());
    // What was on its way meanwhile follows.
    bench.queues.insert('E', "other".to_owned());
    bench.approve("E");
    bench.finish();
    assert_eq!(told(&bench), ["other A", "other BC", "other E"]);
    assert_eq!(bench.landed, ["0X", "0XD"]);
}

/// G18, D11: where changes that need each other are no longer one, each goes to its own queue,
/// where news of it arrive.
#[test]
fn changes_that_need_each_other_move_to_queues_of_their_own_where_each_is_tested_for_itself() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.approve_cycle("BC", "");
    bench.run();
    bench.queues = "ABC".chars().map(|change| (change, format!("own {change}"))).collect();
    bench.pipeline.manager = Manager::Independent;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!(told(&bench), ["own A A", "own B B", "own C C"]);
    assert!(
        bench.forwards.is_sorted_by_key(|(_, arrival)| arrival.at) && bench.head.slots.is_empty()
    );
    for (at, mate) in [(1, 'C'), (2, 'B')] {
        let InboxMessageKind::Enqueue { candidates } = &bench.forwards[at].1.kind else { panic!() };
        let needs: Vec<_> =
            candidates[0].needs.iter().map(|need| need.change.key.clone()).collect();
        assert_eq!((candidates[0].bundle.len(), &candidates[0].cycle_needs), (0, &needs));
        assert_eq!(needs, [bench.change(mate).key]);
        let mut own = Bench::new(Manager::Independent, &["unit"]);
        (own.layout, own.head.layout) = (bench.layout, 2);
        own.arrivals = vec![bench.forwards[at].1.clone()];
        own.run();
        assert_eq!((own.head.slots.len(), own.left.len(), own.arrivals.len()), (1, 0, 0));
    }
}

/// G18: of changes that arrive together each goes to the queue that it belongs to by now, or enters
/// here; what needs one of another queue may enter neither here nor there.
#[test]
fn what_arrives_for_several_queues_is_parted() {
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
    bench.arrive(InboxMessageKind::Enqueue { candidates });
    assert_snapshot!(bench.run(), @"run D unit on 0WAD");
    assert_eq!(told(&bench), ["other BE", "third C"]);
    assert_eq!((bench.head.slots.len(), bench.arrivals.len(), bench.left.len()), (2, 0, 1));
    assert_ne!(bench.forwards[0].1.id, bench.forwards[1].1.id);
    let InboxMessageKind::Enqueue { candidates } = &bench.forwards[0].1.kind else { panic!() };
    let needs: Vec<_> =
        candidates.iter().flat_map(|one| &one.needs).map(|need| need.title.as_str()).collect();
    assert_eq!(needs, ["B"], "what landed here is merged, which nobody knows there");
    // Of those that need each other none enters without the others.
    bench.queues.insert('G', "other".to_owned());
    bench.approve_cycle("GH", "");
    assert_snapshot!(bench.run(), @"");
    let mut other = Bench::gate(&["unit"]);
    other.head.key.queue = "other".into();
    other.queues = "BEG".chars().map(|change| (change, "other".to_owned())).collect();
    other.arrivals = bench
        .forwards
        .iter()
        .filter(|(queue, _)| queue.queue == other.head.key.queue)
        .map(|(_, one)| one.clone())
        .collect();
    other.run();
    let titles: String = other
        .head
        .slots
        .iter()
        .filter_map(|slot| char::from_u32(slot.change.key.number()? as u32))
        .collect();
    assert_eq!((titles.as_str(), other.arrivals.len(), bench.head.slots.len()), ("BE", 0, 2));
}

/// G18: so it is where changes that shared a queue have one each by now.
#[test]
fn what_arrives_as_one_is_parted_where_each_is_tested_for_itself() {
    let mut bench = Bench::gate(&["unit"]);
    bench.approve("A");
    bench.run();
    bench.queues = "ABC".chars().map(|change| (change, format!("own {change}"))).collect();
    bench.pipeline.manager = Manager::Independent;
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.approve_cycle("BC", "");
    bench.run();
    assert_eq!(told(&bench), ["own A A", "own B B", "own C C"]);
    assert!(bench.head.slots.is_empty() && bench.arrivals.is_empty());
    for (at, mate) in [(1, 'C'), (2, 'B')] {
        let InboxMessageKind::Enqueue { candidates } = &bench.forwards[at].1.kind else { panic!() };
        assert!(candidates[0].bundle.is_empty());
        assert_eq!(candidates[0].cycle_needs, [bench.change(mate).key]);
        assert_eq!(candidates[0].moved_from, None, "it stood nowhere");
    }
}

/// G18, C03: what is told of a change while the layout is awaited that has it move is heard where
/// it moved to.
#[test]
fn news_of_a_change_that_moved_follow_it() {
    for is_superseded in [false, true] {
        let mut bench = Bench::gate(&["unit"]);
        bench.approve("A");
        bench.run();
        bench.layout.wanted = 2;
        match is_superseded {
            true => bench.arrive(superseded_by("other", bench.change('A'))),
            false => bench.seen('A', Some("the change was closed")),
        }
        bench.run();
        bench.queues.insert('A', "other".to_owned());
        bench.layout.live = 2;
        bench.run();
        assert_eq!(
            (bench.forwards.len(), bench.arrivals.len(), bench.left.as_slice()),
            (2, 0, &["A DEQUEUED".to_owned()][..])
        );
        assert!(bench.forwards[0].1.at < bench.forwards[1].1.at && bench.forwards[1].1.layout == 2);
        let mut other = Bench::gate(&["unit"]);
        other.layout = bench.layout;
        other.head.layout = 2;
        other.arrivals = bench.forwards.iter().map(|(_, arrival)| arrival.clone()).collect();
        other.run();
        assert_eq!(
            (other.left.as_slice(), other.head.slots.len()),
            (&["A DEQUEUED".to_owned()][..], 0)
        );
        // What this layout had told here is meant for here: for a queue that the change was in
        // formerly.
        bench.seen('A', None);
        bench.arrivals[0].layout = 2;
        bench.run();
        assert_eq!((bench.forwards.len(), bench.arrivals.len()), (2, 0));
    }
}

/// G18: what needs a change that is landing here ends here; what needs one that has landed needs it
/// no more.
#[test]
fn what_needs_a_change_that_is_landing_stays_with_it() {
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
    assert_eq!(told(&bench), ["other B"]);
    let InboxMessageKind::Enqueue { candidates } = &bench.forwards[0].1.kind else { panic!() };
    assert!(candidates[0].needs.is_empty());
    assert_eq!(bench.landed, ["0W", "0WX", "0WXA"]);
}

/// Returns what moves of a queue of these changes to another one, as that one finds it.
fn moved(changes: &[(char, &str)]) -> Bench {
    let mut other = Bench::gate(&["unit"]);
    let github = GitHubReporter { comment: Some(true), ..GitHubReporter::default() };
    other.pipeline.reporters.dequeue =
        vec![Reporter { connection: "github".into(), kind: ReporterKind::GitHub(github) }];
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
    other.arrivals = bench.forwards.iter().map(|(_, arrival)| arrival.clone()).collect();
    other
}

/// G18: a change that the configuration took out of its queue, and that may not enter the other
/// one, leaves as one that is taken out: it is reported, and its buildset says why.
#[test]
fn a_change_that_moved_and_is_refused_there_is_told_of() {
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
    assert_eq!((other.arrivals.len(), other.left.as_slice()), (0, &["A DEQUEUED".to_owned()][..]));
    // What never stood in a queue is refused as ever, by a line in the log.
    other.approve_needing('C', "X");
    other.run();
    assert_eq!((other.left.len(), other.comments().len()), (1, 1));
}

/// G18: the same of one for which a pipeline is too full, and of changes that need each other.
#[test]
fn whatever_keeps_a_moved_change_out_is_told_once() {
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
        .cycle("BC", "X")
        .into_iter()
        .map(|one| crate::Candidate { moved_from: from.clone(), ..one });
    let candidates = pair.collect();
    other.arrive(InboxMessageKind::Enqueue { candidates });
    other.run();
    let mut left = other.left.clone();
    left.sort();
    assert_eq!(left, ["B DEQUEUED", "C DEQUEUED"]);
    assert_eq!(other.head.slots.len(), 1, "A is there");
}

/// G18: an operator who has what would enter dropped means news, not what stood in a queue.
#[test]
fn a_moved_change_is_not_dropped_with_what_would_enter() {
    let mut other = moved(&[('X', ""), ('A', "")]);
    other.hold = crate::plan::TenantHold { discard_triggers: true, ..crate::plan::TenantHold::default() };
    other.approve("B");
    assert_snapshot!(other.run(), @"run A unit on 0A");
}

/// G18, Z6.4: nothing gets around a freeze by moving.
#[test]
fn a_frozen_queue_keeps_its_changes_until_an_operator_has_looked() {
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
    assert_eq!((bench.head.slots.len(), bench.forwards.len()), (2, 0));
    bench.thaw();
    bench.run();
    assert_eq!(
        (bench.left.as_slice(), told(&bench)),
        (&["A MERGE_FAILURE".to_owned(), "B DEQUEUED".to_owned()][..], vec!["other B".to_owned()],)
    );
}

/// G18, Z6.7: however many they are.
#[test]
fn very_many_changes_move_in_plans_that_fit() {
    let mut bench = Bench::gate(&["unit", "other"]);
    let changes: String = ('\u{4e00}'..='\u{4e50}').collect();
    bench.approve(&changes);
    bench.run();
    bench.queues = changes.chars().map(|change| (change, "other".to_owned())).collect();
    bench.layout = LayoutNumbers { wanted: 2, live: 2 };
    bench.run();
    assert_eq!((bench.forwards.len(), bench.head.slots.len()), (81, 0));
    bench.forwards.sort_by(|(_, one), (_, other)| (one.at, &one.id).cmp(&(other.at, &other.id)));
    let sent: String = bench
        .forwards
        .iter()
        .map(|(_, arrival)| match &arrival.kind {
            InboxMessageKind::Enqueue { candidates } => candidates[0].title.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent, changes);
    assert!(bench.most_records <= RECORDS_MAX, "{}", bench.most_records);
}
