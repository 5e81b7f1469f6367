//! Loads, stores and lists the packs of a repository: the list is a record, the packs are objects.

use crate::ReposError;
use bytes::Bytes;
use sluice_git::{NewPack, keys};
use sluice_model::ProjectName;
use sluice_model::git::Oid;
use sluice_records::codec::{decode, encode, get, with_body};
use sluice_records::repository;
use sluice_runtime::object::PutMode;
use sluice_runtime::{CellCommit, CommitOutcome, Ports, cell};
use std::path::{Path, PathBuf};

/// The most tips that a repository's record lists. A fetch transfers only commits that they do not
/// reach.
const TIPS_MAX: usize = 64;

/// Attempts to append to the list before the message has to be delivered again.
const APPEND_TRIES: u32 = 8;

/// Uploads a new pack with its index as one object, in place of an equal one, and returns its key.
/// Does not list it.
pub(crate) async fn upload(
    ports: &Ports,
    project: &ProjectName,
    pack: &NewPack,
) -> Result<String, ReposError> {
    let key = keys::pack(project, &pack.name);
    let (pack, of) = (pack.clone(), project.clone());
    let bytes = blocking(move || pack.joined(&of).map_err(unknown)).await?;
    ports
        .objects
        .put(&key, Bytes::from(bytes), PutMode::Always, "application/octet-stream")
        .await?;
    Ok(key)
}

/// Downloads a pack in its stored form, with its index. An error if it does not exist.
pub(crate) async fn download(ports: &Ports, key: &str) -> Result<Bytes, ReposError> {
    let found = ports.objects.get(key).await?;
    found.map(|object| object.bytes).ok_or_else(|| {
        ReposError::Unknown(format!("the pack {key} is listed but missing in object storage"))
    })
}

/// Reads the stored list of packs and the fetched tips of a repository; empty if none are stored.
pub(crate) async fn load_list(
    ports: &Ports,
    project: &ProjectName,
) -> Result<repository::RepositoryPacks, ReposError> {
    let record = get(ports, &repository::key(project)).await?;
    record.map_or_else(
        || Ok(repository::RepositoryPacks::default()),
        |record| decode(&record).map_err(unknown),
    )
}

/// Appends packs and tips to the stored list, each once, also when other functions append at the
/// same time, and returns the list. A tip that is listed already becomes the newest. The oldest
/// tips beyond `TIPS_MAX` are dropped. Stores nothing if that changes nothing. An error after
/// `APPEND_TRIES` concurrent writes.
pub(crate) async fn append(
    ports: &Ports,
    project: &ProjectName,
    packs: &[String],
    tips: &[Oid],
) -> Result<repository::RepositoryPacks, ReposError> {
    for _ in 0..APPEND_TRIES {
        let found = get(ports, &repository::key(project)).await?;
        let mut list: repository::RepositoryPacks =
            found.as_ref().map(decode).transpose().map_err(unknown)?.unwrap_or_default();
        let before = list.clone();
        list.packs.extend(packs.iter().filter(|pack| !before.packs.contains(pack)).cloned());
        for tip in tips {
            list.tips.retain(|stored| stored != tip);
            list.tips.push(tip.clone());
        }
        let surplus = list.tips.len().saturating_sub(TIPS_MAX);
        list.tips.drain(..surplus);
        if list == before {
            return Ok(list);
        }
        let head = match found {
            Some(record) => with_body(record, &list)?,
            None => encode(repository::key(project), &list)?,
        };
        let plan = CellCommit { head, others: Vec::new(), wakeups: Vec::new(), due: None };
        if let CommitOutcome::Written(_) = cell::commit(ports, plan).await? {
            return Ok(list);
        }
    }
    Err(ReposError::Unknown(format!(
        "the list of packs of {project} is written by too many functions at once"
    )))
}

/// Runs git work in a thread for blocking work and returns its result; a panic in it is an error.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReposError> + Send + 'static,
) -> Result<T, ReposError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ReposError::Unknown(format!("a git operation failed: {error}")))?
}

/// Returns the directory of a project's repository in the cache.
pub(crate) fn dir_of(root: &Path, project: &ProjectName) -> PathBuf {
    root.join(keys::escape(project.as_str()))
}

/// Returns a [`ReposError::Unknown`] with the text of an error and its causes.
pub(crate) fn unknown(error: impl std::error::Error) -> ReposError {
    ReposError::Unknown(error_chain(&error))
}

/// Returns the text of an error with its causes.
pub(crate) fn error_chain(error: &impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
