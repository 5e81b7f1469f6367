//! Reads a provider's limits from the live layouts of all tenants that include it.

use crate::KEYS_MAX;
use sluice_config::layout::{LabelConfig, Layout, ProviderConfig, StaticNode};
use sluice_model::{LabelName, ProviderName, TenantName, Timestamp};
use sluice_pool::{
    Interface, LabelImage, LabelSpec, LaunchLocation, Pace, ProviderConnection, ProviderHead,
    ProviderLimits, Resources, StaticHost,
};
use sluice_records::codec::decode_or_log;
use sluice_records::layout::Layouts;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::Ports;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The machine limit where the configuration names no quota.
const QUOTA_DEFAULT: u32 = 100;

/// Seconds for which a cached provider is used by runs that place nothing, and for which the others
/// read only the tenants of their requests.
const RECENT_SECONDS: u64 = 60;

/// The most tenants whose providers are cached. With more, each search reads some layouts again.
const TENANTS_MAX: usize = 5_000;

/// The most providers that are cached.
const PROVIDERS_MAX: usize = 500;

/// A provider as it is configured.
#[derive(Clone)]
pub(crate) struct ProviderSettings {
    /// Its connection; `None` for a provider that was removed before its first use.
    pub(crate) connection: Option<ProviderConnection>,
    /// The labels, quota and static hosts.
    pub(crate) limits: ProviderLimits,
}

/// What the records of a provider say about its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionInUse {
    /// The connection in its head; `None` before its first use.
    pub(crate) connection: Option<ProviderConnection>,
    /// Whether it has nodes, which are of this connection.
    pub(crate) has_nodes: bool,
}

impl ConnectionInUse {
    /// Returns the connection in a head, for a provider with this number of nodes.
    pub(crate) fn new(head: &ProviderHead, nodes: usize) -> Self {
        Self { connection: head.connection.clone(), has_nodes: nodes > 0 }
    }
}

/// The records of tenants' heads that a run has read; `None` for a missing one.
pub(crate) type TenantHeads = BTreeMap<TenantName, Option<Record>>;

/// Caches the providers of every tenant, and the settings of each provider, so that few reads by
/// key return its limits.
#[derive(Default)]
pub(crate) struct Configured {
    /// The cache of layouts.
    layouts: Layouts,
    /// What the live layout of each tenant says about its providers.
    of_tenants: Mutex<BTreeMap<TenantName, Arc<TenantProviders>>>,
    /// The providers that were found, by name.
    cached: Mutex<BTreeMap<ProviderName, CachedProvider>>,
}

/// The providers of a tenant.
struct TenantProviders {
    /// The object with the layout that has them.
    layout_object: String,
    /// Their settings by name.
    settings: BTreeMap<ProviderName, Arc<ProviderSettings>>,
}

struct CachedProvider {
    /// What all tenants say about the provider.
    found: Found,
    /// By which connection the settings are combined.
    chosen: ChosenConnection,
    /// The combined settings.
    combined: ProviderSettings,
    /// When all tenants were read.
    searched_at: Timestamp,
}

impl CachedProvider {
    /// Returns whether all tenants were read less than a minute ago.
    fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.searched_at.plus_seconds(RECENT_SECONDS)
    }
}

/// What some tenants say about a provider.
#[derive(Clone, Default)]
struct Found {
    /// The tenants that have it, with their settings.
    settings: BTreeMap<TenantName, Arc<ProviderSettings>>,
    /// The tenants whose record or layout is unusable.
    unread: BTreeSet<TenantName>,
}

impl Found {
    /// Replaces what the tenants in `heads` say by `newer`, which was read from these heads.
    fn replace(&mut self, heads: &TenantHeads, newer: Self) {
        self.settings.retain(|tenant, _| !heads.contains_key(tenant));
        self.unread.retain(|tenant| !heads.contains_key(tenant));
        self.settings.extend(newer.settings);
        self.unread.extend(newer.unread);
    }

