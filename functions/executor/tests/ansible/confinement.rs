//! Resources that playbooks cannot reach (Z7.5).

use crate::support::*;
use sluice_model::build::BuildResult::*;

/// Z7.5
#[tokio::test]
async fn an_untrusted_playbook_sees_its_own_build_and_nothing_else() {
    // An executor on AWS has its credentials in its environment: so must this process, from its
    // start.
    if std::env::var_os("AWS_SECRET_ACCESS_KEY").is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args([
            "--exact",
            "confinement::an_untrusted_playbook_sees_its_own_build_and_nothing_else",
        ]);
        assert!(
            again.env("AWS_SECRET_ACCESS_KEY", "an executor's own").status().unwrap().success()
        );
        return;
    }
    let neighbour = tempfile::tempdir().unwrap();
    let victim = neighbour.path().join("work-of-another-build");
    std::fs::write(&victim, "private").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let play = format!(
        r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        try() {{ if eval "$2" >/dev/null 2>&1; then echo "$1=yes"; else echo "$1=no"; fi; }}
        try work 'touch {{{{ zuul.executor.work_root }}}}/mine'
        try home 'touch ~/mine'
        try usr 'touch /usr/mine'
        try root 'touch /mine'
        try inventory 'touch {{{{ zuul.executor.inventory_file }}}}'
        try known_hosts 'touch ~/.ssh/known_hosts'
        try log 'mv {{{{ zuul.executor.work_root }}}}/../job-output.txt /tmp/'
        try neighbour 'cat {victim}'
        try environment 'env | grep -i -e aws -e SLUICE_SECRET'
        try processes 'grep -l AWS_ /proc/*/environ'
        try shadow 'cat /etc/shadow'
        try metadata 'timeout 2 bash -c "echo > /dev/tcp/169.254.169.254/80"'
        try executor 'timeout 2 bash -c "echo > /dev/tcp/127.0.0.1/{port}"'
        try tmp 'touch /tmp/mine'
"#,
        victim = victim.display()
    );
    let mut story = Story::new(&[(PROJECT, "look.yaml", &play)]);
    story.job.run = vec![untrusted("look")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for allowed in ["work", "home", "tmp"] {
        assert!(outcome.log.contains(&format!("| {allowed}=yes")), "{allowed}\n{}", outcome.log);
    }
    let denied = [
        "usr",
        "root",
        "inventory",
        "known_hosts",
        "log",
        "neighbour",
        "environment",
        "processes",
        "shadow",
        "metadata",
        "executor",
    ];
    for denied in denied {
        assert!(outcome.log.contains(&format!("| {denied}=no")), "{denied}\n{}", outcome.log);
    }
    assert!(
        outcome.log.contains("RUN START: [untrusted : forge.test/org/project/look.yaml@main]"),
        "{}",
        outcome.log
    );
}

/// Z7.5
#[tokio::test]
async fn a_trusted_playbook_is_marked_and_has_the_network() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let play = format!(
        "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - shell: echo > /dev/tcp/127.0.0.1/{port} && echo reached\n      args: {{executable: /bin/bash}}\n    - shell: touch /usr/mine\n      failed_when: false\n      register: done\n    - debug: msg=\"trusted {{{{ zuul_execution_trusted }}}} code {{{{ done.rc }}}}\"\n"
    );
    let mut story = Story::new(&[(CONFIG, "base.yaml", &play)]);
    story.job.run = vec![story.trusted("base")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    for text in [
        "localhost | reached",
        "ok: trusted True code 1",
        "RUN START: [trusted : forge.test/org/config/base.yaml@main]",
    ] {
        assert!(outcome.log.contains(text), "{text}\n{}", outcome.log);
    }
}

/// Z7.5
#[tokio::test]
async fn an_untrusted_playbook_cannot_use_the_shared_connection_as_a_way_out() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let play = format!(
        r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        cd {{{{ zuul.executor.work_root }}}}
        target="-p {{{{ hostvars.one.ansible_port }}}} {{{{ hostvars.one.ansible_user }}}}@{{{{ hostvars.one.ansible_host }}}}"
        echo "login=$(ssh $target echo works)"
        ssh -O forward -R 127.0.0.1:0:127.0.0.1:{port} $target > forward 2>&1
        back=$(grep -o '[0-9]*' forward | head -1)
        answer=$(ssh $target "timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/${{back:-1}}; head -c 5 <&3' 2>/dev/null")
        echo "through=[$answer]"
        ssh -O forward -L /var/tmp/outside.sock:127.0.0.1:{port} $target 2>&1 | head -1
"#
    );
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let _ = std::io::Write::write_all(&mut client, b"hello");
        }
    });
    let mut story = Story::new(&[(PROJECT, "out.yaml", &play)]).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("out")];
    let outcome = story.run().await;
    assert!(outcome.log.contains("localhost | login=works"), "{}", outcome.log);
    assert!(outcome.log.contains("localhost | through=[]"), "{}", outcome.log);
    assert!(!std::path::Path::new("/var/tmp/outside.sock").exists());
}
