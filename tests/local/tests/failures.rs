//! Failures around a whole system: quotas, policies, forged webhooks, large and
//! malformed bodies, missing repositories, unreachable nodes, hanging playbooks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use sluice_forge::ForgeSecret;
use sluice_forge::webhook::sign;
use sluice_local::{CONNECTION, Identity, ONE, TWO, audit};
use sluice_local_tests::forge::PullRequest;
use sluice_local_tests::story::{Expected, approve, configure, decided, ends_right, entered};
use sluice_local_tests::system::{System, UpOptions};
use sluice_local_tests::until;
use sluice_operator::quarantine;
use sluice_operator::show::{list, text};
use sluice_records::delivery;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Posts a webhook signed with this secret, and returns the HTTP status of the answer.
async fn post(system: &System, guid: &str, event: &str, body: &str, secret: &str) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client
        .post(format!("{}api/connection/{CONNECTION}/payload", system.web_root()))
        .header("content-type", "application/json")
        .header("x-github-event", event)
        .header("x-github-delivery", guid)
        .header("x-hub-signature-256", sign(&ForgeSecret::new(secret), body.as_bytes()));
    request.body(body.to_owned()).send().await.unwrap().status().as_u16()
}

/// Returns the secret that the forge signs webhooks with.
fn secret(system: &System) -> String {
    // The port counts only for a directory without an identity.
    Identity::open(system.data(), 0).unwrap().webhook_secret
}

/// Returns job, result and log URL of each build of a buildset.
fn builds(set: &Value) -> Vec<(&str, &str, &str)> {
    list(set, "builds")
        .iter()
        .map(|build| (text(build, "job_name"), text(build, "result"), text(build, "log_url")))
        .collect()
}

/// Z4.8: a local system issues upload credentials with what the template names, and they upload to
/// one container only: the job sees both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_uploads_to_its_container_on_the_local_system() {
    let system = System::start(UpOptions::default()).await.unwrap();
    configure(&system, ["uploading", "noop"]).await.unwrap();
    let forge = system.forge().unwrap();
    let change = forge.propose(ONE, "Upload", &[("greetings/up", "Hi!\n")]).await.unwrap();
    approve(&system, &change).await.unwrap();
    entered(&system, &change).await.unwrap();
    let set = decided(&system, &change).await.unwrap();
    assert_eq!(text(&set, "result"), "SUCCESS", "{set}");
}

/// Z1.3, Z1.5: two requests of three nodes share a quota of five: one waits for the other, both are
/// served, and there are never more than five nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_exceed_the_quota_together_are_served_one_after_the_other() {
    let system = System::start(UpOptions::default()).await.unwrap();
    configure(&system, ["three", "three"]).await.unwrap();
    let forge = system.forge().unwrap();
    let one = forge.propose(ONE, "Three of one", &[("greetings/three", "Hi!\n")]).await.unwrap();
    let two = forge.propose(TWO, "Three of two", &[("three", "Hi!\n")]).await.unwrap();
    let system = Arc::new(system);
    let (over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let watch = {
        let (system, over, most) = (system.clone(), over.clone(), most.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                most.fetch_max(system.nodes().len(), Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        })
    };
    for change in [&one, &two] {
        approve(&system, change).await.unwrap();
        entered(&system, change).await.unwrap();
    }
    for change in [&one, &two] {
        let set = decided(&system, change).await.unwrap();
        assert_eq!(text(&set, "result"), "SUCCESS", "{set}");
    }
    ends_right(&system, Expected { landed: &[&one, &two], refused: &[] }).await.unwrap();
    over.store(true, Ordering::SeqCst);
    watch.join().unwrap();
    let most = most.load(Ordering::SeqCst);
    assert!((3..=5).contains(&most), "{most} nodes existed at once");
}

/// C2.2: the credentials of a function allow only what its policy allows; the refusal names the
/// function, the action and the resource.
async fn a_call_beyond_a_functions_policy_is_refused(system: &System) {
    let keys: Value =
        serde_json::from_str(&std::fs::read_to_string(system.data().join("keys.json")).unwrap())
            .unwrap();
    let key = |name: &str| keys["webhook"][name].as_str().unwrap().to_owned();
    let credentials = Credentials::new(
        key("access_key_id"),
        key("secret_access_key"),
        Some(key("session_token")),
        None,
        "test",
    );
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(credentials)
        .endpoint_url(system.endpoint())
        .build();
    let dynamo = aws_sdk_dynamodb::Client::from_conf(config);
    let key = || AttributeValue::S("tenants".to_owned());
    let allowed = dynamo
        .get_item()
        .table_name("sluice-records")
        .key("pk", key())
        .key("sk", key())
        .send()
        .await;
    allowed.unwrap();
    let refused = dynamo
        .delete_item()
        .table_name("sluice-records")
        .key("pk", key())
        .key("sk", key())
        .send()
        .await;
    let refusal = DisplayErrorContext(refused.unwrap_err()).to_string();
    for part in ["AccessDenied", "webhook", "dynamodb:DeleteItem", "table/sluice-records"] {
        assert!(refusal.contains(part), "{part} is not named: {refusal}");
    }
}

