//! Reads the data that a job returned with `zuul_return`, and stores it (Z7.4).

use crate::build_result::MayRetry;
use crate::confined_files;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};
use sluice_model::BuildId;
use sluice_model::id::digest;
use sluice_runtime::object::PutMode;
use sluice_runtime::{PortError, Ports};
use std::path::Path;

/// The maximum size of `results.json` in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// The maximum size of returned data in the record of a run, in bytes.
const RECORD_BYTES_MAX: usize = 24 << 10;

/// What a record holds of each list in the `zuul` part of data that it cannot hold as a whole, in
/// bytes. With [`LOG_URL_BYTES_MAX`] their sum is at most [`RECORD_BYTES_MAX`].
const CHILD_JOBS_BYTES_MAX: usize = 5 << 10;
/// As above.
const WARNINGS_BYTES_MAX: usize = 3 << 10;
/// As above.
const ARTIFACTS_BYTES_MAX: usize = 6 << 10;
/// As above.
const COMMENTS_BYTES_MAX: usize = 8 << 10;

/// The maximum size of the address of logs that a job returns, in bytes.
pub const LOG_URL_BYTES_MAX: usize = 2_000;

/// The other values of the `zuul` part that a record always holds, if they are not longer than
/// [`LOG_URL_BYTES_MAX`].
const CONTROL_VALUES: [&str; 4] = ["pause", "retry", "log_url", SECRET_OBJECT];

/// Stores returned data as an object if it is too large for a record, which holds 24 KiB. Returns
/// the part for the record ([`part_for_record`]), and the object's key if there is one.
///
/// # Errors
/// Returns an error if the data could not be stored; the caller retries.
pub async fn store_data(
    ports: &Ports,
    build: &BuildId,
    data: Map<String, Value>,
) -> Result<StoredData, PortError> {
    let Some(part) = part_for_record(&data) else { return Ok((data, None)) };
    let failed = |error| PortError::unknown(format!("store the data returned by {build}"), error);
    let text = serde_json::to_string(&data).map_err(failed)?;
    let key = format!("returned/{build}/{}", digest(&[&text]));
    ports.objects.put(&key, Bytes::from(text), PutMode::Always, "application/json").await?;
    let mut kept = part.data;
    if let Some(note) = part.note {
        add_warning(&mut kept, note);
    }
    Ok((kept, Some(key)))
}

/// The part of returned data that a record holds, if it does not hold all.
pub struct RecordPart {
    /// The `zuul` part, without what does not fit.
    data: Map<String, Value>,
    /// What the gate and the pages therefore do not see, in a sentence; `None` if that is nothing.
    pub note: Option<String>,
}

/// Returns the part of `data` that a record holds: of the `zuul` part the values that control the
/// queue, and as many entries of each list as fit. `None` if the record holds all of `data`.
/// Variables for dependent jobs are not in that part: these jobs read the whole data.
pub fn part_for_record(data: &Map<String, Value>) -> Option<RecordPart> {
    let own = data.get("zuul").and_then(Value::as_object);
    let mut bytes = Value::Object(data.clone()).to_string().len();
    // It is added after the build's log has ended, and must not change what the log says.
    if let Some(secret) = own.and_then(|own| own.get(SECRET_OBJECT)) {
        bytes -= secret.to_string().len() + SECRET_OBJECT.len() + 4;
    }
    if bytes <= RECORD_BYTES_MAX {
        return None;
    }
    let (mut kept, mut left_out) = (Map::new(), Vec::new());
    for (name, value) in own.into_iter().flatten() {
        let (value, lost, what) = match (name.as_str(), value) {
            ("child_jobs", Value::Array(jobs)) => {
                let (jobs, lost) = fitting(jobs, CHILD_JOBS_BYTES_MAX);
                (jobs, lost, "names in child_jobs, whose jobs do not run")
            }
            ("warnings", Value::Array(warnings)) => {
                let (warnings, lost) = fitting(warnings, WARNINGS_BYTES_MAX);
                (warnings, lost, "warnings")
            }
            ("artifacts", Value::Array(artifacts)) => {
                let (artifacts, lost) = fitting(artifacts, ARTIFACTS_BYTES_MAX);
                (artifacts, lost, "artifacts on the pages and in reports")
            }
            ("file_comments", Value::Object(files)) => {
                let (files, lost) = fitting_comments(files);
                (files, lost, "file comments")
            }
            (name, value) if CONTROL_VALUES.contains(&name) => {
                // Quotes of a text come in addition.
                match value.to_string().len() <= LOG_URL_BYTES_MAX + 2 {
                    true => (value.clone(), 0, ""),
                    false => continue,
                }
            }
            _ => continue,
        };
        kept.insert(name.clone(), value);
        if lost > 0 {
            left_out.push(format!("{lost} {what}"));
        }
    }
    let note = (!left_out.is_empty()).then(|| {
        format!(
            "The job returned {bytes} bytes of data, more than the {RECORD_BYTES_MAX} bytes that the record of a build holds; left out: {}",
            left_out.join(", ")
        )
    });
    let data = Map::from_iter([("zuul".to_owned(), Value::Object(kept))]);
    Some(RecordPart { data, note })
}

