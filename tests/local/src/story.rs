//! Steps of a change's life: makes a test configuration live, follows changes through the gate and
//! compares the end with the expected one.

use crate::forge::PullRequest;
use crate::system::System;
use crate::until;
use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use sluice_local::audit;
use sluice_local::{CONFIG, ONE, TENANT, TWO};
use sluice_operator::show::{list, text};

/// The status that the gate sets.
pub const GATE: &str = "demo/gate";

const ZUUL: &str = include_str!("../configuration/zuul.yaml");
const PLAYBOOKS: [(&str, &str); 6] = [
    ("playbooks/quick.yaml", include_str!("../configuration/playbooks/quick.yaml")),
    ("playbooks/counting.yaml", include_str!("../configuration/playbooks/counting.yaml")),
    ("playbooks/collecting.yaml", include_str!("../configuration/playbooks/collecting.yaml")),
    ("playbooks/hanging.yaml", include_str!("../configuration/playbooks/hanging.yaml")),
    ("playbooks/uploading.yaml", include_str!("../configuration/playbooks/uploading.yaml")),
    ("playbooks/printing.yaml", include_str!("../configuration/playbooks/printing.yaml")),
];
const ROWS: &str = include_str!("../configuration/rows.yaml");
const TREES: &str = include_str!("../configuration/trees.yaml");
const TREES_PLAYBOOKS: [(&str, &str); 2] = [
    ("playbooks/held.yaml", include_str!("../configuration/playbooks/held.yaml")),
    ("playbooks/listed.yaml", include_str!("../configuration/playbooks/listed.yaml")),
];
const ROWS_PLAYBOOKS: [(&str, &str); 2] = [
    ("playbooks/held.yaml", include_str!("../configuration/playbooks/held.yaml")),
    ("playbooks/failing.yaml", include_str!("../configuration/playbooks/failing.yaml")),
];

/// Pushes the test configuration, with one gate job for each project, and waits until it is live.
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

/// Pushes the configuration of the behaviour rows and waits until it is live.
///
/// Both projects share a queue and run `held` in the gate, the second one on a node. Check runs
/// `checked`, only for changes of files below `checked`.
///
/// # Errors
/// When it does not become live.
pub async fn configure_rows(system: &System) -> anyhow::Result<()> {
    configure_rows_of(system, ROWS).await
}

/// Pushes the configuration of [`configure_rows`] with a cloud that has one node at a time, and
/// waits until it is live.
///
/// # Errors
/// When it does not become live.
pub async fn configure_rows_with_one_node(system: &System) -> anyhow::Result<()> {
    let (many, one) = ("quota: {instances: 8}", "quota: {instances: 1}");
    ensure!(ROWS.contains(many), "the configuration has no {many}");
    configure_rows_of(system, &ROWS.replace(many, one)).await
}

/// Pushes the configuration `zuul` with the projects and playbooks of [`configure_rows`].
async fn configure_rows_of(system: &System, zuul: &str) -> anyhow::Result<()> {
    let project = |gate: &str| {
        format!(
            "- project:\n    queue: integrated\n    check: {{jobs: [checked]}}\n    gate: {{jobs: [{gate}]}}\n"
        )
    };
    let on_node = "held: {nodeset: {nodes: [{name: node, label: small}]}}";
    let projects =
        [(ONE, project("held"), "checked, held"), (TWO, project(on_node), "checked, held")];
    make_live(system, zuul, &ROWS_PLAYBOOKS, &projects).await
}

/// Pushes the configuration of [`TREES`] and waits until it is live. Both projects are in its queue
/// `integrated` and have no real job.
///
/// # Errors
/// When it does not become live.
pub async fn configure_trees(system: &System) -> anyhow::Result<()> {
    let project = "- project: {queue: integrated, gate: {jobs: [noop]}}\n";
    let projects = [ONE, TWO].map(|name| (name, project.to_owned(), "noop"));
    make_live(system, TREES, &TREES_PLAYBOOKS, &projects).await
}

/// Returns the same configuration without the project `org/stays` in the gate.
pub fn trees_without_the_last_project() -> String {
    let lines: Vec<&str> = TREES.lines().filter(|line| !line.contains("org/stays")).collect();
    format!("{}\n", lines.join("\n"))
}

/// Replaces the sample's configuration and waits until the new one is live without errors.
///
/// `projects` holds for each repository its `.zuul.yaml` and the jobs that the API must show.
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
        // Read last: the sample's configuration, which was live before, has no errors either.
        let errors: Vec<Value> = client.get(&format!("tenant/{TENANT}/config-errors")).await?;
        ensure!(errors.is_empty(), "{errors:?}");
        Ok(Some(()))
    })
    .await
}

/// Approves a change; retries while the forge is down.
///
/// # Errors
/// When the forge accepts no approval.
pub async fn approve(system: &System, change: &PullRequest) -> anyhow::Result<()> {
    let forge = system.forge()?;
    until(&format!("{change} to be approved"), async || forge.approve(change).await.map(Some)).await
}

/// Returns the items of the gate that the API's board shows, in the order of their queues.
pub fn items_in_gate(board: &Value) -> impl Iterator<Item = &Value> {
    let gate = list(board, "pipelines").iter().filter(|pipeline| pipeline["name"] == "gate");
    gate.flat_map(|pipeline| list(pipeline, "queues")).flat_map(|queue| list(queue, "items"))
}

