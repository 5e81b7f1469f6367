//! Changes under kill -9: at fourteen points a process is killed and restarted, and the changes end
//! as without kills.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use sluice_local::{ONE, TWO};
use sluice_local_tests::forge::PullRequest;
use sluice_local_tests::story::{Expected, approve, configure, decided, ends_right, entered};
use sluice_local_tests::system::{KilledProcess, System, UpOptions, program};
use sluice_local_tests::until;
use sluice_model::build::{BuildResult, Order, Phase, PlaybookPhase, Run};
use sluice_model::{BuildId, NodeId, ProviderName, Timestamp};
use sluice_operator::show::{list, text};
use sluice_pool::NodeState;
use sluice_records::build::{order_key, run_key};
use sluice_records::codec::decode;
use sluice_records::provider;
use sluice_records::session::{self, LIFE_SECONDS, Session};
use sluice_runtime::Ports;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A point at which a process is killed.
struct Point {
    /// The last event before the kill, for the test's output.
    name: &'static str,
    /// The process and the call, as `sluice up --kill` reads them.
    kill: &'static str,
}

/// The whole emulator is killed: data services, forge, functions and executor are one process.
const MACHINE: [Point; 5] = [
    Point {
        name: "a delivery is stored and not yet answered",
        kill: r#"machine after webhook:PutItem|TransactWriteItems:delivery#+"pull_request_review""#,
    },
    Point {
        name: "the item is enqueued and no wakeup was sent",
        kill: "machine after gate:PutItem|TransactWriteItems:item#",
    },
    Point {
        name: "the merge is requested",
        kill: "machine before merger:PutItem|TransactWriteItems:merge#",
    },
    Point {
        name: "nodes are requested",
        kill: "machine after gate:PutItem|TransactWriteItems:request#",
    },
    Point {
        name: "the landing is ordered and no wakeup was sent to the reporter",
        kill: r#"machine after gate:PutItem|TransactWriteItems:landing#+"ordered""#,
    },
];

/// The process of one function is killed; the other functions and the emulator keep running.
const FUNCTIONS: [Point; 6] = [
    Point {
        name: "intake has written the inbox message and sent no wakeup",
        kill: "caller after intake:PutItem|TransactWriteItems:inbox#+gate",
    },
    Point {
        name: "the merge is made and not recorded",
        kill: "caller before merger:PutItem|TransactWriteItems:merge#",
    },
    Point {
        name: "a node is launched and the launcher has no answer",
        kill: "caller after launcher:RunInstances",
    },
    Point {
        name: "the change is merged at the forge and the landing is not recorded",
        kill: r#"caller before reporter:PutItem|TransactWriteItems:landing#+"ended""#,
    },
    Point {
        name: "the change has landed and left the queue, and its report was not requested",
        kill: "caller after gate:PutItem|TransactWriteItems:buildset#",
    },
    Point {
        name: "the report is sent and not recorded",
        kill: r#"caller before reporter:PutItem|TransactWriteItems:report#+"made"+"success""#,
    },
];

/// The executor is killed.
const EXECUTOR: [Point; 3] = [
    Point {
        name: "a build is claimed",
        kill: r#"executor after executor:PutItem|TransactWriteItems:build#+"running""#,
    },
    // Five seconds after the log's first line, while the playbook waits on its node.
    Point {
        name: "a playbook runs and its log so far is stored",
        kill: "executor after executor:PutObject:.log/00000+RUN+START",
    },
    Point {
        name: "the result is recorded and no wakeup was sent",
        kill: r#"executor after executor:PutItem|TransactWriteItems:build#+"ended""#,
    },
];

