//! `calls.json`: the calls to the data services of a local system by caller and operation, as
//! counted by the cost meter.

use anyhow::Context as _;
use sluice_emulator::data::MeterReport;
use std::path::{Path, PathBuf};

/// The name of the file in the data directory.
pub const CALLS_FILE: &str = "calls.json";

/// Writes the report as `calls.json` to a data directory, replacing an old one, and returns its
/// path. Concurrent readers see either the complete old or the complete new report.
///
/// # Errors
/// When the file cannot be written; an old report is kept.
pub fn write_calls(data: &Path, report: &MeterReport) -> anyhow::Result<PathBuf> {
    let path = data.join(CALLS_FILE);
    let text =
        serde_json::to_vec_pretty(report).context("could not serialize the report of calls")?;
    let new = path.with_extension("json.new");
    std::fs::write(&new, text).with_context(|| format!("could not write {}", new.display()))?;
    std::fs::rename(&new, &path)
        .with_context(|| format!("could not replace {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_emulator::data::{Count, Purpose, Row};

    /// C4: the report replaces an earlier one and leaves no other file.
    #[test]
    fn a_new_report_replaces_the_old_one() {
        let data = tempfile::tempdir().unwrap();
        let report = |calls| MeterReport {
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

    /// C4: an error names the path, and the old report is kept.
    #[test]
    fn a_failed_write_keeps_the_old_report() {
        let data = tempfile::tempdir().unwrap();
        let path = write_calls(data.path(), &MeterReport::default()).unwrap();
        let before = std::fs::read(&path).unwrap();
        std::fs::create_dir(data.path().join("calls.json.new")).unwrap();
        let error = write_calls(data.path(), &MeterReport::default()).unwrap_err();
        assert!(error.to_string().contains("calls.json.new"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
