//! A tenant: the number of its wanted and its live layout, what its configuration was read from,
//! and the list of its non-empty queues.

use crate::codec::{decode_or_log, encode_first, expiry};
use crate::queue::LoadError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sluice_gate::plan::LayoutNumbers;
use sluice_model::event::DeferredPredecessor;
use sluice_model::hold::EventProcessing;
use sluice_model::id::digest;
use sluice_model::name::{escape, unescape};
use sluice_model::{
    DeliveryId, ItemId, PipelineName, ProjectName, QueueKey, QueueName, TenantName, Timestamp,
};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Expect, Key, Query, Record, Write};
use sluice_runtime::{PortError, Ports};

/// The head of a tenant's cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// The tenant's name.
    pub name: TenantName,
    /// The numbers of the wanted and the live layout.
    pub layout: LayoutNumbers,
    /// The object with the live layout; `None` before the first layout.
    pub layout_object: Option<String>,
    /// What the live layout was read from: a hash over the branch tips of all repositories and the
    /// main configuration.
    pub inputs_digest: String,
    /// When the live layout became live.
    pub live_since: Timestamp,
    /// The number of configuration errors, unreadable projects included.
    pub errors: u32,
    /// The projects that cannot be read, at most [`UNREADABLE_PROJECTS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable_projects: Vec<UnreadableProject>,
    /// When the main configuration was first read without this tenant; `None` while it has it. The
    /// tenant is removed when a later read confirms it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_since: Option<Timestamp>,
    /// Whether the tenant was removed from the main configuration: its layout is empty, and it is
    /// not on the list of tenants. The record stays, so that the layout numbers continue when the
    /// tenant returns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
    /// Whether some queues have not been notified of the live layout.
    pub is_notifying_queues: bool,
    /// Whether projects remain to be read before pushed configuration is live.
    pub is_reading: bool,
    /// When it started to read projects that remain; `None` when none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading_since: Option<Timestamp>,
    /// Whether an operator's request to reload the configuration, whatever was pushed, is pending.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reloading: bool,
    /// The repositories that it reads; empty when [`Self::projects_object`] has them. Use
    /// [`projects`].
    pub projects: Vec<ProjectName>,
    /// The object with the repositories, when they are too many for a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects_object: Option<String>,
    /// Ordered landings that change configuration. `live` is not raised before all of them have
    /// ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub landings: Vec<PendingConfigLanding>,
    /// When an unreadable project is read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The kinds of events that operators hold back.
    #[serde(default, skip_serializing_if = "EventProcessing::is_unused")]
    pub events: EventProcessing,
}

/// A landing after which configuration must be read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingConfigLanding {
    /// The item that lands.
    pub item: ItemId,
    /// The speculative state that it lands from.
    pub generation: u64,
    /// The project in which it changes configuration.
    pub project: ProjectName,
    /// When it was ordered.
    pub ordered_at: Timestamp,
    /// The first landing of the bundle; `None` for a single change, and for the first landing
    /// itself. A later landing starts when all before it have succeeded, and never when one of them
    /// fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstLanding>,
    /// Why the tenant stopped waiting for its end; `None` while it waits. The configuration is
    /// still read when the landing ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
}

/// The first landing of a bundle, whose record names the later ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstLanding {
    /// The item that lands.
    pub item: ItemId,
    /// The speculative state that it lands from.
    pub generation: u64,
}

impl Tenant {
    /// Returns a tenant whose configuration has never been read: layout 1 is wanted, and none is
    /// live.
    pub fn new(name: TenantName) -> Self {
        Self {
            name,
            layout: LayoutNumbers { wanted: 1, live: 0 },
            layout_object: None,
            inputs_digest: String::new(),
            live_since: Timestamp(0),
            errors: 0,
            unreadable_projects: Vec::new(),
            omitted_since: None,
            is_removed: false,
            is_notifying_queues: false,
            is_reading: false,
            reading_since: None,
            is_reloading: false,
            projects: Vec::new(),
            projects_object: None,
            landings: Vec::new(),
            retry_at: None,
            events: EventProcessing::default(),
        }
    }
}

/// The most bytes of project names that a tenant's head holds.
const PROJECTS_BYTES_MAX: usize = 16 * 1024;

