//! Ways out of the sandbox of an untrusted playbook, each of which fails (Z7.5).

use crate::support::*;
use serde_json::json;
use sluice_model::build::BuildResult::*;
use std::path::{Path, PathBuf};

/// Runs shell lines `try NAME 'COMMAND'` in an untrusted playbook of a story, and returns the
/// outcome, whose log has `NAME=yes` where a command succeeded.
async fn attempts(mut story: Story, lines: &str) -> Outcome {
    story.put(&[("try.yaml", &attempting(lines))]);
    story.job.run.push(untrusted("try"));
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    outcome
}

/// Returns a playbook that makes these attempts on the executor.
fn attempting(lines: &str) -> String {
    let lines: String =
        lines.trim().lines().map(|line| format!("        {}\n", line.trim())).collect();
    format!(
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - shell: |\n        try() {{ if eval \"$2\" >/dev/null 2>&1; then echo \"$1=yes\"; else echo \"$1=no\"; fi; }}\n{lines}      args: {{executable: /bin/bash}}\n"
    )
}

/// Checks that every attempt of these names was made and failed.
fn assert_refused(outcome: &Outcome, names: &str) {
    for name in names.split(' ') {
        assert!(outcome.log.contains(&format!("| {name}=no")), "{name}\n{}", outcome.log);
    }
}

/// A file that no sandbox may see; removed when dropped.
struct Victim(PathBuf);

impl Victim {
    fn new(path: PathBuf, text: &str) -> Self {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

const VALUE: &str = "correct-horse-battery-staple";

/// Z7.5, Z7.3: builds of one executor lie beside each other, on disk and in memory.
#[tokio::test]
async fn no_other_builds_workspace_or_secret_is_seen() {
    let story = Story::new(&[]);
    let root = story.directory.path();
    let disk = Victim::new(root.join("state/builds/other/work/file"), VALUE);
    let memory = format!("/dev/shm/sluice-{}-neighbour-{}", std::process::id(), line!());
    let memory = Victim::new(Path::new(&memory).join("run-secrets.json"), VALUE);
    let lines = format!(
        "try disk 'cat {disk}'
        try memory 'cat {memory}'
        try listed 'ls -d /dev/shm/sluice-*neighbour*'
        try found 'grep -rls {VALUE} /dev/shm /tmp /var/tmp /run /home /root {root} | grep -v try.yaml'
        try through 'cat /proc/1/root{disk}'
        try parent 'cat {{{{ zuul.executor.work_root }}}}/../../state/builds/other/work/file'
        try own 'ls {{{{ zuul.executor.work_root }}}}'",
        disk = disk.0.display(),
        memory = memory.0.display(),
        root = root.display(),
    );
    let outcome = attempts(story, &lines).await;
    assert_refused(&outcome, "disk memory listed found through parent");
    assert!(outcome.log.contains("| own=yes"), "{}", outcome.log);
}

/// Z7.5, X01: an executor's key for nodes opens the nodes of all builds.
#[tokio::test]
async fn the_key_for_nodes_is_used_by_the_agent_and_seen_by_no_playbook() {
    let story = Story::new(&[]).with_nodes(&["one"], &[]);
    let key = std::fs::read_to_string(&story.key).unwrap();
    let line = key.lines().nth(2).unwrap().to_owned();
    let halves = line.split_at(20);
    let lines = format!(
        "try file 'cat {key}'
        line={first}{second}
        try found 'grep -rls $line /dev/shm /tmp /run /home /root {root}'
        try processes 'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | grep -a -f <(printf %s $line)'
        try agent 'ssh-add -l'",
        key = story.key.display(),
        first = halves.0,
        second = format_args!("\"\"{}", halves.1),
        root = story.directory.path().display(),
    );
    let outcome = attempts(story, &lines).await;
    assert_refused(&outcome, "file found processes");
    assert!(outcome.log.contains("| agent=yes"), "{}", outcome.log);
}

/// Z7.5: credentials of the executor are in its environment; a playbook gets what this list has.
#[tokio::test]
async fn only_named_variables_of_the_environment_reach_ansible() {
    let play = "
- hosts: localhost
  gather_facts: false
  tasks:
    - debug:
        msg: names {{ lookup('pipe', 'env | cut -d= -f1 | sort').split() | join(' ') }}
";
    let shared = [
        "ANSIBLE_CONFIG",
        "ANSIBLE_HOME",
        "HOME",
        "LANG",
        "PATH",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "SLUICE_LOG_SOCKET",
        "SSH_AGENT_PID",
        "SSH_AUTH_SOCK",
        "TMP",
        "TMPDIR",
        "ZUUL_ANSIBLE_SPLIT_STREAMS",
        "ZUUL_JOBDIR",
        "ZUUL_JOB_FAILURE_OUTPUT",
        "ZUUL_OUTPUT_MAX_BYTES",
    ];
    let of_network =
        ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"];
    let mut story = Story::new(&[(PROJECT, "names.yaml", play), (CONFIG, "names.yaml", play)])
        .with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("names"), story.trusted("names")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let said: Vec<&str> = outcome
        .log
        .lines()
        .filter_map(|line| line.split_once("ok: names "))
        .map(|two| two.1)
        .collect();
    assert_eq!(said.len(), 2, "{}", outcome.log);
    for (line, more) in said.iter().zip([of_network.as_slice(), &[]]) {
        let known: Vec<&str> = shared.iter().chain(more).copied().collect();
        let found: Vec<&str> = line.split_whitespace().collect();
        assert!(found.contains(&"ANSIBLE_CONFIG"), "{line}");
        let foreign: Vec<&&str> = found.iter().filter(|name| !known.contains(name)).collect();
        assert!(foreign.is_empty(), "{foreign:?} of {line}");
    }
}

/// Z7.5: with namespaces of its own, code would get at most of the kernel's weak points.
#[tokio::test]
async fn a_playbook_makes_no_namespaces_and_gets_no_capabilities() {
    let lines = "
        try user 'unshare -U true'
        try mapped 'unshare -r true'
        try mount 'unshare -m true'
        try net 'unshare -n true'
        try sandbox 'bwrap --unshare-user --ro-bind / / true'
        try more 'echo 100 > /proc/sys/user/max_user_namespaces'
        try writable 'mount -o remount,rw /'
        try device 'mknod /tmp/device c 1 1'
        try capable 'grep -E \"^Cap(Eff|Prm|Inh|Amb):.*[1-9a-f]\" /proc/self/status'
        try inits 'test $(ls -d /proc/[0-9]* | wc -l) -gt 40'
    ";
    let outcome = attempts(Story::new(&[]), lines).await;
    let names = "user mapped mount net sandbox more writable device capable inits";
    assert_refused(&outcome, names);
}

/// Z5.5, X03: no later playbook finds what an earlier one had: not the playbooks of a child, not
/// those of the parent afterwards, and not cleanup.
#[tokio::test]
async fn no_later_playbook_finds_the_secrets_of_an_earlier_one() {
    let using = "
- hosts: localhost
  environment: {TOKEN: \"{{ login.password }}\"}
  tasks:
    - set_fact: {kept: \"{{ login.password }}\", cacheable: true}
    - debug: msg=\"used {{ login.password | length }}\"
";
    let (first, second) = VALUE.split_at(9);
    let search = format!(
        "value={first}''{second}
        root={{{{ zuul.executor.work_root }}}}/..
        try files 'grep -rls $value /dev/shm /tmp /var/tmp /run $root'
        try processes 'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | grep -a -f <(printf %s $value)'
        try variable 'test \"{{{{ login is defined or kept is defined }}}}\" = True'
        try key 'grep -rls \"PRIVAT[E] KEY\" /dev/shm /tmp /run $root --exclude=try.yaml'"
    );
    let try_play = attempting(&search);
    let files = [
        (CONFIG, "use.yaml", using),
        (PROJECT, "try.yaml", &*try_play),
        (CONFIG, "try.yaml", &*try_play),
    ];
    let mut story = Story::new(&files).with_nodes(&["one"], &[]);
    let mut pre = story.trusted("use");
    story.secret(&mut pre, "login", json!({ "password": VALUE }));
    let mut post = story.trusted("use");
    story.secret(&mut post, "login", json!({ "password": VALUE }));
    let mut cleanup = untrusted("try");
    cleanup.cleanup = true;
    story.job.pre_run = vec![pre];
    story.job.run = vec![untrusted("try")];
    story.job.post_run = vec![post, untrusted("try"), cleanup];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert_eq!(outcome.log.matches("ok: used 28").count(), 2, "{}", outcome.log);
    for name in ["files", "processes", "variable", "key"] {
        assert_eq!(
            outcome.log.matches(&format!("| {name}=no")).count(),
            3,
            "{name}\n{}",
            outcome.log
        );
    }
}

/// X03, Z5.5: two definitions may give a secret the same name; each playbook has its own.
#[tokio::test]
async fn two_secrets_of_one_name_and_different_content_stay_apart() {
    let compare = |length: usize| {
        format!(
            "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - assert: {{that: \"login.password | length == {length}\"}}\n    - debug: msg=\"it is {{{{ login.password }}}}\"\n"
        )
    };
    let (one, two) = (compare(9), compare(14));
    let mut story = Story::new(&[(CONFIG, "one.yaml", &one), (CONFIG, "two.yaml", &two)]);
    let mut playbooks = Vec::new();
    for (path, data, password) in [
        ("one", json!({"sealed": "first"}), "horse-one"),
        ("two", json!({"sealed": "second"}), "battery-second"),
        ("one", json!({"sealed": "first"}), "horse-one"),
    ] {
        let mut playbook = story.trusted(path);
        story.secret(&mut playbook, "login", json!({}));
        let secret = playbook.secrets.get_mut("login").unwrap();
        secret.data = data;
        story.secrets.insert(secret, json!({ "password": password }));
        playbooks.push(playbook);
    }
    story.job.run = playbooks;
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert_eq!(outcome.log.matches("ok: it is [REDACTED]").count(), 3, "{}", outcome.log);
}

/// Z7.5: whatever module, host or option runs a command on the executor, it runs in the sandbox.
#[tokio::test]
async fn hosts_modules_and_options_of_a_playbook_reach_nothing_of_the_executor() {
    let scratch = tempfile::tempdir().unwrap();
    let victim = scratch.path().join("victim");
    std::fs::write(&victim, VALUE).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let escape =
        "cat VICTIM; touch TRACE; timeout 5 bash -c 'echo > /dev/tcp/127.0.0.1/PORT'; true";
    let play = r#"
- hosts: localhost
  gather_facts: false
  vars:
    escape: "ESCAPE"
  tasks:
    - add_host: {name: made-up, ansible_connection: local}
    - add_host: {name: executor, ansible_host: 127.0.0.1, ansible_port: 22}
    - raw: "{{ escape }}"
    - ansible.legacy.command: {argv: [sh, -c, "{{ escape }}"]}
    - ansible.builtin.shell: "{{ escape }}"
    - local_action: {module: ansible.builtin.raw, _raw_params: "{{ escape }}"}
    - script: escape.sh
    - slurp: {src: VICTIM}
      ignore_errors: true
    - copy: {src: VICTIM, dest: /tmp/stolen}
      ignore_errors: true
    - command: {argv: [rsync, -e, "sh escape.sh", "x:/", /tmp/], chdir: "{{ playbook_dir }}"}
      ignore_errors: true
    - command: {argv: [rsync, "--rsync-path={{ escape }}", VICTIM, /tmp/]}
      ignore_errors: true
    - debug: {msg: "{{ lookup('pipe', escape) }}"}
    - debug: {msg: "{{ lookup('file', 'VICTIM', errors='ignore') }}"}
    - own_alias: {}
- hosts: made-up
  gather_facts: false
  tasks:
    - raw: ESCAPE
    - shell: ESCAPE
- hosts: executor
  gather_facts: false
  ignore_unreachable: true
  tasks:
    - raw: ESCAPE
"#;
    let module = "#!/usr/bin/python3\nimport json, subprocess\nprint(json.dumps({'msg': subprocess.getoutput(\"\"\"ESCAPE\"\"\")}))\n";
    let fill = |text: &str| {
        text.replace("ESCAPE", escape)
            .replace("VICTIM", &victim.display().to_string())
            .replace("TRACE", &scratch.path().join("trace").display().to_string())
            .replace("PORT", &listener.local_addr().unwrap().port().to_string())
    };
    let texts = [play, "#!/bin/sh\nESCAPE\n", module].map(fill);
    let mut story = Story::new(&[]);
    story.put(&[
        ("play.yaml", &texts[0]),
        ("escape.sh", &texts[1]),
        ("library/own_alias.py", &texts[2]),
        ("host_vars/localhost.yaml", "ansible_connection: local\n"),
    ]);
    story.job.run = vec![untrusted("play")];
    let outcome = story.run().await;
    for done in ["TASK [own_alias]", "PLAY [made-up]", "PLAY [executor]"] {
        assert!(outcome.log.contains(done), "{done}\n{}", outcome.log);
    }
    assert!(!outcome.log.contains(VALUE), "{}", outcome.log);
    assert!(!scratch.path().join("trace").exists(), "{}", outcome.log);
    assert!(listener.accept().is_err(), "{}", outcome.log);
    assert!(
        outcome.log.contains("Network: refused 127.0.0.1:22: loopback addresses"),
        "{}",
        outcome.log
    );
}

/// Z7.5: Ansible reads variables from files beside an inventory and a playbook.
#[tokio::test]
async fn variable_files_that_a_playbook_leaves_reach_no_trusted_playbook() {
    let leave = "
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        inventory={{ zuul.executor.inventory_file | dirname }}
        for place in {{ zuul.executor.work_root }} {{ zuul.executor.src_root }} $inventory $inventory/playbook_0 ~ {{ playbook_dir }}; do
          mkdir -p $place/host_vars $place/group_vars
          echo 'stolen: from-file' | tee $place/host_vars/localhost.yaml $place/group_vars/all.yaml
        done 2>/dev/null; true
";
    let look = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=\"stolen {{ stolen | default('nothing') }}\"\n";
    let mut story = Story::new(&[(PROJECT, "leave.yaml", leave), (CONFIG, "look.yaml", look)]);
    story.job.pre_run = vec![untrusted("leave")];
    story.job.run = vec![story.trusted("look")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("ok: stolen nothing"), "{}", outcome.log);
}

/// Z7.2: the addresses of submodules come from the change; none is followed, of whatever kind.
#[tokio::test]
async fn addresses_of_submodules_are_not_followed() {
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("trace");
    let foreign = Repo::new();
    foreign.commit(&[("stolen", VALUE)]);
    let place = foreign.git(&["rev-parse", "--show-toplevel"]);
    for url in
        [format!("ext::sh -c touch% {}", trace.display()), format!("file://{place}"), place.clone()]
    {
        let play = attempting(
            "cd {{ zuul.executor.work_root }}/{{ zuul.project.src_dir }}
            try empty 'test -z \"$(ls -A module)\"'
            try updated 'git submodule update --init && test -e module/stolen'",
        );
        let mut story = Story::new(&[]);
        story.put(&[("try.yaml", &play)]);
        story.put_submodule("module", &url);
        story.job.run = vec![untrusted("try")];
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, Success, "{url}\n{}", outcome.log);
        assert!(outcome.log.contains("| empty=yes"), "{url}\n{}", outcome.log);
        assert_refused(&outcome, "updated");
        assert!(!trace.exists(), "{url}");
    }
}

/// Z7.1, Z4.3: what the executor defines is what every playbook sees, however a job tries to set it.
#[tokio::test]
async fn variables_of_a_job_never_outrank_those_of_the_executor() {
    let say = "
- hosts: all:localhost
  gather_facts: false
  tasks:
    - debug:
        msg: >-
          {{ inventory_hostname }} sees
          {{ [zuul, zuul_execution_trusted, zuul_execution_phase, zuul_success,
              (zuul_user_dir if inventory_hostname == 'localhost' else ''),
              nodepool | default('none'), zuul_node | default('none'),
              ansible_host | default('none'), ansible_user | default('none')] | to_json is search('made-up') }}
";
    let made_up = json!({
        "zuul": "made-up",
        "zuul_execution_trusted": "made-up",
        "zuul_execution_phase": "made-up",
        "zuul_success": "made-up",
        "zuul_user_dir": "made-up",
        "nodepool": "made-up",
        "zuul_node": "made-up",
        "ansible_host": "made-up",
        "ansible_user": "made-up",
    });
    let here = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=here\n";
    let files =
        [(PROJECT, "say.yaml", say), (CONFIG, "say.yaml", say), (PROJECT, "here.yaml", here)];
    let mut story = Story::new(&files).with_nodes(&["one"], &[("everyone", &["one"])]);
    story.job.vars = vars(made_up.clone());
    story.job.extra_vars = vars(made_up.clone());
    story.job.host_vars.insert("one".to_owned(), vars(made_up.clone()));
    story.job.group_vars.insert("everyone".to_owned(), vars(made_up.clone()));
    story.inherited.data = vars(made_up.clone());
    story.inherited.secret_data = vars(made_up);
    story.job.run = vec![untrusted("here")];
    story.job.post_run = vec![story.trusted("say"), untrusted("say")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for host in ["one", "localhost"] {
        let seen = format!("{host} sees False");
        assert_eq!(outcome.log.matches(&seen).count(), 2, "{host}\n{}", outcome.log);
    }
}

/// Z7.5: a trusted playbook names directories by what Ansible says of hosts; no variable of the job
/// and no secret that a job before returned replaces that.
#[tokio::test]
async fn what_ansible_says_of_hosts_and_roles_is_replaced_by_no_variable() {
    let say = "
- hosts: all
  gather_facts: false
  tasks:
    - debug: msg=\"{{ inventory_hostname }} {{ inventory_hostname_short }} {{ group_names }}\"
    - debug: msg=\"{{ [inventory_dir, inventory_file, parent_role_paths | default('unset'), ansible_parent_role_paths | default('unset')] | to_json is search('made-up') }}\"
";
    let names = [
        "inventory_hostname",
        "inventory_hostname_short",
        "group_names",
        "groups",
        "hostvars",
        "inventory_dir",
        "inventory_file",
        "parent_role_paths",
        "ansible_parent_role_paths",
        "omit",
    ];
    let made_up = names.map(|name| (name.to_owned(), json!("../../made-up")));
    let made_up: serde_json::Map<_, _> = made_up.into_iter().collect();
    let mut story =
        Story::new(&[(CONFIG, "say.yaml", say)]).with_nodes(&["one"], &[("everyone", &["one"])]);
    story.job.vars = made_up.clone();
    story.job.extra_vars = made_up.clone();
    story.inherited.data = made_up.clone();
    story.inherited.secret_data = made_up;
    story.job.run = vec![story.trusted("say")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("one one ['everyone']"), "{}", outcome.log);
    assert!(outcome.log.contains("one | ok: false"), "{}", outcome.log);
}
