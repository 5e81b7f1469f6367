//! Puts a build's logs into object storage (Z7.4).

use bytes::Bytes;
use sluice_model::BuildId;
use sluice_runtime::Ports;
use sluice_runtime::object::PutMode;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The log of every build.
const LOG: &str = "job-output.txt";

/// Files of one build that are archived; more are left out with a word in the executor's own log.
const FILES_MAX: usize = 2_000;

/// Bytes of one file that are archived; of a longer one only the log's beginning is.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// Bytes of all files of one build.
const BUILD_BYTES_MAX: u64 = 4 << 30;

/// Uploads everything below `logs` and returns the address to read it from; `None` when there is nothing, or it failed.
///
/// A failed upload never changes a build's result: what was tested was tested.
pub async fn archive(ports: &Ports, build: &BuildId, logs: &Path, root: &str) -> Option<String> {
    let files = files(logs);
    if files.is_empty() {
        return None;
    }
    let mut left = BUILD_BYTES_MAX;
    for path in &files {
        let Ok(relative) = path.strip_prefix(logs) else { continue };
        let length = std::fs::metadata(path).map_or(0, |found| found.len());
        let most = FILE_BYTES_MAX.min(left);
        if length > most && relative != Path::new(LOG) {
            tracing::warn!(%build, file = %relative.display(), length, "too large for a log: left out");
            continue;
        }
        left = left.saturating_sub(length);
        let key = format!("logs/{build}/{}", relative.to_string_lossy());
        let stored = match read(path, most) {
            Ok(bytes) => ports
                .objects
                .put(&key, Bytes::from(bytes), PutMode::Always, content_type(path))
                .await
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = stored {
            tracing::error!(%build, file = %relative.display(), error, "a log could not be archived");
        }
    }
    Some(format!("{root}{build}/"))
}

fn read(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(dir) = ahead.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            // Links are left out: what they point to may lie outside the logs.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => ahead.push(entry.path()),
                Ok(kind) if kind.is_file() && found.len() < FILES_MAX => found.push(entry.path()),
                Ok(kind) if kind.is_file() => tracing::warn!(file = %entry.path().display(), "too many logs: left out"),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => "application/json",
        Some("html") => "text/html; charset=utf-8",
        Some("gz") => "application/gzip",
        Some("png") => "image/png",
        Some("svg") => "image/svg+xml",
        Some("txt" | "log" | "yaml" | "yml" | "xml" | "conf" | "cfg" | "ini" | "md") | None => {
            "text/plain; charset=utf-8"
        }
        Some(_) => "application/octet-stream",
    }
}
