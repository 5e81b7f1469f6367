//! The playbooks of the founding documents, as they are printed, become what Ansible reads (E5):
//! the text is taken out of the document itself.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../shared/config/tests/common/founding.rs"]
mod founding;

use founding::founding_material;
use serde_yaml::Value;
use sluice_executor::playbook_files::{find_playbook, wrap_plays_in_list};
use sluice_executor::returned_data::ReturnedData;
use std::path::{Path, PathBuf};

/// The message for a run without the documents.
const UNDONE: &str = "the founding documents' playbooks and returned data were not read";

/// Returns the playbooks of the first document with their paths: each from a line
/// that names a file to the next line of prose. A play's keys stand at the margin there.
fn playbooks(folder: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder.join("seeds/zuul-v3.txt")).unwrap();
    let mut playbooks: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(file) = line.strip_prefix("### ") {
            inside = file.contains("playbooks");
            if inside {
                playbooks.push((file.to_owned(), String::new()));
            }
        } else if inside && (line.is_empty() || line.starts_with([' ', '-', '#']) || is_key(line)) {
            let (_, text) = playbooks.last_mut().unwrap();
            text.push_str(line);
            text.push('\n');
        } else {
            inside = false;
        }
    }
    playbooks
}

/// Returns whether a line begins with a lowercase word and a colon, as keys of plays do and
/// sentences do not.
fn is_key(line: &str) -> bool {
    line.split_once(':')
        .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

/// Returns the hosts of each play of a list.
fn hosts(plays: &Value) -> Vec<&str> {
    plays.as_sequence().unwrap().iter().map(|play| play["hosts"].as_str().unwrap()).collect()
}

/// E5: none of the four is a list of plays as it is printed; each becomes one, with all its plays
/// and what they run.
#[test]
fn each_playbook_of_the_first_document_becomes_a_list_of_its_plays() {
    let Some(folder) = founding_material(UNDONE) else { return };
    let printed = playbooks(&folder);
    let files: Vec<&str> = printed.iter().filter_map(|(path, _)| path.rsplit('/').next()).collect();
    assert_eq!(
        files,
        ["random-job.yaml", "python27.yaml", "devstack-multinode.yaml", "archive-logs.yaml"]
    );
    let plays: Vec<Value> = printed
        .iter()
        .map(|(_, text)| {
            serde_yaml::from_str(&wrap_plays_in_list(text).unwrap_or_else(|| panic!("{text}")))
                .unwrap()
        })
        .collect();
    let expected: [&[&str]; 4] =
        [&["controller"], &["controller"], &["controller", "compute"], &["all"]];
    for (plays, expected) in plays.iter().zip(expected) {
        assert_eq!(hosts(plays), expected);
    }
    assert_eq!(plays[0][0]["tasks"][0]["shell"].as_str(), Some("run_some_tests.sh"));
    assert_eq!(plays[1][0]["roles"][0]["tox"]["env"].as_str(), Some("py27"));
    assert_eq!(plays[2][0]["roles"][0].as_str(), Some("devstack"));
    assert_eq!(plays[2][1]["roles"][0].as_str(), Some("devstack-compute"));
    assert_eq!(plays[3][0]["roles"][0]["archive-logs"].as_str(), Some("/opt/workspace/logs"));
    // The conversion does not change its own output.
    for (_, text) in &printed {
        assert_eq!(wrap_plays_in_list(&wrap_plays_in_list(text).unwrap()), None);
    }
}

/// E5, Z4.9: a job of the name finds the playbook where the document puts it, below `playbooks/` or
/// at the root.
#[test]
fn each_playbook_of_the_first_document_is_found_by_its_name() {
    let Some(folder) = founding_material(UNDONE) else { return };
    for (path, text) in playbooks(&folder) {
        // The first two parts are the repository.
        let within = path.splitn(3, '/').nth(2).unwrap();
        let checkout = tempfile::tempdir().unwrap();
        std::fs::create_dir(checkout.path().join("playbooks")).unwrap();
        std::fs::write(checkout.path().join(within), text).unwrap();
        let name = within.trim_start_matches("playbooks/").trim_end_matches(".yaml");
        assert_eq!(find_playbook(checkout.path(), name), Some(PathBuf::from(within)));
    }
}

/// E1, L1.3: the artifacts of the second document's image job are read as it is printed, by what
/// reads what a job returns.
#[test]
fn the_returned_artifacts_of_the_second_document_are_read() {
    let Some(folder) = founding_material(UNDONE) else { return };
    let text = std::fs::read_to_string(folder.join("seeds/nodepool-in-zuul.rst")).unwrap();
    let blocks: Vec<String> = text
        .split(".. code-block:: yaml\n")
        .skip(1)
        .map(|rest| {
            let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with(' '));
            lines.fold(String::new(), |block, line| block + line + "\n")
        })
        .filter(|block| block.trim_start().starts_with("artifacts:"))
        .collect();
    let [printed] = &blocks[..] else { panic!("{blocks:#?}") };
    let own: serde_json::Value = serde_yaml::from_str(printed).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), serde_json::json!({"data": {"zuul": own}}).to_string()).unwrap();
    let (returned, ignored) = ReturnedData::read(file.path());
    assert_eq!(ignored, None);
    let image = |format: &str| {
        serde_json::json!({
            "name": format!("{format} image"),
            "url": format!("https://storage.example.com/new_image.{format}"),
            "metadata": {"type": "zuul_image", "image_name": "debian-unstable", "format": format},
        })
    };
    assert_eq!(
        returned.data["zuul"]["artifacts"],
        serde_json::json!([image("raw"), image("qcow2")])
    );
}
