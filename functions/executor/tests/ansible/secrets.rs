//! Secrets reach their playbook and nothing else (Z5.4, Z5.5).

use crate::support::*;
use serde_json::json;
use sluice_model::build::BuildResult::*;

const VALUE: &str = "correct-horse-battery";

const USE: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="length {{ login.password | length }}, value {{ login.password }}"
    - command: "echo {{ login.password }}"
    - zuul_return:
        data: {seen: "{{ login.password }}", zuul: {log_url: "https://logs.test/x/"}}
        secret_data: {token: abcdefgh}
"#;

const LOOK: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="{{ 'has it' if login is defined else 'has it not' }}"
"#;

/// Z5.5, Z5.4
#[tokio::test]
async fn a_secret_reaches_its_playbook_and_no_file_log_or_other_playbook() {
    let mut story = Story::new(&[(CONFIG, "use.yaml", USE), (PROJECT, "look.yaml", LOOK)]);
    let mut playbook = story.trusted("use");
    story.secret(&mut playbook, "login", json!({ "user": "deploy", "password": VALUE }));
    story.job.run = vec![playbook];
    story.job.post_run = vec![untrusted("look")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("length 21, value [REDACTED]"), "{}", outcome.log);
    assert!(outcome.log.contains("ok: has it not"), "{}", outcome.log);
    assert_eq!(outcome.ended.data["seen"], json!("[REDACTED]"));
    assert_eq!(json!(*outcome.seen.secret_data.lock().unwrap()), json!({ "token": "abcdefgh" }));
    assert!(!json!(outcome.ended).to_string().contains("abcdefgh"));
    assert_eq!(outcome.ended.log_url.as_deref(), Some("https://logs.test/x/"));
    let found = std::process::Command::new("grep")
        .args(["-rl", VALUE])
        .arg(&outcome.jobdir)
        .output()
        .unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    // The playbook itself returned it, into the file that only the executor reads.
    assert_eq!(found.trim(), outcome.jobdir.join("work/results.json").display().to_string());
    assert!(outcome.read("work/logs/job-output.json").contains("[REDACTED]"));
}

/// Z5.4, Z4.3: what a job before returned as secret is a secret of this one's playbooks, and its
/// own definition's word counts before it.
#[tokio::test]
async fn what_a_job_before_returned_as_secret_is_seen_by_playbooks_and_written_nowhere() {
    let print = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="token {{ token }} of {{ token | length }}, user of {{ login.user | length }}, steered {{ ansible_user is defined }}"
"#;
    let mut story = Story::new(&[(CONFIG, "print.yaml", print), (PROJECT, "look.yaml", print)]);
    let mut playbook = story.trusted("print");
    story.secret(
        &mut playbook,
        "login",
        json!({ "user": "deploy", "password": "unsaid-password" }),
    );
    story.job.run = vec![playbook];
    story.job.post_run = vec![untrusted("look")];
    story.inherited.secret_data =
        vars(json!({ "token": VALUE, "login": { "user": "operator" }, "ansible_user": "root" }));
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let said: Vec<&str> = outcome.log.lines().filter(|line| line.contains("ok: token")).collect();
    assert!(said[0].ends_with("token [REDACTED] of 21, user of 6, steered False"), "{said:?}");
    assert!(said[1].ends_with("token [REDACTED] of 21, user of 8, steered False"), "{said:?}");
    let found = std::process::Command::new("grep")
        .args(["-rl", VALUE])
        .arg(&outcome.jobdir)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

/// Z5.4
#[tokio::test]
async fn a_variable_of_the_change_cannot_make_a_trusted_playbook_say_a_secret() {
    let print = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="{{ harmless }} and {{ greeting }} with {{ login.password | length }}"
      ignore_errors: true
    - debug: msg="title {{ zuul.change_message }}"
"#;
    let mut story = Story::new(&[(CONFIG, "print.yaml", print)]);
    let mut playbook = story.trusted("print");
    story.secret(&mut playbook, "login", json!({ "password": VALUE }));
    story.job.run = vec![playbook];
    story.job.vars = vars(
        json!({ "harmless": "{{ login.password | b64encode }}", "greeting": "{{ 'hel' ~ 'lo' }}" }),
    );
    let outcome = story.run().await;
    assert!(!outcome.log.contains("Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"), "{}", outcome.log);
    assert!(outcome.log.contains("ok: title Say {{ lookup('env', 'HOME') }}"), "{}", outcome.log);
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
}

/// Z5.5
#[tokio::test]
async fn a_secret_that_could_not_be_decrypted_is_a_configuration_error() {
    let mut story = Story::new(&[(CONFIG, "use.yaml", USE)]);
    let mut playbook = story.trusted("use");
    story.secret(&mut playbook, "login", json!({}));
    story.secrets = sluice_executor::OpenedSecrets::default();
    story.job.run = vec![playbook];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, ConfigError);
    assert!(outcome.ended.detail.as_deref().unwrap().contains("secret login"));
}
