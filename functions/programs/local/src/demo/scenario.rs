//! The scenario of the demo: the users' actions, and the outcomes that it waits for.

use super::narrator::Narrator;
use super::verify::{self, Expectation};
use crate::{CONFIG, Local, ONE, OWNER, REVIEWER, TWO};
use anyhow::{Context as _, bail};
use serde_json::Value;
use sluice_local_forge::{Edit, LocalForge, Proposal, PullState};
use sluice_operator::api_client::Client;
use sluice_operator::show::{change_name, list, text};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the API is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Seconds within which the configuration must be live.
const CONFIGURED_SECONDS: u64 = 30;
/// Seconds within which a change must enter a queue.
const ENTERED_SECONDS: u64 = 20;
/// Seconds within which one change must be tested.
const TESTED_SECONDS: u64 = 120;
/// Seconds within which every change must merge or be rejected.
const LANDED_SECONDS: u64 = 300;

/// A change of the scenario.
#[derive(Debug, Clone)]
pub(super) struct DemoChange {
    /// The letter that names the change.
    pub letter: char,
    /// The repository.
    pub repository: &'static str,
    /// The number at the forge.
    pub number: u64,
    /// The title.
    pub title: &'static str,
    /// The expected outcome.
    pub expected: Expectation,
}

struct Scenario<'a> {
    forge: Arc<LocalForge>,
    client: Client,
    narrator: &'a mut Narrator,
    changes: Vec<DemoChange>,
}

/// Plays the scenario, prints the table of outcomes, and returns exit status 0 if all are as
/// expected, else 1. An error if a step is not done in time or a queue halts. Resets the cost meter,
/// if there is one, once the configuration is live. Needs the local forge.
pub(super) async fn run(local: &Local, narrator: &mut Narrator) -> anyhow::Result<ExitCode> {
    let forge = local.forge().context("the demo needs the forge")?.clone();
    let client = Client::new(local.pages())?;
    let mut story = Scenario { forge, client, narrator, changes: Vec::new() };
    story.wait_for_configuration().await?;
    // The calls of the setup are not counted for any change.
    if let Some(meter) = local.meter() {
        meter.reset();
    }
    story.propose_first_change().await?;
    story.approve_four_changes().await?;
    story.wait_for_the_end().await?;
    let Scenario { forge, changes, narrator, .. } = story;
    verify::print_table(local, &forge, &changes, narrator).await
}

