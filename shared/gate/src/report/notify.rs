//! Reports by mail and MQTT. They are records of their own, so that a mail server or broker that
//! does not answer never delays a report to a forge, and the other way round.

use super::message_template::MessageContext;
use super::{COMMENT_CHARS_MAX, Report, ReportAction};
use sluice_config::pipeline::{PipelineReporter, ReporterKind};
use sluice_model::id::digest;

/// The most characters of a topic or a subject.
const LINE_CHARS_MAX: usize = 500;

/// The part of a report that its mails and messages use.
pub(super) struct ReportMessage<'a> {
    /// The name of the occasion.
    pub(super) occasion: &'a str,
    /// The names that templates may use.
    pub(super) words: &'a MessageContext<'a>,
    /// The report's id.
    pub(super) id: &'a str,
    /// The address of Sluice's pages.
    pub(super) web_root: &'a str,
    /// The text of the report.
    pub(super) text: &'a str,
}

impl ReportMessage<'_> {
    /// Returns the action of a mail or MQTT reporter, or `None` for another reporter. `at` is its
    /// index among the reporters, which the message's id is derived from. A mail also names the
    /// item's page.
    pub(super) fn action(&self, reporter: &PipelineReporter, at: usize) -> Option<ReportAction> {
        // The id is derived from the report, so that a receiver recognizes a repeated message.
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
                Some(ReportAction::Mail {
                    connection,
                    id,
                    from: from.clone(),
                    to: to.clone(),
                    subject,
                    text,
                })
            }
            ReporterKind::Mqtt { topic, qos, include_returned_data } => {
                Some(ReportAction::Publish {
                    connection,
                    id,
                    topic: self.topic(topic),
                    qos: *qos,
                    returned: *include_returned_data,
                    occasion: self.occasion.to_owned(),
                    web_root: self.web_root.to_owned(),
                    text: super::cut(self.text),
                })
            }
            _ => None,
        }
    }

    /// Returns a topic with its names replaced; an unknown name is removed. A value may contain
    /// slashes, as a project's name does. Characters that a subscription would read as wildcards,
    /// and control characters, are replaced by `_`. A long topic is cut.
    fn topic(&self, topic: &str) -> String {
        let filled = fill_names(topic, |name| match name {
            "change" => self.words.value("change.number"),
            "action" => Some(self.occasion.to_owned()),
            name => self.words.value(name),
        });
        let is_wildcard = |c: char| matches!(c, '+' | '#') || c.is_control();
        filled.chars().map(|c| if is_wildcard(c) { '_' } else { c }).take(LINE_CHARS_MAX).collect()
    }
}

/// Returns a text with each `{name}` replaced by its value, or by nothing if it has none. A brace
/// that is not closed stays as it is.
fn fill_names(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('{')
        && let Some((name, further)) = after.split_once('}')
    {
        filled.push_str(before);
        filled.push_str(&value(name).unwrap_or_default());
        rest = further;
    }
    filled.push_str(rest);
    filled
}

impl ReportAction {
    /// Returns whether it is a mail or MQTT message rather than an action on a forge.
    pub fn is_message(&self) -> bool {
        matches!(self, Self::Mail { .. } | Self::Publish { .. })
    }
}

impl Report {
    /// Splits a report into its records: one for the forges, one for mail and MQTT. Empty ones are
    /// left out. Only the one for the forges is awaited; where both exist, the other one has an id
    /// of its own.
    pub fn records(&self) -> Vec<Self> {
        let (messages, acts): (Vec<ReportAction>, Vec<ReportAction>) =
            self.actions.iter().cloned().partition(ReportAction::is_message);
        let to_forges = Self { actions: acts, ..self.clone() };
        let id = if to_forges.actions.is_empty() {
            self.id.clone()
        } else {
            digest(&[&self.id, "messages"])
        };
        let sent = Self { id, actions: messages, awaited: false, ..self.clone() };
        [to_forges, sent].into_iter().filter(|report| !report.actions.is_empty()).collect()
    }

    /// Returns how many records [`Self::records`] would return. A plan checks this often, so it
    /// does not build them.
    pub(crate) fn records_count(&self) -> usize {
        let messages = self.actions.iter().filter(|action| action.is_message()).count();
        usize::from(messages > 0) + usize::from(messages < self.actions.len())
    }
}

