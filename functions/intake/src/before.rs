//! What was known before an event: what was told of the change, and the tenants with the queues it
//! may stand in.
//!
//! All of it is read by keys in one call. Which keys those are follows from what is remembered: the
//! list of tenants, as long as its mark is the same, and each tenant's layout as it was read last.
//! Where the remembered turns out to be old, the rest is read by a second call, so an old memory
//! costs a call and no more.
//!
//! A tenant that cannot be read is told later ([`crate::early`]), and so is one whose configuration
//! is on its way, or for which something of the same project is kept.

use crate::Intake;
use crate::early::WAIT_MILLIS;
use crate::route::{former_queues, may_configure, queue_key};
use crate::told::{self, Told};
use sluice_gate::explain::Verdicts;
use sluice_model::change::ChangeFacts;
use sluice_model::event::{Awaited, Behind, ForgeEvent};
use sluice_model::{BranchName, ProjectName, QueueKey, TenantName, Timestamp};
use sluice_records::codec::{decode, decode_foreign};
use sluice_records::delivery::{self, Delivery};
use sluice_records::layout::Live;
use sluice_records::open::{self, Open};
use sluice_records::tenant::Tenant;
use sluice_records::{change, tenant};
use sluice_runtime::batch::LookError;
use sluice_runtime::record::{Key, Record};
use sluice_runtime::{PortError, Ports};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Keys that one call may name (the limit of DynamoDB's BatchGetItem).
const KEYS_MAX: usize = 100;

/// Milliseconds for which the list of tenants is used even though its mark is the same: a
/// transaction's writes are not seen all at once, so that a reader may see the mark a moment before
/// the tenant.
const LISTED_MILLIS: u64 = 60_000;

/// Readings of tenants that one event may take: a mark that was there a moment ago and is gone says
/// that the head is old.
const READINGS_MAX: usize = 3;

/// Central projects of a tenant whose pushes an event of another project waits for.
const CENTRAL_MAX: usize = 10;

/// Further projects that say which pipelines a project takes part in, and whose pushes an event of
/// it waits for as well.
const CONFIGURING_MAX: usize = 10;

/// Marks that are remembered to be gone.
const GONE_MAX: usize = 4_096;

/// What was known before an event on a change.
pub(crate) struct Before {
    /// What was told of the change; `None` for one that was never seen.
    pub(crate) told: Option<Told>,
    /// The revision of the record of that; `None` where there is none.
    pub(crate) told_revision: Option<u64>,
    /// The branches that it was for before.
    pub(crate) formerly: Vec<BranchName>,
    /// Whether any change is known to need it, or was.
    pub(crate) is_needed: bool,
    /// The changes of its project that are known to be open.
    pub(crate) open: Open,
    /// What became of its events so far.
    pub(crate) verdicts: Verdicts,
    /// The tenants that have its project.
    pub(crate) tenants: Vec<Concerned>,
    /// Tenants that have its project, or may have it, and cannot be read.
    pub(crate) damaged: Damaged,
}

/// A tenant that an event concerns.
pub(crate) struct Concerned {
    pub(crate) live: Live,
    /// What the event has to wait for: what of its configuration is on its way, and what was kept
    /// for it before; `None` where it is the event's turn.
    pub(crate) awaited: Option<Awaited>,
    /// Those queues that the event's change may stand in and that are not empty.
    pub(crate) listed: Vec<QueueKey>,
}

/// Tenants that cannot be read, each with what was kept of the project for it, if anything was:
/// what comes waits behind that.
pub(crate) type Damaged = BTreeMap<TenantName, Option<Behind>>;

/// The tenants that have a project.
pub(crate) struct Known {
    pub(crate) tenants: Vec<Concerned>,
    /// Tenants that have it, or may have it, and cannot be read: the record of the tenant, or what
    /// is stored of its layout.
    pub(crate) damaged: Damaged,
    /// Records that were found, by key.
    pub(crate) found: Found,
}

impl Known {
    /// Returns one of the tenants.
    pub(crate) fn tenant(&self, name: &TenantName) -> Option<&Concerned> {
        self.tenants.iter().find(|concerned| concerned.live.tenant.name == *name)
    }
}

impl Before {
    /// Returns why it is too early to tell anybody of facts, if so: the forge's answer may be of
    /// before what is known of the change.
    pub(crate) fn too_early(&self, event: &ForgeEvent, facts: &ChangeFacts) -> Option<String> {
        let is_ahead = self.told.as_ref().is_some_and(|told| told.is_ahead_of(event, facts));
        is_ahead.then(|| {
            format!("the forge shows {} as it was before what is known of it", facts.change)
        })
    }

    /// Returns as of which moment of their forge's clock facts are known that no news of the change
    /// brought.
    pub(crate) fn moment(&self, facts: &ChangeFacts) -> Timestamp {
        self.told.as_ref().map_or(facts.updated_at, |told| told.moment(facts))
    }

    /// Returns one of the tenants.
    pub(crate) fn tenant(&self, name: &TenantName) -> Option<&Concerned> {
        self.tenants.iter().find(|concerned| concerned.live.tenant.name == *name)
    }
}

/// The list of tenants as it was read last.
#[derive(Debug, Default)]
pub(crate) struct Tenants(Mutex<Option<List>>);

#[derive(Debug, Clone)]
struct List {
    read_at: Timestamp,
    /// The text of the mark when it was read; `None` where there was none.
    mark: Option<String>,
    names: Vec<TenantName>,
}

/// Marks of pushes that were found gone, by the record that names them: a mark never comes back
/// under its name.
#[derive(Debug, Default)]
pub(crate) struct Gone(Mutex<BTreeMap<Key, String>>);

impl Gone {
    fn is_known(&self, pushed: &Key, mark: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(pushed)
            .is_some_and(|gone| gone == mark)
    }

    fn remember(&self, pushed: Key, mark: String) {
        let mut gone = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.len() >= GONE_MAX {
            gone.clear();
        }
        gone.insert(pushed, mark);
    }
}

impl Tenants {
    fn recent(&self, now: Timestamp) -> Option<List> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        list.filter(|list| now.since(list.read_at) < LISTED_MILLIS)
    }

    fn remember(&self, list: List) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(list);
    }
}

