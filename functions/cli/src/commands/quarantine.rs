//! `sluice quarantine`: what was set aside because nobody could read it.

use super::{Format, say_json};
use crate::say::say;
use serde_json::{Value, json};
use sluice_config::plain;
use sluice_records::codec::decode;
use sluice_runtime::Ports;
use sluice_runtime::quarantine::{QUARANTINE, SetAside};
use sluice_runtime::record::Query;
use std::path::PathBuf;

/// Messages that are shown at most.
const SHOWN_MAX: usize = 200;

/// Shows what is in quarantine: where it came from, when and why. Its text is shown only on
/// request, since it is a stranger's.
///
/// # Errors
/// When the store does not answer.
pub async fn list(data: Option<PathBuf>, with_text: bool, format: Format) -> anyhow::Result<()> {
    let ports = super::operator(data).await?;
    let kept = read(&ports).await?;
    if format == Format::Json {
        let row = |(name, aside): &(String, SetAside)| {
            let text = with_text.then_some(&aside.body);
            json!({"at": aside.at.to_iso(), "name": name, "reason": aside.reason, "text": text})
        };
        say_json(&Value::Array(kept.iter().map(row).collect()));
        return Ok(());
    }
    for (name, aside) in &kept {
        say!("{}", line(name, aside));
        if with_text {
            // Line by line: a line's end is the one thing of it that may move the cursor.
            for line in aside.body.lines() {
                say!("{}", plain(line.to_owned()));
            }
            say!("");
        }
    }
    match kept.len() {
        0 => say!("Nothing is in quarantine."),
        SHOWN_MAX => say!("There may be more; the first {SHOWN_MAX} are shown."),
        _ => {}
    }
    Ok(())
}

/// Returns a line about a message; what cannot be read may be quoted in its reason.
fn line(name: &str, aside: &SetAside) -> String {
    plain(format!("{} {}: {}", aside.at.to_iso(), name.replace('#', " "), aside.reason))
}

/// Reads what is in quarantine, with the queue and the message's id as its name.
///
/// # Errors
/// When the store does not answer or a record cannot be read.
pub async fn read(ports: &Ports) -> anyhow::Result<Vec<(String, SetAside)>> {
    let records = ports.records.query(&Query::prefix(QUARANTINE, "", SHOWN_MAX)).await?;
    let kept = records.into_iter().map(|record| Ok((record.key.sort.clone(), decode(&record)?)));
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::Timestamp;

    /// Z5.4: what a stranger sent steers no terminal.
    #[test]
    fn what_cannot_be_read_is_shown_without_control_characters() {
        let reason = "expected value: \u{1b}]0;mine\u{7}\u{1b}[2J".to_owned();
        let told = line("events#m-1", &SetAside { at: Timestamp(0), reason, body: String::new() });
        assert!(told.contains(" events m-1: expected value: "), "{told}");
        assert!(!told.chars().any(char::is_control), "{told:?}");
    }
}
