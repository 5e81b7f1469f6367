//! Starts the polls of projects at plain git servers, which send no webhooks. Each project has a
//! minute of its own within the connection's interval, so that a server's load is spread.

use crate::sweep::Failures;
use crate::{ProjectsAtForges, Timer, id_of};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::id::digest;
use sluice_model::{ConnectionName, DeliveryId, ProjectName, Timestamp};
use sluice_records::codec::{decode_or_log, get_all};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};

/// The most polls of one connection that start in one minute.
const POLLS_PER_MINUTE_MAX: usize = 30;

/// Earlier polls of a project of which none may be open when the next one starts. If all of them
/// ended, or so many intervals passed, polling goes on.
const EARLIER_POLLS: u64 = 3;

/// The poll of a project by one connection that is due in a minute.
#[derive(Clone, Copy)]
struct DuePoll<'a> {
    connection: &'a ConnectionName,
    project: &'a ProjectName,
    minute: u64,
    interval_minutes: u64,
}

impl Timer {
    /// Stores the polls of this minute and of the one before, for each project of a tenant at the
    /// host of a connection to a plain git server, and wakes intake. Starts no poll that is stored
    /// already, and none of a project while one of its last [`EARLIER_POLLS`] is open: a server
    /// that answers late is not asked more often. Failures to store a poll are added to `failures`.
    /// An error only if stored polls cannot be read.
    pub(crate) async fn start_polls(
        &self,
        ProjectsAtForges { connections, projects }: &ProjectsAtForges,
        now: Timestamp,
        failures: &mut Failures,
    ) -> Result<(), ReconcileError> {
        let minute = now.seconds() / 60;
        let mut polls: Vec<DuePoll<'_>> = Vec::new();
        for (connection, stored) in connections.polled() {
            let at_host: Vec<&ProjectName> = projects
                .iter()
                .filter(|project| project.host() == stored.canonical_hostname)
                .collect();
            let interval_minutes = interval(stored.poll_minutes(), at_host.len());
            // A tick may be late or cut off: the next one starts what it left out.
            for minute in [minute.saturating_sub(1), minute] {
                let due = due_in(minute, interval_minutes, &at_host).into_iter();
                polls.extend(due.map(|project| DuePoll {
                    connection,
                    project,
                    minute,
                    interval_minutes,
                }));
            }
        }
        let ids = polls.iter().flat_map(|poll| poll.earlier_ids().chain([poll.id()]));
        let keys: BTreeSet<Key> = ids.map(|id| delivery::key(&id)).collect();
        let stored = get_all(&self.ports, &keys.into_iter().collect::<Vec<_>>()).await?;
        let mut started: BTreeSet<(&ConnectionName, &ProjectName)> = BTreeSet::new();
        for poll in polls {
            if failures.are_too_many() {
                return Ok(());
            }
            let place = (poll.connection, poll.project);
            if started.contains(&place) || poll.is_stored_or_open(&stored) {
                continue;
            }
            started.insert(place);
            let delivery = poll_of(poll.connection, poll.project, now, poll.minute);
            self.start_sweep(poll.project, &delivery, now, failures).await;
        }
        Ok(())
    }
}

impl DuePoll<'_> {
    /// Returns the id of the delivery of this poll.
    fn id(&self) -> DeliveryId {
        self.id_in(self.minute)
    }

    /// Returns the ids of the project's last polls, as far as they were due.
    fn earlier_ids(&self) -> impl Iterator<Item = DeliveryId> {
        (1..=EARLIER_POLLS)
            .filter_map(move |count| {
                self.minute.checked_sub(count.checked_mul(self.interval_minutes)?)
            })
            .map(move |minute| self.id_in(minute))
    }

    /// Returns the id of the delivery of the project's poll in a minute.
    fn id_in(&self, minute: u64) -> DeliveryId {
        id_of(&poll_of(self.connection, self.project, Timestamp(0), minute))
    }

    /// Returns whether this poll is among the stored records, or an earlier one that has not ended.
    fn is_stored_or_open(&self, stored: &BTreeMap<Key, Record>) -> bool {
        let is_open = |id: DeliveryId| {
            let record = stored.get(&delivery::key(&id));
            record
                .and_then(decode_or_log::<DeliveryRecord>)
                .is_some_and(|earlier| !earlier.state.is_final())
        };
        stored.contains_key(&delivery::key(&self.id())) || self.earlier_ids().any(is_open)
    }
}

