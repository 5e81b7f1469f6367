//! A report: its actions in order, each of which a forge takes once.
//!
//! No forge takes a status on a condition, and a function may sleep between its last look and its
//! call. So whoever told that an item begins shows, as he writes that it was told, that the item
//! had not ended; where it had, the end is told once more.

use crate::Reporter;
use sluice_forge::{
    CheckReport, CheckState, Conclusion, Forge, ForgeError, LineComment, Marker, ReviewVerdict,
    StatusReport, StatusState, Verdict, VoteReport,
};
use sluice_gate::merge::LineNote;
use sluice_gate::{Action, Report, ReportState};
use sluice_model::change::{ChangeRef, CommitStatus};
use sluice_model::git::BranchKey;
use sluice_model::{ConnectionName, ItemId, Timestamp};
use sluice_records::codec::{decode, with_body};
use sluice_records::{landing, report};
use sluice_runtime::batch::{Heard, LookError};
use sluice_runtime::record::{Due, Expect, Key, Record, Write};
use sluice_runtime::{Commit, Saved, cell};
use std::collections::BTreeMap;

/// Seconds after which nobody any more tells what he was given before: a function has less for all
/// it does. They are counted by the forge's clock where it tells the time.
const LOOK_BACK_SECONDS: u64 = 120;

/// The states of statuses and check runs that are over.
const ENDED: [&str; 8] = [
    "success",
    "failure",
    "error",
    "cancelled",
    "skipped",
    "neutral",
    "timed_out",
    "action_required",
];

impl Reporter {
    /// Makes one report. Safe to run twice: statuses and check runs are set, comments found by
    /// their marker.
    pub(crate) async fn report(&self, named: &str, heard: Heard) -> Result<(), LookError> {
        let (id, begun) = report::parse(named);
        let keys: Vec<Key> = [report::key(&id)]
            .into_iter()
            .chain(begun.as_ref().map(report::buildset_key))
            .collect();
        let mut found = self.ports.records.get(&keys).await?.into_iter();
        let Some(record) = found.next().flatten() else { return Ok(()) };
        let ended = found.next().flatten();
        let wanted: Report = decode(&record)?;
        if wanted.state != ReportState::Wanted {
            if heard == Heard::Again && wanted.awaited {
                // The look that ended it may not have told the queue.
                cell::send(&self.ports, &record.outbox).await?;
            }
            return match begun {
                Some(item) if record.due.is_some() => {
                    self.look_back(record, &wanted, &item, ended.is_some()).await
                }
                _ => Ok(()),
            };
        }
        // Whoever had the message before may be about to tell it, and die before he could look once
        // more.
        let is_told_twice = begun.is_some() && heard == Heard::Again;
        // Not before the time by the forge's clock, which is asked for first.
        let due = |told: &Report| {
            let at = self.ports.clock.now().plus_seconds(LOOK_BACK_SECONDS);
            is_told_twice.then(|| Due { at, poke: report::poke(told) })
        };
        if ended.is_some() {
            let wanted = if is_told_twice { self.watched(wanted).await? } else { wanted };
            // Told late, that an item begins would take back what was told of its end: reports on a
            // change are made in order.
            let (why, at) =
                ("the item had ended, of which is told".to_owned(), self.ports.clock.now());
            let due = due(&wanted);
            return self
                .write(
                    record,
                    Report { state: ReportState::Dropped { why, at }, ..wanted },
                    None,
                    due,
                )
                .await;
        }
        if wanted.actions.iter().all(Action::is_message) {
            return self.messages(record, wanted).await;
        }
        let mut refused = Vec::new();
        for action in &wanted.actions {
            if self.is_gone(connection(action)).await {
                refused.push(removed(action));
                continue;
            }
            let forge = self.forge(connection(action))?;
            match act(&**forge, &wanted, action).await {
                Ok(()) => {}
                Err(error) if error.verdict() == Verdict::Final => refused.push(error.to_string()),
                Err(error) => return Err(crate::land::again(error)),
            }
        }
        let wanted = if is_told_twice { self.watched(wanted).await? } else { wanted };
        let due = due(&wanted);
        let wanted = Report { state: self.state(&wanted, &refused), ..wanted };
        self.write(record, wanted, begun.as_ref(), due).await
    }

    /// Ends a report with what was refused of it.
    pub(crate) async fn made(
        &self,
        record: Record,
        wanted: Report,
        refused: &[String],
    ) -> Result<(), LookError> {
        let wanted = Report { state: self.state(&wanted, refused), ..wanted };
        self.write(record, wanted, None, None).await
    }

    fn state(&self, wanted: &Report, refused: &[String]) -> ReportState {
        let at = self.ports.clock.now();
        if refused.is_empty() {
            return ReportState::Made { at };
        }
        tracing::warn!(report = wanted.id, change = %wanted.change, refusals = ?refused, "a report was refused");
        ReportState::Refused { why: refused.join("; "), at }
    }