/// Returns whether an item of the board is of this change.
pub fn is_of(item: &Value, change: &PullRequest) -> bool {
    text(&item["change"], "project") == change.repository
        && item["change"]["number"] == change.number
}

/// Waits until a change is in the gate or has left it.
///
/// # Errors
/// When the change does not enter the gate.
pub async fn entered(system: &System, change: &PullRequest) -> anyhow::Result<()> {
    let client = system.client()?;
    until(&format!("{change} to enter the gate"), async || {
        let PullRequest { repository, number } = change;
        let board: Value = client.get(&format!("tenant/{TENANT}/board")).await?;
        if items_in_gate(&board).any(|item| is_of(item, change)) {
            return Ok(Some(()));
        }
        let query =
            format!("tenant/{TENANT}/buildsets?project={repository}&change={number}&pipeline=gate");
        let completed: Vec<Value> = client.get(&query).await?;
        Ok((!completed.is_empty()).then_some(()))
    })
    .await
}

/// Waits until the gate completes the buildset of a change, and returns it with its builds.
///
/// # Errors
/// When there is no complete buildset in time, as when the queue is halted.
pub async fn decided(system: &System, change: &PullRequest) -> anyhow::Result<Value> {
    let client = system.client()?;
    let PullRequest { repository, number } = change;
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

/// The expected end of the changes of a test.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The changes that must have landed, in this order.
    pub landed: &'a [&'a PullRequest],
    /// The changes that must not have landed, and whose failure must be reported.
    pub refused: &'a [&'a PullRequest],
}

/// Checks the end of a test.
///
/// The landed changes were merged once, in order, with the tested tree. Each refused change has one
/// comment. No node, item, build, request or delivery is left open.
///
/// # Errors
/// The first condition that does not hold.
pub async fn ends_right(system: &System, expected: Expected<'_>) -> anyhow::Result<()> {
    let (forge, ports) = (system.forge()?, system.operator().await?);
    for change in expected.landed {
        until(&format!("{change} to be reported as landed"), async || {
            Ok((forge.status(change, GATE).await? == "success").then_some(()))
        })
        .await?;
    }
    for change in expected.refused {
        until(&format!("the failure of {change} to be reported"), async || {
            let is_reported = !forge.comments(change).await?.is_empty()
                && forge.status(change, GATE).await? == "failure";
            Ok(is_reported.then_some(()))
        })
        .await?;
    }
    let sets = audit::buildsets(&ports).await?;
    let landed: Vec<PullRequest> = audit::landed(&sets)
        .into_iter()
        .map(|set| &set.item.candidate.change.key)
        .filter_map(|key| {
            Some(PullRequest { repository: key.project.name().to_owned(), number: key.number()? })
        })
        .collect();
    ensure!(
        landed.iter().eq(expected.landed.iter().copied()),
        "landed: {landed:?}, expected: {:?}",
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
        // `noop` is built in: no stanza defines it.
        let jobs = set
            .iter()
            .flat_map(|set| &set.item.jobs)
            .filter(|job| job.summary.name.as_str() != "noop");
        for job in jobs {
            let item = set.map(|set| set.item.id.to_string()).unwrap_or_default();
            let path = format!("tenant/{TENANT}/item/{item}/explain/{}", job.summary.name);
            let explanation: Value = system.client()?.get(&path).await?;
            ensure!(
                !list(&explanation, "applied").is_empty(),
                "the explanation of job {} names no stanza: {explanation}",
                job.summary.name
            );
        }
    }
    for change in expected.refused {
        ensure!(forge.landed_as(change).await?.is_none(), "{change} was merged");
        let comments = forge.comments(change).await?;
        ensure!(comments.len() == 1, "{change} has {} comments: {comments:?}", comments.len());
    }
    nothing_is_left(system).await
}

/// Waits until no node exists and every item, build, request and delivery has ended.
///
/// # Errors
/// The work that is still open.
pub async fn nothing_is_left(system: &System) -> anyhow::Result<()> {
    let ports = system.operator().await?;
    until("every node to be gone", async || {
        let left = system.nodes();
        ensure!(left.is_empty(), "{left:?} are left");
        Ok(Some(()))
    })
    .await?;
    until("every item, build and request to end", async || {
        let open = audit::still_open(&ports).await?;
        ensure!(open.is_empty(), "{open:?}");
        Ok(Some(()))
    })
    .await?;
    deliveries_end(system, &[CONFIG, ONE, TWO]).await
}

/// Waits until every delivery has ended, among them all that the forge sent of these repositories.
///
/// # Errors
/// The deliveries that are still open.
pub async fn deliveries_end(system: &System, repositories: &[&str]) -> anyhow::Result<()> {
    let (forge, ports) = (system.forge()?, system.operator().await?);
    until("every delivery to end", async || {
        let open = audit::open_deliveries(&ports).await?;
        ensure!(open.is_empty(), "{open:?}");
        for repository in repositories {
            // A webhook that the forge could not deliver while it was down has no delivery record;
            // the sweep finds its change.
            let sent: Vec<_> = forge
                .deliveries(repository)
                .await?
                .into_iter()
                .filter(|one| one.status == 202)
                .collect();
            let sent: Vec<_> = sent.into_iter().map(|one| one.sent).collect();
            let open = audit::unhandled_webhooks(&ports, &sent).await?;
            ensure!(open.is_empty(), "{open:?}");
        }
        Ok(Some(()))
    })
    .await
}

/// Returns how many merge commits of a change the history of its branch has.
fn merges_of(system: &System, change: &PullRequest) -> anyhow::Result<usize> {
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
