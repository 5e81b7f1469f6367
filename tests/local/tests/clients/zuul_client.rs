//! zuul-client with all of its sub-commands.

use crate::ClientTest;
use serde_json::Value;
use sluice_local::{ONE, TENANT, TWO};
use sluice_local_tests::story::{entered, is_of, items_in_gate};
use sluice_local_tests::until;
use sluice_operator::show::text;
use std::fs;
use std::process::{Command, Output};

/// The sub-commands that zuul-client lists.
const SUB_COMMANDS: [&str; 18] = [
    "autohold",
    "autohold-delete",
    "autohold-info",
    "autohold-list",
    "enqueue",
    "enqueue-ref",
    "dequeue",
    "promote",
    "manage-events",
    "encrypt",
    "builds",
    "build-info",
    "job-graph",
    "freeze-job",
    "node-list",
    "node-set-state",
    "nodeset-request-list",
    "nodeset-request-delete",
];

/// Runs zuul-client, and counts which sub-commands have succeeded.
struct ZuulClient<'t> {
    test: &'t ClientTest,
    used: std::cell::RefCell<std::collections::BTreeSet<String>>,
}

impl<'t> ZuulClient<'t> {
    /// Writes the client's configuration file, which names the system and has the token.
    fn new(test: &'t ClientTest) -> Self {
        let root = test.system.web_root();
        let file = format!(
            "[local]\nurl={root}\ntenant={TENANT}\nauth_token={}\n[anonymous]\nurl={root}\ntenant={TENANT}\n",
            test.token
        );
        fs::write(test.files.path().join("client.conf"), file).unwrap();
        Self { test, used: std::cell::RefCell::default() }
    }

    /// Runs a sub-command with a section of the configuration file.
    fn run_as(&self, section: &str, words: &[&str]) -> Output {
        let mut command = Command::new(sluice_foreign::zuul_client::program());
        command.arg("-c").arg(self.test.files.path().join("client.conf"));
        command.args(["--use-config", section, "--format", "json"]).args(words);
        command.env_remove("http_proxy").env_remove("https_proxy").env_remove("HTTP_PROXY");
        command.output().unwrap()
    }

    /// Runs a sub-command as the administrator, and returns what it prints. It must succeed.
    fn run(&self, words: &[&str]) -> String {
        let output = self.run_as("local", words);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "zuul-client {words:?}: {printed}{errors}");
        self.used.borrow_mut().insert(words[0].to_owned());
        printed
    }

    /// Runs a sub-command that prints JSON.
    fn json(&self, words: &[&str]) -> Value {
        let printed = self.run(words);
        serde_json::from_str(&printed)
            .unwrap_or_else(|error| panic!("zuul-client {words:?}: {error}: {printed}"))
    }

    /// Runs a sub-command that prints a JSON list, or a sentence if there is nothing.
    fn list(&self, words: &[&str]) -> Vec<Value> {
        let printed = self.run(words);
        match serde_json::from_str(&printed) {
            Ok(Value::Array(list)) => list,
            Err(_) if printed.starts_with("No ") => Vec::new(),
            other => panic!("zuul-client {words:?} printed no list: {other:?}: {printed}"),
        }
    }
}

/// Z9.1, Z9.2: every sub-command of zuul-client does what it says; without a token, those that
/// change something fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sub_command_of_zuul_client_works() {
    let test = ClientTest::begin().await;
    let client = ZuulClient::new(&test);
    holds_are_made_and_deleted(&client);
    a_held_node_is_released(&client).await;
    configuration_is_read(&client);
    secrets_are_encrypted(&client);
    events_are_paused_and_continued(&client).await;
    changes_move_and_leave(&client).await;
    refs_are_enqueued(&client).await;
    let used = client.used.borrow();
    for name in SUB_COMMANDS {
        assert!(used.contains(name), "{name} was not tried");
    }
}

