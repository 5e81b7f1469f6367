//! Reads a provider's limits from the live layouts of the tenants that include it.

use sluice_config::layout::{LabelConfig, ProviderConfig};
use sluice_model::{ConnectionName, LabelName, ProviderName, TenantName, Timestamp};
use sluice_pool::{Interface, LabelImage, LabelSpec, Pace, ProviderLimits, Resources, StaticHost};
use sluice_records::codec::{decode_or_log, get};
use sluice_records::layout::Layouts;
use sluice_records::tenant::{self, Tenant};
use sluice_runtime::Ports;
use sluice_runtime::batch::ReconcileError;
use sluice_runtime::record::{Key, Record};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The machine limit where the configuration names no quota.
const QUOTA_DEFAULT: u32 = 100;

/// Seconds for which a cached provider is used by runs that place nothing.
const RECENT_SECONDS: u64 = 60;

/// A provider as it is configured.
#[derive(Clone)]
pub(crate) struct ProviderSettings {
    /// The connection to the cloud; `None` for static nodes.
    pub(crate) connection: Option<ConnectionName>,
    /// The labels, quota and static hosts.
    pub(crate) limits: ProviderLimits,
}

/// Caches which tenant's layout has each provider, so that one read by key returns its limits.
#[derive(Default)]
pub(crate) struct Configured {
    /// The cache of layouts.
    layouts: Layouts,
    /// The providers that were found, by name.
    cached: Mutex<BTreeMap<ProviderName, CachedProvider>>,
}

struct CachedProvider {
    /// The tenant whose layout has the provider.
    tenant: TenantName,
    /// The provider's settings.
    found: ProviderSettings,
    /// When the settings were read.
    at: Timestamp,
}

impl Configured {
    /// Returns the key of the record of the tenant that last had the provider, to be read together
    /// with other records; `None` if it is not cached.
    pub(crate) fn key(&self, provider: &ProviderName) -> Option<Key> {
        self.cached().get(provider).map(|cached| tenant::key(&cached.tenant))
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

    /// Returns the settings of a provider and caches them. `last_tenant` is the record at
    /// [`Self::key`]; if it is missing or unreadable or its layout lacks the provider, reads all
    /// tenants and takes the first whose live layout has it. `None` if no tenant has it; then the
    /// cache forgets it. An error that is retried if no readable tenant has it and another one is
    /// unreadable. A layout that cannot be read is always an error.
    pub(crate) async fn find(
        &self,
        ports: &Ports,
        name: &ProviderName,
        last_tenant: Option<&Record>,
        now: Timestamp,
    ) -> Result<Option<ProviderSettings>, ReconcileError> {
        if let Some(record) = last_tenant
            && let Some(tenant) = decode_or_log::<Tenant>(record)
            && let Some(found) = self.found_in(ports, &tenant, name).await?
        {
            self.keep(name, tenant.name, &found, now);
            return Ok(Some(found));
        }
        let mut unreadable = Vec::new();
        for tenant in tenant::list_tenants(ports).await? {
            let Some(record) = get(ports, &tenant::key(&tenant)).await? else { continue };
            let Some(tenant_record) = decode_or_log::<Tenant>(&record) else {
                unreadable.push(tenant);
                continue;
            };
            if let Some(found) = self.found_in(ports, &tenant_record, name).await? {
                self.keep(name, tenant, &found, now);
                return Ok(Some(found));
            }
        }
        if let Some(tenant) = unreadable.first() {
            // This tenant may have the provider: it is removed only when that is certain.
            return Err(ReconcileError::Retry(format!(
                "cannot find out whether a tenant has the provider {name}: the record of tenant {tenant} cannot be read"
            )));
        }
        self.cached().remove(name);
        Ok(None)
    }

    /// Reads a tenant's live layout and returns the provider's settings; `None` if the tenant has
    /// no live layout or the layout lacks the provider.
    async fn found_in(
        &self,
        ports: &Ports,
        tenant: &Tenant,
        name: &ProviderName,
    ) -> Result<Option<ProviderSettings>, ReconcileError> {
        let Some(object) = &tenant.layout_object else { return Ok(None) };
        let layout = self.layouts.load(ports, object).await?;
        let provider =
            layout.providers().iter().find(|provider| provider.canonical_name == name.as_str());
        Ok(provider.map(|provider| ProviderSettings {
            connection: provider.connection.clone(),
            limits: limits(provider),
        }))
    }

    /// Caches a provider's settings and the tenant that has them.
    fn keep(
        &self,
        name: &ProviderName,
        tenant: TenantName,
        found: &ProviderSettings,
        at: Timestamp,
    ) {
        self.cached().insert(name.clone(), CachedProvider { tenant, found: found.clone(), at });
    }

    /// Locks the cache of providers.
    fn cached(&self) -> MutexGuard<'_, BTreeMap<ProviderName, CachedProvider>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts a configured provider to the limits that plans use. Of the quotas of provider and
/// section the smaller one counts; without any, the limit is 100 machines, and cores and memory are
/// not limited. A provider without a connection has static hosts only, and no labels.
fn limits(provider: &ProviderConfig) -> ProviderLimits {
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
            .map(|label| (label.name.clone(), limits_of(label)))
            .collect(),
        static_hosts: provider.nodes.iter().map(static_host).collect(),
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
    let image = match &label.image_id {
        Some(id) => LabelImage::Available { id: id.clone() },
        None if label.image_is_built => {
            LabelImage::Missing { why: "no upload of its image is validated yet".to_owned() }
        }
        None => LabelImage::Missing { why: "its image names no image-id".to_owned() },
    };
    let ready_age = (label.max_ready_age_seconds > 0).then_some(label.max_ready_age_seconds);
    LabelSpec {
        image,
        flavor: label.instance_type.clone().or_else(|| label.flavor.clone()).unwrap_or_default(),
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
/// serves one build at a time.
fn static_host(node: &sluice_config::layout::StaticNode) -> StaticHost {
    StaticHost {
        name: node.name.clone(),
        labels: node.labels.iter().map(|label| LabelName(label.clone())).collect(),
        address: node.name.clone(),
        ssh_port: node.connection_port,
        username: node.username.clone(),
        host_keys: node.host_keys.clone(),
        python_path: None,
        max_parallel: 1,
    }
}
