//! Starts the polls of projects at plain git servers, which send no webhooks. Each project has a
//! minute of its own within the connection's interval, so that a server's load is spread.

use crate::sweep::Failures;
use crate::{READS_MAX, Timer, id_of};
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::id::digest;
use sluice_model::{ConnectionName, ProjectName, Timestamp};
use sluice_records::connection;
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Key;

/// The most polls of one connection that start in one minute.
const POLLS_PER_MINUTE_MAX: usize = 30;

impl Timer {
    /// Stores the polls of this minute and of the one before, for each project of a tenant at the
    /// host of a connection to a plain git server, and wakes intake. A poll that is stored already
    /// is left as it is. Does nothing where no connections are stored or none is such a one.
    /// Failures to read the projects of a tenant and to store a poll are added to `failures`. An
    /// error only if the connections, a tenant's record or stored polls cannot be read.
    pub(crate) async fn start_polls(
        &self,
        now: Timestamp,
        failures: &mut Failures,
    ) -> Result<(), ReconcileError> {
        let Some(connections) = connection::load_if_stored(&self.ports).await? else {
            return Ok(());
        };
        if connections.polled().next().is_none() {
            return Ok(());
        }
        let projects = self.projects_of_tenants(failures).await?;
        let minute = now.seconds() / 60;
        let mut polls: Vec<(ProjectName, DeliveryRecord)> = Vec::new();
        for (name, stored) in connections.polled() {
            let at_host: Vec<&ProjectName> = projects
                .iter()
                .filter(|project| project.host() == stored.canonical_hostname)
                .collect();
            // A tick may be late or cut off: the next one starts what it left out.
            for minute in [minute.saturating_sub(1), minute] {
                let due = due_in(minute, stored.poll_minutes(), &at_host);
                polls.extend(
                    due.into_iter()
                        .map(|project| (project.clone(), poll_of(name, project, now, minute))),
                );
            }
        }
        for polls in polls.chunks(READS_MAX) {
            let keys: Vec<Key> =
                polls.iter().map(|(_, poll)| delivery::key(&id_of(poll))).collect();
            let stored = self.ports.records.get(&keys).await?;
            for ((project, poll), _) in
                polls.iter().zip(stored).filter(|(_, stored)| stored.is_none())
            {
                if failures.are_too_many() {
                    return Ok(());
                }
                self.start_sweep(project, poll, now, failures).await;
            }
        }
        Ok(())
    }
}

/// Returns the projects whose poll starts in this minute, at most [`POLLS_PER_MINUTE_MAX`]. Each
/// project is due once every `poll_minutes`, or less often where that would be too many calls. If
/// chance puts too many projects into one minute, they take turns.
fn due_in<'p>(
    minute: u64,
    poll_minutes: u64,
    projects: &[&'p ProjectName],
) -> Vec<&'p ProjectName> {
    // Half of the limit on average, so that few minutes exceed it.
    let least = (projects.len() * 2).div_ceil(POLLS_PER_MINUTE_MAX) as u64;
    let interval = poll_minutes.max(least).max(1);
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
        (7_000..7_000 + minutes).map(|minute| due_in(minute, poll_minutes, &all)).collect()
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
