//! Operator commands of `sluice` on a running system.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};
use sluice_forge::ForgeSecret;
use sluice_forge::webhook::sign;
use sluice_local::{CONNECTION, Identity, ONE, TENANT, TWO};
use sluice_local_tests::forge::PullRequest;
use sluice_local_tests::story::{
    Expected, approve, configure, configure_rows_with_one_node, decided, ends_right, entered,
    is_of, items_in_gate,
};
use sluice_local_tests::system::{System, UpOptions, program};
use sluice_local_tests::until;
use sluice_operator::show::{list, text};
use std::process::{Command, Output};

/// Posts a ping webhook signed with this secret, and returns the HTTP status of the answer.
async fn ping(system: &System, guid: &str, secret: &str) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let body = json!({"zen": "a ping of the forge"}).to_string();
    let request = client
        .post(format!("{}api/connection/{CONNECTION}/payload", system.web_root()))
        .header("content-type", "application/json")
        .header("x-github-event", "ping")
        .header("x-github-delivery", guid)
        .header("x-hub-signature-256", sign(&ForgeSecret::new(secret), body.as_bytes()));
    request.body(body).send().await.unwrap().status().as_u16()
}

/// C2.2: the webhook secret is rotated twice while the system runs. The previous secret stays
/// valid, the one before it does not, and neither log, terminal nor answers contain a secret.
async fn a_rotated_webhook_secret_keeps_the_previous_one_valid_and_appears_in_no_output(
    system: &System,
) {
    let old = Identity::open(system.data(), 0).unwrap().webhook_secret;
    let new = ["second-secret-of-a-test-4711", "third-secret-of-a-test-0815"];
    assert_eq!(ping(system, "first", &old).await, 202);
    assert_eq!(ping(system, "guessed", new[0]).await, 401, "the secret is not stored yet");
    for (nth, secret) in new.into_iter().enumerate() {
        let words = ["connection", "rotate", CONNECTION, "--webhook-secret-file", "-"];
        let rotation = system.run(&words, &format!("{secret}\n")).unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&rotation.stdout),
            String::from_utf8_lossy(&rotation.stderr)
        );
        assert!(
            rotation.status.success() && text.contains("stays valid") && !text.contains(secret),
            "{text}"
        );
        // Functions cache the connections for a while.
        let tries = std::sync::atomic::AtomicU32::new(0);
        until("the new secret to be accepted", async || {
            let guid =
                format!("new-{nth}-{}", tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
            Ok((ping(system, &guid, secret).await == 202).then_some(()))
        })
        .await
        .unwrap();
        assert_eq!(
            ping(system, &format!("previous-{nth}"), if nth == 0 { &old } else { new[0] }).await,
            202
        );
    }
    assert_eq!(ping(system, "forgotten", &old).await, 401);
    let terminal = std::fs::read_to_string(system.data().join("said")).unwrap();
    for (output, text) in [("the log", system.log().unwrap()), ("the terminal", terminal)] {
        assert!(!text.is_empty(), "{output} is empty");
        for secret in [old.as_str(), new[0], new[1]] {
            assert!(!text.contains(secret), "{output} contains a webhook secret");
        }
    }
}

/// C4: the counts of each function's calls are written to the data directory while the system runs,
/// not only after the demo.
async fn call_counts_are_written_to_the_data_directory_while_the_system_runs(system: &System) {
    let secret = Identity::open(system.data(), 0).unwrap().webhook_secret;
    assert_eq!(ping(system, "counted", &secret).await, 202);
    until("the webhook's calls to be written", async || {
        let text = std::fs::read_to_string(system.data().join("calls.json"))?;
        let report: Value = serde_json::from_str(&text)?;
        let rows = list(&report, "rows").iter().filter(|row| row["principal"] == "webhook");
        let calls: u64 = rows.filter_map(|row| row["count"]["calls"].as_u64()).sum();
        Ok((calls > 0).then_some(()))
    })
    .await
    .unwrap();
}

