//! `calls.json`: every kind of call to the data services of a local system, by who made it, as the
//! cost meter counts them.

use anyhow::Context as _;
use sluice_emulator::data::Report;
use std::path::{Path, PathBuf};

/// The file in a data directory.
pub const CALLS_FILE: &str = "calls.json";

/// Writes what was counted and returns where. Whoever reads it meanwhile finds all of this or all
/// of what stood there before.
///
/// # Errors
/// When it cannot be written; what stood there before is left as it was.
pub fn write_calls(data: &Path, report: &Report) -> anyhow::Result<PathBuf> {
    let path = data.join(CALLS_FILE);
    let text =
        serde_json::to_vec_pretty(report).context("could not put what was counted into JSON")?;
    let new = path.with_extension("json.new");
    std::fs::write(&new, text).with_context(|| format!("could not write {}", new.display()))?;
    std::fs::rename(&new, &path)
        .with_context(|| format!("could not put {} in its place", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_emulator::data::{Count, Purpose, Row};

    /// C4: it replaces what an earlier look wrote and leaves nothing else.
    #[test]
    fn what_was_counted_replaces_what_stood_there() {
        let data = tempfile::tempdir().unwrap();
        let report = |calls| Report {
            rows: vec![Row {
                principal: "webhook".to_owned(),
                service: "dynamodb".to_owned(),
                operation: "PutItem".to_owned(),
                purpose: Purpose::Own,
                count: Count { calls, ..Count::default() },
            }],
        };
        write_calls(data.path(), &report(1)).unwrap();
        let path = write_calls(data.path(), &report(2)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, serde_json::to_string_pretty(&report(2)).unwrap());
        let names = std::fs::read_dir(data.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.collect::<Vec<String>>(), [CALLS_FILE]);
    }

    /// C4: where it cannot be written the error says where, and what stood there stays.
    #[test]
    fn what_cannot_be_written_leaves_what_stood_there() {
        let data = tempfile::tempdir().unwrap();
        let path = write_calls(data.path(), &Report::default()).unwrap();
        let before = std::fs::read(&path).unwrap();
        std::fs::create_dir(data.path().join("calls.json.new")).unwrap();
        let error = write_calls(data.path(), &Report::default()).unwrap_err();
        assert!(error.to_string().contains("calls.json.new"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
