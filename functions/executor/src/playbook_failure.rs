//! What failed in a playbook, in words: task, host, exit code and message (Z7.1, Z9.1).
//!
//! The callback plugin reports it, so an untrusted playbook can send any text. The words are
//! therefore one bounded line without control characters, with secrets masked; reports keep the
//! rest from acting as markup.

use crate::build_result::PlaybookEnd;
use crate::redact::Redactor;
use serde::Deserialize;
use sluice_model::plain_text::plain_line;
use std::path::Path;

/// The maximum length of a message of Ansible, in characters.
const MESSAGE_CHARS_MAX: usize = 300;
/// The maximum length of an error of Ansible without its place, in characters.
const ERROR_CHARS_MAX: usize = 160;
/// The maximum length of the name of a task, play or host, in characters.
const NAME_CHARS_MAX: usize = 120;
/// The maximum number of hosts that are named.
const HOSTS_MAX: usize = 3;
/// The maximum number of hosts that are counted.
const HOSTS_COUNTED_MAX: usize = 1_000;

/// A task that failed on a host, as the callback plugin reports it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TaskFailure {
    /// How it failed.
    pub how: FailureKind,
    /// The name of the play.
    pub play: String,
    /// The name of the task, with its role.
    pub task: String,
    /// The host.
    pub host: String,
    /// The exit code of the command; `None` if there is none or the task has `no_log`.
    pub code: Option<i64>,
    /// Ansible's message, or the last line of the command's output; `None` if there is none or the
    /// task has `no_log`.
    pub message: Option<String>,
    /// Whether the task is in a block with a rescue section, which usually handles the failure.
    pub handled: bool,
}

/// How a task failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// It ended with a failure.
    Failed,
    /// Its host could not be reached.
    Unreachable,
}

/// Follows the messages of one playbook, to explain how it ended.
#[derive(Debug, Default)]
pub struct FailureWatch {
    /// The play that runs; empty before the first.
    play: String,
    /// The task that was started last; empty before the first.
    task: String,
    /// The first failure that no rescue section handles.
    first: Option<TaskFailure>,
    /// The last failure in a block with a rescue section, which did not help if the playbook
    /// failed without another failure.
    last_handled: Option<TaskFailure>,
    /// The first host that could not be reached.
    unreachable: Option<TaskFailure>,
    /// Further hosts on which the first failed task failed, the first few.
    other_hosts: Vec<String>,
    /// The number of these hosts.
    other_hosts_count: usize,
    /// The error with which Ansible ended by itself, as for a playbook that it cannot read.
    ansible_error: Option<String>,
    /// The time limit of the playbook, as its user configured it.
    limit: String,
    /// The directory of the build with a final slash, which is left out of messages; empty if it is
    /// not known.
    root: String,
}

impl FailureWatch {
    /// Returns the watch of a playbook that has not started. `limit` names its time limit, and
    /// `root` is the directory of its build, which messages leave out.
    pub fn new(limit: &str, root: &Path) -> Self {
        let (limit, root) = (limit.to_owned(), format!("{}/", root.display()));
        Self { limit, root, ..Self::default() }
    }

    /// Takes note that a play starts.
    pub fn start_play(&mut self, name: &str) {
        name.clone_into(&mut self.play);
        self.task.clear();
    }

    /// Takes note that a task starts.
    pub fn start_task(&mut self, name: &str) {
        name.clone_into(&mut self.task);
    }

    /// Takes note of a failure.
    pub fn add(&mut self, failure: TaskFailure) {
        let place = match (failure.how, failure.handled) {
            (FailureKind::Unreachable, _) => &mut self.unreachable,
            (FailureKind::Failed, true) => {
                self.last_handled = Some(failure);
                return;
            }
            (FailureKind::Failed, false) => &mut self.first,
        };
        match place {
            None => *place = Some(failure),
            Some(first)
                if failure.how == FailureKind::Failed
                    && first.task == failure.task
                    && first.host != failure.host =>
            {
                if self.other_hosts.len() + 1 < HOSTS_MAX {
                    self.other_hosts.push(failure.host);
                }
                self.other_hosts_count = (self.other_hosts_count + 1).min(HOSTS_COUNTED_MAX);
            }
            Some(_) => {}
        }
    }

    /// Takes note of what Ansible printed itself. The first error counts.
    pub fn observe_output(&mut self, output: &str) {
        self.ansible_error = ansible_error(output);
    }

