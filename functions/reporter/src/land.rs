//! Executes a landing: checks that the branch is still the commit that was tested on, then merges.
//! [`crate::verify`] determines the result.

use crate::Reporter;
use crate::fast_forward::{BranchPush, PushOutcome, is_as_tested};
use crate::in_flight::in_flight_until;
use crate::verify::end_of_foreign_merge;
use sluice_forge::{ErrorClass, Forge, ForgeError, MergeMessage};
use sluice_gate::item::cut;
use sluice_gate::landing::TROUBLE_BYTES_MAX;
use sluice_gate::{Landing, LandingEnd, LandingState, LandingTrouble, filter};
use sluice_model::change::{ChangeFacts, ChangeRef, ChangeStatus};
use sluice_model::git::{BranchKey, Commit, LandingMethod};
use sluice_model::{ConnectionName, ItemId, Timestamp};
use sluice_records::codec::{decode, get, with_body};
use sluice_records::{branch_lock, connection, landing};
use sluice_runtime::batch::{Reception, ReconcileError};
use sluice_runtime::metric;
use sluice_runtime::record::{Due, Record, Write as RecordWrite};
use sluice_runtime::{CellCommit as Write, CommitOutcome, cell};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two checks while a merge may be in flight.
const OWN_MERGE_LOOK_SECONDS: u64 = 2;

/// Seconds between two attempts to merge the rest of a bundle; the sweep of each minute makes them.
const BUNDLE_RETRY_PAUSE_SECONDS: u64 = 30;

/// Seconds after which trouble is shown to users who wait for a landing.
const TROUBLE_AFTER_SECONDS: u64 = 60;

/// The forge and branch of a landing, and the requests that earlier runs may have sent.
pub(crate) struct LandingContext<'a> {
    /// The change's forge.
    pub(crate) forge: &'a dyn Forge,
    /// The branch to merge into.
    pub(crate) branch: &'a BranchKey,
    /// Until when a merge or push of an earlier run may take effect; `None` where none can.
    pub(crate) in_flight_until: Option<Timestamp>,
    /// Whether the earlier request is a push, however long ago.
    pub(crate) was_pushing: bool,
    /// Whether a push may have moved the branch, however long ago and whatever was attempted since.
    /// The branch shows it.
    pub(crate) may_have_been_pushed: bool,
    /// Whether this landing or an earlier one of the same item asked the forge to merge.
    pub(crate) merge_attempted: bool,
}

impl LandingContext<'_> {
    /// Returns whether a push may be in flight. Then the change's present facts may be newer than
    /// the push.
    pub(crate) fn push_in_flight(&self) -> bool {
        self.may_have_been_pushed && self.in_flight_until.is_some()
    }
}

/// The data of an attempt, once all checks have passed.
struct Ready<'a> {
    /// The tip of the branch.
    tip: Commit,
    /// The fences of the branch locks, of all branches of a bundle.
    fences: BTreeMap<BranchKey, u64>,
    /// The prepared push; `None` where the forge has to merge.
    moves: Option<BranchPush>,
    /// The change's title.
    title: &'a str,
}

impl Reporter {
    /// Merges the change of one item in the tested state of one generation, and stores the result.
    /// Does nothing if the landing does not exist or has ended; a redelivery then sends its outbox
    /// again. Every error is returned. The first one is also stored in the landing, for users who
    /// wait for it, if the landing will be at least [`TROUBLE_AFTER_SECONDS`] old at the retry.
    pub(crate) async fn land(
        &self,
        item: &ItemId,
        generation: u64,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        let done = self.execute(item, generation, reception).await;
        if let Err(error) = &done {
            let seconds =
                if let ReconcileError::RetryAfter { seconds, .. } = error { *seconds } else { 0 };
            self.record_trouble(item, generation, &error.to_string(), seconds).await?;
        }
        done
    }

