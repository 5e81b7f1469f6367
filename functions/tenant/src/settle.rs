//! Settling: configuration that is about to land is waited for, whatever else moves meanwhile.
//!
//! From the intent to land until its end nobody knows which configuration is right, so nothing else
//! lands, and `live` is not raised: not by a push to another branch or repository either. The
//! landing's own record says when it is over.
//!
//! A landing that nobody can carry out would stop its whole tenant. Its record says since when that
//! is so, as whoever tried wrote; after a while the tenant goes on with the configuration that it
//! has, tells so among its problems, and keeps the landing in mind: what it brings is read when it
//! ends, whenever that is.

use crate::Tenants;
use sluice_gate::{Landing, LandingEnd, LandingState};
use sluice_model::{ProjectName, Timestamp};
use sluice_records::codec::{decode_foreign, get};
use sluice_records::landing;
use sluice_records::tenant::{AwaitedLanding, FirstLanding, Tenant};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Key;
use std::collections::BTreeSet;

/// Seconds for which a project that configuration landed in is waited for while its forge is
/// silent. After that the tenant goes on with what it has, or one forge would hold up the others
/// for good.
const PATIENCE_SECONDS: u64 = 600;

/// Seconds after which the same is done of a landing of which nobody says anything: whoever would
/// say so is not there himself.
const SILENCE_SECONDS: u64 = 1_800;

/// Records that one call reads.
const KEYS_MAX: usize = 100;

/// Projects that configuration landed in since the live layout.
#[derive(Debug, Default)]
pub(crate) struct WaitedFor {
    projects: BTreeSet<ProjectName>,
    patiently: BTreeSet<ProjectName>,
    given_up: Vec<AwaitedLanding>,
}

impl WaitedFor {
    /// Returns all of them; each is read again.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ProjectName> {
        self.projects.iter()
    }

    /// Returns those for which a silent forge is waited.
    pub(crate) fn patiently(&self) -> &BTreeSet<ProjectName> {
        &self.patiently
    }

    /// Returns the landings that are not over and are waited for no more.
    pub(crate) fn given_up(&self) -> &[AwaitedLanding] {
        &self.given_up
    }
}

impl Tenants {
    /// Returns the projects to read after the landings that were waited for, or `None` while one of
    /// them is under way.
    pub(crate) async fn settled(&self, head: &Tenant) -> Result<Option<WaitedFor>, LookError> {
        let mut waited_for = WaitedFor::default();
        let now = self.ports.clock.now();
        for some in head.landings.chunks(KEYS_MAX) {
            let keys: Vec<Key> = some
                .iter()
                .map(|awaited| landing::key(&awaited.item, awaited.generation))
                .collect();
            for (awaited, record) in some.iter().zip(self.ports.records.get(&keys).await?) {
                let seen = match (&record, &awaited.first) {
                    (Some(record), _) => seen(decode_foreign(record)),
                    (None, Some(first)) => self.seen_before(awaited, first).await?,
                    (None, None) => Seen::Nothing,
                };
                let Some(ended_at) = ended_at(awaited, &seen, now) else {
                    let Some(why) = given_up(awaited, &seen, now) else { return Ok(None) };
                    if awaited.given_up.is_none() {
                        let project = &awaited.project;
                        tracing::error!(tenant = %head.name, item = %awaited.item, %project, why, "a landing of configuration does not end, and its tenant goes on");
                    }
                    waited_for
                        .given_up
                        .push(AwaitedLanding { given_up: Some(why), ..awaited.clone() });
                    continue;
                };
                waited_for.projects.insert(awaited.project.clone());
                if ended_at.plus_seconds(PATIENCE_SECONDS) > now {
                    waited_for.patiently.insert(awaited.project.clone());
                }
            }
        }
        Ok(Some(waited_for))
    }
}

/// What is known of a landing that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// Nobody tells of it: it is not to be seen yet, or was forgotten, or cannot be read.
    Nothing,
    /// This one is under way: itself, or the one of its bundle that is before it.
    UnderWay(Box<Landing>),
    /// All that are before it in its bundle have landed, the last one then: it is ordered next.
    Next(Timestamp),
    /// It is over since then, or never begins.
    Over(Timestamp),
}

