//! A tenant: which layout is wanted and which is live, and its queues that are not empty.

use crate::codec::{decode_foreign, encode_first, expiry};
use crate::queue::LoadError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sluice_gate::plan::LayoutNumbers;
use sluice_model::event::Behind;
use sluice_model::hold::EventsHold;
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
    /// Its name.
    pub name: TenantName,
    /// The layout numbers.
    pub layout: LayoutNumbers,
    /// The object with the live layout; `None` before the first.
    pub layout_object: Option<String>,
    /// What the live layout was read from: a hash over the tips of every repository's branches and
    /// the main configuration.
    pub read_from: String,
    /// When it became live.
    pub live_since: Timestamp,
    /// How many mistakes the configuration has, projects that cannot be read among them.
    pub errors: u32,
    /// Projects that cannot be read; the first [`PROBLEMS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// When the main configuration was first seen without it. One look decides nothing: it is
    /// removed when a later one sees the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_at: Option<Timestamp>,
    /// Whether the main configuration left it out: its layout is empty, and it is listed no more.
    /// The record stays, so that its numbers go on when it comes back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
    /// Whether its queues have still to be told of the live layout.
    #[serde(default)]
    pub telling: bool,
    /// Whether projects are still to be read before what was pushed is live.
    #[serde(default)]
    pub is_reading: bool,
    /// Since when it reads on, while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading_since: Option<Timestamp>,
    /// Whether an operator wants it configured anew, whatever was pushed, and that is still to be
    /// done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reloading: bool,
    /// The repositories it reads; see [`projects`] where they are many.
    #[serde(default)]
    pub projects: Vec<ProjectName>,
    /// The object with [`Self::projects`] where they are too many for a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects_object: Option<String>,
    /// Landings that touch configuration and were ordered since the live layout: `live` is not
    /// raised before all are over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub landings: Vec<AwaitedLanding>,
    /// When a project that could not be read is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// What operators hold back of its events.
    #[serde(default, skip_serializing_if = "EventsHold::is_blank")]
    pub events: EventsHold,
}

/// A landing after which configuration is to be read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedLanding {
    /// The item.
    pub item: ItemId,
    /// The speculative state it lands from.
    pub generation: u64,
    /// The project it lands in.
    pub project: ProjectName,
    /// When it was ordered.
    pub ordered_at: Timestamp,
    /// The landing that comes first where changes land one after the other; `None` for one that
    /// stands alone, or is that first one. What is behind is ordered when all before it have
    /// landed, and never where one of them does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstLanding>,
    /// Why the tenant went on without its end, if it did: what it brings is read when it ends all
    /// the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
}

/// The landing of the first of a bundle, which names those behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstLanding {
    /// The item.
    pub item: ItemId,
    /// The speculative state it lands from.
    pub generation: u64,
}

impl Tenant {
    /// Returns a tenant that has never been read.
    pub fn new(name: TenantName) -> Self {
        Self {
            name,
            layout: LayoutNumbers { wanted: 1, live: 0 },
            layout_object: None,
            read_from: String::new(),
            live_since: Timestamp(0),
            errors: 0,
            problems: Vec::new(),
            left_out_at: None,
            is_removed: false,
            telling: false,
            is_reading: false,
            reading_since: None,
            is_reloading: false,
            projects: Vec::new(),
            projects_object: None,
            landings: Vec::new(),
            retry_at: None,
            events: EventsHold::default(),
        }
    }
}

/// Bytes of names of projects that stand in a tenant's head.
const PROJECTS_BYTES_MAX: usize = 16 * 1024;

/// Puts the projects of a tenant into its head, or beside it where they are many.
///
/// # Errors
/// When the object with them cannot be stored.
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

/// Returns the projects of a tenant.
///
/// # Errors
/// When the object with them cannot be read.
pub async fn projects(ports: &Ports, head: &Tenant) -> Result<Vec<ProjectName>, PortError> {
    let Some(key) = &head.projects_object else { return Ok(head.projects.clone()) };
    let attempt = || format!("read {key}");
    let object = ports.objects.get(key).await?;
    let object = object.ok_or_else(|| PortError::unknown(attempt(), "there is no such object"))?;
    serde_json::from_slice(&object.bytes).map_err(|error| PortError::unknown(attempt(), error))
}

