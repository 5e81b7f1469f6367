//! One run of a landing: reads what the decision needs, and sends the requests that it decides.

use crate::Reporter;
use crate::fast_forward::BranchPush;
use crate::land::{concurrent_landing, retryable};
use sluice_forge::{ErrorClass, Forge, ForgeError, MergeMessage};
use sluice_gate::branch_lock::branch_of;
use sluice_gate::landing::observation::{
    Answer, Clocks, IntentResult, MemberView, MergeAnswer, Observation, PushAnswer, ReadMember,
    Retry, View, reads_tip_of_member,
};
use sluice_gate::landing::{ForgeQuery, WhichView};
use sluice_gate::{Attempt, FailedPush, Landing};
use sluice_model::Timestamp;
use sluice_model::change::{ChangeFacts, ChangeKey};
use sluice_model::git::{BranchKey, Commit, LandingMethod};
use sluice_records::{branch_lock, landing};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::Record;
use std::collections::BTreeMap;

/// Seconds for which a request may take effect, by the forge's clock, which has a resolution of one
/// second.
const IN_FLIGHT_SECONDS: u64 = 62;

/// One run of a landing.
pub(crate) struct LandingRun<'a> {
    /// The change's forge.
    pub(crate) forge: &'a dyn Forge,
    /// The branch to merge into.
    pub(crate) branch: BranchKey,
    /// The landing as it was stored when the run began.
    pub(crate) ordered: Landing,
    /// The landing as it is stored now.
    pub(crate) stored: Landing,
    /// Its record.
    pub(crate) record: Record,
    /// What the run has observed.
    pub(crate) seen: Observation,
    /// The prepared push; `None` where the forge has to merge.
    push: Option<BranchPush>,
}

impl<'a> LandingRun<'a> {
    /// Begins a run of the landing `order`, which is stored in `record`, at `now` by the function's
    /// clock.
    pub(crate) fn new(
        forge: &'a dyn Forge,
        record: Record,
        order: Landing,
        now: Timestamp,
    ) -> Self {
        let due = record.due.as_ref().map(|due| due.at);
        let seen = Observation::new(due, Clocks { own: now, forge: forge.time() });
        let branch = branch_of(&order.change);
        Self { forge, branch, stored: order.clone(), ordered: order, record, seen, push: None }
    }

    /// Returns the clocks, `now` by the function's one.
    pub(crate) fn clocks(&self, now: Timestamp) -> Clocks {
        Clocks { own: now, forge: self.forge.time() }
    }

    /// Returns the time, by the forge's clock, until which a request sent now may take effect. If
    /// the forge's last answer is too old to give its time, `before` is extended instead; `None` if
    /// neither is known.
    fn in_flight_until(&self, before: Option<Timestamp>) -> Option<Timestamp> {
        self.forge.time().or(before).map(|time| time.plus_seconds(IN_FLIGHT_SECONDS))
    }

    /// Returns the tip of the branch before the request.
    fn tip(&self) -> Result<Commit, ReconcileError> {
        required(self.seen.before.tip.as_ref(), "the tip of the branch").cloned()
    }

    /// Returns the change before the request.
    fn facts(&self) -> Result<&ChangeFacts, ReconcileError> {
        required(self.seen.before.change.as_ref(), "the change")
    }

    /// Returns one of the two views.
    fn view(&mut self, when: WhichView) -> &mut View {
        match when {
            WhichView::Before => &mut self.seen.before,
            WhichView::After => &mut self.seen.after,
        }
    }

    /// Pushes the tested commit to the branch; the intent must be stored.
    pub(crate) async fn push(&mut self) -> Result<(), ReconcileError> {
        let tip = self.tip()?;
        let Some(push) = &self.push else {
            return Err(ReconcileError::Retry("no push was prepared".to_owned()));
        };
        let answer = self.forge.fast_forward(&self.branch, &tip.id, &push.to, &push.pack).await;
        self.seen.push = Some(match answer {
            Ok(()) => PushAnswer::Made,
            Err(error @ ForgeError::HeadMoved { .. }) => PushAnswer::BranchMoved(retry(&error)),
            Err(error) if error.class() == ErrorClass::Final => {
                PushAnswer::Refused(error.to_string())
            }
            Err(error) => PushAnswer::Unclear(retry(&error)),
        });
        Ok(())
    }

