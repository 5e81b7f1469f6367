//! What is told by mail: who passed or failed is, at least once, always in the same words under one
//! id, and nobody else.

use super::{Watch, both, follows, read};
use crate::plays::mails::LETTERS;
use sluice_gate::{Action, Report, ReportState};
use sluice_memory::Written;
use sluice_notify::Mail;
use sluice_records::report::Buildset;
use sluice_runtime::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// What is to be sent, and what was by those who say so.
#[derive(Default)]
pub(super) struct Mails {
    /// Mails by their ids, each with the id of the report that has it sent.
    wanted: BTreeMap<String, (String, Mail)>,
    /// Reports that were made.
    pub(super) made: BTreeSet<String>,
}

impl Watch {
    /// Judges a report, and takes down what it has sent by mail, or published.
    pub(super) fn report(
        &mut self,
        before: Option<&Record>,
        after: Option<&Record>,
    ) -> Result<(), String> {
        follows::report(before, after)?;
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
            if self.mails.wanted.insert(mail.id.clone(), (after.id.clone(), mail)).is_some() {
                return Err(format!("two reports have the mail {id} sent"));
            }
        }
        self.is_to_be_published(&after)
    }

    /// Judges how an item left the pipeline that tells by mail: the same decision has that sent.
    pub(super) fn is_told_by_mail(
        &self,
        record: &Record,
        transaction: &[Written],
    ) -> Result<(), String> {
        let Some(set): Option<Buildset> = read(Some(record))? else { return Ok(()) };
        self.is_counted_as_failure(&set, transaction)?;
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
        Err(format!(
            "{} left as {}, and no mail is to tell of it",
            set.item.candidate.change, set.result
        ))
    }

    /// Returns what is wrong with the mails that were sent until the end.
    pub fn wrong_mails(&self, sent: &[Mail]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, (report, mail)) in &self.mails.wanted {
            let copies: Vec<&Mail> = sent.iter().filter(|copy| copy.id == *id).collect();
            if self.mails.made.contains(report) && copies.is_empty() {
                wrong.push(format!(
                    "the report {report} was made, and its mail {id} was never sent"
                ));
            }
            if copies.iter().any(|copy| *copy != mail) {
                wrong.push(format!("the mail {id} was sent in other words than its report's"));
            }
        }
        let strange = sent.iter().filter(|mail| !self.mails.wanted.contains_key(&mail.id));
        wrong.extend(
            strange.map(|mail| format!("the mail {} was sent, and no report has it sent", mail.id)),
        );
        wrong
    }
}

/// Returns the mail that an action sends, if it sends one.
pub(super) fn mail_of(action: &Action) -> Option<Mail> {
    match action {
        Action::Mail { id, from, to, subject, text, .. } => Some(Mail {
            id: id.clone(),
            from: from.clone(),
            to: to.clone(),
            subject: subject.clone(),
            text: text.clone(),
        }),
        _ => None,
    }
}
