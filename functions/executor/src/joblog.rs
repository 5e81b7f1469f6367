//! Writes `job-output.txt`, the log of a build, with timestamps and secrets masked (Z7.4, Z5.4).

use crate::job::Observer;
use crate::jobdir::Jobdir;
use crate::redact::Redactor;
use crate::returned_data::ReturnedData;
use serde_json::{Map, Value, json};
use sluice_model::Timestamp;
use sluice_model::build::Pause;
use sluice_model::job::SecretExposure;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The maximum length of a line in bytes, without the timestamp; the rest is dropped with a notice.
const LINE_BYTES_MAX: usize = 16 << 10;

/// How much the executor itself may still write after the limit was reached, in bytes.
const OWN_BYTES_MAX: u64 = 64 << 10;

/// The log of one build. Playbooks do not write the file; they send their lines.
pub struct JobLog<'a> {
    /// The open log file.
    file: File,
    /// The length of the log in bytes.
    offset: u64,
    /// The maximum length in bytes; 0 after the limit was reached.
    bytes_max: u64,
    /// How much the executor itself may write after that, in bytes.
    own_bytes_left: u64,
    /// Receives the events of the build.
    observer: &'a dyn Observer,
    /// The values to mask.
    pub redactor: Redactor,
    /// What happens if playbooks print a secret, besides masking it.
    exposure: SecretExposure,
    /// The values that playbooks must not print.
    secrets: Redactor,
    /// Whether the running playbook printed one.
    is_exposed: bool,
}

/// What the log has in place of a line with a secret, with `secret-exposure`.
const EXPOSED_LINE: &str = "[This line contained a secret and is left out]";
/// What `job-output.json` says in place of a playbook that printed a secret.
const EXPOSED_PLAYBOOK: &str = "The output of this playbook contained a secret and is left out.";

impl<'a> JobLog<'a> {
    /// Opens the log in `jobdir` for appending; the file must exist and be empty. The text with
    /// which the log would reach `bytes_max` bytes is replaced by a notice, and what playbooks print
    /// after it is dropped. The log masks nothing until values are added to [`Self::redactor`] or by
    /// [`Self::add_secret`]. `exposure` is the job's `secret-exposure`.
    pub fn create(
        jobdir: &Jobdir,
        bytes_max: u64,
        exposure: SecretExposure,
        observer: &'a dyn Observer,
    ) -> std::io::Result<Self> {
        let file = File::options().append(true).open(&jobdir.log)?;
        Ok(Self {
            file,
            offset: 0,
            bytes_max,
            own_bytes_left: OWN_BYTES_MAX,
            observer,
            redactor: Redactor::default(),
            exposure,
            secrets: Redactor::default(),
            is_exposed: false,
        })
    }

    /// Adds a secret: it is masked from now on, and playbooks must not print it.
    pub fn add_secret(&mut self, value: &Value) {
        self.redactor.add(value);
        self.secrets.add(value);
    }