    /// Returns whether the tenants and their settings are the same objects as in `other`.
    fn is_same(&self, other: &Self) -> bool {
        let mut pairs = self.settings.iter().zip(&other.settings);
        self.settings.len() == other.settings.len()
            && self.unread == other.unread
            && pairs.all(|((tenant, one), (name, two))| tenant == name && Arc::ptr_eq(one, two))
    }
}

/// The connection of which tenants get nodes from a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChosenConnection {
    connection: Option<ProviderConnection>,
    /// Whether no tenant that can be read has this connection any more. The provider keeps it until
    /// its nodes are deleted and all tenants can be read.
    is_left: bool,
}

impl ChosenConnection {
    /// Returns the connection in use as long as a tenant has it, or may have it because it cannot
    /// be read, or the provider has nodes of it. Otherwise the connection that most tenants have;
    /// of several ones, that of the first tenant.
    fn new(found: &Found, in_use: &ConnectionInUse) -> Self {
        let mut counts: Vec<(&ProviderConnection, usize)> = Vec::new();
        for connection in found.settings.values().filter_map(|of| of.connection.as_ref()) {
            match counts.iter_mut().find(|(other, _)| *other == connection) {
                Some((_, count)) => *count += 1,
                None => counts.push((connection, 1)),
            }
        }
        if let Some(used) = &in_use.connection {
            let is_left = counts.iter().all(|(other, _)| *other != used);
            if !is_left || in_use.has_nodes || !found.unread.is_empty() {
                return Self { connection: Some(used.clone()), is_left };
            }
        }
        // Of equal counts, `max_by_key` returns the last.
        let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
        Self { connection: most.map(|(connection, _)| connection.clone()), is_left: false }
    }
}

impl Configured {
    /// Returns the tenants whose heads a run should read together with other records: those that
    /// are `concerned`, which are the tenants of its waiting requests and one whose configuration
    /// changed. A change of any other tenant is announced by a wakeup of its own. Empty if no fresh
    /// search is cached, since all tenants are read then.
    pub(crate) fn tenants_to_read(
        &self,
        provider: &ProviderName,
        concerned: BTreeSet<TenantName>,
        now: Timestamp,
    ) -> BTreeSet<TenantName> {
        match self.cached().get(provider).filter(|cached| cached.is_fresh(now)) {
            Some(_) => concerned,
            None => BTreeSet::new(),
        }
    }

    /// Returns the cached settings of a provider; `None` if none are cached or all tenants were
    /// read [`RECENT_SECONDS`] ago or earlier. Only for runs that place nothing: if ready machines
    /// are outdated, the next read releases them.
    pub(crate) fn cached_if_fresh(
        &self,
        provider: &ProviderName,
        in_use: &ConnectionInUse,
        now: Timestamp,
    ) -> Option<ProviderSettings> {
        let (found, searched_at) = self.fresh(provider, now)?;
        Some(self.keep(provider, found, in_use, searched_at))
    }

    /// Returns the settings of a provider, combined from all tenants that have it, and caches them.
    /// `heads` are the heads of [`Self::tenants_to_read`]; the other tenants count as they were at
    /// the last search. If that was a minute ago or earlier, or if no tenant has the provider, reads
    /// all tenants. `None` if no tenant has it; then the cache forgets it. A tenant whose record or
    /// layout is unusable is named in the limits; it is an error that is retried if no other tenant
    /// has the provider.
    pub(crate) async fn find(
        &self,
        ports: &Ports,
        name: &ProviderName,
        heads: TenantHeads,
        in_use: &ConnectionInUse,
        now: Timestamp,
    ) -> Result<Option<ProviderSettings>, ReconcileError> {
        if let Some((mut found, searched_at)) = self.fresh(name, now) {
            found.replace(&heads, self.found_in(ports, &heads, name).await?);
            if !found.settings.is_empty() {
                return Ok(Some(self.keep(name, found, in_use, searched_at)));
            }
        }
        let found = self.found_in(ports, &all_heads(ports, heads).await?, name).await?;
        if !found.settings.is_empty() {
            return Ok(Some(self.keep(name, found, in_use, now)));
        }
        if let Some(tenant) = found.unread.first() {
            // This tenant may have the provider: it is removed only when that is certain.
            return Err(ReconcileError::Retry(format!(
                "cannot find out whether a tenant has the provider {name}: the record or the layout of tenant {tenant} cannot be read"
            )));
        }
        self.cached().remove(name);
        Ok(None)
    }

