//! Output of tasks while it appears, and floods of it (Z7.4, Z7.5).

use crate::support::*;
use serde_json::{Value, json};
use sluice_model::build::BuildResult::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// Returns the tasks of a play on all nodes.
fn play(tasks: &str) -> String {
    format!("- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}")
}

/// Returns the plays' output lines of the log: what follows ` | one | `.
fn lines_of<'a>(log: &'a str, host: &str) -> Vec<&'a str> {
    let mark = format!(" | {host} | ");
    log.lines().filter_map(|line| line.split_once(&mark).map(|(_, text)| text)).collect()
}

/// Returns whether a process with this text among its arguments runs on this machine.
fn runs(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap();
    let mut lines =
        processes.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(text))
}

/// Returns the paths of all files below a directory.
fn files_below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Z7.4: a line is in the log while its command runs, from every kind of task that runs one; the
/// command waits for a file that the test makes only when it has seen the line.
#[tokio::test]
async fn each_line_of_a_running_command_is_in_the_log_before_the_command_ends() {
    let kinds = [
        ("shell", "    - shell: \"echo first shell; echo and error >&2; WAIT; echo then shell\"\n"),
        (
            "command",
            "    - ansible.builtin.command: \"sh -c 'echo first command; WAIT; echo then command'\"\n",
        ),
        (
            "chdir",
            "    - ansible.builtin.shell: \"echo first chdir $(pwd) $X; WAIT; echo then chdir\"\n      \
             args: {chdir: /usr, executable: /bin/bash}\n      environment: {X: set}\n",
        ),
        (
            "block",
            "    - block:\n        - shell: \"echo first block; WAIT; exit 4\"\n      rescue:\n        \
             - shell: \"echo then block\"\n",
        ),
        (
            "become",
            "    - shell: \"echo first become; WAIT; echo then become\"\n      become: true\n      \
             vars: {ansible_become_exe: \"{{ node_home }}/sudo\"}\n",
        ),
        ("raw", "    - raw: \"echo first raw; WAIT; echo then raw\"\n"),
        ("script", "    - script: say.sh script\n"),
    ];
    let wait = |name: &str| format!("while [ ! -e $HOME/go-{name} ]; do sleep 0.05; done");
    let tasks: String =
        kinds.iter().map(|(name, task)| task.replace("WAIT", &wait(name))).collect();
    let play = play(&tasks);
    let script = format!("#!/bin/sh\necho first $1\n{}\necho then $1\n", wait("script"));
    let files = [(PROJECT, "say.yaml", play.as_str()), (PROJECT, "say.sh", script.as_str())];
    let mut story = Story::new(&files).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("say")];
    let home = story.nodes[0].home();
    story.job.vars = vars(serde_json::json!({ "node_home": home }));
    // Like sudo without a password, which this machine need not have.
    let sudo = home.join("sudo");
    std::fs::write(&sudo, "#!/bin/sh\nwhile [ \"$1\" != /bin/sh ]; do shift; done\nexec \"$@\"\n")
        .unwrap();
    std::fs::set_permissions(&sudo, Permissions::from_mode(0o755)).unwrap();
    let outcome = story
        .run_with(|meanwhile| {
            tokio::spawn(async move {
                for (name, _) in kinds {
                    meanwhile.seen.wait_for(&format!("one | first {name}")).await;
                    let so_far = String::from_utf8(meanwhile.seen.log.borrow().clone()).unwrap();
                    assert!(!so_far.contains(&format!("one | then {name}")), "{so_far}");
                    std::fs::write(home.join(format!("go-{name}")), "").unwrap();
                }
            });
        })
        .await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let said = lines_of(&outcome.log, "one");
    for (name, _) in kinds {
        let count = |text: &str| said.iter().filter(|line| line.starts_with(text)).count();
        let times = (count(&format!("first {name}")), count(&format!("then {name}")));
        assert_eq!(times, (1, 1), "each line comes once: {}", outcome.log);
    }
    assert!(said.contains(&"first chdir /usr set"), "{}", outcome.log);
    let at = |text: &str| said.iter().position(|line| *line == text).unwrap();
    assert!(at("and error") > at("first shell") && at("and error") < at("then shell"));
}

/// Returns the time of day in `YYYY-mm-dd HH:MM:SS.ffffff`.
fn time_of_day(stamp: &str) -> Duration {
    let part = |from: usize, to: usize| stamp[from..to].parse::<u64>().unwrap();
    let seconds = (part(11, 13) * 60 + part(14, 16)) * 60 + part(17, 19);
    Duration::from_secs(seconds) + Duration::from_micros(part(20, 26))
}

