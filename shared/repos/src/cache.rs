//! A repository's packs: which there are (a record) and where they lie (objects).

use crate::ReposError;
use bytes::Bytes;
use sluice_git::{NewPack, keys};
use sluice_model::ProjectName;
use sluice_model::git::Oid;
use sluice_records::codec::{decode, encode, get, with_body};
use sluice_records::repository;
use sluice_runtime::object::PutMode;
use sluice_runtime::{Commit, Ports, Saved, cell};
use std::path::{Path, PathBuf};

/// Tips that a repository's record remembers, so that a fetch brings only what is new.
const TIPS_MAX: usize = 64;

/// Tries to append to the list before the message has to come again.
const APPEND_TRIES: u32 = 8;

/// Uploads a new pack with its index and returns its key.
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

/// Downloads a pack as it is stored: with its index, or with the index of an earlier version that
/// lies beside it.
pub(crate) async fn download(
    ports: &Ports,
    key: &str,
) -> Result<(Bytes, Option<Bytes>), ReposError> {
    let Some(index) = keys::index_beside(key) else { return Ok((object(ports, key).await?, None)) };
    let (pack, index) = tokio::try_join!(object(ports, key), object(ports, &index))?;
    Ok((pack, Some(index)))
}

/// Reads which packs make up a repository and which tips were fetched last.
pub(crate) async fn listed(
    ports: &Ports,
    project: &ProjectName,
) -> Result<repository::Repository, ReposError> {
    let record = get(ports, &repository::key(project)).await?;
    record.map_or_else(
        || Ok(repository::Repository::default()),
        |record| decode(&record).map_err(unknown),
    )
}

/// Appends packs and tips to the list, whoever else appends at the same time.
pub(crate) async fn append(
    ports: &Ports,
    project: &ProjectName,
    packs: &[String],
    tips: &[Oid],
) -> Result<repository::Repository, ReposError> {
    for _ in 0..APPEND_TRIES {
        let found = get(ports, &repository::key(project)).await?;
        let mut list: repository::Repository =
            found.as_ref().map(decode).transpose().map_err(unknown)?.unwrap_or_default();
        let before = list.clone();
        list.packs.extend(packs.iter().filter(|pack| !before.packs.contains(pack)).cloned());
        for tip in tips {
            list.tips.retain(|known| known != tip);
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
        let plan = Commit { head, others: Vec::new(), pokes: Vec::new(), due: None };
        if let Saved::Yes(_) = cell::commit(ports, plan).await? {
            return Ok(list);
        }
    }
    Err(ReposError::Unknown(format!("too many others write the list of {project}'s packs at once")))
}

/// Runs git, which blocks, beside the other work.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReposError> + Send + 'static,
) -> Result<T, ReposError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ReposError::Unknown(format!("git work did not end: {error}")))?
}

pub(crate) fn dir_of(root: &Path, project: &ProjectName) -> PathBuf {
    root.join(keys::escape(project.as_str()))
}

pub(crate) fn unknown(error: impl std::error::Error) -> ReposError {
    ReposError::Unknown(told(&error))
}

/// Returns an error with its causes as one text.
pub(crate) fn told(error: &impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

async fn object(ports: &Ports, key: &str) -> Result<Bytes, ReposError> {
    let found = ports.objects.get(key).await?;
    found
        .map(|object| object.bytes)
        .ok_or_else(|| ReposError::Unknown(format!("the pack {key} is listed but not there")))
}
