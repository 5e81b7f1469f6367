//! How builds end.

use crate::support::*;
use sluice_executor::{AttemptScope, HolderAccess, HolderLookup};
use sluice_model::build::BuildResult::{self, *};
use sluice_model::build::{PlaybookPhase, PlaybookStart};
use std::path::Path;

const PASS: &str =
    "- hosts: all\n  gather_facts: false\n  tasks:\n    - command: echo all is well\n";
const FAIL: &str =
    "- hosts: all\n  gather_facts: false\n  tasks:\n    - command: sh -c 'echo broken; exit 3'\n";
const HERE: &str = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=here\n";
const FAIL_HERE: &str = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - fail: msg=no\n";
const HANG: &str =
    "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - command: sleep 1000\n";

fn files() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        (PROJECT, "pass.yaml", PASS),
        (PROJECT, "fail.yaml", FAIL),
        (PROJECT, "here.yaml", HERE),
        (PROJECT, "fail-here.yaml", FAIL_HERE),
        (PROJECT, "hang.yaml", HANG),
    ]
}

/// Z7.1, Z7.2
#[tokio::test]
async fn a_job_passes_on_two_nodes_with_groups_and_finds_the_merged_repository_there() {
    let play = r#"
- hosts: controller
  gather_facts: false
  roles: [prepare-workspace]
  tasks:
    - shell: git log --format=%s origin/main..HEAD; git remote get-url origin; cat tested.txt
      args: {chdir: "{{ zuul.project.src_dir }}"}
- hosts: workers
  gather_facts: false
  tasks:
    - command: "echo {{ inventory_hostname }} {{ greeting }} {{ zuul.change }} {{ zuul['items'] | length }}"
"#;
    let mut files = files();
    files.extend([
        (PROJECT, "playbooks/multi.yaml", play),
        (PROJECT, "tested.txt", "the merged state"),
    ]);
    let mut story = Story::new(&files)
        .with_nodes(&["one", "two"], &[("controller", &["one"]), ("workers", &["two"])]);
    story.job.run = vec![untrusted("multi")];
    story.job.vars = vars(serde_json::json!({ "greeting": "hello" }));
    story
        .job
        .group_vars
        .insert("workers".to_owned(), vars(serde_json::json!({ "greeting": "welcome" })));
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for line in [
        "one | the merged state",
        "one | file:///dev/null",
        "one | state",
        "two | two welcome 7 1",
        "RUN END RESULT_NORMAL",
    ] {
        assert!(outcome.log.contains(line), "{line}\n{}", outcome.log);
    }
}

async fn result_of(
    pre: &[&str],
    run: &[&str],
    post: &[&str],
    nodes: &[&str],
) -> (BuildResult, String) {
    let mut story = Story::new(&files()).with_nodes(nodes, &[]);
    story.job.pre_run = pre.iter().map(|path| untrusted(path)).collect();
    story.job.run = run.iter().map(|path| untrusted(path)).collect();
    story.job.post_run = post.iter().map(|path| untrusted(path)).collect();
    let outcome = story.run().await;
    (outcome.ended.result, outcome.log.clone())
}

/// Z7.1
#[tokio::test]
async fn a_failing_main_playbook_fails_the_build_and_post_run_still_happens() {
    let (result, log) = result_of(&["here"], &["fail", "pass"], &["here"], &["one"]).await;
    assert_eq!(result, Failure, "{log}");
    assert!(
        log.contains("one | broken")
            && log.contains("POST-RUN END RESULT_NORMAL")
            && !log.contains("all is well"),
        "{log}"
    );
}

/// Z7.1
#[tokio::test]
async fn a_failing_pre_run_does_not_count() {
    let (result, log) = result_of(&["fail-here"], &["pass"], &["here"], &[]).await;
    assert_eq!(result, Retry, "{log}");
    assert!(!log.contains("| RUN START"), "{log}");
}

