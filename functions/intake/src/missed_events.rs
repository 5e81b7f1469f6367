//! Finds missed pushes by comparing branches, and has the forge redeliver webhooks that failed.
//!
//! [`crate::sweep`] compares open changes. Comments and tags leave nothing to compare: only a
//! redelivery brings those.

use crate::change_context::{ConcernedTenant, ProjectTenants};
use crate::process_delivery::Effects;
use crate::sweep::{SYNTHESIZED, first_of};
use crate::{Intake, retry_error};
use sluice_forge::ErrorClass;
use sluice_model::change::RefMove;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::{ConnectionName, Timestamp};
use sluice_records::branch_tips::{self, BranchTips};
use sluice_records::codec::{decode_or_log, get};
use sluice_records::connection;
use sluice_records::delivery::{self, DeliveryRecord, DeliveryState};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Key;
use std::collections::{BTreeMap, BTreeSet};

/// The most webhooks that one sweep has the forge redeliver.
const REDELIVERIES_MAX: usize = 20;

/// The most records of one call.
const READ_MAX: usize = 100;

/// The most pushes that one sweep synthesizes.
const PUSHES_MAX: usize = 20;

/// Milliseconds after which a failed webhook counts as missed; before that it may still be retried.
const OVERDUE_MILLIS: u64 = 120_000;

/// How long in milliseconds forges can redeliver a webhook: GitHub keeps them for three days.
pub(crate) const REDELIVERABLE_MILLIS: u64 = 3 * 86_400_000;

/// The first HTTP status that means that the receiver failed, not the webhook.
const SERVER_ERROR: u16 = 500;

/// The tenants for which a push is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushAudience {
    /// All tenants that have the project.
    AllTenants,
    /// Those that have it by the event's connection: the others got it by another connection to the
    /// host.
    SameConnection,
    /// No tenant.
    NoTenant,
}

/// What is known of a project when a push to it is processed.
pub(crate) struct PushContext<'a> {
    /// The stored tips of its branches; `None` before the first push or sweep.
    pub(crate) refs: Option<BranchTips>,
    /// Whether a tenant may have the project by the connection of the push.
    pub(crate) is_for_any: bool,
    /// The connections by which tenants have the project.
    pub(crate) tenant_connections: &'a BTreeSet<ConnectionName>,
}

impl Intake {
    /// Compares a project's branches with the stored tips and adds to `effects` a synthesized push
    /// for each branch that moved, at most [`PUSHES_MAX`]; there is one for each connection by
    /// which tenants may have the project, because triggers match their own connection only. At
    /// most as many again are synthesized that only some connections reported. The first sweep
    /// stores the tips of unknown branches, which are then not missed; otherwise a tip is stored
    /// when its push is processed. A push whose delivery is stored already is not stored again. If
    /// the forge refuses to list branches for good, that is only logged.
    pub(crate) async fn find_missed_pushes(
        &self,
        event: &ForgeEvent,
        tenants: &ProjectTenants,
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let listed = match self.forge(&event.connection)?.branches(&event.project).await {
            Ok(listed) => listed,
            Err(error) if error.class() == ErrorClass::Final => {
                effects.log(format!("the branches were not compared: {error}"));
                return Ok(());
            }
            Err(error) => return Err(retry_error(error)),
        };
        let listed =
            listed.into_iter().map(|branch| (format!("refs/heads/{}", branch.name), branch.tip));
        let listed: BTreeMap<String, Oid> = listed.collect();
        let record = get(&self.ports, &branch_tips::key(&event.project)).await?;
        let stored: BranchTips = record.as_ref().and_then(decode_or_log).unwrap_or_default();
        let mut refs = stored.clone();
        let missed = refs.find_missed_pushes(&listed, PUSHES_MAX);
        if refs != stored {
            effects.write(branch_tips::put(&event.project, &refs)?);
        }
        let by = if missed.is_empty() {
            BTreeSet::new()
        } else {
            self.possible_connections(event, tenants).await?
        };
        let refs = &refs;
        let by_each = missed.iter().flat_map(|moved| {
            by.iter().map(move |connection| {
                (refs.push_for_connection(moved, connection), connection.clone())
            })
        });
        let mut unreported: Vec<(RefMove, ConnectionName)> = by_each.collect();
        // A push that one connection reported may be missing for others to the same host, where
        // those have no webhook.
        unreported.extend(
            refs.missing_pushes(&listed, &tenant_connections(event, tenants))
                .into_iter()
                .take(PUSHES_MAX),
        );
        for (moved, connection) in unreported {
            let commit = |oid: &Option<Oid>| oid.clone().unwrap_or_else(Oid::zero);
            let (oldrev, newrev) = (commit(&moved.oldrev), commit(&moved.newrev));
            let synthesized = DeliveryRecord {
                connection: connection.clone(),
                forge_id: format!(
                    "sweep:{}:{}:{oldrev}:{newrev}:{}",
                    event.project, moved.git_ref, refs.move_count
                ),
                event_name: SYNTHESIZED.to_owned(),
                received_at: at,
                event: Some(ForgeEvent {
                    connection: connection.clone(),
                    kind: EventKind::Push { git_ref: moved.git_ref.clone(), oldrev, newrev },
                    ..event.clone()
                }),
                state: DeliveryState::Accepted,
            };
            let key = delivery::key(&delivery::id(&synthesized.connection, &synthesized.forge_id));
            // Events of one project are processed one at a time, so no concurrent writer stores it
            // between this check and the commit.
            if get(&self.ports, &key).await?.is_none() {
                effects.log(format!(
                    "no webhook reported that {} moved; the push was synthesized",
                    moved.git_ref
                ));
                effects.store_delivery(&synthesized)?;
            }
        }
        Ok(())
    }