    /// Writes a report's end: of one that told that an item begins, on condition that the item has
    /// not ended.
    async fn write(
        &self,
        record: Record,
        told: Report,
        begun: Option<&ItemId>,
        due: Option<Due>,
    ) -> Result<(), LookError> {
        let mut head = with_body(record, &told)?;
        head.outbox.clear();
        let not_ended = begun
            .map(|item| Write::Check { key: report::buildset_key(item), expect: Expect::Absent });
        let others = not_ended.into_iter().collect();
        let saved = match told.awaited {
            false => {
                cell::commit(&self.ports, Commit { head, others, pokes: Vec::new(), due }).await?
            }
            true => {
                let pokes = vec![landing::tell(&told.queue)];
                cell::commit_and_send(&self.ports, Commit { head, others, pokes, due }).await?
            }
        };
        match saved {
            Saved::Yes(_) => Ok(()),
            Saved::Stale => {
                if let Some(item) = begun {
                    self.tell_end_again(item).await?;
                }
                Err(LookError::Again(
                    "somebody else makes the same report, or its item ended".to_owned(),
                ))
            }
        }
    }

    /// Returns a report with the time from which on nobody tells it any more who was given it
    /// before, by each forge's clock.
    async fn watched(&self, wanted: Report) -> Result<Report, LookError> {
        let mut quiet_from = BTreeMap::new();
        for action in wanted.actions.iter().filter(|action| !action.is_message()) {
            let name = connection(action);
            if let Some(time) = self.time_of(name, &wanted.change).await? {
                quiet_from.insert(name.clone(), time.plus_seconds(LOOK_BACK_SECONDS));
            }
        }
        Ok(Report { quiet_from, ..wanted })
    }

    /// Returns what time it is by a forge's own clock, which it is asked for where it answered
    /// nothing of late; `None` where it does not say, or nobody can ask it any more.
    async fn time_of(
        &self,
        name: &ConnectionName,
        change: &ChangeRef,
    ) -> Result<Option<Timestamp>, LookError> {
        if self.is_gone(name).await {
            return Ok(None);
        }
        let forge = self.forge(name)?;
        let branch =
            BranchKey { project: change.key.project.clone(), branch: change.branch.clone() };
        // Whatever it answers, it says when.
        if forge.time().is_none()
            && let Err(error) = forge.branch_tip(&branch).await
            && error.verdict() != Verdict::Final
        {
            return Err(crate::land::again(error));
        }
        Ok(forge.time())
    }

    /// Looks once more at what tells that an item begins and was given to several: one of them may
    /// have told it after the end. Whoever comes before nobody can do so any more leaves it to
    /// those who come later.
    async fn look_back(
        &self,
        record: Record,
        told: &Report,
        item: &ItemId,
        has_ended: bool,
    ) -> Result<(), LookError> {
        if record.due.as_ref().is_some_and(|due| due.at > self.ports.clock.now()) {
            return Ok(());
        }
        for (name, quiet_from) in &told.quiet_from {
            if self.time_of(name, &told.change).await?.is_some_and(|time| time < *quiet_from) {
                return Ok(());
            }
        }
        if has_ended {
            self.tell_end_again(item).await?;
        }
        // Losing means that somebody else has looked.
        cell::commit(
            &self.ports,
            Commit { head: record, others: Vec::new(), pokes: Vec::new(), due: None },
        )
        .await?;
        Ok(())
    }

    /// Tells of an item's end what the forge shows as begun. Comments bear their marks and stay as
    /// they are; labels are not looked at, for people move them too.
    async fn tell_end_again(&self, item: &ItemId) -> Result<(), LookError> {
        let keys: Vec<Key> = Report::end_ids(item).iter().map(|id| report::key(id)).collect();
        for record in self.ports.records.get(&keys).await?.into_iter().flatten() {
            let end: Report = decode(&record)?;
            for action in &end.actions {
                let (Action::Status { context: name, .. } | Action::Check { name, .. }) = action
                else {
                    continue;
                };
                if self.is_gone(connection(action)).await {
                    continue;
                }
                let forge = self.forge(connection(action))?;
                let told = match shows_begun(&**forge, &end.change, name).await {
                    Ok(true) => act(&**forge, &end, action).await,
                    Ok(false) => Ok(()),
                    Err(error) => Err(error),
                };
                match told {
                    Err(error) if error.verdict() != Verdict::Final => {
                        return Err(crate::land::again(error));
                    }
                    _ => {
                        tracing::info!(report = end.id, change = %end.change, "the end was looked at once more")
                    }
                }
            }
        }
        Ok(())
    }
}

/// Says that nobody can be told by a connection any more.
fn removed(action: &Action) -> String {
    format!("the connection {} was removed; nothing can be told by it any more", connection(action))
}

/// Returns whether a forge shows what goes by a name as under way. Of a ref no forge is asked for
/// it: what is told of its end is true in any case.
async fn shows_begun(
    forge: &dyn Forge,
    change: &ChangeRef,
    name: &str,
) -> Result<bool, ForgeError> {
    if change.key.number().is_none() {
        return Ok(true);
    }
    let facts = forge.read_change(&change.key).await?;
    let is_begun =
        |status: &CommitStatus| status.context == name && !ENDED.contains(&status.state.as_str());
    Ok(facts.change.head == change.head && facts.statuses.iter().any(is_begun))
}

