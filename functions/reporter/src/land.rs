//! A landing: is the tip still what was tested on; merge. What became of it is judged beside
//! ([`crate::judge`]).

use crate::Reporter;
use crate::asked::asked_until;
use crate::forward::{Move, Pushed, is_as_tested};
use crate::judge::end_of_others;
use sluice_forge::{
    DEPENDENCIES_MAX, Forge, ForgeError, MergeMessage, Verdict, names_too_many, no_changes,
};
use sluice_gate::item::cut;
use sluice_gate::landing::TROUBLE_BYTES_MAX;
use sluice_gate::{Landing, LandingEnd, LandingState, Trouble, filter};
use sluice_model::change::{ChangeFacts, ChangeKey, ChangeRef, ChangeStatus};
use sluice_model::git::{BranchKey, Commit, LandingWay};
use sluice_model::{ConnectionName, ItemId, Timestamp};
use sluice_records::codec::{decode, get, with_body};
use sluice_records::{connection, landing, turn};
use sluice_runtime::batch::{Heard, LookError};
use sluice_runtime::record::{Due, Record, Write as RecordWrite};
use sluice_runtime::{Commit as Write, Saved, cell};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds between two looks at a merge that may be under way without us.
const OWN_MERGE_LOOK_SECONDS: u64 = 2;

/// Seconds after which those who wait for a landing are told what keeps it.
const TROUBLE_AFTER_SECONDS: u64 = 60;

/// Dependencies of one change that are looked at before it lands; whoever admitted it refused more,
/// and so does its landing.
const NEEDS_MAX: usize = 30;

/// Where a landing goes, and what an earlier look may have begun of it.
pub(crate) struct Begun<'a> {
    pub(crate) forge: &'a dyn Forge,
    pub(crate) branch: &'a BranchKey,
    /// Until when a merge, or a move of the branch, that was begun may be under way.
    pub(crate) own_until: Option<Timestamp>,
    /// Whether what was begun is a move, however long ago.
    pub(crate) is_moving: bool,
    /// Whether a push may have moved the branch, however long ago and whatever was begun since: the
    /// branch tells.
    pub(crate) may_be_moved: bool,
    /// Whether a forge was asked before, by this landing or by an earlier one of the same item.
    pub(crate) was_tried: bool,
}

impl Begun<'_> {
    /// Returns whether a move may be under way: what a change shows by now may have come after it.
    pub(crate) fn may_be_moving(&self) -> bool {
        self.may_be_moved && self.own_until.is_some()
    }
}

/// What a landing needs to be attempted, when nothing is in its way.
struct Ready<'a> {
    /// Where the branch is.
    tip: Commit,
    /// Under which fences its branches are its queue's.
    fences: BTreeMap<BranchKey, u64>,
    /// How the branch is moved; `None` where the forge has to merge.
    moves: Option<Move>,
    /// The change's title.
    title: &'a str,
}

impl Reporter {
    /// Lands one item from one speculative state; what keeps it from that for long is written down
    /// for those who wait for its end.
    pub(crate) async fn land(
        &self,
        item: &ItemId,
        generation: u64,
        heard: Heard,
    ) -> Result<(), LookError> {
        let done = self.carry_out(item, generation, heard).await;
        if let Err(error) = &done {
            let seconds = if let LookError::Later { seconds, .. } = error { *seconds } else { 0 };
            self.tell_trouble(item, generation, &error.to_string(), seconds).await?;
        }
        done
    }