    /// Stores the trouble of a landing once, if the landing will be at least
    /// [`TROUBLE_AFTER_SECONDS`] old at its next attempt, in `seconds`. `why` is cut to
    /// [`TROUBLE_BYTES_MAX`] bytes. Does nothing if the landing does not exist or has ended. Stored
    /// trouble is replaced only to note that the landing's connection was removed.
    async fn record_trouble(
        &self,
        item: &ItemId,
        generation: u64,
        why: &str,
        seconds: u64,
    ) -> Result<(), ReconcileError> {
        let Some(head) = get(&self.ports, &landing::key(item, generation)).await? else {
            return Ok(());
        };
        let order: Landing = decode(&head)?;
        let now = self.ports.clock.now();
        let is_young =
            now.since(order.ordered_at) + seconds * 1_000 < TROUBLE_AFTER_SECONDS * 1_000;
        if is_young || matches!(order.state, LandingState::Ended { .. }) {
            return Ok(());
        }
        // While a reporter with the connection may have sent a merge, the item must not be
        // dequeued.
        let may_be_asked = matches!(order.state, LandingState::Attempting { .. })
            && head.due.as_ref().is_some_and(|due| due.at > now);
        let is_gone =
            !may_be_asked && self.is_connection_removed(&order.change.key.connection).await;
        if order.trouble.as_ref().is_some_and(|known| known.is_connection_removed || !is_gone) {
            return Ok(());
        }
        tracing::warn!(change = %order.change, queue = %order.queue, why, "a landing cannot be executed");
        // Not before `ordered_at`, since others compare the two.
        let since = order.trouble.as_ref().map_or(now.max(order.ordered_at), |known| known.since);
        let why = cut(why, TROUBLE_BYTES_MAX);
        let due = head.due.clone();
        let trouble = LandingTrouble { since, why, is_connection_removed: is_gone };
        self.store_trouble(head, order, trouble, due).await
    }

    /// Stores the trouble of a landing, due at `due`. The first of the rest of a bundle wakes the
    /// queue, which reports it. If a concurrent writer was faster, nothing is stored: it continues the landing.
    async fn store_trouble(
        &self,
        mut head: Record,
        order: Landing,
        trouble: LandingTrouble,
        due: Option<Due>,
    ) -> Result<(), ReconcileError> {
        // It was sent: a redelivery sends it before the landing is carried out.
        head.outbox.clear();
        let is_reported = order.bundle_retry_until().is_some() && order.trouble.is_none();
        let wakeups = is_reported.then(|| landing::answer_wakeup(&order.queue));
        let head = with_body(head, &Landing { trouble: Some(trouble), ..order })?;
        let write = Write { head, others: Vec::new(), wakeups: wakeups.into_iter().collect(), due };
        cell::commit_and_send(&self.ports, write).await?;
        Ok(())
    }

    /// Returns whether a connection was removed, so that its forge cannot be asked. False if this
    /// function still has it, and if the stored connections cannot be read.
    pub(crate) async fn is_connection_removed(&self, name: &ConnectionName) -> bool {
        !self.forges.contains_key(name)
            && connection::load(&self.ports).await.is_ok_and(|stored| !stored.0.contains_key(name))
    }