/// Returns the entries of a list that fit into `room` bytes as JSON, and the number of the others.
/// An entry behind one that does not fit may still fit.
fn fitting(entries: &[Value], mut room: usize) -> (Value, usize) {
    let mut fits = |entry: &&Value| {
        let left = room.checked_sub(entry.to_string().len() + 1);
        room = left.unwrap_or(room);
        left.is_some()
    };
    let kept: Vec<Value> = entries.iter().filter(&mut fits).cloned().collect();
    let lost = entries.len() - kept.len();
    (Value::Array(kept), lost)
}

/// Returns the file comments that fit into [`COMMENTS_BYTES_MAX`], each with its path, and the
/// number of the others. Files without comments are left out.
fn fitting_comments(files: &Map<String, Value>) -> (Value, usize) {
    let (mut kept, mut lost, mut room) = (Map::new(), 0, COMMENTS_BYTES_MAX);
    for (path, comments) in files {
        let mut fits = |comment: &&Value| {
            let left = room.checked_sub(path.len() + comment.to_string().len() + 6);
            room = left.unwrap_or(room);
            left.is_some()
        };
        let comments = comments.as_array().map(Vec::as_slice).unwrap_or_default();
        let fitting: Vec<Value> = comments.iter().filter(&mut fits).cloned().collect();
        lost += comments.len() - fitting.len();
        if !fitting.is_empty() {
            kept.insert(path.clone(), Value::Array(fitting));
        }
    }
    (Value::Object(kept), lost)
}

/// Adds a warning of the executor's own before those of the job (`zuul.warnings`), so that it is
/// kept if not all fit into a record. Something else than a list there is replaced, as it is no
/// warning.
pub fn add_warning(data: &mut Map<String, Value>, warning: String) {
    let own = data.entry("zuul").or_insert_with(|| Value::Object(Map::new()));
    if !own.is_object() {
        *own = Value::Object(Map::new());
    }
    if let Value::Object(own) = own {
        let mut warnings = vec![Value::String(warning)];
        if let Some(Value::Array(of_job)) = own.get_mut("warnings") {
            warnings.append(of_job);
        }
        own.insert("warnings".to_owned(), Value::Array(warnings));
    }
}

/// The maximum size of `secret_data` that is passed on, in bytes.
pub const SECRET_BYTES_MAX: usize = 32 << 10;

/// The maximum number of bytes that the key service encrypts in one call.
const SEALED_BYTES_MAX: usize = 4_000;

/// The key in the `zuul` part that names the object with the secret data. Only the executor sets
/// it; a value returned by the job is dropped.
const SECRET_OBJECT: &str = "secret_object";

