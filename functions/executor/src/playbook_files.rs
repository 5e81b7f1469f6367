//! Finds playbook files by the names used in jobs, and turns single plays into a list (Z4.9, E5).

use sluice_model::job::playbook_files;
use std::path::{Path, PathBuf};

/// Returns the path of the playbook called `name` in the repository at `checkout`, relative to it.
/// Tries the name as given, with `.yaml` and with `.yml`, first at the root and then below
/// `playbooks/`. Returns `None` if there is no such file or the name leads out of the repository.
pub fn find_playbook(checkout: &Path, name: &str) -> Option<PathBuf> {
    playbook_files(name).into_iter().find(|file| checkout.join(file).is_file()).map(PathBuf::from)
}

/// Converts a playbook that is a single play, or several YAML documents, into one list of plays. A
/// single play is a block mapping; one in braces is not recognised. Returns `None` if the text is
/// one document that is no single play, so that it needs no change. A text without content becomes
/// `---`. Document separators, directives and documents with nothing but comments are dropped;
/// tags, anchors and other comments stay.
///
/// Works on lines, not on parsed values, to preserve these.
pub fn wrap_plays_in_list(text: &str) -> Option<String> {
    let documents = documents(text);
    if documents.len() == 1 && !is_mapping(&documents[0]) {
        return None;
    }
    let mut list = String::from("---\n");
    for document in &documents {
        if is_mapping(document) {
            list.push_str("-\n");
            for line in document {
                if !line.trim().is_empty() {
                    list.push_str("  ");
                    list.push_str(line);
                }
                list.push('\n');
            }
        } else {
            for line in document {
                list.push_str(line);
                list.push('\n');
            }
        }
    }
    Some(list)
}

/// Splits a text into YAML documents and returns the lines of each. Separators (`---`), end markers
/// (`...`), directives (`%`) and documents with nothing but comments are left out.
fn documents(text: &str) -> Vec<Vec<&str>> {
    let mut documents = vec![Vec::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- #") {
            documents.push(Vec::new());
        } else if line != "..." && !line.starts_with('%') {
            documents.last_mut().map(|document| document.push(line)).unwrap_or_default();
        }
    }
    documents.retain(|document| document.iter().any(|line| is_content(line)));
    documents
}

/// Returns whether a line is neither empty nor a comment.
fn is_content(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with('#')
}

/// Returns whether a document is a block mapping, and so a single play, judged by its first line
/// with content. It is false for lists, for a document without content, and for flow mappings and
/// scalars, which are not playbooks; Ansible reports those.
fn is_mapping(document: &[&str]) -> bool {
    let Some(first) = document.iter().find(|line| is_content(line)) else { return false };
    let first = first.trim_start();
    let sequence = first == "-" || first.starts_with("- ") || first.starts_with(['[', '{']);
    !sequence && (first.contains(": ") || first.trim_end().ends_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Z4.9
    #[test]
    fn a_playbook_name_may_omit_directory_and_suffix() {
        let repo = tempfile::tempdir().unwrap();
        std::fs::create_dir(repo.path().join("playbooks")).unwrap();
        for file in ["playbooks/archive-logs.yml", "playbooks/test.yaml", "test.yml"] {
            std::fs::write(repo.path().join(file), "").unwrap();
        }
        let find = |name| find_playbook(repo.path(), name).map(|path| path.display().to_string());
        assert_eq!(find("archive-logs").as_deref(), Some("playbooks/archive-logs.yml"));
        assert_eq!(find("playbooks/test.yaml").as_deref(), Some("playbooks/test.yaml"));
        assert_eq!(find("test").as_deref(), Some("test.yml"));
        assert_eq!(find("nothing"), None);
        assert_eq!(find("../playbooks/test.yaml"), None);
        assert_eq!(find("/etc/passwd"), None);
    }

    /// E5
    #[test]
    fn single_plays_and_documents_become_a_list_and_a_list_stays() {
        assert_eq!(wrap_plays_in_list("---\n# plays\n- hosts: all\n  tasks: []\n"), None);
        let one = wrap_plays_in_list(
            "---\nhosts: controller\ntasks:\n  - shell: |\n      a: b\n\n      c\n",
        )
        .unwrap();
        assert_eq!(
            one,
            "---\n-\n  hosts: controller\n  tasks:\n    - shell: |\n        a: b\n\n        c\n"
        );
        let two =
            wrap_plays_in_list("---\nhosts: a\nroles:\n  - x\n---\nhosts: b\nroles:\n  - y\n")
                .unwrap();
        let plays: serde_yaml::Value = serde_yaml::from_str(&two).unwrap();
        assert_eq!(plays.as_sequence().unwrap().len(), 2);
    }
}
