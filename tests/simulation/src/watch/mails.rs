//! Mail reports: each result is sent at least once, unchanged under one id, and no other mail is
//! sent.

use super::{Watch, both, read, transitions};
use crate::scenarios::mails::LETTERS;
use sluice_gate::{Report, ReportAction, ReportState};
use sluice_memory::RecordChange;
use sluice_notify::Mail;
use sluice_records::report::Buildset;
use sluice_runtime::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Requested mails.
#[derive(Default)]
pub(super) struct Mails {
    /// Mails by id, each with the id of its report.
    requested: BTreeMap<String, (String, Mail)>,
    /// Reports that were sent.
    pub(super) made: BTreeSet<String>,
}

impl Watch {
    /// Checks a report, and records its mails and messages.
    pub(super) fn check_report(
        &mut self,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Result<(), String> {
        transitions::check_report(before, after)?;
        let (before, after) = both::<Report>(before, after)?;
        let Some(after) = after else { return Ok(()) };
        if matches!(after.state, ReportState::Made { .. }) {
            self.mails.made.insert(after.id.clone());
        }
        if before.is_some() {
            return Ok(());
        }
        for mail in after.actions.iter().filter_map(mail_of) {
            let id = mail.id.clone();
            if self.mails.requested.insert(mail.id.clone(), (after.id.clone(), mail)).is_some() {
                return Err(format!("two reports contain the mail {id}"));
            }
        }
        self.record_publications(&after)
    }

    /// Checks that a result in the mailing pipeline has a mail in the same transaction.
    pub(super) fn check_result_mail(
        &self,
        record: &Record,
        transaction: &[RecordChange],
    ) -> Result<(), String> {
        let Some(set): Option<Buildset> = read(Some(record))? else { return Ok(()) };
        self.check_failure_count(&set, transaction)?;
        if set.queue.pipeline.as_str() != LETTERS
            || !["SUCCESS", "FAILURE"].contains(&set.result.as_str())
        {
            return Ok(());
        }
        let written = transaction.iter().filter_map(|write| write.after.as_ref());
        for record in written.filter(|record| record.key.partition.starts_with("report#")) {
            let report: Option<Report> = read(Some(record))?;
            if report.is_some_and(|report| {
                report.item == set.id && report.actions.iter().any(|a| mail_of(a).is_some())
            }) {
                return Ok(());
            }
        }
        Err(format!("{} left as {} without a mail", set.item.candidate.change, set.result))
    }

    /// Returns what is wrong with the mails that were sent.
    pub fn find_mail_errors(&self, sent: &[Mail]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, (report, mail)) in &self.mails.requested {
            let copies: Vec<&Mail> = sent.iter().filter(|copy| copy.id == *id).collect();
            if self.mails.made.contains(report) && copies.is_empty() {
                wrong.push(format!(
                    "the report {report} was sent, but its mail {id} was never sent"
                ));
            }
            if copies.iter().any(|copy| *copy != mail) {
                wrong.push(format!("the mail {id} was sent with another content than its report"));
            }
        }
        let strange = sent.iter().filter(|mail| !self.mails.requested.contains_key(&mail.id));
        wrong.extend(strange.map(|mail| format!("the mail {} was sent without a report", mail.id)));
        wrong
    }
}

/// Returns the mail of an action; `None` for other actions.
pub(super) fn mail_of(action: &ReportAction) -> Option<Mail> {
    match action {
        ReportAction::Mail { id, from, to, subject, text, .. } => Some(Mail {
            id: id.clone(),
            from: from.clone(),
            to: to.clone(),
            subject: subject.clone(),
            text: text.clone(),
        }),
        _ => None,
    }
}
