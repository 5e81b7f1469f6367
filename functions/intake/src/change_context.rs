//! Reads what is stored before an event on a change is applied: the events seen before, and the
//! tenants with the queues that may hold the change.
//!
//! All of it is read by keys in one call. Cached data says which keys: the list of tenants, as long
//! as its mark is unchanged, and each tenant's layout as it was read last. Where the cache turns
//! out to be stale, a second call reads the rest, so a stale cache costs one call and nothing else.
//!
//! The event is deferred ([`crate::deferred`]) for a tenant that cannot be read, whose
//! configuration is being read, or that has a deferred event of the same project.

use crate::Intake;
use crate::deferred::WAIT_MILLIS;
use crate::route::{former_queues, may_configure, queue_key};
use crate::seen_events::{self, SeenEvents};
use sluice_gate::explain::RoutingRecord;
use sluice_model::change::ChangeFacts;
use sluice_model::event::{DeferredPredecessor, ForgeEvent, PendingConfig};
use sluice_model::{BranchName, ProjectName, QueueKey, TenantName, Timestamp};
use sluice_records::codec::{decode, decode_or_log};
use sluice_records::delivery::{self, DeliveryRecord};
use sluice_records::layout::LiveLayout;
use sluice_records::open_changes::{self, OpenChanges};
use sluice_records::tenant::Tenant;
use sluice_records::{change, tenant};
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The most keys of one call (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// How long in milliseconds the cached list of tenants is used although its mark is unchanged. A
/// transaction's writes do not become visible at once: a reader may see the mark before the tenant.
const LISTED_MILLIS: u64 = 60_000;

/// How often tenants are read for one event. They are read again when a mark disappeared meanwhile,
/// because then the tenant's head may be older than that.
const READINGS_MAX: usize = 3;

/// The most trusted projects of a tenant whose pushes an event of another project waits for.
const CENTRAL_MAX: usize = 10;

/// The most other projects whose pushes an event waits for because they configure which pipelines
/// its project takes part in.
const CONFIGURING_MAX: usize = 10;

/// The most consumed marks that are cached.
const GONE_MAX: usize = 4_096;

/// What is stored before an event on a change is applied.
pub(crate) struct ChangeContext {
    /// The events that were seen of the change; `None` for a change that was never seen.
    pub(crate) seen: Option<SeenEvents>,
    /// The revision of the seen-events record; `None` where there is none.
    pub(crate) seen_revision: Option<u64>,
    /// The branches that the change targeted before.
    pub(crate) former_branches: Vec<BranchName>,
    /// Whether any change depends on it, or ever did.
    pub(crate) is_needed: bool,
    /// The changes of its project that are known to be open.
    pub(crate) open: OpenChanges,
    /// What each pipeline did with the change's events so far.
    pub(crate) verdicts: RoutingRecord,
    /// The tenants that have its project.
    pub(crate) tenants: Vec<ConcernedTenant>,
    /// Tenants that have, or may have, its project but cannot be read.
    pub(crate) unreadable: UnreadableTenants,
}

/// A tenant that an event concerns.
pub(crate) struct ConcernedTenant {
    /// The tenant with its live layout.
    pub(crate) live: LiveLayout,
    /// What the event has to wait for: configuration that is being read, or an earlier deferred
    /// event. `None` where it can be processed at once.
    pub(crate) awaited: Option<PendingConfig>,
    /// The queues that are not empty and that may hold the event's change.
    pub(crate) occupied_queues: Vec<QueueKey>,
}

/// Tenants that cannot be read, each with the last event of the project that is deferred for it, if
/// any. A new event is deferred behind that one.
pub(crate) type UnreadableTenants = BTreeMap<TenantName, Option<DeferredPredecessor>>;

/// The tenants that have a project.
pub(crate) struct ProjectTenants {
    /// The tenants that can be read.
    pub(crate) tenants: Vec<ConcernedTenant>,
    /// Tenants that have, or may have, the project, where the tenant's record or its layout cannot
    /// be read.
    pub(crate) unreadable: UnreadableTenants,
    /// The records that were read and exist.
    pub(crate) found: RecordMap,
}

impl ProjectTenants {
    /// Returns the tenant of this name if it has the project and can be read.
    pub(crate) fn tenant(&self, name: &TenantName) -> Option<&ConcernedTenant> {
        self.tenants.iter().find(|concerned| concerned.live.tenant.name == *name)
    }
}

impl ChangeContext {
    /// Returns why the forge's answer may be older than what is stored of the change; `None` if it
    /// is not. With a reason, the caller postpones the event.
    pub(crate) fn stale_reason(&self, event: &ForgeEvent, facts: &ChangeFacts) -> Option<String> {
        let is_ahead = self.seen.as_ref().is_some_and(|seen| seen.may_be_newer_than(event, facts));
        is_ahead.then(|| {
            format!("the forge's answer about {} is older than what is stored", facts.change)
        })
    }

    /// Returns the time on the forge's clock at which `facts` were true, without counting another
    /// event. For a change that was never seen it is the time of its last update.
    pub(crate) fn moment(&self, facts: &ChangeFacts) -> Timestamp {
        self.seen.as_ref().map_or(facts.updated_at, |seen| seen.moment(facts))
    }

    /// Returns the tenant of this name if it has the change's project and can be read.
    pub(crate) fn tenant(&self, name: &TenantName) -> Option<&ConcernedTenant> {
        self.tenants.iter().find(|concerned| concerned.live.tenant.name == *name)
    }
}

/// Cache of the list of tenants.
#[derive(Debug, Default)]
pub(crate) struct TenantListCache(Mutex<Option<TenantList>>);

#[derive(Debug, Clone)]
struct TenantList {
    /// When the list was read.
    read_at: Timestamp,
    /// The text of the list's mark when it was read; `None` where there was none.
    mark: Option<String>,
    /// The names of all tenants.
    names: Vec<TenantName>,
}

/// Cache of push marks that were already consumed, by the record that names them. A mark never
/// comes back under the same name.
#[derive(Debug, Default)]
pub(crate) struct ConsumedMarks(Mutex<BTreeMap<Key, String>>);

impl ConsumedMarks {
    /// Returns whether this push mark was found consumed before.
    fn is_known(&self, pushed: &Key, mark: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(pushed)
            .is_some_and(|gone| gone == mark)
    }

    /// Stores that a push mark was consumed. A full cache forgets all others first.
    fn remember(&self, pushed: Key, mark: String) {
        let mut gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.len() >= GONE_MAX {
            gone.clear();
        }
        gone.insert(pushed, mark);
    }
}

impl TenantListCache {
    /// Returns the cached list of tenants; `None` if it is too old or was never read.
    fn recent(&self, now: Timestamp) -> Option<TenantList> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        list.filter(|list| now.since(list.read_at) < LISTED_MILLIS)
    }

    /// Replaces the cached list of tenants.
    fn remember(&self, list: TenantList) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(list);
    }
}

