//! What a forge did not manage to tell, and what it can still be asked: webhooks that nobody took,
//! and branches that moved without a word.
//!
//! Open changes are compared in [`crate::sweep`]. Comments and tags leave nothing to compare: for
//! those the forge is asked to send again what it could not deliver.

use crate::before::{Concerned, Known};
use crate::deliver::Effects;
use crate::sweep::{MADE_UP, first_of};
use crate::{Intake, again};
use sluice_forge::Verdict;
use sluice_model::change::RefMove;
use sluice_model::event::{EventKind, ForgeEvent};
use sluice_model::git::Oid;
use sluice_model::{ConnectionName, Timestamp};
use sluice_records::codec::{decode_foreign, get};
use sluice_records::connection;
use sluice_records::delivery::{self, Delivery, DeliveryState};
use sluice_records::refs::{self, Refs};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::Key;
use std::collections::{BTreeMap, BTreeSet};

/// Webhooks that one sweep has a forge send again.
const AGAIN_MAX: usize = 20;

/// Records that are read in one call.
const READ_MAX: usize = 100;

/// Pushes that one sweep makes up for.
const PUSHES_MAX: usize = 20;

/// Milliseconds after which a webhook that nobody took is taken for lost; before, it may be on its
/// way.
const LOST_MILLIS: u64 = 120_000;

/// Milliseconds for which forges send a webhook again: GitHub keeps them for three days.
pub(crate) const KEPT_MILLIS: u64 = 3 * 86_400_000;

/// The first status with which an answer says that it was not the webhook's fault.
const FAILED: u16 = 500;

/// To whom a push says something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewTo {
    /// To all that have the project.
    All,
    /// To those that have it by this connection: the others were told by another one to the same
    /// host.
    ItsOwn,
    /// To nobody.
    Nobody,
}

impl Intake {
    /// Compares a project's branches with where they were told to be, and stores a push of ours for
    /// each that moved: one by each connection that tenants have the project by, for what is told
    /// by one counts for the triggers of that one alone.
    pub(crate) async fn find_pushes(
        &self,
        event: &ForgeEvent,
        tenants: &Known,
        at: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let listed = match self.forge(&event.connection)?.branches(&event.project).await {
            Ok(listed) => listed,
            Err(error) if error.verdict() == Verdict::Final => {
                effects.tell(format!("its branches are not compared: {error}"));
                return Ok(());
            }
            Err(error) => return Err(again(error)),
        };
        let listed =
            listed.into_iter().map(|branch| (format!("refs/heads/{}", branch.name), branch.tip));
        let listed: BTreeMap<String, Oid> = listed.collect();
        let record = get(&self.ports, &refs::key(&event.project)).await?;
        let known: Refs = record.as_ref().and_then(decode_foreign).unwrap_or_default();
        let mut refs = known.clone();
        let lost = refs.compare(&listed, PUSHES_MAX);
        if refs != known {
            effects.write(refs::put(&event.project, &refs)?);
        }
        let by =
            if lost.is_empty() { BTreeSet::new() } else { self.known_by(event, tenants).await? };
        let refs = &refs;
        let by_each = lost.iter().flat_map(|moved| {
            by.iter()
                .map(move |connection| (refs.as_told_by(moved, connection), connection.clone()))
        });
        let mut told: Vec<(RefMove, ConnectionName)> = by_each.collect();
        // Of what one connection told the others of its host may have told nothing, where theirs
        // has no webhook.
        told.extend(refs.untold(&listed, &had_by(event, tenants)).into_iter().take(PUSHES_MAX));
        for (moved, connection) in told {
            let commit = |oid: &Option<Oid>| oid.clone().unwrap_or_else(Oid::zero);
            let (oldrev, newrev) = (commit(&moved.oldrev), commit(&moved.newrev));
            let found = Delivery {
                connection: connection.clone(),
                forge_id: format!(
                    "sweep:{}:{}:{oldrev}:{newrev}:{}",
                    event.project, moved.git_ref, refs.moves
                ),
                event_name: MADE_UP.to_owned(),
                received_at: at,
                event: Some(ForgeEvent {
                    connection: connection.clone(),
                    kind: EventKind::Push { git_ref: moved.git_ref.clone(), oldrev, newrev },
                    ..event.clone()
                }),
                state: DeliveryState::Accepted,
            };
            let key = delivery::key(&delivery::id(&found.connection, &found.forge_id));
            // Events of one project are handled one at a time, so nobody stores it between this
            // look and the commit.
            if get(&self.ports, &key).await?.is_none() {
                effects.tell(format!("its forge never told that {} moved", moved.git_ref));
                effects.deliver(&found)?;
            }
        }
        Ok(())
    }