    /// Returns the connections by which tenants may have a project, with the event's own. A tenant
    /// that cannot be read, or does not have the project yet, may have it by any connection to its
    /// host.
    async fn possible_connections(
        &self,
        event: &ForgeEvent,
        tenants: &ProjectTenants,
    ) -> Result<BTreeSet<ConnectionName>, ReconcileError> {
        let mut by = BTreeSet::from([event.connection.clone()]);
        let mut is_certain = tenants.unreadable.is_empty();
        for ConcernedTenant { live, .. } in &tenants.tenants {
            let project = live.layout.tenant().project(&event.project);
            is_certain &= project.is_some();
            by.extend(project.map(|project| project.connection.clone()));
        }
        if !is_certain {
            let connections = connection::load(&self.ports).await?;
            by.extend(
                connections.of_host(event.project.host()).into_iter().map(|(name, _)| name.clone()),
            );
        }
        Ok(by)
    }

    /// Asks the forge to redeliver webhooks that it could not deliver (no answer, or a server
    /// error) and that are not stored; at most [`REDELIVERIES_MAX`]. Only those sent at least two
    /// minutes and less than three days ago count, and of repeated attempts the last. A final
    /// refusal by the forge is only logged.
    pub(crate) async fn redeliver_webhooks(
        &self,
        event: &ForgeEvent,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), ReconcileError> {
        let forge = self.forge(&event.connection)?;
        let sent = match forge.deliveries(&event.project).await {
            Ok(sent) => sent,
            // The token may lack permission to read hooks; the rest of the sweep works without it.
            Err(error) if error.class() == ErrorClass::Final => {
                effects.log(format!("the webhooks were not checked: {error}"));
                return Ok(());
            }
            Err(error) => return Err(retry_error(error)),
        };
        let mut seen = BTreeSet::new();
        // Newest first: of repeated attempts the last one counts.
        let last = sent.into_iter().filter(|sent| seen.insert(sent.id.clone()));
        let is_lost = |sent: &sluice_forge::WebhookDelivery| {
            let age = now.since(sent.delivered_at);
            sent.answered.is_none_or(|status| status >= SERVER_ERROR)
                && (OVERDUE_MILLIS..REDELIVERABLE_MILLIS).contains(&age)
        };
        let missed: BTreeMap<Key, sluice_forge::WebhookDelivery> = last
            .filter(is_lost)
            .map(|sent| (delivery::key(&delivery::id(&event.connection, &sent.id)), sent))
            .collect();
        let keys: Vec<Key> = missed.keys().cloned().collect();
        // A webhook that was stored is not missed, whatever answer the forge got.
        let mut stored: BTreeSet<Key> = BTreeSet::new();
        for page in keys.chunks(READ_MAX) {
            let found = self.ports.records.get(page).await?;
            stored.extend(found.into_iter().flatten().map(|record| record.key));
        }
        let unsent =
            missed.iter().filter(|(key, _)| !stored.contains(*key)).map(|(_, sent)| sent).collect();
        for sent in rotate_selection::<&sluice_forge::WebhookDelivery>(unsent, now) {
            match forge.redeliver(&event.project, sent).await {
                Ok(()) => effects.log(format!("the forge redelivers {} {}", sent.event, sent.id)),
                Err(error) if error.class() == ErrorClass::Final => {
                    effects.log(format!(
                        "the forge does not redeliver {} {}: {error}",
                        sent.event, sent.id
                    ));
                }
                Err(error) => return Err(retry_error(error)),
            }
        }
        Ok(())
    }