/// Z7.1: a worker that is killed, as for lack of memory, says nothing about the job, also in an
/// included task that may fail.
#[tokio::test]
async fn a_killed_worker_of_ansible_does_not_count() {
    let kill = "- debug: msg=\"{{ lookup('pipe', 'kill -9 $PPID; sleep 60') }}\"\n";
    let play = |task: &str| {
        format!(
            "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - block:\n        {task}\n      rescue: [{{debug: msg=rescued}}]\n"
        )
    };
    let included = format!("{kill}  ignore_errors: true\n");
    let (direct, indirect) = (play(kill.trim()), play("- include_tasks: included.yaml"));
    let mut files = files();
    files.extend([
        (PROJECT, "direct.yaml", direct.as_str()),
        (PROJECT, "indirect.yaml", indirect.as_str()),
        (PROJECT, "included.yaml", included.as_str()),
    ]);
    for main in ["direct", "indirect"] {
        let mut story = Story::new(&files);
        story.job.run = vec![untrusted(main)];
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, Retry, "{main}: {}", outcome.log);
        let why = outcome.ended.detail.clone().unwrap_or_default();
        assert!(why.contains("a worker process of Ansible was killed"), "{main}: {why}");
        assert!(outcome.log.contains("RUN END RESULT_BROKEN"), "{main}: {}", outcome.log);
    }
}

/// Z7.1
#[tokio::test]
async fn a_failing_post_run_fails_the_build() {
    let (result, log) = result_of(&[], &["here"], &["fail-here", "here"], &[]).await;
    assert_eq!(result, PostFailure, "{log}");
    assert_eq!(log.matches("POST-RUN END").count(), 2, "{log}");
}

/// Z7.1
#[tokio::test]
async fn a_node_that_is_gone_does_not_count() {
    let mut story = Story::new(&files()).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("pass")];
    // No service listens on port 1.
    story.nodes[0].access.ssh_port = 1;
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Retry, "{}", outcome.log);
    assert!(
        outcome.log.contains("RUN END RESULT_UNREACHABLE")
            && outcome.log.contains("one | UNREACHABLE"),
        "{}",
        outcome.log
    );
    let detail = outcome.ended.detail.clone().unwrap_or_default();
    let start = "Node lost: host one could not be reached in task \"command\": ";
    assert!(detail.starts_with(start), "{detail}\n{}", outcome.log);
}

/// Z7.1
#[tokio::test]
async fn a_node_with_another_host_key_is_not_talked_to() {
    let mut story = Story::new(&files()).with_nodes(&["one", "two"], &[]);
    story.job.run = vec![untrusted("pass")];
    story.nodes[0].access.host_keys = story.nodes[1].access.host_keys.clone();
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Retry, "{}", outcome.log);
    assert!(
        outcome.log.contains("two | all is well") && !outcome.log.contains("one | all is well"),
        "{}",
        outcome.log
    );
}

const NAMED: &str = r#"
- name: Unit tests
  hosts: all
  gather_facts: false
  tasks:
    - name: Try
      block:
        - command: sh -c 'exit 9'
      rescue:
        - debug: msg=rescued
    - command: sh -c 'exit 8'
      ignore_errors: true
    - name: Run the script <b>@all</b>
      shell: "echo first; echo 'last {{ word }}' >&2; exit 3"
"#;

/// Z7.1, Z9.1, Z5.4: the end of a failed build names the task, the host, the exit code and what was
/// printed last, with secrets masked; failures that were handled or ignored are not the cause.
#[tokio::test]
async fn a_failed_build_names_what_failed() {
    let mut story = Story::new(&[(PROJECT, "named.yaml", NAMED)]).with_nodes(&["one", "two"], &[]);
    story.job.run = vec![untrusted("named")];
    story.inherited.secret_data = vars(serde_json::json!({ "word": "hunter2" }));
    let outcome = story.run().await;
    let detail = outcome.ended.detail.clone().unwrap_or_default();
    assert_eq!(outcome.ended.result, Failure, "{}", outcome.log);
    let lines: Vec<&str> = detail.lines().collect();
    let [what, place] = lines[..] else { panic!("{detail}\n{}", outcome.log) };
    let hosts = ["one, two", "two, one"].map(|hosts| {
        format!(
            "Task \"Run the script <b>@all</b>\" failed on {hosts} (exit code 3): last [REDACTED]"
        )
    });
    assert!(hosts.contains(&what.to_owned()), "{detail}\n{}", outcome.log);
    let expected = format!("In play \"Unit tests\" of the run playbook {PROJECT}/named.yaml.");
    assert_eq!(place, expected);
}