/// Returns the minutes between two polls of a project: `poll_minutes`, or more where that would be
/// too many calls for this number of projects. At least 1.
fn interval(poll_minutes: u64, projects: usize) -> u64 {
    // Half of the limit on average, so that few minutes exceed it.
    let least = (projects * 2).div_ceil(POLLS_PER_MINUTE_MAX) as u64;
    poll_minutes.max(least).max(1)
}

/// Returns the projects whose poll starts in this minute, at most [`POLLS_PER_MINUTE_MAX`]. Each
/// project is due once in the interval. If chance puts too many projects into one minute, they take
/// turns.
fn due_in<'p>(minute: u64, interval: u64, projects: &[&'p ProjectName]) -> Vec<&'p ProjectName> {
    let is_due = |project: &&&ProjectName| place_of(project) % interval == minute % interval;
    let mut due: Vec<&ProjectName> = projects.iter().filter(is_due).copied().collect();
    if due.len() > POLLS_PER_MINUTE_MAX {
        let turn = usize::try_from(minute / interval).unwrap_or(0);
        let first = turn.wrapping_mul(POLLS_PER_MINUTE_MAX) % due.len();
        due.rotate_left(first);
        due.truncate(POLLS_PER_MINUTE_MAX);
    }
    due
}

/// Returns a number that is the same for a project each time, and spreads projects evenly.
fn place_of(project: &ProjectName) -> u64 {
    let hash = digest(&[project.as_str()]);
    hash.get(..15).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0)
}

/// Returns the accepted delivery that makes intake poll a project by one connection. Its id is the
/// same for all polls of one minute.
fn poll_of(
    connection: &ConnectionName,
    project: &ProjectName,
    now: Timestamp,
    minute: u64,
) -> DeliveryRecord {
    DeliveryRecord {
        connection: connection.clone(),
        forge_id: format!("poll:{project}:{minute}"),
        event_name: "poll".to_owned(),
        received_at: now,
        event: Some(ForgeEvent {
            connection: connection.clone(),
            project: project.clone(),
            sender: String::new(),
            kind: EventKind::Sweep,
        }),
        state: DeliveryState::Accepted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn projects(count: usize) -> Vec<ProjectName> {
        (0..count).map(|number| ProjectName::new("git.test", &format!("org/{number}"))).collect()
    }

    /// Returns for each of these minutes the projects that are due.
    fn due(all: &[ProjectName], poll_minutes: u64, minutes: u64) -> Vec<Vec<&ProjectName>> {
        let all: Vec<&ProjectName> = all.iter().collect();
        let interval = interval(poll_minutes, all.len());
        (7_000..7_000 + minutes).map(|minute| due_in(minute, interval, &all)).collect()
    }

    /// C5: each project is polled once within the interval.
    #[test]
    fn each_project_is_due_once_within_the_interval() {
        let all = projects(100);
        let due = due(&all, 120, 120);
        let names: BTreeSet<&ProjectName> = due.iter().flatten().copied().collect();
        assert_eq!((names.len(), due.iter().flatten().count()), (100, 100));
        assert!(due.iter().filter(|minute| !minute.is_empty()).count() > 40, "they are spread");
    }

    /// C5: the calls of a minute are bounded, however many projects there are, and each project has
    /// its turn.
    #[test]
    fn many_projects_are_polled_less_often_and_none_is_left_out() {
        let all = projects(2_000);
        let due = due(&all, 1, 1_000);
        assert!(due.iter().all(|minute| minute.len() <= POLLS_PER_MINUTE_MAX));
        let names: BTreeSet<&ProjectName> = due.iter().flatten().copied().collect();
        assert_eq!(names.len(), all.len());
    }
}