/// Sets the projects in a tenant's head. If their names have more than 16 KB, stores them in an
/// object instead, and sets its name in the head, whose list is then empty. The caller writes the
/// head.
///
/// # Errors
/// When the object cannot be stored.
pub async fn set_projects(
    ports: &Ports,
    head: &mut Tenant,
    projects: Vec<ProjectName>,
) -> Result<(), PortError> {
    (head.projects, head.projects_object) = (projects, None);
    if head.projects.iter().map(|name| name.as_str().len()).sum::<usize>() <= PROJECTS_BYTES_MAX {
        return Ok(());
    }
    let attempt = "write the names of a tenant's projects";
    let text = serde_json::to_string(&head.projects)
        .map_err(|error| PortError::unknown(attempt, error))?;
    let key = format!("layouts/projects/{}", digest(&["projects", &text]));
    ports.objects.put(&key, Bytes::from(text), PutMode::Always, "application/json").await?;
    (head.projects, head.projects_object) = (Vec::new(), Some(key));
    Ok(())
}

/// Returns the repositories that a tenant reads, from its head or from the object that the head
/// names. A missing object is an error.
///
/// # Errors
/// When the object cannot be read.
pub async fn projects(ports: &Ports, head: &Tenant) -> Result<Vec<ProjectName>, PortError> {
    let Some(key) = &head.projects_object else { return Ok(head.projects.clone()) };
    let attempt = || format!("read {key}");
    let object = ports.objects.get(key).await?;
    let object =
        object.ok_or_else(|| PortError::unknown(attempt(), "the object does not exist"))?;
    serde_json::from_slice(&object.bytes).map_err(|error| PortError::unknown(attempt(), error))
}

/// Seconds after which a tenant that waits is reconciled without a wakeup.
pub const RECHECK_SECONDS: u64 = 60;

/// The most unreadable projects that a tenant's head names.
pub const UNREADABLE_PROJECTS_MAX: usize = 20;

/// A project whose configuration cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableProject {
    /// The project.
    pub project: sluice_model::ProjectName,
    /// Why, for people; at most 300 characters.
    pub why: String,
}

/// Returns the partition of a tenant.
pub fn partition(tenant: &TenantName) -> String {
    format!("tenant#{}", escape(tenant.as_str()))
}

/// Returns the key of a tenant's head.
pub fn key(tenant: &TenantName) -> Key {
    Key::new(partition(tenant), "head")
}

/// The most queues of a pipeline whose changes are counted.
const COUNTED_MAX: usize = 10_000;

/// The sort key prefix of the list of a tenant's non-empty queues.
pub const QUEUES: &str = "queue#";

/// Returns the key of the record that lists a queue as not empty.
pub fn queue_key(queue: &QueueKey) -> Key {
    Key::new(
        partition(&queue.tenant),
        format!("{QUEUES}{}/{}", escape(queue.pipeline.as_str()), escape(queue.queue.as_str())),
    )
}

/// Parses the queue of a tenant from the key of a record that lists it, when the record's body is
/// damaged; `None` for the key of another record. The key's partition is not checked.
pub fn queue_of_list_key(tenant: &TenantName, listed: &Key) -> Option<QueueKey> {
    let (pipeline, queue) = listed.sort.strip_prefix(QUEUES)?.split_once('/')?;
    let (pipeline, queue) = (unescape(pipeline), unescape(queue));
    Some(QueueKey {
        tenant: tenant.clone(),
        pipeline: pipeline.as_str().into(),
        queue: queue.as_str().into(),
    })
}

/// A queue on the list of non-empty queues. The body can also be decoded as a [`QueueKey`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedQueue {
    /// The queue's tenant.
    pub tenant: TenantName,
    /// The queue's pipeline.
    pub pipeline: PipelineName,
    /// The queue's name.
    pub queue: QueueName,
    /// The number of its changes; 0 when the pipeline has no limit and nothing counts them.
    pub changes: u32,
}

/// Returns the unconditional write that lists a queue as not empty, with the number of its changes
/// (0 when nothing counts them).
///
/// # Errors
/// When the record is too large.
pub fn put_queue(queue: &QueueKey, changes: u32) -> Result<Write, PortError> {
    let QueueKey { tenant, pipeline, queue: name } = queue.clone();
    let listed = ListedQueue { tenant, pipeline, queue: name, changes };
    Ok(Write::Put { record: encode_first(queue_key(queue), &listed)?, expect: Expect::Anything })
}

