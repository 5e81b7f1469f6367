//! How a change, or an untrusted playbook, might get the rights of a trusted one, and does not
//! (Z7.5).

use crate::support::*;
use serde_json::json;
use sluice_model::build::BuildResult::*;
use std::path::PathBuf;

/// Returns the path at which a test's own code would leave a trace in the build.
fn trace(story: &Story) -> PathBuf {
    story.directory.path().join("job/work/stolen")
}

/// A trusted playbook that says where its commands run.
const WHERE: &str = r#"
- hosts: all:localhost
  gather_facts: false
  tasks:
    - shell: echo "on {{ inventory_hostname }} [${SSH_CONNECTION%% *}]"
    - command: echo delegated
      delegate_to: localhost
    - debug: msg="greeting {{ greeting }}"
"#;

/// Z7.5, Z4.4
#[tokio::test]
async fn a_jobs_variables_cannot_say_through_what_a_trusted_playbook_runs() {
    let mut story = Story::new(&[(CONFIG, "where.yaml", WHERE)])
        .with_nodes(&["one"], &[("everyone", &["one"])]);
    let touch = format!("touch {};", trace(&story).display());
    let steering = json!({
        "ansible_connection": "local",
        "ansible_become": true,
        "ansible_become_exe": touch,
        "ansible_shell_executable": touch,
        "ansible_ssh_executable": touch,
        "ansible_ssh_common_args": format!("-o 'ProxyCommand={touch}' -o ProxyUseFdpass=no -S none"),
        "ansible_python_interpreter": touch,
        "greeting": "{{ 'hel' ~ 'lo' }}",
    });
    story.job.vars = vars(steering.clone());
    story.job.extra_vars = vars(steering.clone());
    story.job.extra_vars.remove("greeting");
    let mut on_host = vars(steering.clone());
    // A job may choose the user on its own node.
    on_host.insert("ansible_become".to_owned(), json!(false));
    story.job.host_vars.insert("one".to_owned(), on_host);
    story.job.group_vars.insert("everyone".to_owned(), vars(steering));
    story.job.run = vec![story.trusted("where")];
    let trace = trace(&story);
    let outcome = story.run().await;
    assert!(!trace.exists(), "{}", outcome.log);
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("one | on one [127."), "{}", outcome.log);
    assert!(outcome.log.contains("localhost | on localhost []"), "{}", outcome.log);
    assert!(outcome.log.contains("greeting hello"), "{}", outcome.log);
}

/// A plugin of every kind that Ansible loads by itself from its own directory, and configuration of
/// other programs.
const LEAVE: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        for root in "$ANSIBLE_HOME" ~/.ansible; do
          for kind in vars action modules callback connection; do mkdir -p $root/plugins/$kind; done
          printf 'class VarsModule:\n    def get_vars(self, *a, **k):\n        return {}\nopen("TRACE", "w")\n' | sed 's#TRACE#{{ zuul.executor.work_root }}/stolen#' | tee $root/plugins/vars/evil.py $root/plugins/action/debug.py $root/plugins/modules/debug.py
        done
        mkdir -p ~/.ssh/x 2>/dev/null
        echo kept > ~/kept
"#;

const LOOK: &str = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="home has {{ lookup('fileglob', '~/*', '~/.ansible/plugins/vars/*') | default('nothing', true) | basename }}"
"#;

/// Z4.4, Z5.5, X01: neither Ansible's plugins nor other programs' configuration reach a playbook
/// with other rights.
#[tokio::test]
async fn what_an_untrusted_playbook_leaves_in_its_home_reaches_no_playbook_with_other_rights() {
    let files =
        [(PROJECT, "leave.yaml", LEAVE), (PROJECT, "look.yaml", LOOK), (CONFIG, "look.yaml", LOOK)];
    let mut story = Story::new(&files);
    let mut secretive = untrusted("look");
    story.secret(&mut secretive, "login", json!({ "password": "correct-horse" }));
    story.job.pre_run = vec![untrusted("leave")];
    story.job.run = vec![story.trusted("look")];
    story.job.post_run = vec![secretive];
    let trace = trace(&story);
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert_eq!(outcome.log.matches("home has nothing").count(), 2, "{}", outcome.log);
    assert!(!trace.exists(), "{}", outcome.log);
}

