//! The scenario of the demo: the users' actions, and the outcomes that it waits for.

use super::narrator::Narrator;
use super::verify::{self, Expectation};
use crate::{CONFIG, Local, ONE, OWNER, REVIEWER, TWO};
use anyhow::{Context as _, bail};
use serde_json::Value;
use sluice_local_forge::{Edit, LocalForge, Proposal, PullState};
use sluice_operator::show::{Client, change_name, list, text};
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

/// Plays the scenario, prints the table of outcomes and returns the exit status.
pub(super) async fn run(local: &Local, narrator: &mut Narrator) -> anyhow::Result<ExitCode> {
    let forge = local.forge().context("the demo needs the forge")?.clone();
    let client = Client::new(local.pages())?;
    let mut story = Scenario { forge, client, narrator, changes: Vec::new() };
    story.wait_for_configuration().await?;
    // The calls of the setup are not counted for any change.
    local.meter().context("the demo needs data services of its own")?.reset();
    story.propose_first_change().await?;
    story.approve_four_changes().await?;
    story.wait_for_the_end().await?;
    let Scenario { forge, changes, narrator, .. } = story;
    verify::print_table(local, &forge, &changes, narrator).await
}

impl Scenario<'_> {
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

    /// Prints new events until `is_over` returns true. Returns an error after `seconds`.
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

    /// Prints what the forge shows about a change.
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

    /// Prints the lines of the failed build's log that show the cause.
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

fn is_merged(forge: &LocalForge, repository: &str, number: u64) -> anyhow::Result<bool> {
    Ok(matches!(forge.pull(repository, number)?.state, PullState::Merged { .. }))
}

/// Returns whether a pipeline's final status of a change is on the forge.
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

fn is_in_gate(board: &Value, name: &str) -> bool {
    let gate = list(board, "pipelines").iter().filter(|pipeline| text(pipeline, "name") == "gate");
    gate.flat_map(|pipeline| list(pipeline, "queues"))
        .flat_map(|queue| list(queue, "items"))
        .any(|item| change_name(&item["change"]) == name)
}