/// C2.2, Z9.1: a token that `sluice token create` prints for an administrator changes something
/// over the API; one without rights, a damaged one and none do not. The command is audited, and no
/// output has a token.
async fn a_printed_token_changes_something_over_the_api(system: &System) {
    let print = |words: &[&str]| {
        let output =
            system.run(&[&["token", "create", "--user", "ada"][..], words].concat(), "").unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (admin, plain) = (print(&["--tenant", TENANT, "--admin"]), print(&[]));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let address = format!("{}api/tenant/{TENANT}/state", system.web_root());
    let pause = async |token: &str| {
        let request = client.post(&address).body(json!({"result_queue_paused": false}).to_string());
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        request.send().await.unwrap().status().as_u16()
    };
    // The tenant is loaded a moment after the start.
    until("the command to be accepted", async || Ok((pause(&admin).await == 200).then_some(())))
        .await
        .unwrap();
    assert_eq!(pause("").await, 401);
    assert_eq!(pause(&plain).await, 403);
    assert_eq!(pause(&format!("{admin}x")).await, 401);
    let shown = system.run(&["audit", "list", "--tenant", TENANT, "--json"], "").unwrap();
    let audit: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(audit[0]["by"], "ada", "{audit}");
    assert_eq!(
        (&audit[0]["via"], &audit[0]["action"]),
        (&json!("api local"), &json!("set-tenant-state"))
    );
    let listed = system.run(&["authenticator", "list"], "").unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).starts_with("local: HS256"), "{listed:?}");
    let log = system.log().unwrap();
    for token in [&admin, &plain] {
        let signature = token.rsplit('.').next().unwrap();
        assert!(!log.contains(signature), "the log contains a token");
    }
}