/// Z7.1: as in Zuul, a home lasts as long as the build for those who may use it.
#[tokio::test]
async fn playbooks_with_the_same_rights_share_a_home() {
    let leave = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - copy: {content: x, dest: '{{ target }}/kept'}\n";
    let files = [
        (PROJECT, "leave.yaml", &*leave.replace("{{ target }}", "~")),
        (PROJECT, "look.yaml", LOOK),
        (CONFIG, "leave.yaml", &*leave.replace("{{ target }}", "~")),
        (CONFIG, "look.yaml", LOOK),
    ];
    let mut story = Story::new(&files);
    story.job.pre_run = vec![story.trusted("leave")];
    story.job.run = vec![untrusted("look"), untrusted("leave"), untrusted("look")];
    story.job.post_run = vec![story.trusted("look")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert_eq!(outcome.log.matches("home has nothing").count(), 1, "{}", outcome.log);
    assert_eq!(outcome.log.matches("home has kept").count(), 2, "{}", outcome.log);
}

/// Z7.5: facts name interpreters, and Ansible believes them.
#[tokio::test]
async fn facts_that_an_untrusted_playbook_makes_up_are_believed_by_no_trusted_one() {
    let gather = r#"
- hosts: all
  tasks:
    - debug: msg="cache {{ lookup('pipe', 'ls ' ~ zuul.executor.work_root ~ '/../facts') }} in {{ ansible_facts.made_up | default('truth') }}"
"#;
    let make_up = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="seeded {{ lookup('pipe', 'ls ' ~ zuul.executor.work_root ~ '/../facts') }}"
    - shell: for host in one two; do echo '{"made_up":"lies","discovered_interpreter_python":"x"}' > {{ zuul.executor.work_root }}/../facts/$host; done
"#;
    let files = [(CONFIG, "gather.yaml", gather), (PROJECT, "make-up.yaml", make_up)];
    let mut story = Story::new(&files).with_nodes(&["one"], &[]);
    story.job.pre_run = vec![story.trusted("gather")];
    story.job.run = vec![untrusted("make-up")];
    story.job.post_run = vec![story.trusted("gather")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert_eq!(outcome.log.matches("cache one in truth").count(), 2, "{}", outcome.log);
    assert!(outcome.log.contains("seeded one"), "{}", outcome.log);
}

/// Z7.5
#[tokio::test]
async fn hosts_that_a_playbook_makes_up_are_in_no_later_inventory() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        python3 - <<'END'
        import json, os, socket
        log = socket.socket(socket.AF_UNIX)
        log.connect(os.environ["SLUICE_LOG_SOCKET"])
        for host in ["{{ '{{' }} lookup('pipe', 'touch {{ zuul.executor.work_root }}/stolen') {{ '}}' }}", "localhost", "made-up"]:
            log.sendall(json.dumps({"event": "unreachable", "host": host}).encode() + b"\n")
        END
"#;
    let count = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: msg="known {{ groups['all'] | join(' ') }} here {{ ansible_connection | default('local') }}"
"#;
    let mut story = Story::new(&[(PROJECT, "say.yaml", play), (CONFIG, "count.yaml", count)])
        .with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("say")];
    story.job.post_run = vec![story.trusted("count")];
    let trace = trace(&story);
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("known one here local"), "{}", outcome.log);
    assert!(!trace.exists(), "{}", outcome.log);
}

/// Z7.5: what trusted playbooks do on the executor is done on no node, whatever that is called.
#[tokio::test]
async fn a_node_or_group_that_is_called_as_the_executor_ends_the_build_before_any_playbook() {
    let play = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=here\n";
    let story = || Story::new(&[(CONFIG, "here.yaml", play)]);
    for (mut story, named) in [
        (story().with_nodes(&["localhost"], &[]), "a node named \"localhost\""),
        (story().with_nodes(&["127.0.0.1"], &[]), "a node named \"127.0.0.1\""),
        (story().with_nodes(&["localhost:22"], &[]), "a node named \"localhost:22\""),
        (story().with_nodes(&["one"], &[("localhost", &["one"])]), "a group named \"localhost\""),
    ] {
        story.job.run = vec![story.trusted("here")];
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, ConfigError, "{}", outcome.log);
        let detail = outcome.ended.detail.clone().unwrap_or_default();
        assert!(detail.contains(named) && detail.contains("reserved for the executor"), "{detail}");
        assert!(!outcome.log.contains("RUN START"), "{}", outcome.log);
    }
}