/// Proposes the four changes of the demo: A passes; B, of another repository, depends on it; C
/// breaks a test; D is independent. Where one kill needs one build, the other repository runs
/// `noop`.
async fn propose_four(system: &System) -> [PullRequest; 4] {
    let forge = system.forge().unwrap();
    let a = forge.propose(ONE, "A", &[("greetings/a", "Hello!\n")]).await.unwrap();
    let b = forge.propose_after(TWO, "B", &[("greetings/b", "Hi!\n")], Some(&a)).await.unwrap();
    let c = forge.propose(ONE, "C", &[("broken", "yes\n")]).await.unwrap();
    let d = forge.propose(TWO, "D", &[("greetings/d", "Good day!\n")]).await.unwrap();
    [a, b, c, d]
}

/// Returns the `--kill` option for these points, one after the other.
fn kill_option(points: &[Point]) -> String {
    points.iter().map(|point| point.kill).collect::<Vec<_>>().join(";")
}

/// Returns what the API shows of completed work: status, builds and buildsets.
async fn shown(system: &System) -> [Value; 3] {
    let client = system.client().unwrap();
    let get = async |path: &str| client.get::<Value>(&format!("tenant/demo/{path}")).await.unwrap();
    [get("status").await, get("builds?limit=100").await, get("buildsets?limit=100").await]
}

/// Kills and restarts the system, and checks that the API shows completed work as before.
async fn assert_shown_alike_after_restart(system: &mut System) {
    let before = shown(system).await;
    system.kill().unwrap();
    system.start_again(None).await.unwrap();
    assert_eq!(
        shown(system).await,
        before,
        "the restarted system shows what the killed system showed"
    );
}

/// C4, Z6.4, Z1.7: the emulator is killed at each point and restarted on the same directory. After
/// the last change has landed it is killed once more, and the restarted system shows the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_system_resumes_its_work_after_a_restart() {
    let mut system =
        System::start(UpOptions { kill: Some(MACHINE[0].kill.to_owned()), ..UpOptions::default() })
            .await
            .unwrap();
    configure(&system, ["quick", "noop"]).await.unwrap();
    let [a, b, c, d] = propose_four(&system).await;
    let forge = system.forge().unwrap();
    // The forge dies with the system, so the answer is lost; the approval is repeated below.
    let _ = forge.approve(&a).await;
    for (number, point) in MACHINE.iter().enumerate() {
        println!("{}", point.name);
        system.await_kill().await.unwrap();
        system.start_again(MACHINE.get(number + 1).map(|next| next.kill)).await.unwrap();
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
    system.await_kills(MACHINE.len(), KilledProcess::Machine).await.unwrap();
    assert_shown_alike_after_restart(&mut system).await;
}

/// Returns the items of the gate's queue in order: id, change and time of enqueueing.
async fn queued_items(system: &System) -> Vec<[String; 3]> {
    let board: Value = system.client().unwrap().get("tenant/demo/board").await.unwrap();
    let gate = list(&board, "pipelines").iter().filter(|pipeline| pipeline["name"] == "gate");
    let items =
        gate.flat_map(|pipeline| list(pipeline, "queues")).flat_map(|queue| list(queue, "items"));
    items.map(|item| ["id", "change", "enqueued_at"].map(|name| item[name].to_string())).collect()
}

/// C4, Z6.4: the system is killed while four changes are tested on top of each other. The restarted
/// system shows the same queue, and the changes end as without the kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_four_changes_survives_a_kill_of_the_machine() {
    let mut system = System::start(UpOptions::default()).await.unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let forge = system.forge().unwrap();
    // Its builds are slow, so that no change behind it lands before the kill.
    let a = forge.propose(ONE, "A", &[("greetings/a", "Hello!\n"), ("slow", "8\n")]).await.unwrap();
    let b = forge.propose_after(TWO, "B", &[("greetings/b", "Hi!\n")], Some(&a)).await.unwrap();
    let c = forge.propose(ONE, "C", &[("broken", "yes\n")]).await.unwrap();
    let d = forge.propose(TWO, "D", &[("greetings/d", "Good day!\n")]).await.unwrap();
    for change in [&a, &b, &c, &d] {
        approve(&system, change).await.unwrap();
        entered(&system, change).await.unwrap();
    }
    let before = queued_items(&system).await;
    assert_eq!(before.len(), 4, "{before:?}");
    system.kill().unwrap();
    system.start_again(None).await.unwrap();
    let after = queued_items(&system).await;
    assert_eq!(after, before, "no item has left the queue");
    for change in [&a, &b, &c, &d] {
        decided(&system, change).await.unwrap();
    }
    ends_right(&system, Expected { landed: &[&a, &b, &d], refused: &[&c] }).await.unwrap();
}