    /// Returns which of the tenants have a provider in their live layout, with its settings. A
    /// tenant without a head or a live layout has none.
    async fn found_in(
        &self,
        ports: &Ports,
        heads: &TenantHeads,
        name: &ProviderName,
    ) -> Result<Found, ReconcileError> {
        let mut found = Found::default();
        for (tenant, record) in heads {
            let Some(record) = record else { continue };
            let Some(head) = decode_or_log::<Tenant>(record) else {
                found.unread.insert(tenant.clone());
                continue;
            };
            let Some(object) = &head.layout_object else { continue };
            let Some(providers) = self.providers_of(ports, tenant, object).await? else {
                found.unread.insert(tenant.clone());
                continue;
            };
            if let Some(settings) = providers.settings.get(name) {
                found.settings.insert(tenant.clone(), Arc::clone(settings));
            }
        }
        Ok(found)
    }

    /// Returns the providers of a tenant by its layout, from the cache or the object; `None`, which
    /// is logged, if the object is missing or damaged, or of another version.
    async fn providers_of(
        &self,
        ports: &Ports,
        tenant: &TenantName,
        object: &str,
    ) -> Result<Option<Arc<TenantProviders>>, ReconcileError> {
        let cached = lock(&self.of_tenants).get(tenant).cloned();
        if let Some(cached) = cached.filter(|cached| cached.layout_object == object) {
            return Ok(Some(cached));
        }
        let layout = match self.layouts.try_load(ports, object).await? {
            Ok(layout) => layout,
            Err(why) => {
                tracing::error!(%tenant, object, why, "the layout of a tenant cannot be opened; its node requests wait: run `sluice tenant reload`");
                return Ok(None);
            }
        };
        let settings = layout.providers().iter().map(|provider| {
            let settings = ProviderSettings {
                connection: Some(connection(&layout, provider)),
                limits: limits(&layout, provider),
            };
            (ProviderName(provider.canonical_name.clone()), Arc::new(settings))
        });
        let providers = Arc::new(TenantProviders {
            layout_object: object.to_owned(),
            settings: settings.collect(),
        });
        self.remember(tenant, Arc::clone(&providers));
        Ok(Some(providers))
    }

    /// Caches the providers of a tenant. Beyond [`TENANTS_MAX`] tenants, drops those of another
    /// one.
    fn remember(&self, tenant: &TenantName, providers: Arc<TenantProviders>) {
        let mut of_tenants = lock(&self.of_tenants);
        of_tenants.insert(tenant.clone(), providers);
        if of_tenants.len() > TENANTS_MAX {
            let other = of_tenants.keys().find(|other| *other != tenant).cloned();
            if let Some(other) = other {
                of_tenants.remove(&other);
            }
        }
    }

    /// Returns what the tenants say about a provider and when all were read; `None` if that was a
    /// minute ago or earlier, or never.
    fn fresh(&self, provider: &ProviderName, now: Timestamp) -> Option<(Found, Timestamp)> {
        let cached = self.cached();
        let cached = cached.get(provider).filter(|cached| cached.is_fresh(now))?;
        Some((cached.found.clone(), cached.searched_at))
    }

    /// Caches what the tenants say about a provider, last searched for at `searched_at`, and
    /// returns the combined settings. Combines them only if something changed. Beyond
    /// [`PROVIDERS_MAX`] providers, forgets the one whose search is the oldest.
    fn keep(
        &self,
        name: &ProviderName,
        found: Found,
        in_use: &ConnectionInUse,
        searched_at: Timestamp,
    ) -> ProviderSettings {
        let chosen = ChosenConnection::new(&found, in_use);
        let mut all = self.cached();
        if let Some(cached) = all.get_mut(name)
            && cached.chosen == chosen
            && cached.found.is_same(&found)
        {
            cached.searched_at = searched_at;
            return cached.combined.clone();
        }
        let combined = combined(name, &found, &chosen);
        let cached = CachedProvider { found, chosen, combined: combined.clone(), searched_at };
        all.insert(name.clone(), cached);
        if all.len() > PROVIDERS_MAX {
            let others = all.iter().filter(|(other, _)| *other != name);
            let oldest = others.min_by_key(|(_, cached)| cached.searched_at);
            let oldest = oldest.map(|(other, _)| other.clone());
            if let Some(oldest) = oldest {
                all.remove(&oldest);
            }
        }
        combined
    }

