//! Live and archived logs of a build (Z7.4).

use crate::support::*;
use serde_json::{Value, json};
use sluice_executor::returned_data::store_data;
use sluice_model::build::BuildResult::*;

/// Z7.4
#[tokio::test]
async fn the_log_is_read_while_the_build_runs_and_followed_to_its_end() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg=before
    - wait_for: {path: "{{ zuul.executor.work_root }}/go", sleep: 1, timeout: 120}
    - debug: msg=after
"#;
    let mut story = Story::new(&[(PROJECT, "slow.yaml", play)]);
    story.job.run = vec![untrusted("slow")];
    let go = story.directory.path().join("job/work/go");
    let (sender, followed) = tokio::sync::oneshot::channel();
    let outcome = story
        .run_with(|meanwhile| {
            tokio::spawn(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address =
                    format!("http://{}/log/{}", listener.local_addr().unwrap(), meanwhile.build);
                tokio::spawn(async move { axum::serve(listener, meanwhile.logs.router()).await });
                meanwhile.seen.wait_for("ok: before").await;
                let read = |address: String| {
                    reqwest::Client::new().get(address).bearer_auth(LOG_TOKEN).send()
                };
                let now = read(format!("{address}?offset=0")).await.unwrap();
                assert_eq!(now.headers()["x-log-ended"], "0");
                let text = now.text().await.unwrap();
                assert!(text.contains("ok: before") && !text.contains("ok: after"));
                let rest = read(format!("{address}?offset={}&follow=1", text.len())).await.unwrap();
                std::fs::write(go, "").unwrap();
                let missing = address.replace(meanwhile.build.as_str(), "nothing");
                assert_eq!(read(missing).await.unwrap().status(), 404);
                drop(meanwhile.seen);
                sender.send((text, rest)).unwrap();
            });
        })
        .await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let (text, rest) = followed.await.unwrap();
    // The end of the build is the end of the answer.
    let log = outcome.log.clone();
    drop(outcome);
    assert_eq!(format!("{text}{}", rest.text().await.unwrap()), log);
}

/// Z7.4
#[tokio::test]
async fn archived_files_describe_tasks_hosts_and_tested_commits() {
    let play = "- name: Look\n  hosts: all\n  gather_facts: false\n  tasks:\n    - name: Say\n      command: echo hi\n    - command: 'false'\n      ignore_errors: true\n    - debug: msg=x\n      when: false\n";
    let mut story = Story::new(&[(PROJECT, "look.yaml", play)]).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("look")];
    let commit = story.project.1.id.clone();
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let record: Value = serde_json::from_str(&outcome.read("work/logs/job-output.json")).unwrap();
    let entry = &record[0];
    assert_eq!(entry["phase"], "run");
    assert_eq!(entry["plays"][0]["play"]["name"], "Look");
    assert_eq!(entry["plays"][0]["tasks"][0]["task"]["name"], "Say");
    assert_eq!(entry["plays"][0]["tasks"][0]["hosts"]["one"]["stdout"], "hi");
    assert_eq!(entry["stats"]["one"]["ignored"], 1);
    assert!(outcome.read("work/logs/workspace-repos.json").contains(commit.as_str()));
    let inventory: serde_yaml::Value =
        serde_yaml::from_str(&outcome.read("work/logs/zuul-info/inventory.yaml")).unwrap();
    assert_eq!(inventory["all"]["vars"]["zuul"]["change"], serde_yaml::Value::from("7"));
    for text in [
        "PLAY [Look]",
        "TASK [Say]",
        "one | hi",
        "one | changed",
        "one | Runtime: 0:00:0",
        "one | skipping: Conditional",
        "ok: 2 changed: 2",
    ] {
        assert!(outcome.log.contains(text), "{text}\n{}", outcome.log);
    }
    let files = sluice_executor::archive::log_files(&outcome.jobdir).files;
    assert!(
        files.contains(&"job-output.txt".into())
            && files.contains(&"zuul-info/inventory.yaml".into())
    );
}