/// Seconds after which a tenant that waits for something is looked at without being poked.
pub const LOOK_SECONDS: u64 = 60;

/// The most unreadable projects that a tenant's head names.
pub const PROBLEMS_MAX: usize = 20;

/// A project that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Which.
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

/// The prefix of the records that list a tenant's queues.
pub const QUEUES: &str = "queue#";

/// Returns the key of the record that lists a queue as not empty.
pub fn queue_key(queue: &QueueKey) -> Key {
    Key::new(
        partition(&queue.tenant),
        format!("{QUEUES}{}/{}", escape(queue.pipeline.as_str()), escape(queue.queue.as_str())),
    )
}

/// Returns the queue that the key of such a record names: it says the names as well as the body,
/// should that be damaged.
pub fn listed_queue(tenant: &TenantName, listed: &Key) -> Option<QueueKey> {
    let (pipeline, queue) = listed.sort.strip_prefix(QUEUES)?.split_once('/')?;
    let (pipeline, queue) = (unescape(pipeline), unescape(queue));
    Some(QueueKey {
        tenant: tenant.clone(),
        pipeline: pipeline.as_str().into(),
        queue: queue.as_str().into(),
    })
}

/// A queue on the list of those that are not empty. Whoever wants the key alone reads a
/// [`QueueKey`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The tenant.
    pub tenant: TenantName,
    /// The pipeline.
    pub pipeline: PipelineName,
    /// The queue.
    pub queue: QueueName,
    /// How many changes it holds; 0 where the tenant has no limit, so that nobody counts.
    #[serde(default)]
    pub changes: u32,
}

/// Returns the write that lists a queue as not empty.
///
/// # Errors
/// When it is too large.
pub fn put_queue(queue: &QueueKey, changes: u32) -> Result<Write, PortError> {
    let QueueKey { tenant, pipeline, queue: name } = queue.clone();
    let listed = Listed { tenant, pipeline, queue: name, changes };
    Ok(Write::Put { record: encode_first(queue_key(queue), &listed)?, expect: Expect::Anything })
}

/// Counts the changes in a pipeline's other queues than this one.
///
/// # Errors
/// When the store does not answer.
pub async fn changes_elsewhere(ports: &Ports, queue: &QueueKey) -> Result<u32, PortError> {
    let prefix = format!("{QUEUES}{}/", escape(queue.pipeline.as_str()));
    let own = queue_key(queue);
    let records =
        ports.records.query(&Query::prefix(partition(&queue.tenant), prefix, COUNTED_MAX)).await?;
    let others = records.iter().filter(|record| record.key != own);
    Ok(others.filter_map(decode_foreign::<Listed>).map(|listed| listed.changes).sum())
}

/// The prefix of the records that name projects whose configuration is to be read again.
pub const DIRTY: &str = "dirty#";

/// Returns the write that has a tenant read a project's configuration again. `cause` names why:
/// whoever reads removes the marks that he found before, and not one that was made while he read.
///
/// # Errors
/// When it is too large.
pub fn put_dirty(
    tenant: &TenantName,
    project: &ProjectName,
    cause: &str,
) -> Result<Write, PortError> {
    put_mark(
        dirty_key(tenant, project, cause),
        &Dirty { project: project.clone(), then: None, is_asked: false },
    )
}

/// Returns the write of such a mark by an operator's word: the tenant is configured anew even if
/// nothing moved (R01).
///
/// # Errors
/// When it is too large.
pub fn put_dirty_asked(
    tenant: &TenantName,
    project: &ProjectName,
    cause: &str,
) -> Result<Write, PortError> {
    put_mark(
        dirty_key(tenant, project, cause),
        &Dirty { project: project.clone(), then: None, is_asked: true },
    )
}

/// Returns the write of such a mark by a push, with the delivery that waits for the reading;
/// [`put_waiting`] has that told.
///
/// # Errors
/// When it is too large.
pub fn put_dirty_then(
    tenant: &TenantName,
    project: &ProjectName,
    waiting: Waiting,
) -> Result<Write, PortError> {
    let key = dirty_key(tenant, project, waiting.delivery.as_str());
    put_mark(key, &Dirty { project: project.clone(), then: Some(waiting), is_asked: false })
}

