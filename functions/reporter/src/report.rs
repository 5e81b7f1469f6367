//! Sends a report: its actions in order, each of which takes effect once on the forge.
//!
//! No forge sets a status on a condition, and a function may be delayed between its last check and
//! its request. So the commit that marks a start report as sent checks that the item has not ended.
//! If it has, the end report is repeated.

use crate::Reporter;
use sluice_forge::{
    CheckReport, CheckState, Conclusion, ErrorClass, Forge, ForgeError, LineComment, Marker,
    ReviewDecision, StatusReport, StatusState, VoteReport,
};
use sluice_gate::merge::LineNote;
use sluice_gate::{Report, ReportAction, ReportState};
use sluice_model::change::{ChangeRef, CommitStatus};
use sluice_model::git::BranchKey;
use sluice_model::{ConnectionName, ItemId, Timestamp};
use sluice_records::codec::{decode, with_body};
use sluice_records::{landing, report};
use sluice_runtime::batch::{Reception, ReconcileError};
use sluice_runtime::record::{Due, Expect, Key, Record, Write};
use sluice_runtime::{CellCommit, CommitOutcome, cell};
use std::collections::BTreeMap;

/// Seconds after which no reporter can still send a report that it got earlier: a function has less
/// time in all. Measured by the forge's clock where it is known.
const LOOK_BACK_SECONDS: u64 = 120;

