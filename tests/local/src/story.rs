//! What changes go through: a configuration of the tests' own is made live, changes are followed to
//! their end, and the end is compared with what had to come out.

use crate::forge::Change;
use crate::system::System;
use crate::until;
use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use sluice_cli::commands::show::{list, text};
use sluice_cli::local::ledger;
use sluice_cli::local::{CONFIG, ONE, TENANT, TWO};

/// The status that the gate sets.
pub const GATE: &str = "demo/gate";

const ZUUL: &str = include_str!("../configuration/zuul.yaml");
const PLAYBOOKS: [(&str, &str); 2] = [
    ("playbooks/quick.yaml", include_str!("../configuration/playbooks/quick.yaml")),
    ("playbooks/hanging.yaml", include_str!("../configuration/playbooks/hanging.yaml")),
];
const ROWS: &str = include_str!("../configuration/rows.yaml");
const ROWS_PLAYBOOKS: [(&str, &str); 2] = [
    ("playbooks/held.yaml", include_str!("../configuration/playbooks/held.yaml")),
    ("playbooks/failing.yaml", include_str!("../configuration/playbooks/failing.yaml")),
];

/// Has the tests' configuration read, with these jobs in the gate of both projects; returns when it
/// is live.
///
/// # Errors
/// When it does not become live.
pub async fn configure(system: &System, jobs: [&str; 2]) -> anyhow::Result<()> {
    let project = |jobs: &str| {
        format!("- project:\n    queue: integrated\n    gate:\n      jobs: [{jobs}]\n")
    };
    let projects = [(ONE, project(jobs[0]), jobs[0]), (TWO, project(jobs[1]), jobs[1])];
    make_live(system, ZUUL, &PLAYBOOKS, &projects).await
}

/// Has the configuration read that rows of behaviour are played with: `held` in check and gate of
/// both projects, which have a queue in common, and `after` when something was pushed to the first;
/// returns when it is live.
///
/// # Errors
/// When it does not become live.
pub async fn configure_rows(system: &System) -> anyhow::Result<()> {
    let project = |more: &str| {
        format!(
            "- project:\n    queue: integrated\n    check: {{jobs: [held]}}\n    gate: {{jobs: [held]}}\n{more}"
        )
    };
    let projects =
        [(ONE, project("    post: {jobs: [after]}\n"), "held, after"), (TWO, project(""), "held")];
    make_live(system, ROWS, &ROWS_PLAYBOOKS, &projects).await
}

/// Writes a configuration over the sample's: central files, and for each project its own file with
/// the jobs that it must show.
async fn make_live(
    system: &System,
    zuul: &str,
    playbooks: &[(&str, &str)],
    projects: &[(&str, String, &str)],
) -> anyhow::Result<()> {
    let (forge, client) = (system.forge()?, system.client()?);
    until("the sample's configuration to be live", async || {
        let board: Value = client.get(&format!("tenant/{TENANT}/board")).await?;
        Ok((board["layout"]["live"].as_u64() > Some(0)).then_some(()))
    })
    .await?;
    for (path, content) in playbooks {
        forge.write(CONFIG, "main", path, content).await?;
    }
    for (repository, project, _) in projects {
        forge.write(repository, "main", ".zuul.yaml", project).await?;
    }
    forge.write(CONFIG, "main", "zuul.yaml", zuul).await?;
    until("the tests' configuration to be live", async || {
        for (repository, _, jobs) in projects {
            let project: Value =
                client.get(&format!("tenant/{TENANT}/project/{repository}")).await?;
            let text = project.to_string();
            if !jobs.split(", ").all(|job| text.contains(&format!("\"{job}\"")))
                || text.contains("\"pair\"")
            {
                return Ok(None);
            }
        }
        // Asked last: what was there before is the sample's, and had none.
        let errors: Vec<Value> = client.get(&format!("tenant/{TENANT}/config-errors")).await?;
        ensure!(errors.is_empty(), "{errors:?}");
        Ok(Some(()))
    })
    .await
}

/// Approves a change, however often the forge is gone in between, until the gate knows it.
///
/// # Errors
/// When it does not come into the gate.
pub async fn approve(system: &System, change: &Change) -> anyhow::Result<()> {
    let forge = system.forge()?;
    until(&format!("{change} to be approved"), async || forge.approve(change).await.map(Some)).await
}

/// Waits until a change is in the gate, or has been.
///
/// # Errors
/// When it is not.
pub async fn entered(system: &System, change: &Change) -> anyhow::Result<()> {
    let client = system.client()?;
    until(&format!("{change} to enter the gate"), async || {
        let Change { repository, number } = change;
        let board: Value = client.get(&format!("tenant/{TENANT}/board")).await?;
        let waits = list(&board, "pipelines")
            .iter()
            .filter(|pipeline| pipeline["name"] == "gate")
            .flat_map(|pipeline| list(pipeline, "queues"))
            .flat_map(|queue| list(queue, "items"))
            .any(|item| {
                text(&item["change"], "project") == repository
                    && item["change"]["number"] == *number
            });
        let query =
            format!("tenant/{TENANT}/buildsets?project={repository}&change={number}&pipeline=gate");
        let over: Vec<Value> = client.get(&query).await?;
        Ok((waits || !over.is_empty()).then_some(()))
    })
    .await
}

