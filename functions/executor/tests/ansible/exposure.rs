//! What happens if a playbook prints a secret (`secret-exposure`).

use crate::support::*;
use serde_json::{Value, json};
use sluice_model::build::BuildResult::*;
use sluice_model::job::SecretExposure;

const VALUE: &str = "correct-horse-battery";

const PRINT: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="before"
    - debug: msg="value {{ login.password }}"
    - debug: msg="after"
    - command: "sleep {{ wait | default(0) }}"
"#;

const SAY: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="post-run"
"#;

/// A job whose main playbook prints a secret and then waits for `wait_seconds`; a normal and a
/// cleanup playbook follow.
fn story(exposure: SecretExposure, wait_seconds: u32) -> Story {
    let mut story = Story::new(&[
        (CONFIG, "print.yaml", PRINT),
        (PROJECT, "say.yaml", SAY),
        (PROJECT, "clean.yaml", &SAY.replace("post-run", "cleanup")),
    ]);
    let mut playbook = story.trusted("print");
    story.secret(&mut playbook, "login", json!({ "password": VALUE }));
    story.job.run = vec![playbook];
    let mut cleanup = untrusted("clean");
    cleanup.cleanup = true;
    story.job.post_run = vec![untrusted("say"), cleanup];
    story.job.vars = vars(json!({ "wait": wait_seconds }));
    story.job.run_time.secret_exposure = exposure;
    story
}

/// Z5.4, Z4.3: `secret-exposure: redact` leaves out the line, and the playbook's output in
/// `job-output.json`.
#[tokio::test]
async fn a_line_with_a_secret_is_left_out() {
    let outcome = story(SecretExposure::Redact, 0).run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for line in ["ok: before", "[This line contained a secret and is left out]", "ok: after"] {
        assert!(outcome.log.contains(line), "{line}\n{}", outcome.log);
    }
    assert!(!outcome.log.contains("value "), "{}", outcome.log);
    let entries: Value = serde_json::from_str(&outcome.read("work/logs/job-output.json")).unwrap();
    assert_eq!(entries[0]["plays"], json!([]), "{entries}");
    assert!(entries[0]["secret_exposure"].as_str().unwrap().contains("contained a secret"));
    assert!(entries[1]["plays"][0]["tasks"].is_array(), "{entries}");
}

/// Z5.4, Z4.3: `secret-exposure: fail` ends the build at once; after that only cleanup playbooks
/// run.
#[tokio::test]
async fn a_build_that_prints_a_secret_fails_at_once() {
    let outcome = story(SecretExposure::Fail, 1000).run().await;
    assert_eq!(outcome.ended.result, Failure, "{}", outcome.log);
    let detail = outcome.ended.detail.as_deref().unwrap();
    assert!(detail.contains("Printed a secret"), "{detail}");
    assert!(outcome.log.contains("RUN END RESULT_SECRET_EXPOSURE"), "{}", outcome.log);
    assert!(!outcome.log.contains(VALUE) && !outcome.log.contains("ok: post-run"));
    assert!(outcome.log.contains("ok: cleanup"), "{}", outcome.log);
    assert!(outcome.log.contains("POST-RUN END RESULT_NORMAL"), "{}", outcome.log);
}

/// Z5.4: values that the job names in `zuul.redactions` count from the next playbook on.
#[tokio::test]
async fn a_later_playbook_must_not_print_what_the_job_named() {
    let name = format!(
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg={VALUE}\n    \
         - zuul_return: {{data: {{zuul: {{redactions: [{VALUE}]}}}}}}\n"
    );
    let print =
        format!("- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg={VALUE}\n");
    let files = [(PROJECT, "name.yaml", name.as_str()), (PROJECT, "print.yaml", print.as_str())];
    let mut story = Story::new(&files);
    story.job.run = vec![untrusted("name"), untrusted("print")];
    story.job.run_time.secret_exposure = SecretExposure::Fail;
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Failure, "{}", outcome.log);
    assert_eq!(outcome.log.matches(&format!("ok: {VALUE}")).count(), 1, "{}", outcome.log);
    assert!(outcome.log.contains("RUN END RESULT_NORMAL"), "{}", outcome.log);
}