/// C4: the processes of each function are killed at a critical call; SQS redelivers their messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_killed_function_is_redelivered() {
    let options =
        UpOptions { processes: true, kill: Some(kill_option(&FUNCTIONS)), ..UpOptions::default() };
    let mut system = System::start(options).await.unwrap();
    configure(&system, ["quick", "noop"]).await.unwrap();
    let [a, b, c, d] = propose_four(&system).await;
    for change in [&a, &b, &c, &d] {
        approve(&system, change).await.unwrap();
        entered(&system, change).await.unwrap();
    }
    for change in [&a, &b, &c, &d] {
        decided(&system, change).await.unwrap();
    }
    ends_right(&system, Expected { landed: &[&a, &b, &d], refused: &[&c] }).await.unwrap();
    system.await_kills(FUNCTIONS.len(), KilledProcess::Function).await.unwrap();
    assert_shown_alike_after_restart(&mut system).await;
}

/// Returns the id and the environment of the executor's process.
fn executor_process(system: &System) -> (u32, Vec<(String, String)>) {
    let state = system.data().join("executor").display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let strings = |id: u32, file: &str| -> Vec<String> {
        let bytes = std::fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
        bytes.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into()).collect()
    };
    let is_executor = |id: &u32| {
        let words = strings(*id, "cmdline");
        words[0].ends_with("sluice-executor") && words.contains(&state)
    };
    let id = ids.find(is_executor).expect("an executor runs");
    let variables = strings(id, "environ").into_iter();
    let variables = variables.filter_map(|text| {
        text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    });
    (id, variables.collect())
}

/// A second executor of a system, which ends when it is dropped.
struct SecondExecutor(Child);

impl SecondExecutor {
    /// Starts it as the first one was started, with a state directory of its own.
    fn start(system: &System, environment: Vec<(String, String)>) -> Self {
        let program = program().unwrap().with_file_name("sluice-executor");
        let mut command = Command::new(program);
        command.env_clear().envs(environment).arg("--state").arg(system.data().join("second"));
        command.args(["--slots", "2", "--logs", "127.0.0.1:0", "--drain", "0", "--with-parent"]);
        let log = File::create(system.data().join("second.log")).unwrap();
        command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap())
    }
}

impl Drop for SecondExecutor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to a process.
fn send_signal(signal: &str, id: u32) {
    assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
}