/// Encrypts the secret data that a job returned for its dependents into an object, and names the
/// object in the `zuul` part of `data` (Z5.4). Without secret data nothing is stored. A name that
/// the job itself returned there is removed in both cases.
///
/// # Errors
/// Returns an error if the data could not be encrypted or stored; the caller retries.
pub async fn store_secrets(
    ports: &Ports,
    build: &BuildId,
    data: &mut Map<String, Value>,
    secret_data: &Map<String, Value>,
) -> Result<(), PortError> {
    let failed =
        |error| PortError::unknown(format!("store the secret data returned by {build}"), error);
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

/// Reads and decrypts the secret data that a build returned, from the object that `data` names;
/// empty if it names none. An error if that object belongs to another build, is gone or damaged, or
/// the key service does not answer.
pub async fn open_secrets(
    ports: &Ports,
    build: &BuildId,
    data: &Map<String, Value>,
) -> Result<Map<String, Value>, PortError> {
    let Some(key) = data.get("zuul").and_then(|own| own.get(SECRET_OBJECT)).and_then(Value::as_str)
    else {
        return Ok(Map::new());
    };
    let attempt = || format!("open the secret data returned by {build}");
    if !key.starts_with(&object_prefix(build)) {
        return Err(PortError::unknown(attempt(), "the named object belongs to another build"));
    }
    let object = ports
        .objects
        .get(key)
        .await?
        .ok_or_else(|| PortError::unknown(attempt(), "its object does not exist"))?;
    let broken = |_| PortError::unknown(attempt(), "its object cannot be read");
    let sealed: Vec<String> = serde_json::from_slice(&object.bytes).map_err(broken)?;
    let mut text = Vec::new();
    for part in sealed {
        let part = STANDARD
            .decode(part)
            .map_err(|_| PortError::unknown(attempt(), "its object cannot be read"))?;
        text.extend(ports.seal.open(&seal_context(build), &part).await?);
    }
    // The error must not quote the secret text.
    serde_json::from_slice(&text).map_err(broken)
}

/// Returns the prefix of the objects with the secret data that a build returned.
fn object_prefix(build: &BuildId) -> String {
    format!("returned/{build}/secret-")
}

/// Returns the sealing context to which a build's secret data is bound.
fn seal_context(build: &BuildId) -> String {
    format!("returned/{build}")
}

/// The part of returned data that a record holds, and the key of the object with all data if the
/// record does not hold all.
pub type StoredData = (Map<String, Value>, Option<String>);

/// The most values of a job that are masked, of its redactions and of its secret data.
const MASKED_MAX: usize = 1_000;

/// The most bytes of such values.
const MASKED_BYTES_MAX: usize = 64 << 10;

/// Values that the log masks.
pub struct ToMask<'a> {
    /// The texts and numbers, at most [`MASKED_MAX`] with at most [`MASKED_BYTES_MAX`] bytes.
    pub values: Vec<&'a Value>,
    /// How many more there are.
    pub left_out: usize,
}

impl<'a> ToMask<'a> {
    /// Returns the texts and numbers in `values`, at any depth, as far as they are within the
    /// limits.
    fn of(values: impl Iterator<Item = &'a Value>) -> Self {
        let mut found = Self { values: Vec::new(), left_out: 0 };
        let mut bytes_left = MASKED_BYTES_MAX;
        values.for_each(|value| found.take(value, &mut bytes_left));
        found
    }

    /// Adds the texts and numbers in `value` while they are within the limits.
    fn take(&mut self, value: &'a Value, bytes_left: &mut usize) {
        let bytes = match value {
            Value::String(text) => text.len(),
            Value::Number(number) => number.to_string().len(),
            Value::Array(items) => {
                return items.iter().for_each(|item| self.take(item, bytes_left));
            }
            Value::Object(entries) => {
                return entries.values().for_each(|item| self.take(item, bytes_left));
            }
            Value::Null | Value::Bool(_) => return,
        };
        match bytes_left.checked_sub(bytes).filter(|_| self.values.len() < MASKED_MAX) {
            Some(left) => {
                *bytes_left = left;
                self.values.push(value);
            }
            None => self.left_out += 1,
        }
    }
}

/// The data that a job has returned so far.
#[derive(Default)]
pub struct ReturnedData {
    /// The data, including the `zuul` part.
    pub data: Map<String, Value>,
    /// Values that only dependent jobs may see. Never written to a record in plain text.
    secret_data: Map<String, Value>,
}

impl ReturnedData {
    /// Reads the results file at `path`. A missing or empty file means no data. A file that is
    /// unreadable, larger than 4 MiB or not JSON is ignored; then the second value is the reason.
    /// In other JSON, a part `data` or `secret_data` that is missing or no mapping is empty,
    /// without a reason.
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

    /// Returns whether the job allows another attempt: `No` only if it returned `zuul.retry:
    /// false`.
    pub fn may_retry(&self) -> MayRetry {
        if self.zuul("retry") == Some(&Value::Bool(false)) { MayRetry::No } else { MayRetry::Yes }
    }

    /// Returns whether the job asks to pause, keeping its nodes, until its dependents have ended.
    pub fn wants_pause(&self) -> bool {
        self.zuul("pause") == Some(&Value::Bool(true))
    }

    /// Returns the address of the logs if the job uploaded them itself (`zuul.log_url`); `None` if
    /// it returned none or an empty one. The error is the reason for the log if it is longer than
    /// [`LOG_URL_BYTES_MAX`].
    pub fn log_url(&self) -> Result<Option<String>, String> {
        let url = self.zuul("log_url").and_then(Value::as_str).unwrap_or_default();
        match url.len() {
            0 => Ok(None),
            1..=LOG_URL_BYTES_MAX => Ok(Some(url.to_owned())),
            bytes => Err(format!(
                "The job returned a log_url of {bytes} bytes, but the limit is {LOG_URL_BYTES_MAX} bytes; it is ignored"
            )),
        }
    }

