//! Secrets reach their playbook and nothing else (Z5.4, Z5.5).

use crate::support::*;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;
use sluice_executor::id_token::TokenIssuer;
use sluice_keys::token::{TokenSigner, json_web_key};
use sluice_keys::{ProjectKey, SignatureKey};
use sluice_model::build::BuildResult::*;
use sluice_model::job::{OidcToken, SecretUse};
use std::sync::Arc;

const VALUE: &str = "correct-horse-battery";

const USE: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="length {{ login.password | length }}, value {{ login.password }}"
    - command: "echo {{ login.password }}"
    - zuul_return:
        data: {seen: "{{ login.password }}", zuul: {log_url: "https://logs.test/x/?key={{ login.password }}"}}
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
    assert_eq!(outcome.ended.log_url.as_deref(), Some("https://logs.test/x/?key=[REDACTED]"));
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

/// Z5.4, Z7.5: a text that begins with `#jinja2:` says itself what its templates look like.
async fn a_text_that_brings_signs_of_templates_is_not_expanded(version: &str) {
    let print = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="title {{ zuul.change_message }}"
    - debug: msg="items {{ zuul['items'][-1].change_message }}"
    - debug: msg="job {{ sly }}"
    - debug: msg="made {{ made }}"
    - debug: msg="group {{ nested.list[0] }}"
    - debug: msg="extra {{ extra }}"
    - debug: msg="returned {{ returned.inner }}"
    - debug: msg="cut {{ cut }}"
      vars: {cut: "{{ returned.late | regex_replace('^late ', '') }}"}
    - set_fact: {kept: "{{ returned.late | regex_replace('^late ', '') }}"}
    - debug: msg="kept {{ kept }}"
    - debug: msg="length {{ login.password | length }}"
"#;
    let mut story = Story::new(&[(CONFIG, "print.yaml", print)]);
    story.job.ansible_version = Some(version.to_owned());
    let mut playbook = story.trusted("print");
    story.secret(&mut playbook, "login", json!({ "password": VALUE }));
    story.job.run = vec![playbook];
    let signs = "#jinja2:variable_start_string:'[[',variable_end_string:']]'";
    let body = |name: &str| {
        format!(
            "[[ lookup('pipe', 'touch ~/ran-{name}') ]] [[ login.password | b64encode ]] [[ 7 * 191 ]]"
        )
    };
    let text = |name: &str| format!("{signs}\n{}", body(name));
    story.message = (signs.to_owned(), body("message"));
    story.job.vars = vars(json!({
        "sly": format!("{signs}\n[[ login.password | default('nothing') | b64encode ]]"),
        // What comes out of it looks like a template.
        "made": format!("{{{{ \"{signs}\" ~ '\n[' ~ '[ 7 * 191 ]' ~ ']' }}}}"),
        "nested": { "list": ["{{ '{' ~ '{ 7 * 191 }' ~ '}' }}"] },
    }));
    story.job.extra_vars = vars(json!({ "extra": text("extra") }));
    story.inherited.data = vars(
        json!({ "returned": { "inner": text("inner"), "late": format!("late {}", text("late")) } }),
    );
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for name in ["title", "items", "made", "extra", "returned", "cut", "kept"] {
        assert!(outcome.log.contains(&format!(" {name} {signs}")), "{name}\n{}", outcome.log);
    }
    assert!(outcome.log.contains("ok: job bm90aGluZw=="), "{}", outcome.log);
    assert!(outcome.log.contains("ok: group {{ 7 * 191 }}"), "{}", outcome.log);
    assert!(outcome.log.contains("ok: length 21"), "{}", outcome.log);
    for said in ["1337", "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"] {
        assert!(!outcome.log.contains(said), "{said}\n{}", outcome.log);
    }
    let home = std::fs::read_dir(outcome.jobdir.join("homes/trusted/home")).unwrap();
    let ran = home.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let ran: Vec<String> = ran.filter(|name| name.starts_with("ran-")).collect();
    assert!(ran.is_empty(), "{ran:?}");
}

/// Z5.4, Z7.5
#[tokio::test]
async fn no_text_of_a_change_brings_its_own_signs_of_templates() {
    for version in ["9", "11"] {
        a_text_that_brings_signs_of_templates_is_not_expanded(version).await;
    }
}

