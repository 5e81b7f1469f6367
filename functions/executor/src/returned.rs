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

/// Bytes of comments on files that are left in a record where everything is too much for it.
const COMMENTS_BYTES_MAX: usize = 10 << 10;

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
    data.retain(|name, _| name == "zuul");
    shorten_comments(&mut data);
    data.retain(|_, value| value.to_string().len() <= RECORD_BYTES_MAX);
    Ok((data, Some(key)))
}

/// Leaves as many comments on files as a record has room for, so that a linter that says much does not take with it what the
/// queue acts on (`child_jobs`, `artifacts`).
fn shorten_comments(data: &mut Map<String, Value>) {
    let files = data.get_mut("zuul").and_then(|zuul| zuul.get_mut("file_comments")).and_then(Value::as_object_mut);
    let mut room = COMMENTS_BYTES_MAX;
    for (path, comments) in files.into_iter().flatten() {
        let Some(comments) = comments.as_array_mut() else { continue };
        comments.retain(|comment| {
            let left = room.checked_sub(path.len() + comment.to_string().len());
            room = left.unwrap_or(room);
            left.is_some()
        });
    }
    if let Some(Value::Object(files)) = data.get_mut("zuul").and_then(|zuul| zuul.get_mut("file_comments")) {
        files.retain(|_, comments| comments.as_array().is_some_and(|comments| !comments.is_empty()));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Z7.4, J12: what the queue acts on stays, however many lines a linter comments on.
    #[test]
    fn comments_beyond_a_records_room_do_not_take_the_rest_with_them() {
        let comments: Vec<Value> = (1..2_000).map(|line| json!({"line": line, "message": "too long"})).collect();
        let zuul =
            json!({"child_jobs": ["unit"], "file_comments": {"a.py": comments, "b.py": [{"line": 1, "message": "x"}]}});
        let mut data = crate::vars::to_map(json!({"zuul": zuul}));
        shorten_comments(&mut data);
        let zuul = &data["zuul"];
        assert_eq!(zuul["child_jobs"], json!(["unit"]));
        let kept = zuul["file_comments"]["a.py"].as_array().unwrap();
        assert!(kept.len() > 100 && kept[0]["line"] == 1, "{}", kept.len());
        assert!(zuul.to_string().len() <= RECORD_BYTES_MAX);
    }
}