/// Returns the number of changes in the other queues of the pipeline of `queue`, as the list of
/// non-empty queues has it. Queues that do not count their changes, damaged records and queues
/// beyond `COUNTED_MAX` count as 0.
///
/// # Errors
/// When the store does not answer.
pub async fn count_changes_in_other_queues(
    ports: &Ports,
    queue: &QueueKey,
) -> Result<u32, PortError> {
    let prefix = format!("{QUEUES}{}/", escape(queue.pipeline.as_str()));
    let listed_key = queue_key(queue);
    let records =
        ports.records.query(&Query::prefix(partition(&queue.tenant), prefix, COUNTED_MAX)).await?;
    let others = records.iter().filter(|record| record.key != listed_key);
    Ok(others.filter_map(decode_or_log::<ListedQueue>).map(|listed| listed.changes).sum())
}

/// The sort key prefix of requests to read a project's configuration again.
pub const REREAD: &str = "reread#";

/// Returns the unconditional write of a request to read a project's configuration again. `cause`,
/// any text, makes its key unique: the same cause gives the same request. So a reader removes only
/// the requests that it found before, and none that was made while it read. The caller wakes the
/// tenant.
///
/// # Errors
/// When the record is too large.
pub fn put_reread(
    tenant: &TenantName,
    project: &ProjectName,
    cause: &str,
) -> Result<Write, PortError> {
    put_mark(
        reread_key(tenant, project, cause),
        &RereadRequest { project: project.clone(), deferred: None, by_operator: false },
    )
}

/// Returns the unconditional write of an operator's request to read a project again: the tenant is
/// reconfigured even if no branch moved (R01). `cause` is as in [`put_reread`]. The caller wakes
/// the tenant.
///
/// # Errors
/// When the record is too large.
pub fn put_operator_reread(
    tenant: &TenantName,
    project: &ProjectName,
    cause: &str,
) -> Result<Write, PortError> {
    put_mark(
        reread_key(tenant, project, cause),
        &RereadRequest { project: project.clone(), deferred: None, by_operator: true },
    )
}

/// Returns the unconditional write of a request to read a project's configuration again, caused by
/// a push. `waiting` is the deferred delivery of the push; its id is the cause as in
/// [`put_reread`]. The request only names the delivery: the caller also writes [`put_deferred`],
/// which has it woken, and [`put_last_reread`], and wakes the tenant.
///
/// # Errors
/// When the record is too large.
pub fn put_push_reread(
    tenant: &TenantName,
    project: &ProjectName,
    waiting: DeferredDelivery,
) -> Result<Write, PortError> {
    let key = reread_key(tenant, project, waiting.delivery.as_str());
    put_mark(
        key,
        &RereadRequest { project: project.clone(), deferred: Some(waiting), by_operator: false },
    )
}

/// Returns the unconditional write of a request to read a project again.
fn put_mark(key: Key, mark: &RereadRequest) -> Result<Write, PortError> {
    Ok(Write::Put { record: encode_first(key, mark)?, expect: Expect::Anything })
}

/// Returns the key of a request to read a project again. `cause` distinguishes the requests for one
/// project.
pub fn reread_key(tenant: &TenantName, project: &ProjectName, cause: &str) -> Key {
    Key::new(
        partition(tenant),
        format!("{REREAD}{}#{}", escape(project.as_str()), digest(&[cause])),
    )
}

/// A request to read a project's configuration again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RereadRequest {
    /// The project to read.
    pub project: ProjectName,
    /// The delivery of the push that waits for the read, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred: Option<DeferredDelivery>,
    /// Whether an operator made the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_operator: bool,
}

/// A delivery that is deferred until a layout is live.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeferredDelivery {
    /// When it was received; deferred deliveries are processed in this order.
    pub since: Timestamp,
    /// The delivery's id.
    pub delivery: DeliveryId,
}

/// The sort key prefix of the records that name a project's newest reread request, so that an event
/// of the project finds it by key.
pub const LAST_REREAD: &str = "last-reread#";

