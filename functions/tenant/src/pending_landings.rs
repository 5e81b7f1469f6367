//! Waits for landings that change configuration before a layout becomes live.
//!
//! From the intent to merge until the end of the landing it is unknown which configuration is
//! right. So nothing else is merged, and `live` is not raised, not even for a push elsewhere. The
//! landing's own record says when it has ended.
//!
//! A landing that cannot be carried out would block its tenant. Its record says since when, as the
//! reporter wrote. After a while the tenant continues with the configuration that it has, and lists
//! the landing among its errors. The landing stays noted: what it merges is read when it ends.

use crate::Tenants;
use sluice_gate::{Landing, LandingEnd, LandingState};
use sluice_model::{ProjectName, Timestamp};
use sluice_records::codec::{decode_or_log, get};
use sluice_records::landing;
use sluice_records::tenant::{FirstLanding, PendingConfigLanding, Tenant};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Key;
use std::collections::BTreeSet;

/// How long in seconds a tenant waits for the forge of a project whose configuration changed. After
/// that it continues with what it has, because one forge must not block the others.
const PATIENCE_SECONDS: u64 = 600;

/// How long in seconds a tenant waits for a landing whose record does not change.
const SILENCE_SECONDS: u64 = 1_800;

/// The most records of one call.
const KEYS_MAX: usize = 100;

/// Projects whose configuration was changed by landings since the live layout.
#[derive(Debug, Default)]
pub(crate) struct AwaitedProjects {
    /// The projects that have to be read again.
    projects: BTreeSet<ProjectName>,
    /// Those of them whose forge the tenant waits for.
    patiently: BTreeSet<ProjectName>,
    /// The landings that the tenant stopped waiting for.
    given_up: Vec<PendingConfigLanding>,
}

impl AwaitedProjects {
    /// Returns all projects that have to be read again.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ProjectName> {
        self.projects.iter()
    }

    /// Returns the projects whose forge the tenant waits for instead of using an older state.
    pub(crate) fn patiently(&self) -> &BTreeSet<ProjectName> {
        &self.patiently
    }

    /// Returns the landings that have not ended and that the tenant stopped waiting for.
    pub(crate) fn given_up(&self) -> &[PendingConfigLanding] {
        &self.given_up
    }
}

impl Tenants {
    /// Returns the projects to read after the awaited landings, and the landings that the tenant
    /// stopped waiting for. `None` while a landing is in progress that the tenant still waits for.
    /// Stores nothing.
    pub(crate) async fn await_landings(
        &self,
        head: &Tenant,
    ) -> Result<Option<AwaitedProjects>, ReconcileError> {
        let mut awaited_projects = AwaitedProjects::default();
        let now = self.ports.clock.now();
        for some in head.landings.chunks(KEYS_MAX) {
            let keys: Vec<Key> = some
                .iter()
                .map(|awaited| landing::key(&awaited.item, awaited.generation))
                .collect();
            for (awaited, record) in some.iter().zip(self.ports.records.get(&keys).await?) {
                let seen = match (&record, &awaited.first) {
                    (Some(record), _) => status_of(decode_or_log(record)),
                    (None, Some(first)) => self.status_of_predecessors(awaited, first).await?,
                    (None, None) => LandingStatus::Nothing,
                };
                let Some(ended_at) = ended_at(awaited, &seen, now) else {
                    let Some(why) = given_up(awaited, &seen, now) else { return Ok(None) };
                    if awaited.given_up.is_none() {
                        let project = &awaited.project;
                        tracing::error!(tenant = %head.name, item = %awaited.item, %project, why, "a landing of configuration does not end; the tenant continues without it");
                    }
                    awaited_projects
                        .given_up
                        .push(PendingConfigLanding { given_up: Some(why), ..awaited.clone() });
                    continue;
                };
                awaited_projects.projects.insert(awaited.project.clone());
                if ended_at.plus_seconds(PATIENCE_SECONDS) > now {
                    awaited_projects.patiently.insert(awaited.project.clone());
                }
            }
        }
        Ok(Some(awaited_projects))
    }
}