    /// Writes why a landing cannot be carried out, once, if that lasts for a while: it has, or it
    /// will for `seconds` more.
    async fn tell_trouble(
        &self,
        item: &ItemId,
        generation: u64,
        why: &str,
        seconds: u64,
    ) -> Result<(), LookError> {
        let Some(head) = get(&self.ports, &landing::key(item, generation)).await? else {
            return Ok(());
        };
        let order: Landing = decode(&head)?;
        let now = self.ports.clock.now();
        let is_young = now.since(order.wanted_at) + seconds * 1_000 < TROUBLE_AFTER_SECONDS * 1_000;
        if is_young || matches!(order.state, LandingState::Ended { .. }) {
            return Ok(());
        }
        // While somebody who knows the connection still may have it merged, nobody takes it out.
        let may_be_asked = matches!(order.state, LandingState::Attempting { .. })
            && head.due.as_ref().is_some_and(|due| due.at > now);
        let is_gone = !may_be_asked && self.is_gone(&order.change.key.connection).await;
        if order.trouble.as_ref().is_some_and(|known| known.is_gone || !is_gone) {
            return Ok(());
        }
        tracing::warn!(change = %order.change, queue = %order.queue, why, "a landing cannot be carried out");
        // Not before it was wanted, whatever our clock says: others count from that.
        let since = order.trouble.as_ref().map_or(now.max(order.wanted_at), |known| known.since);
        let trouble = Some(Trouble { since, why: cut(why, TROUBLE_BYTES_MAX), is_gone });
        let due = head.due.clone();
        let head = with_body(head, &Landing { trouble, ..order })?;
        // Losing means that somebody else carries it on.
        cell::commit(&self.ports, Write { head, others: Vec::new(), pokes: Vec::new(), due })
            .await?;
        Ok(())
    }

    /// Returns whether a connection was removed, so that nobody can ask its forge any more; where
    /// nobody knows it was not.
    pub(crate) async fn is_gone(&self, name: &ConnectionName) -> bool {
        !self.forges.contains_key(name)
            && connection::load(&self.ports).await.is_ok_and(|stored| !stored.0.contains_key(name))
    }

    /// Safe to run twice: after the intent is written the forge is read before it is asked.
    async fn carry_out(
        &self,
        item: &ItemId,
        generation: u64,
        heard: Heard,
    ) -> Result<(), LookError> {
        let Some(record) = get(&self.ports, &landing::key(item, generation)).await? else {
            return Ok(());
        };
        let order: Landing = decode(&record)?;
        if let LandingState::Ended { .. } = order.state {
            if heard == Heard::Again {
                // The look that ended it may not have told the queue.
                cell::send(&self.ports, &record.outbox).await?;
            }
            return Ok(());
        }
        let forge = self.forge(&order.change.key.connection)?.clone();
        let branch = BranchKey {
            project: order.change.key.project.clone(),
            branch: order.change.branch.clone(),
        };
        let own_until = self.own_merge_until(&*forge, &branch, &record, &order).await?;
        let is_moving = order.is_moving();
        let may_be_moved = is_moving || order.pushed;
        let was_tried = order.tried;
        let begun = Begun {
            forge: &*forge,
            branch: &branch,
            own_until,
            is_moving,
            may_be_moved,
            was_tried,
        };
        // Whatever the change shows by now: the branch tells whether it was moved.
        if may_be_moved && self.is_in(&*forge, &order, &branch).await? {
            let end = self.judge(&*forge, &order, &branch, &order.tested.id).await?;
            return self.end(record, order, end).await;
        }
        let facts = match forge.read_change(&order.change.key).await {
            Ok(facts) => facts,
            Err(error)
                if begun.may_be_moving()
                    || (begun.own_until.is_some() && error.verdict() == Verdict::Final) =>
            {
                return Err(under_way(error.to_string(), &order));
            }
            Err(error) => return self.end_unmoved(&begun, record, order, refused(error)?).await,
        };
        // What its author does to it after the merge, which a forge may show only later, takes
        // nothing of that back.
        if begun.own_until.is_some()
            && facts.status != ChangeStatus::Merged
            && !is_as_tested(&order, &facts)
        {
            return Err(under_way(
                format!("{} is not what was tested any more", order.change),
                &order,
            ));
        }
        if facts.change.branch != order.change.branch {
            if begun.may_be_moving() {
                return Err(under_way(
                    format!("{} is for another branch now", order.change),
                    &order,
                ));
            }
            // The forge merges into the branch that the change names now; nothing of this queue's
            // branch is concerned.
            let end = elsewhere(&order, &facts);
            return self.end_unmoved(&begun, record, order, end).await;
        }
        if facts.status == ChangeStatus::Merged {
            let end = self.end_of_merged(&begun, &order, &facts).await?;
            return self.end_unmoved(&begun, record, order, end).await;
        }
        if let Some(why) = self.refusal(&begun, &order, &facts).await? {
            return self.end_unmoved(&begun, record, order, LandingEnd::Refused { why }).await;
        }
        let tip = match forge.branch_tip(&branch).await {
            Ok(tip) => tip,
            Err(error) if begun.own_until.is_some() && error.verdict() == Verdict::Final => {
                return Err(under_way(error.to_string(), &order));
            }
            Err(error) => return self.end_unmoved(&begun, record, order, refused(error)?).await,
        };
        if let Some(end) = self.end_on(&begun, &order, &tip).await? {
            return self.end_unmoved(&begun, record, order, end).await;
        }
        let Some(fences) = turn::fences(&order) else {
            if begun.own_until.is_some() {
                return Err(in_a_moment(format!(
                    "nobody knows whose turn {branch} is, and a merge of {} may be under way",
                    order.change
                )));
            }
            // It was ordered by an earlier version: it is tested on what its branches are, and
            // ordered with all that is to be known.
            return self.end_unmoved(&begun, record, order, LandingEnd::BaseMoved { tip }).await;
        };
        let moves = self.move_of(&order, &tip).await?;
        if let Some(until) = own_until {
            if is_moving && moves.is_none() && tip.id == order.base.id {
                return Err(under_way("its tested commit is lost".to_owned(), &order));
            }
            if self.is_too_late(until) {
                return Err(under_way("it is not in its branch".to_owned(), &order));
            }
        }
        self.attempt(&begun, record, order, Ready { tip, fences, moves, title: &facts.title }).await
    }

