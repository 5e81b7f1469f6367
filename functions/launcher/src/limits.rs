//! Reads a provider's limits from the live layouts of all tenants that include it.

use crate::KEYS_MAX;
use sluice_config::layout::{LabelConfig, Layout, ProviderConfig};
use sluice_model::{ConnectionName, LabelName, ProviderName, TenantName, Timestamp};
use sluice_pool::{Interface, LabelImage, LabelSpec, Pace, ProviderLimits, Resources, StaticHost};
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

/// Seconds for which a cached provider is used by runs that place nothing, and for which the cached
/// list of its tenants is used by the others.
const RECENT_SECONDS: u64 = 60;

/// A provider as it is configured.
#[derive(Clone)]
pub(crate) struct ProviderSettings {
    /// The connection to the cloud; `None` for static nodes.
    pub(crate) connection: Option<ConnectionName>,
    /// The labels, quota and static hosts.
    pub(crate) limits: ProviderLimits,
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
    settings: BTreeMap<ProviderName, ProviderSettings>,
}

struct CachedProvider {
    /// The tenants whose layouts have the provider.
    tenants: BTreeSet<TenantName>,
    /// The provider's settings.
    found: ProviderSettings,
    /// When the settings were read.
    at: Timestamp,
    /// When all tenants were read.
    searched_at: Timestamp,
}

/// What some tenants say about a provider.
#[derive(Default)]
struct Found {
    /// The tenants that have it, with their settings.
    settings: BTreeMap<TenantName, ProviderSettings>,
    /// The tenants whose record or layout is unusable.
    unread: BTreeSet<TenantName>,
}

impl Configured {
    /// Returns the tenants whose heads a run should read together with other records: those that
    /// had the provider at the last read, and those that are `concerned`, such as the tenants of
    /// its waiting requests. Empty if no search is cached.
    pub(crate) fn tenants_to_read(
        &self,
        provider: &ProviderName,
        concerned: BTreeSet<TenantName>,
    ) -> BTreeSet<TenantName> {
        match self.cached().get(provider) {
            Some(cached) => cached.tenants.union(&concerned).cloned().collect(),
            None => BTreeSet::new(),
        }
    }

    /// Returns the cached settings of a provider; `None` if none are cached or they are
    /// [`RECENT_SECONDS`] old. Only for runs that place nothing: if ready machines are outdated,
    /// the next read releases them.
    pub(crate) fn cached_if_fresh(
        &self,
        provider: &ProviderName,
        now: Timestamp,
    ) -> Option<ProviderSettings> {
        let cached = self.cached();
        let cached =
            cached.get(provider).filter(|cached| now < cached.at.plus_seconds(RECENT_SECONDS))?;
        Some(cached.found.clone())
    }