    /// Locks the cache of providers.
    fn cached(&self) -> MutexGuard<'_, BTreeMap<ProviderName, CachedProvider>> {
        lock(&self.cached)
    }
}

/// Locks a cache, also after a panic of another thread.
fn lock<T>(cache: &Mutex<T>) -> MutexGuard<'_, T> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the heads of all tenants: those that were read already, and the others from the table.
async fn all_heads(ports: &Ports, mut heads: TenantHeads) -> Result<TenantHeads, ReconcileError> {
    let mut others = tenant::list_tenants(ports).await?;
    others.retain(|tenant| !heads.contains_key(tenant));
    for page in others.chunks(KEYS_MAX) {
        let keys: Vec<Key> = page.iter().map(tenant::key).collect();
        let records = ports.records.get(&keys).await?;
        heads.extend(page.iter().cloned().zip(records));
    }
    Ok(heads)
}

/// Combines the settings that tenants have for one provider. All but its labels and static hosts is
/// the same in all tenants, since it is one object; where a tenant's own section makes a
/// difference, the first tenant's counts. A label has the form and the region that it has in each
/// tenant, and each tenant has its own static hosts. A tenant with another than the chosen
/// connection gets no nodes. If no tenant has the chosen one any more, the limits have no labels
/// and hosts, and all requests wait until the provider has no nodes and all tenants can be read.
fn combined(name: &ProviderName, found: &Found, chosen: &ChosenConnection) -> ProviderSettings {
    let has_chosen = |settings: &ProviderSettings| settings.connection == chosen.connection;
    let served = found.settings.values().find(|settings| has_chosen(settings));
    let first = served.or_else(|| found.settings.values().next());
    let mut limits = first.map_or_else(
        || ProviderLimits::retired(name.clone()),
        |first| ProviderLimits {
            labels: BTreeMap::new(),
            static_hosts: BTreeMap::new(),
            ..first.limits.clone()
        },
    );
    let used = chosen.connection.as_ref().map(ToString::to_string).unwrap_or_default();
    for (tenant, settings) in &found.settings {
        if has_chosen(settings) {
            merge(&mut limits, tenant, &settings.limits);
            continue;
        }
        let own = settings.connection.as_ref().map(ToString::to_string).unwrap_or_default();
        if chosen.is_left {
            limits.waits = Some(match found.unread.first() {
                Some(unread) => format!(
                    "the provider has {own} now; tenant {unread}, which cannot be read, may still have {used}: run `sluice tenant reload`"
                ),
                None => format!(
                    "the provider has {own} now; it still has nodes with {used}, and waits until they are deleted"
                ),
            });
            continue;
        }
        let why = format!(
            "the provider's section has {own} in tenant {tenant}, and the provider is in use with {used}: define the section where the provider is defined"
        );
        tracing::error!(provider = %name, %tenant, "a tenant gets no nodes: {why}");
        limits.refused_tenants.insert(tenant.clone(), why);
    }
    limits.unread_tenants.clone_from(&found.unread);
    ProviderSettings { connection: chosen.connection.clone(), limits }
}

/// Adds the labels and static hosts of a tenant to the limits of its provider.
fn merge(limits: &mut ProviderLimits, tenant: &TenantName, of_tenant: &ProviderLimits) {
    for (label, spec) in &of_tenant.labels {
        if limits.labels.get(label).is_some_and(|other| other != spec) {
            let own = limits.tenant_labels.entry(tenant.clone()).or_default();
            own.insert(label.clone(), spec.clone());
        } else {
            limits.labels.insert(label.clone(), spec.clone());
        }
    }
    for (tenant, hosts) in &of_tenant.static_hosts {
        limits.static_hosts.insert(tenant.clone(), Arc::clone(hosts));
    }
}