    /// Checks a landing that has not ended against the forge, merges its change and stores the
    /// result. May be repeated: once the intent is stored, the forge is read before it is asked
    /// again. Does nothing if the landing does not exist or has ended; a redelivery then sends its
    /// outbox again. While an earlier request may be in flight and explain an obstacle, the
    /// obstacle is a retry, not a result.
    async fn execute(
        &self,
        item: &ItemId,
        generation: u64,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        let Some(record) = get(&self.ports, &landing::key(item, generation)).await? else {
            return Ok(());
        };
        let order: Landing = decode(&record)?;
        if reception == Reception::Redelivery {
            // The run that ended it or stored its trouble may have failed to wake the queue.
            cell::send(&self.ports, &record.outbox).await?;
        }
        if let LandingState::Ended { .. } = order.state {
            return Ok(());
        }
        let forge = self.forge(&order.change.key.connection)?.clone();
        let branch = BranchKey {
            project: order.change.key.project.clone(),
            branch: order.change.branch.clone(),
        };
        let own_until = self.earlier_attempt_until(&*forge, &branch, &record, &order).await?;
        let is_moving = order.is_moving();
        let may_be_moved = is_moving || order.has_unanswered_push;
        let was_tried = order.merge_attempted;
        let context = LandingContext {
            forge: &*forge,
            branch: &branch,
            in_flight_until: own_until,
            was_pushing: is_moving,
            may_have_been_pushed: may_be_moved,
            merge_attempted: was_tried,
        };
        // First the branch: it shows whether an earlier push was made, whatever the change shows.
        if may_be_moved && self.contains_tested(&*forge, &order, &branch).await? {
            let end = self.verify_commit(&*forge, &order, &branch, &order.tested.id).await?;
            return self.end(record, order, end).await;
        }
        let facts = match forge.read_change(&order.change.key).await {
            Ok(facts) => facts,
            Err(error)
                if context.push_in_flight()
                    || (context.in_flight_until.is_some()
                        && error.class() == ErrorClass::Final) =>
            {
                return Err(retry_in_flight(error.to_string(), &order));
            }
            Err(error) => {
                return self.end_unless_pushed(&context, record, order, refused(error)?).await;
            }
        };
        // A later action of its author, which the forge may show late, does not undo the merge.
        if context.in_flight_until.is_some()
            && facts.status != ChangeStatus::Merged
            && !is_as_tested(&order, &facts)
        {
            return Err(retry_in_flight(
                format!("{} has changed since it was tested", order.change),
                &order,
            ));
        }
        if facts.change.branch != order.change.branch {
            if context.push_in_flight() {
                return Err(retry_in_flight(
                    format!("{} targets another branch now", order.change),
                    &order,
                ));
            }
            // The forge would merge into the change's new branch; this queue's branch is
            // unaffected.
            let end = retargeted(&order, &facts);
            return self.end_unless_pushed(&context, record, order, end).await;
        }
        if facts.status == ChangeStatus::Merged {
            let end = self.end_of_merged(&context, &order, &facts).await?;
            return self.end_unless_pushed(&context, record, order, end).await;
        }
        if let Some(why) = self.refusal(&context, &order, &facts).await? {
            return self
                .end_unless_pushed(&context, record, order, LandingEnd::Refused { why })
                .await;
        }
        let tip = match forge.branch_tip(&branch).await {
            Ok(tip) => tip,
            Err(error)
                if context.in_flight_until.is_some() && error.class() == ErrorClass::Final =>
            {
                return Err(retry_in_flight(error.to_string(), &order));
            }
            Err(error) => {
                return self.end_unless_pushed(&context, record, order, refused(error)?).await;
            }
        };
        if let Some(end) = self.end_on(&context, &order, &tip).await? {
            return self.end_unless_pushed(&context, record, order, end).await;
        }
        let fences = branch_lock::fences(&order);
        let moves = self.prepare_push(&order, &tip).await?;
        if let Some(until) = own_until {
            if is_moving && moves.is_none() && tip.id == order.base.id {
                return Err(retry_in_flight(
                    "its tested commit is no longer stored".to_owned(),
                    &order,
                ));
            }
            if self.is_nearly_over(until) {
                return Err(retry_in_flight(
                    "its branch does not contain it yet".to_owned(),
                    &order,
                ));
            }
        }
        self.attempt(&context, record, order, Ready { tip, fences, moves, title: &facts.title })
            .await
    }

    /// Returns why a change must not be merged: it was closed, has another head than was tested,
    /// has a dependency that is not merged, or misses a requirement. `None` if it may be. The
    /// caller has handled a merged change and one that targets another branch. While an earlier
    /// merge or push may be in flight, the last two reasons are a retry instead; the caller has
    /// handled the first two then.
    async fn refusal(
        &self,
        context: &LandingContext<'_>,
        order: &Landing,
        facts: &ChangeFacts,
    ) -> Result<Option<String>, ReconcileError> {
        if facts.status == ChangeStatus::Closed {
            return Ok(Some("the change was closed".to_owned()));
        }
        if facts.change.head != order.change.head {
            let (now, tested) = (facts.change.head.short(), order.change.head.short());
            return Ok(Some(format!("its head is now {now}, but {tested} was tested")));
        }
        if let Some(why) = self.dependency_refusal(order, facts).await? {
            return if context.in_flight_until.is_some() {
                Err(retry_in_flight(why, order))
            } else {
                Ok(Some(why))
            };
        }
        let Some(why) = self.requirement_refusal(order, facts) else { return Ok(None) };
        if context.in_flight_until.is_some() {
            return Err(retry_in_flight(why, order));
        }
        Ok(Some(filter::merge_requirement_message(&why)))
    }