fn holds_are_made_and_deleted(client: &ZuulClient<'_>) {
    let words = ["autohold", "--project", TWO, "--job", "held", "--reason", "look at it"];
    let refused = client.run_as("anonymous", &words);
    assert!(!refused.status.success(), "{refused:?}");
    client.run(&words);
    let holds = client.list(&["autohold-list"]);
    assert_eq!(holds.len(), 1, "{holds:?}");
    assert_eq!((text(&holds[0], "job"), text(&holds[0], "reason")), ("held", "look at it"));
    let id = text(&holds[0], "id");
    let hold = client.json(&["autohold-info", id]);
    assert_eq!(text(&hold, "id"), id);
    client.run(&["autohold-delete", id]);
    assert!(client.list(&["autohold-list"]).is_empty());
    assert!(!client.run_as("local", &["autohold-delete", id]).status.success());
}

/// Holds the node of a build that fails, logs in on it with the holder's own key, as the request
/// says, and releases it.
async fn a_held_node_is_released(client: &ZuulClient<'_>) {
    let test = client.test;
    let key = test.files.path().join("holder");
    let mut made = Command::new("ssh-keygen");
    made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
    assert!(made.status().unwrap().success());
    let public = format!("{}.pub", key.display());
    let words = ["autohold", "create", "--project", TWO, "--job", "held", "--reason", "look at it"];
    let words = [&words[..], &["--ssh-key", &public]].concat();
    let created = test.system.run(&words, "").unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let forge = test.system.forge().unwrap();
    let broken = forge.propose(TWO, "broken", &[("broken", "yes\n")]).await.unwrap();
    forge.approve(&broken).await.unwrap();
    let held = until("a node to be held", async || {
        let nodes = client.list(&["node-list"]);
        Ok(nodes.into_iter().find(|node| node["state"] == "hold"))
    });
    let held = held.await.unwrap();
    let node = text(&held, "uuid").to_owned();
    let holds = client.list(&["autohold-list"]);
    let id = text(&holds[0], "id");
    // The client of another program takes the members of our own.
    assert_eq!(text(&client.json(&["autohold-info", id]), "id"), id);
    let api = test.system.client().unwrap();
    let hold: Value = api.get(&format!("tenant/{TENANT}/autohold/{id}")).await.unwrap();
    let login = &hold["held_nodes"][0];
    assert_eq!(text(login, "node"), node, "{hold}");
    let command = text(login, "ssh").replace("PRIVATE_KEY_FILE", &key.display().to_string());
    let options = "-o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no \
                   -o UserKnownHostsFile=/dev/null";
    let reached = Command::new("sh")
        .args(["-c", &format!("{command} {options} echo inside")])
        .env_remove("SSH_AUTH_SOCK")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&reached.stdout);
    assert_eq!(said.trim(), "inside", "{command}: {}", String::from_utf8_lossy(&reached.stderr));
    client.run(&["node-set-state", &node, "used"]);
    until("the node to be deleted", async || {
        let nodes = client.list(&["node-list"]);
        Ok((!nodes.iter().any(|one| one["uuid"] == held["uuid"])).then_some(()))
    })
    .await
    .unwrap();
}

fn configuration_is_read(client: &ZuulClient<'_>) {
    let place = ["--pipeline", "gate", "--project", ONE, "--branch", "main"];
    let graph = client.list(&[&["job-graph"][..], &place].concat());
    assert!(graph.iter().any(|job| job["name"] == "held"), "{graph:?}");
    let frozen = client.json(&[&["freeze-job"][..], &place, &["--job", "held"]].concat());
    assert_eq!(text(&frozen, "job"), "held");
}

fn secrets_are_encrypted(client: &ZuulClient<'_>) {
    let file = client.test.files.path().join("plain");
    fs::write(&file, "a secret text").unwrap();
    let infile = file.to_string_lossy().into_owned();
    let words = ["encrypt", "--project", ONE, "--secret-name", "mine", "--infile", &infile];
    let printed = client.run(&words);
    assert!(printed.contains("!encrypted/pkcs1-oaep"), "{printed}");
    assert!(!printed.contains("a secret text"), "{printed}");
}