/// Returns the connection of a configured provider.
fn connection(layout: &Layout, provider: &ProviderConfig) -> ProviderConnection {
    match &provider.connection {
        Some(name) if !layout.has_static_nodes(provider) => ProviderConnection::Cloud(name.clone()),
        _ => ProviderConnection::Static,
    }
}

/// Converts a configured provider to the limits that plans use. Of the quotas of provider and
/// section the smaller one counts; without any, the limit is 100 machines, and cores and memory are
/// not limited. A provider of static nodes has no labels but those of its hosts. Labels have their
/// names across tenants.
fn limits(layout: &Layout, provider: &ProviderConfig) -> ProviderLimits {
    let section = provider.section_quota.as_ref().map(|quota| &quota.limits);
    let smallest = |what: &str| {
        let of_provider = provider.quota.get(what).copied();
        let of_section = section.and_then(|limits| limits.get(what)).copied();
        let least = [of_provider, of_section].into_iter().flatten().min()?;
        Some(u32::try_from(least).unwrap_or(u32::MAX))
    };
    let hosts: Vec<StaticHost> =
        provider.nodes.iter().map(|node| static_host(layout, provider, node)).collect();
    ProviderLimits {
        provider: ProviderName(provider.canonical_name.clone()),
        quota: Resources {
            instances: smallest("instances").unwrap_or(QUOTA_DEFAULT),
            cores: smallest("cores"),
            ram_mib: smallest("ram"),
        },
        labels: provider
            .labels
            .iter()
            .filter(|_| !layout.has_static_nodes(provider))
            .map(|label| (LabelName(label.canonical_name.clone()), limits_of(provider, label)))
            .collect(),
        tenant_labels: BTreeMap::new(),
        unread_tenants: BTreeSet::new(),
        refused_tenants: BTreeMap::new(),
        waits: None,
        static_hosts: match hosts.is_empty() {
            true => BTreeMap::new(),
            false => [(provider.tenant.clone(), Arc::new(hosts))].into(),
        },
        pace: Pace {
            poll_millis: 1_000,
            max_attempts: provider.launch_attempts.max(1),
            ..Pace::default()
        },
    }
}

/// Converts a configured label of a provider to the attributes of its machines. A label without a
/// usable image is no error: it gets a missing image with the reason. Each machine counts as one
/// instance, without cores and memory.
fn limits_of(provider: &ProviderConfig, label: &LabelConfig) -> LabelSpec {
    let image = match (&label.image_id, label.image_obstacle()) {
        (Some(id), None) => LabelImage::Available { id: id.clone() },
        (_, why) => LabelImage::Missing { why: why.unwrap_or_default() },
    };
    let ready_age = (label.max_ready_age_seconds > 0).then_some(label.max_ready_age_seconds);
    LabelSpec {
        image,
        flavor: label.machine_type().map(str::to_owned),
        location: LaunchLocation { region: provider.region.clone(), zones: provider.zones.clone() },
        zone: label.zone.clone(),
        resources: Resources::instances(1),
        username: label.username.clone(),
        ssh_port: label.connection_port,
        python_path: (label.python_path != "auto").then(|| label.python_path.clone()),
        interface: Interface::default(),
        min_ready: label.min_ready,
        max_ready_age_seconds: ready_age,
        boot_timeout_seconds: label.boot_timeout_seconds,
    }
}

/// Converts a configured static node to a host of the pool, whose address is its name and which
/// serves one build at a time. Its labels have their names across tenants.
fn static_host(layout: &Layout, provider: &ProviderConfig, node: &StaticNode) -> StaticHost {
    StaticHost {
        name: node.name.clone(),
        labels: node.labels.iter().map(|label| layout.canonical_label(label)).collect(),
        region: provider.region.clone(),
        address: node.name.clone(),
        ssh_port: node.connection_port,
        username: node.username.clone(),
        host_keys: node.host_keys.clone(),
        python_path: None,
        max_parallel: 1,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod attributes_of_nodes;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
