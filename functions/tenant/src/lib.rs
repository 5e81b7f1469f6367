//! The tenant: reads configuration from repositories, makes the layout live, and tells every queue.
//!
//! The head's `wanted` is raised by whoever makes the live layout old; this function raises `live`
//! to it, once the landings that will make it old are over and what they brought is read
//! ([`settle`]). [`read`] keeps what was read from each project, so that a landing costs one
//! project's reading. What the main configuration leaves out goes ([`remove`]); one that cannot be
//! read changes nothing.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod beside;
mod files;
mod guard;
mod news;
mod read;
mod remove;
mod settle;
mod stand_in;
mod wake;

use crate::beside::Beside;
use crate::files::{Seen, Work};
use crate::news::Before;
use crate::read::{facts_of, retry_at};
use async_trait::async_trait;
use bytes::Bytes;
use sluice_config::layout::{Layout, LayoutSources};
use sluice_config::pipeline::TriggerKind;
use sluice_config::tenant::{MainConfig, TenantConfig, parse_main};
use sluice_config::{Connections, Fragment, Severity};
use sluice_forge::Forge;
use sluice_gate::filter::{self, StatusTrigger};
use sluice_model::poke::Poke;
use sluice_model::{ConnectionName, QueueKey, TenantName};
use sluice_records::codec::{decode, encode, get, with_body};
use sluice_records::connection;
use sluice_records::layout::Layouts;
use sluice_records::status;
use sluice_records::system_event;
use sluice_records::tenant::{
    self, AwaitedLanding, Dirty, LOOK_SECONDS, PROBLEMS_MAX, Problem, ProjectSource, QUEUES, Tenant,
};
use sluice_repos::Repos;
use sluice_runtime::batch::{Heard, Look, LookError};
use sluice_runtime::object::PutMode;
use sluice_runtime::record::{Due, Expect, Key, Query, Record, Write};
use sluice_runtime::{Commit, PortError, Ports, Saved, cell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Marks of projects to read again that one look takes in.
const MARKS_MAX: usize = 45;
/// Characters of the reason why a project cannot be read.
const WHY_MAX: usize = 300;

/// What the main configuration wants of a tenant.
enum Wanted {
    /// It is one.
    Named(Box<Named>),
    /// It is none.
    LeftOut {
        /// The digest of the main configuration that says so.
        main: String,
    },
    /// Nobody can tell.
    Unknown,
}

/// What is said of a tenant.
struct Named {
    config: TenantConfig,
    connections: Connections,
    /// The files that it includes.
    beside: Beside,
}

/// The main configuration as it was read.
struct Main {
    config: MainConfig,
    connections: Connections,
    mistakes: usize,
    text: String,
}

/// Looks at tenants.
pub struct Tenants {
    ports: Ports,
    repos: Arc<dyn Repos>,
    /// Asked which branches they guard, where a tenant leaves some out by that.
    forges: BTreeMap<ConnectionName, Arc<dyn Forge>>,
    /// Layouts that were live of late: what they have parsed is not parsed again.
    layouts: Layouts,
    /// What forges gave of late.
    seen: Seen,
}

impl Tenants {
    /// Makes the function. A connection without a forge is a plain git server, or one that nobody
    /// can ask.
    pub fn new(
        ports: Ports,
        repos: Arc<dyn Repos>,
        forges: BTreeMap<ConnectionName, Arc<dyn Forge>>,
    ) -> Self {
        Self { ports, repos, forges, layouts: Layouts::default(), seen: Seen::default() }
    }

    /// Brings one tenant up to date. Safe to run twice.
    pub async fn look_at(&self, name: &TenantName) -> Result<(), LookError> {
        let mut record = get(&self.ports, &tenant::key(name)).await?;
        let mut head = record.as_ref().map(decode::<Tenant>).transpose()?;
        if let (Some(found), Some(known)) = (&record, &head)
            && known.telling
            && !known.is_removed
        {
            // And then it looks on: what else led here is not told again.
            let told = self.tell(found.clone(), known.clone()).await?;
            head = Some(decode(&told)?);
            record = Some(told);
        }
        let Named { config, connections, beside } = match self.wanted(name, head.as_ref()).await? {
            Wanted::Named(named) => *named,
            Wanted::LeftOut { main } => return self.left_out(name, &main, record, head).await,
            Wanted::Unknown => return Ok(()),
        };
        let config = &config;
        let head = head.unwrap_or_else(|| Tenant::new(name.clone()));
        let Some(waited_for) = self.settled(&head).await? else {
            return self.look_later(record, &head).await;
        };
        let marks = self.marks(name).await?;
        let head = Tenant {
            is_reloading: head.is_reloading || marks.iter().any(|(mark, _)| mark.is_asked),
            ..head
        };
        let moved =
            marks.iter().map(|(mark, _)| &mark.project).chain(waited_for.all()).cloned().collect();
        let sources =
            self.read(config, &connections, &head, &moved, waited_for.patiently()).await?;
        let mut writes = sources.writes;
        let done = || marks.iter().filter(|(mark, _)| !sources.unread.contains(&mark.project));
        writes.extend(
            done().map(|(_, key)| Write::Delete { key: key.clone(), expect: Expect::Anything }),
        );
        if !sources.unread.is_empty() || marks.len() == MARKS_MAX {
            // What was read is kept; the next look goes on from there.
            return self.go_on(record, head, writes).await;
        }
        let before = self.taken_over(&head).await;
        let included = beside.fragments(config, before.as_deref());
        let (layout, work) =
            self.layout(config, &connections, included, &sources.kept, before.as_deref()).await?;
        let object = format!("layouts/{}", layout.id());
        let has_timers = has_timers(&layout);
        let status_triggers = status_triggers(&layout);
        let is_new = head.layout_object.as_ref() != Some(&object)
            || head.layout.live < head.layout.wanted
            || head.layout.live == 0
            || head.is_reloading
            || head.is_removed;
        let problems = problems(&sources.kept, waited_for.given_up());
        let mut next = Tenant {
            errors: u32::try_from(layout.errors().len() + problems.len()).unwrap_or(u32::MAX),
            problems: problems.into_iter().take(PROBLEMS_MAX).collect(),
            left_out_at: None,
            is_removed: false,
            landings: waited_for.given_up().to_vec(),
            retry_at: retry_at(&sources.kept),
            is_reading: false,
            reading_since: None,
            is_reloading: false,
            ..head.clone()
        };
        // One that cannot be opened any more, or was parsed by another version, is stored again
        // under its name.
        if is_new || before.is_none() {
            self.ports
                .objects
                .put(&object, Bytes::from(layout.to_bytes()), PutMode::Always, "application/json")
                .await?;
        }
        if !is_new && writes.is_empty() && next == head {
            self.look_later(record, &head).await?;
            return self.wake(name).await;
        }
        if is_new {
            writes.push(tenant::put_listed(name)?);
            if head.layout.live == 0 || head.is_removed {
                writes.push(tenant::put_listing(name, self.ports.clock.now())?);
            }
            next.layout.wanted = head
                .layout
                .wanted
                .max(if head.layout.live == head.layout.wanted { head.layout.live + 1 } else { 1 });
            next.layout.live = next.layout.wanted;
            next.live_since = self.ports.clock.now();
            // Most tenants have none, and most layouts those of the one before: then nobody reads
            // what is said of all.
            let had = before.as_deref().map(crate::status_triggers).unwrap_or_default();
            if status_triggers != had || (head.is_reloading && !had.is_empty()) {
                writes.extend(status::put(&self.ports, name, &status_triggers).await?);
            }
            let before = match &before {
                _ if head.layout.live == 0 || head.is_removed => Before::Nothing,
                None => Before::Unknown,
                Some(before) => Before::Layout(before),
            };
            let told =
                news::of(&layout, &before, head.is_reloading, (next.layout.live, next.live_since));
            writes.extend(told.map(|event| system_event::put(name, &event)).transpose()?);
            self.layouts.keep(&object, Arc::new(layout));
            next.layout_object = Some(object);
            let projects = config.projects.iter().map(|project| project.name.clone()).collect();
            tenant::set_projects(&self.ports, &mut next, projects).await?;
            next.telling = true;
            let Work { kept, fetched } = work;
            tracing::info!(tenant = %name, layout = next.layout.live, errors = next.errors, kept, fetched, "a layout is live");
        }
        let due = self.due(&next);
        let record = record_of(record, &next)?;
        let schedule = Poke::Schedule { tenant: name.clone() };
        let pokes = if is_new && has_timers { vec![schedule] } else { Vec::new() };
        match cell::commit_and_deliver(
            &self.ports,
            Commit { head: record, others: writes, pokes, due },
        )
        .await?
        {
            Saved::Yes(record) if next.telling => drop(self.tell(record, next).await?),
            Saved::Yes(_) => {}
            Saved::Stale => {
                return Err(LookError::Again(format!("tenant {name} moved while it was read")));
            }
        }
        self.wake(name).await
    }

    /// Returns when a tenant has to be looked at without being poked.
    fn due(&self, head: &Tenant) -> Option<Due> {
        let waits = head.telling || !head.landings.is_empty();
        let soon = waits.then(|| self.ports.clock.now().plus_seconds(LOOK_SECONDS));
        let sure = head.left_out_at.map(remove::sure_at);
        let at = soon.into_iter().chain(head.retry_at).chain(sure).min()?;
        Some(Due { at, poke: Poke::Tenant { tenant: head.name.clone() } })
    }

    /// Nothing to decide yet: moves the next look on if it is late, so that not each sweep finds
    /// this tenant again.
    async fn look_later(&self, record: Option<Record>, head: &Tenant) -> Result<(), LookError> {
        let Some(record) = record else { return Ok(()) };
        if record.due.as_ref().is_none_or(|due| due.at > self.ports.clock.now()) {
            return Ok(());
        }
        let due = self.due(head);
        // Losing means that somebody else has decided something, and said when to look.
        cell::commit(
            &self.ports,
            Commit { head: record, others: Vec::new(), pokes: Vec::new(), due },
        )
        .await?;
        Ok(())
    }

    /// Keeps what was read so far and has the tenant looked at again at once.
    async fn go_on(
        &self,
        record: Option<Record>,
        head: Tenant,
        writes: Vec<Write>,
    ) -> Result<(), LookError> {
        let poke = Poke::Tenant { tenant: head.name.clone() };
        let due =
            Some(Due { at: self.ports.clock.now().plus_seconds(LOOK_SECONDS), poke: poke.clone() });
        let name = head.name.clone();
        // Who waits for a reading that is done waits for the whole.
        let reading_since = head.reading_since.or(Some(self.ports.clock.now()));
        let head = record_of(record, &Tenant { is_reading: true, reading_since, ..head })?;
        match cell::commit_and_deliver(
            &self.ports,
            Commit { head, others: writes, pokes: vec![poke], due },
        )
        .await?
        {
            Saved::Yes(_) => Ok(()),
            Saved::Stale => Err(LookError::Again(format!("tenant {name} moved while it was read"))),
        }
    }

    /// Pokes every queue that is not empty, then strikes that off the head, which is returned.
    async fn tell(&self, record: Record, mut head: Tenant) -> Result<Record, LookError> {
        let mut after = None;
        // A page at a time; 100 pages are 100,000 queues.
        for _ in 0..100 {
            let query = Query {
                after: after.take(),
                ..Query::prefix(tenant::partition(&head.name), QUEUES, 1_000)
            };
            let records = self.ports.records.query(&query).await?;
            let mut pokes = Vec::new();
            for record in &records {
                match decode::<QueueKey>(record) {
                    Ok(queue) => pokes.push(Poke::Queue { queue }),
                    // The other queues are told all the same.
                    Err(bad) => {
                        tracing::error!(tenant = %head.name, %bad, "a queue is not told of the live layout")
                    }
                }
            }
            cell::send(&self.ports, &pokes).await?;
            if records.len() < 1_000 {
                break;
            }
            after = records.last().map(|record| record.key.sort.clone());
        }
        head.telling = false;
        let due = self.due(&head);
        let plan =
            Commit { head: with_body(record, &head)?, others: Vec::new(), pokes: Vec::new(), due };
        match cell::commit(&self.ports, plan).await? {
            Saved::Yes(record) => Ok(record),
            Saved::Stale => Err(LookError::Again(format!(
                "tenant {} moved while its queues were told",
                head.name
            ))),
        }
    }

    /// Returns what the main configuration says of a tenant. One with mistakes says nothing of what
    /// is live already: a tenant that was read goes on as it was read, or a slip in one place would
    /// take the others' projects away.
    async fn wanted(&self, name: &TenantName, head: Option<&Tenant>) -> Result<Wanted, LookError> {
        let Main { config, connections, mistakes, text } = self.main().await?;
        let named = config.tenants.into_iter().find(|tenant| tenant.name == *name);
        let object = head.and_then(|head| head.layout_object.as_ref());
        match (mistakes, named, object) {
            (0, Some(config), _) => self.named(config, connections, &text).await,
            (0, None, _) => Ok(Wanted::LeftOut { main: tenant::main_digest(&text) }),
            (_, _, Some(object)) if head.is_some_and(|head| !head.is_removed) => {
                tracing::error!(tenant = %name, mistakes, "the main configuration is wrong; the tenant goes on as it was");
                let layout = self.live(object).await?;
                let (config, connections) = (layout.tenant().clone(), layout.connections().clone());
                Ok(Wanted::Named(Box::new(Named {
                    config,
                    connections,
                    beside: Beside::of_layout(&layout),
                })))
            }
            (_, Some(config), None) => self.named(config, connections, &text).await,
            (_, _, _) => {
                tracing::error!(tenant = %name, mistakes, "the main configuration is wrong, so nothing is read for this tenant");
                Ok(Wanted::Unknown)
            }
        }
    }

    /// Returns what the main configuration of a text says of a tenant, with the files that it
    /// includes.
    async fn named(
        &self,
        config: TenantConfig,
        connections: Connections,
        main: &str,
    ) -> Result<Wanted, LookError> {
        let (files, beside) = self.beside(&config, main).await?;
        let config = TenantConfig { beside, ..config };
        Ok(Wanted::Named(Box::new(Named { config, connections, beside: files })))
    }

    /// Opens a stored layout.
    async fn live(&self, object: &str) -> Result<Layout, LookError> {
        let attempt = || format!("open the layout {object}");
        let stored = self.ports.objects.get(object).await?;
        let stored =
            stored.ok_or_else(|| PortError::unknown(attempt(), "there is no such object"))?;
        Ok(Layout::from_bytes(&stored.bytes)
            .map_err(|error| PortError::unknown(attempt(), error))?)
    }

    /// Reads the main configuration, as far as it can be understood, and counts its mistakes.
    async fn main(&self) -> Result<Main, LookError> {
        let connections = connection::load(&self.ports).await?.vocabulary();
        let object = self.ports.objects.get(connection::MAIN).await?;
        let Some(text) = object.as_ref().and_then(|object| std::str::from_utf8(&object.bytes).ok())
        else {
            tracing::error!(
                "there is no main configuration, or it is no text: store one with `sluice tenant load FILE`"
            );
            return Ok(Main {
                config: MainConfig::default(),
                connections,
                mistakes: 1,
                text: String::new(),
            });
        };
        let (config, errors) = parse_main("main.yaml", text, &connections);
        for error in &errors {
            match error.problem.severity {
                Severity::Error => tracing::error!("{error}"),
                Severity::Warning => tracing::warn!("{error}"),
            }
        }
        let mut mistakes =
            errors.iter().filter(|error| error.problem.severity == Severity::Error).count();
        if mistakes == 0 && config.tenants.is_empty() {
            tracing::error!(
                "the main configuration names no tenant at all, which counts as a mistake"
            );
            mistakes = 1;
        }
        Ok(Main { config, connections, mistakes, text: text.to_owned() })
    }

    /// Returns the projects to read again, each with the record that says so.
    async fn marks(&self, name: &TenantName) -> Result<Vec<(Dirty, Key)>, LookError> {
        let query = Query::prefix(tenant::partition(name), tenant::DIRTY, MARKS_MAX);
        let records = self.ports.records.query(&query).await?;
        Ok(records
            .into_iter()
            .filter_map(|record| Some((tenant::dirty(&record)?, record.key)))
            .collect())
    }

    async fn layout(
        &self,
        config: &TenantConfig,
        connections: &Connections,
        included: Vec<Arc<Fragment>>,
        sources: &[tenant::ProjectSource],
        live: Option<&Layout>,
    ) -> Result<(Layout, Work), LookError> {
        let (mut fragments, mut branches, mut work) = (included, BTreeMap::new(), Work::default());
        for source in sources {
            let Some(project) = config.project(&source.project) else { continue };
            // A branch that the tenant leaves out is none of the layout's: what is pushed there
            // changes nothing.
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

/// Returns whether a pipeline is started by the clock. Where none is any more, the next tick of
/// what there was finds that.
fn status_triggers(layout: &Layout) -> Vec<StatusTrigger> {
    layout.pipelines().iter().flat_map(filter::status_triggers).collect()
}

fn has_timers(layout: &Layout) -> bool {
    let mut triggers = layout.pipelines().iter().flat_map(|pipeline| &pipeline.triggers);
    triggers.any(|trigger| matches!(trigger.kind, TriggerKind::Timer(_)))
}

fn record_of(record: Option<Record>, head: &Tenant) -> Result<Record, PortError> {
    match record {
        Some(record) => with_body(record, head),
        None => encode(tenant::key(&head.name), head),
    }
}

/// Returns the projects that could not be read, with the reasons.
fn problems(sources: &[ProjectSource], given_up: &[AwaitedLanding]) -> Vec<Problem> {
    let of_landing = |awaited: &AwaitedLanding| {
        let why = awaited.given_up.as_ref()?;
        let why = format!(
            "a landing of its configuration does not end, so that it is known as it was before: {why}"
        );
        Some(Problem { project: awaited.project.clone(), why: why.chars().take(WHY_MAX).collect() })
    };
    let of = |source: &ProjectSource| {
        let why = source.problem.as_ref()?.chars().take(WHY_MAX).collect();
        Some(Problem { project: source.project.clone(), why })
    };
    given_up.iter().filter_map(of_landing).chain(sources.iter().filter_map(of)).collect()
}

#[async_trait]
impl Look for Tenants {
    async fn poked(&self, poke: &Poke, _heard: Heard) -> Result<(), LookError> {
        match poke {
            Poke::Tenant { tenant } => self.look_at(tenant).await,
            other => Err(LookError::Again(format!("the tenant function was poked with {other:?}"))),
        }
    }

    fn ports(&self) -> &Ports {
        &self.ports
    }
}