    /// Asks the forge to merge the change; the intent must be stored.
    pub(crate) async fn merge(&mut self) -> Result<(), ReconcileError> {
        let message = merge_message(&self.ordered, &self.facts()?.title);
        let answer = self.forge.merge(&self.ordered.change, self.ordered.mode, &message).await;
        self.seen.merge = Some(match answer {
            Ok(commit) => MergeAnswer::Merged(commit),
            Err(error) if error.class() == ErrorClass::Final => {
                MergeAnswer::Refused(error.to_string())
            }
            Err(error) => MergeAnswer::Unclear(retry(&error)),
        });
        Ok(())
    }
}

impl Reporter {
    /// Reads what a decision needs into the observation. The error is a retry, if the forge gave no
    /// final answer.
    pub(crate) async fn observe(
        &self,
        run: &mut LandingRun<'_>,
        query: ForgeQuery,
    ) -> Result<(), ReconcileError> {
        let (forge, order) = (run.forge, &run.ordered);
        match query {
            ForgeQuery::ForgeTime => {
                answered(forge.branch_tip(&run.branch).await)?.ok();
                run.seen.started = run.clocks(self.ports.clock.now());
                run.seen.is_forge_time_read = true;
            }
            ForgeQuery::ContainsTested => {
                let found = self.contains_tested(forge, order, &run.branch).await?;
                run.seen.before.contains_tested = Some(found);
            }
            ForgeQuery::ContainsTestedAtEnd => {
                let found = self.contains_tested(forge, order, &run.branch).await?;
                run.seen.contains_tested_at_end = Some(found);
            }
            ForgeQuery::Change(when) => {
                let answer = forge.read_change(&order.change.key).await;
                run.view(when).change = Some(match when {
                    WhichView::Before => answered(answer)?,
                    // What was asked for has happened: the decision needs to know that nothing can
                    // be read.
                    WhichView::After => answer.map_err(|error| error.to_string()),
                });
            }
            ForgeQuery::Dependencies => {
                let (key, needs) = (&order.change.key, &order.needs);
                let why = self.dependency_refusal(key, needs, run.facts()?).await?;
                run.seen.dependencies = Some(why.map_or(Ok(()), Err));
            }
            ForgeQuery::Tip(when) => {
                run.view(when).tip = Some(answered(forge.branch_tip(&run.branch).await)?);
            }
            ForgeQuery::Member(index) => {
                let member = self.read_member(order, index).await?;
                run.seen.members.push(member);
            }
            ForgeQuery::PushReadiness => {
                run.push = self.prepare_push(order).await?;
                run.seen.is_push_ready = Some(run.push.is_some());
            }
            ForgeQuery::Merged(when, Some(commit)) => {
                let read = forge.read_commit(&run.branch.project, &commit).await;
                run.view(when).merged = Some(answered(read.map(|read| read.commit))?);
            }
            ForgeQuery::Merged(when, None) => {
                run.view(when).merged = Some(answered(forge.branch_tip(&run.branch).await)?);
            }
            ForgeQuery::Tested => {
                let read = forge.read_commit(&run.branch.project, &order.tested.id).await;
                run.seen.tested = Some(answered(read.map(|read| read.commit))?);
            }
        }
        Ok(())
    }

    /// Reads the later member of a bundle with this index. The error is a retry, if its forge gave
    /// no final answer.
    async fn read_member(
        &self,
        order: &Landing,
        index: usize,
    ) -> Result<MemberView, ReconcileError> {
        let Some(member) = order.later_members.get(index) else {
            return Err(ReconcileError::Retry(format!("the bundle has no member {index}")));
        };
        let key = &member.change.key;
        if self.is_connection_removed(&key.connection).await {
            return Ok(MemberView::ConnectionRemoved);
        }
        let forge = self.forge(&key.connection)?;
        let facts = match answered(forge.read_change(key).await)? {
            Ok(facts) => facts,
            Err(why) => return Ok(MemberView::Unreadable(why)),
        };
        // The bundle's other dependencies are the same and were merged before.
        let members = order.later_members.iter().map(|member| &member.change.key);
        let members = members.chain([&order.change.key]);
        let needs: Vec<ChangeKey> = order.needs.iter().chain(members).cloned().collect();
        let why = self.dependency_refusal(key, &needs, &facts).await?;
        let tip = match reads_tip_of_member(order, index) {
            true => Some(answered(forge.branch_tip(&branch_of(&member.change)).await)?),
            false => None,
        };
        let dependencies = why.map_or(Ok(()), Err);
        Ok(MemberView::Read(Box::new(ReadMember { facts, dependencies, tip })))
    }

