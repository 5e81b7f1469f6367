//! Carries out actions outside the cell after a commit: launch, check, terminate. Each answer is a
//! fact.

use crate::Cloud;
use async_trait::async_trait;
use futures::future::join_all;
use sluice_cloud::{LaunchSpec, LoginKey, SshEndpoint, driver, ssh};
use sluice_model::NodeId;
use sluice_pool::{CheckFact, LaunchFact, NodeOrigin, PoolAction, PoolFacts, PoolNode};
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
                        Some(spec) => driver::launch_fact(&cloud.driver.launch(&spec).await),
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
        PoolAction::Terminate { instance, reason, .. } => {
            let Some(cloud) = cloud else {
                // Its record stays, and the next run terminates it again.
                tracing::error!(
                    %instance,
                    reason,
                    "a machine cannot be terminated: its provider's connection is not configured any more; add it again (`sluice connection add`), or terminate the machine by hand"
                );
                return None;
            };
            if let Err(error) = cloud.driver.terminate(std::slice::from_ref(&instance)).await {
                tracing::warn!(%instance, reason, %error, "a machine could not be terminated yet");
            }
            None
        }
    }
}