    /// Returns the result of a landing that cannot start: a later bundle member could not follow,
    /// or the branch has another tree than was tested on. `None` if it can start. While an earlier
    /// merge or push may be in flight, the bundle is not checked and a moved branch may be a retry.
    async fn end_on(
        &self,
        context: &LandingContext<'_>,
        order: &Landing,
        tip: &Commit,
    ) -> Result<Option<LandingEnd>, ReconcileError> {
        if context.in_flight_until.is_none()
            && let Some(end) = self.bundle_refusal(order).await?
        {
            return Ok(Some(end));
        }
        if tip.tree == order.base.tree {
            return Ok(None);
        }
        let is_where_it_was =
            matches!(&order.state, LandingState::Attempting { tip: before } if before.id == tip.id);
        // A forge's answer about a branch may be a moment old, so a push may not be visible yet.
        if context.in_flight_until.is_some() && (context.may_have_been_pushed || !is_where_it_was) {
            let why = format!(
                "{} moved while a merge of {} may be in flight",
                context.branch, order.change
            );
            return Err(retry_soon(why));
        }
        Ok(Some(LandingEnd::BaseMoved { tip: tip.clone() }))
    }

    /// Stores the intent, merges the change and stores the result: by a push where possible,
    /// otherwise, or if the push is refused, by the forge's merge. The caller has made all checks.
    /// Landings that the same push merges are stored as attempted, too. If another queue acquired a
    /// branch lock, the landing ends as not merged because its branch moved; while an earlier
    /// request may be in flight, that is a retry. The error is a retry, among others after a push
    /// without an answer.
    async fn attempt(
        &self,
        context: &LandingContext<'_>,
        record: Record,
        mut order: Landing,
        ready: Ready<'_>,
    ) -> Result<(), ReconcileError> {
        let Ready { tip, fences, moves, title } = ready;
        // The intent is stored first: a run that finds it after a crash reads the forge before it
        // asks again. The same transaction stores the note for intake that the push changes no
        // configuration, and the intents of landings merged by the same push.
        let now = self.ports.clock.now();
        let last = moves.as_ref().map_or(&order, |moves| moves.last(&order));
        let harmless = landing::put_non_config_merge(last, &tip, now)?;
        let until = in_flight_until(context.forge, None);
        let intents = moves
            .as_ref()
            .map(|moves| moves.intents(&tip, now, until))
            .transpose()?
            .unwrap_or_default();
        let untried = order.clone();
        order.method =
            if moves.is_some() { LandingMethod::FastForward } else { LandingMethod::Merge };
        order.state = LandingState::Attempting { tip: tip.clone() };
        order.merge_attempted = true;
        if context.in_flight_until.is_none() {
            order.in_flight_until = until;
        }
        if let Some(trouble) = &mut order.trouble {
            // The connection exists again, so the result will be known.
            trouble.is_connection_removed = false;
        }
        // If the forge merges now, an earlier push may still be unanswered.
        order.has_unanswered_push |= context.was_pushing && moves.is_none();
        let with =
            harmless.into_iter().chain(intents).chain(branch_lock::checks(&fences)).collect();
        let seen = record.clone();
        let Some(mut record) = self.save(record, &order, with, context.in_flight_until).await?
        else {
            if context.in_flight_until.is_none() && self.is_overtaken(&fences).await? {
                // Nothing was done; the queue tests the change again on the moved branch.
                return self
                    .end_unless_pushed(context, seen, untried, LandingEnd::BaseMoved { tip })
                    .await;
            }
            return Err(concurrent_landing());
        };
        // A delayed run must not send a request that others already consider over.
        if record.due.as_ref().is_some_and(|due| self.is_nearly_over(due.at)) {
            return Err(retry_in_flight("storing its intent took too long".to_owned(), &order));
        }
        if let Some(moves) = moves {
            let is_unanswered = match self.push(context, &order, &tip, &moves).await? {
                PushOutcome::Ended(end) => return self.end(record, order, end).await,
                PushOutcome::Refused => false,
                PushOutcome::Unanswered => true,
            };
            order.method = LandingMethod::Merge;
            order.has_unanswered_push |= is_unanswered;
            order.in_flight_until = in_flight_until(context.forge, order.in_flight_until);
            let others = match is_unanswered {
                true => moves.unanswered(&tip, self.ports.clock.now(), order.in_flight_until)?,
                false => moves.withdrawn()?,
            };
            let with = others.into_iter().chain(branch_lock::checks(&fences)).collect();
            let saved = self.save(record, &order, with, None).await?;
            record = saved.ok_or_else(concurrent_landing)?;
            if is_unanswered {
                // After so long a wait, the branch and the change are read again before the forge
                // is asked to merge.
                return Err(retry_in_flight(
                    "a push to its branch was not answered".to_owned(),
                    &order,
                ));
            }
        }
        let end = self.merge(context, &order, title).await?;
        self.end_unless_pushed(context, record, order, end).await
    }