    /// Returns why a change that is not merged may not land any more, by what its forge shows of
    /// it, if so.
    async fn refusal(
        &self,
        begun: &Begun<'_>,
        order: &Landing,
        facts: &ChangeFacts,
    ) -> Result<Option<String>, LookError> {
        if facts.status == ChangeStatus::Closed {
            return Ok(Some("the change was closed".to_owned()));
        }
        if facts.change.head != order.change.head {
            let (now, tested) = (facts.change.head.short(), order.change.head.short());
            return Ok(Some(format!("its head is {now} now, and {tested} was tested")));
        }
        if let Some(why) = self.unmet_need(order, facts).await? {
            return if begun.own_until.is_some() {
                Err(under_way(why, order))
            } else {
                Ok(Some(why))
            };
        }
        let Some(why) = self.missing(order, facts) else { return Ok(None) };
        if begun.own_until.is_some() {
            return Err(under_way(why, order));
        }
        Ok(Some(filter::unable_to_merge(&why)))
    }

    /// Returns how a landing ends that cannot begin on the branch as it is, or that others of its
    /// bundle could not follow.
    async fn end_on(
        &self,
        begun: &Begun<'_>,
        order: &Landing,
        tip: &Commit,
    ) -> Result<Option<LandingEnd>, LookError> {
        if begun.own_until.is_none()
            && let Some(end) = self.cannot_follow(order).await?
        {
            return Ok(Some(end));
        }
        if tip.tree == order.base.tree {
            return Ok(None);
        }
        let is_where_it_was =
            matches!(&order.state, LandingState::Attempting { tip: before } if before.id == tip.id);
        // What a forge says of a branch may be a moment old: a move that it does not show yet is
        // waited for.
        if begun.own_until.is_some() && (begun.may_be_moved || !is_where_it_was) {
            let why = format!(
                "{} moved while a merge of {} may be under way",
                begun.branch, order.change
            );
            return Err(in_a_moment(why));
        }
        Ok(Some(LandingEnd::BaseMoved { tip: tip.clone() }))
    }