/// Makes a private key with openssl, locked with the password in the form that Zuul's key store
/// has.
fn locked_key(password: &str) -> String {
    let mut openssl = Command::new("openssl");
    openssl.args(["genrsa", "-traditional", "-aes256", "-passout", "env:PASSWORD", "2048"]);
    let output = openssl.env("PASSWORD", password).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Z5.2, Z8.2: the file of `zuul-admin export-keys` is imported by one command. Each key has its
/// line: stored, there already, or why not; and the password is in no output. A stored key is kept
/// when another one is imported in its place.
fn all_keys_of_a_zuul_are_imported_at_once(system: &System) {
    let password = "a password of a key store";
    let entry = |key: &str| json!({"schema": 1, "keys": [{"version": 0, "created": 1, "private_key": key}]});
    let path = |name: &str, kind: &str| format!("/keystorage/{CONNECTION}/org/org%2F{name}/{kind}");
    let (secrets, ssh) = (locked_key(password), locked_key(password));
    let of_tenant = format!("/keystorage2/tenant/{TENANT}/ssh");
    let mut export = json!({"keys": {
        path("moved", "secrets"): entry(&secrets),
        path("moved", "ssh"): entry(&ssh),
        of_tenant.clone(): entry(&ssh),
        "/keystorage/elsewhere/org/org%2Fx/ssh": entry(&ssh),
        path("locked", "ssh"): entry(&locked_key("another password")),
    }});
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(file("password"), format!("{password}\n")).unwrap();
    let import = |export: &Value| {
        std::fs::write(file("export"), export.to_string()).unwrap();
        let words = ["key", "import", &file("export"), "--password-file", &file("password")];
        let output = system.run(&words, "").unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!text.contains(password) && !text.contains("PRIVATE KEY"), "{text}");
        (output.status.success(), text)
    };
    let (succeeded, text) = import(&export);
    assert!(!succeeded && text.contains("3 imported, 0 the same, 0 different, 2 failed"), "{text}");
    for line in [
        format!("imported {}", path("moved", "secrets")),
        format!("imported {}", path("moved", "ssh")),
        format!("imported {of_tenant}"),
        "failed /keystorage/elsewhere/org/org%2Fx/ssh: there is no connection elsewhere".to_owned(),
        format!("failed {}: the password does not open it", path("locked", "ssh")),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
    export["keys"] = json!({
        path("moved", "secrets"): entry(&secrets),
        path("moved", "ssh"): entry(&ssh),
    });
    let (succeeded, text) = import(&export);
    assert!(succeeded && text.contains("0 imported, 2 the same"), "{text}");
    export["keys"][path("moved", "ssh")] = entry(&secrets);
    let (succeeded, text) = import(&export);
    assert!(!succeeded && text.contains("0 imported, 1 the same, 1 different"), "{text}");

    // The public key of the first import is still the one that is shown.
    let canonical = format!("{}/org/moved", host_of_projects(system));
    let shown = system.run(&["key", "project", &canonical], "").unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    std::fs::write(file("ssh.pem"), &ssh).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args([
        "rsa",
        "-passin",
        "env:PASSWORD",
        "-in",
        &file("ssh.pem"),
        "-out",
        &file("plain"),
    ]);
    assert!(openssl.env("PASSWORD", password).output().unwrap().status.success());
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(file("plain"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let derived = Command::new("ssh-keygen").args(["-y", "-f", &file("plain")]).output().unwrap();
    assert_eq!(shown.trim(), String::from_utf8(derived.stdout).unwrap().trim());

    // The tenant's is the imported one, too.
    let tenant = system.run(&["key", "tenant", "--tenant", TENANT], "").unwrap();
    assert_eq!(String::from_utf8(tenant.stdout).unwrap(), shown);
}

/// Returns the host in the names of the projects of the system's forge.
fn host_of_projects(system: &System) -> String {
    let shown = system.run(&["connection", "list", "--json"], "").unwrap();
    let listed: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let all = listed["connections"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|connection| connection["name"] == CONNECTION);
    found.unwrap_or_else(|| panic!("{listed}"))["canonical_hostname"].as_str().unwrap().to_owned()
}

/// C2.2, C4: operation of a system without any change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_rotated_and_calls_are_counted_while_the_system_runs() {
    let system = System::start(UpOptions::default()).await.unwrap();
    call_counts_are_written_to_the_data_directory_while_the_system_runs(&system).await;
    a_rotated_webhook_secret_keeps_the_previous_one_valid_and_appears_in_no_output(&system).await;
    a_printed_token_changes_something_over_the_api(&system).await;
    all_keys_of_a_zuul_are_imported_at_once(&system);
}

/// L3: `connection remove` refuses a cloud that a tenant's provider uses: without the connection
/// its machines could not be terminated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_that_a_provider_uses_is_not_removed() {
    let system = System::start(UpOptions::default()).await.unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let refused = system.run(&["connection", "remove", "ec2"], "").unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{text}");
    assert!(text.contains("launches nodes with it") && text.contains("demo"), "{text}");
    let change = system
        .forge()
        .unwrap()
        .propose(ONE, "Still", &[("greetings/still", "Hello!\n")])
        .await
        .unwrap();
    approve(&system, &change).await.unwrap();
    let set: Value = decided(&system, &change).await.unwrap();
    assert_eq!(set["result"], "SUCCESS", "{set}");
    ends_right(&system, Expected { landed: &[&change], refused: &[] }).await.unwrap();
}

/// Returns the log of a job's build in a complete buildset.
async fn log_of(system: &System, set: &Value, job: &str) -> String {
    let build = list(set, "builds").iter().find(|build| text(build, "job_name") == job).unwrap();
    let address =
        format!("{}api/tenant/{TENANT}/build/{}/log", system.web_root(), text(build, "uuid"));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(&address).send().await.unwrap().error_for_status().unwrap().text().await.unwrap()
}

/// Z2.5, Z4.9: a job of an included file runs the playbook and the role that lay next to the main
/// configuration at its last load. After another load the next build runs the new versions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_playbook_next_to_the_main_configuration_runs_as_it_was_loaded() {
    let system = System::start(UpOptions::default()).await.unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main.yaml");
    let sample = include_str!("../../../demo/main.yaml");
    std::fs::write(
        &main,
        sample.replace("    source:\n", "    include: [more.yaml]\n    source:\n"),
    )
    .unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let jobs = format!(
        "- job: {{name: included, parent: null, run: hello, nodeset: {{nodes: []}}}}\n- project: {{name: {ONE}, gate: {{jobs: [included]}}}}\n"
    );
    write("more.yaml", &jobs);
    write(
        "playbooks/hello.yaml",
        "- hosts: localhost\n  gather_facts: false\n  roles: [greeter]\n",
    );
    let (mut landed, forge) = (Vec::new(), system.forge().unwrap());
    for (nth, words) in ["first-words", "second-words"].into_iter().enumerate() {
        write("roles/greeter/tasks/main.yaml", &format!("- debug: msg={words}\n"));
        let loaded = system.run(&["tenant", "load", main.to_str().unwrap()], "").unwrap();
        let output = format!(
            "{}{}",
            String::from_utf8_lossy(&loaded.stdout),
            String::from_utf8_lossy(&loaded.stderr)
        );
        assert!(
            loaded.status.success() && output.contains("Stored 2 files of playbooks/ and roles/"),
            "{output}"
        );
        let file = format!("greetings/included-{nth}");
        let change = forge.propose(ONE, words, &[(file.as_str(), "Hello!\n")]).await.unwrap();
        approve(&system, &change).await.unwrap();
        let set = decided(&system, &change).await.unwrap();
        assert_eq!(set["result"], "SUCCESS", "{set}");
        let log = log_of(&system, &set, "included").await;
        assert!(log.contains("[trusted : system/included/playbooks/hello.yaml@main]"), "{log}");
        assert!(log.contains(words), "{log}");
        landed.push(change);
    }
    let landed: Vec<_> = landed.iter().collect();
    ends_right(&system, Expected { landed: &landed, refused: &[] }).await.unwrap();
}

