//! Allowed state changes of records that can be checked alone.

use super::{WriteEffect, both};
use sluice_gate::{MergeOutcome, Report, ReportState};
use sluice_pool::{NodeRequest, RequestState};
use sluice_records::tenant::Tenant;
use sluice_runtime::record::Record;

/// Checks the layout numbers of a tenant's head against the ones before.
pub(super) fn check_tenant(
    before: Option<&Record>,
    after: Option<&Record>,
    effects: &mut Vec<WriteEffect>,
) -> Result<(), String> {
    let (before, after) = both::<Tenant>(before, after)?;
    let Some(after) = after else { return Err("a tenant's head is removed".to_owned()) };
    let now = after.layout;
    if now.live > now.wanted {
        return Err(format!("layout {} is live, but only {} is wanted", now.live, now.wanted));
    }
    let was = before.map(|before| before.layout);
    if let Some(was) = was.filter(|was| now.live < was.live || now.wanted < was.wanted) {
        return Err(format!("its layout numbers decrease from {was:?} to {now:?}"));
    }
    if was.is_none_or(|was| was.live != now.live) {
        effects.push(WriteEffect::Line(format!("layout {} of {} is live", now.live, after.name)));
    } else if was.is_some_and(|was| was.wanted != now.wanted) {
        effects
            .push(WriteEffect::Line(format!("layout {} of {} is wanted", now.wanted, after.name)));
    }
    Ok(())
}

/// Checks that only the executor changes a claimed request, and that a final state is final.
pub(super) fn check_request(before: Option<&Record>, after: Option<&Record>) -> Result<(), String> {
    let (before, after) = both::<NodeRequest>(before, after)?;
    let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
    let may_follow = match (&before.state, &after.state) {
        (RequestState::Ended(_) | RequestState::Failed { .. }, next) => before.state == *next,
        (RequestState::Claimed(was), RequestState::Claimed(now) | RequestState::Ended(now)) => {
            was == now
        }
        (RequestState::Claimed(_), RequestState::Failed { .. }) => true,
        (RequestState::Claimed(_), _) => false,
        _ => true,
    };
    if may_follow {
        Ok(())
    } else {
        Err(format!("a request was {:?} and is {:?} now", before.state, after.state))
    }
}

/// Checks that an existing record does not change; `rule` is the start of the error.
pub(super) fn check_unchanged(
    before: Option<&Record>,
    after: Option<&Record>,
    rule: &str,
) -> Result<(), String> {
    match (before, after) {
        (Some(before), Some(after)) if before.body != after.body => {
            Err(format!("{rule}, but it changed"))
        }
        _ => Ok(()),
    }
}

/// Checks that a sent, dropped or refused report stays so, so that it is not sent again.
pub(super) fn check_report(before: Option<&Record>, after: Option<&Record>) -> Result<(), String> {
    let (before, after) = both::<Report>(before, after)?;
    match (before, after) {
        (Some(before), Some(after))
            if before.state != ReportState::Pending && before.state != after.state =>
        {
            Err(format!("a report ended as {:?} and is {:?} now", before.state, after.state))
        }
        _ => Ok(()),
    }
}

/// Checks that the first merge result is never replaced.
pub(super) fn check_same_outcome(
    before: Option<&Record>,
    after: Option<&Record>,
) -> Result<(), String> {
    let (before, after) = both::<MergeOutcome>(before, after)?;
    match (before, after) {
        (Some(before), Some(after)) if before != after => {
            Err("a merge result was replaced by another".to_owned())
        }
        _ => Ok(()),
    }
}
