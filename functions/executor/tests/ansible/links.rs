//! Links that an untrusted playbook or a node leaves in the work directory lead the executor's own
//! plugins nowhere (Z7.5).
//!
//! A trusted playbook may write its home, from which Ansible loads plugins: one that follows a link
//! there would let the next trusted playbook run the code of a change. So links are removed before
//! it runs, and its plugins follow none that it fetched itself.

use crate::support::*;
use sluice_model::build::BuildResult::*;
use std::path::Path;

/// Returns the files below a directory.
fn files(directory: &Path) -> Vec<String> {
    let found = std::process::Command::new("find").arg(directory).args(["-type", "f"]).output();
    String::from_utf8(found.unwrap().stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Z7.5: logs are fetched beside a link, not through it, whether a playbook left it or an archive
/// of the node brought it.
#[tokio::test]
async fn what_is_fetched_from_a_node_goes_through_no_link() {
    let leave = "
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: |
        root={{ zuul.executor.work_root | dirname }}
        cd {{ zuul.executor.log_root }}
        ln -s $root/.ansible planted
        ln -s ../../.ansible relative
";
    let fetch = "
- hosts: all
  gather_facts: false
  vars: {archive_logs_directory: ., root: \"{{ zuul.executor.work_root | dirname }}\"}
  tasks:
    - copy: {content: evil, dest: \"{{ zuul.executor.log_root }}/planted/copied.py\"}
      delegate_to: localhost
      ignore_errors: true
    # As another module may bring them from the node.
    - shell: |
        cd {{ zuul.executor.log_root }}
        ln -s {{ root }}/.ansible planted && ln -s ../../.ansible relative && ln -s {{ root }}/.ansible away
        ln -s {{ root }}/.ansible/kept.py zuul-info/zuul-info.one.txt
      delegate_to: localhost
    - include_role: {name: validate-host}
    - include_role: {name: archive-logs}
      vars: {archive_logs_paths: [planted/plugins/filter/evil.py, relative/plugins]}
    - include_role: {name: archive-logs}
      vars: {archive_logs_paths: [brought]}
    - raw: rm brought; mkdir -p brought/plugins/filter; cp planted/plugins/filter/evil.py brought/plugins/filter/
    - include_role: {name: archive-logs}
      vars: {archive_logs_paths: [brought/plugins/filter/evil.py]}
    - tree_fetch: {src: ., paths: [planted], dest: \"{{ zuul.executor.log_root }}/../../.ansible\"}
      ignore_errors: true
    - tree_fetch: {src: planted, dest: \"{{ ansible_env_home }}\"}
      vars: {ansible_env_home: \"{{ lookup('env', 'ANSIBLE_HOME') }}\"}
      ignore_errors: true
    - output_keep: {command: cat planted/plugins/filter/evil.py, dest: \"{{ zuul.executor.log_root }}/away/evil.py\"}
      ignore_errors: true
";
    let mut story = Story::new(&[(PROJECT, "leave.yaml", leave), (CONFIG, "fetch.yaml", fetch)])
        .with_nodes(&["one"], &[]);
    let home = story.nodes[0].home();
    for directory in ["planted", "relative"] {
        let directory = home.join(directory).join("plugins/filter");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("evil.py"), "raise SystemExit('evil')\n").unwrap();
    }
    let own = story.directory.path().join("job/.ansible");
    std::os::unix::fs::symlink(own, home.join("brought")).unwrap();
    story.job.run = vec![untrusted("leave"), story.trusted("fetch")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Success, "{}", outcome.log);
    let removed = "Removed 2 links that lead out of the work directory: logs/";
    assert!(outcome.log.contains(removed), "{}", outcome.log);
    let trusted = files(&outcome.jobdir.join("homes/trusted/ansible"));
    let written = |path: &&String| path.ends_with(".py") && !path.contains("tmp/");
    assert_eq!(trusted.iter().filter(written).count(), 0, "{trusted:?}\n{}", outcome.log);
    for path in ["planted", "relative", "brought"] {
        let text = outcome.read(&format!("work/logs/{path}/plugins/filter/evil.py"));
        assert!(text.contains("evil"), "{path}");
        let found = outcome.jobdir.join("work/logs").join(path).symlink_metadata().unwrap();
        assert!(found.is_dir(), "{path} is a directory of its own");
    }
    assert!(outcome.read("work/logs/zuul-info/zuul-info.one.txt").contains("Python"));
    for refused in ["without '..'", "must lie in the work directory", "away is a link"] {
        assert!(outcome.log.contains(refused), "{refused}\n{}", outcome.log);
    }
    let left = std::fs::read_dir(outcome.jobdir.join("work")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".fetch")), "{left:?}");
}

/// Z7.5: a link in place of the repositories sends no file of a trusted playbook's home to a node.
#[tokio::test]
async fn a_link_in_place_of_the_repositories_is_not_sent_to_a_node() {
    let swap = "
- hosts: localhost
  gather_facts: false
  tasks:
    - shell: cd {{ zuul.executor.work_root }} && mv src away && ln -s {{ zuul.executor.work_root | dirname }}/home src
";
    let push = "
- hosts: localhost
  gather_facts: false
  tasks:
    - copy: {content: private, dest: ~/private}
    - file: {src: ~/, dest: \"{{ zuul.executor.src_root }}\", state: link}
- hosts: all
  gather_facts: false
  roles: [prepare-workspace]
";
    let files = [(PROJECT, "swap.yaml", swap), (CONFIG, "push.yaml", push)];
    let mut story = Story::new(&files).with_nodes(&["one"], &[]);
    story.job.run = vec![untrusted("swap"), story.trusted("push")];
    let outcome = story.run().await;
    assert_eq!(outcome.ended.result, Failure, "{}", outcome.log);
    assert!(outcome.log.contains("out of the work directory: src"), "{}", outcome.log);
    assert!(outcome.log.contains("src is a link, or not a directory"), "{}", outcome.log);
    assert!(!outcome.nodes[0].home().join("src/private").exists());
}