/// The final states of statuses and check runs.
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
    /// Sends one report to the forge, by mail or by MQTT, and stores the result. `named` is the
    /// report's id, for a start report with its item. Does nothing if the report does not exist;
    /// one that was sent is only rechecked if it is a start report, and a redelivery wakes its
    /// queue again. The start report of an item that has ended is dropped. A refused action does
    /// not stop the others; another error of a forge is a retry of the whole report, which is safe
    /// to repeat: statuses and check runs are set, comments are found by their marker.
    pub(crate) async fn report(
        &self,
        named: &str,
        reception: Reception,
    ) -> Result<(), ReconcileError> {
        let (id, begun) = report::parse(named);
        let keys: Vec<Key> = [report::key(&id)]
            .into_iter()
            .chain(begun.as_ref().map(report::buildset_key))
            .collect();
        let mut found = self.ports.records.get(&keys).await?.into_iter();
        let Some(record) = found.next().flatten() else { return Ok(()) };
        let ended = found.next().flatten();
        let report: Report = decode(&record)?;
        if report.state != ReportState::Pending {
            if reception == Reception::Redelivery && report.awaited {
                // The run that ended it may have failed to wake the queue.
                cell::send(&self.ports, &record.outbox).await?;
            }
            return match begun {
                Some(item) if record.due.is_some() => {
                    self.recheck_start(record, &report, &item, ended.is_some()).await
                }
                _ => Ok(()),
            };
        }
        // An earlier receiver of this message may still send the report and crash before its own
        // recheck.
        let is_redelivered = begun.is_some() && reception == Reception::Redelivery;
        // Not before that time by the forge's clock, which is read first.
        let due = |report: &Report| {
            let at = self.ports.clock.now().plus_seconds(LOOK_BACK_SECONDS);
            is_redelivered.then(|| Due { at, wakeup: report::wakeup(report) })
        };
        if ended.is_some() {
            let report =
                if is_redelivered { self.with_duplicates_end(report).await? } else { report };
            // A late start report would overwrite the end report: reports on a change are sent in
            // order.
            let (why, at) = ("the item had already ended".to_owned(), self.ports.clock.now());
            let due = due(&report);
            return self
                .write(
                    record,
                    Report { state: ReportState::Dropped { why, at }, ..report },
                    None,
                    due,
                )
                .await;
        }
        if report.actions.iter().all(ReportAction::is_message) {
            return self.send_messages(record, report).await;
        }
        let mut refused = Vec::new();
        for action in &report.actions {
            if self.is_connection_removed(connection(action)).await {
                refused.push(removed(action));
                continue;
            }
            let forge = self.forge(connection(action))?;
            match perform(&**forge, &report, action).await {
                Ok(()) => {}
                Err(error) if error.class() == ErrorClass::Final => refused.push(error.to_string()),
                Err(error) => return Err(crate::land::retryable(error)),
            }
        }
        let report = if is_redelivered { self.with_duplicates_end(report).await? } else { report };
        let due = due(&report);
        let report = Report { state: self.state(&report, &refused), ..report };
        self.write(record, report, begun.as_ref(), due).await
    }

    /// Stores a report as sent if `refused` is empty, otherwise as refused with these errors, and
    /// wakes its queue if that waits for it. Not for start reports: whether the item has ended is
    /// not checked. The error is a retry if another reporter was faster.
    pub(crate) async fn finish_report(
        &self,
        record: Record,
        report: Report,
        refused: &[String],
    ) -> Result<(), ReconcileError> {
        let report = Report { state: self.state(&report, refused), ..report };
        self.write(record, report, None, None).await
    }

    /// Returns the final state of a report: sent if `refused` is empty, otherwise refused with
    /// these errors, which are also logged.
    fn state(&self, report: &Report, refused: &[String]) -> ReportState {
        let at = self.ports.clock.now();
        if refused.is_empty() {
            return ReportState::Made { at };
        }
        tracing::warn!(report = report.id, change = %report.change, refusals = ?refused, "a report was refused");
        ReportState::Refused { why: refused.join("; "), at }
    }

    /// Stores the report with its result, for a start report (`begun` is its item) on condition
    /// that the item has not ended, and wakes the queue if it waits for the report. `due` is when
    /// the report is rechecked. The error is a retry, with nothing stored, if the item has ended or
    /// another reporter was faster; for a start report the end report is then sent again before.
    async fn write(
        &self,
        record: Record,
        report: Report,
        begun: Option<&ItemId>,
        due: Option<Due>,
    ) -> Result<(), ReconcileError> {
        let mut head = with_body(record, &report)?;
        head.outbox.clear();
        let not_ended = begun
            .map(|item| Write::Check { key: report::buildset_key(item), expect: Expect::Absent });
        let others = not_ended.into_iter().collect();
        let saved = match report.awaited {
            false => {
                cell::commit(&self.ports, CellCommit { head, others, wakeups: Vec::new(), due })
                    .await?
            }
            true => {
                let wakeups = vec![landing::answer_wakeup(&report.queue)];
                cell::commit_and_send(&self.ports, CellCommit { head, others, wakeups, due })
                    .await?
            }
        };
        match saved {
            CommitOutcome::Written(_) => Ok(()),
            CommitOutcome::Stale => {
                if let Some(item) = begun {
                    self.repeat_end_report(item).await?;
                }
                Err(ReconcileError::Retry(
                    "another reporter sends the same report, or its item ended".to_owned(),
                ))
            }
        }
    }

    /// Returns the report with the time, by each forge's clock, from which no other receiver of the
    /// same message can still send it. Forges that send no time and removed connections are left
    /// out.
    async fn with_duplicates_end(&self, report: Report) -> Result<Report, ReconcileError> {
        let mut quiet_from = BTreeMap::new();
        for action in report.actions.iter().filter(|action| !action.is_message()) {
            let name = connection(action);
            if let Some(time) = self.time_of(name, &report.change).await? {
                quiet_from.insert(name.clone(), time.plus_seconds(LOOK_BACK_SECONDS));
            }
        }
        Ok(Report { duplicates_end_at: quiet_from, ..report })
    }

    /// Returns the time by a forge's own clock, and calls the forge if it answered nothing
    /// recently; `change` only gives a branch to ask about. `None` if the forge sends no time or
    /// its connection was removed.
    async fn time_of(
        &self,
        name: &ConnectionName,
        change: &ChangeRef,
    ) -> Result<Option<Timestamp>, ReconcileError> {
        if self.is_connection_removed(name).await {
            return Ok(None);
        }
        let forge = self.forge(name)?;
        let branch =
            BranchKey { project: change.key.project.clone(), branch: change.branch.clone() };
        // Any answer of the forge contains the time.
        if forge.time().is_none()
            && let Err(error) = forge.branch_tip(&branch).await
            && error.class() != ErrorClass::Final
        {
            return Err(crate::land::retryable(error));
        }
        Ok(forge.time())
    }

    /// Rechecks a start report that several reporters received: one of them may have sent it after
    /// the end report. If the item has ended, repeats the end report; then removes the due time.
    /// Does nothing before the time from which none of them can still send it.
    async fn recheck_start(
        &self,
        record: Record,
        report: &Report,
        item: &ItemId,
        has_ended: bool,
    ) -> Result<(), ReconcileError> {
        if record.due.as_ref().is_some_and(|due| due.at > self.ports.clock.now()) {
            return Ok(());
        }
        for (name, quiet_from) in &report.duplicates_end_at {
            if self.time_of(name, &report.change).await?.is_some_and(|time| time < *quiet_from) {
                return Ok(());
            }
        }
        if has_ended {
            self.repeat_end_report(item).await?;
        }
        // If a concurrent writer was faster, it did the recheck.
        cell::commit(
            &self.ports,
            CellCommit { head: record, others: Vec::new(), wakeups: Vec::new(), due: None },
        )
        .await?;
        Ok(())
    }

    /// Sends the end statuses of an item again if the forge shows them as running; a final error is
    /// ignored. Comments have markers and stay as they are. Labels are not checked, since users
    /// change them, too.
    async fn repeat_end_report(&self, item: &ItemId) -> Result<(), ReconcileError> {
        let keys: Vec<Key> = Report::end_ids(item).iter().map(|id| report::key(id)).collect();
        for record in self.ports.records.get(&keys).await?.into_iter().flatten() {
            let end: Report = decode(&record)?;
            for action in &end.actions {
                let (ReportAction::Status { context: name, .. } | ReportAction::Check { name, .. }) =
                    action
                else {
                    continue;
                };
                if self.is_connection_removed(connection(action)).await {
                    continue;
                }
                let forge = self.forge(connection(action))?;
                let repeated = match shows_running(&**forge, &end.change, name).await {
                    Ok(true) => perform(&**forge, &end, action).await,
                    Ok(false) => Ok(()),
                    Err(error) => Err(error),
                };
                match repeated {
                    Err(error) if error.class() != ErrorClass::Final => {
                        return Err(crate::land::retryable(error));
                    }
                    _ => {
                        tracing::info!(report = end.id, change = %end.change, "the end status was checked again")
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the error text for an action whose connection was removed.
fn removed(action: &ReportAction) -> String {
    format!("the connection {} was removed, so the report cannot be sent", connection(action))
}

/// Returns whether the forge shows a status or check run of this name as running; false if the
/// change has another head. Always true for refs, whose end status can be repeated safely.
async fn shows_running(
    forge: &dyn Forge,
    change: &ChangeRef,
    name: &str,
) -> Result<bool, ForgeError> {
    if change.key.number().is_none() {
        return Ok(true);
    }
    let facts = forge.read_change(&change.key).await?;
    let is_running =
        |status: &CommitStatus| status.context == name && !ENDED.contains(&status.state.as_str());
    Ok(facts.change.head == change.head && facts.statuses.iter().any(is_running))
}

/// Returns the connection through which an action is sent.
pub(crate) fn connection(action: &ReportAction) -> &ConnectionName {
    match action {
        ReportAction::Status { connection, .. }
        | ReportAction::Check { connection, .. }
        | ReportAction::Comment { connection, .. }
        | ReportAction::Lines { connection, .. }
        | ReportAction::Review { connection, .. }
        | ReportAction::Vote { connection, .. }
        | ReportAction::Labels { connection, .. }
        | ReportAction::Mail { connection, .. }
        | ReportAction::Publish { connection, .. } => connection,
    }
}

/// Returns the files that a change touches; empty if the forge cannot list all of them or the
/// change cannot be read.
async fn touched(forge: &dyn Forge, change: &ChangeRef) -> Result<Vec<String>, ForgeError> {
    match forge.read_change(&change.key).await {
        Ok(facts) => Ok(facts.files.unwrap_or_default()),
        Err(error) if error.class() == ErrorClass::Final => {
            tracing::info!(%change, %error, "line comments of shared builds are dropped because the change cannot be read");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Carries out one action of a report at the forge, such as a status, a comment or a label. Of line
/// comments of shared builds, only those on files that the change touches are sent; none if these
/// files cannot be known. Does nothing if no line comment is left. If the forge refuses the line
/// comments for good, one comment replaces all of them if the action asks for that; otherwise they
/// are dropped without an error. Does nothing for mail and MQTT.
async fn perform(
    forge: &dyn Forge,
    report: &Report,
    action: &ReportAction,
) -> Result<(), ForgeError> {
    let (project, head) = (&report.change.key.project, &report.change.head);
    match action {
        ReportAction::Status { context, state, description, url, .. } => {
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
                wanted_at: report.requested_at,
            };
            forge.set_status(project, head, &status).await
        }
        ReportAction::Check { name, state, title, summary, url, .. } => {
            let state = match state.as_str() {
                "queued" => CheckState::Queued,
                "in_progress" => CheckState::InProgress,
                "success" => CheckState::Completed(Conclusion::Success),
                "cancelled" => CheckState::Completed(Conclusion::Cancelled),
                "skipped" => CheckState::Completed(Conclusion::Skipped),
                "neutral" => CheckState::Completed(Conclusion::Neutral),
                _ => CheckState::Completed(Conclusion::Failure),
            };
            // One check run per pipeline and item, so that start and end update the same run.
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
        ReportAction::Lines {
            marker,
            body,
            notes,
            shared_build_notes,
            fallback_to_comment,
            ..
        } => {
            let mut notes = notes.clone();
            if !shared_build_notes.is_empty() {
                let touched = touched(forge, &report.change).await?;
                notes.extend(
                    shared_build_notes.iter().filter(|note| touched.contains(&note.path)).cloned(),
                );
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
                // Lines that the change does not show cannot be commented on; the report's comment
                // or a further one has the same text.
                Err(error) if error.class() == ErrorClass::Final => {
                    tracing::info!(report = report.id, change = %report.change, %error, "the forge refused the line comments");
                    if !fallback_to_comment {
                        return Ok(());
                    }
                    let lines = notes.iter().map(|note| {
                        format!("- `{}` line {}: {}\n", note.path, note.line, note.text)
                    });
                    let text = format!("{body}\n\n{}", lines.collect::<String>());
                    forge
                        .put_comment(
                            &report.change.key,
                            &Marker::new(&format!("{marker}/comment")),
                            &text,
                        )
                        .await
                }
                made => made,
            }
        }
        ReportAction::Review { marker, kind: verdict, body, .. } => {
            let verdict = match verdict.as_str() {
                "approve" => ReviewDecision::Approve,
                "request-changes" => ReviewDecision::RequestChanges,
                _ => ReviewDecision::Comment,
            };
            forge.put_review(&report.change, &Marker::new(marker), verdict, body).await
        }
        ReportAction::Vote { marker, votes, body, notify, tag, .. } => {
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
        ReportAction::Labels { add, remove, .. } => {
            forge.change_labels(&report.change.key, add, remove).await
        }
        ReportAction::Comment { marker, body, .. } => {
            forge.put_comment(&report.change.key, &Marker::new(marker), body).await
        }
        // They are in a report of their own, without a forge.
        ReportAction::Mail { .. } | ReportAction::Publish { .. } => Ok(()),
    }
}