    /// Pushes the tested commit to the branch; the intent must be stored. Returns the landing's
    /// verified result, that the forge refused a first push, or that a repeated push failed, which
    /// counts as unanswered. A first push without an answer, a branch that moved, and any failure
    /// while an earlier request may be in flight are retries.
    async fn push(
        &self,
        context: &LandingContext<'_>,
        order: &Landing,
        tip: &Commit,
        moves: &BranchPush,
    ) -> Result<PushOutcome, ReconcileError> {
        match context.forge.fast_forward(context.branch, &tip.id, &moves.to, &moves.pack).await {
            Ok(()) => self
                .verify_commit(context.forge, order, context.branch, &order.tested.id)
                .await
                .map(PushOutcome::Ended),
            Err(error @ ForgeError::HeadMoved { .. }) => Err(retryable(error)),
            Err(error)
                if error.class() == ErrorClass::Final && context.in_flight_until.is_some() =>
            {
                Err(retry_in_flight(error.to_string(), order))
            }
            // Sluice may be allowed to merge where it may not push; the branch has not moved.
            Err(error) if error.class() == ErrorClass::Final && !context.was_pushing => {
                tracing::info!(change = %order.change, %error, "the forge refused the push; asking it to merge");
                Ok(PushOutcome::Refused)
            }
            // After a second push without an answer the forge is asked to merge, so that the branch
            // is not blocked any longer.
            Err(error) if context.was_pushing && context.in_flight_until.is_none() => {
                tracing::info!(change = %order.change, %error, "the push was not answered; asking the forge to merge");
                Ok(PushOutcome::Unanswered)
            }
            Err(error) => Err(retryable(error)),
        }
    }