/// C2.2: a webhook with a wrong signature gets a bare refusal and leaves no record.
async fn a_webhook_with_a_wrong_signature_is_refused_and_not_stored(system: &System) {
    let body = json!({"action": "opened", "repository": {"full_name": ONE}}).to_string();
    assert_eq!(post(system, "stranger-1", "pull_request", &body, "a guess").await, 401);
    assert_eq!(post(system, "known-1", "ping", "{}", &secret(system)).await, 202);
    let ports = system.operator().await.unwrap();
    let key = |guid: &str| delivery::key(&delivery::id(&CONNECTION.into(), guid));
    let stored = ports.records.get(&[key("stranger-1"), key("known-1")]).await.unwrap();
    assert!(stored[0].is_none(), "{stored:?}");
    assert!(stored[1].is_some(), "the signed webhook is stored, so the key is the right one");
}

/// C5: a webhook body that is too large for Lambda is refused, and the sweep finds its change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_of_25_megabytes_is_refused_and_the_sweep_finds_its_change() {
    let system =
        System::start(UpOptions { poll_minutes: Some(1), ..UpOptions::default() }).await.unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let forge = system.forge().unwrap();
    // Covers all webhooks of a change: pushes of its branch, its opening, its approval.
    forge.fault(ONE, json!({"kind": "huge-bodies", "bytes": 25_000_000}), 10).await.unwrap();
    let change = forge.propose(ONE, "Huge", &[("greetings/huge", "Hello!\n")]).await.unwrap();
    approve(&system, &change).await.unwrap();
    let refused = until("the approval to be refused for its size", async || {
        let deliveries = forge.deliveries(ONE).await?;
        let of_change: Vec<_> =
            deliveries.into_iter().filter(|one| one.event.starts_with("pull_request")).collect();
        // On a busy machine the forge may time out before 25 MB are sent; an administrator would
        // redeliver the webhook.
        let mut guids = BTreeSet::new();
        let newest = of_change.iter().filter(|one| guids.insert(&one.sent.guid));
        for failed in newest.filter(|one| one.failed) {
            forge.redeliver(failed).await?;
        }
        let refused: Vec<u64> =
            of_change.iter().map(|one| one.status).filter(|status| *status != 0).collect();
        Ok((refused.len() >= 2).then_some(refused))
    })
    .await
    .unwrap();
    assert!(refused.iter().all(|status| *status == 413), "{refused:?}");
    let set = decided(&system, &change).await.unwrap();
    assert_eq!(text(&set, "result"), "SUCCESS", "{set}");
    ends_right(&system, Expected { landed: &[&change], refused: &[] }).await.unwrap();
}

/// C5: a signed webhook that cannot be parsed is quarantined once and not tried again.
async fn a_malformed_webhook_is_quarantined_and_shown(system: &System) {
    let secret = secret(system);
    let body = "{\"action\": \"opened\", \"number\": \"seven\"";
    for _ in 0..2 {
        assert_eq!(post(system, "malformed-1", "pull_request", body, &secret).await, 202);
    }
    let ports = system.operator().await.unwrap();
    let quarantined = quarantine::read(&ports).await.unwrap();
    let [(name, webhook)] = quarantined.as_slice() else { panic!("{quarantined:?}") };
    assert!(
        name.ends_with("malformed-1") && webhook.body == body && !webhook.reason.is_empty(),
        "{name}: {webhook:?}"
    );
    assert_eq!(
        audit::open_deliveries(&ports).await.unwrap(),
        Vec::<String>::new(),
        "its delivery is final at once"
    );
    // The messages behind it in the same queue were handled, and it is in no queue.
    let log = system.log().unwrap();
    assert!(
        !log.contains("a reconciliation failed") && !log.contains("messages come again"),
        "{log}"
    );
    let shown = std::process::Command::new(sluice_local_tests::system::program().unwrap())
        .args(["quarantine", "--data"])
        .arg(system.data())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("malformed-1") && shown.contains(&webhook.reason), "{shown}");
}

/// C2.2, C5: what a system without any change refuses or sets aside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_calls_and_malformed_webhooks_are_refused_or_quarantined() {
    let system = System::start(UpOptions::default()).await.unwrap();
    a_call_beyond_a_functions_policy_is_refused(&system).await;
    a_webhook_with_a_wrong_signature_is_refused_and_not_stored(&system).await;
    a_malformed_webhook_is_quarantined_and_shown(&system).await;
}