impl Tenants {
    /// Returns what is known of a change of a bundle whose own landing was not ordered yet, by
    /// those that are before it. Until the bundle has landed as a whole, or one of it has not, what
    /// it brings may still come.
    async fn seen_before(
        &self,
        awaited: &AwaitedLanding,
        first: &FirstLanding,
    ) -> Result<Seen, LookError> {
        let key = landing::key(&first.item, first.generation);
        let Some(first) =
            get(&self.ports, &key).await?.as_ref().and_then(decode_foreign::<Landing>)
        else {
            return Ok(Seen::Nothing);
        };
        let before = first.together.iter().take_while(|other| other.item != awaited.item);
        let keys: Vec<Key> =
            before.map(|other| landing::key(&other.item, other.generation)).collect();
        let mut orders = vec![Some(first)];
        if !keys.is_empty() {
            let records = self.ports.records.get(&keys).await?;
            orders.extend(
                records.iter().map(|record| record.as_ref().and_then(decode_foreign::<Landing>)),
            );
        }
        Ok(by_those_before(orders))
    }
}

/// Returns what is known of a landing by its own record, `None` where that cannot be read.
fn seen(order: Option<Landing>) -> Seen {
    match order {
        None => Seen::Nothing,
        Some(Landing { state: LandingState::Ended { at, .. }, .. }) => Seen::Over(at),
        Some(order) => Seen::UnderWay(Box::new(order)),
    }
}

/// Returns what is known of a change of a bundle by the landings of those before it, in their
/// order; each is ordered when the one before it has landed.
fn by_those_before(orders: Vec<Option<Landing>>) -> Seen {
    let mut seen = Seen::Nothing;
    for order in orders {
        seen = match order {
            // It is ordered next, or cannot be read: then nothing is known of those behind it.
            None => return seen,
            Some(Landing {
                state: LandingState::Ended { end: LandingEnd::Landed { .. }, at },
                ..
            }) => Seen::Next(at),
            Some(Landing { state: LandingState::Ended { at, .. }, .. }) => return Seen::Over(at),
            Some(order) => return Seen::UnderWay(Box::new(order)),
        };
    }
    seen
}

/// Returns why a landing that is not over is waited for no more, if so: the record of what is under
/// way says for long that it cannot be carried out, or for very long nothing at all; or nobody
/// orders it. Once given up it stays so, lest the tenant stop again with each sign of life.
fn given_up(awaited: &AwaitedLanding, seen: &Seen, now: Timestamp) -> Option<String> {
    let lasts = |since: Timestamp| since.plus_seconds(PATIENCE_SECONDS) <= now;
    let told = || match seen {
        Seen::UnderWay(order) => {
            let change = &order.change;
            let trouble = order.trouble.as_ref().filter(|trouble| lasts(trouble.since));
            let troubled = trouble.map(|trouble| {
                format!(
                    "{change} cannot be landed since {}: {}",
                    trouble.since.to_iso(),
                    trouble.why
                )
            });
            let is_silent = awaited.ordered_at.plus_seconds(SILENCE_SECONDS) <= now;
            troubled.or_else(|| {
                is_silent.then(|| {
                    format!(
                        "{change} is to land since {}, and nobody says what keeps it",
                        awaited.ordered_at.to_iso()
                    )
                })
            })
        }
        Seen::Next(since) if lasts(*since) => Some(format!(
            "what is before it in its bundle has landed at {}, and its queue does not go on",
            since.to_iso()
        )),
        Seen::Nothing | Seen::Next(_) | Seen::Over(_) => None,
    };
    awaited.given_up.clone().or_else(told)
}