/// The status of an awaited landing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LandingStatus {
    /// No record of it: not visible yet, expired, or unreadable.
    Nothing,
    /// This landing is in progress: itself, or the one of its bundle before it.
    UnderWay(Box<Landing>),
    /// All bundle members before it are merged, the last one at this time: it is ordered next.
    Next(Timestamp),
    /// It ended at this time, or never begins.
    Over(Timestamp),
}

impl Tenants {
    /// Returns the status of a bundle member whose landing was not ordered yet, from the landings
    /// of the members before it, of which `first` is the first. The first of these that has not
    /// ended is in progress. If one ended without being merged, this landing never begins; if all
    /// are merged, it is next. Without a readable record of the first there is no status.
    async fn status_of_predecessors(
        &self,
        awaited: &PendingConfigLanding,
        first: &FirstLanding,
    ) -> Result<LandingStatus, ReconcileError> {
        let key = landing::key(&first.item, first.generation);
        let Some(first) = get(&self.ports, &key).await?.as_ref().and_then(decode_or_log::<Landing>)
        else {
            return Ok(LandingStatus::Nothing);
        };
        let before = first.later_members.iter().take_while(|other| other.item != awaited.item);
        let keys: Vec<Key> =
            before.map(|other| landing::key(&other.item, other.generation)).collect();
        let mut orders = vec![Some(first)];
        if !keys.is_empty() {
            let records = self.ports.records.get(&keys).await?;
            orders.extend(
                records.iter().map(|record| record.as_ref().and_then(decode_or_log::<Landing>)),
            );
        }
        Ok(status_by_predecessors(orders))
    }
}

/// Returns the status of a landing from its record; `None` means that the record is missing or
/// unreadable.
fn status_of(order: Option<Landing>) -> LandingStatus {
    match order {
        None => LandingStatus::Nothing,
        Some(Landing { state: LandingState::Ended { at, .. }, .. }) => LandingStatus::Over(at),
        Some(order) => LandingStatus::UnderWay(Box::new(order)),
    }
}

/// Returns the status of a bundle member from the landings before it, in order; each is ordered
/// when the one before it is merged. The first one that is not merged decides: in progress, or over
/// if it ended otherwise. Landings behind a missing one are ignored. If those before it are merged,
/// the member is next; if the first is missing, there is no status.
fn status_by_predecessors(orders: Vec<Option<Landing>>) -> LandingStatus {
    let mut seen = LandingStatus::Nothing;
    for order in orders {
        seen = match order {
            // It is ordered next, or unreadable: those behind it are unknown then.
            None => return seen,
            Some(Landing {
                state: LandingState::Ended { end: LandingEnd::Landed { .. }, at },
                ..
            }) => LandingStatus::Next(at),
            Some(Landing { state: LandingState::Ended { at, .. }, .. }) => {
                return LandingStatus::Over(at);
            }
            Some(order) => return LandingStatus::UnderWay(Box::new(order)),
        };
    }
    seen
}