/// Z7.4: the delay between a line on the node and the log, which `make bench` prints.
#[tokio::test]
async fn a_line_is_in_the_log_within_a_second_after_it_was_printed() {
    let stamp = "date -u +'at %Y-%m-%d %H:%M:%S.%6N'";
    let play =
        play(&format!("    - shell: \"for i in $(seq 40); do {stamp}; sleep 0.05; done\"\n"));
    let mut story = Story::new(&[(PROJECT, "say.yaml", &play)]).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("say")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let day = Duration::from_secs(24 * 60 * 60);
    let lines = outcome.log.lines().filter_map(|line| line.split_once(" | one | at "));
    let delay = |(logged, printed): (&str, &str)| {
        let late = time_of_day(logged) + day - time_of_day(printed);
        if late >= day { late - day } else { late }
    };
    let mut delays: Vec<Duration> = lines.map(delay).collect();
    assert_eq!(delays.len(), 40, "{}", outcome.log);
    delays.sort();
    let milliseconds = |delay: Duration| delay.as_secs_f64() * 1000.0;
    println!(
        "delay of streamed lines, from the node to the log: median {:.1} ms, longest {:.1} ms",
        milliseconds(delays[20]),
        milliseconds(delays[39])
    );
    assert!(delays[20] < Duration::from_secs(1), "{delays:?}");
}

/// Z7.4: loops show output with their item, a command of the executor with its result, and one in
/// the background with its end; nothing comes twice.
#[tokio::test]
async fn loops_background_tasks_and_the_executors_own_commands_show_their_output_once() {
    let tasks = "    - shell: echo item {{ item }}\n      loop: [a, b]\n\
                 \x20   - shell: echo in the background\n      async: 30\n      poll: 1\n      \
                 vars: {ansible_async_dir: \"{{ node_home }}/async\"}\n\
                 \x20   - shell: echo on the executor; echo its error >&2\n      delegate_to: localhost\n\
                 \x20   - shell: echo tried\n      register: r\n      until: r.attempts | default(0) > 1\n      \
                 retries: 2\n      delay: 0\n\
                 \x20   - zuul_console: {port: 19885}\n";
    let play = play(tasks);
    let mut story = Story::new(&[(PROJECT, "say.yaml", &play)]).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("say")];
    story.job.vars = vars(serde_json::json!({ "node_home": story.nodes[0].home() }));
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let said = lines_of(&outcome.log, "one");
    let times = |text: &str| said.iter().filter(|line| **line == text).count();
    for text in ["item a", "item b", "in the background", "on the executor", "its error"] {
        assert_eq!(times(text), 1, "{text}: {}", outcome.log);
    }
    assert_eq!(times("tried"), 2, "each attempt shows its output: {}", outcome.log);
}

/// Z4.3: `ansible-split-streams` keeps standard error out of standard output, on nodes, in loops
/// and on the executor; without it they are one, as with Zuul.
#[tokio::test]
async fn standard_error_is_apart_from_standard_output_only_if_the_job_asks_for_it() {
    let tasks = "    - shell: echo out; echo err >&2\n      register: node\n\
                 \x20   - ansible.builtin.command: \"sh -c 'echo out; echo err >&2'\"\n      loop: [1]\n      register: looped\n\
                 \x20   - shell: echo out; echo err >&2\n      delegate_to: localhost\n      register: here\n\
                 \x20   - debug: msg=\"node {{ node.stdout_lines | join('+') }}/{{ node.stderr }} looped {{ looped.results[0].stdout_lines | join('+') }}/{{ looped.results[0].stderr }} here {{ here.stdout_lines | join('+') }}/{{ here.stderr }}.\"\n";
    let play = play(tasks);
    let modes = [(Some(true), "out/err"), (None, "out+err/"), (Some(false), "out+err/")];
    let play = play.as_str();
    let builds = modes.map(|(split, each)| async move {
        let mut story = Story::new(&[(PROJECT, "say.yaml", play)]).with_nodes(&["one"], &[]);
        story.job.run = vec![untrusted("say")];
        story.job.run_time.ansible_split_streams = split;
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
        let expected = format!("ok: node {each} looped {each} here {each}.");
        assert!(lines_of(&outcome.log, "one").contains(&expected.as_str()), "{}", outcome.log);
    });
    futures::future::join_all(builds).await;
}

