//! The tenant function: reads configuration from repositories, makes the layout live, and notifies
//! every queue.
//!
//! Other functions raise `wanted` in the tenant's head when the live layout becomes outdated. This
//! function raises `live` to it, once the landings that change the configuration have ended and
//! what they merged is read ([`pending_landings`]). [`read`] stores what was read of each project,
//! so that a landing costs the reading of one project. Tenants that the main configuration omits
//! are removed ([`remove`]). A main configuration with errors changes nothing.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod branch_protection;
mod files;
mod included;
mod layout_fallback;
mod pending_landings;
mod provider_changes;
mod read;
mod reconfiguration_event;
mod remove;
mod wake_deferred;

use crate::files::{FileCache, FragmentStats};
use crate::included::TenantIncludes;
use crate::read::{facts_of, retry_at};
use crate::reconfiguration_event::PreviousLayout;
use async_trait::async_trait;
use bytes::Bytes;
use sluice_config::layout::{Layout, LayoutSources};
use sluice_config::pipeline::TriggerKind;
use sluice_config::tenant::{MainConfig, TenantConfig, parse_main};
use sluice_config::{Connections, Fragment, Severity};
use sluice_forge::Forge;
use sluice_gate::filter::{self, StatusTrigger};
use sluice_model::wakeup::Wakeup;
use sluice_model::{ConnectionName, QueueKey, TenantName};
use sluice_records::codec::{decode, encode, get, with_body};
use sluice_records::connection;
use sluice_records::layout::Layouts;
use sluice_records::status_triggers;
use sluice_records::system_event;
use sluice_records::tenant::{
    self, PendingConfigLanding, ProjectSource, QUEUES, RECHECK_SECONDS, RereadRequest, Tenant,
    UNREADABLE_PROJECTS_MAX, UnreadableProject,
};
use sluice_repos::Repos;
use sluice_runtime::batch::{Reception, ReconcileError, Reconciler};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Due, Expect, Key, Query, Record, Write};
use sluice_runtime::{CellCommit, CommitOutcome, PortError, Ports, cell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most reread requests that one run processes.
const MARKS_MAX: usize = 45;
/// The most characters of the reason why a project cannot be read.
const REASON_CHARS_MAX: usize = 300;

/// What the main configuration says about a tenant.
enum TenantSpec {
    /// It names the tenant.
    Named(Box<NamedTenant>),
    /// It omits the tenant.
    Omitted {
        /// The digest of the main configuration that omits it.
        main: String,
    },
    /// Unknown, because the main configuration has errors and the tenant has no layout.
    Unknown,
}

/// A tenant's part of the main configuration.
struct NamedTenant {
    /// The tenant's part of the main configuration.
    config: TenantConfig,
    /// All configured connections.
    connections: Connections,
    /// The files that the tenant includes.
    included_files: TenantIncludes,
}

/// The main configuration as it was read.
struct MainConfigReading {
    /// The main configuration as far as it is valid.
    config: MainConfig,
    /// All configured connections.
    connections: Connections,
    /// The number of its errors.
    errors_found: usize,
    /// Its text.
    text: String,
}

/// Reconciles tenants.
pub struct Tenants {
    /// Access to records, objects, queues and time.
    ports: Ports,
    /// The repositories of all projects.
    repos: Arc<dyn Repos>,
    /// The forges by connection; they say which branches are protected, where a tenant excludes
    /// branches by that.
    forges: BTreeMap<ConnectionName, Arc<dyn Forge>>,
    /// Recently live layouts: what they have parsed is not parsed again.
    layouts: Layouts,
    /// Cache of files that were read from forges.
    file_cache: FileCache,
}

impl Tenants {
    /// Creates the function that loads tenants. A connection without a forge is a plain git server,
    /// or has no token.
    pub fn new(
        ports: Ports,
        repos: Arc<dyn Repos>,
        forges: BTreeMap<ConnectionName, Arc<dyn Forge>>,
    ) -> Self {
        Self { ports, repos, forges, layouts: Layouts::default(), file_cache: FileCache::default() }
    }

    /// Reconciles one tenant: reads what changed, makes a new layout live if it differs, one is
    /// wanted or an operator requested it, and wakes queues and deferred events. While it waits for
    /// a landing of configuration, only postpones the tenant. If not everything could be read in
    /// one run, stores what was read and wakes the tenant again. A tenant that the main
    /// configuration omits is removed. Reads nothing if that has errors and does not show what the
    /// tenant's configuration is. Safe to run twice.
    pub async fn reconcile_tenant(&self, name: &TenantName) -> Result<(), ReconcileError> {
        let mut record = get(&self.ports, &tenant::key(name)).await?;
        let mut head = record.as_ref().map(decode::<Tenant>).transpose()?;
        if let (Some(found), Some(known)) = (&record, &head)
            && known.is_notifying_queues
            && !known.is_removed
        {
            // Notifies the queues of the layout before, and continues: the message that led here is
            // not repeated.
            let notified = self.notify_queues(found.clone(), known.clone()).await?;
            head = Some(decode(&notified)?);
            record = Some(notified);
        }
        let NamedTenant { config, connections, included_files } =
            match self.tenant_spec(name, head.as_ref()).await? {
                TenantSpec::Named(named) => *named,
                TenantSpec::Omitted { main } => {
                    return self.remove_omitted(name, &main, record, head).await;
                }
                TenantSpec::Unknown => return Ok(()),
            };
        let config = &config;
        let head = head.unwrap_or_else(|| Tenant::new(name.clone()));
        let Some(awaited_projects) = self.await_landings(&head).await? else {
            return self.postpone(record, &head).await;
        };
        let marks = self.reread_requests(name).await?;
        let head = Tenant {
            is_reloading: head.is_reloading || marks.iter().any(|(mark, _)| mark.by_operator),
            ..head
        };
        let moved = marks
            .iter()
            .map(|(mark, _)| &mark.project)
            .chain(awaited_projects.all())
            .cloned()
            .collect();
        let sources =
            self.read(config, &connections, &head, &moved, awaited_projects.patiently()).await?;
        let mut writes = sources.writes;
        let done = || marks.iter().filter(|(mark, _)| !sources.unread.contains(&mark.project));
        writes.extend(
            done().map(|(_, key)| Write::Delete { key: key.clone(), expect: Expect::Anything }),
        );
        if !sources.unread.is_empty() || marks.len() == MARKS_MAX {
            // The result so far is stored; the next run continues there.
            return self.continue_reading(record, head, writes).await;
        }
        let before = self.reusable_layout(&head).await;
        let included = included_files.fragments(config, before.as_deref());
        let (layout, work) = self
            .layout(config, &connections, included, &sources.projects, before.as_deref())
            .await?;
        let object = format!("layouts/{}", layout.id());
        let has_timers = has_timers(&layout);
        let status_triggers = status_triggers(&layout);
        let mut wakeups = Vec::new();
        let is_new = head.layout_object.as_ref() != Some(&object)
            || head.layout.live < head.layout.wanted
            || head.layout.live == 0
            || head.is_reloading
            || head.is_removed;
        let problems = problems(&sources.projects, awaited_projects.given_up());
        let mut next = Tenant {
            errors: u32::try_from(layout.errors().len() + problems.len()).unwrap_or(u32::MAX),
            unreadable_projects: problems.into_iter().take(UNREADABLE_PROJECTS_MAX).collect(),
            omitted_since: None,
            is_removed: false,
            landings: awaited_projects.given_up().to_vec(),
            retry_at: retry_at(&sources.projects),
            is_reading: false,
            reading_since: None,
            is_reloading: false,
            ..head.clone()
        };
        // A layout that cannot be read any more, or that another version parsed, is stored again
        // under its name.
        if is_new || before.is_none() {
            self.ports
                .objects
                .put(&object, Bytes::from(layout.to_bytes()), PutMode::Always, "application/json")
                .await?;
        }
        if !is_new && writes.is_empty() && next == head {
            self.postpone(record, &head).await?;
            return self.wake_deferred(name).await;
        }
        if is_new {
            writes.push(tenant::put_on_tenant_list(name)?);
            if head.layout.live == 0 || head.is_removed {
                writes.push(tenant::put_tenant_list_version(name, self.ports.clock.now())?);
            }
            next.layout.wanted = head
                .layout
                .wanted
                .max(if head.layout.live == head.layout.wanted { head.layout.live + 1 } else { 1 });
            next.layout.live = next.layout.wanted;
            next.live_since = self.ports.clock.now();
            // Most tenants have none, and most layouts the same as the one before: the shared
            // record stays unread then.
            let had = before.as_deref().map(crate::status_triggers).unwrap_or_default();
            if status_triggers != had || (head.is_reloading && !had.is_empty()) {
                writes.extend(status_triggers::put(&self.ports, name, &status_triggers).await?);
            }
            let before = match &before {
                _ if head.layout.live == 0 || head.is_removed => PreviousLayout::Nothing,
                None => PreviousLayout::Unknown,
                Some(before) => PreviousLayout::Layout(before),
            };
            let event = reconfiguration_event::of(
                &layout,
                &before,
                head.is_reloading,
                (next.layout.live, next.live_since),
            );
            writes.extend(event.map(|event| system_event::put(name, &event)).transpose()?);
            wakeups = provider_changes::wakeups(name, &layout, &before, head.is_reloading);
            self.layouts.remember(&object, Arc::new(layout));
            next.layout_object = Some(object);
            let projects = config.projects.iter().map(|project| project.name.clone()).collect();
            tenant::set_projects(&self.ports, &mut next, projects).await?;
            next.is_notifying_queues = true;
            let FragmentStats { reused, fetched } = work;
            tracing::info!(tenant = %name, layout = next.layout.live, errors = next.errors, reused, fetched, "a layout is live");
        }
        let due = self.due(&next);
        let record = record_of(record, &next)?;
        if is_new && has_timers {
            wakeups.push(Wakeup::Schedule { tenant: name.clone() });
        }
        match cell::commit_and_deliver(
            &self.ports,
            CellCommit { head: record, others: writes, wakeups, due },
        )
        .await?
        {
            CommitOutcome::Written(record) if next.is_notifying_queues => {
                drop(self.notify_queues(record, next).await?)
            }
            CommitOutcome::Written(_) => {}
            CommitOutcome::Stale => {
                return Err(ReconcileError::Retry(format!(
                    "tenant {name} changed while it was read"
                )));
            }
        }
        self.wake_deferred(name).await
    }

    /// Returns when the timer has to wake the tenant; `None` if only another function's message can
    /// change it.
    fn due(&self, head: &Tenant) -> Option<Due> {
        let waits = head.is_notifying_queues || !head.landings.is_empty();
        let soon = waits.then(|| self.ports.clock.now().plus_seconds(RECHECK_SECONDS));
        let sure = head.omitted_since.map(remove::sure_at);
        let at = soon.into_iter().chain(head.retry_at).chain(sure).min()?;
        Some(Due { at, wakeup: Wakeup::Tenant { tenant: head.name.clone() } })
    }

    /// Moves an overdue due time of the tenant into the future, so that the sweep does not find it
    /// every minute. Does nothing without a record or an overdue time, and if a concurrent writer
    /// is faster.
    async fn postpone(&self, record: Option<Record>, head: &Tenant) -> Result<(), ReconcileError> {
        let Some(record) = record else { return Ok(()) };
        if record.due.as_ref().is_none_or(|due| due.at > self.ports.clock.now()) {
            return Ok(());
        }
        let due = self.due(head);
        // A stale commit means that a concurrent writer set the due time.
        cell::commit(
            &self.ports,
            CellCommit { head: record, others: Vec::new(), wakeups: Vec::new(), due },
        )
        .await?;
        Ok(())
    }

    /// Stores what was read so far, marks the tenant as reading, and wakes it again at once. The
    /// error is a retry if another run committed first.
    async fn continue_reading(
        &self,
        record: Option<Record>,
        head: Tenant,
        writes: Vec<Write>,
    ) -> Result<(), ReconcileError> {
        let wakeup = Wakeup::Tenant { tenant: head.name.clone() };
        let due = Some(Due {
            at: self.ports.clock.now().plus_seconds(RECHECK_SECONDS),
            wakeup: wakeup.clone(),
        });
        let name = head.name.clone();
        // Events that wait for one reading wait for all of its runs.
        let reading_since = head.reading_since.or(Some(self.ports.clock.now()));
        let head = record_of(record, &Tenant { is_reading: true, reading_since, ..head })?;
        match cell::commit_and_deliver(
            &self.ports,
            CellCommit { head, others: writes, wakeups: vec![wakeup], due },
        )
        .await?
        {
            CommitOutcome::Written(_) => Ok(()),
            CommitOutcome::Stale => {
                Err(ReconcileError::Retry(format!("tenant {name} changed while it was read")))
            }
        }
    }

    /// Wakes every queue of the tenant that is not empty, then removes the flag that requests this
    /// from the head. Returns the new record. A queue whose list record is unreadable is only
    /// logged. The error is a retry if another run committed first.
    async fn notify_queues(
        &self,
        record: Record,
        mut head: Tenant,
    ) -> Result<Record, ReconcileError> {
        let mut after = None;
        // A page at a time; 100 pages are 100,000 queues.
        for _ in 0..100 {
            let query = Query {
                after: after.take(),
                ..Query::prefix(tenant::partition(&head.name), QUEUES, 1_000)
            };
            let records = self.ports.records.query(&query).await?;
            let mut wakeups = Vec::new();
            for record in &records {
                match decode::<QueueKey>(record) {
                    Ok(queue) => wakeups.push(Wakeup::Queue { queue }),
                    // The other queues are notified all the same.
                    Err(bad) => {
                        tracing::error!(tenant = %head.name, %bad, "cannot notify a queue of the live layout")
                    }
                }
            }
            cell::send(&self.ports, &wakeups).await?;
            if records.len() < 1_000 {
                break;
            }
            after = records.last().map(|record| record.key.sort.clone());
        }
        head.is_notifying_queues = false;
        let due = self.due(&head);
        let plan = CellCommit {
            head: with_body(record, &head)?,
            others: Vec::new(),
            wakeups: Vec::new(),
            due,
        };
        match cell::commit(&self.ports, plan).await? {
            CommitOutcome::Written(record) => Ok(record),
            CommitOutcome::Stale => Err(ReconcileError::Retry(format!(
                "tenant {} changed while its queues were notified",
                head.name
            ))),
        }
    }

    /// Reads what the main configuration says about a tenant. If it has errors, a tenant with a
    /// live layout keeps that one's configuration, because otherwise an error in one place would
    /// remove the projects of others. A tenant that never had a layout then counts as named if the
    /// valid part names it. Any other one, such as a removed tenant, is unknown. A tenant is never
    /// omitted by a main configuration with errors.
    async fn tenant_spec(
        &self,
        name: &TenantName,
        head: Option<&Tenant>,
    ) -> Result<TenantSpec, ReconcileError> {
        let MainConfigReading { config, connections, errors_found, text } = self.main().await?;
        let named = config.tenants.into_iter().find(|tenant| tenant.name == *name);
        let object = head.and_then(|head| head.layout_object.as_ref());
        match (errors_found, named, object) {
            (0, Some(config), _) => self.named(config, connections, &text).await,
            (0, None, _) => Ok(TenantSpec::Omitted { main: tenant::main_digest(&text) }),
            (_, _, Some(object)) if head.is_some_and(|head| !head.is_removed) => {
                tracing::error!(tenant = %name, errors_found, "the main configuration has errors; the tenant keeps its configuration");
                let layout = self.live(object).await?;
                let (config, connections) = (layout.tenant().clone(), layout.connections().clone());
                Ok(TenantSpec::Named(Box::new(NamedTenant {
                    config,
                    connections,
                    included_files: TenantIncludes::of_layout(&layout),
                })))
            }
            (_, Some(config), None) => self.named(config, connections, &text).await,
            (_, _, _) => {
                tracing::error!(tenant = %name, errors_found, "the main configuration has errors, so nothing is read for this tenant");
                Ok(TenantSpec::Unknown)
            }
        }
    }

    /// Returns a tenant of the main configuration together with the files that it includes. `main`
    /// is the text of the main configuration.
    async fn named(
        &self,
        config: TenantConfig,
        connections: Connections,
        main: &str,
    ) -> Result<TenantSpec, ReconcileError> {
        let (included_files, included) = self.included_sources(&config, main).await?;
        let config = TenantConfig { included_content: included, ..config };
        Ok(TenantSpec::Named(Box::new(NamedTenant { config, connections, included_files })))
    }

    /// Reads the layout stored as `object`; an error if it is missing or damaged.
    async fn live(&self, object: &str) -> Result<Layout, ReconcileError> {
        let attempt = || format!("open the layout {object}");
        let stored = self.ports.objects.get(object).await?;
        let stored =
            stored.ok_or_else(|| PortError::unknown(attempt(), "there is no such object"))?;
        Ok(Layout::from_bytes(&stored.bytes)
            .map_err(|error| PortError::unknown(attempt(), error))?)
    }

    /// Reads and parses the main configuration, and counts its errors; warnings are not counted.
    /// One that is missing or not UTF-8 is empty and counts as an error, as does one without
    /// tenants. What cannot be parsed is left out.
    async fn main(&self) -> Result<MainConfigReading, ReconcileError> {
        let connections = connection::load(&self.ports).await?.vocabulary();
        let object = self.ports.objects.get(connection::MAIN).await?;
        let Some(text) = object.as_ref().and_then(|object| std::str::from_utf8(&object.bytes).ok())
        else {
            tracing::error!(
                "there is no main configuration, or it is not UTF-8 text: store one with `sluice tenant load FILE`"
            );
            return Ok(MainConfigReading {
                config: MainConfig::default(),
                connections,
                errors_found: 1,
                text: String::new(),
            });
        };
        let (config, errors) = parse_main("main.yaml", text, &connections);
        for error in &errors {
            match error.diagnostic.severity {
                Severity::Error => tracing::error!("{error}"),
                Severity::Warning => tracing::warn!("{error}"),
            }
        }
        let mut errors_found =
            errors.iter().filter(|error| error.diagnostic.severity == Severity::Error).count();
        if errors_found == 0 && config.tenants.is_empty() {
            tracing::error!(
                "the main configuration names no tenant at all, which counts as an error"
            );
            errors_found = 1;
        }
        Ok(MainConfigReading { config, connections, errors_found, text: text.to_owned() })
    }

    /// Returns the stored requests to read projects again, each with its record's key, at most
    /// [`MARKS_MAX`]. An unreadable one counts as a request for the project that its key names.
    async fn reread_requests(
        &self,
        name: &TenantName,
    ) -> Result<Vec<(RereadRequest, Key)>, ReconcileError> {
        let query = Query::prefix(tenant::partition(name), tenant::REREAD, MARKS_MAX);
        let records = self.ports.records.query(&query).await?;
        Ok(records
            .into_iter()
            .filter_map(|record| Some((tenant::decode_reread(&record)?, record.key)))
            .collect())
    }

    /// Builds a tenant's layout from its parsed sources, and counts the branches whose files were
    /// reused or fetched. Sources of projects that the tenant does not have are left out, and
    /// excluded branches are not listed as the layout's. `live` is the layout whose parsed files
    /// are reused.
    async fn layout(
        &self,
        config: &TenantConfig,
        connections: &Connections,
        included: Vec<Arc<Fragment>>,
        sources: &[tenant::ProjectSource],
        live: Option<&Layout>,
    ) -> Result<(Layout, FragmentStats), ReconcileError> {
        let (mut fragments, mut branches, mut work) =
            (included, BTreeMap::new(), FragmentStats::default());
        for source in sources {
            let Some(project) = config.project(&source.project) else { continue };
            // A branch that the tenant excludes is not part of the layout: pushes to it change
            // nothing.
            let counted = source
                .branches
                .iter()
                .filter(|read| config.counts_branch(project, &facts_of(read)));
            branches
                .insert(source.project.clone(), counted.map(|read| read.branch.clone()).collect());
            for read in &source.branches {
                fragments.extend(self.fragments(live, project, read, &mut work).await?);
            }
        }
        let (tenant, connections) = (config.clone(), connections.clone());
        Ok((Layout::build(LayoutSources { tenant, connections, branches, fragments }), work))
    }
}

/// Returns the status triggers of all pipelines.
fn status_triggers(layout: &Layout) -> Vec<StatusTrigger> {
    layout.pipelines().iter().flat_map(filter::status_triggers).collect()
}

/// Returns whether any pipeline of the layout has a timer trigger.
fn has_timers(layout: &Layout) -> bool {
    let mut triggers = layout.pipelines().iter().flat_map(|pipeline| &pipeline.triggers);
    triggers.any(|trigger| matches!(trigger.kind, TriggerKind::Timer(_)))
}

/// Returns the next version of the tenant's record, or its first one.
fn record_of(record: Option<Record>, head: &Tenant) -> Result<Record, PortError> {
    match record {
        Some(record) => with_body(record, head),
        None => encode(tenant::key(&head.name), head),
    }
}

/// Lists the landings of configuration that the tenant stopped waiting for, then the projects that
/// could not be read, with the reasons, for users. A reason is cut to [`REASON_CHARS_MAX`]
/// characters.
fn problems(
    sources: &[ProjectSource],
    given_up: &[PendingConfigLanding],
) -> Vec<UnreadableProject> {
    let of_landing = |awaited: &PendingConfigLanding| {
        let why = awaited.given_up.as_ref()?;
        let why = format!(
            "a landing of its configuration does not end, so the earlier configuration is used: {why}"
        );
        Some(UnreadableProject {
            project: awaited.project.clone(),
            why: why.chars().take(REASON_CHARS_MAX).collect(),
        })
    };
    let of = |source: &ProjectSource| {
        let why = source.read_error.as_ref()?.chars().take(REASON_CHARS_MAX).collect();
        Some(UnreadableProject { project: source.project.clone(), why })
    };
    given_up.iter().filter_map(of_landing).chain(sources.iter().filter_map(of)).collect()
}

#[async_trait]
impl Reconciler for Tenants {
    /// Reconciles the tenant that the wakeup names. Any other wakeup is an error.
    async fn reconcile(
        &self,
        wakeup: &Wakeup,
        _reception: Reception,
    ) -> Result<(), ReconcileError> {
        match wakeup {
            Wakeup::Tenant { tenant } => self.reconcile_tenant(tenant).await,
            other => Err(ReconcileError::Retry(format!(
                "the tenant function received an unsupported wakeup: {other:?}"
            ))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