impl Intake {
    /// Reads what was known before an event on a change.
    pub(crate) async fn before(&self, facts: &ChangeFacts) -> Result<Before, LookError> {
        self.before_of(facts, &[]).await
    }

    /// Reads the same of a change that was for these branches before, besides those that what was
    /// told of it says.
    pub(crate) async fn before_of(
        &self,
        facts: &ChangeFacts,
        more: &[BranchName],
    ) -> Result<Before, LookError> {
        let told_key = change::told_key(&facts.change.key);
        // One that cannot be read is written anew: then everything is news once more.
        let told = |found: &Found| found.get(&told_key).and_then(decode_foreign::<Told>);
        let formerly = |told: &Option<Told>| -> Vec<BranchName> {
            let known = told.iter().flat_map(|told| told::former_branches(told, facts));
            known.filter(|branch| !more.contains(branch)).chain(more.iter().cloned()).collect()
        };
        let queues = |live: &Live, found: &Found| queues_of(live, facts, &formerly(&told(found)));
        let needed_key = change::needed_key(&facts.change.key);
        let verdicts_key = change::verdicts_key(&facts.change.key);
        let open_key = open::key(&facts.change.key.project);
        let own = [told_key.clone(), needed_key.clone(), verdicts_key.clone(), open_key.clone()];
        let known = self.known(&facts.change.key.project, Order::InTurn, &own, queues).await?;
        let Known { mut tenants, damaged, found } = known;
        let (told, is_needed) = (told(&found), found.contains_key(&needed_key));
        let told_revision = found.get(&told_key).map(|record| record.revision);
        let verdicts = found.get(&verdicts_key).and_then(decode_foreign).unwrap_or_default();
        let open = found.get(&open_key).and_then(decode_foreign).unwrap_or_default();
        let formerly = formerly(&told);
        for Concerned { live, listed, .. } in &mut tenants {
            let of_it = queues_of(live, facts, &formerly).into_iter();
            *listed = of_it.filter(|queue| found.contains_key(&tenant::queue_key(queue))).collect();
        }
        Ok(Before { tenants, told, told_revision, formerly, is_needed, open, verdicts, damaged })
    }

    /// Returns the tenants whose live layout has the project, and the further records that are
    /// named, where they are there.
    pub(crate) async fn tenants_with(
        &self,
        project: &ProjectName,
        order: Order,
        more: &[Key],
    ) -> Result<Known, LookError> {
        self.known(project, order, more, |_, _| Vec::new()).await
    }

    /// Reads the tenants that have a project, with further records and the lists' entries of
    /// queues.
    async fn known(
        &self,
        project: &ProjectName,
        order: Order,
        more: &[Key],
        queues: impl Fn(&Live, &Found) -> Vec<QueueKey>,
    ) -> Result<Known, LookError> {
        for _ in 1..READINGS_MAX {
            let (known, is_old) = self.known_now(project, order, more, &queues).await?;
            if !is_old {
                return Ok(known);
            }
        }
        Ok(self.known_now(project, order, more, &queues).await?.0)
    }