/// Z7.4, Z6.4: a stopped playbook leaves neither a process nor a file on its node, also a command
/// that ignores the first signal.
#[tokio::test]
async fn nothing_is_left_on_the_node_when_a_playbook_is_killed() {
    let marker = format!("97{}", std::process::id());
    let play = play(&format!(
        "    - shell: \"trap '' TERM; echo begun; sleep {marker}; sleep {marker}\"\n"
    ));
    let mut story = Story::new(&[(PROJECT, "stuck.yaml", &play)]).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("stuck")];
    let home = story.nodes[0].home();
    let (sender, checked) = tokio::sync::oneshot::channel();
    let text = format!("sleep {marker}");
    let outcome = story
        .run_with(|meanwhile| {
            tokio::spawn(async move {
                meanwhile.seen.wait_for("one | begun").await;
                assert!(runs(&text));
                assert_eq!(files_below(&home), Vec::<String>::new(), "also while it runs");
                meanwhile.stopper.stop("a newer patchset");
                meanwhile.seen.wait_for("RUN END RESULT_ABORTED").await;
                // Bounded only against hanging.
                for _ in 0..300 {
                    if !runs(&text) {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                sender.send((runs(&text), files_below(&home))).unwrap();
            });
        })
        .await;
    assert_eq!(outcome.ended.result, Aborted, "{}", outcome.log);
    assert_eq!(checked.await.unwrap(), (false, Vec::<String>::new()), "{}", outcome.log);
}

/// Z5.4: a node that goes offline in a looped `no_log` task prints no item, and neither does any
/// other task that hides its output, in the log and in the record.
#[tokio::test]
async fn a_task_with_no_log_prints_nothing_also_when_its_node_is_gone() {
    let tasks = "    - shell: echo hunter-{{ item }}\n      loop: [one, two]\n      no_log: true\n\
                 \x20   - shell: echo hunter-three\n      no_log: \"{{ hide }}\"\n      vars: {hide: true}\n\
                 \x20   - raw: echo hunter-four\n      no_log: true\n\
                 \x20   - shell: echo hunter-five; exit 1\n      no_log: true\n      ignore_errors: true\n\
                 - hosts: two\n  gather_facts: false\n  tasks:\n\
                 \x20   - shell: echo hunter-{{ item }}\n      loop: [six, seven]\n      no_log: \"{{ hide }}\"\n      vars: {hide: true}\n";
    let mut play = play(tasks);
    play = play.replacen("hosts: all", "hosts: one", 1);
    let mut story = Story::new(&[(PROJECT, "say.yaml", &play)]).with_nodes(&["one", "two"], &[]);
    story.job.run = vec![untrusted("say")];
    // No service listens on port 1.
    story.nodes[1].access.ssh_port = 1;
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Retry, "{}", outcome.log);
    assert!(outcome.log.contains("two | UNREACHABLE"), "{}", outcome.log);
    let record = outcome.read("work/logs/job-output.json");
    for word in ["one", "two", "three", "four", "five", "six", "seven"] {
        let hidden = format!("hunter-{word}");
        assert!(!outcome.log.contains(&hidden), "{hidden}: {}", outcome.log);
        assert!(!record.contains(&hidden), "{hidden}: {record}");
    }
    for line in lines_of(&outcome.log, "two") {
        assert!(!line.contains("six") && !line.contains("seven"), "{}", outcome.log);
    }
}

/// Z5.4: a node that goes offline in the middle of a looped `no_log` task prints no item, neither of
/// those before nor of the one that it went with.
#[tokio::test]
async fn a_node_that_goes_offline_in_a_loop_prints_no_item() {
    let tasks = "    - shell: echo hunter-{{ item }}; [ {{ item }} != two ] || kill -9 {{ listener }} $(pgrep -P {{ listener }})\n\
                 \x20     loop: [one, two, three]\n      no_log: true\n";
    let mut story = Story::new(&[(PROJECT, "say.yaml", &play(tasks))]).with_nodes(&["one"], &[]);
    let listener = story.nodes[0].listener();
    story.job.vars = vars(json!({ "listener": listener }));
    story.job.run = vec![untrusted("say")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Retry, "{}", outcome.log);
    assert!(outcome.log.contains("one | UNREACHABLE"), "{}", outcome.log);
    let record = outcome.read("work/logs/job-output.json");
    for word in ["one", "two", "three"] {
        let hidden = format!("hunter-{word}");
        assert!(!outcome.log.contains(&hidden), "{hidden}: {}", outcome.log);
        assert!(!record.contains(&hidden), "{hidden}: {record}");
    }
}