/// Z7.4
#[tokio::test]
async fn what_a_job_returns_is_merged_over_calls_and_checked() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - zuul_return: {data: {a: {b: 1}, zuul: {artifacts: [{name: one, url: one.txt}], child_jobs: [next]}}}
    - zuul_return: {data: {a: {c: 2}, zuul: {artifacts: [{name: two, url: two.txt, metadata: {type: docs}}]}}}
    - zuul_return: {data: {zuul: {artifacts: [{name: three}]}}}
      ignore_errors: true
    - fail: {msg: "on purpose"}
"#;
    let mut story = Story::new(&[(PROJECT, "return.yaml", play)]);
    story.job.pre_run = vec![untrusted("return")];
    let returned = story.run().await;
    assert_eq!(returned.ended.result, Retry, "{}", returned.log);
    assert_eq!(returned.ended.data["a"], json!({ "b": 1, "c": 2 }));
    let names = returned.ended.data["zuul"]["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|artifact| artifact["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), [json!("one"), json!("two")]);
    assert_eq!(returned.ended.data["zuul"]["child_jobs"], json!(["next"]));
    assert!(returned.log.contains("an artifact must have name and url"), "{}", returned.log);
}

/// Z7.4: whatever of a job's data and logs is dropped is a line in its log and a warning of the
/// build.
#[tokio::test]
async fn what_is_dropped_of_a_job_is_a_line_in_its_log_and_a_warning() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - zuul_return: {data: {zuul: {child_jobs: [], log_url: "https://logs.test/{{ 'u' * 2000 }}", warnings: "{{ ['w' * 200] * 200 }}"}}}
    - command: truncate -s 300M {{ zuul.executor.log_root }}/huge
"#;
    let mut story = Story::new(&[(PROJECT, "much.yaml", play)]);
    story.job.run = vec![untrusted("much")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let world = sluice_memory::World::new(1, 0, sluice_model::Timestamp(0));
    let stored =
        store_data(&world.ports(), &"one".into(), outcome.ended.data.clone()).await.unwrap().0;
    assert_eq!(stored["zuul"]["child_jobs"], json!([]), "the queue sees it");
    let warnings = stored["zuul"]["warnings"].to_string();
    for dropped in [
        "a log_url of 2018 bytes, but the limit is 2000 bytes",
        "1 log file was not archived: a file may have 256 MiB",
        "more than the 24576 bytes that the record of a build holds; left out: ",
    ] {
        assert!(warnings.contains(dropped), "{dropped}: {warnings}");
        assert!(outcome.log.contains(dropped), "{dropped}: {}", outcome.log);
    }
}

/// Z7.4: data also comes from files, secret data apart from it, lists of warnings and file comments
/// grow, other values are replaced, and `path` names another results file.
#[tokio::test]
async fn returned_data_comes_from_files_too_and_its_lists_grow() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  vars: {here: "{{ zuul.executor.work_root }}"}
  tasks:
    - shell: echo '{"x":{"from":"file"},"zuul":{"warnings":["one"],"file_comments":{"a":[{"line":1,"message":"m"}]}}}' > {{ here }}/data.json
    - shell: echo '{"token":"from-a-secret-file"}' > {{ here }}/secret.json
    - zuul_return: {file: "{{ here }}/data.json", secret_file: "{{ here }}/secret.json", data: {x: {too: 1}}}
    - zuul_return:
        data: {x: {from: task}, zuul: {warnings: [two], file_comments: {a: [{line: 2, message: n}], b: []}, log_url: "https://logs.test/1/"}}
        secret_data: {other: also-secret}
    - zuul_return: {path: "{{ here }}/other.json", data: {only: there}}
    - shell: cat {{ here }}/other.json
    - zuul_return: {data: {zuul: {log_url: 7, warnings: ["x", 1], child_jobs: no}}}
      ignore_errors: true
    - zuul_return: {data: {}, unknown: 1}
      ignore_errors: true