    /// Returns what the log has in place of `text`, which a playbook printed: if the job has
    /// `secret-exposure`, each line with a secret is replaced by a notice.
    fn without_exposed_lines<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        if self.exposure == SecretExposure::Ignore || !self.secrets.occurs_in(text) {
            return Cow::Borrowed(text);
        }
        self.is_exposed = true;
        let masked = self.secrets.text(text);
        Cow::Owned(Redactor::replace_masked_lines(&masked, EXPOSED_LINE))
    }

    /// Returns a playbook's entry for `job-output.json` with secrets masked. If the job has
    /// `secret-exposure` and the entry contains a secret, it has no plays and a notice instead.
    pub fn conceal(&mut self, entry: Map<String, Value>) -> Value {
        let entry = Value::Object(entry);
        if self.exposure == SecretExposure::Ignore || !self.secrets.occurs_in_value(&entry) {
            return self.redactor.value(entry);
        }
        self.is_exposed = true;
        let mut masked = self.redactor.value(entry);
        masked["plays"] = json!([]);
        masked["stats"] = json!({});
        masked["secret_exposure"] = json!(EXPOSED_PLAYBOOK);
        masked
    }

    /// Returns whether the running playbook printed a secret although the job forbids it
    /// (`secret-exposure: fail`).
    pub fn must_fail(&self) -> bool {
        self.exposure == SecretExposure::Fail && self.is_exposed
    }

    /// Returns [`Self::must_fail`] of the playbook that has ended. The next one begins without an
    /// exposed secret.
    pub fn end_playbook(&mut self) -> bool {
        let must_fail = self.must_fail();
        self.is_exposed = false;
        must_fail
    }

    /// Writes a text of the executor itself, as [`Self::say_output`] does, but also after the limit
    /// was reached: then up to [`OWN_BYTES_MAX`] bytes of such texts follow the notice, so that the
    /// log always has the ends of its playbooks.
    pub fn say(&mut self, text: &str) {
        let block = self.block(text);
        if self.has_room(&block) {
            self.write(&block);
        } else if block.len() as u64 <= self.own_bytes_left {
            self.own_bytes_left -= block.len() as u64;
            self.write(&block);
        }
    }

    /// Writes `text`, which a playbook printed, with secrets masked, each of its lines with the time
    /// in UTC (`YYYY-mm-dd HH:MM:SS.ffffff | text`), and passes the written bytes to the observer.
    /// Cuts lines of more than 16 KiB. With `secret-exposure`, a notice replaces lines with secrets.
    /// The text with which the log would reach its limit is replaced by a notice; later texts are
    /// dropped. A failure to write is logged and does not fail the build.
    pub fn say_output(&mut self, text: &str) {
        let text = self.without_exposed_lines(text);
        if self.bytes_max == 0 {
            return;
        }
        let block = self.block(&text);
        if self.has_room(&block) {
            self.write(&block);
        }
    }

    /// Returns the lines of `text` as the log has them.
    fn block(&self, text: &str) -> String {
        let now = stamp();
        let mut block = String::new();
        // Masked before it is split, to find values of several lines.
        for line in self.redactor.text(text).split('\n') {
            let line = line.trim_end_matches('\r');
            // Masked before it is cut too, so that no part of a secret is left.
            let kept = &line[..line.floor_char_boundary(LINE_BYTES_MAX)];
            block.extend([now.as_str(), " | ", kept]);
            if kept.len() < line.len() {
                let _ = write!(
                    block,
                    " [the rest of a line of more than {LINE_BYTES_MAX} bytes is left out]"
                );
            }
            block.push('\n');
        }
        block
    }

    /// Returns whether the log stays below its limit with `block`. Writes the notice if it is the
    /// first for which it does not.
    fn has_room(&mut self, block: &str) -> bool {
        if self.offset + (block.len() as u64) < self.bytes_max {
            return true;
        }
        if self.bytes_max > 0 {
            let notice = format!(
                "[The log has reached its limit of {} bytes; the rest is dropped]",
                self.bytes_max
            );
            self.bytes_max = 0;
            self.write(&format!("{} | {notice}\n", stamp()));
        }
        false
    }

    /// Appends whole lines to the file and passes them to the observer.
    fn write(&mut self, block: &str) {
        // A failure to write the log does not fail the build. What was written of the block is cut,
        // since the log's length counts only whole blocks.
        let written =
            write_or_cut(&mut self.file, block.as_bytes(), |file| file.set_len(self.offset));
        if let Err(error) = written {
            tracing::warn!(%error, "could not write to a build's log");
            return;
        }
        self.observer.log_appended(self.offset, block.as_bytes());
        self.offset += block.len() as u64;
    }

    /// Notifies the observer that the build will fail.
    pub fn will_fail(&self) {
        self.observer.will_fail();
    }

    /// Passes the job's secret data for its dependents to the observer. If it is too large, passes
    /// nothing and writes that to the log instead.
    pub fn returned_secrets(&mut self, returned: &ReturnedData) {
        match returned.secret_data() {
            Ok(secret_data) => self.observer.returned_secrets(secret_data),
            Err(why) => self.say(&why),
        }
    }

    /// Notifies the observer that the build is paused.
    pub fn paused(&self, pause: Pause) {
        self.observer.paused(pause);
    }
}

/// Writes all bytes; if that fails halfway, as on a full disk, `cut` removes what was written.
fn write_or_cut<F: Write>(
    file: &mut F,
    bytes: &[u8],
    cut: impl FnOnce(&mut F) -> std::io::Result<()>,
) -> std::io::Result<()> {
    file.write_all(bytes).inspect_err(|_| {
        if let Err(error) = cut(file) {
            tracing::warn!(%error, "could not cut a build's log after a failed write");
        }
    })
}

/// Adds a text of the executor to the log at `path` of a build that has ended. Returns its offset
/// and the added line. The text must not contain secrets.
pub fn append(path: &Path, text: &str) -> std::io::Result<(u64, String)> {
    let mut file = File::options().append(true).open(path)?;
    let offset = file.metadata()?.len();
    let line = format!("{} | {text}\n", stamp());
    file.write_all(line.as_bytes())?;
    Ok((offset, line))
}

/// Returns the current time of the system clock.
pub fn now() -> Timestamp {
    Timestamp(
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
    )
}

/// Returns the current time in UTC as a line of the log has it: `YYYY-mm-dd HH:MM:SS.ffffff`.
fn stamp() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = Timestamp(since.as_millis() as u64).to_iso().replace('T', " ");
    format!("{second}.{:06}", since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file on a disk with room for a few bytes.
    struct FullDisk(Vec<u8>, usize);

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(self.1 - self.0.len());
            if count == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            self.0.extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Z7.4: the positions of later lines in the log are right after the disk was full.
    #[test]
    fn nothing_is_left_of_a_block_that_could_not_be_written_whole() {
        let mut disk = FullDisk(b"one\n".to_vec(), 6);
        let cut = |disk: &mut FullDisk| {
            disk.0.truncate(4);
            Ok(())
        };
        write_or_cut(&mut disk, b"three\n", cut).unwrap_err();
        assert_eq!(disk.0, b"one\n");
        write_or_cut(&mut disk, b"2\n", cut).unwrap();
        assert_eq!(disk.0, b"one\n2\n");
    }
}
