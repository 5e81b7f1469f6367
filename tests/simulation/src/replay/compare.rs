//! What was decided, against what the model decides, and how both are reported.

use super::facts::{Facts, word_of};
use super::finish::named;
use super::line::{Answer, Line, Stage, Task};
use super::turn::Turn;
use crate::windows::Window;
use sluice_gate::{InboxMessage, InboxMessageKind, Item, Landing};
use sluice_model::{BuildId, ItemId};
use std::collections::{BTreeMap, BTreeSet};

/// Landed changes that a head remembers; of more it forgets some.
const LANDED_MAX: usize = 32;

/// Returns how a decision differs from the model's, the most telling first.
pub(super) fn differences(turn: &Turn<'_>, facts: &Facts) -> Vec<String> {
    let (line, head) = (&turn.line, &facts.head);
    let mut found = turn.misread.clone();
    let mut compare = |what: &str, decided: String, model: String| {
        if decided != model {
            found.push(format!("{what}: {decided} was decided, and the model decides {model}"));
        }
    };
    let decided: BTreeMap<&ItemId, &str> =
        facts.left.iter().map(|(id, set)| (id, set.result.as_str())).collect();
    let model: BTreeMap<&ItemId, &str> =
        turn.left.iter().map(|(id, result)| (id, result.as_str())).collect();
    compare("who leaves", left(&decided, turn), left(&model, turn));
    let decided = head.slots.iter().map(|slot| (&slot.id, slot.change.to_string()));
    let model = line.places.iter().map(|place| (&place.id, place.change.to_string()));
    let decided = order(decided, head.slots.iter().map(|slot| slot.joined));
    compare("the order", decided, order(model, line.places.iter().map(|place| place.joined)));
    for slot in &head.slots {
        let Some(place) = line.position(&slot.id).map(|at| &line.places[at]) else { continue };
        let change = &slot.change;
        let ahead = slot.ahead.as_ref().map(|ahead| (ahead.item.clone(), ahead.generation));
        compare(
            &format!("what {change} is tested on"),
            on(ahead.as_ref(), line),
            on(place.ahead.as_ref(), line),
        );
        compare(
            &format!("where {change} stands"),
            format!("{:?}", slot.status),
            format!("{:?}", place.standing),
        );
        compare(
            &format!("the state of {change}"),
            slot.generation.to_string(),
            place.state.to_string(),
        );
        let Some(item) = facts.items.get(&slot.id) else { continue };
        compare(
            &format!("the state of {change} that its builds are of"),
            item.generation.to_string(),
            place.known_state.to_string(),
        );
        compare(
            &format!("the question for {change}"),
            word_of(&item.merge_status).to_owned(),
            word(&place.answer).to_owned(),
        );
        compare(&format!("the jobs of {change}"), jobs(&tasks(item)), jobs(&place.tasks));
    }
    compare("the window", head.window.to_string(), line.window.to_string());
    compare("whether it is frozen", head.halted.is_some().to_string(), line.is_frozen.to_string());
    if head.landed.len() < LANDED_MAX {
        let model: Vec<String> = line.landed.iter().map(|(key, _)| key.to_string()).collect();
        let decided: Vec<String> = head.landed.iter().map(ToString::to_string).collect();
        compare("what landed here", list(decided), list(model));
    }
    let landings = facts.landings.iter().map(|landing| (landing.item.clone(), landing.generation));
    let decided: BTreeSet<(ItemId, u64)> = landings.collect();
    if turn.landings != decided {
        let names = |all: &BTreeSet<(ItemId, u64)>| {
            list(all.iter().map(|(id, state)| name(id, *state, turn)))
        };
        let (decided, model) = (names(&decided), names(&turn.landings));
        compare("what is to land", decided, model);
    }
    let in_cycle =
        |id: &ItemId| facts.after(id).is_some_and(|item| !item.candidate.bundle.is_empty());
    let decided: BTreeSet<(ItemId, String)> =
        facts.orders.iter().filter(|(id, _)| !in_cycle(id)).cloned().collect();
    let ordered = |all: &BTreeSet<(ItemId, String)>| {
        list(all.iter().map(|(id, job)| format!("{job} of {}", change_of(id, turn))))
    };
    compare("what is ordered", ordered(&decided), ordered(&turn.orders));
    let resumed = |all: &BTreeSet<BuildId>| list(all.iter().map(ToString::to_string));
    compare("which paused builds go on", resumed(&facts.resumes), resumed(&turn.resumes));
    compare_stops(turn, facts, &mut compare);
    found.extend(turn.differences_elsewhere(facts));
    found
}

/// Compares which builds are stopped: those of states that are no more. One that ended meanwhile
/// need not be; one that was lost may be.
fn compare_stops(turn: &Turn<'_>, facts: &Facts, compare: &mut impl FnMut(&str, String, String)) {
    let is_shared = |build: &&BuildId| {
        let of = |item: &&Item| item.builds.contains(*build) && !item.candidate.bundle.is_empty();
        facts.items.values().chain(facts.left.values().map(|set| &set.item)).any(|item| of(&item))
    };
    let more = facts
        .stops
        .iter()
        .filter(|build| !turn.stops.contains(*build) && !turn.lost.contains(*build));
    let less = turn.stops.iter().filter(|build| {
        !facts.stops.contains(*build)
            && turn.known.result(build).is_none()
            && !turn.lost.contains(*build)
    });
    let names = |builds: Vec<&BuildId>| list(builds.into_iter().map(ToString::to_string));
    let more: Vec<&BuildId> = more.filter(|build| !is_shared(build)).collect();
    let less: Vec<&BuildId> = less.filter(|build| !is_shared(build)).collect();
    compare("which builds are stopped, of those in question", names(more), names(less));
}