    /// Writes the intent and has the change land: by a move of its branch where that may be, else
    /// by its forge's merge.
    async fn attempt(
        &self,
        begun: &Begun<'_>,
        record: Record,
        mut order: Landing,
        ready: Ready<'_>,
    ) -> Result<(), LookError> {
        let Ready { tip, fences, moves, title } = ready;
        // The intent first: whoever finds it after a crash reads the forge before asking again.
        // With it goes what tells intake that the push to come brings no configuration, and the
        // intents of those that land by the same move.
        let now = self.ports.clock.now();
        let last = moves.as_ref().map_or(&order, |moves| moves.last(&order));
        let harmless = landing::put_harmless(last, &tip, now)?;
        let until = asked_until(begun.forge, None);
        let intents = moves
            .as_ref()
            .map(|moves| moves.intents(&tip, now, until))
            .transpose()?
            .unwrap_or_default();
        let untried = order.clone();
        order.way = if moves.is_some() { LandingWay::FastForward } else { LandingWay::Merge };
        order.state = LandingState::Attempting { tip: tip.clone() };
        order.tried = true;
        if begun.own_until.is_none() {
            order.asked_until = until;
        }
        if let Some(trouble) = &mut order.trouble {
            // It is there again: from here on what becomes of it is known in the end.
            trouble.is_gone = false;
        }
        // Where the forge is to merge now, a push that had no answer may have been before.
        order.pushed |= begun.is_moving && moves.is_none();
        let with = harmless.into_iter().chain(intents).chain(turn::checks(&fences)).collect();
        let seen = record.clone();
        let Some(mut record) = self.save(record, &order, with, begun.own_until).await? else {
            if begun.own_until.is_none() && self.is_overtaken(&fences).await? {
                // Nothing was done, and its queue, should it still want that, has it tested on what
                // the branch becomes.
                return self.end_unmoved(begun, seen, untried, LandingEnd::BaseMoved { tip }).await;
            }
            return Err(somebody_else());
        };
        // Whoever was held up meanwhile asks for nothing that others may take for over before it
        // is.
        if record.due.as_ref().is_some_and(|due| self.is_too_late(due.at)) {
            return Err(under_way("its intent took long to write".to_owned(), &order));
        }
        if let Some(moves) = moves {
            let is_unanswered = match self.push(begun, &order, &tip, &moves).await? {
                Pushed::Over(end) => return self.end(record, order, end).await,
                Pushed::Refused => false,
                Pushed::Unanswered => true,
            };
            order.way = LandingWay::Merge;
            order.pushed |= is_unanswered;
            order.asked_until = asked_until(begun.forge, order.asked_until);
            let others = match is_unanswered {
                true => moves.unanswered(&tip, self.ports.clock.now(), order.asked_until)?,
                false => moves.withdrawn()?,
            };
            let with = others.into_iter().chain(turn::checks(&fences)).collect();
            let saved = self.save(record, &order, with, None).await?;
            record = saved.ok_or_else(somebody_else)?;
            if is_unanswered {
                // Who asks the forge to merge looks first at what branch and change are after so
                // long a wait.
                return Err(under_way("a push to its branch had no answer".to_owned(), &order));
            }
        }
        let end = self.merge(begun, &order, title).await?;
        self.end_unmoved(begun, record, order, end).await
    }

    /// Moves the branch and returns what became of that.
    async fn push(
        &self,
        begun: &Begun<'_>,
        order: &Landing,
        tip: &Commit,
        moves: &Move,
    ) -> Result<Pushed, LookError> {
        match begun.forge.fast_forward(begun.branch, &tip.id, &moves.to, &moves.pack).await {
            Ok(()) => self
                .judge(begun.forge, order, begun.branch, &order.tested.id)
                .await
                .map(Pushed::Over),
            Err(error @ ForgeError::HeadMoved { .. }) => Err(again(error)),
            Err(error) if error.verdict() == Verdict::Final && begun.own_until.is_some() => {
                Err(under_way(error.to_string(), order))
            }
            // Who may not push there may still merge: nothing was moved.
            Err(error) if error.verdict() == Verdict::Final && !begun.is_moving => {
                tracing::info!(change = %order.change, %error, "the forge is asked to merge what it lets nobody push");
                Ok(Pushed::Refused)
            }
            // So may who gets no clear answer a second time, and the branch is not held shut until
            // one comes.
            Err(error) if begun.is_moving && begun.own_until.is_none() => {
                tracing::info!(change = %order.change, %error, "pushes are given up, and the forge is asked to merge");
                Ok(Pushed::Unanswered)
            }
            Err(error) => Err(again(error)),
        }
    }