impl Intake {
    /// Reads what is stored about a change, the tenants that have its project, what an event has to
    /// wait for at each, also earlier deferred events, and their non-empty queues that may hold the
    /// change. A stored record of the change that is unreadable counts as absent, so that every
    /// event is new again. A tenant that cannot be read is no error: it is in `unreadable`.
    pub(crate) async fn change_context(
        &self,
        facts: &ChangeFacts,
    ) -> Result<ChangeContext, ReconcileError> {
        self.change_context_with(facts, &[]).await
    }

    /// Reads the same as [`Self::change_context`] for a change that also targeted the branches
    /// `more` before: they are added to its former branches, and their queues may hold it.
    pub(crate) async fn change_context_with(
        &self,
        facts: &ChangeFacts,
        more: &[BranchName],
    ) -> Result<ChangeContext, ReconcileError> {
        let seen_key = change::seen_events_key(&facts.change.key);
        // An unreadable record is overwritten. Every event is new again then.
        let seen_of =
            |found: &RecordMap| found.get(&seen_key).and_then(decode_or_log::<SeenEvents>);
        let former_branches = |seen: &Option<SeenEvents>| -> Vec<BranchName> {
            let former = seen.iter().flat_map(|seen| seen_events::former_branches(seen, facts));
            former.filter(|branch| !more.contains(branch)).chain(more.iter().cloned()).collect()
        };
        let queues = |live: &LiveLayout, found: &RecordMap| {
            queues_of(live, facts, &former_branches(&seen_of(found)))
        };
        let needed_key = change::needed_key(&facts.change.key);
        let verdicts_key = change::verdicts_key(&facts.change.key);
        let open_key = open_changes::key(&facts.change.key.project);
        let own = [seen_key.clone(), needed_key.clone(), verdicts_key.clone(), open_key.clone()];
        let project_tenants = self
            .project_tenants(&facts.change.key.project, EventOrder::AfterDeferred, &own, queues)
            .await?;
        let ProjectTenants { mut tenants, unreadable, found } = project_tenants;
        let (seen, is_needed) = (seen_of(&found), found.contains_key(&needed_key));
        let seen_revision = found.get(&seen_key).map(|record| record.revision);
        let verdicts = found.get(&verdicts_key).and_then(decode_or_log).unwrap_or_default();
        let open = found.get(&open_key).and_then(decode_or_log).unwrap_or_default();
        let former_branches = former_branches(&seen);
        for ConcernedTenant { live, occupied_queues, .. } in &mut tenants {
            let of_it = queues_of(live, facts, &former_branches).into_iter();
            *occupied_queues =
                of_it.filter(|queue| found.contains_key(&tenant::queue_key(queue))).collect();
        }
        Ok(ChangeContext {
            tenants,
            seen,
            seen_revision,
            former_branches,
            is_needed,
            open,
            verdicts,
            unreadable,
        })
    }