/// Z5.4: what a job returns for masking has limits, so that a build does not keep its executor
/// busy; the log and a warning name them.
#[tokio::test]
async fn millions_of_bytes_for_masking_do_not_delay_the_next_playbook() {
    let flood = "
- hosts: localhost
  gather_facts: false
  tasks:
    - command:
        argv:
          - python3
          - -c
          - |
            import json
            values = ['%06x' % number for number in range(400000)]
            json.dump({'data': {'zuul': {'redactions': values}}}, open('{{ zuul.executor.result_data_file }}', 'w'))
";
    let next = "
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg='first 000000, last 061a7f'
    - zuul_return: {data: {zuul: {redactions: [one-more]}}}
      ignore_errors: true
";
    let mut story = Story::new(&[(PROJECT, "flood.yaml", flood), (PROJECT, "next.yaml", next)]);
    story.job.run = vec![untrusted("flood"), untrusted("next")];
    let started = std::time::Instant::now();
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    // A search for each value takes a quarter of an hour.
    assert!(started.elapsed().as_secs() < 120, "{:?}", started.elapsed());
    assert!(outcome.log.contains("ok: first [REDACTED], last 061a7f"), "{}", outcome.log);
    assert!(outcome.log.contains("399000 values that the job returned"), "{}", outcome.log);
    assert!(outcome.log.contains("the limits are 1000 and 65536: return fewer"), "{}", outcome.log);
    assert!(json!(outcome.ended.data).to_string().contains("399000 values"));
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

/// Z5.5, Z5.4: a secret that requests a token is a text in its playbook: signed, with the claims of
/// the build and those of the secret, and masked in the log. Each playbook has a token of its own.
#[tokio::test]
async fn a_requested_token_names_the_build_and_is_masked() {
    let use_it = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - copy: {content: "{{ cloud }}", dest: "{{ zuul.executor.work_root }}/token-{{ zuul_execution_phase }}"}
    - debug: msg="token {{ cloud }}"
"#;
    let mut story = Story::new(&[(CONFIG, "use.yaml", use_it)]);
    let pair = ProjectKey::generate_for_signatures().unwrap();
    let signer = Arc::new(TokenSigner::from_pem(&pair.to_pem().unwrap()).unwrap());
    story.secrets.set_token_issuer(TokenIssuer { signer, issuer: "https://ci.test".to_owned() });
    let token = OidcToken {
        ttl_seconds: Some(900),
        claims: vars(json!({"aud": "cloud.test", "sub": "secret:other", "tenant": "other"})),
        ..OidcToken::default()
    };
    let secret = SecretUse {
        secret: "login".to_owned(),
        project: CONFIG.into(),
        connection: "forge".into(),
        data: json!({}),
        oidc: Some(token),
    };
    let mut playbook = story.trusted("use");
    playbook.secrets.insert("cloud".to_owned(), secret);
    story.job.run = vec![playbook.clone()];
    story.job.post_run = vec![playbook];
    let build = story.order.build.clone();
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert_eq!(outcome.log.matches("token [REDACTED]").count(), 2, "{}", outcome.log);
    let number = |text: &serde_json::Value| URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap();
    let published = json_web_key(&pair.public()).unwrap();
    let key = SignatureKey::public_from_numbers(&number(&published["n"]), &number(&published["e"]));
    let key = key.unwrap();
    let tokens = ["run", "post"].map(|phase| outcome.read(&format!("work/token-{phase}")));
    for token in &tokens {
        let (message, signature) = token.rsplit_once('.').unwrap();
        assert!(key.verifies(message.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()));
        let payload = message.split_once('.').unwrap().1;
        let payload = URL_SAFE_NO_PAD.decode(payload).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&payload).unwrap();
        let issued_at = claims["iat"].as_u64().unwrap();
        let expected = json!({
            "iss": "https://ci.test", "sub": format!("secret:one/{CONFIG}/login"), "aud": "cloud.test",
            "iat": issued_at, "exp": issued_at + 900, "build-uuid": build, "job-name": "unit",
            "playbook": "use", "pipeline": "check", "tenant": "one",
        });
        assert_eq!(claims, expected, "custom claims replace none of these");
        assert!(!outcome.log.contains(token.as_str()));
    }
}

/// Z5.5: a token that cannot be issued as its secret says ends the build before anything runs.
#[tokio::test]
async fn a_token_that_cannot_be_issued_is_a_configuration_error() {
    for (token, expected) in [
        (OidcToken { algorithm: Some("ES256".to_owned()), ..OidcToken::default() }, "only RS256"),
        (OidcToken { ttl_seconds: Some(9_999_999), ..OidcToken::default() }, "the longest is"),
    ] {
        let mut story = Story::new(&[(CONFIG, "look.yaml", LOOK)]);
        let mut playbook = story.trusted("look");
        let secret = SecretUse {
            secret: "login".to_owned(),
            project: CONFIG.into(),
            connection: "forge".into(),
            data: json!({}),
            oidc: Some(token),
        };
        playbook.secrets.insert("cloud".to_owned(), secret);
        story.job.run = vec![playbook];
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, ConfigError, "{}", outcome.log);
        let detail = outcome.ended.detail.clone().unwrap();
        assert!(detail.contains("secret login") && detail.contains(expected), "{detail}");
    }
}