/// C16: a repository disappears while its change is tested. The change ends with a reason, the
/// other project's gate keeps working, and the gate works again once the repository is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_disappears_stops_no_other_project() {
    let system = System::start(UpOptions::default()).await.unwrap();
    configure(&system, ["quick", "quick"]).await.unwrap();
    let (forge, client) = (system.forge().unwrap(), system.client().unwrap());
    let orphan = forge.propose(TWO, "Orphan", &[("slow", "4\n")]).await.unwrap();
    let other = forge.propose(ONE, "Other", &[("greetings/other", "Hello!\n")]).await.unwrap();
    approve(&system, &orphan).await.unwrap();
    until("its build to run", async || {
        let board: Value = client.get("tenant/demo/board").await?;
        Ok(board.to_string().contains("\"state\":\"running\"").then_some(()))
    })
    .await
    .unwrap();
    let folder = system.data().join("forge/git").join(format!("{TWO}.git"));
    let away = folder.with_extension("away");
    std::fs::rename(&folder, &away).unwrap();

    let set = decided(&system, &orphan).await.unwrap();
    assert_ne!(text(&set, "result"), "SUCCESS", "{set}");
    let item: Value =
        client.get(&format!("tenant/demo/item/{}", text(&set, "uuid"))).await.unwrap();
    let reasons = item["reasons"].to_string();
    assert!(reasons.contains("the forge does not know it"), "the end says why: {reasons}");
    approve(&system, &other).await.unwrap();
    assert_eq!(text(&decided(&system, &other).await.unwrap(), "result"), "SUCCESS");

    std::fs::rename(&away, &folder).unwrap();
    let back: PullRequest = forge.propose(TWO, "Back", &[("back", "yes\n")]).await.unwrap();
    approve(&system, &back).await.unwrap();
    assert_eq!(text(&decided(&system, &back).await.unwrap(), "result"), "SUCCESS");
    ends_right(&system, Expected { landed: &[&other, &back], refused: &[] }).await.unwrap();
}

/// Z1.6: the machines of a label refuse every login. Its requests fail after the configured
/// attempts, and no machine is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_never_boot_fail_their_job_and_are_deleted() {
    let system = System::start(UpOptions::default()).await.unwrap();
    configure(&system, ["unreachable", "quick"]).await.unwrap();
    let forge = system.forge().unwrap();
    let silent = forge.propose(ONE, "Silent", &[("greetings/silent", "…!\n")]).await.unwrap();
    let behind = forge.propose(TWO, "Behind", &[("behind", "yes\n")]).await.unwrap();
    for change in [&silent, &behind] {
        approve(&system, change).await.unwrap();
        entered(&system, change).await.unwrap();
    }
    let set = decided(&system, &silent).await.unwrap();
    assert_eq!(
        builds(&set).iter().map(|build| build.1).collect::<Vec<_>>(),
        ["NODE_FAILURE"],
        "{set}"
    );
    decided(&system, &behind).await.unwrap();
    ends_right(&system, Expected { landed: &[&behind], refused: &[&silent] }).await.unwrap();
    let launched = "is launched as forge.local/org/config/silent ";
    let launches = system.log().unwrap().lines().filter(|line| line.contains(launched)).count();
    assert_eq!(
        launches,
        3 * 2,
        "three placements, each with as many attempts as `launch-attempts` says"
    );
}

/// Z4.3: the job's `timeout` ends a playbook that hangs, and its log says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_playbook_that_hangs_is_ended_by_its_jobs_timeout() {
    let system = System::start(UpOptions::default()).await.unwrap();
    configure(&system, ["hanging", "quick"]).await.unwrap();
    let forge = system.forge().unwrap();
    let change = forge.propose(ONE, "Hanging", &[("greetings/hanging", "Wait!\n")]).await.unwrap();
    approve(&system, &change).await.unwrap();
    let set = decided(&system, &change).await.unwrap();
    let built = builds(&set);
    let [("hanging", "TIMED_OUT", log)] = built.as_slice() else { panic!("{set}") };
    let inventory = system
        .client()
        .unwrap()
        .text(&format!("{log}zuul-info/inventory.yaml"))
        .await
        .unwrap()
        .unwrap();
    assert!(inventory.contains("zuul:"), "{inventory}");
    let log =
        system.client().unwrap().text(&format!("{log}job-output.txt")).await.unwrap().unwrap();
    assert!(
        log.contains("Ran out of time: timeout of 3 s") && log.contains("RESULT_TIMED_OUT"),
        "{log}"
    );
    ends_right(&system, Expected { landed: &[], refused: &[&change] }).await.unwrap();
}