    /// Returns the data that only dependent jobs may see; empty if there is none. The error is the
    /// reason for the log if it is larger than [`SECRET_BYTES_MAX`].
    pub fn secret_data(&self) -> Result<Map<String, Value>, String> {
        let bytes: usize = self
            .secret_data
            .iter()
            .map(|(name, value)| name.len() + value.to_string().len() + 4)
            .sum();
        if bytes > SECRET_BYTES_MAX {
            return Err(format!(
                "The job returned {bytes} bytes of secret_data, but the limit is {SECRET_BYTES_MAX} bytes; its dependent jobs get none"
            ));
        }
        Ok(self.secret_data.clone())
    }

    /// Returns the texts and numbers in the job's `zuul.redactions`, which later playbooks must not
    /// print, as far as they are within the limits.
    pub fn redactions(&self) -> ToMask<'_> {
        ToMask::of(self.zuul("redactions").into_iter())
    }

    /// Returns the texts and numbers in the job's secret data, as far as they are within the
    /// limits.
    pub fn secret_values(&self) -> ToMask<'_> {
        ToMask::of(self.secret_data.values())
    }

    /// Returns a sentence for the log and the build's warnings if the job returned more for masking
    /// than is masked; it quotes no value.
    pub fn masking_trouble(&self) -> Option<String> {
        let left_out = self.redactions().left_out + self.secret_values().left_out;
        (left_out > 0).then(|| format!(
            "{left_out} values that the job returned for masking (zuul.redactions, secret_data) are not masked: of each at most {MASKED_MAX} values and {MASKED_BYTES_MAX} bytes are"
        ))
    }

    /// Returns a value from the `zuul` part of the data, if it is set.
    fn zuul(&self, key: &str) -> Option<&Value> {
        self.data.get("zuul")?.get(key)
    }
}