    /// Returns why the playbook ended as `end` says, with the secrets that `redactor` knows masked:
    /// one line that names task, host and exit code or message, and a second one that names the
    /// play and the playbook, by its `phase` (`run`) and `path`. `stop` is the reason of a stop.
    /// Empty for a playbook that passed.
    pub fn explain(
        &self,
        end: &PlaybookEnd,
        phase: &str,
        path: &str,
        stop: Option<&str>,
        redactor: &Redactor,
    ) -> String {
        let words = Words { redactor, root: &self.root };
        let in_task = || match self.task.is_empty() {
            true => String::new(),
            false => format!(" in task \"{}\"", words.name(&self.task)),
        };
        let (what, play) = match end {
            PlaybookEnd::Finished { code: 0 } => return String::new(),
            PlaybookEnd::Finished { code } => {
                let failures = [&self.first, &self.unreachable, &self.last_handled];
                match (failures.into_iter().flatten().next(), &self.ansible_error) {
                    (Some(failure), _) if failure.how == FailureKind::Unreachable => {
                        (self.unreachable(failure, &words), failure.play.as_str())
                    }
                    (Some(failure), _) => (self.failed(failure, &words), failure.play.as_str()),
                    (None, Some(error)) => {
                        (format!("Ansible could not run it: {}", words.message(error)), "")
                    }
                    (None, None) => {
                        (format!("ansible-playbook exited with code {code}"), self.play.as_str())
                    }
                }
            }
            PlaybookEnd::Unreachable => match &self.unreachable {
                Some(failure) => (self.unreachable(failure, &words), failure.play.as_str()),
                None => ("A host could not be reached".to_owned(), self.play.as_str()),
            },
            PlaybookEnd::TimedOut => {
                (format!("Ran out of time{}: {}", in_task(), self.limit), self.play.as_str())
            }
            PlaybookEnd::DiskFull => {
                (format!("Exceeded the disk limit of the build{}", in_task()), self.play.as_str())
            }
            PlaybookEnd::SecretExposed => (
                format!("Printed a secret{} and was stopped (secret-exposure: fail)", in_task()),
                self.play.as_str(),
            ),
            PlaybookEnd::OverLimit { limit } => (
                format!(
                    "Exceeded its limit of {} on the executor{}",
                    words.message(limit),
                    in_task()
                ),
                self.play.as_str(),
            ),
            PlaybookEnd::Aborted => {
                let why = stop.map(|why| format!(": {}", words.message(why))).unwrap_or_default();
                (format!("Stopped{}{why}", in_task()), self.play.as_str())
            }
            PlaybookEnd::Broken { why } => (
                format!("Ansible did not run to its end{}: {}", in_task(), words.message(why)),
                self.play.as_str(),
            ),
        };
        let of_play = match play {
            "" => String::new(),
            play => format!("play \"{}\" of ", words.name(play)),
        };
        format!("{what}\nIn {of_play}the {phase} playbook {}.", words.name(path))
    }

    /// Describes a failed task.
    fn failed(&self, failure: &TaskFailure, words: &Words<'_>) -> String {
        let code = failure.code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
        let hosts = self.hosts(failure, words);
        let message = words.suffix(failure.message.as_deref());
        format!("Task \"{}\" failed on {hosts}{code}{message}", words.name(&failure.task))
    }

    /// Describes a host that was lost.
    fn unreachable(&self, failure: &TaskFailure, words: &Words<'_>) -> String {
        let message = words.suffix(failure.message.as_deref());
        let (host, task) = (words.name(&failure.host), words.name(&failure.task));
        format!("Node lost: host {host} could not be reached in task \"{task}\"{message}")
    }

    /// Names the hosts on which the task of `failure` failed.
    fn hosts(&self, failure: &TaskFailure, words: &Words<'_>) -> String {
        let is_first = self.first.as_ref().is_some_and(|first| first == failure);
        let others = self.other_hosts.iter().filter(|_| is_first);
        let mut names: Vec<String> =
            std::iter::once(&failure.host).chain(others).map(|host| words.name(host)).collect();
        let more = match is_first {
            true => self.other_hosts_count - self.other_hosts.len(),
            false => 0,
        };
        if more > 0 {
            names.push(format!("{more} more"));
        }
        names.join(", ")
    }
}

