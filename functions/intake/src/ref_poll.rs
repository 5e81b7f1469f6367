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
use sluice_records::connection;
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

impl Intake {
    /// Returns whether a connection leads to a plain git server.
    pub(crate) async fn is_plain_git(&self, name: &ConnectionName) -> Result<bool, ReconcileError> {
        if self.forges.contains_key(name) {
            return Ok(false);
        }
        let stored = connection::load(&self.ports).await?;
        Ok(stored.0.get(name).is_some_and(|stored| stored.driver == Driver::Git))
    }

    /// Compares the refs of a project at a plain git server with those that the last poll saw, and
    /// adds to `effects` a synthesized push for each branch and tag that moved, at most
    /// [`PUSHES_MAX`]; a delivery that continues a minute later, if there are more; and the refs
    /// that are seen now. The first poll compares branches with the commits that tenants have read,
    /// and takes tags as they are. Only logs if no tenant may have the project by the event's
    /// connection. The inner error says why the server's refs could not be read; the next poll
    /// tries again.
    pub(crate) async fn poll_refs(
        &self,
        event: &ForgeEvent,
        at: Timestamp,
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
        let place = ProjectAt { connection: connection.clone(), project: project.clone() };
        let listed = match self.repos.refs(&place).await {
            Ok(listed) => listed,
            Err(error) => return Ok(Err(format!("could not read the refs of {project}: {error}"))),
        };
        let last: Option<SeenRefs> = tenants.found.get(&key).and_then(decode_or_log);
        let list = match &last {
            Some(last) => last.load(&self.ports).await?,
            None => None,
        };
        let is_known = list.is_some();
        let mut seen = match list {
            Some(list) => list,
            None => self.refs_that_tenants_read(event, &tenants, &listed).await?,
        };
        let moves = moves_between(&seen, &listed);
        if moves.is_empty() && is_known {
            return Ok(Ok(()));
        }
        let last = last.unwrap_or_default();
        if last.list_count > 0 {
            last.delete_others(&self.ports, project, connection).await?;
        }
        for moved in moves.iter().take(PUSHES_MAX) {
            match &moved.newrev {
                Some(newrev) => drop(seen.insert(moved.git_ref.clone(), newrev.clone())),
                None => drop(seen.remove(&moved.git_ref)),
            }
        }
        let next = last.store_next(&self.ports, project, connection, &seen).await?;
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
            let next_poll = delivery_of(event, id, EventKind::Sweep, at);
            // Without a message: the timer wakes it when it is due.
            let due = self.ports.clock.now().plus_seconds(CONTINUE_SECONDS);
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

/// Returns the moves that lead from one list of refs to another, by name: new and moved refs, then
/// deleted ones.
fn moves_between(before: &RefList, after: &RefList) -> Vec<RefMove> {
    let moved = after.iter().filter(|(name, at)| before.get(*name) != Some(*at));
    let moved = moved.map(|(name, at)| {
        RefMove::new(name, before.get(name).cloned().unwrap_or_else(Oid::zero), at.clone())
    });
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    moved.chain(gone.map(|(name, at)| RefMove::new(name, at.clone(), Oid::zero()))).collect()
}
