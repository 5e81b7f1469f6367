//! What a provider may do and offers: quota, labels, static hosts, deadlines. Input data; the
//! configuration is mapped to it.

use serde::{Deserialize, Serialize};
use sluice_model::{LabelName, ProviderName};
use std::collections::BTreeMap;

/// Everything a plan has to know about its provider (Z1.5, L3.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderLimits {
    /// The provider.
    pub provider: ProviderName,
    /// Its region, for the nodes' records.
    pub region: Option<String>,
    /// Its availability zones in order; empty when it has none.
    #[serde(default)]
    pub zones: Vec<String>,
    /// What may exist at once: the minimum of the driver's and the configured quota.
    pub quota: Resources,
    /// Machines of the cloud, by label.
    #[serde(default)]
    pub labels: BTreeMap<LabelName, Label>,
    /// Real hardware that is lent out and never deleted (Z1.10).
    #[serde(default)]
    pub statics: Vec<StaticHost>,
    /// Times and bounds.
    #[serde(default)]
    pub pace: Pace,
}

impl ProviderLimits {
    /// Returns what a provider may still do that no configuration has any more: nothing but let go
    /// of what it has.
    pub fn none(provider: ProviderName) -> Self {
        Self {
            provider,
            region: None,
            zones: Vec::new(),
            quota: Resources::default(),
            labels: BTreeMap::new(),
            statics: Vec::new(),
            pace: Pace::default(),
        }
    }

    /// Returns whether any machine can come from a cloud.
    pub fn has_cloud(&self) -> bool {
        !self.labels.is_empty()
    }
}

/// A bundle of what quotas count; an absent number is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resources {
    /// Machines.
    pub instances: u32,
    /// Virtual processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram_mib: Option<u32>,
}

impl Resources {
    /// Returns this many machines and no other limit.
    pub fn instances(instances: u32) -> Self {
        Self { instances, cores: None, ram_mib: None }
    }

    /// Returns the sum.
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

    /// Returns whether this fits in `quota`; exactly the quota fits (Z1.5). What the quota does not
    /// name is not limited.
    pub fn fits(self, quota: Self) -> bool {
        let within = |used: Option<u32>, quota: Option<u32>| {
            quota.is_none_or(|quota| used.unwrap_or(0) <= quota)
        };
        self.instances <= quota.instances
            && within(self.cores, quota.cores)
            && within(self.ram_mib, quota.ram_mib)
    }
}

/// How machines of one label are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// The image they boot.
    pub image: Image,
    /// The kind of machine in the provider's words (`t3.medium`).
    pub flavor: String,
    /// The zone that they are bound to; `None` where any of the provider's does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// What one of them takes from the quota; `instances` is 1.
    pub resources: Resources,
    /// The login.
    pub username: String,
    /// The SSH port.
    pub ssh_port: u16,
    /// The Python interpreter for Ansible; `None` is `auto`.
    pub python_path: Option<String>,
    /// Which of its addresses executors use.
    #[serde(default)]
    pub interface: Interface,
    /// How many are kept ready without a request (Z1.11).
    #[serde(default)]
    pub min_ready: u32,
    /// Seconds after which an unused ready machine is replaced.
    pub max_ready_age_seconds: Option<u64>,
    /// Seconds a machine may take from its launch until a login works.
    pub boot_timeout_seconds: u64,
}

/// An image, as far as a launch is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Image {
    /// The newest validated upload (N4).
    Available {
        /// The provider's id of it.
        id: String,
    },
    /// None that could be booted; requests for it are declined (Z1.5).
    Missing {
        /// Why, for people.
        why: String,
    },
}

/// Which address executors connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// The public one where there is one, else the private one.
    #[default]
    PublicFirst,
    /// The private one.
    Private,
}

/// A host that is lent out (Z1.10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticHost {
    /// Its name, unique at the provider.
    pub name: String,
    /// What it can stand for.
    pub labels: Vec<LabelName>,
    /// Its address.
    pub address: String,
    /// The SSH port.
    pub ssh_port: u16,
    /// The login.
    pub username: String,
    /// Host keys it must show; empty takes those it shows.
    #[serde(default)]
    pub host_keys: Vec<String>,
    /// The Python interpreter for Ansible; `None` is `auto`.
    pub python_path: Option<String>,
    /// How many builds may use it at once.
    pub max_parallel: u32,
}

/// Times and bounds of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// Milliseconds between two looks at a machine that is about to change.
    pub poll_millis: u64,
    /// Seconds after which a launch without an answer is called again with the same token.
    pub launch_retry_seconds: u64,
    /// Seconds after which a launch that nobody saw succeed is taken for one that did nothing.
    pub launch_settle_seconds: u64,
    /// Seconds after which a new machine must show in the provider's list.
    pub visible_seconds: u64,
    /// Seconds between two looks for leaked machines.
    pub leak_seconds: u64,
    /// Seconds after which a ready node of a vanished request returns to the pool (Z1.9).
    pub orphan_seconds: u64,
    /// Seconds that a ready node beyond min-ready is kept for the next request.
    pub idle_seconds: u64,
    /// Machines that may fail to boot for one node of a placement.
    pub max_attempts: u32,
    /// Placements that may be given up since machines do not boot; then the image counts as broken
    /// for good.
    pub max_placements: u32,
}

impl Default for Pace {
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