    /// Also returns whether a mark went away since, so that a head may have been read before that.
    async fn known_now(
        &self,
        project: &ProjectName,
        order: Order,
        more: &[Key],
        queues: &impl Fn(&Live, &Found) -> Vec<QueueKey>,
    ) -> Result<(Known, bool), LookError> {
        let now = self.ports.clock.now();
        let remembered = self.tenants.recent(now);
        let names = remembered.as_ref().map(|list| list.names.clone()).unwrap_or_default();
        let seen = names
            .iter()
            .filter_map(|name| self.layouts.seen(name))
            .filter(|live| has(live, project));
        let mut keys = vec![tenant::listing_key()];
        keys.extend(more.iter().cloned());
        keys.extend(names.iter().map(tenant::key));
        for live in seen {
            keys.extend(queues(&live, &Found::new()).iter().map(tenant::queue_key));
            keys.extend(pushed_keys(&live, project));
            keys.extend(order.kept_key(&live.tenant.name, project));
        }
        let mut read = Read::default();
        read.get(&self.ports, keys).await?;
        let mark = read.found.get(&tenant::listing_key()).map(|record| record.body.clone());
        let names = match remembered.filter(|list| list.mark == mark) {
            Some(list) => list.names,
            None => {
                let names = tenant::listed(&self.ports).await?;
                self.tenants.remember(List { read_at: now, mark, names: names.clone() });
                read.get(&self.ports, names.iter().map(tenant::key).collect()).await?;
                names
            }
        };
        let (mut lives, mut damaged) = (Vec::new(), Damaged::new());
        for name in &names {
            let Some(record) = read.found.get(&tenant::key(name)).cloned() else { continue };
            match self.live_with(record, project, now).await? {
                Ok(live) => lives.extend(live),
                // A person has to mend it, or the tenant itself; the other tenants' events go on
                // meanwhile.
                Err(why) => {
                    tracing::error!(tenant = %name, why, "a tenant cannot be read: it is told later");
                    damaged.insert(name.clone(), None);
                }
            }
        }
        let mut keys = Vec::new();
        for live in &lives {
            keys.extend(queues(live, &read.found).iter().map(tenant::queue_key));
            keys.extend(pushed_keys(live, project));
            keys.extend(order.kept_key(&live.tenant.name, project));
        }
        keys.extend(damaged.keys().filter_map(|name| order.kept_key(name, project)));
        read.get(&self.ports, keys).await?;
        let names = lives.iter().map(|live| &live.tenant.name).chain(damaged.keys());
        let mut behind = behind(&self.ports, names, project, order, &mut read).await?;
        for (name, kept) in &mut damaged {
            *kept = behind.remove(name);
        }
        let mut is_old = false;
        let mut tenants = Vec::with_capacity(lives.len());
        for live in lives {
            let (marks, went) = self.marks(&live, project, &mut read).await?;
            is_old |= went;
            let awaited = awaited(&live, marks, behind.remove(&live.tenant.name), now);
            tenants.push(Concerned { awaited, live, listed: Vec::new() });
        }
        // In this order they are told, where one commit has no place for all.
        tenants.sort_by(|a: &Concerned, b| a.live.tenant.name.cmp(&b.live.tenant.name));
        Ok((Known { tenants, damaged, found: read.found }, is_old))
    }

    /// Returns a tenant of this record if it has the project, or why nobody can tell.
    async fn live_with(
        &self,
        record: Record,
        project: &ProjectName,
        now: Timestamp,
    ) -> Result<Result<Option<Live>, String>, LookError> {
        let tenant: Tenant = match decode(&record) {
            Ok(tenant) => tenant,
            Err(bad) => return Ok(Err(bad.to_string())),
        };
        // Where the head names the projects no layout is opened for others.
        let names_all = tenant.projects_object.is_none() && !tenant.projects.is_empty();
        if tenant.layout_object.is_none() || (names_all && !tenant.projects.contains(project)) {
            return Ok(Ok(None));
        }
        let live = self.layouts.live_or_damaged(&self.ports, record, tenant, now).await?;
        Ok(live.map(|live| Some(live).filter(|live| has(live, project))))
    }

    /// Returns the marks of pushes to a project, and to the others that say where its events lead,
    /// that a tenant has still to read, and whether one went away since the tenant's head was read.
    async fn marks(
        &self,
        live: &Live,
        project: &ProjectName,
        read: &mut Read,
    ) -> Result<(Vec<String>, bool), LookError> {
        let named = pushed_keys(live, project).into_iter().filter_map(|pushed| {
            let mark: String = decode_foreign(read.found.get(&pushed)?)?;
            (!self.gone.is_known(&pushed, &mark)).then_some((pushed, mark))
        });
        let named: Vec<(Key, String)> = named.collect();
        let key = |mark: &str| Key::new(tenant::partition(&live.tenant.name), mark);
        read.get(&self.ports, named.iter().map(|(_, mark)| key(mark)).collect()).await?;
        let (mut marks, mut went) = (Vec::new(), false);
        for (pushed, mark) in named {
            match read.found.get(&key(&mark)) {
                Some(record) => marks.extend(is_awaited(record, live.read_at).then_some(mark)),
                None => {
                    self.gone.remember(pushed, mark);
                    went = true;
                }
            }
        }
        Ok((marks, went))
    }
}