/// Returns why the tenant stops waiting for an unfinished landing: an obstacle that its record has
/// reported for [`PATIENCE_SECONDS`], no end and no such obstacle [`SILENCE_SECONDS`] after the
/// order, or a bundle member that its queue does not order in time. `None` if it still waits, has
/// ended or has no record. A reason that is stored in `awaited` is returned whatever the status, or
/// each new sign of progress would block the tenant again.
fn given_up(
    awaited: &PendingConfigLanding,
    seen: &LandingStatus,
    now: Timestamp,
) -> Option<String> {
    let lasts = |since: Timestamp| since.plus_seconds(PATIENCE_SECONDS) <= now;
    let stuck = || match seen {
        LandingStatus::UnderWay(order) => {
            let change = &order.change;
            let trouble = order.trouble.as_ref().filter(|trouble| lasts(trouble.since));
            let troubled = trouble.map(|trouble| {
                format!(
                    "{change} has not been merged since {}: {}",
                    trouble.since.to_iso(),
                    trouble.why
                )
            });
            let is_silent = awaited.ordered_at.plus_seconds(SILENCE_SECONDS) <= now;
            troubled.or_else(|| {
                is_silent.then(|| {
                    format!(
                        "{change} is to land since {}, and its record does not say what blocks it",
                        awaited.ordered_at.to_iso()
                    )
                })
            })
        }
        LandingStatus::Next(since) if lasts(*since) => Some(format!(
            "the bundle member before it was merged at {}, and its queue does not continue",
            since.to_iso()
        )),
        LandingStatus::Nothing | LandingStatus::Next(_) | LandingStatus::Over(_) => None,
    };
    awaited.given_up.clone().or_else(stuck)
}

