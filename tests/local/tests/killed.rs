//! The story of a change under kill -9: at fourteen points somebody dies, is started again, and the
//! story ends as if nobody had.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use sluice_cli::commands::show::list;
use sluice_cli::local::{ONE, TWO};
use sluice_local_tests::forge::Change;
use sluice_local_tests::story::{Expected, approve, configure, decided, ends_right, entered};
use sluice_local_tests::system::{Death, System, Wishes};
use std::collections::BTreeSet;

/// A point of the story at which somebody dies.
struct Point {
    /// What has just happened, or is about to.
    name: &'static str,
    /// Who dies at which call, as `sluice up --kill` reads it.
    death: &'static str,
}

/// The whole emulator dies: data services, forge, functions and executor are one process.
const MACHINE: [Point; 5] = [
    Point {
        name: "a delivery is stored and not yet answered",
        death: r#"machine after webhook:PutItem|TransactWriteItems:delivery#+"pull_request_review""#,
    },
    Point {
        name: "the item is enqueued and nobody was told",
        death: "machine after gate:PutItem|TransactWriteItems:item#",
    },
    Point {
        name: "the merge is asked for",
        death: "machine before merger:PutItem|TransactWriteItems:merge#",
    },
    Point {
        name: "nodes are requested",
        death: "machine after gate:PutItem|TransactWriteItems:request#",
    },
    Point {
        name: "the landing is wanted and the reporter was not told",
        death: r#"machine after gate:PutItem|TransactWriteItems:landing#+"wanted""#,
    },
];

/// A function's process dies; the others and the emulator go on.
const FUNCTIONS: [Point; 6] = [
    Point {
        name: "intake has delivered the change and told nobody",
        death: "caller after intake:PutItem|TransactWriteItems:arrival#+gate",
    },
    Point {
        name: "the merge is made and not written",
        death: "caller before merger:PutItem|TransactWriteItems:merge#",
    },
    Point {
        name: "a node is launched and the launcher has no answer",
        death: "caller after launcher:RunInstances",
    },
    Point {
        name: "the change is merged at the forge and that is not written",
        death: r#"caller before reporter:PutItem|TransactWriteItems:landing#+"ended""#,
    },
    Point {
        name: "the change has landed and left, and its report was not sent for",
        death: "caller after gate:PutItem|TransactWriteItems:buildset#",
    },
    Point {
        name: "the report is made and that is not written",
        death: r#"caller before reporter:PutItem|TransactWriteItems:report#+"made"+"success""#,
    },
];

/// The executor dies.
const EXECUTOR: [Point; 3] = [
    Point {
        name: "a build is claimed",
        death: r#"executor after executor:PutItem|TransactWriteItems:build#+"running""#,
    },
    // Its session is renewed each second: by the third time the playbook waits on its node.
    Point {
        name: "a playbook runs",
        death: r#"executor after executor:PutItem:session#+"builds":[" 3"#,
    },
    Point {
        name: "the result is written and nobody was told",
        death: r#"executor after executor:PutItem|TransactWriteItems:build#+"ended""#,
    },
];

/// Proposes the changes of the demo's story: A passes; B, of another repository, depends on it; C
/// breaks a test; D is behind them.
async fn four(system: &System) -> [Change; 4] {
    let forge = system.forge().unwrap();
    let a = forge.propose(ONE, "A", &[("greetings/a", "Hello!\n")]).await.unwrap();
    let b = forge.propose_after(TWO, "B", &[("greetings/b", "Hi!\n")], Some(&a)).await.unwrap();
    let c = forge.propose(ONE, "C", &[("broken", "yes\n")]).await.unwrap();
    let d = forge.propose(TWO, "D", &[("greetings/d", "Good day!\n")]).await.unwrap();
    [a, b, c, d]
}

fn sequence(points: &[Point]) -> String {
    points.iter().map(|point| point.death).collect::<Vec<_>>().join(";")
}

/// Everything that people see of what is over.
async fn seen(system: &System) -> [Value; 3] {
    let client = system.client().unwrap();
    let get = async |path: &str| client.get::<Value>(&format!("tenant/demo/{path}")).await.unwrap();
    [get("status").await, get("builds?limit=100").await, get("buildsets?limit=100").await]
}

/// Kills all of it and starts it again: what is over is shown as before.
async fn shows_the_same_again(system: &mut System) {
    let before = seen(system).await;
    system.kill().unwrap();
    system.start_again(None).await.unwrap();
    assert_eq!(seen(system).await, before, "a new start shows what the killed system showed");
}

/// C4, Z6.4, Z1.7: the emulator is killed at each point and started again on the same directory;
/// then everything is killed once more, and a new start shows the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_system_that_is_killed_goes_on_where_it_was() {
    let mut system =
        System::start(Wishes { kill: Some(MACHINE[0].death.to_owned()), ..Wishes::default() })
            .await
            .unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let [a, b, c, d] = four(&system).await;
    let forge = system.forge().unwrap();
    // The forge dies with the system: whether the approval was taken is asked afterwards.
    let _ = forge.approve(&a).await;
    for (number, point) in MACHINE.iter().enumerate() {
        println!("{}", point.name);
        system.dies().await.unwrap();
        system.start_again(MACHINE.get(number + 1).map(|next| next.death)).await.unwrap();
        if number == 0 {
            approve(&system, &a).await.unwrap();
        }
    }
    entered(&system, &a).await.unwrap();
    for change in [&b, &c, &d] {
        approve(&system, change).await.unwrap();
        entered(&system, change).await.unwrap();
    }
    for change in [&a, &b, &c, &d] {
        decided(&system, change).await.unwrap();
    }
    ends_right(&system, Expected { landed: &[&a, &b, &d], refused: &[&c] }).await.unwrap();
    system.deaths(MACHINE.len(), Death::OfTheMachine).await.unwrap();
    shows_the_same_again(&mut system).await;
}