/// Z7.1, Z5.4: a task with `no_log` is named without its message, also in a loop; a role's task is
/// named with the role; a playbook that Ansible cannot run says why.
#[tokio::test]
async fn a_hidden_task_shows_no_message() {
    let play = |task: &str| {
        format!("- hosts: localhost\n  gather_facts: false\n  tasks:\n    - name: Log in\n{task}")
    };
    let hidden = play("      shell: 'echo pass-phrase; exit 4'\n      no_log: true\n");
    let looped = play(
        "      shell: 'echo {{ item }}; exit 4'\n      no_log: true\n      loop: [pass-phrase]\n",
    );
    let shown = play("      shell: 'echo {{ item }}; exit 4'\n      loop: [one]\n");
    let unknown = play("      no_such_module: {}\n");
    for (text, start) in [
        (hidden, "Task \"Log in\" failed on localhost\n"),
        (looped, "Task \"Log in\" failed on localhost\n"),
        (shown, "Task \"Log in\" failed on localhost (exit code 4): one\n"),
        (
            unknown,
            "Ansible could not run it: couldn't resolve module/action 'no_such_module'. This often \
             indicates a misspelling, missing collection, or incorrect module path, in ",
        ),
    ] {
        let mut story = Story::new(&[(PROJECT, "hidden.yaml", &text)]);
        story.job.run = vec![untrusted("hidden")];
        let outcome = story.run().await;
        let detail = outcome.ended.detail.clone().unwrap_or_default();
        assert!(detail.starts_with(start), "{detail}\n{}", outcome.log);
        assert!(!detail.contains("pass-phrase"), "{detail}");
        assert!(!detail.contains(&*outcome.jobdir.to_string_lossy()), "{detail}");
        assert_eq!(outcome.ended.result, Failure, "{}", outcome.log);
    }
}

/// The holder of a node in a test.
struct Ada;

#[async_trait::async_trait]
impl HolderLookup for Ada {
    async fn holder(&self, result: BuildResult) -> Result<Option<HolderAccess>, String> {
        Ok((result == Failure).then(|| HolderAccess {
            request: "0000000001".to_owned(),
            key: "ssh-ed25519 AAAA ada".to_owned(),
            nodes: ["one".into(), "two".into()].into(),
        }))
    }
}

/// N15: the holder of the nodes of a failed build may log in on them with a key of their own; on a
/// host that is used again nothing is changed, and a success changes nothing.
#[tokio::test]
async fn a_held_node_accepts_the_key_of_its_holder() {
    for (playbook, is_held) in [("fail", true), ("pass", false)] {
        let mut story = Story::new(&files()).with_nodes(&["one", "two", "three"], &[]);
        story.job.run = vec![untrusted(playbook)];
        story.holder = Some(Box::new(Ada));
        let file = |node: &Node| node.home().join(".ssh/authorized_keys");
        std::fs::create_dir(story.nodes[1].home().join(".ssh")).unwrap();
        // A line that is not ended stays a line of its own.
        std::fs::write(file(&story.nodes[1]), "ssh-rsa AAAA grace").unwrap();
        let outcome = story.run().await;
        let keys = outcome.nodes.iter().map(|node| std::fs::read_to_string(file(node)));
        let seen: Vec<String> = keys.map(Result::unwrap_or_default).collect();
        let key = "ssh-ed25519 AAAA ada\n";
        let expected = match is_held {
            true => [format!("\n{key}"), format!("ssh-rsa AAAA grace\n{key}"), String::new()],
            false => [String::new(), "ssh-rsa AAAA grace".to_owned(), String::new()],
        };
        assert_eq!(seen, expected, "{}", outcome.log);
        let said = outcome.log.contains("one | The holder of autohold 0000000001 may log in");
        assert_eq!(said, is_held, "{}", outcome.log);
        assert_eq!(outcome.log.contains("three | It is a static host"), is_held, "{}", outcome.log);
    }
}