    /// Returns the connections by which tenants have a project, with the one that is asked by. A
    /// tenant that cannot be read, or has no such project yet, may have it by any that leads to its
    /// host.
    async fn known_by(
        &self,
        event: &ForgeEvent,
        tenants: &Known,
    ) -> Result<BTreeSet<ConnectionName>, LookError> {
        let mut by = BTreeSet::from([event.connection.clone()]);
        let mut is_certain = tenants.damaged.is_empty();
        for Concerned { live, .. } in &tenants.tenants {
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

    /// Has the forge send again what it could not deliver: nobody answered, or with an error of
    /// ours.
    pub(crate) async fn find_webhooks(
        &self,
        event: &ForgeEvent,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), LookError> {
        let forge = self.forge(&event.connection)?;
        let sent = match forge.deliveries(&event.project).await {
            Ok(sent) => sent,
            // A token need not have the right to read hooks; what can be compared is compared
            // without it.
            Err(error) if error.verdict() == Verdict::Final => {
                effects.tell(format!("its webhooks are not looked at: {error}"));
                return Ok(());
            }
            Err(error) => return Err(again(error)),
        };
        let mut seen = BTreeSet::new();
        // Newest first: of one that was sent several times the last time counts.
        let last = sent.into_iter().filter(|sent| seen.insert(sent.id.clone()));
        let is_lost = |sent: &sluice_forge::Delivery| {
            let age = now.since(sent.delivered_at);
            sent.answered.is_none_or(|status| status >= FAILED)
                && (LOST_MILLIS..KEPT_MILLIS).contains(&age)
        };
        let lost: BTreeMap<Key, sluice_forge::Delivery> = last
            .filter(is_lost)
            .map(|sent| (delivery::key(&delivery::id(&event.connection, &sent.id)), sent))
            .collect();
        let keys: Vec<Key> = lost.keys().cloned().collect();
        // Stored is stored, whatever the forge was answered, and takes the turn of none that was
        // not.
        let mut stored: BTreeSet<Key> = BTreeSet::new();
        for page in keys.chunks(READ_MAX) {
            let found = self.ports.records.get(page).await?;
            stored.extend(found.into_iter().flatten().map(|record| record.key));
        }
        let unsent =
            lost.iter().filter(|(key, _)| !stored.contains(*key)).map(|(_, sent)| sent).collect();
        for sent in some_of::<&sluice_forge::Delivery>(unsent, now) {
            match forge.redeliver(&event.project, sent).await {
                Ok(()) => effects.tell(format!("its forge sends {} {} again", sent.event, sent.id)),
                Err(error) if error.verdict() == Verdict::Final => {
                    effects.tell(format!(
                        "its forge does not send {} {} again: {error}",
                        sent.event, sent.id
                    ));
                }
                Err(error) => return Err(again(error)),
            }
        }
        Ok(())
    }

    /// Notes that a push was told, and returns to whom it says something new. One that was found by
    /// a sweep, and whose webhook came after all, does to nobody. What comes by a connection that
    /// no tenant has the project by is not noted: it starts nothing, so that the push is still to
    /// be told by the one that they have it by.
    pub(crate) async fn is_new_push(
        &self,
        event: &ForgeEvent,
        moved: &RefMove,
        (refs, is_for_any, had_by): (Option<Refs>, bool, &BTreeSet<ConnectionName>),
        effects: &mut Effects,
    ) -> Result<NewTo, LookError> {
        let mut refs = refs.unwrap_or_default();
        if moved.branch().is_none() {
            return Ok(NewTo::All);
        }
        if !is_for_any {
            return Ok(if refs.was_told(moved) { NewTo::Nobody } else { NewTo::All });
        }
        if refs.was_told_elsewhere(moved, &event.connection) {
            refs.note_again(moved, &event.connection);
            effects.write(refs::put(&event.project, &refs)?);
            return Ok(NewTo::ItsOwn);
        }
        if refs.was_told(moved) {
            return Ok(NewTo::Nobody);
        }
        if !(refs.is_out_of_order(moved) && self.is_late(event, &refs, moved).await) {
            refs.note(moved, &event.connection);
            refs.await_others(moved, had_by);
            effects.write(refs::put(&event.project, &refs)?);
        }
        Ok(NewTo::All)
    }

    /// Returns whether a branch is still where a later push said; a forge that does not say so has
    /// not said it.
    async fn is_late(&self, event: &ForgeEvent, refs: &Refs, moved: &RefMove) -> bool {
        let Ok(forge) = self.forge(&event.connection) else { return false };
        let tip = forge.ref_tip(&event.project, &moved.git_ref).await;
        let known = refs.branches.get(&moved.git_ref).map(|place| &place.at);
        tip.is_ok_and(|tip| tip.is_some_and(|tip| Some(&tip.id) == known))
    }
}

/// Returns those of what was lost that a sweep of this time has sent again: what a forge never does
/// takes no other's turn for ever.
fn some_of<T>(mut lost: Vec<T>, now: Timestamp) -> Vec<T> {
    let first = first_of(lost.len(), now);
    lost.rotate_left(first);
    lost.truncate(AGAIN_MAX);
    lost
}

/// Returns the connections by which tenants have a project, as far as those can be read.
pub(crate) fn had_by(event: &ForgeEvent, known: &Known) -> BTreeSet<ConnectionName> {
    let projects =
        known.tenants.iter().filter_map(|known| known.live.layout.tenant().project(&event.project));
    projects.map(|project| project.connection.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C5: a forge may refuse to send some webhooks again, as often as it is asked.
    #[test]
    fn each_webhook_that_was_lost_has_its_turn() {
        let at = |number: u64| Timestamp(1_800_000_000_000 + number * 600_000);
        let lost: Vec<usize> = (0..100).collect();
        let asked: BTreeSet<usize> =
            (0..100).flat_map(|number| some_of(lost.clone(), at(number))).collect();
        assert_eq!(asked.len(), lost.len());
        assert_eq!((some_of(lost, at(1)).len(), some_of(vec![7], at(1))), (AGAIN_MAX, vec![7]));
    }
}