    /// Asks the forge to merge the change, checks the merged tree and returns the result, without
    /// storing it; the intent must be stored. If the forge refuses for good, the result is a
    /// refusal, or that of a third party's merge if the change is merged; it is a retry instead if
    /// an earlier request may be in flight or have merged it. A change that was retargeted
    /// meanwhile is refused, although it is merged.
    async fn merge(
        &self,
        context: &LandingContext<'_>,
        order: &Landing,
        title: &str,
    ) -> Result<LandingEnd, ReconcileError> {
        let commit = match context
            .forge
            .merge(&order.change, order.mode, &message(order, title))
            .await
        {
            Ok(commit) => commit,
            Err(error)
                if error.class() == ErrorClass::Final
                    && (context.in_flight_until.is_some() || context.was_pushing) =>
            {
                let what =
                    if context.may_have_been_pushed { "a push or a merge" } else { "a merge" };
                return Err(retry_soon(format!(
                    "{error}; {what} requested earlier may be in flight"
                )));
            }
            Err(error) => {
                let end = refused(error)?;
                let facts = match context.forge.read_change(&order.change.key).await {
                    Ok(facts) if facts.status == ChangeStatus::Merged => facts,
                    Err(error) if context.merge_attempted => return Err(retryable(error)),
                    Ok(_) | Err(_) => return Ok(end),
                };
                // An earlier merge request may have taken effect since the change was read; a
                // retry verifies it.
                if context.merge_attempted {
                    return Err(retry_soon(format!("{} was merged in the meantime", order.change)));
                }
                // Otherwise a third party merged it, since the first request was refused.
                return match facts.change.branch == order.change.branch {
                    true => end_of_foreign_merge(context, order, &facts).await,
                    false => Ok(end),
                };
            }
        };
        let end = self.verify_commit(context.forge, order, context.branch, &commit).await?;
        let end = self.recheck_branch(context, order, end).await?;
        if let LandingEnd::Mismatch { .. } = end {
            if context.was_pushing {
                // The forge may name a push's last commit and show the branch late. It is checked
                // again until the attempt is over.
                return Err(retry_in_flight("it was merged as something else".to_owned(), order));
            }
            // The change may have been retargeted between the read and the merge, which names the
            // head and not the branch.
            let facts = context.forge.read_change(&order.change.key).await.map_err(retryable)?;
            if facts.change.branch != order.change.branch {
                return Ok(retargeted(order, &facts));
            }
        }
        Ok(end)
    }

    /// Returns whether another queue acquired one of the branch locks since the landing was
    /// ordered, because it seemed abandoned.
    async fn is_overtaken(
        &self,
        fences: &BTreeMap<BranchKey, u64>,
    ) -> Result<bool, ReconcileError> {
        let keys: Vec<_> = fences.keys().map(branch_lock::key).collect();
        let records = self.ports.records.get(&keys).await?;
        Ok(records
            .iter()
            .zip(fences.values())
            .any(|(record, fence)| record.as_ref().is_some_and(|record| record.fence > *fence)))
    }

    /// Returns the result of a landing if a later bundle member could not be merged: then nothing
    /// of the bundle is merged. It is a refusal if a member is not as tested, cannot be read,
    /// misses a requirement or dependency, or cannot be merged according to its forge, and a moved
    /// base if the member's branch moved. The last two are not checked on a branch that an earlier
    /// member moves. `None` if all members can, or there are no later ones.
    ///
    /// A change in the seconds between this check and the member's own landing is detected there,
    /// when a part of the bundle is already merged.
    async fn bundle_refusal(&self, order: &Landing) -> Result<Option<LandingEnd>, ReconcileError> {
        let branch_of = |change: &ChangeRef| BranchKey {
            project: change.key.project.clone(),
            branch: change.branch.clone(),
        };
        let mut before = BTreeSet::from([branch_of(&order.change)]);
        for other in &order.later_members {
            let (change, key) = (&other.change, &other.change.key);
            let refused = |why: String| {
                Some(LandingEnd::Refused { why: format!("{key}, a member of its bundle, {why}") })
            };
            if self.is_connection_removed(&key.connection).await {
                // Its state will never be known, and nothing of the bundle is merged yet.
                return Ok(refused(format!(
                    "cannot be read: the connection {} was removed",
                    key.connection
                )));
            }
            let forge = self.forge(&key.connection)?;
            let facts = match forge.read_change(key).await {
                Ok(facts) => facts,
                Err(error) if error.class() == ErrorClass::Final => {
                    return Ok(refused(format!("cannot be read: {error}")));
                }
                Err(error) => return Err(retryable(error)),
            };
            if facts.status != ChangeStatus::Open {
                return Ok(refused("is no longer open".to_owned()));
            }
            if facts.change.head != change.head || facts.change.branch != change.branch {
                return Ok(refused(format!(
                    "is now {} for {}, but another revision was tested",
                    facts.change.head.short(),
                    facts.change.branch
                )));
            }
            if let Some(why) = self.requirement_refusal(order, &facts) {
                return Ok(refused(format!(
                    "is unable to merge due to a missing merge requirement: {why}"
                )));
            }
            // The bundle's other dependencies are the same and were merged before.
            let members =
                order.later_members.iter().map(|member| &member.change).chain([&order.change]);
            let needs =
                order.needs.iter().chain(members.map(|member| &member.key)).cloned().collect();
            let own = Landing { change: change.clone(), needs, ..order.clone() };
            if let Some(why) = self.dependency_refusal(&own, &facts).await? {
                return Ok(refused(format!("may not be merged yet: {why}")));
            }
            let branch = branch_of(change);
            // A branch that an earlier member moves is compared by the next member's own landing.
            if before.insert(branch.clone()) {
                if facts.mergeable == Some(false) {
                    return Ok(refused("cannot be merged according to its forge".to_owned()));
                }
                let tip = match forge.branch_tip(&branch).await {
                    Ok(tip) => tip,
                    Err(error) if error.class() == ErrorClass::Final => {
                        return Ok(refused(format!("has no branch: {error}")));
                    }
                    Err(error) => return Err(retryable(error)),
                };
                if tip.tree != other.base.tree {
                    return Ok(Some(LandingEnd::BaseMoved { tip }));
                }
            }
        }
        Ok(None)
    }

