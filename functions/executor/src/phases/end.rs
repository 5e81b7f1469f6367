//! The end of a build: its record in the logs, and what its own record holds.

use super::{Attempt, PreparedBuild};
use crate::archive;
use crate::build_result::ResultTracker;
use crate::comment_lines;
use crate::held_nodes;
use crate::home_files;
use crate::jobdir::Jobdir;
use crate::joblog::{JobLog, now};
use crate::redact::Redactor;
use crate::returned_data::{ReturnedData, add_warning, part_for_record};
use serde_json::{Map, Value, json};
use sluice_model::Timestamp;
use sluice_model::build::{BuildResult, RunEnd};

impl PreparedBuild<'_> {
    /// Passes returned secret data to the observer, maps file comments to the change's own lines,
    /// writes `job-output.json`, and returns the end of the build. The result is computed from
    /// `results` and from whether the job allows another attempt. Secrets are masked in the
    /// returned data and the reason. Whatever of the job's is dropped, cannot be mapped or written
    /// is a line in the log, and if it is dropped also a warning of the build.
    pub(super) async fn finish(
        self,
        results: &ResultTracker,
        started_at: Timestamp,
        log: &mut JobLog<'_>,
    ) -> RunEnd {
        let Attempt { job, sources, jobdir, .. } = self.attempt;
        let (mut returned, trouble) = ReturnedData::read(&jobdir.results);
        log.returned_secrets(&returned);
        // All are in the log already.
        let mut warnings: Vec<String> = trouble.into_iter().collect();
        warnings.extend(returned.masking_trouble());
        warnings.extend(returned.secret_data().err());
        if !self.left_files.is_empty() {
            let files: Vec<String> =
                self.left_files.iter().take(home_files::FILES_MAX).cloned().collect();
            warnings.push(home_files::warning(&files));
        }
        if let Some(tested) = &self.tested {
            let data = &mut returned.data;
            let notes =
                comment_lines::map_to_proposed_change(job, sources, jobdir, tested, data).await;
            notes.iter().for_each(|line| log.say(line));
        }
        if let Err(error) = write_record(jobdir, &self.records) {
            log.say(&format!("job-output.json could not be written: {error}"));
        }
        let result = results.result(returned.may_retry());
        if let (Some(lookup), Some(agent)) = (job.holder, &self.nodes.agent) {
            let access = (jobdir, self.attempt.settings, agent);
            held_nodes::admit_holder(lookup, result, access, job.nodes, log).await;
        }
        let root = jobdir.root.clone();
        let dropped = tokio::task::spawn_blocking(move || archive::describe_left_out(&root)).await;
        let mut dropped = dropped.unwrap_or_default();
        let log_url = log_url(&returned, &log.redactor).unwrap_or_else(|why| {
            dropped.push(why);
            None
        });
        dropped.iter().for_each(|line| log.say(line));
        for warning in warnings.into_iter().chain(dropped).rev() {
            add_warning(&mut returned.data, warning);
        }
        let data = log.redactor.map(returned.data);
        if let Some(note) = part_for_record(&data).and_then(|part| part.note) {
            log.say(&note);
        }
        RunEnd {
            result,
            detail: results.why().map(|why| short(&log.redactor.text(why))),
            started_at: Some(started_at),
            ended_at: now(),
            log_url,
            data,
            data_object: None,
        }
    }
}

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

/// The maximum size of a build's detail in bytes.
const DETAIL_BYTES_MAX: usize = 2_000;

/// Cuts a text to at most 2,000 bytes, so that it fits into a build's record.
fn short(text: &str) -> String {
    text[..text.floor_char_boundary(DETAIL_BYTES_MAX)].to_owned()
}

/// Returns the address of the logs that the job returned, with secrets masked; `None` if it
/// returned none. The error says that the address is left out, and why.
pub(super) fn log_url(
    returned: &ReturnedData,
    redactor: &Redactor,
) -> Result<Option<String>, String> {
    Ok(returned.log_url()?.map(|url| redactor.text(&url)))
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