/// Returns when a landing ended. Its record may be seen a moment later than the tenant's, which was
/// written with it; one of which nobody tells for long was forgotten, or cannot be read.
fn ended_at(awaited: &AwaitedLanding, seen: &Seen, now: Timestamp) -> Option<Timestamp> {
    match seen {
        Seen::Over(at) => Some(*at),
        Seen::UnderWay(_) | Seen::Next(_) => None,
        Seen::Nothing => {
            (awaited.ordered_at.plus_seconds(PATIENCE_SECONDS) < now).then_some(awaited.ordered_at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_gate::Trouble;
    use sluice_model::QueueKey;
    use sluice_model::change::{ChangeKey, ChangeRef};
    use sluice_model::git::{Commit, LandingWay, MergeMode};

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
            way: LandingWay::Merge,
            behind: Vec::new(),
            base: commit(),
            tested: commit(),
            configures: true,
            together: Vec::new(),
            asks: None,
            fence: Some(1),
            tried: false,
            pushed: false,
            asked_until: None,
            trouble: None,
            unread_since: None,
            wanted_at: ORDERED,
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
        let trouble = Trouble {
            since: ORDERED.plus_seconds(seconds),
            why: "the forge is silent".to_owned(),
            is_gone: false,
        };
        Some(Landing { trouble: Some(trouble), ..landing(number, LandingState::Wanted) })
    }

    /// Returns one that is behind others of its bundle.
    fn awaited() -> AwaitedLanding {
        AwaitedLanding {
            item: "last".into(),
            generation: 1,
            project: "forge.test/org/one".into(),
            ordered_at: ORDERED,
            first: Some(FirstLanding { item: "item".into(), generation: 1 }),
            given_up: None,
        }
    }

    /// Returns whether it counts as ended then, and why it is given up, if it is, by those before
    /// it.
    fn judged(orders: Vec<Option<Landing>>, seconds: u64) -> (Option<Timestamp>, Option<String>) {
        let (awaited, now) = (awaited(), ORDERED.plus_seconds(seconds));
        let seen = by_those_before(orders);
        (ended_at(&awaited, &seen, now), given_up(&awaited, &seen, now))
    }

    /// C01, Z6.5: what the last of a bundle brings may still come while the first one is in
    /// trouble: it is kept in mind, not ended.
    #[test]
    fn a_change_of_a_bundle_is_not_over_while_one_before_it_cannot_be_landed() {
        let minute = 60;
        assert_eq!(
            judged(vec![troubled(1, minute)], 10 * minute),
            (None, None),
            "it is waited for"
        );
        let (ended_at, given_up) = judged(vec![troubled(1, minute)], 11 * minute);
        assert_eq!(ended_at, None);
        assert!(
            given_up.unwrap().contains("org/one#1 at a cannot be landed since 1970-01-01T00:17:40")
        );
        let (ended_at, given_up) =
            judged(vec![landed(1, minute), troubled(2, 2 * minute)], 60 * minute);
        assert_eq!(ended_at, None);
        assert!(given_up.unwrap().contains("org/one#2 at a cannot be landed since"));
        let silent = Some(landing(1, LandingState::Attempting { tip: commit() }));
        assert_eq!(judged(vec![silent.clone()], 29 * minute), (None, None));
        let (ended_at, given_up) = judged(vec![silent], 30 * minute);
        assert_eq!(ended_at, None);
        assert!(given_up.unwrap().contains("nobody says what keeps it"));
    }

    /// C01, Z6.5: between two landings of a bundle its queue orders the next; where it does not,
    /// the tenant goes on, and waits on.
    #[test]
    fn a_change_of_a_bundle_whose_turn_comes_next_is_not_over() {
        assert_eq!(judged(vec![landed(1, 700), landed(2, 800)], 900), (None, None));
        assert_eq!(judged(vec![landed(1, 700), None], 900), (None, None));
        let (ended_at, given_up) = judged(vec![landed(1, 700), None], 1_300);
        assert_eq!(ended_at, None);
        assert!(given_up.unwrap().contains("its queue does not go on"));
    }

    /// C01: of a bundle of which one did not land nobody waits for the others to.
    #[test]
    fn a_change_of_a_bundle_is_over_when_one_before_it_did_not_land() {
        let ended = Some(ORDERED.plus_seconds(5));
        assert_eq!(judged(vec![refused(1, 5), None, None], 6), (ended, None));
        assert_eq!(judged(vec![landed(1, 3), refused(2, 5), None], 6), (ended, None));
    }

    /// C01, C2: where nobody tells of it any more it is waited for as long as of any other.
    #[test]
    fn a_bundle_that_nobody_knows_of_is_over_after_a_while() {
        assert_eq!(judged(vec![None], 600), (None, None));
        assert_eq!(judged(vec![None], 601), (Some(ORDERED), None));
    }

    /// C01: what was given up once stays so until it ends.
    #[test]
    fn a_landing_that_was_given_up_does_not_stop_its_tenant_again() {
        let known = AwaitedLanding { given_up: Some("before".to_owned()), ..awaited() };
        let young = seen(Some(landing(1, LandingState::Wanted)));
        assert_eq!(given_up(&known, &young, ORDERED).as_deref(), Some("before"));
        assert_eq!(given_up(&awaited(), &young, ORDERED), None);
        assert_eq!(seen(refused(1, 5)), Seen::Over(ORDERED.plus_seconds(5)));
    }
}