/// Z4.3
#[tokio::test]
async fn a_playbook_that_takes_too_long_is_ended() {
    let mut story = Story::new(&files());
    story.job.run = vec![untrusted("hang")];
    story.job.post_run = vec![untrusted("fail-here")];
    // Ansible reaches the task before, also on a busy machine.
    story.job.timeout_seconds = Some(10);
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, TimedOut, "{}", outcome.log);
    assert!(outcome.log.contains("RUN END RESULT_TIMED_OUT"), "{}", outcome.log);
    let detail = outcome.ended.detail.clone().unwrap_or_default();
    let limit = "timeout of 10 s for pre-run and run";
    assert!(
        detail.starts_with(&format!("Ran out of time in task \"command\": {limit}\n")),
        "{detail}"
    );
    assert!(outcome.log.contains(limit), "{}", outcome.log);
}

/// Z6.4
#[tokio::test]
async fn a_hanging_playbook_is_stopped_with_all_its_processes_and_only_cleanup_runs() {
    let marker = format!("sleep 98{}", std::process::id());
    let play = format!(
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=hanging\n    - command: {marker}\n"
    );
    let mut story = Story::new(&[files(), vec![(PROJECT, "stuck.yaml", &play)]].concat());
    story.job.run = vec![untrusted("stuck")];
    story.job.post_run = vec![untrusted("here"), untrusted("here.yaml")];
    story.job.post_run[1].cleanup = true;
    let outcome = story
        .run_with(|meanwhile| {
            tokio::spawn(async move {
                meanwhile.seen.wait_for("TASK [command]").await;
                meanwhile.stopper.stop("a newer patchset");
            });
        })
        .await;
    assert_eq!(outcome.ended.result, Aborted, "{}", outcome.log);
    assert_eq!(
        outcome.ended.detail.as_deref().map(|detail| detail.contains("Stopped in task")),
        Some(true)
    );
    assert_eq!(outcome.log.matches("POST-RUN END").count(), 1, "{}", outcome.log);
    assert!(!is_running(&marker), "what the playbook started is gone with it");
}

/// Z7.3: an executor that stops a build for its own sake has it run again; the log and the cleanup
/// playbooks say so too.
#[tokio::test]
async fn a_build_that_its_executor_stops_ends_as_a_retry_also_in_its_log() {
    let tidy = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=\"retried {{ zuul_will_retry }}\"\n";
    let mut story = Story::new(&[files(), vec![(PROJECT, "tidy.yaml", tidy)]].concat());
    story.job.run = vec![untrusted("hang")];
    story.job.post_run = vec![untrusted("tidy")];
    story.job.post_run[0].cleanup = true;
    let outcome = story
        .run_with(|meanwhile| {
            tokio::spawn(async move {
                meanwhile.seen.wait_for("TASK [command]").await;
                meanwhile.stopper.stop_and_retry("the executor shuts down");
            });
        })
        .await;
    assert_eq!(outcome.ended.result, Retry, "{}", outcome.log);
    for line in ["retried True", "Job ended: RETRY"] {
        assert!(outcome.log.contains(line), "{line}\n{}", outcome.log);
    }
}

