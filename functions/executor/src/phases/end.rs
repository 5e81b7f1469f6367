//! The end of a build: its record in the logs, and what its own record holds.

use crate::jobdir::Jobdir;
use crate::joblog::now;
use crate::redact::Redactor;
use crate::returned_data::ReturnedData;
use serde_json::{Map, Value, json};
use sluice_model::build::{BuildResult, RunEnd};

/// Writes the machine-readable record of the playbooks so far to `job-output.json` in the logs, in
/// place of an existing file. An error if the log directory was replaced by a link.
pub(super) fn write_record(jobdir: &Jobdir, records: &[Value]) -> std::io::Result<()> {
    // Playbooks can write here, so neither the directory nor the file may be a link.
    if !std::fs::symlink_metadata(&jobdir.logs)?.is_dir() {
        return Err(std::io::Error::other("work/logs is no longer a directory"));
    }
    let path = jobdir.logs.join("job-output.json");
    let _ = std::fs::remove_file(&path);
    std::io::Write::write_all(
        &mut std::fs::File::create_new(path)?,
        json!(records).to_string().as_bytes(),
    )
}

/// The maximum size of a build's detail, and of its log address, in bytes. Both are stored in
/// records.
const DETAIL_BYTES_MAX: usize = 2_000;

/// Cuts a text to at most 2,000 bytes, so that it fits into a build's record.
pub(super) fn short(text: &str) -> String {
    text[..text.floor_char_boundary(DETAIL_BYTES_MAX)].to_owned()
}

/// Returns the address of the logs that the job returned, with secrets masked; `None` if it
/// returned none, or one that does not fit into a build's record.
pub(super) fn log_url(returned: &ReturnedData, redactor: &Redactor) -> Option<String> {
    let url = returned.log_url().filter(|url| url.len() <= DETAIL_BYTES_MAX)?;
    Some(redactor.text(&url)).filter(|url| url.len() <= DETAIL_BYTES_MAX)
}

/// Returns the end of a build that ran no playbook, at the current time and without data. `detail`,
/// the reason, is cut to fit into the record.
pub(super) fn ended(result: BuildResult, detail: Option<String>) -> RunEnd {
    let detail = detail.map(|detail| short(&detail));
    RunEnd {
        result,
        detail,
        started_at: None,
        ended_at: now(),
        data: Map::new(),
        data_object: None,
        log_url: None,
    }
}
