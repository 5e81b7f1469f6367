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

/// Z7.5: an untrusted playbook cannot lead a trusted one's connection to another host: they share no
/// control sockets. What a node is made to forward does not reach the sockets to which later
/// playbooks report.
#[tokio::test]
async fn connections_of_trusted_playbooks_are_their_own() {
    let spoil = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        target="-p {{ hostvars.one.ansible_port }} {{ hostvars.one.ansible_user }}@{{ hostvars.one.ansible_host }}"
        ssh $target true
        cd $(dirname $(ssh -G $target | sed -n 's/^controlpath //p'))
        own=$(ls | head -1)
        other=$(ssh -G -p {{ hostvars.two.ansible_port }} {{ hostvars.two.ansible_user }}@{{ hostvars.two.ansible_host }} | sed -n 's/^controlpath //p')
        rm -f $other && ln $own $other || ln -s $own $other
        echo "spoiled=$(ls | wc -l)"
        ssh -O forward -R 127.0.0.1:0:$SLUICE_LOG_SOCKET $target > {{ zuul.executor.work_root }}/port
"#;
    let honest = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: ssh -p {{ hostvars.two.ansible_port }} {{ hostvars.two.ansible_user }}@{{ hostvars.two.ansible_host }} 'echo $SSH_CONNECTION' | cut -d' ' -f4
      register: reached
    - debug: msg="port {{ reached.stdout }} of {{ hostvars.two.ansible_port }}"
    - shell: >-
        ssh -p {{ hostvars.one.ansible_port }} {{ hostvars.one.ansible_user }}@{{ hostvars.one.ansible_host }}
        "timeout 5 python3 -c 'import socket; s = socket.create_connection((\"127.0.0.1\", $(grep -o "[0-9]*" {{ zuul.executor.work_root }}/port))); print(len(s.recv(1)))'"
      register: forwarded
    - debug: msg="forwarded {{ forwarded.stdout }}"
"#;
    let files = [(PROJECT, "spoil.yaml", spoil), (CONFIG, "honest.yaml", honest)];
    let mut story = Story::new(&files).with_nodes(&["one", "two"], &[]);
    story.job.run = vec![untrusted("spoil")];
    story.job.post_run = vec![story.trusted("honest")];
    let port = story.nodes[1].access.ssh_port;
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    assert!(outcome.log.contains("spoiled="), "{}", outcome.log);
    assert!(outcome.log.contains(&format!("port {port} of {port}")), "{}", outcome.log);
    // The connection is closed without a byte, since there is nothing to forward to.
    assert!(outcome.log.contains("forwarded 0"), "{}", outcome.log);
}

/// Z7.5: files in memory, which belong to no process, are limited.
#[tokio::test]
async fn files_in_memory_are_limited() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        head -c 100M /dev/zero > /dev/shm/fill || echo "shm=full"
        rm /dev/shm/fill
        head -c 1M /dev/zero > /dev/fill 2>/dev/null || echo "dev=refused"
        head -c 1M /dev/zero > {{ zuul.executor.work_root }}/../homes/fill 2>/dev/null || echo "homes=refused"
      args: {executable: /bin/bash}
"#;
    let mut story = Story::new(&[(PROJECT, "fill.yaml", play)]).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("fill")];
    let outcome = story.run().await;
    for line in ["shm=full", "dev=refused", "homes=refused"] {
        assert!(outcome.log.contains(line), "{line}: {}", outcome.log);
    }
}

/// Z7.5: a playbook that fills its agent with keys is refused more of them, and gives it no library.
#[tokio::test]
async fn the_agents_memory_is_limited_and_it_loads_no_libraries() {
    let play = r#"
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: ssh-add -s /usr/lib/none.so </dev/null 2>&1 || echo "library=refused"
    - shell: |
        cd {{ zuul.executor.work_root }}
        cat > fill.py <<'END'
        import os, socket, struct
        import subprocess, base64
        def text(b): return struct.pack(">I", len(b)) + b
        agent = socket.socket(socket.AF_UNIX); agent.connect(os.environ["SSH_AUTH_SOCK"])
        added = 0
        try:
            for i in range(2000):
                public = os.urandom(32)
                body = bytes([17]) + text(b"ssh-ed25519") + text(public) + text(os.urandom(32) + public) + text(b"x" * 200000)
                agent.sendall(text(body))
                answer = agent.recv(4)
                if len(answer) < 4: break
                if agent.recv(struct.unpack(">I", answer)[0])[0] != 6: break
                added += 1
        except OSError: pass
        print("added", "all" if added == 2000 else "some")
        END
        python3 fill.py
"#;
    let mut story = Story::new(&[(PROJECT, "fill.yaml", play)]).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("fill")];
    let outcome = story.run().await;
    assert!(outcome.log.contains("library=refused"), "{}", outcome.log);
    assert!(outcome.log.contains("added some"), "{}", outcome.log);
}