/// Whether a change is in the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InGate {
    Yes,
    No,
}

/// Runs `sluice` against the address of a system, without its data.
struct RemoteUser<'s> {
    system: &'s System,
    /// A directory in which no system ever ran.
    elsewhere: tempfile::TempDir,
    /// The token of an administrator.
    token: String,
}

impl<'s> RemoteUser<'s> {
    /// Makes a token for an administrator where the data is.
    fn new(system: &'s System) -> Self {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut user = Self { system, elsewhere, token: String::new() };
        user.token = user.make_token(&["--tenant", TENANT, "--admin"]);
        user
    }

    fn make_token(&self, rights: &[&str]) -> String {
        let words = [&["token", "create", "--user", "grace"][..], rights].concat();
        let output = self.system.run(&words, "").unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs a command with a token; empty is none.
    fn run_with(&self, token: &str, words: &[&str]) -> Output {
        let mut command = Command::new(program().unwrap());
        command.args(words).args(["--api", &self.system.web_root()]);
        command.env("SLUICE_DATA", self.elsewhere.path()).env("SLUICE_TOKEN", token);
        command.env_remove("SLUICE_TABLE").output().unwrap()
    }

    /// Runs a command as the administrator, and returns its output. It must succeed.
    fn run(&self, words: &[&str]) -> String {
        let output = self.run_with(&self.token, words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.run(&[words, &["--json"]].concat());
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{words:?}: {error}: {output}"))
    }

    fn rows(&self, words: &[&str]) -> Vec<Value> {
        match self.json(words) {
            Value::Array(rows) => rows,
            other => panic!("{words:?}: {other}"),
        }
    }

    /// Waits until a change is in the gate, or is not.
    async fn await_gate(&self, change: &PullRequest, expected: InGate) {
        let api = self.system.client().unwrap();
        until("the change to enter or leave the gate", async || {
            let board: Value = api.get(&format!("tenant/{TENANT}/board")).await?;
            let is_there = items_in_gate(&board).any(|item| is_of(item, change));
            Ok((is_there == (expected == InGate::Yes)).then_some(()))
        })
        .await
        .unwrap();
    }
}

/// Z9.1, C2.2, R06: what an operator does on the data can be done over the API with a token. Without
/// one, or with one that gives no right, nothing is changed, and the error says what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_work_over_the_api_with_a_token() {
    let system = System::start(UpOptions::default()).await.unwrap();
    configure_rows_with_one_node(&system).await.unwrap();
    let user = RemoteUser::new(&system);
    holds_are_made_and_deleted(&user);
    state_is_set(&user);

    let forge = system.forge().unwrap();
    let change = forge.propose(TWO, "endless", &[("hold/endless", "1 never\n")]).await.unwrap();
    forge.approve(&change).await.unwrap();
    entered(&system, &change).await.unwrap();
    let named = change.to_string();
    let dequeue = ["change", "dequeue", &named, "--pipeline", "gate", "--reason", "later"];
    let refused = user.run_with("", &dequeue);
    assert!(!refused.status.success(), "{refused:?}");
    let dequeued = user.run(&dequeue);
    assert!(dequeued.contains("To see the outcome: sluice change explain"), "{dequeued}");
    user.await_gate(&change, InGate::No).await;
    let explained = user.run(&["explain", &named]);
    assert!(explained.contains("an operator dequeued it: later"), "{explained}");
    let enqueued = user.json(&["change", "enqueue", &named, "--pipeline", "gate"]);
    assert!(text(&enqueued, "accepted").contains("will be enqueued in gate"), "{enqueued}");
    user.await_gate(&change, InGate::Yes).await;

    let node = until("a node to be in use", async || {
        let nodes = user.rows(&["node", "list"]);
        Ok(nodes.into_iter().find(|node| node["state"] == "in-use"))
    });
    let node = text(&node.await.unwrap(), "uuid").to_owned();
    assert!(user.run(&["node", "list"]).contains(&node));
    let build = until("a build to be listed", async || {
        let builds = user.rows(&["build", "list", "--project", TWO, "--job", "held"]);
        Ok(builds.into_iter().find(|build| build["uuid"].is_string()))
    });
    let build = text(&build.await.unwrap(), "uuid").to_owned();
    assert_eq!(text(&user.json(&["build-info", "--uuid", &build]), "uuid"), build);
    let graph = ["job", "graph", "--pipeline", "gate", "--project", TWO, "--branch", "main"];
    assert!(user.run(&graph).contains("held"));
    // The form of zuul-client.
    let dequeue = ["dequeue", "--pipeline", "gate", "--project", TWO, "--change"];
    user.run(&[&dequeue[..], &[&change.number.to_string()]].concat());
    user.await_gate(&change, InGate::No).await;

    let shown = system.run(&["audit", "list", "--tenant", TENANT, "--json"], "").unwrap();
    let audit: Vec<Value> = serde_json::from_slice(&shown.stdout).unwrap();
    let by_token = audit.iter().filter(|entry| entry["via"] == "api local");
    let actions: Vec<&str> = by_token.map(|entry| text(entry, "action")).collect();
    for action in ["autohold", "set-tenant-state", "dequeue", "enqueue"] {
        assert!(actions.contains(&action), "{action}: {audit:?}");
    }
    let signature = user.token.rsplit('.').next().unwrap();
    assert!(!system.log().unwrap().contains(signature), "the log contains a token");
}

fn holds_are_made_and_deleted(user: &RemoteUser<'_>) {
    let create =
        ["autohold", "create", "--project", TWO, "--job", "held", "--reason", "look at it"];
    let failure = |token: &str| {
        let output = user.run_with(token, &create);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(failure("").contains("Set SLUICE_TOKEN"), "{}", failure(""));
    let plain = user.make_token(&[]);
    assert!(failure(&plain).contains("the permission autohold"), "{}", failure(&plain));
    let damaged = format!("{}x", user.token);
    assert!(failure(&damaged).contains("does not accept the token"), "{}", failure(&damaged));
    assert!(user.rows(&["autohold", "list"]).is_empty());
    assert!(user.run(&create).starts_with("Accepted: "));
    let holds = user.rows(&["autohold", "list"]);
    assert_eq!(holds.len(), 1, "{holds:?}");
    let id = text(&holds[0], "id");
    assert!(user.run(&["autohold", "show", id]).contains("reason: look at it"));
    user.run(&["autohold", "delete", id]);
    assert!(user.rows(&["autohold", "list"]).is_empty());
}

fn state_is_set(user: &RemoteUser<'_>) {
    let pause = ["tenant", "set-state", "pause-result", "--reason", "maintenance"];
    assert!(!user.run_with("", &pause).status.success());
    user.run(&pause);
    let status = user.run(&["status"]);
    assert!(status.contains("EVENTS ON HOLD") && status.contains("maintenance"), "{status}");
    user.run(&["tenant", "set-state", "normal"]);
    let status = user.run(&["status"]);
    assert!(!status.contains("EVENTS ON HOLD"), "{status}");
}
