//! What a provider may do, read from the live layouts of the tenants that include it.

use sluice_config::layout::{LabelConfig, ProviderConfig};
use sluice_model::{ConnectionName, LabelName, ProviderName};
use sluice_pool::{Image, Interface, Label, Pace, ProviderLimits, Resources, StaticHost};
use sluice_records::layout::Layouts;
use sluice_records::tenant;
use sluice_runtime::Ports;
use sluice_runtime::batch::LookError;

/// Machines where the configuration names no quota.
const QUOTA_DEFAULT: u32 = 100;

/// A provider as it is configured.
pub(crate) struct Found {
    pub(crate) connection: Option<ConnectionName>,
    pub(crate) limits: ProviderLimits,
}

/// Finds a provider by its canonical name.
pub(crate) async fn find(ports: &Ports, layouts: &Layouts, name: &ProviderName) -> Result<Option<Found>, LookError> {
    for tenant in tenant::listed(ports).await? {
        let Some(live) = layouts.live(ports, &tenant).await? else { continue };
        if let Some(provider) = live.layout.providers().iter().find(|provider| provider.canonical_name == name.as_str())
        {
            return Ok(Some(Found { connection: provider.connection.clone(), limits: limits(provider) }));
        }
    }
    Ok(None)
}

fn limits(provider: &ProviderConfig) -> ProviderLimits {
    let section = provider.section_quota.as_ref().map(|quota| &quota.limits);
    let smallest = |what: &str| {
        let own = provider.quota.get(what).copied();
        let shared = section.and_then(|limits| limits.get(what)).copied();
        let least = [own, shared].into_iter().flatten().min()?;
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
        statics: provider.nodes.iter().map(static_host).collect(),
        pace: Pace { poll_millis: 1_000, max_attempts: provider.launch_attempts.max(1), ..Pace::default() },
    }
}

fn limits_of(label: &LabelConfig) -> Label {
    let image = match &label.image_id {
        Some(id) => Image::Available { id: id.clone() },
        None if label.image_is_built => Image::Missing { why: "no upload of its image is validated yet".to_owned() },
        None => Image::Missing { why: "its image names no image-id".to_owned() },
    };
    let ready_age = (label.max_ready_age_seconds > 0).then_some(label.max_ready_age_seconds);
    Label {
        image,
        flavor: label.instance_type.clone().or_else(|| label.flavor.clone()).unwrap_or_default(),
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
