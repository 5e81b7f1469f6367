//! `sluice quarantine list`: shows the messages that were set aside because they could not be read.

use crate::output::{OutputFormat, print_json, print_line};
use serde_json::{Value, json};
use sluice_config::plain;
use sluice_records::codec::decode;
use sluice_runtime::Ports;
use sluice_runtime::quarantine::{QUARANTINE, QuarantineEntry};
use sluice_runtime::record::Query;
use std::path::PathBuf;

/// The maximum number of messages shown.
const SHOWN_MAX: usize = 200;

/// Whether the untrusted content of messages is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageContent {
    /// Only the origin, time and reason are printed.
    Hidden,
    /// The content is printed too.
    Shown,
}

/// Prints the messages in quarantine with their name, time and reason, at most 200. Prints their
/// untrusted content only on request, with invisible characters escaped. As JSON, prints a list in
/// which `text` is null without the content.
///
/// # Errors
/// When the store does not answer.
pub async fn list(
    data: Option<PathBuf>,
    content: MessageContent,
    format: OutputFormat,
) -> anyhow::Result<()> {
    let ports = super::operator(data).await?;
    let messages = read(&ports).await?;
    if format == OutputFormat::Json {
        let row = |(name, message): &(String, QuarantineEntry)| {
            let text = (content == MessageContent::Shown).then_some(&message.body);
            json!({"at": message.at.to_iso(), "name": name, "reason": message.reason, "text": text})
        };
        print_json(&Value::Array(messages.iter().map(row).collect()));
        return Ok(());
    }
    for (name, message) in &messages {
        print_line!("{}", describe(name, message));
        if content == MessageContent::Shown {
            // Line by line: a line end is the only control character that is let through to the
            // terminal.
            for describe in message.body.lines() {
                print_line!("{}", plain(describe.to_owned()));
            }
            print_line!("");
        }
    }
    match messages.len() {
        0 => print_line!("The quarantine is empty."),
        SHOWN_MAX => print_line!("Only the first {SHOWN_MAX} messages are shown."),
        _ => {}
    }
    Ok(())
}

/// Formats one message as a line: its time, its queue and message id (`name`, with a space for
/// `#`), and the reason. The reason may quote the unreadable content, so invisible characters are
/// escaped.
fn describe(name: &str, message: &QuarantineEntry) -> String {
    plain(format!("{} {}: {}", message.at.to_iso(), name.replace('#', " "), message.reason))
}

/// Returns the messages in quarantine, in the order of their names, at most 200. The name of each
/// is its queue and its message id, separated by `#`. Deletes nothing.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn read(ports: &Ports) -> anyhow::Result<Vec<(String, QuarantineEntry)>> {
    let records = ports.records.query(&Query::prefix(QUARANTINE, "", SHOWN_MAX)).await?;
    let messages =
        records.into_iter().map(|record| Ok((record.key.sort.clone(), decode(&record)?)));
    messages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::Timestamp;

    /// Z5.4: control characters in a message do not reach the terminal.
    #[test]
    fn unreadable_messages_are_shown_without_control_characters() {
        let reason = "expected value: \u{1b}]0;mine\u{7}\u{1b}[2J".to_owned();
        let shown = describe(
            "events#m-1",
            &QuarantineEntry { at: Timestamp(0), reason, body: String::new() },
        );
        assert!(shown.contains(" events m-1: expected value: "), "{shown}");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
    }
}
