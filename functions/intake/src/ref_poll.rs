//! The poll of projects at plain git servers, which send no webhooks: compares the branches and
//! tags that a server lists with those that the last poll saw, and synthesizes a push for each that
//! moved. [`crate::pushes`] then processes it like any other push.

use crate::Intake;
use crate::change_context::{EventOrder, ProjectTenants};
use crate::process_delivery::Effects;
use crate::sweep::may_have_project_by;
use sluice_config::connection::Driver;
use sluice_model::change::RefMove;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::{ConnectionName, Timestamp};
use sluice_records::codec::{decode_or_log, get};
use sluice_records::connection::{self, StoredConnection};
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_records::seen_refs::{self, RefList, SeenRefs};
use sluice_records::tenant::{self, ProjectSource};
use sluice_repos::ProjectAt;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Expect, Write};

/// The event name of deliveries that a poll synthesizes.
const POLLED: &str = "poll";

/// The most pushes that one poll synthesizes; another poll follows for the rest.
const PUSHES_MAX: usize = 20;

/// Seconds until another poll continues one that found more moves.
const CONTINUE_SECONDS: u64 = 60;

/// Intervals of polls after which a list is too old: the project was not polled meanwhile, most
/// likely because no tenant had it.
const OLD_INTERVALS: u64 = 4;

/// Minutes for which a list is never too old: so long intake may stand still, or the projects of a
/// connection may be so many that they are polled less often.
const NEVER_OLD_MINUTES: u64 = 2 * 24 * 60;

impl Intake {
    /// Returns a connection that leads to a plain git server; `None` for any other name.
    pub(crate) async fn plain_git(
        &self,
        name: &ConnectionName,
    ) -> Result<Option<StoredConnection>, ReconcileError> {
        if self.forges.contains_key(name) {
            return Ok(None);
        }
        let mut stored = connection::load(&self.ports).await?;
        Ok(stored.0.remove(name).filter(|stored| stored.driver == Driver::Git))
    }

    /// Compares the refs of a project at a plain git server with those that the last poll saw, and
    /// adds to `effects` a synthesized push for each branch and tag that moved, at most
    /// [`PUSHES_MAX`]; a delivery that continues a minute later, if there are more; and the refs
    /// that are seen now. The first poll, and one whose predecessor is too old, compares branches
    /// with the commits that tenants have read, and takes tags as they are. If the repository has
    /// too many refs, tags are left out, which is logged; they are taken as they are when they are
    /// listed again. Only logs if no tenant may have the project by the event's connection, or if
    /// another poll began after `at`, when this one was ordered. The inner error says why the
    /// server's refs could not be read, which is stored at once; the next poll tries again.
    pub(crate) async fn poll_refs(
        &self,
        event: &ForgeEvent,
        at: Timestamp,
        server: &StoredConnection,
        effects: &mut Effects,
    ) -> Result<Result<(), String>, ReconcileError> {
        let ForgeEvent { connection, project, .. } = event;
        let key = seen_refs::key(project, connection);
        let tenants =
            self.tenants_with(project, EventOrder::Immediate, std::slice::from_ref(&key)).await?;
        if !may_have_project_by(&tenants, event) {
            effects.log(format!("no tenant has the project {project} by {connection}"));
            return Ok(Ok(()));
        }
        let last: SeenRefs = tenants.found.get(&key).and_then(decode_or_log).unwrap_or_default();
        if last.polled_at > at {
            effects.log(format!("another poll of {project} began after this one was ordered"));
            return Ok(Ok(()));
        }
        let polled_at = self.ports.clock.now();
        let place = ProjectAt { connection: connection.clone(), project: project.clone() };
        let listed = match self.repos.refs(&place).await {
            Ok(listed) => listed,
            Err(error) => {
                let why = format!("could not read the refs of {project}: {error}");
                tracing::warn!(%connection, why, "a poll failed");
                // At once, because a failed delivery has no effects.
                let failed = SeenRefs { polled_at, problem: Some(why.clone()), ..last };
                let write = seen_refs::put(project, connection, &failed)?;
                self.ports.records.commit(vec![write], &self.ports.entropy.token()).await?;
                return Ok(Err(why));
            }
        };
        let problem = listed
            .tags_left_out
            .as_ref()
            .map(|why| format!("tags of {project} are not polled, only branches: {why}"));
        if let Some(problem) = &problem {
            tracing::warn!(%connection, problem, "a poll left out tags");
            effects.log(problem.clone());
        }
        let leaves_out_tags = problem.is_some();
        let list =
            if is_old(&last, polled_at, server) { None } else { last.load(&self.ports).await? };
        let is_known = list.is_some();
        let mut seen = match list {
            Some(list) => list,
            None => self.refs_that_tenants_read(event, &tenants, &listed.commits).await?,
        };
        if leaves_out_tags || last.leaves_out_tags {
            seen.retain(|name, _| name.starts_with(BRANCHES));
            let tags = listed.commits.iter().filter(|(name, _)| !name.starts_with(BRANCHES));
            seen.extend(tags.map(|(name, at)| (name.clone(), at.clone())));
        }
        let moves = moves_between(&seen, &listed.commits);
        let is_same = moves.is_empty() && is_known && leaves_out_tags == last.leaves_out_tags;
        let polled = SeenRefs { polled_at, leaves_out_tags, problem, ..last };
        if is_same {
            effects.write(seen_refs::put(project, connection, &polled)?);
            return Ok(Ok(()));
        }
        if polled.list_count > 0 {
            polled.delete_others(&self.ports, project, connection).await?;
        }
        for moved in moves.iter().take(PUSHES_MAX) {
            match &moved.newrev {
                Some(newrev) => drop(seen.insert(moved.git_ref.clone(), newrev.clone())),
                None => drop(seen.remove(&moved.git_ref)),
            }
        }
        let next = polled.store_next(&self.ports, project, connection, &seen).await?;
        effects.write(seen_refs::put(project, connection, &next)?);
        for moved in moves.iter().take(PUSHES_MAX) {
            let commit = |oid: &Option<Oid>| oid.clone().unwrap_or_else(Oid::zero);
            let (oldrev, newrev) = (commit(&moved.oldrev), commit(&moved.newrev));
            let git_ref = &moved.git_ref;
            effects.log(format!("{git_ref} moved from {} to {}", oldrev.short(), newrev.short()));
            let count = next.list_count;
            let kind = EventKind::Push { git_ref: git_ref.clone(), oldrev, newrev };
            let id = format!("poll:{project}:{git_ref}:{count}");
            effects.store_delivery(&delivery_of(event, id, kind, at))?;
        }
        if moves.len() > PUSHES_MAX {
            let id = format!("poll:{project}:after:{}", next.list_count);
            let due = polled_at.plus_seconds(CONTINUE_SECONDS);
            // It counts as ordered when it is due: a regular poll that begins before then does not
            // replace it, a later one does.
            let next_poll = delivery_of(event, id, EventKind::Sweep, due);
            // Without a message: the timer wakes it when it is due.
            let (_, record, _) = delivery::pending(&next_poll, due)?;
            effects.write(Write::Put { record, expect: Expect::Absent });
            effects
                .log(format!("{} more refs moved: another poll follows", moves.len() - PUSHES_MAX));
        }
        Ok(Ok(()))
    }