fn put_mark(key: Key, mark: &Dirty) -> Result<Write, PortError> {
    Ok(Write::Put { record: encode_first(key, mark)?, expect: Expect::Anything })
}

/// Returns the key of a mark.
pub fn dirty_key(tenant: &TenantName, project: &ProjectName, cause: &str) -> Key {
    Key::new(partition(tenant), format!("{DIRTY}{}#{}", escape(project.as_str()), digest(&[cause])))
}

/// A mark that a project's configuration is to be read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dirty {
    /// The project.
    pub project: ProjectName,
    /// Who waits for that, if anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Waiting>,
    /// Whether an operator asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_asked: bool,
}

/// A delivery that goes on when a project was read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Waiting {
    /// When it came: several go on in this order.
    pub since: Timestamp,
    /// Which one.
    pub delivery: DeliveryId,
}

/// The prefix of the records that name the newest mark of a project, so that an event of the
/// project finds it by a key.
pub const PUSHED: &str = "pushed#";

/// Returns the key of the record that names a project's newest mark by a push. It stays when the
/// mark is gone.
pub fn pushed_key(tenant: &TenantName, project: &ProjectName) -> Key {
    Key::new(partition(tenant), format!("{PUSHED}{}", escape(project.as_str())))
}

/// Returns the write that names a project's newest mark, for the commit that makes the mark.
///
/// # Errors
/// When it is too large.
pub fn put_pushed(
    tenant: &TenantName,
    project: &ProjectName,
    mark: &Key,
) -> Result<Write, PortError> {
    let record = encode_first(pushed_key(tenant, project), &mark.sort)?;
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// The prefix of the records that name deliveries which wait for what is live next.
pub const WAITING: &str = "waiting#";

/// A delivery to poke when the tenant's next layout is live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Early {
    /// The delivery, and since when it waits.
    pub waiting: Waiting,
    /// The project in whose order it is handled.
    pub project: ProjectName,
}

/// Returns the write that has a delivery poked when the tenant's next layout is live; the tenant
/// removes it then, and who ends the delivery with its end. The revision is another one at each
/// look: whoever poked for an earlier one does not remove a later one.
///
/// # Errors
/// When it is too large.
pub fn put_waiting(tenant: &TenantName, early: &Early, revision: u64) -> Result<Write, PortError> {
    let mut record = encode_first(waiting_key(tenant, &early.waiting), early)?;
    record.revision = revision;
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Returns the key of the record that names a delivery which waits for a tenant; those that came
/// later follow.
pub fn waiting_key(tenant: &TenantName, waiting: &Waiting) -> Key {
    let Waiting { since, delivery } = waiting;
    Key::new(partition(tenant), format!("{WAITING}{:015}#{delivery}", since.0))
}

/// Returns the write that has a delivery wait no more.
pub fn remove_waiting(tenant: &TenantName, waiting: &Waiting) -> Write {
    Write::Delete { key: waiting_key(tenant, waiting), expect: Expect::Anything }
}

/// Returns the key of the record that names what was kept last for a tenant of a project: what
/// comes later is told after it.
pub fn kept_key(tenant: &TenantName, project: &ProjectName) -> Key {
    Key::new(partition(tenant), format!("kept#{}", escape(project.as_str())))
}

/// Returns the write that names what was kept last, for the commit that keeps it. Who ends it
/// removes that; it expires by itself.
///
/// # Errors
/// When it is too large.
pub fn put_kept(
    tenant: &TenantName,
    project: &ProjectName,
    kept: &Behind,
) -> Result<Write, PortError> {
    let mut record = encode_first(kept_key(tenant, project), kept)?;
    record.expires_at = Some(expiry(kept.since));
    Ok(Write::Put { record, expect: Expect::Anything })
}

/// Returns what a mark says, as its body or at least its key tells; `None` for what is no mark.
pub fn dirty(mark: &Record) -> Option<Dirty> {
    let (escaped, _) = mark.key.sort.strip_prefix(DIRTY)?.rsplit_once('#')?;
    let project = || ProjectName::from(unescape(escaped).as_str());
    decode_foreign(mark).or_else(|| Some(Dirty { project: project(), then: None, is_asked: false }))
}

/// Returns the key of an operator's word that a tenant is to go.
pub fn leaving_key(tenant: &TenantName) -> Key {
    Key::new(partition(tenant), "leaving")
}

/// Returns the write of an operator's word that a tenant goes with this very main configuration,
/// which leaves it out.
///
/// # Errors
/// When it is too large.
pub fn put_leaving(tenant: &TenantName, main: &str) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(leaving_key(tenant), &main_digest(main))?,
        expect: Expect::Anything,
    })
}

