//! What is kept of tested commits, for who lands them by moving their branch.

use sluice_git::{Kept, keys};
use sluice_model::ProjectName;
use sluice_model::git::Oid;
use sluice_runtime::{PortError, Ports};

/// Reads what the tested commit `to` adds to the commit `from` below it; `None` where it is not
/// kept, or cannot be used, which a warning tells.
///
/// # Errors
/// When object storage does not answer.
pub async fn kept(
    ports: &Ports,
    project: &ProjectName,
    from: &Oid,
    to: &Oid,
) -> Result<Option<Kept>, PortError> {
    let key = keys::kept(project, from, to);
    let Some(object) = ports.objects.get(&key).await? else { return Ok(None) };
    match Kept::read(&object.bytes) {
        Ok(kept) => Ok(Some(kept)),
        Err(error) => {
            tracing::warn!(%key, %error, "what is kept of a tested commit is not used");
            Ok(None)
        }
    }
}
