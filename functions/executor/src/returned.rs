//! Reads what a job returned with `zuul_return`, and keeps it whole (Z7.4).

use crate::beneath;
use crate::verdict::MayRetry;
use bytes::Bytes;
use serde_json::{Map, Value};
use sluice_model::BuildId;
use sluice_model::id::digest;
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports};
use std::path::Path;

/// Bytes of `results.json`; a job that returns more has a mistake.
const BYTES_MAX: u64 = 4 << 20;

/// Bytes of returned data that the record of a run holds.
const RECORD_BYTES_MAX: usize = 24 << 10;

/// Moves returned data that is too much for a record into an object, and returns what the record holds of it with the object's
/// key. The `zuul` part, which the gate and the pages look at, stays if it fits.
///
/// # Errors
/// When it could not be stored; it is told again then.
pub async fn keep(ports: &Ports, build: &BuildId, mut data: Map<String, Value>) -> Result<Kept, PortError> {
    let failed = |error| PortError::unknown(format!("keep what {build} returned"), error);
    let text = serde_json::to_string(&data).map_err(failed)?;
    if text.len() <= RECORD_BYTES_MAX {
        return Ok((data, None));
    }
    let key = format!("returned/{build}/{}", digest(&[&text]));
    ports.objects.put(&key, Bytes::from(text), PutMode::Always, "application/json").await?;
    data.retain(|name, value| name == "zuul" && value.to_string().len() <= RECORD_BYTES_MAX);
    Ok((data, Some(key)))
}

/// What a record holds of returned data, and the object with all of it where that is not all.
pub type Kept = (Map<String, Value>, Option<String>);

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

    /// Returns whether the job asks to wait, with its nodes, for the jobs behind it.
    pub fn wants_pause(&self) -> bool {
        self.zuul("pause") == Some(&Value::Bool(true))
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
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(String::new()) };
    match beneath::read_text(directory, name.as_ref(), BYTES_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}