    /// Returns the refs to compare with at the first poll: `listed`, but each branch at the commit
    /// that a tenant has read, without the branches that a tenant does not know, and with those
    /// that are gone since it read them. Of several tenants the first one that differs counts. A
    /// tenant that has not read the project whole is left out, and so is one with so many branches
    /// that its record does not list them.
    async fn refs_that_tenants_read(
        &self,
        event: &ForgeEvent,
        tenants: &ProjectTenants,
        listed: &RefList,
    ) -> Result<RefList, ReconcileError> {
        for concerned in &tenants.tenants {
            let key = tenant::source_key(&concerned.live.tenant.name, &event.project);
            let record = get(&self.ports, &key).await?;
            let Some(source) = record.as_ref().and_then(decode_or_log::<ProjectSource>) else {
                continue;
            };
            let is_whole = source.read_error.is_none()
                && !source.is_unfinished
                && source.branches_object.is_none()
                && !source.branches.is_empty();
            if !is_whole {
                continue;
            }
            let others = listed.iter().filter(|(name, _)| !name.starts_with(BRANCHES));
            let mut read: RefList = others.map(|(name, at)| (name.clone(), at.clone())).collect();
            let branches = source.branches.into_iter();
            read.extend(branches.map(|one| (format!("{BRANCHES}{}", one.branch), one.commit)));
            if read != *listed {
                return Ok(read);
            }
        }
        Ok(listed.clone())
    }
}

/// What the full names of branches begin with.
const BRANCHES: &str = "refs/heads/";

/// Returns the delivery of an event that a poll synthesizes, received at `at`.
fn delivery_of(
    polled: &ForgeEvent,
    forge_id: String,
    kind: EventKind,
    at: Timestamp,
) -> DeliveryRecord {
    DeliveryRecord {
        connection: polled.connection.clone(),
        forge_id,
        event_name: POLLED.to_owned(),
        received_at: at,
        event: Some(ForgeEvent { kind, ..polled.clone() }),
        state: DeliveryState::Accepted,
    }
}

/// Returns whether the last poll is too long ago to count what moved since then as pushes.
fn is_old(last: &SeenRefs, now: Timestamp, server: &StoredConnection) -> bool {
    let minutes = server.poll_minutes().saturating_mul(OLD_INTERVALS).max(NEVER_OLD_MINUTES);
    now > last.polled_at.plus_seconds(minutes.saturating_mul(60))
}

/// Returns the moves that lead from one list of refs to another: moved refs, then new ones, then
/// deleted ones, each by name. So many new refs do not delay the pushes to existing branches.
fn moves_between(before: &RefList, after: &RefList) -> Vec<RefMove> {
    let known = after.iter().filter_map(|(name, at)| Some((name, before.get(name)?, at)));
    let known = known.filter(|(_, from, to)| from != to);
    let moved = known.map(|(name, from, to)| RefMove::new(name, from.clone(), to.clone()));
    let added = after.iter().filter(|(name, _)| !before.contains_key(*name));
    let added = added.map(|(name, to)| RefMove::new(name, Oid::zero(), to.clone()));
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let gone = gone.map(|(name, from)| RefMove::new(name, from.clone(), Oid::zero()));
    moved.chain(added).chain(gone).collect()
}