    /// Has the forge merge, and returns how the landing ends by that.
    async fn merge(
        &self,
        begun: &Begun<'_>,
        order: &Landing,
        title: &str,
    ) -> Result<LandingEnd, LookError> {
        let commit =
            match begun.forge.merge(&order.change, order.mode, &message(order, title)).await {
                Ok(commit) => commit,
                Err(error)
                    if error.verdict() == Verdict::Final
                        && (begun.own_until.is_some() || begun.is_moving) =>
                {
                    let what = if begun.may_be_moved { "a push or a merge" } else { "a merge" };
                    return Err(in_a_moment(format!(
                        "{error}; {what} that was asked for before may be under way"
                    )));
                }
                Err(error) => {
                    let end = refused(error)?;
                    let facts = match begun.forge.read_change(&order.change.key).await {
                        Ok(facts) if facts.status == ChangeStatus::Merged => facts,
                        Err(error) if begun.was_tried => return Err(again(error)),
                        Ok(_) | Err(_) => return Ok(end),
                    };
                    // A merge that was asked for before may have been made since the change was read;
                    // what it made is judged then.
                    if begun.was_tried {
                        return Err(in_a_moment(format!("{} was merged meanwhile", order.change)));
                    }
                    // Else somebody was faster: what was asked for first was refused.
                    return match facts.change.branch == order.change.branch {
                        true => end_of_others(begun, order, &facts).await,
                        false => Ok(end),
                    };
                }
            };
        let end = self.judge(begun.forge, order, begun.branch, &commit).await?;
        let end = self.or_moved(begun, order, end).await?;
        if let LandingEnd::Mismatch { .. } = end {
            if begun.is_moving {
                // The last commit of a push may be what its forge names, and its branch be shown as
                // it was before: that is looked at for as long as this attempt lasts, and then it
                // is what it is.
                return Err(under_way("it was merged as something else".to_owned(), order));
            }
            // Retargeted between the reading and the merge, which names the head and not the
            // branch.
            let facts = begun.forge.read_change(&order.change.key).await.map_err(again)?;
            if facts.change.branch != order.change.branch {
                return Ok(elsewhere(order, &facts));
            }
        }
        Ok(end)
    }

    /// Returns whether another queue has taken one of the branches since the landing was ordered:
    /// it was passed by, its queue having forgotten it, or nobody having carried it out for long.
    async fn is_overtaken(&self, fences: &BTreeMap<BranchKey, u64>) -> Result<bool, LookError> {
        let keys: Vec<_> = fences.keys().map(turn::key).collect();
        let records = self.ports.records.get(&keys).await?;
        Ok(records
            .iter()
            .zip(fences.values())
            .any(|(record, fence)| record.as_ref().is_some_and(|record| record.fence > *fence)))
    }

    /// Returns what a change no longer meets of what its pipeline asks: news of that may still be
    /// on their way (G12).
    pub(crate) fn missing(&self, order: &Landing, facts: &ChangeFacts) -> Option<String> {
        order.asks.as_ref()?.refusal(&order.queue.pipeline, facts, self.ports.clock.now())
    }

    /// Returns why a change may not land yet: it depends, by now, on something that is not merged
    /// (Z6.5).
    pub(crate) async fn unmet_need(
        &self,
        order: &Landing,
        facts: &ChangeFacts,
    ) -> Result<Option<String>, LookError> {
        if names_too_many(&facts.depends_on) {
            return Ok(Some(format!(
                "it names more than {DEPENDENCIES_MAX} addresses in lines Depends-On now"
            )));
        }
        let parents = facts.parents.iter().cloned().map(|parent| vec![parent]);
        // As when it entered they are not waited for.
        let strange =
            connection::strange(&self.ports, no_changes(&self.forges, &facts.depends_on)).await?;
        let named = facts.depends_on.iter().filter(|url| !strange.contains(url));
        let named: Vec<_> =
            named.map(|url| self.changes_at(url, &order.change.key.connection)).collect();
        let mut looked_at = BTreeSet::new();
        for keys in parents.chain(named) {
            let Some(key) = keys.first() else {
                return Ok(Some(
                    "it depends on something that is no change of a forge that is configured here"
                        .to_owned(),
                ));
            };
            // That it needs itself says nothing.
            if keys.iter().any(|key| *key == order.change.key || order.needs.contains(key)) {
                continue;
            }
            if !looked_at.insert(key.clone()) {
                continue;
            }
            // What is not looked at is not known to be merged.
            if looked_at.len() > NEEDS_MAX {
                return Ok(Some(format!(
                    "it depends on more than {NEEDS_MAX} changes that did not land before it here"
                )));
            }
            if !self.is_any_merged(&keys).await? {
                // One text: whether there is such a change is the business of those who may see its
                // project.
                return Ok(Some(format!(
                    "it depends on {key} now, which is not known to be merged"
                )));
            }
        }
        Ok(None)
    }

