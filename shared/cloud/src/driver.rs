//! What every driver can do, in terms that the provider cell understands (L2.6).

use async_trait::async_trait;
use sluice_model::{NodeId, ProviderName, Timestamp};
use sluice_pool::{
    InstanceFact, InstanceId, InstanceState, LaunchFact, Listing, Machine, Node, Origin,
};
use std::collections::BTreeMap;

/// A source of machines.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Launches one machine, or returns the one that the same token launched before.
    async fn launch(&self, spec: &LaunchSpec) -> Result<Instance, CloudError>;

    /// Lists every machine that bears the tag, also those that are gone and still shown.
    async fn describe(&self, filter: &TagFilter) -> Result<Vec<Instance>, CloudError>;

    /// Terminates machines; one that does not exist any more is no error.
    async fn terminate(&self, instances: &[InstanceId]) -> Result<(), CloudError>;

    /// Lists images, newest first.
    async fn images(&self, filter: &ImageFilter) -> Result<Vec<ImageFact>, CloudError>;
}

/// Tags that we put on machines.
pub mod tags {
    /// The node a machine was launched for.
    pub const NODE: &str = "sluice:node";
    /// The provider whose cell rules it: what is listed for leaks.
    pub const PROVIDER: &str = "sluice:provider";
    /// The port of its SSH server, where a machine names its own.
    pub const SSH_PORT: &str = "sluice:ssh-port";
}

/// Everything that a launch says. The same token must always come with the same rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    /// Makes a repeated launch the same launch; at most 64 ASCII characters.
    pub client_token: String,
    /// The image.
    pub image_id: String,
    /// The kind of machine.
    pub instance_type: String,
    /// The zone, unless the subnet decides.
    pub az: Option<String>,
    /// The subnet.
    pub subnet: Option<String>,
    /// Security groups, by id.
    pub security_groups: Vec<String>,
    /// What the machine reads at its first boot ([`crate::user_data`]).
    pub user_data: String,
    /// Tags from the first moment on.
    pub tags: BTreeMap<String, String>,
}

/// What is the same for all machines of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Site {
    /// A subnet per zone.
    pub subnets: BTreeMap<String, String>,
    /// Security groups, by id.
    pub security_groups: Vec<String>,
    /// Public keys that may log in, one line each.
    pub authorized_keys: Vec<String>,
    /// Further tags.
    pub tags: BTreeMap<String, String>,
}

impl LaunchSpec {
    /// Returns the launch of a node; `None` for a static host.
    pub fn for_node(node: &Node, site: &Site) -> Option<Self> {
        let Origin::Cloud { client_token, image_id, flavor, .. } = &node.origin else {
            return None;
        };
        let subnet = node.az.as_ref().and_then(|az| site.subnets.get(az)).cloned();
        let mut tags = site.tags.clone();
        tags.insert(tags::NODE.to_owned(), node.id.0.clone());
        tags.insert(tags::PROVIDER.to_owned(), node.provider.0.clone());
        tags.insert("Name".to_owned(), format!("sluice {} {}", node.provider, node.label));
        Some(Self {
            client_token: client_token.clone(),
            image_id: image_id.clone(),
            instance_type: flavor.clone(),
            az: node.az.clone().filter(|_| subnet.is_none()),
            subnet,
            security_groups: site.security_groups.clone(),
            user_data: crate::user_data::cloud_config(&node.username, &site.authorized_keys),
            tags,
        })
    }
}

/// Which machines are meant: those that bear this tag with this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFilter {
    /// The tag's key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl TagFilter {
    /// Returns the filter for all machines of a provider.
    pub fn provider(provider: &ProviderName) -> Self {
        Self { key: tags::PROVIDER.to_owned(), value: provider.0.clone() }
    }
}

/// A machine as its provider describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The provider's id.
    pub id: InstanceId,
    /// What it does.
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
    /// Returns it as the provider cell keeps it.
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

    /// Returns it as a fact for a plan.
    pub fn fact(&self) -> InstanceFact {
        let node = self.tags.get(tags::NODE).map(|id| NodeId(id.clone()));
        InstanceFact { machine: self.machine(), node, state: self.state }
    }
}

/// Returns a listing for a plan; `taken_at` is when the call began.
pub fn listing(instances: &[Instance], taken_at: Timestamp) -> Listing {
    Listing { taken_at, instances: instances.iter().map(Instance::fact).collect() }
}

/// Which images are meant; an empty list does not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageFilter {
    /// By id.
    pub ids: Vec<String>,
    /// By name; `*` and `?` match as in a shell.
    pub names: Vec<String>,
    /// By owner: an account id, `self` or `amazon`.
    pub owners: Vec<String>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFact {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whether it can be launched.
    pub state: String,
    /// When it was made, as ISO text; later ones sort higher.
    pub created: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// Why a call did not work. Every variant is handled differently by the provider cell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// It will never work as it is asked: fail the request.
    #[error(
        "could not {attempt}: the provider refuses it for good: {why}; correct the provider's configuration"
    )]
    Permanent {
        /// What was attempted, on what.
        attempt: String,
        /// The provider's words.
        why: String,
    },
    /// The account's quota is used up: rest.
    #[error(
        "could not {attempt}: the account's quota is used up: {why}; raise it, or lower the configured one"
    )]
    Quota {
        /// What was attempted, on what.
        attempt: String,
        /// The provider's words.
        why: String,
    },
    /// The zone has none left: try another.
    #[error("could not {attempt}: the zone has no room: {why}; another zone is tried")]
    NoCapacity {
        /// What was attempted, on what.
        attempt: String,
        /// The provider's words.
        why: String,
    },
    /// The token was used for another launch: take a new one.
    #[error("could not {attempt}: its token belongs to another launch: {why}; a new node is made")]
    TokenTaken {
        /// What was attempted, on what.
        attempt: String,
        /// The provider's words.
        why: String,
    },
    /// It may work later.
    #[error("could not {attempt}: {why}; it is tried again in {retry_after_seconds} s")]
    Transient {
        /// What was attempted, on what.
        attempt: String,
        /// The provider's words.
        why: String,
        /// Seconds to wait at least.
        retry_after_seconds: u64,
    },
    /// It is not known what happened: look, then try again.
    #[error(
        "could not {attempt}: {why}; it is not known whether it was done, so it is looked at and tried again"
    )]
    Unknown {
        /// What was attempted, on what.
        attempt: String,
        /// What is known.
        why: String,
    },
}

/// Returns the answer to a launch as a fact for a plan.
pub fn launch_fact(answer: &Result<Instance, CloudError>) -> LaunchFact {
    match answer {
        Ok(instance) => LaunchFact::Launched(instance.machine()),
        Err(CloudError::Permanent { why, .. }) => LaunchFact::Permanent(why.clone()),
        Err(CloudError::Quota { why, .. }) => LaunchFact::Quota(why.clone()),
        Err(CloudError::NoCapacity { why, .. }) => LaunchFact::NoCapacity(why.clone()),
        Err(CloudError::TokenTaken { why, .. }) => LaunchFact::TokenTaken(why.clone()),
        Err(CloudError::Transient { why, retry_after_seconds, .. }) => {
            LaunchFact::Transient { why: why.clone(), retry_after_seconds: *retry_after_seconds }
        }
        Err(CloudError::Unknown { why, .. }) => {
            LaunchFact::Transient { why: why.clone(), retry_after_seconds: 1 }
        }
    }
}