/// What a revision read and decided, in words.
pub(super) struct RevisionTexts {
    pub(super) read: String,
    pub(super) decided: String,
}

/// Describes a revision.
pub(super) fn reported(facts: &Facts) -> RevisionTexts {
    let taken = facts.taken.iter().map(|(_, arrival)| format!("took in {}", said(arrival)));
    let waiting = facts.waiting.iter().map(|(_, arrival)| format!("left {}", said(arrival)));
    let left = facts.left.values().map(|set| {
        let why = set.why.lines().next().unwrap_or_default();
        format!("{} left as {}: {why}", set.item.candidate.change, set.result)
    });
    let landings =
        facts.landings.iter().map(|landing: &Landing| format!("{} is to land", named(landing)));
    let orders = facts.orders.iter().map(|(id, job)| {
        let change = facts
            .after(id)
            .map_or_else(|| id.to_string(), |item| item.candidate.change.to_string());
        format!("{job} of {change} is ordered")
    });
    let head = &facts.head;
    let mut line = Line::new(head.key.clone(), head.manager, head.layout, Window::NONE);
    line.believe(facts);
    let decided = [queue(&line)].into_iter().chain(left).chain(landings).chain(orders);
    RevisionTexts { read: list_lines(taken.chain(waiting)), decided: list_lines(decided) }
}

/// Describes how a queue stands.
pub(super) fn queue(line: &Line) -> String {
    let frozen = if line.is_frozen { ", frozen" } else { "" };
    let head = format!("layout {}, window {}{frozen}", line.layout, line.window);
    let places = line.places.iter().map(|place| {
        let joined = if place.joined { ", with the one before" } else { "" };
        format!(
            "{} {:?} in state {} on {}{joined}, {} [{}]",
            place.change,
            place.standing,
            place.state,
            on(place.ahead.as_ref(), line),
            word(&place.answer),
            jobs(&place.tasks)
        )
    });
    list_lines([head].into_iter().chain(places))
}

fn said(arrival: &InboxMessage) -> String {
    match &arrival.kind {
        InboxMessageKind::Enqueue { candidates } => {
            let all = candidates.iter().map(|one| {
                let needs = list(one.needs.iter().map(|need| need.change.to_string()));
                let refused =
                    one.refused.as_ref().map(|why| format!(", refused: {why}")).unwrap_or_default();
                format!("{} as of {} that needs {needs}{refused}", one.change, one.as_of.to_iso())
            });
            format!("an offer of {}", list(all))
        }
        InboxMessageKind::ChangeUpdated { change, gone, merged, needs, as_of } => format!(
            "news of {change} as of {}: gone {gone:?}, merged {merged}, needs {}",
            as_of.to_iso(),
            list(needs.iter().flatten().map(ToString::to_string))
        ),
        other => format!("{other:?}"),
    }
}

fn on(ahead: Option<&(ItemId, u64)>, line: &Line) -> String {
    let Some((id, state)) = ahead else { return "its branch".to_owned() };
    match line.position(id) {
        Some(at) => format!("{} in state {state}", line.places[at].change),
        None => format!("{id}, which is not here, in state {state}"),
    }
}

fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Unasked => "unasked",
        Answer::Asked => "asked",
        Answer::Merges(_) => "merged",
        Answer::Cannot { configuration: true } => "misconfigured",
        Answer::Cannot { configuration: false } => "in conflict",
    }
}

fn tasks(item: &Item) -> Vec<Task> {
    item.jobs.iter().map(Task::of).collect()
}

fn jobs(tasks: &[Task]) -> String {
    let word = |task: &Task| match &task.stage {
        Stage::Waiting => "waits".to_owned(),
        Stage::UnderWay { will_fail: true, .. } => "will fail".to_owned(),
        Stage::UnderWay { .. } => "is under way".to_owned(),
        Stage::Paused { goes_on: false, .. } => "is paused".to_owned(),
        Stage::Paused { goes_on: true, .. } => "was paused and goes on".to_owned(),
        Stage::Ended(result) => result.to_string(),
    };
    list(tasks.iter().map(|task| format!("{} {}", task.name, word(task))))
}

fn order<'a>(
    ids: impl Iterator<Item = (&'a ItemId, String)>,
    joined: impl Iterator<Item = bool>,
) -> String {
    let places = ids.zip(joined).map(|((id, change), joined)| {
        let part = id.as_str().get(..6).unwrap_or_default();
        let with = if joined { "with it " } else { "" };
        format!("{with}{change} ({part})")
    });
    list(places)
}

fn left(results: &BTreeMap<&ItemId, &str>, turn: &Turn<'_>) -> String {
    list(results.iter().map(|(id, result)| format!("{} as {result}", change_of(id, turn))))
}

fn name(id: &ItemId, state: u64, turn: &Turn<'_>) -> String {
    format!("{} in state {state}", change_of(id, turn))
}

/// Returns what an item is about, by whatever is known of it.
fn change_of(id: &ItemId, turn: &Turn<'_>) -> String {
    let recorded = turn.facts.after(id).map(|item| item.candidate.change.to_string());
    let own = || turn.line.position(id).map(|at| turn.line.places[at].change.to_string());
    recorded.or_else(own).unwrap_or_else(|| id.to_string())
}

pub(super) fn list(texts: impl IntoIterator<Item = String>) -> String {
    let texts: Vec<String> = texts.into_iter().collect();
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
}

fn list_lines(texts: impl Iterator<Item = String>) -> String {
    texts.map(|text| format!("\n    {text}")).collect()
}
