//! Reports that no forge shows: mail and MQTT. They are records of their own, so that neither a
//! mail server nor a broker that does not answer keeps a forge from being told, or the other way
//! round.

use super::words::Words;
use super::{Action, COMMENT_CHARS_MAX, Report};
use sluice_config::pipeline::{Reporter, ReporterKind};
use sluice_model::id::digest;

/// Characters of a topic or a subject.
const LINE_CHARS_MAX: usize = 500;

/// What a report is, as its mails and messages tell it.
pub(super) struct Told<'a> {
    /// The reporters' word.
    pub(super) occasion: &'a str,
    pub(super) words: &'a Words<'a>,
    /// The report's id.
    pub(super) id: &'a str,
    /// The address of the pages.
    pub(super) web_root: &'a str,
    pub(super) text: &'a str,
}

impl Told<'_> {
    /// Returns what a reporter of mail or MQTT does, `None` for one of a forge. `at` is its place
    /// among the reporters.
    pub(super) fn action(&self, reporter: &Reporter, at: usize) -> Option<Action> {
        // The same decision makes the same message: whoever receives it twice can tell.
        let id = digest(&["message", self.id, reporter.connection.as_str(), &at.to_string()]);
        let connection = reporter.connection.clone();
        match &reporter.kind {
            ReporterKind::Smtp { to, from, subject } => {
                let subject = match subject {
                    Some(subject) => self.words.fill(subject),
                    None => self.words.fill(
                        "Report for change {change} against {change.branch} of {change.project}",
                    ),
                };
                let subject = subject.chars().take(LINE_CHARS_MAX).collect();
                let text = super::cut(&format!("{}\n\n{}", self.text, self.words.page));
                Some(Action::Mail {
                    connection,
                    id,
                    from: from.clone(),
                    to: to.clone(),
                    subject,
                    text,
                })
            }
            ReporterKind::Mqtt { topic, qos, include_returned_data } => Some(Action::Publish {
                connection,
                id,
                topic: self.topic(topic),
                qos: *qos,
                returned: *include_returned_data,
                occasion: self.occasion.to_owned(),
                web_root: self.web_root.to_owned(),
                text: super::cut(self.text),
            }),
            _ => None,
        }
    }

    /// Fills a topic in. What a level of it stands for may hold slashes, as a project's name does;
    /// it may not hold what stands for any level where somebody subscribes.
    fn topic(&self, topic: &str) -> String {
        let (mut filled, mut rest) = (String::new(), topic);
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let Some((name, further)) = after.split_once('}') else { break };
            let value = match name {
                "change" => self.words.value("change.number"),
                "action" => Some(self.occasion.to_owned()),
                name => self.words.value(name),
            };
            filled.push_str(&value.unwrap_or_default());
            rest = further;
        }
        filled.push_str(rest);
        let is_meant_otherwise = |c: char| matches!(c, '+' | '#') || c.is_control();
        filled
            .chars()
            .map(|c| if is_meant_otherwise(c) { '_' } else { c })
            .take(LINE_CHARS_MAX)
            .collect()
    }
}

impl Action {
    /// Returns whether it is done by mail or MQTT, and not on a forge.
    pub fn is_message(&self) -> bool {
        matches!(self, Self::Mail { .. } | Self::Publish { .. })
    }
}

impl Report {
    /// Returns the records that it is: what a forge is told, and what is sent by mail and MQTT.
    pub fn records(&self) -> Vec<Self> {
        let (messages, acts): (Vec<Action>, Vec<Action>) =
            self.actions.iter().cloned().partition(Action::is_message);
        let told = Self { actions: acts, ..self.clone() };
        let id =
            if told.actions.is_empty() { self.id.clone() } else { digest(&[&self.id, "messages"]) };
        let sent = Self { id, actions: messages, awaited: false, ..self.clone() };
        [told, sent].into_iter().filter(|report| !report.actions.is_empty()).collect()
    }

    /// Returns how many records it is, without making them: every plan asks again and again whether
    /// it has room for more.
    pub(crate) fn records_count(&self) -> usize {
        let messages = self.actions.iter().filter(|action| action.is_message()).count();
        usize::from(messages > 0) + usize::from(messages < self.actions.len())
    }
}

/// Characters that a text of a report may have beside so many others: all of them fit into one
/// record.
pub(super) fn fit(actions: &mut [Action]) {
    let mut texts: Vec<&mut String> = actions.iter_mut().filter_map(text).collect();
    let each = (COMMENT_CHARS_MAX * 3 / 2) / texts.len().max(1);
    for text in &mut texts {
        if stored_bytes(text) <= each {
            continue;
        }
        let mut bytes = 0;
        let kept: String = text
            .chars()
            .take_while(|c| {
                bytes += stored_char(*c);
                bytes <= each
            })
            .collect();
        **text = format!("{kept}\n\n… cut; the whole report is on the page of the buildset.");
    }
}

fn text(action: &mut Action) -> Option<&mut String> {
    match action {
        Action::Check { summary: text, .. }
        | Action::Comment { body: text, .. }
        | Action::Review { body: text, .. }
        | Action::Vote { body: Some(text), .. }
        | Action::Mail { text, .. }
        | Action::Publish { text, .. } => Some(text),
        Action::Status { .. }
        | Action::Lines { .. }
        | Action::Labels { .. }
        | Action::Vote { body: None, .. } => None,
    }
}

fn stored_bytes(text: &str) -> usize {
    text.chars().map(stored_char).sum()
}

/// Returns the bytes of a character in a record's JSON.
fn stored_char(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if c.is_control() => 6,
        c => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C2: whatever a job's detail holds, the record that tells of it can be written.
    #[test]
    fn texts_of_a_report_fit_into_one_record() {
        for filling in ["x", "\u{1b}", "ä", "\n", "\u{10348}"] {
            let text = filling.repeat(COMMENT_CHARS_MAX);
            let comment = |marker: &str| Action::Comment {
                connection: "g".into(),
                marker: marker.to_owned(),
                body: text.clone(),
            };
            let mut actions = vec![comment("1"), comment("2"), comment("3")];
            fit(&mut actions);
            let stored = serde_json::to_string(&actions).unwrap();
            assert!(stored.len() < 48 << 10, "{filling:?}: {}", stored.len());
            assert!(stored.contains("cut; the whole report"));
        }
        let mut short = vec![Action::Comment {
            connection: "g".into(),
            marker: "1".to_owned(),
            body: "fine".to_owned(),
        }];
        let before = short.clone();
        fit(&mut short);
        assert_eq!(short, before);
    }
}