    /// Returns for which tenants a push is new, and stores a branch's push in `effects`. A known
    /// push is new for none; one that only other connections reported is new for the event's
    /// connection and is stored for that. A push is not stored if no tenant may have the project by
    /// its connection (`is_for_any`) or a later one superseded it; such a push is still new for all
    /// tenants unless it is known. A tag's push is always new for all and is not stored.
    ///
    /// A push that a sweep synthesized is not new when its webhook arrives later. A push by a
    /// connection that no tenant has the project by is not stored: it triggers nothing, so it is
    /// still missing for the right connection.
    pub(crate) async fn note_push(
        &self,
        event: &ForgeEvent,
        moved: &RefMove,
        PushContext { refs, is_for_any, tenant_connections }: PushContext<'_>,
        effects: &mut Effects,
    ) -> Result<PushAudience, ReconcileError> {
        let mut refs = refs.unwrap_or_default();
        if moved.branch().is_none() {
            return Ok(PushAudience::AllTenants);
        }
        if !is_for_any {
            return Ok(if refs.is_known_push(moved) {
                PushAudience::NoTenant
            } else {
                PushAudience::AllTenants
            });
        }
        if refs.is_known_from_others_only(moved, &event.connection) {
            refs.record_same_push(moved, &event.connection);
            effects.write(branch_tips::put(&event.project, &refs)?);
            return Ok(PushAudience::SameConnection);
        }
        if refs.is_known_push(moved) {
            return Ok(PushAudience::NoTenant);
        }
        if !(refs.is_out_of_order(moved) && self.forge_is_at_stored_tip(event, &refs, moved).await)
        {
            refs.record_push(moved, &event.connection);
            refs.expect_from(moved, tenant_connections);
            effects.write(branch_tips::put(&event.project, &refs)?);
        }
        Ok(PushAudience::AllTenants)
    }

    /// Returns whether the forge shows the branch at the tip that is stored in `refs`, so that a
    /// later push than `moved` is known already. False if the forge does not answer, or the branch
    /// is gone or not stored.
    async fn forge_is_at_stored_tip(
        &self,
        event: &ForgeEvent,
        refs: &BranchTips,
        moved: &RefMove,
    ) -> bool {
        let Ok(forge) = self.forge(&event.connection) else { return false };
        let tip = forge.ref_tip(&event.project, &moved.git_ref).await;
        let expected = refs.branches.get(&moved.git_ref).map(|place| &place.at);
        tip.is_ok_and(|tip| tip.is_some_and(|tip| Some(&tip.id) == expected))
    }
}

/// Returns the missed webhooks that the sweep at `now` redelivers, at most [`REDELIVERIES_MAX`].
/// The selection rotates, so that one that the forge always refuses does not block others forever.
fn rotate_selection<T>(mut missed: Vec<T>, now: Timestamp) -> Vec<T> {
    let first = first_of(missed.len(), now);
    missed.rotate_left(first);
    missed.truncate(REDELIVERIES_MAX);
    missed
}

/// Returns the connections by which the tenants of a project have it, without the tenants that
/// cannot be read or whose live layout lacks the project.
pub(crate) fn tenant_connections(
    event: &ForgeEvent,
    project_tenants: &ProjectTenants,
) -> BTreeSet<ConnectionName> {
    let projects = project_tenants
        .tenants
        .iter()
        .filter_map(|concerned| concerned.live.layout.tenant().project(&event.project));
    projects.map(|project| project.connection.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C5: a forge may refuse to redeliver some webhooks however often it is requested.
    #[test]
    fn each_missed_webhook_is_redelivered_eventually() {
        let at = |number: u64| Timestamp(1_800_000_000_000 + number * 600_000);
        let missed: Vec<usize> = (0..100).collect();
        let selected: BTreeSet<usize> =
            (0..100).flat_map(|number| rotate_selection(missed.clone(), at(number))).collect();
        assert_eq!(selected.len(), missed.len());
        assert_eq!(
            (rotate_selection(missed, at(1)).len(), rotate_selection(vec![7], at(1))),
            (REDELIVERIES_MAX, vec![7])
        );
    }
}