/// Z7.4, Z7.5: a flood of one module, a line without end, and floods of a script and of the
/// executor are cut with a note in the log, and in what Ansible keeps; the end of the output stays,
/// and the job goes on. `tests/flood.rs` has a gigabyte.
#[tokio::test]
async fn floods_of_output_are_cut_with_a_note_and_the_job_goes_on() {
    let tasks = "    - shell: yes of course | head -c 20000000; echo; echo the last line\n      register: out\n\
                 \x20   - debug: msg=\"{{ out.stdout | length < 9000000 }} {{ out.stdout.splitlines()[-1] }}\"\n\
                 \x20   - shell: echo before; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo after\n\
                 \x20   - raw: yes raw flood | head -c 20000000\n      register: out\n\
                 \x20   - debug: msg=\"{{ out.stdout | length < 9000000 }} raw\"\n\
                 \x20   - shell: yes of the executor | head -c 20000000\n      delegate_to: localhost\n";
    let play = play(tasks);
    let mut story = Story::new(&[(PROJECT, "flood.yaml", &play)]).with_nodes(&["one"], &[]);
    story.settings = |settings| settings.log_bytes_max = 32 << 20;
    story.job.timeout_seconds = Some(600);
    story.job.run = vec![untrusted("flood")];
    let outcome = story.run().await;
    let end = outcome.log.len().saturating_sub(3_000);
    let tail = &outcome.log[outcome.log.ceil_char_boundary(end)..];
    assert_eq!(outcome.ended.result, Success, "{tail}");
    assert!(outcome.log.len() <= 32 << 20);
    let said = lines_of(&outcome.log, "one");
    let notes = said.iter().filter(|line| line.contains("bytes of output are left out here]"));
    assert!(notes.count() >= 2, "{tail}");
    for text in ["the last line", "ok: True the last line", "before", "after", "ok: True raw"] {
        assert!(said.contains(&text), "{text}: {tail}");
    }
    let long: Vec<_> = said.iter().filter(|line| line.len() > 10_000).collect();
    assert_eq!(long.len(), 1, "{tail}");
    assert!(long[0].ends_with("[the rest of a line of more than 16384 bytes is left out]"));
    assert!(said.iter().any(|line| line.contains("more lines are left out here]")), "{tail}");
    let record = outcome.read("work/logs/job-output.json");
    assert!(record.len() < 8 << 20, "{}", record.len());
    let record: Value = serde_json::from_str(&record).unwrap();
    let first = &record[0]["plays"][0]["tasks"][0]["hosts"]["one"]["stdout"];
    assert!(first.as_str().unwrap().contains("more characters are in job-output.txt]"));
}

/// Z7.5: a log that reaches its limit says so, and still has the ends of its playbooks.
#[tokio::test]
async fn a_full_log_says_what_is_left_out_and_how_the_playbooks_ended() {
    // One task alone may not fill a log.
    let flood = "    - shell: yes of course | head -c 5000000\n".repeat(3);
    let play = play(&format!("{flood}    - shell: exit 3\n"));
    let mut story = Story::new(&[(PROJECT, "flood.yaml", &play)]).with_nodes(&["one"], &[]);
    story.settings = |settings| settings.log_bytes_max = 1 << 20;
    story.job.run = vec![untrusted("flood")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Failure);
    assert!(outcome.log.len() < (1 << 20) + (64 << 10), "{}", outcome.log.len());
    let tail = &outcome.log[outcome.log.len().saturating_sub(2_000)..];
    for text in
        ["[The log has reached its limit", "| RUN END RESULT_NORMAL", "| Job ended: FAILURE"]
    {
        assert!(tail.contains(text), "{text} in {} bytes: {tail}", outcome.log.len());
    }
}

/// Z7.5: a playbook that starts processes without end, or takes all memory, on the executor is
/// killed with all of them; its build fails with the limit, and its post-run playbooks run.
#[tokio::test]
async fn a_playbook_that_exceeds_its_processes_or_memory_fails_with_the_limit() {
    let marker = format!("96{}", std::process::id());
    let many = format!("for i in $(seq 1500); do sleep {marker} & done; wait");
    let memory = "x = \"x\" * (400 << 20); import time; time.sleep(1000)";
    let tasks = [
        ("processes", format!("shell: \"{many}\""), "250 processes and threads"),
        ("memory", format!("command: /usr/bin/python3 -c '{memory}'"), "300 MiB of memory"),
    ];
    for (name, task, limit) in tasks {
        let play = format!("- hosts: localhost\n  gather_facts: false\n  tasks:\n    - {task}\n");
        let after = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=after\n";
        let files = [(PROJECT, "run.yaml", play.as_str()), (PROJECT, "after.yaml", after)];
        let mut story = Story::new(&files);
        story.settings = |settings| {
            settings.process_limits.processes_max = 250;
            settings.process_limits.memory_bytes_max = 300 << 20;
        };
        story.job.run = vec![untrusted("run")];
        story.job.post_run = vec![untrusted("after")];
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, Failure, "{name}: {}", outcome.log);
        let why = outcome.ended.detail.clone().unwrap_or_default();
        assert!(why.contains(&format!("Exceeded its limit of {limit}")), "{name}: {why}");
        assert!(outcome.log.contains("RUN END RESULT_OVER_LIMIT"), "{name}: {}", outcome.log);
        assert!(outcome.log.contains("localhost | ok: after"), "{name}: {}", outcome.log);
        assert!(!runs(&format!("sleep {marker}")), "{name}: no process is left");
    }
}