    /// Reads the tenants that have the project, in their live layout or in the configuration they
    /// are about to load, in order of name. A tenant that cannot be read is no error: it is in
    /// `unreadable`. `order` says whether an event waits for earlier deferred ones. Records with
    /// the keys in `more` are read along and are in `found`; occupied queues are left empty.
    pub(crate) async fn tenants_with(
        &self,
        project: &ProjectName,
        order: EventOrder,
        more: &[Key],
    ) -> Result<ProjectTenants, ReconcileError> {
        self.project_tenants(project, order, more, |_, _| Vec::new()).await
    }

    /// Reads the tenants that have a project, and reads again, at most [`READINGS_MAX`] times in
    /// all, if a push mark disappeared meanwhile. It also reads the keys in `more` and the list
    /// entries of the queues that `queues` names for a layout and the records read so far, which
    /// may be none. These records are in `found`; the tenants' occupied queues are left empty.
    async fn project_tenants(
        &self,
        project: &ProjectName,
        order: EventOrder,
        more: &[Key],
        queues: impl Fn(&LiveLayout, &RecordMap) -> Vec<QueueKey>,
    ) -> Result<ProjectTenants, ReconcileError> {
        for _ in 1..READINGS_MAX {
            let (project_tenants, is_old) =
                self.read_project_tenants(project, order, more, &queues).await?;
            if !is_old {
                return Ok(project_tenants);
            }
        }
        Ok(self.read_project_tenants(project, order, more, &queues).await?.0)
    }

