//! Operator commands of `sluice` on a running system.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};
use sluice_forge::ForgeSecret;
use sluice_forge::webhook::sign;
use sluice_local::{CONNECTION, Identity, ONE, TENANT};
use sluice_local_tests::story::{Expected, approve, configure, decided, ends_right};
use sluice_local_tests::system::{System, UpOptions};
use sluice_local_tests::until;
use sluice_operator::show::{list, text};

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

/// C2.2, Z9.1: a token that `sluice token` prints for an administrator changes something over the
/// API; one without rights, a damaged one and none do not. The command is audited, and no output
/// has a token.
async fn a_printed_token_changes_something_over_the_api(system: &System) {
    let print = |words: &[&str]| {
        let output = system.run(&[&["token", "--user", "ada"][..], words].concat(), "").unwrap();
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
    let shown = system.run(&["audit", "--tenant", TENANT, "--format", "json"], "").unwrap();
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

/// C2.2, C4: operation of a system without any change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_rotated_and_calls_are_counted_while_the_system_runs() {
    let system = System::start(UpOptions::default()).await.unwrap();
    call_counts_are_written_to_the_data_directory_while_the_system_runs(&system).await;
    a_rotated_webhook_secret_keeps_the_previous_one_valid_and_appears_in_no_output(&system).await;
    a_printed_token_changes_something_over_the_api(&system).await;
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
