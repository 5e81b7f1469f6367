//! Reads what a job returned with `zuul_return`, and keeps it whole (Z7.4).

use crate::beneath;
use crate::verdict::MayRetry;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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

/// Moves returned data that is too much for a record into an object, and returns what the record
/// holds of it with the object's key. The `zuul` part, which the gate and the pages look at, stays
/// if it fits.
///
/// # Errors
/// When it could not be stored; it is told again then.
pub async fn keep(
    ports: &Ports,
    build: &BuildId,
    mut data: Map<String, Value>,
) -> Result<Kept, PortError> {
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

/// Leaves as many comments on files as a record has room for, so that a linter that says much does
/// not take with it what the queue acts on (`child_jobs`, `artifacts`).
fn shorten_comments(data: &mut Map<String, Value>) {
    let files = data
        .get_mut("zuul")
        .and_then(|zuul| zuul.get_mut("file_comments"))
        .and_then(Value::as_object_mut);
    let mut room = COMMENTS_BYTES_MAX;
    for (path, comments) in files.into_iter().flatten() {
        let Some(comments) = comments.as_array_mut() else { continue };
        comments.retain(|comment| {
            let left = room.checked_sub(path.len() + comment.to_string().len());
            room = left.unwrap_or(room);
            left.is_some()
        });
    }
    if let Some(Value::Object(files)) =
        data.get_mut("zuul").and_then(|zuul| zuul.get_mut("file_comments"))
    {
        files
            .retain(|_, comments| comments.as_array().is_some_and(|comments| !comments.is_empty()));
    }
}

/// Bytes of `secret_data` that are passed on; a job that returns more has a mistake.
pub const SECRET_BYTES_MAX: usize = 32 << 10;

/// Bytes that the key service seals at once.
const SEALED_BYTES_MAX: usize = 4_000;

/// Where in returned data's `zuul` part the object with what was returned as secret is named. Only
/// the executor writes it: what a job says there is dropped.
const SECRET_OBJECT: &str = "secret_object";

/// Seals what a job returned as secret, for the jobs behind it, into an object that its returned
/// data names from then on (Z5.4).
///
/// # Errors
/// When it could not be sealed or stored; it is told again then.
pub async fn keep_secrets(
    ports: &Ports,
    build: &BuildId,
    data: &mut Map<String, Value>,
    secret_data: &Map<String, Value>,
) -> Result<(), PortError> {
    let failed = |error| PortError::unknown(format!("keep what {build} returned as secret"), error);
    if let Some(Value::Object(own)) = data.get_mut("zuul") {
        own.remove(SECRET_OBJECT);
    }
    if secret_data.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_string(secret_data).map_err(failed)?;
    let mut sealed = Vec::new();
    for part in text.as_bytes().chunks(SEALED_BYTES_MAX) {
        sealed.push(STANDARD.encode(ports.seal.seal(&seal_context(build), part).await?));
    }
    let body = serde_json::to_string(&sealed).map_err(failed)?;
    let key = format!("{}{}", object_prefix(build), ports.entropy.token());
    ports.objects.put(&key, Bytes::from(body), PutMode::Always, "application/json").await?;
    let own = data.entry("zuul").or_insert_with(|| Value::Object(Map::new()));
    if !own.is_object() {
        *own = Value::Object(Map::new());
    }
    if let Value::Object(own) = own {
        own.insert(SECRET_OBJECT.to_owned(), Value::String(key));
    }
    Ok(())
}

/// Opens what a build returned as secret; nothing where it returned nothing so.
///
/// # Errors
/// When the store or the key service does not answer, or the object is gone or another build's.
pub async fn open_secrets(
    ports: &Ports,
    build: &BuildId,
    data: &Map<String, Value>,
) -> Result<Map<String, Value>, PortError> {
    let Some(key) = data.get("zuul").and_then(|own| own.get(SECRET_OBJECT)).and_then(Value::as_str)
    else {
        return Ok(Map::new());
    };
    let attempt = || format!("open what {build} returned as secret");
    if !key.starts_with(&object_prefix(build)) {
        return Err(PortError::unknown(attempt(), "the object that is named is another build's"));
    }
    let object = ports
        .objects
        .get(key)
        .await?
        .ok_or_else(|| PortError::unknown(attempt(), "its object is gone"))?;
    let broken = |_| PortError::unknown(attempt(), "its object cannot be read");
    let sealed: Vec<String> = serde_json::from_slice(&object.bytes).map_err(broken)?;
    let mut text = Vec::new();
    for part in sealed {
        let part = STANDARD
            .decode(part)
            .map_err(|_| PortError::unknown(attempt(), "its object cannot be read"))?;
        text.extend(ports.seal.open(&seal_context(build), &part).await?);
    }
    // What is wrong with it is not told by its text.
    serde_json::from_slice(&text).map_err(broken)
}

fn object_prefix(build: &BuildId) -> String {
    format!("returned/{build}/secret-")
}

fn seal_context(build: &BuildId) -> String {
    format!("returned/{build}")
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
    /// Reads the file at `path`. An empty or missing one is nothing returned; a broken one says why
    /// it is ignored.
    pub fn read(path: &Path) -> (Self, Option<String>) {
        match read_bounded(path) {
            Ok(text) if text.trim().is_empty() => (Self::default(), None),
            Ok(text) => match serde_json::from_str::<Value>(&text) {
                Ok(mut value) => {
                    let mut take = |key: &str| {
                        crate::vars::to_map(value.get_mut(key).map(Value::take).unwrap_or_default())
                    };
                    (Self { data: take("data"), secret_data: take("secret_data") }, None)
                }
                Err(error) => (
                    Self::default(),
                    Some(format!("The returned data is not JSON and is ignored: {error}")),
                ),
            },
            Err(error) => (
                Self::default(),
                Some(format!("The returned data could not be read and is ignored: {error}")),
            ),
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
        self.zuul("log_url")
            .and_then(Value::as_str)
            .filter(|url| !url.is_empty())
            .map(str::to_owned)
    }

    /// Returns what only the jobs behind may see, and why it is not passed on where it is too much.
    pub fn secret_data(&self) -> Result<Map<String, Value>, String> {
        let bytes: usize = self
            .secret_data
            .iter()
            .map(|(name, value)| name.len() + value.to_string().len() + 4)
            .sum();
        if bytes > SECRET_BYTES_MAX {
            return Err(format!(
                "The job returned {bytes} bytes as secret_data; {SECRET_BYTES_MAX} are passed on, so the jobs behind it get none"
            ));
        }
        Ok(self.secret_data.clone())
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
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(String::new());
    };
    match beneath::read_text(directory, name.as_ref(), BYTES_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_memory::World;
    use sluice_model::Timestamp;

    fn map(value: Value) -> Map<String, Value> {
        crate::vars::to_map(value)
    }

    /// Z5.4: neither the record nor the object has it in clear, and nobody opens it by another
    /// build's name.
    #[tokio::test]
    async fn what_was_returned_as_secret_is_sealed_for_its_own_build() {
        let ports = World::new(1, 0, Timestamp(1_800_000_000_000)).ports();
        let (build, other) = (BuildId::from("one"), BuildId::from("two"));
        let secret = map(json!({"token": "correct horse", "long": "x".repeat(9_000)}));
        let mut data =
            map(json!({"a": 1, "zuul": {"secret_object": "returned/two/secret-1", "pause": true}}));
        keep_secrets(&ports, &build, &mut data, &secret).await.unwrap();
        let key = data["zuul"]["secret_object"].as_str().unwrap().to_owned();
        assert!(key.starts_with("returned/one/secret-") && data["zuul"]["pause"] == true);
        let stored = ports.objects.get(&key).await.unwrap().unwrap().bytes;
        assert!(!String::from_utf8_lossy(&stored).contains("correct horse"));
        assert_eq!(open_secrets(&ports, &build, &data).await.unwrap(), secret);
        assert!(open_secrets(&ports, &other, &data).await.is_err(), "it is another build's");
        // What a job itself says there leads nowhere.
        keep_secrets(&ports, &other, &mut data, &Map::new()).await.unwrap();
        assert_eq!(open_secrets(&ports, &other, &data).await.unwrap(), Map::new());
    }

    /// Z5.4
    #[test]
    fn too_much_is_not_passed_on_and_is_told_without_its_text() {
        let of = |length: usize| Returned {
            secret_data: map(json!({"token": "y".repeat(length)})),
            ..Returned::default()
        };
        assert!(of(100).secret_data().is_ok());
        let told = of(SECRET_BYTES_MAX).secret_data().unwrap_err();
        assert!(told.contains("32768") && !told.contains("yy"), "{told}");
    }

    /// Z7.4, J12: what the queue acts on stays, however many lines a linter comments on.
    #[test]
    fn comments_beyond_a_records_room_do_not_take_the_rest_with_them() {
        let comments: Vec<Value> =
            (1..2_000).map(|line| json!({"line": line, "message": "too long"})).collect();
        let zuul = json!({"child_jobs": ["unit"], "file_comments": {"a.py": comments, "b.py": [{"line": 1, "message": "x"}]}});
        let mut data = crate::vars::to_map(json!({"zuul": zuul}));
        shorten_comments(&mut data);
        let zuul = &data["zuul"];
        assert_eq!(zuul["child_jobs"], json!(["unit"]));
        let kept = zuul["file_comments"]["a.py"].as_array().unwrap();
        assert!(kept.len() > 100 && kept[0]["line"] == 1, "{}", kept.len());
        assert!(zuul.to_string().len() <= RECORD_BYTES_MAX);
    }
}