"#;
    let mut story = Story::new(&[(PROJECT, "return.yaml", play)]);
    story.job.run = vec![untrusted("return")];
    let returned = story.run().await;
    assert_eq!(returned.ended.result, Success, "{}", returned.log);
    let data = &returned.ended.data;
    assert_eq!(data["x"], json!({ "from": "task", "too": 1 }));
    assert_eq!(data["zuul"]["warnings"], json!(["one", "two"]));
    assert_eq!(data["zuul"]["file_comments"]["a"].as_array().unwrap().len(), 2);
    assert_eq!(returned.ended.log_url.as_deref(), Some("https://logs.test/1/"));
    assert!(!data.contains_key("only") && !data.contains_key("token"));
    let secret = returned.seen.secret_data.lock().unwrap().clone();
    assert_eq!(json!(secret), json!({"token": "from-a-secret-file", "other": "also-secret"}));
    for text in [
        r#"localhost | {"data": {"only": "there"}, "secret_data": {}}"#,
        "zuul.log_url must be a string; zuul.warnings must be a list of strings; zuul.child_jobs must be a list",
        "Invalid options for zuul_return: unknown",
    ] {
        assert!(returned.log.contains(text), "{text}\n{}", returned.log);
    }
}

/// Z7.4, G05: changes ahead shift the lines of a file; comments refer to the lines of the change.
#[tokio::test]
async fn comments_on_lines_of_a_merged_file_are_mapped_to_the_change() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - zuul_return:
        data:
          zuul:
            file_comments:
              a.txt:
                - {line: 5, message: unused}
                - {line: 1, message: new}
                - {range: {start_line: 4, start_character: 0, end_line: 5, end_character: 2}, message: long}
              made.txt: [{line: 3, message: by the job}]
              theirs.txt: [{line: 1, message: not its own}]
"#;
    let mut story =
        Story::new(&[(PROJECT, "say.yaml", play), (PROJECT, "a.txt", "one\ntwo\nthree\n")]);
    let ahead = [("a.txt", "put\nin\none\ntwo\nthree\n"), ("theirs.txt", "x\n")];
    story.merge(&ahead, &[("a.txt", "one\ntwo\nTHREE\n")]);
    story.job.run = vec![untrusted("say")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let comments = &outcome.ended.data["zuul"]["file_comments"];
    let not_own = "of the tested file; not part of this change";
    let expected = json!({
        "a.txt": [
            {"line": 3, "message": "unused"},
            {"line": 1, "message": format!("new (line 1 {not_own})")},
            {"range": {"start_line": 2, "start_character": 0, "end_line": 3, "end_character": 2}, "message": "long"},
        ],
        "made.txt": [{"line": 3, "message": "by the job"}],
        "theirs.txt": [{"line": 1, "message": format!("not its own (line 1 {not_own})")}],
    });
    assert_eq!(*comments, expected, "{}", outcome.log);
    let said = "Line numbers of comments on made.txt were not mapped to the change: there is no such file in the tested state";
    assert!(outcome.log.contains(said), "{}", outcome.log);
}

/// Z7.1
#[tokio::test]
async fn a_job_can_say_that_its_failed_pre_run_counts() {
    let play = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - zuul_return: {data: {zuul: {retry: false}}}\n    - fail: {msg: no}\n";
    let mut story = Story::new(&[(PROJECT, "no.yaml", play)]);
    story.job.pre_run = vec![untrusted("no")];
    assert_eq!(story.run().await.ended.result, Failure);
}

/// Z7.7: roles that upload logs send `job-output.json` too, from a post-run playbook.
#[tokio::test]
async fn a_playbook_finds_the_record_of_those_before_it() {
    let run = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - name: Before\n      command: \"true\"\n";
    let post = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - command: grep -c Before {{ zuul.executor.log_root }}/job-output.json\n";
    let mut story = Story::new(&[(PROJECT, "run.yaml", run), (PROJECT, "post.yaml", post)]);
    story.job.run = vec![untrusted("run")];
    story.job.post_run = vec![untrusted("post")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
}
