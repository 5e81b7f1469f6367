//! Carries out actions outside the cell after a commit: launch, check, terminate. Each answer is a
//! fact.

use crate::Cloud;
use async_trait::async_trait;
use futures::future::join_all;
use sluice_cloud::{Instance, LaunchSpec, LoginKey, SshEndpoint, TagFilter, driver, ssh};
use sluice_model::{NodeId, ProviderName, Timestamp};
use sluice_pool::{
    CheckFact, LaunchFact, MachineListing, NodeOrigin, PoolAction, PoolFacts, PoolNode,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Seconds that one check of a node may take.
const CHECK_SECONDS: u64 = 5;

/// Checks whether a booted node can be used.
#[async_trait]
pub trait Checks: Send + Sync {
    /// Tries to log in to a node that has booted.
    async fn check(&self, node: &PoolNode) -> CheckFact;
}

/// Checks by SSH: scans the host keys, logs in, runs `true`.
pub struct SshChecks {
    /// The key that every node accepts.
    key: LoginKey,
}

impl SshChecks {
    /// Creates checks that log in with the key that every node of the pool accepts.
    pub fn new(key: LoginKey) -> Self {
        Self { key }
    }
}

#[async_trait]
impl Checks for SshChecks {
    /// Reads the node's host keys and logs in by SSH. Returns `Passed` with the node's configured
    /// host keys, or, if none are configured, with those that it shows, whatever they are. `Failed`
    /// if it shows none of the configured ones; otherwise `NotYet`, also for a node without an
    /// address. Waits about a second for the node's SSH server; then each of the two steps may take
    /// five seconds.
    async fn check(&self, node: &PoolNode) -> CheckFact {
        let Some((address, port)) = node.endpoint() else {
            return CheckFact::NotYet("it has no address".to_owned());
        };
        let within = Duration::from_secs(CHECK_SECONDS);
        let (target, required) = (SshEndpoint { address, port }, node.required_host_keys());
        ssh::check(&target, &node.username, &self.key, required, within).await
    }
}

/// Carries out the actions of a plan concurrently and returns the results of launches and checks by
/// node. Decides nothing; a failure is a result too. A termination has no result here; its effect
/// is found in a later listing. Without `cloud` launches fail permanently and terminations are only
/// logged.
pub(crate) async fn act(
    actions: Vec<PoolAction>,
    cloud: Option<&Cloud>,
    checks: &dyn Checks,
) -> PoolFacts {
    let mut facts = PoolFacts::default();
    for answer in join_all(actions.into_iter().map(|action| act_one(action, cloud, checks)))
        .await
        .into_iter()
        .flatten()
    {
        match answer {
            Answer::Launch(node, fact) => {
                facts.launches.insert(node, fact);
            }
            Answer::Check(node, fact) => {
                facts.checks.insert(node, fact);
            }
        }
    }
    facts
}

/// Lists the machines of a provider in these regions at once, each machine once. A region that
/// cannot be listed is logged and left out of the listing; `None` if none of them can.
pub(crate) async fn list_machines(
    cloud: &Cloud,
    provider: &ProviderName,
    regions: BTreeSet<Option<String>>,
    taken_at: Timestamp,
) -> Option<MachineListing> {
    let filter = &TagFilter::provider(provider);
    let answers = regions.into_iter().map(|region| async move {
        let answer = cloud.driver.describe(region.as_deref(), filter).await;
        (region, answer)
    });
    let (mut listed, mut found) = (BTreeSet::new(), BTreeMap::new());
    for (region, answer) in join_all(answers).await {
        match answer {
            Ok(machines) => {
                // A region may be named, and be the connection's own as well.
                let fact = |one: &Instance| (one.id.clone(), one.fact_in(region.as_deref()));
                found.extend(machines.iter().map(fact));
                listed.insert(region);
            }
            Err(error) => {
                tracing::warn!(%provider, %error, "the machines of a region could not be listed");
            }
        }
    }
    let instances = found.into_values().collect();
    (!listed.is_empty()).then_some(MachineListing { taken_at, regions: listed, instances })
}

enum Answer {
    Launch(NodeId, LaunchFact),
    Check(NodeId, CheckFact),
}

/// Carries out one action of a plan and returns its result; `None` for a termination, whose effect
/// a later listing shows. A launch without a connection to the cloud has failed permanently; a
/// termination without one, or that fails, is logged and left to a later run.
async fn act_one(action: PoolAction, cloud: Option<&Cloud>, checks: &dyn Checks) -> Option<Answer> {
    match action {
        PoolAction::Launch(node) => {
            let fact = match (cloud, &node.origin) {
                (Some(cloud), NodeOrigin::Cloud { .. }) => {
                    match LaunchSpec::for_node(&node, &cloud.site) {
                        Some(spec) => driver::launch_fact(&spec, cloud.driver.launch(&spec).await),
                        None => LaunchFact::Permanent("a static host is not launched".to_owned()),
                    }
                }
                _ => LaunchFact::Permanent(
                    "the connection of the provider's cloud is not configured".to_owned(),
                ),
            };
            if let LaunchFact::Transient { why, .. } = &fact {
                tracing::warn!(node = %node.id, why, "the outcome of a launch is unknown");
            }
            Some(Answer::Launch(node.id, fact))
        }
        PoolAction::Check(node) => {
            let fact = checks.check(&node).await;
            Some(Answer::Check(node.id.clone(), fact))
        }
        PoolAction::Terminate { instance, region, reason, .. } => {
            let Some(cloud) = cloud else {
                // Its record stays, and the next run terminates it again.
                tracing::error!(
                    %instance,
                    reason,
                    "a machine cannot be terminated: its provider's connection is not configured any more; add it again (`sluice connection add`), or terminate the machine by hand"
                );
                return None;
            };
            let ended = cloud.driver.terminate(region.as_deref(), std::slice::from_ref(&instance));
            if let Err(error) = ended.await {
                tracing::warn!(%instance, reason, %error, "a machine could not be terminated yet");
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_cloud::{CloudDriver, CloudError, CloudImageFilter, ImageFact, LaunchSettings};
    use sluice_pool::{InstanceId, InstanceState};
    use std::sync::Arc;

    /// A cloud with one machine in the connection's own region, `home`. The region `down` does not
    /// answer.
    struct PartlyDown;

    fn refusal() -> CloudError {
        CloudError::Unknown { attempt: "call it".to_owned(), why: "it is down".to_owned() }
    }

    #[async_trait]
    impl CloudDriver for PartlyDown {
        async fn launch(&self, _: &LaunchSpec) -> Result<Instance, CloudError> {
            Err(refusal())
        }

        async fn describe(
            &self,
            region: Option<&str>,
            filter: &TagFilter,
        ) -> Result<Vec<Instance>, CloudError> {
            let machine = Instance {
                id: InstanceId("i-1".to_owned()),
                state: InstanceState::Running,
                private_ip: None,
                public_ip: None,
                ipv6: None,
                az: None,
                tags: BTreeMap::from([(filter.key.clone(), filter.value.clone())]),
                launched_at: Timestamp(0),
            };
            match region {
                None | Some("home") => Ok(vec![machine]),
                Some("down") => Err(refusal()),
                Some(_) => Ok(Vec::new()),
            }
        }

        async fn terminate(&self, _: Option<&str>, _: &[InstanceId]) -> Result<(), CloudError> {
            Err(refusal())
        }

        async fn images(&self, _: &CloudImageFilter) -> Result<Vec<ImageFact>, CloudError> {
            Err(refusal())
        }
    }

    async fn listing_of(regions: &[Option<&str>]) -> Option<MachineListing> {
        let cloud = Cloud { driver: Arc::new(PartlyDown), site: LaunchSettings::default() };
        let regions = regions.iter().map(|region| region.map(str::to_owned)).collect();
        list_machines(&cloud, &"main".into(), regions, Timestamp(1)).await
    }

    /// L3.8, Z1.9: a listing has the machines of all regions that answer, each machine once.
    #[tokio::test]
    async fn a_listing_leaves_out_only_the_regions_that_do_not_answer() {
        let regions = [None, Some("home"), Some("empty"), Some("down")];
        let listing = listing_of(&regions).await.unwrap();
        let listed = ["home", "empty"].map(|region| Some(region.to_owned()));
        let expected: BTreeSet<_> = [None].into_iter().chain(listed).collect();
        assert_eq!(listing.regions, expected);
        assert_eq!(listing.instances.len(), 1, "the region of the connection is named as well");
        assert_eq!(listing_of(&[Some("down")]).await, None);
    }
}