    /// Returns the change that an address is the page of, by each connection that leads to its
    /// host: by which of them the tenant has its project is not known here. The one of whoever
    /// names it comes first.
    fn changes_at(&self, url: &str, own: &ConnectionName) -> Vec<ChangeKey> {
        let mut keys: Vec<ChangeKey> =
            self.forges.values().filter_map(|forge| forge.change_at(url)).collect();
        keys.sort_by_key(|key| key.connection != *own);
        keys
    }

    /// Returns whether a change is merged, as it is known by one of some connections.
    async fn is_any_merged(&self, keys: &[ChangeKey]) -> Result<bool, LookError> {
        for key in keys {
            match self.forge(&key.connection)?.read_change(key).await {
                // It is the same change by any of them: the first one that shows it has said all
                // there is.
                Ok(need) => return Ok(need.status == ChangeStatus::Merged),
                Err(error) if error.verdict() != Verdict::Final => return Err(again(error)),
                Err(_) => {}
            }
        }
        Ok(false)
    }

    /// Returns why another change of the bundle could not land after this one, if so: then nothing
    /// of it lands. What happens to them between this and their own landing is seen there, when it
    /// is too late for a clean end; it is a matter of seconds.
    async fn cannot_follow(&self, order: &Landing) -> Result<Option<LandingEnd>, LookError> {
        let branch_of = |change: &ChangeRef| BranchKey {
            project: change.key.project.clone(),
            branch: change.branch.clone(),
        };
        let mut before = BTreeSet::from([branch_of(&order.change)]);
        for other in &order.together {
            let (change, key) = (&other.change, &other.change.key);
            let refused = |why: String| {
                Some(LandingEnd::Refused { why: format!("{key}, which it needs, {why}") })
            };
            if self.is_gone(&key.connection).await {
                // Nobody will ever tell what it is by now, and nothing of the bundle is in its
                // branch.
                return Ok(refused(format!(
                    "cannot be read: the connection {} was removed",
                    key.connection
                )));
            }
            let forge = self.forge(&key.connection)?;
            let facts = match forge.read_change(key).await {
                Ok(facts) => facts,
                Err(error) if error.verdict() == Verdict::Final => {
                    return Ok(refused(format!("cannot be read: {error}")));
                }
                Err(error) => return Err(again(error)),
            };
            if facts.status != ChangeStatus::Open {
                return Ok(refused("is not open any more".to_owned()));
            }
            if facts.change.head != change.head || facts.change.branch != change.branch {
                return Ok(refused(format!(
                    "is {} for {} now, and another one was tested",
                    facts.change.head.short(),
                    facts.change.branch
                )));
            }
            if let Some(why) = self.missing(order, &facts) {
                return Ok(refused(format!(
                    "is unable to merge due to a missing merge requirement: {why}"
                )));
            }
            // What they need besides each other is the same, and landed before the first of them.
            let mates = order.together.iter().map(|mate| &mate.change).chain([&order.change]);
            let needs = order.needs.iter().chain(mates.map(|mate| &mate.key)).cloned().collect();
            let own = Landing { change: change.clone(), needs, ..order.clone() };
            if let Some(why) = self.unmet_need(&own, &facts).await? {
                return Ok(refused(format!("may not land yet: {why}")));
            }
            let branch = branch_of(change);
            // What a branch is that another one of them moves first, the next one's landing
            // compares.
            if before.insert(branch.clone()) {
                if facts.mergeable == Some(false) {
                    return Ok(refused("cannot be merged, as its forge says".to_owned()));
                }
                let tip = match forge.branch_tip(&branch).await {
                    Ok(tip) => tip,
                    Err(error) if error.verdict() == Verdict::Final => {
                        return Ok(refused(format!("has no branch: {error}")));
                    }
                    Err(error) => return Err(again(error)),
                };
                if tip.tree != other.base.tree {
                    return Ok(Some(LandingEnd::BaseMoved { tip }));
                }
            }
        }
        Ok(None)
    }