/// Returns the key of the record that names the newest request caused by a push. It stays when the
/// request is removed.
pub fn last_reread_key(tenant: &TenantName, project: &ProjectName) -> Key {
    Key::new(partition(tenant), format!("{LAST_REREAD}{}", escape(project.as_str())))
}

/// Returns the unconditional write that names a project's newest request caused by a push, for the
/// commit that makes the request. `mark` is the key of that request.
///
/// # Errors
/// When the record is too large.
pub fn put_last_reread(
    tenant: &TenantName,
    project: &ProjectName,
    mark: &Key,
) -> Result<Write, PortError> {
    let record = encode_first(last_reread_key(tenant, project), &mark.sort)?;
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// The sort key prefix of deliveries that wait for the next live layout.
pub const DEFERRED: &str = "deferred#";

/// A delivery to wake when the tenant's next layout is live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeferredWakeup {
    /// The delivery, and when it was received.
    pub waiting: DeferredDelivery,
    /// The project whose events are processed in order with it.
    pub project: ProjectName,
}

/// Returns the unconditional write that has a delivery woken when the tenant's next layout is live.
/// The tenant removes the record then, or the function that ends the delivery does. The caller
/// passes another `revision` for each deferral of a delivery, so that the removal after an earlier
/// wakeup does not remove a later deferral.
///
/// # Errors
/// When the record is too large.
pub fn put_deferred(
    tenant: &TenantName,
    early: &DeferredWakeup,
    revision: u64,
) -> Result<Write, PortError> {
    let mut record = encode_first(deferred_key(tenant, &early.waiting), early)?;
    record.revision = revision;
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Returns the key of a deferred delivery. Keys sort by the time of the delivery.
pub fn deferred_key(tenant: &TenantName, waiting: &DeferredDelivery) -> Key {
    let DeferredDelivery { since, delivery } = waiting;
    Key::new(partition(tenant), format!("{DEFERRED}{:015}#{delivery}", since.0))
}

/// Returns the unconditional write that removes a deferred delivery; harmless when there is none.
pub fn remove_deferred(tenant: &TenantName, waiting: &DeferredDelivery) -> Write {
    Write::Delete { key: deferred_key(tenant, waiting), expect: Expect::Anything }
}

/// Returns the key of the record that names the last deferred event of a project. Later events of
/// the project are processed after it.
pub fn last_deferred_key(tenant: &TenantName, project: &ProjectName) -> Key {
    Key::new(partition(tenant), format!("last-deferred#{}", escape(project.as_str())))
}

/// Returns the unconditional write that names the last deferred event of a project, for the commit
/// that defers it. The function that ends the event removes the record; it also expires some weeks
/// later.
///
/// # Errors
/// When the record is too large.
pub fn put_last_deferred(
    tenant: &TenantName,
    project: &ProjectName,
    predecessor: &DeferredPredecessor,
) -> Result<Write, PortError> {
    let mut record = encode_first(last_deferred_key(tenant, project), predecessor)?;
    record.expires_at = Some(expiry(predecessor.since));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Decodes a reread request; `None` when `mark` is a record of another kind. A damaged body is
/// logged and replaced by what the key says: the project, without a deferred delivery and not by an
/// operator.
pub fn decode_reread(mark: &Record) -> Option<RereadRequest> {
    let (escaped, _) = mark.key.sort.strip_prefix(REREAD)?.rsplit_once('#')?;
    let project = || ProjectName::from(unescape(escaped).as_str());
    decode_or_log(mark)
        .or_else(|| Some(RereadRequest { project: project(), deferred: None, by_operator: false }))
}

/// Returns the key of an operator's request to remove a tenant.
pub fn removal_key(tenant: &TenantName) -> Key {
    Key::new(partition(tenant), "removal")
}

/// Returns the unconditional write of an operator's request to remove a tenant. `main` is the text
/// of the main configuration without the tenant; the request holds its digest. The caller then
/// stores that configuration and wakes the tenant.
///
/// # Errors
/// When the record is too large.
pub fn put_removal(tenant: &TenantName, main: &str) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(removal_key(tenant), &main_digest(main))?,
        expect: Expect::Anything,
    })
}

