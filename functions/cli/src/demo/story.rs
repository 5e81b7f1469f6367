//! What the people of the story do, and what they wait for.

use super::proof::{self, Expectation};
use super::teller::Teller;
use crate::commands::show::{Client, change_name, list, text};
use crate::local::{CONFIG, Local, ONE, OWNER, REVIEWER, TWO};
use anyhow::{Context as _, bail};
use serde_json::Value;
use sluice_local_forge::{Edit, Forge, Proposal, PullState};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the API is asked what is new.
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// Seconds until the configuration must be live.
const CONFIGURED_SECONDS: u64 = 30;
/// Seconds until a change must have entered a queue.
const ENTERED_SECONDS: u64 = 20;
/// Seconds until one change must be tested.
const TESTED_SECONDS: u64 = 120;
/// Seconds until everything must have landed.
const LANDED_SECONDS: u64 = 300;

/// A change of the story.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// Its letter.
    pub letter: char,
    /// Its repository.
    pub repository: &'static str,
    /// Its number.
    pub number: u64,
    /// What it is.
    pub title: &'static str,
    /// What has to become of it.
    pub expected: Expectation,
}

struct Story<'a> {
    forge: Arc<Forge>,
    client: Client,
    teller: &'a mut Teller,
    changes: Vec<Change>,
}

/// Tells the whole story and returns the exit status that it deserves.
pub(super) async fn tell(local: &Local, teller: &mut Teller) -> anyhow::Result<ExitCode> {
    let forge = local.forge().context("the demo needs the forge")?.clone();
    let client = Client::new(local.pages())?;
    let mut story = Story { forge, client, teller, changes: Vec::new() };
    story.configured().await?;
    // What the set-up cost is nobody's change.
    local.meter().context("the demo needs data services of its own")?.reset();
    story.first_change().await?;
    story.four_changes().await?;
    story.the_end().await?;
    let Story { forge, changes, teller, .. } = story;
    proof::show(local, &forge, &changes, teller).await
}

