//! The interface of all cloud drivers, in terms of the provider cell (L2.6).

use async_trait::async_trait;
use sluice_model::{NodeId, ProviderName, Timestamp};
use sluice_pool::{
    InstanceFact, InstanceId, InstanceState, LaunchFact, Machine, NodeOrigin, PoolNode,
};
use std::collections::BTreeMap;

/// A cloud that launches, lists and terminates machines. Where a call names no region (`None`), it
/// goes to the region of the connection.
#[async_trait]
pub trait CloudDriver: Send + Sync {
    /// Launches one machine, or returns the machine that the same token launched earlier. A token
    /// of a different launch, a used-up quota and lacking capacity are errors of their own
    /// ([`CloudError`]). Not repeated after an error.
    async fn launch(&self, spec: &LaunchSpec) -> Result<Instance, CloudError>;

    /// Lists all machines of a region with the tag, including stopped ones and terminated ones that
    /// the cloud still shows. An incomplete list is an error.
    async fn describe(
        &self,
        region: Option<&str>,
        filter: &TagFilter,
    ) -> Result<Vec<Instance>, CloudError>;

    /// Asks the cloud to terminate machines of a region, and does not wait for that. A machine that
    /// no longer exists, or is in another region, is not an error.
    async fn terminate(
        &self,
        region: Option<&str>,
        instances: &[InstanceId],
    ) -> Result<(), CloudError>;

    /// Lists the images of the connection's region that match each list of the filter, newest
    /// first, in any state. An empty list of the filter restricts nothing.
    async fn images(&self, filter: &CloudImageFilter) -> Result<Vec<ImageFact>, CloudError>;
}

/// Tags that Sluice sets on machines.
pub mod tags {
    /// The node that a machine was launched for.
    pub const NODE: &str = "sluice:node";
    /// The provider that a machine belongs to. Searches for leaked machines filter by it.
    pub const PROVIDER: &str = "sluice:provider";
    /// The SSH port, if a machine specifies its own.
    pub const SSH_PORT: &str = "sluice:ssh-port";
}

/// All parameters of a launch call. Calls with the same token must have the same parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    /// The idempotency token; at most 64 ASCII characters.
    pub client_token: String,
    /// The region; `None` for the connection's own.
    pub region: Option<String>,
    /// The image.
    pub image_id: String,
    /// The cloud's machine type.
    pub instance_type: String,
    /// The zone; `None` if the subnet decides.
    pub az: Option<String>,
    /// The subnet.
    pub subnet: Option<String>,
    /// Security groups, by id.
    pub security_groups: Vec<String>,
    /// The user data that the machine reads at its first boot ([`crate::user_data`]).
    pub user_data: String,
    /// Tags that the machine has from its launch on.
    pub tags: BTreeMap<String, String>,
}

/// Launch parameters common to all machines of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchSettings {
    /// Subnets by zone.
    pub subnets: BTreeMap<String, String>,
    /// Security groups, by id.
    pub security_groups: Vec<String>,
    /// Public keys that may log in, one line each.
    pub authorized_keys: Vec<String>,
    /// Additional tags.
    pub tags: BTreeMap<String, String>,
}

impl LaunchSpec {
    /// Returns the launch parameters of a node; `None` for a static host. If the settings have a
    /// subnet for the node's zone, the subnet is set instead of the zone. The machine has the
    /// settings' tags, and tags that name the node and its provider; the latter, and `Name`,
    /// replace tags of the settings with the same keys. The user data creates the node's login with
    /// the settings' keys.
    pub fn for_node(node: &PoolNode, settings: &LaunchSettings) -> Option<Self> {
        let NodeOrigin::Cloud { client_token, image_id, flavor, .. } = &node.origin else {
            return None;
        };
        let subnet = node.az.as_ref().and_then(|az| settings.subnets.get(az)).cloned();
        let mut tags = settings.tags.clone();
        tags.insert(tags::NODE.to_owned(), node.id.0.clone());
        tags.insert(tags::PROVIDER.to_owned(), node.provider.0.clone());
        tags.insert("Name".to_owned(), format!("sluice {} {}", node.provider, node.label));
        Some(Self {
            client_token: client_token.clone(),
            region: node.region.clone(),
            image_id: image_id.clone(),
            instance_type: flavor.clone(),
            az: node.az.clone().filter(|_| subnet.is_none()),
            subnet,
            security_groups: settings.security_groups.clone(),
            user_data: crate::user_data::cloud_config(&node.username, &settings.authorized_keys),
            tags,
        })
    }
}

/// Selects the machines that have a tag with this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFilter {
    /// The tag's key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl TagFilter {
    /// Returns the filter for all machines that Sluice launched for a provider.
    pub fn provider(provider: &ProviderName) -> Self {
        Self { key: tags::PROVIDER.to_owned(), value: provider.0.clone() }
    }
}