impl Scenario<'_> {
    /// Waits at most 30 seconds until the tenant's configuration is live, and prints its pipelines.
    /// An error if it has errors or is not live in time.
    async fn wait_for_configuration(&mut self) -> anyhow::Result<()> {
        self.narrator.action(&format!(
            "repositories   {CONFIG} (pipelines check and gate, jobs unit and pair, two nodes for pair), {ONE}, {TWO}"
        ));
        let started = Instant::now();
        loop {
            match self.client.get::<Value>("tenant/demo/board").await {
                Ok(board) if board["errors"].as_u64() == Some(0) => {
                    let pipelines: Vec<&str> = list(&board, "pipelines")
                        .iter()
                        .map(|pipeline| text(pipeline, "name"))
                        .collect();
                    self.narrator.action(&format!(
                        "the configuration is live: pipelines {}",
                        pipelines.join(" and ")
                    ));
                    return Ok(());
                }
                Ok(_) => {
                    let errors: Vec<Value> = self.client.get("tenant/demo/config-errors").await?;
                    bail!(
                        "the demo's configuration has errors:\n{}",
                        errors
                            .iter()
                            .map(|error| text(error, "error"))
                            .collect::<Vec<_>>()
                            .join("\n")
                    );
                }
                Err(error) if started.elapsed().as_secs() > CONFIGURED_SECONDS => {
                    return Err(error.context(format!(
                        "the tenant's configuration was not live within {CONFIGURED_SECONDS} s"
                    )));
                }
                Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Proposes change A, waits at most 120 seconds until check has reported success or failure on
    /// it, and prints the report. A must be the first change of its repository, since it is found
    /// by the number 1.
    async fn propose_first_change(&mut self) -> anyhow::Result<()> {
        self.narrator.title("Change A is proposed: check tests it on its own");
        let greet = [Edit::write("greetings/ahoy", "Ahoy!\n")];
        self.propose('A', ONE, "Greet sailors", "", &greet, Expectation::Merges).await?;
        self.wait_until("check to report on A", TESTED_SECONDS, |forge, _| {
            is_reported(forge, ONE, 1, "demo/check")
        })
        .await?;
        self.print_reports('A').await
    }

    /// Proposes the changes B (which depends on A), C (which breaks a test) and D. A must be
    /// proposed already, with the number 1. Then approves all four, one after the other: waits at
    /// most 20 seconds after each until it is in the gate or merged.
    async fn approve_four_changes(&mut self) -> anyhow::Result<()> {
        self.narrator.title("B needs A in the other repository, C breaks a test, D is harmless; all four are approved");
        let needs_a = format!("Depends-On: {}/{ONE}/pull/1", self.forge.web_url());
        self.propose(
            'B',
            TWO,
            "Use the greeting of A",
            &needs_a,
            &[Edit::write("uses", "hello\nahoy\n")],
            Expectation::Merges,
        )
        .await?;
        let broken = [Edit::write("greetings/hi", "Hi\n")];
        self.propose(
            'C',
            ONE,
            "Greet briefly, without the mark",
            "",
            &broken,
            Expectation::IsRejected,
        )
        .await?;
        self.propose(
            'D',
            TWO,
            "Describe the project",
            "",
            &[Edit::write("NOTES.md", "Greets.\n")],
            Expectation::Merges,
        )
        .await?;
        for change in self.changes.clone() {
            // One after the other, so that they are queued in alphabetical order.
            self.forge.approve(change.repository, change.number, REVIEWER)?;
            self.narrator.action(&format!("{REVIEWER} approves {}", change.letter));
            let name = format!("{}#{}", change.repository, change.number);
            self.wait_until(
                &format!("{} to enter the gate", change.letter),
                ENTERED_SECONDS,
                |forge, board| {
                    Ok(is_in_gate(board, &name)
                        || is_merged(forge, change.repository, change.number)?)
                },
            )
            .await?;
        }
        Ok(())
    }

    /// Waits at most 300 seconds until every queue is empty and each change is merged or reported
    /// by gate. Then prints what the forge shows about each.
    async fn wait_for_the_end(&mut self) -> anyhow::Result<()> {
        let changes = self.changes.clone();
        self.wait_until("every change to merge or be rejected", LANDED_SECONDS, |forge, board| {
            let mut over = list(board, "pipelines").iter().all(|pipeline| {
                list(pipeline, "queues")
                    .iter()
                    .all(|queue| list(queue, "items").is_empty() && list(queue, "inbox").is_empty())
            });
            for change in &changes {
                over &= is_merged(forge, change.repository, change.number)?
                    || is_reported(forge, change.repository, change.number, "demo/gate")?;
            }
            Ok(over)
        })
        .await?;
        for letter in ['A', 'B', 'C', 'D'] {
            self.print_reports(letter).await?;
        }
        Ok(())
    }

    /// Commits edits to the branch `change-LETTER` of a repository as the owner, opens a pull
    /// request for it to `main` with the text `body`, and prints that. Adds the change, with the
    /// number that the forge gave it, to the changes of the scenario. `expected` is the outcome
    /// that is checked at the end.
    async fn propose(
        &mut self,
        letter: char,
        repository: &'static str,
        title: &'static str,
        body: &str,
        edits: &[Edit],
        expected: Expectation,
    ) -> anyhow::Result<()> {
        let branch = format!("change-{}", letter.to_ascii_lowercase());
        self.forge.commit(repository, &branch, title, edits, OWNER).await?;
        let proposal = Proposal {
            title: title.to_owned(),
            body: body.to_owned(),
            head: branch,
            base: String::new(),
        };
        let number = self.forge.open_pull(repository, proposal, OWNER).await?;
        self.narrator.name(repository, number, letter);
        self.narrator.action(&format!(
            "{OWNER} proposes {letter}: {repository}#{number} “{title}”{}",
            if body.is_empty() { String::new() } else { format!(" ({body})") }
        ));
        self.changes.push(DemoChange { letter, repository, number, title, expected });
        Ok(())
    }

    /// Polls the API and prints new events until `is_over`, called with the forge and the board,
    /// returns true. An error after `seconds`, with `what` as what was waited for and the last
    /// decision, and as soon as a queue halts.
    async fn wait_until(
        &mut self,
        what: &str,
        seconds: u64,
        is_over: impl Fn(&LocalForge, &Value) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let board = self.narrator.poll(&self.client).await?;
            for queue in
                list(&board, "pipelines").iter().flat_map(|pipeline| list(pipeline, "queues"))
            {
                if let Some(halted) = queue["halted"].as_str() {
                    bail!("the queue {} is halted: {halted}", text(queue, "name"));
                }
            }
            if is_over(&self.forge, &board)? {
                // Once more, for decisions since the last poll.
                self.narrator.poll(&self.client).await?;
                return Ok(());
            }
            if started.elapsed().as_secs() > seconds {
                bail!(
                    "waited {seconds} s for {what}; the last decision was: {}{}",
                    self.narrator.last(),
                    self.narrator.waiting()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Prints the statuses that the forge shows for a change of the scenario. For one that is
    /// expected to be rejected, also prints its last comment and the cause in the log. Prints
    /// nothing for an unknown letter.
    async fn print_reports(&mut self, letter: char) -> anyhow::Result<()> {
        let Some(change) = self.changes.iter().find(|change| change.letter == letter).cloned()
        else {
            return Ok(());
        };
        let pull = self.forge.pull(change.repository, change.number)?;
        let statuses = self.forge.statuses(change.repository, &pull.head)?;
        let newest = |context: &str| statuses.iter().rev().find(|status| status.context == context);
        let shown: Vec<String> = ["demo/check", "demo/gate"]
            .into_iter()
            .filter_map(|context| Some(format!("{context} {}", newest(context)?.state)))
            .collect();
        self.narrator.action(&format!("the forge shows for {letter}: {}", shown.join(", ")));
        if change.expected == Expectation::IsRejected {
            let comments = self.forge.comments(change.repository, change.number)?;
            let last = comments.last().map(|comment| comment.body.as_str()).unwrap_or_default();
            for line in last.lines().filter(|line| !line.starts_with("<!--") && !line.is_empty()) {
                self.narrator.action(&format!("  comment on {letter}: {line}"));
            }
            self.print_cause(&change).await?;
        }
        Ok(())
    }

    /// Prints at most three lines of the log of each failed build in the change's newest gate
    /// buildset: those that the test of the sample repository itself printed. Prints nothing if
    /// there is no buildset or no such line.
    async fn print_cause(&mut self, change: &DemoChange) -> anyhow::Result<()> {
        let DemoChange { letter, repository, number, .. } = change;
        let query = format!(
            "tenant/demo/buildsets?project={repository}&change={number}&pipeline=gate&limit=1"
        );
        let sets: Vec<Value> = self.client.get(&query).await?;
        let Some(set) = sets.first() else { return Ok(()) };
        let set: Value =
            self.client.get(&format!("tenant/demo/buildset/{}", text(set, "uuid"))).await?;
        for build in list(&set, "builds").iter().filter(|build| text(build, "result") == "FAILURE")
        {
            let url = format!("{}job-output.txt", text(build, "log_url"));
            let log = self.client.text(&url).await?.unwrap_or_default();
            // The lines that the test itself printed.
            for line in log.lines().filter(|line| line.contains("broken  ")).take(3) {
                let said = line.find("broken").map_or(line, |at| &line[at..]);
                self.narrator
                    .action(&format!("  log of {} on {letter}: {said}", text(build, "job_name")));
            }
        }
        Ok(())
    }
}

/// Returns whether the forge shows a pull request as merged. An error if there is no such pull
/// request.
fn is_merged(forge: &LocalForge, repository: &str, number: u64) -> anyhow::Result<bool> {
    Ok(matches!(forge.pull(repository, number)?.state, PullState::Merged { .. }))
}

/// Returns whether the newest status with this context on a change's head commit is final: success
/// or failure, not pending. False if there is no such status. `context` is the tenant and pipeline,
/// as in `demo/gate`.
fn is_reported(
    forge: &LocalForge,
    repository: &str,
    number: u64,
    context: &str,
) -> anyhow::Result<bool> {
    let head = forge.pull(repository, number)?.head;
    let statuses = forge.statuses(repository, &head)?;
    Ok(statuses
        .iter()
        .rev()
        .find(|status| status.context == context)
        .is_some_and(|status| status.state != "pending"))
}

/// Returns whether a change is in a queue of the pipeline `gate`. `board` is the answer of the API,
/// and `name` is `project#number`.
fn is_in_gate(board: &Value, name: &str) -> bool {
    let gate = list(board, "pipelines").iter().filter(|pipeline| text(pipeline, "name") == "gate");
    gate.flat_map(|pipeline| list(pipeline, "queues"))
        .flat_map(|queue| list(queue, "items"))
        .any(|item| change_name(&item["change"]) == name)
}
