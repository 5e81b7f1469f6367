//! The refs of a project at a plain git server, as the last poll saw them: the object
//! `refs/<project>/<connection>/<n>-<digest>` lists them, and one record names the object.
//!
//! The list is an object because a repository may have thousands of refs. The record is written in
//! the commit that stores the events of the refs that moved, so a poll that is cut off is repeated
//! from the same list. An object that a poll wrote and no record names is deleted by a later poll.

use crate::codec::encode_first;
use serde::{Deserialize, Serialize};
use sluice_model::git::Oid;
use sluice_model::id::digest;
use sluice_model::name::escape;
use sluice_model::{ConnectionName, ProjectName, Timestamp};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Key, Write};
use sluice_runtime::{PortError, Ports};
use std::collections::BTreeMap;

/// The most objects of one project that one call deletes.
const DELETED_MAX: usize = 20;

/// Commits by full ref name, such as `refs/heads/main`.
pub type RefList = BTreeMap<String, Oid>;

/// The record about the last poll and the refs that it saw. The default is that of a project that
/// was never polled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SeenRefs {
    /// The object with the list; `None` until a poll could read the refs.
    pub object: Option<String>,
    /// The number of lists so far. It distinguishes a move from an earlier one between the same
    /// commits.
    pub list_count: u64,
    /// When the last poll began, also if it could not read the refs.
    pub polled_at: Timestamp,
    /// Whether the list has no tags, because the repository has too many refs.
    pub leaves_out_tags: bool,
    /// What the last poll could not read, for people; `None` if it read everything.
    pub problem: Option<String>,
}

/// Returns the key of the record of a project at a connection.
pub fn key(project: &ProjectName, connection: &ConnectionName) -> Key {
    let project = escape(project.as_str());
    Key::new(format!("refs#{project}"), format!("seen#{}", escape(connection.as_str())))
}

/// Returns what the keys of a project's objects begin with.
fn folder(project: &ProjectName, connection: &ConnectionName) -> String {
    format!("refs/{}/{}/", escape(project.as_str()), escape(connection.as_str()))
}

impl SeenRefs {
    /// Reads the list; `None` without an object, or when it does not exist.
    ///
    /// # Errors
    /// When the store does not answer, or the object cannot be decoded.
    pub async fn load(&self, ports: &Ports) -> Result<Option<RefList>, PortError> {
        let Some(key) = &self.object else { return Ok(None) };
        let Some(object) = ports.objects.get(key).await? else { return Ok(None) };
        let decoded = serde_json::from_slice(&object.bytes);
        decoded.map(Some).map_err(|why| PortError::unknown(format!("read {key}"), why))
    }

    /// Stores a list as the next one, and returns the record that names it and is otherwise the
    /// same, for the caller to write with [`put`].
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn store_next(
        &self,
        ports: &Ports,
        project: &ProjectName,
        connection: &ConnectionName,
        list: &RefList,
    ) -> Result<Self, PortError> {
        let list_count = self.list_count + 1;
        let attempt = || format!("store the refs of {project}");
        let text =
            serde_json::to_string(list).map_err(|error| PortError::unknown(attempt(), error))?;
        let name = format!("{list_count}-{}", digest(&[&text]));
        let object = format!("{}{name}", folder(project, connection));
        ports.objects.put(&object, text.into(), PutMode::Always, "application/json").await?;
        Ok(Self { object: Some(object), list_count, ..self.clone() })
    }

    /// Deletes the project's other lists, at most 20: earlier ones, and those of polls that were
    /// cut off.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn delete_others(
        &self,
        ports: &Ports,
        project: &ProjectName,
        connection: &ConnectionName,
    ) -> Result<(), PortError> {
        let listed = ports.objects.list(&folder(project, connection), None, DELETED_MAX).await?;
        for other in listed.iter().filter(|other| Some(*other) != self.object.as_ref()) {
            ports.objects.delete(other).await?;
        }
        Ok(())
    }
}

/// Returns the unconditional write of the record of a project at a connection.
///
/// # Errors
/// When the record is too large.
pub fn put(
    project: &ProjectName,
    connection: &ConnectionName,
    seen: &SeenRefs,
) -> Result<Write, PortError> {
    let record = encode_first(key(project, connection), seen)?;
    Ok(Write::Put { record, expect: Expect::Anything })
}
