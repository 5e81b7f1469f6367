//! Reads what a job returned with `zuul_return` (Z7.4).

use crate::verdict::MayRetry;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of `results.json`; a job that returns more has a mistake.
const BYTES_MAX: u64 = 4 << 20;

/// What a job has returned so far.
#[derive(Default)]
pub struct Returned {
    /// Its data, `zuul` included.
    pub data: Map<String, Value>,
    /// Values that only jobs after it may see. Kept out of every record.
    secret_data: Map<String, Value>,
}

impl Returned {
    /// Reads the file at `path`. An empty or missing one is nothing returned; a broken one says why it is ignored.
    pub fn read(path: &Path) -> (Self, Option<String>) {
        match read_bounded(path) {
            Ok(text) if text.trim().is_empty() => (Self::default(), None),
            Ok(text) => match serde_json::from_str::<Value>(&text) {
                Ok(mut value) => {
                    let mut take =
                        |key: &str| crate::vars::to_map(value.get_mut(key).map(Value::take).unwrap_or_default());
                    (Self { data: take("data"), secret_data: take("secret_data") }, None)
                }
                Err(error) => (Self::default(), Some(format!("The returned data is not JSON and is ignored: {error}"))),
            },
            Err(error) => {
                (Self::default(), Some(format!("The returned data could not be read and is ignored: {error}")))
            }
        }
    }

    /// Returns whether the job allows another attempt.
    pub fn may_retry(&self) -> MayRetry {
        if self.zuul("retry") == Some(&Value::Bool(false)) { MayRetry::No } else { MayRetry::Yes }
    }

    /// Returns the address of the logs, if the job put them somewhere itself.
    pub fn log_url(&self) -> Option<String> {
        self.zuul("log_url").and_then(Value::as_str).filter(|url| !url.is_empty()).map(str::to_owned)
    }

    /// Returns texts that the job wants masked from now on, and what it returned as secret.
    pub fn redactions(&self) -> impl Iterator<Item = &Value> {
        self.zuul("redactions").into_iter().chain(self.secret_data.values())
    }

    fn zuul(&self, key: &str) -> Option<&Value> {
        self.data.get("zuul")?.get(key)
    }
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    // Playbooks may write there: a link could lead to what only the executor may read.
    match std::fs::symlink_metadata(path) {
        Ok(kind) if kind.is_file() => {}
        Ok(_) => return Err(std::io::Error::other("it is no file")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    }
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(std::io::Error::other(format!("it has more than {BYTES_MAX} bytes")));
    }
    Ok(text)
}
