//! The model by itself: what it decides of queues that are written down here.

use super::compare::differences;
use super::facts::{Facts, Known};
use super::line::{Answer, Line, Merges, Place, Stage, Task};
use super::turn::Turn;
use super::waits::wrong_wait;
use crate::windows::Window;
use sluice_config::pipeline::Manager;
use sluice_gate::queue::{Predecessor, Slot, own_queue};
use sluice_gate::{
    Candidate, Head, InboxMessage, InboxMessageKind, Item, Job, SlotStatus, WaitsFor,
};
use sluice_model::build::BuildResult;
use sluice_model::change::{ChangeKey, ChangeRef};
use sluice_model::job::{JobDependency, JobSummary};
use sluice_model::{BuildId, InboxMessageId, ItemId, ProjectName, QueueKey, QueueName, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

const RUNS: Stage = Stage::UnderWay { build: None, will_fail: false };
const WILL_FAIL: Stage = Stage::UnderWay { build: None, will_fail: true };

fn id(number: u64) -> ItemId {
    ItemId(format!("item{number}"))
}

/// Returns a change that is tested behind the one of the number before, the first on its branch.
fn place(number: u64, stage: Stage) -> Place {
    let key =
        ChangeKey::change("github".into(), ProjectName::new("forge.test", "org/t0p0"), number);
    let change =
        ChangeRef { key, branch: "main".into(), head: "head".into(), patchset: String::new() };
    let (name, hash, dependencies) = ("unit".to_owned(), String::new(), Vec::new());
    Place {
        ahead: (number > 1).then(|| (id(number - 1), 1)),
        standing: SlotStatus::Testing,
        layout: 1,
        answer: Answer::Merges(Merges {
            base: "base".into(),
            tested: "tested".into(),
            kept: false,
            configures: false,
            fail_fast: false,
        }),
        tasks: vec![Task {
            name,
            hash,
            voting: true,
            reporter: false,
            holds: false,
            dependencies,
            stage,
        }],
        ..Place::new(id(number), change, false)
    }
}

fn key() -> QueueKey {
    QueueKey {
        tenant: "tenant0".into(),
        pipeline: "gate".into(),
        queue: QueueName("integrated".to_owned()),
    }
}

fn line(places: Vec<Place>) -> Line {
    Line { places, ..Line::new(key(), Manager::Dependent, 1, Window::GATE) }
}

/// Returns a revision that nothing new led to.
fn nothing_new() -> Facts {
    Facts {
        revision: 1,
        since: 0,
        head: Head::new(key(), Manager::Dependent, Window::GATE.initial, 1),
        items: BTreeMap::new(),
        taken: Vec::new(),
        waiting: Vec::new(),
        sent: Vec::new(),
        doors: Vec::new(),
        left: BTreeMap::new(),
        landings: Vec::new(),
        orders: BTreeSet::new(),
        stops: BTreeSet::new(),
        resumes: BTreeSet::new(),
        weight: 1,
    }
}

/// Returns what becomes of a queue where nothing new came, and who leaves it.
fn next(line: Line) -> (Line, Vec<(ItemId, String)>) {
    let (facts, known) = (nothing_new(), Known::default());
    let mut turn = Turn::new(line, &facts, &known);
    turn.play();
    (turn.line, turn.left.into_iter().collect())
}

/// Returns what each is tested on and in which state.
fn states(line: &Line) -> Vec<(Option<(ItemId, u64)>, u64)> {
    line.places.iter().map(|place| (place.ahead.clone(), place.state)).collect()
}

/// Z6.4: one that fails moves aside, those behind are tested again without it, and behind it again
/// when it recovers.
#[test]
fn what_is_behind_one_that_fails_goes_on_without_it_and_returns() {
    let (calm, _) = next(line(vec![place(1, RUNS), place(2, RUNS), place(3, RUNS)]));
    assert_eq!(
        states(&calm),
        [(None, 1), (Some((id(1), 1)), 1), (Some((id(2), 1)), 1)],
        "nothing happened"
    );

    let (fails, left) = next(line(vec![place(1, WILL_FAIL), place(2, RUNS), place(3, RUNS)]));
    assert_eq!(states(&fails), [(None, 1), (None, 2), (Some((id(2), 2)), 2)]);
    assert_eq!(
        (fails.places[0].standing, left.len()),
        (SlotStatus::Failing, 0),
        "its job is not over"
    );

    let mut recovers = fails;
    recovers.places[0].tasks[0].stage = RUNS;
    let (recovers, _) = next(recovers);
    // Of the third nothing was asked in its second state, so that there is nothing to throw away.
    assert_eq!(states(&recovers), [(None, 1), (Some((id(1), 1)), 3), (Some((id(2), 3)), 2)]);
}

/// Z6.4, G16: the first in the queue reports first; what is behind it waits with its result, and
/// the window shrinks by a failure.
#[test]
fn the_first_in_a_queue_reports_first() {
    let failed = || Stage::Ended(BuildResult::Failure);
    let (waits, left) = next(line(vec![place(1, RUNS), place(2, failed())]));
    assert_eq!((waits.places[1].standing, waits.window, left.len()), (SlotStatus::Failing, 20, 0));

    let (first, left) = next(line(vec![place(1, failed()), place(2, RUNS)]));
    assert_eq!(left, [(id(1), "FAILURE".to_owned())]);
    assert_eq!((first.window, states(&first)), (10, vec![(None, 2)]));
}

/// Z6.5, D09: what needs a change that left without landing leaves as well.
#[test]
fn what_needs_a_change_that_failed_leaves_with_it() {
    let mut needing = place(2, RUNS);
    needing.needs = vec![place(1, RUNS).change];
    let (rest, left) = next(line(vec![place(1, Stage::Ended(BuildResult::Failure)), needing]));
    assert_eq!(left, [(id(1), "FAILURE".to_owned()), (id(2), "FAILURE".to_owned())]);
    assert!(rest.places.is_empty());
}

/// Z6.5: what needs the revision that a push landed begins its jobs, whatever becomes of a newer
/// one behind it.
#[test]
fn what_needs_a_revision_that_landed_does_not_wait_for_a_newer_one_behind_it() {
    let (newer, older) =
        (place(1, WILL_FAIL), ChangeRef { head: "older".into(), ..place(1, RUNS).change });
    let needing = Place { ahead: None, needs: vec![older.clone()], ..place(2, Stage::Waiting) };
    let newer = Place { ahead: Some((id(2), 1)), ..newer };
    let before =
        Line { landed: vec![(older.key, "older".to_owned())], ..line(vec![needing, newer]) };
    let (after, left) = next(before);
    assert_eq!((&after.places[0].tasks[0].stage, left.len()), (&RUNS, 0));
    assert_eq!(after.places[1].standing, SlotStatus::Failing);
}

/// Z6.5: nor is it failing for a newer one that an operator moved before it.
#[test]
fn what_needs_a_revision_that_landed_goes_on_behind_a_newer_one_that_fails() {
    let (newer, older) =
        (place(1, WILL_FAIL), ChangeRef { head: "older".into(), ..place(1, RUNS).change });
    let needing = Place { ahead: None, needs: vec![older.clone()], ..place(2, Stage::Waiting) };
    let before =
        Line { landed: vec![(older.key, "older".to_owned())], ..line(vec![newer, needing]) };
    let (after, left) = next(before);
    assert_eq!((&after.places[1].tasks[0].stage, left.len()), (&RUNS, 0));
    let standings: Vec<SlotStatus> = after.places.iter().map(|place| place.standing).collect();
    assert_eq!(standings, [SlotStatus::Failing, SlotStatus::Testing]);
}

/// Z6.5, D10: in check a change begins again where it comes again on a newer revision of what it
/// needs; on the same, or an older one, it stays. Where changes land it stays in any case.
#[test]
fn what_is_tested_for_itself_begins_again_on_what_is_newer() {
    let need = |head: &str, as_of: u64| {
        let change = ChangeRef { head: head.into(), ..place(1, RUNS).change };
        Candidate { as_of: Timestamp(as_of), ..Candidate::bare(&change) }
    };
    for (head, as_of, lands, leaves) in [
        ("newer", 5, false, true),
        ("head", 5, false, false),
        ("older", 3, false, false),
        ("newer", 5, true, false),
    ] {
        let below = vec![(need("head", 4).change, Timestamp(4))];
        let own = Place { below, ahead: None, ..place(2, RUNS) };
        let own_key = QueueKey { queue: own_queue(&own.change.key), ..key() };
        let before = Line { manager: Manager::Independent, lands, key: own_key, ..line(vec![own]) };
        let again =
            Candidate { needs: vec![need(head, as_of)], ..Candidate::bare(&place(2, RUNS).change) };
        let arrival = InboxMessage {
            id: InboxMessageId::derive(&["again"]),
            at: Timestamp(1),
            event_id: "event".to_owned(),
            layout: 1,
            by_operator: false,
            in_progress: false,
            kind: InboxMessageKind::Enqueue { candidates: vec![again] },
        };
        let facts = Facts { taken: vec![("arrival".to_owned(), arrival)], ..nothing_new() };
        let known = Known::default();
        let mut turn = Turn::new(before, &facts, &known);
        turn.play();
        let expected: &[&str] = if leaves { &["DEQUEUED"] } else { &[] };
        assert_eq!(turn.left.values().collect::<Vec<_>>(), expected, "{head} as of {as_of}");
        assert_eq!(turn.line.places.len(), 1, "it is there again, or still");
    }
}

/// Returns a change of which a build is paused, and another job that runs beside that.
fn beside_paused(number: u64, guest: Stage) -> Place {
    let mut place =
        place(number, Stage::Paused { build: Some(BuildId::from("host")), goes_on: false });
    place.tasks.push(Task {
        name: "guest".to_owned(),
        hash: String::new(),
        voting: true,
        reporter: false,
        holds: false,
        dependencies: vec![JobDependency { name: "unit".into(), soft: false }],
        stage: guest,
    });
    place
}

/// Z4.3: a paused build serves what is behind it, goes on when that is over, and is not over itself
/// by then.
#[test]
fn a_paused_build_goes_on_once_all_behind_it_is_over() {
    let stages = |line: &Line| {
        line.places[0].tasks.iter().map(|task| task.stage.clone()).collect::<Vec<_>>()
    };
    let paused = |goes_on: bool| Stage::Paused { build: Some(BuildId::from("host")), goes_on };
    let (begins, _) = next(line(vec![beside_paused(1, Stage::Waiting)]));
    assert_eq!(stages(&begins), [paused(false), RUNS]);
    for result in [BuildResult::Success, BuildResult::Failure] {
        let (rests, left) = next(line(vec![beside_paused(1, Stage::Ended(result))]));
        assert_eq!(
            (stages(&rests), left.len()),
            (vec![paused(true), Stage::Ended(result)], 0),
            "{result}"
        );
    }
}

/// Z4.3: where a paused build is lost, all that ran beside it begins again; what is not behind it
/// stays.
#[test]
fn what_ran_beside_a_paused_build_that_is_lost_begins_again() {
    let runs = Stage::UnderWay { build: Some(BuildId::from("guest")), will_fail: false };
    let mut place = beside_paused(1, runs);
    let over = |name: &str, before: &str| Task {
        name: name.to_owned(),
        dependencies: vec![JobDependency { name: before.into(), soft: true }],
        stage: Stage::Ended(BuildResult::Success),
        ..place.tasks[1].clone()
    };
    let (later, other) = (over("later", "guest"), over("other", "later-or-not"));
    place.tasks.extend([later, other]);
    assert_eq!(place.begin_again_beside("unit"), [BuildId::from("guest")]);
    let waits: Vec<bool> = place.tasks.iter().map(|task| task.stage == Stage::Waiting).collect();
    assert_eq!(waits, [false, true, true, false]);
}

/// Z6.4, Z4.3: where something ahead of it fails, a change begins again, and its paused build with
/// what runs beside it is stopped.
#[test]
fn a_paused_build_is_stopped_with_the_state_that_it_is_of() {
    let guest = Stage::UnderWay { build: Some(BuildId::from("guest")), will_fail: false };
    let (facts, known) = (nothing_new(), Known::default());
    let mut turn =
        Turn::new(line(vec![place(1, WILL_FAIL), beside_paused(2, guest)]), &facts, &known);
    turn.play();
    assert_eq!(turn.stops, BTreeSet::from([BuildId::from("guest"), BuildId::from("host")]));
    assert!(turn.resumes.is_empty() && turn.line.places[1].tasks.is_empty());
}

/// Z4.3: while jobs run after a report nothing else begins, but for what a paused build waits for.
#[test]
fn what_a_paused_build_waits_for_begins_while_the_last_jobs_of_the_first_run() {
    let mut first = place(1, RUNS);
    (first.standing, first.tasks[0].reporter) = (SlotStatus::Reporting, true);
    let second = Place { ahead: None, ..beside_paused(2, Stage::Waiting) };
    let (held, left) = next(line(vec![first, second, place(3, Stage::Waiting)]));
    assert_eq!((&held.places[1].tasks[1].stage, left.len()), (&RUNS, 0));
    assert_eq!(held.places[2].tasks[0].stage, Stage::Waiting);
}

/// G20: what is behind a change with a job that holds it begins when that has passed, however far
/// behind it is.
#[test]
fn what_is_behind_a_job_that_holds_it_begins_when_that_has_passed() {
    let begins = |herald: Stage| {
        let mut first = place(1, RUNS);
        let herald = Task {
            name: "herald".to_owned(),
            holds: true,
            stage: herald,
            ..first.tasks[0].clone()
        };
        first.tasks.push(herald);
        let (held, _) = next(line(vec![first, place(2, Stage::Waiting), place(3, Stage::Waiting)]));
        held.places.iter().skip(1).map(|place| place.tasks[0].stage == RUNS).collect::<Vec<bool>>()
    };
    assert_eq!(begins(RUNS), [false, false]);
    assert_eq!(begins(Stage::Ended(BuildResult::Success)), [true, true]);
}

/// Returns an item with a job that names the semaphore `one`, and waits for this.
fn item(number: u64, waits_for: Option<WaitsFor>) -> Item {
    let Place { id, change, .. } = place(number, RUNS);
    let candidate = Candidate::bare(&change);
    let slot = Slot {
        id,
        change,
        generation: 1,
        ahead: None,
        status: SlotStatus::Testing,
        joined: false,
        version: 1,
    };
    let summary = serde_json::json!({
        "name": "locked", "hash": "", "voting": true, "attempts": 3, "labels": [], "semaphores": [{"name": "one"}],
    });
    let summary: JobSummary = serde_json::from_value(summary).unwrap();
    let mut item = Item::admitted(&slot, candidate, "event", Timestamp(1));
    item.jobs = vec![Job { waits_for, ..Job::new(summary) }];
    item
}

/// N16, G20: what a job waits for is there to be waited for.
#[test]
fn a_job_that_is_kept_waiting_without_a_reason_is_reported() {
    let known = Known::of(1);
    let is_wrong = |waits_for: Option<WaitsFor>, held_by: Option<&str>, others: Vec<Item>| {
        let items = others.into_iter().map(|other| (other.id.clone(), other)).collect();
        let facts = Facts { items, ..nothing_new() };
        wrong_wait(&facts, &known, &item(1, waits_for), "locked", held_by).is_some()
    };
    let semaphore = |name: &str| Some(WaitsFor::Semaphore(name.to_owned()));
    let herald = || Some(WaitsFor::Ahead("herald".into()));
    let image = || Some(WaitsFor::Requirements(vec!["image".to_owned()]));
    assert!(!is_wrong(None, None, Vec::new()) && !is_wrong(herald(), Some("herald"), Vec::new()));
    assert!(is_wrong(semaphore("one"), None, Vec::new()), "no one has it");
    assert!(
        !is_wrong(semaphore("one"), None, vec![item(2, semaphore("one"))]),
        "another one may be before it"
    );
    assert!(
        is_wrong(semaphore("two"), None, vec![item(2, semaphore("one"))]),
        "it does not name that"
    );
    for (waits_for, held_by) in [
        (herald(), None),
        (None, Some("herald")),
        (semaphore("one"), Some("herald")),
        (image(), None),
    ] {
        assert!(
            is_wrong(waits_for.clone(), held_by, Vec::new()),
            "{waits_for:?}, held by {held_by:?}"
        );
    }
}

/// C2: a decision that is another one than the model's is reported as such, and one that is the
/// same is not.
#[test]
fn a_decision_that_differs_is_reported() {
    let known = Known::default();
    let slot = |number: u64, ahead: Option<Predecessor>| {
        let Place { id, change, .. } = place(number, RUNS);
        Slot {
            id,
            change,
            generation: 1,
            ahead,
            status: SlotStatus::Testing,
            joined: false,
            version: 1,
        }
    };
    let reported = |ahead: Option<Predecessor>, window: u32| {
        let mut facts = nothing_new();
        facts.head.slots = vec![slot(1, None), slot(2, ahead)];
        facts.head.window = window;
        let mut turn = Turn::new(line(vec![place(1, RUNS), place(2, RUNS)]), &facts, &known);
        turn.play();
        differences(&turn, &facts)
    };
    let ahead = || Some(Predecessor { item: id(1), generation: 1 });
    assert_eq!(reported(ahead(), 20), Vec::<String>::new());
    assert!(
        reported(None, 20)[0]
            .starts_with("what org/t0p0#2 at head is tested on: its branch was decided")
    );
    assert!(
        reported(ahead(), 7)[0].starts_with("the window: 7 was decided, and the model decides 20")
    );
}

/// Returns the own queue of a change in a pipeline where each has one, with what stands there.
fn own_line(number: u64, places: Vec<Place>) -> Line {
    let queue = own_queue(&place(number, RUNS).change.key);
    let key = QueueKey { pipeline: "check".into(), queue, ..key() };
    Line { places, ..Line::new(key, Manager::Independent, 1, Window::NONE) }
}

/// Returns a revision of a queue that took this in.
fn reported(line: &Line, kind: InboxMessageKind) -> Facts {
    let (id, event_id) = (InboxMessageId::derive(&["reported"]), "event".to_owned());
    let arrival = InboxMessage {
        id,
        at: Timestamp(1),
        event_id,
        layout: 1,
        by_operator: false,
        in_progress: false,
        kind,
    };
    let mut head = Head::new(line.key.clone(), Manager::Independent, 0, 1);
    head.hosted_in.clone_from(&line.stands_in);
    Facts { head, taken: vec![("arrival".to_owned(), arrival)], ..nothing_new() }
}

/// Returns changes that need each other as they are offered.
fn as_one(numbers: [u64; 2]) -> Vec<Candidate> {
    let bare = numbers.map(|number| Candidate::bare(&place(number, RUNS).change));
    let cycle: Vec<ChangeKey> = bare.iter().map(|one| one.change.key.clone()).collect();
    let mate = |at: usize| vec![bare[1 - at].clone()];
    [0, 1]
        .map(|at| Candidate { needs: mate(at), bundle: cycle.clone(), ..bare[at].clone() })
        .to_vec()
}

/// Returns two places that stand as one, each on its branch.
fn bundle(numbers: [u64; 2]) -> Vec<Place> {
    let cycle: Vec<ChangeKey> =
        numbers.iter().map(|number| place(*number, RUNS).change.key).collect();
    let own = |(at, number): (usize, u64)| {
        let joined = at > 0;
        Place {
            ahead: None,
            cycle: cycle.clone(),
            joined,
            as_of: Timestamp(5),
            ..place(number, RUNS)
        }
    };
    numbers.into_iter().enumerate().map(own).collect()
}

/// D10: where each change has a queue of its own, those that need each other stand in that of the
/// first, and the others' say so.
#[test]
fn changes_that_need_each_other_enter_the_queue_of_the_first_as_one() {
    let line = own_line(1, Vec::new());
    let mut facts = reported(&line, InboxMessageKind::Enqueue { candidates: as_one([1, 2]) });
    let known = Known::default();
    let home = line.key.clone();
    let mut turn = Turn::new(line.clone(), &facts, &known);
    turn.play();
    assert_eq!(
        turn.line.places.iter().map(|place| place.joined).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(
        turn.differences_elsewhere(&facts).len(),
        1,
        "the other one's own queue was not written"
    );

    let own = Head::new(own_line(2, Vec::new()).key, Manager::Independent, 0, 1);
    facts.doors = vec![Head { hosted_in: Some(home.queue), ..own }.stored()];
    let mut turn = Turn::new(line, &facts, &known);
    turn.play();
    assert_eq!(turn.differences_elsewhere(&facts), Vec::<String>::new());
}

/// Z6.1: where events are discarded, whether an offer was dropped is read from what came of it; one
/// that was taken up before is not.
#[test]
fn an_offer_that_was_taken_up_is_dropped_by_no_one() {
    for (taken_up, enter) in [(false, 0), (true, 2)] {
        let line = own_line(1, Vec::new());
        let mut facts = reported(&line, InboxMessageKind::Enqueue { candidates: as_one([1, 2]) });
        facts.taken[0].1.in_progress = taken_up;
        let known = Known::discarding(&line.key.tenant);
        let mut turn = Turn::new(line, &facts, &known);
        turn.play();
        assert_eq!(turn.line.places.len(), enter, "{taken_up}");
    }
}

/// D10: what the own queue of a guest is reported is for where that stands, and what another queue
/// is reported of it once it has left is for its own.
#[test]
fn what_is_reported_of_a_change_reaches_the_queue_in_which_it_stands() {
    let known = Known::default();
    let lent =
        Line { stands_in: Some(own_line(1, Vec::new()).key.queue), ..own_line(2, Vec::new()) };
    let (home, left) = (own_line(1, bundle([1, 2])), own_line(1, Vec::new()));
    let news = || InboxMessageKind::ChangeUpdated {
        change: ChangeRef { head: "newer".into(), ..place(2, RUNS).change },
        gone: None,
        merged: false,
        needs: None,
        as_of: Timestamp(9),
    };
    let own = |number: u64| Some(own_line(number, Vec::new()).key);
    for (line, to, leave) in [(lent, own(1), 0), (home, None, 2), (left, own(2), 0)] {
        let facts = reported(&line, news());
        let mut turn = Turn::new(line, &facts, &known);
        turn.play();
        let sent: Vec<&QueueKey> = turn.sent.iter().map(|(queue, _)| queue).collect();
        let due: Vec<&QueueKey> = to.iter().collect();
        assert_eq!((sent, turn.left.len()), (due, leave));
    }
}

/// D10: a change leaves where another queue is to have it, with those that stand as one with it,
/// unless something newer is known there.
#[test]
fn a_change_makes_way_with_all_that_stand_as_one_with_it() {
    let known = Known::default();
    for (head, as_of, leave) in [("head", 4, 2), ("older", 4, 0), ("newer", 6, 2)] {
        let line = own_line(1, bundle([1, 2]));
        let change = ChangeRef { head: head.into(), ..place(1, RUNS).change };
        let to = QueueName("another".to_owned());
        let facts =
            reported(&line, InboxMessageKind::MoveToHost { change, as_of: Timestamp(as_of), to });
        let mut turn = Turn::new(line, &facts, &known);
        turn.play();
        assert_eq!(turn.left.len(), leave, "{head}");
    }
}

/// D10: a change that is offered by itself leaves those that it stands as one with, and enters by
/// itself.
#[test]
fn a_change_that_needs_no_other_any_more_is_tested_by_itself() {
    let known = Known::default();
    let own = || Candidate::bare(&place(1, RUNS).change);
    let tied = Candidate { cycle_needs: vec![place(2, RUNS).change.key], ..own() };
    for (candidate, leave) in [(own(), 2), (tied, 0)] {
        let line = own_line(1, bundle([1, 2]));
        let facts = reported(&line, InboxMessageKind::Enqueue { candidates: vec![candidate] });
        let mut turn = Turn::new(line, &facts, &known);
        turn.play();
        assert_eq!(
            (turn.left.len(), turn.line.places.len()),
            (leave, if leave > 0 { 1 } else { 2 })
        );
    }
}