/// Z2.3, Z6.4: the nodes of a stopped build are taken away after a while, and a static one is lent
/// again.
#[tokio::test]
async fn what_cleans_up_after_a_stop_has_one_short_time_for_all_of_it() {
    let mut story = Story::new(&files());
    story.settings = |settings| settings.cleanup_timeout_seconds = 3;
    story.job.run = vec![untrusted("hang")];
    story.job.post_run = vec![untrusted("hang"), untrusted("hang.yaml")];
    story.job.post_run.iter_mut().for_each(|playbook| playbook.cleanup = true);
    let build = story.run_with(|meanwhile| {
        tokio::spawn(async move {
            meanwhile.seen.wait_for("TASK [command]").await;
            meanwhile.stopper.stop("a newer patchset");
        });
    });
    // A net only: with the time of any post-run playbook it takes half an hour.
    let outcome =
        tokio::time::timeout(std::time::Duration::from_secs(120), build).await.expect("it ends");
    assert_eq!(outcome.ended.result, Aborted, "{}", outcome.log);
    assert_eq!(outcome.log.matches("POST-RUN END RESULT_TIMED_OUT").count(), 2, "{}", outcome.log);
}

/// Z7.5: one build's files are no reason for another's to fail.
#[tokio::test]
async fn a_build_that_fills_the_disk_is_ended_and_a_file_has_a_bound() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: truncate -s 60G {{ zuul.executor.log_root }}/huge || echo "no such file"
    - shell: "echo score $(cat /proc/self/oom_score_adj)"
    - shell: head -c 30M /dev/zero > {{ zuul.executor.work_root }}/large; sleep 1000
"#;
    let mut story = Story::new(&[files(), vec![(PROJECT, "fill.yaml", play)]].concat());
    story.settings = |settings| settings.disk_bytes_max = 20 << 20;
    story.job.run = vec![untrusted("fill")];
    story.job.post_run = vec![untrusted("here")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, DiskFull, "{}", outcome.log);
    assert!(
        outcome.ended.detail.as_deref().is_some_and(|why| why.contains("disk limit")),
        "{:?}",
        outcome.ended.detail
    );
    assert!(outcome.log.contains("localhost | no such file"), "{}", outcome.log);
    // When memory runs out, the kernel ends what runs in a sandbox first.
    assert!(outcome.log.contains("localhost | score 1000"), "{}", outcome.log);
    assert!(!outcome.log.contains("POST-RUN START"), "{}", outcome.log);
}

fn is_running(command: &str) -> bool {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    let mut lines =
        processes.map(|line| String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned());
    lines.any(|line| line == command)
}

/// Z4.9
#[tokio::test]
async fn a_missing_playbook_is_a_configuration_error_that_names_it() {
    let (result, log) = result_of(&[], &["nowhere"], &[], &[]).await;
    assert_eq!(result, ConfigError);
    assert!(log.contains("forge.test/org/project@main has no playbook nowhere"), "{log}");
}

/// E5
#[tokio::test]
async fn a_playbook_may_be_one_play_or_several_in_a_row() {
    let single = "---\nhosts: localhost\ngather_facts: false\ntasks:\n  - debug: msg=first\n---\nhosts: localhost\ngather_facts: false\ntasks:\n  - debug: msg=second\n";
    let mut story = Story::new(&[(PROJECT, "playbooks/unit.yaml", single)]);
    story.job.run = vec![untrusted("unit")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(
        outcome.log.contains("ok: first") && outcome.log.contains("ok: second"),
        "{}",
        outcome.log
    );
}

/// Z7.1
#[tokio::test]
async fn a_failed_task_is_known_before_the_playbook_ends() {
    let mut story = Story::new(&files()).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("fail")];
    let outcome = story.run().await;
    assert!(*outcome.seen.will_fail.lock().unwrap());
    assert!(Path::new(&outcome.jobdir).join("work/src").join(PROJECT).join("pass.yaml").exists());
}

/// Z4.3, G05: a line of the output may tell early that the job fails; then it does, though its
/// playbook passes.
#[tokio::test]
async fn output_that_matches_a_failure_pattern_reports_the_failure_before_the_playbook_ends() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - name: tests
      debug: msg="3 tests FAILED today"
    - command: "true"