    /// Reads the tenants that have a project once, in order of name, with the records of
    /// [`Self::project_tenants`]. The flag is true if a push mark disappeared meanwhile, so that a
    /// tenant's head may have been read too early.
    async fn read_project_tenants(
        &self,
        project: &ProjectName,
        order: EventOrder,
        more: &[Key],
        queues: &impl Fn(&LiveLayout, &RecordMap) -> Vec<QueueKey>,
    ) -> Result<(ProjectTenants, bool), ReconcileError> {
        let now = self.ports.clock.now();
        let remembered = self.tenant_list.recent(now);
        let names = remembered.as_ref().map(|list| list.names.clone()).unwrap_or_default();
        let seen = names
            .iter()
            .filter_map(|name| self.layouts.last_read(name))
            .filter(|live| has(live, project));
        let mut keys = vec![tenant::tenant_list_version_key()];
        keys.extend(more.iter().cloned());
        keys.extend(names.iter().map(tenant::key));
        for live in seen {
            keys.extend(queues(&live, &RecordMap::new()).iter().map(tenant::queue_key));
            keys.extend(pushed_keys(&live, project));
            keys.extend(order.deferred_key(&live.tenant.name, project));
        }
        let mut read = RecordReader::default();
        read.get(&self.ports, keys).await?;
        let mark =
            read.found.get(&tenant::tenant_list_version_key()).map(|record| record.body.clone());
        let names = match remembered.filter(|list| list.mark == mark) {
            Some(list) => list.names,
            None => {
                let names = tenant::list_tenants(&self.ports).await?;
                self.tenant_list.remember(TenantList { read_at: now, mark, names: names.clone() });
                read.get(&self.ports, names.iter().map(tenant::key).collect()).await?;
                names
            }
        };
        let (mut lives, mut unreadable) = (Vec::new(), UnreadableTenants::new());
        for name in &names {
            let Some(record) = read.found.get(&tenant::key(name)).cloned() else { continue };
            match self.live_layout_of(record, project, now).await? {
                Ok(live) => lives.extend(live),
                // An operator has to repair it, or the tenant's own retry; the events of the other
                // tenants are processed meanwhile.
                Err(why) => {
                    tracing::error!(tenant = %name, why, "cannot read the tenant: its events are deferred");
                    unreadable.insert(name.clone(), None);
                }
            }
        }
        let mut keys = Vec::new();
        for live in &lives {
            keys.extend(queues(live, &read.found).iter().map(tenant::queue_key));
            keys.extend(pushed_keys(live, project));
            keys.extend(order.deferred_key(&live.tenant.name, project));
        }
        keys.extend(unreadable.keys().filter_map(|name| order.deferred_key(name, project)));
        read.get(&self.ports, keys).await?;
        let names = lives.iter().map(|live| &live.tenant.name).chain(unreadable.keys());
        let mut predecessors =
            last_deferred_events(&self.ports, names, project, order, &mut read).await?;
        for (name, deferred) in &mut unreadable {
            *deferred = predecessors.remove(name);
        }
        let mut is_old = false;
        let mut tenants = Vec::with_capacity(lives.len());
        for live in lives {
            let (marks, went) = self.pending_rereads(&live, project, &mut read).await?;
            is_old |= went;
            let awaited = awaited(&live, marks, predecessors.remove(&live.tenant.name), now);
            tenants.push(ConcernedTenant { awaited, live, occupied_queues: Vec::new() });
        }
        // Tenants are processed in this order where one commit has no room for all.
        tenants.sort_by(|a: &ConcernedTenant, b| a.live.tenant.name.cmp(&b.live.tenant.name));
        Ok((ProjectTenants { tenants, unreadable, found: read.found }, is_old))
    }

    /// Returns the live layout of the tenant in this record, which was read at `now`; `None` if the
    /// tenant has no layout yet or does not have the project. The inner error is the reason why the
    /// tenant cannot be read.
    async fn live_layout_of(
        &self,
        record: Record,
        project: &ProjectName,
        now: Timestamp,
    ) -> Result<Result<Option<LiveLayout>, String>, ReconcileError> {
        let tenant: Tenant = match decode(&record) {
            Ok(tenant) => tenant,
            Err(bad) => return Ok(Err(bad.to_string())),
        };
        // Where the head lists all projects, no layout is read for other projects.
        let names_all = tenant.projects_object.is_none() && !tenant.projects.is_empty();
        if tenant.layout_object.is_none() || (names_all && !tenant.projects.contains(project)) {
            return Ok(Ok(None));
        }
        let live = self.layouts.open_live_or_reason(&self.ports, record, tenant, now).await?;
        Ok(live.map(|live| Some(live).filter(|live| has(live, project))))
    }