    /// Stores the intent of a landing and of those that the same push merges. The same transaction
    /// stores the note for intake that the merge changes no configuration, and checks the branch
    /// locks. With `in_flight_until`, an earlier request may take effect until then, by the
    /// function's clock: the stored deadline stays.
    pub(crate) async fn write_intent(
        &self,
        run: &mut LandingRun<'_>,
        method: LandingMethod,
        in_flight_until: Option<Timestamp>,
    ) -> Result<(), ReconcileError> {
        let (tip, now) = (run.tip()?, self.ports.clock.now());
        let fences = branch_lock::fences(&run.ordered);
        let push = run.push.as_ref().filter(|_| !method.is_merge());
        let last = push.map_or(&run.ordered, |push| push.last(&run.ordered));
        let harmless = landing::put_non_config_merge(last, &tip, now)?;
        let asked = Attempt { tip, in_flight_until: run.in_flight_until(None) };
        let others = push.map(|push| push.intents(&asked, now)).transpose()?.unwrap_or_default();
        let attempt = match run.ordered.attempt().filter(|_| in_flight_until.is_some()) {
            Some(earlier) => Attempt { in_flight_until: earlier.in_flight_until, ..asked },
            None => asked,
        };
        let order = run.ordered.clone().with_intent(method, attempt);
        let with = harmless.into_iter().chain(others).chain(branch_lock::checks(&fences)).collect();
        run.seen.intent =
            Some(match self.save(run.record.clone(), &order, with, in_flight_until).await? {
                Some(record) => {
                    let until = record.due.as_ref().map(|due| due.at);
                    (run.record, run.stored) = (record, order);
                    IntentResult::Stored(until)
                }
                None if self.is_overtaken(&fences).await? => IntentResult::BranchLockLost,
                None => IntentResult::Stale,
            });
        Ok(())
    }

    /// Stores that the forge merges a landing and those that the same push would have merged.
    pub(crate) async fn replace_push(
        &self,
        run: &mut LandingRun<'_>,
        failed: FailedPush,
    ) -> Result<(), ReconcileError> {
        let Some(push) = &run.push else {
            return Err(ReconcileError::Retry("no push was prepared".to_owned()));
        };
        let change = &run.ordered.change;
        tracing::info!(%change, push = ?failed, "the branch was not pushed; asking the forge to merge");
        let before = run.stored.attempt().and_then(|attempt| attempt.in_flight_until);
        let attempt = Attempt { tip: run.tip()?, in_flight_until: run.in_flight_until(before) };
        let others = match failed {
            FailedPush::Unanswered => push.unanswered(&attempt, self.ports.clock.now())?,
            FailedPush::Refused => push.withdrawn()?,
        };
        let order = run.stored.clone().with_push_replaced(failed, attempt);
        let fences = branch_lock::fences(&order);
        let with = others.into_iter().chain(branch_lock::checks(&fences)).collect();
        let saved = self.save(run.record.clone(), &order, with, None).await?;
        run.record = saved.ok_or_else(concurrent_landing)?;
        run.stored = order;
        run.seen.is_push_replaced = true;
        Ok(())
    }

    /// Returns whether another queue acquired one of the branch locks since the landing was ordered,
    /// because it seemed abandoned.
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
}

/// Returns a forge's answer, or the error that has the message delivered again if it gave no final
/// one.
fn answered<T>(result: Result<T, ForgeError>) -> Result<Answer<T>, ReconcileError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) if error.class() == ErrorClass::Final => Ok(Err(error.to_string())),
        Err(error) => Err(retryable(error)),
    }
}

/// Returns why and when a run is repeated after this error of the forge.
fn retry(error: &ForgeError) -> Retry {
    let after_seconds = match error.class() {
        ErrorClass::RedeliverAfter { seconds } => Some(seconds),
        ErrorClass::Final | ErrorClass::Redeliver => None,
    };
    Retry { why: error.to_string(), after_seconds }
}

/// Returns an answer that the decision has asked for before, or an error that names it.
fn required<'b, T>(answer: Option<&'b Answer<T>>, what: &str) -> Result<&'b T, ReconcileError> {
    match answer {
        Some(Ok(value)) => Ok(value),
        Some(Err(why)) => Err(ReconcileError::Retry(format!("cannot read {what}: {why}"))),
        None => Err(ReconcileError::Retry(format!("{what} was not read"))),
    }
}

/// Returns the title and body of the merge commit.
fn merge_message(order: &Landing, title: &str) -> MergeMessage {
    MergeMessage {
        title: format!("Merge {}: {title}", order.change.key),
        body: format!("Tested-Tree: {}", order.tested.tree),
    }
}