/// Returns what says most about an error in what Ansible printed itself: the mistake, with the file
/// and the line; `None` without an error.
fn ansible_error(output: &str) -> Option<String> {
    let errors = ["ERROR! ", "[ERROR]: "];
    let mut lines = output.lines();
    let first = lines.find_map(|line| errors.iter().find_map(|error| line.strip_prefix(error)))?;
    let rest: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let behind = |start: &str| rest.iter().skip_while(|line| !line.starts_with(start)).nth(1);
    let what = if first.contains("read either as JSON nor YAML") {
        let mistake = behind("Syntax Error while loading YAML").map_or("", |line| line);
        // What follows is where the parser was.
        let mistake = mistake.split(". ").next().unwrap_or(mistake);
        format!("YAML syntax error: {}", mistake.trim_end_matches('.'))
    } else if let Some((role, _path)) = first.split_once(" was not found in /") {
        format!("{role} was not found")
    } else if first.trim() == "Unable to retrieve file contents" {
        let which = rest.first().map_or(first, |line| line);
        which.trim_end_matches(" on the Ansible Controller.").to_owned()
    } else {
        first.trim().trim_end_matches('.').to_owned()
    };
    let what = plain_line(&what, ERROR_CHARS_MAX);
    let place = rest.iter().find_map(|line| line.strip_prefix("The error appears to be in '"));
    let place = place.and_then(|place| {
        let (file, place) = place.split_once("': line ")?;
        let line: String = place.chars().take_while(char::is_ascii_digit).collect();
        Some(format!(", in {file}, line {line}"))
    });
    Some(format!("{what}{}", place.unwrap_or_default()))
}

/// Makes texts of a playbook fit for a result.
struct Words<'a> {
    /// Masks secrets.
    redactor: &'a Redactor,
    /// The directory of the build with a final slash, which is left out; empty if it is not known.
    root: &'a str,
}