    /// Stores the result `end` of a landing. If it is not merged according to that, but a push may
    /// have moved the branch and it now contains the tested commit, stores the result of checking
    /// that commit instead.
    async fn end_unless_pushed(
        &self,
        context: &LandingContext<'_>,
        record: Record,
        order: Landing,
        end: LandingEnd,
    ) -> Result<(), ReconcileError> {
        let has_landed = matches!(end, LandingEnd::Landed { .. });
        if !has_landed
            && context.may_have_been_pushed
            && self.contains_tested(context.forge, &order, context.branch).await?
        {
            let end =
                self.verify_commit(context.forge, &order, context.branch, &order.tested.id).await?;
            return self.end(record, order, end).await;
        }
        self.end(record, order, end).await
    }

    /// Stores the result of a landing, which wakes the gate; an error if a concurrent run has
    /// changed the landing. Where it is the rest of a bundle and was not merged, its trouble is
    /// stored instead and it is tried again with the next sweep, until ten minutes after its order.
    async fn end(
        &self,
        record: Record,
        mut order: Landing,
        end: LandingEnd,
    ) -> Result<(), ReconcileError> {
        let now = self.ports.clock.now();
        if let Some((until, why)) = order.bundle_retry_until().zip(obstacle(&order, &end)) {
            if now < until {
                let trouble = order.trouble.clone().unwrap_or_else(|| LandingTrouble {
                    since: now.max(order.ordered_at),
                    why: cut(&why, TROUBLE_BYTES_MAX),
                    is_connection_removed: false,
                });
                let at = now.plus_seconds(BUNDLE_RETRY_PAUSE_SECONDS);
                let due = Some(Due { at, wakeup: landing::wakeup(&order) });
                return self.store_trouble(record, order, trouble, due).await;
            }
            tracing::error!(change = %order.change, why, "a bundle was merged only in part");
            metric::print(&[(metric::PARTLY_MERGED_BUNDLES, 1)], now);
        }
        tracing::info!(change = %order.change, end = ?end, "a landing ended");
        order.state = LandingState::Ended { end, at: now };
        match self.save(record, &order, Vec::new(), None).await? {
            Some(_) => Ok(()),
            None => Err(concurrent_landing()),
        }
    }

