//! `job-output.txt`: what a build says, line by line, with the time and without secrets (Z7.4,
//! Z5.4).

use crate::job::Observer;
use crate::jobdir::Jobdir;
use crate::redact::Redactor;
use crate::returned::Returned;
use sluice_model::Timestamp;
use sluice_model::build::Pause;
use std::fs::File;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// The log of one build. It alone writes the file; playbooks send it their lines.
pub struct JobLog<'a> {
    file: File,
    offset: u64,
    bytes_max: u64,
    observer: &'a dyn Observer,
    /// What is masked from now on.
    pub redactor: Redactor,
}

impl<'a> JobLog<'a> {
    /// Starts the log in `jobdir`. After `bytes_max` bytes, lines are dropped.
    pub fn create(
        jobdir: &Jobdir,
        bytes_max: u64,
        observer: &'a dyn Observer,
    ) -> std::io::Result<Self> {
        let file = File::options().append(true).open(&jobdir.log)?;
        Ok(Self { file, offset: 0, bytes_max, observer, redactor: Redactor::default() })
    }

    /// Writes `text`, each of its lines with the time in UTC: `YYYY-mm-dd HH:MM:SS.ffffff | text`.
    pub fn say(&mut self, text: &str) {
        if self.offset >= self.bytes_max {
            return;
        }
        let now = stamp();
        let mut block = String::new();
        // Masked as a whole, so that a value of several lines is found too.
        for line in self.redactor.text(text).split('\n') {
            block.push_str(&now);
            block.push_str(" | ");
            block.push_str(line.trim_end_matches('\r'));
            block.push('\n');
        }
        if self.offset + block.len() as u64 >= self.bytes_max {
            block = format!(
                "{now} | [The log has reached its limit of {} bytes; the rest is dropped]\n",
                self.bytes_max
            );
            self.bytes_max = 0;
        }
        // A log that cannot be written does not end the build: its result still counts.
        if let Err(error) = self.file.write_all(block.as_bytes()) {
            tracing::warn!(%error, "could not write to a build's log");
            return;
        }
        self.observer.log_appended(self.offset, block.as_bytes());
        self.offset += block.len() as u64;
    }

    /// Tells that the build is bound to fail.
    pub fn will_fail(&self) {
        self.observer.will_fail();
    }

    /// Passes on what the job returned for the jobs behind it alone; what is too much is told
    /// instead.
    pub fn returned_secrets(&mut self, returned: &Returned) {
        match returned.secret_data() {
            Ok(secret_data) => self.observer.returned_secrets(secret_data),
            Err(why) => self.say(&why),
        }
    }

    /// Tells that the build waits for the jobs behind it.
    pub fn paused(&self, pause: Pause) {
        self.observer.paused(pause);
    }
}

/// Returns the present time.
pub fn now() -> Timestamp {
    Timestamp(
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
    )
}

fn stamp() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = Timestamp(since.as_millis() as u64).to_iso().replace('T', " ");
    format!("{second}.{:06}", since.subsec_micros())
}