/// Z7.3: an executor is paused while a playbook works on a node, and goes on later. Meanwhile
/// another executor takes the build over: it ends what the first one had started on the node, runs
/// the post-run playbooks, which find that nothing works there any more, and ends the build as
/// RETRY. The first one reports nothing when it goes on, and ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_executor_loses_its_build_to_another_one_that_collects_the_logs() {
    let options = UpOptions { processes: true, ..UpOptions::default() };
    let system = System::start(options).await.unwrap();
    configure(&system, ["counting", "noop"]).await.unwrap();
    let forge = system.forge().unwrap();
    let a = forge.propose(ONE, "A", &[("greetings/a", "Hello!\n")]).await.unwrap();
    approve(&system, &a).await.unwrap();
    let (client, ports) = (system.client().unwrap(), system.operator().await.unwrap());
    let run_of_first = async || -> anyhow::Result<Option<Run>> {
        let builds: Vec<Value> = client.get("tenant/demo/builds?pipeline=gate").await?;
        // The API lists the newest first.
        let first = builds.iter().rfind(|build| build["job_name"] == "counting");
        let Some(first) = first else { return Ok(None) };
        let key = run_key(&BuildId::from(text(first, "uuid")));
        let run = ports.records.get(&[key]).await?.remove(0);
        Ok(run.map(|record| decode(&record)).transpose()?)
    };
    let running = until("the main playbook to be recorded", async || {
        let begun = |run: &Run| run.playbook.is_some_and(|last| last.phase == PlaybookPhase::Run);
        Ok(run_of_first().await?.filter(begun))
    })
    .await
    .unwrap();
    let (paused, environment) = executor_process(&system);
    let second = SecondExecutor::start(&system, environment);
    until("the second executor to run", async || {
        let components: Value = client.get("components").await?;
        Ok((list(&components, "executor").len() == 2).then_some(()))
    })
    .await
    .unwrap();
    // The connection goes through the executor: while it is paused, nothing begins on the node.
    let log = format!("{}api/tenant/demo/build/{}/log", system.web_root(), running.build);
    until("the node to count", async || {
        let log = client.text(&log).await?;
        Ok(log.is_some_and(|log| log.contains("| the node counts")).then_some(()))
    })
    .await
    .unwrap();
    send_signal("-STOP", paused);
    let ended = until("the build to be ended by the second executor", async || {
        Ok(run_of_first().await?.filter(|run| matches!(run.phase, Phase::Ended(_))))
    })
    .await
    .unwrap();
    let Phase::Ended(end) = &ended.phase else { unreachable!("it has ended") };
    assert_eq!(end.result, BuildResult::Retry, "{end:?}");
    assert_ne!(ended.session, running.session);
    let file = async |name: &str| {
        let address = format!("{}{name}", end.log_url.as_deref().unwrap());
        client.text(&address).await.unwrap().unwrap_or_else(|| panic!("there is no {address}"))
    };
    let ticks = file("ticks.txt").await;
    let [first, second_count, "False", "True"] = ticks.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{ticks}")
    };
    assert!(first == second_count && first.parse::<u32>().unwrap() > 0, "{ticks}");
    assert!(file("job-output.txt").await.contains("RUN START"));
    send_signal("-CONT", paused);
    system.await_kills(1, KilledProcess::Executor).await.unwrap();
    let set = decided(&system, &a).await.unwrap();
    assert_eq!(text(&set, "result"), "SUCCESS", "{set}");
    assert_eq!(run_of_first().await.unwrap().unwrap(), ended, "it reported nothing later");
    drop(second);
    ends_right(&system, Expected { landed: &[&a], refused: &[] }).await.unwrap();
}

/// Returns the process ids of orphaned ssh-agents on this machine.
fn orphaned_agents() -> BTreeSet<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id: &u32| is_orphaned_agent(*id)).collect()
}

/// Returns whether a process is an ssh-agent whose parent, or whose sandbox's parent, is init.
fn is_orphaned_agent(id: u32) -> bool {
    let Some((_, mut parent)) = name_and_parent(id).filter(|(name, _)| name == "ssh-agent") else {
        return false;
    };
    // A sandbox consists of two processes.
    for _ in 0..2 {
        match name_and_parent(parent) {
            Some((name, above)) if parent != 1 && name == "bwrap" => parent = above,
            _ => break,
        }
    }
    parent == 1
}

/// Returns the name and the parent's id of a process; `None` when there is no such process.
fn name_and_parent(id: u32) -> Option<(String, u32)> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((field("Name:")?.to_owned(), field("PPid:")?.parse().ok()?))
}

/// The longest time from the last sign of an executor to the next attempt of its builds.
const RECOVERY_MILLIS: u64 = 45_000;
/// The longest time from the last sign of an executor until the nodes of its builds are free.
const FREE_MILLIS: u64 = 60_000;
/// The time between two looks at the nodes.
const NODE_POLL: Duration = Duration::from_millis(300);