    /// Stores a landing together with the writes in `with`. One that has not ended is due at
    /// `due_at`, or in a minute without that; one that has ended wakes its queue. `None`, with
    /// nothing stored, if a concurrent writer was faster or a condition in `with` does not hold.
    async fn save(
        &self,
        record: Record,
        order: &Landing,
        with: Vec<RecordWrite>,
        due_at: Option<Timestamp>,
    ) -> Result<Option<Record>, ReconcileError> {
        let ended = matches!(order.state, LandingState::Ended { .. });
        let at = due_at.unwrap_or_else(|| self.ports.clock.now().plus_seconds(60));
        let due = (!ended).then(|| Due { at, wakeup: landing::wakeup(order) });
        let wakeups = if ended { vec![landing::answer_wakeup(&order.queue)] } else { Vec::new() };
        let head = with_body(record, order)?;
        match cell::commit_and_send(&self.ports, Write { head, others: with, wakeups, due }).await?
        {
            CommitOutcome::Written(record) => Ok(Some(record)),
            CommitOutcome::Stale => Ok(None),
        }
    }
}

/// Returns the error that has the message delivered again after a forge's error, after the pause
/// that the forge asked for. A final error gives a retry as well.
pub(crate) fn retryable(error: ForgeError) -> ReconcileError {
    match error.class() {
        ErrorClass::RedeliverAfter { seconds } => {
            ReconcileError::RetryAfter { why: error.to_string(), seconds }
        }
        ErrorClass::Final | ErrorClass::Redeliver => ReconcileError::Retry(error.to_string()),
    }
}

/// Returns a refused landing if the forge's error is final, otherwise an error that has the message
/// delivered again.
pub(crate) fn refused(error: ForgeError) -> Result<LandingEnd, ReconcileError> {
    match error.class() {
        ErrorClass::Final => Ok(LandingEnd::Refused { why: error.to_string() }),
        ErrorClass::RedeliverAfter { .. } | ErrorClass::Redeliver => Err(retryable(error)),
    }
}

/// Returns why a landing did not merge its change, where another attempt may; `None` where it did,
/// or a third party merged it.
fn obstacle(order: &Landing, end: &LandingEnd) -> Option<String> {
    match end {
        LandingEnd::BaseMoved { tip } => Some(format!(
            "{} is at {}, not at the tested commit",
            order.change.branch,
            tip.id.short()
        )),
        LandingEnd::Refused { why } => Some(why.clone()),
        LandingEnd::Landed { .. }
        | LandingEnd::MergedElsewhere { .. }
        | LandingEnd::Mismatch { .. }
        | LandingEnd::Unproven { .. } => None,
    }
}

/// Returns the retry for a landing that a concurrent run has changed.
fn concurrent_landing() -> ReconcileError {
    ReconcileError::Retry("another reporter executes the same landing".to_owned())
}

/// Returns a retry in a few seconds, while a merge or push of the landing may be in flight. `why`
/// is the obstacle, which may be newer than the merge.
pub(crate) fn retry_in_flight(why: String, order: &Landing) -> ReconcileError {
    let what = if order.has_unanswered_push || order.method == LandingMethod::FastForward {
        "a push to the branch"
    } else {
        "a merge"
    };
    retry_soon(format!("{why}; {what} of {} may be in flight", order.change))
}

/// Returns an error with this reason that has the message delivered again after a few seconds.
fn retry_soon(why: String) -> ReconcileError {
    ReconcileError::RetryAfter { why, seconds: OWN_MERGE_LOOK_SECONDS }
}

/// Returns the refusal of a landing whose change targets another branch than it was tested on, or
/// was merged into another one.
fn retargeted(order: &Landing, facts: &ChangeFacts) -> LandingEnd {
    let (now, tested) = (&facts.change.branch, &order.change.branch);
    let why = match facts.status {
        ChangeStatus::Merged => format!("it was merged into {now}, but it was tested on {tested}"),
        ChangeStatus::Open | ChangeStatus::Closed => {
            format!("it now targets {now}, but it was tested on {tested}")
        }
    };
    LandingEnd::Refused { why }
}

/// Returns the title and body of the merge commit.
fn message(order: &Landing, title: &str) -> MergeMessage {
    MergeMessage {
        title: format!("Merge {}: {title}", order.change.key),
        body: format!("Tested-Tree: {}", order.tested.tree),
    }
}