    /// Returns the settings of a provider, combined from all tenants that have it, and caches them.
    /// `heads` are the heads of [`Self::tenants_to_read`]. If the last search was a minute ago or
    /// earlier, or if none of these tenants has the provider, reads all tenants. `None` if no
    /// tenant has it; then the cache forgets it. A tenant whose record or layout is unusable is
    /// named in the limits; it is an error that is retried if no other tenant has the provider.
    pub(crate) async fn find(
        &self,
        ports: &Ports,
        name: &ProviderName,
        heads: TenantHeads,
        now: Timestamp,
    ) -> Result<Option<ProviderSettings>, ReconcileError> {
        let known = self
            .cached()
            .get(name)
            .map(|cached| cached.searched_at)
            .filter(|searched_at| now < searched_at.plus_seconds(RECENT_SECONDS));
        if let Some(searched_at) = known {
            let found = self.found_in(ports, &heads, name).await?;
            if !found.settings.is_empty() {
                return Ok(Some(self.keep(name, found, now, searched_at)));
            }
        }
        let found = self.found_in(ports, &all_heads(ports, heads).await?, name).await?;
        if !found.settings.is_empty() {
            return Ok(Some(self.keep(name, found, now, now)));
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
                found.settings.insert(tenant.clone(), settings.clone());
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
                connection: provider.connection.clone(),
                limits: limits(&layout, provider),
            };
            (ProviderName(provider.canonical_name.clone()), settings)
        });
        let providers = Arc::new(TenantProviders {
            layout_object: object.to_owned(),
            settings: settings.collect(),
        });
        lock(&self.of_tenants).insert(tenant.clone(), Arc::clone(&providers));
        Ok(Some(providers))
    }

    /// Caches what the tenants say about a provider, read at `at` and last searched for at
    /// `searched_at`, and returns the combined settings.
    fn keep(
        &self,
        name: &ProviderName,
        found: Found,
        at: Timestamp,
        searched_at: Timestamp,
    ) -> ProviderSettings {
        let tenants = found.settings.keys().chain(&found.unread).cloned().collect();
        let settings = combined(name, found);
        let cached = CachedProvider { tenants, found: settings.clone(), at, searched_at };
        self.cached().insert(name.clone(), cached);
        settings
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
/// difference, the first tenant's counts. A label has the form that it has in each tenant. In a
/// tenant with another connection than the first one's, no label can be launched. A static host is
/// one machine, whatever the number of tenants.
fn combined(name: &ProviderName, found: Found) -> ProviderSettings {
    let mut tenants = found.settings.into_iter();
    let Some((first, mut all)) = tenants.next() else {
        let limits = ProviderLimits::retired(name.clone());
        return ProviderSettings { connection: None, limits };
    };
    for (tenant, settings) in tenants {
        let is_elsewhere = settings.connection != all.connection;
        if is_elsewhere {
            tracing::error!(
                provider = %name,
                %tenant,
                other = %first,
                "two tenants have different connections for one provider: define its section where the provider is defined"
            );
        }
        for (label, mut spec) in settings.limits.labels {
            if is_elsewhere {
                let why = format!(
                    "the provider's section has another connection in tenant {first}; define the section where the provider is defined"
                );
                spec.image = LabelImage::Missing { why };
            }
            if all.limits.labels.get(&label).is_some_and(|other| *other != spec) {
                let own = all.limits.tenant_labels.entry(tenant.clone()).or_default();
                own.insert(label, spec);
            } else {
                all.limits.labels.insert(label, spec);
            }
        }
        for host in settings.limits.static_hosts {
            let hosts = &mut all.limits.static_hosts;
            match hosts.iter_mut().find(|other| other.name == host.name) {
                Some(other) => {
                    let new = host.labels.into_iter().filter(|label| !other.labels.contains(label));
                    let new: Vec<LabelName> = new.collect();
                    other.labels.extend(new);
                }
                None => hosts.push(host),
            }
        }
    }
    all.limits.unread_tenants = found.unread;
    all
}

/// Converts a configured provider to the limits that plans use. Of the quotas of provider and
/// section the smaller one counts; without any, the limit is 100 machines, and cores and memory are
/// not limited. A provider without a connection has static hosts only, and no labels. Labels have
/// their names across tenants.
fn limits(layout: &Layout, provider: &ProviderConfig) -> ProviderLimits {
    let section = provider.section_quota.as_ref().map(|quota| &quota.limits);
    let smallest = |what: &str| {
        let of_provider = provider.quota.get(what).copied();
        let of_section = section.and_then(|limits| limits.get(what)).copied();
        let least = [of_provider, of_section].into_iter().flatten().min()?;
        Some(u32::try_from(least).unwrap_or(u32::MAX))
    };
    ProviderLimits {
        provider: ProviderName(provider.canonical_name.clone()),
        region: provider.region.clone(),
        zones: provider.zones.clone(),
        quota: Resources {
            instances: smallest("instances").unwrap_or(QUOTA_DEFAULT),
            cores: smallest("cores"),
            ram_mib: smallest("ram"),
        },
        labels: provider
            .labels
            .iter()
            .filter(|_| provider.connection.is_some())
            .map(|label| (LabelName(label.canonical_name.clone()), limits_of(label)))
            .collect(),
        tenant_labels: BTreeMap::new(),
        unread_tenants: BTreeSet::new(),
        static_hosts: provider.nodes.iter().map(|node| static_host(layout, node)).collect(),
        pace: Pace {
            poll_millis: 1_000,
            max_attempts: provider.launch_attempts.max(1),
            ..Pace::default()
        },
    }
}

/// Converts a configured label to the attributes of its machines. A label without a usable image is
/// no error: it gets a missing image with the reason. Each machine counts as one instance, without
/// cores and memory.
fn limits_of(label: &LabelConfig) -> LabelSpec {
    let image = match (&label.image_id, label.image_obstacle()) {
        (Some(id), None) => LabelImage::Available { id: id.clone() },
        (_, why) => LabelImage::Missing { why: why.unwrap_or_default() },
    };
    let ready_age = (label.max_ready_age_seconds > 0).then_some(label.max_ready_age_seconds);
    LabelSpec {
        image,
        flavor: label.machine_type().map(str::to_owned),
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
fn static_host(layout: &Layout, node: &sluice_config::layout::StaticNode) -> StaticHost {
    StaticHost {
        name: node.name.clone(),
        labels: node.labels.iter().map(|label| layout.canonical_label(label)).collect(),
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