pub(crate) fn connection(action: &Action) -> &ConnectionName {
    match action {
        Action::Status { connection, .. }
        | Action::Check { connection, .. }
        | Action::Comment { connection, .. }
        | Action::Lines { connection, .. }
        | Action::Review { connection, .. }
        | Action::Vote { connection, .. }
        | Action::Labels { connection, .. }
        | Action::Mail { connection, .. }
        | Action::Publish { connection, .. } => connection,
    }
}

/// Returns the files that a change touches; none where its forge cannot tell all of them, or
/// nothing of it any more.
async fn touched(forge: &dyn Forge, change: &ChangeRef) -> Result<Vec<String>, ForgeError> {
    match forge.read_change(&change.key).await {
        Ok(facts) => Ok(facts.files.unwrap_or_default()),
        Err(error) if error.verdict() == Verdict::Final => {
            tracing::info!(%change, %error, "what builds of others say of its lines is not said: it cannot be read");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

async fn act(forge: &dyn Forge, report: &Report, action: &Action) -> Result<(), ForgeError> {
    let (project, head) = (&report.change.key.project, &report.change.head);
    match action {
        Action::Status { context, state, description, url, .. } => {
            let state = match state.as_str() {
                "pending" => StatusState::Pending,
                "success" => StatusState::Success,
                _ => StatusState::Failure,
            };
            let status = StatusReport {
                context: context.clone(),
                state,
                description: description.clone(),
                url: Some(url.clone()),
                wanted_at: report.wanted_at,
            };
            forge.set_status(project, head, &status).await
        }
        Action::Check { name, state, title, summary, url, .. } => {
            let state = match state.as_str() {
                "queued" => CheckState::Queued,
                "in_progress" => CheckState::InProgress,
                "success" => CheckState::Completed(Conclusion::Success),
                "cancelled" => CheckState::Completed(Conclusion::Cancelled),
                "skipped" => CheckState::Completed(Conclusion::Skipped),
                "neutral" => CheckState::Completed(Conclusion::Neutral),
                _ => CheckState::Completed(Conclusion::Failure),
            };
            // One check run per pipeline and item: start and end are the same run.
            let marker = Marker::new(&format!("{name}/{}", report.item));
            let (name, title, summary) = (name.clone(), title.clone(), summary.clone());
            forge
                .put_check_run(
                    project,
                    head,
                    &CheckReport { name, marker, state, title, summary, url: Some(url.clone()) },
                )
                .await
        }
        Action::Lines { marker, body, notes, of_mates, or_comment, .. } => {
            let mut notes = notes.clone();
            if !of_mates.is_empty() {
                let touched = touched(forge, &report.change).await?;
                notes.extend(of_mates.iter().filter(|note| touched.contains(&note.path)).cloned());
            }
            if notes.is_empty() {
                return Ok(());
            }
            let comment = |note: &LineNote| {
                let LineNote { path, line, start_line, text } = note.clone();
                LineComment { path, line, start_line, text }
            };
            let comments: Vec<LineComment> = notes.iter().map(comment).collect();
            match forge
                .put_line_comments(&report.change, &Marker::new(marker), body, &comments)
                .await
            {
                // Lines that the change does not show cannot be commented on; a comment says the
                // same, the report's or one more.
                Err(error) if error.verdict() == Verdict::Final => {
                    tracing::info!(report = report.id, change = %report.change, %error, "the forge takes no comments on these lines");
                    if !or_comment {
                        return Ok(());
                    }
                    let said = notes.iter().map(|note| {
                        format!("- `{}` line {}: {}\n", note.path, note.line, note.text)
                    });
                    let text = format!("{body}\n\n{}", said.collect::<String>());
                    forge
                        .put_comment(
                            &report.change.key,
                            &Marker::new(&format!("{marker}/said")),
                            &text,
                        )
                        .await
                }
                made => made,
            }
        }
        Action::Review { marker, verdict, body, .. } => {
            let verdict = match verdict.as_str() {
                "approve" => ReviewVerdict::Approve,
                "request-changes" => ReviewVerdict::RequestChanges,
                _ => ReviewVerdict::Comment,
            };
            forge.put_review(&report.change, &Marker::new(marker), verdict, body).await
        }
        Action::Vote { marker, votes, body, notify, tag, .. } => {
            let (votes, text, notify, tag) =
                (votes.clone(), body.clone(), notify.clone(), tag.clone());
            forge
                .put_votes(
                    &report.change,
                    &Marker::new(marker),
                    &VoteReport { votes, text, notify, tag },
                )
                .await
        }
        Action::Labels { add, remove, .. } => {
            forge.change_labels(&report.change.key, add, remove).await
        }
        Action::Comment { marker, body, .. } => {
            forge.put_comment(&report.change.key, &Marker::new(marker), body).await
        }
        // They have a report of their own, which names no forge.
        Action::Mail { .. } | Action::Publish { .. } => Ok(()),
    }
}