/// What the gate's queue holds, in its order: item, change, and what is known of it that no
/// executor's death changes.
async fn queued(system: &System) -> Vec<[String; 3]> {
    let board: Value = system.client().unwrap().get("tenant/demo/board").await.unwrap();
    let gate = list(&board, "pipelines").iter().filter(|pipeline| pipeline["name"] == "gate");
    let items =
        gate.flat_map(|pipeline| list(pipeline, "queues")).flat_map(|queue| list(queue, "items"));
    items.map(|item| ["id", "change", "enqueued_at"].map(|name| item[name].to_string())).collect()
}

/// C4, Z6.4: everything is killed while four changes are tested on top of each other; a new start
/// shows the same queue, and it ends as it would have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_outlives_the_machine() {
    let mut system = System::start(Wishes::default()).await.unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let forge = system.forge().unwrap();
    // Its builds take their time, so that nobody behind it lands before the machine dies.
    let a = forge.propose(ONE, "A", &[("greetings/a", "Hello!\n"), ("slow", "8\n")]).await.unwrap();
    let b = forge.propose_after(TWO, "B", &[("greetings/b", "Hi!\n")], Some(&a)).await.unwrap();
    let c = forge.propose(ONE, "C", &[("broken", "yes\n")]).await.unwrap();
    let d = forge.propose(TWO, "D", &[("greetings/d", "Good day!\n")]).await.unwrap();
    for change in [&a, &b, &c, &d] {
        approve(&system, change).await.unwrap();
        entered(&system, change).await.unwrap();
    }
    let before = queued(&system).await;
    assert_eq!(before.len(), 4, "{before:?}");
    system.kill().unwrap();
    system.start_again(None).await.unwrap();
    let after = queued(&system).await;
    assert_eq!(after, before, "nothing can have ended meanwhile");
    for change in [&a, &b, &c, &d] {
        decided(&system, change).await.unwrap();
    }
    ends_right(&system, Expected { landed: &[&a, &b, &d], refused: &[&c] }).await.unwrap();
}

/// C4: each function's processes are killed at its worst moment; the queue brings its work again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_is_killed_is_made_up_for() {
    let wishes = Wishes { processes: true, kill: Some(sequence(&FUNCTIONS)), ..Wishes::default() };
    let mut system = System::start(wishes).await.unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let [a, b, c, d] = four(&system).await;
    for change in [&a, &b, &c, &d] {
        approve(&system, change).await.unwrap();
        entered(&system, change).await.unwrap();
    }
    for change in [&a, &b, &c, &d] {
        decided(&system, change).await.unwrap();
    }
    ends_right(&system, Expected { landed: &[&a, &b, &d], refused: &[&c] }).await.unwrap();
    system.deaths(FUNCTIONS.len(), Death::OfAFunction).await.unwrap();
    shows_the_same_again(&mut system).await;
}

/// The ssh-agents on this machine that nobody is left to end: their process ids.
fn orphaned_agents() -> BTreeSet<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id: &u32| is_orphaned_agent(*id)).collect()
}

/// Whether a process is an ssh-agent that init has, or that stands in a sandbox which init has.
fn is_orphaned_agent(id: u32) -> bool {
    let Some((_, mut parent)) = name_and_parent(id).filter(|(name, _)| name == "ssh-agent") else {
        return false;
    };
    // A sandbox is two processes.
    for _ in 0..2 {
        match name_and_parent(parent) {
            Some((name, above)) if parent != 1 && name == "bwrap" => parent = above,
            _ => break,
        }
    }
    parent == 1
}

fn name_and_parent(id: u32) -> Option<(String, u32)> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((field("Name:")?.to_owned(), field("PPid:")?.parse().ok()?))
}

/// Z7.3: a build whose executor died is run again, and a result that was written counts although
/// nobody was told. The story goes on behind it as if nobody had died, and nobody holds the nodes'
/// key any more for the one that did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_that_is_killed_loses_no_build() {
    let wishes = Wishes { processes: true, kill: Some(sequence(&EXECUTOR)), ..Wishes::default() };
    let orphaned_before = orphaned_agents();
    let mut system = System::start(wishes).await.unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let forge = system.forge().unwrap();
    let a = forge.propose(ONE, "A", &[("greetings/a", "Hello!\n"), ("slow", "6\n")]).await.unwrap();
    let b = forge.propose_after(TWO, "B", &[("greetings/b", "Hi!\n")], Some(&a)).await.unwrap();
    let c = forge.propose(ONE, "C", &[("broken", "yes\n")]).await.unwrap();
    let d = forge.propose(TWO, "D", &[("greetings/d", "Good day!\n")]).await.unwrap();
    approve(&system, &a).await.unwrap();
    let set = decided(&system, &a).await.unwrap();
    let results: Vec<&str> = set["builds"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|build| build["result"].as_str())
        .collect();
    assert_eq!(results.iter().filter(|result| **result == "SUCCESS").count(), 1, "{results:?}");
    system.deaths(EXECUTOR.len(), Death::OfTheExecutor).await.unwrap();
    let orphaned: Vec<u32> = orphaned_agents().difference(&orphaned_before).copied().collect();
    assert_eq!(orphaned, Vec::<u32>::new(), "they hold the nodes' key, and nobody ends them");
    for change in [&b, &c, &d] {
        approve(&system, change).await.unwrap();
        entered(&system, change).await.unwrap();
    }
    for change in [&b, &c, &d] {
        decided(&system, change).await.unwrap();
    }
    ends_right(&system, Expected { landed: &[&a, &b, &d], refused: &[&c] }).await.unwrap();
    shows_the_same_again(&mut system).await;
}