/// Cuts long texts of a report's actions so that all of them fit into one record; line comments,
/// descriptions and labels stay.
pub(super) fn fit(actions: &mut [ReportAction]) {
    let mut texts: Vec<&mut String> = actions.iter_mut().filter_map(text).collect();
    let each = (COMMENT_CHARS_MAX * 3 / 2) / texts.len().max(1);
    for text in &mut texts {
        if stored_bytes(text) <= each {
            continue;
        }
        let mut bytes = 0;
        let start: String = text
            .chars()
            .take_while(|c| {
                bytes += stored_char(*c);
                bytes <= each
            })
            .collect();
        **text = format!("{start}\n\n… cut; see the page of the buildset for the whole report.");
    }
}

/// Returns the long text of an action, to change it; `None` where it has none.
fn text(action: &mut ReportAction) -> Option<&mut String> {
    match action {
        ReportAction::Check { summary: text, .. }
        | ReportAction::Comment { body: text, .. }
        | ReportAction::Review { body: text, .. }
        | ReportAction::Vote { body: Some(text), .. }
        | ReportAction::Mail { text, .. }
        | ReportAction::Publish { text, .. } => Some(text),
        ReportAction::Status { .. }
        | ReportAction::Lines { .. }
        | ReportAction::Labels { .. }
        | ReportAction::Vote { body: None, .. } => None,
    }
}

/// Returns the bytes that a text takes in a record's JSON.
fn stored_bytes(text: &str) -> usize {
    text.chars().map(stored_char).sum()
}

/// Returns the bytes that a character takes in a record's JSON.
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
    use sluice_config::pipeline::{Manager, Pipeline};
    use sluice_model::QueueKey;
    use sluice_model::change::{ChangeKey, ChangeRef};

    /// Z6.1: names in an MQTT topic are replaced, and the rest stays as it is written.
    #[test]
    fn names_in_a_topic_are_replaced() {
        let value = |name: &str| (name == "pipeline").then(|| "gate".to_owned());
        for (topic, filled) in [
            ("zuul/{pipeline}/result", "zuul/gate/result"),
            ("{pipeline}{pipeline}", "gategate"),
            ("zuul/{unknown}/x", "zuul//x"),
            ("zuul/{pipeline", "zuul/{pipeline"),
            ("{pipeline}/{pipeline", "gate/{pipeline"),
        ] {
            assert_eq!(fill_names(topic, value), filled, "{topic}");
        }
    }

    /// Z6.1: a name cannot make a topic that subscribers read as a pattern.
    #[test]
    fn wildcards_and_control_characters_in_a_topic_are_replaced() {
        let queue = QueueKey { tenant: "acme".into(), pipeline: "gate".into(), queue: "q".into() };
        let pipeline = Pipeline::new("gate", Manager::Dependent);
        let key = ChangeKey::change("github".into(), "forge.test/org/one".into(), 7);
        let (branch, head) = ("c++/#1\n".into(), "abc".into());
        let change = ChangeRef { key, branch, head, patchset: "abc".to_owned() };
        let words = MessageContext {
            queue: &queue,
            pipeline: &pipeline,
            change: &change,
            url: "https://forge.test/7",
            page: "https://sluice.test/1",
        };
        let message =
            ReportMessage { occasion: "success", words: &words, id: "1", web_root: "", text: "" };
        assert_eq!(message.topic("a/{change.branch}/{action}/+"), "a/c__/_1_/success/_");
    }

    /// C2: the record of a report can be written, whatever its texts contain.
    #[test]
    fn texts_of_a_report_fit_into_one_record() {
        for filling in ["x", "\u{1b}", "ä", "\n", "\u{10348}"] {
            let text = filling.repeat(COMMENT_CHARS_MAX);
            let comment = |marker: &str| ReportAction::Comment {
                connection: "g".into(),
                marker: marker.to_owned(),
                body: text.clone(),
            };
            let mut actions = vec![comment("1"), comment("2"), comment("3")];
            fit(&mut actions);
            let stored = serde_json::to_string(&actions).unwrap();
            assert!(stored.len() < 48 << 10, "{filling:?}: {}", stored.len());
            assert!(stored.contains("for the whole report"));
        }
        let mut short = vec![ReportAction::Comment {
            connection: "g".into(),
            marker: "1".to_owned(),
            body: "fine".to_owned(),
        }];
        let before = short.clone();
        fit(&mut short);
        assert_eq!(short, before);
    }
}