    /// Ends a landing that came to nothing, as it seems. Where a push may have moved its branch the
    /// branch is asked last: it may have been made since the look began, and what it landed is not
    /// told as anything else.
    async fn end_unmoved(
        &self,
        begun: &Begun<'_>,
        record: Record,
        order: Landing,
        end: LandingEnd,
    ) -> Result<(), LookError> {
        let has_landed = matches!(end, LandingEnd::Landed { .. });
        if !has_landed
            && begun.may_be_moved
            && self.is_in(begun.forge, &order, begun.branch).await?
        {
            let end = self.judge(begun.forge, &order, begun.branch, &order.tested.id).await?;
            return self.end(record, order, end).await;
        }
        self.end(record, order, end).await
    }

    async fn end(
        &self,
        record: Record,
        mut order: Landing,
        end: LandingEnd,
    ) -> Result<(), LookError> {
        tracing::info!(change = %order.change, end = ?end, "a landing ends");
        order.state = LandingState::Ended { end, at: self.ports.clock.now() };
        match self.save(record, &order, Vec::new(), None).await? {
            Some(_) => Ok(()),
            None => Err(somebody_else()),
        }
    }

    /// Writes how far a landing is, with what goes with that; `None` when somebody else was faster.
    /// An attempt that is made again is due when the first one was.
    async fn save(
        &self,
        record: Record,
        order: &Landing,
        with: Vec<RecordWrite>,
        due_at: Option<Timestamp>,
    ) -> Result<Option<Record>, LookError> {
        let ended = matches!(order.state, LandingState::Ended { .. });
        let at = due_at.unwrap_or_else(|| self.ports.clock.now().plus_seconds(60));
        let due = (!ended).then(|| Due { at, poke: landing::poke(order) });
        let pokes = if ended { vec![landing::tell(&order.queue)] } else { Vec::new() };
        let head = with_body(record, order)?;
        match cell::commit_and_send(&self.ports, Write { head, others: with, pokes, due }).await? {
            Saved::Yes(record) => Ok(Some(record)),
            Saved::Stale => Ok(None),
        }
    }
}

/// Returns how an error comes again that is not final: after the pause that the forge asks for, if
/// it does.
pub(crate) fn again(error: ForgeError) -> LookError {
    match error.verdict() {
        Verdict::After { seconds } => LookError::Later { why: error.to_string(), seconds },
        Verdict::Final | Verdict::Retry => LookError::Again(error.to_string()),
    }
}

/// Returns how a landing ends that its forge refuses; what is not final comes again.
pub(crate) fn refused(error: ForgeError) -> Result<LandingEnd, LookError> {
    match error.verdict() {
        Verdict::Final => Ok(LandingEnd::Refused { why: error.to_string() }),
        Verdict::After { .. } | Verdict::Retry => Err(again(error)),
    }
}

fn somebody_else() -> LookError {
    LookError::Again("somebody else carries out the same landing".to_owned())
}

/// Returns why a landing is looked at again in a moment: what keeps it from landing may have come
/// after its branch was moved.
pub(crate) fn under_way(why: String, order: &Landing) -> LookError {
    let what = if order.pushed || order.way == LandingWay::FastForward {
        "a move of the branch"
    } else {
        "a merge"
    };
    in_a_moment(format!("{why}; {what} of {} may be under way", order.change))
}

/// Returns why a landing is looked at again while a merge or a move may be under way.
fn in_a_moment(why: String) -> LookError {
    LookError::Later { why, seconds: OWN_MERGE_LOOK_SECONDS }
}

/// How a landing ends whose change is no longer one of the branch that it was tested on.
fn elsewhere(order: &Landing, facts: &ChangeFacts) -> LandingEnd {
    let (now, tested) = (&facts.change.branch, &order.change.branch);
    let why = match facts.status {
        ChangeStatus::Merged => format!("it was merged into {now}, and was tested on {tested}"),
        ChangeStatus::Open | ChangeStatus::Closed => {
            format!("it is to be merged into {now} now, and was tested on {tested}")
        }
    };
    LandingEnd::Refused { why }
}

fn message(order: &Landing, title: &str) -> MergeMessage {
    MergeMessage {
        title: format!("Merge {}: {title}", order.change.key),
        body: format!("Tested-Tree: {}", order.tested.tree),
    }
}
