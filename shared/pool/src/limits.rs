//! The limits and offers of a provider: quota, labels, static hosts and timing, as mapped from the
//! configuration.

use serde::{Deserialize, Serialize};
use sluice_model::{LabelName, ProviderName, TenantName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The configuration of a provider, as far as a plan needs it (Z1.5, L3.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderLimits {
    /// The provider.
    pub provider: ProviderName,
    /// The quota: the minimum of the driver's and the configured one.
    pub quota: Resources,
    /// Labels of cloud machines, by their names across tenants (L3.4).
    pub labels: BTreeMap<LabelName, LabelSpec>,
    /// Labels that are otherwise in a tenant than in `labels`, because an object that they use,
    /// such as the image, is the tenant's own. For this tenant they replace those in `labels`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tenant_labels: BTreeMap<TenantName, BTreeMap<LabelName, LabelSpec>>,
    /// Tenants whose configuration could not be read and which may offer further labels here. Their
    /// requests wait.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unread_tenants: BTreeSet<TenantName>,
    /// Tenants whose requests fail here, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_tenants: BTreeMap<TenantName, String>,
    /// Why all requests wait; `None` if they need not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Static hosts, which are lent to builds and never deleted (Z1.10). Each tenant's hosts are
    /// lent to its own requests only. Hosts of several tenants can be the same machine.
    pub static_hosts: BTreeMap<TenantName, Arc<Vec<StaticHost>>>,
    /// Intervals, timeouts and retry limits.
    pub pace: Pace,
}

impl ProviderLimits {
    /// Returns the limits of a provider that is no longer configured: without quota, labels and
    /// hosts, so that it only deletes what it has.
    pub fn retired(provider: ProviderName) -> Self {
        Self {
            provider,
            quota: Resources::default(),
            labels: BTreeMap::new(),
            tenant_labels: BTreeMap::new(),
            unread_tenants: BTreeSet::new(),
            refused_tenants: BTreeMap::new(),
            waits: None,
            static_hosts: BTreeMap::new(),
            pace: Pace::default(),
        }
    }

    /// Returns whether the provider offers cloud machines: it has any labels of them.
    pub fn has_cloud(&self) -> bool {
        self.all_labels().next().is_some()
    }

    /// Returns a label of cloud machines as a tenant's requests get it; `None` if the provider does
    /// not offer it to any tenant.
    pub fn label(&self, tenant: &TenantName, label: &LabelName) -> Option<&LabelSpec> {
        let own = self.tenant_labels.get(tenant).and_then(|labels| labels.get(label));
        own.or_else(|| self.labels.get(label))
    }

    /// Returns a label of cloud machines in each form in which some tenant has it; empty if the
    /// provider does not offer it.
    pub fn forms_of(&self, label: &LabelName) -> impl Iterator<Item = &LabelSpec> {
        let own = self.tenant_labels.values().filter_map(move |labels| labels.get(label));
        self.labels.get(label).into_iter().chain(own)
    }

    /// Returns the static hosts of a tenant, in the order of its configuration; empty if it has none
    /// here.
    pub fn hosts_of(&self, tenant: &TenantName) -> &[StaticHost] {
        self.static_hosts.get(tenant).map_or(&[], |hosts| hosts.as_slice())
    }

    /// Returns the regions in which some tenant's labels of cloud machines are launched; `None` is
    /// the connection's own. Empty if there are no such labels.
    pub fn regions(&self) -> BTreeSet<Option<String>> {
        self.all_labels().map(|(_, label)| label.location.region.clone()).collect()
    }

    /// Returns every label of cloud machines in each form in which some tenant has it.
    pub(crate) fn all_labels(&self) -> impl Iterator<Item = (&LabelName, &LabelSpec)> {
        self.labels.iter().chain(self.tenant_labels.values().flatten())
    }
}

/// An amount of everything that quotas count. `None` is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resources {
    /// The number of machines.
    pub instances: u32,
    /// Virtual processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram_mib: Option<u32>,
}

impl Resources {
    /// Returns an amount of machines, with cores and memory not counted.
    pub fn instances(instances: u32) -> Self {
        Self { instances, cores: None, ram_mib: None }
    }

    /// Returns the sum of both amounts. What is counted in only one of them is counted in the sum.
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: Option<u32>, b: Option<u32>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        Self {
            instances: self.instances.saturating_add(other.instances),
            cores: sum(self.cores, other.cores),
            ram_mib: sum(self.ram_mib, other.ram_mib),
        }
    }

    /// Returns whether the amount is within `quota`, or equal to it (Z1.5). Cores and memory that
    /// the quota does not count are not limited; those that the amount does not count are 0.
    pub fn fits(self, quota: Self) -> bool {
        let within = |used: Option<u32>, quota: Option<u32>| {
            quota.is_none_or(|quota| used.unwrap_or(0) <= quota)
        };
        self.instances <= quota.instances
            && within(self.cores, quota.cores)
            && within(self.ram_mib, quota.ram_mib)
    }
}

