//! Whether somebody still sees to what is not over: every item, arrival, build and request ends in
//! one terminal state, and until then its cell is looked at, or its executor lives. What nobody
//! sees to any more is *unaccounted* for.

use sluice_model::Timestamp;

/// Seconds after which what nobody sees to counts as unaccounted: ten sweeps.
pub const BOUND_SECONDS: u64 = 600;

/// How often a build is sent once more to executors, a quarter of an hour between, before nobody
/// counts on its being claimed. What is sent anew is a young message each time, so that the age of
/// messages says nothing of it.
const SENT_AGAIN_MAX: u32 = 3;

/// What is said of a build that is sent and sent and not claimed.
pub const UNCLAIMED: &str = "it was sent to the executors again and again, and none has claimed it";

/// A cell, as far as it says whether what stands in it is seen to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// When it is to be looked at without being poked.
    pub due: Option<Timestamp>,
    /// Whether it is frozen: that is counted by itself, and an operator's turn.
    pub is_frozen: bool,
}

/// A run that did not end, as far as it says whether it will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRun {
    /// Until when its executor lives, by its session; `None` when there is no such session.
    pub alive_until: Option<Timestamp>,
    /// When the gate wanted it stopped.
    pub stopped_at: Option<Timestamp>,
}

/// Returns why nobody sees to what stands in a cell, and nothing while somebody does.
pub fn in_cell(cell: Option<Cell>, now: Timestamp) -> Option<String> {
    match cell {
        None => Some("the cell that it stands in has no head".to_owned()),
        Some(Cell { is_frozen: true, .. }) => None,
        Some(Cell { due: None, .. }) => {
            Some("the cell that it stands in is never looked at again".to_owned())
        }
        Some(Cell { due: Some(due), .. }) => late(due, now).map(|minutes| {
            format!("the cell that it stands in was to be looked at {minutes} minutes ago")
        }),
    }
}

/// Returns whether a run is as good as over: its executor is gone, and the gate knows that and has
/// given it up.
pub fn is_given_up(run: OpenRun, now: Timestamp) -> bool {
    run.stopped_at.is_some() && run.alive_until.is_none_or(|until| until < now)
}

/// Returns why a run that did not end never will, as far as anybody can tell, and nothing while it
/// may.
pub fn of_run(run: OpenRun, now: Timestamp) -> Option<String> {
    if is_given_up(run, now) {
        return None;
    }
    if let Some(minutes) = run.stopped_at.and_then(|at| late(at, now)) {
        return Some(format!("it was to stop {minutes} minutes ago, and its executor goes on"));
    }
    match run.alive_until {
        None => Some("its executor is not known, and its queue has not given it up".to_owned()),
        Some(until) => late(until, now).map(|minutes| {
            format!(
                "its executor is gone since {minutes} minutes, and its queue has not given it up"
            )
        }),
    }
}

/// Returns whether a build that nobody has claimed was sent once more too often.
pub fn is_unclaimed(sent_again: u32) -> bool {
    sent_again >= SENT_AGAIN_MAX
}

/// Returns the whole minutes since `at`, where the bound has passed since.
fn late(at: Timestamp, now: Timestamp) -> Option<u64> {
    let millis = now.since(at);
    (millis > BOUND_SECONDS * 1_000).then_some(millis / 60_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(10_000_000);
    const LONG_AGO: Timestamp = Timestamp(NOW.0 - BOUND_SECONDS * 1_000 - 1);
    const OF_LATE: Timestamp = Timestamp(NOW.0 - BOUND_SECONDS * 1_000);

    /// Z6.7: an item that waits for an hour is no loss while its queue is looked at.
    #[test]
    fn what_stands_in_a_cell_is_accounted_for_while_the_cell_is_looked_at_or_an_operators_turn() {
        let cell = |due, is_frozen| in_cell(Some(Cell { due, is_frozen }), NOW);
        assert_eq!(
            (cell(Some(OF_LATE), false), cell(Some(NOW.plus_seconds(30)), false)),
            (None, None)
        );
        assert_eq!(cell(None, true), None);
        assert!(cell(Some(LONG_AGO), false).is_some_and(|why| why.contains("10 minutes ago")));
        assert!(cell(None, false).is_some() && in_cell(None, NOW).is_some());
    }

    /// Z7.6: a build whose executor died is over once its queue has ordered it anew.
    #[test]
    fn a_run_is_accounted_for_while_its_executor_lives_or_once_its_queue_gave_it_up() {
        let run = |alive_until, stopped_at| of_run(OpenRun { alive_until, stopped_at }, NOW);
        assert_eq!(run(Some(NOW.plus_seconds(10)), None), None);
        assert_eq!(run(Some(OF_LATE), None), None, "its queue may still notice");
        assert!(run(Some(LONG_AGO), None).is_some() && run(None, None).is_some());
        assert_eq!((run(Some(LONG_AGO), Some(LONG_AGO)), run(None, Some(NOW))), (None, None));
        assert!(
            run(Some(NOW.plus_seconds(10)), Some(LONG_AGO))
                .is_some_and(|why| why.contains("goes on"))
        );
        assert_eq!(run(Some(NOW.plus_seconds(10)), Some(OF_LATE)), None);
    }
}
