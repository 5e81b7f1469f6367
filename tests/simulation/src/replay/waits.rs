//! What jobs are kept waiting for besides those before them, as their records say, against what
//! there is to wait for.

use super::facts::{Facts, Known};
use sluice_gate::{Item, Job, JobStatus, WaitsFor};

/// Returns what is wrong with what a job waits for that could begin otherwise; nothing where it
/// waits for nothing and does not have to.
///
/// That a change ahead holds it is this queue's alone to say. Semaphores and what it requires are
/// others', too: of these it is judged that the job asks for them, and of semaphores that an
/// operator may have been before it.
pub(super) fn wrong_wait(
    facts: &Facts,
    known: &Known,
    item: &Item,
    name: &str,
    held_by: Option<&str>,
) -> Option<String> {
    // Of one that does not wait any more its record may still say for what it did.
    let waits = |job: &&Job| job.summary.name.as_str() == name && job.status == JobStatus::Waiting;
    let job = item.jobs.iter().find(waits)?;
    let change = &item.candidate.change;
    match (&job.waits_for, held_by) {
        (None, None) => None,
        (Some(WaitsFor::Ahead(ahead)), Some(job)) if ahead.as_str() == job => None,
        (other, Some(job)) => Some(format!(
            "{name} of {change} is held by {job} ahead, and its record says {other:?}"
        )),
        (Some(WaitsFor::Ahead(ahead)), None) => {
            Some(format!("{name} of {change} waits for {ahead} ahead, which holds nothing"))
        }
        (Some(WaitsFor::Requirements(kinds)), None) => {
            let is_asked_for = !kinds.is_empty() && *kinds == job.summary.requires;
            (!is_asked_for).then(|| {
                format!("{name} of {change} waits for {kinds:?}, which it does not require")
            })
        }
        (Some(WaitsFor::Semaphore(semaphore)), None) if !names(job, semaphore) => Some(format!(
            "{name} of {change} waits for the semaphore {semaphore}, which it does not name"
        )),
        (Some(WaitsFor::Semaphore(semaphore)), None) => {
            let places = known.places_of(semaphore);
            let others = known.before_in_line(&facts.head.key, semaphore, facts.since);
            let taken = others + beside(facts, item, job, semaphore);
            let text = format!("{taken} of its {places} places can have been taken");
            (taken < places).then(|| {
                format!("{name} of {change} waits for the semaphore {semaphore}, and {text}")
            })
        }
    }
}

/// Returns how many other jobs of the queue wait with this one for a semaphore: those before it
/// keep places from it.
fn beside(facts: &Facts, item: &Item, job: &Job, semaphore: &str) -> usize {
    let jobs =
        facts.items.values().flat_map(|other| other.jobs.iter().map(move |job| (&other.id, job)));
    let others =
        jobs.filter(|(id, other)| **id != item.id || other.summary.name != job.summary.name);
    others
        .filter(|(_, other)| {
            matches!(other.waits_for, Some(WaitsFor::Semaphore(_))) && names(other, semaphore)
        })
        .count()
}

fn names(job: &Job, semaphore: &str) -> bool {
    job.summary.semaphores.iter().any(|used| used.name == semaphore)
}