"#;
    let mut story = Story::new(&[files(), vec![(PROJECT, "soft.yaml", play)]].concat());
    story.job.run_time.failure_output =
        vec!["no such text".to_owned(), "[0-9]+ tests FAILED".to_owned()];
    story.job.run = vec![untrusted("soft"), untrusted("here")];
    story.job.post_run = vec![untrusted("here")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Failure, "{}", outcome.log);
    assert!(*outcome.seen.will_fail.lock().unwrap());
    assert!(
        outcome.log.contains("Early failure in job, matched regex \"[0-9]+ tests FAILED\""),
        "{}",
        outcome.log
    );
    assert!(outcome.ended.detail.as_deref().is_some_and(|why| why.contains("tests FAILED")));
    assert_eq!(outcome.log.matches("| RUN START").count(), 1, "{}", outcome.log);
}

const PAUSE: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - zuul_return: {data: {registry: "10.0.0.1:5000", zuul: {pause: true, log_url: "https://here/hidden-part/", redactions: [hidden-part], artifacts: [{name: image, url: "https://here/"}]}}}
"#;

/// Z4.3: a job that returns `pause` keeps its nodes after its main playbooks until it may go
/// on; then post-run is played.
#[tokio::test]
async fn a_paused_job_continues_with_post_run_when_it_is_resumed() {
    let mut story = Story::new(&[files(), vec![(PROJECT, "pause.yaml", PAUSE)]].concat())
        .with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("pause")];
    story.job.post_run = vec![untrusted("pass")];
    let outcome = story
        .run_with(|meanwhile| {
            tokio::spawn(async move {
                meanwhile.seen.wait_for("Pausing until").await;
                meanwhile.stopper.resume();
            });
        })
        .await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let pause = outcome.seen.pause.lock().unwrap().clone().unwrap();
    assert_eq!(pause.data["registry"], "10.0.0.1:5000");
    assert_eq!(pause.data["zuul"]["artifacts"][0]["name"], "image");
    assert_eq!(pause.log_url.as_deref(), Some("https://here/[REDACTED]/"));
    let at =
        |text: &str| outcome.log.find(text).unwrap_or_else(|| panic!("{text}\n{}", outcome.log));
    assert!(
        at("Pausing until") < at("Resuming:") && at("Resuming:") < at("POST-RUN START"),
        "{}",
        outcome.log
    );
    assert!(outcome.log.contains("one | all is well"), "{}", outcome.log);
}

/// Z4.3: a paused build that is stopped ends, and a job that failed does not pause.
#[tokio::test]
async fn a_paused_job_can_be_stopped_and_a_failed_one_does_not_pause() {
    let mut story = Story::new(&[files(), vec![(PROJECT, "pause.yaml", PAUSE)]].concat());
    story.job.run = vec![untrusted("pause")];
    story.job.post_run = vec![untrusted("here")];
    let outcome = story
        .run_with(|meanwhile| {
            tokio::spawn(async move {
                meanwhile.seen.wait_for("Pausing until").await;
                meanwhile.stopper.stop("a newer patchset");
            });
        })
        .await;
    assert_eq!(outcome.ended.result, Aborted, "{}", outcome.log);
    assert!(!outcome.log.contains("POST-RUN START"), "{}", outcome.log);
    let mut story = Story::new(&[files(), vec![(PROJECT, "pause.yaml", PAUSE)]].concat());
    story.job.run = vec![untrusted("pause"), untrusted("fail-here")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Failure, "{}", outcome.log);
    assert!(outcome.seen.pause.lock().unwrap().is_none());
}