    /// Returns the sort keys of the tenant's pending rereads after pushes to the project and to
    /// projects that configure it, without those whose push has waited longer than events wait.
    /// `read` must hold the records at [`pushed_keys`]; the records of the rereads are added to it.
    /// The flag is true if a reread is gone that this instance did not know as done: the tenant's
    /// head, which was read before, may then be outdated. Such a reread is cached as done.
    async fn pending_rereads(
        &self,
        live: &LiveLayout,
        project: &ProjectName,
        read: &mut RecordReader,
    ) -> Result<(Vec<String>, bool), ReconcileError> {
        let named = pushed_keys(live, project).into_iter().filter_map(|pushed| {
            let mark: String = decode_or_log(read.found.get(&pushed)?)?;
            (!self.consumed_marks.is_known(&pushed, &mark)).then_some((pushed, mark))
        });
        let named: Vec<(Key, String)> = named.collect();
        let key = |mark: &str| Key::new(tenant::partition(&live.tenant.name), mark);
        read.get(&self.ports, named.iter().map(|(_, mark)| key(mark)).collect()).await?;
        let (mut marks, mut went) = (Vec::new(), false);
        for (pushed, mark) in named {
            match read.found.get(&key(&mark)) {
                Some(record) => marks.extend(is_awaited(record, live.read_at).then_some(mark)),
                None => {
                    self.consumed_marks.remember(pushed, mark);
                    went = true;
                }
            }
        }
        Ok((marks, went))
    }
}

/// Returns what a new event has to wait for at this tenant: a wanted layout that is not live,
/// configuration that is being read, the unread pushes `marks`, and the deferred event
/// `predecessor`. `None` without any of them. A reading no longer counts after [`WAIT_MILLIS`], and
/// neither does a wanted layout whose landings were all ordered before that. If the tenant only
/// reads configuration, the result is `Some` with nothing in it.
///
/// Configuration that has been pending longer than any event waits is ignored: an unresponsive
/// forge, or a landing that does not end, must not block all events.
fn awaited(
    live: &LiveLayout,
    marks: Vec<String>,
    predecessor: Option<DeferredPredecessor>,
    now: Timestamp,
) -> Option<PendingConfig> {
    let head = &live.tenant;
    let is_recent = |since: Timestamp| now.since(since) < WAIT_MILLIS;
    let lands = head.landings.is_empty()
        || head.landings.iter().any(|landing| is_recent(landing.ordered_at));
    let is_pending = head.layout.wanted > head.layout.live && lands;
    let reads_on = head.is_reading && head.reading_since.is_none_or(is_recent);
    let layout = if is_pending { head.layout.wanted } else { 0 };
    let is_any = is_pending || reads_on || !marks.is_empty() || predecessor.is_some();
    is_any.then_some(PendingConfig { layout, pushes: marks, predecessor })
}

/// Returns for each tenant the last deferred event of the project if it was not processed yet.
/// `read` must hold the records that name these events; their deliveries are added to it. Empty if
/// `order` waits for no event. A missing or unreadable delivery counts as processed.
async fn last_deferred_events(
    ports: &Ports,
    names: impl Iterator<Item = &TenantName>,
    project: &ProjectName,
    order: EventOrder,
    read: &mut RecordReader,
) -> Result<BTreeMap<TenantName, DeferredPredecessor>, PortError> {
    let named = names.filter_map(|name| {
        let key = order.deferred_key(name, project)?;
        Some((name.clone(), read.found.get(&key).and_then(decode_or_log::<DeferredPredecessor>)?))
    });
    let mut named: BTreeMap<TenantName, DeferredPredecessor> = named.collect();
    read.get(ports, named.values().map(|deferred| delivery::key(&deferred.delivery)).collect())
        .await?;
    // Nothing waits for a delivery that cannot be read.
    let is_open = |deferred: &DeferredPredecessor| {
        let deferred = read
            .found
            .get(&delivery::key(&deferred.delivery))
            .and_then(decode_or_log::<DeliveryRecord>);
        deferred.is_some_and(|deferred| !deferred.state.is_final())
    };
    named.retain(|_, deferred| is_open(deferred));
    Ok(named)
}