/// Returns what names a main configuration by its text.
pub fn main_digest(main: &str) -> String {
    digest(&["main", main])
}

/// The partition that lists every tenant.
pub const TENANTS: &str = "tenants";

/// Returns the write that lists a tenant.
///
/// # Errors
/// When it is too large.
pub fn put_listed(tenant: &TenantName) -> Result<Write, PortError> {
    Ok(Write::Put {
        record: encode_first(Key::new(TENANTS, escape(tenant.as_str())), tenant)?,
        expect: Expect::Anything,
    })
}

/// Returns the key of the mark that is written anew whenever a tenant comes onto the list or leaves
/// it: a list that was read after the mark holds every tenant until the mark is another one.
pub fn listing_key() -> Key {
    Key::new("tenants-listing", "head")
}

/// Returns the write of the mark, for the commit that changes the list.
///
/// # Errors
/// When it is too large.
pub fn put_listing(tenant: &TenantName, at: Timestamp) -> Result<Write, PortError> {
    Ok(Write::Put { record: encode_first(listing_key(), &(tenant, at))?, expect: Expect::Anything })
}

/// Returns the write that takes a tenant off the list; the mark goes with it.
pub fn remove_listed(tenant: &TenantName) -> Write {
    Write::Delete { key: Key::new(TENANTS, escape(tenant.as_str())), expect: Expect::Anything }
}

/// Lists every tenant.
///
/// # Errors
/// When the store does not answer.
pub async fn listed(ports: &Ports) -> Result<Vec<TenantName>, LoadError> {
    let records = ports.records.query(&Query::prefix(TENANTS, "", 1_000)).await?;
    // The key says it as well as the body, should that be damaged.
    let name = |record: &Record| {
        decode_foreign(record)
            .unwrap_or_else(|| TenantName::from(unescape(&record.key.sort).as_str()))
    };
    Ok(records.iter().map(name).collect())
}

/// The prefix of the records that keep what was read from a project.
pub const SOURCES: &str = "source#";

/// What was read from a project: per branch the commit and the object with its configuration files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectSource {
    /// The project.
    pub project: ProjectName,
    /// Its branches, those that count most first; the object is `None` where the branch is not read
    /// for configuration or has none.
    pub branches: Vec<BranchSource>,
    /// Why it could not be read, if so: the tenant goes on with what was read last.
    pub problem: Option<String>,
    /// When it is read again although nothing moved there: while there is a problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The name of what the tenant said of it as it was read: which branches and files count. By
    /// other words it is read again.
    #[serde(default)]
    pub rules: String,
    /// Whether some of its branches are still to be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unfinished: bool,
    /// The object with the branches, where they are too many for a record; [`Self::branches`] is
    /// empty then as it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches_object: Option<String>,
}

/// One branch of [`ProjectSource`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchSource {
    /// The branch.
    pub branch: sluice_model::BranchName,
    /// The commit that was read.
    pub commit: sluice_model::git::Oid,
    /// The object with the files, a JSON list of path and text.
    pub files: Option<String>,
    /// The name of what its files come to once parsed, without which they are fetched and parsed at
    /// each layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Whether it was read for configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read: bool,
    /// Whether its forge guards it; `None` where nobody asked, or the forge does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_protected: Option<bool>,
    /// Whether its forge takes nothing for it any more; `None` as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_locked: Option<bool>,
}

/// Returns the key of what was read from a project.
pub fn source_key(tenant: &TenantName, project: &ProjectName) -> Key {
    Key::new(partition(tenant), format!("{SOURCES}{}", escape(project.as_str())))
}

/// Returns the project that a record of [`SOURCES`] is of, by its key alone; `None` for another
/// key.
pub fn source_project(key: &Key) -> Option<ProjectName> {
    key.sort.strip_prefix(SOURCES).map(|escaped| ProjectName::from(unescape(escaped).as_str()))
}