/// Returns what of a tenant's configuration is on its way, if anything is. What has been on its way
/// for as long as any event waits is waited for no more: one forge that is silent, or one landing
/// that does not end, must not hold up all that comes.
fn awaited(
    live: &Live,
    marks: Vec<String>,
    behind: Option<Behind>,
    now: Timestamp,
) -> Option<Awaited> {
    let head = &live.tenant;
    let is_recent = |since: Timestamp| now.since(since) < WAIT_MILLIS;
    let lands = head.landings.is_empty()
        || head.landings.iter().any(|landing| is_recent(landing.ordered_at));
    let is_wanted = head.layout.wanted > head.layout.live && lands;
    let reads_on = head.is_reading && head.reading_since.is_none_or(is_recent);
    let layout = if is_wanted { head.layout.wanted } else { 0 };
    let is_any = is_wanted || reads_on || !marks.is_empty() || behind.is_some();
    is_any.then_some(Awaited { layout, marks, behind })
}

/// Returns, by tenant, what was kept of the same project and has not ended: whatever made it wait
/// may be over while it has still to be told.
async fn behind(
    ports: &Ports,
    names: impl Iterator<Item = &TenantName>,
    project: &ProjectName,
    order: Order,
    read: &mut Read,
) -> Result<BTreeMap<TenantName, Behind>, PortError> {
    let named = names.filter_map(|name| {
        let key = order.kept_key(name, project)?;
        Some((name.clone(), read.found.get(&key).and_then(decode_foreign::<Behind>)?))
    });
    let mut named: BTreeMap<TenantName, Behind> = named.collect();
    read.get(ports, named.values().map(|kept| delivery::key(&kept.delivery)).collect()).await?;
    // One that cannot be read ends as nobody knows what: nothing waits for it.
    let is_open = |kept: &Behind| {
        let kept =
            read.found.get(&delivery::key(&kept.delivery)).and_then(decode_foreign::<Delivery>);
        kept.is_some_and(|kept| !kept.state.is_final())
    };
    named.retain(|_, kept| is_open(kept));
    Ok(named)
}

/// Whether a mark is still waited for.
fn is_awaited(mark: &Record, now: Timestamp) -> bool {
    let since = tenant::dirty(mark).and_then(|dirty| dirty.then).map(|waiting| waiting.since);
    since.is_none_or(|since| now.since(since) < WAIT_MILLIS)
}

/// Returns the keys of what names the newest pushes to a project, to the projects that pipelines
/// come from, and to those that say which of them the project takes part in. What other projects
/// say changes nothing of where its events lead.
fn pushed_keys(live: &Live, project: &ProjectName) -> Vec<Key> {
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
        .map(|project| tenant::pushed_key(name, project))
        .collect()
}

/// Whether an event has to wait for what came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// A tenant is told of it after what was kept for it of the same project.
    InTurn,
    /// Nothing that came before matters.
    AtOnce,
}

impl Order {
    fn kept_key(self, tenant: &TenantName, project: &ProjectName) -> Option<Key> {
        (self == Self::InTurn).then(|| tenant::kept_key(tenant, project))
    }
}

/// Records that were found, by key.
pub(crate) type Found = BTreeMap<Key, Record>;

/// Records that were read, and which were asked for: what was not found is not asked for again.
#[derive(Default)]
struct Read {
    found: Found,
    asked: BTreeSet<Key>,
}

impl Read {
    async fn get(&mut self, ports: &Ports, keys: Vec<Key>) -> Result<(), PortError> {
        let new: Vec<Key> = keys.into_iter().filter(|key| self.asked.insert(key.clone())).collect();
        for page in new.chunks(KEYS_MAX) {
            let found = ports.records.get(page).await?.into_iter().flatten();
            self.found.extend(found.map(|record| (record.key.clone(), record)));
        }
        Ok(())
    }
}

fn has(live: &Live, project: &ProjectName) -> bool {
    live.layout.project(project.as_str()).is_some() || live.tenant.projects.contains(project)
}

/// Returns the queues of a tenant that a change may stand in or enter.
fn queues_of(live: &Live, facts: &ChangeFacts, formerly: &[BranchName]) -> Vec<QueueKey> {
    let takes_part = live.layout.project_pipelines(&facts.change.key.project);
    let configures = may_configure(live, facts);
    let pipelines = live.layout.pipelines().iter();
    let concerned = pipelines.filter(|pipeline| configures || takes_part.contains(&pipeline.name));
    let queues = concerned.flat_map(|pipeline| {
        let now = queue_key(live, pipeline, &facts.change);
        std::iter::once(now).chain(former_queues(live, pipeline, &facts.change, formerly))
    });
    queues.collect()
}
