//! What may follow in records that tell everything by themselves.

use super::{News, both};
use sluice_gate::{MergeOutcome, Report, ReportState};
use sluice_pool::{Request, RequestState};
use sluice_records::tenant::Tenant;
use sluice_runtime::record::Record;

/// Returns what is wrong with a tenant's head after the one before, if anything is.
pub(super) fn tenant(
    before: Option<&Record>,
    after: Option<&Record>,
    news: &mut Vec<News>,
) -> Result<(), String> {
    let (before, after) = both::<Tenant>(before, after)?;
    let Some(after) = after else { return Err("a tenant's head is removed".to_owned()) };
    let now = after.layout;
    if now.live > now.wanted {
        return Err(format!("layout {} is live, and {} is wanted", now.live, now.wanted));
    }
    let was = before.map(|before| before.layout);
    if let Some(was) = was.filter(|was| now.live < was.live || now.wanted < was.wanted) {
        return Err(format!("its layout numbers fall from {was:?} to {now:?}"));
    }
    if was.is_none_or(|was| was.live != now.live) {
        news.push(News::Line(format!("layout {} of {} is live", now.live, after.name)));
    } else if was.is_some_and(|was| was.wanted != now.wanted) {
        news.push(News::Line(format!("layout {} of {} is wanted", now.wanted, after.name)));
    }
    Ok(())
}

/// An executor's half of a request's life is its own.
pub(super) fn request(before: Option<&Record>, after: Option<&Record>) -> Result<(), String> {
    let (before, after) = both::<Request>(before, after)?;
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

/// A record that is there stays as it is, by this rule.
pub(super) fn same(
    before: Option<&Record>,
    after: Option<&Record>,
    rule: &str,
) -> Result<(), String> {
    match (before, after) {
        (Some(before), Some(after)) if before.body != after.body => {
            Err(format!("{rule}, and this is another one"))
        }
        _ => Ok(()),
    }
}

/// A report that was made, dropped or refused stays so: nobody is to tell it again.
pub(super) fn report(before: Option<&Record>, after: Option<&Record>) -> Result<(), String> {
    let (before, after) = both::<Report>(before, after)?;
    match (before, after) {
        (Some(before), Some(after))
            if before.state != ReportState::Wanted && before.state != after.state =>
        {
            Err(format!("a report had ended as {:?} and is {:?} now", before.state, after.state))
        }
        _ => Ok(()),
    }
}

/// The first answer to a question stands.
pub(super) fn same_outcome(before: Option<&Record>, after: Option<&Record>) -> Result<(), String> {
    let (before, after) = both::<MergeOutcome>(before, after)?;
    match (before, after) {
        (Some(before), Some(after)) if before != after => {
            Err("the first answer stands, and this is another".to_owned())
        }
        _ => Ok(()),
    }
}
