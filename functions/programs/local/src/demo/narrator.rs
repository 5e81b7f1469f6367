//! Prints the events of the demo, one line each, with the seconds since the start: titles, user
//! actions, and new decisions from the API.

use crate::output::print_progress;
use serde_json::Value;
use sluice_operator::api_client::Client;
use sluice_operator::show::{change_name, job_detail, list, text};
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Instant;

/// Prints the demo's events and remembers what was printed.
pub struct Narrator {
    started: Instant,
    coloured: bool,
    names: BTreeMap<String, char>,
    progress: BTreeMap<String, ItemProgress>,
    last: Option<String>,
    waiting: BTreeMap<String, String>,
}

/// What was printed about one item.
#[derive(Default)]
struct ItemProgress {
    reasons: Vec<String>,
    jobs: BTreeMap<String, String>,
    left: bool,
}

impl Narrator {
    /// Starts the clock. Lines are coloured if standard output is a terminal and `NO_COLOR` is not
    /// set.
    pub fn new() -> Self {
        let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            started: Instant::now(),
            coloured,
            names: BTreeMap::new(),
            progress: BTreeMap::new(),
            last: None,
            waiting: BTreeMap::new(),
        }
    }

    /// Sets the letter that stands for a change in the printed lines; other changes are shown as
    /// `?`. `project` is the name without the host.
    pub fn name(&mut self, project: &str, number: u64, letter: char) {
        self.names.insert(format!("{project}#{number}"), letter);
    }

    /// Prints an empty line and the title of a part.
    pub fn title(&self, title: &str) {
        print_progress!("\n{}", self.paint("1", title));
    }

    /// Prints an action of a user or the demo, after the seconds since the start.
    pub fn action(&self, line: &str) {
        print_progress!("{} {line}", self.time());
    }

    /// Returns the newest printed line about an item, with its pipeline and letter, or `no decision
    /// yet`.
    pub fn last(&self) -> &str {
        self.last.as_deref().unwrap_or("no decision yet")
    }

    /// Returns what jobs waited for at the last poll, each on a new line that begins with a line
    /// break and two spaces. Empty if none waited.
    pub fn waiting(&self) -> String {
        self.waiting.values().fold(String::new(), |all, line| format!("{all}\n  {line}"))
    }

    /// Returns the seconds since [`Self::new`].
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Reads the status board of the tenant `demo` from the API, prints the decisions and started
    /// jobs since the last poll, and returns the board. Also prints the last decisions about items
    /// that have left. Replaces what [`Self::waiting`] returns.
    ///
    /// # Errors
    /// When the API does not answer.
    pub async fn poll(&mut self, client: &Client) -> anyhow::Result<Value> {
        let board: Value = client.get("tenant/demo/board").await?;
        self.waiting.clear();
        for pipeline in list(&board, "pipelines") {
            for queue in list(pipeline, "queues") {
                for item in list(queue, "items") {
                    self.print_item(text(pipeline, "name"), item);
                }
            }
        }
        for gone in list(&board, "recent").iter().rev() {
            let id = text(gone, "id");
            if self.progress.get(id).is_some_and(|progress| progress.left) {
                continue;
            }
            let item: Value = client.get(&format!("tenant/demo/item/{id}")).await?;
            self.print_item(text(&item, "pipeline"), &item);
            self.progress.entry(id.to_owned()).or_default().left = true;
        }
        Ok(board)
    }

    /// Prints the jobs of an item that started and the reasons that were added since it was last
    /// printed; nothing if nothing is new. Remembers what was printed, the last line, and what its
    /// jobs wait for. `item` is an object of the API.
    fn print_item(&mut self, pipeline: &str, item: &Value) {
        let who = change_name(&item["change"]);
        let letter = self.names.get(&who).map_or_else(|| "?".to_owned(), ToString::to_string);
        let mut lines: Vec<(String, bool)> = Vec::new();
        let mut progress = self.progress.remove(text(item, "id")).unwrap_or_default();
        let reasons: Vec<String> =
            list(item, "reasons").iter().map(|one| text(one, "text").to_owned()).collect();
        let new = new_reasons(&progress.reasons, &reasons);
        for job in list(item, "jobs") {
            let state = text(job, "state").to_owned();
            let name = text(job, "name").to_owned();
            let key = format!("{name} {}", text(job, "build"));
            if state == "running" && progress.jobs.get(&key) != Some(&state) {
                let nodes = list(job, "labels").len();
                lines.push((
                    format!(
                        "{name}: Ansible runs on {nodes} node{}",
                        if nodes == 1 { "" } else { "s" }
                    ),
                    false,
                ));
            }
            if let Some(what) = job_detail(job).filter(|_| state == "ordered") {
                self.waiting.insert(
                    format!("{pipeline} {who} {name}"),
                    format!("{pipeline} {letter}: {name} {what}"),
                );
            }
            progress.jobs.insert(key, state);
        }
        for reason in new {
            let bad = ["FAILURE", "RETRY", "ERROR", "NODE", "conflict", "cannot", "MISMATCH"]
                .iter()
                .any(|word| reason.contains(word));
            lines.push((shortened(reason), bad));
        }
        progress.reasons = reasons;
        self.progress.insert(text(item, "id").to_owned(), progress);
        for (line, bad) in lines {
            let label = self.paint("36", &format!("{pipeline:<5} {letter}"));
            let shown = if bad { self.paint("31", &line) } else { line.clone() };
            print_progress!("{} {label}  {shown}", self.time());
            self.last = Some(format!("{pipeline} {letter}: {line}"));
        }
    }

    /// Returns the seconds since the start as the beginning of a line.
    fn time(&self) -> String {
        self.paint("2", &format!("{:6.1} s ", self.seconds()))
    }

    /// Returns the text in the colour of an ANSI code, or unchanged if lines are not coloured.
    fn paint(&self, code: &str, text: &str) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Returns the end of `now` that is not in `before`. Both are in order, and the oldest reasons may
/// be missing in `now`; if they do not overlap, all of `now` is new.
fn new_reasons<'a>(before: &[String], now: &'a [String]) -> &'a [String] {
    // The longest suffix of the old list that is a prefix of the new one.
    let overlap = (0..=before.len().min(now.len()))
        .rev()
        .find(|count| before.ends_with(&now[..*count]))
        .unwrap_or(0);
    &now[overlap..]
}

/// Shortens words of 32 or more hexadecimal digits, as ids and commits are, to their first eight.
/// Words are separated by spaces.
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
    fn only_new_reasons_are_printed_even_if_old_ones_were_dropped() {
        let list = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(new_reasons(&[], &list("a b")), list("a b"));
        assert_eq!(new_reasons(&list("a b"), &list("a b c")), list("c"));
        assert_eq!(new_reasons(&list("a b c"), &list("b c d e")), list("d e"));
        assert!(new_reasons(&list("a b"), &list("a b")).is_empty());
    }

    #[test]
    fn ids_are_shown_by_their_first_digits() {
        assert_eq!(shortened("by event 0123456789abcdef0123456789abcdef"), "by event 01234567");
    }
}