impl Words<'_> {
    /// Returns a text with secrets masked and without the directory of the build.
    fn text(&self, text: &str) -> String {
        let text = self.redactor.text(text);
        if self.root.is_empty() { text } else { text.replace(self.root, "") }
    }

    /// Returns a name as one bounded line, with secrets masked.
    fn name(&self, name: &str) -> String {
        // Masked before it is cut, because a part of a secret is not recognised.
        plain_line(&self.text(name), NAME_CHARS_MAX)
    }

    /// Returns a message as one bounded line, with secrets masked.
    fn message(&self, message: &str) -> String {
        plain_line(&self.text(message), MESSAGE_CHARS_MAX)
    }

    /// Returns a message with a colon before it; empty without one.
    fn suffix(&self, message: Option<&str>) -> String {
        let message = message.map(|message| self.message(message)).unwrap_or_default();
        if message.is_empty() { message } else { format!(": {message}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "forge.test/org/one/run.yaml";

    fn failure(task: &str, host: &str, code: Option<i64>, message: Option<&str>) -> TaskFailure {
        TaskFailure {
            how: FailureKind::Failed,
            play: "Tests".to_owned(),
            task: task.to_owned(),
            host: host.to_owned(),
            code,
            message: message.map(str::to_owned),
            handled: false,
        }
    }

    fn explain(watch: &FailureWatch, end: &PlaybookEnd) -> String {
        watch.explain(end, "run", PATH, Some("a newer patch set"), &Redactor::default())
    }

    const FAILED: PlaybookEnd = PlaybookEnd::Finished { code: 2 };

    /// Z7.1, Z9.1: a failure names task, host, exit code and message, and where it was.
    #[test]
    fn a_failed_task_is_named_with_its_host_and_exit_code() {
        let mut watch = FailureWatch::default();
        assert_eq!(explain(&watch, &PlaybookEnd::Finished { code: 0 }), "");
        let place = "\nIn the run playbook forge.test/org/one/run.yaml.";
        assert_eq!(explain(&watch, &FAILED), format!("ansible-playbook exited with code 2{place}"));
        watch.observe_output("noise\nERROR! no such module\nmore");
        let text = format!("Ansible could not run it: no such module{place}");
        assert_eq!(explain(&watch, &FAILED), text);
        for host in ["one", "two", "three", "four", "five"] {
            let of_script = failure("Run the script", host, Some(1), Some("two\nlines"));
            watch.add(of_script);
        }
        watch.add(failure("Clean up", "one", None, None));
        let text = "Task \"Run the script\" failed on one, two, three, 2 more (exit code 1): two \
                    lines\nIn play \"Tests\" of the run playbook forge.test/org/one/run.yaml.";
        assert_eq!(explain(&watch, &FAILED), text);
    }

    /// Z7.1: a failure that a rescue section handled is not the cause, unless there is no other.
    #[test]
    fn a_handled_failure_is_named_only_if_there_is_no_other() {
        let handled =
            |task: &str| TaskFailure { handled: true, ..failure(task, "one", None, None) };
        let mut watch = FailureWatch::default();
        watch.add(handled("Try"));
        watch.add(handled("Try again in the rescue section"));
        assert!(explain(&watch, &FAILED).starts_with("Task \"Try again in"));
        watch.add(failure("Check", "one", None, None));
        watch.add(handled("Tidy up"));
        assert!(explain(&watch, &FAILED).starts_with("Task \"Check\" failed on one\n"));
    }

    /// Z7.1, Z4.3: what ran is named where nothing failed by itself.
    #[test]
    fn a_playbook_that_is_ended_names_the_task_that_ran() {
        let limit = "timeout of 20 s for pre-run and run";
        let mut watch = FailureWatch::new(limit, Path::new("/builds/b1"));
        watch.start_play("Tests");
        watch.start_task("Sleep");
        let place = "\nIn play \"Tests\" of the run playbook forge.test/org/one/run.yaml.";
        for (end, text) in [
            (
                PlaybookEnd::TimedOut,
                "Ran out of time in task \"Sleep\": timeout of 20 s for pre-run and run",
            ),
            (PlaybookEnd::DiskFull, "Exceeded the disk limit of the build in task \"Sleep\""),
            (
                PlaybookEnd::SecretExposed,
                "Printed a secret in task \"Sleep\" and was stopped (secret-exposure: fail)",
            ),
            (
                PlaybookEnd::OverLimit { limit: "256 processes".to_owned() },
                "Exceeded its limit of 256 processes on the executor in task \"Sleep\"",
            ),
            (PlaybookEnd::Aborted, "Stopped in task \"Sleep\": a newer patch set"),
            (
                PlaybookEnd::Broken { why: "killed".to_owned() },
                "Ansible did not run to its end in task \"Sleep\": killed",
            ),
            (PlaybookEnd::Unreachable, "A host could not be reached"),
        ] {
            assert_eq!(explain(&watch, &end), format!("{text}{place}"));
        }
        watch.add(TaskFailure {
            how: FailureKind::Unreachable,
            ..failure("Sleep", "one", None, Some("Connection refused"))
        });
        let text = "Node lost: host one could not be reached in task \"Sleep\": Connection refused";
        assert_eq!(explain(&watch, &PlaybookEnd::Unreachable), format!("{text}{place}"));
    }

    /// Z5.4, Z7.4: names and messages are bounded, on one line, without control characters, and
    /// secrets in them are masked before they are cut.
    #[test]
    fn texts_of_a_playbook_are_bounded_and_masked() {
        let mut redactor = Redactor::default();
        let secret = "hunter2".repeat(60);
        redactor.add(&serde_json::json!(secret));
        let mut watch = FailureWatch::default();
        let task = format!("a\u{1b}[31m\u{202e}b\n{}", "x".repeat(5_000));
        let message = format!("{secret} {}", "y".repeat(5_000));
        watch.add(failure(&task, "one", None, Some(&message)));
        let text = watch.explain(&FAILED, "run", PATH, None, &redactor);
        assert!(text.starts_with("Task \"a[31mb xxx"), "{text}");
        assert!(text.contains(": [REDACTED] yyy") && !text.contains("hunter2"), "{text}");
        assert!(text.chars().count() < 700 && text.lines().count() == 2, "{text}");
    }

    /// Z7.1: what Ansible says about a playbook that it cannot run is reduced to the mistake and
    /// its place in the repository.
    #[test]
    fn an_error_of_ansible_itself_names_the_mistake_and_the_line() {
        let yaml = "ERROR! We were unable to read either as JSON nor YAML, these are the errors we got from each:\n\
             JSON: Expecting value: line 1 column 1 (char 0)\n\nSyntax Error while loading YAML.\n  \
             did not find expected '-' indicator. while parsing a block collection\n  in \"<unicode string>\", line 4\n\n\
             The error appears to be in '/builds/b1/org/one/run.yaml': line 4, column 17, but may\nbe elsewhere";
        let role = "[WARNING]: x\nERROR! the role 'nothere' was not found in /builds/b1/roles:/usr/share/ansible/roles\n\n\
             The error appears to be in '/builds/b1/org/one/run.yaml': line 9, column 7, but may\n";
        let file = "ERROR! Unable to retrieve file contents\n\
             Could not find or access '/builds/b1/org/one/missing.yaml' on the Ansible Controller.\nIf you are using";
        for (output, text) in [
            (
                yaml,
                "YAML syntax error: did not find expected '-' indicator, in org/one/run.yaml, line 4",
            ),
            (role, "the role 'nothere' was not found, in org/one/run.yaml, line 9"),
            (file, "Could not find or access 'org/one/missing.yaml'"),
            ("[ERROR]: something new\nmore", "something new"),
        ] {
            let mut watch = FailureWatch::new("", Path::new("/builds/b1"));
            watch.observe_output(output);
            let explained = explain(&watch, &PlaybookEnd::Finished { code: 4 });
            assert_eq!(
                explained.lines().next(),
                Some(&*format!("Ansible could not run it: {text}"))
            );
        }
    }
}
