//! Ansible's collections and versions (Z7.1), and `synchronize` in the sandbox (Z7.5).

use crate::support::*;
use sluice_model::build::BuildResult::*;
use sluice_model::job::ANSIBLE_VERSIONS;
use std::path::Path;

/// Uses modules and filters of collections on the node and on the executor, and says which Ansible
/// runs. `synchronize` is written in both ways that playbooks write it.
const PLAY: &str = r#"
- hosts: all
  tasks:
    - name: Send the project to the node
      synchronize:
        src: "{{ zuul.executor.src_root }}/"
        dest: sent
        delete: true
        owner: false
        group: false
        rsync_opts: ["--exclude=*.secret"]
    - command: cat sent/{{ zuul.project.canonical_name }}/README
    - stat: {path: "sent/{{ zuul.project.canonical_name }}/a.secret"}
      register: excluded
    - community.general.ini_file:
        path: "{{ ansible_env.HOME }}/settings.ini"
        section: one
        option: "{{ dict(a=[dict(b='two')]) | community.general.json_query('a[0].b') }}"
        value: "{{ '192.0.2.7/24' | ansible.utils.ipaddr('network') }}"
        mode: "0644"
    - ansible.posix.authorized_key:
        user: "{{ ansible_user }}"
        path: "{{ ansible_env.HOME }}/keys"
        key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGcVMnLEZ5QLlPhnrNgFyRyYVSdGGqVqmGTB8aIg0xEb test
    - name: Fetch from the node
      ansible.posix.synchronize:
        mode: pull
        src: settings.ini
        dest: "{{ zuul.executor.log_root }}/"
        verify_host: true
    - community.general.archive:
        path: "{{ zuul.executor.log_root }}/settings.ini"
        dest: "{{ zuul.executor.log_root }}/settings.zip"
        format: zip
      delegate_to: localhost
    - debug:
        msg: >-
          requested {{ zuul.ansible_version }}, core {{ ansible_version.major }}.{{ ansible_version.minor }},
          excluded {{ not excluded.stat.exists }}
"#;

/// Z7.1, Z7.5
#[tokio::test]
async fn collections_and_synchronize_work_with_each_version_in_trusted_and_untrusted_playbooks() {
    let each = [(None, "2.18"), (Some("9"), "2.16")].map(|(version, core)| async move {
        let files =
            [(PROJECT, "play.yaml", PLAY), (PROJECT, "a.secret", "x"), (CONFIG, "play.yaml", PLAY)];
        let mut story = Story::new(&files).with_nodes(&["one"], &[]);
        story.job.ansible_version = version.map(str::to_owned);
        story.job.pre_run = vec![story.trusted("play")];
        story.job.run = vec![untrusted("play")];
        let nodes = story.take_nodes();
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, Success, "{version:?}\n{}", outcome.log);
        let line = format!("requested {}, core {core}, excluded True", version.unwrap_or("11"));
        assert_eq!(outcome.log.matches(&line).count(), 2, "{line}\n{}", outcome.log);
        assert_eq!(outcome.log.matches("one | before").count(), 2, "{}", outcome.log);
        let settings = outcome.read("work/logs/settings.ini");
        assert!(settings.contains("[one]\ntwo = 192.0.2.0\n"), "{settings}");
        assert!(outcome.jobdir.join("work/logs/settings.zip").is_file());
        assert!(std::fs::read_to_string(nodes[0].home().join("keys")).unwrap().contains("AAAAC3"));
    });
    futures::future::join_all(each).await;
}

/// Z7.1: the version that a job names is the one that runs, also if it is the default one.
#[tokio::test]
async fn a_job_gets_the_version_that_it_names() {
    let play = "- hosts: localhost\n  gather_facts: false\n  tasks:\n\
                \x20   - debug: msg=\"{{ zuul.ansible_version }} is {{ ansible_version.major }}.{{ ansible_version.minor }}\"\n";
    let each = ANSIBLE_VERSIONS.map(|version| async move {
        let mut story = Story::new(&[(PROJECT, "play.yaml", play)]);
        story.job.ansible_version = Some(version.to_owned());
        story.job.run = vec![untrusted("play")];
        let outcome = story.run().await;
        let core = if version == "9" { "2.16" } else { "2.18" };
        assert!(outcome.log.contains(&format!("ok: {version} is {core}")), "{}", outcome.log);
    });
    futures::future::join_all(each).await;
}

/// Z7.1, Z2.2: the configuration refuses such a version; an executor that lacks one says so too.
#[tokio::test]
async fn a_version_that_the_executor_lacks_ends_the_build_with_the_supported_ones() {
    let mut story = Story::new(&[(PROJECT, "play.yaml", "- hosts: localhost\n")]);
    story.job.ansible_version = Some("8".to_owned());
    story.job.run = vec![untrusted("play")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, ConfigError);
    let detail = outcome.ended.detail.clone().unwrap();
    assert!(detail.contains("version 8") && detail.contains("9 and 11"), "{detail}");
}