/// The configuration of a label's machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSpec {
    /// The image that they boot.
    pub image: LabelImage,
    /// The provider's machine type, such as `t3.medium`; requests for a label without one fail.
    pub flavor: Option<String>,
    /// Where they are launched.
    pub location: LaunchLocation,
    /// The zone that they are restricted to; `None` for any zone of the location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The resources of one machine; `instances` is 1.
    pub resources: Resources,
    /// The login name.
    pub username: String,
    /// The SSH port.
    pub ssh_port: u16,
    /// The Python interpreter for Ansible; `None` means `auto`.
    pub python_path: Option<String>,
    /// The address that executors connect to.
    pub interface: Interface,
    /// The number of machines to keep ready without a request (Z1.11).
    pub min_ready: u32,
    /// The age in seconds at which an unused ready machine is replaced; `None` for no limit.
    pub max_ready_age_seconds: Option<u64>,
    /// The maximum number of seconds from the launch to a working login.
    pub boot_timeout_seconds: u64,
}

/// Where the machines of a label are launched. In each tenant it is that of the provider's section
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaunchLocation {
    /// The cloud's region, copied into the nodes' records; `None` for the connection's own.
    pub region: Option<String>,
    /// Its availability zones in order; if empty, the cloud chooses.
    pub zones: Vec<String>,
}

/// The image that a label's machines boot, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelImage {
    /// The newest validated upload (N4).
    Available {
        /// The provider's id of the image.
        id: String,
    },
    /// No bootable image exists; requests for the label fail (Z1.5).
    Missing {
        /// The reason, for display.
        why: String,
    },
}

/// Which address executors connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// The public address if there is one, otherwise the private one.
    #[default]
    PublicFirst,
    /// The private one.
    Private,
}

/// A host that is lent to builds (Z1.10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticHost {
    /// Its name, unique in its tenant's configuration of the provider.
    pub name: String,
    /// The labels that it offers.
    pub labels: Vec<LabelName>,
    /// The region of its section, which jobs see.
    pub region: Option<String>,
    /// Its address.
    pub address: String,
    /// The SSH port.
    pub ssh_port: u16,
    /// The login name.
    pub username: String,
    /// Host keys that it must show; if empty, the keys it shows are accepted.
    pub host_keys: Vec<String>,
    /// The Python interpreter for Ansible; `None` means `auto`.
    pub python_path: Option<String>,
    /// The number of builds that may use it at once.
    pub max_parallel: u32,
}

impl StaticHost {
    /// Returns the name of its machine, by which hosts of several tenants are known to be one.
    pub(crate) fn machine(&self) -> String {
        machine_at(&self.address)
    }
}

/// Returns the name of the machine at an address: the address in lower case.
pub(crate) fn machine_at(address: &str) -> String {
    address.to_ascii_lowercase()
}

/// Intervals, timeouts and retry limits of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// Milliseconds between two observations of a machine in transition.
    pub poll_millis: u64,
    /// Seconds after which an unanswered launch call is repeated with the same token.
    pub launch_retry_seconds: u64,
    /// Seconds after which a launch without an observed machine is assumed to have created none.
    pub launch_settle_seconds: u64,
    /// Seconds after which a new machine must appear in the provider's listing.
    pub visible_seconds: u64,
    /// Seconds between two searches for leaked machines.
    pub leak_seconds: u64,
    /// Seconds after which a ready node whose request is gone returns to the pool (Z1.9).
    pub orphan_seconds: u64,
    /// Seconds for which a ready node beyond min-ready is kept for the next request.
    pub idle_seconds: u64,
    /// The maximum number of machines for one node of a placement.
    pub max_attempts: u32,
    /// The maximum number of placements whose machines do not boot. After that the image is
    /// considered broken and the request fails.
    pub max_placements: u32,
}

impl Default for Pace {
    /// Returns the intervals, timeouts and retry limits of a provider that sets none, such as a
    /// retired one. They are also used for fields that a stored record lacks.
    fn default() -> Self {
        Self {
            poll_millis: 2_000,
            launch_retry_seconds: 30,
            launch_settle_seconds: 300,
            visible_seconds: 60,
            leak_seconds: 300,
            orphan_seconds: 300,
            idle_seconds: 600,
            max_attempts: 3,
            max_placements: 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Resources;

    /// Z1.5
    #[test]
    fn exactly_the_quota_fits() {
        let quota = Resources { instances: 8, cores: Some(16), ram_mib: None };
        let half = Resources { instances: 4, cores: Some(8), ram_mib: Some(1) };
        assert!(half.plus(half).fits(quota));
        assert!(
            !half
                .plus(half)
                .plus(Resources { instances: 0, cores: Some(1), ram_mib: None })
                .fits(quota)
        );
        assert!(!Resources::instances(9).fits(quota));
    }
}
