//! Prints what happens, line by line, with the seconds since the start: titles, what people do, and
//! what the API tells.

use crate::commands::show::{Client, change_name, list, text, told};
use crate::say::tell;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Instant;

/// Tells the story.
pub struct Teller {
    begun: Instant,
    coloured: bool,
    names: BTreeMap<String, char>,
    seen: BTreeMap<String, Seen>,
    last: Option<String>,
    waiting: BTreeMap<String, String>,
}

/// What was told of one item.
#[derive(Default)]
struct Seen {
    reasons: Vec<String>,
    jobs: BTreeMap<String, String>,
    left: bool,
}

impl Teller {
    /// Starts the clock.
    pub fn new() -> Self {
        let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            begun: Instant::now(),
            coloured,
            names: BTreeMap::new(),
            seen: BTreeMap::new(),
            last: None,
            waiting: BTreeMap::new(),
        }
    }

    /// Gives a change its letter.
    pub fn name(&mut self, project: &str, number: u64, letter: char) {
        self.names.insert(format!("{project}#{number}"), letter);
    }

    /// Begins a part.
    pub fn title(&self, title: &str) {
        tell!("\n{}", self.paint("1", title));
    }

    /// Tells something that people or the demo did.
    pub fn say(&self, line: &str) {
        tell!("{} {line}", self.time());
    }

    /// Returns the newest thing that was told of any item.
    pub fn last(&self) -> &str {
        self.last.as_deref().unwrap_or("nothing was decided yet")
    }

    /// Returns what jobs waited for at the last look, a line each; empty when none did.
    pub fn waiting(&self) -> String {
        self.waiting.values().fold(String::new(), |all, line| format!("{all}\n  {line}"))
    }

    /// Returns the seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Reads the board and tells what is new on it.
    ///
    /// # Errors
    /// When the API does not answer.
    pub async fn look(&mut self, client: &Client) -> anyhow::Result<Value> {
        let board: Value = client.get("tenant/demo/board").await?;
        self.waiting.clear();
        for pipeline in list(&board, "pipelines") {
            for queue in list(pipeline, "queues") {
                for item in list(queue, "items") {
                    self.tell_item(text(pipeline, "name"), item);
                }
            }
        }
        for gone in list(&board, "recent").iter().rev() {
            let id = text(gone, "id");
            if self.seen.get(id).is_some_and(|seen| seen.left) {
                continue;
            }
            let item: Value = client.get(&format!("tenant/demo/item/{id}")).await?;
            self.tell_item(text(&item, "pipeline"), &item);
            self.seen.entry(id.to_owned()).or_default().left = true;
        }
        Ok(board)
    }

    fn tell_item(&mut self, pipeline: &str, item: &Value) {
        let who = change_name(&item["change"]);
        let letter = self.names.get(&who).map_or_else(|| "?".to_owned(), ToString::to_string);
        let mut lines: Vec<(String, bool)> = Vec::new();
        let mut seen = self.seen.remove(text(item, "id")).unwrap_or_default();
        let reasons: Vec<String> =
            list(item, "reasons").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let new = unseen(&seen.reasons, &reasons);
        for job in list(item, "jobs") {
            let state = text(job, "state").to_owned();
            let name = text(job, "name").to_owned();
            let key = format!("{name} {}", text(job, "build"));
            if state == "running" && seen.jobs.get(&key) != Some(&state) {
                let nodes = list(job, "labels").len();
                lines.push((
                    format!(
                        "{name}: Ansible runs on {nodes} node{}",
                        if nodes == 1 { "" } else { "s" }
                    ),
                    false,
                ));
            }
            if let Some(what) = told(job).filter(|_| state == "ordered") {
                self.waiting.insert(
                    format!("{pipeline} {who} {name}"),
                    format!("{pipeline} {letter}: {name} {what}"),
                );
            }
            seen.jobs.insert(key, state);
        }
        for reason in new {
            let bad = ["FAILURE", "RETRY", "ERROR", "NODE", "conflict", "cannot", "MISMATCH"]
                .iter()
                .any(|word| reason.contains(word));
            lines.push((shortened(reason), bad));
        }
        seen.reasons = reasons;
        self.seen.insert(text(item, "id").to_owned(), seen);
        for (line, bad) in lines {
            let label = self.paint("36", &format!("{pipeline:<5} {letter}"));
            let shown = if bad { self.paint("31", &line) } else { line.clone() };
            tell!("{} {label}  {shown}", self.time());
            self.last = Some(format!("{pipeline} {letter}: {line}"));
        }
    }

    fn time(&self) -> String {
        self.paint("2", &format!("{:6.1} s ", self.seconds()))
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Returns the reasons that were not there before; old ones may have been dropped at the front.
fn unseen<'a>(before: &[String], now: &'a [String]) -> &'a [String] {
    // The longest end of what was known that the new list begins with.
    let overlap = (0..=before.len().min(now.len()))
        .rev()
        .find(|count| before.ends_with(&now[..*count]))
        .unwrap_or(0);
    &now[overlap..]
}

/// Shortens ids of 32 digits to what people compare.
fn shortened(line: &str) -> String {
    let short =
        |word: &str| match word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => word[..8].to_owned(),
            false => word.to_owned(),
        };
    line.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_told_also_when_old_reasons_were_dropped() {
        let list = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(unseen(&[], &list("a b")), list("a b"));
        assert_eq!(unseen(&list("a b"), &list("a b c")), list("c"));
        assert_eq!(unseen(&list("a b c"), &list("b c d e")), list("d e"));
        assert!(unseen(&list("a b"), &list("a b")).is_empty());
    }

    #[test]
    fn ids_are_shown_by_their_first_digits() {
        assert_eq!(shortened("by event 0123456789abcdef0123456789abcdef"), "by event 01234567");
    }
}