/// Returns the digest that identifies a main configuration by its text.
pub fn main_digest(main: &str) -> String {
    digest(&["main", main])
}

/// The partition that lists all tenants.
pub const TENANTS: &str = "tenants";

/// Returns the unconditional write that adds a tenant to the list of tenants. The caller writes a
/// new version of the list with it ([`put_tenant_list_version`]).
///
/// # Errors
/// When the record is too large.
pub fn put_on_tenant_list(tenant: &TenantName) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(Key::new(TENANTS, escape(tenant.as_str())), tenant)?,
        expect: Expect::Anything,
    })
}

/// Returns the key of the version of the list of tenants, which changes whenever a tenant is added
/// or removed. A list read after the version is complete until the version changes.
pub fn tenant_list_version_key() -> Key {
    Key::new("tenants-listing", "head")
}

/// Returns the unconditional write of a new version of the list of tenants, for the commit that
/// changes the list. `tenant`, the added or removed tenant, and `at` make it differ from other
/// versions.
///
/// # Errors
/// When the record is too large.
pub fn put_tenant_list_version(tenant: &TenantName, at: Timestamp) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(tenant_list_version_key(), &(tenant, at))?,
        expect: Expect::Anything,
    })
}

/// Returns the unconditional write that removes a tenant from the list of tenants. The caller
/// writes a new version of the list with it ([`put_tenant_list_version`]).
pub fn remove_from_tenant_list(tenant: &TenantName) -> Write {
    Write::Delete { key: Key::new(TENANTS, escape(tenant.as_str())), expect: Expect::Anything }
}

/// Returns the names on the list of tenants in the order of their keys, at most 1,000; further ones
/// are left out without an error. A damaged record is logged; its name is taken from its key.
///
/// # Errors
/// When the store does not answer.
pub async fn list_tenants(ports: &Ports) -> Result<Vec<TenantName>, LoadError> {
    let records = ports.records.query(&Query::prefix(TENANTS, "", 1_000)).await?;
    // When the body is damaged, the key still has the name.
    let name = |record: &Record| {
        decode_or_log(record)
            .unwrap_or_else(|| TenantName::from(unescape(&record.key.sort).as_str()))
    };
    Ok(records.iter().map(name).collect())
}

/// The sort key prefix of the records of what was read from a project.
pub const SOURCES: &str = "source#";

/// What was read from a project: the commit of each branch and the object with its configuration
/// files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectSource {
    /// The project.
    pub project: ProjectName,
    /// Its branches in order of precedence. The object of a branch is `None` when the branch is not
    /// read for configuration or has none.
    pub branches: Vec<BranchSource>,
    /// Why the last read failed; the tenant then uses what was read before. `None` after a
    /// successful read.
    pub read_error: Option<String>,
    /// When it is read again although no branch moved; only set after a failed read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// A digest of the tenant's settings that decide which branches and files are read. The project
    /// is read again when they change.
    pub rules: String,
    /// Whether some of its branches remain to be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unfinished: bool,
    /// The object with the branches, when they are too many for a record; [`Self::branches`] is
    /// then stored empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches_object: Option<String>,
}

/// One branch of a [`ProjectSource`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchSource {
    /// The branch's name.
    pub branch: sluice_model::BranchName,
    /// The commit that was read.
    pub commit: sluice_model::git::Oid,
    /// The object with the files: a JSON list of path and text.
    pub files: Option<String>,
    /// The object with the parsed files; `None` when they are fetched and parsed for each layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Whether the branch was read for configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_read: bool,
    /// Whether the forge protects the branch; `None` when that was not read or the forge does not
    /// report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_protected: Option<bool>,
    /// Whether the forge has locked the branch against changes; `None` as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_locked: Option<bool>,
}

/// Returns the key of what was read from a project.
pub fn source_key(tenant: &TenantName, project: &ProjectName) -> Key {
    Key::new(partition(tenant), format!("{SOURCES}{}", escape(project.as_str())))
}

/// Parses the project from the key of a [`SOURCES`] record; `None` for another key.
pub fn source_project(key: &Key) -> Option<ProjectName> {
    key.sort.strip_prefix(SOURCES).map(|escaped| ProjectName::from(unescape(escaped).as_str()))
}
