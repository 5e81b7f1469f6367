//! A report: its actions in order, each of which a forge takes once.

use crate::Reporter;
use sluice_forge::{
    CheckReport, CheckState, Conclusion, Forge, ForgeError, LineComment, Marker, ReviewVerdict, StatusReport,
    StatusState, Verdict,
};
use sluice_gate::merge::LineNote;
use sluice_gate::{Action, Report, ReportState};
use sluice_records::codec::{decode, with_body};
use sluice_records::report;
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{Commit, Saved, cell};

impl Reporter {
    /// Makes one report. Safe to run twice: statuses and check runs are set, comments found by their marker.
    pub(crate) async fn report(&self, named: &str) -> Result<(), LookError> {
        let (id, begun) = report::parse(named);
        let keys: Vec<Key> = [report::key(&id)].into_iter().chain(begun.as_ref().map(report::buildset_key)).collect();
        let mut found = self.ports.records.get(&keys).await?.into_iter();
        let Some(record) = found.next().flatten() else { return Ok(()) };
        let ended = found.next().flatten();
        let wanted: Report = decode(&record)?;
        if wanted.state != ReportState::Wanted {
            return Ok(());
        }
        if wanted.actions.iter().all(Action::is_message) {
            return self.messages(record, wanted).await;
        }
        let mut refused = Vec::new();
        // Told late, that an item begins would take back what was told of its end: reports on a change are made in order.
        let is_late = ended.is_some();
        let actions = if is_late { &[] } else { wanted.actions.as_slice() };
        for action in actions {
            let forge = self.forge(connection(action))?;
            match act(&**forge, &wanted, action).await {
                Ok(()) => {}
                Err(error) if error.verdict() == Verdict::Final => refused.push(error.to_string()),
                Err(error) => return Err(crate::land::again(error)),
            }
        }
        self.made(record, wanted, &refused).await
    }

    /// Ends a report with what was refused of it.
    pub(crate) async fn made(&self, record: Record, mut wanted: Report, refused: &[String]) -> Result<(), LookError> {
        let at = self.ports.clock.now();
        wanted.state = if refused.is_empty() {
            ReportState::Made { at }
        } else {
            tracing::warn!(report = wanted.id, change = %wanted.change, refusals = ?refused, "a report was refused");
            ReportState::Refused { why: refused.join("; "), at }
        };
        let head = with_body(record, &wanted)?;
        match cell::commit(&self.ports, Commit { head, others: Vec::new(), pokes: Vec::new(), due: None }).await? {
            Saved::Yes(_) => Ok(()),
            Saved::Stale => Err(LookError::Again("somebody else makes the same report".to_owned())),
        }
    }
}

pub(crate) fn connection(action: &Action) -> &sluice_model::ConnectionName {
    match action {
        Action::Status { connection, .. }
        | Action::Check { connection, .. }
        | Action::Comment { connection, .. }
        | Action::Lines { connection, .. }
        | Action::Review { connection, .. }
        | Action::Labels { connection, .. }
        | Action::Mail { connection, .. }
        | Action::Publish { connection, .. } => connection,
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
        Action::Lines { marker, body, notes, or_comment, .. } => {
            let comment = |note: &LineNote| {
                let LineNote { path, line, start_line, text } = note.clone();
                LineComment { path, line, start_line, text }
            };
            let comments: Vec<LineComment> = notes.iter().map(comment).collect();
            match forge.put_line_comments(&report.change, &Marker::new(marker), body, &comments).await {
                // Lines that the change does not show cannot be commented on; a comment says the same, the report's or one more.
                Err(error) if error.verdict() == Verdict::Final => {
                    tracing::info!(report = report.id, change = %report.change, %error, "the forge takes no comments on these lines");
                    if !or_comment {
                        return Ok(());
                    }
                    let said =
                        notes.iter().map(|note| format!("- `{}` line {}: {}\n", note.path, note.line, note.text));
                    let text = format!("{body}\n\n{}", said.collect::<String>());
                    forge.put_comment(&report.change.key, &Marker::new(&format!("{marker}/said")), &text).await
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
        Action::Labels { add, remove, .. } => forge.change_labels(&report.change.key, add, remove).await,
        Action::Comment { marker, body, .. } => forge.put_comment(&report.change.key, &Marker::new(marker), body).await,
        // They have a report of their own, which names no forge.
        Action::Mail { .. } | Action::Publish { .. } => Ok(()),
    }
}