async fn events_are_paused_and_continued(client: &ZuulClient<'_>) {
    let state = async |wanted: bool| {
        let api = client.test.system.client().unwrap();
        until("the state of the tenant to change", async || {
            let status: Value = api.get(&format!("tenant/{TENANT}/status")).await?;
            Ok((status["state"]["trigger_queue_paused"] == wanted).then_some(()))
        })
        .await
        .unwrap();
    };
    client.run(&["manage-events", "--reason", "maintenance", "pause-trigger"]);
    state(true).await;
    client.run(&["manage-events", "normal"]);
    state(false).await;
}

/// Enqueues two changes, promotes the second one, deletes its request for a node, and dequeues the
/// first one, whose build runs.
async fn changes_move_and_leave(client: &ZuulClient<'_>) {
    let test = client.test;
    let first = test.propose_endless("first").await;
    let second = test.propose_endless("second").await;
    let (first_revision, second_revision) =
        (test.revision(&first).await, test.revision(&second).await);
    for change in [&first, &second] {
        let forge = test.system.forge().unwrap();
        forge.approve(change).await.unwrap();
        entered(&test.system, change).await.unwrap();
    }
    // It is queued already, so that the command changes nothing.
    let enqueue = ["enqueue", "--pipeline", "gate", "--project", TWO, "--change"];
    client.run(&[&enqueue[..], &[&first_revision]].concat());
    let api = test.system.client().unwrap();
    client.run(&["promote", "--pipeline", "gate", "--changes", &second_revision]);
    until("the second change to be in front", async || {
        let board: Value = api.get(&format!("tenant/{TENANT}/board")).await?;
        Ok(items_in_gate(&board).next().filter(|item| is_of(item, &second)).map(|_| ()))
    })
    .await
    .unwrap();

    let nodes = until("a node to be in use", async || {
        let nodes = client.list(&["node-list"]);
        Ok(nodes.iter().any(|node| node["state"] == "in-use").then_some(nodes))
    });
    let node = text(&nodes.await.unwrap()[0], "uuid").to_owned();
    let requests = until("a request to wait", async || {
        let requests = client.list(&["nodeset-request-list"]);
        Ok(requests.iter().any(|request| request["state"] == "requested").then_some(requests))
    });
    let requests = requests.await.unwrap();
    let waiting = requests.iter().find(|request| request["state"] == "requested").unwrap();
    client.run(&["nodeset-request-delete", text(waiting, "uuid")]);
    // A build uses the node.
    assert!(!client.run_as("local", &["node-set-state", &node, "used"]).status.success());

    let build = until("a build to be listed", async || {
        let builds = client.list(&["builds", "--project", TWO, "--job", "held"]);
        Ok(builds.into_iter().find(|build| build["uuid"].is_string()))
    });
    let build = build.await.unwrap();
    let info = client.json(&["build-info", "--uuid", text(&build, "uuid")]);
    assert_eq!(text(&info, "uuid"), text(&build, "uuid"));

    for revision in [&first_revision, &second_revision] {
        let words = ["dequeue", "--pipeline", "gate", "--project", TWO, "--change", revision];
        client.run(&words);
    }
    until("the gate to be empty", async || {
        let board: Value = api.get(&format!("tenant/{TENANT}/board")).await?;
        Ok(items_in_gate(&board).next().is_none().then_some(()))
    })
    .await
    .unwrap();
}

async fn refs_are_enqueued(client: &ZuulClient<'_>) {
    let forge = client.test.system.forge().unwrap();
    let branch: Value = forge.get(&format!("{ONE}/branches/main")).await.unwrap();
    let head = branch["commit"]["sha"].as_str().unwrap();
    let words = ["enqueue-ref", "--pipeline", "post", "--project", ONE, "--ref", "refs/heads/main"];
    client.run(&[&words[..], &["--newrev", head]].concat());
}