/// Z7.1: `install.sh` makes an environment for each version that a job may choose.
#[test]
fn each_version_has_its_packages() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/executor");
    let script = std::fs::read_to_string(directory.join("install.sh")).unwrap();
    assert!(script.contains(&format!("\nversions=\"{}\"\n", ANSIBLE_VERSIONS.join(" "))));
    for version in ANSIBLE_VERSIONS {
        let path = directory.join(format!("requirements-{version}.txt"));
        let packages = std::fs::read_to_string(path).unwrap();
        assert!(packages.contains(&format!("\nansible=={version}.")), "{packages}");
    }
}

/// Tries to make rsync, or what rsync starts, read a file of the executor; prints what came of it.
const HOSTILE: &str = r#"
- hosts: localhost
  gather_facts: false
  ignore_errors: true
  tasks:
    - name: Run a program in place of rsync on the executor
      synchronize:
        src: README
        dest: "{{ zuul.executor.work_root }}/other"
        rsync_path: "cat VICTIM >{{ zuul.executor.log_root }}/path; rsync"
    - name: Copy a file of the executor on the executor
      synchronize:
        src: VICTIM
        dest: "{{ zuul.executor.log_root }}/local"
- hosts: all
  gather_facts: false
  ignore_errors: true
  tasks:
    - name: Run a program in place of ssh
      synchronize:
        src: README
        dest: taken
        rsync_opts: ["--rsh=sh -c 'cat VICTIM >{{ zuul.executor.log_root }}/rsh'"]
    - name: Send a file of the executor to the node
      synchronize: {src: VICTIM, dest: sent}
    - name: Send what a link leads to
      shell: ln -s VICTIM {{ zuul.executor.work_root }}/link
      delegate_to: localhost
    - synchronize:
        src: "{{ zuul.executor.work_root }}/link"
        dest: linked
        copy_links: true
    - name: Write outside of the build
      synchronize: {mode: pull, src: node.txt, dest: VICTIM}
    - name: Replace what later playbooks read
      synchronize: {mode: pull, src: node.txt, dest: "{{ zuul.executor.inventory_file }}"}
    - name: Replace what the executor knows of nodes
      synchronize: {mode: pull, src: node.txt, dest: "{{ lookup('env', 'HOME') }}/.ssh/config"}
    - name: Read the node's own file
      synchronize: {mode: pull, src: node.txt, dest: "{{ zuul.executor.log_root }}/node.txt"}
"#;

/// Z7.5: neither options, nor programs, links or delegation make `synchronize` reach what the
/// sandbox does not show.
#[tokio::test]
async fn a_hostile_synchronize_reaches_the_build_and_nothing_else() {
    let neighbour = tempfile::tempdir().unwrap();
    let victim = neighbour.path().join("of-another-build");
    std::fs::write(&victim, "text-of-the-victim").unwrap();
    let play = HOSTILE.replace("VICTIM", &victim.display().to_string());
    let files = [(PROJECT, "play.yaml", play.as_str())];
    let mut story = Story::new(&files).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("play")];
    let nodes = story.take_nodes();
    let home = nodes[0].home();
    std::fs::write(home.join("node.txt"), "of the node").unwrap();
    let outcome = story.run().await;
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "text-of-the-victim");
    assert_eq!(outcome.read("work/logs/node.txt"), "of the node", "{}", outcome.log);
    for name in ["rsh", "path", "local"] {
        let taken = std::fs::read_to_string(outcome.jobdir.join("work/logs").join(name));
        assert!(
            !taken.unwrap_or_default().contains("text-of-the-victim"),
            "{name}\n{}",
            outcome.log
        );
    }
    for name in ["sent", "linked", "taken"] {
        assert!(!home.join(name).exists(), "{name}\n{}", outcome.log);
    }
    assert!(!outcome.read("ansible/inventory.yaml").contains("of the node"));
    assert!(!outcome.read("ssh/config").contains("of the node"));
    assert!(!outcome.log.contains("text-of-the-victim"), "{}", outcome.log);
}

/// Z7.1, Z7.5: `synchronize` itself would send the workspace to whatever answers at the address.
#[tokio::test]
async fn synchronize_refuses_a_node_with_another_host_key() {
    let play = "- hosts: all\n  gather_facts: false\n  tasks:\n    - synchronize: {src: \"{{ zuul.executor.src_root }}\", dest: sent}\n";
    for trusted in [true, false] {
        let files = [(PROJECT, "play.yaml", play), (CONFIG, "play.yaml", play)];
        let mut story = Story::new(&files).with_nodes(&["one", "two"], &[]);
        // The other node's key, as if someone had taken the place of the first.
        story.nodes[0].access.host_keys = story.nodes[1].access.host_keys.clone();
        story.job.run = vec![if trusted { story.trusted("play") } else { untrusted("play") }];
        let nodes = story.take_nodes();
        let homes = [nodes[0].home(), nodes[1].home()];
        let outcome = story.run().await;
        assert_eq!(outcome.ended.result, Failure, "{}", outcome.log);
        assert!(outcome.log.contains("Host key verification failed"), "{}", outcome.log);
        assert!(!homes[0].join("sent").exists(), "{}", outcome.log);
        assert!(homes[1].join("sent/src").is_dir(), "{}", outcome.log);
    }
}