/// Waits until the gate has decided on a change for good, and returns the buildset with its builds.
///
/// # Errors
/// When it does not, or its queue is frozen.
pub async fn decided(system: &System, change: &Change) -> anyhow::Result<Value> {
    let client = system.client()?;
    let Change { repository, number } = change;
    let query = format!(
        "tenant/{TENANT}/buildsets?project={repository}&change={number}&pipeline=gate&complete=true"
    );
    until(&format!("the gate to decide on {change}"), async || {
        let sets: Vec<Value> = client.get(&query).await?;
        let Some(set) = sets.first().filter(|set| set["result"].is_string()) else {
            let board: Value = client.get(&format!("tenant/{TENANT}/board")).await?;
            bail!("the board shows {board}");
        };
        Ok(Some(client.get(&format!("tenant/{TENANT}/buildset/{}", text(set, "uuid"))).await?))
    })
    .await
}

/// What had to become of the changes of a story.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// What landed, in that order.
    pub landed: &'a [&'a Change],
    /// What did not, and is told why.
    pub refused: &'a [&'a Change],
}

/// Sees that everything came out as it had to: landed once, in order, as it was tested; refused
/// changes told once; no node left; no delivery without an end.
///
/// # Errors
/// What is not so.
pub async fn ends_right(system: &System, expected: Expected<'_>) -> anyhow::Result<()> {
    let (forge, ports) = (system.forge()?, system.operator().await?);
    for change in expected.landed {
        until(&format!("{change} to be reported as landed"), async || {
            Ok((forge.status(change, GATE).await? == "success").then_some(()))
        })
        .await?;
    }
    for change in expected.refused {
        until(&format!("{change} to be told why"), async || {
            let told = !forge.comments(change).await?.is_empty()
                && forge.status(change, GATE).await? == "failure";
            Ok(told.then_some(()))
        })
        .await?;
    }
    let sets = ledger::buildsets(&ports).await?;
    let landed: Vec<Change> = ledger::landed(&sets)
        .into_iter()
        .map(|set| &set.item.candidate.change.key)
        .filter_map(|key| {
            Some(Change { repository: key.project.name().to_owned(), number: key.number()? })
        })
        .collect();
    ensure!(
        landed.iter().eq(expected.landed.iter().copied()),
        "landed: {landed:?}, and not {:?}",
        expected.landed
    );
    for change in expected.landed {
        let commit = forge
            .landed_as(change)
            .await?
            .with_context(|| format!("the forge did not merge {change}"))?;
        let merges = merges_of(system, change)?;
        ensure!(merges == 1, "{change} was merged {merges} times");
        let set = sets.iter().find(|set| {
            let key = &set.item.candidate.change.key;
            key.project.name() == change.repository
                && key.number() == Some(change.number)
                && set.result == "SUCCESS"
        });
        let tested =
            set.and_then(|set| set.item.merged()).map(|merged| merged.tested.tree.0.clone());
        let tree = forge.tree(&change.repository, &commit).await?;
        ensure!(
            tested.as_ref() == Some(&tree),
            "{change}: {tested:?} was tested and {tree} landed"
        );
        // Nobody defines the job `noop`.
        let jobs = set
            .iter()
            .flat_map(|set| &set.item.jobs)
            .filter(|job| job.summary.name.as_str() != "noop");
        for job in jobs {
            let item = set.map(|set| set.item.id.to_string()).unwrap_or_default();
            let path = format!("tenant/{TENANT}/item/{item}/explain/{}", job.summary.name);
            let told: Value = system.client()?.get(&path).await?;
            ensure!(
                !list(&told, "applied").is_empty(),
                "nothing is told of what made {} what it is: {told}",
                job.summary.name
            );
        }
    }
    for change in expected.refused {
        ensure!(forge.landed_as(change).await?.is_none(), "{change} was merged");
        let comments = forge.comments(change).await?;
        ensure!(comments.len() == 1, "{change} was told {} times: {comments:?}", comments.len());
    }
    nothing_is_left(system).await
}

/// Waits until nothing is under way: no node is left, and every item, build, request and delivery
/// has its end.
///
/// # Errors
/// What has none.
pub async fn nothing_is_left(system: &System) -> anyhow::Result<()> {
    let (forge, ports) = (system.forge()?, system.operator().await?);
    until("every node to be gone", async || {
        let left = system.nodes();
        ensure!(left.is_empty(), "{left:?} are left");
        Ok(Some(()))
    })
    .await?;
    until("every item, build and request to end", async || {
        let open = ledger::still_open(&ports).await?;
        ensure!(open.is_empty(), "{open:?}");
        Ok(Some(()))
    })
    .await?;
    until("every delivery to end", async || {
        let open = ledger::open_deliveries(&ports).await?;
        ensure!(open.is_empty(), "{open:?}");
        for repository in [CONFIG, ONE, TWO] {
            // What the forge could not deliver while it was killed is no delivery to account for;
            // its change is.
            let sent: Vec<_> = forge
                .deliveries(repository)
                .await?
                .into_iter()
                .filter(|one| one.status == 202)
                .collect();
            let sent: Vec<_> = sent.into_iter().map(|one| one.sent).collect();
            let open = ledger::unaccounted(&ports, &sent).await?;
            ensure!(open.is_empty(), "{open:?}");
        }
        Ok(Some(()))
    })
    .await
}

/// Counts the merges of a change in the history of its branch.
fn merges_of(system: &System, change: &Change) -> anyhow::Result<usize> {
    let folder = system.data().join("forge/git").join(format!("{}.git", change.repository));
    let title = format!("#{}: ", change.number);
    let output = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "log", "--first-parent", "--format=%s", "main"])
        .current_dir(&folder)
        .output()?;
    ensure!(output.status.success(), "git log: {}", String::from_utf8_lossy(&output.stderr));
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(log.lines().filter(|line| line.starts_with("Merge ") && line.contains(&title)).count())
}