/// Reads a file as text, without following a link; empty if it does not exist. An error if it is
/// larger than [`BYTES_MAX`], not UTF-8 or not a regular file.
fn read_bounded(path: &Path) -> std::io::Result<String> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(String::new());
    };
    match confined_files::read_text(directory, name.as_ref(), BYTES_MAX) {
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

    /// Z5.4: neither the record nor the object holds it in plain text, and it does not open under
    /// the name of another build.
    #[tokio::test]
    async fn secret_data_is_sealed_for_its_own_build() {
        let ports = World::new(1, 0, Timestamp(1_800_000_000_000)).ports();
        let (build, other) = (BuildId::from("one"), BuildId::from("two"));
        let secret = map(json!({"token": "correct horse", "long": "x".repeat(9_000)}));
        let mut data =
            map(json!({"a": 1, "zuul": {"secret_object": "returned/two/secret-1", "pause": true}}));
        store_secrets(&ports, &build, &mut data, &secret).await.unwrap();
        let key = data["zuul"]["secret_object"].as_str().unwrap().to_owned();
        assert!(key.starts_with("returned/one/secret-") && data["zuul"]["pause"] == true);
        let stored = ports.objects.get(&key).await.unwrap().unwrap().bytes;
        assert!(!String::from_utf8_lossy(&stored).contains("correct horse"));
        assert_eq!(open_secrets(&ports, &build, &data).await.unwrap(), secret);
        assert!(open_secrets(&ports, &other, &data).await.is_err(), "it belongs to another build");
        // A value set by the job itself is dropped.
        store_secrets(&ports, &other, &mut data, &Map::new()).await.unwrap();
        assert_eq!(open_secrets(&ports, &other, &data).await.unwrap(), Map::new());
    }

    /// Z5.4
    #[test]
    fn too_much_secret_data_is_refused_without_quoting_it() {
        let of = |length: usize| ReturnedData {
            secret_data: map(json!({"token": "y".repeat(length)})),
            ..ReturnedData::default()
        };
        assert!(of(100).secret_data().is_ok());
        let refusal = of(SECRET_BYTES_MAX).secret_data().unwrap_err();
        assert!(refusal.contains("32768") && !refusal.contains("yy"), "{refusal}");
    }

    /// Z5.4: a job does not make the executor search its log for any number of values.
    #[test]
    fn values_for_masking_are_limited_and_the_rest_is_named() {
        let of = |redactions: Value| ReturnedData {
            data: map(json!({"zuul": {"redactions": redactions}})),
            ..ReturnedData::default()
        };
        let few = of(json!(["one-value", {"x": [2_345]}, null, true]));
        assert_eq!(few.redactions().values, [&json!("one-value"), &json!(2_345)]);
        assert_eq!(few.masking_trouble(), None);
        let many = of((0..5_000).map(|number| json!(format!("{number:05}"))).collect());
        assert_eq!(many.redactions().values.len(), MASKED_MAX);
        assert!(many.masking_trouble().unwrap().starts_with("4000 values"));
        let long = of(json!(["x".repeat(MASKED_BYTES_MAX + 1), "short"]));
        assert_eq!(long.redactions().values, [&json!("short")]);
        assert!(!long.masking_trouble().unwrap().contains("xx"));
    }

    /// Z7.4, J12, Z4.3: however much a job returns, the queue gets what it decides by, and what is
    /// left out is named.
    #[tokio::test]
    async fn much_returned_data_does_not_displace_what_the_queue_decides_by() {
        let comments: Vec<Value> =
            (1..2_000).map(|line| json!({"line": line, "message": "too long"})).collect();
        let warnings = vec![json!("w".repeat(200)); 400];
        let artifacts = vec![json!({"name": "a", "url": "docs/"}); 3_000];
        let zuul = json!({
            "child_jobs": [], "pause": true, "retry": false, "log_url": "https://logs.test/1/",
            "warnings": warnings, "artifacts": artifacts, "manifest": "x".repeat(90_000),
            "file_comments": {"a.py": comments, "b.py": [{"line": 1, "message": "x"}]},
        });
        let data = map(json!({"version": "1.2", "zuul": zuul}));
        let world = World::new(1, 0, Timestamp(0));
        let build = BuildId::from("one");
        let (kept, object) = store_data(&world.ports(), &build, data.clone()).await.unwrap();
        let zuul = &kept["zuul"];
        for (name, value) in [
            ("child_jobs", json!([])),
            ("pause", json!(true)),
            ("retry", json!(false)),
            ("log_url", json!("https://logs.test/1/")),
        ] {
            assert_eq!(zuul[name], value, "{name}");
        }
        let warnings = zuul["warnings"].as_array().unwrap();
        let note = warnings[0].as_str().unwrap();
        let artifacts = zuul["artifacts"].as_array().unwrap().len();
        let comments = zuul["file_comments"]["a.py"].as_array().unwrap();
        assert!(comments.len() > 100 && comments[0]["line"] == 1, "{}", comments.len());
        assert!(artifacts > 100 && warnings.len() > 10);
        for left_out in [
            format!("{} warnings", 400 - (warnings.len() - 1)),
            format!("{} artifacts", 3_000 - artifacts),
            "file comments".to_owned(),
        ] {
            assert!(note.contains(&left_out), "{note}: {left_out}");
        }
        assert_eq!(part_for_record(&data).unwrap().note.as_deref(), Some(note), "the log says so");
        assert!(Value::Object(kept).to_string().len() <= RECORD_BYTES_MAX);
        let stored = world.ports().objects.get(&object.unwrap()).await.unwrap().unwrap();
        assert_eq!(serde_json::from_slice::<Map<String, Value>>(&stored.bytes).unwrap(), data);
    }

    /// Z7.4: data that only dependent jobs read is complete without being in the record.
    #[test]
    fn many_variables_for_dependent_jobs_leave_nothing_out() {
        let data = map(json!({"notes": "x".repeat(30_000), "zuul": {"child_jobs": ["unit"]}}));
        let part = part_for_record(&data).unwrap();
        assert_eq!(
            (part.note, json!(part.data)),
            (None, json!({"zuul": {"child_jobs": ["unit"]}}))
        );
        assert!(part_for_record(&map(json!({"zuul": {"child_jobs": ["unit"]}}))).is_none());
    }

    /// Z7.4: a warning of the executor is not lost among those of the job, whatever that returned.
    #[test]
    fn a_warning_of_the_executor_comes_first() {
        for (of_job, all) in [
            (json!({"zuul": {"warnings": ["b"]}}), json!(["a", "b"])),
            (json!({"zuul": {"warnings": "b"}}), json!(["a"])),
            (json!({"zuul": 7}), json!(["a"])),
            (json!({}), json!(["a"])),
        ] {
            let mut data = map(of_job);
            add_warning(&mut data, "a".to_owned());
            assert_eq!(data["zuul"]["warnings"], all);
        }
    }

    /// Z7.4
    #[test]
    fn a_long_log_url_is_refused_with_a_reason() {
        let of = |url: &str| ReturnedData {
            data: map(json!({"zuul": {"log_url": url}})),
            ..ReturnedData::default()
        };
        assert_eq!(of("").log_url(), Ok(None));
        let longest = "u".repeat(LOG_URL_BYTES_MAX);
        assert_eq!(of(&longest).log_url(), Ok(Some(longest.clone())));
        assert!(of(&format!("{longest}x")).log_url().unwrap_err().contains("2001 bytes"));
    }
}