/// Z7.3: the post-run playbooks of a lost build find nothing of its executor at work on the node,
/// although that one still runs its main playbook and tries to go on, and they see that the build
/// has not succeeded. It opens no connection once its lease is over.
#[tokio::test]
async fn the_logs_of_a_lost_build_are_collected_after_its_old_sessions_are_ended() {
    let count = "- hosts: all\n  gather_facts: false\n  tasks:\n    - raw: 'while :; do echo tick >> ~/ticks; sleep 0.1; done'\n      ignore_unreachable: true\n    - raw: touch ~/again\n";
    let collect = "- hosts: all\n  gather_facts: false\n  tasks:\n    - raw: 'wc -l < ~/ticks; sleep 1; wc -l < ~/ticks'\n    - debug: msg='success {{ zuul_success }}, retry {{ zuul_will_retry }}'\n    - raw: 'false'\n";
    let mut files = files();
    files.extend([(PROJECT, "count.yaml", count), (PROJECT, "collect.yaml", collect)]);
    let story = |scope: AttemptScope| {
        let mut story = Story::new(&files);
        story.scope = scope;
        story.job.run = vec![untrusted("count")];
        story.job.post_run = vec![untrusted("collect"), untrusted("pass")];
        story
    };
    let mut lost = story(AttemptScope::Whole).with_nodes(&["one"], &[]);
    // It outlives both builds.
    let node = lost.nodes.remove(0);
    let (access, home) = (node.access.clone(), node.home());
    let mut collecting = story(AttemptScope::CollectLogs);
    collecting.key = lost.key.clone();
    let lease = lost.lease.clone();
    let (sender, begun) = tokio::sync::oneshot::channel();
    let begin = move |meanwhile: Meanwhile| drop(sender.send(meanwhile.seen));
    let lost = tokio::spawn(lost.run_on_with(vec![access.clone()], begin));
    let seen = begun.await.unwrap();
    seen.wait_for("TASK [raw]").await;
    let ticks = home.join("ticks");
    let counts = async {
        while !ticks.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), counts).await.expect("it counts");
    assert_eq!(
        *seen.begun.lock().unwrap(),
        [PlaybookStart { phase: PlaybookPhase::Run, index: 0 }]
    );
    // As the session of a paused executor runs out.
    lease.renew(std::time::Instant::now());
    let collected = collecting.run_on(vec![access]).await;
    assert_eq!(collected.ended.result, Retry, "{}", collected.log);
    assert!(!collected.log.contains("| RUN START"), "{}", collected.log);
    assert!(collected.log.contains("success False, retry True"), "{}", collected.log);
    assert!(collected.log.contains("one | all is well"), "a failure ends only its playbook");
    let number = |line: &str| line.split_once("one | ")?.1.trim().parse::<u64>().ok();
    let counted: Vec<u64> = collected.log.lines().filter_map(number).collect();
    assert!(counted.len() == 2 && counted[0] == counted[1], "{counted:?}: {}", collected.log);
    assert!(collected.seen.begun.lock().unwrap().is_empty());
    assert!(*collected.seen.has_started.lock().unwrap(), "it counts as starting no longer");
    let lost =
        tokio::time::timeout(std::time::Duration::from_secs(60), lost).await.expect("it ends");
    let lost = lost.unwrap();
    assert!(!home.join("again").exists(), "it did not reach the node again: {}", lost.log);
    assert_eq!(lost.ended.result, Retry, "{}", lost.log);
}

/// Z7.3: a build is tried again soon, also if its logs cannot be collected: the time limit counts
/// from the beginning, and not only for playbooks.
#[tokio::test]
async fn the_time_for_collecting_logs_includes_the_connection_to_the_nodes() {
    let mut story = Story::new(&files()).with_nodes(&["one"], &[]);
    story.scope = AttemptScope::CollectLogs;
    story.job.post_run = vec![untrusted("pass")];
    story.settings = |settings| settings.collect_timeout_seconds = 2;
    // It accepts connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut access = story.nodes[0].access.clone();
    (access.interface_ip, access.ssh_port) =
        ("127.0.0.1".to_owned(), silent.local_addr().unwrap().port());
    let outcome = story.run_on(vec![access]).await;
    assert_eq!(outcome.ended.result, Retry, "{}", outcome.log);
    let detail = outcome.ended.detail.clone().unwrap_or_default();
    assert!(detail.contains("in time to collect its logs"), "{detail}");
}