/// Z7.1: configuration refuses the name, and a job that was frozen before it did would find none of
/// its nodes.
#[tokio::test]
async fn a_group_of_the_name_that_ansible_has_for_all_nodes_ends_the_build_before_any_playbook() {
    let play = "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - debug: msg=here\n";
    let mut story =
        Story::new(&[(CONFIG, "here.yaml", play)]).with_nodes(&["one"], &[("all", &["one"])]);
    story.job.run = vec![story.trusted("here")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, ConfigError, "{}", outcome.log);
    let detail = outcome.ended.detail.clone().unwrap_or_default();
    assert!(
        detail.contains("a group named \"all\"") && detail.contains("rename or remove it"),
        "{detail}"
    );
    assert!(!outcome.log.contains("RUN START"), "{}", outcome.log);
}

/// Z2.3, Z7.5: one key opens the nodes of all builds.
#[tokio::test]
async fn an_agent_that_is_forwarded_to_a_node_opens_no_other_builds_node() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        own="-S none -A -p {{ hostvars.one.ansible_port }} {{ hostvars.one.ansible_user }}@{{ hostvars.one.ansible_host }}"
        echo "agent=$(/usr/bin/ssh $own 'ssh-add -l >/dev/null 2>&1; echo $?')"
        echo "own=$(/usr/bin/ssh $own echo works)"
        there="ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=10"
        echo "neighbour=[$(/usr/bin/ssh $own "$there -p NEIGHBOUR echo works" 2>/dev/null)]"
"#;
    let mut story = Story::new(&[]).with_nodes(&["one"], &[]);
    let neighbour = Node::start("neighbour", &story.key);
    let access = &neighbour.access;
    // The neighbour takes the very key that the build's node takes.
    let login = format!("{} {}@{}", access.ssh_port, access.username, access.interface_ip);
    let reached = std::process::Command::new("ssh")
        .args([
            "-F",
            "none",
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-i",
        ])
        .arg(&story.key)
        .args([
            "-p",
            &access.ssh_port.to_string(),
            &format!("{}@{}", access.username, access.interface_ip),
            "true",
        ])
        .status();
    assert!(reached.unwrap().success());
    story.put(&[("hop.yaml", &play.replace("NEIGHBOUR", &login))]);
    story.job.run = vec![untrusted("hop")];
    let outcome = story.run().await;
    assert!(outcome.log.contains("localhost | own=works"), "{}", outcome.log);
    // 2 would say that the agent was not forwarded at all.
    assert!(outcome.log.contains("localhost | agent=1"), "it shows its key there\n{}", outcome.log);
    assert!(outcome.log.contains("localhost | neighbour=[]"), "{}", outcome.log);
}

/// Z7.1, Z7.5: the connection that playbooks share stands in a sandbox of its own, and can be
/// handed what is theirs.
#[tokio::test]
async fn a_playbook_that_hands_its_log_to_the_shared_connection_still_ends() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        python3 - <<'END'
        import os, socket, subprocess
        log = socket.socket(socket.AF_UNIX)
        log.connect(os.environ["SLUICE_LOG_SOCKET"])
        target = ["-p", "{{ hostvars.one.ansible_port }}", "{{ hostvars.one.ansible_user }}@{{ hostvars.one.ansible_host }}"]
        subprocess.Popen(["ssh"] + target + ["trap '' HUP; echo $$ > ~/held; exec sleep 600"], stdout=log, stderr=log)
        END
        until ssh -p {{ hostvars.one.ansible_port }} {{ hostvars.one.ansible_user }}@{{ hostvars.one.ansible_host }} 'test -s ~/held'; do sleep 0.1; done
    - debug: msg="it is held now"
    - command: sleep 1000
"#;
    let mut story = Story::new(&[(PROJECT, "hold.yaml", play)]).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("hold")];
    let held = story.nodes[0].home().join("held");
    let (sender, holder) = tokio::sync::oneshot::channel();
    let build = story.run_with(move |meanwhile| {
        tokio::spawn(async move {
            meanwhile.seen.wait_for("it is held now").await;
            let _ = sender.send(std::fs::read_to_string(&held).unwrap().trim().to_owned());
            meanwhile.stopper.stop("a newer patchset");
        });
    });
    // A net only: a build that waits for the process on its node takes ten minutes.
    let ended = tokio::time::timeout(std::time::Duration::from_secs(120), build).await;
    let holder = holder.await.unwrap();
    assert!(
        std::process::Command::new("kill").args(["-9", &holder]).status().unwrap().success(),
        "it held on"
    );
    let outcome = ended.expect("the build ends");
    assert_eq!(outcome.ended.result, Aborted, "{}", outcome.log);
}