/// Notes when the nodes of each build are given up.
struct NodeWatch {
    freed: Arc<Mutex<BTreeMap<BuildId, Timestamp>>>,
    task: JoinHandle<()>,
}

impl NodeWatch {
    /// Watches the nodes of one provider until it is dropped. Each build must have one node.
    fn start(ports: Ports, provider: ProviderName) -> Self {
        let freed = Arc::new(Mutex::default());
        let task = tokio::spawn(watch_nodes(ports, provider, Arc::clone(&freed)));
        Self { freed, task }
    }

    /// Returns when the nodes of a build were given up.
    fn freed_at(&self, build: &BuildId) -> Option<Timestamp> {
        self.freed.lock().unwrap().get(build).copied()
    }
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Notes the time at which each node is marked for deletion, as its record says; for one whose
/// record is gone before it was seen so, the time of the look that does not find it.
async fn watch_nodes(
    ports: Ports,
    provider: ProviderName,
    freed: Arc<Mutex<BTreeMap<BuildId, Timestamp>>>,
) {
    let mut held: BTreeMap<NodeId, BuildId> = BTreeMap::new();
    loop {
        if let Ok(loaded) = provider::load(&ports, &provider).await {
            let now = ports.clock.now();
            let mut gone = held.clone();
            for (id, (_, node)) in loaded.nodes {
                match (node.state, node.allocated_to) {
                    (NodeState::Deleting { since, .. }, _) => {
                        gone.remove(&id);
                        if let Some(build) = held.remove(&id) {
                            freed.lock().unwrap().insert(build, since);
                        }
                    }
                    (_, allocation) => {
                        gone.remove(&id);
                        held.extend(allocation.map(|allocation| (id, allocation.build)));
                    }
                }
            }
            for (id, build) in gone {
                held.remove(&id);
                freed.lock().unwrap().insert(build, now);
            }
        }
        tokio::time::sleep(NODE_POLL).await;
    }
}

/// Waits for the first gate build of a change, and watches the nodes of its provider from then on.
async fn watch_nodes_of(system: &System, change: &PullRequest) -> NodeWatch {
    let (client, ports) = (system.client().unwrap(), system.operator().await.unwrap());
    let PullRequest { repository, number } = change;
    let path = format!("tenant/demo/builds?project={repository}&change={number}&pipeline=gate");
    let provider = until("a build to be ordered", async || {
        let builds: Vec<Value> = client.get(&path).await?;
        let Some(first) = builds.first() else { return Ok(None) };
        let key = order_key(&BuildId::from(text(first, "uuid")));
        let order = ports.records.get(&[key]).await?.remove(0);
        let order = order.map(|record| decode::<Order>(&record)).transpose()?;
        Ok(order.and_then(|order| order.request).map(|request| request.provider))
    });
    NodeWatch::start(ports.clone(), provider.await.unwrap())
}

/// Returns the attempts of a change's gate builds, oldest first, and checks that every attempt has
/// an end, that the next one of a lost one was claimed in time, and that its nodes were free in
/// time.
async fn attempts(system: &System, change: &PullRequest, nodes: &NodeWatch) -> Vec<(Order, Run)> {
    let (client, ports) = (system.client().unwrap(), system.operator().await.unwrap());
    let PullRequest { repository, number } = change;
    let path = format!("tenant/demo/builds?project={repository}&change={number}&pipeline=gate");
    let shown: Vec<Value> = client.get(&path).await.unwrap();
    let mut found = Vec::new();
    for build in shown.iter().rev() {
        assert!(build["result"].is_string() && build["end_time"].is_string(), "{build}");
        let id = BuildId::from(text(build, "uuid"));
        let keys = [order_key(&id), run_key(&id)];
        let records = ports.records.get(&keys).await.unwrap();
        let [Some(order), Some(run)] = records.as_slice() else { panic!("{build}") };
        found.push((decode::<Order>(order).unwrap(), decode::<Run>(run).unwrap()));
    }
    for pair in found.windows(2) {
        let (lost, next) = (&pair[0].1, &pair[1].1);
        let session = ports.records.get(&[session::key(&lost.session)]).await.unwrap().remove(0);
        let session: Session = decode(&session.unwrap()).unwrap();
        let last_sign = session.alive_until.0 - LIFE_SECONDS * 1_000;
        let recovery = next.claimed_at.0 - last_sign;
        println!("a lost build was claimed again {recovery} ms after its executor's last sign");
        assert!(recovery <= RECOVERY_MILLIS, "{recovery} ms: {pair:?}");
        let freed =
            until("the nodes of a lost build to be free", async || Ok(nodes.freed_at(&lost.build)));
        let free = freed.await.unwrap().0 - last_sign;
        println!("its nodes were free {free} ms after its executor's last sign");
        assert!(free <= FREE_MILLIS, "{free} ms: {pair:?}");
    }
    found
}

/// Z7.3: a build whose executor was killed is run again, in less than 45 seconds, its nodes are
/// free in less than 60, and the killed attempt ends as RETRY with the log that it had written five seconds before. A recorded result
/// counts although the executor sent no wakeup. The changes behind it end as without kills, and no
/// orphaned ssh-agent holds the nodes' key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_executor_loses_no_build() {
    let options =
        UpOptions { processes: true, kill: Some(kill_option(&EXECUTOR)), ..UpOptions::default() };
    let orphaned_before = orphaned_agents();
    let mut system = System::start(options).await.unwrap();
    configure(&system, ["quick", "noop"]).await.unwrap();
    let forge = system.forge().unwrap();
    let a = forge.propose(ONE, "A", &[("greetings/a", "Hello!\n"), ("slow", "8\n")]).await.unwrap();
    let b = forge.propose_after(TWO, "B", &[("greetings/b", "Hi!\n")], Some(&a)).await.unwrap();
    let c = forge.propose(ONE, "C", &[("broken", "yes\n")]).await.unwrap();
    let d = forge.propose(TWO, "D", &[("greetings/d", "Good day!\n")]).await.unwrap();
    approve(&system, &a).await.unwrap();
    let nodes = watch_nodes_of(&system, &a).await;
    let set = decided(&system, &a).await.unwrap();
    let results: Vec<&str> = set["builds"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|build| build["result"].as_str())
        .collect();
    assert_eq!(results.iter().filter(|result| **result == "SUCCESS").count(), 1, "{results:?}");
    system.await_kills(EXECUTOR.len(), KilledProcess::Executor).await.unwrap();
    let attempts = attempts(&system, &a, &nodes).await;
    drop(nodes);
    let ends = attempts.iter().filter_map(|(_, run)| match &run.phase {
        Phase::Ended(end) => Some(end),
        _ => None,
    });
    let results: Vec<BuildResult> = ends.clone().map(|end| end.result).collect();
    assert_eq!(results, [BuildResult::Retry, BuildResult::Retry, BuildResult::Success]);
    let logs: Vec<Option<String>> = ends.map(|end| end.log_url.clone()).collect();
    assert_eq!(logs[0], None, "the first attempt was killed before it wrote anything");
    let log = format!("{}job-output.txt", logs[1].as_deref().unwrap());
    let log = system.client().unwrap().text(&log).await.unwrap().unwrap();
    assert!(log.contains("RUN START") && !log.contains("RUN END"), "{log}");
    let orphaned: Vec<u32> = orphaned_agents().difference(&orphaned_before).copied().collect();
    assert_eq!(orphaned, Vec::<u32>::new(), "orphaned ssh-agents hold the nodes' key");
    for change in [&b, &c, &d] {
        approve(&system, change).await.unwrap();
        entered(&system, change).await.unwrap();
    }
    for change in [&b, &c, &d] {
        decided(&system, change).await.unwrap();
    }
    ends_right(&system, Expected { landed: &[&a, &b, &d], refused: &[&c] }).await.unwrap();
    assert_shown_alike_after_restart(&mut system).await;
}
