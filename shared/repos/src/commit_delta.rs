//! Reads the stored objects of tested commits, for fast-forwarding a branch to them.

use sluice_git::{CommitDelta, keys};
use sluice_model::ProjectName;
use sluice_model::git::Oid;
use sluice_runtime::{PortError, Ports};

/// Reads what the tested commit `to` adds to the commit `from` below it; `None` when it is not
/// stored, or when what is stored is damaged, which is logged.
///
/// # Errors
/// When object storage does not answer.
pub async fn load_commit_delta(
    ports: &Ports,
    project: &ProjectName,
    from: &Oid,
    to: &Oid,
) -> Result<Option<CommitDelta>, PortError> {
    let key = keys::commit_delta(project, from, to);
    let Some(object) = ports.objects.get(&key).await? else { return Ok(None) };
    match CommitDelta::decode(&object.bytes) {
        Ok(delta) => Ok(Some(delta)),
        Err(error) => {
            tracing::warn!(%key, %error, "the stored objects of a tested commit cannot be read and are not used");
            Ok(None)
        }
    }
}