/// Returns when a landing ended; `None` while it is in progress, and for [`PATIENCE_SECONDS`] if it
/// has no record. After that it counts as ended when it was ordered: its record expired, or is
/// unreadable.
fn ended_at(
    awaited: &PendingConfigLanding,
    seen: &LandingStatus,
    now: Timestamp,
) -> Option<Timestamp> {
    match seen {
        LandingStatus::Over(at) => Some(*at),
        LandingStatus::UnderWay(_) | LandingStatus::Next(_) => None,
        LandingStatus::Nothing => {
            (awaited.ordered_at.plus_seconds(PATIENCE_SECONDS) < now).then_some(awaited.ordered_at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_gate::LandingTrouble;
    use sluice_model::QueueKey;
    use sluice_model::change::{ChangeKey, ChangeRef};
    use sluice_model::git::{Commit, LandingMethod, MergeMode};

    const ORDERED: Timestamp = Timestamp(1_000_000);

    fn commit() -> Commit {
        Commit { id: "c".into(), tree: "t".into() }
    }

    fn landing(number: u64, state: LandingState) -> Landing {
        let key = ChangeKey::change("github".into(), "forge.test/org/one".into(), number);
        Landing {
            item: "item".into(),
            generation: 1,
            queue: QueueKey { tenant: "t".into(), pipeline: "gate".into(), queue: "q".into() },
            change: ChangeRef {
                key,
                branch: "main".into(),
                head: "a".into(),
                patchset: "a".to_owned(),
            },
            needs: Vec::new(),
            mode: MergeMode::Merge,
            method: LandingMethod::Merge,
            followers: Vec::new(),
            base: commit(),
            tested: commit(),
            changes_configuration: true,
            later_members: Vec::new(),
            merged_members: Vec::new(),
            requirements: None,
            fence: 1,
            merge_attempted: false,
            has_unanswered_push: false,
            trouble: None,
            unverifiable_since: None,
            ordered_at: ORDERED,
            state,
        }
    }

    fn landed(number: u64, seconds: u64) -> Option<Landing> {
        let end = LandingEnd::Landed { commit: commit() };
        Some(landing(number, LandingState::Ended { end, at: ORDERED.plus_seconds(seconds) }))
    }

    fn refused(number: u64, seconds: u64) -> Option<Landing> {
        let end = LandingEnd::Refused { why: "no".to_owned() };
        Some(landing(number, LandingState::Ended { end, at: ORDERED.plus_seconds(seconds) }))
    }

    fn troubled(number: u64, seconds: u64) -> Option<Landing> {
        let trouble = LandingTrouble {
            since: ORDERED.plus_seconds(seconds),
            why: "the forge is silent".to_owned(),
            is_connection_removed: false,
        };
        Some(Landing { trouble: Some(trouble), ..landing(number, LandingState::Ordered) })
    }

    /// Returns an awaited landing behind others of its bundle.
    fn awaited() -> PendingConfigLanding {
        PendingConfigLanding {
            item: "last".into(),
            generation: 1,
            project: "forge.test/org/one".into(),
            ordered_at: ORDERED,
            first: Some(FirstLanding { item: "item".into(), generation: 1 }),
            given_up: None,
        }
    }

    /// Returns when the awaited landing counts as ended, and why it is given up, `seconds` after it
    /// was ordered, with these landings before it.
    fn judged(orders: Vec<Option<Landing>>, seconds: u64) -> (Option<Timestamp>, Option<String>) {
        let (awaited, now) = (awaited(), ORDERED.plus_seconds(seconds));
        let seen = status_by_predecessors(orders);
        (ended_at(&awaited, &seen, now), given_up(&awaited, &seen, now))
    }

    /// C01, Z6.5: while the first member is blocked, the last one's merge may still come: it stays
    /// noted.
    #[test]
    fn a_bundle_member_has_not_ended_while_one_before_it_is_blocked() {
        let minute = 60;
        assert_eq!(
            judged(vec![troubled(1, minute)], 10 * minute),
            (None, None),
            "it is waited for"
        );
        let (ended_at, given_up) = judged(vec![troubled(1, minute)], 11 * minute);
        assert_eq!(ended_at, None);
        assert!(
            given_up
                .unwrap()
                .contains("org/one#1 at a has not been merged since 1970-01-01T00:17:40")
        );
        let (ended_at, given_up) =
            judged(vec![landed(1, minute), troubled(2, 2 * minute)], 60 * minute);
        assert_eq!(ended_at, None);
        assert!(given_up.unwrap().contains("org/one#2 at a has not been merged since"));
        let silent = Some(landing(
            1,
            LandingState::Merging(sluice_gate::Attempt { tip: commit(), in_flight_until: None }),
        ));
        assert_eq!(judged(vec![silent.clone()], 29 * minute), (None, None));
        let (ended_at, given_up) = judged(vec![silent], 30 * minute);
        assert_eq!(ended_at, None);
        assert!(given_up.unwrap().contains("its record does not say what blocks it"));
    }

    /// C01, Z6.5: between two landings of a bundle its queue orders the next. If it does not, the
    /// tenant continues and keeps it noted.
    #[test]
    fn a_bundle_member_that_is_ordered_next_has_not_ended() {
        assert_eq!(judged(vec![landed(1, 700), landed(2, 800)], 900), (None, None));
        assert_eq!(judged(vec![landed(1, 700), None], 900), (None, None));
        let (ended_at, given_up) = judged(vec![landed(1, 700), None], 1_300);
        assert_eq!(ended_at, None);
        assert!(given_up.unwrap().contains("its queue does not continue"));
    }

    /// C01: if one member failed, the others are not awaited.
    #[test]
    fn a_bundle_member_has_ended_when_one_before_it_failed() {
        let ended = Some(ORDERED.plus_seconds(5));
        assert_eq!(judged(vec![refused(1, 5), None, None], 6), (ended, None));
        assert_eq!(judged(vec![landed(1, 3), refused(2, 5), None], 6), (ended, None));
    }

    /// C01, C2: without any record it is awaited as long as any other.
    #[test]
    fn a_bundle_without_records_has_ended_after_a_while() {
        assert_eq!(judged(vec![None], 600), (None, None));
        assert_eq!(judged(vec![None], 601), (Some(ORDERED), None));
    }

    /// C01: what was given up stays so until it ends.
    #[test]
    fn a_landing_that_was_given_up_does_not_block_its_tenant_again() {
        let known = PendingConfigLanding { given_up: Some("before".to_owned()), ..awaited() };
        let young = status_of(Some(landing(1, LandingState::Ordered)));
        assert_eq!(given_up(&known, &young, ORDERED).as_deref(), Some("before"));
        assert_eq!(given_up(&awaited(), &young, ORDERED), None);
        assert_eq!(status_of(refused(1, 5)), LandingStatus::Over(ORDERED.plus_seconds(5)));
    }
}