/// Returns whether events still wait for the push with this mark: until [`WAIT_MILLIS`] after its
/// deferred delivery began to wait, and without one until the mark is gone.
fn is_awaited(mark: &Record, now: Timestamp) -> bool {
    let since =
        tenant::decode_reread(mark).and_then(|dirty| dirty.deferred).map(|waiting| waiting.since);
    since.is_none_or(|since| now.since(since) < WAIT_MILLIS)
}

/// Returns the keys of the records that name the newest pushes to the project, to the trusted
/// projects, and to the projects that configure its pipelines. Pushes to other projects do not
/// change where its events go. At most [`CENTRAL_MAX`] trusted and [`CONFIGURING_MAX`] configuring
/// projects are taken.
fn pushed_keys(live: &LiveLayout, project: &ProjectName) -> Vec<Key> {
    let name = &live.tenant.name;
    let central = live.layout.tenant().projects.iter().filter(|central| central.trust.is_trusted());
    let central = central
        .map(|central| &central.name)
        .filter(|central| *central != project)
        .take(CENTRAL_MAX);
    let configuring = live.layout.configured_by(project).into_iter().take(CONFIGURING_MAX);
    let others: BTreeSet<&ProjectName> = central.chain(configuring).collect();
    std::iter::once(project)
        .chain(others)
        .map(|project| tenant::last_reread_key(name, project))
        .collect()
}

/// Whether an event waits for earlier events of its project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventOrder {
    /// It waits for the events of the same project that are deferred for the tenant.
    AfterDeferred,
    /// It does not wait for earlier events.
    Immediate,
}

impl EventOrder {
    /// Returns the key of the tenant's last deferred event of the project; `None` if the event does
    /// not wait for earlier ones.
    fn deferred_key(self, tenant: &TenantName, project: &ProjectName) -> Option<Key> {
        (self == Self::AfterDeferred).then(|| tenant::last_deferred_key(tenant, project))
    }
}

/// Records by key.
pub(crate) type RecordMap = BTreeMap<Key, Record>;

/// Reads records and remembers which keys were requested, so that a missing record is not read
/// again.
#[derive(Default)]
struct RecordReader {
    /// The records that exist.
    found: RecordMap,
    /// The keys that were read.
    requested: BTreeSet<Key>,
}

impl RecordReader {
    /// Reads the records of these keys into `found`, except those requested before.
    async fn get(&mut self, ports: &Ports, keys: Vec<Key>) -> Result<(), PortError> {
        let new: Vec<Key> =
            keys.into_iter().filter(|key| self.requested.insert(key.clone())).collect();
        for page in new.chunks(KEYS_MAX) {
            let found = ports.records.get(page).await?.into_iter().flatten();
            self.found.extend(found.map(|record| (record.key.clone(), record)));
        }
        Ok(())
    }
}

/// Returns whether a tenant has a project, in its live layout or in the configuration it is about
/// to load.
fn has(live: &LiveLayout, project: &ProjectName) -> bool {
    live.layout.project(project.as_str()).is_some() || live.tenant.projects.contains(project)
}

/// Returns the queues of a tenant that a change may be in, or may enter now, also those of
/// `former_branches`. They are of the pipelines that its project takes part in, or of all pipelines
/// if it takes part in none or the change may edit configuration. They need not exist, and one may
/// occur twice.
fn queues_of(
    live: &LiveLayout,
    facts: &ChangeFacts,
    former_branches: &[BranchName],
) -> Vec<QueueKey> {
    let takes_part = live.layout.project_pipelines(&facts.change.key.project);
    let may_be_in_any = takes_part.is_empty() || may_configure(live, facts);
    let pipelines = live.layout.pipelines().iter();
    let concerned =
        pipelines.filter(|pipeline| may_be_in_any || takes_part.contains(&pipeline.name));
    let queues = concerned.flat_map(|pipeline| {
        let now = queue_key(live, pipeline, &facts.change);
        std::iter::once(now).chain(former_queues(live, pipeline, &facts.change, former_branches))
    });
    queues.collect()
}