/// A machine as described by its cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The cloud's id of the machine.
    pub id: InstanceId,
    /// Its state.
    pub state: InstanceState,
    /// Private IPv4 address.
    pub private_ip: Option<String>,
    /// Public IPv4 address.
    pub public_ip: Option<String>,
    /// Public IPv6 address.
    pub ipv6: Option<String>,
    /// Its zone.
    pub az: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// When it was launched.
    pub launched_at: Timestamp,
}

impl Instance {
    /// Returns the machine in the form that node records store. Its SSH port is the one in its tag
    /// [`tags::SSH_PORT`]; `None` without a readable one.
    pub fn machine(&self) -> Machine {
        Machine {
            instance: self.id.clone(),
            private_ipv4: self.private_ip.clone(),
            public_ipv4: self.public_ip.clone(),
            public_ipv6: self.ipv6.clone(),
            ssh_port: self.tags.get(tags::SSH_PORT).and_then(|port| port.parse().ok()),
            launched_at: self.launched_at,
        }
    }

    /// Returns the machine as a fact for a plan, as listed in a region, with the node that its tag
    /// names; without one if it has no such tag.
    pub fn fact_in(&self, region: Option<&str>) -> InstanceFact {
        let node = self.tags.get(tags::NODE).map(|id| NodeId(id.clone()));
        let region = region.map(str::to_owned);
        InstanceFact { machine: self.machine(), region, node, state: self.state }
    }
}

/// Selects images. An empty list does not restrict the selection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CloudImageFilter {
    /// Ids of images.
    pub ids: Vec<String>,
    /// Names of images; `*` and `?` are wildcards.
    pub names: Vec<String>,
    /// Owners: account ids, `self` or `amazon`.
    pub owners: Vec<String>,
}

/// An image as described by its cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFact {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The cloud's state of the image; `available` can be launched.
    pub state: String,
    /// When it was created, as ISO text, so that later ones sort higher.
    pub created: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// Why a call failed. The provider cell handles each variant differently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// The call can never succeed: the request fails.
    #[error(
        "could not {attempt}: the provider rejected the call: {why}; correct the provider's \
         configuration"
    )]
    Permanent {
        /// The attempted operation and its object.
        attempt: String,
        /// The cloud's error message.
        why: String,
    },
    /// The account's quota is used up: launches pause.
    #[error(
        "could not {attempt}: the account's quota is used up: {why}; raise it, or lower the \
         configured quota"
    )]
    Quota {
        /// The attempted operation and its object.
        attempt: String,
        /// The cloud's error message.
        why: String,
    },
    /// The zone has no capacity: another zone is tried.
    #[error("could not {attempt}: the zone has no capacity: {why}; trying another zone")]
    NoCapacity {
        /// The attempted operation and its object.
        attempt: String,
        /// The cloud's error message.
        why: String,
    },
    /// The token was used for a different launch: a new node is needed.
    #[error("could not {attempt}: the token belongs to another launch: {why}; creating a new node")]
    TokenTaken {
        /// The attempted operation and its object.
        attempt: String,
        /// The cloud's error message.
        why: String,
    },
    /// A later call may succeed.
    #[error("could not {attempt}: {why}; retrying in {retry_after_seconds} s")]
    Transient {
        /// The attempted operation and its object.
        attempt: String,
        /// The cloud's error message.
        why: String,
        /// The minimum number of seconds to wait.
        retry_after_seconds: u64,
    },
    /// The outcome is unknown: it is observed before another attempt.
    #[error(
        "could not {attempt}: {why}; the outcome is unknown and will be checked before a retry"
    )]
    Unknown {
        /// The attempted operation and its object.
        attempt: String,
        /// What is known of the failure.
        why: String,
    },
}

/// Returns the answer to the launch `spec` as a fact for a plan. An unknown outcome becomes a
/// transient one that can be repeated after a second. The fact has only the cause of an error, not
/// what was attempted.
pub fn launch_fact(spec: &LaunchSpec, answer: Result<Instance, CloudError>) -> LaunchFact {
    match answer {
        Ok(instance) => {
            LaunchFact::Launched { machine: instance.machine(), region: spec.region.clone() }
        }
        Err(CloudError::Permanent { why, .. }) => LaunchFact::Permanent(why),
        Err(CloudError::Quota { why, .. }) => LaunchFact::Quota(why),
        Err(CloudError::NoCapacity { why, .. }) => LaunchFact::NoCapacity(why),
        Err(CloudError::TokenTaken { why, .. }) => LaunchFact::TokenTaken(why),
        Err(CloudError::Transient { why, retry_after_seconds, .. }) => {
            LaunchFact::Transient { why, retry_after_seconds }
        }
        Err(CloudError::Unknown { why, .. }) => {
            LaunchFact::Transient { why, retry_after_seconds: 1 }
        }
    }
}
