//! Detects work that will never end. Every item, inbox message, build and request must reach a
//! terminal state; until then its cell is reconciled regularly or its executor is alive. Anything
//! else is *unattended*.

use sluice_model::Timestamp;

/// Seconds after which overdue work counts as unattended: ten sweeps.
pub const BOUND_SECONDS: u64 = 600;

/// How many times a build is sent to the executors again, at intervals of 15 minutes, until it
/// counts as unclaimed. Each time is a new message, so the age of the message does not show this.
const SENT_AGAIN_MAX: u32 = 3;

/// The reason shown for a build that no executor claims.
pub const UNCLAIMED: &str = "it was sent to the executors several times and none has claimed it";

/// The part of a cell's head that shows whether the cell is reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellSchedule {
    /// When the sweep reconciles it; `None` for never.
    pub due: Option<Timestamp>,
    /// Whether it is halted. Halted cells are counted separately and wait for an operator.
    pub is_halted: bool,
}

/// The part of a run without a result that shows whether it will end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRun {
    /// Until when its executor's session is valid; `None` where there is no session.
    pub alive_until: Option<Timestamp>,
    /// When the gate asked for it to be stopped.
    pub stopped_at: Option<Timestamp>,
}

/// Returns why a cell is unattended: it has no head, no due time, or is overdue by more than
/// [`BOUND_SECONDS`]. `None` where it is reconciled in time or halted.
pub fn unattended_cell_reason(cell: Option<CellSchedule>, now: Timestamp) -> Option<String> {
    match cell {
        None => Some("its cell has no head record".to_owned()),
        Some(CellSchedule { is_halted: true, .. }) => None,
        Some(CellSchedule { due: None, .. }) => {
            Some("its cell is not scheduled to be reconciled".to_owned())
        }
        Some(CellSchedule { due: Some(due), .. }) => late(due, now)
            .map(|minutes| format!("its cell was due to be reconciled {minutes} minutes ago")),
    }
}

/// Returns whether the gate has given up a run whose executor is gone: the gate asked for its end,
/// and no session of its executor is valid.
pub fn is_given_up(run: OpenRun, now: Timestamp) -> bool {
    run.stopped_at.is_some() && run.alive_until.is_none_or(|until| until < now)
}

/// Returns why a run without a result is unattended: its executor has no session, or one that
/// expired more than [`BOUND_SECONDS`] ago, and the gate has not given the run up; or it was
/// cancelled more than [`BOUND_SECONDS`] ago and its executor still runs it. `None` while it may
/// end and once it is given up.
pub fn unattended_run_reason(run: OpenRun, now: Timestamp) -> Option<String> {
    if is_given_up(run, now) {
        return None;
    }
    if let Some(minutes) = run.stopped_at.and_then(|at| late(at, now)) {
        return Some(format!(
            "it was cancelled {minutes} minutes ago, and its executor is still running it"
        ));
    }
    match run.alive_until {
        None => Some("its executor has no session, and its queue has not given it up".to_owned()),
        Some(until) => late(until, now).map(|minutes| {
            format!(
                "its executor has been gone for {minutes} minutes, and its queue has not given it up"
            )
        }),
    }
}

/// Returns whether a build that was sent again this many times counts as unclaimed.
pub fn is_unclaimed(sent_again: u32) -> bool {
    sent_again >= SENT_AGAIN_MAX
}

/// Returns the whole minutes since `at`; `None` within [`BOUND_SECONDS`].
fn late(at: Timestamp, now: Timestamp) -> Option<u64> {
    let millis = now.since(at);
    (millis > BOUND_SECONDS * 1_000).then_some(millis / 60_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(10_000_000);
    const LONG_AGO: Timestamp = Timestamp(NOW.0 - BOUND_SECONDS * 1_000 - 1);
    const RECENTLY: Timestamp = Timestamp(NOW.0 - BOUND_SECONDS * 1_000);

    /// Z6.7: an item may wait for an hour as long as its queue is reconciled.
    #[test]
    fn a_cell_is_attended_while_it_is_reconciled_or_halted() {
        let cell = |due, is_frozen| {
            unattended_cell_reason(Some(CellSchedule { due, is_halted: is_frozen }), NOW)
        };
        assert_eq!(
            (cell(Some(RECENTLY), false), cell(Some(NOW.plus_seconds(30)), false)),
            (None, None)
        );
        assert_eq!(cell(None, true), None);
        assert!(cell(Some(LONG_AGO), false).is_some_and(|why| why.contains("10 minutes ago")));
        assert!(cell(None, false).is_some() && unattended_cell_reason(None, NOW).is_some());
    }

    /// Z7.6: a build whose executor died is settled once its queue has ordered another one.
    #[test]
    fn a_run_is_attended_while_its_executor_lives_or_once_it_is_given_up() {
        let run = |alive_until, stopped_at| {
            unattended_run_reason(OpenRun { alive_until, stopped_at }, NOW)
        };
        assert_eq!(run(Some(NOW.plus_seconds(10)), None), None);
        assert_eq!(run(Some(RECENTLY), None), None, "its queue may still notice");
        assert!(run(Some(LONG_AGO), None).is_some() && run(None, None).is_some());
        assert_eq!((run(Some(LONG_AGO), Some(LONG_AGO)), run(None, Some(NOW))), (None, None));
        assert!(
            run(Some(NOW.plus_seconds(10)), Some(LONG_AGO))
                .is_some_and(|why| why.contains("still running"))
        );
        assert_eq!(run(Some(NOW.plus_seconds(10)), Some(RECENTLY)), None);
    }
}