impl Story<'_> {
    async fn configured(&mut self) -> anyhow::Result<()> {
        self.teller.say(&format!(
            "repositories   {CONFIG} (pipelines check and gate, jobs unit and pair, two nodes for pair), {ONE}, {TWO}"
        ));
        let begun = Instant::now();
        loop {
            match self.client.get::<Value>("tenant/demo/board").await {
                Ok(board) if board["errors"].as_u64() == Some(0) => {
                    let pipelines: Vec<&str> = list(&board, "pipelines")
                        .iter()
                        .map(|pipeline| text(pipeline, "name"))
                        .collect();
                    self.teller.say(&format!(
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
                Err(error) if begun.elapsed().as_secs() > CONFIGURED_SECONDS => {
                    return Err(error.context(format!(
                        "the tenant's configuration was not live within {CONFIGURED_SECONDS} s"
                    )));
                }
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn first_change(&mut self) -> anyhow::Result<()> {
        self.teller.title("Change A is proposed: check tests it by itself");
        let greet = [Edit::write("greetings/ahoy", "Ahoy!\n")];
        self.propose('A', ONE, "Greet sailors", "", &greet, Expectation::Lands).await?;
        self.until("check to report on A", TESTED_SECONDS, |forge, _| {
            is_reported(forge, ONE, 1, "demo/check")
        })
        .await?;
        self.show_reports('A').await
    }

    async fn four_changes(&mut self) -> anyhow::Result<()> {
        self.teller.title("B needs A in the other repository, C breaks a test, D is harmless; all four are approved");
        let needs_a = format!("Depends-On: {}/{ONE}/pull/1", self.forge.web_url());
        self.propose(
            'B',
            TWO,
            "Use the greeting of A",
            &needs_a,
            &[Edit::write("uses", "hello\nahoy\n")],
            Expectation::Lands,
        )
        .await?;
        let broken = [Edit::write("greetings/hi", "Hi\n")];
        self.propose(
            'C',
            ONE,
            "Greet briefly, without the mark",
            "",
            &broken,
            Expectation::IsThrownOut,
        )
        .await?;
        self.propose(
            'D',
            TWO,
            "Describe the project",
            "",
            &[Edit::write("NOTES.md", "Greets.\n")],
            Expectation::Lands,
        )
        .await?;
        for change in self.changes.clone() {
            // One after the other, so that the order of the queue is the order of the alphabet.
            self.forge.approve(change.repository, change.number, REVIEWER)?;
            self.teller.say(&format!("{REVIEWER} approves {}", change.letter));
            let name = format!("{}#{}", change.repository, change.number);
            self.until(
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

    async fn the_end(&mut self) -> anyhow::Result<()> {
        let changes = self.changes.clone();
        self.until("every change to land or to be thrown out", LANDED_SECONDS, |forge, board| {
            let mut over = list(board, "pipelines").iter().all(|pipeline| {
                list(pipeline, "queues").iter().all(|queue| {
                    list(queue, "items").is_empty() && list(queue, "arrivals").is_empty()
                })
            });
            for change in &changes {
                over &= is_merged(forge, change.repository, change.number)?
                    || is_reported(forge, change.repository, change.number, "demo/gate")?;
            }
            Ok(over)
        })
        .await?;
        for letter in ['A', 'B', 'C', 'D'] {
            self.show_reports(letter).await?;
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
        self.teller.name(repository, number, letter);
        self.teller.say(&format!(
            "{OWNER} proposes {letter}: {repository}#{number} “{title}”{}",
            if body.is_empty() { String::new() } else { format!(" ({body})") }
        ));
        self.changes.push(Change { letter, repository, number, title, expected });
        Ok(())
    }

    /// Shows what happens until `is_over` says so, no longer than `seconds`.
    async fn until(
        &mut self,
        what: &str,
        seconds: u64,
        is_over: impl Fn(&Forge, &Value) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let board = self.teller.look(&self.client).await?;
            for queue in
                list(&board, "pipelines").iter().flat_map(|pipeline| list(pipeline, "queues"))
            {
                if let Some(frozen) = queue["frozen"].as_str() {
                    bail!("the queue {} is frozen: {frozen}", text(queue, "name"));
                }
            }
            if is_over(&self.forge, &board)? {
                // Once more, for what was decided between the look and now.
                self.teller.look(&self.client).await?;
                return Ok(());
            }
            if begun.elapsed().as_secs() > seconds {
                bail!(
                    "waited {seconds} s for {what}; the last decision was: {}{}",
                    self.teller.last(),
                    self.teller.waiting()
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Tells what the forge shows people about a change.
    async fn show_reports(&mut self, letter: char) -> anyhow::Result<()> {
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
        self.teller.say(&format!("the forge shows on {letter}: {}", shown.join(", ")));
        if change.expected == Expectation::IsThrownOut {
            let comments = self.forge.comments(change.repository, change.number)?;
            let last = comments.last().map(|comment| comment.body.as_str()).unwrap_or_default();
            for line in last.lines().filter(|line| !line.starts_with("<!--") && !line.is_empty()) {
                self.teller.say(&format!("  told on {letter}: {line}"));
            }
            self.show_cause(&change).await?;
        }
        Ok(())
    }

    /// Shows the lines of the failed build's log that say why.
    async fn show_cause(&mut self, change: &Change) -> anyhow::Result<()> {
        let Change { letter, repository, number, .. } = change;
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
            // The test's own word for what it found.
            for line in log.lines().filter(|line| line.contains("broken  ")).take(3) {
                let said = line.find("broken").map_or(line, |at| &line[at..]);
                self.teller.say(&format!(
                    "  the log of {} on {letter} says: {said}",
                    text(build, "job_name")
                ));
            }
        }
        Ok(())
    }
}

fn is_merged(forge: &Forge, repository: &str, number: u64) -> anyhow::Result<bool> {
    Ok(matches!(forge.pull(repository, number)?.state, PullState::Merged { .. }))
}

/// Whether a pipeline's last word on a change is there.
fn is_reported(
    forge: &Forge,
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
