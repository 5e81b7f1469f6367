//! Reports by mail and MQTT.

use super::{CONFIG, MAIN, PROJECT, judge, propose};
use serde_json::{Value, json};
use sluice_memory::Fate;
use sluice_scenarios::Site;
use std::collections::BTreeSet;

/// Returns a site whose check reports by mail, by MQTT and on the forge.
fn site() -> Site {
    let reporters = "    success-message: All well with {change.number}.
    start: {mqtt: {topic: \"acme/{action}\"}}
    success:
      github: {status: success}
      mail: {to: dev@example.org, from: ci@example.org, subject: \"{pipeline.name}: {change.project} {change.number}\"}
      mqtt: {topic: \"{tenant}/{pipeline}/{project}/{branch}/{change}/{action}\", qos: 2, include-returned-data: true}
    failure: {github: {status: failure}, mail: {}}
- pipeline:
    name: gate";
    let before = "    success: {github: {status: success}}\n    failure: {github: {status: failure}}\n- pipeline:\n    name: gate";
    assert!(CONFIG.contains(before));
    let config = CONFIG.replace(before, reporters);
    let repositories: &[(&str, &[(&str, &str)])] = &[
        ("org/config", &[("zuul.yaml", &config)]),
        ("org/one", &[(".zuul.yaml", PROJECT), ("shared", "0")]),
    ];
    let mut site = Site::new(7, MAIN, repositories, judge);
    site.returns = |_| {
        let artifacts = json!([{"name": "docs", "url": "https://logs/docs"}]);
        serde_json::from_value(json!({"zuul": {"artifacts": artifacts}, "version": "1.2"})).unwrap()
    };
    site
}

fn status(site: &Site, change: &sluice_model::change::ChangeKey) -> Vec<String> {
    let statuses = site.forge.change(change).unwrap().facts.statuses;
    statuses.into_iter().map(|status| status.state).collect()
}

/// R07, Z6.1: a pipeline can have several reporters; the mail has the pipeline's message.
#[test]
fn a_result_is_sent_by_mail_with_the_subject_of_the_reporter() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    let mails = site.notifier.mails();
    let [mail] = mails.as_slice() else { panic!("{mails:?}") };
    assert_eq!(mail.subject, "check: org/one 1");
    assert_eq!(
        (mail.from.as_deref(), mail.to.as_deref()),
        (Some("ci@example.org"), Some("dev@example.org"))
    );
    assert!(
        mail.text.contains("- unit : SUCCESS") || mail.text.contains("- [unit]("),
        "{}",
        mail.text
    );
    assert!(mail.text.contains("https://sluice.test/t/demo/buildset/"), "{}", mail.text);
    let b = propose(&site, 2, &[("b", "broken unit")]);
    site.run();
    let mail = site.notifier.mails().pop().unwrap();
    assert_eq!((mail.from, mail.to), (None, None), "the connection has the addresses");
    assert_eq!(
        mail.subject.split(" against").next(),
        Some(format!("Report for change 2,{}", head(&site, &b)).as_str())
    );
    assert_eq!(site.ending(&["org/one"], &[&a, &b]).left_over, Vec::<String>::new());
}

fn head(site: &Site, change: &sluice_model::change::ChangeKey) -> String {
    site.forge.change(change).unwrap().facts.change.patchset
}

/// Z6.1: the MQTT message has the fields of Zuul's.
#[test]
fn a_result_is_published_with_its_builds_in_zuuls_format() {
    let mut site = site();
    let a = propose(&site, 1, &[("a", "x")]);
    site.run();
    let published = site.notifier.published();
    let [start, end] = published.as_slice() else { panic!("{published:?}") };
    assert_eq!((start.topic.as_str(), start.qos), ("acme/start", 0));
    assert_eq!((end.topic.as_str(), end.qos), ("demo/check/org/one/main/1/success", 2));
    let message: Value = serde_json::from_str(&end.payload).unwrap();
    for (path, expected) in [
        ("/action", json!("success")),
        ("/tenant", json!("demo")),
        ("/pipeline", json!("check")),
        ("/project", json!("org/one")),
        ("/branch", json!("main")),
        ("/change", json!("1")),
        ("/patchset", json!(head(&site, &a))),
        ("/change_url", json!("https://forge.test/org/one/pull/1")),
        ("/changes/0/change", json!("1")),
        ("/owner", json!("ada")),
        ("/message_id", json!(end.id)),
        ("/buildset/result", json!("SUCCESS")),
        ("/buildset/builds/0/job_name", json!("unit")),
        ("/buildset/builds/0/result", json!("SUCCESS")),
        ("/buildset/builds/0/voting", json!(true)),
        ("/buildset/builds/0/artifacts/0/url", json!("https://logs/docs")),
        ("/buildset/builds/0/returned_data", json!({"version": "1.2"})),
    ] {
        assert_eq!(message.pointer(path), Some(&expected), "{path} of {message}");
    }
    assert!(message["message"].as_str().unwrap().starts_with("All well with"), "{message}");
    let web_url = message["buildset"]["builds"][0]["web_url"].as_str().unwrap();
    assert!(web_url.starts_with("https://sluice.test/t/demo/build/"), "{web_url}");
    let message: Value = serde_json::from_str(&start.payload).unwrap();
    assert_eq!(message["buildset"]["builds"][0]["job_name"], "unit", "{message}");
    assert_eq!(message["buildset"]["result"], Value::Null);
}

/// R07: a report is sent at least once and always under the same id, whichever function dies at
/// which step; no other reporter waits for it.
#[test]
fn a_message_is_sent_at_least_once_under_one_id_whatever_dies() {
    let mut deaths = 0;
    for step in 0..160 {
        let mut site = site();
        site.set_fate(step, if step % 2 == 0 { Fate::DiesBefore } else { Fate::DiesAfter });
        let a = propose(&site, 1, &[("a", "x")]);
        site.run();
        site.sweep();
        deaths += site.deaths();
        let mails = site.notifier.mails();
        let ids: BTreeSet<&str> = mails.iter().map(|mail| mail.id.as_str()).collect();
        assert!(!mails.is_empty() && ids.len() == 1, "step {step}: {mails:?}");
        let ends = site
            .notifier
            .published()
            .into_iter()
            .filter(|publication| publication.topic.ends_with("success"));
        assert_eq!(
            ends.map(|publication| publication.id).collect::<BTreeSet<_>>().len(),
            1,
            "step {step}"
        );
        assert_eq!(status(&site, &a), ["success"], "step {step}");
        assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new(), "step {step}");
    }
    assert!(deaths > 50, "the steps cover this scenario: {deaths}");
}

/// R07: an unavailable mail server delays no other reporter and causes no duplicate report.
#[test]
fn an_unavailable_mail_server_delays_only_its_mails() {
    let mut site = site();
    site.notifier.turn_mails_away(3);
    let a = propose(&site, 1, &[("a", "x")]);
    site.run_until(|site| status(site, &a) == ["success"] && site.notifier.published().len() == 2);
    assert_eq!(site.notifier.mails().len(), 0);
    site.run();
    assert_eq!((site.notifier.mails().len(), site.notifier.published().len()), (1, 2));
    assert_eq!(site.ending(&["org/one"], &[&a]).left_over, Vec::<String>::new());
}
